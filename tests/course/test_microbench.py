"""The micro-kernels measure the instructions that they name, and what was recorded is plausible.

Tests of: helpers.course.tensor_probes
"""

import json
import re

import numpy as np
import pytest

from helpers.course import microbench, tensor_probes
from helpers.model import hardware
from helpers.model.cycles.chip import chip
from helpers.model.cycles.scheduled import scheduled
from helpers.run import kernel
from helpers.sim.code import sass
from helpers.sim.counting import names
from helpers.toolchain.compile import compile_source
from tests import DATA

SASS = {"LDSM.4": "LDSM.16.M88.4", "LDGSTS.32": "LDGSTS.E", "LDGSTS.128": "LDGSTS.E.BYPASS.128", "SHF": "SHF.L.W.U32.HI", "BAR": "BAR.SYNC"}


def in_the_loop(body: str) -> str:
    """The machine code between the two readings of the clock."""
    frame = microbench._INSTRUCTIONS + microbench._FRAME.format(body=body, repeat=microbench.REPEAT, after="")
    lines = compile_source(frame, entry="probe", arch="sm_90").sass.splitlines()
    clocks = [k for k, line in enumerate(lines) if "SR_CLOCK" in line]
    return "\n".join(lines[clocks[0] : clocks[-1]])


@pytest.mark.parametrize("name", ["FFMA", "LDS.128", "STS.32", "LDG.32", "LDG.128", "LDC", "LDSM.4", "LDGSTS.128", "BAR"])
def test_a_probe_executes_its_instruction_as_often_as_it_says(name):
    """What the assembler merges, drops or moves out of the loop would be measured as too fast."""
    opcode, _, bits = name.partition(".")
    wanted = SASS.get(name) or {"LDG": "LDG.E", "STG": "STG.E"}.get(opcode, opcode) + ("" if bits in ("", "32") else f".{bits}")
    assert len(re.findall(rf"\s{re.escape(wanted)}(?:\.DEFER_BLOCKING)? ", in_the_loop(microbench.body_of(name)))) == microbench.UNROLL


def test_what_was_recorded_keeps_to_what_a_multiprocessor_can_do():
    kept = json.loads((DATA / "microbench-nvidia-h200.json").read_text())
    rows = {(row["kind"], row["name"], row["warps"]): row["cycles"] for row in kept["rows"] if row["count"] == 1}
    assert kept["about"]["device"] == "NVIDIA H200"
    for name, wavefronts in (("LDS.32", 1), ("LDS.64", 2), ("LDS.128", 4), ("STS.128", 4), ("SHFL", 1)):
        assert rows["throughput", name, 32] == pytest.approx(32 * wavefronts, rel=0.1), name
    assert 4 <= rows["latency", "FFMA", 1] < 4.5
    assert rows["latency", "LDS.32", 1] < rows["latency", "LDG L1", 1] < rows["latency", "LDG L2", 1]
    assert all(row["cycles"] > 0 for row in kept["rows"])


@pytest.mark.parametrize("name", tensor_probes._MMA)
def test_a_probe_of_tensor_cores_executes_its_instruction_as_often_as_it_says(name):
    opcode, _, kind = name.partition(" ")
    found = re.findall(r"\s(HMMA[.\w]*)", compile_source(tensor_probes.mma_source(name, tensor_probes.CHAINS), "probe", "sm_90a").sass)
    assert len(found) == tensor_probes.CHAINS and set(found) == {f"{opcode}.F32" + {"bf16": ".BF16", "tf32": ".TF32", "f16": ""}[kind]}


@pytest.mark.parametrize("kind", tensor_probes._WGMMA)
def test_a_probe_of_warpgroups_is_not_serialised_by_the_compiler(kind):
    made = compile_source(tensor_probes.wgmma_source(kind, 128), "probe", "sm_90a")
    assert len(re.findall(r"\s[HQ]GMMA", made.sass)) == 4 and "serialized" not in made.log


def test_what_was_recorded_of_tensor_cores_is_what_the_model_takes():
    rows = json.loads((DATA / "microbench-nvidia-h200.json").read_text())["rows"]
    cycles = {(row["kind"], row["name"], row["warps"]): row["cycles"] for row in rows}
    for kind in tensor_probes._WGMMA:
        for n in tensor_probes.COLUMNS[1:]:
            assert [cycles["wgmma", f"n{n} {kind}", warps] for warps in (4, 8)] == pytest.approx([n / 2, n / 2], rel=0.01)
    h200 = chip(hardware.gpu("H200 SXM"))
    for name in tensor_probes._MMA:
        ideal = 2 if "1684" in name or "1688 bf16" in name else 4
        assert ideal + h200["tensor.synchronous"] == pytest.approx(cycles["throughput", name, 16], rel=0.1)
        assert 28 < cycles["latency", name, 1] < 31
    zeros = [row["cycles"] for row in rows if row["kind"] == "clock" and "zeros" in row["name"]]
    assert zeros and all(1980 * (1 - h200["clock.working"]) == pytest.approx(mhz, rel=0.025) for mhz in zeros)
    busy = [row for row in rows if row["kind"] == "clock" and "random" in row["name"] and row["count"] > 90]
    assert all(row["cycles"] < min(zeros) for row in busy), "random numbers cost clock"


@pytest.mark.parametrize("name", ["LDS.32", "STS.32"])
def test_the_probe_of_queues_fills_them_and_waits_for_no_data(name):
    """Every access takes as many wavefronts as the measurement takes for granted, and the clock is read right behind it."""
    source = microbench.queue_source(name)
    run = kernel.compile(source, entry="queue", arch="sm_90").launch(1, 32 * microbench._ASKING, [np.zeros(1024, np.uint32)], on="cpu")
    asked = 2 * microbench._ASKING * microbench._EACH
    first = 1024 / 32 if name == "STS.32" else 0  # wavefronts to clear the array
    kind = "st" if name == "STS.32" else "ld"
    assert run.counters[names.shared_wavefronts(kind)] == asked * microbench._WAVEFRONTS + first

    compiled = compile_source(source, "queue", "sm_90")
    function = sass.parse(compiled.sass)[compiled.symbol]
    plan = scheduled(function, compiled.cubin, chip(hardware.gpu("H200 SXM")))
    last_barrier = max(i.index for i in function.instructions if i.name == "BAR")
    probe = plan[last_barrier + 1 : last_barrier + 1 + 2 * microbench._EACH]
    assert [function.instructions[step.index].name for step in probe] == [name.partition(".")[0], "CS2R"] * microbench._EACH
    assert not any(step.waits for step in probe)


def test_what_a_sub_partition_issued_before_its_first_pause_is_what_waits():
    when = np.arange(32)[:, None] // 4 * 2 + np.array([0, 16, 400, 500, 600, 700, 800, 900])[None, :]
    assert microbench.waiting(when) == 2 * 8, "eight warps of each sub-partition issue two, then the third comes late"
    when[3::4, 1] += 300  # one of four sub-partitions is held up
    assert microbench.waiting(when) == 2 * 8
    assert microbench.waiting(np.arange(64).reshape(32, 2)) == 16, "nobody had to wait"
