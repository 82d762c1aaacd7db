"""What a finding says of its lines: of assembly in a function, who calls it."""

from __future__ import annotations

import numpy as np
import pytest

import helpers
from helpers.course.exercises import exercise
from helpers.errors import Finding
from helpers.run import gemm

SOURCE = """__device__ void copy(float* to, const float* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                 :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}
__device__ float both(const float* a, const float* b) { return *a + *b; }
extern "C" __global__ void f(const float* x, const float* z, float* y) {
    __shared__ float A[64], B[64];
    const int t = threadIdx.x;
    copy(&A[t], x + t);
    copy(&B[t], z + t);
    FIRST
    __syncthreads();
    y[t] = both(&A[63 - t], &ONE[t]);
}"""
ALL = 'asm volatile("cp.async.wait_all;" ::: "memory");'


def found(source):
    x = np.zeros(64, np.float32)
    return helpers.compile(source).launch(1, 64, (x, x, np.zeros_like(x)), on="cpu", counters=False).findings


@pytest.mark.parametrize(("one", "call"), [("A", "9, “copy(&A[t], x + t);”"), ("B", "10, “copy(&B[t], z + t);”")])
def test_the_call_of_the_helper_tells_whose_copy_it_is(one, call):
    only = SOURCE.replace("FIRST", "").replace("&A[63 - t], &ONE[t]", f"&{one}[63 - t], &{one}[t]")
    (finding,) = found(only)
    assert (finding.kind, finding.line, finding.other_line, finding.call) == ("missing-wait", 5, 3, None)
    assert 'where the asynchronous copy of line 3 has not been waited for. Line 3 is “:: "r"(' in str(finding)
    assert f"”, called at line {call}. Close the copy's group" in str(finding)
    assert not found(SOURCE.replace("FIRST", ALL).replace("ONE", one))


def test_two_calls_of_one_helper_are_told_apart():
    again = SOURCE.replace("FIRST", "copy(&A[t ^ 1], x + t);").replace("ONE", "B")
    said = str(next(one for one in found(again) if one.line == 3))
    assert said.startswith('line 3, “:: "r"((unsigned)') and "(called at line 11, “copy(&A[t ^ 1], x + t);”): Thread" in said
    assert "The other time it is called at line 9, “copy(&A[t], x + t);”." in said


def test_a_warpgroups_product_and_a_bulk_copy_have_their_calls():
    kernel = helpers.compile(exercise("too_soon").starter)
    (finding,) = gemm.check(kernel, gemm.problem_for(kernel, 128, 128, 400), on="cpu").findings
    assert "(called at line 79, “load(ring[stage].A, " in str(
        finding
    ) and "called at line 91, “for (int kk = 0; kk < BK; kk += 16) wgmma(d" in str(finding)


def test_a_finding_without_calls_says_nothing_of_them():
    plain = Finding("race", 4, "It races.", 7, code="a", other_code="b", advice="Do.")
    assert str(plain) == "line 4, “a”: It races. Line 7 is “b”. Do."
    assert (
        str(Finding("race", 4, "It races.", 4, code="a", other_code="a", call=9, other_call=9))
        == "line 4, “a” (called at line 9): It races."
    )
