// 16 tma_wgmma: tiles that are copied whole and multiplied where they lie.
//
// What changed since 15: one thread asks the tensor memory accelerator (TMA) for whole boxes of A and B; the hardware
//   finds addresses, rows and edges in a tensor map that the course makes of each matrix, and permutes 16-byte pieces
//   by its own swizzle of 128 bytes. An mbarrier counts the bytes that arrive, and who needs a tile waits there. Four
//   warps, a warpgroup, multiply 64 rows by 256 columns with one wgmma: straight from shared memory, B as it lies, by
//   rows, and while the instruction works the threads go on.
// What it saves: the registers and instructions of copies, of ldmatrix and of edges; fragments of A and B.
// What it costs: GPUs other than Hopper. TMA takes rows that begin at multiples of 16 bytes; other matrices the
//   course first copies into such rows, and that time counts.

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

using Element = __nv_bfloat16;     // of A, B and C; the other choice is __half,
#define ELEMENT "bf16"             // which PTX calls "f16"
constexpr int BM = 128, BN = 256;  // tile of C per block: 64 rows for each warpgroup
constexpr int BK = 64;             // step along K: 128 bytes, the span of the swizzle
constexpr int STAGES = 4;          // pairs of tiles in shared memory
constexpr int PANEL = 8;           // tiles below each other before the next column, as in 12
constexpr int THREADS = BM / 64 * 128;

static_assert(BM % 64 == 0, "BM must be a multiple of 64, the rows that a warpgroup multiplies");
static_assert(BN == 256, "BN must be 256, the columns of this wgmma: another number needs another instruction");
static_assert(BK == 64, "BK must be 64: a row of A's tile fills the 128 bytes of the swizzle");
static_assert(STAGES >= 3, "one stage is read, one may still be, and one is written: STAGES must be at least 3");
static_assert(THREADS <= 384, "a thread holds 128 sums: at most three warpgroups have the registers for that");

extern "C" __device__ constexpr int block_shape[] = {THREADS, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};
extern "C" __device__ constexpr int box_A[] = {BM, BK, 128};  // what one copy takes: rows, columns, bytes of swizzle
extern "C" __device__ constexpr int box_B[] = {BK, 64, 128};

struct Stage {
    Element A[BM * BK];  // rows of 64 k
    Element B[BN * BK];  // four boxes of 64 columns: rows of 64 n
};
struct Shared {
    Stage stages[STAGES];
    uint64_t full[STAGES];  // mbarriers: has the stage arrived?
};
extern "C" __device__ constexpr int dynamic_shared[] = {sizeof(Shared)};

__device__ unsigned address(const void* shared) { return (unsigned)__cvta_generic_to_shared(shared); }

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
// Start to copy the box at this column and row; the barrier counts its bytes. Outside of the matrix are zeros.
__device__ void load(Element* to, const CUtensorMap& map, int column, int row, uint64_t* barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];"
                 :: "r"(address(to)), "l"(&map), "r"(column), "r"(row), "r"(address(barrier)) : "memory");
}
// A matrix descriptor for tiles with the swizzle of 128 bytes: bits 0 to 13 say where it begins, 16 to 29 how far the
// next span of 64 elements lies behind (where lines are longer than one), 32 to 45 how far the next 8 lines of 128
// bytes are, all in units of 16 bytes; 1 in bits 62 and 63 is this swizzle.
__device__ uint64_t descriptor(const Element* from, int span) {
    return (address(from) & 0x3FFFF) >> 4 | (uint64_t)(span >> 4) << 16 | (uint64_t)(8 * 128 >> 4) << 32 | 1ull << 62;
}
// d = a * b, and + d if `add`: 64 x 256 sums of a warpgroup, 16 k. A lies by rows (K-major), B too: MN-major, so
// the last number is 1.
#define SUMS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SUMS_8(i) SUMS_4(i), SUMS_4(i + 4)
#define SUMS_32(i) SUMS_8(i), SUMS_8(i + 8), SUMS_8(i + 16), SUMS_8(i + 24)
__device__ void wgmma(float (&d)[BN / 2], uint64_t a, uint64_t b, bool add) {
    asm volatile("{\n"
                 ".reg .pred add;\n"
                 "setp.ne.b32 add, %130, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32." ELEMENT "." ELEMENT " {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
                 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
                 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
                 "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
                 "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
                 "%128, %129, add, 1, 1, 0, 1;\n"
                 "}"
                 : SUMS_32(0), SUMS_32(32), SUMS_32(64), SUMS_32(96) : "l"(a), "l"(b), "r"((int)add));
}
// Registers that wgmma writes belong to it from the fence to the wait. What was issued since the last commit is a
// group; wgmma_wait<N> waits for all groups but the last N.
__device__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory"); }

extern "C" __global__ void __launch_bounds__(THREADS, 1)
tma_wgmma(int M, int N, int K, float alpha, const Element* A, int lda, const Element* B, int ldb,
          float beta, Element* C, int ldc, const __grid_constant__ CUtensorMap map_A,
          const __grid_constant__ CUtensorMap map_B) {
    extern __shared__ __align__(1024) unsigned char bytes[];
    Shared& shared = *reinterpret_cast<Shared*>(bytes);

    const int t = threadIdx.x, group = t / 128, warp = t % 128 / 32, lane = t % 32;
    const int block = blockIdx.y * gridDim.x + blockIdx.x;
    const int panel = block / (PANEL * gridDim.x), in_panel = block % (PANEL * gridDim.x);
    const int height = min(PANEL, (int)gridDim.y - panel * PANEL);  // the last panel may be lower
    const int block_row = (panel * PANEL + in_panel % height) * BM, block_col = in_panel / height * BN;
    const int steps = (K + BK - 1) / BK;

    auto fetch = [&](int k) {
        Stage& stage = shared.stages[k % STAGES];
        uint64_t* full = &shared.full[k % STAGES];
        expect(full, sizeof(Stage));
        load(stage.A, map_A, k * BK, block_row, full);
        #pragma unroll
        for (int box = 0; box < BN / 64; box++)
            load(stage.B + box * 64 * BK, map_B, block_col + box * 64, k * BK, full);
    };
    if (t == 0) {
        for (int s = 0; s < STAGES; s++) init(&shared.full[s], 1);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // the accelerator sees the barriers
        for (int k = 0; k < min(steps, STAGES - 1); k++) fetch(k);
    }
    __syncthreads();  // all threads see the barriers

    float d[BN / 2];
    if (steps == 0)
        for (int i = 0; i < BN / 2; i++) d[i] = 0;
    int stage = 0, phase = 0;
    for (int k = 0; k < steps; k++) {
        wait(&shared.full[stage], phase);
        const Stage& now = shared.stages[stage];
        wgmma_fence();
        #pragma unroll
        for (int kk = 0; kk < BK; kk += 16)
            wgmma(d, descriptor(now.A + group * 64 * BK + kk, 16),
                  descriptor(now.B + kk * 64, 64 * BK * sizeof(Element)), k + kk > 0);
        wgmma_commit();
        wgmma_wait<1>();  // this warpgroup has left the stage of the step before,
        __syncthreads();  // and so have all
        if (t == 0 && k + STAGES - 1 < steps) fetch(k + STAGES - 1);
        if (++stage == STAGES) stage = 0, phase ^= 1;
    }
    wgmma_wait<0>();
    #pragma unroll
    for (int i = 0; i < BN / 2; i++) asm volatile("" : "+f"(d[i]) :: "memory");  // read no sum before the wait

    // A thread's sums lie in pairs of columns, in rows lane / 4 and lane / 4 + 8 of its warp's 16.
    const int row = block_row + group * 64 + warp * 16 + lane / 4, col = block_col + lane % 4 * 2;
    const bool pairs = ((size_t)C % 4 | ldc % 2 | N % 2) == 0;  // C is stored two elements at a time
    #pragma unroll
    for (int i = 0; i < BN / 4; i++) {
        const int r = row + i % 2 * 8, c = col + i / 2 * 8;
        Element* to = &C[(size_t)r * ldc + c];
        const float x = alpha * d[2 * i], y = alpha * d[2 * i + 1];
        if (pairs) {
            if (r >= M || c >= N) continue;
            Element two[2] = {x, y};
            if (beta != 0.0f) two[0] = x + beta * (float)to[0], two[1] = y + beta * (float)to[1];
            *reinterpret_cast<unsigned*>(to) = *reinterpret_cast<unsigned*>(two);
        } else {
            if (r < M && c < N) to[0] = beta == 0.0f ? x : x + beta * (float)to[0];
            if (r < M && c + 1 < N) to[1] = beta == 0.0f ? y : y + beta * (float)to[1];
        }
    }
}
