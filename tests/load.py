"""A class on one machine: so many learners do a lesson at once, each in a kernel of their own. What it takes, and how long they wait.

    python -m tests.load --learners 8 --minutes 8 --shared-cache FOLDER

A learner runs every code cell in order. Before each the learner thinks: a time drawn from a log-normal distribution (sigma 0.8, so that
one in twenty takes more than three times the median), whose mean makes the lesson last --minutes. Kernels are edited first (a comment),
so that they are compiled and made into native code as a learner's are. Every learner has a home of their own; what the class shares is
the cache of --shared-cache. Not part of the suite.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
import psutil
from jupyter_client.manager import KernelManager

from helpers.front.lab import environment
from tests import ROOT

SIGMA = 0.8
SAMPLE_SECONDS = 2.0


@dataclass
class Learner:
    """One learner's kernel: what it took (bytes, seconds), and how long each cell took, by its kind."""

    number: int
    home: Path
    waited: dict[str, list[float]] = field(default_factory=dict)
    memory: list[int] = field(default_factory=list)
    cpu: dict[int, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def sample(self, process: psutil.Process) -> None:
        """Look at the kernel and what it started: memory as shares of what processes have in common (PSS)."""
        with contextlib.suppress(psutil.Error):
            family = [process, *process.children(recursive=True)]
            self.memory.append(sum(one.memory_full_info().pss for one in family))
            for one in family:
                self.cpu[one.pid] = sum(one.cpu_times()[:2])


def kind(source: str) -> str:
    """What a learner waits for in a cell."""
    if source.startswith("%%cuda"):
        return "kernel"
    if ".check(" in source:
        return "check"
    return "picture" if ".show(" in source or "views." in source or "widgets." in source else "other"


def study(learner: Learner, cells: list[str], think: float, shared: str, end: float) -> None:
    """Do the lesson. think: mean seconds before a cell. end: when to stop, done or not (time.monotonic)."""
    chance = random.Random(learner.number)
    variables = {**os.environ, "GEMM_LADDER_HOME": str(learner.home), "GEMM_LADDER_NO_GPU": "1", "PYTHONPATH": str(ROOT)}
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(env=environment(variables) | ({"GEMM_LADDER_SHARED_CACHE": shared} if shared else {}), cwd=str(learner.home))
    client = manager.blocking_client()
    client.start_channels()
    process = psutil.Process(manager.provisioner.pid)
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(SAMPLE_SECONDS):
            learner.sample(process)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        client.wait_for_ready(timeout=120)
        for source in cells:
            time.sleep(max(0.0, min(chance.lognormvariate(0, SIGMA) * think / 2.718281828 ** (SIGMA**2 / 2), end - time.monotonic())))
            if time.monotonic() >= end:
                break
            text = source + f"\n// edited by learner {learner.number}" if source.startswith("%%cuda") else source
            start = time.monotonic()
            answer = client.execute_interactive(text, timeout=600, output_hook=lambda message: None, store_history=True)
            learner.waited.setdefault(kind(source), []).append(time.monotonic() - start)
            if answer["content"]["status"] == "error":
                learner.failed.append(f"{source.splitlines()[0]}: {answer['content']['evalue'][:80]}")
    finally:
        learner.sample(process)
        stop.set()
        watching.join()
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def report(learners: list[Learner], minutes: float, cells: int) -> dict:
    """The figures: memory in MB, times in seconds."""
    waited: dict[str, list[float]] = {}
    for learner in learners:
        for name, values in learner.waited.items():
            waited.setdefault(name, []).extend(values)
    done = sum(map(len, waited.values()))
    cpu = [sum(learner.cpu.values()) for learner in learners]
    lessons = done / cells
    return {
        "learners": len(learners),
        "cells": f"{done} of {cells * len(learners)}",
        "minutes": round(minutes, 2),
        "memory_mb": {"median": round(statistics.median(statistics.median(item.memory) for item in learners) / 1e6),
                      "most": round(max(max(item.memory) for item in learners) / 1e6)},
        "cpu_seconds_per_lesson": round(sum(cpu) / lessons, 1),
        "busy_cores": round(sum(cpu) / (60 * minutes), 2),
        "waited": {name: {"cells": len(values), "p50": round(_share(values, 0.5), 2), "p95": round(_share(values, 0.95), 2),
                          "most": round(max(values), 2)} for name, values in sorted(waited.items())},
        "failed": sorted({text for learner in learners for text in learner.failed}),
    }  # fmt: skip


def _share(values: list[float], share: float) -> float:
    """The value that this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--learners", type=int, default=8)
    options.add_argument("--minutes", type=float, default=8.0, help="that the lesson lasts, think times included (default: %(default)s)")
    options.add_argument("--lesson", default="05_thread_tile_2d")
    options.add_argument("--shared-cache", default="", help="folder of the cache that the class shares")
    given = options.parse_args()
    notebook = nbformat.read(ROOT / "notebooks" / f"{given.lesson}.ipynb", 4)
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    os.nice(10)
    with tempfile.TemporaryDirectory() as folder:
        learners = [Learner(number, Path(folder) / str(number)) for number in range(given.learners)]
        for learner in learners:
            learner.home.mkdir()
        start = time.monotonic()
        arguments = cells, 60 * given.minutes / len(cells), given.shared_cache, start + 60 * given.minutes * 1.25
        threads = [threading.Thread(target=study, args=(learner, *arguments)) for learner in learners]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(json.dumps(report(learners, (time.monotonic() - start) / 60, len(cells)), indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
