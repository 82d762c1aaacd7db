"""Data of an exercise's own: scaled rows and columns, and long sums of positive numbers."""

import numpy as np
import pytest

import helpers
from helpers.course import demanding
from helpers.course.exercises import exercise, parse
from helpers.run import gemm

from . import cheats


@pytest.mark.parametrize(("slug", "name", "passes", "edits"), [(slug, name, ok, edits) for slug, name, ok, *edits in cheats.ON_OWN_DATA])
def test_own_data_tell_right_answers_from_wrong_ones(slug, name, passes, edits):
    item, kernel = exercise(slug), helpers.compile(cheats.source(slug, edits))
    if item.scales:
        good = bool(gemm.check(kernel, demanding.scaled(kernel, item.scales, seed=1), on="cpu"))
    else:
        _, good = demanding.judge_accuracy(kernel, *item.accuracy, seed=1)
    assert good == passes, name


def test_scales_are_powers_of_two_of_whole_rows_and_columns():
    problem = demanding.ScaledProblem(5, 4, 3, pad_b=2, scales=9, seed=2)
    plain = gemm.Problem(5, 4, 3, pad_b=2, seed=2)
    (a, b, _), (x, y, _) = problem.arrays(), plain.arrays()
    rows, columns = a / x, b[:, :4] / y[:, :4]
    assert (rows == rows[:, :1]).all() and (columns == columns[:1]).all()
    assert {*np.log2(rows).ravel(), *np.log2(columns).ravel()} <= set(range(-9, 10)) and len(set(rows[:, 0])) > 1


@pytest.mark.parametrize(("relu", "good"), [
    ("v < 0 ? 0 : v;", True), ("v > 0 || v != v ? v : 0;", True), ("fmaxf(v, 0);", False), ("v > 0 ? v : 0;", False), ("0 * v;", True),
])  # fmt: skip
def test_nan_stays_nan_where_a_task_says_so(relu, good):
    item = exercise("last_word")
    kernel = helpers.compile(cheats.source("last_word", [("v < 0 ? 0 : v;", relu)]))
    said, stays = demanding.judge_nan(kernel, seed=7)
    assert item.nan and "NaN stays NaN" in item.task and stays == good
    assert f"{24 if good else 0} of 24 results of row 7 are NaN" in said
    if "fmaxf" in relu:
        assert not item.judge(kernel, seed=1, on="cpu").passed


def test_keys_of_own_data_are_read():
    item = parse("18_any.cu", "//! scales: 20\n//! accuracy: 4096 30\nint x;")
    assert (item.scales, item.accuracy) == (20, (4096, 30.0, 0))
    assert parse("18_any.cu", "//! accuracy: 64 8.5 -10\nint x;").accuracy == (64, 8.5, -10)
    assert (exercise("tail").scales, exercise("tail").accuracy) == (0, None)


PIECES = "fp32_on_tensor_cores"


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [("SPREAD = 34", "SPREAD = 60", 2), ("if (outside) {", "if (false) {", 3)],
    ids=["FP16 for rows that it does not span", "what no pieces stand for is left out"],
)
def test_a_kernel_of_pieces_is_checked_on_numbers_of_any_magnitude(old, new, place):
    """Between -1 and 1 these are right; that is how a check without such data let them pass."""
    source = helpers.reference(PIECES).source
    assert source.count(old) == 1
    kernel = helpers.compile(source.replace(old, new), entry=PIECES, arch="sm_90a")
    assert not gemm.check(kernel, [demanding.of_any_magnitude(kernel, seed=1)[place]], on="cpu").correct


def test_what_fp32_bears_is_asked_and_no_more():
    for slug in ("coalesced", PIECES):
        kernel = helpers.reference(slug)
        assert gemm.check(kernel, demanding.of_any_magnitude(kernel, seed=2), on="cpu").passed


def test_powers_along_k_leave_the_product():
    plain, spread = (demanding.ScaledProblem(5, 4, 30, seed=2, powers=powers) for powers in ((0, 0), (-50, 40)))
    one, other = (problem.expected(*problem.arrays())[0] for problem in (plain, spread))
    assert np.allclose(one, other, rtol=1e-12) and "columns of A times 2^-50 to 2^40" in str(spread)
    assert np.abs(spread.arrays()[0]).max() > 2.0**30 * np.abs(plain.arrays()[0]).max()
