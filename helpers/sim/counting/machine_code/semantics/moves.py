"""Moves, constants, special registers and spilled values."""

from __future__ import annotations

import numpy as np

from helpers.sim.code.sass import sass_width
from helpers.sim.counting.machine_code.decoding import Constant, Immediate, IndexedConstant, Register
from helpers.sim.counting.machine_code.values import LOW, known, signed

from .handlers import meaning_of, set_register, split_sources


@meaning_of("MOV", "UMOV")
def _move(launch, d, mask):
    if "64" in d.modifiers:
        low, high = launch.read_pair(d.sources[0])
        set_register(launch, d, low, mask)
        set_register(launch, d, high, mask, 1)
        return
    set_register(launch, d, launch.read(d.sources[0]), mask)


@meaning_of("LDC", "ULDC", "LDCU")
def _load_constant(launch, d, mask):
    source = d.sources[-1]
    count = 4 if "128" in d.modifiers else 2 if "64" in d.modifiers else 1
    for k in range(count):
        value = None
        if isinstance(source, Constant):
            value = launch.read(Constant(source.bank, source.offset + 4 * k))
        elif isinstance(source, IndexedConstant):
            value = _indexed_constant(launch, source, 4 * k)
        if value is not None and d.modifiers & {"U8", "U16", "S8", "S16"}:
            value = None if isinstance(source, IndexedConstant) or source.offset % 4 else _narrowed(value, d.modifiers)
        set_register(launch, d, value, mask, k)


def _indexed_constant(launch, source, more):
    """A word of a constant bank at a computed offset, or None if a lane asks for an unknown one."""
    index = launch.read(source.register)
    if index is None:
        return None
    offsets, inverse = np.unique(signed(index) + source.offset + more, return_inverse=True)
    words = [launch.constants.get((source.bank, int(offset))) for offset in offsets]
    if any(word is None for word in words):
        return None
    return np.array(words, np.int64)[inverse].reshape(index.shape)


def _narrowed(value, modifiers):
    if "U8" in modifiers:
        return value & 0xFF
    if "U16" in modifiers:
        return value & 0xFFFF
    bits = 8 if "S8" in modifiers else 16
    return ((value & (1 << bits) - 1) ^ 1 << bits - 1) - (1 << bits - 1)


@meaning_of("S2R", "S2UR", "CS2R")
def _special(launch, d, mask):
    name = d.instruction.operands[-1]
    value = launch.special.get(name)
    set_register(launch, d, value, mask)
    if d.instruction.name == "CS2R" and "32" not in d.modifiers:
        set_register(launch, d, value, mask, 1)


@meaning_of("SEL", "USEL")
def _select(launch, d, mask):
    values, predicates = split_sources(d)
    which = launch.condition(predicates[0])
    a, b = launch.read(values[0]), launch.read(values[1])
    if which is not None and which.size == 1:
        value = a if which.item() else b
    else:
        value = np.where(which, a & LOW, b & LOW) if known(which, a, b) else None
    set_register(launch, d, value, mask)


@meaning_of("STL")
def _store_local(launch, d, mask):
    """STL: spilled values stay known. A word is kept under its address; where that differs by thread, nothing stays known."""
    place, data = launch.stack_word(d), d.sources[-1]
    words = sass_width(d.instruction.opcode) // 4
    if place is None or not words or d.modifiers & {"U8", "S8", "U16", "S16"}:
        launch.forget_stack(mask)
        return
    for k in range(words):
        register = data if data.zero else Register(data.file, data.number + k)
        value = launch.read(register)
        launch.write(f"stack+{place + 4 * k}", value, mask)


@meaning_of("LDL")
def _load_local(launch, d, mask):
    place = launch.stack_word(d)
    partial = d.modifiers & {"U8", "S8", "U16", "S16"}
    for k in range(max(1, sass_width(d.instruction.opcode) // 4)):
        known = place is not None and not partial and launch.program.private_stack
        value = launch.lookup(f"stack+{place + 4 * k}") if known else None
        set_register(launch, d, value, mask, k)


@meaning_of("HFMA2")
def _half_constant(launch, d, mask):
    """HFMA2 of zeros and an immediate pair, which ptxas uses to make a constant."""
    values = list(d.sources)
    if (
        len(values) == 4
        and all(isinstance(v, Register) and v.zero for v in values[:2])
        and all(isinstance(v, Immediate) for v in values[2:])
    ):
        high, low = (int(np.float16(v.value).view(np.uint16)) for v in values[2:])
        set_register(launch, d, np.full((1, 1, 1, 1), high << 16 | low, np.int64), mask)
        return
    set_register(launch, d, None, mask)
