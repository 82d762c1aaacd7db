"""Every instruction's examples and forms, and the CUDA kernels of tests/sim/test_cuda.py, in both places.

Each case runs on the GPU from the PTX and the values that the machine runs; results are compared bit for bit, except
that any NaN equals any other, as PTX leaves open which one is produced. Approximations are compared within their
documented error. With $GEMM_LADDER_ISA_RECORD set to a file, what helpers/data/isa_h200.json holds is written there.
"""

from __future__ import annotations

import datetime
import functools
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.errors import CourseError
from helpers.run import gpu
from helpers.run.gpu import failures
from tests.sim import isa_cases as cases
from tests.sim import test_cuda

PER_MODULE = 100


def load(ptx: str):
    from cupy.cuda.function import Module

    module = Module()
    module.load(ptx.encode() + b"\0")
    return module


@functools.cache
def on_gpu(first: int) -> list[np.ndarray | str]:
    """Results of cases [first, first + PER_MODULE) of ALL; a sentence where the driver refuses the PTX."""
    part = ALL[first : first + PER_MODULE]
    try:
        modules = [load(cases.module(part))]
        functions = [modules[0].get_function(f"e{i}") for i in range(len(part))]
    except failures.cuda_errors():  # one of them is refused: which?
        modules, functions = [], []
        for case in part:
            try:
                modules.append(load(cases.module([case])))
                functions.append(modules[-1].get_function("e0"))
            except failures.cuda_errors() as error:
                functions.append(f"refused by the driver: {error}")
    pairs = zip(functions, part, strict=True)
    return [function if isinstance(function, str) else launch(function, case) for function, case in pairs]


def launch(function, case) -> np.ndarray:
    import cupy

    out = cases.room(case)
    there = [cupy.asarray(array) for array in (out, *cases.columns(case))]
    function((len(out) // cases.THREADS, 1, 1), (cases.THREADS, 1, 1), tuple(there))
    return there[0].get()


# --- approximations -------------------------------------------------------------------------------------------------

# opcode, values, "relative" or "absolute", the largest difference that NVIDIA's PTX ISA documents from the exact value
_WIDE = tuple((float(x),) for x in np.exp2(np.linspace(-125, 125, 1500)) * np.linspace(1, 2, 1500, endpoint=False))
_TURN = tuple((float(x),) for x in np.linspace(-2 * np.pi, 2 * np.pi, 2000))
_PAIRS = tuple((float(x), float(y)) for x, y in np.random.default_rng(1).uniform(-9, 9, (2000, 2)))
_UNIT = tuple((float(x),) for x in np.linspace(-1, 1, 2001) if x)
_EXPONENTS = tuple((float(x),) for x in np.linspace(-125, 127, 2001))
_HALVES = tuple((float(np.float16(x)),) for x in np.linspace(-14, 15, 1501))
APPROXIMATIONS = (
    ("rcp.approx.f32", _WIDE, "relative", 2.0**-23), ("rcp.approx.ftz.f32", _WIDE, "relative", 2.0**-23),
    ("sqrt.approx.f32", _WIDE, "relative", 2.0**-23), ("rsqrt.approx.f32", _WIDE, "relative", 2.0**-22.9),
    ("div.approx.f32", _PAIRS, "relative", 2.0**-22), ("div.full.f32", _PAIRS, "relative", 2.0**-22),
    ("sin.approx.f32", _TURN, "absolute", 2.0**-20.5), ("cos.approx.f32", _TURN, "absolute", 2.0**-20.5),
    ("lg2.approx.f32", tuple((0.5 + i / 1000,) for i in range(1501)), "absolute", 2.0**-22),
    ("lg2.approx.f32", _WIDE[:700] + _WIDE[800:], "relative", 2.0**-22),
    ("ex2.approx.f32", _EXPONENTS, "relative", 2.0**-22), ("ex2.approx.ftz.f32", _EXPONENTS, "relative", 2.0**-22),
    ("tanh.approx.f32", _UNIT, "relative", 2.0**-11),
    ("ex2.approx.f16", _HALVES, "relative", 2.0**-9.9), ("tanh.approx.f16", _HALVES, "absolute", 2.0**-10.987),
    ("ex2.approx.ftz.bf16", _UNIT, "relative", 2.0**-7), ("tanh.approx.bf16", _UNIT, "absolute", 2.0**-8),
    ("rcp.approx.ftz.f64", _WIDE, "relative", 2.0**-20), ("rsqrt.approx.f64", _WIDE, "relative", 2.0**-20),
)  # fmt: skip
APPROXIMATE = tuple(
    replace(cases.form(op, " ".join([op.rsplit(".", 1)[1]] * len(values[0]))), values=values) for op, values, _, _ in APPROXIMATIONS
)

ALL = (*cases.CASES, *APPROXIMATE)


def result_on_gpu(index: int) -> np.ndarray | str:
    return on_gpu(index // PER_MODULE * PER_MODULE)[index % PER_MODULE]


@pytest.fixture(scope="module")
def record():
    """What was seen; written at the end if somebody asks for it."""
    made = {part: {} for part in ("results", "differences", "payloads", "approximations", "not run")}
    made |= {"kernels": [], "kernels not run": NOT_RUN}
    yield made
    place = os.environ.get("GEMM_LADDER_ISA_RECORD")
    if place:
        device = gpu.device()
        head = {"device": device.name, "driver": device.driver, "cuda": device.cuda}
        head["date"] = datetime.date.today().isoformat()
        Path(place).write_text(json.dumps({**head, **made}, indent=1) + "\n")


def rows(case, there, here, limit=12):
    """The first sources and results that differ, as bit patterns."""
    where = np.flatnonzero(there != here)
    arrays = (*cases.columns(case), there, here)
    return [len(where), [[hex(array[i]) for array in arrays] for i in where[:limit]]]


@pytest.mark.parametrize("index", range(len(cases.CASES)), ids=cases.NAMES)
def test_the_gpu_gives_the_same_bits(index, record):
    case = cases.CASES[index]
    there = result_on_gpu(index)
    if isinstance(there, str):
        record["not run"][cases.key(case)] = there
        pytest.fail(there)
    plain = cases.without_payloads(case, there)
    record["results"][cases.key(case)] = [cases.digest(*cases.columns(case)), cases.digest(plain)]
    try:
        here = cases.machine(case)
    except CourseError as error:
        record["differences"][cases.key(case)] = str(error)
        raise
    same = cases.without_payloads(case, here)
    if not np.array_equal(there, here) and np.array_equal(plain, same):
        record["payloads"][cases.key(case)] = rows(case, there, here, 6)
    if not np.array_equal(plain, same):
        record["differences"][cases.key(case)] = rows(case, plain, same)
        pytest.fail(f"{case.opcode}: sources, GPU, machine: {rows(case, plain, same, 4)}")


def numbers(patterns, kind):
    if kind == "bf16":
        return (patterns.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return patterns.view({"f16": np.float16, "f32": np.float32, "f64": np.float64}[kind]).astype(np.float64)


@pytest.mark.parametrize("index", range(len(APPROXIMATE)), ids=[case.opcode for case in APPROXIMATE])
def test_approximations_stay_within_the_documented_error(index, record):
    """The machine gives the correctly rounded value, so half a unit in the last place comes on top."""
    case, (opcode, values, how, bound) = APPROXIMATE[index], APPROXIMATIONS[index]
    there = result_on_gpu(len(cases.CASES) + index)
    assert not isinstance(there, str), there
    kind = case.result
    got, exact = numbers(there, kind), numbers(cases.machine(case), kind)
    error = np.abs(got - exact)
    if how == "relative":
        error = error / np.maximum(np.abs(exact), 2.0**-126)
    error = error[np.isfinite(exact)]
    unit = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "f64": 2.0**-53}[kind]
    worst = float(error.max())
    seen = record["approximations"].setdefault(opcode, {})
    seen[how] = {"largest": worst, "documented": bound, "allowed": bound + unit, "values": len(values)}
    assert worst <= bound + unit
    assert np.array_equal(np.isfinite(got), np.isfinite(exact))


# --- kernels --------------------------------------------------------------------------------------------------------

NOT_RUN = {
    "sm_100 and later": "the driver cannot compile PTX of a newer architecture for an H200",
    "kernels with a planted error": "undefined on the hardware (missing waits), or it ends the context (trap)",
    "recursion": "the machine refuses it",
    "isspacep, clocks, special registers, nanosleep, prefetch": "no value that both places share",
    "wmma, mma, ldmatrix, stmatrix, movmatrix": "run in tests/gpu/test_tensor_cores.py",
}  # fmt: skip

# test function, its parameters, whether the order of threads cannot change the result
KERNELS = (
    *((test_cuda.test_shuffles, {"arch": arch}, True) for arch in ("sm_75",)),
    (test_cuda.test_votes_matches_and_reductions, {}, True), (test_cuda.test_partial_warp_and_reduction_tree, {}, True),
    (test_cuda.test_atomics, {}, False), (test_cuda.test_half_atomics, {}, True),
    (test_cuda.test_lock_and_flag_between_blocks, {}, True),
    *((test_cuda.test_spaces_and_calls, {"arch": arch}, True) for arch in ("sm_75", "sm_90")),
    (test_cuda.test_switch_with_a_jump_table, {}, True),
    (test_cuda.test_named_barriers_with_producers_and_consumers, {}, True),
    (test_cuda.test_asynchronous_copies_land_when_waited_for,
     {"wait": "__pipeline_wait_prior(1);", "barrier": "__syncthreads();", "kinds": []}, True),
    *((test_cuda.test_cooperative_groups, {"arch": arch}, True) for arch in ("sm_75", "sm_80", "sm_90")),
    *((test_cuda.test_pipeline_and_barrier_headers, {"arch": arch, "source": source}, True)
      for arch in ("sm_75", "sm_80", "sm_90") for source in (test_cuda.PIPELINE, test_cuda.BARRIER)),
    (test_cuda.test_grid_of_blocks_that_wait_for_each_other, {}, True), (test_cuda.test_half2_arithmetic, {}, True),
    (test_cuda.test_flush_to_zero_flag, {}, True), (test_cuda.test_addresses_as_inline_assembly_writes_them, {}, True),
)  # fmt: skip


def launch_ptx(compiled, grid, block, args, shared):
    """Run PTX through the driver's compiler, also that of older architectures; arrays change in place."""
    import cupy

    function = load(compiled.ptx).get_function(compiled.symbol)
    there = []
    for value in args:
        if isinstance(value, np.ndarray):
            there.append(cupy.asarray(value))
        elif isinstance(value, bytes):  # a structure by value
            there.append(np.frombuffer(value, np.uint8).copy().view(np.dtype((np.void, len(value))))[0])
        else:
            there.append(np.int32(value))
    function(grid, block, tuple(there), shared)
    cupy.cuda.Device().synchronize()
    for value, array in zip(args, there, strict=True):
        if isinstance(value, np.ndarray):
            value[...] = array.get()


NAMES = [f"{i}-{function.__name__}" for i, (function, _, _) in enumerate(KERNELS)]


@pytest.mark.parametrize(("function", "parameters", "exact"), KERNELS, ids=NAMES)
def test_kernels_give_the_same_bits(function, parameters, exact, monkeypatch, record):
    """Runs the machine's test with the GPU's results in the place of the machine's, after comparing the two."""
    original, compared = test_cuda.run, []

    def run(source, grid, block, args, arch="sm_90", options=(), shared=0, **more):
        here = [value.copy() if isinstance(value, np.ndarray) else value for value in args]
        outcome = original(source, grid, block, here, arch, options, shared=shared, **more)
        compiled = test_cuda.compile_source(source, None, arch, options)
        launch_ptx(compiled, (grid, 1, 1), (block, 1, 1), args, shared)
        same = all(a.tobytes() == b.tobytes() for a, b in zip(here, args, strict=True) if isinstance(a, np.ndarray))
        compared.append(same)
        assert same or not exact
        return outcome

    monkeypatch.setattr(test_cuda, "run", run)
    function(**parameters)
    assert compared
    record["kernels"].append(f"{function.__name__} {parameters.get('arch', '')}".strip())


PRINTING = r"""
extern "C" __global__ void f(int n) {
    if (threadIdx.x < n)
        printf("thread %d of %u: %5.2f|%-4s|%c %llx %e %+.3g %i%%\n", threadIdx.x, blockDim.x, threadIdx.x * -0.5, "ab",
               'z', 1ull << 40, 1.0 / 3, 1e10, -7);
}"""


def test_printf_prints_the_same(capfd, record):
    outcome = test_cuda.run(PRINTING, 1, 32, [3])
    capfd.readouterr()
    launch_ptx(test_cuda.compile_source(PRINTING, None, "sm_90", ()), (1, 1, 1), (32, 1, 1), [3], 0)
    printed = capfd.readouterr().out
    record["printf"] = [printed, outcome.printed]
    assert printed == outcome.printed and printed.count("\n") == 3
