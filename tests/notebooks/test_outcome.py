"""What is asked of executed notebooks notices what it should."""

from __future__ import annotations

import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook, new_output

from helpers.course.exercises import ExerciseReport, exercises
from helpers.course.steps import get
from helpers.front.widgets import Panel
from helpers.run.block_scales import quantized
from helpers.run.gemm import Case, CheckReport, Problem
from helpers.views.canvas import PICTURES, Picture
from tests.notebooks.outcome import errors, pictures_without_text, wrong_checks


def executed(*outputs: NotebookNode, **metadata) -> NotebookNode:
    """A notebook whose one cell has these outputs."""
    return new_notebook(cells=[new_code_cell("…", metadata=metadata, outputs=list(outputs))])


RAISED = new_output("error", ename="ZeroDivisionError", evalue="division by zero", traceback=[])
SHOWN = new_output("stream", name="stdout", text="1")


def test_an_error_is_noticed():
    assert "ZeroDivisionError" in errors(executed(SHOWN, RAISED))[0]
    assert errors(executed(SHOWN)) == []


def test_an_announced_error_is_fine_and_must_come():
    assert errors(executed(RAISED, tags=["raises-exception"])) == []
    assert errors(executed(SHOWN, tags=["raises-exception"])) != []


def test_a_picture_that_shows_an_error_is_noticed():
    """Of a picture that really fails, so that the sentence is the one that panels show."""

    def draw(what, **values):
        raise ZeroDivisionError("on purpose")

    for function, wrong in ((draw, 1), (lambda what, **values: PICTURES["block_factors"].draw(what, right=what), 0)):
        panel = Panel(quantized([[1.0]]), Picture("tried", "Tried", function, lambda what, **values: (), 1))
        assert len(errors(executed(new_output("execute_result", {"text/html": panel.shown})))) == wrong


@pytest.mark.parametrize(
    ("data", "silent"),
    [
        ({"text/html": '<img src="data:," alt="a line"><img src="data:,">'}, 1),
        ({"text/html": "<svg></svg>"}, 1),
        ({"text/html": '<svg aria-label="a line"></svg>'}, 0),
        ({"image/png": "", "text/plain": "<Figure size 640x480>"}, 1),
        ({"image/png": "", "text/plain": "A line."}, 0),
    ],
)
def test_a_silent_picture_is_noticed(data, silent):
    assert len(pictures_without_text(executed(new_output("display_data", data)))) == silent


def checked(step, passed: bool, solved: bool, told: bool) -> NotebookNode:
    """A lesson whose kernel `passed`, whose starters are `solved`, and whose promised counters are `told`."""
    expectations = tuple((f"{wanted.text}: 1", True) for wanted in step.expect if told)
    wrong = "" if passed else "C[0, 0] is wrong"
    shown = {f"{step.slug}.check()": CheckReport(step.entry, (Case(Problem(1, 1, 1), wrong),), (), expectations)}
    for item in exercises().values():
        if item.lesson == step.number:
            case = Case(Problem(1, 1, 1), "" if solved else "C[0, 0] is wrong")
            report = ExerciseReport(item.slug, (case,), (), title=item.title, after=item.after)
            shown[f'exercise("{item.slug}").check({item.slug})'] = report
    outputs = {source: new_output("execute_result", {"text/html": report._repr_html_()}) for source, report in shown.items()}
    return new_notebook(cells=[new_code_cell(source, outputs=[output]) for source, output in outputs.items()])


def test_a_check_that_says_the_wrong_thing_is_noticed():
    step = get("naive")
    starters = sum(item.lesson == step.number for item in exercises().values())
    assert wrong_checks(checked(step, passed=True, solved=False, told=True), step) == []
    assert len(wrong_checks(checked(step, passed=False, solved=False, told=True), step)) == 1
    assert len(wrong_checks(checked(step, passed=True, solved=False, told=False), step)) == len(step.expect)
    assert len(wrong_checks(checked(step, passed=True, solved=True, told=True), step)) == 2 * starters, "reported, and told"
    assert len(wrong_checks(new_notebook(cells=[]), step)) == 1 + len(step.expect) + starters
