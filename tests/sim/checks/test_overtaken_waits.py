"""Waits that a slow thread executes too late: the next phase may be over, too."""

import numpy as np
import pytest

import helpers

HEAD = """
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void init(void* bar, int count) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(at(bar)), "r"(count)); }
__device__ void arrive(void* bar) { asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(at(bar)) : "memory"); }
__device__ void wait(void* bar, int parity) {
    asm volatile("{.reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra again;}"
                 :: "r"(at(bar)), "r"(parity) : "memory");
}
__device__ void meet(int number, int count) { asm volatile("bar.sync %0, %1;" :: "r"(number), "r"(count) : "memory"); }
extern "C" __global__ void phases(float* y) {
    __shared__ alignas(8) unsigned long long full, empty;
    const int t = threadIdx.x;
    if (t == 0) { init(&full, FULL); init(&empty, EMPTY); }
    __syncthreads();
    for (int i = 0; i < 6; i++) {
        LOOP
    }
    y[t] = 1;
}
"""
RING = """if (t == 0) { wait(&empty, i % 2 ^ 1); arrive(&full); }
    if (t >= 32) { wait(&full, i % 2); LEAVE }"""
LEAVES = {
    "every thread": (96, "arrive(&empty);"),
    "every warp": (3, "__syncwarp(); if (t % 32 == 0) arrive(&empty);"),
    "one behind a barrier of theirs": (1, "meet(1, 96); if (t == 64) arrive(&empty);"),
}
RIGHT = {
    "all arrive": (128, 1, "arrive(&full); wait(&full, i % 2);"),
    "a barrier of the block": (1, 1, "if (t == 0) arrive(&full); wait(&full, i % 2); __syncthreads();"),
    "nobody waits for all": (1, 1, "if (t < 32) { __syncwarp(); if (t == 0) arrive(&full); wait(&full, i % 2); }"),
    **{f"a ring, {name}": (1, count, RING.replace("LEAVE", leave)) for name, (count, leave) in LEAVES.items()},
}
ALONE = """if (t == 0) { if (i) wait(&empty, i % 2 ^ 1); arrive(&full); }
    if (t >= 32) { wait(&full, i % 2);  // @
        if (t == 32) arrive(&empty); }"""  # the machine lets nobody be so late, and the result is right


def launched(full: int, empty: int, loop: str):
    source = HEAD.replace("FULL", str(full)).replace("EMPTY", str(empty)).replace("LOOP", loop)
    y = np.zeros(128, np.float32)
    run = helpers.compile(source, arch="sm_90a").launch(3, 128, [y], on="cpu", seconds=20)
    assert y.all()
    return source, run.findings


@pytest.mark.parametrize("case", RIGHT)
def test_a_phase_that_waits_for_who_waits_is_right(case):
    _, findings = launched(*RIGHT[case])
    assert not findings, str(findings[0])


def test_a_phase_that_does_not_is_told_at_the_line_of_the_wait():
    source, findings = launched(1, 1, ALONE)
    (finding,) = findings
    line = next(number for number, text in enumerate(source.split("\n"), 1) if "// @" in text)
    assert finding.kind == "mbarrier-parity" and finding.calls[0] == line
    assert "nothing keeps the next phase from ending before it looks" in finding.message and finding.thread[0] >= 64
