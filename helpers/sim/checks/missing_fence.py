"""Wgmma and bulk copies of shared memory that ordinary stores wrote: reads may not see it, and what copies bring may be lost below it.

They take a way of their own, the *async proxy*, for which ordinary stores have no order until a `fence.proxy.async` stands between.
The right result comes out of a machine that does one thing after the other, so it is told from what is noted here.
What cp.async brings is let pass: PTX counts it as generic, but much code that is in use hands it to wgmma with no fence.
So is an mbarrier without a fence between its init and the copies that count there: NVIDIA's guide has fence.proxy.async,
CUTLASS fence.mbarrier_init alone, others neither, and PTX does not say by which way a copy reaches its mbarrier.
"""

from __future__ import annotations

import numpy as np

from .accesses import Access, MatrixAccess, PieceAccess
from .observer import SharedCheck
from .protocols import Machine
from .shared_cells import first
from .shared_races import SharedRaces

MEANING = {"missing-fence": "a wgmma or bulk copy in no order with what ordinary instructions wrote before"}
ADVISED = {
    "missing-fence": "Put wgmma.fence between writing registers and the wgmma that uses them, and fence.proxy.async between "
    "writing shared memory and the wgmma or bulk copy that reads or writes it.",
}

ADVICE = 'Put asm volatile("fence.proxy.async;") after the stores, before the barrier that hands the data over.'


class MissingFence(SharedCheck):
    """unfenced, per granule: thread + 1, or less for several, that wrote it by an ordinary store since the last fence.

    written_by: that store's site.
    """

    order = 40
    watched_natively = True
    arrays = ("unfenced", "written_by")

    @classmethod
    def wanted(cls, launch) -> bool:
        return "async proxy" in launch.program.uses

    def write(self, m: Machine, access: Access) -> None:
        if not access.remote:
            touched = access.touched(m, self.cells)
            self.unfenced.reshape(-1)[touched.cells] = touched.who
            self.written_by.reshape(-1)[touched.cells] = access.site.index

    def copy_landed(self, m: Machine, access: Access) -> None:
        cells = access.touched(m, self.cells).cells
        self.unfenced.reshape(-1)[cells] = 0

    def bulk_landed(self, m: Machine, access: PieceAccess, barrier) -> None:
        self._look(m, access, "The bulk copy writes")
        self.copy_landed(m, access)

    def proxy_fence(self, m: Machine, shared: bool, device: bool) -> None:
        """It orders the threads' own stores, and those that a barrier has ordered before."""
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

    def matrix_read(self, m: Machine, access: MatrixAccess) -> None:
        self._look(m, access, f"The wgmma's {access.name} reads")

    def bulk_read(self, m: Machine, access: PieceAccess) -> None:
        self._look(m, access, "The bulk copy reads")

    def _look(self, m: Machine, access: Access, what: str) -> None:
        touched = access.touched(m, self.cells)
        late = self.unfenced.reshape(-1).take(touched.cells) != 0
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
