"""Asynchronous copies of 4 to 16 bytes per thread (cp.async). Bulk copies are in `bulk`, mbarriers in `mbarrier`."""

from __future__ import annotations

import numpy as np

from helpers.sim.checks.accesses import DeviceAccess
from helpers.sim.code.program import Effect
from helpers.sim.code.ptx import Negated, Register
from helpers.sim.code.sites import AccessKind, rule_of
from helpers.sim.machine.copies import CopyQueue
from helpers.sim.machine.memory import RAW

from .base import instruction
from .loads_stores import address_of, watch

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
    size = ignore = None
    if op.cached() > 3:
        if _is_predicate(op, op.operand(3)):
            ignore = op.predicate(3)
        else:
            size = op.source(3, "u32")
    op.without_effect("global", "shared", "shared::cta")  # there is no other way
    through_cache = op.has("ca")
    reads, writes = (
        op.site(space, AccessKind.COPY, width, rule_of(AccessKind.COPY, space, not through_cache), at)
        for space, at in (("global", 1), ("shared", 0))
    )
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
            if bytes_read is None:
                m.checks.device_read(m, DeviceAccess(reads, places, good, width))
            if m.watching:
                watch(m, reads, reads.space, addresses, good)
                if m.counting is not None:
                    m.counting.copy(m, writes if through_cache else reads, addresses, offsets)
            m.mask = whole
            flat = m.memory.views[RAW[piece]]
            index = (places >> shift).astype(np.intp, copy=False)
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
            m.recorder.access(m, writes, writes.space, offsets)
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
    ones = np.where(left >= piece, ~raw.type(0), (raw.type(1) << (8 * np.minimum(left, piece - 1)).astype(raw)) - raw.type(1))
    return value & ones


@instruction("cp.async.commit_group")
def commit_group(op):
    """Close the group of copies started since the last commit."""
    op.effect = Effect.COPY
    line = op.line

    def run(m):
        queue(m).commit(m)
        if m.recorder is not None:
            m.recorder.barrier(m, line, "commit")

    return run


def _wait_for_groups(op, pending: int | None):
    """Wait until at most `pending` groups are under way; None: for all copies, committed or not."""
    op.effect, op.lands = Effect.COPY, True
    op.loader.uses.add("cp.async")
    line, kind, position = op.line, "wait all" if pending is None else f"wait {pending}", op.position

    def run(m):
        m.checks.copies_awaited(m, position)
        queue(m).wait(m, pending, position)
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
