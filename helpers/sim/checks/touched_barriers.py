"""Ordinary accesses to an mbarrier. Only mbarrier instructions may touch one between its init and its inval: what others read there
means nothing, and what they write may stop it for ever."""

from __future__ import annotations

import numpy as np

from helpers.sim.code.sites import AccessKind

from .accesses import Access
from .findings import at
from .observer import SharedCheck
from .protocols import Machine
from .shared_cells import SharedCells, first

KIND = "mbarrier-access"
MEANING = {KIND: "an ordinary access to an mbarrier, which only mbarrier instructions may touch"}
ADVICE = "Give the mbarrier a place of its own, or end it with mbarrier.inval before the place is used for something else."


class TouchedBarriers(SharedCheck):
    """made, per granule: index + 1 of the site that made the mbarrier which is there, negative where something else has been stored over
    it since, else 0. some: is there any?"""

    order = 10
    watched_natively = True
    arrays = ("made",)

    def __init__(self, m: Machine, launch, cells: SharedCells):
        super().__init__(m, launch, cells)
        self.some = False

    def barrier_made(self, m: Machine, access: Access) -> None:
        self.put("made", m, access, access.site.index + 1)
        self.some = True

    def barrier_ended(self, m: Machine, access: Access) -> None:
        self.put("made", m, access, 0)
        self.some = bool(self.made.any())

    def read(self, m: Machine, access: Access) -> None:
        self._look(m, access, "reads")

    def write(self, m: Machine, access: Access) -> None:
        self._look(m, access, "writes")

    def copy_landed(self, m: Machine, access: Access) -> None:
        self._look(m, access, "copies data over")

    def bulk_landed(self, m: Machine, access: Access, barrier) -> None:
        self._look(m, access, "copies data over")

    def update(self, m: Machine, access: Access) -> None:
        if access.site.op not in (AccessKind.BARRIER, AccessKind.BARRIER_INIT):
            self._look(m, access, "changes")

    def _look(self, m: Machine, access: Access, does: str) -> None:
        if not self.some:
            return
        touched = access.touched(m, self.cells)
        made = self.made.reshape(-1).take(touched.cells)
        if not made.any():
            return
        block, thread, offset = self.cells.place(m, touched, first(made != 0))
        line = m.program.sites[abs(int(made[made != 0][0])) - 1].line
        m.findings.add(
            KIND, access.site.line, f"A thread {does} {self.cells.at(offset)}, which is an mbarrier since its init{at(line)}.",
            other_line=line, block=block, thread=thread, advice=ADVICE, count=int(np.count_nonzero(made)), sites=(access.site,),
        )  # fmt: skip
        if does != "reads":
            self.made.reshape(-1)[touched.cells] = -np.abs(made)
