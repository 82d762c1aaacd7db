"""One SQLite file that is never lost: what `store.py` keeps the reader's work in.

Each write is one immediate transaction, so that two notebooks may write at once. An update of the course migrates the file
and keeps a copy from before. A damaged file is set aside, and what can be read of it goes into a new one. Where the file
cannot be written, the session goes on in memory, from what the file holds. Each of these is said once, in a sentence.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from os.path import exists, isfile  # False where a path cannot be, as one that is too long
from pathlib import Path
from typing import Any

from helpers.files import one_at_a_time

BUSY_SECONDS = 15.0  # how long a write waits for another notebook's
_BESIDE = ("-wal", "-shm", "-journal")  # what SQLite keeps beside a file: it belongs to that file alone
_NEWER = "it was written by a newer version of the course"
_PROBED = 20_000  # row numbers that are tried one by one between two that can be read


class Database:
    """A file with a schema. Made on first use; use it from any thread.

    problem: a sentence if this session cannot be saved, else "". announce: called with each sentence for the reader; by
    default they are printed. migrations: one script per schema version; the first makes version 1 of an empty file.
    """

    def __init__(self, path: Path, migrations: Sequence[str], announce: Callable[[str], None] | None = None):
        self.path = path
        self.problem = ""
        self._announce = announce or (lambda sentence: print(sentence, file=sys.stderr))
        self._migrations = tuple(migrations)
        self._lock = threading.RLock()
        self._memory: sqlite3.Connection | None = None
        self._sound = False  # has this session looked?

    # ------------------------------------------------------------------------------------------------ reading and writing

    def insert(self, table: str, row: Mapping[str, Any]) -> int:
        """Add a row and return its number."""
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        statement = f"INSERT INTO {table} ({names}) VALUES ({marks})"
        return self.run(lambda db: db.execute(statement, tuple(row.values())).lastrowid)

    def rows(self, query: str, values: tuple = ()) -> list[sqlite3.Row]:
        """What a SELECT finds. Looking makes no file."""
        if self._memory is None and not exists(self.path) and all(parent.is_dir() for parent in self.path.parents if exists(parent)):
            return []
        return self.run(lambda db: db.execute(query, values).fetchall(), write=False)

    def run(self, work: Callable[[sqlite3.Connection], Any], write: bool = True) -> Any:
        """work(connection) inside one transaction; if the file cannot be used, in memory from then on."""
        with self._lock:
            for mended in (False, True):
                if self._memory is not None:
                    break
                try:
                    return self._run_on_file(work, write)
                except (sqlite3.DatabaseError, OSError) as error:
                    # The other database errors are mistakes of ours: they must be seen.
                    if isinstance(error, sqlite3.DatabaseError) and type(error) not in (
                        sqlite3.OperationalError, sqlite3.DatabaseError
                    ):  # fmt: skip
                        raise
                    if mended or not _damaged(error) or not self._mend():
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
        if self.path.exists() and not self.path.is_file():  # SQLite would wait for what a pipe says
            raise sqlite3.OperationalError("it is no file")
        db = _connect(self.path)
        try:
            if not self._sound:
                _check(db)
            if _schema(db) != len(self._migrations):
                self._migrate(db)
            # Not write-ahead: after each write all of it is in the one file, which a full disk or a read-only folder still shows.
            if db.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
                db.execute("PRAGMA journal_mode = DELETE").fetchone()
            db.execute("PRAGMA synchronous = FULL")
            self._sound = True
        except BaseException:
            db.close()
            raise
        return db

    def _migrate(self, db: sqlite3.Connection) -> None:
        """Bring the file to this version's schema, keeping a copy of what it was. One notebook does it, others wait."""
        found = _schema(db)
        if found > len(self._migrations):
            raise sqlite3.DatabaseError(f"{_NEWER} (schema {found})")
        db.execute("BEGIN IMMEDIATE")
        try:
            if found and found == _schema(db):  # else another notebook has done it meanwhile
                self._keep_a_copy(self.path.with_suffix(f".v{found}.sqlite3"))
            self._apply(db)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:  # a full disk has rolled it back already
                db.execute("ROLLBACK")
            raise

    def _keep_a_copy(self, copy: Path) -> None:
        """What the file is now, at `copy`: all of it or nothing, and never in the place of an older copy. Nobody may be writing."""
        if copy.exists():
            return
        handle, made = tempfile.mkstemp(prefix=".copy", dir=copy.parent)
        os.close(handle)
        try:
            with contextlib.closing(_connect(self.path)) as source, contextlib.closing(sqlite3.connect(made)) as target:
                source.backup(target)
            os.replace(made, copy)
        finally:
            Path(made).unlink(missing_ok=True)

    def _apply(self, db: sqlite3.Connection, until: int | None = None) -> None:
        """The migrations from the schema that `db` has to version `until`, all of them by default."""
        for version in range(_schema(db), len(self._migrations) if until is None else until):
            for statement in _statements(self._migrations[version]):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {version + 1}")

    # ------------------------------------------------------------------------------------------------- when it is damaged

    def _mend(self) -> bool:
        """Set a damaged file aside and put what can be read of it in its place; False where that is not possible."""
        try:
            # One notebook does it; the others wait, and find a sound file.
            with one_at_a_time(self.path.with_suffix(".mending"), BUSY_SECONDS):
                try:
                    with contextlib.closing(_connect(self.path)) as db:
                        _check(db)
                    return True
                except sqlite3.DatabaseError as error:
                    if not _damaged(error):
                        return False
                handle, made = tempfile.mkstemp(prefix=".mended", dir=self.path.parent)
                os.close(handle)
                try:
                    with contextlib.closing(_connect(made)) as target:
                        saved = self._salvage(target)
                    aside = self._set_aside()
                    os.replace(made, self.path)
                finally:
                    Path(made).unlink(missing_ok=True)
        except (sqlite3.DatabaseError, OSError):
            return False
        self._announce(
            f"The file of your progress was damaged. {saved} of its rows could be read, and you go on with them. "
            f"The damaged file is kept as {aside}."
        )
        return True

    def _set_aside(self) -> Path:
        """Copy the file and what belongs to it to a free name, and take away what belongs to it."""
        number = 1
        while (aside := self.path.with_suffix(f".damaged{number}.sqlite3")).exists():
            number += 1
        shutil.copyfile(self.path, aside)
        for end in _BESIDE:
            beside = Path(f"{self.path}{end}")
            if beside.exists():
                shutil.copyfile(beside, f"{aside}{end}")
                beside.unlink()
        return aside

    def _salvage(self, target: sqlite3.Connection) -> int:
        """Make the schema in the empty `target`, with every row of the file that can be read; how many those are."""
        saved = 0
        target.execute("BEGIN")
        with contextlib.closing(self._readable()) as old:
            self._apply(target, self._version_of(old))
            for table in [row["name"] for row in target.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]:
                columns = {row["name"] for row in target.execute(f"PRAGMA table_info({table})")}
                for row in _readable_rows(old, table):
                    kept = {name: row[name] for name in columns.intersection(row.keys())}
                    with contextlib.suppress(sqlite3.Error):  # a row with garbage in it breaks a constraint
                        target.execute(f"INSERT INTO {table} ({', '.join(kept)}) VALUES ({', '.join('?' * len(kept))})", [*kept.values()])
                        saved += 1
        self._apply(target)
        target.execute("COMMIT")
        return saved

    def _version_of(self, old: sqlite3.Connection) -> int:
        """The schema to read `old` with: its own, or this version's where it does not say one that is known."""
        with contextlib.suppress(sqlite3.DatabaseError):
            if 0 < (version := _schema(old)) <= len(self._migrations):
                return version
        return len(self._migrations)

    def _readable(self) -> sqlite3.Connection:
        """The file, opened to read and nothing else; an empty one where that is not possible."""
        if not isfile(self.path):
            return _connect(":memory:")
        for options in ("mode=ro", "mode=ro&immutable=1"):  # the second sees no write-ahead log, and needs nothing but the file
            with contextlib.suppress(sqlite3.OperationalError):
                old = _connect(f"{self.path.absolute().as_uri()}?{options}", read_only=True)
                try:
                    old.execute("SELECT count(*) FROM sqlite_master").fetchone()
                except sqlite3.DatabaseError as error:
                    if not _damaged(error):
                        old.close()
                        raise
                return old
        return _connect(":memory:")

    def _go_on_in_memory(self, error: Exception) -> None:
        """From here on this session is kept in memory, starting from what can still be read."""
        self._memory = _connect(":memory:")
        self._salvage(self._memory)
        cure = (
            "update the course"
            if _NEWER in str(error)
            else "make room or choose another folder with the environment variable GEMM_LADDER_HOME"
        )
        self.problem = (
            f"Your progress cannot be saved: {self.path} {_reason(error)}. The lessons work all the same, and what "
            f"you do now is kept until the notebook's kernel stops. To save it, {cure}, and restart the kernel."
        )
        self._announce(self.problem)


def _connect(place: Path | str, read_only: bool = False) -> sqlite3.Connection:
    timeout = min(BUSY_SECONDS, 1.0) if read_only else BUSY_SECONDS
    db = sqlite3.connect(place, timeout=timeout, isolation_level=None, check_same_thread=False, uri=read_only)
    db.row_factory = sqlite3.Row
    db.text_factory = lambda data: data.decode(errors="replace")  # one damaged text is not the end of a table
    return db


def _check(db: sqlite3.Connection) -> None:
    """Raises sqlite3.DatabaseError if the file is damaged."""
    found = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise sqlite3.DatabaseError(f"malformed: {found}")


def _damaged(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) or 0
    return code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or "malformed" in str(error)


def _schema(db: sqlite3.Connection) -> int:
    return db.execute("PRAGMA user_version").fetchone()[0]


def _readable_rows(db: sqlite3.Connection, table: str) -> list[sqlite3.Row]:
    """Every row that can be read, in order: from the front, from the back, and one by one around what is damaged."""
    found: dict[int, sqlite3.Row] = {}

    def read(query: str, *values: Any) -> bool:
        try:
            for row in db.execute(f"SELECT rowid AS number_of_row, * FROM {table} {query}", values):
                found[row["number_of_row"]] = row
        except sqlite3.Error:
            return False
        return True

    if not read("ORDER BY rowid"):
        front = max(found, default=0)
        read("ORDER BY rowid DESC")
        behind = min((number for number in found if number > front), default=front + _PROBED)
        for number in range(front + 1, min(behind, front + _PROBED)):
            read("WHERE rowid = ?", number)
    return [found[number] for number in sorted(found)]


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
