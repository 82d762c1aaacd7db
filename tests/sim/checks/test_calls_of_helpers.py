"""What a finding says of its lines: of those in a function, who calls it, and of inline assembly where it begins."""

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
    assert (finding.kind, finding.line, finding.other_line, finding.calls) == ("missing-wait", 5, 3, (13,))
    assert f"where the asynchronous copy of line 2 has not been waited for. Line 2 is called at line {call}: “asm volatile(" in str(finding)
    assert str(finding).startswith("line 5, “__device__ float both(") and "(called at line 13, “y[t] = both(" in str(finding)
    assert not found(SOURCE.replace("FIRST", ALL).replace("ONE", one))


def test_two_calls_of_one_helper_are_told_apart():
    again = SOURCE.replace("FIRST", "copy(&A[t ^ 1], x + t);").replace("ONE", "B")
    said = str(next(one for one in found(again) if one.line == 3))
    assert said.startswith(
        'line 11, “copy(&A[t ^ 1], x + t);” (its assembly is line 2, “asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"”)'
    )
    assert "The other time it is called at line 9, “copy(&A[t], x + t);”." in said


def test_a_warpgroups_product_and_a_bulk_copy_have_their_calls():
    kernel = helpers.compile(exercise("too_soon").starter)
    (finding,) = gemm.check(kernel, gemm.problem_for(kernel, 128, 128, 400), on="cpu").findings
    said = str(finding)
    assert said.startswith("line 79, “load(ring[stage].A, ") and "called at line 91, “for (int kk = 0; kk < BK; kk += 16) wgmma(d" in said


def test_a_finding_without_calls_says_nothing_of_them():
    plain = Finding("race", 4, "It races.", 7, code="a", other_code="b", advice="Do.")
    assert str(plain) == "line 4, “a”: It races. Line 7 is “b”. Do."
    assert (
        str(Finding("race", 4, "It races.", 4, code="a", other_code="a", calls=(9,), other_calls=(9,)))
        == "line 4, “a” (called at line 9): It races."
    )


LAYERS = """INLINED void put(float* to, float value) {
    *to = value;
}
extern "C" __global__ void f(const float* x, const float* z, float* y) {
    __shared__ float A[64];
    const int t = threadIdx.x;
    auto pair = [&](int at) {
        put(&A[at], x[t]);
    };
    pair(t);
    __syncthreads();
    y[t] = A[63 - t];
    SECOND
}"""


@pytest.mark.parametrize("inlined", ["__device__", "__device__ __noinline__"])
def test_a_store_in_a_function_has_the_calls_of_all_layers(inlined):
    source = LAYERS.replace("INLINED", inlined)
    assert not found(source.replace("SECOND", ""))
    (finding,) = found(source.replace("SECOND", "pair(t);"))
    assert (finding.line, finding.calls, finding.other_line, finding.other_calls) == (2, (8, 13), 12, ())
    assert "line 2, “*to = value;” (called at line 8, “put(&A[at], x[t]);”, from line 13, “pair(t);”): Thread" in str(finding)


def test_the_earlier_access_has_its_calls_too():
    source = LAYERS.replace("INLINED", "__device__").replace("__syncthreads();", "").replace("SECOND", "")
    (finding,) = found(source)
    assert (finding.line, finding.other_line, finding.other_calls) == (12, 2, (8, 10))
    assert "Line 2 is “*to = value;”, called at line 8, “put(&A[at], x[t]);”, from line 10, “pair(t);”. Put" in str(finding)


def test_more_than_three_calls_are_cut():
    deep = Finding("race", 4, "It races.", code="a", calls=(9, 12, 30, 44), call_codes=("b", "c", "d", "e"))
    assert str(deep) == "line 4, “a” (called at line 9, “b”, from line 12, “c”, from line 30): It races."


def test_a_barrier_in_a_function_has_its_call():
    source = """__device__ void meet() {
    __syncthreads();
}
extern "C" __global__ void f(const float* x, const float* z, float* y) {
    if (threadIdx.x < 32)
        meet();
    FIRST
    y[threadIdx.x] = x[threadIdx.x];
}"""
    for first in ("", "meet();"):
        said = str(found(source.replace("FIRST", first))[0])
        assert "(called at line 6, “meet();”): " in said
        assert ("The other time it is called at line 7, “meet();”." in said) == bool(first)
