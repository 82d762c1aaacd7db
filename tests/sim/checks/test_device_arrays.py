"""Addresses are followed back to the parameters that they are made of."""

from __future__ import annotations

import pytest

import helpers
from helpers.sim.checks.device_arrays import arrays_of
from helpers.sim.load import load


def watched(source):
    """For each access to device memory, in order: the numbers of the parameters that its address is made of."""
    program = load(helpers.compile(source).ptx, "f")
    number = {at: i for i, (_, at) in enumerate(program.parameters)}
    return [{number.get(origin, origin) for origin in found} for _, found in sorted(arrays_of(program).items())]


@pytest.mark.parametrize(
    "body, origins",
    [
        ("C[t] = A[t] + B[n - t];", [{0}, {1}, {2}]),
        ("float* p = n > 3 ? A : B; C[t] = p[t];", [{0, 1}, {2}]),
        ("C[(int)A[t]] = 1;", [{0}, {2}]),  # an index from memory is no pointer
        ("atomicAdd(C + t, 1.0f);", [{2}]),
        ("float* p = A; for (int i = 0; i < n; i++, p += n) C[t] += *p;", None),
    ],
)
def test_addresses_are_followed_to_their_parameters(body, origins):
    found = watched(f'extern "C" __global__ void f(float* A, float* B, float* C, int n) {{ int t = threadIdx.x; {body} }}')
    if origins is None:
        assert {frozenset(one) for one in found} == {frozenset({0}), frozenset({2})}
    else:
        assert found == origins
