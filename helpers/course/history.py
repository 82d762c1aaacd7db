"""Every source that the reader ran, and the way back: `naive.history()`, `naive.restore()`, `naive.restore(3)`.

A cell that defines a kernel (`%%cuda name`) or the function of an exercise is kept when it is run, once for each text, with
what the compiler and the check said of it. Version 0 is the lesson's own. Nothing is ever overwritten: `restore` puts a
version into a new cell.
"""

from __future__ import annotations

import difflib
import hashlib
import html
import os
import re
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from helpers.arguments import explained
from helpers.errors import CourseError

from . import notebook_file, steps, store
from .store import Store
from .table import Cell, Table, Tabular

_FUNCTION = re.compile(r"^def (\w+)\(", re.MULTILINE)
_functions: dict[str, str] = {}  # the text of each cell that defined a function in this session, by the function's name


@dataclass(frozen=True)
class Version:
    """One text of a cell. number: 0 for the lesson's own, else in the order of their first runs. says: the last verdict on it."""

    number: int
    text: str
    runs: int = 0
    last: str = ""
    lesson: str = ""
    says: str = ""


@dataclass(frozen=True, repr=False)
class History(Tabular):
    """The versions of one cell, oldest first. `history[3]` is the text of version 3."""

    cell: str
    versions: tuple[Version, ...]

    def __getitem__(self, number: int) -> str:
        for version in self.versions:
            if version.number == number:
                return version.text
        known = ", ".join(str(version.number) for version in self.versions)
        if number == 0 and known:
            raise CourseError(f"{self.cell} is in no lesson, so it has no version 0: the versions are yours. There are: {known}.")
        raise CourseError(f"{self.cell} has no version {number!r}. " + (f"There are: {known}." if known else "It has not been run yet."))

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """(number, last run in local time, lines, lines changed since the version above, verdict)."""
        found: list[tuple[str, str, str, str, str]] = []
        before: list[str] | None = None
        for version in self.versions:
            lines = version.text.split("\n")
            changes = "" if before is None else "".join(line[0] for line in difflib.ndiff(before, lines))
            changed = f"+{changes.count('+')} −{changes.count('-')}" if changes else ""
            when = f"{datetime.fromisoformat(version.last).astimezone():%Y-%m-%d %H:%M:%S}" if store.is_moment(version.last) else ""
            when += f" ({version.runs} times)" if version.runs > 1 else ""
            found.append((str(version.number), when if version.number else "the lesson's own", str(len(lines)), changed, version.says))
            before = lines
        return found

    def _advice(self) -> str:
        if all(version.number == 0 for version in self.versions):
            return f"{self.cell} has not been run yet."
        own = f", restore({self.cell!r}) the lesson's own" if self.versions[0].number == 0 else ""
        return f"restore({self.cell!r}, 1) puts version 1 into a new cell{own}."

    def table(self) -> Table:
        """A version a row; in HTML with what changed."""
        rows: list[tuple[str | Cell, ...]] = []
        before: list[str] = []
        for version, row in zip(self.versions, self.rows(), strict=True):
            lines = version.text.split("\n")
            difference = "\n".join(list(difflib.unified_diff(before, lines, lineterm="", n=2))[2:]) if before else version.text
            what = "what changed" if before else "source"
            shown = f"<details><summary>{what}</summary><pre>{html.escape(difference)}</pre></details>"
            rows.append((*row, Cell("", shown)))
            before = lines
        return Table(("version", "last run", "lines", "changed", "said of it", ""), rows, left=range(6), below=(self._advice(),))


def lesson() -> str:
    """Name of the notebook that this kernel serves, as Jupyter gives it; "" where it does not."""
    return Path(os.environ.get("JPY_SESSION_NAME", "")).stem


def keep(cell: str, text: str, to: Store | None = None) -> None:
    """Keep what the cell `cell` was run with."""
    to, name, now = to or store.own(), _hash(text), store.now()
    text = text.encode(errors="replace").decode()  # half a character, which a browser can send, is no UTF-8

    def write(db) -> None:
        db.execute("INSERT OR IGNORE INTO sources (hash, text) VALUES (?, ?)", (name, text))
        db.execute("INSERT INTO runs (created, lesson, cell, source) VALUES (?, ?, ?, ?)", (now, lesson(), cell, name))

    to.run(write)


def judged(cell: str, text: str, says: str, to: Store | None = None) -> None:
    """Keep what was said of a text of the cell; "" for what no cell was run with."""
    if text:
        row = {"created": store.now(), "cell": cell, "source": _hash(text), "says": says.split("\n")[0]}
        (to or store.own()).insert("verdicts", row)


def of_function(name: str) -> str:
    """The text of the cell that defined this function, "" if none did in this session."""
    return _functions.get(name, "")


def verdict(report) -> str:
    """A check's report in a few words: "passed", or the first thing that is wrong."""
    return "passed" if report.passed else next((text for good, text in report.lines() if not good), report.headline)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


@explained
def history(cell: str, of: Store | None = None) -> History:
    """The versions of the cell of this name: of `%%cuda naive`, or of the function of an exercise. Raises CourseError for no name."""
    if not isinstance(cell, str) or not cell.strip():
        raise CourseError(f"{cell!r} is no name of a cell: give the one behind %%cuda, or that of an exercise's function, such as 'naive'.")
    of = of or store.own()
    rows = of.rows(
        "SELECT text, count(*) AS runs, max(runs.id) AS latest, min(runs.id) AS earliest, source FROM runs JOIN sources ON hash = source"
        " WHERE cell = ? GROUP BY source ORDER BY earliest", (cell,),
    )  # fmt: skip
    runs = {row["id"]: row for row in of.rows("SELECT id, created, lesson FROM runs WHERE cell = ?", (cell,))}
    says = {row["source"]: row["says"] for row in of.rows("SELECT source, says FROM verdicts WHERE cell = ? ORDER BY id", (cell,))}
    own = shipped(cell)
    versions = [Version(0, own)] if own is not None else []
    for number, row in enumerate(rows, 1):
        last = runs[row["latest"]]
        versions.append(Version(number, row["text"], row["runs"], last["created"], last["lesson"], says.get(row["source"], "")))
    return History(cell, tuple(versions))


def shipped(cell: str) -> str | None:
    """The text of the cell as the course ships it, in this lesson before any other; None if no lesson has it."""
    from .exercises import exercises  # here: the exercises keep what was said of them

    known = exercises().get(cell)
    tag = f"{steps.EXERCISE}{cell}"
    for path in sorted((steps.ROOT / "notebooks").glob("*.ipynb"), key=lambda path: path.stem != lesson()):
        try:
            cells = notebook_file.read(path)["cells"]
        except CourseError:  # another lesson may have it, and what the reader ran is shown all the same
            continue
        for found in cells:
            text = notebook_file.source(found)
            if text.split("\n", 1)[0].split()[:2] == ["%%cuda", cell] or tag in notebook_file.tags(found):
                return text
    return known.starter if known else None


class Restored(str):
    """The text of a version, as `restore` gives it back."""

    def __repr__(self) -> str:
        return str(self)


@explained
def restore(cell: str, number: int = 0, of: Store | None = None) -> Restored | None:
    """Put version `number` of a cell into a new one below this, 0 for the lesson's own. Outside a notebook, return its text.

    Raises CourseError if there is no such version, or for what is no name of a cell.
    """
    text = history(cell, of)[number]
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None or not hasattr(shell, "kernel"):
        return Restored(text)
    shell.set_next_input(text)
    what = f"version {number} of {cell}" if number else f"{cell} as the lesson has it"
    print(f"The new cell below holds {what}. Run it to use it; your own cell is as you left it.")
    return None


def cell_begins(info) -> None:
    """IPython's event pre_run_cell: keep a cell that defines the function of an exercise."""
    from .exercises import exercises

    for name in _FUNCTION.findall(info.raw_cell or ""):
        if name in exercises() and exercises()[name].language == "py":
            _functions[name] = info.raw_cell.rstrip("\n")
            keep(name, _functions[name])
