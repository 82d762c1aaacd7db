// 05 thread_tile_2d: one thread computes a TM x TN square of C, an outer product in registers per k.
//
// What changed since 04: a thread reads TM values of A and TN of B and multiplies each with each.
// What it saves: TM + TN shared loads make TM * TN products. Shared loads per result fall from K + K / TM to
//   K / TM + K / TN (8 x 8: K / 4), and the block's tile grows to 128 x 128: global loads per result fall from
//   K / 32 to K / 64.
// What it costs: TM * TN sums and TM + TN operands in registers (8 x 8: 80 of the 255 a thread may have).

constexpr int BM = 128, BN = 128;  // tile of C per block
constexpr int BK = 8;              // step along K
constexpr int TM = 8, TN = 8;      // tile of C per thread
constexpr int THREADS = BM / TM * (BN / TN);
constexpr int A_ROWS = THREADS / BK, B_ROWS = THREADS / BN;  // rows of each tile that the block copies in one sweep

static_assert(BM % TM == 0 && BN % TN == 0, "TM must divide BM and TN must divide BN: threads tile the block's tile");
static_assert(THREADS <= 1024, "a block has at most 1024 threads: raise TM or TN");
static_assert(THREADS % BK == 0 && BM % A_ROWS == 0, "the block must copy its tile of A in whole sweeps");
static_assert(THREADS % BN == 0 && BK % B_ROWS == 0, "the block must copy its tile of B in whole sweeps");

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};

// 2: the compiler may use as many registers as leave room for two blocks on a multiprocessor.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
thread_tile_2d(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb,
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
