"""One table for everything that is shown as one: aligned text in a terminal, HTML in a notebook, light or dark."""

from __future__ import annotations

import html
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from helpers.errors import in_html

# Colours are JupyterLab's, which follow its theme; what stands behind the comma is for pages without them.
STYLE = """<style>
.ladder-table{overflow-x:auto}
.ladder-table table{border-collapse:collapse;font-size:1em;line-height:1.4;color:var(--jp-content-font-color1,inherit)}
.ladder-table caption{text-align:left;padding:.3em .7em;color:var(--jp-content-font-color2,inherit)}
.ladder-table th,.ladder-table td{padding:.15em .35em;border:0;text-align:right;vertical-align:top;white-space:nowrap;
font-variant-numeric:tabular-nums}
.ladder-table th{white-space:normal;font-size:.85em;border-bottom:1px solid var(--jp-border-color1,#999);vertical-align:bottom}
.ladder-table table tr .left{text-align:left;max-width:34em;white-space:normal}
.ladder-table table tr td.left:first-child{min-width:6em}
.ladder-table td.long{white-space:normal;min-width:12em;max-width:20em}
.ladder-table small{white-space:normal}
.ladder-table code{white-space:normal}
.ladder-table.tall{max-height:80vh;overflow:auto}
.ladder-table.tall th{position:sticky;top:0;z-index:1;background:var(--jp-layout-color0,var(--paper,Canvas));
box-shadow:inset 0 -1px var(--jp-border-color1,#999)}
@media print{.ladder-table.tall{max-height:none;overflow:visible}.ladder-table.tall th{position:static}}
</style>"""


class Cell(NamedTuple):
    """A cell that is more than plain text in HTML. shade: 0 to 1, how strong its background is, for numbers to be compared."""

    text: str
    html: str
    shade: float = 0.0


_TALL = 12  # rows of a table with a header that are not seen at a time: it scrolls below its header, which stays
_LONG = 30  # characters of a text where numbers stand: more of them take several lines


@dataclass(frozen=True)
class Table:
    """rows: cells of text, or `Cell`s. header: titles of the columns, () for none. left: the columns of words, by position;
    the others are numbers and stand right. below: sentences under the table."""

    header: Sequence[str | Cell]
    rows: Sequence[Sequence[str | Cell]]
    caption: str = ""
    left: Collection[int] = ()
    below: Sequence[str] = ()

    def __str__(self) -> str:
        shown = [self.header, *self.rows] if self.header else self.rows
        rows = [[cell.text if isinstance(cell, Cell) else cell for cell in row] for row in shown]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = []
        for row in rows:
            cells = [f"{text:{'<' if i in self.left else '>'}{width}}" for i, (text, width) in enumerate(zip(row, widths, strict=True))]
            lines.append("  ".join(cells).rstrip())
        return "\n".join(filter(None, (self.caption, *lines, *self.below)))

    def _repr_html_(self) -> str:
        head = self._row("th scope='col'", self.header) if self.header else ""
        body = "".join(self._row("td", row) for row in self.rows)
        caption = f"<caption>{in_html(self.caption)}</caption>" if self.caption else ""
        below = "".join(f"<div>{in_html(sentence)}</div>" for sentence in self.below if sentence)
        table = f"<table>{caption}<thead>{head}</thead><tbody>{body}</tbody></table>"
        tall = bool(self.header) and len(self.rows) > _TALL
        table = f"<div class='ladder-table{' tall' if tall else ''}'{_SCROLLS if tall else ''}>{table}</div>"
        return f"{STYLE}{table}<div class='ladder-table'>{below}</div>" if below else f"{STYLE}{table}"

    def _row(self, tag: str, cells: Sequence[str | Cell]) -> str:
        """One row; tag: 'td' or 'th' with its attributes."""
        made = []
        for i, cell in enumerate(cells):
            text = cell.html if isinstance(cell, Cell) else html.escape(cell)
            long = " class='long'" if tag == "td" and not isinstance(cell, Cell) and len(cell) > _LONG else ""
            side = " class='left'" if i in self.left else long
            fill = f" style='background:rgba(0,158,115,{0.6 * cell.shade:.2f})'" if isinstance(cell, Cell) and cell.shade else ""
            made.append(f"<{tag}{side}{fill}>{text}</{tag.split()[0]}>")
        return f"<tr>{''.join(made)}</tr>"


_SCROLLS = " tabindex='0' role='region' aria-label='table'"  # by keys, too


class Tabular:
    """What is shown as its `table()`."""

    def table(self) -> Table:
        raise NotImplementedError(f"{type(self).__name__} has no table().")

    def __str__(self) -> str:
        return str(self.table())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()
