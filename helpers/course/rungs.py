"""The rungs of the ladder: what the reader measured or predicted, beside the recorded runs of helpers/data, published
ladders, cuBLAS and the hardware's limit, each labelled by its `kind`.

Readers know this module as `helpers.ladder`; their own climbs and answers are kept by `store.py`.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from helpers.arguments import explained
from helpers.element_types import result_type
from helpers.errors import CourseError
from helpers.model import hardware
from helpers.model.predict import TENSOR_CORES, class_of_float32, fp32_warps, local_requests, validation
from helpers.run.gemm import Problem
from helpers.sim.code.declarations import without_comments
from helpers.sim.counting import names

from . import store
from .store import COUNTED, LIMIT, MEASURED, PREDICTED, PUBLISHED, RECORDED, answer, answers, climb, climbs, reset

__all__ = [
    "COUNTED", "DATA", "LIMIT", "MEASURED", "PREDICTED", "PUBLISHED", "RECORDED", "Rung",
    "answer", "answers", "climb", "climbs", "limit", "published", "recorded", "recorded_files", "reset", "rungs",
]  # fmt: skip

DATA = Path(__file__).parents[1] / "data"
_OF_TENSOR_CORES = [names.tensor(part) for part in ("hmma", "imma", "dmma", "gmma")]
KINDS = (MEASURED, PREDICTED, COUNTED, RECORDED, PUBLISHED, LIMIT)


@dataclass(frozen=True)
class Rung:
    """One bar of the ladder.

    kind: "measured", "predicted" or "counted" for the reader's; "recorded" for the course's runs (cuBLAS among them), also where
    the reader climbed with the very code that was recorded;
    "published" for others'; "limit" for what the hardware could do. mine: the reader's. tflops and milliseconds are
    None for a counted climb. step: the step it belongs to, None for cuBLAS, limits and kernels outside the course.
    spread: of a time that was measured, the inter-quartile range of its samples over their median; of one that was predicted, twice
    the model's largest error on runs of kernels like it that it had not seen. None where it is not known. noisy: why a recorded time
    should not be trusted to the last digits, or "".
    """

    kind: str
    name: str
    device: str
    dtype: str
    m: int
    n: int
    k: int
    step: int | None = None
    milliseconds: float | None = None
    tflops: float | None = None
    cublas_ratio: float | None = None
    source: str = ""
    date: str = ""
    clock_mhz: float | None = None
    spread: float | None = None
    mine: bool = False
    out_dtype: str = "float32"
    noisy: str = ""

    @property
    def label(self) -> str:
        """Name and kind, as a picture or a table shows it: "naive (recorded)"."""
        return f"{self.name} ({'yours, ' if self.mine else ''}{self.kind})"


def recorded_files(folder: str | os.PathLike[str] = DATA) -> list[Path]:
    """The files of recorded runs, of each device and of its strategy table, among other measurements. Raises CourseError for no folder."""
    if not isinstance(folder, str | os.PathLike) or not Path(folder).is_dir():
        raise CourseError(f"{folder!r} is no folder of recorded runs: name one, or leave it out for the course's own.")
    return sorted(Path(folder).glob("*.json"))


def recorded(folder: str | os.PathLike[str] = DATA, variants: bool = False) -> list[dict[str, Any]]:
    """All recorded rows, each with its out_dtype, of the kernels as they are shipped, on single products.

    variants: rows of batches, and of kernels with other constants, as well (see `strategy.py`). Raises CourseError naming
    the file if one is damaged, and for what is no folder.
    A file of recorded runs is a list of rows with a step; other measurements may lie beside them.
    """
    rows: list[dict[str, Any]] = []
    for path in recorded_files(folder):
        changed = path.stat()
        try:
            rows += _rows(path, changed.st_mtime_ns, changed.st_size)
        except ValueError as error:
            raise CourseError(f"The recorded runs in {path.name} are damaged ({error}). Restore the file from the repository.") from None
    return [{**row, "out_dtype": out_dtype(row)} for row in rows if variants or not {"batch", "configuration"} & row.keys()]


@functools.lru_cache(maxsize=32)
def _rows(path: Path, changed: int, size: int) -> list[dict[str, Any]]:
    """The rows in a file of recorded runs, [] in one of other measurements. It is read again when it has `changed`."""
    found = json.loads(path.read_text(encoding="utf-8"))
    return [row for row in found if isinstance(row, dict) and "step" in row] if isinstance(found, list) else []


def code_hash(source: str) -> str:
    """Identity of what the compiler sees: comments and layout may change without a new recording."""
    return hashlib.sha256(" ".join(without_comments(source).split()).encode()).hexdigest()[:16]


def slug(device: str) -> str:
    """A device's file name: "NVIDIA H200" -> "nvidia-h200"."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-") or "gpu"


def out_dtype(row: Mapping[str, Any]) -> str:
    """The type of C of a recorded row, which only names one that is not the usual one for its inputs."""
    return result_type(row["dtype"], row.get("out_dtype"))


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> None:
    """Write what is common to the rows, and the rows, one per line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    path.write_text(f'{{\n "about": {json.dumps(about)},\n "rows": [\n{lines}\n ]\n}}\n', encoding="utf-8")


@functools.cache
def published() -> tuple[Rung, ...]:
    """Every published rung of data/published.toml, cuBLAS figures of the same sources included."""
    ladders = tomllib.loads((DATA / "published.toml").read_text(encoding="utf-8"))["ladder"]
    return tuple(rung for row in ladders for rung in _published(row))


def _published(row: Mapping[str, Any]) -> Iterable[Rung]:
    m, n, k = row["size"]
    for entry in [*row["rungs"], {"name": "cuBLAS", "tflops": row["cublas"]}]:
        yield Rung(
            kind=PUBLISHED, name=entry["name"], device=row["device"], dtype=row["dtype"], m=m, n=n, k=k,
            out_dtype=result_type(row["dtype"], row.get("out_dtype")),
            step=entry.get("step"), milliseconds=2 * m * n * k / entry["tflops"] / 1e9, tflops=entry["tflops"],
            cublas_ratio=entry["tflops"] / row["cublas"], source=row["source"],
        )  # fmt: skip


@functools.cache
def cublas_file() -> dict[str, Any]:
    """What was recorded of cuBLAS by itself: "about", "rows" (one product each) and "sustained" (runs of seconds)."""
    return json.loads((DATA / "cublas-nvidia-h200.json").read_text(encoding="utf-8"))


@functools.cache
def cublas_alone() -> tuple[Rung, ...]:
    """cuBLAS's times on products for which no kernel of the course was recorded yet: measured by themselves, not in turn with anything."""
    found = cublas_file()
    about = found["about"]
    return tuple(
        Rung(
            kind=RECORDED, name="cuBLAS", device=canonical(about["device"]), dtype=row["dtype"], m=row["m"], n=row["n"], k=row["k"],
            out_dtype=result_type(row["dtype"]), milliseconds=2 * row["m"] * row["n"] * row["k"] / row["tflops"] / 1e9,
            tflops=row["tflops"], cublas_ratio=1.0, date=about["date"], source=about["how"],
        )
        for row in found["rows"]
    )  # fmt: skip


def limit(device: str, m: int, n: int, k: int, dtype: str = "float32", out_dtype: str = "", unit: str = "") -> Rung | None:
    """What `device` (a name of model/gpus.toml) could do at most in these types: the roofline at this size.

    Arithmetic is FP32 lanes for float32, tensor cores for all else; unit: another type, whose unit multiplies in place of dtype's. None
    where the table does not know: the device, or its rate for these types. Bytes: each input read once, the result written once.
    """
    try:
        gpu = hardware.gpu(device)
    except CourseError:
        return None
    problem = Problem(m, n, k, dtype=dtype, out_dtype=out_dtype)
    by = gpu.unit(unit or dtype)
    if by is None or not problem.flops:
        return None
    compute = problem.flops / (by.tflops * 1e12)
    memory = problem.compulsory_bytes / (gpu.dram_gbs * 1e9)
    seconds = max(compute, memory)
    what = by.name if compute >= memory else "DRAM bandwidth"
    return Rung(
        kind=LIMIT, name=f"limit of the {what}", device=gpu.name, dtype=dtype, out_dtype=problem.out_dtype, m=m, n=n, k=k,
        milliseconds=seconds * 1e3, tflops=problem.flops / seconds / 1e12, source=by.source if compute >= memory else gpu.source,
    )  # fmt: skip


@explained
def rungs(
    m: int = 4096,
    n: int | None = None,
    k: int | None = None,
    dtype: str = "float32",
    out_dtype: str = "",
    device: str | None = None,
    kinds: Iterable[str] | None = None,
) -> list[Rung]:
    """The ladder at one size: recorded runs with their cuBLAS, published ladders, the limit, and the reader's own.

    n, k: default to m. dtype, out_dtype: element types, as in `Problem`; figures of others are not comparable. device: only
    this one (a name of gpus.toml or as a driver says it); None for all. kinds: only these. Of the reader's
    climbs of one kernel the fastest of each kind and device stands. Sorted by device, then from slow to fast; climbs without
    a time come first. Raises LaunchError where that is no product, and CourseError for a device or kinds that are none.
    """
    asked = Problem(m, m if n is None else n, m if k is None else k, dtype=dtype, out_dtype=out_dtype)
    product: dict[str, Any] = {name: getattr(asked, name) for name in ("m", "n", "k", "dtype", "out_dtype")}
    if not isinstance(device, str | None):
        raise CourseError(f"device={device!r}: give the name of a GPU, such as device='H200 SXM', or leave it out for all.")
    kept = KINDS if kinds is None else known_kinds(kinds)
    all_rungs = [
        *_recorded_rungs(product),
        *_published_rungs(product),
        *_own_rungs(product),
    ]
    devices = {rung.device for rung in all_rungs if rung.kind != PUBLISHED}
    if device is not None:
        devices.add(device)
    limits = {rung.device: rung for rung in (limit(name, **product) for name in sorted(devices)) if rung}
    all_rungs += limits.values()
    if device is not None:
        wanted = canonical(device)
        all_rungs = [rung for rung in all_rungs if canonical(rung.device) == wanted]
    all_rungs = [rung for rung in all_rungs if rung.kind in kept]
    return sorted(all_rungs, key=lambda rung: (canonical(rung.device), rung.tflops or 0.0, rung.name))


def known_kinds(kinds: Iterable[str]) -> tuple[str, ...]:
    """These kinds of rungs. Raises CourseError for what is no list of them."""
    given = None if isinstance(kinds, str) or not isinstance(kinds, Iterable) else tuple(kinds)
    if given is None or not all(kind in KINDS for kind in given):
        raise CourseError(f"kinds={kinds!r}: give a list of kinds, such as kinds=['recorded']; there are: {', '.join(KINDS)}.")
    return given


NEAR = 0.01  # of an extent: a published figure for a product this near stands on the ladder, with its own size in its name


def _published_rungs(product: Mapping[str, Any]) -> Iterable[Rung]:
    for rung in published():
        if all(getattr(rung, name) == value for name, value in product.items()):
            yield rung
        elif all(_near(getattr(rung, name), value) for name, value in product.items()):
            yield replace(
                rung, name=f"{rung.name}, {rung.m}³" if rung.m == rung.n == rung.k else f"{rung.name}, {rung.m} × {rung.n} × {rung.k}"
            )


def _near(one: int | str, other: int | str) -> bool:
    return one == other if isinstance(one, str) or isinstance(other, str) else abs(one - other) <= NEAR * other


def recorded_time(source: str, problem: Problem, device: str) -> Rung | None:
    """The recorded run of exactly this code on this product and device; None if there is none. Readers' kernels that they did not
    change have one."""
    wanted = code_hash(source)
    product = {name: getattr(problem, name) for name in ("m", "n", "k", "dtype", "out_dtype")}
    slugs = {row["slug"] for row in recorded() if row.get("kernel_hash") == wanted}
    return next((rung for rung in _recorded_rungs(product) if rung.name in slugs and rung.device == canonical(device)), None)


def canonical(device: str) -> str:
    """A device's name in gpus.toml, or as it is."""
    try:
        return hardware.gpu(device).name
    except CourseError:
        return device


def _recorded_rungs(product: Mapping[str, Any]) -> Iterable[Rung]:
    fastest_cublas: dict[str, Rung] = {}
    for row in recorded():
        if any(row[name] != value for name, value in product.items()):
            continue
        common = {
            **product, "kind": RECORDED, "device": canonical(row["device"]),
            "date": row["date"], "source": f"helpers/data, driver {row.get('driver', 'unknown')}",
        }  # fmt: skip
        yield Rung(
            **common, name=row["slug"], step=row["step"], milliseconds=row["milliseconds"], tflops=row["tflops"],
            cublas_ratio=row["cublas_ratio"], clock_mhz=row["clock_mhz"], spread=row["spread"], noisy=row.get("noisy", ""),
        )  # fmt: skip
        if row.get("cublas_milliseconds"):
            time = row["cublas_milliseconds"]
            rung = Rung(
                **common, name="cuBLAS", milliseconds=time, tflops=2 * row["m"] * row["n"] * row["k"] / time / 1e9, cublas_ratio=1.0,
                clock_mhz=row.get("cublas_clock_mhz"), spread=row.get("cublas_spread"),
            )  # fmt: skip
            best = fastest_cublas.get(rung.device)
            if best is None or time < best.milliseconds:
                fastest_cublas[rung.device] = rung
    yield from fastest_cublas.values()
    for rung in cublas_alone():
        if rung.device not in fastest_cublas and all(getattr(rung, name) == value for name, value in product.items()):
            yield rung


def _band(row: store.SavedClimb) -> float | None:
    """Twice the largest error of the model on recorded products of kernels like this one that it had not seen, where these are on this
    device: what the profile states."""
    known = validation()
    of_lanes = class_of_float32(row.counters.get(names.executed("shared_ld"), 0), fp32_warps(row.counters), local_requests(row.counters))
    of_row = TENSOR_CORES if row.dtype != "float32" or any(map(row.counters.get, _OF_TENSOR_CORES)) else of_lanes
    like = [run for run in known["runs"] if not run["fitted"] and run["class"] == of_row]
    return 2 * max(abs(run["error"]) for run in like) if like and row.device == known["device"] else None


def _own_rungs(product: Mapping[str, Any]) -> Iterable[Rung]:
    best: dict[tuple, store.SavedClimb] = {}
    for row in store.own().climbs(**product):
        if row.kind == PREDICTED and (known := recorded_time(row.source, Problem(**product), row.device)):
            row = replace(row, kind=RECORDED, milliseconds=known.milliseconds, tflops=known.tflops, cublas_ratio=known.cublas_ratio)
        key = (row.label, row.kind, row.device)
        if key not in best or (row.tflops or 0.0) >= (best[key].tflops or 0.0):
            best[key] = row
    for row in best.values():
        yield Rung(
            **product, kind=row.kind, name=row.label, device=row.device, step=row.step,
            milliseconds=row.milliseconds, tflops=row.tflops, cublas_ratio=row.cublas_ratio,
            date=row.created, mine=True, spread=_band(row) if row.kind == PREDICTED else None,
        )  # fmt: skip
