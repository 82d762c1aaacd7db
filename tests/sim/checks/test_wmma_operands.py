"""Loads and stores of wmma with an ldm or a pointer that is not allowed: found in either engine; what the documents allow is not."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import helpers
from helpers.sim import Collect, simulate
from helpers.sim.checks.wmma_operands import rule_of

LLVM = importlib.util.find_spec("llvmlite") is not None  # the native engine is optional

KERNEL = """#include <mma.h>
#include <cuda_fp16.h>
using namespace nvcuda;
__global__ void k(const half* A, const half* B, float* C, int lda, int ldb, int ldc, int a, int b, int c) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    wmma::load_matrix_sync(left, A + a + threadIdx.x / 32 * 16, LDM);  // 9
    wmma::load_matrix_sync(right, B + b, ldb);  // 10
    wmma::mma_sync(sum, left, right, sum);
    wmma::store_matrix_sync(C + c + threadIdx.x / 32 * 1024, sum, ldc, wmma::mem_row_major);  // 12
}"""
SHARED = """#include <mma.h>
#include <cuda_fp16.h>
using namespace nvcuda;
__global__ void k(float* C) {
    __shared__ __align__(32) half s[32 * 48];
    for (int i = threadIdx.x; i < 32 * 48; i += 32) s[i] = i % 7;
    __syncwarp();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::col_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    wmma::load_matrix_sync(left, s + FIRST, LDM);  // 12
    wmma::load_matrix_sync(right, s, 40);
    wmma::mma_sync(sum, left, right, sum);
    wmma::store_matrix_sync(C, sum, 16, wmma::mem_row_major);
}"""


def launched(ldm="lda", lda=16, ldb=16, ldc=16, a=0, b=0, c=0, engine="numpy"):
    arrays = [np.ones(2048, np.float16), np.ones(2048, np.float16), np.zeros(4096, np.float32)]
    compiled = helpers.compile(KERNEL.replace("LDM", ldm)).compiled
    return simulate(compiled, (1, 1, 1), (64, 1, 1), [*arrays, lda, ldb, ldc, a, b, c], collect=Collect(), engine=engine)


def said(**what):
    run = launched(**what)
    assert {finding.kind for finding in run.findings} == {"misaligned"}
    if LLVM:
        with pytest.raises(helpers.RunError, match="something happened that the NumPy machine must explain, at `wmma"):
            launched(**what, engine="native")
    return [(finding.line, finding.message, finding.count) for finding in run.findings]


@pytest.mark.parametrize(
    ("line", "verb", "ldm", "elements", "what"),
    [
        (9, "load", 18, 8, {"lda": 18}),
        (9, "load", 18, 8, {"ldm": "18"}),
        (10, "load", 20, 8, {"ldb": 20}),
        (12, "store", 18, 4, {"ldc": 18}),
    ],
)
def test_an_ldm_of_no_multiple_of_16_bytes(line, verb, ldm, elements, what):
    assert said(**what) == [(line, f"A wmma {verb} with ldm = {ldm}, which is not a multiple of {elements}.", 64)]
    advice = launched(**what).findings[0].advice
    assert f"The ldm of {verb}_matrix_sync must be a multiple of 16 bytes, here of {elements} elements" in advice


@pytest.mark.parametrize(("line", "verb", "what"), [(9, "load", {"a": 8}), (10, "load", {"b": 2}), (12, "store", {"c": 4})])
def test_a_pointer_of_no_multiple_of_256_bits(line, verb, what):
    ((at, message, count),) = said(**what)
    assert (at, count) == (line, 64) and message.startswith(f"A wmma {verb} at address 0x") and message.endswith("not a multiple of 32.")


def test_a_line_may_have_both_wrong():
    assert [line for line, _, _ in said(ldb=18, b=2)] == [10, 10]


@pytest.mark.parametrize("what", [{"lda": 49}, {"ldm": "49"}, {"ldb": 17}, {"b": 1}])
def test_what_the_hardware_stops_at_is_told_by_its_cause(what):
    with pytest.raises(helpers.RunError, match=r"(with ldm = (49|17), which is not a multiple of 8|at address 0x\w+02, .* 32)") as stopped:
        launched(**what)
    assert "The hardware stops here." in stopped.value.message and stopped.value.line in (9, 10)


def test_shared_memory_has_the_same_rules():
    for first, ldm, found in ((0, 44, ["with ldm = 44"]), (2, 40, ["at address"]), (16, 40, []), (8 * 40, 40, []), (0, 24, [])):
        run = helpers.compile(SHARED.replace("FIRST", str(first)).replace("LDM", str(ldm))).launch(
            1, 32, [np.zeros(256, np.float32)], on="cpu", counters=False
        )
        assert [(finding.kind, finding.line) for finding in run.findings] == [("misaligned", 12)] * len(found)
        assert all(text in finding.message for text, finding in zip(found, run.findings, strict=True))


@pytest.mark.parametrize("what", [{"lda": 24}, {"lda": 40, "ldb": 56}, {"ldc": 20}, {"a": 16, "b": 32, "c": 8}, {"ldm": "24"}])
def test_what_is_allowed_is_no_finding_and_stays_native(what):
    for engine in ("numpy", "native") if LLVM else ("numpy",):
        assert launched(**what, engine=engine).findings == []


def test_tiles_that_lie_side_by_side_break_no_rule():
    """Registers of a thread in bytes, elements of a row, bits of an element: the tile behind another begins where its rows end."""
    for registers, row, bits in (
        (32, 16, 16),
        (32, 8, 16),
        (16, 32, 16),
        (8, 16, 8),
        (4, 8, 8),
        (32, 8, 32),
        (16, 8, 16),
        (8, 4, 64),
        (4, 32, 4),
    ):
        rule = rule_of(registers, row, bits)
        assert row * bits // 8 % rule.pointer == row * bits // 8 % rule.ldm == 0 and row % rule.elements == 0
    assert rule_of(32, 16, 16) == (32, 16, 16) and rule_of(32, 8, 32) == (32, 16, 32)
