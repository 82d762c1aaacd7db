"""What is known about a step besides what this notebook counted: times that were measured, recorded or published.

A lesson never states a time itself. It asks here, and shows with the answer where it comes from.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from helpers.arguments import explained
from helpers.element_types import named
from helpers.errors import CourseError
from helpers.model.hardware import digits

from . import rungs, steps
from .rungs import Rung
from .table import Cell, Table, Tabular

# In this order: the reader's own times first, then the course's, then other people's kernels, last the model's.
PREFERENCE = (rungs.MEASURED, rungs.RECORDED, rungs.PUBLISHED, rungs.PREDICTED)


@dataclass(frozen=True)
class Speedup:
    """How many times as fast one rung is as another of the same kind, on the same device and size.

    own: what the reader's own ladder says of the same two, where that is something else.
    """

    fast: Rung
    slow: Rung
    own: Speedup | None = None

    @property
    def factor(self) -> float:
        return self.fast.tflops / self.slow.tflops

    @property
    def source(self) -> str:
        """Whose kernel, kind, device, size and source, as a phrase; and what the reader's own ladder says, if that is not it."""
        rung = self.fast
        whose = "yours, " if rung.mine else "the course's kernel, " if rung.kind == rungs.RECORDED else ""
        origin = f", {rung.source}" if rung.kind == rungs.PUBLISHED else ""
        types = [named(one.dtype, one.out_dtype) for one in (rung, self.slow)]
        compared = f", {types[0]} against {types[1]}" if types[0] != types[1] else ""
        beside = f"; on your ladder, {self.own.fast.kind}: {self.own.factor:.3g} times" if self.own else ""
        return f"{whose}{rung.kind}: {rung.device}, {rung.m} × {rung.n} × {rung.k}{compared}{origin}{beside}"

    def __str__(self) -> str:
        return f"{self.factor:.3g} times as fast ({self.source})"


@explained
def speedup(step: int | str, over: int | str, size: int = 4096, device: str = "H200 SXM", kinds: Sequence[str] = PREFERENCE) -> Speedup:
    """The best evidence for how much faster `step` is than `over` at size³: the first of `kinds` that has timed both;
    `device` before others. Where a source has several kernels of one idea, the fastest stands, for either step.

    Raises CourseError if nobody has timed both, for a step or kinds that are none, and for a GPU of which no time is known.
    """
    fast, slow = steps.get(step), steps.get(over)
    device, kinds = _timed(device), rungs.known_kinds(kinds)
    types = {(one.dtype, one.out_dtype) for one in (fast, slow)}
    every = [rung for pair in types for rung in rungs.rungs(size, dtype=pair[0], out_dtype=pair[1]) if rung.tflops]
    timed = [rung for rung in every if not (rung.mine and rung.kind == rungs.RECORDED)]  # a climb with the course's kernel: its time again
    pairs = [
        Speedup(one, other) for one in timed for other in timed
        if (one.step, other.step) == (fast.number, slow.number) and _origin(one) == _origin(other)
    ]  # fmt: skip

    def rank(pair: Speedup) -> tuple:
        return pair.fast.device != device, -pair.fast.tflops, -pair.slow.tflops

    own = min((pair for pair in pairs if pair.fast.mine), key=lambda pair: (PREFERENCE.index(pair.fast.kind), *rank(pair)), default=None)
    for kind in kinds:
        if found := [pair for pair in pairs if pair.fast.kind == kind]:
            best = min(found, key=rank)
            return best if best.fast.mine or own is None or own.fast.kind == best.fast.kind else replace(best, own=own)
    raise CourseError(f"Nobody has timed both {fast.slug} and {slow.slug} at {size}³ yet. Climb with both first.")


def _timed(device: str) -> str:
    """The GPU's name on the ladder. Raises CourseError for one of which there is no time, neither the course's, nor others', nor the
    reader's."""
    names = [rung.device for rung in rungs.published()] + [climb.device for climb in rungs.climbs() if climb.tflops]
    known = {rungs.canonical(name) for name in [*names, *(row["device"] for row in rungs.recorded())]}
    name = rungs.canonical(device)
    if not isinstance(name, str) or name not in known:
        raise CourseError(f"Nothing is recorded for a GPU called {device!r}; there are: {', '.join(sorted(known))}.")
    return name


def _origin(rung: Rung) -> tuple:
    """Rungs of one origin may be compared."""
    return rung.kind, rung.device, rung.source, rung.mine


@dataclass(frozen=True)
class Recorded:
    """Recorded times of one step's reference kernel, one row per size, each beside cuBLAS's in the same run. missing: sentences about
    sizes without one."""

    rows: tuple[Rung, ...]
    missing: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([*(
            f"{rung.name} at {rung.m} × {rung.n} × {rung.k}: {rung.milliseconds:.4g} ms, {digits(rung.tflops)} TFLOPS"
            f"{f', {rung.cublas_ratio:.2f} × cuBLAS' if rung.cublas_ratio else ''} "
            f"(recorded, {rung.device}, {rung.date}{f'; noisy: {rung.noisy}' if rung.noisy else ''})"
            for rung in self.rows
        ), *self.missing])  # fmt: skip

    __repr__ = __str__


@explained
def recorded(step: int | str, *sizes: int, device: str = "H200 SXM") -> Recorded:
    """The course's own times of a step at these sizes³ on `device`. Raises CourseError if one was not recorded, and as `on_record`."""
    found = on_record(step, *sizes, device=device)
    if found.missing:
        raise CourseError(found.missing[0])
    return found


@explained
def on_record(step: int | str, *sizes: int, device: str = "H200 SXM") -> Recorded:
    """As `recorded`, for a step that may not have been: what is missing is said. Raises CourseError for a step that is none, without a
    size, and for a GPU of which no time is known."""
    wanted, device = steps.get(step), _timed(device)
    if not sizes:
        raise CourseError(f"At which size? Give one or several, such as recorded({wanted.slug!r}, 4096).")
    rows, missing = [], []
    for size in sizes:
        found = [
            rung for rung in rungs.rungs(size, dtype=wanted.dtype, out_dtype=wanted.out_dtype, kinds=[rungs.RECORDED])
            if rung.step == wanted.number and rung.device == device and not rung.mine
        ]  # fmt: skip
        if found:
            rows.append(found[-1])
        else:
            missing.append(f"{wanted.slug} was not recorded at {size}³ on the {device}.")
    return Recorded(tuple(rows), tuple(missing))


@dataclass(frozen=True, repr=False)
class Sustained(Tabular):
    """cuBLAS for seconds on end: what the card's limit of power leaves of its speed, on random numbers and on zeros."""

    device: str
    date: str
    rows: tuple[Mapping[str, Any], ...]

    def table(self) -> Table:
        cells = [
            [
                f"{named(row['dtype'])}, {row['size']}³",
                row["data"],
                f"{row['tflops']} TFLOPS",
                f"{row['clock_mhz']} MHz",
                f"{row['watts']} W",
            ]
            for row in self.rows
        ]
        return Table(
            ["product", "numbers", "speed", "clock", "power"], cells, f"recorded: cuBLAS on {self.device}, {self.date}", left=(0, 1)
        )


@explained
def sustained() -> Sustained:
    """The recorded runs of cuBLAS that lasted seconds."""
    found = rungs.cublas_file()
    return Sustained(found["about"]["device"], found["about"]["date"], tuple(found["sustained"]))


@dataclass(frozen=True, repr=False)
class Elsewhere(Tabular):
    """Published rungs of some steps: one row per source, one column per step."""

    steps: tuple[steps.Step, ...]
    rows: tuple[tuple[Rung, ...], ...]  # per source, one rung per step

    def table(self) -> Table:
        header = ["GPU", "size", *(f"{step.number:02} {_in_a_line(step.title)}" for step in self.steps), "source"]
        cells: list[list[str | Cell]] = []
        for row in self.rows:
            figures = [f"{rung.tflops:.2f} ({100 * rung.cublas_ratio:.1f} %)" for rung in row]
            one = row[0]
            shape = f"{one.m}³" if one.m == one.n == one.k else f"{one.m} × {one.n} × {one.k}"
            source = Cell(one.source, html.escape(one.source).replace("/", "/<wbr>").replace("_", "_<wbr>"))
            cells.append([one.device, shape, *figures, source])
        return Table(header, cells, "published: TFLOPS (share of cuBLAS)", left=(0, 1, len(header) - 1))


def _in_a_line(title: str) -> str:
    """A title in small letters, but for what is no word: 1D, FP8."""
    return " ".join(word.lower() if word[1:].islower() else word for word in title.split())


@explained
def elsewhere(*names: int | str) -> Elsewhere:
    """What others published for these steps (all of them, in one source), best known source first.

    Where a source has several kernels of one idea, the fastest stands. Raises CourseError without a step, and for one that is none.
    """
    if not names:
        raise CourseError("elsewhere wants a step or several, such as elsewhere('naive', 'coalesced').")
    wanted = tuple(steps.get(name) for name in names)
    sources: dict[tuple, list[Rung]] = {}
    for rung in rungs.published():
        sources.setdefault((rung.source, rung.device, rung.m), []).append(rung)
    rows = []
    for found in sources.values():
        best = [_fastest(found, step.number) for step in wanted]
        if all(best):
            rows.append(tuple(best))
    return Elsewhere(wanted, tuple(rows))


def _fastest(found: Sequence[Rung], step: int) -> Rung | None:
    return max((rung for rung in found if rung.step == step), key=lambda rung: rung.tflops, default=None)
