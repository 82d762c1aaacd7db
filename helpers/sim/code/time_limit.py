"""How long a launch may take in everything that is done for it: reading its code, running, counting.

What may take long looks at the limit now and then (`look`), whoever asked for the work and whatever it is a part of. Seconds are those
in which this process was at work (`now`): where others have the processors, a loop that ends is not to be taken for one that does not.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar

_IDLE = 1 / 8  # of a second in which this process does nothing, so that what waits for something that never comes ends, too
_FINE = 0.02  # seconds for which it is not asked how long the process was at work, which takes a while itself

_END: ContextVar[float] = ContextVar("end of the time", default=math.inf)


class _Working:
    """Seconds in which the process was at work. seconds: until `wall` (time.monotonic), when it had had so much `cpu` time."""

    def __init__(self):
        self.lock = threading.Lock()
        self.wall = self.seconds = time.monotonic()
        self.cpu = time.process_time()

    def now(self) -> float:
        """They pass no faster than time does, and more slowly where others have the processors."""
        with self.lock:
            wall = time.monotonic()
            passed = wall - self.wall
            if passed < _FINE:
                return self.seconds + passed * _IDLE
            cpu = time.process_time()
            self.seconds += max(min(passed, cpu - self.cpu), passed * _IDLE)
            self.wall, self.cpu = wall, cpu
            return self.seconds


now = _Working().now


class TimeIsUp(Exception):
    """The limit has passed. What was under way is left undone."""


@contextlib.contextmanager
def until(end: float | None) -> Iterator[None]:
    """Let the block take until `end` (as `now` counts; None: for ever), or as long as a limit around it allows."""
    token = _END.set(min(_END.get(), math.inf if end is None else end))
    try:
        yield
    finally:
        _END.reset(token)


def left() -> float:
    """Seconds until the limit, at least 0; infinite without one."""
    return max(0.0, _END.get() - now())


def look() -> None:
    """Raise TimeIsUp if the limit has passed."""
    if now() > _END.get():
        raise TimeIsUp
