"""Files that are read and written as a whole or not at all, by several processes at once."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

LARGEST = 1 << 30  # bytes: a file of ours that is larger is none of ours


def read_whole(path: Path) -> bytes:
    """What the file at `path` holds. Raises OSError, also for what is no file: a pipe would wait for ever, a device never end."""
    # Without O_NONBLOCK opening a pipe waits for somebody who writes; Windows has neither it nor such pipes.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    found = os.fstat(handle)
    wrong = ""
    if stat.S_ISDIR(found.st_mode):
        wrong = "it is a folder"
    elif not stat.S_ISREG(found.st_mode):
        wrong = "it is no file that can be read to its end"
    elif found.st_size > LARGEST:
        wrong = "it has more than a gigabyte"
    if wrong:
        os.close(handle)
        raise OSError(errno.EINVAL, wrong, str(path))
    with os.fdopen(handle, "rb") as file:
        return file.read()


@contextlib.contextmanager
def one_at_a_time(path: Path, seconds: float) -> Iterator[None]:
    """Of all processes that use the lock file `path`, one runs its block at a time. The lock is free again when its process ends,
    however it ends. Where the file system has no locks, or there can be no such file, nobody waits.

    Raises OSError after `seconds` of waiting.
    """
    import sqlite3  # here: the machine is also imported where Python comes without it

    turn = sqlite3.connect(":memory:")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file() or not path.exists():  # SQLite would wait for what a pipe says
            turn = sqlite3.connect(path, timeout=seconds, isolation_level=None)
        turn.execute("BEGIN EXCLUSIVE")
    except (sqlite3.Error, OSError) as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
            turn.close()
            raise TimeoutError(errno.EBUSY, f"another process of the course has held it for {seconds:.0f} seconds", str(path)) from None
    with contextlib.closing(turn):
        yield


def write_export(path: Path, data: bytes, begins: bytes, private: bool = False) -> None:
    """Put `data` where the reader said, over nothing but an empty file or an earlier one of the kind. begins: how those begin. Raises
    OSError, for what is there as well."""
    try:
        before = read_whole(path)
    except FileNotFoundError:
        before = b""
    if before and not before.startswith(begins):
        raise FileExistsError(errno.EEXIST, "what is there is something else: name another file, or remove it first", str(path))
    write_whole(path, data, private=private)


def write_whole(path: Path, data: bytes, durable: bool = True, private: bool = False) -> None:
    """Put `data` at `path`, making folders: who reads it sees all or nothing of it. Raises OSError.

    durable: also after the machine lost its power; costs a wait for the disk. private: for its owner alone; otherwise the umask says who
    may read it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.parent / f".{secrets.token_hex(8)}.part"
    try:
        with open(made, "xb", opener=lambda name, flags: os.open(name, flags, 0o600 if private else 0o666)) as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(made, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(made)
        raise
