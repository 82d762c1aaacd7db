//! kind: write
//! title: A square in pieces
//! task: A thread owns 4 x 4 results that touch nowhere: rows 16 apart, columns 16 apart. As is stored transposed, As[k][row]. Write which
//!     results are thread t's, the outer product, and the store. At most K/2 shared loads per result, 4 sectors per store, and
//!     no bank conflicts of shared loads. (The given store to As has some; step 06 removes such.)
//! hint: 256 threads, 16 rows and 16 columns of them. Neighbouring lanes should have neighbouring columns.
//! hint: The first row is t / 16, the first column t % 16. Result (i, j) of a thread lies 16 i further down and 16 j further right.
//! hint: For each k: four values of As[k], four of Bs[k] into two small arrays, then 16 multiply-adds. In the store each result asks for itself
//!     whether it lies in C.
//! expect: shared loads per result <= 1/2 K
//! expect: sectors per store of C <= 4
//! expect: bank conflicts of shared loads == 0
//! expect: global loads per result == 1/32 K
//! after: An outer product does not care where its rows and columns lie. The memory does: with columns apart, a store takes whole sectors. Rows need
//!     not be apart. Four that lie together come in one load of 128 bits: then there are 5 shared loads for each k, and the solution shown has 8.
constexpr int BM = 64, BN = 64;  // tile of C per block
constexpr int BK = 8;            // step along K
constexpr int TM = 4, TN = 4;    // results per thread
constexpr int THREADS = BM / TM * (BN / TN);

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void __launch_bounds__(THREADS)
    spread_square(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C,
                  int ldc) {
    __shared__ float As[BK][BM];  // transposed
    __shared__ float Bs[BK][BN];

    const int t = threadIdx.x;
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    //[solution
    const int first_row = t / (BN / TN), first_col = t % (BN / TN);
    //[starter
    //|// Yours: which results are thread t's?
    //]

    float sum[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = t; i < BM * BK; i += THREADS) {
            const int r = block_row + i / BK, k = k0 + i % BK;
            As[i % BK][i / BK] = r < M && k < K ? A[size_t(r) * lda + k] : 0;
        }
        for (int i = t; i < BK * BN; i += THREADS) {
            const int k = k0 + i / BN, c = block_col + i % BN;
            Bs[i / BN][i % BN] = k < K && c < N ? B[size_t(k) * ldb + c] : 0;
        }
        __syncthreads();
        //[solution
        for (int k = 0; k < BK; k++) {
            float a[TM], b[TN];
            for (int i = 0; i < TM; i++) a[i] = As[k][first_row + i * (BM / TM)];
            for (int j = 0; j < TN; j++) b[j] = Bs[k][first_col + j * (BN / TN)];
            for (int i = 0; i < TM; i++)
                for (int j = 0; j < TN; j++) sum[i][j] += a[i] * b[j];
        }
        //[starter
        //|// Yours: an outer product for each k of the tiles.
        //]
        __syncthreads();
    }

    //[solution
    for (int i = 0; i < TM; i++)
        for (int j = 0; j < TN; j++) {
            const int r = block_row + first_row + i * (BM / TM), c = block_col + first_col + j * (BN / TN);
            if (r >= M || c >= N) continue;
            float* out = C + size_t(r) * ldc + c;
            *out = alpha * sum[i][j] + (beta == 0 ? 0 : beta * *out);
        }
    //[starter
    //|// Yours: the store.
    //]
}
