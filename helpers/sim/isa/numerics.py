"""Exact floating-point arithmetic on arrays, where NumPy's own is not what a GPU does.

float32 fused multiply-add goes through float64: the product of two float32 is exact there, and the sum is rounded twice,
once to 53 bits and once to 24. The second rounding goes wrong only if the first one landed exactly in the middle between
two float32 numbers, which a glance at the low 29 bits tells, or below the normal range. Then the sum is *rounded to odd*
instead (if inexact, the last bit is set), after which rounding again is always right.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from .exact import round_fraction

F16, F32, F64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
U16, U32, U64, I64 = np.dtype(np.uint16), np.dtype(np.uint32), np.dtype(np.uint64), np.dtype(np.int64)
NAN32 = np.uint32(0x7FFFFFFF)
NAN16 = np.uint16(0x7FFF)
QUIET64 = np.uint64(1 << 51)
_TINY = 2.0**-126
_MIDDLE = np.iinfo(np.int64).min
_SHIFT = np.int64(35)
# Products whose lowest bit is at least 2^-149, float32's finest step, cannot be rounded twice below the normal range.
SAFE_EXPONENTS = 151
_least = np.minimum.reduce


def canonical(r: np.ndarray) -> np.ndarray:
    """A GPU's float32 NaN is always 0x7fffffff. Changes `r`, which must be new."""
    low = _least(r, axis=None)
    if low != low:
        r.view(U32)[np.isnan(r)] = NAN32
    return r


def payload64(r: np.ndarray, *sources: np.ndarray) -> np.ndarray:
    """A GPU's float64 NaN is the last of its sources that is one, made quiet; another NaN stays as it is."""
    low = _least(r, axis=None)
    if low == low:
        return r
    bits, nan = r.view(U64), np.isnan(r)
    for source in sources:
        bits = np.where(nan & np.isnan(source), source.view(U64) | QUIET64, bits)
    return bits.view(F64)


def canonical16(r: np.ndarray) -> np.ndarray:
    """The same for float16: 0x7fff."""
    bad = np.isnan(r)
    if bad.any():
        r.view(U16)[bad] = NAN16
    return r


def flush(x: np.ndarray) -> np.ndarray:
    """float32 denormals become zeros of the same sign (.ftz)."""
    bits = x.view(U32)
    tiny = (bits & np.uint32(0x7F800000)) == 0
    if not tiny.any():
        return x
    return np.where(tiny, bits & np.uint32(0x80000000), bits).view(F32)


def flush16(x: np.ndarray) -> np.ndarray:
    """float16 denormals become zeros of the same sign (.ftz)."""
    return np.where(np.abs(x) < np.float16(2.0**-14), np.copysign(np.float16(0), x), x)


def saturate(x: np.ndarray) -> np.ndarray:
    """Clamp to [0, 1]; NaN becomes +0 (.sat)."""
    with_nan = np.where(np.isnan(x), x.dtype.type(0), x)
    return np.maximum(np.minimum(with_nan, x.dtype.type(1)), x.dtype.type(0)) + x.dtype.type(0)


def odd_sum(p: np.ndarray, c: np.ndarray) -> np.ndarray:
    """p + c of float64 arrays, rounded to odd."""
    s = p + c
    b = s - p
    error = (p - (s - b)) + (c - b)
    inexact = (error != 0) & np.isfinite(s)
    if not inexact.any():
        return s
    bits = s.view(I64)
    even = inexact & ((bits & 1) == 0)
    step = np.where((error > 0) == (s > 0), np.int64(1), np.int64(-1))
    return np.where(even, bits + step, bits).view(F64)


def widen(m, i: int, x: np.ndarray):
    """(x, x as float64, exponent field of its smallest nonzero value), remembered while register i keeps this array."""
    known = m.wide[i]
    if known is not None and known[0] is x:
        return known
    magnitude = (x.view(U32) << np.uint32(1)) - np.uint32(1)  # zero becomes the largest number
    known = m.wide[i] = (x, x.astype(F64), int(_least(magnitude, axis=None)) >> 24)
    return known


def fma32(m, a: int, b: int, x, y, z) -> np.ndarray:
    """round(x * y + z), to nearest even, of float32 arrays held by registers a, b and c."""
    _, x64, low = widen(m, a, x)
    _, y64, low2 = widen(m, b, y)
    s = np.multiply(x64, y64)
    s = np.add(s, z, out=s) if s.shape == z.shape else np.add(s, z, dtype=F64)
    if _least(np.left_shift(s.view(I64), _SHIFT), axis=None) == _MIDDLE or low + low2 < SAFE_EXPONENTS:
        s = odd_sum(x64 * y64, z.astype(F64))
    r = s.astype(F32)
    low = _least(r, axis=None)
    if low != low:
        r.view(U32)[np.isnan(r)] = NAN32
    return r


def round_to_float(s: np.ndarray, mode: str) -> np.ndarray:
    """float64 (exact or rounded to odd) to float32 in a rounding mode: rn, rz, rm, rp."""
    r = s.astype(F32)
    if mode in ("rn", "rna"):
        return r
    wide = r.astype(F64)
    if mode == "rz":
        off = np.abs(wide) > np.abs(s)
        toward = np.float32(0)
    elif mode == "rm":
        off, toward = wide > s, np.float32(-np.inf)
    else:
        off, toward = wide < s, np.float32(np.inf)
    return np.where(off, np.nextafter(r, toward), r)


def odd_float(s: np.ndarray) -> np.ndarray:
    """float64 to float32, rounded to odd."""
    r = s.astype(F32)
    wide = r.astype(F64)
    bits = r.view(np.dtype(np.int32))
    even = (wide != s) & ((bits & 1) == 0) & np.isfinite(s)
    up = (np.abs(wide) < np.abs(s)) & np.isfinite(r)
    return np.where(even, bits + np.where(up, np.int32(1), np.int32(-1)), bits).view(F32)


def bfloat_to_float(x: np.ndarray) -> np.ndarray:
    """bfloat16 bit patterns to float32."""
    return (x.astype(U32) << np.uint32(16)).view(F32)


def float_to_bfloat(x: np.ndarray, mode: str = "rn") -> np.ndarray:
    """float32 to bfloat16 bit patterns; NaN becomes 0x7fff."""
    bits = x.view(U32)
    if mode == "rn":
        rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    else:
        rounded = bits >> np.uint32(16)
        if mode != "rz":
            rest = (bits & np.uint32(0xFFFF)) != 0
            negative = bits >> np.uint32(31) != 0
            rounded = rounded + (rest & (negative if mode == "rm" else ~negative)).astype(U32)
    return np.where(np.isnan(x), np.uint32(NAN16), rounded).astype(U16)


def double_to_bfloat(s: np.ndarray, mode: str = "rn") -> np.ndarray:
    """float64 to bfloat16 bit patterns in one rounding."""
    return float_to_bfloat(odd_float(s), mode)


def double_to_half(s: np.ndarray, mode: str = "rn") -> np.ndarray:
    """float64 to float16 in one rounding."""
    r = s.astype(F16)
    if mode != "rn":
        wide = r.astype(F64)
        toward = {"rz": np.float16(0), "rm": np.float16(-np.inf), "rp": np.float16(np.inf)}[mode]
        off = np.abs(wide) > np.abs(s) if mode == "rz" else wide > s if mode == "rm" else wide < s
        r = np.where(off, np.nextafter(r, toward), r)
    return canonical16(r)


# --- float64 fused multiply-add --------------------------------------------------------------------------------------

_SPLIT = 134217729.0  # 2^27 + 1


def _two_product(x, y):
    """x * y as a pair of float64 that add up to it exactly, barring overflow and underflow."""
    p = x * y
    t = _SPLIT * x
    xh = t - (t - x)
    xl = x - xh
    t = _SPLIT * y
    yh = t - (t - y)
    yl = y - yh
    return p, ((xh * yh - p) + xh * yl + xl * yh) + xl * yl


def _two_sum(x, y):
    s = x + y
    b = s - x
    return s, (x - (s - b)) + (y - b)


def _exact64(x, y, z, mode):
    with_bits = np.empty(x.shape, F64)
    for i in np.ndindex(x.shape):
        a, b, c = float(x[i]), float(y[i]), float(z[i])
        if not (np.isfinite(a) and np.isfinite(b) and np.isfinite(c)):
            # An infinite or missing addend wins over a finite product, even one that would overflow by itself.
            with_bits[i] = c if np.isfinite(a) and np.isfinite(b) else np.float64(a) * np.float64(b) + np.float64(c)
            continue
        total = Fraction(a) * Fraction(b) + Fraction(c)
        if total == 0:
            product_negative = np.signbit(a) != np.signbit(b)
            minus = (product_negative == bool(np.signbit(c)) and bool(np.signbit(c))) or (
                mode == "rm" and (product_negative != bool(np.signbit(c)) or (a != 0 and b != 0))
            )
            with_bits[i] = -0.0 if minus else 0.0
        else:
            with_bits[i] = round_fraction(total, "f64", mode)
    return with_bits


def fma64(x: np.ndarray, y: np.ndarray, z: np.ndarray, mode: str = "rn") -> np.ndarray:
    """round(x * y + z) of float64 arrays (Boldo and Melquiond's algorithm; exact rationals at the ends of the range)."""
    x, y, z = np.broadcast_arrays(x, y, z)
    uh, ul = _two_product(x, y)
    th, tl = _two_sum(z, ul)
    vh, vl = _two_sum(uh, th)
    result = vh + odd_sum(tl, vl)
    size = np.maximum(np.maximum(np.abs(x), np.abs(y)), np.abs(uh))
    small = np.abs(uh)
    odd = ~((size < 2.0**970) & (small > 2.0**-900) & (np.abs(z) < 2.0**970) & (np.abs(x) > 2.0**-400) & (np.abs(y) > 2.0**-400))
    odd |= result == 0
    if mode != "rn":
        odd = np.ones(x.shape, bool)
    if odd.any():
        result = np.array(result)
        result[odd] = _exact64(x[odd], y[odd], z[odd], mode)
    return result


def directed64(mode: str, nearest, exact):
    """A float64 function in a directed rounding. nearest: of arrays, rounded to nearest; exact: -1, 0 or 1, whether the
    exact value for finite sources is below, at or above a given finite or infinite float."""

    def meaning(*sources):
        sources = np.broadcast_arrays(*sources)
        r = np.array(nearest(*sources))
        for i in np.ndindex(r.shape):
            values = [float(x[i]) for x in sources]
            if np.isnan(r[i]) or not np.isfinite(values).all():
                continue
            side = exact(float(r[i]), *values)
            toward = {"rz": 0.0, "rm": -np.inf, "rp": np.inf}[mode]
            away = side * (np.copysign(1.0, r[i]) if mode == "rz" else 1) < 0 if mode != "rp" else side > 0
            if away:
                r[i] = np.nextafter(r[i], toward)
        return r

    return meaning


def _side(exact: Fraction, r: float) -> int:
    if np.isinf(r):
        return -1 if r > 0 else 1
    return (exact > Fraction(r)) - (exact < Fraction(r))


def quotient_side(r: float, a: float, b: float) -> int:
    """Where a / b lies from r: below (-1), at (0) or above (1)."""
    return 0 if b == 0 else _side(Fraction(a) / Fraction(b), r)


def root_side(r: float, a: float) -> int:
    """Where the square root of a lies from r."""
    return 0 if a <= 0 else (Fraction(a) > Fraction(r) ** 2) - (Fraction(a) < Fraction(r) ** 2)
