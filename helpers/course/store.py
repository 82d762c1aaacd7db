"""The reader's progress: every climb and every answer to a prediction question, as rows of one SQLite file.

The file lies in the user's data folder. Rows are only ever added: a reset marks them as archived, an update of the
course migrates the file and keeps a copy from before. Two notebooks may write at once (each write is one immediate
transaction, and the file is in write-ahead mode). Where the folder cannot be written, the session goes on in memory and
says so once.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import hashlib
import json
import sqlite3
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from helpers.paths import data_folder

FILE = "progress.sqlite3"
BUSY_SECONDS = 15.0  # how long a write waits for another notebook's

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
)


_TABLES = ("climbs", "answers")


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
    saved: bool = True


@dataclass(frozen=True)
class SavedAnswer:
    """What the reader answered to a prediction question, and the truth if it has been seen."""

    question: str
    answer: Any
    truth: Any = None
    step: int | None = None
    created: str = ""


class Store:
    """The file of one reader. Made on first use; use it from any thread.

    problem: a sentence if this session cannot be saved, else "". announce: called once with that sentence; by default
    it is printed.
    """

    def __init__(
        self,
        folder: Path | None = None,
        announce: Callable[[str], None] | None = None,
        migrations: Sequence[str] = MIGRATIONS,
    ):
        self.path = Path(folder if folder is not None else data_folder()) / FILE
        self.problem = ""
        self._announce = announce or (lambda sentence: print(sentence, file=sys.stderr))
        self._migrations = tuple(migrations)
        self._lock = threading.RLock()
        self._memory: sqlite3.Connection | None = None

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
        step: int | None = None,
        milliseconds: float | None = None,
        tflops: float | None = None,
        cublas_ratio: float | None = None,
        source: str = "",
        counters: Mapping[str, int] | None = None,
    ) -> SavedClimb:
        """Save one climb and return it. tflops follows from milliseconds if it is not given.

        Raises ValueError for a kind that is none of `CLIMBS`, or a measured climb without a time.
        """
        if kind not in CLIMBS:
            raise ValueError(f"kind={kind!r} is none of {', '.join(CLIMBS)}")
        if kind == MEASURED and milliseconds is None:
            raise ValueError("a measured climb has a time")
        if tflops is None and milliseconds:
            tflops = 2 * m * n * k / milliseconds / 1e9
        row = {
            "created": _now(), "kind": kind, "step": step, "label": label, "device": device, "dtype": dtype,
            "m": int(m), "n": int(n), "k": int(k),
            "milliseconds": _number(milliseconds), "tflops": _number(tflops), "cublas_ratio": _number(cublas_ratio),
            "source": source, "source_hash": hashlib.sha256(source.encode()).hexdigest(),
            "counters": json.dumps({name: int(value) for name, value in (counters or {}).items()}, sort_keys=True),
        }  # fmt: skip
        number = self._insert("climbs", row)
        return _climb({**row, "id": number}, saved=not self.problem)

    def climbs(self, *, archived: bool = False, **wanted: Any) -> list[SavedClimb]:
        """Climbs, oldest first. `wanted` narrows by column: step=3, dtype="float32", m=4096, kind="measured", …"""
        allowed = {item.name for item in fields(SavedClimb)} - {"counters", "saved"}
        if set(wanted) - allowed:
            raise ValueError(f"climbs have no column {', '.join(sorted(set(wanted) - allowed))}")
        where = ["archived IS NOT NULL" if archived else "archived IS NULL", *(f"{name} IS ?" for name in wanted)]
        rows = self._rows(f"SELECT * FROM climbs WHERE {' AND '.join(where)} ORDER BY id", tuple(wanted.values()))
        return [_climb(row, saved=not self.problem) for row in rows]

    # ------------------------------------------------------------------------------------------------ answers

    def answer(self, question: str, answer: Any, truth: Any = None, step: int | None = None) -> SavedAnswer:
        """Keep the reader's answer (any JSON value) to a question; a later answer to the same question adds to it."""
        row = {
            "created": _now(), "step": step, "question": question, "answer": json.dumps(answer),
            "truth": None if truth is None else json.dumps(truth),
        }  # fmt: skip
        self._insert("answers", row)
        return _answer(row)

    def answers(self, step: int | None = None, question: str | None = None) -> list[SavedAnswer]:
        """Answers, oldest first; of one step or one question if given."""
        where, values = ["archived IS NULL"], []
        for name, value in (("step", step), ("question", question)):
            if value is not None:
                where.append(f"{name} = ?")
                values.append(value)
        rows = self._rows(f"SELECT * FROM answers WHERE {' AND '.join(where)} ORDER BY id", tuple(values))
        return [_answer(row) for row in rows]

    # -------------------------------------------------------------------------------------------------- reset

    def reset(self, step: int | None = None) -> int:
        """Archive all climbs and answers (of one step if given) and return how many. Nothing is deleted."""
        where, values = "archived IS NULL", (_now(),)
        if step is not None:
            where, values = where + " AND step = ?", (*values, step)

        def archive(db: sqlite3.Connection) -> int:
            return sum(db.execute(f"UPDATE {table} SET archived = ? WHERE {where}", values).rowcount for table in _TABLES)

        return self._run(archive)

    def restore(self) -> int:
        """Undo the last reset: take back what it archived, and return how many rows that was."""

        def take_back(db: sqlite3.Connection) -> int:
            last = max(
                filter(None, (db.execute(f"SELECT max(archived) FROM {table}").fetchone()[0] for table in _TABLES)),
                default=None,
            )
            return sum(db.execute(f"UPDATE {table} SET archived = NULL WHERE archived = ?", (last,)).rowcount for table in _TABLES)

        return self._run(take_back)

    # ------------------------------------------------------------------------------------------ under the bonnet

    def _insert(self, table: str, row: Mapping[str, Any]) -> int:
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        statement = f"INSERT INTO {table} ({names}) VALUES ({marks})"
        return self._run(lambda db: db.execute(statement, tuple(row.values())).lastrowid)

    def _rows(self, query: str, values: tuple) -> list[sqlite3.Row]:
        if self._memory is None and not self.path.exists():
            return []  # nothing saved yet: looking makes no file
        return self._run(lambda db: db.execute(query, values).fetchall(), write=False)

    def _run(self, work: Callable[[sqlite3.Connection], Any], write: bool = True) -> Any:
        """work(connection) inside one transaction; if the file cannot be used, in memory from then on."""
        with self._lock:
            if self._memory is None:
                try:
                    return self._run_on_file(work, write)
                except (sqlite3.DatabaseError, OSError) as error:
                    # The other database errors are mistakes of ours: they must be seen.
                    if isinstance(error, sqlite3.DatabaseError) and type(error) not in (
                        sqlite3.OperationalError, sqlite3.DatabaseError
                    ):  # fmt: skip
                        raise
                    self._go_on_in_memory(error)
            return work(self._memory)

    def _run_on_file(self, work: Callable[[sqlite3.Connection], Any], write: bool) -> Any:
        with contextlib.closing(self._open()) as db:
            db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                result = work(db)
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:  # a full disk has rolled it back already
                    db.execute("ROLLBACK")
                raise
            return result

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            db.row_factory = sqlite3.Row
            if _schema(db) != len(self._migrations):
                self._migrate(db)
            # Write-ahead mode lets one notebook read while another writes; file systems without it keep the default.
            db.execute("PRAGMA journal_mode = WAL").fetchone()
            db.execute("PRAGMA synchronous = FULL")
        except BaseException:
            db.close()
            raise
        return db

    def _migrate(self, db: sqlite3.Connection) -> None:
        """Bring the file to this version's schema, keeping a copy of what it was. One notebook does it, others wait."""
        found = _schema(db)
        if found > len(self._migrations):
            raise sqlite3.DatabaseError(f"it was written by a newer version of the course (schema {found})")
        if found:
            copy = self.path.with_suffix(f".v{found}.sqlite3")
            if not copy.exists():
                with contextlib.closing(sqlite3.connect(copy)) as target:
                    db.backup(target)
        db.execute("BEGIN IMMEDIATE")
        try:
            for version in range(_schema(db), len(self._migrations)):
                for statement in _statements(self._migrations[version]):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {version + 1}")
            db.execute("COMMIT")
        except BaseException:
            db.execute("ROLLBACK")
            raise

    def _go_on_in_memory(self, error: Exception) -> None:
        """From here on this session is kept in memory, starting from what can still be read."""
        memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        memory.row_factory = sqlite3.Row
        with contextlib.suppress(sqlite3.Error):  # an unreadable file has nothing to start from
            with contextlib.closing(sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as old:
                if _schema(old) == len(self._migrations):
                    old.backup(memory)
        for version in range(_schema(memory), len(self._migrations)):
            memory.executescript(self._migrations[version])
        self._memory = memory
        self.problem = (
            f"Your progress cannot be saved: {self.path} {_reason(error)}. The lessons work all the same, and what "
            "you do now is kept until the notebook's kernel stops. To save it, make room or choose another folder with "
            "the environment variable GEMM_LADDER_HOME, and restart the kernel."
        )
        self._announce(self.problem)


def _schema(db: sqlite3.Connection) -> int:
    return db.execute("PRAGMA user_version").fetchone()[0]


def _statements(script: str) -> list[str]:
    """A script's statements, one by one: `executescript` would commit between them."""
    return [statement for statement in (part.strip() for part in script.split(";")) if statement]


def _reason(error: Exception) -> str:
    text = str(error)
    if isinstance(error, OSError):
        return f"cannot be made ({error.strerror or text})"
    if "readonly" in text or "unable to open" in text:
        return "cannot be written (no permission)"
    if "full" in text:
        return "cannot grow, the disk is full"
    if "locked" in text:
        return f"has been held by another program for {BUSY_SECONDS:.0f} seconds"
    return f"cannot be used ({text})"


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _climb(row: Mapping[str, Any] | sqlite3.Row, saved: bool) -> SavedClimb:
    values = dict(row)
    values.pop("archived", None)
    return SavedClimb(**{**values, "counters": json.loads(values["counters"]), "saved": saved})


def _answer(row: Mapping[str, Any] | sqlite3.Row) -> SavedAnswer:
    truth = row["truth"]
    return SavedAnswer(
        row["question"],
        json.loads(row["answer"]),
        None if truth is None else json.loads(truth),
        row["step"],
        row["created"],
    )


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
