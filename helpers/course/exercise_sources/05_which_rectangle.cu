//! kind: change
//! title: The best rectangle
//! task: Each thread computes 32 results, as 32 rows of one column. Keep 32 results, and find a rectangle that needs the
//!     fewest shared loads: at most 3/32 K per result, as they are executed. Change TM and TN only.
//! hint: For each k a thread reads TM + TN numbers for TM x TN results.
//! hint: Of all rectangles with the same area, which has the shortest sides together?
//! hint: Executed, the loads are fewer than in the source: four neighbours come with one instruction, along k for A and
//!     along the columns for B. With TN = 1 that does not help B.
//! given: block and tile
//! expect: shared loads per result <= 3/32 K
//! expect: global loads per result <= 1/32 K
//! after: As near to a square as 32 allows, upright or lying: K/TM + K/TN is smallest where both are equal, as a field of given area needs
//!     the least fence.
constexpr int BM = 64, BN = 64;  // tile of C per block
constexpr int BK = 8;              // step along K
//[solution
constexpr int TM = 8, TN = 4;      // tile of C per thread
//[starter
//|constexpr int TM = 32, TN = 1;     // tile of C per thread
//]
constexpr int THREADS = BM / TM * (BN / TN);
constexpr int A_ROWS = THREADS / BK, B_ROWS = THREADS / BN;  // rows of each tile that the block copies in one sweep

static_assert(TM * TN == 32, "each thread computes 32 results: another rectangle, not another area");
static_assert(BM % TM == 0 && BN % TN == 0, "TM must divide BM and TN must divide BN: threads tile the block's tile");

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void __launch_bounds__(THREADS)
which_rectangle(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb,
               float beta, float* C, int ldc) {
    __shared__ float As[BM][BK];
    __shared__ float Bs[BK][BN];

    const int t = threadIdx.x;
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    const int row = t / (BN / TN) * TM;  // first row and column of this thread's square in the tile
    const int col = t % (BN / TN) * TN;
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
