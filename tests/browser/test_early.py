"""Cells that are run before the notebook's kernel has started."""

from __future__ import annotations

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from .conftest import LOOK_MILLISECONDS, START_SECONDS, Notebook

NAME = "early.ipynb"
OPEN = """name => {
    const panel = window.jupyterapp?.shell.currentWidget;
    return panel?.context?.path === name && panel.context.isReady && panel.sessionContext.kernelDisplayStatus === 'initializing';
}"""
COUNTS = "() => [...window.jupyterapp.shell.currentWidget.content.model.cells].map(cell => cell.executionCount)"


@pytest.mark.slow
def test_run_all_waits_for_the_kernel_and_runs_each_cell_once(page, lab):
    cells = [new_code_cell(text) for text in ("a = 1", "a += 1", "a")]
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}}), lab.root / NAME)
    held = []  # requests for a kernel, which is thereby as late as on a slow machine
    page.route("**/api/sessions*", lambda route: held.append(route) if route.request.method == "POST" else route.continue_())
    page.goto(f"{lab.url}/lab/tree/{NAME}?reset&token={lab.token}")
    page.wait_for_function(OPEN, arg=NAME, timeout=START_SECONDS * 1000, polling=LOOK_MILLISECONDS)
    for _ in range(2):  # nothing is seen to happen, so it is pressed again
        page.evaluate("() => { window.early = window.jupyterapp.commands.execute('notebook:run-all-cells'); }")
    page.wait_for_timeout(1000)
    assert page.evaluate(COUNTS) == [None, None, None]
    (request,) = held
    request.continue_()
    page.wait_for_function(f"({COUNTS})().every(Boolean)", timeout=START_SECONDS * 1000, polling=LOOK_MILLISECONDS)
    page.evaluate("async () => { await window.early; }")
    assert page.evaluate(COUNTS) == [1, 2, 3]
    assert Notebook(page, lab, NAME).error_outputs() == []
