"""The granules of a chunk's shared memory, in which the checks of it keep what they know.

Rows are blocks; while all blocks of the chunk do the same, one row stands for all of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from .accesses import SEVERAL, Touched

if TYPE_CHECKING:
    from .observer import SharedCheck
    from .protocols import LoadedKernel, Machine

Check = TypeVar("Check", bound="SharedCheck")


class SharedCells:
    """Granules of `granule` bytes, `count` per row. checks: those whose arrays have these rows."""

    def __init__(self, program: LoadedKernel, nbytes: int):
        self.granule = program.shared_granule
        self.count = nbytes // self.granule
        self.rows = 1
        self.program = program
        self.checks: list[SharedCheck] = []

    def part(self, rows: np.ndarray):
        """(the granules of some of the blocks, function that cuts an array to their rows)."""
        other = SharedCells.__new__(SharedCells)
        other.granule, other.count, other.program = self.granule, self.count, self.program
        other.rows = len(rows) if self.rows > 1 else 1
        return other, (lambda a: a[rows].copy()) if self.rows > 1 else (lambda a: a.copy())

    def expand(self, m: Machine) -> None:
        """A row for each block."""
        if self.rows == m.blocks:
            return
        for check in self.checks:
            check.with_rows(lambda array: np.repeat(array, m.blocks, axis=0))
        self.rows = m.blocks

    def check(self, kind: type[Check]) -> Check:
        """The check of a kind, for others that need what it knows."""
        return next(check for check in self.checks if isinstance(check, kind))

    def row_of(self, cells: np.ndarray):
        """The rows of granules."""
        return cells // self.count if self.rows > 1 else 0

    def of_lanes(self, m: Machine, offsets: np.ndarray, mask: np.ndarray | None, width: int) -> Touched:
        """What lanes touch in their own blocks' memory."""
        g = self.granule
        span = max(1, width // g)
        several, pair = False, None
        if m.varies_by_block(offsets) or (mask is not None and m.varies_by_block(mask)):
            self.expand(m)
            cells = m.rows_of(offsets) // g + (np.arange(m.blocks) * self.count)[:, None]
            who = np.broadcast_to(np.arange(1, m.threads + 1), cells.shape)
            if mask is not None:
                chosen = m.rows_of(mask)
                cells, who = cells[chosen], who[chosen]
        else:
            if mask is None and offsets.size < m.threads:
                cells, several = offsets.reshape(-1) // g, True
                who, pair = np.full(cells.shape, SEVERAL), _sharers(m, offsets)
            else:
                cells, who = m.thread_row(offsets) // g, np.arange(1, m.threads + 1)
                if mask is not None:
                    chosen = m.thread_row(mask)
                    cells, who = cells[chosen], who[chosen]
            if self.rows > 1:
                copies = (np.arange(self.rows) * self.count)[:, None]
                who = np.broadcast_to(who, (self.rows, *who.shape))
                pair = pair and tuple(np.broadcast_to(part, who.shape) for part in pair)
                cells = cells + copies
        cells, who = cells.reshape(-1), who.reshape(-1)
        if span > 1:
            cells = (cells[:, None] + np.arange(span)).reshape(-1)
            who = np.repeat(who, span)
        if pair is not None:
            pair = tuple(np.repeat(part.reshape(-1), span) for part in pair)
        return Touched(cells, who.astype(np.int32), several, None, pair)

    # ---------------------------------------------------------------------------------------------- for messages

    def place(self, m: Machine, touched: Touched, i: int):
        """(block, thread, address) of the i-th granule that an access touches."""
        cell = int(touched.cells[i])
        row = int(touched.actors[i]) if touched.actors is not None else cell // self.count if self.rows > 1 else 0
        return m.block_position(row), m.thread_position(max(int(touched.who[i]) - 1, 0)), cell % self.count * self.granule

    def at(self, address: int, whose: str = "") -> str:
        """'shared memory at offset 64 (in `As`)', with what `whose` adds. Offsets count from the beginning of the block's variables; a
        name is marked as one, for it may be a word that says something else, such as bytes."""
        array = array_at(self.program, address)
        name = f" (in `{array[0]}`)" if array else ""
        return f"shared memory{whose} at offset {address - self.program.shared_start}{name}"


def _sharers(m: Machine, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each element of an array that fewer elements than a block has threads: two threads + 1 that share it."""
    threads = m.thread_index
    shared = [axis for axis, n in enumerate(threads.shape) if n > 1 and offsets.shape[axis] == 1]
    found = []
    for second in (0, 1):
        place = [slice(None) if n > 1 else 0 for n in offsets.shape]
        place[shared[-1]] = second
        found.append(threads[tuple(place)].reshape(-1) + 1)
    return found[0], found[1]


def array_at(program: LoadedKernel, address: int) -> tuple[str, int] | None:
    """(the array of shared memory that an address lies in, byte of it); None where it lies in none. One without an extent never ends."""
    for symbol, base, nbytes in program.shared:
        if base <= address and (address < base + nbytes or nbytes == 0):
            return plain_name(symbol), address - base
    return None


def plain_name(symbol: str) -> str:
    """The variable's name inside a mangled symbol: `_ZZ4gemmE2As` -> As, `_ZN2ns4smemE` -> smem."""
    if symbol.startswith("_ZZ") and "E" in symbol:  # a local name stands behind its function
        rest = symbol[symbol.rfind("E") + 1 :]
    elif symbol.startswith("_ZN"):
        rest = symbol[3:]
    else:
        return symbol
    name = rest
    while length := re.match(r"\d+", rest):
        name = rest[length.end() :][: int(length[0])]
        rest = rest[length.end() + len(name) :]
    return name or symbol


def first(bad: np.ndarray) -> int:
    """The position of the first True."""
    return int(np.flatnonzero(bad)[0])


def line_of(site, other) -> str:
    """'line 12', or 'the same line'."""
    return "the same line" if other.line == site.line else f"line {other.line}"
