//! kind: diagnose
//! title: Leaving too early
//! task: The guard stands where it stood in steps 01 and 02, before the loop. Now it is wrong. Find out on which
//!     shapes, say why, and repair it.
//! hint: What does a thread do here for its neighbours, and not for itself?
//! hint: A thread outside C still has an element of each tile to fetch. If it has left, nobody fetches it, and the
//!     others multiply with whatever is there.
//! hint: Let every thread run the loop. Guard only the store, after the last barrier.
//! expect: global loads per result <= 1/16 K
//! expect: barriers per warp <= 1/16 K
//! after: In a kernel with barriers, threads leave together or not at all.
constexpr int BM = 32;  // rows of C per block
constexpr int BN = 32;  // columns of C per block
constexpr int BK = 32;  // depth of the tiles

extern "C" __device__ constexpr int block_shape[] = {BN, BM, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};      // rows and columns of C per block

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void early_exit(int M, int N, int K, float alpha, const float* A, int lda,
                                      const float* B, int ldb, float beta, float* C, int ldc) {
    __shared__ float As[BM][BK];
    __shared__ float Bs[BK][BN];

    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    const size_t row = blockIdx.y * BM + ty;
    const size_t col = blockIdx.x * BN + tx;

    //[solution
    //[starter
    //|if (row >= M || col >= N) return;
    //]
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
        __syncthreads();
    }

    //[solution
    if (row >= M || col >= N) return;
    //[starter
    //]
    float& c = C[row * ldc + col];
    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
}
