"""Accuracy: the error of several ways to make an FP32 product, beside the speed that each allows."""

from __future__ import annotations

import math

from matplotlib.patches import Rectangle

from .canvas import AS_TEXT, BLUE, FAINT, GREEN, INK, ORANGE, VERMILLION, heading, picture

_COLOUR = {"": INK, "tf32": GREEN, "bf16": ORANGE, "f16": BLUE}
_MARK = {"": "D", "tf32": "^", "bf16": "s", "f16": "o"}


@picture("Error and speed", size=(11, 6.2), margins=(1.1, 0.85, 0.35, 1.05), order=215, of="accuracy")
def accuracy(found, *, ax):
    """One point per way, at its mean error; a line reaches to its largest. Below and right of FP32's point is what would be better.

    found: a `helpers.course.accuracy.Accuracy`. A way that overflows stands at the upper edge.
    """
    finite = [error for item in found.points for error in (item.mean, item.largest) if math.isfinite(error) and error > 0]
    low, high = min(finite, default=1e-8) / 3, max(finite, default=1e-3) * 8
    limits = [item.limit for item in found.points]
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(min(limits) / 1.35, max(limits) * 2.2)
    ax.set_ylim(low, high)
    plain = next((item for item in found.points if not item.way.kind), None)
    if plain is not None:
        ax.add_patch(Rectangle((plain.limit, low), max(limits) * 3, plain.mean - low, color=FAINT, zorder=0))
        ax.annotate("more exact and faster than FP32", (max(limits) * 2.1, low * 1.25), ha="right", va="bottom", fontsize=12.5, color=INK)
    taken: list[tuple[float, float]] = []
    marks = [(math.log10(item.limit), math.log10(item.mean)) for item in found.points if math.isfinite(item.mean) and item.mean > 0]
    for item in sorted(found.points, key=lambda one: (one.limit, -one.mean if math.isfinite(one.mean) else -math.inf)):
        fits = math.isfinite(item.largest)
        mean = item.mean if fits and item.mean > 0 else (low * 1.2 if fits else high / 1.3)
        colour = _COLOUR[item.way.kind] if fits else VERMILLION
        if fits:
            ax.plot([item.limit] * 2, [mean, item.largest], color=colour, linewidth=1.6, alpha=0.7, zorder=2)
        ax.plot([item.limit], [mean], _MARK[item.way.kind] if fits else "X", color=colour, markersize=9, zorder=3,
                markerfacecolor=colour if item.way.promoted else "white", markeredgewidth=1.8)  # fmt: skip
        x, y, gap = math.log10(item.limit), math.log10(mean), 0.045 * math.log10(high / low)
        name = item.way.name if fits else f"{item.way.name}: overflows"
        near = [(there - x, abs(other - y) / gap) for there, other in marks if 0.02 < abs(there - x) < _LETTER * len(name)]
        beside = [step for step, height in near if height < (2 if step > 0 else 1)]
        if any(step > 0 for step in beside) and any(step < 0 for step in beside):
            side, place, y = "center", item.limit, y - gap
        else:
            left = any(step > 0 for step in beside)
            side, place = ("right", item.limit * 0.95) if left else ("left", item.limit * 1.05)
        ax.annotate(name, (place, 10 ** _free(taken, x, y, gap)), ha=side, va="center", fontsize=12,
                    color=AS_TEXT.get(colour, colour))  # fmt: skip
    m, n, k = found.shape
    ticks = [value for value in (50, 100, 200, 500, 1000) if min(limits) / 1.35 <= value <= max(limits) * 2.2]
    ax.set_xticks(ticks, [str(value) for value in ticks])
    ax.minorticks_off()
    ax.set_xlabel(f"TFLOPS that the hardware allows ({found.gpu}: peak / products)")
    ax.set_ylabel("error, as a part of |A| |B|")
    detail = f"{m} × {n} × {k}, compared with float64: marks are means, lines reach to the largest; hollow: not promoted"
    heading(ax, "Error and speed", detail=detail)
    said = ". ".join(
        f"{item.way.name}: " + (f"mean {item.mean:.1e}, largest {item.largest:.1e}" if math.isfinite(item.largest) else "overflows")
        + f", at most {item.limit:.0f} TFLOPS" for item in found.points
    )  # fmt: skip
    return f"Errors of {len(found.points)} ways to multiply, {detail}. {said}."


_LETTER = 0.026  # the width of one, in decades of speed


def _free(taken: list[tuple[float, float]], x: float, y: float, gap: float) -> float:
    """The height nearest to y where a name beside a mark at x is `gap` away from the names of other marks there."""
    for step in range(24):
        height = y + (step + 1) // 2 * gap / 4 * (-1 if step % 2 else 1)
        if all(abs(height - other) >= gap for near, other in taken if abs(near - x) < 0.02):
            break
    taken.append((x, height))
    return height
