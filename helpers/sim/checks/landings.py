"""Bulk copies that have come: who knows of it.

A bulk copy to shared memory is nobody's before an mbarrier says that it has come, and then only for those who know: the
threads that waited for that mbarrier, and whoever synchronised with one of them since. To everybody else the data is
still under way (see `missing_wait`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from helpers.sim.code.hardware_units import WARP

from .warp_meetings import in_groups

if TYPE_CHECKING:
    from .protocols import Machine, PhaseBarrier

REUSE = 8  # landings, beside twice those still referred to, from which on the others make room


@dataclass(eq=False)
class Landing:
    """Data that came with one executed copy. phase: [rows], the mbarrier's phase. seen: [rows, threads], who knows of it."""

    site: int
    barrier: PhaseBarrier
    phase: np.ndarray
    seen: np.ndarray

    def of_warps(self, thread: int, count: int) -> np.ndarray:
        """[rows, count]: of so many warps from the one of `thread` on, does a lane know?"""
        mine = self.seen[:, thread : thread + count * WARP]
        return mine.reshape(len(mine), count, WARP).any(axis=2)

    def shared_by_warps(self) -> np.ndarray:
        """`seen`, if all lanes of a warp knew what one of them knows; of blocks of whole warps."""
        return np.repeat(self.of_warps(0, self.seen.shape[1] // WARP), WARP, axis=1)


class Landings:
    """Numbered landings. Their rows are those of `SharedCells`."""

    def __init__(self):
        self.all: list[Landing | None] = []
        self.most = REUSE

    def __bool__(self) -> bool:
        return any(self.all)

    def __getitem__(self, number: int) -> Landing:
        return self.all[number]

    def with_rows(self, pick) -> Landings:
        """A copy with other rows; `pick` makes them."""
        other = Landings()
        other.most = self.most
        other.all = [known and replace(known, phase=pick(known.phase), seen=pick(known.seen)) for known in self.all]
        return other

    def add(self, landing: Landing, used) -> int:
        """The number that a landing gets: one that is free. used(): the numbers that something still refers to."""
        if sum(1 for old in self.all if old) >= self.most:
            kept = used()
            self.all = [old if i in kept else None for i, old in enumerate(self.all)]
            self.most = REUSE + 2 * len(kept)
        if None in self.all:
            number = self.all.index(None)
            self.all[number] = landing
            return number
        self.all.append(landing)
        return len(self.all) - 1

    def waited(self, m: Machine, barrier: PhaseBarrier, rows: np.ndarray, lanes: np.ndarray, arrivers: np.ndarray, expand) -> None:
        """Lanes have waited for the mbarrier of the blocks `rows`: they know what it counted, and what its arrivers knew.

        expand(): make a row for each block.
        """
        if not self:
            return
        waiters = np.zeros((m.blocks, m.threads), bool)
        waiters.reshape(-1)[lanes] = True
        over = np.full(m.blocks, -1, np.int64)  # the block's phase, where somebody has waited
        over[rows] = barrier.phase[rows]
        if (waiters != waiters[:1]).any() or (arrivers != arrivers[:1]).any() or (over != over[0]).any():
            expand()
        for landing in filter(None, self.all):
            n = len(landing.phase)
            known = (landing.seen & arrivers[:n]).any(axis=1)
            if landing.barrier is barrier:
                known |= (landing.phase >= 0) & (landing.phase < over[:n])
            landing.seen |= waiters[:n] & known[:, None]

    def met(self, members: np.ndarray, waiting: np.ndarray) -> None:
        """Threads ([rows or 1, threads]) have synchronised: what one of them knows, all who waited for it know."""
        for landing in filter(None, self.all):
            landing.seen |= waiting & (landing.seen & members).any(axis=1, keepdims=True)

    def warps_met(self, m: Machine) -> None:
        """The active warps have passed a __syncwarp()."""
        for landing in filter(None, self.all):
            warps = in_groups(landing.seen)
            known = np.broadcast_to(warps.any(axis=2, keepdims=True), warps.shape)
            if m.mask is not None:
                active = m.warps_active() if len(warps) > 1 else m.warps_active().all(axis=0, keepdims=True)
                known = known & active
            landing.seen |= known.reshape(len(landing.seen), -1)[:, : m.threads]
