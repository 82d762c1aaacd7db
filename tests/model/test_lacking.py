"""helpers.model.lacking: a launch that multiplies less than its product needs is told as that, and no other is."""

from __future__ import annotations

import numpy as np
import pytest

import helpers
from helpers.course.lesson import LessonKernel
from helpers.model.lacking import lacking
from helpers.run import gemm

SIGNATURE = "(int M, int N, int K, float alpha, const T* A, int lda, const T* B, int ldb, float beta, float* C, int ldc)"
PLAIN = f"""
#include <cuda_fp16.h>
using T = float;
extern "C" __device__ constexpr int block_shape[] = {{16, 16, 1}};
extern "C" __device__ constexpr int tile_shape[] = {{16, 16}};
extern "C" __global__ void mine{SIGNATURE} {{
    const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    if (row >= M || col >= N) return;
    float sum = 0;
    for (int k = 0; k < K; k++) sum += A[size_t(row) * lda + k] * B[size_t(k) * ldb + col];
    float& c = C[size_t(row) * ldc + col];
    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
}}
"""
PRODUCT = "A[size_t(row) * lda + k] * B[size_t(k) * ldb + col]"
HALF = (("T = float", "T = __half"), (PRODUCT, PRODUCT.replace("A[", "__half2float(A[").replace("] * ", "]) * __half2float(") + ")"))
PAIRS = (
    ("T = float", "T = __half"),
    ("float sum = 0;\n    for", "float sum = 0;\n    __half2 two = __float2half2_rn(0);\n    for"),
    ("k++) sum += " + PRODUCT, "k += 2) two = __hfma2(*(const __half2*)&A[size_t(row) * lda + k],"
     " __halves2half2(B[size_t(k) * ldb + col], B[size_t(k + 1) * ldb + col]), two)"),
    ("    float& c", "    sum = __low2float(two) + __high2float(two);\n    float& c"),
)  # fmt: skip
LESS = {
    "half of each tile": (("tile_shape[] = {16, 16}", "tile_shape[] = {32, 16}"),),
    "half of K": (("k < K", "k < K / 2"),),
    "nothing": ((PRODUCT, "1"),),
    "half of the blocks": (("row >= M ||", "blockIdx.x % 2 || row >= M ||"),),
}
ENOUGH = {
    "as it is": (),
    "multiplied, then added": ((f"sum += {PRODUCT}", f"sum = __fadd_rn(sum, __fmul_rn({PRODUCT.replace(' * B', ', B')}))"),),
    "double": (("float sum", "double sum"), (f"sum += {PRODUCT}", f"sum += double({PRODUCT.replace('* B', ') * double(B')})")),
    "half": HALF,
    "pairs": PAIRS,
}


def edited(edits) -> LessonKernel:
    source = PLAIN
    for old, new in edits:
        assert old in source, old
        source = source.replace(old, new)
    return LessonKernel(helpers.compile(source).compiled)


@pytest.mark.parametrize("name", [name for name in LESS if name != "half of the blocks"])
def test_less_than_a_product_is_told_beside_the_time(name):
    profile = edited(LESS[name]).profile(512)
    (said,) = [sentence for sentence in profile.sentences() if "multiply-adds" in sentence]
    assert f"of the {512**3:,} multiply-adds" in said and "it is no product, or part of C is left out" in said
    assert said in str(profile.run.predict()) and said in str(profile)


def test_blocks_that_do_nothing_are_told_where_all_were_counted():
    assert lacking(edited(LESS["half of the blocks"]).gemm(64, on="cpu"))


@pytest.mark.parametrize("name", ENOUGH)
@pytest.mark.parametrize("size", [(512, 512, 512), (100, 70, 90)])
def test_a_product_is_one_by_whatever_it_multiplies(name, size):
    kernel = edited(ENOUGH[name])
    assert lacking(gemm.count(kernel, gemm.problem_for(kernel, *size))) == ""


@pytest.mark.parametrize("slug", ["shared_tile", "autotune", "wmma", "fp32_on_tensor_cores", "fp8"])
def test_no_step_lacks_anything(slug):
    kernel = helpers.reference(slug)
    assert lacking(gemm.count(kernel, gemm.problem_for(kernel, 256, 256, 256))) == ""


def test_what_is_no_product_lacks_nothing():
    kernel = helpers.compile("__global__ void set(float* x) { x[threadIdx.x] = 1; }")
    assert lacking(kernel.launch(1, 32, [np.zeros(32, np.float32)], on="cpu")) == ""
