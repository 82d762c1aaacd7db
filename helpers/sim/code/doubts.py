"""Which registers may hold nothing that a program has written, and which instructions that concerns.

A register is a candidate if some way from the entry reads it before it is written: `float sum;` without a value, or a value that
only some threads are given. Correct code has next to none, so what follows is next to nothing for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from . import cfg
from .program import Block, Effect, Op
from .sites import AccessKind, Site

SPACES = ("local", "param", "shared")  # memory that is followed as registers are


class Origins(NamedTuple):
    """registers: that nobody wrote. local, shared: loads from there. shuffles: from lanes that may take no part."""

    registers: set[int]
    local: list[Op]
    shared: list[Op]
    shuffles: list[Op]


@dataclass(frozen=True)
class Doubts:
    """registers: those that are read, on some way, before they are written. doubtful: these, and those that what they hold
    may come to (bits). spaces: memory in which it may come to lie. watched: positions of the instructions that have to do with it.
    followed: shared memory, too, begins unwritten, and its loads and shuffles from lanes that take no part are followed.
    """

    registers: tuple[int, ...] = ()
    doubtful: int = 0
    spaces: frozenset[str] = frozenset()
    watched: frozenset[int] = frozenset()
    followed: bool = False


class Ways:
    """The ways on which registers get what they hold, in a program with these doubts."""

    def __init__(self, doubts: Doubts, ops: Sequence[Op]):
        self.doubts = doubts
        self.writers: dict[int, list[Op]] = defaultdict(list)
        self.stored: dict[str, set[int]] = defaultdict(set)  # by space: registers that plain stores bring there
        for op in ops:
            for register in set(op.writes):
                self.writers[register].append(op)
            if moves_memory(op, AccessKind.STORE):
                for space in spaces_of(op.sites[0]):
                    self.stored[space].update(op.reads)
        self.known: dict[int, Origins] = {}

    def origins(self, register: int) -> Origins:
        """Where what a register holds may come from."""
        if register not in self.known:
            self.known[register] = self._look(register)
        return self.known[register]

    def _look(self, register: int) -> Origins:
        doubts, found, waiting = self.doubts, {register}, [register]
        loads: list[Op] = []
        shared: list[Op] = []
        shuffles: list[Op] = []
        while waiting:
            sources: set[int] = set()
            for op in self.writers.get(waiting.pop(), ()):
                if doubts.followed and op.shuffles:
                    shuffles.append(op)
                spaces = spaces_of(op.sites[0]) & doubts.spaces if moves_memory(op, AccessKind.LOAD) else frozenset()
                if "shared" in spaces:
                    shared.append(op)
                if "local" in spaces:
                    loads.append(op)
                if spaces - {"local"}:
                    sources.update(*(self.stored[space] for space in spaces))
                elif not op.sites:
                    sources.update(op.reads)
            new = {other for other in sources if doubts.doubtful >> other & 1} - found
            found |= new
            waiting += new
        return Origins(found & set(doubts.registers), loads, shared, shuffles)


def moves_memory(op: Op, kind: AccessKind) -> bool:
    """Is it a plain load, or a plain store, of whole registers?"""
    return op.bitwise and len(op.sites) == 1 and op.sites[0].op is kind


def spaces_of(site: Site) -> frozenset[str]:
    """The state spaces that an access may go to, of those that are followed."""
    if site.generic:
        return frozenset({"local", "shared"})
    return frozenset(SPACES) & {"shared" if site.space == "cluster" else site.space}


def doubts(ops: Sequence[Op], blocks: Sequence[Block], given: Iterable[int], local_bytes: int, followed: bool = False) -> Doubts:
    """given: registers that the machine fills in. local_bytes: of local memory, which begins unwritten. followed: as in `Doubts`."""
    if not blocks:
        return Doubts()
    unwritten = blocks[0].live_in & ~sum(1 << index for index in set(given))
    # What other instructions write to memory is not followed, so nothing can be said of it then.
    written_otherwise = [
        site
        for op in ops
        for site in op.sites
        if not site.op.only_reads and (not moves_memory(op, AccessKind.STORE) or site.space == "cluster")
    ]
    closed = frozenset().union(*map(spaces_of, written_otherwise))
    spaces = {"local"} - closed if local_bytes else set()
    if followed:  # what other instructions write there is told to the check of shared memory
        spaces, closed = spaces | {"shared"}, closed - {"shared"}
    if not unwritten and not spaces:
        return Doubts()
    doubtful, before = unwritten, None
    if followed:
        doubtful |= sum(1 << register for register in {register for op in ops if op.shuffles for register in op.writes})
    while before != (doubtful, len(spaces)):
        before = doubtful, len(spaces)
        for op in ops:
            reads = any(doubtful >> register & 1 for register in op.reads)
            if moves_memory(op, AccessKind.STORE):
                if reads:
                    spaces |= spaces_of(op.sites[0]) - closed
            elif moves_memory(op, AccessKind.LOAD):
                if spaces_of(op.sites[0]) & spaces:
                    doubtful |= sum(1 << register for register in op.writes)
            elif reads and op.effect in (Effect.PURE, Effect.EXCHANGE):
                doubtful |= sum(1 << register for register in op.writes)
    watched = frozenset(
        op.position
        for op in ops
        if any(doubtful >> register & 1 for register in (*op.reads, *op.writes))
        or (op.bitwise and any(spaces_of(site) & spaces for site in op.sites))
    )
    return Doubts(tuple(cfg.members(unwritten)), doubtful, frozenset(spaces), watched, followed)
