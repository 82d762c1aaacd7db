"""What the native engine must know of a kernel before it writes code: blocks, uniform registers, regions, liveness.

A *uniform* register holds one value for all 32 lanes of a warp, and becomes a scalar. It stays uniform only if every
write of it happens while all live lanes of the warp are together, so the analysis goes in circles until nothing
changes: a varying predicate makes its branch varying, a varying branch makes a *region* (the blocks up to the place
where the lanes meet again), and what is written inside of a region is varying.

Lanes that leave the kernel need no region: a dead lane may compute what it likes, as long as it touches no memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from helpers.sim.code.ptx import Address, Function, Immediate, Instruction, Negated, Pair, Register, Vector


class Unsupported(Exception):
    """The native engine leaves this kernel to the NumPy machine. The message says why."""


@dataclass
class Block:
    """Straight-line code. `positions` are indices into the function's body.

    end: 'fall', 'jump', 'branch', 'ret' or 'barrier'; target: block jumped to; next: the block that follows.
    predicate: (register, negated) of a branch; when it holds, control goes to `target`.
    """

    index: int
    positions: list[int] = field(default_factory=list)
    end: str = "fall"
    target: int | None = None
    next: int | None = None
    predicate: tuple[str, bool] | None = None
    position: int | None = None  # of the terminator in the body
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
    """The result. `regions` is keyed by the block that branches."""

    function: Function
    blocks: list[Block]
    varying: set[str]
    varying_branches: set[int]
    regions: dict[int, Region]
    live_in: list[set[str]]
    exits: set[int]
    reachable: set[int]


MEMORY = ("ld", "ldu", "st", "cp")  # a guarded one is a branch around it
NO_RESULT = ("st", "stmatrix", "cp", "bra", "ret", "exit", "bar", "barrier", "red", "membar", "fence", "call", "trap")
# Instructions at which a warp has to come together, and those that give all its lanes the same.
RENDEZVOUS = ("shfl", "vote", "match", "redux", "elect", "mma", "wmma", "ldmatrix", "stmatrix", "movmatrix")
COMMON_RESULT = ("vote", "redux", "activemask")
BARRIERS = (
    "bar.sync",
    "barrier.sync",
    "bar.cta.sync",
    "barrier.cta.sync",
    "barrier.sync.aligned",
    "barrier.cta.sync.aligned",
)


def analyse(function: Function, linear_x: bool, uniform_y: bool, uniform_z: bool, decided: tuple[tuple[int, bool], ...] = ()) -> Analysis:
    """Raises Unsupported for control flow the engine does not take on.

    decided: (position, taken) of guarded branches that always go one way.
    """
    body = function.body
    blocks = code_blocks(body, function.labels, dict(decided))
    exits = _exits(blocks)
    reachable = _reachable(blocks)
    met = {p for b in blocks if b.index in reachable for p in (*b.positions, b.position)}
    writes = [written(instruction) if p in met else [] for p, instruction in enumerate(body)]
    special = {name: not uniform for name, uniform in (("%tid.y", uniform_y), ("%tid.z", uniform_z))}
    reads = [list(read(instruction)) if p in met else [] for p, instruction in enumerate(body)]
    always = [
        instruction.name in ("shfl", "match", "elect", "mma", "wmma", "ldmatrix", "movmatrix")
        or instruction.opcode.startswith("ld.local")
        or any(special.get(name, name.startswith(("%tid.x", "%laneid", "%lanemask"))) for name in names)
        for instruction, names in zip(body, reads, strict=True)
    ]
    varying: set[str] = {name for names, one in zip(writes, always, strict=True) if one for name in names}
    regions: dict[int, Region] = {}
    branches: set[int] = set()
    while True:
        before = len(varying), len(branches)
        changed = True
        while changed:
            size = len(varying)
            for names, sources, instruction in zip(writes, reads, body, strict=True):
                if names and instruction.name not in COMMON_RESULT and not varying.isdisjoint(sources):
                    varying.update(names)
            changed = len(varying) != size
        branches = {
            b.index for b in blocks
            if b.index in reachable and b.end == "branch" and b.predicate[0] in varying and b.target != b.next
        }  # fmt: skip
        dying = {(b, s) for b in branches for s in blocks[b].successors if s in exits}
        meet = _meeting_points(blocks, dying)
        regions = _regions(blocks, body, branches, dying, meet, exits)
        for region in regions.values():
            for index in region.blocks:
                for position in blocks[index].positions:
                    varying.update(writes[position])
        if (len(varying), len(branches)) == before:
            break
    return Analysis(function, blocks, varying, branches, regions, _live_in(blocks, reads, writes), exits, reachable)


def written(instruction: Instruction) -> list[str]:
    """Registers that an instruction writes."""
    if instruction.name in NO_RESULT or instruction.opcode.startswith("wmma.store"):
        return []
    return list(_registers(instruction.operands[0])) if instruction.operands else []


_SPACES = {"global", "shared", "local", "const", "param"}


def is_generic(instruction: Instruction) -> bool:
    """Does a load or store name no state space?"""
    names = {part.split("::")[0] for part in instruction.modifiers}
    return instruction.name in ("ld", "st", "wmma") and not names & _SPACES


def read(instruction: Instruction) -> list[str]:
    """Registers that an instruction reads; a guarded one also reads what it might leave unchanged."""
    found = []
    first = instruction.operands[:1]
    rest = instruction.operands[1:]
    outputs = written(instruction)
    if not outputs:
        rest = instruction.operands
    elif first and isinstance(first[0], Address):
        rest = instruction.operands
    for operand in rest:
        found += _registers(operand)
    if instruction.guard:
        found.append(instruction.guard[0])
        found += outputs
    return found


def _registers(operand):
    if isinstance(operand, Register):
        yield operand.name
    elif isinstance(operand, Negated):
        yield from _registers(operand.operand)
    elif isinstance(operand, Vector):
        for item in operand.items:
            yield from _registers(item)
    elif isinstance(operand, Pair):
        yield from _registers(operand.first)
        yield from _registers(operand.second)
    elif isinstance(operand, Address):
        yield from _registers(operand.base)


def code_blocks(body, labels: dict[str, int], decided: dict[int, bool] | None = None) -> list[Block]:
    """The basic blocks, a guarded access or return in a block of its own. decided: see `analyse`."""
    decided = decided or {}
    starts = {0, *labels.values()}
    for position, instruction in enumerate(body):
        name = instruction.name
        if name in ("bra", "ret", "exit") or instruction.opcode in BARRIERS:
            starts.add(position + 1)
        if name in ("brx", "call", "trap"):
            raise Unsupported(f"`{instruction.opcode}`")
        if instruction.opcode in BARRIERS:
            if instruction.guard:
                raise Unsupported("a guarded barrier")
            if len(instruction.operands) > 1 or not all(isinstance(o, Immediate) for o in instruction.operands):
                raise Unsupported("a barrier of some threads")
            starts.add(position)
        if instruction.guard and name in MEMORY:
            starts.update((position, position + 1))
        if instruction.guard and name in ("ret", "exit"):
            starts.add(position)
    starts = sorted(s for s in starts if s <= len(body))
    at = {start: i for i, start in enumerate(starts)}
    blocks = []
    for i, start in enumerate(starts):
        end = starts[i + 1] if i + 1 < len(starts) else len(body)
        block = Block(i, list(range(start, end)), next=i + 1 if i + 1 < len(starts) else None)
        blocks.append(block)
        if start == end:
            block.end = "ret"
            continue
        last = body[end - 1]
        if last.name == "bra":
            label = last.operands[0].name
            if label not in labels:
                raise Unsupported("a branch without a label")
            taken = decided.get(end - 1, not last.guard or None)
            if taken is not False:
                block.target = at[labels[label]]
                block.end = "branch" if taken is None else "jump"
                block.predicate = last.guard if taken is None else None
            else:
                block.position = block.positions.pop()
        elif last.name in ("ret", "exit") and not last.guard:
            block.end = "ret"
        elif last.opcode in BARRIERS:
            block.end = "barrier"
        if block.end != "fall":
            block.position = end - 1
            block.positions.pop()
    # A guarded load, store or return is a branch around a block of its own.
    extra: list[Block] = []
    for block in blocks:
        if block.end != "fall" or not block.positions:
            continue
        instruction = body[block.positions[-1]]
        if not instruction.guard or instruction.name not in (*MEMORY, "ret", "exit"):
            continue
        inner = Block(-1, block.positions, next=block.next, inner=True)
        inner.end = "ret" if instruction.name in ("ret", "exit") else "fall"
        if inner.end == "ret":
            inner.position, inner.positions = inner.positions[-1], []
        block.positions = []
        name, negated = instruction.guard
        block.end, block.predicate, block.target = "branch", (name, not negated), block.next
        extra.append((block, inner))
    return _renumber(blocks, extra)


def instructions_met(body, labels: dict[str, int], decided: tuple[tuple[int, bool], ...]) -> int:
    """How many instructions can be reached at all."""
    blocks = code_blocks(body, labels, dict(decided))
    return sum(len(blocks[i].positions) for i in _reachable(blocks))


def _reachable(blocks: list[Block]) -> set[int]:
    found, waiting = set(), [0]
    while waiting:
        i = waiting.pop()
        if i not in found:
            found.add(i)
            waiting += blocks[i].successors
    return found


def _renumber(blocks, extra):
    """Place each inner block behind the branch around it, and number anew."""
    inner_of = {id(block): inner for block, inner in extra}
    order: list[Block] = []
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


def _exits(blocks: list[Block]) -> set[int]:
    """Blocks that do nothing but end the thread."""
    found = {b.index for b in blocks if b.end == "ret" and not b.positions}
    changed = True
    while changed:
        more = {b.index for b in blocks if not b.positions and b.end in ("fall", "jump") and b.successors[0] in found}
        changed = not more <= found
        found |= more
    return found


def _meeting_points(blocks: list[Block], dying) -> list[int | None]:
    """Immediate post-dominators; None where lanes meet only at their end. Edges on which lanes die do not count."""
    end = len(blocks)
    successors = [[s for s in b.successors if (b.index, s) not in dying] or [end] for b in blocks]
    everything = (1 << end + 1) - 1
    post = [everything] * end + [1 << end]  # bit sets
    changed = True
    while changed:
        changed = False
        for i in reversed(range(end)):
            new = everything
            for s in successors[i]:
                new &= post[s]
            new |= 1 << i
            if new != post[i]:
                post[i], changed = new, True
    meets: list[int | None] = []
    sizes = [p.bit_count() for p in post]
    by_size = {}
    for i in range(end):
        # Post-dominators of a block form a chain: the nearest one has one fewer of them than the block itself.
        by_size.setdefault(sizes[i], []).append(i)
    for i in range(end):
        strict = post[i] & ~(1 << i)
        nearest = next((d for d in by_size.get(sizes[i] - 1, ()) if strict >> d & 1), end)
        meets.append(None if nearest == end else nearest)
    return meets


def _regions(blocks, body, branches, dying, meet, exits) -> dict[int, Region]:
    members: dict[int | None, set[int]] = {}
    for b in branches:
        if any(edge[0] == b for edge in dying):
            continue
        stop = meet[b]
        seen = members.setdefault(stop, set())
        todo = list(blocks[b].successors)
        while todo:
            i = todo.pop()
            if i in seen or i == stop or i in exits:
                continue
            seen.add(i)
            todo += blocks[i].successors
    regions = {}
    for b in branches:
        if any(edge[0] == b for edge in dying):
            continue
        stop = meet[b]
        inside = sorted(members[stop])
        barrier = any(blocks[i].end == "barrier" for i in inside)
        above = stop is not None and any(i > stop for i in inside)
        forward = all(s > i for i in inside for s in blocks[i].successors if s in members[stop])
        barrier |= any(_comes_together(body[p]) for i in inside for p in blocks[i].positions)
        regions[b] = Region(stop, inside, not barrier and not above, forward)
    shared: dict[int | None, Region] = {}
    return {b: shared.setdefault(region.meet, region) for b, region in regions.items()}


def _comes_together(instruction: Instruction) -> bool:
    return instruction.name in RENDEZVOUS or (instruction.name in ("bar", "barrier") and "warp" in instruction.modifiers)


def _live_in(blocks: list[Block], reads: list[list[str]], writes: list[list[str]]) -> list[set[str]]:
    uses, kills = [], []
    for block in blocks:
        use: set[str] = set()
        kill: set[str] = set()
        for position in block.positions:
            use.update(r for r in reads[position] if r not in kill)
            kill.update(writes[position])
        if block.predicate and block.predicate[0] not in kill:
            use.add(block.predicate[0])
        uses.append(use)
        kills.append(kill)
    live: list[set[str]] = [set() for _ in blocks]
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            out = set().union(*(live[s] for s in block.successors)) if block.successors else set()
            new = uses[block.index] | (out - kills[block.index])
            if new != live[block.index]:
                live[block.index], changed = new, True
    return live
