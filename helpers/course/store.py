"""The reader's progress: every climb, every answer to a prediction question, and every source that was run.

Rows are only ever added: a reset marks them as archived. `database.py` keeps the file.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import json
import math
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from helpers.element_types import ELEMENT_TYPES, result_type
from helpers.paths import data_folder

from .database import Database

FILE = "progress.sqlite3"

MEASURED, PREDICTED, COUNTED = "measured", "predicted", "counted"  # the reader's: timed, modelled, only counted
RECORDED, PUBLISHED, LIMIT = "recorded", "published", "limit"  # ours, others', the hardware's
CLIMBS = (MEASURED, PREDICTED, COUNTED, RECORDED)

# One script per schema version: MIGRATIONS[0] makes version 1 of an empty file, MIGRATIONS[n] turns version n into n +
# 1. Never change a script that has been released: add one.
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE climbs (
        id INTEGER PRIMARY KEY,
        created TEXT NOT NULL,
        archived TEXT,
        kind TEXT NOT NULL,
        step INTEGER,
        label TEXT NOT NULL,
        device TEXT NOT NULL,
        dtype TEXT NOT NULL,
        m INTEGER NOT NULL, n INTEGER NOT NULL, k INTEGER NOT NULL,
        milliseconds REAL,
        tflops REAL,
        cublas_ratio REAL,
        source TEXT NOT NULL,
        source_hash TEXT NOT NULL,
        counters TEXT NOT NULL
    );
    CREATE INDEX climbs_by_step ON climbs (archived, step, dtype, m, n, k);
    CREATE TABLE answers (
        id INTEGER PRIMARY KEY,
        created TEXT NOT NULL,
        archived TEXT,
        step INTEGER,
        question TEXT NOT NULL,
        answer TEXT NOT NULL,
        truth TEXT
    );
    CREATE INDEX answers_by_question ON answers (archived, step, question);
    """,
    """
    ALTER TABLE climbs ADD COLUMN reset INTEGER;
    ALTER TABLE answers ADD COLUMN reset INTEGER;
    CREATE TEMP TABLE resets AS SELECT archived FROM climbs WHERE archived IS NOT NULL
        UNION SELECT archived FROM answers WHERE archived IS NOT NULL;
    UPDATE climbs SET reset = (SELECT count(*) FROM resets WHERE archived <= climbs.archived) WHERE archived IS NOT NULL;
    UPDATE answers SET reset = (SELECT count(*) FROM resets WHERE archived <= answers.archived) WHERE archived IS NOT NULL;
    DROP TABLE resets;
    CREATE TABLE sources (
        hash TEXT PRIMARY KEY,
        text TEXT NOT NULL
    );
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY,
        created TEXT NOT NULL,
        lesson TEXT NOT NULL,
        cell TEXT NOT NULL,
        source TEXT NOT NULL
    );
    CREATE INDEX runs_by_cell ON runs (cell, source);
    CREATE TABLE verdicts (
        id INTEGER PRIMARY KEY,
        created TEXT NOT NULL,
        cell TEXT NOT NULL,
        source TEXT NOT NULL,
        says TEXT NOT NULL
    );
    CREATE INDEX verdicts_by_cell ON verdicts (cell, source);
    """,
    """
    ALTER TABLE climbs ADD COLUMN out_dtype TEXT NOT NULL DEFAULT 'float32';
    UPDATE climbs SET out_dtype = dtype;
    DROP INDEX climbs_by_step;
    CREATE INDEX climbs_by_step ON climbs (archived, step, dtype, out_dtype, m, n, k);
    """,
    # Step 11 was parted in two: autotune and fused_epilogue are 12 and 13 now. The larger number first.
    """
    UPDATE climbs SET step = step + 1 WHERE step = 12;
    UPDATE climbs SET step = step + 1 WHERE step = 11;
    UPDATE answers SET step = step + 1 WHERE step = 12;
    UPDATE answers SET step = step + 1 WHERE step = 11;
    """,
)


_TABLES = ("climbs", "answers")  # what a reset archives


@dataclass(frozen=True)
class SavedClimb:
    """One climb as it was saved. `saved` is False if it is only in memory."""

    kind: str
    label: str
    device: str
    dtype: str
    m: int
    n: int
    k: int
    step: int | None = None
    milliseconds: float | None = None
    tflops: float | None = None
    cublas_ratio: float | None = None
    source: str = field(default="", repr=False)
    source_hash: str = ""
    counters: Mapping[str, int] = field(default_factory=dict, repr=False)
    created: str = ""
    id: int = 0
    out_dtype: str = "float32"
    saved: bool = True


@dataclass(frozen=True)
class SavedAnswer:
    """What the reader answered to a prediction question, and the truth if it has been seen."""

    question: str
    answer: Any
    truth: Any = None
    step: int | None = None
    created: str = ""


class Store(Database):
    """The progress of one reader. folder: the user's data folder by default. More: `Database`."""

    def __init__(
        self,
        folder: Path | None = None,
        announce: Callable[[str], None] | None = None,
        migrations: Sequence[str] = MIGRATIONS,
    ):
        super().__init__(Path(folder if folder is not None else data_folder()) / FILE, migrations, announce)

    # ------------------------------------------------------------------------------------------------- climbs

    def climb(
        self,
        *,
        label: str,
        kind: str,
        m: int,
        n: int,
        k: int,
        device: str = "",
        dtype: str = "float32",
        out_dtype: str = "",
        step: int | None = None,
        milliseconds: float | None = None,
        tflops: float | None = None,
        cublas_ratio: float | None = None,
        source: str = "",
        counters: Mapping[str, int] | None = None,
    ) -> SavedClimb:
        """Save one climb and return it. tflops follows from milliseconds if it is not given; dtype, out_dtype: as in `Problem`.

        Raises ValueError for a kind that is none of `CLIMBS`, or a measured climb without a time.
        """
        if kind not in CLIMBS:
            raise ValueError(f"kind={kind!r} is none of {', '.join(CLIMBS)}")
        if kind == MEASURED and milliseconds is None:
            raise ValueError("a measured climb has a time")
        if tflops is None and milliseconds:
            tflops = 2 * m * n * k / milliseconds / 1e9
        row = {
            "created": now(), "kind": kind, "step": step, "label": label, "device": device,
            "dtype": dtype, "out_dtype": result_type(dtype, out_dtype),
            "m": int(m), "n": int(n), "k": int(k),
            "milliseconds": _number(milliseconds), "tflops": _number(tflops), "cublas_ratio": _number(cublas_ratio),
            "source": source, "source_hash": hashlib.sha256(source.encode()).hexdigest(),
            "counters": json.dumps({name: int(value) for name, value in (counters or {}).items()}, sort_keys=True),
        }  # fmt: skip
        number = self.insert("climbs", row)
        return _climb({**row, "id": number}, saved=not self.problem)

    def climbs(self, *, archived: bool = False, **wanted: Any) -> list[SavedClimb]:
        """Climbs, oldest first. `wanted` narrows by column: step=3, dtype="float32", m=4096, kind="measured", …"""
        allowed = {item.name for item in fields(SavedClimb)} - {"counters", "saved"}
        if set(wanted) - allowed:
            raise ValueError(f"climbs have no column {', '.join(sorted(set(wanted) - allowed))}")
        where = ["archived IS NOT NULL" if archived else "archived IS NULL", *(f"{name} IS ?" for name in wanted)]
        rows = self.rows(f"SELECT * FROM climbs WHERE {' AND '.join(where)} ORDER BY id", tuple(wanted.values()))
        return [climb for row in rows if (climb := _climb(row, saved=not self.problem))]

    # ------------------------------------------------------------------------------------------------ answers

    def answer(self, question: str, answer: Any, truth: Any = None, step: int | None = None) -> SavedAnswer:
        """Keep the reader's answer (any JSON value) to a question; a later answer to the same question adds to it."""
        row = {
            "created": now(), "step": step, "question": question, "answer": json.dumps(answer),
            "truth": None if truth is None else json.dumps(truth),
        }  # fmt: skip
        self.insert("answers", row)
        return _answer(row)

    def answers(self, step: int | None = None, question: str | None = None) -> list[SavedAnswer]:
        """Answers, oldest first; of one step or one question if given."""
        where, values = ["archived IS NULL"], []
        for name, value in (("step", step), ("question", question)):
            if value is not None:
                where.append(f"{name} = ?")
                values.append(value)
        rows = self.rows(f"SELECT * FROM answers WHERE {' AND '.join(where)} ORDER BY id", tuple(values))
        return [answer for row in rows if (answer := _answer(row))]

    # -------------------------------------------------------------------------------------------------- reset

    def reset(self, step: int | None = None) -> int:
        """Archive all climbs and answers (of one step if given) and return how many. Nothing is deleted."""
        where = "archived IS NULL"
        values: tuple = ()
        if step is not None:
            where, values = where + " AND step = ?", (step,)

        def archive(db: sqlite3.Connection) -> int:
            change = f"SET archived = ?, reset = ? WHERE {where}"
            values_ = (now(), _last_reset(db) + 1, *values)
            return sum(db.execute(f"UPDATE {table} {change}", values_).rowcount for table in _TABLES)

        return self.run(archive)

    def restore(self) -> int:
        """Undo the last reset: take back what it archived, and return how many rows that was."""

        def take_back(db: sqlite3.Connection) -> int:
            last = (_last_reset(db),)
            return sum(db.execute(f"UPDATE {table} SET archived = NULL, reset = NULL WHERE reset = ?", last).rowcount for table in _TABLES)

        return self.run(take_back)


def _last_reset(db: sqlite3.Connection) -> int:
    """The number of the latest reset: resets are counted, because a clock can be set back. 0 if there is none."""
    return max(db.execute(f"SELECT coalesce(max(reset), 0) FROM {table}").fetchone()[0] for table in _TABLES)


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _climb(row: Mapping[str, Any] | sqlite3.Row, saved: bool) -> SavedClimb | None:
    """The climb of a row, or None for a row that was damaged where SQLite cannot see it."""
    values = dict(row)
    numbers = (values["tflops"] or 0, values["milliseconds"] or 0, values["cublas_ratio"] or 0)
    counters = _json(values["counters"])
    sound = (
        isinstance(counters, dict)
        and all(isinstance(values[name], int) and 0 <= values[name] < 1 << 31 for name in "mnk")
        and all(isinstance(number, int | float) and 0 <= number < math.inf for number in numbers)
        and values["kind"] in CLIMBS
        and {values["dtype"], values["out_dtype"]} <= ELEMENT_TYPES.keys()
    )
    if not sound:
        return None
    names = {item.name for item in fields(SavedClimb)}
    return SavedClimb(**{name: values[name] for name in names & values.keys()} | _placed(values) | {"counters": counters, "saved": saved})


def _answer(row: Mapping[str, Any] | sqlite3.Row) -> SavedAnswer | None:
    """The answer of a row, or None for a row that was damaged."""
    answer, truth = _json(row["answer"]), None if row["truth"] is None else _json(row["truth"])
    return None if _DAMAGED in (answer, truth) else SavedAnswer(row["question"], answer, truth, **_placed(row))


def _placed(row: Mapping[str, Any] | sqlite3.Row) -> dict[str, Any]:
    """When a row came about and of which step it is, as far as that can be read: a file can be edited by hand."""
    created, step = row["created"], row["step"]
    return {"created": created if is_moment(created) else "", "step": step if isinstance(step, int) else None}


def is_moment(text: Any) -> bool:
    """Is it a time as `now` writes it?"""
    try:
        moment = datetime.datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return False
    return moment.tzinfo is not None and 1 < moment.year < 9999


_DAMAGED = object()


def _json(text: str) -> Any:
    """The value that `text` states, or _DAMAGED."""
    try:
        return json.loads(text)
    except (ValueError, TypeError):
        return _DAMAGED


# ----------------------------------------------------------------------------------------- the reader's own store


@functools.cache
def _store(folder: Path) -> Store:
    return Store(folder)


def own() -> Store:
    """The store in the user's data folder, the same one for the whole session."""
    return _store(data_folder())


def climb(**row: Any) -> SavedClimb:
    """Save a climb in the reader's store; see `Store.climb`."""
    return own().climb(**row)


def climbs(**wanted: Any) -> list[SavedClimb]:
    """The reader's climbs; see `Store.climbs`."""
    return own().climbs(**wanted)


def answer(question: str, value: Any, truth: Any = None, step: int | None = None) -> SavedAnswer:
    """Keep the reader's answer to a question; see `Store.answer`."""
    return own().answer(question, value, truth, step)


def answers(step: int | None = None, question: str | None = None) -> list[SavedAnswer]:
    """The reader's answers; see `Store.answers`."""
    return own().answers(step, question)


def reset(step: int | None = None) -> int:
    """Archive the reader's climbs and answers; see `Store.reset`."""
    return own().reset(step)
