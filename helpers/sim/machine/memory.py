"""The machine's memories: device (global, constant), shared, and per-thread (local, parameters).

Nothing here is a host pointer. Arrays are copied into an arena with guard space around each, every access is checked
against what was allocated, and they are copied back only when the kernel has ended. Shared memory has shadow state
beside it, from which uninitialised reads and races are told (see `Shadow`).

Addresses arrive as int64 arrays that broadcast to the lanes; a value that is the same for many lanes is checked once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from helpers.errors import RunError
from helpers.sim.checks.bulk_copies import BulkShadow
from helpers.sim.checks.cluster_races import READ, UPDATE, WRITE, ClusterShadow
from helpers.sim.checks.findings import Findings
from helpers.sim.checks.proxy_fences import Proxies
from helpers.sim.checks.warp_clocks import WarpClocks
from helpers.sim.code.addresses import ALIGN, DEVICE_BASE, phase

from .cluster import RANK_SHIFT
from .trace import Allocation

LEAST_GUARD = 1 << 20
I64 = np.dtype(np.int64)
U32 = np.dtype(np.uint32)
_least, _most, _any_bit = np.minimum.reduce, np.maximum.reduce, np.bitwise_or.reduce
# NumPy types by width, for moving bits.
RAW = {1: np.dtype(np.uint8), 2: np.dtype(np.uint16), 4: np.dtype(np.uint32), 8: np.dtype(np.uint64)}


@dataclass(frozen=True)
class Argument:
    """An array argument in the arena."""

    name: str
    array: np.ndarray
    base: int


class DeviceMemory:
    """Global and constant memory of one launch. Offsets count from DEVICE_BASE."""

    def __init__(self, program, arrays: Sequence[tuple[str, np.ndarray]], findings: Findings):
        self.findings = findings
        spans = [(base - DEVICE_BASE, nbytes, name) for name, base, nbytes, _ in program.device]
        self.allocations = [Allocation(name, space, base, nbytes, (nbytes,), 1, "uint8") for name, base, nbytes, space in program.device]
        self.arguments: list[Argument] = []
        top = max(len(program.image), ALIGN)
        for group in _overlapping([array for _, array in arrays]):
            low = min(_bounds(arrays[i][1])[0] for i in group)
            high = max(_bounds(arrays[i][1])[1] for i in group)
            start = -(-(top + max(LEAST_GUARD, min(high - low, 1 << 28))) // ALIGN) * ALIGN
            # Overlapping arrays keep their distances; the first of them begins where it does in the array it is a view of.
            start += phase(min((arrays[i][1] for i in group), key=_bounds))
            for i in group:
                name, array = arrays[i]
                base = start + _bounds(array)[0] - low
                self.arguments.append(Argument(name, array, base))
                self.allocations.append(
                    Allocation(name, "global", DEVICE_BASE + base, array.nbytes, array.shape, array.itemsize, array.dtype.name)
                )
                spans.append((base, array.nbytes, name))
            top = start + high - low
        self.size = -(-(top + LEAST_GUARD) // ALIGN) * ALIGN
        try:
            self.bytes = np.zeros(self.size, np.uint8)
        except MemoryError:
            raise RunError(f"The arrays need {self.size >> 20} MB in the machine, more than this computer has free.") from None
        self.views = {dtype: self.bytes.view(dtype) for dtype in RAW.values()}
        for dtype in map(np.dtype, (np.int8, np.int16, np.int32, np.int64, np.float16, np.float32, np.float64)):
            self.views[dtype] = self.bytes.view(dtype)
        self.bytes[: len(program.image)] = np.frombuffer(program.image, np.uint8)
        for position, width, address in program.image_addresses:
            self.bytes[position : position + width] = np.frombuffer(address.to_bytes(8, "little")[:width], np.uint8)
        for argument in self.arguments:
            self.bytes[argument.base : argument.base + argument.array.nbytes] = argument.array.reshape(-1).view(np.uint8)
        merged = _merge(spans)
        self.starts = np.array([start for start, _ in merged] or [0], np.int64)
        self.ends = np.array([end for _, end in merged] or [0], np.int64)
        self.low = [1] * len(program.sites)  # bounds that the last access of each site was inside of
        self.high = [0] * len(program.sites)

    def base_of(self, array: np.ndarray) -> int:
        """The machine's address of an argument array."""
        return next(DEVICE_BASE + a.base for a in self.arguments if a.array is array)

    def copy_back(self) -> None:
        """Give the results to the host arrays."""
        for argument in self.arguments:
            flat = argument.array.reshape(-1)
            if flat.flags.writeable and argument.array.nbytes:
                flat.view(np.uint8)[:] = self.bytes[argument.base : argument.base + argument.array.nbytes]

    def locate(self, m, site, addresses: np.ndarray, width: int):
        """(offsets that are safe to use, mask of lanes to access or None for all in m.mask).

        Reports accesses outside every allocation and misaligned ones; they are left out of the mask.
        """
        offsets = addresses - DEVICE_BASE
        i = site.index
        if offsets.size == 1:
            low = high = bits = offsets.item()
        else:
            low, high = int(_least(offsets, axis=None)), int(_most(offsets, axis=None))
            bits = int(_any_bit(offsets, axis=None)) if width > 1 else 0
        if low >= self.low[i] and high + width <= self.high[i] and not bits & (width - 1):
            return offsets, m.mask
        return self._check(m, site, offsets, width)

    def _check(self, m, site, offsets, width):
        active = m.project(m.mask, offsets.shape)
        if active is not None:
            # Lanes that take no part may hold anything: give them an address that some lane really uses.
            used = np.broadcast_to(active, np.broadcast_shapes(active.shape, offsets.shape))
            wide = np.broadcast_to(offsets, used.shape)
            if not used.any():
                return np.zeros_like(offsets), m.mask
            offsets = np.where(used, wide, wide[used].flat[0])
        where = np.searchsorted(self.starts, offsets, side="right") - 1
        inside = (where >= 0) & (offsets + width <= self.ends[where])
        straight = (offsets & (width - 1)) == 0
        good = inside & straight
        if good.all():
            first = int(where.flat[0])
            if (where == first).all():
                self.low[site.index], self.high[site.index] = int(self.starts[first]), int(self.ends[first])
            return offsets, m.mask
        if not inside.all():
            self._outside(m, site, offsets, width, ~inside)
        if not (straight | ~inside).all():
            self._misaligned(m, site, offsets, width, inside & ~straight)
        fallback = offsets[good].flat[0] if good.any() else 0
        mask = good if m.mask is None else good & m.mask
        return np.where(good, offsets, fallback), mask

    def _outside(self, m, site, offsets, width, bad):
        block, thread, offset, count = m.example(bad, offsets)
        address = DEVICE_BASE + offset
        verb = "reads" if site.op == "ld" else "writes" if site.op == "st" else "accesses"
        near, distance, side = self._nearest(offset, width)
        fatal = near is None or distance > LEAST_GUARD
        if address < 1 << 20:
            what = "through a null pointer"
        elif near is None or distance > LEAST_GUARD:
            what = f"at address {address:#x}, far from every array"
        else:
            what = f"{distance} bytes {side} {near}" if distance else f"just {side} {near}"
        message = f"A thread {verb} {width} bytes {what}."
        finding = self.findings.add("out-of-bounds", site.line, message, block=block, thread=thread, count=count)
        if fatal:
            self.findings.stop(
                f"{m.where(site.line)}: thread {thread} of block {block} {verb} {width} bytes {what}. {finding.advice}",
                site.line,
            )

    def _nearest(self, offset, width):
        best = (None, 0, "")
        for allocation in self.allocations:
            start = allocation.base - DEVICE_BASE
            end = start + allocation.nbytes
            if offset >= end:
                distance, side = offset - end, "past the end of"
            elif offset < start:
                distance, side = start - offset, "before"
            else:
                distance, side = offset + width - end, "across the end of"
            if best[0] is None or distance < best[1]:
                best = (allocation.name, distance, side)
        return best

    def _misaligned(self, m, site, offsets, width, bad):
        block, thread, offset, count = m.example(bad, offsets)
        self.findings.add(
            "misaligned",
            site.line,
            f"An access of {width} bytes at address {DEVICE_BASE + offset:#x}, which is not a multiple of {width}.",
            block=block,
            thread=thread,
            count=count,
        )
        self.findings.stop(
            f"{m.where(site.line)}: an access of {width} bytes at an address that is not a multiple of {width} "
            f"(thread {thread} of block {block}). The hardware stops here.",
            site.line,
        )


def _bounds(array: np.ndarray) -> tuple[int, int]:
    return np.lib.array_utils.byte_bounds(array) if array.size else (array.ctypes.data, array.ctypes.data)


def _overlapping(arrays) -> list[list[int]]:
    """Indices of the arrays in groups that share host memory."""
    groups: list[tuple[int, int, list[int]]] = []
    for i in sorted(range(len(arrays)), key=lambda i: _bounds(arrays[i])):
        low, high = _bounds(arrays[i])
        if groups and low < groups[-1][1]:
            start, end, members = groups[-1]
            groups[-1] = (start, max(end, high), [*members, i])
        else:
            groups.append((low, high, [i]))
    return [members for _, _, members in groups]


def _merge(spans) -> list[tuple[int, int]]:
    """Allocated ranges, overlapping ones joined."""
    merged: list[list[int]] = []
    for start, nbytes, _ in sorted(spans):
        if merged and start <= merged[-1][1] and nbytes:
            merged[-1][1] = max(merged[-1][1], start + nbytes)
        else:
            merged.append([start, start + nbytes])
    return [(start, end) for start, end in merged]


# --- shared memory ---------------------------------------------------------------------------------------------------


class SharedMemory:
    """[blocks, bytes] of a chunk, flat. Offsets are those within a block."""

    def __init__(self, m, size: int, program, wanted: bool):
        self.size = size
        self.stride = max(16, -(-size // 16) * 16)
        self.bytes = np.zeros(m.blocks * self.stride, np.uint8)
        self._bind(m)
        granule = min(4, program.shared_granule)
        self.shadow = Shadow(m, self.stride, granule, program) if wanted and size else None

    def _bind(self, m):
        self.views = {dtype: self.bytes.view(dtype) for dtype in RAW.values()}
        for dtype in map(np.dtype, (np.int8, np.int16, np.int32, np.int64, np.float16, np.float32, np.float64)):
            self.views[dtype] = self.bytes.view(dtype)
        self.bases = {width: m.block_index * (self.stride // width) for width in RAW}

    def part(self, m, rows: np.ndarray) -> SharedMemory:
        """The shared memory of some of the blocks (their rows), for a part of a divided chunk."""
        other = object.__new__(SharedMemory)
        other.size, other.stride = self.size, self.stride
        other.bytes = self.bytes.reshape(-1, self.stride)[rows].reshape(-1).copy()
        other._bind(m)
        other.shadow = self.shadow.part(rows) if self.shadow is not None else None
        return other

    def locate(self, m, site, offsets: np.ndarray, width: int):
        """(safe offsets, mask), like DeviceMemory.locate."""
        if offsets.size == 1:
            low = high = bits = offsets.item()
        else:
            low, high = int(_least(offsets, axis=None)), int(_most(offsets, axis=None))
            bits = int(_any_bit(offsets, axis=None)) if width > 1 else 0
        if low >= 0 and high + width <= self.size and not bits & (width - 1):
            return offsets, m.mask
        active = m.project(m.mask, offsets.shape)
        if active is not None:
            offsets = np.where(active, offsets, 0)
        inside = (offsets >= 0) & (offsets + width <= self.size)
        straight = (offsets & (width - 1)) == 0
        if not inside.all():
            block, thread, offset, count = m.example(~inside, offsets)
            verb = "reads" if site.op in ("ld", "ldmatrix") else "writes"
            m.findings.add(
                "out-of-bounds",
                site.line,
                f"A thread {verb} {width} bytes at offset {offset} of shared memory, which has {self.size} bytes per block."
                if offset >> RANK_SHIFT == 0 or site.space == "cluster"
                else f"A thread {verb} another block's shared memory with an instruction for its own block only: use .shared::cluster.",
                block=block,
                thread=thread,
                count=count,
            )
        if not (straight | ~inside).all():
            block, thread, offset, count = m.example(inside & ~straight, offsets)
            m.findings.add(
                "misaligned",
                site.line,
                f"A shared-memory access of {width} bytes at offset {offset}, which is not a multiple of {width}.",
                block=block,
                thread=thread,
                count=count,
            )
            m.findings.stop(
                f"{m.where(site.line)}: a shared-memory access of {width} bytes at offset {offset}, "
                f"which is not a multiple of {width} "
                f"(thread {thread} of block {block}). The hardware stops here.",
                site.line,
            )
        good = inside & straight
        if good.all():
            return offsets, m.mask
        mask = good if m.mask is None else good & m.mask
        return np.where(good, offsets, 0), mask


class Shadow:
    """Who touched each granule of shared memory since the last barrier, and whether it was ever written.

    Rows are blocks; while all blocks of the chunk do the same, one row stands for all of them. `writer` and `reader`
    hold a thread's linear index + 1, 0 for nobody, SEVERAL for more than one thread (where warps synchronise, several
    threads of one warp w are -2 - w instead, because its __syncwarp() orders them all). A race is an access that meets
    another thread's, at least one of them a write, with no barrier between. Two threads of one warp are ordered by a
    __syncwarp() that names both: `writer_turn` and `reader_turn` remember the clock of the thread (see `WarpClocks`).
    WARPGROUP - g is what a product of warpgroup g has read (`_others`).
    Where reads at several places can race, `last_reader` is one thread and `other_site` where somebody else has read.
    """

    SEVERAL = -1
    WARPGROUP = -64

    def __init__(self, m, nbytes: int, granule: int, program):
        self.granule = granule
        self.count = nbytes // granule
        self.rows = 1
        self.warp_syncs = bool({"bar.warp", "barrier.warp"} & program.uses)
        self.many_reads = sum(site.may_race and site.op == "ld" and site.space in ("shared", "generic") for site in program.sites) > 1
        self.initialised = np.zeros((1, self.count), bool)
        self.complete = False
        for name in self._state():
            setattr(self, name, np.zeros((1, self.count), np.int32))
        self.clocks = WarpClocks(1, m.threads)
        self.copies = "cp.async" in program.uses
        self.under_way = np.zeros((1, self.count if self.copies else 0), np.int32)  # site + 1 of a copy not yet landed
        self.proxies = Proxies(self.count) if "async proxy" in program.uses else None
        self.bulk = BulkShadow(self) if "bulk" in program.uses else None
        self.touched = False
        self.sites = program.sites
        self.cluster = None
        if "cluster" in program.uses:
            self._expand(m)
            self.cluster = ClusterShadow(m, self)

    def _state(self):
        names = ["writer", "writer_site", "reader", "reader_site"]
        names += ["writer_turn", "reader_turn"] if self.warp_syncs else []
        return [*names, "last_reader", "other_site"] if self.many_reads else names

    def part(self, rows) -> Shadow:
        other = object.__new__(Shadow)
        other.__dict__.update(self.__dict__)
        pick = (lambda a: a[rows].copy()) if self.rows > 1 else (lambda a: a.copy())
        for name in [*self._state(), "initialised", "under_way"]:
            setattr(other, name, pick(getattr(self, name)))
        other.clocks = self.clocks.rows(pick)
        other.proxies = self.proxies and self.proxies.part(pick)
        other.bulk = self.bulk and BulkShadow(other)  # a chunk with copies under way is not divided
        other.rows = len(rows) if self.rows > 1 else 1
        return other

    def _expand(self, m) -> None:
        """A row for each block."""
        if self.rows == m.blocks:
            return
        for name in [*self._state(), "initialised", "under_way"]:
            setattr(self, name, np.repeat(getattr(self, name), m.blocks, axis=0))
        self.clocks = self.clocks.rows(lambda array: np.repeat(array, m.blocks, axis=0))
        if self.proxies is not None:
            self.proxies.expand(m.blocks)
        if self.bulk is not None:
            self.bulk.expand(m.blocks)
        self.rows = m.blocks

    def clear(self, m, rows=None) -> None:
        """A barrier of whole blocks: `rows` is a boolean per block, None for all."""
        if not self.touched:
            return
        if rows is None or rows.all():
            self.writer[:] = 0
            self.reader[:] = 0
            self.touched = False
            if self.bulk is not None:
                self.bulk.forget()
            return
        self._expand(m)
        self.writer[rows] = 0
        self.reader[rows] = 0
        if self.bulk is not None:
            self.bulk.forget(rows)

    def clear_threads(self, m, members: np.ndarray) -> None:
        """A barrier of some threads (boolean [blocks, threads]): what they did is ordered before what follows."""
        self._order(m, members)
        if self.bulk is not None:
            self.bulk.met(m, members if self.rows > 1 else members[:1])

    def waited(self, m, barrier, rows, lanes) -> None:
        """Lanes (positions in [blocks, threads]) have waited for the mbarrier in the blocks `rows`."""
        chosen = np.zeros(m.blocks, bool)
        chosen[rows] = True
        arrivers = barrier.arrivers(m, chosen)
        if arrivers.any():
            self._order(m, arrivers)
        if self.bulk is not None:
            self.bulk.waited(m, barrier, rows, lanes, arrivers)
        if self.cluster is not None:
            self.cluster.take(barrier, np.flatnonzero(chosen))

    def _order(self, m, members: np.ndarray) -> None:
        """Nothing that these threads ([blocks, threads]) have done races with what follows."""
        if self.rows == 1 and (members == members[:1]).all():
            members = members[:1]
        else:
            self._expand(m)
        padded = np.concatenate([np.zeros((len(members), 1), bool), members], axis=1)
        rows = np.arange(len(members))[:, None]
        for name in ("writer", "reader"):
            state = getattr(self, name)
            known = padded[rows, np.maximum(state, 0)]
            # Readers that are several cannot be told apart any more; forgetting them can only miss a race.
            state[known | (state < 0)] = 0

    def acquire(self, m) -> None:
        """The active threads see what others have released: nothing is known to be unordered any more.

        Which threads released is not tracked, so races behind an acquire may be missed; none is made up.
        """
        self.clear(m, None if m.mask is None else m.rows_of(m.mask).any(axis=1))
        self.fence(m)

    def fence(self, m, acquires: bool = True) -> None:
        """The active threads execute a fence or a release: it may order what other blocks of the cluster see."""
        if self.cluster is not None:
            self.cluster.fence(m, acquires)

    def remote(self, m, site, rows, offsets, mask, width, verb) -> None:
        """Check an access to shared memory of the blocks `rows`, as `ClusterShadow.access` does, and whether it was written."""
        if self.cluster is None:
            return
        cells = m.rows_of(rows) * self.count + m.rows_of(offsets) // self.granule
        lanes = np.arange(m.lanes).reshape(cells.shape)
        if mask is not None:
            chosen = m.rows_of(mask)
            cells, lanes = cells[chosen], lanes[chosen]
        span = max(1, width // self.granule)
        cells, lanes = (cells.reshape(-1)[:, None] + np.arange(span)).reshape(-1), np.repeat(lanes.reshape(-1), span)
        who, actors = lanes % m.threads + 1, lanes // m.threads
        if verb == WRITE:
            self._written(cells)
        elif not self.complete and cells.size:
            known = self.initialised.reshape(-1).take(cells)
            if not known.all():
                self._uninitialised(m, site, cells, who, ~known, actors)
        if self.copies and verb == READ:
            copy = self.under_way.reshape(-1).take(cells)
            if (copy > 0).any():  # not landed; whether its own block knows of one that has, the clocks of blocks tell
                self._missing_wait(m, site, cells, who, copy, copy > 0, verb, actors)
        self.cluster.access(m, site, rows, offsets, mask, width, verb)

    def warp_sync(self, m, masks=None) -> None:
        """The active warps pass a __syncwarp(). masks: [blocks, warps, 32], which lanes each names; None: all of them."""
        if self.bulk is not None:
            self.bulk.warps_met(m)
        if not self.warp_syncs:
            return
        if m.mask is None and self.rows == 1 and (masks is None or (masks == masks[:1]).all()):
            self.clocks.meet(None if masks is None else masks[:1], None)
            return
        self._expand(m)
        self.clocks.meet(masks, None if m.mask is None else m.warps_active())

    def _flatten(self, m, offsets, mask, width):
        """Granules touched: (flat indices, thread + 1 of each, whether each is touched by several threads)."""
        g = self.granule
        span = max(1, width // g)
        if m.varies_by_block(offsets) or (mask is not None and m.varies_by_block(mask)):
            self._expand(m)
            cells = m.rows_of(offsets) // g + (np.arange(m.blocks) * self.count)[:, None]
            who = np.broadcast_to(np.arange(1, m.threads + 1), cells.shape)
            if mask is not None:
                chosen = m.rows_of(mask)
                cells, who = cells[chosen], who[chosen]
            several = False
        else:
            if mask is None and offsets.size < m.threads:
                cells, several = offsets.reshape(-1) // g, True
                who = np.full(cells.shape, self.SEVERAL)
            else:
                cells = m.thread_row(offsets) // g
                who, several = np.arange(1, m.threads + 1), False
                if mask is not None:
                    chosen = m.thread_row(mask)
                    cells, who = cells[chosen], who[chosen]
            if self.rows > 1:
                copies = (np.arange(self.rows) * self.count)[:, None]
                who = np.broadcast_to(who, (self.rows, *who.shape))
                cells = cells + copies
        cells, who = cells.reshape(-1), who.reshape(-1)
        if span > 1:
            cells = (cells[:, None] + np.arange(span)).reshape(-1)
            who = np.repeat(who, span)
        return cells, who.astype(np.int32), several

    def load(self, m, site, offsets, mask, width) -> None:
        """Check a read."""
        if self.cluster is not None:
            self.cluster.own(m, site, offsets, mask, width, READ)
        if self.complete and not site.may_race and not self.copies:
            return
        cells, who, several = self._flatten(m, offsets, mask, width)
        if cells.size:
            self._check_load(m, site, cells, who, several)

    def _check_load(self, m, site, cells, who, several) -> None:
        """`load` of granules (flat indices) by `who` (thread + 1 of each)."""
        if self.copies and self._still_under_way(m, site, cells, who, "reads"):
            return
        if not self.complete:
            known = self.initialised.reshape(-1).take(cells)
            if not known.all():
                self._uninitialised(m, site, cells, who, ~known)
        if not site.may_race or site.strong:
            return
        self.touched = True
        writer = self.writer.reshape(-1)
        last = writer.take(cells)
        conflict = (last != 0) & ((last != who) | (last == self.SEVERAL))
        if conflict.any():
            conflict = self._unordered(m, cells, who, last, conflict, "writer")
            conflict &= ~np.array([other.checks for other in self.sites])[self.writer_site.reshape(-1).take(cells)]
            if conflict.any():
                self._race(m, site, self.writer_site, cells, who, last, conflict, "reads", "writes")
        reader = self.reader.reshape(-1)
        if several:
            reader[cells] = self.SEVERAL
        else:
            before = reader.take(cells)
            other = self.SEVERAL
            if self.warp_syncs:
                # Reads before a barrier of the warp that orders them need not be known any more.
                before = np.where(self._unordered(m, cells, who, before, before != 0, "reader"), before, 0)
                code = -2 - (who - 1) // 32
                other = np.where((before == code) | (-2 - (before - 1) // 32 == code) & (before > 0), code, self.SEVERAL)
            self._note(reader, cells, who, np.where((before == 0) | (before == who), who, other).astype(np.int32))
        if self.many_reads:
            self._note_others(cells, who, site)
        self.reader_site.reshape(-1)[cells] = site.index
        if self.warp_syncs:
            self._stamp(m, "reader_turn", cells, who)

    def store(self, m, site, offsets, mask, width, conflicting=None) -> None:
        """Check a write. conflicting(): did lanes of this access write different values to one place?"""
        if site.strong:
            self.mark_written(m, offsets, mask, width)
            self.atomic(m, site, offsets, mask, width)
            return
        if self.cluster is not None:
            self.cluster.own(m, site, offsets, mask, width, WRITE)
        cells, who, several = self._flatten(m, offsets, mask, width)
        if not cells.size:
            return
        if self.copies:
            self._still_under_way(m, site, cells, who, "writes")
        if self.proxies is not None:
            self.proxies.written(self, m, site, cells, who)
        self._written(cells)
        self.touched = True
        writer, reader = self.writer.reshape(-1), self.reader.reshape(-1)
        for state, sites, verb, turn in (
            (writer, self.writer_site, "writes", "writer"),
            (reader, self.reader_site, "reads", "reader"),
        ):
            last = state.take(cells)
            conflict = self._others(last, who)
            if conflict.any():
                conflict = self._unordered(m, cells, who, last, conflict, turn)
                if conflict.any():
                    self._race(m, site, sites, cells, who, last, conflict, "writes", verb)
        writer[cells] = who
        meets = several or bool((writer.take(cells) != who).any())
        if meets:
            if conflicting is not None and conflicting():
                back = writer.take(cells)
                clash = back != who if not several else np.ones(len(cells), bool)
                self.writer_site.reshape(-1)[cells] = site.index
                self._race(m, site, self.writer_site, cells, who, back, clash, "writes", "writes")
            if not several:
                self._note(writer, cells, who, who)
        self.writer_site.reshape(-1)[cells] = site.index
        if self.warp_syncs:
            self._stamp(m, "writer_turn", cells, who)

    def _note(self, state, cells, who, new) -> None:
        """Set state[cells] = new; where threads of one access differ about a cell, say that they are several."""
        state[cells] = new
        shared = state.take(cells) != new
        if not shared.any():
            return
        if not self.warp_syncs:
            state[cells[shared]] = self.SEVERAL
            return
        undecided = np.iinfo(np.int32).min
        state[cells[shared]] = undecided
        chosen = state.take(cells) == undecided
        cells = cells[chosen]
        warps = np.where(new[chosen] == self.SEVERAL, self.SEVERAL, -2 - (who[chosen] - 1) // 32)
        state[cells] = warps
        state[cells[state.take(cells) != warps]] = self.SEVERAL

    def _note_others(self, cells, who, site) -> None:
        """Threads read: keep where another thread than the last one did."""
        last, other = self.last_reader.reshape(-1), self.other_site.reshape(-1)
        changed = last.take(cells) != who
        if changed.any():
            other[cells[changed]] = self.reader_site.reshape(-1).take(cells[changed])
        last[cells] = who
        met = last.take(cells) != who
        if met.any():
            other[cells[met]] = site.index

    def _written(self, cells) -> None:
        if not self.complete:
            self.initialised.reshape(-1)[cells] = True
            self.complete = bool(self.initialised.all())

    def mark_written(self, m, offsets, mask, width) -> None:
        """The bytes hold something, whoever put it there."""
        self._written(self._flatten(m, offsets, mask, width)[0])

    def start_copy(self, m, site, offsets, mask, width) -> None:
        """An asynchronous copy to these places begins: from now on it may write them."""
        if self.cluster is not None:
            self.cluster.own(m, site, offsets, mask, width, WRITE)
        cells, who, _ = self._flatten(m, offsets, mask, width)
        if cells.size:
            self._start(m, site, cells, who)

    def _start(self, m, site, cells, who) -> None:
        """`start_copy` to granules (flat indices) by `who` (thread + 1 of each)."""
        self._still_under_way(m, site, cells, who, "writes")
        if self.proxies is not None:
            self.proxies.overwritten(self, m, site, cells, who, "starts a copy to")
        self.touched = True
        for name, verb in (("writer", "writes"), ("reader", "reads")):
            last = getattr(self, name).reshape(-1).take(cells)
            conflict = self._others(last, who)
            if conflict.any():
                conflict = self._unordered(m, cells, who, last, conflict, name)
                if conflict.any():
                    self._race(m, site, getattr(self, f"{name}_site"), cells, who, last, conflict, "starts a copy to", verb)
        self.under_way.reshape(-1)[cells] = site.index + 1

    def land(self, m, site, offsets, mask, width) -> None:
        """The copy has landed: its thread has written these places."""
        cells, who, _several = self._flatten(m, offsets, mask, width)
        if not cells.size:
            return
        self.under_way.reshape(-1)[cells] = 0
        if self.proxies is not None:
            self.proxies.written(self, m, site, cells, who, generic=False)
        self._written(cells)
        self.touched = True
        self.writer.reshape(-1)[cells] = who
        self.writer_site.reshape(-1)[cells] = site.index
        if self.warp_syncs:
            self._stamp(m, "writer_turn", cells, who)

    def _still_under_way(self, m, site, cells, who, verb) -> bool:
        copy = self.under_way.reshape(-1).take(cells)
        bad = copy != 0 if self.bulk is None else self.bulk.unseen(copy, cells, who)
        if not bad.any():
            return False
        self._missing_wait(m, site, cells, who, copy, bad, verb)
        return True

    def _missing_wait(self, m, site, cells, who, copy, bad, verb, actors=None) -> None:
        i = int(np.flatnonzero(bad)[0])
        block, thread, offset = self._place(m, cells[i], who[i], None if actors is None else actors[i])
        other = self.sites[int(copy[i]) - 1 if self.bulk is None else self.bulk.site_of(int(copy[i]))]
        m.findings.add(
            "missing-wait",
            site.line,
            f"Thread {thread} {verb} shared memory at offset {offset}{self._name(m, offset)}, where the asynchronous "
            f"copy of line {other.line} has not been waited for.",
            other_line=other.line,
            block=block,
            thread=thread,
            count=int(np.count_nonzero(bad)),
        )

    def atomic(self, m, site, offsets, mask, width) -> None:
        """Check an atomic operation: it races with plain accesses of other threads, not with other atomics."""
        if self.cluster is not None:
            self.cluster.own(m, site, offsets, mask, width, UPDATE)
        cells, who, _several = self._flatten(m, offsets, mask, width)
        if not cells.size:
            return
        if not self.complete:
            known = self.initialised.reshape(-1)
            if not known.take(cells).all():
                self._uninitialised(m, site, cells, who, ~known.take(cells))
                known[cells] = True
        self.touched = True
        atomics = np.array([other.op in ("atom", "red") or other.strong for other in self.sites])
        writer, reader = self.writer.reshape(-1), self.reader.reshape(-1)
        for state, sites, verb, name in (
            (writer, self.writer_site, "writes", "writer"),
            (reader, self.reader_site, "reads", "reader"),
        ):
            last = state.take(cells)
            conflict = (last != 0) & ((last != who) | (last == self.SEVERAL)) & ~atomics[sites.reshape(-1).take(cells)]
            if conflict.any():
                conflict = self._unordered(m, cells, who, last, conflict, name)
                if conflict.any() and not (site.checks and name == "reader"):
                    self._race(m, site, sites, cells, who, last, conflict, "updates", verb)
        before = writer.take(cells)
        writer[cells] = np.where((before == 0) | (before == who), who, self.SEVERAL)
        shared = writer.take(cells) != who
        if shared.any():
            writer[cells[shared]] = self.SEVERAL
        self.writer_site.reshape(-1)[cells] = site.index
        if self.warp_syncs:
            self._stamp(m, "writer_turn", cells, who)

    def _others(self, last, who):
        """Where somebody else was last. A product that a warpgroup has waited for was read by every thread of the warpgroup:
        the product is one operation of all of them, so each of them knows that it has ended."""
        other = (last != 0) & ((last != who) | (last == self.SEVERAL))
        return other & (last != self.WARPGROUP - (who - 1) // 128) if other.any() else other

    def _stamp(self, m, name, cells, who) -> None:
        row = cells // self.count if self.rows > 1 else 0
        getattr(self, name).reshape(-1)[cells] = self.clocks.now(row, np.maximum(who - 1, 0))

    def _unordered(self, m, cells, who, last, conflict, name):
        """Leave out pairs of one warp that a __syncwarp() orders."""
        if not self.warp_syncs:
            return conflict
        mine, theirs = np.maximum(who - 1, 0) // 32, np.where(last > 0, (last - 1) // 32, -2 - last)
        row = cells // self.count if self.rows > 1 else 0
        turn = getattr(self, f"{name}_turn").reshape(-1).take(cells)
        ordered = self.clocks.ordered(row, np.maximum(who - 1, 0), np.where(last > 0, last - 1, -1), turn)
        if m.threads <= 32:
            # Several threads of the only warp are still threads of that warp.
            return conflict & ~ordered
        return conflict & ~(ordered & (mine == theirs) & (who > 0) & (last != self.SEVERAL))

    def _place(self, m, cell, who, actor=None):
        row = int(actor) if actor is not None else int(cell) // self.count if self.rows > 1 else 0
        thread = max(int(who) - 1, 0)
        return m.block_position(row), m.thread_position(thread), int(cell) % self.count * self.granule

    def _uninitialised(self, m, site, cells, who, bad, actors=None):
        i = int(np.flatnonzero(bad)[0])
        block, thread, offset = self._place(m, cells[i], who[i], None if actors is None else actors[i])
        m.findings.add(
            "uninitialized",
            site.line,
            f"A thread reads shared memory at offset {offset}{self._name(m, offset)}, which no thread has written.",
            block=block,
            thread=thread,
            count=int(np.count_nonzero(bad)),
        )

    def _race(self, m, site, sites, cells, who, last, conflict, verb, other_verb):
        i = int(np.flatnonzero(conflict)[0])
        block, thread, offset = self._place(m, cells[i], who[i])
        if sites is self.reader_site and self.many_reads and last[i] < 0 and self.last_reader.reshape(-1)[cells[i]] == who[i]:
            sites = self.other_site
        other = self.sites[int(sites.reshape(-1)[cells[i]])]
        rival = "another thread" if last[i] <= 0 or last[i] == who[i] else f"thread {m.thread_position(int(last[i]) - 1)}"
        where = "the same line" if other.line == site.line else f"line {other.line}"
        m.findings.add(
            "race",
            site.line,
            f"Thread {thread} {verb} shared memory at offset {offset}{self._name(m, offset)}, "
            f"which {rival} {other_verb} at {where} "
            "with no barrier between.",
            other_line=other.line,
            block=block,
            thread=thread,
            count=int(np.count_nonzero(conflict)),
        )

    def _name(self, m, offset) -> str:
        for name, base, nbytes in m.program.shared:
            if base <= offset and (offset < base + nbytes or nbytes == 0):
                return f" ({plain_name(name)})"
        return ""


def plain_name(symbol: str) -> str:
    """The variable's name inside a mangled symbol: `_ZZ4gemmE2As` -> As, `_ZN2ns4smemE` -> smem."""
    if symbol.startswith("_ZZ") and "E" in symbol:  # a local name stands behind its function
        rest = symbol[symbol.rfind("E") + 1 :]
    elif symbol.startswith("_ZN"):
        rest = symbol[3:]
    else:
        return symbol
    name = rest
    while length := re.match(r"\d+", rest):
        name = rest[length.end() :][: int(length[0])]
        rest = rest[length.end() + len(name) :]
    return name or symbol


# --- per-thread memory -----------------------------------------------------------------------------------------------


class ThreadMemory:
    """Local memory or the parameter frame of a chunk: words of 32 bits, one array of lanes each.

    A word at a fixed address is kept like a register (an array that broadcasts). The first access through a computed
    address turns all words into one dense array [words, lanes…].
    """

    def __init__(self, m, nbytes: int, space: str):
        self.space = space
        self.count = -(-nbytes // 4)
        self.words: list[np.ndarray] | None = [m.zero] * self.count
        self.dense: np.ndarray | None = None

    def part(self, pick) -> ThreadMemory:
        """The memory of some lanes; `pick` cuts an array of lanes."""
        other = object.__new__(ThreadMemory)
        other.space, other.count = self.space, self.count
        other.words = None if self.words is None else [pick(word) for word in self.words]
        other.dense = None if self.dense is None else np.stack([pick(word) for word in self.dense]) if self.count else self.dense
        return other

    def _densify(self, m) -> None:
        if self.dense is None:
            self.dense = np.zeros((self.count, *m.shape), np.uint32)
            for i, word in enumerate(self.words):
                self.dense[i] = word
            self.words = None

    def _word(self, i: int) -> np.ndarray:
        return self.words[i] if self.dense is None else self.dense[i].copy()

    def _set_word(self, m, i: int, value, mask) -> None:
        if self.dense is None:
            self.words[i] = value if mask is None else np.where(mask, value, self.words[i])
        elif mask is None:
            self.dense[i] = value
        else:
            np.copyto(self.dense[i], np.broadcast_to(value, m.shape), where=np.broadcast_to(mask, m.shape))

    def locate(self, m, site, offsets: np.ndarray, width: int):
        """(safe offsets, mask), like DeviceMemory.locate."""
        low, high = int(_least(offsets, axis=None)), int(_most(offsets, axis=None))
        if low >= 0 and high + width <= 4 * self.count and not int(_any_bit(offsets, axis=None)) & (min(width, 16) - 1):
            return offsets, m.mask
        active = m.project(m.mask, offsets.shape)
        if active is not None:
            offsets = np.where(active, offsets, 0)
        inside = (offsets >= 0) & (offsets + width <= 4 * self.count)
        if not inside.all():
            block, thread, offset, count = m.example(~inside, offsets)
            verb = "reads" if site.op == "ld" else "writes"
            m.findings.add(
                "out-of-bounds",
                site.line,
                f"A thread {verb} {width} bytes at offset {offset} of its {self.space} memory of {4 * self.count} bytes.",
                block=block,
                thread=thread,
                count=count,
                advice="An index into an array inside the kernel is too large or negative.",
            )
        straight = (offsets & (width - 1)) == 0
        good = inside & straight
        if good.all():
            return offsets, m.mask
        mask = good if m.mask is None else good & m.mask
        return np.where(good, offsets, 0), mask

    def load(self, m, offsets: np.ndarray, width: int) -> np.ndarray:
        """`width` (1, 2, 4 or 8) bytes of each lane, as an unsigned integer."""
        if offsets.size == 1:
            return self._load_at(offsets.item(), width)
        self._densify(m)
        index = np.broadcast_to((offsets >> 2) * m.lanes, m.shape) + m.lane_index
        flat = self.dense.reshape(-1)
        low = flat.take(index)
        if width == 8:
            return low.astype(np.uint64) | (flat.take(index + m.lanes).astype(np.uint64) << np.uint64(32))
        if width == 4:
            return low
        return (low >> ((offsets & 3) * 8).astype(np.uint32)).astype(RAW[width])

    def _load_at(self, at: int, width: int):
        word = self._word(at >> 2)
        if width == 8:
            return word.astype(np.uint64) | (self._word((at >> 2) + 1).astype(np.uint64) << np.uint64(32))
        if width == 4:
            return word
        return (word >> np.uint32((at & 3) * 8)).astype(RAW[width])

    def store(self, m, offsets: np.ndarray, value: np.ndarray, width: int, mask) -> None:
        """Write an unsigned integer of `width` bytes per lane."""
        if offsets.size == 1:
            at = offsets.item()
            if width == 8:
                self._set_word(m, at >> 2, value.astype(np.uint32), mask)
                self._set_word(m, (at >> 2) + 1, (value >> np.uint64(32)).astype(np.uint32), mask)
            elif width == 4:
                self._set_word(m, at >> 2, value, mask)
            else:
                shift = np.uint32((at & 3) * 8)
                ones = np.uint32((1 << 8 * width) - 1) << shift
                old = self._word(at >> 2)
                self._set_word(m, at >> 2, (old & ~ones) | (value.astype(np.uint32) << shift), mask)
            return
        self._densify(m)
        index = np.broadcast_to((offsets >> 2) * m.lanes, m.shape) + m.lane_index
        flat = self.dense.reshape(-1)
        value = np.broadcast_to(value, m.shape)
        if width == 8:
            self._scatter(m, flat, index, value.astype(np.uint32), mask)
            self._scatter(m, flat, index + m.lanes, (value >> np.uint64(32)).astype(np.uint32), mask)
        elif width == 4:
            self._scatter(m, flat, index, value, mask)
        else:
            shift = ((offsets & 3) * 8).astype(np.uint32)
            ones = np.uint32((1 << 8 * width) - 1) << shift
            old = flat.take(index)
            self._scatter(m, flat, index, (old & ~ones) | (value.astype(np.uint32) << shift), mask)

    @staticmethod
    def _scatter(m, flat, index, value, mask) -> None:
        if mask is None:
            flat[index] = value
        else:
            mask = np.broadcast_to(mask, m.shape)
            flat[index[mask]] = np.broadcast_to(value, m.shape)[mask]
