"""The folder of a graded course, as nbgrader wants it: one assignment per lesson, one notebook per exercise.

`grading.toml` in it holds the secret that shapes are drawn from. It is made once, readable by its owner alone, and is in nothing
that is handed out.
"""

from __future__ import annotations

import html
import os
import secrets
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
from nbformat import v4

from helpers.course.exercises import Exercise, exercises
from helpers.course.steps import STEPS, Step, get
from helpers.errors import CourseError, plural
from helpers.files import read_whole, write_whole

from . import marks
from .answers import find, grade_id, read_submission, starter_cell
from .formulas import EVALUATED
from .grader import Grader
from .marks import Mark

SETTINGS, CONFIGURATION = "grading.toml", "nbgrader_config.py"
TESTS = "_tests"  # behind an exercise's slug: the grade id of the cell that has its points
_SECRET_BYTES = 16
_CONFIGURATION = '''"""nbgrader for the exercises of the GEMM Ladder. Run nbgrader in this folder, so that it reads this file."""

from helpers.course.grading import collecting

# Autograding judges the text of the answers in a process of its own, and runs nothing else of a submission.
collecting.configure(get_config())  # noqa: F821 (nbgrader defines it)
'''


def make(folder: Path, steps: Sequence[Step] = STEPS) -> list[str]:
    """Write a course folder, or what is missing in it. What was done, as sentences; files that differ stay as they are.

    Raises CourseError where it cannot be written.
    """
    wanted = {folder / CONFIGURATION: _CONFIGURATION.encode()}
    for item in exercises().values():
        step = get(item.lesson)
        if step in steps:
            wanted[folder / "source" / step.name / f"{item.slug}.ipynb"] = nbformat.writes(assignment(item)).encode() + b"\n"
    idle = [step.name for step in steps if not any(item.lesson == step.number for item in exercises().values())]
    written, kept = 0, []
    try:
        if not (folder / SETTINGS).exists():
            _write_secret(folder / SETTINGS)
            written += 1
        for path, data in wanted.items():
            if not path.exists():
                write_whole(path, data)
                written += 1
            elif read_whole(path) != data:
                kept.append(path.relative_to(folder).as_posix())
    except OSError as error:
        raise CourseError(f"{error.filename or folder} cannot be written ({error.strerror or error}).") from None
    said = [f"New in {folder}: {plural(written, 'file')}." if written else f"{folder} has all files already."]
    if idle and len(steps) < len(STEPS):
        said.append(f"No assignment for {', '.join(idle)}: without an exercise there is nothing to grade.")
    if kept:
        said.append(
            f"Left as they are, and different from the course's: {', '.join(kept)}. Delete one, and make it again, to have the course's."
        )
    return said


def _write_secret(path: Path) -> None:
    text = f"""# The grader draws its shapes and data from this secret. Keep it from those who are graded.
# Another one (any 32 hexadecimal digits) draws others: do that once submissions are in, if you fear that somebody has seen it.
secret = "{secrets.token_hex(_SECRET_BYTES)}"
"""
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def grader(folder: Path) -> Grader:
    """The grader of a course folder. Raises CourseError if its settings cannot be read."""
    path = folder / SETTINGS
    try:
        secret = bytes.fromhex(tomllib.loads(path.read_text(encoding="utf-8"))["secret"])
    except OSError as error:
        raise CourseError(f"{path} cannot be read ({error.strerror}). `course grading make {folder}` makes one.") from None
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError):
        raise CourseError(f'{path} is damaged: it should say secret = "…", with 32 hexadecimal digits.') from None
    if len(secret) < _SECRET_BYTES:
        raise CourseError(f"{path}: the secret is too short to be one. Give it 32 hexadecimal digits.")
    return Grader(secret)


def mark_notebook(path: Path, grading: Grader) -> list[Mark]:
    """Mark all exercises in a notebook that was handed in, whether it is one of `make` or a lesson. CourseError: there are none."""
    cells = read_submission(path)["cells"]
    handed_out = any(grade_id(cell) for cell in cells)  # in a lesson no cell is known by an id, and none is missing
    found = []
    for item in exercises().values():
        cell = find(cells, item.slug, item)
        if cell.text is not None:
            found.append(grading.mark(item.slug, cell if handed_out else replace(cell, remarks=())))
    if not found:
        raise CourseError(f"{path.name} has no cell of an exercise: one begins with `%%cuda` and the exercise's name.")
    return found


# ---------------------------------------------------------------------------------------------------- notebooks


def assignment(item: Exercise) -> nbformat.NotebookNode:
    """The notebook of an exercise: the task, the cell of the answer with the starter, and the locked cell that has the points."""
    rules = marks.RULES if item.language == "cu" else _RULE
    task = f"# {_escaped(item.title)}\n\n{_escaped(item.task)}\n\n{marks.points(item)} points. {rules}"
    check = (
        "# The course's own check, as often as you like. You are graded by the same one, at shapes and on data that are drawn anew.\n"
        f'report = exercise("{item.slug}").check({item.slug})\ndisplay(report)\n'
        'assert report, "Not yet: what is missing stands above."'
    )
    cells = [
        _cell(v4.new_markdown_cell(task), "task", f"{item.slug}_task", locked=True),
        v4.new_code_cell("%load_ext helpers\nfrom helpers import exercise", id="setup"),
        _cell(v4.new_code_cell(starter_cell(item)), "answer", item.slug, solution=True),
        _cell(v4.new_code_cell(check), "tests", f"{item.slug}{TESTS}", locked=True, grade=True, points=marks.points(item)),
    ]
    about = {"kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}}
    return v4.new_notebook(cells=cells, metadata=about)


_RULE = (
    "The function is evaluated at the arguments of the check and at others; it has all points or none. It is read and not run: write it "
    f"with {EVALUATED}. The check says where it is more."
)


def _cell(cell: Any, name: str, grade_id: str, **about: Any) -> Any:
    cell.id = name
    flags = {"grade": False, "solution": False, "locked": False, "task": False}
    cell.metadata["nbgrader"] = {**flags, **about, "grade_id": grade_id, "schema_version": 3}
    return cell


def _escaped(text: str) -> str:
    """Text as Markdown shows it unchanged."""
    text = html.escape(text, quote=False)
    return "".join(f"\\{letter}" if letter in "*_`$[]#" else letter for letter in text)
