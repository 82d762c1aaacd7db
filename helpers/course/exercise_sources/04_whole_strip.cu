//! kind: diagnose
//! title: All or nothing
//! task: Each thread owns a strip of TM rows of one column, and before storing it this kernel looks whether the strip
//!     lies in C. Every result is right, and the check is still not content. Find out why, and repair it.
//! hint: M is 17, TM is 8: the third strip begins in row 16. How many of its rows exist?
//! hint: The strip may lie in C with some of its rows only, so the loop must end earlier, or ask for every row.
//! hint: M - block_row - row rows are left from the first one on: store at most as many.
//! expect: global loads per result <= 1/16 K
//! after: Wrong, and invisible in the results: it wrote behind C, where nobody looked. More results per thread mean
//!     more ways to hang over an edge: the guard moves from the thread to the element.
constexpr int BM = 32, BN = 32;  // tile of C per block
constexpr int BK = 8;            // step along K
constexpr int TM = 8;            // rows of C per thread, one below the other
constexpr int THREADS = BM * BN / TM;
constexpr int A_ROWS = THREADS / BK, B_ROWS = THREADS / BN;  // rows of each tile that the block copies in one sweep

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void __launch_bounds__(THREADS)
    whole_strip(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta,
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
    const int last = min(TM, M - block_row - row);  // rows of the strip that exist
    //[starter
    //|const int last = block_row + row < M ? TM : 0;  // does the strip lie in C?
    //]
    if (block_col + col >= N) return;
    float* out = C + size_t(block_row + row) * ldc + block_col + col;
    for (int i = 0; i < last; i++, out += ldc) *out = alpha * sum[i] + (beta == 0 ? 0 : beta * *out);
}
