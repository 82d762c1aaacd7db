"""Which line of the reader's cell a place in the PTX comes from.

A `.loc` holds for what follows it in its function, and the first one also for what precedes it there. Code inlined from a
header belongs to the line of the cell that called it, through as many levels of `inlined_at` as there are. `.loc … 0 …`
means "compiler-made" and continues the line before.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from types import MappingProxyType

FILENAME = "/cell.cu"  # absolute, so that the PTX does not depend on the folder the notebook runs in

FILE = re.compile(r'\.file\s+(\d+)\s+"([^"]*)"[^\n]*')
LOC = re.compile(
    r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)"
    r"(?:\s*,\s*function_name\s+[\w$]+(?:\s*\+\s*\d+)?\s*,\s*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?[^\n]*"
)
_FUNCTION = re.compile(r"\s*(?:\.(?:visible|extern|weak)\s+)*\.(?:entry|func)\b")


@functools.lru_cache(maxsize=64)
def line_of_ptx(ptx: str, filename: str = FILENAME) -> Mapping[int, int | None]:
    """The cell line of each 1-based PTX line.

    filename: what `.file` calls the cell; without any `.file`, file 1 is the cell.
    """
    cell = _cell(ptx, filename)
    callers: dict[tuple[int, int, int], tuple[int, int, int]] = {}
    lines: dict[int, int | None] = {}
    current = begin = None  # the line reached in this function, and where the function begins
    for number, text in enumerate(ptx.split("\n"), 1):
        if _FUNCTION.match(text):
            current, begin = None, number
        elif match := LOC.match(text.lstrip()):
            found = _in_cell(match, cell, callers) or current
            if current is None and found is not None and begin is not None:
                lines.update(dict.fromkeys(range(begin, number), found))
            current = found
        lines[number] = current
    return MappingProxyType(lines)


@functools.lru_cache(maxsize=8)
def calls_of_ptx(ptx: str, filename: str = FILENAME) -> Mapping[int, int]:
    """The cell line of the call, of those 1-based PTX lines that the compiler copied in from a function of the cell. Of calls within
    calls, the outermost."""
    cell = _cell(ptx, filename)
    callers: dict[tuple[int, int, int], tuple[int, int, int]] = {}
    calls: dict[int, int] = {}
    current = None
    for number, text in enumerate(ptx.split("\n"), 1):
        if _FUNCTION.match(text):
            current = None
        elif (match := LOC.match(text.lstrip())) and int(match[2]):
            in_cell = [place for place in _callers(match, callers) if place[0] in cell]
            current = in_cell[-1][1] if len(in_cell) > 1 else None
        if current is not None:
            calls[number] = current
    return MappingProxyType(calls)


def cell_lines(compiled) -> Mapping[int, int | None]:
    """The same of a compiled kernel; needs `.ptx`, and `.filename` if that is not the usual one."""
    return line_of_ptx(compiled.ptx, getattr(compiled, "filename", FILENAME))


def _cell(ptx: str, filename: str) -> set[int]:
    """The numbers that `.loc` has for the cell."""
    files = {int(number): name for number, name in FILE.findall(ptx)}
    return {number for number, name in files.items() if name.lstrip("/") == filename.lstrip("/")} or (set() if files else {1})


def _in_cell(loc: re.Match, cell: set[int], callers: dict) -> int | None:
    """The line of the cell that a `.loc` leads to, if there is one."""
    return next((place[1] or None for place in _callers(loc, callers) if place[0] in cell), None)


def _callers(loc: re.Match, callers: dict) -> list[tuple[int, int, int]]:
    """The place of a `.loc` (file, line, column), that of the call it was copied in for, and so on. callers: of earlier ones."""
    here: tuple[int, int, int] | None = (int(loc[1]), int(loc[2]), int(loc[3]))
    caller = (int(loc[4]), int(loc[5]), int(loc[6])) if loc[4] else None
    if here != caller:
        callers[here] = caller
    found: list[tuple[int, int, int]] = []
    while here is not None and here not in found:
        found.append(here)
        here = caller if len(found) == 1 else callers.get(here)
    return found
