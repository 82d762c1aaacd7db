"""On a GPU: tensor-core instructions agree with the SIMT machine within the bound that isa/mma.py states, and are counted alike.

With $GEMM_LADDER_MATRIX_RECORD set to a file, what helpers/data/matrix_h200.json holds is written there.
`python -m tests.gpu.test_tensor_cores` launches what is counted, under Nsight Compute.
"""

from __future__ import annotations

import datetime
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from helpers.run import gpu, kernel
from helpers.sim.isa.mma import sums_of
from tests.gpu import calibration
from tests.sim import matrix_cases as cases
from tests.sim import matrix_counts, matrix_products
from tests.sim.isa import test_mma as machine


def _number(arch: str) -> int:
    return int("".join(c for c in arch if c.isdigit()))


def need(case) -> None:
    """Skip what this GPU does not have. mma of double for more than m8n8k4 came with sm_90; wgmma is sm_90a's alone."""
    theirs, mine = _number(case.arch), _number(gpu.arch())
    if theirs > mine or (case.arch.endswith("a") and theirs != mine):
        pytest.skip(f"this GPU has no {case.name}")


@pytest.fixture(scope="module")
def record():
    made = {"bounds": {}, "fingerprints": {}, "counters": {}, "bits": {}}
    yield made
    place = os.environ.get("GEMM_LADDER_MATRIX_RECORD")
    if place:
        device = gpu.device()
        head = {"device": device.name, "driver": device.driver, "cuda": device.cuda, "date": datetime.date.today().isoformat()}
        head["counted"] = matrix_counts.COUNTERS
        parts = [
            f'"{part}": {{\n' + ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in rows.items()) + "\n}"
            for part, rows in made.items()
        ]
        Path(place).write_text(json.dumps(head)[:-1] + ",\n" + ",\n".join(parts) + "}\n")


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


FORMS = {case.name for case in (*cases.MMAS, *cases.WGMMAS)}  # whose bits tests hold the machine to where there is no GPU


def check(record, name, flavour, cpu, on_gpu, bound, sums=None):
    """Within the bound; whole numbers are the same bits, which are recorded as a fingerprint, and so are sums that are known exactly."""
    if flavour == "whole":
        record["fingerprints"][name] = cases.fingerprint(on_gpu)
        assert np.array_equal(cpu, on_gpu)
        return
    same = cpu.dtype == np.float32 and np.array_equal(cpu.view(np.uint32), on_gpu.view(np.uint32))
    if same and name in FORMS:
        record["bits"][f"{name} {flavour}"] = cases.fingerprint(on_gpu)
    assert same or sums is None
    difference = np.abs(cpu.astype(np.float64) - on_gpu.astype(np.float64))
    share = float((difference / np.maximum(bound, 1e-300)).max())
    record["bounds"][name] = max(round(share, 4), record["bounds"].get(name, 0))
    assert share <= 1


def flavours(flavour: str) -> dict[str, bool]:
    return {"wild": flavour == "wild", "whole": flavour == "whole"}


@pytest.mark.parametrize("flavour", cases.FLAVOURS)
@pytest.mark.parametrize("case", cases.MMAS, ids=lambda case: case.name)
def test_mma(case, flavour, record):
    need(case)
    whole, a, b, c, words = case.matrices(64, **flavours(flavour))
    args = [case.pack("a", a), case.pack("b", b), case.pack("c", c), *([] if words is None else [words]), np.zeros_like(case.pack("c", c))]
    cpu, on_gpu = (case.unpack(d) for d in both(case.source, case.symbol, 64, 32, args))
    check(record, case.name, flavour, cpu, on_gpu, cases.allowed(case.d, case.a, case.product(whole, b, c)[1], case.extents[2]),
          sums_of(case.a, case.d))  # fmt: skip


@pytest.mark.parametrize("case", cases.VOLTAS, ids=lambda case: case.name)
def test_volta(case, record):
    need(case)
    a, b, c = case.matrices(8)
    args = [case.pack("a", a), case.pack("b", b), case.pack("c", c).view(np.uint32 if case.d == "f16" else np.float32)]
    cpu, on_gpu = (case.unpack(d.view(np.uint32)) for d in both(case.source, "volta", 8, 32, args))
    check(record, case.name, "whole", cpu, on_gpu, None)


@pytest.mark.parametrize("tile", cases.TILES, ids=str)
@pytest.mark.parametrize("flavour", cases.FLAVOURS)
@pytest.mark.parametrize("case", cases.WGMMAS, ids=lambda case: case.name)
def test_wgmma(case, flavour, tile, record):
    need(case)
    if not cases.fits(case, tile):
        pytest.skip("a row of this tile is shorter than what the instruction takes of K")
    whole, a, b, c, words = case.matrices(**flavours(flavour))
    arguments = case.arguments(a, b, c, words, True, tile, tile)
    cpu, on_gpu = (case.unpack(d) for d in both(case.source, case.symbol, 1, 128, arguments, cases.IMAGE, case.arch))
    allowed = cases.allowed(case.d, case.a, case.product(whole, b, c)[1], case.k)
    check(record, case.name, flavour, cpu, on_gpu, allowed, sums_of(case.a, case.d, warpgroup=True))


@pytest.mark.parametrize("wild", [False, True], ids=["even", "wild"])
@pytest.mark.parametrize("case", cases.WMMAS, ids=lambda case: case.symbol)
def test_wmma(case, wild, record):
    need(case)
    a, b, c, out = case.arguments(5, wild)
    shared = 2 * (a[0].nbytes + b[0].nbytes + c[0].nbytes)
    cpu, on_gpu = both(cases.WMMA_HEADER + case.source, case.symbol, 1, 32, [a, b, c, out], shared)
    m, n, k = case.m, case.n, case.k
    bound = np.zeros(out.shape)
    size = cases.product(a[0, :m, :k], b[0, :k, :n], c[0, :m, :n])[1]
    allowed = cases.allowed(case.d, case.a, size, k)
    bound[:4, :m, :n] = bound[8:12, :m, :n] = allowed
    bound[4:8, :n, :m] = bound[12:, :n, :m] = allowed.T
    check(record, case.symbol, "wild" if wild else "even", cpu, on_gpu, bound)


@pytest.mark.parametrize("wild", [False, True], ids=["even", "wild"])
@pytest.mark.parametrize("case", [*matrix_products.GEMMS, *matrix_products.WGMMA_GEMMS], ids=lambda case: f"{case.name}-{case.d}")
def test_products(case, wild, record):
    need(case)
    m, n, k = 128, 128, 32 if case.d == "f16" and wild else 256
    sizes, (a, b, c) = (m, n, k), case.arguments(m, n, k, 11, wild)[3:]
    bytes_of = [x.view(np.uint8) if case.transposed else x for x in (a, b)]
    arch = case.arch if case.arch.endswith("a") else None
    cpu, on_gpu = both(case.source, case.symbol, case.grid(m, n), case.threads, [*sizes, *bytes_of, c], case.shared, arch)
    size = cases.product(a, b.T if case.transposed else b, 0)[1]
    check(record, case.name, "wild" if wild else "even", cpu, on_gpu, cases.allowed(case.d, case.a, size, k, k // case.step))


@pytest.mark.parametrize("lag", [0, 1])
def test_product_with_tma(lag, record):
    if gpu.arch() != "sm_90":
        pytest.skip("wgmma is an instruction of sm_90a alone")
    results = []
    for on in ("cpu", "gpu"):
        args, a, b = matrix_products.tma_arguments(256, 256, 512)
        compiled(matrix_products.tma_gemm(lag), "f", "sm_90a").launch((2, 2), 384, args, 98304, on=on)
        results.append(args[-1])
    check(record, f"tma-wgmma-{lag}-in-flight", "even", *results, cases.allowed("f32", "bf16", cases.product(a, b.T, 0)[1], 512, 32))


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


def test_counters(record):
    """Nsight Compute's counters of every launch of `matrix_counts.counted()` are the machine's."""
    if gpu.arch() != "sm_90":
        pytest.skip("the table of what is counted is for sm_90")
    command = calibration.ncu_command(
        matrix_counts.COUNTERS, [sys.executable, "-m", "tests.gpu.test_tensor_cores"], kernels="(mma|wgmma|store)_.*"
    )
    found = calibration.parse_csv(subprocess.run(command, capture_output=True, text=True, timeout=300).stdout)
    assert len(found) == len(matrix_counts.counted())
    for case, values in zip(matrix_counts.counted(), found, strict=True):
        assert values.pop("kernel") == case.symbol
        record["counters"][case.name] = [values[name] for name in matrix_counts.COUNTERS]
    ours = {case.name: matrix_counts.counters_of_the_machine(case) for case in matrix_counts.counted()}
    assert {name: values for name, values in ours.items() if values not in (None, record["counters"][name])} == {}


def launch_what_is_counted() -> None:
    """Every launch of `matrix_counts.counted()` once, with no other kernel between."""
    import cupy
    from cupy_backends.cuda.api import driver

    modules = {}
    for case in matrix_counts.counted():
        cubin = cases.compiled(case.source, case.symbol, case.arch).cubin
        if cubin not in modules:
            modules[cubin] = cupy.cuda.function.Module()
            modules[cubin].load(cubin)
        function = modules[cubin].get_function(case.symbol)
        driver.funcSetAttribute(function.ptr, driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, case.shared)
        args = tuple(cupy.asarray(value) if value.ndim else value for value in case.args)
        function((1,), (case.threads,), args, case.shared)
    cupy.cuda.get_current_stream().synchronize()


if __name__ == "__main__":
    launch_what_is_counted()
