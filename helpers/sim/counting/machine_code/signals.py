"""What threads and copies do to mbarriers, as a path has it: by warp, and by phase instead of by parity. Blocks of a cluster are taken to
do the same at the same time: what one of them does to another's mbarrier, that one does to its own."""

from __future__ import annotations

import enum
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from helpers.sim.code.sass import SassInstruction
from helpers.sim.code.sass_operands import SassAddress, SassRegister

_SIGNALS = ("mbarrier", "cp.async.mbarrier", "cp.async.bulk")  # operations
_BULK_STORES = "UTMASTG", "UTMAREDG", "UBLKRED"
_COUNTS = re.compile(r"A(\d|R)T(\d|[RX])")  # arrivals, bytes; R: so many as its last operand says, X: so many less
_RANKS = {f"{rank}D": rank for rank in range(1, 6)}
_INITIAL = 0x100000  # an mbarrier counts up to here: the lower word of one for n arrivals is twice (this - n)


class SignalKind(enum.Enum):
    """INIT: sets how many arrivals end a phase. ARRIVE: arrives, expects bytes, or both. LOOK: waits for a phase. LANDED: arrives once
    the cp.async of the thread are through. BULK: a copy that brings bytes. SENT: one that takes them to device memory, of which no
    mbarrier hears."""

    INIT = enum.auto()
    ARRIVE = enum.auto()
    LOOK = enum.auto()
    LANDED = enum.auto()
    BULK = enum.auto()
    SENT = enum.auto()


@dataclass(frozen=True)
class Signal:
    """One execution, for each warp of the block. places: where its mbarrier lies in shared memory, -1: it takes no part. arrivals: of all
    its lanes; of an INIT, those that end a phase. amounts: bytes that it expects, less those that it says are there; bytes that a copy
    brings; phases by which a LOOK waits for a later one than the warp's last LOOK at the mbarrier (the first one for phase 0, if for any).
    abroad: it reaches other blocks of the cluster, too.
    """

    places: tuple[int, ...]
    arrivals: tuple[int, ...]
    amounts: tuple[float, ...]
    abroad: bool = False


def kind_of(i: SassInstruction) -> SignalKind | None:
    """What an instruction does to an mbarrier, or copies in bulk; None where nothing."""
    if i.name in _BULK_STORES:
        return SignalKind.SENT
    if i.row.op not in _SIGNALS or i.has("CCTL"):
        return None
    if i.row.op == "cp.async.bulk":
        return SignalKind.SENT if i.modifiers[:2] == ("G", "S") else SignalKind.BULK
    if i.row.op == "cp.async.mbarrier":
        return SignalKind.LANDED
    return SignalKind.INIT if i.has("EXCH") else SignalKind.LOOK if i.has("PHASECHK") else SignalKind.ARRIVE


def place_of(i: SassInstruction) -> SassAddress:
    """Where the mbarrier of an instruction lies: of a copy in the register behind the one that says where to it copies."""
    first = next(s for s in i.sources if isinstance(s, SassAddress))
    if kind_of(i) is not SignalKind.BULK:
        return first
    part = first.parts[0]
    return SassAddress((type(part)(part.file, part.number + 1),), 0, first.text)


def coordinates(i: SassInstruction) -> tuple[SassRegister, ...]:
    """Registers that say which box of a tensor a copy brings: those behind the one that says which mbarrier hears of it."""
    part = place_of(i).parts[0]
    return tuple(type(part)(part.file, part.number + 1 + k) for k in range(next((_RANKS[m] for m in i.modifiers if m in _RANKS), 0)))


def counted(i: SassInstruction, word: int | None) -> tuple[int | None, int | None]:
    """(arrivals, bytes expected) of a thread; of an INIT, arrivals that end a phase. word: what its last operand holds, None where that is
    not known; what is in it is None then, too."""
    if i.row.op == "cp.async.mbarrier":
        return (0, -1) if i.has("TRANSCNT") else (1, 0)
    if i.has("EXCH"):
        return None if word is None else _INITIAL - (word >> 1), 0
    arrivals, amount = next((found.groups() for found in map(_COUNTS.fullmatch, i.modifiers) if found), ("1", "R"))
    of_word = {"R": word, "X": None if word is None else -word}
    return of_word[arrivals] if arrivals in of_word else int(arrivals), of_word[amount] if amount in of_word else int(amount)


def shared_out(expected: Sequence[float], copies: int) -> list[float]:
    """Bytes of each of so many copies, where these are expected, in order: each belongs to as many copies as another one."""
    if not expected or not copies:
        return [0.0] * copies
    if copies % len(expected) == 0:
        each = copies // len(expected)
        return [amount / each for amount in expected for _ in range(each)]
    if len(expected) % copies == 0:
        each = len(expected) // copies
        return [sum(expected[k * each : (k + 1) * each]) for k in range(copies)]
    return [sum(expected) / copies] * copies


class Phases:
    """Follows parities: by how many phases each look waits for a later one than the warp's last look at the same mbarrier."""

    def __init__(self) -> None:
        self.waited: dict[tuple[int, int], int] = defaultdict(lambda: -1)

    def begin(self, place: int) -> None:
        """An mbarrier is made, or made anew: its phases are 0, 1, … again."""
        for key in [key for key in self.waited if key[1] == place]:
            del self.waited[key]

    def advance(self, warp: int, place: int, parity: int | None) -> int:
        """parity: None where a token says which phase is meant, the one in which the warp arrived."""
        before = self.waited[warp, place]
        found = 1 if parity is None else (before & 1) ^ parity
        self.waited[warp, place] = before + found
        return found
