"""Times of whole launches, from the way of one block's warps.

Tests of: helpers.course.validate, helpers.model.cycles.scheduled
"""

import math
import tomllib
from fractions import Fraction

import numpy as np
import pytest

from helpers.course import recorded_launches, recorded_states, recorded_variants, steps, validate
from helpers.course.comparing import edited
from helpers.model import hardware, predict
from helpers.model.cycles import estimate as estimates
from helpers.model.cycles.chip import chip
from helpers.model.cycles.estimate import estimate, from_dram, main_loop
from helpers.model.cycles.multiprocessor import WORDS, WarpState
from helpers.run import gemm, kernel
from helpers.run.gpu import event_timing
from helpers.sim.counting.machine_code import Visit
from tests.sim.counting.machine_code.test_block_paths import HANDS_ON

H200 = hardware.gpu("H200 SXM")


def counted(slug, size, **constants):
    from helpers.course.sweep import variant

    step = steps.get(slug)
    source = step.kernel_path.read_text(encoding="utf-8")
    made = kernel.compile(variant(source, **constants) if constants else source, entry=step.entry)
    return gemm.count(made, gemm.problem_for(made, size, size, size))


def test_the_main_loop_is_the_repetition_with_the_most_instructions():
    def visits(text):
        return [Visit(10 * "abcdef".index(c), 10 * "abcdef".index(c) + 10, 1, {}) for c in text]

    loop = main_loop(visits("a" + "bcc" * 6 + "f"))
    assert (loop.first, loop.length, loop.trips, loop.size) == (1, 3, 5, 30)
    assert main_loop(visits("abcdef")) is None
    in_turn = main_loop(visits("a" + "bcdbdebce" * 5 + "f"))  # three stages, and a branch for two of them each
    assert (in_turn.first, in_turn.length, in_turn.trips, in_turn.size, in_turn.period) == (1, 9, 4, 90, 3)


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_warps_that_hand_on_at_named_barriers_have_a_time(stages):
    """Both go round as often, also where the loop of one is unrolled; who has a second stage does not wait for the first one."""
    made = kernel.compile(HANDS_ON.replace("STAGES", str(stages)))
    run = made.launch(1, 64, [np.zeros(64 * 32, np.float32), np.zeros(32, np.float32), 64], on="cpu")
    found, why = estimate(run, H200)
    assert found is not None, why
    one_after_the_other, at_once = 780, 640  # a load from L2, its way through shared memory, and 32 loads from there
    assert found.per_trip == pytest.approx(one_after_the_other if stages == 1 else at_once, rel=0.1)
    assert found.states[WarpState.BARRIER] > 0.25


def test_a_barrier_of_a_number_of_threads_in_a_register_waits_for_all_of_the_block():
    made = kernel.compile("""__global__ void k(float* y, int n, int threads) {
        float x = y[threadIdx.x];
        for (int t = 0; t < n; t++) {
            if (threadIdx.x >= 32) for (int i = 0; i < 64; i++) x = x * x + t;
            asm volatile("bar.sync 1, %0;" :: "r"(threads) : "memory");
        }
        y[threadIdx.x] = x;
    }""")
    found, why = estimate(made.launch(1, 64, [np.zeros(64, np.float32), 32, 64], on="cpu"), H200)
    assert found is not None, why
    assert found.states[WarpState.BARRIER] > 0.3, "half of its warps wait for the others"


def test_warps_that_would_wait_for_ever_have_no_time_by_cycles():
    """Which barrier the producers come to is told by data, here."""
    made = kernel.compile(HANDS_ON.replace("STAGES", "2").replace("come(1 + s)", "come(int(x[0]) + s)", 1))
    run = made.launch(1, 64, [np.ones(64 * 32, np.float32), np.zeros(32, np.float32), 64], on="cpu")
    found, why = estimate(run, H200)
    assert found is None and "wait for each other at barriers" in why


def test_loops_of_other_warps_go_round_with_the_main_loop():
    def visits(text, warps, **barriers):
        return [Visit(10 * "abcdef".index(c), 10 * "abcdef".index(c) + 10, warps, {}, barriers) for c in text]

    consumes, produces = visits("b" * 33, 2, at=1), visits("a", 1) + visits("c" * 9, 1, at=1)
    loop = main_loop(consumes + produces)
    assert (loop.trips, [(each.trips, each.often) for each in loop.beside]) == (32, [(8, Fraction(1, 4))])
    assert loop.size == 10 + 10 / 4
    assert not main_loop(consumes + visits("c" * 9, 2, at=1)).beside, "the same warps"
    assert not main_loop(consumes + visits("c" * 9, 1)).beside, "they do not meet"


GROUPS = """
__global__ void __launch_bounds__(128) multiply(const unsigned* x, float* y, int n) {
    __shared__ alignas(1024) unsigned tile[2048];
    const unsigned at = (unsigned)__cvta_generic_to_shared(tile);
    const unsigned long long where = (at & 0x3ffff) >> 4 | 8ull << 16 | 16ull << 32;
    float c[4] = {};
    #pragma unroll 1
    for (int t = 0; t < n; t++) {
        for (int k = 0; k < 8; k++) tile[128 * k + threadIdx.x] = x[1024 * t + 128 * k + threadIdx.x];
        __syncthreads();
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int k = 0; k < EACH; k++)
            asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %4, p, 1, 1, 0, 0; }"
                         : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "l"(where));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        __syncthreads();
    }
    for (int k = 0; k < 4; k++) y[4 * threadIdx.x + k] = c[k];
}"""


def test_products_of_warpgroups_that_wait_for_no_bulk_copy_have_a_time():
    """Eight products more take as much longer as tensor cores have to multiply."""
    per_trip = []
    for each in (8, 16):
        made = kernel.compile(GROUPS.replace("EACH", str(each)), arch="sm_90a")
        run = made.launch(1, 128, [np.zeros(16 * 1024, np.uint32), np.zeros(512, np.float32), 16], on="cpu", findings=False)
        found, why = estimate(run, H200)
        assert found is not None, why
        per_trip.append(found.per_trip)
    assert per_trip[1] - per_trip[0] == pytest.approx(8 * 64 * 8 * 16 / H200.tensor_fmas("float16"), rel=0.3)
    assert per_trip[0] > chip(H200)["latency.l2"] + chip(H200)["tensor.warpgroup"]


@pytest.fixture(scope="module")
def table():
    return tomllib.loads(predict.VALIDATION.read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", validate.launches()[::7], ids=lambda case: case.label)
def test_launches_in_their_own_signature_are_what_the_model_says(case, table):
    (row,) = [row for row in table["runs"] if row["run"] == case.label]
    assert (row["measured"], row["fitted"]) == (case.measured, case.fitted), "run: python -m helpers.course.validate"
    assert validate.tried(case).predicted == pytest.approx(row["predicted"], rel=1e-3), "run: python -m helpers.course.validate"


CHASED = """
extern "C" __global__ void chased(const int* a, int* o, int n) {
    int s = 0;
    #pragma unroll 1
    for (int i = 0; i < n; i++) s = a[s];
    o[0] = s;
}
"""
GATHERED = """
extern "C" __global__ void gathered(const float* a, const int* p, float* b) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int from = p[i];
    b[i] = a[from];
}
"""


def test_a_load_from_where_another_one_says_waits_for_it():
    """Each of them at least as long as L2 takes; without them a trip is ten cycles long."""
    ring = np.roll(np.arange(4096, dtype=np.int32), -37)
    run = kernel.compile(CHASED).launch(1, 1, [ring, np.zeros(1, np.int32), 1000], on="cpu")
    found, why = estimate(run, H200)
    assert not why and found.by_data
    assert chip(H200)["latency.l2"] < found.cycles / 1000 < 3 * chip(H200)["latency.l2"]
    assert "loads from where other data say" in run.predict("H200 SXM").error


def test_lanes_that_load_from_anywhere_ask_l2_for_a_sector_each():
    size = 1 << 18
    places = {"anywhere": np.random.default_rng(0).permutation(size), "in a row": np.arange(size)}
    times = {}
    for name, at in places.items():
        args = [np.zeros(size, np.float32), at.astype(np.int32), np.zeros(size, np.float32)]
        run = kernel.compile(GATHERED).launch(size // 256, 256, args, on="cpu")
        times[name] = estimate(run, H200)[0].cycles
    assert times["anywhere"] > 1.5 * times["in a row"]


WIDE = """
extern "C" __global__ void k(const float* B, float* out, float x, int n, int ld) {
    const int col = threadIdx.x;
    float sum = 0, s[4] = {};
    for (int k = 0; k < n; k++) {
        sum += B[k * ld + col];
        #pragma unroll
        for (int j = 0; j < MORE; j++) asm volatile("add.f32 %0,%0,%1;" : "+f"(s[j & 3]) : "f"(x));
    }
    out[threadIdx.x] = sum + s[0] + s[1] + s[2] + s[3];
}
"""


@pytest.mark.parametrize(("more", "measured"), [(0, 6.24), (1, 7.33), (2, 8.39), (4, 10.18), (6, 12.32)])
def test_an_address_that_is_multiplied_keeps_everybody_from_issuing(more, measured):
    """Cycles of a sub-partition for each trip of eight warps: an IMAD.WIDE, a load that L1 has, an addition, and so many more of these
    (kernels/LOG.md, run 32)."""
    trips = 3200
    made = kernel.compile(WIDE, arch="sm_90", options=(f"-DMORE={more}",))
    zeros = np.zeros(1024, np.float32)
    run = made.count((1,), (1024,), [zeros, zeros, np.float32(0), np.int32(trips), np.int32(0)], blocks=[0])
    found, why = estimate(run, H200)
    assert not why
    assert found.cycles / trips / 8 == pytest.approx(measured, rel=0.05)


@pytest.mark.slow
def test_slices_that_end_at_once_cost_little():
    """At 3072 step 12 has no room for the sums of eight slices, and the first of each tile does all: as long as without slices."""
    sliced, plain = (counted("autotune", 3072, SLICES=slices).predict("H200 SXM").milliseconds for slices in (8, 1))
    assert plain < sliced < 1.1 * plain


@pytest.mark.slow
def test_a_kernel_that_spills_waits_for_its_stores(table):
    """All stores to local memory go through to L2, so a block more on a multiprocessor costs three quarters of the speed."""
    step, bound = steps.get("thread_tile_2d"), recorded_variants.BOUND
    source = edited(step.kernel_source(), {f"{bound}, 2)": f"{bound}, 3)"}, step.name)
    spilling = kernel.compile(source, entry=step.entry)
    got = gemm.count(spilling, gemm.problem_for(spilling, 2048, 2048, 2048)).predict("H200 SXM")
    row = next(row for row in table["runs"] if row["run"] == f"{step.name} with {bound}, 3) at 2048³")
    assert got.milliseconds == pytest.approx(row["predicted"], rel=1e-3), "run: python -m helpers.course.validate"
    assert row["class"] == predict.SPILLS and "kernels like this one (they keep much in local memory)" in got.error
    assert 0.2 < counted("thread_tile_2d", 2048).predict("H200 SXM").milliseconds / got.milliseconds < 0.28
    assert set(list(got.states)[:2]) == {"lg throttle", "long scoreboard"}


@pytest.mark.slow
def test_an_array_whose_index_is_known_late_is_slow(monkeypatch):
    step, loop = steps.get("vectorized"), "#pragma unroll\n                for (int j = 0; j < TN; j++) sum"
    late = kernel.compile(edited(step.kernel_source(), {loop: loop.replace("unroll", "unroll 1")}, step.name), entry=step.entry)
    run = gemm.count(late, gemm.problem_for(late, 256, 256, 256))
    got = run.predict("H200 SXM")
    whys = ("", "how many instructions run is not known")  # which a slow machine has no time to count
    assert got.from_counters in whys and got.tflops < 3
    monkeypatch.setattr(estimates, "_LONGEST", 1000)
    estimates._estimates.clear()
    got = gemm.count(late, gemm.problem_for(late, 256, 256, 256)).predict("H200 SXM")
    assert got.from_counters in (*whys, "one block takes too many instructions") and got.from_counters
    assert got.tflops < 3 and got.limiter.startswith("L2 (stores to local memory")
    assert got.error.startswith(f"From the counters alone, since {got.from_counters}. None of the kernels ")
    assert got.error.endswith("is like this one (they keep little in local memory), so the error is unknown.")
    estimates._estimates.clear()


@pytest.mark.parametrize("slug", ["shared_tile", "bank_conflicts"])
def test_the_table_is_what_the_model_says(table, slug):
    step = steps.get(slug)
    row = next(row for row in table["runs"] if row["run"] == f"{step.name} at 1024³")
    got = counted(slug, 1024).predict("H200 SXM")
    assert got.milliseconds == pytest.approx(row["predicted"], rel=1e-3), "run: python -m helpers.course.validate"
    assert not got.from_counters and row["class"] in got.error
    assert sum(got.states.values()) == pytest.approx(1) and got.by_line


def test_the_claims_hold(table):
    """Of what took no part in choosing any figure."""
    assert table["steps_at_other_sizes"]["runs"] >= 40 and table["other_constants"]["runs"] >= 60
    assert table["search"]["runs"] >= 70 and table["states"]["launches"] == 36
    assert table["states"]["two_largest"] >= 25 and table["states"]["within_ten_points"] >= 27, "the picture of warp states says so"
    assert table["states"]["two_largest_or_tied"] >= 29
    for group in ("steps_at_other_sizes", "other_constants", "search"):
        assert table[group]["mean"] <= 0.06 and table[group]["worst"] <= 0.25, group
    assert table[validate.SPILLING]["runs"] >= 12 and table[validate.SPILLING]["mean"] <= 0.07 and table[validate.SPILLING]["worst"] <= 0.2
    own = {case.label for case in validate.launches()}
    assert table["launches"]["runs"] == len(own) >= 36 and table["launches"]["mean"] <= 0.065 and table["launches"]["worst"] <= 0.22
    errors = [row["error"] for row in table["runs"] if not row["fitted"] and row["run"] not in own]
    groups = [table[name] for name in ("steps_at_other_sizes", "other_constants", validate.SPILLING, "search", *validate.TENSOR_GROUPS[1:])]
    whole = sum(group["runs"] * group["mean"] for group in groups) / sum(group["runs"] for group in groups)
    assert validate.summary(errors)["mean"] == pytest.approx(whole, rel=1e-3)


@pytest.mark.slow
def test_the_costs_of_an_h200_hold_on_an_h100(table):
    """The same multiprocessor with another memory: everything recorded there, none of it used to choose a figure."""
    found, measured = table["other_gpu_runs"], {f"{case.name} at {case.size}³": case.measured for case in validate.abroad()}
    assert {row["run"]: row["measured"] for row in found} == pytest.approx(measured, rel=1e-4), "run: python -m helpers.course.validate"
    assert {row["device"] for row in found} == {"H100 SXM"} and not any("from_counters" in row for row in found)
    assert validate.summary([row["error"] for row in found])["mean"] == pytest.approx(table["other_gpu"]["mean"], abs=1e-4)
    assert table["other_gpu"]["runs"] >= 60 and table["other_gpu"]["mean"] <= 0.04 and table["other_gpu"]["worst"] <= 0.18


@pytest.mark.slow
def test_one_run_on_the_other_gpu_is_what_the_model_says(table):
    case = next(case for case in validate.abroad() if (case.name, case.size) == ("06_bank_conflicts", 1024))
    row = next(row for row in table["other_gpu_runs"] if row["run"] == "06_bank_conflicts at 1024³")
    assert validate.tried(case).predicted == pytest.approx(row["predicted"], rel=1e-3), "run: python -m helpers.course.validate"


def test_the_ladder_climbs_as_it_was_recorded(table):
    """Where two steps differ by more than the model's own error, it puts them in the right order."""
    rows = {row["run"]: row for row in table["runs"]}
    ladder = [rows[f"{step.name} at 4096³"] for step in steps.STEPS if f"{step.name} at 4096³" in rows]
    assert len(ladder) >= 12
    for row in ladder:
        for other in ladder:
            if other["measured"] > 1.06 * row["measured"]:
                assert other["predicted"] > row["predicted"], (row["run"], other["run"])


@pytest.mark.parametrize(("slug", "within"), [("thread_tile_2d", 0.06), ("double_buffer", 0.05), ("async_copy", 0.05), ("schedule", 0.066)])
def test_warps_wait_for_what_nsight_compute_says_they_do(slug, within):
    row = next(row for row in recorded_states.recorded() if (row["slug"], row["size"]) == (slug, 1024))
    found, why = estimate(counted(slug, 1024), H200)
    assert not why
    shares = {WORDS[state]: share for state, share in found.states.items()}
    for word, share in row["states"].items():
        assert shares[word] == pytest.approx(share, abs=within), word


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slug", "microseconds"),
    [("thread_tile_2d", 36.1), ("bank_conflicts", 37.1), ("warp_tile", 19.3), ("async_copy", 0.2), ("schedule", 20.5)],
)
def test_what_is_not_in_l2_takes_as_much_longer_as_was_measured(slug, microseconds):
    """Launches alone, with L2 overwritten and as the launch before left it: kernels/LOG.md, run 22. That of step 11 is its code."""
    first, later = (estimate(counted(slug, 1024), H200, {"launch.batch": batch})[0].cycles for batch in (0, 1e9))
    assert (first - later) / H200.clock_mhz == pytest.approx(microseconds, rel=0.15, abs=0.5)


@pytest.mark.slow
def test_code_of_more_than_128_kb_is_waited_for_at_each_jump():
    """The first launch of step 11; Nsight Compute sampled 8 % of all cycles behind its loop: kernels/LOG.md, run 34."""
    run = counted("schedule", 1024)
    found, usual = (estimate(run, H200, changed)[0] for changed in (None, {"code.cold_beyond": 1e6}))
    of_code = [sum(row.get(WarpState.NO_INSTRUCTION, 0.0) for row in one.by_instruction.values()) for one in (found, usual)]
    misses = (of_code[0] - of_code[1]) / (math.prod(run.block) / 32 * chip(H200)["code.cold_miss"])
    jumps, lines = 48, 49 + 280  # behind the loop, and before its end: as Nsight Compute counts what is executed
    assert misses == pytest.approx(jumps + lines / 6, rel=0.1)
    assert found.states[WarpState.NO_INSTRUCTION] > usual.states[WarpState.NO_INSTRUCTION] + 0.1


@pytest.mark.parametrize(("slug", "waits"), [("double_buffer", True), ("thread_tile_2d", False), ("naive", False)])
def test_the_slowest_multiprocessor_decides_only_where_lines_of_code_are_waited_for(slug, waits):
    """The loops of 01 and 05 fit in the cache: they wait for branches, everywhere alike."""
    run = counted(slug, 1024)
    found, none = (estimate(run, H200, changed)[0].cycles for changed in (None, {"code.slowest": 0}))
    assert (found > 1.05 * none) == waits and (found == pytest.approx(none, rel=1e-3)) != waits


@pytest.mark.slow
def test_a_product_that_l2_has_no_room_for_waits_longer_for_its_data():
    """Of A and B of 64 MB L2 has nothing left when it is wanted again, of 4 MB all. Of two blocks each hides what the other waits."""
    for slug, size, longer in (("mma_sync", 1024, False), ("mma_sync", 4096, True), ("wmma", 4096, False)):
        run = counted(slug, size)
        near, far = (estimate(run, H200, {"l2.kept": kept, "launch.batch": 1e9})[0] for kept in (100, 0.5))
        assert (far.cycles > 1.003 * near.cycles) == longer and (far.cycles == near.cycles) != longer


def test_what_is_watched_of_a_launch_that_is_no_product_waits_for_what_nobody_fetched_before():
    """Of a product, blocks that share a multiprocessor hide that for each other; of others they do not."""
    run = recorded_launches.counted("row_sums", 4096)
    launch, _ = estimates._launch(run, run.kernel.native(H200.arch).compiled, chip(H200))
    seen = estimates.watched(run, H200)
    assert seen.resident > 1 and launch.first_far.new and not launch.hides(seen.resident)
    assert seen.per_trip == launch.simulated(launch.resident, launch.first_far).per_trip > 0


@pytest.mark.slow
@pytest.mark.parametrize(("slug", "size", "left", "overwritten"), [
    ("thread_tile_2d", 1024, 346640, 424331), ("vectorized", 1024, 217448, 257435), ("wmma", 1024, 35998, 48167),
    ("mma_sync", 1024, 37595, 38841), ("vectorized", 2048, 773883, 774588), ("wmma", 2048, 107749, 103131),
])  # fmt: skip
def test_a_block_takes_as_many_cycles_as_its_clock_said(slug, size, left, overwritten):
    """The first and the last clock of blocks, the median, with L2 as the launch before left it and overwritten: kernels/LOG.md, run 40."""
    run = counted(slug, size)
    launch, _ = estimates._launch(run, run.kernel.native(H200.arch).compiled, chip(H200))
    for away, measured in ((launch.far, left), (launch.first_far, overwritten)):
        assert launch.turn(launch.resident, away).cycles == pytest.approx(measured, rel=0.09)


def test_two_states_that_one_more_sampling_could_exchange_are_a_tie():
    def tried(states):
        case = validate.TimedRun("02_coalesced", "", "coalesced", 1024, 1.0, True)
        return validate.Tried(case, 1.0, "", "", states)

    seen = {("02_coalesced", 1024): {"selected": 0.3, "wait": 0.25, "barrier": 0.235, "lg throttle": 0.2}}
    for second, same, tied in (("wait", 1, 1), ("barrier", 0, 1), ("lg throttle", 0, 0)):
        found = validate.compared([tried({"selected": 0.4, second: 0.3})], seen)
        assert (found["two_largest"], found["two_largest_or_tied"]) == (same, tied)


@pytest.mark.slow
def test_of_the_launches_that_are_timed_together_the_first_finds_nothing_in_l2():
    every = ({"launch.batch": 0}, {}, {"launch.batch": 1e9})
    alone, timed, many = (estimate(counted("warp_tile", 1024), H200, changed)[0].cycles for changed in every)
    assert chip(H200)["launch.batch"] == 1000 * event_timing.SAMPLE_MILLISECONDS
    assert timed == pytest.approx((alone + many) / 2, rel=1e-3), "two launches of 0.11 ms last 0.2 ms"


@pytest.mark.slow
def test_a_longer_k_costs_its_trips():
    times = {}
    for k in (1024, 2048, 4096):
        step = steps.get("shared_tile")
        made = kernel.compile(step.kernel_path.read_text(encoding="utf-8"), entry=step.entry)
        times[k], _ = estimate(gemm.count(made, gemm.Problem(512, 512, k)), H200)
    assert times[4096].trips == pytest.approx(4096 / 32, abs=1.5)  # the compiler may take one out of the loop
    assert times[4096].cycles - times[2048].cycles == pytest.approx(2 * (times[2048].cycles - times[1024].cycles), rel=0.02)


def test_what_the_model_does_not_know_it_says():
    loaded = kernel.compile("""__global__ void follow(const int* n, float* x) {
        for (int i = 0; i < n[threadIdx.x]; i++) x[i] += 1.0f;
    }""")
    import numpy as np

    run = loaded.launch(1, 32, (np.full(32, 3, np.int32), np.zeros(64, np.float32)), on="cpu", findings=False)
    found, why = estimate(run, H200)
    assert found is None and why
    said = predict.statement(predict.demand(run), H200, why)
    assert said.startswith(f"From the counters alone, since {why}. None of the kernels on which that was tried is like this one")


STORES_LONG = """
extern "C" __device__ constexpr int tile_shape[] = {64, 64};
extern "C" __device__ constexpr int block_shape[] = {64, 1, 1};
__global__ void stores_long(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C, int ldc) {
    __shared__ float a[64 * 64];
    int t = threadIdx.x, row = blockIdx.y * 64, column = blockIdx.x * 64;
    float sums[64] = {};
    #pragma unroll 1
    for (int k = 0; k < K; k += 64) {
        __syncthreads();
        for (int j = 0; j < 64; j++) a[j * 64 + t] = A[(size_t)(row + j) * lda + k + t];
        __syncthreads();
        #pragma unroll 2
        for (int p = 0; p < 64; p++) {
            float b = B[(size_t)(k + p) * ldb + column + t];
            #pragma unroll
            for (int j = 0; j < 64; j++) sums[j] += a[j * 64 + p] * b;
        }
    }
    __syncthreads();
    #pragma unroll
    for (int j = 0; j < 64; j++) a[j * 64 + t] = sums[j];
    __syncthreads();
    #pragma unroll 1
    for (int again = 0; again < ROUNDS; again++)
        #pragma unroll 16
        for (int j = 0; j < 64; j++) C[(size_t)(row + j) * ldc + column + t] = alpha * a[j * 64 + t];
}
"""


@pytest.mark.parametrize("rounds", [1, 60])
def test_the_main_loop_of_a_product_is_the_one_that_grows_with_k(rounds):
    """Another loop, here one that stores C time and again, may take more of the instructions of a product whose K is shortened."""
    made = kernel.compile(STORES_LONG.replace("ROUNDS", str(rounds)))
    found = [estimate(gemm.count(made, gemm.Problem(1024, 1024, k)), H200)[0] for k in (2048, 4096)]
    assert [one.trips for one in found] == [2048 / 64 - 1, 4096 / 64 - 1]  # the last one is none
    assert found[1].cycles - found[0].cycles == pytest.approx(2048 / 64 * found[0].per_trip, rel=0.02)


def test_k_is_shortened_to_so_many_steps_that_a_loop_is_seen():
    """Of a loop that takes 128 k at a time, two trips are no loop: all of the block was taken to grow with K, its stores too."""
    deep = STORES_LONG.replace("ROUNDS", "4").replace("k += 64", "k += 128").replace("__syncthreads();\n        for (int j", "BEGIN", 1)
    deep = deep.replace("BEGIN", "#pragma unroll\n        for (int h = 0; h < 128; h += 64) { __syncthreads();\n        for (int j")
    deep = deep.replace("lda + k + t", "lda + k + h + t").replace("(k + p) * ldb", "(k + h + p) * ldb")
    made = kernel.compile(deep.replace("    }\n    __syncthreads();\n", "    }}\n    __syncthreads();\n", 1))
    one, other = (estimate(gemm.count(made, gemm.Problem(1024, 1024, k)), H200)[0] for k in (2048, 4096))
    assert [one.trips, other.trips] == [2048 / 128 - 1, 4096 / 128 - 1]
    assert other.cycles - one.cycles == pytest.approx(2048 / 128 * one.per_trip, rel=0.02)


@pytest.mark.parametrize(("k", "grows"), [(256 + 7 * 32, True), (256 + 7 * 32 + 16, False)])
def test_a_block_ends_within_the_stages_that_take_turns(k, grows):
    """Three trips of 32 k are one repetition here, and a block goes round any number of times."""
    path = estimates.BlockPath(None, tuple(Visit(0, 10, 1, {}) for _ in range(8)), 1)
    loop = estimates._Loop(0, 3, 2, 30, 3)
    assert estimates._grows_with_k(path, 80 + 10 * (k - 256) / 32, k, 256, loop) is grows


def test_a_persistent_kernel_takes_as_long_as_one_with_a_block_for_each_tile():
    """256 tiles: two blocks of each multiprocessor take one each, and a single one two after the other."""
    plain = STORES_LONG.replace("ROUNDS", "1")
    walks = plain.replace(
        "int t = threadIdx.x, row = blockIdx.y * 64, column = blockIdx.x * 64;",
        "int t = threadIdx.x;\nfor (int tile = blockIdx.x; tile < N / 64 * (M / 64); tile += gridDim.x) {\n"
        "int row = tile / (N / 64) * 64, column = tile % (N / 64) * 64;",
    ).rstrip().removesuffix("}") + "__syncthreads(); }\n}\n"  # fmt: skip
    says = 'extern "C" __device__ constexpr int persistent[] = {%d};\n'
    got = [
        gemm.count(kernel.compile(source), gemm.Problem(1024, 1024, 1024)).predict("H200 SXM")
        for source in (plain, says % 2 + walks, says % 1 + walks)
    ]
    assert not any(one.from_counters for one in got)
    assert got[1].milliseconds == pytest.approx(got[0].milliseconds, rel=0.15)
    assert 1.5 < got[2].milliseconds / got[1].milliseconds < 2


@pytest.mark.parametrize(
    ("rounds", "measured"), [(0.95, 0.61), (0.59, 0.51), (2.84, 0.72), (3.03, 1.0), (8.5, 4.7), (16.2, 10.0), (25.6, 8.7), (32.5, 18.7)]
)
def test_of_loads_that_wait_for_each_other_half_wait_for_dram(rounds, measured):
    """Products by others at 1024 on an H200, with L2 overwritten and without, by what one wait of each trip takes: kernels/LOG.md, run 38."""
    waited = min(rounds, from_dram(1.0, rounds))
    assert waited == pytest.approx(measured, rel=0.6)


def test_a_trip_of_many_instructions_is_simulated_less_often(monkeypatch):
    usual = counted("thread_tile_2d", 1024).predict("H200 SXM")
    monkeypatch.setattr(estimates, "_LONGEST", 30_000)
    estimates._estimates.clear()
    fewer = counted("thread_tile_2d", 1024).predict("H200 SXM")
    assert not fewer.from_counters and fewer.milliseconds == pytest.approx(usual.milliseconds, rel=0.03)
    assert fewer.milliseconds != usual.milliseconds
    estimates._estimates.clear()


SOME_WORK = """#include <cooperative_groups.h>
__global__ void CLUSTERS k(const float* x, float* y, int which, int n) {
    float sum = 0;
    if (which < 0 || blockIdx.x % 4 == which) {
        #pragma unroll 1
        for (int t = 0; t < n; t++) sum += x[t * 256 + threadIdx.x];
    }
    WAIT
    y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}"""
TOGETHER = SOME_WORK.replace("CLUSTERS", "__cluster_dims__(4)").replace("WAIT", "cooperative_groups::cluster_group::sync();")
ALONE = SOME_WORK.replace("CLUSTERS", "").replace("WAIT", "")


@pytest.mark.parametrize("source", [TOGETHER, ALONE], ids=["clusters", "blocks"])
def test_blocks_that_have_less_to_do_do_not_make_those_faster_that_work(source):
    """One wave: it takes as long as its longest block, whichever of them that is."""
    made = kernel.compile(source, arch="sm_90")
    x, y = np.zeros(256 * 256, np.float32), np.zeros(120 * 256, np.float32)

    def predicted(which):
        return made.launch(120, 256, [x, y, np.int32(which), np.int32(256)], on="cpu", findings=False).predict()

    every, *some = (predicted(which) for which in (-1, 0, 1, 3))
    assert "do more than others" not in every.error
    for one in some:
        assert one.milliseconds == pytest.approx(some[0].milliseconds, rel=0.01)
        assert 0.9 * every.milliseconds < one.milliseconds < 1.05 * every.milliseconds, "a block of 256 trips takes what it takes"
        assert "some of its blocks do more than others" in one.error and one.states["long scoreboard"] > 0.9


SUMS = """__global__ void k(const float* x, float* y, int n) {
    float sum = threadIdx.x;
    #pragma unroll 1
    for (int t = 0; t < n; t++) {
        sum += x[t * 256 + threadIdx.x];
        #pragma unroll
        for (int i = 0; i < MANY; i++) sum = fmaf(sum, sum, 1.0f);
    }
    y[blockIdx.x * 256 + threadIdx.x] = sum;
}"""


@pytest.mark.parametrize(("many", "least", "most"), [(0, 0.0, 0.35), (100, 0.85, 1.1)])
def test_a_load_right_behind_the_last_one_s_data_waits_for_no_crowd(many, least, most):
    """Of blocks that all want the same: `latency.crowd` is for loads that come when their warp has done something else for a while."""
    x, y = np.zeros(256 * 64, np.float32), np.zeros(256 * 132, np.float32)
    run = kernel.compile(SUMS.replace("MANY", str(many)), arch="sm_90").launch(132, 256, [x, y, np.int32(64)], on="cpu", findings=False)
    parts = chip(H200)
    crowd = parts["latency.crowd"] * 8 / parts["latency.crowd_warps"]
    with_it, without = (
        estimate(run, H200, {"latency.crowd": value, "latency.device": 0.0})[0].per_trip for value in (parts["latency.crowd"], 0.0)
    )
    assert least * crowd <= with_it - without < most * crowd


FOR_SQUARES = """extern "C" __device__ constexpr int block_shape[] = {256, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {16, 16};
extern "C" __global__ void k(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C,
                             int ldc) {
    const int row = blockIdx.y * 16 + threadIdx.x / 16, column = blockIdx.x * 16 + threadIdx.x % 16;
    if (row >= ROWS || column >= N) return;
    float sum = 0;
    for (int k = 0; k < K; k++) sum += A[row * lda + k] * B[k * ldb + column];
    C[row * ldc + column] = alpha * sum;
}"""


def test_a_kernel_that_takes_k_for_m_has_the_time_of_its_loop():
    """With a K that is less than half of M its middle block would have nothing to do."""
    wrong, right = (
        gemm.count(made := kernel.compile(FOR_SQUARES.replace("ROWS", rows)), gemm.problem_for(made, 2048, 2048, 2048)) for rows in "KM"
    )
    found, why = estimate(wrong, H200)
    assert found is not None and found.trips > 100, why
    assert found.cycles == pytest.approx(estimate(right, H200)[0].cycles, rel=0.03)


BULK = """#include <cuda/ptx>
namespace ptx = cuda::ptx;
__global__ void copy(const float* from, float* to) {
    __shared__ alignas(128) float tile[4096];
    __shared__ uint64_t arrived;
    if (threadIdx.x == 0) { ptx::mbarrier_init(&arrived, 1); ptx::fence_proxy_async(ptx::space_shared); }
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &arrived, sizeof(tile));
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, tile, from + 4096 * blockIdx.x, sizeof(tile), &arrived);
    }
    while (!ptx::mbarrier_try_wait_parity(&arrived, 0)) {}
    for (int i = threadIdx.x; i < 4096; i += 128) tile[i] += 1;
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, to + 4096 * blockIdx.x, tile, sizeof(tile));
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
    }
}"""


@pytest.mark.parametrize(("size", "measured"), [(1 << 20, 3.496), (1 << 23, 19.70)])
def test_a_copy_by_cp_async_bulk_takes_what_was_measured(size, measured):
    """Microseconds on an H200 (log, run 44): the launch itself, and DRAM."""
    arrays = [np.zeros(size, np.float32), np.zeros(size, np.float32)]
    run = kernel.compile(BULK, arch="sm_90").launch(size // 4096, 128, arrays, on="cpu", findings=False)
    assert run.predict().milliseconds * 1e3 == pytest.approx(measured, rel=0.08)


def test_a_copy_in_bulk_of_no_bytes_has_a_time():
    source = BULK.replace("float* to)", "float* to, int n)").replace("sizeof(tile)", "n")
    arrays = [np.zeros(4096, np.float32), np.zeros(4096, np.float32)]
    run = kernel.compile(source, arch="sm_90").launch(1, 128, [*arrays, np.int32(0)], on="cpu", findings=False)
    assert 0 < run.predict().milliseconds < 0.01
