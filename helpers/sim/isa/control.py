"""Control flow, barriers, fences, and the instructions that end a thread."""

from __future__ import annotations

import numpy as np

from ..parser import Immediate
from .base import Jump, instruction
from .warp import check_members


@instruction("bra")
def bra(op):
    """Go to a label."""
    op.terminator = Jump(op.operand(0).name)
    op.targets = (op.operand(0).name,)
    op.falls_through = False


@instruction("brx.idx")
def brx_idx(op):
    """Go to the a-th label of a table."""
    index = op.source(0, "u32")
    labels = op.loader.tables[op.operand(1).name]
    op.targets = labels
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
    op.falls_through = False
    op.terminator = lambda place, following: lambda m: m.program.exit


@instruction("trap")
def trap(op):
    """Stop the whole kernel."""
    line = op.line

    def run(m):
        m.fail("the kernel stopped itself (trap).", line)

    return run


@instruction("brkpt")
def brkpt(op):
    """A breakpoint: nothing without a debugger."""
    return None


@instruction("pmevent")
def pmevent(op):
    """Trigger a performance monitor event: nothing here."""
    return None


@instruction("nanosleep")
def nanosleep(op):
    """Let other threads go first."""
    op.source(0, "u32")

    def run(m):
        m.polls += 16

    return run


# --- barriers --------------------------------------------------------------------------------------------------------


def _barrier(op, first: int, arrive: bool = False):
    """Operands: the barrier's number (a literal or the same in all threads) and, optionally, a count of threads."""
    op.loader.uses.add("bar")
    number = op.source(first, "u32") if len(op.operands) > first else None
    expected = op.source(first + 1, "u32") if len(op.operands) > first + 1 else None
    whole = expected is None and (number is None or isinstance(op.operand(first), Immediate))
    op.full_barrier = whole and not arrive
    line, aligned = op.line, op.name == "bar" or op.has("aligned")
    op.opclass = "BAR"

    def terminator(place, following):
        def end(m):
            which = 0 if number is None else _uniform(m, number, "barrier number", line)
            count = None if expected is None else _uniform(m, expected, "thread count of a barrier", line)
            return m.barrier(following, which, count, line, arrive, aligned)

        return end

    op.terminator = terminator


def _uniform(m, register, what, line) -> int:
    values = m.regs[register].view(np.uint32)
    if values.size > 1:
        mask = m.mask
        used = (
            values
            if mask is None
            else np.broadcast_to(values, np.broadcast_shapes(values.shape, mask.shape))[
                np.broadcast_to(mask, np.broadcast_shapes(values.shape, mask.shape))
            ]
        )
        if (used != used.flat[0]).any():
            m.fail(f"the {what} differs between threads that run together, which the machine cannot follow.", line)
        return int(used.flat[0])
    return values.item()


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
    op.loader.uses.add("bar.warp")
    op.rendezvous = True
    mask = op.source(0, "b32")
    line = op.line

    def run(m):
        if m.recorder is not None:
            m.recorder.barrier(m, line, "warp")
        masks = check_members(m, mask, line, "__syncwarp()")
        if m.shared.shadow is not None:
            m.shared.shadow.warp_sync(m, masks)
        if m.races is not None:
            m.races.warp_sync(m)

    return run


@instruction("bar.warp.sync")
def bar_warp_sync(op):
    """Wait for the threads of the warp that the mask names: __syncwarp()."""
    return _warp_barrier(op)


@instruction("fence")
def fence(op):
    """Order memory accesses. The machine's memory is always in order; what a fence orders across blocks matters to findings."""
    if op.has("mbarrier_init"):
        return _publish
    return None if op.has("cta", "proxy") else _across_blocks


@instruction("membar")
def membar(op):
    """Order memory accesses: __threadfence(). The machine's memory is always in order."""
    return None if op.has("cta", "proxy") else _across_blocks


def _across_blocks(m):
    if m.shared.shadow is not None:
        m.shared.shadow.fence(m)


def _publish(m):
    if m.shared.shadow is not None:
        m.shared.shadow.fence(m, acquires=False)


@instruction("griddepcontrol")
def griddepcontrol(op):
    """Programmatic dependent launch: there is one kernel, so there is nothing to wait for."""
    return None


@instruction("setmaxnreg")
def setmaxnreg(op):
    """Give registers to, or take them from, other warps: a matter of speed only."""
    return None
