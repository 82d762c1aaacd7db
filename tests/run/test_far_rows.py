"""Matrices larger than any memory, of which few elements are touched."""

from __future__ import annotations

import re

import numpy as np
import pytest

import helpers
from helpers.course import steps
from helpers.run import gemm
from helpers.run.far_rows import far_apart, spread
from helpers.sim.machine import memory


def of_step(slug: str, *edits: tuple[str, str]):
    source = steps.get(slug).kernel_source()
    for old, new in edits:
        source, made = re.subn(old, new, source)
        assert made, old
    return helpers.compile(source, entry=steps.get(slug).entry, arch=steps.get(slug).target())


@pytest.mark.parametrize(
    "slug",
    [
        "naive",
        "vectorized",
        "schedule",
        "autotune",
        "fused_epilogue",
        "wmma",
        "tma_wgmma",
        "warp_specialized",
        "fp32_on_tensor_cores",
        "fp8",
    ],
)
def test_the_courses_kernels_reach_rows_that_are_far_apart(slug):
    assert gemm._of_far_rows(of_step(slug), 1) == ""


@pytest.mark.parametrize(("slug", "edit", "said"), [
    ("vectorized", (r"\(size_t\)r \* lda", "r * lda"), r"^A is too large .* where lda is 63,\d{3},\d{3}\. Smaller .* line 37: .* overflowed"),
    ("vectorized", (r"\(size_t\)k \* ldb", "k * ldb"), r"^B is too large .* where ldb is .* line 37: .* overflowed"),
    ("vectorized", (r"\(size_t\)r \* ldc", "r * ldc"), r"^C is too large .* where ldc is .* overflowed"),
    ("vectorized", (r"\(size_t\)r \* lda", "unsigned(r) * lda"), r"^A is too large .* elements of C are wrong.* Multiply the number of a row by lda"),
    ("shared_tile", (r"A \+ size_t\(min\(row, M - 1\)\) \* lda \+ tx", "A + int(blockIdx.y * BM) * lda + size_t(min(row, M - 1) - int(blockIdx.y * BM)) * lda + tx"),
     r"^A is too large .* where lda is .* overflowed"),
    ("shared_tile", (r"A \+ size_t\(min\(row, M - 1\)\) \* lda \+ tx", "A + blockIdx.y * BM * lda + size_t(min(row, M - 1) - int(blockIdx.y * BM)) * lda + tx"),
     r"^A is too large .* where lda is .* elements of C are wrong"),
    ("schedule", (r"near = max\(.*?;", "near = true;"), r"^A is too large .* elements of C are wrong"),
    ("schedule", (r"\(size_t\)blockIdx", "blockIdx"), r"^The A of a second product .* wrong.* Multiply blockIdx.z by the rows of a matrix and by lda"),
    ("fused_epilogue", (r"A \+= \(size_t\)blockIdx", "A += (int)blockIdx"), r"^The A of a second product .* where lda is 16,\d{3},\d{3}\."),
    ("fused_epilogue", (r"B \+= \(size_t\)blockIdx", "B += (int)blockIdx"), r"^The B of a second product .* where ldb is "),
    ("tma_wgmma", (r"&C\[\(size_t\)r \* ldc", "&C[r * ldc"), r"^C is too large .* where ldc is 63,\d{3},\d{3}\. Smaller .* overflowed"),
    ("warp_specialized", (r"&C\[\(size_t\)r \* ldc", "&C[r * ldc"), r"^C is too large .* where ldc is 32,\d{3},\d{3}\. Smaller .* overflowed"),
    ("fp8", (r"&C\[\(size_t\)r \* ldc", "&C[r * ldc"), r"^C is too large .* where ldc is .* overflowed"),
    ("fp32_on_tensor_cores", (r"&C\[\(size_t\)r \* ldc", "&C[r * ldc"), r"^C is too large .* where ldc is .* overflowed"),
    ("fused_epilogue", (r"C \+= \(size_t\)blockIdx", "C += (int)blockIdx"), r"^The C of a second product .* where ldc is "),
])  # fmt: skip
def test_an_index_of_32_bits_is_told(slug, edit, said):
    assert re.search(said, gemm._of_far_rows(of_step(slug, edit), 1))


def test_a_kernel_that_computes_no_batch_is_told_nothing_of_a_second_product():
    source = steps.get("coalesced").kernel_source() + '\nextern "C" __device__ constexpr int grid_depth[] = {4};'
    source = source.replace("const size_t row", "if (blockIdx.z) return;\n    const size_t row")
    kernel = helpers.compile(source, entry="coalesced")
    assert gemm._of_far_rows(kernel, 1) == ""
    assert "computes one product" in str(gemm.check(kernel, on="cpu", seed=1))


def test_a_check_remarks_it_and_takes_the_kernel():
    report = gemm.check(of_step("coalesced", ("size_t row =", "int row ="), ("size_t col", "int col")), on="cpu", seed=1)
    assert report.passed and re.search(
        r"· A is too large for an index of 32 bits where lda is [\d,]+\. Smaller matrices are right\. line \d+", str(report)
    )


def test_only_what_is_touched_is_spread_and_copied():
    kernel = of_step("coalesced")
    for name, near, far in far_apart(kernel, None, 1):
        small = near.arrays()
        arrays = spread(far, small)
        assert [isinstance(one, memory.FarRows) and one.size > 1 << 32 for one in arrays] == [which in name for which in "ABC"]
        assert all(np.array_equal(wide[:, : one.shape[1]], one) for wide, one in zip(arrays, small, strict=True))


def test_c_alone_is_spread_where_a_and_b_are_not_read_where_they_are():
    for slug, odd in (("tma_wgmma", 0), ("warp_specialized", 1), ("fp8", 1), ("fp32_on_tensor_cores", 0)):
        ((name, near, far),) = far_apart(of_step(slug), 64, 1)
        assert name == "C" and far.ldc * (far.m - 1) > 1 << 32 and (far.lda, far.ldb) == (near.lda, near.ldb)
        assert far.ldc % 2 == odd, "a C with a map has rows that TMA cannot take"


WALKING = """extern "C" __device__ constexpr int block_shape[] = {16, 16, 1};
extern "C" __device__ constexpr int tile_shape[] = {16, 16};
extern "C" __device__ constexpr int persistent[] = {2};
extern "C" __global__ void walking(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C, int ldc) {
    const int across = (N + 15) / 16, tiles = across * ((M + 15) / 16);
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int row = tile / across * 16 + threadIdx.y, col = tile % across * 16 + threadIdx.x;
        if (row >= M || col >= N) continue;
        float sum = 0;
        for (int k = 0; k < K; k++) sum += A[size_t(row) * lda + k] * B[size_t(k) * ldb + col];
        float& c = C[size_t(row) * ldc + col];
        c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
    }
}
"""


@pytest.mark.parametrize("letter", ["", "a", "c"])
def test_who_walks_the_tiles_is_asked(letter):
    source = WALKING.replace(f"size_t(row) * ld{letter}", f"row * ld{letter}") if letter else WALKING
    said = gemm._of_far_rows(helpers.compile(source), 1)
    assert said.startswith(f"{letter.upper()} is too large for an index of 32 bits where ld{letter} is ") if letter else said == ""


def test_no_room_is_no_finding(monkeypatch):
    def none(*_):
        raise MemoryError

    monkeypatch.setattr("helpers.run.far_rows.far_rows", none)
    assert gemm._of_far_rows(of_step("vectorized", (r"\(size_t\)r \* lda", "r * lda")), 1) == ""
