"""A matrix product on tensor cores by clusters of two blocks, each of which fetches half of the tile of A that they share."""

from __future__ import annotations

import numpy as np

from helpers import tensor_map
from tests.sim import matrix_products

LAST_SYNC = """    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
"""
GIVE_BACK = '"r"(u % 128) : "memory"'  # a consumer's thread 0 arrives in block 0, its thread 1 in block 1


def warp_specialized() -> str:
    """matrix_products' product with TMA and wgmma, for clusters of two blocks that share rows of A: each fetches half of the tile
    for both, and may fill a stage again when both have used it."""
    source = matrix_products.tma_gemm(1)

    def replace(old: str, new: str) -> None:
        nonlocal source
        assert source.count(old) == 1, old
        source = source.replace(old, new)

    replace("try_wait.parity.shared::cta", "try_wait.parity.acquire.cluster.shared::cta")
    replace(
        'extern "C" __global__ void __launch_bounds__(384) f(',
        """__device__ __forceinline__ void fetch_for_both(unsigned to, const CUtensorMap* map, int k, int row, unsigned barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;"
        ::"r"(to), "l"(map), "r"(k), "r"(row), "r"(barrier), "h"((short)3) : "memory");
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384) f(""",
    )
    replace('[%0], 2;" ::"r"(shared(empty + i))', '[%0], 4;" ::"r"(shared(empty + i))')
    replace(
        """    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
""",
        """    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    int rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
""",
    )
    replace(
        "fetch(shared(memory + s * 32768), &A, tile * 64, row, shared(full + s));",
        "fetch_for_both(shared(memory + s * 32768 + rank * 8192), &A, tile * 64, row + rank * 64, shared(full + s));",
    )
    replace(
        """        if (u % 128 == 0 && tile >= LAG)
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared(empty + (tile - LAG) % STAGES)) : "memory");
""",
        """        if (u % 128 < 2 && tile >= LAG)
            asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there]; }"
                ::"r"(shared(empty + (tile - LAG) % STAGES)), "r"(u % 128) : "memory");
""",
    )
    head, store, rest = source.rpartition("C[(size_t)")
    line, _, end = rest.partition("\n")
    return f"{head}{store}{line}\n{LAST_SYNC}{end}"


def warp_specialized_arguments(m: int, n: int, k: int):
    """(arguments, the product)."""
    args, a, b = matrix_products.tma_arguments(m, n, k)
    args[2] = tensor_map(a, (64, 64), "128B")  # half of the tile's 128 rows
    return args, a.astype(np.float32) @ b.astype(np.float32).T
