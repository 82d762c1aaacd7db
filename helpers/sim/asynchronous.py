"""Copies that are under way, and the barriers in shared memory that announce their end.

A cp.async reads its source at once, and its data lands in shared memory only when its thread waits for it (or somebody
waits on the mbarrier that tracks it), never earlier: a kernel that forgets to wait reads the old contents, as it may on
the hardware, and the shadow state says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(eq=False)
class Copy:
    """One executed cp.async. group: how many groups its threads had committed before (int64, broadcast)."""

    site: object
    offsets: np.ndarray
    values: list[np.ndarray]
    width: int
    mask: np.ndarray | None
    group: np.ndarray
    landed: bool = False


class CopyQueue:
    """The copies of a chunk that have not landed."""

    def __init__(self, m):
        self.copies: list[Copy] = []
        self.commits = m.uniform(0, np.int64)

    def issue(self, m, site, offsets, values, width, mask) -> Copy:
        copy = Copy(site, offsets, values, width, mask, self.commits)
        self.copies.append(copy)
        if m.shared.shadow is not None:
            m.shared.shadow.start_copy(m, site, offsets, mask, width)
        return copy

    def commit(self, m) -> None:
        """Close the active threads' current group."""
        self.commits = self.commits + 1 if m.mask is None else self.commits + m.mask

    def wait(self, m, pending: int | None) -> None:
        """Land the copies of all but the active threads' last `pending` groups; None: every copy, committed or not."""
        for copy in list(self.copies):
            ready = None if pending is None else copy.group < self.commits - pending
            if ready is not None and ready.size == 1:
                if not ready.item():
                    continue
                ready = None
            self.land_where(m, copy, ready)

    def land_where(self, m, copy: Copy, ready) -> None:
        """Land a copy for the active lanes that are ready (None: all)."""
        lanes = m.mask
        if ready is not None:
            lanes = ready if lanes is None else lanes & ready
        if copy.mask is not None:
            now = copy.mask if lanes is None else copy.mask & lanes
        else:
            now = lanes
        if now is not None and not now.any():
            return
        rest = None if now is None else ~now if copy.mask is None else copy.mask & ~now
        self.land(m, copy, now)
        if rest is not None and rest.any():
            copy.mask = rest
        else:
            self.copies.remove(copy)
            copy.landed = True

    def land(self, m, copy: Copy, mask) -> None:
        """Write a copy's data to shared memory for the lanes in `mask` (None: all)."""
        from .isa.memory import scatter  # here, because instructions import this module

        raw = copy.values[0].dtype
        index = (copy.offsets >> (raw.itemsize.bit_length() - 1)) + m.shared.bases[raw.itemsize]
        scatter(m, m.shared.views[raw], index, copy.values, mask)
        if m.shared.shadow is not None:
            m.shared.shadow.land(m, copy.site, copy.offsets, mask, copy.width)


@dataclass
class MBarrier:
    """An mbarrier object, one per block: arrays of length `blocks`.

    expected: arrivals per phase. pending: arrivals still missing in this phase. bytes: announced bytes that have not
    come. phase: phases completed. attached: what will arrive when somebody looks: functions of the machine.
    """

    expected: np.ndarray
    pending: np.ndarray
    bytes: np.ndarray
    phase: np.ndarray
    attached: list = field(default_factory=list)

    @classmethod
    def new(cls, blocks: int) -> MBarrier:
        return cls(*(np.zeros(blocks, np.int64) for _ in range(4)))

    def settle(self, m) -> None:
        """Complete the phases that have everything they wait for."""
        done = (self.pending <= 0) & (self.bytes <= 0) & (self.expected > 0)
        if done.any():
            self.phase[done] += 1
            self.pending[done] += self.expected[done]
            m.wake()

    def look(self, m) -> None:
        """Let everything arrive that is on its way here."""
        attached, self.attached = self.attached, []
        for arrive in attached:
            arrive(m)
        if attached:
            self.settle(m)
