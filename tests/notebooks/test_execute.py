"""Every notebook runs from top to bottom, headless, in a home of its own, as a reader without a GPU would run it.

How long each took is in the report (budget: 30 seconds on two cores); it is not asserted, because a busy machine is
not a broken lesson.
"""

from __future__ import annotations

import shutil
import time
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

from helpers.front.slides import freeze_widgets
from helpers.course.steps import STEPS

BUDGET_SECONDS = 30
LIMIT_SECONDS = 240


def execute(path: Path, folder: Path) -> NotebookNode:
    """The notebook at `path` after running it in `folder`; errors are in its outputs."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    resources = {"metadata": {"path": str(folder)}}
    return NotebookClient(notebook, timeout=LIMIT_SECONDS, kernel_name="python3", allow_errors=True, resources=resources).execute()


def errors(notebook: NotebookNode) -> list[str]:
    """Error outputs of cells that do not announce one (tag raises-exception), as sentences; and unanswered tags."""
    found = []
    for cell in notebook.cells:
        raised = [output for output in cell.get("outputs", ()) if output.output_type == "error"]
        expected = "raises-exception" in cell.metadata.get("tags", ())
        if raised and not expected:
            found += [f"cell {cell.id}: {error.ename}: {error.evalue}" for error in raised]
        if expected and not raised:
            found.append(f"cell {cell.id} is tagged raises-exception and raises none")
    return found


class _Images(HTMLParser):
    """Collects the images of an HTML output that have no alternative text."""

    def __init__(self):
        super().__init__()
        self.silent: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        names = dict(attributes)
        if tag == "img" and not names.get("alt"):
            self.silent.append(f"<img> without alt: {(names.get('src') or '')[:40]}")
        if tag == "svg" and not (names.get("aria-label") or names.get("aria-labelledby") or names.get("aria-hidden")):
            self.silent.append("<svg> without aria-label")


def pictures_without_text(notebook: NotebookNode) -> list[str]:
    """Pictures that a reader who does not see would not know about. Outputs of widgets count as well."""
    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if html := data.get("text/html"):
                images = _Images()
                images.feed(html)
                found += [f"cell {cell.id}: {image}" for image in images.silent]
            elif any(kind.startswith("image/") for kind in data) and not _alt(output):
                found.append(f"cell {cell.id}: a picture without alternative text")
    return found


def _alt(output: NotebookNode) -> bool:
    """Does a picture's output carry a description? (Its text/plain, unless that is only a Python repr.)"""
    text = output.data.get("text/plain", "")
    return bool(text) and not text.startswith("<")


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_notebook_runs_without_errors(step, tmp_path, monkeypatch, record_property, make_home):
    path = step.notebook_path
    monkeypatch.setenv("GEMM_LADDER_HOME", str(make_home(tmp_path / "home")))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    folder = tmp_path / "notebooks"
    folder.mkdir()
    shutil.copy(path, folder)
    start = time.perf_counter()
    notebook = execute(folder / path.name, folder)
    seconds = time.perf_counter() - start
    record_property("seconds", round(seconds, 1))
    print(f"{path.name}: {seconds:.1f} s of {BUDGET_SECONDS} s")
    freeze_widgets(notebook)
    assert not errors(notebook)
    assert not pictures_without_text(notebook)
    assert [left.name for left in folder.iterdir()] == [path.name], "running a lesson leaves files beside it"


def _executed(code: str, tmp_path: Path, **metadata) -> NotebookNode:
    cell = nbformat.v4.new_code_cell(code, metadata=metadata)
    path = tmp_path / "probe.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    return execute(path, tmp_path)


def test_an_error_is_noticed(tmp_path):
    assert "ZeroDivisionError" in errors(_executed("1 / 0", tmp_path))[0]


def test_an_announced_error_is_fine_and_must_come(tmp_path):
    assert errors(_executed("1 / 0", tmp_path, tags=["raises-exception"])) == []
    assert errors(_executed("1 / 1", tmp_path, tags=["raises-exception"])) != []


def test_a_silent_picture_is_noticed(tmp_path):
    code = "from IPython.display import HTML\nHTML('<img src=\"data:,\" alt=\"a line\"><img src=\"data:,\">')"
    assert len(pictures_without_text(_executed(code, tmp_path))) == 1
