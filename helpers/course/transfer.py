"""The reader's work in a file: out of one store, into another, where nothing that is there already comes twice.

The file is JSON: {"course": …, "format": …, "schema": …, "tables": {name: [rows]}}. A file of an older schema is brought up to
this one's as a store is; one of a newer course is refused. What is read is checked whole before anything is written.
"""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

from helpers.errors import CourseError
from helpers.files import read_whole, write_export

from .store import MIGRATIONS, Store

COURSE, FORMAT = "gemm-ladder", 1
TABLES = ("climbs", "answers", "sources", "runs", "verdicts")
_OF_THIS_STORE = ("id", "reset")  # columns that say nothing elsewhere
_HALF = re.compile("[\ud800-\udfff]")  # of a character; no text of UTF-8 has one
_CHANGES = "archived"  # the one column that a row does not keep for good


def written(content: dict[str, Any]) -> bytes:
    """The text of a file of the reader's work."""
    return json.dumps(content, ensure_ascii=False, indent=1).encode(errors="replace")


_BEGINS = written({"course": COURSE, "format": FORMAT}).rpartition(b" ")[0]  # whatever its format


def export(store: Store, path: Path) -> int:
    """Write all that the store keeps to a file, and return how many rows that is. Raises CourseError where it cannot be written, or
    something else than an earlier export is."""
    tables = {name: [dict(row) for row in store.rows(f"SELECT * FROM {name}")] for name in TABLES}
    content = {"course": COURSE, "format": FORMAT, "schema": len(MIGRATIONS), "tables": tables}
    try:
        write_export(path, written(content), _BEGINS, private=True)
    except OSError as error:
        raise CourseError(f"{path} cannot be written ({error.strerror or error}). Your progress is as it was.") from None
    return sum(map(len, tables.values()))


class Loaded(NamedTuple):
    """What came of a file. added: rows that are new. set_aside: rows that were here already and that a reset has set aside."""

    added: int
    set_aside: int


def load(store: Store, path: Path) -> Loaded:
    """Add what a file holds and the store does not. What a reset has set aside stays so.

    Raises CourseError for a file that is none of `export`, is damaged, or comes from a newer version of the course; the store is
    then as it was.
    """
    rows = _current(_content(path), path)

    def add(db: sqlite3.Connection) -> Loaded:
        added = set_aside = 0
        for name in TABLES:
            columns = [item["name"] for item in db.execute(f"PRAGMA table_info({name})") if item["name"] not in _OF_THIS_STORE]
            lasting = [column for column in columns if column != _CHANGES]
            known = {tuple(row) for row in db.execute(f"SELECT {', '.join(lasting)} FROM {name}")}
            new = {tuple(row[column] for column in lasting): {column: row[column] for column in columns} for row in rows[name]}
            if _CHANGES in columns:
                resets = db.execute(f"SELECT {', '.join(lasting)} FROM {name} WHERE {_CHANGES} IS NOT NULL").fetchall()
                set_aside += sum(new[tuple(row)][_CHANGES] is None for row in resets if tuple(row) in new)
            wanted = [row for identity, row in new.items() if identity not in known]
            if name == "answers":
                _in_their_place(db, wanted)
            for row in wanted:
                marks = ", ".join("?" * len(row))
                added += db.execute(f"INSERT OR IGNORE INTO {name} ({', '.join(row)}) VALUES ({marks})", [*row.values()]).rowcount
        return Loaded(added, set_aside)

    return store.run(add)


def _in_their_place(db: sqlite3.Connection, answers: list[dict[str, Any]]) -> None:
    """The last answer to a question is the one that holds: what is older than the reader's own gets a number before all that are there."""
    latest = {
        row["question"]: row["created"] for row in db.execute("SELECT question, max(created) AS created FROM answers GROUP BY question")
    }
    older = [row for row in answers if row["created"] < latest.get(row["question"], "")]
    first = db.execute("SELECT coalesce(min(id), 1) FROM answers").fetchone()[0] - len(older)
    for number, row in enumerate(older, first):
        row["id"] = number


def _content(path: Path) -> dict[str, Any]:
    """What a file holds, of the form above."""
    nothing = "Nothing was read, and your progress is as it was."
    try:
        content = json.loads(read_whole(path).decode("utf-8-sig"))  # editors put a mark before the first sign
    except OSError as error:
        raise CourseError(f"{path} cannot be read ({error.strerror or error}). {nothing}") from None
    except (ValueError, RecursionError) as error:
        raise CourseError(f"{path} is damaged, or no file of `course progress --export` ({error}). {nothing}") from None
    if not isinstance(content, dict) or content.get("course") != COURSE:
        raise CourseError(f"{path} is no file of `course progress --export`. {nothing}")
    if "what" in content and "tables" not in content:
        raise CourseError(f"{path} is a file of `course ladder export`, which `course ladder merge` shows. {nothing}")
    form, schema = content.get("format"), content.get("schema")
    if not all(type(number) is int and number > 0 for number in (form, schema)):
        raise CourseError(f"{path} is damaged: it does not say what version it is of. {nothing}")
    if form > FORMAT or schema > len(MIGRATIONS):
        raise CourseError(f"{path} was written by a newer version of the course. Update the course, and import it again. {nothing}")
    tables = content.get("tables")
    good = isinstance(tables, dict) and all(
        isinstance(rows, list) and all(isinstance(row, dict) and all(map(_plain, row.values())) for row in rows) for rows in tables.values()
    )
    if not good:
        raise CourseError(f"{path} is damaged: its tables are not as `course progress --export` writes them. {nothing}")
    return content


def _plain(value: Any) -> bool:
    """Can a store keep it? Not half a character."""
    return value is None or isinstance(value, int | float) or (isinstance(value, str) and not _HALF.search(value))


def _current(content: dict[str, Any], path: Path) -> dict[str, list[sqlite3.Row]]:
    """The rows of a file, brought up to this version's schema in a store of their own, in memory."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.row_factory = sqlite3.Row
        schema = content["schema"]
        for script in MIGRATIONS[:schema]:
            db.executescript(script)
        try:
            for name in TABLES:
                known = {item["name"] for item in db.execute(f"PRAGMA table_info({name})")}
                for row in content["tables"].get(name, ()) if known else ():
                    kept = {column: row[column] for column in known.intersection(row) if column != "id"}
                    db.execute(f"INSERT INTO {name} ({', '.join(kept)}) VALUES ({', '.join('?' * len(kept))})", [*kept.values()])
        except (sqlite3.Error, OverflowError) as error:
            said = f"{path} is damaged: a row is not as `course progress --export` writes it ({error})."
            raise CourseError(f"{said} Nothing was read, and your progress is as it was.") from None
        for script in MIGRATIONS[schema:]:
            db.executescript(script)
        return {name: db.execute(f"SELECT * FROM {name}").fetchall() for name in TABLES}
