"""Accesses at an address that is not a multiple of their width. The hardware stops there, and so does the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn

import numpy as np

from helpers.sim.code.addresses import DEVICE_BASE
from helpers.sim.code.sites import Site

from .out_of_bounds import refuse_copies
from .protocols import Machine
from .shared_cells import plain_name

KIND = "misaligned"
MEANING = {KIND: "an address that is not a multiple of the access width"}
SHARED_ADVICE = (
    "A vector access of {0} bytes needs an address that is a multiple of {0}: check the index, that a row of {1}, padding included, is a "
    "multiple of {0} bytes long, and that {1} is declared with __align__({0})."
)
ADVISED = {KIND: "A vector access of n bytes needs an address that is a multiple of n: check the pointer and the leading dimension."}


def in_device_memory(m: Machine, site: Site, allocations, offsets: np.ndarray, width: int, bad: np.ndarray) -> NoReturn:
    """Threads (bad, per lane) access device memory so."""
    block, thread, offset, count = m.example(bad, offsets)
    spans = ((one.name, one.base - DEVICE_BASE, one.nbytes) for one in allocations)
    _stop(m, site, f"access of {width} bytes", DEVICE_BASE + offset, width, _inside(spans, offset), None, (block, thread, count))


def in_shared_memory(m: Machine, site: Site, offsets: np.ndarray, width: int, bad: np.ndarray) -> NoReturn:
    """Threads (bad, per lane) access shared memory so."""
    block, thread, offset, count = m.example(bad, offsets)
    inside = _inside(((plain_name(name), base, nbytes or m.shared.end - base) for name, base, nbytes in m.program.shared), offset)
    advice = SHARED_ADVICE.format(width, inside[0]) if inside else None
    _stop(m, site, f"shared-memory access of {width} bytes", offset, width, inside, advice, (block, thread, count))


def _inside(spans: Iterable[tuple[str, int, int]], offset: int) -> tuple[str, int] | None:
    """(array, byte of it) that an access is to, of (name, start, bytes); None where that is not known."""
    return next(((name, offset - start) for name, start, nbytes in spans if start <= offset < start + nbytes), None)


def _stop(m: Machine, site: Site, what: str, address: int, width: int, inside, advice: str | None, example) -> NoReturn:
    """Add the finding and end the launch. inside: (the array that the access is to, byte of it) or None."""
    block, thread, count = example
    name, byte = inside or ("", 0)
    where = f" (byte {byte:,} of {name})" if name else ""
    article = "An" if what.startswith("a") else "A"
    m.findings.add(
        KIND, site.line, f"{article} {what} at address {address:#x}{where}, which is not a multiple of {width}.",
        block=block, thread=thread, count=count, advice=advice, array=name, sites=(site,),
    )  # fmt: skip
    m.findings.stop(
        f"{m.where(site.line)}: {article.lower()} {what} at an address{where} that is not a multiple of {width} "
        f"(thread {thread} of block {block}). The hardware stops here.",
        site.line,
    )


def by_bulk_copy(m: Machine, site: Site, lanes: np.ndarray, bad: np.ndarray, say: Callable[[int], str], advice: str | None = None) -> None:
    """Where a bulk copy of a lane is `bad` ([n], boolean), stop as the hardware does. say(i): what is wrong with copy i."""
    refuse_copies(m, KIND, site, lanes, bad, say, advice)
