// 17 warp_specialized: warps with different work, and blocks that stay.
//
// What changed since 16: a warpgroup of its own copies (the producer) and others multiply (the consumers). They meet
//   at mbarriers only: `full` when a stage has arrived, `empty` when its readers have left. setmaxnreg moves the
//   producer's registers to the consumers. As many blocks as there are multiprocessors walk over all tiles, so that
//   the next tile's stages arrive while this one's results leave. CLUSTER blocks side by side share their tiles of A:
//   each copies a part for all (multicast). Results leave through shared memory by TMA. Every other tile walks K
//   backwards (SNAKE): of a panel's rows of A, the part that was read last is still in L2.
//   A consumer has 64 columns of C, and wgmma's long side lies along the rows: its first operand is B, turned, and
//   its second A. So BM may be any multiple of 16, and tiles can be cut to fill the multiprocessors evenly.
// What it saves: __syncthreads in the loop, waiting for stages between tiles, half of the reads of A, scattered stores.
// What it costs: one warpgroup that does not multiply, room for results in shared memory, and thought: who waits for
//   whom.
// Rows that TMA cannot take: as in 16; a C that it cannot take is stored by the threads.

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

using Element = __nv_bfloat16;     // of A, B and C; the other choice is __half,
#define ELEMENT "bf16"             // which PTX calls "f16"
constexpr int BM = 256, BN = 128;  // tile of C per block: 64 columns for each consumer
constexpr int BK = 64;             // step along K: 128 bytes, the span of the swizzle
constexpr int STAGES = 4;          // pairs of tiles in shared memory
constexpr int CLUSTER = 2;         // blocks that share their tiles of A: 1, 2 or 4
constexpr int PANEL = 8;           // tiles of clusters below each other before the next column
constexpr int SNAKE = 1;           // 0: every tile walks K upwards
constexpr int TMA_STORE = 1;       // 0: threads store their own results
constexpr int C_ROWS = 64;         // rows of 64 results that a consumer sends to C at a time, and …
constexpr int C_BOXES = 2;         // … how many such boxes may be on their way
constexpr int SLICES = 1;          // blocks that share a tile of C, each with a part of K
constexpr int BLOCKS = 1;          // blocks per multiprocessor
constexpr bool ALL_ADD = SLICES > 8;  // each slice adds up a share of the sums; otherwise the last one adds up all
constexpr int CONSUMERS = BN / 64;
constexpr int THREADS = (CONSUMERS + 1) * 128;
constexpr bool MOVE_REGISTERS = CONSUMERS > 1 && BM > 128;  // the others have enough of them
constexpr int PRODUCERS_REGISTERS = CONSUMERS == 3 ? 32 : 40, CONSUMERS_REGISTERS = CONSUMERS == 3 ? 160 : 232;
// Rows of one wgmma. With four warpgroups the compiler has 128 registers for each thread until they are moved, too few
// for the sums of more than 192 rows in one instruction: then there are two.
constexpr int ROWS = CONSUMERS == 3 && BM > 192 ? (BM / 2 + 15) / 16 * 16 : BM;

static_assert(BM >= 16 && BM <= 256 && BM % 16 == 0, "BM must be a multiple of 16 up to 256, the rows of a wgmma");
static_assert(BN == 64 || BN == 128 || BN == 192, "BN must be 64, 128 or 192: 64 columns for each consumer");
static_assert(BK == 64, "BK must be 64: a row of A's tile fills the 128 bytes of the swizzle");
static_assert(CLUSTER == 1 || CLUSTER == 2 || CLUSTER == 4, "CLUSTER must be 1, 2 or 4");
static_assert(BM / CLUSTER % 8 == 0, "each block of a cluster copies its part of A: BM / CLUSTER, a multiple of 8");
static_assert(STAGES >= 2, "one stage is read while another is written: STAGES must be at least 2");
static_assert(C_ROWS % 16 == 0 && BM % C_ROWS == 0, "C_ROWS must be a multiple of 16 that divides BM");
static_assert(C_BOXES >= 1 && BM / C_ROWS % C_BOXES == 0, "C_BOXES must divide BM / C_ROWS, the boxes of a tile");
static_assert(SLICES <= 32, "SLICES must be at most 32: more were not tried");
static_assert(!ALL_ADD || CLUSTER * BLOCKS == 1, "slices wait for each other: beyond 8, CLUSTER and BLOCKS must be 1");
static_assert(SLICES >= 1 && BLOCKS >= 1, "somebody must compute a tile: SLICES and BLOCKS must be at least 1");

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};
extern "C" __device__ constexpr int persistent[] = {BLOCKS, SLICES};  // blocks per multiprocessor, and per tile of C
extern "C" __device__ constexpr int box_A[] = {BM / CLUSTER, BK, 128};  // one copy: rows, columns, bytes of the swizzle
extern "C" __device__ constexpr int box_B[] = {BK, 64, 128};
extern "C" __device__ constexpr int box_C[] = {C_ROWS, 64, 128};

struct Stage {
    Element A[BM * BK];  // rows of 64 k
    Element B[BN * BK];  // a box of 64 columns for each consumer: rows of 64 n
};
struct Shared {
    Stage stages[STAGES];
    Element C[CONSUMERS][C_BOXES][C_ROWS * 64];
    uint64_t full[STAGES], empty[STAGES];  // mbarriers: has the stage arrived, have its readers left?
    bool last[CONSUMERS];                  // is this slice the last of its tile?
};
extern "C" __device__ constexpr int dynamic_shared[] = {sizeof(Shared)};

// Slices leave their sums here, and are added up when all of a tile are there. All launches have the same room: with
// slices, launch one at a time.
constexpr int ROOM = SLICES > 1 ? 1 << 22 : 1;
__device__ float parts[ROOM];
__device__ int finished[ROOM / (64 * 16) + 1];  // slices of a consumer's tile that are done

__device__ unsigned address(const void* shared) { return (unsigned)__cvta_generic_to_shared(shared); }
__device__ unsigned rank_in_cluster() {
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
// All threads of all blocks of the cluster. Relaxed: what others must see here, a fence has shown them. With `.release`
// the compiler makes all of the GPU see our writes first (MEMBAR.ALL.GPU).
__device__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
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
// Arrive, and let the phase expect so many bytes more.
__device__ void expect(uint64_t* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(address(barrier)), "r"(bytes) : "memory");
}
// Arrive at the barrier of this name in a block of the cluster. Without `.release.cluster`: with it the compiler makes
// all of the GPU see our writes first (MEMBAR.ALL.GPU): a quarter of the speed is lost, for a reader who wrote nothing.
__device__ void arrive(uint64_t* barrier, int block) {
    asm volatile("{\n"
                 ".reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
                 "}" :: "r"(address(barrier)), "r"(block) : "memory");
}
// Start to copy the box at this column and row; the barrier counts its bytes. Outside of the matrix are zeros.
__device__ void load(Element* to, const CUtensorMap& map, int column, int row, uint64_t* barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];"
                 :: "r"(address(to)), "l"(&map), "r"(column), "r"(row), "r"(address(barrier)) : "memory");
}
// The same to this place in every block of the cluster; the barrier at this place in each of them counts.
__device__ void load_for_all(Element* to, const CUtensorMap& map, int column, int row, uint64_t* barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3}], [%4], %5;"
                 :: "r"(address(to)), "l"(&map), "r"(column), "r"(row), "r"(address(barrier)),
                    "h"((short)((1 << CLUSTER) - 1)) : "memory");
}
// Start to copy a box to the matrix. Copies since the last commit are a group; store_wait<N> waits until all groups but
// the last N have been read.
__device__ void store(const CUtensorMap& map, int column, int row, const Element* from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
                 :: "l"(&map), "r"(column), "r"(row), "r"(address(from)) : "memory");
}
__device__ void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N> __device__ void store_wait() {
    asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(N) : "memory");
}
// Add 1, and return what was there. Release: what this thread wrote, and those that it has met at a barrier, is visible
// to a thread that counts later; acquire: and to those that it meets then. Two __threadfence() do the same, slower.
__device__ int count(int* counter) {
    int before;
    asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
    return before;
}
// What the counter says now. Acquire, as above.
__device__ int counted(const int* counter) {
    int now;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    return now;
}
// A matrix descriptor for tiles with the swizzle of 128 bytes: bits 0 to 13 say where it begins, 16 to 29 how far the
// next span of 64 elements lies behind (where lines are longer than one), 32 to 45 how far the next 8 lines of 128
// bytes are, all in units of 16 bytes; 1 in bits 62 and 63 is this swizzle.
__device__ uint64_t descriptor(const Element* from, int span) {
    return (address(from) & 0x3FFFF) >> 4 | (uint64_t)(span >> 4) << 16 | (uint64_t)(8 * 128 >> 4) << 32 | 1ull << 62;
}
// d = b * a, turned, and + d if `accumulate`: N rows of 64 sums of a warpgroup, 16 k. B's 64 columns are the first
// operand, the rows of A the second. A lies by rows (K-major), B too: MN-major, so the last number but one is 1.
#define SUMS(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), \
                "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define SUMS_16 SUMS(0)
#define SUMS_32 SUMS_16, SUMS(8)
#define SUMS_48 SUMS_32, SUMS(16)
#define SUMS_64 SUMS_48, SUMS(24)
#define SUMS_80 SUMS_64, SUMS(32)
#define SUMS_96 SUMS_80, SUMS(40)
#define SUMS_112 SUMS_96, SUMS(48)
#define SUMS_128 SUMS_112, SUMS(56)
#define SUMS_144 SUMS_128, SUMS(64)
#define SUMS_160 SUMS_144, SUMS(72)
#define SUMS_176 SUMS_160, SUMS(80)
#define SUMS_192 SUMS_176, SUMS(88)
#define SUMS_208 SUMS_192, SUMS(96)
#define SUMS_224 SUMS_208, SUMS(104)
#define SUMS_240 SUMS_224, SUMS(112)
#define SUMS_256 SUMS_240, SUMS(120)
#define NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define NAMES_32 NAMES_16 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define NAMES_48 NAMES_32 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define NAMES_64 NAMES_48 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_80 NAMES_64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define NAMES_96 NAMES_80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define NAMES_112 NAMES_96 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define NAMES_128 NAMES_112 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_144 NAMES_128 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define NAMES_160 NAMES_144 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define NAMES_176 NAMES_160 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define NAMES_192 NAMES_176 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define NAMES_208 NAMES_192 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define NAMES_224 NAMES_208 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define NAMES_240 NAMES_224 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define NAMES_256 NAMES_240 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define WGMMA(rows, b, a, add) \
    asm volatile("{\n" \
                 ".reg .pred add;\n" \
                 "setp.ne.b32 add, " add ", 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n" #rows "k16.f32." ELEMENT "." ELEMENT " {" NAMES_##rows "}, " \
                 b ", " a ", add, 1, 1, 1, 0;\n" \
                 "}" : SUMS_##rows : "l"(from_b), "l"(from_a), "r"((int)accumulate))
template <int N> __device__ void wgmma(float* d, uint64_t from_b, uint64_t from_a, bool accumulate) {
    if constexpr (N == 16) WGMMA(16, "%8", "%9", "%10");
    if constexpr (N == 32) WGMMA(32, "%16", "%17", "%18");
    if constexpr (N == 48) WGMMA(48, "%24", "%25", "%26");
    if constexpr (N == 64) WGMMA(64, "%32", "%33", "%34");
    if constexpr (N == 80) WGMMA(80, "%40", "%41", "%42");
    if constexpr (N == 96) WGMMA(96, "%48", "%49", "%50");
    if constexpr (N == 112) WGMMA(112, "%56", "%57", "%58");
    if constexpr (N == 128) WGMMA(128, "%64", "%65", "%66");
    if constexpr (N == 144) WGMMA(144, "%72", "%73", "%74");
    if constexpr (N == 160) WGMMA(160, "%80", "%81", "%82");
    if constexpr (N == 176) WGMMA(176, "%88", "%89", "%90");
    if constexpr (N == 192) WGMMA(192, "%96", "%97", "%98");
    if constexpr (N == 208) WGMMA(208, "%104", "%105", "%106");
    if constexpr (N == 224) WGMMA(224, "%112", "%113", "%114");
    if constexpr (N == 240) WGMMA(240, "%120", "%121", "%122");
    if constexpr (N == 256) WGMMA(256, "%128", "%129", "%130");
}
// Registers that wgmma writes belong to it from the fence to the wait. What was issued since the last commit is a
// group; wgmma_wait<N> waits for all groups but the last N.
__device__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");
}

// Four matrices of 8 x 8 sums from the registers of a warp to shared memory, turned: what a thread holds of a column
// goes to two rows. Each thread gives the address of one row.
__device__ void stmatrix(unsigned row, unsigned a, unsigned b, unsigned c, unsigned d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 :: "r"(row), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
__device__ unsigned pack(float low, float high) {
    Element two[2] = {low, high};
    return *reinterpret_cast<unsigned*>(two);
}

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, BLOCKS)
warp_specialized(int M, int N, int K, float alpha, const Element* A, int lda, const Element* B, int ldb,
                 float beta, Element* C, int ldc, const __grid_constant__ CUtensorMap map_A,
                 const __grid_constant__ CUtensorMap map_B, const __grid_constant__ CUtensorMap map_C) {
    extern __shared__ __align__(1024) unsigned char bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(bytes);

    const int t = threadIdx.x, group = __shfl_sync(~0u, t / 128, 0);  // the shuffle: a warp agrees
    const int rank = CLUSTER > 1 ? rank_in_cluster() : 0;
    const int rows = (M + BM - 1) / BM, columns = (N + BN * CLUSTER - 1) / (BN * CLUSTER);  // of tiles of clusters
    const int first = blockIdx.x / CLUSTER, clusters = gridDim.x / CLUSTER;
    const int tiles = rows * columns, all_steps = (K + BK - 1) / BK;
    // Slices that wait for each other must all be on the GPU, each in a block of its own: there are no more blocks than
    // fit, and at least as many as slices.
    const bool fits = (size_t)tiles * CLUSTER * SLICES * BM * BN <= ROOM && (!ALL_ADD || clusters >= SLICES);
    const bool sliced = SLICES > 1 && fits;
    const int items = sliced ? tiles * SLICES : tiles;
    auto tile_of = [&](int item) { return sliced ? item / SLICES : item; };
    // Slice number `item % SLICES` of a tile computes these steps along K.
    auto begin = [&](int item) { return sliced ? (int)((long long)all_steps * (item % SLICES) / SLICES) : 0; };
    auto end = [&](int item) {
        return sliced ? (int)((long long)all_steps * (item % SLICES + 1) / SLICES) : all_steps;
    };

    // This block's tile of a cluster's: its first row and column in C.
    auto place = [&](int tile, int& row, int& col) {
        const int panel = tile / (PANEL * columns), in_panel = tile % (PANEL * columns);
        const int height = min(PANEL, rows - panel * PANEL);  // the last panel may be lower
        row = (panel * PANEL + in_panel % height) * BM;
        col = (in_panel / height * CLUSTER + rank) * BN;
    };
    int stage = 0, phase = 0;
    auto next = [&] {
        if (++stage == STAGES) stage = 0, phase ^= 1;
    };

    int row = 0, col = 0;
    if (group == CONSUMERS && first < items) {  // the producer's first tile, found while the barriers are made
        const int tile = tile_of(first);
        if (rows >= PANEL && tile < PANEL * columns) {  // a whole panel: shifts in place of divisions
            row = tile % PANEL * BM;
            col = (tile / PANEL * CLUSTER + rank) * BN;
        } else {
            place(tile, row, col);
        }
        asm volatile("" : "+r"(row), "+r"(col));  // here, says this, not where they are needed
    }
    if (t == 0) {
        for (int s = 0; s < STAGES; s++) {
            init(&shared.full[s], 1);                     // its own producer
            init(&shared.empty[s], CONSUMERS * CLUSTER);  // every consumer that reads what its producer copies
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");  // the cluster sees the barriers,
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");        // and so does the accelerator
    }
    if (CLUSTER > 1) cluster_sync();
    else __syncthreads();

    if (group == CONSUMERS) {  // the producer: one thread of it
        if (MOVE_REGISTERS) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(PRODUCERS_REGISTERS));
        if (t == CONSUMERS * 128) {
            bool backwards = false;
            for (int item = first; item < items; item += clusters) {
                if (item != first) place(tile_of(item), row, col);
                const int from = begin(item), steps = end(item) - from;
                for (int i = 0; i < steps; i++, next()) {
                    const int k = (from + (backwards ? steps - 1 - i : i)) * BK;
                    wait(&shared.empty[stage], phase ^ 1);  // the phase before: at once in the first round
                    Stage& to = shared.stages[stage];
                    uint64_t* full = &shared.full[stage];
                    expect(full, sizeof(Stage));
                    const int part = rank * (BM / CLUSTER);  // of A's rows: this block's
                    if (CLUSTER > 1) load_for_all(to.A + part * BK, map_A, k, row + part, full);
                    else load(to.A, map_A, k, row, full);
                    #pragma unroll
                    for (int b = 0; b < CONSUMERS; b++) load(to.B + b * 64 * BK, map_B, col + b * 64, k, full);
                }
                if (SNAKE) backwards = !backwards;
            }
            // A block stays until all consumers of the cluster have left its stages: others arrive at its barriers.
            if (CLUSTER > 1)
                for (int s = 0; s < STAGES; s++, next()) wait(&shared.empty[stage], phase ^ 1);
        }
    } else {  // the consumers
        if (MOVE_REGISTERS) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(CONSUMERS_REGISTERS));
        const int warp = t % 128 / 32, lane = t % 32;
        const bool by_tma = TMA_STORE && beta == 0.0f && ((size_t)C % 16 | ldc % 8 | N % 8) == 0;
        auto release = [&](int stage) {  // to all producers that fill it
            if (t % 128 < CLUSTER) arrive(&shared.empty[stage], t % 128);
        };
        float d[BM / 2];
        for (int item = first; item < items; item += clusters) {
            int before = 0;
            place(tile_of(item), row, col);
            col += group * 64;
            const int steps = end(item) - begin(item);
            if (steps == 0)
                for (int i = 0; i < BM / 2; i++) d[i] = 0;
            for (int k = 0; k < steps; k++, next()) {
                wait(&shared.full[stage], phase);
                const Stage& now = shared.stages[stage];
                wgmma_fence();
                #pragma unroll
                for (int kk = 0; kk < BK; kk += 16) {
                    const uint64_t from_b = descriptor(now.B + group * 64 * BK + kk * 64, 64 * BK * sizeof(Element));
                    wgmma<ROWS>(d, from_b, descriptor(now.A + kk, 16), k + kk > 0);
                    if (ROWS < BM)
                        wgmma<BM - ROWS>(d + ROWS / 2, from_b, descriptor(now.A + ROWS * BK + kk, 16), k + kk > 0);
                }
                wgmma_commit();
                if (k > 0) {
                    wgmma_wait<1>();  // the step before is done with its stage
                    release(before);
                }
                before = stage;
            }
            wgmma_wait<0>();
            if (steps > 0) release(before);
            #pragma unroll
            for (int i = 0; i < BM / 2; i++) asm volatile("" : "+f"(d[i]) :: "memory");  // read no sum before the wait

            // Sum number i of this thread to C: pairs of rows, columns lane / 4 and lane / 4 + 8 of 16.
            auto put = [&](int i, float sum) {
                const int r = row + i / 4 * 8 + lane % 4 * 2 + i % 2;
                const int c = col + warp * 16 + lane / 4 + i / 2 % 2 * 8;
                if (r < M && c < N) {
                    Element* to = &C[(size_t)r * ldc + c];
                    *to = beta == 0.0f ? alpha * sum : alpha * sum + beta * (float)*to;
                }
            };
            if (sliced) {  // skip at first: for thin products
                const int tile = (tile_of(item) * CLUSTER + rank) * CONSUMERS + group;  // of 64 columns
                float* part = parts + (size_t)tile * SLICES * 64 * BM + t % 128;  // of slice 0, 128 apart
                const bool inside = col + warp * 16 < N;  // a warp has 16 columns
                #pragma unroll
                for (int i = 0; i < BM / 2; i++)
                    if (inside) part[item % SLICES * 64 * BM + i * 128] = d[i];
                consumer_sync(group);  // all have left theirs, before this slice counts as finished
                if (t % 128 == 0) shared.last[group] = count(&finished[tile]) == SLICES - 1;
                if (ALL_ADD) {
                    if (t % 128 == 0)
                        while (counted(&finished[tile]) < SLICES);
                    consumer_sync(group);
                    for (int i = item % SLICES; i < BM / 2; i += SLICES) {  // this slice's share
                        float sum = 0.0f;
                        if (inside) {
                            #pragma unroll
                            for (int from = 0; from < SLICES; from++) sum += part[from * 64 * BM + i * 128];
                        }
                        put(i, sum);
                    }
                    // The last one to have seen it sets the counter back, for the next launch.
                    if (t % 128 == 0 && atomicAdd(&finished[tile], 1) == 2 * SLICES - 1) finished[tile] = 0;
                    continue;
                }
                consumer_sync(group);
                if (!shared.last[group]) continue;
                if (t % 128 == 0) finished[tile] = 0;
                #pragma unroll
                for (int i = 0; i < BM / 2; i++) d[i] = 0.0f;
                if (inside) {
                    #pragma unroll 256 / BM
                    for (int from = 0; from < SLICES; from++)  // always in this order: the same bits in every launch
                        #pragma unroll
                        for (int i = 0; i < BM / 2; i++) d[i] += part[from * 64 * BM + i * 128];
                }
            }
            if (by_tma) {
                #pragma unroll
                for (int box = 0; box < BM / C_ROWS; box++) {
                    Element* out = shared.C[group][box % C_BOXES];
                    if (t % 128 == 0) store_wait<C_BOXES - 1>();
                    consumer_sync(group);  // the box is free
                    #pragma unroll
                    for (int j = 0; j < C_ROWS / 8; j += 2) {  // 16 rows, 16 columns, swizzled as map_C says
                        const float* v = &d[(box * C_ROWS / 8 + j) * 4];
                        const int r = j * 8 + lane / 16 * 8 + lane % 8, piece = warp * 2 + lane / 8 % 2;
                        stmatrix(address(out) + r * 128 + (piece ^ r % 8) * 16,
                                 pack(alpha * v[0], alpha * v[1]), pack(alpha * v[2], alpha * v[3]),
                                 pack(alpha * v[4], alpha * v[5]), pack(alpha * v[6], alpha * v[7]));
                    }
                    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // the accelerator sees it
                    consumer_sync(group);
                    if (t % 128 == 0) {
                        store(map_C, col, row + box * C_ROWS, out);
                        store_commit();
                    }
                }
            } else {
                #pragma unroll
                for (int i = 0; i < BM / 2; i++) put(i, d[i]);
            }
        }
        if (t % 128 == 0) store_wait<0>();  // shared memory is the block's until it ends
    }
}
