// 18 fp32_on_tensor_cores: an FP32 product from several of fewer bits.
//
// What changed since 17: A and B are float. Before the product two passes look at them and split them. `measure` finds
//   the exponents of the largest and the smallest number of each row of A and each column of B; `split` multiplies rows
//   and columns by powers of two and writes every number as a sum of 16-bit pieces. The tensor cores multiply pieces:
//   two FP16 pieces (22 bits) and three products, high * high + high * low + low * high; or, where the numbers of a
//   row lie further apart than FP16 reaches, three BF16 pieces (24 bits) and six products. Tensor cores cut their sums
//   off to fewer bits than FP32 rounds to: every BK the products of the high pieces are added to sums in registers
//   (promotion). Those with a low piece are so much smaller that they may stay. Nothing is turned: a consumer has 64
//   rows of C, and blocks below each other share their tiles of B.
// What it saves: tensor cores multiply 15 times as many FP16 as CUDA cores FP32; three products leave a factor of 5.
// What it costs: two passes over A and B, memory for the pieces, and registers for three sums of each result.
// Infinities, NaN, and rows that not even BF16's exponents span: what they touch is computed as in step 01.

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr int BM = 128, BN = 128;  // tile of C per block: 64 rows for each of two consumers
constexpr int BK = 64;             // step along K: 128 bytes of pieces, the span of the swizzle
constexpr int CLUSTER = 2;         // blocks that share their tiles of B: 1 or 2
constexpr int PANEL = 8;           // tiles of clusters below each other before the next column
constexpr int SNAKE = 1;           // 0: every tile walks K upwards
constexpr int PROMOTE = 1;         // 0: sums stay in the tensor cores
constexpr int PRODUCTS = 3;        // of FP16 pieces: 1 is high * high alone
constexpr int SCALE = 1;           // 0: rows and columns are split as they are
constexpr int ALWAYS_WIDE = 0;     // 1: three BF16 pieces, whatever the data
constexpr int SPREAD = 34;         // powers of two from a row's smallest to its largest number that FP16 pieces bear
constexpr int SHORT = 128;         // K below which FP32's own sums are so exact that 22 bits would show
constexpr int CONSUMERS = BM / 64;
constexpr int THREADS = (CONSUMERS + 1) * 128;
constexpr int PASS_THREADS = 1024;

static_assert(BM == 128 && BN == 128, "BM and BN must be 128: three sums of a result fill the registers");
static_assert(BK == 64, "BK must be 64: a row of A's tile fills the 128 bytes of the swizzle");
static_assert(CLUSTER == 1 || CLUSTER == 2, "CLUSTER must be 1 or 2: B's two boxes are shared out");
static_assert(PRODUCTS == 1 || PRODUCTS == 3, "PRODUCTS must be 1 or 3");

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};
extern "C" __device__ constexpr int persistent[] = {1};            // blocks per multiprocessor
extern "C" __device__ constexpr int passes[] = {PASS_THREADS, 2};  // of measure and split: threads, blocks on an SM
extern "C" __device__ constexpr int pieces[] = {3};                // for how many there is room
extern "C" __device__ constexpr int box_A[] = {BM, BK, 128};       // one copy: rows, columns, bytes of the swizzle
extern "C" __device__ constexpr int box_B[] = {BK, 64, 128};

using Piece = unsigned short;  // the bits of an FP16 or BF16 number
struct Fp16 {
    static constexpr int PIECES = 2, STAGES = 3, LOW = 12;  // the second piece is multiplied by 2^LOW
};
struct Bf16 {
    static constexpr int PIECES = 3, STAGES = 2, LOW = 0;
};
template <class Format> struct Stage {
    Piece A[Format::PIECES][BM * BK];  // rows of 64 k
    Piece B[Format::PIECES][BN * BK];  // two boxes of 64 columns: rows of 64 n
};
struct Shared {
    union {
        Stage<Fp16> fp16[Fp16::STAGES];
        Stage<Bf16> bf16[Bf16::STAGES];
    };
    uint64_t full[Fp16::STAGES], empty[Fp16::STAGES];  // mbarriers: has the stage arrived, have its readers left?
};
extern "C" __device__ constexpr int dynamic_shared[] = {sizeof(Shared)};

// ------------------------------------------------------------------------------------------- what is in A and B

constexpr int ZEROS = 0, OUTSIDE = 1 << 20;  // a row without numbers; one that no pieces can stand for

// Exponents of the largest and the smallest number of a row or column, in one int.
__device__ int range(float largest, float smallest, bool finite) {
    if (!finite) return OUTSIDE << 1;
    return largest == 0.0f ? ZEROS : (ilogbf(largest) + 256) << 10 | (ilogbf(smallest) + 256);
}
// The power of two that it is multiplied by before it is split, at most 120 either way, or OUTSIDE.
__device__ int shift(int range, bool wide) {
    if (range == ZEROS) return 0;
    const int largest = (range >> 10) - 256, smallest = (range & 1023) - 256;
    if (range >= OUTSIDE) return OUTSIDE;
    if (!SCALE) return 0;
    if (!wide) return 14 - largest;  // FP16 ends below 2^16
    const int up = min(10 - largest, 120);
    if (smallest + up >= -110) return up;  // all three BF16 pieces are above 2^-133
    return smallest >= -110 && largest < 127 ? 0 : OUTSIDE;
}
__device__ bool fits_fp16(int range) {
    const int largest = (range >> 10) - 256, smallest = (range & 1023) - 256;
    return range == ZEROS || range >= OUTSIDE || (largest - smallest <= SPREAD && largest >= -106);
}
__device__ bool is_wide(const int* ranges, int M, int N, int K) {
    return ALWAYS_WIDE || (SCALE && (ranges[M + N] != 0 || K < SHORT));
}

// ranges: of the M rows of A, of the N columns of B, and whether one of them does not fit FP16 (0 before).
extern "C" __global__ void __launch_bounds__(PASS_THREADS)
measure(int M, int N, int K, const float* A, int lda, const float* B, int ldb, Piece* pieces_A, int pitch_A,
        Piece* pieces_B, int pitch_B, int* ranges) {
    constexpr int WARPS = PASS_THREADS / 32;
    __shared__ unsigned high[WARPS][32], low[WARPS][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int groups_A = (M + WARPS - 1) / WARPS, groups_B = (N + 31) / 32;
    auto write = [&](int* to, unsigned largest, unsigned smallest) {
        const int found = range(__uint_as_float(largest), __uint_as_float(smallest), largest < 0x7f800000);
        *to = found;
        if (!fits_fp16(found)) atomicOr(&ranges[M + N], 1);
    };
    for (int group = blockIdx.x; group < groups_A + groups_B; group += gridDim.x) {
        unsigned largest = 0, smallest = ~0u;  // bits without the sign: they compare as the numbers do, NaN highest
        auto look = [&](float x) {
            const unsigned bits = __float_as_uint(x) & 0x7fffffff;
            largest = max(largest, bits);
            if (bits != 0) smallest = min(smallest, bits);
        };
        if (group < groups_A) {  // a warp looks at a row
            const int row = group * WARPS + warp;
            if (row < M) {
                #pragma unroll 4
                for (int k = lane; k < K; k += 32) look(A[(size_t)row * lda + k]);
                largest = __reduce_max_sync(~0u, largest);
                smallest = __reduce_min_sync(~0u, smallest);
                if (lane == 0) write(&ranges[row], largest, smallest);
            }
        } else {  // a block looks at 32 columns
            const int column = (group - groups_A) * 32 + lane;
            if (column < N)
                #pragma unroll 4
                for (int k = warp; k < K; k += WARPS) look(B[(size_t)k * ldb + column]);
            high[warp][lane] = largest;
            low[warp][lane] = smallest;
            __syncthreads();
            if (warp == 0 && column < N) {
                for (int i = 1; i < WARPS; i++) {
                    largest = max(largest, high[i][lane]);
                    smallest = min(smallest, low[i][lane]);
                }
                write(&ranges[M + column], largest, smallest);
            }
            __syncthreads();
        }
    }
}

// ------------------------------------------------------------------------------------------------- into pieces

__device__ float power_of_two(int exponent) { return __int_as_float((exponent + 127) << 23); }  // -126 to 127

// Four numbers times powers of two, the pieces of each so far apart in memory. What is outside becomes 0.
__device__ void write_pieces(const float (&x)[4], const int (&shifts)[4], bool wide, Piece* to, size_t apart) {
    float rest[4];
    #pragma unroll
    for (int i = 0; i < 4; i++) rest[i] = shifts[i] == OUTSIDE ? 0.0f : x[i] * power_of_two(shifts[i]);
    #pragma unroll
    for (int piece = 0; piece < 3; piece++) {
        if (piece == 2 && !wide) break;
        Piece bits[4];
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            if (wide) {
                const __nv_bfloat16 number = __float2bfloat16_rn(rest[i]);
                bits[i] = __bfloat16_as_ushort(number);
                rest[i] -= __bfloat162float(number);
            } else {
                const __half number = __float2half_rn(rest[i]);
                bits[i] = __half_as_ushort(number);
                rest[i] = (rest[i] - __half2float(number)) * power_of_two(Fp16::LOW);
            }
        }
        *(ushort4*)(to + piece * apart) = make_ushort4(bits[0], bits[1], bits[2], bits[3]);
    }
}
// pieces_A: [3 M, pitch_A], one piece of all of A below the other; pieces_B: [K, pitch_B], three of N columns (rounded
// up to a multiple of 8) side by side. Behind the end of a row of A are zeros.
extern "C" __global__ void __launch_bounds__(PASS_THREADS)
split(int M, int N, int K, const float* A, int lda, const float* B, int ldb, Piece* pieces_A, int pitch_A,
      Piece* pieces_B, int pitch_B, int* ranges) {
    const bool wide = is_wide(ranges, M, N, K);
    const size_t fours_A = (size_t)M * (pitch_A / 4), fours_B = (size_t)K * (pitch_B / 3 / 4);
    const size_t first = blockIdx.x * (size_t)PASS_THREADS + threadIdx.x, threads = gridDim.x * (size_t)PASS_THREADS;
    for (size_t i = first; i < fours_A + fours_B; i += threads) {
        const bool of_A = i < fours_A;
        const size_t place = of_A ? i : i - fours_A;
        const int across = of_A ? pitch_A / 4 : pitch_B / 3 / 4;
        const int row = (int)(place / across), column = (int)(place % across) * 4;
        const int columns = of_A ? K : N, ld = of_A ? lda : ldb;
        const float* from = (of_A ? A : B) + (size_t)row * ld + column;
        float x[4] = {};
        if (column + 4 <= columns && (size_t)from % 16 == 0) {
            *(float4*)x = *(const float4*)from;
        } else {
            for (int j = 0; j < 4; j++)
                if (column + j < columns) x[j] = from[j];
        }
        int shifts[4];
        #pragma unroll
        for (int j = 0; j < 4; j++) {
            if (of_A) shifts[j] = j ? shifts[0] : shift(ranges[row], wide);
            else shifts[j] = column + j < N ? shift(ranges[M + column + j], wide) : 0;
        }
        if (of_A) write_pieces(x, shifts, wide, pieces_A + (size_t)row * pitch_A + column, (size_t)M * pitch_A);
        else write_pieces(x, shifts, wide, pieces_B + (size_t)row * pitch_B + column, pitch_B / 3);
    }
}

// ------------------------------------------------------------------------------------------------- the product

__device__ unsigned address(const void* shared) { return (unsigned)__cvta_generic_to_shared(shared); }
__device__ unsigned rank_in_cluster() {
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
// All threads of all blocks of the cluster.
__device__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// An mbarrier is in phase 0, 1, 0, ... and ends a phase when `arrivals` threads and all expected bytes have come.
__device__ void init(uint64_t* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(address(barrier)), "r"(arrivals));
}
// Wait until this phase has ended.
__device__ void wait(uint64_t* barrier, int phase) {
    asm volatile("{\n"
                 ".reg .pred ended;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
                 "@!ended bra again;\n"
                 "}" :: "r"(address(barrier)), "r"(phase) : "memory");
}
// Arrive, and let the phase expect so many bytes more.
__device__ void expect(uint64_t* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(address(barrier)), "r"(bytes) : "memory");
}
// Arrive at the barrier of this name in a block of the cluster. Without `.release.cluster`: with it the compiler makes
// all of the GPU see our writes first (MEMBAR.ALL.GPU): a quarter of step 17's speed, for a reader who wrote nothing.
__device__ void arrive(uint64_t* barrier, int block) {
    asm volatile("{\n"
                 ".reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
                 "}" :: "r"(address(barrier)), "r"(block) : "memory");
}
// Start to copy the box at this column and row; the barrier counts its bytes. Outside of the matrix are zeros.
__device__ void load(Piece* to, const CUtensorMap& map, int column, int row, uint64_t* barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];"
                 :: "r"(address(to)), "l"(&map), "r"(column), "r"(row), "r"(address(barrier)) : "memory");
}
// The same to this place in every block of the cluster; the barrier at this place in each of them counts.
__device__ void load_for_all(Piece* to, const CUtensorMap& map, int column, int row, uint64_t* barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3}], [%4], %5;"
                 :: "r"(address(to)), "l"(&map), "r"(column), "r"(row), "r"(address(barrier)),
                    "h"((short)((1 << CLUSTER) - 1)) : "memory");
}
// A matrix descriptor for tiles with the swizzle of 128 bytes: where it begins, how far the next span of 64 elements
// lies behind (where lines are longer than one), and that blocks of 8 lines of 128 bytes follow each other.
__device__ uint64_t descriptor(const Piece* from, int span) {
    return (address(from) & 0x3FFFF) >> 4 | (uint64_t)(span >> 4) << 16 | (uint64_t)(8 * 128 >> 4) << 32 | 1ull << 62;
}
// d = a * b, and + d if `add`: 64 x 128 sums of a warpgroup, 16 k. A lies by rows (K-major), B too: MN-major, the
// last 1.
#define SUMS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SUMS_16(i) SUMS_4(i), SUMS_4(i + 4), SUMS_4(i + 8), SUMS_4(i + 12)
#define WGMMA(Format, TYPE)                                                                                           \
    __device__ void wgmma(Format, float (&d)[BN / 2], uint64_t a, uint64_t b, bool add) {                             \
        asm volatile("{\n"                                                                                            \
                     ".reg .pred add;\n"                                                                              \
                     "setp.ne.b32 add, %66, 0;\n"                                                                     \
                     "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " {"                                \
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                         \
                     "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "               \
                     "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "               \
                     "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "              \
                     "%64, %65, add, 1, 1, 0, 1;\n"                                                                   \
                     "}"                                                                                              \
                     : SUMS_16(0), SUMS_16(16), SUMS_16(32), SUMS_16(48) : "l"(a), "l"(b), "r"((int)add));            \
    }
WGMMA(Fp16, "f16")
WGMMA(Bf16, "bf16")
// Registers that wgmma writes belong to it from the fence to the wait. What was issued since the last commit is a
// group; wgmma_wait<N> waits for all groups but the last N.
__device__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");
}


// The tiles of C, by pieces of this format; `stages` is its ring.
template <class Format>
__device__ __forceinline__ void multiply(Format format, Stage<Format>* stages, Shared& shared, int M, int N, int K,
                                         float alpha, const float* A, int lda, const float* B, int ldb, float beta,
                                         float* C, int ldc, const int* ranges, const CUtensorMap& map_A,
                                         const CUtensorMap& map_B) {
    constexpr bool wide = Format::PIECES == 3;
    const int t = threadIdx.x, group = __shfl_sync(~0u, t / 128, 0);  // the shuffle: a warp agrees
    const int rank = CLUSTER > 1 ? rank_in_cluster() : 0;
    const int rows = (M + BM * CLUSTER - 1) / (BM * CLUSTER), columns = (N + BN - 1) / BN;  // of tiles of clusters
    const int first = blockIdx.x / CLUSTER, clusters = gridDim.x / CLUSTER;
    const int steps = (K + BK - 1) / BK;

    // This block's tile of a cluster's: its first row and column in C.
    auto place = [&](int tile, int& row, int& col) {
        const int panel = tile / (PANEL * columns), in_panel = tile % (PANEL * columns);
        const int height = min(PANEL, rows - panel * PANEL);  // the last panel may be lower
        row = ((panel * PANEL + in_panel % height) * CLUSTER + rank) * BM;
        col = in_panel / height * BN;
    };
    int stage = 0, phase = 0;
    auto next = [&] {
        if (++stage == Format::STAGES) stage = 0, phase ^= 1;
    };

    if (group == CONSUMERS) {  // the producer: one thread of it
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (t == CONSUMERS * 128) {
            const int apart = (N + 7) / 8 * 8;  // columns from one piece of B to the next
            bool backwards = false;
            for (int tile = first; tile < rows * columns; tile += clusters) {
                int row, col;
                place(tile, row, col);
                for (int i = 0; i < steps; i++, next()) {
                    const int k = (backwards ? steps - 1 - i : i) * BK;
                    wait(&shared.empty[stage], phase ^ 1);  // the phase before: at once in the first round
                    Stage<Format>& to = stages[stage];
                    uint64_t* full = &shared.full[stage];
                    expect(full, sizeof(to));
                    #pragma unroll
                    for (int piece = 0; piece < Format::PIECES; piece++) {
                        load(to.A[piece], map_A, k, piece * M + row, full);
                        #pragma unroll
                        for (int b = 0; b < BN / 64 / CLUSTER; b++) {
                            const int box = rank * (BN / 64 / CLUSTER) + b;  // this block's part of B
                            Piece* there = to.B[piece] + box * 64 * BK;
                            if (CLUSTER > 1) load_for_all(there, map_B, piece * apart + col + box * 64, k, full);
                            else load(there, map_B, piece * apart + col + box * 64, k, full);
                        }
                    }
                }
                if (SNAKE) backwards = !backwards;
            }
        }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int warp = t % 128 / 32, lane = t % 32;
    const bool in_pairs = ((size_t)C % 8 | ldc % 2) == 0;
    float high[BN / 2], low[BN / 2], sum[BN / 2];  // of high pieces alone; with a low one; promoted
    for (int tile = first; tile < rows * columns; tile += clusters) {
        int row, col;
        place(tile, row, col);
        row += group * 64;
        #pragma unroll
        for (int i = 0; i < BN / 2; i++) sum[i] = low[i] = high[i] = 0;
        for (int step = 0; step < steps; step++, next()) {
            wait(&shared.full[stage], phase);
            const Stage<Format>& now = stages[stage];
            auto a = [&](int piece, int k) { return descriptor(now.A[piece] + group * 64 * BK + k, 16); };
            auto b = [&](int piece, int k) { return descriptor(now.B[piece] + k * 64, 64 * BK * sizeof(Piece)); };
            wgmma_fence();
            #pragma unroll
            for (int k = 0; k < BK; k += 16) {
                if (!wide && PRODUCTS == 1) break;
                wgmma(format, low, a(0, k), b(1, k), true);
                wgmma(format, low, a(1, k), b(0, k), true);
                if constexpr (wide) {
                    wgmma(format, low, a(1, k), b(1, k), true);
                    wgmma(format, low, a(0, k), b(2, k), true);
                    wgmma(format, low, a(2, k), b(0, k), true);
                }
            }
            #pragma unroll
            for (int k = 0; k < BK; k += 16) wgmma(format, high, a(0, k), b(0, k), !PROMOTE || k > 0);
            wgmma_commit();
            wgmma_wait<0>();
            if (t % 128 < CLUSTER) arrive(&shared.empty[stage], t % 128);  // at all producers that fill it
            #pragma unroll
            for (int i = 0; i < BN / 2; i++) {
                asm volatile("" : "+f"(high[i]) :: "memory");  // read no sum before the wait
                if (PROMOTE) sum[i] += high[i];
            }
        }
        bool outside = false;
        #pragma unroll
        for (int i = 0; i < BN / 2; i += 2) {  // pairs of columns, rows lane / 4 and lane / 4 + 8 of 16
            asm volatile("" : "+f"(low[i]), "+f"(low[i + 1]) :: "memory");
            const int r = row + warp * 16 + lane / 4 + i / 2 % 2 * 8, c = col + i / 4 * 8 + lane % 4 * 2;
            if (r >= M || c >= N) continue;
            float* to = &C[(size_t)r * ldc + c];
            const int up = shift(__ldg(&ranges[r]), wide);
            float value[2];
            bool mine[2];
            #pragma unroll
            for (int j = 0; j < 2; j++) {
                const int both = c + j < N ? up + shift(__ldg(&ranges[M + c + j]), wide) : OUTSIDE;
                mine[j] = both < OUTSIDE / 2;
                outside |= !mine[j];
                const float scaled = (PROMOTE ? sum[i + j] : high[i + j]) + low[i + j] * power_of_two(-Format::LOW);
                value[j] = alpha * (scaled * power_of_two(-both / 2) * power_of_two(-both - -both / 2));
            }
            if (in_pairs && beta == 0.0f && mine[0] && mine[1]) {
                *(float2*)to = make_float2(value[0], value[1]);
            } else {
                #pragma unroll
                for (int j = 0; j < 2; j++)
                    if (mine[j]) to[j] = beta == 0.0f ? value[j] : value[j] + beta * to[j];
            }
        }
        if (outside) {  // what no pieces stand for
            for (int i = 0; i < BN / 2; i++) {
                const int r = row + warp * 16 + lane / 4 + i / 2 % 2 * 8, c = col + i / 4 * 8 + lane % 4 * 2 + i % 2;
                if (r >= M || c >= N) continue;
                if (shift(ranges[r], wide) != OUTSIDE && shift(ranges[M + c], wide) != OUTSIDE) continue;
                float exact = 0.0f;
                for (int k = 0; k < K; k++) exact += A[(size_t)r * lda + k] * B[(size_t)k * ldb + c];
                float* to = &C[(size_t)r * ldc + c];
                *to = beta == 0.0f ? alpha * exact : alpha * exact + beta * *to;
            }
        }
    }
}

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
fp32_on_tensor_cores(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta,
                     float* C, int ldc, const int* ranges, const __grid_constant__ CUtensorMap map_A,
                     const __grid_constant__ CUtensorMap map_B) {
    extern __shared__ __align__(1024) unsigned char bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(bytes);
    if (threadIdx.x == 0) {
        for (int s = 0; s < Fp16::STAGES; s++) {
            init(&shared.full[s], 1);                     // its own producer
            init(&shared.empty[s], CONSUMERS * CLUSTER);  // every consumer that reads what its producer copies
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");  // the cluster sees the barriers,
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");        // and so does the accelerator
    }
    if (CLUSTER > 1) cluster_sync();
    else __syncthreads();
    if (is_wide(ranges, M, N, K))
        multiply(Bf16(), shared.bf16, shared, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, ranges, map_A, map_B);
    else
        multiply(Fp16(), shared.fp16, shared, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, ranges, map_A, map_B);
    if (CLUSTER > 1) cluster_sync();  // no block leaves while another one copies to it or arrives at its barriers
}
