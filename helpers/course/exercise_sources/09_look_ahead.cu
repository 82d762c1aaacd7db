//! kind: write
//! title: Look ahead
//! task: Each thread has one element of either tile, and a_at(k0) and b_at(k0) fetch it for the tiles that begin at k0 (zeros beyond the edges).
//!     There is room for two pairs of tiles. Write the loop: the next elements are asked for before the products, one barrier for each 16 k.
//!     So there is one barrier from each fill of shared memory (what is stored between two barriers) to the next.
//! hint: Before the loop the first pair must be in shared memory, and a barrier behind it. So each turn can begin with the products.
//! hint: In a turn: ask for the next two elements, do the 16 products from one half, store the two into the other half, barrier.
//! hint: The half that is read alternates with the turn: k0 / BK % 2. The other one is 1 minus that, and nobody reads it before the barrier.
//! expect: barriers per warp <= 1/16 K + 1
//! expect: barriers per fill of shared memory <= 1
//! expect: global loads per result <= 1/8 K
//! expect: multiply-adds behind a tile's loads == 16
//! expect: shared stores per result <= 3/16 K
//! after: A last turn that looks ahead like all others asks for tiles beyond K, gets zeros, and nobody multiplies them. An if spares it that, and
//!     is itself executed in every turn. Both are right.
constexpr int BM = 16, BN = 16, BK = 16;  // tiles: A is BM x BK, B is BK x BN

extern "C" __device__ constexpr int block_shape[] = {BN, BM, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};      // rows and columns of C per block

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void __launch_bounds__(BM * BN)
    look_ahead(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C,
               int ldc) {
    __shared__ float As[2][BM][BK];
    __shared__ float Bs[2][BK][BN];

    const int tx = threadIdx.x, ty = threadIdx.y;
    const size_t row = blockIdx.y * BM + ty, col = blockIdx.x * BN + tx;
    auto a_at = [&](int k0) { return row < M && k0 + tx < K ? A[row * lda + k0 + tx] : 0.0f; };
    auto b_at = [&](int k0) { return col < N && k0 + ty < K ? B[size_t(k0 + ty) * ldb + col] : 0.0f; };

    float sum = 0;
    //[solution
    As[0][ty][tx] = a_at(0);
    Bs[0][ty][tx] = b_at(0);
    __syncthreads();
    for (int k0 = 0; k0 < K; k0 += BK) {
        const int half = k0 / BK % 2;
        const float a = a_at(k0 + BK), b = b_at(k0 + BK);
        for (int k = 0; k < BK; k++) sum += As[half][ty][k] * Bs[half][k][tx];
        As[1 - half][ty][tx] = a;
        Bs[1 - half][ty][tx] = b;
        __syncthreads();
    }
    //[starter
    //|// Yours: the first tiles, and the loop over all of them. It adds to sum.
    //]

    if (row >= M || col >= N) return;
    float& c = C[row * ldc + col];
    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
}
