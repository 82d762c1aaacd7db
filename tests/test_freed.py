"""What threads have freed is given back, whatever ends the work."""

from __future__ import annotations

import sys
import threading

import psutil
import pytest

from helpers.freed import given_back

MEGABYTE = 1 << 20


def held() -> int:
    return psutil.Process().memory_info().rss // MEGABYTE


def work() -> None:
    """Small pieces, such as the allocator keeps in the arena of the thread that asked, with one at the end that holds them up."""
    pieces = [bytes(3000) for _ in range(40_000)]
    del pieces[:-1]


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_what_threads_have_freed_goes_back_also_after_an_error():
    threads = [threading.Thread(target=work) for _ in range(4)]
    with pytest.raises(KeyboardInterrupt), given_back():
        before = held()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        kept = held() - before
        raise KeyboardInterrupt
    assert held() - before < max(kept // 2, 20)
