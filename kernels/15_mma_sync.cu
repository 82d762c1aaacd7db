// 15 mma_sync: the tensor cores by their own instructions, with every element in a known register.
//
// What changed since 14: ldmatrix and mma.sync in place of nvcuda::wmma. Their layouts are documented, so tiles need no
//   padding: the 16-byte pieces of a row change places by an exclusive or with the row's number (SWIZZLE), and eight
//   rows of a fragment still lie in different banks. ldmatrix.trans turns B over on its way, for B lies by rows and
//   mma wants its columns. Copies go past the registers, as in 10, and the registers that this frees hold the fragments
//   of the next 16 k. The last multiplications of a tile read the first fragments of the next, as in 11: nobody waits
//   for fragments, and the stage that was just read is free, and is filled again at once. A block inside the matrices
//   has a main loop of its own, without a test for each copy. BF16: the exponents of FP32, 8 bits of significand.
// What it saves: the skew, the registers and stores of tiles on their way, one barrier of two.
// What it costs: STAGES pairs of tiles in shared memory, and 128 x 256 results keep one block on a multiprocessor.
// Rows of A or B that do not begin at multiples of 16 bytes cannot be copied so: they pass through registers, slower.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

using Element = __nv_bfloat16;     // of A, B and C; the other choice is __half,
#define ELEMENT "bf16"             // which PTX calls "f16"
constexpr int BM = 128, BN = 256;  // tile of C per block
constexpr int BK = 32;             // step along K
constexpr int WM = 64, WN = 64;    // tile of C per warp
constexpr int STAGES = 4;          // pairs of tiles in shared memory
constexpr int SWIZZLE = 1;         // 0: pieces stay where they are
constexpr int STRIP = 8;           // floats between the rows of a strip of results
constexpr int WARPS_N = BN / WN, WARPS = BM / WM * WARPS_N;  // warps of a block along N, and in all
constexpr int THREADS = WARPS * 32;
constexpr int A_ROWS = THREADS / (BK / 8), B_ROWS = THREADS / (BN / 8);  // rows of each tile copied in one sweep

static_assert(BM % WM == 0 && BN % WN == 0, "WM must divide BM and WN must divide BN: warps tile the block's tile");
static_assert(WM % 16 == 0 && WN % 16 == 0 && BK % 16 == 0, "WM, WN and BK must be multiples of 16, as fragments are");
static_assert(128 % WN == 0, "WN must divide 128: a warp stores whole rows, four elements to a thread");
static_assert(BK == 32 || BK % 64 == 0, "BK must be 32 or a multiple of 64: fragments alternate, and for the swizzle");
static_assert(BN % 64 == 0, "BN must be a multiple of 64 for the swizzle");
static_assert(STAGES >= 2, "one stage is written while another is read: STAGES must be at least 2");
static_assert(THREADS <= 1024, "a block has at most 1024 threads: raise WM or WN");
static_assert(A_ROWS % 8 == 0 && BM % A_ROWS == 0, "the block must copy its tile of A in whole sweeps of 8 rows");
static_assert(B_ROWS % 8 == 0 && BK % B_ROWS == 0, "the block must copy its tile of B in whole sweeps of 8 rows");

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};

struct Stage {
    Element A[BM * BK];
    Element B[BK * BN];
};
extern "C" __device__ constexpr int dynamic_shared[] = {STAGES * sizeof(Stage)};
static_assert(WARPS * 16 * (WN + STRIP) * sizeof(float) <= STAGES * sizeof(Stage), "the strips must fit in the stages");

// Where a 16-byte piece lies in a tile with so many PIECES to a row, in elements. 128 bytes are one turn of the banks:
// pieces of a row trade places by the row's number, or, where several rows share such a line, by the line's.
template <int PIECES> __device__ int place(int row, int piece) {
    constexpr int ROWS = PIECES < 8 ? 8 / PIECES : 1;  // of one line
    return (row * PIECES + (SWIZZLE ? piece ^ row / ROWS % (PIECES < 8 ? PIECES : 8) : piece)) * 8;
}
__device__ unsigned address(const void* shared) { return (unsigned)__cvta_generic_to_shared(shared); }

// Start to copy 16 bytes from global to shared memory; or the first `bytes` of them, with zeros behind.
__device__ void copy16(Element* to, const Element* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(address(to)), "l"(from));
}
__device__ void copy16(Element* to, const Element* from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(address(to)), "l"(from), "r"(bytes));
}
// The latter by loads and a store, from any alignment.
__device__ void store16(Element* to, const Element* from, int bytes) {
    uint4 eight = {};
    Element* one = reinterpret_cast<Element*>(&eight);
    #pragma unroll
    for (int q = 0; q < 8; q++)
        if (2 * q < bytes) one[q] = from[q];
    *reinterpret_cast<uint4*>(to) = eight;
}
// What was started since the last commit is a group; wait<N> waits for all groups but the last N.
__device__ void commit() { asm volatile("cp.async.commit_group;"); }
template <int N> __device__ void wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }

// Four matrices of 8 x 8 elements; each thread gives the address of one row. _trans turns each of them over.
__device__ void ldmatrix(unsigned (&to)[4], const Element* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address(row)) : "memory");
}
__device__ void ldmatrix_trans(unsigned (&to)[4], const Element* k_row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address(k_row)) : "memory");
}
// c += a * b: 16 x 8 sums, 16 x 16 elements of A, 16 x 8 of B.
__device__ void mma(float (&c)[4], const unsigned (&a)[4], const unsigned* b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." ELEMENT "." ELEMENT ".f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
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
mma_sync(int M, int N, int K, float alpha, const Element* A, int lda, const Element* B, int ldb,
         float beta, Element* C, int ldc) {
    extern __shared__ __align__(128) unsigned char shared[];
    Stage* stages = reinterpret_cast<Stage*>(shared);

    const int t = threadIdx.x, warp = t / 32, lane = t % 32;
    const int block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    const int row = warp / WARPS_N * WM, col = warp % WARPS_N * WN;  // of the warp's tile in the block's
    const int a_row = t / (BK / 8), a_piece = t % (BK / 8);  // this thread's piece in a sweep over A's tile
    const int b_row = t / (BN / 8), b_piece = t % (BN / 8);  // and over B's
    const bool a_whole = ((size_t)A % 16 | lda % 8) == 0;    // rows of A begin at multiples of 16 bytes
    const bool b_whole = ((size_t)B % 16 | ldb % 8) == 0;
    const bool c_whole = ((size_t)C % 8 | ldc % 4 | N % 4) == 0;  // C is stored four elements at a time

    const Element* a_from = A + (size_t)(block_row + a_row) * lda + a_piece * 8;  // where the next tiles start for it
    const Element* b_from = B + (size_t)b_row * ldb + block_col + b_piece * 8;
    const int a_to = place<BK / 8>(a_row, a_piece), b_to = place<BN / 8>(b_row, b_piece);
    const int b_bytes = min(16, max(0, 2 * (N - block_col - b_piece * 8)));  // of its piece of B inside the matrix
    auto fetch = [&](const bool inside, Stage& stage, int k0) {  // inside: all of these tiles lie in the matrices
        if (inside) {
            if (k0 >= K) return;
            #pragma unroll
            for (int i = 0; i < BM; i += A_ROWS) copy16(&stage.A[a_to + i * BK], a_from + i * (size_t)lda);
            #pragma unroll
            for (int i = 0; i < BK; i += B_ROWS) copy16(&stage.B[b_to + i * BN], b_from + i * (size_t)ldb);
            a_from += BK;
            b_from += BK * (size_t)ldb;
            return;
        }
        const int a_bytes = min(16, max(0, 2 * (K - k0 - a_piece * 8)));
        const int a_left = M - block_row - a_row, b_left = K - k0 - b_row;  // rows from here to the matrices' edges
        if (a_whole) {
            #pragma unroll
            for (int i = 0; i < BM; i += A_ROWS)
                copy16(&stage.A[a_to + i * BK], a_from + i * (size_t)lda, i < a_left ? a_bytes : 0);
        } else {
            #pragma unroll 1
            for (int i = 0; i < BM; i += A_ROWS)
                store16(&stage.A[a_to + i * BK], a_from + i * (size_t)lda, i < a_left ? a_bytes : 0);
        }
        if (b_whole) {
            #pragma unroll
            for (int i = 0; i < BK; i += B_ROWS)
                copy16(&stage.B[b_to + i * BN], b_from + i * (size_t)ldb, i < b_left ? b_bytes : 0);
        } else {
            #pragma unroll 1
            for (int i = 0; i < BK; i += B_ROWS)
                store16(&stage.B[b_to + i * BN], b_from + i * (size_t)ldb, i < b_left ? b_bytes : 0);
        }
        a_from += BK;
        b_from += BK * (size_t)ldb;
    };

    // Where the row of each fragment lies that this thread addresses: of 16 x 16 elements row n % 16, half n / 16.
    int a_at[BK / 16], b_at[WN / 16];
    #pragma unroll
    for (int k = 0; k < BK; k += 16) a_at[k / 16] = place<BK / 8>(row + lane % 16, k / 8 + lane / 16);
    #pragma unroll
    for (int j = 0; j < WN; j += 16) b_at[j / 16] = place<BN / 8>(lane % 16, (col + j) / 8 + lane / 16);
    unsigned a[2][WM / 16][4], b[2][WN / 16][4];  // fragments: of these 16 k and of the next
    auto read = [&](const Stage& stage, int k) {
        #pragma unroll
        for (int i = 0; i < WM; i += 16) ldmatrix(a[k / 16 % 2][i / 16], &stage.A[a_at[k / 16] + i * BK]);
        #pragma unroll
        for (int j = 0; j < WN; j += 16) ldmatrix_trans(b[k / 16 % 2][j / 16], &stage.B[b_at[j / 16] + k * BN]);
    };

    float sum[WM / 16][WN / 8][4] = {};
    auto multiply = [&](const bool inside) {
        #pragma unroll
        for (int s = 0; s < STAGES; s++) {
            fetch(inside, stages[s], s * BK);
            commit();
        }
        wait<STAGES - 1>();
        __syncthreads();
        read(stages[0], 0);
        int now = 0;
        for (int k0 = 0; k0 < K; k0 += BK) {
            #pragma unroll
            for (int k = 0; k < BK; k += 16) {
                if (k + 16 < BK) {
                    read(stages[now], k + 16);
                } else {
                    const int next = now + 1 == STAGES ? 0 : now + 1;
                    wait<STAGES - 2>();  // the next tiles have arrived, for this thread
                    __syncthreads();     // for all threads; and all have read the last of these
                    read(stages[next], 0);
                    fetch(inside, stages[now], k0 + STAGES * BK);
                    commit();            // past the end of K too: the count of groups stays right
                    now = next;
                }
                #pragma unroll
                for (int i = 0; i < WM / 16; i++)
                    #pragma unroll
                    for (int j = 0; j < WN / 8; j++)
                        mma(sum[i][j], a[k / 16 % 2][i], &b[k / 16 % 2][j / 2][j % 2 * 2]);
            }
        }
    };
    // Two main loops, of which a block runs one. Most blocks lie inside, and K is long enough to fill every stage.
    const bool inside = block_row + BM <= M && block_col + BN <= N && K % BK == 0 && K >= STAGES * BK;
    if (a_whole && b_whole && inside) multiply(true);
    else multiply(false);
    wait<0>();
    __syncthreads();  // the stages are free: strips of results take their place

    float(*strip)[WN + STRIP] = reinterpret_cast<float(*)[WN + STRIP]>(shared) + warp * 16;
    const int c = lane % (WN / 4) * 4, out_col = block_col + col + c;  // the four columns that this thread stores
    #pragma unroll
    for (int i = 0; i < WM / 16; i++) {
        #pragma unroll
        for (int j = 0; j < WN / 8; j++) {  // a thread's sums lie in pairs, in rows lane / 4 and lane / 4 + 8
            *reinterpret_cast<float2*>(&strip[lane / 4][j * 8 + lane % 4 * 2]) = {sum[i][j][0], sum[i][j][1]};
            *reinterpret_cast<float2*>(&strip[lane / 4 + 8][j * 8 + lane % 4 * 2]) = {sum[i][j][2], sum[i][j][3]};
        }
        __syncwarp();  // the strip is complete
        #pragma unroll 1
        for (int r = lane / (WN / 4); r < 16; r += 128 / WN) {
            const int out_row = block_row + row + i * 16 + r;
            store4(&C[(size_t)out_row * ldc + out_col], *reinterpret_cast<const float4*>(&strip[r][c]),
                   out_row < M ? N - out_col : 0, c_whole, alpha, beta);
        }
        __syncwarp();  // and read, before the next one overwrites it
    }
}
