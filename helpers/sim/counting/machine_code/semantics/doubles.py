"""Doubles, as far as bounds of loops need them: ceil(K / 32.0) is a usual way to count tiles."""

from __future__ import annotations

import numpy as np

from helpers.sim.code.sass_operands import SassImmediate, SassRegister
from helpers.sim.counting.machine_code.values import LOW, known, pattern_of

from .handlers import combined, comparison, meaning_of, set_pair, set_predicates, set_register, split_sources, without_sign


def double_operand(launch, operand):
    """A 64-bit float, None if it is unknown."""
    if isinstance(operand, SassImmediate):
        return np.full((1, 1, 1, 1), float(operand.value))
    low, high = launch.read_pair(without_sign(operand))
    if not known(low, high):
        return None
    value = (low | high << 32).view(np.float64)
    sign = getattr(operand, "sign", "")
    value = np.abs(value) if "|" in sign else value
    return -value if "-" in sign else value


def upper_half(launch, operand):
    """The double whose upper half an operand is, with nothing below it; None if it is unknown."""
    if isinstance(operand, SassImmediate):
        return double_operand(launch, operand)
    upper = launch.read(without_sign(operand))
    return None if upper is None or operand.sign else (upper << 32).view(np.float64)


def set_double(launch, i, value, mask):
    """The result, in two registers; None makes it unknown."""
    set_pair(launch, i, None if value is None else np.asarray(value, np.float64).view(np.int64), mask)


def whole_operand(launch, i):
    """A source that is an integer of 32 or 64 bits, as int64 or uint64; None if it is unknown."""
    operand = i.sources[-1]
    if not i.has("S64", "U64"):
        value = launch.read(operand)
        return None if value is None else (value & LOW).astype(np.uint32 if "U32" in i.modifiers else np.int32, casting="unsafe")
    low, high = launch.read_pair(operand)
    return (low | high << 32).astype(np.uint64 if "U64" in i.modifiers else np.int64) if known(low, high) else None


def _arithmetic(meaning):
    """Arithmetic on doubles that are all known, rounded to nearest; rounded otherwise the result is unknown."""

    def run(launch, i, mask):
        values = [double_operand(launch, v) for v in split_sources(i)[0]]
        with np.errstate(all="ignore"):
            set_double(launch, i, meaning(*values) if known(*values) and not i.modifiers else None, mask)

    return run


def _fma(a, b, c):
    """a * b + c; rounded twice, where a GPU rounds once, unless the product is exact. Quotients are corrected with it, and then it is."""
    wide = np.longdouble
    return (a.astype(wide) * b.astype(wide) + c.astype(wide)).astype(np.float64)


meaning_of("DADD")(_arithmetic(np.add))
meaning_of("DMUL")(_arithmetic(np.multiply))
meaning_of("DFMA")(_arithmetic(_fma))


@meaning_of("DSETP")
def _compare(launch, i, mask):
    values, predicates = split_sources(i)
    a, b = (double_operand(launch, v) for v in values[:2])
    compare = next((comparison(name) for name in i.modifiers if comparison(name)), None)
    test = compare(a, b) if compare and known(a, b) else None
    set_predicates(launch, i, combined(test, i, launch.condition(predicates[0] if predicates else None)), mask)


@meaning_of("F2F")
def _between_floats(launch, i, mask):
    """Single to double and back, to nearest."""
    if i.modifiers[:2] == ("F64", "F32") and len(i.modifiers) == 2 and isinstance(i.sources[-1], SassRegister):
        value = launch.read(without_sign(i.sources[-1]))
        plain = None if value is None or i.sources[-1].sign else value.astype(np.uint32).view(np.float32).astype(np.float64)
        set_double(launch, i, plain, mask)
    elif i.modifiers[:2] == ("F32", "F64") and len(i.modifiers) == 2:
        value = double_operand(launch, i.sources[-1])
        with np.errstate(all="ignore"):
            set_register(launch, i, None if value is None else pattern_of(value.astype(np.float32), np.float32), mask)
    else:
        for name in i.writes:
            launch.write(name, None, mask)
