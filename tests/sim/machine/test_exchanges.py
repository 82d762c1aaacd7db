"""Lanes at different places exchange with each other, as on a GPU."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.sim import simulate
from helpers.toolchain.compile import compile_source

SOURCE = """
extern "C" __global__ void k(const int* a, const int* b, int* out, int* left, int* right) {
    int t = threadIdx.x, v = -1;
    if (CONDITION) {
        int x = a[t] * 3;
        left[t] = x;
        asm volatile("// one" ::: "memory");
        v = FIRST;
        asm volatile("// two" ::: "memory");
        left[t] = x + v;
    } else {
        int y = b[t] + 1;
        right[t] = y;
        asm volatile("// three" ::: "memory");
        v = SECOND;
        asm volatile("// four" ::: "memory");
        right[t] = y ^ v;
    }
    out[t] = v;
}
"""
CONDITIONS = {"t & 1": lambda t, a: t & 1, "t % 32 < 16": lambda t, a: t % 32 < 16, "a[t] & 2": lambda t, a: a & 2}
BITS = np.uint32(1) << np.arange(32, dtype=np.uint32)


def mask(lanes: np.ndarray) -> np.int32:
    return np.bitwise_or.reduce(BITS[lanes], initial=np.uint32(0)).view(np.int32)


# name -> (one side's call, the other's, what both get of all lanes' values and sides)
CALLS = {
    "ballot": ("__ballot_sync(~0u, x > 10)", "__ballot_sync(~0u, y < 5)",
               lambda v, left: np.full(32, mask(np.where(left, v > 10, v < 5)))),
    "any": ("__any_sync(~0u, x == 93)", "__any_sync(~0u, y == 100)", lambda v, left: np.full(32, (v[left] == 93).any())),
    "shfl": ("__shfl_sync(~0u, x, t ^ 1)", "__shfl_sync(~0u, y, t ^ 1)", lambda v, left: v[np.arange(32) ^ 1]),
    "xor": ("__shfl_xor_sync(~0u, x, 16)", "__shfl_xor_sync(~0u, y, 16)", lambda v, left: v[np.arange(32) ^ 16]),
    "reduce": ("__reduce_add_sync(~0u, x)", "__reduce_add_sync(~0u, y)", lambda v, left: np.full(32, v.sum())),
    "match": ("__match_any_sync(~0u, x)", "__match_any_sync(~0u, y)", lambda v, left: np.array([mask(v == one) for one in v])),
}  # fmt: skip


def arrays() -> list[np.ndarray]:
    t = np.arange(64, dtype=np.int32)
    return [t % 40, t * 7 % 11, *(np.full(64, -5, np.int32) for _ in range(3))]


def source(condition: str, call: str) -> str:
    first, second, _ = CALLS[call]
    return SOURCE.replace("CONDITION", condition).replace("FIRST", first).replace("SECOND", second)


def exchanged(condition: str, call: str) -> list[np.ndarray]:
    """out, left and right afterwards."""
    a, b, *_ = arrays()
    left = CONDITIONS[condition](np.arange(64), a).astype(bool)
    values = np.where(left, a * 3, b + 1)
    out = np.concatenate([CALLS[call][2](values[w : w + 32], left[w : w + 32]) for w in (0, 32)]).astype(np.int32)
    return [out, np.where(left, values + out, -5), np.where(left, -5, values ^ out)]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_lanes_at_two_places_exchange_with_each_other(condition, call):
    given = arrays()
    outcome = simulate(compile_source(source(condition, call)), (1, 1, 1), (64, 1, 1), given)
    assert outcome.findings == []
    for found, expected in zip(given[2:], exchanged(condition, call), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_lanes_that_go_round_different_loops_meet_at_the_same_call():
    """The lower half calls in a loop of three turns, the upper half three times in a row."""
    body = """
    extern "C" __global__ void k(int* out) {
        int t = threadIdx.x, v = t;
        if (t < 16) { for (int i = 0; i < 3; i++) v += __shfl_sync(~0u, v, t ^ 16); }
        else { v -= __shfl_sync(~0u, v, t ^ 16); v -= __shfl_sync(~0u, v, t ^ 16); v -= __shfl_sync(~0u, v, t ^ 16); }
        out[t] = v;
    }"""
    out, v, t = np.zeros(32, np.int32), np.arange(32), np.arange(32)
    for _ in range(3):
        v = np.where(t < 16, v + v[t ^ 16], v - v[t ^ 16])
    outcome = simulate(compile_source(body), (1, 1, 1), (32, 1, 1), [out])
    assert outcome.findings == []
    np.testing.assert_array_equal(out, v)


def test_what_is_undefined_at_one_place_is_undefined_at_the_other():
    body = """
    extern "C" __global__ void k(const int* in, int* out) {
        __shared__ int s[32];
        int t = threadIdx.x;
        if (in[t] > 3) s[t] = 1;
        __syncthreads();
        int v = s[t];
        if (t < 16) out[t] = __shfl_xor_sync(~0u, t, 16); else if (__shfl_xor_sync(~0u, v, 16) > 20) out[t] = 7;
    }"""
    given = np.full(32, 5, np.int32)
    for wrong, told in ((None, 0), (4, 0), (20, 1)):  # lane 4 sends its number, and what lane 20 sends is stored by lane 4
        if wrong is not None:
            given[wrong] = 0
        outcome = simulate(compile_source(body), (1, 1, 1), (32, 1, 1), [given, np.zeros(32, np.int32)])
        assert [finding.kind for finding in outcome.findings] == ["uninitialized"] * told
