"""Values that no thread has written, in registers and local memory, where they come to decide something."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from helpers.sim.code.declarations import UninitializedVariable, used_without_value
from helpers.sim.code.program import Op

from .findings import at
from .protocols import Machine

KIND = "uninitialized"
MEANING = {KIND: "a read of memory, or of a variable, that nobody wrote"}
ADVICE = "Give the variable a value where it is declared, on every way to its use."


def note(m: Machine, op: Op, register: int, bad: np.ndarray, what: str) -> None:
    """An instruction uses a register with undefined bits in some threads (`bad`, per lane). what: what comes of them."""
    registers, loads = m.program.doubts.origins(m.program.ops, register)
    first = _first_use(m, op, registers, loads)
    array = first in loads
    declared = used_without_value(m.launch.source, first.line, array)
    names = _listed([f"`{variable.name}`" for variable in declared], "or")
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


def _first_use(m: Machine, op: Op, registers: set[int], loads: list[Op]) -> Op:
    """The instruction that brings the undefined value in: of those in lines that name a variable without a value, the first
    that computes with it, else the first that copies it."""
    if loads and not registers:
        return loads[0]
    readers = [op, *(other for other in m.program.ops if registers & set(other.reads))]

    def order(other: Op) -> tuple:
        return not used_without_value(m.launch.source, other.line), other.bitwise, other.position > op.position, other.position

    return min(readers, key=order)


def _advice(declared: Sequence[UninitializedVariable], array: bool) -> str:
    shared = " If the threads of the block are to share it, declare it __shared__." if array else ""
    if len(declared) != 1:
        places = _listed([f"`{variable.name}` (line {variable.line})" for variable in declared], "and")
        return (f"Look where {places} get their values: on every way to the use." if places else ADVICE) + shared
    (variable,) = declared
    if variable.extents:
        name, line, extents = variable
        return f"Give all elements of `{name}` a value first (line {line}), for example `{name}{extents} = {{}}`.{shared}"
    return f"Give `{variable.name}` a value where it is declared (line {variable.line}), for example `= 0`."


def _listed(names: list[str], word: str) -> str:
    """a, b or c"""
    return f" {word} ".join([part for part in (", ".join(names[:-1]), *names[-1:]) if part])
