"""Stages of a kernel that copies by the tensor memory accelerator, from a trace: when each is on its way, and when it is read.

A copy is under way, as far as the kernel knows, from its start to the first wait that sees the end of its phase; products read until a
wait for their group. What is compared are places in the order of execution; nothing here is time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Fill:
    """A stage filled once. begin, arrived: when, in the order of execution, the first copy starts and the first wait passes (None: never).

    number: which fill of its mbarrier, from 0. reads: (warp, begin, end) of each warpgroup's products on it, end None if nobody waits.
    """

    barrier: int
    number: int
    copies: int
    nbytes: int
    begin: int
    arrived: int | None
    reads: tuple[tuple[int, int, int | None], ...]


def fills(trace) -> tuple[int, tuple[Fill, ...]] | None:
    """The first block that copies, and its fills in order. None where no bulk copy was recorded."""
    copying = [move.block for move in trace.moves if move.kind == "copy"]
    if not copying:
        return None
    block = copying[0]
    moves = [move for move in trace.moves if move.block == block]
    groups: list[list] = []
    open_at: dict[int, list] = {}  # barrier -> the fill that its copies join
    for move in moves:
        if move.kind == "copy":
            if move.number not in open_at:
                open_at[move.number] = [move.number, [], None]
                groups.append(open_at[move.number])
            open_at[move.number][1].append(move)
        elif move.kind == "wait" and move.number in open_at:
            open_at.pop(move.number)[2] = move.order
    ends = _ends(moves)
    made: list[Fill] = []
    for barrier, copies, arrived in groups:
        low, high = min(int(copy.places.min()) for copy in copies), max(int(copy.places.max()) for copy in copies) + 16
        begin = copies[0].order
        after = [other[1][0].order for other in groups if other[0] == barrier and other[1][0].order > begin]
        until = min(after, default=float("inf"))
        reads: dict[int, list[int]] = {}
        for i, move in enumerate(moves):
            if move.kind in ("A", "B") and copies[-1].order < move.order < until and low <= int(move.places.min()) < high:
                reads.setdefault(move.warp, []).append(i)
        spans = tuple((warp, moves[mine[0]].order, ends.get(mine[-1])) for warp, mine in sorted(reads.items()))
        number = sum(fill.barrier == barrier for fill in made)
        made.append(Fill(barrier, number, len(copies), sum(copy.places.size * 16 for copy in copies), begin, arrived, spans))
    return block, tuple(made)


def at_a_time(found: tuple[Fill, ...]) -> int:
    """The most stages that were being filled, full, or being read at one time: 1 where each waits until the one before has been read."""
    edges: list[tuple[int, int]] = []
    for fill in found:
        ends = [end for _, _, end in fill.reads]
        edges.append((fill.begin, 1))
        if ends and None not in ends:  # else it is never said to have been read
            edges.append((max(end for end in ends if end is not None), -1))
    return int(np.cumsum([change for _, change in sorted(edges)]).max())


def _ends(moves) -> dict[int, int]:
    """Index of each product's read -> the order of the wait that it is over at."""
    ends: dict[int, int] = {}
    current: dict[int, list[int]] = {}
    closed: dict[int, list[list[int]]] = {}
    for i, move in enumerate(moves):
        if move.kind in ("A", "B"):
            current.setdefault(move.warp, []).append(i)
        elif move.kind == "commit":
            closed.setdefault(move.warp, []).append(current.pop(move.warp, []))
        elif move.kind == "awaited":
            groups = closed.get(move.warp, [])
            for group in groups[: len(groups) - move.number]:
                for read in group:
                    ends.setdefault(read, move.order)
    return ends
