"""Races between the blocks of a cluster: which accesses to shared memory are ordered across blocks.

Every block has a clock, and knows of every other block of its cluster up to which time what that one did is ordered
before what it does next itself (a vector clock per block). A release (arriving at a cluster barrier or at an mbarrier of
another block, a fence) publishes what a block knows; waiting there takes it over. Each granule of shared memory remembers
who touched it last and when. An access that meets another block's, one of them a write, is a race if the block does not
know of it. The beginning of a block is time 0, its end is like a write to all its shared memory: so an access before the
other block has begun, or after it may have ended, is seen as well.

Threads of one block count as one here (`shared_races` tells them apart), so an order that only some of
them have is taken for an order of all. That can miss a race, never invent one.
"""

from __future__ import annotations

import numpy as np

from .accesses import CHUNK, Access, MatrixAccess, PieceAccess, RemoteAccess
from .observer import SharedCheck
from .protocols import Machine, PhaseBarrier
from .shared_cells import SharedCells, first, line_of

READ, WRITE, UPDATE = "reads", "writes", "updates"
NEVER = -1  # known of a block that one has not synchronised with yet
ADVICE = "Put cluster.sync(), or a wait for an mbarrier that the other block arrives at, between the two accesses."
ADVICE_FIRST = "Call cluster.sync() before the first access to another block's shared memory."
ADVICE_LAST = "Call cluster.sync() before the kernel ends, so that no block ends while others use its shared memory."


class Order:
    """What the blocks of a chunk know of each other. known: [blocks, ranks], time up to which the rank's past is ordered."""

    def __init__(self, m: Machine):
        self.rank, self.rows = m.clusters.rank, m.clusters.rows
        self.clock = np.ones(m.blocks, np.int64)
        self.known = np.full((m.blocks, m.clusters.size), NEVER, np.int64)
        self.published = self.known.copy()  # by the latest fence: what a relaxed arrival gives away
        self.published[np.arange(m.blocks), self.rank] = 0

    def release(self, rows: np.ndarray) -> np.ndarray:
        """What the blocks `rows` publish, [len(rows), ranks]; what they do from now on comes later."""
        given = self.known[rows].copy()
        given[np.arange(len(rows)), self.rank[rows]] = self.clock[rows]
        self.clock[rows] += 1
        return given

    def acquire(self, rows: np.ndarray, given: np.ndarray) -> None:
        """The blocks `rows` learn what was given, [len(rows), ranks]."""
        self.known[rows] = np.maximum(self.known[rows], given)

    def fence(self, rows: np.ndarray, acquires: bool = True) -> None:
        """A fence of some thread of each block. What it has seen before is not tracked: it may be all that was released."""
        if acquires:
            clock = self.clock[self.rows[rows]]
            self.acquire(rows, np.where(clock > 1, clock - 1, NEVER))
        self.published[rows] = np.maximum(self.published[rows], self.release(rows))


class ClusterRaces(SharedCheck):
    """Who of a cluster touched each granule last: its last writer, its block's own last read, and the last read by another.

    Flat arrays over [blocks, granules]; a rank is kept plus one, 0 for nobody; a time of 0 means never. A chunk with clusters
    is not divided.
    """

    order = 5
    watched_natively = True

    def __init__(self, m: Machine, launch, cells: SharedCells):
        super().__init__(m, launch, cells)
        self.order_of_blocks = Order(m)
        self.granule, self.count = cells.granule, cells.count
        self.sites = launch.program.sites
        self.atomic = np.array([site.atomic for site in self.sites], bool)
        places = m.blocks * self.count
        self.writer, self.reader = np.zeros(places, np.int8), np.zeros(places, np.int8)
        self.writer_time, self.writer_site = np.zeros(places, np.int32), np.zeros(places, np.int32)
        self.reader_time, self.reader_site = np.zeros(places, np.int32), np.zeros(places, np.int32)
        self.own_time, self.own_site = np.zeros(places, np.int32), np.zeros(places, np.int32)
        self.barrier_gives = np.full((m.blocks, m.clusters.size), NEVER, np.int64)  # given to the cluster barrier, by block
        self.given: dict[int, np.ndarray] = {}  # the same by mbarrier (its id) and the block it lies in

    @classmethod
    def wanted(cls, launch) -> bool:
        return "cluster" in launch.program.uses

    # ---------------------------------------------------------------------------------------------- what orders blocks

    def cluster_arrived(self, m: Machine, releases: bool) -> None:
        rows, order = _active_rows(m), self.order_of_blocks
        self._give_all(m, rows, order.release(rows) if releases else order.published[rows])

    def cluster_left(self, m: Machine, rows: np.ndarray) -> None:
        """The cluster's barrier has waited for their end, so it orders what they did."""
        self._give_all(m, rows, self.order_of_blocks.release(rows))

    def _give_all(self, m: Machine, rows, given) -> None:
        others = m.clusters.rows[rows]
        np.maximum.at(self.barrier_gives, others.reshape(-1), np.repeat(given, others.shape[1], axis=0))

    def cluster_passed(self, m: Machine, rows: np.ndarray) -> None:
        chosen = np.flatnonzero(rows)
        self.order_of_blocks.acquire(chosen, self.barrier_gives[chosen])

    def fence(self, m: Machine, acquires: bool = True) -> None:
        self.order_of_blocks.fence(_active_rows(m), acquires)

    def acquire(self, m: Machine) -> None:
        self.fence(m)

    def arrived(self, m: Machine, barrier: PhaseBarrier, rows: np.ndarray, lanes: np.ndarray) -> None:
        given = self.given.setdefault(id(barrier), np.full((m.blocks, m.clusters.size), NEVER, np.int64))
        blocks, who = np.unique(lanes // m.threads, return_inverse=True)
        np.maximum.at(given, rows, self.order_of_blocks.release(blocks)[who])

    def waited(self, m: Machine, barrier: PhaseBarrier, rows: np.ndarray, lanes: np.ndarray) -> None:
        given = self.given.get(id(barrier))
        if given is not None:
            blocks = np.unique(rows)
            self.order_of_blocks.acquire(blocks, given[blocks])

    # ----------------------------------------------------------------------------------------------------- accesses

    def read(self, m: Machine, access: Access) -> None:
        self._access(m, access, READ)

    def write(self, m: Machine, access: Access) -> None:
        self._access(m, access, WRITE)

    copy_started = barrier_made = write

    def update(self, m: Machine, access: Access) -> None:
        self._access(m, access, UPDATE)

    def matrix_read(self, m: Machine, access: MatrixAccess) -> None:
        granules, order = access.granules(self.granule), self.order_of_blocks
        blocks = np.flatnonzero(access.blocks)
        cells = blocks[:, None] * self.count + granules
        last = self.writer[cells]
        if ((last != 0) & (last != order.rank[blocks, None] + 1)).any():
            rows, offsets = np.repeat(blocks, len(granules)), np.tile(granules, len(blocks)) * self.granule
            self._touch(m, access.site, rows, rows, offsets, np.full(len(rows), access.thread), self.granule, READ)
            return
        self.own_time[cells], self.own_site[cells] = order.clock[blocks, None], access.site.index

    matrix_done = matrix_read  # other blocks may have written there until now

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
        foreign = actors != targets
        unmet = foreign & (order.known[actors, order.rank[targets]] == NEVER)
        span = max(1, width // self.granule)
        cells = targets * self.count + offsets // self.granule
        if span > 1:
            cells = (cells[:, None] + np.arange(span)).reshape(-1)
            actors, targets, threads, foreign, unmet = (np.repeat(a, span) for a in (actors, targets, threads, foreign, unmet))
        mine = order.rank[actors] + 1
        now = order.clock[actors]
        who = cells, actors, targets, threads, mine, verb
        met = self._meet(m, site, self.writer[cells], self.writer_time, self.writer_site, *who, WRITE)
        if verb != READ:
            met |= self._meet(m, site, self.reader[cells], self.reader_time, self.reader_site, *who, READ)
            owner = np.where(self.own_time[cells] > 0, order.rank[targets] + 1, 0)
            met |= self._meet(m, site, owner, self.own_time, self.own_site, *who, READ)
        if unmet.any():
            if not met:
                i = first(unmet)
                offset = int(cells[i]) % self.count * self.granule
                message = f"{self._who(m, actors[i], threads[i], targets[i], offset, verb)}, which may not have begun to run."
                self._add(m, site, message, None, actors[i], threads[i], unmet, ADVICE_FIRST)
            order.acquire(actors[unmet], np.zeros((1, order.known.shape[1]), np.int64))  # say it once
        if verb == READ:
            self.own_time[cells[~foreign]], self.own_site[cells[~foreign]] = now[~foreign], site.index
            there = cells[foreign]
            self.reader[there], self.reader_time[there], self.reader_site[there] = mine[foreign], now[foreign], site.index
            return
        self.writer[cells], self.writer_time[cells], self.writer_site[cells] = mine, now, site.index

    def _meet(self, m, site, last, times, sites, cells, actors, targets, threads, mine, verb, other_verb) -> bool:
        """Report accesses that meet one of another block that theirs does not know of. last: its rank plus one."""
        conflict = (last != 0) & (last != mine)
        if not conflict.any():
            return False
        conflict &= times[cells] > self.order_of_blocks.known[actors, np.maximum(last - 1, 0)]
        if verb == UPDATE or site.atomic:
            conflict &= ~self.atomic[sites[cells]]
        if not conflict.any():
            return False
        i = first(conflict)
        other = self.sites[int(sites[cells[i]])]
        other_block = int(self.order_of_blocks.rows[actors[i], last[i] - 1])
        other_name = "that block" if other_block == targets[i] else f"block {m.block_position(other_block)}"
        offset = int(cells[i]) % self.count * self.granule
        verb_there = UPDATE if self.atomic[other.index] else other_verb
        message = (
            f"{self._who(m, actors[i], threads[i], targets[i], offset, verb)}, which {other_name} {verb_there} at {line_of(site, other)}; "
            "nothing orders the two blocks."
        )
        self._add(m, site, message, other.line, actors[i], threads[i], conflict, ADVICE)
        return True

    def ended(self, m: Machine) -> None:
        """All blocks have ended: was every access to another block's shared memory ordered before that block's end?"""
        order = self.order_of_blocks
        own = np.repeat(order.rank + 1, self.count)
        block = np.repeat(np.arange(m.blocks), self.count)
        for last, times, sites, verb in (
            (self.reader, self.reader_time, self.reader_site, READ), (self.writer, self.writer_time, self.writer_site, WRITE),
        ):  # fmt: skip
            cells = np.flatnonzero((last != 0) & (last != own))
            cells = cells[times[cells] > order.known[block[cells], last[cells] - 1]]
            for index in np.unique(sites[cells]).tolist():
                here = cells[sites[cells] == index]
                site, cell = self.sites[index], int(here[0])
                actor, target = int(order.rows[block[cell], last[cell] - 1]), int(block[cell])
                what = UPDATE if self.atomic[index] else verb
                place = self.cells.at(cell % self.count * self.granule, f" of block {m.block_position(target)}")
                message = f"Block {m.block_position(actor)} {what} {place}, and nothing keeps that block from ending before."
                m.findings.add("race", site.line, message, block=m.block_position(actor), advice=ADVICE_LAST, count=len(here))

    def _who(self, m, actor, thread, target, offset, verb) -> str:
        whose = "its own block" if actor == target else f"block {m.block_position(int(target))}"
        place = self.cells.at(int(offset), f" of {whose}")
        return f"Thread {m.thread_position(int(thread))} of block {m.block_position(int(actor))} {verb} {place}"

    @staticmethod
    def _add(m, site, message, other_line, actor, thread, bad, advice) -> None:
        m.findings.add(
            "race", site.line, message, other_line=other_line, block=m.block_position(int(actor)),
            thread=m.thread_position(int(thread)), advice=advice, count=int(np.count_nonzero(bad)),
        )  # fmt: skip


def _active_rows(m) -> np.ndarray:
    """The chunk's rows of the blocks with active threads."""
    return np.arange(m.blocks) if m.mask is None else np.flatnonzero(m.rows_of(m.mask).any(axis=1))
