"""On a GPU: the same kernels give the same bits as in the SIMT machine, times are sane, errors are sentences."""

import gc
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from helpers.course import steps
from helpers.errors import LaunchError, RunError
from helpers.model import hardware
from helpers.model.occupancy import occupancy
from helpers.run import gemm, gpu, kernel, timing
from helpers.run.gemm import Problem
from helpers.run.gpu import launching
from tests.run.test_variable_values import ARGS
from tests.run.test_variable_values import SOURCE as VARIABLES
from tests.sim.layouts.test_struct_value import PRODUCT, TABLE, whole_numbers
from tests.sim.machine import test_exchanges as exchanges
from tests.sim.native.test_exchange import GROUPS, groups_apart

CODED = [step for step in steps.STEPS if step.entry and step.dtype == "float32"]
ON_TENSOR_CORES = [step for step in steps.STEPS if step.entry and step.dtype != "float32"]

# A register tile with transposed and vectorised shared-memory access: what ptxas merges, and FMA in a fixed order.
TILE = """
template <int BM, int BN, int BK, int TM, int TN>
__device__ void body(const float* A, const float* B, float* C, int N, int K) {
    __shared__ float As[BK][BM];
    __shared__ float Bs[BK][BN];
    constexpr int THREADS = BM * BN / (TM * TN);
    const int t = threadIdx.x, row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
    const int tr = t / (BN / TN) * TM, tc = t % (BN / TN) * TN;
    float acc[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = t; i < BM * BK / 4; i += THREADS) {
            const int r = i / (BK / 4), c = i % (BK / 4) * 4;
            const float4 v = *reinterpret_cast<const float4*>(&A[(row0 + r) * K + k0 + c]);
            As[c][r] = v.x; As[c + 1][r] = v.y; As[c + 2][r] = v.z; As[c + 3][r] = v.w;
        }
        for (int i = t; i < BN * BK / 4; i += THREADS) {
            const int r = i / (BN / 4), c = i % (BN / 4) * 4;
            *reinterpret_cast<float4*>(&Bs[r][c]) = *reinterpret_cast<const float4*>(&B[(k0 + r) * N + col0 + c]);
        }
        __syncthreads();
        for (int k = 0; k < BK; k++)
            for (int i = 0; i < TM; i++)
                for (int j = 0; j < TN; j++) acc[i][j] += As[k][tr + i] * Bs[k][tc + j];
        __syncthreads();
    }
    for (int i = 0; i < TM; i++)
        for (int j = 0; j < TN; j++) C[(row0 + tr + i) * N + col0 + tc + j] = acc[i][j];
}
extern "C" __global__ void tile2d(const float* A, const float* B, float* C, int N, int K) {
    body<64, 64, 8, 4, 4>(A, B, C, N, K);
}
"""


def both(source, grid, block, args, shared=0):
    """The arrays of `args` after a launch on the CPU, and after one on the GPU."""
    compiled = kernel.compile(source, arch=gpu.arch())
    results = []
    for on in ("cpu", "gpu"):
        mine = [value.copy() if isinstance(value, np.ndarray) else value for value in args]
        run = compiled.launch(grid, block, mine, shared, on=on)
        assert run.on == on
        results.append([value for value in mine if isinstance(value, np.ndarray)])
    return results


def same_bits(one, other):
    return all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True))


def matrices(*shapes, seed=0):
    random = np.random.default_rng(seed)
    return [random.uniform(-1, 1, shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("step", CODED, ids=lambda step: step.name)
def test_reference_kernels_agree_bit_for_bit(step):
    compiled = kernel.compile(step.kernel_path.read_text(), entry=step.entry, arch=gpu.arch())
    problems = [*gemm.adversarial(gemm.geometry(compiled).tile), Problem(128, 96, 80, alpha=0.7, beta=0.3)]
    for problem in problems:
        outcomes = []
        for on in ("cpu", "gpu"):
            arrays = problem.arrays()
            gemm.run(compiled, problem, on=on, arrays=arrays)
            outcomes.append(arrays)
        assert same_bits(*outcomes), f"{step.name} at {problem}"


@pytest.mark.parametrize("step", ON_TENSOR_CORES, ids=lambda step: step.name)
def test_reference_kernels_on_tensor_cores_are_right(step):
    """Within the bound of their types: single bits of a tensor core's sums are nobody's."""
    if int(gpu.arch().removeprefix("sm_")) < int(step.arch.removeprefix("sm_").rstrip("af")):
        pytest.skip(f"{step.name} needs {step.arch}")
    compiled = kernel.compile(step.kernel_path.read_text(), entry=step.entry, arch=step.target(gpu.arch()))
    report = gemm.check(compiled, on="gpu")
    assert report.on == "gpu" and report, report


def test_a_register_tile_agrees_bit_for_bit():
    a, b = matrices((128, 64), (64, 128))
    cpu, on_gpu = both(TILE, (2, 2), (256,), [a, b, np.zeros((128, 128), np.float32), 128, 64])
    assert same_bits(cpu, on_gpu)
    assert np.allclose(cpu[2], a @ b, atol=1e-4)


def test_arithmetic_agrees_bit_for_bit():
    source = """
    extern "C" __global__ void mix(const float* x, const float* y, float* z, int* n, int count) {
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= count) return;
        z[i] = fmaf(x[i], y[i], x[i] / (1.5f + y[i] * y[i])) + sqrtf(fabsf(x[i]));
        n[i] = (int)(x[i] * 1000.0f) % 37 - (i << 3) + __popc(i);
    }"""
    x, y = matrices(1000, 1000, seed=3)
    args = [x, y, np.zeros(1000, np.float32), np.zeros(1000, np.int32), 1000]
    assert same_bits(*both(source, 8, 128, args))


def test_lanes_with_different_masks_answer_among_themselves():
    x, out = np.random.default_rng(6).integers(0, 6, 64).astype(np.int32), np.zeros(1280, np.int32)
    kernel.compile(GROUPS).launch(1, 64, [x, out], on="gpu")
    np.testing.assert_array_equal(out, groups_apart(x))


@pytest.mark.parametrize("call", exchanges.CALLS)
@pytest.mark.parametrize("condition", exchanges.CONDITIONS)
def test_lanes_at_two_places_exchange_with_each_other(condition, call):
    given = exchanges.arrays()
    kernel.compile(exchanges.source(condition, call)).launch(1, 64, given, on="gpu")
    for found, expected in zip(given[2:], exchanges.exchanged(condition, call), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_more_than_48_kb_of_dynamic_shared_memory():
    source = """
    extern "C" __global__ void far_away(float* out, int last) {
        extern __shared__ float s[];
        for (int i = threadIdx.x; i <= last; i += blockDim.x) s[i] = i;
        __syncthreads();
        out[threadIdx.x] = s[last - threadIdx.x];
    }"""
    limit = hardware.capability(gpu.arch()).shared_per_block
    last = limit // 4 - 1
    cpu, on_gpu = both(source, 1, 64, [np.zeros(64, np.float32), last], limit)
    assert same_bits(cpu, on_gpu) and on_gpu[0][0] == last


def test_variables_hold_what_the_launch_gives_them():
    x = np.zeros(8, np.float32)
    blur = kernel.compile(VARIABLES, "blur")
    for mask, rounds in ((np.array([1, 2, 4], np.float32), 2), (np.array([3, 5, 7], np.float32), 3)):
        pair = np.array([(0.5, rounds)], [("a", "f4"), ("b", "i4")])
        given = {"mask": mask, "rounds": rounds, "by": [2, 3], "pair": pair}
        there, here = x.copy(), x.copy()
        run = blur.launch(1, 32, [there, 8], on="gpu", symbols=given)
        blur.launch(1, 32, [here, 8], on="cpu", symbols=given)
        assert there.tolist() == here.tolist() and there.any()
        assert run.remarks == () and run.counters["smsp__inst_executed.sum"] > 0
    there = x.copy()
    run = blur.launch(1, 32, [there, 8], on="gpu", symbols={"rounds": 0})
    assert "mask" in run.remarks[0]


@pytest.mark.parametrize("place", ["numpy", "cupy"])
def test_variables_hold_structs_with_arrays(place):
    library = np if place == "numpy" else pytest.importorskip("cupy")
    add = kernel.compile(ARGS.replace("args[2]", "args").replace("args[blockIdx.x]", "args"))
    a, b = library.arange(32, dtype=np.float32), library.ones(32, np.float32)
    run = add.launch(1, 32, [], on="gpu", symbols={"args": ((24, np.float64(2)), a, b)}, repeat=3 if place == "cupy" else None)
    assert b.tolist() == [1 + 2 * i * (i < 24) for i in range(32)], "once, however often it was timed"
    assert run.findings == [] and run.counters["smsp__inst_executed.sum"] > 0


def test_cupy_arrays_are_used_in_place_and_timing_leaves_them_alone():
    cupy = pytest.importorskip("cupy")
    source = 'extern "C" __global__ void add(float* x) { x[threadIdx.x] += 1; }'
    there, here = cupy.zeros(32, np.float32), np.zeros(32, np.float32)
    compiled = kernel.compile(source, arch=gpu.arch())
    run = compiled.launch(1, 32, [there], on="gpu", repeat=10)
    assert there.get().tolist() == [1.0] * 32, "the timed launches were taken back"
    assert run.milliseconds > 0 and run.timing.samples == 10 and "batch" in run.timing.method
    compiled.launch(1, 32, [here], on="gpu", repeat=10)
    assert here.tolist() == [1.0] * 32


def test_a_kernel_compiled_again_still_knows_its_registers(tmp_path, monkeypatch):
    source = steps.get("shared_tile").kernel_path.read_text()
    for folder in ("one", "two"):
        monkeypatch.setenv("GEMM_LADDER_HOME", str(tmp_path / folder))  # a cache of its own: really compiled twice
        compiled = kernel.compile(source, arch=gpu.arch())
        assert compiled.registers > 16 and compiled.shared_bytes == 8192


def test_the_device_is_in_the_table():
    mine, row = gpu.device(), hardware.gpu(gpu.device().name)
    assert mine.sms == row.sms
    assert mine.arch == row.arch
    assert mine.l2_bytes == pytest.approx(row.l2_bytes, rel=0.05)
    assert mine.clock_mhz == pytest.approx(row.clock_mhz, rel=0.05)


@pytest.mark.parametrize("threads", [32, 96, 256, 640, 1024])
@pytest.mark.parametrize("dynamic", [0, 3000, 20_000, 60_000])
def test_occupancy_is_what_the_driver_says(threads, dynamic):
    from cupy_backends.cuda.api import driver

    for step in CODED:
        compiled = kernel.compile(step.kernel_path.read_text(), entry=step.entry, arch=gpu.arch()).compiled
        function = launching.loaded(compiled, dynamic)
        expected = driver.occupancyMaxActiveBlocksPerMultiprocessor(function.ptr, threads, dynamic)
        got = occupancy(gpu.arch(), threads, compiled.registers, compiled.shared_bytes + dynamic)
        assert got.blocks_per_sm == expected, (step.name, got)


# ------------------------------------------------------------------------------------------------------ times


def test_cublas_is_right_and_as_fast_as_itself():
    if gpu.cublas_why_not():
        pytest.skip(gpu.cublas_why_not())
    import cupy

    problem = Problem(100, 70, 50, alpha=0.5, beta=2.0, pad_a=3, pad_b=1, pad_c=2)
    host = problem.arrays()
    a, b, c = (cupy.asarray(array) for array in host)
    gpu.cublas(100, 70, 50, 0.5, a, problem.lda, b, problem.ldb, 2.0, c, problem.ldc)()
    assert gemm.compare(problem, host, tuple(array.get() for array in (a, b, c))) == ""

    big = [cupy.asarray(array) for array in matrices((2048, 2048), (2048, 2048), (2048, 2048))]
    work = gpu.cublas(2048, 2048, 2048, 1.0, big[0], 2048, big[1], 2048, 0.0, big[2], 2048)
    work()
    right = big[2].get()
    gc.collect()  # what only the caller held must not matter
    [np.random.random(100) for _ in range(1000)]
    one, other = gpu.interleave({"one": work, "other": work}).values()
    assert (big[2].get() == right).all()
    assert one.milliseconds == pytest.approx(other.milliseconds, rel=0.05)
    tflops = 2 * 2048**3 / one.milliseconds / 1e9
    peak = hardware.gpu(gpu.device().name).peak_fp32_tflops
    assert 0.4 * peak < tflops < peak, "neither idle nor TF32"


def test_times_repeat_and_order_the_first_steps():
    naive, coalesced = (kernel.compile(steps.get(n).kernel_path.read_text(), arch=gpu.arch()) for n in (1, 2))
    slow, fast, again = (timing.time_gemm(k, Problem(1024, 1024, 1024)) for k in (naive, coalesced, coalesced))
    assert slow.kernel.milliseconds > 4 * fast.kernel.milliseconds
    assert fast.kernel.milliseconds == pytest.approx(again.kernel.milliseconds, rel=0.1)
    assert fast.kernel.clock_mhz is None or fast.kernel.clock_mhz > 500
    assert not fast.kernel.noisy, fast.kernel.noisy


def test_a_wrong_kernel_is_not_timed():
    source = steps.get(2).kernel_path.read_text()
    wrong = kernel.compile(source.replace("k < K", "k < K - 1"), arch=gpu.arch())
    with pytest.raises(RunError, match="wrong results"):
        timing.time_gemm(wrong, Problem(64, 64, 64))


# ------------------------------------------------------------------------------------------- what goes wrong


def in_another_process(code):
    """Run `code` where it may lose the GPU; returns what it printed."""
    program = "import numpy as np\nfrom helpers.run import gpu, kernel\nfrom helpers.errors import *\n" + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_access_out_of_bounds_says_where_to_look_and_the_cpu_goes_on():
    printed = in_another_process("""
        source = 'extern "C" __global__ void wild(float* x) { x[(size_t)threadIdx.x << 36] = 1; }'
        k = kernel.compile(source, arch=gpu.arch())
        try:
            k.launch(1, 32, [np.zeros(32, np.float32)], on="gpu")
        except RunError as error:
            print(error.message)
        print(gpu.available(), gpu.why_not())
        fine = kernel.compile('extern "C" __global__ void one(float* x) { x[threadIdx.x] = 1; }')
        x = np.zeros(32, np.float32)
        print(fine.launch(1, 32, [x]).on, x.sum())
    """)
    first, second, third = printed.strip().split("\n")
    assert "wild read or wrote memory outside its arrays" in first and "on='cpu'" in first
    assert second.startswith("False An earlier kernel") and "Restart" in second
    assert third == "cpu 32.0"


def test_a_kernel_that_does_not_end_in_time_is_given_up():
    printed = in_another_process("""
        import time
        from helpers.run.gpu import failures
        failures.wait.__defaults__ = (0.5,)
        source = '''extern "C" __global__ void spin(long long cycles, int* x) {
            const long long end = clock64() + cycles;
            while (clock64() < end) x[0] += 1;
        }'''
        k = kernel.compile(source, arch=gpu.arch())
        try:
            k.launch(1, 1, [4_000_000_000, np.zeros(1, np.int32)], on="gpu")
        except RunError as error:
            print(error.message)
        print(gpu.why_not())
        time.sleep(4)
        print(gpu.available())
    """)
    first, second, third = printed.strip().split("\n")
    assert "may never end" in first and "still running" in second and third == "True"


def test_a_launch_the_gpu_refuses_changes_nothing():
    compiled = kernel.compile('extern "C" __global__ void one(float* x) { x[0] = 1; }', arch=gpu.arch()).compiled
    with pytest.raises(LaunchError, match="not launched"):
        gpu.launch(compiled, (1, 1, 1), (2048, 1, 1), [np.zeros(1, np.float32)])
    x = np.zeros(1, np.float32)
    gpu.launch(compiled, (1, 1, 1), (1, 1, 1), [x])
    assert x[0] == 1


@pytest.mark.parametrize("there", [False, True], ids=["NumPy", "CuPy"])
def test_structs_and_tables_of_arrays(there):
    import cupy

    a, b, c = whole_numbers(5, 7), whole_numbers(7, 6), np.zeros((5, 6), np.float32)
    rows, out = list(whole_numbers(3, 32)), np.zeros(32, np.float32)
    put = cupy.asarray if there else np.asarray
    made, given, total = put(c), [put(row) for row in rows], put(out)
    kernel.compile(PRODUCT).launch(1, (8, 8), [(7, 5, put(a)), (6, 7, put(b)), (6, 5, made)], on="gpu", repeat=2)
    kernel.compile(TABLE).launch(1, 32, [given, 3, total], on="gpu")
    made, total = (cupy.asnumpy(array) if there else array for array in (made, total))
    assert np.array_equal(made, a @ b) and np.array_equal(total, sum(rows))
