"""A notebook's file, read and written: the text of its cells, and why a damaged one cannot be read.

Readers, front ends and disks damage notebooks. What the course looks at has its form here or is refused with a sentence; what
it does not look at stays as it is.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from helpers.errors import CourseError
from helpers.files import read_whole

_KINDS = ("code", "markdown", "raw")


def read(path: Path) -> dict[str, Any]:
    """The notebook in the file `path`. Raises CourseError if there is none that can be read."""
    try:
        return parsed(read_whole(path))
    except OSError as error:
        raise CourseError(f"{path} is not a notebook that can be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise CourseError(f"{path} is not a notebook that can be read: {error}.") from error


def parsed(data: bytes) -> dict[str, Any]:
    """The notebook that `data` is. Raises ValueError, with the reason, if it is none of format 4."""
    try:
        notebook = json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _demand(isinstance(notebook, dict), "it is not an object")
    _demand(notebook.get("nbformat") == 4, f"it is not of format 4 (nbformat is {notebook.get('nbformat')!r})")
    _demand(type(notebook.get("nbformat_minor", 0)) is int, "its minor format is no number")
    _demand(isinstance(notebook.get("metadata", {}), dict), "its metadata are not an object")
    _demand(isinstance(notebook.get("cells"), list), "it has no list of cells")
    for number, cell in enumerate(notebook["cells"], 1):
        where = f"cell {number}"
        _demand(isinstance(cell, dict), f"{where} is not an object")
        _demand(cell.get("cell_type") in _KINDS, f"{where} is of no known kind ({cell.get('cell_type')!r})")
        text = cell.get("source")
        _demand(isinstance(text, str) or _all_are(text, str), f"{where} has no text")
        _demand(isinstance(cell.get("id", ""), str), f"{where} has an id that is no text")
        metadata = cell.get("metadata", {})
        _demand(isinstance(metadata, dict) and _all_are(metadata.get("tags", []), str), f"{where} has metadata that are none")
        _demand(_all_are(cell.get("outputs", []), dict), f"{where} has outputs that are none")
    return notebook


def _demand(fact: bool, otherwise: str) -> None:
    if not fact:
        raise ValueError(otherwise)


def _all_are(values: Any, kind: type) -> bool:
    return isinstance(values, list) and all(isinstance(value, kind) for value in values)


def source(cell: dict[str, Any]) -> str:
    """A cell's text, which nbformat stores as one string or as a list of lines."""
    return cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])


def tags(cell: dict[str, Any]) -> list[str]:
    """A cell's tags."""
    return cell.get("metadata", {}).get("tags", [])


def dumps(notebook: dict[str, Any]) -> str:
    """The text of a notebook file, as nbformat writes it. (Not by nbformat, which repairs what it is given: a reader's own copy
    stays as it is.) Half a character, which a browser can send and UTF-8 cannot hold, stays the escape that it was."""
    text = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    return text.encode(errors="backslashreplace").decode()
