"""Floating-point arithmetic: float32, float64, float16, bfloat16, and the packed pairs.

float32 results are those of the hardware, bit for bit: `.rn` and the directed roundings, `.ftz`, `.sat`, denormals, and
0x7fffffff for every NaN. The approximations (`.approx`, `.full`, ex2, lg2, sin, cos, tanh) give the correctly rounded
result; the hardware's may differ from it by its documented error (1 to 2 units in the last place; sin and cos 2^-20.5
absolute; tanh 2^-11 relative).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from . import numerics
from .base import DTYPES, example, instruction
from .numerics import F16, F32, F64, U16, U32, bfloat_to_float, canonical, canonical16, flush, saturate

FLOATS = frozenset({"f16", "f16x2", "bf16", "bf16x2", "f32", "f64", "f32x2"})
MODES = ("rn", "rna", "rz", "rm", "rp")


def _mode(op) -> str:
    return op.one_of(*MODES, default="rn")


def with_flags(op, meaning):
    """Apply .ftz to sources and result and .sat to the result of a float32 function."""
    ftz, sat = op.has("ftz"), op.has("sat")
    if not ftz and not sat:
        return meaning

    def flagged(*sources):
        if ftz:
            sources = [flush(x) if x.dtype == F32 else x for x in sources]
        r = meaning(*sources)
        if sat:
            r = saturate(r)
        return flush(r) if ftz and r.dtype == F32 else r

    return flagged


def packed(meaning, part):
    """A function of 16-bit values (float16, or bfloat16 patterns) applied to both halves of 32-bit registers."""
    part = np.dtype(part)

    def both(*sources):
        halves = []
        for shift in (np.uint32(0), np.uint32(16)):
            values = [((x >> shift) & np.uint32(0xFFFF)).astype(U16).view(part) for x in sources]
            halves.append(meaning(*values).view(U16).astype(U32))
        return halves[0] | (halves[1] << np.uint32(16))

    return both


def _sixteen(op, meaning64):
    """float16 or bfloat16 from a function of float64 arrays whose result is exact or rounded to odd."""
    relu, sat, ftz = op.has("relu"), op.has("sat"), op.has("ftz")
    half = op.type.startswith("f16")
    normal = 2.0**-14 if half else 2.0**-126

    def meaning(*sources):
        wide = [x.astype(F64) if half else bfloat_to_float(x).astype(F64) for x in sources]
        if ftz:
            wide = [np.where(np.abs(x) < normal, np.copysign(0.0, x), x) for x in wide]
        s = meaning64(*wide)
        if sat:
            s = saturate(s)
        if relu:
            s = np.where(np.isnan(s), s, np.maximum(s, 0.0))
        r = numerics.double_to_half(s) if half else numerics.double_to_bfloat(s)
        if ftz:
            r = numerics.flush16(r) if half else np.where(r & U16.type(0x7F80), r, r & U16.type(0x8000))
        return r

    return meaning


def approximated(op) -> None:
    """Allow what asks for an approximation: the machine gives the correctly rounded result, see the top of this file."""
    op.without_effect("approx", "full")


def flushed64(op, meaning):
    """Apply .ftz, which an approximation may have, to sources and result of a float64 function."""
    if not op.has("ftz"):
        return meaning

    def tiny_to_zero(x):
        return np.where(np.abs(x) < 2.0**-1022, np.copysign(0.0, x), x)

    return lambda *sources: tiny_to_zero(meaning(*map(tiny_to_zero, sources)))


def _arith(op, f32, f64, wide, count):
    """Bind an arithmetic instruction of `count` sources to its function for each width."""
    t = op.type
    if t == "f32":
        return op.lanewise(with_flags(op, f32), t, (t,) * count)
    if t == "f64":
        return op.lanewise(lambda *s: numerics.payload64(f64(*s), *s), t, (t,) * count)
    if t == "f32x2":
        return op.lanewise(_pair32(with_flags(op, f32)), t, (t,) * count)
    meaning = _sixteen(op, wide)
    if t.endswith("x2"):
        meaning = packed(meaning, F16 if t == "f16x2" else U16)
    return op.lanewise(meaning, t, (t,) * count)


def _pair32(meaning):
    def both(*sources):
        halves = []
        for shift in (np.uint64(0), np.uint64(32)):
            values = [(x >> shift).astype(U32).view(F32) for x in sources]
            halves.append(np.ascontiguousarray(meaning(*values)).view(U32).astype(np.uint64))
        return halves[0] | (halves[1] << np.uint64(32))

    return both


# A result that is exactly zero from operands of opposite sign is -0 when rounding down; NumPy only rounds to nearest.
def _minus_zero_down(mode, r, exact_zero):
    return np.where(exact_zero, np.copysign(0.0, -1.0), r) if mode == "rm" else r


def _add32(mode):
    if mode == "rn":
        return lambda a, b: canonical(np.add(a, b))

    def directed(a, b):
        x, y = a.astype(F64), b.astype(F64)
        s = numerics.odd_sum(x, y)
        s = _minus_zero_down(mode, s, (s == 0) & ~((a == 0) & (b == 0) & ~np.signbit(a) & ~np.signbit(b)))
        return canonical(np.array(numerics.round_to_float(s, mode)))

    return directed


def _mul32(mode):
    if mode == "rn":
        return lambda a, b: canonical(np.multiply(a, b))
    return lambda a, b: canonical(np.array(numerics.round_to_float(a.astype(F64) * b.astype(F64), mode)))


def _fma32(mode):
    def meaning(a, b, c):
        p, z = a.astype(F64) * b.astype(F64), c.astype(F64)
        s = numerics.odd_sum(p, z)
        if mode == "rm":
            s = _minus_zero_down(mode, s, (s == 0) & ~((p == 0) & (z == 0) & ~np.signbit(p) & ~np.signbit(z)))
        return canonical(np.array(numerics.round_to_float(s, mode)))

    return meaning


def _by_fma64(mode, role):
    """float64 add and mul in a directed rounding, through the exact path of fma."""
    if role == "add":
        return lambda a, b: numerics.fma64(a, np.ones((1,)), b, mode)
    return lambda a, b: numerics.fma64(a, b, np.where(np.signbit(a) != np.signbit(b), -0.0, 0.0), mode)


def _sum(a, b):
    return Fraction(a) + Fraction(b) if math.isfinite(a) and math.isfinite(b) and (a + b or (a and b)) else a + b


def _difference(a, b):
    return _sum(a, -b)


def _product(a, b):
    return Fraction(a) * Fraction(b) if math.isfinite(a) and math.isfinite(b) and a and b else a * b


def _fused(a, b, c):
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b + c
    if not math.isfinite(c):
        return c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact:
        return exact
    zero = math.copysign(1, a) * math.copysign(1, b)
    return -0.0 if (a == 0 or b == 0) and c == 0 and zero < 0 and math.copysign(1, c) < 0 else 0.0


@instruction("add", FLOATS)
@example("add.f32", reference=_sum)
@example("add.rz.f32", reference=_sum, rounding="rz")
@example("add.rp.f32", reference=_sum, rounding="rp")
@example("add.f64", reference=_sum)
@example("add.f16", reference=_sum)
@example("add.rn.bf16", reference=_sum)
def add(op):
    """d = a + b."""
    if op.type == "f32":
        op.count("fadd")
    mode = _mode(op)
    f64 = np.add if mode == "rn" else _by_fma64(mode, "add")
    return _arith(op, _add32(mode), f64, numerics.odd_sum, 2)


@instruction("sub", FLOATS)
@example("sub.f32", reference=_difference)
@example("sub.rm.f32", reference=_difference, rounding="rm", values=[(1.0, 2.0**-30), (3.0, 2.5), (1e30, 1.0), (0.1, 0.3)])
@example("sub.f64", reference=_difference)
@example("sub.f16", reference=_difference)
def sub(op):
    """d = a - b."""
    if op.type == "f32":
        op.count("fadd")
    mode = _mode(op)
    add32, add64 = _add32(mode), np.add if mode == "rn" else _by_fma64(mode, "add")
    return _arith(op, lambda a, b: add32(a, -b), lambda a, b: add64(a, -b), lambda a, b: numerics.odd_sum(a, -b), 2)


@instruction("mul", FLOATS)
@example("mul.f32", reference=_product)
@example("mul.rz.f32", reference=_product, rounding="rz")
@example("mul.rm.f32", reference=_product, rounding="rm")
@example("mul.f64", reference=_product)
@example("mul.rn.f16", reference=_product)
@example("mul.rn.bf16", reference=_product)
def mul(op):
    """d = a * b."""
    if op.type == "f32":
        op.count("fmul")
    mode = _mode(op)
    f64 = np.multiply if mode == "rn" else _by_fma64(mode, "mul")
    return _arith(op, _mul32(mode), f64, np.multiply, 2)


def _fma(op):
    t, mode = op.type, _mode(op)
    if t == "f32":
        op.count("ffma")
        op.opclass = "FFMA"
    if t == "f32" and mode == "rn" and not op.has("ftz", "sat"):
        op.pure()
        a, b, c = (op.source(i, "f32") for i in (1, 2, 3))
        d = op.result(0, "f32")
        fma32 = numerics.fma32

        def run(m):
            regs = m.regs
            x, y, z = regs[a], regs[b], regs[c]
            if x.dtype is not F32:
                x = x.view(F32)
            if y.dtype is not F32:
                y = y.view(F32)
            if z.dtype is not F32:
                z = z.view(F32)
            regs[d] = fma32(m, a, b, x, y, z)

        return run
    return _arith(op, _fma32(mode), lambda a, b, c: numerics.fma64(a, b, c, mode), lambda a, b, c: numerics.odd_sum(a * b, c), 3)


@instruction("fma", FLOATS)
@example("fma.rn.f32", reference=_fused)
@example("fma.rz.f32", reference=_fused, rounding="rz")
@example("fma.rp.f32", reference=_fused, rounding="rp")
@example("fma.rn.f64", reference=_fused)
@example("fma.rn.f16", reference=_fused)
@example("fma.rn.bf16", reference=_fused)
def fma(op):
    """d = a * b + c with one rounding."""
    return _fma(op)


@instruction("mad", FLOATS)
@example("mad.rn.f32", reference=_fused)
def mad(op):
    """d = a * b + c: the same as fma on every GPU the compiler still supports."""
    return _fma(op)


def _quotient(a, b):
    if b == 0 or not (math.isfinite(a) and math.isfinite(b)) or a == 0:
        with np.errstate(all="ignore"):
            return float(np.float64(a) / np.float64(b))
    return Fraction(a) / Fraction(b)


@instruction("div", FLOATS)
@example("div.rn.f32", reference=_quotient)
@example("div.rz.f32", reference=_quotient, rounding="rz")
@example("div.rn.f64", reference=_quotient)
@example("div.rz.f64", reference=_quotient, rounding="rz")
@example("div.rp.f64", reference=_quotient, rounding="rp")
@example("div.full.f32", reference=lambda a, b: a / b, values=[(1.0, 3.0), (-7.0, 0.1), (1e20, -3e-10)], tolerance=3e-7)
def div(op):
    """d = a / b; `.approx` and `.full` give the correctly rounded quotient too."""
    mode = _mode(op)
    approximated(op)
    if op.type == "f64":
        divide = np.divide if mode == "rn" else numerics.directed64(mode, np.divide, numerics.quotient_side)
        return op.lanewise(divide, "f64", ("f64", "f64"))
    if mode == "rn":
        meaning = lambda a, b: canonical(np.divide(a, b))  # noqa: E731 - two one-line meanings side by side
    else:
        # A quotient of 24-bit numbers is a float32, or farther from every float32 than float64 rounds.
        ftz = op.has("ftz")

        def meaning(a, b):
            q = a.astype(F64) / b.astype(F64)
            r = numerics.round_to_float(q, mode)
            if ftz:  # what is below the normal range before rounding is flushed
                r = np.where(np.abs(q) < 2.0**-126, np.copysign(np.float32(0), r), r)
            return canonical(np.array(r))

    return op.lanewise(with_flags(op, meaning), "f32", ("f32", "f32"))


def _one_source(op, f32, f64, side):
    """rcp, sqrt and their like. `f64`: function of float64 arrays; float32 `.rn` uses `f32`, exact in one rounding.

    side: where the exact value lies from a float64 result (see numerics.directed64)."""
    mode = _mode(op)
    approximated(op)
    if op.type == "f64":
        f64 = flushed64(op, f64)
        return op.lanewise(f64 if mode == "rn" else numerics.directed64(mode, f64, side), "f64", ("f64",))
    if mode == "rn":
        meaning = lambda a: canonical(f32(a))  # noqa: E731 - as above
    else:
        meaning = lambda a: canonical(np.array(numerics.round_to_float(f64(a.astype(F64)), mode)))  # noqa: E731 - as above
    return op.lanewise(with_flags(op, meaning), "f32", ("f32",))


@instruction("rcp")
@example("rcp.rn.f32", reference=lambda a: _quotient(1.0, a))
@example("rcp.rp.f32", reference=lambda a: _quotient(1.0, a), rounding="rp")
@example("rcp.rn.f64", reference=lambda a: _quotient(1.0, a))
@example("rcp.rm.f64", reference=lambda a: _quotient(1.0, a), rounding="rm")
def rcp(op):
    """d = 1 / a."""
    return _one_source(op, lambda a: np.float32(1) / a, lambda a: 1.0 / a, lambda r, a: numerics.quotient_side(r, 1.0, a))


def _root(a):
    return math.sqrt(a) if a >= 0 else (a if a == 0 else math.nan)


@instruction("sqrt")
@example("sqrt.rn.f32", reference=_root)
@example("sqrt.rn.f64", reference=_root)
def sqrt(op):
    """d = the square root of a."""
    return _one_source(op, np.sqrt, np.sqrt, numerics.root_side)


_positive = [(x,) for x in (1.0, 2.0, 0.5, 3.0, 1e-10, 7e20, 0.1)]


def _approximate(op, function):
    """An approximation: the exact function of float64, rounded once."""
    t = op.type
    approximated(op)
    if t == "f64":
        return op.lanewise(flushed64(op, function), "f64", ("f64",))
    if t == "f32":
        return op.lanewise(with_flags(op, lambda a: canonical(function(a.astype(F64)).astype(F32))), "f32", ("f32",))
    meaning = _sixteen(op, function)
    if t.endswith("x2"):
        meaning = packed(meaning, F16 if t == "f16x2" else U16)
    return op.lanewise(meaning, t, (t,))


@instruction("rsqrt")
@example("rsqrt.approx.f32", reference=lambda a: 1 / math.sqrt(a), values=_positive, tolerance=2e-7)
def rsqrt(op):
    """d = 1 / the square root of a."""
    return _approximate(op, lambda a: 1.0 / np.sqrt(a))


@instruction("sin")
@example("sin.approx.f32", reference=math.sin, arity=1, values=[(0.5,), (-2.0,), (3.0,)], tolerance=2e-6)
def sin(op):
    """d = sin(a)."""
    return _approximate(op, np.sin)


@instruction("cos")
@example("cos.approx.f32", reference=math.cos, arity=1, values=[(0.5,), (-2.0,), (3.0,)], tolerance=2e-6)
def cos(op):
    """d = cos(a)."""
    return _approximate(op, np.cos)


@instruction("lg2")
@example("lg2.approx.f32", reference=math.log2, arity=1, values=_positive, tolerance=2e-6)
def lg2(op):
    """d = the logarithm of a to base 2."""
    return _approximate(op, np.log2)


@instruction("ex2")
@example("ex2.approx.f32", reference=lambda a: 2.0**a, values=[(0.0,), (0.5,), (-10.25,), (100.0,)], tolerance=3e-7)
@example("ex2.approx.f16", reference=lambda a: 2.0**a, values=[(0.0,), (0.5,), (-3.25,), (10.0,)], tolerance=1e-3)
def ex2(op):
    """d = 2 to the power a."""
    return _approximate(op, np.exp2)


@instruction("tanh")
@example("tanh.approx.f32", reference=math.tanh, arity=1, values=[(0.0,), (0.5,), (-2.0,)], tolerance=6e-4)
def tanh(op):
    """d = the hyperbolic tangent of a."""
    return _approximate(op, np.tanh)


# --- sign, minimum and maximum ---------------------------------------------------------------------------------------

_SIGN = {"f16": 0x8000, "bf16": 0x8000, "f16x2": 0x80008000, "bf16x2": 0x80008000, "f32": 1 << 31, "f64": 1 << 63}


def _on_bits(op, change):
    """A function of the bit pattern; float32 takes .ftz. A NaN becomes the GPU's own, or in float64 is made quiet."""
    t = op.type
    raw, dtype = np.dtype(f"u{DTYPES[t].itemsize}"), DTYPES[t]
    sign = raw.type(_SIGN[t])
    ftz = t not in ("f64", "bf16", "bf16x2") and op.has("ftz")

    def meaning(a):
        bits = flush(a).view(raw) if ftz else a.view(raw)
        r = change(bits, sign).view(dtype)
        return numerics.payload64(r, a) if t == "f64" else canonical(r) if t == "f32" else r

    def half(a):
        bits = (numerics.flush16(a.view(F16)) if ftz else a).view(U16)
        nan = (bits & U16.type(0x7FFF)) > U16.type(0x7F80 if t.startswith("bf16") else 0x7C00)
        return np.where(nan, numerics.NAN16, change(bits, U16.type(0x8000))).view(a.dtype)

    if t.endswith("x2"):
        return op.lanewise(packed(half, U16), t, (t,))
    return op.lanewise(half if raw == U16 else meaning, t, (t,))


@instruction("abs", FLOATS)
@example("abs.f32", reference=lambda a: abs(a))
@example("abs.f16", reference=lambda a: abs(a))
def abs_(op):
    """d = |a|: clears the sign bit; what is done to a NaN, see `_on_bits`."""
    return _on_bits(op, lambda bits, sign: bits & ~sign)


@instruction("neg", FLOATS)
@example("neg.f32", reference=lambda a: -a)
@example("neg.f64", reference=lambda a: -a)
def neg(op):
    """d = -a: flips the sign bit; what is done to a NaN, see `_on_bits`."""
    return _on_bits(op, lambda bits, sign: bits ^ sign)


@instruction("copysign")
@example("copysign.f32", reference=lambda a, b: math.copysign(abs(b), a))
def copysign(op):
    """d = |b| with the sign of a."""
    t = op.type
    return op.lanewise(lambda a, b: np.copysign(b, a), t, (t, t))


def _choose(smaller: bool, with_nan: bool, magnitude: bool):
    """min or max with the GPU's rules: a NaN loses (or wins, with .NaN), and -0 is smaller than +0."""

    def meaning(a, b):
        a, b = np.broadcast_arrays(a, b)
        x, y = (np.abs(a), np.abs(b)) if magnitude else (a, b)
        first = (x < y) if smaller else (x > y)
        tie = x == y
        first |= tie & (np.signbit(a) if smaller else ~np.signbit(a))
        r = np.where(first, a, b)
        bad_a, bad_b = np.isnan(a), np.isnan(b)
        r = np.where(bad_b & ~bad_a, a, np.where(bad_a & ~bad_b, b, r))
        nan = (bad_a | bad_b) if with_nan else (bad_a & bad_b)
        return np.where(nan, a.dtype.type(np.nan), r)

    return meaning


def _smaller(a, b):
    if math.isnan(a) or math.isnan(b):
        return b if math.isnan(a) else a
    return a if (a, math.copysign(1, a)) < (b, math.copysign(1, b)) else b


def _larger(a, b):
    if math.isnan(a) or math.isnan(b):
        return b if math.isnan(a) else a
    return a if (a, math.copysign(1, a)) > (b, math.copysign(1, b)) else b


def _extreme(op, smaller):
    t = op.type
    count = len(op.operands) - 1
    choose = _choose(smaller, op.has("NaN"), op.has("xorsign", "abs"))
    signs, magnitudes = op.has("xorsign"), op.has("abs")

    def meaning(*sources):
        if magnitudes and not signs:
            sources = tuple(map(np.abs, sources))
        r = sources[0]
        for other in sources[1:]:
            value = choose(r, other)
            if signs:
                value = np.copysign(value, np.where(np.signbit(r) ^ np.signbit(other), -1.0, 1.0).astype(value.dtype))
            r = value
        return r

    if t == "f32":
        return op.lanewise(with_flags(op, lambda *s: canonical(np.array(meaning(*s)))), t, (t,) * count)
    if t == "f64":
        return op.lanewise(lambda *s: numerics.payload64(meaning(*s), *s), t, (t,) * count)
    if t.startswith("f16"):
        prepare = numerics.flush16 if op.has("ftz") else (lambda x: x)
        half = lambda *s: canonical16(np.array(meaning(*map(prepare, s))))  # noqa: E731 - as above
    else:
        half = lambda *s: numerics.float_to_bfloat(meaning(*(bfloat_to_float(x) for x in s)), "rz")  # noqa: E731 - as above
    if t.endswith("x2"):
        half = packed(half, F16 if t == "f16x2" else U16)
    return op.lanewise(half, t, (t,) * count)


@instruction("min", FLOATS)
@example("min.f32", reference=_smaller, arity=2)
@example("min.f64", reference=_smaller, arity=2)
@example("min.f16", reference=_smaller, arity=2)
def min_(op):
    """d = the smaller; a NaN loses unless .NaN is given."""
    return _extreme(op, True)


@instruction("max", FLOATS)
@example("max.f32", reference=_larger, arity=2)
@example("max.NaN.f32", reference=lambda a, b: math.nan if math.isnan(a) or math.isnan(b) else _larger(a, b))
@example("max.bf16", reference=_larger, arity=2)
def max_(op):
    """d = the larger; a NaN loses unless .NaN is given."""
    return _extreme(op, False)


_CLASSES = {
    "finite": np.isfinite, "infinite": np.isinf, "number": lambda a: ~np.isnan(a), "notanumber": np.isnan,
    "normal": lambda a: np.isfinite(a) & ((a == 0) | (np.abs(a) >= np.finfo(a.dtype).tiny)),  # a zero counts as normal
    "subnormal": lambda a: (a != 0) & (np.abs(a) < np.finfo(a.dtype).tiny),
}  # fmt: skip


@instruction("testp")
@example("testp.finite.f32", reference=lambda a: int(math.isfinite(a)), result="pred")
@example("testp.normal.f32", reference=lambda a: int(math.isfinite(a) and (a == 0 or abs(a) >= 2.0**-126)), result="pred")
@example("testp.subnormal.f32", reference=lambda a: int(a != 0 and abs(a) < 2.0**-126), result="pred")
def testp(op):
    """p = whether a is finite, infinite, a number, a NaN, normal or subnormal."""
    t = op.type
    return op.lanewise(_CLASSES[op.one_of(*_CLASSES)], "pred", (t,))
