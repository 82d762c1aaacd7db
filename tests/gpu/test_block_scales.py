"""On a GPU: step 19 gives the bits that the SIMT machine gives, and cuBLAS multiplies the same numbers with the same factors."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest

from helpers.course.steps import get
from helpers.run import gemm, gpu, timing
from helpers.run.kernel import Kernel, compile

STEP = get("fp8")


@functools.cache
def kernel(**constants: int) -> Kernel:
    source = STEP.kernel_path.read_text(encoding="utf-8")
    for name, value in constants.items():
        source, count = re.subn(rf"\b{name} = \d+", f"{name} = {value}", source, count=1)
        assert count == 1
    return compile(source, STEP.entry, STEP.arch)


@pytest.mark.parametrize("constants", [{}, {"CONSUMERS": 3, "BM": 192}, {"SCALE_K": 0}, {"SCALE_K": 0, "PROMOTE": 0}], ids=str)
@pytest.mark.parametrize("shape, options", [
    ((256, 128, 256), {}), ((300, 200, 1000), {"alpha": 0.5, "beta": -2.0, "pad_a": 3, "pad_c": 1}), ((513, 257, 2048), {}), ((7, 9, 0), {}),
], ids=["tiles", "edges", "long", "empty"])  # fmt: skip
def test_the_machine_gives_the_same_bits(constants, shape, options):
    made = kernel(**constants)
    problem = gemm.problem_for(made, *shape, **options)
    results = []
    for on in ("cpu", "gpu"):
        arrays = problem.arrays()
        run = gemm.run(made, problem, on=on, arrays=arrays, counters=False)
        assert run.on == on
        results.append(arrays[2][:, : problem.n].astype(np.float32))
    assert np.array_equal(*results)


def assert_cublas_computes(problem):
    host = timing.operands(problem)
    c = gpu.upload(host[2])
    once, why = timing.opponent(problem, gpu.upload(host[0]), gpu.upload(host[1]), c)
    assert once is not None, why
    gpu.run_once(once, "cuBLAS")
    value, bound = problem.expected(*host)
    got = gpu.download(c, host[2])[:, : problem.n].astype(np.float64)
    assert (np.abs(got - value) <= bound).all()


def test_cublas_computes_the_same_product():
    problem = gemm.problem_for(kernel(), 272, 400, 1040)
    assert_cublas_computes(problem)


@pytest.mark.parametrize("out_dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_cublas_multiplies_8_bit_floats_without_factors(out_dtype, beta):
    problem = gemm.Problem(272, 400, 1040, alpha=1.5, beta=beta, dtype="float8_e4m3", out_dtype=out_dtype, transb=True, pad_b=16, pad_c=16)
    assert_cublas_computes(problem)


@pytest.mark.parametrize("options", [{}, {"transa": True}, {"batch": 2}])
def test_without_factors_too_it_says_which_products_it_does_not_take(options):
    problem = gemm.Problem(301, 203, 1001, dtype="float8_e4m3", transb=True, **options)
    once, why = timing.opponent(problem, *(gpu.upload(array) for array in timing.operands(problem)))
    assert once is None and ("multiples of 16" if not options else "8-bit floats") in why


def test_a_shape_that_cublas_does_not_take_is_timed_without_it():
    timed = timing.time_gemm(kernel(), gemm.problem_for(kernel(), 301, 203, 1001), samples=3, seconds=0.3)
    assert timed.cublas is None and "multiples of 16" in timed.why_no_cublas and timed.kernel.milliseconds > 0
