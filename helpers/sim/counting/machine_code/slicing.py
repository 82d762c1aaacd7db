"""The part of a kernel's SASS that steers it: the backward slice of its branches, by liveness."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

from helpers.sim.code import cfg, time_limit
from helpers.sim.code.sass import SassFunction, SassInstruction
from helpers.sim.code.sass_operands import SassAddress, SassJump, registers_of

from .semantics import ARITHMETIC, HANDLERS
from .signals import SignalKind, coordinates, kind_of


@dataclass
class SassBlock:
    """A straight run of instructions [start, end); only `needed` ones are executed."""

    start: int
    end: int
    needed: list[int] = field(default_factory=list)


_STORES = ("st", "red", "atom")
_WORD = 4  # bytes
_RARE = "slowpath"  # in the names of ptxas's functions for numbers that its quick division, root and reciprocal are wrong on


def usual_way(function: SassFunction) -> SassFunction:
    """The same without calls of the functions for rare numbers: what branches around such a call always does, and what branches to one
    never does. `function` itself if it has none."""
    instructions = list(function.instructions)
    entered = {i.target for i in instructions} | set(function.labels.values())
    for call in [i.index for i in instructions if i.name == "CALL" and any(_RARE in text for text in i.operands)]:
        start = call
        while start and start not in entered and not (instructions[start - 1].row.ends_block or instructions[start - 1].name == "BSSY"):
            start -= 1
        around = instructions[start - 1] if start else None
        if around is not None and around.name == "BRA" and around.guard:
            instructions[start - 1] = replace(around, guard="")
        for i in instructions:
            if i.name == "BRA" and i.guard and i.target == start:
                instructions[i.index] = replace(i, guard="", opcode="NOP", operands=(), target=None)
    changed = tuple(instructions) != function.instructions
    return replace(function, instructions=tuple(instructions)) if changed else function


def stores_results(i: SassInstruction) -> bool:
    """Does it store to memory of the device, as far as the code says?"""
    return i.row.op in _STORES and i.row.space in ("global", "generic")


class Slice:
    """A code section cut into basic blocks, with the slice marked. stored: of the branches and of where results go, and nothing else."""

    def __init__(self, function: SassFunction, accesses: bool, stored: bool = False):
        self.function = function
        self.stored = stored
        self.instructions = function.instructions
        self.accesses = accesses
        starts = set(function.labels.values())
        for i in function.instructions:
            if i.row.ends_block or i.name == "BSSY":
                starts.add(i.index + 1)
            if i.target is not None:
                starts.add(i.target)
        self.addresses = {i.address: i.index for i in function.instructions}
        # Return addresses are plain numbers in a register: a call's successor starts a block.
        self.blocks = [SassBlock(run.start, run.stop) for run in cfg.cut(len(self.instructions), starts)]
        self.block_of = {b.start: b for b in self.blocks}
        self.heads = {i.target for i in self.instructions if i.name == "BRA" and i.target is not None and i.target <= i.index}
        # An entry sets R1 once or twice at its beginning; a function with a frame of its own moves it again.
        self.fixed_stack = sum("R1" in i.writes for i in self.instructions) <= 2
        # A store through a generic address may change what a spilled value was, if somebody has made an address of its place.
        pointed = any("R1" in i.reads and "R1" not in i.writes and i.name not in ("LDL", "STL") for i in self.instructions)
        self.private_stack = not pointed or not any(i.row.space == "generic" and i.row.op != "ld" for i in self.instructions)
        # Instructions that store or load less than a word of the stack: of a word that is also stored whole, and of one in parts that
        # nobody here follows.
        places = {i.index: self._place(i) for i in self.instructions if i.name in ("LDL", "STL")}
        narrow = {index: place for index, place in places.items() if self.instructions[index].width < _WORD}
        whole = {places[i.index] + _WORD * k for i in self.instructions if i.name == "STL" for k in range(i.width // _WORD)}
        split = {place & -_WORD for place in narrow.values() if place % _WORD}
        self.over_words = frozenset(index for index, place in narrow.items() if place in whole)
        self.in_parts = frozenset(index for index, place in narrow.items() if place < 0 or place & -_WORD in split)
        self._mark()

    def _successors(self, block: SassBlock) -> list[int]:
        last = self.instructions[block.end - 1]
        out = []
        if last.target is not None:
            out.append(last.target)
        unconditional = not last.guard and last.row.leaves and len(last.operands) < 2
        if last.name == "RET":
            out += [i.index + 1 for i in self.instructions if i.name == "CALL"]
        jump = next((s for s in last.sources if isinstance(s, SassJump)), None)
        if jump is not None:
            out += [self.function.labels[label] for label in jump.labels]
        elif last.name in ("BRX", "BRXU", "JMX", "JMXU"):
            out += [b.start for b in self.blocks]
        if not unconditional and block.end in self.block_of:
            out.append(block.end)
        return [s for s in out if s in self.block_of]

    def _place(self, i: SassInstruction) -> int:
        """The place on the stack that LDL or STL names, by its offset while R1 stays where it is, else -1."""
        place = next(s for s in i.sources if isinstance(s, SassAddress))
        return place.offset if [part.name() for part in place.parts] == ["R1"] and self.fixed_stack else -1

    def _slots(self, i: SassInstruction) -> tuple[str, ...]:
        """Words of the stack that LDL and STL name, as liveness tells them apart: by offset while R1 stays where it is."""
        if i.name not in ("LDL", "STL"):
            return ()
        place = self._place(i)
        return ("stack",) if place < 0 else tuple(f"stack+{place + _WORD * k}" for k in range(max(1, i.width // _WORD)))

    def _roots(self, i: SassInstruction) -> frozenset[str] | None:
        """Names an instruction needs for our purpose; None if it is of no interest by itself."""
        if i.row.ends_block or i.row.convergence:
            return i.reads
        if self.stored:
            return frozenset([*i.addressing, *registers_of(i.predicate)]) if stores_results(i) else None
        if self.accesses and (kind := kind_of(i)):
            return i.reads | {register.name() for register in (coordinates(i) if kind is SignalKind.BULK else ())}
        if self.accesses and i.row.meets:
            return i.reads  # which barrier it is
        if i.row.per_thread and i.predicate is not None:
            return frozenset(registers_of(i.predicate))
        if self.accesses and i.row.space:
            return frozenset([*i.addressing, *registers_of(i.predicate)])
        return None

    def _data(self, bits_of) -> frozenset[int]:
        """Indices of the float arithmetic that surely works on data: some source was loaded, or computed from what was, whatever way
        led there. Its results are unknown without a look at its sources; a matrix kernel's sums are such."""
        out = {block.start: -1 for block in self.blocks}  # registers that surely hold data; -1: all, until something is known
        before: dict[int, list[int]] = defaultdict(list)
        for block in self.blocks:
            for successor in self._successors(block):
                before[successor].append(block.start)
        found: set[int] = set()
        changed = True
        while changed:
            time_limit.look()
            changed = False
            found.clear()
            for block in self.blocks:
                holds = 0 if block.start == 0 else -1
                for start in before[block.start]:
                    holds &= out[start]
                for i in self.instructions[block.start : block.end]:
                    on_data = i.name in ARITHMETIC and bool(bits_of(i.reads - set(registers_of(i.predicate))) & holds)
                    if on_data:
                        found.add(i.index)
                    written = bits_of(i.writes)
                    if on_data or (i.name not in HANDLERS and i.name != "BMOV"):
                        holds |= written if i.predicate is None else 0
                    else:
                        holds &= ~written
                if holds != out[block.start]:
                    out[block.start], changed = holds, True
        return frozenset(found)

    def _mark(self):
        """Find the needed instructions: registers are bits of an integer, liveness runs backwards through the blocks."""
        bits: dict[str, int] = {}

        def bits_of(names) -> int:
            out = 0
            for name in names:
                out |= bits.setdefault(name, 1 << len(bits))
            return out

        slots = [self._slots(i) for i in self.instructions]
        somewhere = {"stack"} if ("stack",) in slots else set()
        every = {slot for named in slots for slot in named}
        facts = []
        self.data = self._data(bits_of)
        for i, mine in zip(self.instructions, slots, strict=True):
            time_limit.look()
            roots = self._roots(i)
            kills = i.predicate is None and i.row.packs_predicates != "writes"
            names = i.writes
            # What nothing here evaluates is unknown whatever it reads.
            evaluated = (i.name in HANDLERS and i.index not in self.data) or i.name == "BMOV"
            needs = i.reads if evaluated else registers_of(i.predicate)
            if mine:
                reached = every if mine == ("stack",) else {*mine, *somewhere}
                if i.name == "LDL":
                    needs = {*needs, *reached}
                else:
                    names, kills = reached, kills and not somewhere and i.index not in self.over_words
            writes = bits_of(names)
            facts.append((writes, ~writes if kills else -1, bits_of(needs), None if roots is None else bits_of(roots)))
        live_in = dict.fromkeys(self.block_of, 0)
        successors = {block.start: self._successors(block) for block in self.blocks}
        predecessors = defaultdict(list)
        for block in self.blocks:
            for successor in successors[block.start]:
                predecessors[successor].append(block)
        pending = list(self.blocks)
        while pending:
            time_limit.look()
            block = pending.pop()
            live = 0
            for successor in successors[block.start]:
                live |= live_in[successor]
            needed = []
            for index in range(block.end - 1, block.start - 1, -1):
                writes, kept, reads, roots = facts[index]
                if writes & live:
                    needed.append(index)
                    live = live & kept | reads
                elif roots is not None:
                    needed.append(index)
                if roots is not None:
                    live |= roots
            block.needed = needed[::-1]
            if live != live_in[block.start]:
                live_in[block.start] = live
                pending.extend(predecessors[block.start])
