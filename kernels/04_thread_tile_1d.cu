// 04 thread_tile_1d: one thread computes TM results of a column of C, not one.
//
// What changed since 03: a thread keeps TM sums in registers, so a block of the same tile has TM times fewer threads.
// What it saves: one value of B, once in a register, serves TM results. Shared loads per result fall from 2 K to K +
//   K / TM, and a larger tile (64 x 64) fits a block: global loads per result fall from K / 16 to K / 32.
// What it costs: TM - 1 more registers a thread and fewer warps to hide latency behind. It pays all the same: TM
//   independent sums per thread hide latency too.

constexpr int BM = 64, BN = 64;  // tile of C per block
constexpr int BK = 16;           // step along K
constexpr int TM = 16;           // rows of C per thread, one below the other
constexpr int THREADS = BM * BN / TM;
constexpr int A_ROWS = THREADS / BK, B_ROWS = THREADS / BN;  // rows of each tile that the block copies in one sweep

static_assert(BM % TM == 0, "TM must divide BM: a thread computes TM whole rows of the tile");
static_assert(THREADS <= 1024, "a block has at most 1024 threads: raise TM or lower BM * BN");
static_assert(THREADS % BK == 0 && BM % A_ROWS == 0, "the block must copy its tile of A in whole sweeps");
static_assert(THREADS % BN == 0 && BK % B_ROWS == 0, "the block must copy its tile of B in whole sweeps");

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};

extern "C" __global__ void __launch_bounds__(THREADS)
thread_tile_1d(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb,
               float beta, float* C, int ldc) {
    __shared__ float As[BM][BK];
    __shared__ float Bs[BK][BN];

    const int t = threadIdx.x;
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    const int row = t / BN * TM;  // first of this thread's TM rows in the tile
    const int col = t % BN;       // its column: neighbours in a warp are neighbours in B and C
    const int a_row = t / BK, a_k = t % BK;    // this thread's place in a sweep over the tile of A: BK threads a row
    const int b_row = t / BN, b_col = t % BN;  // and of B: BN threads a row

    float sum[TM] = {};
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
            const float b = Bs[k][col];  // loaded once, used TM times
            #pragma unroll
            for (int i = 0; i < TM; i++) sum[i] += As[row + i][k] * b;
        }
        __syncthreads();
    }

    #pragma unroll
    for (int i = 0; i < TM; i++) {
        const int r = block_row + row + i, c = block_col + col;
        if (r < M && c < N) {
            float* out = &C[(size_t)r * ldc + c];
            *out = beta == 0.0f ? alpha * sum[i] : alpha * sum[i] + beta * *out;
        }
    }
}
