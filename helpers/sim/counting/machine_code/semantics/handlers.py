"""How an instruction's meaning is said: a handler per opcode, and how it reads and sets registers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from helpers.sim.counting.machine_code.decoding import Constant, Predicate, Register
from helpers.sim.counting.machine_code.values import LOW, float_of

# Opcode -> handler(launch, decoded, mask): sets what the instruction writes, for the lanes of the mask; None makes it unknown.
HANDLERS: dict[str, Callable] = {}


def meaning_of(*opcodes: str):
    """Register a handler for these opcodes."""

    def register(handler):
        HANDLERS.update(dict.fromkeys(opcodes, handler))
        return handler

    return register


def set_predicates(launch, d, values, mask):
    for operand, value in zip(d.results, values, strict=False):
        if isinstance(operand, Predicate) and operand.name != "T":
            launch.write(operand.name, value, mask)


def set_carries(launch, d, values, mask):
    outputs = [r for r in d.results if isinstance(r, Predicate)]
    for operand, value in zip(outputs, values, strict=False):
        if operand.name != "T":
            launch.write(operand.name, value, mask)


def set_register(launch, d, value, mask, k=0):
    for operand in d.results:
        if isinstance(operand, Register):
            if not operand.zero:
                launch.write(operand.name(k), None if value is None else value & LOW, mask)
            return


def set_pair(launch, d, value, mask):
    """A 64-bit result in two registers; the value may be any int64."""
    set_register(launch, d, value, mask)
    set_register(launch, d, None if value is None else value >> 32, mask, 1)


def split_sources(d):
    values = [s for s in d.sources if not isinstance(s, Predicate)]
    return values, [s for s in d.sources if isinstance(s, Predicate)]


def without_sign(operand):
    if isinstance(operand, Register):
        return Register(operand.file, operand.number)
    return Constant(operand.bank, operand.offset) if isinstance(operand, Constant) else operand


def float_operand(operand, raw):
    value = float_of(raw)
    sign = getattr(operand, "sign", "")
    value = np.abs(value) if "|" in sign else value
    return -value if "-" in sign else value
