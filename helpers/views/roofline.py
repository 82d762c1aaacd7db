"""Roofline: how fast a kernel could be, given how many operations it does per byte, and where the kernels are.

A roof for each level of memory. DRAM's roof meets the *compulsory* intensity: each input read once, the result written
once, whatever the kernel does. The roof of the L1 cache meets the intensity of what the kernel *requests*: the 32-byte
sectors its loads and stores ask for, from its counters. Of those, what misses L1 stands under L2's roof: all of it, where
tiles are copied once and then read from shared memory. No maker states the bandwidth of L2, so its roof is drawn only for
GPUs on which it was measured.

A run without a time stands where the model predicts it, if its size is one that the model was tried at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator
from matplotlib.transforms import Bbox

from helpers.element_types import element_type, result_type
from helpers.errors import CourseError
from helpers.model import hardware
from helpers.model.hardware import digits
from helpers.sim.code.hardware_units import SECTOR_BYTES as SECTOR
from helpers.sim.counting import names

from .canvas import BLUE, GREEN, INK, ORANGE, QUIET, VERMILLION, Choice, NothingToSee, heading, picture
from .given import must_be

DEFAULT_GPU = "H200 SXM"
L1_BYTES_PER_CLOCK = 128  # per SM; CUDA C++ Best Practices: the L1 data path is 128 bytes wide
_SECTORS = tuple(names.sectors("global", op) for op in ("ld", "st"))
_TRIED = 2 * 512**3  # operations of the smallest product that the model's error was measured on


@dataclass(frozen=True)
class Point:
    """One kernel. Intensities in FLOPs per byte; tflops None where it was not timed."""

    name: str
    flops: int
    compulsory: float | None
    requested: float | None
    tflops: float | None = None
    kind: str = ""
    dtype: str = "float32"  # what is multiplied: FP32 lanes do float32, tensor cores all else


@dataclass(frozen=True)
class Roof:
    """Ceilings of a GPU: TFLOPS of what multiplies (unit), TB/s of DRAM, of all its L1 caches together, and of L2 (None: unknown)."""

    gpu: str
    compute: float
    dram: float
    l1: float
    l2: float | None = None
    unit: str = "FP32 lanes"

    def attainable(self, intensity: float, level: str = "dram") -> float:
        """TFLOPS that `intensity` (FLOPs per byte of that level: "dram", "l1" or "l2") allows."""
        return min(self.compute, intensity * getattr(self, level))


def roof(gpu: str = DEFAULT_GPU, dtype: str = "float32") -> Roof:
    """The ceilings of a GPU of the hardware table for products of an element type. Raises CourseError for what it does not know."""
    card = hardware.gpu(gpu)
    unit = card.unit(dtype)
    if unit is None:
        raise CourseError(f"The tensor cores of the {card.name} do not multiply {element_type(dtype).label}: there is no roof to draw.")
    name = unit.name if dtype == "float32" else f"{unit.name} ({element_type(dtype).label})"
    l1 = card.sms * L1_BYTES_PER_CLOCK * card.clock_mhz * 1e6 / 1e12
    return Roof(card.name, unit.tflops, card.dram_gbs / 1e3, l1, card.l2_gbs and card.l2_gbs / 1e3, name)


def point(run, name: str | None = None, tflops: float | None = None, kind: str = "") -> Point:
    """Where a run stands. tflops: of a measurement, a record or a prediction of the same kernel; default: the run's own time."""
    product = getattr(run, "problem", {}).get("problem")
    on_tensor_cores = product is not None and run.kernel.compiled.matrix_types
    flops = product.flops if on_tensor_cores else 2 * run.counters.get(names.threads("ffma"), 0)
    sectors = sum(run.counters.get(key, 0) for key in _SECTORS)
    least = compulsory_bytes(run)
    milliseconds = getattr(run, "milliseconds", None)
    if tflops is None and milliseconds and flops:
        tflops, kind = flops / milliseconds / 1e9, kind or "measured"
    return Point(
        name or run.kernel.compiled.entry, flops,
        flops / least if least and flops else None,
        flops / (SECTOR * sectors) if sectors and flops else None,
        tflops, kind, product.dtype if on_tensor_cores else "float32",
    )  # fmt: skip


def _placed(run, gpu: str) -> Point:
    """Where a run stands on `gpu`: by its own time, else by the model's."""
    must_be("run", "roofline", run)
    found = point(run)
    if found.tflops is None and found.flops >= _TRIED:
        try:
            return replace(found, tflops=found.flops / run.predict(gpu=gpu).milliseconds / 1e9, kind="predicted")
        except CourseError:
            pass  # the model cannot say: the roofs alone are shown
    return found


def gemm_point(
    m: int,
    n: int,
    k: int,
    name: str = "",
    dtype: str = "float32",
    out_dtype: str = "",
    tflops: float | None = None,
    kind: str = "",
) -> Point:
    """A matrix product as such, before any kernel: 2·m·n·k operations on m·k + k·n elements of dtype and m·n of out_dtype."""
    flops = 2 * m * n * k
    least = (m * k + k * n) * element_type(dtype).bytes + m * n * element_type(result_type(dtype, out_dtype)).bytes
    if not flops:
        raise NothingToSee(f"A product of {m} × {n} × {k} does no operation, so it has no place under the roof.")
    shape = f"{m}³" if m == n == k else f"{m} × {n} × {k}"
    return Point(name or shape, flops, flops / least, None, tflops, kind, dtype)


def compulsory_bytes(run) -> int:
    """Bytes of all matrices once: of the product the run computed, or of the arrays a traced run was given; 0 if unknown."""
    if product := getattr(run, "problem", {}).get("problem"):
        return product.compulsory_bytes
    trace = getattr(run, "outcome", run).trace
    return sum(array.nbytes for array in trace.allocations if array.space == "global") if trace is not None else 0


def controls(what, gpu=None):
    """Whose roof."""
    return (Choice("gpu", "GPU", tuple((card.name, card.name) for card in hardware.gpus()), DEFAULT_GPU),)


@picture("Roofline", controls=controls, size=(10, 6.2), margins=(0.95, 0.8, 0.35, 1.05), order=80)
def roofline(what: Any, gpu: str = DEFAULT_GPU, *, ax):
    """Roofs of `gpu`, and points under them. what: a Run, a Point (see `point`, `gemm_point`), or several of them."""
    items = list(what) if isinstance(what, Sequence) else [what]
    points = [item if isinstance(item, Point) else _placed(item, gpu) for item in items]
    # The highest of the roofs that the points have: the others' points lie under lower ones, which are drawn as lines.
    roofs = sorted({roof(gpu, dtype) for dtype in {item.dtype for item in points} or {"float32"}}, key=lambda one: one.compute)
    top = roofs[-1]
    intensities = [value for item in points for value in (item.compulsory, item.requested) if value]
    low = min([*intensities, 0.25]) / 3
    high = max([*intensities, 8 * top.compute / top.dram]) * 2
    speeds = [item.tflops for item in points if item.tflops]
    floor = min([top.attainable(low, "dram"), *[speed / 2 for speed in speeds]])
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(low, high)
    ax.set_ylim(floor, max([top.compute, *speeds]) * 2.6)
    drawn = [_draw(ax, item, roof(gpu, item.dtype), number) for number, item in enumerate(points)]
    said = [text for text, _ in drawn]
    _name_all(ax, [name for _, name in drawn if name], roofs)
    taken = [text.get_window_extent() for text in ax.texts] + [_around(ax, line) for line in ax.lines if line.get_marker() in ("o", "s")]
    # Names above their slopes, DRAM's below: points between the slopes are named there.
    slopes = [(top.dram, INK, "-", "DRAM", 0.42), (top.l1, QUIET, "-", "L1 caches", 0.66)]
    if top.l2:
        slopes.append((top.l2, QUIET, "--", "L2", 0.5))
    for bandwidth, colour, dashes, name, place in slopes:
        knee = top.compute / bandwidth
        ax.plot([low / 10, knee], [low / 10 * bandwidth, top.compute], color=colour, linewidth=2.5, linestyle=dashes, zorder=1)
        text = f"{name} {bandwidth:.3g} TB/s" + (", measured" if name == "L2" else "")
        _along(ax, bandwidth, max(low, floor / bandwidth), knee, text, colour, place, name == "DRAM", taken)
    for one in roofs:
        ax.plot([one.compute / one.l1, high], [one.compute] * 2, color=INK, linewidth=2.5, zorder=1)
        ax.annotate(f"{one.unit} {digits(one.compute)} TFLOPS", (high, one.compute), (-4, 11), textcoords="offset points", ha="right",
                    fontsize=13, weight="bold")  # fmt: skip
    ax.set_xlabel("FLOPs per byte")
    ax.set_ylabel("TFLOPS")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_locator(NullLocator())
    ax.grid(which="major")
    keys = [("o", "per byte it must move (DRAM roof)", [item.compulsory for item in points]),
            ("s", "per byte it requests (L1 roof)", [item.requested for item in points])]  # fmt: skip
    handles = [Line2D([], [], linestyle="", marker=marker, color=QUIET, markerfacecolor="white", markeredgewidth=2, label=label)
               for marker, label, values in keys if any(values)]  # fmt: skip
    if len(handles) > 1:
        ax.legend(handles=handles, loc="lower right", handletextpad=0.3)
    knee = top.compute / top.dram
    heading(ax, f"Roofline of the {top.gpu}", detail=f"below {knee:.3g} FLOPs per byte DRAM is the limit, above it arithmetic")
    return (
        f"Roofline of the {top.gpu}: {', '.join(f'{one.unit} {digits(one.compute)} TFLOPS' for one in roofs)}, DRAM {top.dram:.3g} TB/s, "
        + (f"L2 {top.l2:.3g} TB/s (measured), " if top.l2 else "")
        + f"L1 caches {top.l1:.3g} TB/s; "
        f"the DRAM roof meets the arithmetic roof at {knee:.3g} FLOPs per byte. " + " ".join(said)
    )


def _around(ax, line: Line2D) -> Bbox:
    """The place that a mark takes, in pixels."""
    x, y = ax.transData.transform((line.get_xdata()[0], line.get_ydata()[0]))
    half = line.get_markersize() * ax.figure.dpi / 72
    return Bbox.from_extents(x - half, y - half, x + half, y + half)


def _along(ax, bandwidth: float, low: float, knee: float, text: str, colour: str, place: float, below: bool, taken: Sequence[Bbox]) -> None:
    """A label that follows the slanted roof, above or below it. place: from 0, its foot, to 1, where it bends; it moves from there
    to where fewest of the places taken (in pixels) are in its way."""
    (x0, y0), (x1, y1) = ax.transData.transform([(low, low * bandwidth), (knee, knee * bandwidth)])
    angle = np.degrees(np.arctan2(y1 - y0, x1 - x0))
    em = 13 * ax.figure.dpi / 72
    along = np.array([x1 - x0, y1 - y0]) / np.hypot(x1 - x0, y1 - y0)
    beside = np.array([along[1], -along[0]]) * em * (0.9 if below else -0.9)
    half = 0.31 * em * len(text)  # of the label's length

    def in_the_way(at: float) -> int:
        middle = np.array([x0 + at * (x1 - x0), y0 + at * (y1 - y0)]) + beside
        spots = [middle + along * shift for shift in np.linspace(-half, half, 15)]
        outside = sum(not inside.contains(*spot) for spot in spots)
        return outside + sum(box.padded(0.5 * em).contains(*spot) for box in taken for spot in spots)

    inside = ax.get_window_extent().padded(-0.9 * em)
    margin = min(0.5, (half + em) / np.hypot(x1 - x0, y1 - y0))
    place = min(np.linspace(margin, 1 - margin, 25), key=lambda at: (in_the_way(at), abs(at - place)))
    x = low * (knee / low) ** place
    ax.annotate(text, (x, x * bandwidth), (8, -17) if below else (-5, 9), textcoords="offset points", rotation=angle,
                rotation_mode="anchor", ha="center", fontsize=13, color=colour, weight="bold")  # fmt: skip


@dataclass(frozen=True)
class _Name:
    """What is written beside a mark."""

    text: str
    x: float
    y: float
    colour: str
    level: bool  # rather at the mark's height than below it


def _draw(ax, item: Point, top: Roof, number: int) -> tuple[str, _Name | None]:
    """Both intensities of one point, on a vertical line up to their roofs. Returns what it says, and the name that is to be written."""
    said, name = [], None
    colour = (BLUE, VERMILLION, GREEN, ORANGE)[number % 4]
    for level, intensity in (("dram", item.compulsory), ("l1", item.requested)):
        if intensity is None:
            continue
        allowed = top.attainable(intensity, level)
        y = item.tflops or allowed
        what = "bytes it must move" if level == "dram" else "bytes it requests"
        ax.plot([intensity] * 2, [y, allowed], color=colour, linewidth=1.6, linestyle=":", zorder=2)
        hollow = item.tflops is None or item.kind == "predicted"
        ax.plot(intensity, y, "o" if level == "dram" else "s", markersize=11, color=colour, markerfacecolor="white" if hollow else colour,
                markeredgewidth=2.2, zorder=3)  # fmt: skip
        kind = f" {item.kind}" if item.kind not in ("", "measured") else ""
        figure = f"{digits(item.tflops)}{kind}" if item.tflops else f"≤ {digits(allowed)}"
        if level == "l1" or item.requested is None:  # one name is enough where a kernel has two marks
            name = _Name(f"{item.name}  {figure}", intensity, y, colour, item.tflops is not None)
        said.append(
            f"{item.name}, {what}: {intensity:.3g} FLOPs per byte, the roof allows {digits(allowed)} TFLOPS"
            + (f", {digits(item.tflops)} {kind.strip() or 'reached'}." if item.tflops else ".")
        )
    return " ".join(said) or f"{item.name} did no operation that was counted.", name


_BESIDE = ((12, 0), (12, -16), (12, 20), (12, -34), (0, -24), (0, -42))  # points from a mark to its name, and the same to the left


def _name_all(ax, names: Sequence[_Name], roofs: Sequence[Roof]) -> None:
    """Write the names, each where fewest lines, marks and other names are in its way; on the side that has more room, if all are alike.
    What is still behind one is covered."""
    em = 13 * ax.figure.dpi / 72
    inside = ax.get_window_extent()
    right, top = inside.x1 - 4 * em / 13, [ax.transData.transform((1, one.compute))[1] for one in roofs]
    taken = [Bbox.from_extents(right - 0.62 * em * len(f"{one.unit} {digits(one.compute)} TFLOPS"), y, right, y + 2 * em)
             for one, y in zip(roofs, top, strict=True)]  # fmt: skip
    taken += [_around(ax, line) for line in ax.lines if line.get_marker() in ("o", "s")]
    stems = [line.get_window_extent() for line in ax.lines if line.get_linestyle() == ":"]

    def place(name: _Name, shift: tuple[float, float]) -> Bbox:
        x, y = ax.transData.transform((name.x, name.y)) + np.array(shift) * em / 13
        width = 0.62 * em * len(name.text)
        left = x - width / 2 if shift[0] == 0 else x - width if shift[0] < 0 else x
        return Bbox.from_extents(left, y - 0.75 * em, left + width, y + 0.75 * em)

    def in_the_way(box: Bbox) -> int:
        columns = np.linspace(box.x0, box.x1, 25)
        found = 4 * sum(not inside.x0 < x < inside.x1 for x in columns) + 25 * (not inside.y0 < box.y0 < box.y1 < inside.y1)
        found += 8 * sum(box.overlaps(other) for other in taken) + sum(box.overlaps(stem) for stem in stems)
        x = ax.transData.inverted().transform(np.stack([columns, columns], axis=-1))[:, 0]
        for one in roofs:
            for bandwidth in (one.dram, one.l1, *((one.l2,) if one.l2 else ())):
                y = ax.transData.transform(np.stack([x, np.minimum(one.compute, x * bandwidth)], axis=-1))[:, 1]
                found += np.count_nonzero((box.y0 < y) & (y < box.y1))
        return int(found)

    for name in names:
        crowded = (ax.transData.transform((name.x, name.y))[0] - inside.x0) / inside.width > 0.62
        shifts = [(x * side, y) for x, y in _BESIDE for side in ((-1, 1) if crowded else (1, -1))]
        shifts.sort(key=lambda shift: shift[1] != (0 if name.level else -16))
        shift = min(shifts, key=lambda shift: in_the_way(place(name, shift)))
        taken.append(place(name, shift))
        ax.annotate(name.text, (name.x, name.y), shift, textcoords="offset points", va="center",
                    ha="center" if shift[0] == 0 else "right" if shift[0] < 0 else "left", fontsize=13, color=name.colour, weight="bold",
                    zorder=4, bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5})  # fmt: skip
