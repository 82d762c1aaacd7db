"""Kernels that are launched before a product's own: what a file says of them, and what comes out on hard numbers."""

from __future__ import annotations

import functools
import re
from dataclasses import replace

import numpy as np
import pytest

from helpers.course.steps import get
from helpers.errors import LaunchError
from helpers.run import gemm, passes
from helpers.run.kernel import Kernel, compile

STEP = get("fp32_on_tensor_cores")


@functools.cache
def kernel(**constants: int) -> Kernel:
    source = STEP.kernel_path.read_text(encoding="utf-8")
    for name, value in constants.items():
        source, count = re.subn(rf"constexpr int {name} = \d+;", f"constexpr int {name} = {value};", source)
        assert count == 1
    return compile(source, STEP.entry, STEP.arch)


def product(a: np.ndarray, b: np.ndarray, made: Kernel | None = None) -> tuple[np.ndarray, bool]:
    """C of the kernel in the SIMT machine, and whether it took BF16."""
    a, b = a.astype(np.float32), b.astype(np.float32)
    c = np.full((len(a), b.shape[1]), np.nan, np.float32)
    made = made or kernel()
    run = gemm.run(made, gemm.Problem(*c.shape, len(b)), on="cpu", arrays=(a, b, c), counters=False)
    assert run.findings == [] and [one.kernel.name for one in run.passes] == list(passes.NAMES)
    return c, bool(run.arguments[11][-1])


def errors(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[float, float]:
    """Mean and largest of |C - exact| / (|A| |B|)."""
    a, b = (x.astype(np.float32).astype(np.float64) for x in (a, b))
    part = np.abs(c - a @ b) / (np.abs(a) @ np.abs(b))
    return float(part.mean()), float(part.max())


def in_float32(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product as CUDA cores add it: one rounding for each multiply-add, in the order of K."""
    a, b = (x.astype(np.float32).astype(np.float64) for x in (a, b))
    c = np.zeros((len(a), b.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for k in range(a.shape[1]):
            c = (np.multiply.outer(a[:, k], b[k]) + c).astype(np.float32)
    return c


def numbers(name: str) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(7)
    a, b = random.standard_normal((48, 512)), random.standard_normal((512, 40))
    if name == "rows and columns":
        return a * 10.0 ** random.uniform(-15, 15, (48, 1)), b * 10.0 ** random.uniform(-15, 15, 40)
    if name == "elements":
        return a * 10.0 ** random.uniform(-9, 9, a.shape), b * 10.0 ** random.uniform(-9, 9, b.shape)
    if name == "denormal":
        return a * 1e-40, b * 1e30
    if name == "cancelling":
        return np.hstack([a[:, :256], -a[:, :256]]), np.vstack([b[:256], b[:256] * (1 + 2e-6)])
    return a, b


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "wide"), [("normal", False), ("rows and columns", False), ("elements", True), ("denormal", True), ("cancelling", False)]
)
def test_it_is_more_exact_than_float32_whatever_the_numbers(name, wide):
    a, b = numbers(name)
    c, took_wide = product(a, b)
    assert took_wide == wide
    mine, theirs = errors(a, b, c), errors(a, b, in_float32(a, b))
    assert mine[0] < theirs[0] and mine[1] < theirs[1]


@pytest.mark.slow
def test_infinities_and_nan_come_out_as_in_float32():
    a, b = numbers("normal")
    a[3, 5], a[7, 9], b[11, 13], b[5, 20] = np.inf, np.nan, -np.inf, 0
    c, _ = product(a, b)
    expected = in_float32(a, b)
    assert np.isnan(expected).any() and np.isinf(expected).any()
    assert np.array_equal(np.isnan(c), np.isnan(expected))
    assert np.array_equal(c[np.isinf(expected)], expected[np.isinf(expected)])


@pytest.mark.slow
def test_without_promotion_sums_are_worse_than_float32():
    random = np.random.default_rng(8)
    a, b = random.standard_normal((32, 1024)), random.standard_normal((1024, 32))
    mean = [errors(a, b, product(a, b, kernel(PROMOTE=promoted))[0])[0] for promoted in (0, 1)]
    assert mean[0] > errors(a, b, in_float32(a, b))[0] > mean[1]


@pytest.mark.slow
def test_without_scales_large_numbers_overflow():
    a, b = numbers("normal")
    assert not np.isfinite(product(a * 1e6, b, kernel(SCALE=0))[0]).all()
    assert np.isfinite(product(a * 1e6, b)[0]).all()


def test_results_beyond_float32_are_infinite():
    a, b = numbers("normal")
    c, _ = product(a * 1e25, b * 1e25)
    assert np.isinf(c).all() and np.array_equal(np.sign(c), np.sign(a @ b))


@pytest.mark.parametrize(
    ("constants", "said"),
    [
        ({"pieces": (0,)}, "pieces = (0,)"),
        ({"passes": ()}, "passes = ()"),
        ({"passes": (2048, 2)}, "1 to 1024 per block"),
        ({"box_A": (128, 64)}, "box_A"),
    ],
)
def test_what_a_file_says_wrongly_is_a_sentence(constants, said):
    compiled = kernel().compiled
    made = Kernel(replace(compiled, constants={**compiled.constants, **constants}))
    with pytest.raises(LaunchError, match=re.escape(said)):
        gemm.run(made, gemm.Problem(8, 8, 8), on="cpu")


@pytest.mark.parametrize("name", passes.NAMES)
def test_a_file_without_its_passes_is_told_what_to_write(name):
    compiled = kernel().compiled
    made = Kernel(replace(compiled, ptx=compiled.ptx.replace(f".entry {name}(", f".entry {name}_other(")))
    with pytest.raises(LaunchError, match=re.escape(f"__global__ void {name}(int M")):
        gemm.run(made, gemm.Problem(8, 8, 8), on="cpu")


def test_a_batch_is_refused():
    with pytest.raises(LaunchError, match="one product"):
        gemm.run(kernel(), gemm.Problem(8, 8, 8, batch=2), on="cpu")
