"""What blocks that follow each other copy in bulk: how large each box is, and how many of them ask for one that others do not.

L2 is asked once for what the multiprocessors of a part of the chip want at about the same time, and blocks that follow each other share
one such part (kernels/LOG.md, runs 42 and 43).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from helpers.sim.code.ptx import declarations
from helpers.sim.code.sass import SassInstruction
from helpers.sim.code.sass_operands import SassAddress
from helpers.sim.layouts.tensor_map import TensorMap

from .constants import cubin_constants, launch_constants, parameter_offsets
from .counts import sliced
from .execute import SliceRun
from .signals import SignalKind, coordinates, kind_of
from .values import LOW, CannotTell

NEIGHBOURS = 16  # blocks
_PARAMETERS = 0x198  # of the constant bank, from sm_90 on and before sm_100: where in memory the parameters lie
_SOMEWHERE = 0x4000 << 32  # such a place, whose lower half is 0: it tells which of them is meant
_MOST_BLOCKS = 60_000  # basic blocks


@dataclass(frozen=True)
class BulkCopy:
    """A copy in bulk to shared memory, as neighbouring blocks execute it for the first time. nbytes: of its box, 0 where that is not known.
    fresh: boxes that are different, as a share of all of them. tensor: which of the kernel's tensor maps it copies from, from 0; None where
    that is not known. apart: of the first cluster's blocks each copies a box of its own."""

    nbytes: int
    fresh: float
    tensor: int | None = None
    apart: bool = False


class _FirstCopies(SliceRun):
    """Which box each block copies first, by instruction."""

    jumps = False
    waits_end = True
    private_stack = True

    def __init__(self, program, grid, block, constants, blocks: Sequence[int], cluster):
        super().__init__(program, grid, block, constants, blocks, True, _MOST_BLOCKS, cluster)
        self.boxes: dict[int, list[tuple[int, ...]]] = {}  # (address of the map or of the source, coordinates)

    def perform(self, i, mask):
        if kind_of(i) is SignalKind.BULK and i.index not in self.boxes:
            self.boxes[i.index] = self._boxes(i, mask)
        super().perform(i, mask)

    def _boxes(self, i: SassInstruction, mask) -> list[tuple[int, ...]]:
        _, source, *_ = [s for s in i.sources if isinstance(s, SassAddress)]
        values = [self.address(source), *(self.lookup(register.name()) for register in coordinates(i))]
        if any(value is None for value in values):
            return []
        shape = (1, 1, self.count_blocks, self.lanes)
        active = np.broadcast_to(True if mask is None else mask, shape)[0, 0]
        lanes, blocks = active.argmax(axis=-1), np.flatnonzero(active.any(axis=-1))
        columns = [np.broadcast_to(value, shape)[0, 0][blocks, lanes[blocks]].tolist() for value in values]
        return list(zip(*columns, strict=True))


def bulk_copies(compiled, grid, block, args: Sequence[Any], blocks: Sequence[int], cluster: Sequence[int]) -> Mapping[int, BulkCopy]:
    """The copies of these blocks by index of their instruction; {} where that cannot be told. Arguments as for `block_path`."""
    program = sliced(compiled.sass, compiled.symbol, True)
    if program is None or not any(kind_of(i) is SignalKind.BULK for i in program.instructions):
        return {}
    try:
        constants = launch_constants(compiled.ptx, compiled.symbol, compiled.arch, grid, block, args, tuple(cluster))
        constants |= cubin_constants(compiled.cubin, compiled.symbol)
        constants |= {(0, _PARAMETERS): _SOMEWHERE & LOW, (0, _PARAMETERS + 4): _SOMEWHERE >> 32}
        run = _FirstCopies(program, grid, block, constants, blocks, cluster)
        run.run()
    except CannotTell:
        return {}
    sizes, together = _sizes(compiled, args), math.prod(cluster)
    found = {}
    for index, boxes in run.boxes.items():
        if boxes:
            tensor = [*sizes].index(boxes[0][0]) if boxes[0][0] in sizes else None
            apart = len(boxes) == len(blocks) and len(set(boxes[:together])) == together > 1
            found[index] = BulkCopy(sizes.get(boxes[0][0], 0), len(set(boxes)) / len(boxes), tensor, apart)
    return found


def _sizes(compiled, args: Sequence[Any]) -> dict[int, int]:
    """Bytes of the box of each tensor map among the parameters, by where it begins behind the first one."""
    parameters = declarations(compiled.ptx).functions[compiled.symbol].parameters
    return {
        offset: math.prod(value.tensor.box) * value.tensor.itemsize
        for offset, value in zip(parameter_offsets(parameters, compiled.arch), args, strict=True)
        if isinstance(value, TensorMap) and not value.by_pointer
    }
