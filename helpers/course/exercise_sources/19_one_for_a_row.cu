//! kind: change
//! title: One factor for a row
//! task: Many networks are stored with one factor for each row of A and each column of B, whatever K. Take such: scale_block[] =
//!     {1, 0, 1}, where the 0 stands for all of K. Sums still leave the tensor cores in every step, but nothing is multiplied until
//!     the end: no FFMA is left.
//! hint: scales_A has one row of factors now, and so has scales_B: block 0 of each. There are as many of B as C has columns.
//! hint: total[i] += sums[i] in each step. The factors of a result are common to its whole sum, and are multiplied once, where the
//!     result is stored.
//! hint: The result in row r and column n has the factors scales_A[r] and scales_B[n]. Say scale_block {1, 0, 1}, or the course gives you
//!     the factors of blocks.
//! expect: k of a factor == 0
//! expect: FFMA instructions of each warp == 0
//! expect: HMMA instructions of each warp == 1/16 K
//! expect: FMUL instructions of each warp <= 16
//! expect: FP64 instructions of each warp == 0
//! expect: FADD instructions of each warp >= 1/4 K
//! after: Fewer factors, and one multiplication for each result. What it costs is accuracy where the numbers of a row differ in size.
#include <cuda_bf16.h>
#include <cuda_fp8.h>

constexpr int BM = 16, BN = 8, BK = 32;      // tiles: A is BM x BK, B is BK x BN
//[solution
constexpr int SCALE_K = 0, SCALE_N = 1;  // k (0: all) and columns of B that share a factor
//[starter
//|constexpr int SCALE_K = 128, SCALE_N = 128;  // k and columns of B that share a factor
//]

extern "C" __device__ constexpr int block_shape[] = {32, 1, 1};  // threads per block along x, y, z: one warp
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};     // rows and columns of C per block
extern "C" __device__ constexpr int scale_block[] = {1, SCALE_K, SCALE_N};  // rows of A, k, columns of B

// sums += a * b: 16 x 8 sums, 16 x 32 elements of A, 32 x 8 of B.
__device__ void mma(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// A register of four numbers of a line, from its k on; what lies outside is 0.
__device__ unsigned four(const __nv_fp8_e4m3* line, bool inside, int k, int K) {
    unsigned bits = 0;
    for (int i = 0; i < 4; i++)
        if (inside && k + i < K) bits |= unsigned(line[k + i].__x) << 8 * i;
    return bits;
}

// C = alpha * A * B + beta * C. A is M x K by rows, B is K x N by columns: the k of column n begin at B + n * ldb.
// scales_A: for each SCALE_K of K a factor of each row, rows up to a multiple of 4; scales_B: for each SCALE_K of K
// one factor for every SCALE_N columns.
extern "C" __global__ void __launch_bounds__(32)
one_for_a_row(int M, int N, int K, float alpha, const __nv_fp8_e4m3* A, int lda, const __nv_fp8_e4m3* B, int ldb,
     float beta, __nv_bfloat16* C, int ldc, const float* scales_A, const float* scales_B) {
    const int lane = threadIdx.x, block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    //[solution
    //[starter
    //|const int pitch_A = (M + 3) / 4 * 4, pitch_B = (N + SCALE_N - 1) / SCALE_N;  // from one block to the next
    //]
    const int row = block_row + lane / 4, col = block_col + lane / 4;  // of A's and of B's fragments: rows 8 below, too
    float total[4] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        unsigned a[4], b[2];
        for (int i = 0; i < 4; i++) {
            const int r = row + i % 2 * 8;
            a[i] = four(A + size_t(r) * lda, r < M, k0 + i / 2 * 16 + lane % 4 * 4, K);
        }
        for (int i = 0; i < 2; i++) b[i] = four(B + size_t(col) * ldb, col < N, k0 + i * 16 + lane % 4 * 4, K);
        float sums[4] = {};  // of the tensor cores
        mma(sums, a, b);
        //[solution
        for (int i = 0; i < 4; i++) total[i] += sums[i];
        //[starter
        //|const int at = k0 / SCALE_K;  // the block
        //|for (int i = 0; i < 4; i++) {
        //|    const float of_row = scales_A[at * pitch_A + min(row + i / 2 * 8, M - 1)];
        //|    const float both = of_row * scales_B[at * pitch_B + block_col / SCALE_N];
        //|    total[i] = fmaf(sums[i], both, total[i]);
        //|}
        //]
    }
    for (int i = 0; i < 4; i++) {  // a thread's sums lie in pairs, eight rows apart
        const int r = row + i / 2 * 8, n = block_col + lane % 4 * 2 + i % 2;
        if (r >= M || n >= N) continue;
        __nv_bfloat16& out = C[size_t(r) * ldc + n];
        //[solution
        const float result = total[i] * (scales_A[r] * scales_B[n]);
        //[starter
        //|const float result = total[i];
        //]
        out = beta == 0 ? alpha * result : alpha * result + beta * float(out);
    }
}
