"""Arrays whose beginning fits no wide access, or one by chance."""

from __future__ import annotations

import numpy as np
import pytest

import helpers
from helpers.course import steps
from helpers.run import gemm
from helpers.run.own_products import program_of
from helpers.sim.checks import misaligned

KERNEL = """extern "C" __global__ void f(float* y) {
    __shared__ %s float a[%s];
    %s
    int t = threadIdx.x;
    a[t] = t;
    %s
    __syncthreads();
    *reinterpret_cast<float4*>(&y[4 * t]) = *reinterpret_cast<float4*>(&%s[4 * t]);
    y[t + 512] = a[63 - t]%s;
}"""


@pytest.mark.parametrize(
    ("asked", "extent", "second", "stores", "read", "line"),
    [
        ("", "64", "__shared__ float b[64];", "b[t] = 1;", "b", 8),
        ("", "64", "__shared__ __align__(16) float b[64];", "b[t] = 1;", "a", 8),
        ("", "64", "__shared__ __align__(16) float b[64];", "b[t] = 1;", "b", None),
        ("__align__(16)", "64", "__shared__ float b[64];", "b[t] = 1;", "a", None),
        ("__align__(8)", "64", "__shared__ float b[64];", "b[t] = 1;", "a", 8),
        ("", "64", "", "", "a", None),  # alone it begins where the block's memory does
    ],
)
def test_an_array_that_lies_by_chance_where_a_wide_access_needs_it_is_named(asked, extent, second, stores, read, line):
    program = program_of(helpers.compile(KERNEL % (asked, extent, second, stores, read, " + b[t ^ 1]" if second else "")))
    said = misaligned.by_chance(program)
    if line is None:
        assert said == ""
    else:
        assert said.startswith(f"Line {line} accesses 16 bytes of {read} at once")
        assert said.endswith(f"Declare {read} with __align__(16).")


BOXES = """#include <cuda.h>
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void fetch(void* to, const void* map, void* bar) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%%0], [%%1, {%%2, %%2}], [%%3];"
                 :: "r"(at(to)), "l"(map), "r"(0), "r"(at(bar)) : "memory");
}
extern "C" __global__ void f(const __grid_constant__ CUtensorMap map, const float* x, float* y) {
    __shared__ %s float a[256];
    %s
    __shared__ unsigned long long bar[16];
    fetch(a, &map, bar);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%%0], [%%1], 512, [%%2];"
                 :: "r"(at(b)), "l"(x), "r"(at(bar)) : "memory");
    %s
    y[threadIdx.x] = a[threadIdx.x] + b[threadIdx.x];
}"""
STORED = 'asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %1}], [%2];" :: "l"(&map), "r"(0), "r"(at(b)));'


@pytest.mark.parametrize(
    ("first", "second", "store", "line", "name", "promised"),
    [
        ("__align__(16)", "__shared__ __align__(16) float b[128];", "", 11, "a", 16),
        ("", "__shared__ __align__(16) float b[128];", "", 11, "a", 4),
        ("__align__(64)", "__shared__ __align__(16) float b[128];", "", 11, "a", 64),
        ("__align__(128)", "__shared__ __align__(16) float b[128];", "", None, "", 0),  # 16 bytes do for the plain copy to b
        ("__align__(1024)", "__shared__ __align__(16) float b[128];", STORED, 14, "b", 16),
        ("__align__(1024)", "__shared__ __align__(128) float b[128];", STORED, None, "", 0),
    ],
)
def test_a_box_needs_more_than_its_chunks(first, second, store, line, name, promised):
    said = misaligned.by_chance(program_of(helpers.compile(BOXES % (first, second, store), arch="sm_90")))
    if line is None:
        assert said == ""
    else:
        assert said.startswith(f"Line {line} copies a box to or from {name}, which has to begin at a multiple of 128")
        assert f"begins at a multiple of {promised}:" in said
        assert f"Declare {name} with __align__(128), or with __align__(1024) where the box is swizzled" in said


def test_a_check_remarks_it_and_takes_the_kernel():
    step = steps.get("vectorized")
    source = step.kernel_source()
    assert source.count("__shared__ __align__(16) float") == 2
    kernel = helpers.compile(source.replace("__shared__ __align__(16) float Bs", "__shared__ float Bs"), entry=step.entry)
    problem = gemm.problem_for(kernel, 64, 64, 16)
    assert "Declare" not in str(gemm.check(helpers.compile(source, entry=step.entry), problem, on="cpu"))
    report = gemm.check(kernel, problem, on="cpu")
    assert report.passed and "16 bytes of Bs at once" in str(report)


OF_FOUR = """extern "C" __global__ void f(const float* b, float* y, int i) {
    __shared__ char flag[8];
    __shared__ %s float tile[68];
    int t = threadIdx.x;
    flag[t & 7] = 1;
    for (int j = t; j < 68; j += 16) tile[j] = j;
    __syncthreads();
    float4 v = *reinterpret_cast<const float4*>(&%s[4 * t + i]);
    y[t] = v.x + v.y + flag[0];
}"""
LARGER = np.zeros(100, np.float32)


@pytest.mark.parametrize(("findings", "long"), [(True, False), (False, False), (True, True)])  # long: native code runs first
@pytest.mark.parametrize(
    ("asked", "name", "b", "i", "byte", "begins"),
    [
        ("", "tile", LARGER, 0, 0, "byte 8 of shared memory"),
        ("", "tile", LARGER, 4, 16, "byte 8 of shared memory"),
        ("", "tile", LARGER, 1, 4, ""),  # the index is at fault by itself
        ("__align__(16)", "tile", LARGER, 2, 8, ""),
        ("__align__(16)", "tile", LARGER, 0, None, ""),
        ("", "b", LARGER[1:], 0, 0, "address 0x7f"),
        ("", "b", LARGER[3:], 4, 16, "address 0x7f"),
        ("", "b", LARGER[1:], 2, 8, ""),
        ("", "b", LARGER, 1, 4, ""),
        ("", "b", LARGER[4:], 0, None, ""),
    ],
)
def test_an_array_that_begins_at_no_multiple_itself_is_what_is_told(findings, long, asked, name, b, i, byte, begins):
    """Then the byte of the array says nothing: it is a multiple."""
    kernel = helpers.compile(OF_FOUR % (asked, name))
    arguments = [b, np.zeros(16, np.float32), i]
    if byte is None:
        assert not kernel.launch(1, 16, arguments, on="cpu", findings=findings, long=long, counters=False).findings
        return
    with pytest.raises(helpers.RunError) as stopped:
        kernel.launch(1, 16, arguments, on="cpu", findings=findings, long=long, counters=False)
    said = stopped.value.message
    assert f"(byte {byte} of {name}) that is not a multiple of 16" in said and said.startswith("line 8: ")
    assert (f"16, since {name} itself begins at {begins}" in said) == (", no multiple of 16 (thread" in said) == bool(begins)
    assert ("Declare it __shared__ __align__(16) …" in said) == (name == "tile" and bool(begins))
    assert ("a part of a larger array" in said) == (name == "b" and bool(begins))
    for finding in stopped.value.findings:
        assert (f"since {name} itself begins at {begins}" in finding.message) == bool(begins)
        assert finding.advice in said or not begins


def test_of_arrays_that_overlap_neither_is_said_to_begin_wrongly():
    """Which of the two the address was computed from is not known."""
    kernel = helpers.compile(OF_FOUR % ("", "b"))
    with pytest.raises(helpers.RunError, match="not a multiple of 16 \\(thread"):
        kernel.launch(1, 16, [LARGER, LARGER[1:], 1], on="cpu")
