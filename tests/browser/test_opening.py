"""The page that `course lab` opens."""

from __future__ import annotations

import pytest

from helpers.course.steps import STEPS
from helpers.front.opening import PAGE


@pytest.mark.slow
def test_the_page_shows_where_the_reader_stands_and_leads_to_the_lessons(open_notebook, chromium_path):
    notebook = open_notebook(PAGE)
    cell = notebook.cell("standing()")
    assert "Level 1, Lane" in cell.inner_text(), "shown before anything was run"
    assert cell.locator("tbody tr").count() == len(STEPS)
    notebook.screenshot("opening")
    notebook.run_all()
    assert not notebook.error_outputs()
    notebook.page.get_by_role("link", name="00 · Start here").first.click()
    notebook.page.wait_for_function("() => window.jupyterapp.shell.currentWidget?.context?.path === '00_start_here.ipynb'")
