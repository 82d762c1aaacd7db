"""What is told of a product without running all of it: how it loads, and what it counts where a block's threads take no part.

Tests of: helpers.run.product_runs
"""

import numpy as np
import pytest

import helpers
from helpers.run import gemm, product_runs
from helpers.run.gemm import Problem


@pytest.mark.parametrize("slug", ["coalesced", "vectorized"])
@pytest.mark.parametrize("m", [2304, 2305])
def test_how_a_kernel_loads_is_told_by_a_product_of_fewer_rows(slug, m, monkeypatch):
    """Whole matrices would have to be made: half of a second at 4096."""
    run = gemm.count(helpers.reference(slug), Problem(m, 96, 200))
    few = run.first_tiles()
    monkeypatch.setattr(product_runs, "_LOW", m)
    whole = run.first_tiles()
    assert len(few.accesses) == len(whole.accesses) > 0
    assert np.array_equal(few.addresses % 128, whole.addresses % 128)


ONE_PRODUCES = """
extern "C" __device__ constexpr int block_shape[] = {288, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {32, 32};
__device__ void wait(int number) { asm volatile("bar.sync %0, 288;" :: "r"(number) : "memory"); }
__device__ void come(int number) { asm volatile("bar.arrive %0, 288;" :: "r"(number) : "memory"); }
extern "C" __global__ void one_produces(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta,
                                        float* C, int ldc) {
    __shared__ float As[2][32][33], Bs[2][32][33];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = 32 * blockIdx.y, column = 32 * blockIdx.x, steps = (K + 31) / 32;
    if (warp == 8) {
        for (int s = 0; s < steps; s++) {
            const int b = s % 2;
            if (s >= 2) wait(3 + b);
            for (int r = 0; r < 32; r++) {
                As[b][r][lane] = row + r < M && 32 * s + lane < K ? A[size_t(row + r) * lda + 32 * s + lane] : 0;
                Bs[b][r][lane] = 32 * s + r < K && column + lane < N ? B[size_t(32 * s + r) * ldb + column + lane] : 0;
            }
            come(1 + b);
        }
    } else {
        float sum[4] = {};
        for (int s = 0; s < steps; s++) {
            const int b = s % 2;
            wait(1 + b);
            for (int k = 0; k < 32; k++)
                for (int i = 0; i < 4; i++) sum[i] += As[b][warp + 8 * i][k] * Bs[b][k][lane];
            if (s + 2 < steps) come(3 + b);
        }
        for (int i = 0; i < 4; i++)
            if (row + warp + 8 * i < M && column + lane < N) {
                float& c = C[size_t(row + warp + 8 * i) * ldc + column + lane];
                c = beta == 0 ? alpha * sum[i] : alpha * sum[i] + beta * c;
            }
    }
}"""


@pytest.mark.parametrize("shape", [(65, 64, 128), (129, 65, 128), (333, 217, 129)])
def test_accesses_that_no_thread_of_a_block_takes_part_in_are_counted_as_that(shape):
    """In the last row of blocks all but one row of A lie outside: in a loop that was an IndexError."""
    kernel = helpers.compile(ONE_PRODUCES)
    counted, whole = gemm.count(kernel, Problem(*shape)), gemm.run(kernel, Problem(*shape), on="cpu", findings=False)
    found = {name: value for name, value in whole.counters.items() if name in counted.counters}
    assert found == counted.counters and len(found) > 10
    assert not counted.predict("H200 SXM").from_counters
