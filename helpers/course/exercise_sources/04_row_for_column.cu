//! kind: diagnose
//! title: The row where the column belongs
//! task: A published kernel with a 1D thread tile has this mistake in the load that fills the tile of B. The check fails
//!     in some shapes and passes in others. Which ones pass, and why? Repair it.
//! hint: A block is right where blockIdx.x equals blockIdx.y. So a shape passes if C is a single block.
//! hint: A tile of B has rows along K and columns along N. Which of block_row and block_col counts columns?
//! hint: A column of B is a column of C, so the tile of B begins at block_col: in the address and in the condition.
//! expect: global loads per result <= 1/16 K
//! after: A square matrix of one tile would never have shown it. That is why check() uses shapes that are a little more
//!     than a tile, in one direction at a time.
constexpr int BM = 32, BN = 32;  // tile of C per block
constexpr int BK = 8;            // step along K
constexpr int TM = 8;            // rows of C per thread, one below the other
constexpr int THREADS = BM * BN / TM;
constexpr int A_ROWS = THREADS / BK, B_ROWS = THREADS / BN;  // rows of each tile that the block copies in one sweep

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void __launch_bounds__(THREADS)
    row_for_column(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta,
                   float* C, int ldc) {
    __shared__ float As[BM][BK];
    __shared__ float Bs[BK][BN];

    const int t = threadIdx.x;
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    const int row = t / BN * TM;  // first of this thread's TM rows in the tile
    const int col = t % BN;       // its column
    const int a_row = t / BK, a_k = t % BK;    // this thread's place in a sweep over the tile of A
    const int b_row = t / BN, b_col = t % BN;  // and over the tile of B

    float sum[TM] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = 0; i < BM; i += A_ROWS) {
            const int r = block_row + a_row + i, k = k0 + a_k;
            As[a_row + i][a_k] = r < M && k < K ? A[size_t(r) * lda + k] : 0;
        }
        for (int i = 0; i < BK; i += B_ROWS) {
            const int k = k0 + b_row + i;
            //[solution
            Bs[b_row + i][b_col] = k < K && b_col < N - block_col ? B[size_t(k) * ldb + block_col + b_col] : 0;
            //[starter
            //|Bs[b_row + i][b_col] = k < K && b_col < N - block_row ? B[size_t(k) * ldb + block_row + b_col] : 0;
            //]
        }
        __syncthreads();

        for (int k = 0; k < BK; k++) {
            const float b = Bs[k][col];
            for (int i = 0; i < TM; i++) sum[i] += As[row + i][k] * b;
        }
        __syncthreads();
    }

    for (int i = 0; i < TM; i++) {
        const int r = block_row + row + i, c = block_col + col;
        if (r >= M || c >= N) return;
        float& out = C[size_t(r) * ldc + c];
        out = beta == 0 ? alpha * sum[i] : alpha * sum[i] + beta * out;
    }
}
