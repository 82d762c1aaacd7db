"""The machine's memories: device (global, constant), shared, and per-thread (local, parameters).

Nothing here is a host pointer. Arrays are copied into an arena with guard space around each, every access is checked
against what was allocated, and they are copied back only when the kernel has ended. Memory only holds bytes: what is
suspicious about an access is told by `sim.checks`.

Addresses arrive as int64 arrays that broadcast to the lanes; a value that is the same for many lanes is checked once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from helpers.errors import RunError
from helpers.sim.checks import misaligned, out_of_bounds
from helpers.sim.code.addresses import ALIGN, DEVICE_BASE, phase
from helpers.sim.code.program import Image
from helpers.sim.code.sites import Site

from .trace import Allocation

if TYPE_CHECKING:
    from .chunk import Chunk

LEAST_GUARD = 1 << 20
WIDEST = 32  # bytes per thread of the widest access
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


class FarRows(np.ndarray):
    """A matrix [rows, leading dimension], of whose rows only the first `width` elements were ever touched, and only these are copied: it
    may be larger than this computer's memory."""

    width = 0

    def __array_finalize__(self, other):
        self.width = getattr(other, "width", 0)


def far_rows(rows: int, row: int, width: int, dtype: Any) -> FarRows:
    """Zeros [rows, row]. Raises MemoryError where this computer has no room for so many addresses."""
    matrix = _untouched(rows * row * np.dtype(dtype).itemsize).view(dtype).reshape(rows, row).view(FarRows)
    matrix.width = width
    return matrix


def _untouched(nbytes: int) -> np.ndarray:
    """Zeros that take memory, in small pages, only where they are touched. Raises MemoryError where there is no room for the addresses."""
    if sys.platform == "win32":
        return np.zeros(nbytes, np.uint8)
    import mmap  # here: where the machine runs in a page there may be none

    try:
        # Linux counts it as taken at once without the flag, which mmap has no name for before Python 3.13.
        area = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (0x4000 if sys.platform == "linux" else 0))
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            area.madvise(mmap.MADV_NOHUGEPAGE)
    except (OSError, ValueError, OverflowError):
        raise MemoryError from None
    return np.frombuffer(area, np.uint8)


class DeviceMemory:
    """Global and constant memory of one launch. Offsets count from DEVICE_BASE. image: what the program's variables hold, by default as
    they are declared."""

    def __init__(self, program, arrays: Sequence[tuple[str, np.ndarray]], image: Image | None = None):
        self.image = image = image or program.image
        spans = [(base - DEVICE_BASE, nbytes, name) for name, base, nbytes, _ in program.device]
        self.allocations = [Allocation(name, space, base, nbytes, (nbytes,), 1, "uint8") for name, base, nbytes, space in program.device]
        self.arguments: list[Argument] = []
        top = max(len(image.data), ALIGN)
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
            far = any(isinstance(argument.array, FarRows) for argument in self.arguments)
            self.bytes = _untouched(self.size) if far else np.zeros(self.size, np.uint8)
        except MemoryError:
            raise RunError(f"The arrays need {self.size >> 20} MB in the machine, more than this computer has free.") from None
        self.views = _views(self.bytes)
        self.bytes[: len(image.data)] = np.frombuffer(image.data, np.uint8)
        for position, width, address in image.addresses:
            self.bytes[position : position + width] = np.frombuffer(address.to_bytes(8, "little")[:width], np.uint8)
        for argument in self.arguments:
            self._part(argument)[...] = _touched(argument.array)
        merged = _merge(spans)
        self.starts = np.array([start for start, _ in merged] or [0], np.int64)
        self.ends = np.array([end for _, end in merged] or [0], np.int64)
        self.low = [1] * len(program.sites)  # bounds that the last access of each site was inside of
        self.high = [0] * len(program.sites)

    def anew(self, program) -> DeviceMemory:
        """The same as it was when the launch began."""
        return DeviceMemory(program, [(argument.name, argument.array) for argument in self.arguments], self.image)

    def base_of(self, array: np.ndarray) -> int:
        """The machine's address of an argument array."""
        return next(DEVICE_BASE + a.base for a in self.arguments if a.array is array)

    def _rest_of(self, name: str) -> tuple[int, int]:
        """Bytes before and behind an argument in the array that it is a part of; 0 and 0 if it is none."""
        part = root = next((argument.array for argument in self.arguments if argument.name == name), np.empty(0))
        while isinstance(root.base, np.ndarray):
            root = root.base
        (low, high), (first, last) = _bounds(part), _bounds(root)
        return max(0, low - first), max(0, last - high)

    def copy_back(self) -> None:
        """Give the results to the host arrays."""
        for argument in self.arguments:
            if argument.array.flags.writeable and argument.array.nbytes:
                _touched(argument.array)[...] = self._part(argument)

    def _part(self, argument: Argument) -> np.ndarray:
        """The bytes of an argument, shaped as `_touched` shapes its array."""
        array = argument.array
        part = self.bytes[argument.base : argument.base + array.nbytes]
        return part.reshape(len(array), -1)[:, : array.width * array.itemsize] if isinstance(array, FarRows) else part

    def locate(self, m: Chunk, site: Site, addresses: np.ndarray, width: int):
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
        if low >= self.low[i] and high <= self.high[i] - width and not bits & (width - 1):
            return offsets, m.mask
        return self._check(m, site, offsets, width)

    def _check(self, m: Chunk, site: Site, offsets: np.ndarray, width: int):
        active = m.project(m.mask, offsets.shape)
        if active is not None:
            # Lanes that take no part may hold anything: give them an address that some lane really uses.
            used = np.broadcast_to(active, np.broadcast_shapes(active.shape, offsets.shape))
            wide = np.broadcast_to(offsets, used.shape)
            if not used.any():
                return np.zeros_like(offsets), m.mask
            offsets = np.where(used, wide, wide[used].flat[0])
        where = np.searchsorted(self.starts, offsets, side="right") - 1
        inside = (where >= 0) & (offsets <= self.ends[where] - width)
        straight = (offsets & (width - 1)) == 0
        good = inside & straight
        if good.all():
            first = int(where.flat[0])
            if (where == first).all():
                self.low[site.index], self.high[site.index] = int(self.starts[first]), int(self.ends[first])
            return offsets, m.mask
        if not inside.all():
            out_of_bounds.in_device_memory(m, site, self.allocations, offsets, width, ~inside, self._rest_of)
        if not (straight | ~inside).all():
            misaligned.in_device_memory(m, site, self.allocations, offsets, width, inside & ~straight)
        fallback = offsets[good].flat[0] if good.any() else 0
        mask = good if m.mask is None else good & m.mask
        return np.where(good, offsets, fallback), mask


def _touched(array: np.ndarray) -> np.ndarray:
    """The bytes of an array, flat; of far rows [rows, bytes] of what was touched."""
    if isinstance(array, FarRows):
        return array.view(np.ndarray).view(np.uint8)[:, : array.width * array.itemsize]
    return array.reshape(-1).view(np.uint8)


def _views(memory: np.ndarray) -> dict[np.dtype, np.ndarray]:
    """The same bytes as elements of every type that is moved."""
    kinds = (np.int8, np.int16, np.int32, np.int64, np.float16, np.float32, np.float64)
    return {dtype: memory.view(dtype) for dtype in (*RAW.values(), *map(np.dtype, kinds))}


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
    """[blocks, bytes] of a chunk, flat. Offsets within a block are shared addresses: what the system reserves is the
    first part of each row, which no thread may use. size: bytes from `start` to `end`."""

    def __init__(self, m: Chunk, start: int, size: int):
        stride = max(16, -(-(start + size) // 16) * 16)
        self._hold(m, start, size, stride, np.zeros(m.blocks * stride, np.uint8))

    def _hold(self, m: Chunk, start: int, size: int, stride: int, memory: np.ndarray) -> None:
        self.start, self.size, self.end = start, size, start + size
        self.stride, self.bytes, self.views = stride, memory, _views(memory)
        self.bases = {width: m.block_index * (stride // width) for width in RAW}

    def part(self, m: Chunk, rows: np.ndarray) -> SharedMemory:
        """The shared memory of some of the blocks (their rows), for the part `m` of a divided chunk."""
        other = SharedMemory.__new__(SharedMemory)
        other._hold(m, self.start, self.size, self.stride, self.bytes.reshape(-1, self.stride)[rows].reshape(-1).copy())
        return other

    def locate(self, m: Chunk, site: Site, offsets: np.ndarray, width: int):
        """(safe offsets, mask), like DeviceMemory.locate."""
        if offsets.size == 1:
            low = high = bits = offsets.item()
        else:
            low, high = int(_least(offsets, axis=None)), int(_most(offsets, axis=None))
            bits = int(_any_bit(offsets, axis=None)) if width > 1 else 0
        if low >= self.start and high <= self.end - width and not bits & (width - 1):
            return offsets, m.mask
        active = m.project(m.mask, offsets.shape)
        if active is not None:
            offsets = np.where(active, offsets, self.start)
        inside = (offsets >= self.start) & (offsets <= self.end - width)
        straight = (offsets & (width - 1)) == 0
        if not inside.all():
            out_of_bounds.in_shared_memory(m, site, offsets, width, ~inside)
        if not (straight | ~inside).all():
            misaligned.in_shared_memory(m, site, offsets, width, inside & ~straight)
        good = inside & straight
        if good.all():
            return offsets, m.mask
        mask = good if m.mask is None else good & m.mask
        return np.where(good, offsets, 0), mask


# --- per-thread memory -----------------------------------------------------------------------------------------------


class ThreadMemory:
    """Local memory or the parameter frame of a chunk: words of 32 bits, one array of lanes each.

    A word at a fixed address is kept like a register (an array that broadcasts). The first access through a computed
    address turns all words into one dense array [words, lanes…]. unwritten: the bits begin as those of registers that nobody has
    written, all set.
    """

    def __init__(self, m: Chunk, nbytes: int, space: str, unwritten: bool = False):
        self.space = space
        self.count = -(-nbytes // 4)
        # A refused access goes to offset 0 instead, so there is always room for the widest.
        self.words: list[np.ndarray] | None = [m.uniform(0xFFFFFFFF, np.uint32) if unwritten else m.zero] * max(self.count, WIDEST // 4)
        self.dense: np.ndarray | None = None

    def part(self, pick) -> ThreadMemory:
        """The memory of some lanes; `pick` cuts an array of lanes."""
        other = ThreadMemory.__new__(ThreadMemory)
        other.space, other.count = self.space, self.count
        other.words = None if self.words is None else [pick(word) for word in self.words]
        other.dense = None if self.dense is None else np.stack([pick(word) for word in self.dense])
        return other

    def _densify(self, m) -> None:
        if self.dense is None:
            self.dense = np.zeros((len(self.words), *m.shape), np.uint32)
            for i, word in enumerate(self.words):
                self.dense[i] = word
            self.words = None

    def _word(self, i: int) -> np.ndarray:
        return self.words[i] if self.dense is None else self.dense[i].copy()

    def _set_word(self, m: Chunk, i: int, value, mask) -> None:
        if self.dense is None:
            self.words[i] = value if mask is None else np.where(mask, value, self.words[i])
        elif mask is None:
            self.dense[i] = value
        else:
            np.copyto(self.dense[i], np.broadcast_to(value, m.shape), where=np.broadcast_to(mask, m.shape))

    def locate(self, m: Chunk, site: Site, offsets: np.ndarray, width: int, unit: int):
        """(safe offsets, mask), like DeviceMemory.locate. unit: bytes of an element, which lies at a multiple of that."""
        low, high = int(_least(offsets, axis=None)), int(_most(offsets, axis=None))
        if low >= 0 and high <= 4 * self.count - width and not int(_any_bit(offsets, axis=None)) & (unit - 1):
            return offsets, m.mask
        active = m.project(m.mask, offsets.shape)
        if active is not None:
            offsets = np.where(active, offsets, 0)
        inside = (offsets >= 0) & (offsets <= 4 * self.count - width)
        if not inside.all():
            out_of_bounds.in_thread_memory(m, site, self.space, 4 * self.count, offsets, width, ~inside)
        straight = (offsets & (unit - 1)) == 0
        good = inside & straight
        if good.all():
            return offsets, m.mask
        mask = good if m.mask is None else good & m.mask
        return np.where(good, offsets, 0), mask

    def load(self, m: Chunk, offsets: np.ndarray, width: int) -> np.ndarray:
        """`width` (1, 2, 4 or 8) bytes of each lane, as an unsigned integer."""
        if offsets.size == 1:
            return self._load_at(offsets.item(), width)
        self._densify(m)
        index = (np.broadcast_to((offsets >> 2) * m.lanes, m.shape) + m.lane_index).astype(np.intp, copy=False)
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

    def store(self, m: Chunk, offsets: np.ndarray, value: np.ndarray, width: int, mask) -> None:
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
        index = (np.broadcast_to((offsets >> 2) * m.lanes, m.shape) + m.lane_index).astype(np.intp, copy=False)
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


def scatter(flat, index, values, mask):
    """flat[index + k] = values[k] for the lanes in mask (None: all). Of lanes that share a place, the last one wins."""
    for k, value in enumerate(values):
        place = flat[k:] if k else flat
        if mask is None:
            if value.size > 1 and value.shape != index.shape:
                shape = np.broadcast_shapes(index.shape, value.shape)
                place[np.broadcast_to(index, shape)] = value
            else:
                place[index] = value
            continue
        shape = np.broadcast_shapes(index.shape, value.shape, mask.shape)
        chosen = np.broadcast_to(mask, shape)
        place[np.broadcast_to(index, shape)[chosen]] = np.broadcast_to(value, shape)[chosen]
