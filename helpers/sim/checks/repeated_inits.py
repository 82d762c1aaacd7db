"""An mbarrier that is initialised while it is one: by several threads, or again without an inval. What an init does there is undefined (PTX
ISA, `mbarrier.init`), also where it names the same number of arrivals: whoever has arrived, or waits, may be forgotten."""

from __future__ import annotations

import numpy as np

from .accesses import Access, Touched
from .findings import at
from .observer import SharedCheck
from .protocols import Machine
from .shared_cells import first
from .touched_barriers import TouchedBarriers

KIND = "mbarrier-init"
MEANING = {KIND: "an mbarrier that is initialised again, by another thread or later, and has not been ended by mbarrier.inval"}
ONE_THREAD = "Let one thread initialise it: `if (threadIdx.x == 0)`."
ONCE = (
    "Initialise it once, in front of the loop and by one thread, and keep count of its phases; or end it with mbarrier.inval before it is "
    "initialised again."
)


class RepeatedInits(SharedCheck):
    """Asks `TouchedBarriers` what was an mbarrier before, and so comes before it."""

    order = TouchedBarriers.order - 1
    watched_natively = True

    def barrier_made(self, m: Machine, access: Access) -> None:
        touched = access.touched(m, self.cells)
        if not touched.cells.size:  # it lies outside of shared memory, which is told already
            return
        self._by_several(m, access, touched)
        known = self.cells.check(TouchedBarriers)
        if known.some:
            self._again(m, access, touched, known.made.reshape(-1).take(touched.cells))

    def _by_several(self, m: Machine, access: Access, touched: Touched) -> None:
        """Do several threads make the same one at once?"""
        _, where, times = np.unique(touched.cells, return_index=True, return_counts=True)
        many = m.threads // access.offsets.size if touched.several else int(times.max())
        if many == 1:
            return
        block, thread, offset = self.cells.place(m, touched, int(where[times.argmax()]))
        line = access.site.line
        m.findings.add(
            KIND, line, f"{many} threads of a block initialise the mbarrier in {self.cells.at(offset)}: the first of them makes it one, "
            "and the others initialise it again.", other_line=line, block=block, thread=thread, advice=ONE_THREAD, sites=(access.site,),
        )  # fmt: skip

    def _again(self, m: Machine, access: Access, touched: Touched, made: np.ndarray) -> None:
        """Is there one already? made: of the granules, what `TouchedBarriers.made` has."""
        if not (made > 0).any():
            return
        block, thread, offset = self.cells.place(m, touched, first(made > 0))
        line = m.program.sites[int(made[made > 0][0]) - 1].line
        m.findings.add(
            KIND, access.site.line, f"A thread initialises the mbarrier in {self.cells.at(offset)}, which is one since its init{at(line)}.",
            other_line=line, block=block, thread=thread, advice=ONCE, sites=(access.site,),
        )  # fmt: skip
