//! kind: diagnose
//! title: One barrier too few
//! task: On many GPUs this kernel gives the right answer most of the time. check() names two lines that disturb
//!     each other. Say which thread can overtake which, and repair it.
//! hint: A finding names a line that reads shared memory and one that writes it, with no barrier between them.
//!     Between which two moments is that?
//! hint: A fast warp finishes its sum, goes round the loop, and stores its part of the next tile, while a slow warp
//!     is still reading the present one.
//! hint: Nobody may store before everybody has read: a second __syncthreads() at the end of the loop body.
//! expect: global loads per result <= 1/16 K
//! expect: barriers per warp <= 1/16 K
//! after: A race need not show in the result, on this run, on this GPU. Only the order that the barriers guarantee
//!     counts.
constexpr int BM = 32;  // rows of C per block
constexpr int BN = 32;  // columns of C per block
constexpr int BK = 32;  // depth of the tiles

extern "C" __device__ constexpr int block_shape[] = {BN, BM, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};      // rows and columns of C per block

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void second_barrier(int M, int N, int K, float alpha, const float* A, int lda,
                                          const float* B, int ldb, float beta, float* C, int ldc) {
    __shared__ float As[BM][BK];
    __shared__ float Bs[BK][BN];

    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    const size_t row = blockIdx.y * BM + ty;
    const size_t col = blockIdx.x * BN + tx;

    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += BK) {
        As[ty][tx] = row < M && k0 + tx < K ? A[row * lda + k0 + tx] : 0;
        Bs[ty][tx] = k0 + ty < K && col < N ? B[size_t(k0 + ty) * ldb + col] : 0;
        __syncthreads();

        for (int k = 0; k < BK; k++) {
            const float a = As[ty][k];
            const float b = Bs[k][tx];
            sum += a * b;
        }
        //[solution
        __syncthreads();
        //[starter
        //]
    }

    if (row >= M || col >= N) return;
    float& c = C[row * ldc + col];
    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
}
