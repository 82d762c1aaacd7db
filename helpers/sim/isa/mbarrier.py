"""Barriers in shared memory that threads arrive at without waiting, and that count bytes of copies: mbarrier.

The address may point into the shared memory of another block of the cluster. Waiting is a loop of the kernel's own around
`try_wait`; a group of threads that looks in vain lets the others go first.
"""

from __future__ import annotations

import numpy as np

from helpers.sim.checks import mbarrier_parity
from helpers.sim.checks.accesses import Access, RemoteAccess
from helpers.sim.checks.findings import at
from helpers.sim.checks.warp_meetings import WarpMoment
from helpers.sim.code.addresses import RANK_SHIFT, SHARED_WINDOW, WINDOW_BYTES
from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.ptx import Address
from helpers.sim.code.sites import AccessKind
from helpers.sim.machine.copies import Arrival, MBarrier

from .base import SCOPES, instruction
from .loads_stores import address_of

BYTES = 8  # of an mbarrier
MOST = (1 << 20) - 1  # arrivals or bytes that it can count (PTX ISA, "Contents of the mbarrier object")
I64, U32, U64 = np.dtype(np.int64), np.dtype(np.uint32), np.dtype(np.uint64)
LOW = np.uint64(0xFFFFFFFF)


def shared_places(op, i: int, what: str):
    """A function of the machine giving operand i, an address in shared memory, as (rows of blocks, offsets), int64 arrays.

    The address may be generic, or in another block's shared memory. what: names it in messages.
    """
    address = address_of(op, i)
    generic, line = not op.those(lambda part: part.startswith("shared")), op.line

    def places(m):
        addresses = address(m)
        if generic:
            outside = (addresses < SHARED_WINDOW) | (addresses >= SHARED_WINDOW + WINDOW_BYTES)
            if (outside if m.mask is None else outside & m.mask).any():
                m.fail(f"{what} must lie in shared memory, and this address points elsewhere.", line)
            addresses = addresses - SHARED_WINDOW
        rows, offsets = m.clusters.resolve(m, addresses)
        return rows, np.where(addresses >> RANK_SHIFT <= m.clusters.size, offsets, addresses)  # what lies in no block stays outside

    return places


def lanes_of(m, mask: np.ndarray | None) -> np.ndarray:
    """Positions of the threads of a mask (None: all) in the flattened [blocks, threads]."""
    return np.arange(m.lanes) if mask is None else np.flatnonzero(m.rows_of(mask))


def active_lanes(m) -> np.ndarray:
    """Positions of the active threads in the flattened [blocks, threads]."""
    return lanes_of(m, m.mask)


def of_lanes(m, array: np.ndarray, lanes: np.ndarray) -> np.ndarray:
    """An array of the lanes' layout at the positions `lanes`."""
    return np.broadcast_to(array.reshape(-1), len(lanes)) if array.size == 1 else m.rows_of(array).reshape(-1)[lanes]


def located(m, site, places) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray | None]:
    """The mbarriers that the active lanes name, as (rows of blocks, offsets), and the mask of those lanes whose mbarriers lie in shared
    memory (None: all). The others are reported, and left out."""
    rows, offsets = places
    safe, mask = m.shared.locate(m, site, offsets, BYTES)
    return (rows, safe), mask


def barrier_at(m, offset: int) -> MBarrier:
    """The mbarriers at this offset of every block's shared memory."""
    barriers = m.asynchronous.setdefault("barriers", {})
    if offset not in barriers:
        barriers[offset] = MBarrier.new(m.blocks)
    return barriers[offset]


def named(m, places, lanes: np.ndarray):
    """Yield (mbarrier, its offset, rows of blocks [n], lanes [n]) for the mbarriers that these lanes name."""
    rows, offsets = places
    rows, offsets = of_lanes(m, rows, lanes), of_lanes(m, offsets, lanes)
    for offset in np.unique(offsets).tolist():
        mine = offsets == offset
        yield barrier_at(m, offset), offset, rows[mine], lanes[mine]


def _remote(op):
    """A function (m, places) that notes an operation on mbarriers of other blocks, and says in which order it puts blocks.

    It returns the places and lanes of those that lie in shared memory, and a function (barrier, rows, lanes) to call for each mbarrier,
    which does nothing where the operation names no other block.
    What says .cta releases to no other block; what names no scope is taken to mean the cluster, as much code does.
    """
    op.without_effect(*SCOPES, "release", "relaxed")  # what they mean where it is not read
    if not op.has("shared::cluster"):
        own = op.site("cluster", AccessKind.BARRIER, BYTES)  # of interest to those who may not know yet that it has been made

        def use(m, places):
            places, mask = located(m, own, places)
            m.checks.barrier_used(m, Access(own, places[1], mask, BYTES))
            return places, lanes_of(m, mask), lambda barrier, rows, lanes: None

        return use
    op.loader.uses.add("cluster")
    op.lands = True
    site = op.site("cluster", AccessKind.BARRIER, BYTES)
    releases = not op.has("relaxed", "cta")

    def note(m, places):
        places, mask = located(m, site, places)
        m.checks.update(m, RemoteAccess(site, *places, mask, BYTES))
        return places, lanes_of(m, mask), lambda barrier, rows, lanes: m.checks.arrived(m, barrier, rows, lanes, releases)

    return note


@instruction("mbarrier.init")
def mbarrier_init(op):
    """A new mbarrier at [a] that expects b arrivals per phase."""
    places, count, line = shared_places(op, 0, "an mbarrier"), op.source(1, "u32"), op.line
    site = op.site("cluster", AccessKind.BARRIER_INIT, BYTES)  # of interest to other blocks of the cluster only

    def run(m):
        (where, mask), expected = located(m, site, places(m)), m.regs[count].view(U32)
        for barrier, offset, rows, lanes in named(m, where, lanes_of(m, mask)):
            counts = of_lanes(m, expected, lanes).astype(np.int64)
            if not counts.all():
                m.fail("an mbarrier must expect at least one arrival.", line)
            if counts.max() > MOST:
                m.fail(f"an mbarrier can count {MOST} arrivals, and this one is to expect {int(counts.max())}.", line)
            if barrier.busy(rows):
                m.fail(
                    f"this mbarrier was initialised{at(barrier.line)}, and a phase of it has begun and is not over: wait for it, or end it "
                    "with mbarrier.inval, before it is initialised again.", line,
                )  # fmt: skip
            barrier.init(rows, counts, line)
            m.checks.phases_began(m, barrier, rows)
            if m.recorder is not None:
                for row, lane in zip(rows.tolist(), lanes.tolist(), strict=True):
                    m.recorder.move(m, line, "init", row, lane % m.threads // WARP, offset - m.shared.start)
        m.checks.barrier_made(m, Access(site, where[1], mask, BYTES))

    return run


@instruction("mbarrier.inval")
def mbarrier_inval(op):
    """The mbarrier at [a] is one no more."""
    places = shared_places(op, 0, "an mbarrier")
    site = op.site("cluster", AccessKind.BARRIER, BYTES)

    def run(m):
        where, mask = located(m, site, places(m))
        m.checks.barrier_ended(m, Access(site, where[1], mask, BYTES))
        for barrier, _, rows, _ in named(m, where, lanes_of(m, mask)):
            barrier.expected[rows] = 0

    return run


def _initialised(m, barrier, rows, line):
    if (barrier.expected[rows] <= 0).any():
        m.fail("a thread uses an mbarrier that nobody has initialised: mbarrier.init, then a barrier of the block, must come first.", line)


def _outdated(m, barrier, row: int, ended: int, line):
    """A thread waits for a phase of a block's mbarrier since whose beginning several have ended. Stops the launch."""
    few = "one arrival" if barrier.expected[row] == 1 else f"{barrier.expected[row]} arrivals"
    m.fail(
        f"a thread waits for the phase in which it arrived at the mbarrier initialised{at(barrier.line)}, and {ended} phases have ended "
        f"since: an mbarrier knows of the last one only. It expects {few} in a phase. If more threads arrive, phases end too early: give "
        "mbarrier.init the number of all arrivals of a phase. If not, let each thread wait for a phase before it arrives for the next.",
        line,
    )


def _announce(m, barrier, rows, count, line) -> None:
    """More bytes will come in this phase. Stops the launch where they are too many to count."""
    barrier.announce(rows, count, line)
    if not (barrier.bytes[rows] > MOST).any():
        return
    row = int(rows[barrier.bytes[rows].argmax()])
    each = np.broadcast_to(count, rows.shape)[rows == row]
    if each.max() > MOST:
        why = ""
    elif len(each) > 1 and (each.sum() > MOST or len(each) > barrier.expected[row]):
        few = f"{each[0]} bytes each" if (each == each[0]).all() else f"{each.sum()} bytes"
        why = (
            f" {len(each)} threads announce {few} here at once. Let one thread announce what comes and start the copies: `if (threadIdx.x "
            "== 0)`."
        )
    else:
        why = (
            " All of them belong to one phase, which is not over, while more and more is announced: nobody waits for it, or the wait names "
            "the parity of the phase that ended last, and returns at once."
        )
    m.fail(f"an mbarrier can count {MOST} bytes, and {int(barrier.bytes[row])} are announced here.{why}", line)


def _arrive(op, drop: bool):
    """mbarrier.arrive{.expect_tx}{.noComplete} {state,} [a]{, count | bytes}. A state of `_` is of no interest."""
    first = 0 if isinstance(op.operand(0), Address) else 1
    places = shared_places(op, first, "an mbarrier")
    amount = op.source(first + 1, "u32") if len(op.operands) > first + 1 else None
    d = op.result(0, "b64") if first else None
    expects_bytes, stays, relaxed, line = op.has("expect_tx"), op.has("noComplete"), op.has("relaxed"), op.line
    remote = _remote(op)

    def run(m):
        tokens = np.zeros(m.lanes, U64)
        where, here, give = remote(m, places(m))
        for barrier, _, rows, lanes in named(m, where, here):
            _initialised(m, barrier, rows, line)
            tokens[lanes] = barrier.tokens(rows)
            count = 1 if amount is None else of_lanes(m, m.regs[amount].view(U32), lanes).astype(np.int64)
            if expects_bytes:
                _announce(m, barrier, rows, count, line)
                count = 1
            elif (count > barrier.expected[rows]).any():
                few = int(barrier.expected[rows].min())
                m.fail(
                    f"a thread arrives {int(np.max(count))} times at once at an mbarrier that expects {few} arrivals in a phase, and what "
                    "is missing must not become negative.", line,
                )  # fmt: skip
            if drop:
                np.subtract.at(barrier.expected, rows, count)
            give(barrier, rows, lanes)
            phase = barrier.phase.copy()
            barrier.arrive(m, rows, lanes, count, came=_nothing(m) if relaxed else None)
            if stays and (barrier.phase != phase).any():
                m.fail("an arrival with .noComplete completes the phase, which it promises not to do.", line)
        if d is not None:
            m.regs[d] = m.from_rows(tokens.reshape(m.blocks, m.threads))

    return run


def _nothing(m) -> WarpMoment | None:
    """What an arrival tells that releases nothing (.relaxed). None where nobody asks."""
    moment = m.checks.reached(m)
    return moment and moment.without_news()


@instruction("mbarrier.arrive")
def mbarrier_arrive(op):
    """Arrive at [a] (c times), announcing c bytes with .expect_tx; d = the phase it was in."""
    return _arrive(op, False)


@instruction("mbarrier.arrive_drop")
def mbarrier_arrive_drop(op):
    """Arrive, and be expected no more."""
    return _arrive(op, True)


def _count_bytes(op, change):
    """[a], b. change(m, barrier, rows, amounts): what b bytes are to the mbarriers of the blocks `rows`."""
    places, amount, line = shared_places(op, 0, "an mbarrier"), op.source(1, "u32"), op.line
    remote = _remote(op)

    def run(m):
        where, here, give = remote(m, places(m))
        for barrier, _, rows, lanes in named(m, where, here):
            _initialised(m, barrier, rows, line)
            give(barrier, rows, lanes)
            m.checks.phase_helped(m, barrier, rows, lanes)
            change(m, barrier, rows, of_lanes(m, m.regs[amount].view(U32), lanes).astype(np.int64))

    return run


@instruction("mbarrier.expect_tx")
def mbarrier_expect_tx(op):
    """Announce b more bytes for the current phase of [a]."""
    return _count_bytes(op, lambda m, barrier, rows, amounts: _announce(m, barrier, rows, amounts, op.line))


@instruction("mbarrier.complete_tx")
def mbarrier_complete_tx(op):
    """b announced bytes of [a] have come."""

    def come(m, barrier, rows, amounts):
        np.subtract.at(barrier.bytes, rows, amounts)
        barrier.settle(m)

    return _count_bytes(op, come)


def _is_over(phase: np.ndarray, wanted: np.ndarray, parity: bool) -> np.ndarray:
    """Is the phase over that `wanted` names, by its parity or as the state of an arrival?"""
    return ((phase ^ wanted) & 1) == 1 if parity else phase.astype(U64) != wanted & LOW


def _wait(op):
    """p = whether the phase (its state, or its parity) of [a] is over."""
    op.lands = True
    op.without_effect(*SCOPES, "acquire")  # without .relaxed it acquires
    places = shared_places(op, 1, "an mbarrier")
    parity, acquires = op.has("parity"), not op.has("relaxed")
    if parity:
        op.loader.uses.add("phases")
    phase = op.source(2, "u32" if parity else "b64")
    if len(op.operands) > 3:
        op.source(3, "u32")  # how long the hardware may suspend the thread: a hint
    p = op.result(0, "pred")
    line, position = op.line, op.position
    site = op.site("cluster", AccessKind.BARRIER, BYTES)

    def run(m):
        done = np.zeros(m.lanes, bool)
        given = m.regs[phase].view(U32 if parity else U64)
        if parity and given.max() > 1:
            mbarrier_parity.note(m, line, given)
        where, mask = located(m, site, places(m))
        looking, heeded = lanes_of(m, mask), position not in m.program.undecisive
        if mask is not m.mask:  # whoever looks outside of shared memory need not look again
            done[np.setdiff1d(active_lanes(m), looking)] = True
        m.checks.barrier_used(m, Access(site, where[1], mask, BYTES))
        for barrier, offset, rows, lanes in named(m, where, looking):
            _initialised(m, barrier, rows, line)
            wanted = of_lanes(m, given, lanes)
            if not parity and (ended := barrier.phase[rows] - (wanted & LOW).astype(np.int64)).max() > 1:
                _outdated(m, barrier, int(rows[ended.argmax()]), int(ended.max()), line)
            done[lanes] = over = _is_over(barrier.phase[rows], wanted, parity)
            if not heeded:  # whoever goes on in either case knows nothing, and nothing need have come
                continue
            if not over.all():  # what is on its way comes no earlier than somebody depends on it
                chosen = np.zeros(m.blocks, bool)
                chosen[rows[~over]] = True
                barrier.look(m, chosen)
                done[lanes] = over = over | _is_over(barrier.phase[rows], wanted, parity)
            if over.any():
                m.checks.phase_seen(m, barrier, rows[over], lanes[over], position if parity else None)
                if acquires:
                    m.checks.waited(m, barrier, rows[over], lanes[over])
                if m.recorder is not None:
                    for row, warp in np.unique(np.stack([rows[over], lanes[over] % m.threads // WARP], axis=1), axis=0):
                        m.recorder.move(m, line, "wait", row, warp, offset - m.shared.start)
            if not over.all():
                m.asked[position] = barrier, int(rows[~over][0]), parity
        finished = done.reshape(m.blocks, m.threads)
        if done.any() and m.recorder is not None:  # the look that ends the waiting, not those in vain
            whole, m.mask = m.mask, None if done.all() else m.from_rows(finished)
            m.recorder.barrier(m, line, "wait")
            m.mask = whole
        m.regs[p] = m.uniform(True, np.bool_) if done.all() else m.from_rows(finished)
        if heeded and not done[looking].all():
            m.yielding = True

    return run


@instruction("mbarrier.test_wait")
def mbarrier_test_wait(op):
    """p = whether the phase of [a] is over."""
    return _wait(op)


@instruction("mbarrier.try_wait")
def mbarrier_try_wait(op):
    """p = whether the phase of [a] is over, after waiting for a while."""
    return _wait(op)


@instruction("mbarrier.pending_count")
def mbarrier_pending_count(op):
    """d = the arrivals that were missing when the state b was made, before its arrival."""
    op.pure()
    state, d = op.source(1, "b64"), op.result(0, "u32")

    def run(m):
        m.regs[d] = (m.regs[state].view(U64) >> np.uint64(32)).astype(U32)

    return run


@instruction("cp.async.mbarrier.arrive")
def cp_async_mbarrier_arrive(op):
    """Arrive at [a] when this thread's copies so far have landed (.noinc: as one of the arrivals it expects)."""
    from .async_copies import queue  # here, because that file is about copies and knows nothing of barriers

    op.lands = True
    op.loader.uses.add("cp.async.mbarrier")
    places, counted, line = shared_places(op, 0, "an mbarrier"), op.has("noinc"), op.line
    site = op.site("cluster", AccessKind.BARRIER, BYTES)

    def run(m):
        copies = queue(m)
        snapshot, came = list(copies.copies), m.checks.reached(m)  # what the thread does from here on is not told by its arrival
        where, mask = located(m, site, places(m))
        m.checks.barrier_used(m, Access(site, where[1], mask, BYTES))
        for barrier, _, rows, lanes in named(m, where, lanes_of(m, mask)):
            _initialised(m, barrier, rows, line)
            if not counted:
                barrier.lend(rows)

            def arrive(m, chosen, barrier=barrier, rows=rows, lanes=lanes):
                here = np.zeros(m.lanes, bool)
                here[lanes[chosen]] = True
                whole, m.mask = m.mask, m.from_rows(here.reshape(m.blocks, m.threads))
                for copy in snapshot:
                    if not copy.landed:
                        copies.land_where(m, copy, None, came)
                m.mask = whole
                barrier.arrive(m, rows[chosen], lanes[chosen], came=came, lent=not counted)

            barrier.attached.append(Arrival(rows, arrive))

    return run
