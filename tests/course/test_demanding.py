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


def test_keys_of_own_data_are_read():
    item = parse("18_any.cu", "//! scales: 20\n//! accuracy: 4096 30\nint x;")
    assert (item.scales, item.accuracy) == (20, (4096, 30.0))
    assert (exercise("tail").scales, exercise("tail").accuracy) == (0, None)
