"""One configuration does not serve all sizes: step 12 with several settings of its constants, on several shapes.

`course record --strategy` times every configuration on every shape, all in turn with cuBLAS, and keeps the rows with
the recorded runs. The lesson shows the table; nothing in it is computed but ratios.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from helpers.errors import CourseError
from helpers.model.hardware import digits
from helpers.run.gemm import Problem

from . import rungs
from .table import Cell, Table, Tabular

STEP = "autotune"

# What differs from the shipped constants, by tile of C. A library has dozens of such kernels.
CONFIGURATIONS: Mapping[str, Mapping[str, int]] = {
    "256 × 128": {},
    "128 × 256": {"BM": 128, "BN": 256, "TM": 8, "TN": 16},
    "128 × 128": {"BM": 128},
    "64 × 128": {"BM": 64, "WM": 32, "TM": 8},
    "32 × 64": {"BM": 32, "BN": 64, "BK": 32, "WM": 16, "WN": 32, "TM": 4, "TN": 4},
    "16 × 64": {"BM": 16, "BN": 64, "BK": 32, "WM": 16, "WN": 32, "TM": 4, "TN": 4},
    "128 × 128, 8 slices": {"BM": 128, "SLICES": 8},
    "64 × 64, 8 slices": {"BM": 64, "BN": 64, "WM": 32, "WN": 32, "TM": 8, "TN": 4, "SLICES": 8},
    "64 × 64, 32 slices": {"BM": 64, "BN": 64, "WM": 32, "WN": 32, "TM": 8, "TN": 4, "SLICES": 32},
    "16 × 128, 8 slices": {"BM": 16, "BK": 32, "WM": 16, "WN": 32, "TM": 4, "TN": 4, "SLICES": 8},
}

SHAPES: Mapping[str, Problem] = {
    "small": Problem(256, 256, 256),
    "small, 512": Problem(512, 512, 512),
    "medium": Problem(1024, 1024, 1024),
    "medium, 2048": Problem(2048, 2048, 2048),
    "large": Problem(4096, 4096, 4096),
    "large, 8192": Problem(8192, 8192, 8192),
    "odd": Problem(4097, 4097, 4097),
    "oblong": Problem(1000, 3000, 500),
    "thin": Problem(16, 4096, 4096),
    "deep": Problem(128, 128, 16384),
    "batched": Problem(128, 128, 128, batch=256),
    "batched, 64": Problem(64, 64, 64, batch=1024),
}


@dataclass(frozen=True, repr=False)
class Strategy(Tabular):
    """Recorded rows of the configurations: shape -> configuration -> row (see `record.REQUIRED`)."""

    rows: Mapping[str, Mapping[str, Mapping[str, Any]]]

    def best(self, shape: str) -> str:
        """The configuration that was fastest on a shape."""
        return max(self.rows[shape], key=lambda name: self.rows[shape][name]["tflops"])

    def ratio(self, shape: str, configuration: str) -> float:
        """Its speed there, relative to cuBLAS."""
        return self.rows[shape][configuration]["cublas_ratio"]

    def table(self) -> Table:
        """Shapes down, configurations across, speed relative to cuBLAS, shaded by it; the best of each shape in stars, or bold."""
        header: list[str | Cell] = ["shape, M × N × K, cuBLAS's TFLOPS", *map(_head, CONFIGURATIONS)]
        cells: list[list[str | Cell]] = []
        for shape, found in self.rows.items():
            best = self.best(shape)
            ratios: list[str | Cell] = []
            for name in CONFIGURATIONS:
                if name not in found:
                    ratios.append("–")
                    continue
                ratio = self.ratio(shape, name)
                text = f"{ratio:.2f}"
                shade = min(ratio, 1.0) ** 2  # squared: 0.9 and 1.0 should differ more than 0.1 and 0.2
                ratios.append(Cell(f"*{text}*", f"<b>{text}</b>", shade) if name == best else Cell(text, text, shade))
            cublas = max(row["cublas_tflops"] for row in found.values())
            what = Cell(
                f"{shape}: {SHAPES[shape]}, {digits(cublas)}", f"{shape}<br><small>{SHAPES[shape]}<br>cuBLAS: {digits(cublas)}</small>"
            )
            cells.append([what, *ratios])
        return Table(
            header,
            cells,
            self.caption,
            left=(0,),
            below=("The stronger the colour, the nearer to cuBLAS. Bold: the fastest of its shape.",),
        )

    @property
    def caption(self) -> str:
        """What the numbers are, and whose."""
        row = next(iter(next(iter(self.rows.values())).values()))
        return f"speed relative to cuBLAS (recorded, {row['device']}, {row['date']})"


def _head(configuration: str) -> Cell:
    """The title of a column, in HTML as narrow as its numbers: "128 × 128, 8 slices" in three lines."""
    tile, _, slices = configuration.partition(", ")
    tile = tile.replace(" × ", "&nbsp;×<br>")
    return Cell(configuration, f"{tile}<br><small>{slices}</small>" if slices else tile)


def recorded(device: str = "NVIDIA H200") -> Strategy:
    """The recorded table of a device. Raises CourseError if there is none."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    rows = [row for row in rungs.recorded(variants=True) if row["device"] == device and row.get("configuration")]
    for shape, problem in SHAPES.items():
        for row in rows:
            if (row["m"], row["n"], row["k"], row.get("batch", 1)) == (problem.m, problem.n, problem.k, problem.batch):
                found.setdefault(shape, {})[row["configuration"]] = row
    if not found:
        raise CourseError(f"The configurations were not recorded on {device}: course record --strategy does it.")
    return Strategy(found)


def sources(source: str, names: Sequence[str] = tuple(CONFIGURATIONS)) -> dict[str, str]:
    """Configuration -> the source with its constants."""
    from .sweep import variant  # here: sweeps import much that reading a table does not need

    return {name: variant(source, **CONFIGURATIONS[name]) for name in names}
