"""Two kernels or several, side by side: what changed in the source, variants of the reader's own, and what each of them counted.

changes(reference("naive"), coalesced)
tried = variants(shared_tile, {"as it is": {}, "padded": {"As[BM][BK]": "As[BM][BK + 1]"}, "BK = 16": {"BK": 16}})
compare_counts(tried.gemm(64), ["shared loads", "wavefronts of shared loads", "registers per thread"])
"""

from __future__ import annotations

import difflib
import functools
import html
import math
import numbers
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from helpers.arguments import explained, is_whole
from helpers.errors import CompileError, CourseError
from helpers.progress import Progress
from helpers.run.kernel import Kernel, Run
from helpers.toolchain.compile import at_once, compile_each

from . import measures
from .lesson import LessonKernel
from .sweep import variant
from .table import Table, Tabular

RUNS_IN_COLUMNS = 3  # more runs than these stand below each other
_STYLE = """<style>
.ladder-changes{line-height:1.35;overflow-x:auto}
.ladder-changes div{word-break:normal;overflow-wrap:anywhere;padding-left:4ch;text-indent:-4ch}
.ladder-changes .old{background:rgba(213,94,0,.18)}
.ladder-changes .new{background:rgba(0,122,90,.18)}
.ladder-changes .place{opacity:.65}
</style>"""


# ------------------------------------------------------------------------------------------------------------ source


@dataclass(frozen=True)
class Changes:
    """The lines in which two sources differ. rows: (sign, text); the sign is "-" for a line of the old source, "+" for one of
    the new, and " " for the place of what follows: its first line in the new source, 1-based."""

    rows: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return "\n".join(f"{sign} {text}" for sign, text in self.rows) if self.rows else "Nothing changed."

    __repr__ = __str__

    def _repr_html_(self) -> str:
        if not self.rows:
            return "<p>Nothing changed.</p>"
        names = {"-": "old", "+": "new", " ": "place"}
        lines = (f"<div class='{names[sign]}'>{html.escape(f'{sign} {text}')}</div>" for sign, text in self.rows)
        return f"{_STYLE}<pre class='ladder-changes'>{''.join(lines)}</pre>"


@explained
def changes(old: Kernel | str, new: Kernel | str) -> Changes:
    """What changed from one source to another, line by line: kernels, or their text.

    The comment at the top does not count, nor white space, nor the name of the kernel.
    """
    for one in (old, new):
        if not isinstance(one, (str, Kernel)):
            raise CourseError(f"changes compares two kernels, or their text, and was given {type(one).__name__}.")
    texts = [one if isinstance(one, str) else one.source for one in (old, new)]
    before, after = (_without_header(text) for text in texts)
    renamed = {} if isinstance(old, str) or isinstance(new, str) else {old.name: new.name}
    keys = [_key(line, renamed) for _, line in before], [_key(line, {}) for _, line in after]
    rows: list[tuple[str, str]] = []
    for tag, i, i_end, j, j_end in difflib.SequenceMatcher(None, *keys, autojunk=False).get_opcodes():
        if tag == "equal" or (not any(keys[0][i:i_end]) and not any(keys[1][j:j_end])):
            continue
        place = after[min(j, len(after) - 1)][0] if after else 1
        rows.append((" ", f"line {place}" if j < j_end else f"gone, before line {place}"))
        rows += [("-", line) for _, line in before[i:i_end] if line.strip()]
        rows += [("+", line) for _, line in after[j:j_end] if line.strip()]
    return Changes(tuple(rows))


def _without_header(text: str) -> list[tuple[int, str]]:
    """(1-based number, line) from the first line on that is code."""
    lines = list(enumerate(text.rstrip().split("\n"), 1))
    start = next((i for i, (_, line) in enumerate(lines) if line.strip() and not line.startswith("//")), len(lines))
    return lines[start:]


def _key(line: str, renamed: Mapping[str, str]) -> str:
    """What two lines are compared by."""
    for name, other in renamed.items():
        line = re.sub(rf"\b{re.escape(name)}\b", other, line)
    return "".join(line.split())


# ---------------------------------------------------------------------------------------------------------- variants


class Variants(dict[str, LessonKernel]):
    """Kernels by the name of what is different in them."""

    @explained
    def gemm(self, m: int, n: int | None = None, k: int | None = None, **options: Any) -> dict[str, Run]:
        """Each of them executed on an m × n × k problem in the SIMT machine: `LessonKernel.gemm`, which says what the options are."""
        return {name: kernel.gemm(m, n, k, on="cpu", **options) for name, kernel in self.items()}


@explained
def variants(kernel: Kernel, settings: Mapping[str, Mapping[str, int | str]]) -> Variants:
    """Variants of a kernel as it stands, your edits included, each compiled: {name: {what to change: what to put there}}.

    A number changes the constant of that name, {"TM": 8}; a text replaces the text before it wherever that stands,
    {"[BK]": "[BK + 1]"}; {} is the kernel itself. Raises CourseError, with the variant's name, where the kernel does not have what is
    to be changed, or where the variant does not compile.
    """
    if not isinstance(kernel, Kernel):
        getattr(kernel, "compiled", None)  # a cell that did not compile answers with what its compiler said
        raise CourseError(f"variants wants a kernel, as a %%cuda cell or reference() makes it, not {type(kernel).__name__}.")
    if not isinstance(settings, Mapping) or not all(isinstance(edits, Mapping) for edits in settings.values()):
        raise CourseError('variants wants {name: {what to change: what to put there}}, such as variants(kernel, {"BM = 64": {"BM": 64}}).')
    sources = {name: edited(kernel.source, edits, str(name)) for name, edits in settings.items() if edits}
    old = kernel.compiled
    with Progress("compiling variants") as progress:
        compiled = dict(zip(sources, compile_each(list(sources.values()), old.entry, old.arch, old.options, progress), strict=True))
    for name, made in compiled.items():
        if isinstance(made, CompileError):
            raise CompileError(f"{name}: {made.message}", made.line) from made
        if isinstance(made, CourseError):
            raise made
    return Variants({name: LessonKernel(compiled.get(name, old), str(name)) for name in settings})


@explained
def architectures(kernel: Kernel, names: Iterable[str]) -> dict[str, Kernel]:
    """The kernel compiled for each of these architectures: {"sm_80": kernel, …}. Raises CompileError where one refuses it."""
    names = list(names)
    with Progress("compiling for other architectures") as progress:
        made = at_once([functools.partial(kernel.for_arch, name) for name in names], progress)
    return dict(zip(names, made, strict=True))


def edited(source: str, edits: Mapping[str, int | str], name: str) -> str:
    """A kernel's source with edits as in `variants`. Raises CourseError, with the variant's name, where it lacks what is to be changed."""
    for what, other in edits.items():
        if not isinstance(what, str) or not what:
            raise CourseError(f"{name}: what is changed is the name of a constant or a text of the kernel, not {what!r}.")
        if not isinstance(other, str) and not is_whole(other):
            raise CourseError(f"{name}: {what!r} becomes a whole number or a text, not {other!r}.")
        source = _replaced(source, what, other, name) if isinstance(other, str) else _set(source, what, int(other), name)
    return source


def _set(source: str, constant: str, number: int, name: str) -> str:
    try:
        return variant(source, **{constant: number})
    except CourseError as error:
        raise CourseError(f"{name}: {error.message}") from error


def _replaced(source: str, old: str, new: str, name: str) -> str:
    if old not in source:
        raise CourseError(
            f"{name}: your kernel no longer has “{' '.join(old.split())}”, which this variant replaces. Run the cell of the "
            "lesson's own kernel once more (restore() brings it back), or change this cell to what yours has."
        )
    return source.replace(old, new)


# ------------------------------------------------------------------------------------------------------------ counts


@dataclass(frozen=True, repr=False)
class Counts(Tabular):
    """Runs side by side. names: of the runs. rows: (what is counted, its value in each run, None where it cannot be had). estimate: what
    to say where the counts are none of machine code."""

    names: tuple[str, ...]
    rows: tuple[tuple[str, tuple[float | None, ...]], ...]
    caption: str = ""
    estimate: str = ""

    def __getitem__(self, what: str) -> dict[str, float | None]:
        """One row: the values by the runs' names. Raises CourseError if there is no such row."""
        for title, values in self.rows:
            if title == what:
                return dict(zip(self.names, values, strict=True))
        raise CourseError(f"Nothing was counted as {what!r}. There are: {', '.join(str(title) for title, _ in self.rows)}.")

    def table(self) -> Table:
        names, titles = [str(name) for name in self.names], [str(what) for what, _ in self.rows]
        if len(names) > RUNS_IN_COLUMNS:
            header = ["", *titles]
            columns = [[_number(value) for value in values] for _, values in self.rows]
            rows = [[name, *cells] for name, *cells in zip(names, *columns, strict=True)]
            return Table(header, rows, self.caption, left=(0,), below=[self.estimate])
        ratio = len(names) == 2
        header = ["", *names, *(["ratio"] if ratio else [])]
        shown = [[*map(_number, values), *([_ratio(*values)] if ratio else [])] for _, values in self.rows]
        rows = [[title, *cells] for title, cells in zip(titles, shown, strict=True)]
        return Table(header, rows, self.caption, left=(0,), below=[self.estimate])


@explained
def compare_counts(runs: Mapping[str, Any], wanted: Iterable[str] | Mapping[str, Callable[[Any], float] | str]) -> Counts:
    """What several runs counted, as a table: {name: run} and a list of what to count, in the words of `measures.measure`
    ("shared loads", "sectors per load of A", …), or {title: those words, or a function of a run}. Kernels will do instead of runs where
    nothing has to be executed: for "registers per thread" and the like.

    Two runs get their ratio as well. Where a run has nothing of the kind a dash stands. Raises CourseError if there is no run, for words
    that mean nothing, for an array that no run has, and with the row's title where a function raises something else or answers with no
    number.
    """
    if not isinstance(runs, Mapping) or not isinstance(wanted, Iterable) or isinstance(wanted, str):
        raise CourseError(
            "compare_counts wants {name: run} and a list of what to count, as in compare_counts({'mine': run}, ['shared loads'])."
        )
    runs = dict(runs)
    if not runs:
        raise CourseError("There is nothing to compare: give at least one run, such as {'mine': naive.gemm(64)}.")
    asked = wanted if isinstance(wanted, Mapping) else {str(what): what for what in wanted}
    functions = {title: what if callable(what) else measures.measure(what) for title, what in asked.items()}
    rows = tuple((title, _row(title, function, runs)) for title, function in functions.items())
    shapes = {_shape(run) for run in runs.values() if hasattr(run, "arguments")}
    kernels = [getattr(run, "kernel", run) for run in runs.values()]
    estimate = next((each.compiled.estimate for each in kernels if isinstance(each, Kernel) and each.compiled.estimate), "")
    return Counts(tuple(runs), rows, shapes.pop() if len(shapes) == 1 else "", estimate)


def _shape(run: Run) -> str:
    """What a run computed, "" if it is no product."""
    try:
        return str(measures.shape_of(run))
    except CourseError:
        return ""


def _row(title: str, function: Callable[[Any], float | None], runs: Mapping[str, Any]) -> tuple[float | None, ...]:
    """What the function says of each run. Raises CourseError for an array that none of them has: its name is a mistake."""
    values, lacking = [], []
    for name, run in runs.items():
        try:
            values.append(_or_none(title, function, name, run))
        except measures.NoArrayError as error:
            values.append(None)
            lacking.append(error)
    if len(lacking) == len(runs):
        raise CourseError(f"“{title}”: {lacking[0].message}")
    return tuple(values)


def _or_none(title: str, function: Callable[[Any], float | None], name: str, run: Any) -> float | None:
    """What the function says of the run, None where it has nothing of the kind. Raises CourseError for what is no number, NoArrayError."""
    try:
        value = function(run)
    except measures.NotRunError as error:
        raise measures.NotRunError(f"“{title}” of {name}: {error.message}") from error
    except measures.NoArrayError:
        raise
    except CourseError:
        return None
    except Exception as error:
        raise CourseError(f"“{title}” of {name} cannot be had: {type(error).__name__}: {error}.") from error
    if not isinstance(value, numbers.Real | None):
        raise CourseError(f"“{title}” of {name} is to be a number, and is {value!r}.")
    return value


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    if not math.isfinite(value):
        return f"{value}"
    value = value or 0  # no minus before a zero
    return f"{value:,.0f}" if value == int(value) else f"{value:.3g}"


def _ratio(old: float | None, new: float | None) -> str:
    """How many times as much: to two decimals, and below 1 to three digits, as 4 for 32 is 0.125 times as much and not 0.12. Of a gain
    and a loss neither is a multiple of the other."""
    if not old or new is None or (old < 0) != (new < 0):
        return ""
    times = new / old
    return f"{times:#.3g}" if 0 < abs(times) < 0.9995 else f"{times:.2f}"
