"""Which accesses of a warp's lanes a __syncwarp() has ordered.

Every lane has a clock, which ticks when it passes a __syncwarp(). As long as all of them name the whole warp, the
lanes' clocks are one number per warp. From the first one that names a part of it, each lane has its own, and knows for
each other lane how far that one's clock had come when they last met, at first or second hand.
"""

from __future__ import annotations

import numpy as np

from helpers.sim.code.hardware_units import WARP

_LANES = np.arange(WARP, dtype=np.uint32)


class WarpClocks:
    """Clocks of [rows, warps]; a row is a block, or stands for all blocks while they do the same."""

    def __init__(self, rows: int, threads: int):
        warps = -(-threads // WARP)
        self.turns = np.zeros((rows, warps), np.int32)
        self.clock: np.ndarray | None = None  # [rows, warps, 32]
        self.known: np.ndarray | None = None  # [rows, warps, 32, 32]: what lane i knows of lane j
        self.whole = np.full(warps, 0xFFFFFFFF, np.uint32)
        if threads % WARP:
            self.whole[-1] = (1 << threads % WARP) - 1

    def rows(self, pick) -> WarpClocks:
        """A copy with other rows; `pick` chooses them from an array."""
        other = object.__new__(WarpClocks)
        other.whole, other.turns = self.whole, pick(self.turns)
        other.clock, other.known = (None if a is None else pick(a) for a in (self.clock, self.known))
        return other

    def meet(self, masks: np.ndarray | None, active: np.ndarray | None) -> None:
        """Warps pass a __syncwarp(). masks: [rows, warps, 32], what each lane names (None: everyone names the whole
        warp); active: [rows, warps, 32], the lanes that are there (None: all)."""
        if masks is None or not (((masks & self.whole[:, None]) != self.whole[:, None]) & (True if active is None else active)).any():
            self._everyone(None if active is None else active.any(axis=2))
            return
        if self.clock is None:
            self.clock = np.repeat(self.turns[:, :, None], WARP, axis=2)
            self.known = np.repeat(self.clock[:, :, None] - 1, WARP, axis=2)
        there = np.ones(self.clock.shape, bool) if active is None else active
        masks = np.broadcast_to(masks, there.shape)
        for mask in np.unique(masks[there]):
            self._join((there & (masks == mask)).any(axis=2), (mask >> _LANES & 1).astype(bool))

    def _everyone(self, warps) -> None:
        if self.clock is None:
            self.turns += 1 if warps is None else warps
            return
        self._join(np.ones(self.turns.shape, bool) if warps is None else warps, np.ones(WARP, bool))

    def _join(self, warps: np.ndarray, lanes: np.ndarray) -> None:
        """Lanes (boolean [32]) of some warps (boolean [rows, warps]) learn what any of them knows, and tick."""
        known, clock = self.known[warps], self.clock[warps]
        together = known[:, lanes].max(axis=1)
        together[:, lanes] = clock[:, lanes]
        known[:, lanes] = together[:, None]
        clock[:, lanes] += 1
        self.known[warps], self.clock[warps] = known, clock

    def now(self, row, thread) -> np.ndarray:
        """The clocks of threads (linear in the block)."""
        return self.turns[row, thread // WARP] if self.clock is None else self.clock[row, thread // WARP, thread % WARP]

    def ordered(self, row, thread, other, stamp) -> np.ndarray:
        """Has `thread` met `other`, of the same warp, since that one's clock was at `stamp`? other < 0: anyone of the warp."""
        warp = thread // WARP
        if self.clock is None:
            return self.turns[row, warp] > stamp
        known = self.known[row, warp, thread % WARP]
        return np.where(other >= 0, np.take_along_axis(known, (other % WARP)[..., None], axis=-1)[..., 0], known.max(axis=-1)) >= stamp
