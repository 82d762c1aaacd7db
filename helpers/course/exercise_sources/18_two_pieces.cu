//! kind: write
//! title: Two pieces
//! task: A warp computes 16 x 8 results from float matrices with FP16 tensor cores. Write every number as a high and a low piece, and
//!     multiply the pieces. On positive numbers, at K = 64, the root mean square of the relative errors must be at most 10 times 2^-24, also
//!     where all numbers are below 2^-10; and three products must do.
//! hint: The high piece is x rounded to FP16. What it lacks, x less the high piece, is known exactly in float: the low piece is made of that.
//! hint: What is lacking is 2^11 times smaller than x or more, and FP16 ends at 2^-24. Multiply it by LOW before it is rounded. Which of
//!     the four products of pieces is too small to matter?
//! hint: high * high goes to sums. high * low and low * high are both LOW times too large: they share rest, which is divided by LOW at
//!     the end.
//! expect: HMMA instructions of each warp == 3/16 K
//! expect: FFMA instructions of each warp <= 3 K
//! expect: FMUL instructions of each warp <= 3 K
//! expect: FP64 instructions of each warp == 0
//! accuracy: 64 10 -10
//! after: low * low would gain nothing: it is smaller than what two pieces leave out of each number. FP16 holds 11 bits, two pieces 22, and
//!     float 24.
#include <cuda_fp16.h>

constexpr int BM = 16, BN = 8, BK = 16;  // tiles: A is BM x BK, B is BK x BN
constexpr float LOW = 2048;              // the low piece is multiplied by it: 2^11

extern "C" __device__ constexpr int block_shape[] = {32, 1, 1};  // threads per block along x, y, z: one warp
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};     // rows and columns of C per block

// c += a * b: 16 x 8 sums, 16 x 16 elements of A, 16 x 8 of B.
__device__ void mma(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// x is high + low / LOW, to 22 bits.
__device__ void split(float x, __half& high, __half& low) {
    //[solution
    high = __float2half(x);
    low = __float2half((x - __half2float(high)) * LOW);
    //[starter
    //|// Yours: the piece that FP16 holds of x, and what is missing, times LOW.
    //|high = __float2half(x);
    //|low = __float2half(0.0f);
    //]
}
// A register of high pieces and one of low pieces: of two numbers each.
__device__ void split(float first, float second, unsigned& high, unsigned& low) {
    __half2 highs, lows;
    split(first, highs.x, lows.x);
    split(second, highs.y, lows.y);
    high = *reinterpret_cast<unsigned*>(&highs);
    low = *reinterpret_cast<unsigned*>(&lows);
}

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void __launch_bounds__(32)
    two_pieces(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta,
             float* C, int ldc) {
    __shared__ float As[BM][BK + 1];
    __shared__ float Bs[BK][BN + 1];

    const int lane = threadIdx.x, block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    float sums[4] = {}, rest[4] = {};  // of high * high; of the products with a low piece
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
        unsigned high_a[4], low_a[4], high_b[2], low_b[2];  // mma's fragments: pairs along k
        for (int i = 0; i < 4; i++) {
            const float* from = &As[lane / 4 + i % 2 * 8][lane % 4 * 2 + i / 2 * 8];
            split(from[0], from[1], high_a[i], low_a[i]);
        }
        for (int i = 0; i < 2; i++) {
            const int k = lane % 4 * 2 + i * 8;
            split(Bs[k][lane / 4], Bs[k + 1][lane / 4], high_b[i], low_b[i]);
        }
        //[solution
        mma(sums, high_a, high_b);
        mma(rest, high_a, low_b);
        mma(rest, low_a, high_b);
        //[starter
        //|// Yours: three products in two accumulators.
        //|mma(sums, high_a, high_b);
        //]
        __syncwarp();
    }
    for (int i = 0; i < 4; i++) {  // a thread's sums lie in pairs, eight rows apart
        const int r = block_row + lane / 4 + i / 2 * 8, n = block_col + lane % 4 * 2 + i % 2;
        if (r >= M || n >= N) continue;
        float& out = C[size_t(r) * ldc + n];
        //[solution
        const float sum = sums[i] + rest[i] / LOW;
        //[starter
        //|const float sum = sums[i];  // yours: and the rest
        //]
        out = beta == 0 ? alpha * sum : alpha * sum + beta * out;
    }
}
