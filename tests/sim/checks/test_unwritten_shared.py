"""Shared memory that nobody has written may be copied; it is told where something comes of it, at the load that read it."""

from __future__ import annotations

import numpy as np
import pytest

import helpers
from helpers.sim import native

KERNEL = """#include <cuda_fp16.h>
#include <cuda_pipeline.h>
struct Pair { double d; int i; };
struct Small { char c; int i; };
__device__ Pair kept[64];
extern "C" __global__ void f(const float* x, BODY
"""
FILL = "__shared__ Pair s[64]; int t = threadIdx.x; s[t].d = t; s[t].i = t; __syncthreads(); "
HALVES = "float* o) { __shared__ __half2 s[32]; int t = threadIdx.x; s[t].x = __float2half(x[t]); __syncthreads(); __half2 a = s[31 - t]; "
THREE = "__shared__ float4 s[64]; int t = threadIdx.x; s[t].x = x[t]; s[t].y = 1; s[t].z = 2; __syncthreads(); "
SOME = "float* o) { __shared__ float s[32]; int t = threadIdx.x; if (t < 20) s[t] = x[t]; __syncthreads(); "
RIGHT = {
    "the largest of structs": "double* o) {" + FILL + "for (int d = 16; d; d /= 2) { if (t < d && s[t + d].d > s[t].d) s[t] = s[t + d]; "
    "__syncthreads(); } o[t] = s[0].d + s[0].i; }",
    "a part of a vector": "float* o) {" + THREE + "float4 q = s[31 - t]; o[t] = q.x * q.y + q.z; }",
    "structs to an array of structs": "Pair* o) { __shared__ Pair s[32]; int t = threadIdx.x; Pair p; p.d = t; p.i = t; s[t] = p; "
    "__syncthreads(); o[t] = s[31 - t]; }",
    "small structs": "Small* o) { __shared__ Small s[32]; int t = threadIdx.x; Small p; p.c = t; p.i = t; s[t] = p; __syncthreads(); "
    "Small q = s[31 - t]; o[t] = q; }",
    "structs to bytes": "unsigned char* o) {" + FILL + "memcpy(o + 16 * t, &s[31 - t], 16); }",
    "structs to a variable": "double* o) {" + FILL + "int at = blockIdx.x * 32; kept[at + t] = s[31 - t]; __syncthreads(); Pair q = kept[at + 31 - t]; o[t] = q.d + q.i; }",
    "back and forth": "double* o) {" + FILL + "for (int r = 0; r < 5; r++) { int from = r & 1 ? 32 : 0; "
    "s[32 - from + t] = s[from + (t + 1) % 32]; __syncthreads(); } o[t] = s[32 + t].d + s[32 + t].i; }",
    "structs in local memory": "double* o) {" + FILL + "Pair l[8]; for (int r = 0; r < 8; r++) l[r] = s[(t + r) % 32]; double sum = 0; "
    "for (int r = 0; r < int(x[0]); r++) { Pair q = l[r * 3 % 8]; sum += q.d + q.i; } o[t] = sum; }",
    "other lanes' structs": "double* o) {" + FILL + "int4 q = *(int4*)&s[31 - t]; q.x = __shfl_xor_sync(~0u, q.x, 1); "
    "q.y = __shfl_xor_sync(~0u, q.y, 1); q.z = __shfl_xor_sync(~0u, q.z, 1); q.w = __shfl_xor_sync(~0u, q.w, 1); "
    "Pair p; memcpy(&p, &q, 16); o[t] = p.d + p.i; }",
    "half of a pair": HALVES + "a = __hfma2(__hadd2(a, s[t]), a, __hmax2(a, s[t])); o[t] = __low2float(a); }",
    "a result that is dropped": SOME + "float v = 0; for (int j = 0; j < 32; j++) v += s[t] * j; if (t < 20) o[t] = v; }",
    "a choice": SOME + "float v = s[t]; o[t] = t < 20 ? v : 0; }",
    "written again by a copy": "float* o) {" + THREE + "s[t + 32] = s[31 - t]; __syncthreads(); "
    "__pipeline_memcpy_async(&s[t + 32], (const float4*)x + t, 16); __pipeline_commit(); __pipeline_wait_prior(0); __syncthreads(); "
    "float4 q = s[32 + (t + 1) % 32]; o[t] = q.x + q.w; }",
}  # fmt: skip
WRONG = {
    "an element of C": SOME + "\no[t] = s[31 - t]; }",
    "an element of a vector of C": "float* o) {" + THREE + "\n((float4*)o)[t] = s[31 - t]; }",
    "a whole struct": "Pair* o) { __shared__ Pair s[32]; int t = threadIdx.x; Pair p; p.d = t; p.i = t; if (t < 20) s[t] = p; "
    "__syncthreads();\no[t] = s[31 - t]; }",
    "a member": "double* o) { __shared__ Pair s[32]; int t = threadIdx.x; s[t].d = t; __syncthreads();\nPair p = s[31 - t];\no[t] = p.d + p.i; }",
    "an address": SOME + "\nint at = s[31 - t];\no[at & 31] = 1; }",
    "a branch": SOME + "\nfloat v = s[31 - t];\nif (v > 3) o[t] = t; }",
    "the other half of a pair": HALVES.replace("__half2 a", "\n__half2 a") + "a = __hadd2(a, s[t]);\no[t] = __high2float(a); }",
    "through shared memory": SOME + "__shared__ float other[32];\nother[t] = s[31 - t];\n__syncthreads(); o[t] = other[t ^ 1] * 2; }",
    "a printout": SOME + '\nfloat v = s[31 - t];\nif (t == 3) printf("%f", v); }',
    "an atomic operation": "int* o) { __shared__ int n; int t = threadIdx.x;\nif (x[t] > 2) atomicAdd(&n, 1);\n__syncthreads(); o[t] = n; }",
}  # fmt: skip


@pytest.fixture(params=["as usual", "numpy"])
def engine(request, monkeypatch):
    if request.param == "numpy":
        monkeypatch.setattr(native.engine, "available", lambda: False)


def launched(body: str):
    kernel = helpers.compile(KERNEL.replace("BODY", body))
    out = np.zeros(1024, {"d": np.float64, "i": np.int32, "u": np.uint8}.get(body[0], np.float32))
    return kernel.launch(2, 32, (np.ones(256, np.float32) * 8, out), on="cpu"), out


@pytest.mark.parametrize("name", RIGHT)
def test_what_nobody_uses_is_no_mistake(name, engine):
    run, out = launched(RIGHT[name])
    assert not run.findings
    assert out.any()


@pytest.mark.parametrize("name", WRONG)
def test_what_decides_something_is_told_where_it_was_read(name, engine):
    run, _ = launched(WRONG[name])
    (finding,) = {(finding.kind, finding.line): finding for finding in run.findings}.values()
    assert (finding.kind, finding.line) == ("uninitialized", 7)
    assert "shared memory at offset" in finding.message
    assert "which no thread has written" in finding.message


def test_a_launch_that_is_run_again_prints_once(capsys, engine):
    run, _ = launched(
        'float* o) { if (!threadIdx.x) printf("block\\n"); '
        + THREE
        + 'if (!t) printf("end\\n"); s[t + 32] = s[31 - t]; o[t] = s[t + 32].x; }'
    )
    assert not run.findings
    assert sorted(capsys.readouterr().out.split()) == ["block", "block", "end", "end"]
