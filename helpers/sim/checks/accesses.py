"""Accesses as the checks see them: which instruction touches which places, for which threads.

The machine makes one for each executed instruction, from what it has at hand. The granules that it touches are worked out
when the first check asks (`SharedCells.touched`), and once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from helpers.sim.code.sites import Site

if TYPE_CHECKING:
    from .device_places import TouchedDevice
    from .protocols import Machine
    from .shared_cells import SharedCells

CHUNK = 16  # bytes: what bulk copies are made of
SEVERAL = -1  # instead of a thread: more than one


class Touched(NamedTuple):
    """Granules of shared memory, one element per granule and thread.

    cells: flat indices into [rows, granules]. who: thread + 1, or SEVERAL. several: is each touched by several threads?
    actors: rows of the threads' own blocks, where these are not the blocks that are touched; else None.
    pair: two of the threads + 1, where several touch each granule; else None.
    """

    cells: np.ndarray
    who: np.ndarray
    several: bool = False
    actors: np.ndarray | None = None
    pair: tuple[np.ndarray, np.ndarray] | None = None


class Access:
    """Threads touch `width` bytes each of their own block's shared memory.

    offsets: per lane, broadcast. mask: the lanes that do (None: all). clash(): did lanes of this store write different
    values to one place? known: as of when who knows of the threads knows of this, if not as of now (`WarpMoment.time`).
    remote: are other blocks' granules touched?
    """

    __slots__ = ("_rows", "_touched", "clash", "known", "mask", "offsets", "site", "width")
    remote = False

    def __init__(
        self, site: Site, offsets: np.ndarray, mask: np.ndarray | None, width: int, clash: Callable[[], bool] | None = None,
        known: int | None = None,
    ):  # fmt: skip
        self.site, self.offsets, self.mask, self.width, self.clash, self.known = site, offsets, mask, width, clash, known
        self._touched: Touched | None = None
        self._rows = 0

    def touched(self, m: Machine, cells: SharedCells) -> Touched:
        """The granules, in the rows that `cells` has now."""
        if self._touched is None or self._rows != cells.rows:
            self._touched = self._find(m, cells)
            self._rows = cells.rows  # which to find them may have made more of
        return self._touched

    def _find(self, m: Machine, cells: SharedCells) -> Touched:
        return cells.of_lanes(m, self.offsets, self.mask, self.width)


class RemoteAccess(Access):
    """The same in shared memory of the blocks `rows` (per lane, broadcast) of the cluster."""

    __slots__ = ("rows",)
    remote = True

    def __init__(self, site: Site, rows: np.ndarray, offsets: np.ndarray, mask: np.ndarray | None, width: int):
        super().__init__(site, offsets, mask, width)
        self.rows = rows

    def _find(self, m: Machine, cells: SharedCells) -> Touched:
        span = max(1, self.width // cells.granule)
        places = m.rows_of(self.rows) * cells.count + m.rows_of(self.offsets) // cells.granule
        lanes = np.arange(m.lanes).reshape(places.shape)
        if self.mask is not None:
            chosen = m.rows_of(self.mask)
            places, lanes = places[chosen], lanes[chosen]
        places = (places.reshape(-1)[:, None] + np.arange(span)).reshape(-1)
        lanes = np.repeat(lanes.reshape(-1), span)
        return Touched(places, lanes % m.threads + 1, False, lanes // m.threads)


class PieceAccess(Access):
    """Bulk copies to or from stretches of shared memory, one per lane (flat positions in [blocks, threads]).

    piece: has rows [n] of the blocks, units(size) giving offsets [n, units], and inside [n, units] (None: all), which of
    its chunks matter. owners: [granules touched], does each copy go to the block of the thread that started it?
    """

    __slots__ = ("lanes", "owners", "piece", "rows")

    def __init__(self, site: Site, piece, lanes: np.ndarray):
        super().__init__(site, piece.offsets, None, CHUNK)
        self.piece, self.lanes = piece, lanes

    def _find(self, m: Machine, cells: SharedCells) -> Touched:
        piece, g = self.piece, cells.granule
        rows, offsets, threads, inside = piece.rows, piece.units(CHUNK), self.lanes % m.threads, piece.inside
        if cells.rows == 1 and m.blocks > 1:
            if self._alike(m):
                count = len(self.lanes) // m.blocks
                rows, offsets, threads = np.zeros(count, np.int64), offsets[:count], threads[:count]
                inside = None if inside is None else inside[:count]
            else:
                cells.expand(m)
        self.rows = rows if cells.rows > 1 else np.zeros(len(threads), np.int64)
        places = (offsets // g + (self.rows * cells.count)[:, None])[:, :, None] + np.arange(CHUNK // g)
        who = np.broadcast_to((threads + 1).astype(np.int32)[:, None, None], places.shape)
        if inside is not None:
            places, who = places[inside], who[inside]
        return Touched(places.reshape(-1), who.reshape(-1))

    def own(self, m: Machine, touched: Touched) -> np.ndarray | None:
        """Which of the granules are in the block of the thread that started the copy; None: all of them."""
        foreign = self.piece.rows != self.lanes // m.threads
        return ~np.repeat(foreign, len(touched.cells) // len(self.lanes)) if foreign.any() else None

    def by_block(self, m: Machine) -> tuple[np.ndarray, ...]:
        """(rows of the threads' blocks, rows touched, offsets, threads), one element per chunk."""
        offsets = self.piece.units(CHUNK)
        parts = (np.repeat(a, offsets.shape[1]) for a in (self.lanes // m.threads, self.piece.rows, self.lanes % m.threads))
        actors, rows, threads = parts
        found = actors, rows, offsets.reshape(-1), threads
        return found if self.piece.inside is None else tuple(part[self.piece.inside.reshape(-1)] for part in found)

    def _alike(self, m: Machine) -> bool:
        """Do all blocks copy the same, each for itself?"""
        piece, lanes = self.piece, self.lanes
        if len(lanes) % m.blocks:
            return False
        blocks = np.arange(m.blocks)[:, None]
        own = [lanes.reshape(m.blocks, -1) - blocks * m.threads, piece.rows.reshape(m.blocks, -1) - blocks]
        own.append(piece.offsets.reshape(m.blocks, -1))
        if piece.inside is not None:
            own.append(piece.inside.reshape(m.blocks, -1))
        return all((part == part[:1]).all() for part in own) and not own[1].any()


class MatrixAccess(Access):
    """A warpgroup's product reads a matrix, in the blocks `blocks` (boolean).

    thread: the first of the warpgroup. granules(size): what the matrix covers, in granules of that size within a block.
    name: A or B. mode: the swizzle that its descriptor names. overlaps: do some of its elements lie at the same place?
    """

    __slots__ = ("blocks", "granules", "mode", "name", "overlaps", "thread")

    def __init__(
        self, site: Site, name: str, thread: int, blocks: np.ndarray, granules: Callable[[int], np.ndarray], mode: str | None = None,
        overlaps: bool = False,
    ):  # fmt: skip
        super().__init__(site, np.zeros(1, np.int64), None, 0)
        self.name, self.thread, self.blocks, self.granules, self.mode, self.overlaps = name, thread, blocks, granules, mode, overlaps

    def of(self, blocks: np.ndarray) -> MatrixAccess:
        """The same in some of the blocks."""
        return MatrixAccess(self.site, self.name, self.thread, blocks, self.granules, self.mode, self.overlaps)

    def _find(self, m: Machine, cells: SharedCells) -> Touched:
        if self.blocks.all():
            rows = np.arange(cells.rows)
        else:
            cells.expand(m)
            rows = np.flatnonzero(self.blocks)
        places = (rows[:, None] * cells.count + self.granules(cells.granule)).reshape(-1)
        return Touched(places, np.full(places.shape, self.thread + 1, np.int32))


class DeviceAccess:
    """Threads touch `width` bytes each of device memory, at offsets from its base (per lane, broadcast).

    Of a store: changes() says per lane whether it changes what memory held, differ() whether another lane of it has put
    something else there.
    """

    __slots__ = ("changes", "differ", "found", "mask", "offsets", "site", "width")

    def __init__(self, site: Site, offsets: np.ndarray, mask: np.ndarray | None, width: int):
        self.site, self.offsets, self.mask, self.width = site, offsets, mask, width
        self.changes: Callable[[], np.ndarray] | None = None
        self.differ: Callable[[], np.ndarray] | None = None
        self.found: TouchedDevice | None = None  # see `DevicePlaces.touched`

    def laid_out(self, m: Machine) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """(offsets, mask or None, numbers of the threads in the grid + 1), of one shape."""
        mask = None if self.mask is None else np.broadcast_to(self.mask, m.shape)
        return np.broadcast_to(self.offsets, m.shape), mask, np.broadcast_to(m.thread_numbers, m.shape)


class BulkDeviceAccess(DeviceAccess):
    """Bulk copies from or to device memory, one per lane (flat positions in [blocks, threads]).

    offsets: [n, units] of `width` bytes each. mask: which of them matter (None: all). adds: is the copy combined with what is there?
    number: [n], what a check calls the copies.
    """

    __slots__ = ("adds", "lanes", "number")

    def __init__(self, site: Site, lanes: np.ndarray, offsets: np.ndarray, mask: np.ndarray | None, width: int, adds: bool = False):
        super().__init__(site, offsets, mask, width)
        self.lanes, self.adds = lanes, adds
        self.number = np.zeros(len(lanes), np.int64)

    def laid_out(self, m: Machine) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        who = m.block_numbers[self.lanes // m.threads] * m.threads + self.lanes % m.threads + 1
        return self.offsets, self.mask, np.broadcast_to(who.astype(np.int32)[:, None], self.offsets.shape)
