// 06 bank_conflicts: lay out shared memory, and share out C, so that a warp's lanes meet 32 different banks.
//
// What changed since 05, twice:
//   1. A thread's TN columns are no longer neighbours but groups of four, BN / (TN / 4) apart. Eight threads side by
//      side (one phase of the load) then read 8 x 16 neighbouring bytes: no bank twice. With eight neighbours each,
//      they stood 32 bytes apart and met every second group of four banks twice.
//   2. The tile of A is stored transposed, As[k][row], so that a thread's TM rows at one k are neighbours: two
//      128-bit loads a step instead of eight rows of four k held in registers. Each row of As has PAD unused floats
//      at its end: the eight k that a warp stores side by side land 4 banks apart, not on one bank.
// What it saves: shared-load wavefronts, half of those for B. Costs: BK * PAD * 4 bytes of shared memory.

constexpr int BM = 128, BN = 128;  // tile of C per block
constexpr int BK = 8;              // step along K
constexpr int TM = 8, TN = 8;      // tile of C per thread
constexpr int PAD = 4;             // floats; a multiple of 4 keeps 128-bit loads aligned
constexpr int GROUP = BN / (TN / 4);  // distance between a thread's groups of four columns
constexpr int THREADS = BM / TM * (BN / TN);
constexpr int A_ROWS = THREADS / BK, B_ROWS = THREADS / BN;  // rows of each tile that the block copies in one sweep

static_assert(BM % TM == 0 && BN % TN == 0, "TM must divide BM and TN must divide BN: threads tile the block's tile");
static_assert(TM % 4 == 0 && TN % 4 == 0 && PAD % 4 == 0, "TM, TN and PAD must be multiples of 4 for 128-bit loads");
static_assert(THREADS <= 1024, "a block has at most 1024 threads: raise TM or TN");
static_assert(THREADS % BK == 0 && BM % A_ROWS == 0, "the block must copy its tile of A in whole sweeps");
static_assert(THREADS % BN == 0 && BK % B_ROWS == 0, "the block must copy its tile of B in whole sweeps");

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};

extern "C" __global__ void __launch_bounds__(THREADS)
bank_conflicts(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb,
               float beta, float* C, int ldc) {
    __shared__ __align__(16) float As[BK][BM + PAD];
    __shared__ __align__(16) float Bs[BK][BN];

    const int t = threadIdx.x;
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    const int row = t / (BN / TN) * TM;   // first of this thread's TM rows in the tile
    const int col = t % (BN / TN) * 4;    // first of its first four columns; the next four are at col + GROUP
    const int a_row = t / BK, a_k = t % BK;    // this thread's place in a sweep over the tile of A: BK threads a row
    const int b_row = t / BN, b_col = t % BN;  // and of B: BN threads a row

    float sum[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        #pragma unroll
        for (int i = 0; i < BM; i += A_ROWS) {
            const int r = block_row + a_row + i, k = k0 + a_k;
            As[a_k][a_row + i] = r < M && k < K ? A[(size_t)r * lda + k] : 0.0f;
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
            for (int i = 0; i < TM; i++) a[i] = As[k][row + i];
            #pragma unroll
            for (int j = 0; j < TN; j++) b[j] = Bs[k][col + j / 4 * GROUP + j % 4];
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
            const int r = block_row + row + i, c = block_col + col + j / 4 * GROUP + j % 4;
            if (r < M && c < N) {
                float* out = &C[(size_t)r * ldc + c];
                *out = beta == 0.0f ? alpha * sum[i][j] : alpha * sum[i][j] + beta * *out;
            }
        }
}
