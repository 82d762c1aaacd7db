"""Kernels end to end on the SIMT machine: results bit for bit, hardware counters, divergence, barriers, findings.

Tests of: helpers.sim.counting.counters, helpers.sim.isa.control, helpers.sim.isa.loads_stores,
helpers.sim.machine.lanes, helpers.sim.machine.memory, helpers.sim.machine.trace
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import helpers
from helpers.errors import RunError
from helpers.sim import Budget, Collect, TraceFilter, simulate
from helpers.sim.isa.exact import round_fraction
from helpers.toolchain.compile import compile_source
from tests import ROOT
from tests.sim.ptx_text import without_handler

CALIBRATION = (ROOT / "tests/sim/calibration.cu").read_text()
QUIET = Collect(counters=False, findings=False)


def matrices(m, n, k, seed=0):
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n)))
    return a, b, np.zeros((m, n), np.float32)


def fma_chain(a, b):
    """C by float32 fused multiply-adds in the order of k, through an independent route: x87 extended precision.

    The product of two float32 is exact in float64. The sum is rounded to 64 bits and then to 24; results that the first
    rounding put on a tie are computed again with rational numbers.
    """
    c = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        product = a[:, k : k + 1].astype(np.longdouble) * b[k : k + 1].astype(np.longdouble)
        total = product + c.astype(np.longdouble)
        new = total.astype(np.float32)
        back = new.astype(np.longdouble)
        gap = np.abs(total - back)
        ulp = np.abs(np.nextafter(new, np.float32(np.inf)).astype(np.longdouble) - back)
        close = np.abs(gap - ulp / 2) <= ulp * 2.0**-30
        for i, j in np.argwhere(close):
            exact = Fraction(float(a[i, k])) * Fraction(float(b[k, j])) + Fraction(float(c[i, j]))
            new[i, j] = round_fraction(exact, "f32")
        c = new
    return c


def run(source, grid, block, args, entry=None, arch="sm_90", **more):
    return simulate(compile_source(source, entry, arch), grid, block, args, **{"engine": "numpy", **more})


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_100"])
@pytest.mark.parametrize(
    ("entry", "grid", "block"),
    [("naive", (4, 4, 1), (32, 32, 1)), ("coalesced", (4, 4, 1), (32, 32, 1)), ("tile2d", (1, 1, 1), (256, 1, 1))],
)
def test_calibration_kernels_are_bit_exact(entry, grid, block, arch):
    a, b, c = matrices(128, 128, 128)
    outcome = run(CALIBRATION, grid, block, [a, b, c, 128, 128, 128], entry, arch)
    assert np.array_equal(c.view(np.uint32), fma_chain(a, b).view(np.uint32))
    assert outcome.findings == []


# Measured with Nsight Compute on an H200 at 512 x 512 x 512 (shared stores vary from run to run and are left out).
H200 = {
    "naive": ((16, 16, 1), (32, 32, 1), 8388608, 138412032, 8192, 262144, 0, 0, 0),
    "coalesced": ((16, 16, 1), (32, 32, 1), 8388608, 20971520, 8192, 32768, 0, 0, 0),
    "tile2d": ((4, 4, 1), (256, 1, 1), 16384, 262144, 8192, 262144, 262144, 1310720, 524288),
}


@pytest.mark.parametrize("entry", H200)
def test_counters_are_those_of_the_hardware(entry):
    grid, block, *expected = H200[entry]
    a, b, c = matrices(512, 512, 512)
    outcome = run(CALIBRATION, grid, block, [a, b, c, 512, 512, 512], entry)
    counters = outcome.counters
    names = [f"l1tex__t_{what}_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st") for what in ("requests", "sectors")]
    names += [
        "smsp__inst_executed_op_shared_ld.sum", "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    ]  # fmt: skip
    assert [counters[name] for name in names] == expected
    assert counters["smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"] == 512**3
    assert not outcome.estimate
    assert np.allclose(c, a @ b, atol=1e-3)


def test_banks_counters():
    c = np.zeros(32, np.float32)
    counters = run(CALIBRATION, (1, 1, 1), (32, 1, 1), [c], "banks").counters
    assert counters["smsp__inst_executed_op_shared_ld.sum"] == 4
    assert counters["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"] == 36
    assert counters["smsp__inst_executed_op_shared_st.sum"] == 33
    t = np.arange(32)
    assert np.array_equal(c, (t * 32 + t * 33 + t * 2).astype(np.float32))


def test_sampled_counters_are_scaled():
    a, b, c = matrices(256, 256, 256)
    whole = run(CALIBRATION, (8, 8, 1), (32, 32, 1), [a, b, c, 256, 256, 256], "naive")
    part = run(CALIBRATION, (8, 8, 1), (32, 32, 1), [a, b, c, 256, 256, 256], "naive", collect=Collect(blocks=[0, 9, 63, 17]))
    assert part.sampled and not whole.sampled
    assert part.counters == whole.counters


GEMM = """
extern "C" __global__ void gemm(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb,
                                float beta, float* C, int ldc) {
    __shared__ float As[16][16], Bs[16][17];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;
    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += 16) {
        As[ty][tx] = row < M && k0 + tx < K ? A[row * lda + k0 + tx] : 0;
        Bs[ty][tx] = k0 + ty < K && col < N ? B[(k0 + ty) * ldb + col] : 0;
        __syncthreads();
        for (int k = 0; k < 16; k++) sum += As[ty][k] * Bs[k][tx];
        __syncthreads();
    }
    if (row < M && col < N) C[row * ldc + col] = beta == 0 ? alpha * sum : alpha * sum + beta * C[row * ldc + col];
}
"""


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (17, 33, 5), (64, 48, 100), (31, 1, 7), (5, 70, 0)])
def test_odd_sizes(m, n, k):
    a, b, _ = matrices(m, n, max(k, 1))
    c = np.full((m, n), 2.0, np.float32)
    outcome = run(GEMM, (-(-n // 16), -(-m // 16), 1), (16, 16, 1), [m, n, k, 2.0, a, max(k, 1), b, n, 0.5, c, n])
    chain = fma_chain(a[:, :k], b[:k]) if k else np.zeros((m, n), np.float32)
    expected = (np.float32(2) * chain).astype(np.float32) + np.float32(1)
    assert np.allclose(c, expected, rtol=1e-6)
    assert outcome.findings == []


def test_beta_zero_does_not_read_c():
    a, b, _ = matrices(16, 16, 16)
    c = np.full((16, 16), np.nan, np.float32)
    run(GEMM, (1, 1, 1), (16, 16, 1), [16, 16, 16, 1.0, a, 16, b, 16, 0.0, c, 16])
    assert np.array_equal(c, fma_chain(a, b))


def test_a_and_c_may_be_the_same_array():
    source = """extern "C" __global__ void twice(const float* A, float* C) { int i = threadIdx.x; C[i] = A[i] * 2; C[i] += A[i]; }"""
    x = np.arange(32, dtype=np.float32)
    run(source, (1, 1, 1), (32, 1, 1), [x, x])
    assert np.array_equal(x, np.arange(32) * 4)
    y = np.arange(40, dtype=np.float32)
    run(source, (1, 1, 1), (32, 1, 1), [y[:32], y[8:]])  # overlapping views
    expected = np.arange(40, dtype=np.float32)
    expected[8:] = np.arange(32) * 2
    expected[8:] += expected[:32]
    assert y[39] == expected[39]


def test_three_dimensional_launch_and_templates():
    source = """
    template <int S> __device__ int mix(int a, int b, int c) { return a + S * (b + S * c); }
    extern "C" __global__ void ids(int* out) {
        int block = mix<10>(blockIdx.x, blockIdx.y, blockIdx.z), thread = mix<10>(threadIdx.x, threadIdx.y, threadIdx.z);
        int linear = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
        int place = (blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z)) * 24 + linear;
        out[place] = block * 1000 + thread;
    }"""
    out = np.zeros(5 * 3 * 2 * 24, np.int32)
    run(source, (5, 3, 2), (2, 3, 4), [out])
    expected = [
        (bx + 10 * by + 100 * bz) * 1000 + tx + 10 * ty + 100 * tz
        for bz in range(2) for by in range(3) for bx in range(5) for tz in range(4) for ty in range(3) for tx in range(2)
    ]  # fmt: skip
    assert out.tolist() == expected


def test_empty_grid_runs_nothing():
    c = np.ones(4, np.float32)
    outcome = run(CALIBRATION, (0, 1, 1), (32, 1, 1), [c], "banks")
    assert c.tolist() == [1] * 4 and outcome.counters["smsp__inst_executed_op_shared_st.sum"] == 0


DIVERGE = """
extern "C" __global__ void diverge(const int* in, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int x = in[i], steps = 0;
    while (x != 1) {
        if (steps > 200) break;
        if (x % 7 == 3) { x += 1; steps++; continue; }
        x = x & 1 ? 3 * x + 1 : x / 2;
        steps++;
    }
    switch (steps % 6) {
        case 0: x += 100; break;
        case 1: x += 200;
        case 2: x += 300; break;
        case 3: for (int k = 0; k < steps; k++) x += k ^ i; break;
        case 4: x = -x; break;
        default: x *= 5;
    }
    out[i] = x * 1000 + steps;
}"""


def collatz(i, x):
    steps = 0
    while x != 1:
        if steps > 200:
            break
        if x % 7 == 3:
            x, steps = x + 1, steps + 1
            continue
        x = 3 * x + 1 if x & 1 else x // 2
        steps += 1
    case = steps % 6
    if case == 0:
        x += 100
    elif case in (1, 2):
        x += 500 if case == 1 else 300
    elif case == 3:
        x += sum(k ^ i for k in range(steps))
    elif case == 4:
        x = -x
    else:
        x *= 5
    return x * 1000 + steps


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_100"])
def test_divergence(arch):
    values = np.random.default_rng(3).integers(1, 400, 300).astype(np.int32)
    out = np.zeros(320, np.int32)
    run(DIVERGE, (3, 1, 1), (128, 1, 1), [values, out, 300], arch=arch)
    expected = np.array([collatz(i, int(x)) for i, x in enumerate(values)])
    assert np.array_equal(out[:300], expected.astype(np.int64).astype(np.int32))
    assert not out[300:].any()


def test_trace_has_addresses_per_lane():
    a, b, c = matrices(64, 64, 64)
    wanted = TraceFilter(blocks={1}, warps={0}, spaces={"global"})
    outcome = run(CALIBRATION, (2, 2, 1), (32, 32, 1), [a, b, c, 64, 64, 64], "coalesced", collect=Collect(trace=wanted))
    trace = outcome.trace
    loads = trace.select(op="ld")
    assert len(loads.accesses) == 2 * 64 and not trace.truncated
    base = {x.name: x.base for x in trace.allocations}
    first = loads.select(iteration=0)
    starts = {int(row[0] - base["B"]) for row in first.addresses if base["B"] <= row[0] < base["B"] + b.nbytes}
    assert 32 * 4 in starts  # block 1 begins at column 32
    assert set(trace.accesses["block"]) == {1} and set(trace.accesses["warp"]) == {0}
    assert (np.diff(trace.accesses["order"]) >= 0).all()
    rows = loads.addresses[(loads.addresses[:, 0] >= base["B"]) & (loads.addresses[:, 0] < base["B"] + b.nbytes)]
    assert (np.diff(rows, axis=1) == 4).all()


def test_trace_limit():
    a, b, c = matrices(64, 64, 64)
    outcome = run(
        CALIBRATION,
        (2, 2, 1),
        (32, 32, 1),
        [a, b, c, 64, 64, 64],
        "naive",
        collect=Collect(trace=TraceFilter(limit=100)),
    )
    assert outcome.trace.truncated and len(outcome.trace.accesses) <= 100


# --- findings --------------------------------------------------------------------------------------------------------


def line_of(source, mark):
    return next(number for number, text in enumerate(source.split("\n"), 1) if mark in text)


def test_out_of_bounds_is_reported_and_refused():
    source = """
extern "C" __global__ void f(const float* A, float* C, int n) {
    int i = threadIdx.x;
    float x = A[i + 4];  // read
    C[i] = x;
}"""
    a, c = np.ones(32, np.float32), np.zeros(32, np.float32)
    outcome = run(source, (1, 1, 1), (32, 1, 1), [a, c, 32])
    (finding,) = outcome.findings
    assert finding.kind == "out-of-bounds" and finding.line == line_of(source, "// read")
    assert finding.thread == (28, 0, 0) and finding.count == 4 and "past the end of A" in finding.message
    assert c[27] == 1 and c[28] == 0


def test_out_of_bounds_of_some_threads_of_a_divergent_access():
    source = """
extern "C" __global__ void f(float* C, int n) {
    int i = threadIdx.x;
    if (i % 2) C[i == 5 ? n : i] = 1;  // write
}"""
    c = np.zeros(32, np.float32)
    outcome = run(source, (1, 1, 1), (32, 1, 1), [c, 40])
    (finding,) = outcome.findings
    assert finding.kind == "out-of-bounds" and finding.thread == (5, 0, 0) and finding.line == line_of(source, "// write")
    assert c.tolist() == [float(i % 2 and i != 5) for i in range(32)]


def test_null_pointer_stops():
    source = """extern "C" __global__ void f(float* C) {\n    C[threadIdx.x] = 1;\n}"""
    with pytest.raises(RunError, match="null pointer") as caught:
        run(source, (1, 1, 1), (32, 1, 1), [None])
    assert caught.value.line == 2 and caught.value.findings[0].kind == "out-of-bounds"


def test_misaligned_vector_access_stops():
    source = """extern "C" __global__ void f(float* A, float* C) {\n    float4 v = *(float4*)(A + 1);\n    C[threadIdx.x] = v.x + v.y + v.z + v.w;\n}"""
    with pytest.raises(RunError, match="not a multiple of 16") as caught:
        run(source, (1, 1, 1), (1, 1, 1), [np.zeros(8, np.float32), np.zeros(8, np.float32)])
    assert caught.value.line == 2


RACE = """
extern "C" __global__ void f(float* C, int other) {
    __shared__ float s[64];
    int i = threadIdx.x;
    s[i] = i;  // write
    BARRIER
    C[i] = s[i ^ other];  // read
}"""


@pytest.mark.parametrize(
    ("barrier", "other", "races"),
    [
        ("", 1, True),
        ("", 32, True),
        ("", 0, False),
        ("__syncthreads();", 32, False),
        ("__syncwarp();", 1, False),
        ("__syncwarp();", 32, True),
    ],
)
def test_race(barrier, other, races):
    source = RACE.replace("BARRIER", barrier)
    c = np.zeros(64, np.float32)
    outcome = run(source, (3, 1, 1), (64, 1, 1), [c, other])
    assert np.array_equal(c, (np.arange(64) ^ other).astype(np.float32))  # lock step gives the right result anyway
    if not races:
        assert outcome.findings == []
        return
    (finding,) = outcome.findings
    assert finding.kind == "race"
    assert {finding.line, finding.other_line} == {line_of(source, "// write"), line_of(source, "// read")}


def test_race_with_the_next_iteration():
    source = """
extern "C" __global__ void f(const float* A, float* C) {
    __shared__ float s[64];
    int i = threadIdx.x;
    float sum = 0;
    for (int k = 0; k < 4; k++) {
        s[i] = A[k * 64 + i];  // write
        __syncthreads();
        sum += s[63 - i];  // read
    }
    C[i] = sum;
}"""
    outcome = run(source, (1, 1, 1), (64, 1, 1), [np.ones(256, np.float32), np.zeros(64, np.float32)])
    assert [f.kind for f in outcome.findings] == ["race"]
    assert {outcome.findings[0].line, outcome.findings[0].other_line} == {
        line_of(source, "// write"),
        line_of(source, "// read"),
    }


def test_two_threads_write_one_place():
    source = """
extern "C" __global__ void f(float* C, int same) {
    __shared__ float s[4];
    s[0] = same ? 7 : threadIdx.x;  // write
    __syncthreads();
    C[threadIdx.x] = s[0];
}"""
    c = np.zeros(32, np.float32)
    assert [f.kind for f in run(source, (1, 1, 1), (32, 1, 1), [c, 0]).findings] == ["race"]
    assert run(source, (1, 1, 1), (32, 1, 1), [c, 1]).findings == []


def test_uninitialised_shared_memory():
    source = """
extern "C" __global__ void f(float* C) {
    __shared__ float s[64];
    int i = threadIdx.x;
    if (i < 20) s[i] = 1;
    __syncthreads();
    C[i] = s[i];  // read
}"""
    (finding,) = run(source, (2, 1, 1), (32, 1, 1), [np.zeros(32, np.float32)]).findings
    assert finding.kind == "uninitialized" and finding.line == line_of(source, "// read") and finding.thread == (20, 0, 0)


def test_barrier_that_some_threads_never_reach():
    source = """
extern "C" __global__ void f(float* C, int n) {
    __shared__ float s[64];
    int i = threadIdx.x;
    if (i >= n) return;
    s[i] = i;
    __syncthreads();  // barrier
    C[i] = s[n - 1 - i];
}"""
    c = np.zeros(64, np.float32)
    outcome = run(source, (1, 1, 1), (64, 1, 1), [c, 40])
    (finding,) = outcome.findings
    assert finding.kind == "divergent-barrier" and finding.line == line_of(source, "// barrier") and finding.thread == (40, 0, 0)
    assert c[:40].tolist() == list(range(39, -1, -1))  # the hardware goes on when threads have ended, and so do we


def test_the_advice_on_a_barrier_in_an_if_is_to_move_it_out():
    source = """
extern "C" __global__ void f(float* C) {
    if (threadIdx.x < 64) C[threadIdx.x] = 1, __syncthreads();  // barrier
}"""
    (finding,) = run(source, (1, 1, 1), (128, 1, 1), [np.zeros(64, np.float32)]).findings
    assert finding.kind == "divergent-barrier" and finding.line == line_of(source, "// barrier")
    assert "an `if` or a loop that some threads skip, move it out; if they return before it" in finding.advice


def test_barriers_that_wait_for_each_other():
    source = """
extern "C" __global__ void f(float* C) {
    if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;");  // one
    else asm volatile("bar.sync 2, 64;");  // two
    C[threadIdx.x] = 1;
}"""
    with pytest.raises(RunError, match="never reach") as caught:
        run(source, (1, 1, 1), (64, 1, 1), [np.zeros(64, np.float32)])
    assert caught.value.line == line_of(source, "// one") and caught.value.findings[0].other_line == line_of(source, "// two")


def test_endless_loop_stops_and_leaves_arrays_alone():
    source = """
extern "C" __global__ void f(volatile float* C) {
    C[0] = 5;
    while (C[0] > 0) C[1] += 1;  // loop
}"""
    c = np.zeros(4, np.float32)
    with pytest.raises(RunError, match="500 steps"):
        run(source, (1, 1, 1), (1, 1, 1), [c], budget=Budget(steps=500))
    with pytest.raises(RunError, match="had not ended") as caught:
        run(source, (1, 1, 1), (1, 1, 1), [c], budget=Budget(seconds=0.3))
    assert caught.value.line == line_of(source, "// loop") and caught.value.findings[0].kind == "endless"
    assert not c.any()


def test_progress_and_interrupt_leave_arrays_alone():
    a, b, c = matrices(256, 256, 64)
    seen = []

    def stop(done, total):
        seen.append((done, total))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(CALIBRATION, (8, 8, 1), (32, 32, 1), [a, b, c, 256, 256, 64], "naive", progress=stop)
    assert seen and seen[0][1] == 64 and not c.any()


def test_blocks_wait_for_others_from_which_they_were_parted_twice():
    """Branches of whole blocks divide what runs together, and then a part of it; the block that waits is alone in the inner one."""
    source = """__device__ int there;
    extern "C" __global__ void f(float* C) {
        float sum = 0;
        for (int i = 0; i < (blockIdx.x == 2 ? 200 : 100); i++) sum += *(volatile float*)&C[i % 32];
        if (blockIdx.x == 0) {
            if (threadIdx.x == 0) while (*(volatile int*)&there != 64) {}
            __syncthreads();
        } else {
            atomicAdd(&there, 1);
        }
        C[32 + 32 * blockIdx.x + threadIdx.x] = sum;
    }"""
    c = np.ones(128, np.float32)
    run(source, (3, 1, 1), (32, 1, 1), [c], budget=Budget(seconds=20), collect=QUIET)
    assert (c.reshape(4, 32)[1:] == [[100], [100], [200]]).all()


def test_unknown_instruction_is_named_with_its_line():
    source = """extern "C" __global__ void f(unsigned* C) {\n    asm volatile("sad.u32 %0, %0, %0, %0;" : "+r"(C[0]));\n}"""
    with without_handler("sad"), pytest.raises(RunError, match="sad") as caught:
        run(source, (1, 1, 1), (1, 1, 1), [np.zeros(1, np.uint32)])
    assert caught.value.line == 2 and "PTX line" in caught.value.message


WAITS_BY_ONE_LANE = """extern "C" __global__ void f(int* d, int* y, int* flag) {
    int t = threadIdx.x, v = 0;
    if (blockIdx.x == 0) {
        if (t == 0) while ((v = atomicAdd(flag, 0)) == 0) {}
        __threadfence();
        JOIN
        y[t] = d[31 - t];
    } else {
        d[t] = t + 1;
        __threadfence();
        __syncthreads();
        if (t == 0) atomicExch(flag, 1);
    }
}"""


@pytest.mark.parametrize("join", ["__syncwarp();", "v = __shfl_sync(~0u, v, 0); if (!v) return;", "if (!__any_sync(~0u, v)) return;"])
def test_a_warp_waits_for_its_lane_that_polls_while_other_blocks_have_not_begun(join):
    d, y, flag = (np.zeros(n, np.int32) for n in (32, 32, 1))
    run = helpers.compile(WAITS_BY_ONE_LANE.replace("JOIN", join)).launch(2, 32, (d, y, flag), on="cpu", counters=False)
    assert not run.findings
    assert (y == np.arange(32, 0, -1)).all()


@pytest.mark.slow
def test_warps_of_many_blocks_wait_for_each_other_by_one_lane():
    """More blocks than the machine runs at a time."""
    source = """extern "C" __global__ void f(int* d, int* y, int* count) {
        int t = threadIdx.x, b = blockIdx.x, n = gridDim.x;
        if (t >= 32) return;
        d[b * 32 + t] = b + 1;
        __syncwarp();
        if (t == 0) { __threadfence(); atomicAdd(count, 1); while (atomicAdd(count, 0) < n) {} __threadfence(); }
        __syncwarp();
        y[b * 32 + t] = d[(n - 1 - b) * 32 + t];
    }"""
    d, y, count = (np.zeros(n, np.int32) for n in (150 * 32, 150 * 32, 1))
    run = helpers.compile(source).launch(150, 1024, (d, y, count), on="cpu", counters=False)
    assert not run.findings
    assert (y == d[::-1]).all() and y.any()


@pytest.mark.parametrize(("blocks", "threads"), [(1, 64), (2, 64), (1, 96)])
def test_a_warp_that_tries_for_a_lock_lets_the_one_that_has_it_go_on(blocks, threads):
    source = """extern "C" __global__ void f(int* lock, int* total) {
        int lane = threadIdx.x % 32, got = 0;
        do { if (lane == 0) got = atomicCAS(lock, 0, 1) == 0; got = __shfl_sync(~0u, got, 0); } while (!got);
        __threadfence(); total[lane] += 1; __threadfence(); __syncwarp();
        if (lane == 0) atomicExch(lock, 0);
    }"""
    lock, total = np.zeros(1, np.int32), np.zeros(32, np.int32)
    run = helpers.compile(source).launch(blocks, threads, (lock, total), on="cpu", counters=False, seconds=20)
    assert not run.findings and (total == blocks * threads // 32).all()


@pytest.mark.parametrize("blocks", [4, 1025])
def test_lanes_that_have_left_are_not_waited_for(blocks):
    """Also where another warp looks at an mbarrier meanwhile, and where there are more blocks than the machine runs at a time."""
    source = """extern "C" __global__ void f(int* out) {
        __shared__ unsigned long long bar;
        const unsigned at = (unsigned)__cvta_generic_to_shared(&bar);
        if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(at) : "memory");
        __syncthreads();
        if (threadIdx.x < 32)
            asm volatile("{ .reg .pred P; W: mbarrier.try_wait.parity.shared::cta.b64 P, [%0], 0; @!P bra W; }" :: "r"(at) : "memory");
        else if (threadIdx.x == 32) {
            out[blockIdx.x] = __shfl_sync(~0u, 7, 0);
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(at) : "memory");
        }
    }"""
    out = np.zeros(blocks, np.int32)
    helpers.compile(source, arch="sm_90a").launch(blocks, 64, (out,), on="cpu", counters=False, seconds=20)
    assert (out == 7).all()
