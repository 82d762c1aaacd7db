"""Races in device memory: which accesses are watched, what orders them, what is said. The corpus has the rest."""

from __future__ import annotations

import numpy as np
import pytest

import helpers
from helpers.sim.checks.device_races import DeviceShadow, arrays_of
from helpers.sim.checks.warp_clocks import WarpClocks
from helpers.sim.load import load


def findings(source, grid, block, *args):
    return helpers.compile(source).launch(grid, block, args, on="cpu", counters=False).findings


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


def test_the_finding_names_element_threads_and_lines():
    source = """extern "C" __global__ void f(float* C) {
        float left = C[threadIdx.x];
        C[(threadIdx.x + 1) % 32 + 32] = left;
        C[threadIdx.x + 32] = 2 * left + 1;
    }"""
    first, *_ = findings(source, 1, 32, np.arange(64, dtype=np.float32).reshape(8, 8))
    assert (first.kind, first.line, first.other_line) == ("race", 4, 3)
    assert "C[4, 0], which thread (31, 0, 0) writes at line 3" in first.message


@pytest.mark.parametrize(
    "body, races",
    [
        ("C[0] = 5;", False),  # everybody writes the same
        ("C[0] = t;", True),
        ("C[t % 4] = blockIdx.x;", True),
        ("C[blockIdx.x * 32 + t] = 1;", False),
        ("atomicAdd(&C[0], 1.0f);", False),
        ("atomicAdd(&C[0], 1.0f); C[1] = C[0];", True),
        ("C[blockIdx.x * 32 + t] = t; __syncthreads(); C[128 + blockIdx.x * 32 + t] = C[blockIdx.x * 32 + 31 - t];", False),
        ("C[blockIdx.x * 32 + t] = t; __syncwarp(); C[128 + blockIdx.x * 32 + t] = C[blockIdx.x * 32 + 31 - t];", False),
        ("C[blockIdx.x * 32 + t] = t + 1; C[128 + blockIdx.x * 32 + t] = C[blockIdx.x * 32 + 31 - t];", True),
        ("C[blockIdx.x * 32 + t] = t + 1; __syncthreads(); C[128 + t] = C[(blockIdx.x + 1) % gridDim.x * 32 + t];", True),
    ],
)
def test_what_is_a_race(body, races):
    source = f'extern "C" __global__ void f(float* C) {{ int t = threadIdx.x; {body} }}'
    found = findings(source, 4, 32, np.zeros(256, np.float32))
    assert {finding.kind for finding in found} == ({"race"} if races else set())


def test_asynchronous_copies_read_too():
    source = """extern "C" __global__ void f(float* C) {
        __shared__ float s[32];
        C[threadIdx.x] = threadIdx.x + 1;
        unsigned to = __cvta_generic_to_shared(s + threadIdx.x);
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to), "l"(C + (threadIdx.x ^ 1)) : "memory");
        asm volatile("cp.async.wait_all;" ::: "memory");
        C[threadIdx.x + 32] = s[threadIdx.x];
    }"""
    (finding,) = findings(source, 1, 32, np.zeros(64, np.float32))
    assert (finding.kind, finding.line, finding.other_line) == ("race", 5, 3)


def test_workers_that_meet_in_an_array_are_noticed():
    compiled = helpers.compile('extern "C" __global__ void f(float* C) { C[threadIdx.x] = 1; }').compiled
    program = load(compiled.ptx, "f")

    class Memory:
        starts, ends, arguments, allocations = np.array([256]), np.array([256 + 40]), [], []

    shadow = DeviceShadow(program, Memory, {0: 256, 1: 0x7F00}, (1, 1, 1), (32, 1, 1))
    assert shadow.needed and shadow.granule == 4 and shadow.reach == 11
    nobody, reader, writer = (np.zeros(11, np.uint32) for _ in range(3))
    reader[3], writer[3] = 7 << 1, 9 << 1 | 1
    assert shadow.meet([reader, writer]) and not shadow.meet([reader, reader]) and not shadow.meet([nobody, writer])
    assert shadow.meet([reader, nobody, writer])


def test_lanes_know_of_each_other_what_their_barriers_say():
    clocks = WarpClocks(1, 64)
    lanes = np.arange(64)
    before = clocks.now(0, lanes).copy()
    halves = np.broadcast_to(np.where(np.arange(32) < 16, 0x0000FFFF, 0xFFFF0000).astype(np.uint32), (1, 2, 32))

    def ordered(thread, other):
        return bool(clocks.ordered(0, np.array([thread]), np.array([other]), before[[other]])[0])

    assert not ordered(0, 1)
    clocks.meet(halves, None)
    assert ordered(0, 1) and ordered(40, 33) and not ordered(0, 16) and not ordered(16, 0)
    middle = np.broadcast_to(np.uint32(0x00018000), (1, 2, 32))  # lanes 15 and 16 carry the news across
    clocks.meet(middle, np.isin(np.arange(32), (15, 16))[None, None] & np.ones((1, 2, 1), bool))
    assert ordered(16, 0) and not ordered(17, 0)
    clocks.meet(None, None)
    assert ordered(17, 0) and ordered(0, 31)
