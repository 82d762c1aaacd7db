//! kind: change
//! title: Four at a time
//! task: A is copied 128 bits at a time, B float by float. Copy B with load4 as well: its tile has 16 rows of 64
//!     floats, so each of the 256 threads has just one piece of four to bring. Only the stores to As may have bank conflicts.
//! hint: Sixteen threads make a row of the tile. Which row and which four columns are thread t's?
//! hint: load4 wants the address, how many floats the row of B still has from there (none if the row does not
//!     exist), and b_whole.
//! hint: Bs[i][q] with q a multiple of 4 is aligned, because Bs is and its rows have 64 floats. So the store can be
//!     a float4 too.
//! given: block and tile
//! expect: sectors per load of B == 16
//! expect: global loads per result <= 1/128 K
//! expect: bank conflicts of shared loads == 0
//! expect: bank conflicts of shared stores of each warp <= 1/4 K
//! after: A quarter of the requests with four times the sectors each. The bytes are the same; what is saved are
//!     instructions.
constexpr int BM = 64, BN = 64, BK = 16;  // tile of C per block, and its step along K
constexpr int TM = 4, TN = 4;             // tile of C per thread
constexpr int THREADS = 256;

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
four_at_a_time(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb,
               float beta, float* C, int ldc) {
    __shared__ __align__(16) float As[BK][BM + 4];
    __shared__ __align__(16) float Bs[BK][BN];

    const int t = threadIdx.x;
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    const int row = t / 16 * TM, col = t % 16 * TN;  // this thread's square in the tile
    const bool a_whole = is_whole(A, lda, K), b_whole = is_whole(B, ldb, N);

    float sum[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        {
            const int i = t / (BK / 4), q = t % (BK / 4) * 4, r = block_row + i, k = k0 + q;
            const float4 v = load4(A + (size_t)r * lda + k, r < M ? K - k : 0, a_whole);
            As[q][i] = v.x, As[q + 1][i] = v.y, As[q + 2][i] = v.z, As[q + 3][i] = v.w;
        }
        //[solution
        {
            const int i = t / (BN / 4), q = t % (BN / 4) * 4, k = k0 + i, c = block_col + q;
            *reinterpret_cast<float4*>(&Bs[i][q]) = load4(B + (size_t)k * ldb + c, k < K ? N - c : 0, b_whole);
        }
        //[starter
        //|#pragma unroll
        //|for (int i = t / BN; i < BK; i += THREADS / BN) {
        //|    const int k = k0 + i, c = block_col + t % BN;
        //|    Bs[i][t % BN] = k < K && c < N ? B[(size_t)k * ldb + c] : 0.0f;
        //|}
        //]
        __syncthreads();

        #pragma unroll
        for (int k = 0; k < BK; k++) {
            float a[TM], b[TN];
            #pragma unroll
            for (int i = 0; i < TM; i++) a[i] = As[k][row + i];
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
