//! kind: diagnose
//! title: Overflow
//! task: Right on numbers between -1 and 1. On matrices whose rows and columns are larger or smaller, up to a million times, it is wrong:
//!     some results are NaN, others have few right digits. Find out what becomes of such a number in split, and repair the kernel; the
//!     tensor cores go on multiplying.
//! hint: FP16 ends at 65504, and below 2^-14 it loses digits. Which number of the high piece comes of a million, and what does split then
//!     take away from what?
//! hint: A factor that is a power of two changes no digit, and can be divided away at the end. One factor for the whole block makes its
//!     largest rows fit: what becomes of its smallest?
//! hint: A factor for each row of A and each column of B: look for its largest |x| along all of K before the loop; then up is
//!     inverse_power(largest). 24 lanes of the warp have one row or column each.
//! expect: HMMA instructions of each warp == 3/16 K
//! expect: FFMA instructions of each warp <= 3 K
//! expect: FMUL instructions of each warp <= 3 K
//! expect: FP64 instructions of each warp == 0
//! scales: 20
//! after: The lesson's kernel brings a row's largest number to 2^14 and not to 1: the smaller ones keep more of their digits there.
//!     A result is a row times a column, so their factors can be divided away from it. A factor of its own for every k could not.
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
// 1 / 2^e, where 2^e is the largest power of two that is not above x.
__device__ float inverse_power(float x) { return __uint_as_float(0x7f000000 - (__float_as_uint(x) & 0x7f800000)); }
// x is high + low / LOW, to 22 bits.
__device__ void split(float x, __half& high, __half& low) {
    high = __float2half(x);
    const float left = x - __half2float(high);
    low = __float2half(left * LOW);
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
    overflow(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta,
             float* C, int ldc) {
    __shared__ float As[BM][BK + 1];
    __shared__ float Bs[BK][BN + 1];
    __shared__ float up[BM + BN];  // what a row of A is multiplied by, and behind them a column of B

    const int lane = threadIdx.x, block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    float sums[4] = {}, rest[4] = {};  // of high * high; of the products with a low piece
    //[solution
    if (lane < BM + BN) {
        const int row = block_row + lane, column = block_col + lane - BM;
        float largest = 0;
        if (lane < BM ? row < M : column < N)
            for (int k = 0; k < K; k++) largest = fmaxf(largest, fabsf(lane < BM ? A[size_t(row) * lda + k] : B[size_t(k) * ldb + column]));
        up[lane] = inverse_power(largest);
    }
    //[starter
    //|if (lane < BM + BN) up[lane] = 1;
    //]
    __syncwarp();
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = lane; i < BM * BK; i += 32) {
            const int r = i / BK, k = i % BK;
            As[r][k] = block_row + r < M && k0 + k < K ? A[size_t(block_row + r) * lda + k0 + k] * up[r] : 0;
        }
        for (int i = lane; i < BK * BN; i += 32) {
            const int k = i / BN, n = i % BN;
            Bs[k][n] = k0 + k < K && block_col + n < N ? B[size_t(k0 + k) * ldb + block_col + n] * up[BM + n] : 0;
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
        mma(sums, high_a, high_b);
        #pragma unroll
        for (int p = 0; p < 2; p++) mma(rest, p ? low_a : high_a, p ? high_b : low_b);
        __syncwarp();
    }
    for (int i = 0; i < 4; i++) {  // a thread's sums lie in pairs, eight rows apart
        const int r = block_row + lane / 4 + i / 2 * 8, n = block_col + lane % 4 * 2 + i % 2;
        if (r >= M || n >= N) continue;
        float& out = C[size_t(r) * ldc + n];
        const float sum = (sums[i] + rest[i] / LOW) * inverse_power(up[lane / 4 + i / 2 * 8]) *
                          inverse_power(up[BM + lane % 4 * 2 + i % 2]);
        out = beta == 0 ? alpha * sum : alpha * sum + beta * out;
    }
}
