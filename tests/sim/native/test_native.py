"""The native engine against the NumPy machine: results bit for bit, counters, counters per line, findings, errors.

Tests of: helpers.sim.native.access, helpers.sim.native.background, helpers.sim.native.builder,
helpers.sim.native.declined, helpers.sim.native.dispatch, helpers.sim.native.engine,
helpers.sim.native.fixed_branches, helpers.sim.native.lower, helpers.sim.native.machine_calls,
helpers.sim.native.operations, helpers.sim.native.prepared, helpers.sim.native.runtime, helpers.sim.native.uniformity,
helpers.sim.native.workers
"""

from __future__ import annotations

import random
import re
import threading
import time

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the native engine is optional")

from helpers.errors import RunError
from helpers.run import gemm
from helpers.run.gemm import geometry, problem_for
from helpers.run.geometry import is_fused
from helpers.run.kernel import Kernel
from helpers.run.launch_arguments import launch_arguments
from helpers.sim import Budget, Collect, TraceFilter, launch, simulate
from helpers.sim import native as module
from helpers.sim.isa import EXAMPLES
from helpers.sim.load import load
from helpers.sim.native import engine, workers
from helpers.sim.native import prepared as native
from helpers.sim.native.dispatch import HANDLERS
from helpers.toolchain.compile import compile_source
from tests import ROOT
from tests.sim.isa.test_isa import encode, inputs, program, size_of
from tests.sim.ptx_text import kernel

CALIBRATION = (ROOT / "tests/sim/calibration.cu").read_text()
STEPS = sorted((ROOT / "kernels").glob("*.cu"))
HOPPER = [path for path in STEPS if "CUtensorMap" in path.read_text(encoding="utf-8")]
KERNELS = [path for path in STEPS if path not in HOPPER]
QUIET = Collect(counters=False, findings=False)


def both(compiled, grid, block, args, shared=0, **collect):
    """Run in both engines and compare everything; returns the native outcome."""
    outcomes, results = [], []
    for name in ("native", "numpy"):
        mine = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        outcomes.append(simulate(compiled, grid, block, mine, shared=shared, collect=Collect(**collect), engine=name))
        results.append([a.tobytes() for a in mine if isinstance(a, np.ndarray)])
    mine, theirs = outcomes
    assert (mine.engine, theirs.engine) == ("native", "numpy")
    assert results[0] == results[1]
    assert mine.counters == theirs.counters
    assert mine.by_line == theirs.by_line
    assert mine.findings == theirs.findings
    return mine


# --- instructions ------------------------------------------------------------------------------------------------------

# Instructions that the engine leaves to the NumPy machine are skipped one by one, and at least this many are not.
LEAST_NATIVE_EXAMPLES = 185


def same(example, mine, theirs) -> bool:
    """Bit for bit; NaNs of float64 have no canonical form."""
    if example.result == "f64":
        mine, theirs = mine.view(np.float64), theirs.view(np.float64)
        return np.array_equal(mine, theirs, equal_nan=True) and np.array_equal(np.signbit(mine[mine == 0]), np.signbit(theirs[theirs == 0]))
    return mine.tobytes() == theirs.tobytes()


def outcome_of(example, name):
    rows = inputs(example)
    columns = [encode(column, kind) for column, kind in zip(zip(*rows, strict=True), example.sources, strict=True)]
    blocks = -(-len(rows) // 64)
    columns = [np.concatenate([c, np.repeat(c[-1:], blocks * 64 - len(c))]) for c in columns]
    out = np.zeros(blocks * 64, dtype=f"u{size_of(example.result)}")
    outcome = simulate(program(example), (blocks, 1, 1), (64, 1, 1), [out, *columns], engine=name)
    return out, outcome


@pytest.mark.slow
def test_examples_of_instructions_are_equal():
    compared, different = 0, []
    for example in EXAMPLES:
        try:
            mine, outcome = outcome_of(example, "native")
        except RunError as refusal:
            assert "native engine cannot run" in refusal.message
            continue
        theirs, expected = outcome_of(example, "numpy")
        compared += 1
        if not same(example, mine, theirs) or outcome.counters != expected.counters or outcome.by_line != expected.by_line:
            different.append(example.opcode)
    assert different == []
    assert compared >= LEAST_NATIVE_EXAMPLES


# --- kernels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_100"])
@pytest.mark.parametrize(("entry", "grid", "block", "n"), [
    ("naive", (4, 4, 1), (32, 32, 1), 128), ("naive", (3, 5, 1), (24, 12, 1), 57), ("coalesced", (8, 8, 1), (16, 16, 1), 120),
])  # fmt: skip
def test_calibration_kernels(entry, grid, block, n, arch):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, n, n)).astype(np.float32)
    a[0, 3], b[5, 7] = np.nan, np.float32(1e-42)
    both(compile_source(CALIBRATION, entry, arch), grid, block, [a, b, np.zeros((n, n), np.float32), n, n, n])


def test_hardware_counters_of_a_tiled_kernel():
    n = 512
    a, b = np.random.default_rng(0).standard_normal((2, n, n)).astype(np.float32)
    c = np.zeros((n, n), np.float32)
    outcome = simulate(compile_source(CALIBRATION, "tile2d"), (4, 4, 1), (256, 1, 1), [a, b, c, n, n, n], engine="native")
    counters = outcome.counters
    # Measured with Nsight Compute on an H200.
    assert counters["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == 16384
    assert counters["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == 262144
    assert counters["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"] == 1310720
    assert counters["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"] == 524288
    assert counters["smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"] == n**3
    assert outcome.findings == []
    assert np.allclose(c, a @ b, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_course_kernels(path):
    compiled = compile_source(path.read_text())
    made = Kernel(compiled)
    shape = geometry(made)
    rows, columns = shape.tile
    for problem in (
        problem_for(made, rows, columns, 32, fused=is_fused(made)),
        problem_for(made, rows + 1, columns - 1, 33, alpha=0.5, beta=-2.0, pad_a=3, pad_b=5, pad_c=7, fused=is_fused(made)),
    ):
        args = launch_arguments(made, problem, *problem.arrays()).arguments
        both(compiled, shape.grid(problem.m, problem.n), shape.block, args, shape.shared)


@pytest.mark.parametrize("path", HOPPER, ids=lambda path: path.stem)
def test_kernels_of_tensor_maps_are_left_to_the_other_engine_and_say_why(path):
    made = Kernel(compile_source(path.read_text(encoding="utf-8"), path.stem[3:]))
    done = gemm.run(made, problem_for(made, 64, 64, 16), on="cpu", counters=False, findings=False)
    assert done.engine == "numpy" and re.search("mbarrier|cluster|setmaxnreg", done.engine_reason)


DIVERGENCE = """
extern "C" __global__ void k(const int* in, int* out, int n) {
    int t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    int i = blockIdx.x * (blockDim.x * blockDim.y * blockDim.z) + t, x = in[i], steps = 0;
    if (i % 7 == 3) { out[i] = -1; return; }
    while (x != 1 && steps < n) {                 // every lane leaves when it likes
        if (x & 1) { x = 3 * x + 1; if (x % 5 == 2) continue; } else x >>= 1;
        steps++;
        if (x > 100000) break;
    }
    switch (i & 3) { case 0: steps += 100; case 1: steps *= 2; break; case 2: steps -= x; break; default: steps ^= i; }
    for (int j = threadIdx.x; j < 80; j += 32) steps += in[j] > 20 ? j : -1;
    out[i] = steps;
}
"""


@pytest.mark.parametrize("block", [(32, 1, 1), (50, 1, 1), (8, 8, 1), (3, 5, 7)])
def test_divergence_loops_and_early_returns(block):
    threads = block[0] * block[1] * block[2]
    values = np.random.default_rng(1).integers(1, 1000, 4 * threads + 96).astype(np.int32)
    both(compile_source(DIVERGENCE), (4, 1, 1), block, [values, np.zeros(len(values), np.int32), 60])


LAST_LOOP = """extern "C" __global__ void last_loop(const int* in, int* out, int n) {
    int sum = 0;
    for (int k = 0; k < n; k += 32) {
        const int i = k + threadIdx.x;
        int mine = 7;
        if (i < n) mine = in[i] < 500 ? in[i] / 3 : in[i] % 5;
        sum += __shfl_xor_sync(~0u, mine, 1);
    }
    #pragma unroll 1
    for (int i = threadIdx.x; i < 96; i += 32) {
        if (i >= n) continue;
        out[i] = sum + i;
    }
}
"""


def test_lanes_meet_in_a_kernel_that_ends_with_a_loop():
    """Its lanes leave by the end of that loop alone. All that came before was left to the NumPy machine: nobody met anywhere."""
    values = np.random.default_rng(2).integers(1, 1000, 96).astype(np.int32)
    for n in (64, 75):
        both(compile_source(LAST_LOOP), (1, 1, 1), (32, 1, 1), [values, np.zeros(96, np.int32), n])


def test_random_arithmetic():
    """Random programs of integer and float instructions, with branches, on random data."""
    rng = random.Random(5)
    operations = [
        "add.s32 {d}, {a}, {b};", "sub.s32 {d}, {a}, {b};", "mul.lo.s32 {d}, {a}, {b};", "mad.lo.s32 {d}, {a}, {b}, {c};",
        "and.b32 {d}, {a}, {b};", "xor.b32 {d}, {a}, {b};", "shl.b32 {d}, {a}, {n};", "shr.s32 {d}, {a}, {n};", "shr.u32 {d}, {a}, {b};",
        "min.s32 {d}, {a}, {b};", "max.u32 {d}, {a}, {b};", "add.f32 {d}, {a}, {b};", "mul.f32 {d}, {a}, {b};",
        "fma.rn.f32 {d}, {a}, {b}, {c};", "min.f32 {d}, {a}, {b};", "add.s32 {d}, {a}, {n};", "mul.hi.u32 {d}, {a}, {b};",
        "setp.lt.s32 %p, {a}, {b};", "setp.gt.f32 %p, {a}, {b};", "selp.b32 {d}, {a}, {b}, %p;", "@%p add.s32 {d}, {a}, {b};",
        "@!%p mov.b32 {d}, {a};", "cvt.rn.f32.s32 {d}, {a};", "popc.b32 {d}, {a};", "not.b32 {d}, {a};",
    ]  # fmt: skip
    for trial in range(12):
        body, label = [], 0
        for _ in range(40):
            names = {key: f"%v{rng.randrange(8)}" for key in "abcd"}
            text = rng.choice(operations).format(n=rng.randrange(32), **names)
            if rng.random() < 0.2:
                label += 1
                body += [
                    f"setp.ne.s32 %q, {names['b']}, {names['c']};",
                    f"@{rng.choice(['', '!'])}%q bra J{label};",
                    text,
                    f"J{label}:",
                ]
            else:
                body.append(text)
        start = [".reg .b32 %v<8>, %t, %w;", ".reg .b64 %g, %x;", ".reg .pred %p, %q;", "mov.u32 %t, %tid.x;", "setp.eq.s32 %p, %t, 3;",
                 "mov.u32 %w, %ctaid.x;", "ld.param.u64 %x, [in];", "mad.wide.u32 %x, %t, 32, %x;"]  # fmt: skip
        start += [f"ld.global.b32 %v{i}, [%x+{4 * i}];" for i in range(6)] + ["mov.b32 %v6, %t;", "mov.b32 %v7, %w;"]
        end = ["ld.param.u64 %g, [out];", "mad.lo.u32 %t, %w, 64, %t;", "mad.wide.u32 %g, %t, 32, %g;"]
        end += [f"st.global.b32 [%g+{4 * i}], %v{i};" for i in range(8)] + ["ret;"]
        code = kernel("\n".join([*start, *body, *end]), ".param .u64 out, .param .u64 in")
        data = np.random.default_rng(trial).integers(0, 2**32, 64 * 8, dtype=np.uint32)
        data[::3] = np.random.default_rng(trial).standard_normal(len(data[::3])).astype(np.float32).view(np.uint32)
        both(code, (3, 1, 1), (64, 1, 1), [np.zeros(3 * 64 * 8, np.uint32), data])


@pytest.mark.parametrize("field", [(0, 32), (0, 1), (31, 1), (5, 13), (16, 16), (0, 255), (40, 3), (7, 0)])
def test_fields_are_inserted(field):
    """Within the register by the CPU's own instructions, and beyond it by the machine's."""
    body = [".reg .b32 %t, %a, %b, %d;", ".reg .b64 %g, %x;", "mov.u32 %t, %tid.x;", "ld.param.u64 %x, [in];", "mad.wide.u32 %x, %t, 8, %x;",
            "ld.global.b32 %a, [%x];", "ld.global.b32 %b, [%x+4];", f"bfi.b32 %d, %a, %b, {field[0]}, {field[1]};", "ld.param.u64 %g, [out];",
            "mad.wide.u32 %g, %t, 4, %g;", "st.global.b32 [%g], %d;", "ret;"]  # fmt: skip
    data, result = np.random.default_rng(3).integers(0, 2**32, 128, dtype=np.uint32), np.zeros(64, np.uint32)
    done = simulate(kernel("\n".join(body), ".param .u64 out, .param .u64 in"), (1, 1, 1), (64, 1, 1), [result, data])
    assert done.engine == "native"
    position, length = field
    mask = ((1 << length) - 1) << position & 0xFFFFFFFF
    a, b = data.astype(object).reshape(64, 2).T
    assert result.tolist() == [int(y) & ~mask & 0xFFFFFFFF | int(x) << position & mask for x, y in zip(a, b, strict=True)]


def test_every_pattern_costs_the_same():
    """Loads of every width from random places: what compiled code remembers is what account.py says."""
    body = [".reg .b32 %t, %a, %s, %r<4>;", ".reg .b64 %x, %y;", ".shared .align 16 .b8 tile[4096];", "mov.u32 %t, %tid.x;",
            "mov.u32 %s, tile;", "ld.param.u64 %x, [in];"]  # fmt: skip
    for k in range(16):
        body += [
            "mad.wide.u32 %y, %t, 64, %x;",
            f"ld.global.u32 %a, [%y+{4 * k}];",
            "and.b32 %r0, %a, 4080;",
            "add.u32 %r0, %r0, %s;",
        ]
        vector = {0: "ld.shared.b32 %r1, [%r0];", 1: "ld.shared.v2.b32 {%r1,%r2}, [%r0];", 2: "ld.shared.v4.b32 {%r0,%r1,%r2,%r3}, [%r0];",
                  3: "st.shared.v2.b32 [%r0], {%a,%t};"}[k % 4]  # fmt: skip
        body += [
            vector,
            "cvt.u64.u32 %y, %r0;",
            "and.b64 %y, %y, 240;",
            "add.u64 %y, %y, %x;",
            "ld.global.u8 %r1, [%y+3];",
        ]
    places = np.random.default_rng(2).integers(0, 2**31, 64 * 16).astype(np.uint32)
    both(kernel("\n".join([*body, "ret;"]), ".param .u64 in"), (2, 1, 1), (32, 1, 1), [places], findings=False)


def test_values_that_stay_in_warps_across_barriers():
    source = """
    extern "C" __global__ void k(const float* in, float* out, int n) {
        __shared__ float s[256];
        float mine = in[threadIdx.x], sum = 0;
        for (int i = 0; i < n; i++) {
            s[threadIdx.x] = mine * i;
            __syncthreads();
            sum += s[(threadIdx.x * 7 + i) % blockDim.x];
            __syncthreads();
        }
        out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
    }"""
    data = np.random.default_rng(3).standard_normal(256).astype(np.float32)
    assert both(compile_source(source), (3, 1, 1), (192, 1, 1), [data, np.zeros(600, np.float32), 9]).findings == []


def test_overlapping_arrays():
    source = 'extern "C" __global__ void k(float* a, float* b) { int i = threadIdx.x; float x = a[i]; b[i] = x + 1; }'
    storage = [np.arange(96, dtype=np.float32) for _ in range(2)]
    for name, array in zip(("native", "numpy"), storage, strict=True):
        arrays = [array[:64], array[16:80]]  # a race, but the threads of a warp read before they write
        simulate(compile_source(source), (1, 1, 1), (32, 1, 1), arrays, collect=Collect(findings=False), engine=name)
    assert storage[0].tobytes() == storage[1].tobytes()


TWO_WAYS = """
extern "C" __global__ void k(float* c, int n, int fast) {
    float x = c[threadIdx.x];
    if (n & 1) c[32 + threadIdx.x] = x;
    if (fast) {
        #pragma unroll
        for (int i = 0; i < 100; i++) { x = x * 0.5f + i; c[64 + 32 * i + threadIdx.x] = x; }
    } else {
        #pragma unroll
        for (int i = 0; i < 100; i++) { x = x * x - i; c[64 + 32 * i + threadIdx.x] = x; }
    }
}"""


def test_launches_share_code_unless_it_would_be_much_longer(monkeypatch):
    monkeypatch.setattr(module, "LARGE", 0)
    compiled = compile_source(TWO_WAYS)
    made = native._made(load(compiled.ptx, compiled.symbol, compiled.filename))
    for n, fast, pieces in ((4, 1, 1), (5, 1, 1), (4, 0, 2), (7, 0, 2)):
        both(compiled, (1, 1, 1), (32, 1, 1), [np.ones(64 + 3200, np.float32), n, fast])
        assert len(made) == pieces
    assert all(len(options.fixed) == 1 for options in made)


def test_an_empty_array_needs_no_other_code():
    compiled = compile_source(CALIBRATION.replace("naive(", "empty_k("), "empty_k")
    made = native._made(load(compiled.ptx, compiled.symbol, compiled.filename))
    for k in (8, 0):
        a, b, c = np.ones((32, k), np.float32), np.ones((k, 32), np.float32), np.ones((32, 32), np.float32)
        both(compiled, (1, 1, 1), (32, 32, 1), [a, b, c, 32, 32, k])
        assert (c == 1).all()
    assert len(made) == 1


# --- what the NumPy machine has to explain -----------------------------------------------------------------------------

BUGS = {
    "race": """extern "C" __global__ void k(const float* a, float* c) { __shared__ float s[64]; int t = threadIdx.x;
        s[t] = a[t];
        c[t] = s[63 - t]; }""",
    "uninitialized": """extern "C" __global__ void k(const float* a, float* c) { __shared__ float s[64]; int t = threadIdx.x;
        if (t != 5) s[t] = a[t];
        __syncthreads(); c[t] = s[63 - t]; }""",
    "out-of-bounds": """extern "C" __global__ void k(const float* a, float* c) { int t = threadIdx.x;
        c[t] = a[t + 40]; }""",
    "divergent-barrier": """extern "C" __global__ void k(const float* a, float* c) { __shared__ float s[64]; int t = threadIdx.x;
        s[t] = a[t]; if (t >= 48) return;
        __syncthreads(); c[t] = s[t]; }""",
}  # fmt: skip


@pytest.mark.parametrize("kind", BUGS)
def test_findings_are_those_of_the_numpy_machine(kind):
    compiled = compile_source(BUGS[kind])
    found, arrays = [], []
    for name in (None, "numpy"):
        a, c = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
        outcome = simulate(compiled, (1, 1, 1), (64, 1, 1), [a, c], engine=name)
        assert outcome.engine == "numpy"
        found.append(outcome.findings)
        arrays.append(c.tobytes())
    assert found[0] == found[1] and arrays[0] == arrays[1]
    assert kind in {finding.kind for finding in found[0]}


def test_a_failed_attempt_leaves_no_trace_in_memory():
    """The last block reads outside; what earlier blocks added must not be added twice."""
    source = 'extern "C" __global__ void k(float* a, const float* b, int n) { int i = blockIdx.x * 32 + threadIdx.x; a[i] += b[i]; }'
    a, b = np.zeros(320, np.float32), np.ones(310, np.float32)
    outcome = simulate(compile_source(source), (10, 1, 1), (32, 1, 1), [a, b, 320])
    assert outcome.engine == "numpy" and [f.kind for f in outcome.findings] == ["out-of-bounds"]
    assert a[:310].tolist() == [1.0] * 310


def test_what_native_code_is_not_for():
    compiled = compile_source(CALIBRATION, "naive")
    a = np.ones((32, 32), np.float32)
    args = [a, a, np.zeros((32, 32), np.float32), 32, 32, 32]
    for more in ({"collect": Collect(trace=TraceFilter())}, {"budget": Budget(steps=10**9)}):
        assert simulate(compiled, (1, 1, 1), (32, 32, 1), args, **more).engine == "numpy"
        with pytest.raises(RunError, match="native engine cannot run"):
            simulate(compiled, (1, 1, 1), (32, 32, 1), args, engine="native", **more)


COUNTER = """extern "C" __global__ void k(int* total) {
    atomicAdd(total, 1);
}"""


@pytest.mark.parametrize("register", ["smid", "clock", "envreg1"])
def test_a_declined_launch_names_the_special_register(register):
    source = 'extern "C" __global__ void k(unsigned* o) {\n    asm volatile("mov.u32 %0, %%R;" : "=r"(*o));\n}'
    outcome = simulate(compile_source(source.replace("%%R", f"%%{register}")), (1, 1, 1), (32, 1, 1), [np.zeros(1, np.uint32)])
    assert outcome.engine_reason.startswith(f"the register %{register} in line 2")


def test_a_declined_launch_says_why_by_instruction_and_line(monkeypatch):
    compiled = compile_source(COUNTER)
    total = np.zeros(1, np.int32)
    outcome = simulate(compiled, (2, 1, 1), (32, 1, 1), [total])
    assert (outcome.engine, total[0]) == ("numpy", 64)
    assert re.fullmatch(r"`(atom|red)[.\w]*` in line 2", outcome.engine_reason)
    monkeypatch.setattr(launch, "LONG", outcome.seconds + 1)
    assert outcome.note == ""
    monkeypatch.setattr(launch, "LONG", outcome.seconds)
    assert outcome.note == f"Ran on the NumPy machine, which is slower, for {outcome.seconds:.0f} s: {outcome.engine_reason}."
    with pytest.raises(RunError, match="in line 2") as caught:
        simulate(compiled, (2, 1, 1), (32, 1, 1), [total], engine="native")
    assert caught.value.line == 2
    plain = compile_source(CALIBRATION, "naive")
    a = np.ones((32, 32), np.float32)
    args = [a, a, np.zeros((32, 32), np.float32), 32, 32, 32]
    assert simulate(plain, (1, 1, 1), (32, 32, 1), args).engine_reason == ""
    assert simulate(plain, (1, 1, 1), (32, 32, 1), args, engine="numpy").engine_reason == ""
    traced = simulate(plain, (1, 1, 1), (32, 32, 1), args, collect=Collect(trace=TraceFilter()))
    assert traced.engine_reason == "a trace is wanted"


ENDLESS = """
extern "C" __global__ void k(float* c, int n) {
    float x = 0;
    for (int i = 0; i != n; i += 2)
        x += c[i & 31];
    c[blockIdx.x * 32 + threadIdx.x] = x;
}"""


def test_a_run_that_does_not_end_is_stopped():
    c = np.ones(64 * 32, np.float32)
    simulate(compile_source(ENDLESS), (64, 1, 1), (32, 1, 1), [c.copy(), 0], engine="native")  # makes the code
    start = time.monotonic()
    with pytest.raises(RunError, match="had not ended after 0.5 seconds") as caught:
        simulate(compile_source(ENDLESS), (64, 1, 1), (32, 1, 1), [c, 1], budget=Budget(seconds=0.5), engine="native")
    assert time.monotonic() - start < 20
    assert caught.value.line in (4, 5)
    assert [finding.kind for finding in caught.value.findings] == ["endless"]
    assert c.tolist() == [1.0] * 64 * 32


def test_an_interrupt_stops_at_once(monkeypatch):
    """What the notebook's stop button does: the arrays stay as they were, and no thread goes on working."""
    compiled = compile_source(ENDLESS)
    c = np.ones(32, np.float32)
    simulate(compiled, (1, 1, 1), (32, 1, 1), [c.copy(), 2], collect=QUIET, engine="native")  # compiled before the clock starts
    wait = threading.Condition.wait

    def interrupted(self, timeout=None):
        wait(self, timeout)
        if timeout == workers.TURN_SECONDS:
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Condition, "wait", interrupted)
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        simulate(compiled, (8, 1, 1), (32, 1, 1), [c, 1], collect=QUIET, engine="native", budget=Budget(seconds=30))
    assert threading.active_count() == before
    assert c.tolist() == [1.0] * 32


def started_and_ended(thread, start=threading.Thread.start):
    start(thread)
    thread.join()


@pytest.mark.parametrize("start", [threading.Thread.start, started_and_ended], ids=["beside", "before the first look"])
def test_progress(start, monkeypatch):
    monkeypatch.setattr(threading.Thread, "start", start)
    compiled = compile_source(CALIBRATION, "naive")
    n = 256
    a = np.ones((n, n), np.float32)
    seen = []
    simulate(compiled, (8, 8, 1), (32, 32, 1), [a, a, np.zeros((n, n), np.float32), n, n, n], collect=QUIET,
             progress=lambda done, total: seen.append((done, total)), engine="native")  # fmt: skip
    assert seen == sorted(seen) and all(total == 64 and 0 < done <= 64 for done, total in seen)
    assert seen[-1] == (64, 64)


def test_sampled_blocks():
    compiled = compile_source(CALIBRATION, "naive")
    n = 128
    a = np.ones((n, n), np.float32)
    outcomes = [
        simulate(
            compiled,
            (4, 4, 1),
            (32, 32, 1),
            [a, a, np.zeros((n, n), np.float32), n, n, n],
            collect=Collect(blocks=[3, 9]),
            engine=e,
        )
        for e in ("native", "numpy")
    ]
    assert outcomes[0].sampled and outcomes[0].counters == outcomes[1].counters


# --- machine code on disk ----------------------------------------------------------------------------------------------


def test_damaged_object_code_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("GEMM_LADDER_HOME", str(tmp_path))
    engine.store("a kernel", engine.QUICK, {"counts": 3}, b"code")
    (file,) = (tmp_path / "cache" / "native").iterdir()
    assert engine.stored("a kernel", engine.QUICK) == ({"counts": 3}, b"code")
    assert engine.stored("a kernel", engine.GOOD) is None and engine.stored("another", engine.QUICK) is None
    for damage in (b"", file.read_bytes()[:-2], b"x" * len(file.read_bytes())):
        file.write_bytes(damage)
        assert engine.stored("a kernel", engine.QUICK) is None
    engine.store("a kernel", engine.QUICK, {}, b"code")
    assert engine.stored("a kernel", engine.QUICK) == ({}, b"code")


def test_code_kept_on_disk_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("GEMM_LADDER_HOME", str(tmp_path))
    compiled = compile_source(CALIBRATION.replace("coalesced(", "kept("), "kept")
    a = np.ones((64, 64), np.float32)
    args = [a, a, np.zeros((64, 64), np.float32), 64, 64, 64]
    first = both(compiled, (2, 2, 1), (32, 32, 1), args)
    native._made.cache_clear()
    monkeypatch.setattr(engine, "machine_code", lambda *_: pytest.fail("compiled again"))
    assert both(compiled, (2, 2, 1), (32, 32, 1), args).counters == first.counters


@pytest.mark.slow
def test_good_code_gives_the_same_results():
    compiled = compile_source(CALIBRATION, "tile2d")
    program = load(compiled.ptx, compiled.symbol, compiled.filename)
    prepared = native.prepare(program, native.options_for(program, (256, 1, 1), None, True))
    prepared.improve()
    assert prepared.good
    a, b = np.random.default_rng(4).standard_normal((2, 128, 128)).astype(np.float32)
    both(compiled, (1, 1, 1), (256, 1, 1), [a, b, np.zeros((128, 128), np.float32), 128, 128, 128], counters=False)


@pytest.mark.parametrize(("takes", "made"), [(0.0, True), (600.0, False)])
def test_better_code_is_made_where_the_run_has_longer_to_go_than_that_takes(takes, made, tmp_path, monkeypatch):
    monkeypatch.setenv("GEMM_LADDER_HOME", str(tmp_path))
    monkeypatch.setattr(native.Prepared, "seconds_to_improve", takes)
    monkeypatch.setattr(workers, "WORTH_SECONDS", 0.0)
    improved = threading.Event()
    monkeypatch.setattr(native.Prepared, "improve", lambda self: improved.set())
    compiled = compile_source(CALIBRATION.replace("naive(", f"left{made}("), f"left{made}")
    a, b = np.random.default_rng(4).standard_normal((2, 512, 512)).astype(np.float32)
    simulate(compiled, (16, 16, 1), (32, 32, 1), [a, b, np.zeros((512, 512), np.float32), 512, 512, 512], engine="native")
    assert improved.is_set() == made


@pytest.mark.parametrize(("k", "seconds", "winner"), [(8, 30.0, "numpy"), (40000, 0.5, "native")])
def test_a_large_kernel_is_compiled_while_the_numpy_machine_works(k, seconds, winner, tmp_path, monkeypatch):
    """A short run is over before it is compiled; a long one is overtaken. The results are the same."""
    monkeypatch.setenv("GEMM_LADDER_HOME", str(tmp_path))  # nothing is kept there
    monkeypatch.setattr(native, "seconds_to_make", lambda *_: seconds)
    name = f"race{k}"
    compiled = compile_source(CALIBRATION.replace("naive(", f"{name}("), name)
    a, b = np.random.default_rng(4).standard_normal((2, 32, k)).astype(np.float32)
    args = [a, b, np.zeros((32, 32), np.float32), 32, 32, k]
    outcome = simulate(compiled, (1, 1, 1), (32, 32, 1), args)
    assert outcome.engine == winner
    again = [a, b, np.zeros((32, 32), np.float32), 32, 32, k]
    expected = simulate(compiled, (1, 1, 1), (32, 32, 1), again, engine="native")
    assert args[2].tobytes() == again[2].tobytes()
    assert outcome.counters == expected.counters and outcome.by_line == expected.by_line


def test_processors_without_wide_vectors(monkeypatch):
    """The code for them calls its gathers; it runs here as well."""
    monkeypatch.setattr(engine, "wide_vectors", lambda: False)
    a, b = np.random.default_rng(4).standard_normal((2, 64, 64)).astype(np.float32)
    source = CALIBRATION.replace("tile2d(", "tile2d_narrow(")
    args = [
        np.ones((128, 128), np.float32),
        np.ones((128, 128), np.float32),
        np.zeros((128, 128), np.float32),
        128,
        128,
        128,
    ]
    both(compile_source(source, "tile2d_narrow"), (1, 1, 1), (256, 1, 1), args)
    both(
        compile_source(CALIBRATION.replace("naive(", "naive_narrow("), "naive_narrow"),
        (2, 2, 1),
        (32, 32, 1),
        [a, b, np.zeros((64, 64), np.float32), 64, 64, 64],
    )


def test_without_llvmlite(monkeypatch):
    monkeypatch.setattr(engine, "llvm", None)
    compiled = compile_source(CALIBRATION, "naive")
    a = np.ones((32, 32), np.float32)
    c = np.zeros((32, 32), np.float32)
    assert simulate(compiled, (1, 1, 1), (32, 32, 1), [a, a, c, 32, 32, 32]).engine == "numpy"
    assert (c == 32).all()


EXTREMES = """extern "C" __global__ void f(float* x) {
    float a = x[threadIdx.x], b = x[31 - threadIdx.x], c = x[threadIdx.x ^ 5], r;
    asm volatile("OPCODE.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(a), "f"(b), "f"(c));
    x[32 + threadIdx.x] = r;
}"""


@pytest.mark.parametrize(
    ("opcode", "meaning"),
    [
        ("min", np.fmin), ("max", np.fmax), ("min.NaN", np.minimum), ("max.ftz", np.fmax),
        ("min.abs", lambda a, b: np.fmin(abs(a), abs(b))), ("max.NaN.abs", lambda a, b: np.maximum(abs(a), abs(b))),
    ],
)  # fmt: skip
def test_the_least_and_the_most_of_three(opcode, meaning):
    x = np.concatenate([np.arange(-16, 16) * np.tile([1, -0.5], 16), np.zeros(32)]).astype(np.float32)
    x[[3, 9, 28]] = np.nan, -np.inf, np.nan
    lanes, a = np.arange(32), x[:32].copy()
    compiled = compile_source(EXTREMES.replace("OPCODE", opcode), arch="sm_100")
    assert both(compiled, (1, 1, 1), (32, 1, 1), [x]).findings == []
    simulate(compiled, (1, 1, 1), (32, 1, 1), [x])
    np.testing.assert_array_equal(x[32:], meaning(meaning(a, a[31 - lanes]), a[lanes ^ 5]))


def test_a_mistake_of_the_lowering_is_a_reason_for_the_numpy_machine_and_no_error(monkeypatch):
    monkeypatch.setitem(HANDLERS, "xor", HANDLERS["xor"]._replace(write=lambda low, i: [][1]))
    source = "__global__ void k(int* x, int n) { x[threadIdx.x] ^= n * x[0] + 98765; }"
    x = np.arange(32, dtype=np.int32)
    outcome = simulate(compile_source(source), (1, 1, 1), (32, 1, 1), [x, np.int32(3)])
    assert (x == np.arange(32) ^ 98765).all() and outcome.engine == "numpy"
    assert outcome.engine_reason == "no native code could be made of `xor.b32` (IndexError: list index out of range) in line 1"
