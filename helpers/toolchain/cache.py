"""Compiled kernels on disk: files named by a hash of everything that matters. A full or read-only disk only costs the cache."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from helpers.paths import cache_folder

_ENTRIES = 500  # about 50 MB; the oldest go first


def path(key: str, suffix: str) -> Path | None:
    """The file of an entry, or None where there is no folder for it."""
    folder = cache_folder("kernels")
    return folder / f"{key}{suffix}" if folder and key else None


def write(target: Path, data: bytes) -> None:
    """Write a file at once or not at all, so that two notebooks never see half of it; drop the oldest if there are many."""
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as file:
            file.write(data)
        os.replace(file.name, target)
    except OSError:
        return
    entries = sorted(target.parent.iterdir(), key=lambda item: item.stat().st_mtime if item.exists() else 0)
    for old in entries[: max(0, len(entries) - _ENTRIES)]:
        old.unlink(missing_ok=True)
