//! kind: diagnose
//! title: Right for every square matrix
//! task: This kernel passed all of its author's tests, which were square. Find out what happens on other shapes,
//!     and repair one line.
//! hint: Run the check and read the finding: which access leaves its array, in which line, and in which shape?
//! hint: Which threads have nothing to do? Those whose row is not a row of C, and those whose column is not a
//!     column of C.
//! hint: Rows are counted by M and columns by N. The guard has them the wrong way round.
//! after: A square test cannot tell M from N, nor A from its transpose. That is why check() uses thin and odd
//!     shapes.
constexpr int BM = 32;  // rows of C per block
constexpr int BN = 32;  // columns of C per block

extern "C" __device__ constexpr int block_shape[] = {BM, BN, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};      // rows and columns of C per block

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void square_guard(int M, int N, int K, float alpha, const float* A, int lda,
                                        const float* B, int ldb, float beta, float* C, int ldc) {
    const size_t row = blockIdx.y * BM + threadIdx.x;
    const size_t col = blockIdx.x * BN + threadIdx.y;
    //[solution
    const bool inside = row < M && col < N;
    //[starter
    //|const bool inside = row < N && col < M;
    //]
    if (!inside) return;

    float sum = 0;
    for (int k = 0; k < K; k++) {
        const float a = A[row * lda + k];
        const float b = B[size_t(k) * ldb + col];
        sum += a * b;
    }

    float& c = C[row * ldc + col];
    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
}
