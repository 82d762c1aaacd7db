"""The shapes that a check tries; most of what they find is in `test_gemm.py`."""

import pytest

import helpers
from helpers.run import gemm
from tests.run.test_gemm import PLAIN


@pytest.mark.parametrize("factors", ["alpha == -1", "beta == -1", "alpha == -1 && beta == 1", "alpha == 1 && beta == -1"])
@pytest.mark.parametrize("rows", ["row >= 0", "M % 8 == 0 && N % 16 == 0", "M % 8 || N % 16"])
def test_a_factor_of_minus_one_is_tried(factors, rows):
    """Of which kernels have a way of their own that negates, and may be wrong for it alone."""
    wrong = helpers.compile(PLAIN.replace("float sum = 0;", f"float sum = {factors} && ({rows}) ? 0.25f : 0;"))
    assert any(not gemm.check(wrong, [of for of in gemm.drawn(wrong, seed) if -1 in (of.alpha, of.beta)], on="cpu") for seed in range(6))
