"""What is advised in a block of one warp: __syncwarp(), which is enough there; in a larger one __syncthreads(), as ever."""

from __future__ import annotations

import numpy as np
import pytest

import helpers
from helpers.sim.checks import missing_wait, shared_races, uninitialised
from helpers.sim.checks.findings import for_block

TEXTS = [
    *(
        text
        for module in (missing_wait, shared_races, uninitialised)
        for name, text in vars(module).items()
        if name.isupper() and isinstance(text, str)
    ),
    *(module.ADVISED[kind] for module in (missing_wait, shared_races, uninitialised) for kind in module.ADVISED),
]
ASM = """#include <cuda_pipeline.h>
#define COMMIT asm volatile("cp.async.commit_group;" ::: "memory")
#define WAIT asm volatile("cp.async.wait_group 0;" ::: "memory")
#define COPY asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to), "l"(x + t) : "memory")
"""
KERNEL = """extern "C" __global__ void f(const float* x, float* y) {
    __shared__ float s[64];
    __shared__ unsigned long long bar;
    const int t = threadIdx.x, n = blockDim.x;
    const unsigned to = __cvta_generic_to_shared(&s[t]), at = __cvta_generic_to_shared(&bar);
    BODY
}"""
INIT = 'if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(at), "r"(n) : "memory");'
ARRIVE = 'asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" :: "r"(at) : "memory");'
# name -> (body with MEET where the barrier that is advised belongs, what comes of its absence, what is advised)
CASES = {
    "nobody has written": ("if (t >= n) s[t] = x[t]; MEET y[t] = s[n - 1 - t];", "uninitialized", "put {} between"),
    "a race": ("s[t] = x[t]; MEET y[t] = s[t ^ 1];", "race", "put {} between the two accesses"),
    "a copy in no group": ("COPY; MEET y[t] = s[n - 1 - t];", "missing-wait", "and then call {}"),
    "a copy not waited for": ("COPY; COMMIT; MEET y[t] = s[n - 1 - t];", "missing-wait", "and then call {}"),
    "a copy of another's": ("COPY; COMMIT; WAIT; MEET y[t] = s[n - 1 - t];", "race", "ut {} between the two accesses"),
    "an mbarrier": (f"{INIT} MEET {ARRIVE}", "race", "Put {} behind the initialisation"),
}


def found(body: str, threads: int, meet: str):
    kernel = helpers.compile(ASM + KERNEL.replace("BODY", body.replace("MEET", meet)), arch="sm_90")
    x = np.ones(64, np.float32)
    return kernel.launch(1, threads, (x, np.zeros_like(x)), on="cpu", counters=False).findings


@pytest.mark.parametrize("threads", [32, 24, 64])
@pytest.mark.parametrize("name", CASES)
def test_the_barrier_that_is_advised_is_that_of_the_block(name, threads):
    body, kind, advice = CASES[name]
    whole, other = ("__syncthreads()", "__syncwarp()")[:: 1 if threads > 32 else -1]
    (finding,) = found(body, threads, "")
    if name == "a race" and threads > 32:  # of lanes of one warp, in a block of several
        assert finding.advice == shared_races.WARP_ADVICE
        return
    assert finding.kind == kind and advice.format(whole) in finding.advice and other not in finding.advice


@pytest.mark.parametrize(("threads", "meet"), [(32, "__syncwarp();"), (64, "__syncthreads();")])
@pytest.mark.parametrize("name", [name for name, (_, kind, _) in CASES.items() if kind == "race"])
def test_who_does_what_is_advised_has_no_finding(name, threads, meet):
    assert not found(CASES[name][0], threads, meet)


@pytest.mark.parametrize("name", ["a copy in no group", "a copy not waited for"])
def test_a_copy_that_is_waited_for_as_advised_has_come(name):
    body = "COPY; COMMIT; WAIT; MEET y[t] = s[n - 1 - t];"
    assert found(CASES[name][0], 32, "") and not found(body, 32, "__syncwarp();")


def test_no_advice_names_other_warps_where_there_are_none():
    class One:
        threads = 32

    class Several:
        threads = 33

    named = [text for text in TEXTS if "__syncthreads()" in text]
    assert len(named) > 8
    for text in named:
        assert for_block(Several, text) == text
        said = for_block(One, text)
        assert "__syncthreads" not in said and "other warps" not in said
    for text in (shared_races.STORED_ADVICE, shared_races.COPIED_OUT_ADVICE):
        assert "other warps" not in for_block(One, text) and for_block(One, text).count("__syncwarp()") == 1
