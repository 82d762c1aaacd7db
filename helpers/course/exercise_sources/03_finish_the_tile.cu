//! kind: change
//! title: Half a tile
//! task: The tile of A is in shared memory; B is still read from global memory by every thread. Fill the tile
//!     of B, and use it. The block keeps its 8 rows of threads for the 32 of the tile: 5/32 K global loads per result instead of K / 32 + K,
//!     of no more than 4 sectors of B each. No bank conflict when the tiles are read.
//! hint: Bs[BK][BN] stands beside As. Each thread fetches four elements of it, before the first barrier.
//! hint: Thread (tx, ty) fetches column col of the rows k0 + ty, k0 + ty + 8, …: then the 32 lanes of a warp fetch
//!     neighbours. Outside B it stores 0, and there are two limits: K for the row, N for the column.
//! hint: In the inner loop, b becomes Bs[k][tx]. No test is needed there any more: the tile holds zeros.
//! given: block and tile
//! expect: global loads per result <= 5/32 K
//! expect: sectors per load of B <= 4
//! expect: bank conflicts of shared loads == 0
//! after: An element of A is used 32 times now, one of B only 8 times: the flatter the tile, the more its long side costs.
constexpr int BM = 8;   // rows of C per block
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
    __shared__ float Bs[BK][BN];

    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    const size_t row = blockIdx.y * BM + ty;
    const size_t col = blockIdx.x * BN + tx;

    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += BK) {
        As[ty][tx] = row < M && k0 + tx < K ? A[row * lda + k0 + tx] : 0;
        //[solution
        for (int k = ty; k < BK; k += BM) Bs[k][tx] = k0 + k < K && col < N ? B[size_t(k0 + k) * ldb + col] : 0;
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
