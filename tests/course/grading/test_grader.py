"""Points for right, wrong, empty and cheating answers; the rules; what the machine is held to.

Tests of: helpers.course.grading.marks, helpers.course.grading.plain
"""

from __future__ import annotations

import pytest

from helpers.course.exercises import exercise
from helpers.course.grading import formulas, marks
from helpers.course.grading.answers import SubmittedCell, cell_text, starter_cell
from helpers.course.grading.course_directory import assignment
from helpers.course.grading.grader import Grader
from helpers.course.grading.marks import Judgement
from helpers.course.grading.plain import plain_cell
from helpers.errors import CourseError
from tests.course.cheats import LOOP, exits
from tests.course.grading.submissions import QUICK, quick_grader

ITEM = exercise("flat_block")
GRADER = quick_grader()


def mark(text: str | None, *remarks: str):
    return GRADER.mark("flat_block", SubmittedCell(text, remarks))


@pytest.mark.slow
@pytest.mark.parametrize("change", [str, lambda text: text.replace("\n", "\r\n"), lambda text: "\ufeff" + text])
def test_a_right_answer_has_all_points(change):
    found = mark(change(cell_text(ITEM, ITEM.solution)))
    assert (found.points, found.most) == (marks.points(ITEM), marks.points(ITEM)), str(found)
    assert "shapes right" in str(found) and "seed" not in str(found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "There is no answer"),
        (" \n", "The answer is empty"),
        (starter_cell(ITEM) + "\n\n", "as it was given"),
        (starter_cell(ITEM) + "\n// mine", "the starter has"),
        ("x" * 200_000, "200,000 characters"),
        ("flat_block = True", "does not begin with `%%cuda`"),
        (cell_text(ITEM, ITEM.solution.rpartition("}")[0]), "is never closed"),
        (cell_text(ITEM, ITEM.solution.replace('"C"', "“C”")), "typography"),
        (cell_text(ITEM, ITEM.solution.replace("float alpha, ", "").replace("alpha *", "")), "has not the signature"),
        (cell_text(ITEM, ITEM.solution.replace("float sum = 0;", "float sum = 0; while (K < 1 << 30) sum += 1;")), "may never end"),
        (cell_text(ITEM, ITEM.solution.replace(LOOP, "for (int k = 0; k < min(K, 999); k++) {")), "It adds nothing from k = 999 on"),
        (cell_text(ITEM, ITEM.solution.replace(*exits("gridDim.x * gridDim.y > 100"))), "wrong"),
        (cell_text(ITEM, '#include "/etc/passwd"'), "is not allowed"),
    ],
)  # fmt: skip
def test_no_points_and_why(text, said):
    found = mark(text, "It was late.")
    assert found.points == 0 and said in str(found), str(found)
    assert "It was late." in str(found)


def test_what_a_function_is_refused_for_is_said_once_in_the_words_of_the_task():
    found = GRADER.mark("intensity", SubmittedCell("import numpy as np\ndef intensity(m, n, k):\n    return np.divide(m, n)"))
    assert found.points == 0 and str(found).count("np.divide") == 1 and "CourseError" not in str(found)
    assert formulas.EVALUATED in str(found) and formulas.EVALUATED in assignment(exercise("intensity")).cells[0].source


def test_shapes_are_drawn_from_the_secret():
    seeds = {quick_grader(secret).seed(slug) for secret in (bytes(16), bytes(15) + b"1") for slug in ("flat_block", "early_exit")}
    assert len(seeds) == 4 and max(seeds) > 1 << 40
    assert GRADER.seed("flat_block") == quick_grader().seed("flat_block")


def test_a_machine_that_refuses_the_solution_gives_no_grades():
    refuses = Grader(bytes(16), QUICK, lambda *_: [Judgement(False, False, False, 0, ("✗ no compiler",))])
    with pytest.raises(CourseError, match="cannot be graded on this machine(.|\n)*no compiler"):
        refuses.mark("flat_block", SubmittedCell("%%cuda flat_block\nint x;"))


def test_a_slow_machine_has_more_patience():
    given = []

    def slow(slug, texts, seed, limits):
        given.append(limits.patience)
        return [Judgement(True, True, True, 1, seconds=40.0)]

    assert Grader(bytes(16), QUICK, slow).mark("flat_block", SubmittedCell("%%cuda flat_block\nint x;")).fraction == 1
    assert given == [QUICK.patience, 800.0]


@pytest.mark.parametrize(
    ("results", "clean", "counters", "starter", "fraction"),
    [
        (False, True, 1.0, 0, 0.0),
        (True, True, 0.5, 0, 0.75),
        (True, False, 1.0, 0, 0.8),
        (True, True, 0.5, 50, 0.5),  # the counters were missing
        (True, True, 0.5, 70, 1 / 6),  # a race was there, and is paid for with barriers
        (True, False, 0.0, 80, 0.0),
        (True, True, 1.0, 80, 0.99),  # something else was found: not all of the points
    ],
)
def test_points_are_for_what_the_starter_has_not(results, clean, counters, starter, fraction):
    found = marks.mark(ITEM, Judgement(False, results, clean, counters), starter)
    assert found.fraction == pytest.approx(fraction)


@pytest.mark.slow
@pytest.mark.parametrize("slug", ["half_and_half", "rows_in_pairs", "strip_across"])
def test_a_kernel_that_does_nothing_of_the_task_has_half_of_the_points_at_most(slug):
    """Most counters ask that something is not there, or not too much of it, and what does nothing has nothing of it."""
    item = exercise(slug)
    found = Grader(bytes(16), QUICK).mark(slug, SubmittedCell(plain_cell(item)))
    assert 0 < found.points <= 0.5 * found.most and "counters 0" in str(found)


def test_counters_that_a_plain_kernel_has_bring_no_points():
    plain = Judgement(False, True, True, 0.75, each=(True, True, True, False))
    for each, share in (((True, True, True, False), 0), ((False, True, True, True), 1), ((), 0.6)):
        assert Judgement(False, True, True, 0.6, each=each).beside(plain).counters == share
    every = Judgement(True, True, True, 1.0, each=(True, True))
    assert Judgement(False, True, True, 0.5, each=(True, False)).beside(every).counters == 0.5


def test_what_is_said_cannot_draw_over_the_page():
    assert str(marks.none(ITEM, "a\x1b[2Jb\u202ec")).endswith("a�[2Jb�c")
