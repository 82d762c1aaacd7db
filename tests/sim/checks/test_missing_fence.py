"""What a bulk copy brings comes in no order with ordinary stores to the same place before it, until a proxy fence stands between."""

from __future__ import annotations

import numpy as np
import pytest

import helpers
from helpers.course import steps
from helpers.run import gemm
from tests import ROOT

KERNEL = r"""
__global__ void k(const int* x, int* y) {
    __shared__ __align__(128) int s[64];
    __shared__ unsigned long long barrier;
    const unsigned at = __cvta_generic_to_shared(s), bar = __cvta_generic_to_shared(&barrier);
    const int t = threadIdx.x;
    FIRST
    if (t == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(bar) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    FENCE
    __syncthreads();
    for (int i = 0; i < 3; i++) {
        if (t == 0) {
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 256;" ::"r"(bar) : "memory");
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];"
                         ::"r"(at), "l"(x + i * 64), "r"(bar) : "memory");
        }
        int there;
        do asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.s32 %0, 1, 0, p; }"
                        : "=r"(there) : "r"(bar), "r"(i & 1) : "memory");
        while (!there);
        y[i * 64 + t] = s[63 - t];
        BETWEEN
        __syncthreads();
    }
}
"""
PROXY_FENCE = 'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");'


@pytest.mark.parametrize("first, fence, between, told", [
    ("", "", "", None),  # reading before asks for no fence
    ("s[t] = 0;", "", "", 7),
    ("s[t] = 0;", PROXY_FENCE, "", None),
    ("", "", "__syncthreads(); s[t] = 0;", 25),
    ("", "", f"__syncthreads(); s[t] = 0; {PROXY_FENCE}", None),
])  # fmt: skip
def test_a_bulk_copy_over_what_threads_have_stored(first, fence, between, told):
    x, y = np.arange(192, dtype=np.int32), np.zeros(192, np.int32)
    source = KERNEL.replace("FIRST", first).replace("FENCE", fence).replace("BETWEEN", between)
    findings = helpers.compile(source, arch="sm_90").launch(1, 64, (x, y), on="cpu", counters=False).findings
    np.testing.assert_array_equal(y.reshape(3, 64), x.reshape(3, 64)[:, ::-1])
    assert [(one.kind, one.other_line) for one in findings] == ([("missing-fence", told)] if told else [])
    assert all("The bulk copy writes" in one.message and "fence.proxy.async" in one.advice for one in findings)


def test_lesson_16_says_of_its_fence_behind_the_mbarriers_what_the_check_does():
    """PTX leaves open whether it is needed, and the machine does not judge: the lesson and the machine's page say so."""
    step = steps.get("tma_wgmma")
    fence = '        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // the accelerator sees the barriers\n'
    source = step.kernel_source()
    assert source.count(fence) == 1
    kernel = helpers.compile(source.replace(fence, ""), arch="sm_90a")
    assert gemm.check(kernel, gemm.problem_for(kernel, 128, 256, 128), on="cpu").passed
    assert "Keep it, although `check` passes without" in step.notebook_path.read_text(encoding="utf-8")
    assert "**Two fences are not missed**" in (ROOT / "helpers" / "sim" / "README.md").read_text(encoding="utf-8")


HANDED_OVER = """                    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // the accelerator sees it
                    consumer_sync(group);
"""


@pytest.mark.slow
@pytest.mark.parametrize(("new", "told"), [
    (f"{PROXY_FENCE} consumer_sync(group);", False),
    (f"consumer_sync(group); {PROXY_FENCE}", False),
    (f"consumer_sync(group); if (t % 128 == 0) {PROXY_FENCE}", False),
    (f"consumer_sync(group); if (t % 128 == 32) {PROXY_FENCE} consumer_sync(group);", False),
    (f"consumer_sync(group); if (t % 128 == 32) {PROXY_FENCE}", True),  # in no order with the copy
    (f"if (t % 128 == 0) {PROXY_FENCE} consumer_sync(group);", True),
    ("consumer_sync(group);", True),
])  # fmt: skip
def test_a_fence_lies_on_the_way_from_the_store_to_the_copy(new, told):
    """On which side of a barrier makes no difference, and who copies may fence for all."""
    source = helpers.reference("warp_specialized").source
    assert source.count(HANDED_OVER) == 1
    kernel = helpers.compile(source.replace(HANDED_OVER, new), entry="warp_specialized", arch="sm_90a")
    findings = gemm.check(kernel, gemm.problem_for(kernel, 256, 256, 64), on="cpu").findings
    assert {finding.kind for finding in findings} == ({"missing-fence"} if told else set())
