"""Arithmetic, logic, conversions and moves of PTX as LLVM IR. A handler gets the lowering and the instruction.

What is not here raises Unsupported when it is met, and the kernel runs in the NumPy machine.
"""

from __future__ import annotations

from helpers.sim.code.addresses import SHARED_WINDOW
from helpers.sim.code.ptx import TYPE_BYTES, Immediate, Instruction, Register, Vector

from .declined import Unsupported
from .dispatch import operation
from .lower import BITS, Value

_COMPARE = {
    "eq": ("eq", "eq", "oeq"), "ne": ("ne", "ne", "one"), "lt": ("slt", "ult", "olt"), "le": ("sle", "ule", "ole"),
    "gt": ("sgt", "ugt", "ogt"), "ge": ("sge", "uge", "oge"), "lo": ("ult", "ult", "olt"), "ls": ("ule", "ule", "ole"),
    "hi": ("ugt", "ugt", "ogt"), "hs": ("uge", "uge", "oge"), "equ": ("", "", "ueq"), "neu": ("", "", "une"),
    "ltu": ("", "", "ult"), "leu": ("", "", "ule"), "gtu": ("", "", "ugt"), "geu": ("", "", "uge"),
    "num": ("", "", "ord"), "nan": ("", "", "uno"),
}  # fmt: skip


def _is_float32(instruction: Instruction) -> bool:
    return "f32" in instruction.modifiers


def allow(instruction: Instruction, *patterns: str) -> None:
    """Raise Unsupported unless every modifier is among the words of `patterns`."""
    known = {word for pattern in patterns for word in pattern.split()}
    for modifier in instruction.modifiers:
        if modifier not in known:
            raise Unsupported(f"`{instruction.opcode}`")


INTEGERS = "b16 u16 s16 b32 u32 s32 b64 u64 s64"
FLOATS = "f32 f64"


def _kind(instruction: Instruction) -> str:
    return instruction.opcode.rsplit(".", 1)[1]


def _is_float(kind: str) -> bool:
    return kind in ("f32", "f64")


def _signed(kind: str) -> bool:
    return kind.startswith("s")


def _sources(low, instruction, kind, first=1):
    return [low.operand(o, kind) for o in instruction.operands[first:]]


def _linear(value: Value) -> bool:
    return not value.uniform and value.type in ("i32", "i64")


def add_integers(low, a: Value, b: Value, op: str = "add") -> Value:
    """a ± b, scalar and vector parts apart."""
    type_ = a.type
    if (a.uniform and b.uniform) or type_ not in ("i32", "i64"):
        return low.apply(type_, [a, b], lambda t, x, y: f"{op} {t(type_)} {x}, {y}")
    left, right = a.s or "0", b.s or "0"
    if right == "0":
        scalar = left
    elif left == "0" and op == "add":
        scalar = right
    else:
        scalar = low.new(f"{op} {type_} {left}, {right}")
    if b.uniform:
        vector = a.v
    elif a.uniform:
        vector = b.v if op == "add" else low.new(f"sub <32 x {type_}> zeroinitializer, {b.v}")
    else:
        vector = low.new(f"{op} <32 x {type_}> {a.v}, {b.v}")
    return Value(type_, s=scalar, v=vector)


def multiply_integers(low, a: Value, b: Value) -> Value:
    type_ = a.type
    if a.uniform and not b.uniform:
        a, b = b, a
    if b.uniform and _linear(a):
        scalar = None if a.s in (None, "0") else low.new(f"mul {type_} {a.s}, {b.s}")
        return Value(type_, s=scalar, v=low.new(f"mul <32 x {type_}> {a.v}, {low.splat(type_, b.s)}"))
    return low.apply(type_, [a, b], lambda t, x, y: f"mul {t(type_)} {x}, {y}")


def flush(low, value: Value) -> Value:
    """Subnormal float32 values become zero with their sign."""
    size = low.intrinsic("fabs", "float", [value])
    tiny = "0x3810000000000000"
    zero = low.intrinsic("copysign", "float", [Value("float", s="0.0"), value]) if value.uniform else None
    if value.uniform:
        small = low.new(f"fcmp olt float {size.s}, {tiny}")
        return Value("float", s=low.new(f"select i1 {small}, float {zero.s}, float {value.s}"))
    zeros = low.call("<32 x float>", "llvm.copysign.v32f32", ("<32 x float>", "zeroinitializer"), ("<32 x float>", low.full(value)))
    small = low.new(f"fcmp olt <32 x float> {size.v}, splat (float {tiny})")
    return Value("float", v=low.new(f"select <32 x i1> {small}, <32 x float> {zeros}, <32 x float> {value.v}"))


def _float_result(low, instruction, value: Value) -> Value:
    if "ftz" in instruction.modifiers:
        value = flush(low, value)
    if "sat" in instruction.modifiers:
        raise Unsupported(f"`{instruction.opcode}`")
    return value


def _float_sources(low, instruction, kind, first=1):
    values = _sources(low, instruction, kind, first)
    if "ftz" in instruction.modifiers:
        values = [flush(low, v) for v in values]
    return values


_ANY_NUMBER = "2.0"  # a sum or product of it and a NaN is the NaN, quiet. LLVM leaves out x * 1 and x + 0 and keeps the NaN as it was.


def _unless_nan_beside(low, value: Value, other: Value) -> Value:
    """A number where `other` is a NaN: of float64 operands that are NaNs the last one is the result, whatever the processor does."""

    def text(t, x, y):
        nan = low.new(f"fcmp uno {t('double')} {y}, {y}")
        return f"select {t('i1')} {nan}, {t('double')} {_any_number(t('double'))}, {t('double')} {x}"

    return low.apply("double", [value, other], text)


def _any_number(type_: str) -> str:
    return f"splat (double {_ANY_NUMBER})" if type_.startswith("<") else _ANY_NUMBER


def _quieted(low, value: Value, result: Value) -> Value:
    """A float64 `result`, but where `value` is a NaN, that one, quiet."""

    def text(t, x, r):
        nan = low.new(f"fcmp uno {t('double')} {x}, {x}")
        quiet = low.new(f"fadd {t('double')} {x}, {_any_number(t('double'))}")
        return f"select {t('i1')} {nan}, {t('double')} {quiet}, {t('double')} {r}"

    return low.apply("double", [value, result], text)


@operation("add", "sub", cpu_nans=_is_float32)
def _add(low, i):
    allow(i, INTEGERS, FLOATS, "rn ftz")
    kind = _kind(i)
    if not _is_float(kind):
        a, b = _sources(low, i, kind)
        low.put(i.operands[0], add_integers(low, a, b, i.name))
        return
    a, b = _float_sources(low, i, kind)
    if kind == "f64":
        a = _unless_nan_beside(low, a, b)
    result = low.apply(a.type, [a, b], lambda t, x, y: f"f{i.name} {t(a.type)} {x}, {y}")
    low.put(i.operands[0], _float_result(low, i, result))


def _widen(low, value: Value, kind: str) -> Value:
    wide = f"i{2 * BITS[value.type]}"
    op = "sext" if _signed(kind) else "zext"
    return low.unary(value, lambda t, x: f"{op} {t(value.type)} {x} to {t(wide)}", wide)


def _product(low, i, a: Value, b: Value, kind: str) -> Value:
    if "wide" in i.modifiers:
        return multiply_integers(low, _widen(low, a, kind), _widen(low, b, kind))
    if "hi" in i.modifiers:
        wide = multiply_integers(low, _widen(low, a, kind), _widen(low, b, kind))
        shifted = low.unary(wide, lambda t, x: f"lshr {t(wide.type)} {x}, {_constant(t(wide.type), BITS[a.type])}", wide.type)
        return low.cast(shifted, a.type)
    return multiply_integers(low, a, b)


def _constant(type_: str, number: int) -> str:
    if type_.startswith("<"):
        return f"splat ({type_.split(' x ')[1][:-1]} {number})"
    return str(number)


@operation("mul", cpu_nans=_is_float32)
def _mul(low, i):
    kind = _kind(i)
    if _is_float(kind):
        allow(i, FLOATS, "rn ftz")
        a, b = _float_sources(low, i, kind)
        if kind == "f64":
            a = _unless_nan_beside(low, a, b)
        result = low.apply(a.type, [a, b], lambda t, x, y: f"fmul {t(a.type)} {x}, {y}")
        low.put(i.operands[0], _float_result(low, i, result))
        return
    allow(i, INTEGERS, "lo hi wide")
    a, b = _sources(low, i, kind)
    low.put(i.operands[0], _product(low, i, a, b, kind))


@operation("mad", "fma", cpu_nans=_is_float32)
def _mad(low, i):
    kind = _kind(i)
    if _is_float(kind):
        allow(i, FLOATS, "rn ftz")
        values = _float_sources(low, i, kind)
        if kind == "f64":
            a, b, c = values
            values = [_unless_nan_beside(low, _unless_nan_beside(low, a, b), c), _unless_nan_beside(low, b, c), c]
        low.put(i.operands[0], _float_result(low, i, low.intrinsic("fma", values[0].type, values)))
        return
    allow(i, INTEGERS, "lo hi wide")
    a, b = (low.operand(o, kind) for o in i.operands[1:3])
    product = _product(low, i, a, b, kind)
    wide = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}[kind] if "wide" in i.modifiers else kind
    low.put(i.operands[0], add_integers(low, product, low.operand(i.operands[3], wide)))


@operation("div", "rem", cpu_nans=_is_float32)
def _divide(low, i):
    kind = _kind(i)
    if _is_float(kind):
        if i.name == "rem" or "rn" not in i.modifiers:
            raise Unsupported(f"`{i.opcode}`")
        allow(i, FLOATS, "rn")
        a, b = _sources(low, i, kind)
        low.put(i.operands[0], low.apply(a.type, [a, b], lambda t, x, y: f"fdiv {t(a.type)} {x}, {y}"))
        return
    allow(i, INTEGERS)
    a, b = _sources(low, i, kind)
    low.put(i.operands[0], low.apply(a.type, [a, b], lambda t, x, y: _quotient(low, t(a.type), t("i1"), x, y, kind, i.name)))


def _quotient(low, type_: str, bit: str, x: str, y: str, kind: str, name: str) -> str:
    """x / y or x % y with the GPU's answers where C has none: x / 0 is all ones, x % 0 is x, and -x wraps."""
    zero, ones, one = (_constant(type_, n) for n in (0, -1, 1))
    nothing = low.new(f"icmp eq {type_} {y}, {zero}")
    unsafe = nothing
    if _signed(kind):
        least = low.new(f"icmp eq {type_} {x}, {_constant(type_, -(1 << 8 * TYPE_BYTES[kind] - 1))}")
        minus = low.new(f"icmp eq {type_} {y}, {ones}")
        unsafe = low.new(f"or {bit} {nothing}, {low.new(f'and {bit} {least}, {minus}')}")
    divisor = low.new(f"select {bit} {unsafe}, {type_} {one}, {type_} {y}")
    quotient = low.new(f"{'sdiv' if _signed(kind) else 'udiv'} {type_} {x}, {divisor}")
    if name == "div":
        return f"select {bit} {nothing}, {type_} {ones}, {type_} {quotient}"
    rest = low.new(f"sub {type_} {x}, {low.new(f'mul {type_} {quotient}, {y}')}")
    return f"select {bit} {nothing}, {type_} {x}, {type_} {rest}"


@operation("rcp", cpu_nans=_is_float32)
def _reciprocal(low, i):
    allow(i, FLOATS, "rn")
    (a,) = _sources(low, i, _kind(i))
    low.put(i.operands[0], low.unary(a, lambda t, x: f"fdiv {t(a.type)} {_one(t(a.type), a.type)}, {x}", a.type))


def _one(type_: str, element: str) -> str:
    return "1.0" if type_ == element else f"splat ({element} 1.0)"


@operation("sqrt", cpu_nans=_is_float32)
def _sqrt(low, i):
    allow(i, FLOATS, "rn")
    kind = _kind(i)
    (a,) = _sources(low, i, kind)
    low.put(i.operands[0], low.intrinsic("sqrt", a.type, [a]))


@operation("neg", "abs", cpu_nans=_is_float32)
def _sign(low, i):
    kind = _kind(i)
    if _is_float(kind):
        allow(i, FLOATS)
        value = low.operand(i.operands[1], kind)
        if i.name == "neg":
            result = low.unary(value, lambda t, x: f"fneg {t(value.type)} {x}", value.type)
        else:
            result = low.intrinsic("fabs", value.type, [value])
        low.put(i.operands[0], result if kind == "f32" else _quieted(low, value, result))
        return
    allow(i, INTEGERS)
    (a,) = _sources(low, i, kind)
    if i.name == "abs":
        low.put(i.operands[0], low.intrinsic("abs", a.type, [a], "i1 false"))
    else:
        low.put(i.operands[0], add_integers(low, Value(a.type, s="0"), a, "sub"))


def _quieted_both(low, a: Value, b: Value, result: Value) -> Value:
    """A float64 `result`, but where both are NaNs, the second, quiet."""

    def text(t, x, y, r):
        one, other = (low.new(f"fcmp uno {t('double')} {v}, {v}") for v in (x, y))
        nans = low.new(f"and {t('i1')} {one}, {other}")
        quiet = low.new(f"fadd {t('double')} {y}, {_any_number(t('double'))}")
        return f"select {t('i1')} {nans}, {t('double')} {quiet}, {t('double')} {r}"

    return low.apply("double", [a, b, result], text)


def _number_of_both(low, a: Value, b: Value, result: Value) -> Value:
    """`result`, but the other where one is a NaN. LLVM's own `minimumnum` does it, and gives the NaN for a scalar beside one
    that it knows to be a number (LLVM 20, x86)."""

    def text(t, x, y, r):
        one, other = (low.new(f"fcmp uno {t(a.type)} {v}, {v}") for v in (x, y))
        first = low.new(f"select {t('i1')} {other}, {t(a.type)} {x}, {t(a.type)} {r}")
        return f"select {t('i1')} {one}, {t(a.type)} {y}, {t(a.type)} {first}"

    return low.apply(a.type, [a, b, result], text)


@operation("min", "max", cpu_nans=_is_float32)
def _extreme(low, i):
    kind = _kind(i)
    if len(i.operands) != 3:
        raise Unsupported(f"`{i.opcode}` of three")
    if _is_float(kind):
        allow(i, FLOATS, "ftz")
        a, b = _float_sources(low, i, kind)
        result = _number_of_both(low, a, b, low.intrinsic(f"{i.name}imum", a.type, [a, b]))
        if kind == "f64":  # a NaN only if both are
            result = _quieted_both(low, a, b, result)
        low.put(i.operands[0], result)
        return
    allow(i, INTEGERS)
    a, b = _sources(low, i, kind)
    low.put(i.operands[0], low.intrinsic(("s" if _signed(kind) else "u") + i.name, a.type, [a, b]))


@operation("and", "or", "xor")
def _logic(low, i):
    allow(i, INTEGERS, "pred")
    kind = _kind(i)
    a, b = _sources(low, i, kind)
    low.put(i.operands[0], low.apply(a.type, [a, b], lambda t, x, y: f"{i.name} {t(a.type)} {x}, {y}"))


@operation("not")
def _not(low, i):
    allow(i, INTEGERS, "pred")
    (a,) = _sources(low, i, _kind(i))

    def text(t, x):
        ones = "true" if a.type == "i1" else "-1"
        return f"xor {t(a.type)} {x}, {ones if t(a.type) == a.type else f'splat ({a.type} {ones})'}"

    low.put(i.operands[0], low.unary(a, text, a.type))


@operation("shl", "shr")
def _shift(low, i):
    allow(i, INTEGERS)
    kind = _kind(i)
    a = low.operand(i.operands[1], kind)
    bits = BITS[a.type]
    amount = i.operands[2]
    op = "shl" if i.name == "shl" else "ashr" if _signed(kind) else "lshr"
    if isinstance(amount, Immediate):
        count = amount.value & 0xFFFFFFFF
        if count >= bits:
            count = bits - 1 if op == "ashr" else None
        if count is None:
            low.put(i.operands[0], Value(a.type, s="0"))
        elif op == "shl" and _linear(a):
            scalar = None if a.s in (None, "0") else low.new(f"shl {a.type} {a.s}, {count}")
            low.put(
                i.operands[0],
                Value(a.type, s=scalar, v=low.new(f"shl <32 x {a.type}> {a.v}, splat ({a.type} {count})")),
            )
        else:
            low.put(i.operands[0], low.unary(a, lambda t, x: f"{op} {t(a.type)} {x}, {_constant(t(a.type), count)}", a.type))
        return
    count = low.operand(amount, "u32")

    def text(t, x, n):
        wide = t("i32")
        limit = low.new(f"icmp uge {wide} {n}, {_constant(wide, bits)}")
        safe = low.new(f"select {t('i1')} {limit}, {wide} {_constant(wide, bits - 1)}, {wide} {n}")
        if bits != 32:
            safe = low.new(f"{'zext' if bits > 32 else 'trunc'} {wide} {safe} to {t(a.type)}")
        shifted = low.new(f"{op} {t(a.type)} {x}, {safe}")
        if op == "ashr":
            return f"or {t(a.type)} {shifted}, {_constant(t(a.type), 0)}"
        return f"select {t('i1')} {limit}, {t(a.type)} {_constant(t(a.type), 0)}, {t(a.type)} {shifted}"

    low.put(i.operands[0], low.apply(a.type, [a, count], text))


@operation("shf")
def _funnel(low, i):
    allow(i, "l r wrap b32")
    a, b, c = _sources(low, i, "b32")
    name = "fshl" if "l" in i.modifiers else "fshr"
    if "wrap" not in i.modifiers:
        raise Unsupported(f"`{i.opcode}`")
    low.put(i.operands[0], low.intrinsic(name, "i32", [b, a, c]))


@operation("lop3")
def _lop3(low, i):
    allow(i, "b32")
    a, b, c = (low.operand(o, "b32") for o in i.operands[1:4])
    table = i.operands[4].value

    def text(t, x, y, z):
        kind = t("i32")
        ones = _constant(kind, -1)
        inverse = {v: low.new(f"xor {kind} {v}, {ones}") for v in dict.fromkeys((x, y, z))}
        total = _constant(kind, 0)
        for k in range(8):
            if table >> k & 1:
                terms = [v if k >> (2 - n) & 1 else inverse[v] for n, v in enumerate((x, y, z))]
                term = low.new(f"and {kind} {low.new(f'and {kind} {terms[0]}, {terms[1]}')}, {terms[2]}")
                total = low.new(f"or {kind} {total}, {term}")
        return f"or {kind} {total}, {_constant(kind, 0)}"

    low.put(i.operands[0], low.apply("i32", [a, b, c], text))


@operation("popc", "clz", "brev")
def _bits(low, i):
    allow(i, "b32 b64")
    (a,) = _sources(low, i, _kind(i))
    if i.name == "brev":
        low.put(i.operands[0], low.intrinsic("bitreverse", a.type, [a]))
    elif i.name == "popc":
        low.put(i.operands[0], low.cast(low.intrinsic("ctpop", a.type, [a]), "i32"))
    else:
        low.put(i.operands[0], low.cast(low.intrinsic("ctlz", a.type, [a], "i1 false"), "i32"))


@operation("setp")
def _setp(low, i):
    compare, *rest = i.modifiers
    kind = _kind(i)
    if kind not in (*INTEGERS.split(), "f32", "f64") or compare not in _COMPARE:
        raise Unsupported(f"`{i.opcode}`")
    combine = next((m for m in rest if m in ("and", "or", "xor")), None)
    allow(i, INTEGERS, FLOATS, "and or xor ftz", " ".join(_COMPARE))
    if not isinstance(i.operands[0], Register):
        raise Unsupported("setp with two results")
    if _is_float(kind):
        a, b = (
            _float_sources(low, i, kind)[:2]
            if combine is None
            else [flush(low, v) if "ftz" in i.modifiers else v for v in (low.operand(o, kind) for o in i.operands[1:3])]
        )
        test = low.apply("i1", [a, b], lambda t, x, y: f"fcmp {_COMPARE[compare][2]} {t(a.type)} {x}, {y}")
    else:
        a, b = (low.operand(o, kind) for o in i.operands[1:3])
        code = _COMPARE[compare][0 if _signed(kind) else 1]
        if not code:
            raise Unsupported(f"`{i.opcode}`")
        test = low.apply("i1", [a, b], lambda t, x, y: f"icmp {code} {t(a.type)} {x}, {y}")
    if combine:
        other = low.operand(i.operands[3], "pred")
        test = low.apply("i1", [test, other], lambda t, x, y: f"{combine} {t('i1')} {x}, {y}")
    low.put(i.operands[0], test)


@operation("selp")
def _selp(low, i):
    allow(i, INTEGERS, FLOATS)
    kind = _kind(i)
    a, b = (low.observed(o, kind) for o in i.operands[1:3])
    c = low.operand(i.operands[3], "pred")
    low.put(
        i.operands[0],
        low.apply(a.type, [a, b, c], lambda t, x, y, p: f"select {t('i1')} {p}, {t(a.type)} {x}, {t(a.type)} {y}"),
    )


@operation("mov")
def _mov(low, i):
    allow(i, INTEGERS, FLOATS, "pred")
    kind = _kind(i)
    target, source = i.operands
    if isinstance(source, Vector):
        part = f"b{8 * TYPE_BYTES[kind] // len(source.items)}"
        values = [low.cast(low.operand(item, part), f"i{8 * TYPE_BYTES[kind]}") for item in source.items]
        result = values[0]
        for k, value in enumerate(values[1:], 1):
            shift = k * 8 * TYPE_BYTES[part]
            result = low.apply(
                value.type, [result, value],
                lambda t, x, y, n=shift, k=value.type: f"or {t(k)} {x}, {low.new(f'shl {t(k)} {y}, {_constant(t(k), n)}')}",
            )  # fmt: skip
        low.put(target, result)
        return
    if isinstance(target, Vector):
        value = low.operand(source, kind)
        value = low.cast(value, f"i{8 * TYPE_BYTES[kind]}")
        width = 8 * TYPE_BYTES[kind] // len(target.items)
        for k, item in enumerate(target.items):
            part = value
            if k:
                part = low.unary(
                    value,
                    lambda t, x, n=k * width: f"lshr {t(value.type)} {x}, {_constant(t(value.type), n)}",
                    value.type,
                )
            low.put(item, low.cast(part, f"i{width}"))
        return
    if isinstance(source, Register) and isinstance(target, Register) and source.name in low.types:
        same = low.types[source.name] == low.types[target.name]
        value = low.get(source.name) if same and (source.name in low.dirty) == (target.name in low.dirty) else low.operand(source, kind)
        if target.name not in low.dirty and source.name in low.dirty and value.type == "float":
            value = low.canonical(value)
        low.put(target, value)
        return
    low.put(target, low.operand(source, kind))


_WINDOWS = {"global": 0, "const": 0, "shared": SHARED_WINDOW, "shared::cta": SHARED_WINDOW}


@operation("cvta")
def _cvta(low, i):
    """A generic address is that of a space plus where the space begins."""
    allow(i, "to u64", " ".join(_WINDOWS))
    window = next(start for space, start in _WINDOWS.items() if space in i.modifiers)
    address = low.operand(i.operands[1], "u64")
    if window:
        address = add_integers(low, address, Value("i64", s=str(window)), "sub" if "to" in i.modifiers else "add")
    low.put(i.operands[0], address)


_RANGE = {"u8": 8, "s8": 8, "u16": 16, "s16": 16, "u32": 32, "s32": 32, "u64": 64, "s64": 64}


@operation("cvt")
def _cvt(low, i):
    target, source = i.opcode.split(".")[-2:]
    if source in _RANGE and target in _RANGE:
        allow(i, " ".join(_RANGE))
        value = low.operand(i.operands[1], source)
        have, want = BITS[value.type], _RANGE[target]
        if want > have:
            op = "sext" if _signed(source) else "zext"
            value = low.unary(value, lambda t, x: f"{op} {t(value.type)} {x} to {t(f'i{want}')}", f"i{want}")
        elif want < have:
            wide = value
            value = low.unary(wide, lambda t, x: f"trunc {t(wide.type)} {x} to {t(f'i{want}')}", f"i{want}")
        # The register may be wider than the type: it is filled by the target's sign.
        register = BITS[low.types[i.operands[0].name]] if isinstance(i.operands[0], Register) else want
        if register > want:
            op = "sext" if _signed(target) else "zext"
            narrow = value
            value = low.unary(narrow, lambda t, x: f"{op} {t(narrow.type)} {x} to {t(f'i{register}')}", f"i{register}")
        low.put(i.operands[0], value)
        return
    if source in _RANGE and _is_float(target):
        allow(i, " ".join(_RANGE), FLOATS, "rn")
        value = low.operand(i.operands[1], source)
        op = "sitofp" if _signed(source) else "uitofp"
        type_ = "float" if target == "f32" else "double"
        low.put(i.operands[0], low.unary(value, lambda t, x: f"{op} {t(value.type)} {x} to {t(type_)}", type_))
        return
    if source in _RANGE and target == "f16":
        allow(i, " ".join(_RANGE), "f16 rn")
        value = low.operand(i.operands[1], source)
        if BITS[value.type] > 32:
            raise Unsupported(f"`{i.opcode}`")
        op = "sitofp" if _signed(source) else "uitofp"
        number = low.unary(value, lambda t, x: f"{op} {t(value.type)} {x} to {t('double')}", "double")
        number = low.unary(number, lambda t, x: f"fptrunc {t('double')} {x} to {t('float')}", "float")
        # Integers that float32 has to round are beyond float16's range.
        low.put(i.operands[0], low.cast(low.unary(number, lambda t, x: f"fptrunc {t('float')} {x} to {t('half')}", "half"), "i16"))
        return
    if source in ("f32", "f64") and target in ("s32", "u32", "s64", "u64"):
        _to_integer(low, i, target, source)
        return
    if target == "f32" and source in ("f16", "bf16"):
        allow(i, "f32 f16 bf16")
        bits = low.operand(i.operands[1], "b16")
        if source == "f16":
            half = low.cast(bits, "half")
            value = low.unary(half, lambda t, x: f"fpext {t('half')} {x} to {t('float')}", "float")
        else:
            wide = low.unary(bits, lambda t, x: f"zext {t('i16')} {x} to {t('i32')}", "i32")
            value = low.cast(low.unary(wide, lambda t, x: f"shl {t('i32')} {x}, {_constant(t('i32'), 16)}", "i32"), "float")
        low.put(i.operands[0], low.canonical(value))
        return
    if (target, source) == ("f16", "f32"):
        allow(i, "f16 f32 rn")
        value = low.operand(i.operands[1], "f32")
        half = low.cast(low.unary(value, lambda t, x: f"fptrunc {t('float')} {x} to {t('half')}", "half"), "i16")
        low.put(i.operands[0], _unless_nan(low, value, half, 0x7FFF))
        return
    if (target, source) == ("bf16", "f32"):
        allow(i, "bf16 f32 rn")
        value = low.operand(i.operands[1], "f32")
        bits = low.cast(value, "i32")

        def rounded(t, x):
            kind = t("i32")
            odd = low.new(f"and {kind} {low.new(f'lshr {kind} {x}, {_constant(kind, 16)}')}, {_constant(kind, 1)}")
            up = low.new(f"add {kind} {low.new(f'add {kind} {x}, {_constant(kind, 0x7FFF)}')}, {odd}")
            return f"lshr {kind} {up}, {_constant(kind, 16)}"

        low.put(i.operands[0], _unless_nan(low, value, low.cast(low.unary(bits, rounded, "i32"), "i16"), 0x7FFF))
        return
    if (target, source) == ("f64", "f32"):
        allow(i, FLOATS)
        value = low.observed(i.operands[1], source)
        low.put(i.operands[0], low.unary(value, lambda t, x: f"fpext {t('float')} {x} to {t('double')}", "double"))
        return
    if (target, source) == ("f32", "f64"):
        allow(i, FLOATS, "rn")
        value = low.operand(i.operands[1], source)
        low.put(i.operands[0], low.unary(value, lambda t, x: f"fptrunc {t('double')} {x} to {t('float')}", "float"))
        return
    raise Unsupported(f"`{i.opcode}`")


_INTEGRAL = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def _to_integer(low, i, target, source):
    """Rounded, clamped to the target's range; NaN gives 0; from f64, or to 64 bits, the top bit alone."""
    allow(i, "f32 f64 s32 u32 s64 u64", " ".join(_INTEGRAL), "ftz")
    value = low.operand(i.operands[1], source)
    if "ftz" in i.modifiers and source == "f32":
        value = flush(low, value)
    rounding = next((name for word, name in _INTEGRAL.items() if word in i.modifiers), None)
    if rounding is None:
        raise Unsupported(f"`{i.opcode}`")
    whole = low.intrinsic(rounding, value.type, [value])
    vector = not whole.uniform
    have, want = value.type, f"i{8 * TYPE_BYTES[target]}"
    kinds = [f"<32 x {k}>" if vector else k for k in (want, have)]
    suffixes = [("v32" if vector else "") + {"float": "f32", "double": "f64"}.get(k, k) for k in (want, have)]
    name = f"llvm.fpto{'s' if _signed(target) else 'u'}i.sat.{suffixes[0]}.{suffixes[1]}"
    number = low.call(kinds[0], name, (kinds[1], low.full(whole) if vector else whole.s))
    result = Value(want, v=number) if vector else Value(want, s=number)
    to_zero = want == "i32" and source == "f32"
    low.put(i.operands[0], result if to_zero else _unless_nan(low, value, result, -(1 << int(want[1:]) - 1)))


def _unless_nan(low, value: Value, result: Value, nan: int) -> Value:
    """`nan` where `value` is not a number."""

    def text(t, x, y):
        bad = low.new(f"fcmp uno {t(value.type)} {x}, {x}")
        return f"select {t('i1')} {bad}, {t(result.type)} {_constant(t(result.type), nan)}, {t(result.type)} {y}"

    return low.apply(result.type, [value, result], text)


@operation("membar", "fence")
def _fence(low, i):
    """Warps of a block run one after the other between barriers, so everything is in order already."""


def _field(i, operands) -> tuple[int, int]:
    """(position, length) of a field that constants name."""
    if not all(isinstance(o, Immediate) for o in operands):
        raise Unsupported(f"`{i.opcode}` with a register")
    position, length = (o.value & 255 for o in operands)
    if position + length > 32 or length == 0:
        raise Unsupported(f"`{i.opcode}` beyond the register")
    return position, length


@operation("bfe")
def _bfe(low, i):
    allow(i, "u32 s32")
    position, length = _field(i, i.operands[2:])
    a = low.operand(i.operands[1], "u32")
    up = low.unary(a, lambda t, x: f"shl {t('i32')} {x}, {_constant(t('i32'), 32 - position - length)}", "i32")
    op = "ashr" if _kind(i) == "s32" else "lshr"
    low.put(i.operands[0], low.unary(up, lambda t, x: f"{op} {t('i32')} {x}, {_constant(t('i32'), 32 - length)}", "i32"))


@operation("bfi")
def _bfi(low, i):
    allow(i, "b32")
    position, length = _field(i, i.operands[3:])
    field = ((1 << length) - 1) << position
    a, b = (low.operand(operand, "b32") for operand in i.operands[1:3])

    def inserted(t, x, y):
        kind = t("i32")
        new = low.new(f"and {kind} {low.new(f'shl {kind} {x}, {_constant(kind, position)}')}, {_constant(kind, field)}")
        return f"or {kind} {new}, {low.new(f'and {kind} {y}, {_constant(kind, ~field & 0xFFFFFFFF)}')}"

    low.put(i.operands[0], low.apply("i32", [a, b], inserted))
