"""Floats, as far as integer division and bounds of loops need them: float32 rounded to nearest, and 16-bit floats that are compared."""

from __future__ import annotations

import numpy as np

from helpers.sim.code.sass_operands import SassConstant, SassRegister
from helpers.sim.counting.machine_code.values import LOW, SIGN, known, pattern_of, signed

from .doubles import double_operand, set_double, upper_half, whole_operand
from .handlers import combined, comparison, float_operand, meaning_of, set_pair, set_predicates, set_register, split_sources, without_sign


@meaning_of("I2F", "I2FP")
def _integer_to_float(launch, i, mask):
    narrow = i.has("F16", "S8", "U8", "S16", "U16")
    if i.has("F64") and not narrow and "RP" not in i.modifiers and "RM" not in i.modifiers:
        whole = whole_operand(launch, i)
        set_double(launch, i, None if whole is None else whole.astype(np.float64), mask)
        return
    value = launch.read(i.sources[-1])
    if value is None or narrow or i.has("F64", "S64", "U64"):
        for name in i.writes:
            launch.write(name, None, mask)
        return
    exact = (value & LOW) if "U32" in i.modifiers else signed(value)
    single = exact.astype(np.float64).astype(np.float32)
    for mode, wrong, towards in (("RP", np.less, np.inf), ("RM", np.greater, -np.inf)):
        if mode in i.modifiers:
            single = np.where(wrong(single.astype(np.float64), exact), np.nextafter(single, np.float32(towards)), single)
    set_register(launch, i, pattern_of(single, np.float32), mask)


_ROUNDINGS = {"TRUNC": np.trunc, "FLOOR": np.floor, "CEIL": np.ceil}


def _whole(i, value):
    """Floats rounded to whole numbers as the instruction says, to nearest by default."""
    return next((_ROUNDINGS[name] for name in i.modifiers if name in _ROUNDINGS), np.rint)(value)


@meaning_of("F2I")
def _float_to_integer(launch, i, mask):
    source, wide = i.sources[-1], i.has("S64", "U64")
    if i.has("F64"):
        number = double_operand(launch, source)
    else:
        value = launch.read(without_sign(source))
        number = None if value is None else float_operand(source, value).astype(np.float64)
    if number is None or i.has("F16", "S8", "U8", "S16", "U16"):
        for name in i.writes:
            launch.write(name, None, mask)
        return
    exact = _whole(i, np.nan_to_num(number))
    if wide:  # as far as counts go: to 2^63
        set_pair(launch, i, np.clip(exact, 0 if "U64" in i.modifiers else -(2.0**63), 2.0**63 - 1024).astype(np.int64), mask)
        return
    low, high = (0, LOW) if "U32" in i.modifiers else (-SIGN, SIGN - 1)
    set_register(launch, i, np.clip(exact, low, high).astype(np.int64), mask)


@meaning_of("FRND")
def _to_whole_float(launch, i, mask):
    if i.has("F64"):
        number = double_operand(launch, i.sources[-1])
        set_double(launch, i, None if number is None else _whole(i, number), mask)
        return
    value = launch.read(without_sign(i.sources[-1]))
    if value is None or i.has("F16", "FTZ"):
        for name in i.writes:
            launch.write(name, None, mask)
        return
    set_register(launch, i, pattern_of(_whole(i, float_operand(i.sources[-1], value)), np.float32), mask)


def _arithmetic(meaning):
    """Arithmetic on float32 operands that are all known, rounded to nearest; with a modifier the result is unknown."""

    def run(launch, i, mask):
        values, _ = split_sources(i)
        raw = [launch.read(without_sign(v)) for v in values]
        sizes = any(isinstance(v, SassConstant) and "|" in text for v, text in zip(values, _texts(i), strict=True))
        plain = not i.modifiers and not sizes
        if not plain or not known(*raw):
            set_register(launch, i, None, mask)
            return
        with np.errstate(all="ignore"):
            set_register(launch, i, pattern_of(meaning(*map(float_operand, values, raw)), np.float32), mask)

    return run


def _texts(i) -> list[str]:
    """The sources as they are printed, without predicates."""
    sources = zip(i.sources, i.operands[len(i.results) :], strict=True)
    values, _ = split_sources(i)
    return [text for source, text in sources if any(source is value for value in values)]


def _fma(a, b, c):
    """a * b + c, rounded once: the product is exact in float64, and the sum is rounded to odd there."""
    product, addend = a.astype(np.float64) * b, c.astype(np.float64)
    total = product + addend
    virtual = total - product
    error = (product - (total - virtual)) + (addend - virtual)
    even = (total.view(np.int64) & 1) == 0
    odd = np.where((error != 0) & even & np.isfinite(total), np.nextafter(total, np.where(error > 0, np.inf, -np.inf)), total)
    return odd.astype(np.float32)


ARITHMETIC = frozenset({"FADD", "FMUL", "FFMA", "HADD2"})  # a kernel's sums are made of them, and nobody asks for those here
meaning_of("FADD")(_arithmetic(np.add))
meaning_of("FMUL")(_arithmetic(np.multiply))
meaning_of("FFMA")(_arithmetic(_fma))


def _half(launch, operand):
    """A 16-bit float that a half of a register holds for both, as float32; None if it is unknown or two of them."""
    if not isinstance(operand, SassRegister):
        return None
    if operand.zero:
        return np.zeros((1, 1, 1, 1), np.float32)
    value = launch.read(without_sign(operand))
    if value is None or operand.suffix not in (".H0_H0", ".H1_H1"):
        return None
    bits = (value >> (16 if operand.suffix == ".H1_H1" else 0) & 0xFFFF).astype(np.uint16)
    number = bits.view(np.float16).astype(np.float32)
    number = np.abs(number) if "|" in operand.sign else number
    return -number if "-" in operand.sign else number


@meaning_of("HADD2")
def _half_to_float(launch, i, mask):
    """HADD2.F32 of -0 and half a register, which is how ptxas makes a float32 of a 16-bit float."""
    values, _ = split_sources(i)
    zero = isinstance(values[0], SassRegister) and values[0].zero
    number = _half(launch, values[1]) if i.modifiers == ("F32",) and zero and len(values) == 2 else None
    set_register(launch, i, None if number is None else pattern_of(number, np.float32), mask)


@meaning_of("HSETP2")
def _compare_halves(launch, i, mask):
    """HSETP2 of two 16-bit floats, each the same in both halves."""
    values, predicates = split_sources(i)
    a, b = (_half(launch, v) for v in values[:2])
    compare = next((comparison(name) for name in i.modifiers if comparison(name)), None)
    test = compare(a, b) if compare and known(a, b) and not i.has("BF16", "BF16_V2", "FTZ", "H0_AND", "H1_AND") else None
    extra = launch.condition(predicates[0] if predicates else None)
    set_predicates(launch, i, combined(test, i, extra), mask)


@meaning_of("F2FP")
def _pack_halves(launch, i, mask):
    """F2FP.F16.F32.PACK_AB: two float32, to nearest, as one register. BF16 and FP8 stay unknown."""
    values, _ = split_sources(i)
    raw = [launch.read(without_sign(v)) for v in values[:2]]
    if i.modifiers != ("F16", "F32", "PACK_AB") or len(values) != 2 or not known(*raw):
        set_register(launch, i, None, mask)
        return
    with np.errstate(all="ignore"):
        upper, lower = (float_operand(v, r).astype(np.float16).view(np.uint16).astype(np.int64) for v, r in zip(values, raw, strict=True))
    set_register(launch, i, upper << 16 | lower, mask)


@meaning_of("MUFU")
def _reciprocal(launch, i, mask):
    """MUFU.RCP. Its last bit may differ; integer division by reciprocal corrects for that. RCP64H: the upper half of a double's."""
    if "RCP64H" in i.modifiers:
        number = upper_half(launch, i.sources[-1])
        with np.errstate(all="ignore"):
            set_register(launch, i, None if number is None else (1 / number).view(np.int64) >> 32, mask)
        return
    value = launch.read(without_sign(i.sources[-1])) if i.sources else None
    if value is None or "RCP" not in i.modifiers:
        set_register(launch, i, None, mask)
        return
    with np.errstate(divide="ignore", over="ignore"):
        out = np.float32(1) / float_operand(i.sources[-1], value)
    set_register(launch, i, pattern_of(out, np.float32), mask)
