"""Integer arithmetic and logic."""

from __future__ import annotations

import functools
import operator

import numpy as np

from helpers.sim.code.sass_operands import SassPredicate
from helpers.sim.counting.machine_code.values import LOW, SIGN, TRUE, ZERO, in_all_lanes, known, lowest, signed

from .handlers import meaning_of, set_bits, set_carries, set_pair, set_predicates, set_register, split_sources, without_sign


@meaning_of("IADD3", "UIADD3", "VIADD", "UVIADD", "IADD")
def _iadd3(launch, i, mask):
    if "64" in i.modifiers:
        _iadd64(launch, i, mask)
        return
    values, predicates = split_sources(i)
    terms = [launch.read(v) for v in values]
    carries = [launch.condition(p) for p in predicates] if "X" in i.modifiers else []
    if not known(*terms, *carries):
        certain, bits = _low_bits(launch, values)
        set_bits(launch, i, 0 if carries else certain, sum(bits), mask)
        set_carries(launch, i, (None, None), mask)
        return
    total = sum(terms) + sum(c.astype(np.int64) for c in carries)
    set_carries(launch, i, (total >> 32 >= 1, total >> 32 >= 2), mask)
    set_register(launch, i, total, mask)


def _low_bits(launch, values) -> tuple[int, tuple]:
    """Which low bits of a sum or product of these operands are known, and the numbers to add and multiply."""
    certain, bits = zip(*map(launch.read_bits, values), strict=True)
    return lowest(functools.reduce(operator.and_, certain)), bits


def _iadd64(launch, i, mask):
    total = np.int64(0)
    for operand in (s for s in i.sources if not isinstance(s, SassPredicate)):
        low, high = launch.read_pair(without_sign(operand))
        if not known(low, high):
            set_pair(launch, i, None, mask)
            return
        value = low | high << 32
        total = total - value if "-" in getattr(operand, "sign", "") else total + value
    set_pair(launch, i, total, mask)


@meaning_of("IMAD", "UIMAD")
def _imad(launch, i, mask):
    values, predicates = split_sources(i)
    wide, high = "WIDE" in i.modifiers, "HI" in i.modifiers
    if "MOV" in i.modifiers:
        set_bits(launch, i, *launch.read_bits(values[-1]), mask)
        return
    a, b = launch.read(values[0]), launch.read(values[1])
    if wide or high:
        low, top = launch.read_pair(without_sign(values[2]))
        c = low | top << 32 if known(low, top) else None
        if c is not None and "-" in getattr(values[2], "sign", ""):
            c = -c
    else:
        c = launch.read(values[2])
    carry = launch.condition(predicates[-1]) if "X" in i.modifiers else np.zeros((1, 1, 1, 1), bool)
    if not known(a, b, c, carry):
        if wide or high or "X" in i.modifiers:
            set_register(launch, i, None, mask)
        else:
            certain, (a, b, c) = _low_bits(launch, values)
            set_bits(launch, i, certain, a * b + c, mask)
        if wide:
            set_register(launch, i, None, mask, 1)
        set_carries(launch, i, (None,), mask)
        return
    unsigned = "U32" in i.modifiers
    if wide or high:
        a, b = (a & LOW, b & LOW) if unsigned else (signed(a), signed(b))
        product = a * b  # int64 keeps the low 64 bits of either product
        total = product + c + carry
        outputs = [r for r in i.results if isinstance(r, SassPredicate)]
        if outputs:
            overflow = total.astype(np.uint64) < product.astype(np.uint64)
            set_carries(launch, i, (overflow,), mask)
        if wide:
            set_pair(launch, i, total, mask)
        else:
            set_register(launch, i, total >> 32, mask)
        return
    total = (a & LOW) * (b & LOW) + c + carry
    if any(isinstance(r, SassPredicate) for r in i.results):
        set_carries(launch, i, (None,), mask)
    set_register(launch, i, total, mask)


@meaning_of("LEA", "ULEA")
def _lea(launch, i, mask):
    values, predicates = split_sources(i)
    a, b = launch.read(values[0]), launch.read(values[1])
    high = "HI" in i.modifiers
    if high and "SX32" in i.modifiers:
        top, shift = (None if a is None else signed(a) >> 31 & LOW), launch.read(values[2])
    elif high:
        top, shift = launch.read(values[2]), launch.read(values[3])
    else:
        top, shift = ZERO, launch.read(values[2])
    carry = launch.condition(predicates[-1]) if "X" in i.modifiers else np.zeros((1, 1, 1, 1), bool)
    if not known(a, b, top, shift, carry):
        set_register(launch, i, None, mask)
        set_carries(launch, i, (None,), mask)
        return
    shift = shift & 31
    moved = ((a & LOW) | top << 32) << shift
    moved = moved >> 32 & LOW if high else moved & LOW
    total = moved + b + carry
    set_carries(launch, i, (total >> 32 >= 1,), mask)
    set_register(launch, i, total, mask)


@meaning_of("LOP3", "ULOP3")
def _lop3(launch, i, mask):
    """LOP3: a bit of the result is known if those that are unknown make no difference to it."""
    values, predicates = split_sources(i)
    sources, table = [launch.read_bits(v) for v in values[:3]], int(values[3].value)
    may_be = [(~bits | ~certain, bits | ~certain) for certain, bits in sources]  # clear, set
    out, certain = _may_set(table, *may_be), LOW
    if any(bits_known != LOW for bits_known, _ in sources):
        certain = in_all_lanes(LOW & ~(out & _may_set(~table, *may_be)))
    extra = launch.condition(predicates[0]) if predicates else ~TRUE
    test = None
    if certain == LOW and extra is not None:  # whether any bit is set, and (PAND) or or what the last operand says
        test = (out != 0) & extra if "PAND" in i.modifiers else (out != 0) | extra
    set_predicates(launch, i, (test,), mask)
    set_bits(launch, i, certain, out, mask)


def _may_set(table, a, b, c):
    """The bits that a table may set, from those of its sources that may be (clear, set)."""
    out = ZERO
    for k in range(8):
        if table >> k & 1:
            out = out | a[k >> 2 & 1] & b[k >> 1 & 1] & c[k & 1]
    return out & LOW


@meaning_of("SHF", "USHF")
def _shf(launch, i, mask):
    values, _ = split_sources(i)
    low, shift, high = (launch.read(v) for v in values[:3])
    if not known(low, shift, high):
        set_register(launch, i, None, mask)
        return
    wide = i.has("U64", "S64")
    limit = 63 if wide else 32
    shift = shift & 31 if "W" in i.modifiers and not wide else (shift & 63 if "W" in i.modifiers else np.minimum(shift & LOW, limit))
    low, high = low & LOW, high & LOW
    if "L" in i.modifiers:
        # High word of {high, low} << shift, or its low word.
        if "HI" in i.modifiers:
            out = (high << np.minimum(shift, 32)) | (low >> np.maximum(32 - shift, 0))
            out = np.where(shift > 32, low << np.maximum(shift - 32, 0), out)
        else:
            out = low << np.minimum(shift, 32)
    else:
        top = signed(high) if i.has("S32", "S64") else high
        if "HI" in i.modifiers:
            out = top >> np.minimum(shift, 63)
        else:
            out = np.where(
                shift >= 32, top >> np.maximum(shift - 32, 0), (low >> np.minimum(shift, 32)) | (high << np.maximum(32 - shift, 0))
            )
    set_register(launch, i, out, mask)


@meaning_of("IMNMX", "VIMNMX", "UVIMNMX")
def _minmax(launch, i, mask):
    values, predicates = split_sources(i)
    a, b, least = launch.read(values[0]), launch.read(values[1]), launch.condition(predicates[0])
    if not known(a, b, least):
        set_register(launch, i, None, mask)
        return
    a, b = (a & LOW, b & LOW) if "U32" in i.modifiers else (signed(a), signed(b))
    set_register(launch, i, np.where(least, np.minimum(a, b), np.maximum(a, b)), mask)


@meaning_of("IABS")
def _absolute(launch, i, mask):
    value = launch.read(i.sources[-1])
    set_register(launch, i, None if value is None else np.abs(signed(value)), mask)


@meaning_of("POPC", "UPOPC")
def _population(launch, i, mask):
    value = launch.read(i.sources[-1])
    set_register(launch, i, None if value is None else np.bitwise_count(value & LOW).astype(np.int64), mask)


@meaning_of("FLO", "UFLO")
def _leading(launch, i, mask):
    """FLO: index of the highest set bit (.SH: distance from bit 31); all ones if there is none."""
    value = launch.read(i.sources[0])
    out = None
    if value is not None:
        value = value & LOW
        if "U32" not in i.modifiers:
            value = np.where(value & SIGN, ~value & LOW, value)
        top = np.floor(np.log2(np.maximum(value, 1).astype(np.float64))).astype(np.int64)
        out = np.where(value == 0, LOW, 31 - top if "SH" in i.modifiers else top)
    set_register(launch, i, out, mask)


@meaning_of("VIADDMNMX")
def _add_minmax(launch, i, mask):
    """VIADDMNMX: the smaller (PT) or larger (!PT) of a + b and c."""
    values, predicates = split_sources(i)
    terms = [launch.read(v) for v in values]
    least = launch.condition(predicates[0]) if predicates else None
    if len(terms) != 3 or not known(*terms, least) or "RELU" in i.modifiers:
        set_register(launch, i, None, mask)
        return
    total, other = (terms[0] + terms[1]) & LOW, terms[2] & LOW
    if "U32" not in i.modifiers:
        total, other = signed(total), signed(other)
    set_register(launch, i, np.where(least, np.minimum(total, other), np.maximum(total, other)), mask)


@meaning_of("PRMT", "UPRMT")
def _permute(launch, i, mask):
    """PRMT: of a byte as much is known as of that it is taken from; of one full of its sign, all or nothing."""
    (certain_a, a), (certain_b, b) = launch.read_bits(i.sources[0]), launch.read_bits(i.sources[2])
    selector = launch.read(i.sources[1])
    if selector is None or i.modifiers:
        set_register(launch, i, None, mask)
        return
    certain = in_all_lanes(_permuted(np.int64(certain_a), np.int64(certain_b), selector))
    set_bits(launch, i, certain, _permuted(a, b, selector), mask)


def _permuted(a, b, selector):
    both, out = a | b << 32, np.int64(0)
    for k in range(4):
        pick = selector >> 4 * k & 15
        byte = both >> (pick & 7) * 8 & 0xFF
        out = out | np.where(pick & 8, np.where(byte & 0x80, 0xFF, 0), byte) << 8 * k
    return out


@meaning_of("SGXT", "USGXT")
def _sign_extend(launch, i, mask):
    value, bits = launch.read(i.sources[0]), launch.read(i.sources[1])
    out = None
    if known(value, bits):
        bits = bits & 31
        low = value & ((1 << bits) - 1)
        out = np.where(
            bits == 0, 0, low if "U32" in i.modifiers else (low ^ (1 << np.maximum(bits - 1, 0))) - (1 << np.maximum(bits - 1, 0))
        )
    set_register(launch, i, out, mask)


@meaning_of("BMSK", "UBMSK")
def _bitmask(launch, i, mask):
    begin, count = launch.read(i.sources[0]), launch.read(i.sources[1])
    out = None
    if known(begin, count):
        begin, count = np.minimum(begin & LOW, 32), np.minimum(count & LOW, 32)
        out = ((np.int64(1) << count) - 1) << begin
    set_register(launch, i, out, mask)
