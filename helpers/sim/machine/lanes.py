"""How the threads of a chunk of blocks are laid out in arrays.

A chunk is a rectangle of the grid. Its threads are the elements of an array with up to six axes, in the order
(block z, thread z, block y, thread y, block x, thread x): neighbours in a matrix are neighbours in the array. Axes of
length 1 are left out. A value that depends only on threadIdx.x and blockIdx.x has length 1 on all other axes, so it is
stored and computed once for all threads that share it; NumPy's broadcasting does the rest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from helpers.sim.code.hardware_units import WARP

from .cluster import ONE_EACH, Clusters

BLOCK_AXES = (0, 2, 4)  # the others are the threads'


class Lanes:
    """The layout of one chunk.

    coordinates: block indices along z, y, x, each an array that broadcasts to [nz, ny, nx]. block: threads per block
    (x, y, z). grid: blocks of the whole launch (x, y, z). cluster: blocks per cluster (x, y, z), None if there are none.
    """

    def __init__(self, coordinates: Sequence[np.ndarray], extent, block, grid, keep=None, cluster=None):
        self.cluster = cluster
        self.coordinates, self.extent, self.block, self.grid = coordinates, tuple(extent), block, grid
        nz, ny, nx = self.extent
        bx, by, bz = block
        self.full = (nz, bz, ny, by, nx, bx)
        self.keep = keep if keep is not None else ([i for i in range(6) if self.full[i] > 1] or [5])
        self.shape = tuple(self.full[i] for i in self.keep)
        self.nd = len(self.shape)
        self.in_rows = (bz == 1 or ny * nx == 1) and (by == 1 or nx == 1)  # is the layout's order that of [blocks, threads]?
        self.blocks, self.threads = nz * ny * nx, bx * by * bz
        self.lanes = self.blocks * self.threads
        self.block_positions = [i for i, axis in enumerate(self.keep) if axis in BLOCK_AXES]
        self.warp_count = -(-self.threads // WARP)
        self.block_index = self._blocks(np.arange(self.blocks, dtype=np.int64))
        self.thread_index = self._threads(np.arange(self.threads, dtype=np.int64))
        z, y, x = (np.broadcast_to(c, self.extent).reshape(-1) for c in coordinates)
        self.block_numbers = (z * grid[1] + y) * grid[0] + x
        self._lane_index = None
        self._scratch: dict = {}

    # ------------------------------------------------------------------------------------- values into the layout

    def uniform(self, value, dtype) -> np.ndarray:
        """One value for all lanes."""
        return np.full((1,) * self.nd, value, dtype)

    def _six(self, array: np.ndarray) -> np.ndarray:
        return array.reshape([array.shape[self.keep.index(i)] if i in self.keep else 1 for i in range(6)])

    def _kept(self, six: np.ndarray) -> np.ndarray:
        return six.reshape([six.shape[i] for i in self.keep])

    def _blocks(self, values: np.ndarray) -> np.ndarray:
        nz, ny, nx = self.extent
        return self._kept(values.reshape(nz, 1, ny, 1, nx, 1))

    def _threads(self, values: np.ndarray) -> np.ndarray:
        bx, by, bz = self.block
        return self._kept(values.reshape(1, bz, 1, by, 1, bx))

    def from_rows(self, rows: np.ndarray) -> np.ndarray:
        """[blocks, threads] (either may be 1) -> the layout."""
        if self.in_rows and rows.size == self.lanes:
            return rows.reshape(self.shape)
        nz, ny, nx = self.extent if rows.shape[0] > 1 else (1, 1, 1)
        bx, by, bz = self.block if rows.shape[1] > 1 else (1, 1, 1)
        return self._kept(rows.reshape(nz, ny, nx, bz, by, bx).transpose(0, 3, 1, 4, 2, 5))

    def special(self, name: str, shared_bytes: tuple[int, int] = (0, 0), workspace: int = 0) -> np.ndarray:
        """The value of a special register, as broadcast array. shared_bytes: (dynamic, total). workspace: the grid barrier's."""
        u32 = np.uint32
        base, _, axis = name[1:].partition(".")
        index = "xyz".find(axis) if axis else -1
        _nz, _ny, _nx = self.extent
        if base == "tid":
            shape = [1] * 6
            shape[(5, 3, 1)[index]] = self.block[index]
            return self._kept(np.arange(self.block[index], dtype=u32).reshape(shape))
        if base == "ctaid":
            c = self.coordinates[2 - index].astype(u32)
            shape = [1] * 6
            for i, n in zip(BLOCK_AXES, c.shape, strict=True):
                shape[i] = n
            return self._kept(c.reshape(shape))
        if base == "ntid":
            return self.uniform(self.block[index], u32)
        if base == "nctaid":
            return self.uniform(self.grid[index], u32)
        dims = self.cluster or ONE_EACH
        if base == "clusterid":
            return self.special(f"%ctaid.{axis}") // u32(dims[index])
        if base == "cluster_ctaid":
            return self.special(f"%ctaid.{axis}") % u32(dims[index])
        if base == "cluster_ctarank":
            x, y, z = (self.special(f"%cluster_ctaid.{axis}") for axis in "xyz")
            return x + u32(dims[0]) * (y + u32(dims[1]) * z)
        if base == "nclusterid":
            return self.uniform(self.grid[index] // dims[index], u32)
        if base == "cluster_nctaid":
            return self.uniform(dims[index], u32)
        if base == "cluster_nctarank":
            return self.uniform(math.prod(dims), u32)
        if base == "is_explicit_cluster":
            return self.uniform(self.cluster is not None, np.bool_)
        lane = (self.thread_index % WARP).astype(u32)
        if base == "laneid":
            return lane
        if base == "warpid":
            return (self.thread_index // WARP).astype(u32)
        if base == "nwarpid":
            return self.uniform(self.warp_count, u32)
        one = np.left_shift(u32(1), lane)
        masks = {"eq": lambda: one, "lt": lambda: one - u32(1), "le": lambda: one | (one - u32(1)),
                 "gt": lambda: ~(one | (one - u32(1))), "ge": lambda: ~(one - u32(1))}  # fmt: skip
        if base.startswith("lanemask_"):
            return masks[base[-2:]]()
        if base == "smid":
            return (self._blocks(self.block_numbers) % 132).astype(u32)
        if base == "nsmid":
            return self.uniform(132, u32)
        if base == "dynamic_smem_size":
            return self.uniform(shared_bytes[0], u32)
        if base in ("total_smem_size", "aggr_smem_size"):
            return self.uniform(shared_bytes[1], u32)
        if base == "gridid":
            return self.uniform(1, np.uint64)
        if base in ("envreg1", "envreg2"):
            return self.uniform(workspace >> 32 if base == "envreg1" else workspace & 0xFFFFFFFF, u32)
        return self.uniform(0, np.uint64 if base in ("clock64", "globaltimer") else u32)

    # -------------------------------------------------------------------------------------- values out of the layout

    @property
    def alone(self) -> bool:
        """Is each block a cluster of its own?"""
        return self.cluster is None or set(self.cluster) == {1}

    @cached_property
    def clusters(self) -> Clusters:
        """Which blocks of the chunk form a cluster; without clusters each block is one of its own."""
        return Clusters(self, self.cluster or ONE_EACH)

    @property
    def lane_index(self) -> np.ndarray:
        if self._lane_index is None:
            self._lane_index = np.arange(self.lanes, dtype=np.int64).reshape(self.shape)
        return self._lane_index

    def varies_by_block(self, array: np.ndarray) -> bool:
        return any(array.shape[i] > 1 for i in self.block_positions)

    def rows_of(self, array: np.ndarray) -> np.ndarray:
        """[blocks, threads] of a broadcast array; threads in linear order."""
        whole = array if array.shape == self.shape else np.broadcast_to(array, self.shape)
        if self.in_rows:
            return whole.reshape(self.blocks, self.threads)
        six = self._six(whole)
        return six.transpose(0, 2, 4, 1, 3, 5).reshape(self.blocks, self.threads)

    def thread_row(self, array: np.ndarray) -> np.ndarray:
        """[threads] of an array that does not vary by block."""
        bx, by, bz = self.block
        return np.broadcast_to(self._six(array), (1, bz, 1, by, 1, bx)).reshape(-1)

    def warps(self, array: np.ndarray, filler) -> np.ndarray:
        """[blocks, warps, 32]; a last partial warp is filled up."""
        rows = self.rows_of(array)
        if self.threads % WARP:
            padded = np.full((self.blocks, self.warp_count * WARP), filler, rows.dtype)
            padded[:, : self.threads] = rows
            rows = padded
        return rows.reshape(self.blocks, self.warp_count, WARP)

    def from_warps(self, warps: np.ndarray) -> np.ndarray:
        """[blocks, warps, 32] -> the layout."""
        return self.from_rows(warps.reshape(self.blocks, -1)[:, : self.threads])

    def compact(self, array: np.ndarray, mask: np.ndarray | None):
        """The distinct part of an array and mask for counting: (array, mask, blocks, threads, how often it occurs).

        Blocks that must be equal are taken once, and so are warps, as long as whole warps repeat.
        """
        shape = array.shape if mask is None else np.broadcast_shapes(array.shape, mask.shape)
        key = (shape, array.shape)
        known = self._scratch.get(key)
        if known is None:
            six = [1] * 6
            for n, axis in zip(shape, self.keep, strict=True):
                six[axis] = n
            target, times = [1] * 6, 1
            for axis in BLOCK_AXES:
                target[axis] = six[axis]
                times *= self.full[axis] if six[axis] == 1 else 1
            bx, by, bz = self.block
            target[1], target[3], target[5] = bz, by, bx
            if six[1] == 1 and (bx * by) % WARP == 0:
                target[1], times = 1, times * bz
                if six[3] == 1 and bx % WARP == 0:
                    target[3], times = 1, times * by
            blocks = target[0] * target[2] * target[4]
            threads = target[1] * target[3] * target[5]
            known = self._scratch[key] = (tuple(target), blocks, threads, times)
        target, blocks, threads, times = known

        def rows(a):
            if a.size == 1:
                return a.reshape(1, 1)
            six = self._six(a)
            whole = six if six.shape == target else np.broadcast_to(six, target)
            return whole.transpose(0, 2, 4, 1, 3, 5).reshape(blocks, threads)

        return rows(array), None if mask is None else rows(mask), blocks, threads, times

    def project(self, mask: np.ndarray | None, shape) -> np.ndarray | None:
        """Which elements of an array of `shape` some active lane uses: any over the axes that the array lacks."""
        if mask is None:
            return None
        axes = tuple(i for i, n in enumerate(shape) if n == 1 and mask.shape[i] > 1)
        return mask.any(axis=axes, keepdims=True) if axes else mask

    def example(self, bad: np.ndarray, values: np.ndarray):
        """(block, thread, value, count) for the first lane of a boolean array that takes part."""
        if self.mask is not None and (bad & self.mask).any():  # the array may lack the axes by which the lanes differ
            bad = bad & self.mask
        bad = np.broadcast_to(bad, np.broadcast_shapes(bad.shape, values.shape))
        values = np.broadcast_to(values, bad.shape)
        index = np.unravel_index(int(bad.argmax()), bad.shape)
        value = int(values[index])
        lane = tuple(i if n > 1 else 0 for i, n in zip(index, bad.shape, strict=True))
        block = int(self.block_index[tuple(min(i, n - 1) for i, n in zip(lane, self.block_index.shape, strict=True))])
        thread = int(self.thread_index[tuple(min(i, n - 1) for i, n in zip(lane, self.thread_index.shape, strict=True))])
        repeat = self.lanes // max(1, math.prod(bad.shape))
        return self.block_position(block), self.thread_position(thread), value, int(np.count_nonzero(bad)) * repeat

    def block_position(self, index: int) -> tuple[int, int, int]:
        """blockIdx of the chunk's block `index`."""
        number = int(self.block_numbers[index])
        gx, gy, _ = self.grid
        return number % gx, number // gx % gy, number // (gx * gy)

    def thread_position(self, index: int) -> tuple[int, int, int]:
        bx, by, _ = self.block
        return index % bx, index // bx % by, index // (bx * by)

    # ------------------------------------------------------------------------------------------------- division

    def division(self, taken: np.ndarray):
        """How to cut the chunk so that a branch goes one way in the parts: (axis 0-5, [(start, stop), …]), or None.

        taken: where the branch is taken, broadcast to the lanes.
        """
        for position in self.block_positions:
            if taken.shape[position] == 1:
                continue
            others = tuple(i for i in range(self.nd) if i != position)
            some, every = taken.any(axis=others), taken.all(axis=others)
            kind = some.astype(np.int8) + every
            cuts = np.flatnonzero(kind[1:] != kind[:-1]) + 1
            if 0 < len(cuts) <= 3:
                edges = [0, *cuts.tolist(), len(kind)]
                return self.keep[position], list(itertools.pairwise(edges))
        return None

    def part(self, axis: int, start: int, stop: int):
        """(arguments of `Lanes` for a slice along a block axis, function that cuts arrays, row numbers of its blocks)."""
        i = BLOCK_AXES.index(axis)
        coordinates = [c[(slice(None),) * i + (slice(start, stop),)] if c.shape[i] > 1 else c for c in self.coordinates]
        extent = list(self.extent)
        extent[i] = stop - start
        position = self.keep.index(axis)
        window = (slice(None),) * position + (slice(start, stop),)

        def cut(array):
            return array[window] if array.shape[position] > 1 else array

        rows = np.arange(self.blocks).reshape(self.extent)[(slice(None),) * i + (slice(start, stop),)].reshape(-1)
        return (coordinates, extent, self.block, self.grid, self.keep, self.cluster), cut, rows
