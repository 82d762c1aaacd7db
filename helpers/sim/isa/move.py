"""Moving, selecting, comparing and converting values."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from helpers.sim.code.addresses import LOCAL_WINDOW, PARAM_WINDOW, RANK_SHIFT, SHARED_WINDOW
from helpers.sim.code.program import ResultKind, Results
from helpers.sim.code.ptx import Register, Vector

from . import numerics
from .base import DTYPES, INTEGERS, apply, example, instruction
from .exact import round_fraction
from .floating import MODES
from .numerics import F16, F32, F64, U16, bfloat_to_float, canonical, flush, saturate


@instruction("mov")
@example("mov.b32", reference=lambda a: a)
@example("mov.f64", reference=lambda a: a)
@example("mov.b64", reference=lambda a: a << 32 | a, sources=("b32",), result="b64", template="mov.b64 {d}, {{{a}, {a}}};")
def mov(op):
    """d = a; `{a, b}` packs or unpacks, the first item in the low bits."""
    t = op.type
    target, source = op.operand(0), op.operand(1)
    if t == "pred" or isinstance(target, Vector) or isinstance(source, Vector):
        op.bitwise = True
        return op.lanewise(np.positive if t != "pred" and DTYPES[t].kind != "V" else _same, t, (t,))
    if isinstance(source, Register) and source.name in _CLOCKS:
        return _read_clock(op, source.name, t)
    op.bitwise, op.value = True, ResultKind.SUM
    return op.lanewise(_same, t, (t,))


def _same(a):
    return a


_CLOCKS = ("%clock", "%clock64", "%clock_hi", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi")


def _read_clock(op, name, t):
    op.results = Results.PER_WARP
    d = op.result(0, t)
    high = name.endswith("_hi")
    dtype = DTYPES[t]

    def run(m):
        ticks = m.clock()
        m.regs[d] = m.uniform((ticks >> 32 if high else ticks) & ((1 << dtype.itemsize * 8) - 1), dtype)

    return run


@instruction("cvta")
@example("cvta.to.global.u64", reference=lambda a: a)
def cvta(op):
    """d = a generic address from one of a state space, or back (`.to`)."""
    t = op.type
    op.value = ResultKind.SAME_PLACE
    space, back = op.one_of("shared", "shared::cta", "shared::cluster", "local", "param", "param::entry", "global", "const"), op.has("to")
    windows = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW, "global": 0, "const": 0}
    window = windows[space.split("::")[0]]
    dtype = DTYPES[t]
    shift = dtype.type(window)
    if not window:
        return op.lanewise(_same, t, (t,))
    if back:
        return op.lanewise(lambda a: a - shift, t, (t,))
    return op.lanewise(lambda a: a + shift, t, (t,))


@instruction("isspacep")
def isspacep(op):
    """p = whether a generic address lies in a state space."""
    space = op.one_of("shared", "shared::cta", "shared::cluster", "local", "param", "param::entry", "global", "const")
    windows = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}
    wanted = windows.get(space.split("::")[0])
    if space in ("shared", "shared::cta"):
        return _in_own_block(op)

    def meaning(a):
        top = a >> np.uint64(40)
        if wanted is not None:
            return top == np.uint64(wanted >> 40)
        others = [np.uint64(w >> 40) for w in windows.values()]
        return (top != others[0]) & (top != others[1]) & (top != others[2])

    return op.lanewise(meaning, "pred", ("u64",))


def _in_own_block(op):
    """p = whether a generic address is in the shared memory of the thread's own block, not only of its cluster."""
    a, p = op.source(1, "u64"), op.result(0, "pred")

    def run(m):
        addresses = m.regs[a].view(np.int64)
        inside = addresses >> 40 == SHARED_WINDOW >> 40
        if "cluster" in m.program.uses:
            rank = ((addresses - SHARED_WINDOW) >> RANK_SHIFT) - 1
            inside = inside & ((rank < 0) | (rank == m.clusters.rank[m.block_index]))
        m.regs[p] = inside

    return run


@instruction("selp")
@example("selp.b32", reference=lambda a, b, c: a if c else b, sources=("b32", "b32", "pred"))
@example("selp.f32", reference=lambda a, b, c: a if c else b, sources=("f32", "f32", "pred"))
def selp(op):
    """d = a if p, else b."""
    op.bitwise = True
    t = op.type
    dtype = DTYPES[t]

    def meaning(a, b, p):
        if p.size == 1:
            return a if p.item() else b
        return np.where(p, a, b).view(dtype)

    return op.lanewise(meaning, t, (t, t, "pred"))


@instruction("slct")
@example("slct.s32.s32", reference=lambda a, b, c: a if c >= 0 else b, sources=("s32", "s32", "s32"))
@example("slct.u32.f32", reference=lambda a, b, c: a if c >= 0 else b, sources=("u32", "u32", "f32"), result="u32")
def slct(op):
    """d = a if c >= 0, else b."""
    t, tc = op.types
    if op.has("ftz"):
        return op.lanewise(lambda a, b, c: np.where(flush(c) >= 0, a, b), t, (t, t, tc))
    return op.lanewise(lambda a, b, c: np.where(c >= 0, a, b), t, (t, t, tc))


# --- comparisons -----------------------------------------------------------------------------------------------------

_ORDERED = {"eq": np.equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
_UNSIGNED_NAMES = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_ALL = (
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "lo",
    "ls",
    "hi",
    "hs",
    "equ",
    "neu",
    "ltu",
    "leu",
    "gtu",
    "geu",
    "num",
    "nan",
)


def _either_nan(a, b):
    return np.isnan(a) | np.isnan(b)


def _comparison(op, t: str):
    """A function of two arrays of type t giving booleans."""
    # The operator comes first, because `.hi` and `.lo` could also be parts of other names.
    name = op.those(_ALL.__contains__)[0]
    name = _UNSIGNED_NAMES.get(name, name)
    floating = t in ("f16", "f32", "f64", "bf16", "f16x2", "bf16x2")
    if name == "ne":
        compare = (lambda a, b: (a != b) & ~_either_nan(a, b)) if floating else np.not_equal
    elif name in _ORDERED:
        compare = _ORDERED[name]
    elif name == "num":
        compare = lambda a, b: ~_either_nan(a, b)  # noqa: E731 - a table of meanings
    elif name == "nan":
        compare = _either_nan
    elif name == "neu":
        compare = np.not_equal
    else:
        inner = _ORDERED[name[:-1]]
        compare = lambda a, b: inner(a, b) | _either_nan(a, b)  # noqa: E731 - as above
    if op.has("ftz") and t in ("f32", "f16"):
        plain, smooth = compare, flush if t == "f32" else numerics.flush16
        compare = lambda a, b: plain(smooth(a), smooth(b))  # noqa: E731 - as above
    if t == "bf16":
        wide = compare
        compare = lambda a, b: wide(bfloat_to_float(a), bfloat_to_float(b))  # noqa: E731 - as above
    return compare


_JOIN = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


@instruction("setp")
@example("setp.lt.s32", reference=lambda a, b: int(a < b), result="pred")
@example("setp.hi.u32", reference=lambda a, b: int(a > b), result="pred")
@example("setp.ne.b64", reference=lambda a, b: int(a != b), result="pred")
@example("setp.eq.f32", reference=lambda a, b: int(a == b), result="pred")
@example("setp.ne.f32", reference=lambda a, b: int(a != b and a == a and b == b), result="pred")
@example("setp.neu.f32", reference=lambda a, b: int(a != b), result="pred")
@example("setp.ltu.f32", reference=lambda a, b: int(not a >= b), result="pred")
@example("setp.num.f32", reference=lambda a, b: int(a == a and b == b), result="pred")
@example("setp.gt.f16", reference=lambda a, b: int(a > b), result="pred")
@example("setp.ge.and.s32", reference=lambda a, b, c: int(a >= b and c), sources=("s32", "s32", "pred"), result="pred")
@example(
    "setp.lt.or.s32",
    reference=lambda a, b, c: int(a < b or not c),
    sources=("s32", "s32", "pred"),
    result="pred",
    template="setp.lt.or.s32 {d}, {a}, {b}, !{c};",
)
@example(
    "setp.lt.xor.s32",
    reference=lambda a, b, c: int((a >= b) ^ c),
    sources=("s32", "s32", "pred"),
    result="pred",
    template="{{ .reg .pred t; setp.lt.xor.s32 t|{d}, {a}, {b}, {c}; }}",
)
def setp(op):
    """p|q = (a compared with b) joined with c; q is the comparison's opposite joined with c."""
    op.pure()
    t = op.type
    a, b = op.source(1, t), op.source(2, t)
    join = _JOIN[op.one_of(*_JOIN)] if op.has(*_JOIN) and len(op.operands) > 3 else None
    c = op.predicate(3) if join else None
    if t in ("f16x2", "bf16x2"):
        return _setp_packed(op, t, a, b, c, join)
    p, q = op.pair(0, "pred", "pred")
    compare, dtype = _comparison(op, t), DTYPES[t]
    if join is None and q is None:
        return apply(compare, p, None, (a, b), (dtype, dtype))

    def run(m):
        regs = m.regs
        truth = compare(regs[a].view(dtype), regs[b].view(dtype))
        third = regs[c] if join else None
        regs[p] = join(truth, third) if join else truth
        if q is not None:
            regs[q] = join(~truth, third) if join else ~truth

    return run


def _halves(x, t):
    parts = [((x >> np.uint32(s)) & np.uint32(0xFFFF)).astype(U16) for s in (0, 16)]
    return [part.view(F16) for part in parts] if t == "f16x2" else parts


def _setp_packed(op, t, a, b, c, join):
    """setp on pairs: p for the low halves, q for the high ones."""
    p, q = op.pair(0, "pred", "pred")
    compare = _comparison(op, t.removesuffix("x2"))

    def run(m):
        regs = m.regs
        xs, ys = _halves(regs[a].view(np.uint32), t), _halves(regs[b].view(np.uint32), t)
        low, high = compare(xs[0], ys[0]), compare(xs[1], ys[1])
        if join:
            low, high = join(low, regs[c]), join(high, regs[c])
        regs[p] = low
        if q is not None:
            regs[q] = high

    return run


@instruction("set")
@example("set.lt.u32.s32", reference=lambda a, b: 0xFFFFFFFF if a < b else 0, result="u32")
@example("set.gt.f32.f32", reference=lambda a, b: 1.0 if a > b else 0.0, result="f32")
def set_(op):
    """d = all ones (or 1.0) where the comparison holds, else 0."""
    op.pure()
    result, t = op.types[0], op.types[-1]
    a, b = op.source(1, t), op.source(2, t)
    join = _JOIN[op.one_of(*_JOIN)] if op.has(*_JOIN) and len(op.operands) > 3 else None
    c = op.predicate(3) if join else None
    d = op.result(0, result)
    packed_pair = t.endswith("x2")
    compare, dtype = _comparison(op, t.removesuffix("x2")), DTYPES[t]
    out = DTYPES[result]

    def value(truth, kind):
        if kind in ("f16x2", "f16"):
            return np.where(truth, np.uint32(0x3C00), np.uint32(0))
        if kind in ("bf16x2", "bf16"):
            return np.where(truth, np.uint32(0x3F80), np.uint32(0))
        return np.where(truth, np.uint32(0xFFFF), np.uint32(0))

    def run(m):
        regs = m.regs
        if packed_pair:
            xs, ys = _halves(regs[a].view(np.uint32), t), _halves(regs[b].view(np.uint32), t)
            truths = [compare(x, y) for x, y in zip(xs, ys, strict=True)]
            if join:
                truths = [join(truth, regs[c]) for truth in truths]
            regs[d] = (value(truths[0], result) | (value(truths[1], result) << np.uint32(16))).view(out)
            return
        truth = compare(regs[a].view(dtype), regs[b].view(dtype))
        if join:
            truth = join(truth, regs[c])
        if result in ("f16", "bf16"):
            regs[d] = value(truth, result).astype(U16).view(out)
        elif result == "f32":
            regs[d] = truth.astype(F32)
        else:
            regs[d] = np.where(truth, out.type(-1 if result in ("s16", "s32") else np.iinfo(out).max), out.type(0))

    return run


# --- conversions -----------------------------------------------------------------------------------------------------

_INTEGER_MODES = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def _to_double(t, x):
    return bfloat_to_float(x).astype(F64) if t == "bf16" else x.astype(F64)


def _int_to_int(d: str, s: str, sat: bool):
    low, high = np.iinfo(DTYPES[d]).min, np.iinfo(DTYPES[d]).max
    source = np.iinfo(DTYPES[s])
    if sat:
        return lambda a: np.clip(a, max(low, source.min), min(high, source.max)).astype(DTYPES[d])
    return lambda a: a.astype(DTYPES[d])


def _float_to_int(d: str, s: str, rounding, ftz: bool):
    """Round, clamp to the target's range. NaN gives 0; from float64, or to 64 bits, the top bit alone."""
    info = np.iinfo(DTYPES[d])
    # The largest float64 below 2^63 or 2^64: clamping to it and then fixing the top keeps the cast defined.
    low, high = float(info.min), float(info.max)

    def meaning(a):
        if ftz and s == "f32":
            a = flush(a)
        x = rounding(_to_double(s, a))
        nan = np.isnan(x)
        over, under = x >= high, x <= low
        safe = np.where(nan | over | under, 0.0, x)
        r = safe.astype(DTYPES[d])
        r = np.where(over, info.max, np.where(under, info.min, r)).astype(DTYPES[d])
        top = np.array(1 << DTYPES[d].itemsize * 8 - 1, np.uint64).astype(f"u{DTYPES[d].itemsize}").view(DTYPES[d])
        bad = top if DTYPES[d].itemsize == 8 or s == "f64" else DTYPES[d].type(0)
        return np.where(nan, bad, r)

    return meaning


def _int_to_float(d: str, s: str, mode: str):
    exact_in_double = DTYPES[s].itemsize <= 4

    def meaning(a):
        if exact_in_double:
            x = a.astype(F64)
        elif d == "f64" and mode == "rn":
            return a.astype(F64)
        else:
            x = _odd_from_integer(a)
            if d == "f64":
                return _integer_to_double(a, mode)
        return _from_double(d, x, mode)

    if d == "f64" and exact_in_double:
        return lambda a: a.astype(F64)
    if d == "f32" and mode == "rn":
        return lambda a: a.astype(F32)
    return meaning


def _odd_from_integer(a):
    """64-bit integers to float64, rounded to odd."""
    negative = a < 0
    size = np.where(negative, -a, a).view(np.uint64) if a.dtype.kind == "i" else a
    big = size >= np.uint64(1 << 53)
    shift = np.uint64(11)
    top = (size >> shift) | ((size & np.uint64(0x7FF)) != 0).astype(np.uint64)
    x = np.where(big, top.astype(F64) * 2048.0, np.where(big, np.uint64(0), size).astype(F64))
    return np.where(negative, -x, x)


def _integer_to_double(a, mode):
    values = [round_fraction(Fraction(int(v)), "f64", mode) for v in a.flat]
    return np.array(values, F64).reshape(a.shape)


def _from_double(d: str, x, mode: str):
    """float64 (exact, or rounded to odd) to a narrower format in one rounding."""
    if d == "f32":
        return numerics.round_to_float(x, mode)
    if d == "f16":
        return numerics.double_to_half(x, mode)
    if d == "bf16":
        return numerics.double_to_bfloat(x, mode)
    return x


_LARGEST = {"f16": 65504.0, "bf16": 2.0**128 - 2.0**120, "tf32": 2.0**128 - 2.0**117}


def _finite(d: str, x):
    """.satfinite: numbers beyond the largest of type d, infinities too, become that; NaN stays one."""
    most = x.dtype.type(_LARGEST[d])
    return np.where(np.isnan(x), x, np.clip(x, -most, most))


def _float_to_float(op, d: str, s: str, mode: str):
    integral = next((m for m in _INTEGER_MODES if op.has(m)), None)
    relu, sat, ftz = op.has("relu"), op.has("sat"), op.has("ftz") and d != "f16"  # a GPU flushes nothing on the way to f16
    satfinite = d in ("f16", "bf16") and op.has("satfinite")

    def meaning(a):
        if ftz and s == "f32":
            a = flush(a)
        x = _to_double(s, a)
        if integral:
            x = np.copysign(_INTEGER_MODES[integral](x), x)
        if sat:
            x = saturate(x)
        if satfinite:
            x = _finite(d, x)
        if relu:
            x = np.where(np.isnan(x), x, np.where(x > 0, x, 0.0))
        r = _from_double(d, x, mode)
        if d == "f32":
            r = np.array(r) if s == "f64" else canonical(np.array(r))  # a float64's NaN keeps the upper bits of its payload
            return flush(r) if ftz else r
        return r

    if d == s == "f32" and not (integral or relu or sat or ftz):
        return lambda a: canonical(np.array(a))
    if d == "f32" and s == "f16" and not (integral or relu or sat):
        return lambda a: canonical(a.astype(F32))
    if d == "f32" and s == "bf16" and not (integral or relu or sat):
        return lambda a: canonical(np.array(bfloat_to_float(a)))
    if d == "f64" and not (integral or sat):
        return lambda a: _to_double(s, flush(a) if ftz and s == "f32" else a)
    return meaning


def _tf32(mode, relu, satfinite):
    """float32 to tf32: 10 bits of mantissa are kept; rna rounds halves away from zero."""

    def meaning(a):
        if satfinite:
            a = _finite("tf32", a)
        bits = a.view(np.uint32)
        if mode == "rna":
            rounded = bits + np.uint32(0x1000)
        elif mode == "rz":
            rounded = bits
        else:
            rounded = bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
        special = (bits & np.uint32(0x7F800000)) == np.uint32(0x7F800000)
        r = np.where(special, bits, rounded & np.uint32(0xFFFFE000))
        r = np.where(np.isnan(a), np.uint32(0x7FFFFFFF), r)
        if relu:
            r = np.where((r >> np.uint32(31) != 0) & ~np.isnan(a), np.uint32(0), r)
        return r.astype(np.uint32)

    return meaning


# --- 8-bit floats, always in pairs -----------------------------------------------------------------------------------


def _eight_bit_values(exponent_bits: int, count: int) -> np.ndarray:
    """The non-negative finite values of an 8-bit float, by code. e4m3 has no infinity: its codes go up to 0x7e."""
    mantissa_bits = 7 - exponent_bits
    bias = (1 << (exponent_bits - 1)) - 1
    codes = np.arange(count)
    exponent, mantissa = codes >> mantissa_bits, codes & ((1 << mantissa_bits) - 1)
    fraction = mantissa / (1 << mantissa_bits)
    return np.where(exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias))


EIGHT_BITS = {"e4m3x2": _eight_bit_values(4, 0x7F), "e5m2x2": _eight_bit_values(5, 0x7C)}


def _to_eight(kind: str, x: np.ndarray, relu: bool) -> np.ndarray:
    """float64 to codes: nearest, ties to even, clamped to the largest finite value; NaN becomes 0x7f."""
    values = EIGHT_BITS[kind]
    if relu:
        x = np.where(x > 0, x, np.where(np.isnan(x), x, 0.0))
    size = np.minimum(np.abs(x), values[-1])
    above = np.minimum(np.searchsorted(values, size), len(values) - 1)
    below = np.maximum(above - 1, 0)
    up, down = values[above] - size, size - values[below]
    code = np.where((up < down) | ((up == down) & (above % 2 == 0)), above, below)
    code = code | np.where(np.signbit(x), 0x80, 0)
    return np.where(np.isnan(x), 0x7F, code).astype(U16)


def _cvt_to_eight(op, d, s):
    """cvt.e4m3x2.f32 d, a, b (a goes to the high byte), or cvt.e4m3x2.f16x2 d, a."""
    relu = op.has("relu")
    if s == "f16x2":

        def narrow(a):
            low, high = _halves(a, "f16x2")
            return _to_eight(d, low.astype(F64), relu) | (_to_eight(d, high.astype(F64), relu) << np.uint16(8))

        return op.lanewise(narrow, d, ("f16x2",))
    return op.lanewise(
        lambda a, b: (_to_eight(d, a.astype(F64), relu) << np.uint16(8)) | _to_eight(d, b.astype(F64), relu),
        d,
        ("f32", "f32"),
    )


def _eight_to_halves(kind, relu):
    values = np.full(256, np.nan)
    finite = EIGHT_BITS[kind]
    values[: len(finite)], values[128 : 128 + len(finite)] = finite, -finite
    if kind == "e5m2x2":
        values[0x7C], values[0xFC] = np.inf, -np.inf
    table = values.astype(F16)
    bits = table.view(U16).copy()
    bits[np.isnan(table)] = numerics.NAN16
    if relu:
        bits[128:] = np.where(np.isnan(table[128:]), numerics.NAN16, 0)
    wide = bits.astype(np.uint32)
    return lambda a: wide[a & np.uint16(255)] | (wide[a >> np.uint16(8)] << np.uint32(16))


def _e4m3(value: float) -> int:
    """Reference: the code of the nearest e4m3 value, by trying all of them."""
    if math.isnan(value):
        return 0x7F
    best, best_distance = 0, None
    for code in range(0x7F):
        exponent, mantissa = code >> 3, code & 7
        exact = Fraction(mantissa, 8) * Fraction(1, 64) if exponent == 0 else (1 + Fraction(mantissa, 8)) * Fraction(2) ** (exponent - 7)
        distance = abs(min(Fraction(abs(value)) if math.isfinite(value) else Fraction(448), Fraction(448)) - exact)
        if best_distance is None or distance < best_distance or (distance == best_distance and code % 2 == 0):
            best, best_distance = code, distance
    return best | (0x80 if math.copysign(1, value) < 0 else 0)


def _trunc_fraction(a, mode):
    return {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}[mode](Fraction(a))


def _clamped(mode, low, high, nan=0):
    def reference(a):
        if math.isnan(a):
            return nan
        if math.isinf(a):
            return high if a > 0 else low
        return min(max(_trunc_fraction(a, mode), low), high)

    return reference


_S32 = (-(2**31), 2**31 - 1)


@instruction("cvt")
@example("cvt.u64.u32", reference=lambda a: a, result="u64")
@example("cvt.s64.s32", reference=lambda a: a, result="s64")
@example("cvt.u32.u64", reference=lambda a: a, result="u32")
@example(
    "cvt.s8.s32",
    reference=lambda a: a,
    result="s32",
    template="{{ .reg .b16 t; cvt.s8.s32 t, {a}; cvt.s32.s8 {d}, t; }}",
    values=[(5,), (-5,), (100,), (-128,)],
)
@example("cvt.sat.u8.s32", reference=lambda a: min(max(a, 0), 255), result="u32", template="cvt.sat.u8.s32 {d}, {a};")
@example("cvt.rn.f32.s32", reference=lambda a: Fraction(a), result="f32")
@example("cvt.rz.f32.u32", reference=lambda a: Fraction(a), result="f32", rounding="rz")
@example("cvt.rn.f32.u64", reference=lambda a: Fraction(a), result="f32")
@example("cvt.rp.f32.s64", reference=lambda a: Fraction(a), result="f32", rounding="rp")
@example("cvt.rn.f64.s64", reference=lambda a: Fraction(a), result="f64")
@example("cvt.rn.f16.s32", reference=lambda a: Fraction(a), result="f16")
@example("cvt.rzi.s32.f32", reference=_clamped("rzi", *_S32), arity=1, result="s32")
@example("cvt.rni.s32.f32", reference=_clamped("rni", *_S32), arity=1, result="s32")
@example("cvt.rmi.u32.f32", reference=_clamped("rmi", 0, 2**32 - 1), arity=1, result="u32")
@example("cvt.rpi.s32.f64", reference=_clamped("rpi", *_S32, nan=-(2**31)), arity=1, result="s32")
@example("cvt.rzi.s64.f32", reference=lambda a: int(a), result="s64", values=[(1.5,), (-7.9,), (1e15,)])
@example("cvt.rn.f32.f64", reference=lambda a: a, result="f32")
@example("cvt.rz.f32.f64", reference=lambda a: a, result="f32", rounding="rz")
@example("cvt.f64.f32", reference=lambda a: a, result="f64")
@example("cvt.rn.f16.f32", reference=lambda a: a, result="f16")
@example("cvt.rz.f16.f32", reference=lambda a: a, result="f16", rounding="rz")
@example("cvt.f32.f16", reference=lambda a: a, result="f32")
@example("cvt.rn.bf16.f32", reference=lambda a: a, result="bf16")
@example("cvt.rz.bf16.f32", reference=lambda a: a, result="bf16", rounding="rz")
@example("cvt.rni.f32.f32", reference=lambda a: math.copysign(float(round(a)), a) if math.isfinite(a) else a, result="f32")
@example(
    "cvt.rna.tf32.f32",
    reference=lambda a: a,
    result="tf32",
    rounding="rna",
    values=[(1.0,), (1.00048828125,), (3.14159274,), (-0.1,)],
)
@example(
    "cvt.rn.satfinite.e4m3x2.f32",
    reference=lambda a, b: _e4m3(a) << 8 | _e4m3(b),
    sources=("f32", "f32"),
    result="b16",
    values=[
        (1.0, -0.5),
        (3.3, 1000.0),
        (-0.01, 0.0009),
        (17.0, 19.0),
        (math.inf, math.nan),
        (0.0, -0.0),
        (1.0625, 1.1875),
    ],
)
@example("cvt.rn.f16x2.e4m3x2", reference=lambda a: 0x3C00B800, sources=("b16",), result="b32", values=[(0x38B0,)])
@example("cvt.rn.f16x2.e5m2x2", reference=lambda a: 0x3C007C00, sources=("b16",), result="b32", values=[(0x3C7C,)])
def cvt(op):
    """d = a in another type, with the rounding and saturation that the modifiers say."""
    if len(op.types) != 2:
        op.unknown()
    d, s = op.types
    mode = op.one_of(*MODES, default="rn")
    if d in ("f16x2", "bf16x2") and s == "f32":
        return _cvt_pair(op, d, mode)
    if d == "tf32":
        return op.lanewise(_tf32(mode, op.has("relu"), op.has("satfinite")), "tf32", ("f32",))
    if d in EIGHT_BITS:
        op.without_effect("satfinite")  # there is no other way
        return _cvt_to_eight(op, d, s)
    if s in EIGHT_BITS:
        return op.lanewise(_eight_to_halves(s, op.has("relu")), "f16x2", (s,))
    floats = ("f16", "bf16", "f32", "f64")
    if d in INTEGERS and s in INTEGERS:
        op.bitwise = not op.has("sat")
        meaning = _int_to_int(d, s, op.has("sat"))
    elif d in INTEGERS and s in floats:
        rounding = _INTEGER_MODES[op.one_of(*_INTEGER_MODES)]
        meaning = _float_to_int(d, s, rounding, op.has("ftz"))
    elif d in floats and s in INTEGERS:
        meaning = _int_to_float(d, s, mode)
        if op.has("sat"):
            plain = meaning
            meaning = lambda a: saturate(plain(a))  # noqa: E731 - as above
    elif d in floats and s in floats:
        meaning = _float_to_float(op, d, s, mode)
    else:
        op.unknown()
    return op.lanewise(meaning, d, (s,))


_PACKED = ("u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2")


def _packed_bytes(a, b, c):
    low, high = (min(max(x, -128), 127) & 0xFF for x in (b, a))
    return low | high << 8 | c << 16


@instruction("cvt.pack")
@example(
    "cvt.pack.sat.u16.s32", reference=lambda a, b: min(max(a, 0), 65535) << 16 | min(max(b, 0), 65535), sources=("s32",) * 2, result="b32"
)
@example("cvt.pack.sat.s8.s32.b32", reference=_packed_bytes, sources=("s32", "s32", "b32"), result="b32")
def cvt_pack(op):
    """d = a and b clamped to a narrow type and put side by side, b in the low bits; narrower than 16 bits, the low bits of c come above."""
    op.without_effect("sat")  # there is no other way
    to, types = op.one_of(*_PACKED), op.types
    bits, signed = int(to[1:]), to[0] == "s"
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    mask, shift = np.uint32((1 << bits) - 1), np.uint32(bits)

    def narrow(x):
        return np.clip(x.astype(np.int64), low, high).astype(np.uint32) & mask

    if types[-1] == "s32":
        return op.lanewise(lambda a, b: narrow(a) << shift | narrow(b), "b32", ("s32", "s32"))
    return op.lanewise(lambda a, b, c: c << shift + shift | narrow(a) << shift | narrow(b), "b32", ("s32", "s32", "b32"))


def _cvt_pair(op, d, mode):
    """cvt.f16x2.f32 d, a, b: a goes to the high half, b to the low half."""
    op.bitwise = True
    relu, satfinite = op.has("relu"), op.has("satfinite")
    half = d == "f16x2"

    def narrow(x):
        if relu:
            x = np.where(np.isnan(x), x, np.where(x > 0, x, np.float32(0)))
        if satfinite:
            x = _finite(d.removesuffix("x2"), x)
        if half:
            return numerics.double_to_half(x.astype(F64), mode).view(U16)
        return numerics.float_to_bfloat(np.ascontiguousarray(x), mode)

    def meaning(a, b):
        return (narrow(a).astype(np.uint32) << np.uint32(16)) | narrow(b).astype(np.uint32)

    return op.lanewise(meaning, d, ("f32", "f32"))
