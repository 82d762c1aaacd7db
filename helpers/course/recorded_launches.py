"""Launches of kernels in signatures of their own, timed, to try the model of time on what is no product of the course.

course record --launches --out FOLDER     on a machine with a GPU, a minute
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from helpers.errors import CourseError
from helpers.run import gpu, kernel

from . import rungs

SOURCE = Path(__file__).with_name("launches.cu")
_SAMPLES, _SECONDS = 20, 0.25
FITTED = (
    "copied",
    "copied_by_four",
    "added",
    "transposed_directly",
    "smoothed",
    "summed",
    "summed_by_all",
    "scattered",
    "counted",
)  # like those on which figures of model/cycles/chip.toml were chosen (kernels/LOG.md, run 28); the others took no part
_BLOCKS = 1056  # of launches whose threads walk: eight for each multiprocessor of an H200


@dataclass(frozen=True)
class OwnLaunch:
    """How a kernel of SOURCE is launched for matrices or as many numbers of n × n. grid, arrays: of n; an array is its shape, or its shape
    and type. scalars: of n, behind the arrays; before: the first of them, in front of these."""

    grid: Callable[[int], Sequence[int]]
    block: Sequence[int]
    arrays: Callable[[int], Sequence[Any]]
    scalars: Callable[[int], Sequence[int]] = lambda n: (n,)
    before: Sequence[float] = ()
    sizes: Sequence[int] = (1024, 4096)

    def arguments(self, n: int, make: Callable[..., Any]) -> list[Any]:
        """What it is launched with. make: an array from a shape and a type."""
        given = [make(*(item if isinstance(item, tuple) and isinstance(item[0], tuple) else (item, np.float32))) for item in self.arrays(n)]
        return [*(np.float32(value) for value in self.before), *given, *(np.int32(value) for value in self.scalars(n))]


def _square(n: int) -> tuple[int, int]:
    return n, n


def _product(tile: int, *block: int) -> OwnLaunch:
    return OwnLaunch(lambda n: (n // tile, n // tile), block, lambda n: (_square(n),) * 3, sizes=(1024, 2048))


def _on_tensor_cores(tile: int, threads: int) -> OwnLaunch:
    """A product of half, in tiles of so many rows and columns."""

    def arrays(n: int) -> Sequence[Any]:
        return (_square(n), np.float16), (_square(n), np.float16), _square(n)

    return OwnLaunch(lambda n: (n // tile, n // tile), (threads,), arrays, sizes=(1024, 2048, 4096))


def _each(lanes: int = 1, before: Sequence[float] = ()) -> OwnLaunch:
    """A thread for so many numbers."""
    return OwnLaunch(lambda n: (n * n // lanes // 256,), (256,), lambda n: (_square(n),) * 2, lambda n: (n * n // lanes,), before)


def _tiles(rows: int) -> OwnLaunch:
    return OwnLaunch(lambda n: (n // 32, n // rows), (32, 8), lambda n: (_square(n),) * 2)


LAUNCHES: Mapping[str, OwnLaunch] = {
    "product_direct": OwnLaunch(lambda n: (n // 32, n // 8), (32, 8), lambda n: (_square(n),) * 3, sizes=(1024, 2048)),
    "product_tiled": _product(32, 32, 32),
    "product_squares": _product(64, 256),
    "product_vectors": _product(128, 256),
    "product_wmma_direct": _on_tensor_cores(64, 128),
    "product_wmma_tiled": _on_tensor_cores(64, 128),
    "product_mma": _on_tensor_cores(128, 256),
    "copied": _each(),
    "copied_by_four": _each(4),
    "added": _each(1, (2.0,)),
    "activated": _each(4),
    "transposed_directly": _tiles(32),
    "transposed_with_conflicts": _tiles(32),
    "transposed": _tiles(32),
    "smoothed": _tiles(8),
    "row_sums": OwnLaunch(lambda n: (n // 8,), (256,), lambda n: (_square(n), (n,), (n,))),
    "summed": OwnLaunch(lambda n: (_BLOCKS,), (256,), lambda n: (_square(n), (1,)), lambda n: (n * n,)),
    "summed_by_all": OwnLaunch(lambda n: (n * n // 256,), (256,), lambda n: (_square(n), (1,)), lambda n: (n * n,), sizes=(512, 1024)),
    "scattered": OwnLaunch(
        lambda n: (n * n // 256,), (256,), lambda n: (_square(n), (1 << 12,)), lambda n: (n * n, 1 << 12), sizes=(512, 1024)
    ),
    "counted": OwnLaunch(
        lambda n: (_BLOCKS,), (256,), lambda n: ((_square(n), np.int32), ((256,), np.int32)), lambda n: (n * n,), sizes=(2048, 4096)
    ),
    "powers": OwnLaunch(lambda n: (_BLOCKS,), (256,), lambda n: ((_BLOCKS * 256,),), sizes=(1024, 4096)),
}


@dataclass(frozen=True)
class Timed:
    """One of them at n × n, and how long it took on `device`."""

    name: str
    size: int
    milliseconds: float
    device: str

    @property
    def fitted(self) -> bool:
        return self.name in FITTED


def compiled(name: str, arch: str = "sm_90") -> kernel.Kernel:
    """The kernel of that name."""
    return kernel.compile(SOURCE.read_text(encoding="utf-8"), entry=name, arch=arch)


def counted(name: str, n: int) -> kernel.Run:
    """Its counters at n × n, from its first block where they do not follow from the machine code."""
    launch = LAUNCHES[name]
    return compiled(name).count(launch.grid(n), launch.block, launch.arguments(n, np.zeros), blocks=[0])


def file_name(device: str) -> str:
    """Where the rows of a device are kept: "launches-nvidia-h200.json"."""
    return f"launches-{rungs.slug(device)}.json"


def recorded(folder: Path = rungs.DATA) -> Iterator[Timed]:
    """Those on record of the source as it is."""
    for path in sorted(folder.glob("launches-*.json")):
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["about"]["kernel_hash"] == rungs.code_hash(SOURCE.read_text(encoding="utf-8")):
            for row in kept["rows"]:
                yield Timed(row["name"], row["size"], row["milliseconds"], kept["about"]["device"])


def record(out: Path, say=print) -> list[dict[str, Any]]:
    """Time them all and write `file_name` into `out`. Raises CourseError without a GPU."""
    if not gpu.available():
        raise CourseError(gpu.why_not())
    device, rows, random = gpu.device(), [], np.random.default_rng(0)

    def numbers(shape, kind):
        whole = random.integers(0, 1 << 20, shape) if kind == np.int32 else random.standard_normal(shape)
        return gpu.upload(whole.astype(kind))

    for name, launch in LAUNCHES.items():
        made = compiled(name, gpu.arch()).compiled
        for n in launch.sizes:
            grid, block = (tuple(extent) + (1,) * (3 - len(extent)) for extent in (launch.grid(n), launch.block))
            once = gpu.launcher(made, grid, block, launch.arguments(n, numbers))
            gpu.run_once(once, name)
            timed = gpu.interleave({name: once}, samples=_SAMPLES, seconds=_SECONDS)[name]
            rows.append({"name": name, "size": n, "milliseconds": float(f"{timed.milliseconds:.6g}"), "clock_mhz": timed.clock_mhz})
            say(f"{name} at {n} × {n}: {timed.milliseconds:.4g} ms, {math.prod(grid)} blocks")
    about = {
        **gpu.provenance(device), "method": f"median of {_SAMPLES} samples",
        "kernel_hash": rungs.code_hash(SOURCE.read_text(encoding="utf-8")),
    }  # fmt: skip
    rungs.write_rows(out / file_name(device.name), rows, about)
    return rows
