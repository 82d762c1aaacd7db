"""One exchange of a warp at several places.

Lanes that wait at different places for the same instruction, with the same mask, execute it together: PTX asks of those whom a mask
names that they execute an instruction with the same qualifiers and the same mask, not that it is the same one. (So it is on an H100,
where WARPSYNC.COLLECTIVE gathers them.) Each place is then executed by its own lanes, while those of the others are its guests: their
sources stand in for what its registers hold of them.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from helpers.sim.code.program import Effect, Op
from helpers.sim.code.ptx import Immediate


@dataclass(frozen=True)
class LanesAtPlace:
    """Lanes (a mask) at such an instruction. values, undefined: of its sources, in order, and their undefined bits."""

    op: Op
    mask: np.ndarray
    values: tuple[np.ndarray, ...]
    undefined: tuple[np.ndarray | None, ...]


def together(m, places: Iterable[int]) -> dict[int, tuple[LanesAtPlace, list[LanesAtPlace]]]:
    """Of groups of lanes (by the blocks of code where they wait), those that execute their instructions with others: place ->
    (its own lanes, those of the others)."""
    alike = defaultdict(list)
    for place in places:
        op = m.program.ops[m.program.blocks[place].ops.start]
        if op.effect is Effect.EXCHANGE and op.members is not None and op.guard is None:
            alike[_kind(m, op)].append((place, _waiting(m, op, m.groups[place])))
    found = {}
    for group in alike.values():
        if len(group) > 1:
            found.update({place: (own, [other for at, other in group if at != place]) for place, own in group})
    return found


def _kind(m, op: Op) -> tuple:
    """What must be the same: the instruction, its literals, and how its sources are kept."""
    literals = tuple(repr(operand) if isinstance(operand, Immediate) else type(operand) for operand in op.instruction.operands[1:])
    return op.opcode, literals, tuple(m.regs[register].dtype.itemsize for register in op.sources)


def _waiting(m, op: Op, mask: np.ndarray) -> LanesAtPlace:
    bits = {} if m.undefined is None else m.undefined.bits
    return LanesAtPlace(op, mask, tuple(m.regs[register] for register in op.sources), tuple(bits.get(register) for register in op.sources))


@contextlib.contextmanager
def guests(m, own: LanesAtPlace, others: Sequence[LanesAtPlace]) -> Iterator[None]:
    """While this lasts, the lanes of the others take part in the instruction where `own` is: `m.guests`, [blocks, warps, 32]."""
    before = {register: m.regs[register] for register in own.op.sources}
    undefined = None if m.undefined is None else m.undefined.bits
    bits = {} if undefined is None else {register: undefined.get(register) for register in before}
    everybody = np.zeros((1,) * m.nd, bool)
    for other in others:
        everybody = everybody | other.mask
        for register, value, unknown in zip(own.op.sources, other.values, other.undefined, strict=True):
            m.regs[register] = np.where(other.mask, value.view(m.regs[register].dtype), m.regs[register])
            if undefined is not None:
                _put(undefined, register, other.mask, unknown)
    m.guests = m.warps(np.broadcast_to(everybody, m.shape), False)
    try:
        yield
    finally:
        m.guests = None
        for register, value in before.items():
            m.regs[register] = np.where(everybody, value, m.regs[register])
            if undefined is not None:
                _put(undefined, register, everybody, bits[register])


def _put(undefined: dict[int, np.ndarray], register: int, mask: np.ndarray, bits: np.ndarray | None) -> None:
    """Of the lanes of a mask, these bits of a register are undefined."""
    old = undefined.pop(register, None)
    if old is None and bits is None:
        return
    kind = (old if bits is None else bits).dtype
    none = np.zeros((), kind)
    new = np.where(mask, none if bits is None else bits, none if old is None else old.view(kind))
    if new.any():
        undefined[register] = new
