"""The clock that a time is held to, and the process that a kernel is ended with."""

from dataclasses import replace

import psutil
import pytest

from helpers.errors import RunError
from helpers.run.gemm import Problem
from helpers.run.geometry import MAPS
from helpers.run.shared_gpu import judging, protocol
from helpers.run.shared_gpu.protocol import LaunchJob, Made, Passed, ProductJob, SentCode
from helpers.run.transposes import compile_with
from helpers.toolchain.compile import compile_source
from tests import ROOT
from tests.run.column_kernels import plain
from tests.run.tma_kernels import source


@pytest.mark.parametrize(
    ("milliseconds", "wall", "launches", "believed"),
    [(2.0, 0.105, 50, True), (0.003, 0.16, 5000, True), (2.0, 0.5, 50, False), (0.02, 2.0, 5000, False)],
    ids=["as it says", "a launch's own cost", "five times slower", "every launch but the timed ones"],
)
def test_a_time_is_held_to_the_clock_of_the_process_that_watches(milliseconds, wall, launches, believed):
    assert (judging.contradiction(milliseconds, wall, launches) == "") == believed


def judged(text: str, problem: Problem, maps: tuple[str, ...] = ()) -> dict:
    compiled = compile_source(text)
    code = SentCode(compiled.ptx, compiled.symbol, compiled.entry, compiled.arch, compiled.shared_bytes, maps)
    return judging.judge(protocol.dumps(ProductJob(code, problem, 1, 1.0)), simulated=True, seconds=60)


COALESCED = (ROOT / "kernels/02_coalesced.cu").read_text(encoding="utf-8")


def test_a_wrong_product_is_not_timed():
    found = judged(COALESCED.replace("k < K", "k < K - 1"), Problem(33, 34, 35))
    assert found["state"] == "failed" and "computes wrong results at 33 × 34 × 35" in found["message"]


def test_a_right_product_of_16_bits_and_a_batch_of_one_is_timed():
    found = judged(COALESCED, Problem(20, 30, 40, beta=0.5, pad_c=3))
    assert found["state"] == "done" and found["timing"]["coalesced"]["milliseconds"] > 0, found


def test_a_product_by_tensor_maps_is_timed_whatever_its_rows():
    found = judged(source(persistent=1), Problem(20, 30, 33, dtype="bfloat16", out_dtype="float32"), MAPS)
    assert found["state"] == "done" and found["timing"]["tma_gemm"]["milliseconds"] > 0, found


def test_a_product_of_B_by_columns_is_timed_and_its_kernel_has_to_say_so():
    by_columns = compile_with(plain(), None, "sm_90", (), transb=True).source
    found = judged(by_columns, Problem(20, 30, 40, transb=True, pad_b=2))
    assert found["state"] == "done" and found["timing"]["plain"]["milliseconds"] > 0, found
    found = judged(by_columns, Problem(20, 30, 40))
    assert found["state"] == "failed" and "takes its matrices otherwise" in found["message"]


@pytest.mark.slow
def test_a_product_with_factors_is_timed_and_its_factors_are_held_to():
    right = (ROOT / "kernels/19_fp8.cu").read_text(encoding="utf-8")
    problem = Problem(20, 30, 160, dtype="float8_e4m3", out_dtype="bfloat16", scale_block=(1, 128, 128))
    found = judged(right, problem, MAPS)
    assert found["state"] == "done" and found["timing"]["fp8"]["milliseconds"] > 0, found
    found = judged(right, replace(problem, scale_block=(1, 128, 64)), MAPS)
    assert found["state"] == "failed" and "blocks with a factor are not those" in found["message"]
    without = right.replace(" * shared.factor_B[stage]", "")
    assert without != right
    found = judged(without, problem, MAPS)
    assert found["state"] == "failed" and "computes wrong results at 20 × 30 × 160" in found["message"]


def test_an_endless_kernel_is_ended_with_its_process():
    compiled = compile_source("__global__ void forever(float* x) { x[0] = 1; while (true) x[1] += 1; }")
    code = SentCode(compiled.ptx, compiled.symbol, compiled.entry, compiled.arch, 0)
    job = LaunchJob(code, (1, 1, 1), (1, 1, 1), 0, None, None, (Made("float32", (2,)),), (Passed(array=0),))
    found = judging.judge(protocol.dumps(job), simulated=True, seconds=1)
    assert found["state"] == "failed" and "forever did not end within 1 s on the shared GPU and was stopped" in found["message"]
    assert "stands here for a GPU and is thousands of times slower" in found["message"]
    assert not any(map(_is_candidate, psutil.Process().children(recursive=True)))


def _is_candidate(process: psutil.Process) -> bool:
    try:
        return "shared_gpu.candidate" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # it has ended, though nobody may have asked how
        return False


def test_a_process_that_ends_or_says_nonsense_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(judging.sys, "executable", "/bin/true")
    with judging._Process("mine", tmp_path, True, 5) as process, pytest.raises(RunError, match="mine ended the process it ran in"):
        process.hear("ready", 5)
