"""What the course says when something goes wrong: one sentence, the line, and what to do.

Everything a learner can cause ends in a `CourseError`. Notebooks show the message alone (no traceback); code that
wants the details reads the attributes.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Finding:
    """One thing a sanitizer would say about a run.

    kind: its short name, such as "race" (`finding_kinds` in sim/checks/observer.py has all). line: 1-based line of the reader's cell,
    or None when unknown.
    other_line: the second line where two are involved (both sides of a race). block, thread: (x, y, z) of an example.
    advice: what to do about it, one sentence. count: how many times it was seen.
    code, other_code: the text of the two lines, where it is known. array: the name of the array or argument that it is of, where a line
    may be wrong of several. call, other_call: where a line is inline assembly in a function, the line that calls it, and their text.
    """

    kind: str
    line: int | None
    message: str
    other_line: int | None = None
    block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None
    advice: str = ""
    count: int = 1
    code: str = field(default="", compare=False)
    other_code: str = field(default="", compare=False)
    array: str = ""
    call: int | None = field(default=None, compare=False)
    other_call: int | None = field(default=None, compare=False)
    call_code: str = field(default="", compare=False)
    other_call_code: str = field(default="", compare=False)

    def __str__(self) -> str:
        quote = f", “{self.code}”" if self.code else ""
        called = f" ({called_at(self.call, self.call_code)})" if self.call is not None else ""
        where = "" if self.line is None else f"line {self.line}{quote}{called}: "
        advice = f" {self.advice}" if self.advice else ""
        return f"{where}{self.message}{self._other}{advice}"

    @property
    def _other(self) -> str:
        """What the other line is, and who calls it, as a sentence with a space before it; "" where nothing more is to be said."""
        if self.other_line == self.line:
            same = self.other_call in (None, self.call)
            return "" if same else f" The other time it is {called_at(self.other_call, self.other_call_code)}."
        called = f", {called_at(self.other_call, self.other_call_code)}" if self.other_call is not None else ""
        return f" Line {self.other_line} is “{self.other_code}”{called}." if self.other_code else ""


def in_html(sentence: str) -> str:
    """A sentence in which code stands between backticks."""
    return re.sub(r"`([^`\n]+)`", r"<code>\1</code>", html.escape(sentence))


def called_at(line: int | None, code: str) -> str:
    """Where the function is called whose assembly a line is."""
    return f"called at line {line}" + (f", “{code}”" if code else "")


QUOTED = 72  # characters of a line that is quoted


def quoted(findings: Iterable[Finding], source: str) -> list[Finding]:
    """The findings with the text of the lines they name."""
    return [
        replace(
            one,
            code=quote(source, one.line),
            other_code=quote(source, one.other_line),
            call_code=quote(source, one.call),
            other_call_code=quote(source, one.other_call),
        )
        for one in findings
    ]


def quote(source: str, number: int | None) -> str:
    """The text of a line as a report shows it, cut short; "" if there is no such line."""
    lines = source.split("\n")
    return cut(lines[number - 1].strip()) if number is not None and 1 <= number <= len(lines) else ""


def statement_line(source: str, number: int | None) -> int | None:
    """The line where the inline assembly begins that a line goes on with: compilers name the last line of it, its operands. Any other
    line itself."""
    lines = source.split("\n")
    if number is None or not 1 <= number <= len(lines):
        return number
    first = number
    while first > 1 and lines[first - 1].lstrip()[:1] in _GOES_ON and not _ASSEMBLY.search(lines[first - 1]):
        first -= 1
    return first if _ASSEMBLY.search(lines[first - 1]) and ";" not in _in_code(lines[first - 1 : number - 1]) else number


_ASSEMBLY = re.compile(r"\basm\b")
_GOES_ON = (":", '"', ",", "/")  # begins such a line: operands, more of the text, a comment


def _in_code(lines: Sequence[str]) -> str:
    """What stands in these lines outside of strings and comments."""
    return re.sub(r'"(?:\\.|[^"\\])*"|//.*', "", "\n".join(lines))


def cut(text: str) -> str:
    """A text that is quoted, cut short so that it shows."""
    return text if len(text) <= QUOTED else f"{text[: QUOTED - 1]}…"


def plural(count: int, word: str) -> str:
    """So many of them, in words: "1 row", "2,000 rows"."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}{'es' if word.endswith('s') else 's'}"


class CourseError(Exception):
    """A mistake that the course can explain. `message` is a full sentence; `line` a 1-based cell line or None."""

    def __init__(self, message: str, line: int | None = None):
        super().__init__(message)
        self.message = message
        self.line = line

    def _render_traceback_(self) -> list[str]:
        """IPython calls this instead of printing a traceback."""
        return [f"{type(self).__name__}: {self.message}"]


class CompileError(CourseError):
    """The compiler refused the source. `message` shows each error at the cell's own line with a caret."""


class LaunchError(CourseError):
    """A call was refused before anything was done, a launch before any thread ran: wrong arguments, too many threads, …"""


class RunError(CourseError):
    """The kernel ran and could not go on. `findings` says why."""

    def __init__(self, message: str, line: int | None = None, findings: list[Finding] | None = None):
        super().__init__(message, line)
        self.findings = list(findings or [])


class UnexplainedError(RunError):
    """Native code met what only the NumPy machine can explain, and that was not asked to (`launch(explain=False)`)."""


class SlowedError(RunError):
    """The time of a launch was over while its findings were collected, so that nobody knows whether it ends."""


class NotBegunError(RunError):
    """The time of a launch was over before a thread could run: its code was still being prepared."""
