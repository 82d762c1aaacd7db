//! kind: change
//! title: Keep one part
//! task: Four slices of a block share K, and all four put their part into shared memory, from where the first adds them up. It is right. But the
//!     first slice need not put its own part there. At most 3 shared stores and 3 shared loads per result, three quarters of the shared memory, and still one barrier.
//! hint: What does the first slice know already when it begins to add?
//! hint: Its own sum stands in a register. So only three parts have to be stored, and part needs only three layers.
//! hint: Slices 1 to 3 store into layers 0 to 2. The barrier stays where every thread reaches it; behind it slice 0 goes on with its own sum.
//! expect: shared stores per result <= 3
//! expect: shared loads per result <= 3
//! expect: barriers per warp <= 1
//! expect: bytes of shared memory per block <= 3072
//! expect: global loads per result <= 2 K
//! expect: multiply-adds of the busiest warp <= 1/4 K + 2
//! expect: threads per block == 1024
//! after: A quarter of the traffic and of the memory is saved. Over blocks it is the same: the last to finish has its own sums in registers, and need not
//!     fetch them from where the others left theirs.
constexpr int BM = 16, BN = 16;  // tile of C per block
constexpr int SLICES = 4;        // of K, one for each z

extern "C" __device__ constexpr int block_shape[] = {BN, BM, SLICES};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};           // rows and columns of C per block

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void __launch_bounds__(BM * BN * SLICES)
    keep_one(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C, int ldc) {
    //[solution
    __shared__ float part[SLICES - 1][BM][BN];
    //[starter
    //|__shared__ float part[SLICES][BM][BN];
    //]

    const int tx = threadIdx.x, ty = threadIdx.y, z = threadIdx.z;
    const size_t row = blockIdx.y * BM + ty, col = blockIdx.x * BN + tx;
    const bool inside = row < M && col < N;

    float sum = 0;
    for (int k = z; k < K; k += SLICES)
        if (inside) sum += A[row * lda + k] * B[size_t(k) * ldb + col];
    //[solution
    if (z > 0) part[z - 1][ty][tx] = sum;
    //[starter
    //|part[z][ty][tx] = sum;
    //]
    __syncthreads();

    if (z > 0 || !inside) return;
    //[solution
    for (int s = 1; s < SLICES; s++) sum += part[s - 1][ty][tx];
    //[starter
    //|sum = 0;
    //|for (int s = 0; s < SLICES; s++) sum += part[s][ty][tx];
    //]
    float& c = C[row * ldc + col];
    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
}
