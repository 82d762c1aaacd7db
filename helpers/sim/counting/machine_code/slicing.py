"""The part of a kernel's SASS that steers it: the backward slice of its branches, by liveness."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field

from helpers.sim.code.sass import MEMORY_OPCODES, Function, sass_width

from .decoding import ENDS, Address, Decoded, Jump, decode, read_names, result_count
from .semantics import HANDLERS

THREAD_COUNTED = (
    "FFMA", "FADD", "FMUL", "DFMA", "DADD", "DMUL", "HFMA2", "HADD2", "HMUL2", "IMAD", "FFMA2",
)  # fmt: skip


@dataclass
class Block:
    """A straight run of instructions [start, end); only `needed` ones are executed."""

    start: int
    end: int
    needed: list[int] = field(default_factory=list)


class Slice:
    """A code section cut into basic blocks, with the slice marked."""

    def __init__(self, function: Function, accesses: bool):
        self.function = function
        self.decoded = [decode(i) for i in function.instructions]
        self.accesses = accesses
        starts = {0, *function.labels.values()}
        for i in function.instructions:
            if i.name in ENDS or i.name == "BSSY":
                starts.add(i.index + 1)
            if i.target is not None:
                starts.add(i.target)
        self.addresses = {i.address: i.index for i in function.instructions}
        # Return addresses are plain numbers in a register: a call's successor starts a block.
        bounds = [*sorted(s for s in starts if s < len(self.decoded)), len(self.decoded)]
        self.blocks = [Block(a, b) for a, b in itertools.pairwise(bounds) if a < b]
        self.block_of = {b.start: b for b in self.blocks}
        # An entry sets R1 once or twice at its beginning; a function with a frame of its own moves it again.
        self.fixed_stack = sum("R1" in d.writes for d in self.decoded) <= 2
        # A store through a generic address may change what a spilled value was.
        generic_writes = {name for name, kind in MEMORY_OPCODES.items() if kind in (("generic", "st"), ("generic", "atom"))}
        self.private_stack = not any(d.instruction.name in generic_writes for d in self.decoded)
        self._mark()

    def _successors(self, block: Block) -> list[int]:
        last = self.decoded[block.end - 1].instruction
        out = []
        if last.target is not None:
            out.append(last.target)
        unconditional = not last.guard and last.name in ("BRA", "EXIT", "JMP", "RET", "BRX", "KILL") and len(last.operands) < 2
        if last.name == "RET":
            out += [d.instruction.index + 1 for d in self.decoded if d.instruction.name == "CALL"]
        jump = next((s for s in self.decoded[last.index].sources if isinstance(s, Jump)), None)
        if jump is not None:
            out += [self.function.labels[label] for label in jump.labels]
        elif last.name in ("BRX", "BRXU", "JMX", "JMXU"):
            out += [b.start for b in self.blocks]
        if not unconditional and block.end in self.block_of:
            out.append(block.end)
        return [s for s in out if s in self.block_of]

    def _slots(self, d: Decoded) -> tuple[str, ...]:
        """Words of the stack that LDL and STL name, as liveness tells them apart: by offset while R1 stays where it is."""
        if d.instruction.name not in ("LDL", "STL"):
            return ()
        place = next(s for s in d.sources if isinstance(s, Address))
        if [part.name() for part in place.parts] != ["R1"] or not self.fixed_stack:
            return ("stack",)
        words = max(1, sass_width(d.instruction.opcode) // 4)
        return tuple(f"stack+{place.offset + 4 * k}" for k in range(words))

    def _roots(self, d: Decoded) -> frozenset[str] | None:
        """Names an instruction needs for our purpose; None if it is of no interest by itself."""
        name = d.instruction.name
        if name in ENDS or name in ("BSSY", "BREAK", "BMOV"):
            return d.reads
        if name in THREAD_COUNTED and d.guard is not None:
            return frozenset(read_names(d.guard))
        if self.accesses and name in MEMORY_OPCODES:
            return frozenset([*d.addressing, *read_names(d.guard)])
        return None

    def _mark(self):
        """Find the needed instructions: registers are bits of an integer, liveness runs backwards through the blocks."""
        bits: dict[str, int] = {}

        def bits_of(names) -> int:
            out = 0
            for name in names:
                out |= bits.setdefault(name, 1 << len(bits))
            return out

        slots = [self._slots(d) for d in self.decoded]
        somewhere = {"stack"} if ("stack",) in slots else set()
        every = {slot for named in slots for slot in named}
        facts = []
        for d, mine in zip(self.decoded, slots, strict=True):
            name, roots = d.instruction.name, self._roots(d)
            kills = d.guard is None and len(d.writes) <= result_count(name, d.instruction.opcode) + 2
            names = d.writes
            # What nothing here evaluates is unknown whatever it reads.
            needs = d.reads if name in HANDLERS or name == "BMOV" else read_names(d.guard)
            if mine:
                reached = every if mine == ("stack",) else {*mine, *somewhere}
                if name == "LDL":
                    needs = {*needs, *reached}
                else:
                    names, kills = reached, kills and not somewhere
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
