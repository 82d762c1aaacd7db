"""The granules of device memory that a launch's checks keep something about: those of the arrays that it writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from helpers.sim.code.addresses import DEVICE_BASE

from .accesses import DeviceAccess
from .device_arrays import ANY, arrays_of

if TYPE_CHECKING:
    from .protocols import Machine

MOST_THREADS = (1 << 30) - 2


class TouchedDevice(NamedTuple):
    """cells: granules. who: number of each's thread in the grid + 1. pick: takes the same elements out of an array of lanes."""

    cells: np.ndarray
    who: np.ndarray
    pick: Callable[[np.ndarray], np.ndarray]


class DevicePlaces:
    """Which accesses are watched, and the granules of what they touch.

    memory: has the allocated ranges [starts, ends), the allocations and the arguments. unwritten: names of arguments whose
    contents count as never written; here their ranges.
    """

    def __init__(self, program, memory, param_words: dict[int, int], grid, block, unwritten=frozenset()):
        self.program, self.memory, self.param_words = program, memory, param_words
        self.threads = block[0] * block[1] * block[2]
        self.blocks = grid[0] * grid[1] * grid[2]
        self.unwritten = [
            (argument.base, argument.base + argument.array.nbytes)
            for argument in memory.arguments
            if argument.name in unwritten and argument.array.nbytes
        ]
        self.empty = {argument.base for argument in memory.arguments if not argument.array.nbytes}
        self.origins = arrays_of(program)
        spans = self._spans()
        self.starts = np.array([start for start, _ in spans], np.int64)
        self.ends = np.array([end for _, end in spans], np.int64)
        self.watches = [bool(spans) and self._may_touch(site) for site in program.sites]
        widths = [site.width for site, watched in zip(program.sites, self.watches, strict=True) if watched]
        self.granule = min([4, *(width & -width for width in widths)])
        first, self.first = 0, []
        for start, end in spans:
            self.first.append(first - start // self.granule)
            first += -(-(end - start) // self.granule) + 1
        self.first = np.array(self.first, np.int64)
        self.count = first

    def _spans(self) -> list[tuple[int, int]]:
        """The arrays to watch, as ranges of offsets; arrays that overlap are one."""
        memory = self.memory
        chosen: set[int] = set()
        for site in self.program.sites:
            if site.op.changes and site.index in self.origins:
                chosen |= self._places(site)
        chosen |= {self._span_of(start) for start, _ in self.unwritten}
        return [(int(memory.starts[i]), int(memory.ends[i])) for i in sorted(chosen)]

    def _span_of(self, offset: int) -> int | None:
        i = int(np.searchsorted(self.memory.starts, offset, side="right")) - 1
        return i if i >= 0 and offset < self.memory.ends[i] else None

    def _places(self, site) -> set[int]:
        """Indices of the allocated ranges that an access may touch: all, if it is not known of which array it is; none of an empty one."""
        found, of_empty = set(), False
        for origin in self.origins[site.index]:
            address = origin
            if 0 <= origin < DEVICE_BASE:
                words = [self.param_words.get(origin // 4 + i, 0) for i in (0, 1)]
                address = words[0] | words[1] << 32
            if origin != ANY:
                found.add(self._span_of(address - DEVICE_BASE))
                of_empty |= address - DEVICE_BASE in self.empty
        found.discard(None)
        return found if found or of_empty else set(range(len(self.memory.starts)))

    def _may_touch(self, site) -> bool:
        if site.index not in self.origins:
            return False
        watched = set(self.starts.tolist())
        return any(int(self.memory.starts[i]) in watched for i in self._places(site))

    @property
    def needed(self) -> bool:
        """Is there anything to watch?"""
        return any(self.watches) and self.blocks * self.threads <= MOST_THREADS

    @property
    def reach(self) -> int:
        """Granules from the beginning of the first array that is watched to the end of the last."""
        return int(self.ends[-1] - self.starts[0]) // self.granule + 1

    def meet(self, owners: list[np.ndarray]) -> bool:
        """Do threads of several workers meet? owners: each worker's words (see `native/device_owners.py`), `reach` of them."""
        for start, end in zip(self.starts, self.ends, strict=True):
            first, last = (int(place - self.starts[0]) // self.granule for place in (start, end))
            union = owners[0][first:last]
            for words in (words[first:last] for words in owners[1:]):
                if ((union != 0) & (words != 0) & ((union | words) & 1 == 1)).any():
                    return True
                union = union | words
        return False

    def cell_of(self, offset: int) -> int:
        """The granule at an offset inside an array that is watched."""
        return offset // self.granule + int(self.first[np.searchsorted(self.starts, offset, side="right") - 1])

    def touched(self, m: Machine, access: DeviceAccess) -> TouchedDevice:
        """What an access touches of the arrays that are watched."""
        if access.found is None:
            access.found = self._find(m, access)
        return access.found

    def _find(self, m: Machine, access: DeviceAccess) -> TouchedDevice:
        def whole(array):
            return array if array.shape == m.shape else np.broadcast_to(array, m.shape)

        offsets = whole(access.offsets)
        chosen = None if access.mask is None else whole(access.mask)
        where = np.searchsorted(self.starts, offsets, side="right") - 1
        inside = (where >= 0) & (offsets < self.ends[where])
        chosen = inside if chosen is None else inside & chosen
        span = max(1, access.width // self.granule)
        cells = (offsets // self.granule + self.first[where])[chosen]
        who = whole(m.thread_numbers)[chosen]

        def pick(values):
            values = whole(values)[chosen]
            return np.repeat(values, span) if span > 1 else values

        if span > 1:
            cells = (cells[:, None] + np.arange(span)).reshape(-1)
            who = np.repeat(who, span)
        return TouchedDevice(cells, who, pick)

    # ---------------------------------------------------------------------------------------------- for messages

    def thread(self, m: Machine, number: int):
        """(block, thread) of a thread by its number in the grid + 1."""
        number = int(number) - 1
        gx, gy, _ = m.grid
        block = number // self.threads
        return (block % gx, block // gx % gy, block // (gx * gy)), m.thread_position(number % self.threads)

    def element(self, cell: int) -> str:
        """'C[3, 4]', or what else lies at a granule."""
        i = int(np.searchsorted(self.first + self.starts // self.granule, cell, side="right")) - 1
        address = DEVICE_BASE + (int(cell) - int(self.first[i])) * self.granule
        for allocation in self.memory.allocations:
            index = (address - allocation.base) // allocation.itemsize
            if allocation.base <= address < allocation.base + allocation.nbytes:
                place = np.unravel_index(index, allocation.shape) if allocation.shape else (index,)
                return f"{allocation.name}[{', '.join(str(int(p)) for p in place)}]"
        return f"device memory at {address:#x}"
