"""Accesses outside every array. They are refused, in a launch without checks too."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import numpy as np

from helpers.sim.code.addresses import DEVICE_BASE, RANK_SHIFT, SHARED_WINDOW, WINDOW_REACH
from helpers.sim.code.sites import AccessKind, Site

from .missed_elements import advice_on, place_of, start_of
from .protocols import Machine
from .shared_cells import plain_name

KIND = "out-of-bounds"
MEANING = {KIND: "an access outside every array"}
ADVISED = {KIND: "Check the index against the array's size before the access, or fix the address."}
FAR = 1 << 20  # bytes: beyond that, an access is not taken for one that misses an array a little
PART_ADVICE = (
    "{0} is a part of a larger array, and a launch has this part alone. If the kernel is to reach the rest, pass the whole array, "
    "and let the kernel begin further on."
)
NONE_GIVEN = (
    "The kernel declares extern __shared__ memory, and the launch gives it none. Say how many bytes a block has: shared= of the launch, "
    'or in a kernel of a lesson by extern "C" __device__ constexpr int dynamic_shared[] = {…};'
)
TOO_FEW_GIVEN = (
    "A block has {given} bytes of extern __shared__ memory here, as dynamic_shared of the kernel says (or shared= of the launch), and the "
    "access ends at byte {end} of it. Ask for as many bytes as the kernel uses, or check the index against the extent of {name}."
)
GENERIC = (
    "__cvta_generic_to_shared(pointer) makes an address of shared memory of a pointer. For others PTX promises nothing, whatever a GPU "
    "that looks at their lower bits alone may find there."
)
OF_AN_ARRAY = "Check the index against the extent of {}."
LOCAL_ADVICE = "An index into an array inside the kernel is too large or negative."

NULL, THROUGH_NULL = 1 << 20, "through a null pointer"  # addresses below it, and what is said of them
FAR_FROM_ALL = "at address {:#x}, far from every array"


def _verb(site: Site) -> str:
    return "reads" if site.op in (AccessKind.LOAD, AccessKind.MATRIX_LOAD) else "writes" if site.op is AccessKind.STORE else "accesses"


def in_device_memory(
    m: Machine, site: Site, allocations, offsets: np.ndarray, width: int, bad: np.ndarray, rest_of: Callable[[str], tuple[int, int]]
) -> None:
    """Threads (bad, per lane) reach device memory outside its allocations. Stops where it cannot be a small mistake.

    rest_of(name): bytes before and behind an array in the larger one that it is a part of.
    """
    block, thread, offset, count = m.example(bad, offsets)
    address = DEVICE_BASE + offset
    name, distance, side = nearest(allocations, offset, width)
    fatal = name is None or distance > FAR
    start = None if address < NULL else start_of(m, site, allocations)
    if start is not None:
        name, distance, side = nearest([start], offset, width)
    before, behind = rest_of(name) if name is not None else (0, 0)
    advice = None
    if address < NULL:
        name, what = None, THROUGH_NULL
    elif start is not None and distance > FAR:
        what = place_of(start, address - start.base, any(DEVICE_BASE + argument.base == start.base for argument in m.memory.arguments))
        advice = advice_on(address - start.base, {1, start.itemsize, width})
    elif fatal:
        name, what = None, FAR_FROM_ALL.format(address)
    else:
        what = _beside(distance, side, name)
        if distance <= (before if side == "before" else behind - width):
            advice = PART_ADVICE.format(name)
    verb = _verb(site)
    finding = m.findings.add(
        KIND,
        site.line,
        f"A thread {verb} {width} bytes {what}.",
        block=block,
        thread=thread,
        count=count,
        advice=advice,
        array=name or "",
        sites=(site,),
    )
    if fatal:
        m.findings.stop(f"{m.where(site.line)}: thread {thread} of block {block} {verb} {width} bytes {what}. {finding.advice}", site.line)


def nearest(allocations, offset: int, width: int) -> tuple[str | None, int, str]:
    """(name of the closest allocation, bytes between, on which side of it)."""
    return _closest([(allocation.name, allocation.base - DEVICE_BASE, allocation.nbytes) for allocation in allocations], offset, width)


def _closest(spans, offset: int, width: int) -> tuple[str | None, int, str]:
    """The same of (name, start, bytes)."""
    best = (None, 0, "")
    for name, start, nbytes in spans:
        end = start + nbytes
        if offset >= end:
            distance, side = offset - end, "past the end of"
        elif offset < start:
            distance, side = start - offset, "before"
        else:
            distance, side = offset + width - end, "across the end of"
        if best[0] is None or distance < best[1]:
            best = (name, distance, side)
    return best


def _beside(distance: int, side: str, name: str | None) -> str:
    """Where bytes lie, as said behind them."""
    if not distance:
        return f"just {side} {name}"
    return f"that {'reach' if side.startswith('across') else 'lie'} {distance} bytes {side} {name}"


def of_a_stretch(allocations, offset: int, nbytes: int) -> str:
    """Where bytes that a bulk copy reads or writes lie, as said behind them."""
    name, distance, side = nearest(allocations, offset, nbytes)
    if DEVICE_BASE + offset < NULL:
        return THROUGH_NULL
    if name is None or distance > FAR:
        return FAR_FROM_ALL.format(DEVICE_BASE + offset)
    return f"that begin {distance} bytes before {name}" if side == "before" else _beside(distance, side, name)


def in_shared_memory(m: Machine, site: Site, offsets: np.ndarray, width: int, bad: np.ndarray) -> None:
    """Threads (bad, per lane) reach beyond shared memory."""
    block, thread, offset, count = m.example(bad, offsets)
    verb = "reads" if site.op in (AccessKind.LOAD, AccessKind.MATRIX_LOAD) else "writes"
    name = None
    if site.space != "cluster" and "cluster" in m.program.uses and 0 < offset >> RANK_SHIFT <= m.clusters.size:
        what = f"A thread {verb} another block's shared memory with an instruction for its own block only: use .shared::cluster."
    elif SHARED_WINDOW <= offset < SHARED_WINDOW + WINDOW_REACH:
        what = f"A thread {verb} {width} bytes at a generic address, where the instruction takes one of shared memory."
        m.findings.add(KIND, site.line, what, block=block, thread=thread, count=count, advice=GENERIC, array="shared", sites=(site,))
        return
    else:
        offset -= 1 << 32 if 1 << 31 <= offset < 1 << 32 else 0  # 32-bit arithmetic has wrapped
        offset -= m.shared.start
        what = f"A thread {verb} {width} bytes at offset {offset} of shared memory, which has {m.shared.size} bytes per block"
        spans = [(plain_name(name), base - m.shared.start, nbytes or m.shared.end - base) for name, base, nbytes in m.program.shared]
        name, distance, side = _closest(spans, offset, width)
        what += "." if name is None else f": {distance} bytes {side} {name}." if distance else f": just {side} {name}."
    nothing_given = any(not nbytes for _, _, nbytes in m.program.shared) and m.shared.end == m.program.dynamic_shared_at
    advice = NONE_GIVEN if nothing_given else _of_alignments(m) or (_of_array(m, name, offset + width) if name else None)
    m.findings.add(KIND, site.line, what, block=block, thread=thread, count=count, advice=advice, array=name or "shared", sites=(site,))


def in_another_array(m: Machine, site: Site, start: int, offsets: np.ndarray, width: int, bad: np.ndarray) -> None:
    """Threads (bad, per lane) leave the array that begins at `start`, and reach what lies beside it in shared memory."""
    block, thread, offset, count = m.example(bad, offsets)
    spans = {base: (plain_name(name), base, nbytes or m.shared.end - base) for name, base, nbytes in m.program.shared}
    name, distance, side = _closest([spans[start]], offset, width)
    there = next(
        (other for other, base, nbytes in spans.values() if base < offset + width and offset < base + nbytes and base != start), ""
    )
    what = f"A thread {_verb(site)} {width} bytes {_beside(distance, side, name)}"
    m.findings.add(
        KIND, site.line, f"{what}, where {there} lies." if there else f"{what}.", block=block, thread=thread, count=count, array=name or "",
        advice=f"{OF_AN_ARRAY.format(name)[:-1]}: nothing stops an access from reaching what lies beside it.",
        sites=(site,),
    )  # fmt: skip


def _of_array(m: Machine, name: str, end: int) -> str:
    """The advice where an access of shared memory ends at its byte `end`, and the array `name` is the next to it."""
    given, end = m.launch.dynamic_shared, end - (m.program.dynamic_shared_at - m.shared.start)
    if end > given and any(plain_name(symbol) == name and not nbytes for symbol, _, nbytes in m.program.shared):
        return TOO_FEW_GIVEN.format(given=f"{given:,}", end=f"{end:,}", name=name)
    return OF_AN_ARRAY.format(name)


def _of_alignments(m: Machine) -> str | None:
    """The advice where variables lie at no multiple of the alignment they ask for: addresses are often computed from that."""
    for name, alignment in m.program.ungiven:
        return (
            f"{plain_name(name)} asks for an alignment of {alignment} bytes, which the hardware does not give: the block's shared memory "
            f"begins at address {m.shared.start:#x}. Addresses that rely on it (switched by ^=, say) miss; add offsets instead."
        )
    return None


def in_thread_memory(m: Machine, site: Site, space: str, nbytes: int, offsets: np.ndarray, width: int, bad: np.ndarray) -> None:
    """Threads (bad, per lane) reach beyond their local memory or the parameters."""
    block, thread, offset, count = m.example(bad, offsets)
    verb = "reads" if site.op is AccessKind.LOAD else "writes"
    m.findings.add(
        KIND, site.line, f"A thread {verb} {width} bytes at offset {offset} of its {space} memory of {nbytes} bytes.",
        block=block, thread=thread, count=count, advice=LOCAL_ADVICE, array=space, sites=(site,),
    )  # fmt: skip


def by_bulk_copy(m: Machine, site: Site, lanes: np.ndarray, bad: np.ndarray, say: Callable[[int], str], advice: str | None = None) -> None:
    """Where a bulk copy of a lane is `bad` ([n], boolean), stop as the hardware does. say(i): what is wrong with copy i."""
    refuse_copies(m, KIND, site, lanes, bad, say, advice)


def refuse_copies(m: Machine, kind: str, site: Site, lanes: np.ndarray, bad: np.ndarray, say, advice: str | None) -> None:
    """`by_bulk_copy` for a finding of any kind."""
    if not bad.any():
        return
    i = int(bad.argmax())
    block, thread = divmod(int(lanes[i]), m.threads)
    finding = m.findings.add(
        kind,
        site.line,
        say(i),
        block=m.block_position(block),
        thread=m.thread_position(thread),
        count=int(bad.sum()),
        advice=advice,
        sites=(site,),
    )
    m.findings.stop(f"{m.where(site.line)}: {finding.message} The hardware stops here. {finding.advice}", site.line)


def beyond_the_rows(m: Machine, site: Site, row_bytes: int, rest: int, lanes: np.ndarray, over: np.ndarray) -> None:
    """Bulk stores of lanes (over: [n], boolean) write `rest` bytes beyond each row of a tensor, which end within a chunk."""
    block, thread = divmod(int(lanes[int(over.argmax())]), m.threads)
    m.findings.add(
        KIND, site.line,
        f"A bulk copy stores {rest} bytes beyond the end of each row of the tensor: rows of {row_bytes} bytes "
        "end within a chunk of 16 bytes, and the hardware stores whole chunks.",
        block=m.block_position(block), thread=m.thread_position(thread), count=int(over.sum()),
        advice="Give the tensor rows of a multiple of 16 bytes, or store its last columns by ordinary stores.",
    )  # fmt: skip


def by_matrix(m: Machine, line: int | None, name: str, descriptor, offset: int, block: int, thread: int) -> None:
    """A wgmma's matrix descriptor reaches the address `offset`, which is none of the block's shared memory."""
    m.findings.add(
        KIND, line,
        f"The matrix {name} of a wgmma (start address {descriptor.start:#x}, leading {descriptor.leading}, stride {descriptor.stride} "
        f"bytes, swizzle {descriptor.mode or 'none'}) reaches offset {offset - m.shared.start} of shared memory, "
        f"which has {m.shared.size} bytes per block.",
        block=m.block_position(block), thread=m.thread_position(thread),
        advice="Check the offsets in the descriptor: they are bytes, and the fields hold them without their last four bits.",
    )  # fmt: skip


def no_such_block(m: Machine, line: int | None, ranks: np.ndarray, bad: np.ndarray) -> NoReturn:
    """Threads (bad, per lane) ask for a block that their cluster does not have."""
    block, thread, value, count = m.example(bad, ranks)
    finding = m.findings.add(
        KIND, line, f"A thread asks for block {value} of its cluster, which has {m.clusters.size}.",
        block=block, thread=thread, count=count,
        advice="Take the rank modulo cluster.num_blocks(); without a cluster launch every block is alone.",
    )  # fmt: skip
    m.findings.stop(f"{m.where(line)}: {finding.message} {finding.advice}", line)
