"""Kernels whose blocks work together: clusters, and the groups, barriers and pipelines of CUDA's headers. Run in the machine
(test_cluster.py) and on a GPU (tests/gpu/test_cluster_on_gpu.py), with the same arguments and the same expected results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Case:
    """A kernel and one launch of it. arguments() makes fresh ones; expected(arguments) gives {position: array after the launch}.

    cluster: blocks per cluster, where the kernel does not declare it. shared: dynamic shared memory in bytes.
    """

    name: str
    source: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: Callable[[], list]
    expected: Callable[[list], dict[int, np.ndarray]]
    cluster: tuple[int, ...] | None = None
    shared: int = 0

    def check(self, before: list, after: list) -> None:
        """Compare the arrays after a launch with what is expected. before: the arguments as they were."""
        for position, wanted in self.expected(before).items():
            np.testing.assert_array_equal(after[position], wanted, err_msg=f"{self.name}, argument {position}")


def _floats(*shape, seed=0, low=-8, high=9):
    """Small whole numbers, whose sums float32 holds exactly in any order."""
    return np.random.default_rng(seed).integers(low, high, shape).astype(np.float32)


GROUPS = "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;\n"

# What inline assembly needs for mbarriers and shared::cluster addresses.
ASSEMBLY = """
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ unsigned in_block(unsigned a, unsigned rank) {
    unsigned r;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(rank));
    return r;
}
__device__ void init(unsigned bar, int count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count)); }
__device__ void publish_inits() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ void expect(unsigned bar, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
__device__ void arrive(unsigned bar) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ void wait(unsigned bar, int parity) {
    unsigned done;
    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(bar), "r"(parity) : "memory");
    } while (!done);
}
__device__ void store_async(unsigned to, int v, unsigned bar) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to), "r"(v), "r"(bar) : "memory");
}
"""

# --- who is who ------------------------------------------------------------------------------------------------------

SPECIALS = """
extern "C" __global__ void who(unsigned* out) {
    unsigned a[15];
#define READ(i, name) asm volatile("mov.u32 %0, %%" name ";" : "=r"(a[i]));
    READ(0, "clusterid.x") READ(1, "clusterid.y") READ(2, "clusterid.z")
    READ(3, "nclusterid.x") READ(4, "nclusterid.y") READ(5, "nclusterid.z")
    READ(6, "cluster_ctaid.x") READ(7, "cluster_ctaid.y") READ(8, "cluster_ctaid.z")
    READ(9, "cluster_nctaid.x") READ(10, "cluster_nctaid.y") READ(11, "cluster_nctaid.z")
    READ(12, "cluster_ctarank") READ(13, "cluster_nctarank")
    asm volatile("{ .reg .pred p; mov.pred p, %%is_explicit_cluster; selp.u32 %0, 1, 0, p; }" : "=r"(a[14]));
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    for (int i = 0; i < 15; i++) out[block * 15 + i] = a[i];
}"""


def _who(grid, cluster, explicit):
    def expected(args):
        gx, gy, gz = grid
        rows = []
        for z in range(gz):
            for y in range(gy):
                for x in range(gx):
                    at, n = (x, y, z), cluster
                    inside = [a % c for a, c in zip(at, n, strict=True)]
                    rank = inside[0] + n[0] * (inside[1] + n[1] * inside[2])
                    rows += [*(a // c for a, c in zip(at, n, strict=True)), *(g // c for g, c in zip(grid, n, strict=True))]
                    rows += [*inside, *n, rank, n[0] * n[1] * n[2], explicit]
        return {0: np.array(rows, np.uint32)}

    return expected


ADDRESSES = (
    GROUPS
    + """
extern "C" __global__ void addresses(int* out) {
    __shared__ int s[32];
    cg::cluster_group cluster = cg::this_cluster();
    int next = (cluster.block_rank() + 1) % cluster.num_blocks(), rank;
    s[threadIdx.x] = blockIdx.x;
    cluster.sync();
    int* there = cluster.map_shared_rank(s, next);
    int* here = cluster.map_shared_rank(s, cluster.block_rank());
    int local = 0;
    unsigned far, p[8];
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(far) : "r"((unsigned)__cvta_generic_to_shared(s)), "r"(next));
    asm volatile("getctarank.shared::cluster.u32 %0, %1;" : "=r"(rank) : "r"(far));
#define IS(i, space, pointer) \\
    asm volatile("{ .reg .pred q; isspacep." space " q, %1; selp.u32 %0, 1, 0, q; }" : "=r"(p[i]) : "l"(pointer));
    IS(0, "shared::cluster", there) IS(1, "shared::cta", there) IS(2, "shared::cluster", here) IS(3, "shared::cta", here)
    IS(4, "shared::cluster", s) IS(5, "shared", s) IS(6, "shared::cluster", &local) IS(7, "shared::cluster", out)
    int* row = out + blockIdx.x * 12;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 8; i++) row[i] = p[i];
        row[8] = rank;
        row[9] = cluster.query_shared_rank(there);
        row[10] = cluster.query_shared_rank(s);
        row[11] = there[3] + local;
    }
    cluster.sync();
}"""
)


def _addresses(args):
    rows = [[1, 0, 1, 1, 1, 1, 0, 0, (b + 1) % 4, (b + 1) % 4, b % 4, b // 4 * 4 + (b + 1) % 4] for b in range(8)]
    return {0: np.array(rows, np.int32).reshape(-1)}


# --- shared memory of other blocks -----------------------------------------------------------------------------------

REDUCTION = (
    GROUPS
    + """
extern "C" __global__ void __cluster_dims__(4, 1, 1) reduce(const float* x, float* sums, int n) {
    __shared__ float part[8];
    cg::cluster_group cluster = cg::this_cluster();
    float v = 0;
    const int first = blockIdx.x / 4 * n;
    for (int i = cluster.thread_rank(); i < n; i += cluster.num_threads()) v += x[first + i];
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(~0u, v, d);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    cluster.sync();
    if (cluster.block_rank() == 0 && threadIdx.x == 0) {
        float sum = 0;
        for (int r = 0; r < cluster.num_blocks(); r++)
            for (int w = 0; w < 8; w++) sum += cluster.map_shared_rank(part, r)[w];
        sums[blockIdx.x / 4] = sum;
    }
    cluster.sync();
}"""
)

HISTOGRAM = (
    GROUPS
    + """
extern "C" __global__ void histogram(const int* x, int* counts, int n) {
    extern __shared__ int bins[];
    cg::cluster_group cluster = cg::this_cluster();
    const int per = blockDim.x;  // bins per block
    bins[threadIdx.x] = 0;
    cluster.sync();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        const int bin = x[i];
        atomicAdd(cluster.map_shared_rank(bins, bin / per) + bin % per, 1);
    }
    cluster.sync();
    atomicAdd(&counts[cluster.block_rank() * per + threadIdx.x], bins[threadIdx.x]);
}"""
)

# Values, widths and vectors: every block writes to the next one and reads from the one after that.
WIDTHS = (
    GROUPS
    + """
extern "C" __global__ void __cluster_dims__(2, 2, 1) widths(const float4* x, float4* y, unsigned char* bytes, unsigned long long* old) {
    __shared__ float4 s[32];
    __shared__ unsigned char b[64];
    __shared__ unsigned long long top;
    cg::cluster_group cluster = cg::this_cluster();
    const int t = threadIdx.x, block = blockIdx.y * gridDim.x + blockIdx.x, i = block * 32 + t;
    const unsigned rank = cluster.block_rank();
    if (t == 31) top = (unsigned long long)(i + 1) << 33;
    cluster.sync();
    cluster.map_shared_rank(s, (rank + 1) % 4)[t] = x[i];
    cluster.map_shared_rank(b, (rank + 3) % 4)[2 * t] = t;
    cluster.map_shared_rank(b, (rank + 3) % 4)[2 * t + 1] = rank;
    cluster.sync();
    y[i] = cluster.map_shared_rank(s, (rank + 2) % 4)[31 - t];
    bytes[2 * i] = b[2 * t];
    bytes[2 * i + 1] = b[2 * t + 1];
    if (t == 0) old[block] = atomicExch(cluster.map_shared_rank(&top, rank ^ 2), 5);
    cluster.sync();
}"""
)


def _widths(args):
    x = args[0].reshape(8, 32, 4)
    # grid (2, 4), cluster (2, 2): blocks 4c … 4c + 3 form cluster c, in order of rank
    y, old, kept = np.empty_like(x), np.zeros(8, np.uint64), np.zeros((8, 64), np.uint8)
    for block in range(8):
        first, rank = block // 4 * 4, block % 4
        y[block] = x[first + (rank + 1) % 4][::-1]
        kept[block, 0::2], kept[block, 1::2] = np.arange(32), (rank + 1) % 4
        old[block] = ((first + (rank ^ 2)) * 32 + 32) << 33
    return {1: y.reshape(-1), 2: kept.reshape(-1), 3: old}


# C = A B. The two blocks of a cluster work on the same columns: each loads half of the tile of B, and both read both halves.
SHARED_B = (
    GROUPS
    + """
extern "C" __global__ void __cluster_dims__(1, 2, 1) shared_b(const float* A, const float* B, float* C, int M, int N, int K) {
    constexpr int T = 16;
    __shared__ float As[T][T], Bs[T / 2][T];
    cg::cluster_group cluster = cg::this_cluster();
    const int tx = threadIdx.x, ty = threadIdx.y, rank = cluster.block_rank();
    const int row = blockIdx.y * T + ty, col = blockIdx.x * T + tx;
    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += T) {
        As[ty][tx] = A[row * K + k0 + tx];
        if (ty < T / 2) Bs[ty][tx] = B[(k0 + rank * T / 2 + ty) * N + col];
        cluster.sync();
        for (int half = 0; half < 2; half++) {
            const float(*b)[T] = (const float(*)[T])cluster.map_shared_rank(&Bs[0][0], half);
            for (int k = 0; k < T / 2; k++) sum += As[ty][half * T / 2 + k] * b[k][tx];
        }
        cluster.sync();
    }
    C[row * N + col] = sum;
}"""
)


def _product(args):
    m, n, k = args[3:6]
    return {2: (args[0].reshape(m, k) @ args[1].reshape(k, n)).reshape(-1)}


# --- asynchronous stores and remote mbarriers ------------------------------------------------------------------------

RING = (
    GROUPS
    + ASSEMBLY
    + """
extern "C" __global__ void __cluster_dims__(4, 1, 1) ring(const int* x, int* y, int rounds) {
    __shared__ int s[2][64];
    __shared__ __align__(8) unsigned long long full[2], empty[2];
    cg::cluster_group cluster = cg::this_cluster();
    const int t = threadIdx.x, next = (cluster.block_rank() + 1) % 4, before = (cluster.block_rank() + 3) % 4;
    if (t == 0) {
        for (int i = 0; i < 2; i++) init(at(&full[i]), 1), init(at(&empty[i]), 64);
        publish_inits();
    }
    cluster.sync();
    int v = x[blockIdx.x * 64 + t];
    for (int r = 0; r < rounds; r++) {
        const int b = r % 2, phase = r / 2 & 1;
        if (t == 0) expect(at(&full[b]), 256);
        if (r >= 2) wait(at(&empty[b]), phase ^ 1);
        store_async(in_block(at(&s[b][t]), next), v, in_block(at(&full[b]), next));
        wait(at(&full[b]), phase);
        v = s[b][t] + 1;
        arrive(in_block(at(&empty[b]), before));
    }
    y[blockIdx.x * 64 + t] = v;
    cluster.sync();
}"""
)


def _ring(args):
    x, rounds = args[0].reshape(-1, 4, 64), args[2]
    return {1: (np.roll(x, rounds, axis=1) + rounds).reshape(-1)}


ASYNC_SUM = (
    GROUPS
    + ASSEMBLY
    + """
extern "C" __global__ void async_sum(const int* x, int* y) {
    __shared__ int total[32];
    __shared__ __align__(8) unsigned long long bar;
    cg::cluster_group cluster = cg::this_cluster();
    const int t = threadIdx.x, blocks = cluster.num_blocks();
    total[t] = 0;
    if (t == 0) {
        init(at(&bar), 1);
        publish_inits();
        expect(at(&bar), blocks * 32 * 4);
    }
    cluster.sync();
    for (int r = 0; r < blocks; r++)
        asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.s32 [%0], %1, [%2];"
                     ::"r"(in_block(at(&total[t]), r)), "r"(x[blockIdx.x * 32 + t] * (r + 1)), "r"(in_block(at(&bar), r)) : "memory");
    wait(at(&bar), 0);
    y[blockIdx.x * 32 + t] = total[t];
    cluster.sync();
}"""
)


def _async_sum(args):
    sums = args[0].reshape(-1, 8, 32).sum(axis=1, dtype=np.int32)
    return {1: (sums[:, None, :] * np.arange(1, 9, dtype=np.int32)[None, :, None]).reshape(-1)}


# The same with the functions of <cuda/ptx>, as CUTLASS-free code writes them.
PTX_HEADER = """
#include <cuda/ptx>
#include <cuda/barrier>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;
extern "C" __global__ void __cluster_dims__(2, 1, 1) swap_blocks(const int* x, int* y) {
    using barrier = cuda::barrier<cuda::thread_scope_block>;
    __shared__ int s[64];
    __shared__ barrier bar;
    cg::cluster_group cluster = cg::this_cluster();
    const int t = threadIdx.x;
    if (t == 0) {
        init(&bar, blockDim.x);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();
    const unsigned other = cluster.block_rank() ^ 1;
    int* there = cluster.map_shared_rank(&s[t], other);
    uint64_t* their_bar = cluster.map_shared_rank(cuda::device::barrier_native_handle(bar), other);
    uint64_t token = t == 0 ? ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cluster, ptx::space_shared,
                                                             cuda::device::barrier_native_handle(bar), sizeof(s))
                            : ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cluster, ptx::space_shared,
                                                   cuda::device::barrier_native_handle(bar));
    ptx::st_async(there, x[blockIdx.x * 64 + t], their_bar);
    while (!ptx::mbarrier_try_wait(ptx::sem_acquire, ptx::scope_cluster, cuda::device::barrier_native_handle(bar), token)) {}
    y[blockIdx.x * 64 + t] = s[63 - t];
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();
}"""


def _swap_blocks(args):
    return {1: args[0].reshape(-1, 2, 64)[:, ::-1, ::-1].reshape(-1)}


# C = A B. The two blocks of a cluster share rows of A: each copies half of the tile to both, by multicast.
MULTICAST = (
    GROUPS
    + ASSEMBLY
    + """
extern "C" __global__ void __cluster_dims__(2, 1, 1) multicast(const float* A, const float* B, float* C, int M, int N, int K) {
    constexpr int T = 32, ROW = T * 4;
    __shared__ __align__(128) float As[2][T][T], Bs[2][T][T];
    __shared__ __align__(8) unsigned long long full[2], empty[2];
    cg::cluster_group cluster = cg::this_cluster();
    const int t = threadIdx.x, r = t / 8, c = t % 8 * 4, rank = cluster.block_rank();
    const int row0 = blockIdx.y * T, col0 = blockIdx.x * T, tiles = K / T;
    if (t == 0) {
        for (int i = 0; i < 2; i++) init(at(&full[i]), 1), init(at(&empty[i]), 2);
        publish_inits();
    }
    cluster.sync();  // first
    auto fetch = [&](int tile) {
        const int s = tile % 2;
        if (t != 0) return;
        if (tile >= 2) wait(at(&empty[s]), (tile / 2 & 1) ^ 1);  // until both blocks have used the stage
        expect(at(&full[s]), 2 * T * ROW);
        for (int i = rank * T / 2; i < (rank + 1) * T / 2; i++)
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;"
                         ::"r"(at(As[s][i])), "l"(&A[(row0 + i) * K + tile * T]), "r"(ROW), "r"(at(&full[s])), "h"((short)3) : "memory");
        for (int i = 0; i < T; i++)
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                         ::"r"(at(Bs[s][i])), "l"(&B[(tile * T + i) * N + col0]), "r"(ROW), "r"(at(&full[s])) : "memory");
    };
    fetch(0);
    float sum[4] = {};
    for (int tile = 0; tile < tiles; tile++) {
        const int s = tile % 2;
        if (tile + 1 < tiles) fetch(tile + 1);
        wait(at(&full[s]), tile / 2 & 1);
        for (int k = 0; k < T; k++)
            for (int j = 0; j < 4; j++) sum[j] += As[s][r][k] * Bs[s][k][c + j];
        __syncthreads();
        if (t < 2) arrive(in_block(at(&empty[s]), t));
    }
    for (int j = 0; j < 4; j++) C[(row0 + r) * N + col0 + c + j] = sum[j];
    cluster.sync();
}"""
)

# The instructions by name, with 32-bit addresses, vectors and narrow types.
BY_NAME = (
    GROUPS
    + ASSEMBLY
    + """
extern "C" __global__ void __cluster_dims__(2, 1, 1) by_name(const int4* x, int4* y, int* narrow, int* old) {
    __shared__ int4 s[32];
    __shared__ unsigned short half[32];
    __shared__ int total, low;
    cg::cluster_group cluster = cg::this_cluster();
    const int t = threadIdx.x, i = blockIdx.x * 32 + t, other = cluster.block_rank() ^ 1;
    if (t == 0) total = 0, low = 1000;
    cluster.sync();
    const int4 v = x[i];
    asm volatile("st.shared::cluster.v4.s32 [%0], {%1, %2, %3, %4};"
                 ::"r"(in_block(at(&s[t]), other)), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
    asm volatile("st.shared::cluster.u16 [%0], %1;" ::"r"(in_block(at(&half[t]), other)), "h"((short)(i * 3)) : "memory");
    asm volatile("red.relaxed.cluster.shared::cluster.add.s32 [%0], %1;" ::"r"(in_block(at(&total), other)), "r"(v.x) : "memory");
    int before;
    asm volatile("atom.relaxed.cluster.shared::cluster.min.s32 %0, [%1], %2;"
                 : "=r"(before) : "r"(in_block(at(&low), other)), "r"(v.y) : "memory");
    cluster.sync();
    int2 a;
    unsigned b;
    asm volatile("ld.shared::cluster.v2.s32 {%0, %1}, [%2 + 8];" : "=r"(a.x), "=r"(a.y) : "r"(in_block(at(&s[31 - t]), other)));
    asm volatile("{ .reg .b16 h; ld.shared::cluster.u16 h, [%1]; cvt.u32.u16 %0, h; }" : "=r"(b) : "r"(in_block(at(&half[t]), other)));
    y[i] = make_int4(s[t].x, s[t].y, a.x, a.y);
    narrow[i] = b;
    if (t == 0) old[2 * blockIdx.x] = total, old[2 * blockIdx.x + 1] = low;
    cluster.sync();
}"""
)


def _by_name(args):
    x = args[0].reshape(-1, 2, 32, 4)
    y = np.concatenate([x[:, ::-1, :, :2], x[:, :, ::-1, 2:]], axis=3)
    old = np.stack([x[:, ::-1, :, 0].sum(axis=2), np.minimum(x[:, ::-1, :, 1].min(axis=2), 1000)], axis=2)
    return {1: y.reshape(-1), 2: np.arange(len(args[2]), dtype=np.int32) * 3, 3: old.astype(np.int32).reshape(-1)}


# A whole tile goes to the next block in one bulk copy.
BULK = (
    GROUPS
    + ASSEMBLY
    + """
extern "C" __global__ void __cluster_dims__(4, 1, 1) bulk(const int* x, int* y) {
    __shared__ __align__(128) int from[256], to[256];
    __shared__ __align__(8) unsigned long long bar;
    cg::cluster_group cluster = cg::this_cluster();
    const int t = threadIdx.x, next = (cluster.block_rank() + 1) % 4;
    from[t] = x[blockIdx.x * 256 + t];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    if (t == 0) {
        init(at(&bar), 1);
        publish_inits();
        expect(at(&bar), 1024);
    }
    cluster.sync();
    if (t == 0)
        asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                     ::"r"(in_block(at(to), next)), "r"(at(from)), "r"(1024), "r"(in_block(at(&bar), next)) : "memory");
    wait(at(&bar), 0);
    y[blockIdx.x * 256 + t] = to[t];
    cluster.sync();
}"""
)

# The readers leave at once; the barrier of those who stay has waited for that.
READERS_LEAVE = (
    GROUPS
    + """
extern "C" __global__ void __cluster_dims__(4, 1, 1) readers_leave(const int* x, int* y) {
    __shared__ int s[32];
    cg::cluster_group cluster = cg::this_cluster();
    const int t = threadIdx.x;
    s[t] = x[blockIdx.x * 32 + t];
    cluster.sync();
    if (cluster.block_rank() != 0) {
        y[blockIdx.x * 32 + t] = cluster.map_shared_rank(s, 0)[31 - t];
        return;
    }
    cluster.sync();
    y[blockIdx.x * 32 + t] = s[t];
}"""
)


def _readers_leave(args):
    x = args[0].reshape(-1, 4, 32)
    return {1: np.concatenate([x[:, :1], *[x[:, :1, ::-1]] * 3], axis=1).reshape(-1)}


# Some threads and some blocks leave before the last cluster barrier, which waits only for those who still run.
EARLY_EXIT = """
extern "C" __global__ void __cluster_dims__(4, 1, 1) early_exit(int* y) {
    if (blockIdx.x % 4 == 3 || threadIdx.x >= 32) return;
    asm volatile("barrier.cluster.arrive;" ::: "memory");
    y[blockIdx.x * 32 + threadIdx.x] += 1;
    asm volatile("barrier.cluster.wait;" ::: "memory");
    y[blockIdx.x * 32 + threadIdx.x] += 2;
}"""

# --- the whole grid, and barriers and pipelines of libcu++ -----------------------------------------------------------

GRID = (
    GROUPS
    + """
extern "C" __global__ void normalise(const float* x, float* partial, float* y) {
    __shared__ float s[128];
    cg::grid_group grid = cg::this_grid();
    cg::thread_block block = cg::this_thread_block();
    const int t = threadIdx.x, i = grid.thread_rank();
    s[t] = x[i];
    block.sync();
    for (int d = 64; d; d /= 2) {
        if (t < d) s[t] += s[t + d];
        block.sync();
    }
    if (t == 0) partial[blockIdx.x] = s[0];
    grid.sync();
    float sum = 0;
    for (int b = 0; b < gridDim.x; b++) sum += partial[b];
    y[i] = x[i] - sum;
    grid.sync();
    if (i == 0) y[0] = grid.is_valid() * 1000 + grid.num_blocks();
}"""
)


def _normalise(args):
    x = args[0]
    y = x - x.sum(dtype=np.float32)
    y[0] = 1000 + len(x) // 128
    return {1: x.reshape(-1, 128).sum(axis=1, dtype=np.float32), 2: y}


_PIPELINE_HEAD = """
#include <cuda/pipeline>
#include <cuda/barrier>
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
namespace cg = cooperative_groups;
"""

# C = A B with tiles of 32, STAGES deep: one pipeline per thread, 16 bytes per copy.
THREAD_PIPELINE = (
    _PIPELINE_HEAD
    + """
extern "C" __global__ void gemm(const float* A, const float* B, float* C, int M, int N, int K) {
    constexpr int T = 32, STAGES = 3;
    __shared__ __align__(16) float As[STAGES][T][T], Bs[STAGES][T][T];
    auto pipe = cuda::make_pipeline();
    const int t = threadIdx.x, r = t / 8, c = t % 8 * 4, tiles = K / T;
    const int row0 = blockIdx.y * T, col0 = blockIdx.x * T;
    auto fetch = [&](int tile) {
        pipe.producer_acquire();
        if (tile < tiles) {
            cuda::memcpy_async(&As[tile % STAGES][r][c], &A[(row0 + r) * K + tile * T + c], cuda::aligned_size_t<16>(16), pipe);
            cuda::memcpy_async(&Bs[tile % STAGES][r][c], &B[(tile * T + r) * N + col0 + c], cuda::aligned_size_t<16>(16), pipe);
        }
        pipe.producer_commit();
    };
    for (int tile = 0; tile < STAGES - 1; tile++) fetch(tile);
    float sum[4] = {};
    for (int tile = 0; tile < tiles; tile++) {
        cuda::pipeline_consumer_wait_prior<STAGES - 2>(pipe);
        __syncthreads();
        for (int k = 0; k < T; k++)
            for (int j = 0; j < 4; j++) sum[j] += As[tile % STAGES][r][k] * Bs[tile % STAGES][k][c + j];
        pipe.consumer_release();
        fetch(tile + STAGES - 1);
    }
    for (int j = 0; j < 4; j++) C[(row0 + r) * N + col0 + c + j] = sum[j];
}"""
)

# The same with a pipeline of the whole block, which needs no other barrier.
BLOCK_PIPELINE = (
    _PIPELINE_HEAD
    + """
extern "C" __global__ void gemm(const float* A, const float* B, float* C, int M, int N, int K) {
    constexpr int T = 32, STAGES = 2;
    __shared__ __align__(16) float As[STAGES][T][T], Bs[STAGES][T][T];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, STAGES> state;
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    const int t = threadIdx.x, r = t / 8, c = t % 8 * 4, tiles = K / T;
    const int row0 = blockIdx.y * T, col0 = blockIdx.x * T;
    auto fetch = [&](int tile) {
        pipe.producer_acquire();
        cuda::memcpy_async(&As[tile % STAGES][r][c], &A[(row0 + r) * K + tile * T + c], cuda::aligned_size_t<16>(16), pipe);
        cuda::memcpy_async(&Bs[tile % STAGES][r][c], &B[(tile * T + r) * N + col0 + c], cuda::aligned_size_t<16>(16), pipe);
        pipe.producer_commit();
    };
    fetch(0);
    float sum[4] = {};
    for (int tile = 0; tile < tiles; tile++) {
        if (tile + 1 < tiles) fetch(tile + 1);
        pipe.consumer_wait();
        for (int k = 0; k < T; k++)
            for (int j = 0; j < 4; j++) sum[j] += As[tile % STAGES][r][k] * Bs[tile % STAGES][k][c + j];
        pipe.consumer_release();
    }
    for (int j = 0; j < 4; j++) C[(row0 + r) * N + col0 + c + j] = sum[j];
}"""
)

# One warp produces, the others consume; the pipeline knows who does what.
ROLES = (
    _PIPELINE_HEAD
    + """
extern "C" __global__ void gemm(const float* A, const float* B, float* C, int M, int N, int K) {
    constexpr int T = 16, STAGES = 2;
    __shared__ __align__(16) float As[STAGES][T][T], Bs[STAGES][T][T];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, STAGES> state;
    auto block = cg::this_thread_block();
    const bool producer = threadIdx.x < 32;
    auto pipe = cuda::make_pipeline(block, &state, producer ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer);
    const int tiles = K / T, row0 = blockIdx.y * T, col0 = blockIdx.x * T;
    if (producer) {
        for (int tile = 0; tile < tiles; tile++) {
            pipe.producer_acquire();
            for (int i = threadIdx.x; i < T * T / 4; i += 32) {
                const int r = i / 4, c = i % 4 * 4;
                cuda::memcpy_async(&As[tile % STAGES][r][c], &A[(row0 + r) * K + tile * T + c], cuda::aligned_size_t<16>(16), pipe);
                cuda::memcpy_async(&Bs[tile % STAGES][r][c], &B[(tile * T + r) * N + col0 + c], cuda::aligned_size_t<16>(16), pipe);
            }
            pipe.producer_commit();
        }
        return;
    }
    const int t = threadIdx.x - 32, r = t / T, c = t % T;
    float sum = 0;
    for (int tile = 0; tile < tiles; tile++) {
        pipe.consumer_wait();
        for (int k = 0; k < T; k++) sum += As[tile % STAGES][r][k] * Bs[tile % STAGES][k][c];
        pipe.consumer_release();
    }
    C[(row0 + r) * N + col0 + c] = sum;
}"""
)

# cuda::barrier that copies arrive at; cooperative copies of whole rows.
BARRIER_COPY = (
    _PIPELINE_HEAD
    + """
extern "C" __global__ void gemm(const float* A, const float* B, float* C, int M, int N, int K) {
    constexpr int T = 16;
    using barrier = cuda::barrier<cuda::thread_scope_block>;
    __shared__ __align__(16) float As[T][T], Bs[T][T];
    __shared__ barrier bar;
    auto block = cg::this_thread_block();
    if (block.thread_rank() == 0) init(&bar, block.size());
    block.sync();
    const int t = threadIdx.x, r = t / T, c = t % T, row0 = blockIdx.y * T, col0 = blockIdx.x * T;
    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += T) {
        cuda::memcpy_async(&As[r][c], &A[(row0 + r) * K + k0 + c], sizeof(float), bar);
        cuda::memcpy_async(&Bs[r][c], &B[(k0 + r) * N + col0 + c], sizeof(float), bar);
        bar.arrive_and_wait();
        for (int k = 0; k < T; k++) sum += As[r][k] * Bs[k][c];
        auto token = bar.arrive();
        bar.wait(static_cast<barrier::arrival_token&&>(token));
    }
    C[(row0 + r) * N + col0 + c] = sum;
}"""
)

GROUP_COPY = (
    _PIPELINE_HEAD
    + """
extern "C" __global__ void gemm(const float* A, const float* B, float* C, int M, int N, int K) {
    constexpr int T = 16;
    __shared__ __align__(16) float As[2][T][T], Bs[2][T][T];
    auto block = cg::this_thread_block();
    auto tile16 = cg::tiled_partition<16>(block);
    const int t = threadIdx.x, r = tile16.meta_group_rank(), c = tile16.thread_rank(), row0 = blockIdx.y * T, col0 = blockIdx.x * T;
    auto fetch = [&](int k0, int stage) {
        cg::memcpy_async(tile16, As[stage][r], &A[(row0 + r) * K + k0], cuda::aligned_size_t<16>(T * sizeof(float)));
        cg::memcpy_async(tile16, Bs[stage][r], &B[(k0 + r) * N + col0], cuda::aligned_size_t<16>(T * sizeof(float)));
    };
    fetch(0, 0);
    float sum = 0;
    for (int k0 = 0, stage = 0; k0 < K; k0 += T, stage ^= 1) {
        if (k0 + T < K) {
            fetch(k0 + T, stage ^ 1);
            cg::wait_prior<2>(tile16);
        } else {
            cg::wait(tile16);
        }
        block.sync();
        for (int k = 0; k < T; k++) sum += As[stage][r][k] * Bs[stage][k][c];
        block.sync();
    }
    C[(row0 + r) * N + col0 + c] = sum;
}"""
)


# Bulk copies by the functions of libcu++: one thread copies in and out, a barrier counts the bytes.
BULK_FUNCTIONS = """
#include <cuda/barrier>
#include <cuda/ptx>
namespace ptx = cuda::ptx;
using barrier = cuda::barrier<cuda::thread_scope_block>;
extern "C" __global__ void add_one(const int* x, int* y) {
    __shared__ alignas(128) int s[1024];
    __shared__ barrier bar;
    if (threadIdx.x == 0) {
        init(&bar, blockDim.x);
        ptx::fence_proxy_async(ptx::space_shared);
    }
    __syncthreads();
    barrier::arrival_token token;
    if (threadIdx.x == 0) {
        cuda::device::memcpy_async_tx(s, x + blockIdx.x * 1024, cuda::aligned_size_t<16>(sizeof(s)), bar);
        token = cuda::device::barrier_arrive_tx(bar, 1, sizeof(s));
    } else {
        token = bar.arrive();
    }
    bar.wait(std::move(token));
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) s[i] += 1;
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, y + blockIdx.x * 1024, s, sizeof(s));
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
    }
}"""

EVERY_GROUP = """
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;
extern "C" __global__ void __cluster_dims__(2, 1, 1) every_group(const int* x, int* y) {
    auto grid = cg::this_grid();
    auto cluster = cg::this_cluster();
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    auto half = cg::tiled_partition<16>(warp);
    const int i = grid.thread_rank();
    auto odd = cg::binary_partition(warp, x[i] & 1);
    auto alike = cg::labeled_partition(warp, x[i] % 3);
    auto together = cg::coalesced_threads();
    const int values[8] = {
        cg::reduce(warp, x[i], cg::plus<int>()), cg::inclusive_scan(half, x[i]), (int)odd.size(), (int)alike.num_threads(),
        (int)grid.cluster_rank(), (int)cluster.thread_rank(), (int)(grid.num_clusters() * 1000 + cluster.num_threads()),
        together.shfl(x[i], 3)};
    for (int k = 0; k < 8; k++) y[i * 8 + k] = values[k];
}"""


def _every_group(args):
    x = args[0].reshape(-1, 32)
    i, odd = np.arange(x.size), x & 1
    columns = [
        np.repeat(x.sum(axis=1), 32), x.reshape(-1, 16).cumsum(axis=1).reshape(-1),
        np.where(odd, odd.sum(axis=1, keepdims=True), 32 - odd.sum(axis=1, keepdims=True)).reshape(-1),
        (x[:, :, None] % 3 == x[:, None, :] % 3).sum(axis=2).reshape(-1),
        i // 128, i % 128, np.full(x.size, x.size // 128 * 1000 + 128), np.repeat(x[:, 3], 32),
    ]  # fmt: skip
    return {1: np.stack(columns, axis=1).astype(np.int32).reshape(-1)}


def _gemm(name, source, tile, threads, size=(64, 64, 96)):
    m, n, k = size
    return Case(
        name, source, (n // tile, m // tile), threads,
        lambda: [_floats(m * k), _floats(k * n, seed=1), np.zeros(m * n, np.float32), m, n, k], _product,
    )  # fmt: skip


CASES = (
    Case("specials_2x1x2", SPECIALS, (4, 3, 2), (1,), lambda: [np.zeros(24 * 15, np.uint32)], _who((4, 3, 2), (2, 1, 2), 1), cluster=(2, 1, 2)),
    Case("specials_2x2x2", SPECIALS, (4, 2, 2), (1,), lambda: [np.zeros(16 * 15, np.uint32)], _who((4, 2, 2), (2, 2, 2), 1), cluster=(2, 2, 2)),
    Case("specials_without", SPECIALS, (3, 2, 1), (1,), lambda: [np.zeros(6 * 15, np.uint32)], _who((3, 2, 1), (1, 1, 1), 0)),
    Case("addresses", ADDRESSES, (8,), (32,), lambda: [np.zeros(8 * 12, np.int32)], _addresses, cluster=(4,)),
    Case(
        "reduction", REDUCTION, (12,), (256,), lambda: [_floats(3 * 5000), np.zeros(3, np.float32), 5000],
        lambda args: {1: args[0].reshape(3, 5000).sum(axis=1, dtype=np.float32)},
    ),
    Case(
        "histogram", HISTOGRAM, (16,), (64,), lambda: [_floats(4000, low=0, high=512).astype(np.int32), np.zeros(512, np.int32), 4000],
        lambda args: {1: np.bincount(args[0], minlength=512).astype(np.int32)}, cluster=(8,), shared=256,
    ),
    Case(
        "largest_cluster", HISTOGRAM, (32,), (32,), lambda: [_floats(3000, low=0, high=512).astype(np.int32), np.zeros(512, np.int32), 3000],
        lambda args: {1: np.bincount(args[0], minlength=512).astype(np.int32)}, cluster=(16,), shared=128,
    ),
    Case(
        "widths", WIDTHS, (2, 4), (32,),
        lambda: [_floats(8 * 32 * 4), np.zeros(8 * 32 * 4, np.float32), np.zeros(512, np.uint8), np.zeros(8, np.uint64)],
        _widths,
    ),
    Case(
        "shared_b", SHARED_B, (3, 4), (16, 16),
        lambda: [_floats(64 * 80), _floats(80 * 48, seed=1), np.zeros(64 * 48, np.float32), 64, 48, 80], _product,
    ),
    Case(
        "multicast", MULTICAST, (2, 2), (256,),
        lambda: [_floats(64 * 192), _floats(192 * 64, seed=1), np.zeros(64 * 64, np.float32), 64, 64, 192], _product,
    ),
    Case(
        "by_name", BY_NAME, (4,), (32,),
        lambda: [_floats(512, low=-99, high=99).astype(np.int32), np.zeros(512, np.int32), np.zeros(128, np.int32), np.zeros(8, np.int32)],
        _by_name,
    ),
    Case(
        "bulk", BULK, (8,), (256,), lambda: [np.arange(2048, dtype=np.int32), np.zeros(2048, np.int32)],
        lambda args: {1: np.roll(args[0].reshape(2, 4, 256), 1, axis=1).reshape(-1)},
    ),
    Case("readers_leave", READERS_LEAVE, (8,), (32,), lambda: [np.arange(256, dtype=np.int32), np.zeros(256, np.int32)], _readers_leave),
    Case("ring", RING, (8,), (64,), lambda: [np.arange(512, dtype=np.int32), np.zeros(512, np.int32), 7], _ring),
    Case("async_sum", ASYNC_SUM, (16,), (32,), lambda: [np.arange(512, dtype=np.int32), np.zeros(512, np.int32)], _async_sum, cluster=(8,)),
    Case("ptx_header", PTX_HEADER, (4,), (64,), lambda: [np.arange(256, dtype=np.int32), np.zeros(256, np.int32)], _swap_blocks),
    Case(
        "early_exit", EARLY_EXIT, (8,), (64,), lambda: [np.zeros(256, np.int32)],
        lambda args: {0: np.repeat(np.where(np.arange(8) % 4 == 3, 0, 3), 32).astype(np.int32)},
    ),
    Case("grid", GRID, (70,), (128,), lambda: [_floats(70 * 128), np.zeros(70, np.float32), np.zeros(70 * 128, np.float32)], _normalise),
    Case(
        "bulk_functions", BULK_FUNCTIONS, (4,), (128,), lambda: [np.arange(4096, dtype=np.int32), np.zeros(4096, np.int32)],
        lambda args: {1: args[0] + 1},
    ),
    Case(
        "every_group", EVERY_GROUP, (4,), (64,), lambda: [_floats(256, low=0, high=50).astype(np.int32), np.zeros(2048, np.int32)],
        _every_group,
    ),
    _gemm("thread_pipeline", THREAD_PIPELINE, 32, (256,)),
    _gemm("block_pipeline", BLOCK_PIPELINE, 32, (256,)),
    _gemm("roles", ROLES, 16, (288,), (32, 48, 64)),
    _gemm("barrier_copy", BARRIER_COPY, 16, (256,), (32, 48, 64)),
    _gemm("group_copy", GROUP_COPY, 16, (256,), (32, 48, 64)),
)  # fmt: skip
