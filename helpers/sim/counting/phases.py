"""Phases of one warp's access to shared memory: which lanes are served together, and which words they want from each bank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.sites import CostRule

from . import rules
from .rules import BANKS
from .rules import WORD_BYTES as WORD


@dataclass(frozen=True)
class Box:
    """One word (or one wide lane's words) wanted from a bank. bank: the first; floor: 0 for the first word of its bank."""

    bank: int
    banks: int
    floor: int
    address: int
    lanes: tuple[int, ...]


@dataclass(frozen=True)
class Phase:
    """Lanes that are served together. merged: two phases became one because lanes pair up on the same addresses."""

    lanes: tuple[int, ...]
    merged: bool
    boxes: tuple[Box, ...]

    @property
    def wavefronts(self) -> int:
        return max((box.floor + 1 for box in self.boxes), default=0)


def split(addresses: np.ndarray, width: int, rule: CostRule = CostRule.SHARED_LOAD) -> tuple[Phase, ...]:
    """The phases of one warp's access: [32] byte addresses, -1 for idle lanes; width: bytes per lane.

    4 bytes or less go in one phase; 8 bytes in two of 16 lanes, 16 bytes in four of 8. Two phases of a load merge when the
    lanes of the warp pair up (see `rules.pairs_up`). Lanes that ask for the same word share it, but for atomics and copies.
    """
    lanes = WARP if width <= WORD else WARP * WORD // width
    merged = lanes < WARP and rule is CostRule.SHARED_LOAD and bool(rules.pairs_up(addresses[None], addresses[None] >= 0)[0])
    size = 2 * lanes if merged else lanes
    share = rule in (CostRule.SHARED_LOAD, CostRule.SHARED_STORE)
    return tuple(_phase(addresses, np.arange(start, start + size), width, merged, share) for start in range(0, WARP, size))


def rows_of_matrices(addresses: np.ndarray, matrices: int) -> tuple[Phase, ...]:
    """The phases of `ldmatrix` and `stmatrix`: each matrix's eight row addresses of 16 bytes, held by eight lanes."""
    return tuple(_phase(addresses, np.arange(8 * i, 8 * i + 8), 16, False) for i in range(matrices))


def _phase(addresses, lanes, width, merged, share=True) -> Phase:
    unit = max(WORD, width)
    words: dict[tuple, list[int]] = {}
    for lane in lanes:
        if addresses[lane] >= 0:
            words.setdefault((int(addresses[lane]) // unit * unit, 0 if share else int(lane)), []).append(int(lane))
    floors: dict[int, int] = {}
    boxes = []
    for (address, _), sharers in words.items():
        bank = address // WORD % BANKS
        boxes.append(Box(bank, unit // WORD, floors.get(bank, 0), address, tuple(sharers)))
        floors[bank] = floors.get(bank, 0) + 1
    return Phase(tuple(int(lane) for lane in lanes), merged, tuple(boxes))
