//! kind: change
//! title: The second pass
//! task: The kernel stores the product, reads it back, adds the bias, applies ReLU and stores again: both passes in one
//!     kernel. The results are right. Make it one pass: C is stored once and, with beta = 0, never loaded.
//! hint: The result need not be in C before bias and ReLU can have it. Where is it just before the store?
//! hint: Make a variable of it: float v, alpha * sum, plus beta * c unless beta is 0.
//! hint: Then c = v + bias[col] < 0 ? 0 : v + bias[col].
//! expect: global loads per result <= 5/64 K
//! expect: sectors per store of C == 4
//! expect: stores of C per result <= 1
//! expect: loads of C per result == 0
//! expect: stores of C per result where beta is 1 <= 1
//! expect: loads of C per result where beta is 1 <= 1
//! after: One load and one store per result less. What is in a register already needs no address.
constexpr int BM = 32;  // rows of C per block
constexpr int BN = 32;  // columns of C per block
constexpr int BK = 32;  // depth of the tiles

extern "C" __device__ constexpr int block_shape[] = {BN, BM, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};      // rows and columns of C per block

// C = max(0, alpha * A * B + beta * C + bias), row-major: A is M x K, B is K x N, C is M x N; bias has one value per
// column of C; lda, ldb, ldc are the row lengths.
extern "C" __global__ void __launch_bounds__(BM * BN)
    second_pass(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C,
                int ldc, const float* bias) {
    __shared__ float As[BM][BK];
    __shared__ float Bs[BK][BN];

    const int tx = threadIdx.x;
    const int ty = threadIdx.y;
    const size_t row = blockIdx.y * BM + ty;
    const size_t col = blockIdx.x * BN + tx;

    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += BK) {
        As[ty][tx] = row < M && k0 + tx < K ? A[row * lda + k0 + tx] : 0;
        Bs[ty][tx] = k0 + ty < K && col < N ? B[size_t(k0 + ty) * ldb + col] : 0;
        __syncthreads();

        for (int k = 0; k < BK; k++) sum += As[ty][k] * Bs[k][tx];
        __syncthreads();
    }

    if (row >= M || col >= N) return;
    float& c = C[row * ldc + col];
    //[solution
    const float v = (beta == 0 ? alpha * sum : alpha * sum + beta * c) + bias[col];
    c = v < 0 ? 0 : v;
    //[starter
    //|c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
    //|__threadfence();  // so that the next line loads C from memory, as a second kernel would
    //|const float v = c + bias[col];
    //|c = v < 0 ? 0 : v;
    //]
}
