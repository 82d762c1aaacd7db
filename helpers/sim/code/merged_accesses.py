"""Which PTX accesses ptxas merged, kept or removed.

`access_sites` matches memory instructions of PTX and SASS: ptxas turns four neighbouring `ld.shared.f32` into one LDS.128,
which carries the PTX line of one of them, its *leader*. Executing PTX and charging the leader with the SASS width, the
others with nothing, gives the counts of the hardware.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from dataclasses import dataclass, replace

from . import time_limit
from .program import Effect, Op, Program, ResultKind, Results
from .ptx import Immediate, Register, Symbol
from .sass import SassInstruction, parse
from .sites import AccessKind


@dataclass(frozen=True)
class PtxAccess:
    """One memory instruction of the PTX. `base` + `offset`: its address, as far as the code tells. block: where it stands.
    fragment: it is several accesses, whose widths are already those of the machine code (wmma)."""

    line: int
    op: AccessKind
    space: str
    width: int
    block: tuple[int, int]
    base: int
    offset: int
    fragment: bool = False


@dataclass(frozen=True)
class AccessWidth:
    """How the hardware performs one PTX memory instruction.

    width: bytes per lane of the SASS instruction that this PTX line leads; 0 if another line leads it or ptxas removed
    it, and then nothing is charged. offset: where the SASS access begins, relative to this PTX instruction's address
    (0 or negative). opcode: SASS opcode, '' if removed. leader: PTX line that is charged (the line itself, if it leads).
    exact: False where ptxas treated copies of this line differently, so that a PTX execution cannot be charged exactly;
    `why` then says so, and width is the PTX width. combined: lanes of a warp that do an atomic operation at one address do it as one,
    because ptxas adds them up before (VOTE, REDUX, one lane's ATOMS), or its instruction does (ATOMS.POPC.INC).
    """

    width: int
    opcode: str
    leader: int
    offset: int = 0
    exact: bool = True
    why: str = ""
    combined: bool = False


_MATCHED = (
    AccessKind.LOAD, AccessKind.STORE, AccessKind.ATOMIC, AccessKind.REDUCTION, AccessKind.COPY,
    AccessKind.MATRIX_LOAD, AccessKind.MATRIX_STORE,
)  # fmt: skip


def ptx_accesses(program: Program) -> list[PtxAccess]:
    """Memory accesses of a program with symbolic addresses; of device functions that are copied into their calls, the first copy's.

    Two accesses whose `base` is equal differ in address by the difference of their offsets (value numbering: registers
    that hold the same sum have the same base).
    """
    found: dict[tuple[int, str], PtxAccess] = {}
    numbers, barriers = _ValueNumbers(program), 0
    for block in program.blocks:
        for op in program.ops[block.ops.start : block.ops.stop]:
            # A copy is matched by its source, which it names second.
            site = next((s for s in op.sites if s.op in _MATCHED and (s.op is not AccessKind.COPY or s.space == "global")), None)
            if site is not None and site.address is not None and site.space not in ("param", "const"):
                space = "shared" if site.space == "cluster" else site.space
                base, offset = numbers.of(site.address.base)
                place = block.index, barriers
                access = PtxAccess(op.ptx_line, site.op, space, site.width, place, base, offset + site.address.offset, site.part)
                found.setdefault((op.ptx_line, op.text), access)
            numbers.read(op)
            barriers += op.effect is Effect.BARRIER
    return list(found.values())


class _ValueNumbers:
    """Symbolic values of registers, built while the code is read from top to bottom.

    A value is (base, offset); equal sums get equal bases. A register that is written in several places (a loop counter)
    is a new, unknown value after each of them.
    """

    def __init__(self, program: Program):
        self.names = program.names
        self.current: dict[str, tuple[int, int]] = {}
        self.interned: dict[object, int] = {0: 0}  # base 0: a plain number
        self.writes = Counter(register for op in program.ops for register in op.writes)

    def _base(self, key) -> int:
        return self.interned.setdefault(key, len(self.interned))

    def of(self, operand) -> tuple[int, int]:
        if isinstance(operand, Immediate) and isinstance(operand.value, int) and operand.bits is None:
            return 0, operand.value
        if isinstance(operand, Symbol):
            return self._base(operand.name), operand.offset
        if isinstance(operand, Register):
            return self.current.get(operand.name) or (self._base(operand.name), 0)
        return self._base(operand), 0

    def read(self, op: Op) -> None:
        """Take in one instruction."""
        known = len(op.writes) == 1 and self.writes[op.writes[0]] == 1 and op.guard is None
        for register in op.writes:
            if (name := self.names.get(register)) is not None:
                self.current[name] = self._evaluate(op, name) if known else (self._base((name, len(self.interned))), 0)

    def _evaluate(self, op: Op, register: str) -> tuple[int, int]:
        instruction = op.instruction
        if op.effect is not Effect.PURE or op.results is not Results.LIKE_SOURCES:
            return self._base(register), 0
        values = [self.of(source) for source in instruction.operands[1:]]
        if op.value is ResultKind.SAME_PLACE:
            return self._base((op.value, values[0][0])), values[0][1]
        if op.value is ResultKind.SUM:
            (a, x), (b, y) = (*values, (0, 0))[:2]
            if a == 0 or b == 0:
                return a or b, x + y
            return self._base((op.value, min(a, b), max(a, b))), x + y
        return self._base((instruction.opcode, *values)), 0


# --- matching the two ----------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=8)
def access_sites(program: Program, sass: str, symbol: str) -> dict[int, AccessWidth]:
    """For each PTX line with a memory instruction of the program, how ptxas performs it. Keys are 1-based PTX lines."""
    voting = frozenset(
        i.ptx_line for function in parse(sass).values() for i in function.instructions if i.name in ("VOTE", "VOTEU", "REDUX")
    )
    return match_accesses(ptx_accesses(program), memory_instructions(sass, symbol), voting)


def memory_instructions(sass: str, symbol: str) -> list[SassInstruction]:
    """Memory instructions of the entry `symbol` and of functions it may call, that carry a PTX line."""
    functions = parse(sass)
    names = [symbol] if symbol in functions else []
    called = {n for n in functions if symbol in functions and _calls(functions[symbol], n)}
    return [i for name in [*names, *sorted(called)] for i in functions[name].instructions if i.row.space and i.ptx_line is not None]


def _calls(function, name):
    return any(i.name in ("CALL", "LEPC", "MOV", "UMOV") and any(name in o for o in i.operands) for i in function.instructions)


def match_accesses(
    accesses: list[PtxAccess], instructions: list[SassInstruction], voting: frozenset[int | None] = frozenset()
) -> dict[int, AccessWidth]:
    """The matching itself, on parsed input. voting: PTX lines in whose code the lanes of a warp ask each other."""
    copies: dict[int, list[SassInstruction]] = defaultdict(list)
    for instruction in instructions:
        copies[instruction.ptx_line].append(instruction)
    per_line: dict[int, list[PtxAccess]] = defaultdict(list)
    for access in accesses:
        per_line[access.line].append(access)

    sites: dict[int, AccessWidth] = {}
    leaders, orphans = [], []
    for line, here in per_line.items():
        time_limit.look()
        access = here[0]
        mine = [i for i in copies.get(line, ()) if _same_kind(access, i)]
        if len(here) > 1:
            sites[line] = _at_ptx_width(access, mine, "several memory instructions share this PTX line")
        elif not mine:
            orphans.append(access)
        elif access.fragment:
            # One PTX line, several accesses: the instruction itself knows their widths, which are those of the machine code.
            sites[line] = AccessWidth(mine[0].width, mine[0].opcode, line)
        else:
            widths = {i.width for i in mine}
            if len(widths) > 1:
                sites[line] = _at_ptx_width(access, mine, "ptxas widened some copies of this access and not others")
                continue
            (width,) = widths
            sites[line] = AccessWidth(width, mine[0].opcode, line)
            if access.op.atomic:
                alike = any("POPC" in i.modifiers for i in mine)
                chosen = line in voting and all(i.guard for i in mine)  # one lane does it for all
                if chosen and len(mine) > 1:
                    sites[line] = replace(sites[line], exact=False, why="ptxas adds up the lanes of whole warps, and those of others not")
                sites[line] = replace(sites[line], combined=alike or chosen)
            if width > access.width and not access.op.atomic:
                leaders.append((access, width))

    unfilled = []
    for access, width in sorted(leaders, key=lambda pair: pair[0].line):
        time_limit.look()
        members = _members(access, width, orphans)
        if members is None:
            unfilled.append(access)
            site = sites[access.line]
            sites[access.line] = AccessWidth(
                access.width, site.opcode, access.line, 0, False, "ptxas merged this access with one the PTX does not show beside it"
            )
            continue
        taken = {m.line for m in members}
        orphans = [o for o in orphans if o.line not in taken]
        start = min(m.offset for m in [access, *members]) - access.offset
        site = sites[access.line]
        sites[access.line] = AccessWidth(width, site.opcode, access.line, start)
        for member in members:
            sites[member.line] = AccessWidth(0, site.opcode, access.line)
    for orphan in orphans:
        # Every SASS access is spoken for, so nothing on the machine performs this one; unless a widened access lacks members.
        suspects = [a for a in unfilled if (a.op, a.space) == (orphan.op, orphan.space)]
        if suspects:
            sites[orphan.line] = AccessWidth(
                orphan.width, "", orphan.line, 0, False, "ptxas merged or removed this access; which of the two cannot be told"
            )
        else:
            sites[orphan.line] = AccessWidth(0, "", orphan.line)
    return sites


def _at_ptx_width(access, mine, why):
    return AccessWidth(access.width, mine[0].opcode if mine else "", access.line, 0, False, why)


def _same_kind(access: PtxAccess, instruction: SassInstruction) -> bool:
    space, op = instruction.row.space, instruction.row.op
    if access.fragment or access.op.atomic:
        return True  # float atomics become loops of a load and a compare-and-swap
    same_op = op == access.op
    return same_op and (space == access.space or "generic" in (space, access.space))


def _members(leader: PtxAccess, width: int, orphans: list[PtxAccess]):
    """The accesses that one SASS access of `width` bytes performs beside its leader, or None if some are missing.

    They start at most `width` below the leader. Accesses of the same block come first; ptxas also merges across blocks
    that it joined.
    """
    same = [o for o in orphans if (o.op, o.space, o.base) == (leader.op, leader.space, leader.base)]
    for pool in ([o for o in same if o.block == leader.block], same):
        for start in range(leader.offset, leader.offset - width, -leader.width):
            wanted = {o.line: o for o in pool if start <= o.offset and o.offset + o.width <= start + width}
            covered = set(range(leader.offset, leader.offset + leader.width))
            for member in wanted.values():
                covered.update(range(member.offset, member.offset + member.width))
            if covered == set(range(start, start + width)):
                return list(wanted.values())
    return None
