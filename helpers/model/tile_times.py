"""How long a tiled product takes, from its tiles alone: what a library's rule for choosing a kernel is made of.

A configuration of a kernel (its tile of C, its step along K, its slices) is timed on a few shapes; up to seven numbers fitted
to those times then tell its time on any other shape, in microseconds and without compiling anything. It knows nothing of the
machine code: `helpers.model.cycles` does, and takes a thousand times as long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

UNEVENNESS = (0.0, 0.25, 0.5, 0.75, 1.0)  # how far the busiest multiprocessor decides, tried by `fitted`
SATURATION = (0.0, 1.0, 1.3, 1.6, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)  # blocks that keep a multiprocessor busy, tried likewise


@dataclass(frozen=True)
class Tiling:
    """What of a configuration decides its blocks: the tile of C (rows, columns), the step along K, blocks that share a tile,
    and, where they share, the most elements of C that all of them together may hold (more, and nobody shares). piece: elements in
    which the kernel reads a row of B; rows that are no whole pieces cost more. walks: a multiprocessor has one block, which computes
    one tile after another, so that all take as long as those with one tile more."""

    tile: tuple[int, int]
    step: int
    slices: int = 1
    room: int = 0
    piece: int = 4
    walks: bool = False

    def load(self, m: int, n: int, k: int, batch: int, sms: int) -> Load:
        """What `batch` products of m × n × k ask of each of `sms` multiprocessors. All at least 1."""
        tiles = math.ceil(m / self.tile[0]) * math.ceil(n / self.tile[1]) * batch
        slices = self.slices if tiles * self.slices * math.prod(self.tile) <= self.room else 1
        depth = math.ceil(math.ceil(k / slices) / self.step) * self.step
        blocks = tiles * slices / sms
        return Load(math.ceil(blocks) if self.walks else blocks, depth, slices, bool(n % self.piece))


@dataclass(frozen=True)
class Load:
    """Blocks per multiprocessor, on average or of the busiest, the k of each, slices per tile, and whether rows of B are uneven."""

    blocks: float
    depth: int
    slices: int
    uneven_rows: bool


@dataclass(frozen=True)
class TileTime:
    """A configuration's time on any shape, in microseconds:

        launch + block b + (step + odd where rows of B are uneven) depth max(saturation, b) + part slices b

    with b = blocks + unevenness (⌈blocks⌉ − blocks), between the mean and the busiest multiprocessor's number of blocks. Fewer
    blocks than `saturation` take as long as that many: they wait, and nobody works meanwhile.
    """

    launch: float
    block: float
    step: float
    odd: float
    part: float
    unevenness: float
    saturation: float

    def microseconds(self, load: Load) -> float:
        """The time of a launch with this load."""
        return float(_terms(load, self.unevenness, self.saturation) @ (self.launch, self.block, self.step, self.odd, self.part))


def fitted(loads: Sequence[Load], microseconds: Sequence[float], weights: Sequence[float]) -> TileTime:
    """The model nearest to measured times, by least squares of the relative errors, each times its weight; no part of it is negative.

    Raises ValueError if there is nothing to fit, or if lengths differ.
    """
    if not len(loads) == len(microseconds) == len(weights) or not loads:
        raise ValueError(f"{len(loads)} loads, {len(microseconds)} times and {len(weights)} weights: as many of each, and at least one")
    scale = np.asarray(weights, float) / np.asarray(microseconds, float)
    tried = []
    for unevenness in UNEVENNESS:
        for saturation in SATURATION:
            terms = np.array([_terms(load, unevenness, saturation) for load in loads]) * scale[:, None]
            parts = _not_negative(terms, np.asarray(weights, float))
            tried.append((float(((terms @ parts - weights) ** 2).sum()), (*map(float, parts), unevenness, saturation)))
    return TileTime(*min(tried)[1])


def _terms(load: Load, unevenness: float, saturation: float) -> np.ndarray:
    blocks = load.blocks + unevenness * (math.ceil(load.blocks) - load.blocks)
    busy = load.depth * max(saturation, blocks)
    return np.array([1.0, blocks, busy, busy * load.uneven_rows, load.slices * blocks * (load.slices > 1)])


def _not_negative(terms: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Least squares without the terms that would come out negative, the most negative first."""
    kept = list(range(terms.shape[1]))
    found = np.zeros(terms.shape[1])
    while kept:
        parts, *_ = np.linalg.lstsq(terms[:, kept], wanted, rcond=None)
        if (parts >= 0).all():
            found[kept] = parts
            break
        kept.pop(int(np.argmin(parts)))
    return found
