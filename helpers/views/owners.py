"""Owners: which warp, lane and register computes which element of C, from the stores that were executed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from helpers.errors import plural
from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.sites import AccessKind

from .canvas import BLUE, GREEN, INK, ORANGE, PURPLE, QUIET, SKY, VERMILLION, YELLOW, NothingToSee, Span, heading, picture, rgb, stamp
from .places import block_label, cut, nearest, once_per_trace
from .tiles import matrices

_CHOSEN = 0.75  # strength of the chosen warp's colour
_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILLION, YELLOW, QUIET)


@dataclass(frozen=True)
class Ownership:
    """The tile of C that one block stores. Arrays are [rows, columns] of the tile; -1 where it stores nothing.

    warp, lane: who stores the element. turn: the how-manieth element that this lane stores, which stands for a register.
    """

    block: int
    row: int
    column: int
    warp: np.ndarray
    lane: np.ndarray
    turn: np.ndarray


def ownership(run, block: int = 0) -> Ownership:
    """Who stores what of the block's tile (of the nearest block that stores). Raises NothingToSee if none does."""
    stored = _storing(run.trace)
    return _ownership(run.trace, nearest(stored, block))


@once_per_trace
def _storing(trace) -> np.ndarray:
    """The blocks that store to C."""
    rows, _ = _stores(trace)
    if not len(rows):
        raise NothingToSee(f"No store to {matrices(trace)[2].name} was recorded, so nobody owns an element of it.")
    return np.unique(trace.accesses["block"][rows])


def _stores(trace) -> tuple[np.ndarray, np.ndarray]:
    """(rows of the accesses that store to C, [all accesses, 32] whether a lane's address is in C)."""
    c = matrices(trace)[2]
    stores = np.array([site.space == "global" and site.op is AccessKind.STORE and site.width > 0 for site in trace.sites] or [False])
    inside = (trace.addresses >= c.base) & (trace.addresses < c.base + c.nbytes)
    return np.flatnonzero(stores[trace.accesses["site"]] & inside.any(axis=1)), inside


@once_per_trace
def _ownership(trace, block: int) -> Ownership:
    c = matrices(trace)[2]
    rows, inside = _stores(trace)
    rows = rows[trace.accesses["block"][rows] == block]
    rows = rows[np.argsort(trace.accesses["order"][rows], kind="stable")]
    shape = c.shape
    warp, lane, turn = (np.full(shape, -1) for _ in range(3))
    stored: dict[int, np.ndarray] = {}
    for row in rows:
        number = int(trace.accesses["warp"][row])
        turns = stored.setdefault(number, np.zeros(WARP, int))
        active = np.flatnonzero(inside[row])
        first = (trace.addresses[row, active] - c.base) // c.itemsize
        for offset in range(max(1, trace.sites[trace.accesses["site"][row]].width // c.itemsize)):
            where = np.unravel_index(np.minimum(first + offset, c.nbytes // c.itemsize - 1), shape)
            warp[where], lane[where], turn[where] = number, active, turns[active]
            turns[active] += 1
    touched = np.argwhere(warp >= 0)
    (top, left), (bottom, right) = touched.min(axis=0), touched.max(axis=0) + 1
    box = slice(top, bottom), slice(left, right)
    return Ownership(block, int(top), int(left), warp[box], lane[box], turn[box])


def controls(run, block=0, warp=0, lane=0):
    """Block, warp and lane."""
    seen = ownership(run, block or 0)
    blocks = _storing(run.trace)
    warps = np.unique(seen.warp[seen.warp >= 0])
    chosen = nearest(warps, warp or 0)
    lanes = np.unique(seen.lane[seen.warp == chosen])
    return (
        Span("block", "block", int(blocks[0]), int(blocks[-1])),
        Span("warp", "warp", int(warps[0]), int(warps[-1])),
        Span("lane", "lane", int(lanes[0]), int(lanes[-1])),
    )


@picture("Owners", controls=controls, size=(10, 8.3), margins=(0.9, 0.75, 2.5, 1.0), order=25)
def owners(run, block: int = 0, warp: int = 0, lane: int = 0, *, ax):
    """The tile of C that a block computes, coloured by warp; the chosen warp in full colour, the elements of its lane numbered.

    The numbers count the elements that one thread stores: each sits in a register of its own until then.
    """
    seen = ownership(run, block)
    rows, columns = seen.warp.shape
    warp = nearest(seen.warp[seen.warp >= 0], warp)
    mine = seen.warp == warp
    lane = nearest(seen.lane[mine], lane)
    elements = np.argwhere(mine & (seen.lane == lane))
    image = np.ones((rows, columns, 3))
    for number in np.unique(seen.warp[seen.warp >= 0]):
        colour = np.array(rgb(_COLOURS[number % len(_COLOURS)]))
        strength = _CHOSEN if number == warp else 0.3
        image[seen.warp == number] = 1 + strength * (colour - 1)
    if len(elements) < mine.sum():
        for row, column in elements:
            image[row, column] = rgb(INK)
    extent = (seen.column, seen.column + columns, seen.row + rows, seen.row)
    ax.imshow(
        (255 * image).astype(np.uint8),
        extent=extent,
        interpolation="nearest",
        aspect="equal" if max(rows, columns) < 8 * min(rows, columns) else "auto",
    )
    ax.set_anchor("NW")
    for side in ("top", "right", "left", "bottom"):
        ax.spines[side].set_visible(False)
    ax.set_xlabel("column of C")
    ax.set_ylabel("row of C")
    size = 330 / max(rows, columns)
    if size >= 6.5:
        for row, column in elements:
            stamp(ax, seen.column + column + 0.5, seen.row + row + 0.5, str(seen.turn[row, column]), ha="center", va="center_baseline",
                  fontsize=min(size, 12), color="white")  # fmt: skip
    own = np.argwhere(mine)
    (low_row, low_column), (high_row, high_column) = own.min(axis=0), own.max(axis=0) + 1
    per_thread = len(elements)
    title = f"{rows} × {columns} elements of C in {block_label(run.trace, seen.block)}"
    detail = f"warp {warp}, lane {lane}: {plural(per_thread, 'element')}" + (f" in {per_thread} registers" if per_thread > 1 else "")
    heading(ax, title, detail=detail + cut(run.trace))
    _name_warps(ax, seen, size=11)
    count = len(np.unique(seen.warp[seen.warp >= 0]))
    notes = [
        f"{plural(count, 'warp')}, " + ("one\ncolour each" if count <= len(_COLOURS) else f"in\n{len(_COLOURS)} colours by turns"),
        f"warp {warp}\n{_span(own, mine)}",
        f"lane {lane}\n{_span(elements, mine & (seen.lane == lane))}",
    ]
    strong = tuple(1 + _CHOSEN * (part - 1) for part in rgb(_COLOURS[warp % len(_COLOURS)]))
    beside = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "top", "annotation_clip": False}
    for number, (note, swatch) in enumerate(zip(notes, (None, strong, INK), strict=True)):
        ax.annotate(note, (1, 1), (16 if swatch is None else 40, -58 * number), fontsize=13, linespacing=1.45, **beside)
        if swatch is not None:  # a patch, and no word such as "dark": a dark theme turns light and dark around
            ax.annotate("■", (1, 1), (14, 5 - 58 * number), fontsize=22, color=swatch, **beside)
    return (
        f"{title}, coloured by warp. {detail}. Warp {warp} stores rows {seen.row + low_row} to {seen.row + high_row - 1}, columns "
        f"{seen.column + low_column} to {seen.column + high_column - 1}."
    )


def _name_warps(ax, seen: Ownership, size: float) -> None:
    """The number of each warp in the lower right corner of its elements, where they fill a rectangle with room for it."""
    box = ax.get_window_extent()
    points = 72 * box.height / ax.figure.dpi / len(seen.warp), 72 * box.width / ax.figure.dpi / len(seen.warp[0])
    for number in np.unique(seen.warp[seen.warp >= 0]):
        mine = seen.warp == number
        places = np.argwhere(mine)
        (top, left), (bottom, right) = places.min(axis=0), places.max(axis=0) + 1
        room = (bottom - top) * points[0] > 1.3 * size and (right - left) * points[1] > 5 * size
        if room and mine[top:bottom, left:right].all():
            stamp(ax, seen.column + right - 0.4 * size / points[1], seen.row + bottom, f"warp {number}", down=-3, ha="right", va="bottom",
                  fontsize=size, color=INK)  # fmt: skip


def _span(elements, mask) -> str:
    """ "8 × 4 elements" where they fill a rectangle, else how many rows and columns they are spread over."""
    (top, left), (bottom, right) = elements.min(axis=0), elements.max(axis=0) + 1
    height, width = int(bottom - top), int(right - left)
    if mask[top:bottom, left:right].all():
        return f"{height} × {width} elements"
    return f"{plural(len(elements), 'element')} over\n{height} × {width}"
