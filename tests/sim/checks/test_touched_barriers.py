"""Ordinary accesses to an mbarrier are found; what is legal before its init and after its inval is not."""

from __future__ import annotations

import numpy as np
import pytest

import helpers

SOURCE = """
#define AT(p) (unsigned)__cvta_generic_to_shared(p)
extern "C" __global__ void uses(int* y) {
  __shared__ alignas(16) unsigned long long bar[2];
  int t = threadIdx.x, done = 0;
  if (t < 2) bar[t] = 0;
  __syncthreads();
  if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(AT(bar)) : "memory");
  __syncthreads();
  BEFORE
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(AT(bar)) : "memory");
  while (!done) asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.b32 %0, 1, 0, p;}" : "=r"(done) : "r"(AT(bar)) : "memory");
  __syncthreads();
  AFTER
  y[t] = done;
}
"""
INVAL = 'if (t == 0) asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(AT(bar)) : "memory"); __syncthreads();'
STORE, LOAD = "if (t == 0) ((volatile unsigned long long*)bar)[0] = 1;", "done += ((volatile int*)bar)[0];"


@pytest.mark.parametrize(("before", "after", "kinds"), [
    ("", "", []),
    (STORE.replace("[0]", "[1]"), "", []),
    ("", INVAL + STORE, []),
    ("", INVAL + STORE + "__syncthreads();" + LOAD, []),
    ("", STORE, ["mbarrier-access"]),
    (STORE, "", ["mbarrier-access"]),
    ("", LOAD, ["mbarrier-access"]),
    ("", "if (t == 0) atomicAdd((int*)bar + 1, 1);", ["mbarrier-access"]),
    ("", STORE + "__syncthreads();" + INVAL, ["mbarrier-access"]),
])  # fmt: skip
def test_only_mbarrier_instructions_may_touch_one(before, after, kinds):
    source = SOURCE.replace("BEFORE", before).replace("AFTER", after)
    y = np.zeros(32, np.int32)
    run = helpers.compile(source).launch(2, 32, [y], on="cpu")
    assert [finding.kind for finding in run.findings] == kinds
    for finding in run.findings:
        assert (finding.other_line, finding.line) == (8, 10 if before else 14) and "bar" in finding.message
