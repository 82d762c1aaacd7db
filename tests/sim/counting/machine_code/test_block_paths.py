"""The way of a block past the functions that ptxas has for rare numbers."""

import numpy as np
import pytest

from helpers.run.kernel import compile as compile_kernel
from helpers.sim.code.sass import parse
from helpers.sim.counting.machine_code import Surroundings, block_path, instruction_counts
from helpers.sim.counting.machine_code.block_paths import copy_requests
from helpers.sim.counting.machine_code.slicing import usual_way

DIVIDES = """__global__ void k(const float* x, float* y) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    y[i] = %s;
}"""


@pytest.mark.parametrize("value", ["1.0f / x[i]", "x[i] / (1.0f + x[i])", "sqrtf(x[i])", "1.0 / x[i]"])
def test_a_way_for_rare_numbers_is_left_out_where_it_depends_on_data(value):
    """Which way a division takes is known by its numbers alone; the usual one is what a model of time goes by."""
    compiled = compile_kernel(DIVIDES % value).compiled
    given = (np.zeros(256, np.float32), np.zeros(256, np.float32))
    assert instruction_counts(compiled, (1, 1, 1), (256, 1, 1), given)[0] is None, "counts stay exact, or unknown"
    path, why = block_path(compiled, (1, 1, 1), (256, 1, 1), given, 0, 1 << 10)
    assert path is not None and path.usual, why
    executed = [path.function.instructions[k] for visit in path.visits for k in range(visit.start, visit.end)]
    assert executed[-1].name == "EXIT" and not any(i.name in ("CALL", "RET") for i in executed)
    assert {"LDG", "MUFU", "STG"} <= {i.name for i in executed}


def test_other_branches_on_data_stay_unknown():
    compiled = compile_kernel(DIVIDES % "x[i] > 2 ? __fdividef(x[i], 3) : y[i + int(x[i])] / x[i + 1]").compiled
    given = (np.zeros(256, np.float32), np.zeros(256, np.float32))
    path, _ = block_path(compiled, (1, 1, 1), (256, 1, 1), given, 0, 1 << 10)
    assert path is None


def test_code_without_such_calls_is_the_same():
    compiled = compile_kernel(DIVIDES % "x[i] * 2").compiled
    function = parse(compiled.sass)[compiled.symbol]
    assert usual_way(function) is function


READS = """__global__ void k(const float4* x, float4* y, int n, int pitch) {
    const float4* place = x + threadIdx.x / EACH * pitch + threadIdx.x % EACH;
    float4 sum = y[threadIdx.x];
    for (int i = 0; i < n; i++, place += EACH) { float4 v = *place; sum.x += v.x * sum.y; __syncthreads(); }
    y[threadIdx.x] = sum;
}"""


@pytest.mark.parametrize(("lanes", "part"), [(2, 0.25), (4, 0.5), (8, 1.0)])
def test_a_line_is_new_to_a_block_the_first_time_that_it_is_wanted(lanes, part):
    """Rows of 32, 64 and 128 bytes, one piece behind the other: every fourth, second and each of them begins a line."""
    compiled = compile_kernel(READS.replace("EACH", str(lanes))).compiled
    given = (np.zeros((1 << 16, 4), np.float32), np.zeros((32, 4), np.float32), np.int32(16), np.int32(1024))
    path, why = block_path(compiled, (1, 1, 1), (32, 1, 1), given, 0, 1 << 10)
    assert path is not None, why
    loads = {k: path.new[k] for k in path.new if path.function.instructions[k].name == "LDG"}
    times = {k: sum(k in visit.costs for visit in path.visits) for k in loads}
    inner = [k for k in loads if k != min(loads)]
    assert sum(loads[k] * times[k] for k in inner) == 16 * part and sum(times[k] for k in inner) == 16


LANE = np.arange(32)


def rows(lanes, pitch, begin=0):
    return begin + LANE // lanes * pitch + LANE % lanes * 16


@pytest.mark.parametrize(
    ("targets", "sources", "expected"),
    [
        (rows(4, 64), rows(4, 8192), 8),
        (rows(4, 80), rows(4, 8192), 15),
        (rows(4, 96), rows(4, 8192), 10),
        (rows(8, 144), rows(8, 8192), 10),
        (rows(16, 272), rows(16, 8192), 8),
        (rows(16, 272, 16), rows(16, 8192), 10),
        (rows(16, 272, 32), rows(16, 8192), 12),
        (rows(2, 48), rows(2, 8192), 24),
        (rows(32, 512), rows(32, 0), 4),
        (rows(32, 512, 16), rows(32, 0), 12),
        (rows(32, 512, 48), rows(32, 0), 16),
        (rows(4, 64) ^ LANE // 4 % 4 * 16, rows(4, 8192), 8),
        (rows(8, 128) ^ LANE // 8 % 8 * 16, rows(8, 8192), 4),
        (16 * (31 - LANE), 16 * LANE, 4),
        (128 * LANE, 16 * LANE, 32),
        (16 * LANE, 8192 * LANE, 32),
    ],
)
def test_copies_past_l1_ask_as_often_as_nsight_compute_counts_wavefronts(targets, sources, expected):
    """Of tiles in rows, padded, shifted and swizzled, on an H200 (kernels/LOG.md, run 38)."""
    assert copy_requests(sources[None] + (140 << 40), targets[None]).tolist() == [expected]
    half = np.where(LANE < 16, sources, -1)
    assert copy_requests(half[None], targets[None])[0] <= expected, "lanes that are idle ask for nothing"


COPIES = """#include <cuda_pipeline.h>
__global__ void k(const char* from, char* out) {
    __shared__ __align__(128) char tile[8 * 80];
    const int lane = threadIdx.x, at = lane / 4 * %d + lane %% 4 * 16;
    %s
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    out[lane] = tile[lane * 5];
}"""
COPY = {
    "cg": "__pipeline_memcpy_async(&tile[at], &from[lane / 4 * 8192 + lane % 4 * 16], 16);",
    "ca": """asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" :: "r"((unsigned)__cvta_generic_to_shared(&tile[at])),
        "l"(&from[lane / 4 * 8192 + lane % 4 * 16]));""",
}


@pytest.mark.parametrize(
    ("way", "pitch", "lookups", "wavefronts"), [("cg", 64, 8, 0), ("cg", 80, 15, 0), ("ca", 64, 8, 4), ("ca", 128, 8, 8)]
)
def test_a_path_says_what_its_copies_take_of_the_unit(way, pitch, lookups, wavefronts):
    """Through L1 its lines are looked up, and what comes is written by the banks that it goes to (run 38)."""
    compiled = compile_kernel((COPIES % (pitch, COPY[way])).replace("8 * 80", "8 * 128"), arch="sm_90").compiled
    given = (np.zeros(8 * 8192, np.int8), np.zeros(32, np.int8))
    path, why = block_path(compiled, (1, 1, 1), (32, 1, 1), given, 0, 1 << 10)
    assert path is not None, why
    (cost,) = [visit.costs[k] for visit in path.visits for k in visit.costs if path.function.instructions[k].name == "LDGSTS"]
    assert (cost.lookups, cost.wavefronts) == (lookups, wavefronts)


LATE = """__global__ void k(const int* at, float* y, int n) {
    float kept[40];
    for (int i = 0; i < 40; i++) kept[i] = at[i];
    float sum = 0;
    #pragma unroll 1
    for (int turn = 0; turn < 6; turn++)
        #pragma unroll 1
        for (int i = 0; i < 40; i++) { sum += kept[i]; kept[(i + n) % 40] = sum; }
    y[threadIdx.x] = sum;
}"""


@pytest.mark.parametrize(("room", "missing"), [(40 * 4 * 2, 0), (40 * 4 * 2 - 8, 4), (40 * 4, 4)])
def test_what_a_block_keeps_in_local_memory_misses_l1_where_it_has_no_room(room, missing):
    """40 words of 64 lanes lie in 320 sectors; who walks through more than L1 holds finds none of them, as the oldest goes first."""
    compiled = compile_kernel(LATE, arch="sm_90").compiled
    path, why = block_path(compiled, (1, 1, 1), (64, 1, 1), (np.zeros(40, np.int32), np.zeros(64, np.float32), 39), 0, room)
    assert path is not None, why
    loads = [visit.costs[k] for visit in path.visits for k in visit.costs if path.function.instructions[k].name == "LDL"]
    assert len(loads) > 200 and all(cost.local and cost.sectors == 4 for cost in loads)
    assert {cost.fetched for cost in loads[45:]} == {missing}
    assert {cost.bringers for cost in loads[45:]} == {(0, 1) if missing else (-1, -1)}


def test_loads_of_what_a_block_stores_are_told_apart():
    """C where a product adds to it: the launch before has stored it."""
    compiled = compile_kernel("""__global__ void add(const float* x, float* y, int n) {
        float sum = 0;
        for (int i = 0; i < n; i++) sum += x[32 * i + threadIdx.x];
        y[threadIdx.x] += sum;
    }""").compiled
    path, why = block_path(compiled, (1, 1, 1), (32, 1, 1), (np.zeros(256, np.float32), np.zeros(32, np.float32), np.int32(8)), 0, 1 << 10)
    assert path is not None, why
    loads = [i.index for i in path.function.instructions if i.name == "LDG"]
    assert path.own == {loads[-1]} and len(loads) > 1


HANDS_ON = """__device__ void wait(int number) { asm volatile("bar.sync %0, 64;" :: "r"(number) : "memory"); }
__device__ void come(int number) { asm volatile("bar.arrive %0, 64;" :: "r"(number) : "memory"); }
__global__ void hand_on(const float* x, float* y, int n) {
    __shared__ float stage[STAGES][32];
    const int lane = threadIdx.x % 32;
    float sum = 0;
    if (threadIdx.x < 32)
        for (int t = 0; t < n; t++) {
            const int s = t % STAGES;
            if (t >= STAGES) wait(1 + STAGES + s);
            stage[s][lane] = x[32 * t + lane];
            come(1 + s);
        }
    else {
        for (int t = 0; t < n; t++) {
            const int s = t % STAGES;
            wait(1 + s);
            for (int k = 0; k < 32; k++) sum += stage[s][k] * (k + lane);
            come(1 + STAGES + s);
        }
        y[lane] = sum;
    }
}"""


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_a_path_has_the_numbers_of_named_barriers_as_they_are_executed(stages):
    """A warp that hands on waits for no stage that is still empty: its guard switches that barrier off."""
    trips = 8
    compiled = compile_kernel(HANDS_ON.replace("STAGES", str(stages))).compiled
    given = (np.zeros(32 * trips, np.float32), np.zeros(32, np.float32), np.int32(trips))
    path, why = block_path(compiled, (1, 1, 1), (64, 1, 1), given, 0, 1 << 10)
    assert path is not None, why
    for bit, waits in ((1, range(1 + stages, 1 + 2 * stages)), (2, range(1, 1 + stages))):
        met = [(k, numbers[bit - 1]) for visit in path.visits if visit.warps == bit for k, numbers in sorted(visit.barriers.items())]
        syncs = [number for k, number in met if path.function.instructions[k].has("SYNC")]
        assert syncs == [waits[t % stages] for t in range(trips - stages if bit == 1 else trips)]
        assert len(met) - len(syncs) == trips, "it comes to as many"


def test_the_number_of_a_cluster_is_known():
    """%clusterid is worked out as %ctaid times a constant of the launch."""
    source = """
extern "C" __global__ void __cluster_dims__(4) numbered(float* x) {
    unsigned number;
    asm("mov.u32 %0, %%clusterid.x;" : "=r"(number));
    for (unsigned k = 0; k < number; k++) x[k] = k;
}"""
    compiled = compile_kernel(source, arch="sm_90").compiled
    for block in (0, 7, 8, 23):
        path, why = block_path(compiled, (24, 1, 1), (32, 1, 1), [np.zeros(8, np.float32)], block, 1 << 10, Surroundings((4, 1, 1)))
        assert path is not None, why
        stores = sum(len(visit.costs) for visit in path.visits)
        assert stores == block // 4
