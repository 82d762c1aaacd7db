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
    may be wrong of several. calls, other_calls: where a line stands in a function that was copied in, the line that calls it, the one
    that calls that, and so on; then their text. assembly, other_assembly: of inline assembly, the line where it begins, of which compilers
    name the last.
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
    calls: tuple[int, ...] = field(default=(), compare=False)
    other_calls: tuple[int, ...] = field(default=(), compare=False)
    call_codes: tuple[str, ...] = field(default=(), compare=False)
    other_call_codes: tuple[str, ...] = field(default=(), compare=False)
    assembly: int | None = field(default=None, compare=False)
    other_assembly: int | None = field(default=None, compare=False)

    def __str__(self) -> str:
        where = "" if self.line is None else f"{self._where}: "
        advice = f" {self.advice}" if self.advice else ""
        return f"{where}{self.message}{self._other}{advice}"

    @property
    def _where(self) -> str:
        """The line, with its text and its calls. Of assembly in a function its call comes first: that is what the reader wrote there."""
        here = _named(self.assembly or self.line, self.code)
        if not self.calls:
            return here
        if not self.assembly:
            return f"{here} ({called_from(self.calls, self.call_codes)})"
        called = f"; called {_outwards(self.calls[1:], self.call_codes[1:])}" if self.calls[1:] else ""
        return f"{_named(self.calls[0], ''.join(self.call_codes[:1]))} (its assembly is {here}{called})"

    @property
    def _other(self) -> str:
        """What the other line is, and who calls it, as a sentence with a space before it; "" where nothing more is to be said."""
        if self.other_line == self.line:
            same = self.other_calls in ((), self.calls)
            return "" if same else f" The other time it is {called_from(self.other_calls, self.other_call_codes)}."
        if not self.other_code:
            return ""
        if not self.other_calls or (self.other_calls == self.calls and not self.other_assembly):
            return f" Line {self.other_assembly or self.other_line} is “{self.other_code}”."
        called = called_from(self.other_calls, self.other_call_codes)
        if self.other_assembly:
            return f" Line {self.other_assembly} is {called}: “{self.other_code}”."
        return f" Line {self.other_line} is “{self.other_code}”, {called}."


def in_html(sentence: str) -> str:
    """A sentence in which code stands between backticks."""
    return re.sub(r"`([^`\n]+)`", r"<code>\1</code>", html.escape(sentence))


def called_from(calls: Sequence[int], codes: Sequence[str]) -> str:
    """Where a function is called, where what calls it is called, and so on outwards. codes: the text of these lines, as far as it is
    known."""
    return f"called {_outwards(calls, codes)}"


def _outwards(calls: Sequence[int], codes: Sequence[str]) -> str:
    """The calls as "at line 9, “…”, from line 12, “…”, from line 30": text of the first two alone, and no more than three."""
    shown = zip(calls[:3], (*codes[:2], "", "", ""), strict=False)
    return f"at {', from '.join(_named(line, code) for line, code in shown)}"


def _named(line: int | None, code: str) -> str:
    return f"line {line}" + (f", “{code}”" if code else "")


QUOTED = 72  # characters of a line that is quoted


def quoted(findings: Iterable[Finding], source: str) -> list[Finding]:
    """The findings with the text of the lines they name. Inline assembly is named by the line where it begins."""
    found = []
    for one in findings:
        line, other_line = statement_line(source, one.line), statement_line(source, one.other_line)
        found.append(
            replace(
                one,
                message=in_statements(one.message, source),
                code=quote(source, line),
                other_code=quote(source, other_line),
                call_codes=tuple(quote(source, call) for call in one.calls),
                other_call_codes=tuple(quote(source, call) for call in one.other_calls),
                assembly=line if _is_assembly(source, line) else None,
                other_assembly=other_line if _is_assembly(source, other_line) else None,
            )
        )
    return found


def in_statements(message: str, source: str) -> str:
    """A message with each line that goes on with inline assembly named by the one where that begins. Lines of headers stay."""
    return re.sub(r"(?<!, )\b([Ll]ine) (\d+)\b", lambda found: f"{found[1]} {statement_line(source, int(found[2]))}", message)


def quote(source: str, number: int | None) -> str:
    """The text of a line as a report shows it, cut short; "" if there is no such line. Of inline assembly that begins in this line with no
    instruction (a bracket, registers) the first one that accesses memory, multiplies or waits, else the first."""
    lines = source.split("\n")
    if number is None or not 1 <= number <= len(lines):
        return ""
    return cut((_is_assembly(source, number) and _first_instruction(lines[number - 1 :])) or lines[number - 1].strip())


def _first_instruction(lines: Sequence[str]) -> str:
    """The first instruction of inline assembly that begins in the first of these lines, if that line has none itself; else ""."""
    texts = (_STRINGS.search(line) for line in lines[:_LINES_OF_ASSEMBLY])  # of each line, with the names of macros between its strings
    own, *others = (_BETWEEN.sub(r"\1", text[1]) if text else "" for text in texts)
    if _instructions(own):
        return ""
    end = next((i for i, line in enumerate(lines[1:]) if line.lstrip()[:1] not in _GOES_ON), len(lines))
    found = _instructions("".join(others[:end]))
    return next((one for one in found if _WORKS.match(one)), next(iter(found), ""))


def _instructions(text: str) -> list[str]:
    """The PTX instructions in what strings say, without labels, brackets, declarations and branches."""
    parts = (
        _LABEL.sub("", part.strip(" }") if part.count("}") > part.count("{") else part).strip().lstrip("{ ")
        for part in re.split(r"(?:;|\\n|\\t|\s)*(?:;|\\n)(?:;|\\n|\\t|\s)*", text)
    )
    return [f"{part};" for part in parts if part and not _NO_INSTRUCTION.match(part)]


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


def _is_assembly(source: str, number: int | None) -> bool:
    """Does inline assembly begin in this line?"""
    lines = source.split("\n")
    return number is not None and 1 <= number <= len(lines) and bool(_ASSEMBLY.search(_in_code([lines[number - 1]])))


_ASSEMBLY = re.compile(r"\b(?:asm|__asm__)\b")
_STRINGS, _BETWEEN = re.compile(r'"(.*)"'), re.compile(r'"[\s#]*(\w*)[\s#]*"')
_LABEL = re.compile(r"^[\s{]*[\w$]+:(?!:)")
_NO_INSTRUCTION = re.compile(r"\.|//|(?:@!?\w+\s+)?bra\b")
_WORKS = re.compile(r"(?:@!?\w+\s+)?(?:\w*mma|mbarrier|\w*bar|barrier|cp|\w*ld\w*|\w*st|stmatrix|atom|red|fence|multimem|prefetch\w*)\b")
_LINES_OF_ASSEMBLY = 40
_GOES_ON = (":", '"', ",", "/")  # begins such a line: operands, more of the text, a comment


def _in_code(lines: Sequence[str]) -> str:
    """What stands in these lines outside of strings and comments."""
    return re.sub(r'"(?:\\.|[^"\\])*"|//.*', "", "\n".join(lines))


def cut(text: str) -> str:
    """A text that is quoted, cut short so that it shows."""
    return text if len(text) <= QUOTED else f"{text[: QUOTED - 1]}…"


def joined(names: Sequence[str], word: str) -> str:
    """Names as a sentence has them: "A, B or C" with the word "or"."""
    return f" {word} ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


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


class UnknownNameError(CourseError, AttributeError):
    """An object of the course was asked for something that it has not."""


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
