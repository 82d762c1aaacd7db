"""An mbarrier is initialised by one thread, and once; what is right is not told."""

from __future__ import annotations

import numpy as np
import pytest

import helpers
from tests.sim.checks.test_touched_barriers import SOURCE, STORE

REPEATED = """
#define AT(p) (unsigned)__cvta_generic_to_shared(p)
extern "C" __global__ void repeated(int* y) {
  __shared__ alignas(16) unsigned long long bars[2];
  unsigned long long& bar = bars[1];
  int t = threadIdx.x;
  MAKE
  __syncthreads();
  for (int i = 0; i < 3; i++) {
    int done = 0;
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(AT(&bar)) : "memory");
    while (!done) asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p;}" : "=r"(done) : "r"(AT(&bar)), "r"(PARITY) : "memory");
    __syncthreads();
    AGAIN
    __syncthreads();
  }
  y[blockIdx.x * 64 + t] = t;
}
"""
INIT = 'asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(AT(&bar)) : "memory");'
END = 'asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(AT(&bar)) : "memory");'
ONE, STEPS = f"if (t == 0) {INIT}", "i & 1"


@pytest.mark.parametrize(("make", "again", "parity", "lines", "said"), [
    (ONE, "", STEPS, None, ""),
    (f"if (t == 37) {INIT}", "", STEPS, None, ""),
    (ONE, f"if (t == 0) {{ {END} {INIT} }}", "0", None, ""),
    (ONE, f"if (t == 5) {END} __syncthreads(); if (t == 40) {INIT}", "0", None, ""),
    (f"if (t < 2) {INIT.replace('&bar', '&bars[t]')}", "", STEPS, None, ""),  # one each
    (INIT, "", STEPS, (7, 7), "64 threads of a block initialise the mbarrier in shared memory at offset 8 (in `bars`)"),
    (f"if (t < 32) {INIT}", "", STEPS, (7, 7), "32 threads of a block"),
    (f"if (t % 32 == 0) {INIT}", "", STEPS, (7, 7), "2 threads of a block"),
    (INIT.replace("&bar", "&bars[t / 32]"), "", STEPS, (7, 7), "32 threads of a block"),
    (f"if (blockIdx.x == 2) {{ {INIT} }} else {ONE}", "", STEPS, (7, 7), "64 threads of a block"),
    (f"if (t == 0) {{ {INIT} {INIT} }}", "", STEPS, (7, 7), "A thread initialises the mbarrier in shared memory at offset 8"),
    (ONE, ONE, "0", (14, 7), "which is one since its init at line 7"),
    (f"if (t < 2) {INIT.replace('&bar', '&bars[t]')}", f"if (t == 0) {END} __syncthreads(); if (t < 2) {INIT.replace('&bar', '&bars[t]')}", "0", (14, 7), "at offset 0"),
])  # fmt: skip
def test_what_is_an_mbarrier_is_not_initialised_again(make, again, parity, lines, said):
    source = REPEATED.replace("MAKE", make).replace("AGAIN", again).replace("PARITY", parity)
    run = helpers.compile(source).launch(3, 64, [y := np.zeros(192, np.int32)], on="cpu")
    assert y.tolist() == 3 * list(range(64))
    found = [finding for finding in run.findings if finding.kind == "mbarrier-init"]
    assert found[:1] == run.findings[:1] and all(finding.kind in ("mbarrier-init", "race") for finding in run.findings)
    assert (found[0].line, found[0].other_line) == lines if lines else found == []
    assert said in "".join(finding.message for finding in found)


def test_what_was_stored_over_is_one_no_more():
    """The store is told, and the init behind it is not."""
    source = SOURCE.replace("BEFORE", "").replace(
        "AFTER", f'{STORE} __syncthreads(); if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(AT(bar)));'
    )
    run = helpers.compile(source).launch(2, 32, [np.zeros(32, np.int32)], on="cpu")
    assert [(finding.kind, finding.line) for finding in run.findings] == [("mbarrier-access", 14)]


@pytest.mark.parametrize(("make", "many"), [(ONE, 0), (INIT, 64), (f"if (t < 2 || (blockIdx.x == 2 && t < 9)) {INIT}", 9)])
def test_blocks_of_a_cluster_have_an_mbarrier_each(make, many):
    source = REPEATED.replace("MAKE", make).replace("AGAIN", "").replace("PARITY", STEPS)
    source = source.replace("void repeated", "void __cluster_dims__(3, 1, 1) repeated")
    run = helpers.compile(source, arch="sm_90").launch(6, 64, [np.zeros(384, np.int32)], on="cpu")
    assert [finding.kind for finding in run.findings] == (["mbarrier-init"] if many else [])
    assert not many or f"{many} threads of a block" in run.findings[0].message
