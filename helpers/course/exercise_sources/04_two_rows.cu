//! kind: change
//! title: Two rows
//! task: Each thread computes one element of C. Let it compute two, in two rows of a 64 x 32 tile, so that every
//!     value it reads from Bs serves twice. The block keeps its 32 x 32 threads. At most 3/4 K shared loads per result, as they are executed
//!     (the compiler merges four neighbours), without bank conflicts.
//! hint: The tile of C has 64 rows now (BM), and so has As; the block stays at 32 x 32 threads, so each thread
//!     fetches two elements of A: rows ty and ty + 32.
//! hint: Keep sum0 and sum1. In the inner loop read b once, and the two values of A.
//! hint: At the end there are two elements to store, and each has its own guard: the second row may lie outside C
//!     where the first does not.
//! given: block and tile
//! expect: shared loads per result <= 3/4 K
//! expect: global loads per result <= 3/64 K
//! expect: bank conflicts of shared loads == 0
//! after: b was read for two results, and the larger tile saved global loads besides. TM of the lesson is this 2.
//[solution
constexpr int BM = 64;  // rows of C per block
//[starter
//|constexpr int BM = 32;  // rows of C per block
//]
constexpr int BN = 32;  // columns of C per block
constexpr int BK = 32;  // depth of the tiles

extern "C" __device__ constexpr int block_shape[] = {BN, 32, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};      // rows and columns of C per block

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void __launch_bounds__(1024)
    two_rows(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C,
             int ldc) {
    __shared__ float As[BM][BK];
    __shared__ float Bs[BK][BN];

    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    const size_t row = blockIdx.y * BM + ty;
    const size_t col = blockIdx.x * BN + tx;

    //[solution
    float sum0 = 0, sum1 = 0;
    for (int k0 = 0; k0 < K; k0 += BK) {
        As[ty][tx] = row < M && k0 + tx < K ? A[row * lda + k0 + tx] : 0;
        As[ty + 32][tx] = row + 32 < M && k0 + tx < K ? A[(row + 32) * lda + k0 + tx] : 0;
    //[starter
    //|float sum = 0;
    //|for (int k0 = 0; k0 < K; k0 += BK) {
    //|    As[ty][tx] = row < M && k0 + tx < K ? A[row * lda + k0 + tx] : 0;
    //]
        Bs[ty][tx] = k0 + ty < K && col < N ? B[size_t(k0 + ty) * ldb + col] : 0;
        __syncthreads();

        for (int k = 0; k < BK; k++) {
            const float b = Bs[k][tx];
            //[solution
            sum0 += As[ty][k] * b;
            sum1 += As[ty + 32][k] * b;
            //[starter
            //|sum += As[ty][k] * b;
            //]
        }
        __syncthreads();
    }

    if (row >= M || col >= N) return;
    float& c = C[row * ldc + col];
    //[solution
    c = beta == 0 ? alpha * sum0 : alpha * sum0 + beta * c;
    if (row + 32 >= M) return;
    float& d = C[(row + 32) * ldc + col];
    d = beta == 0 ? alpha * sum1 : alpha * sum1 + beta * d;
    //[starter
    //|c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
    //]
}
