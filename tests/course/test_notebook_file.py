"""A damaged notebook is a sentence, a sound one is read as it is."""

from __future__ import annotations

import json

import pytest

from helpers.course.notebook_file import dumps, parsed, read
from helpers.errors import CourseError

CELL = {"cell_type": "code", "id": "a", "metadata": {}, "source": "1", "outputs": [], "execution_count": None}
SOUND = {"cells": [CELL], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def cell(**changes) -> bytes:
    return json.dumps(SOUND | {"cells": [{name: value for name, value in (CELL | changes).items() if value != "missing"}]}).encode()


def top(**changes) -> bytes:
    return json.dumps(SOUND | changes).encode()


DAMAGED = {
    "empty": b"", "cut": top()[:60], "zeros": bytes(50), "a list": b"[]", "null": b"null", "not UTF-8": cell(source="é").replace(rb"\u00e9", b"\xe9"),
    "nested": b'{"nbformat": 4, "cells":' + b"[" * 100_000, "digits": b'{"nbformat": 4, "cells": ' + b"9" * 5000 + b"}",
    "format 3": top(nbformat=3), "format as text": top(nbformat="4"), "no format": b'{"cells": []}', "minor": top(nbformat_minor=None),
    "metadata": top(metadata=None), "no cells": top(cells=None), "cells by name": top(cells={"a": 1}), "a cell of text": top(cells=["x"]),
    "no source": cell(source="missing"), "source null": cell(source=None), "source of numbers": cell(source=[1, 2]),
    "no kind": cell(cell_type="missing"), "a poem": cell(cell_type="poem"), "id": cell(id=3), "cell's metadata": cell(metadata=None),
    "tags": cell(metadata={"tags": [3]}), "outputs": cell(outputs=None), "an output of text": cell(outputs=["x"]),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_notebook_is_a_sentence(tmp_path, damage):
    (tmp_path / "x.ipynb").write_bytes(DAMAGED[damage])
    with pytest.raises(CourseError, match=r"x\.ipynb is not a notebook that can be read: .+\.$"):
        read(tmp_path / "x.ipynb")


@pytest.mark.parametrize("text", ["é\n", "\ud800", ""], ids=["accent", "half a character", "empty"])
def test_what_is_written_is_read_again(text):
    notebook = json.loads(cell(source=text))
    assert parsed(dumps(notebook).encode()) == notebook
