"""Lessons where the compiler makes PTX only, as on macOS: what asks for machine code says that there is none, and all else works."""

from __future__ import annotations

import json
import os
import re

import nbformat
import pytest

from helpers.course.notebook_file import read
from helpers.course.steps import STEPS, get
from helpers.front import lessons
from helpers.front.own_kernel import own_kernel
from helpers.toolchain import clang, installation
from tests.notebooks.outcome import errors

_ASKS = re.compile(r"\bmachine_code\(|\bplans\(|\{[^}]*\.registers\b|\.sass\b")  # what there is no answer to in PTX


@pytest.fixture
def by_clang(monkeypatch):
    if clang.program() is None and not os.environ.get("CI"):
        pytest.skip("ziglang is not installed: uv sync --group test")
    monkeypatch.setenv(installation.CHOICE, "clang")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [3, 10])
def test_a_lesson_runs_by_clang_but_for_what_asks_for_machine_code(number, by_clang, tmp_path, monkeypatch, make_home):
    monkeypatch.setenv("GEMM_LADDER_HOME", str(make_home(tmp_path / "home")))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.reads(json.dumps(lessons.for_readers(read(get(number).notebook_path))), as_version=4)
    with own_kernel(notebook, tmp_path, timeout=240, allow_errors=True) as client:
        client.execute()
    assert errors(notebook) == []
    raised = [output for cell in notebook.cells for output in cell.get("outputs", ()) if output.output_type == "error"]
    assert raised and {output.ename for output in raised} == {"CourseError"}


@pytest.mark.parametrize("step", [step for step in STEPS if 1 <= step.number <= 13], ids=lambda step: step.name)
def test_a_cell_that_asks_for_machine_code_is_marked(step):
    cells = [cell for cell in nbformat.read(step.notebook_path, 4).cells if cell.cell_type == "code"]
    caught = {cell.id for cell in cells if "except CourseError" in cell.source}
    asking = {cell.id for cell in cells if _ASKS.search(cell.source) and not cell.source.startswith("%%")} - caught
    marked = {cell.id for cell in cells if lessons.ASKS_FOR_MACHINE_CODE in cell.metadata.get("tags", ())}
    assert asking <= marked
