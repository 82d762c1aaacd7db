"""The folder that nbgrader works in: every exercise in it, the secret in nothing that is handed out, and what was changed stays."""

from __future__ import annotations

import contextlib
import stat
from types import SimpleNamespace

import nbformat
import pytest

from helpers.course.exercises import ExerciseReport, exercise, exercises
from helpers.course.grading.course_directory import assignment, grader, make, mark_notebook
from helpers.course.steps import get
from helpers.errors import CourseError
from helpers.front import cli
from tests.course.grading.submissions import answered, quick_grader


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("course") / "new"
    make(folder)
    return folder


def test_every_exercise_is_handed_out(folder):
    assert {path.stem for path in folder.glob("source/*/*.ipynb")} == exercises().keys()


def test_the_secret_is_its_owners_and_in_no_notebook(folder):
    settings = folder / "grading.toml"
    secret = settings.read_text().split('"')[1]
    assert stat.S_IMODE(settings.stat().st_mode) == 0o600 and len(secret) == 32
    assert not any(secret in path.read_text() for path in folder.glob("**/*.ipynb"))
    assert grader(folder).secret == bytes.fromhex(secret)


def test_nothing_of_a_solution_is_handed_out():
    for item in exercises().values():
        text = nbformat.writes(assignment(item))
        answer = [line.strip() for line in item.solution.split("\n") if line not in item.starter.split("\n") and len(line.strip()) > 30]
        assert not [line for line in answer if line.replace('"', '\\"') in text]


def test_what_was_changed_stays_and_is_named(folder):
    changed, secret = folder / "source/03_shared_tile/early_exit.ipynb", (folder / "grading.toml").read_bytes()
    before = changed.read_bytes()
    changed.write_text("mine")
    said = make(folder, [get(3)])
    assert changed.read_text() == "mine" and "source/03_shared_tile/early_exit.ipynb" in said[1]
    changed.unlink()
    assert make(folder, [get(3)]) == [f"New in {folder}: 1 file."]
    assert changed.read_bytes() == before and (folder / "grading.toml").read_bytes() == secret


def test_a_lesson_without_exercises_is_named(tmp_path):
    bench = get("your_kernel")
    said = make(tmp_path / "course", [bench])
    assert said == [
        f"New in {tmp_path / 'course'}: 2 files.",
        f"No assignment for {bench.name}: without an exercise there is nothing to grade.",
    ]
    assert len(make(tmp_path / "course")) == 1


@pytest.mark.parametrize("text", [None, "", "secret = 5", 'secret = "zz"', 'secret = "00"', "\0"])
def test_settings_that_are_none_are_a_sentence(text, tmp_path):
    if text is not None:
        (tmp_path / "grading.toml").write_text(text)
    with pytest.raises(CourseError, match=r"grading\.toml"):
        grader(tmp_path)


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CourseError, match="cannot be written"):
        make(tmp_path / "file")


def test_notebooks_are_marked_without_nbgrader(folder, tmp_path, capsys):
    item = exercise("intensity")
    good, bad = tmp_path / "good.ipynb", tmp_path / "bad.ipynb"
    nbformat.write(answered(item, item.solution), good)
    nbformat.write(nbformat.v4.new_notebook(), bad)
    assert cli.main(["grading", "mark", str(folder), str(good), str(bad)]) == 1
    said = capsys.readouterr().out
    assert "good.ipynb: 50 of 50 points." in said and "bad.ipynb has no cell of an exercise" in said
    assert cli.main(["grading", "make", str(tmp_path), "99"]) == 1


def test_in_a_lesson_nothing_was_deleted(folder, tmp_path):
    """Its cells have no grade ids; where others have, one that is missing was deleted."""
    item, lesson, handed_out = exercise("intensity"), tmp_path / "lesson.ipynb", tmp_path / "handed_out.ipynb"
    answer = nbformat.v4.new_code_cell(item.solution)
    nbformat.write(nbformat.v4.new_notebook(cells=[answer]), lesson)
    others = assignment(item)
    others.cells = [*(one for one in others.cells if one.metadata.get("nbgrader", {}).get("grade_id") != item.slug), answer]
    nbformat.write(others, handed_out)
    (of_lesson,), (of_assignment,) = (mark_notebook(path, quick_grader()) for path in (lesson, handed_out))
    assert of_lesson.points == of_assignment.points == of_lesson.most
    assert "deleted" not in str(of_lesson) and "deleted" in str(of_assignment)


def test_the_check_cell_fails_where_the_check_does():
    """`nbgrader validate` says that a notebook passes where no cell raises; what it shows of a report is its text."""
    item = exercise("two_columns")
    source = next(cell.source for cell in assignment(item).cells if cell.id == "tests")
    for passed in (True, False):
        report = ExerciseReport(item.slug, (), (), title=item.title, rows=((passed, "as it is"),), on="cpu")
        shown: list[ExerciseReport] = []
        about = {"exercise": lambda slug, report=report: SimpleNamespace(check=lambda _: report), item.slug: None, "display": shown.append}
        with contextlib.nullcontext() if passed else pytest.raises(AssertionError, match="stands above"):
            exec(source, about)
        assert shown == [report] and repr(report) == str(report) == f"{report.headline}\n  {'✓' if passed else '✗'} as it is"
