"""Warp states of the steps as Nsight Compute samples them, to hold the model's to.

course record --states --out FOLDER     on a machine with a GPU and ncu, two minutes
"""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from helpers.errors import CourseError
from helpers.model.cycles.multiprocessor import WORDS
from helpers.run import gpu
from helpers.sim.counting import names

from . import rungs, steps

SIZES = (1024, 4096)
_SECONDS = 300
_RUN = "from helpers.course import recorded_states; recorded_states.run({size})"


def file_name(device: str) -> str:
    """Where the rows of a device are kept: "states-nvidia-h200.json"."""
    return f"states-{rungs.slug(device)}.json"


def recorded(folder: Path = rungs.DATA) -> list[dict[str, Any]]:
    """Rows of slug, size and the states' shares, of steps whose kernel is still the one that was sampled."""
    found = []
    for path in sorted(folder.glob("states-*.json")):
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
            if rungs.code_hash(steps.get(row["slug"]).kernel_source()) == row["kernel_hash"]:
                found.append(row)
    return found


def run(size: int) -> None:
    """Launch every step once; what `ncu` looks at."""
    from helpers.run import gemm, kernel, timing

    for step in steps.STEPS:
        if step.entry:
            made = kernel.compile(step.kernel_source(), entry=step.entry, arch=step.target(gpu.arch()))
            timing.time_gemm(made, gemm.problem_for(made, size, size, size), samples=1, seconds=0.01)


def record(out: Path, say=print) -> list[dict[str, Any]]:
    """Sample every step at SIZES and write `file_name` into `out`. Raises CourseError without a GPU or ncu, or where ncu fails."""
    if not gpu.available():
        raise CourseError(gpu.why_not())
    if shutil.which("ncu") is None:
        raise CourseError("Nsight Compute's command ncu is not on the PATH: install it, or add its folder.")
    entries = {step.entry: step.slug for step in steps.STEPS if step.entry}
    rows = []
    for size in SIZES:
        command = [
            "ncu", "--clock-control", "none", "--csv", "--print-units", "base",
            "--kernel-id", f"::regex:^({'|'.join(entries)})$:1",
            "--metrics", ",".join(names.warp_state(word) for word in WORDS.values()),
            sys.executable, "-c", _RUN.format(size=size),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=_SECONDS, check=False)
        if done.returncode:
            raise CourseError(f"ncu ended with {done.returncode}: {done.stderr.strip()[-300:] or done.stdout.strip()[-300:]}")
        for entry, states in shares(done.stdout).items():
            source = steps.get(entries[entry]).kernel_source()
            rows.append({"slug": entries[entry], "size": size, "kernel_hash": rungs.code_hash(source), "states": states})
            say(f"{entry} at {size}³")
    device = gpu.device()
    method = "Nsight Compute, average warps stalled per issue, as shares of their sum; one launch"
    rungs.write_rows(out / file_name(device.name), rows, {**gpu.provenance(device), "method": method})
    return rows


def shares(text: str) -> dict[str, dict[str, float]]:
    """Kernel -> state -> share of all warps' cycles, from what ncu prints with --csv."""
    table = text[text.index('"ID"') :]
    words = {names.warp_state(word): word for word in WORDS.values()}
    found: dict[str, dict[str, float]] = {}
    for row in csv.DictReader(io.StringIO(table)):
        word = words.get(row["Metric Name"])
        if word is not None:
            found.setdefault(re.sub(r"[<(].*", "", row["Kernel Name"]), {})[word] = float(row["Metric Value"].replace(",", ""))
    return {kernel: {word: round(value / sum(states.values()), 4) for word, value in states.items()} for kernel, states in found.items()}
