"""Mbarriers: what ends their phases, and who waits for that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from helpers.sim.counting.machine_code import Visit

from .scheduled import Scheduled


class Mbarrier:
    """One of a block, whose phases end when so many `arrivals` and all expected bytes have come. over: when each phase was."""

    def __init__(self, arrivals: int):
        self.arrivals = self.pending = arrivals
        self.bytes = self.latest = 0.0  # expected; when the last of what has come so far is there
        self.over: list[float] = []
        self.waiting: list[tuple[int, Any, int]] = []  # (phase, warp, scoreboard)

    def take(self, arrivals: int, amount: float, when: float) -> list[tuple[float, Any, int]]:
        """So many arrive then, and expect so many bytes more, or say that they are there: (when the phase is over, warp, scoreboard) of
        all who go on."""
        self.pending -= arrivals
        self.bytes += amount
        self.latest = max(self.latest, when)
        if self.pending > 0 or abs(self.bytes) >= 1:
            return []
        self.over.append(self.latest)
        self.pending, self.bytes, self.latest = self.arrivals, 0.0, 0.0
        go_on = [(self.over[phase], warp, board) for phase, warp, board in self.waiting if phase < len(self.over)]
        self.waiting = [waits for waits in self.waiting if waits[0] >= len(self.over)]
        return go_on

    def leave(self, when: float) -> list[tuple[float, Any, int]]:
        """One of those that would arrive has ended: nobody waits for it any more. Returns as `take`."""
        self.arrivals -= 1
        self.pending -= 1
        return self.take(0, 0.0, when) if self.arrivals > 0 >= self.pending else []


def mbarriers(code: Sequence[Scheduled], visits: Sequence[Visit], resident: int) -> Mapping[tuple[int, int], Mbarrier]:
    """Those of all blocks that share a multiprocessor, by block and place in its shared memory."""
    counts: dict[int, int] = {}
    for visit in visits:
        for signal in (signal for index, signal in visit.signals.items() if code[index].initial):
            counts |= {place: n for place, n in zip(signal.places, signal.arrivals, strict=True) if place >= 0}
    return {(block, place): Mbarrier(n) for block in range(resident) for place, n in counts.items()}
