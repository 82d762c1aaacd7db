"""Blocks that wait for blocks which can only begin when these have ended. One block of 200 KB fits on an SM, so 132 on the largest GPU."""

from __future__ import annotations

import numpy as np
import pytest

import helpers

KERNEL = """extern __shared__ float s[];
__device__ unsigned count;
__device__ volatile int flag[256];
__device__ volatile float data[256];
extern "C" __global__ void f(float* out) {
    int b = blockIdx.y * gridDim.x + blockIdx.x, t = threadIdx.x, n = gridDim.x * gridDim.y;
    s[t] = t;
    BODY
    out[b * 32 + t] = s[31 - t];
}"""
GRID = """__syncthreads();
    if (t == 0) { atomicAdd(&count, 1);
        while (*(volatile unsigned*)&count < n); }
    __syncthreads();"""
SIGNAL = "if (t == 0) { WAIT __threadfence(); flag[b] = 1; } __syncthreads();"


def findings(body: str, blocks, in_turn: str = "") -> list:
    out, grid, blocks = np.zeros(256 * 32, np.float32), blocks, int(np.prod(blocks))
    kernel = helpers.compile(KERNEL.replace("BODY", body), arch="sm_90")
    run = kernel.launch(grid, 32, (out,), shared=200 << 10, on="cpu", counters=False, in_turn=in_turn)
    assert out[: blocks * 32].reshape(blocks, 32).sum() == blocks * 31 * 16  # the machine has room for all of them
    return run.findings


@pytest.mark.parametrize("in_turn", ["", "upwards"])
@pytest.mark.parametrize("blocks, told", [(140, True), (132, False)])
def test_a_barrier_of_more_blocks_than_fit(blocks, told, in_turn):
    found = findings(GRID, blocks, in_turn)
    assert [(one.kind, one.line) for one in found] == [("endless", 10)] * told
    assert all("of the 140 blocks of this launch at most 132" in one.message for one in found)


@pytest.mark.parametrize(
    "body, told",
    [
        (SIGNAL.replace("WAIT", "if (b < n / 2) while (!flag[n / 2 + b]);"), False),  # the first wait for blocks that have room
        (SIGNAL.replace("WAIT", "if (b < n - 1) while (!flag[b + 1]);"), True),
        (SIGNAL.replace("WAIT", "if (b) while (!flag[b - 1]);"), False),
        (SIGNAL.replace("WAIT", "if (b < 135) while (!flag[135]);"), True),
        (SIGNAL.replace("WAIT", "if (b % 2 == 0) while (!flag[b + 1]);"), False),
        (SIGNAL.replace("WAIT", "if (b == 0) while (!flag[139]);"), False),  # the others end
        ("float v = 0; for (int i = 0; i < 1500; i++) v += data[i % 256]; s[t] += v;", False),  # many looks, and no waiting
    ],
)
def test_who_waits_for_whom(body, told):
    assert [one.kind for one in findings(body, 140) if one.kind == "endless"] == ["endless"] * told


@pytest.mark.parametrize(("blocks", "in_turn"), [((7, 20), ""), ((70, 2), ""), ((2, 70), "upwards")])
def test_blocks_may_wait_for_those_of_lower_numbers(blocks, in_turn):
    assert not findings(SIGNAL.replace("WAIT", "if (b) while (!flag[b - 1]);"), blocks, in_turn)


def test_downwards_the_blocks_of_lower_numbers_begin_last():
    assert not findings(SIGNAL.replace("WAIT", "if (b) while (!flag[0]);"), 140, "downwards")
