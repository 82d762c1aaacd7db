"""Waits for a parity of an mbarrier that come too late for a thread that is slow.

A wait for a parity goes on when the last phase that is over had it. If the next phase may be over, too, before a thread looks, that thread
waits for the one after, and if there is none, for ever. So the next phase must not end without the thread: something that it ends
with, an arrival or the start of a copy that it counts, has to come after the wait, because the same warp did it, or one that has met
this warp since.

What warps know of each other is told by clocks: `known[row, i, j]` is the time up to which warp i knows what warp j has done. Warps meet
at barriers of all kinds; those of a warpgroup in a product as well, which none of them begins alone. Lanes of a warp are taken to go
together, and who looks at a flag to know of everybody; so nothing is told that cannot happen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from helpers.sim.code.hardware_units import WARP

from .findings import at
from .mbarrier_parity import KIND
from .observer import AcquiringCheck
from .protocols import Machine, PhaseBarrier
from .shared_cells import SharedCells
from .warp_meetings import Arrivals, grouped

ADVICE = (
    "Let every thread wait for each phase in its turn, and let nothing end a phase before all who wait for the one before have seen that: "
    "by an arrival of theirs, or a barrier in front of it. If this wait is not needed, leave it out."
)
_GROUP = 4  # warps of a warpgroup


@dataclass(eq=False)
class _Phases:
    """Of an mbarrier, for each block: gives, [blocks, warps], what those know who have brought about its phases, and told, what they knew
    when the last one ended. waits: when each warp last saw that a phase was over; phase: how many were then; position: of the
    instruction."""

    gives: np.ndarray
    told: np.ndarray
    waits: np.ndarray
    phase: np.ndarray
    position: np.ndarray

    @classmethod
    def new(cls, blocks: int, warps: int) -> _Phases:
        gives, told, waits, position = (np.zeros((blocks, warps), np.int64) for _ in range(4))
        return cls(gives, told, waits, np.full((blocks, warps), -1, np.int64), position)


class OvertakenWaits(AcquiringCheck):
    """A chunk with mbarriers is never divided, so that there is a row for each of its blocks."""

    def __init__(self, m: Machine, launch, cells: SharedCells):
        super().__init__(m, launch, cells)
        self.time = 0
        self.known: np.ndarray | None = None
        self.phases: dict[int, _Phases] = {}

    @classmethod
    def wanted(cls, launch) -> bool:
        return "phases" in launch.program.uses

    # ----------------------------------------------------------------------------------------- what warps know

    def _now(self, m: Machine) -> np.ndarray:
        """The clocks of the chunk, a moment later."""
        self.time += 1
        if self.known is None:
            self.known = np.zeros((m.blocks, m.warp_count, m.warp_count), np.int64)
        return self.known

    def barrier(self, m: Machine, rows=None) -> None:
        if self.known is not None:
            self._now(m)[slice(None) if rows is None else rows] = self.time

    cluster_passed = barrier

    def barrier_of_some(self, m: Machine, arrivals: list[Arrivals], rows: np.ndarray, number: int | None = None) -> None:
        if self.known is not None:
            came = np.logical_or.reduce([grouped(item.threads) for item in arrivals])
            self._meet(m, np.broadcast_to(came, (m.blocks, m.warp_count)) & rows[:, None])

    def product_started(self, m: Machine, site, shape, accumulators, inputs, reads) -> None:
        if self.known is not None:
            active = np.ones((m.blocks, m.warp_count), bool) if m.mask is None else grouped(m.rows_of(m.mask))
            for first in range(0, m.warp_count, _GROUP):
                mine = np.zeros_like(active)
                mine[:, first : first + _GROUP] = active[:, first : first + _GROUP]
                if mine.any():
                    self._meet(m, mine)

    def _meet(self, m: Machine, warps: np.ndarray) -> None:
        """Warps ([blocks, warps], boolean) of each block learn what any of them has done and knows."""
        known = self._now(m)
        together = np.where(warps[:, :, None], known, 0).max(axis=1)
        together[warps] = self.time
        known[:] = np.where(warps[:, :, None], np.maximum(known, together[:, None]), known)

    # ---------------------------------------------------------------------------------------------- mbarriers

    def _of(self, m: Machine, barrier: PhaseBarrier) -> _Phases:
        found = self.phases.get(id(barrier))
        if found is None:
            found = self.phases[id(barrier)] = _Phases.new(m.blocks, m.warp_count)
        return found

    def phases_began(self, m: Machine, barrier: PhaseBarrier, rows: np.ndarray) -> None:
        self._of(m, barrier).phase[rows] = -1

    def phase_helped(self, m: Machine, barrier: PhaseBarrier, rows: np.ndarray, lanes: np.ndarray) -> None:
        known, of = self._now(m), self._of(m, barrier)
        own, warps = lanes // m.threads == rows, lanes % m.threads // WARP
        of.gives[rows[~own]] = self.time  # what another block knows is not followed
        here = rows[own], warps[own]
        known[(*here, warps[own])] = self.time
        np.maximum.at(of.gives, rows[own], known[here])

    def phase_ended(self, m: Machine, barrier: PhaseBarrier, done: np.ndarray) -> None:
        of = self._of(m, barrier)
        late = done[:, None] & (of.phase == barrier.phase[:, None]) & (of.waits > of.gives)
        of.told[done] = of.gives[done]
        if late.any() and not m.findings.found:  # who has forgotten to wait lets phases run ahead as well, and that has been said
            row, warp = map(int, np.argwhere(late)[0])
            position = int(of.position[row, warp])
            op = m.program.ops[position]
            m.findings.add(
                KIND, op.line,
                f"A thread waits here for a phase of the mbarrier initialised{at(barrier.line)}, and nothing keeps the next phase from "
                "ending before it looks: then the parity is the other one again, and it waits for a phase that may never come.",
                block=m.block_position(row), thread=m.thread_position(warp * WARP), count=int(np.count_nonzero(late)), advice=ADVICE,
                sites=(op.sites[0],) if op.sites else (),
            )  # fmt: skip

    def phase_seen(self, m: Machine, barrier: PhaseBarrier, rows: np.ndarray, lanes: np.ndarray, position: int | None) -> None:
        known, of = self._now(m), self._of(m, barrier)
        warps = lanes % m.threads // WARP
        mine = np.zeros((m.blocks, m.warp_count), bool)
        own = lanes // m.threads == rows
        mine[rows[own], warps[own]] = True
        known[:] = np.where(mine[:, :, None], np.maximum(known, of.told[:, None]), known)
        if position is not None:
            of.waits[mine], of.position[mine] = self.time, position
            of.phase[:] = np.where(mine, barrier.phase[:, None], of.phase)
