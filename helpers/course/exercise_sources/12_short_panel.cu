//! kind: diagnose
//! title: The last panel
//! task: Blocks are numbered in panels of four rows of tiles, so that blocks which run together share tiles of B. Some
//!     products come out right, small ones among them, and others do not. Find out which tiles are never computed,
//!     say why, and repair it. The panels stay: four blocks with successive numbers share a tile of B.
//! hint: Take a grid with a single row of tiles (gridDim.y is 1), and work out `row` for block 1.
//! hint: The last panel may have fewer rows of tiles than the others, and its blocks must be dealt out over those.
//! hint: height = min(PANEL, rows of tiles that are left from this panel's first one on).
//! expect: successive blocks that share B >= 4
//! after: Any order of the blocks is right as long as every tile is in it exactly once. Only speed depends on which.
constexpr int BM = 16;    // rows of C per block
constexpr int BN = 16;    // columns of C per block
constexpr int PANEL = 4;  // rows of tiles in a panel

extern "C" __device__ constexpr int block_shape[] = {BN, BM, 1};  // threads per block along x, y, z
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};      // rows and columns of C per block

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void short_panel(int M, int N, int K, float alpha, const float* A, int lda, const float* B,
                                       int ldb, float beta, float* C, int ldc) {
    const int block = blockIdx.y * gridDim.x + blockIdx.x;
    const int panel = block / (PANEL * gridDim.x) * PANEL;  // its first row of tiles
    const int place = block % (PANEL * gridDim.x);          // this block's place in the panel
    //[solution
    const int height = min(PANEL, (int)gridDim.y - panel);
    //[starter
    //|const int height = PANEL;
    //]
    const size_t row = (panel + place % height) * BM + threadIdx.y;
    const size_t col = place / height * BN + threadIdx.x;
    if (row >= M || col >= N) return;

    float sum = 0;
    for (int k = 0; k < K; k++) sum += A[row * lda + k] * B[size_t(k) * ldb + col];
    float& c = C[row * ldc + col];
    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
}
