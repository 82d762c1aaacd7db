"""Races between the blocks of a cluster: which warp has told which, and which has been told."""

from __future__ import annotations

import numpy as np
import pytest

import helpers
from tests import ROOT

HAND_OVER = """
#include <stdint.h>
__device__ unsigned at(const void* s) { return (unsigned)__cvta_generic_to_shared(s); }
__device__ unsigned there(const void* s, int rank) {
    unsigned r; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(at(s)), "r"(rank)); return r; }
#define ARRIVE(how, place) asm volatile("mbarrier.arrive" how ".b64 _, [%0];" :: "r"(place) : "memory")
#define OVER(barrier, how) \\
    asm volatile("{.reg .pred e; again: mbarrier.try_wait.parity" how ".b64 e, [%0], 0; @!e bra again;}" :: "r"(at(barrier)) : "memory")
#define MEET(number, count) asm volatile("bar.sync %0, %1;" :: "n"(number), "n"(count) : "memory")
#define REMOTE ".release.cluster.shared::cluster"
#define CTA ".release.cta.shared::cluster"
#define OWN ".shared::cta"
#define NO_SCOPE ".shared::cluster"
#define RELAXED ".relaxed.cluster.shared::cluster"
#define ACQUIRE ".acquire.cluster.shared::cta"
#define SYNC asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory")
extern "C" __global__ void __cluster_dims__(2) f(float* y) {
    __shared__ float s[128];
    __shared__ uint64_t full, mine;
    __shared__ int flag;
    const int t = threadIdx.x, other = blockIdx.x ^ 1;
    if (t == 0) {
        flag = 0;
        asm volatile("mbarrier.init.shared::cta.b64 [%0], COUNT;" :: "r"(at(&full)));
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 4;" :: "r"(at(&mine)));
    }
    SYNC;
    s[t] = t;
    TELL
    HEAR
    float v; asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(there(&s[t ^ 127], other)) : "memory"); // here
    y[blockIdx.x * 128 + t] = v;
    SYNC;
}"""


def findings(tell, hear="OVER(&full, ACQUIRE);", count=1):
    source = HAND_OVER.replace("TELL", tell).replace("HEAR", hear).replace("COUNT", str(count))
    found = helpers.compile(source, arch="sm_90a").launch(2, 128, [np.zeros(256, np.float32)], on="cpu", counters=False).findings
    lines = source.splitlines()
    assert all(finding.kind == "race" and "// here" in lines[finding.line - 1] for finding in found)
    assert all("mbarrier that the other block arrives at" in finding.advice for finding in found)
    return bool(found)


ONE = "if (t == 0) ARRIVE(REMOTE, there(&full, other));"


@pytest.mark.parametrize(
    "tell, count, race",
    [
        (f"__syncthreads(); {ONE}", 1, False),
        (ONE, 1, True),  # the others may not have stored yet
        ("if (t % 32 == 0) ARRIVE(REMOTE, there(&full, other));", 4, False),  # each warp for itself
        ("ARRIVE(REMOTE, there(&full, other));", 128, False),
        ("if (t % 32 == 0 && t < 96) ARRIVE(REMOTE, there(&full, other));", 3, True),
        (f"MEET(1, 128); {ONE}", 1, False),
        (f"if (t < 64) {{ MEET(1, 64); }} {ONE}", 1, True),  # of half of them
        (f'if (t % 32 == 0) ARRIVE(".shared::cta", at(&mine)); if (t == 0) OVER(&mine, ".shared::cta"); {ONE}', 1, False),
        (f'if (t % 32 == 0) ARRIVE(".shared::cta", at(&mine)); {ONE}', 1, True),  # nobody waits there
        ("__syncthreads(); if (t == 0) ARRIVE(NO_SCOPE, there(&full, other));", 1, False),  # as much code has it
        ("__syncthreads(); if (t == 0) ARRIVE(CTA, there(&full, other));", 1, True),  # to its own block only
        ("__syncthreads(); if (t == 0) ARRIVE(RELAXED, there(&full, other));", 1, True),
        (
            '__syncthreads(); if (t == 0) { asm volatile("fence.acq_rel.cluster;" ::: "memory"); ARRIVE(RELAXED, there(&full, other)); }',
            1,
            False,
        ),
        (
            'if (t == 0) { asm volatile("fence.acq_rel.cluster;" ::: "memory"); ARRIVE(RELAXED, there(&full, other)); }',
            1,
            True,  # it orders what its thread knows, no more
        ),
    ],
)
def test_whoever_arrives_tells_what_its_warp_knows(tell, count, race):
    assert findings(tell, count=count) == race


@pytest.mark.parametrize(
    "hear, race",
    [
        ("OVER(&full, ACQUIRE);", False),
        ("if (t == 0) OVER(&full, ACQUIRE);", True),  # and the others go on
        ("if (t == 0) OVER(&full, ACQUIRE); __syncthreads();", False),
        ("if (t % 32 == 0) OVER(&full, ACQUIRE); __syncwarp();", False),
        ("if (t == 0) { OVER(&full, ACQUIRE); } if (t < 64) { MEET(2, 64); }", True),
        ("if (t == 0) { OVER(&full, ACQUIRE); } MEET(2, 128);", False),
        ("if (t == 0) { OVER(&full, ACQUIRE); for (int i = 0; i < 4; i++) ARRIVE(OWN, at(&mine)); } OVER(&mine, OWN);", False),
        # Not followed, and so nothing is made up.
        ("if (t == 0) { OVER(&full, ACQUIRE); __threadfence(); atomicExch(&flag, 1); } while (!atomicAdd(&flag, 0)) {}", False),
    ],
)  # fmt: skip
def test_whoever_has_waited_tells_the_others_of_its_block(hear, race):
    assert findings(f"__syncthreads(); {ONE}", hear) == race


def test_an_asynchronous_store_s_mbarrier_lies_where_it_stores_to():
    source = """
    __device__ unsigned at(const void* s) { return (unsigned)__cvta_generic_to_shared(s); }
    __device__ unsigned there(const void* s, int rank) {
        unsigned r; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(at(s)), "r"(rank)); return r; }
    extern "C" __global__ void __cluster_dims__(2) f(float* y) {
        __shared__ float s[32];
        __shared__ unsigned long long bar;
        if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(at(&bar)));
        asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];"
                     :: "r"(there(s, blockIdx.x ^ 1)), "f"(1.0f), "r"(there(&bar, blockIdx.x)) : "memory");
    }"""
    with pytest.raises(helpers.RunError, match="must lie in the block that it stores to"):
        helpers.compile(source).launch(2, 32, [np.zeros(32, np.float32)], on="cpu")


def test_a_very_large_launch_takes_blocks_for_one(monkeypatch):
    monkeypatch.setattr("helpers.sim.checks.cluster_races.MOST", 1)
    assert not findings(ONE) and findings("__syncthreads(); if (t == 0) ARRIVE(RELAXED, there(&full, other));")


@pytest.mark.slow
def test_a_stage_that_a_consumer_releases_to_its_own_producer_only():
    """Step 17 with one consumer that does not tell the other block's producer, whose count expects no more."""
    source = next((ROOT / "kernels").glob("17_*.cu")).read_text(encoding="utf-8")
    for old, new in (
        ("CONSUMERS * CLUSTER);  // every", "CONSUMERS + CLUSTER - 1);  // every"),
        ("if (t % 128 < CLUSTER) arrive", "if (t % 128 < CLUSTER && (group == 0 || t % 128 == rank)) arrive"),
    ):
        assert source.count(old) == 1
        source = source.replace(old, new)
    found = helpers.gemm.check(
        helpers.compile(source), [helpers.gemm.Problem(512, 256, 512, dtype="bfloat16", out_dtype="bfloat16")], on="cpu"
    ).findings
    assert {finding.kind for finding in found} == {"race"} and "that block reads" in found[0].message


@pytest.mark.parametrize("store", ["atomicAdd(c.map_shared_rank(&flag, 1), 1);", "*(volatile int*)c.map_shared_rank(&flag, 1) = 1;"])
@pytest.mark.parametrize("fence", ["__threadfence(); __syncthreads();", "__syncthreads(); if (t == 0) __threadfence();"])
def test_a_flag_in_another_block_s_shared_memory_is_no_race(store, fence):
    source = """#include <cooperative_groups.h>
    extern "C" __global__ void __cluster_dims__(2) f(int* y) {
        __shared__ int s[64], flag;
        const int t = threadIdx.x;
        auto c = cooperative_groups::this_cluster();
        if (t == 0) flag = 0;
        c.sync();
        if (c.block_rank() == 0) {
            c.map_shared_rank(s, 1)[t] = t + 1;
            FENCE if (t == 0) STORE
        } else {
            if (t == 0) { while (*(volatile int*)&flag == 0) {} __threadfence(); }
            __syncthreads();
            y[t] = s[63 - t];
        }
        c.sync();
    }""".replace("STORE", store).replace("FENCE", fence)
    y = np.zeros(64, np.int32)
    assert not helpers.compile(source, arch="sm_90").launch(2, 64, [y], on="cpu", counters=False).findings
    assert y.tolist() == list(range(64, 0, -1))


SET, POLL = "*(volatile int*)c.map_shared_rank(&flag, 1) = 1;", "while (*(volatile int*)&flag == 0) {}"
STORE = 'asm volatile("st.{}.cluster.s32 [%0], 1;" :: "l"(c.map_shared_rank(&flag, 1)) : "memory");'
LOAD = 'do asm volatile("ld.{}.cluster.s32 %0, [%1];" : "=r"(n) : "l"(&flag) : "memory"); while (n == 0);'


@pytest.mark.parametrize(
    ("tell", "hear", "races"),
    [
        (f"__threadfence(); {SET}", POLL, 0),
        (f"__threadfence(); {SET}", f"{POLL} __threadfence(); y[1] = 1;", 0),
        ("__threadfence(); atomicAdd(c.map_shared_rank(&flag, 1), 1);", POLL, 0),
        (STORE.format("release"), LOAD.format("acquire"), 0),
        (STORE.format("relaxed"), LOAD.format("relaxed"), 0),
        (f"__threadfence(); {SET}", "y[1] = 1;", 1),  # nobody waits for it
        (f"__threadfence(); {SET}", "if (*(volatile int*)&flag) y[1] = 1;", 1),  # looked at once, too early
        (f"__threadfence(); {SET}", f"while (*(volatile int*)&other == 1) {{}} {SET.replace('1)', '0)')}", 2),  # of two blocks
        (f"__threadfence(); {SET} *c.map_shared_rank(&other, 1) = 1;", POLL, 1),  # behind the flag
        (f"__threadfence(); {SET}", "y[1] = *(volatile int*)&flag;", 2),  # moved, and not waited for
        (f"__threadfence(); {SET.replace('(volatile int*)', '')}", POLL, 2),  # stored plainly
    ],
)
@pytest.mark.parametrize("order", ["", "upwards", "downwards"])
def test_a_block_does_not_end_before_the_flag_that_it_waits_for(tell, hear, races, order):
    source = f"""#include <cooperative_groups.h>
    extern "C" __global__ void __cluster_dims__(2) f(int* y) {{
        __shared__ int flag, other;
        auto c = cooperative_groups::this_cluster();
        int n = 0;
        flag = other = n;
        c.sync();
        if (c.block_rank() == 0) {{
            {tell}
        }} else {{
            {hear}
        }}
    }}"""
    found = helpers.compile(source, arch="sm_90").launch(2, 1, [np.zeros(2, np.int32)], on="cpu", counters=False, in_turn=order).findings
    assert [finding.kind for finding in found] == ["race"] * len(found) and len(found) == races
    assert races != 1 or "nothing keeps that block from ending before" in found[0].message


@pytest.mark.parametrize(
    ("tell", "hear", "race"),
    [
        ("to[t] = t + 1; __threadfence(); set[t] = 1;", "while (!flag[t]) {} __threadfence(); y[t] = s[t];", False),
        ("to[t] = t + 1; set[t] = 1;", "while (!flag[t]) {} __threadfence(); y[t] = s[t];", True),  # not released
        ("to[t] = t + 1; __threadfence(); set[t] = 1;", "y[t] = s[t]; while (!flag[t]) {} __threadfence();", True),
        ("__threadfence(); set[t] = 1;", "y[t] = flag[t];", True),  # data
        ("__threadfence(); set[t] = 1;", "while (!flag[t]) {} y[t] = flag[t];", True),  # both
        ("__threadfence(); ((int*)set)[t] = 1;", "while (!flag[t]) {}", True),  # set plainly
    ],
)
@pytest.mark.parametrize("order", ["", "upwards", "downwards"])
def test_flags_that_lanes_set_at_once_in_another_block_are_no_data(tell, hear, race, order):
    source = f"""#include <cooperative_groups.h>
    extern "C" __global__ void __cluster_dims__(2) f(int* y) {{
        __shared__ int s[8];
        __shared__ volatile int flag[8];
        auto c = cooperative_groups::this_cluster();
        const int t = threadIdx.x;
        int* to = c.map_shared_rank(s, 1);
        volatile int* set = c.map_shared_rank((int*)flag, 1);
        flag[t] = s[t] = 0;
        c.sync();
        if (c.block_rank() == 0) {{ {tell} }} else {{ {hear} }}
    }}"""
    found = helpers.compile(source, arch="sm_90").launch(2, 8, [np.zeros(8, np.int32)], on="cpu", counters=False, in_turn=order).findings
    assert {finding.kind for finding in found} == ({"race"} if race else set())


NEIGHBOURS = """extern "C" __global__ void __cluster_dims__(2) f(float* y) {
    __shared__ float s[64];
    const int t = threadIdx.x;
    unsigned place, read;
    auto meet = [] { asm volatile("barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory"); };  // relaxed
    auto sync = [] { asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory"); };
    auto fence = [] { asm volatile("fence.acq_rel.cluster;" ::: "memory"); };
    BEGIN
    s[t] = t;
    FIRST
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(place) : "r"((unsigned)__cvta_generic_to_shared(&s[t])), "r"(blockIdx.x ^ 1));
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(read) : "r"(place) : "memory");
    y[blockIdx.x * 64 + t] = __uint_as_float(read);
    LAST
}"""


@pytest.mark.parametrize(
    ("begin", "first", "last", "relaxed"),
    [
        ("sync();", "meet(); // told", "sync();", True),
        ("sync();", "fence(); meet();", "sync();", None),
        ("meet();", "sync();", "meet(); // told", True),
        ("meet();", "sync();", "fence(); meet();", None),
        ("meet();", "sync();", "", False),  # the relaxed one came before there was anything to order
        ("sync(); meet();", "", "sync();", False),
    ],
)
def test_a_relaxed_barrier_that_stands_where_one_is_needed_is_named(begin, first, last, relaxed):
    """To call cluster.sync() there is no advice to somebody who takes that for what it is."""
    source = NEIGHBOURS.replace("BEGIN", begin).replace("FIRST", first).replace("LAST", last)
    found = helpers.compile(source, arch="sm_90").launch(2, 64, [np.zeros(128, np.float32)], on="cpu", counters=False).findings
    assert bool(found) == (relaxed is not None)
    line, call = (
        next((number for number, text in enumerate(source.splitlines(), 1) if text.endswith(mark)), 0) for mark in ("// relaxed", "// told")
    )
    for finding in found:
        named = f"barrier of line {line} (called at line {call}), but they arrive there with .relaxed" in finding.advice
        assert named == relaxed and (("cluster.sync()," in finding.advice or "Call cluster.sync()" in finding.advice) != relaxed)
