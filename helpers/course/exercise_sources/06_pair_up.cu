//! kind: change
//! title: Neighbours that agree
//! task: Every lane reads four floats of Bs with one 128-bit load, no bank is asked for two words at once, and
//!     still the load takes 4 wavefronts for 256 different bytes: whatever they bring, they bring twice. Number the
//!     threads of a warp in another way, so that it takes 2. The load of As takes 2 and shall keep them: the check
//!     has the average of both, which is 3.
//! hint: Open the bank picture on the line that reads Bs. Lanes 16 to 31 want what lanes 0 to 15 want, but in other
//!     phases.
//! hint: Phases merge when every lane agrees with a neighbour: lane n with lane n ^ 1, or every one with n ^ 2.
//!     Which two threads of a warp read the same four columns?
//! hint: A warp has 2 rows of squares and 16 columns of them. Take the row from t % 2 and the column from t % 32 /
//!     2.
//! expect: wavefronts per shared load <= 2
//! expect: bank conflicts of shared loads == 0
//! expect: global loads per result <= 1/32 K
//! expect: shared loads per result <= 1/8 K
//! after: In the solution shown, the load of As does not lose: its lanes agree with n ^ 2, where they agreed with n ^ 1 before. Step
//!     08 deals out the threads of a warp with this rule in mind.
constexpr int BM = 64, BN = 64, BK = 8;  // tile of C per block, and its step along K
constexpr int TM = 4, TN = 4;            // tile of C per thread
constexpr int THREADS = 256;

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};

extern "C" __global__ void __launch_bounds__(THREADS)
pair_up(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb,
        float beta, float* C, int ldc) {
    __shared__ __align__(16) float As[BK][BM + 4];
    __shared__ __align__(16) float Bs[BK][BN];

    const int t = threadIdx.x;
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    //[solution
    const int row = (t / 32 * 2 + t % 2) * TM;  // this thread's square in the tile
    const int col = t % 32 / 2 * TN;
    //[starter
    //|const int row = t / 16 * TM;  // this thread's square in the tile
    //|const int col = t % 16 * TN;
    //]

    float sum[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        #pragma unroll
        for (int i = t / BK; i < BM; i += THREADS / BK) {
            const int r = block_row + i, k = k0 + t % BK;
            As[t % BK][i] = r < M && k < K ? A[(size_t)r * lda + k] : 0.0f;
        }
        #pragma unroll
        for (int i = t / BN; i < BK; i += THREADS / BN) {
            const int k = k0 + i, c = block_col + t % BN;
            Bs[i][t % BN] = k < K && c < N ? B[(size_t)k * ldb + c] : 0.0f;
        }
        __syncthreads();

        #pragma unroll
        for (int k = 0; k < BK; k++) {
            float a[TM], b[TN];
            #pragma unroll
            for (int i = 0; i < TM; i++) a[i] = As[k][row + i];
            #pragma unroll
            for (int j = 0; j < TN; j++) b[j] = Bs[k][col + j];
            #pragma unroll
            for (int i = 0; i < TM; i++)
                #pragma unroll
                for (int j = 0; j < TN; j++) sum[i][j] += a[i] * b[j];
        }
        __syncthreads();
    }

    #pragma unroll
    for (int i = 0; i < TM; i++)
        #pragma unroll
        for (int j = 0; j < TN; j++) {
            const int r = block_row + row + i, c = block_col + col + j;
            if (r < M && c < N) {
                float* out = &C[(size_t)r * ldc + c];
                *out = beta == 0.0f ? alpha * sum[i][j] : alpha * sum[i][j] + beta * *out;
            }
        }
}
