//! kind: diagnose
//! title: A barrier for the wrong crowd
//! task: Two published kernels with warp tiles end each step as this one does, and their authors saw right results. Here there is even a
//!     reason: every warp fetches its own rows of A, which nobody else reads. Say for which tile it holds and for which not. Repair it.
//! hint: __syncwarp() makes the 32 lanes of one warp wait for each other. Who else uses As and Bs?
//! hint: The finding names lines of one tile only. Which warps have fetched what a warp reads of Bs?
//! hint: The end of the step needs a barrier of the block: __syncthreads().
//! expect: global loads per result <= 1/32 K
//! expect: barriers per warp <= 1/4 K
//! after: Ownership of C went to the warp; ownership of the tiles in shared memory did not. The barrier belongs to
//!     those who share.
constexpr int BM = 64, BN = 64, BK = 8;  // tiles: A is BM x BK, B is BK x BN
constexpr int WM = 16, WN = 64;          // tile of C per warp: rows of its own
constexpr int TM = 8, TN = 4;            // tile of C per thread
constexpr int PAD = 4;                   // floats; a multiple of 4 keeps 128-bit loads aligned
constexpr int THREADS = BM / WM * (BN / WN) * 32;
constexpr int GROUP_M = WM / (TM / 4);   // distance between a thread's two groups of four rows

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};          // rows and columns of C per block

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void __launch_bounds__(THREADS)
    warp_barrier(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta,
                 float* C, int ldc) {
    __shared__ __align__(16) float As[BK][BM + PAD];  // transposed
    __shared__ __align__(16) float Bs[BK][BN];

    const int t = threadIdx.x, warp = t / 32, lane = t % 32;
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    const int lane_row = lane % 2, lane_col = lane / 2;  // in pairs of rows
    const int row = warp * WM + lane_row * 4;  // rows row to row + 3, and the same GROUP_M further down
    const int col = lane_col * 4;  // columns col to col + 3

    float sum[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = lane; i < WM * BK; i += 32) {
            const int r = warp * WM + i / BK, k = i % BK;  // of this warp's own rows
            As[k][r] = block_row + r < M && k0 + k < K ? A[size_t(block_row + r) * lda + k0 + k] : 0;
        }
        for (int i = t; i < BK * BN; i += THREADS) {
            const int k = i / BN, c = i % BN;
            Bs[k][c] = k0 + k < K && block_col + c < N ? B[size_t(k0 + k) * ldb + block_col + c] : 0;
        }
        __syncthreads();

        for (int k = 0; k < BK; k++) {
            float a[TM], b[TN];
            for (int i = 0; i < TM; i++) a[i] = As[k][row + i / 4 * GROUP_M + i % 4];
            for (int j = 0; j < TN; j++) b[j] = Bs[k][col + j];
            for (int i = 0; i < TM; i++)
                for (int j = 0; j < TN; j++) sum[i][j] += a[i] * b[j];
        }
        //[solution
        __syncthreads();
        //[starter
        //|__syncwarp();
        //]
    }

    for (int i = 0; i < TM; i++)
        for (int j = 0; j < TN; j++) {
            const int r = block_row + row + i / 4 * GROUP_M + i % 4, c = block_col + col + j;
            if (r >= M || c >= N) continue;
            float& out = C[size_t(r) * ldc + c];
            out = beta == 0 ? alpha * sum[i][j] : alpha * sum[i][j] + beta * out;
        }
}
