"""Calls of device functions, by name and through pointers: where their code goes, and where what they are handed lies."""

from __future__ import annotations

import numpy as np
import pytest

import helpers
from helpers.errors import RunError
from helpers.sim.load import load

FUNCTIONS = """
typedef float (*Function)(float, float);
__device__ float sum(float a, float b) { return a + b; }
__device__ float product(float a, float b) { return a * b; }
__device__ float twice(float a) { return 2 * a; }
__device__ Function table[2] = {sum, product};
__constant__ Function fixed[2] = {product, sum};
struct Base { __device__ virtual float of(float a) = 0; };
struct More : Base { float by; __device__ More(float by) : by(by) {} __device__ float of(float a) override { return a + by; } };
struct Square : Base { __device__ float of(float a) override { return a * a; } };
template <Function F> __device__ __noinline__ float named(float a, float b) { return F(a, b); }
"""


def results(body: str, block: int = 64, **options) -> tuple[np.ndarray, list, helpers.Run]:
    x, y = np.arange(64, dtype=np.float32), np.full(64, -1, np.float32)
    source = f"{FUNCTIONS}__global__ void k(const float* x, float* y) {{ int t = threadIdx.x; {body} }}"
    run = helpers.compile(source).launch(1, block, (x, y), on="cpu", **options)
    return y, run.findings, run


X = np.arange(64, dtype=np.float32)


@pytest.mark.parametrize("body, expected", [
    ("y[t] = table[t & 1](x[t], 3);", np.where(np.arange(64) & 1, X * 3, X + 3)),
    ("y[t] = fixed[x[0] > 0](x[t], 3);", X * 3),
    ("if (t >= 60) return; y[t] = fixed[t / 32](x[t], 3);", np.where(X < 60, np.where(X < 32, X * 3, X + 3), -1)),
    ("Function own[2]; own[t & 1] = sum; own[1 - (t & 1)] = product; y[t] = own[(int)x[t] & 1](x[t], 3);", X + 3),
    ("__shared__ Function s[2]; if (t < 2) s[t] = table[1 - t]; __syncthreads(); y[t] = s[t / 32](x[t], 3);", np.where(X < 32, X * 3, X + 3)),
    ("More more(x[t]); Square square; Base* p = t % 3 ? (Base*)&more : (Base*)&square; y[t] = p->of(5);", np.where(np.arange(64) % 3, X + 5, 25)),
    ("y[t] = named<sum>(x[t], 1) + named<product>(x[t], 2);", 3 * X + 1),
    ("float a = x[t]; for (int i = 0; i < 3; i++) a = table[(t + i) & 1](a, 2); y[t] = a;", np.where(np.arange(64) & 1, (2 * X + 2) * 2, (X + 2) * 2 + 2)),
])  # fmt: skip
def test_a_call_through_a_pointer_is_one_of_the_function_that_it_holds(body, expected):
    y, findings, _ = results(body)
    assert findings == []
    np.testing.assert_array_equal(y, expected)


def test_arguments_are_handed_over_in_registers():
    """So native code runs functions that are called; what a function of the machine takes stays in memory."""
    source = (
        FUNCTIONS
        + """
    __global__ void k(const float* x, float* y) { int t = threadIdx.x; if (x[t] < 0) __trap(); y[t] = named<sum>(x[t], 1); }
    __global__ void said(const float* x, float* y) { y[threadIdx.x] = named<sum>(x[threadIdx.x], 1); if (x[0] > 5) printf("%f", y[0]); }
    """
    )
    for entry, native in (("k", True), ("said", False)):
        kernel = helpers.compile(source, entry=entry)
        program = load(kernel.ptx, kernel.compiled.symbol)
        own = [op for op in program.ops if op.opcode.startswith(("st.param", "ld.param")) and op.sites[0].address.base.value >= 16]
        assert bool(own) != native
        y = np.zeros(64, np.float32)
        run = kernel.launch(1, 64, (X, y), on="cpu")
        assert (run.outcome.engine == "native") == native
        np.testing.assert_array_equal(y, X + 1)


@pytest.mark.parametrize("body, said", [
    ("Function f = x[t] == 7 ? (Function)(size_t)x[0] : table[0]; y[t] = f(x[t], 1);", "calls through a pointer that is null"),
    ("y[t] = ((Function)(size_t)(x[1] * 48 + 1))(x[t], 1);", "calls through a pointer that is 0x31, which no function"),
    ("y[t] = ((float (*)(float))table[0])(x[t]);", "which no function with such parameters"),
])  # fmt: skip
def test_a_call_of_nothing_is_a_sentence(body, said):
    with pytest.raises(RunError, match=f"^line 12: .*{said}"):
        results(body)
