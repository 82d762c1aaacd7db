"""Factors that blocks of numbers share: how they are made, what kernels are given, and what a product with them is."""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np
import pytest

from helpers.course import exercises
from helpers.errors import LaunchError
from helpers.run import block_scales, gemm
from helpers.run.block_scales import quantized
from helpers.run.gemm import Problem
from helpers.run.gpu import cublas_refuses
from helpers.run.kernel import Kernel, compile
from helpers.run.launch_arguments import launch_arguments


@functools.cache
def kernel(*edits: tuple[str, str]) -> Kernel:
    """The exercise's kernel, one warp for a tile, with these edits."""
    source = exercises.exercise("by_the_block").solution
    for old, new in edits:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    return compile(source, "by_the_block", "sm_90")


def problem(m: int, n: int, k: int, **options) -> Problem:
    return Problem(m, n, k, dtype="float8_e4m3", out_dtype="bfloat16", scale_block=(1, 128, 128), **options)


# ------------------------------------------------------------------------------------------------- making factors


@pytest.mark.parametrize("along, across", [(128, 1), (128, 128), (0, 1), (0, 0), (32, 3)])
def test_numbers_come_back_within_half_a_step_and_blocks_use_the_whole_range(along, across):
    x = np.random.default_rng(0).standard_normal((130, 300)).astype(np.float32) * np.exp2(np.arange(300) % 60 - 30).astype(np.float32)
    found = quantized(x, along, across)
    assert found.stored.dtype == ml_dtypes.float8_e4m3fn and found.factors.dtype == np.float32
    each = np.abs(found.restored() - x)
    factor = found.factors.T[np.arange(130) // found.across][:, np.arange(300) // found.along]
    assert (each <= np.maximum(np.abs(x) * 2.0**-4, factor * 2.0**-10) * 1.001).all()
    for block in np.ndindex(*found.factors.shape):
        k, row = (index * size for index, size in zip(block, (found.along, found.across), strict=True))
        assert np.abs(found.stored[row : row + found.across, k : k + found.along].astype(np.float32)).max() == 448


def test_a_block_of_zeros_has_the_factor_one_and_tiny_numbers_have_one_that_is_no_zero():
    assert (quantized(np.zeros((2, 8), np.float32)).factors == 1).all()
    tiny = quantized(np.full((1, 4), 1e-44, np.float32))
    assert np.isfinite(tiny.restored()).all() and (tiny.factors > 0).all()


@pytest.mark.parametrize("arguments, said", [
    ((np.ones((2, 2)), 128, 1, "float16"), "16 bits"), ((np.ones(4),), "a matrix"), ((np.ones((2, 2)), -1), "whole numbers"),
    ((np.ones((2, 2)), 1.5), "whole numbers"), ((np.array([[np.inf, 1]]),), "infinity or NaN"), ((np.ones((0, 4)),), "a matrix"),
    (("abc",), "a matrix .* of numbers"), (([[1, 2], [3]],), "as many in each row"),
])  # fmt: skip
def test_what_has_no_factors_is_refused(arguments, said):
    with pytest.raises(LaunchError, match=said):
        quantized(*arguments)


# ------------------------------------------------------------------------------------------- what a kernel is given


def test_a_kernel_gets_B_by_columns_and_factors_whose_rows_are_filled_up():
    case = problem(5, 9, 200, pad_b=3)
    arrays = case.arrays()
    given = launch_arguments(kernel(), case, *arrays).arguments
    turned, ldb, of_a, of_b = given[6], given[7], given[11], given[12]
    assert ldb == 208 and turned.shape == (9, 208)
    assert turned is arrays[1] and not turned[:, 200:].view(np.uint8).any()
    assert of_a.shape == (2, 8) and np.isnan(of_a[:, 5:]).all() and np.array_equal(of_a[:, :5], case.scale_factors()[0])
    assert of_b.shape == (2, 1)


def test_the_specification_multiplies_the_factors():
    case = problem(5, 140, 200, alpha=2.0)
    a, b, c = case.arrays()
    of_a, of_b = case.scale_factors()
    left, right = a[:, :200].astype(np.float64), b[:, :200].T.astype(np.float64)
    for block in range(2):
        part = slice(128 * block, 128 * (block + 1))
        left[:, part] *= of_a[block][:, None]
        right[part, :128] *= of_b[block, 0]
        right[part, 128:] *= of_b[block, 1]
    value, bound = case.expected(a, b, c)
    assert np.allclose(value, 2 * left @ right, rtol=1e-12) and (bound > 0).all()


@pytest.mark.parametrize("edits", [
    (("const int block = k0 / SCALE_K;", "const int block = 0;"),),
    (("block_col / SCALE_N]", "0]"),),
    (("min(row + i / 2 * 8, M - 1)", "min(row, M - 1)"),),
    ((" * of_B)", ")"),),
    (("            sums[i] = 0;\n", ""),),
], ids=["the first block's", "the first columns'", "the first row's", "none of B", "sums go on"])  # fmt: skip
def test_a_kernel_that_takes_another_factor_is_found(edits):
    assert gemm.check(kernel(), seed=1).passed
    assert not gemm.check(kernel(*edits), seed=1).correct


@pytest.mark.slow
def test_a_factor_behind_the_last_block_of_k_is_found_though_it_is_multiplied_with_zero():
    """Where K is whole blocks, one block too many reads factors outside, and adds nothing."""
    found = exercises.exercise("short_block")
    source = found.solution.replace("block < (K + SCALE_K - 1) / SCALE_K", "block <= K / SCALE_K")
    assert source != found.solution
    report = gemm.check(compile(source, "short_block", "sm_90"), seed=1)
    assert {(finding.kind, finding.array) for finding in report.findings} == {("out-of-bounds", "scales_A"), ("out-of-bounds", "scales_B")}
    assert gemm.check(compile(found.solution, "short_block", "sm_90"), seed=1).passed


def test_the_bound_of_a_long_sum_is_that_of_its_blocks():
    short, long = (problem(4, 4, k) for k in (128, 128 * 64))
    relative = []
    for case in (short, long):
        a, b, c = case.arrays()
        _, bound = case.expected(a, b, c)
        left, right = case.factors(a, b)
        value = np.abs(left @ right)
        rounding = 2.0**-8 * value
        relative.append(float(((bound - rounding * (1 + 1e-2)) / (np.abs(left) @ np.abs(right))).max()))
    assert relative[1] < 1.01 * relative[0] + 70 * 2.0**-24


@pytest.mark.parametrize("said, why", [("{1, 128}", "three numbers"), ("{0, 128, 128}", "three numbers"), ("{1, -1, 1}", "three numbers")])
def test_blocks_that_cannot_be_are_a_sentence(said, why):
    with pytest.raises(LaunchError, match=why):
        block_scales.scale_block(kernel(("{1, SCALE_K, SCALE_N}", said)))


def test_factors_without_room_for_them_are_a_sentence():
    source = exercises.exercise("by_the_block").solution.replace(", const float* scales_A, const float* scales_B", "")
    head = source.split("const int lane")[0] + "}"
    with pytest.raises(LaunchError, match="scales_A"):
        gemm.geometry(compile(head.replace("block_shape[]", "block[]"), "by_the_block", "sm_90"))


def test_a_problem_of_more_bits_has_none():
    with pytest.raises(LaunchError, match="no block scales"):
        block_scales.drawn(Problem(2, 2, 2), 0)


def test_a_batch_takes_no_factors():
    case = problem(16, 8, 128, batch=2)
    with pytest.raises(LaunchError, match="one product"):
        launch_arguments(kernel(), case, *case.arrays())


def test_cublas_is_the_opponent_of_one_form_of_blocks():
    assert cublas_refuses("float8_e4m3", "bfloat16", (1, 128, 128)) == ""
    assert "1 × K of A" in cublas_refuses("float8_e4m3", "bfloat16", (1, 0, 1))
