"""The figures that follow from tiles, strides and widths, by the rules that the machine counts by: for quizzes and the cheat sheet."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.sites import CostRule
from helpers.sim.counting import rules

FLOAT = 4  # bytes


def global_loads(bm: int, bn: int) -> Fraction:
    """Floats fetched from global memory for each result and each k, where a block computes bm x bn of C: times K, per result."""
    return Fraction(bm + bn, bm * bn)


def shared_reads(tm: int, tn: int) -> Fraction:
    """Numbers that a thread takes out of shared memory for each of its multiply-adds, where it computes tm x tn of C."""
    return Fraction(tm + tn, tm * tn)


def lanes(stride: int, width: int = FLOAT) -> np.ndarray:
    """[1, 32]: the addresses of a warp whose lane n begins at float n * stride. width: bytes per lane, which stride must keep aligned."""
    assert stride * FLOAT % width == 0, "wide accesses begin at multiples of their width"
    return np.arange(WARP)[None] * stride * FLOAT


def sectors(stride: int, width: int = FLOAT) -> int:
    """Sectors that one global load of a warp touches."""
    return int(np.sum(rules.cost(CostRule.GLOBAL, lanes(stride, width), None, width).sectors))


def wavefronts(stride: int, width: int = FLOAT) -> int:
    """Wavefronts that one shared load of a warp takes."""
    return int(np.sum(rules.cost(CostRule.SHARED_LOAD, lanes(stride, width), None, width).wavefronts))


def ring_bytes(bm: int, bn: int, bk: int, stages: int) -> int:
    """Shared memory that `stages` pairs of float tiles take."""
    return stages * (bm + bn) * bk * FLOAT


def blocks(m: int, n: int, bm: int, bn: int) -> int:
    """Blocks of a product, one for each tile of C."""
    return -(-m // bm) * -(-n // bn)


def wavefronts_of(size: int) -> int:
    """Wavefronts of shared memory that so many bytes take at least, each of them wanted once."""
    return -(-size // (rules.BANKS * rules.WORD_BYTES))
