//! kind: diagnose
//! title: Slices of K
//! task: A thin product has few tiles, and a long way to go along K in each. Here the four slices of a block share the
//!     way: each adds up a quarter of K. Then half of the slices take what the other half has, and so on, until the first
//!     has it all. On a GPU the result is sometimes wrong, and the machine can say why. Repair it.
//! hint: Read the finding: one line, two slices, one place. In which round of the loop does each of them touch it?
//! hint: In the second round slice 0 takes what slice 1 has made in the first.
//! hint: One __syncthreads() at the end of each round, reached by every thread, also by those that add nothing.
//! expect: global loads per result <= 2 K
//! expect: bytes of shared memory per block == 4096
//! expect: shared stores per result <= 12
//! expect: barriers per warp <= 3
//! expect: multiply-adds of the busiest warp <= 1/4 K + 2
//! expect: threads per block == 1024
//! after: Splitting K over blocks works the same way, except that blocks have no barrier: in this lesson's kernel the last to
//!     finish adds up what all have stored. Blocks that add with atomics do so in the order in which they happen to finish, and
//!     the last bits differ from launch to launch.
constexpr int BM = 8;      // rows of C per block
constexpr int BN = 32;     // columns of C per block
constexpr int SLICES = 4;  // parts of K

extern "C" __device__ constexpr int block_shape[] = {BN, BM, SLICES};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};           // rows and columns of C per block

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void __launch_bounds__(BM * BN * SLICES)
    slices(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C,
           int ldc) {
    __shared__ float part[SLICES][BM][BN];

    const int tx = threadIdx.x, ty = threadIdx.y, slice = threadIdx.z;
    const size_t row = blockIdx.y * BM + ty;
    const size_t col = blockIdx.x * BN + tx;
    const bool inside = row < M && col < N;

    float sum = 0;
    for (int k = slice; k < K; k += SLICES)
        if (inside) sum += A[row * lda + k] * B[size_t(k) * ldb + col];
    part[slice][ty][tx] = sum;
    __syncthreads();

    for (int half = SLICES / 2; half > 0; half /= 2) {
        if (slice < half) part[slice][ty][tx] += part[slice + half][ty][tx];
        //[solution
        __syncthreads();
        //[starter
        //]
    }
    if (slice != 0 || !inside) return;
    sum = part[0][ty][tx];
    float& c = C[row * ldc + col];
    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
}
