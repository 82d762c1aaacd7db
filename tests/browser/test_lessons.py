"""Each lesson as its reader uses it: open, Run All, move a slider or choose from a menu, see the picture change.

What was saved is what tests/notebooks/test_execute.py asks of a notebook where there is no browser.
"""

from __future__ import annotations

import pytest

from helpers.course.steps import STEPS
from helpers.front.opening import PAGE
from tests.notebooks.outcome import errors, pictures_without_text, wrong_checks


@pytest.mark.slow
@pytest.mark.timeout(600)  # lesson 11 compiles most of all: on two busy cores it takes five minutes
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_lesson_runs_and_its_controls_change_its_pictures(open_next, lab, step):
    lab.forget_progress()
    notebook = open_next(step.notebook_path.name)
    beside = set(lab.root.glob("[!.]*"))
    notebook.run_all()
    assert notebook.error_outputs() == []
    saved = notebook.saved()
    assert not errors(saved)
    assert not pictures_without_text(saved)
    assert not wrong_checks(saved, step)
    assert set(lab.root.glob("[!.]*")) == beside, "running a lesson leaves files beside it"
    if step.entry:
        kernel = notebook.cell(f"%%cuda {step.slug}")
        kernel.locator(".cm-content[data-language='cuda']").wait_for()
        # The editor renders only what is in view of a long cell; every kernel states its geometry near the top.
        keywords = kernel.locator(".cm-content .cuda-keyword")
        keywords.first.wait_for()
        assert {"__global__", "__device__"} & set(keywords.all_inner_texts())
    moved = 0
    for index in notebook.widget_cells():
        cell = notebook.show(index)
        assert all(len(text) > 20 for text in notebook.alternatives(cell)), f"cell {index}: a picture without words"
        assert notebook.overflowing(cell) == [], f"cell {index}: wider than the page"
        controls = notebook.sliders(cell) + notebook.menus(cell)
        if not controls or not notebook.pictures(cell):
            continue
        notebook.screenshot(f"{step.name}-{index}-before")
        assert any(notebook.press(cell, control, key) for control in controls for key in ("ArrowRight", "ArrowLeft")), (
            f"cell {index}: no control changes the picture"
        )
        notebook.screenshot(f"{step.name}-{index}-after")
        moved += 1
    assert notebook.error_outputs() == []
    assert moved or step.entry is None, "the lesson has no picture with controls"


def test_the_reader_s_page_is_what_course_lab_opens(page, lab):
    page.goto(f"{lab.url}/?token={lab.token}")
    # In front of whatever was open before, which JupyterLab restores first.
    page.wait_for_function("name => window.jupyterapp?.shell.currentWidget?.context?.path === name", arg=PAGE)
    page.get_by_role("link", name=f"00 · {STEPS[0].title}").first.wait_for()


@pytest.mark.slow
def test_no_question_greets_the_reader(open_notebook):
    notebook = open_notebook(STEPS[0].notebook_path.name)
    notebook.page.wait_for_timeout(1500)  # announcements are asked for once JupyterLab is restored
    assert notebook.page.locator(".Toastify__toast, .jp-Dialog").all_inner_texts() == []
