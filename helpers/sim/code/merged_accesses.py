"""Which PTX accesses ptxas merged, kept or removed.

`access_sites` matches memory instructions of PTX and SASS: ptxas turns four neighbouring `ld.shared.f32` into one LDS.128,
which carries the PTX line of one of them, its *leader*. Executing PTX and charging the leader with the SASS width, the
others with nothing, gives the counts of the hardware.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

from .ptx import split_operands
from .sass import SassInstruction, parse


@dataclass(frozen=True)
class PtxAccess:
    """One memory instruction of the PTX text. `base` + `offset`: its address, as far as the text tells."""

    line: int
    op: str
    space: str
    width: int
    block: int
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
_PTX_MEMORY = re.compile(r"^(?:@!?%\w+\s+)?((?:ld|ldu|st|atom|red|cp\.async|ldmatrix|stmatrix|wmma\.load|wmma\.store)\.[\w.:]+)\s+(.*);")
_PTX_ADDRESS = re.compile(r"\[([^\]]+)\]")
_TYPE_BYTES = re.compile(r"\.(?:[busf]|bf|tf|f16x|bf16x)(\d+)(?:x2)?$")
_ENTRY_OR_FUNCTION = re.compile(r"^\s*(?:\.(?:visible|extern|weak)\s+)*\.(entry|func)\b")
_PTX_LABEL = re.compile(r"^\s*([$\w]+):\s*$")
_DEFINITION = re.compile(r"^(?:@!?%\w+\s+)?([a-z][\w.:]*)\s+(%[\w.]+)\s*,\s*(.*);")
_PURE = (
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
)


def ptx_accesses(ptx: str, symbol: str | None = None) -> list[PtxAccess]:
    """Memory instructions of an entry (and of every .func, which it may call), with symbolic addresses.

    Two accesses whose `base` is equal differ in address by the difference of their offsets (value numbering: registers
    that hold the same sum have the same base).
    """
    found: list[PtxAccess] = []
    for start, lines in _bodies(ptx, symbol):
        numbers = _ValueNumbers(lines)
        block = 0
        for number, line in enumerate(lines, start):
            text = line.strip()
            if _PTX_LABEL.match(text):
                block += 1
            # Inline assembly may put several instructions on one line.
            for statement in _statements(text):
                if match := _PTX_MEMORY.match(statement):
                    access = _access(number, match[1], match[2], (start, block), numbers)
                    if access is not None:
                        found.append(access)
                numbers.read(statement)
                if re.match(r"(@!?%\w+\s+)?(bra|ret|exit|call|bar|barrier)\b", statement):
                    block += 1
    return found


def _statements(text):
    text = text.split("//", 1)[0].strip("{} \t")
    return [part.strip() + ";" for part in text.split(";") if part.strip(" {}\t")]


def _bodies(ptx, symbol):
    """Yield (number of the first line, lines) of each function body that may belong to the entry."""
    lines = ptx.splitlines()
    i = 0
    while i < len(lines):
        match = _ENTRY_OR_FUNCTION.match(lines[i])
        if not match:
            i += 1
            continue
        wanted = match[1] == "func" or symbol is None or re.search(rf"\.entry\s+{re.escape(symbol)}\b", lines[i])
        begin = i
        while i < len(lines) and not lines[i].startswith("{") and not lines[i].rstrip().endswith(";"):
            i += 1
        if i < len(lines) and lines[i].startswith("{"):
            begin = i
            while i < len(lines) and not lines[i].startswith("}"):
                i += 1
            if wanted:
                yield begin + 1, lines[begin:i]
        i += 1


class _ValueNumbers:
    """Symbolic values of registers, built while the text is read from top to bottom.

    A value is (base, offset); equal sums get equal bases. A register that is written in several places (a loop counter)
    is a new, unknown value after each of them.
    """

    def __init__(self, lines):
        self.current: dict[str, tuple[int, int]] = {}
        self.interned: dict[object, int] = {0: 0}  # base 0: a plain number
        self.writes: dict[str, int] = defaultdict(int)
        for line in lines:
            for statement in _statements(line.strip()):
                for register in _written(statement):
                    self.writes[register] += 1

    def _base(self, key) -> int:
        return self.interned.setdefault(key, len(self.interned))

    def of(self, name: str) -> tuple[int, int]:
        name = name.strip()
        if (number := _integer(name)) is not None:
            return 0, number
        return self.current.get(name) or (self._base(name), 0)

    def read(self, statement: str) -> None:
        """Take in one statement."""
        match = _DEFINITION.match(statement)
        if match and self.writes[match[2]] == 1 and not statement.startswith("@"):
            opcode, register, sources = match.groups()
            self.current[register] = self._evaluate(opcode, register, sources)
            return
        for register in _written(statement):
            self.current[register] = (self._base((register, len(self.interned))), 0)

    def _evaluate(self, opcode, register, sources):
        operation = opcode.split(".")[0]
        if operation not in _PURE or "[" in sources:
            return self._base(register), 0
        values = [self.of(s) for s in split_operands(sources)]
        if operation == "mov":
            return values[0]
        if operation == "cvta":
            return self._base((operation, values[0][0])), values[0][1]
        if operation == "add" and len(values) == 2 and ".cc" not in opcode:
            (a, x), (b, y) = values
            if a == 0 or b == 0:
                return a or b, x + y
            return self._base(("add", min(a, b), max(a, b))), x + y
        return self._base((opcode, *values)), 0


def _written(statement):
    """Registers that a PTX statement writes, vectors and pairs of predicates included."""
    if match := re.match(r"^(?:@!?%\w+\s+)?[a-z][\w.:]*\s+\{([^}]*)\}\s*,", statement):
        return [r.strip() for r in match[1].split(",")]
    if match := _DEFINITION.match(statement):
        return [match[2]]
    if match := re.match(r"^(?:@!?%\w+\s+)?[a-z][\w.:]*\s+(%\w+)\|(%\w+)\s*,", statement):
        return [match[1], match[2]]
    return []


def _integer(text):
    try:
        return int(text, 0)
    except ValueError:
        return None


def _access(line, opcode, operands, block, numbers):
    parts = opcode.split(".")
    op = {"ldu": "ld"}.get(parts[0], parts[0])
    if op == "cp":
        op = "cp.async"
        if "commit_group" in parts or "wait_group" in parts or "wait_all" in parts or "mbarrier" in parts:
            return None
        if "bulk" in parts or "reduce" in parts:
            return None
    space = next((s for s in _SPACES if s in parts or any(p.startswith(f"{s}::") for p in parts)), "generic")
    if space in ("param", "const"):
        return None
    if op == "cp.async":
        space = "global"
    addresses = _PTX_ADDRESS.findall(operands)
    if not addresses:
        return None
    address = addresses[1] if op == "cp.async" and len(addresses) > 1 else addresses[0]
    register, _, plus = address.partition("+")
    base, offset = numbers.of(register)
    if plus:
        offset += _integer(plus) or 0
    return PtxAccess(line, op, space, _ptx_width(parts, operands), block, base, offset, opcode)


def _ptx_width(parts, operands):
    if parts[:2] == ["cp", "async"]:
        sizes = [_integer(p) for p in split_operands(operands)]
        return next((s for s in sizes if s in (4, 8, 16)), 16)
    if parts[0] in ("ldmatrix", "stmatrix"):
        return 16
    match = _TYPE_BYTES.search("." + parts[-1])
    bits = int(match[1]) if match else 32
    if "x2" in parts[-1]:
        bits = 32
    count = next((int(p[1:]) for p in parts if p in ("v2", "v4", "v8")), 1)
    return bits // 8 * count


# --- matching the two ----------------------------------------------------------------------------------------------


def access_sites(compiled, program=None) -> dict[int, AccessWidth]:
    """For each PTX line with a memory instruction, how ptxas performs it. Keys are 1-based PTX lines.

    compiled: needs `.ptx`, `.sass`, `.symbol`. program is not needed (the text is read) and kept for callers that pass it.
    """
    return match_accesses(ptx_accesses(compiled.ptx, compiled.symbol), memory_instructions(compiled.sass, compiled.symbol))


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
