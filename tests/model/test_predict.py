"""The model behaves like hardware should, and claims no more than it has shown.

Tests of: helpers.model.chain
"""

import math
import re
import tomllib
from dataclasses import replace

import numpy as np
import pytest

import helpers
from helpers.course import steps
from helpers.errors import CourseError
from helpers.model import chain, hardware, predict
from helpers.model.cycles.chip import figures
from helpers.model.predict import Constants, Demand, cycles, milliseconds
from helpers.run import gemm
from helpers.sim.counting import machine_code
from helpers.toolchain.compile import compile_source

H200 = hardware.gpu("H200 SXM")
PLAIN = Constants(request_cycles=0.5, global_latency=300.0, shared_latency=30.0, launch_microseconds=2.0, sharpness=8.0)
NOTHING = Demand(
    blocks=132, threads=256, registers=32, shared=0,
    requests=0, lookups=0, wavefronts=0, fp32_warps=0, instructions=0, rounds=0, loop=None, least_bytes=0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "unit", "expected"),
    [
        ({"lookups": 132_000}, "the load/store unit", 1000),
        ({"wavefronts": 132_000}, "the load/store unit", 1000),
        ({"requests": 132_000}, "the load/store unit", 500),
        ({"fp32_warps": 132_000}, "FP32 arithmetic", 250),
        ({"instructions": 132_000}, "instruction issue", 250),
        ({"local_stored": 132_000}, "L2 (stores to local memory, which all go through to it)", 2030),
        ({"local_stored": 132_000, "blocks": 33}, "L2 (stores to local memory, which all go through to it)", 4000),
        ({"fp64_warps": 132_000}, "FP64 arithmetic", 500),
        ({"special_warps": 132_000}, "the special function unit (XU)", 2000),
        ({"product": 132_000 * 64}, "FP32 arithmetic", 250),
        ({"product": 132_000 * 128, "dtype": "float16"}, "FP32 arithmetic", 250),
        ({"product": 989.4e9, "dtype": "float16", "matrix_types": frozenset({"f16"})}, "the tensor cores", 1.98e6),
        ({"product": 494.7e9, "dtype": "float32", "matrix_types": frozenset({"tf32"})}, "the tensor cores", 1.98e6),
        ({"least_bytes": 4.8e9 * figures()["device"]["rate"]}, "DRAM bandwidth", 1.98e6),
        ({"atomics": 1000}, "atomic operations in L2", 1000),
        ({"parts": 1000 / figures()["l2"]["part"]}, "L2 (sectors that are written in part)", 1000),
    ],
)
def test_each_unit_binds_alone(change, unit, expected):
    total, terms, _, _ = cycles(replace(NOTHING, **change), H200, PLAIN)
    assert total == pytest.approx(expected) == terms[unit]
    assert max(terms, key=terms.get) == unit


@pytest.mark.parametrize(
    ("slug", "says"),
    [
        ("coalesced", r"the load/store unit, busy for \d+% of the time with cache lines of global memory"),
        (
            "shared_tile",
            r"the load/store unit, busy for \d+% of the time: \d+% with wavefronts of shared memory, \d+% with cache lines of global",
        ),
        ("warp_tile", r"instruction issue, busy for 8\d% of the time"),
        ("thread_tile_2d", r"latency \(.*; the fullest unit is the load/store unit, busy for 6\d% of the time: \d+% with wavefronts .*"),
    ],
)
def test_a_limiter_says_how_busy_it_is(slug, says):
    kernel = helpers.reference(slug)
    assert re.fullmatch(says, gemm.count(kernel, gemm.Problem(4096, 4096, 4096)).predict("H200 SXM").limiter)


@pytest.mark.slow
def test_special_functions_are_named_where_they_limit():
    source = helpers.reference("vectorized").source.replace("sum[i][j] += a[i] * b[j]", "sum[i][j] += __expf(a[i] * b[j])")
    predicted = gemm.count(helpers.compile(source), gemm.Problem(2048, 2048, 64)).predict("H200 SXM")
    assert re.fullmatch(r"the special function unit \(XU\), busy for [89]\d% of the time", predicted.limiter), predicted.limiter


def test_where_some_multiprocessors_have_no_block_their_number_is_said_beside_the_occupancy():
    predicted = gemm.count(helpers.reference("vectorized"), gemm.Problem(1024, 1024, 64)).predict("H200 SXM")
    said = r"latency \(25% occupancy at most, 0\.24 waves: 64 of 132 multiprocessors have a block\).*"
    assert re.fullmatch(said, predicted.limiter) and "that have work" not in predicted.limiter, predicted.limiter


CLUSTERED = """#include <cooperative_groups.h>
__global__ void __cluster_dims__(4) k(const float* x, float* y) {
    float sum = 0;
    #pragma unroll 1
    for (int i = 0; i < 64; i++) sum += x[i * 256 + threadIdx.x];
    cooperative_groups::cluster_group::sync();
    y[blockIdx.x * 256 + threadIdx.x] = sum;
}"""


def test_clusters_that_a_launch_asks_for_are_those_that_a_kernel_declares():
    """30 clusters of 4 fit on an H200, which has room for 33, where a block keeps a multiprocessor for itself."""
    arrays, shared = [np.zeros(64 * 256, np.float32), np.zeros(128 * 256, np.float32)], 120 << 10
    declared = helpers.compile(CLUSTERED, arch="sm_90").launch(128, 256, arrays, shared, on="cpu")
    source = CLUSTERED.replace("__cluster_dims__(4) ", "")
    asked = helpers.compile(source, arch="sm_90").launch(128, 256, arrays, shared, cluster=4, on="cpu")
    predicted, other = declared.predict(), asked.predict()
    assert not predicted.from_counters and not other.from_counters
    assert predicted.milliseconds == pytest.approx(other.milliseconds, rel=0.02)
    for one in (predicted, other):
        assert "waves: 120 of 132 multiprocessors have a block, since clusters of 4 fit on no more)" in one.limiter, one.limiter
    beside = helpers.compile(CLUSTERED, arch="sm_90").launch(128, 256, arrays, on="cpu").predict()
    assert "128 of 132 multiprocessors have a block)" in beside.limiter, beside.limiter


def test_clusters_do_not_run_on_a_gpu_that_has_none():
    source = "__global__ void k(float* y) { y[blockIdx.x * 256 + threadIdx.x] = 1; }"
    run = helpers.compile(source, arch="sm_90").launch(128, 256, [np.zeros(128 * 256, np.float32)], cluster=2, on="cpu")
    assert run.predict().milliseconds
    with pytest.raises(CourseError, match=r"does not run on A100 .*clusters, which need compute capability 9\.0"):
        run.predict("A100")


@pytest.mark.slow
def test_uncoalesced_loads_are_told_from_shared_memory():
    """Lanes down the rows of A, in lesson 5: their cache lines keep the unit busy, beside shared memory."""
    source = helpers.reference("thread_tile_2d").source
    scattered = helpers.compile(source.replace("a_row = t / BK, a_k = t % BK;", "a_row = t % A_ROWS, a_k = t / A_ROWS;"))
    limiters = [
        gemm.count(kernel, gemm.Problem(4096, 4096, 4096)).predict("H200 SXM").limiter for kernel in (helpers.compile(source), scattered)
    ]
    before, after = (int(re.search(r"(\d+)% with cache lines", limiter)[1]) for limiter in limiters)
    assert before < 10 and after > 20


def test_a_unit_that_accepts_a_request_every_other_clock_takes_longer():
    need, ampere = replace(NOTHING, requests=84_000, blocks=84), hardware.gpu("RTX A6000")
    assert cycles(need, ampere, PLAIN)[1]["the load/store unit"] == pytest.approx(1500)


@pytest.mark.parametrize(
    ("row_bytes", "expected"),
    [(4, 1), (128, 32), (4096 * 4, 32), (4095 * 4, 8), (4097 * 4, 8), (64, 16), (500 * 4, 8), (0, 1)],
)
def test_a_column_of_a_matrix_waits_for_its_fullest_bank_or_its_tags(row_bytes, expected):
    column = np.arange(32)[None, :] * row_bytes + 65536
    assert machine_code.lookup_cycles(column, 4)[0] == pytest.approx(expected, abs=0.3)
    half = np.where(np.arange(32) < 16, column, -1)
    assert machine_code.lookup_cycles(half, 4)[0] == pytest.approx(max(1, expected / 2), abs=0.3)
    assert machine_code.lookup_cycles(np.full((1, 32), -1), 4)[0] == 0


def test_no_launch_moves_more_than_its_memory_can():
    """A copy, which is no matrix product: its bytes are those that its threads touch."""
    from helpers.course import recorded_launches

    run = recorded_launches.counted("copied_by_four", 4096)
    got = run.predict("H200 SXM")
    assert re.fullmatch(r"DRAM bandwidth, busy for \d+% of the time", got.limiter) and not got.from_counters
    assert 2 * 4096**2 * 4 / got.milliseconds * 1e3 <= 4800e9 * figures()["device"]["rate"]
    assert "kernels like this one (they move data, and have signatures of their own)" in got.error


@pytest.mark.slow
def test_a_launch_in_its_own_signature_takes_as_long_as_in_the_course_s():
    """The same product, once with all that the course hands over and once by its arrays and one number alone."""
    from helpers.course import recorded_launches
    from helpers.run import gemm
    from helpers.run.kernel import compile as compile_kernel

    own = recorded_launches.counted("product_tiled", 1024)
    source = recorded_launches.SOURCE.read_text(encoding="utf-8").replace(
        "product_tiled(const float* A, const float* B, float* C, int n) {",
        "product_tiled(int M, int N, int n, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C, int ldc) {",
    )
    source = 'extern "C" __device__ constexpr int block_shape[] = {32, 32, 1}, tile_shape[] = {32, 32};\n' + source
    given = compile_kernel(source, entry="product_tiled")
    product = gemm.count(given, gemm.problem_for(given, 1024, 1024, 1024))
    assert own.predict().milliseconds == pytest.approx(product.predict().milliseconds, rel=0.05)
    assert own.predict().states and f"({predict.in_a_sentence(predict.OTHERS)})" in own.predict().error
    assert own.predict().tflops is None and product.predict().tflops


def test_data_that_stays_in_l2_is_fetched_by_the_first_launch_alone():
    from helpers.course import recorded_launches

    small, large = (recorded_launches.counted("copied_by_four", size).predict() for size in (1024, 4096))
    rate = [2 * size**2 * 4 / (found.milliseconds * 1e-3) for found, size in ((small, 1024), (large, 4096))]
    launch = 2e-3
    assert 2 * 1024**2 * 4 / ((small.milliseconds - launch) * 1e-3) > 1.5 * rate[1], "8 MB of 50 that L2 has"


@pytest.mark.slow
def test_a_kernel_that_divides_has_its_time_by_cycles_and_says_what_it_takes_for_granted():
    from helpers.course import recorded_launches

    got = recorded_launches.counted("activated", 1024).predict()
    assert not got.from_counters and got.states and "taken to meet ordinary numbers" in got.error
    assert "ordinary numbers" not in recorded_launches.counted("copied", 1024).predict().error


def test_what_asks_as_fast_as_memory_answers_takes_longer_than_either():
    assert predict.together(3, 4, 2) == pytest.approx(5)
    assert predict.together(0, 4, 4) == predict.together(4, 0, 4) == 4
    assert predict.together(0, 0, 4) == 0
    assert predict.together(4, 4, 4) == pytest.approx(4 * 2**0.25)


def test_a_launch_of_many_blocks_begins_later_than_one_of_few():
    from helpers.course import recorded_launches

    few, many = (
        recorded_launches.counted("copied_by_four", size).predict(what_if={"launch.begun": each}) for size, each in ((1024, 0), (1024, 1.2))
    )
    assert many.milliseconds - few.milliseconds == pytest.approx(1.2 * 1024 / few.clock_mhz * 1e-3, rel=1e-6)


def test_slower_units_do_not_help_each_other():
    both = replace(NOTHING, lookups=132_000, fp32_warps=132_000)
    assert cycles(both, H200, PLAIN)[0] == pytest.approx(1000)


def test_one_block_more_than_fills_the_gpu_costs_a_turn():
    need = replace(NOTHING, blocks=264, lookups=264_000)
    more = replace(need, blocks=265, lookups=265_000)
    assert cycles(more, H200, PLAIN)[0] == pytest.approx(1.5 * cycles(need, H200, PLAIN)[0])


def test_a_launch_costs_something_even_if_it_does_nothing():
    assert milliseconds(NOTHING, H200, PLAIN) == pytest.approx(0.002)


def test_a_block_that_does_not_fit_is_refused_with_the_reason():
    with pytest.raises(CourseError, match="RTX 4090.*shared memory"):
        cycles(replace(NOTHING, shared=200_000), hardware.gpu("RTX 4090"), PLAIN)


@pytest.fixture(scope="module")
def loops():
    found = {}
    for name in ("naive", "shared_tile"):
        step = steps.get(name)
        found[name] = chain.main_loop(compile_source(step.kernel_path.read_text(), entry=step.entry))
    return found


def test_the_main_loop_is_read_off_the_machine_code(loops):
    tiled = loops["shared_tile"]
    assert (tiled.global_loads, tiled.barriers) == (2, 2)
    assert tiled.shared_loads >= 40, "32 loads of B, and 8 wide ones of A"
    plain = loops["naive"]
    assert plain.shared_loads == 0 and plain.barriers == 0
    assert plain.global_loads % 2 == 0


def test_loads_issued_together_wait_together(loops):
    plain = loops["naive"]
    alone = plain.cycles(1000, 30)
    assert 1000 < alone < plain.global_loads * 1000 / 2
    assert alone > plain.cycles(500, 30) > plain.cycles(0, 30) > plain.instructions - 1


def test_a_chain_that_depends_on_itself_pays_each_latency():
    source = """extern "C" __global__ void follow(const int* next, int* out, int n) {
        int at = threadIdx.x;
        #pragma unroll 4
        for (int i = 0; i < n; i++) at = next[at];
        out[threadIdx.x] = at;
    }"""
    loop = chain.main_loop(compile_source(source))
    assert loop.cycles(500, 30) >= 500 * loop.global_loads


def test_latency_binds_where_few_warps_wait(loops):
    need = replace(NOTHING, blocks=1, threads=32, rounds=100, loop=loops["naive"], lookups=3200)
    total, terms, _, _ = cycles(need, H200, PLAIN)
    assert max(terms, key=terms.get) == "latency" and total >= terms["latency"]
    crowd = replace(need, blocks=132 * 64, lookups=3200 * 33 * 132 * 64)
    assert max(cycles(crowd, H200, PLAIN)[1].items(), key=lambda item: item[1])[0] == "the load/store unit"


def test_the_constants_give_the_predictions_of_the_table():
    from helpers.run import gemm, kernel

    table = tomllib.loads(predict.CONSTANTS.read_text(encoding="utf-8"))
    constants = predict.fitted()
    for row in table["held_out"] + table["training"]:
        name, _, size = row["run"].split()
        step, n = steps.get(int(name[:2])), int(size.rstrip("³"))
        if n <= 1024:
            run = gemm.count(kernel.compile(step.kernel_path.read_text(), entry=step.entry), gemm.Problem(n, n, n))
            need = predict.demand(run)
            assert name in table["error"]["classes"][predict.kernel_class(need)]
            assert milliseconds(need, H200, constants) == pytest.approx(row["predicted"], rel=1e-3), (
                f"{row['run']}: run python -m helpers.course.fit"
            )


@pytest.mark.slow
def test_a_prediction_of_a_run_says_what_limits_it_and_how_wrong_it_may_be():
    from helpers.run import gemm, kernel

    times = {}
    for name in ("naive", "coalesced", "shared_tile"):
        step = steps.get(name)
        run = gemm.count(kernel.compile(step.kernel_path.read_text(), entry=step.entry), gemm.Problem(1024, 1024, 1024))
        got = run.predict(gpu="H200 SXM")
        times[name] = got.milliseconds
        like = "tiles in shared memory" if name == "shared_tile" else "global memory alone"
        assert f"kernels like this one ({like})" in got.error and not got.from_counters
        assert got.limiter and math.isfinite(got.milliseconds)
        assert got.tflops == pytest.approx(2 * 1024**3 / got.milliseconds / 1e9)
        assert run.predict(gpu="T4").milliseconds > got.milliseconds
    assert times["naive"] > 5 * times["coalesced"] and times["coalesced"] > times["shared_tile"]
    with pytest.raises(CourseError, match="no figures"):
        run.predict(gpu="abacus")


BY_DOUBLES = """
extern "C" __device__ constexpr int block_shape[] = {32, 32, 1}, tile_shape[] = {32, 32};
extern "C" __global__ void k(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C, int ldc) {
    __shared__ float As[32][32], Bs[32][32];
    float sum = 0;
    const int i = blockIdx.y * 32 + threadIdx.y, j = blockIdx.x * 32 + threadIdx.x;
    for (int t = 0; t < K / 32; t++) {
        As[threadIdx.y][threadIdx.x] = A[i * lda + t * 32 + threadIdx.x];
        Bs[threadIdx.y][threadIdx.x] = B[(t * 32 + threadIdx.y) * ldb + j];
        __syncthreads();
        for (int k = 0; k < 32; k++) sum += As[threadIdx.y][k] * Bs[k][threadIdx.x];
        __syncthreads();
    }
    C[i * ldc + j] = sum;
}"""
OF_A_STEP = (
    "        __syncthreads();\n    }",
    "        more = more * As[threadIdx.y][0] + Bs[0][threadIdx.x];\n        __syncthreads();\n    }",
)


@pytest.mark.parametrize(
    ("edits", "says"),
    [
        ([], "kernels like this one (tiles in shared memory), none of which it was fitted on"),
        ([("K / 32", "ceil(K / 32.0)")], "kernels like this one (tiles in shared memory), none of which it was fitted on"),
        ([("= sum;", "= 1.5 * sum;")], "kernels like this one (tiles in shared memory), none of which it was fitted on"),
        ([("float sum", "double sum"), ("+= As", "+= (double)As")], "they were float32 and this is float64)"),
        ([("float sum", "double sum")], "they were float32 and this is float64)"),
        ([("float sum = 0", "float sum = 0; double more = 0"), OF_A_STEP, ("= sum;", "= sum + more;")],
         "they were float32, and 3% of this one's arithmetic on floating-point numbers is float64)"),
    ],
)  # fmt: skip
def test_a_kernel_computes_in_float64_if_its_arithmetic_does(edits, says):
    """A loop's bound that is a double was taken for that."""
    source = BY_DOUBLES
    for old, new in edits:
        assert old in source
        source = source.replace(old, new)
    kernel = helpers.compile(source)
    assert says in gemm.count(kernel, gemm.problem_for(kernel, 256, 256, 256)).predict().error


@pytest.mark.slow
def test_wide_tiles_and_shared_atomics_are_like_no_recorded_kernel():
    """One was said to be like tiles in shared memory, the other like tiles in registers, with the machine code of its branch."""
    tiled = steps.get("shared_tile").kernel_source()
    wide = tiled.replace("__shared__ float As", "__shared__ double As").replace("__shared__ float Bs", "__shared__ double Bs")
    own = "sums[threadIdx.y * BN + threadIdx.x]"
    added = steps.get("coalesced").kernel_source().replace("float sum = 0;", f"__shared__ float sums[BM * BN];\n    {own} = 0;")
    added = added.replace("sum += a * b;", f"atomicAdd(&{own}, a * b);").replace("float& c =", f"const float sum = {own};\n    float& c =")
    for source, said in (
        (tiled, "kernels like this one (tiles in shared memory)"),
        (wide, "convert no float64"),
        (added, "are atomic operations on shared memory"),  # a loop in the machine code: known as written alone
    ):
        kernel = helpers.compile(source)
        text = gemm.count(kernel, gemm.problem_for(kernel, 1024, 1024, 1024)).predict().error
        assert said in text and "BRA" not in text, text
