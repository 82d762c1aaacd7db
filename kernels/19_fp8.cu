// 19 fp8: numbers of 8 bits, and a scale for every 128 of them.
//
// What changed since 17: A and B hold FP8 (e4m3: 3 bits behind the point, largest number 448). So few bits hold numbers
//   of one magnitude only, therefore SCALE_K numbers of a row of A share a factor, and SCALE_K x SCALE_N of B: a number
//   is what is stored times the factor of its block. Tensor cores know no factors, and with FP8 their sums keep 14
//   bits, not 24. Both are mended at once: after SCALE_K of K the sums leave the tensor cores, are multiplied by the
//   factors and added to sums in FP32 (promotion). A consumer with 128 rows multiplies 64 of them at a time: while
//   one consumer adds, the other multiplies. The factors come by the same barriers as the tiles. Nothing is
//   turned: a consumer has rows of C, as in 16. No clusters: they lose here.
// What it saves: half of the bytes, and tensor cores multiply twice as many FP8 as BF16.
// What it costs: accuracy, an addition for every 128 products, the registers of two sums, and who makes the factors.
// wgmma takes 8-bit matrices only with neighbours along K: B is given by columns, [N, K], as cuBLAS wants it, too.

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>

using Element = __nv_fp8_e4m3;     // of A and B
using Result = __nv_bfloat16;      // of C
constexpr int CONSUMERS = 2;       // warpgroups that multiply: 2 or 3
constexpr int BM = 256, BN = 128;  // tile of C per block: 64 or 128 rows for each consumer
constexpr int BK = 128;            // step along K: 128 bytes, the span of the swizzle
constexpr int STAGES = 4;          // pairs of tiles in shared memory
constexpr int PANEL = 4;           // tiles below each other before the next column
constexpr int SCALE_K = 128;       // k that share a factor: 128, or 0 for all of K
constexpr int SCALE_N = 128;       // columns of B that share one
constexpr int PROMOTE = 1;         // 0: sums stay in the tensor cores until the end
constexpr int ROWS = BM / CONSUMERS;  // of a consumer
constexpr int HALVES = ROWS / 64;     // which it multiplies one after the other
constexpr int THREADS = (CONSUMERS + 1) * 128;

static_assert(CONSUMERS == 2 || CONSUMERS == 3, "CONSUMERS must be 2 or 3: registers are shared out to these");
static_assert(HALVES * 64 * CONSUMERS == BM && (HALVES == 1 || (HALVES == 2 && CONSUMERS == 2)),
              "a consumer has 64 rows of BM, and one of two may have 128: two sums of a result fill the registers");
static_assert(BN == 128, "BN must be 128, the columns of this wgmma: another number needs another instruction");
static_assert(BK == 128, "BK must be 128: a row of a tile fills the 128 bytes of the swizzle");
static_assert(STAGES >= 2, "one stage is read while another is written: STAGES must be at least 2");
static_assert(SCALE_K == BK || SCALE_K == 0, "SCALE_K must be 128, the k of a step, or 0 for all of K");
static_assert(SCALE_N == BN, "SCALE_N must be 128: the columns of a tile share one factor");
static_assert(PROMOTE || SCALE_K == 0, "sums that stay in the tensor cores meet one factor: SCALE_K must be 0");

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};
extern "C" __device__ constexpr int persistent[] = {1};                     // blocks per multiprocessor
extern "C" __device__ constexpr int scale_block[] = {1, SCALE_K, SCALE_N};  // rows of A, k, columns of B
extern "C" __device__ constexpr int box_A[] = {BM, BK, 128};  // one copy: rows, columns, bytes of the swizzle
extern "C" __device__ constexpr int box_B[] = {BN, BK, 128};  // of B by columns: its rows are columns
extern "C" __device__ constexpr int box_C[] = {64, 64, 128};

struct Stage {
    Element A[BM * BK];  // rows of 128 k
    Element B[BN * BK];  // columns of 128 k
};
struct Shared {
    Stage stages[STAGES];
    Result C[CONSUMERS][64 * 64];  // on their way to C
    alignas(16) float factors_A[STAGES][BM];
    float factor_B[STAGES];
    uint64_t full[STAGES], empty[STAGES];  // mbarriers: has the stage arrived, have its readers left?
};
extern "C" __device__ constexpr int dynamic_shared[] = {sizeof(Shared)};

__device__ unsigned address(const void* shared) { return (unsigned)__cvta_generic_to_shared(shared); }
// The 128 threads of a consumer.
__device__ void consumer_sync(int group) { asm volatile("bar.sync %0, 128;" :: "r"(group + 1) : "memory"); }

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
__device__ void arrive(uint64_t* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(address(barrier)) : "memory");
}
// Arrive, and let the phase expect so many bytes more.
__device__ void expect(uint64_t* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(address(barrier)), "r"(bytes) : "memory");
}
// Start to copy the box at this column and row; the barrier counts its bytes. Outside of the matrix are zeros.
__device__ void load(Element* to, const CUtensorMap& map, int column, int row, uint64_t* barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];"
                 :: "r"(address(to)), "l"(&map), "r"(column), "r"(row), "r"(address(barrier)) : "memory");
}
// Start to copy bytes that lie together; how many and where from are multiples of 16.
__device__ void load(void* to, const void* from, int bytes, uint64_t* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"(address(to)), "l"(from), "r"(bytes), "r"(address(barrier)) : "memory");
}
// Start to copy a box to the matrix. Copies since the last commit are a group; store_wait waits until all have been
// read.
__device__ void store(const CUtensorMap& map, int column, int row, const Result* from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
                 :: "l"(&map), "r"(column), "r"(row), "r"(address(from)) : "memory");
}
__device__ void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
__device__ void store_wait() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
// A matrix descriptor for lines of 128 k with the swizzle of 128 bytes: where the first k lies, and that blocks of 8
// lines of 128 bytes follow each other.
__device__ uint64_t descriptor(const Element* from) {
    return (address(from) & 0x3FFFF) >> 4 | (uint64_t)(16 >> 4) << 16 | (uint64_t)(8 * 128 >> 4) << 32 | 1ull << 62;
}
// d = a * b, and + d if `add`: 64 x 128 sums of a warpgroup, 32 k. Of 8-bit numbers both must lie with neighbours
// along K.
#define SUMS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SUMS_16(i) SUMS_4(i), SUMS_4(i + 4), SUMS_4(i + 8), SUMS_4(i + 12)
__device__ void wgmma(float (&d)[BN / 2], uint64_t a, uint64_t b, bool add) {
    asm volatile("{\n"
                 ".reg .pred add;\n"
                 "setp.ne.b32 add, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "%64, %65, add, 1, 1;\n"
                 "}"
                 : SUMS_16(0), SUMS_16(16), SUMS_16(32), SUMS_16(48) : "l"(a), "l"(b), "r"((int)add));
}
// Registers that wgmma writes belong to it from the fence to the wait. What was issued since the last commit is a
// group; wgmma_wait waits for all groups.
__device__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
__device__ void wgmma_wait(float (&d)[BN / 2]) {
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    #pragma unroll
    for (int i = 0; i < BN / 2; i++) asm volatile("" : "+f"(d[i]) :: "memory");  // read no sum before the wait
}

// Four matrices of 8 x 8 sums from the registers of a warp to shared memory; each thread gives the address of one row.
__device__ void stmatrix(unsigned row, unsigned a, unsigned b, unsigned c, unsigned d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 :: "r"(row), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
__device__ unsigned pack(float low, float high) {
    Result two[2] = {low, high};
    return *reinterpret_cast<unsigned*>(two);
}

// B is given by columns: the k of column n begin at B + n * ldb. scales_A: for each block of K a factor of each row,
// rows up to a multiple of 4; scales_B: for each block of K one factor for every SCALE_N columns.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
fp8(int M, int N, int K, float alpha, const Element* A, int lda, const Element* B, int ldb, float beta, Result* C,
    int ldc, const float* scales_A, const float* scales_B, const __grid_constant__ CUtensorMap map_A,
    const __grid_constant__ CUtensorMap map_B, const __grid_constant__ CUtensorMap map_C) {
    extern __shared__ __align__(1024) unsigned char bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(bytes);

    const int t = threadIdx.x, group = __shfl_sync(~0u, t / 128, 0);  // the shuffle: a warp agrees
    const int rows = (M + BM - 1) / BM, columns = (N + BN - 1) / BN;  // of tiles
    const int steps = (K + BK - 1) / BK, pitch = (M + 3) / 4 * 4;

    // The first row and column of a tile.
    auto place = [&](int tile, int& row, int& col) {
        const int panel = tile / (PANEL * columns), in_panel = tile % (PANEL * columns);
        const int height = min(PANEL, rows - panel * PANEL);  // the last panel may be lower
        row = (panel * PANEL + in_panel % height) * BM;
        col = in_panel / height * BN;
    };
    int stage = 0, phase = 0;
    auto next = [&] {
        if (++stage == STAGES) stage = 0, phase ^= 1;
    };

    if (t == 0) {
        for (int s = 0; s < STAGES; s++) {
            init(&shared.full[s], 1);               // the producer
            init(&shared.empty[s], CONSUMERS * 4);  // every warp of the consumers
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    for (int i = t; i < STAGES * BM; i += THREADS) shared.factors_A[0][i] = 0;  // rows below A get no others
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // the accelerator sees barriers and zeros
    __syncthreads();

    if (group == CONSUMERS) {  // the producer: one thread of it
        if (CONSUMERS == 2) asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
        else asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
        if (t == CONSUMERS * 128) {
            for (int tile = blockIdx.x; tile < rows * columns; tile += gridDim.x) {
                int row, col;
                place(tile, row, col);
                const int many = min(BM, pitch - row);  // factors of A
                const float* of_B = scales_B + col / SCALE_N;
                float coming = SCALE_K && steps > 0 ? *of_B : 1.0f;  // asked for a step ahead
                for (int i = 0; i < steps; i++, next()) {
                    const int k = i * BK;
                    wait(&shared.empty[stage], phase ^ 1);  // the phase before: at once in the first round
                    uint64_t* full = &shared.full[stage];
                    if (SCALE_K) {
                        shared.factor_B[stage] = coming;
                        if (i + 1 < steps) coming = *(of_B += columns);
                    }
                    expect(full, sizeof(Stage) + (SCALE_K ? many * sizeof(float) : 0));
                    if (SCALE_K)
                        load(shared.factors_A[stage], scales_A + (size_t)i * pitch + row, many * sizeof(float), full);
                    load(shared.stages[stage].A, map_A, k, row, full);
                    load(shared.stages[stage].B, map_B, k, col, full);
                }
            }
        }
    } else {  // the consumers
        if (CONSUMERS == 2) asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
        else asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
        const int warp = t % 128 / 32, lane = t % 32;
        const bool by_tma = beta == 0.0f && ((size_t)C % 16 | ldc % 8 | N % 8) == 0;
        const uint64_t first_A = descriptor(shared.stages[0].A + group * ROWS * BK);
        const uint64_t first_B = descriptor(shared.stages[0].B);
        // This thread's rows of each half: lane / 4 and lane / 4 + 8 of its warp's 16.
        const int mine = group * ROWS + warp * 16 + lane / 4;
        float sum[HALVES][BN / 2], d[BN / 2];  // promoted; of one step
        for (int tile = blockIdx.x; tile < rows * columns; tile += gridDim.x) {
            int row, col;
            place(tile, row, col);
            row += group * ROWS;
            #pragma unroll
            for (int h = 0; h < HALVES; h++)
                for (int i = 0; i < BN / 2; i++) sum[h][i] = 0;

            for (int i = 0; i < steps; i++, next()) {
                wait(&shared.full[stage], phase);
                float factor[HALVES][2];
                #pragma unroll
                for (int h = 0; h < HALVES; h++)
                    for (int j = 0; j < 2; j++)
                        if (SCALE_K)
                            factor[h][j] = shared.factors_A[stage][mine + h * 64 + j * 8] * shared.factor_B[stage];
                #pragma unroll
                for (int h = 0; h < HALVES; h++) {  // descriptors count in units of 16 bytes
                    const uint64_t a = first_A + stage * (sizeof(Stage) >> 4) + h * (64 * BK >> 4);
                    const uint64_t b = first_B + stage * (sizeof(Stage) >> 4);
                    wgmma_fence();
                    #pragma unroll
                    for (int k = 0; k < BK; k += 32) {
                        if (PROMOTE) wgmma(d, a + (k >> 4), b + (k >> 4), k > 0);
                        else wgmma(sum[h], a + (k >> 4), b + (k >> 4), true);
                    }
                    wgmma_commit();
                    if (PROMOTE) wgmma_wait(d);
                    else wgmma_wait(sum[h]);
                    if (h == HALVES - 1) {
                        __syncwarp();  // all lanes have their factors
                        if (lane == 0) arrive(&shared.empty[stage]);
                    }
                    if (PROMOTE) {
                        #pragma unroll
                        for (int j = 0; j < BN / 2; j++) {
                            if (SCALE_K) sum[h][j] += d[j] * factor[h][j / 2 % 2];
                            else sum[h][j] += d[j];
                        }
                    }
                }
            }

            #pragma unroll
            for (int h = 0; h < HALVES; h++) {
                const int below = row + h * 64;  // the first row of this half
                float last[2] = {alpha, alpha};  // what is still to be multiplied
                if (!SCALE_K)
                    for (int j = 0; j < 2; j++)
                        last[j] *= scales_A[min(below + warp * 16 + lane / 4 + j * 8, M - 1)] * scales_B[col / SCALE_N];
                if (by_tma) {
                    #pragma unroll
                    for (int box = 0; box < BN / 64; box++) {
                        if (t % 128 == 0) store_wait();
                        consumer_sync(group);  // the room is free
                        #pragma unroll
                        for (int j = 0; j < 8; j += 2) {  // 16 rows, 16 columns, swizzled as map_C says
                            const float* v = &sum[h][(box * 8 + j) * 4];
                            const int r = warp * 16 + lane % 16, piece = j + lane / 16;
                            stmatrix(address(shared.C[group]) + r * 128 + (piece ^ r % 8) * 16,
                                     pack(last[0] * v[0], last[0] * v[1]), pack(last[1] * v[2], last[1] * v[3]),
                                     pack(last[0] * v[4], last[0] * v[5]), pack(last[1] * v[6], last[1] * v[7]));
                        }
                        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // the accelerator sees it
                        consumer_sync(group);
                        if (t % 128 == 0) {
                            store(map_C, col + box * 64, below, shared.C[group]);
                            store_commit();
                        }
                    }
                } else {
                    #pragma unroll
                    for (int i = 0; i < BN / 2; i++) {  // pairs of columns
                        const int r = below + warp * 16 + lane / 4 + i / 2 % 2 * 8;
                        const int c = col + i / 4 * 8 + lane % 4 * 2 + i % 2;
                        if (r < M && c < N) {
                            Result* to = &C[(size_t)r * ldc + c];
                            const float value = last[i / 2 % 2] * sum[h][i];
                            *to = beta == 0.0f ? value : value + beta * (float)*to;
                        }
                    }
                }
            }
        }
        if (t % 128 == 0) store_wait();  // shared memory is the block's until it ends
    }
}
