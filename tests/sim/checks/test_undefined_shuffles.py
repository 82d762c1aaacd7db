"""A shuffle from a lane that takes no part gives what that lane's register holds, and is told where it matters."""

from __future__ import annotations

import numpy as np
import pytest

import helpers
from helpers.sim import native

REDUCTION = """__device__ float add_up(unsigned mask, float v, int most) {
    for (int d = most; d > 0; d /= 2) v += __shfl_down_sync(mask, v, d);
    return v;
}
extern "C" __global__ void f(const float* x, float* y) {
    __shared__ float s[8];
    int t = threadIdx.x;
    float sum = add_up(0xffffffff, x[t], 16);
    if (t % 32 == 0) s[t / 32] = sum;
    __syncthreads();
    if (t < 8) sum = add_up(0xff, s[t], MOST);
    if (t == 0) y[0] = sum;
}"""


@pytest.mark.parametrize("engine", ["as usual", "numpy"])
@pytest.mark.parametrize("most, told", [(16, True), (4, False)])
def test_lanes_outside_the_mask_keep_their_registers(most, told, engine, monkeypatch):
    """The reduction of NVIDIA's samples goes over the distances of a whole warp with a mask of eight lanes."""
    if engine == "numpy":
        monkeypatch.setattr(native.engine, "available", lambda: False)
    x, y = np.arange(256, dtype=np.float32) % 7 - 2, np.zeros(1, np.float32)
    run = helpers.compile(REDUCTION.replace("MOST", str(most))).launch(1, 256, (x, y), on="cpu", counters=False)
    assert y[0] == x.sum()
    assert [(finding.kind, finding.line) for finding in run.findings] == ([("divergent-barrier", 2)] if told else [])


@pytest.mark.parametrize(
    "body, told",
    [
        ("if (t < 16) y[t] = __shfl_sync(0xffff, v, 20);", True),
        ("if (t < 16) y[t] = __shfl_sync(0xffff, v, 15);", False),
        ("if (t < 16) y[t] = __shfl_xor_sync(0xffff, v, 8);", False),
        ("if (t < 16) y[t] = __shfl_xor_sync(0xffff, v, 16);", True),
        ("if (t < 13) { float w = __shfl_xor_sync(0x1fff, v, 1); y[t] = t < 12 ? w : v; }", False),  # the last has no partner
        ("if (t >= 16) y[t] = __shfl_up_sync(0xffff0000, v, 4);", True),
        ("if (t >= 16) { float w = __shfl_up_sync(0xffff0000, v, 4); y[t] = t < 20 ? v : v + w; }", False),  # as in a scan
        ("if (t >= 16) y[t] = __shfl_up_sync(0xffff0000, v, 16);", True),
        ("if (t >= 16) return; y[t] = __shfl_down_sync(0xffff, v, 16);", True),
        ("y[t] = __shfl_down_sync(0xffffffff, v, 16);", False),
    ],
)
def test_what_matters_is_told(body, told):
    source = f'extern "C" __global__ void f(const float* x, float* y) {{ int t = threadIdx.x; float v = x[t]; {body} }}'
    run = helpers.compile(source).launch(1, 32, (np.ones(32, np.float32), np.zeros(32, np.float32)), on="cpu", counters=False)
    assert [finding.kind for finding in run.findings] == ["divergent-barrier"] * told


@pytest.mark.parametrize("call, what", [("__reduce_add_sync(MASK, a[t])", "reduction"), ("__match_any_sync(MASK, a[t])", "match")])
@pytest.mark.parametrize("mask, lanes, told", [("0xff", 32, True), ("0xff", 8, False), ("~0u", 32, False), ("__activemask()", 8, False)])
def test_reductions_and_matches_want_a_mask_with_those_who_call(call, what, mask, lanes, told):
    body = f"const int t = threadIdx.x; if (t < {lanes}) a[t] = {call.replace('MASK', mask)};"
    run = helpers.compile(f"__global__ void k(unsigned* a) {{ {body} }}").launch(1, 32, [np.arange(32, dtype=np.uint32)], on="cpu")
    said = [finding.message for finding in run.findings]
    assert said == ([f"A thread calls {what} with the mask 0x000000ff, which leaves the thread itself out."] if told else [])


SUM = "for (int d = MOST; d; d /= 2) v += __shfl_down_sync(MASK, v, d);"
LARGEST = """int at = t;
    for (int d = MOST; d; d /= 2) {
        const int w = __shfl_down_sync(MASK, v, d), from = __shfl_down_sync(MASK, at, d);
        if (w > v) v = w, at = from;
    }"""


@pytest.mark.parametrize("body, line, message", [
    # Lane 4 gets what lane 20 holds, which has gone, and lane 0 adds it later.
    (f"if (t >= 20) return; {SUM} if (t == 0) y[0] = v;", 3, "Lane 4 shuffles from lane 20"),
    (f"if (t < 20) {{ {SUM} if (t == 0) y[v] = 1; }}", 3, "Lane 4 shuffles from lane 20"),  # as an address
    (f"if (t >= 20) return; {SUM} s[t] = v; __syncwarp(0xfffff); if (t == 0) y[0] = s[0];", 3, "Lane 4 shuffles from lane 20"),
    (f"if (t >= 20) v = 0; {SUM} if (t == 0) y[0] = v;", 0, ""),
    # The upper lanes of a part of a warp get such values, and let them go.
    (f"if (t < 16) {{ {SUM.replace('MOST', '8').replace('MASK', '0xffff')} if (t == 0) y[0] = v; }}", 0, ""),
    (f"if (t < 16) {{ {SUM.replace('MOST', '8').replace('MASK', '0xffff')} s[t] = v; }} __syncthreads(); if (t == 0) y[0] = s[0];", 0, ""),
    (f"if (t < 16) {{ {SUM.replace('MOST', '8').replace('MASK', '0xffff')} s[t] = v; }} __syncthreads(); if (t == 0) y[0] = s[15];", 3,
     "Lane 8 shuffles from lane 16"),
    (f"if (t < 16) {{ {LARGEST.replace('MOST', '8').replace('MASK', '0xffff')} if (t == 0) y[0] = at; }}", 0, ""),
])  # fmt: skip
def test_what_an_undefined_value_comes_to_is_told(body, line, message):
    body = body.replace("MOST", "16").replace("MASK", "0xffffffff")
    source = f"""extern "C" __global__ void f(const int* x, int* y) {{
        __shared__ int s[32]; int t = threadIdx.x, v = x[t];
        {body}
    }}"""
    run = helpers.compile(source).launch(1, 32, (np.arange(32, dtype=np.int32) % 3, np.zeros(64, np.int32)), on="cpu", counters=False)
    assert [(finding.kind, finding.line) for finding in run.findings] == ([("divergent-barrier", line)] if line else [])
    assert all(finding.message.startswith(f"{message}, which takes no part: the value is undefined, and") for finding in run.findings)
