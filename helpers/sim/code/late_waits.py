"""Waits for a thread's own copies that stand on the wrong side of a barrier: the barrier first, and then the wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import cfg

if TYPE_CHECKING:
    from .program import Op, Program


def late_waits(program: Program) -> frozenset[int]:
    """Positions of the waits in front of which, in the same turn of the same loops, a barrier of the block stands.

    Such a pair is executed in turns: nobody comes to the wait a second time without the barrier, nor to the barrier without the wait.
    A loop that the compiler has unrolled is straight code here, and its barriers and waits are as many as its turns.
    """
    graph = [block.successors for block in program.blocks]
    before, chains = cfg.dominators(graph), program.chains()
    home = {position: block.index for block in program.blocks for position in block.ops}
    waits = [op for op in program.ops if op.lands]
    barriers = [op for op in program.ops if op.whole_block and op.guard is None]

    def written(op: Op) -> Sequence[int]:
        return tuple(chains.get(op.ptx_line, ()))

    times = Counter(map(written, [*waits, *barriers]))  # as often as the compiler has copied what is written there once

    def in_turns(barrier: Op, wait: Op) -> bool:
        first, then = home[barrier.position], home[wait.position]
        if first == then or not before[then] >> first & 1 or times[written(barrier)] != times[written(wait)]:
            return False
        return not _again(graph, then, without=first) and not _again(graph, first, without=then)

    return frozenset(wait.position for wait in waits if any(in_turns(barrier, wait) for barrier in barriers))


def _again(graph: cfg.Graph, block: int, without: int) -> bool:
    """Is there a way from a block back to itself that does not pass another one?"""
    rest = [() if i == without else successors for i, successors in enumerate(graph)]
    return any(block in cfg.reachable(rest, successor) for successor in graph[block] if successor != without)
