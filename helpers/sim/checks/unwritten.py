"""Values that no thread has written, in registers, local and shared memory, where they come to decide something."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from helpers.errors import joined
from helpers.sim.code.declarations import UninitializedVariable, used_without_value
from helpers.sim.code.doubts import Ways, moves_memory, spaces_of
from helpers.sim.code.program import Op
from helpers.sim.code.sites import AccessKind, Site

from . import undefined_shuffles
from .findings import at
from .protocols import Machine

KIND = "uninitialized"
MEANING = {KIND: "a read of memory, or of a variable, that nobody wrote"}
BRANCH = "a branch depends on it"
ADVICE = "Give the variable a value where it is declared, on every way to its use."


@dataclass
class Read:
    """A read of shared memory that nobody has written, and an example of who does it."""

    message: str
    block: tuple[int, int, int] | None
    thread: tuple[int, int, int] | None
    advice: str

    def tell(self, m: Machine, site: Site, count: int) -> None:
        m.findings.add(
            KIND, site.line, self.message, block=self.block, thread=self.thread, advice=self.advice, count=count,
        )  # fmt: skip


@dataclass
class Carried:
    """What one load has read so. whole: has it read 16 bytes of which nobody has written any? told: the finding has been told."""

    read: Read
    count: int
    whole: bool
    told: bool = False


def is_carried(m: Machine, site: Site) -> bool:
    """Is it a load whose undefined bits can be followed from its registers on?"""
    return moves_memory(m.program.ops[site.pc], AccessKind.LOAD)


def is_stored(m: Machine, site: Site) -> bool:
    """Is it a store whose undefined bits can be followed into memory?"""
    return moves_memory(m.program.ops[site.pc], AccessKind.STORE)


def carry(m: Machine, site: Site, read: Read, count: int, whole: bool) -> None:
    """Remember what a load has read, until it decides something."""
    held = m.launch.carried.get(site)
    if held is None:
        m.launch.carried[site] = Carried(read, count, whole)
    elif held.told:
        read.tell(m, site, count)
    else:
        held.count += count
        if whole and not held.whole:
            held.read, held.whole = read, True


@functools.lru_cache(maxsize=8)
def _ways(program) -> Ways:
    return Ways(program.doubts, program.ops)


def _tell_reads(m: Machine, loads: list[Op], filler: bool = False) -> bool:
    """Tell of these loads from shared memory those that have read what nobody wrote. Have any?"""
    carried = [(load.sites[0], m.launch.carried[load.sites[0]]) for load in loads if load.sites[0] in m.launch.carried]
    for site, held in carried:
        if not held.told and (held.whole or not filler):
            held.told = True
            held.read.tell(m, site, held.count)
    return bool(carried)


def printed(m: Machine) -> None:
    """A printf takes undefined bits from local memory: the reads of shared memory that may have come there are told."""
    for op in m.program.ops:
        if moves_memory(op, AccessKind.STORE) and "local" in spaces_of(op.sites[0]):
            for register in op.reads:
                _tell_reads(m, _ways(m.program).origins(register).shared)


def note(m: Machine, op: Op, register: int, bad: np.ndarray, what: str, filler: bool = False) -> None:
    """An instruction uses a register with undefined bits in some threads (`bad`, per lane). what: what comes of them.

    filler: it is no mistake if the bits are what fills up a struct.
    """
    _, loads, shared, shuffles = _ways(m.program).origins(register)
    if _tell_reads(m, shared, filler) or undefined_shuffles.tell(m, shuffles, what, op.line, lets_go=what == BRANCH):
        return
    first = _first_use(m, op, register)
    array = first in loads
    declared = used_without_value(m.launch.source, first.line, array)
    names = joined([f"`{variable.name}`" for variable in declared], "or")
    if array:
        own = "an array of its own (local memory)"
        message = f"A thread reads an element of {f'{names}, {own}' if names else own}, which it has not written"
    else:
        message = f"A thread uses {names or 'a variable'} before it has a value"
    message += f", and {what}{at(op.line) if op.line != first.line else ''}."
    block, thread, _, count = m.example(bad, bad)
    m.findings.add(
        KIND, first.line, message, other_line=op.line if op.line != first.line else None,
        block=block, thread=thread, advice=_advice(declared, array), count=count,
    )  # fmt: skip


@functools.lru_cache(maxsize=8)
def _uses(program, source: str) -> dict[tuple[Op, int], Op]:
    """What `_first_use` has found. source: sources that differ in names alone are one program."""
    return {}


def _first_use(m: Machine, op: Op, register: int) -> Op:
    known = _uses(m.program, m.launch.source)
    if (op, register) not in known:
        known[op, register] = _look_for_first_use(m, op, register)
    return known[op, register]


def _look_for_first_use(m: Machine, op: Op, register: int) -> Op:
    """The instruction that brings the undefined value in: of those in lines that name a variable without a value, the first
    that computes with it, else the first that copies it."""
    registers, loads, *_ = _ways(m.program).origins(register)
    if loads and not registers:
        return loads[0]
    readers = [op, *(other for other in m.program.ops if not registers.isdisjoint(other.reads))]

    def order(other: Op) -> tuple:
        return not used_without_value(m.launch.source, other.line), other.bitwise, other.position > op.position, other.position

    return min(readers, key=order)


def _advice(declared: Sequence[UninitializedVariable], array: bool) -> str:
    shared = " If the threads of the block are to share it, declare it __shared__." if array else ""
    if len(declared) != 1:
        places = joined([f"`{variable.name}` (line {variable.line})" for variable in declared], "and")
        return (f"Look where {places} get their values: on every way to the use." if places else ADVICE) + shared
    (variable,) = declared
    if variable.extents:
        name, line, extents = variable
        return f"Give all elements of `{name}` a value first (line {line}), for example `{name}{extents} = {{}}`.{shared}"
    return f"Give `{variable.name}` a value where it is declared (line {variable.line}), for example `= 0`."
