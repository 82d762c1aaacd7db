"""Of a kernel that is wrong because of the address at which shared memory begins, a check says so, and of no other."""

import re

import pytest

from helpers.course.lesson import LessonKernel
from helpers.course.steps import get
from helpers.run import gemm
from helpers.run.shared_beginning import from_zero
from helpers.toolchain.compile import compile_source

SWIZZLED = """
extern "C" __device__ constexpr int block_shape[] = {32, 32, 1}, tile_shape[] = {32, 32};
__device__ int swizzled(int i) { return i ^ (i & 0x100) >> 4; }
__device__ float at(const float* tile, int i) {
    unsigned address = __cvta_generic_to_shared(tile + i);
    float value;
    address ^= (address & 0x400) >> 4;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
    return value;
}
extern "C" __global__ void __launch_bounds__(1024) k(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C, int ldc) {
    __shared__ __align__(1024) float As[1024], Bs[1024];
    const int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 32 + y, col = blockIdx.x * 32 + x;
    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += 32) {
        As[swizzled(y * 32 + x)] = row < M && k0 + x < K ? A[(size_t)row * lda + k0 + x] : 0;
        Bs[swizzled(y * 32 + x)] = k0 + y < K && col < N ? B[(size_t)(k0 + y) * ldb + col] : 0;
        __syncthreads();
        for (int k = 0; k < 32; k++) sum += at(As, y * 32 + k) * at(Bs, k * 32 + x);
        __syncthreads();
    }
    if (row < M && col < N) {
        float& c = C[(size_t)row * ldc + col];
        c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
    }
}"""
OF_THE_ADDRESS = "address ^= (address & 0x400) >> 4;"
OF_THE_INDEX = (
    "const unsigned begins = __cvta_generic_to_shared(tile); address -= begins; address ^= (address & 0x400) >> 4; address += begins;"
)
SAID = "If a block's shared memory began at address 0, "


def remarks(edits=(), arch="sm_90"):
    source = SWIZZLED
    for old, new in edits:
        assert old in source
        source = source.replace(old, new)
    report = gemm.check(LessonKernel(compile_source(source, arch=arch)), on="cpu", seed=1)
    return report, [remark for remark in report.remarks if remark.startswith(SAID)]


def test_a_swizzle_of_an_index_here_and_of_an_address_there_is_told():
    report, (said,) = remarks()
    assert not report.correct and (None, said) in report.lines()
    assert said.startswith(f"{SAID}64 × 64 × 128 would be right: it was tried. On sm_90, as on the hardware, it begins at address 0x400,")
    assert said.endswith("Swizzle the index in both, or the address less that of the array.")


@pytest.mark.parametrize(
    ("edits", "arch", "correct"),
    [
        ([], "sm_80", True),  # there it begins at 0
        ([(OF_THE_ADDRESS, OF_THE_INDEX)], "sm_90", True),
        ([("sum += at", "sum -= at")], "sm_90", False),  # wrong at either
        ([(OF_THE_ADDRESS, OF_THE_INDEX), ("k < 32; k++", "k < 31; k++")], "sm_90", False),  # and without a swizzle that differs
        ([(OF_THE_ADDRESS, OF_THE_INDEX), ("row < M && k0 + x < K ?", "row < M ?")], "sm_90", False),  # right for some shapes
    ],
)
def test_of_others_nothing_is_said(edits, arch, correct):
    report, said = remarks(edits, arch)
    assert report.correct == correct and said == []


def test_only_what_has_shared_memory_that_begins_elsewhere_is_tried():
    for slug, arch, moves in (("naive", "sm_90", False), ("shared_tile", "sm_90", True), ("shared_tile", "sm_80", False)):
        step = get(slug)
        moved = from_zero(gemm.Kernel(compile_source(step.kernel_source(), entry=step.entry, arch=arch)))
        assert (moved is not None) == moves
        assert moved is None or re.search(r"\.target\s+sm_80\b", moved.ptx)
