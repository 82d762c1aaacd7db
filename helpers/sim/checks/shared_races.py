"""Races between threads of a block in shared memory: two accesses, at least one of them a write, and no barrier between."""

from __future__ import annotations

import numpy as np

from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.sites import AccessKind, Site

from .accesses import SEVERAL, Access, MatrixAccess, PieceAccess, Touched
from .beyond_array import without_strays
from .findings import for_block, place_of
from .missing_wait import TOO_FEW_ADVICE, unheeded
from .observer import SharedCheck
from .protocols import LoadedKernel, Machine, PhaseBarrier
from .shared_cells import SharedCells, first, line_of
from .warp_clocks import WarpClocks
from .warp_meetings import Arrivals, WarpMeetings, WarpMoment, grouped, moves_data

MEANING = {"race": "two threads touch the same memory, one writes, and nothing orders them"}
ADVISED = {"race": "Put __syncthreads() between the two accesses."}
OTHER_PLACES = "Put __syncthreads() between the two accesses, or let them use different places."

WARPGROUP = -64
GROUP = 128  # threads of a warpgroup
STARTED, PASSED, WAITED = 1, 2, 3
CLASH_ADVICE = (
    "No barrier helps here, because they write at the same time: look at the index, which gives both the same element. If it is meant to, "
    "let one of them do it, or use an atomic operation."
)
TWO_WRITES_ADVICE = (
    "Two threads write one element, and nobody reads it between: look at the indices first: they give both the same, which may not be "
    "meant. A barrier helps only where the second is to replace the first."
)
WARP_ADVICE = "Lanes of one warp race here: put __syncwarp(), or __syncthreads(), between the two accesses."
ONE_WARP_ADVICE = "Lanes of one warp race here, and the block has no other: put __syncwarp() between the two accesses."
LANES_OR_ALL_ADVICE = (
    "Lanes of one warp race here: put __syncwarp() between the two accesses, or a barrier of all threads that use this place: a named one "
    "(bar.sync number, threads) where other warps do something else."
)
STORED_ADVICE = (
    "One thread begins the copy of what others have stored: put a barrier of all of these in front of it, __syncthreads(), or a named one "
    "(bar.sync number, threads) where other warps do something else."
)
COPIED_OUT_ADVICE = (
    "The thread that began the copy has to wait until it has been read (cp.async.bulk.wait_group.read), and behind that wait, in front of "
    "the stores, to meet all who store: at __syncthreads(), or at a named barrier (bar.sync number, threads) where other warps do "
    "something else. A barrier in front of the wait comes too early."
)
PARTIAL_ADVICE = "There is a __syncwarp() between the two accesses, but its mask does not name both threads: it must."
WARP_IS_NOT_ENOUGH = (
    "There is a __syncwarp() between the two accesses, but it orders the lanes of one warp only, and these are of two: use __syncthreads()."
)
UPDATE_ADVICE = (
    "The statement reads the element and writes it again, and no barrier can stand between: use an atomic operation (atomicAdd), or give "
    "each thread an element of its own."
)
MADE_ADVICE = "Put __syncthreads() behind the initialisation, which one thread does for all."
LATE_WAIT_ADVICE = (
    "Each thread waits for its own copies only. A barrier stands between this copy and the wait for it (cp.async.wait_group), and none "
    "behind the wait: put the wait before the barrier, not a second barrier behind it. Whoever has passed the barrier then finds the "
    "copies of all complete."
)
NO_BARRIER_ADVICE = (
    "Each thread waits for its own copies only: put __syncthreads() behind the wait (cp.async.wait_group), before anybody reads what "
    "others have copied."
)
MEETING_ADVICE = (
    "Warps meet at mbarriers or named barriers here, and these two have not met: every warp that was there first must arrive where the "
    "later one waits, and an arrival with .relaxed hands nothing over. (Where all threads come by, __syncthreads() does it, too.)"
)
COPIES_ALONE_ADVICE = (
    "At the mbarriers here one warp alone arrives, so they tell of copies and not of who was there first: put __syncthreads() between the "
    "two accesses, where all threads come by. (Where they do not, let every warp that was there first arrive where the later one waits.)"
)
LANES_ADVICE = (
    "Only some lanes of the warp that was there first have arrived, and what its other lanes did is not ordered before that: put "
    "__syncwarp() in front of the arrival."
)


def flags_and_atomics(program: LoadedKernel) -> np.ndarray:
    """By site: does it not race with others of its kind? That are atomic operations and, in a kernel with fences, volatile looks at
    flags; volatile stores of flags are told where they are executed."""
    fenced = "fence" in program.uses
    return np.array([site.atomic or (fenced and site.volatile and site.index in program.decisive) for site in program.sites], bool)


class SharedRaces(SharedCheck):
    """Who touched each granule since the last barrier.

    `writer` and `reader` hold a thread's linear index + 1, 0 for nobody, SEVERAL for more than one thread (several threads
    of one warp w are -2 - w instead, because its __syncwarp() orders them all). WARPGROUP - g is
    what a product of warpgroup g has read. Two threads of one warp are ordered by a __syncwarp() that names both:
    `writer_turn` and `reader_turn` remember the clock of the thread (see `WarpClocks`). To name one of several, `…_one` is
    the latest thread + 1 and `…_two` another one or 0, which has read at `other_site`.

    `copied` is STARTED where an asynchronous copy was, PASSED where a barrier of the block has come since, and WAITED + the position of the
    wait where that came after the barrier.

    Where barriers join some of the threads, or there are mbarriers, `writer_warps` and `reader_warps` are the warps of those threads
    (bits) and `writer_time` and `reader_time` when the first of them came; what a warp knows of another is in `WarpMeetings`.
    """

    order = 30
    watched_natively = True

    def __init__(self, m: Machine, launch, cells: SharedCells):
        program = launch.program
        self.sites, self.race_free = program.sites, program.race_free
        self.warp_barriers, self.flag_stores = program.warp_barriers, program.flag_stores
        self.arrays = (
            "writer",
            "writer_site",
            "writer_one",
            "writer_two",
            "reader",
            "reader_site",
            "reader_one",
            "reader_two",
            "other_site",
        )
        self.arrays += ("writer_turn", "reader_turn") if self.warp_barriers else ()
        self.meetings = WarpMeetings(1, m.threads) if program.partial_barriers else None
        self.arrays += ("writer_warps", "writer_time", "reader_warps", "reader_time") if self.meetings else ()
        self.copies = "cp.async" in program.uses
        self.arrays += ("copied",) if self.copies else ()
        self.wait = 0  # position of the latest wait for copies
        self.time = 1  # accesses so far, and the beginning
        self.unpublished = False  # has an mbarrier been made since the last barrier?
        self.handed = np.zeros(m.warp_count, bool)  # warps that have arrived at mbarriers or named barriers for others
        self.too_few: str | None = None  # what to do where more arrived at an mbarrier than it waits for
        self.fenced = "fence" in program.uses
        super().__init__(m, launch, cells)
        self.clocks = WarpClocks(1, m.threads)
        self.atomic = flags_and_atomics(program)
        self.rechecks = np.array([site.rechecks for site in self.sites], bool)
        self.empty = True  # has nobody touched anything since the last barrier?

    def with_rows(self, pick) -> None:
        super().with_rows(pick)
        self.clocks = self.clocks.rows(pick)
        self.meetings = self.meetings and self.meetings.rows(pick)

    # ------------------------------------------------------------------------------------------------- accesses

    def read(self, m: Machine, access: Access) -> None:
        site = access.site
        if access.remote or site.index in self.race_free or site.strong:
            return
        touched = access.touched(m, self.cells)
        cells, who = touched[:2]
        if not cells.size:
            return
        last = self.writer.reshape(-1).take(cells)
        conflict = (last != 0) & ((last != who) | (last == SEVERAL))
        if conflict.any():
            conflict = self._unordered(m, touched, last, conflict, "writer")
            conflict &= ~self.rechecks[self.writer_site.reshape(-1).take(cells)]
            if self.atomic[site.index]:
                conflict &= ~self.atomic[self.writer_site.reshape(-1).take(cells)]
            if conflict.any():
                self._race(m, access, "writer", touched, last, conflict, "reads", "writes")
        self._has_read(m, touched, site)

    def reading_ended(self, m: Machine, access: PieceAccess) -> None:
        """A bulk copy reads until its thread has waited for it."""
        self._has_read(m, access.touched(m, self.cells), access.site)

    def _has_read(self, m: Machine, touched: Touched, site: Site) -> None:
        cells, who, several = touched[:3]
        self.empty = False
        reader = self.reader.reshape(-1)
        before = reader.take(cells)
        self._date("reader", touched, (before != 0) & (before > WARPGROUP))
        if several:
            reader[cells] = SEVERAL
        else:
            if self.warp_barriers:
                # Reads before a barrier of the warp that orders them need not be known any more.
                before = np.where(self._unordered(m, touched, before, before != 0, "reader"), before, 0)
            code = -2 - (who - 1) // WARP
            other = np.where((before == code) | (-2 - (before - 1) // WARP == code) & (before > 0), code, SEVERAL)
            self._note(reader, cells, who, np.where((before == 0) | (before == who), who, other).astype(np.int32))
        self._remember("reader", touched, before == 0, site)
        self.reader_site.reshape(-1)[cells] = site.index
        self._stamp("reader_turn", touched)

    def write(self, m: Machine, access: Access) -> None:
        if access.remote:
            return
        touched, site = access.touched(m, self.cells), access.site
        cells, who, several = touched[:3]
        if not cells.size:
            return
        if site.volatile and self.fenced:
            row = self.cells.row_of(cells) * m.threads
            flag = site.index in self.flag_stores or not moves_data(cells, row + who, row + who // WARP)
            self.atomic[site.index] = flag and not several
            if self.atomic[site.index]:
                self.update(m, access, "writes")
                return
        self.empty = False
        self._meet(m, access, touched, "writes")
        self._overwritten(touched)
        writer = self.writer.reshape(-1)
        writer[cells] = who
        self._remember("writer", touched, np.ones(len(cells), bool))
        if several or bool((writer.take(cells) != who).any()):
            if access.clash is not None and access.clash():
                back = writer.take(cells)
                clash = back != who if not several else np.ones(len(cells), bool)
                self.writer_site.reshape(-1)[cells] = site.index
                self._race(m, access, "writer", touched, back, clash, "writes", "writes", CLASH_ADVICE)
            if not several:
                self._note(writer, cells, who, who)
        self.writer_site.reshape(-1)[cells] = site.index
        self._stamp("writer_turn", touched)

    def update(self, m: Machine, access: Access, doing: str = "updates") -> None:
        """It races with plain accesses of other threads, not with other atomics."""
        if access.remote:
            return
        touched, site = access.touched(m, self.cells), access.site
        cells, who = touched.cells, touched.who
        if not cells.size:
            return
        self.empty = False
        for name, verb in (("writer", "writes"), ("reader", "reads")):
            last, sites = (getattr(self, array).reshape(-1).take(cells) for array in (name, f"{name}_site"))
            conflict = (last != 0) & ((last != who) | (last == SEVERAL)) & ~self.atomic[sites]
            if conflict.any():
                conflict = self._unordered(m, touched, last, conflict, name)
                if conflict.any() and not (site.rechecks and name == "reader"):
                    self._race(m, access, name, touched, last, conflict, doing, verb)
        writer = self.writer.reshape(-1)
        before = writer.take(cells)
        self._date("writer", touched, before != 0)
        self._remember("writer", touched, before == 0)
        writer[cells] = np.where((before == 0) | (before == who), who, SEVERAL)
        shared = writer.take(cells) != who
        if shared.any():
            writer[cells[shared]] = SEVERAL
        self.writer_site.reshape(-1)[cells] = site.index
        self._stamp("writer_turn", touched)

    def copy_started(self, m: Machine, access: Access) -> None:
        touched = access.touched(m, self.cells)
        own = access.own(m, touched) if isinstance(access, PieceAccess) else None
        if own is not None:
            touched = Touched(touched.cells[own], touched.who[own])
        self.empty = False
        self._meet(m, access, touched, "starts a copy to")
        if not isinstance(access, PieceAccess):
            self.copied.reshape(-1)[touched.cells] = STARTED

    def copies_awaited(self, m: Machine, position: int) -> None:
        self.wait = position

    def copy_landed(self, m: Machine, access: Access) -> None:
        touched = access.touched(m, self.cells)
        self.empty = False
        if access.known is None:  # it was waited for, and no mbarrier tells others of it
            copied = self.copied.reshape(-1)
            copied[touched.cells[copied.take(touched.cells) == PASSED]] = WAITED + self.wait
        self._overwritten(touched, access.known)
        self.writer.reshape(-1)[touched.cells] = touched.who
        self._remember("writer", touched, np.ones(len(touched.cells), bool))
        self.writer_site.reshape(-1)[touched.cells] = access.site.index
        self._stamp("writer_turn", touched)

    def bulk_landed(self, m: Machine, access: PieceAccess, barrier: PhaseBarrier) -> None:
        """Who may use the data is a matter of knowing that it has come, and of nothing else."""
        cells = access.touched(m, self.cells).cells
        self.empty = False
        self.writer.reshape(-1)[cells] = self.reader.reshape(-1)[cells] = 0

    def matrix_read(self, m: Machine, access: MatrixAccess) -> bool:
        touched = access.touched(m, self.cells)
        writer = self.writer.reshape(-1).take(touched.cells)
        conflict = self._unmet(touched, writer, writer != 0, "writer")
        if not conflict.any():
            return False
        self._race(m, access, "writer", touched, writer, conflict, "reads", "writes")
        return True

    def matrix_done(self, m: Machine, access: MatrixAccess) -> None:
        touched = access.touched(m, self.cells)
        cells = touched.cells
        if self.meetings:
            self.time += 1
            self.reader_time.reshape(-1)[cells] = self.time
            self.reader_warps.reshape(-1)[cells] = 0xF << access.thread // WARP
        self.reader.reshape(-1)[cells] = WARPGROUP - access.thread // GROUP
        self.reader_site.reshape(-1)[cells] = access.site.index
        self.reader_one.reshape(-1)[cells], self.reader_two.reshape(-1)[cells] = access.thread + 1, 0
        self.empty = False

    def _meet(self, m: Machine, access: Access, touched: Touched, verb: str) -> None:
        """Report those whose accesses a write meets."""
        for name, other_verb in (("writer", "writes"), ("reader", "reads")):
            last = getattr(self, name).reshape(-1).take(touched.cells)
            conflict = self._others(last, touched.who)
            if conflict.any():
                conflict = self._unordered(m, touched, last, conflict, name)
                if conflict.any():
                    self._race(m, access, name, touched, last, conflict, verb, other_verb)

    @staticmethod
    def _others(last: np.ndarray, who: np.ndarray) -> np.ndarray:
        """Where somebody else was last. A product that a warpgroup has waited for was read by every thread of the warpgroup:
        the product is one operation of all of them, so each of them knows that it has ended."""
        other = (last != 0) & ((last != who) | (last == SEVERAL))
        return other & (last != WARPGROUP - (who - 1) // GROUP) if other.any() else other

    def _note(self, state: np.ndarray, cells, who, new) -> None:
        """Set state[cells] = new; where threads of one access differ about a cell, say that they are several."""
        state[cells] = new
        shared = state.take(cells) != new
        if not shared.any():
            return
        undecided = np.iinfo(np.int32).min
        state[cells[shared]] = undecided
        chosen = state.take(cells) == undecided
        cells = cells[chosen]
        warps = np.where(new[chosen] == SEVERAL, SEVERAL, -2 - (who[chosen] - 1) // WARP)
        state[cells] = warps
        state[cells[state.take(cells) != warps]] = SEVERAL

    def _remember(self, name: str, touched: Touched, fresh: np.ndarray, site: Site | None = None) -> None:
        """Keep two of those who touch granules. fresh: where nobody had before who matters; site: of a read."""
        cells, who = touched.cells, touched.who
        one, two, other = (array.reshape(-1) for array in (getattr(self, f"{name}_one"), getattr(self, f"{name}_two"), self.other_site))
        if touched.pair is not None:
            one[cells], two[cells] = touched.pair
            if site is not None:
                other[cells] = site.index
            return
        before = one.take(cells)
        moved = (before != who) & ~fresh
        two[cells[fresh]] = 0
        if moved.any():
            two[cells[moved]] = before[moved]
            if site is not None:
                other[cells[moved]] = self.reader_site.reshape(-1).take(cells[moved])
        one[cells] = who
        lost = one.take(cells) != who
        if lost.any():
            two[cells[lost]] = who[lost]
            if site is not None:
                other[cells[lost]] = site.index

    # ------------------------------------------------------------------------------------------- what orders them

    def _stamp(self, name: str, touched: Touched) -> None:
        if self.warp_barriers:
            row = self.cells.row_of(touched.cells)
            getattr(self, name).reshape(-1)[touched.cells] = self.clocks.now(row, np.maximum(touched.who - 1, 0))

    def _unordered(self, m: Machine, touched: Touched, last, conflict, name: str) -> np.ndarray:
        """Leave out pairs that a barrier of some threads orders, or a __syncwarp()."""
        conflict = self._unmet(touched, last, conflict, name)
        if not self.warp_barriers:
            return conflict
        who = touched.who
        mine, theirs = np.maximum(who - 1, 0) // WARP, np.where(last > 0, (last - 1) // WARP, -2 - last)
        turn = getattr(self, f"{name}_turn").reshape(-1).take(touched.cells)
        row = self.cells.row_of(touched.cells)
        ordered = self.clocks.ordered(row, np.maximum(who - 1, 0), np.where(last > 0, last - 1, -1), turn)
        if m.threads <= WARP:
            # Several threads of the only warp are still threads of that warp.
            return conflict & ~ordered
        return conflict & ~(ordered & (mine == theirs) & (who > 0) & (last != SEVERAL))

    def _date(self, name: str, touched: Touched, before: np.ndarray) -> None:
        """Note whose accesses these are, and when. before: where others have been, who stay unless these know of them."""
        if not self.meetings:
            return
        self.time += 1
        cells, who = touched.cells, touched.who
        warps, time = (getattr(self, f"{name}_{what}").reshape(-1) for what in ("warps", "time"))
        stays = self._unmet(touched, np.full(len(cells), SEVERAL), before, name, own=True)
        fresh = cells[~stays]
        warps[fresh], time[fresh] = 0, self.time
        for thread in (who,) if touched.pair is None else touched.pair:
            np.bitwise_or.at(warps, cells, np.left_shift(np.int32(1), (np.maximum(thread, 1) - 1) // WARP, dtype=np.int32))

    def _overwritten(self, touched: Touched, known: int | None = None) -> None:
        """Who writes here knows of all who were here before, or that has been said. known: see `Access`."""
        if self.meetings:
            self.reader.reshape(-1)[touched.cells] = 0
            self._date("writer", touched, np.zeros(len(touched.cells), bool))
            if known is not None:
                self.writer_time.reshape(-1)[touched.cells] = known

    def _unmet(self, touched: Touched, last, conflict, name: str, own: bool = False) -> np.ndarray:
        """Leave out pairs that a barrier of some threads orders, or an mbarrier. own: those of the own warp as well."""
        if not self.meetings or not conflict.any():
            return conflict
        cells = touched.cells[conflict]
        who = (touched.who if touched.pair is None else touched.pair[0])[conflict]
        others, time = (getattr(self, f"{name}_{what}").reshape(-1).take(cells) for what in ("warps", "time"))
        several = (last[conflict] < 0) & ((others & (others - 1)) != 0) & (not own)
        product = last[conflict] <= WARPGROUP
        found = conflict.copy()
        latest = np.maximum(getattr(self, f"{name}_one").reshape(-1).take(cells), 1) - 1
        row, warp = self.cells.row_of(cells), (np.maximum(who, 1) - 1) // WARP
        found[conflict] = self.meetings.unmet(row, warp, others, time, several, product, latest)
        return found

    def _unknown_writes(self, touched: Touched) -> np.ndarray:
        """Which of these granules, where barriers join some of the threads, somebody has written of whom the thread does not know."""
        last = self.writer.reshape(-1).take(touched.cells)
        return self._unmet(touched, last, np.ones(len(last), bool), "writer")

    def reached(self, m: Machine) -> WarpMoment | None:
        if not self.meetings:
            return None
        self.time += 1
        return WarpMoment(self.time - 1, self.meetings.known, self.meetings.gathered)

    def gathered(self, m: Machine) -> None:
        if self.meetings:
            warps = None if m.mask is None else m.warps_active().any(axis=2)
            self.meetings.gather(self.time, warps if warps is None or self.cells.rows > 1 else warps.any(axis=0, keepdims=True))

    def barrier_made(self, m: Machine, access: Access) -> None:
        self.unpublished = True
        self.write(m, access)

    def barrier_used(self, m: Machine, access: Access) -> None:
        """An mbarrier must have been made before other threads use it."""
        if not self.unpublished:
            return
        touched = access.touched(m, self.cells)
        last = self.writer.reshape(-1).take(touched.cells)
        conflict = self._unordered(m, touched, last, self._others(last, touched.who), "writer")
        if conflict.any():
            self._race(m, access, "writer", touched, last, conflict, "uses the mbarrier in", "initialises", MADE_ADVICE)

    def barrier(self, m: Machine, rows=None) -> None:
        if self.empty:
            return
        if rows is None or rows.all():
            self.writer[:] = 0
            self.reader[:] = 0
            self.empty, self.unpublished = True, False
            if self.copies:
                self.copied[self.copied == STARTED] = PASSED
            return
        self.cells.expand(m)
        if self.copies:
            self.copied[(self.copied == STARTED) & rows[:, None]] = PASSED
        self.writer[rows] = 0
        self.reader[rows] = 0

    cluster_passed = barrier

    def acquire(self, m: Machine) -> None:
        """Races behind an acquire may be missed; none is made up."""
        self.barrier(m, None if m.mask is None else m.rows_of(m.mask).any(axis=1))

    def looked(self, m: Machine, site: Site) -> None:
        """A lock or a flag in shared memory, with fences: who releases it is not tracked."""
        if self.fenced and (site.generic or site.space == "shared"):
            self.acquire(m)

    def barrier_of_some(self, m: Machine, arrivals: list[Arrivals], rows: np.ndarray, number: int | None = None) -> None:
        if not self.meetings:
            return
        if self.cells.rows == 1 and any((came.threads != came.threads[:1]).any() for came in arrivals):
            self.cells.expand(m)
        self.time += 1
        for came in arrivals:
            if came.arrives:
                self.handed |= grouped(came.threads).any(axis=0)
        self.meetings.meet(arrivals)

    def waited(self, m: Machine, barrier: PhaseBarrier, rows: np.ndarray, lanes: np.ndarray) -> None:
        chosen = np.zeros(m.blocks, bool)
        chosen[rows] = True
        if barrier.surplus:
            self.too_few = TOO_FEW_ADVICE.format(barrier.line)
        arrivals = [Arrivals(threads, False, moment) for threads, moment in barrier.arrivals(m, chosen)]
        if arrivals:
            waiting = np.zeros((m.blocks, m.threads), bool)
            waiting.reshape(-1)[lanes] = True
            self.barrier_of_some(m, [*arrivals, Arrivals(waiting, True, self.reached(m), arrives=False)], chosen)

    def warp_barrier(self, m: Machine, masks=None) -> None:
        if m.mask is None and self.cells.rows == 1 and (masks is None or (masks == masks[:1]).all()):
            self.clocks.meet(None if masks is None else masks[:1], None)
            return
        self.cells.expand(m)
        self.clocks.meet(masks, None if m.mask is None else m.warps_active())

    # -------------------------------------------------------------------------------------------------- finding

    def _race(
        self, m: Machine, access: Access, name: str, touched: Touched, last, conflict, verb: str, other_verb: str, advice=None
    ) -> None:
        """Report the first of the accesses that meet earlier ones (name: by the writer or the reader) with no order between."""
        conflict = without_strays(self.cells, touched.cells, conflict)
        if not conflict.any():
            return
        i = first(conflict)
        cell, site = touched.cells[i], access.site
        block, _, offset = self.cells.place(m, touched, i)
        who, other_who, at_other = self._pair(m, name, touched, i, int(last[i]))
        sites = self.other_site if at_other and name == "reader" else getattr(self, f"{name}_site")
        other = self.sites[int(sites.reshape(-1)[cell])]
        thread = m.thread_position(max(who - 1, 0))
        other_thread = f"thread {m.thread_position(other_who - 1)}" if other_who > 0 else "another thread"
        missing = "with no barrier between"
        if name == "writer" and other.op is AccessKind.COPY and (wait := int(self.copied.reshape(-1)[cell]) - WAITED) >= 0:
            missing, advice = self._behind_its_wait(wait)
        advice = advice or (self.meetings and _of_copies(site, other)) or (UPDATE_ADVICE if _updates(site, other) else self._ordering(
            m, name, cell, who, other_who, touched.who[conflict], last[conflict], verb
        ))  # fmt: skip
        m.findings.add(
            "race", site.line,
            f"Thread {thread} {verb} {self.cells.at(offset)}, which {other_thread} {other_verb} at {line_of(site, other)} {missing}.",
            other_line=other.line, block=block, thread=thread, count=int(np.count_nonzero(conflict)), sites=(site, other),
            advice=for_block(m, advice or ADVISED["race"]),
        )  # fmt: skip

    def _behind_its_wait(self, position: int) -> tuple[str, str]:
        """What is missing, and what to do, where a copy was waited for after a barrier, and none has come since. position: of the wait."""
        program = self.launch.program
        if position in program.late_waits:
            return "by a copy for which it waits only behind the barrier", LATE_WAIT_ADVICE
        there = f" at {place}" if (place := place_of(program, position)) else ""
        return f"by a copy for which it waits{there}, with no barrier behind that", NO_BARRIER_ADVICE

    def _pair(self, m: Machine, name: str, touched: Touched, i: int, last: int) -> tuple[int, int, bool]:
        """(a thread + 1 that touches the i-th granule, another that did before or 0, is that the `…_two`?)."""
        who = int(touched.who[i])
        mine = [who] if touched.pair is None else [int(part[i]) for part in touched.pair]
        one, two = (int(getattr(self, f"{name}_{which}").reshape(-1)[touched.cells[i]]) for which in ("one", "two"))
        theirs = [(last, False)] if last > 0 else [(one, False), (two, True)]
        pairs = [(a, b, second) for b, second in theirs for a in mine if b > 0 and a != b]
        if self.warp_barriers and last == SEVERAL and m.threads > WARP:  # those of one warp may be ordered
            pairs = [pair for pair in pairs if (pair[0] - 1) // WARP != (pair[1] - 1) // WARP] or pairs
        return pairs[0] if pairs else (mine[0], 0, False)

    def _ordering(self, m: Machine, name: str, cell: int, who: int, other_who: int, whos, lasts, verb: str) -> str | None:
        """What puts the two accesses in order; of two writes that nobody reads between, that one may be of a wrong element."""
        said = self._advice(m, name, cell, who, other_who, whos, lasts) or (None if verb == "reads" else OTHER_PLACES)
        unread = name == "writer" and verb in ("writes", "starts a copy to") and not self.reader.reshape(-1)[cell]
        return f"{TWO_WRITES_ADVICE} {said}" if unread else said

    def _advice(self, m: Machine, name: str, cell: int, who: int, other_who: int, whos, lasts) -> str | None:
        """What to do, if it is not to call __syncthreads(), or __syncwarp() in a block of one warp. whos, lasts: all that race, as the
        arrays have them."""
        mine, theirs = (whos - 1) // WARP, np.where(lasts > 0, (lasts - 1) // WARP, -2 - lasts)
        within = m.threads <= WARP or bool(((mine == theirs) & (whos > 0)).all())
        passed = False
        if self.warp_barriers and who > 0 and other_who > 0:
            row = self.cells.row_of(cell)
            passed = self.clocks.now(row, other_who - 1) > getattr(self, f"{name}_turn").reshape(-1)[cell]
        if within and passed:
            return PARTIAL_ADVICE
        if m.threads <= WARP:
            return ONE_WARP_ADVICE
        if within:
            return LANES_OR_ALL_ADVICE if self.meetings else WARP_ADVICE
        if self.meetings:
            met = other_who > 0 and self._warp_is_met(name, cell, max(who, 1) - 1, other_who - 1)
            of_copies = np.count_nonzero(self.handed) == 1  # who announces their bytes
            return LANES_ADVICE if met else self.too_few or unheeded(m) or (COPIES_ALONE_ADVICE if of_copies else MEETING_ADVICE)
        return WARP_IS_NOT_ENOUGH if passed else None

    def _warp_is_met(self, name: str, cell: int, thread: int, other: int) -> bool:
        """Does the warp of `thread` know of somebody in the warp of `other`, who touched the granule?"""
        met = self.meetings.known.known[self.cells.row_of(cell), thread // WARP, other // WARP]
        return bool(met >= getattr(self, f"{name}_time").reshape(-1)[cell])


def _of_copies(later: Site, earlier: Site) -> str | None:
    """What to do where a copy from shared memory races with stores to its source, which one thread begins for others."""
    if later.op is AccessKind.BULK_STORE and earlier.op is not AccessKind.BULK_LOAD:
        return STORED_ADVICE
    return COPIED_OUT_ADVICE if earlier.op is AccessKind.BULK_STORE and later.op is not AccessKind.BULK_LOAD else None


def _updates(one: Site, other: Site) -> bool:
    """Are they the read and the write of a statement like s[i] += 1?"""
    return one.line == other.line and one.address == other.address and {one.op, other.op} == {AccessKind.LOAD, AccessKind.STORE}
