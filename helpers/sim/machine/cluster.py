"""Thread block clusters: who belongs together, addresses in another block's shared memory, the cluster's barrier.

A shared::cluster address is the offset in a block's shared memory, with that block's rank in the cluster, plus one, in the
bits from 24 on. An address without a rank (what cvta and plain shared variables give) is in the thread's own block.
Generic addresses carry the same in the lower bits of the shared window. A chunk always holds whole clusters.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from helpers.errors import LaunchError
from helpers.sim.code.addresses import RANK_SHIFT
from helpers.sim.code.ptx import directives

OFFSET_BITS = (1 << RANK_SHIFT) - 1
LARGEST = 16  # blocks per cluster that a GPU may run
ONE_EACH = 1, 1, 1  # blocks per cluster (x, y, z) of a launch without clusters


@dataclass(frozen=True)
class Declared:
    """What the PTX says of a kernel's clusters. dims: `__cluster_dims__` as (x, y, z), or None. most: a limit, or None."""

    dims: tuple[int, int, int] | None = None
    most: int | None = None


def declared(ptx: str, symbol: str) -> Declared:
    """Read `.reqnctapercluster` and `.maxclusterrank` of entry `symbol`."""
    said = directives(ptx, symbol)
    dims, most = said.get("reqnctapercluster"), said.get("maxclusterrank")
    return Declared((*dims, 1, 1)[:3] if dims else None, most[0] if most else None)


def extent(ptx: str, symbol: str, arch: str, grid, wanted=None) -> tuple[int, int, int] | None:
    """The cluster that a launch uses as (x, y, z); None if it uses none.

    wanted: what the caller asks for. Raises LaunchError for what the hardware refuses.
    """
    said = declared(ptx, symbol)
    if wanted is not None and said.dims is not None and tuple(wanted) != said.dims:
        raise LaunchError(
            f"The kernel declares __cluster_dims__{said.dims}, and cluster={tuple(wanted)} was asked for. "
            "Leave `cluster` out, or remove the declaration."
        )
    dims = said.dims if said.dims is not None else None if wanted is None else tuple(wanted)
    if dims is None:
        return None
    if min(dims) < 1:
        raise LaunchError(f"cluster={dims}: every extent must be at least 1.")
    if int(re.sub(r"\D", "", arch) or 0) < 90:
        raise LaunchError(f"Clusters need sm_90 or later, and the kernel is compiled for {arch}.")
    blocks, most = math.prod(dims), LARGEST if said.most is None else min(said.most, LARGEST)
    if blocks > most:
        limit = f"the limit is {LARGEST} blocks" if said.most is None else f"the kernel declares at most {said.most}"
        raise LaunchError(f"A cluster of {' × '.join(map(str, dims))} = {blocks} blocks is too large: {limit}.")
    for axis, size, per_cluster in zip("xyz", grid, dims, strict=True):
        if size % per_cluster:
            raise LaunchError(
                f"grid.{axis} = {size} is not a multiple of the cluster's {per_cluster}: "
                "round it up, and let the blocks outside the matrix do nothing."
            )
    return dims


def whole(blocks, grid, dims) -> list[int]:
    """The linear indices of all blocks of the clusters that `blocks` belong to, cluster by cluster in order of rank."""
    numbers = np.array(sorted(set(blocks)), np.int64)
    gx, gy, _ = grid
    position = [numbers % gx, numbers // gx % gy, numbers // (gx * gy)]
    corners = np.unique(np.stack([p // n * n for p, n in zip(position, dims, strict=True)][::-1]), axis=1)[::-1]
    cx, cy, cz = dims
    inside = [(x, y, z) for z in range(cz) for y in range(cy) for x in range(cx)]
    return [int(((corner[2] + z) * gy + corner[1] + y) * gx + corner[0] + x) for corner in corners.T for x, y, z in inside]


class Clusters:
    """The clusters of a chunk, whose blocks are numbered by row.

    size: blocks per cluster. rank: [blocks], each block's rank. members: [clusters, size], rows by rank. rows: [blocks, size],
    the same for the cluster of each block.
    """

    def __init__(self, lanes, dims: tuple[int, int, int]):
        gx, gy, _ = lanes.grid
        numbers = lanes.block_numbers
        position = [numbers % gx, numbers // gx % gy, numbers // (gx * gy)]
        corner = [p // n for p, n in zip(position, dims, strict=True)]
        inside = [p % n for p, n in zip(position, dims, strict=True)]
        self.size = math.prod(dims)
        self.rank = (inside[2] * dims[1] + inside[1]) * dims[0] + inside[0]
        order = np.lexsort((self.rank, *corner))
        self.members = order.reshape(-1, self.size)
        number = np.empty(lanes.blocks, np.int64)
        number[order] = np.repeat(np.arange(len(self.members)), self.size)
        self.rows = self.members[number]

    def resolve(self, m, addresses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(rows, offsets) of shared::cluster addresses (int64): the chunk's row of the block each points into, and where."""
        rank = (addresses >> RANK_SHIFT) - 1
        rows = self.rows[m.block_index, np.clip(rank, 0, self.size - 1)]
        return np.where(rank < 0, m.block_index, rows), addresses & OFFSET_BITS

    def address(self, rank, offsets):
        """The shared::cluster address of `offsets` in the block of that rank."""
        return ((rank + 1) << RANK_SHIFT) | (offsets & OFFSET_BITS)


class ClusterBarrier:
    """The barrier that every thread of a cluster has: arrive, then wait. The arrays are [blocks, threads].

    place: where each thread arrived last, if that was for whole warps (position + 1 in `Program.ops`), else 0.
    """

    def __init__(self, m):
        self.arrived = np.zeros((m.blocks, m.threads), bool)  # in a phase that is not complete
        self.passed = np.zeros((m.blocks, m.threads), bool)  # in a phase that is complete; may pass the wait
        self.place = np.zeros((m.blocks, m.threads), np.int32)

    def complete(self, m) -> bool:
        """Complete the phases for which all threads that still run have arrived. True if there was one."""
        there = self.arrived if m.exited is None else self.arrived | m.rows_of(m.exited)
        members = m.clusters.members
        done = there.all(axis=1)[members].all(axis=1) & self.arrived.any(axis=1)[members].any(axis=1)
        if not done.any():
            return False
        rows = members[done].reshape(-1)
        self.passed[rows] |= self.arrived[rows]
        self.arrived[rows] = False
        return True
