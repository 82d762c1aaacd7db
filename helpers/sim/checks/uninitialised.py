"""Reads of memory that nobody has written: shared memory, and arrays whose contents the host does not give.

A plain load from shared memory is no mistake in itself: a copy of a struct takes its padding along, and of a vector a thread may
use a part. So the first such load ends the launch with `Unclear`, and it is run again with the undefined bits followed from the
loads on (`machine.undefined`), which is told where something comes of them (`unwritten`). Atomics, and what tensor cores and bulk
copies read, are told at once.
"""

from __future__ import annotations

import numpy as np

from helpers.sim.code.sites import AccessKind

from . import unwritten
from .accesses import Access, BulkDeviceAccess, DeviceAccess
from .findings import Unclear, for_block
from .observer import DeviceCheck, SharedCheck
from .protocols import Machine
from .shared_cells import SharedCells, first

ADVISED = {"uninitialized": "Write the tile before reading it, and put __syncthreads() between. If it is written, the index misses it."}
FILLED = "Fill all of the tile first: by threads, a fence (fence.proxy.async) and a barrier, or by copies whose mbarrier is waited for."
WRITE_FIRST = "Write the element first; a GEMM with beta = 0 must not read C."
WORD = 16  # bytes: the largest alignment of an ordinary type; what fills up a struct lies in such a word with one of its members


class UninitialisedShared(SharedCheck):
    """known, per granule: has anybody written it? complete: all of it has been."""

    order = 20
    watched_natively = True
    arrays = ("known",)

    def __init__(self, m: Machine, launch, cells: SharedCells):
        super().__init__(m, launch, cells)
        self.known = np.zeros((1, cells.count), bool)
        self.complete = False

    def read(self, m: Machine, access: Access) -> None:
        self._look(m, access, "which no thread has written")

    def matrix_read(self, m: Machine, access: Access) -> None:
        self._look(m, access, "which no thread has written and no copy has filled", FILLED)

    def _look(self, m: Machine, access: Access, lacking: str, advice: str = ADVISED["uninitialized"]) -> None:
        if self.complete:
            return
        touched = access.touched(m, self.cells)
        bad = ~self.known.reshape(-1).take(touched.cells)
        if bad.any():
            carried = unwritten.is_carried(m, access.site)
            if carried and not m.program.doubts.followed:
                raise Unclear("it reads shared memory that nobody has written")
            per = max(1, WORD // self.cells.granule)
            whole = ~self.known.reshape(-1, per).any(axis=1)[touched.cells // per] & bad
            block, thread, offset = self.cells.place(m, touched, first(bad))
            read = unwritten.Read(f"A thread reads {self.cells.at(offset)}, {lacking}.", block, thread, for_block(m, advice))
            if carried:
                unwritten.carry(m, access.site, read, int(np.count_nonzero(bad)), bool(whole.any()))
            else:
                read.tell(m, access.site, int(np.count_nonzero(bad)))

    def write(self, m: Machine, access: Access) -> None:
        if m.undefined is not None and m.program.doubts.followed and not unwritten.is_stored(m, access.site):
            m.undefined.written(m, access.touched(m, self.cells).cells, self.cells)
        self._note(access.touched(m, self.cells).cells if not self.complete else ())

    copy_landed = barrier_made = write

    def bulk_landed(self, m: Machine, access: Access, barrier) -> None:
        self.write(m, access)

    def update(self, m: Machine, access: Access) -> None:
        if access.site.op is not AccessKind.STORE:
            self.read(m, access)
        self.write(m, access)

    def _note(self, cells) -> None:
        if len(cells):
            self.known.reshape(-1)[cells] = True
            self.complete = bool(self.known.all())


class UninitialisedDevice(DeviceCheck):
    """known: per granule of the arrays that the launch writes or that hold nothing yet."""

    order = 20
    watched_natively = True

    def __init__(self, launch):
        super().__init__(launch)
        self.known = np.ones(self.places.count, bool)
        for start, end in self.places.unwritten:
            begin = self.places.cell_of(start)
            self.known[begin : begin - (start - end) // self.places.granule] = False

    @classmethod
    def wanted(cls, launch) -> bool:
        return bool(launch.device.unwritten)

    def device_read(self, m: Machine, access: DeviceAccess) -> None:
        cells, who, _ = self.places.touched(m, access)
        bad = ~self.known.take(cells)
        if bad.any():
            i = first(bad)
            block, thread = self.places.thread(m, who[i])
            m.findings.add(
                "uninitialized", access.site.line, f"A thread reads {self.places.element(cells[i])}, which nobody has written.",
                block=block, thread=thread, advice=WRITE_FIRST, count=int(np.count_nonzero(bad)), sites=(access.site,),
            )  # fmt: skip

    def device_write(self, m: Machine, access: DeviceAccess) -> None:
        self.known[self.places.touched(m, access)[0]] = True

    def device_update(self, m: Machine, access: DeviceAccess) -> None:
        self.device_read(m, access)
        self.device_write(m, access)

    def device_copy_writes(self, m: Machine, access: BulkDeviceAccess) -> None:
        if access.adds:
            self.device_read(m, access)
        self.device_write(m, access)
