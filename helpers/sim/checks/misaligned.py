"""Accesses at an address that is not a multiple of their width. The hardware stops there, and so does the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import numpy as np

from helpers.sim.code.addresses import DEVICE_BASE
from helpers.sim.code.program import Program
from helpers.sim.code.sites import Site

from .beyond_array import bounds_of
from .out_of_bounds import refuse_copies
from .protocols import Machine
from .shared_cells import array_at, plain_name

KIND = "misaligned"
MEANING = {KIND: "an address that is not a multiple of the access width"}
SHARED_ADVICE = (
    "A vector access of {0} bytes needs an address that is a multiple of {0}: check the index, that a row of {1}, padding included, is a "
    "multiple of {0} bytes long, and that {1} is declared with __align__({0})."
)
OF_ITS_BEGINNING = "Declare it __shared__ __align__({}) …: without that, where it begins depends on the arrays beside it."
OF_A_PART = (
    "It is a part of a larger array, as a + 1 is of a. Pass what begins at a multiple of {0} bytes, or let the kernel look at the "
    "pointer and access fewer bytes at a time where it is none."
)
BOX, PATTERN = 128, 1024  # bytes: where a box of a tensor copy may begin in shared memory, and what every swizzle's pattern repeats within
ADVISED = {KIND: "A vector access of n bytes needs an address that is a multiple of n: check the pointer and the leading dimension."}


def in_device_memory(m: Machine, site: Site, allocations, offsets: np.ndarray, width: int, bad: np.ndarray) -> NoReturn:
    """Threads (bad, per lane) access device memory so."""
    block, thread, offset, count = m.example(bad, offsets)
    here = DEVICE_BASE + offset
    holding = _holding(allocations, here)
    array, begins, advice = next(((one.name, here - one.base) for one in holding), None), "", None
    if holding and all(_by_its_beginning(here, here - one.base, width) for one in holding):  # of those that overlap, any may be meant
        begins, advice = f"address {holding[0].base:#x}", OF_A_PART.format(width)
    _stop(m, site, "an access", here, width, array, (begins, advice), (block, thread, count))


def _holding(allocations, address: int) -> list:
    """The arrays in which an address lies."""
    return [one for one in allocations if one.base <= address < one.base + one.nbytes]


def byte_in(allocations, address: int) -> str:
    """Which byte of which array an address is, in brackets; "" where it is in none."""
    return next((_byte_of(one.name, address - one.base) for one in _holding(allocations, address)), "")


def _byte_of(name: str, byte: int) -> str:
    return f" (byte {byte:,} of {name})" if name else ""


def in_shared_memory(m: Machine, site: Site, offsets: np.ndarray, width: int, bad: np.ndarray) -> NoReturn:
    """Threads (bad, per lane) access shared memory so."""
    block, thread, offset, count = m.example(bad, offsets)
    array = array_at(m.program, offset)
    begins, advice = "", SHARED_ADVICE.format(width, array[0]) if array else None
    if array and _by_its_beginning(offset, array[1], width):
        begins, advice = f"byte {offset - array[1] - m.program.shared_start:,} of shared memory", OF_ITS_BEGINNING.format(width)
    _stop(m, site, "a shared-memory access", offset, width, array, (begins, advice), (block, thread, count))


def _by_its_beginning(address: int, byte: int, width: int) -> bool:
    """Would an address that is `byte` bytes behind the beginning of its array be a multiple of `width`, if the array began at one?"""
    return byte % width == 0 and address % width != 0


def _stop(m: Machine, site: Site, what: str, address: int, width: int, array, why: tuple[str, str | None], example) -> NoReturn:
    """Add the finding and end the launch. array: (that the access is to, byte of it) or None. why: where it begins, if that is at fault,
    and the advice. example: (block, thread, how many)."""
    (begins, advice), (block, thread, count) = why, example
    name, byte = array or ("", 0)
    where = _byte_of(name, byte)
    since = f", since {name} itself begins at {begins}, no multiple of {width}" if begins else ""
    what = f"{what} of {width} bytes"
    m.findings.add(
        KIND, site.line, f"{what[0].upper()}{what[1:]} at address {address:#x}{where}, which is not a multiple of {width}{since}.",
        block=block, thread=thread, count=count, advice=advice, array=name, sites=(site,),
    )  # fmt: skip
    m.findings.stop(
        f"{m.where(site.line)}: {what} at an address{where} that is not a multiple of {width}{since} (thread {thread} of block {block}). "
        f"The hardware stops here.{f' {advice}' if begins else ''}",
        site.line,
    )


def by_chance(program: Program) -> str:
    """What there is to say of the first access that needs more than the alignment of the `__shared__` array that it names, as a sentence;
    else "". Of an array alone nobody asks: the hardware aligns the beginning of a block's memory, and dynamic memory lies behind."""
    if sum(nbytes > 0 for _, _, nbytes in program.shared) < 2:
        return ""
    for index, (start, _) in bounds_of(program).items():
        site, promised = program.sites[index], program.aligned[start]
        needed = BOX if site.mapped else site.width
        if needed > promised and start % needed == 0:
            name = next(plain_name(symbol) for symbol, at, _ in program.shared if at == start)
            line = site.line if site.call is None else site.call
            who = "The kernel" if line is None else f"Line {line}"
            does, more = f"accesses {needed} bytes of {name} at once", ""
            if site.mapped:
                does = f"copies a box to or from {name}, which has to begin at a multiple of {needed} for that"
                more = f", or with __align__({PATTERN}) where the box is swizzled, whose pattern repeats there"
            return (
                f"{who} {does}, but the compiler only promises that {name} begins at a multiple of {promised}: where it lies depends on "
                f"the arrays beside it, and here it happens to fit. Declare {name} with __align__({needed}){more}."
            )
    return ""


def by_bulk_copy(m: Machine, site: Site, lanes: np.ndarray, bad: np.ndarray, say: Callable[[int], str], advice: str | None = None) -> None:
    """Where a bulk copy of a lane is `bad` ([n], boolean), stop as the hardware does. say(i): what is wrong with copy i."""
    refuse_copies(m, KIND, site, lanes, bad, say, advice)
