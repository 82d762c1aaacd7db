//! kind: change
//! title: A barrier for two turns
//! task: Four pairs of tiles have room in shared memory, and each turn has a wait and a barrier: K / 8 of them for a warp. Make do with one
//!     for two turns. The tiles stay as deep as they are. Each turn still starts the copies of one pair, so that there are at most 8 copies of
//!     a thread with no multiply-add in between, and at least the 128 multiply-adds of one turn lie, on average, between a copy and its wait.
//! hint: Behind the barrier of every second turn two pairs of tiles are multiplied. How many must have arrived there?
//! hint: The turn without a barrier writes to a stage, too. Who read that stage last, and which barrier lies in between?
//! hint: Wait and barrier where the number of the tile is even, and wait there until no group is under way.
//! expect: barriers per warp <= 1/16 K + 1
//! expect: copies at a time <= 8
//! expect: multiply-adds between a copy and its wait >= 128
//! expect: shared stores per result == 0
//! expect: shared loads per result <= 1/2 K
//! expect: global loads per result <= 1/16 K
//! after: Half the barriers, for shared memory: two of the four stages are read while the other two are filled. With wait<1> the second
//!     of the two pairs may still be on its way when it is read.
constexpr int BM = 32, BN = 32, BK = 8;  // tiles: A is BM x BK, B is BK x BN
constexpr int TM = 4, TN = 4;            // tile of C per thread
constexpr int STAGES = 4;                // pairs of tiles in shared memory
constexpr int THREADS = BM / TM * (BN / TN);

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};          // rows and columns of C per block

// Start to copy one float from global to shared memory; write zero instead if not `inside` the matrix.
__device__ void copy(float* to, const float* from, bool inside) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(inside ? 4 : 0));
}
// What was started since the last commit is a group; wait<N> waits for all groups but the last N.
__device__ void commit() { asm volatile("cp.async.commit_group;"); }
template <int N> __device__ void wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void __launch_bounds__(THREADS)
    every_second(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta,
                      float* C, int ldc) {
    __shared__ __align__(16) float As[STAGES][BK][BM + 4];  // transposed
    __shared__ __align__(16) float Bs[STAGES][BK][BN];

    const int t = threadIdx.x;
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    const int row = t / 8 * TM, col = t % 8 * TN;  // first of this thread's rows and columns in the tile
    auto fetch = [&](int stage, int k0) {
        for (int i = t / 8; i < BM; i += 8)
            copy(&As[stage][t % 8][i], &A[size_t(block_row + i) * lda + k0 + t % 8],
                 block_row + i < M && k0 + t % 8 < K);
        for (int k = t / 32; k < BK; k += 2)
            copy(&Bs[stage][k][t % 32], &B[size_t(k0 + k) * ldb + block_col + t % 32],
                 k0 + k < K && block_col + t % 32 < N);
    };

    float sum[TM][TN] = {};
    fetch(0, 0);
    commit();
    fetch(1, BK);
    commit();
    for (int k0 = 0; k0 < K; k0 += BK) {
        const int turn = k0 / BK, stage = turn % STAGES;
        //[solution
        if (turn % 2 == 0) {  // for this turn and the next one
            wait<0>();
            __syncthreads();
        }
        //[starter
        //|wait<1>();
        //|__syncthreads();
        //]
        fetch((stage + 2) % STAGES, k0 + 2 * BK);
        commit();
        for (int k = 0; k < BK; k++)
            for (int i = 0; i < TM; i++)
                for (int j = 0; j < TN; j++) sum[i][j] += As[stage][k][row + i] * Bs[stage][k][col + j];
    }

    for (int i = 0; i < TM; i++)
        for (int j = 0; j < TN; j++) {
            const int r = block_row + row + i, c = block_col + col + j;
            if (r >= M || c >= N) continue;
            float& out = C[size_t(r) * ldc + c];
            out = beta == 0 ? alpha * sum[i][j] : alpha * sum[i][j] + beta * out;
        }
}
