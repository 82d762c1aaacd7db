"""Whatever a reader writes or passes ends in a sentence: tried as a reader would, through compile() and launch().

Tests of: helpers.errors, helpers.sim.isa.textures
"""

from __future__ import annotations

import re
import time

import numpy as np
import pytest

import helpers
from helpers.errors import CompileError, LaunchError, RunError
from helpers.sim.machine.trace import MOST_ROWS, TraceFilter
from tests.sim.ptx_text import without_handler

COPY = 'extern "C" __global__ void f(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }'
NUMBER = 'extern "C" __global__ void f(unsigned long long p, float* y) { y[threadIdx.x] = ((float*)p)[threadIdx.x]; }'
PLACES = """extern "C" __global__ void f(float* y) {
    y[(blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x] = blockIdx.x + 10 * blockIdx.y + 100 * blockIdx.z;
}"""
GEMM = """extern "C" __global__ void f(int n, const float* A, const float* B, float* C) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    float s = 0;
    for (int k = 0; k < n; k++)
        s += A[y * n + k] * B[k * n + x];
    C[y * n + x] = s;
}"""


def launch(source, args, grid=1, block=32, arch="sm_90", **more):
    return helpers.compile(source, arch=arch).launch(grid, block, args, on="cpu", **more)


def floats(n=32):
    return np.ones(n, np.float32)


# --- inline assembly -----------------------------------------------------------------------------------------------------


def with_asm(text):
    return f"""extern "C" __global__ void f(const unsigned* x, unsigned* y) {{
    unsigned a = x[threadIdx.x], b = x[31 - threadIdx.x], r;
    asm volatile("{text}" : "=r"(r) : "r"(a), "r"(b) : "memory");
    y[threadIdx.x] = r;
}}"""


A, B = np.arange(32, dtype=np.uint32), np.arange(31, -1, -1, dtype=np.uint32)


@pytest.mark.parametrize(
    "text, result",
    [
        ("mul24.lo.u32 %0, %1, %2;", A * B),
        ("sad.u32 %0, %1, %2, %1;", np.abs(A.astype(int) - B) + A),
        ("slct.u32.s32 %0, %2, %1, %1;", B),
        ("cnot.b32 %0, %1;", A == 0),
        ("set.lt.u32.u32 %0, %1, %2;", np.where(A < B, 0xFFFFFFFF, 0)),
        ("brkpt; pmevent 1; nanosleep.u32 20; mov.u32 %0, %2;", B),
        ("{ .reg .pred p; setp.gt.u32 p, %1, %2; @p add.u32 %0, %1, 7; @!p mov.u32 %0, 9; }", np.where(A > B, A + 7, 9)),
        ("bfind.u32 %0, %1;", [0xFFFFFFFF, *(int(a).bit_length() - 1 for a in A[1:])]),
    ],
)
def test_ptx_that_nvrtc_never_emits_runs(text, result):
    y = np.zeros(32, np.uint32)
    assert launch(with_asm(text), [A, y]).findings == []
    assert np.array_equal(y, result)


@pytest.mark.parametrize(
    "text, said",
    [
        ("st.bulk.weak.shared::cta [%0], 256, 0;", "does not know the instruction `st.bulk"),
        ("{ .reg .u64 p; alloca.u64 p, 16; cvt.u32.u64 %0, p; }", "does not know the instruction `alloca"),
        ("mov.u32 %0, %%reserved_smem_offset_1;", "belongs to a tile of more than one warp (tiled_partition<64> and larger)"),
        ("mov.u32 %0, %%pm0;", "has the operand %pm0, which is no register of the kernel and no special register that the machine has"),
        ("vadd4.u32.u32.u32 %0, %1.b7654, %2, %1;", ".b7654: the machine does not know operands that choose parts (.b7654) of a register"),
        ("vadd.u32.u32.u32 %0, %1.h0, %2;", ".h0: the machine does not know operands that choose parts (.h0) of a register"),
        ("vadd.u32.u32.u32.min %0, %1, %2, %1;", "does not know .min of the instruction `vadd"),
        ("trap; mov.u32 %0, %1;", "the kernel stopped itself (trap)."),
    ],
)
def test_ptx_that_the_machine_does_not_have_is_named(text, said):
    y = np.zeros(32, np.uint32)
    with pytest.raises(RunError, match=re.escape(said)) as caught:
        launch(with_asm(text), [A, y], arch="sm_100" if "bulk" in text else "sm_90")
    assert caught.value.line == 3 and not y.any()


def test_ptx_that_nobody_has_written_a_handler_for_is_named():
    with without_handler("vadd4"), pytest.raises(RunError, match=r"does not know the instruction `vadd4\.u32\.u32\.u32 .*`\.") as caught:
        launch(with_asm("vadd4.u32.u32.u32 %0, %1, %2, %1;"), [A, np.zeros(32, np.uint32)])
    assert caught.value.line == 3 and "PTX line" in caught.value.message


def test_a_trap_of_the_compiler_s_own_is_told_from_one_of_the_source():
    for body, own in (("float* p = nullptr; if (x[0] >= 0) *p = 3; y[0] = 1;", True), ("if (x[0] >= 0) __trap(); y[0] = 1;", False)):
        with pytest.raises(RunError, match="stopped itself") as caught:
            launch(f"__global__ void f(const float* x, float* y) {{ {body} }}", [np.zeros(32, np.float32), np.zeros(32, np.float32)])
        assert ("the compiler put it" in caught.value.message) == own


def test_a_header_that_stops_the_kernel_is_named():
    source = """#include <cuda_pipeline.h>
    __global__ void f(const short* x, short* y) {
        __shared__ short s[32];
        __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], sizeof(short));
        y[threadIdx.x] = s[threadIdx.x];
    }"""
    with pytest.raises(
        RunError, match=r"stopped itself \(trap\), in __pipeline_memcpy_async \(cuda_pipeline_primitives.h, line \d+\), where"
    ) as caught:
        launch(source, [np.zeros(32, np.int16), np.zeros(32, np.int16)])
    assert caught.value.line == 4


def test_ptx_that_is_none_is_a_compiler_error_at_its_line():
    with pytest.raises(CompileError, match="frobnicate") as caught:
        launch(with_asm("frobnicate.u32 %0, %1, %2;"), [A, A.copy()])
    assert "line 3" in str(caught.value)


@pytest.mark.parametrize(
    "arch, text, error, said",
    [
        ("sm_100a", "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%1], 32; mov.u32 %0, %1;", RunError, "does not know the instruction `tcgen05"),
        ("sm_90", "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%1], 32; mov.u32 %0, %1;", CompileError, "not supported on .target"),
        ("sm_42", "mov.u32 %0, %1;", CompileError, "not an architecture this compiler knows"),
    ],
)  # fmt: skip
def test_newer_hardware_is_refused_by_name(arch, text, error, said):
    with pytest.raises(error, match=re.escape(said)):
        launch(with_asm(text), [A, A.copy()], arch=arch)


def test_loads_of_256_bits_are_counted():
    source = """extern "C" __global__ void f(const float* x, float* y) {
        float a[8];
        asm volatile("ld.global.v8.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];" : "=f"(a[0]), "=f"(a[1]), "=f"(a[2]),
            "=f"(a[3]), "=f"(a[4]), "=f"(a[5]), "=f"(a[6]), "=f"(a[7]) : "l"(x + 8 * threadIdx.x));
        y[threadIdx.x] = a[0] + a[7];
    }"""
    x, y = np.arange(256, dtype=np.float32), np.zeros(32, np.float32)
    run = launch(source, [x, y], arch="sm_100")
    assert np.array_equal(y, x[::8] + x[7::8])
    assert run.counters["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == 32


# --- code the machine cannot follow ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body, said",
    [
        ("y[threadIdx.x] = (*(float (**)(float))x)(x[threadIdx.x]);", "calls through a pointer that is 0x"),
        ("y[threadIdx.x] = fibonacci((int)x[threadIdx.x]);", "calls itself"),
        ("free((void*)x); y[threadIdx.x] = 1;", "no heap"),
        ("float* p = new float[4]; p[1] = x[0]; y[threadIdx.x] = p[1]; delete[] p;", "no heap"),
        ("y[threadIdx.x] = tex1Dfetch<float>(*(const cudaTextureObject_t*)x, threadIdx.x);", "pass an array"),
    ],
    ids=["no function", "recursion", "free", "new", "texture"],
)
def test_what_the_machine_cannot_follow_is_said(body, said):
    source = f"""__device__ float twice(float x) {{ return x * 2; }}
    __device__ float thrice(float x) {{ return x * 3; }}
    __device__ int fibonacci(int n) {{ return n < 2 ? 1 : fibonacci(n - 1) + fibonacci(n - 2); }}
    extern "C" __global__ void f(const float* x, float* y) {{ {body} }}"""
    with pytest.raises(RunError, match=rf"^line [34]\b.*{said}") as caught:
        launch(source, [floats(), floats()])
    assert caught.value.line in (3, 4)


# --- arguments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1234, 2**64 - 4, -1])
def test_a_small_number_as_pointer_is_a_null_pointer(number):
    with pytest.raises(RunError, match="through a null pointer") as caught:
        launch(NUMBER, [number, floats()])
    assert caught.value.line == 1 and [finding.kind for finding in caught.value.findings] == ["out-of-bounds"]


def test_a_host_address_as_number_is_far_from_every_array():
    x = floats()
    with pytest.raises(RunError, match="far from every array"):
        launch(NUMBER, [x.ctypes.data, floats()])


@pytest.mark.parametrize(
    "args, said",
    [
        ([2**64, floats()], "does not fit"),
        ([1.5, floats()], "is a whole number"),
        ([floats(), floats()], "is a single value"),
        ([0], "takes 2 arguments"),
        ("ab", "is a single number, and str was given"),
    ],
)
def test_wrong_numbers_are_refused(args, said):
    with pytest.raises(LaunchError, match=said):
        launch(NUMBER, args)


@pytest.mark.parametrize("x", [7, [1, 2, 3], "text", floats().astype(np.float64), np.ones((64, 64), np.float32)[:, 3]])
def test_wrong_arrays_are_refused(x):
    y = np.zeros(32, np.float32)
    with pytest.raises(LaunchError):
        launch(COPY, [x, y])
    assert not y.any()


@pytest.mark.parametrize("args, verb", [([None, floats()], "reads"), ([floats(), None], "writes")])
def test_null_pointers(args, verb):
    with pytest.raises(RunError, match=f"{verb} 4 bytes through a null pointer"):
        launch(COPY, args)


def test_a_null_pointer_that_nobody_follows_is_fine():
    y = np.zeros(32, np.float32)
    source = 'extern "C" __global__ void f(const float* x, float* y) { y[threadIdx.x] = x ? x[threadIdx.x] : 7; }'
    assert launch(source, [None, y]).findings == [] and (y == 7).all()


def test_an_empty_array_has_no_elements_to_read():
    assert [finding.kind for finding in launch(COPY, [floats(0), floats()]).findings] == ["out-of-bounds"]


def test_uninitialized_names_pointer_parameters():
    with pytest.raises(LaunchError, match="the pointers of f are: x, y"):
        launch(COPY, [floats(), floats()], uninitialized=["C"])
    (finding,) = launch(COPY, [floats(), floats()], uninitialized="x").findings
    assert (finding.kind, finding.line) == ("uninitialized", 1) and "x[0]" in finding.message
    assert launch(COPY, [floats(), floats()], uninitialized=["y"]).findings == []


# --- arrays that overlap -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 512, 948])
def test_a_result_over_its_own_input_is_a_race(offset):
    memory = np.random.default_rng(0).random(3000).astype(np.float32)
    args = [32, memory[:1024], memory[1024:2048], memory[offset : offset + 1024]]
    (finding,) = launch(GEMM, args, grid=(2, 2), block=(16, 16)).findings
    assert (finding.kind, {finding.line, finding.other_line}) == ("race", {5, 6})


def test_inputs_may_overlap_and_neighbours_may_touch():
    memory = np.random.default_rng(0).random(3072).astype(np.float32)
    a, c = memory[:1024], memory[2048:]
    expected = a.reshape(32, 32).astype(float) @ a.reshape(32, 32)
    assert launch(GEMM, [32, a, a, c], grid=(2, 2), block=(16, 16)).findings == []
    np.testing.assert_allclose(c.reshape(32, 32), expected, rtol=1e-5)


# --- launches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", [0, (0, 1), (1, 0, 1), -1, (2, 3, 4, 5), (1.5, 1), "x", None, (), 2**31, (1, 65536), 2**40], ids=repr)
def test_impossible_grids_are_refused(grid):
    y = np.zeros(24, np.float32)
    with pytest.raises(LaunchError, match="grid"):
        launch(PLACES, [y], grid=grid, block=1)
    assert not y.any()


def test_a_grid_of_three_dimensions():
    y = np.zeros(24, np.float32)
    assert launch(PLACES, [y], grid=(2, 3, 4), block=1).findings == []
    z, rest = np.divmod(np.arange(24), 6)
    assert np.array_equal(y, rest % 2 + 10 * (rest // 2) + 100 * z)


@pytest.mark.parametrize("block", [0, (32, 33), (1, 1, 65), 1025, "8"], ids=repr)
def test_impossible_blocks_are_refused(block):
    with pytest.raises(LaunchError, match="block"):
        launch(PLACES, [floats()], block=block)


@pytest.mark.parametrize("shared", [-1, "4", 1.5, 1 << 40], ids=repr)
def test_impossible_shared_memory_is_refused(shared):
    with pytest.raises(LaunchError, match="shared"):
        launch(PLACES, [floats()], shared=shared)


def test_the_largest_grid_ends_with_its_budget():
    kernel = helpers.compile('extern "C" __global__ void f(float* y) { if (blockIdx.x == 7) y[0] = 1; }')
    kernel.launch(1, 1, [floats()], on="cpu")  # so that its code has been read
    start = time.monotonic()
    with pytest.raises(RunError, match="had not ended after 1 seconds"):
        kernel.launch((2**31 - 1, 65535, 65535), 1, [floats()], on="cpu", seconds=1)
    assert time.monotonic() - start < 20


# --- gigabytes of trace ------------------------------------------------------------------------------------------------

MANY = """extern "C" __global__ void f(int n, const float* x, float* y) {
    float s = 0;
    for (int i = 0; i < n; i++) s += x[(threadIdx.x * 7 + i) % 1024];
    y[blockIdx.x * blockDim.x + threadIdx.x] = s;
}"""


def test_a_trace_of_gigabytes_is_cut_off():
    run = launch(MANY, [300, floats(1024), floats(1 << 16)], grid=256, block=256, trace=True)  # 614,400 rows of 256 bytes
    assert run.trace.truncated and len(run.trace.accesses) <= TraceFilter().limit


def test_asking_for_gigabytes_is_refused():
    with pytest.raises(LaunchError, match="Record some of the blocks"):
        TraceFilter(limit=MOST_ROWS + 1)


@pytest.mark.parametrize("access", ["s[5000] = 1;", "y[0] = s[5000];", "atomicAdd(&s[5000], 1.0f);", "y[5000] = 1;"])
def test_the_thread_that_is_named_is_the_one_that_did_it(access):
    """Also where all threads would have the same address."""
    source = f"""extern "C" __global__ void f(float* y) {{
        __shared__ float s[8]; s[threadIdx.x % 8] = 1; __syncthreads();
        if (threadIdx.x == 7 && blockIdx.x == 1) {{ {access} }}
        __syncthreads(); if (blockIdx.x == 0) y[threadIdx.x] = s[threadIdx.x % 8]; }}"""
    found = [
        one for one in helpers.compile(source).launch(2, 64, [np.zeros(64, np.float32)], on="cpu").findings if one.kind == "out-of-bounds"
    ]
    assert [(one.block, one.thread, one.count) for one in found] == [((1, 0, 0), (7, 0, 0), 1)]
