"""Accesses to shared memory that an asynchronous copy may still write, and copies that are never waited for.

A cp.async lands when its thread waits for it. A bulk copy lands for those who know that it has come (see `landings`).
"""

from __future__ import annotations

import numpy as np

from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.sites import AccessKind

from .accesses import Access, MatrixAccess, PieceAccess, Touched
from .findings import for_block, place_of
from .landings import Landing, Landings
from .observer import SharedCheck
from .protocols import Machine, PhaseBarrier
from .shared_cells import SharedCells, first
from .swizzled_tiles import OTHER_LAYOUT, SwizzledTiles
from .warp_meetings import Arrivals

MEANING = {"missing-wait": "a read of data that an asynchronous copy may still be writing"}
ADVISED = {"missing-wait": "Wait for the copy (cp.async.wait_group) and then call __syncthreads()."}
IN_NO_GROUP = "Close the copy's group (cp.async.commit_group), wait for it (cp.async.wait_group), and then call __syncthreads()."
CLOSED_LATE = "Close the copy's group (cp.async.commit_group) in front of that wait."
AMONG_THE_LAST = (
    "Let that wait leave fewer groups under way, or close as many groups behind the copy's, empty ones where nothing is left to fetch."
)
PIPELINE = "Commit the copy (the pipeline's producer_commit), wait for it (consumer_wait), and then call __syncthreads()."

AT_ITS_BARRIER = (
    "Before this, wait at the copy's mbarrier for the phase that ends with the copy (mbarrier.try_wait.parity); "
    "that an earlier phase of it is over says nothing. If that is so, the copy began too early: "
    "wait in front of it, at the mbarrier where the readers of its buffer arrive."
)
UNHEEDED = (
    "Line {} looks at the mbarrier and goes on whatever the answer is, which may be no: mbarrier.test_wait does not wait at all, and "
    "mbarrier.try_wait for a limited time. Look again until the answer is yes, in a loop that ends when the predicate is set."
)
TOO_FEW_ADVICE = (
    "More arrivals come at the mbarrier that line {} initialises than it expects, so its phase may be over before the last of them has "
    "come: give mbarrier.init the number of all arrivals of a phase. If a single thread arrives there, it arrives too often: once for each "
    "phase is enough (one arrive.expect_tx for the bytes of all copies), and if it fills a stage, it must "
    "first wait until that has been read."
)
OWED_ADVICE = (
    "Wait at the mbarrier where the copy's thread arrives for it (cp.async.mbarrier.arrive) for the phase that ends with the copy. If that "
    "is so, more threads arrive than the mbarrier expects, and the phase is over too early: give mbarrier.init the number of all arrivals "
    "of a phase, those with .noinc included."
)
_GROUP = 4  # warps of a warpgroup
NEVER_WAITED = "Commit the copy (cp.async.bulk.commit_group) and wait (cp.async.bulk.wait_group.read 0) before the thread ends."


def unheeded(m: Machine) -> str | None:
    """What to do where a wait at an mbarrier is none, since nothing comes of its answer."""
    line = m.program.unheeded_wait
    return None if line is None else UNHEEDED.format(line)


class MissingWait(SharedCheck):
    """under_way, per granule: site + 1 of a copy that has not landed; -1 - n where the n-th of `landings` has; 0: nothing."""

    order = 10
    watched_natively = True
    arrays = ("under_way",)

    def __init__(self, m: Machine, launch, cells: SharedCells):
        super().__init__(m, launch, cells)
        self.landings = Landings()

    @classmethod
    def wanted(cls, launch) -> bool:
        return "cp.async" in launch.program.uses

    def with_rows(self, pick) -> None:
        super().with_rows(pick)
        self.landings = self.landings.with_rows(pick)

    # ------------------------------------------------------------------------------------------------- accesses

    def read(self, m: Machine, access: Access) -> bool:
        return self._still_under_way(m, access, "reads")

    def matrix_read(self, m: Machine, access: MatrixAccess) -> bool:
        """Each of the warpgroup's four warps reads, and has to know itself that the data has come; one of its lanes knows for all."""
        touched = access.touched(m, self.cells)
        copy = self.under_way.reshape(-1).take(touched.cells)
        if self._known_to_all(copy, access):
            return False
        for warp in range(_GROUP):
            mine = Touched(touched.cells, touched.who + warp * WARP)
            if self._look(m, access.site, mine, "reads", self._unseen(copy, mine, by_warp=True)):
                return True
        return False

    def _known_to_all(self, copy: np.ndarray, access: MatrixAccess) -> bool:
        """Is nothing of `copy` under way that one of a warpgroup's four warps does not know to have come, in any block that reads?"""
        if not len(copy):
            return True
        lowest, highest = int(copy.min()), int(copy.max())
        if highest > 0:
            return False
        rows = np.flatnonzero(access.blocks) if self.cells.rows > 1 else np.zeros(1, np.int64)
        if lowest == highest:  # as a rule all of it came with one copy
            return lowest == 0 or bool(self.landings[-1 - lowest].of_warps(access.thread, _GROUP)[rows].all())
        for row, mine in zip(rows, copy.reshape(len(rows), -1), strict=True):
            numbers = np.unique(mine)
            if not all(number == 0 or self.landings[-1 - number].of_warps(access.thread, _GROUP)[row].all() for number in numbers):
                return False
        return True

    def write(self, m: Machine, access: Access) -> None:
        if not access.remote:
            self._still_under_way(m, access, "writes")

    def copy_started(self, m: Machine, access: Access) -> None:
        touched = access.touched(m, self.cells)
        own = access.own(m, touched) if isinstance(access, PieceAccess) else None
        if own is None:
            self._still_under_way(m, access, "starts a copy to")
        else:  # another block's threads are none of this block's: `cluster_races` looks after them
            self._look(m, access.site, Touched(touched.cells[own], touched.who[own]), "starts a copy to")
        self.under_way.reshape(-1)[touched.cells] = access.site.index + 1

    def copy_landed(self, m: Machine, access: Access) -> None:
        cells = access.touched(m, self.cells).cells  # first, because it may make a row for each block
        self.under_way.reshape(-1)[cells] = 0

    def bulk_landed(self, m: Machine, access: PieceAccess, barrier: PhaseBarrier) -> None:
        cells = access.touched(m, self.cells).cells
        rows = self.cells.rows
        landing = Landing(access.site.index, barrier, np.full(rows, -1, np.int64), np.zeros((rows, m.threads), bool))
        of = access.piece.rows[: len(access.rows)]
        landing.phase[access.rows] = np.where(barrier.doubtful[of], -1, barrier.phase[of])
        number = self.landings.add(landing, lambda: set((-1 - self.under_way[self.under_way < 0]).tolist()))
        self.under_way.reshape(-1)[cells] = -1 - number

    def never_waited(self, m: Machine, access: PieceAccess) -> None:
        block, thread = divmod(int(access.lanes[0]), m.threads)
        m.findings.add(
            "missing-wait", access.site.line,
            "A block ends while this bulk copy may still be reading its shared memory.",
            block=m.block_position(block), thread=m.thread_position(thread), count=len(access.lanes), advice=NEVER_WAITED,
            sites=(access.site,),
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------- who knows what

    def barrier(self, m: Machine, rows=None) -> None:
        """What has landed there, everybody knows now."""
        if not self.landings:
            return
        if rows is None or rows.all():
            self.under_way[self.under_way < 0] = 0
            return
        self.cells.expand(m)
        self.under_way[(self.under_way < 0) & rows[:, None]] = 0

    cluster_passed = barrier

    def acquire(self, m: Machine) -> None:
        self.barrier(m, None if m.mask is None else m.rows_of(m.mask).any(axis=1))

    def barrier_of_some(self, m: Machine, arrivals: list[Arrivals], rows: np.ndarray, number: int | None = None) -> None:
        if self.landings:
            if self.cells.rows == 1 and any((came.threads != came.threads[:1]).any() for came in arrivals):
                self.cells.expand(m)
            came = [(item.threads[: self.cells.rows], item.waits) for item in arrivals]
            members = np.logical_or.reduce([threads for threads, _ in came])
            self.landings.met(members, np.logical_or.reduce([threads & waits for threads, waits in came]))

    def warp_barrier(self, m: Machine, masks=None) -> None:
        self.landings.warps_met(m)

    def waited(self, m: Machine, barrier: PhaseBarrier, rows: np.ndarray, lanes: np.ndarray) -> None:
        if self.landings:
            chosen = np.zeros(m.blocks, bool)
            chosen[rows] = True
            self.landings.waited(m, barrier, rows, lanes, barrier.arrivers(m, chosen), lambda: self.cells.expand(m))

    # -------------------------------------------------------------------------------------------------- finding

    def _still_under_way(self, m: Machine, access: Access, verb: str) -> bool:
        touched = access.touched(m, self.cells)
        if access.remote:  # not landed; whether its own block knows of one that has, the clocks of blocks tell
            return self._look(m, access.site, touched, verb, self.under_way.reshape(-1).take(touched.cells) > 0)
        return self._look(m, access.site, touched, verb)

    def _look(self, m: Machine, site, touched: Touched, verb: str, bad: np.ndarray | None = None) -> bool:
        copy = self.under_way.reshape(-1).take(touched.cells)
        bad = self._unseen(copy, touched) if bad is None else bad
        if not bad.any():
            return False
        i = first(bad)
        block, thread, offset = self.cells.place(m, touched, i)
        index = int(copy[i])
        other = self.launch.program.sites[index - 1 if index > 0 else self.landings[-1 - index].site]
        lacking, advice = "has not been waited for", ADVISED["missing-wait"]
        if other.op is AccessKind.BULK_LOAD:
            of_other_layout = site.op is AccessKind.WARPGROUP and site.index in self._read_by_another_swizzle()
            barrier = None if index > 0 else self.landings[-1 - index].barrier
            counted = None if barrier is None or not barrier.surplus else TOO_FEW_ADVICE.format(barrier.line)
            advice = OTHER_LAYOUT if of_other_layout else counted or unheeded(m) or AT_ITS_BARRIER
        elif other.op is AccessKind.COPY:
            lacking, advice = self._of_groups(m, *divmod(int(touched.cells[i]), self.cells.count))
        m.findings.add(
            "missing-wait", site.line,
            f"Thread {thread} {verb} {self.cells.at(offset)}, where the asynchronous copy of line {other.line} {lacking}.",
            other_line=other.line, block=block, thread=thread, count=int(np.count_nonzero(bad)), advice=for_block(m, advice),
            sites=(site, other),
        )  # fmt: skip
        return True

    def _read_by_another_swizzle(self) -> set[int]:
        """Numbers of the sites of products that read a tile in another layout than it was copied in, as far as that is looked for."""
        return next((check.apart for check in self.cells.checks if isinstance(check, SwizzledTiles)), set())

    def _of_groups(self, m: Machine, row: int, cell: int) -> tuple[str, str]:
        """What a cp.async to a granule lacks, and what to do: it may be in no group, or in one that a wait leaves under way."""
        if "pipeline" in m.launch.source:
            return "has not been waited for", PIPELINE
        if "cp.async.mbarrier" in m.program.uses:
            return "has not been waited for", OWED_ADVICE
        queue = m.asynchronous.get("copies")
        closed, left, closed_then = (queue and queue.state_of(m, row, cell * self.cells.granule)) or (True, None, True)
        if left is None:
            return "has not been waited for", ADVISED["missing-wait"] if closed else IN_NO_GROUP
        place = place_of(m.program, left.position)
        wait = f"may still be writing: the wait at {place}" if place else "may still be writing: the latest wait"
        if not closed_then:
            return f"{wait} is for closed groups only, and the copy was in none", CLOSED_LATE
        which = "the last group" if left.pending == 1 else f"the last {left.pending} groups"
        return f"{wait} leaves {which} under way, and the copy is in {'it' if left.pending == 1 else 'one of them'}", AMONG_THE_LAST

    def _unseen(self, copy: np.ndarray, touched: Touched, by_warp: bool = False) -> np.ndarray:
        """Which accesses meet a copy that is under way, or that their thread does not know to have landed.

        copy: what `under_way` holds at the granules touched. by_warp: what a lane knows, its warp does.
        """
        cells, who, many = touched.cells, touched.who, self.cells.rows > 1
        value = int(copy[0]) if len(copy) else 0
        # As a rule all that is read came at once.
        if not by_warp and value < 0 and who[0] > 0 and (copy == value).all() and (who > 0).all():
            seen = self.landings[-1 - value].seen
            return ~(seen[cells // self.cells.count, who - 1] if many else seen[0].take(who - 1))
        bad = copy != 0
        landed = np.flatnonzero(copy < 0)
        if not len(landed):
            return bad
        rows = cells[landed] // self.cells.count if many else np.zeros(len(landed), np.int64)
        threads, numbers = who[landed] - 1, -1 - copy[landed]
        for number in np.unique(numbers).tolist():
            landing, mine = self.landings[number], numbers == number
            seen = landing.shared_by_warps() if by_warp else landing.seen
            known = np.where(threads[mine] >= 0, seen[rows[mine], np.maximum(threads[mine], 0)], seen.all(axis=1)[rows[mine]])
            bad[landed[mine]] = ~known
        return bad
