// 10 async_copy: copies from global to shared memory that no thread waits for, several tiles ahead.
//
// What changed since 09: cp.async (Ampere and later) moves data without passing through registers, so the next tiles
//   need no registers and no store instructions, and STAGES - 1 pairs of them can be under way. Past the edge of a
//   matrix the copy writes zeros. A still has to be transposed on its way. cp.async copies bytes in order, so A goes
//   one float at a time, from any alignment; B goes 128 bits at a time where its rows allow.
// What it saves: the 32 registers of tiles in flight, and the stores to shared memory.
// What it costs: STAGES pairs of tiles in shared memory, more than the 48 KB that need no permission: dynamic_shared.

constexpr int BM = 128, BN = 128;  // tile of C per block
constexpr int BK = 16;             // step along K
constexpr int WM = 64, WN = 64;    // tile of C per warp
constexpr int TM = 16, TN = 8;     // tile of C per thread
constexpr int STAGES = 3;          // pairs of tiles in shared memory
constexpr int PAD = 4;             // floats; a multiple of 4 keeps 128-bit loads aligned
constexpr int LANES_M = WM / TM, LANES_N = WN / TN;              // lanes of a warp over its tile
constexpr int GROUP_M = WM / (TM / 4), GROUP_N = WN / (TN / 4);  // distance between a thread's groups of four
constexpr int WARPS_N = BN / WN;                                 // warps of a block along N
constexpr int THREADS = BM / WM * WARPS_N * 32;
constexpr int A_ROWS = THREADS / BK, B_ROWS = THREADS / (BN / 4);  // rows of each tile copied in one sweep

static_assert(BM % WM == 0 && BN % WN == 0, "WM must divide BM and WN must divide BN: warps tile the block's tile");
static_assert(WM % TM == 0 && WN % TN == 0 && LANES_M * LANES_N == 32, "32 thread tiles must make up a warp's tile");
static_assert(LANES_M % 2 == 0, "lanes are numbered in pairs of rows: LANES_M must be even");
static_assert(TM % 4 == 0 && TN % 4 == 0 && PAD % 4 == 0, "TM, TN and PAD must be multiples of 4 for 128-bit loads");
static_assert(BN % 4 == 0, "BN must be a multiple of 4: rows of B are copied 128 bits at a time");
static_assert(STAGES >= 2, "one stage is read while another is written: STAGES must be at least 2");
static_assert(THREADS <= 1024, "a block has at most 1024 threads: raise WM or WN");
static_assert(THREADS % BK == 0 && BM % A_ROWS == 0, "the block must copy its tile of A in whole sweeps");
static_assert(THREADS % (BN / 4) == 0 && BK % B_ROWS == 0, "the block must copy its tile of B in whole sweeps");

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};

struct Stage {
    float A[BK][BM + PAD];  // transposed
    float B[BK][BN];
};
extern "C" __device__ constexpr int dynamic_shared[] = {STAGES * sizeof(Stage)};

// Start to copy one float, or four, from global to shared memory; write zeros instead if not `inside` the matrix.
__device__ void copy1(float* to, const float* from, bool inside) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(inside ? 4 : 0));
}
__device__ void copy4(float* to, const float* from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(inside ? 16 : 0));
}
// What was started since the last commit is a group; wait<N> waits for all groups but the last N.
__device__ void commit() { asm volatile("cp.async.commit_group;"); }
template <int N> __device__ void wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }

extern "C" __global__ void __launch_bounds__(THREADS)
async_copy(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb,
           float beta, float* C, int ldc) {
    extern __shared__ __align__(16) unsigned char shared[];
    Stage* stages = reinterpret_cast<Stage*>(shared);

    const int t = threadIdx.x, warp = t / 32, lane = t % 32;
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    // Lanes are numbered down pairs of rows: 0 2 4 ... over 1 3 5 ... A half-warp then holds 2 x LANES_N lanes, and
    // neighbours share a column, so that the hardware serves it in one wavefront.
    const int lane_row = lane / (2 * LANES_N) * 2 + lane % 2, lane_col = lane / 2 % LANES_N;
    const int row = warp / WARPS_N * WM + lane_row * 4;  // first of its first four rows; the next are GROUP_M below
    const int col = warp % WARPS_N * WN + lane_col * 4;  // first of its first four columns; the next are GROUP_N right
    const int a_row = t / BK, a_k = t % BK;                    // this thread's float in a sweep over A's tile
    const int b_row = t / (BN / 4), b_col = t % (BN / 4) * 4;  // and its four in a sweep over B's
    const bool b_whole = ((size_t)B % 16 | ldb % 4 | N % 4) == 0;  // rows of B are whole 16-byte pieces
    const bool c_whole = ((size_t)C % 16 | ldc % 4 | N % 4) == 0;

    const float* a_from = A + (size_t)(block_row + a_row) * lda + a_k;  // where the next tiles to fetch start for it
    const float* b_from = B + (size_t)b_row * ldb + block_col + b_col;
    auto fetch = [&](Stage& stage, int k0) {
        const int a_left = k0 + a_k < K ? M - block_row - a_row : 0;    // rows of A from here to its edge
        const int b_left = block_col + b_col < N ? K - k0 - b_row : 0;  // and of B
        #pragma unroll
        for (int i = 0; i < BM; i += A_ROWS) copy1(&stage.A[a_k][a_row + i], a_from + i * (size_t)lda, i < a_left);
        if (b_whole) {
            #pragma unroll
            for (int i = 0; i < BK; i += B_ROWS)
                copy4(&stage.B[b_row + i][b_col], b_from + i * (size_t)ldb, i < b_left);
        } else {
            #pragma unroll
            for (int i = 0; i < BK; i += B_ROWS)
                #pragma unroll
                for (int q = 0; q < 4; q++)
                    copy1(&stage.B[b_row + i][b_col + q], b_from + i * (size_t)ldb + q,
                          i < b_left && block_col + b_col + q < N);
        }
        a_from += BK;
        b_from += BK * (size_t)ldb;
    };
    float a[2][TM], b[2][TN];  // fragments: this k's and the next one's
    auto read = [&](const Stage& stage, int k) {
        #pragma unroll
        for (int i = 0; i < TM; i++) a[k % 2][i] = stage.A[k][row + i / 4 * GROUP_M + i % 4];
        #pragma unroll
        for (int j = 0; j < TN; j++) b[k % 2][j] = stage.B[k][col + j / 4 * GROUP_N + j % 4];
    };

    #pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        fetch(stages[s], s * BK);
        commit();
    }
    float sum[TM][TN] = {};
    int stage = 0, free_stage = STAGES - 1;
    for (int k0 = 0; k0 < K; k0 += BK) {
        wait<STAGES - 2>();  // this step's tiles have arrived, for this thread
        __syncthreads();     // for all threads; and all have left the stage of the step before
        read(stages[stage], 0);
        fetch(stages[free_stage], k0 + (STAGES - 1) * BK);
        commit();            // past the end of K too, where the copies are zeros: the count of groups stays right
        #pragma unroll
        for (int k = 0; k < BK; k++) {
            if (k + 1 < BK) read(stages[stage], k + 1);
            #pragma unroll
            for (int i = 0; i < TM; i++)
                #pragma unroll
                for (int j = 0; j < TN; j++) sum[i][j] += a[k % 2][i] * b[k % 2][j];
        }
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        free_stage = free_stage + 1 == STAGES ? 0 : free_stage + 1;
    }

    #pragma unroll
    for (int i = 0; i < TM; i++)
        #pragma unroll
        for (int j = 0; j < TN; j += 4) {
            const int r = block_row + row + i / 4 * GROUP_M + i % 4, c = block_col + col + j / 4 * GROUP_N;
            if (r >= M) continue;
            float* out = &C[(size_t)r * ldc + c];
            if (c_whole && c < N) {
                float4 v = {alpha * sum[i][j], alpha * sum[i][j + 1], alpha * sum[i][j + 2], alpha * sum[i][j + 3]};
                if (beta != 0.0f) {
                    const float4 old = *reinterpret_cast<const float4*>(out);
                    v.x += beta * old.x, v.y += beta * old.y, v.z += beta * old.z, v.w += beta * old.w;
                }
                *reinterpret_cast<float4*>(out) = v;
            } else {
                #pragma unroll
                for (int q = 0; q < 4; q++)
                    if (c + q < N)
                        out[q] = beta == 0.0f ? alpha * sum[i][j + q] : alpha * sum[i][j + q] + beta * out[q];
            }
        }
}
