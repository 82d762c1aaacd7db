"""Steps 14 to 17: right in the other type too, at any alignment, and every wait, barrier and fence of theirs is needed."""

from __future__ import annotations

import functools
import re
from dataclasses import replace

import pytest

from helpers.course import tensor_probes
from helpers.course.comparing import variants
from helpers.course.exercises import exercise
from helpers.course.lesson import LessonKernel, reference
from helpers.course.steps import STEPS
from helpers.course.sweep import variant
from helpers.errors import CompileError, RunError
from helpers.run import gemm
from helpers.run.gemm import Problem
from helpers.run.kernel import compile as compile_kernel
from helpers.sim.checks.endless import ALL_FIRST
from helpers.sim.checks.shared_races import COPIES_ALONE_ADVICE
from helpers.toolchain.compile import compile_source


@functools.cache
def unassembled(step: str) -> LessonKernel:
    """The kernel of a step as PTX alone, from which variants are made so: the machine needs no more, and it takes half the time."""
    made = reference(step).compiled
    return LessonKernel(compile_source(made.source, made.entry, made.arch.replace("sm_", "compute_"), made.options), step)


OTHER_TYPE = {
    "wmma": {"using Element = __half": "using Element = __nv_bfloat16"},
    "mma_sync": {"Element = __nv_bfloat16": "Element = __half", '"bf16"': '"f16"'},
    "tma_wgmma": {"Element = __nv_bfloat16": "Element = __half", '"bf16"': '"f16"'},
    "warp_specialized": {"Element = __nv_bfloat16": "Element = __half", '"bf16"': '"f16"'},
}
BROKEN = [
    ("wmma", "race", {"__syncthreads();  // both tiles": ";  // both tiles"}),
    ("wmma", "race", {"__syncthreads();  // everyone": ";  // everyone"}),
    ("wmma", "race", {"__syncwarp();  // and read": ";  // and read"}),
    ("mma_sync", "missing-wait", {"wait<STAGES - 2>();": "wait<STAGES - 1>();"}),
    ("mma_sync", "race", {"__syncthreads();     // for all": ";     // for all"}),
    ("mma_sync", "race", {"__syncthreads();  // the stages": ";  // the stages"}),
    ("tma_wgmma", "missing-wait", {"full[stage], phase);": "full[stage], 0);"}),
    ("tma_wgmma", "missing-wait", {"wgmma_wait<0>();": "wgmma_wait<1>();"}),
    ("tma_wgmma", "race", {"wgmma_wait<1>();": "wgmma_wait<2>();"}),
    ("tma_wgmma", "race", {"__syncthreads();  // and so have all": ";"}),
    ("warp_specialized", "race", {"wgmma_wait<1>();": "wgmma_wait<2>();"}),
    ("warp_specialized", "race", {"s++, next()) wait(&shared.empty[stage], phase ^ 1);": "s++, next());"}),
    ("warp_specialized", "missing-wait", {"if (t % 128 == 0) store_wait<C_BOXES - 1>();\n                    consumer": "consumer"}),
]
# The main loop of blocks inside the matrices, by the shortest K that shows it.
BROKEN_INSIDE = [
    (160, "missing-wait", {"wait<STAGES - 2>();": "wait<STAGES - 1>();"}),
    (160, "race", {"__syncthreads();     // for all": ";     // for all"}),
    (128, "out-of-bounds", {"if (k0 >= K) return;": ""}),
    (96, "uninitialized", {" && K >= STAGES * BK;": ";"}),
]
LONG = {"tma_wgmma": 448, "warp_specialized": 448}  # K at which each stage is filled twice


@pytest.mark.parametrize("step", OTHER_TYPE)
def test_one_switch_changes_the_type(step):
    kernel = variants(reference(step), {"other": OTHER_TYPE[step]})["other"]
    dtype, _ = gemm.types(kernel)
    assert dtype != reference(step).step.dtype
    rows_aligned = Problem(40, 136, 48, dtype=dtype, alpha=0.5, beta=2.0, pad_a=8, pad_b=8, pad_c=4)
    assert gemm.check(kernel, [rows_aligned, Problem(33, 70, 37, dtype=dtype, beta=1.0, pad_a=1)], on="cpu")


@pytest.mark.parametrize(("step", "kind", "edits"), BROKEN)
def test_what_is_left_out_is_found(step, kind, edits):
    kernel = variants(unassembled(step), {"broken": edits})["broken"]
    run = kernel.gemm(128, 256, LONG.get(step, 100), on="cpu", counters=False)
    assert kind in {finding.kind for finding in run.findings}


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        ({"wgmma_wait<1>();": "wgmma_wait<2>();"}, "only then arrive at the mbarrier that the copy waits for"),
        ({"wait(&shared.empty[stage], phase ^ 1);": ";"}, "wait in front of it, at the mbarrier where the readers of its buffer arrive"),
        (
            {"expect(full, sizeof(Stage));": "expect(full, sizeof(Stage::A));", "b < CONSUMERS; b++) load(": "b < 0; b++) load("},
            "no copy has filled",
        ),
    ],
)
def test_blocks_that_meet_at_mbarriers_are_told_what_to_do_with_mbarriers(edits, said):
    broken = variants(unassembled("warp_specialized"), {"broken": edits})["broken"]
    report = gemm.check(broken, [Problem(128, 256, 448, dtype="bfloat16", out_dtype="bfloat16")], on="cpu")
    assert said in " ".join(str(finding) for finding in report.findings)


def step_17(constants):
    return variants(unassembled("warp_specialized"), {"edited": constants})["edited"]


LEAVING = {"consumer_sync(group);  // all have left": "// all have left"}
OF_TWO_SLICES = {
    "right": {},
    "the last by its number": {"count(&finished[tile]) == SLICES - 1": "item % SLICES == SLICES - 1"},
    "counted without an order": {"atom.acq_rel": "atom.relaxed"},
    "the last does not acquire": {"atom.acq_rel": "atom.release"},
    "counted before all have left theirs": LEAVING,
}


@pytest.mark.parametrize("edits", OF_TWO_SLICES.values(), ids=OF_TWO_SLICES)
def test_slices_that_do_not_wait_for_each_other_are_found(edits):
    small = {"SLICES": 2, "BM": 64, "BN": 64, "CLUSTER": 1, "C_BOXES": 1}
    findings = step_17(small | edits).gemm(128, 64, 256, on="cpu", counters=False).findings
    assert "race" in {finding.kind for finding in findings} if edits else not findings


MANY = {"SLICES": 9, "BM": 32, "BN": 64, "CLUSTER": 1, "C_ROWS": 32, "C_BOXES": 1}
OF_MANY_SLICES = {
    "right": {},
    "nobody waits": {"while (counted(&finished[tile]) < SLICES);": ";"},
    "one is enough": {"counted(&finished[tile]) < SLICES": "counted(&finished[tile]) < 1"},
    "one thread waits for itself": {"< SLICES);\n                    consumer_sync(group);": "< SLICES);"},
    "not set back": {"== 2 * SLICES - 1) finished": "== 2 * SLICES) finished"},
    "counted without an order": {"atom.acq_rel": "atom.relaxed"},
    "waited without an order": {"ld.acquire": "ld.relaxed"},
    "counted before all have left theirs": LEAVING,
    "a share is left out": {"i += SLICES)": "i += 2 * SLICES)"},
    "one too few": {"from < SLICES; from++) sum": "from < SLICES - 1; from++) sum"},
}
OF_MANY = Problem(40, 70, 600, dtype="bfloat16", out_dtype="bfloat16")


@pytest.mark.parametrize("edits", OF_MANY_SLICES.values(), ids=OF_MANY_SLICES)
def test_slices_that_all_add_up_are_held_to_it(edits):
    assert gemm.check(step_17(MANY | edits), [OF_MANY], on="cpu", seconds=20.0).passed == (not edits)


def test_many_slices_need_as_many_blocks():
    with_fewer_blocks = gemm.run(step_17(MANY), OF_MANY, on="cpu", counters=False, multiprocessors=8)
    assert not with_fewer_blocks.findings, "slices would wait for blocks that come after them: K is not cut"
    with pytest.raises(CompileError, match="slices wait for each other: beyond 8, CLUSTER and BLOCKS must be 1"):
        variants(reference("warp_specialized"), {"refused": {"SLICES": 9}})


def test_boxes_in_a_ring_that_a_tile_does_not_fill_are_refused():
    """The next tile would begin in the box that has just been sent off: the wait allows as many on their way as the ring has."""
    one_box = {"BM": 64, "BN": 64, "CLUSTER": 1, "C_ROWS": 64, "C_BOXES": 2}
    with pytest.raises(CompileError, match="C_BOXES must divide BM / C_ROWS, the boxes of a tile"):
        variants(reference("warp_specialized"), {"refused": one_box})
    source = reference("warp_specialized").source
    refusal = next(line for line in source.split("\n") if line.startswith("static_assert(C_BOXES >= 1"))
    made = compile_kernel(variant(source.replace(refusal, ""), **one_box), entry="warp_specialized", arch="sm_90a")
    run = gemm.run(made, gemm.problem_for(made, 128, 64, 64), on="cpu", counters=False, multiprocessors=1)
    assert "missing-wait" in {finding.kind for finding in run.findings}


@pytest.mark.parametrize("rows", range(16, 257, 16))
def test_a_tile_may_have_any_multiple_of_16_rows(rows):
    """Each has a wgmma instruction of its own, with a list of its sums."""
    source = reference("warp_specialized").source
    constants = {"BM": rows, "BN": 64, "CLUSTER": 1, "C_ROWS": 16, "C_BOXES": 1}
    kernel = compile_kernel(variant(source, **constants), entry="warp_specialized", arch="sm_90a")
    assert set(re.findall(r"wgmma\S*\.m64n(\d+)k16", kernel.ptx)) == {str(rows)}
    assert gemm.check(kernel, [gemm.problem_for(kernel, rows + 1, 72, 80)], on="cpu")


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "parts"), [(192, {"192"}), (208, {"112", "96"}), (240, {"128", "112"}), (256, {"128"})])
def test_three_consumers_multiply_more_than_192_rows_in_two_parts(rows, parts):
    source = reference("warp_specialized").source
    constants = {"BM": rows, "BN": 192, "STAGES": 3, "C_ROWS": 16, "C_BOXES": 1}
    kernel = compile_kernel(variant(source, **constants), entry="warp_specialized", arch="sm_90a")
    assert set(re.findall(r"wgmma\S*\.m64n(\d+)k16", kernel.ptx)) == parts and kernel.registers == 128
    assert not kernel.compiled.spill_stores + kernel.compiled.spill_loads
    problem = gemm.problem_for(kernel, rows + 9, 400, 150)
    assert gemm.check(kernel, [problem, replace(problem, alpha=0.5, beta=2.0, pad_c=3)], on="cpu")


def test_more_rows_in_one_part_are_more_than_the_compiler_has_registers_for():
    whole = variant(reference("warp_specialized").source, BM=256, BN=192, STAGES=3, C_ROWS=16, C_BOXES=1).replace(
        "BM > 192 ?", "BM > 256 ?"
    )
    with pytest.raises(CompileError, match="Insufficient registers"):
        compile_source(whole, "warp_specialized", "sm_90a")


@pytest.mark.parametrize(("k", "kind", "edits"), BROKEN_INSIDE)
def test_what_the_loop_without_tests_leaves_out_is_found(k, kind, edits):
    kernel = variants(unassembled("mma_sync"), {"broken": edits})["broken"]
    assert kind in {finding.kind for finding in kernel.gemm(128, 256, k, on="cpu", counters=False).findings}


def test_what_the_assembler_did_at_the_cost_of_speed_is_said():
    source = tensor_probes.wgmma_source("bf16", 64)
    fence = '    for (int i = 0; i < 64 / 2; i++) asm volatile("" : "+f"(d[i]) :: "memory");\n'
    assert source.count(fence) == 1 and not compile_source(source, "probe", "sm_90a").warnings
    (said,) = compile_source(source.replace(fence, ""), "probe", "sm_90a").warnings
    assert said.startswith("The assembler (ptxas, C7514) warns of a loss of speed: wgmma.mma_async instructions are serialized due to")
    assert said.endswith("Each then waits for the one before it.")


@pytest.mark.parametrize("step", [step for step in STEPS if step.number >= 16 and step.entry], ids=lambda step: step.slug)
def test_no_step_with_wgmma_loses_speed_to_the_assembler(step):
    made = compile_source(step.kernel_path.read_text(encoding="utf-8"), step.entry, step.target())
    assert not any("loss of speed" in warning for warning in made.warnings), made.warnings


def test_where_mbarriers_tell_of_copies_alone_the_barrier_of_all_comes_first():
    (alone,) = variants(unassembled("tma_wgmma"), {"": {"__syncthreads();  // and so have all": ";"}}).values()
    said = {finding.advice for finding in alone.gemm(256, 256, LONG["tma_wgmma"], on="cpu", counters=False).findings}
    assert said == {COPIES_ALONE_ADVICE}
    kernel = compile_kernel(exercise("too_soon").starter, arch="sm_90a")  # there four warps have one of theirs arrive, and one copies
    said = {finding.advice for finding in gemm.run(kernel, gemm.problem_for(kernel, 64, 64, 256), "cpu", counters=False).findings}
    assert said and COPIES_ALONE_ADVICE not in said


@pytest.mark.parametrize(
    ("old", "new", "all_first"),
    [
        ("wait(&shared.empty[stage], phase ^ 1);  // the", "wait(&shared.empty[stage], phase);  // the", True),
        ("if (t % 128 < CLUSTER) arrive(&shared.empty[stage], t % 128);", "", False),
    ],
)
def test_waits_that_nobody_can_begin_for_are_told_from_an_arrival_that_is_missing(old, new, all_first):
    (kernel,) = variants(unassembled("warp_specialized"), {"": {old: new}}).values()
    with pytest.raises(RunError, match="never completed") as caught:
        kernel.gemm(256, 256, LONG["warp_specialized"], on="cpu", counters=False)
    (finding,) = caught.value.findings
    assert (finding.advice == ALL_FIRST) == all_first
