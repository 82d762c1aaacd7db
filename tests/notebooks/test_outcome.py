"""What is asked of executed notebooks notices what it should."""

from __future__ import annotations

import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook, new_output

from tests.notebooks.outcome import errors, pictures_without_text


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
