//! kind: diagnose
//! title: A promise nobody keeps
//! task: You saw this kernel stop. It decides for each piece whether to take it in one load, and asks one question too few. Add it, so that
//!     the slower path is taken where it must be, and only there. Counted besides: a product with N = K = 61 in rows of 64 floats. All its
//!     pieces are aligned, and only the last piece of each row is not whole.
//! hint: The check prints the shapes. What do their leading dimensions have in common?
//! hint: The first element of row 1 lies lda * 4 bytes after that of row 0. When is that a multiple of 16?
//! hint: load4 need not know the leading dimension: the address of the piece says it all. Take the wide load only where the address is a
//!     multiple of 16, too.
//! expect: sectors per load of A == 16
//! expect: sectors per load of B == 16
//! expect: global loads per result <= 1/128 K
//! expect: global loads where rows are 3 shorter <= 128
//! after: The solution shown asks for each piece, which is always right, and neighbouring lanes can take different paths. The lesson's kernel asks
//!     once for the whole matrix, its width included: fewer questions in the loop, and no warp goes both ways, but all of it goes the slower
//!     way for one such piece.
constexpr int BM = 64, BN = 64, BK = 16;  // tile of C per block, and its step along K
constexpr int TM = 4, TN = 4;             // tile of C per thread
constexpr int THREADS = 256;

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};

// The next four floats of a row that has `left` more; zeros past its end.
__device__ float4 load4(const float* from, int left) {
    //[solution
    if (left > 3 && (size_t)from % 16 == 0) return *reinterpret_cast<const float4*>(from);
    //[starter
    //|if (left > 3) return *reinterpret_cast<const float4*>(from);
    //]
    return {left > 0 ? from[0] : 0.0f, left > 1 ? from[1] : 0.0f, left > 2 ? from[2] : 0.0f, left > 3 ? from[3] : 0.0f};
}

extern "C" __global__ void __launch_bounds__(THREADS)
any_row(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb,
        float beta, float* C, int ldc) {
    __shared__ __align__(16) float As[BK][BM + 4];
    __shared__ __align__(16) float Bs[BK][BN];

    const int t = threadIdx.x;
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    const int row = t / 16 * TM, col = t % 16 * TN;  // this thread's square in the tile

    float sum[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        {
            const int i = t / (BK / 4), q = t % (BK / 4) * 4, r = block_row + i, k = k0 + q;
            const float4 v = load4(A + (size_t)r * lda + k, r < M ? K - k : 0);
            As[q][i] = v.x, As[q + 1][i] = v.y, As[q + 2][i] = v.z, As[q + 3][i] = v.w;
        }
        {
            const int i = t / (BN / 4), q = t % (BN / 4) * 4, k = k0 + i, c = block_col + q;
            *reinterpret_cast<float4*>(&Bs[i][q]) = load4(B + (size_t)k * ldb + c, k < K ? N - c : 0);
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
