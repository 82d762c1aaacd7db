"""What the native engine must know of a kernel before it writes code: blocks, uniform registers, regions, liveness.

A *uniform* register holds one value for all 32 lanes of a warp, and becomes a scalar. It stays uniform only if every
write of it happens while all live lanes of the warp are together, so the analysis goes in circles until nothing
changes: a varying predicate makes its branch varying, a varying branch makes a *region* (the blocks up to the place
where the lanes meet again), and what is written inside of a region is varying.

Lanes that leave the kernel need no region: a dead lane may compute what it likes, as long as it touches no memory.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

from helpers.sim.code import cfg
from helpers.sim.code.program import Effect, Op, Program, Results
from helpers.sim.isa import SPECIAL_REGISTERS

from .declined import Unsupported


@dataclass
class CodeBlock:
    """Straight-line code. `positions` are those of instructions in the program.

    end: 'fall', 'jump', 'branch', 'ret' or 'barrier'; target: block jumped to; next: the block that follows.
    predicate: (register's name, negated) of a branch; when it holds, control goes to `target`.
    """

    index: int
    positions: list[int] = field(default_factory=list)
    end: str = "fall"
    target: int | None = None
    next: int | None = None
    predicate: tuple[str, bool] | None = None
    position: int | None = None  # of the terminator
    inner: bool = False  # a guarded access or return, cut out of the block before

    @property
    def successors(self) -> list[int]:
        return {
            "fall": [self.next], "barrier": [self.next], "jump": [self.target], "branch": [self.target, self.next], "ret": [],
        }[self.end]  # fmt: skip


@dataclass
class Region:
    """Where the lanes of a warp run apart: `blocks` in layout order, until they meet at block `meet` (None: they end)."""

    meet: int | None
    blocks: list[int]
    runnable: bool  # False: the machine must take over (a barrier inside, or a meeting point above)
    forward: bool  # no loops


@dataclass
class Analysis:
    """The result. `regions` is keyed by the block that branches. Registers are given by name."""

    blocks: list[CodeBlock]
    varying: set[str]
    regions: dict[int, Region]
    live_in: list[set[str]]
    exits: set[int]
    reachable: set[int]


def analyse(program: Program, linear_x: bool, uniform_y: bool, uniform_z: bool, fixed: tuple[tuple[int, bool], ...] = ()) -> Analysis:
    """Raises Unsupported for control flow the engine does not take on.

    linear_x: tid.x runs along the warp. uniform_y, uniform_z: tid.y, tid.z are the same within a warp. fixed: (position,
    taken) of guarded branches that always go one way.
    """
    ops, names = program.ops, program.names
    blocks = code_blocks(program, dict(fixed))
    graph = [block.successors for block in blocks]
    exits, reachable = _exits(blocks), cfg.reachable(graph)
    met = [ops[p] for i in sorted(reachable) for p in (*blocks[i].positions, blocks[i].position) if p is not None]
    uniform = {name for name, same in (("%tid.y", uniform_y), ("%tid.z", uniform_z)) if same}
    varying = {index for index, name in program.specials if SPECIAL_REGISTERS[name].varies == "lane" and name not in uniform}
    varying.update(register for op in met if op.results is Results.PER_LANE for register in op.writes)
    spreading = [(_deciding(op), op.writes) for op in met if op.writes]
    regions: dict[int, Region] = {}
    branches: set[int] = set()
    while True:
        before = len(varying), len(branches)
        changed = True
        while changed:
            size = len(varying)
            for reads, writes in spreading:
                if not varying.isdisjoint(reads):
                    varying.update(writes)
            changed = len(varying) != size
        different = {names[register] for register in varying}
        branches = {
            b.index for b in blocks
            if b.index in reachable and b.end == "branch" and b.predicate[0] in different and b.target != b.next
        }  # fmt: skip
        dying = {(b, s) for b in branches for s in graph[b] if s in exits}
        meet = cfg.meeting_points(_lived_through(graph, dying))
        regions = _regions(blocks, ops, branches, dying, meet, exits)
        for region in regions.values():
            varying.update(register for index in region.blocks for p in blocks[index].positions for register in ops[p].writes)
        if (len(varying), len(branches)) == before:
            break
    return Analysis(blocks, {names[register] for register in varying}, regions, _live_in(program, blocks, graph), exits, reachable)


def _lived_through(graph: list[list[int]], dying: set[tuple[int, int]]) -> list[list[int]]:
    """The graph without the edges on which lanes die, which have nobody to meet: but a loop that is left by such edges alone keeps them.
    Without its end nothing would come after anything, and no lanes would ever meet."""
    end = len(graph)
    edges = [[s for s in successors if (i, s) not in dying] or [end] for i, successors in enumerate(graph)]
    ending = cfg.leading_to(edges, end)
    return [edges[i] if i in ending else successors or [end] for i, successors in enumerate(graph)]


def _deciding(op: Op) -> tuple[int, ...]:
    """The registers whose lanes must be alike for those of the results to be."""
    if op.results is not Results.PER_WARP:
        return op.reads
    return () if op.members is None else (op.members,)


def code_blocks(program: Program, fixed: dict[int, bool] | None = None) -> list[CodeBlock]:
    """The basic blocks, a guarded access or return in a block of its own. fixed: see `analyse`."""
    fixed, ops = fixed or {}, program.ops
    leaders = set()
    for op in ops:
        leaders.update(op.targets)
        if op.ends_block:
            _check_end(op)
            leaders.add(op.position + 1)
        if op.whole_block or stepped_over(op):
            leaders.update((op.position, op.position + 1))
    pieces = cfg.cut(len(ops), leaders)
    if len(ops) in leaders:
        pieces.append(range(len(ops), len(ops)))
    at = {piece.start: i for i, piece in enumerate(pieces)}
    blocks = []
    for i, piece in enumerate(pieces):
        block = CodeBlock(i, list(piece), next=i + 1 if i + 1 < len(pieces) else None)
        blocks.append(block)
        if not piece:
            block.end = "ret"
            continue
        last = ops[piece[-1]]
        if last.effect is Effect.JUMP:
            taken = fixed.get(last.position, last.guard is None or None)
            if taken is not False:
                block.target = at[last.targets[0]]
                block.end = "branch" if taken is None else "jump"
                block.predicate = last.instruction.guard if taken is None else None
            else:
                block.position = block.positions.pop()
        elif last.effect is Effect.END and last.guard is None:
            block.end = "ret"
        elif last.whole_block:
            block.end = "barrier"
        if block.end != "fall":
            block.position = block.positions.pop()
    # A guarded access or return is a branch around a block of its own.
    extra: list[tuple[CodeBlock, CodeBlock]] = []
    for block in blocks:
        if block.end != "fall" or not block.positions or not stepped_over(ops[block.positions[-1]]):
            continue
        op = ops[block.positions[-1]]
        inner = CodeBlock(-1, block.positions, next=block.next, inner=True)
        if op.effect is Effect.END:
            inner.end, inner.position, inner.positions = "ret", op.position, []
        block.positions = []
        name, negated = op.instruction.guard
        block.end, block.predicate, block.target = "branch", (name, not negated), block.next
        extra.append((block, inner))
    return _renumber(blocks, extra)


def _check_end(op: Op) -> None:
    """Raise Unsupported for what ends a block in a way that the engine does not know."""
    if op.effect is Effect.BARRIER and op.guard is not None:
        raise Unsupported("a guarded barrier", op)
    if op.effect is Effect.BARRIER and not op.whole_block:
        raise Unsupported("a barrier of some threads", op)
    if op.writes or not (op.effect is Effect.END or op.whole_block or (op.effect is Effect.JUMP and len(op.targets) == 1)):
        raise Unsupported(f"`{op.opcode}`", op)


def stepped_over(op: Op) -> bool:
    """Is it guarded, and something that nobody must do whose guard is off? (What warps do together is left to its own code.)"""
    return op.guard is not None and (op.effect is Effect.END or (op.effect.memory and not op.rendezvous))


@functools.lru_cache(maxsize=4)
def ops_met(program: Program, fixed: tuple[tuple[int, bool], ...]) -> tuple[Op, ...]:
    """The instructions that can be reached at all, apart from those that end blocks."""
    blocks = code_blocks(program, dict(fixed))
    return tuple(program.ops[p] for i in sorted(cfg.reachable([block.successors for block in blocks])) for p in blocks[i].positions)


def _renumber(blocks, extra):
    """Place each inner block behind the branch around it, and number anew."""
    inner_of = {id(block): inner for block, inner in extra}
    order: list[CodeBlock] = []
    new = {}
    for block in blocks:
        new[block.index] = len(order)
        order.append(block)
        if id(block) in inner_of:
            order.append(inner_of[id(block)])
    for i, block in enumerate(order):
        if id(block) not in inner_of and block.next is not None:
            block.next = new[block.next]
        if block.target is not None:
            block.target = new[block.target]
    for block, inner in extra:
        inner.index = -1
        block.next = None
    for i, block in enumerate(order):
        block.index = i
        if block.next is None and block.end in ("branch", "fall", "barrier"):
            block.next = i + 1 if i + 1 < len(order) else None
            if block.next is None:
                block.end = "ret"
    return order


def _exits(blocks: list[CodeBlock]) -> set[int]:
    """Blocks that do nothing but end the thread."""
    found = {b.index for b in blocks if b.end == "ret" and not b.positions}
    changed = True
    while changed:
        more = {b.index for b in blocks if not b.positions and b.end in ("fall", "jump") and b.successors[0] in found}
        changed = not more <= found
        found |= more
    return found


def _regions(blocks, ops, branches, dying, meet, exits) -> dict[int, Region]:
    members: dict[int | None, set[int]] = {}
    parting = [b for b in branches if not any(edge[0] == b for edge in dying)]
    for b in parting:
        seen = members.setdefault(meet[b], set())
        todo = list(blocks[b].successors)
        while todo:
            i = todo.pop()
            if i in seen or i == meet[b] or i in exits:
                continue
            seen.add(i)
            todo += blocks[i].successors
    found: dict[int | None, Region] = {}
    for stop, inside in members.items():
        barrier = any(blocks[i].end == "barrier" for i in inside)
        barrier |= any(ops[p].rendezvous for i in inside for p in blocks[i].positions)
        above = stop is not None and any(i > stop for i in inside)
        forward = all(s > i for i in inside for s in blocks[i].successors if s in inside)
        found[stop] = Region(stop, sorted(inside), not barrier and not above, forward)
    return {b: found[meet[b]] for b in parting}


def _live_in(program: Program, blocks: list[CodeBlock], graph: list[list[int]]) -> list[set[str]]:
    numbers = {name: index for index, name in program.names.items()}
    facts = []
    for block in blocks:
        accesses = [(op.reads, op.writes, op.guard is not None) for op in (program.ops[p] for p in block.positions)]
        if block.predicate:
            accesses.append(((numbers[block.predicate[0]],), (), False))
        facts.append(cfg.uses_and_kills(accesses))
    found = cfg.live_in(graph, [uses for uses, _ in facts], [kills for _, kills in facts])
    return [{program.names[register] for register in cfg.members(live)} for live in found]
