"""Bits of NaNs: arithmetic gives the GPU's own, everything else keeps what it was given. Facts measured on an H200."""

import numpy as np
import pytest

from helpers.sim import simulate
from helpers.toolchain.compile import compile_source

NANS = np.array([0x7FC00001, 0x7F800001, 0xFFC12345, 0xFF812345, 0x7FFFFFFF, 0x7FC00000], np.uint32)


def run(body, engine):
    source = f'extern "C" __global__ void k(const int* I, int* O, int n) {{ int i = threadIdx.x; float s = __int_as_float(I[i]); {body} }}'
    out = np.zeros(32, np.int32)
    bits = np.resize(NANS, 32).view(np.int32)
    simulate(compile_source(source, "k"), (1, 1, 1), (32, 1, 1), [bits.copy(), out, np.int32(7)], engine=engine)
    return bits, out


@pytest.mark.parametrize("engine", ["numpy", "native"])
@pytest.mark.parametrize(
    "expression", ["s + 1.5f", "s * s", "fmaf(s, 2.0f, s)", "-s * 1.0f", "sqrtf(s)", "s / 3.0f", "rintf(s)", "fabsf(s)"]
)
def test_arithmetic_gives_the_one_nan(engine, expression):
    _, out = run(f"O[i] = __float_as_int({expression});", engine)
    assert set(out.tolist()) == {0x7FFFFFFF}


@pytest.mark.parametrize("engine", ["numpy", "native"])
@pytest.mark.parametrize("body", ["O[i] = __float_as_int(s);", "O[i] = __float_as_int(i < n ? s : s);", "((float*)O)[i] = s;"])
def test_moves_keep_the_bits(engine, body):
    bits, out = run(body, engine)
    assert np.array_equal(bits, out)


@pytest.mark.parametrize("engine", ["numpy", "native"])
def test_integers_that_look_like_nans_are_integers(engine):
    bits, out = run("O[i] = i < n ? -1 : __float_as_int(s);", engine)
    assert np.array_equal(out, np.where(np.arange(32) < 7, -1, bits))
    _, out = run("O[i] = i < n ? -1 : __float_as_int(s + 1.0f);", engine)
    assert np.array_equal(out, np.where(np.arange(32) < 7, -1, 0x7FFFFFFF))


@pytest.mark.parametrize("engine", ["numpy", "native"])
@pytest.mark.parametrize("expression", ["fminf({number}, sqrtf(x))", "fmaxf(sqrtf(x), {number})"])
@pytest.mark.parametrize("number", ["(float)n", "(float)i"])  # a scalar, and one for each lane
def test_an_extreme_with_a_nan_is_the_number(engine, expression, number):
    source = f'extern "C" __global__ void k(float* O, int n, float x) {{ int i = threadIdx.x; O[i] = {expression.format(number=number)}; }}'
    out = np.zeros(32, np.float32)
    simulate(compile_source(source, "k"), (1, 1, 1), (32, 1, 1), [out, np.int32(7), np.float32(-1)], engine=engine)
    assert np.array_equal(out, np.full(32, 7) if number == "(float)n" else np.arange(32))


@pytest.mark.parametrize(
    "expression", ["x + 0.0 / 0.0", "x / (0.0 / 0.0)", "x * -(0.0 / 0.0)", "sqrt(-1.0) + x", "fma(0.1, x, x) / (0.0 / 0.0)"]
)
def test_doubles_that_the_compiler_knows_give_the_bits_of_those_that_it_does_not(expression):
    """What LLVM folds has a NaN of its own: both engines compute it instead."""
    source = f'extern "C" __global__ void k(const double* X, double* O) {{ double x = X[threadIdx.x]; O[threadIdx.x] = {expression}; }}'
    found = []
    for engine in ("numpy", "native"):
        out = np.zeros(32)
        simulate(compile_source(source, "k"), (1, 1, 1), (32, 1, 1), [np.resize([1.5, np.nan, -np.inf], 32), out], engine=engine)
        found.append(out.view(np.uint64).tolist())
    assert found[0] == found[1]


@pytest.mark.parametrize("engine", ["numpy", "native"])
@pytest.mark.parametrize(
    "expression", ["x + y", "y + x", "x - y", "x * y", "y * x", "fma(x, x, y)", "fma(x, y, x)", "fma(y, x, x)", "fma(y, y, x)"]
)
def test_a_signalling_nan_among_doubles_becomes_quiet_and_keeps_its_other_bits(engine, expression):
    """On a processor with AVX-512, LLVM takes a NaN itself for the sum or product of it and a neutral element."""
    source = (
        'extern "C" __global__ void k(const double* X, const double* Y, double* O) '
        f"{{ int i = threadIdx.x; double x = X[i], y = Y[i]; O[i] = {expression}; }}"
    )
    out = np.zeros(32)
    nans = np.resize(np.array([0x7FF78D64390EFA41, 0xFFF78D64390EFA41, 0x7FF0000000000001, 0xFFFFFFFFFFFFFFFF], np.uint64), 32)
    program = compile_source(source, "k", options=["-fmad=false"])
    simulate(program, (1, 1, 1), (32, 1, 1), [np.linspace(1, 5, 32), nans.view(np.float64), out], engine=engine)
    assert np.array_equal(out.view(np.uint64), nans | np.uint64(1 << 51))
