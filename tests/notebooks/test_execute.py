"""Every notebook runs from top to bottom, headless, in a home of its own, as a reader without a GPU would run it.

Where there is a browser, tests/browser/test_lessons.py runs them instead, and asserts the same of what it saved. How long each
took is in the report (budget: 30 seconds on two cores); it is not asserted, because a busy machine is not a broken lesson.
"""

from __future__ import annotations

import shutil
import time

import nbformat
import pytest

from helpers.course.steps import STEPS
from helpers.front.own_kernel import own_kernel
from helpers.front.slides import freeze_widgets
from tests.browser.conftest import installed_browser
from tests.notebooks.outcome import errors, pictures_without_text, wrong_checks

BUDGET_SECONDS = 30
LIMIT_SECONDS = 240


@pytest.mark.slow
@pytest.mark.skipif(installed_browser() is not None, reason="tests/browser/test_lessons.py runs it")
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_notebook_runs_without_errors(step, tmp_path, monkeypatch, record_property, make_home):
    path = step.notebook_path
    monkeypatch.setenv("GEMM_LADDER_HOME", str(make_home(tmp_path / "home")))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    folder = tmp_path / "notebooks"
    folder.mkdir()
    shutil.copy(path, folder)
    notebook = nbformat.read(folder / path.name, as_version=4)
    nbformat.validate(notebook)
    start = time.perf_counter()
    with own_kernel(notebook, folder, timeout=LIMIT_SECONDS, allow_errors=True) as client:
        client.execute()
    seconds = time.perf_counter() - start
    record_property("seconds", round(seconds, 1))
    print(f"{path.name}: {seconds:.1f} s of {BUDGET_SECONDS} s")
    freeze_widgets(notebook)
    assert not errors(notebook)
    assert not pictures_without_text(notebook)
    assert not wrong_checks(notebook, step)
    assert [left.name for left in folder.iterdir()] == [path.name], "running a lesson leaves files beside it"
