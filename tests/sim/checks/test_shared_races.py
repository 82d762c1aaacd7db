"""What is said of a race in shared memory: two threads that exist and differ, and the barrier that orders them.

Tests of: helpers.sim.code.flags, helpers.sim.code.late_waits
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import helpers
from helpers.run import gemm
from helpers.sim.checks.shared_races import (
    CLASH_ADVICE,
    COPIED_OUT_ADVICE,
    LANES_ADVICE,
    LATE_WAIT_ADVICE,
    MADE_ADVICE,
    MEETING_ADVICE,
    NO_BARRIER_ADVICE,
    OTHER_PLACES,
    PARTIAL_ADVICE,
    STORED_ADVICE,
    TWO_WRITES_ADVICE,
    UPDATE_ADVICE,
    WARP_ADVICE,
    WARP_IS_NOT_ENOUGH,
)

KERNEL = """extern "C" __global__ void f(const float* x, float* y) {
    __shared__ float s[1024];
    int t = threadIdx.y * blockDim.x + threadIdx.x, n = blockDim.x * blockDim.y, warp = t / 32, lane = t % 32;
    s[t] = x[t];
    __syncthreads();
    BODY
}"""
THREAD = re.compile(r"[Tt]hread \((\d+), (\d+), (\d+)\)")


def races(body, block=(64, 1, 1), blocks=1):
    count = block[0] * block[1] * blocks
    run = helpers.compile(KERNEL.replace("BODY", body)).launch(
        blocks, block, (np.ones(count, np.float32), np.zeros(count, np.float32)), on="cpu", counters=False
    )
    assert run.findings and {finding.kind for finding in run.findings} == {"race"}
    return run.findings


BODIES = {
    "all read what one writes": "if (t == 0) s[0] = 2; y[t] = s[0];",
    "one writes what all read": "y[t] = s[0]; if (t == 5) s[0] = 2;",
    "rows read what one writes": "if (t == 0) s[threadIdx.y] = 2; y[t] = s[threadIdx.y];",
    "one writes what rows read": "y[t] = s[threadIdx.y]; s[t] = 2;",
    "two places read": "y[t] = s[t]; y[t] += s[(t + 1) % n]; s[t] = 3;",
    "several read, and the writer last": "if (t > 7) y[t] = s[3]; if (t == n - 1) y[0] = s[3] * 2; if (t == n - 1) s[3] = 4;",
    "everybody writes": "s[0] = t; __syncthreads(); y[t] = s[0];",
    "a row writes": "s[threadIdx.y] = t; __syncthreads(); y[t] = s[threadIdx.y];",
    "all write the same, one reads": "s[7] = 1; y[t] = s[t % 8];",
    "atomics and a read": "atomicAdd(s + 1, 1.0f); if (t == 9) y[t] = s[1];",
    "a read and atomics": "if (t == 9) y[t] = s[1]; atomicAdd(s + 1, 1.0f);",
    "in some blocks": "if (blockIdx.x == 1) { if (t == 0) s[0] = 2; y[t] = s[0]; }",
    "the second round": "for (int i = 0; i < 2; i++) { __syncthreads(); y[t] = s[t % 4]; if (t == 1) s[t % 4] = i; }",
    "after a __syncwarp": "s[t] = 4; __syncwarp(); y[t] = s[n - 1 - t]; s[(t + 40) % n] = 1;",
}


@pytest.mark.parametrize("block", [(64, 1, 1), (8, 8, 1), (16, 2, 1)], ids=str)
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_the_two_threads_are_named_and_differ(body, block):
    for finding in races(body, block, 3 if "blockIdx" in body else 1):
        threads = THREAD.findall(finding.message)
        assert len(threads) == 2 and threads[0] != threads[1], finding.message
        assert all(int(x) < block[0] and int(y) < block[1] and int(z) < 1 for x, y, z in threads), finding.message
        assert finding.thread == tuple(map(int, threads[0]))


@pytest.mark.parametrize(
    "body, advice",
    [
        ("s[t] = 2; y[t] = s[t ^ 1];", WARP_ADVICE),
        ("s[t] = 2; y[t] = s[t ^ 32];", "Put __syncthreads() between the two accesses."),
        ("s[t] = 2; __syncwarp(); y[t] = s[t ^ 32];", WARP_IS_NOT_ENOUGH),
        ("s[t] = 2; __syncwarp(lane < 16 ? 0xffff : 0xffff0000); y[t] = s[t ^ 31];", PARTIAL_ADVICE),
        ("__syncwarp(); s[t] = 2; y[t] = s[t ^ 1];", WARP_ADVICE),
        ("s[t % 8] = t; __syncthreads(); y[t] = s[t];", CLASH_ADVICE),
        ("s[t] = 0; __syncthreads(); s[t % 8] += x[t]; __syncthreads(); y[t] = s[t];", UPDATE_ADVICE),
        ("s[t] = 0; __syncthreads(); s[t] = s[t ^ 32] + 1; __syncthreads(); y[t] = s[t];", OTHER_PLACES),
        ("y[t] = s[0]; s[t] = 2;", OTHER_PLACES),
        ("s[t] = 2; s[t ^ 1] = 3; __syncthreads(); y[t] = s[t];", f"{TWO_WRITES_ADVICE} {WARP_ADVICE}"),
        ("s[t] = 2; s[t ^ 32] = 3; __syncthreads(); y[t] = s[t];", f"{TWO_WRITES_ADVICE} {OTHER_PLACES}"),
        ("s[t / 2] = t; __syncthreads(); y[t] = s[t / 2];", CLASH_ADVICE),
        ("y[t] = s[t ^ 1] + s[t ^ 2]; s[t] = 2;", WARP_ADVICE),
        ("y[t] = s[t ^ 1] + s[t ^ 32]; s[t] = 2;", OTHER_PLACES),
    ],
)
def test_the_advice_fits(body, advice):
    (finding,) = races(body)
    assert finding.advice == advice


FENCED = """                    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // the accelerator sees it
                    consumer_sync(group);
"""
FREE = """                    if (t % 128 == 0) store_wait<C_BOXES - 1>();
                    consumer_sync(group);  // the box is free
"""


def flipped(text: str) -> str:
    one, other = text.splitlines(keepends=True)
    return other + one


@pytest.mark.parametrize("rows", [20, 256])
@pytest.mark.parametrize(("old", "new", "advice"), [
    (FENCED, FENCED.splitlines(keepends=True)[0], STORED_ADVICE),
    (FREE, flipped(FREE), COPIED_OUT_ADVICE), (FREE, FREE.splitlines(keepends=True)[0], COPIED_OUT_ADVICE),
], ids=["no barrier in front of the copy", "a wait behind the barrier", "no barrier behind the wait"])  # fmt: skip
def test_the_advice_fits_warps_with_different_work(old, new, advice, rows):
    """Their barriers are named ones; of 20 rows only one warp has any to store."""
    source = helpers.reference("warp_specialized").source
    assert source.count(old) == 1
    kernel = helpers.compile(source.replace(old, new), entry="warp_specialized", arch="sm_90a")
    findings = gemm.check(kernel, gemm.problem_for(kernel, rows, 256, 64), on="cpu").findings
    assert findings and all(finding.kind == "race" and finding.advice == advice for finding in findings)


NAMED = {  # three warps and barriers of 64 threads: (what the block does, is it a race)
    "each warp has a barrier of its own": ("s[t] = 2; bar(1 + warp, 32); y[t] = s[(t + 32) % n];", True),
    "all arrive, nobody waits": ("s[t] = 2; arrive(1, n); y[t] = s[(t + 32) % n];", True),
    "the reader arrives, the writer waits": (
        "if (!warp) { s[t] = 2; bar(1, 64); } if (warp == 1) { arrive(1, 64); y[t] = s[t - 32]; }",
        True,
    ),
    "the writer arrives, the reader waits": (
        "if (!warp) { s[t] = 2; arrive(1, 64); } if (warp == 1) { bar(1, 64); y[t] = s[t - 32]; }",
        False,
    ),
    "written after the arrival": ("if (!warp) { arrive(1, 64); s[t] = 2; } if (warp == 1) { bar(1, 64); y[t] = s[t - 32]; }", True),
    "at second hand": (
        "if (!warp) { s[t] = 2; bar(1, 64); } if (warp == 1) { bar(1, 64); bar(2, 64); } if (warp == 2) { bar(2, 64); y[t] = s[t - 64]; }",
        False,
    ),
    "who was not there": ("if (!warp) s[t] = 2; if (warp < 2) bar(1, 64); if (warp == 2) { y[t] = s[t - 64]; }", True),
    "several have read": ("if (warp) { y[t] = s[3]; arrive(1, n); } else { bar(1, n); s[t] = 2; }", False),
    "one reader is not waited for": ("if (warp) y[t] = s[3]; if (warp == 1) arrive(1, 64); if (!warp) { bar(1, 64); s[t] = 2; }", True),
}


@pytest.mark.parametrize(("body", "race"), NAMED.values(), ids=NAMED)
def test_a_barrier_orders_those_who_wait_for_it(body, race):
    asm = """#define bar(number, count) asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(count) : "memory")
#define arrive(number, count) asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(count) : "memory")
"""
    kernel = helpers.compile(asm + KERNEL.replace("BODY", body))
    run = kernel.launch(2, 96, (np.ones(96, np.float32), np.zeros(96, np.float32)), on="cpu", counters=False)
    assert {finding.kind for finding in run.findings} == ({"race"} if race else set())
    assert all(finding.advice == MEETING_ADVICE for finding in run.findings)


@pytest.mark.parametrize("made", ["", "__syncthreads();"], ids=["at once", "after a barrier"])
def test_an_mbarrier_is_made_before_others_use_it(made):
    source = """#include <cuda/barrier>
__global__ void f() {
    __shared__ cuda::barrier<cuda::thread_scope_block> all;
    if (threadIdx.x == 0) init(&all, blockDim.x);
    MADE
    all.arrive_and_wait();
}"""
    run = helpers.compile(source.replace("MADE", made)).launch(1, 64, (), on="cpu", counters=False)
    assert {(finding.kind, finding.line) for finding in run.findings} == (set() if made else {("race", 6)})
    assert made or "uses the mbarrier in shared memory at offset 0 (in `all`), which thread (0, 0, 0) initialises" in str(run.findings[0])
    assert made or run.findings[0].advice == MADE_ADVICE


@pytest.mark.parametrize(("fence", "race"), [("__threadfence_block();", False), ("", True)], ids=["fences", "no fences"])
def test_a_lock_in_shared_memory_wants_fences(fence, race):
    source = """__global__ void f(int* y) {
    __shared__ int lock, sum;
    if (threadIdx.x == 0) lock = sum = 0;
    __syncthreads();
    for (bool done = false; !done;) {
        if (atomicCAS(&lock, 0, 1) == 0) { FENCE ++*(volatile int*)&sum; FENCE atomicExch(&lock, 0); done = true; }
    }
    __syncthreads();
    *y = sum;
}"""
    y = np.zeros(1, np.int32)
    run = helpers.compile(source.replace("FENCE", fence)).launch(1, 64, (y,), on="cpu", counters=False)
    assert ({finding.kind for finding in run.findings}, y[0]) == ({"race"} if race else set(), 64)


MBARRIERS = """
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void init(void* bar, int count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(at(bar)), "r"(count)); }
__device__ void arrive(void* bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(at(bar)) : "memory"); }
__device__ void arrive_when_copied(void* bar) { asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(at(bar)) : "memory"); }
__device__ void copy(float* to, const float* from) { asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(at(to)), "l"(from)); }
__device__ void wait(void* bar, int parity) {
    unsigned done;
    do asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                    : "=r"(done) : "r"(at(bar)), "r"(parity) : "memory"); while (!done);
}
extern "C" __global__ void f(const float* x, float* y) {
    __shared__ float s[3][64];
    __shared__ unsigned long long full[3], empty[3];
    const int t = threadIdx.x;
    if (t == 0) for (int i = 0; i < 3; i++) { init(&full[i], FULL); init(&empty[i], 64); }
    __syncthreads();
    BODY
}"""


def at_mbarriers(full, body):
    kernel = helpers.compile(MBARRIERS.replace("FULL", str(full)).replace("BODY", body))
    run = kernel.launch(1, 64, (np.arange(1024, dtype=np.float32), np.zeros(64, np.float32)), on="cpu", counters=False)
    return {finding.kind for finding in run.findings}


@pytest.mark.parametrize(
    ("full", "who", "race"),
    [
        (64, "", False), (1, "if (t == 0) ", True), (2, "if (t % 32 == 0) ", True), (2, "__syncwarp(); if (t % 32 == 0) ", False),
    ],
)  # fmt: skip
def test_whoever_only_waits_at_an_mbarrier_tells_the_others_nothing(full, who, race):
    assert at_mbarriers(full, f"s[0][t] = x[t]; {who}arrive(&full[0]); wait(&full[0], 0); y[t] = s[0][63 - t];") == (
        {"race"} if race else set()
    )


RING = """
    for (int i = 0; i < 2; i++) { copy(&s[i][t], &x[64 * i + t]); arrive_when_copied(&full[i]); }
    float sum = 0;
    for (int i = 0; i < 9; i++) {
        wait(&full[i % 3], i / 3 % 2);
        HANDED_BACK
        if (i + 2 < 9) { copy(&s[(i + 2) % 3][t], &x[64 * (i + 2) + t]); arrive_when_copied(&full[(i + 2) % 3]); }
        sum += s[i % 3][63 - t];
        arrive(&empty[i % 3]);
    }
    y[t] = sum;
"""


@pytest.mark.parametrize(
    ("handed_back", "race"),
    [("", True), ("__syncthreads();", False), ("if (i) wait(&empty[(i + 2) % 3], (i - 1) / 3 % 2);", False)],
    ids=["not at all", "by a barrier", "by an mbarrier"],
)
def test_a_copy_that_arrives_at_an_mbarrier_tells_what_came_before_it_and_no_more(handed_back, race):
    """Who waits for the copies of the next stage does not know whether the threads that started them have read the one before."""
    assert at_mbarriers(64, RING.replace("HANDED_BACK", handed_back)) == ({"race"} if race else set())


@pytest.mark.parametrize(
    ("part", "order", "race"),
    [
        ("arrive", ".release.cta", False), ("arrive", ".release.cluster", False), ("arrive", ".relaxed.cta", True), ("arrive", ".relaxed.cluster", True),
        ("try_wait.parity", ".acquire.cta", False), ("try_wait.parity", ".relaxed.cta", True), ("try_wait.parity", ".relaxed.cluster", True),
    ],
)  # fmt: skip
def test_what_is_relaxed_at_an_mbarrier_orders_nothing(monkeypatch, part, order, race):
    monkeypatch.setitem(globals(), "MBARRIERS", MBARRIERS.replace(f"mbarrier.{part}.shared::cta", f"mbarrier.{part}{order}.shared::cta"))
    assert at_mbarriers(64, "s[0][t] = x[t]; arrive(&full[0]); wait(&full[0], 0); y[t] = s[0][63 - t];") == ({"race"} if race else set())


FLAG = """extern "C" __global__ void f(int* y) {
    __shared__ int s[32];
    __shared__ volatile int flag;
    int t = threadIdx.x;
    if (t == 0) flag = 0;
    __syncthreads();
    if (t >= 32) { s[t - 32] = t; FENCE __syncwarp(); TELL }
    else { HEAR FENCE y[t] = s[31 - t]; }
}"""


@pytest.mark.parametrize(
    ("tell", "hear", "fence", "race"),
    [
        ("if (t == 32) flag = 1;", "while (flag == 0) {}", "__threadfence_block();", False),
        ("if (t == 32) flag = 1;", "while (flag == 0) {}", "__threadfence();", False),
        ("if (t == 32) flag = 1;", "while (flag == 0) {}", "", True),  # nothing orders the data
        ("if (t == 32) atomicExch((int*)&flag, 1);", "while (flag == 0) {}", "__threadfence_block();", False),
        ("if (t == 32) flag = 1;", "while (atomicAdd((int*)&flag, 0) == 0) {}", "__threadfence_block();", False),
        ("if (t == 32) *(int*)&flag = 1;", "while (flag == 0) {}", "__threadfence_block();", True),  # a plain store
    ],
)
def test_a_volatile_flag_in_shared_memory_is_a_flag_where_there_are_fences(tell, hear, fence, race):
    source = FLAG.replace("TELL", tell).replace("HEAR", hear).replace("FENCE", fence)
    run = helpers.compile(source).launch(1, 64, [np.zeros(32, np.int32)], on="cpu", counters=False)
    assert {finding.kind for finding in run.findings} == ({"race"} if race else set())


@pytest.mark.parametrize("fence", ["", "__threadfence_block();"])
@pytest.mark.parametrize("barrier, race", [("", True), ("__syncthreads();", False)])
def test_numbers_in_volatile_shared_memory_race_with_fences_as_well(fence, barrier, race):
    source = f"""extern "C" __global__ void f(int* y) {{
        __shared__ volatile int s[64];
        int t = threadIdx.x;
        s[t] = t; {fence} {barrier}
        y[t] = s[63 - t];
    }}"""
    run = helpers.compile(source).launch(1, 64, [np.zeros(64, np.int32)], on="cpu", counters=False)
    assert {finding.kind for finding in run.findings} == ({"race"} if race else set())


FLAGS = """
__device__ __noinline__ int get(volatile int* p) { return *p; }
__device__ __noinline__ void wait(volatile int* p) { while (!*p) {} }
extern "C" __global__ void f(int* y, volatile int* x) {
    __shared__ volatile int flag[64], v[64];
    __shared__ int s[64];
    const int t = threadIdx.x;
    flag[t] = v[t] = s[t] = 0;
    __syncthreads();
    if (t < 8) { TELL } else if (t >= 32 && t < 40) { const int i = t - 32; HEAR }
}"""
TELL, HEAR = "s[t] = t; __threadfence_block(); flag[t] = 1;", "while (!flag[i]) {} __threadfence_block(); y[t] = s[i];"


@pytest.mark.parametrize(
    ("tell", "hear", "race"),
    [
        (TELL, HEAR, False),
        (TELL, "while (flag[i] < 1) __nanosleep(20); __threadfence_block(); y[t] = s[i];", False),
        (TELL, "for (int j = 0; j < 8; j++) while (!flag[j]) {} __threadfence_block(); y[t] = s[i];", False),
        (TELL, "int ready; do ready = flag[i]; while (!__all_sync(255, ready)); __threadfence_block(); y[t] = s[i];", False),
        (TELL, HEAR + " y[t] += x[t];", False),  # what is read elsewhere moves data, but in device memory
        ("v[t] = 5; " + TELL, HEAR + " y[t] += v[i];", False),  # in another variable, and released
        (TELL, "wait(flag + i); __threadfence_block(); y[t] = s[i];", False),
        ("flag[t] = 5;", "__threadfence_block(); y[t] = get(flag + i);", True),
        ("flag[t] = 5;", "__threadfence_block(); y[t] = atomicAdd((int*)flag + i, 0);", True),
        ("flag[t] = 5;", "__threadfence_block(); y[t] = flag[i];", True),  # data
        ("flag[t] = 5;", "while (!flag[i]) {} __threadfence_block(); y[t] = flag[i];", True),  # both
        ("flag[t] = 5;", "__threadfence_block(); int n = flag[i]; if (n) s[8 + i] = n;", True),
        ("flag[t] = 5;", "__threadfence_block(); if (flag[i]) atomicAdd(&s[0], flag[i]);", True),
        ("v[t] = 5; " + TELL, "y[t] = v[i]; " + HEAR, True),  # before it has been looked at
        (TELL, "y[t] = s[i]; while (!flag[i]) {}", True),
        (TELL, HEAR.replace("!flag[i]", "!((int*)flag)[i] && y[t] == 0"), True),  # looked at plainly
        (TELL.replace("flag[t]", "((int*)flag)[t]"), HEAR, True),  # set plainly
        ("s[t] = t; flag[t] = 1;", "while (!flag[i]) {} y[t] = s[i];", True),  # without fences
    ],
)  # fmt: skip
def test_flags_that_lanes_set_at_once_are_no_data(tell, hear, race):
    source = FLAGS.replace("TELL", tell).replace("HEAR", hear)
    run = helpers.compile(source).launch(2, 64, [np.zeros(64, np.int32), np.zeros(64, np.int32)], on="cpu", counters=False)
    assert {finding.kind for finding in run.findings} == ({"race"} if race else set())


PIPE = """
__device__ unsigned at(void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void arrive(unsigned long long* b) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(at(b)) : "memory");
}
__device__ void wait(unsigned long long* b, int phase) {
    asm volatile("{.reg .pred p;\\nL: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\\n@!p bra L;}" :: "r"(at(b)), "r"(phase) : "memory");
}
extern "C" __global__ void f(const float* x, float* y) {
    __shared__ float s[64];
    __shared__ unsigned long long full, empty;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0)
        for (unsigned long long* b : {&full, &empty})
            asm volatile("mbarrier.init.shared::cta.b64 [%0], ARRIVALS;" :: "r"(at(b)) : "memory");
    __syncthreads();
    for (int i = 0; i < 3; i++)
        if (warp == 0) {
            if (i) wait(&empty, i - 1 & 1);
            WRITE
        } else {
            wait(&full, i & 1);
            READ
        }
}"""
ONE, EACH = "if (lane == 0) arrive(BARRIER);", "arrive(BARRIER);"
WRITE, READ = "s[lane] = x[lane] + i;", "y[lane] += s[31 - lane];"


@pytest.mark.parametrize(
    "writing, reading, arrivals, told",
    [
        (f"{WRITE} __syncwarp(); {ONE}", f"{READ} __syncwarp(); {ONE}", 1, ""),
        (f"{WRITE} {EACH}", f"{READ} {EACH}", 32, ""),
        (f"{WRITE} {ONE}", f"{READ} __syncwarp(); {ONE}", 1, "writes"),
        (f"{WRITE} __syncwarp(); {ONE}", f"{READ} {ONE}", 1, "reads"),
        (f"if (lane == 0) {{ s[0] = x[0] + i; arrive(BARRIER); }} else {WRITE}", f"{READ} __syncwarp(); {ONE}", 1, "writes"),
        ("if (lane == 0) { for (int j = 0; j < 32; j++) s[j] = x[j] + i; arrive(BARRIER); }", f"{READ} __syncwarp(); {ONE}", 1, ""),
        (f"{WRITE} __syncwarp(); {ONE}", "float v = s[31 - lane]; v += __shfl_xor_sync(~0u, v, 1); " + ONE + " y[lane] += v;", 1, ""),
        (f"{WRITE} __syncwarp(); {ONE}", "if (lane == 0) { y[0] += s[5]; arrive(BARRIER); }", 1, ""),
        (f"{WRITE} __syncwarp(); if (lane < 2) arrive(BARRIER);", "if (lane < 2) { y[lane] += s[5]; arrive(BARRIER); }", 2, ""),
        (f"{WRITE} if (lane == 3) arrive(BARRIER); __syncwarp(); {ONE}", f"{READ} __syncwarp(); if (lane < 2) arrive(BARRIER);", 2, ""),
    ],
)
def test_one_lane_arrives_at_an_mbarrier_for_its_warp(writing, reading, arrivals, told):
    source = PIPE.replace("WRITE", writing.replace("BARRIER", "&full")).replace("READ", reading.replace("BARRIER", "&empty"))
    x, y = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    kernel = helpers.compile(source.replace("ARRIVALS", str(arrivals)))
    found = kernel.launch(1, 64, (x, y), on="cpu", counters=False).findings
    assert bool(found) == bool(told)
    assert all(one.kind == "race" and told in one.message and one.advice == LANES_ADVICE for one in found)


STAGES = """extern "C" __global__ void f(const float* x, float* y) {
    __shared__ __align__(16) float s[STAGES][64];
    const int t = threadIdx.x;
    auto start = [&](int stage) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"((unsigned)__cvta_generic_to_shared(&s[stage][t])), "l"(x + t) : "memory");
        asm volatile("cp.async.commit_group;");
    };
"""
COPIES = (
    STAGES.replace("STAGES", "2")
    + """    start(0);
    float sum = 0;
    #pragma unroll 1
    for (int i = 0; i < 3; i++) {
        LOOP
    }
    y[t] = sum;
}"""
)
WAIT = 'asm volatile("cp.async.wait_group 0;" ::: "memory"); '


@pytest.mark.parametrize(
    ("loop", "late"),
    [
        (f"__syncthreads(); {WAIT} start((i + 1) % 2); sum += s[i % 2][63 - t];", True),
        (f"__syncthreads(); start((i + 1) % 2); {WAIT} sum += s[i % 2][63 - t];", True),
        (f"if (i > 0) __syncthreads(); {WAIT} sum += s[i % 2][63 - t]; __syncthreads(); start((i + 1) % 2);", False),
        (f"{WAIT} sum += s[i % 2][63 - t]; s[i % 2][t] = 0; sum += s[i % 2][t ^ 32]; __syncthreads(); start(i % 2);", False),
    ],
    ids=["the barrier first", "the barrier long before", "no barrier yet, in the first turn", "no barrier, in every turn"],
)  # fmt: skip
def test_a_wait_behind_the_barrier_is_said_to_stand_on_its_wrong_side(loop, late):
    """A second barrier would be right as well, and costs one for each step."""
    x = np.zeros(64, np.float32)
    for blocks in (1, 3):
        found = helpers.compile(COPIES.replace("LOOP", loop)).launch(blocks, 64, (x, np.zeros_like(x)), on="cpu", counters=False).findings
        first = found[0]
        assert first.kind == "race" and (first.advice == LATE_WAIT_ADVICE) == late
        assert ("by a copy for which it waits only behind the barrier." in first.message) == late
        assert ("with no barrier between" in first.message) != late
    if loop.startswith("__syncthreads(); as"):
        mended = COPIES.replace("LOOP", loop.replace(f"__syncthreads(); {WAIT}", f"{WAIT}__syncthreads(); "))
        assert not helpers.compile(mended).launch(1, 64, (x, np.zeros_like(x)), on="cpu", counters=False).findings


AHEAD = (
    STAGES.replace("STAGES", "3")
    + """    auto wait = [&] { asm volatile("cp.async.wait_group 1;" ::: "memory"); };  // the wait
    float sum = 0;
    for (int stage = 0; stage < 2; stage++) start(stage);
    FIRST
    UNROLL
    for (int i = 0; i < 4; i++) {
        LOOP
    }
    y[t] = sum;
}"""
)
USE = "sum += s[i % 3][63 - t]; start((i + 2) % 3);"


@pytest.mark.parametrize("unroll", ["#pragma unroll 1", "#pragma unroll"])
@pytest.mark.parametrize(
    ("first", "loop", "late"),
    [
        ("__syncthreads();", f"wait();\n{USE}", False),
        ("wait(); __syncthreads();", f"{USE} wait();", False),
        ("if (sum == 0) { __syncthreads(); }", f"wait();\n{USE}", False),
        ("", f"__syncthreads(); wait(); {USE}", True),
        ("", f"__syncthreads(); sum += t; start((i + 2) % 3); wait(); {USE.partition(';')[0]};", True),
    ],
    ids=["before the loop", "before the loop, and a wait", "in a branch before", "the barrier first", "the barrier first, and a copy"],
)
def test_a_barrier_before_the_loop_is_not_the_one_that_a_wait_in_it_belongs_to(first, loop, late, unroll):
    """To move that wait would be wrong: what its loop lacks is a barrier behind it."""
    source = AHEAD.replace("FIRST", first).replace("LOOP", loop).replace("UNROLL", unroll)
    x = np.zeros(64, np.float32)
    found = helpers.compile(source).launch(1, 64, (x, np.zeros_like(x)), on="cpu", counters=False).findings
    told = next(one for one in found if "by a copy for which it waits" in one.message)
    assert told.advice == (LATE_WAIT_ADVICE if late else NO_BARRIER_ADVICE)
    if not late:
        line = next(number for number, text in enumerate(source.split("\n"), 1) if text.endswith("// the wait"))
        assert f"waits at line {line} (called at line " in told.message and "with no barrier behind that" in told.message
