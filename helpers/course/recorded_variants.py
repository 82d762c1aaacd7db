"""The steps with other constants or a text replaced, timed, to try the model on.

course record --variants --out FOLDER     on a machine with a GPU, four minutes
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.errors import CourseError
from helpers.run import gemm, gpu, kernel, timing

from . import rungs, steps
from .comparing import edited

SIZES = (2048, 4096)
_SAMPLES, _SECONDS = 8, 0.25
_ONE_LEFT, _NONE_LEFT = "wgmma_wait<1>();", "wgmma_wait<0>();"
ARRIVE, ARRIVE_RELEASING = "mbarrier.arrive.shared::cluster.b64 _", "mbarrier.arrive.release.cluster.shared::cluster.b64 _"
BOUND = "__launch_bounds__(THREADS"  # with more blocks behind it than there are registers for, these spill
_BOUNDED = {f"{BOUND})": f"{BOUND}, 3)"}, {f"{BOUND})": f"{BOUND}, 4)"}
VARIANTS: Mapping[str, Sequence[Mapping[str, int | str]]] = {
    "shared_tile": (
        {"BM": 16, "BN": 16, "BK": 16}, {"BM": 16, "BN": 32, "BK": 32}, {"BM": 32, "BN": 32, "BK": 16}, {"BM": 8, "BN": 32, "BK": 32},
    ),
    "thread_tile_1d": (
        {"TM": 8}, {"BM": 128, "TM": 16}, {"BM": 32, "TM": 8}, {"BM": 64, "BN": 64, "BK": 8, "TM": 8},
        {"BM": 64, "BN": 32, "BK": 16, "TM": 8},
    ),
    "thread_tile_2d": (
        {"BM": 64, "BN": 64}, {"BM": 64, "BN": 64, "TM": 4, "TN": 4}, {"BK": 16}, {"BM": 128, "BN": 64}, {"TM": 4},
        {"TM": 4, "TN": 8, "BM": 64}, {f"{BOUND}, 2)": f"{BOUND}, 3)"}, {f"{BOUND}, 2)": f"{BOUND}, 4)"},
    ),
    "bank_conflicts": ({"PAD": 0}, {"BK": 16}, {"BM": 64, "BN": 64}, {"BM": 64}, {"TM": 4}),
    "vectorized": ({"PAD": 0}, {"BK": 8}, {"BM": 64, "BN": 64}, {"BM": 64}, {"TM": 4}, {"BK": 32}, *_BOUNDED),
    "warp_tile": (
        {"WM": 64, "WN": 32}, {"BM": 64}, {"BM": 64, "BN": 64}, {"BK": 8}, {"BK": 32}, {"TM": 4, "WM": 16}, *_BOUNDED,
    ),
    "double_buffer": ({"BK": 8}, {"BM": 64}, {"BM": 64, "BN": 64}, {"TM": 8, "WM": 32}, {"BM": 128, "BN": 64}, *_BOUNDED),
    "async_copy": ({"STAGES": 2}, {"STAGES": 4}, {"BK": 8}, {"BM": 64, "BN": 64}, {"TM": 8, "WM": 32}, {"BM": 256}),
    "schedule": ({"STAGES": 2}, {"STAGES": 4}, {"BM": 128}, {"BM": 128, "BN": 256}, {"BK": 8}, {"AT_ONCE": 1}, {"BM": 128, "BN": 64}),
    "tma_wgmma": ({"STAGES": 3}, {"PANEL": 1}, {_ONE_LEFT: _NONE_LEFT}, {"STAGES": 3, _ONE_LEFT: _NONE_LEFT}),
    "warp_specialized": (
        {"STAGES": 3}, {"STAGES": 2}, {"CLUSTER": 1}, {"CLUSTER": 1, "STAGES": 2}, {"CLUSTER": 4}, {"SNAKE": 0}, {"TMA_STORE": 0},
        {_ONE_LEFT: _NONE_LEFT}, {ARRIVE: ARRIVE_RELEASING}, {"CLUSTER": 1, ARRIVE: ARRIVE_RELEASING},
        {"BM": 128, "STAGES": 2}, {"BM": 128, "STAGES": 3}, {"BM": 128, "STAGES": 6},
        {"BM": 64, "BN": 64, "C_BOXES": 1, "STAGES": 2}, {"BM": 64, "BN": 64, "C_BOXES": 1, "STAGES": 4},
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Variant:
    """One of them, at M = N = K = size: its source, and how long it took on `device`."""

    step: steps.Step
    constants: Mapping[str, int | str]
    size: int
    milliseconds: float
    device: str
    source: str

    @property
    def name(self) -> str:
        return with_constants(self.step, self.constants)


def with_constants(step: steps.Step, constants: Mapping[str, int | str]) -> str:
    """What a step with other constants is called: "05_thread_tile_2d with BM 64, BN 64"; of a text that is replaced the new one."""
    said = (value if isinstance(value, str) else f"{key} {value}" for key, value in constants.items())
    return f"{step.name} with {', '.join(said)}"


def file_name(device: str) -> str:
    """Where the rows of a device are kept: "variants-nvidia-h200.json"."""
    return f"variants-{rungs.slug(device)}.json"


def recorded(folder: Path = rungs.DATA) -> Iterator[Variant]:
    """Those on record whose source is still what the step's kernel makes of the constants."""
    for path in sorted(folder.glob("variants-*.json")):
        kept = json.loads(path.read_text(encoding="utf-8"))
        for row in kept["rows"]:
            step = steps.get(row["slug"])
            source = edited(step.kernel_source(), row["constants"], step.name)
            if rungs.code_hash(source) == row["kernel_hash"]:
                yield Variant(step, row["constants"], row["size"], row["milliseconds"], kept["about"]["device"], source)


def record(out: Path, say=print) -> list[dict[str, Any]]:
    """Time them all at SIZES and write `file_name` into `out`; what does not compile is left out. Raises CourseError without a GPU."""
    if not gpu.available():
        raise CourseError(gpu.why_not())
    device, rows = gpu.device(), []
    for slug, chosen in VARIANTS.items():
        step = steps.get(slug)
        for constants in chosen:
            source = edited(step.kernel_source(), constants, step.name)
            try:
                made = kernel.compile(source, entry=step.entry, arch=step.target(gpu.arch()))
                for size in SIZES:
                    timed = timing.time_gemm(made, gemm.problem_for(made, size, size, size), samples=_SAMPLES, seconds=_SECONDS)
                    rows.append(_row(slug, constants, size, timed, source))
                    say(f"{slug} {dict(constants)} at {size}³: {timed.tflops:.1f} TFLOPS")
            except CourseError as error:
                say(f"{slug} {dict(constants)}: {error.message.splitlines()[0]}")
    method = f"median of {_SAMPLES} samples of one launch"
    rungs.write_rows(out / file_name(device.name), rows, {**gpu.provenance(device), "method": method})
    return rows


def _row(slug: str, constants: Mapping[str, int | str], size: int, timed, source: str) -> dict[str, Any]:
    return {
        "slug": slug, "constants": dict(constants), "size": size, "milliseconds": float(f"{timed.kernel.milliseconds:.6g}"),
        "clock_mhz": timed.kernel.clock_mhz, "kernel_hash": rungs.code_hash(source),
    }  # fmt: skip
