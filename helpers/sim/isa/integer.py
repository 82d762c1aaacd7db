"""Integer arithmetic: everything wraps; `.wide` and `.hi` keep the bits that wrapping would lose."""

from __future__ import annotations

import numpy as np

from helpers.sim.code.program import ResultKind

from .base import DTYPES, INTEGERS, SIGNED, example, instruction

_WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}


def _high(t: str):
    """The upper half of a product."""
    if t in _WIDER:
        wide, narrow, bits = DTYPES[_WIDER[t]], DTYPES[t], DTYPES[t].itemsize * 8

        def high(a, b):
            return ((a.astype(wide) * b.astype(wide)) >> wide.type(bits)).astype(narrow)

        return high

    def high_unsigned(a, b):
        low32, s32 = np.uint64(0xFFFFFFFF), np.uint64(32)
        a0, a1, b0, b1 = a & low32, a >> s32, b & low32, b >> s32
        middle = a1 * b0 + ((a0 * b0) >> s32)
        other = a0 * b1 + (middle & low32)
        return a1 * b1 + (middle >> s32) + (other >> s32)

    if t == "u64":
        return high_unsigned

    def high_signed(a, b):
        u, v = a.view(np.uint64), b.view(np.uint64)
        r = high_unsigned(u, v)
        r = r - np.where(a < 0, v, np.uint64(0)) - np.where(b < 0, u, np.uint64(0))
        return r.view(np.int64)

    return high_signed


def _limits(t: str) -> tuple[int, int]:
    info = np.iinfo(DTYPES[t])
    return info.min, info.max


def _saturated(wide):
    """Compute in 64 bits, clamp to s32."""

    def meaning(*sources):
        return np.clip(wide(*(s.astype(np.int64) for s in sources)), -(2**31), 2**31 - 1).astype(np.int32)

    return meaning


PAIRS = frozenset({"u16x2", "s16x2"})


@instruction("add", INTEGERS)
@example("add.s32", reference=lambda a, b: a + b)
@example("add.u16", reference=lambda a, b: a + b)
@example("add.s64", reference=lambda a, b: a + b)
@example("add.sat.s32", reference=lambda a, b: min(max(a + b, -(2**31)), 2**31 - 1))
def add(op):
    """d = a + b."""
    t = op.type
    op.value = ResultKind.OTHER if op.has("sat") else ResultKind.SUM
    return op.lanewise(_saturated(np.add) if op.has("sat") else np.add, t, (t, t))


@instruction("sub", INTEGERS)
@example("sub.u32", reference=lambda a, b: a - b)
@example("sub.s64", reference=lambda a, b: a - b)
@example("sub.sat.s32", reference=lambda a, b: min(max(a - b, -(2**31)), 2**31 - 1))
def sub(op):
    """d = a - b."""
    t = op.type
    return op.lanewise(_saturated(np.subtract) if op.has("sat") else np.subtract, t, (t, t))


@instruction("mul", INTEGERS)
@example("mul.lo.s32", reference=lambda a, b: a * b)
@example("mul.lo.u64", reference=lambda a, b: a * b)
@example("mul.lo.s16", reference=lambda a, b: a * b)
@example("mul.hi.s32", reference=lambda a, b: a * b >> 32)
@example("mul.hi.u32", reference=lambda a, b: a * b >> 32)
@example("mul.hi.s64", reference=lambda a, b: a * b >> 64)
@example("mul.hi.u64", reference=lambda a, b: a * b >> 64)
@example("mul.wide.s32", reference=lambda a, b: a * b, result="s64")
@example("mul.wide.u16", reference=lambda a, b: a * b, result="u32")
def mul(op):
    """d = the low half, the high half, or all of a * b."""
    t = op.type
    half = op.one_of("lo", "hi", "wide")
    if half == "wide":
        wide = DTYPES[_WIDER[t]]
        return op.lanewise(lambda a, b: a.astype(wide) * b.astype(wide), _WIDER[t], (t, t))
    return op.lanewise(_high(t) if half == "hi" else np.multiply, t, (t, t))


@instruction("mad", INTEGERS)
@example("mad.lo.s32", reference=lambda a, b, c: a * b + c)
@example("mad.lo.u64", reference=lambda a, b, c: a * b + c)
@example("mad.hi.s32", reference=lambda a, b, c: (a * b >> 32) + c)
@example("mad.wide.s32", reference=lambda a, b, c: a * b + c, sources=("s32", "s32", "s64"), result="s64")
@example("mad.wide.u16", reference=lambda a, b, c: a * b + c, sources=("u16", "u16", "u32"), result="u32")
def mad(op):
    """d = a * b + c, with the low half, the high half, or all of the product."""
    t = op.type
    half = op.one_of("lo", "hi", "wide")
    if half == "wide":
        wide = DTYPES[_WIDER[t]]
        return op.lanewise(lambda a, b, c: a.astype(wide) * b.astype(wide) + c, _WIDER[t], (t, t, _WIDER[t]))
    if half == "hi":
        high = _high(t)
        meaning = (lambda a, b, c: high(a, b) + c) if not op.has("sat") else None
        if meaning is None:
            meaning = _saturated(lambda a, b, c: ((a * b) >> 32) + c)
        return op.lanewise(meaning, t, (t, t, t))
    return op.lanewise(lambda a, b, c: a * b + c, t, (t, t, t))


@instruction("mul24", INTEGERS)
@example("mul24.lo.u32", reference=lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF))
def mul24(op):
    """d = the low (or upper) 32 bits of the 48-bit product of 24-bit values."""
    t = op.type
    return op.lanewise(_product24(op), t, (t, t))


def _product24(op):
    signed, upper = op.type == "s32", op.one_of("lo", "hi") == "hi"
    wide, narrow = (np.int64, np.int32) if signed else (np.uint64, np.uint32)

    def meaning(a, b):
        if signed:
            x, y = ((v << 8 >> 8).astype(wide) for v in (a, b))
        else:
            x, y = ((v & np.uint32(0xFFFFFF)).astype(wide) for v in (a, b))
        product = x * y
        return (product >> wide(16) if upper else product).astype(narrow)

    return meaning


@instruction("mad24", INTEGERS)
@example("mad24.lo.u32", reference=lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c)
@example("mad24.hi.u32", reference=lambda a, b, c: ((a & 0xFFFFFF) * (b & 0xFFFFFF) >> 16) + c)
def mad24(op):
    """d = c + the low (or upper) 32 bits of the 48-bit product of 24-bit values."""
    t = op.type
    product = _product24(op)
    if op.has("sat"):
        return op.lanewise(_saturated(lambda a, b, c: product(a.astype(np.int32), b.astype(np.int32)) + c), t, (t, t, t))
    return op.lanewise(lambda a, b, c: product(a, b) + c, t, (t, t, t))


@instruction("sad", INTEGERS)
@example("sad.s32", reference=lambda a, b, c: c + abs(a - b))
@example("sad.u32", reference=lambda a, b, c: c + abs(a - b))
def sad(op):
    """d = c + |a - b|."""
    t = op.type
    return op.lanewise(lambda a, b, c: c + np.where(a < b, b - a, a - b), t, (t, t, t))


def _divide(t: str):
    """Quotient towards zero. Division by zero gives all ones, as the hardware's own sequence does."""
    low, _ = _limits(t)
    one = DTYPES[t].type(1)
    if t not in SIGNED:

        def quotient(a, b):
            zero = b == 0
            return np.where(zero, ~DTYPES[t].type(0), a // np.where(zero, one, b))

        return quotient

    def signed_quotient(a, b):
        zero = b == 0
        overflow = (a == low) & (b == -1)
        b = np.where(zero | overflow, one, b)
        q = a // b
        r = a - q * b
        q = q + ((r != 0) & (q < 0)).astype(q.dtype)
        return np.where(zero, DTYPES[t].type(-1), q)

    return signed_quotient


_small = [(a, b) for a in (0, 1, 7, -7, 100, -100, 2**31 - 1, -(2**31)) for b in (1, -1, 3, -3, 7, 2**31 - 1, -(2**31))]
_small_unsigned = [(a, b) for a in (0, 1, 7, 100, 2**31, 2**32 - 1) for b in (1, 3, 7, 2**31, 2**32 - 1)]


def _towards_zero(a, b):
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@instruction("div", INTEGERS)
@example("div.s32", reference=_towards_zero, values=_small, arity=2)
@example("div.u32", reference=lambda a, b: a // b, values=_small_unsigned)
@example("div.s64", reference=_towards_zero, values=_small, arity=2)
def div(op):
    """d = a / b, towards zero."""
    t = op.type
    return op.lanewise(_divide(t), t, (t, t))


@instruction("rem", INTEGERS)
@example("rem.s32", reference=lambda a, b: a - _towards_zero(a, b) * b, values=_small)
@example("rem.u64", reference=lambda a, b: a % b, values=_small_unsigned)
def rem(op):
    """d = a - (a / b) * b: the remainder has the sign of a."""
    t = op.type
    quotient = _divide(t)
    return op.lanewise(lambda a, b: np.where(b == 0, a, a - quotient(a, b) * b), t, (t, t))


@instruction("abs", INTEGERS)
@example("abs.s32", reference=lambda a: abs(a))
def abs_(op):
    """d = |a|; the smallest number is its own."""
    t = op.type
    return op.lanewise(lambda a: np.where(a < 0, -a, a), t, (t,))


@instruction("neg", INTEGERS)
@example("neg.s32", reference=lambda a: -a)
@example("neg.s64", reference=lambda a: -a)
def neg(op):
    """d = -a."""
    t = op.type
    return op.lanewise(np.negative, t, (t,))


def _halfword_pairs(meaning, t):
    """A function of 16-bit integers applied to both halves of 32-bit registers."""
    part = np.dtype(np.int16 if t == "s16x2" else np.uint16)

    def both(a, b):
        halves = []
        for shift in (np.uint32(0), np.uint32(16)):
            x, y = ((v >> shift).astype(np.uint16).view(part) for v in (a, b))
            halves.append(meaning(x, y).astype(part).view(np.uint16).astype(np.uint32) << shift)
        return halves[0] | halves[1]

    return both


def _each_half(f):
    return lambda a, b: f(a & 0xFFFF, b & 0xFFFF) & 0xFFFF | (f(a >> 16, b >> 16) & 0xFFFF) << 16


@instruction("add", PAIRS)
@example("add.u16x2", reference=_each_half(lambda a, b: a + b), arity=2, sources=("b32", "b32"), result="b32")
def add_pairs(op):
    """d = a + b in each half."""
    return op.lanewise(_halfword_pairs(np.add, op.type), "b32", ("b32", "b32"))


@instruction("min", PAIRS)
@example("min.u16x2", reference=_each_half(min), arity=2, sources=("b32", "b32"), result="b32")
def min_pairs(op):
    """d = the smaller in each half."""
    return op.lanewise(_halfword_pairs(_least_of(op), op.type), "b32", ("b32", "b32"))


@instruction("max", PAIRS)
@example("max.u16x2", reference=_each_half(max), arity=2, sources=("b32", "b32"), result="b32")
def max_pairs(op):
    """d = the larger in each half."""
    return op.lanewise(_halfword_pairs(_most_of(op), op.type), "b32", ("b32", "b32"))


def _least_of(op):
    return (lambda a, b: np.maximum(np.minimum(a, b), a.dtype.type(0))) if op.has("relu") else np.minimum


def _most_of(op):
    return (lambda a, b: np.maximum(np.maximum(a, b), a.dtype.type(0))) if op.has("relu") else np.maximum


@instruction("min", INTEGERS)
@example("min.s32", reference=lambda a, b: min(a, b))
@example("min.u64", reference=lambda a, b: min(a, b))
def min_(op):
    """d = the smaller."""
    return op.lanewise(_least_of(op), op.type, (op.type, op.type))


@instruction("max", INTEGERS)
@example("max.s32", reference=lambda a, b: max(a, b))
@example("max.u32", reference=lambda a, b: max(a, b))
def max_(op):
    """d = the larger."""
    return op.lanewise(_most_of(op), op.type, (op.type, op.type))


def _bytes(signed):
    return np.dtype(np.int8 if signed else np.uint8)


def _lanes(x, signed, size):
    """The 4 bytes or 2 halves of 32-bit words as int64, along a new last axis."""
    kind = np.dtype(f"{'i' if signed else 'u'}{size}")
    return np.ascontiguousarray(x)[..., None].view(kind).astype(np.int64)


def _signed_bytes(x, signed):
    return [int.from_bytes(bytes([b]), "little", signed=signed) for b in (x & 0xFFFFFFFF).to_bytes(4, "little")]


def _dp4a(a, b, c):
    return c + sum(x * y for x, y in zip(_signed_bytes(a, True), _signed_bytes(b, True), strict=True))


@instruction("dp4a")
@example("dp4a.s32.s32", reference=_dp4a, arity=3, result="s32")
def dp4a(op):
    """d = c + the dot product of four bytes of a with four of b."""
    ta, tb = op.types
    signed = ta == "s32" or tb == "s32"
    t = "s32" if signed else "u32"

    def meaning(a, b, c):
        total = (_lanes(a, ta == "s32", 1) * _lanes(b, tb == "s32", 1)).sum(axis=-1)
        return (c + total).astype(DTYPES[t])

    return op.lanewise(meaning, t, ("b32", "b32", t))


def _dp2a_lo(a, b, c):
    halves = [(a & 0xFFFF), (a >> 16 & 0xFFFF)]
    halves = [h - 0x10000 if h & 0x8000 else h for h in halves]
    return c + sum(x * y for x, y in zip(halves, _signed_bytes(b, True)[:2], strict=True))


@instruction("dp2a")
@example("dp2a.lo.s32.s32", reference=_dp2a_lo, arity=3, result="s32")
def dp2a(op):
    """d = c + the dot product of two halves of a with the low (or high) two bytes of b."""
    ta, tb = op.types
    t = "s32" if "s32" in (ta, tb) else "u32"
    pick = slice(2, 4) if op.one_of("lo", "hi") == "hi" else slice(0, 2)

    def meaning(a, b, c):
        total = (_lanes(a, ta == "s32", 2) * _lanes(b, tb == "s32", 1)[..., pick]).sum(axis=-1)
        return (c + total).astype(DTYPES[t])

    return op.lanewise(meaning, t, ("b32", "b32", t))
