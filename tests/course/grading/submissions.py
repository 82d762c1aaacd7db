"""Submissions as a class hands them in, and a grader that judges here, in the process of the tests."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nbformat import v4

from helpers.course.exercises import Exercise, exercise
from helpers.course.grading.answers import cell_text
from helpers.course.grading.apart import Limits, judge_here
from helpers.course.grading.course_directory import assignment
from helpers.course.grading.grader import Grader
from helpers.course.grading.marks import Judgement

QUICK = Limits(patience=0.3)


def here(slug: str, texts: Sequence[str], seed: int, limits: Limits) -> list[Judgement]:
    """As `apart.judged`, in this process, and as if it took no time."""
    item = exercise(slug)
    options = {} if item.language == "py" else {"patience": limits.patience}
    return [replace(judge_here(item, text, seed, **options), seconds=0.0) for text in texts]


def quick_grader(secret: bytes = bytes(16)) -> Grader:
    return Grader(secret, QUICK, here)


def cell(notebook: Any, grade_id: str) -> Any:
    return next(cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade_id") == grade_id)


def answered(item: Exercise, code: str) -> Any:
    """The notebook of an exercise with this code as its answer."""
    notebook = assignment(item)
    cell(notebook, item.slug).source = cell_text(item, code)
    return notebook


def elsewhere(item: Exercise, code: str) -> Any:
    """A notebook whose answer's cell is as it was given, with this code in a cell of the student's own."""
    notebook = assignment(item)
    notebook.cells.append(v4.new_code_cell(cell_text(item, code)))
    return notebook


EVIL = """import os
os.system("touch {mark}")
open("{mark}", "w").write("here")
import helpers.course.exercises as attacked
attacked.Exercise.check = attacked.Exercise.judge = lambda *_, **__: True
while os.fork() or True: pass
"""


def hostile(item: Exercise, code: str, mark: Path) -> Any:
    """A notebook that does all it can for the points of a wrong answer, were one of its cells to run or to be believed."""
    notebook = answered(item, code)
    evil = v4.new_code_cell(EVIL.replace("{mark}", str(mark)))
    tests = cell(notebook, f"{item.slug}_tests")
    tests.source, tests.metadata.nbgrader["points"] = "50", 5000
    tests.outputs = [v4.new_output("execute_result", data={"text/plain": "50"}, execution_count=1)]
    again = copy.deepcopy(tests)
    again.id = "again"
    cell(notebook, item.slug).metadata["gemm_ladder"] = {"missing": False, "remarks": ["all points"]}
    notebook.metadata["gemm_ladder"] = "all points"
    notebook.cells = [evil, *notebook.cells, copy.deepcopy(evil), again, v4.new_markdown_cell("<script>alert('all points')</script>")]
    return notebook


def deleted(item: Exercise) -> Any:
    notebook = assignment(item)
    notebook.cells = [one for one in notebook.cells if "nbgrader" not in one.metadata]
    return notebook


def twice(item: Exercise, first: str, second: str) -> Any:
    """Two cells with the grade id of the answer."""
    notebook = answered(item, first)
    again = copy.deepcopy(cell(notebook, item.slug))
    again.id, again.source = "again", cell_text(item, second)
    notebook.cells.append(again)
    return notebook


FILES: dict[str, Callable[[], str]] = {
    "damaged": lambda: '{"cells": [',
    "deep": lambda: "[" * 100_000,
    "old": lambda: json.dumps({"nbformat": 3, "worksheets": []}),
    "giant": lambda: json.dumps({"cells": [], "nbformat": 4, "nbformat_minor": 5, "metadata": {}, "more": "a" * (17 << 20)}),
}
