"""What hides behind what in a traced run: the multiply-adds that a warp executes while its loads or copies are under way.

Places in the order of execution are compared; nothing here is time. `measures` has these beside everything else that is counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from helpers.arguments import explained
from helpers.errors import CourseError


class CutShortError(CourseError):
    """A run's trace, or the part that was asked for, ends before the run does."""


def whole(trace: Any) -> Any:
    """The trace. Raises CourseError if it was cut short."""
    if trace.truncated:
        raise CutShortError("The trace was cut short, so it cannot answer. Use a smaller matrix.")
    return trace


@explained
def multiply_adds_behind_loads(run) -> list[int]:
    """Multiply-adds of block 0's warp 0 between each tile's last load from global memory and the first store of its values to shared
    memory: what the wait for the loads can hide behind. One number for each tile.

    Raises CourseError unless the run was traced with TraceFilter(math=True).
    """
    return [found for _, _, found in _behind_loads(run.trace.select(block=0, warp=0))]


def _behind_loads(trace: Any) -> list[tuple[int, int, int]]:
    """In one warp's trace, the places of each tile's last load and first store in the order of execution, and the multiply-adds between:
    `multiply_adds_behind_loads`."""
    kinds = np.array([f"{site.space} {site.op}" for site in trace.sites])[trace.accesses["site"]]
    order = trace.accesses["order"]
    stores, last = order[kinds == "shared st"], {}
    for load in order[kinds == "global ld"]:
        if len(later := stores[stores > load]):  # the last loads read C
            last[int(later[0])] = int(load)
    math_order = trace.math["order"]
    return [(load, store, int(((math_order > load) & (math_order < store)).sum())) for store, load in last.items()]


def _copies(trace: Any) -> tuple[np.ndarray, np.ndarray]:
    """In one warp's trace, the places in the order of execution of the asynchronous copies that it starts, and of its barriers."""
    return trace.select(op="cp.async", space="global").accesses["order"], trace.barriers["order"][trace.barriers["kind"] == "sync"]


@explained
def copies_per_pair(run) -> int:
    """Asynchronous copies that a thread starts for one pair of tiles: those between its first two barriers."""
    copies, barriers = _copies(run.trace.select(block=0, warp=0))
    if len(barriers) < 2:
        raise CourseError("The run has fewer than two barriers: take a larger K.")
    return int(((copies > barriers[0]) & (copies < barriers[1])).sum())


@explained
def pairs_under_way(run) -> float:
    """Pairs of tiles whose copies were started before the first barrier. Raises CourseError where the loop starts no copies."""
    copies, barriers = _copies(run.trace.select(block=0, warp=0))
    if not (pair := copies_per_pair(run)):
        raise CourseError("The run starts no asynchronous copies between its first two barriers.")
    return int((copies < barriers[0]).sum()) / pair


def copies_at_a_time(run) -> int:
    """The most asynchronous copies that a thread starts behind its first barrier with no multiply-add in between, in any warp.

    Raises CourseError where no loop starts copies, or unless the run was traced with TraceFilter(math=True).
    """
    most = []
    for trace in _warps_of(run):
        copies, barriers = _copies(trace)
        if not len(barriers) or not (later := copies[copies > barriers[0]]).size:
            continue
        if not len(computed := trace.math["order"]):
            raise CourseError("The run's trace has no multiply-adds.")
        most.append(int(np.bincount(np.searchsorted(computed, later)).max()))
    if not most:
        raise CourseError("The loop starts no asynchronous copies.")
    return max(most)


def multiply_adds_behind_copies(run) -> float:
    """The multiply-adds between an asynchronous copy that is started behind a warp's first barrier and the wait that makes sure of it, on
    average; of the warp that has fewest. 0 where each is waited for at once. Copies that no wait of the loop is for do not count.

    Raises CourseError where no loop starts copies, or unless the run was traced with TraceFilter(math=True).
    """
    return _behind_copies(run, _MULTIPLY_ADDS)


def matrix_instructions_behind_copies(run) -> float:
    """The same of the matrix instructions of warps, `mma`."""
    return _behind_copies(run, _MATRIX)


def _behind_copies(run, what: _Arithmetic) -> float:
    """What a warp computes between a copy and its wait, as `multiply_adds_behind_copies` has it. what: that which counts."""
    fewest = []
    for trace in _warps_of(run):
        copies, barriers = _copies(trace)
        computed = np.sort(what.of(trace)["order"])
        commits = trace.barriers["order"][trace.barriers["kind"] == "commit"]
        under_way, closed, behind = np.sort(copies), 0, []  # copies that no wait has been for; groups that such are in
        for kind, order in sorted(zip(trace.barriers["kind"].tolist(), trace.barriers["order"].tolist(), strict=True), key=lambda e: e[1]):
            if not kind.startswith("wait "):
                continue
            if kind == "wait all":
                end = order
            else:
                closed, most = int(np.searchsorted(commits, order)), int(kind.removeprefix("wait "))
                if closed <= most:
                    continue
                end = int(commits[closed - most - 1])
            done = under_way[under_way < end]
            under_way = under_way[under_way >= end]
            late = done[done > barriers[0]] if len(barriers) else done[:0]
            behind += (np.searchsorted(computed, order) - np.searchsorted(computed, late)).tolist()
        if behind:
            fewest.append(sum(behind) / len(behind))
    if not fewest:
        raise CourseError("The loop waits for no asynchronous copies that it has started.")
    return min(fewest)


def shared_loads_at_a_time(run) -> int:
    """The most loads from shared memory that a warp executes with no multiply-add in between, behind its first ones.

    Raises CourseError where there are none, or unless the run was traced with TraceFilter(math=True).
    """
    most = []
    for trace in _warps_of(run):
        computed = np.sort(_MULTIPLY_ADDS.of(trace)["order"])
        loads = trace.select(space="shared", op="ld").accesses
        widths = np.array([site.width for site in trace.sites] or [0])
        later = loads["order"][(loads["order"] > computed[0]) & (widths[loads["site"]] > 0)]  # of merged ones, one is left
        if later.size:
            most.append(int(np.bincount(np.searchsorted(computed, later)).max()))
    if not most:
        raise CourseError("The loop loads nothing from shared memory.")
    return max(most)


@dataclass(frozen=True)
class _Arithmetic:
    """What is called `name` in a trace: instructions of these classes."""

    name: str
    classes: tuple[str, ...]

    def of(self, trace: Any) -> Any:
        """These instructions in a trace. Raises CourseError where it has none."""
        found = trace.math[np.isin(trace.math["opclass"], self.classes)]
        if not len(found):
            raise CourseError(f"The run's trace has no {self.name}.")
        return found


_MULTIPLY_ADDS = _Arithmetic("multiply-adds", ("FFMA",))
_MATRIX = _Arithmetic("matrix instructions", ("HMMA", "IMMA", "MMA"))


def _warps_of(run) -> Iterator[Any]:
    """The traces of a run's warps, one by one."""
    for block in np.unique(run.trace.accesses["block"]):
        trace = run.trace.select(block=int(block))
        for warp in np.unique(trace.accesses["warp"]):
            yield trace.select(warp=int(warp))


def multiply_adds_of_a_warp(run) -> int:
    """FFMA of the warp that executes most of them. Raises CourseError where none does, if the trace was cut short, or unless the run was
    traced with TraceFilter(math=True)."""
    trace = whole(run.trace)
    made = _MULTIPLY_ADDS.of(trace)
    return int(np.unique(made[["block", "warp"]], return_counts=True)[1].max())


def multiply_adds_behind_a_tile(run) -> int:
    """The fewest of `multiply_adds_behind_loads` for the tiles that any warp loads behind its first barrier.

    Raises CourseError where there are none, or unless the run was traced with TraceFilter(math=True).
    """
    if not (behind := _tiles_in_loops(run)):
        raise CourseError("Behind its first barrier, the kernel stores no tile that it has loaded from global memory.")
    return min(behind)[0]


def ends_of_a_tile(run) -> tuple[int, ...]:
    """Of the tile that `multiply_adds_behind_a_tile` is about, the lines of the last load and of the first store of what it brought."""
    return min(_tiles_in_loops(run))[1:]


def _tiles_in_loops(run) -> list[tuple[int, int, int]]:
    """(multiply-adds, line of the last load, line of the first store) of each tile that a warp loads behind its first barrier."""
    found = []
    for trace in _warps_of(run):
        _, barriers = _copies(trace)
        line = {int(row["order"]): trace.sites[row["site"]].line or 0 for row in trace.accesses}
        found += [(n, line[load], line[store]) for load, store, n in _behind_loads(trace) if len(barriers) and load > barriers[0]]
    return found
