"""Products of matrices as LLVM IR: elements out of the registers of a warp, their sums as tensor cores make them, and back."""

from __future__ import annotations

from helpers.sim.isa.mma import sums_of

from .builder import LlvmFunction, Var, vector
from .offsets import PRODUCT

INTS, LONGS, BITS = vector("i32"), vector("i64"), vector("i1")
DOUBLES, FLOATS = vector("double"), vector("float")
MOST = 16 * 256  # elements of a matrix
# Numbered as in `products.KINDS`.
UNPACK = ("f16", "bf16", "tf32", "f32", "s8", "u8", "s32")
PACK = ("f16", "f32", "s32")


def functions() -> list[LlvmFunction]:
    """All of them; those that others call come first."""
    return [*map(_unpack, UNPACK), *map(_pack, PACK), _product(), _cut_products()]


def _convert(f: LlvmFunction, how: str, value: Var, type_: str) -> Var:
    return f.value(type_, f"{how} {value.type} {value.name} to {type_}")


def _unpack(kind: str) -> LlvmFunction:
    """Elements of a matrix from the registers of a warp, as float64. table: see `products._gather`."""
    f = LlvmFunction("void", f"unpack_{kind}", table="ptr", words="ptr", matrix="ptr", count="i32")
    with f.loop((f.count + 31) >> 5) as step:
        entry = f.load(INTS, f.table.at(step * 128), 4)
        word = f.gather("i32", f.words.item("i32", entry & 0xFFFF), f.constant(BITS, -1)) >> (entry >> 16)
        if kind == "f16":
            numbers = _convert(f, "fpext", _convert(f, "bitcast", word.to(vector("i16")), vector("half")), FLOATS)
        elif kind in ("bf16", "tf32", "f32"):
            bits = word << 16 if kind == "bf16" else word & 0xFFFFE000 if kind == "tf32" else word
            numbers = _convert(f, "bitcast", bits, FLOATS)
        elif kind == "s32":
            numbers = _convert(f, "sitofp", word, DOUBLES)
        else:
            numbers = _convert(f, "sitofp" if kind == "s8" else "uitofp", word.to(vector("i8")), DOUBLES)
        if numbers.type == FLOATS:
            numbers = _convert(f, "fpext", numbers, DOUBLES)
        f.store(numbers, f.matrix.at(step * 256), 64)
    f.leave()
    return f


def _pack(kind: str) -> LlvmFunction:
    """Registers of a warp from float64 elements, rounded once. table: see `products._scatter`."""
    f = LlvmFunction("void", f"pack_{kind}", table="ptr", matrix="ptr", words="ptr", registers="i32")

    def bits(step: Var) -> Var:
        place = f.load(INTS, f.table.at(step * 128), 4)
        numbers = f.gather("double", f.matrix.item("double", place), f.constant(BITS, -1), align=8)
        if kind == "s32":
            return _convert(f, "fptosi", numbers, LONGS).to(INTS)
        near = _convert(f, "fptrunc", numbers, FLOATS)
        whole = _convert(f, "bitcast", near, INTS)
        size = whole & 0x7FFFFFFF
        nan = size.is_("ugt", 0x7F800000)
        if kind == "f32":
            return f.select(nan, f.constant(INTS, 0x7FFFFFFF), whole)
        # To odd first: then the second rounding is right.
        back = _convert(f, "fpext", near, DOUBLES)
        inexact = f.value(BITS, f"fcmp one {DOUBLES} {back.name}, {numbers.name}")
        far, true = (_convert(f, "bitcast", n, LONGS) & 0x7FFFFFFFFFFFFFFF for n in (back, numbers))
        odd = f.select(far.is_("ugt", true), whole - 1, whole) | 1
        exact = _convert(f, "bitcast", f.select(inexact, odd, whole), FLOATS)
        half = _convert(f, "bitcast", _convert(f, "fptrunc", exact, vector("half")), vector("i16")).to(INTS)
        return f.select(nan, f.constant(INTS, 0x7FFF), half)

    with f.loop(f.registers) as r:
        if kind == "f16":
            word = bits(r << 1) | (bits((r << 1) + 1) << 16)
        else:
            word = bits(r)
        f.store(word, f.words.at(r * 128), 64)
    f.leave()
    return f


def _product() -> LlvmFunction:
    """D = A x B + C. about: numbers as in `offsets.PRODUCT`. left, right, old, to: the registers of A, B, C and D.

    Where it says `cut`, sums are those of `isa.mma.cut_sums`, except where they are not finite.
    """
    f = LlvmFunction("void", "product", about="ptr", left="ptr", right="ptr", old="ptr", to="ptr")
    a, b, c = (f.room("double", MOST) for _ in range(3))

    def fact(name: str) -> Var:
        return f.about.field(PRODUCT[name], "i32")

    m, n, k = fact("m"), fact("n"), fact("k")
    for kind_name, place, words, count in (("a", a, f.left, m * k), ("b", b, f.right, k * n), ("c", c, f.old, m * n)):
        table = f.about.at(fact(f"{kind_name}_table"))
        for number, kind in enumerate(UNPACK):
            with f.when(fact(f"{kind_name}_kind").is_("eq", number)):
                f.function_call("void", f"unpack_{kind}", table, words, place, count)
    eight = vector("double", 8)
    with f.loop(m) as i, f.loop(n >> 3) as j:
        row, column = a.at((i * k) << 3), b.at(j << 6)
        at = c.at((i * n + (j << 3)) << 3)
        old = f.load(eight, at, 64)
        result = f.variable(f.value(eight, f"fadd {eight} {_plain_sum(f, row, column, n, k, 64).name}, {old.name}"))
        with f.when(fact("cut").is_("ne", 0)):
            lowest = fact("a_lowest"), fact("b_lowest")
            result.set(_cut_sums(f, row, column, n, k, old, result.get(), lowest, 64))
        f.store(result.get(), at, 64)
    with f.when(fact("saturate").is_("ne", 0)), f.loop((m * n) >> 3) as step:
        at = c.at(step << 6)
        value = f.load(eight, at, 64).name
        for name, limit in (("maxnum", -(2.0**31)), ("minnum", 2.0**31 - 1)):
            f.intrinsics.add(f"declare {eight} @llvm.{name}.v8f64({eight}, {eight})")
            value = f.new(f"call {eight} @llvm.{name}.v8f64({eight} {value}, {eight} splat (double {limit:e}))")
        f.store(Var(f, eight, value), at, 64)
    for kind in PACK:
        with f.when(fact("d_kind").is_("eq", UNPACK.index(kind))):
            f.function_call("void", f"pack_{kind}", f.about.at(fact("d_table")), c, f.to, fact("d_registers"))
    f.leave()
    return f


def _cut_products() -> LlvmFunction:
    """`isa.mma.cut_sums` of one pair of matrices for the NumPy machine: doubles, rows behind each other, n a multiple of 8."""
    words = dict.fromkeys(("m", "n", "k", "a_lowest", "b_lowest"), "i32")
    f = LlvmFunction("void", "cut_products", left="ptr", right="ptr", old="ptr", to="ptr", **words)
    eight = vector("double", 8)
    with f.loop(f.m) as i, f.loop(f.n >> 3) as j:
        at = (i * f.n + (j << 3)) << 3
        row, column, old = f.left.at((i * f.k) << 3), f.right.at(j << 6), f.load(eight, f.old.at(at), 8)
        plain = f.value(eight, f"fadd {eight} {_plain_sum(f, row, column, f.n, f.k, 8).name}, {old.name}")
        f.store(_cut_sums(f, row, column, f.n, f.k, old, plain, (f.a_lowest, f.b_lowest), 8), f.to.at(at), 8)
    f.leave()
    return f


def _plain_sum(f: LlvmFunction, row: Var, column: Var, n: Var, k: Var, align: int) -> Var:
    """Eight sums of k products of doubles: a row times a column of eights."""
    eight = vector("double", 8)
    total = f.variable(f.constant(eight, 0))
    f.intrinsics.add(f"declare {eight} @llvm.fma.v8f64({eight}, {eight}, {eight})")
    with f.loop(k) as t:
        one = f.spread(f.load("double", row.at(t << 3), 8), eight)
        other = f.load(eight, column.at((t * n) << 3), align)
        total.set(f.value(eight, f"call {eight} @llvm.fma.v8f64({eight} {one.name}, {eight} {other.name}, {eight} {total.get().name})"))
    return total.get()


def _cut_sums(f: LlvmFunction, row: Var, column: Var, n: Var, k: Var, old: Var, exact: Var, lowest: tuple[Var, Var], align: int) -> Var:
    """Eight sums of k products, of a row of doubles and a column of eights, and `old`: `isa.mma.cut_sums`. exact: what to take instead
    where it is not finite. lowest: exponents, that factors have at least."""
    eight, bits = vector("double", 8), vector("i64", 8)
    sums = sums_of("f16", "f32")
    assert sums is not None
    f.intrinsics |= {f"declare {bits} @llvm.smax.v8i64({bits}, {bits})"}
    f.intrinsics |= {f"declare {eight} @llvm.{name}.v8f64({eight})" for name in ("trunc", "fabs")}

    def exponent(value: Var) -> str:  # where it is, as the double has it
        return f.new(f"and {bits} {f.new(f'bitcast {eight} {value.name} to {bits}')}, splat (i64 {0x7FF << 52})")

    def least(number: Var) -> str:
        wide = f.new(f"shl i64 {f.new(f'sext i32 {(number + 1023).name} to i64')}, 52")
        return f.spread(Var(f, "i64", wide), bits).name

    def at_least(value: Var, low: str) -> str:  # but nothing for a zero
        found = exponent(value)
        more = f.new(f"call {bits} @llvm.smax.v8i64({bits} {found}, {bits} {low})")
        return f.new(f"select <8 x i1> {f.new(f'icmp eq {bits} {found}, zeroinitializer')}, {bits} zeroinitializer, {bits} {more}")

    def factors(t: Var) -> tuple[Var, Var]:
        return f.spread(f.load("double", row.at(t << 3), 8), eight), f.load(eight, column.at((t * n) << 3), align)

    def cut(value: str) -> str:
        scaled = f.new(f"fmul {eight} {value}, {scale}")
        return f.new(f"call {eight} @llvm.trunc.v8f64({eight} {scaled})")

    lows = [least(number) for number in lowest]
    highest = f.variable(Var(f, bits, exponent(old)))
    with f.loop(k) as t:
        one, other = factors(t)
        both = f.new(f"add {bits} {at_least(one, lows[0])}, {at_least(other, lows[1])}")
        both = f.new(f"sub {bits} {both}, splat (i64 {1023 << 52})")
        highest.set(f.value(bits, f"call {bits} @llvm.smax.v8i64({bits} {highest.get().name}, {bits} {both})"))
    top = f.new(f"call {bits} @llvm.smax.v8i64({bits} {highest.get().name}, {bits} splat (i64 {(1023 - 126) << 52}))")
    kept = sums.behind << 52
    scale = f.new(f"bitcast {bits} {f.new(f'sub {bits} splat (i64 {(2046 << 52) + kept}), {top}')} to {eight}")
    unit = f.new(f"bitcast {bits} {f.new(f'sub {bits} {top}, splat (i64 {kept})')} to {eight}")
    total = f.variable(Var(f, eight, cut(old.name)))
    with f.loop(k) as t:
        one, other = factors(t)
        total.set(f.value(eight, f"fadd {eight} {total.get().name}, {cut(f.new(f'fmul {eight} {one.name}, {other.name}'))}"))
    number = f.new(f"bitcast {eight} {f.new(f'fmul {eight} {total.get().name}, {unit}')} to {bits}")
    found = f.new(f"bitcast {bits} {f.new(f'and {bits} {number}, splat (i64 {~((1 << (53 - sums.kept)) - 1)})')} to {eight}")
    size = f.new(f"call {eight} @llvm.fabs.v8f64({eight} {exact.name})")
    finite = f.new(f"fcmp olt {eight} {size}, splat (double 0x7FF0000000000000)")
    return f.value(eight, f"select <8 x i1> {finite}, {eight} {found}, {eight} {exact.name}")
