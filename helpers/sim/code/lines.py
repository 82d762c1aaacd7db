"""Which line of the reader's cell a place in the PTX comes from.

A `.loc` holds for what follows it. Code inlined from a header belongs to the line of the cell that called it, through as
many levels of `inlined_at` as there are. `.loc … 0 …` means "compiler-made" and continues the line before.
"""

from __future__ import annotations

import re

FILENAME = "/cell.cu"  # absolute, so that the PTX does not depend on the folder the notebook runs in

FILE = re.compile(r'\.file\s+(\d+)\s+"([^"]*)"[^\n]*')
LOC = re.compile(
    r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)"
    r"(?:\s*,\s*function_name\s+[\w$]+(?:\s*\+\s*\d+)?\s*,\s*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?[^\n]*"
)


class CellLines:
    """Reads the `.loc`s of a PTX text in order. `line`: the cell line they have led to, None before the first.

    filename: what `.file` calls the cell; without any `.file`, file 1 is the cell.
    """

    def __init__(self, ptx: str, filename: str = FILENAME):
        files = {int(number): name for number, name in FILE.findall(ptx)}
        self.cell = {number for number, name in files.items() if name.lstrip("/") == filename.lstrip("/")} or (set() if files else {1})
        self.callers: dict[tuple[int, int, int], tuple[int, int, int] | None] = {}
        self.line: int | None = None

    def read(self, loc: re.Match) -> None:
        """Take in one match of LOC."""
        here = (int(loc[1]), int(loc[2]), int(loc[3]))
        caller = (int(loc[4]), int(loc[5]), int(loc[6])) if loc[4] else None
        if here != caller:
            self.callers[here] = caller
        seen = set()
        while here is not None and here not in seen:
            seen.add(here)
            if here[0] in self.cell:
                self.line = here[1] or self.line
                return
            here = caller if len(seen) == 1 else self.callers.get(here)


def line_of_ptx(ptx: str, filename: str = FILENAME) -> dict[int, int | None]:
    """The cell line of each 1-based PTX line."""
    cell, lines = CellLines(ptx, filename), {}
    for number, text in enumerate(ptx.split("\n"), 1):
        if match := LOC.match(text.lstrip()):
            cell.read(match)
        lines[number] = cell.line
    return lines
