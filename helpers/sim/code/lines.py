"""Which line of the reader's cell a place in the PTX comes from.

A `.loc` holds for what follows it in its function, and the first one also for what precedes it there. Code inlined from a
header belongs to the line of the cell that called it, through as many levels of `inlined_at` as there are. `.loc … 0 …`
means "compiler-made" and continues the line before; where it accesses memory, it is for what comes next, and has the line of that.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from types import MappingProxyType

FILENAME = "/cell.cu"  # absolute, so that the PTX does not depend on the folder the notebook runs in

FILE = re.compile(r'\.file\s+(\d+)\s+"([^"]*)"[^\n]*')
LOC = re.compile(
    r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)"
    r"(?:\s*,\s*function_name\s+(?P<function>[\w$]+)(?:\s*\+\s*\d+)?\s*,\s*inlined_at\s+(?P<file>\d+)\s+(?P<line>\d+)\s+(?P<column>\d+))?[^\n]*"
)
_INLINE = re.compile(r"// begin inline asm\n(.*?)// end inline asm", re.S)
_LABEL = re.compile(r"\s*[\w$]+:")
_ACCESS = re.compile(r"\s*(?:@!?%\w+\s+)?(?:ld|st|ldu|ldmatrix|stmatrix|atom|red|cp|wmma)\.(?!param\b)")
_FUNCTION = re.compile(r"\s*(?:\.(?:visible|extern|weak)\s+)*\.(?:entry|func)\b")


@functools.lru_cache(maxsize=8)
def line_of_ptx(ptx: str, filename: str = FILENAME) -> Mapping[int, int | None]:
    """The cell line of each 1-based PTX line.

    filename: what `.file` calls the cell; without any `.file`, file 1 is the cell.
    """
    return MappingProxyType({number: lines[0] if lines else None for number, lines in chains_of_ptx(ptx, filename).items()})


def calls_of_ptx(ptx: str, filename: str = FILENAME) -> Mapping[int, int]:
    """The cell line of the call, of those 1-based PTX lines that the compiler copied in from a function of the cell. Of calls within
    calls, the outermost."""
    return {number: lines[-1] for number, lines in chains_of_ptx(ptx, filename).items() if len(lines) > 1}


def assembly_calls_of_ptx(ptx: str, filename: str = FILENAME) -> Mapping[int, int]:
    """The cell line of the call, of those 1-based PTX lines that are inline assembly of a function of the cell: what a helper does in the
    place of its caller. Of calls within calls, the innermost."""
    reached, inside, found = chains_of_ptx(ptx, filename), False, {}
    for number, text in enumerate(ptx.split("\n"), 1):
        if "inline asm" in text:
            inside = "begin inline asm" in text
        elif inside and len(lines := reached[number]) > 1:
            found[number] = lines[1]
    return found


def calls_outwards(chains: Mapping[int, Sequence[int]], ptx_line: int, called_from: Sequence[int]) -> tuple[int, ...]:
    """The cell lines that call the function which a PTX line stands in, the innermost first. chains: see `chains_of_ptx`. called_from:
    PTX lines of the calls of functions that the compiler has left functions."""
    found = [line for place in (ptx_line, *called_from) for line in chains.get(place, ())]
    return tuple(line for before, line in itertools.pairwise(found) if line != before)


def header_at(ptx: str, number: int, filename: str = FILENAME) -> str:
    """The function of a header that 1-based PTX line `number` was copied in from, with its place, "" if that is the cell's."""
    lines = ptx.split("\n")[:number]
    place = next((match for text in reversed(lines) if (match := LOC.match(text.lstrip()))), None)
    path = dict(FILE.findall(ptx)).get(place[1], filename) if place else filename
    if path.lstrip("/") == filename.lstrip("/"):
        return ""
    data = re.search(rf"^{re.escape(place['function'])}:\n((?:\.b8 [\d,]+\n)*)", ptx, re.M) if place["function"] else None
    symbol = bytes(int(byte) for byte in re.findall(r"\d+(?=[,\n])", data[1])).rstrip(b"\0").decode() if data else ""
    name, rest = "", re.sub(r"^_ZN?", "", symbol)  # _ZN, then each name behind its length
    while length := re.match(r"\d+", rest):
        name, rest = rest[length.end() :][: int(length[0])], rest[length.end() + int(length[0]) :]
    where = f"{PurePath(path).name}, line {place[2]}"
    return f"{name} ({where})" if name else where


def assembly_before(ptx: str, number: int) -> int | None:
    """The first line of the inline assembly that the assembler has stumbled over by 1-based PTX line `number`, where it cannot read on: the
    first piece whose brackets do not match, else the last one that begins before."""
    pieces: list[tuple[int, str]] = []
    for found in _INLINE.finditer(ptx):
        start = ptx.count("\n", 0, found.start(1)) + 1
        if start > number:
            break
        pieces.append((start, found[1]))
    uneven = (start for start, text in pieces if any(text.count(one) != text.count(other) for one, other in ("{}", "()", "[]")))
    return next(uneven, pieces[-1][0] if pieces else None)


def cell_lines(compiled) -> Mapping[int, int | None]:
    """The same of a compiled kernel; needs `.ptx`, and `.filename` if that is not the usual one."""
    return line_of_ptx(compiled.ptx, getattr(compiled, "filename", FILENAME))


@functools.lru_cache(maxsize=8)
def chains_of_ptx(ptx: str, filename: str = FILENAME) -> Mapping[int, tuple[int, ...]]:
    """The cell line of each PTX line, then that of the call it was copied in for, and so on; () where there is none."""
    files = {int(number): name for number, name in FILE.findall(ptx)}
    cell = {number for number, name in files.items() if name.lstrip("/") == filename.lstrip("/")} or (set() if files else {1})
    callers: dict[tuple[int, int, int], tuple[int, int, int]] = {}
    reached: dict[int, tuple[int, ...]] = {}
    current: tuple[int, ...] = ()  # what was reached in this function
    begin = None  # where the function begins
    made, accesses = 0, False  # where compiler-made code of this block begins, and whether it accesses memory
    for number, text in enumerate(ptx.split("\n"), 1):
        if _FUNCTION.match(text):
            current, begin, made, accesses = (), number, 0, False
        elif match := LOC.match(text.lstrip()):
            found = tuple(line for file, line, _ in _callers(match, callers) if file in cell)
            if found and found[0]:
                if not current and begin is not None:
                    reached.update(dict.fromkeys(range(begin, number), found))
                if accesses:
                    reached.update(dict.fromkeys(range(made, number), found))
                current, made, accesses = found, 0, False
            elif found:
                made = made or number
        elif made and _LABEL.match(text):
            made, accesses = 0, False
        elif made and _ACCESS.match(text):
            accesses = True
        reached[number] = current
    return reached


def _callers(loc: re.Match, callers: dict) -> list[tuple[int, int, int]]:
    """The place of a `.loc` (file, line, column), that of the call it was copied in for, and so on. callers: of earlier ones."""
    here: tuple[int, int, int] | None = (int(loc[1]), int(loc[2]), int(loc[3]))
    caller = (int(loc["file"]), int(loc["line"]), int(loc["column"])) if loc["file"] else None
    if here != caller:
        callers[here] = caller
    found: list[tuple[int, int, int]] = []
    while here is not None and here not in found:
        found.append(here)
        here = caller if len(found) == 1 else callers.get(here)
    return found
