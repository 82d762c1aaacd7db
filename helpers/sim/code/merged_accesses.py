"""Which PTX accesses ptxas merged, kept or removed.

`access_sites` matches memory instructions of PTX and SASS: ptxas turns four neighbouring `ld.shared.f32` into one LDS.128,
which carries the PTX line of one of them, its *leader*. Executing PTX and charging the leader with the SASS width, the
others with nothing, gives the counts of the hardware.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from .ptx import TYPE_BYTES, Address, Immediate, Instruction, Module, Pair, Register, Symbol, Vector, parsed
from .sass import SassInstruction, parse


@dataclass(frozen=True)
class PtxAccess:
    """One memory instruction of the PTX. `base` + `offset`: its address, as far as the code tells. block: where it stands."""

    line: int
    op: str
    space: str
    width: int
    block: tuple[str, int]
    base: int
    offset: int
    opcode: str


@dataclass(frozen=True)
class AccessWidth:
    """How the hardware performs one PTX memory instruction.

    width: bytes per lane of the SASS instruction that this PTX line leads; 0 if another line leads it or ptxas removed
    it, and then nothing is charged. offset: where the SASS access begins, relative to this PTX instruction's address
    (0 or negative). opcode: SASS opcode, '' if removed. leader: PTX line that is charged (the line itself, if it leads).
    exact: False where ptxas treated copies of this line differently, so that a PTX execution cannot be charged exactly;
    `why` then says so, and width is the PTX width.
    """

    width: int
    opcode: str
    leader: int
    offset: int = 0
    exact: bool = True
    why: str = ""


_SPACES = ("global", "shared", "local", "const", "param")
_PURE = {
    "add",
    "sub",
    "mul",
    "mad",
    "shl",
    "shr",
    "and",
    "or",
    "xor",
    "cvt",
    "cvta",
    "mov",
    "bfe",
    "bfi",
    "selp",
    "min",
    "max",
    "not",
    "neg",
}
_ENDS_BLOCK = {"bra", "ret", "exit", "call", "bar", "barrier"}


def ptx_accesses(module: Module, symbol: str | None = None) -> list[PtxAccess]:
    """Memory instructions of an entry (and of every .func, which it may call), with symbolic addresses.

    Two accesses whose `base` is equal differ in address by the difference of their offsets (value numbering: registers
    that hold the same sum have the same base).
    """
    found: list[PtxAccess] = []
    for function in module.functions.values():
        if not function.body or (function.entry and symbol not in (None, function.name)):
            continue
        numbers, labels, block = _ValueNumbers(function.body), Counter(function.labels.values()), 0
        for position, instruction in enumerate(function.body):
            block += labels[position]
            access = _access(instruction, (function.name, block), numbers)
            if access is not None:
                found.append(access)
            numbers.read(instruction)
            block += instruction.name in _ENDS_BLOCK
    return found


class _ValueNumbers:
    """Symbolic values of registers, built while the code is read from top to bottom.

    A value is (base, offset); equal sums get equal bases. A register that is written in several places (a loop counter)
    is a new, unknown value after each of them.
    """

    def __init__(self, body: list[Instruction]):
        self.current: dict[str, tuple[int, int]] = {}
        self.interned: dict[object, int] = {0: 0}  # base 0: a plain number
        self.writes = Counter(register for instruction in body for register in _written(instruction))

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

    def read(self, instruction: Instruction) -> None:
        """Take in one instruction."""
        registers = _written(instruction)
        single = isinstance(instruction.operands[0], Register) if registers else False
        if single and self.writes[registers[0]] == 1 and instruction.guard is None:
            self.current[registers[0]] = self._evaluate(instruction, registers[0])
            return
        for register in registers:
            self.current[register] = (self._base((register, len(self.interned))), 0)

    def _evaluate(self, instruction: Instruction, register: str) -> tuple[int, int]:
        operation, sources = instruction.name, instruction.operands[1:]
        if operation not in _PURE or any(isinstance(source, Address) for source in sources):
            return self._base(register), 0
        values = [self.of(source) for source in sources]
        if operation == "mov":
            return values[0]
        if operation == "cvta":
            return self._base((operation, values[0][0])), values[0][1]
        if operation == "add" and len(values) == 2 and "cc" not in instruction.modifiers:
            (a, x), (b, y) = values
            if a == 0 or b == 0:
                return a or b, x + y
            return self._base(("add", min(a, b), max(a, b))), x + y
        return self._base((instruction.opcode, *values)), 0


def _written(instruction: Instruction) -> list[str]:
    """Registers that an instruction writes: its first operand, vectors and pairs of predicates included."""
    if len(instruction.operands) < 2:
        return []
    first = instruction.operands[0]
    items = first.items if isinstance(first, Vector) else (first.first, first.second) if isinstance(first, Pair) else (first,)
    return [item.name for item in items if isinstance(item, Register)]


def _access(instruction: Instruction, block: tuple[str, int], numbers: _ValueNumbers) -> PtxAccess | None:
    parts = instruction.opcode.split(".")
    op = {"ldu": "ld"}.get(parts[0], parts[0])
    if parts[:2] == ["cp", "async"]:
        if {"commit_group", "wait_group", "wait_all", "mbarrier", "bulk", "reduce"} & set(parts):
            return None
        op = "cp.async"
    elif op not in ("ld", "st", "atom", "red", "ldmatrix", "stmatrix") and parts[:2] not in (["wmma", "load"], ["wmma", "store"]):
        return None
    space = next((s for s in _SPACES if any(part == s or part.startswith(f"{s}::") for part in parts)), "generic")
    addresses = [operand for operand in instruction.operands if isinstance(operand, Address)]
    if space in ("param", "const") or not addresses:
        return None
    if op == "cp.async":
        space = "global"
    address = addresses[1] if op == "cp.async" and len(addresses) > 1 else addresses[0]
    base, offset = numbers.of(address.base)
    return PtxAccess(
        instruction.ptx_line, op, space, _ptx_width(parts, instruction.operands), block, base, offset + address.offset, instruction.opcode
    )


def _ptx_width(parts: list[str], operands: tuple) -> int:
    """Bytes per lane."""
    if parts[0] == "cp":
        return next((operand.value for operand in operands if isinstance(operand, Immediate) and operand.value in (4, 8, 16)), 16)
    if parts[0] in ("ldmatrix", "stmatrix"):
        return 16
    count = next((int(part[1:]) for part in parts if part in ("v2", "v4", "v8")), 1)
    return TYPE_BYTES.get(parts[-1], 4) * count


# --- matching the two ----------------------------------------------------------------------------------------------


def access_sites(compiled) -> dict[int, AccessWidth]:
    """For each PTX line with a memory instruction, how ptxas performs it. Keys are 1-based PTX lines.

    compiled: needs `.ptx`, `.sass`, `.symbol`.
    """
    return match_accesses(ptx_accesses(parsed(compiled), compiled.symbol), memory_instructions(compiled.sass, compiled.symbol))


def memory_instructions(sass: str, symbol: str) -> list[SassInstruction]:
    """Memory instructions of the entry `symbol` and of functions it may call, that carry a PTX line."""
    functions = parse(sass)
    names = [symbol] if symbol in functions else []
    called = {n for n in functions if symbol in functions and _calls(functions[symbol], n)}
    return [i for name in [*names, *sorted(called)] for i in functions[name].instructions if i.row.space and i.ptx_line is not None]


def _calls(function, name):
    return any(i.name in ("CALL", "LEPC", "MOV", "UMOV") and any(name in o for o in i.operands) for i in function.instructions)


def match_accesses(accesses: list[PtxAccess], instructions: list[SassInstruction]) -> dict[int, AccessWidth]:
    """The matching itself, on parsed input."""
    copies: dict[int, list[SassInstruction]] = defaultdict(list)
    for instruction in instructions:
        copies[instruction.ptx_line].append(instruction)
    per_line: dict[int, list[PtxAccess]] = defaultdict(list)
    for access in accesses:
        per_line[access.line].append(access)

    sites: dict[int, AccessWidth] = {}
    leaders, orphans = [], []
    for line, here in per_line.items():
        access = here[0]
        mine = [i for i in copies.get(line, ()) if _same_kind(access, i)]
        if len(here) > 1:
            sites[line] = _at_ptx_width(access, mine, "several memory instructions share this PTX line")
        elif not mine:
            orphans.append(access)
        elif access.op.startswith("wmma"):
            # One PTX line, several accesses: the instruction itself knows their widths, which are those of the machine code.
            sites[line] = AccessWidth(mine[0].width, mine[0].opcode, line)
        else:
            widths = {i.width for i in mine}
            if len(widths) > 1:
                sites[line] = _at_ptx_width(access, mine, "ptxas widened some copies of this access and not others")
                continue
            (width,) = widths
            sites[line] = AccessWidth(width, mine[0].opcode, line)
            if width > access.width and not access.op.startswith(("atom", "red")):
                leaders.append((access, width))

    unfilled = []
    for access, width in sorted(leaders, key=lambda pair: pair[0].line):
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
    if access.op.startswith("wmma"):
        return True
    if access.op in ("atom", "red"):
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
