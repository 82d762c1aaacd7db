//! kind: change
//! title: Half of B each
//! task: Two blocks, one below the other, are a cluster and need the same tiles of B, and each fetches both halves for itself. Let each
//!     fetch one half for both, with load_for_both. Barriers and releases are ready for that.
//! hint: load_for_both writes to the same place in both blocks, and the mbarrier at the same place in each of them counts the bytes.
//! hint: Block `rank` of the cluster fetches half `rank`. The other half arrives without its doing; the bytes to expect stay the same.
//! hint: One load_for_both in place of the loop, with rank where the loop has half.
//! expect: bulk copies of each block == 1/16 K
//! expect: bulk copies of the busiest block == 1/16 K
//! expect: wgmma instructions of each block's warps == 1/4 K
//! expect: shared loads per result == 0
//! expect: global loads per result <= 1
//! after: Each tile of B now leaves the L2 cache once for two blocks. In exchange a stage is empty only when both blocks have read it.
#include <cuda.h>
#include <cuda_fp16.h>

constexpr int BM = 64, BN = 64, BK = 32;  // tiles: A is BM x BK, B is BK x BN

extern "C" __device__ constexpr int block_shape[] = {160, 1, 1};  // threads per block along x, y, z: a warpgroup, and one warp
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};      // rows and columns of C per block
extern "C" __device__ constexpr int box_A[] = {BM, BK, 64};   // what one copy takes: rows, columns, bytes of the swizzle
extern "C" __device__ constexpr int box_B[] = {BK / 2, BN, 128};  // half of a tile

constexpr int STAGES = 2;

struct Stage {
    __half A[BM * BK], B[BK * BN];
};

__device__ unsigned address(const void* shared) { return (unsigned)__cvta_generic_to_shared(shared); }
__device__ void expect(uint64_t* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(address(barrier)), "r"(bytes) : "memory");
}
// Arrive at the barrier of this name in a block of the cluster.
__device__ void arrive(uint64_t* barrier, int block) {
    asm volatile("{\n"
                 ".reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
                 "}" :: "r"(address(barrier)), "r"(block) : "memory");
}
__device__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ void wait(uint64_t* barrier, int parity) {
    asm volatile("{\n"
                 ".reg .pred ended;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
                 "@!ended bra again;\n"
                 "}" :: "r"(address(barrier)), "r"(parity) : "memory");
}
__device__ void load(__half* to, const CUtensorMap& map, int column, int row, uint64_t* barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 :: "r"(address(to)), "l"(&map), "r"(column), "r"(row), "r"(address(barrier)) : "memory");
}
// The same to this place in both blocks of the cluster; the barrier at this place in each of them counts.
__device__ void load_for_both(__half* to, const CUtensorMap& map, int column, int row, uint64_t* barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3}], [%4], %5;"
                 :: "r"(address(to)), "l"(&map), "r"(column), "r"(row), "r"(address(barrier)), "h"((short)3) : "memory");
}
// Where a matrix begins, the bytes from a block of 8 rows to the next, and the swizzle's mode: 1 of 128 bytes, 2 of 64.
__device__ uint64_t descriptor(const __half* from, int block, int mode) {
    return (address(from) & 0x3FFFF) >> 4 | 1ull << 16 | (uint64_t)(block >> 4) << 32 | (uint64_t)mode << 62;
}
#define SUMS_8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
// d = a * b, and + d if `add`: 64 x 64 sums, 16 k.
__device__ void wgmma(float (&d)[32], uint64_t a, uint64_t b, bool add) {
    asm volatile("{\n"
                 ".reg .pred add;\n"
                 "setp.ne.b32 add, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "%32, %33, add, 1, 1, 0, 1;\n"
                 "}"
                 : SUMS_8(0), SUMS_8(8), SUMS_8(16), SUMS_8(24) : "l"(a), "l"(b), "r"((int)add));
}
__device__ void before_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void after_products() {
    asm volatile("wgmma.commit_group.sync.aligned;\n"
                 "wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

// C = alpha * A * B + beta * C, row-major: A is M x K, B is K x N, C is M x N; lda, ldb, ldc are their row lengths.
extern "C" __global__ void __cluster_dims__(1, 2, 1) __launch_bounds__(160)
    half_each(int M, int N, int K, float alpha, const __half* A, int lda, const __half* B, int ldb, float beta, __half* C, int ldc,
              const __grid_constant__ CUtensorMap map_A, const __grid_constant__ CUtensorMap map_B) {
    __shared__ __align__(1024) Stage ring[STAGES];
    __shared__ uint64_t full[STAGES], empty[STAGES];

    const int t = threadIdx.x, block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    [[maybe_unused]] const int rank = blockIdx.y % 2;  // in the cluster
    if (t == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(address(&full[stage])));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 2;" :: "r"(address(&empty[stage])));
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    cluster_sync();

    if (t >= 128) {  // the producer is one thread of the last warp
        if (t == 128) {
            int stage = 0, parity = 1;
            for (int k = 0; k < K; k += BK) {
                wait(&empty[stage], parity);
                expect(&full[stage], sizeof(Stage));
                load(ring[stage].A, map_A, k, block_row, &full[stage]);
                //[solution
                load_for_both(ring[stage].B + rank * BK / 2 * BN, map_B, block_col, k + rank * BK / 2, &full[stage]);
                //[starter
                //|for (int half = 0; half < 2; half++) load(ring[stage].B + half * BK / 2 * BN, map_B, block_col, k + half * BK / 2, &full[stage]);
                //]
                if (++stage == STAGES) stage = 0, parity ^= 1;
            }
        }
    } else {
        float d[32] = {};
        for (int k0 = 0; k0 < K; k0 += BK) {
            const int at = k0 / BK % STAGES;
            const Stage& now = ring[at];
            wait(&full[at], k0 / BK / STAGES % 2);
            before_products();
            for (int kk = 0; kk < BK; kk += 16) wgmma(d, descriptor(now.A + kk, 8 * 64, 2), descriptor(now.B + kk * BN, 8 * 128, 1), k0 + kk > 0);
            after_products();
            if (t < 2) arrive(&empty[at], t);  // in both blocks: both copy to here
        }
        #pragma unroll
        for (int i = 0; i < 32; i++) {  // a thread's sums lie in pairs, eight rows apart
            const int r = block_row + t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8, n = block_col + t % 4 * 2 + i % 2 + i / 4 * 8;
            if (r >= M || n >= N) continue;
            __half& out = C[size_t(r) * ldc + n];
            out = beta == 0 ? alpha * d[i] : alpha * d[i] + beta * float(out);
        }
    }
    cluster_sync();  // no block leaves while the other may still arrive at its barriers
}
