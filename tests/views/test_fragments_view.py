"""The fragment picture of kernels that NVRTC compiled."""

from types import SimpleNamespace

import pytest

from helpers.compiler import compile_source
from helpers.views import fragments
from helpers.views.canvas import PICTURES

MMA = """
extern "C" __global__ void k(float* C, const unsigned* A) {
    float c0 = 0, c1 = 0, c2 = 0, c3 = 0;
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3) : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "r"(A[4]), "r"(A[5]));
    C[threadIdx.x] = c0 + c1 + c2 + c3;
}"""
WMMA = """
#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void k(float* C, const half* A) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
    wmma::fill_fragment(c, 0.f);
    wmma::load_matrix_sync(a, A, 16);
    wmma::load_matrix_sync(b, A, 16);
    wmma::mma_sync(c, a, b, c);
    wmma::store_matrix_sync(C, c, 16, wmma::mem_row_major);
}"""


def run_of_source(source):
    return SimpleNamespace(kernel=SimpleNamespace(compiled=compile_source("\n" + source)))


@pytest.fixture(scope="module")
def mma():
    return run_of_source(MMA)


def test_the_chosen_lane_s_registers_are_named(mma, said):
    ax = fragments(mma, lane=5)
    assert "one warp; lane 5 holds registers: 4 for A, 2 for B, 4 for C" in said(ax)
    assert "A: 16 × 16" in said(ax) and "B: 16 × 8" in said(ax)
    places = {text.get_text(): text.get_position() for text in ax.texts}
    assert places["c0"] == (16 + 2.2 + 2 + 0.5, 16 + 2.2 + 1 + 0.5)  # C[1, 2], right of A and below B
    assert places["b1"] == (16 + 2.2 + 1 + 0.5, 11 + 0.5)  # B[11, 1], the second half of the register
    assert "Lane 5: A[1, 2], A[1, 3], A[1, 10], A[1, 11]" in ax.alt


def test_controls_offer_the_kernel_s_instructions(mma):
    instruction, lane = PICTURES["fragments"].controls(mma)
    assert [value for _, value in instruction.options] == ["m16n8k16.row.col.f32.bf16.bf16.f32"] and lane.high == 31


def test_kernels_without_a_documented_layout_are_explained(said):
    assert "hides from its users" in said(fragments(run_of_source(WMMA)))
    assert "no tensor-core instruction" in said(fragments(run_of_source('extern "C" __global__ void k(float* A) { A[0] = 1; }')))
