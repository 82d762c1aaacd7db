"""Sweep: what a setting does to occupancy, to the share of multiply-adds and to speed, all as parts of what is possible."""

from __future__ import annotations

import math

from matplotlib.patheffects import Normal, Stroke
from matplotlib.ticker import PercentFormatter

from .canvas import AS_TEXT, BLUE, GREEN, ORANGE, PAPER, heading, picture

ROOM = 0.11  # part of the height that a number and its point take


@picture("Sweep", size=(10, 5.4), margins=(0.9, 0.75, 3.0, 1.0), order=200, of="sweep")
def sweep(found, *, ax):
    """One point per setting: occupancy, the lanes that did a multiply-add, and speed as a part of the GPU's limit.

    found: a `helpers.course.sweep.Sweep`. A predicted speed is hollow, a measured one filled.
    """
    places = range(len(found.settings))
    hollow = found.kind == "predicted"
    lines = (
        ("occupancy", BLUE, [item.occupancy.fraction for item in found.settings]),
        ("FMA share of\ninstructions × lanes", ORANGE, [math.nan if item.fma_share is None else item.fma_share for item in found.settings]),
        (f"speed ({found.kind}),\nof the {found.limit}", GREEN, [item.peak_share for item in found.settings]),
    )
    ends = sorted(((values[-1], name, colour) for name, colour, values in lines), key=lambda end: end[0])
    height = -1.0
    for value, name, colour in ends:  # names beside the last points, kept apart
        height = max(value if math.isfinite(value) else 0, 0.06, height + 0.14)
        ax.annotate(name, (len(places) - 1, height), (16, 0), textcoords="offset points", va="center", fontsize=13,
                    color=AS_TEXT[colour],                    linespacing=1.2, annotation_clip=False)  # fmt: skip
    for (name, colour, values), marker in zip(lines, "os^", strict=True):
        face = PAPER if hollow and name.startswith("speed") else colour
        ax.plot(places, values, f"{marker}-", color=colour, markerfacecolor=face, markersize=9, linewidth=2.2, clip_on=False)
    for x in places:
        here = sorted((values[x], colour) for _, colour, values in lines if math.isfinite(values[x]))
        gap = here[-1][0] - here[1][0] > here[1][0] - here[0][0]  # the middle number stands where there is more room
        for (value, colour), above in zip(here, (False, gap, True) if len(here) == 3 else (False, True), strict=False):
            up = above or value < 0.08  # below it stand the settings' names
            place, side = (0, 9 if up else -19), "center"
            if len(here) == 3 and value == here[1][0] and here[1][0] - here[0][0] < ROOM and here[-1][0] - here[1][0] < ROOM:
                place, side = (-9, -9), "right"  # no room above or below it
            ax.annotate(f"{100 * value:.0f}", (x, value), place, textcoords="offset points", ha=side, fontsize=12,
                        color=AS_TEXT[colour], path_effects=[Stroke(linewidth=3, foreground=PAPER), Normal()])  # fmt: skip
    ax.set_xticks(list(places), found.names)
    ax.set_xlim(-0.25, len(places) - 0.75)
    ax.set_ylim(0, 1.08)
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    caption = f"{found.caption}; not shown: {found.left_out}" if found.left_out else found.caption
    heading(ax, "Occupancy, multiply-adds and speed", detail=caption)
    each = ". ".join(f"{name}: occupancy {item.occupancy.fraction:.0%}, FMA share {_percent(item.fma_share)}, "
                     f"speed {item.peak_share:.0%} of the limit"
                     for name, item in zip(found.names, found.settings, strict=False))  # fmt: skip
    return f"Occupancy, FMA share and {found.kind} speed of {len(places)} settings, {caption}. {each}."


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{share:.0%}"
