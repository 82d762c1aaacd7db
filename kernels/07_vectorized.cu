// 07 vectorized: 128 bits per access, global memory included.
//
// What changed since 06: A and B come, and C goes, four floats at a time. Shared loads were 128 bits wide already
//   (ptxas saw to it); global accesses cannot be widened for us, because the compiler does not know that a row starts
//   at a multiple of 16 bytes.
// What it saves: three quarters of the global load and store instructions and of their address arithmetic. Not bytes:
//   the loads touch as many sectors. BK doubles: four threads then copy 64 neighbouring bytes of a row of A, and there
//   are half as many barriers.
// What it costs: alignment. A matrix whose rows are not whole 16-byte pieces (its address, its leading dimension or
//   its width says so) takes the path of single floats. Nothing fails; it is slower.

constexpr int BM = 128, BN = 128;  // tile of C per block
constexpr int BK = 16;             // step along K
constexpr int TM = 8, TN = 8;      // tile of C per thread
constexpr int PAD = 4;             // floats; a multiple of 4 keeps 128-bit loads aligned
constexpr int GROUP = BN / (TN / 4);  // distance between a thread's groups of four columns
constexpr int THREADS = BM / TM * (BN / TN);
constexpr int A_ROWS = THREADS / (BK / 4), B_ROWS = THREADS / (BN / 4);  // rows of each tile copied in one sweep

static_assert(BM % TM == 0 && BN % TN == 0, "TM must divide BM and TN must divide BN: threads tile the block's tile");
static_assert(TM % 4 == 0 && TN % 4 == 0 && PAD % 4 == 0, "TM, TN and PAD must be multiples of 4 for 128-bit loads");
static_assert(BK % 4 == 0 && BN % 4 == 0, "BK and BN must be multiples of 4: rows are copied 128 bits at a time");
static_assert(THREADS <= 1024, "a block has at most 1024 threads: raise TM or TN");
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
vectorized(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb,
           float beta, float* C, int ldc) {
    __shared__ __align__(16) float As[BK][BM + PAD];
    __shared__ __align__(16) float Bs[BK][BN];

    const int t = threadIdx.x;
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    const int row = t / (BN / TN) * TM;   // first of this thread's TM rows in the tile
    const int col = t % (BN / TN) * 4;    // first of its first four columns; the next four are at col + GROUP
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
    auto store = [&]() {
        #pragma unroll
        for (int i = 0; i < BM / A_ROWS; i++) {
            As[a_k + 0][a_row + i * A_ROWS] = a_next[i].x;
            As[a_k + 1][a_row + i * A_ROWS] = a_next[i].y;
            As[a_k + 2][a_row + i * A_ROWS] = a_next[i].z;
            As[a_k + 3][a_row + i * A_ROWS] = a_next[i].w;
        }
        #pragma unroll
        for (int i = 0; i < BK / B_ROWS; i++)
            *reinterpret_cast<float4*>(&Bs[b_row + i * B_ROWS][b_col]) = b_next[i];
    };

    float sum[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        fetch(k0);
        store();
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
        for (int j = 0; j < TN; j += 4) {
            const int r = block_row + row + i, c = block_col + col + j / 4 * GROUP;
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
