"""The ladder: every kernel's speed, one rung per step, and how each figure came about.

It draws rows of `helpers.course.rungs.rungs()`. How a figure came about is never lost: what the reader measured, what was
predicted, what the course recorded, what others published, cuBLAS and the hardware's limit are drawn differently.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from helpers.element_types import named
from helpers.model.hardware import digits

from .canvas import AS_TEXT, BLUE, GREEN, INK, ORANGE, PURPLE, QUIET, SKY, VERMILLION, Choice, NothingToSee, heading, in_words, picture

CUBLAS = "cuBLAS"
# kind -> marker, face, edge, size. Yours are round and green; a prediction is hollow.
MARKS = {
    "measured": ("o", GREEN, GREEN, 11),
    "predicted": ("o", "white", GREEN, 11),
    "published": ("^", "white", QUIET, 8),
}
NAMES = {
    "measured": "you, measured", "predicted": "you, predicted", "counted": "you, counted only",
    "recorded": "recorded by the course", "published": "published by others",
}  # fmt: skip


_RUNS, _ERROR = "middle half of the runs", "model's largest error"
_SPREAD = {_RUNS: ("measured", "recorded"), _ERROR: ("predicted",)}
_SPANS = {
    _RUNS: "The short line at a time spans the middle half of its runs",
    _ERROR: "at a prediction, the model's largest error on kernels like it to both sides",
}
_PART = 0.02  # of a line's TFLOPS: a rung's own cuBLAS that differs by more was another run
_PASSED = 1.2  # times a limit: no clock makes a kernel so much faster than its unit can be
_USUAL = 4.1  # inches that the Axes are high, where the rows are as many as in most lessons
_PITCH = 0.42  # inches from one row to the next where there are few, or their names take two lines
_LOWEST = 0.8  # inches that the Axes are high at least
_LEFT, _BELOW, _RIGHT, _ABOVE = 2.4, 1.25, 2.05, 1.05  # inches around the Axes
_FEWEST = 8  # characters of a line of a name that is cut
_ONE_LINE, _SMALL = 23, 11  # characters of a name that fit beside the rungs, about; and points of one that takes two lines
_SPEED, _SHARE = 58, 134  # where the columns of figures beside the rungs end, in points right of the Axes


@dataclass(frozen=True)
class Row:
    """One rung of the picture: the marks of one step, or of one kernel outside the steps."""

    step: int | None
    label: str
    rungs: tuple[Any, ...]


def rows(rungs: Iterable[Any]) -> list[Row]:
    """The rungs by step, the lowest first, then kernels outside the steps, the slowest first; cuBLAS and limits left out."""
    groups: dict[tuple, list] = {}
    for rung in rungs:
        if rung.kind == "limit" or rung.name == CUBLAS:
            continue
        key = (0, rung.step, "") if rung.step is not None else (1, 0, rung.name)
        groups.setdefault(key, []).append(rung)
    found = []
    speed = {key: max(rung.tflops or 0 for rung in group) for key, group in groups.items() if key[2]}
    for (_, step, name), group in sorted(groups.items(), key=lambda item: (item[0][:2], speed.get(item[0], 0), item[0][2])):
        ours = [rung for rung in group if rung.kind == "recorded"] or [rung for rung in group if rung.mine] or group
        title = max(ours, key=lambda rung: rung.tflops or 0).name
        found.append(Row(None if name else step, name or f"{step:02} {in_words(title)}", tuple(group)))
    return found


def devices(rungs: Iterable[Any]) -> list[str]:
    """The devices, those with something of the reader's first, then those with recorded runs."""
    rank: dict[str, int] = {}
    for rung in rungs:
        own = 0 if rung.mine else 1 if rung.kind == "recorded" else 2
        rank[rung.device] = min(rank.get(rung.device, 3), own)
    return sorted(rank, key=lambda device: (rank[device], device))


def controls(rungs, device=None, log=None):
    """Which GPU, and the scale."""
    known = devices(rungs)
    every = (("all, as a share of cuBLAS", "all"),) if len(known) > 1 else ()
    return (
        Choice("device", "GPU", tuple((name, name) for name in known) + every) if known else Choice("device", "GPU", (("none", None),)),
        Choice("log", "scale", (("linear", False), ("logarithmic", True))),
    )


def _size(rungs, device=None, log=False) -> tuple[float, float]:
    """Inches: as high as many rows need, those of a class for example, and no higher than a few do. The lines of several GPUs have
    their names among the rows, and room for them."""
    known = devices(rungs)
    chosen = device if device in known or device == "all" else next(iter(known), None)
    shown = rows([rung for rung in rungs if device == "all" or rung.device == chosen])
    long = sum(len(row.label) > _ONE_LINE for row in shown)
    few = _USUAL if device == "all" or not known else min(_USUAL, max(_LOWEST, _PITCH * (len(shown) + 0.2)))
    return 10, max(few + _BELOW + _ABOVE, 2.4 + (_PITCH if long > 1 else 0.3) * len(shown))


@picture("Ladder", controls=controls, size=_size, margins=(_LEFT, _BELOW, _RIGHT, _ABOVE), order=90, of="rungs")
def ladder(rungs: Sequence[Any], device: str | None = None, log: bool = False, *, ax):
    """TFLOPS per step on one device (default: the one the reader has most to do with), or of all as a share of cuBLAS.

    rungs: rows of `helpers.course.rungs.rungs()`. device: a name, or "all". log: a logarithmic scale, for the lowest rungs; the bars
    then begin anywhere, and their lengths say nothing.
    """
    known = devices(rungs)
    if not known:
        raise NothingToSee("The ladder is still empty. Climb with a kernel: naive.climb(), for example.")
    if device == "all":
        return _all(ax, rungs, known, log)
    device = device if device in known else known[0]
    chosen = [rung for rung in rungs if rung.device == device]
    shown = rows(chosen)
    timed = [rung for row in shown for rung in row.rungs if rung.tflops]
    low = min((rung.tflops for rung in timed), default=0.5)
    high = max([rung.tflops for rung in chosen if rung.tflops], default=1.0)
    start = low / 2 if log else 0
    if log:
        ax.set_xscale("log")
    in_brackets = [_row(ax, y, row, start) for y, row in enumerate(shown)]
    lines = [rung for rung in chosen if rung.tflops and (rung.kind == "limit" or rung.name == CUBLAS)]
    several = _of_several_runs(lines, timed)
    _verticals(ax, lines, max((rung.tflops for rung in timed), default=0), several)
    ax.set_xlim(start, high * (1.35 if log else 1.04))
    spread = [kind for kind in _SPREAD if any(rung.kind in _SPREAD[kind] and rung.spread for rung in timed)]
    _finish(ax, [row.label for row in shown], {rung.kind: _who(rung) for row in shown for rung in row.rungs}, spread)
    size = chosen[0]
    shape = f"{size.m}³" if size.m == size.n == size.k else f"{size.m} × {size.n} × {size.k}"
    types = named(size.dtype, size.out_dtype)
    yours = ", bold green: yours" if any(rung.mine for row in shown for rung in row.rungs) else ""
    bars = ", in brackets: the bar's" if any(in_brackets) else ""
    heading(ax, device, detail=f"{types}, {shape}{yours}{bars}", above=24)  # the lines' names stand below it
    titles = (("TFLOPS", _SPEED), *((("of cuBLAS", _SHARE),) if any(rung.cublas_ratio for row in shown for rung in row.rungs) else ()))
    for text, right in titles if timed else ():
        ax.annotate(text, (1, 0), (right, -5), xycoords="axes fraction", textcoords="offset points", ha="right", va="top", fontsize=12,
                    color=QUIET, annotation_clip=False)  # fmt: skip
    own = "; each % is of the cuBLAS in its own run" if len(titles) > 1 else ""
    unknown = bool(timed) and not own and not any(rung.name == CUBLAS for rung in lines)
    own = "; no time of cuBLAS is recorded here" if unknown else own
    ax.set_xlabel(f"TFLOPS (10¹² operations per second), {_scale(log)}{own}")
    said = [f"{row.label}: " + ", ".join(_say(rung) for rung in _once(row.rungs)) for row in shown]
    said += [f"{_line_name(rung, several)} ({rung.kind}): {digits(rung.tflops)} TFLOPS" for rung in lines]
    said += [f"No time of cuBLAS is recorded for {types}, {shape}, on {device}: where there is a GPU, profile() runs it"] if unknown else []
    said += ["; ".join(_SPANS[kind] for kind in spread)] if _RUNS in spread else []
    return f"Ladder on {device}, {types}, {shape}. " + (". ".join(said) + "." if said else "No kernel has climbed yet.")


def _three_digits(value: float) -> str:
    """0.498, 6.35, 54.0, 123, 1320."""
    return f"{value:#.3g}".removesuffix(".") if value < 999.5 else digits(value)


def _scale(log: bool) -> str:
    return "logarithmic scale" if log else "linear scale"


def _once(rungs: Iterable[Any]) -> list[Any]:
    """The rungs of a row. Who climbs with the course's own kernel gets its recorded time, which then stands there twice: once is enough."""
    known = list(rungs)
    own = {_figure(rung) for rung in known if rung.mine and rung.kind == "recorded"}
    return [rung for rung in known if rung.mine or rung.kind != "recorded" or _figure(rung) not in own]


def _figure(rung) -> str:
    """What two times of one recording have in common: not the last bit, as they come by different roundings."""
    return f"{rung.tflops or 0:.4g}"


def _who(rung) -> str:
    """Whose figure it is, and how it was had. What is measured and is not the reader's is another's, of a class."""
    return NAMES.get(rung.kind, rung.kind) if rung.mine or rung.kind not in NAMES else NAMES[rung.kind].removeprefix("you, ")


def _say(rung) -> str:
    who = ("yours, " if rung.mine and rung.kind == "recorded" else "") + _who(rung)
    return f"{digits(rung.tflops)} TFLOPS ({who})" if rung.tflops else f"no time ({who})"


def _row(ax, y: int, row: Row, start: float) -> bool:
    """Draw a row. Is its share of cuBLAS in brackets, because it is not that of the figure beside it?"""
    timed = sorted((rung for rung in row.rungs if rung.tflops), key=lambda rung: (_rank(rung), rung.tflops))
    bars = set()
    for rung in timed:
        if rung.kind == "recorded":
            if _figure(rung) in bars:  # the reader's own climb with this kernel
                continue
            bars.add(_figure(rung))
            ax.barh(y, rung.tflops - start, left=start, height=0.5, color=SKY, alpha=0.55, linewidth=0, zorder=1)
        else:
            marker, face, edge, size = MARKS[rung.kind]
            ax.plot(rung.tflops, y, marker, markersize=size, markerfacecolor=face, markeredgecolor=edge, markeredgewidth=2,
                    zorder=3 if rung.mine else 2)  # fmt: skip
        if rung.spread and any(rung.kind in kinds for kinds in _SPREAD.values()):
            half = rung.tflops * rung.spread / 2  # of the samples' inter-quartile range, or what the model was off by at worst
            colour = GREEN if rung.kind == "predicted" else INK
            cap = 4 if rung.kind == "recorded" else MARKS[rung.kind][-1] / 2 + 3  # its ticks are seen beyond a mark that is wider
            ax.errorbar(rung.tflops, y, xerr=half, color=colour, elinewidth=1.2, capsize=cap, zorder=3.5)
    if not timed:
        ax.annotate("counted, not timed", (start, y), (6, 0), textcoords="offset points", va="center", color=QUIET, fontsize=12)
        return False
    beside = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "ha": "right", "annotation_clip": False}
    ax.annotate(_three_digits(timed[-1].tflops), (1, y), (_SPEED, 0), **beside, **_font(timed[-1]))
    compared = [rung for rung in timed if rung.cublas_ratio]  # a prediction has no ratio: cuBLAS was not run beside it
    if compared:
        share = 100 * compared[-1].cublas_ratio
        text = f"{share:.0f} %" if share >= 9.95 else f"{share:.1f} %"
        own = compared[-1] is timed[-1]  # else it is not of the figure that is written, but of the recorded bar
        style = _font(compared[-1]) if own else {"va": "center", "fontsize": 13, "color": QUIET}
        ax.annotate(text if own else f"({text})", (1, y), (_SHARE, 0), **beside, **style)
        return not own
    return False


def _rank(rung) -> tuple[bool, str, bool, bool]:
    """Whose figure is written beside a row, the highest: that of the reader's latest climb, of which a kernel that they changed comes
    before that of the course's, and what was measured before what was predicted; else what the course recorded."""
    return rung.mine, rung.date if rung.mine else "", (rung.kind == "recorded") != rung.mine, rung.kind == "measured"


def _font(rung) -> dict[str, Any]:
    return {"va": "center", "fontsize": 13, "color": AS_TEXT[GREEN] if rung.mine else INK, "weight": "bold" if rung.mine else "normal"}


def _of_several_runs(lines: Iterable[Any], timed: Iterable[Any]) -> bool:
    """Is the share of cuBLAS beside a recorded rung another one than the line of the recorded cuBLAS shows? Each rung was timed in turn
    with a cuBLAS of its own, and the line is the fastest of these."""
    best = max((rung.tflops for rung in lines if rung.name == CUBLAS and rung.kind == "recorded"), default=0)
    shares = [(rung.tflops / best, rung.cublas_ratio) for rung in timed if best and rung.kind == "recorded" and rung.cublas_ratio]
    return any(abs(of_line - of_own) > _PART * of_own for of_line, of_own in shares)


def _line_name(rung, several: bool) -> str:
    """What a line is called. several: the recorded cuBLAS is the fastest of runs that differ."""
    return f"fastest {CUBLAS}" if several and rung.name == CUBLAS and rung.kind == "recorded" else rung.name


def _verticals(ax, lines, fastest: float, several: bool) -> None:
    """cuBLAS and the limit, each with its figure at the top; the published cuBLAS only where none was recorded. A limit that the fastest
    rung passes is another unit's than that rung's, and says whose. several: see `_line_name`."""
    best: dict[str, Any] = {}
    for rung in lines:
        key = "limit" if rung.kind == "limit" else CUBLAS
        held = best.get(key)
        if held is None or (rung.kind == "recorded", rung.tflops) > (held.kind == "recorded", held.tflops):
            best[key] = rung
    for key, rung in best.items():
        colour, dashes = (VERMILLION, "-") if key == "limit" else (ORANGE, "--")
        ax.axvline(rung.tflops, color=colour, linestyle=dashes, linewidth=2, zorder=0.8)
        kind = f" ({rung.kind})" if rung.kind == "published" else ""
        left = key == CUBLAS
        title = _line_name(rung, several) if left or fastest > _PASSED * rung.tflops else key
        name = f"{title}{kind} {_three_digits(rung.tflops)}"
        ax.annotate(name, (rung.tflops, 1), (-5 if left else 5, 3), xycoords=("data", "axes fraction"),
                    textcoords="offset points", ha="right" if left else "left", va="bottom", fontsize=12, weight="bold",
                    color=AS_TEXT[ORANGE if key == CUBLAS else VERMILLION], annotation_clip=False)  # fmt: skip


def _finish(ax, labels: Sequence[str], kinds: Mapping[str, str], spread: Sequence[str] = ()) -> None:
    """Labels of the rows, and what the marks of these kinds are called. spread: what the bars of errors that are drawn show."""
    ax.tick_params(axis="y", length=0, labelsize=13, pad=9)
    _name_rows(ax, labels)
    ax.set_ylim(-0.6, max(len(labels), 1) - 0.4)
    ax.spines["left"].set_visible(False)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.grid(axis="x")
    present = [kind for kind in NAMES if kind in kinds and kind != "counted"]
    handles = []
    for kind in present:
        if kind == "recorded":
            handles.append(Patch(facecolor=SKY, alpha=0.55, label=kinds[kind]))
        else:
            marker, face, edge, size = MARKS[kind]
            handles.append(Line2D([], [], linestyle="", marker=marker, markersize=size, markerfacecolor=face, markeredgecolor=edge,
                                  markeredgewidth=2, label=kinds[kind]))  # fmt: skip
    for text in spread:
        handles.append(Line2D([], [], linestyle="", marker="|", markersize=10, markeredgewidth=1.8, color=INK if text == _RUNS else GREEN,
                              label=text))  # fmt: skip
    if handles:
        _legend(ax, handles, columnspacing=1.6, handletextpad=0.4)


def _legend(ax, handles: Sequence[Any], **looks: Any) -> None:
    """A legend below the Axes, where no mark can be, in as many columns as there is room for."""
    below = -0.15 * _USUAL / (ax.get_position().height * ax.figure.get_figheight())  # as far below in a picture that is higher
    for columns in range(min(4, len(handles)), 0, -1):
        legend = ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(-0.3, below), ncols=columns, **looks)
        if legend.get_window_extent().x1 <= ax.figure.bbox.x1:
            break


def _name_rows(ax, labels: Sequence[str]) -> None:
    """Labels of the rows: a long one in two smaller lines, and of what is longer yet as much as there is room for at the left."""
    said, long = list(labels), set()
    while True:
        ax.set_yticks(range(len(said)), said)
        texts = ax.get_yticklabels()
        for k in long:
            texts[k].set(fontsize=_SMALL, linespacing=1.15, multialignment="right")
        beyond = [k for k, text in enumerate(texts) if text.get_window_extent().x0 < 0 and max(map(len, said[k].split("\n"))) > _FEWEST]
        if not beyond:
            return
        for k in beyond:
            said[k] = _shorter(said[k]) if k in long else _in_two(said[k])
        long.update(beyond)


def _in_two(name: str) -> str:
    """The name in two lines: how its matrices lie in one of its own, else two that are about as long. As it is where it is one word."""
    ways = [name[: found.end()].rstrip() + "\n" + name[found.end() :] for found in re.finditer(r", |[ _](?=.)", name)]
    return min(ways, key=lambda way: (",\n" not in way, max(map(len, way.split("\n")))), default=name)


def _shorter(name: str) -> str:
    """The name with one character less in its longest line, which then ends in …"""
    lines = name.split("\n")
    longest = max(range(len(lines)), key=lambda k: len(lines[k]))
    lines[longest] = lines[longest].removesuffix("…")[:-1] + "…"
    return "\n".join(lines)


def _all(ax, rungs, known, log: bool) -> str:
    """One line per GPU from step to step, each kernel as a share of that GPU's own cuBLAS; kernels outside the steps are on no line."""
    shown = rows([rung for rung in rungs if rung.cublas_ratio])
    if not shown:
        raise NothingToSee("No rung states its share of cuBLAS, so the GPUs cannot be compared.")
    place = {row.label: y for y, row in enumerate(shown)}
    colours = [BLUE, GREEN, PURPLE, VERMILLION, ORANGE, SKY]
    said, handles = [], []
    for number, device in enumerate(known):
        points = []
        for row in shown:
            own = [rung for rung in row.rungs if rung.device == device]
            if own:
                best = max(own, key=lambda rung: (rung.mine, rung.kind == "recorded", rung.cublas_ratio))
                points.append((100 * best.cublas_ratio, place[row.label], best))
        if not points:
            continue
        colour = colours[number % len(colours)]
        steps = [(x, y) for x, y, rung in points if rung.step is not None]
        handles += ax.plot([x for x, _ in steps], [y for _, y in steps], color=colour, linewidth=2, zorder=1, label=device,
                           linestyle=("-", "--", ":", "-.")[number % 4])  # fmt: skip
        for x, y, rung in points:
            face = colour if rung.kind in ("measured", "recorded") else "white"
            ax.plot(x, y, "o" if rung.kind != "published" else "^", color=colour, markerfacecolor=face, markeredgewidth=2, zorder=2)
        said.append(f"{device}: " + ", ".join(f"{shown[y].label} {x:.3g} %" for x, y, _ in points))
    if log:
        ax.set_xscale("log")
    ax.annotate("cuBLAS", (100, 1), (5, 3), xycoords=("data", "axes fraction"), textcoords="offset points", va="bottom", fontsize=12,
                weight="bold", color=AS_TEXT[ORANGE], annotation_clip=False)  # fmt: skip
    ax.axvline(100, color=ORANGE, linewidth=3, zorder=0.8)
    ax.set_xlim(left=None if log else 0)
    _finish(ax, list(place), {})
    _legend(ax, handles, fontsize=13, handlelength=3, labelspacing=0.2, labelcolor="linecolor")
    ax.set_xlabel(f"% of cuBLAS on the same GPU, {_scale(log)}")
    heading(ax, "All GPUs, against cuBLAS on each", detail="filled: measured or recorded; hollow: predicted; triangle: published", above=24)
    return "Kernels as a share of cuBLAS on the same GPU. " + ". ".join(said) + "."
