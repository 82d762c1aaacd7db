//! kind: write
//! title: Rotate the rows
//! task: Here the 32 lanes of a warp go down the rows of As, whose rows are 8 floats long: lanes 0, 4, 8, … meet in one bank. There is no room
//!     for padding, and shared memory must stay at 2048 bytes. Write place(), the store into As and the product: no conflicts, at most 3/8 K
//!     shared loads per result, as they are executed (the compiler merges four neighbours).
//! hint: Rows 0 to 3 fill 32 banks, rows 4 to 7 the same ones again. For one k, rows 0, 4, 8, … should use different ones of a row's 8 places.
//! hint: Turn every row by its number of fours: k stands in place (k + something) % 8. Whoever stores and whoever reads must ask the same function.
//! hint: something is row / 4. Store As[i][place(i, k)] and read As[lane][place(lane, k)]; a value of A serves the eight columns of the thread.
//! expect: bank conflicts of shared loads == 0
//! expect: bank conflicts of shared stores == 0
//! expect: bytes of shared memory per block <= 2048
//! expect: shared loads per result <= 3/8 K
//! expect: global loads per result <= 1/16 K
//! after: Padding, exclusive or, rotation: each is a way to give the elements that are asked for together different banks. Rotation needs no power
//!     of two.
constexpr int BM = 32, BN = 32;  // tile of C per block
constexpr int BK = 8;            // step along K
constexpr int TN = 8;            // columns of C per thread, side by side
constexpr int THREADS = BM * (BN / TN);

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};

// Where in its row of As the element (row, k) of the tile stands: [0, 7].
__device__ int place(int row, int k) {
    //[solution
    return (k + row / 4) % BK;
    //[starter
    //|return k;  // yours
    //]
}

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void __launch_bounds__(THREADS)
    rotate(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C, int ldc) {
    __shared__ __align__(16) float As[BM][BK];
    __shared__ __align__(16) float Bs[BK][BN];

    const int t = threadIdx.x, lane = t % 32;
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    const int col = t / 32 * TN;  // this warp's columns; its lanes are the rows

    float sum[TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int n = t; n < BM * BK; n += THREADS) {
            const int i = n / BK, k = n % BK;
            const float a = block_row + i < M && k0 + k < K ? A[size_t(block_row + i) * lda + k0 + k] : 0;
            //[solution
            As[i][place(i, k)] = a;
            //[starter
            //|// Yours: a is element (i, k) of the tile. Store it.
            //]
        }
        for (int n = t; n < BK * BN; n += THREADS) {
            const int k = n / BN, j = n % BN;
            Bs[k][j] = k0 + k < K && block_col + j < N ? B[size_t(k0 + k) * ldb + block_col + j] : 0;
        }
        __syncthreads();
        //[solution
        for (int k = 0; k < BK; k++) {
            const float a = As[lane][place(lane, k)];
            for (int j = 0; j < TN; j++) sum[j] += a * Bs[k][col + j];
        }
        //[starter
        //|// Yours: for each k one value of As, and the eight of Bs from column col on.
        //]
        __syncthreads();
    }

    for (int j = 0; j < TN; j++) {
        const int r = block_row + lane, c = block_col + col + j;
        if (r >= M || c >= N) continue;
        float& out = C[size_t(r) * ldc + c];
        out = beta == 0 ? alpha * sum[j] : alpha * sum[j] + beta * out;
    }
}
