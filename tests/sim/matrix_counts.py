"""Launches of tensor-core instructions whose counters the machine and Nsight Compute are compared in."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from tests.sim.matrix_cases import C_NAMES, IMAGE, MMAS, TILES, WGMMAS, compiled, fits

STORES = """
#include <mma.h>
using namespace nvcuda::wmma;
template <int M, int N, class T, layout_t L, bool SHARED>
__device__ void store(T* out) {
    extern __shared__ __align__(128) char memory[];
    fragment<accumulator, M, N, 16, T> f;
    fill_fragment(f, T(threadIdx.x));
    if (!SHARED) return store_matrix_sync(out, f, 48, L);
    store_matrix_sync((T*)memory, f, 48, L);
    __syncthreads();
    out[threadIdx.x] = ((T*)memory)[threadIdx.x];
}
"""


@dataclass(frozen=True)
class Counted:
    """A launch of one block whose counters are compared with Nsight Compute's. source: has the kernel and its like."""

    name: str
    source: str
    symbol: str
    arch: str
    threads: int
    args: list
    shared: int = 0


def _counted():
    together = "\n".join(case.source for case in MMAS)
    for case in MMAS:
        if not case.selector:  # the first of them, where there are several
            _whole, a, b, c, words = case.matrices(1)
            args = [
                case.pack("a", a),
                case.pack("b", b),
                case.pack("c", c),
                *([] if words is None else [words]),
                np.zeros_like(case.pack("c", c)),
            ]
            yield Counted(case.name, together, case.symbol, "sm_90", 32, args)
    together = "\n".join(case.source for case in WGMMAS)
    for i, case in enumerate(WGMMAS):
        for tile in TILES[:1] if i % 2 else [tile for tile in (TILES[0], TILES[1 + i % 4]) if fits(case, tile)]:
            _, a, b, c, words = case.matrices()
            args = case.arguments(a, b, c, words, True, tile, tile)
            yield Counted(f"{case.name} {tile}", together, case.symbol, case.arch, 128, args, IMAGE)
    stores = {}
    for m, n in ((16, 16), (32, 8), (8, 32)):
        for kind in ("f32", "f16", "s32"):
            for way, where in (("", "false"), ("_shared", "true")):
                for order in ("row", "col"):
                    name = f"store_{m}x{n}_{kind}{way}_{order}"
                    t = C_NAMES[kind]
                    stores[name] = (
                        f'extern "C" __global__ void {name}({t}* out) {{ store<{m}, {n}, {t}, mem_{order}_major, {where}>(out); }}\n'
                    )
    for name in stores:
        yield Counted(name, STORES + "".join(stores.values()), name, "sm_90", 32, [np.zeros(4096, np.uint16)], 8192)


@functools.cache
def counted() -> tuple[Counted, ...]:
    """All launches that are counted: every mma and wgmma, and stores of wmma tiles."""
    return tuple(_counted())


COUNTERS = (
    "smsp__inst_executed.sum", "smsp__inst_executed_pipe_tensor.sum",
    *(f"smsp__inst_executed_pipe_tensor_op_{kind}.sum" for kind in ("hmma", "imma", "dmma", "gmma")),
    "memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal", "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "smsp__inst_executed_op_shared_st.sum", "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum", "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
)  # fmt: skip


def counters_of_the_machine(case: Counted) -> list[int] | None:
    """COUNTERS of the machine; None where it cannot follow the machine code."""
    from helpers.sim import simulate  # the GPU's side needs no simulation

    args = [value.copy() if isinstance(value, np.ndarray) else value for value in case.args]
    made = compiled(case.source, case.symbol, case.arch)
    outcome = simulate(made, (1, 1, 1), (case.threads, 1, 1), args, case.shared, engine="numpy")
    return None if outcome.uncounted else [outcome.counters.get(name, 0) for name in COUNTERS]
