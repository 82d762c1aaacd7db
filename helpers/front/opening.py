"""The page that `course lab` opens: a notebook beside the reader's lessons that shows where the reader stands.

It is no lesson: it is made here, with its result already in it, so that it shows something before a kernel has started. Links lead to
the lessons. Running its cell brings it up to date. What a reader writes into other cells of it stays.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbformat.sign import NotebookNotary

from helpers.course.standing import Standing, standing
from helpers.errors import CourseError
from helpers.files import write_whole

from .notebooks import METADATA, back_up, canonical, dumps

PAGE = "progress.ipynb"
_HEAD = "progress-head"
_CELL = "progress-table"
_TITLE = """# The GEMM Ladder

Where you stand, and what is next. The table is as old as this session of JupyterLab: run its cell (**Shift + Enter**) to bring it up to
date. `course progress` prints the same in a terminal, saves it to a file, and adds what another file holds.

What the words of the course mean: [glossary](glossary.ipynb)."""
_CODE = """%load_ext helpers
from helpers import standing

standing()"""


def write(folder: Path) -> Path:
    """Make the page in the folder of the reader's lessons, or bring it up to date. Returns its path; raises OSError."""
    path = folder / PAGE
    shown = standing()
    notebook = _read(path)
    cells = [cell for cell in notebook["cells"] if cell.get("id") not in (_HEAD, _CELL)] if notebook else []
    made = {"cells": [*_own(shown), *cells], "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}
    write_whole(path, dumps(made).encode(), private=True)
    _sign(path)
    return path


def _read(path: Path) -> dict[str, Any] | None:
    """The page as it is; None if there is none, or none that can be read, which is then kept in `backups/`."""
    if not path.exists():
        return None
    try:
        notebook = json.loads(path.read_bytes())
        canonical(notebook)
    except (CourseError, ValueError, LookupError, TypeError, AttributeError):
        back_up(path)
        return None
    return notebook


def _own(shown: Standing) -> list[dict[str, Any]]:
    """The page's two cells."""
    result = {"text/html": shown._repr_html_().splitlines(keepends=True), "text/plain": str(shown).splitlines(keepends=True)}
    output = {"output_type": "execute_result", "execution_count": 1, "metadata": {}, "data": result}
    head = {"cell_type": "markdown", "id": _HEAD, "metadata": {}, "source": _TITLE.splitlines(keepends=True)}
    code = {"cell_type": "code", "id": _CELL, "metadata": {}, "execution_count": 1, "outputs": [output]}
    return [head, code | {"source": _CODE.splitlines(keepends=True)}]


def _sign(path: Path) -> None:
    """Say to Jupyter that the page is ours, so that its style is shown. Where that fails, the table is plain."""
    try:
        NotebookNotary().sign(nbformat.read(path, as_version=4))
    except (OSError, sqlite3.Error) as error:
        print(f"The page of your progress is shown without its style ({error}).", file=sys.stderr)
