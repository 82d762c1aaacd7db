"""Ctrl-C at a moment when half of something would be worse than a little delay.

The first import of CuPy, matplotlib and the like is such a moment: half imported, they refuse to be imported again
until the process ends. So the course imports them inside `delayed()`.
"""

from __future__ import annotations

import _thread
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator


@contextlib.contextmanager
def delayed() -> Iterator[None]:
    """Hold an interrupt back until the block has ended, then raise it: for short work that must not be left half done."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread is ever interrupted
        yield
        return
    seen = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if seen:
        raise KeyboardInterrupt


class TooLongError(Exception):
    """What `bounded` was given was stopped."""


@contextlib.contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Stop the block after so many seconds, as Ctrl-C would, and raise TooLongError: for a reader's Python, which may never end."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread is ever interrupted
        yield
        return
    lock, late, done = threading.Lock(), False, False

    def stop() -> None:
        nonlocal late
        with lock:
            if not done:
                late = True
                _thread.interrupt_main()

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    except KeyboardInterrupt:
        if late:
            raise TooLongError from None
        raise
    else:
        with lock:
            done = True
        if late:  # it ended at that very moment, and the interrupt is on its way
            with contextlib.suppress(KeyboardInterrupt):
                time.sleep(0.1)
    finally:
        done = True
        timer.cancel()


def half_imported(package: str) -> bool:
    """Whether the first import of `package`, by whomever, was cut short: half of it is there and stays there, and what it then does
    wrong depends on the half. Importing a package binds each of its modules in it; one that is loaded and not bound was left behind.
    """
    bound = vars(sys.modules[package]) if package in sys.modules else {}
    return any(name.startswith(f"{package}.") and name.split(".")[1] not in bound for name in list(sys.modules))


def advice_for(error: ImportError) -> str:
    """What to do about a package of the course that cannot be imported, as a sentence."""
    again = "Run the set-up command of the README again."
    if isinstance(error, ModuleNotFoundError):
        return again
    return f"Restart the kernel, in case an import was cut short. If that does not help: {again[0].lower()}{again[1:]}"
