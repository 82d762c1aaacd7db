"""A warp-specialised matrix product as Hopper's fast ones are, and the ways in which such a kernel goes wrong.

C = A B in bfloat16, all row-major: one warpgroup copies boxes by TMA (B's to all blocks of the cluster), two multiply by wgmma from
swizzled shared memory (B is MN-major), blocks stay for many tiles, and results leave through stmatrix and a TMA store.
Words behind `// @` name lines.
"""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np

import helpers

SOURCE = r"""
#include <cuda.h>
#include <cuda_bf16.h>
constexpr int BM = 128, BN = {BN}, BK = 64, STAGES = {STAGES}, CLUSTER = {CLUSTER}, CONSUMERS = BM / 64;
struct Stage { __nv_bfloat16 A[BM * BK], B[BK * BN]; };
struct Shared {
    Stage stages[STAGES];
    __nv_bfloat16 C[CONSUMERS][64 * 64];
    uint64_t full[STAGES], empty[STAGES];
};
__device__ unsigned address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void init(uint64_t* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(address(barrier)), "r"(arrivals));  // @init
}
__device__ bool ready(uint64_t* barrier, int parity) {
    unsigned done;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(address(barrier)), "r"(parity) : "memory");  // @try_wait
    return done;
}
__device__ void expect(uint64_t* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(address(barrier)), "r"(bytes) : "memory");  // @announce
}
__device__ void arrive(uint64_t* barrier, int rank) {
    asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there]; }"
                 :: "r"(address(barrier)), "r"(rank) : "memory");  // @arrive
}
#define LOAD "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
#define TO(to, map, x, y, full) "r"(address(to)), "l"(&map), "r"(x), "r"(y), "r"(address(full))
__device__ uint64_t descriptor(const void* p, int leading) {
    return (address(p) & 0x3FFFF) >> 4 | (uint64_t)(leading >> 4) << 16 | 64ull << 32 | 1ull << 62;
}
__device__ void multiply(float (&d)[BN / 2], uint64_t a, uint64_t b, int add) {
    asm volatile("{ .reg .pred add; setp.ne.b32 add, %{ADD}, 0; "
        "wgmma.mma_async.sync.aligned.m64n{BN}k16.f32.bf16.bf16 {{SUMS}}, %{A}, %{B}, add, 1, 1, 0, 1; }"
        : {OUTS} : "l"(a), "l"(b), "r"(add));  // @wgmma
}
__device__ unsigned pack(float x, float y) {
    __nv_bfloat162 two = __floats2bfloat162_rn(x, y);  // @pack
    return *(unsigned*)&two;
}
extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(128 * (CONSUMERS + 1), 1)
gemm(const __grid_constant__ CUtensorMap A, const __grid_constant__ CUtensorMap B, const __grid_constant__ CUtensorMap C, int M, int N, int K) {
    extern __shared__ __align__(1024) unsigned char bytes[];
    Shared& shared = *(Shared*)bytes;
    const int t = threadIdx.x, group = t / 128, steps = (K + BK - 1) / BK;
    const int rows = (M + BM * CLUSTER - 1) / (BM * CLUSTER), tiles = rows * ((N + BN - 1) / BN);
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (t == 0) {
        for (int s = 0; s < STAGES; s++) {
            init(&shared.full[s], 1);
            init(&shared.empty[s], CONSUMERS * CLUSTER);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");  // @begin
    int stage = 0, phase = 0;
    if (group == CONSUMERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (t == CONSUMERS * 128)
            for (int tile = blockIdx.x / CLUSTER; tile < tiles; tile += gridDim.x / CLUSTER) {
                const int row = (tile % rows * CLUSTER + rank) * BM, column = tile / rows * BN;
                for (int k = 0; k < steps; k++) {
                    while (!ready(&shared.empty[stage], phase ^ 1)) {}  // @empty
                    expect(&shared.full[stage], sizeof(Stage));  // @expect
                    asm volatile(LOAD " [%0], [%1, {%2, %3}], [%4];" :: TO(shared.stages[stage].A, A, k * BK, row, &shared.full[stage]) : "memory");  // @A
                    for (int box = rank * (BN / 64 / CLUSTER); box < (rank + 1) * (BN / 64 / CLUSTER); box++)
                        asm volatile(LOAD ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;"
                            :: TO(shared.stages[stage].B + box * 64 * BK, B, column + box * 64, k * BK, &shared.full[stage]),
                               "h"((short)((1 << CLUSTER) - 1)) : "memory");  // @B
                    if (++stage == STAGES) stage = 0, phase ^= 1;
                }
            }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const int warp = t % 128 / 32, lane = t % 32;
        __nv_bfloat16* out = shared.C[group];
        float d[BN / 2];
        for (int tile = blockIdx.x / CLUSTER; tile < tiles; tile += gridDim.x / CLUSTER) {
            const int row = (tile % rows * CLUSTER + rank) * BM + group * 64, column = tile / rows * BN;
            int before = 0;
            for (int k = 0; k < steps; k++) {
                while (!ready(&shared.full[stage], phase)) {}  // @full
                const Stage& now = shared.stages[stage];
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");  // @fence
                #pragma unroll
                for (int kk = 0; kk < BK; kk += 16)
                    multiply(d, descriptor(now.A + group * 64 * BK + kk, 16), descriptor(now.B + kk * 64, 64 * BK * 2), k + kk > 0);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");  // @commit
                asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");  // @wait
                if (k > 0 && t % 128 < CLUSTER) arrive(&shared.empty[before], t % 128);  // @release
                before = stage;
                if (++stage == STAGES) stage = 0, phase ^= 1;
            }
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");  // @last
            if (t % 128 < CLUSTER) arrive(&shared.empty[before], t % 128);
            #pragma unroll
            for (int i = 0; i < BN / 2; i++) asm volatile("" : "+f"(d[i]) :: "memory");
            #pragma unroll
            for (int box = 0; box < BN / 64; box++) {
                if (warp == 0) {  // warp 0 stores what the four have written, and says when it may be overwritten
                    if (lane == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");  // @read
                    __syncwarp();
                    asm volatile("bar.arrive %0, 128;" :: "r"(group + 4) : "memory");  // @free
                } else asm volatile("bar.sync %0, 128;" :: "r"(group + 4) : "memory");  // @wait_free
                #pragma unroll
                for (int j = 0; j < 8; j += 2) {
                    const float* v = &d[box * 32 + j * 4];
                    const int r = warp * 16 + lane % 16, piece = (j + lane / 16) ^ r % 8;
                    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                        :: "r"(address(out) + r * 128 + piece * 16), "r"(pack(v[0], v[1])), "r"(pack(v[2], v[3])),
                           "r"(pack(v[4], v[5])), "r"(pack(v[6], v[7])) : "memory");  // @stmatrix
                }
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // @proxy
                if (warp != 0) asm volatile("bar.arrive %0, 128;" :: "r"(group + 1) : "memory");  // @written
                else {
                    asm volatile("bar.sync %0, 128;" :: "r"(group + 1) : "memory");  // @wait_written
                    if (lane == 0) {
                        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
                                     :: "l"(&C), "r"(column + box * 64), "r"(row), "r"(address(out)) : "memory");  // @store
                        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
                    }
                }
            }
        }
        if (t % 128 == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");  // @finish
    }
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");  // @end
}
"""
BOX = 64


def source(bn: int = 128, cluster: int = 1, stages: int = 4) -> str:
    """The kernel for tiles of 128 x bn."""
    sums, count = ", ".join(f"%{i}" for i in range(bn // 2)), bn // 2
    values = {"BN": bn, "CLUSTER": cluster, "STAGES": stages, "SUMS": sums, "A": count, "B": count + 1, "ADD": count + 2}
    values["OUTS"] = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    return re.sub(r"\{([A-Z]+)\}", lambda match: str(values[match[1]]), SOURCE)


MARKS = {match[1]: n for n, text in enumerate(SOURCE.split("\n"), 1) if (match := re.search(r"// @(\w+)$", text))}


def edited(text: str, *edits: tuple[str, str, str]) -> str:
    """The kernel with (mark, old, new) replaced in marked lines."""
    lines = text.split("\n")
    for mark, old, new in edits:
        line = lines[MARKS[mark] - 1]
        assert line.count(old) == 1, (mark, old)
        lines[MARKS[mark] - 1] = line.replace(old, new)
    return "\n".join(lines)


def launch(
    m: int, n: int, k: int, bn: int = 128, cluster: int = 1, stages: int = 4, blocks: int | None = None, edits=(), arch="sm_90a", **more
):
    """(the Run, C, the product in float64) of random matrices. blocks: how many stay; None: one for each tile. edits: see `edited`."""
    kernel = helpers.compile(edited(source(bn, cluster, stages), *edits), arch=arch)
    random = np.random.default_rng(m + n + k)
    a, b = (random.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (k, n)))
    c = np.full((m, n), np.nan, ml_dtypes.bfloat16)
    boxes = ((128, BOX), (64, BOX), (64, BOX))
    maps = [helpers.tensor_map(array, box, "128B") for array, box in zip((a, b, c), boxes, strict=True)]
    blocks = cluster * -(-m // (128 * cluster)) * -(-n // bn) if blocks is None else blocks
    shared = stages * (128 + bn) * 128 + 2 * 64 * 128 + 16 * stages
    run = kernel.launch((blocks,), 384, [*maps, m, n, k], shared, on="cpu", **more)
    return run, c, a.astype(np.float64) @ b.astype(np.float64)
