//! kind: write
//! title: Half fetch A, half fetch B
//! task: Write the loop over the tiles. The block computes 16 x 16 results, and its tiles are 8 deep: 128 elements of A and 128 of B for 256
//!     threads. So each thread fetches one element of one of the two. At most K/8 global loads per result, of
//!     no more than 4 sectors each, one barrier for each 4 k, and no bank conflict when the tiles are read. A load counts in full also where
//!     only half of a warp executes it: let whole warps fetch A, and others B.
//! hint: Threads 0 to 127 fill As, the others Bs. In As 8 neighbouring threads share a row, in Bs 16 do.
//! hint: Fetch, barrier, 8 products from the tiles, barrier. What lies outside A or B is a zero in the tile, and all threads run the whole loop.
//! hint: For t < 128: row t / BK and k t % BK of As; for the others, with u = t - 128: k u / BN and column u % BN of Bs. Both need two conditions.
//! expect: global loads per result <= 1/8 K
//! expect: sectors per load of A <= 4
//! expect: sectors per load of B <= 4
//! expect: barriers per warp <= 1/4 K
//! expect: bank conflicts of shared loads == 0
//! after: No warp is in both halves, so that no warp executes both branches. Who fetches what is free: only the tiles must be complete.
constexpr int BM = 16;  // rows of C per block
constexpr int BN = 16;  // columns of C per block
constexpr int BK = 8;   // depth of the tiles

extern "C" __device__ constexpr int block_shape[] = {BN, BM, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};      // rows and columns of C per block

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void __launch_bounds__(BM * BN)
    half_and_half(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta,
                  float* C, int ldc) {
    __shared__ float As[BM][BK];
    __shared__ float Bs[BK][BN];

    const int tx = threadIdx.x, ty = threadIdx.y, t = ty * BN + tx;  // t in [0, 255]
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;

    float sum = 0;
    //[solution
    for (int k0 = 0; k0 < K; k0 += BK) {
        if (t < BM * BK) {
            const int i = t / BK, k = t % BK;
            As[i][k] = block_row + i < M && k0 + k < K ? A[size_t(block_row + i) * lda + k0 + k] : 0;
        } else {
            const int u = t - BM * BK, k = u / BN, j = u % BN;
            Bs[k][j] = k0 + k < K && block_col + j < N ? B[size_t(k0 + k) * ldb + block_col + j] : 0;
        }
        __syncthreads();
        for (int k = 0; k < BK; k++) sum += As[ty][k] * Bs[k][tx];
        __syncthreads();
    }
    //[starter
    //|// Yours: the loop over the tiles. It fills As and Bs and adds to sum.
    //]

    const size_t row = block_row + ty, col = block_col + tx;
    if (row >= M || col >= N) return;
    float& c = C[row * ldc + col];
    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
}
