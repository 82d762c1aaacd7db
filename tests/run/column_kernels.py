"""GEMM kernels that take B (or A) by columns, as most in public do: on CUDA cores, by mma.sync, by TMA and wgmma."""

from __future__ import annotations

from helpers.course import steps

# One element per thread. OF_A, OF_B, OF_C: ROW or COLUMN.
PLAIN = """
extern "C" __device__ constexpr int block_shape[] = {32, 8, 1};
extern "C" __device__ constexpr int tile_shape[] = {32, 8};
#define ROW(i, j, ld) ((i) * (ld) + (j))
#define COLUMN(i, j, ld) ((j) * (ld) + (i))
extern "C" __global__ void plain(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb,
                                 float beta, float* C, int ldc) {
    const int i = blockIdx.y * 32 + threadIdx.x, j = blockIdx.x * 8 + threadIdx.y;
    if (i >= M || j >= N) return;
    float sum = 0;
    for (int k = 0; k < K; k++) sum += A[OF_A(i, k, lda)] * B[OF_B(k, j, ldb)];
    C[OF_C(i, j, ldc)] = beta == 0 ? alpha * sum : alpha * sum + beta * C[OF_C(i, j, ldc)];
}
"""

# Tiles in shared memory; where columns begin at multiples of 16 bytes, four k of one at a time.
TILED = """
constexpr int T = 32;
extern "C" __device__ constexpr int block_shape[] = {T, 8, 1};
extern "C" __device__ constexpr int tile_shape[] = {T, T};
extern "C" __global__ void tiled(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb,
                                 float beta, float* C, int ldc) {
    __shared__ float As[T][T + 1], Bs[T][T + 1];  // [m][k] and [n][k]
    const int t = threadIdx.y * T + threadIdx.x, line = t / 8, four = t % 8 * 4;
    const int row0 = blockIdx.y * T, col0 = blockIdx.x * T;
    auto fetch = [&](float (&to)[T][T + 1], const float* from, int ld, int first, int lines, int k0) {
        const float* at = from + (size_t)(first + line) * ld + k0 + four;
        const int left = first + line < lines ? K - k0 - four : 0;
        if (((size_t)from % 16 | ld % 4) == 0 && left >= 4) {
            const float4 v = *reinterpret_cast<const float4*>(at);
            to[line][four] = v.x, to[line][four + 1] = v.y, to[line][four + 2] = v.z, to[line][four + 3] = v.w;
        } else
            for (int q = 0; q < 4; q++) to[line][four + q] = q < left ? at[q] : 0.0f;
    };
    float sum[4] = {};
    for (int k0 = 0; k0 < K; k0 += T) {
        fetch(As, A, lda, row0, M, k0);
        fetch(Bs, B, ldb, col0, N, k0);
        __syncthreads();
        for (int k = 0; k < T; k++)
            for (int i = 0; i < 4; i++) sum[i] += As[threadIdx.y + 8 * i][k] * Bs[threadIdx.x][k];
        __syncthreads();
    }
    for (int i = 0; i < 4; i++) {
        const int r = row0 + threadIdx.y + 8 * i, c = col0 + threadIdx.x;
        if (r < M && c < N) C[(size_t)r * ldc + c] = beta == 0 ? alpha * sum[i] : alpha * sum[i] + beta * C[(size_t)r * ldc + c];
    }
}
"""

# A warp multiplies 16 x 16 of C: ldmatrix without .trans for both, since both tiles are [line][k].
MMA = """
#include <cuda_bf16.h>
using Element = __nv_bfloat16;
constexpr int T = 16, BK = 32, SKEW = 8;
extern "C" __device__ constexpr int block_shape[] = {32, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {T, T};
__device__ void ldmatrix(unsigned (&to)[4], const Element* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
}
__device__ void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
extern "C" __global__ void mma_tn(int M, int N, int K, float alpha, const Element* A, int lda, const Element* B, int ldb,
                                  float beta, Element* C, int ldc) {
    __shared__ __align__(16) Element As[T][BK + SKEW], Bs[T][BK + SKEW];
    const int lane = threadIdx.x, row0 = blockIdx.y * T, col0 = blockIdx.x * T;
    auto fetch = [&](Element (&to)[T][BK + SKEW], const Element* from, int ld, int first, int lines, int k0) {
        const bool whole = ((size_t)from % 16 | ld % 8) == 0;
        for (int i = lane; i < T * BK / 8; i += 32) {
            const int line = i / (BK / 8), piece = i % (BK / 8) * 8, left = first + line < lines ? K - k0 - piece : 0;
            const Element* at = from + (size_t)(first + line) * ld + k0 + piece;
            uint4 eight = {};
            Element* one = reinterpret_cast<Element*>(&eight);
            if (whole && left >= 8) eight = *reinterpret_cast<const uint4*>(at);
            else
                for (int q = 0; q < 8; q++) if (q < left) one[q] = at[q];
            *reinterpret_cast<uint4*>(&to[line][piece]) = eight;
        }
    };
    float sum[2][4] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        fetch(As, A, lda, row0, M, k0);
        fetch(Bs, B, ldb, col0, N, k0);
        __syncwarp();
        for (int k = 0; k < BK; k += 16) {
            unsigned a[4], b[4];
            ldmatrix(a, &As[lane % 16][k + lane / 16 * 8]);
            ldmatrix(b, &Bs[lane / 16 * 8 + lane % 8][k + lane / 8 % 2 * 8]);
            mma(sum[0], a, b[0], b[1]);
            mma(sum[1], a, b[2], b[3]);
        }
        __syncwarp();
    }
    for (int j = 0; j < 2; j++)
        for (int q = 0; q < 4; q++) {
            const int r = row0 + lane / 4 + q / 2 * 8, c = col0 + j * 8 + lane % 4 * 2 + q % 2;
            if (r >= M || c >= N) continue;
            Element& to = C[(size_t)r * ldc + c];
            to = Element(beta == 0 ? alpha * sum[j][q] : alpha * sum[j][q] + beta * float(to));
        }
}
"""


def plain(of_a: str = "ROW", of_b: str = "COLUMN", of_c: str = "ROW") -> str:
    """The kernel of one element per thread, which takes each matrix by rows or by columns."""
    return PLAIN.replace("OF_A", of_a).replace("OF_B", of_b).replace("OF_C", of_c)


def wgmma() -> str:
    """Step 16 with B K-major: one box of columns of B, 64 k of each."""
    source = steps.get(16).kernel_source()
    for old, new in (
        ("box_B[] = {BK, 64, 128}", "box_B[] = {BN, BK, 128}"),
        (
            "        #pragma unroll\n        for (int box = 0; box < BN / 64; box++)\n"
            "            load(stage.B + box * 64 * BK, map_B, block_col + box * 64, k * BK, full);",
            "        load(stage.B, map_B, k * BK, block_col, full);",
        ),
        ("descriptor(now.B + kk * 64, 64 * BK * sizeof(Element))", "descriptor(now.B + kk, 16)"),
        ("add, 1, 1, 0, 1;", "add, 1, 1, 0, 0;"),
    ):
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    return source
