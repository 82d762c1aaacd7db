"""Barriers, and instructions of a whole warp or warpgroup, that some of their threads never reach, or reach differently.

`Waiting` is what the machine knows of threads at a barrier: line, expected (threads it is for; None: all of the block),
barrier (its number), resume (where they go on; None: they only announced their arrival), mask, and aligned (is the barrier for whole
warps?). rows: per entry, which threads those are, boolean [blocks, threads].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, Protocol

import numpy as np

from helpers.sim.code.hardware_units import WARP

from .findings import at
from .protocols import Machine
from .warp_meetings import grouped, in_groups

KIND = "divergent-barrier"
MEANING = {KIND: "a barrier that some threads of the block never reach"}
ADVISED = {KIND: "Every thread of the block must reach the same __syncthreads(): move it out of the if, or return later."}
RETURNED = (  # CUDA Programming Guide, on independent thread scheduling: "all non-exited threads"
    "GPUs from sm_70 on wait for the threads that still run, so the kernel may work; CUDA's rule is that every thread of the block reaches "
    "the same __syncthreads(). If it stands in an `if` or a loop that some threads skip, move it out; if they return before it, move the "
    "return behind the last barrier, and guard loads and stores instead."
)
MASK_ADVICE = "The mask must name every thread that calls, and all those it names must call."
ABSENT_ADVICE = f"{MASK_ADVICE} If the call stands in an `if` or a loop that some lanes skip, take it out and use its result there."
WHOLE_WARPS = "Make the condition the same for all threads of a warp, or use barrier.sync, which threads of a warp may come to apart."
PLACES_ADVICE = (
    "All lanes that the mask names must come to the same call: take it out of the if, or give each side a mask of its own lanes."
)


class Waiting(Protocol):
    """Threads at a barrier."""

    line: int | None
    expected: int | None
    barrier: int
    resume: int | None
    mask: np.ndarray
    aligned: bool


def different_counts(m: Machine, entries: Sequence[Waiting], rows: Sequence[np.ndarray]) -> None:
    """Threads come to a named barrier with different numbers of threads, if they are of one block."""
    first, row = entries[-1], rows[-1]
    for entry, other in zip(entries, rows, strict=True):
        both = row.any(axis=1) & other.any(axis=1)
        if both.any() and None not in (first.expected, entry.expected) and entry.expected != first.expected:
            block = int(np.flatnonzero(both)[0])
            m.findings.add(
                KIND, first.line,
                f"Threads of block {m.block_position(block)} come to barrier {first.barrier} for {first.expected} threads, "
                f"and others for {entry.expected}{at(entry.line)}.",
                other_line=entry.line, block=m.block_position(block), thread=m.thread_position(int(np.flatnonzero(row[block])[0])),
                positions=(_position(m, first), _position(m, entry)),
                advice="All who arrive at a named barrier or wait for it must give the same number of threads.",
            )  # fmt: skip
            return


def too_many_come(m: Machine, entries: Sequence[Waiting], rows: Sequence[np.ndarray], blocks: np.ndarray, expected: int) -> None:
    """In `blocks` (boolean), more threads come to a named barrier than it is for, without one waiting for another."""
    block = int(np.flatnonzero(blocks)[0])
    here = [(entry, row[block]) for entry, row in zip(entries, rows, strict=True) if row[block].any()]
    entry, row = here[0]
    m.findings.add(
        KIND, entry.line,
        f"{sum(int(row.sum()) for _, row in here)} threads of block {m.block_position(block)} come to barrier {entry.barrier}, "
        f"which lets go of the first {expected}: which these are is not determined.",
        other_line=here[-1][0].line if here[-1][0].line != entry.line else None,
        block=m.block_position(block), thread=m.thread_position(int(np.flatnonzero(row)[0])),
        advice="Give each group of warps a barrier of its own, and count all of its threads.",
    )  # fmt: skip


def some_never_come(m: Machine, entries: Sequence[Waiting], rows: Sequence[np.ndarray], gone: np.ndarray) -> None:
    """In the blocks `gone` (boolean), threads have ended without reaching the barrier that the others wait at."""
    block = int(np.flatnonzero(gone)[0])
    missing = ~np.logical_or.reduce([row[block] for row in rows])
    thread = m.thread_position(int(np.flatnonzero(missing)[0]))
    m.findings.add(
        KIND, entries[0].line,
        f"{int(missing.sum())} of {m.threads} threads of block {m.block_position(block)} ended without reaching this barrier, "
        f"for example thread {thread}.",
        block=m.block_position(block), thread=thread, advice=RETURNED, positions=(_position(m, entries[0]),),
    )  # fmt: skip


def different_places(m: Machine, entries: Sequence[Waiting], rows: Sequence[np.ndarray], complete: np.ndarray) -> None:
    """Threads of one of the blocks `complete` (boolean) meet at barriers in different places, if they do."""
    for block in np.flatnonzero(complete):
        here = [(entry, row[block]) for entry, row in zip(entries, rows, strict=True) if row[block].any() and entry.resume is not None]
        if len({entry.resume for entry, _ in here}) > 1:
            (first, row), (second, _) = here[0], here[1]
            m.findings.add(
                KIND, first.line,
                f"Some threads of block {m.block_position(int(block))} wait at this barrier and others at another"
                f"{at(second.line)}; the hardware may or may not take them for the same.",
                other_line=second.line, block=m.block_position(int(block)), thread=m.thread_position(int(np.flatnonzero(row)[0])),
                positions=(_position(m, first), _position(m, second)),
            )  # fmt: skip
            return


def without_their_warps(m: Machine, entries: Sequence[Waiting], rows: Sequence[np.ndarray], complete: np.ndarray) -> None:
    """In the blocks `complete` (boolean), threads come to a barrier of whole warps (.aligned) that others of their warp are not at."""
    if sum(row.sum() for row in rows) != np.logical_or.reduce(rows).sum():
        return  # some came twice
    for place in dict.fromkeys((entry.resume, entry.line) for entry in entries if entry.aligned):
        here = np.logical_or.reduce([row for entry, row in zip(entries, rows, strict=True) if (entry.resume, entry.line) == place])
        here = here & complete[:, None]
        missing = np.repeat(grouped(here), WARP, axis=1)[:, : m.threads] & ~here
        if m.exited is not None:
            missing &= ~m.rows_of(m.exited)
        if missing.any():
            block, thread = (int(i) for i in np.argwhere(missing)[0])
            warp = slice(thread // WARP * WARP, thread // WARP * WARP + WARP)
            m.findings.add(
                KIND, place[1],
                f"{int(here[block, warp].sum())} threads of a warp come to this barrier without the others, for example without thread "
                f"{m.thread_position(thread)}: bar.sync and bar.arrive are for whole warps, and the hardware may hang or count 32 threads.",
                block=m.block_position(block), thread=m.thread_position(int(np.flatnonzero(here[block, warp])[0]) + warp.start),
                advice=WHOLE_WARPS, count=int(here[block, warp].sum()),
            )  # fmt: skip


def deadlock(m: Machine, parked: Sequence[Waiting], cluster: int) -> NoReturn:
    """All that have not ended wait at barriers. cluster: the number that the cluster's barrier has."""
    waiting = [entry for entry in parked if entry.resume is not None]  # the others only arrived
    entry = waiting[0]
    rows = m.rows_of(entry.mask)
    block, thread = (int(i) for i in np.argwhere(rows)[0])
    others = sorted({other.line for other in waiting if other.line not in (None, entry.line)})
    elsewhere = f" Others wait at line {', '.join(map(str, others))}." if others else ""
    whole, advice = "a barrier that the others never reach", None
    if entry.barrier == cluster:
        whole = "the cluster's barrier, which other threads of the cluster never reach"
        advice = "Every thread of every block of the cluster must call cluster.sync(): move it out of the if."
    elif entry.expected is not None:
        whole = f"barrier {entry.barrier}, for {entry.expected} threads, that the others never reach"
        advice = "As many threads as the barrier is for must arrive at it or wait there, and it is for whole warps: check who comes."
    message = f"{int(rows[block].sum())} of {m.threads} threads of block {m.block_position(block)} wait at {whole}.{elsewhere}"
    finding = m.findings.add(
        KIND, entry.line, message, other_line=others[0] if others else None,
        block=m.block_position(block), thread=m.thread_position(thread), advice=advice, positions=(_position(m, entry),),
    )  # fmt: skip
    m.findings.stop(f"{m.where(entry.line)}: {message} {finding.advice}", entry.line)


def _position(m: Machine, entry: Waiting) -> int | None:
    """Of the barrier that they wait at, behind which they go on; None where they have only arrived."""
    if entry.resume is None or entry.resume >= len(m.program.blocks):
        return None
    position = m.program.blocks[entry.resume].ops.start - 1
    return position if position >= 0 and m.program.ops[position].line == entry.line else None


def cluster_out_of_turn(m: Machine, line: int | None, rows: np.ndarray, what: str) -> None:
    """Threads (boolean [blocks, threads]) arrive at their cluster's barrier, or wait for it, when it is not their turn."""
    block, thread = (int(i) for i in np.argwhere(rows)[0])
    m.findings.add(
        KIND, line, f"A thread {what}.", block=m.block_position(block), thread=m.thread_position(thread),
        advice="Every thread of the cluster must arrive and wait in turn: use cluster.sync(), which does both.",
        count=int(np.count_nonzero(rows)),
    )  # fmt: skip


def arrived_apart(m: Machine, line: int | None, arrived: np.ndarray, place: np.ndarray, here: np.ndarray) -> None:
    """Threads `here` come to their cluster's barrier by an instruction of whole warps, of which others of their warps came by another one.

    arrived, here: boolean [blocks, threads]; place: by which instruction each came, its position + 1.
    """
    places = in_groups(np.where(arrived, place, 0))
    others = (places > 0) & (places != places.max(axis=2, keepdims=True))
    apart = np.repeat(others.any(axis=2), WARP, axis=1)[:, : m.threads] & here
    if not apart.any():
        return
    block, thread = (int(i) for i in np.argwhere(apart)[0])
    warp = places[block, thread // WARP]
    other = next(int(one) for one in warp if one > 0 and one != place[block, thread])
    other_line = m.program.ops[other - 1].line
    where = at(other_line) if other_line != line else " by another call"
    m.findings.add(
        KIND, line,
        f"{int((warp == place[block, thread]).sum())} threads of a warp arrive at the cluster's barrier here, and others{where}: "
        "barrier.cluster.arrive.aligned is for whole warps.",
        other_line=other_line if other_line != line else None,
        block=m.block_position(block), thread=m.thread_position(thread), count=int(np.count_nonzero(apart)),
        advice="Call cluster.sync() where all threads of a warp come by, behind the if.",
    )  # fmt: skip


def _note_lanes(m: Machine, line: int | None, message: str, lanes: np.ndarray, advice: str = MASK_ADVICE) -> None:
    block, warp, lane = (int(i) for i in np.argwhere(lanes)[0])
    m.findings.add(
        KIND, line, message, block=m.block_position(block), thread=m.thread_position(WARP * warp + lane),
        advice=advice, count=int(np.count_nonzero(lanes)),
    )  # fmt: skip


def outside_its_mask(m: Machine, line: int | None, what: str, masks: np.ndarray, lanes: np.ndarray) -> None:
    """Lanes (boolean [blocks, warps, 32]) call `what` with a member mask that leaves themselves out."""
    block, warp, lane = (int(i) for i in np.argwhere(lanes)[0])
    mask = int(np.broadcast_to(masks, lanes.shape)[block, warp, lane])
    _note_lanes(m, line, f"A thread calls {what} with the mask {mask:#010x}, which leaves the thread itself out.", lanes)


def named_but_absent(m: Machine, line: int | None, what: str, lanes: np.ndarray) -> None:
    """Lanes (boolean [blocks, warps, 32]) are named by the mask of `what` and never come."""
    message = f"A mask names lanes that never come to this {what}: they have ended, or wait at a barrier."
    _note_lanes(m, line, message, lanes, ABSENT_ADVICE)


def named_but_elsewhere(m: Machine, line: int | None, what: str, masks: np.ndarray | None) -> None:
    """Lanes call `what` with masks ([blocks, warps, 32]; None: of the whole warp) that name lanes which wait at another such instruction.

    The lanes that are here exchange values among themselves then. `__syncwarp()` may be called at several places, and is not told.
    """
    if not m.held:
        return
    active = m.warps_active()
    wanted = np.where(active, np.uint32(0xFFFFFFFF) if masks is None else masks, np.uint32(0))
    wanted = np.bitwise_or.reduce(wanted, axis=2, keepdims=True)
    named = (wanted >> np.arange(WARP, dtype=np.uint32) & 1).astype(bool)
    for pc in sorted(m.held & m.groups.keys()):
        lanes = named & m.warps(np.broadcast_to(m.groups[pc], m.shape), False)
        if lanes.any():
            block, warp, lane = (int(i) for i in np.argwhere(lanes)[0])
            other = m.program.blocks[pc].line
            m.findings.add(
                KIND, line,
                f"The mask of this {what} names lanes that are at another place{at(other)}, for example lane {lane}: "
                "which values come together is undefined.",
                other_line=other if other != line else None, block=m.block_position(block), thread=m.thread_position(WARP * warp + lane),
                advice=PLACES_ADVICE, count=int(np.count_nonzero(lanes)),
            )  # fmt: skip


def part_of_a_warp(m: Machine, line: int | None, name: str, lanes: np.ndarray) -> NoReturn:
    """Only some threads of a warp execute `name`. lanes: [blocks, warps], how many do."""
    block, warp = (int(i) for i in np.argwhere((lanes > 0) & (lanes < WARP))[0])
    _stop_part(
        m, line, block, WARP * warp, f"{lanes[block, warp]} of the 32 threads of a warp execute `{name}`, which the whole warp has",
        "Make the condition the same for all threads of a warp, and the block a multiple of 32 threads.",
    )  # fmt: skip


def part_of_a_warpgroup(m: Machine, line: int | None, name: str, threads: np.ndarray) -> NoReturn:
    """Only some threads of a warpgroup execute `name`. threads: [blocks, warpgroups], how many do."""
    block, group = (int(i) for i in np.argwhere((threads > 0) & (threads < 4 * WARP))[0])
    _stop_part(
        m, line, block, 4 * WARP * group,
        f"{threads[block, group]} of the 128 threads of a warpgroup execute `{name}`, which its four warps have",
        "A warpgroup is four warps, the first of them a multiple of four: make the condition the same for all of them.",
    )  # fmt: skip


def _stop_part(m: Machine, line: int | None, block: int, thread: int, what: str, advice: str) -> NoReturn:
    message = f"nly {what} to execute together."
    m.findings.add(KIND, line, f"O{message}", block=m.block_position(block), thread=m.thread_position(thread), advice=advice)
    m.fail(f"o{message} The result is undefined.", line)
