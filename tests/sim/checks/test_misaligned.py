"""Arrays whose place fits a wide access by chance."""

from __future__ import annotations

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


def test_a_check_remarks_it_and_takes_the_kernel():
    step = steps.get("vectorized")
    source = step.kernel_source()
    assert source.count("__shared__ __align__(16) float") == 2
    kernel = helpers.compile(source.replace("__shared__ __align__(16) float Bs", "__shared__ float Bs"), entry=step.entry)
    problem = gemm.problem_for(kernel, 64, 64, 16)
    assert "Declare" not in str(gemm.check(helpers.compile(source, entry=step.entry), problem, on="cpu"))
    report = gemm.check(kernel, problem, on="cpu")
    assert report.passed and "16 bytes of Bs at once" in str(report)
