"""The launches whose counters were measured on an H200: kernels of probes.cu and of the four calibration kernels.

One table for the measurement (tests/gpu/calibration.py) and for the tests that compare with it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from tests import ROOT

FILES = {"probes.cu": Path(__file__).with_name("probes.cu"), "calibration.cu": ROOT / "tests/sim/calibration.cu"}


@dataclass(frozen=True)
class Case:
    """One launch. args: scalars as they are; ('f4', n): an array of n elements of that NumPy type, zeros."""

    file: str
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: tuple

    def arrays(self) -> list:
        """Arguments with new arrays; ints become int32, floats float32."""
        made = []
        for a in self.args:
            if isinstance(a, tuple):
                made.append(np.zeros(a[1], a[0]))
            else:
                made.append(np.float32(a) if isinstance(a, float) else np.int32(a))
        return made


@functools.cache
def _file(file: str, arch: str):
    """A whole file compiled once: (PTX, cubin, SASS of all its kernels)."""
    from helpers.toolchain.compile import compile_source  # the profiled side of this table needs no compiler

    first = next(c.kernel for c in CASES if c.file == file)
    made = compile_source(FILES[file].read_text(), entry=first, arch=arch)
    return made.ptx, made.cubin, made.sass


def compiled(file: str, kernel: str, arch: str = "sm_90") -> SimpleNamespace:
    """What the counting needs of a compiled kernel."""
    ptx, cubin, sass = _file(file, arch)
    return SimpleNamespace(ptx=ptx, cubin=cubin, sass=sass, symbol=kernel, arch=arch)


def _f(n):
    return ("f4", n)


N = 512
CASES = (
    Case("calibration.cu", "naive", (16, 16, 1), (32, 32, 1), (_f(N * N), _f(N * N), _f(N * N), N, N, N)),
    Case("calibration.cu", "coalesced", (16, 16, 1), (32, 32, 1), (_f(N * N), _f(N * N), _f(N * N), N, N, N)),
    Case("calibration.cu", "tile2d", (4, 4, 1), (256, 1, 1), (_f(N * N), _f(N * N), _f(N * N), N, N, N)),
    Case("calibration.cu", "banks", (1, 1, 1), (32, 1, 1), (_f(32),)),
    Case("calibration.cu", "naive", (4, 3, 1), (32, 32, 1), (_f(100 * 37), _f(37 * 70), _f(100 * 70), 100, 70, 37)),
    Case("calibration.cu", "coalesced", (3, 4, 1), (32, 32, 1), (_f(100 * 37), _f(37 * 70), _f(100 * 70), 100, 70, 37)),
    Case("calibration.cu", "naive", (5, 9, 1), (20, 7, 1), (_f(93 * 61), _f(61 * 58), _f(93 * 58), 93, 58, 61)),
    Case("probes.cu", "halves", (2, 1, 1), (64, 1, 1), (_f(64), 9)),
    Case("probes.cu", "halves", (1, 1, 1), (50, 1, 1), (_f(64), 3)),
    Case("probes.cu", "ways", (3, 1, 1), (96, 1, 1), (_f(512), 30)),
    Case("probes.cu", "early", (4, 1, 1), (100, 1, 1), (_f(512), _f(512), 333)),
    Case("probes.cu", "divided", (3, 1, 1), (64, 1, 1), (("i4", 512), 900, 13)),
    Case("probes.cu", "called", (2, 1, 1), (64, 1, 1), (_f(64), 63)),
    Case("probes.cu", "voted", (2, 1, 1), (96, 1, 1), (_f(96), 9)),
    Case("probes.cu", "met", (1, 1, 1), (64, 1, 1), (_f(64), 3)),
    Case("probes.cu", "guarded", (1, 1, 1), (64, 1, 1), (_f(64), _f(64), 10)),
    Case("probes.cu", "local_array", (2, 1, 1), (64, 1, 1), (_f(64), 21)),
    Case("probes.cu", "atomics", (2, 1, 1), (128, 1, 1), (_f(8), ("i4", 128), ("u4", 32))),
    Case("probes.cu", "pipelined", (2, 1, 1), (64, 1, 1), (_f(2048), _f(128), 8)),
    Case("probes.cu", "wmma_tile", (1, 1, 1), (128, 1, 1), (("f2", 32 * 64), ("f2", 64 * 32), _f(1024), 64)),
    Case("probes.cu", "idle", (2, 1, 1), (128, 1, 1), (_f(256), _f(256), 40)),
    Case("probes.cu", "twins", (4, 1, 1), (128, 1, 1), (_f(512), _f(512), 24)),
    Case("calibration.cu", "tile2d", (4, 4, 1), (256, 1, 1), (_f(N * N), _f(N * N), _f(N * N), N, N, N)),
    Case("calibration.cu", "tile2d", (4, 4, 1), (256, 1, 1), (_f(N * N), _f(N * N), _f(N * N), N, N, N)),
    Case("probes.cu", "merged", (2, 1, 1), (64, 1, 1), (_f(1024), _f(128), 17)),
    Case("probes.cu", "jumped", (2, 1, 1), (96, 1, 1), (_f(96), _f(96), 9)),
    Case("probes.cu", "anywhere", (2, 1, 1), (64, 1, 1), (_f(64), _f(64), 5)),
    Case("probes.cu", "anywhere", (2, 1, 1), (64, 1, 1), (_f(64), _f(64), 2)),
    Case("probes.cu", "lent", (1, 1, 1), (64, 1, 1), (_f(64), _f(64), 9)),
    Case("probes.cu", "spilled", (2, 1, 1), (64, 1, 1), (_f(2560), _f(128), 5, 3)),
    Case("probes.cu", "zero_filled", (1, 1, 1), (64, 1, 1), (_f(2048), _f(128), 8, -1)),
    Case("probes.cu", "zero_filled", (1, 1, 1), (64, 1, 1), (_f(2048), _f(128), 8, 0)),
    Case("probes.cu", "zero_filled", (1, 1, 1), (64, 1, 1), (_f(2048), _f(128), 8, 0x0000FFFF)),
    Case("probes.cu", "zero_filled", (1, 1, 1), (64, 1, 1), (_f(2048), _f(128), 8, 0x55555555)),
    Case("probes.cu", "zero_filled", (2, 1, 1), (64, 1, 1), (_f(2048), _f(128), 5, 0x1F3)),
    Case("probes.cu", "partly_filled", (1, 1, 1), (64, 1, 1), (_f(2048), _f(128), 8, 0x0000FFFF)),
    Case("probes.cu", "partly_filled", (1, 1, 1), (64, 1, 1), (_f(2048), _f(128), 8, 0x55555555)),
    Case("probes.cu", "edge_filled", (1, 1, 1), (64, 1, 1), (_f(512), _f(128), 8, 64)),
    Case("probes.cu", "edge_filled", (1, 1, 1), (64, 1, 1), (_f(512), _f(128), 8, 41)),
    Case("probes.cu", "edge_filled", (1, 1, 1), (64, 1, 1), (_f(512), _f(128), 8, 0)),
)
