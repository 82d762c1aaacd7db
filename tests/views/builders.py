"""Traces for tests, built by hand for patterns whose answers are known."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np

WARP = 32
ACCESS = np.dtype([("site", "i4"), ("block", "i4"), ("warp", "i4"), ("iteration", "i4"), ("order", "i8")])
BARRIER = np.dtype([("block", "i4"), ("warp", "i4"), ("line", "i4"), ("order", "i8"), ("kind", "U16")])
MATH = np.dtype([("block", "i4"), ("warp", "i4"), ("line", "i4"), ("order", "i8"), ("opclass", "U16")])


@dataclass(frozen=True)
class Site:
    pc: int
    line: int
    space: str = "global"
    op: str = "ld"
    width: int = 4
    opcode: str = "ld.global.f32"
    sass: str = "LDG.E"
    ptx_line: int = 1


@dataclass(frozen=True)
class Allocation:
    name: str
    space: str
    base: int
    nbytes: int
    shape: tuple
    itemsize: int = 4
    dtype: str = "float32"


@dataclass(frozen=True)
class Trace:
    accesses: np.ndarray
    addresses: np.ndarray
    sites: list
    allocations: list
    barriers: np.ndarray = field(default_factory=lambda: np.zeros(0, BARRIER))
    math: np.ndarray = field(default_factory=lambda: np.zeros(0, MATH))
    truncated: bool = False
    grid: tuple = (1, 1, 1)
    block: tuple = (32, 1, 1)


def access_rows(entries) -> np.ndarray:
    """entries: (site, block, warp, iteration), in execution order."""
    return np.array([(*entry, order) for order, entry in enumerate(entries)], ACCESS)


def run_of(trace, source="", counters=None, by_line=None, findings=(), **compiled):
    facts = {"source": source, "constants": {}, "registers": 32, "shared_bytes": 0, "ptx": "", "sass": "", **compiled}
    return SimpleNamespace(
        trace=trace, counters=counters or {}, by_line=by_line or {}, findings=list(findings), grid=trace.grid if trace else (1, 1, 1),
        block=trace.block if trace else (32, 1, 1), kernel=SimpleNamespace(compiled=SimpleNamespace(**facts)), sampled=False,
    )


def one_load(addresses, width=4, space="global", op="ld", shape=(64, 128), **site):
    """A run of one warp that makes one access. addresses: 32 byte addresses relative to A, or -1."""
    base = 4096 if space == "global" else 0
    rows = np.array([[address + base if address >= 0 else -1 for address in addresses]], np.int64)
    array = Allocation("A" if space == "global" else "As", space, base, 4 * int(np.prod(shape)), shape)
    trace = Trace(access_rows([(0, 0, 0, 0)]), rows, [Site(0, 3, space, op, width, **site)], [array])
    return run_of(trace, "\n__global__ void k(float* A) {\n    float a = A[threadIdx.x];\n}")


__all__ = [name for name in dir() if name[0].isupper() or name in ("access_rows", "run_of", "one_load", "replace")]
