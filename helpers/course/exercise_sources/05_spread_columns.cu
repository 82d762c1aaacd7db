//! kind: change
//! title: Columns for neighbours
//! task: The eight columns of a thread lie side by side, so the lanes of a warp are eight columns apart: its stores to C
//!     touch 32 sectors, and its loads of Bs meet in the same banks. Deal the columns out the other way, so that
//!     neighbouring lanes have neighbouring columns. At most 4 sectors per store, and no bank conflict.
//! hint: 16 threads share a row of squares (BN / TN). Lane 0 could take the columns 0, 16, 32, …, lane 1 the columns
//!     1, 17, 33, …
//! hint: The first column of a thread is t % 16, and its column j is 16 further for each j.
//! hint: The same columns are used in two places: where Bs is read and where C is stored.
//! expect: sectors per store of C <= 4
//! expect: bank conflicts of shared loads == 0
//! expect: shared loads per result <= 1/4 K
//! expect: global loads per result <= 1/64 K
//! after: It has a price: eight columns that are not side by side cannot be read by two 128-bit loads, so there are more
//!     load instructions now. Whether that pays is a question for profile().
constexpr int BM = 128, BN = 128;  // tile of C per block
constexpr int BK = 8;              // step along K
constexpr int TM = 8, TN = 8;      // tile of C per thread
constexpr int THREADS = BM / TM * (BN / TN);
constexpr int A_ROWS = THREADS / BK, B_ROWS = THREADS / BN;  // rows of each tile that the block copies in one sweep

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
spread_columns(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb,
               float beta, float* C, int ldc) {
    __shared__ float As[BM][BK];
    __shared__ float Bs[BK][BN];

    const int t = threadIdx.x;
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    const int row = t / (BN / TN) * TM;  // first of this thread's TM rows in the tile
    //[solution
    const int col = t % (BN / TN);  // first of its TN columns, which are BN / TN apart
    //[starter
    //|const int col = t % (BN / TN) * TN;  // first of its TN columns, which lie side by side
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
            //[solution
            for (int j = 0; j < TN; j++) b[j] = Bs[k][col + j * (BN / TN)];
            //[starter
            //|for (int j = 0; j < TN; j++) b[j] = Bs[k][col + j];
            //]
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
            //[solution
            const int r = block_row + row + i, c = block_col + col + j * (BN / TN);
            //[starter
            //|const int r = block_row + row + i, c = block_col + col + j;
            //]
            if (r < M && c < N) {
                float* out = &C[(size_t)r * ldc + c];
                *out = beta == 0.0f ? alpha * sum[i][j] : alpha * sum[i][j] + beta * *out;
            }
        }
}
