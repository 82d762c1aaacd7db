"""Moves, constants, special registers and spilled values."""

from __future__ import annotations

import numpy as np

from helpers.sim.code.sass_operands import SassConstant, SassImmediate, SassIndexedConstant, SassRegister
from helpers.sim.counting.machine_code.constants import LOCAL_WINDOW, SHARED_WINDOW
from helpers.sim.counting.machine_code.values import ZERO, signed

from .handlers import meaning_of, set_bits, set_predicates, set_register, split_sources


@meaning_of("MOV", "UMOV")
def _move(launch, i, mask):
    if "64" in i.modifiers:
        low, high = launch.read_pair(i.sources[0])
        set_register(launch, i, low, mask)
        set_register(launch, i, high, mask, 1)
        return
    set_bits(launch, i, *launch.read_bits(i.sources[0]), mask)


@meaning_of("LDC", "ULDC", "LDCU")
def _load_constant(launch, i, mask):
    source = i.sources[-1]
    count = 4 if "128" in i.modifiers else 2 if "64" in i.modifiers else 1
    for k in range(count):
        value = None
        narrow = i.has("U8", "U16", "S8", "S16")
        if isinstance(source, SassConstant):
            first = source.offset & 3 if narrow else 0
            value = launch.read(SassConstant(source.bank, source.offset - first + 4 * k))
            value = None if value is None else value >> 8 * first
        elif isinstance(source, SassIndexedConstant):
            value = _indexed_constant(launch, source, 4 * k)
        if value is not None and narrow:
            value = None if isinstance(source, SassIndexedConstant) else _narrowed(value, i.modifiers)
        set_register(launch, i, value, mask, k)


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
def _special(launch, i, mask):
    name = i.operands[-1]
    value = launch.special.get(name)
    set_register(launch, i, value, mask)
    if i.name == "CS2R" and "32" not in i.modifiers:
        set_register(launch, i, value, mask, 1)


@meaning_of("SEL", "USEL")
def _select(launch, i, mask):
    values, predicates = split_sources(i)
    which = launch.condition(predicates[0])
    a, b = launch.read_bits(values[0]), launch.read_bits(values[1])
    if which is None:
        set_register(launch, i, None, mask)
    elif which.size == 1:
        set_bits(launch, i, *(a if which.item() else b), mask)
    else:
        set_bits(launch, i, a[0] & b[0], np.where(which, a[1], b[1]), mask)


def narrow_bits(i) -> int:
    """How many bits of a word LDL and STL move that move less than one, else 0."""
    return 8 if i.has("U8", "S8") else 16 if i.has("U16", "S16") else 0


@meaning_of("STL")
def _store_local(launch, i, mask):
    """STL: spilled values stay known. A word is kept under its address; where that differs by thread, nothing stays known. Of a number of
    16 bits in a word of its own the upper half means nothing, though LDL may load that, too."""
    place, data, narrow = launch.stack_word(i), i.sources[-1], narrow_bits(i)
    words = 1 if narrow else i.width // 4
    if place is None or not words or i.index in launch.program.in_parts:
        launch.forget_stack(mask)
        return
    for k in range(words):
        register = data if data.zero else SassRegister(data.file, data.number + k)
        value = launch.read(register)
        if narrow and value is not None:
            before = launch.lookup(f"stack+{place}") if i.index in launch.program.over_words else ZERO
            value = None if before is None else before & ~((1 << narrow) - 1) | value & (1 << narrow) - 1
        launch.write(f"stack+{place + 4 * k}", value, mask)


@meaning_of("LDL")
def _load_local(launch, i, mask):
    narrow, known = narrow_bits(i), launch.private_stack and i.index not in launch.program.in_parts
    for k in range(max(1, i.width // 4)):
        value = launch.stack_value(i, k) if known else None
        set_register(launch, i, _narrowed(value, i.modifiers) if narrow and value is not None else value, mask, k)


@meaning_of("HFMA2")
def _half_constant(launch, i, mask):
    """HFMA2 of zeros and an immediate pair, which ptxas uses to make a constant."""
    values = list(i.sources)
    if (
        len(values) == 4
        and all(isinstance(v, SassRegister) and v.zero for v in values[:2])
        and all(isinstance(v, SassImmediate) for v in values[2:])
    ):
        high, low = (int(np.float16(v.value).view(np.uint16)) for v in values[2:])
        set_register(launch, i, np.full((1, 1, 1, 1), high << 16 | low, np.int64), mask)
        return
    set_register(launch, i, None, mask)


@meaning_of("QSPC")
def _space(launch, i, mask):
    """QSPC.E.S, .L: is a generic address one of shared memory, of local memory?"""
    place = launch.address(i.sources[0])
    window = SHARED_WINDOW if i.has("S") else LOCAL_WINDOW if i.has("L") else None
    set_predicates(launch, i, (None if place is None or window is None else place >> 32 == window,), mask)
    set_register(launch, i, None, mask)
