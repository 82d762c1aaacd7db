"""What the warps of a block know of each other, where barriers join some of them only.

Times are numbers of accesses, as a check counts them. `known[row, i, j]` is the time up to which warp i knows what warp j
has done: they met at a named barrier or an mbarrier, at first or second hand.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from helpers.sim.code.hardware_units import WARP


class WarpMoment(NamedTuple):
    """When threads came to a barrier, and what the warps of their blocks knew then: see `WarpMeetings.known`."""

    time: int
    known: np.ndarray


class Arrivals(NamedTuple):
    """Threads ([blocks, threads], boolean) that came to a barrier. waits: did they wait there, or go on at once? arrives: were they
    waited for? Who only waits at an mbarrier tells the others nothing."""

    threads: np.ndarray
    waits: bool
    moment: WarpMoment
    line: int | None = None
    arrives: bool = True


def grouped(threads: np.ndarray, size: int = WARP) -> np.ndarray:
    """[rows, groups]: those of `size` neighbours that some of the threads ([rows, threads], boolean) belong to."""
    threads = np.pad(threads, ((0, 0), (0, -threads.shape[1] % size)))
    return threads.reshape(len(threads), threads.shape[1] // size, size).any(axis=2)


def moves_data(cells: np.ndarray, threads: np.ndarray, warps: np.ndarray) -> bool:
    """Do lanes of one warp touch places of their own? A flag, or a word that says itself whether it is there, is one for a warp.
    threads, warps: who touches each granule, as numbers that tell them apart."""
    width = len(threads) // len(np.unique(threads))
    return len(np.unique(cells)) > len(np.unique(warps)) * width


class WarpMeetings:
    """The state of [rows] blocks; a row is a block, or stands for all blocks while they do the same."""

    def __init__(self, rows: int, threads: int):
        self.warps = -(-threads // WARP)
        self.known = np.zeros((rows, self.warps, self.warps), np.int32)

    def rows(self, pick) -> WarpMeetings:
        """A copy with other rows; `pick` chooses them from an array."""
        other = object.__new__(WarpMeetings)
        other.warps, other.known = self.warps, pick(self.known)
        return other

    def meet(self, arrivals: list[Arrivals]) -> None:
        """Those who wait learn what all who arrived had done and knew when they came."""
        together = np.zeros((len(self.known), self.warps), np.int32)
        waits = np.zeros(together.shape, bool)
        for threads, waiting, (time, known), _, arrives in arrivals:
            warps = self.warps_of(threads)
            waits |= warps & waiting
            if not arrives:
                continue
            together = np.maximum(together, np.where(warps[:, :, None], known, 0).max(axis=1))
            together = np.maximum(together, np.where(warps, np.int32(time), 0))
        self.known = np.where(waits[:, :, None], np.maximum(self.known, together[:, None]), self.known)

    def warps_of(self, threads: np.ndarray) -> np.ndarray:
        """[rows, warps]: those that some of the threads belong to."""
        return grouped(threads[: len(self.known)])

    def unmet(
        self, row, warp: np.ndarray, others: np.ndarray, time: np.ndarray, without_own: np.ndarray, together: np.ndarray
    ) -> np.ndarray:
        """Where `warp` (of a row) does not know what one of the warps in `others` (bits) did at `time`.

        without_own: where others of the own warp are not known to be among them. together: where all of `others` did it in one
        operation, so that who knows of one knows of all.
        """
        found, met = np.zeros(warp.shape, bool), np.zeros(warp.shape, bool)
        known = self.known[row, warp]
        for other in range(self.warps):
            there = (others >> other & 1).astype(bool) & ~(without_own & (warp == other))
            late = known[..., other] < time
            found |= there & late
            met |= there & ~late
        return found & ~(together & met)
