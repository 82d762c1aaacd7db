"""Shared by all tests: no test touches the reader's own progress or cache."""

from __future__ import annotations

import functools
import gc
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.run.ahead import PROCESSES
from tests.cases import Part

gc.set_threshold(10_000, 10, 10)  # as in a notebook (helpers.front.magics)


def pytest_addoption(parser) -> None:
    parser.addoption("--cases", metavar="N/M", help="of each table of cases this part, such as 1/4; next/4 is the one whose turn it is")


def pytest_configure(config) -> None:
    if config.option.cases:  # workers are told which part it is: its turn may end while they start
        try:
            config.option.cases = str(Part(config.option.cases))
        except ValueError as error:
            raise pytest.UsageError(str(error)) from None


def pytest_report_header(config) -> str | None:
    part = config.option.cases
    return (
        part and f"cases: part {part} of each table of cases and of what is slow, and every other test; `course test --all` runs everything"
    )


def pytest_collection_modifyitems(config, items) -> None:
    if not config.option.cases:
        return
    slow = {item.nodeid for item in items if item.get_closest_marker("slow")}
    taken = Part(config.option.cases).takes([item.nodeid for item in items], slow)
    config.hook.pytest_deselected(items=[item for item, take in zip(items, taken, strict=True) if not take])
    items[:] = [item for item, take in zip(items, taken, strict=True) if take]


def pytest_collection_finish() -> None:
    """Tests and modules stay until the end: the collector need not look at them again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def make_home(tmp_path_factory) -> Callable[[Path], Path]:
    """Makes a folder for $GEMM_LADDER_HOME: progress of its own, and the cache that all workers of this test session share."""
    base = tmp_path_factory.getbasetemp()
    cache = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    cache.mkdir(exist_ok=True)

    def make(folder: Path) -> Path:
        folder.mkdir()
        (folder / "cache").symlink_to(cache, target_is_directory=True)
        return folder

    return make


@pytest.fixture(autouse=True, scope="session")
def _environment(tmp_path_factory, make_home):
    """A data folder for this worker; compiled kernels are shared by all tests. A check has the processor of its worker alone: the other one
    has work of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEMM_LADDER_HOME", str(make_home(tmp_path_factory.mktemp("worker") / "home")))
        patch.setenv(PROCESSES, "1")
        yield


@pytest.fixture(autouse=True, scope="session")
def _interrupts():
    """Ctrl-C raises KeyboardInterrupt, as in a notebook, also where the tests run as a background job, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def pytest_xdist_make_scheduler(config, log):
    """Under xdist, the tests of a file that share what is made once for the file (a page in the browser, a graded class) go to one
    worker; all others to the next free one. The files come first, the one with most tests before the others."""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return file if _shares(config.rootpath / file) else nodeid

    return Together(config, log)


@functools.cache
def _shares(path: Path) -> bool:
    """Do the tests of this file share a fixture of theirs, or one of the browser's?"""
    return path.parent.name == "browser" or 'scope="module"' in path.read_text(encoding="utf-8")
