"""Races between threads of one launch in device memory.

For each granule of the arrays that the launch writes, the check keeps who wrote it, who read it and when. "When" is a count
of the accesses so far. Two accesses of one block are ordered by a barrier between them that joins their threads; two of
different blocks by an acquire of the later one's block between them, and a fence (or .release) behind the earlier one, which
its thread, or one that knows of it by a barrier, executes before the flag is written (`released.py`). An acquire is an
atomic operation, a volatile or acquiring read, either of them said to be relaxed with a fence behind it, the barrier of a
grid or cluster. Within a block a look is enough where the kernel has such fences; where it has only those of the block (.cta), the
earlier access must be released by one of them, and the later one's thread, or one that it knows of, must acquire. Which flag
released what to whom is not tracked. That can only miss a race, never make one up: in the machine, whatever happens before an
access has also been executed before it.

What a bulk copy writes, it writes when its thread has waited for it (wait_group, without .read), and at no time before: until then
not even its own thread may look. What a bulk copy reads it does not see if ordinary stores have written it and no fence.proxy.async
stands between, of a thread of either block. When it has read, whoever waits at its mbarrier knows.
"""

from __future__ import annotations

from array import array
from weakref import WeakKeyDictionary

import numpy as np

from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.sites import AccessKind

from .accesses import Access, BulkDeviceAccess, DeviceAccess, PieceAccess
from .device_arrays import ANY
from .device_places import TouchedDevice
from .observer import DeviceCheck
from .protocols import Machine, PhaseBarrier
from .released import Released
from .shared_cells import first, line_of
from .warp_meetings import Arrivals, moves_data

SCOPE_ADVICE = (
    "What is atomic, or a fence, within a block (…_block, thread_scope_block, .cta) or a cluster (.cluster) is none to other blocks: use "
    "the one of the device."
)
LOOK_ADVICE = (
    "The flag was looked at by an operation that is relaxed, or acquires within its block only, and so orders nothing that another block "
    "wrote: use .acquire.gpu (memory_order_acquire, thread_scope_device), or execute __threadfence() after it."
)
RELEASE_ADVICE = (
    "The flag or counter was looked at, but the earlier access is not released: its thread, or one that knows of it by a barrier, must "
    "execute __threadfence() between the access and the flag's write, or write the flag with .release.gpu."
)
ADVICE = (
    "Blocks run in any order, and so do warps: let one thread own the element, use atomicAdd, "
    "or put a barrier of all threads concerned between the two accesses."
)
SAME_ELEMENT = "Two threads write one element in the same statement: look at its index first, which gives both the same."
MIXED_ADVICE = (
    "One of the two is atomic and the other is not, and only atomic operations keep out of each other's way: make the other one atomic as "
    "well, or let it come before all of them or behind them, in another launch or with a barrier of all threads concerned between."
)
PLAIN_ADVICE = (
    "One of the two handles the word as a flag or a lock, and the other is an ordinary access: make that atomic as well (atomicExch to set "
    "or to free it, a volatile or acquiring read to look at it), and release what belongs to it by __threadfence() before."
)
COPY_ADVICE = (
    "A bulk copy's data is in device memory when its thread has waited for it by cp.async.bulk.wait_group; with .read, it has waited "
    "until the source may be written again, no longer. Wait without .read, then release (__threadfence()) and tell the others."
)
PROXY_ADVICE = (
    'Put asm volatile("fence.proxy.async;" ::: "memory") between what makes sure that the stores have been made and the copy. '
    "(fence.proxy.async.shared::cta is about shared memory only.)"
)
UNDER_WAY = np.iinfo(np.int32).max  # when a bulk copy has written that has not been waited for


class DeviceRaces(DeviceCheck):
    """Who touched each granule of the arrays that a launch writes, and when.

    A stamp is twice the number of an access, plus 1 if it was atomic (atomic accesses do not race with each other, unless one of
    them is so within its block only).
    """

    order = 30
    watched_natively = True

    def __init__(self, launch):
        super().__init__(launch)
        program = launch.program
        self.threads, self.blocks = self.places.threads, self.places.blocks
        self.fenced = any(op.orders for op in program.ops)  # otherwise no blocks are ordered but by their cluster's barrier
        # Fences and releases of the block (.cta) and no others: threads of one block hand over to each other by them.
        self.block_order = not self.fenced and "block order" in program.uses
        self.moving = self._moving(program)
        self.clusters = launch.cluster > 1
        by_warp = self.fenced or self.block_order or program.partial_barriers or program.warp_barriers
        self.released = Released(self.blocks, self.threads, by_warp)
        self.looked_at = np.zeros((self.blocks, self.released.groups) if self.block_order else 0, np.int32)  # when groups looked last
        self.sites = array("i", [0])  # of each access, by its number
        self.rechecks = np.array([site.rechecks for site in program.sites], bool)
        self.atomic = np.array([site.op.atomic for site in program.sites], bool)
        alone = launch.cluster == 1
        self.decides = np.isin(np.arange(len(program.sites)), list(program.decisive))
        self.left_by_others = self._left_by_others(program)
        # Atomic to threads of the block only, as is what says .cluster where each block is a cluster of its own.
        self.within_block = np.array([site.within_block or (site.within_cluster and alone) for site in program.sites], bool)
        self.state: dict[str, np.ndarray] = {}
        self.copies, self.copied_at = array("i"), array("i")  # accesses that are bulk copies' writes, and when these have been waited for
        # By mbarrier: threads whose copies have come there, [blocks, threads].
        self.copiers: WeakKeyDictionary[PhaseBarrier, np.ndarray] = WeakKeyDictionary()

    def _moving(self, program) -> list[bool]:
        """By site: is it a volatile store to what volatile reads move as data? Otherwise each word says itself whether it is there."""
        volatile = [site for site in program.sites if site.index in self.places.origins and site.volatile]
        read = [self.places.variables(site) for site in volatile if site.op is AccessKind.LOAD and site.index not in program.decisive]
        stores = {site.index: self.places.variables(site) for site in volatile if site.op is AccessKind.STORE}
        moving = {index for index, written in stores.items() if any(ANY in written | places or written & places for places in read)}
        return [site.index in moving for site in program.sites]

    def _left_by_others(self, program) -> list[bool]:
        """By site: is it a volatile or atomic read of data, which another block has to have released? Not in an array of which words are
        looked at to decide something: such a word says itself what it is worth."""
        loose = [s for s in program.sites if s.index in self.places.origins and (s.atomic or s.volatile or s.past_l1)]
        asked = [self.places.variables(site) for site in loose if self.decides[site.index]]
        if any(ANY in places for places in asked):
            return [False] * len(program.sites)
        others = [(site.index, self.places.variables(site)) for site in loose if not self.decides[site.index]]
        moving = {index for index, places in others if ANY not in places and not any(places & other for other in asked)}
        return [site.index in moving for site in program.sites]

    def _array(self, name: str) -> np.ndarray:
        found = self.state.get(name)
        if found is None:
            found = self.state[name] = np.zeros(self.places.count, np.int32)
        return found

    def _begin(self, site, strong: bool) -> int:
        """A new access; its stamp."""
        self.sites.append(site.index)
        return 2 * (len(self.sites) - 1) + strong

    @property
    def now(self) -> int:
        """Stamps up to here belong to accesses that have been executed."""
        return 2 * len(self.sites) - 1

    # --------------------------------------------------------------------------------------------------- ordering

    def _acquired(self, blocks: np.ndarray, name: str = "acquire") -> None:
        """What has happened until now, and was released, is ordered before what the threads of these blocks do next."""
        self._since(name)[blocks] = self.now

    @property
    def _begun(self) -> bool:
        return len(self.sites) > 1

    def barrier(self, m: Machine, rows=None) -> None:
        if self._begun:
            self.released.everybody(m.block_numbers if rows is None else m.block_numbers[rows], self.now)

    def barrier_of_some(self, m: Machine, arrivals: list[Arrivals], rows: np.ndarray, number: int | None = None) -> None:
        if not self._begun:
            return
        waiting, arrived = (np.zeros((int(rows.sum()), self.threads), bool) for _ in range(2))
        for came in arrivals:
            threads = np.broadcast_to(came.threads, (m.blocks, self.threads))[rows]
            waiting |= threads & came.waits
            arrived |= threads & came.arrives
        self._met(m, rows, waiting, arrived)

    def _met(self, m: Machine, rows: np.ndarray, waiting: np.ndarray, arrived: np.ndarray) -> None:
        groups = self.released.groups_of
        self.released.some(m.block_numbers[rows], groups(waiting), groups(arrived), self.now)

    def looked(self, m: Machine, site) -> None:
        """What is relaxed acquires with the fence that follows it."""
        if self.fenced and self._begun:
            rows, threads = self._active(m)
            self.released.all_told(m.block_numbers[rows], self.released.groups_of(threads), self.now)
            self._acquired(m.block_numbers[rows], "look" if site.relaxed or self.within_block[site.index] else "acquire")

        elif self.block_order and self._begun:
            rows, groups = self._active_groups(m)
            self.looked_at[rows] = np.where(groups, self.now, self.looked_at[rows])
            if not site.relaxed or site.op.atomic:
                self.released.take(rows, groups, self.looked_at[rows])

    def acquire(self, m: Machine) -> None:
        """Of what other blocks released `looked` tells."""
        if self.block_order and self._begun:
            rows, groups = self._active_groups(m)
            self.released.take(rows, groups, np.where(groups, self.now, 0))

    def block_fence(self, m: Machine, acquires: bool = True) -> None:
        if not self.block_order or not self._begun:
            return
        rows, threads = self._active(m)
        blocks = m.block_numbers[rows]
        if acquires:
            self.released.take(blocks, self.released.groups_of(threads), self.looked_at[blocks])
        self.released.fenced(blocks, threads, self.now)

    def write(self, m: Machine, access: Access) -> None:
        """A flag may lie in shared memory."""
        if self.block_order and self._begun:
            rows, threads = self._active(m)
            row, thread = np.nonzero(threads)
            self.released.written(m.block_numbers[rows][row] * self.threads + thread)

    update = write

    def fence(self, m: Machine, acquires: bool = True) -> None:
        """Times of a block's last two fences: the last may have come after the look that matters."""
        if not self._begun:
            return
        rows, threads = self._active(m)
        blocks = m.block_numbers[rows]
        if acquires:
            self._since("acquire")[blocks] = np.maximum(self._since("acquire")[blocks], self._since("look")[blocks])
        self._fence(blocks, threads)

    def _fence(self, blocks: np.ndarray, threads: np.ndarray) -> None:
        if not self.fenced:
            return
        self.sites.append(0)  # a fence is later than what has been looked at before it
        self._since("fence before")[blocks] = self._since("fence")[blocks]
        self._since("fence")[blocks] = self.now
        self.released.fenced(blocks, threads, self.now)
        if self.clusters:  # a flag may lie in another block's shared memory, which this check does not see
            row, thread = np.nonzero(threads)
            self.released.written(blocks[row] * self.threads + thread)

    def arrived(self, m: Machine, barrier: PhaseBarrier, rows: np.ndarray, lanes: np.ndarray, releases: bool = True) -> None:
        """An arrival at another block's mbarrier releases to whoever waits there."""
        if not self._begun or not self.fenced or not releases:
            return
        threads = np.zeros((m.blocks, self.threads), bool)
        threads.reshape(-1)[lanes[lanes // self.threads != rows]] = True
        there = np.flatnonzero(threads.any(axis=1))
        if there.size:
            self._fence(m.block_numbers[there], threads[there])

    def cluster_passed(self, m: Machine, rows: np.ndarray) -> None:
        """The cluster's barrier releases what is before it, and acquires."""
        if not self._begun:
            return
        blocks = m.block_numbers[rows]
        self.released.everybody(blocks, self.now)
        if not self.clusters:
            return
        if self.fenced:
            self._fence(blocks, np.ones((len(blocks), self.threads), bool))
            self.released.everything(blocks, self.now)
        self._acquired(blocks)

    def waited(self, m: Machine, barrier: PhaseBarrier, rows: np.ndarray, lanes: np.ndarray) -> None:
        if not self._begun:
            return
        waiting = np.zeros((m.blocks, self.threads), bool)
        waiting.reshape(-1)[lanes] = True
        there, chosen = waiting.any(axis=1), np.zeros(m.blocks, bool)
        chosen[rows] = True
        arrived = barrier.arrivers(m, chosen)
        if barrier in self.copiers:
            arrived = arrived | self.copiers[barrier]
        self._met(m, there, waiting[there], arrived[there])
        self._acquired(m.block_numbers[there])

    def warp_barrier(self, m: Machine, masks=None) -> None:
        if self._begun:
            rows, threads = self._active(m)
            self.released.within(m.block_numbers[rows], self.released.groups_of(threads), self.now)

    def _active(self, m: Machine) -> tuple[np.ndarray, np.ndarray]:
        """(rows of the chunk in which threads are active, those threads: [len(rows), threads], boolean)"""
        if m.mask is None:
            return np.arange(m.blocks), np.ones((m.blocks, self.threads), bool)
        threads = np.broadcast_to(m.rows_of(m.mask), (m.blocks, self.threads))
        rows = np.flatnonzero(threads.any(axis=1))
        return rows, threads[rows]

    def _active_groups(self, m: Machine) -> tuple[np.ndarray, np.ndarray]:
        """(blocks in which threads are active, their groups: [len(blocks), groups], boolean)"""
        rows, threads = self._active(m)
        return m.block_numbers[rows], self.released.groups_of(threads)

    def _since(self, name: str) -> np.ndarray:
        found = self.state.get(f"since_{name}")
        if found is None:
            found = self.state[f"since_{name}"] = np.zeros(self.blocks, np.int32)
        return found

    def _unordered(self, who, last, stamp, cells=None) -> np.ndarray:
        """Where the earlier access by `last` at `stamp` is not ordered before what `who` does now."""
        conflict = (last != 0) & (last != who)
        atomic, when = stamp & 1, stamp
        if self.copies:
            stamp = self._when(stamp)
            conflict |= (last == who) & (stamp == UNDER_WAY)
        if not conflict.any():
            return conflict
        mine, theirs = (who - 1) // self.threads, (last - 1) // self.threads
        same = mine == theirs
        known = self._since("acquire")[mine]
        if self.fenced:
            fenced, before = self._since("fence")[theirs], self._since("fence before")[theirs]
            known = np.where(before > known, known, np.minimum(known, np.where(fenced > known, before, fenced)))
            known = np.minimum(known, self.released.of(last - 1))
            seen = atomic.astype(bool)
            if cells is not None and seen.any():
                seen &= self._looked_at(cells, mine, when)
            known = np.where(seen, self._since("acquire")[mine], known)  # an atomic is itself what the others look at
        here = self.released.known(mine, (who - 1) % self.threads, (last - 1) % self.threads)
        return conflict & (stamp > np.where(same, here, known))

    def _looked_at(self, cells, blocks, stamps) -> np.ndarray:
        """Where threads of these blocks have looked at the granules themselves since, by volatile or atomic reads."""
        found = np.zeros(len(cells), bool)
        for name, at in (("reader", "read_at"), ("reader2", "read2_at")):
            if name in self.state:
                reader, when = self.state[name].take(cells), self.state[at].take(cells)
                found |= ((reader - 1) // self.threads == blocks) & (when & 1 == 1) & (when > stamps)
        return found

    # --------------------------------------------------------------------------------------------------- accesses

    def before_device_write(self, m: Machine, access: DeviceAccess, held):
        return held()

    def device_read(self, m: Machine, access: DeviceAccess) -> None:
        touched, site = self.places.touched(m, access), access.site
        cells, who, _ = touched
        if not cells.size:
            return
        decides = bool(self.decides[site.index])
        strong = site.atomic or site.volatile or (site.past_l1 and decides)
        stamp = self._begin(site, strong)
        if strong and decides:
            self._since("decision")[(who - 1) // self.threads] = stamp
        writer, written_at = self._array("writer").take(cells), self._array("written_at").take(cells)
        conflict = self._unordered(who, writer, written_at, cells)
        if strong:
            # A flag may be written plainly, with a fence, and read again and again: that is left to its author. Not so what another block
            # has left that does not say itself whether it is there.
            data = False
            if self.left_by_others[site.index] and conflict.any():
                mine = (who - 1) // self.threads
                data = (mine != (writer - 1) // self.threads) & (self._since("decision")[mine] > written_at)
            conflict &= (written_at & 1 == 0) & ((not self.fenced) | (self._of_copies(written_at) & (not decides))) | data
        elif conflict.any():
            # A plain look before an atomic operation that looks again, as in a compare-and-swap loop.
            conflict[conflict] = ~self.rechecks[np.frombuffer(self.sites, np.int32)[written_at[conflict] >> 1]]
        if conflict.any():
            self._race(m, site, touched, writer, written_at, conflict, "reads", "writes")
        self._has_read(cells, who, stamp)

    def _has_read(self, cells, who, stamp: int) -> None:
        reader, read_at = self._array("reader"), self._array("read_at")
        before = reader.take(cells)
        other = (before != 0) & (before != who)
        if other.any():
            self._array("reader2")[cells[other]] = before[other]
            self._array("read2_at")[cells[other]] = read_at.take(cells[other])
        reader[cells], read_at[cells] = who, stamp
        lost = reader.take(cells) != who
        if lost.any():
            self._array("reader2")[cells[lost]], self._array("read2_at")[cells[lost]] = who[lost], stamp

    def device_write(self, m: Machine, access: DeviceAccess) -> None:
        touched, site = self.places.touched(m, access), access.site
        cells, who, pick = touched
        if not cells.size:
            return
        strong = site.atomic or (site.volatile and not self._exchanges(site, cells, who))
        stamp = self._begin(site, strong)
        self._write(m, site, touched, stamp, strong, "writes", lambda: pick(access.changes()))
        writer = self._array("writer")
        lost = writer.take(cells) != who
        if lost.any() and not strong:
            lost &= pick(access.differ())
            if lost.any():
                self._race(m, site, touched, writer.take(cells), np.full(len(cells), stamp), lost, "writes", "writes")

    def device_update(self, m: Machine, access: DeviceAccess) -> None:
        touched, site = self.places.touched(m, access), access.site
        if not touched.cells.size:
            return
        stamp = self._begin(site, True)
        if self.decides[site.index]:
            self._since("decision")[(touched.who - 1) // self.threads] = stamp
        self._write(m, site, touched, stamp, True, "updates", None)
        if self.within_block[site.index]:  # threads of several blocks may do it at once
            last, stamps = self._array("writer").take(touched.cells), np.full(len(touched.cells), stamp)
            apart = self._other_scope(site, touched.who, last, stamps)
            if np.any(apart):
                self._race(m, site, touched, last, stamps, apart, "updates", "updates")

    # ------------------------------------------------------------------------------------------------- bulk copies

    def device_copy_reads(self, m: Machine, access: BulkDeviceAccess) -> None:
        touched, site = self.places.touched(m, access), access.site
        cells, who, _ = touched
        if not cells.size:
            return
        stamp = self._begin(site, False)
        writer, written_at = self._array("writer").take(cells), self._array("written_at").take(cells)
        late = self._unordered(who, writer, written_at)
        if late.any():
            self._race(m, site, touched, writer, written_at, late, "reads", "writes")
        unseen = (writer != 0) & ~late
        if unseen.any():
            fence = self._since("proxy fence")
            unseen &= written_at > np.maximum(fence[(who - 1) // self.threads], fence[(np.maximum(writer, 1) - 1) // self.threads])
            unseen &= ~self._of_copies(written_at)
        if unseen.any():
            self._unseen(m, site, touched, written_at, unseen)
        self._has_read(cells, who, stamp)

    def device_copy_writes(self, m: Machine, access: BulkDeviceAccess) -> bool:
        touched, site = self.places.touched(m, access), access.site
        cells, who, pick = touched
        if not cells.size:
            return False
        access.number[:] = np.arange(len(access.number)) + len(self.sites)
        stamps = pick((2 * access.number + access.adds)[:, None]).astype(np.int32)
        changes = None if access.adds else lambda: pick(access.changes())
        self._write(m, site, touched, stamps, access.adds, "adds to" if access.adds else "writes", changes, own=False)
        self.sites.extend([site.index] * len(access.number))
        self.copies.extend(access.number.tolist())
        self.copied_at.extend([UNDER_WAY] * len(access.number))
        writer = self._array("writer").take(cells)
        lost = (writer != who) & (not access.adds)
        if lost.any():
            lost &= pick(access.differ())
            if lost.any():
                self._race(m, site, touched, writer, self._array("written_at").take(cells), lost, "writes", "writes")
        return True

    def copies_ended(self, m: Machine, access: BulkDeviceAccess, chosen: np.ndarray) -> None:
        self.sites.append(0)  # later than any barrier before
        at = np.frombuffer(self.copied_at, np.int32)
        at[np.searchsorted(np.frombuffer(self.copies, np.int32), access.number[chosen])] = self.now - 1

    def bulk_landed(self, m: Machine, access: PieceAccess, barrier: PhaseBarrier) -> None:
        if self._begun:
            copiers = self.copiers.setdefault(barrier, np.zeros((m.blocks, self.threads), bool))
            copiers.reshape(-1)[access.lanes] = True

    def proxy_fence(self, m: Machine, shared: bool, device: bool) -> None:
        if device and self._begun:
            self._since("proxy fence")[m.block_numbers[self._active(m)[0]]] = self.now

    def _when(self, stamps: np.ndarray) -> np.ndarray:
        """When accesses were made: bulk copies' writes when they were waited for."""
        copies = np.frombuffer(self.copies, np.int32)
        at = np.minimum(np.searchsorted(copies, stamps >> 1), len(copies) - 1)
        return np.where(copies[at] == stamps >> 1, np.frombuffer(self.copied_at, np.int32)[at], stamps)

    def _of_copies(self, stamps: np.ndarray) -> np.ndarray:
        """Which accesses are writes of bulk copies."""
        return self._when(stamps) != stamps if self.copies else np.zeros(stamps.shape, bool)

    def _adds(self, stamps: np.ndarray) -> np.ndarray:
        """Which accesses are atomic operations, or bulk copies that add."""
        return (stamps & 1 == 1) & (self.atomic[np.frombuffer(self.sites, np.int32)[stamps >> 1]] | self._of_copies(stamps))

    def _unseen(self, m: Machine, site, touched: TouchedDevice, stamps, unseen) -> None:
        i = first(unseen)
        block, thread = self.places.thread(m, touched.who[i])
        other = self.launch.program.sites[self.sites[int(stamps[i]) >> 1]]
        m.findings.add(
            "missing-fence", site.line,
            f"The bulk copy reads {self.places.element(touched.cells[i])}, written at line {other.line} by an ordinary store, "
            "with no fence.proxy.async for device memory between.",
            other_line=other.line, block=block, thread=thread, advice=PROXY_ADVICE, count=int(np.count_nonzero(unseen)),
            sites=(site, other),
        )  # fmt: skip

    def _exchanges(self, site, cells, who) -> bool:
        """Does a volatile store move data, not flags: to several places by lanes of one warp, in a kernel without fences? (A word that
        says itself whether it is there needs none: one for each warp, be it of 64 bits or a pair.)"""
        if self.fenced or not self.moving[site.index]:
            return False
        blocks, lanes = np.divmod(who - 1, self.threads)
        return moves_data(cells, who, blocks * self.threads + lanes // WARP)

    def _write(self, m: Machine, site, touched: TouchedDevice, stamp, strong: bool, verb: str, changes, own: bool = True) -> None:
        """own: may threads meet bulk copies of their own?"""
        cells, who, _ = touched
        writer, written_at = self._array("writer"), self._array("written_at")
        for name, at, other_verb in (("writer", "written_at", "writes"), ("reader", "read_at", "reads"), ("reader2", "read2_at", "reads")):
            if name not in self.state or (site.rechecks and name != "writer"):
                continue
            last, when = self.state[name].take(cells), self.state[at].take(cells)
            conflict = self._unordered(who, last, when) & (own | (last != who))
            if self.fenced and not strong and name != "writer" and conflict.any():  # a flag that is written plainly, see `device_read`
                conflict[conflict] &= ~((when[conflict] & 1 == 1) & self.decides[np.frombuffer(self.sites, np.int32)[when[conflict] >> 1]])
            if strong:
                conflict &= (when & 1 == 0) | self._other_scope(site, who, last, when)
            if changes is not None and conflict.any():
                conflict &= changes() | self._adds(when)  # who writes what is there already changes nothing, unless somebody adds to it
            if conflict.any():
                self._race(m, site, touched, last, when, conflict, verb, other_verb)
                break
        writer[cells], written_at[cells] = who, stamp
        if (self.fenced or self.block_order) and own:
            self.released.written(who - 1)

    def _other_scope(self, site, who, last, when) -> np.ndarray | bool:
        """Where two atomic accesses are of two blocks, and one of them is atomic within its block only."""
        if not self.within_block.any():
            return False
        earlier = self.within_block[np.frombuffer(self.sites, np.int32)[when >> 1]]
        return (self.within_block[site.index] | earlier) & ((who - 1) // self.threads != (last - 1) // self.threads)

    def _race(self, m: Machine, site, touched: TouchedDevice, last, stamps, conflict, verb: str, other_verb: str) -> None:
        cells, who, _ = touched
        i = first(conflict)
        under_way = bool(self.copies) and bool(self._when(stamps[i : i + 1])[0] == UNDER_WAY)
        block, thread = self.places.thread(m, who[i])
        other_block, other_thread = self.places.thread(m, last[i])
        other = self.launch.program.sites[self.sites[int(stamps[i]) >> 1]]
        other_name = f"thread {other_thread}" + (f" of block {other_block}" if other_block != block else "")
        advice = self._advice(site, other, int(who[i]), int(last[i]), int(stamps[i]))
        if advice == ADVICE and verb == other_verb == "writes" and site.line == other.line:
            advice = f"{SAME_ELEMENT} {advice}"
        m.findings.add(
            "race",
            site.line,
            f"Thread {thread} of block {block} {verb} {self.places.element(cells[i])}, "
            f"which {other_name} {other_verb} at {line_of(site, other)}, "
            + ("by a bulk copy that it has not waited for." if under_way else "and nothing says who comes first."),
            other_line=other.line,
            block=block,
            thread=thread,
            advice=advice,
            count=int(np.count_nonzero(conflict)),
            sites=(site, other),
        )

    def _advice(self, site, other, who: int, last: int, stamp: int) -> str:
        mine, theirs = (who - 1) // self.threads, (last - 1) // self.threads
        if other.op is AccessKind.BULK_STORE and (mine != theirs or self._when(np.array([stamp]))[0] == UNDER_WAY):
            return COPY_ADVICE
        plain = MIXED_ADVICE if site.atomic != other.atomic else ADVICE
        if mine == theirs:
            return plain
        if site.atomic and (self.within_block[site.index] or self.within_block[other.index]):
            return SCOPE_ADVICE
        if site.atomic != other.atomic and self._is_flag(site, other):
            return PLAIN_ADVICE
        if self._since("acquire" if self.fenced else "decision")[mine] >= stamp:
            return SCOPE_ADVICE if self.block_order else RELEASE_ADVICE
        return LOOK_ADVICE if self._since("look")[mine] >= stamp else plain

    def _is_flag(self, *sites) -> bool:
        """Does one of the accesses look at the word to decide where to go? What is read to be added to it decides nothing."""
        program = self.launch.program
        return any(site.index in program.decisive and (site.atomic or site.index not in program.kept) for site in sites)
