"""Random kernels: the native engine against the NumPy machine, bit for bit, and both against a GPU.

    python -m tests.sim.fuzz 1000                 a thousand kernels from seed 0 on; stops at none, lists all differences
    python -m tests.sim.fuzz 1 --seed 4711        one kernel again; --source prints it
    python -m tests.sim.fuzz 1000 --gpu           results of correct kernels also on the GPU of this machine
    python -m tests.sim.fuzz 1000 --jobs 8

A seed decides everything about a kernel: its statements, its launch, its data. About two thirds are correct programs; the others
hold a mistake on purpose (a missing barrier, an address out of bounds in one of many ways, a misaligned pointer), on
which both engines must say the same. What native code declines is run by the NumPy machine alone and counted as such.
A difference is made small by leaving statements out, and printed. Where the GPU's results are the machine's if ptxas does not optimise,
its optimiser is what differs, and that is counted apart: it takes `fabsf(x) >= -1.0f` for true, though x may be a NaN.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import queue
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from helpers.errors import CompileError, LaunchError, RunError
from helpers.sim import Budget, Collect, simulate
from helpers.toolchain.compile import compile_source

BLOCKS = ((32, 1, 1), (64, 1, 1), (96, 1, 1), (128, 1, 1), (48, 1, 1), (37, 1, 1), (16, 4, 1), (8, 8, 2), (5, 7, 3), (32, 2, 1), (1, 1, 1))
GRIDS = ((1, 1, 1), (2, 1, 1), (3, 2, 1), (1, 2, 2))
ELEMENTS = 4  # of each array, per thread
TYPES = {"i": "int", "u": "unsigned", "q": "long long", "f": "float", "d": "double", "h": "__half"}
OPTIONS = ("-fmad=false",)  # without contraction: ptxas may join a product and a sum that the PTX keeps apart; fmaf() and fma() stay
DTYPES = {"i": np.int32, "u": np.uint32, "q": np.int64, "f": np.float32, "d": np.float64, "h": np.float16}
# Integers at which something changes: signs, widths, and the bit patterns of infinities and NaNs.
EDGES = (
    0,
    1,
    -1,
    2,
    7,
    31,
    32,
    33,
    255,
    256,
    65535,
    2**31 - 1,
    -(2**31),
    0x7F800000,
    0x7F800001,
    0x7FC00000,
    0x7FFFFFFF,
    -1048576,
    0x3F800000,
)
FLOATS = (
    "0.0f",
    "-0.0f",
    "1.0f",
    "-1.5f",
    "0.1f",
    "3e38f",
    "1e-40f",
    "16777217.0f",
    "1e10f",
    "-7.25f",
    "__int_as_float(0x7f800000)",
    "__int_as_float(0x7fffffff)",  # the NaN of all arithmetic: what the compiler folds keeps other bits than the lanes do
)
DOUBLES = ("0.0", "-1.0", "0.1", "1e300", "5e-324", "4503599627370497.5", "-2.5")
MISTAKES = ("barrier", "shared", "shared-wrap", "global", "global-wrap", "local", "generic", "misaligned", "unset", "clash", "no-value")


@dataclass
class Kernel:
    """One random program and its launch. statements: at the top level, each a list of lines; any of them can be left out."""

    seed: int
    statements: list[list[str]] = field(default_factory=list)
    block: tuple[int, int, int] = (32, 1, 1)
    grid: tuple[int, int, int] = (1, 1, 1)
    mistake: str = ""
    halves: bool = False
    declined: bool = False  # may hold what native code leaves to the NumPy machine: atomic operations, dp4a

    @property
    def threads(self) -> int:
        return math.prod(self.block)

    def source(self, kept=None) -> str:
        """CUDA C++ of the kernel, or of what is `kept` of its statements (indices)."""
        chosen = range(len(self.statements)) if kept is None else kept
        body = "\n".join("    " + line for i in chosen for line in self.statements[i])
        half = "    __half h0 = __float2half(F[g]), h1 = __float2half(1.5f);\n" if self.halves else ""
        last = "    OF[g * 4 + 3] = __half2float(h0) + __half2float(h1);\n" if self.halves else ""
        return f"""{"#include <cuda_fp16.h>" if self.halves else ""}
extern "C" __global__ void k(const int* I, const float* F, const double* D, const long long* Q,
                             int* OI, float* OF, double* OD, long long* OQ, unsigned* COUNT, int n, float x, long long big) {{
    __shared__ int s[{self.threads}];
    __shared__ double w[{self.threads}];
    const int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const int g = t + {self.threads} * (blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z));
    int i0 = I[g], i1 = t, i2 = n;
    unsigned u0 = I[g + 1], u1 = g;
    long long q0 = Q[g], q1 = g - 3;
    float f0 = F[g], f1 = x, f2 = t * 0.25f;
    double d0 = D[g], d1 = 0.5;
    int a[8] = {{1, 2, 3, 4, 5, 6, 7, t}};
{half}{body}
    OI[g * 4] = i0; OI[g * 4 + 1] = i1; OI[g * 4 + 2] = i2; OI[g * 4 + 3] = a[i1 & 7];
    OF[g * 4] = f0; OF[g * 4 + 1] = f1; OF[g * 4 + 2] = f2;
{last}    OD[g * 4] = d0; OD[g * 4 + 1] = d1;
    OQ[g * 4] = q0; OQ[g * 4 + 1] = q1; OQ[g * 4 + 2] = u0; OQ[g * 4 + 3] = u1;
}}
"""

    def arguments(self) -> list:
        """Fresh arrays and scalars, the same for the same seed."""
        rng = np.random.default_rng(self.seed)
        total = self.threads * math.prod(self.grid) * ELEMENTS
        ints = rng.integers(-(2**31), 2**31, total, dtype=np.int64)
        ints[rng.random(total) < 0.3] = rng.choice(np.array(EDGES), total)[: np.count_nonzero(rng.random(total) < 2)][0]
        ints = np.where(rng.random(total) < 0.4, rng.choice(np.array(EDGES), total), ints).astype(np.int32)
        floats = np.where(
            rng.random(total) < 0.15,
            rng.choice(np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 3e38]), total),
            rng.normal(0, 100, total),
        )
        return [
            ints, floats.astype(np.float32), rng.normal(0, 1e3, total), rng.integers(-(2**62), 2**62, total),
            np.zeros(total, np.int32), np.zeros(total, np.float32), np.zeros(total), np.zeros(total, np.int64), np.zeros(16, np.uint32),
            np.int32(rng.integers(1, 100)), np.float32(rng.normal()), np.int64(rng.choice([2**60, 2**61 - 1, 2**62, -(2**61), 2**63 - 4, 2**32, -8, 1 << 40])),
        ]  # fmt: skip


class Writer:
    """Writes one random kernel. Every method returns C++ text; `depth` bounds how far expressions and blocks nest."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self.kernel = Kernel(seed)
        self.loops = 0

    def one(self, *choices):
        return self.rng.choice(choices)

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def write(self) -> Kernel:
        rng, kernel = self.rng, self.kernel
        kernel.block, kernel.grid = rng.choice(BLOCKS), rng.choice(GRIDS)
        kernel.declined = self.chance(0.15)
        kernel.halves = self.chance(0.15)
        if self.chance(0.35):
            kernel.mistake = rng.choice(MISTAKES)
        count = rng.randint(2, 9)
        at = rng.randrange(count) if kernel.mistake else -1
        for i in range(count):
            kernel.statements.append(self.wrong() if i == at else self.top())
        return kernel

    # ------------------------------------------------------------------------------------------------- expressions

    def value(self, kind: str, depth: int = 3) -> str:
        return getattr(self, f"value_{kind}")(depth)

    def variable(self, kind: str) -> str:
        return {
            "i": ("i0", "i1", "i2"),
            "u": ("u0", "u1"),
            "q": ("q0", "q1"),
            "f": ("f0", "f1", "f2"),
            "d": ("d0", "d1"),
            "h": ("h0", "h1"),
        }[kind][self.rng.randrange({"i": 3, "u": 2, "q": 2, "f": 3, "d": 2, "h": 2}[kind])]

    def index(self, size: int, depth: int = 1) -> str:
        """An int in [0, size)."""
        return self.one(
            f"(t + {self.rng.randrange(64)}) % {size}", f"(unsigned)({self.value_i(depth)}) % {size}u", f"{self.rng.randrange(size)}"
        )

    def value_i(self, depth: int) -> str:
        if depth <= 0 or self.chance(0.15):
            return self.one(self.variable("i"), "t", "n", f"({self.rng.choice(EDGES)})", str(self.rng.randint(-99, 99)), "a[3]")
        x, y, less = (lambda: self.value_i(depth - 1)), (lambda: self.value_i(depth - 1)), depth - 1
        match self.rng.randrange(26):
            case 0 | 1 | 2:
                return f"({x()} {self.one('+', '-', '*')} {y()})"
            case 3 | 4:
                return f"({x()} {self.one('&', '|', '^')} {y()})"
            case 5:
                return f"({x()} {self.one('<<', '>>')} ({y()} & 31))"
            case 6:
                return f"({x()} {self.one('/', '%')} (({y()} & 255) + 1))"
            case 7 | 8:
                return f"({self.condition(less)} ? {x()} : {y()})"
            case 9:
                return f"__float_as_int({self.value_f(less)})"
            case 10:
                return f"({self.condition(less)} ? {self.one('-1', x())} : __float_as_int({self.value_f(less)}))"
            case 11:
                return f"(int)({self.value_f(less)})"
            case 12:
                return f"(int)({self.one(self.value_u(less), self.value_q(less))})"
            case 13:
                return f"{self.one('min', 'max')}((int)({x()}), (int)({y()}))"
            case 14:
                return f"{self.one('__popc', '__clz', '__brev', '__ffs', 'abs')}((int)({x()}))"
            case 15:
                return f"(int)__byte_perm({x()}, {y()}, {x()})"
            case 16:
                return f"{self.one('__mulhi', '__mul24')}({x()}, {y()})"
            case 17:
                return f"(int)__funnelshift_{self.one('l', 'r', 'lc', 'rc')}({x()}, {y()}, {x()})"
            case 18:
                return f"I[(unsigned)({x()}) % (unsigned)({self.size()})]"
            case 19:
                return f"a[({x()}) & 7]"
            case 20:
                return f"(short)({x()})"
            case 21:
                return f"(signed char)({x()})"
            case 22:
                return f"__{self.one('float2int_rn', 'float2int_rd', 'float2int_ru')}({self.value_f(less)})"
            case 23:
                return f"__dp4a((int)({x()}), (int)({y()}), (int)({x()}))" if self.kernel.declined else f"({x()} - {y()})"
            case 24:
                return (
                    f"(int){self.one('__vadd4', '__vabsdiffu4', '__vmaxs2', '__vcmpgtu4')}({x()}, {y()})"
                    if self.chance(0.3)
                    else f"(~{x()})"
                )
            case _:
                return f"__double2loint({self.value_d(less)})"

    def size(self) -> int:
        return self.kernel.threads * math.prod(self.kernel.grid) * ELEMENTS

    def value_u(self, depth: int) -> str:
        if depth <= 0 or self.chance(0.2):
            return self.one(self.variable("u"), f"{self.rng.choice(EDGES) & 0xFFFFFFFF}u")
        x, y = self.value_u(depth - 1), self.value_u(depth - 1)
        return self.one(
            f"({x} + {y})", f"({x} * {y})", f"({x} >> ({y} & 31))", f"({x} / ({y} | 1u))", f"({x} % ({y} | 1u))", f"__umulhi({x}, {y})", f"min((unsigned)({x}), (unsigned)({y}))",
            f"(unsigned)({self.value_i(depth - 1)})", f"(unsigned)({self.value_f(depth - 1)})", f"(unsigned char)({x})", f"(unsigned short)({x})",
            f"__float_as_uint({self.value_f(depth - 1)})",
        )  # fmt: skip

    def value_q(self, depth: int) -> str:
        if depth <= 0 or self.chance(0.2):
            return self.one(self.variable("q"), "(long long)n", f"((long long){self.rng.choice(EDGES)} << 20)")
        x, y = self.value_q(depth - 1), self.value_q(depth - 1)
        return self.one(
            f"({x} + {y})", f"({x} * {y})", f"({x} ^ {y})", f"({x} << ({y} & 63))", f"({x} >> ({y} & 63))", f"({x} / (({y} & 1023) + 1))",
            f"(long long)({self.value_i(depth - 1)})", f"(long long)({self.value_u(depth - 1)})", f"(long long)({self.value_d(depth - 1)})",
            f"({self.condition(depth - 1)} ? {x} : {y})", f"__double_as_longlong({self.value_d(depth - 1)})", f"__mul64hi({x}, {y})", f"(long long)__popcll({x})",
            f"(long long)__clzll({x})", f"(long long)max((long long)({x}), (long long)({y}))", f"Q[(unsigned)({self.value_i(depth - 1)}) % {self.size()}u]",
        )  # fmt: skip

    def value_f(self, depth: int) -> str:
        if depth <= 0 or self.chance(0.15):
            return self.one(self.variable("f"), "x", self.rng.choice(FLOATS), f"{self.rng.uniform(-9, 9):.3f}f")
        x, y, z = self.value_f(depth - 1), self.value_f(depth - 1), self.value_f(depth - 1)
        return self.one(
            f"({x} + {y})", f"({x} - {y})", f"({x} * {y})", f"fmaf({x}, {y}, {z})", f"({x} * {y} + {z})", f"fminf({x}, {y})", f"fmaxf({x}, {y})",
            f"fabsf({x})", f"(-({x}))", f"floorf({x})", f"truncf({x})", f"rintf({x})", f"ceilf({x})", f"sqrtf({x})", f"({x} / {y})", f"copysignf({x}, {y})",
            f"__fadd_rz({x}, {y})", f"__fmul_ru({x}, {y})", f"__fmaf_rd({x}, {y}, {z})", f"({self.condition(depth - 1)} ? {x} : {y})",
            f"(float)({self.value_i(depth - 1)})", f"(float)({self.value_u(depth - 1)})", f"(float)({self.value_q(depth - 1)})",
            f"(float)({self.value_d(depth - 1)})", f"__int_as_float({self.value_i(depth - 1)})", f"__saturatef({x})",
            f"F[(unsigned)({self.value_i(depth - 1)}) % {self.size()}u]",
            *([f"__half2float({self.value_h(depth - 1)})"] * 4 if self.kernel.halves else []),
        )  # fmt: skip

    def value_d(self, depth: int) -> str:
        if depth <= 0 or self.chance(0.25):
            return self.one(self.variable("d"), self.rng.choice(DOUBLES))
        x, y, z = self.value_d(depth - 1), self.value_d(depth - 1), self.value_d(depth - 1)
        return self.one(
            f"({x} + {y})", f"({x} * {y})", f"fma({x}, {y}, {z})", f"fmin({x}, {y})", f"fabs({x})", f"floor({x})", f"sqrt({x})", f"({x} / {y})",
            f"(double)({self.value_f(depth - 1)})", f"(double)({self.value_i(depth - 1)})", f"(double)({self.value_q(depth - 1)})",
            f"__longlong_as_double({self.value_q(depth - 1)})", f"({self.condition(depth - 1)} ? {x} : {y})", f"__dadd_ru({x}, {y})",
        )  # fmt: skip

    def value_h(self, depth: int) -> str:
        if depth <= 0 or self.chance(0.25):
            return self.one("h0", "h1", f"__float2half({self.rng.uniform(-9, 9):.2f}f)")
        x, y, z = self.value_h(depth - 1), self.value_h(depth - 1), self.value_h(depth - 1)
        return self.one(
            f"__hadd({x}, {y})", f"__hmul({x}, {y})", f"__hfma({x}, {y}, {z})", f"__hsub({x}, {y})", f"__hneg({x})", f"__hmax({x}, {y})",
            f"__float2half({self.value_f(depth - 1)})", f"(__hlt({x}, {y}) ? {x} : {z})", f"__int2half_rn({self.value_i(depth - 1)})",
        )  # fmt: skip

    def condition(self, depth: int) -> str:
        kind = self.one("i", "i", "u", "f", "f", "d", "q")
        plain = f"({self.value(kind, depth - 1)} {self.one('<', '<=', '==', '!=', '>', '>=')} {self.value(kind, depth - 1)})"
        return self.one(
            plain,
            plain,
            "(t & 1)",
            f"(t < {self.rng.randrange(40)})",
            f"(!{plain})",
            f"({plain} && (t & 2))",
            f"isnan({self.value_f(depth - 1)})",
        )

    # -------------------------------------------------------------------------------------------------- statements

    def assign(self, depth: int) -> str:
        kind = self.one("i", "i", "u", "q", "f", "f", "d", *(["h"] * 3 if self.kernel.halves else []))
        if self.chance(0.12):
            return f"a[({self.value_i(1)}) & 7] {self.one('=', '+=', '^=')} {self.value_i(depth)};"
        if kind != "h" and self.chance(0.3):
            return f"{self.variable(kind)} {self.one('+=', '-=', '*=')} {self.value(kind, depth)};"
        return f"{self.variable(kind)} = {self.value(kind, depth)};"

    def inner(self, depth: int) -> list[str]:
        """Something that any part of the threads may do."""
        match self.rng.randrange(8) if depth > 0 else 7:
            case 0 | 1:
                no = [] if self.chance(0.5) else ["} else {", *self.several(depth - 1)]
                return [f"if ({self.condition(2)}) {{", *self.several(depth - 1), *no, "}"]
            case 2 | 3:
                self.loops += 1
                i = f"k{self.loops}"
                bound = self.one(str(self.rng.randint(1, 5)), f"(({self.value_i(1)}) & 3)", f"(t & {self.rng.choice((1, 3, 7))})")
                leave = [f"if ({self.condition(1)}) {self.one('break', 'continue')};"] if self.chance(0.3) else []
                return [f"for (int {i} = 0; {i} < {bound}; ++{i}) {{", *self.several(depth - 1), *leave, f"    i1 += {i};", "}"]
            case 4:
                return [f"OI[g * 4 + {self.rng.randrange(4)}] = {self.value_i(2)};"]
            case 5:
                return [
                    f"atomicAdd(&COUNT[{self.index(16)}], {self.value_u(1)});"
                    if self.kernel.declined and self.chance(0.4)
                    else f"OF[g * 4 + {self.rng.randrange(4)}] += {self.value_f(2)};"
                ]
            case _:
                return [self.assign(3)]

    def several(self, depth: int) -> list[str]:
        return ["    " + line for _ in range(self.rng.randint(1, 3)) for line in self.inner(depth)]

    def top(self) -> list[str]:
        """Something that all threads do together: barriers and warp instructions are allowed."""
        size, full = self.kernel.threads, self.kernel.threads % 32 == 0
        match self.rng.randrange(10):
            case 0 | 1:
                kind, array, cast = self.one(("i", "s", ""), ("f", "s", "__float_as_int"), ("d", "w", ""))
                place = self.one("t", f"(t + {self.rng.randrange(size)}) % {size}", f"{size - 1} - t")
                back = {"f": f"f0 = __int_as_float({array}[{self.index(size)}]);"}.get(kind, f"{kind}0 = {array}[{self.index(size)}];")
                return [f"{array}[{place}] = {cast}({self.value(kind, 2)});", "__syncthreads();", back, "__syncthreads();"]
            case 2 if full:
                call = self.one(
                    f"__shfl_sync(~0u, {{}}, {self.value_i(1)})", f"__shfl_xor_sync(~0u, {{}}, {self.one(1, 2, 4, 8, 16)})",
                    f"__shfl_down_sync(~0u, {{}}, {self.rng.randrange(32)})", f"__shfl_up_sync(~0u, {{}}, {self.rng.randrange(32)}, {self.one(8, 16, 32)})",
                )  # fmt: skip
                kind = self.one("i", "f", "u", "d", "q")
                return [f"{self.variable(kind)} = {call.format(self.value(kind, 2))};"]
            case 3 if full:
                return [self.one(
                    f"u0 = __ballot_sync(~0u, {self.condition(2)});", f"i0 += __any_sync(~0u, {self.condition(2)});", f"i0 += __all_sync(~0u, {self.condition(2)});",
                    f"u1 = __match_any_sync(~0u, (int)({self.value_i(2)}) & 3);", f"u0 = __reduce_add_sync(~0u, (unsigned)({self.value_u(2)}));",
                    f"i2 = __reduce_max_sync(~0u, (int)({self.value_i(2)}));",
                )]  # fmt: skip
            case 4:
                index = self.index(size)
                return [
                    f"s[t] = {self.value_i(2)};", "__syncthreads();",
                    f"{{ const int* p = {self.condition(2)} ? s + {index} : I + {self.index(self.size())}; i2 = *p; }}", "__syncthreads();",
                ]  # fmt: skip
            case 5 if self.kernel.declined:
                return [
                    "s[t] = 0;", "__syncthreads();", f"atomic{self.one('Add', 'Max', 'Xor', 'Or')}(&s[{self.index(size)}], {self.value_i(2)});",
                    "__syncthreads();", f"i0 ^= s[{self.index(size)}];", "__syncthreads();",
                ]  # fmt: skip
            case 6:
                self.loops += 1
                i = f"k{self.loops}"
                return [
                    f"for (int {i} = 0; {i} < {self.rng.randint(1, 4)}; ++{i}) {{", f"    s[t] = {self.value_i(2)};", "    __syncthreads();",
                    f"    i0 += s[(t + {i} * {self.rng.randrange(9)}) % {size}];", *self.several(1), "    __syncthreads();", "}",
                ]  # fmt: skip
            case _:
                return self.inner(2)

    def wrong(self) -> list[str]:
        """A statement with the kernel's mistake in it."""
        size = self.kernel.threads
        who = self.one("", "if (t == 0) ", f"if ({self.condition(1)}) ")
        match self.kernel.mistake:
            case "barrier":
                return [f"s[t] = {self.value_i(1)};", f"i0 = s[(t + 1) % {size}];", "__syncthreads();"]
            case "unset":
                return [f"i0 = s[{self.index(size)}];", "__syncthreads();"]
            case "no-value":
                use = self.one("i0 += v;", f"if ({self.condition(1)}) i0 = v;", "if (v > 0) i1 = 3;", "a[t & 7] = v; i0 = a[i1 & 7];",
                               "i0 = s[v & 15];", "int y = __shfl_xor_sync(0xffffffffu, v, 1); OI[g * 4] = y & 255;", "u0 ^= v & u1;")  # fmt: skip
                return ["{ int v;", f"if ({self.condition(1)}) v = {self.value_i(1)};", self.one(use, f"v &= i1; {use}"), "}"]
            case "clash":
                return [f"s[t / 2] = {self.value_i(1)};", "__syncthreads();", f"i0 += s[t / 2 {self.one('', '+ 0')}];", "__syncthreads();"]
            case "shared":
                place = self.one("t - 1", f"t + {size}", f"t + {size * 4}", "-1 - t", "n * 100000", "t * 1000")
                return [f"s[t] = t; __syncthreads(); {who}{self.one(f's[{place}] = i0;', f'i0 = s[{place}];')}", "__syncthreads();"]
            case "shared-wrap":
                place = self.one("q0", "big", "big * t", "big + t", "0x1fffffffffffffffll + t", "-big")
                return [f"s[t] = t; __syncthreads(); {who}{self.one(f's[{place}] = i0;', f'i0 = s[{place}];')}", "__syncthreads();"]
            case "global":
                place = self.one("g - 1000000", f"g + {self.size()}", f"g * 4 + {self.size()}", "-1 - g", "n << 24")
                return [f"{who}{self.one(f'OI[{place}] = i0;', f'i0 = I[{place}];', f'd0 = D[{place}];')}"]
            case "global-wrap":
                place = self.one("q0", "big", "big * t", "big + g", "0x1fffffffffffffffll - t")
                return [f"{who}{self.one(f'OI[{place}] = i0;', f'i0 = I[{place}];', f'*(int*)({place}) = i0;', f'i0 = *(int*)({place});')}"]
            case "local":
                place = self.one("t", "i0", "q0", "big", "-1 - t", "8 + (t & 1)", "big * t")
                return [f"{who}{self.one(f'a[{place}] = i0;', f'i0 = a[{place}];')}"]
            case "generic":
                place = self.one("big", "q0", f"{size}", "-1", "t - 4", "big * t")
                return [
                    f"s[t] = t; __syncthreads(); {who}{{ int* p = {self.condition(1)} ? s : OI + g * 4; i0 = p[{place}]; }}",
                    "__syncthreads();",
                ]
            case _:
                return [f"{who}i0 = *(const int*)((const char*)I + {self.one('1', '2', 't', 'g + 1')});"]


def written(seed: int) -> Kernel:
    """The kernel of a seed."""
    return Writer(seed).write()


def outcome(compiled, kernel: Kernel, engine: str):
    """(what to compare, arguments), or (None, why the engine does not run it)."""
    args = kernel.arguments()
    try:
        run = simulate(compiled, kernel.grid, kernel.block, args, 0, Collect(), Budget(seconds=20), engine=engine)
    except LaunchError as error:
        return str(error), args
    except RunError as error:
        if "native engine cannot run" in error.message:
            return None, error.message
        return ("error", error.message, [str(finding) for finding in error.findings]), args
    values = [a.tobytes() for a in args if isinstance(a, np.ndarray)]
    return (run.counters, run.by_line, [str(finding) for finding in run.findings], values), args


def difference(kernel: Kernel, source: str) -> tuple[str, object, bool]:
    """('', compiled, ran natively) if the engines agree; else what differs."""
    try:
        compiled = compile_source(source, entry="k", options=OPTIONS)
    except CompileError as error:
        return f"does not compile: {error}", None, False
    native, why = outcome(compiled, kernel, "native")
    if native is None:
        return "", compiled, False
    numpy, theirs = outcome(compiled, kernel, "numpy")
    if native == numpy:
        return "", compiled, True
    if len(native) != len(numpy) or isinstance(native, str) or native[0] == "error" or numpy[0] == "error":
        return f"native: {native if len(native) != 4 else native[2]}\n  numpy: {numpy if len(numpy) != 4 else numpy[2]}", compiled, True
    for what, mine, other in zip(("counters", "counters of lines", "findings"), native, numpy, strict=False):
        if mine != other:
            return f"{what}: native {_unlike(mine, other)}, numpy {_unlike(other, mine)}", compiled, True
    return f"results: {_elements(why, theirs)}", compiled, True


def _unlike(one, other):
    if isinstance(one, dict):
        return {key: value for key, value in one.items() if other.get(key) != value}
    return [item for item in one if item not in other]


def _elements(native, numpy) -> str:
    for name, mine, theirs in zip(("I", "F", "D", "Q", "OI", "OF", "OD", "OQ", "COUNT"), native, numpy, strict=False):
        raw = np.dtype(f"u{mine.dtype.itemsize}")
        unequal = np.flatnonzero(mine.view(raw) != theirs.view(raw))
        if len(unequal):
            i = int(unequal[0])
            return f"{name}[{i}]: native {mine[i]!r} ({int(mine.view(raw)[i]):#x}), numpy {theirs[i]!r} ({int(theirs.view(raw)[i]):#x}); {len(unequal)} differ"
    return "none"


PTXAS = "ptxas's optimiser: "  # how a difference begins that goes when it does not optimise


def on_gpu(kernel: Kernel, compiled) -> str:
    """'' if the GPU's results are the machine's, NaNs made the same; only for kernels without a mistake."""
    said = _unlike_on_gpu(kernel, compiled)
    if not said or _unlike_on_gpu(kernel, compile_source(compiled.source, entry="k", options=(*OPTIONS, "--ptxas-options=-O0"))):
        return said
    return PTXAS + said


def _unlike_on_gpu(kernel: Kernel, compiled) -> str:
    from helpers.run import gpu

    _, args = outcome(compiled, kernel, "numpy")
    mine = kernel.arguments()
    gpu.launch(compiled, kernel.grid, kernel.block, mine)
    for name, theirs, own in zip(("I", "F", "D", "Q", "OI", "OF", "OD", "OQ", "COUNT"), args, mine, strict=False):
        same = np.array_equal(theirs, own, equal_nan=theirs.dtype.kind == "f")
        if not same:
            unequal = np.flatnonzero(~((theirs == own) | ((theirs != theirs) & (own != own))))
            i = int(unequal[0])
            return f"{name}[{i}]: machine {theirs[i]!r}, GPU {own[i]!r}; {len(unequal)} differ"
    return ""


def smaller(kernel: Kernel, differs) -> list[int]:
    """Indices of statements with which `differs(source)` still holds, as few as leaving out one by one finds."""
    kept = list(range(len(kernel.statements)))
    for i in list(kept):
        fewer = [j for j in kept if j != i]
        if differs(kernel.source(fewer)):
            kept = fewer
    return kept


def tried(seed: int, gpu: bool = False) -> tuple[int, str, bool, str]:
    """(seed, what differs or '', ran natively, the mistake) for one seed."""
    kernel = written(seed)
    said, compiled, native = difference(kernel, kernel.source())
    if said.startswith("does not compile"):
        return seed, said + "\n" + kernel.source(), False, kernel.mistake
    if said:
        kept = smaller(
            kernel, lambda source: difference(kernel, source)[0] not in ("",) and not difference(kernel, source)[0].startswith("does not")
        )
        source = kernel.source(kept)
        return seed, f"{difference(kernel, source)[0]}\n{source}", native, kernel.mistake
    if gpu and not kernel.mistake:
        said = on_gpu(kernel, compiled)
        if said:
            return seed, f"GPU: {said}\n{kernel.source()}", native, kernel.mistake
    return seed, "", native, kernel.mistake


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--source", action="store_true")
    parser.add_argument("--patience", type=float, default=60, help="seconds for one kernel")
    given = parser.parse_args()
    seeds = range(given.seed, given.seed + given.count)
    if given.source:
        for seed in seeds:
            kernel = written(seed)
            print(f"// seed {seed}, grid {kernel.grid}, block {kernel.block}, mistake {kernel.mistake or 'none'}\n{kernel.source()}")
        return 0
    start, totals, kinds = time.monotonic(), Counter(), Counter()
    for k, (seed, said, ran, mistake) in enumerate(answers(seeds, given.jobs, given.gpu, given.patience), 1):
        totals["native"] += ran
        optimiser = PTXAS in said
        totals["optimiser"] += optimiser
        totals["bad"] += bool(said) and not optimiser
        kinds[mistake or "correct"] += 1
        if said:
            print(f"--- seed {seed} ({mistake or 'correct'}): {said}", flush=True)
        if k % 100 == 0:
            print(
                f"{k} kernels, {totals['native']} natively, {totals['bad']} differ, {time.monotonic() - start:.0f} s",
                file=sys.stderr,
                flush=True,
            )
    done = ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())
    apart = f", in {totals['optimiser']} ptxas's optimiser differs" if totals["optimiser"] else ""
    print(f"{kinds.total()} kernels ({done}): {totals['native']} ran natively, {totals['bad']} differ{apart}")
    return bool(totals["bad"])


def _work(tasks, answers, gpu: bool) -> None:
    for seed in iter(tasks.get, None):
        answers.put(("begun", os.getpid(), seed))
        answers.put(("done", os.getpid(), tried(seed, gpu)))


def answers(seeds, jobs: int, gpu: bool, patience: float):
    """What `tried` says of every seed, from `jobs` processes; one that says nothing for `patience` seconds is ended and replaced."""
    context = multiprocessing.get_context("spawn")
    tasks, said = context.Queue(), context.Queue()
    for seed in seeds:
        tasks.put(seed)
    workers: dict[int, tuple] = {}  # by process id: (process, the seed it works on, since when)

    def start():
        process = context.Process(target=_work, args=(tasks, said, gpu), daemon=True)
        process.start()
        workers[process.pid] = (process, None, time.monotonic())

    for _ in range(jobs):
        start()
    left = len(seeds)
    while left:
        try:
            what, pid, value = said.get(timeout=1)
        except queue.Empty:
            pass
        else:
            if pid in workers:
                workers[pid] = (workers[pid][0], value if what == "begun" else None, time.monotonic())
                if what == "done":
                    left -= 1
                    yield value
        for pid, (process, seed, since) in list(workers.items()):
            late = time.monotonic() - since > patience
            if seed is not None and (late or not process.is_alive()):
                process.kill()
                del workers[pid]
                left -= 1
                kernel = written(seed)
                what = f"no answer in {patience:g} s" if late else f"the process died (exit code {process.exitcode})"
                yield seed, f"{what}\n{kernel.source()}", False, kernel.mistake
                start()
    for process, _, _ in workers.values():
        process.kill()


if __name__ == "__main__":
    sys.exit(main())
