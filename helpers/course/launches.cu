// Kernels in signatures of their own, to try the model of time on: the course teaches nothing by them, and no figure was chosen by
// the products among them. helpers/course/recorded_launches.py says how each is launched.

#include <cuda_fp16.h>
#include <mma.h>

// ---------------------------------------------------------------- products of n x n matrices, without alpha, beta and row lengths

extern "C" __global__ void product_direct(const float* A, const float* B, float* C, int n) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; k++) sum += A[row * n + k] * B[k * n + col];
    C[row * n + col] = sum;
}

extern "C" __global__ void product_tiled(const float* A, const float* B, float* C, int n) {
    __shared__ float As[32][32], Bs[32][32];
    const int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 32 + y, col = blockIdx.x * 32 + x;
    float sum = 0;
    for (int k0 = 0; k0 < n; k0 += 32) {
        As[y][x] = A[row * n + k0 + x];
        Bs[y][x] = B[(k0 + y) * n + col];
        __syncthreads();
        for (int k = 0; k < 32; k++) sum += As[y][k] * Bs[k][x];
        __syncthreads();
    }
    C[row * n + col] = sum;
}

extern "C" __global__ void product_squares(const float* A, const float* B, float* C, int n) {
    __shared__ float As[64][17], Bs[16][64];
    const int t = threadIdx.x, x = t % 16, y = t / 16, top = blockIdx.y * 64, left = blockIdx.x * 64;
    float sum[4][4] = {};
    for (int k0 = 0; k0 < n; k0 += 16) {
        for (int e = t; e < 64 * 16; e += 256) As[e / 16][e % 16] = A[(top + e / 16) * n + k0 + e % 16];
        for (int e = t; e < 16 * 64; e += 256) Bs[e / 64][e % 64] = B[(k0 + e / 64) * n + left + e % 64];
        __syncthreads();
        for (int k = 0; k < 16; k++)
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++) sum[i][j] += As[y * 4 + i][k] * Bs[k][x + 16 * j];
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) C[(top + y * 4 + i) * n + left + x + 16 * j] = sum[i][j];
}

extern "C" __global__ void __launch_bounds__(256) product_vectors(const float* A, const float* B, float* C, int n) {
    __shared__ float As[8][132];
    __shared__ float4 Bs[8][32];
    const int t = threadIdx.x, x = t % 16, y = t / 16, top = blockIdx.y * 128, left = blockIdx.x * 128;
    float sum[8][8] = {};
    for (int k0 = 0; k0 < n; k0 += 8) {
        const float4 a = *reinterpret_cast<const float4*>(&A[(top + t / 2) * n + k0 + t % 2 * 4]);
        const float4 b = *reinterpret_cast<const float4*>(&B[(k0 + t / 32) * n + left + t % 32 * 4]);
        __syncthreads();
        As[t % 2 * 4][t / 2] = a.x, As[t % 2 * 4 + 1][t / 2] = a.y, As[t % 2 * 4 + 2][t / 2] = a.z, As[t % 2 * 4 + 3][t / 2] = a.w;
        Bs[t / 32][t % 32] = b;
        __syncthreads();
        for (int k = 0; k < 8; k++) {
            float column[8];
            for (int i = 0; i < 8; i++) column[i] = As[k][y * 8 + i];
            const float4 first = Bs[k][x], second = Bs[k][x + 16];
            const float row[8] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
            for (int i = 0; i < 8; i++)
                for (int j = 0; j < 8; j++) sum[i][j] += column[i] * row[j];
        }
    }
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) C[(top + y * 8 + i) * n + left + x * 4 + j % 4 + j / 4 * 64] = sum[i][j];
}

// ------------------------------------------------------------------ products of n x n matrices of half on tensor cores, sums in float

using FragmentA = nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, half, nvcuda::wmma::row_major>;
using FragmentB = nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, half, nvcuda::wmma::row_major>;
using Sums = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float>;

extern "C" __global__ void product_wmma_direct(const half* A, const half* B, float* C, int n) {
    const int row = (blockIdx.y * 4 + threadIdx.x / 32) * 16, col = blockIdx.x * 64;
    FragmentA a;
    FragmentB b;
    Sums sums[4];
    for (int j = 0; j < 4; j++) nvcuda::wmma::fill_fragment(sums[j], 0.0f);
    for (int k = 0; k < n; k += 16) {
        nvcuda::wmma::load_matrix_sync(a, A + row * n + k, n);
        for (int j = 0; j < 4; j++) {
            nvcuda::wmma::load_matrix_sync(b, B + k * n + col + j * 16, n);
            nvcuda::wmma::mma_sync(sums[j], a, b, sums[j]);
        }
    }
    for (int j = 0; j < 4; j++) nvcuda::wmma::store_matrix_sync(C + row * n + col + j * 16, sums[j], n, nvcuda::wmma::mem_row_major);
}

extern "C" __global__ void __launch_bounds__(128) product_wmma_tiled(const half* A, const half* B, float* C, int n) {
    __shared__ __align__(16) half As[64][40], Bs[32][72];  // eight more in a row, for the banks
    const int t = threadIdx.x, warp = t / 32, top = blockIdx.y * 64, left = blockIdx.x * 64;
    FragmentA a;
    FragmentB b[2];
    Sums sums[2][2];
    for (int i = 0; i < 4; i++) nvcuda::wmma::fill_fragment(sums[i / 2][i % 2], 0.0f);
    for (int k = 0; k < n; k += 32) {
        for (int i = t; i < 256; i += 128) {
            *(uint4*)&As[i / 4][i % 4 * 8] = *(const uint4*)&A[(top + i / 4) * n + k + i % 4 * 8];
            *(uint4*)&Bs[i / 8][i % 8 * 8] = *(const uint4*)&B[(k + i / 8) * n + left + i % 8 * 8];
        }
        __syncthreads();
        for (int kk = 0; kk < 32; kk += 16) {
            for (int j = 0; j < 2; j++) nvcuda::wmma::load_matrix_sync(b[j], &Bs[kk][warp % 2 * 32 + j * 16], 72);
            for (int i = 0; i < 2; i++) {
                nvcuda::wmma::load_matrix_sync(a, &As[warp / 2 * 32 + i * 16][kk], 40);
                for (int j = 0; j < 2; j++) nvcuda::wmma::mma_sync(sums[i][j], a, b[j], sums[i][j]);
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; i++) {
        float* to = &C[(top + warp / 2 * 32 + i / 2 * 16) * n + left + warp % 2 * 32 + i % 2 * 16];
        nvcuda::wmma::store_matrix_sync(to, sums[i / 2][i % 2], n, nvcuda::wmma::mem_row_major);
    }
}

extern "C" __global__ void __launch_bounds__(256) product_mma(const half* A, const half* B, float* C, int n) {
    __shared__ __align__(16) half As[2][128][40], Bs[2][32][136];  // two stages
    const int t = threadIdx.x, warp = t / 32, lane = t % 32, top = blockIdx.y * 128, left = blockIdx.x * 128;
    const int rows = warp / 4 * 64, cols = warp % 4 * 32;  // of the warp's part in the tile
    uint4 a_next[2], b_next[2];
    auto fetch = [&](int k) {
        for (int i = 0; i < 2; i++) {
            const int at = t + i * 256;
            a_next[i] = *(const uint4*)&A[(top + at / 4) * n + k + at % 4 * 8];
            b_next[i] = *(const uint4*)&B[(k + at / 16) * n + left + at % 16 * 8];
        }
    };
    auto keep = [&](int stage) {
        for (int i = 0; i < 2; i++) {
            const int at = t + i * 256;
            *(uint4*)&As[stage][at / 4][at % 4 * 8] = a_next[i];
            *(uint4*)&Bs[stage][at / 16][at % 16 * 8] = b_next[i];
        }
    };
    float sums[4][4][4] = {};
    fetch(0);
    keep(0);
    __syncthreads();
    for (int k = 0, stage = 0; k < n; k += 32, stage ^= 1) {
        if (k + 32 < n) fetch(k + 32);
        for (int kk = 0; kk < 32; kk += 16) {
            unsigned a[4][4], b[4][2];
            for (int i = 0; i < 4; i++) {
                const unsigned from = __cvta_generic_to_shared(&As[stage][rows + i * 16 + lane % 16][kk + lane / 16 * 8]);
                asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                             : "=r"(a[i][0]), "=r"(a[i][1]), "=r"(a[i][2]), "=r"(a[i][3]) : "r"(from) : "memory");
            }
            for (int j = 0; j < 4; j++) {
                const unsigned from = __cvta_generic_to_shared(&Bs[stage][kk + lane % 16][cols + j * 8]);
                asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                             : "=r"(b[j][0]), "=r"(b[j][1]) : "r"(from) : "memory");
            }
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++)
                    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                        : "+f"(sums[i][j][0]), "+f"(sums[i][j][1]), "+f"(sums[i][j][2]), "+f"(sums[i][j][3])
                        : "r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3]), "r"(b[j][0]), "r"(b[j][1]));
        }
        if (k + 32 < n) keep(stage ^ 1);
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            for (int half_of = 0; half_of < 2; half_of++) {
                const int row = top + rows + i * 16 + half_of * 8 + lane / 4, col = left + cols + j * 8 + lane % 4 * 2;
                *(float2*)&C[row * n + col] = make_float2(sums[i][j][half_of * 2], sums[i][j][half_of * 2 + 1]);
            }
}

// ------------------------------------------------------------------------------------------ what reads and writes each number once

extern "C" __global__ void copied(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}

extern "C" __global__ void copied_by_four(const float4* x, float4* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}

extern "C" __global__ void added(float a, const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}

extern "C" __global__ void activated(const float4* x, float4* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 v = x[i];
    v.x /= 1 + __expf(-v.x), v.y /= 1 + __expf(-v.y), v.z /= 1 + __expf(-v.z), v.w /= 1 + __expf(-v.w);
    y[i] = v;
}

extern "C" __global__ void transposed_directly(const float* x, float* y, int n) {
    const int col = blockIdx.x * 32 + threadIdx.x;
    for (int j = threadIdx.y; j < 32; j += 8) y[col * n + blockIdx.y * 32 + j] = x[(blockIdx.y * 32 + j) * n + col];
}

extern "C" __global__ void transposed_with_conflicts(const float* x, float* y, int n) {
    __shared__ float tile[32][32];
    const int i = threadIdx.x;
    for (int j = threadIdx.y; j < 32; j += 8) tile[j][i] = x[(blockIdx.y * 32 + j) * n + blockIdx.x * 32 + i];
    __syncthreads();
    for (int j = threadIdx.y; j < 32; j += 8) y[(blockIdx.x * 32 + j) * n + blockIdx.y * 32 + i] = tile[i][j];
}

extern "C" __global__ void transposed(const float* x, float* y, int n) {
    __shared__ float tile[32][33];
    const int i = threadIdx.x;
    for (int j = threadIdx.y; j < 32; j += 8) tile[j][i] = x[(blockIdx.y * 32 + j) * n + blockIdx.x * 32 + i];
    __syncthreads();
    for (int j = threadIdx.y; j < 32; j += 8) y[(blockIdx.x * 32 + j) * n + blockIdx.y * 32 + i] = tile[i][j];
}

extern "C" __global__ void smoothed(const float* x, float* y, int n) {
    const int col = blockIdx.x * 32 + threadIdx.x + 1, row = blockIdx.y * 8 + threadIdx.y + 1;
    if (col >= n - 1 || row >= n - 1) return;
    const float* at = &x[row * n + col];
    y[row * n + col] = 0.2f * (at[0] + at[-1] + at[1] + at[-n] + at[n]);
}

// ------------------------------------------------------------------------------------------------------------------ sums and counts

extern "C" __global__ void row_sums(const float* A, const float* x, float* y, int n) {
    const int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    float sum = 0;
    for (int k = lane; k < n; k += 32) sum += A[row * n + k] * x[k];
    for (int apart = 16; apart; apart /= 2) sum += __shfl_xor_sync(~0u, sum, apart);
    if (lane == 0) y[row] = sum;
}

extern "C" __global__ void summed(const float* x, float* sum, int n) {
    __shared__ float parts[256];
    float own = 0;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) own += x[i];
    parts[threadIdx.x] = own;
    for (int apart = 128; apart; apart /= 2) {
        __syncthreads();
        if (threadIdx.x < apart) parts[threadIdx.x] += parts[threadIdx.x + apart];
    }
    if (threadIdx.x == 0) atomicAdd(sum, parts[0]);
}

extern "C" __global__ void summed_by_all(const float* x, float* sum, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(sum, x[i]);
}

extern "C" __global__ void scattered(const float* x, float* sums, int n, int places) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&sums[i % places], x[i]);
}

extern "C" __global__ void counted(const int* x, int* counts, int n) {
    __shared__ int own[256];
    own[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) atomicAdd(&own[x[i] & 255], 1);
    __syncthreads();
    atomicAdd(&counts[threadIdx.x], own[threadIdx.x]);
}

extern "C" __global__ void powers(float* y, int n) {
    float a = threadIdx.x, b = a + 1, c = a + 2, d = a + 3;
    for (int i = 0; i < n; i++) a = a * 0.5f + 1, b = b * 0.5f + 1, c = c * 0.5f + 1, d = d * 0.5f + 1;
    y[blockIdx.x * blockDim.x + threadIdx.x] = a + b + c + d;
}
