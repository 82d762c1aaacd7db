"""The lesson's kernel, and another exercise's solution, are no answers; whatever is made of the starter is one, if it is right."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import helpers
from helpers.course import likeness
from helpers.course.exercises import Exercise, exercise, exercises
from helpers.course.grading.answers import SubmittedCell, cell_text
from helpers.course.lesson import reference
from helpers.course.steps import STEPS
from tests.course import cheats
from tests.course.grading.submissions import quick_grader

KERNELS = [item for item in exercises().values() if item.language == "cu"]
MENDED = [item for item in KERNELS if item.kind != "write"]
OTHER_WAYS = [(slug, edits) for slug, _, *edits in (*cheats.OTHER_WAYS, *cheats.FENCED)]
OTHER_WAYS += [(slug, edits) for slug, _, good, *edits in cheats.ON_OWN_DATA if good]


def foreign(item: Exercise, source: str, name: str) -> str:
    """What is said of a source, which is not compiled for it."""
    answer: Any = SimpleNamespace(source=source, compiled=SimpleNamespace(entry=name))
    return item._foreign(answer)


@pytest.fixture(autouse=True)
def _in_the_machine(monkeypatch):
    monkeypatch.setenv("GEMM_LADDER_NO_GPU", "1")


@pytest.mark.parametrize("item", [item for item in MENDED if item.slug != "narrow_block"], ids=lambda item: item.slug)
def test_the_lesson_s_own_kernel_is_no_answer(item):
    """It is the starter of narrow_block, and does not meet its counters."""
    step = STEPS[item.lesson]
    text = step.kernel_path.read_text(encoding="utf-8")
    asked = "change" if item.kind == "change" else "mend"
    said = f"This is lesson {item.lesson:02}'s own kernel; the exercise asks you to {asked} the one it gave."
    said += f' Begin with what it gave, which print(exercise("{item.slug}").starter) shows again, and edit that.'
    assert foreign(item, text, step.entry) == said
    edited = "// mine\n" + text.replace("alpha *", "1.0f * alpha *").replace("\n\n", "\n")
    assert foreign(item, edited.replace(f" {step.entry}(", f" {item.slug}("), item.slug) == said


@pytest.mark.parametrize("item", KERNELS, ids=lambda item: item.slug)
def test_solutions_and_starters_are_the_exercise_s_own(item):
    assert not foreign(item, item.solution, item.slug) and not foreign(item, item.starter, item.slug)


@pytest.mark.parametrize(("slug", "edits"), OTHER_WAYS)
def test_other_ways_are_the_exercise_s_own(slug, edits):
    assert not foreign(exercise(slug), cheats.source(slug, edits), slug)


@pytest.mark.parametrize(
    ("slug", "of", "said"),
    [
        ("second_barrier", "shared_tile", "This is lesson 03's own kernel; the exercise asks you to mend the one it gave."),
        ("finish_the_tile", "half_and_half", "This is the solution of another exercise, “"),
    ],
)
def test_a_right_kernel_from_elsewhere_does_not_solve(slug, of, said):
    report = exercise(slug).judge(helpers.compile(cheats.source(of)), 1, on="cpu")
    assert report.correct and not report.passed
    assert said in str(report) and "not yet" in report.headline


@pytest.mark.slow
def test_a_kernel_from_elsewhere_has_no_points():
    mark = quick_grader().mark("second_barrier", SubmittedCell(cell_text(exercise("second_barrier"), reference("shared_tile").source)))
    assert mark.points == 0 and "lesson 03's own kernel" in str(mark)


def filled(item: Exercise, other: Exercise) -> str:
    """The starter of a kernel to be written, with what stands in that place in another exercise's starter."""
    lines, shown = (text.split("\n") for text in (item.starter, other.starter))
    at = next(number for number, line in enumerate(lines) if "// Yours" in line)
    first = shown.index(lines[at - 1]) + 1
    return "\n".join([*lines[:at], *shown[first : shown.index(lines[at + 1], first)], *lines[at + 1 :]])


def test_what_another_exercise_s_starter_shows_may_be_written():
    """Its loop is the honest answer to the first one; the whole kernel is then, word for word, the second one's solution."""
    item, other = exercise("two_stages"), exercise("too_soon")
    source = filled(item, other)
    assert likeness.code(source, item.slug) == likeness.code(other.solution, other.slug)
    assert not foreign(item, source, item.slug)
    assert foreign(other, exercise("half_each").solution, "half_each")


@pytest.mark.slow
def test_a_written_kernel_that_changes_what_was_given_is_another_exercise_s():
    """Of all solutions only one is the starter of another exercise with nothing but its gap filled."""
    written = [item for item in KERNELS if item.kind == "write"]
    found = [
        (item.slug, other.slug)
        for item in written
        for other in KERNELS
        if other is not item
        and likeness.completes(likeness.code(other.solution, other.slug), likeness.Known("", item.slug, item.solution), item.starter)
    ]
    assert found == [("two_stages", "too_soon")]
    said = foreign(exercise("two_stages"), exercise("half_each").solution, "half_each")
    assert said.startswith("This is the solution of another exercise") and said.endswith(
        '("two_stages").starter) shows again, and edit that.'
    )


def test_two_exercises_may_have_one_answer():
    one, other = exercise("early_exit"), exercise("second_barrier")
    assert likeness.code(one.solution, one.slug) == likeness.code(other.solution, other.slug)
    assert not foreign(one, other.solution, other.slug) and not foreign(other, one.solution, one.slug)


def test_what_is_to_be_mended_keeps_its_block_its_tile_and_its_text():
    item = exercise("pad_by_one")
    assert [text for text, _ in item._as_given(reference(item.lesson))] == ["tile of C per block: yours (128, 128), given (64, 64)."]
    assert "Little is left here" in foreign(item, cheats.source("ring"), "ring")


def test_comments_blanks_and_the_kernel_s_name_are_no_code():
    one = 'void a(int x) { // a\n  f("//", x); /* of\n a */ }'
    assert likeness.code(one, "a") == likeness.code('void b(int x){f("//",x);}', "b") != likeness.code(one, "b")
