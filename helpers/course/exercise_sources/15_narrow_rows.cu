//! kind: change
//! title: Narrow rows
//! task: The tile of A has rows of 32 bytes, two pieces of 16 each. Somebody has swizzled them by the number of the row, and the rows of a
//!     matrix still meet in the same banks, two by two. Change place() so that ldmatrix has no conflict, with no more shared memory.
//! hint: 128 bytes are all banks once. How many rows of this tile are that? Which rows of eight meet the banks of row 0?
//! hint: Rows 0 and 4 begin at the same bank, and so do 1 and 5. They must take different pieces.
//! hint: The piece must change with the number of the group of four rows, not with the number of the row.
//! expect: bank conflicts of shared loads == 0
//! expect: LDSM instructions of each warp <= 1/8 K
//! expect: HMMA instructions of each warp == 1/16 K
//! expect: bytes of shared memory per block <= 768
//! expect: FFMA instructions of each warp <= 2 K
//! expect: FMUL instructions of each warp <= 2 K
//! expect: FP64 instructions of each warp == 0
//! after: A swizzle goes by the turn of the banks: 128 bytes, whatever a row is long.
#include <cuda_bf16.h>

constexpr int BM = 16, BN = 8, BK = 16;  // tiles: A is BM x BK, B is BK x BN

extern "C" __device__ constexpr int block_shape[] = {32, 1, 1};  // threads per block along x, y, z: one warp
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};     // rows and columns of C per block

// Where the piece of eight elements lies that is the first or the second of its row, in elements.
__device__ int place(int row, int piece) {
    //[solution
    return (row * 2 + (piece ^ row / 4 % 2)) * 8;
    //[starter
    //|return (row * 2 + (piece ^ row % 2)) * 8;
    //]
}
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
    narrow_rows(int M, int N, int K, float alpha, const __nv_bfloat16* A, int lda, const __nv_bfloat16* B, int ldb, float beta,
                __nv_bfloat16* C, int ldc) {
    __shared__ __align__(16) __nv_bfloat16 As[BM * BK];
    __shared__ __align__(16) __nv_bfloat16 Bs[BK][BN];

    const int lane = threadIdx.x, block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    float sums[4] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = lane; i < BM * BK; i += 32) {
            const int r = i / BK, k = i % BK;
            As[place(r, k / 8) + k % 8] = block_row + r < M && k0 + k < K ? A[size_t(block_row + r) * lda + k0 + k] : __nv_bfloat16(0.0f);
        }
        for (int i = lane; i < BK * BN; i += 32) {
            const int k = i / BN, n = i % BN;
            Bs[k][n] = k0 + k < K && block_col + n < N ? B[size_t(k0 + k) * ldb + block_col + n] : __nv_bfloat16(0.0f);
        }
        __syncwarp();
        unsigned a[4], b[2];
        load_a(a, &As[place(lane % 16, lane / 16)]);
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
