"""Named barriers that warps come to again before they can know that everybody has left.

A named barrier counts who comes, not for what. Warps that only arrive, or that were not among those who waited, may be ahead of
the others: unless something tells them that the last use of the barrier is over, what they mean for the next one may be counted
for that. In the machine, as on a GPU that is in luck, it is counted as meant, so it is told from what warps know of each other.
"""

from __future__ import annotations

import numpy as np

from .divergent_barriers import KIND
from .findings import at
from .observer import AcquiringCheck
from .protocols import Machine
from .shared_cells import SharedCells
from .shared_races import SharedRaces
from .warp_meetings import Arrivals

ADVICE = "Give every stage and every group of warps a barrier of its own, or have those who arrive wait for an answer of those who waited."


class BarrierPhases(AcquiringCheck):
    """over: {number: (when its last use was over [rows], 0 never; warps that waited there [rows, warps]; line of one that did)}."""

    order = 35
    watched_natively = True

    def __init__(self, m: Machine, launch, cells: SharedCells):
        super().__init__(m, launch, cells)
        self.over: dict[int, tuple[np.ndarray, np.ndarray, int | None]] = {}

    @classmethod
    def wanted(cls, launch) -> bool:
        return launch.program.partial_barriers

    def with_rows(self, pick) -> None:
        super().with_rows(pick)
        self.over = {number: (pick(when), pick(waited), line) for number, (when, waited, line) in self.over.items()}

    def barrier(self, m: Machine, rows=None) -> None:
        """Everybody knows of everything before."""
        if rows is None or rows.all():
            self.over.clear()
            return
        self.cells.expand(m)
        for when, _, _ in self.over.values():
            when[rows] = 0

    cluster_passed = barrier

    def barrier_of_some(self, m: Machine, arrivals: list[Arrivals], rows: np.ndarray, number: int | None = None) -> None:
        if number is None:
            return
        races = self.cells.check(SharedRaces)
        chosen = rows[: self.cells.rows]
        warps = [races.meetings.warps_of(came.threads) & chosen[:, None] for came in arrivals]
        when, waited, line = self.over.get(number, (np.zeros(len(chosen), np.int64), np.zeros(warps[0].shape, bool), None))
        for came, mine in zip(arrivals, warps, strict=True):
            told = (waited[:, None] & (came.moment.known.known >= when[:, None, None])).any(axis=2) | waited
            unsure = mine & ~told & (when > 0)[:, None]
            if unsure.any():
                self._note(m, came, unsure, number, line)
        waits = [(came.line, mine) for came, mine in zip(arrivals, warps, strict=True) if came.waits]
        if waits:
            now = np.logical_or.reduce([mine for _, mine in waits])
            when = np.where(chosen, np.where(now.any(axis=1), races.time, 0), when)
            self.over[number] = when, np.where(chosen[:, None], now, waited), waits[0][0]

    @staticmethod
    def _note(m: Machine, came: Arrivals, unsure: np.ndarray, number: int, line: int | None) -> None:
        block, warp = (int(i) for i in np.argwhere(unsure)[0])
        m.findings.add(
            KIND, came.line,
            f"Warp {warp} comes to barrier {number} again, or after others, and cannot know that those who waited there{at(line)} "
            "have all been let go: it may be counted as one that they wait for.",
            other_line=line, block=m.block_position(block), thread=m.thread_position(32 * warp), advice=ADVICE,
            count=int(np.count_nonzero(unsure)),
        )  # fmt: skip
