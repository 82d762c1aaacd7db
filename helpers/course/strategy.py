"""One configuration does not serve all sizes: steps 12 (float32) and 17 (bfloat16) with several settings of their constants.

`course record --strategy` times every configuration on every shape, all in turn with cuBLAS, and keeps the rows with
the recorded runs. The lessons show the tables; nothing in them is computed but ratios. `best(m, n, k)` chooses a
configuration for any shape: as recorded where it was, otherwise by `helpers.model.tile_times`, fitted to the table.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from helpers.arguments import explained, is_whole, listed
from helpers.errors import CourseError
from helpers.model import hardware
from helpers.model.hardware import digits
from helpers.model.tile_times import TileTime, Tiling, fitted
from helpers.run.gemm import Problem
from helpers.toolchain.compile import compile_source

from . import rungs, steps
from .lesson import LessonKernel
from .sweep import variant
from .table import Cell, Table, Tabular

STEP = "autotune"
DEVICE = "NVIDIA H200"

# What differs from the shipped constants, by tile of C. A library has dozens of such kernels.
CONFIGURATIONS: Mapping[str, Mapping[str, int]] = {
    "256 × 128": {},
    "128 × 256": {"BM": 128, "BN": 256, "BK": 8, "AT_ONCE": 2, "STAGES": 4},
    "128 × 128": {"BM": 128},
    "96 × 128": {"BM": 96, "BK": 8, "WM": 48, "TM": 12},
    "128 × 64": {"BM": 128, "BN": 64, "WM": 32, "TM": 8, "EVERY": 2, "SPREAD": 1, "MIN_BLOCKS": 3},
    "64 × 128": {"BM": 64, "WM": 32, "TM": 8, "EVERY": 2, "AT_ONCE": 2, "MIN_BLOCKS": 3},
    "64 × 128, 4 blocks": {"BM": 64, "BK": 8, "WM": 32, "TM": 8, "MIN_BLOCKS": 4},
    "32 × 128, 4 warps": {"BM": 32, "BK": 32, "WM": 32, "WN": 128, "TM": 8, "TN": 16, "WARPS_K": 4, "AT_ONCE": 4},
    "32 × 128, 8 warps": {
        "BM": 32, "BK": 32, "WM": 32, "WN": 128, "TM": 8, "TN": 16, "WARPS_K": 8, "FIRST": 0, "AT_ONCE": 2, "STAGES": 4,
    },
    "48 × 64, 4 warps": {"BM": 48, "BN": 64, "WM": 48, "TM": 12, "WARPS_K": 4, "FIRST": 1, "AT_ONCE": 8},
    "32 × 64": {"BM": 32, "BN": 64, "BK": 8, "WM": 16, "TM": 4, "FIRST": 0},
    "32 × 64, 8 warps": {"BM": 32, "BN": 64, "BK": 32, "WM": 32, "TM": 8, "WARPS_K": 8, "FIRST": 0, "AT_ONCE": 2},
    "16 × 64, 4 warps": {"BM": 16, "BN": 64, "WM": 16, "TM": 4, "WARPS_K": 4, "FIRST": 1, "AT_ONCE": 4},
    "16 × 128, 2 warps, 8 slices": {"BM": 16, "WM": 16, "TM": 4, "WARPS_K": 2, "AT_ONCE": 2, "SLICES": 8},
    "32 × 64, 8 warps, 16 slices": {
        "BM": 32, "BN": 64, "BK": 32, "WM": 32, "TM": 8, "WARPS_K": 8, "FIRST": 1, "AT_ONCE": 4, "SLICES": 16,
    },
}  # fmt: skip
TENSOR_CONFIGURATIONS: Mapping[str, Mapping[str, int]] = {
    "256 × 128": {},
    "224 × 128": {"BM": 224, "C_ROWS": 112, "C_BOXES": 1},
    "240 × 192": {"BM": 240, "BN": 192, "PANEL": 6, "C_ROWS": 16, "C_BOXES": 1},
    "192 × 192": {"BM": 192, "BN": 192, "PANEL": 4, "C_BOXES": 1},
    "128 × 192": {"BM": 128, "BN": 192, "PANEL": 4},
    "128 × 128": {"BM": 128, "STAGES": 6, "PANEL": 1},
    "96 × 192": {"BM": 96, "BN": 192, "STAGES": 5, "C_ROWS": 48},
    "112 × 128, alone": {
        "BM": 112, "CLUSTER": 1, "STAGES": 6, "PANEL": 4, "SNAKE": 0, "C_ROWS": 112, "C_BOXES": 1,
    },
    "64 × 128, alone": {"BM": 64, "CLUSTER": 1, "STAGES": 8, "PANEL": 16, "SNAKE": 0, "C_BOXES": 1},
    "128 × 64": {"BM": 128, "BN": 64, "STAGES": 6, "PANEL": 1, "SNAKE": 0},
    "128 × 64, alone": {"BM": 128, "BN": 64, "CLUSTER": 1, "STAGES": 8, "SNAKE": 0},
    "64 × 64, alone": {"BM": 64, "BN": 64, "CLUSTER": 1, "STAGES": 8, "SNAKE": 0, "C_BOXES": 1},
    "64 × 64, alone, 32 slices": {
        "BM": 64, "BN": 64, "CLUSTER": 1, "STAGES": 8, "PANEL": 2, "SNAKE": 0, "C_BOXES": 1, "SLICES": 32,
    },
    "32 × 64, alone, 8 slices": {
        "BM": 32, "BN": 64, "CLUSTER": 1, "STAGES": 16, "SNAKE": 0, "C_ROWS": 32, "C_BOXES": 1, "SLICES": 8,
    },
    "16 × 64, alone, 2 slices": {
        "BM": 16, "BN": 64, "CLUSTER": 1, "STAGES": 18, "SNAKE": 0, "C_ROWS": 16, "C_BOXES": 1, "SLICES": 2,
    },
}  # fmt: skip


_Timed = dict[Problem, dict[str, Mapping[str, Any]]]  # problem -> configuration -> recorded row


@dataclass(frozen=True)
class Family:
    """The configurations of one step: title -> what differs from its shipped constants. batches: the step computes a batch.
    piece: elements of B's rows that it wants together: 16 bytes for a thread, or a line of 128, where TMA reads boxes of them."""

    step: str
    configurations: Mapping[str, Mapping[str, int]]
    batches: bool
    piece: int


FAMILIES: Mapping[str, Family] = {  # by the element type of A and B
    "float32": Family(STEP, CONFIGURATIONS, True, 4),
    "bfloat16": Family("warp_specialized", TENSOR_CONFIGURATIONS, False, 64),
}
ROOM = 1 << 22  # elements of C that slices may hold together, as the kernels have it

SHAPES: Mapping[str, Problem] = {
    "small": Problem(256, 256, 256),
    "small, 512": Problem(512, 512, 512),
    "medium": Problem(1024, 1024, 1024),
    "medium, 1536": Problem(1536, 1536, 1536),
    "medium, 2048": Problem(2048, 2048, 2048),
    "large, 3072": Problem(3072, 3072, 3072),
    "large": Problem(4096, 4096, 4096),
    "large, 8192": Problem(8192, 8192, 8192),
    "odd": Problem(4097, 4097, 4097),
    "odd, 4104": Problem(4104, 4104, 4104),
    "oblong": Problem(1000, 3000, 500),
    "thin": Problem(16, 4096, 4096),
    "thin, 128": Problem(128, 4096, 4096),
    "shallow": Problem(4096, 4096, 128),
    "deep": Problem(128, 128, 16384),
    "batched": Problem(128, 128, 128, batch=256),
    "batched, 64": Problem(64, 64, 64, batch=1024),
}

# Timed likewise, and not used to choose by: how good `best` is, is judged on these.
HELD_OUT: Sequence[Problem] = (
    Problem(384, 384, 384), Problem(513, 513, 513), Problem(768, 768, 768), Problem(1000, 1000, 1000),
    Problem(1280, 1280, 1280), Problem(2047, 2047, 2047), Problem(2560, 2560, 2560), Problem(5120, 5120, 5120),
    Problem(640, 5120, 1024), Problem(3000, 200, 2000), Problem(6144, 1536, 1024), Problem(64, 8192, 1024),
    Problem(32, 1024, 8192), Problem(100, 100, 10000), Problem(2000, 3000, 64), Problem(256, 256, 256, batch=32),
)  # fmt: skip


def shapes(dtype: str = "float32") -> dict[str, Problem]:
    """Name -> the problems of this element type that choices are made by. Raises CourseError for a type without configurations."""
    found = {name: _of_type(one, dtype) for name, one in SHAPES.items()}
    return {name: problem for name, problem in found.items() if problem is not None}


def held_out(dtype: str = "float32") -> list[Problem]:
    """The problems of this element type that choices are judged on. Raises as `shapes`."""
    return [problem for one in HELD_OUT if (problem := _of_type(one, dtype)) is not None]


def _of_type(problem: Problem, dtype: str) -> Problem | None:
    """The problem with elements of this type; None where the configurations do not compute it."""
    computed = _family(dtype).batches or problem.batch == 1
    return replace(problem, dtype=dtype, out_dtype="") if computed else None


def _family(dtype: str) -> Family:
    if not isinstance(dtype, str) or dtype not in FAMILIES:
        raise CourseError(f"dtype={dtype!r}: configurations were tried for {' and '.join(map(repr, FAMILIES))}.")
    return FAMILIES[dtype]


def _named(kind: str, name: str, known: Mapping[str, Any]) -> Any:
    """What a name stands for. Raises CourseError with the known names."""
    if not isinstance(name, str) or name not in known:
        raise CourseError(f"There is no {kind} {name!r}; there are: {', '.join(map(repr, known))}.")
    return known[name]


@dataclass(frozen=True, repr=False)
class Strategy(Tabular):
    """Recorded rows of the configurations: shape -> configuration -> row (see `record.REQUIRED`). dtype: of A and B."""

    rows: Mapping[str, Mapping[str, Mapping[str, Any]]]
    dtype: str = "float32"

    def best(self, shape: str) -> str:
        """The configuration that was fastest on a shape. Raises CourseError for a shape without rows."""
        rows = _named("shape", shape, self.rows)
        return max(rows, key=lambda name: rows[name]["tflops"])

    def ratio(self, shape: str, configuration: str) -> float:
        """Its speed there, relative to cuBLAS. Raises CourseError for a shape or a configuration without a row."""
        return _named("configuration", configuration, _named("shape", shape, self.rows))["cublas_ratio"]

    def table(self) -> Table:
        """Shapes down, configurations across, speed relative to cuBLAS, shaded by it; the best of each shape in stars, or bold."""
        names = FAMILIES[self.dtype].configurations
        header: list[str | Cell] = ["shape, M × N × K, cuBLAS's TFLOPS", *map(_head, names)]
        cells: list[list[str | Cell]] = []
        for shape, found in self.rows.items():
            best = self.best(shape)
            ratios: list[str | Cell] = []
            for name in names:
                if name not in found:
                    ratios.append("–")
                    continue
                ratio = self.ratio(shape, name)
                text = f"{ratio:.2f}"
                shade = min(ratio, 1.0) ** 2  # squared: 0.9 and 1.0 should differ more than 0.1 and 0.2
                ratios.append(Cell(f"*{text}*", f"<b>{text}</b>", shade) if name == best else Cell(text, text, shade))
            cublas = max(row["cublas_tflops"] for row in found.values())
            what = Cell(
                f"{shape}: {SHAPES[shape]}, {digits(cublas)}", f"{shape}<br><small>{SHAPES[shape]}; cuBLAS: {digits(cublas)}</small>"
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
    tile, _, rest = configuration.partition(", ")
    tile = tile.replace(" × ", "&nbsp;×<br>")
    return Cell(configuration, f"{tile}<br><small>{rest}</small>" if rest else tile)


@dataclass(frozen=True, repr=False)
class ChosenConfiguration(Tabular):
    """A configuration for one problem, and what each would take: configuration -> milliseconds, as recorded on `device`
    or estimated from what was."""

    problem: Problem
    milliseconds: Mapping[str, float]
    recorded: bool
    device: str

    @property
    def configuration(self) -> str:
        """The fastest, one of its family's."""
        return min(self.milliseconds, key=self.milliseconds.__getitem__)

    @property
    def constants(self) -> Mapping[str, int]:
        """What differs from the shipped constants."""
        return _family(self.problem.dtype).configurations[self.configuration]

    @property
    def source(self) -> str:
        """The step's kernel with its constants."""
        dtype = self.problem.dtype
        return sources(_source(dtype), [self.configuration], dtype)[self.configuration]

    def kernel(self) -> LessonKernel:
        """The same, compiled. `check()` asks for right results without findings: the counters that the step promises are those of the
        constants it is shipped with. Raises CompileError if this machine's compiler refuses it."""
        step = steps.get(_family(self.problem.dtype).step)
        return LessonKernel(compile_source(self.source, step.entry, step.target()), step.slug, expect=())

    def table(self) -> Table:
        """The five fastest, with the constants that differ from the shipped ones."""
        rows, configurations = [], _family(self.problem.dtype).configurations
        for name in sorted(self.milliseconds, key=self.milliseconds.__getitem__)[:5]:
            time = self.milliseconds[name]
            constants = ", ".join(f"{key} {value}" for key, value in configurations[name].items()) or "as shipped"
            rows.append([name, f"{time:.3g}", digits(self.problem.flops / time / 1e9), constants])
        how = f"as recorded on {self.device}" if self.recorded else f"estimated from the strategy table of {self.device}"
        least = min(problem.flops for problem in shapes(self.problem.dtype).values())
        beyond = self.problem.flops < least and not self.recorded
        notes: tuple[str, ...] = (
            ("Smaller than anything in the table: of so small a product nothing was timed, and it may take longer.",) if beyond else ()
        )
        if len(self.milliseconds) > len(rows):
            notes += (f"The {len(rows)} fastest of {len(self.milliseconds)} configurations; `.milliseconds` has all of them.",)
        return Table(["configuration", "ms", "TFLOPS", "constants that differ"], rows, f"{self.problem}, {how}", left=(0, 3), below=notes)


@explained
def best(
    m: int, n: int | None = None, k: int | None = None, batch: int = 1, device: str = DEVICE, dtype: str = "float32"
) -> ChosenConfiguration:
    """The configuration for a product of m × n × k (a cube, if only m is given), or for `batch` of them: of step 12 for
    float32, of step 17 for bfloat16.

    Raises CourseError if nothing is recorded for `device`, for another type, for a product of nothing, and for a batch where the
    step computes one product at a time.
    """
    for name, extent in (("m", m), ("n", n), ("k", k), ("batch", batch)):
        if not (extent is None and name in "nk") and not (is_whole(extent) and extent >= 0):
            raise CourseError(f"{name}={extent!r}: give a whole number, at least 1.")
    family, problem = _family(dtype), Problem(m, m if n is None else n, m if k is None else k, batch=batch, dtype=dtype)
    if batch > 1 and not family.batches:
        raise CourseError(f"{family.step} computes one product at a time: leave batch out, and launch it {batch} times.")
    if not problem.m * problem.n * problem.k * problem.batch:
        raise CourseError(f"A product of {problem} has nothing to compute: there is nothing to choose.")
    timed = _timed(device, dtype)
    table = _table(timed, device, dtype)
    if rows := timed.get(problem):
        return ChosenConfiguration(problem, {name: row["milliseconds"] for name, row in rows.items()}, True, device)
    return ChosenConfiguration(problem, estimates(problem, table, device), False, device)


@dataclass(frozen=True, repr=False)
class Judged(Tabular):
    """How good `best` would be without having seen them: each held-out problem with the times of all configurations, recorded and
    estimated, in milliseconds."""

    recorded: Mapping[Problem, Mapping[str, Mapping[str, Any]]]
    estimated: Mapping[Problem, Mapping[str, float]]

    def _rows(self, problem: Problem) -> Mapping[str, Mapping[str, Any]]:
        """What was recorded of a problem, by configuration. Raises CourseError for one that was not held out."""
        if problem not in self.recorded:
            raise CourseError(f"{problem} was not held out. What was: {'; '.join(map(str, self.recorded))}.")
        return self.recorded[problem]

    def chosen(self, problem: Problem) -> str:
        """The configuration that is estimated to be the fastest. Raises CourseError, as all of these, for a problem not held out."""
        self._rows(problem)
        return min(self.estimated[problem], key=self.estimated[problem].__getitem__)

    def loss(self, problem: Problem) -> float:
        """How much slower the chosen one is than the fastest, as a part of the fastest's time."""
        rows = self._rows(problem)
        chosen, fastest = (rows[name]["milliseconds"] for name in (self.chosen(problem), self.fastest(problem)))
        return chosen / fastest - 1

    def fastest(self, problem: Problem) -> str:
        """The configuration with the shortest recorded time."""
        rows = self._rows(problem)
        return min(rows, key=lambda name: rows[name]["milliseconds"])

    def right(self, problem: Problem) -> bool:
        """Whether the chosen one is the fastest, or within the spread that the two were measured with."""
        rows = self._rows(problem)
        return self.loss(problem) <= max(rows[name]["spread"] for name in (self.chosen(problem), self.fastest(problem)))

    def table(self) -> Table:
        """A row for each shape."""
        rows, losses = [], [self.loss(problem) for problem in self.recorded]
        for (problem, found), loss in zip(self.recorded.items(), losses, strict=True):
            fastest, chosen = self.fastest(problem), self.chosen(problem)
            beside = f"as fast as {fastest}" if self.right(problem) else f"{100 * loss:.0f} % slower than {fastest}"
            beside = "the fastest" if chosen == fastest else beside
            rows.append([str(problem), chosen, beside, f"{found[chosen]['cublas_ratio']:.2f}"])
        row = next(iter(next(iter(self.recorded.values())).values()))
        right = sum(map(self.right, self.recorded))
        return Table(
            ["M × N × K", "chosen", "of all configurations", "of cuBLAS"],
            rows,
            f"shapes that took no part in the rule (recorded, {row['device']}, {row['date']})",
            left=(0, 1, 2),
            below=(f"Right for {right} of {len(losses)}; {100 * sum(losses) / len(losses):.1f} % slower than the fastest on average.",),
        )


@explained
def judged(device: str = DEVICE, dtype: str = "float32") -> Judged:
    """The rule on `held_out(dtype)`. Raises CourseError if they were not recorded on `device`."""
    timed = _timed(device, dtype)
    table = _table(timed, device, dtype)
    found = {problem: timed[problem] for problem in held_out(dtype) if problem in timed}
    if not found:
        raise CourseError(f"No shape was held out on {device}: course record --strategy times some.")
    return Judged(found, {problem: estimates(problem, table, device) for problem in found})


def estimates(problem: Problem, table: Strategy, device: str = DEVICE) -> dict[str, float]:
    """Configuration -> milliseconds that a problem would take, from the shapes of `table` alone."""
    sms, tilings, problems = hardware.gpu(device).sms, _tilings(table.dtype), shapes(table.dtype)
    found = {}
    for name in tilings:
        times = {shape: rows[name]["milliseconds"] * 1e3 for shape, rows in table.rows.items() if name in rows}
        if times:
            fastest = tuple(min(row["milliseconds"] for row in table.rows[shape].values()) * 1e3 for shape in times)
            model = _model(tilings[name], tuple(problems[shape] for shape in times), tuple(times.values()), fastest, sms)
            found[name] = model.microseconds(_load(tilings[name], problem, sms)) / 1e3
    return found


@functools.cache
def _model(tiling: Tiling, problems: tuple[Problem, ...], times: tuple[float, ...], fastest: tuple[float, ...], sms: int) -> TileTime:
    """Fitted to a configuration's times (µs), the more closely the nearer each is to the fastest: nobody asks how slow the slowest is."""
    loads = [_load(tiling, problem, sms) for problem in problems]
    return fitted(loads, times, [least / time for least, time in zip(fastest, times, strict=True)])


def _load(tiling: Tiling, problem: Problem, sms: int):
    return tiling.load(problem.m, problem.n, problem.k, problem.batch, sms)


def _tilings(dtype: str) -> dict[str, Tiling]:
    """What the constants of each configuration make of C."""
    source = _source(dtype)
    walks = " persistent[] = " in source  # its blocks stay
    names = ("BM", "BN", "BK", "SLICES")
    shipped = {name: int(re.search(rf"\b{name} = (\d+)", source)[1]) for name in names}
    found = {}
    for name, constants in _family(dtype).configurations.items():
        rows, columns, step, slices = ({**shipped, **constants}[key] for key in names)
        found[name] = Tiling((rows, columns), step, slices, ROOM, _family(dtype).piece, walks)
    return found


def _source(dtype: str) -> str:
    return steps.get(_family(dtype).step).kernel_source()


@explained
def recorded(device: str = DEVICE, dtype: str = "float32") -> Strategy:
    """The recorded table of a device, of matrices A and B of this type. Raises CourseError if there is none."""
    return _table(_timed(device, dtype), device, dtype)


def _table(timed: _Timed, device: str, dtype: str) -> Strategy:
    found = {shape: timed[problem] for shape, problem in shapes(dtype).items() if problem in timed}
    if not found:
        raise CourseError(f"The configurations were not recorded on {device}: course record --strategy does it.")
    return Strategy(found, dtype)


def _timed(device: str, dtype: str) -> _Timed:
    """Everything recorded on a device. Raises CourseError for a type without configurations."""
    found: _Timed = {}
    rows, configurations = [row for row in rungs.recorded(variants=True) if row["dtype"] == dtype], _family(dtype).configurations
    names = {name for name in {row["device"] for row in rows} if rungs.canonical(name) == rungs.canonical(device)}
    for row in rows:
        if row["device"] in names and row.get("configuration") in configurations:
            problem = Problem(row["m"], row["n"], row["k"], batch=row.get("batch", 1), dtype=dtype)
            found.setdefault(problem, {})[row["configuration"]] = row
    return found


def sources(source: str, names: Sequence[str] | None = None, dtype: str = "float32") -> dict[str, str]:
    """Configuration -> the source with its constants. names: of which; None: of all of this type.

    Raises CourseError for a name or a type without configurations, and what `variant` raises.
    """
    configurations = _family(dtype).configurations
    wanted = tuple(configurations) if names is None else listed(names)
    if wanted is None:
        raise CourseError(f"names={names!r}: give a list of configurations, such as {list(configurations)[:1]}, or None for all.")
    return {name: variant(source, **_named("configuration", name, configurations)) for name in wanted}
