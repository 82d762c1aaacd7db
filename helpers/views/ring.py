"""Ring: the stages of a kernel that copies by the tensor memory accelerator, one row for each mbarrier: when its tile is on its way,
in which phase it is waited for, and when warpgroups read it. Below, where results leave by bulk copies, when they do.

From left to right is the order of execution; nothing here is time. A copy is under way, as far as the kernel knows, from its start to the
first wait that sees the end of its phase; products read until a wait for their group.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch

from helpers.errors import plural
from helpers.sim.counting import stages
from helpers.sim.counting.stages import Fill

from .canvas import INK, PAPER, SKY, NothingToSee, heading, picture, stamp, text_on
from .places import block_label, once_per_trace

_READ = ("#00734f", "#7a4b00", "#3d3d3d")  # one for each warpgroup
_MOST = 84  # events that are drawn: two tiles of five steps by two warpgroups


@once_per_trace
def fills(trace) -> tuple[int, tuple[Fill, ...]]:
    """The first block that copies, and its fills in order. Raises NothingToSee where there is none."""
    found = stages.fills(trace)
    if found is None:
        raise NothingToSee("No bulk copy was recorded in this run, so there are no mbarriers that count its bytes.")
    return found


@dataclass(frozen=True)
class Leaving:
    """Boxes of results that a warp has copied to memory, one tile's: so many copies, the first and the last of them started then."""

    warp: int
    copies: int
    begin: int
    end: int


@once_per_trace
def results(trace) -> tuple[Leaving, ...]:
    """The results that leave the first block that copies, by tile and warp, in order; none where threads store them."""
    block, _ = fills(trace)
    made: list[Leaving] = []
    latest: dict[int, int] = {}  # warp -> its entry, as long as it has not begun another tile
    for move in trace.moves:
        if move.block != block:
            continue
        if move.kind in ("A", "B"):
            latest.pop(move.warp, None)
        elif move.kind == "store" and move.warp in latest:
            last = made[latest[move.warp]]
            made[latest[move.warp]] = replace(last, copies=last.copies + 1, end=move.order)
        elif move.kind == "store":
            latest[move.warp] = len(made)
            made.append(Leaving(move.warp, 1, move.order, move.order))
    return tuple(made)


def controls(run):
    """None; but a kernel without bulk copies has no ring, and is not offered one."""
    fills(run.trace)
    return ()


@picture("Ring of stages", controls=controls, size=(11, 5.6), margins=(1.2, 1.0, 0.25, 1.05), order=41)
def ring(run, *, ax):
    """One row for each mbarrier: copies under way, the phase that ends with them, and each warpgroup's products on the tile."""
    block, found = fills(run.trace)
    stored = results(run.trace)
    barriers = sorted({fill.barrier for fill in found})
    marks = {fill.begin for fill in found} | {fill.arrived for fill in found if fill.arrived is not None}
    marks |= {edge for fill in found for _, *edges in fill.reads for edge in edges if edge is not None}
    marks |= {edge for leaving in stored for edge in (leaving.begin, leaving.end)}
    shown = sorted(marks)[:_MOST]
    place = {order: x for x, order in enumerate(shown)}
    end = len(shown)
    letter = 0.009 * end  # a letter's width, about
    rows = len(barriers) + bool(stored)
    warps = sorted({warp for fill in found for warp, *_ in fill.reads} | {leaving.warp for leaving in stored})
    cells, colours, said = [], [], []

    def bar(left, right, y, height, colour, text):
        if left not in place:
            return
        x0, x1 = place[left], place.get(right, end) if right is not None else end
        x1 = max(x1, x0 + 0.4)
        cells.append([(x0, y), (x1, y), (x1, y + height), (x0, y + height)])
        colours.append(colour)
        if len(text) * letter < x1 - x0:
            stamp(ax, (x0 + x1) / 2, y + height / 2, text, ha="center", va="center_baseline", fontsize=11, color=text_on(colour))

    thick = 0.42 / max(len(warps), 1)
    for fill in found:
        y = barriers.index(fill.barrier)
        bar(fill.begin, fill.arrived, y + 0.06, 0.4, SKY, f"{fill.copies} copies")
        if fill.arrived in place:
            ax.plot([place[fill.arrived]] * 2, [y + 0.02, y + 0.9], color=INK, linewidth=2)
            ax.annotate(f"phase {fill.number % 2}", (place[fill.arrived], y + 0.26), (3, 0), textcoords="offset points", ha="left",
                        va="center", fontsize=11, color=INK)  # fmt: skip
        for warp, begin, over in fill.reads:
            bar(begin, over, y + 0.48 + thick * warps.index(warp), thick * 0.92, _READ[warps.index(warp) % len(_READ)], "")
    for leaving in stored:
        y = len(barriers) + 0.24 + thick * warps.index(leaving.warp)
        bar(leaving.begin, leaving.end, y, thick * 0.92, _READ[warps.index(leaving.warp) % len(_READ)], "")
    ax.add_collection(PolyCollection(cells, facecolors=colours, edgecolors=PAPER, linewidths=0.6, zorder=2))
    ax.set_xlim(0, end)
    ax.set_ylim(rows, -0.05)
    names = [f"stage {y}" for y in range(len(barriers))] + ["to C"] * bool(stored)
    ax.set_yticks([y + 0.45 for y in range(rows)], names)
    ax.set_xticks([])
    ax.tick_params(length=0)
    for side in ("left", "top", "right", "bottom"):
        ax.spines[side].set_visible(False)
    handles = [Patch(color=SKY, label="copies under way")]
    works = "wgmma, stores" if stored else "wgmma"
    handles += [Patch(color=_READ[i % len(_READ)], label=f"warps {warp} to {warp + 3}: {works}") for i, warp in enumerate(warps)]
    ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(0, -0.02), ncols=len(handles), fontsize=12.5, frameon=False)
    nbytes = sorted({fill.nbytes for fill in found})
    title = f"{plural(len(barriers), 'stage')}, filled {plural(len(found), 'time')}"
    detail = (
        f"{block_label(run.trace, block)}, in the order of execution; a fill is {' or '.join(f'{n:,}' for n in nbytes)} bytes; "
        "black: the wait that sees its phase end"
    )
    if len(marks) > end:
        detail += f"; the first {end:,} of {len(marks):,} events"
    heading(ax, title, detail=detail)
    for fill in found[:6]:
        reads = ", ".join(f"warps {warp} to {warp + 3}" for warp, *_ in fill.reads) or "nobody"
        said.append(f"stage {barriers.index(fill.barrier)}: {fill.copies} copies, phase {fill.number % 2}, read by {reads}")
    for leaving in stored:
        ahead = sum(fill.begin < leaving.begin for fill in found)
        said.append(
            f"warps {leaving.warp} to {leaving.warp + 3} store their results by {leaving.copies} bulk copies, "
            f"the first when {ahead} fills have begun"
        )
    return f"{title}; {detail}. {'; '.join(said)}."
