"""Listing: the reader's source with what each line cost, and what the compiler made of a line.

`listing` is the picture; `table(run)` is the same as an HTML table for notebooks and screen readers; `ptx_of` and `sass_of`
give the machine's words for one line.
"""

from __future__ import annotations

import html
import itertools
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.collections import PolyCollection

from helpers.errors import in_html, plural
from helpers.sim.code import sass
from helpers.sim.code.lines import cell_lines
from helpers.sim.code.ptx import parsed
from helpers.sim.counting import names

from .canvas import BLUE, GREEN, INK, ORANGE, PURPLE, QUIET, VERMILLION, Choice, NothingToSee, picture, rgb


@dataclass(frozen=True)
class Column:
    """One number per line. counters: summed. per: divided by the sum of these, if any. unless: not shown where that was counted.
    threads: counts the threads that take part; where these are known to be none the number is 0."""

    title: str
    counters: tuple[str, ...]
    colour: str
    per: tuple[str, ...] = ()
    unless: str = ""
    threads: str = ""

    def value(self, counts: Mapping[str, int]) -> float | None:
        """The number of one line, None where the line does nothing of the kind, 0 where all that it does is switched off."""
        total = sum(counts.get(name, 0) for name in self.counters)
        if total and counts.get(self.threads) == 0:
            return 0.0
        if not self.per:
            return total or None
        base = sum(counts.get(name, 0) for name in self.per)
        return total / base if base else None


_REQUESTS, _SECTORS = (tuple(name("global", op) for op in ("ld", "st")) for name in (names.requests, names.sectors))
_WAVEFRONTS, _CONFLICTS = (tuple(map(name, ("ld", "st"))) for name in (names.shared_wavefronts, names.shared_conflicts))
_FFMA = names.opcode("FFMA")
COLUMNS: tuple[Column, ...] = (
    Column("instructions", (names.PTX_INSTRUCTIONS,), QUIET),
    Column("FFMA", (_FFMA,), GREEN, threads=names.threads("ffma")),
    Column("FMA of threads", (names.threads("ffma"),), GREEN, unless=_FFMA),  # how many warps they fill is not known
    Column("global requests", _REQUESTS, BLUE),
    Column("sectors", _SECTORS, BLUE),
    Column("sectors per request", _SECTORS, ORANGE, per=_REQUESTS),
    Column("shared wavefronts", _WAVEFRONTS, PURPLE),
    Column("bank conflicts", _CONFLICTS, VERMILLION),
)


@dataclass(frozen=True)
class Line:
    """One line of the listing. values: one per column, None where there is nothing to count. findings: sentences."""

    number: int
    text: str
    values: tuple[float | None, ...]
    findings: tuple[str, ...]

    @property
    def label(self) -> str:
        """What stands where the number does."""
        return "⋯" if self.number == _LEFT_OUT else str(self.number)


def lines(run) -> tuple[tuple[Column, ...], list[Line]]:
    """The columns that this run has anything for, and the lines of the source, first and last empty ones left out."""
    source = run.kernel.compiled.source.split("\n")
    counted = {name for counts in run.by_line.values() for name, count in counts.items() if count}
    columns = tuple(
        column
        for column in COLUMNS
        if column.unless not in counted and any(column.value(counts) is not None for counts in run.by_line.values())
    )
    said: dict[int, list[str]] = {}
    for finding in run.findings:
        if finding.line is not None:
            said.setdefault(finding.line, []).append(f"{finding.kind}: {finding.message}")
        if finding.other_line not in (None, finding.line):
            said.setdefault(finding.other_line, []).append(f"{finding.kind}: see line {finding.line}")
    used = [number for number, text in enumerate(source, 1) if text.strip()]
    if not used:
        raise NothingToSee("There is no source to list.")
    known = {column.threads: 0 for column in columns if column.threads in run.counters}  # a line without has none
    listed = []
    for number in range(used[0], used[-1] + 1):
        counts = known | run.by_line.get(number, {})
        values = tuple(column.value(counts) for column in columns)
        listed.append(Line(number, source[number - 1].rstrip().expandtabs(4), values, tuple(said.get(number, ()))))
    return columns, listed


def heat(columns, listed) -> np.ndarray:
    """[lines, columns] from 0 to 1: each number over the largest of its column; 0 where there is none."""
    values = np.array([[value or 0.0 for value in line.values] for line in listed], float).reshape(len(listed), len(columns))
    return values / np.maximum(values.max(axis=0, initial=0), 1e-300)


def number(value: float | None) -> str:
    """Short and exact where it can be: 4, 16.5, 8,192, 2.10 M. '' for None; 0 is what warps execute with all predicates false."""
    if value is None:
        return ""
    if value == 0:
        return "switched off"
    for limit, unit in ((1e9, "G"), (1e6, "M")):
        if value >= limit:
            return f"{value / limit:.3g} {unit}"
    return f"{value:,.0f}" if value == int(value) or value >= 1000 else f"{value:.3g}"


def excerpt(listed: list[Line], around: int = 2) -> list[Line]:
    """The lines that cost something or have findings, with their neighbours and what stands between: for pictures, which have little
    room. Where many lines in a row are left out, one stands for them and says how many."""
    busy = [i for i, line in enumerate(listed) if line.findings or any(value is not None for value in line.values)]
    if not busy:
        return listed[:40]
    keep = sorted({j for i in busy for j in range(i - around, i + around + 1) if 0 <= j < len(listed)})
    shown = [listed[keep[0]]]
    for before, here in itertools.pairwise(keep):
        between, after = listed[before + 1 : here], listed[here]
        if len(between) >= _MANY:
            indent = " " * (len(after.text) - len(after.text.lstrip()))
            between = [Line(_LEFT_OUT, f"{indent}({len(between)} lines of which nothing was counted)", (None,) * len(after.values), ())]
        shown += [*between, after]
    return shown


_MANY = 8  # lines left out in a row; fewer are shown
_LEFT_OUT = -1  # the number of a line that stands for others


# -------------------------------------------------------------------------------------------------------- table

_TABLE_STYLE = """<style>
.ladder-listing-frame{container-type:inline-size;width:100%;overflow-x:auto}
.ladder-listing{border-collapse:collapse;width:100%;max-width:84em;font-size:clamp(10px,1.5cqw,13px);line-height:1.4;color:var(--jp-content-font-color1,#222)}
.ladder-listing-frame .ladder-listing{table-layout:auto}
.ladder-listing caption{text-align:left;padding:.3em 0;color:var(--jp-content-font-color2,#555)}
.ladder-listing td,.ladder-listing th{padding:1px .35em;border:0;text-align:right;background:none;vertical-align:top;white-space:nowrap}
.ladder-listing thead th{vertical-align:bottom;white-space:normal;font-size:.85em;border-bottom:1px solid var(--jp-border-color1,#999)}
.ladder-listing tbody th{font-weight:normal;color:var(--jp-content-font-color2,#555);font-family:var(--jp-code-font-family,monospace)}
.ladder-listing td.code{text-align:left;white-space:pre-wrap;overflow-wrap:anywhere;width:100%;min-width:16ch;
font-family:var(--jp-code-font-family,monospace)}
@container (max-width:640px){.ladder-listing td,.ladder-listing th{padding:1px .12em}.ladder-listing td.code{min-width:14ch}}
.ladder-listing tr.marked td.code{outline:2px solid #E69F00}
.ladder-listing tr.finding td{text-align:left;white-space:normal;border-left:4px solid #D55E00}
</style>"""


@dataclass(frozen=True)
class ListingTable:
    """The listing as HTML: a real table with headers, which screen readers walk through. `str()` is plain text."""

    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    marked: int | None = None

    def _repr_html_(self) -> str:
        shade = heat(self.columns, self.lines)
        head = "".join(f'<th scope="col">{html.escape(column.title)}</th>' for column in self.columns)
        body = []
        for entry, shares in zip(self.lines, shade, strict=False):
            cells = []
            for column, value, share in zip(self.columns, entry.values, shares, strict=False):
                red, green, blue = (round(255 * channel) for channel in rgb(column.colour))
                style = f' style="background:rgba({red},{green},{blue},{0.08 + 0.5 * share:.2f})"' if value is not None else ""
                cells.append(f"<td{style}>{number(value)}</td>")
            mark = ' class="marked"' if entry.number == self.marked else ""
            hang = min(len(entry.text) - len(entry.text.lstrip()), 12) + 4  # where a line that is too long goes on
            code = f'<td class="code" style="padding-left:{hang + 1}ch;text-indent:-{hang}ch">{html.escape(entry.text)}</td>'
            body.append(f'<tr{mark}><th scope="row">{entry.label}</th>{code}{"".join(cells)}</tr>')
            body += [
                f'<tr class="finding"><th scope="row">⚠</th><td colspan="{1 + len(self.columns)}">{in_html(sentence)}</td></tr>'
                for sentence in entry.findings
            ]
        return (
            f'{_TABLE_STYLE}<div class="ladder-listing-frame"><table class="ladder-listing">'
            "<caption>Each line with what it cost in this run; the stronger the colour, the more of its column.</caption>"
            '<thead><tr><th scope="col">line</th>'
            f'<th scope="col" style="text-align:left">source</th>{head}</tr></thead>'
            f"<tbody>{''.join(body)}</tbody></table></div>"
        )

    def __str__(self) -> str:
        rows = [["", "", *(column.title for column in self.columns)]]
        rows += [[entry.label, entry.text, *(number(value) for value in entry.values)] for entry in self.lines]
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        text = []
        for row, entry in zip(rows, [None, *self.lines], strict=False):
            cells = [
                row[0].rjust(widths[0]),
                row[1].ljust(widths[1]),
                *(cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=False)),
            ]
            text.append("  ".join(cells).rstrip())
            text += [f"{'':{widths[0]}}  ^ {sentence}" for sentence in (entry.findings if entry else ())]
        return "\n".join(text)


def table(run, line: int | None = None, whole: bool = True) -> ListingTable:
    """The listing of a run as a table. line: one to mark. whole: all lines, or only the busy part."""
    columns, listed = lines(run)
    return ListingTable(columns, tuple(listed if whole else excerpt(listed)), line)


# ----------------------------------------------------------------------------------- what the compiler made of a line


def ptx_of(run, line: int) -> str:
    """The PTX of one source line, in order. Raises NothingToSee if the compiler needed none."""
    compiled = run.kernel.compiled
    function = parsed(compiled).functions.get(compiled.symbol)
    body = (function and function.body) or ()
    starts = sorted({instruction.ptx_line for instruction in body if instruction.line == line})
    if not starts:
        raise NothingToSee(f"The compiler made no instruction of its own for line {line}.")
    text, shown = compiled.ptx.split("\n"), []
    for start in starts:
        end = next(k for k in range(start, len(text) + 1) if ";" in text[k - 1])  # inline assembly may go over several lines
        shown += [row.strip() for row in text[start - 1 : end]]
    return "\n".join(shown)


def sass_of(run, line: int) -> str:
    """The SASS (machine code) of one source line, in address order. Raises NothingToSee if there is none."""
    compiled = run.kernel.compiled
    functions, lines = sass.parse(compiled.sass), cell_lines(compiled)
    if compiled.symbol not in functions:
        raise NothingToSee("There is no machine code for this kernel: it was compiled to PTX only.")
    chosen = [f"{item.address:04x}  {item}" for item in functions[compiled.symbol].instructions if lines.get(item.ptx_line) == line]
    if not chosen:
        raise NothingToSee(f"ptxas left no machine instruction of line {line}: it was merged into others or removed.")
    return "\n".join(chosen)


@dataclass(frozen=True)
class MachineCode:
    """PTX and SASS of one source line, side by side."""

    line: int
    source: str
    ptx: str
    sass: str

    def _repr_html_(self) -> str:
        cell = "vertical-align:top;text-align:left;padding:0 2em 0 0"
        block = "margin:0;font-size:12px;line-height:1.4;white-space:pre;background:none"
        head = "".join(f'<th scope="col" style="{cell}">{name}</th>' for name in ("PTX (virtual)", "SASS (machine)"))
        body = "".join(f'<td style="{cell}"><pre style="{block}">{html.escape(text)}</pre></td>' for text in (self.ptx, self.sass))
        return (  # of a line that was unrolled there may be thousands of instructions: they scroll
            '<div style="max-height:24em;overflow:auto;margin-bottom:1em" tabindex="0">'
            f'<table><caption style="text-align:left"><code>{self.line}: {html.escape(self.source)}</code></caption>'
            f"<thead><tr>{head}</tr></thead><tbody><tr>{body}</tr></tbody></table></div>"
        )

    def __str__(self) -> str:
        return f"line {self.line}: {self.source}\nPTX\n{self.ptx}\nSASS\n{self.sass}"


def code_of(run, line: int) -> MachineCode:
    """PTX and SASS of one source line; a sentence stands where there is none."""
    source = run.kernel.compiled.source.split("\n")
    if not 1 <= line <= len(source):
        raise NothingToSee(f"There is no line {line}; the source has {len(source)}.")

    def words(function) -> str:
        try:
            return function(run, line)
        except NothingToSee as reason:
            return f"({reason.message})"

    return MachineCode(line, source[line - 1].strip(), words(ptx_of), words(sass_of))


# ------------------------------------------------------------------------------------------------------ picture

_NO_LINE = 0  # not None, which a menu takes for nothing chosen
_COLUMN, _NUMBER = 72.0, 34.0  # widths in points
_WIDTH, _SIZE, _ROW = 16.0, 10.0, 15.0  # of the figure in inches; of the text and from line to line, in points
_MARGINS = (0.2, 0.15, 0.2, 0.85)
_ADVANCE = 0.602  # of a monospaced character, in parts of its size


@dataclass(frozen=True)
class ListingPage:
    """Parts of HTML under one another."""

    parts: tuple[ListingTable | MachineCode, ...]

    def _repr_html_(self) -> str:
        return "".join(part._repr_html_() for part in self.parts)


def controls(run, line=None):
    """The line whose PTX and SASS are shown."""
    _, listed = lines(run)
    options = tuple((f"line {entry.number}: {entry.text.strip()[:60]}", entry.number) for entry in listed
                    if any(value is not None for value in entry.values) or entry.findings)  # fmt: skip
    return (Choice("line", "machine code of", (("no line", _NO_LINE), *options)),)


def page(run, line: int | None = None) -> ListingPage:
    """The busy part of the table, and above it, next to the menu, the PTX and SASS of one line if there is one to show."""
    return ListingPage((*((code_of(run, line),) if line else ()), table(run, line, whole=False)))


def _figure_size(run, line: int | None = None) -> tuple[float, float]:
    """As high as the lines need, those that go on in another one included."""
    columns, everything = lines(run)
    shown = excerpt(everything)
    code = 72 * (_WIDTH - _MARGINS[0] - _MARGINS[2]) - _COLUMN * len(columns)
    rows = sum(len(part) for part in _wrapped(shown, code, _SIZE))
    return _WIDTH, _MARGINS[1] + _MARGINS[3] + _ROW * (rows + 0.5) / 72


@picture("Listing", controls=controls, html=page, size=_figure_size, margins=_MARGINS, order=30)
def listing(run, line: int | None = None, *, ax):
    """The busy part of the source; every number shaded by its share of the largest in its column. line: one to mark."""
    columns, everything = lines(run)
    shown = excerpt(everything)
    shade = heat(columns, shown)
    box = ax.get_window_extent()
    width, height = (72 * pixels / ax.figure.dpi for pixels in (box.width, box.height))
    right_of_code = width - _COLUMN * len(columns)
    wrapped = _wrapped(shown, right_of_code, _SIZE)
    rows = sum(map(len, wrapped))
    size = min(_SIZE, height / (rows + 0.2) * _SIZE / _ROW)  # smaller only in an Axes that is too low
    ax.set_axis_off()
    ax.set_ylim(max(rows, height / _ROW - 0.2), -0.2)
    ax.set_xlim(0, width)
    cells, colours = [], []
    y = 0
    for entry, pieces, shares in zip(shown, wrapped, shade, strict=True):
        if entry.number == line or entry.findings:
            end = y + len(pieces)
            cells.append([(0, y), (right_of_code, y), (right_of_code, end), (0, end)])
            colours.append((*rgb(VERMILLION if entry.findings else ORANGE), 0.18))
        ax.text(_NUMBER - 8, y + 0.5, entry.label, ha="right", va="center", fontsize=size, color=QUIET, family="monospace")
        for row, text in enumerate(pieces):
            ax.text(_NUMBER, y + row + 0.5, text, va="center", fontsize=size, family="monospace", color=INK, parse_math=False)
        for j, value in enumerate(entry.values):
            if value is not None:
                x = right_of_code + _COLUMN * j
                cells.append([(x + 2, y + 0.04), (x + _COLUMN, y + 0.04), (x + _COLUMN, y + 0.96), (x + 2, y + 0.96)])
                colours.append((*rgb(columns[j].colour), 0.08 + 0.5 * shares[j]))
                ax.text(x + _COLUMN - 4, y + 0.5, number(value), ha="right", va="center", fontsize=size, color=INK)
        y += len(pieces)
    ax.add_collection(PolyCollection(cells, facecolors=colours, linewidths=0, zorder=0.5))
    for j, column in enumerate(columns):
        x = right_of_code + _COLUMN * (j + 1) - 4
        ax.text(x, -0.2, column.title.replace(" ", "\n"), ha="right", va="bottom", fontsize=10, weight="bold", linespacing=1.2)
    if not columns:
        ax.text(width, -0.2, "nothing was counted in this run", ha="right", va="bottom", fontsize=12, color=QUIET)
    return _summary(columns, everything)


def _wrapped(shown: list[Line], width: float, size: float) -> list[list[str]]:
    """Each line without the indentation that all of them have, in as many pieces as `width` points ask for."""
    fits = max(20, int((width - _NUMBER - 18) / (_ADVANCE * size)))
    indent = min((len(entry.text) - len(entry.text.lstrip()) for entry in shown if entry.text.strip() not in ("", "}")), default=0)
    found = []
    for entry in shown:
        text = entry.text[indent:] if not entry.text[:indent].strip() else entry.text.lstrip()
        hang = " " * min(len(text) - len(text.lstrip()) + 4, fits // 2)
        found.append(textwrap.wrap(text, fits, subsequent_indent=hang) or [""])
    return found


def _summary(columns, listed) -> str:
    parts = [f"Source with counters per line, {plural(len(listed), 'line')}."]
    for j, column in enumerate(columns):
        best = max((entry for entry in listed if entry.values[j] is not None), key=lambda entry: entry.values[j])
        parts.append(f"Most {column.title}: line {best.number} with {number(best.values[j])}.")
    parts += [f"Line {entry.number}: {sentence}." for entry in listed for sentence in entry.findings]
    return " ".join(parts)
