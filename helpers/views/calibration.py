"""Calibration: how far the reader's predictions are from the truth, as factors, and beside them those of the model of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.ticker import FuncFormatter, NullLocator

from .canvas import BLUE, GREEN, ORANGE, QUIET, VERMILLION, NothingToSee, heading, in_words, picture

CLOSE = 1.25  # a factor within which a prediction counts as close
_FURTHEST = 100.0  # a factor; what is further off stands at the edge


@picture("Predictions", size=(10, 4.2), margins=(1.1, 0.9, 0.4, 0.9), order=300, of="predictions")
def calibration(predictions: Sequence[tuple[str, float]], model: Mapping[str, float] | None = None, *, ax):
    """One point per prediction: what was said by what it is, on a logarithmic scale; 1 is the truth.

    predictions: (question's id, prediction / truth), in the order of the answers. model: slug of a step -> predicted / recorded time of
    its kernel, by the model.
    """
    if not predictions:
        raise NothingToSee("No prediction with a number has met its truth yet.")
    places = range(1, len(predictions) + 1)
    factors = [factor for _, factor in predictions]
    shown = [min(max(factor, 1 / _FURTHEST), _FURTHEST) for factor in factors]
    furthest = max(4.0, *(max(factor, 1 / factor) * 1.3 for factor in shown))
    ax.axhspan(1 / CLOSE, CLOSE, color=GREEN, alpha=0.18, linewidth=0)
    ax.axhline(1, color=QUIET, linewidth=1.2)
    for x, factor in zip(places, shown, strict=True):
        good = 1 / CLOSE <= factor <= CLOSE
        ax.plot([x, x], [1, factor], color=QUIET, linewidth=1, zorder=1)
        ax.plot([x], [factor], "o" if good else "D", color=GREEN if good else VERMILLION if factor > 1 else BLUE, markersize=9)
    ax.set_yscale("log")
    ax.set_ylim(1 / furthest, furthest)
    ticks = [value for value in (0.01, 0.1, 0.25, 0.5, 1, 2, 4, 10, 100) if 1 / furthest <= value <= furthest]
    ax.set_yticks(ticks)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_xlim(0.3, len(predictions) + 0.7)
    steps = [name.partition(".")[0] for name, _ in predictions]
    first = [place for place, step in enumerate(steps, 1) if place == 1 or steps[place - 2] != step]
    modelled = {place: model[steps[place - 1]] for place in first if steps[place - 1] in (model or {})}
    if modelled:
        ax.plot(list(modelled), list(modelled.values()), "s", markerfacecolor="none", markeredgecolor=ORANGE, markeredgewidth=2,
                markersize=12, label="the model: the step's time at 4096³", zorder=0.9)  # fmt: skip
        ax.legend(loc="upper right", fontsize=11, frameon=False)
    ax.set_xticks(first, [in_words(steps[place - 1]) for place in first], rotation=20, ha="right")
    ax.set_ylabel("said / true")
    heading(ax, "Your predictions", detail=f"{len(predictions)} of them; the band is a factor of {CLOSE:g} either way")
    each = ", ".join(f"{name} {factor:.3g}" for name, factor in predictions)
    beside = ", ".join(f"{steps[place - 1]} {factor:.3g}" for place, factor in modelled.items())
    by_model = f" The model of time, by step: {beside}." if beside else ""
    return f"Predictions by their truth, 1 being right, in the order of the answers: {each}.{by_model}"
