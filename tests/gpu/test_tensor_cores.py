"""On a GPU: tensor-core instructions agree with the SIMT machine within the bound that isa/matrix.py states."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import numpy as np
import pytest

from helpers import gpu, kernel

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sim"))

import matrix_cases as cases  # noqa: E402 - the table of the tests beside this folder
import test_matrix as machine  # noqa: E402 - the kernels that are checked without a GPU


def _number(arch: str) -> int:
    return int("".join(c for c in arch if c.isdigit()))


def fits(case) -> bool:
    """Whether this GPU has the instruction. mma of double for more than m8n8k4 came with sm_90."""
    return _number(case.arch) <= _number(gpu.arch())


@functools.cache
def compiled(source: str, symbol: str, arch: str | None = None):
    return kernel.compile(source, entry=symbol, arch=arch or gpu.arch())


def both(source, symbol, grid, block, args, shared=0, arch=None):
    """The last array of `args` after a launch on the CPU, and after one on the GPU."""
    results = []
    for on in ("cpu", "gpu"):
        mine = [value.copy() if isinstance(value, np.ndarray) else value for value in args]
        run = compiled(source, symbol, arch).launch(grid, block, mine, shared, on=on)
        assert run.on == on
        results.append(mine[-1])
    return results


def check(record_property, cpu, on_gpu, bound):
    difference = np.abs(cpu.astype(np.float64) - on_gpu.astype(np.float64))
    share = float((difference / np.maximum(bound, 1e-300)).max())
    record_property("largest difference, as a share of the bound", share)
    assert share <= 1


@pytest.mark.parametrize("wild", [False, True], ids=["even", "wild"])
@pytest.mark.parametrize("case", cases.MMAS, ids=lambda case: case.name)
def test_mma(case, wild, record_property):
    if not fits(case):
        pytest.skip(f"this GPU has no {case.name}")
    m, n, k = case.extents
    warps = 64
    a, b, c = cases.data(case.a, (warps, m, k), 1, wild), cases.data(case.b, (warps, k, n), 2, wild), cases.data(case.d, (warps, m, n), 3)
    packed = [case.pack("a", a), case.pack("b", b), case.pack("c", c), np.zeros_like(case.pack("c", c))]
    cpu, on_gpu = (case.unpack(d) for d in both(case.source, case.symbol, warps, 32, packed))
    check(record_property, cpu, on_gpu, cases.allowed(case.d, case.a, cases.product(a, b, c)[1], k))


@pytest.mark.parametrize("tile", cases.TILES, ids=str)
@pytest.mark.parametrize("wild", [False, True], ids=["even", "wild"])
@pytest.mark.parametrize("case", cases.WGMMAS, ids=lambda case: case.name)
def test_wgmma(case, wild, tile, record_property):
    if gpu.arch() != "sm_90":
        pytest.skip("wgmma is an instruction of sm_90a alone")
    a, b, c = cases.data(case.a, (64, case.k), 1, wild), cases.data(case.b, (case.n, case.k), 2, wild), cases.data(case.d, (64, case.n), 3)
    arguments = case.arguments(a, b, c, True, tile, tile)
    cpu, on_gpu = (case.unpack(d) for d in both(case.source, case.symbol, 1, 128, arguments, cases.IMAGE, case.arch))
    check(record_property, cpu, on_gpu, cases.allowed(case.d, case.a, case.product(a, b, c)[1], case.k))


@pytest.mark.parametrize("wild", [False, True], ids=["even", "wild"])
@pytest.mark.parametrize("case", cases.WMMAS, ids=lambda case: case.symbol)
def test_wmma(case, wild, record_property):
    if not fits(case):
        pytest.skip(f"this GPU has no {case.symbol}")
    a, b, c, out = case.arguments(5, wild)
    shared = 2 * (a[0].nbytes + b[0].nbytes + c[0].nbytes)
    cpu, on_gpu = both(cases.WMMA_HEADER + case.source, case.symbol, 1, 32, [a, b, c, out], shared)
    m, n, k = case.m, case.n, case.k
    bound = np.zeros(out.shape)
    size = cases.product(a[0, :m, :k], b[0, :k, :n], c[0, :m, :n])[1]
    allowed = cases.allowed(case.d, case.a, size, k)
    bound[:4, :m, :n] = bound[8:12, :m, :n] = allowed
    bound[4:8, :n, :m] = bound[12:, :n, :m] = allowed.T
    check(record_property, cpu, on_gpu, bound)


@pytest.mark.parametrize("wild", [False, True], ids=["even", "wild"])
@pytest.mark.parametrize("case", cases.GEMMS, ids=lambda case: f"{case.name}-{case.d}")
def test_products(case, wild, record_property):
    if not fits(case):
        pytest.skip(f"this GPU has no {case.a}")
    m, n, k = 128, 64, 32 if case.d == "f16" and wild else 256
    sizes, (a, b, c) = (m, n, k), case.arguments(m, n, k, 11, wild)[3:]
    bytes_of = [x.view(np.uint8) if case.transposed else x for x in (a, b)]
    cpu, on_gpu = both(case.source, case.symbol, case.grid(m, n), case.threads, [*sizes, *bytes_of, c], case.shared)
    size = cases.product(a, b.T if case.transposed else b, 0)[1]
    check(record_property, cpu, on_gpu, cases.allowed(case.d, case.a, size, k, k // case.step))


def test_wmma_fragments_are_where_the_table_says():
    """x[i] of a wmma fragment: PTX does not promise its place, but the machine follows what ptxas does."""
    source = """
    #include <mma.h>
    using namespace nvcuda::wmma;
    template <class F, class T> __device__ void dump(F& f, const T* p, T* out) {
        load_matrix_sync(f, p, 48);
        for (int i = 0; i < f.num_elements; i++) out[threadIdx.x * 16 + i] = f.x[i];
    }
    template <class F> __device__ void dump_c(F& f, const float* p, float* out, layout_t by) {
        load_matrix_sync(f, p, 48, by);
        for (int i = 0; i < f.num_elements; i++) out[threadIdx.x * 16 + i] = f.x[i];
    }
    template <int M, int N> __device__ void shape(const half* h, const float* f, half* oh, float* of) {
        fragment<matrix_a, M, N, 16, half, row_major> a; dump(a, h, oh);
        fragment<matrix_a, M, N, 16, half, col_major> at; dump(at, h, oh + 512);
        fragment<matrix_b, M, N, 16, half, row_major> b; dump(b, h, oh + 1024);
        fragment<matrix_b, M, N, 16, half, col_major> bt; dump(bt, h, oh + 1536);
        fragment<accumulator, M, N, 16, float> c; dump_c(c, f, of, mem_row_major); dump_c(c, f, of + 512, mem_col_major);
    }
    extern "C" __global__ void f(const half* h, const float* f, half* oh, float* of) {
        shape<16, 16>(h, f, oh, of); shape<32, 8>(h, f, oh + 2048, of + 1024); shape<8, 32>(h, f, oh + 4096, of + 2048);
    }"""
    numbers = np.arange(48 * 32)
    results = []
    for on in ("cpu", "gpu"):
        arrays = [numbers.astype(np.float16), numbers.astype(np.float32), np.zeros(6144, np.float16), np.zeros(3072, np.float32)]
        compiled(source, "f").launch(1, 32, arrays, on=on)
        results.append(arrays[2:])
    for cpu, on_gpu in zip(*results, strict=True):
        assert np.array_equal(cpu, on_gpu)


def test_ldmatrix_stmatrix_and_movmatrix_agree_bit_for_bit():
    random = np.random.default_rng(7)
    values = random.permutation(512).astype(np.uint16).reshape(2, 32, 8)
    rows = np.concatenate([random.permutation(32), random.permutation(32)]).astype(np.int32)
    cpu, on_gpu = both(machine.LDMATRIX, "f", 1, 64, [values, rows, np.zeros((6, 2, 32, 4), np.uint32)])
    assert np.array_equal(cpu, on_gpu)
    if _number(gpu.arch()) >= 90:
        arrays = []
        for on in ("cpu", "gpu"):
            words = np.random.default_rng(8).integers(0, 2**32, (2, 32, 4), dtype=np.uint32)
            arrays.append([words, np.zeros((2, 64, 8), np.uint16), np.zeros((2, 32), np.uint32)])
            compiled(machine.STMATRIX, "f").launch(1, 64, arrays[-1], on=on)
        assert all(np.array_equal(one, other) for one, other in zip(*arrays, strict=True))
