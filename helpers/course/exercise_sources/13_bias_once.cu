//! kind: change
//! title: Read it once
//! task: A thread owns TM results of one column, and they all need the same value of the bias. The compiler reads it
//!     again for each row, as check() says: one load for each result. Make it one load per thread.
//! hint: The compiler must not keep it: C and bias may overlap as far as it knows, and each store to C could change bias.
//! hint: Read the value into a variable before the first store.
//! hint: Then c is needed before the loop; a thread whose column lies outside C must not read bias there.
//! expect: global loads per result <= 17/256 K
//! expect: loads of bias per result <= 1/8
//! after: In this kernel it saves 7 of 8 loads of bias. In the lesson's kernel the same change costs registers at the
//!     worst place, and it lost.
constexpr int BM = 32, BN = 32;  // tile of C per block
constexpr int BK = 8;            // step along K
constexpr int TM = 8;            // rows of C per thread, one below the other
constexpr int THREADS = BM * BN / TM;
constexpr int A_ROWS = THREADS / BK, B_ROWS = THREADS / BN;  // rows of each tile that the block copies in one sweep

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};

// C = max(0, alpha * A * B + beta * C + bias), row-major: A is M x K, B is K x N, C is M x N; bias has one value per
// column of C; lda, ldb, ldc are the row lengths.
extern "C" __global__ void __launch_bounds__(THREADS)
    bias_once(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C,
              int ldc, const float* bias) {
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
            const int k = k0 + b_row + i, c = block_col + b_col;
            Bs[b_row + i][b_col] = k < K && c < N ? B[size_t(k) * ldb + c] : 0;
        }
        __syncthreads();

        for (int k = 0; k < BK; k++) {
            const float b = Bs[k][col];
            for (int i = 0; i < TM; i++) sum[i] += As[row + i][k] * b;
        }
        __syncthreads();
    }

    //[solution
    const int c = block_col + col;
    if (c >= N) return;
    const float shift = bias[c];  // of the column: the same for all TM rows
    //[starter
    //]
    for (int i = 0; i < TM; i++) {
        //[solution
        const int r = block_row + row + i;
        if (r >= M) return;
        //[starter
        //|const int r = block_row + row + i, c = block_col + col;
        //|if (r >= M || c >= N) return;
        //]
        float& out = C[size_t(r) * ldc + c];
        //[solution
        const float v = (beta == 0 ? alpha * sum[i] : alpha * sum[i] + beta * out) + shift;
        //[starter
        //|const float v = (beta == 0 ? alpha * sum[i] : alpha * sum[i] + beta * out) + bias[c];
        //]
        out = v < 0 ? 0 : v;
    }
}
