"""Integer arithmetic and logic."""

from __future__ import annotations

import numpy as np

from helpers.sim.counting.machine_code.decoding import Predicate
from helpers.sim.counting.machine_code.values import LOW, SIGN, TRUE, ZERO, known, signed

from .handlers import meaning_of, set_carries, set_pair, set_predicates, set_register, split_sources, without_sign


@meaning_of("IADD3", "UIADD3", "VIADD", "UVIADD", "IADD")
def _iadd3(launch, d, mask):
    if "64" in d.modifiers:
        _iadd64(launch, d, mask)
        return
    values, predicates = split_sources(d)
    terms = [launch.read(v) for v in values]
    carries = [launch.condition(p) for p in predicates] if "X" in d.modifiers else []
    if not known(*terms, *carries):
        set_register(launch, d, None, mask)
        set_carries(launch, d, (None, None), mask)
        return
    total = sum(terms) + sum(c.astype(np.int64) for c in carries)
    set_carries(launch, d, (total >> 32 >= 1, total >> 32 >= 2), mask)
    set_register(launch, d, total, mask)


def _iadd64(launch, d, mask):
    total = np.int64(0)
    for operand in (s for s in d.sources if not isinstance(s, Predicate)):
        low, high = launch.read_pair(without_sign(operand))
        if not known(low, high):
            set_pair(launch, d, None, mask)
            return
        value = low | high << 32
        total = total - value if "-" in getattr(operand, "sign", "") else total + value
    set_pair(launch, d, total, mask)


@meaning_of("IMAD", "UIMAD")
def _imad(launch, d, mask):
    values, predicates = split_sources(d)
    wide, high = "WIDE" in d.modifiers, "HI" in d.modifiers
    if "MOV" in d.modifiers:
        set_register(launch, d, launch.read(values[-1]), mask)
        return
    a, b = launch.read(values[0]), launch.read(values[1])
    if wide or high:
        low, top = launch.read_pair(without_sign(values[2]))
        c = low | top << 32 if known(low, top) else None
        if c is not None and "-" in getattr(values[2], "sign", ""):
            c = -c
    else:
        c = launch.read(values[2])
    carry = launch.condition(predicates[-1]) if "X" in d.modifiers else np.zeros((1, 1, 1, 1), bool)
    if not known(a, b, c, carry):
        set_register(launch, d, None, mask)
        if wide:
            set_register(launch, d, None, mask, 1)
        set_carries(launch, d, (None,), mask)
        return
    unsigned = "U32" in d.modifiers
    if wide or high:
        a, b = (a & LOW, b & LOW) if unsigned else (signed(a), signed(b))
        product = a * b  # int64 keeps the low 64 bits of either product
        total = product + c + carry
        outputs = [r for r in d.results if isinstance(r, Predicate)]
        if outputs:
            overflow = total.astype(np.uint64) < product.astype(np.uint64)
            set_carries(launch, d, (overflow,), mask)
        if wide:
            set_pair(launch, d, total, mask)
        else:
            set_register(launch, d, total >> 32, mask)
        return
    total = (a & LOW) * (b & LOW) + c + carry
    if any(isinstance(r, Predicate) for r in d.results):
        set_carries(launch, d, (None,), mask)
    set_register(launch, d, total, mask)


@meaning_of("LEA", "ULEA")
def _lea(launch, d, mask):
    values, predicates = split_sources(d)
    a, b = launch.read(values[0]), launch.read(values[1])
    high = "HI" in d.modifiers
    if high and "SX32" in d.modifiers:
        top, shift = (None if a is None else signed(a) >> 31 & LOW), launch.read(values[2])
    elif high:
        top, shift = launch.read(values[2]), launch.read(values[3])
    else:
        top, shift = ZERO, launch.read(values[2])
    carry = launch.condition(predicates[-1]) if "X" in d.modifiers else np.zeros((1, 1, 1, 1), bool)
    if not known(a, b, top, shift, carry):
        set_register(launch, d, None, mask)
        set_carries(launch, d, (None,), mask)
        return
    shift = shift & 31
    moved = ((a & LOW) | top << 32) << shift
    moved = moved >> 32 & LOW if high else moved & LOW
    total = moved + b + carry
    set_carries(launch, d, (total >> 32 >= 1,), mask)
    set_register(launch, d, total, mask)


@meaning_of("LOP3", "ULOP3")
def _lop3(launch, d, mask):
    values, predicates = split_sources(d)
    sources, table = [launch.read(v) for v in values[:3]], int(values[3].value)
    if not known(*sources):
        # A mask with zero, or the like, may still decide the value.
        set_register(launch, d, None, mask)
        set_predicates(launch, d, (None,), mask)
        return
    a, b, c = (s & LOW for s in sources)
    out = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), np.int64)
    for k in range(8):
        if table >> k & 1:
            out = out | (a if k & 4 else ~a) & (b if k & 2 else ~b) & (c if k & 1 else ~c)
    out = out & LOW
    extra = launch.condition(predicates[0]) if predicates else ~TRUE
    test = None if extra is None else ((out != 0) & extra if "PAND" in d.modifiers else (out != 0) | extra)
    set_predicates(launch, d, (test,), mask)
    set_register(launch, d, out, mask)


@meaning_of("SHF", "USHF")
def _shf(launch, d, mask):
    values, _ = split_sources(d)
    low, shift, high = (launch.read(v) for v in values[:3])
    if not known(low, shift, high):
        set_register(launch, d, None, mask)
        return
    wide = bool(d.modifiers & {"U64", "S64"})
    limit = 63 if wide else 32
    shift = shift & 31 if "W" in d.modifiers and not wide else (shift & 63 if "W" in d.modifiers else np.minimum(shift & LOW, limit))
    low, high = low & LOW, high & LOW
    if "L" in d.modifiers:
        # High word of {high, low} << shift, or its low word.
        if "HI" in d.modifiers:
            out = (high << np.minimum(shift, 32)) | (low >> np.maximum(32 - shift, 0))
            out = np.where(shift > 32, low << np.maximum(shift - 32, 0), out)
        else:
            out = low << np.minimum(shift, 32)
    else:
        top = signed(high) if d.modifiers & {"S32", "S64"} else high
        if "HI" in d.modifiers:
            out = top >> np.minimum(shift, 63)
        else:
            out = np.where(
                shift >= 32, top >> np.maximum(shift - 32, 0), (low >> np.minimum(shift, 32)) | (high << np.maximum(32 - shift, 0))
            )
    set_register(launch, d, out, mask)


@meaning_of("IMNMX", "VIMNMX", "UVIMNMX")
def _minmax(launch, d, mask):
    values, predicates = split_sources(d)
    a, b, least = launch.read(values[0]), launch.read(values[1]), launch.condition(predicates[0])
    if not known(a, b, least):
        set_register(launch, d, None, mask)
        return
    a, b = (a & LOW, b & LOW) if "U32" in d.modifiers else (signed(a), signed(b))
    set_register(launch, d, np.where(least, np.minimum(a, b), np.maximum(a, b)), mask)


@meaning_of("IABS")
def _absolute(launch, d, mask):
    value = launch.read(d.sources[-1])
    set_register(launch, d, None if value is None else np.abs(signed(value)), mask)


@meaning_of("POPC", "UPOPC")
def _population(launch, d, mask):
    value = launch.read(d.sources[-1])
    set_register(launch, d, None if value is None else np.bitwise_count(value & LOW).astype(np.int64), mask)


@meaning_of("FLO", "UFLO")
def _leading(launch, d, mask):
    """FLO: index of the highest set bit (.SH: distance from bit 31); all ones if there is none."""
    value = launch.read(d.sources[0])
    out = None
    if value is not None:
        value = value & LOW
        if "U32" not in d.modifiers:
            value = np.where(value & SIGN, ~value & LOW, value)
        top = np.floor(np.log2(np.maximum(value, 1).astype(np.float64))).astype(np.int64)
        out = np.where(value == 0, LOW, 31 - top if "SH" in d.modifiers else top)
    set_register(launch, d, out, mask)


@meaning_of("VIADDMNMX")
def _add_minmax(launch, d, mask):
    """VIADDMNMX: the smaller (PT) or larger (!PT) of a + b and c."""
    values, predicates = split_sources(d)
    terms = [launch.read(v) for v in values]
    least = launch.condition(predicates[0]) if predicates else None
    if len(terms) != 3 or not known(*terms, least) or "RELU" in d.modifiers:
        set_register(launch, d, None, mask)
        return
    total, other = (terms[0] + terms[1]) & LOW, terms[2] & LOW
    if "U32" not in d.modifiers:
        total, other = signed(total), signed(other)
    set_register(launch, d, np.where(least, np.minimum(total, other), np.maximum(total, other)), mask)


@meaning_of("PRMT", "UPRMT")
def _permute(launch, d, mask):
    a, selector, b = (launch.read(s) for s in d.sources[:3])
    if not known(a, selector, b) or d.modifiers:
        set_register(launch, d, None, mask)
        return
    both = (a & LOW) | (b & LOW) << 32
    out = np.int64(0)
    for k in range(4):
        pick = selector >> 4 * k & 15
        byte = both >> (pick & 7) * 8 & 0xFF
        out = out | np.where(pick & 8, np.where(byte & 0x80, 0xFF, 0), byte) << 8 * k
    set_register(launch, d, out, mask)


@meaning_of("SGXT", "USGXT")
def _sign_extend(launch, d, mask):
    value, bits = launch.read(d.sources[0]), launch.read(d.sources[1])
    out = None
    if known(value, bits):
        bits = bits & 31
        low = value & ((1 << bits) - 1)
        out = np.where(
            bits == 0, 0, low if "U32" in d.modifiers else (low ^ (1 << np.maximum(bits - 1, 0))) - (1 << np.maximum(bits - 1, 0))
        )
    set_register(launch, d, out, mask)


@meaning_of("BMSK", "UBMSK")
def _bitmask(launch, d, mask):
    begin, count = launch.read(d.sources[0]), launch.read(d.sources[1])
    out = None
    if known(begin, count):
        begin, count = np.minimum(begin & LOW, 32), np.minimum(count & LOW, 32)
        out = ((np.int64(1) << count) - 1) << begin
    set_register(launch, d, out, mask)
