"""Control flow, barriers, fences, and the instructions that end a thread."""

from __future__ import annotations

import re

import numpy as np

from helpers.sim.code.program import Effect
from helpers.sim.code.ptx import Immediate

from .base import SCOPES, Jump, instruction
from .warps import check_members


@instruction("bra")
def bra(op):
    """Go to a label."""
    op.without_effect("uni")
    op.effect, op.terminator = Effect.JUMP, Jump(op.operand(0).name)
    op.targets = (op.operand(0).name,)
    op.falls_through = False


@instruction("brx.idx")
def brx_idx(op):
    """Go to the a-th label of a table."""
    op.without_effect("uni")
    index = op.source(0, "u32")
    labels = op.loader.tables[op.operand(1).name]
    op.effect, op.targets = Effect.JUMP, labels
    op.falls_through = False

    def terminator(place, following):
        targets = [place(label) for label in labels]

        def end(m):
            chosen = m.regs[index].view(np.uint32)
            if chosen.size == 1:
                return targets[chosen.item()]
            parts = []
            for value in range(len(targets)):
                go = chosen == value
                if m.mask is not None:
                    go = go & m.mask
                if go.any():
                    parts.append((targets[value], go))
            return parts

        return end

    op.terminator = terminator


@instruction("ret")
def ret(op):
    """End the kernel for these threads (a device function's ret has become a jump behind its call)."""
    _end(op)


@instruction("exit")
def exit_(op):
    """End these threads."""
    _end(op)


def _end(op):
    op.without_effect("uni")
    op.effect, op.falls_through = Effect.END, False
    op.terminator = lambda place, following: lambda m: m.program.exit


@instruction("trap")
def trap(op):
    """Stop the whole kernel."""
    line, number = op.line, op.instruction.ptx_line

    def run(m):
        header, source = m.program.header_at(number), m.launch.source
        why = f", in {header}, where you find what it asks of its arguments" if header else ""
        if source and not header and not re.search(r"\b(?:trap|__trap|assert|__builtin_trap|abort|terminate)\b", source):
            why = ". The source does not ask for that: the compiler put it where it saw that something cannot be, as a null pointer's use"
        m.fail(f"the kernel stopped itself (trap){why}.", line)

    return run


@instruction("brkpt")
def brkpt(op):
    """A breakpoint: nothing without a debugger."""
    op.hint()


@instruction("pmevent")
def pmevent(op):
    """Trigger a performance monitor event: nothing here."""
    op.hint()


@instruction("nanosleep")
def nanosleep(op):
    """Let other threads go first."""
    op.source(0, "u32")

    def run(m):
        m.polls += 16

    return run


# --- barriers --------------------------------------------------------------------------------------------------------


def _barrier(op, first: int, arrive: bool = False, vote=None):
    """Operands from `first` on: the barrier's number and, optionally, a count of threads.

    vote: (name of the reduction, register of the result, register of each thread's predicate) of a barrier that has one.
    """
    numbers = range(first, len(op.operands) - (vote is not None))
    number = op.source(first, "u32") if len(numbers) > 0 else None
    expected = op.source(first + 1, "u32") if len(numbers) > 1 else None
    whole = expected is None and (number is None or isinstance(op.operand(first), Immediate))
    op.effect, op.whole_block = Effect.BARRIER, whole and not arrive
    line, aligned = op.line, op.has("aligned") or op.name == "bar"
    op.opclass = "BAR"

    def terminator(place, following):
        def end(m):
            which, count = (None if r is None else m.regs[r].view(np.uint32) for r in (number, expected))
            if all(values is None or values.size == 1 for values in (which, count)):
                return m.barrier(following, *_numbers(which, count), line, arrive, aligned, vote)
            # Warps may come to barriers of different numbers: one after the other.
            shape = np.broadcast_shapes(*(values.shape for values in (which, count) if values is not None), (1,) * m.nd)
            whole = np.ones(shape, bool) if m.mask is None else m.mask
            pairs = (np.broadcast_to(np.uint32(0) if values is None else values, shape) for values in (which, count))
            keys = np.left_shift(next(pairs).astype(np.uint64), np.uint64(32)) | next(pairs)
            for key in np.unique(np.broadcast_to(keys, m.shape)[np.broadcast_to(whole, m.shape)]):
                m.mask = whole & (keys == key)
                m.barrier(
                    following,
                    int(key >> np.uint64(32)),
                    None if count is None else int(key & np.uint64(0xFFFFFFFF)),
                    line,
                    arrive,
                    aligned,
                    vote,
                )
            return None

        return end

    op.terminator = terminator


def _numbers(which, count):
    return 0 if which is None else which.item(), None if count is None else count.item()


def _voting_barrier(op):
    """d, a{, b}, p: a barrier, and then d = whether p holds in all threads (and), in any (or), or in how many (popc)."""
    name = op.one_of("and", "or", "popc")
    d = op.result(0, "u32" if name == "popc" else "pred")
    p = op.predicate(len(op.operands) - 1)
    _barrier(op, 1, vote=(name, d, p))


@instruction("bar.red")
def bar_red(op):
    """__syncthreads_and(), __syncthreads_or(), __syncthreads_count()."""
    _voting_barrier(op)


@instruction("barrier.red")
def barrier_red(op):
    """The same; threads of a warp need not come together unless .aligned."""
    _voting_barrier(op)


@instruction("barrier.cta.red")
def barrier_cta_red(op):
    """The same under its long name."""
    _voting_barrier(op)


@instruction("bar.cta.red")
def bar_cta_red(op):
    """The same under its long name."""
    _voting_barrier(op)


@instruction("bar.sync")
def bar_sync(op):
    """Wait until all threads of the block (or as many as the second operand says) are here: __syncthreads()."""
    _barrier(op, 0)


@instruction("barrier.sync")
def barrier_sync(op):
    """The same; threads of a warp need not come together unless .aligned."""
    _barrier(op, 0)


@instruction("barrier.cta.sync")
def barrier_cta_sync(op):
    """The same under its long name."""
    _barrier(op, 0)


@instruction("bar.cta.sync")
def bar_cta_sync(op):
    """The same under its long name."""
    _barrier(op, 0)


@instruction("bar.arrive")
def bar_arrive(op):
    """Count as arrived at a barrier without waiting."""
    _barrier(op, 0, arrive=True)


@instruction("barrier.arrive")
def barrier_arrive(op):
    """The same; threads of a warp need not come together unless .aligned."""
    _barrier(op, 0, arrive=True)


@instruction("barrier.cta.arrive")
def barrier_cta_arrive(op):
    """The same under its long name."""
    _barrier(op, 0, arrive=True)


def _warp_barrier(op):
    op.effect, op.rendezvous = Effect.BARRIER, 1
    mask = op.members = op.source(0, "b32")
    line = op.line

    def run(m):
        if m.recorder is not None:
            m.recorder.barrier(m, line, "warp")
        masks = check_members(m, mask, line, "__syncwarp()")
        m.checks.warp_barrier(m, masks)

    return run


@instruction("bar.warp.sync")
def bar_warp_sync(op):
    """Wait for the threads of the warp that the mask names: __syncwarp()."""
    return _warp_barrier(op)


@instruction("fence")
def fence(op):
    """Order memory accesses. The machine's memory is always in order; what a fence orders across blocks matters to findings."""
    if op.has("mbarrier_init"):
        op.effect, op.orders = Effect.FENCE, True
        op.without_effect("release", "cluster")  # there is no other way
        return _within_cluster(_publish)
    return _thread_fence(op)


@instruction("membar")
def membar(op):
    """Order memory accesses: __threadfence(). The machine's memory is always in order."""
    return _thread_fence(op)


def _thread_fence(op):
    op.effect, op.orders = Effect.FENCE, not op.has("cta")
    if op.has("proxy"):
        op.hint()
        return None
    op.without_effect(*SCOPES, "gl", "sc", "acq_rel", "acquire", "release")  # each orders all accesses here,
    op.without_effect("sync_restrict::shared::cta", "sync_restrict::shared::cluster")  # in device memory, too
    op.loader.uses.add("fence")
    if op.has("cta"):
        op.loader.uses.add("block order")
        return _within_block
    return _within_cluster(_across_blocks) if op.has("cluster") else _across_blocks


def _within_block(m):
    m.checks.block_fence(m)


def _within_cluster(order):
    """What a fence of the cluster's threads does, where there are others in it than the block's own."""

    def run(m):
        if not m.alone:
            order(m)

    return run


def _across_blocks(m):
    m.checks.fence(m)


def _publish(m):
    m.checks.fence(m, False)


@instruction("griddepcontrol")
def griddepcontrol(op):
    """Programmatic dependent launch: there is one kernel, so there is nothing to wait for."""
    op.hint()
