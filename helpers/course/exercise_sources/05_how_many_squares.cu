//! kind: diagnose
//! title: Squares in a column
//! task: The threads of a block tile its tile of C with their squares. This kernel counts the squares wrong. Read what
//!     the check finds first, then say which elements of C nobody computes, and repair it.
//! hint: The squares are numbered down the columns. The tile is 128 rows high, and a square TM = 8 rows.
//! hint: There are BM / TM = 16 squares in a column of squares; the kernel divides by TM, which is 8.
//! hint: t % 16 is the square's place in its column, t / 16 the column; write the 16 as what it is.
//! expect: global loads per result <= 3/128 K
//! after: With a tile of 64 rows there are just 8 squares in a column, as many as a square has rows, and the kernel
//!     would have been right by luck. And did you see what was not reported? Half of the threads read columns of Bs that do
//!     not exist. The check reports the reads that left Bs, from its last row into As. All others got numbers of
//!     the next row, and nobody objected: shared memory has no walls between rows.
constexpr int BM = 128, BN = 64;  // tile of C per block
constexpr int BK = 8;              // step along K
constexpr int TM = 8, TN = 8;      // tile of C per thread
constexpr int THREADS = BM / TM * (BN / TN);
constexpr int A_ROWS = THREADS / BK, B_ROWS = THREADS / BN;  // rows of each tile that the block copies in one sweep

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void __launch_bounds__(THREADS)
how_many_squares(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb,
               float beta, float* C, int ldc) {
    __shared__ float Bs[BK][BN];
    __shared__ float As[BM][BK];

    const int t = threadIdx.x;
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    //[solution
    const int row = t % (BM / TM) * TM;  // first row and column of this thread's square in the tile
    const int col = t / (BM / TM) * TN;
    //[starter
    //|const int row = t % TM * TM;  // first row and column of this thread's square in the tile
    //|const int col = t / TM * TN;
    //]
    const int a_row = t / BK, a_k = t % BK;    // this thread's place in a sweep over the tile of A: BK threads a row
    const int b_row = t / BN, b_col = t % BN;  // and of B: BN threads a row

    float sum[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        #pragma unroll
        for (int i = 0; i < BM; i += A_ROWS) {
            const int r = block_row + a_row + i, k = k0 + a_k;
            As[a_row + i][a_k] = r < M && k < K ? A[(size_t)r * lda + k] : 0.0f;
        }
        #pragma unroll
        for (int i = 0; i < BK; i += B_ROWS) {
            const int k = k0 + b_row + i, c = block_col + b_col;
            Bs[b_row + i][b_col] = k < K && c < N ? B[(size_t)k * ldb + c] : 0.0f;
        }
        __syncthreads();

        #pragma unroll
        for (int k = 0; k < BK; k++) {
            float a[TM], b[TN];
            #pragma unroll
            for (int i = 0; i < TM; i++) a[i] = As[row + i][k];
            #pragma unroll
            for (int j = 0; j < TN; j++) b[j] = Bs[k][col + j];
            #pragma unroll
            for (int i = 0; i < TM; i++)
                #pragma unroll
                for (int j = 0; j < TN; j++) sum[i][j] += a[i] * b[j];
        }
        __syncthreads();
    }

    #pragma unroll
    for (int i = 0; i < TM; i++)
        #pragma unroll
        for (int j = 0; j < TN; j++) {
            const int r = block_row + row + i, c = block_col + col + j;
            if (r < M && c < N) {
                float* out = &C[(size_t)r * ldc + c];
                *out = beta == 0.0f ? alpha * sum[i][j] : alpha * sum[i][j] + beta * *out;
            }
        }
}
