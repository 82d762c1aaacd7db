"""Comparisons, and predicates packed in registers."""

from __future__ import annotations

import numpy as np

from helpers.sim.code.sass_operands import SassImmediate, SassPredicate, SassRegister
from helpers.sim.counting.machine_code.values import LOW, TRUE, known, signed

from .handlers import (
    COMPARISONS,
    combined,
    comparison,
    float_operand,
    meaning_of,
    set_predicates,
    set_register,
    split_sources,
    without_sign,
)


@meaning_of("ISETP", "UISETP")
def _isetp(launch, i, mask):
    values, predicates = split_sources(i)
    a, b = launch.read(values[0]), launch.read(values[1])
    test = None
    name = next(m for m in COMPARISONS if m in i.modifiers) if i.has(*COMPARISONS) else None
    if name is None:
        test = None if not known(a, b) else np.full((1, 1, 1, 1), "T" in i.modifiers)
    elif known(a, b):
        a, b = a & LOW, b & LOW
        if "U32" not in i.modifiers:
            a, b = signed(a), signed(b)
        test = COMPARISONS[name](a, b)
        if "EX" in i.modifiers:
            low = launch.condition(predicates[1])
            if low is None:
                test = None
            elif name == "NE":
                test = test | low
            elif name == "EQ":
                test = test & low
            else:
                test = COMPARISONS[name[0] + "T"](a, b) | ((a == b) & low)
    set_predicates(launch, i, combined(test, i, launch.condition(predicates[0] if predicates else None)), mask)


@meaning_of("FSETP")
def _fsetp(launch, i, mask):
    values, predicates = split_sources(i)
    raw = [launch.read(without_sign(v)) for v in values[:2]]
    test = None
    if known(*raw):
        a, b = (float_operand(v, r) for v, r in zip(values, raw, strict=False))
        compare = next((comparison(name) for name in i.modifiers if comparison(name)), None)
        test = compare and compare(a, b)
    set_predicates(launch, i, combined(test, i, launch.condition(predicates[0] if predicates else None)), mask)


@meaning_of("PLOP3", "UPLOP3")
def _plop3(launch, i, mask):
    predicates = [s for s in i.sources if isinstance(s, SassPredicate)]
    tables = [int(s.value) for s in i.sources if isinstance(s, SassImmediate)]
    inputs = [launch.condition(p) for p in predicates[:3]]
    if not known(*inputs):
        set_predicates(launch, i, (None, None), mask)
        return
    index = inputs[0] * 4 + inputs[1] * 2 + inputs[2] * 1
    set_predicates(launch, i, [(table >> index & 1).astype(bool) for table in tables], mask)


@meaning_of("P2R")
def _pack_predicates(launch, i, mask):
    """P2R Rd, PR, Ra, bits: predicates as bits of a register."""
    values, _ = split_sources(i)
    numbers = [v for v in values if not isinstance(v, str)]
    kept, bits = (launch.read(v) for v in numbers[-2:])
    flags = [launch.lookup(f"P{k}") if int(bits.item()) >> k & 1 else ~TRUE for k in range(7)]
    if not known(kept, *flags) or i.modifiers:
        set_register(launch, i, None, mask)
        return
    out = kept & ~bits
    for k, flag in enumerate(flags):
        out = out | flag.astype(np.int64) << k & bits
    set_register(launch, i, out, mask)


@meaning_of("R2P")
def _unpack_predicates(launch, i, mask):
    """R2P PR, Ra, bits."""
    values = [s for s in i.sources if isinstance(s, (SassRegister, SassImmediate))]
    value, bits = launch.read(values[0]), int(launch.read(values[-1]).item())
    for k in range(7):
        if bits >> k & 1:
            launch.write(f"P{k}", None if value is None or i.modifiers else (value >> k & 1).astype(bool), mask)
