"""Accesses at an address that is not a multiple of their width. The hardware stops there, and so does the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import numpy as np

from helpers.sim.code.addresses import DEVICE_BASE
from helpers.sim.code.sites import Site

from .out_of_bounds import refuse_copies
from .protocols import Machine

KIND = "misaligned"
MEANING = {KIND: "an address that is not a multiple of the access width"}
ADVISED = {KIND: "A vector access of n bytes needs an address that is a multiple of n: check the pointer and the leading dimension."}


def in_device_memory(m: Machine, site: Site, offsets: np.ndarray, width: int, bad: np.ndarray) -> NoReturn:
    """Threads (bad, per lane) access device memory so."""
    block, thread, offset, count = m.example(bad, offsets)
    message = f"An access of {width} bytes at address {DEVICE_BASE + offset:#x}, which is not a multiple of {width}."
    m.findings.add(KIND, site.line, message, block=block, thread=thread, count=count, sites=(site,))
    m.findings.stop(
        f"{m.where(site.line)}: an access of {width} bytes at an address that is not a multiple of {width} "
        f"(thread {thread} of block {block}). The hardware stops here.",
        site.line,
    )


def in_shared_memory(m: Machine, site: Site, offsets: np.ndarray, width: int, bad: np.ndarray) -> NoReturn:
    """Threads (bad, per lane) access shared memory so."""
    block, thread, offset, count = m.example(bad, offsets)
    message = f"shared-memory access of {width} bytes at address {offset:#x}, which is not a multiple of {width}"
    m.findings.add(KIND, site.line, f"A {message}.", block=block, thread=thread, count=count, sites=(site,))
    m.findings.stop(f"{m.where(site.line)}: a {message} (thread {thread} of block {block}). The hardware stops here.", site.line)


def by_bulk_copy(m: Machine, site: Site, lanes: np.ndarray, bad: np.ndarray, say: Callable[[int], str], advice: str | None = None) -> None:
    """Where a bulk copy of a lane is `bad` ([n], boolean), stop as the hardware does. say(i): what is wrong with copy i."""
    refuse_copies(m, KIND, site, lanes, bad, say, advice)
