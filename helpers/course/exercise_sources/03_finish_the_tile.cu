//! title: Half a tile
//! task: The tile of A is in shared memory; B is still read from global memory by every thread. Give B a tile of
//!     its own: K / 16 global loads per result instead of K / 32 + K.
//! hint: Declare Bs[BK][BN] beside As. Each thread fetches one element of it, before the first barrier.
//! hint: Thread (tx, ty) fetches row k0 + ty and column col of B: then the 32 lanes of a warp fetch neighbours.
//!     Outside B it stores 0, and there are two limits: K for the row, N for the column.
//! hint: In the inner loop, b becomes Bs[k][tx]. No test is needed there any more: the tile holds zeros.
//! expect: global loads per result <= 1/16 K
//! expect: sectors per load of B <= 4
//! expect: bank conflicts of shared loads == 0
//! after: Both operands are now fetched once per tile and used 32 times.
constexpr int BM = 32;  // rows of C per block
constexpr int BN = 32;  // columns of C per block
constexpr int BK = 32;  // depth of the tiles

extern "C" __device__ constexpr int block_shape[] = {BN, BM, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};      // rows and columns of C per block

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
// __launch_bounds__ tells the compiler how many threads a block has, so that it leaves enough registers for each.
extern "C" __global__ void __launch_bounds__(BM * BN)
    finish_the_tile(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta,
                    float* C, int ldc) {
    __shared__ float As[BM][BK];
    //[solution
    __shared__ float Bs[BK][BN];
    //[starter
    //]

    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    const size_t row = blockIdx.y * BM + ty;
    const size_t col = blockIdx.x * BN + tx;

    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += BK) {
        As[ty][tx] = row < M && k0 + tx < K ? A[row * lda + k0 + tx] : 0;
        //[solution
        Bs[ty][tx] = k0 + ty < K && col < N ? B[size_t(k0 + ty) * ldb + col] : 0;
        //[starter
        //]
        __syncthreads();

        for (int k = 0; k < BK; k++) {
            const float a = As[ty][k];
            //[solution
            const float b = Bs[k][tx];
            //[starter
            //|const float b = k0 + k < K && col < N ? B[size_t(k0 + k) * ldb + col] : 0;
            //]
            sum += a * b;
        }
        __syncthreads();
    }

    if (row >= M || col >= N) return;
    float& c = C[row * ldc + col];
    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
}
