"""Blocks that wait for blocks which can only begin when these have ended. One block of 200 KB fits on an SM, so 132 on the largest GPU."""

from __future__ import annotations

import numpy as np
import pytest

import helpers
from helpers.errors import LaunchError
from helpers.sim.machine.stuck import OthersMissing

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
@pytest.mark.parametrize("blocks, told", [(133, True), (140, True), (132, False), ((11, 12), False), ((7, 20), True)])
def test_a_barrier_of_more_blocks_than_fit(blocks, told, in_turn):
    found = findings(GRID, blocks, in_turn)
    assert [(one.kind, one.line) for one in found] == [("endless", 10)] * told
    assert all(f"of the {np.prod(blocks)} blocks of this launch at most 132" in one.message for one in found)


@pytest.mark.slow
@pytest.mark.parametrize("threads, fit", [(1024, 2 * 132), (32, 32 * 132)])
def test_no_more_than_fit_begin_also_where_a_chunk_holds_hundreds(threads, fit):
    kernel = helpers.compile(KERNEL.replace("BODY", GRID).replace("out[b * 32 + t] = s[31 - t];", "if (!t) out[b] = 1;"), arch="sm_90")
    for blocks, told in ((fit, 0), (fit + 6, 1)):
        run = kernel.launch(blocks, threads, (np.zeros(5000, np.float32),), shared=4096, on="cpu", counters=False)
        assert [one.kind for one in run.findings] == ["endless"] * told


def test_a_grid_that_waits_as_a_whole_has_to_fit():
    source = """#include <cooperative_groups.h>
    extern "C" __global__ void f(float* out) {
        extern __shared__ float s[];
        s[threadIdx.x] = 1;
        cooperative_groups::this_grid().sync();
        out[blockIdx.x] = s[31 - threadIdx.x];
    }"""
    kernel = helpers.compile(source, arch="sm_90")
    assert not kernel.launch(132, 32, (np.zeros(132, np.float32),), shared=200 << 10, on="cpu", counters=False).findings
    with pytest.raises(LaunchError, match="of 133 blocks no more than 132 fit"):
        kernel.launch(133, 32, (np.zeros(133, np.float32),), shared=200 << 10, on="cpu")


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


@pytest.mark.slow
def test_downwards_the_blocks_of_lower_numbers_begin_last():
    assert not findings(SIGNAL.replace("WAIT", "if (b) while (!flag[0]);"), 140, "downwards")


@pytest.mark.parametrize("shared", ["", "s[t] = looked;"])
def test_blocks_that_wait_for_some_that_do_not_run_are_told_soon(shared, monkeypatch):
    """By the machine's state, which comes again, and not by the time that a launch has: it is not even looked at."""
    looks = []
    monkeypatch.setattr("helpers.sim.launch.stuck.OthersMissing.look", _counted(looks))
    body = SIGNAL.replace("WAIT", f"int looked = 0; if (b < n - 1) while (!flag[b + 1]) {{ {shared} }}")
    kernel = helpers.compile(KERNEL.replace("BODY", body), arch="sm_90")
    out = np.zeros(8 * 32, np.float32)
    with pytest.raises(LaunchError, match="wait for others .* cannot run without them"):
        kernel.launch(8, 32, (out,), shared=4096, on="cpu", blocks=[0, 1, 2], counters=False, seconds=10**6)
    assert 1 < len(looks) <= 24
    for blocks in ([6, 7], [5, 6, 7]):  # all that they wait for runs as well
        kernel.launch(8, 32, (out,), shared=4096, on="cpu", blocks=blocks, counters=False)
    assert out.reshape(8, 32)[5:].sum() == 3 * 31 * 16


def test_many_looks_are_no_waiting_where_some_blocks_run():
    body = "float v = 0; for (int i = 0; i < 9000; i++) v += data[i % 256]; s[t] += v;"
    out = np.zeros(8 * 32, np.float32)
    helpers.compile(KERNEL.replace("BODY", body), arch="sm_90").launch(8, 32, (out,), shared=4096, on="cpu", blocks=[1], counters=False)
    assert out.sum() == 31 * 16


def _counted(looks: list):
    whole = OthersMissing.look

    def look(self, chunk):
        looks.append(chunk)
        whole(self, chunk)

    return look


@pytest.mark.parametrize(
    "wait, told",
    [
        ("if (b) while (!flag[b - 1]);", False),
        ("if (b < n - 1) while (!flag[b + 1]);", True),
        ("if (b % 2 == 0) while (!flag[b + 1]);", True),
    ],
)
def test_alone_a_block_may_wait_for_those_of_lower_numbers_only(wait, told):
    """Also where all of them fit on a GPU: a larger launch of the same kernel would not."""
    found = findings(SIGNAL.replace("WAIT", wait), 6, "alone")
    assert [one.kind for one in found] == ["endless"] * told
    assert all("blocks of higher numbers" in one.message for one in found)
