"""Tensor-core instructions: wmma, mma.sync, and the ldmatrix family that feeds them.

A matrix is spread over the registers of a warp as `fragments` tabulates. An instruction collects it into an ordinary array
[warps, rows, columns], computes there, and spreads the result over the registers again.

How exact. Sums of f16, bf16 and tf32 in an f32 accumulator, and in wgmma those of 8-bit floats, have the bits that an H200
gives (`cut_sums`): all terms are cut off at the same place, far enough down, and so is their sum. Other GPUs cut elsewhere.
Otherwise products are exact in float64, in which they are summed; C is added and the total rounded once, to nearest even,
to the type of D. Integer results are exact. Whatever the GPU, machine and GPU agree within

    |D(machine) - D(GPU)| <= (K + 2) * 2^-23 * (|C| + sum |A| |B|)          for an f32 accumulator,

where a subnormal number of A or B counts as the smallest normal one, and within one more rounding, 2^-10 of the same sum,
for an f16 accumulator; f64 within (K + 2) * 2^-53 of it. For 8-bit floats read 2^-13 instead of 2^-23. A chain of such
instructions is bounded by the sum of the links' bounds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from helpers.sim.checks import divergent_barriers, wmma_operands
from helpers.sim.checks.accesses import Access
from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.program import Effect
from helpers.sim.code.sites import AccessKind
from helpers.sim.layouts.register_fragments import BITS, Fragment, Shape, fragment, metadata, wmma_fragment

from .base import ALIGNED, instruction
from .loads_stores import _generic_reader, _generic_writer, address_of, generic_parts, reader, space_of, writer
from .numerics import canonical, canonical16

U8, U16, U32, U64 = (np.dtype(f"u{n}") for n in (1, 2, 4, 8))
I32, I64, F16, F32, F64 = (np.dtype(t) for t in (np.int32, np.int64, np.float16, np.float32, np.float64))
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
TILES = 32  # matrices that are remembered while their registers do not change
LANE = np.arange(WARP)
ROW, WORD = LANE // 4, LANE % 4  # a lane's row and 32-bit word of an 8 x 16-byte matrix

# --- warps as matrices -----------------------------------------------------------------------------------------------


def _e4m3() -> np.ndarray:
    """The values of the 256 bytes as e4m3: exponents are biased by 7, there is no infinity, and only all bits set are NaN."""
    byte = np.arange(256)
    exponent, fraction = byte >> 3 & 15, byte & 7
    size = np.where(exponent > 0, np.ldexp(8.0 + fraction, exponent - 10), np.ldexp(1.0 * fraction, -9))
    return np.where(byte & 127 == 127, np.nan, np.where(byte < 128, size, -size))


_FLOAT8 = {"e4m3": _e4m3(), "e5m2": (np.arange(256, dtype=np.uint16) << np.uint16(8)).view(F16).astype(F64)}  # e5m2: half of an f16


def _tf32(bits):
    """The hardware ignores the low 13 bits of a register that holds a tf32."""
    return (bits & np.uint32(0xFFFFE000)).view(F32).astype(F64)


# element type -> (how its bits are stored, a function from those bits to exact float64)
_NUMBERS = {
    "f16": (U16, lambda bits: bits.view(F16).astype(F64)),
    "bf16": (U16, lambda bits: (bits.astype(U32) << np.uint32(16)).view(F32).astype(F64)),
    "tf32": (U32, _tf32),
    "f32": (U32, lambda bits: bits.view(F32).astype(F64)),
    "f64": (U64, lambda bits: bits.view(F64)),
    "s32": (U32, lambda bits: bits.view(I32).astype(F64)),
    "s8": (U8, lambda bits: bits.view(np.int8).astype(F64)),
    "u8": (U8, lambda bits: bits.astype(F64)),
    "e4m3": (U8, lambda bits: _FLOAT8["e4m3"].take(bits)),
    "e5m2": (U8, lambda bits: _FLOAT8["e5m2"].take(bits)),
    "s4": (U8, lambda bits: ((bits ^ np.uint8(8)).astype(F64) - 8)),
    "u4": (U8, lambda bits: bits.astype(F64)),
    "b1": (U8, lambda bits: bits.astype(F64)),
}  # fmt: skip


def numbers_of(kind: str, stored: np.ndarray) -> np.ndarray:
    """The float64 numbers of elements as memory holds them: unsigned integers of their size, or bytes of bits (b1)."""
    if kind == "b1":
        stored = np.unpackbits(stored, axis=-1, bitorder="little")
    return _NUMBERS[kind][1](np.ascontiguousarray(stored))


# element type -> a function from float64 to the bits of those rounded to it
_ROUNDED = {
    "f16": lambda d: canonical16(d.astype(F16)).view(U16),
    "f32": lambda d: canonical(d.astype(F32)).view(U32),
    "f64": lambda d: np.ascontiguousarray(d).view(U64),
    "s32": lambda d: (d.astype(I64) & 0xFFFFFFFF).astype(U32),
}  # fmt: skip


@dataclass(frozen=True)
class Sums:
    """How a tensor core adds the products of one instruction: all terms are cut off (not rounded) `behind` bits behind the point of the
    term with the highest exponent, and what they add up to is cut off to `kept` bits.

    The exponent of a product is the sum of its factors' exponents, each at least its type's lowest (`LOWEST`).
    """

    behind: int
    kept: int


LOWEST = {"f16": -14, "bf16": -126, "tf32": -126, "e4m3": -6, "e5m2": -14}  # exponents of normal numbers
_WIDE, _NARROW = {"f16", "bf16", "tf32"}, {"e4m3", "e5m2"}


def sums_of(a_type: str, d_type: str, warpgroup: bool = False) -> Sums | None:
    """How sums of FP32 are made of products of such elements, or None where they are exact and rounded once (as far as is known).

    Found by comparing with an H200: all bits agree, of every shape of mma.sync and wgmma (`tests/sim/isa/test_matrix_record.py`). Sums in
    FP16 are not cut, and FP8 is only in wgmma: mma.sync has other ways to multiply it.
    """
    if d_type != "f32":
        return None
    if a_type in _WIDE:
        return _SUMS
    return Sums(13, 14) if warpgroup and a_type in _NARROW else None


def cut_sums(sums: Sums, left: np.ndarray, right: np.ndarray, old: np.ndarray, kinds: tuple[str, str]) -> np.ndarray:
    """left [..., M, K] times right [..., K, N] plus old [..., M, N], added as `sums` says; float64 in and out.

    kinds: element types of left and right. Sums that are not finite are float64's.
    """
    if faster and sums == _SUMS and right.shape[-1] % 8 == 0:
        return faster[0](left, right, old, [LOWEST[kind] for kind in kinds])
    with np.errstate(all="ignore"):
        exact = np.matmul(left, right) + old
        a, b = (
            np.where(x == 0, _NOTHING, np.maximum(np.frexp(x)[1] - 1, LOWEST[kind])) for x, kind in zip((left, right), kinds, strict=True)
        )
        top = np.where(old == 0, _NOTHING, np.frexp(old)[1] - 1)
        for k in range(left.shape[-1]):
            np.maximum(top, a[..., k, None] + b[..., k, None, :], out=top)
        np.clip(top, -126, 256, out=top)
        scale = np.ldexp(1.0, sums.behind - top)
        total = np.trunc(old * scale)
        for k in range(left.shape[-1]):
            term = left[..., k, None] * right[..., k, None, :]
            term *= scale
            total += np.trunc(term, out=term)
        total *= np.ldexp(1.0, top - sums.behind)
        np.bitwise_and(total.view(I64), ~((1 << (53 - sums.kept)) - 1), out=total.view(I64))
    return np.where(np.isfinite(exact), total, exact)


_SUMS = Sums(25, 24)
# Functions (left, right, old, lowest exponents of both) that make these sums, for N a multiple of 8. Native code adds its own.
faster: list[Callable[[np.ndarray, np.ndarray, np.ndarray, list[int]], np.ndarray]] = []
_NOTHING = -(1 << 20)  # the exponent of a zero


@dataclass(frozen=True)
class Operand:
    """A matrix in registers: which registers of the machine, in the fragment's order, and what they hold."""

    fragment: Fragment
    kind: str
    registers: tuple[int, ...]

    @property
    def word(self) -> np.dtype:
        return U64 if self.kind == "f64" else U32

    @property
    def _key(self) -> tuple:
        """What a matrix is remembered by: the same registers are another matrix as another operand, or in another type."""
        return self.registers, self.kind, id(self.fragment)

    def collect(self, m) -> np.ndarray:
        """The matrix of every warp: float64 [warps, height, width]; those of a warp that has several follow each other."""
        arrays = [m.regs[r] for r in self.registers]
        found = m.tiles.get(self._key)
        if found is not None and all(a is b for a, b in zip(found[0], arrays, strict=True)):
            return found[1]  # one A tile meets several B tiles
        f, (stored, number) = self.fragment, _NUMBERS[self.kind]
        words = np.stack([m.warps(a.view(self.word), 0) for a in arrays], axis=-1)
        bits = BITS[self.kind]
        if bits < 8:
            shifts = np.arange(0, 32, bits, dtype=U32)
            elements = (words[..., None] >> shifts & np.uint32((1 << bits) - 1)).astype(U8)
        else:
            elements = words.view(stored)
        rows = elements.reshape(m.blocks * m.warp_count, -1)
        matrix = number(rows.take(f.gather, axis=1)).reshape(-1, f.height, f.width)
        self._remember(m, arrays, matrix)
        return matrix

    def _remember(self, m, arrays, matrix) -> None:
        known = m.tiles
        if len(known) >= TILES:
            known.clear()
        known[self._key] = (arrays, matrix)

    def spread(self, m, matrix: np.ndarray) -> None:
        """Put float64 [warps, height, width] into the registers, rounded to their type."""
        f = self.fragment
        rounded = _ROUNDED[self.kind](matrix)
        bits = rounded.reshape(-1, f.count * f.height * f.width).take(f.scatter, axis=1)
        words = bits.view(self.word).reshape(m.blocks, m.warp_count * WARP, len(self.registers))
        rows = np.ascontiguousarray(words[:, : m.threads].transpose(2, 0, 1))
        laid_out = rows.reshape(-1, *m.shape) if m.in_rows else map(m.from_rows, rows)
        for register, row in zip(self.registers, laid_out, strict=True):
            m.regs[register] = row
        if self.kind == "f32":  # the next product of a chain goes on with them
            self._remember(m, [m.regs[r] for r in self.registers], rounded.view(F32).astype(F64))


def _whole_warps(m, op) -> None:
    """All 32 threads of a warp execute a matrix instruction together, or none: anything else is undefined."""
    if m.mask is None and not m.threads % WARP:
        return
    lanes = np.count_nonzero(m.warps_active(), axis=2)
    if ((lanes > 0) & (lanes < WARP)).any():
        divergent_barriers.part_of_a_warp(m, op.line, op.parts[0], lanes)


def _operand(op, i: int, part: Fragment, kind: str, result: bool = False) -> Operand:
    """Operand i of a matrix instruction. Registers beyond the fragment's repeat it (wmma's f16)."""
    bind = op.target if result else op.bind
    registers = tuple(bind(item, "b64" if kind == "f64" else "b32") for item in op.vector(i))
    if len(registers) % part.registers or len(registers) < part.registers:
        op.fail(f"has {len(registers)} registers where {part.registers} hold the matrix")
    return Operand(part, kind, registers[: part.registers])


def _product(op, shape: Shape, tables):
    """D = A x B + C: operands 1, 2, 3, and 0 for D; shared by mma and wmma.mma."""
    op.effect, op.rendezvous = Effect.EXCHANGE, 1
    op.opclass = "IMMA" if BITS[shape.a_type] < 8 or shape.a_type in ("s8", "u8") else "MMA" if shape.a_type == "f64" else "HMMA"
    d_type, c_type = shape.c_type, op.c_type
    if d_type == "f64":
        op.without_effect("rn")
    part = tables(shape, "c")
    a, b = _operand(op, 1, tables(shape, "a"), shape.a_type), _operand(op, 2, tables(shape, "b"), shape.b_type)
    other = replace(shape, c_type=c_type)
    c, d = _operand(op, 3, tables(other, "c"), c_type), _operand(op, 0, part, d_type, result=True)
    named, spread_out = sparse_rows(op, 4, shape) if shape.sparse else (None, None)
    saturate, bitwise = op.has("satfinite"), next((way for way in ("xor", "and") if op.has(way)), None)
    sums = sums_of(shape.a_type, d_type)

    def run(m):
        _whole_warps(m, op)
        left, right = a.collect(m), b.collect(m)
        if spread_out is not None:
            left = spread_out(m.warps(m.regs[named].view(U32), 0).reshape(-1, WARP), left)
        if sums:
            d.spread(m, cut_sums(sums, left, right, c.collect(m), (shape.a_type, shape.b_type)))
            return
        total = np.matmul(left, right)
        if bitwise == "xor":  # bits that differ = bits of both - twice the common ones
            total = left.sum(axis=2, keepdims=True) + right.sum(axis=1, keepdims=True) - 2 * total
        total += c.collect(m)
        if saturate:
            total = np.clip(total, -(2.0**31), 2.0**31 - 1)
        d.spread(m, total)

    return run


def sparse_rows(op, i: int, shape: Shape):
    """Operands i (metadata) and i + 1 (selector): the metadata's register, and a function of its values, [warps, 32], and A's
    stored elements, [warps, 16, k / 2], that gives all of A.
    """
    register, selector = op.source(i, "b32"), op.immediate(i + 1)
    try:
        lanes, shifts = metadata(shape.a_type, shape.k, selector)
    except ValueError:
        op.unknown()
    if not 0 <= lanes.min() <= lanes.max() < WARP or selector < 0:
        op.fail(f"has the selector {selector}, which names threads that do not exist")
    step = np.arange(lanes.shape[1])[:, None]

    def spread_out(words, stored):
        named = (words[:, lanes] >> shifts.astype(U32) & np.uint32(15)).astype(I64)[..., None]
        if shape.a_type == "tf32":
            columns = 2 * step + (named & 2) // 2
        else:
            columns = 4 * step + np.concatenate([named & 3, named >> 2], axis=-1)
            if BITS[shape.a_type] == 4:  # pairs of elements
                columns = 2 * columns[..., None] + np.arange(2)
        whole = np.zeros((*stored.shape[:2], shape.k))
        np.put_along_axis(whole, columns.reshape(len(columns), *stored.shape[1:]), stored, axis=2)
        return whole

    return register, spread_out


def _shape_of(op, d_type: str, a_type: str, b_type: str) -> Shape:
    found = op.those(_SHAPE.fullmatch) or op.unknown()
    m, n, k = map(int, _SHAPE.fullmatch(found[0]).groups())
    return Shape(found[0], m, n, k, a_type, b_type, d_type)


@instruction("mma")
def mma(op):
    """d = a x b + c for one warp; a is m x k in row order, b is k x n in column order, c and d are m x n.

    With .sp, two of four neighbours along K in each row of a are zero and not stored, and metadata says which are.
    """
    sparse = bool(op.those(lambda part: part.partition("::")[0] == "sp"))
    if op.parts[2 if sparse else 1] != "sync" or op.has("block_scale"):
        op.unknown()
    op.without_effect(*ALIGNED, "popc")
    types = op.those(BITS.__contains__)
    if len(types) != 4:
        op.unknown()
    d_type, a_type, b_type, op.c_type = types
    orders = op.those(("row", "col").__contains__)
    shape = replace(_shape_of(op, d_type, a_type, b_type), sparse=sparse, turned="a" * (orders[0] == "col") + "b" * (orders[-1] == "row"))
    try:
        return _product(op, shape, fragment)
    except ValueError:
        op.unknown()


# --- wmma ------------------------------------------------------------------------------------------------------------


def _wmma_shape(op, operand: str, kind: str) -> Shape:
    """The shape as far as one operand tells it."""
    others = {"a": ("f32", kind, kind), "b": ("f32", kind, kind)}.get(operand)
    if others is None:
        others = (kind, *(("f64", "f64") if kind == "f64" else ("f16", "f16")))
    return _shape_of(op, *others)


@dataclass(frozen=True)
class _Unit:
    """One access of a wmma load or store: `count` elements of each lane beside each other in memory.

    rows, columns: [32], the first element's place. first: its number in the fragment. turned: 16-bit elements that are not
    neighbours in memory; an 8 x 8 matrix of them is read by its lines in memory, and transposed between the lanes.
    """

    rows: np.ndarray
    columns: np.ndarray
    count: int
    first: int
    turned: bool = False


def _units(part: Fragment, bits: int, by_row: bool) -> list[_Unit]:
    """How a fragment of elements of `bits` is read from memory that holds it by rows or by columns."""
    along, across = (part.columns, part.rows) if by_row else (part.rows, part.columns)
    elements = part.rows.shape[1]
    neighbours = 1
    while (
        elements > neighbours
        and (np.diff(along[:, : neighbours + 1], axis=1) == 1).all()
        and (across[:, : neighbours + 1] == across[:, :1]).all()
    ):
        neighbours += 1
    if neighbours > 1:
        return [_Unit(part.rows[:, i], part.columns[:, i], neighbours, i) for i in range(0, elements, neighbours)]
    if bits != 16:
        return [_Unit(part.rows[:, i], part.columns[:, i], 1, i) for i in range(elements)]
    units = []
    for i in range(0, elements, 2):
        low_row, low_column = part.rows[:, i : i + 2].min(), part.columns[:, i : i + 2].min()
        line, word = LANE // 4, 2 * (LANE % 4)
        rows, columns = (low_row + line, low_column + word) if by_row else (low_row + word, low_column + line)
        units.append(_Unit(rows, columns, 2, i, turned=True))
    return units


def transposed(words: np.ndarray) -> np.ndarray:
    """8 x 8 matrices of 16-bit elements, [..., 32] words by rows, transposed (movmatrix)."""
    matrix = np.ascontiguousarray(words).view(U16).reshape(*words.shape[:-1], 8, 8)
    return np.ascontiguousarray(np.swapaxes(matrix, -1, -2)).reshape(*words.shape[:-1], 64).view(U32)


def wmma_rule(part: Fragment, kind: str, registers: int, by_row: bool) -> wmma_operands.Rule:
    """Where the rows of a matrix may lie that an instruction loads into so many registers, or stores."""
    return wmma_operands.rule_of(registers * (8 if kind == "f64" else 4), part.width if by_row else part.height, BITS[kind])


def _wmma_access(op, what: AccessKind, address_at: int, vector_at: int):
    """What wmma.load and wmma.store have in common: (operand, fragment, units, addresses, sites, space, element bits)."""
    op.rendezvous = 1
    op.without_effect(*ALIGNED)
    operand = op.one_of("a", "b", "c", "d").replace("d", "c")
    kind = op.those(BITS.__contains__)[-1]
    try:
        part = wmma_fragment(_wmma_shape(op, operand, kind), operand)
    except ValueError:
        op.unknown()
    by_row = op.one_of("row", "col") == "row"
    bits = BITS[kind]
    units = _units(part, bits, by_row)
    if any(unit.count * bits % 8 for unit in units):
        op.unknown()  # PTX has sub-byte matrices in one order only
    space = space_of(op)
    address = address_of(op, address_at)
    stride_at = max(address_at, vector_at) + 1
    stride = op.source(stride_at, "b32") if len(op.operands) > stride_at else None
    packed = part.width if by_row else part.height
    first = _at_a_time(len(units))
    sites = [op.site(space, what, unit.count * bits // 8, part=True, matrices=0 if i else first) for i, unit in enumerate(units)]
    rule = wmma_rule(part, kind, len(op.vector(vector_at)), by_row)
    width, verb = max(site.width for site in sites), "store" if what is AccessKind.STORE else "load"

    def places(m):
        """The address of each unit's first element."""
        base = address(m)
        pitch = m.uniform(packed, I64) if stride is None else m.regs[stride].view(I32).astype(I64)
        wmma_operands.note(m, op.line, verb, rule, base, pitch, width)
        lane = m.thread_index % WARP
        for unit in units:
            lines, steps = (unit.rows, unit.columns) if by_row else (unit.columns, unit.rows)
            yield base + ((lines[lane] * pitch + steps[lane]) * bits >> 3)

    return part, kind, units, sites, space, places


def _at_a_time(matrices: int) -> int:
    """How many of some 8 x 8 matrices one LDSM loads."""
    return 4 if matrices >= 4 else 2 if matrices >= 2 else 1


def _watch_matrices(m, site, space: str, addressed) -> None:
    """A wmma load that ptxas made an LDSM is counted and traced like ldmatrix."""
    while addressed:
        count = _at_a_time(len(addressed))
        rows = np.concatenate([_by_warp(m, a)[..., ::4] for a in addressed[:count]], axis=-1)
        every = np.concatenate([rows] * (4 // count), axis=-1)
        _watch_rows(m, site, space, m.from_rows(every.reshape(every.shape[0], -1)[:, : m.threads]), count)
        addressed = addressed[count:]


def _watch_rows(m, site, space: str, offsets, count: int) -> None:
    """Count and trace the rows of `count` matrices: lane 8 i + r has the offset of row r of matrix i."""
    if m.recorder is not None:
        whole = m.mask
        m.mask = _with_rows(m, count)
        m.recorder.access(m, site, space, offsets)
        m.mask = whole
    if m.counting is not None:
        m.counting.matrix(m, site, space, offsets, count)


def _with_rows(m, count: int):
    """The mask of the lanes that have a row of one of `count` matrices."""
    if count == 4:
        return m.mask
    first = m.thread_index % WARP < 8 * count
    return first if m.mask is None else first & m.mask


_WORDS = {1: "b8", 2: "b16", 4: "b32", 8: "b64"}


def _vector(width: int) -> tuple[str, int]:
    """(type, count) of an access of `width` bytes."""
    return ("b64", width // 8) if width > 8 else (_WORDS[width], 1)


@instruction("wmma.load")
def wmma_load(op):
    """r = the matrix at [p], whose rows (.row) or columns (.col) are `stride` elements apart.

    ptxas makes ldmatrix of some of these loads (LDSM) and ordinary loads of the others. Here every register is a load of
    its own, and the counters are those of the machine code wherever its addresses can be told.
    """
    # operands
    part, kind, units, sites, space, places = _wmma_access(op, AccessKind.LOAD, 1, 0)
    word, bits = ("b64", 64) if kind == "f64" else ("b32", 32)
    targets = [op.target(item, word) for item in op.vector(0)]
    if len(targets) % part.registers:
        op.fail(f"loads into {len(targets)} registers where {part.registers} hold the matrix")
    loads = []
    for unit, site in zip(units, sites, strict=True):
        t, count = _vector(unit.count * BITS[kind] // 8)
        loads.append((_generic_reader(site, t, count) if space == "generic" else reader(space, site, t, count), unit))

    # meaning
    def run(m):
        _whole_warps(m, op)
        columns, addressed, observers = [], [], (m.counting, m.recorder)
        as_matrices = m.watching and m.launch.charged[sites[0].index].made is AccessKind.MATRIX_LOAD
        if as_matrices:
            m.counting = m.recorder = None
        for (load, unit), addresses in zip(loads, places(m), strict=True):
            for value in load(m, addresses):
                rows = m.warps(value, 0)
                columns.append(transposed(rows) if unit.turned else rows)
            addressed.append(addresses)
        m.counting, m.recorder = observers
        if as_matrices:
            where = space
            if space == "generic":
                where = generic_parts(m, addressed[0])[0][0]
                addressed = [generic_parts(m, addresses)[0][1] for addresses in addressed]
            _watch_matrices(m, sites[0], where, addressed)
        raw = np.ascontiguousarray(np.stack(columns, axis=-1))
        words = raw.view(np.dtype(f"u{bits // 8}"))
        # result
        for i, target in enumerate(targets):
            m.regs[target] = m.from_warps(words[..., i % part.registers])

    return run


@instruction("wmma.store")
def wmma_store(op):
    """[p] = the matrix r, its rows (.row) or columns (.col) `stride` elements apart."""
    # operands
    part, kind, units, sites, space, places = _wmma_access(op, AccessKind.STORE, 0, 1)
    word = "b64" if kind == "f64" else "b32"
    sources = [op.bind(item, word) for item in op.vector(1)]
    if len(sources) != part.registers:
        op.fail(f"stores {len(sources)} registers where {part.registers} hold the matrix")
    stores = []
    for unit, site in zip(units, sites, strict=True):
        t, count = _vector(unit.count * BITS[kind] // 8)
        stores.append((_generic_writer(site, t, count) if space == "generic" else writer(space, site, t, count), unit))
    words_of = U64 if kind == "f64" else U32

    # meaning
    def run(m):
        _whole_warps(m, op)
        words = np.stack([m.warps(m.regs[s].view(words_of), 0) for s in sources], axis=-1)
        for (store, unit), addresses in zip(stores, places(m), strict=True):
            width = unit.count * BITS[kind] // 8
            t = np.dtype(f"u{min(width, 8)}")
            first = unit.first * BITS[kind] // 8 // t.itemsize
            values = words.view(t)[..., first : first + max(1, width // 8)]
            if unit.turned:
                values = transposed(values[..., 0])[..., None]
            # result
            store(m, addresses, [m.from_warps(values[..., k]) for k in range(values.shape[-1])])

    return run


@instruction("wmma.mma")
def wmma_mma(op):
    """d = a x b + c for one warp, in wmma's shapes. The layouts in the opcode are those that a and b were loaded with."""
    op.without_effect(*ALIGNED, "row", "col", "popc")  # a and b are in registers
    types = op.those(BITS.__contains__)
    if len(types) == 2:
        types = [types[0], "f16", "f16", types[1]]
    d_type, a_type, b_type, op.c_type = types
    shape = _shape_of(op, d_type, a_type, b_type)
    try:
        return _product(op, shape, wmma_fragment)
    except ValueError:
        op.unknown()


# --- ldmatrix and its family -----------------------------------------------------------------------------------------


def _matrices(op) -> int:
    op.without_effect(*ALIGNED)
    if not op.has("m8n8") or op.type != "b16":
        op.unknown()
    return int(op.one_of("x1", "x2", "x4")[1:])


def _row_addresses(op, i: int):
    """A function of the machine giving operand i as offsets in shared memory, from a shared or generic address."""
    address = address_of(op, i)
    if space_of(op) == "shared":
        return address

    def from_generic(m):
        parts = generic_parts(m, address(m))
        if len(parts) != 1 or parts[0][0] != "shared":
            m.fail(f"`{op.name}` works on shared memory, and this address points elsewhere.", op.line)
        return parts[0][1]

    return from_generic


def _rows(m, site, offsets, count: int):
    """Check, count and trace the rows of `count` matrices: lane 8 i + r has the address of row r of matrix i.

    Gives, per matrix, the offset of each lane's word and the mask of lanes whose row may be used (None: all), and the access as the
    checks see it: a row belongs to one of the four lanes that have its words.
    """
    whole = m.mask
    wanted = m.mask = _with_rows(m, count)
    try:
        safe, mask = m.shared.locate(m, site, offsets, 16)
    finally:
        m.mask = whole
    _watch_rows(m, site, site.space, offsets, count)
    rows = _by_warp(m, safe)
    good = None if mask is wanted else _by_warp(m, mask)

    def layout(warps):
        return m.from_rows(warps.reshape(warps.shape[0], -1)[:, : m.threads])

    def usable(places, part=None):
        """Of the active lanes, those whose row at `places` may be used; part: of these, some [32]."""
        if good is None and part is None:
            return whole
        chosen = np.ones(rows.shape, bool) if good is None else good[..., places]
        chosen = layout(chosen if part is None else chosen & part)
        return chosen if whole is None else chosen & whole

    words = [(layout(rows[..., 8 * i + ROW] + 4 * WORD), usable(8 * i + ROW)) for i in range(count)]
    own = 8 * WORD + ROW
    return words, Access(site, layout(rows[..., own]), usable(own, None if count == 4 else count > WORD), 16, lambda: True)


def _by_warp(m, array):
    """[blocks or 1, warps, 32]: one row stands for all blocks if they are alike."""
    if m.varies_by_block(array):
        return m.warps(array, 0)
    row = np.zeros(m.warp_count * WARP, array.dtype)
    row[: m.threads] = m.thread_row(array)
    return row.reshape(1, m.warp_count, WARP)


@instruction("ldmatrix")
def ldmatrix(op):
    """r[i] = a word of row (lane / 4) of the i-th 8 x 8 matrix of 16-bit elements; of its column with .trans.

    Lanes 8 i to 8 i + 7 give the addresses of the rows of matrix i.
    """
    op.rendezvous = 1
    # operands
    count, turned = _matrices(op), op.has("trans")
    address = _row_addresses(op, 1)
    targets = [op.target(item, "b32") for item in op.vector(0)]
    if len(targets) != count:
        op.fail(f"loads {count} matrices into {len(targets)} registers")
    site = op.site("shared", AccessKind.MATRIX_LOAD, 16, matrices=count)

    # meaning
    def run(m):
        _whole_warps(m, op)
        shared = m.shared
        rows, access = _rows(m, site, address(m), count)
        m.checks.read(m, access)
        for d, (offsets, mask) in zip(targets, rows, strict=True):
            words = shared.views[U32].take((offsets >> 2) + shared.bases[4], mode="wrap")
            if mask is not m.mask:
                words = np.where(mask, words, np.uint32(0))
            # result
            m.regs[d] = m.from_warps(transposed(m.warps(words, 0))) if turned else words

    return run


@instruction("stmatrix")
def stmatrix(op):
    """The opposite of ldmatrix: row (lane / 4) of matrix i gets the word r[i]; its column with .trans."""
    op.rendezvous = 1
    # operands
    count, turned = _matrices(op), op.has("trans")
    address = _row_addresses(op, 0)
    sources = [op.bind(item, "b32") for item in op.vector(1)]
    if len(sources) != count:
        op.fail(f"stores {count} matrices from {len(sources)} registers")
    site = op.site("shared", AccessKind.MATRIX_STORE, 16, matrices=count)

    # meaning
    def run(m):
        _whole_warps(m, op)
        shared = m.shared
        rows, access = _rows(m, site, address(m), count)
        for s, (offsets, mask) in zip(sources, rows, strict=True):
            words = m.regs[s].view(U32)
            if turned:
                words = m.from_warps(transposed(m.warps(words, 0)))
            # result
            index = np.broadcast_to((offsets >> 2) + shared.bases[4], m.shape)
            chosen = slice(None) if mask is None else np.broadcast_to(mask, m.shape)
            shared.views[U32][index[chosen]] = np.broadcast_to(words, m.shape)[chosen]
        m.checks.write(m, access)

    return run


@instruction("movmatrix")
def movmatrix(op):
    """d = a, transposed: an 8 x 8 matrix of 16-bit elements whose row (lane / 4) is in the words of four lanes."""
    op.effect, op.rendezvous = Effect.EXCHANGE, 1
    op.without_effect(*ALIGNED, "m8n8", "trans")  # there is no other way
    a, d = op.source(1, "b32"), op.result(0, "b32")

    def run(m):
        _whole_warps(m, op)
        m.regs[d] = m.from_warps(transposed(m.warps(m.regs[a].view(U32), 0)))

    return run
