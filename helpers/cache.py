"""What can always be made again, kept on disk: compiled kernels, machine code. Losing any of it costs time and nothing else.

Several notebooks use one cache at once, disks fill up, machines lose their power: an entry is checked when it is read, and
one that is not what was written is as good as none. Users of one machine never share a folder that they write to: what is in it is
run. They share one that is read only, and each has an own besides.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from pathlib import Path

from .files import read_whole, write_whole
from .paths import cache_folder, shared_cache_folder

_SUM = hashlib.sha256().digest_size
_ABANDONED = 3600.0  # seconds after which half a file belongs to a process that has died


class Cache:
    """Bytes by key, in a folder of their own. entries: how many are kept; those that nobody wanted for longest go first."""

    def __init__(self, name: str, entries: int):
        self.name, self.entries = name, entries

    def get(self, key: str) -> bytes | None:
        """What was put under `key`, here or into the cache that all share; None if it is missing or damaged."""
        path = self._path(key)
        data = None if path is None else _checked(key, path)
        if data is not None and path is not None:
            with contextlib.suppress(OSError):  # evicted meanwhile, or a read-only disk
                os.utime(path)
            return data
        shared = shared_cache_folder(self.name)
        return None if shared is None else _checked(key, shared / _file_name(key))

    def put(self, key: str, data: bytes) -> None:
        """Keep `data` under `key`. A full or read-only disk only costs the cache."""
        path = self._path(key)
        if path is None:
            return
        with contextlib.suppress(OSError):
            write_whole(path, _sum(key, data) + data, durable=False, private=True)
            self._trim(path.parent)

    def _path(self, key: str) -> Path | None:
        folder = cache_folder(self.name)
        return folder / _file_name(key) if folder else None

    def _trim(self, folder: Path) -> None:
        """Drop the entries that were not used for longest, and halves that nobody will finish. Others may be doing the same.

        A tenth more than has to go, so that the next entries find room without a look at the age of all.
        """
        names = os.listdir(folder)
        if len(names) <= self.entries and not any(name.endswith(".part") for name in names):
            return
        found = []
        for item in os.scandir(folder):
            with contextlib.suppress(OSError):  # gone meanwhile
                found.append((item.stat().st_mtime, item.path))
        halves = {path for changed, path in found if path.endswith(".part")}
        whole = sorted(entry for entry in found if entry[1] not in halves)
        too_many = len(whole) - self.entries
        old = [path for _, path in whole[: too_many + self.entries // 10]] if too_many > 0 else []
        old += [path for changed, path in found if path in halves and changed < time.time() - _ABANDONED]
        for path in old:
            with contextlib.suppress(OSError):
                os.unlink(path)


def _file_name(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:40]


def _checked(key: str, path: Path) -> bytes | None:
    """What the entry at `path` holds; None if it is missing or damaged."""
    try:
        raw = read_whole(path)
    except OSError:
        return None
    data = raw[_SUM:]
    return data if raw[:_SUM] == _sum(key, data) else None


def _sum(key: str, data: bytes) -> bytes:
    """Checksum of an entry; the key is in it, so that an entry under another's name is damaged too."""
    return hashlib.sha256(hashlib.sha256(key.encode()).digest() + data).digest()
