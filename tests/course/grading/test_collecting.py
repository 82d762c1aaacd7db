"""nbgrader itself, from the assignment to the feedback, with all that a class hands in: each has a grade and a reason, and nothing runs."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import nbformat
import pytest
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderApp

from helpers.course.exercises import exercise
from helpers.course.grading import course_directory
from helpers.course.grading.marks import points
from helpers.course.steps import get
from tests.course.grading.submissions import FILES, answered, deleted, hostile, quick_grader, twice

ITEM = exercise("two_columns")
POINTS = points(ITEM)
pytestmark = pytest.mark.slow


def nbgrader(*arguments: str) -> None:
    NbGraderApp.clear_instance()
    try:
        NbGraderApp.launch_instance([*arguments, "--log-level=ERROR"])
    finally:
        NbGraderApp.clear_instance()


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """The folder of a course after one assignment, its scores by student, and what no cell may have made."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("graded")
        patch.setenv("JUPYTER_CONFIG_DIR", str(folder / "none"))
        patch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)  # nbgrader starts alembic by its name
        course_directory.make(folder, [get(ITEM.lesson)])
        for other in (folder / "source" / get(ITEM.lesson).name).iterdir():
            if other.stem != ITEM.slug:
                other.unlink()
        patch.chdir(folder)
        patch.setattr(course_directory, "grader", lambda _: quick_grader())
        lesson, mark = get(ITEM.lesson).name, folder / "mark"
        nbgrader("generate_assignment", lesson)
        wrong = ITEM.solution.replace("for (int k = 0; k < K;", "for (int k = 1; k < K;")
        notebooks = {
            "right": answered(ITEM, ITEM.solution),
            "wrong": answered(ITEM, wrong),
            "empty": nbformat.read(folder / "release" / lesson / f"{ITEM.slug}.ipynb", 4),
            "hostile": hostile(ITEM, wrong, mark),
            "hostile_and_right": hostile(ITEM, ITEM.solution, mark),
            "deleted": deleted(ITEM),
            "twice": twice(ITEM, wrong, ITEM.solution),
        }
        texts = {
            **{name: nbformat.writes(notebook) for name, notebook in notebooks.items()},
            **{name: made() for name, made in FILES.items()},
        }
        for name, text in texts.items():
            (folder / "submitted" / name / lesson).mkdir(parents=True)
            (folder / "submitted" / name / lesson / f"{ITEM.slug}.ipynb").write_text(text)
        (folder / "submitted/right" / lesson / "notes.txt").symlink_to(folder / "grading.toml")
        nbgrader("autograde", lesson)
        nbgrader("generate_feedback", lesson)
    with Gradebook(f"sqlite:///{folder / 'gradebook.db'}") as book:
        scores = {one.student.id: one.score for one in book.assignment_submissions(lesson)}
    yield folder, scores
    shutil.rmtree(folder)


def feedback(folder, name: str) -> str:
    return (folder / "feedback" / name / get(ITEM.lesson).name / f"{ITEM.slug}.html").read_text()


@pytest.mark.parametrize(
    ("name", "right", "said"),
    [
        ("right", True, "12 of 12 shapes right"),
        ("wrong", False, "of 12 shapes right"),
        ("empty", False, "as it was given"),
        ("hostile", False, "of 12 shapes right"),
        ("hostile_and_right", True, "12 of 12 shapes right"),
        ("deleted", False, "The cell of the answer was deleted"),
        ("twice", True, "2 cells say that they are the answer"),
        ("damaged", False, "is no notebook that can be read"),
        ("deep", False, "nested too deeply"),
        ("old", False, "not of format 4"),
        ("giant", False, "has 17 MB"),
    ],
)
def test_everybody_has_a_grade_and_a_reason(graded, name, right, said):
    folder, scores = graded
    assert scores[name] == (POINTS if right else 0)
    assert said in feedback(folder, name)
    assert f"{POINTS if right else 0} of {POINTS} points" in feedback(folder, name)


def test_nothing_of_a_submission_ran_or_was_believed(graded):
    folder, _ = graded
    assert not (folder / "mark").exists()
    shown = feedback(folder, "hostile")
    assert "all points" not in shown and "os.fork" not in shown and "<script>alert" not in shown


def test_a_link_brings_nothing_of_the_machine_into_the_feedback(graded):
    folder, _ = graded
    assert not [path for place in ("autograded", "feedback") for path in (folder / place).glob("**/notes.txt")]
