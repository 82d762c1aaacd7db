"""Operands of SASS instructions, and what an instruction reads and writes."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from helpers.sim.code.sass import Instruction, sass_width

_REGISTER = re.compile(r"^([-~!]?)(\|?)(U?R)(\d+|Z)\|?((?:\.\w+)*)$")
_PREDICATE = re.compile(r"^(!?)(U?P)(\d+|T)$")
_CONSTANT = re.compile(r"^([-~]?)\|?c\[(0x[0-9a-f]+)\]\[(0x[0-9a-f]+)\]\|?((?:\.\w+)*)$")
_INDEXED = re.compile(r"^c\[(0x[0-9a-f]+)\]\[(U?R(?:\d+|Z))(?:\+(-?0x[0-9a-f]+))?\]$")
_JUMP = re.compile(r"^(R\d+)\s+(-?0x[0-9a-f]+)?\s*\(\*\"BRANCH_TARGETS ([^\"]*)\"\*\)$")
_IN_BRACKETS = re.compile(r"(-?)(U?R\d+|U?RZ|0x[0-9a-f]+)((?:\.\w+)*)")


@dataclass(frozen=True)
class Register:
    file: str
    number: int  # -1: the zero register
    sign: str = ""
    suffix: str = ""

    @property
    def zero(self) -> bool:
        return self.number < 0

    def name(self, k: int = 0) -> str:
        return f"{self.file}{self.number + k}"


@dataclass(frozen=True)
class Predicate:
    name: str  # 'P0', 'UP3', or 'T' for the constant
    negated: bool


@dataclass(frozen=True)
class Constant:
    bank: int
    offset: int
    sign: str = ""


@dataclass(frozen=True)
class IndexedConstant:
    bank: int
    register: Register
    offset: int


@dataclass(frozen=True)
class Immediate:
    value: int | float


@dataclass(frozen=True)
class Jump:
    """Where BRX goes: a 64-bit register plus an offset from the next instruction; one of the labels."""

    register: Register
    offset: int
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Address:
    parts: tuple[Register, ...]
    offset: int
    text: str


@functools.lru_cache(maxsize=1 << 14)
def operand_of(text: str):
    if match := _JUMP.match(text):
        return Jump(operand_of(match[1]), int(match[2] or "0", 16), tuple(match[3].split(",")))
    if match := _PREDICATE.match(text):
        name = "T" if match[3] == "T" else match[2] + match[3]
        return Predicate(name, bool(match[1]))
    if match := _REGISTER.match(text.replace(".reuse", "")):
        number = -1 if match[4] == "Z" else int(match[4])
        return Register(match[3], number, match[1] + ("|" if match[2] else ""), match[5])
    if match := _CONSTANT.match(text):
        return Constant(int(match[2], 16), int(match[3], 16), match[1])
    if match := _INDEXED.match(text):
        return IndexedConstant(int(match[1], 16), operand_of(match[2]), int(match[3] or "0", 16))
    if re.fullmatch(r"-?0x[0-9a-f]+", text):
        return Immediate(int(text, 16))
    if re.fullmatch(r"[-+]?(\d+\.?\d*(e[-+]?\d+)?|INF|Inf|NAN|QNAN|SNAN)", text):
        return Immediate(float(text.replace("QNAN", "nan").replace("SNAN", "nan")))
    if text.endswith("]"):
        inner = text[text.rindex("[") + 1 : -1]
        parts, offset = [], 0
        for sign, piece, suffix in _IN_BRACKETS.findall(inner):
            if piece.startswith("0x"):
                offset += -int(piece, 16) if sign else int(piece, 16)
            elif not piece.endswith("RZ"):
                file = piece.rstrip("0123456789")
                parts.append(Register(file, int(piece[len(file) :]), sign, suffix))
        return Address(tuple(parts), offset, text)
    return text


# --- what an instruction reads and writes ----------------------------------------------------------------------------

ONLY_PREDICATES = {"ISETP", "UISETP", "FSETP", "DSETP", "HSETP2", "PLOP3", "UPLOP3", "R2P", "FCHK", "UR2UP"}
NO_RESULT = {
    "STG", "STS", "STL", "ST", "STSM", "RED", "REDG", "REDS", "LDGSTS", "BAR", "MEMBAR", "BRA", "EXIT", "BSSY", "BSYNC", "WARPSYNC",
    "NOP", "DEPBAR", "LDGDEPBAR", "LDGMC", "ERRBAR", "CCTL", "CCTLL", "CCTLT", "CALL", "RET", "JMP", "BRX", "YIELD", "KILL", "NANOSLEEP",
    "BREAK", "ARRIVES", "FENCE", "UBLKCP", "UTMALDG", "UTMASTG", "UTMAPF", "UTMACMDFLUSH", "UTMAREDG", "WARPGROUP", "USETMAXREG",
    "ACQBULK", "PREEXIT", "BPT", "UCGABAR_ARV", "UCGABAR_WAIT", "UTMACCTL", "ENDCOLLECTIVE", "RPCMOV", "UBLKRED", "UBLKPF",
}  # fmt: skip
ENDS = {"BRA", "EXIT", "BSYNC", "WARPSYNC", "CALL", "RET", "BRX", "BRXU", "JMP", "JMX", "JMXU", "KILL", "BPT", "ENDCOLLECTIVE"}


def result_count(name: str, opcode: str) -> int:
    """How many consecutive registers an instruction may write."""
    parts = opcode.split(".")
    if name in ("HGMMA", "QGMMA", "IGMMA", "BGMMA"):
        shape = re.search(r"\d+x(\d+)x\d+", opcode)
        return int(shape[1]) // 2 if shape else 128
    if name in ("HMMA", "IMMA", "DMMA", "QMMA", "OMMA", "BMMA"):
        return 4
    if name in ("LDSM", "ATOM", "ATOMG", "ATOMS", "LDG", "LDS", "LDL", "LD"):
        return 4 if name == "LDSM" else max(1, sass_width(opcode) // 4)
    if "128" in parts and name in ("ULDC", "LDC", "LDCU"):
        return 4
    if name in ("SHF", "USHF"):
        return 1  # .U64 is what it shifts, not what it gives
    if name in ("F2I", "I2F", "I2FP"):
        return 2 if {"F2I": {"S64", "U64"}}.get(name, {"F64"}) & set(parts) else 1
    if name == "F2F":
        return 2 if next((part for part in parts if part in ("F16", "BF16", "F32", "F64")), "") == "F64" else 1
    if "WIDE" in parts or "64" in parts or "U64" in parts or "S64" in parts or "F64" in parts:
        return 2
    if name in ("DADD", "DMUL", "DFMA", "DMNMX", "IADD64"):
        return 2
    if name == "CS2R":
        return 1 if "32" in parts else 2
    return 1


@dataclass(frozen=True)
class Decoded:
    """An instruction with parsed operands, and the names of what it reads and writes."""

    instruction: Instruction
    guard: Predicate | None
    results: tuple[object, ...]  # leading operands that it writes, as printed
    sources: tuple[object, ...]
    writes: frozenset[str]
    reads: frozenset[str]
    modifiers: frozenset[str]

    @functools.cached_property
    def addressing(self) -> tuple[str, ...]:
        """What decides which bytes a memory instruction reaches."""
        deciding = [s for s in self.sources if isinstance(s, Address) or (isinstance(s, Predicate) and self.instruction.name == "LDGSTS")]
        return tuple(name for source in deciding for name in read_names(source))


def decode(instruction: Instruction) -> Decoded:
    operands = [operand_of(text) for text in instruction.operands]
    name = instruction.name
    results = 0
    if name not in NO_RESULT:
        while results < len(operands) and isinstance(operands[results], Predicate) and not operands[results].negated:
            if name in ONLY_PREDICATES and results == (1 if name in ("FCHK", "R2P") else 2):
                break
            results += 1
        if name not in ONLY_PREDICATES and results < len(operands) and isinstance(operands[results], Register):
            results += 1
            # IADD3, LEA, IMAD.WIDE and LOP3 name their carries or predicates after the register.
            if results == 1 and name in ("IADD3", "UIADD3", "LEA", "ULEA", "IMAD", "UIMAD", "VIADDMNMX", "VIMNMX"):
                while results < len(operands) and isinstance(operands[results], Predicate) and not operands[results].negated:
                    results += 1
    count = result_count(name, instruction.opcode)
    writes = set()
    for operand in operands[:results]:
        if isinstance(operand, Register) and not operand.zero:
            writes.update(operand.name(k) for k in range(count))
        elif isinstance(operand, Predicate) and operand.name != "T":
            writes.add(operand.name)
    if name == "R2P":
        writes = {f"P{k}" for k in range(7)}
    if name in ("VOTE", "VOTEU"):
        writes -= {o.name for o in operands[-1:] if isinstance(o, Predicate)} if results == len(operands) else set()
        results = min(results, len(operands) - 1)
        for operand in operands[:results]:
            if isinstance(operand, Predicate) and operand.name != "T":
                writes.add(operand.name)
    if name in ("BSSY", "BMOV"):
        writes.update(o for o in operands if isinstance(o, str) and re.fullmatch(r"B\d+", o))
    guard = operand_of(instruction.guard) if instruction.guard else None
    reads = set()
    sources = operands[results:]
    for operand, width in zip(sources, source_widths(name, instruction.opcode, sources), strict=True):
        reads.update(read_names(operand, width))
    reads.update(read_names(guard))
    if name == "P2R":
        reads.update(f"P{k}" for k in range(7))
    return Decoded(
        instruction, guard, tuple(operands[:results]), tuple(operands[results:]), frozenset(writes), frozenset(reads),
        frozenset(instruction.opcode.split(".")[1:]),
    )  # fmt: skip


def source_widths(name, opcode, sources):
    """How many registers each source is, if it is one. (One too many only makes the slice larger.)"""
    if name in ("IMAD", "UIMAD"):
        if ".WIDE" not in opcode and ".HI" not in opcode:
            return [1] * len(sources)
        values = [k for k, source in enumerate(sources) if not isinstance(source, Predicate)]
        return [2 if k == values[2] else 1 for k in range(len(sources))]  # the addend
    wide = (name not in ("SHF", "USHF") and "64" in opcode) or name.startswith("D")
    return [4 if name == "STL" and "128" in opcode else 2 if wide else 1] * len(sources)


def read_names(operand, width=1):
    """Registers that an operand names; width: how many, if it is a register itself."""
    if isinstance(operand, Register) and not operand.zero:
        return [operand.name(k) for k in range(width)]
    if isinstance(operand, Predicate) and operand.name != "T":
        return [operand.name]
    if isinstance(operand, IndexedConstant) and not operand.register.zero:
        return [operand.register.name()]
    if isinstance(operand, Jump):
        return [operand.register.name(), operand.register.name(1)]
    if isinstance(operand, Address):
        return [p.name(k) for p in operand.parts for k in range(2 if ".64" in p.suffix or p.file == "UR" else 1)]
    return []
