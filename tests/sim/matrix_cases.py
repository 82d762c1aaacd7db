"""Tensor-core kernels and their exact results: one table for the machine (test_mma.py) and for a GPU (tests/gpu).

`SPEC` reads the PTX ISA's fragment formulas literally, element by element, and shares nothing with helpers.sim.layouts.register_fragments.
"""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import dataclass
from types import SimpleNamespace

import ml_dtypes
import numpy as np

# --- element types ---------------------------------------------------------------------------------------------------

STORED = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "f32": np.float32, "f64": np.float64, "s8": np.int8,
    "u8": np.uint8, "s32": np.int32, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
    "s4": np.int8, "u4": np.int8, "b1": np.int8,  # several of them share a byte only in registers and memory
}  # fmt: skip
SMALL = {"s4": (4, -8, 8), "u4": (4, 0, 16), "b1": (1, 0, 2)}  # bits, least value, end of the range
C_NAMES = {
    "f16": "half", "bf16": "__nv_bfloat16", "tf32": "float", "f32": "float", "f64": "double", "s8": "signed char",
    "u8": "unsigned char", "s32": "int",
}  # fmt: skip
INTEGERS = ("s8", "u8", "s32")


FLAVOURS = ("even", "wild", "whole")


def data(kind: str, shape, seed: int, wild: bool = False, whole: bool = False) -> np.ndarray:
    """Numbers that `kind` can represent. wild: of very different sizes, with denormals, zeros and cancelling pairs; whole:
    small whole numbers, whose products and sums are exact in every order.
    """
    random = np.random.default_rng(seed)
    if whole and kind not in SMALL:
        return random.integers(0 if kind == "u8" else -4, 5, shape).astype(STORED[kind])
    if kind in SMALL:
        _, least, end = SMALL[kind]
        return random.integers(least, end, shape).astype(np.int8)
    if kind in INTEGERS:
        limits = np.iinfo(STORED[kind])
        if kind == "s32":
            return random.integers(-(2**20), 2**20, shape).astype(np.int32)
        ends = random.choice([limits.min, limits.max], shape)
        return (ends if wild else random.integers(limits.min, limits.max + 1, shape)).astype(STORED[kind])
    values = random.uniform(-1, 1, shape)
    if wild:
        top = {"f16": 7, "e4m3": 4, "e5m2": 6}.get(kind, 30)
        low = {"f16": -24, "e4m3": -9, "e5m2": -16}.get(kind, -60)
        values = values * 2.0 ** random.integers(low, top, shape)
        values[..., 1::2] = np.where(random.random(values[..., 1::2].shape) < 0.5, -values[..., ::2][..., : values[..., 1::2].shape[-1]], 0)
    stored = values.astype(STORED[kind])
    return (stored.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) if kind == "tf32" else stored


def packed(kind: str, elements: np.ndarray) -> np.ndarray:
    """[…, elements] of a lane -> its registers, [..., registers]."""
    if kind in SMALL:
        bits = SMALL[kind][0]
        several = elements.astype(np.uint32).reshape(*elements.shape[:-1], -1, 32 // bits) & np.uint32((1 << bits) - 1)
        return np.ascontiguousarray(np.bitwise_or.reduce(several << np.arange(0, 32, bits, dtype=np.uint32), axis=-1))
    return np.ascontiguousarray(elements).view(np.uint64 if kind == "f64" else np.uint32)


def product(a, b, c) -> tuple[np.ndarray, np.ndarray]:
    """(A B + C, |A| |B| + |C|) in float64, of stacks of matrices. A subnormal number of A or B is as large as the smallest normal one."""
    large, small = (_size(np.asarray(x)) for x in (a, b))
    a, b, c = (np.asarray(x).astype(np.float64) for x in (a, b, c))
    return a @ b + c, large @ small + np.abs(c)


def _size(x: np.ndarray) -> np.ndarray:
    least = float(ml_dtypes.finfo(x.dtype).smallest_normal) if x.dtype.kind in "fV" else 0.0
    size = np.abs(x.astype(np.float64))
    return np.where(size == 0, 0, np.maximum(size, least))


def allowed(kind: str, a_kind: str, size, k: int, steps: int = 1) -> np.ndarray:
    """How far machine and GPU may be apart after `steps` instructions that cover k products in all (see isa/mma.py).

    kind: of the accumulator. a_kind: of A. size: |A| |B| + |C|.
    """
    if kind == "s32":
        return np.zeros_like(size)
    bits = 53 if kind == "f64" else 13 if a_kind in ("e4m3", "e5m2") else 23
    bound = (k + 2 * steps) * 2.0**-bits * size + 2.0**-149
    return bound + (steps * 2.0**-10 * size + 2.0**-24 if kind == "f16" else 0)


# --- mma.sync: fragments as the PTX ISA describes them ----------------------------------------------------------------


def _spec_a(shape: str, kind: str, lane: int, i: int) -> tuple[int, int]:
    g, t = lane >> 2, lane % 4
    match shape, kind:
        case "m8n8k32", "s4" | "u4":
            return g, t * 8 + i
        case "m16n8k32", "s4" | "u4":
            return g if i < 8 else g + 8, t * 8 + (i & 7)
        case "m16n8k64", "s4" | "u4":
            return g if i < 8 or 16 <= i < 24 else g + 8, t * 8 + (i & 7) + (32 if i >= 16 else 0)
        case "m8n8k128", "b1":
            return g, t * 32 + i
        case "m16n8k128", "b1":
            return g if i < 32 else g + 8, t * 32 + (i & 31)
        case "m16n8k256", "b1":
            return g if i < 32 or 64 <= i < 96 else g + 8, t * 32 + (i & 31) + (128 if i >= 64 else 0)
        case "m16n8k16", "f16" | "bf16":
            return g if 0 <= i < 2 or 4 <= i < 6 else g + 8, t * 2 + (i & 1) + (8 if i >= 4 else 0)
        case "m16n8k8", "f16" | "bf16":
            return g if i in (0, 1) else g + 8, t * 2 + (i & 1)
        case "m16n8k8", "tf32" | "f64":
            return g if i in (0, 2) else g + 8, t if i in (0, 1) else t + 4
        case "m16n8k4", "tf32" | "f64":
            return g if i == 0 else g + 8, t
        case "m16n8k16", "f64":
            return (g, i * 2 + t) if i % 2 == 0 else (g + 8, i * 2 - 2 + t)
        case "m16n8k16", "s8" | "u8" | "e4m3" | "e5m2":
            return g if i < 4 else g + 8, t * 4 + (i & 3)
        case "m16n8k32", "s8" | "u8" | "e4m3" | "e5m2":
            return g if 0 <= i < 4 or 8 <= i < 12 else g + 8, t * 4 + (i & 3) + (16 if i >= 8 else 0)
        case "m8n8k16", "s8" | "u8":
            return g, t * 4 + i
        case "m8n8k4", "f64":
            return g, t
    raise KeyError((shape, kind))


def _spec_b(shape: str, kind: str, lane: int, i: int) -> tuple[int, int]:
    g, t = lane >> 2, lane % 4
    match shape, kind:
        case "m8n8k32" | "m16n8k32" | "m16n8k64" | "m16n8k128", "s4" | "u4":
            return t * 8 + (i & 7) + i // 8 * 32, g
        case "m8n8k128" | "m16n8k128" | "m16n8k256", "b1":
            return t * 32 + (i & 31) + (128 if i >= 32 else 0), g
        case "m16n8k16" | "m16n8k32", "f16" | "bf16":
            return t * 2 + (i & 1) + i // 2 * 8, g
        case "m16n8k64", "s8" | "u8" | "e4m3" | "e5m2":
            return t * 4 + (i & 3) + i // 4 * 16, g
        case "m16n8k8", "f16" | "bf16":
            return t * 2 + i, g
        case "m16n8k8" | "m16n8k4" | "m16n8k16" | "m8n8k4", "tf32" | "f64":
            return t + 4 * i, g
        case "m16n8k16", "s8" | "u8" | "e4m3" | "e5m2":
            return t * 4 + i, g
        case "m16n8k32", "s8" | "u8" | "e4m3" | "e5m2":
            return t * 4 + (i & 3) + (16 if i >= 4 else 0), g
        case "m8n8k16", "s8" | "u8":
            return t * 4 + i, g
    raise KeyError((shape, kind))


def _spec_c(shape: str, lane: int, i: int) -> tuple[int, int]:
    g, t = lane >> 2, lane % 4
    return (g if i < 2 else g + 8), t * 2 + (i & 1)


def _spec_metadata(shape: str, kind: str, selector: int, row: int, column: int) -> tuple[int, int]:
    """(lane, first bit) of what the ISA's drawings say about the chunk of A that begins at this column."""
    g, upper = row % 8, row // 8
    match shape, kind:
        case ("m16n8k16", "f16" | "bf16") | ("m16n8k8", "tf32"):  # one lane: 16 bits for row g, 16 for row g + 8
            return 4 * g + selector, 16 * upper + column * (2 if kind == "tf32" else 1)
        case ("m16n8k32", "f16" | "bf16") | ("m16n8k16", "tf32"):  # two lanes, each for half the columns of both rows
            bits = column * (2 if kind == "tf32" else 1)
            return 4 * g + 2 * selector + bits // 16, 16 * upper + bits % 16
        case ("m16n8k32", "s8" | "u8") | ("m16n8k64", "s4" | "u4"):  # two lanes, one for row g, one for row g + 8
            return 4 * g + 2 * selector + upper, column // (2 if kind in SMALL else 1)
        case ("m16n8k64", "s8" | "u8" | "e4m3" | "e5m2") | ("m16n8k128", "s4" | "u4"):  # all four: two as above per half of the columns
            bits = column // (2 if kind in SMALL else 1)
            return 4 * g + bits // 32 * 2 + upper, bits % 32
    raise KeyError((shape, kind))


def sparse(shape: str, kind: str, selector: int, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Random metadata of `count` warps: (words [count, 32], the column of every stored element [count, 16, k / 2])."""
    random = np.random.default_rng(seed)
    k = int(shape.split("k")[1])
    words, columns = np.zeros((count, 32), np.uint64), np.zeros((count, 16, k // 2), np.int64)
    chunk, unit = {"tf32": (2, 1), "s4": (8, 2), "u4": (8, 2)}.get(kind, (4, 1))
    for row in range(16):
        for n, column in enumerate(range(0, k, chunk)):
            if kind == "tf32":
                choice = random.integers(0, 2, count)
                bits, chosen = np.array([0b0100, 0b1110])[choice], choice[:, None]
            else:
                pairs = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])[random.integers(0, 6, count)]
                bits = pairs[:, 0] | pairs[:, 1] << 2
                chosen = (pairs[..., None] * unit + np.arange(unit)).reshape(count, -1)
            lane, first = _spec_metadata(shape, kind, selector, row, column)
            words[:, lane] |= bits.astype(np.uint64) << np.uint64(first)
            columns[:, row, n * chunk // 2 : (n + 1) * chunk // 2] = column + chosen
    return words.astype(np.uint32), columns


def spread_out(stored: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """A sparse matrix of its stored elements: […, rows, k / 2] -> […, rows, k]."""
    whole = np.zeros((*stored.shape[:-1], 2 * stored.shape[-1]), stored.dtype)
    np.put_along_axis(whole, columns, stored, axis=-1)
    return whole


@dataclass(frozen=True)
class Mma:
    """One mma.sync instruction. selector: of a sparse one. way: what a product of bits does."""

    shape: str
    d: str
    a: str
    b: str
    arch: str = "sm_80"
    more: str = ""
    way: str = ""
    selector: int | None = None

    @property
    def name(self) -> str:
        chosen = "" if self.selector is None else f".selector{self.selector}"
        return f"{self.shape}.row.col{self.more}.{self.d}.{self.a}.{self.b}.{self.d}{self.way}{chosen}"

    @property
    def opcode(self) -> str:
        kind = "mma" if self.selector is None else "mma.sp::ordered_metadata"
        return f"{kind}.sync.aligned.{self.shape}.row.col{self.more}.{self.d}.{self.a}.{self.b}.{self.d}{self.way}"

    @property
    def symbol(self) -> str:
        return "mma_" + self.name.replace(".", "_")

    @property
    def extents(self) -> tuple[int, int, int]:
        m, rest = self.shape[1:].split("n")
        return int(m), *map(int, rest.split("k"))

    @property
    def stored(self) -> int:
        """Elements of A in a row of registers."""
        return self.extents[2] // (1 if self.selector is None else 2)

    def registers(self, operand: str) -> int:
        m, n, k = self.extents
        kind, count = {"a": (self.a, m * self.stored), "b": (self.b, k * n), "c": (self.d, m * n)}[operand]
        bits = SMALL[kind][0] if kind in SMALL else 8 * np.dtype(STORED[kind]).itemsize
        return count // 32 * bits // (64 if kind == "f64" else 32)

    def matrices(self, count: int, wild: bool = False, whole: bool = False):
        """(all of A, A as stored, B, C, metadata or None) of `count` warps."""
        m, n, k = self.extents
        a, b = data(self.a, (count, m, self.stored), 1, wild, whole), data(self.b, (count, k, n), 2, wild, whole)
        c = data(self.d, (count, m, n), 3, False, whole)
        if self.selector is None:
            return a, a, b, c, None
        words, columns = sparse(self.shape, self.a, self.selector, count, 4)
        return spread_out(a, columns), a, b, c, words

    def product(self, a, b, c) -> tuple[np.ndarray, np.ndarray]:
        """(D, |A| |B| + |C|) in float64."""
        exact, size = product(a, b, c)
        if self.way == ".xor.popc":
            exact = (a[..., :, :, None] != b[..., None, :, :]).sum(axis=-2) + c.astype(np.float64)
        return exact, size

    def places(self, operand: str) -> tuple[np.ndarray, np.ndarray]:
        """(rows, columns) [32, elements], from the text of the ISA."""
        m, n, k = self.extents
        count = {"a": m * self.stored, "b": k * n, "c": m * n}[operand] // 32
        dense = f"m{m}n{n}k{self.stored}"
        of = {"a": lambda lane, i: _spec_a(dense, self.a, lane, i), "b": lambda lane, i: _spec_b(self.shape, self.b, lane, i),
              "c": lambda lane, i: _spec_c(self.shape, lane, i)}[operand]  # fmt: skip
        table = np.array([[of(lane, i) for i in range(count)] for lane in range(32)])
        return table[..., 0], table[..., 1]

    def pack(self, operand: str, matrices: np.ndarray) -> np.ndarray:
        """[warps, 32, registers] of [warps, rows, columns]."""
        rows, columns = self.places(operand)
        kind = {"a": self.a, "b": self.b, "c": self.d}[operand]
        return packed(kind, matrices[:, rows, columns])

    def unpack(self, registers: np.ndarray) -> np.ndarray:
        rows, columns = self.places("c")
        m, n, _ = self.extents
        out = np.zeros((len(registers), m, n), STORED[self.d])
        out[:, rows, columns] = registers.view(STORED[self.d]).reshape(len(registers), 32, -1)
        return out

    @property
    def source(self) -> str:
        """A kernel in which every warp loads its registers, executes the instruction and stores the result."""

        def words(kind):
            return "unsigned long long" if kind == "f64" else "unsigned"

        letters = {"f64": "d"}
        counts = {x: self.registers(x) for x in "abc"}
        lines = [f'extern "C" __global__ void {self.symbol}(const {words(self.a)}* a, const {words(self.b)}* b, '
                 f"const {words(self.d)}* c, {'const unsigned* e, ' * (self.selector is not None)}{words(self.d)}* d) {{",
                 "  const long t = blockIdx.x * (long)blockDim.x + threadIdx.x;"]  # fmt: skip
        for x, kind in (("a", self.a), ("b", self.b), ("c", self.d)):
            lines.append(f"  {'double' if kind == 'f64' else 'unsigned'} r{x}[{counts[x]}];")
            read = "__longlong_as_double({})" if kind == "f64" else "{}"
            lines.append(f"  for (int i = 0; i < {counts[x]}; i++) r{x}[i] = {read.format(f'{x}[t * {counts[x]} + i]')};")
        numbers = iter(range(99))
        groups = {}
        for x in "dabc":
            groups[x] = "{" + ", ".join(f"%{next(numbers)}" for _ in range(counts["c" if x == "d" else x])) + "}"
        out = ", ".join(f'"={letters.get(self.d, "r")}"(rd[{i}])' for i in range(counts["c"]))
        into = ", ".join(f'"{letters.get(kind, "r")}"(r{x}[{i}])' for x, kind in (("a", self.a), ("b", self.b), ("c", self.d))
                         for i in range(counts[x]))  # fmt: skip
        lines.append(f"  {'double' if self.d == 'f64' else 'unsigned'} rd[{counts['c']}];")
        text = f"{self.opcode} {groups['d']}, {groups['a']}, {groups['b']}, {groups['c']}"
        if self.selector is not None:
            text += f", %{next(numbers)}, {self.selector}"
            into += ', "r"(e[t])'
        lines.append(f'  asm volatile("{text};" : {out} : {into});')
        write = "__double_as_longlong({})" if self.d == "f64" else "{}"
        lines.append(f"  for (int i = 0; i < {counts['c']}; i++) d[t * {counts['c']} + i] = {write.format('rd[i]')};")
        return "\n".join([*lines, "}"])


MMAS = (
    Mma("m16n8k16", "f32", "f16", "f16"), Mma("m16n8k16", "f16", "f16", "f16"), Mma("m16n8k8", "f32", "f16", "f16", "sm_75"),
    Mma("m16n8k8", "f16", "f16", "f16", "sm_75"), Mma("m16n8k16", "f32", "bf16", "bf16"), Mma("m16n8k8", "f32", "bf16", "bf16"),
    Mma("m16n8k8", "f32", "tf32", "tf32"), Mma("m16n8k4", "f32", "tf32", "tf32"),
    Mma("m8n8k16", "s32", "s8", "s8", "sm_75"), Mma("m16n8k16", "s32", "s8", "u8"), Mma("m16n8k32", "s32", "s8", "s8"),
    Mma("m16n8k32", "s32", "u8", "s8"), Mma("m16n8k32", "s32", "u8", "u8"),
    Mma("m8n8k4", "f64", "f64", "f64"), Mma("m16n8k4", "f64", "f64", "f64", "sm_90"), Mma("m16n8k8", "f64", "f64", "f64", "sm_90"),
    Mma("m16n8k16", "f64", "f64", "f64", "sm_90"),
    Mma("m16n8k32", "f32", "e4m3", "e4m3", "sm_89"), Mma("m16n8k32", "f32", "e5m2", "e4m3", "sm_89"),
    Mma("m16n8k16", "f32", "e4m3", "e5m2", "sm_89"), Mma("m16n8k16", "f16", "e4m3", "e4m3", "sm_89"), Mma("m16n8k32", "f16", "e5m2", "e5m2", "sm_89"),
    Mma("m8n8k32", "s32", "s4", "u4"), Mma("m16n8k32", "s32", "s4", "s4"), Mma("m16n8k64", "s32", "u4", "s4"),
    Mma("m8n8k128", "s32", "b1", "b1", way=".and.popc"), Mma("m16n8k128", "s32", "b1", "b1", way=".xor.popc"),
    Mma("m16n8k256", "s32", "b1", "b1", way=".and.popc"),
    *(Mma("m16n8k16", "f32", "f16", "f16", selector=i) for i in range(4)), *(Mma("m16n8k32", "f32", "bf16", "bf16", selector=i) for i in range(2)),
    *(Mma("m16n8k8", "f32", "tf32", "tf32", selector=i) for i in range(4)), *(Mma("m16n8k16", "f32", "tf32", "tf32", selector=i) for i in range(2)),
    *(Mma("m16n8k32", "s32", "s8", "u8", selector=i) for i in range(2)), Mma("m16n8k64", "s32", "u8", "s8", selector=0),
    *(Mma("m16n8k64", "s32", "s4", "s4", selector=i) for i in range(2)), Mma("m16n8k128", "s32", "u4", "s4", selector=0),
    Mma("m16n8k64", "f32", "e4m3", "e5m2", "sm_89", selector=0),
)  # fmt: skip


@dataclass(frozen=True)
class Volta:
    """mma.m8n8k4 of f16: four pairs of matrices, each in the registers of eight lanes. orders: of A and B in memory."""

    orders: tuple[str, str]
    d: str
    arch: str = "sm_80"

    @property
    def opcode(self) -> str:
        return f"mma.sync.aligned.m8n8k4.{self.orders[0]}.{self.orders[1]}.{self.d}.f16.f16.{self.d}"

    @property
    def name(self) -> str:
        return self.opcode.removeprefix("mma.sync.aligned.")

    def registers(self, operand: str) -> int:
        return 8 if (operand, self.d) == ("c", "f32") else 4 if operand == "c" else 2

    def places(self, operand: str) -> tuple[np.ndarray, np.ndarray]:
        """(rows, columns) [32, elements], from the text of the ISA."""

        def of(lane: int, i: int) -> tuple[int, int]:
            upper = 0 if lane < 16 else 4
            match operand, self.orders[operand == "b"], self.d:
                case "a", "row", _:
                    return lane % 4 + upper, i
                case "a", "col", _:
                    return i % 4 + upper, lane % 4
                case "b", "row", _:
                    return lane % 4, i + upper
                case "b", "col", _:
                    return i, lane % 4 + upper
                case "c", _, "f16":
                    return lane % 4 + upper, i
            return (lane & 1) + (i & 2) + upper, (i & 4) + (lane & 2) + (i & 1)

        table = np.array([[of(lane, i) for i in range(8 if operand == "c" else 4)] for lane in range(32)])
        return table[..., 0], table[..., 1]

    def matrices(self, count: int):
        """(A, B, C) [count, 4, rows, columns] of small whole numbers, whose products are exact."""
        random = np.random.default_rng(6)
        return [random.integers(-8, 9, (count, 4, *shape)).astype(STORED[kind])
                for shape, kind in (((8, 4), "f16"), ((4, 8), "f16"), ((8, 8), self.d))]  # fmt: skip

    def pack(self, operand: str, matrices: np.ndarray) -> np.ndarray:
        rows, columns = self.places(operand)
        pair = (np.arange(32) % 16 // 4)[:, None]
        return packed("f16", matrices[:, pair, rows, columns])

    def unpack(self, registers: np.ndarray) -> np.ndarray:
        rows, columns = self.places("c")
        out = np.zeros((len(registers), 4, 8, 8), STORED[self.d])
        out[:, (np.arange(32) % 16 // 4)[:, None], rows, columns] = registers.view(STORED[self.d]).reshape(len(registers), 32, 8)
        return out

    @property
    def source(self) -> str:
        """A kernel in which every warp loads its registers, C from d, and stores the result there."""
        count = self.registers("c")
        c = "{" + ", ".join(f"%{i}" for i in range(count)) + "}"
        outs = ", ".join(f'"+r"(c[{i}])' for i in range(count)) if self.d == "f16" else ", ".join(f'"+f"(c[{i}])' for i in range(count))
        kind = "unsigned" if self.d == "f16" else "float"
        return f"""
extern "C" __global__ void volta(const unsigned* a, const unsigned* b, {kind}* d) {{
  const int t = blockIdx.x * 32 + threadIdx.x;
  {kind} c[{count}];
  for (int i = 0; i < {count}; i++) c[i] = d[t * {count} + i];
  asm volatile("{self.opcode} {c}, {{%{count}, %{count + 1}}}, {{%{count + 2}, %{count + 3}}}, {c};"
      : {outs} : "r"(a[t * 2]), "r"(a[t * 2 + 1]), "r"(b[t * 2]), "r"(b[t * 2 + 1]));
  for (int i = 0; i < {count}; i++) d[t * {count} + i] = c[i];
}}
"""


VOLTAS = tuple(Volta((a, b), d) for a in ("row", "col") for b in ("row", "col") for d in ("f16", "f32"))


# --- wgmma: matrices in shared memory, laid out as the PTX ISA draws them ---------------------------------------------

SPANS = {None: 16, "32B": 32, "64B": 64, "128B": 128}
MODE_BITS = {None: 0, "128B": 1, "64B": 2, "32B": 3}
IMAGE = 1 << 16  # bytes of shared memory that a case fills


def turned_chunk(mode: str | None, row: int, chunk: int) -> int:
    """Where the ISA's drawing of a swizzle puts 16-byte chunk `chunk` of a tile's row `row` (of as many bytes as the span)."""
    match mode:
        case "128B":
            return chunk ^ row % 8
        case "64B":
            return chunk ^ row // 2 % 4
        case "32B":
            return chunk ^ row // 4 % 2
    return chunk


@dataclass(frozen=True)
class Tile:
    """How a matrix lies in shared memory: in rows as long as the swizzle's span, K along them, or (turned) M or N.

    step: which 32 bytes of a longer row along K are used. base: rows of 128 bytes that the tile's
    beginning is off the pattern's period.
    """

    mode: str | None
    step: int = 0
    base: int = 0

    def __str__(self) -> str:
        return f"{self.mode or 'plain'}{f'-step{self.step}' * bool(self.step)}{f'-base{self.base}' * bool(self.base)}"

    def write(self, image: np.ndarray, matrix: np.ndarray, at: int, turned: bool) -> int:
        """Put matrix [lines, K] into an image of shared memory from offset `at`; the descriptor, its addresses from 0."""
        span, lines, width = SPANS[self.mode], *matrix.shape
        size = matrix.itemsize
        at += 128 * self.base
        if turned:
            per_span = span // size  # elements of M or N in one row
            along_k = 8 * span  # from one block of eight K to the next
            next_span = along_k * (width // 8)
            for line in range(lines):
                for k in range(width):
                    byte = line % per_span * size
                    chunk = turned_chunk(self.mode, k % 8, byte // 16)
                    place = at + line // per_span * next_span + k // 8 * along_k + k % 8 * span + chunk * 16 + byte % 16
                    image[place : place + size] = matrix[line, k : k + 1].view(np.uint8)
            leading, stride = (along_k, next_span) if self.mode is None else (next_span, along_k)
        elif self.mode is None:
            chunks = width * size // 16
            leading, stride = 8 * 16, chunks * 8 * 16  # core matrices of 8 lines beside each other, then the next 8 lines
            for line in range(lines):
                row = np.ascontiguousarray(matrix[line]).view(np.uint8).reshape(chunks, 16)
                for chunk in range(chunks):
                    place = at + line // 8 * stride + chunk * leading + line % 8 * 16
                    image[place : place + 16] = row[chunk]
        else:
            leading, stride = 16, 8 * span
            for line in range(lines):
                row = np.ascontiguousarray(matrix[line]).view(np.uint8).reshape(-1, 16)
                for chunk in range(len(row)):
                    place = at + line * span + 16 * turned_chunk(self.mode, line, 2 * self.step + chunk)
                    image[place : place + 16] = row[chunk]
            at += 32 * self.step
        return at >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | self.base << 49 | MODE_BITS[self.mode] << 62


@dataclass(frozen=True)
class Wgmma:
    """One wgmma instruction. registers: A comes from there. turn_a, turn_b: MN-major. signs: of A and B. selector: of a sparse one."""

    n: int
    d: str
    a: str
    b: str
    registers: bool = False
    turn_a: bool = False
    turn_b: bool = False
    signs: tuple[int, int] = (1, 1)
    more: str = ""
    selector: int | None = None
    arch: str = "sm_90a"

    @property
    def stored(self) -> int:
        """Elements of A in a row of registers or shared memory."""
        return 256 // (SMALL[self.a][0] if self.a in SMALL else 8 * np.dtype(STORED[self.a]).itemsize)

    @property
    def k(self) -> int:
        return self.stored * (1 if self.selector is None else 2)

    @property
    def name(self) -> str:
        tail = "-registers" * self.registers + "-at" * self.turn_a + "-bt" * self.turn_b
        tail += "-minus_a" * (self.signs[0] < 0) + "-minus_b" * (self.signs[1] < 0)
        tail += "" if self.selector is None else f"-selector{self.selector}"
        return f"m64n{self.n}k{self.k}{self.more}.{self.d}.{self.a}.{self.b}{tail}"

    @property
    def symbol(self) -> str:
        return "wgmma_" + self.name.replace(".", "_").replace("-", "_")

    def registers_of(self, operand: str) -> int:
        """32-bit registers of a thread."""
        return 4 if operand == "a" else self.n // 2 // (2 if self.d == "f16" else 1)

    def places(self, operand: str) -> tuple[np.ndarray, np.ndarray]:
        """(rows, columns) [128, elements], from the text of the ISA."""
        if operand == "c":
            count = self.n // 2
            table = [
                [(16 * (t // 32) + t % 32 // 4 + i // 2 % 2 * 8, i // 4 * 8 + t % 4 * 2 + i % 2) for i in range(count)] for t in range(128)
            ]
        else:
            form, count = f"m16n8k{self.stored}", 16 * self.stored // 32
            table = []
            for t in range(128):
                inside = [_spec_a(form, self.a, t % 32, i) for i in range(count)]
                table.append([(16 * (t // 32) + row, column) for row, column in inside])
        both = np.array(table)
        return both[..., 0], both[..., 1]

    def pack(self, operand: str, matrix: np.ndarray) -> np.ndarray:
        """[128, registers] of a [64, columns] matrix."""
        rows, columns = self.places(operand)
        return packed(self.a if operand == "a" else self.d, matrix[rows, columns])

    def unpack(self, registers: np.ndarray) -> np.ndarray:
        rows, columns = self.places("c")
        out = np.zeros((64, self.n), STORED[self.d])
        out[rows, columns] = registers.view(STORED[self.d]).reshape(128, -1)
        return out

    def matrices(self, wild: bool = False, whole: bool = False):
        """(all of A [64, k], A as stored, B [n, k], C [64, n], metadata of the 128 threads or None); K along the rows of A and B."""
        a, b = data(self.a, (64, self.stored), 1, wild, whole), data(self.b, (self.n, self.k), 2, wild, whole)
        c = data(self.d, (64, self.n), 3, False, whole)
        if self.selector is None:
            return a, a, b, c, None
        words, columns = sparse(f"m16n8k{self.k}", self.a, self.selector, 4, 4)
        return spread_out(a, columns.reshape(64, -1)), a, b, c, words

    def product(self, a, b, c) -> tuple[np.ndarray, np.ndarray]:
        """(A B^T + C with the signs, sum of the sizes) of A [64, k], B [n, k]."""
        exact, size = product(a, b.T, 0)
        c = np.asarray(c).astype(np.float64)
        return self.signs[0] * self.signs[1] * exact + c, size + np.abs(c)

    @property
    def source(self) -> str:
        """A kernel of one warpgroup: fill shared memory with an image, load registers, multiply, store the registers."""
        count, fed = self.registers_of("c"), 4 if self.registers else 0
        d = ", ".join(f"%{i}" for i in range(count))
        a = "{" + ", ".join(f"%{count + i}" for i in range(4)) + "}" if self.registers else f"%{count}"
        last = count + (4 if self.registers else 1)
        chosen = "" if self.selector is None else f", %{last + 2}, {self.selector}"
        tail = ""
        if self.d != "s32":
            tail = f", {self.signs[0]}, {self.signs[1]}"
            if self.a in ("f16", "bf16"):
                tail += f", {int(self.turn_b)}" if self.registers else f", {int(self.turn_a)}, {int(self.turn_b)}"
        text = f"wgmma.mma_async{'.sp' * bool(chosen)}.sync.aligned.m64n{self.n}k{self.k}{self.more}.{self.d}.{self.a}.{self.b}"
        text += ".and.popc" * (self.a == "b1")
        outs = ", ".join(f'"+r"(d[{i}])' for i in range(count))
        ins = ", ".join(f'"r"(x[{i}])' for i in range(fed)) or '"l"(da + base)'
        return f"""
extern "C" __global__ void {self.symbol}(const uint4* image, unsigned long long da, unsigned long long db,
    const unsigned* a, const unsigned* c, const unsigned* meta, int add, unsigned* out) {{
  extern __shared__ __align__(1024) uint4 memory[];
  const int t = threadIdx.x;
  for (int i = t; i < {IMAGE // 16}; i += 128) memory[i] = image[i];
  const unsigned long long base = (unsigned)__cvta_generic_to_shared(memory) >> 4;
  unsigned d[{count}], x[4];
  for (int i = 0; i < {count}; i++) d[i] = c[t * {count} + i];
  for (int i = 0; i < 4; i++) x[i] = a[t * 4 + i];
  const unsigned e = meta[t];
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{last + 1}, 0;\\n{text} {{{d}}}, {a}, %{last}{chosen}, p{tail};\\n}}"
      : {outs} : {ins}, "l"(db + base), "r"(add){', "r"(e)' * bool(chosen)});
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < {count}; i++) out[t * {count} + i] = d[i];
}}
"""

    def arguments(self, a, b, c, words, add: bool, tile_a: Tile, tile_b: Tile) -> list:
        """For A as stored, B, C and metadata, as `matrices` has them."""
        image = np.zeros(IMAGE, np.uint8)
        held = self.pack("a", a) if self.registers else np.zeros((128, 4), np.uint32)
        if self.a == "b1":
            a, b = (np.packbits(matrix.astype(bool), axis=1, bitorder="little") for matrix in (a, b))
        described = 0 if self.registers else tile_a.write(image, a, 0, self.turn_a)
        described_b = tile_b.write(image, b, IMAGE // 4, self.turn_b)
        metadata = np.zeros(128, np.uint32) if words is None else words
        packed_c = self.pack("c", c)
        return [image, np.uint64(described), np.uint64(described_b), held, packed_c, metadata, np.int32(add), np.zeros_like(packed_c)]


def fits(case: Wgmma, tile: Tile) -> bool:
    """Does a row of the tile hold what the instruction wants of K from the step on?"""
    turned = case.turn_b and (case.turn_a or case.registers)
    return tile.mode is None or turned or 32 * tile.step + 32 * case.k // case.stored <= SPANS[tile.mode]


TILES = (Tile(None), Tile("32B"), Tile("64B", 1), Tile("128B", 3), Tile("128B", 0, 2))
WGMMAS = (
    *(Wgmma(n, "f32", "bf16", "bf16") for n in (8, 24, 64, 128, 256)),
    *(Wgmma(64, "f32", "f16", "f16", registers, turn_a, turn_b) for registers in (False, True) for turn_a in (False, True)
      for turn_b in (False, True) if not (registers and turn_a)),
    Wgmma(256, "f32", "bf16", "bf16", turn_b=True), Wgmma(128, "f32", "bf16", "bf16", registers=True), Wgmma(32, "f16", "f16", "f16"),
    Wgmma(32, "f16", "f16", "f16", registers=True), Wgmma(32, "f32", "f16", "f16", signs=(-1, 1)), Wgmma(32, "f32", "f16", "f16", signs=(-1, -1)),
    Wgmma(64, "f32", "tf32", "tf32"), Wgmma(64, "f32", "tf32", "tf32", registers=True), Wgmma(16, "f32", "tf32", "tf32", signs=(1, -1)),
    Wgmma(64, "f32", "e4m3", "e4m3"), Wgmma(64, "f32", "e4m3", "e5m2", registers=True), Wgmma(16, "f32", "e5m2", "e5m2"),
    Wgmma(32, "f16", "e5m2", "e4m3"),
    Wgmma(64, "s32", "s8", "s8"), Wgmma(32, "s32", "u8", "u8", registers=True), Wgmma(16, "s32", "s8", "u8"), Wgmma(8, "s32", "u8", "s8"),
    Wgmma(16, "s32", "s8", "s8", more=".satfinite"),
    *(Wgmma(16, "f32", a, a, registers, selector=i) for a in ("bf16", "tf32") for registers in (False, True) for i in range(2)),
    Wgmma(64, "f32", "f16", "f16", turn_b=True, selector=0), Wgmma(32, "s32", "s8", "u8", selector=0),
    Wgmma(24, "f32", "e4m3", "e4m3", True, selector=0),
    Wgmma(16, "s32", "b1", "b1"), Wgmma(8, "s32", "b1", "b1", registers=True),
)  # fmt: skip


# --- wmma: every shape, type and layout -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wmma:
    """One combination of wmma's types and shape, in all eight combinations of layouts, from global and from shared memory."""

    m: int
    n: int
    k: int
    a: str
    d: str
    arch: str = "sm_80"

    @property
    def symbol(self) -> str:
        return f"wmma_{self.m}x{self.n}x{self.k}_{self.a}_{self.d}"

    @property
    def source(self) -> str:
        kind = "wmma::precision::tf32" if self.a == "tf32" else C_NAMES[self.a]
        t, d = C_NAMES[self.a], C_NAMES[self.d]
        return f'extern "C" __global__ void {self.symbol}(const {t}* a, const {t}* b, const {d}* c, {d}* out) {{\n' \
               f"  every<{kind}, {t}, {d}, {self.m}, {self.n}, {self.k}>(a, b, c, out);\n}}\n"  # fmt: skip

    @property
    def pitch(self) -> int:
        """Elements between lines in memory: a multiple of 16 bytes and more than any line."""
        return 48

    def arguments(self, seed: int, wild: bool) -> list[np.ndarray]:
        """A and A^T, B and B^T, C and C^T, each in lines of `pitch` elements; and room for 16 results."""
        made = []
        for i, (rows, columns, kind) in enumerate([(self.m, self.k, self.a), (self.k, self.n, self.a), (self.m, self.n, self.d)]):
            matrix = data(kind, (rows, columns), seed + i, wild and i < 2)
            both = np.zeros((2, 32, self.pitch), STORED[kind])
            both[0, :rows, :columns], both[1, :columns, :rows] = matrix, matrix.T
            made.append(both)
        return [*made, np.zeros((16, 32, self.pitch), STORED[self.d])]


WMMA_HEADER = """
#include <mma.h>
using namespace nvcuda;
constexpr int PITCH = 48;
template <class F, class T, class D, int M, int N, int K, class LA, class LB>
__device__ void one(const T* a, const T* b, const D* c, wmma::layout_t lc, D* out) {
    wmma::fragment<wmma::matrix_a, M, N, K, F, LA> fa;
    wmma::fragment<wmma::matrix_b, M, N, K, F, LB> fb;
    wmma::fragment<wmma::accumulator, M, N, K, D> fc;
    wmma::load_matrix_sync(fa, a, PITCH);
    wmma::load_matrix_sync(fb, b, PITCH);
    wmma::load_matrix_sync(fc, c, PITCH, lc);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(out, fc, PITCH, lc);
}
template <class F, class T, class D, int M, int N, int K>
__device__ void all(const T* a, const T* b, const D* c, D* out) {
    constexpr int S = 32 * PITCH;
    using R = wmma::row_major;
    using C = wmma::col_major;
    one<F, T, D, M, N, K, R, R>(a, b, c, wmma::mem_row_major, out);
    one<F, T, D, M, N, K, R, C>(a, b + S, c, wmma::mem_row_major, out + S);
    one<F, T, D, M, N, K, C, R>(a + S, b, c, wmma::mem_row_major, out + 2 * S);
    one<F, T, D, M, N, K, C, C>(a + S, b + S, c, wmma::mem_row_major, out + 3 * S);
    one<F, T, D, M, N, K, R, R>(a, b, c + S, wmma::mem_col_major, out + 4 * S);
    one<F, T, D, M, N, K, R, C>(a, b + S, c + S, wmma::mem_col_major, out + 5 * S);
    one<F, T, D, M, N, K, C, R>(a + S, b, c + S, wmma::mem_col_major, out + 6 * S);
    one<F, T, D, M, N, K, C, C>(a + S, b + S, c + S, wmma::mem_col_major, out + 7 * S);
}
template <class F, class T, class D, int M, int N, int K>
__device__ void every(const T* a, const T* b, const D* c, D* out) {
    constexpr int S = 32 * PITCH;
    extern __shared__ __align__(128) char memory[];
    T* sa = reinterpret_cast<T*>(memory);
    T* sb = sa + 2 * S;
    D* sc = reinterpret_cast<D*>(sb + 2 * S);
    all<F, T, D, M, N, K>(a, b, c, out);
    for (int i = threadIdx.x; i < 2 * S; i += 32) { sa[i] = a[i]; sb[i] = b[i]; sc[i] = c[i]; }
    __syncthreads();
    all<F, T, D, M, N, K>(sa, sb, sc, out + 8 * S);
}
"""

WMMAS = (
    *(Wmma(m, n, 16, a, d, "sm_80" if a == "bf16" else "sm_75") for m, n in ((16, 16), (32, 8), (8, 32))
      for a, d in (("f16", "f32"), ("f16", "f16"), ("bf16", "f32"), ("s8", "s32"), ("u8", "s32"))),
    Wmma(16, 16, 8, "tf32", "f32"), Wmma(8, 8, 4, "f64", "f64"),
)  # fmt: skip


# --- results and compiled kernels ---------------------------------------------------------------------------------------


def fingerprint(matrices: np.ndarray) -> str:
    """Of the bits of a result."""
    return hashlib.sha256(np.ascontiguousarray(matrices).tobytes()).hexdigest()[:16]


@functools.cache
def _made(source: str, arch: str):
    from helpers.toolchain.compile import compile_source

    first = re.search(r'extern "C" __global__ void (\w+)', source)[1]
    made = compile_source(source, entry=first, arch=arch)
    return made.ptx, made.cubin, made.sass, made.filename


@functools.cache
def compiled(source: str, symbol: str, arch: str):
    """One kernel of a source that may hold several; the source is compiled once."""
    ptx, cubin, sass, filename = _made(source, arch)
    return SimpleNamespace(ptx=ptx, cubin=cubin, sass=sass, symbol=symbol, arch=arch, filename=filename)
