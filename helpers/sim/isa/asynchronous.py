"""Asynchronous copies (cp.async) and barriers in shared memory (mbarrier)."""

from __future__ import annotations

import numpy as np

from ..asynchronous import CopyQueue, MBarrier
from ..cluster_shadow import UPDATE, WRITE
from ..memory import RAW
from ..parser import Address, Negated, Register
from .base import instruction
from .cluster import mbarriers_at
from .memory import address_of, generic_parts, space_of, watch

I64, U32, U64 = np.dtype(np.int64), np.dtype(np.uint32), np.dtype(np.uint64)


def queue(m) -> CopyQueue:
    found = m.asynchronous.get("copies")
    if found is None:
        found = m.asynchronous["copies"] = CopyQueue(m)
    return found


@instruction("cp.async")
def cp_async(op):
    """Start copying 4, 8 or 16 bytes from global [b] to shared [a]; bytes beyond the source size become 0."""
    if op.has("bulk", "reduce"):
        op.unknown()
    # operands
    target, source = address_of(op, 0), address_of(op, 1)
    width = op.immediate(2)
    if width not in (4, 8, 16):
        op.fail("copies a number of bytes that is not 4, 8 or 16")
    extra = op.operands[3:]
    size = ignore = None
    if op.has("L2::cache_hint"):
        extra = extra[:-1]
    if extra:
        if _is_predicate(op, extra[0]):
            ignore = op.bind(extra[0], "pred")
        else:
            size = op.bind(extra[0], "u32")
    reads = op.site("global", "cp.async", width)
    writes = op.site("shared", "cp.async", width)
    writes.charged = 0
    through_cache = op.has("ca")
    op.loader.uses.add("cp.async")
    piece = min(width, 8)
    shift, count = piece.bit_length() - 1, width // piece

    # meaning
    def run(m):
        addresses, offsets = source(m), target(m)
        whole = m.mask
        wanted = whole
        bytes_read = None
        if ignore is not None:
            wanted = ~m.regs[ignore] if whole is None else ~m.regs[ignore] & whole
        elif size is not None:
            bytes_read = np.minimum(m.regs[size].view(U32), np.uint32(width))
            if bytes_read.size == 1 and bytes_read.item() == width:
                bytes_read = None
            else:
                some = bytes_read > 0
                wanted = some if whole is None else some & whole
        if wanted is not None and wanted is not whole:
            wanted = None if wanted.all() else wanted
        if wanted is None or wanted.any():
            m.mask = wanted
            places, good = m.memory.locate(m, reads, addresses, width)
            if m.watching:
                watch(m, reads, addresses, good)
                if m.counting is not None and through_cache:
                    m.counting.copy(m, writes, addresses, offsets)
            m.mask = whole
            flat = m.memory.views[RAW[piece]]
            index = places >> shift
            values = [(flat[k:] if k else flat).take(index, mode="wrap") for k in range(count)]
        else:
            good = wanted
            values = [m.uniform(0, RAW[piece]) for _ in range(count)]
        if good is not whole:
            used = np.ones((1,) * m.nd, bool) if good is None else good
            values = [np.where(used, value, RAW[piece].type(0)) for value in values]
        if bytes_read is not None:
            values = [_first_bytes(value, bytes_read, k * piece, piece) for k, value in enumerate(values)]
        # result
        offsets, mask = m.shared.locate(m, writes, offsets, width)
        if m.recorder is not None:
            m.recorder.access(m, writes, offsets)
        queue(m).issue(m, writes, offsets, values, width, mask)

    return run


def _is_predicate(op, operand) -> bool:
    if isinstance(operand, Negated):
        return True
    return isinstance(operand, Register) and op.loader.register_types.get(operand.name) == "pred"


def _first_bytes(value, count, start, piece):
    """Keep the bytes of a piece that lie before byte `count` of the whole."""
    left = np.clip(count.astype(np.int64) - start, 0, piece)
    raw = RAW[piece]
    ones = np.where(
        left >= piece, ~raw.type(0), (raw.type(1) << (8 * np.minimum(left, piece - 1)).astype(raw)) - raw.type(1)
    )
    return value & ones


@instruction("cp.async.commit_group")
def commit_group(op):
    """Close the group of copies started since the last commit."""
    line = op.line

    def run(m):
        queue(m).commit(m)
        if m.recorder is not None:
            m.recorder.barrier(m, line, "commit")

    return run


def _wait_for_groups(op, pending: int | None):
    """Wait until at most `pending` groups are under way; None: for all copies, committed or not."""
    op.lands = True
    op.loader.uses.add("cp.async")
    line, kind = op.line, "wait all" if pending is None else f"wait {pending}"

    def run(m):
        queue(m).wait(m, pending)
        if m.recorder is not None:
            m.recorder.barrier(m, line, kind)

    return run


@instruction("cp.async.wait_group")
def wait_group(op):
    """Wait until at most n of this thread's latest groups are still under way."""
    return _wait_for_groups(op, op.immediate(0))


@instruction("cp.async.wait_all")
def wait_all(op):
    """Wait for all copies of this thread."""
    return _wait_for_groups(op, None)


# --- mbarrier --------------------------------------------------------------------------------------------------------


def _shared_address(op, i: int):
    """A function giving operand i as offsets in the block's shared memory, from a shared or generic address."""
    address = address_of(op, i)
    if space_of(op) == "shared":
        return address
    line = op.line

    def from_generic(m):
        parts = generic_parts(m, address(m))
        if len(parts) != 1 or parts[0][0] != "shared":
            m.fail("an mbarrier must lie in shared memory, and this address points elsewhere.", line)
        return parts[0][1]

    return from_generic


def each_barrier(m, offsets):
    """Yield (mbarrier, lanes [blocks, threads] or None for all) for the barriers that the active lanes name."""
    barriers = m.asynchronous.setdefault("barriers", {})

    def get(offset):
        found = barriers.get(offset)
        if found is None:
            found = barriers[offset] = MBarrier.new(m.blocks)
        return found

    if offsets.size == 1:
        yield get(offsets.item()), None if m.mask is None else m.rows_of(m.mask)
        return
    rows = m.rows_of(offsets)
    active = np.ones(rows.shape, bool) if m.mask is None else m.rows_of(m.mask)
    for offset in np.unique(rows[active]).tolist():
        yield get(offset), active & (rows == offset)


def _per_block(m, lanes, values=None):
    """Sum of `values` (1 each by default) over the lanes of each block."""
    if values is None:
        return np.full(m.blocks, m.threads) if lanes is None else lanes.sum(axis=1)
    rows = m.rows_of(values).astype(np.int64)
    return (rows if lanes is None else np.where(lanes, rows, 0)).sum(axis=1)


def _touch(m, offsets):
    """The 8 bytes of an mbarrier count as written."""
    if m.shared.shadow is not None:
        m.shared.shadow.mark_written(m, offsets, m.mask, 8)


@instruction("mbarrier.init")
def mbarrier_init(op):
    """A new mbarrier at [a] that expects b arrivals per phase."""
    address, count = _shared_address(op, 0), op.source(1, "u32")
    site = op.site("cluster", "mbarrier.init", 8)  # of interest to other blocks of the cluster only

    def run(m):
        offsets = address(m)
        _touch(m, offsets)
        if m.shared.shadow is not None and m.shared.shadow.cluster is not None:
            m.shared.shadow.cluster.own(m, site, offsets, m.mask, 8, WRITE)
        expected = m.rows_of(m.regs[count].view(U32)).astype(np.int64)
        for barrier, lanes in each_barrier(m, offsets):
            blocks = np.ones(m.blocks, bool) if lanes is None else lanes.any(axis=1)
            value = expected[:, 0] if lanes is None else np.where(lanes, expected, 0).max(axis=1)
            barrier.expected[blocks] = barrier.pending[blocks] = value[blocks]
            barrier.bytes[blocks] = barrier.phase[blocks] = 0

    return run


@instruction("mbarrier.inval")
def mbarrier_inval(op):
    """The mbarrier at [a] is one no more."""
    address = _shared_address(op, 0)

    def run(m):
        for barrier, lanes in each_barrier(m, address(m)):
            blocks = np.ones(m.blocks, bool) if lanes is None else lanes.any(axis=1)
            barrier.expected[blocks] = 0

    return run


def _arrive(op, drop: bool):
    """mbarrier.arrive{.expect_tx}{.noComplete} state, [a]{, count | bytes}."""
    has_state = op.operands and not _is_address(op.operand(0))
    first = 1 if has_state else 0
    if space_of(op) == "cluster":
        return _remotely(op, first, _expect_and_arrive if op.has("expect_tx") else _arrive_and_drop if drop else _arrive_at)
    address = _shared_address(op, first)
    amount = op.source(first + 1, "u32") if len(op.operands) > first + 1 else None
    expects_bytes = op.has("expect_tx")
    d = op.result(0, "b64") if has_state else None
    line = op.line

    def run(m):
        offsets = address(m)
        tokens = np.zeros((m.blocks, m.threads), np.uint64)
        for barrier, lanes in each_barrier(m, offsets):
            chosen = np.ones((m.blocks, m.threads), bool) if lanes is None else lanes
            if (barrier.expected[chosen.any(axis=1)] <= 0).any():
                m.fail("a thread arrives at an mbarrier that nobody has initialised.", line)
            tokens[chosen] = np.broadcast_to(barrier.phase[:, None], chosen.shape)[chosen]
            if expects_bytes:
                barrier.bytes += _per_block(m, lanes, m.regs[amount].view(U32))
                arrivals = _per_block(m, lanes)
            else:
                arrivals = _per_block(m, lanes, None if amount is None else m.regs[amount].view(U32))
            if drop:
                barrier.expected -= arrivals
            barrier.pending -= arrivals
            barrier.settle(m)
        if d is not None:
            m.regs[d] = m.from_rows(tokens)

    return run


def _is_address(operand) -> bool:
    return isinstance(operand, Address)


def _remotely(op, first: int, change):
    """An operation on mbarriers of any block of the cluster: operand `first` is the address, the next one the amount (1).

    change: function of an mbarrier, the rows of the blocks it is changed in (one may occur often), and their amounts.
    """
    op.lands = True
    address = address_of(op, first)
    amount = op.source(first + 1, "u32") if len(op.operands) > first + 1 else None
    site = op.site("cluster", "mbarrier", 8)
    line = op.line

    def run(m):
        rows, offsets = m.clusters.resolve(m, address(m))
        offsets, mask = m.shared.locate(m, site, offsets, 8)
        shadow = m.shared.shadow
        if shadow is not None:
            shadow.remote(m, site, rows, offsets, mask, 8, UPDATE)
        amounts = np.ones(m.lanes, np.int64) if amount is None else m.rows_of(m.regs[amount].view(U32)).reshape(-1).astype(np.int64)
        for barrier, targets, lanes in mbarriers_at(m, rows, offsets, mask):
            if (barrier.expected[targets] <= 0).any():
                m.fail("a thread uses an mbarrier of another block that nobody has initialised.", line)
            change(barrier, targets, amounts[lanes])
            if shadow is not None and shadow.cluster is not None:
                shadow.cluster.give(m, barrier, lanes, targets)
            barrier.settle(m)

    return run


def _arrive_at(barrier, rows, amounts):
    np.subtract.at(barrier.pending, rows, amounts)


def _arrive_and_drop(barrier, rows, amounts):
    np.subtract.at(barrier.expected, rows, amounts)
    np.subtract.at(barrier.pending, rows, amounts)


def _expect(barrier, rows, amounts):
    np.add.at(barrier.bytes, rows, amounts)


def _expect_and_arrive(barrier, rows, amounts):
    np.add.at(barrier.bytes, rows, amounts)
    np.subtract.at(barrier.pending, rows, 1)


def _complete(barrier, rows, amounts):
    np.subtract.at(barrier.bytes, rows, amounts)


@instruction("mbarrier.arrive")
def mbarrier_arrive(op):
    """Arrive at [a] (c times), announcing c bytes with .expect_tx; d = the phase it was in."""
    return _arrive(op, False)


@instruction("mbarrier.arrive_drop")
def mbarrier_arrive_drop(op):
    """Arrive, and be expected no more."""
    return _arrive(op, True)


@instruction("mbarrier.expect_tx")
def mbarrier_expect_tx(op):
    """Announce b more bytes for the current phase of [a]."""
    if space_of(op) == "cluster":
        return _remotely(op, 0, _expect)
    address, amount = _shared_address(op, 0), op.source(1, "u32")

    def run(m):
        for barrier, lanes in each_barrier(m, address(m)):
            barrier.bytes += _per_block(m, lanes, m.regs[amount].view(U32))

    return run


@instruction("mbarrier.complete_tx")
def mbarrier_complete_tx(op):
    """b announced bytes of [a] have come."""
    if space_of(op) == "cluster":
        return _remotely(op, 0, _complete)
    address, amount = _shared_address(op, 0), op.source(1, "u32")

    def run(m):
        for barrier, lanes in each_barrier(m, address(m)):
            barrier.bytes -= _per_block(m, lanes, m.regs[amount].view(U32))
            barrier.settle(m)

    return run


def _wait(op):
    """p = whether the phase (its number, or its parity) of [a] is over."""
    op.lands = True
    address = _shared_address(op, 1)
    parity = op.has("parity")
    phase = op.source(2, "u32" if parity else "b64")
    p = op.result(0, "pred")
    line = op.line

    def run(m):
        done = np.zeros((m.blocks, m.threads), bool)
        given = m.rows_of(m.regs[phase].view(U32 if parity else U64)).astype(np.int64)
        for barrier, lanes in each_barrier(m, address(m)):
            barrier.look(m)
            now = barrier.phase[:, None]
            over = ((now ^ given) & 1) == 1 if parity else now != given
            over = over if lanes is None else over & lanes
            done |= over
            if m.shared.shadow is not None and m.shared.shadow.cluster is not None:
                m.shared.shadow.cluster.take(barrier, np.flatnonzero(over.any(axis=1)))
        active = np.ones((1, 1), bool) if m.mask is None else m.rows_of(m.mask)
        if (done & active).any():
            if m.shared.shadow is not None:
                # What the threads did that arrived is ordered before what these threads do next.
                m.shared.shadow.clear(m, (done & active).any(axis=1))
            if m.recorder is not None:  # the look that ends the waiting, not those in vain
                whole, m.mask = m.mask, None if (done & active).all() else m.from_rows(done & active)
                m.recorder.barrier(m, line, "wait")
                m.mask = whole
        m.regs[p] = m.from_rows(done) if not done.all() else m.uniform(True, np.bool_)
        if not (done | ~active).all():
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
    """d = the arrivals missing when the state b was made; the machine's states do not keep it."""
    op.unknown()


@instruction("cp.async.mbarrier.arrive")
def cp_async_mbarrier_arrive(op):
    """Arrive at [a] when this thread's copies so far have landed (.noinc: as one of the arrivals it expects)."""
    op.lands = True
    address = _shared_address(op, 0)
    counted = op.has("noinc")

    def run(m):
        copies = queue(m)
        snapshot = list(copies.copies)
        mask = m.mask
        for barrier, lanes in each_barrier(m, address(m)):
            arrivals = _per_block(m, lanes)
            if not counted:
                barrier.pending += arrivals
            here = mask if lanes is None else m.from_rows(lanes)

            def arrive(m, barrier=barrier, here=here, arrivals=arrivals):
                now, m.mask = m.mask, here
                for copy in snapshot:
                    if not copy.landed:
                        copies.land_where(m, copy, None)
                m.mask = now
                barrier.pending -= arrivals

            barrier.attached.append(arrive)

    return run
