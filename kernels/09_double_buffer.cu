// 09 double_buffer: fetch the next tiles while computing with these.
//
// What changed since 08, the same idea twice:
//   1. Shared memory holds two pairs of tiles. The loads of the next pair are issued before the arithmetic on this
//      one, into registers, and stored to the other buffer after it. Nobody waits for global memory, and one barrier
//      a step is enough: whoever writes buffer 1 knows that everybody has left it.
//   2. Registers hold two fragments. The shared loads for k + 1 are issued before the FMAs of k. With latency hidden
//      this way, 8 warps a multiprocessor do where 16 were needed, and a thread may use twice the registers: its tile
//      grows to 16 x 8, which takes 24 shared loads per 128 products instead of 32.
// What it saves: the latency of global and of shared memory, one barrier of two, a quarter of the shared loads.
// What it costs: twice the shared memory; registers for the tiles in flight (32 here) and the second fragment (24).

constexpr int BM = 128, BN = 128;  // tile of C per block
constexpr int BK = 16;             // step along K
constexpr int WM = 64, WN = 64;    // tile of C per warp
constexpr int TM = 16, TN = 8;     // tile of C per thread
constexpr int PAD = 4;             // floats; a multiple of 4 keeps 128-bit loads aligned
constexpr int LANES_M = WM / TM, LANES_N = WN / TN;              // lanes of a warp over its tile
constexpr int GROUP_M = WM / (TM / 4), GROUP_N = WN / (TN / 4);  // distance between a thread's groups of four
constexpr int WARPS_N = BN / WN;                                 // warps of a block along N
constexpr int THREADS = BM / WM * WARPS_N * 32;
constexpr int A_ROWS = THREADS / (BK / 4), B_ROWS = THREADS / (BN / 4);  // rows of each tile copied in one sweep

static_assert(BM % WM == 0 && BN % WN == 0, "WM must divide BM and WN must divide BN: warps tile the block's tile");
static_assert(WM % TM == 0 && WN % TN == 0 && LANES_M * LANES_N == 32, "32 thread tiles must make up a warp's tile");
static_assert(LANES_M % 2 == 0, "lanes are numbered in pairs of rows: LANES_M must be even");
static_assert(TM % 4 == 0 && TN % 4 == 0 && PAD % 4 == 0, "TM, TN and PAD must be multiples of 4 for 128-bit loads");
static_assert(BK % 4 == 0 && BN % 4 == 0, "BK and BN must be multiples of 4: rows are copied 128 bits at a time");
static_assert(THREADS <= 1024, "a block has at most 1024 threads: raise WM or WN");
static_assert(THREADS % (BK / 4) == 0 && BM % A_ROWS == 0, "the block must copy its tile of A in whole sweeps");
static_assert(THREADS % (BN / 4) == 0 && BK % B_ROWS == 0, "the block must copy its tile of B in whole sweeps");

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};

// Is every row of this matrix made of whole 16-byte pieces?
__device__ bool is_whole(const float* matrix, int ld, int cols) {
    return ((size_t)matrix % 16 | ld % 4 | cols % 4) == 0;
}

// The next four floats of a row that has `left` more; zeros past its end.
__device__ float4 load4(const float* from, int left, bool whole) {
    if (whole) return left > 0 ? *reinterpret_cast<const float4*>(from) : float4{};
    return {left > 0 ? from[0] : 0.0f, left > 1 ? from[1] : 0.0f, left > 2 ? from[2] : 0.0f, left > 3 ? from[3] : 0.0f};
}

extern "C" __global__ void __launch_bounds__(THREADS)
double_buffer(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb,
              float beta, float* C, int ldc) {
    __shared__ __align__(16) float As[2][BK][BM + PAD];
    __shared__ __align__(16) float Bs[2][BK][BN];

    const int t = threadIdx.x, warp = t / 32, lane = t % 32;
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    // Lanes are numbered down pairs of rows: 0 2 4 ... over 1 3 5 ... A half-warp then holds 2 x LANES_N lanes, and
    // neighbours share a column, so that the hardware serves it in one wavefront.
    const int lane_row = lane / (2 * LANES_N) * 2 + lane % 2, lane_col = lane / 2 % LANES_N;
    const int row = warp / WARPS_N * WM + lane_row * 4;  // first of its first four rows; the next are GROUP_M below
    const int col = warp % WARPS_N * WN + lane_col * 4;  // first of its first four columns; the next are GROUP_N right
    const int a_row = t / (BK / 4), a_k = t % (BK / 4) * 4;    // this thread's four floats in a sweep over A's tile
    const int b_row = t / (BN / 4), b_col = t % (BN / 4) * 4;  // and over B's
    const bool a_whole = is_whole(A, lda, K), b_whole = is_whole(B, ldb, N), c_whole = is_whole(C, ldc, N);

    float4 a_next[BM / A_ROWS], b_next[BK / B_ROWS];  // on the way from global to shared memory
    auto fetch = [&](int k0) {
        #pragma unroll
        for (int i = 0; i < BM / A_ROWS; i++) {
            const int r = block_row + a_row + i * A_ROWS, k = k0 + a_k;
            a_next[i] = load4(A + (size_t)r * lda + k, r < M ? K - k : 0, a_whole);
        }
        #pragma unroll
        for (int i = 0; i < BK / B_ROWS; i++) {
            const int k = k0 + b_row + i * B_ROWS, c = block_col + b_col;
            b_next[i] = load4(B + (size_t)k * ldb + c, k < K ? N - c : 0, b_whole);
        }
    };
    auto store = [&](int buffer) {
        #pragma unroll
        for (int i = 0; i < BM / A_ROWS; i++) {
            As[buffer][a_k + 0][a_row + i * A_ROWS] = a_next[i].x;
            As[buffer][a_k + 1][a_row + i * A_ROWS] = a_next[i].y;
            As[buffer][a_k + 2][a_row + i * A_ROWS] = a_next[i].z;
            As[buffer][a_k + 3][a_row + i * A_ROWS] = a_next[i].w;
        }
        #pragma unroll
        for (int i = 0; i < BK / B_ROWS; i++)
            *reinterpret_cast<float4*>(&Bs[buffer][b_row + i * B_ROWS][b_col]) = b_next[i];
    };

    float a[2][TM], b[2][TN];  // fragments: this k's and the next one's
    auto read = [&](int buffer, int k) {
        #pragma unroll
        for (int i = 0; i < TM; i++) a[k % 2][i] = As[buffer][k][row + i / 4 * GROUP_M + i % 4];
        #pragma unroll
        for (int j = 0; j < TN; j++) b[k % 2][j] = Bs[buffer][k][col + j / 4 * GROUP_N + j % 4];
    };

    float sum[TM][TN] = {};
    int buffer = 0;
    fetch(0);
    store(0);
    __syncthreads();
    for (int k0 = 0; k0 < K; k0 += BK) {
        fetch(k0 + BK);  // past the end of K this loads nothing
        read(buffer, 0);
        #pragma unroll
        for (int k = 0; k < BK; k++) {
            if (k + 1 < BK) read(buffer, k + 1);
            #pragma unroll
            for (int i = 0; i < TM; i++)
                #pragma unroll
                for (int j = 0; j < TN; j++) sum[i][j] += a[k % 2][i] * b[k % 2][j];
        }
        buffer ^= 1;
        store(buffer);
        __syncthreads();
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
