"""Tensor-core instructions in both engines: the same numbers, counters and findings.

Tests of: helpers.sim.native.product_runtime, helpers.sim.native.sums
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the native engine is optional")

from helpers.sim.isa import mma
from helpers.sim.native.products import KINDS
from helpers.toolchain.compile import compile_source
from tests.sim import matrix_cases as cases
from tests.sim import matrix_products
from tests.sim.native.test_native import both

NATIVE_MMAS = [case for case in cases.MMAS if case.selector is None and {case.a, case.b, case.d} <= set(KINDS)]


@functools.cache
def all_mmas(arch):
    return "\n".join(case.source for case in NATIVE_MMAS if case.arch == arch)


@pytest.mark.parametrize("wild", [False, True], ids=["even", "wild"])
@pytest.mark.parametrize("case", NATIVE_MMAS, ids=lambda case: case.name)
def test_mma(case, wild):
    """wild: numbers of very different sizes, where the order of the sum could be seen."""
    _, stored, b, c, _ = case.matrices(40, wild)
    made = cases.compiled(all_mmas(case.arch), case.symbol, case.arch)
    args = [case.pack("a", stored), case.pack("b", b), case.pack("c", c), np.zeros_like(case.pack("c", c))]
    both(made, (40, 1, 1), (32, 1, 1), args)


def test_infinities_and_nans_of_products():
    case = cases.MMAS[0]
    _, stored, b, c, _ = case.matrices(4)
    stored[0, 0, 0], stored[1, 2, 3], c[2, 4, 4], b[3, 5, 5] = np.inf, np.nan, -np.inf, 60000
    made = cases.compiled(all_mmas(case.arch), case.symbol, case.arch)
    both(made, (4, 1, 1), (32, 1, 1), [case.pack("a", stored), case.pack("b", b), case.pack("c", c), np.zeros_like(case.pack("c", c))])


MATRICES = """
extern "C" __global__ void k(const unsigned short* in, const int* rows, unsigned* out) {
    __shared__ __align__(16) unsigned short s[64 * 40], back[64 * 40];
    int t = threadIdx.x;
    for (int i = t; i < 64 * 40; i += 64) s[i] = back[i] = in[i];
    __syncthreads();
    unsigned at = (unsigned)__cvta_generic_to_shared(s + rows[t] * 40), to = (unsigned)__cvta_generic_to_shared(back + t % 32 * 40 + t / 32 * 8);
    unsigned a, b[2], c[4], d[4], e;
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(a) : "r"(at));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2+16];" : "=r"(b[0]), "=r"(b[1]) : "r"(at));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3]) : "r"(at));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(at));
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(e) : "r"(a));
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" :: "r"(to), "r"(c[0]), "r"(d[1]) : "memory");
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0+32], {%1, %2, %3, %4};" :: "r"(to), "r"(c[0]), "r"(c[1]), "r"(d[2]), "r"(d[3]) : "memory");
    __syncthreads();
    unsigned* mine = out + t * 32;
    mine[0] = a; mine[1] = b[0]; mine[2] = b[1]; mine[11] = e;
    for (int i = 0; i < 4; i++) { mine[3 + i] = c[i]; mine[7 + i] = d[i]; }
    for (int i = 0; i < 20; i++) mine[12 + i] = ((unsigned*)back)[t * 20 + i];
}
"""


@pytest.mark.parametrize("rows", [np.arange(64), np.random.default_rng(3).integers(0, 60, 64), np.zeros(64)], ids=["all", "some", "one"])
def test_ldmatrix_and_stmatrix(rows):
    values = np.random.default_rng(2).integers(0, 2**16, 64 * 40).astype(np.uint16)
    both(compile_source(MATRICES), (2, 1, 1), (64, 1, 1), [values, rows.astype(np.int32), np.zeros(64 * 32, np.uint32)], findings=False)


NATIVE_WMMAS = [case for case in cases.WMMAS if case.a in KINDS]


@functools.cache
def all_wmmas(arch):
    return cases.WMMA_HEADER + "\n".join(case.source for case in NATIVE_WMMAS if case.arch == arch)


@pytest.mark.parametrize("case", NATIVE_WMMAS, ids=lambda case: case.symbol)
def test_wmma(case):
    """Every layout, from global and from shared memory, and what it costs."""
    made = cases.compiled(all_wmmas(case.arch), case.symbol, case.arch)
    a, b, c, out = case.arguments(5, False)
    shared = a.nbytes + b.nbytes + c.nbytes
    both(made, (1, 1, 1), (32, 1, 1), [a, b, c, out], shared)


@pytest.mark.parametrize("case", [case for case in matrix_products.GEMMS if case.a in KINDS], ids=lambda case: f"{case.name}-{case.d}")
def test_whole_products(case):
    m, n, k = 64, 128, 128
    made = cases.compiled(case.source, case.symbol, case.arch)
    assert both(made, case.grid(m, n), (case.threads, 1, 1), case.arguments(m, n, k), case.shared).findings == []


@pytest.mark.parametrize("kind", ["f16", "bf16", "tf32"])
def test_sums_in_native_code_are_those_of_numpy(kind, monkeypatch):
    random = np.random.default_rng(3)
    exponents = random.integers(-24 if kind == "f16" else -60, 14, (2, 9, 16))
    left = np.ldexp(np.round(random.uniform(-1, 1, (2, 9, 16)) * 64) / 64, exponents)
    right = np.round(random.standard_normal((2, 16, 24)) * 32) / 32
    old = random.standard_normal((2, 9, 24)).astype(np.float32).astype(np.float64)
    left[0, 3, 4], right[1, 2, 5], old[1, 1, 1] = np.inf, np.nan, -np.inf
    left[0, 5] = right[0, :, 7] = 0
    sums = mma.sums_of(kind, "f32")
    (native,) = mma.faster
    with np.errstate(invalid="ignore"):
        found = native(left, right, old, 2 * [mma.LOWEST[kind]])
        monkeypatch.setattr(mma, "faster", [])
        assert np.array_equal(found, mma.cut_sums(sums, left, right, old, (kind, kind)), equal_nan=True)
