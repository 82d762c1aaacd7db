"""What the threads of a launch have released to other blocks, and what the threads of a block know of each other.

Times are stamps of accesses, as `DeviceRaces` counts them; a time stands for all that was executed up to then. Threads know of
each other by barriers, in groups: warps, or whole blocks where nothing else tells them apart. Whoever writes what another
block may look at releases by that

- what it did itself before its last fence,
- what others did before a fence of their own, if it knows of both by a barrier, and
- what was known to somebody who then executed a fence, itself or one that it knows of by a barrier since.
"""

from __future__ import annotations

import numpy as np

from helpers.sim.code.hardware_units import WARP

from .warp_meetings import grouped, in_groups

MOST = 1 << 24  # pairs of warps that are told apart


class Released:
    """The state of all blocks of a launch. Blocks are named by their numbers in the grid, threads by theirs.

    met: [blocks, i, j], up to when group i knows what group j has done. covered: [blocks, i, j], up to when what j has done lies before
    a fence that all of i know of; own: the same, of fences of i's own threads. fence, fence_before: when each thread executed its last
    two, told: its last one when it last came to a barrier. until: up to when its accesses are released. These four are made with the
    first fence: a grid may have a billion threads.
    """

    def __init__(self, blocks: int, threads: int, by_warp: bool):
        self.blocks, self.threads = blocks, threads
        warps = -(-threads // WARP)
        self.group = WARP if by_warp and blocks * warps**2 <= MOST else threads
        self.groups = -(-threads // self.group)
        self.met, self.covered, self.own = (np.zeros((blocks, self.groups, self.groups), np.int32) for _ in range(3))
        self.fences = False  # has there been one?
        self.fence = self.fence_before = self.told = self.until = np.zeros((0, threads), np.int32)

    def groups_of(self, threads: np.ndarray) -> np.ndarray:
        """[rows, groups]: those that some of the threads ([rows, threads], boolean) belong to."""
        return grouped(threads, self.group)

    def known(self, blocks: np.ndarray, who: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Up to when threads `who` know what threads `other` of the same blocks did, each counted within its block."""
        return self.met[blocks, who // self.group, other // self.group]

    def of(self, who: np.ndarray) -> np.ndarray | int:
        """Up to when the accesses of threads of the grid are released."""
        return self.until.reshape(-1)[who] if self.fences else 0

    # ------------------------------------------------------------------------------------------------- who meets whom

    def everybody(self, blocks: np.ndarray, now: int) -> None:
        """All threads of these blocks have met at a barrier."""
        self.met[blocks] = now
        if self.fences:
            self.covered[blocks] = np.maximum(self.covered[blocks], self.own[blocks]).max(axis=1, keepdims=True)
            self.told[blocks] = self.fence[blocks]

    def some(self, blocks: np.ndarray, waiting: np.ndarray, arrived: np.ndarray, now: int) -> None:
        """Those who waited ([len(blocks), groups], boolean) know what those who arrived have done and knew."""
        self._tell(blocks, waiting, arrived, now)
        if self.fences:
            self.told[blocks] = np.where(self._each(arrived), self.fence[blocks], self.told[blocks])

    def _tell(self, blocks: np.ndarray, waiting: np.ndarray, arrived: np.ndarray, now: int) -> None:
        met = self.met[blocks]
        told = np.maximum(np.where(arrived[:, :, None], met, 0).max(axis=1), np.where(arrived, np.int32(now), 0))
        self.met[blocks] = np.where(waiting[:, :, None], np.maximum(met, told[:, None]), met)
        if self.fences:
            covered = self.covered[blocks]
            told = np.where(arrived[:, :, None], np.maximum(covered, self.own[blocks]), 0).max(axis=1)
            self.covered[blocks] = np.where(waiting[:, :, None], np.maximum(covered, told[:, None]), covered)

    def within(self, blocks: np.ndarray, groups: np.ndarray, now: int) -> None:
        """Lanes of warps have met at a __syncwarp(). Which of them is not told apart."""
        own = groups[:, :, None] & np.eye(self.groups, dtype=bool)
        self.met[blocks] = np.where(own, np.int32(now), self.met[blocks])
        if self.fences:
            covered = self.covered[blocks]
            self.covered[blocks] = np.where(groups[:, :, None], np.maximum(covered, self.own[blocks]), covered)
            self.told[blocks] = np.where(self._each(groups), self.fence[blocks], self.told[blocks])

    def all_told(self, blocks: np.ndarray, groups: np.ndarray, now: int) -> None:
        """These have looked at what another thread wrote, and may know all of their block: who told them is not tracked."""
        self._tell(blocks, groups, np.ones_like(groups), now)

    # -------------------------------------------------------------------------------------------------- what is released

    def fenced(self, blocks: np.ndarray, threads: np.ndarray, now: int) -> None:
        """These threads ([len(blocks), threads], boolean) execute a fence."""
        self._begin()
        self.fence_before[blocks] = np.where(threads, self.fence[blocks], self.fence_before[blocks])
        self.fence[blocks] = np.where(threads, np.int32(now), self.fence[blocks])
        own = self.own[blocks]
        self.own[blocks] = np.where(self.groups_of(threads)[:, :, None], np.maximum(own, self.met[blocks]), own)

    def everything(self, blocks: np.ndarray, now: int) -> None:
        """All that these blocks have done is released."""
        self._begin()
        self.until[blocks] = now

    def take(self, blocks: np.ndarray, groups: np.ndarray, since: np.ndarray) -> None:
        """These groups ([len(blocks), groups], boolean) acquire what their block had released when they looked ([len(blocks), groups])."""
        if not self.fences:
            return
        until = in_groups(self.until[blocks], self.group).max(axis=2)
        met = self.met[blocks]
        told = np.minimum(until[:, None, :], since[:, :, None])
        self.met[blocks] = np.where(groups[:, :, None], np.maximum(met, told), met)

    def _begin(self) -> None:
        if not self.fences:
            self.fences = True
            self.fence, self.fence_before, self.told, self.until = (np.zeros((self.blocks, self.threads), np.int32) for _ in range(4))

    def written(self, who: np.ndarray) -> None:
        """Threads of the grid write what another block may look at."""
        if not self.fences:
            return
        numbers, row = np.unique(who // self.threads, return_inverse=True)
        threads = np.zeros((len(numbers), self.threads), bool)
        threads[row, who % self.threads] = True
        fence, before, until = self.fence[numbers], self.fence_before[numbers], self.until[numbers]
        writing, fencing = self.groups_of(threads), self.groups_of(threads & (fence > 0))
        covered = self.covered[numbers]
        covered = np.where(fencing[:, :, None], np.maximum(covered, self.own[numbers]), covered)
        covered = self._each(np.where(writing[:, :, None], covered, 0).max(axis=1))
        known = self._each(np.where(writing[:, :, None], self.met[numbers], 0).max(axis=1))
        theirs = np.maximum.reduce([np.where(times <= known, times, 0) for times in (fence, before, self.told[numbers])])
        self.until[numbers] = np.maximum.reduce([until, covered, theirs, np.where(threads, fence, 0)])

    def _each(self, groups: np.ndarray) -> np.ndarray:
        """[rows, groups] -> [rows, threads]"""
        return np.repeat(groups, self.group, axis=1)[:, : self.threads]
