"""Products by tensor maps on a GPU: aligned matrices, copied ones, persistent blocks, clusters; what a copy costs is in the time."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import helpers
from helpers.run import gemm, gpu, timing
from helpers.run.timing import launches, time_gemm
from tests.run.tma_kernels import source

Problem = functools.partial(helpers.Problem, dtype="bfloat16", out_dtype="float32")
KERNELS = {
    "one block per tile": source(), "persistent": source(persistent=2), "clusters": source(cluster=2),
    "persistent clusters": source(persistent=1, cluster=2),
}  # fmt: skip
ALIGNED, COPIED = Problem(520, 1032, 136), Problem(517, 1031, 131, alpha=0.5, beta=-1.0, pad_a=2, pad_c=3)


@pytest.fixture(scope="module", autouse=True)
def hopper():
    if gpu.available() and gpu.arch() != "sm_90":
        pytest.skip("multicast copies are compiled for sm_90a")


@pytest.mark.parametrize("text", KERNELS.values(), ids=KERNELS)
def test_the_result_is_right_and_that_of_the_machine(text):
    kernel = helpers.compile(text)
    for problem in (ALIGNED, COPIED, Problem(1, 1, 1), Problem(5, 7, 0, beta=2.0)):
        before = problem.arrays()
        there = tuple(array.copy() for array in before)
        run = gemm.run(kernel, problem, on="gpu", arrays=there)
        assert run.on == "gpu" and run.milliseconds > 0 and gemm.compare(problem, before, there) == ""
    here = COPIED.arrays()
    there = COPIED.arrays()
    gemm.run(kernel, COPIED, on="cpu", arrays=here, counters=False)
    gemm.run(kernel, COPIED, on="gpu", arrays=there)
    assert here[2].tobytes() == there[2].tobytes()


def test_a_persistent_grid_fills_this_gpu():
    run = gemm.run(helpers.compile(KERNELS["persistent clusters"]), Problem(1024, 1024, 32), on="gpu")
    assert run.grid == (gpu.device().sms // 2 * 2, 1, 1)


@pytest.mark.parametrize("text", KERNELS.values(), ids=KERNELS)
def test_products_are_checked_and_timed(text):
    for problem in (ALIGNED, COPIED, Problem(64, 96, 33, batch=3)):
        assert time_gemm(helpers.compile(text), problem, samples=5, seconds=0.5).kernel.milliseconds > 0


def test_each_launch_copies_anew():
    kernel = helpers.compile(KERNELS["one block per tile"]).native(gpu.arch())
    host = timing.operands(COPIED)
    a, b, c = map(gpu.upload, host)
    once = launches(kernel, gemm.geometry(kernel), Problem(517, 1031, 131, pad_a=2, pad_c=3), (a, b, c), None)
    gpu.run_once(once, "first")
    first = gpu.download(c, host[2])[:, :1031].copy()
    a[...] = gpu.upload(-host[0])
    gpu.run_once(once, "second")
    assert np.abs(first).max() > 1 and np.array_equal(gpu.download(c, host[2])[:, :1031], -first)


def test_cupy_arrays_are_used_in_place():
    import cupy

    problem = helpers.Problem(33, 47, 35, dtype="float16", out_dtype="float32", pad_a=2)
    host = problem.arrays()
    there = tuple(cupy.asarray(array) for array in host)
    text = source().replace("__nv_bfloat16", "__half").replace("cuda_bf16", "cuda_fp16")
    for on in ("gpu", "cpu"):
        there[2][...] = cupy.asarray(host[2])
        gemm.run(helpers.compile(text), problem, on=on, arrays=there)
        assert gemm.compare(problem, host, tuple(array.get() for array in there)) == ""
