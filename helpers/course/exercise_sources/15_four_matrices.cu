//! kind: diagnose
//! title: Four matrices
//! task: A warp computes 16 x 8 results. There is no finding, and nearly every element is wrong. Say which part of A's tile goes to which register
//!     of a thread, which mma wants there, and repair the kernel.
//! hint: Multiply with an A of which one quarter of 8 x 8 is not zero, each quarter in turn. For which of them is C right?
//! hint: ldmatrix.x4 fills four registers in order: the matrix whose rows threads 8 to 15 address goes to the second. mma wants rows 8 to 15 of
//!     the first eight k in it.
//! hint: Threads 0 to 15 must give the sixteen rows of the first eight k, threads 16 to 31 the same rows of the next eight.
//! expect: HMMA instructions of each warp == 1/16 K
//! expect: LDSM instructions of each warp <= 1/8 K
//! expect: FFMA instructions of each warp <= 2 K
//! expect: FMUL instructions of each warp <= 2 K
//! expect: FP64 instructions of each warp == 0
//! after: In which order ldmatrix fills registers is decided by who addresses what. In which order mma reads them is not.
#include <cuda_bf16.h>

constexpr int BM = 16, BN = 8, BK = 16;  // tiles: A is BM x BK, B is BK x BN

extern "C" __device__ constexpr int block_shape[] = {32, 1, 1};  // threads per block along x, y, z: one warp
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};     // rows and columns of C per block

// c += a * b: 16 x 8 sums, 16 x 16 elements of A, 16 x 8 of B.
__device__ void mma(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// Four 8 x 8 matrices: the tile of A. Each thread gives the address of one row.
__device__ void load_a(unsigned (&to)[4], const __nv_bfloat16* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
}
// Two 8 x 8 matrices: the tile of B. Threads 0 to 15 give the addresses of its rows.
__device__ void load_b(unsigned (&to)[2], const __nv_bfloat16* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1]) : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
}

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void __launch_bounds__(32)
    four_matrices(int M, int N, int K, float alpha, const __nv_bfloat16* A, int lda, const __nv_bfloat16* B, int ldb, float beta,
                  __nv_bfloat16* C, int ldc) {
    __shared__ __align__(16) __nv_bfloat16 As[BM][BK];
    __shared__ __align__(16) __nv_bfloat16 Bs[BK][BN];

    const int lane = threadIdx.x, block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    float sums[4] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = lane; i < BM * BK; i += 32) {
            const int r = i / BK, k = i % BK;
            As[r][k] = block_row + r < M && k0 + k < K ? A[size_t(block_row + r) * lda + k0 + k] : __nv_bfloat16(0.0f);
        }
        for (int i = lane; i < BK * BN; i += 32) {
            const int k = i / BN, n = i % BN;
            Bs[k][n] = k0 + k < K && block_col + n < N ? B[size_t(k0 + k) * ldb + block_col + n] : __nv_bfloat16(0.0f);
        }
        __syncwarp();
        unsigned a[4], b[2];
        //[solution
        load_a(a, &As[lane % 16][lane / 16 * 8]);
        //[starter
        //|load_a(a, &As[lane % 8 + lane / 16 * 8][lane / 8 % 2 * 8]);
        //]
        load_b(b, Bs[lane % 16]);
        mma(sums, a, b);
        __syncwarp();
    }
    for (int i = 0; i < 4; i++) {  // a thread's sums lie in pairs, eight rows apart
        const int r = block_row + lane / 4 + i / 2 * 8, n = block_col + lane % 4 * 2 + i % 2;
        if (r >= M || n >= N) continue;
        __nv_bfloat16& out = C[size_t(r) * ldc + n];
        out = beta == 0 ? alpha * sums[i] : alpha * sums[i] + beta * float(out);
    }
}
