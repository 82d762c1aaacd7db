"""What a launch prints: shown as it comes, up to a limit, so that a printf in a loop does not fill the notebook."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass

LINES = 1000
BYTES = 1 << 20  # per launch, like the hardware's default buffer; also the most that one conversion may be wide


@dataclass
class _Together:
    """What several launches have printed."""

    lines: int = 0
    more: int = 0


_together: ContextVar[_Together | None] = ContextVar("launches whose lines are counted together", default=None)


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Launches in this block print as many lines as one alone may; it is said once, at its end, how many more there were. In another such
    block it does nothing."""
    if _together.get() is not None:
        yield
        return
    token = _together.set(all_of_them := _Together())
    try:
        yield
    finally:
        _together.reset(token)
        if all_of_them.more:
            sys.stdout.write(_left_out(all_of_them.more))


def _left_out(lines: int) -> str:
    return f"\n… and {lines:,} more lines of printf.\n"


class Printout:
    """The text printed so far (`str`), and how many lines more there would have been."""

    def __init__(self, shown: int = 0) -> None:
        self._texts: list[str] = []
        self._shown = shown  # characters that an earlier attempt at the same launch has shown
        self._lines = self._size = self._more = 0
        self._together = _together.get() or _Together()

    @property
    def full(self) -> bool:
        """Is there no place left? Then `skip` what would be printed."""
        return self._together.lines >= LINES or self._size >= BYTES

    def write(self, text: str) -> None:
        self._texts.append(text)
        self._lines += text.count("\n")
        self._together.lines += text.count("\n")
        self._size += len(text)
        sys.stdout.write(text[self._shown :])
        self._shown = max(0, self._shown - len(text))

    def skip(self, calls: int) -> None:
        """Count calls of printf that are not shown; nearly every one prints a line."""
        self._more += calls

    def given_up(self) -> int:
        """The launch will be run again: how many characters have been shown, or should have been, of what it prints."""
        self._more = 0
        self._together.lines -= self._lines
        return max(self._shown, sum(map(len, self._texts)))

    def end(self) -> None:
        """The launch has ended, one way or another: say what was not shown."""
        if _together.get() is self._together:
            self._together.more += self._more
        elif self._more:
            self.write(_left_out(self._more))
        self._more = 0

    def __str__(self) -> str:
        return "".join(self._texts)
