//! kind: diagnose
//! title: Not quite
//! task: Every element is nearly right, no finding, and check() is not content. The more k, the worse, and one product is off already. Find
//!     where the digits are lost, and repair it; the tensor cores go on multiplying.
//! hint: A and B are FP16 and are meant to be. C is FP32. What lies between them?
//! hint: A product of two FP16 numbers has 22 bits, and sums of them need more. Which type do the sums have while k goes on?
//! hint: The accumulator's element type is the last word of its fragment. What it is stored to must have the same type.
//! expect: HMMA instructions of each warp == 1/8 K
//! expect: FFMA instructions of each warp <= 2 K
//! expect: FMUL instructions of each warp <= 2 K
//! expect: FP64 instructions of each warp == 0
//! after: Tensor cores also add in FP16, and on some GPUs twice as fast. Each addition then rounds to 11 bits, K / 16 times in a row.
#include <cuda_fp16.h>
#include <mma.h>

constexpr int BM = 16, BN = 16, BK = 16;  // tiles: A is BM x BK, B is BK x BN
constexpr int SKEW = 8;                  // elements; a multiple of 8 keeps rows aligned to 16 bytes

extern "C" __device__ constexpr int block_shape[] = {32, 1, 1};  // threads per block along x, y, z: one warp
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};     // rows and columns of C per block

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void __launch_bounds__(32)
    half_sums(int M, int N, int K, float alpha, const __half* A, int lda, const __half* B, int ldb, float beta,
              float* C, int ldc) {
    using namespace nvcuda;
    __shared__ __align__(32) __half As[BM][BK + SKEW];
    __shared__ __align__(32) __half Bs[BK][BN + SKEW];
    //[solution
    __shared__ __align__(32) float Cs[BM][BN];
    //[starter
    //|__shared__ __align__(32) __half Cs[BM][BN];
    //]

    const int lane = threadIdx.x, block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    wmma::fragment<wmma::matrix_a, BM, BN, BK, __half, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, BM, BN, BK, __half, wmma::row_major> b;
    //[solution
    wmma::fragment<wmma::accumulator, BM, BN, BK, float> sums;
    //[starter
    //|wmma::fragment<wmma::accumulator, BM, BN, BK, __half> sums;
    //]
    wmma::fill_fragment(sums, 0.0f);
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = lane; i < BM * BK; i += 32) {
            const int r = i / BK, k = i % BK;
            As[r][k] = block_row + r < M && k0 + k < K ? A[size_t(block_row + r) * lda + k0 + k] : __half(0.0f);
        }
        for (int i = lane; i < BK * BN; i += 32) {
            const int k = i / BN, c = i % BN;
            Bs[k][c] = k0 + k < K && block_col + c < N ? B[size_t(k0 + k) * ldb + block_col + c] : __half(0.0f);
        }
        __syncwarp();
        wmma::load_matrix_sync(a, As[0], BK + SKEW);
        wmma::load_matrix_sync(b, Bs[0], BN + SKEW);
        wmma::mma_sync(sums, a, b, sums);
        __syncwarp();
    }
    wmma::store_matrix_sync(Cs[0], sums, BN, wmma::mem_row_major);
    __syncwarp();
    for (int i = lane; i < BM * BN; i += 32) {
        const int r = block_row + i / BN, c = block_col + i % BN;
        if (r >= M || c >= N) continue;
        float& out = C[size_t(r) * ldc + c];
        const float sum = Cs[i / BN][i % BN];
        out = beta == 0 ? alpha * sum : alpha * sum + beta * float(out);
    }
}
