"""Comparisons, and predicates packed in registers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from helpers.sim.counting.machine_code.decoding import Immediate, Predicate, Register
from helpers.sim.counting.machine_code.values import LOW, TRUE, known, signed

from .handlers import float_operand, meaning_of, set_predicates, set_register, split_sources, without_sign

_COMPARE: dict[str, Callable] = {
    "LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal, "EQ": np.equal, "NE": np.not_equal,
}  # fmt: skip


def _combine(test, d, launch, extra):
    """Both results of a SETP: (test op extra), (not test op extra)."""
    if test is None or extra is None:
        return None, None
    if "OR" in d.modifiers:
        return test | extra, ~test | extra
    if "XOR" in d.modifiers:
        return test ^ extra, ~test ^ extra
    return test & extra, ~test & extra


@meaning_of("ISETP", "UISETP")
def _isetp(launch, d, mask):
    values, predicates = split_sources(d)
    a, b = launch.read(values[0]), launch.read(values[1])
    test = None
    name = next(m for m in _COMPARE if m in d.modifiers) if d.modifiers & set(_COMPARE) else None
    if name is None:
        test = None if not known(a, b) else np.full((1, 1, 1, 1), "T" in d.modifiers)
    elif known(a, b):
        a, b = a & LOW, b & LOW
        if "U32" not in d.modifiers:
            a, b = signed(a), signed(b)
        test = _COMPARE[name](a, b)
        if "EX" in d.modifiers:
            low = launch.condition(predicates[1])
            if low is None:
                test = None
            elif name == "NE":
                test = test | low
            elif name == "EQ":
                test = test & low
            else:
                test = _COMPARE[name[0] + "T"](a, b) | ((a == b) & low)
    set_predicates(launch, d, _combine(test, d, launch, launch.condition(predicates[0] if predicates else None)), mask)


@meaning_of("FSETP")
def _fsetp(launch, d, mask):
    values, predicates = split_sources(d)
    raw = [launch.read(without_sign(v)) for v in values[:2]]
    test = None
    if known(*raw):
        a, b = (float_operand(v, r) for v, r in zip(values, raw, strict=False))
        name = next((m for m in d.modifiers if m.rstrip("U") in _COMPARE or m in ("NUM", "NAN")), None)
        unordered = np.isnan(a) | np.isnan(b)
        if name == "NUM":
            test = ~unordered
        elif name == "NAN":
            test = unordered
        elif name is not None:
            ordered = _COMPARE[name.removesuffix("U")](a, b) & ~unordered
            test = ordered | unordered if name.endswith("U") else ordered
    set_predicates(launch, d, _combine(test, d, launch, launch.condition(predicates[0] if predicates else None)), mask)


@meaning_of("PLOP3", "UPLOP3")
def _plop3(launch, d, mask):
    predicates = [s for s in d.sources if isinstance(s, Predicate)]
    tables = [int(s.value) for s in d.sources if isinstance(s, Immediate)]
    inputs = [launch.condition(p) for p in predicates[:3]]
    if not known(*inputs):
        set_predicates(launch, d, (None, None), mask)
        return
    index = inputs[0] * 4 + inputs[1] * 2 + inputs[2] * 1
    set_predicates(launch, d, [(table >> index & 1).astype(bool) for table in tables], mask)


@meaning_of("P2R")
def _pack_predicates(launch, d, mask):
    """P2R Rd, PR, Ra, bits: predicates as bits of a register."""
    values, _ = split_sources(d)
    numbers = [v for v in values if not isinstance(v, str)]
    kept, bits = (launch.read(v) for v in numbers[-2:])
    flags = [launch.lookup(f"P{k}") if int(bits.item()) >> k & 1 else ~TRUE for k in range(7)]
    if not known(kept, *flags) or d.modifiers:
        set_register(launch, d, None, mask)
        return
    out = kept & ~bits
    for k, flag in enumerate(flags):
        out = out | flag.astype(np.int64) << k & bits
    set_register(launch, d, out, mask)


@meaning_of("R2P")
def _unpack_predicates(launch, d, mask):
    """R2P PR, Ra, bits."""
    values = [s for s in d.sources if isinstance(s, (Register, Immediate))]
    value, bits = launch.read(values[0]), int(launch.read(values[-1]).item())
    for k in range(7):
        if bits >> k & 1:
            launch.write(f"P{k}", None if value is None or d.modifiers else (value >> k & 1).astype(bool), mask)
