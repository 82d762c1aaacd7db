//! kind: write
//! title: Two at a time
//! task: Write three things, for pieces of two floats (float2, 8 bytes): in_pairs, which says whether a matrix allows them; load2, which loads
//!     one; and the two fetches. Each thread brings one piece of A and one of B. It must be right for every matrix: 8 sectors per load where rows fit. What
//!     float4 asks of a matrix is more than float2 needs.
//! hint: An access of 8 bytes must begin at a multiple of 8. What does that ask of the matrix, of its leading dimension, of its width?
//! hint: A row of the tile of A has 8 pieces, one of B has 16. Thread t's piece of A is row t / 8, k t % 8 * 2; of B it is k t / 16, column t % 16 * 2.
//! hint: load2(from, left, whole): if whole, a float2 where left > 0; else from[0] where left > 0 and from[1] where left > 1. left is 0 for a row that
//!     does not exist.
//! expect: sectors per load of A == 8
//! expect: sectors per load of B == 8
//! expect: global loads per result == 1/32 K
//! expect: global loads per result where rows are 2 longer == 1/32 K
//! after: Half as wide, half as demanding: every even leading dimension will do. Libraries carry a kernel for each width, and ask before they choose.
constexpr int BM = 32, BN = 32, BK = 16;  // tile of C per block, and its step along K
constexpr int THREADS = 256;              // each has 2 x 2 results

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};

// Is every row of this matrix made of whole 8-byte pieces?
__device__ bool in_pairs(const float* matrix, int ld, int cols) {
    //[solution
    return (size_t)matrix % 8 == 0 && ld % 2 == 0 && cols % 2 == 0;
    //[starter
    //|return false;  // yours
    //]
}

// The next two floats of a row that has `left` more; zeros past its end.
__device__ float2 load2(const float* from, int left, bool whole) {
    //[solution
    if (whole) return left > 0 ? *reinterpret_cast<const float2*>(from) : float2{};
    return {left > 0 ? from[0] : 0, left > 1 ? from[1] : 0};
    //[starter
    //|return {0, 0};  // yours
    //]
}

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void __launch_bounds__(THREADS)
    two_at_a_time(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C,
                  int ldc) {
    __shared__ __align__(8) float As[BM][BK + 2];
    __shared__ __align__(8) float Bs[BK][BN];

    const int t = threadIdx.x;
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    const int row = t / 16 * 2, col = t % 16 * 2;  // this thread's square in the tile
    const bool a_pairs = in_pairs(A, lda, K), b_pairs = in_pairs(B, ldb, N);

    float sum[2][2] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        //[solution
        {
            const int i = t / (BK / 2), q = t % (BK / 2) * 2, r = block_row + i, k = k0 + q;
            *reinterpret_cast<float2*>(&As[i][q]) = load2(A + size_t(r) * lda + k, r < M ? K - k : 0, a_pairs);
        }
        {
            const int i = t / (BN / 2), q = t % (BN / 2) * 2, k = k0 + i, c = block_col + q;
            *reinterpret_cast<float2*>(&Bs[i][q]) = load2(B + size_t(k) * ldb + c, k < K ? N - c : 0, b_pairs);
        }
        //[starter
        //|// Yours: one piece of A to As, one piece of B to Bs.
        //]
        __syncthreads();
        for (int k = 0; k < BK; k++)
            for (int i = 0; i < 2; i++)
                for (int j = 0; j < 2; j++) sum[i][j] += As[row + i][k] * Bs[k][col + j];
        __syncthreads();
    }

    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) {
            const int r = block_row + row + i, c = block_col + col + j;
            if (r >= M || c >= N) continue;
            float& out = C[size_t(r) * ldc + c];
            out = beta == 0 ? alpha * sum[i][j] : alpha * sum[i][j] + beta * out;
        }
}
