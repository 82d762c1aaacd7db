//! kind: write
//! title: Two tiles to a group
//! task: The ring has four stages, each 8 deep, and fetch(k0) starts the copies of the tiles that begin at k0 into their stage (zeros beyond K).
//!     Write the pipeline so that two pairs of tiles make a group: one wait and one barrier for each 16 k, and two pairs
//!     under way while two are multiplied: between the start of a copy and the wait for it a thread executes the 16 multiply-adds of 16 k.
//! hint: Before the loop start two pairs and close the group. A turn of the loop then deals with two pairs.
//! hint: In a turn: wait until the group has arrived, barrier, start the next two pairs, close their group, then the products of 16 k.
//! hint: At the wait only one group is under way, so it must be wait<0>(). The k-th product of a turn stands in stage (k0 + k) / BK % STAGES.
//! expect: barriers per warp <= 1/16 K
//! expect: shared stores per result == 0
//! expect: global loads per result <= 1/8 K
//! expect: barriers per fill of shared memory <= 1
//! expect: multiply-adds between a copy and its wait >= 16
//! after: Half the barriers. In the solution shown the copies come in larger lots, too. What it costs is shared memory, and a wait that is for
//!     everything.
constexpr int BM = 16, BN = 16, BK = 8;  // tiles: A is BM x BK, B is BK x BN
constexpr int STAGES = 4;                // pairs of tiles in shared memory

extern "C" __device__ constexpr int block_shape[] = {BN, BM, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};      // rows and columns of C per block

// Start to copy one float from global to shared memory; write zero instead if not `inside` the matrix.
__device__ void copy(float* to, const float* from, bool inside) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(inside ? 4 : 0));
}
// What was started since the last commit is a group; wait<N> waits for all groups but the last N.
__device__ void commit() { asm volatile("cp.async.commit_group;"); }
template <int N> __device__ void wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void __launch_bounds__(BM * BN)
    two_to_a_group(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C,
                   int ldc) {
    __shared__ float As[STAGES][BM][BK];
    __shared__ float Bs[STAGES][BK][BN];

    const int tx = threadIdx.x, ty = threadIdx.y, t = ty * BN + tx;
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    auto fetch = [&](int k0) {  // half of the threads copy A, half copy B
        const int stage = k0 / BK % STAGES;
        if (t < BM * BK) {
            const int i = t / BK, k = t % BK;
            copy(&As[stage][i][k], &A[size_t(block_row + i) * lda + k0 + k], block_row + i < M && k0 + k < K);
        } else {
            const int k = (t - BM * BK) / BN, j = t % BN;
            copy(&Bs[stage][k][j], &B[size_t(k0 + k) * ldb + block_col + j], k0 + k < K && block_col + j < N);
        }
    };

    float sum = 0;
    //[solution
    fetch(0);
    fetch(BK);
    commit();
    for (int k0 = 0; k0 < K; k0 += 2 * BK) {
        wait<0>();
        __syncthreads();
        fetch(k0 + 2 * BK);
        fetch(k0 + 3 * BK);
        commit();
        for (int k = 0; k < 2 * BK; k++) {
            const int stage = (k0 + k) / BK % STAGES;
            sum += As[stage][ty][k % BK] * Bs[stage][k % BK][tx];
        }
    }
    //[starter
    //|// Yours: the first group, and the loop over all of them. It adds to sum.
    //]

    const size_t row = block_row + ty, col = block_col + tx;
    if (row >= M || col >= N) return;
    float& c = C[row * ldc + col];
    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
}
