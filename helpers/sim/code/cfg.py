"""The control-flow graph of any code: basic blocks, which block every way passes, where ways meet, what is live.

A graph is a list with the successors of each block, by number; block 0 is the entry, and `len(graph)` stands for the end of
the program. Sets of blocks and of registers are integers used as bit sets, because every algorithm here is a loop over
unions until nothing changes. PTX (the loader, the native engine) and SASS share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from . import time_limit

Graph = Sequence[Iterable[int]]


def cut(count: int, leaders: Iterable[int]) -> list[range]:
    """The basic blocks of `count` instructions as ranges of positions. leaders: where blocks begin, besides 0."""
    return [range(*bounds) for bounds in pairwise(sorted({0, count, *(leader for leader in leaders if leader < count)}))]


def reachable(graph: Graph, start: int = 0) -> set[int]:
    """The blocks that can be reached from `start`, itself included."""
    found, waiting = set(), [start]
    while waiting:
        i = waiting.pop()
        if i < len(graph) and i not in found:
            found.add(i)
            waiting += graph[i]
    return found


def leading_to(graph: Graph, goal: int) -> set[int]:
    """The blocks from which `goal` can be reached, itself included."""
    before: dict[int, list[int]] = {}
    for i, successors in enumerate(graph):
        for s in successors:
            before.setdefault(s, []).append(i)
    found, waiting = {goal}, [goal]
    while waiting:
        for i in before.get(waiting.pop(), ()):
            if i not in found:
                found.add(i)
                waiting.append(i)
    return found


def cycles(graph: Graph) -> set[int]:
    """The blocks that can reach themselves."""
    reach = [0] * len(graph)
    changed = True
    while changed:
        changed = False
        for i in reversed(range(len(graph))):
            new = 0
            for s in graph[i]:
                new |= 1 << s | (reach[s] if s < len(graph) else 0)
            if new != reach[i]:
                reach[i], changed = new, True
    return {i for i, found in enumerate(reach) if found >> i & 1}


def loop_around(graph: Graph, block: int) -> set[int]:
    """The blocks on the ways from `block` back to itself, itself included; none if there is no such way."""
    after = {i for successor in graph[block] for i in reachable(graph, successor)}
    return {i for i in after if block in reachable(graph, i)}


def dominators(graph: Graph) -> list[int]:
    """Per block, the set of the blocks that every way from the entry to it passes, itself included."""
    before: list[list[int]] = [[] for _ in graph]
    for i, successors in enumerate(graph):
        for s in successors:
            if s < len(graph):
                before[s].append(i)
    everything = (1 << len(graph)) - 1
    found = [everything] * len(graph)
    if found:
        found[0] = 1
    changed = True
    while changed:
        changed = False
        for i in range(1, len(graph)):
            new = everything
            for b in before[i]:
                new &= found[b]
            new |= 1 << i
            if new != found[i]:
                found[i], changed = new, True
    return found


def post_dominators(graph: Graph) -> list[int]:
    """Per block, the set of the blocks that every way from it to the end passes, itself and the end included."""
    end = len(graph)
    everything = (1 << end + 1) - 1
    found = [everything] * end + [1 << end]
    changed = True
    while changed:
        changed = False
        for i in reversed(range(end)):
            new = everything
            for s in graph[i]:
                new &= found[s]
            new |= 1 << i
            if new != found[i]:
                found[i], changed = new, True
    return found[:end]


def meeting_points(graph: Graph) -> list[int | None]:
    """Where threads that part at the end of a block meet again: its immediate post-dominator, None for the program's end."""
    end = len(graph)
    found = post_dominators(graph)
    sizes = [blocks.bit_count() for blocks in found]
    by_size: dict[int, list[int]] = {}
    for i, size in enumerate(sizes):
        # Post-dominators of a block form a chain: the nearest one has one fewer of them than the block itself.
        by_size.setdefault(size, []).append(i)
    return [next((d for d in by_size.get(sizes[i] - 1, ()) if found[i] >> d & 1), None) for i in range(end)]


def uses_and_kills(accesses: Iterable[tuple[Iterable[int], Iterable[int], bool]]) -> tuple[int, int]:
    """(registers read before they are written, registers surely written) of straight code.

    accesses: (registers read, registers written, whether that depends on a guard) of each instruction in order.
    """
    used = killed = 0
    for reads, writes, guarded in accesses:
        for register in reads:
            used |= (1 << register) & ~killed
        if not guarded:
            for register in writes:
                killed |= 1 << register
    return used, killed


def live_in(graph: Graph, uses: Sequence[int], kills: Sequence[int]) -> list[int]:
    """Per block, the registers whose value a thread that enters it may still read. uses, kills: see `uses_and_kills`."""
    found = [0] * len(graph)
    changed = True
    while changed:
        changed = False
        time_limit.look()
        for i in reversed(range(len(graph))):
            out = 0
            for s in graph[i]:
                if s < len(graph):
                    out |= found[s]
            new = uses[i] | (out & ~kills[i])
            if new != found[i]:
                found[i], changed = new, True
    return found


def members(bits: int) -> Iterable[int]:
    """The numbers in a bit set, ascending."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low
