//! kind: write
//! title: A strip across
//! task: The lesson's strip goes down a column; let yours go along a row. A thread owns TN = 4 results of one row, and a value of A serves all
//!     four. The tiles are filled. Write the products and the store: at most 5/4 K shared loads per result, 4 sectors per store, no conflict.
//! hint: A warp is a row of the tile, 32 lanes for 128 columns. Which four columns may a lane take, so that neighbouring lanes store neighbours?
//! hint: Columns lane, lane + 32, lane + 64 and lane + 96. Then the 32 lanes also read 32 neighbours of Bs.
//! hint: For each k read As[warp][k] once into a variable, then sum[j] += a * Bs[k][lane + 32 * j]. The store asks for each j whether its column
//!     exists.
//! expect: shared loads per result <= 5/4 K
//! expect: sectors per store of C <= 4
//! expect: bank conflicts of shared loads == 0
//! expect: global loads per result <= 17/128 K
//! after: A strip across reuses A, a strip down reuses B. A thread that does both owns a rectangle: step 05.
constexpr int TN = 4;            // columns of C per thread
constexpr int BM = 8;            // rows of C per block, one per warp
constexpr int BN = 32 * TN;      // columns of C per block
constexpr int BK = 8;            // step along K
constexpr int THREADS = 32 * BM;

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void __launch_bounds__(THREADS)
    strip_across(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C,
                 int ldc) {
    __shared__ float As[BM][BK];
    __shared__ float Bs[BK][BN];

    const int t = threadIdx.x, warp = t / 32, lane = t % 32;
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;

    float sum[TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        if (t < BM * BK) {
            const int r = block_row + t / BK, k = k0 + t % BK;
            As[t / BK][t % BK] = r < M && k < K ? A[size_t(r) * lda + k] : 0;
        }
        for (int i = t; i < BK * BN; i += THREADS) {
            const int k = k0 + i / BN, c = block_col + i % BN;
            Bs[i / BN][i % BN] = k < K && c < N ? B[size_t(k) * ldb + c] : 0;
        }
        __syncthreads();
        //[solution
        for (int k = 0; k < BK; k++) {
            const float a = As[warp][k];
            for (int j = 0; j < TN; j++) sum[j] += a * Bs[k][lane + 32 * j];
        }
        //[starter
        //|// Yours: the products of these tiles, for four results of row `warp`.
        //]
        __syncthreads();
    }

    //[solution
    const int r = block_row + warp;
    for (int j = 0; j < TN; j++) {
        const int c = block_col + lane + 32 * j;
        if (r >= M || c >= N) return;
        float* out = C + size_t(r) * ldc + c;
        *out = alpha * sum[j] + (beta == 0 ? 0 : beta * *out);
    }
    //[starter
    //|// Yours: the store of the four results.
    //]
}
