"""Products of matrices as LLVM IR: elements out of the registers of a warp, their sums as tensor cores make them, and back."""

from __future__ import annotations

from collections.abc import Sequence

from helpers.sim.isa.mma import sums_of

from .builder import LlvmFunction, Var, vector
from .offsets import PRODUCT

INTS, LONGS, BITS = vector("i32"), vector("i64"), vector("i1")
DOUBLES, FLOATS = vector("double"), vector("float")
MOST = 16 * 256  # elements of a matrix
TOGETHER = 4  # rows that are multiplied by a column at once
# Numbered as in `products.KINDS`.
UNPACK = ("f16", "bf16", "tf32", "f32", "s8", "u8", "s32")
PACK = ("f16", "f32", "s32")


def functions() -> list[LlvmFunction]:
    """All of them; those that others call come first."""
    return [*map(_unpack, UNPACK), *map(_pack, PACK), _powers(), _product(), _cut_products()]


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

    Where it says `cut`, sums are those of `isa.mma.cut_sums`.
    """
    f, eight = LlvmFunction("void", "product", about="ptr", left="ptr", right="ptr", old="ptr", to="ptr"), vector("double", 8)
    a, b, c = (f.room("double", MOST) for _ in range(3))

    def fact(name: str) -> Var:
        return f.about.field(PRODUCT[name], "i32")

    m, n, k = fact("m"), fact("n"), fact("k")
    for kind_name, place, words, count in (("a", a, f.left, m * k), ("b", b, f.right, k * n), ("c", c, f.old, m * n)):
        table = f.about.at(fact(f"{kind_name}_table"))
        for number, kind in enumerate(UNPACK):
            with f.when(fact(f"{kind_name}_kind").is_("eq", number)):
                f.function_call("void", f"unpack_{kind}", table, words, place, count)
    kept = [f.room("double", MOST) for _ in range(3)]
    with f.when(fact("cut").is_("eq", 0)):
        _plain_products(f, a, b, c, c, (m, n, k), 64)
    with f.when(fact("cut").is_("ne", 0)):
        _cut_of(f, (a, b, c), kept, c, (m, n, k), (fact("a_lowest"), fact("b_lowest")), 64)
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


def _powers() -> LlvmFunction:
    """Of each of `count` doubles the power of two that is next to it towards 0, and at least 2 to the power of `lowest`; of 0 it is 0.
    Returned: is one of them not finite? count: a multiple of 8."""
    eight, bits = vector("double", 8), vector("i64", 8)
    f = LlvmFunction("i32", "powers", numbers="ptr", to="ptr", count="i32", lowest="i32")
    least = f.spread((f.lowest + 1023).to("i64", signed=True) << 52, bits)
    wild = f.variable(f.constant(bits, 0))
    f.intrinsics.add(f"declare {bits} @llvm.smax.v8i64({bits}, {bits})")
    with f.loop(f.count >> 3) as step:
        found = f.load(bits, f.numbers.at(step << 6), 8) & (0x7FF << 52)
        more = f.value(bits, f"call {bits} @llvm.smax.v8i64({bits} {found.name}, {bits} {least.name})")
        f.store(f.select(found.is_("eq", 0), f.constant(bits, 0), more), f.to.at(step << 6), 8)
        size = _convert(f, "bitcast", found, eight)
        infinite = f.value(vector("i1", 8), f"fcmp oeq {eight} {size.name}, splat (double 0x7FF0000000000000)")
        wild.set(wild.get() | infinite.to(bits))
    f.leave(f.reduce("or", wild.get()).is_("ne", 0).to("i32"))
    return f


def _cut_products() -> LlvmFunction:
    """`isa.mma.cut_sums` of one pair of matrices for the NumPy machine: doubles, rows behind each other, m and n multiples
    of 8. room: for as many doubles as all three have."""
    words = dict.fromkeys(("m", "n", "k", "a_lowest", "b_lowest"), "i32")
    f = LlvmFunction("void", "cut_products", left="ptr", right="ptr", old="ptr", to="ptr", room="ptr", **words)
    behind = f.room.at(f.m * f.k << 3)
    kept = f.room, behind, behind.at(f.k * f.n << 3)
    _cut_of(f, (f.left, f.right, f.old), kept, f.to, (f.m, f.n, f.k), (f.a_lowest, f.b_lowest), 8)
    f.leave()
    return f


def _plain_products(f: LlvmFunction, left: Var, right: Var, old: Var, to: Var, extents: tuple[Var, Var, Var], align: int) -> None:
    """`to` = left times right plus old, summed along k, then old."""
    m, n, k = extents
    eight = vector("double", 8)
    with f.loop(m) as i, f.loop(n >> 3) as j:
        at = (i * n + (j << 3)) << 3
        plain = _plain_sum(f, left.at((i * k) << 3), right.at(j << 6), n, k, align)
        f.store(f.value(eight, f"fadd {eight} {plain.name}, {f.load(eight, old.at(at), align).name}"), to.at(at), align)


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


def _cut_of(
    f: LlvmFunction, matrices: Sequence[Var], kept: Sequence[Var], to: Var, extents: Sequence[Var], lowest: Sequence[Var], align: int
) -> None:
    """`to` = `isa.mma.cut_sums` of matrices of doubles: left, right and old. kept: as much room as they take. lowest: exponents, that
    factors have at least."""
    eight, bits = vector("double", 8), vector("i64", 8)
    (left, right, old), (m, n, k) = matrices, extents
    sums = sums_of("f16", "f32")
    assert sums is not None
    f.intrinsics |= {f"declare {eight} @llvm.{name}.v8f64({eight})" for name in ("trunc", "fabs")}
    counts = (m * k, lowest[0]), (k * n, lowest[1]), (m * n, f.constant("i32", -1023))
    wild = [f.function_call("i32", "powers", numbers, room, *of) for numbers, room, of in zip(matrices, kept, counts, strict=True)]
    finite = (wild[0] | wild[1] | wild[2]).is_("eq", 0)

    def times(one: Var, other: Var) -> Var:
        return f.value(eight, f"fmul {eight} {one.name}, {other.name}")

    def plus(one: Var, other: Var) -> Var:
        return f.value(eight, f"fadd {eight} {one.name}, {other.name}")

    def factors(rows: list[Var], column: Var, t: Var) -> tuple[list[Var], Var]:
        """Of each row the t-th element, and eight of the t-th row of a matrix of n columns."""
        return [f.spread(f.load("double", row.at(t << 3), 8), eight) for row in rows], f.load(eight, column.at((t * n) << 3), align)

    def whole(value: Var) -> Var:
        return f.value(eight, f"call {eight} @llvm.trunc.v8f64({eight} {value.name})")

    with f.loop(m.divided(TOGETHER)) as i, f.loop(n >> 3) as j:
        rows = [i * TOGETHER + r for r in range(TOGETHER)]
        places = [(row * n + (j << 3)) << 3 for row in rows]
        highest = [f.variable(f.load(eight, kept[2].at(at), align)) for at in places]
        with f.loop(k) as t:
            ones, other = factors([kept[0].at((row * k) << 3) for row in rows], kept[1].at(j << 6), t)
            for one, high in zip(ones, highest, strict=True):
                both, known = times(one, other), high.get()
                high.set(f.select(f.value(vector("i1", 8), f"fcmp ogt {eight} {both.name}, {known.name}"), both, known))
        scales, units, totals = [], [], []
        smallest = Var(f, eight, f"splat (double 0x{(1023 - 126) << 52:016X})")
        behind = sums.behind << 52
        for at, high in zip(places, highest, strict=True):
            known = high.get()
            top = f.select(f.value(vector("i1", 8), f"fcmp ogt {eight} {known.name}, {smallest.name}"), known, smallest)
            top = _convert(f, "bitcast", top, bits)
            scales.append(_convert(f, "bitcast", f.constant(bits, (2046 << 52) + behind) - top, eight))
            units.append(_convert(f, "bitcast", top - behind, eight))
            totals.append(f.variable(whole(times(f.load(eight, old.at(at), align), scales[-1]))))
        with f.loop(k) as t:
            ones, other = factors([left.at((row * k) << 3) for row in rows], right.at(j << 6), t)
            for one, scale, total in zip(ones, scales, totals, strict=True):
                total.set(plus(total.get(), whole(times(times(one, other), scale))))
        for row, at, unit, total in zip(rows, places, units, totals, strict=True):
            cut = _convert(f, "bitcast", times(total.get(), unit), bits) & ~((1 << (53 - sums.kept)) - 1)
            result = f.variable(_convert(f, "bitcast", cut, eight))
            with f.when(finite.is_("eq", 0)):  # what is not finite in float64 is that
                exact = plus(_plain_sum(f, left.at((row * k) << 3), right.at(j << 6), n, k, align), f.load(eight, old.at(at), align))
                size = f.new(f"call {eight} @llvm.fabs.v8f64({eight} {exact.name})")
                inside = f.value(vector("i1", 8), f"fcmp olt {eight} {size}, splat (double 0x7FF0000000000000)")
                result.set(f.select(inside, result.get(), exact))
            f.store(result.get(), to.at(at), align)
