//! kind: change
//! title: Down a column
//! task: The tile of A is stored transposed here, As[k][row], and every store to As by a warp takes 32
//!     wavefronts, since its lanes go down one column. Get rid of the conflicts without changing what is fetched or
//!     computed, and without a byte more of shared memory: padding is not to be had here. The tile stays transposed: what
//!     has one k stays in one row of As, so that each load from it brings one float, 2 K shared loads per result in all.
//! hint: As has rows of 32 floats, as many as there are banks. So a column lies in one bank.
//! hint: Keep the rows as long as they are, and permute each of them in another way: element (k, row) may stand anywhere in row k, if all
//!     who look for it know where.
//! hint: row ^ k runs through all of 0 to 31 when k does. Put element (k, row) at As[k][row ^ k], and look for it there.
//! expect: bytes of shared memory per block <= 8192
//! expect: bank conflicts of shared stores == 0
//! expect: bank conflicts of shared loads == 0
//! expect: shared loads per result == 2 K
//! expect: sectors per load of A <= 4
//! expect: global loads per result <= 1/16 K
//! expect: shared stores per result == 1/16 K
//! fewer: The tile stays transposed: what has one k stays in one row of As, so that a load from it brings one float. Lying as in global memory
//!     it has no conflicts to get rid of.
//! after: Padding by one float, As[BK][BM + 1], does the same at the price of a column that nobody uses. This is the place for which it is
//!     meant: a warp that goes down a column.
constexpr int BM = 32;  // rows of C per block
constexpr int BN = 32;  // columns of C per block
constexpr int BK = 32;  // depth of the tiles

extern "C" __device__ constexpr int block_shape[] = {BN, BM, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};      // rows and columns of C per block

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void column_store(int M, int N, int K, float alpha, const float* A, int lda,
                                        const float* B, int ldb, float beta, float* C, int ldc) {
    __shared__ float As[BK][BM];
    __shared__ float Bs[BK][BN];

    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    const size_t row = blockIdx.y * BM + ty;
    const size_t col = blockIdx.x * BN + tx;

    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += BK) {
        const float a = row < M && k0 + tx < K ? A[row * lda + k0 + tx] : 0;
        //[solution
        As[tx][ty ^ tx] = a;
        //[starter
        //|As[tx][ty] = a;
        //]
        Bs[ty][tx] = k0 + ty < K && col < N ? B[size_t(k0 + ty) * ldb + col] : 0;
        __syncthreads();

        //[solution
        for (int k = 0; k < BK; k++) sum += As[k][ty ^ k] * Bs[k][tx];
        //[starter
        //|for (int k = 0; k < BK; k++) sum += As[k][ty] * Bs[k][tx];
        //]
        __syncthreads();
    }

    if (row >= M || col >= N) return;
    float& c = C[row * ldc + col];
    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
}
