"""Tensor-core instructions: mma.sync, wmma, ldmatrix, stmatrix, movmatrix. They are in U code only, by whole warps.

A product is a call, with pointers to the registers of A, B, C and D, which are kept one behind the other (see `homes`), or else are copied
to a buffer. Tables made from `register_fragments` tell where in them each element is. Numbers are those of `isa/mma.py`: products summed in
float64 in the order of K, C added, one rounding; or, of FP16, BF16 and TF32 in FP32, cut off as the hardware does it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.program import Effect
from helpers.sim.code.ptx import Vector
from helpers.sim.code.sites import CostRule
from helpers.sim.isa.mma import LOWEST, sums_of, wmma_rule
from helpers.sim.isa.mma import _units as units
from helpers.sim.isa.mma import _wmma_shape as wmma_shape
from helpers.sim.layouts.register_fragments import BITS, Fragment, Shape, fragment, wmma_fragment

from .access import _far, _own, _recorded, _watched
from .declined import Unsupported
from .dispatch import operation
from .exchange import _together
from .lower import Charge, Value
from .offsets import GENERIC, PRODUCT

_INTS = "<32 x i32>"
# How elements are kept in registers; the position in this tuple is what `runtime._unpack` and `_pack` know them by.
KINDS = ("f16", "bf16", "tf32", "f32", "s8", "u8", "s32")


def _whole(low, instruction) -> None:
    _together(low, instruction)
    low.demand(low.new(f"icmp eq i32 {low.active}, -1"))


def _words(operand) -> tuple:
    return operand.items if isinstance(operand, Vector) else (operand,)


def _gather(part: Fragment) -> np.ndarray:
    """Per element of the matrix, row by row: number of its word in the buffer | place of its lowest bit << 16."""
    lane, element = part.owner()
    bits = 32 // part.per_register
    return ((element // part.per_register * WARP + lane) | element % part.per_register * bits << 16).reshape(-1)


def _scatter(part: Fragment) -> np.ndarray:
    """Per register and lane: the number of its first element in the matrix; that of its second, if it has one, follows."""
    place = part.rows * part.width + part.columns
    return place.reshape(WARP, -1, part.per_register).transpose(1, 2, 0).reshape(-1)


def product(shape: Shape, c_type: str, saturate: bool, tables=fragment) -> Multiplication:
    """Raises Unsupported."""
    kinds = (shape.a_type, shape.b_type, c_type, shape.c_type)
    if not set(kinds) <= set(KINDS) or shape.c_type not in ("f32", "f16", "s32") or shape.n % 8:
        raise Unsupported(f"matrices of {shape.a_type}")
    try:
        a, b, d = (tables(shape, operand) for operand in "abc")
        c = tables(Shape(shape.name, shape.m, shape.n, shape.k, shape.a_type, shape.b_type, c_type), "c")
    except ValueError as reason:
        raise Unsupported(str(reason)) from None
    if any(getattr(part, "part", None) is not None for part in (a, b, c, d)):
        raise Unsupported(f"{shape.name} of several matrices")
    parts = [_gather(a), _gather(b), _gather(c), _scatter(d)]
    head = dict.fromkeys(PRODUCT, 0)
    head.update(m=shape.m, n=shape.n, k=shape.k, d_registers=d.registers, saturate=int(saturate),
                a_lowest=LOWEST.get(shape.a_type, 0), b_lowest=LOWEST.get(shape.b_type, 0),
                cut=int(sums_of(shape.a_type, shape.c_type) is not None))  # fmt: skip
    head.update(zip(("a_kind", "b_kind", "c_kind", "d_kind"), map(KINDS.index, kinds), strict=True))
    starts = np.cumsum([len(PRODUCT), *map(len, parts)])
    head.update(zip(("a_table", "b_table", "c_table", "d_table"), (4 * starts[:4]).tolist(), strict=True))
    numbers = tuple(int(n) for n in (*head.values(), *np.concatenate(parts)))
    return Multiplication(numbers, (a.registers, b.registers, c.registers))


class Multiplication(NamedTuple):
    """numbers: what `product_runtime` has to know of an instruction (see `offsets.PRODUCT`). registers: how many A, B and C take."""

    numbers: tuple[int, ...]
    registers: tuple[int, int, int]


@operation("mma", fragments=True)
def _mma(low, i):
    kinds = [part for part in i.modifiers if part in BITS]
    if i.modifiers[0] != "sync" or {"sp", "sp::ordered_metadata", "block_scale", "xor", "and"} & set(i.modifiers) or len(kinds) != 4:
        raise Unsupported(f"`{i.opcode}`")
    name = next(part for part in i.modifiers if part[0] == "m" and part[1:2].isdigit())
    m, rest = name[1:].split("n")
    n, k = rest.split("k")
    d_type, a_type, b_type, c_type = kinds
    shape = Shape(name, int(m), int(n), int(k), a_type, b_type, d_type)
    if [part for part in i.modifiers if part in ("row", "col")] != ["row", "col"]:
        raise Unsupported(f"`{i.opcode}`")
    _multiply(low, i, product(shape, c_type, "satfinite" in i.modifiers))


def _multiply(low, i, of: Multiplication) -> None:
    _whole(low, i)
    place, room, pointers = low.product(of.numbers), 0, []
    for operand, count in zip(i.operands[1:4], of.registers, strict=False):
        # Registers beyond the fragment's repeat it (wmma's f16).
        items = _words(operand)[:count]
        pointers.append(low.in_memory(items) or _copied(low, items, room))
        room += count
    results = _words(i.operands[0])
    kept = low.to_memory(results)
    low.call("void", "product", *(("ptr", pointer) for pointer in (place, *pointers, kept or _slot(low, room))))
    if kept is None:
        _from_buffer(low, results, room)


def _copied(low, items, first: int = 0) -> str:
    """Registers in the buffer, from a slot of it on."""
    for n, item in enumerate(items, first):
        low.emit(f"store {_INTS} {low.full(low.operand(item, 'b32'))}, ptr {_slot(low, n)}, align 64")
    return _slot(low, first)


def _from_buffer(low, items, first: int = 0) -> None:
    """Write registers that an instruction has left in the buffer, from a slot of it on."""
    for n, item in enumerate(items, first):
        low.put(item, Value("i32", v=low.new(f"load {_INTS}, ptr {_slot(low, n)}, align 64")))


def _slot(low, number: int) -> str:
    return low.new(f"getelementptr i8, ptr %buffer, i64 {128 * number}") if number else "%buffer"


# --- wmma ----------------------------------------------------------------------------------------------------------------


@operation("wmma", fragments=True)
def _wmma(low, i):
    if i.modifiers[0] == "mma":
        kinds = [part for part in i.modifiers if part in BITS]
        d_type, a_type, b_type, c_type = [kinds[0], "f16", "f16", kinds[1]] if len(kinds) == 2 else kinds
        shape = wmma_shape(_Parts(i), "c", d_type)
        shape = Shape(shape.name, shape.m, shape.n, shape.k, a_type, b_type, d_type)
        _multiply(low, i, product(shape, c_type, "satfinite" in i.modifiers, wmma_fragment))
    else:
        _wmma_access(low, i)


class _Parts:
    """An instruction as the handlers of `isa` see it."""

    def __init__(self, instruction):
        self.opcode, self.parts = instruction.opcode, instruction.opcode.split(".")

    def those(self, wanted):
        return [part for part in self.parts[1:] if wanted(part)]

    def unknown(self):
        raise Unsupported(f"`{self.opcode}`")


def _wmma_access(low, i) -> None:
    """Every register is an access of its own, or several together, as `isa.matrix.units` cuts the fragment."""
    load = i.modifiers[0] == "load"
    _whole(low, i)
    operand = i.modifiers[1] if load else "c"
    kind = next(part for part in reversed(i.modifiers) if part in BITS)
    space = "generic" if low.op.generic else next((s for s in ("global", "shared") if {s, f"{s}::cta"} & set(i.modifiers)), None)
    bits = BITS[kind]
    if space is None or not 8 <= bits <= 32:
        raise Unsupported(f"`{i.opcode}`")
    try:
        part = wmma_fragment(wmma_shape(_Parts(i), operand, kind), operand)
    except ValueError as reason:
        raise Unsupported(str(reason)) from None
    by_row = "row" in i.modifiers
    registers, address = (_words(i.operands[0]), i.operands[1]) if load else (_words(i.operands[1]), i.operands[0])
    (_, scalar), (_, base) = _far(low, address)
    pitch = Value("i32", s=str(part.width if by_row else part.height))
    if len(i.operands) > 2:
        pitch = low.operand(i.operands[2], "s32")
    rule = wmma_rule(part, kind, len(registers), by_row)
    _multiples(low, pitch, rule.elements)
    _multiples(low, Value("i64", s=scalar, v=None if base == "zeroinitializer" else base), rule.pointer)
    pitch = low.full(low.unary(pitch, lambda t, x: f"sext {t('i32')} {x} to {t('i64')}", "i64"))
    charge = low.charges.get((low.position, 0))
    matrices = charge is not None and charge.rule is CostRule.MATRIX
    columns: list[tuple[int, str]] = []  # (bits, vector), one after the other in the registers
    addressed = []
    for number, unit in enumerate(units(part, bits, by_row)):
        lines, steps = (unit.rows, unit.columns) if by_row else (unit.columns, unit.rows)
        place = low.new(f"add <32 x i64> {low.new(f'mul <32 x i64> {pitch}, {_constants(lines)}')}, {_constants(steps)}")
        place = low.new(f"ashr <32 x i64> {low.new(f'mul <32 x i64> {place}, splat (i64 {bits})')}, splat (i64 3)")
        place = low.new(f"add <32 x i64> {place}, {base}")
        nbytes = unit.count * bits // 8
        size = min(4, nbytes)
        places = (("i64", scalar), ("<32 x i64>", place))
        record, places = _recorded(low, space, places, nbytes, None if matrices else number)
        _own(low, scalar, place, nbytes, not load)
        first = unit.first * bits // 8
        if not load:
            _spill(low, registers, unit, first, size, nbytes)
        low.call(
            "void", f"{'load' if load else 'store'}_i{8 * size}", ("ptr", "%ctx"), ("ptr", record), *places, ("i32", low.active),
            ("i32", low.first_thread), ("i32", str(nbytes // size)), ("ptr", "%buffer"),
        )  # fmt: skip
        addressed.append(place)
        for k in range(nbytes // size if load else 0):
            value = low.new(f"load <32 x i{8 * size}>, ptr {_slot(low, k)}, align 64")
            columns.append((8 * size, low.call(_INTS, "transposed", (_INTS, value)) if unit.turned else value))
    if matrices:
        _count_matrices(low, scalar, addressed, space)
    if load:
        words = _merged(low, columns)
        for n, item in enumerate(registers):
            low.put(item, Value("i32", v=words[n % part.registers]))


def _multiples(low, value: Value, of: int) -> None:
    """What is no multiple of a power of two in some lane is left to the NumPy machine."""
    rest = low.unary(
        value, lambda t, x: f"and {t(value.type)} {x}, {of - 1 if value.uniform else f'splat ({value.type} {of - 1})'}", value.type
    )
    word = rest.s
    if not rest.uniform:
        low.intrinsics.add(f"declare {value.type} @llvm.vector.reduce.or.v32{value.type}(<32 x {value.type}>)")
        word = low.new(f"call {value.type} @llvm.vector.reduce.or.v32{value.type}(<32 x {value.type}> {rest.v})")
    low.demand(low.new(f"icmp eq {value.type} {word}, 0"))


def _constants(numbers) -> str:
    return "<" + ", ".join(f"i64 {int(n)}" for n in numbers) + ">"


def _spill(low, registers, unit, first: int, size: int, nbytes: int) -> None:
    """What a unit stores, to the buffer. first: its first byte among the lane's."""
    for k in range(nbytes // size):
        word = low.full(low.operand(registers[(first + k * size) // 4], "b32"))
        if unit.turned:
            word = low.call(_INTS, "transposed", (_INTS, word))
        if size < 4:
            word = low.new(f"lshr {_INTS} {word}, splat (i32 {8 * (first % 4)})")
            word = low.new(f"trunc {_INTS} {word} to <32 x i{8 * size}>")
        low.emit(f"store <32 x i{8 * size}> {word}, ptr {_slot(low, k)}, align 64")


def _merged(low, columns: list[tuple[int, str]]) -> list[str]:
    """Elements side by side as registers of 32 bits."""
    words, at = [], 0
    for bits, value in columns:
        if bits < 32:
            value = low.new(f"zext <32 x i{bits}> {value} to {_INTS}")
            if at:
                value = low.new(f"or {_INTS} {words.pop()}, {low.new(f'shl {_INTS} {value}, splat (i32 {at})')}")
        words.append(value)
        at = (at + bits) % 32
    return words


def _count_matrices(low, scalar: str, addressed: list[str], space: str) -> None:
    """A load that ptxas made an LDSM counts like ldmatrix: up to four 8 x 8 matrices at a time."""
    while addressed:
        count = 4 if len(addressed) >= 4 else 2 if len(addressed) >= 2 else 1
        group, addressed = addressed[:count], addressed[count:]
        picks = ", ".join(f"i32 {4 * lane}" for lane in range(8))
        rows = [low.new(f"shufflevector <32 x i64> {a}, <32 x i64> poison, <8 x i32> <{picks}>") for a in group] * (4 // count)
        halves = [_joined(low, "<8 x i64>", 8, *rows[n : n + 2]) for n in (0, 2)]
        lanes = _joined(low, "<16 x i64>", 16, *halves)
        first = low.new(f"extractelement <32 x i64> {lanes}, i32 0")
        far = low.new(f"sub <32 x i64> {lanes}, {low.splat('i64', first)}")
        pattern = low.new(f"trunc <32 x i64> {far} to {_INTS}")
        charge = Charge(CostRule.MATRIX, count)
        low.call(
            "void", "count", ("ptr", "%ctx"), ("ptr", low.memo(GENERIC if space == "generic" else 0)), (_INTS, pattern),
            ("i32", low.active), ("i64", low.new(f"add i64 {first}, {scalar}")), ("i32", str(charge.bits)), ("i32", str(charge.code)),
        )  # fmt: skip


def _joined(low, kind: str, count: int, a: str, b: str) -> str:
    picks = ", ".join(f"i32 {n}" for n in range(2 * count))
    return low.new(f"shufflevector {kind} {a}, {kind} {b}, <{2 * count} x i32> <{picks}>")


# --- ldmatrix and its family ---------------------------------------------------------------------------------------------


@operation("ldmatrix", "stmatrix", fragments=True)
def _rows(low, i):
    load = low.op.effect is Effect.LOAD
    words = {"sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta", "b16"}
    if not set(i.modifiers) <= words or not {"shared", "shared::cta"} & set(i.modifiers):
        raise Unsupported(f"`{i.opcode}`")
    _whole(low, i)
    count = int(next(m for m in i.modifiers if m in ("x1", "x2", "x4"))[1])
    address, registers = (i.operands[1], i.operands[0]) if load else i.operands
    record = low.record(True, **_watched(low, "shared", 4))
    items, places = _words(registers), _far(low, address)  # which may be in a register that the matrices overwrite
    place = low.to_memory(items) if load else low.in_memory(items) or _copied(low, items)
    low.call(
        "void", i.name, ("ptr", "%ctx"), ("ptr", record), *places, ("i32", low.first_thread), ("i32", str(count)),
        ("i32", str(int("trans" in i.modifiers))), ("ptr", place or "%buffer"),
    )  # fmt: skip
    if place is None:
        _from_buffer(low, items)


@operation("movmatrix")
def _movmatrix(low, i):
    _whole(low, i)
    words = low.full(low.operand(i.operands[1], "b32"))
    low.put(i.operands[0], Value("i32", v=low.call(_INTS, "transposed", (_INTS, words))))
