"""Products of warpgroups, that a tensor core takes while their warps do something else."""

from __future__ import annotations

from typing import Any


class _Run:
    """Products of a warp that come one after the other, until it has none. groups: of them [when their sums are there, closed]."""

    __slots__ = ("end", "groups", "warp")

    def __init__(self, warp: Any, end: float):
        self.warp, self.end = warp, end
        self.groups: list[list] = []


class TensorCore:
    """One sub-partition's. Of what it has of several warps it takes all of one, and then all of the next (log, run 42)."""

    def __init__(self) -> None:
        self.runs: list[_Run] = []

    @property
    def until(self) -> float:
        """When it has no more products, as far as is known."""
        return self.runs[-1].end if self.runs else 0.0

    def add(self, warp: Any, cycles: float, group: list, at: float, sums: float) -> list[Any]:
        """Take a product of `warp` that is issued then: behind what it has of the same warp, before what it has not begun of others.
        group: [when the sums of its group are there, closed], where that is put. sums: cycles from the end of products until then. Returns
        other warps, whose products are done later than they thought."""
        while len(self.runs) > 1 and self.runs[0].end < at:
            self.runs.pop(0)
        mine = next((k for k, run in enumerate(self.runs) if run.warp is warp and run.end >= at), len(self.runs))
        if mine == len(self.runs):
            self.runs.append(_Run(warp, max(at, self.runs[-1].end if self.runs else 0.0)))
        run = self.runs[mine]
        run.end += cycles
        group[0] = run.end + sums
        if not run.groups or run.groups[-1] is not group:
            run.groups.append(group)
        for other in self.runs[mine + 1 :]:
            other.end += cycles
            for later in other.groups:
                later[0] += cycles
        return [other.warp for other in self.runs[mine + 1 :]]
