"""Races in device memory: what orders accesses, and what is said. The corpus has the rest.

Tests of: helpers.sim.checks.released, helpers.sim.code.decisions
"""

from __future__ import annotations

import numpy as np
import pytest

import helpers
from helpers.sim.checks.device_races import ADVICE, SAME_ELEMENT


def findings(source, grid, block, *args):
    return helpers.compile(source).launch(grid, block, args, on="cpu", counters=False).findings


def test_the_finding_names_element_threads_and_lines():
    source = """extern "C" __global__ void f(float* C) {
        float left = C[threadIdx.x];
        C[(threadIdx.x + 1) % 32 + 32] = left;
        C[threadIdx.x + 32] = 2 * left + 1;
    }"""
    first, *_ = findings(source, 1, 32, np.arange(64, dtype=np.float32).reshape(8, 8))
    assert (first.kind, first.line, first.other_line) == ("race", 4, 3)
    assert "C[4, 0], which thread (31, 0, 0) writes at line 3" in first.message


@pytest.mark.parametrize(
    "body, races",
    [
        ("C[blockIdx.x] = t + 1; __threadfence(); if (atomicAdd(C + 8, 1.0f) == 127) C[9] = C[0] + C[3];", True),  # several write
        ("if (!t) { C[blockIdx.x] = 7; __threadfence(); if (atomicAdd(C + 8, 1.0f) == 3) C[9] = C[0] + C[3]; }", False),
        ("if (!t) { C[blockIdx.x] = 7; float n = atomicAdd(C + 8, 1.0f); __threadfence(); if (n == 3) C[9] = C[0] + C[3]; }", True),
        ("C[16 + blockIdx.x * 32 + t] = t + 1; __threadfence(); if (!t && atomicAdd(C + 8, 1.0f) == 3) C[9] = C[16] + C[17];", True),
        ("C[16 + blockIdx.x * 32 + t] = t + 1; __threadfence(); if (!t && atomicAdd(C + 8, 1.0f) == 3) C[9] = C[16] + C[48];", False),
        (
            "C[16 + blockIdx.x * 32 + t] = t + 1; __threadfence(); atomicAdd(C + 8, 1.0f);"
            " if (!t && !blockIdx.x) { while (*(volatile float*)(C + 8) != 128) {} C[9] = C[17] + C[49]; }",
            False,
        ),
        (
            "C[16 + blockIdx.x * 32 + t] = t + 1; __syncwarp(); __threadfence(); if (!t && atomicAdd(C + 8, 1.0f) == 3) C[9] = C[17] + C[49];",
            False,
        ),
        (
            "C[16 + blockIdx.x * 32 + t] = t + 1; __threadfence(); __syncthreads(); if (!t && atomicAdd(C + 8, 1.0f) == 3) C[9] = C[17] + C[49];",
            False,
        ),
        (
            "C[16 + blockIdx.x * 32 + t] = t + 1; __syncthreads(); __threadfence(); if (!t) *(volatile float*)(C + blockIdx.x) = 1;"
            " if (!t && !blockIdx.x) { while (*(volatile float*)(C + 1) != 1) {} C[9] = C[17] + C[49]; }",
            False,
        ),
        (
            "C[16 + blockIdx.x * 32 + t] = t + 1; __threadfence(); if (!t) *(volatile float*)(C + blockIdx.x) = 1;"
            " if (!t && !blockIdx.x) { while (*(volatile float*)(C + 1) != 1) {} C[9] = C[17] + C[49]; }",
            True,
        ),
        (
            "__threadfence(); if (!t) { atomicAdd(C + 8, 1.0f); if (!blockIdx.x) { while (*(volatile float*)(C + 8) != 4) {} C[8] = 0; } }",
            False,
        ),
        ("C[0] = 5;", False),  # everybody writes the same
        ("C[0] = t;", True),
        ("C[t % 4] = blockIdx.x;", True),
        ("C[blockIdx.x * 32 + t] = 1;", False),
        ("atomicAdd(&C[0], 1.0f);", False),
        ("atomicAdd_block(&C[0], 1.0f);", True),  # atomic to the threads of one block
        ("if (blockIdx.x) atomicAdd_block(&C[0], 1.0f); else atomicAdd(&C[0], 1.0f);", True),
        ("atomicAdd_block(&C[blockIdx.x], 1.0f);", False),
        ("atomicAdd(&C[0], 1.0f); C[1] = C[0];", True),
        ("C[blockIdx.x * 32 + t] = t; __syncthreads(); C[128 + blockIdx.x * 32 + t] = C[blockIdx.x * 32 + 31 - t];", False),
        ("C[blockIdx.x * 32 + t] = t; __syncwarp(); C[128 + blockIdx.x * 32 + t] = C[blockIdx.x * 32 + 31 - t];", False),
        ("C[blockIdx.x * 32 + t] = t + 1; C[128 + blockIdx.x * 32 + t] = C[blockIdx.x * 32 + 31 - t];", True),
        ("C[blockIdx.x * 32 + t] = t + 1; __syncthreads(); C[128 + t] = C[(blockIdx.x + 1) % gridDim.x * 32 + t];", True),
    ],
)
def test_what_is_a_race(body, races):
    source = f'extern "C" __global__ void f(float* C) {{ int t = threadIdx.x; {body} }}'
    found = findings(source, 4, 32, np.zeros(256, np.float32))
    assert {finding.kind for finding in found} == ({"race"} if races else set())


@pytest.mark.parametrize("cluster", [1, 2])
@pytest.mark.parametrize("fence", ["", "__threadfence();"], ids=["no fence", "a fence"])
@pytest.mark.parametrize("before, behind", [("", ""), ("MEET", ""), ("", "MEET")], ids=["no barrier", "before", "behind"])
def test_blocks_of_a_cluster_that_meet_need_no_fence(cluster, fence, before, behind):
    """Behind what they write: a cluster's barrier releases and acquires. A fence that comes later makes no difference."""
    source = f"""extern "C" __global__ void __cluster_dims__({cluster}) f(float* C) {{
        {before} if (!threadIdx.x) C[blockIdx.x] = 7;
        {behind} if (!threadIdx.x) C[8 + blockIdx.x] = C[blockIdx.x ^ 1];
        {fence} MEET
    }}""".replace("MEET", 'asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");')
    found = {finding.kind for finding in findings(source, 4, 32, np.zeros(256, np.float32))}
    assert found == (set() if behind and cluster > 1 else {"race"})


@pytest.mark.parametrize("cluster", [1, 2])
def test_a_cluster_s_barrier_does_not_stand_for_the_fence_of_what_comes_later(cluster):
    source = f"""extern "C" __global__ void __cluster_dims__({cluster}) f(float* C) {{
        asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
        if (!threadIdx.x) {{ C[blockIdx.x] = 7; float n = atomicAdd(C + 8, 1.0f); __threadfence(); if (n == 3) C[9] = C[0] + C[3]; }}
    }}"""
    assert {finding.kind for finding in findings(source, 4, 32, np.zeros(256, np.float32))} == {"race"}


@pytest.mark.parametrize(
    "body, race",
    [
        ("if (t == 64) __threadfence(); __syncthreads(); if (t == 0) n = atomicAdd(C, 1.0f);", True),  # its own words only
        ("__syncthreads(); if (t == 64) __threadfence(); __syncthreads(); if (t == 0) n = atomicAdd(C, 1.0f);", False),
        ("__syncthreads(); if (t == 1) __threadfence(); if (t == 0) n = atomicAdd(C, 1.0f);", True),  # another one's fence
        ("__syncthreads(); if (t == 1) __threadfence(); __syncwarp(); if (t == 0) n = atomicAdd(C, 1.0f);", False),
        ("__syncthreads(); if (t == 0) { __threadfence(); n = atomicAdd(C, 1.0f); }", False),
        ("__threadfence(); __syncthreads(); if (t == 0) n = atomicAdd(C, 1.0f);", False),
        ("if (t == 0) { __threadfence(); n = atomicAdd(C, 1.0f); }", True),  # nobody waited for the others
        ("MEET(96) if (t == 0) { __threadfence(); n = atomicAdd(C, 1.0f); }", True),  # not for all of them
        ("MEET(128) if (t == 0) { __threadfence(); n = atomicAdd(C, 1.0f); }", False),
    ],
)
def test_whoever_releases_has_to_know_of_what_it_releases(body, race):
    source = """
    #define MEET(count) if (t < count) asm volatile("bar.sync 1, %0;" :: "n"(count) : "memory");
    extern "C" __global__ void f(float* C) {
        __shared__ float n;
        int t = threadIdx.x;
        C[256 + blockIdx.x * 128 + t] = t;
        BODY
        __syncthreads();
        if (n == 1) { __threadfence(); C[t] = C[256 + t] + C[384 + 127 - t]; }
    }"""
    found = {finding.kind for finding in findings(source.replace("BODY", body), 2, 128, np.zeros(512, np.float32))}
    assert found == ({"race"} if race else set())


def test_asynchronous_copies_read_too():
    source = """extern "C" __global__ void f(float* C) {
        __shared__ float s[32];
        C[threadIdx.x] = threadIdx.x + 1;
        unsigned to = __cvta_generic_to_shared(s + threadIdx.x);
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to), "l"(C + (threadIdx.x ^ 1)) : "memory");
        asm volatile("cp.async.wait_all;" ::: "memory");
        C[threadIdx.x + 32] = s[threadIdx.x];
    }"""
    (finding,) = findings(source, 1, 32, np.zeros(64, np.float32))
    assert (finding.kind, finding.line, finding.other_line) == ("race", 5, 3)


@pytest.mark.parametrize(
    "look, behind, races",
    [
        ("ld.acquire.gpu", "", False),
        ("ld.acquire.sys", "", False),
        ("ld.relaxed.gpu", "", True),
        ("ld.acquire.cta", "", True),  # orders what its own block wrote
        ("ld.relaxed.gpu", "__threadfence();", False),
        ("ld.relaxed.gpu", 'asm volatile("fence.acq_rel.gpu;" ::: "memory");', False),
        ("ld.relaxed.gpu", "__threadfence_block();", True),
        ("ld.volatile", "", False),  # an order is not promised, but relied on everywhere
    ],
)
@pytest.mark.parametrize("cluster", [1, 2])
def test_a_look_that_acquires_orders_what_was_released(look, behind, races, cluster):
    source = f"""extern "C" __global__ void __cluster_dims__({cluster}) f(float* C, int* flag) {{
        int t = threadIdx.x;
        if (blockIdx.x == 0) {{
            C[t] = t + 1;
            __syncthreads();
            if (t == 0) asm volatile("st.release.gpu.global.s32 [%0], 1;" :: "l"(flag) : "memory");
        }} else if (blockIdx.x == 2) {{
            if (t == 0) {{
                int seen;
                do asm volatile("{look}.global.s32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory"); while (seen == 0);
                {behind}
            }}
            __syncthreads();
            C[32 + t] = C[31 - t];
        }}
        {'asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");' if cluster > 1 else ""}
    }}"""
    found = findings(source, 4, 32, np.zeros(64, np.float32), np.zeros(1, np.int32))
    assert [(finding.kind, finding.line, finding.other_line) for finding in found] == ([("race", 14, 4)] if races else [])
    assert all("use .acquire.gpu" in finding.advice for finding in found)


@pytest.mark.parametrize("release, races", [("st.release.gpu", False), ("st.relaxed.gpu", True), ("st.release.cta", True)])
def test_a_store_that_releases_orders_what_came_before_it(release, races):
    source = f"""extern "C" __global__ void f(float* C, int* flag) {{
        if (blockIdx.x == 0) {{
            C[0] = 7;
            asm volatile("{release}.global.s32 [%0], 1;" :: "l"(flag) : "memory");
        }} else {{
            int seen;
            do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory"); while (seen == 0);
            C[1] = C[0];
        }}
    }}"""
    found = findings(source, 2, 1, np.zeros(2, np.float32), np.zeros(1, np.int32))
    assert [(finding.kind, finding.line, finding.other_line) for finding in found] == ([("race", 8, 3)] if races else [])


@pytest.mark.parametrize(
    "order, behind, races",
    [
        ("", "", False),  # atomicAdd(): relaxed too, but relied on everywhere
        (".acq_rel.gpu", "", False),
        (".relaxed.gpu", "", True),
        (".release.gpu", "", True),
        (".acq_rel.cta", "", True),
        (".relaxed.gpu", "__threadfence();", False),
    ],
)
def test_whoever_counts_last_has_to_acquire(order, behind, races):
    source = f"""extern "C" __global__ void f(float* C, int* count) {{
        __shared__ int before;
        int t = threadIdx.x;
        C[32 + blockIdx.x * 32 + t] = t;
        __threadfence();
        __syncthreads();
        if (t == 0) {{
            asm volatile("atom{order}.global.add.s32 %0, [%1], 1;" : "=r"(before) : "l"(count) : "memory");
            {behind}
        }}
        __syncthreads();
        if (before == gridDim.x - 1) C[t] = C[32 + t] + C[64 + t];
    }}"""
    found = findings(source, 2, 32, np.zeros(128, np.float32), np.zeros(1, np.int32))
    assert ("race", 12, 4) in [(finding.kind, finding.line, finding.other_line) for finding in found] if races else not found


def test_fences_that_come_later_take_nothing_back():
    """What a thread did before a barrier is known behind it, whatever it does while another one sets the flag."""
    source = """extern "C" __global__ void f(int* d, int* y, int* flag) {
        int t = threadIdx.x;
        if (blockIdx.x == 1) {
            d[t] = t + 1; __threadfence(); __syncthreads();
            if (t >= 32) for (int i = 0; i < 2; i++) { while (*(volatile int*)(flag + 1) <= i) __threadfence(); __threadfence(); }
            if (t == 0) atomicExch(flag, 1);
        } else {
            if (t == 0) { atomicAdd(flag + 1, 1); __threadfence(); atomicAdd(flag + 1, 1); while (atomicAdd(flag, 0) == 0) {} __threadfence(); }
            __syncthreads(); y[t] = d[63 - t];
        }
    }"""
    assert not findings(source, 2, 64, np.zeros(64, np.int32), np.zeros(64, np.int32), np.zeros(2, np.int32))


@pytest.mark.parametrize("order", ["release.cluster", "release.gpu", "relaxed.gpu"])
def test_a_flag_in_another_block_s_shared_memory_hands_over_device_memory(order):
    source = """extern "C" __global__ void __cluster_dims__(2) f(int* d, int* y) {
        __shared__ int flag; int t = threadIdx.x, v; unsigned here = (unsigned)__cvta_generic_to_shared(&flag), there;
        if (t == 0) flag = 0;
        asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
        if (blockIdx.x == 0) {
            d[t] = t + 1; __syncthreads();
            asm volatile("mapa.shared::cluster.u32 %0, %1, 1;" : "=r"(there) : "r"(here));
            if (t == 0) asm volatile("st.ORDER.shared::cluster.u32 [%0], 1;" :: "r"(there) : "memory");
        } else {
            if (t == 0) do asm volatile("ld.acquire.gpu.shared::cta.u32 %0, [%1];" : "=r"(v) : "r"(here) : "memory"); while (!v);
            __syncthreads(); y[t] = d[63 - t];
        }
        asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
    }""".replace("ORDER", order)
    found = {finding.kind for finding in findings(source, 2, 64, np.zeros(64, np.int32), np.zeros(64, np.int32))}
    assert found == ({"race"} if order.startswith("relaxed") else set())


@pytest.mark.parametrize(
    "body, race",
    [
        ("volatile unsigned long long* w = (volatile unsigned long long*)C; int b = blockIdx.x; if (t) return;"
         " if (b) while (w[b - 1] == 0) {} w[b] = 1ull << 32 | b;", False),  # a word of state and value
        ("volatile float* w = C; if (t % 32) return; w[blockIdx.x * 2 + t / 32] = 1; while (w[(blockIdx.x ^ 1) * 2 + t / 32] == 0) {}", False),
        ("volatile float* w = C; w[blockIdx.x * 64 + t] = t + 1; if (blockIdx.x) C[128 + t] = w[t ^ 1];", True),  # data
    ],
)  # fmt: skip
def test_a_volatile_word_that_carries_its_own_value_needs_no_fence(body, race):
    source = f'extern "C" __global__ void f(float* C) {{ int t = threadIdx.x; {body} }}'
    assert {finding.kind for finding in findings(source, 2, 64, np.zeros(256, np.float32))} == ({"race"} if race else set())


PARTS = """
    #define TELL if (t == 0) n = atomicAdd(count, 1);
    extern "C" __global__ void f(float* C, int* count) {
        __shared__ int n;
        const int t = threadIdx.x;
        LEAVE
        __syncthreads();
        COUNT
        __syncthreads();
        if (n != gridDim.x - 1) return;
        __threadfence();
        float sum = 0;
        for (int i = 0; i < 3; i++) sum += READ; // here
        C[t] = sum;
    }"""
LEAVES = {
    "volatile": "((volatile float*)C)[64 + blockIdx.x * 32 + t] = t;",
    "atomic": "atomicExch(C + 64 + blockIdx.x * 32 + t, (float)t);",
    "added": "atomicAdd(C + 64 + blockIdx.x * 32 + t, (float)t);",
    "relaxed": 'asm volatile("st.relaxed.gpu.global.f32 [%0], %1;" :: "l"(C + 64 + blockIdx.x * 32 + t), "f"((float)t) : "memory");',
    "plain": "C[64 + blockIdx.x * 32 + t] = t;",
}
READS = {"plain": "C[64 + i * 32 + t]", "volatile": "((volatile float*)C)[64 + i * 32 + t]", "past L1": "__ldcg(&C[64 + i * 32 + t])"}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("leave", LEAVES)
@pytest.mark.parametrize("count, race", [("TELL", True), ("__threadfence(); TELL", False), ("if (t == 0) __threadfence(); TELL", False)])
def test_numbers_that_are_left_have_to_be_released_however_they_are_written(leave, read, count, race):
    """No branch asks what they are, so they do not say themselves whether they are there."""
    source = PARTS.replace("LEAVE", LEAVES[leave]).replace("COUNT", count).replace("READ", READS[read])
    found = findings(source, 3, 32, np.zeros(256, np.float32), np.zeros(1, np.int32))
    assert {finding.kind for finding in found} == ({"race"} if race else set())
    assert all("// here" in source.splitlines()[finding.line - 1] and "is not released" in finding.advice for finding in found)


@pytest.mark.parametrize(
    "body",
    [
        # Each word says whether it is there.
        "w[b * 64 + t] = t + 1; float v; while ((v = w[(b ^ 1) * 64 + t]) == 0) {} C[128 + b * 64 + t] = v;",
        "atomicExch(C + b * 64 + t, t + 1.0f); float v; while ((v = atomicAdd(C + (b ^ 1) * 64 + t, 0.0f)) == 0) {} C[128 + b * 64 + t] = v;",
        # One thread asks and gives the others what it has found by shared memory.
        "__shared__ float v; if (t == 0) { w[b] = 5; v = b ? w[0] : 0; } __syncthreads(); if (b && v == 5) C[64 + t] = v;",
        # Who has looked at a counter may read it again.
        "if (t == 0) { atomicAdd(C, 1.0f); while (*w != 2) {} C[64 + b] = C[0]; }",
    ],
)  # fmt: skip
@pytest.mark.parametrize("fence", ["", "__threadfence();"])
def test_words_that_say_whether_they_are_there_need_no_release(body, fence):
    names = "const int t = threadIdx.x, b = blockIdx.x; volatile float* w = C;"
    source = f'extern "C" __global__ void f(float* C) {{ {names} {fence} {body} }}'
    assert not findings(source, 2, 64, np.zeros(256, np.float32))


@pytest.mark.parametrize(
    "tell, hear, cluster, race",
    [
        ("red.release.gpu", "ld.acquire.gpu", 1, False),
        ("red.release.cluster", "ld.acquire.gpu", 1, True),
        ("red.release.gpu", "ld.acquire.cluster", 1, True),
        ("red.release.cluster", "ld.acquire.cluster", 2, False),  # the blocks are of one
    ],
)
def test_the_scope_of_a_cluster_is_that_of_a_block_where_there_are_no_clusters(tell, hear, cluster, race):
    source = f"""extern "C" __global__ void __cluster_dims__({cluster}) f(float* C, int* flag) {{
        if (blockIdx.x == 0) {{
            C[0] = 7;
            asm volatile("{tell}.global.add.s32 [%0], 1;" :: "l"(flag) : "memory");
        }} else {{
            int seen;
            do asm volatile("{hear}.global.s32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory"); while (seen == 0);
            C[1] = C[0];
        }}
    }}"""
    found = findings(source, 2, 1, np.zeros(2, np.float32), np.zeros(1, np.int32))
    assert {finding.kind for finding in found} == ({"race"} if race else set())
    assert not race or (8, 3) in [(finding.line, finding.other_line) for finding in found]


@pytest.mark.parametrize("scope, race", [("gpu", False), ("cluster", True)])
def test_the_same_of_fences(scope, race):
    source = f"""extern "C" __global__ void f(float* C, int* flag) {{
        if (blockIdx.x == 0) {{
            C[0] = 7;
            asm volatile("fence.acq_rel.{scope};" ::: "memory");
            atomicExch(flag, 1);
        }} else {{
            while (atomicAdd(flag, 0) == 0) {{}}
            C[1] = C[0];
        }}
    }}"""
    found = findings(source, 2, 1, np.zeros(2, np.float32), np.zeros(1, np.int32))
    assert [(finding.line, finding.other_line) for finding in found] == ([(8, 3)] if race else [])


READERS = {
    "volatile": "while (*(volatile int*)flag == 0) {}",
    "acquire": 'int v; do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(flag) : "memory"); while (!v);',
    "relaxed": 'int v; do asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(flag) : "memory"); while (!v);',
    "cv": "while (__ldcv(flag) == 0) {}",
    "cg": 'int v; do asm volatile("ld.global.cg.s32 %0, [%1];" : "=r"(v) : "l"(flag) : "memory"); while (!v);',
    "atomic": "while (atomicAdd(flag, 0) == 0) {}",
}
WRITERS = {"plain": "*flag = 1;", "volatile": "*(volatile int*)flag = 1;", "atomic": "atomicExch(flag, 1);", "cg": "__stcg(flag, 1);"}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("in_turn", ["upwards", "downwards"])
def test_whether_a_flag_races_is_no_matter_of_the_order_of_blocks(writer, reader, in_turn):
    """A flag that is written plainly behind a fence is left to its author, but not where it meets atomic operations."""
    source = f"""extern "C" __global__ void f(int* C, int* flag) {{
        if (blockIdx.x == 1) {{ C[0] = 7; __threadfence(); {WRITERS[writer]} }}
        else {{
            {READERS[reader]}
            __threadfence(); C[1] = C[0]; }}
    }}"""
    args = [np.zeros(2, np.int32), np.zeros(1, np.int32)]
    found = helpers.compile(source).launch(2, 1, args, on="cpu", counters=False, in_turn=in_turn, seconds=20).findings
    assert bool(found) == (reader == "atomic" and writer in ("plain", "cg")) and args[0][1] == 7


@pytest.mark.parametrize("reader", ["cv", "cg", "volatile"])
def test_a_flag_without_a_fence_before_it_is_found_by_any_look(reader):
    source = f"""extern "C" __global__ void f(int* C, int* flag) {{
        if (blockIdx.x == 1) {{ C[0] = 7; atomicExch(flag, 1); }}
        else {{ {READERS[reader]} __threadfence(); C[1] = C[0]; }}
    }}"""
    (finding,) = findings(source, 2, 1, np.zeros(2, np.int32), np.zeros(1, np.int32))
    assert (finding.kind, finding.line, finding.other_line) == ("race", 3, 2) and "is not released" in finding.advice


@pytest.mark.parametrize("order", ["", "upwards", "downwards"])
@pytest.mark.parametrize(
    "body",
    [
        # Who has polled a word reads it once more: without fences, and with them, more blocks than two asking for one word.
        "volatile int* w = flag; int sum = 0; for (int j = 0; j < b; j++) { while (w[j] == 0) {} sum += w[j]; } w[b] = b + 1; out[b] = sum;",
        "volatile int* w = flag; if (b == 0) { out[8] = 1; __threadfence(); w[0] = 5; } else { while (w[0] == 0) {} __threadfence();"
        " out[b] = w[0] + out[8]; }",
        # A bound that may be old, in a value that only an atomic operation takes.
        "volatile int* w = flag; int most = max(w[0], b); __threadfence(); atomicMax(flag, most);",
        # An index that is published behind a fence, and loaded from.
        "volatile int* w = flag; if (b == 0) { out[1] = 7; __threadfence(); w[0] = 1; } else { int at = w[0]; __threadfence();"
        " if (at) out[2 + b] = out[at]; }",
        # Flags that an atomic operation on shared memory gathers.
        "__shared__ int low; low = 9; volatile int* w = flag; w[b] = 1; atomicMin(&low, w[(b + 1) % 4]); __threadfence(); if (low) out[b] = 1;",
        # A state that is looked up in a table.
        "__shared__ int done[3]; for (int i = 0; i < 3; i++) done[i] = i; volatile int* w = flag; if (b == 0) { __threadfence(); w[0] = 1; }"
        " else while (!done[w[0]]) {} out[b] = 1;",
    ],
)  # fmt: skip
def test_loose_reads_that_need_no_release_are_left_alone(body, order):
    source = f'extern "C" __global__ void f(int* flag, int* out) {{ const int b = blockIdx.x; {body} }}'
    args = np.zeros(16, np.int32), np.zeros(16, np.int32)
    assert not helpers.compile(source).launch(4, 1, args, on="cpu", counters=False, in_turn=order).findings


@pytest.mark.parametrize("order", ["", "upwards", "downwards"])
def test_words_of_all_lanes_that_say_what_they_are_need_no_fence_beside_volatile_shared_memory(order):
    source = """extern "C" __global__ void f(volatile unsigned long long* w, int* out) {
        __shared__ volatile int s[32];
        const int t = threadIdx.x, b = blockIdx.x;
        s[t] = t;
        __syncwarp();
        const int v = s[31 - t];
        __syncwarp();
        w[b * 32 + t] = 1ull << 32 | v;
        unsigned long long got = 0;
        if (b) while ((got = w[(b - 1) * 32 + t]) == 0) {}
        out[b * 32 + t] = (int)got;
    }"""
    args = np.zeros(64, np.uint64), np.zeros(64, np.int32)
    assert not helpers.compile(source).launch(2, 32, args, on="cpu", counters=False, in_turn=order).findings
    assert np.array_equal(args[1][32:], 31 - np.arange(32))


FENCE, VOLATILE = "__threadfence_block();", "*(volatile int*)(flag + b)"
ST, LD = (
    'asm volatile("st.{}.cta.global.s32 [%0], 1;" :: "l"(flag + b) : "memory");',
    'do asm volatile("ld.{}.cta.global.s32 %0, [%1];" : "=r"(n) : "l"(flag + b) : "memory"); while (n == 0);',
)
REF = "cuda::atomic_ref<int, cuda::thread_scope_block>"
POLL = f"while ({VOLATILE} == 0) {{}}"


@pytest.mark.parametrize(("flag", "look", "advice"), [
    ("atomicExch(flag, 1);", "while (__ldg(flag) == 0 && tries++ < 99) __nanosleep(1);", "make that atomic as well"),
    ("flag[0] = 0;", "while (atomicCAS(flag, 0, 1)) {}", "make that atomic as well"),
    ("*(volatile int*)flag = 1;", "while (*(volatile int*)flag == 0) {}", "is not released"),
    (f"{REF}(flag[0]).store(1, cuda::memory_order_release);", f"while (!{REF}(flag[0]).load(cuda::memory_order_acquire)) {{}}", "use the one of the device"),
])  # fmt: skip
def test_the_advice_names_what_is_missing_between_blocks(flag, look, advice):
    source = f"""#include <cuda/atomic>
    extern "C" __global__ void f(int* C, int* flag) {{
        int tries = 0;
        if (blockIdx.x == 0) {{ C[0] = 7; {flag} }}
        else {{ {look} C[1] = C[0] + tries; }}
    }}"""
    found = findings(source, 2, 1, np.zeros(2, np.int32), np.zeros(1, np.int32))
    assert any(advice in finding.advice for finding in found), found


@pytest.mark.parametrize(
    ("tell", "hear", "race"),
    [
        (f"{FENCE} {VOLATILE} = 1;", f"{POLL} {FENCE}", False),
        (f"{FENCE} {VOLATILE} = 1;", POLL, False),  # an order is not promised, but relied on everywhere
        (f"{FENCE} {VOLATILE} = 1;", "", True),
        (f"{VOLATILE} = 1;", f"{POLL} {FENCE}", True),
        (f"{VOLATILE} = 1; {FENCE}", f"{POLL} {FENCE}", True),  # too late
        (ST.format("release"), LD.format("acquire"), False),
        (ST.format("relaxed"), LD.format("acquire"), True),
        (ST.format("release"), LD.format("relaxed"), True),
        (ST.format("release"), LD.format("relaxed") + FENCE, False),
        (f"{FENCE} {ST.format('relaxed')}", LD.format("acquire"), False),
        (f"{FENCE} atomicExch_block(flag + b, 1);", f"while (!atomicAdd_block(flag + b, 0)) {{}} {FENCE}", False),
        ("atomicExch_block(flag + b, 1);", f"while (!atomicAdd_block(flag + b, 0)) {{}} {FENCE}", True),
        (f"{REF}(flag[b]).store(1, cuda::memory_order_release);", f"while (!{REF}(flag[b]).load(cuda::memory_order_acquire)) {{}}", False),
        (f"{REF}(flag[b]).store(1, cuda::memory_order_relaxed);", f"while (!{REF}(flag[b]).load(cuda::memory_order_acquire)) {{}}", True),
        (f"{REF}(flag[b]).fetch_add(1, cuda::memory_order_release);", f"while (!{REF}(flag[b]).load()) {{}}", False),
        (f"{REF}(flag[b]).fetch_add(1, cuda::memory_order_relaxed);", f"while (!{REF}(flag[b]).load()) {{}}", True),
        (f"{FENCE} here = 1;", f"while (!here) {{}} {FENCE}", False),  # a flag in shared memory
        (f"here = 1; {FENCE}", f"while (!here) {{}} {FENCE}", True),
        (f"{REF}(count).fetch_add(1);", f"while (!{REF}(count).load()) {{}}", False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("order", ["", "upwards"])
def test_what_orders_threads_of_a_block_only_orders_them(tell, hear, race, order):
    source = f"""#include <cuda/atomic>
    extern "C" __global__ void f(int* C, int* flag) {{
        __shared__ volatile int here;
        __shared__ int count;
        const int t = threadIdx.x, b = blockIdx.x;
        int n = 1;
        if (t == 0) here = count = 0;
        __syncthreads();
        if (t == 0) {{
            C[8 * b] = 7; {tell}
        }} else if (t == 32) {{
            {hear} C[8 * b + n] = C[8 * b];
        }}
    }}"""
    args = np.zeros(16, np.int32), np.zeros(2, np.int32)
    found = helpers.compile(source).launch(2, 64, args, on="cpu", counters=False, in_turn=order).findings
    assert {(finding.kind, *sorted((finding.line, finding.other_line))) for finding in found} == ({("race", 10, 12)} if race else set())


@pytest.mark.parametrize(
    ("body", "race"),
    [
        ("C[t] = t; __syncthreads(); if (t == 0) { GIVE(0) } if (t == 32) { TAKE(0) C[128] = C[95]; }", False),
        ("C[t] = t; if (t == 0) { GIVE(0) } if (t == 32) { TAKE(0) C[128] = C[95]; }", True),  # another warp's, that nobody waited for
        ("if (t == 0) { C[0] = 7; GIVE(0) } if (t == 32) { TAKE(0) GIVE(1) } if (t == 64) { TAKE(1) C[1] = C[0]; }", False),
        ("if (t == 0) { C[0] = 7; flag[0] = 1; } if (t == 32) { TAKE(0) GIVE(1) } if (t == 64) { TAKE(1) C[1] = C[0]; }", True),
        ("if (t == 0) { C[0] = 7; GIVE(0) } if (t >= 32) { if (t == 32) { TAKE(0) } MEET if (t == 64) C[1] = C[0]; }", False),
        ("if (t == 0) { C[0] = 7; GIVE(0) } if (t >= 32) { MEET if (t == 32) { TAKE(0) } if (t == 64) C[1] = C[0]; }", True),
        ("if (t < 32) { C[t] = t; GIVE(t) } else if (t < 64) { TAKE(t - 32) C[t] = C[t - 32]; }", False),
        ("if (t < 32) { vC[t] = t; GIVE(t) } else if (t < 64) { TAKE(t - 32) vC[t] = vC[t - 32]; }", False),
        ("if (t < 32) { vC[t] = t; __threadfence_block(); } else if (t < 64) { vC[t] = vC[t - 32]; }", True),
    ],
)
def test_who_hears_of_what_in_a_block_without_fences_of_the_device(body, race):
    source = f"""
    #define GIVE(i) {{ __threadfence_block(); flag[i] = 1; }}
    #define TAKE(i) {{ while (!flag[i]) {{}} __threadfence_block(); }}
    #define MEET asm volatile("bar.sync 1, 64;" ::: "memory");
    extern "C" __global__ void f(int* C, volatile int* flag) {{ const int t = threadIdx.x; volatile int* vC = C; {body} }}"""
    found = findings(source, 1, 96, np.zeros(129, np.int32), np.zeros(32, np.int32))
    assert {finding.kind for finding in found} == ({"race"} if race else set())


@pytest.mark.parametrize("scope, race", [("cta", True), ("gpu", False)])
def test_what_orders_threads_of_a_block_orders_no_others(scope, race):
    source = f"""extern "C" __global__ void f(int* C, volatile int* flag) {{
        if (blockIdx.x == 0) {{ C[0] = 7; asm volatile("fence.acq_rel.{scope};" ::: "memory"); *flag = 1; }}
        else {{ while (*flag == 0) {{}} asm volatile("fence.acq_rel.{scope};" ::: "memory"); C[1] = C[0]; }}
    }}"""
    found = findings(source, 2, 1, np.zeros(2, np.int32), np.zeros(1, np.int32))
    assert {finding.kind for finding in found} == ({"race"} if race else set())


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("if (b == 0) C[0] = v; else atomicAdd(C, v);", "only atomic operations keep out of each other's way"),
        ("atomicAdd(C, b == 0 ? -1 * *C : v);", "only atomic operations keep out of each other's way"),
        ("if (b == 0) C[0] = v; else C[0] = 2 * v;", "use atomicAdd"),
        ("if (b == 0) C[0] = 1; else while (atomicAdd(C, 0.0f) == 0) {}", "handles the word as a flag"),
    ],
)
def test_a_race_with_an_atomic_operation_does_not_ask_for_one(body, says):
    source = f'extern "C" __global__ void f(float* C, float v) {{ const int b = blockIdx.x; {body} }}'
    found = findings(source, 2, 1, np.zeros(1, np.float32), 1.0)
    assert found and all(says in finding.advice for finding in found)


def test_two_threads_that_store_to_one_element_are_sent_to_the_index():
    source = """extern "C" __global__ void f(float* y, int by) {
    y[(blockIdx.x * blockDim.x + threadIdx.x) / by] = threadIdx.x + 1;
}"""
    kernel = helpers.compile(source)
    assert not kernel.launch(2, 64, (np.zeros(128, np.float32), 1), on="cpu", counters=False).findings
    for blocks, by in ((1, 2), (2, 128)):
        (finding,) = kernel.launch(blocks, 64, (np.zeros(128, np.float32), by), on="cpu", counters=False).findings
        assert finding.advice == f"{SAME_ELEMENT} {ADVICE}"
