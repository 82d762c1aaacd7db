//! kind: write
//! title: A tile turned over
//! task: One warp computes a tile of 16 x 16. The tile of A lies turned over in shared memory, As[k][row]; the tile of B lies as ever. Write
//!     the three parts with fragments: the sums, the product of each pair of tiles, and the way to Cs.
//! hint: Three fragments: matrix_a, matrix_b and accumulator, each for 16 x 16 x 16. The sums begin at zero and live through the whole loop.
//! hint: A fragment of A says how its tile lies: row_major if neighbours along k are neighbours in memory, col_major if neighbours along the
//!     rows are. Which is it here?
//! hint: The last argument of load_matrix_sync is how far one row of the array is from the next, in elements, the skew included. So it is for
//!     store_matrix_sync, whose array has none, and which wants mem_row_major besides.
//! expect: HMMA instructions of each warp == 1/8 K
//! expect: bank conflicts of shared loads == 0
//! expect: FFMA instructions of each warp <= 2 K
//! expect: FMUL instructions of each warp <= 2 K
//! expect: FP64 instructions of each warp == 0
//! after: A fragment hides where its elements lie in registers, and also how they lay in memory: one word turns the tile.
#include <cuda_fp16.h>
#include <mma.h>

constexpr int BM = 16, BN = 16, BK = 16;  // tiles: A is BM x BK, B is BK x BN
constexpr int SKEW = 8;                  // elements; a multiple of 8 keeps rows aligned to 16 bytes

extern "C" __device__ constexpr int block_shape[] = {32, 1, 1};  // threads per block along x, y, z: one warp
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};     // rows and columns of C per block

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void __launch_bounds__(32)
    turned_tile(int M, int N, int K, float alpha, const __half* A, int lda, const __half* B, int ldb, float beta,
                __half* C, int ldc) {
    using namespace nvcuda;
    __shared__ __align__(32) __half As[BK][BM + SKEW];  // turned over
    __shared__ __align__(32) __half Bs[BK][BN + SKEW];
    __shared__ __align__(32) float Cs[BM][BN];

    const int lane = threadIdx.x, block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    //[solution
    wmma::fragment<wmma::accumulator, BM, BN, BK, float> total;
    wmma::fill_fragment(total, 0.0f);
    //[starter
    //|// Yours: a fragment for the sums.
    //]
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = lane; i < BM * BK; i += 32) {
            const int r = i / BK, k = i % BK;
            As[k][r] = block_row + r < M && k0 + k < K ? A[size_t(block_row + r) * lda + k0 + k] : __half(0.0f);
        }
        for (int i = lane; i < BK * BN; i += 32) {
            const int k = i / BN, c = i % BN;
            Bs[k][c] = k0 + k < K && block_col + c < N ? B[size_t(k0 + k) * ldb + block_col + c] : __half(0.0f);
        }
        __syncwarp();
        //[solution
        wmma::fragment<wmma::matrix_a, BM, BN, BK, __half, wmma::col_major> left;
        wmma::fragment<wmma::matrix_b, BM, BN, BK, __half, wmma::row_major> right;
        wmma::load_matrix_sync(left, As[0], BM + SKEW);
        wmma::load_matrix_sync(right, Bs[0], BN + SKEW);
        wmma::mma_sync(total, left, right, total);
        //[starter
        //|// Yours: add the product of the two tiles.
        //]
        __syncwarp();
    }
    //[solution
    wmma::store_matrix_sync(Cs[0], total, BN, wmma::mem_row_major);
    //[starter
    //|// Yours: the sums, to Cs.
    //]
    __syncwarp();
    for (int i = lane; i < BM * BN; i += 32) {
        const int r = block_row + i / BN, c = block_col + i % BN;
        if (r >= M || c >= N) continue;
        __half& out = C[size_t(r) * ldc + c];
        const float sum = Cs[i / BN][i % BN];
        out = beta == 0 ? alpha * sum : alpha * sum + beta * float(out);
    }
}
