//! kind: write
//! title: FP32 in, TF32 multiplied
//! task: A warp computes 16 x 8 results with mma of TF32, whose factors are FP32 numbers of which the tensor core reads 19 bits. ldmatrix turns
//!     over 16-bit elements only, so load the fragments with plain loads: four values of A and two of B for each thread. m16n8k8 wants in
//!     a[0] and a[1] rows lane / 4 and lane / 4 + 8 of A at k = lane % 4, in a[2] and a[3] the same rows at k = lane % 4 + 4. b[0] and b[1]
//!     are column lane / 4 of B at these two k.
//! hint: Other k would give the same sums, if A and B agree: pairs of neighbours, as with BF16. But where each lane reads decides about the
//!     banks, and the rows of As and Bs are laid out for the k of the task.
//! hint: Of the index i of a[i], i % 2 chooses the row and i / 2 the k. Of b[i], i chooses the k.
//! hint: a[i] = As[lane / 4 + i % 2 * 8][lane % 4 + i / 2 * 4], and b[i] = Bs[lane % 4 + i * 4][lane / 4]; then one mma.
//! expect: HMMA instructions of each warp == 1/8 K
//! expect: bank conflicts of shared loads == 0
//! expect: shared loads per result <= 3/16 K
//! expect: FFMA instructions of each warp <= 2 K
//! expect: FMUL instructions of each warp <= 2 K
//! expect: FP64 instructions of each warp == 0
//! after: No ldmatrix, and still no conflict: rows of 12 floats put a warp's 32 values of A in 32 banks. TF32 keeps FP32's exponents and 11
//!     bits. Handed over raw, as here, a number's other bits are cut off; cvt.rna.tf32.f32 would round it first, as FP16 is rounded.
constexpr int BM = 16, BN = 8, BK = 8;  // tiles: A is BM x BK, B is BK x BN

extern "C" __device__ constexpr int block_shape[] = {32, 1, 1};  // threads per block along x, y, z: one warp
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};     // rows and columns of C per block

// c += a * b on the tensor cores, in TF32.
__device__ void mma(float (&c)[4], const float (&a)[4], const float (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
                   "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
}

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void __launch_bounds__(32)
    tf32_tile(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta,
              float* C, int ldc) {
    __shared__ float As[BM][BK + 4];
    __shared__ float Bs[BK][BN];

    const int lane = threadIdx.x, block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    float sums[4] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = lane; i < BM * BK; i += 32) {
            const int r = i / BK, k = i % BK;
            As[r][k] = block_row + r < M && k0 + k < K ? A[size_t(block_row + r) * lda + k0 + k] : 0;
        }
        for (int i = lane; i < BK * BN; i += 32) {
            const int k = i / BN, n = i % BN;
            Bs[k][n] = k0 + k < K && block_col + n < N ? B[size_t(k0 + k) * ldb + block_col + n] : 0;
        }
        __syncwarp();
        //[solution
        float a[4], b[2];
        for (int i = 0; i < 4; i++) a[i] = As[lane / 4 + i % 2 * 8][lane % 4 + i / 2 * 4];
        for (int i = 0; i < 2; i++) b[i] = Bs[lane % 4 + i * 4][lane / 4];
        mma(sums, a, b);
        //[starter
        //|// Yours: this thread's part of A and of B, and the product.
        //]
        __syncwarp();
    }
    for (int i = 0; i < 4; i++) {  // a thread's sums lie in pairs, eight rows apart
        const int r = block_row + lane / 4 + i / 2 * 8, n = block_col + lane % 4 * 2 + i % 2;
        if (r >= M || n >= N) continue;
        float& out = C[size_t(r) * ldc + n];
        out = beta == 0 ? alpha * sums[i] : alpha * sums[i] + beta * float(out);
    }
}
