//! kind: write
//! title: Who only copies
//! task: Four warps multiply; one thread of a fifth shall do nothing but copy, alternately into two stages. Write its loop: for each step of BK wait
//!     until the stage is empty, announce its bytes at `full`, and start the copies of A's tile and of B's.
//! hint: A stage's `empty` ends its first phase when the first tile in it has been read. The producer of the next tile waits for that phase, and
//!     the first fill of each stage must not wait for anybody.
//! hint: A wait for the parity of the phase before the first, which is 1, returns at once. So the parity to wait for is 1 in the first round, 0 in the second.
//! hint: For step s of stage s % STAGES: wait(&empty[stage], s / STAGES % 2 ^ 1), then expect(&full[stage], sizeof(Stage)), and a load each for A
//!     and B with &full[stage].
//! expect: bulk copies of each block == 1/16 K
//! expect: wgmma instructions of each block's warps == 1/4 K
//! expect: shared loads per result == 0
//! expect: stages at a time == 2
//! expect: global loads per result <= 1
//! after: The two loops never meet at a barrier of the block: one runs ahead as far as there are stages, the other follows as fast as tiles come.
#include <cuda.h>
#include <cuda_fp16.h>

constexpr int BM = 64, BN = 64, BK = 32;  // tiles: A is BM x BK, B is BK x BN

extern "C" __device__ constexpr int block_shape[] = {160, 1, 1};  // threads per block along x, y, z: a warpgroup, and one warp
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};      // rows and columns of C per block
extern "C" __device__ constexpr int box_A[] = {BM, BK, 64};   // what one copy takes: rows, columns, bytes of the swizzle
extern "C" __device__ constexpr int box_B[] = {BK, BN, 128};

constexpr int STAGES = 2;

struct Stage {
    __half A[BM * BK], B[BK * BN];
};

__device__ unsigned address(const void* shared) { return (unsigned)__cvta_generic_to_shared(shared); }
__device__ void expect(uint64_t* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(address(barrier)), "r"(bytes) : "memory");
}
__device__ void arrive(uint64_t* barrier) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(address(barrier)) : "memory"); }
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
extern "C" __global__ void __launch_bounds__(160)
    two_stages(int M, int N, int K, float alpha, const __half* A, int lda, const __half* B, int ldb, float beta, __half* C, int ldc,
               const __grid_constant__ CUtensorMap map_A, const __grid_constant__ CUtensorMap map_B) {
    __shared__ __align__(1024) Stage ring[STAGES];
    __shared__ uint64_t full[STAGES], empty[STAGES];

    const int t = threadIdx.x, block_row = blockIdx.y * BM, block_col = blockIdx.x * BN;
    if (t == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(address(&full[stage])));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(address(&empty[stage])));
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();

    if (t >= 128) {  // the producer is one thread of the last warp
        if (t == 128) {
            //[solution
            for (int s = 0; s * BK < K; s++) {
                const int stage = s % STAGES;
                wait(&empty[stage], s / STAGES % 2 ^ 1);
                expect(&full[stage], sizeof(Stage));
                load(ring[stage].A, map_A, s * BK, block_row, &full[stage]);
                load(ring[stage].B, map_B, block_col, s * BK, &full[stage]);
            }
            //[starter
            //|// Yours: bring all tiles, each as soon as there is room for it.
            //]
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
            if (t == 0) arrive(&empty[at]);
        }
        #pragma unroll
        for (int i = 0; i < 32; i++) {  // a thread's sums lie in pairs, eight rows apart
            const int r = block_row + t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8, n = block_col + t % 4 * 2 + i % 2 + i / 4 * 8;
            if (r >= M || n >= N) continue;
            __half& out = C[size_t(r) * ldc + n];
            out = beta == 0 ? alpha * d[i] : alpha * d[i] + beta * float(out);
        }
    }
}
