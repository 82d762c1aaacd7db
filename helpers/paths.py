"""Where the course keeps what belongs to the user: progress (never thrown away) and caches (always replaceable).

$GEMM_LADDER_HOME overrides both; otherwise each system's own places are used. $GEMM_LADDER_SHARED_CACHE is a folder of caches that
whoever runs a class has filled for all. A relative one is meant from where the first process is started.
"""

from __future__ import annotations

import os
import stat
import warnings
from pathlib import Path

_APP = "gemm-ladder"
_HOME, _SHARED = "GEMM_LADDER_HOME", "GEMM_LADDER_SHARED_CACHE"


def _named(variable: str) -> Path | None:
    """The folder that the environment names. Relative ones are made absolute there, so that they stay the same folders in this process
    and in those that it starts: a notebook's kernel runs in another one than `course lab`."""
    for name in (_HOME, _SHARED):
        folder = os.environ.get(name)
        if folder and not Path(folder).is_absolute():
            os.environ[name] = os.path.abspath(folder)
    folder = os.environ.get(variable)
    return Path(folder) if folder else None


def data_folder() -> Path:
    """Folder of the reader's progress. It may not exist or be read-only: whoever writes says so."""
    home = _named(_HOME)
    if home:
        return home
    import platformdirs  # here: the machine runs where there is nothing but NumPy

    return Path(platformdirs.user_data_dir(_APP, appauthor=False))


def cache_folder(name: str) -> Path | None:
    """Folder of one cache, made if need be; None if it cannot be made (then nothing is cached)."""
    home = _named(_HOME)
    if home:
        root = home / "cache"
    else:
        import platformdirs

        root = Path(platformdirs.user_cache_dir(_APP, appauthor=False))
    try:
        (root / name).mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return root / name


def shared_cache_folder(name: str) -> Path | None:
    """Folder of one cache that is read by many users and written by none of them; None if there is none, or others than its owner may
    write to it, which is said."""
    root = _named(_SHARED)
    if root is None:
        return None
    folder = root / name
    try:
        mode = os.stat(root).st_mode
        if folder.exists():
            mode |= os.stat(folder).st_mode
    except OSError as error:
        _say_unused(f"it cannot be read ({error.strerror})")
        return None
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        _say_unused("others than its owner may write to it, and what they put there would be run by all (chmod -R go-w)")
        return None
    return folder if folder.is_dir() else None


def _say_unused(why: str) -> None:
    """Say once that the shared cache is not used, and why."""
    warnings.warn(f"{_SHARED}={os.environ[_SHARED]} is not used: {why}.", stacklevel=3)
