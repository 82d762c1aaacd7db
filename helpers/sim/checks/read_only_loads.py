"""Read-only loads (ld.global.nc) of what the same launch has written.

`__ldg()`, and any load through a `const … __restrict__` pointer, may take what a cache holds that does not hear of writes: the PTX
manual wants the memory to stay as it is for as long as the kernel runs. What is read before it is written is not told (an array that
is changed in place), nor is a write that leaves memory as it was.
"""

from __future__ import annotations

import numpy as np

from .accesses import BulkDeviceAccess, DeviceAccess
from .device_arrays import ANY
from .observer import DeviceCheck
from .protocols import Machine
from .shared_cells import first, line_of

ADVICE = (
    "Read what the kernel itself writes without __ldg(), through a pointer that is not `const … __restrict__`; a barrier does not help, "
    "because the cache that such loads use does not hear of writes."
)


class ReadOnlyLoads(DeviceCheck):
    """writer, at: per granule, the last thread that changed it (its number in the grid + 1; 0: nobody), and by which site."""

    order = 40

    def __init__(self, launch):
        super().__init__(launch)
        self.writer, self.at = (np.zeros(self.places.count, np.int32) for _ in range(2))

    @classmethod
    def wanted(cls, launch) -> bool:
        """Is there such a load, of an array that the launch writes? Where it is not known of which array it is, nothing is told."""
        places = launch.device
        if places is None:
            return False
        written = set().union(*(places.arrays(site) for site in launch.program.sites if site.op.changes and site.index in places.origins))
        return any(
            site.read_only and places.watches[site.index] and ANY not in places.origins[site.index] and places.arrays(site) & written
            for site in launch.program.sites
        )

    def before_device_write(self, m: Machine, access: DeviceAccess, held):
        return held()

    def device_write(self, m: Machine, access: DeviceAccess) -> None:
        cells, who, pick = self.places.touched(m, access)
        if access.changes is not None and cells.size:
            changed = pick(access.changes())
            cells, who = cells[changed], who[changed]
        self.writer[cells], self.at[cells] = who, access.site.index

    device_update = device_write

    def device_copy_writes(self, m: Machine, access: BulkDeviceAccess) -> None:
        self.device_write(m, access)

    def device_read(self, m: Machine, access: DeviceAccess) -> None:
        if not access.site.read_only:
            return
        cells, who, _ = self.places.touched(m, access)
        bad = self.writer.take(cells) != 0
        if not bad.any():
            return
        i = first(bad)
        cell = int(cells[i])
        other = self.launch.program.sites[int(self.at[cell])]
        block, thread = self.places.thread(m, who[i])
        other_block, other_thread = self.places.thread(m, self.writer[cell])
        m.findings.add(
            "race", access.site.line,
            f"Thread {thread} of block {block} reads {self.places.element(cell)} by a read-only load (ld.global.nc), and thread "
            f"{other_thread} of block {other_block} has written it at {line_of(access.site, other)}: it may get what was there before.",
            other_line=other.line, block=block, thread=thread, advice=ADVICE, count=int(np.count_nonzero(bad)),
        )  # fmt: skip
