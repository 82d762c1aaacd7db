"""Layout: where in shared memory one access of a warp lands, as rows of 32 banks, one under the other.

The towers of `banks` forget the addresses; here they stay. A padded tile is a staircase, a swizzled one a shuffled block, and
a conflict is two boxes of one phase that stand over one another. A copy (cp.async) also says which element it brings.
"""

from __future__ import annotations

import numpy as np
from matplotlib.collections import LineCollection, PolyCollection

from helpers.errors import plural
from helpers.sim.code.sites import AccessKind

from .banks import BANKS, WORD, WRITES, SharedAccess, controls, copied_from, shared_access
from .canvas import BLUE, FAINT, GREEN, INK, PAPER, QUIET, VERMILLION, heading, picture, stamp
from .places import at, code, cut, element

ROW = BANKS * WORD  # bytes
# The phases of what writes (green) and of what reads (blue), dark enough for white numbers.
_SHADES = {True: (GREEN, "#00563e", "#4a9d80", "#5f8a1f"), False: (BLUE, "#003f63", "#4392c8", "#6a6fb8")}
_MOST = 32  # rows drawn


@picture("Layout", controls=controls, size=(10, 6.6), margins=(1.55, 0.75, 0.2, 1.35), order=17)
def layout(run, site: int | None = None, line: int | None = None, block: int = 0, warp: int = 0, iteration: int = 0, *, ax):
    """Shared memory as rows of 128 bytes, a column per bank: what one access touches, lane by lane, a shade for each phase.

    Arguments as in `banks`. Outlined boxes come second (third, …) to a bank in their phase.
    """
    seen = shared_access(run, site, line, block, warp, iteration)
    source = code(run, seen.place.line)
    where = at(run.trace, seen.when)
    boxes = sorted(
        (box.address, box.banks, box.floor, number, box.lanes) for number, phase in enumerate(seen.phases) for box in phase.boxes
    )
    ax.set_axis_off()
    ax.set_xlim(0, BANKS)
    if not boxes:
        heading(ax, f"No lane takes part in this {seen.place.what}", code=source, detail=where)
        return f"{source}: all 32 lanes are switched off here, so nothing is touched."
    rows = list(dict.fromkeys(address // ROW for address, *_ in boxes))
    whole = list(range(rows[0], rows[-1] + 1))
    shown = whole if len(whole) <= _MOST else rows[:_MOST]
    place = {row: y for y, row in enumerate(shown)}
    height = max(len(shown), 6)
    ax.set_ylim(height, 0)
    points = ax.get_window_extent().height * 72 / ax.figure.dpi / height
    writes = seen.place.op in WRITES
    empty = [_cell(0, BANKS, y) for y in range(len(shown))]
    ax.add_collection(PolyCollection(empty, facecolors=FAINT, alpha=0.5, linewidths=0, zorder=1))
    edges = [[(x, 0), (x, len(shown))] for x in range(1, BANKS)]
    ax.add_collection(LineCollection(edges, colors=PAPER, linewidths=[2.2 if x % 4 == 0 else 0.7 for x in range(1, BANKS)], zorder=1.5))
    drawn = [box for box in boxes if box[0] // ROW in place]
    colours = [VERMILLION if floor else _SHADES[writes][phase % 4] for _, _, floor, phase, _ in drawn]
    cells = [_cell(address // WORD % BANKS, banks, place[address // ROW]) for address, banks, *_ in drawn]
    waits = [bool(floor) for _, _, floor, *_ in drawn]  # seen without colours, too
    ax.add_collection(PolyCollection(cells, facecolors=colours, edgecolors=[INK if later else PAPER for later in waits],
                                     linewidths=[1.8 if later else 1 for later in waits], zorder=2))  # fmt: skip
    brought = _brought(run, seen) if points > 26 else {}
    for address, banks, _, _, lanes in drawn:
        x, y = address // WORD % BANKS + banks / 2, place[address // ROW] + 0.5
        text = str(lanes[0]) if len(lanes) == 1 else f"{lanes[0]}–{lanes[-1]}" if banks > 1 else f"×{len(lanes)}"
        if lanes[0] in brought and banks > 1:
            text += f"\n{brought[lanes[0]]}"
        stamp(ax, x, y, text, ha="center", va="center", fontsize=min(10.5, 0.75 * points), color=PAPER, linespacing=1.25, zorder=3)
    _edges(ax, run, shown, rows, points)
    key = "lanes in their boxes; one shade: served together" + ("; outlined: has to wait" if seen.conflicts else "")
    ax.annotate(key, (1, len(shown)), (0, -26), xycoords=("axes fraction", "data"), textcoords="offset points", ha="right", va="top",
                fontsize=12, color=QUIET)  # fmt: skip
    verdict = f"{plural(seen.conflicts, 'conflict')}" if seen.conflicts else "no conflict"
    verdict += f"; {seen.note}" if seen.note else ""
    more = f"; {len(rows) - len(shown)} further rows are not drawn" if len(rows) > len(shown) else ""
    title = f"{plural(seen.wavefronts, 'wavefront')} for one {seen.place.what}"
    heading(ax, title, code=source, detail=f"{where}: {verdict}{more}{cut(run.trace, seen.place)}")
    said = ", ".join(
        f"lane {lanes[0]} at {element(run, 'shared', address)}" for address, _, _, _, lanes in sorted(drawn, key=lambda b: b[4])[:4]
    )
    over = f"{title}, over {plural(len(rows), 'row')} of 128 bytes"
    return f"{over}. Line {source}. {where}: {verdict}. {said}{', …' if len(drawn) > 4 else ''}."


def _cell(bank: float, width: int, y: int):
    return [(bank + 0.03, y + 0.05), (bank + width - 0.03, y + 0.05), (bank + width - 0.03, y + 0.95), (bank + 0.03, y + 0.95)]


def _brought(run, seen: SharedAccess) -> dict[int, str]:
    """Lane -> the element that its copy begins with, for asynchronous copies."""
    sources = copied_from(run.trace, seen.when) if seen.place.op is AccessKind.COPY else None
    if sources is None:
        return {}
    return {lane: element(run, "global", int(sources[lane])) for lane in np.flatnonzero(sources >= 0).tolist()}


def _edges(ax, run, shown: list[int], rows: list[int], points: float) -> None:
    """The banks below, and on the left the element with which each touched row begins, as far as there is room."""
    for bank in range(BANKS):
        stamp(ax, bank + 0.5, len(shown), str(bank), down=6, ha="center", va="top", fontsize=10.5, color=QUIET)
    ax.annotate("bank", (0, len(shown)), (-10, -6), textcoords="offset points", ha="right", va="top", fontsize=13)
    every = max(1, -(-13 // int(max(points, 1))))
    touched = set(rows)
    for y in range(0, len(shown), every):
        gap = y and shown[y] - shown[y - 1] > 1
        name = element(run, "shared", shown[y] * ROW)
        ax.annotate(("… " if gap else "") + name, (0, y + 0.5), (-8, 0), textcoords="offset points", ha="right", va="center", fontsize=11,
                    family="monospace", color=BLUE if shown[y] in touched else QUIET, annotation_clip=False)  # fmt: skip
