//! kind: change
//! title: Once each
//! task: A warp computes 32 x 32 results, four tiles of 16 x 16, and for each of them it loads both fragments anew. Have it load each fragment
//!     of A and of B once for every 16 k.
//! hint: Two fragments of A and two of B make four products. How many are alive at a time in the loop as it stands?
//! hint: Keep the two fragments of B in an array while the rows change, or those of A while the columns do.
//! hint: Load both fragments of one side before the two loops over i and j; load the one of the other side between the two loops.
//! expect: LDSM instructions of each warp <= 1/4 K
//! expect: HMMA instructions of each warp == 1/2 K
//! expect: bank conflicts of shared loads == 0
//! expect: FFMA instructions of each warp <= 2 K
//! expect: FMUL instructions of each warp <= 2 K
//! expect: FP64 instructions of each warp == 0
//! after: Half the loads: step 05's outer product once more, with fragments in place of numbers. A warp's tile of 64 x 64 loads 8 fragments for 16
//!     products.
#include <cuda_fp16.h>
#include <mma.h>

constexpr int BM = 32, BN = 32, BK = 16;  // tiles: A is BM x BK, B is BK x BN
constexpr int SKEW = 8;                  // elements; a multiple of 8 keeps rows aligned to 16 bytes

extern "C" __device__ constexpr int block_shape[] = {32, 1, 1};  // threads per block along x, y, z: one warp
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};     // rows and columns of C per block

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void __launch_bounds__(32)
    once_each(int M, int N, int K, float alpha, const __half* A, int lda, const __half* B, int ldb, float beta,
              __half* C, int ldc) {
    using namespace nvcuda;
    __shared__ __align__(32) __half As[BM][BK + SKEW];
    __shared__ __align__(32) __half Bs[BK][BN + SKEW];
    __shared__ __align__(32) float Cs[BM][BN];

    const int lane = threadIdx.x, block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[2][2];
    for (int i = 0; i < 4; i++) wmma::fill_fragment(sums[i / 2][i % 2], 0.0f);
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = lane; i < BM * BK; i += 32) {
            const int r = i / BK, k = i % BK;
            As[r][k] = block_row + r < M && k0 + k < K ? A[size_t(block_row + r) * lda + k0 + k] : __half(0.0f);
        }
        for (int i = lane; i < BK * BN; i += 32) {
            const int k = i / BN, c = i % BN;
            Bs[k][c] = k0 + k < K && block_col + c < N ? B[size_t(k0 + k) * ldb + block_col + c] : __half(0.0f);
        }
        __syncwarp();  // the tiles are complete
        //[solution
        wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> right[2];
        for (int j = 0; j < 2; j++) wmma::load_matrix_sync(right[j], &Bs[0][16 * j], BN + SKEW);
        for (int i = 0; i < 2; i++) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left;
            wmma::load_matrix_sync(left, As[16 * i], BK + SKEW);
            for (int j = 0; j < 2; j++) wmma::mma_sync(sums[i][j], left, right[j], sums[i][j]);
        }
        //[starter
        //|for (int i = 0; i < 2; i++)
        //|    for (int j = 0; j < 2; j++) {
        //|        wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a;
        //|        wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> b;
        //|        wmma::load_matrix_sync(a, As[16 * i], BK + SKEW);
        //|        wmma::load_matrix_sync(b, &Bs[0][16 * j], BN + SKEW);
        //|        wmma::mma_sync(sums[i][j], a, b, sums[i][j]);
        //|        __syncwarp();  // behind a barrier nothing counts as loaded: the compiler loads anew for each product
        //|    }
        //]
        __syncwarp();  // and read, before the next ones overwrite them
    }
    for (int i = 0; i < 4; i++)
        wmma::store_matrix_sync(&Cs[i / 2 * 16][i % 2 * 16], sums[i / 2][i % 2], BN, wmma::mem_row_major);
    __syncwarp();
    for (int i = lane; i < BM * BN; i += 32) {
        const int r = block_row + i / BN, c = block_col + i % BN;
        if (r >= M || c >= N) continue;
        __half& out = C[size_t(r) * ldc + c];
        const float sum = Cs[i / BN][i % BN];
        out = beta == 0 ? alpha * sum : alpha * sum + beta * float(out);
    }
}
