"""The whole map of a search: every configuration of step 12's tiles that compiles, timed once and kept.

`course record --search` makes it on this machine's GPU: what a search would refuse for its bound is timed as well, so
that the map shows what the bounds leave out, and a search can be judged by what a full one finds.
"""

from __future__ import annotations

import itertools
import json
import math
import multiprocessing
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from helpers.errors import CompileError, CourseError
from helpers.model import hardware
from helpers.model.predict import validated, validation
from helpers.run import gpu
from helpers.run.gemm import Problem
from helpers.toolchain.compile import compile_source

from . import rungs, steps
from .autotune import Candidate, Search, search, with_facts
from .recorded_variants import with_constants
from .sweep import variant

STEP = "autotune"
SIZE = 4096
SPACE: Mapping[str, tuple[int, ...]] = {
    "BM": (64, 128, 256), "BN": (64, 128, 256), "TM": (4, 8, 16), "TN": (4, 8, 16), "WM": (32, 64, 128), "WN": (32, 64),
}  # fmt: skip
_COMPILED_TOGETHER = 12


def file_name(device: str) -> str:
    """A device's file in helpers/data: "NVIDIA H200" -> "search-nvidia-h200.json"."""
    return f"search-{rungs.slug(device)}.json"


def recorded(device: str = "NVIDIA H200", folder: Path = rungs.DATA) -> Search:
    """The recorded map of a device. Raises CourseError if there is none, or it is of another version of the kernel."""
    path = folder / file_name(device)
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CourseError(f"The whole space was not recorded on {device}: course record --search does it.") from None
    about = kept["about"]
    if about["kernel_hash"] != rungs.code_hash(steps.get(STEP).kernel_source()):
        raise CourseError(f"{path.name} belongs to another version of step 12: course record --search makes it again.")
    names = list(about["space"])
    step, model = steps.get(STEP), _predicted()
    found = [_candidate(names, row) for row in kept["rows"]]
    named = [replace(item, model=model.get(with_constants(step, item.constants))) for item in found]
    origin = f"Recorded on {device}, {about['date']}, driver {about['driver']}, {about['compiler']}, each timed in turn with cuBLAS."
    return Search(Problem(*about["size"]), device, tuple(named), origin=origin)


def _predicted() -> dict[str, float]:
    """Kernel -> what the model predicted for it at SIZE³ when it was last validated, as a part of the FP32 limit."""
    least = 2 * SIZE**3 / 1e9 / hardware.gpu(validation()["device"]).peak_fp32_tflops  # milliseconds at the limit
    return {name: least / row["predicted"] for name, row in validated(SIZE).items()}


def record(out: Path = rungs.DATA, say=print, space: Mapping[str, Sequence[int]] = SPACE, size: int = SIZE) -> Search:
    """Time every configuration of `space` that compiles, at size³, and write the map to `out`.

    What an interrupted recording has tried lies beside it, and the next one goes on from there. Raises CourseError without a GPU,
    or where it was interrupted.
    """
    if not gpu.available():
        raise CourseError(gpu.why_not())
    step, device = steps.get(STEP), gpu.device()
    source = step.kernel_source()
    out.mkdir(parents=True, exist_ok=True)
    journal = (out / file_name(device.name)).with_suffix(".journal")

    def compile_all(waiting: Sequence[Candidate]) -> None:  # the search finds them made
        say(f"{len(waiting)} of {math.prod(map(len, space.values()))} configurations to compile and time")
        compile_together([variant(source, **item.constants) for item in waiting], device.arch)

    found = search(source, space, size, trials=None, file=journal, bounded=False, prepare=compile_all)
    if found.stopped:
        raise CourseError(f"{found.stopped} Nothing is recorded yet; what was tried is in {journal}.")
    about = {
        "kernel_hash": rungs.code_hash(source), "size": [size] * 3, "space": {name: list(v) for name, v in space.items()},
        **gpu.provenance(device),
    }  # fmt: skip
    rungs.write_rows(out / file_name(device.name), [_row(item) for item in found.candidates], about)
    journal.unlink(missing_ok=True)
    say(found.summary())
    return found


def compile_together(texts: Sequence[str], arch: str) -> None:
    """Compile sources, several at a time: whoever compiles one of them afterwards finds it made. What does not compile is passed over."""
    with ProcessPoolExecutor(_COMPILED_TOGETHER, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(_made, texts, itertools.repeat(arch)))


def _made(text: str, arch: str) -> None:
    try:
        compile_source(text, arch=arch)
    except CompileError:
        pass  # the search meets the same refusal, and keeps it


def _row(item: Candidate) -> dict[str, Any]:
    """A configuration as it is kept: its numbers, and what is known of it."""
    row: dict[str, Any] = {"numbers": list(item.constants.values())}
    if item.rule:
        row |= {"rule": item.rule, "refused": item.refused}
    if item.fill:
        row |= {"depth": item.depth, "fill": round(item.fill, 6), "bound": round(item.bound, 6)}
    if item.code:
        row["code"] = asdict(item.code)
    if item.measured:
        row["measured"] = asdict(item.measured)
    return row


def _candidate(names: Sequence[str], row: Mapping[str, Any]) -> Candidate:
    constants = dict(zip(names, row["numbers"], strict=True))
    known = {name: row[name] for name in ("depth", "fill", "bound") if name in row}
    return with_facts(Candidate(constants, **known), row)
