"""Writes to shared memory that a wgmma or a bulk copy is still reading.

Both read while the kernel runs on, so nobody may write there before they have been waited for.
"""

from __future__ import annotations

import numpy as np

from helpers.sim.code.sites import AccessKind

from .accesses import Access, MatrixAccess, PieceAccess
from .observer import SharedCheck
from .protocols import Machine
from .shared_cells import first

STORE_ADVICE = "Wait for the copy (cp.async.bulk.commit_group, then wait_group.read) and put a barrier before the buffer is written again."
READ_ADVICE = "Wait for the wgmma (wgmma.wait_group) and then put a barrier before the buffer is written again."
COPIED_ADVICE = "Wait for the wgmma (wgmma.wait_group), and only then arrive at the mbarrier that the copy waits for; or meet at a barrier."


class OverwrittenSources(SharedCheck):
    """Per granule. readers: how many products and copies may still be reading it. reader_site: the last one's site + 1."""

    order = 15
    watched_natively = True
    arrays = ("readers", "reader_site")

    @classmethod
    def wanted(cls, launch) -> bool:
        return "async proxy" in launch.program.uses

    def reading_begun(self, m: Machine, access: Access) -> None:
        self._count(m, access, 1)

    def reading_ended(self, m: Machine, access: Access) -> None:
        self._count(m, access, -1)

    matrix_done = reading_ended

    def _count(self, m: Machine, access: MatrixAccess | PieceAccess, change: int) -> None:
        cells = access.touched(m, self.cells).cells
        if isinstance(access, MatrixAccess):  # which has each granule once
            self.readers.reshape(-1)[cells] += change
        else:
            np.add.at(self.readers.reshape(-1), cells, change)
        self.reader_site.reshape(-1)[cells] = access.site.index + 1

    def write(self, m: Machine, access: Access) -> None:
        if not access.remote:
            self._look(m, access, "writes", READ_ADVICE)

    copy_landed = write

    def copy_started(self, m: Machine, access: Access) -> None:
        self._look(m, access, "starts a copy to", COPIED_ADVICE)

    def _look(self, m: Machine, access: Access, verb: str, advice: str) -> None:
        touched = access.touched(m, self.cells)
        busy = self.readers.reshape(-1).take(touched.cells) > 0
        own = access.own(m, touched) if isinstance(access, PieceAccess) else None
        if own is not None:
            busy &= own
        if not busy.any():
            return
        i = first(busy)
        site = access.site
        block, thread, offset = self.cells.place(m, touched, i)
        other = self.launch.program.sites[int(self.reader_site.reshape(-1)[touched.cells[i]]) - 1]
        stores = other.op is AccessKind.BULK_STORE
        m.findings.add(
            "missing-wait" if stores else "race", site.line,
            f"Thread {thread} {verb} {self.cells.at(offset)}, which the {'bulk copy' if stores else 'wgmma'}"
            f"{' of the same line' if other.line == site.line else f' of line {other.line}'} may still be reading.",
            other_line=other.line, block=block, thread=thread, advice=STORE_ADVICE if stores else advice,
            count=int(np.count_nonzero(busy)), sites=(site, other),
        )  # fmt: skip
