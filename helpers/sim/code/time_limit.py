"""How long a launch may take in everything that is done for it: reading its code, running, counting.

What may take long looks at the limit now and then (`look`), whoever asked for the work and whatever it is a part of.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from contextvars import ContextVar

_END: ContextVar[float] = ContextVar("end of the time", default=math.inf)


class TimeIsUp(Exception):
    """The limit has passed. What was under way is left undone."""


@contextlib.contextmanager
def until(end: float | None) -> Iterator[None]:
    """Let the block take until `end` (as time.monotonic() counts; None: for ever), or as long as a limit around it allows."""
    token = _END.set(min(_END.get(), math.inf if end is None else end))
    try:
        yield
    finally:
        _END.reset(token)


def left() -> float:
    """Seconds until the limit, at least 0; infinite without one."""
    return max(0.0, _END.get() - time.monotonic())


def look() -> None:
    """Raise TimeIsUp if the limit has passed."""
    if time.monotonic() > _END.get():
        raise TimeIsUp
