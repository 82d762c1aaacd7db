"""Races in device memory where bulk copies write or read it: when the data is there, and who sees it."""

from __future__ import annotations

import numpy as np
import pytest

import helpers

BULK = """
#include <cuda.h>
#include <stdint.h>
__device__ unsigned at(const void* s) { return (unsigned)__cvta_generic_to_shared(s); }
__device__ void wait(uint64_t* barrier) {
    asm volatile("{.reg .pred e; again: mbarrier.try_wait.parity.shared::cta.b64 e, [%0], 0; @!e bra again;}"
                 :: "r"(at(barrier)) : "memory"); }
#define ASM(text) asm volatile(text ::: "memory")
#define STORE(to, from) asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 128;" :: "l"(to), "r"(at(from)) : "memory")
#define ADD(to, from) \\
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], 128;" :: "l"(to), "r"(at(from)) : "memory")
#define COMMIT ASM("cp.async.bulk.commit_group;")
#define WAIT ASM("cp.async.bulk.wait_group 0;")
#define WAIT1 ASM("cp.async.bulk.wait_group 1;");
#define READ ASM("cp.async.bulk.wait_group.read 0;")
#define PROXY ASM("fence.proxy.async;")
#define SHARED ASM("fence.proxy.async.shared::cta;")
#define LOOK(flag) while (atomicAdd(flag, 0) == 0) {}
#define MAKE(barrier) if (t == 0) { asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(at(barrier))); SHARED; } __syncthreads();
#define EXPECT(barrier) asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 128;" :: "r"(at(barrier)) : "memory")
#define LOAD(to, from, barrier) \\
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 128, [%2];" \\
                 :: "r"(at(to)), "l"(from), "r"(at(barrier)) : "memory")
"""


def findings(body, grid=2):
    """Of a kernel f(C, D, flag) for blocks of 64 threads. s, r: 32 floats of shared memory each; bar: an mbarrier that expects one."""
    source = f"""{BULK}
    extern "C" __global__ void f(float* C, float* D, int* flag) {{
        __shared__ __align__(128) float s[32], r[32]; __shared__ __align__(8) uint64_t bar;
        const int t = threadIdx.x, block = blockIdx.x;
        MAKE(&bar)
        {body}
    }}"""
    made = helpers.compile(source, arch="sm_90a")
    run = made.launch(grid, 64, [np.zeros(256, np.float32), np.zeros(256, np.float32), np.zeros(4, np.int32)], on="cpu", counters=False)
    lines = source.splitlines()
    return [(finding.kind, lines[finding.line - 1].strip(), finding.advice) for finding in run.findings]


@pytest.mark.parametrize(
    "store, race",
    [
        ("STORE(C, s); COMMIT; WAIT; __threadfence(); atomicExch(flag, 1);", False),
        ("STORE(C, s); COMMIT; WAIT; atomicExch(flag, 1);", True),  # nothing releases
        ("STORE(C, s); COMMIT; READ; __threadfence(); atomicExch(flag, 1);", True),  # read, but not yet written
        ("STORE(C, s); COMMIT; READ; __threadfence(); atomicExch(flag, 1); WAIT;", True),  # too late
        ("STORE(C, s); COMMIT; __threadfence(); WAIT; atomicExch(flag, 1);", True),  # released before it was there
        ("STORE(C, s); WAIT; __threadfence(); atomicExch(flag, 1); COMMIT; WAIT;", True),  # not committed
        ("STORE(C, s); COMMIT; STORE(C + 64, s); COMMIT; WAIT1 __threadfence(); atomicExch(flag, 1); WAIT;", False),
        ("STORE(C + 64, s); COMMIT; STORE(C, s); COMMIT; WAIT1 __threadfence(); atomicExch(flag, 1); WAIT;", True),
        ("ADD(C, s); COMMIT; WAIT; __threadfence(); atomicExch(flag, 1);", False),
        ("ADD(C, s); COMMIT; READ; __threadfence(); atomicExch(flag, 1);", True),
    ],
)  # fmt: skip
def test_whoever_copies_in_bulk_waits_for_the_data_before_it_is_released(store, race):
    found = findings(f"""
        if (block == 0) {{
            if (t < 32) s[t] = t + 1;
            SHARED; __syncthreads();
            if (t == 0) {{ {store} }}
        }} else {{
            if (t == 0) {{ LOOK(flag) __threadfence(); }}
            __syncthreads();
            if (t < 32) D[t] = C[31 - t];
        }}""")
    assert [(kind, line) for kind, line, _ in found] == ([("race", "if (t < 32) D[t] = C[31 - t];")] if race else [])
    assert all("cp.async.bulk.wait_group" in advice for _, _, advice in found)


@pytest.mark.parametrize("waits, race", [("WAIT;", False), ("READ;", True), ("", True)])
@pytest.mark.parametrize("reader", [0, 40])
@pytest.mark.parametrize("how", ["C", "((volatile float*)C)"])
def test_its_own_block_does_not_see_it_before_either(waits, race, reader, how):
    found = findings(f"""
        if (t < 32) s[t] = t + 1;
        SHARED; __syncthreads();
        if (t == 0) {{ STORE(C + block * 32, s); COMMIT; {waits} }}
        __syncthreads();
        if (t == {reader}) D[block] = {how}[block * 32 + 3];
        if (t == 0) WAIT;""")
    line = f"if (t == {reader}) D[block] = {how}[block * 32 + 3];"
    assert [(kind, line) for kind, line, _ in found] == ([("race", line)] if race else [])


@pytest.mark.parametrize(
    "stores, before, kind",
    [
        ("__threadfence();", "PROXY;", None),
        ("PROXY; __threadfence();", "", None),  # by those who have stored
        ("__threadfence();", 'ASM("fence.proxy.async.global;");', None),
        ("__threadfence();", "", "missing-fence"),
        ("__threadfence();", "SHARED;", "missing-fence"),  # of shared memory only
        ("", "PROXY;", "race"),
    ],
)
def test_a_bulk_copy_reads_what_was_released_and_fenced_for_it(stores, before, kind):
    found = findings(f"""
        if (block == 0) {{
            if (t < 32) C[t] = t + 1;
            {stores} __syncthreads();
            if (t == 0) atomicExch(flag, 1);
        }} else {{
            if (t == 0) {{
                LOOK(flag) __threadfence(); {before} EXPECT(&bar);
                LOAD(r, C, &bar); // here
            }}
            wait(&bar);
            if (t < 32) D[t] = r[31 - t];
        }}""")
    assert [(kind, line) for kind, line, _ in found] == ([(kind, "LOAD(r, C, &bar); // here")] if kind else [])
    assert all("fence.proxy.async" in advice for kind, _, advice in found if kind == "missing-fence")


@pytest.mark.parametrize("fence, missing", [("PROXY;", False), ("", True), ("SHARED;", True)])
@pytest.mark.parametrize("storing", [1, 32])
def test_so_it_does_in_its_own_block(fence, missing, storing):
    found = findings(f"""
        if (t < {storing}) C[block * 32 + t] = t + 1;
        {fence} __syncthreads();
        if (t == 0) {{ EXPECT(&bar); LOAD(r, C + block * 32, &bar); }}
        wait(&bar);
        if (t < 32) D[block * 32 + t] = r[31 - t];""")
    assert [kind for kind, _, _ in found] == (["missing-fence"] if missing else [])


@pytest.mark.parametrize("waits, race", [("WAIT;", False), ("READ;", True)])
def test_from_copy_to_copy_no_fence_of_proxies_is_needed(waits, race):
    found = findings(f"""
        if (block == 0) {{
            if (t < 32) s[t] = t + 1;
            SHARED; __syncthreads();
            if (t == 0) {{ STORE(C, s); COMMIT; {waits} __threadfence(); atomicExch(flag, 1); }}
        }} else {{
            if (t == 0) {{ LOOK(flag) __threadfence(); EXPECT(&bar); LOAD(r, C, &bar); }}
            wait(&bar);
            if (t < 32) D[t] = r[31 - t];
        }}""")
    assert [kind for kind, _, _ in found] == (["race"] if race else [])


@pytest.mark.parametrize("copy, of, race", [("STORE", "0", True), ("STORE", "block * 32", False), ("ADD", "0", False)])
def test_blocks_that_copy_to_one_place(copy, of, race):
    found = findings(f"""
        if (t < 32) s[t] = t + 64 * block + 1;
        SHARED; __syncthreads();
        if (t == 0) {{ {copy}(C + {of}, s); COMMIT; READ; }}""")
    assert [kind for kind, _, _ in found] == (["race"] if race else [])


@pytest.mark.parametrize("first, second, race", [("STORE", "ADD", True), ("ADD", "STORE", True), ("ADD", "ADD", False)])
def test_a_copy_that_adds_meets_one_that_stores(first, second, race):
    """Also where what is stored is what the sum is."""
    found = findings(f"""
        if (t < 32) s[t] = 1;
        SHARED; __syncthreads();
        if (t == 0) {{ if (block) {{ {first}(C, s); }} else {{ {second}(C, s); }} COMMIT; READ; }}""")
    assert [kind for kind, _, _ in found] == (["race"] if race else [])


@pytest.mark.parametrize("waiting, race", [("wait(&bar);", False), ("", True)])
def test_who_waits_at_its_mbarrier_may_write_what_a_copy_has_read(waiting, race):
    """One thread announces the bytes, and another one copies."""
    found = findings(f"""
        if (t == 0) EXPECT(&bar);
        if (t == 32) LOAD(r, C + block * 32, &bar);
        {waiting}
        if (t < 32) C[block * 32 + t] = t + 1;
        wait(&bar);""")
    assert [kind for kind, _, _ in found] == (["race"] if race else [])


TENSORS = """
    #define BOX(map, x, y) "l"(&map), "r"(x), "r"(y)
    extern "C" __global__ void f(const __grid_constant__ CUtensorMap map_C, float* D, int* flag, float* C) {
        __shared__ __align__(128) float s[32], r[32]; __shared__ __align__(8) uint64_t bar;
        const int t = threadIdx.x, block = blockIdx.x;
        MAKE(&bar)
        if (block == 0) {
            if (t < 32) s[t] = t + 1;
            SHARED; __syncthreads();
            if (t == 0) {
                asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%1, {%2, %3}], [%0];"
                             :: "r"(at(s)), BOX(map_C, 8, 4) : "memory");
                COMMIT; WAITS __threadfence(); atomicExch(flag, 1);
            }
        } else {
            if (t == 0) { LOOK(flag) __threadfence(); EXPECT(&bar); }
            __syncthreads();
            READS
        }
    }"""
READS = {
    "plainly": "if (t < 32) D[t] = C[4 * 32 + 8 + t % 8];",
    "by a box": """if (t == 0) asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%2, {%3, %4}], [%1];" :: "r"(at(r)), "r"(at(&bar)), BOX(map_C, FIRST, 4) : "memory"); wait(&bar);""",
}  # fmt: skip


@pytest.mark.parametrize("waits, race", [("WAIT;", False), ("READ;", True)])
@pytest.mark.parametrize("reads", READS)
@pytest.mark.parametrize("x", [8, 16])
def test_boxes_of_tensors_are_told_apart_from_their_neighbours(waits, race, reads, x):
    C = np.zeros((16, 32), np.float32)
    source = BULK + TENSORS.replace("WAITS", waits).replace("READS", READS[reads]).replace("FIRST", str(x))
    kernel = helpers.compile(source, arch="sm_90a")
    args = [helpers.tensor_map(C, (4, 8)), np.zeros(32, np.float32), np.zeros(1, np.int32), C]
    found = kernel.launch(2, 64, args, on="cpu", counters=False).findings
    assert [finding.kind for finding in found] == (["race"] if race and (x == 8 or reads == "plainly") else [])
