"""What threads have freed is given back, whatever ends the work."""

from __future__ import annotations

import contextlib
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import psutil
import pytest

from helpers.freed import given_back

MEGABYTE = 1 << 20


def held() -> int:
    return psutil.Process().memory_info().rss // MEGABYTE


def work(last: list[bytes]) -> None:
    """Small pieces, such as the allocator keeps in the arena of the thread that asked, with one at the end, which stays, on top of them."""
    pieces = [bytes(3000) for _ in range(40_000)]
    last.append(pieces[-1])


def kept_and_left() -> tuple[int, int]:
    """Megabytes more than before: when the threads have ended, and when `given_back` has."""
    last: list[bytes] = []
    threads = [threading.Thread(target=work, args=[last]) for _ in range(4)]
    kept = before = 0
    with contextlib.suppress(KeyboardInterrupt), given_back():
        before = held()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        kept = held() - before
        raise KeyboardInterrupt
    return kept, held() - before


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_what_threads_have_freed_goes_back_also_after_an_error():
    # In a process of its own: what other tests have left running in this one takes memory, too.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        kept, left = pool.submit(kept_and_left).result()
    assert kept > 200, "the threads' arenas have kept nothing, so nothing is tested"
    assert left < kept // 4
