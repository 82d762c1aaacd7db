"""How an instruction's meaning is said: a handler per opcode, and how it reads and sets registers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from helpers.sim.code.sass_operands import SassConstant, SassPredicate, SassRegister
from helpers.sim.counting.machine_code.values import LOW, float_of

# Opcode -> handler(launch, decoded, mask): sets what the instruction writes, for the lanes of the mask; None makes it unknown.
HANDLERS: dict[str, Callable] = {}


COMPARISONS: dict[str, Callable] = {
    "LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal, "EQ": np.equal, "NE": np.not_equal,
}  # fmt: skip


def comparison(modifier: str) -> Callable | None:
    """What a modifier of a comparison of floats means: LT, with U true also of NaN, NUM, NAN; None for other modifiers."""

    def unordered(a, b):
        return np.isnan(a) | np.isnan(b)

    if modifier in ("NUM", "NAN"):
        return unordered if modifier == "NAN" else lambda a, b: ~unordered(a, b)
    compare = COMPARISONS.get(modifier.removesuffix("U"))
    if compare is None:
        return None
    if modifier.endswith("U"):
        return lambda a, b: compare(a, b) | unordered(a, b)
    return lambda a, b: compare(a, b) & ~unordered(a, b)


def combined(test, i, extra):
    """Both results of a SETP: (test op extra), (not test op extra)."""
    if test is None or extra is None:
        return None, None
    if "OR" in i.modifiers:
        return test | extra, ~test | extra
    if "XOR" in i.modifiers:
        return test ^ extra, ~test ^ extra
    return test & extra, ~test & extra


def meaning_of(*opcodes: str):
    """Register a handler for these opcodes."""

    def register(handler):
        if known := HANDLERS.keys() & opcodes:
            raise ValueError(f"{', '.join(sorted(known))} has two meanings")
        HANDLERS.update(dict.fromkeys(opcodes, handler))
        return handler

    return register


def set_predicates(launch, i, values, mask):
    for operand, value in zip(i.results, values, strict=False):
        if isinstance(operand, SassPredicate) and operand.name != "T":
            launch.write(operand.name, value, mask)


def set_carries(launch, i, values, mask):
    outputs = [r for r in i.results if isinstance(r, SassPredicate)]
    for operand, value in zip(outputs, values, strict=False):
        if operand.name != "T":
            launch.write(operand.name, value, mask)


def set_register(launch, i, value, mask, k=0):
    for operand in i.results:
        if isinstance(operand, SassRegister):
            if not operand.zero:
                launch.write(operand.name(k), None if value is None else value & LOW, mask)
            return


def set_bits(launch, i, certain, bits, mask):
    """A result of which these bits are known."""
    for operand in i.results:
        if isinstance(operand, SassRegister):
            if not operand.zero:
                launch.write_bits(operand.name(), certain, bits, mask)
            return


def set_pair(launch, i, value, mask):
    """A 64-bit result in two registers; the value may be any int64."""
    set_register(launch, i, value, mask)
    set_register(launch, i, None if value is None else value >> 32, mask, 1)


def split_sources(i):
    values = [s for s in i.sources if not isinstance(s, SassPredicate)]
    return values, [s for s in i.sources if isinstance(s, SassPredicate)]


def without_sign(operand):
    if isinstance(operand, SassRegister):
        return SassRegister(operand.file, operand.number)
    return SassConstant(operand.bank, operand.offset) if isinstance(operand, SassConstant) else operand


def float_operand(operand, raw):
    value = float_of(raw)
    sign = getattr(operand, "sign", "")
    value = np.abs(value) if "|" in sign else value
    return -value if "-" in sign else value
