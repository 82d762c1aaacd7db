"""Tensor-core kernels and their exact results: one table for the machine (test_matrix.py) and for a GPU (tests/gpu).

`SPEC` reads the PTX ISA's fragment formulas literally, element by element, and shares nothing with helpers.sim.fragments.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from types import SimpleNamespace

import ml_dtypes
import numpy as np

# --- element types ---------------------------------------------------------------------------------------------------

STORED = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "f32": np.float32, "f64": np.float64, "s8": np.int8,
    "u8": np.uint8, "s32": np.int32, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip
C_NAMES = {
    "f16": "half", "bf16": "__nv_bfloat16", "tf32": "float", "f32": "float", "f64": "double", "s8": "signed char",
    "u8": "unsigned char", "s32": "int",
}  # fmt: skip
INTEGERS = ("s8", "u8", "s32")


def data(kind: str, shape, seed: int, wild: bool = False) -> np.ndarray:
    """Numbers that `kind` can represent; wild: of very different sizes, with denormals, zeros and cancelling pairs."""
    random = np.random.default_rng(seed)
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


def product(a, b, c) -> tuple[np.ndarray, np.ndarray]:
    """(A B + C, |A| |B| + |C|) in float64, of stacks of matrices."""
    a, b, c = (np.asarray(x).astype(np.float64) for x in (a, b, c))
    return a @ b + c, np.abs(a) @ np.abs(b) + np.abs(c)


def allowed(kind: str, a_kind: str, size, k: int, steps: int = 1) -> np.ndarray:
    """How far machine and GPU may be apart after `steps` instructions that cover k products in all (see isa/matrix.py).

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
        case "m16n8k16", "f16" | "bf16":
            return t * 2 + (i & 1) + (8 if i >= 2 else 0), g
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


@dataclass(frozen=True)
class Mma:
    """One mma.sync instruction."""

    shape: str
    d: str
    a: str
    b: str
    arch: str = "sm_80"
    more: str = ""

    @property
    def name(self) -> str:
        return f"{self.shape}.row.col{self.more}.{self.d}.{self.a}.{self.b}.{self.d}"

    @property
    def symbol(self) -> str:
        return self.name.replace(".", "_")

    @property
    def extents(self) -> tuple[int, int, int]:
        m, rest = self.shape[1:].split("n")
        return int(m), *map(int, rest.split("k"))

    def registers(self, operand: str) -> int:
        m, n, k = self.extents
        kind, count = {"a": (self.a, m * k), "b": (self.b, k * n), "c": (self.d, m * n)}[operand]
        return count // 32 * np.dtype(STORED[kind]).itemsize // (8 if kind == "f64" else 4)

    def places(self, operand: str) -> tuple[np.ndarray, np.ndarray]:
        """(rows, columns) [32, elements], from the text of the ISA."""
        m, n, k = self.extents
        count = {"a": m * k, "b": k * n, "c": m * n}[operand] // 32
        of = {"a": lambda lane, i: _spec_a(self.shape, self.a, lane, i), "b": lambda lane, i: _spec_b(self.shape, self.b, lane, i),
              "c": lambda lane, i: _spec_c(self.shape, lane, i)}[operand]  # fmt: skip
        table = np.array([[of(lane, i) for i in range(count)] for lane in range(32)])
        return table[..., 0], table[..., 1]

    def pack(self, operand: str, matrices: np.ndarray) -> np.ndarray:
        """[warps, 32, registers] of [warps, rows, columns]."""
        rows, columns = self.places(operand)
        kind = {"a": self.a, "b": self.b, "c": self.d}[operand]
        return np.ascontiguousarray(matrices[:, rows, columns]).view(np.uint64 if kind == "f64" else np.uint32)

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
                 f"const {words(self.d)}* c, {words(self.d)}* d) {{",
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
        text = f"mma.sync.aligned.{self.name} {groups['d']}, {groups['a']}, {groups['b']}, {groups['c']};"
        lines.append(f'  asm volatile("{text}" : {out} : {into});')
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


# --- matrix products ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gemm:
    """A whole matrix product: C (m x n) = A (m x k) B, B given as it is or transposed."""

    name: str
    source: str
    symbol: str
    a: str
    d: str
    tile: tuple[int, int]
    threads: int
    step: int  # products that one instruction adds
    transposed: bool = False
    shared: int = 0
    arch: str = "sm_80"

    def arguments(self, m: int, n: int, k: int, seed: int = 0, wild: bool = False) -> list:
        b = data(self.a, (n, k) if self.transposed else (k, n), seed + 1, wild)
        return [m, n, k, data(self.a, (m, k), seed, wild), b, np.zeros((m, n), STORED[self.d])]

    def grid(self, m: int, n: int) -> tuple[int, int, int]:
        return n // self.tile[1], m // self.tile[0], 1


WMMA_GEMM = """
#include <mma.h>
using namespace nvcuda;
// 64 x 64 of C per block of four warps; rows of the tiles are 8 elements longer than they need to be.
template <class F, class T, class D, int K1>
__device__ void body(int M, int N, int K, const T* A, const T* B, D* C) {
    constexpr int BK = 32, SKEW = 16 / sizeof(T);
    __shared__ __align__(32) T As[64][BK + SKEW];
    __shared__ __align__(32) T Bs[BK][64 + SKEW];
    const int warp = threadIdx.x / 32, row = blockIdx.y * 64, col = blockIdx.x * 64;
    const int wr = warp / 2 * 32, wc = warp % 2 * 32;
    wmma::fragment<wmma::accumulator, 16, 16, K1, D> c[2][2];
    for (int i = 0; i < 2; i++) for (int j = 0; j < 2; j++) wmma::fill_fragment(c[i][j], D(0));
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = threadIdx.x; i < 64 * BK; i += 128) As[i / BK][i % BK] = A[(row + i / BK) * K + k0 + i % BK];
        for (int i = threadIdx.x; i < 64 * BK; i += 128) Bs[i / 64][i % 64] = B[(k0 + i / 64) * N + col + i % 64];
        __syncthreads();
        for (int k = 0; k < BK; k += K1) {
            wmma::fragment<wmma::matrix_a, 16, 16, K1, F, wmma::row_major> a[2];
            wmma::fragment<wmma::matrix_b, 16, 16, K1, F, wmma::row_major> b[2];
            for (int i = 0; i < 2; i++) wmma::load_matrix_sync(a[i], &As[wr + 16 * i][k], BK + SKEW);
            for (int j = 0; j < 2; j++) wmma::load_matrix_sync(b[j], &Bs[k][wc + 16 * j], 64 + SKEW);
            for (int i = 0; i < 2; i++) for (int j = 0; j < 2; j++) wmma::mma_sync(c[i][j], a[i], b[j], c[i][j]);
        }
        __syncthreads();
    }
    for (int i = 0; i < 2; i++) for (int j = 0; j < 2; j++)
        wmma::store_matrix_sync(&C[(row + wr + 16 * i) * N + col + wc + 16 * j], c[i][j], N, wmma::mem_row_major);
}
"""


def _wmma_gemm(a: str, d: str, k: int) -> Gemm:
    kind = "wmma::precision::tf32" if a == "tf32" else C_NAMES[a]
    t, r = C_NAMES[a], C_NAMES[d]
    source = WMMA_GEMM + f'extern "C" __global__ void f(int M, int N, int K, const {t}* A, const {t}* B, {r}* C) {{ ' \
        f"body<{kind}, {t}, {r}, {k}>(M, N, K, A, B, C); }}\n"
    return Gemm(f"wmma-{a}", source, "f", a, d, (64, 64), 128, k)


MMA_GEMM = """
// 64 x 64 of C per block of four warps, A and B^T in tiles of 64 rows of 128 bytes. The 16-byte pieces of a row are stored
// SWIZZLE ? exchanged with each other : in order, PITCH bytes from row to row.
#ifndef PITCH
#define PITCH 128
#endif
#ifndef SWIZZLE
#define SWIZZLE 1
#endif
__device__ int place(int row, int piece) { return row * PITCH + 16 * (SWIZZLE ? piece ^ (row & 7) : piece); }
__device__ void load4(unsigned (&r)[4], unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}
extern "C" __global__ void f(int M, int N, int K, const unsigned char* A, const unsigned char* B, WORD* C) {
    __shared__ __align__(128) unsigned char As[64 * PITCH], Bs[64 * PITCH];
    const int t = threadIdx.x, lane = t % 32, warp = t / 32, row = blockIdx.y * 64, col = blockIdx.x * 64;
    const int wr = warp / 2 * 32, wc = warp % 2 * 32, bytes = K * SIZE;
    const unsigned a0 = (unsigned)__cvta_generic_to_shared(As), b0 = (unsigned)__cvta_generic_to_shared(Bs);
    WORD c[2][4][4] = {};
    for (int k0 = 0; k0 < bytes; k0 += 128) {
        for (int i = t; i < 64 * 8; i += 128) {
            const int r = i / 8, p = i % 8;
            *(uint4*)&As[place(r, p)] = *(const uint4*)&A[(size_t)(row + r) * bytes + k0 + 16 * p];
            *(uint4*)&Bs[place(r, p)] = *(const uint4*)&B[(size_t)(col + r) * bytes + k0 + 16 * p];
        }
        __syncthreads();
        for (int k = 0; k < 4; k++) {
            unsigned a[2][4], b[2][4];
            for (int i = 0; i < 2; i++) load4(a[i], a0 + place(wr + 16 * i + lane % 16, 2 * k + lane / 16));
            for (int j = 0; j < 2; j++) load4(b[j], b0 + place(wc + 16 * j + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
            for (int i = 0; i < 2; i++)
                for (int j = 0; j < 4; j++) {
                    WORD(&d)[4] = c[i][j];
                    const unsigned *x = a[i], *y = &b[j / 2][j % 2 * 2];
                    asm volatile("mma.sync.aligned." MMA " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                                 : CONSTRAINT(d[0]), CONSTRAINT(d[1]), CONSTRAINT(d[2]), CONSTRAINT(d[3])
                                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
                }
        }
        __syncthreads();
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++)
            for (int e = 0; e < 4; e++)
                C[(size_t)(row + wr + 16 * i + lane / 4 + e / 2 * 8) * N + col + wc + 8 * j + lane % 4 * 2 + e % 2] = c[i][j][e];
}
"""


def mma_gemm(a: str, pitch: int = 128, swizzle: int = 1) -> Gemm:
    """The product with ldmatrix and mma.sync, for elements of any type."""
    size = np.dtype(STORED[a]).itemsize
    d = "s32" if a in INTEGERS else "f32"
    k = 32 // size
    defines = {"PITCH": pitch, "SWIZZLE": swizzle, "SIZE": size, "WORD": C_NAMES[d], "MMA": f'"m16n8k{k}.row.col.{d}.{a}.{a}.{d}"',
               "CONSTRAINT(x)": f'"+{"r" if d == "s32" else "f"}"(x)'}  # fmt: skip
    source = "".join(f"#define {name} {value}\n" for name, value in defines.items()) + MMA_GEMM
    arch = "sm_89" if a in ("e4m3", "e5m2") else "sm_80"
    return Gemm(f"mma-{a}-{pitch}-{'swizzled' if swizzle else 'plain'}", source, "f", a, d, (64, 64), 128, k, transposed=True, arch=arch)


GEMMS = (
    _wmma_gemm("f16", "f32", 16), _wmma_gemm("f16", "f16", 16), _wmma_gemm("bf16", "f32", 16), _wmma_gemm("tf32", "f32", 8),
    _wmma_gemm("s8", "s32", 16), *(mma_gemm(a) for a in ("f16", "bf16", "tf32", "s8", "e4m3")),
)  # fmt: skip


@functools.cache
def _made(source: str, arch: str):
    from helpers.compiler import compile_source

    first = re.search(r'extern "C" __global__ void (\w+)', source)[1]
    made = compile_source(source, entry=first, arch=arch)
    return made.ptx, made.cubin, made.sass, made.filename


@functools.cache
def compiled(source: str, symbol: str, arch: str):
    """One kernel of a source that may hold several; the source is compiled once."""
    ptx, cubin, sass, filename = _made(source, arch)
    return SimpleNamespace(ptx=ptx, cubin=cubin, sass=sass, symbol=symbol, arch=arch, filename=filename)
