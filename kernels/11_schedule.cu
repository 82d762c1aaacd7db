// 11 schedule: the kernel of step 10, and nothing but the order of its instructions.
//
// What changed since 10:
//   1. Copies: a thread starts them a few at a time along k, so that they do not queue in front of shared loads.
//   2. Fragments are read across the tile's edge: the first k of the next tile before the FMAs of this one's last k.
//   3. The outer product goes back and forth, the short side inside. All FMAs of a k but the first share an operand
//      with the one before, at the turns too, and take it from the operand reuse cache. An FMA reads three registers,
//      and the two banks of the register file deliver two a cycle: without reuse, an FMA would last a cycle and a half.
//   4. Copies beyond the last row or column repeat that row or column, and nobody keeps the results: nothing is left
//      to check in the loop but k. Two versions of the code, one for aligned rows of B, instead of a branch in it.
//   5. One block of 8 warps in place of two of 4: the tile is twice as high. And lanes are numbered down columns: more
//      wavefronts for each shared load than in step 10, which is not what this kernel waits for.
//   The order of the blocks (PANEL) and the batch (blockIdx.z) belong to step 12. They stand here because the compiler
//   schedules a kernel as a whole: without those lines it makes another main loop of the same text.
//
// What it saves: cycles without an FMA. What it costs: a schedule for one compiler and one chip.

constexpr int BM = 256, BN = 128;  // tile of C per block
constexpr int BK = 16;             // step along K
constexpr int WM = 64, WN = 64;    // tile of C per warp
constexpr int TM = 16, TN = 8;     // tile of C per thread
constexpr int STAGES = 3;          // pairs of tiles in shared memory
constexpr int FIRST = 2, EVERY = 1, AT_ONCE = 3;  // the k at which a thread issues copies, and how many together
constexpr int PANEL = 8;           // rows of tiles in a panel
constexpr int PAD = 4;             // floats; a multiple of 4 keeps 128-bit loads aligned
constexpr int LANES_M = WM / TM, LANES_N = WN / TN;              // lanes of a warp over its tile
constexpr int GROUP_M = WM / (TM / 4), GROUP_N = WN / (TN / 4);  // distance between a thread's groups of four
constexpr int WARPS_N = BN / WN;                                 // warps of a block along N
constexpr int THREADS = BM / WM * WARPS_N * 32;
constexpr int RESIDENT = THREADS <= 128 ? 2 : 1;                 // blocks per multiprocessor: 8 warps in all
constexpr int A_LANES = 8;                                       // threads along a row of A: 32 bytes, one sector
constexpr int A_ROWS = THREADS / A_LANES, B_ROWS = THREADS / (BN / 4);  // rows of each tile copied in one sweep
constexpr int A_COPIES = BM / A_ROWS * (BK / A_LANES), B_COPIES = BK / B_ROWS;  // copies per thread and tile

static_assert(BM % WM == 0 && BN % WN == 0, "WM must divide BM and WN must divide BN: warps tile the block's tile");
static_assert(WM % TM == 0 && WN % TN == 0 && LANES_M * LANES_N == 32, "32 thread tiles must make up a warp's tile");
static_assert(TM % 4 == 0 && TN % 4 == 0 && PAD % 4 == 0, "TM, TN and PAD must be multiples of 4 for 128-bit loads");
static_assert(BN % 4 == 0, "BN must be a multiple of 4: rows of B are copied 128 bits at a time");
static_assert(BK % A_LANES == 0, "BK must be a multiple of A_LANES");
static_assert(FIRST + (A_COPIES + B_COPIES - 1) / AT_ONCE * EVERY < BK,
              "a tile's copies must all be issued within BK: lower FIRST or EVERY, or raise AT_ONCE");
static_assert(STAGES >= 2, "one stage is read while another is written: STAGES must be at least 2");
static_assert(THREADS <= 1024, "a block has at most 1024 threads: raise WM or WN");
static_assert(BM % A_ROWS == 0, "the block must copy its tile of A in whole sweeps");
static_assert(THREADS % (BN / 4) == 0 && BK % B_ROWS == 0, "the block must copy its tile of B in whole sweeps");

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};
extern "C" __device__ constexpr int grid_depth[] = {1};  // a deeper grid computes a batch: see step 12

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
// Four floats from shared memory in one load.
__device__ void load4(float* to, const float* from) {
    *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(from);
}
// What was started since the last commit is a group; wait<N> waits for all groups but the last N.
__device__ void commit() { asm volatile("cp.async.commit_group;"); }
template <int N> __device__ void wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }

// The whole kernel. FAST: rows of B are whole 16-byte pieces, and an Offset of 32 bits reaches all rows of a tile.
template <bool FAST, typename Offset>
__device__ void gemm(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb,
                     float beta, float* C, int ldc) {
    extern __shared__ __align__(16) unsigned char shared[];
    Stage* stages = reinterpret_cast<Stage*>(shared);

    const int t = threadIdx.x, warp = t / 32, lane = t % 32;
    const int lane_row = lane % LANES_M, lane_col = lane / LANES_M;
    const int row = warp / WARPS_N * WM + lane_row * 4;  // first of its first four rows; the next are GROUP_M below
    const int col = warp % WARPS_N * WN + lane_col * 4;  // first of its first four columns; the next are GROUP_N right

    // The blocks, in the order in which they start, walk down the columns of a panel, then on to the next panel.
    const int block = blockIdx.y * gridDim.x + blockIdx.x, panel = block / (PANEL * gridDim.x) * PANEL;
    const int height = min(PANEL, (int)gridDim.y - panel), place = block % (PANEL * gridDim.x);
    const int block_row = (panel + place % height) * BM, block_col = place / height * BN;

    A += (size_t)blockIdx.z * M * lda;  // the product of a batch that this block works on
    B += (size_t)blockIdx.z * K * ldb;
    const int a_row = t / A_LANES, a_k = t % A_LANES;          // this thread's float in a sweep over A's tile
    const int b_row = t / (BN / 4), b_col = t % (BN / 4) * 4;  // and its four in a sweep over B's
    const float* a_from = A + (size_t)block_row * lda + a_k;   // both move down K, tile by tile
    const int b_edge = min(block_col + b_col, FAST ? N - 4 : N - 1);
    const float* b_from = B + (size_t)b_row * ldb + b_edge;
    Offset a_offset[BM / A_ROWS];
    #pragma unroll
    for (int i = 0; i < BM / A_ROWS; i++) a_offset[i] = min(a_row + i * A_ROWS, M - 1 - block_row) * (Offset)lda;

    auto copy = [&](Stage& stage, int n, int left) {  // the n-th copy of a tile that begins `left` before the end of K
        if (n >= A_COPIES) {
            n -= A_COPIES;
            float* to = &stage.B[b_row + n * B_ROWS][b_col];
            const float* from = b_from + n * B_ROWS * (Offset)ldb;
            if (FAST) {
                copy4(to, from, b_row + n * B_ROWS < left);
            } else {
                #pragma unroll
                for (int q = 0; q < 4; q++) copy1(to + q, from + min(q, N - 1 - b_edge), b_row + n * B_ROWS < left);
            }
        } else {
            const int i = n / (BK / A_LANES), k = n % (BK / A_LANES) * A_LANES;
            copy1(&stage.A[a_k + k][a_row + i * A_ROWS], a_from + a_offset[i] + k, a_k + k < left);
        }
    };
    auto next_tile = [&]() {
        a_from += BK;
        b_from += BK * (size_t)ldb;
    };
    float a[2][TM], b[2][TN];  // fragments: this k's and the next one's
    auto read = [&](const Stage& stage, int k) {
        #pragma unroll
        for (int j = 0; j < TN; j += 4) load4(&b[k % 2][j], &stage.B[k][col + j / 4 * GROUP_N]);
        #pragma unroll
        for (int i = 0; i < TM; i += 4) load4(&a[k % 2][i], &stage.A[k][row + i / 4 * GROUP_M]);
    };

    #pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        #pragma unroll
        for (int n = 0; n < A_COPIES + B_COPIES; n++) copy(stages[s], n, K - s * BK);
        commit();
        next_tile();
    }
    wait<STAGES - 2>();
    __syncthreads();
    read(stages[0], 0);

    float sum[TM][TN] = {};
    int now = 0, free = STAGES - 1;  // the stage to compute with and the stage to fill
    for (int k0 = 0; k0 < K; k0 += BK) {
        const int next = now + 1 == STAGES ? 0 : now + 1;
        #pragma unroll
        for (int k = 0; k < BK; k++) {
            if (k >= FIRST && (k - FIRST) % EVERY == 0) {
                #pragma unroll
                for (int n = (k - FIRST) / EVERY * AT_ONCE; n < (k - FIRST) / EVERY * AT_ONCE + AT_ONCE; n++)
                    if (n < A_COPIES + B_COPIES) copy(stages[free], n, K - k0 - (STAGES - 1) * BK);
            }
            if (k == BK - 1) {
                commit();
                next_tile();
                wait<STAGES - 2>();  // the next tiles have arrived, for this thread
                __syncthreads();     // for all threads; and all have left the stage before
            }
            if (k + 1 < BK) read(stages[now], k + 1);
            else read(stages[next], 0);

            constexpr int LONG = TM > TN ? TM : TN, SHORT = TM > TN ? TN : TM;
            #pragma unroll
            for (int x = 0; x < LONG; x++)
                #pragma unroll
                for (int y = 0; y < SHORT; y++) {
                    const int z = x % 2 ? SHORT - 1 - y : y;
                    const int i = TM > TN ? x : z, j = TM > TN ? z : x;
                    sum[i][j] += a[k % 2][i] * b[k % 2][j];
                }
        }
        free = now;
        now = next;
    }

    C += (size_t)blockIdx.z * M * ldc;
    const bool c_whole = ((size_t)C % 16 | ldc % 4 | N % 4) == 0;
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

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
schedule(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb,
         float beta, float* C, int ldc) {
    const bool whole = ((size_t)B % 16 | ldb % 4 | N % 4) == 0, near = max(lda, ldb) < (1u << 31) / max(BM, BK);
    if (whole && near) gemm<true, unsigned>(M, N, K, alpha, A, lda, B, ldb, beta, C, ldc);
    else gemm<false, size_t>(M, N, K, alpha, A, lda, B, ldb, beta, C, ldc);
}
