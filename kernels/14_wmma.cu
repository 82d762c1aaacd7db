// 14 wmma: tensor cores. A warp multiplies 16 x 16 tiles in one operation, 16-bit factors with sums in FP32.
//
// What changed since 13: the multiply-adds. load_matrix_sync spreads a 16 x 16 tile over the registers of 32 threads
//   (a fragment), and mma_sync multiplies two fragments and adds the product to a third: 4096 multiply-adds, for which
//   a warp takes 128 FFMA. A, B and C are FP16, half the bytes; the sums are FP32 and are rounded once, at the end.
//   Otherwise there is less than before: the tiles of block and warp of 10, and as in 09 the next tiles on their way in
//   registers, with one buffer in shared memory. No bias.
// SKEW: a row of a tile is 16 bytes longer than what it holds. A fragment's load reads 16 bytes from each of eight rows
//   together; without it, rows of 64 bytes (A) would meet in 8 of the 32 banks and rows of 256 bytes (B) in 4.
// What it costs: nobody says which thread holds which element of a fragment, so the results pass through shared memory,
//   16 rows at a time, to where each thread knows what it stores.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

using Element = __half;            // of A, B and C. __nv_bfloat16, from compute capability 8.0 on, is the other choice
constexpr int BM = 128, BN = 128;  // tile of C per block
constexpr int BK = 32;             // step along K
constexpr int WM = 64, WN = 64;    // tile of C per warp
constexpr int F = 16;              // a fragment holds F x F elements
constexpr int SKEW = 8;            // elements; a multiple of 8 keeps rows of a tile aligned to 16 bytes
constexpr int STRIP = 8;           // floats; the same for a strip of results
constexpr int WARPS_N = BN / WN, WARPS = BM / WM * WARPS_N;  // warps of a block along N, and in all
constexpr int THREADS = WARPS * 32;
constexpr int A_ROWS = THREADS / (BK / 8), B_ROWS = THREADS / (BN / 8);  // rows of each tile fetched in one sweep

static_assert(BM % WM == 0 && BN % WN == 0, "WM must divide BM and WN must divide BN: warps tile the block's tile");
static_assert(WM % F == 0 && WN % F == 0 && BK % F == 0, "WM, WN and BK must be multiples of 16: fragments tile them");
static_assert(SKEW % 8 == 0, "SKEW must be a multiple of 8: rows of a tile are whole 16-byte pieces");
static_assert(THREADS <= 1024, "a block has at most 1024 threads: raise WM or WN");
static_assert(BK <= 128 && BM % A_ROWS == 0, "the block must fetch its tile of A in whole sweeps");
static_assert(THREADS % (BN / 8) == 0 && BK % B_ROWS == 0, "the block must fetch its tile of B in whole sweeps");
static_assert(128 % WN == 0, "WN must divide 128: a warp stores whole rows, four elements to a thread");

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};

// Eight elements of a row, the first `left` of them inside the matrix, then zeros. Rows that are `whole` 16-byte pieces
// take one load.
__device__ uint4 load8(const Element* from, int left, bool whole) {
    uint4 eight = {};
    if (whole) {
        if (left > 0) eight = *reinterpret_cast<const uint4*>(from);
    } else {
        Element* one = reinterpret_cast<Element*>(&eight);
        #pragma unroll
        for (int q = 0; q < 8; q++)
            if (q < left) one[q] = from[q];
    }
    return eight;
}
// alpha * v + beta * C for four neighbours of a row of C, the first `left` of them inside.
__device__ void store4(Element* to, float4 v, int left, bool whole, float alpha, float beta) {
    const float four[] = {alpha * v.x, alpha * v.y, alpha * v.z, alpha * v.w};
    if (whole) {
        if (left <= 0) return;
        uint2 packed = {};
        Element* one = reinterpret_cast<Element*>(&packed);
        if (beta != 0.0f) packed = *reinterpret_cast<const uint2*>(to);
        #pragma unroll
        for (int q = 0; q < 4; q++) one[q] = beta == 0.0f ? four[q] : four[q] + beta * (float)one[q];
        *reinterpret_cast<uint2*>(to) = packed;
    } else {
        #pragma unroll
        for (int q = 0; q < 4; q++)
            if (q < left) to[q] = beta == 0.0f ? four[q] : four[q] + beta * (float)to[q];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
wmma(int M, int N, int K, float alpha, const Element* A, int lda, const Element* B, int ldb,
     float beta, Element* C, int ldc) {
    using namespace nvcuda;
    __shared__ __align__(32) Element As[BM][BK + SKEW];
    __shared__ __align__(32) Element Bs[BK][BN + SKEW];
    __shared__ __align__(32) float strips[WARPS][F][WN + STRIP];

    const int t = threadIdx.x, warp = t / 32, lane = t % 32;
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    const int row = warp / WARPS_N * WM, col = warp % WARPS_N * WN;  // of the warp's tile in the block's
    // This thread's eight elements in a sweep over A's tile, and over B's. Threads store by eights, two rows of A each:
    // rows that lie half a warp's rows apart, because neighbours, with the skew, would share some banks.
    const int nth = lane / (BK / 8), a_row = warp * (256 / BK) + nth % 2 * (128 / BK) + nth / 2;
    const int a_k = t % (BK / 8) * 8;
    const int b_row = t / (BN / 8), b_col = t % (BN / 8) * 8;
    const bool a_whole = ((size_t)A % 16 | lda % 8 | K % 8) == 0;  // rows of A are whole 16-byte pieces
    const bool b_whole = ((size_t)B % 16 | ldb % 8 | N % 8) == 0;
    const bool c_whole = ((size_t)C % 8 | ldc % 4 | N % 4) == 0;   // C is stored four elements at a time

    uint4 a_next[BM / A_ROWS], b_next[BK / B_ROWS];  // the tiles on their way
    auto fetch = [&](int k0) {
        #pragma unroll
        for (int i = 0; i < BM / A_ROWS; i++) {
            const int r = block_row + a_row + i * A_ROWS;
            a_next[i] = load8(&A[(size_t)r * lda + k0 + a_k], r < M ? K - k0 - a_k : 0, a_whole);
        }
        #pragma unroll
        for (int i = 0; i < BK / B_ROWS; i++) {
            const int k = k0 + b_row + i * B_ROWS;
            b_next[i] = load8(&B[(size_t)k * ldb + block_col + b_col], k < K ? N - block_col - b_col : 0, b_whole);
        }
    };

    wmma::fragment<wmma::accumulator, F, F, F, float> sum[WM / F][WN / F];
    #pragma unroll
    for (int i = 0; i < WM / F; i++)
        #pragma unroll
        for (int j = 0; j < WN / F; j++) wmma::fill_fragment(sum[i][j], 0.0f);

    fetch(0);
    for (int k0 = 0; k0 < K; k0 += BK) {
        #pragma unroll
        for (int i = 0; i < BM / A_ROWS; i++) *reinterpret_cast<uint4*>(&As[a_row + i * A_ROWS][a_k]) = a_next[i];
        #pragma unroll
        for (int i = 0; i < BK / B_ROWS; i++) *reinterpret_cast<uint4*>(&Bs[b_row + i * B_ROWS][b_col]) = b_next[i];
        __syncthreads();  // both tiles are complete before anyone reads them
        fetch(k0 + BK);
        #pragma unroll
        for (int k = 0; k < BK; k += F) {
            wmma::fragment<wmma::matrix_a, F, F, F, Element, wmma::row_major> a[WM / F];
            #pragma unroll
            for (int i = 0; i < WM / F; i++) wmma::load_matrix_sync(a[i], &As[row + i * F][k], BK + SKEW);
            #pragma unroll
            for (int j = 0; j < WN / F; j++) {
                wmma::fragment<wmma::matrix_b, F, F, F, Element, wmma::row_major> b;
                wmma::load_matrix_sync(b, &Bs[k][col + j * F], BN + SKEW);
                #pragma unroll
                for (int i = 0; i < WM / F; i++) wmma::mma_sync(sum[i][j], a[i], b, sum[i][j]);
            }
        }
        __syncthreads();  // everyone has finished reading before anyone overwrites
    }

    const int c = lane % (WN / 4) * 4, out_col = block_col + col + c;  // the four columns that this thread stores
    #pragma unroll
    for (int i = 0; i < WM / F; i++) {
        #pragma unroll
        for (int j = 0; j < WN / F; j++)
            wmma::store_matrix_sync(&strips[warp][0][j * F], sum[i][j], WN + STRIP, wmma::mem_row_major);
        __syncwarp();  // the strip is complete
        #pragma unroll 1
        for (int r = lane / (WN / 4); r < F; r += 128 / WN) {
            const int out_row = block_row + row + i * F + r;
            store4(&C[(size_t)out_row * ldc + out_col], *reinterpret_cast<const float4*>(&strips[warp][r][c]),
                   out_row < M ? N - out_col : 0, c_whole, alpha, beta);
        }
        __syncwarp();  // and read, before the next one overwrites it
    }
}
