"""Traces for tests, built by hand for patterns whose answers are known."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.sites import AccessKind, CostRule, rule_of
from helpers.sim.machine import trace as trace_module
from helpers.sim.machine.trace import ACCESS, BARRIER, MATH


def Site(pc, line, space="global", op="ld", width=4, opcode="ld.global.f32", sass="LDG.E"):
    """A site with the fields that most tests do not care about filled in."""
    kind = AccessKind(op)
    matrices = 4 if rule_of(kind, space) is CostRule.MATRIX else 0
    return trace_module.TracedSite(pc, line, space, kind, width, opcode, sass, pc, rule_of(kind, space), matrices)


def Allocation(name, space, base, nbytes, shape, itemsize=4, dtype="float32"):
    return trace_module.Allocation(name, space, base, nbytes, shape, itemsize, dtype)


def Trace(accesses, addresses, sites, allocations, barriers=None, math=None, truncated=False, grid=(1, 1, 1), block=(32, 1, 1)):
    barriers = np.zeros(0, BARRIER) if barriers is None else barriers
    math = np.zeros(0, MATH) if math is None else math
    return trace_module.Trace(accesses, addresses, sites, barriers, math, allocations, truncated, grid, block)


def access_rows(entries) -> np.ndarray:
    """entries: (site, block, warp, iteration), in execution order."""
    return np.array([(*entry, order) for order, entry in enumerate(entries)], ACCESS)


def run_of(trace, source="", counters=None, by_line=None, findings=(), **compiled):
    facts = {
        "source": source,
        "constants": {},
        "entry": "kernel",
        "symbol": "kernel",
        "filename": "/cell.cu",
        "registers": 32,
        "shared_bytes": 0,
        "ptx": "",
        "sass": "",
        "cubin": b"",
        "matrix_types": frozenset(),
        **compiled,
    }
    return SimpleNamespace(
        trace=trace,
        counters=counters or {},
        by_line=by_line or {},
        findings=list(findings),
        grid=trace.grid if trace else (1, 1, 1),
        block=trace.block if trace else (32, 1, 1),
        milliseconds=None,
        kernel=SimpleNamespace(compiled=SimpleNamespace(**facts)),
        sampled=False,
    )


def one_load(addresses, width=4, space="global", op="ld", shape=(64, 128), **site):
    """A run of one warp that makes one access. addresses: 32 byte addresses relative to A, or -1."""
    base = 4096 if space == "global" else 0
    rows = np.array([[address + base if address >= 0 else -1 for address in addresses]], np.int64)
    array = Allocation("A" if space == "global" else "As", space, base, 4 * int(np.prod(shape)), shape)
    trace = Trace(access_rows([(0, 0, 0, 0)]), rows, [Site(0, 3, space, op, width, **site)], [array])
    shared = f"    __shared__ float As[{shape[0]}][{shape[1]}];\n" if space == "shared" else ""
    return run_of(trace, "\n__global__ void k(float* A) {\n    float a = A[threadIdx.x];\n" + shared + "}")


def gemm_run(kind: str, m: int = 64, n: int = 64, k: int = 64, tile: int = 32):
    """What the machine records for "naive", "coalesced" and "shared" (loads of A and B, barriers, stores of C)."""
    a = Allocation("A", "global", 256, 4 * m * k, (m, k))
    b = Allocation("B", "global", 256 * 4096, 4 * k * n, (k, n))
    c = Allocation("C", "global", 512 * 4096, 4 * m * n, (m, n))
    lanes = np.arange(WARP)
    entries, rows, barriers = [], [], []

    def access(site, block, warp, iteration, addresses):
        entries.append((site, block, warp, iteration, len(entries) + len(barriers)))
        rows.append(np.broadcast_to(addresses, WARP))

    def barrier(block, line):
        for warp in range(tile):
            barriers.append((block, warp, line, len(entries) + len(barriers), "bar.sync"))

    for block in range((m // tile) * (n // tile)):
        x, y = block % (n // tile), block // (n // tile)
        mine = [(y * tile + (lanes if kind == "naive" else warp), x * tile + (warp if kind == "naive" else lanes)) for warp in range(tile)]
        for step in range(k // tile if kind == "shared" else k):
            for warp, (row, column) in enumerate(mine):
                if kind == "shared":
                    access(0, block, warp, step, a.base + 4 * ((y * tile + warp) * k + step * tile + lanes))
                    access(1, block, warp, step, b.base + 4 * ((step * tile + warp) * n + x * tile + lanes))
                else:
                    access(0, block, warp, step, a.base + 4 * (row * k + step))
                    access(1, block, warp, step, b.base + 4 * (step * n + column))
            if kind == "shared":
                barrier(block, 5)
                barrier(block, 7)
        for warp, (row, column) in enumerate(mine):
            access(2, block, warp, 0, c.base + 4 * (row * n + column))
    sites = [Site(10, 3), Site(20, 4), Site(30, 8, op="st", opcode="st.global.f32", sass="STG.E")]
    trace = Trace(
        np.array(entries, ACCESS),
        np.array(rows),
        sites,
        [a, b, c],
        np.array(barriers, BARRIER),
        grid=(n // tile, m // tile, 1),
        block=(tile, tile, 1),
    )
    loads = 2 * m * n * k // WARP
    counters = {
        "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": loads // tile if kind == "shared" else loads,
        "smsp__inst_executed_op_shared_ld.sum": loads if kind == "shared" else 0,
    }
    source = "\n__global__ void gemm() {\n    a = A[0];\n    b = B[0];\n    __syncthreads();\n    sum += a * b;\n    __syncthreads();\n    C[0] = sum;\n}"
    return run_of(trace, source, counters, constants={"tile_shape": (tile, tile)}, entry=kind)
