"""Floats, as far as integer division and bounds of loops need them."""

from __future__ import annotations

import numpy as np

from helpers.sim.counting.machine_code.values import LOW, SIGN, float_of, pattern_of, signed

from .handlers import float_operand, meaning_of, set_register, without_sign


@meaning_of("I2F", "I2FP")
def _integer_to_float(launch, i, mask):
    value = launch.read(i.sources[-1])
    if value is None or i.has("F16", "F64", "S64", "U64", "S8", "U8", "S16", "U16"):
        for name in i.writes:
            launch.write(name, None, mask)
        return
    exact = (value & LOW) if "U32" in i.modifiers else signed(value)
    single = exact.astype(np.float64).astype(np.float32)
    for mode, wrong, towards in (("RP", np.less, np.inf), ("RM", np.greater, -np.inf)):
        if mode in i.modifiers:
            single = np.where(wrong(single.astype(np.float64), exact), np.nextafter(single, np.float32(towards)), single)
    set_register(launch, i, pattern_of(single, np.float32), mask)


@meaning_of("F2I")
def _float_to_integer(launch, i, mask):
    value = launch.read(i.sources[-1])
    if value is None or i.has("F16", "F64", "S64", "U64") or "TRUNC" not in i.modifiers:
        for name in i.writes:
            launch.write(name, None, mask)
        return
    exact = np.trunc(np.nan_to_num(float_of(value).astype(np.float64)))
    low, high = (0, LOW) if "U32" in i.modifiers else (-SIGN, SIGN - 1)
    set_register(launch, i, np.clip(exact, low, high).astype(np.int64), mask)


@meaning_of("MUFU")
def _reciprocal(launch, i, mask):
    """MUFU.RCP. Its last bit may differ; integer division by reciprocal corrects for that."""
    value = launch.read(without_sign(i.sources[-1])) if i.sources else None
    if value is None or "RCP" not in i.modifiers:
        set_register(launch, i, None, mask)
        return
    with np.errstate(divide="ignore", over="ignore"):
        out = np.float32(1) / float_operand(i.sources[-1], value)
    set_register(launch, i, pattern_of(out, np.float32), mask)
