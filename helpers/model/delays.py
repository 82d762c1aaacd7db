"""What in a kernel passes time on purpose, of which no model of time knows how much."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from helpers.sim.code.lines import cell_lines

_SLEEP = re.compile(r"\bnanosleep\.")
_CLOCK = re.compile(r"%(clock|globaltimer)(64|_hi|_lo)?\b")
_NEXT = re.compile(r"^\s*(\.visible |\.weak )*\.(entry|func)\b", re.M)


def delays(compiled) -> str:
    """A sentence where the kernel's PTX sleeps or reads a clock, with the lines of the cell; "" where it does neither."""
    begin = re.search(rf"\.entry\s+{re.escape(compiled.symbol)}\s*\(", compiled.ptx)
    if begin is None:
        return ""
    behind = _NEXT.search(compiled.ptx, begin.end())
    first = compiled.ptx.count("\n", 0, begin.start()) + 1
    body = list(enumerate(compiled.ptx[begin.start() : behind and behind.start()].split("\n"), first))
    sleeps, reads = ([number for number, text in body if pattern.search(text)] for pattern in (_SLEEP, _CLOCK))
    said = []
    if sleeps:
        said.append(f"The kernel sleeps{_at(sleeps, cell_lines(compiled))}: how long is not in this time.")
    if reads:
        said.append(f"The kernel reads a clock{_at(reads, cell_lines(compiled))}: if it waits for one, that is not in this time.")
    return " ".join(said)


def _at(found: Sequence[int], lines: Mapping[int, int | None]) -> str:
    """ " (line 12, 14)" of the cell for lines of PTX, "" where no line is known."""
    known = sorted({line for number in found if (line := lines.get(number))})
    return f" (line {', '.join(map(str, known))})" if known else ""
