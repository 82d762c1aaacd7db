//! kind: write
//! title: Quads of lanes
//! task: The block has four warps for a tile of 32 x 64, each with a tile of 16 x 32, and a thread has 4 x 4 results. Write which results are
//!     thread t's, and the products. Number the lanes in squares of 2 x 2 this time, so that every shared load takes 2 wavefronts.
//!     What counts is the wavefronts: another numbering that comes to 2 is as good.
//! hint: Four threads down and eight across make a warp's tile: eight squares of 2 x 2 lanes, two rows of four squares.
//! hint: Within a square, lane % 2 is the column and lane / 2 % 2 the row. The squares are lane / 4: four across, then the next four below.
//! hint: Lane row: lane / 16 * 2 + lane / 2 % 2; lane column: lane / 4 % 4 * 2 + lane % 2. Times 4, and the warp's own corner added, they are the
//!     first row and column.
//! expect: wavefronts per shared load <= 2
//! expect: bank conflicts of shared loads == 0
//! expect: shared loads per result <= 1/8 K
//! expect: global loads per result <= 3/64 K
//! after: In the solution shown, a half-warp of quads covers 2 rows and 8 columns of threads, as pairs of rows do: two numberings, one set of
//!     addresses for each half.
constexpr int BM = 32, BN = 64, BK = 8;  // tiles: A is BM x BK, B is BK x BN
constexpr int WM = 16, WN = 32;          // tile of C per warp
constexpr int TM = 4, TN = 4;            // tile of C per thread
constexpr int THREADS = BM / WM * (BN / WN) * 32;

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};          // rows and columns of C per block

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void __launch_bounds__(THREADS)
    own_numbers(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C,
                int ldc) {
    __shared__ __align__(16) float As[BK][BM + 4];  // transposed
    __shared__ __align__(16) float Bs[BK][BN];

    const int t = threadIdx.x, warp = t / 32, lane = t % 32;
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    //[solution
    const int row = warp / 2 * WM + (lane / 16 * 2 + lane / 2 % 2) * TM;
    const int col = warp % 2 * WN + (lane / 4 % 4 * 2 + lane % 2) * TN;
    //[starter
    //|const int row = 0, col = 0;  // yours: first row and column of this thread's 4 x 4 results in the tile
    //]

    float sum[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = t; i < BM * BK; i += THREADS) {
            const int r = i / BK, k = i % BK;
            As[k][r] = block_row + r < M && k0 + k < K ? A[size_t(block_row + r) * lda + k0 + k] : 0;
        }
        for (int i = t; i < BK * BN; i += THREADS) {
            const int k = i / BN, c = i % BN;
            Bs[k][c] = k0 + k < K && block_col + c < N ? B[size_t(k0 + k) * ldb + block_col + c] : 0;
        }
        __syncthreads();
        //[solution
        for (int k = 0; k < BK; k++)
            for (int i = 0; i < TM; i++)
                for (int j = 0; j < TN; j++) sum[i][j] += As[k][row + i] * Bs[k][col + j];
        //[starter
        //|// Yours: the products of these tiles.
        //]
        __syncthreads();
    }

    for (int i = 0; i < TM; i++)
        for (int j = 0; j < TN; j++) {
            const int r = block_row + row + i, c = block_col + col + j;
            if (r >= M || c >= N) continue;
            float& out = C[size_t(r) * ldc + c];
            out = beta == 0 ? alpha * sum[i][j] : alpha * sum[i][j] + beta * out;
        }
}
