"""Wgmma and bulk copies of shared memory that ordinary stores wrote: reads may not see it, and what copies bring may be lost below it.

They take a way of their own, the *async proxy*, for which ordinary stores have no order until a `fence.proxy.async` stands between.
The right result comes out of a machine that does one thing after the other, so it is told from what is noted here.
What cp.async brings is let pass: PTX counts it as generic, but much code that is in use hands it to wgmma with no fence.
So is an mbarrier without a fence between its init and the copies that count there: NVIDIA's guide has fence.proxy.async,
CUTLASS fence.mbarrier_init alone, others neither, and PTX does not say by which way a copy reaches its mbarrier.
"""

from __future__ import annotations

import numpy as np

from helpers.sim.code.hardware_units import WARP

from .accesses import Access, MatrixAccess, PieceAccess, Touched
from .observer import SharedCheck
from .protocols import Machine
from .shared_cells import SharedCells, first
from .shared_races import SharedRaces
from .warp_meetings import grouped

MEANING = {"missing-fence": "a wgmma or bulk copy in no order with what ordinary instructions wrote before"}
ADVISED = {
    "missing-fence": "Put wgmma.fence between writing registers and the wgmma that uses them, and fence.proxy.async between "
    "writing shared memory and the wgmma or bulk copy that reads or writes it.",
}

ADVICE = 'Put asm volatile("fence.proxy.async;") after the stores, before the barrier that hands the data over.'


class MissingFence(SharedCheck):
    """unfenced, per granule: thread + 1, or less for several, that wrote it by an ordinary store since the last fence.

    written_by: that store's site. Where barriers join some of the threads, fenced_by are warps (bits) that have fenced it since they
    knew of the store, and fenced_time is when the last of them did.
    """

    order = 40
    watched_natively = True
    arrays = ("unfenced", "written_by")

    def __init__(self, m: Machine, launch, cells: SharedCells):
        self.among_some = launch.program.partial_barriers
        self.arrays += ("fenced_by", "fenced_time") if self.among_some else ()
        super().__init__(m, launch, cells)

    @classmethod
    def wanted(cls, launch) -> bool:
        return "async proxy" in launch.program.uses

    def write(self, m: Machine, access: Access) -> None:
        if not access.remote:
            touched = access.touched(m, self.cells)
            self.unfenced.reshape(-1)[touched.cells] = touched.who
            self.written_by.reshape(-1)[touched.cells] = access.site.index
            if self.among_some:
                self.fenced_by.reshape(-1)[touched.cells] = 0

    def copy_landed(self, m: Machine, access: Access) -> None:
        cells = access.touched(m, self.cells).cells
        self.unfenced.reshape(-1)[cells] = 0

    def bulk_landed(self, m: Machine, access: PieceAccess, barrier) -> None:
        self._look(m, access, "The bulk copy writes")
        self.copy_landed(m, access)

    def proxy_fence(self, m: Machine, shared: bool, device: bool) -> None:
        """It orders the threads' own stores, and those that a barrier has ordered before: who fences behind one fences for all."""
        if not shared:
            return
        if m.mask is None:
            self.unfenced[:] = 0
            return
        self.cells.expand(m)
        members = np.concatenate([np.zeros((m.blocks, 1), bool), m.rows_of(m.mask)], axis=1)
        blocks = members.any(axis=1, keepdims=True)
        mine = np.take_along_axis(members, np.maximum(self.unfenced, 0), axis=1)
        ordered = self.cells.check(SharedRaces).writer == 0
        self.unfenced[mine | blocks & (ordered | (self.unfenced < 0))] = 0
        self._fence_what_is_known(m, members[:, 1:])

    def _fence_what_is_known(self, m: Machine, members: np.ndarray) -> None:
        """A fence by the threads `members` ([blocks, threads], boolean) orders what they know of by a barrier of some threads as well, for
        themselves and those whom they meet: PTX wants a proxy fence somewhere on the way from the store to the asynchronous access."""
        races = self.cells.check(SharedRaces)
        if not races.meetings or not self.unfenced.any():
            return
        left = np.flatnonzero(self.unfenced)
        rows, warps = left // self.cells.count, grouped(members)
        for warp in np.flatnonzero(warps.any(axis=0)).tolist():
            here = left[warps[rows, warp]]
            here = here[~races._unknown_writes(Touched(here, np.full(len(here), warp * WARP + 1, np.int32)))]
            self.fenced_by.reshape(-1)[here] |= np.int32(1 << warp)
            self.fenced_time.reshape(-1)[here] = races.time

    def barrier(self, m: Machine, rows=None) -> None:
        """Everybody knows of what has been fenced."""
        if self.among_some:
            fenced = self.fenced_by != 0
            self.unfenced[fenced if rows is None or len(fenced) == 1 else fenced & rows[:, None]] = 0

    cluster_passed = barrier

    def _is_late(self, touched: Touched) -> np.ndarray:
        """Which accesses come before a fence that their threads know of."""
        late = self.unfenced.reshape(-1).take(touched.cells) != 0
        if not self.among_some or not late.any():
            return late
        cells, warps = touched.cells[late], np.maximum(touched.who[late] - 1, 0) // WARP
        fences, time = (array.reshape(-1).take(cells) for array in (self.fenced_by, self.fenced_time))
        known = self.cells.check(SharedRaces).meetings.known.known[self.cells.row_of(cells), warps]
        told = (fences >> warps & 1).astype(bool)
        for warp in range(known.shape[-1]):
            told |= (fences >> warp & 1).astype(bool) & (known[:, warp] >= time)
        late[late] = ~told
        return late

    def matrix_read(self, m: Machine, access: MatrixAccess) -> None:
        self._look(m, access, f"The wgmma's {access.name} reads")

    def bulk_read(self, m: Machine, access: PieceAccess) -> None:
        self._look(m, access, "The bulk copy reads")

    def _look(self, m: Machine, access: Access, what: str) -> None:
        touched = access.touched(m, self.cells)
        late = self._is_late(touched)
        if not late.any():
            return
        i = first(late)
        other = self.launch.program.sites[int(self.written_by.reshape(-1)[touched.cells[i]])]
        block, thread, offset = self.cells.place(m, touched, i)
        m.findings.add(
            "missing-fence", access.site.line,
            f"{what} {self.cells.at(offset)}, written at line {other.line} by an ordinary store, with no fence.proxy.async between.",
            other_line=other.line, block=block, thread=thread, advice=ADVICE, count=int(np.count_nonzero(late)),
            sites=(access.site, other),
        )  # fmt: skip
