"""Tensor cores in the model of time: what they multiply in a cycle, the clock that they leave, and kernels that feed them asynchronously."""

import functools
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from helpers.course import recorded_variants, steps, strategy, validate
from helpers.course.comparing import edited
from helpers.errors import CourseError
from helpers.model import hardware, predict, tensor_cores
from helpers.model.cycles.chip import chip
from helpers.model.cycles.estimate import estimate
from helpers.model.cycles.scheduled import matrix_cycles
from helpers.run import gemm, kernel

H200, A100 = hardware.gpu("H200 SXM"), hardware.gpu("A100 SXM4 40GB")
BF16, FP8 = frozenset({"bf16"}), frozenset({"e4m3"})


@functools.cache
def counted(slug, size, configuration="", **constants):
    step = steps.get(slug)
    source = edited(step.kernel_path.read_text(encoding="utf-8"), constants, slug)
    if configuration:
        source = strategy.sources(source, [configuration], "bfloat16")[configuration]
    made = kernel.compile(source, entry=step.entry, arch=step.target())
    return gemm.count(made, gemm.problem_for(made, size, size, size))


def test_what_a_multiprocessor_multiplies_in_a_cycle_is_a_power_of_two():
    assert [tensor_cores.fmas(H200, kinds) for kinds in (BF16, FP8, frozenset({"tf32"}))] == [2048, 4096, 1024]
    assert tensor_cores.fmas(A100, frozenset({"f16"})) == 1024 and hardware.gpu("T4").tensor_fmas("float16") == 512
    assert H200.tensor_fmas("int8") == 0
    for gpu in hardware.gpus():
        for name, rate in gpu.tensor_tflops.items():  # the clock of the stated rate is near the one of the table
            assert 0.8 < 2 * gpu.sms * gpu.tensor_fmas(name) * gpu.clock_mhz / 1e6 / rate < 1.25, (gpu.name, name)


def test_the_clock_falls_with_load_with_time_and_with_bits():
    def clock(load, microseconds=200.0, kinds=BF16, gpu=H200):
        return tensor_cores.clock_mhz(chip(gpu), load, microseconds, kinds)

    assert clock(0.1, 20.0) == pytest.approx(1815, abs=5), "as soon as they work"
    falling = [clock(load) for load in (0.2, 0.3, 0.5, 0.8, 0.95)]
    assert falling == sorted(falling, reverse=True) and falling[-1] == pytest.approx(1587, abs=35)
    assert clock(0.8, 20.0) > clock(0.8, 200.0) > clock(0.8, 5000.0) > clock(0.8, 1e6) == pytest.approx(1475, abs=10)
    assert clock(0.8, kinds=FP8) < clock(0.8)
    assert clock(0.8, gpu=A100) == A100.clock_mhz, "nobody measured it there"
    assert clock(0.0, 10_000) == clock(0.0, 10), "who mostly waits is nowhere near the limit of power"
    assert clock(0.31, 10_000) == pytest.approx(1610, rel=0.02), "measured: step 14 at 8192 (log, run 17)"
    assert 1.04 < clock(0.03, 10_000) / clock(0.22, 10_000) < 1.15


# Cycles of a block from its first instruction to its last, by a clock inside of the kernel on an H200 (kernels/LOG.md, runs 17 and 23).
MEASURED = {
    ("tma_wgmma", 2048): 48_500, ("tma_wgmma", 4096): 318_900, ("warp_specialized", 1024): 22_060, ("warp_specialized", 2048): 38_980,
    ("warp_specialized", 4096): 274_760, ("fp8", 2048): 26_620, ("fp8", 4096): 167_100,
}  # fmt: skip


@pytest.mark.parametrize(("slug", "size"), MEASURED)
def test_the_cycles_are_those_of_a_clock_inside_of_the_kernel(slug, size):
    found, why = estimate(counted(slug, size), H200)
    assert found is not None, why
    assert found.cycles == pytest.approx(MEASURED[slug, size], rel=0.07)


FENCED = {recorded_variants.ARRIVE: recorded_variants.ARRIVE_RELEASING}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("edits", "slower", "state"),
    [({"STAGES": 2}, 1.58, "long scoreboard"), (FENCED, 1.38, "membar")],
    ids=("two stages", "a fence for each arrival"),
)
def test_a_switch_of_the_lesson_moves_the_prediction_as_it_moved_the_kernel(edits, slower, state):
    """As measured on an H200 (28 November 2026); the others are in the table."""
    step = steps.get("warp_specialized")
    made = kernel.compile(edited(step.kernel_source(), edits, step.slug), entry=step.entry, arch=step.target())
    found = gemm.count(made, gemm.problem_for(made, 4096, 4096, 4096)).predict("H200 SXM")
    whole = counted("warp_specialized", 4096).predict("H200 SXM")
    assert found.milliseconds / whole.milliseconds == pytest.approx(slower, abs=0.15)
    assert found.states[state] > 0.15 + whole.states.get(state, 0.0)


def test_every_switch_of_the_lessons_is_in_the_table_and_ranked_as_measured():
    found = {row["run"]: row for row in predict.validation()["runs"]}
    for slug, switches in recorded_variants.VARIANTS.items():
        step = steps.get(slug)
        if step.number not in (16, 17):
            continue
        whole = found[f"{step.name} at 4096³"]
        for edits in switches:
            row = found[f"{recorded_variants.with_constants(step, edits)} at 4096³"]
            times = row["measured"] / whole["measured"], row["predicted"] / whole["predicted"]
            assert times[0] == pytest.approx(times[1], rel=0.2), row
            assert max(times) < 1.12 or min(times) > 1.03, row


BESIDE = """
extern "C" __global__ void scaled(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= 2; }
__device__ int twice(int v) { return 2 * v; }
"""


def test_another_kernel_of_the_cell_has_nothing_to_do_with_this_one_s_tensor_cores():
    source = steps.get("mma_sync").kernel_source() + BESIDE
    both = {entry: kernel.compile(source, entry=entry) for entry in ("scaled", "mma_sync")}
    assert {entry: made.compiled.matrix_types for entry, made in both.items()} == {"scaled": frozenset(), "mma_sync": {"bf16"}}
    run = both["scaled"].count((1,), (32,), [np.zeros(32, np.float32), np.int32(32)], blocks=[0])
    assert predict.kernel_class(predict.demand(run)) == predict.STREAMS and run.predict("H200 SXM").milliseconds > 0


@pytest.mark.slow
def test_products_of_warpgroups_are_never_waited_for_within_a_tile_that_l2_keeps_up_with():
    """Step 17 has 128 x 256 x 64 multiply-adds at a step, 1024 cycles of 2048; with tiles of 64 x 64 L2 is what it waits for."""
    found, why = estimate(counted("warp_specialized", 4096), H200)
    assert found is not None, why
    assert found.per_trip in (pytest.approx(1024, rel=0.01), pytest.approx(2048, rel=0.01)), "two steps in one trip"
    narrow = counted("warp_specialized", 2048, "64 × 64, alone")
    found, why = estimate(narrow, H200)
    assert found is not None, why
    steps_of_trip = round(2048 / 64 / found.trips)
    assert found.per_trip > 1.5 * steps_of_trip * 64 * 64 * 64 / 2048
    assert max(narrow.predict().states, key=lambda name: narrow.predict().states[name]) == "long scoreboard"


@pytest.mark.slow
def test_rows_that_begin_within_lines_cost_more():
    """As recorded: 437.6 and 650.4 us with tiles of 64 x 64 at 4096 and 4104."""
    even, odd = (counted("warp_specialized", size, "64 × 64, alone").predict().milliseconds for size in (4096, 4104))
    assert odd / even == pytest.approx(650.4 / 437.6, rel=0.1)


@pytest.mark.slow
def test_a_prediction_says_its_clock_its_error_and_what_limits():
    got = counted("warp_specialized", 4096).predict()
    assert got.limiter == "the tensor cores" and not got.from_counters and 1500 < got.clock_mhz < 1650
    assert f"at {got.clock_mhz:.0f} of 1980 MHz: this load lowers the clock" in str(got)
    assert "kernels like this one (tensor cores)" in got.error and "off by" in got.error
    assert "the error is unknown" in counted("warp_specialized", 1024).predict("H100 PCIe").error
    plain = steps.get("naive")
    made = kernel.compile(plain.kernel_path.read_text(encoding="utf-8"), entry=plain.entry)
    lanes = gemm.count(made, gemm.Problem(256, 256, 256)).predict()
    assert lanes.clock_mhz == H200.clock_mhz and "lowers the clock" not in str(lanes)


@pytest.mark.slow
def test_results_that_threads_store_take_longer():
    """As recorded: 177.8 and 202.8 us."""
    stored, sent = counted("warp_specialized", 4096, TMA_STORE=0).predict(), counted("warp_specialized", 4096).predict()
    assert stored.milliseconds / sent.milliseconds == pytest.approx(202.8 / 177.8, rel=0.05)


@pytest.mark.slow
def test_tiles_that_a_block_walks_overlap():
    """The next tile's stages arrive while this one's results leave: four tiles take less than four times one."""
    run = counted("warp_specialized", 4096)
    whole, why = estimate(run, H200)
    one, _ = estimate(counted("warp_specialized", 2048), H200)  # 128 tiles, of half the depth
    assert whole is not None and one is not None, why
    beside = 2 * one.cycles - 2 * 32 * 1024  # all but the products, twice
    assert whole.cycles < 4 * (64 * 1024 + beside / 2)


def test_warps_that_multiply_by_themselves_are_simulated():
    got = counted("mma_sync", 1024).predict()
    assert not got.from_counters and got.states and got.clock_mhz < 1980 and "the tensor cores" in got.terms
    assert sum(got.states.values()) == pytest.approx(1)


@pytest.mark.slow
def test_what_the_model_does_not_know_of_tensor_cores_it_says():
    shared = counted("warp_specialized", 1024, "32 × 64, alone, 8 slices").predict()
    assert shared.from_counters == "the model does not know blocks that share the tiles of C"
    assert shared.error.startswith(
        f"From the counters alone, since {shared.from_counters}. None of the kernels on which that was tried is "
    )
    beside = counted("warp_specialized", 512, "240 × 192").predict()  # three columns of tiles, by clusters of two
    assert beside.from_counters.startswith("the model does not know clusters of which a block lies outside of C")


# Step 16 with room for four stages, of which it uses two or one; and with a wait after each wgmma.
ONE_AHEAD = {
    "min(steps, STAGES - 1); k++) fetch(k);": "min(steps, 1); k++) fetch(k);",
    "if (t == 0 && k + STAGES - 1 < steps) fetch(k + STAGES - 1);": "if (t == 0 && k + 1 < steps) fetch(k + 1);",
}
ALL_DONE = {"wgmma_wait<1>();  // this": "wgmma_wait<0>();  // this"}
EACH_DONE = {"k + kk > 0);": "k + kk > 0), wgmma_commit(), wgmma_wait<0>(), wgmma_fence();"}


@functools.cache
def switched(slug, size, *edits):
    step = steps.get(slug)
    source = step.kernel_source()
    for old, new in edits:
        assert old in source
        source = source.replace(old, new)
    made = kernel.compile(source, entry=step.entry, arch=step.target())
    return gemm.count(made, gemm.problem_for(made, size, size, size))


@pytest.mark.slow
def test_stages_that_are_not_filled_ahead_do_not_hide_their_copies():
    """The room for four changes nothing where one is filled at a time: each step waits for L2's answer."""
    found = {
        name: estimate(switched("tma_wgmma", 4096, *edits.items()), H200)[0].cycles
        for name, edits in (("", {}), ("two", ONE_AHEAD), ("one", ONE_AHEAD | ALL_DONE), ("rests", ALL_DONE))
    }
    assert found[""] < found["rests"] < found["two"] < found["one"]
    assert found["one"] > 1.5 * found[""], "and none begins before its products have ended"


@pytest.mark.slow
def test_a_wait_after_each_wgmma_costs_more_than_one_after_a_step():
    times = [switched("tma_wgmma", 2048, *edits.items()).predict().milliseconds for edits in ({}, ALL_DONE, EACH_DONE)]
    assert times[0] * 1.05 < times[1] and times[1] * 1.02 < times[2]


@pytest.mark.slow
def test_bank_conflicts_of_results_that_leave_cost_their_wavefronts():
    """An stmatrix of 512 bytes has 32 wavefronts for 4: 64 of them 1792 cycles more, of which the other consumer's hide a part."""
    run = switched(
        "warp_specialized", 1024, ("(piece ^ r % 8) * 16", "piece * 16"), ("box_C[] = {C_ROWS, 64, 128}", "box_C[] = {C_ROWS, 64, 0}")
    )
    conflicts, without = (estimate(one, H200)[0].cycles for one in (run, counted("warp_specialized", 1024)))
    assert 500 < conflicts - without < 256 * 128 * 2 // 512 * 28


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "measured"), [((128, 128, 16384), 0.151392), ((100, 100, 10000), 0.112592), ((16, 4096, 4096), 0.0415168)]
)
def test_a_tile_takes_as_long_where_most_of_it_lies_outside_of_c(shape, measured):
    """As recorded on an H200 with the strategy table: the rows of a tile that C lacks are multiplied like the others."""
    step = steps.get("warp_specialized")
    made = kernel.compile(step.kernel_source(), entry=step.entry, arch=step.target())
    got = gemm.count(made, gemm.problem_for(made, *shape)).predict("H200 SXM")
    steps_of_k = -(-shape[2] // 64)
    assert got.milliseconds > steps_of_k * 256 * 128 * 64 / tensor_cores.fmas(H200, BF16) / H200.clock_mhz / 1e3
    assert got.milliseconds == pytest.approx(measured, rel=0.2)


def test_blocks_that_share_a_tile_share_its_products():
    need = predict.demand(counted("warp_specialized", 1024, "32 × 64, alone, 8 slices"))
    assert need.slices == 8 and need.on_tiles == 2 * 1024**3
    alone, shared = (
        predict.cycles(replace(need, blocks=8, slices=slices), H200, predict.fitted())[1][tensor_cores.TENSOR_UNIT] for slices in (1, 8)
    )
    assert alone == pytest.approx(8 * shared)


@pytest.mark.slow
def test_a_limiter_says_how_few_multiprocessors_have_work():
    few = " (on the {} of 132 multiprocessors that have work)"
    assert counted("mma_sync", 2048).predict().limiter == "the tensor cores" + few.format(128)
    assert " waves: 32 of 132 multiprocessors have a block);" in counted("warp_specialized", 1024).predict().limiter
    said = counted("warp_specialized", 512).predict().limiter
    assert (
        said.startswith("latency")
        and " waves: 8 of 132 multiprocessors have a block);" in said
        and re.search(r"the fullest unit is the tensor cores, busy for \d\d% of the time$", said)
    )
    assert "multiprocessors" not in counted("warp_specialized", 2048, "64 × 64, alone").predict().limiter
    naive = steps.get("thread_tile_2d")
    made = kernel.compile(naive.kernel_source(), entry=naive.entry)
    said = gemm.count(made, gemm.Problem(512, 512, 512)).predict().limiter
    assert " waves: 16 of 132 multiprocessors have a block);" in said or said.endswith(few.format(16))


@pytest.mark.parametrize(
    ("name", "modifiers", "gpu", "expected"),
    [
        ("HMMA", {"16816", "F32", "BF16"}, H200, (6.5, 4)), ("HMMA", {"1688", "F32"}, H200, (4.5, 2)),
        ("HMMA", {"1688", "TF32"}, H200, (6.5, 4)),
        ("HMMA", {"16816", "F32"}, A100, (8, 8)), ("HGMMA", {"64x256x16", "F32", "BF16"}, H200, (128, 128)), ("DMMA", {"884"}, H200, None),
        ("HGMMA", {"64x64x16", "SP", "F16"}, H200, None),
        ("IMMA", {"16832", "S8"}, H200, None), ("HMMA", {"16816", "F32", "BF16"}, hardware.gpu("T4"), None),
    ],
)  # fmt: skip
def test_a_matrix_instruction_keeps_its_tensor_core_busy(name, modifiers, gpu, expected):
    instruction = SimpleNamespace(name=name, modifiers=sorted(modifiers), has=lambda *asked: bool(modifiers & set(asked)))
    assert matrix_cycles(instruction, chip(gpu)) == expected


@pytest.mark.slow
def test_the_claims_about_tensor_cores_hold():
    """Of what took no part in choosing any figure, and of another GPU."""
    table = predict.validation()
    assert table["tensor_steps_at_other_sizes"]["runs"] >= 14 and table["tensor_other_constants"]["runs"] >= 60
    for group in ("tensor_fitted", "tensor_steps_at_other_sizes", "tensor_other_constants", "tensor_other_gpu"):
        assert table[group]["mean"] <= 0.08 and table[group]["worst"] <= 0.3, group
    named = {row["run"] for row in table["runs"] if row["class"] == predict.TENSOR_CORES}
    cases = [case for case in validate.cases() if case.group in validate.TENSOR_GROUPS]
    assert named == {case.label for case in cases}, "run: python -m helpers.course.validate"


@pytest.mark.parametrize("slug", ["mma_sync", "warp_specialized"])
def test_the_table_is_what_the_model_says_of_tensor_cores(slug):
    row = next(row for row in predict.validation()["runs"] if row["run"] == f"{steps.get(slug).name} at 1024³")
    assert counted(slug, 1024).predict().milliseconds == pytest.approx(row["predicted"], rel=1e-3), "run: python -m helpers.course.validate"


def _asm(shape: str, types: str, c: str, a: int, b: int) -> str:
    """A statement with one matrix instruction, all of whose operands are `x`. c, a, b: how many registers each has."""
    sums = ", ".join(f'"+{c}"(d{c}[{i}])' for i in range(4))
    operands = ["{" + ", ".join(["%4"] * count) + "}" for count in (a, b)]
    d = "{%0, %1, %2, %3}"
    return f'asm volatile("mma.sync.aligned.{shape}.row.col.{types} {d}, {operands[0]}, {operands[1]}, {d};" : {sums} : "r"(x));'


F32, SHALLOW = _asm("m16n8k16", "f32.f16.f16.f32", "f", 4, 2), _asm("m16n8k8", "f32.f16.f16.f32", "f", 2, 1)
INT8 = _asm("m16n8k32", "s32.s8.s8.s32", "r", 4, 2)
F16 = (
    'asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %2, %2, %2}, {%2, %2}, {%0, %1};" '
    ': "+r"(dr[0]), "+r"(dr[1]) : "r"(x));'
)
OWN = """#include <cstdio>
extern "C" __global__ void own(const int* a, float* y, int n) {
    float df[4] = {};
    int dr[4] = {}, x = a[threadIdx.x];
    BEFORE
    for (int i = 0; i < n; i++) {
        BODY
    }
    y[threadIdx.x] = df[0] + dr[0];
}"""


def own(body: str, before: str = ""):
    made = kernel.compile(OWN.replace("BODY", body).replace("BEFORE", before), arch="sm_90")
    return made.launch(1, 32, [np.ones(32, np.int32), np.zeros(32, np.float32), 3], on="cpu")


def test_a_kernel_that_multiplies_in_its_own_signature_has_a_time():
    assert own(F32).predict().milliseconds > 0


@pytest.mark.parametrize(
    ("body", "before", "said"),
    [
        (F32, 'if (threadIdx.x == 0) printf("%d", n);', ["how many HMMA it executes is not known", "The call is its printf: leave it out"]),
        (F32, "n = a[0];", ["how many HMMA it executes is not known"]),
        (F32 + SHALLOW, "", ["its HMMA are of several shapes (16816, 1688)"]),
        (INT8, "", ["matrix instructions IMMA", "The course has no products of s8 either"]),
    ],
    ids=["printf", "data", "shapes", "integers"],
)
def test_why_it_is_not_known_what_a_kernel_asks_of_tensor_cores(body, before, said, capsys):
    with pytest.raises(CourseError) as caught:
        own(body, before).predict()
    assert all(text in caught.value.message for text in said), caught.value.message
    assert ("several shapes" in caught.value.message) == (body == F32 + SHALLOW)
    assert ("The course's signature (lesson 20)" in caught.value.message) == (body != INT8)


def test_sums_in_fp16_are_told_where_a_gpu_does_them_twice_as_fast():
    line = OWN.split("\n").index("        BODY") + 1
    run = own(F16)
    assert run.kernel.compiled.float16_sums == ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", line)
    assert own(F32).kernel.compiled.float16_sums is own(INT8).kernel.compiled.float16_sums is None
    said = f"It keeps sums in FP16 at line {line}, with which the tensor cores of an RTX 4090 multiply 2 times as fast"
    assert said in str(run.predict("RTX 4090")) and "sums in FP16" not in str(run.predict("H200 SXM"))
    assert "sums in FP16" not in str(own(F32).predict("RTX 4090"))
    assert {gpu.name for gpu in hardware.gpus() if gpu.float16_sums != 1} == {
        gpu.name for gpu in hardware.gpus() if gpu.name.startswith("RTX") and gpu.name != "RTX A6000"
    }


ROUNDS = """#include <mma.h>
using namespace nvcuda;
extern "C" __device__ constexpr int block_shape[] = {32, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {16, 16};
extern "C" __global__ void rounds(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C,
                                  int ldc) {
    __shared__ __align__(32) half a[16][16], b[16][16];
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int k = 0; k < K; k += 16) {
        for (int i = threadIdx.x; i < 256; i += 32) {
            a[i / 16][i % 16] = __float2half(A[size_t(16 * blockIdx.y + i / 16) * lda + k + i % 16]);
            b[i / 16][i % 16] = __float2half(B[size_t(k + i / 16) * ldb + 16 * blockIdx.x + i % 16]);
        }
        __syncwarp();
        wmma::load_matrix_sync(left, &a[0][0], 16);
        wmma::load_matrix_sync(right, &b[0][0], 16);
        wmma::mma_sync(sum, left, right, sum);
        __syncwarp();
    }
    wmma::store_matrix_sync(C + size_t(16 * blockIdx.y) * ldc + 16 * blockIdx.x, sum, ldc, wmma::mem_row_major);
}"""


def test_a_product_of_floats_that_rounds_them_to_halves_has_a_time():
    """It is one pass, whose matrix instructions are counted; step 18, which makes one of several, is not told what it asks for."""
    run = gemm.count(kernel.compile(ROUNDS), gemm.Problem(256, 256, 256))
    assert predict.demand(run).product == 2 * 256**3
    assert run.predict("H200 SXM").from_counters == ""
