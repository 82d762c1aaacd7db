"""Loads past the caches that hear of writes (`__ldg()`, const … __restrict__), of what the same launch has written."""

from __future__ import annotations

import numpy as np
import pytest

import helpers

KERNEL = """__device__ int done;
extern "C" __global__ void f(const float* IN in, float* out, int n) {
    int t = threadIdx.x, i = blockIdx.x * 32 + t;
    float v;
    BODY
}"""
MEET = "__threadfence(); __syncthreads(); if (!t) { atomicAdd(&done, 1); while (*(volatile int*)&done < gridDim.x); __threadfence(); } __syncthreads();"


def findings(body: str, same: bool = True, restrict: bool = False) -> list:
    memory = np.arange(192, dtype=np.float32)
    args = (memory, memory) if same else (memory, memory.copy())
    source = KERNEL.replace("BODY", body).replace("IN", "__restrict__" if restrict else "")
    return helpers.compile(source).launch(2, 32, (*args, np.int32(64)), on="cpu", counters=False).findings


@pytest.mark.parametrize(
    "body",
    [
        "v = __ldg(in + (i ^ 1)) + 1; __syncthreads();\nout[i] = v; __syncthreads();\nout[n + i] = __ldg(in + (i ^ 1));",  # after a barrier
        f"v = in[i];\nout[i] = v + 1; {MEET}\nout[n + i] = __ldg(in + (i + 32) % 64);",  # after a barrier of the grid
        "v = in[i] + 1;\nout[i] = v;\nout[n + i] = __ldg(in + i) * 2;",  # its own
        "v = in[i];\natomicAdd(out + i, 1.0f); __syncthreads();\nout[n + i] = __ldg(in + (i ^ 1)) + v;",
    ],
)
def test_a_read_only_load_of_what_has_been_written(body):
    (found,) = findings(body)
    assert (found.kind, found.line, found.other_line) == ("race", 7, 6)
    assert "read-only load" in found.message
    assert "__ldg()" in found.advice
    assert not findings(
        body.replace("__ldg(in + (i + 32) % 64)", "((volatile float*)out)[(i + 32) % 64]").replace("__ldg(in + ", "*(out + ")
    )
    assert not findings(body, same=False)


@pytest.mark.parametrize(
    "body",
    [
        "out[i] = __ldg(in + i) + 1;",  # in place
        "v = __ldg(in + (i ^ 1)) + 1; __syncthreads(); out[i] = v;",
        "out[i] = in[i]; __syncthreads(); out[n + i] = __ldg(in + (i ^ 1));",  # the same as it was
        "out[n + i] = 1; __syncthreads(); out[128 + i] = __ldg(in + i);",  # another part of the array
    ],
)
def test_what_works_is_not_told(body):
    assert not findings(body)


def test_the_compiler_makes_such_loads_of_restrict():
    (found,) = findings("v = in[i];\nout[i] = v + 1; __syncthreads();\nout[n + i] = in[i ^ 1];", restrict=True)
    assert (found.kind, found.line, found.other_line) == ("race", 7, 6)
