"""Operands of SASS instructions, from the text that nvdisasm prints."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class SassRegister:
    """R or UR (`file`) and a number; -1 is the zero register. sign: of '-', '~', '!' and '|', those that stand before it."""

    file: str
    number: int
    sign: str = ""
    suffix: str = ""

    @property
    def zero(self) -> bool:
        return self.number < 0

    def name(self, k: int = 0) -> str:
        """The name of the k-th register from this one on."""
        return f"{self.file}{self.number + k}"

    @functools.cached_property
    def scale(self) -> int:
        """What the register is multiplied by in an address: 8 of 'R4.X8'."""
        found = re.search(r"\.X(\d+)", self.suffix)
        return int(found[1]) if found else 1


@dataclass(frozen=True)
class SassPredicate:
    """name: 'P0', 'UP3', or 'T' for the constant."""

    name: str
    negated: bool


@dataclass(frozen=True)
class SassConstant:
    """A word of a constant bank."""

    bank: int
    offset: int
    sign: str = ""


@dataclass(frozen=True)
class SassIndexedConstant:
    """The same at an offset that a register adds to."""

    bank: int
    register: SassRegister
    offset: int


@dataclass(frozen=True)
class SassImmediate:
    value: int | float


@dataclass(frozen=True)
class SassJump:
    """Where BRX goes: a 64-bit register plus an offset from the next instruction; one of the labels."""

    register: SassRegister
    offset: int
    labels: tuple[str, ...]


@dataclass(frozen=True)
class SassAddress:
    """The sum in the last brackets of an operand."""

    parts: tuple[SassRegister, ...]
    offset: int
    text: str


# What it does not know, such as 'B0', 'SR_TID.X' or a label, stays text.
SassOperand = SassRegister | SassPredicate | SassConstant | SassIndexedConstant | SassImmediate | SassJump | SassAddress | str

_REGISTER = re.compile(r"^([-~!]?)(\|?)(U?R)(\d+|Z)\|?((?:\.\w+)*)$")
_PREDICATE = re.compile(r"^(!?)(U?P)(\d+|T)$")
_CONSTANT = re.compile(r"^([-~]?)\|?c\[(0x[0-9a-f]+)\]\[(0x[0-9a-f]+)\]\|?((?:\.\w+)*)$")
_INDEXED = re.compile(r"^c\[(0x[0-9a-f]+)\]\[(U?R(?:\d+|Z))(?:\+(-?0x[0-9a-f]+))?\]$")
_JUMP = re.compile(r"^(R\d+)\s+(-?0x[0-9a-f]+)?\s*\(\*\"BRANCH_TARGETS ([^\"]*)\"\*\)$")
_IN_BRACKETS = re.compile(r"(-?)(U?R\d+|U?RZ|0x[0-9a-f]+)((?:\.\w+)*)")


@functools.lru_cache(maxsize=1 << 14)
def operand(text: str) -> SassOperand:
    """One operand as nvdisasm prints it."""
    if match := _JUMP.match(text):
        return SassJump(operand(match[1]), int(match[2] or "0", 16), tuple(match[3].split(",")))
    if match := _PREDICATE.match(text):
        return SassPredicate("T" if match[3] == "T" else match[2] + match[3], bool(match[1]))
    if match := _REGISTER.match(text.replace(".reuse", "")):
        number = -1 if match[4] == "Z" else int(match[4])
        return SassRegister(match[3], number, match[1] + ("|" if match[2] else ""), match[5])
    if match := _CONSTANT.match(text):
        return SassConstant(int(match[2], 16), int(match[3], 16), match[1])
    if match := _INDEXED.match(text):
        return SassIndexedConstant(int(match[1], 16), operand(match[2]), int(match[3] or "0", 16))
    if re.fullmatch(r"-?0x[0-9a-f]+", text):
        return SassImmediate(int(text, 16))
    if re.fullmatch(r"[-+]?(\d+\.?\d*(e[-+]?\d+)?|INF|Inf|NAN|QNAN|SNAN)", text):
        return SassImmediate(float(text.replace("QNAN", "nan").replace("SNAN", "nan")))
    if text.endswith("]"):
        parts, offset = [], 0
        for sign, piece, suffix in _IN_BRACKETS.findall(text[text.rindex("[") + 1 : -1]):
            if piece.startswith("0x"):
                offset += -int(piece, 16) if sign else int(piece, 16)
            elif not piece.endswith("RZ"):
                file = piece.rstrip("0123456789")
                parts.append(SassRegister(file, int(piece[len(file) :]), sign, suffix))
        return SassAddress(tuple(parts), offset, text)
    return text


def registers_of(source: SassOperand | None, width: int = 1) -> list[str]:
    """Registers and predicates that a source names; width: how many registers it is, if it is one itself."""
    if isinstance(source, SassRegister) and not source.zero:
        return [source.name(k) for k in range(width)]
    if isinstance(source, SassPredicate) and source.name != "T":
        return [source.name]
    if isinstance(source, SassIndexedConstant) and not source.register.zero:
        return [source.register.name()]
    if isinstance(source, SassJump):
        return [source.register.name(), source.register.name(1)]
    if isinstance(source, SassAddress):
        return [p.name(k) for p in source.parts for k in range(2 if ".64" in p.suffix or p.file == "UR" else 1)]
    return []
