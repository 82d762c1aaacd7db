"""Memory that is free goes back to the system. glibc keeps what threads have freed, each thread's for itself: after a `check()` that is as
much again as the process needs, and where many learners share a machine it is as much for each of them."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
from collections.abc import Iterator


@functools.cache
def _trim():
    """glibc's malloc_trim; None where there is none."""
    if sys.platform != "linux":
        return None
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # another C library, as musl's
        return None


@contextlib.contextmanager
def given_back() -> Iterator[None]:
    """Around, or as a decorator of, work that has needed much."""
    try:
        yield
    finally:
        if (trim := _trim()) is not None:
            trim(0)
