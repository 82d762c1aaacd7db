"""Copies that are under way, and the barriers in shared memory that announce their end.

A cp.async reads its source at once, and its data lands in shared memory only when its thread waits for it (or somebody
waits on the mbarrier that tracks it), never earlier: a kernel that forgets to wait reads the old contents, as it may on
the hardware, and the checks say so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from helpers.sim.checks.accesses import Access, BulkDeviceAccess, PieceAccess
from helpers.sim.checks.endless import Lacking
from helpers.sim.checks.warp_meetings import WarpMoment, grouped
from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.sites import Site

from .memory import scatter


class LeftOut(NamedTuple):
    """A wait that was not for a copy. pending: how many groups it leaves under way. commits: how many each thread had committed then.
    lanes: who waited (None: all). position: of the instruction."""

    position: int
    pending: int
    commits: np.ndarray
    lanes: np.ndarray | None


@dataclass(eq=False)
class Copy:
    """One executed cp.async. group: how many groups its threads had committed before (int64, broadcast). left: by the latest wait."""

    site: Site
    offsets: np.ndarray
    values: list[np.ndarray]
    width: int
    mask: np.ndarray | None
    group: np.ndarray
    landed: bool = False
    left: LeftOut | None = None


class CopyQueue:
    """The copies of a chunk that have not landed."""

    def __init__(self, m):
        self.copies: list[Copy] = []
        self.commits = m.uniform(0, np.int64)

    def issue(self, m, site, offsets, values, width, mask) -> Copy:
        copy = Copy(site, offsets, values, width, mask, self.commits)
        m.checks.copy_started(m, Access(site, offsets, mask, width))
        self.copies.append(copy)
        return copy

    def commit(self, m) -> None:
        """Close the active threads' current group."""
        self.commits = self.commits + 1 if m.mask is None else self.commits + m.mask

    def wait(self, m, pending: int | None, position: int) -> None:
        """Land the copies of all but the active threads' last `pending` groups; None: every copy, committed or not."""
        for copy in list(self.copies):
            ready = None if pending is None else copy.group < self.commits - pending
            if ready is not None and ready.size == 1:
                if not ready.item():
                    continue
                ready = None
            self.land_where(m, copy, ready)
        if pending is not None:
            left = LeftOut(position, pending, self.commits, m.mask)
            for copy in self.copies:
                copy.left = left

    def state_of(self, m, row: int, offset: int) -> tuple[bool, LeftOut | None, bool] | None:
        """Of the copy to a byte of a block that was started last: has its group been closed, which wait left it out, and was it closed
        then? None: there is no such copy."""
        for copy in reversed(self.copies):
            offsets = m.rows_of(copy.offsets)[row]
            there = (offsets <= offset) & (offset < offsets + copy.width)
            if copy.mask is not None:
                there = there & m.rows_of(copy.mask)[row]
            if there.any():
                thread = int(there.argmax())
                left = copy.left
                if left is not None and left.lanes is not None and not m.rows_of(left.lanes)[row, thread]:
                    left = None  # others waited
                now = bool(m.rows_of(copy.group < self.commits)[row, thread])
                then = now if left is None else bool(m.rows_of(copy.group < left.commits)[row, thread])
                return now, left, then
        return None

    def land_where(self, m, copy: Copy, ready, known: WarpMoment | None = None) -> None:
        """Land a copy for the active lanes that are ready (None: all). known: what tells others of it, if not its thread's wait."""
        lanes = m.mask
        if ready is not None:
            lanes = ready if lanes is None else lanes & ready
        if copy.mask is not None:
            now = copy.mask if lanes is None else copy.mask & lanes
        else:
            now = lanes
        if now is not None and not now.any():
            return
        rest = None if now is None else ~now if copy.mask is None else copy.mask & ~now
        self.land(m, copy, now, known)
        if rest is not None and rest.any():
            copy.mask = rest
        else:
            self.copies.remove(copy)
            copy.landed = True

    def land(self, m, copy: Copy, mask, known: WarpMoment | None = None) -> None:
        """Write a copy's data to shared memory for the lanes in `mask` (None: all)."""
        raw = copy.values[0].dtype
        index = (copy.offsets >> (raw.itemsize.bit_length() - 1)) + m.shared.bases[raw.itemsize]
        scatter(m.shared.views[raw], index, copy.values, mask)
        m.checks.copy_landed(m, Access(copy.site, copy.offsets, mask, copy.width, known=known and known.time))


@dataclass(eq=False)
class BulkStore:
    """One executed bulk store. lanes: [n] threads (positions in [blocks, threads]). group: [n], how many groups each had
    committed before. source: the piece of shared memory that it reads (`PieceAccess`)."""

    lanes: np.ndarray
    site: Site
    group: np.ndarray
    source: Any

    def of(self, chosen: np.ndarray) -> BulkStore:
        """The store of some of the lanes (boolean [n])."""
        return BulkStore(self.lanes[chosen], self.site, self.group[chosen], self.source.of(np.flatnonzero(chosen)))

    def access(self) -> PieceAccess:
        """What it reads, for the checks."""
        return PieceAccess(self.site, self.source, self.lanes)


@dataclass(eq=False)
class BulkWrite:
    """What an executed bulk store writes. group: as in `BulkStore`. left: [n], has its thread not waited for it yet?"""

    access: BulkDeviceAccess
    group: np.ndarray
    left: np.ndarray


class BulkGroups:
    """The bulk stores of a chunk that have not been waited for. Their data is where it belongs; what is left is to say so.

    stores: those whose source may still be read. writes: those that may still be writing, of which some check wants to know it.
    """

    def __init__(self, m):
        self.stores: list[BulkStore] = []
        self.writes: list[BulkWrite] = []
        self.commits = np.zeros(m.lanes, np.int64)

    def issue(self, m, lanes, site, source) -> None:
        store = BulkStore(lanes, site, self.commits[lanes], source)
        self.stores.append(store)
        m.checks.reading_begun(m, store.access())

    def write(self, m, access: BulkDeviceAccess) -> None:
        """Threads have begun to copy to device memory."""
        if m.checks.device_copy_writes(m, access):
            self.writes.append(BulkWrite(access, self.commits[access.lanes], np.ones(len(access.lanes), bool)))

    def commit(self, lanes) -> None:
        """Close the current group of these threads."""
        self.commits[lanes] += 1

    def wait(self, m, lanes, pending: int, reading: bool) -> None:
        """These threads have waited for all but their last `pending` groups; reading: only until their sources have been read."""
        waits = np.zeros(m.lanes, bool)
        waits[lanes] = True
        for write in [] if reading else list(self.writes):
            done = write.left & waits[write.access.lanes] & (write.group < self.commits[write.access.lanes] - pending)
            if done.any():
                m.checks.copies_ended(m, write.access, done)
                write.left &= ~done
                if not write.left.any():
                    self.writes.remove(write)
        for store in list(self.stores):
            done = waits[store.lanes] & (store.group < self.commits[store.lanes] - pending)
            if not done.any():
                continue
            m.checks.reading_ended(m, store.of(done).access())
            if done.all():
                self.stores.remove(store)
            else:
                self.stores[self.stores.index(store)] = store.of(~done)

    def finish(self, m) -> None:
        """All threads have ended: note the stores that nobody has waited for."""
        for store in self.stores:
            m.checks.never_waited(m, store.access())


@dataclass(eq=False)
class Arrival:
    """Something that will arrive at an mbarrier when somebody looks at it, for several blocks' barriers at once.

    targets: [n] rows of the chunk, whose barriers it goes to. act(m, chosen): let the parts `chosen` (indices) arrive.
    """

    targets: np.ndarray
    act: Callable
    left: np.ndarray = field(init=False)

    def __post_init__(self):
        self.left = np.ones(len(self.targets), bool)

    def look(self, m, rows: np.ndarray) -> bool:
        """Barriers of the blocks `rows` (boolean [blocks]) are looked at. True if nothing is left to arrive."""
        chosen = self.left & rows[self.targets]
        if chosen.any():
            self.left &= ~chosen
            self.act(m, np.flatnonzero(chosen))
        return not self.left.any()


@dataclass(eq=False)
class MBarrier:
    """An mbarrier object at one offset, one per block: arrays of length `blocks`.

    expected: arrivals per phase. pending: arrivals still missing in this phase. bytes: announced bytes that have not
    come, negative if more came than were announced. announced: bytes announced in this phase. phase: phases completed.
    attached: what will arrive when somebody looks: `Arrival`s, or functions of the machine that bring everything at once.
    line, expect_line: where it was initialised, and where bytes were last announced. surplus: have more arrived in a phase than it
    waits for? excess: arrivals that came when the phase lacked none. lent: arrivals that copies have added to this phase and still owe.
    doubtful: does something hold a phase up (bytes, or copies that owe an arrival) for which more have arrived than it expects? On a GPU
    it may be over before any of them has come.
    """

    expected: np.ndarray
    pending: np.ndarray
    bytes: np.ndarray
    announced: np.ndarray
    phase: np.ndarray
    excess: np.ndarray
    lent: np.ndarray
    doubtful: np.ndarray
    attached: list = field(default_factory=list)
    line: int | None = None
    expect_line: int | None = None
    surplus: bool = False
    # Who arrived, as (rows of barriers, lanes of the chunk, when): in this phase, in this or the next one, and in the last complete one.
    arrived: list = field(default_factory=list)
    ahead: list = field(default_factory=list)
    ordered: list = field(default_factory=list)
    _arrivers: tuple[Any, ...] | None = field(default=None, repr=False)  # what `arrivers` said last: (ordered, rows, answer)

    @classmethod
    def new(cls, blocks: int) -> MBarrier:
        return cls(*(np.zeros(blocks, np.int64) for _ in range(7)), np.zeros(blocks, bool))

    def init(self, rows: np.ndarray, expected: np.ndarray, line: int | None) -> None:
        """Begin anew in the blocks `rows`."""
        self.expected[rows] = self.pending[rows] = expected
        self.bytes[rows] = self.announced[rows] = self.phase[rows] = self.excess[rows] = self.lent[rows] = 0
        self.doubtful[rows] = False
        self.line = line

    def busy(self, rows: np.ndarray) -> bool:
        """Has a phase begun in one of the blocks `rows`, and not ended: arrivals or bytes have come or are on their way?"""
        begun = (self.expected[rows] > 0) & ((self.pending[rows] != self.expected[rows]) | (self.bytes[rows] != 0))
        return bool(begun.any() or any(item.left[np.isin(item.targets, rows)].any() for item in self.attached if isinstance(item, Arrival)))

    def tokens(self, rows: np.ndarray) -> np.ndarray:
        """The state that an arrival returns: the phase, and in the upper half the arrivals missing before it."""
        return (self.pending[rows].clip(0).astype(np.uint64) << np.uint64(32)) | self.phase[rows].astype(np.uint64)

    def announce(self, rows: np.ndarray, count, line: int | None) -> None:
        """Bytes that will come in this phase."""
        np.add.at(self.bytes, rows, count)
        np.add.at(self.announced, rows, count)
        self.expect_line = line

    def lend(self, rows: np.ndarray) -> None:
        """The phases of the blocks `rows` wait for one more arrival each, which a copy owes them."""
        np.add.at(self.pending, rows, 1)
        np.add.at(self.lent, rows, 1)

    def arrive(self, m, rows: np.ndarray, lanes: np.ndarray, count=1, came: WarpMoment | None = None, lent: bool = False) -> None:
        """The lanes arrive at the barriers of the blocks `rows`, each `count` times. came: when they asked for that, if not now.
        lent: as copies that had added an arrival to the phase.

        Where more arrive than a phase, or several, wait for, some of them count for the next one. Which ones these are nobody knows on a
        GPU, so it takes all lanes of a warp to have come in time for those who wait to be told of any. Where that phase is held up, nobody
        has come in time for certain.
        """
        moment = came or m.checks.reached(m)
        m.checks.phase_helped(m, self, rows, lanes)
        before = np.minimum(self.pending - self.lent, 0)
        if lent:
            np.subtract.at(self.lent, rows, count)
        np.subtract.at(self.pending, rows, count)
        lacking = self.pending - self.lent  # of arrivals that no copy owes: those may come before all of these
        self.excess += before - np.minimum(lacking, 0)
        over = not lent and bool((lacking[rows] < 0).any())
        if over:
            held = (lacking < 0) & ((self.bytes != 0) | (self.lent > 0))
            self.surplus, self.doubtful = self.surplus or bool(held.any()), self.doubtful | held
            self.ahead += _of(self.arrived, held)
            self.arrived = _of(self.arrived, ~held)
        late = self.doubtful[rows]
        if over:
            late = late | self._late(m, rows, lanes, count, lacking)
        self.arrived.append((rows[~late], lanes[~late], moment))
        if late.any():
            self.ahead.append((rows[late], lanes[late], moment))
        self.settle(m)

    def _late(self, m, rows: np.ndarray, lanes: np.ndarray, count, lacking: np.ndarray) -> np.ndarray:
        """Which of these arrivals (boolean), just counted, may be for a phase that they do not complete. lacking: [blocks], arrivals that
        the phase still waits for, negative where more have come."""
        counts = np.broadcast_to(np.asarray(count, np.int64), rows.shape)
        late = np.zeros(len(rows), bool)
        for row in np.unique(rows[lacking[rows] < 0]).tolist():
            mine = np.flatnonzero(rows == row)
            surplus = int(-lacking[row]) % max(int(self.expected[row]), 1)
            late[mine] = np.cumsum(counts[mine][::-1])[::-1] - counts[mine] < surplus
        warps = lanes // m.threads * m.warp_count + lanes % m.threads // WARP
        self.surplus = self.surplus or bool(late.any())
        return np.isin(warps, warps[late])

    def settle(self, m) -> None:
        """Complete the phases that have everything they wait for. Who waits for the last of several has waited for all of them."""
        before = np.zeros(len(self.phase), bool)
        while True:
            done = (self.pending <= 0) & (self.bytes == 0) & (self.expected > 0)
            if not done.any():
                break
            m.checks.phase_ended(m, self, done)
            self.phase[done] += 1
            self.pending[done] += self.expected[done]
            self.announced[done] = 0
            self.ordered = [*_of(self.ordered, ~done | before), *_of(self.arrived, done)]
            self.arrived = _of(self.arrived, ~done)
            before |= done
            m.wake()
        if self.ahead:
            self.arrived += _of(self.ahead, before)
            self.ahead = _of(self.ahead, ~before)
            self.doubtful &= ~before

    def look(self, m, rows: np.ndarray | None = None) -> None:
        """Let everything arrive that is on its way to the barriers of the blocks `rows` (boolean; None: all)."""
        if not self.attached:
            return
        rows = np.ones(m.blocks, bool) if rows is None else rows
        attached, self.attached = self.attached, []
        for item in attached:
            if not isinstance(item, Arrival):
                item(m)
            elif not item.look(m, rows):
                self.attached.append(item)
        self.settle(m)

    def arrivals(self, m, rows: np.ndarray) -> list[tuple[np.ndarray, Any]]:
        """Those who completed the last phase of the barriers of `rows` (boolean [blocks]), as boolean [blocks, threads], and when they
        came."""
        found = []
        for targets, lanes, moment in self.ordered:
            lanes = lanes[rows[targets]]
            if len(lanes):
                threads = np.zeros((m.blocks, m.threads), bool)
                threads.reshape(-1)[lanes] = True
                found.append((threads, moment))
        return found

    def arrivers(self, m, rows: np.ndarray) -> np.ndarray:
        """[blocks, threads]: the warps of all of these."""
        asked = rows.tobytes()
        if self._arrivers is None or self._arrivers[0] is not self.ordered or self._arrivers[1] != asked:  # several checks ask the same
            threads = np.logical_or.reduce([np.zeros((m.blocks, m.threads), bool), *(threads for threads, _ in self.arrivals(m, rows))])
            self._arrivers = self.ordered, asked, np.repeat(grouped(threads), WARP, axis=1)[:, : m.threads]
        return self._arrivers[2]

    def untouched(self, row: int) -> bool:
        """Has nothing come to it in the block `row`, and is nothing on its way?"""
        return not (self.phase[row] or self.bytes[row] or self.announced[row] or self.attached) and bool(
            self.pending[row] == self.expected[row]
        )

    def miscounted(self, offset: int) -> Lacking | None:
        """What a phase lacks for which all have arrived, or to which more have come than it expected, in the first such block; None if
        there is none. Where everybody waits, that is why, and who waits elsewhere waits for those who wait here."""
        if self.attached:
            return None
        rows = np.flatnonzero((self.expected > 0) & ((self.excess > 0) | ((self.bytes != 0) & (self.pending <= 0))))
        return self.missing(offset, int(rows[0])) if len(rows) else None

    def missing(self, offset: int, row: int) -> Lacking:
        """What the current phase of the block `row` lacks."""
        pending, outstanding, announced = int(self.pending[row]), int(self.bytes[row]), int(self.announced[row])
        parts = []
        if outstanding:
            said = f"{announced} bytes were announced" + ("" if self.expect_line is None else f" at line {self.expect_line}")
            come = f"{announced - outstanding} have arrived" + (f", {-outstanding} too many" if outstanding < 0 else "")
            parts.append(f"{said} and {come}")
        surplus, expected = int(self.excess[row]), int(self.expected[row])
        if surplus:
            parts.append(
                f"it expects {'one arrival' if expected == 1 else f'{expected} arrivals'} in a phase, {surplus} came when it lacked none"
            )
        elif pending > 0:
            parts.append(f"{pending} of its {expected} arrivals are missing")
        if phases := int(self.phase[row]):
            parts.append("a phase has ended" if phases == 1 else f"{phases} phases have ended")
        made = "" if self.line is None else f", initialised at line {self.line}"
        said = f" (at offset {offset} of shared memory{made}): {', and '.join(parts)}"
        return Lacking(said, self.expect_line if outstanding else None, outstanding != 0 and pending <= 0, surplus > 0)


def _of(entries: list, rows: np.ndarray) -> list:
    """The entries of (rows, lanes, when) that belong to the blocks `rows` (boolean)."""
    kept = [(targets[rows[targets]], lanes[rows[targets]], moment) for targets, lanes, moment in entries]
    return [entry for entry in kept if len(entry[0])]
