// A ring of tiles filled by cp.async, and blocks in panels: steps 10 and 11 made small, so that it compiles in a moment.
constexpr int BM = 16, BN = 16, BK = 8;  // tiles: A is BM x BK, B is BK x BN
constexpr int STAGES = 3;                // pairs of tiles in shared memory
constexpr int PANEL = 4;                 // rows of tiles in a panel
constexpr int THREADS = 128;

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};

__device__ void copy(float* to, const float* from, bool inside) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(inside ? 4 : 0));
}
__device__ void commit() { asm volatile("cp.async.commit_group;"); }
template <int N> __device__ void wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }

extern "C" __global__ void __launch_bounds__(THREADS)
    ring(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C,
         int ldc) {
    __shared__ float As[STAGES][BM][BK], Bs[STAGES][BK][BN];

    const int t = threadIdx.x, block = blockIdx.y * gridDim.x + blockIdx.x;
    const int panel = block / (PANEL * gridDim.x) * PANEL;  // its first row of tiles
    const int height = min(PANEL, (int)gridDim.y - panel), place = block % (PANEL * gridDim.x);
    const int block_row = (panel + place % height) * BM, block_col = place / height * BN;
    const int row = t / BN, col = t % BN;  // of the first result; the second is 8 rows below

    auto fetch = [&](int stage, int k0) {
        const int r = block_row + t / BK, k = k0 + t % BK, b_k = k0 + t / BN, c = block_col + t % BN;
        copy(&As[stage][t / BK][t % BK], &A[size_t(r) * lda + k], r < M && k < K);
        copy(&Bs[stage][t / BN][t % BN], &B[size_t(b_k) * ldb + c], b_k < K && c < N);
    };
    for (int s = 0; s < STAGES - 1; s++) {
        fetch(s, s * BK);
        commit();
    }
    float sum[2] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        const int stage = k0 / BK % STAGES;
        wait<STAGES - 2>();
        __syncthreads();
        const int ahead = k0 + (STAGES - 1) * BK;
        fetch((stage + STAGES - 1) % STAGES, ahead);
        commit();
        for (int k = 0; k < BK; k++)
            for (int i = 0; i < 2; i++) sum[i] += As[stage][row + 8 * i][k] * Bs[stage][k][col];
    }
    for (int i = 0; i < 2; i++) {
        const int r = block_row + row + 8 * i, c = block_col + col;
        if (r >= M || c >= N) continue;
        float& out = C[size_t(r) * ldc + c];
        out = beta == 0 ? alpha * sum[i] : alpha * sum[i] + beta * out;
    }
}
