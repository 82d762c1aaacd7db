"""The granules of device memory that a launch's checks keep something about: those of the arrays that it writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from helpers.sim.code.addresses import DEVICE_BASE, PARAM_WINDOW, WINDOW_BYTES
from helpers.sim.code.sites import AccessKind

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

    maps: {generic address of a tensor map: address of what it describes}.
    memory: has the allocated ranges [starts, ends), the allocations and the arguments. unwritten: names of arguments whose
    contents count as never written; here their ranges.
    """

    def __init__(
        self, program, memory, param_words: dict[int, int], grid, block, unwritten=frozenset(), maps: Mapping[int, int] | None = None
    ):
        self.maps = {} if maps is None else maps
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
        self._known: dict[tuple[frozenset[int], bool], set[int]] = {}  # what `_places` has found
        spans = self._spans()
        self.starts = np.array([start for start, _ in spans], np.int64)
        self.ends = np.array([end for _, end in spans], np.int64)
        watched = {self._span_of(start) for start, _ in spans}
        self.watches = [site.index in self.origins and not watched.isdisjoint(self.arrays(site)) for site in program.sites]
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
            if (site.op.changes or site.op is AccessKind.BULK_STORE) and site.index in self.origins:
                chosen |= self.arrays(site)
        chosen |= {self._span_of(start) for start, _ in self.unwritten}
        return [(int(memory.starts[i]), int(memory.ends[i])) for i in sorted(chosen)]

    def _span_of(self, offset: int) -> int | None:
        i = int(np.searchsorted(self.memory.starts, offset, side="right")) - 1
        return i if i >= 0 and offset < self.memory.ends[i] else None

    def arrays(self, site) -> set[int]:
        """Indices of the allocated ranges that an access may touch: all, if it is not known of which array it is; none of an empty one."""
        origins = self.origins[site.index]
        found = self._known.get((origins, site.mapped))
        if found is None:
            found = self._known[origins, site.mapped] = self._mapped(origins) if site.mapped else self._pointed(origins)
        return found

    def variables(self, site) -> set[int]:
        """What an access may touch, to compare with what others may: as `arrays`, but the program's own variables by their addresses;
        ANY where it is not known."""
        own = {origin for origin in self.origins[site.index] if origin >= DEVICE_BASE}
        if own and own == self.origins[site.index]:
            return own
        return self.arrays(site) | own | (self.origins[site.index] & {ANY})

    def _pointed(self, origins: frozenset[int]) -> set[int]:
        found, of_empty = set(), False
        for origin in origins:
            address = self._address(origin)
            if origin != ANY:
                found.add(self._span_of(address - DEVICE_BASE))
                of_empty |= address - DEVICE_BASE in self.empty
        found.discard(None)
        return found if found or of_empty else set(range(len(self.memory.starts)))

    def _mapped(self, origins: frozenset[int]) -> set[int]:
        """The same of what tensor maps describe that lie in a parameter, or in the array that a parameter points into."""
        found: set[int | None] = set()
        for origin in origins:
            if in_parameters := PARAM_WINDOW <= origin < PARAM_WINDOW + WINDOW_BYTES:
                start, end = next((origin, origin + v.nbytes) for v, at in self.program.parameters if at == origin - PARAM_WINDOW)
            else:
                span = None if origin == ANY else self._span_of(self._address(origin) - DEVICE_BASE)
                start, end = (0, 0) if span is None else (DEVICE_BASE + int(side[span]) for side in (self.memory.starts, self.memory.ends))
            described = [tensor for place, tensor in self.maps.items() if start <= place < end]
            if not described and not in_parameters:  # made by the kernel, or nobody knows where
                return set(range(len(self.memory.starts)))
            found.update(self._span_of(tensor - DEVICE_BASE) for tensor in described)
        return {span for span in found if span is not None} if origins else set(range(len(self.memory.starts)))

    def _address(self, origin: int) -> int:
        """What a parameter holds, or the fixed address that an origin is."""
        if not 0 <= origin < DEVICE_BASE:
            return origin
        return self.param_words.get(origin // 4, 0) | self.param_words.get(origin // 4 + 1, 0) << 32

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
        offsets, chosen, who = access.laid_out(m)

        def whole(array):
            return array if array.shape == offsets.shape else np.broadcast_to(array, offsets.shape)

        where = np.searchsorted(self.starts, offsets, side="right") - 1
        inside = (where >= 0) & (offsets < self.ends[where])
        chosen = inside if chosen is None else inside & chosen
        span = max(1, access.width // self.granule)
        cells = (offsets // self.granule + self.first[where])[chosen]
        who = who[chosen]

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
