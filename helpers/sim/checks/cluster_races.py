"""Races between the blocks of a cluster: which accesses to shared memory are ordered across blocks.

Every warp knows of every warp of its cluster up to which time what that one did is ordered before what it does next itself (a
vector clock per warp; the clock is common). A release (arriving at a cluster barrier or at an mbarrier of another block, a fence)
publishes what a warp knows; waiting there takes it over, and barriers within a block let its warps know of each other. Each granule
of shared memory remembers which warp touched it last and when. An access that meets another block's, one of them a write, is a race
if its warp does not know of it. The beginning of a block is time 0, its end is like a write to all its shared memory: so an access
before the other block has begun, or after it may have ended, is seen as well. A flag that the block has found there came before its end.

Lanes of one warp count as one here, and so do all threads of a block in a very large launch: an order that only some of them have is
taken for an order of all. Of several warps that have read, the last is kept. That can miss a race, never invent one. What threads of
one block do to each other `shared_races` tells.
"""

from __future__ import annotations

import numpy as np

from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.sites import Site

from .accesses import CHUNK, Access, MatrixAccess, PieceAccess, RemoteAccess
from .findings import place_of
from .observer import SharedCheck
from .protocols import Machine, PhaseBarrier
from .shared_cells import SharedCells, first, line_of
from .shared_races import flags_and_atomics
from .warp_meetings import Arrivals, grouped, moves_data

READ, WRITE, UPDATE = "reads", "writes", "updates"
GROUP = 128  # threads of a warpgroup
NEVER = -1  # known of a block that one has not synchronised with yet
MOST = 1 << 22  # pairs of warps that are told apart
BITS = 10  # of a column plus one: at most 16 blocks of 32 warps
ADVICE = "Put cluster.sync(), or a wait for an mbarrier that the other block arrives at, between the two accesses."
ADVICE_FIRST = "Call cluster.sync() before the first access to another block's shared memory."
ADVICE_LAST = "Call cluster.sync() before the kernel ends, so that no block ends while others use its shared memory."
ADVICE_RELAXED = (
    "All threads meet at the cluster's barrier of {}, but they arrive there with .relaxed, which orders no accesses: write "
    "barrier.cluster.arrive.release instead (what cluster.sync() does), or put a fence in front of it: fence.acq_rel.cluster, or "
    "fence.mbarrier_init.release.cluster where all that others must see is that mbarriers are initialised."
)


class Order:
    """What the warps of a chunk know of each other, in groups: warps, or whole blocks where that would be too much to keep.

    known: [blocks, groups, columns], time up to which the past of a group of the cluster is ordered; its column is rank * groups +
    its number in the block. published: the same, by the latest fence: what a relaxed arrival gives away. released: [blocks,
    columns], all that a block has ever published. now: accesses that have happened have at most this time.
    """

    def __init__(self, m: Machine):
        self.rank, self.rows, self.members = m.clusters.rank, m.clusters.rows, m.clusters.members
        warps = -(-m.threads // WARP)
        self.size = WARP if m.blocks * m.clusters.size * warps**2 <= MOST else m.threads
        self.groups = -(-m.threads // self.size)
        self.own = self.rank[:, None] * self.groups + np.arange(self.groups)
        self.known = np.full((m.blocks, self.groups, m.clusters.size * self.groups), NEVER, np.int32)
        self.known[np.arange(m.blocks)[:, None], :, self.own] = 0
        self.published = self.known.copy()
        self.released = np.full((m.blocks, self.known.shape[2]), NEVER, np.int32)
        self.now = 1
        self.begun = False  # does everybody know that all others have begun?

    def column(self, rows: np.ndarray, groups: np.ndarray) -> np.ndarray:
        return self.rank[rows] * self.groups + groups

    def active(self, m: Machine) -> tuple[np.ndarray, np.ndarray]:
        """(blocks, groups) with active threads, one element per group."""
        if m.mask is None:
            return np.repeat(np.arange(m.blocks), self.groups), np.tile(np.arange(self.groups), m.blocks)
        return np.nonzero(grouped(np.broadcast_to(m.rows_of(m.mask), (m.blocks, m.threads)), self.size))

    def done(self, rows: np.ndarray, groups: np.ndarray) -> np.ndarray:
        """What groups have done and know, [n, columns]; what they do from now on comes later."""
        given = self.known[rows, groups]
        given[np.arange(len(rows)), self.column(rows, groups)] = self.now
        self.now += 1
        return given

    def release(self, rows: np.ndarray, groups: np.ndarray) -> np.ndarray:
        """What groups publish, [n, columns]."""
        given = self.done(rows, groups)
        np.maximum.at(self.released, rows, given)
        return given

    def acquire(self, rows: np.ndarray, groups: np.ndarray, given: np.ndarray) -> None:
        """Groups learn what was given, [n, columns]."""
        self.known[rows, groups] = np.maximum(self.known[rows, groups], given)

    def fence(self, rows: np.ndarray, groups: np.ndarray, acquires: bool = True) -> None:
        """A fence of some thread of each group. What it has seen before is not tracked: it may be all that was released."""
        if acquires:
            self.acquire(rows, groups, self.released[self.rows[rows]].max(axis=1))
        self.published[rows, groups] = np.maximum(self.published[rows, groups], self.release(rows, groups))

    def meet(self, rows: np.ndarray, waiting: np.ndarray, arrived: np.ndarray) -> None:
        """Within blocks: those who wait ([len(rows), groups], boolean) learn what those who have arrived did and knew."""
        known = self.known[rows]
        told = np.where(arrived[:, :, None], known, NEVER).max(axis=1)
        here, own = np.arange(len(rows))[:, None], self.own[rows]
        told[here, own] = np.maximum(told[here, own], np.where(arrived, np.int32(self.now), NEVER))
        self.known[rows] = np.where(waiting[:, :, None], np.maximum(known, told[:, None]), known)
        self.now += 1

    def unbegun(self, actors: np.ndarray, groups: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Where a group does not know that another block has begun."""
        if not self.begun:
            self.begun = bool((self.known != NEVER).all())
        if self.begun:
            return np.zeros(len(actors), bool)
        heard = (self.known != NEVER).reshape(*self.known.shape[:2], -1, self.groups).any(axis=3)
        return ~heard[actors, groups, self.rank[targets]]


class ClusterRaces(SharedCheck):
    """Who of a cluster touched each granule last: its last writer, its block's own last read, and the last read by another.

    Flat arrays over [blocks, granules]; a column of `Order` is kept plus one, 0 for nobody; a time of 0 means never. A chunk with
    clusters is not divided.
    """

    order = 5
    watched_natively = True

    def __init__(self, m: Machine, launch, cells: SharedCells):
        super().__init__(m, launch, cells)
        self.order_of_blocks = Order(m)
        self.granule, self.count = cells.granule, cells.count
        self.sites, self.flag_stores = launch.program.sites, launch.program.flag_stores
        self.atomic = flags_and_atomics(launch.program)
        # Looks at flags that decide something: a block that polls does not end before what it waits for has come.
        self.looks = self.atomic & np.isin(np.arange(len(self.sites)), list(launch.program.decisive))
        places = m.blocks * self.count
        self.seen = np.zeros(places, bool)  # has the block itself looked there since the last write?
        self.fenced = "fence" in launch.program.uses
        self.writer, self.reader = np.zeros(places, np.int16), np.zeros(places, np.int16)
        # When a warpgroup (its first thread, its blocks) has met for the products of this wait.
        self.joined: dict[tuple[int, bytes], int] = {}
        self.writer_time, self.writer_site = np.zeros(places, np.int32), np.zeros(places, np.int32)
        self.reader_time, self.reader_site = np.zeros(places, np.int32), np.zeros(places, np.int32)
        self.own_time, self.own_code = np.zeros(places, np.int32), np.zeros(places, np.int32)
        self.barrier_gives = np.full_like(self.order_of_blocks.released, NEVER)  # given to the cluster barrier, by block
        # The same, had those released who arrived with .relaxed: given and passed, by the position of the arrival.
        self.withheld: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self.given: dict[int, np.ndarray] = {}  # the same by mbarrier (its id) and the block it lies in

    @classmethod
    def wanted(cls, launch) -> bool:
        return "cluster" in launch.program.uses

    # ---------------------------------------------------------------------------------------------- what orders blocks

    def cluster_arrived(self, m: Machine, releases: bool, position: int) -> None:
        order = self.order_of_blocks
        rows, groups = order.active(m)
        if releases:
            self._give_all(self.barrier_gives, rows, order.release(rows, groups))
            return
        self._give_all(self.barrier_gives, rows, order.published[rows, groups])
        if position not in self.withheld:
            self.withheld[position] = np.full_like(self.barrier_gives, NEVER), np.full_like(self.barrier_gives, NEVER)
        self._give_all(self.withheld[position][0], rows, order.done(rows, groups))

    def cluster_left(self, m: Machine, rows: np.ndarray) -> None:
        """The cluster's barrier has waited for their end, so it orders what they did."""
        order = self.order_of_blocks
        rows, groups = np.repeat(rows, order.groups), np.tile(np.arange(order.groups), len(rows))
        self._give_all(self.barrier_gives, rows, order.release(rows, groups))

    def _give_all(self, gives: np.ndarray, rows, given) -> None:
        every = np.full_like(gives, NEVER)
        np.maximum.at(every, rows, given)
        members = self.order_of_blocks.members
        gives[members] = np.maximum(gives[members], every[members].max(axis=1, keepdims=True))

    def cluster_passed(self, m: Machine, rows: np.ndarray) -> None:
        known = self.order_of_blocks.known
        known[rows] = np.maximum(known[rows], self.barrier_gives[rows][:, None])
        for given, passed in self.withheld.values():
            passed[rows] = given[rows]

    def _relaxed_between(self, row: int, column: int, time: int) -> str:
        """What to do where only .relaxed keeps a cluster's barrier from ordering an access before what the block `row` does; "" if there is
        none. column, time: of the access."""
        for position, (_, passed) in self.withheld.items():
            if passed[row, column] >= time and (place := place_of(self.launch.program, position)):
                return ADVICE_RELAXED.format(place)
        return ""

    def fence(self, m: Machine, acquires: bool = True) -> None:
        self.order_of_blocks.fence(*self.order_of_blocks.active(m), acquires)

    def acquire(self, m: Machine) -> None:
        self.fence(m)
        self._look_around(m)

    def looked(self, m: Machine, site: Site) -> None:
        """A lock or a flag, with fences: which warp of the own block released it is not tracked."""
        if self.fenced and (site.generic or site.space in ("shared", "cluster")):
            if not site.relaxed:
                order = self.order_of_blocks
                rows, groups = order.active(m)
                order.acquire(rows, groups, order.released[order.rows[rows]].max(axis=1))
            self._look_around(m)

    def _look_around(self, m: Machine) -> None:
        order = self.order_of_blocks
        looking = np.zeros((m.blocks, order.groups), bool)
        looking[order.active(m)] = True
        there = np.flatnonzero(looking.any(axis=1))
        order.meet(there, looking[there], np.ones((len(there), order.groups), bool))

    def arrived(self, m: Machine, barrier: PhaseBarrier, rows: np.ndarray, lanes: np.ndarray, releases: bool = True) -> None:
        order = self.order_of_blocks
        given = self.given.setdefault(id(barrier), np.full_like(order.released, NEVER))
        per = order.groups
        pairs = np.unique(rows * (m.blocks * per) + lanes // m.threads * per + lanes % m.threads // order.size)
        targets, blocks, groups = pairs // (m.blocks * per), pairs // per % m.blocks, pairs % per
        np.maximum.at(given, targets, order.release(blocks, groups) if releases else order.published[blocks, groups])

    def waited(self, m: Machine, barrier: PhaseBarrier, rows: np.ndarray, lanes: np.ndarray) -> None:
        order, chosen = self.order_of_blocks, np.zeros(m.blocks, bool)
        chosen[rows] = True
        waiting = self._groups(m, lanes)
        there = np.flatnonzero(waiting.any(axis=1))
        order.meet(there, waiting[there], grouped(barrier.arrivers(m, chosen)[there], order.size))
        given = self.given.get(id(barrier))
        if given is not None:
            blocks, groups = np.nonzero(waiting)
            order.acquire(blocks, groups, given[blocks])

    def _groups(self, m: Machine, lanes: np.ndarray) -> np.ndarray:
        """[blocks, groups]: those of these lanes."""
        found = np.zeros((m.blocks, self.order_of_blocks.groups), bool)
        found[lanes // m.threads, lanes % m.threads // self.order_of_blocks.size] = True
        return found

    def barrier(self, m: Machine, rows: np.ndarray | None = None) -> None:
        there = np.arange(m.blocks) if rows is None else np.flatnonzero(rows)
        everybody = np.ones((len(there), self.order_of_blocks.groups), bool)
        self.order_of_blocks.meet(there, everybody, everybody)

    def barrier_of_some(self, m: Machine, arrivals: list[Arrivals], rows: np.ndarray, number: int | None = None) -> None:
        there, order = np.flatnonzero(rows), self.order_of_blocks
        waiting, arrived = (np.zeros((len(there), order.groups), bool) for _ in range(2))
        for came in arrivals:
            groups = grouped(np.broadcast_to(came.threads, (m.blocks, m.threads))[there], order.size)
            waiting |= groups & came.waits
            arrived |= groups & came.arrives
        order.meet(there, waiting, arrived)

    # ----------------------------------------------------------------------------------------------------- accesses

    def read(self, m: Machine, access: Access) -> None:
        self._access(m, access, READ)

    def write(self, m: Machine, access: Access) -> None:
        self._access(m, access, WRITE)

    copy_started = barrier_made = write

    def update(self, m: Machine, access: Access) -> None:
        self._access(m, access, UPDATE)

    def matrix_read(self, m: Machine, access: MatrixAccess) -> None:
        self._matrix(m, access, self.order_of_blocks.now)

    def _matrix(self, m: Machine, access: MatrixAccess, now: int) -> None:
        granules, order = access.granules(self.granule), self.order_of_blocks
        blocks = np.flatnonzero(access.blocks)
        cells = blocks[:, None] * self.count + granules
        last = self.writer.take(cells)
        if last.any() and ((last != 0) & ((last - 1) // order.groups != order.rank[blocks, None])).any():
            rows, offsets = np.repeat(blocks, len(granules)), np.tile(granules, len(blocks)) * self.granule
            self._touch(m, access.site, rows, rows, offsets, np.full(len(rows), access.thread), self.granule, READ)
            return
        self.own_time[cells] = now
        self.own_code[cells] = (access.site.index << BITS) + order.column(blocks, access.thread // order.size)[:, None] + 1

    def matrix_done(self, m: Machine, access: MatrixAccess) -> None:
        """Other blocks may have written there until now. Each warp of the warpgroup knows that all of them have come so far."""
        order, which = self.order_of_blocks, (access.thread, access.blocks.tobytes())
        known = self.joined.setdefault(which, order.now)
        self._matrix(m, access, known)
        if known < order.now:
            return
        blocks = np.flatnonzero(access.blocks)
        groups = np.zeros((len(blocks), order.groups), bool)
        groups[:, access.thread // order.size : (access.thread + GROUP - 1) // order.size + 1] = True
        order.meet(blocks, groups, groups)

    def products_awaited(self, m: Machine, pending: int) -> None:
        self.joined.clear()

    def bulk_landed(self, m: Machine, access: PieceAccess, barrier: PhaseBarrier) -> None:
        offsets = access.piece.units(CHUNK)
        self._landed(np.repeat(access.piece.rows, offsets.shape[1]), offsets.reshape(-1), CHUNK)

    def remote_store_landed(self, m: Machine, access: RemoteAccess) -> None:
        self._landed(access.rows, access.offsets, access.width)

    def _landed(self, targets, offsets, width: int) -> None:
        """Data of an asynchronous operation has been waited for by the block it came to (flat arrays, one element per place)."""
        cells = (targets * self.count + offsets // self.granule)[:, None] + np.arange(max(1, width // self.granule))
        self.writer[cells] = 0

    def _access(self, m: Machine, access: Access, verb: str) -> None:
        if isinstance(access, PieceAccess):
            self._touch(m, access.site, *access.by_block(m), CHUNK, verb)
            return
        site, offsets, mask, width = access.site, access.offsets, access.mask, access.width
        if not access.remote and mask is None and offsets.size == 1:
            rows = np.arange(m.blocks)
            self._touch(m, site, rows, rows, np.full(m.blocks, offsets.item()), np.zeros(m.blocks, np.int64), width, verb)
            return
        places, where = m.rows_of(offsets), m.rows_of(access.rows if access.remote else m.block_index)
        actors = np.broadcast_to(np.arange(m.blocks)[:, None], places.shape)
        threads = np.broadcast_to(np.arange(m.threads), places.shape)
        if mask is not None:
            chosen = m.rows_of(mask)
            places, where, actors, threads = places[chosen], where[chosen], actors[chosen], threads[chosen]
        self._touch(m, site, actors.reshape(-1), where.reshape(-1), places.reshape(-1), threads.reshape(-1), width, verb)

    def _touch(self, m, site, actors, targets, offsets, threads, width, verb) -> None:
        """Note and check accesses, one per element of flat arrays: threads of the blocks `actors` (rows) touch `width` bytes
        at offsets in shared memory of the blocks `targets`."""
        order = self.order_of_blocks
        foreign, groups = actors != targets, threads // order.size
        unmet = foreign & order.unbegun(actors, groups, targets) if foreign.any() else foreign
        span = max(1, width // self.granule)
        cells = targets * self.count + offsets // self.granule
        if span > 1:
            cells = (cells[:, None] + np.arange(span)).reshape(-1)
            actors, targets, threads, groups, foreign, unmet = (
                np.repeat(a, span) for a in (actors, targets, threads, groups, foreign, unmet)
            )
        mine = order.column(actors, groups) + 1
        if site.volatile and verb == WRITE and self.fenced and cells.size:
            blocks, flag = actors * m.threads, site.index in self.flag_stores
            self.atomic[site.index] = flag or not moves_data(cells, blocks + threads, blocks + threads // WARP)
        who = cells, actors, targets, threads, groups, verb
        met = self._meet(m, site, self.writer[cells], self.writer_time, self.writer_site, 0, *who, WRITE)
        if verb != READ:
            met |= self._meet(m, site, self.reader[cells], self.reader_time, self.reader_site, 0, *who, READ)
            met |= self._meet(m, site, self.own_code[cells] & (1 << BITS) - 1, self.own_time, self.own_code, BITS, *who, READ)
        if unmet.any():
            if not met:
                i = first(unmet)
                offset = int(cells[i]) % self.count * self.granule
                message = f"{self._who(m, actors[i], threads[i], targets[i], offset, verb)}, which may not have begun to run."
                self._add(m, site, message, None, actors[i], threads[i], unmet, ADVICE_FIRST)
            order.known[actors[unmet]] = np.maximum(order.known[actors[unmet]], 0)  # say it once
        if verb == READ:
            own = cells[~foreign]
            self.own_code[own], self.own_time[own] = (site.index << BITS) + mine[~foreign], order.now
            if self.looks[site.index]:
                self.seen[own] = True
            there = cells[foreign]
            self.reader[there], self.reader_time[there], self.reader_site[there] = mine[foreign], order.now, site.index
            return
        self.writer[cells], self.writer_time[cells], self.writer_site[cells] = mine, order.now, site.index
        self.seen[cells] = False

    def _meet(self, m, site, last, times, sites, shift, cells, actors, targets, threads, groups, verb, other_verb) -> bool:
        """Report accesses that meet one of another block that theirs does not know of. last: its column plus one. shift: where the
        number of the site begins in `sites`."""
        order = self.order_of_blocks
        conflict = (last != 0) & ((last - 1) // order.groups != order.rank[actors])
        if not conflict.any():
            return False
        conflict &= times[cells] > order.known[actors, groups, np.maximum(last - 1, 0)]
        if verb == UPDATE or self.atomic[site.index]:
            conflict &= ~self.atomic[sites[cells] >> shift]
        if not conflict.any():
            return False
        i = first(conflict)
        other = self.sites[int(sites[cells[i]]) >> shift]
        other_block = int(order.rows[actors[i], (last[i] - 1) // order.groups])
        other_name = "that block" if other_block == targets[i] else f"block {m.block_position(other_block)}"
        offset = int(cells[i]) % self.count * self.granule
        verb_there = UPDATE if self.atomic[other.index] else other_verb
        message = (
            f"{self._who(m, actors[i], threads[i], targets[i], offset, verb)}, which {other_name} {verb_there} at {line_of(site, other)}; "
            "nothing orders the two blocks."
        )
        advice = self._relaxed_between(actors[i], last[i] - 1, times[cells[i]]) or ADVICE
        self._add(m, site, message, other, actors[i], threads[i], conflict, advice)
        return True

    def ended(self, m: Machine) -> None:
        """All blocks have ended: was every access to another block's shared memory ordered before that block's end?"""
        order = self.order_of_blocks
        own = np.repeat(order.rank, self.count)
        block, known = np.repeat(np.arange(m.blocks), self.count), order.known.max(axis=1)
        for last, times, sites, verb in (
            (self.reader, self.reader_time, self.reader_site, READ), (self.writer, self.writer_time, self.writer_site, WRITE),
        ):  # fmt: skip
            cells = np.flatnonzero((last != 0) & ((last - 1) // order.groups != own))
            cells = cells[times[cells] > known[block[cells], last[cells] - 1]]
            if verb == WRITE:
                cells = cells[~self.seen[cells]]
            for index in np.unique(sites[cells]).tolist():
                here = cells[sites[cells] == index]
                site, cell = self.sites[index], int(here[0])
                actor, target = int(order.rows[block[cell], (last[cell] - 1) // order.groups]), int(block[cell])
                what = UPDATE if self.atomic[index] else verb
                place = self.cells.at(cell % self.count * self.granule, f" of block {m.block_position(target)}")
                relaxed = self._relaxed_between(target, last[cell] - 1, times[cell])
                ordered = "nothing orders that before the end of that block" if relaxed else "nothing keeps that block from ending before"
                m.findings.add(
                    "race", site.line, f"Block {m.block_position(actor)} {what} {place}, and {ordered}.", block=m.block_position(actor),
                    advice=relaxed or ADVICE_LAST, count=len(here), sites=(site,),
                )  # fmt: skip

    def _who(self, m, actor, thread, target, offset, verb) -> str:
        whose = "its own block" if actor == target else f"block {m.block_position(int(target))}"
        place = self.cells.at(int(offset), f" of {whose}")
        return f"Thread {m.thread_position(int(thread))} of block {m.block_position(int(actor))} {verb} {place}"

    @staticmethod
    def _add(m, site, message, other, actor, thread, bad, advice) -> None:
        m.findings.add(
            "race", site.line, message, other_line=other and other.line, block=m.block_position(int(actor)),
            thread=m.thread_position(int(thread)), advice=advice, count=int(np.count_nonzero(bad)), sites=(site, other),
        )  # fmt: skip
