"""The fragment picture of kernels that NVRTC compiled."""

from types import SimpleNamespace

import pytest

from helpers.toolchain.compile import compile_source
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
    assert "one warp; registers of lane 5: 4 for A, 2 for B, 4 for C" in said(ax)
    assert "A: 16 × 16" in said(ax) and "B: 16 × 8" in said(ax)
    places = {text.get_text(): text.get_position() for text in ax.texts}
    assert places["c0"] == (16 + 2.2 + 2 + 0.5, 16 + 2.2 + 1 + 0.5)  # C[1, 2], right of A and below B
    assert places["b1"] == (16 + 2.2 + 1 + 0.5, 11 + 0.5)  # B[11, 1], the second half of the register
    assert "Lane 5: A[1, 2], A[1, 3], A[1, 10], A[1, 11]" in ax.alt


def test_each_element_bears_the_number_of_its_lane(mma):
    numbers = [text.get_text() for text in fragments(mma, lane=5).texts]
    assert numbers.count("7") == 8 + 4 + 4  # of A, B and C: both halves of a register


def test_controls_offer_the_kernel_s_instructions(mma):
    instruction, lane = PICTURES["fragments"].controls(mma)
    assert [value for _, value in instruction.options] == ["m16n8k16.row.col.f32.bf16.bf16.f32"] and lane.high == 31


def test_wmma_is_shown_as_the_compiler_lays_it_out(said):
    run = run_of_source(WMMA)
    ax = fragments(run, lane=5)
    assert "A: 16 × 16" in said(ax) and "C: 16 × 16" in said(ax) and "CUDA promises nothing" in ax.alt
    assert "4 for A, 4 for B, 8 for C" in said(ax)
    texts = [text.get_text() for text in ax.texts]
    assert texts.count("c7") == 1 and texts.count("b3") == 2  # two halves share a register


MOVE = """
extern "C" __global__ void k(unsigned* C) {
    __shared__ __align__(16) unsigned short s[32][8];
    s[threadIdx.x][0] = threadIdx.x;
    unsigned a, b, at = (unsigned)__cvta_generic_to_shared(&s[threadIdx.x % 16][0]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x2TRANS.shared.b16 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(at));
    C[threadIdx.x] = a + b;
}"""


@pytest.mark.parametrize("trans, elements", [("", "[1, 2] and [1, 3]"), (".trans", "[2, 1] and [3, 1]")])
def test_ldmatrix_says_who_gives_a_row_and_who_gets_what(trans, elements, said):
    run = run_of_source(MOVE.replace("TRANS", trans))
    assert [value for _, value in PICTURES["fragments"].controls(run)[0].options] == [f"ldmatrix.x2{trans}"]
    ax = fragments(run, lane=5)
    assert f"register 0 {elements} of matrix 0; register 1 {elements} of matrix 1" in ax.alt
    assert "lane 5 gives the address of row 5 of matrix 0" in said(ax)
    assert "gives the address of no row" in fragments(run, lane=20).alt


WGMMA = """
extern "C" __global__ void __launch_bounds__(128) k(float* C, unsigned long long A, unsigned long long B) {
    float c[4] = {};
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, FIRST, %5, 1, 1, 1TURN;"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "l"(A), "l"(B), "r"(0));
    C[threadIdx.x] = c[0] + c[1] + c[2] + c[3];
}"""


@pytest.mark.parametrize(
    "first, turn, words",
    [("%4", ", 0, 0", "A and B are read from shared memory"), ("{%6,%6,%6,%6}", ", 0", "B is read from\nshared memory")],
)
def test_wgmma_reads_from_shared_memory_what_it_does_not_hold(first, turn, words, said):
    compiled = compile_source("\n" + WGMMA.replace("FIRST", first).replace("TURN", turn), arch="sm_90a")
    ax = fragments(SimpleNamespace(kernel=SimpleNamespace(compiled=compiled)), lane=31)
    assert words in said(ax) and ("A: 16 × 16" in said(ax)) == words.startswith("B")
    assert "the first of 4 warps, each with 16 of the 64 rows" in said(ax) and "C: 16 × 8" in said(ax) and "4 for C" in said(ax)


def test_a_kernel_without_tensor_cores_is_explained(said):
    assert "no tensor-core instruction" in said(fragments(run_of_source('extern "C" __global__ void k(float* A) { A[0] = 1; }')))
