"""nbgrader itself, from the assignment to the feedback, with all that a class hands in: each has a grade and a reason, and nothing runs.

Tests of: helpers.course.grading.timestamps
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import nbformat
import pytest
from nbformat import v4
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderApp
from nbgrader.coursedir import CourseDirectory

from helpers.course.exercises import exercise
from helpers.course.grading import collecting, course_directory, timestamps
from helpers.course.grading.marks import Mark, points
from helpers.course.steps import get
from tests.course.grading.submissions import FILES, answered, cell, deleted, elsewhere, hostile, quick_grader, twice

ITEM = exercise("two_columns")
POINTS = points(ITEM)
pytestmark = pytest.mark.slow


def in_words(path: Path):
    """What was handed out, with an answer in words."""
    notebook = nbformat.read(path, 4)
    cell(notebook, "words").source = "Because of the sectors."
    return notebook


def nbgrader(*arguments: str) -> None:
    NbGraderApp.clear_instance()
    try:
        NbGraderApp.launch_instance([*arguments, "--log-level=ERROR"])
    finally:
        NbGraderApp.clear_instance()


def _ask_more(path: Path) -> None:
    """An instructor's own questions: one in words, and one with a test of its own."""
    notebook = nbformat.read(path, 4)
    flags = {"schema_version": 3, "task": False, "grade": True}
    words, tests = v4.new_markdown_cell("In your words?"), v4.new_code_cell("assert True")
    words.metadata["nbgrader"] = {**flags, "grade_id": "words", "solution": True, "locked": False, "points": 3}
    tests.metadata["nbgrader"] = {**flags, "grade_id": "other_tests", "solution": False, "locked": True, "points": 4}
    notebook.cells += [words, tests]
    nbformat.write(notebook, path)


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """The folder of a course after one assignment, its scores by student, and what no cell may have made."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("graded")
        patch.setenv("JUPYTER_CONFIG_DIR", str(folder / "none"))
        patch.setenv("PATH", os.defpath)  # nbgrader was started by its path, and starts alembic by its name
        course_directory.make(folder, [get(ITEM.lesson)])
        for other in (folder / "source" / get(ITEM.lesson).name).iterdir():
            if other.stem != ITEM.slug:
                other.unlink()
        _ask_more(folder / "source" / get(ITEM.lesson).name / f"{ITEM.slug}.ipynb")
        patch.chdir(folder)
        patch.setattr(course_directory, "grader", lambda _: quick_grader())
        lesson, mark = get(ITEM.lesson).name, folder / "mark"
        nbgrader("generate_assignment", lesson)
        wrong = ITEM.solution.replace("for (int k = 0; k < K;", "for (int k = 1; k < K;")
        notebooks = {
            "right": answered(ITEM, ITEM.solution),
            "in_words": in_words(folder / "release" / lesson / f"{ITEM.slug}.ipynb"),
            "wrong": answered(ITEM, wrong),
            "empty": nbformat.read(folder / "release" / lesson / f"{ITEM.slug}.ipynb", 4),
            "hostile": hostile(ITEM, wrong, mark),
            "hostile_and_right": hostile(ITEM, ITEM.solution, mark),
            "deleted": deleted(ITEM),
            "twice": twice(ITEM, wrong, ITEM.solution),
            "elsewhere": elsewhere(ITEM, ITEM.solution),
        }
        texts = {
            **{name: nbformat.writes(notebook) for name, notebook in notebooks.items()},
            **{name: made() for name, made in FILES.items()},
        }
        for name, text in texts.items():
            (folder / "submitted" / name / lesson).mkdir(parents=True)
            (folder / "submitted" / name / lesson / f"{ITEM.slug}.ipynb").write_text(text)
        (folder / "submitted/right" / lesson / "notes.txt").symlink_to(folder / "grading.toml")
        times = {name: folder / "submitted" / name / lesson / timestamps.NAME for name in ("right", "hostile", "wrong", "empty", "twice")}
        times["right"].write_text("2026-11-20 10:00:00 UTC\n")
        times["empty"].write_text("yesterday, before noon")
        times["wrong"].symlink_to("/dev/zero")
        times["twice"].symlink_to(folder / "grading.toml")
        os.mkfifo(times["hostile"])
        for name, secret in (("right", "0f-3a_b"), ("twice", "../../etc"), ("empty", "x" * 300)):
            (folder / "submitted" / name / lesson / "submission_secret.txt").write_text(secret)
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
        ("right", True, r"(\d+) of \1 shapes right"),
        ("wrong", False, r"✗ \d+ of \d+ shapes right"),
        ("empty", False, "as it was given"),
        ("hostile", False, r"✗ \d+ of \d+ shapes right"),
        ("hostile_and_right", True, r"(\d+) of \1 shapes right"),
        ("deleted", False, "The cell of the answer was deleted"),
        ("elsewhere", True, "as it was given; the last other one"),
        ("twice", True, "2 cells say that they are the answer"),
        ("damaged", False, "is no notebook that can be read"),
        ("deep", False, "nested too deeply"),
        ("old", False, "not of format 4"),
        ("giant", False, "has more than 16 MB"),
    ],
)
def test_everybody_has_a_grade_and_a_reason(graded, name, right, said):
    folder, scores = graded
    assert scores[name] == (POINTS if right else 0)
    assert re.search(said, feedback(folder, name))
    assert f"{POINTS if right else 0} of {POINTS} points" in feedback(folder, name)


def test_a_timestamp_is_a_small_file_with_a_time(graded):
    """A pipe holds nbgrader up, a device fills the memory, and other text ended it: each was graded (above), as handed in at no time."""
    folder, _ = graded
    lesson = get(ITEM.lesson).name
    assert [path.parent.parent.name for path in (folder / "autograded").rglob(timestamps.NAME)] == ["right"]
    secrets = {path.parent.parent.name: path.read_text() for path in (folder / "feedback").rglob("submission_secret.txt")}
    assert secrets == {"right": "0f-3a_b"}, "nbgrader release_feedback names what it hands out by it"
    with Gradebook(f"sqlite:///{folder / 'gradebook.db'}") as book:
        when = {name: book.find_submission(lesson, name).timestamp for name in ("right", "hostile", "wrong", "empty", "twice")}
    assert when.pop("right").isoformat() == "2026-11-20T10:00:00" and set(when.values()) == {None}


def test_what_an_exchange_hands_out_is_not_narrowed(tmp_path):
    """nbgrader's exchange leaves out what `CourseDirectory.ignore` names, notebooks among it."""
    from nbgrader.utils import ignore_patterns
    from traitlets.config import Config

    config = Config()
    collecting.configure(config)
    ignored = CourseDirectory(config=config).ignore
    assert not ignore_patterns(exclude=ignored)(str(tmp_path), ["two_columns.ipynb", "data.csv", timestamps.NAME])


def test_the_feedback_counts_in_the_points_of_the_cell_and_breaks_long_lines():
    long = "✗ " + "a race between two threads of one block " * 10
    mark = Mark("Two columns", 50, 0.5, (long, "code " + "x" * 200))
    said, result = collecting._outputs(mark, 7.0)
    lines = said["text"].split("\n")
    assert lines[0] == "Two columns: 3.5 of 7 points." and result["data"]["text/plain"] == "3.5"
    assert lines[1].startswith("  ✗ a race") and lines[2].startswith("    ") and all(len(line) <= 110 for line in lines)
    assert "".join(said["text"].split()) == "".join(str(mark).replace("25 of 50", "3.5 of 7").split())


def test_an_instructor_s_own_questions_are_left_to_the_instructor(graded):
    folder, scores = graded
    assert scores["in_words"] == 0 and "Because of the sectors" in feedback(folder, "in_words")
    with Gradebook(f"sqlite:///{folder / 'gradebook.db'}") as book:
        notebook = book.find_submission_notebook(ITEM.slug, get(ITEM.lesson).name, "in_words")
        waiting = {grade.name: (grade.auto_score, grade.needs_manual_grade) for grade in notebook.grades}
    assert waiting == {f"{ITEM.slug}_tests": (0, False), "words": (None, True), "other_tests": (0, False)}


def test_nothing_of_a_submission_ran_or_was_believed(graded):
    folder, _ = graded
    assert not (folder / "mark").exists()
    shown = feedback(folder, "hostile")
    assert "all points" not in shown and "os.fork" not in shown and "<script>alert" not in shown


def test_a_link_brings_nothing_of_the_machine_into_the_feedback(graded):
    folder, _ = graded
    assert not [path for place in ("autograded", "feedback") for path in (folder / place).glob("**/notes.txt")]
