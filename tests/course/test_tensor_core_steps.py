"""Steps 14 and 15: right in the other type too, at any alignment, and every wait, barrier and fence of theirs is needed."""

from __future__ import annotations

import pytest

from helpers.course.comparing import variants
from helpers.course.lesson import reference
from helpers.run import gemm
from helpers.run.gemm import Problem

OTHER_TYPE = {
    "wmma": {"using Element = __half": "using Element = __nv_bfloat16"},
    "mma_sync": {"Element = __nv_bfloat16": "Element = __half", '"bf16"': '"f16"'},
}
BROKEN = [
    ("wmma", "race", {"__syncthreads();  // both tiles": ";  // both tiles"}),
    ("wmma", "race", {"__syncthreads();  // everyone": ";  // everyone"}),
    ("wmma", "race", {"__syncwarp();  // and read": ";  // and read"}),
    ("mma_sync", "missing-wait", {"wait<STAGES - 2>();": "wait<STAGES - 1>();"}),
    ("mma_sync", "race", {"__syncthreads();     // for all": ";     // for all"}),
    ("mma_sync", "race", {"__syncthreads();  // the stages": ";  // the stages"}),
]


@pytest.mark.parametrize("step", OTHER_TYPE)
def test_one_switch_changes_the_type(step):
    kernel = variants(reference(step), {"other": OTHER_TYPE[step]})["other"]
    dtype, _ = gemm.types(kernel)
    assert dtype != reference(step).step.dtype
    rows_aligned = Problem(40, 136, 48, dtype=dtype, alpha=0.5, beta=2.0, pad_a=8, pad_b=8, pad_c=4)
    assert gemm.check(kernel, [rows_aligned, Problem(33, 70, 37, dtype=dtype, beta=1.0, pad_a=1)], on="cpu")


@pytest.mark.parametrize(("step", "kind", "edits"), BROKEN)
def test_what_is_left_out_is_found(step, kind, edits):
    kernel = variants(reference(step), {"broken": edits})["broken"]
    run = kernel.gemm(128, 256, 100, on="cpu", counters=False)
    assert kind in {finding.kind for finding in run.findings}
