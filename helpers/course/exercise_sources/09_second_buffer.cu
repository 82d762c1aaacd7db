//! kind: change
//! title: The second buffer
//! task: This kernel prefetches: the next tiles are on their way, in registers, while these are used. But there is
//!     one pair of tiles in shared memory, so two barriers are needed for each step. Give it a second pair, and
//!     take one barrier away: one is enough from each fill of shared memory (what is stored between two barriers) to the next.
//! hint: Tiles holds one pair; make two of them. store() is told which one to fill, the inner loop must know which one to read.
//! hint: A step reads one half. When it is done, it stores the next tiles into the other half, which nobody reads
//!     now. No barrier is needed before that.
//! hint: buffer ^= 1; store(tiles[buffer]); __syncthreads(); at the end of the loop body. The barrier says two things: the
//!     new half is complete, and the old one is free.
//! expect: barriers per warp <= 1/8 K + 1
//! expect: wavefronts per shared load <= 2
//! expect: global loads per result <= 1/32 K
//! expect: barriers per fill of shared memory <= 1
//! expect: multiply-adds behind a tile's loads >= 128
//! after: One barrier for each step, and one for the first tiles.
constexpr int BM = 64, BN = 64, BK = 8;  // tiles: A is BM x BK, B is BK x BN
constexpr int WM = 32, WN = 32;          // tile of C per warp
constexpr int TM = 8, TN = 4;            // tile of C per thread
constexpr int PAD = 4;                   // floats; a multiple of 4 keeps 128-bit loads aligned
constexpr int THREADS = BM / WM * (BN / WN) * 32;
constexpr int GROUP_M = WM / (TM / 4);   // distance between a thread's two groups of four rows

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};          // rows and columns of C per block

struct __align__(16) Tiles {
    float A[BK][BM + PAD];  // transposed
    float B[BK][BN];
};

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void __launch_bounds__(THREADS)
    second_buffer(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta,
                  float* C, int ldc) {
    //[solution
    __shared__ Tiles tiles[2];
    //[starter
    //|__shared__ Tiles tiles;
    //]

    const int t = threadIdx.x, warp = t / 32, lane = t % 32;
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    const int lane_row = lane / 16 * 2 + lane % 2, lane_col = lane / 2 % 8;  // in pairs of rows
    const int row = warp / (BN / WN) * WM + lane_row * 4;  // rows row to row + 3, and the same GROUP_M further down
    const int col = warp % (BN / WN) * WN + lane_col * 4;  // columns col to col + 3

    float a_next[BM * BK / THREADS], b_next[BK * BN / THREADS];  // on the way from global to shared memory
    auto fetch = [&](int k0) {
        for (int i = 0; i < BM * BK / THREADS; i++) {
            const int r = (t + i * THREADS) / BK, k = (t + i * THREADS) % BK;
            a_next[i] = block_row + r < M && k0 + k < K ? A[size_t(block_row + r) * lda + k0 + k] : 0;
        }
        for (int i = 0; i < BK * BN / THREADS; i++) {
            const int k = (t + i * THREADS) / BN, c = (t + i * THREADS) % BN;
            b_next[i] = k0 + k < K && block_col + c < N ? B[size_t(k0 + k) * ldb + block_col + c] : 0;
        }
    };
    auto store = [&](Tiles& to) {
        for (int i = 0; i < BM * BK / THREADS; i++) to.A[(t + i * THREADS) % BK][(t + i * THREADS) / BK] = a_next[i];
        for (int i = 0; i < BK * BN / THREADS; i++) to.B[(t + i * THREADS) / BN][(t + i * THREADS) % BN] = b_next[i];
    };

    //[solution
    int buffer = 0;
    //[starter
    //]
    float sum[TM][TN] = {};
    fetch(0);
    //[solution
    store(tiles[0]);
    //[starter
    //|store(tiles);
    //]
    __syncthreads();
    for (int k0 = 0; k0 < K; k0 += BK) {
        fetch(k0 + BK);  // past the end of K this loads nothing
        for (int k = 0; k < BK; k++) {
            float a[TM], b[TN];
            //[solution
            for (int i = 0; i < TM; i++) a[i] = tiles[buffer].A[k][row + i / 4 * GROUP_M + i % 4];
            for (int j = 0; j < TN; j++) b[j] = tiles[buffer].B[k][col + j];
            //[starter
            //|for (int i = 0; i < TM; i++) a[i] = tiles.A[k][row + i / 4 * GROUP_M + i % 4];
            //|for (int j = 0; j < TN; j++) b[j] = tiles.B[k][col + j];
            //]
            for (int i = 0; i < TM; i++)
                for (int j = 0; j < TN; j++) sum[i][j] += a[i] * b[j];
        }
        //[solution
        buffer ^= 1;
        store(tiles[buffer]);
        //[starter
        //|__syncthreads();
        //|store(tiles);
        //]
        __syncthreads();
    }

    for (int i = 0; i < TM; i++)
        for (int j = 0; j < TN; j++) {
            const int r = block_row + row + i / 4 * GROUP_M + i % 4, c = block_col + col + j;
            if (r >= M || c >= N) continue;
            float& out = C[size_t(r) * ldc + c];
            out = beta == 0 ? alpha * sum[i][j] : alpha * sum[i][j] + beta * out;
        }
}
