"""What the warps of a block know of each other, where barriers join some of them only.

Times are numbers of accesses, as a check counts them. `known[row, i, j]` is the time up to which warp i knows what warp j
has done: they met at a named barrier or an mbarrier, at first or second hand. Where only some lanes of warp j arrived there, as
where one arrives at an mbarrier for its warp, that is what those lanes have done (`lanes[row, i, j]`); of the others it is what
they did before `gathered[row, i, j]`, when the warp last executed something together: a __syncwarp(), or any other instruction of
all its lanes. That is generous, because only __syncwarp() orders memory; so nothing is told that the hardware cannot do.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from helpers.sim.code.hardware_units import WARP


class KnownOfWarps(NamedTuple):
    """What warps know of others: arrays of one shape, as the text above says."""

    known: np.ndarray
    gathered: np.ndarray
    lanes: np.ndarray

    @classmethod
    def nothing(cls, shape: tuple[int, ...]) -> KnownOfWarps:
        return cls(np.zeros(shape, np.int32), np.zeros(shape, np.int32), np.zeros(shape, np.uint32))

    def part(self, pick) -> KnownOfWarps:
        """`pick` of each array."""
        return KnownOfWarps(*map(pick, self))

    def where(self, chosen: np.ndarray) -> KnownOfWarps:
        """The same, and nothing where nobody is chosen."""
        return self.part(lambda array: np.where(chosen, array, array.dtype.type(0)))

    def with_also(self, other: KnownOfWarps) -> KnownOfWarps:
        """What is known to the one or the other."""
        newer = other.known > self.known
        late, early = np.where(newer, other.lanes, self.lanes), np.where(newer, self.lanes, other.lanes)
        gathered = np.maximum(self.gathered, other.gathered)
        lost = gathered < np.minimum(self.known, other.known)  # what only the lanes that came earlier had done then
        return KnownOfWarps(np.maximum(self.known, other.known), gathered, np.where(lost | (self.known == other.known), late | early, late))


class WarpMoment(NamedTuple):
    """When threads came to a barrier, what the warps of their blocks knew then, and when each had last gathered ([rows, warps])."""

    time: int
    known: KnownOfWarps
    gathered: np.ndarray

    def without_news(self) -> WarpMoment:
        """The same of threads that tell nothing."""
        return WarpMoment(0, KnownOfWarps.nothing(self.known.known.shape), np.zeros_like(self.gathered))


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
    return in_groups(threads, size).any(axis=2)


def in_groups(threads: np.ndarray, size: int = WARP) -> np.ndarray:
    """[rows, groups, size] of [rows, threads]; a last partial group is filled up with False, or 0."""
    if more := -threads.shape[1] % size:
        threads = np.concatenate([threads, np.zeros((len(threads), more), threads.dtype)], axis=1)
    return threads.reshape(len(threads), threads.shape[1] // size, size)


def moves_data(cells: np.ndarray, threads: np.ndarray, warps: np.ndarray) -> bool:
    """Do lanes of one warp touch places of their own? A flag, or a word that says itself whether it is there, is one for a warp.
    threads, warps: who touches each granule, as numbers that tell them apart."""
    width = len(threads) // len(np.unique(threads))
    return len(np.unique(cells)) > len(np.unique(warps)) * width


class WarpMeetings:
    """The state of [rows] blocks; a row is a block, or stands for all blocks while they do the same."""

    def __init__(self, rows: int, threads: int):
        self.warps = -(-threads // WARP)
        self.known = KnownOfWarps.nothing((rows, self.warps, self.warps))
        self.gathered = np.zeros((rows, self.warps), np.int32)
        self.whole = np.full(self.warps, 0xFFFFFFFF, np.uint32)
        if threads % WARP:
            self.whole[-1] = (1 << threads % WARP) - 1

    def rows(self, pick) -> WarpMeetings:
        """A copy with other rows; `pick` chooses them from an array."""
        other = object.__new__(WarpMeetings)
        other.warps, other.whole, other.known, other.gathered = self.warps, self.whole, self.known.part(pick), pick(self.gathered)
        return other

    def gather(self, time: int, warps: np.ndarray | None) -> None:
        """Warps ([rows, warps], boolean; None: all) execute something together. What holds the array of before stays as it is."""
        self.gathered = np.full_like(self.gathered, time) if warps is None else np.where(warps, np.int32(time), self.gathered)

    def meet(self, arrivals: list[Arrivals]) -> None:
        """Those who wait learn what all who arrived had done and knew when they came."""
        together = KnownOfWarps.nothing(self.gathered.shape)
        waits = np.zeros(self.gathered.shape, bool)
        for threads, waiting, (time, known, gathered), _, arrives in arrivals:
            warps = self.warps_of(threads)
            waits |= warps & waiting
            if not arrives:
                continue
            for i in np.flatnonzero(warps.any(axis=0)):
                together = together.with_also(known.part(lambda array, i=i: array[:, i]).where(warps[:, i, None]))
            lanes = self._lanes_of(threads)
            when = np.full(lanes.shape, time, np.int32)
            together = together.with_also(KnownOfWarps(when, np.where(lanes == self.whole, when, gathered), lanes).where(warps))
        told = self.known.with_also(together.part(lambda array: array[:, None]))
        self.known = KnownOfWarps(*(np.where(waits[:, :, None], new, old) for new, old in zip(told, self.known, strict=True)))

    def warps_of(self, threads: np.ndarray) -> np.ndarray:
        """[rows, warps]: those that some of the threads belong to."""
        return grouped(threads[: len(self.gathered)])

    def _lanes_of(self, threads: np.ndarray) -> np.ndarray:
        """[rows, warps]: the lanes that these threads are, as bits."""
        bits = np.left_shift(np.uint32(1), np.arange(WARP, dtype=np.uint32))
        return np.bitwise_or.reduce(np.where(in_groups(threads[: len(self.gathered)]), bits, np.uint32(0)), axis=2)

    def unmet(
        self, row, warp: np.ndarray, others: np.ndarray, time: np.ndarray, without_own: np.ndarray, together: np.ndarray, latest: np.ndarray
    ) -> np.ndarray:
        """Where `warp` (of a row) does not know what one of the warps in `others` (bits) did at `time`.

        without_own: where others of the own warp are not known to be among them. together: where all of `others` did it in one
        operation, so that who knows of one knows of all. latest: the last thread of them.
        """
        found, met = np.zeros(warp.shape, bool), np.zeros(warp.shape, bool)
        known = self.known.known[row, warp]
        among = int(np.bitwise_or.reduce(others, axis=None)) if others.size else 0
        for other in range(self.warps):
            if not among >> other & 1:
                continue
            there = (others >> other & 1).astype(bool) & ~(without_own & (warp == other))
            late = known[..., other] < time
            found |= there & late
            met |= there & ~late
        whose, lane = latest // WARP, (latest % WARP).astype(np.uint32)
        gathered, lanes = self.known.gathered[row, warp, whose], self.known.lanes[row, warp, whose]
        alone = (others >> whose & 1).astype(bool) & (whose != warp) & ~together & (gathered < time) & (lanes >> lane & 1 == 0)
        return (found & ~(together & met)) | alone
