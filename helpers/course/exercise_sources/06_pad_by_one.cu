//! kind: diagnose
//! title: One float of padding
//! task: Somebody read that one float of padding keeps conflicts away, and put it into a kernel that reads shared
//!     memory 128 bits at a time. On a GPU it stops with an error. Find out in which rows of As, say why, and
//!     repair it with another padding, so that the stores stay free of conflicts.
//! hint: The finding names an address. An access of 16 bytes must begin at a multiple of 16.
//! hint: A row of As has 65 floats, 260 bytes. Where do rows 1, 2 and 3 begin?
//! hint: The padding must be a multiple of 4 floats. A warp stores 4 k for 8 rows: how far apart should the 4 k
//!     lie, so that all 32 floats fall into different banks?
//! expect: bank conflicts of shared stores == 0
//! expect: bank conflicts of shared loads == 0
//! expect: global loads per result <= 1/32 K
//! expect: shared loads per result <= 1/8 K
//! after: The compiler widens a load only where it can prove that the address is a multiple of 16. A cast to float4
//!     is your own promise, and nobody checks it before the GPU does.
constexpr int BM = 64, BN = 64, BK = 4;  // tile of C per block, and its step along K
constexpr int TM = 4, TN = 4;            // tile of C per thread
constexpr int THREADS = 256;

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};

extern "C" __global__ void __launch_bounds__(THREADS)
pad_by_one(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb,
           float beta, float* C, int ldc) {
    //[solution
    __shared__ __align__(16) float As[BK][BM + 8];
    //[starter
    //|__shared__ __align__(16) float As[BK][BM + 1];
    //]
    __shared__ __align__(16) float Bs[BK][BN];

    const int t = threadIdx.x;
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    const int row = t / 16 * TM, col = t % 16 * TN;  // this thread's square in the tile

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
            const float4 a4 = *reinterpret_cast<const float4*>(&As[k][row]);
            const float4 b4 = *reinterpret_cast<const float4*>(&Bs[k][col]);
            const float a[TM] = {a4.x, a4.y, a4.z, a4.w}, b[TN] = {b4.x, b4.y, b4.z, b4.w};
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
