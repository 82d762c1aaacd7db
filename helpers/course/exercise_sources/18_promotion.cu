//! kind: change
//! title: Promotion
//! task: Every result is within the error bound that any order of adding has. But where K is long and all numbers are positive, the errors are
//!     all on one side, and together many times those of FP32. Let the CUDA cores add up what the tensor cores have summed over a
//!     short stretch of k, so short that on positive numbers, at K = 4096, the root mean square of the relative errors is at most 10 times
//!     2^-24, also where the first eighth of each row of A is 8 times as large.
//! hint: float addition rounds to the nearest, and errors go either way. A tensor core cuts off. How often is something cut off from a
//!     sum that is large already?
//! hint: What is cut off is a part of the sum, so it is little as long as the sum is short. Which of the two accumulators is worth the
//!     trouble?
//! hint: Every 64 k, add sums to four more floats, promoted, and set sums to zero. What is left in sums at the end belongs to the result
//!     as well.
//! expect: HMMA instructions of each warp == 3/16 K
//! expect: FFMA instructions of each warp <= 3 K
//! expect: FMUL instructions of each warp <= 3 K
//! expect: FP64 instructions of each warp == 0
//! accuracy: 4096 10
//! after: The sums with a low piece may stay: they are 2^11 times smaller, and so is what is cut off from them.
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
    promotion(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta,
             float* C, int ldc) {
    __shared__ float As[BM][BK + 1];
    __shared__ float Bs[BK][BN + 1];

    const int lane = threadIdx.x, block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    float sums[4] = {}, rest[4] = {};  // of high * high; of the products with a low piece
    //[solution
    float promoted[4] = {};
    //[starter
    //]
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
        mma(sums, high_a, high_b);
        #pragma unroll
        for (int p = 0; p < 2; p++) mma(rest, p ? low_a : high_a, p ? high_b : low_b);
        //[solution
        if (k0 / BK % 4 == 3)
            for (int i = 0; i < 4; i++) {
                promoted[i] += sums[i];
                sums[i] = 0;
            }
        //[starter
        //]
        __syncwarp();
    }
    for (int i = 0; i < 4; i++) {  // a thread's sums lie in pairs, eight rows apart
        const int r = block_row + lane / 4 + i / 2 * 8, n = block_col + lane % 4 * 2 + i % 2;
        if (r >= M || n >= N) continue;
        float& out = C[size_t(r) * ldc + n];
        //[solution
        const float sum = promoted[i] + sums[i] + rest[i] / LOW;
        //[starter
        //|const float sum = sums[i] + rest[i] * (1 / LOW);
        //]
        out = beta == 0 ? alpha * sum : alpha * sum + beta * out;
    }
}
