//! kind: diagnose
//! title: The guard that a published kernel forgot
//! task: This guards rows and columns, as many published tiled kernels do, and is right whenever K is a multiple of
//!     its tile. Find out what it reads when K is 33, and repair it. The tiles stay 64 deep: two barriers for each 64 k.
//! hint: The last tile along K sticks out over the right edge of A and over the lower edge of B.
//! hint: Past the right edge of A its next row begins: no error, just wrong numbers. Past the last row of B there
//!     is nothing.
//! hint: Each of the two loads needs a second condition: a_k < K for A, b_k < K for B.
//! expect: global loads per result <= 1/16 K
//! expect: barriers per warp <= 1/32 K
//! after: One of the two guards would be enough for the sum: anything times 0 is 0, unless it is NaN or infinite.
//!     For the memory both are needed: what lies outside is not yours to read.
constexpr int BM = 32;  // rows of C per block
constexpr int BN = 32;  // columns of C per block
constexpr int BK = 64;  // depth of the tiles: two elements of each for every thread

extern "C" __device__ constexpr int block_shape[] = {BN, BM, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};      // rows and columns of C per block

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void k_guard(int M, int N, int K, float alpha, const float* A, int lda,
                                   const float* B, int ldb, float beta, float* C, int ldc) {
    __shared__ float As[BM][BK];
    __shared__ float Bs[BK][BN];

    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    const size_t row = blockIdx.y * BM + ty;
    const size_t col = blockIdx.x * BN + tx;

    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int half = 0; half < BK; half += BK / 2) {
            const int a_k = k0 + half + tx, b_k = k0 + half + ty;
            //[solution
            As[ty][half + tx] = row < M && a_k < K ? A[row * lda + a_k] : 0;
            Bs[half + ty][tx] = b_k < K && col < N ? B[size_t(b_k) * ldb + col] : 0;
            //[starter
            //|As[ty][half + tx] = row < M ? A[row * lda + a_k] : 0;
            //|Bs[half + ty][tx] = col < N ? B[size_t(b_k) * ldb + col] : 0;
            //]
        }
        __syncthreads();

        for (int k = 0; k < BK; k++) {
            const float a = As[ty][k];
            const float b = Bs[k][tx];
            sum += a * b;
        }
        __syncthreads();
    }

    if (row >= M || col >= N) return;
    float& c = C[row * ldc + col];
    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
}
