"""Which tile of a matrix each block of a launch stores to, by the machine code: of all blocks at once, and without executing what they
compute.

An address of a store depends on block, thread and arguments, as branches do, so the slice that is counted tells it. One warp of each block
says where the block's tile is; all warps of a few blocks say to which elements these store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from helpers.errors import CourseError
from helpers.sim.code import time_limit
from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.sass_operands import SassAddress

from .constants import cubin_constants, launch_constants
from .counts import sliced
from .execute import SliceRun
from .semantics.cross_lane import HEARS_OF_OTHERS
from .slicing import stores_results
from .values import CannotTell

_MOST_STEPS = 20_000  # basic blocks
_TOGETHER = 1 << 13  # blocks


@dataclass(frozen=True)
class StoredMatrix:
    """The matrix that is stored to: where it begins, bytes of a row and of an element, rows and columns of a tile, tiles along a row, all
    rows."""

    base: int
    row_bytes: int
    element_bytes: int
    tile: tuple[int, int]
    across: int
    rows: int


class StoreRun(SliceRun):
    """A run that notes where each block stores. lanes: of each block, those that are followed; None: all."""

    jumps = False

    def __init__(self, program, grid, block, constants, blocks, cluster, matrix: StoredMatrix, lanes: int | None):
        self.most_lanes = lanes
        self.warp = min(WARP, lanes or WARP)
        super().__init__(program, grid, block, constants, blocks, True, _MOST_STEPS, cluster)
        self.matrix = matrix
        self.first = np.full(self.count_blocks, np.iinfo(np.int64).max)  # tile with the lowest number that the block stores to
        self.last = np.full(self.count_blocks, -1)
        self.stored: list[np.ndarray] | None = [] if lanes is None else None  # bytes of the matrix: [blocks, lanes], -1 where none

    def observe(self, i, mask):
        if not stores_results(i):
            return
        place = next((self.address(s) for s in i.sources if isinstance(s, SassAddress)), None)
        if place is None:
            raise CannotTell("where a store goes depends on data", i)
        matrix, shape = self.matrix, (*self.shape, self.lanes)
        byte = np.broadcast_to(place - matrix.base, shape).reshape(self.count_blocks, -1)
        inside = (byte >= 0) & (byte < matrix.rows * matrix.row_bytes)
        if mask is not None:
            inside = inside & np.broadcast_to(mask, shape).reshape(self.count_blocks, -1)
        elif self.lanes != self.threads:
            inside = inside & (np.arange(self.lanes) < self.threads)
        row = byte // matrix.row_bytes
        column = (byte - row * matrix.row_bytes) // matrix.element_bytes
        tile = row // matrix.tile[0] * matrix.across + column // matrix.tile[1]
        self.first = np.minimum(self.first, np.where(inside, tile, np.iinfo(np.int64).max).min(axis=1))
        self.last = np.maximum(self.last, np.where(inside, tile, -1).max(axis=1))
        if self.stored is not None:
            self.stored += [np.where(inside, byte + step, -1) for step in range(0, max(i.width, 1), matrix.element_bytes)]

    def run(self):
        done = super().run()
        for index, why in self.unknown_sites.items():
            i = self.program.instructions[index]
            if stores_results(i):
                raise CannotTell(why)
        return done


def _run(compiled, grid, block, args, blocks, cluster, matrix: StoredMatrix, lanes: int | None) -> StoreRun:
    program = sliced(compiled.sass, compiled.symbol, True, stored=True)
    if program is None:
        raise CannotTell("there is no machine code for this kernel")
    if lanes == 1 and any(program.instructions[index].name in HEARS_OF_OTHERS for part in program.blocks for index in part.needed):
        raise CannotTell("lanes hear of each other")
    dims = tuple(cluster or (1, 1, 1))
    constants = launch_constants(compiled.ptx, compiled.symbol, compiled.arch, grid, block, args, dims)
    constants |= cubin_constants(compiled.cubin, compiled.symbol)
    run = StoreRun(program, grid, block, constants, blocks, dims, matrix, lanes)
    run.run()
    return run


def stored_tiles(
    compiled, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], matrix: StoredMatrix, cluster: Sequence[int] | None = None,
    lanes: int = WARP,
) -> tuple[np.ndarray, np.ndarray] | None:  # fmt: skip
    """(lowest, highest) number of the tiles that the first warp of each block stores to, by linear block index; (a large number, -1) of a
    block whose first warp stores nothing to the matrix. None where that depends on data, or there is no machine code.

    compiled, grid, block, args: as for `instruction_counts`. lanes: 1 asks the first lane alone, which is much quicker; None where what
    it does depends on other lanes. Raises TimeIsUp where a `time_limit` is over.
    """
    total = grid[0] * grid[1] * grid[2]
    parts = []
    try:
        for start in range(0, total, _TOGETHER):
            time_limit.look()
            blocks = range(start, min(total, start + _TOGETHER))
            parts.append(_run(compiled, grid, block, args, blocks, cluster, matrix, lanes))
    except (CannotTell, CourseError):  # CourseError: there is no disassembler on this machine
        return None
    return np.concatenate([part.first for part in parts]), np.concatenate([part.last for part in parts])


def stored_elements(
    compiled, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], matrix: StoredMatrix, blocks: Sequence[int],
    cluster: Sequence[int] | None = None,
) -> list[np.ndarray] | None:  # fmt: skip
    """Of each of these blocks, where in the matrix all its threads store: bytes from the beginning, sorted, each once. None as above."""
    try:
        run = _run(compiled, grid, block, args, blocks, cluster, matrix, None)
    except (CannotTell, CourseError):
        return None
    all_of_them = np.concatenate(run.stored, axis=1) if run.stored else np.full((len(blocks), 0), -1)
    return [np.unique(mine[mine >= 0]) for mine in all_of_them]
