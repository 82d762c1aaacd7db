//! kind: diagnose
//! title: A row where a column belongs
//! task: A published kernel confuses two indices when it fetches its tile of B. This one does the same. The check
//!     prints the first element that differs: use it to find the line.
//! hint: The numbers are wrong, but nothing is out of bounds on square matrices: the kernel reads the wrong
//!     elements of B. In which blocks?
//! hint: In the fetch of B, which index is the row of B (it moves along K), and which is its column (the column of
//!     C)?
//! hint: The column of B is the column of C that this block computes: it comes from blockIdx.x, not blockIdx.y.
//! expect: sectors per load of B <= 4
//! expect: global loads per result <= 1/16 K
//! after: In the first block, where both offsets are 0, the mistake is invisible: a test with one tile passes.
constexpr int BM = 32;  // rows of C per block
constexpr int BN = 32;  // columns of C per block
constexpr int BK = 32;  // depth of the tiles

extern "C" __device__ constexpr int block_shape[] = {BN, BM, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};      // rows and columns of C per block

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void swapped_tile(int M, int N, int K, float alpha, const float* A, int lda,
                                        const float* B, int ldb, float beta, float* C, int ldc) {
    __shared__ float As[BM][BK];
    __shared__ float Bs[BK][BN];

    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    const size_t row = blockIdx.y * BM + ty;
    const size_t col = blockIdx.x * BN + tx;

    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += BK) {
        As[ty][tx] = row < M && k0 + tx < K ? A[row * lda + k0 + tx] : 0;
        //[solution
        const size_t b_col = blockIdx.x * BN + tx;
        //[starter
        //|const size_t b_col = blockIdx.y * BM + tx;
        //]
        Bs[ty][tx] = k0 + ty < K && b_col < N ? B[size_t(k0 + ty) * ldb + b_col] : 0;
        __syncthreads();

        for (int k = 0; k < BK; k++) {
            const float a = As[ty][k];
            const float b = Bs[k][tx];
            sum += a * b;
        }
        __syncthreads();
    }

    if (row >= M || col >= N) return;
    float& c = C[row * ldc + col];
    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
}
