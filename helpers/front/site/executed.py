"""Lessons, executed: each at most once for what it and the course say, two at a time, in a home of their own.

What was executed is kept in the cache of the user. A build that was interrupted goes on where it was.
"""

from __future__ import annotations

import concurrent.futures
import functools
import hashlib
import importlib.metadata
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import nbformat
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from helpers.cache import Cache
from helpers.course.steps import ROOT
from helpers.errors import CourseError
from helpers.paths import cache_folder
from helpers.translation import ENGLISH, VARIABLE

from ..empty_home import empty_home
from ..own_kernel import own_kernel

HELPERS = ROOT / "helpers"
AT_ONCE = 2
SETUP = "from helpers.front.site import frames\nframes.start()"
_CACHE = Cache("site", 200)
_LIBRARIES = ("numpy", "matplotlib", "ipywidgets", "nbclient")
_SHOWS = ("magics.py", "widgets.py", "site/frames.py")  # the files of this folder's package that a lesson's output comes from


@functools.cache
def _course() -> str:
    """Changes with anything that a lesson's output may come from: the course's code and data, and the libraries."""
    found = hashlib.sha256(sys.version.encode())
    for name in _LIBRARIES:
        found.update(f"{name} {importlib.metadata.version(name)}".encode())
    for path in sorted([*HELPERS.rglob("*"), *(ROOT / "kernels").glob("*.cu")]):
        inside = path.relative_to(ROOT).as_posix()
        if inside.startswith("helpers/front/") and not inside.endswith(_SHOWS):
            continue
        if path.suffix in (".py", ".toml", ".json", ".cu", ".mplstyle"):
            found.update(inside.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def key(path: Path) -> str:
    """Under which the executed form of the notebook `path` is kept."""
    return hashlib.sha256(path.read_bytes() + _course().encode()).hexdigest()


def executed(paths: Sequence[Path], say: Callable[[str], None] = print) -> Iterator[tuple[Path, NotebookNode]]:
    """The notebooks with their outputs, in the order in which they are ready. Raises CourseError for one that does not run."""
    waiting = []
    for path in paths:
        kept = _CACHE.get(key(path))
        if kept is None:
            waiting.append(path)
        else:
            say(f"{path.name}: as executed before")
            yield path, nbformat.reads(kept.decode(), as_version=4)
    if not waiting:
        return
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        running = {pool.submit(_run, path): path for path in waiting}
        try:
            for number, done in enumerate(concurrent.futures.as_completed(running), 1):
                notebook, seconds = done.result()
                path = running[done]
                _CACHE.put(key(path), nbformat.writes(notebook).encode())
                say(f"{path.name}: {seconds:.0f} s, {number} of {len(waiting)}")
                yield path, notebook
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _run(path: Path) -> tuple[NotebookNode, float]:
    """Execute one notebook as a reader without progress would. Returns it, and the seconds that took."""
    start = time.monotonic()
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(SETUP))
    with empty_home(cache_folder("site-home")) as environment, own_kernel(notebook, path.parent, timeout=600) as client:
        path_of_modules = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        try:
            client.execute(env=environment | {"PYTHONPATH": path_of_modules, VARIABLE: ENGLISH})
        except CellExecutionError as error:
            raise CourseError(f"{path.name} did not run, so the site has no page of it: {error.ename}: {error.evalue}") from error
        except (CellTimeoutError, DeadKernelError) as error:
            raise CourseError(f"{path.name} did not run, so the site has no page of it: {str(error).splitlines()[0]}") from error
    del notebook.cells[0]
    return notebook, time.monotonic() - start
