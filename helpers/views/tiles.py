"""Tiles: which elements of A, B and C a block, a warp or a thread touches, step by step along K.

Everything comes from executed accesses to global memory, mapped back to the matrices. A *step* is what happens between
two barriers if the kernel has barriers, else one round through the kernel's loads (a round ends when a warp makes an
access again); only steps that load from A or B are counted. What threads read of tiles in shared memory is in `shared_reads`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.legend_handler import HandlerTuple
from matplotlib.patches import Patch

from helpers.errors import plural
from helpers.sim.code.hardware_units import WARP
from helpers.sim.counting import names

from .canvas import AS_TEXT, BLUE, GREEN, INK, ORANGE, PAPER, QUIET, Choice, NothingToSee, Span, heading, picture, rgb
from .places import block_label, blocks_of, by_columns, cut, nearest, nth, once_per_trace, steps_along_k, thread_label

LEVELS = ("block", "warp", "thread")


@dataclass(frozen=True)
class TouchedPart:
    """Elements of one matrix that the chosen part of the block touched.

    now: [rows, columns] how often in this step. before: in the steps before it. by_block: in this step, by the whole block. Rows and
    columns are those of the product, also where the matrix is stored `by_columns`.
    """

    name: str
    now: np.ndarray
    before: np.ndarray
    by_block: np.ndarray
    by_columns: bool = False

    @property
    def label(self) -> str:
        """Name and extents, with how it is stored where that is not by rows: "B: 128 × 64, stored by columns"."""
        rows, columns = self.now.shape
        return f"{self.name}: {rows} × {columns}" + (", stored by columns" if self.by_columns else "")

    def extent(self) -> tuple[slice, slice] | None:
        """Rows and columns that this step spans, or None if it touches nothing here."""
        if not self.now.any():
            return None
        rows, columns = np.flatnonzero(self.now.any(axis=1)), np.flatnonzero(self.now.any(axis=0))
        return slice(int(rows[0]), int(rows[-1]) + 1), slice(int(columns[0]), int(columns[-1]) + 1)


@dataclass(frozen=True)
class March:
    """One step of the march. `steps` is how many there are; loads are lane-level loads so far, per element touched."""

    block: int
    warp: int
    thread: int
    step: int
    steps: int
    a: TouchedPart
    b: TouchedPart
    c: TouchedPart


def matrices(trace):
    """The allocations of A, B and C: by name, else the first three two-dimensional arrays. Raises NothingToSee."""
    flat = [array for array in trace.allocations if array.space == "global" and len(array.shape) == 2]
    named = {array.name: array for array in flat}
    if all(name in named for name in "ABC"):
        return named["A"], named["B"], named["C"]
    if len(flat) >= 3:
        return flat[0], flat[1], flat[2]
    raise NothingToSee("The tiles are those of a matrix product: this kernel does not have three matrices A, B and C in global memory.")


def march(run, level: str = "block", block: int = 0, warp: int = 0, thread: int = 0, step: int = 0) -> March:
    """What `level` of the block touches at `step`; indices move to the nearest recorded ones.

    block: linear index; warp: in its block; thread: linear index in its block (its warp follows from it).
    """
    if level not in LEVELS:
        raise NothingToSee(f"level={level!r} is none of {', '.join(LEVELS)}.")
    trace = run.trace
    a, b, c = matrices(trace)
    blocks = blocks_of(trace)
    if not len(blocks):
        raise NothingToSee("No access was recorded in this run, so no tile moves.")
    block = nearest(blocks, block)
    rows, addresses, widths, at = _walk(trace, block)
    steps = int(at.max(initial=-1)) + 1
    if not steps:
        raise NothingToSee("This block loads nothing from A or B: with K = 0, or outside the matrices, no tile moves.")
    step = min(max(step, 0), steps - 1)
    thread = min(max(thread, 0), int(np.prod(trace.block)) - 1)
    warp = thread // WARP if level == "thread" else min(max(warp, 0), (int(np.prod(trace.block)) - 1) // WARP)
    mine = np.ones(addresses.shape, bool)
    if level != "block":
        mine &= (rows["warp"] == warp)[:, None]
    if level == "thread":
        mine &= np.arange(WARP) == thread % WARP
    now, past = at == step, (at >= 0) & (at < step)

    def touched(array, any_time=False):
        turned = by_columns(run, array)

        def count(which, lanes):
            counts = _count(array, addresses[which], widths[which], lanes[which])
            return counts.T if turned else counts

        everyone = np.ones_like(mine)
        if any_time:  # C belongs to no step: it is the result of all
            every = np.ones(len(rows), bool)
            return TouchedPart(array.name, count(every, mine), count(every[:0], mine), count(every, everyone))
        return TouchedPart(array.name, count(now, mine), count(past, mine), count(now, everyone), turned)

    return March(block, warp, thread, step, steps, touched(a), touched(b), touched(c, any_time=True))


@once_per_trace
def _walk(trace, block: int):
    """Global accesses of one block: (events, addresses, widths, step of each or -1)."""
    a, b, _ = matrices(trace)
    in_block = np.flatnonzero(trace.accesses["block"] == block)
    rows = trace.accesses[in_block]
    addresses = trace.addresses[in_block]
    spaces = np.array([site.space == "global" and site.width > 0 for site in trace.sites] or [False])
    keep = spaces[rows["site"]]
    rows, addresses = rows[keep], addresses[keep]
    widths = np.array([site.width for site in trace.sites] or [0])[rows["site"]]
    inputs = _within(addresses, a) | _within(addresses, b)
    return rows, addresses, widths, steps_along_k(trace, block, rows, inputs.any(axis=1))


def _within(addresses, array):
    return (addresses >= array.base) & (addresses < array.base + array.nbytes)


def _count(array, addresses, widths, lanes):
    """[rows, columns]: how often each element was touched by the lanes that are True."""
    counts = np.zeros(array.nbytes // array.itemsize, np.int64)
    for width in np.unique(widths):
        which = widths == width
        hits = addresses[which][lanes[which] & _within(addresses[which], array)]
        first = (hits - array.base) // array.itemsize
        for offset in range(max(1, width // array.itemsize)):
            counts += np.bincount(np.minimum(first + offset, len(counts) - 1), minlength=len(counts))
    return counts.reshape(array.shape)


def controls(run, level="block", block=0, warp=0, thread=0, step=0):
    """Level, block, the warp or thread where it matters, and the step."""
    trace = run.trace
    steps = march(run, level or "block", block or 0, warp or 0, thread or 0, 0).steps
    blocks = blocks_of(trace)
    threads = int(np.prod(trace.block))
    found = [
        Choice("level", "show", tuple((f"one {name}" if name != "block" else "the block", name) for name in LEVELS)),
        Span("block", "block", int(blocks[0]), int(blocks[-1])),
    ]
    if level == "warp":
        found.append(Span("warp", "warp", 0, (threads - 1) // WARP))
    if level == "thread":
        found.append(Span("thread", "thread", 0, threads - 1))
    return (*found, Span("step", "step along K", 0, steps - 1, buttons=True))


_LARGEST = 1024  # pixels of a matrix side; larger matrices are thinned out
_BEFORE, _OTHERS = 0.3, 0.5  # strengths of what is not loaded now, or not by the chosen part of the block
_GAP = 0.13  # between the matrices, in parts of their extent


@picture("Tiles", controls=controls, size=(10, 7.4), margins=(0.35, 0.25, 0.3, 1.0), order=20)
def tiles(run, level: str = "block", block: int = 0, warp: int = 0, thread: int = 0, step: int = 0, *, ax):
    """A on the left, B above, C where they meet: full colour where this step loads, paler where steps before it did.

    level: "block", "warp" or "thread", of linear `block`; step: along K.
    """
    seen = march(run, level, block, warp, thread, step)
    (m, k), (k_b, n) = seen.a.now.shape, seen.b.now.shape
    gap = _GAP * max(m + k_b, n + k) / 2
    left, top = k + gap, k_b + gap
    ax.set_axis_off()
    ax.set_anchor("NW")
    corners = ((seen.a, BLUE, 0, top), (seen.b, ORANGE, left, 0), (seen.c, GREEN, left, top))
    for part, colour, x, y in corners:
        rows, columns = part.now.shape
        every = max(1, -(-max(rows, columns) // _LARGEST))
        ax.imshow(_shade(part, colour, every), extent=(x, x + columns, y + rows, y), interpolation="nearest", aspect="equal", zorder=1)
        _outline(ax, part, colour, x, y, max(m + top, n + left))
    _tile_lines(ax, run, m, n, k, k_b, left, top)
    ax.set_xlim(-0.02 * gap, left + n + 0.02 * gap)
    ax.set_ylim(top + m + 0.02 * gap, -0.02 * gap)
    names = {"va": "bottom", "fontsize": 15, "weight": "bold"}
    for part, colour, place, aligned in (
        (seen.a, BLUE, (0, top - 0.15 * gap), "left"), (seen.b, ORANGE, (left - 0.2 * gap, k_b), "right"),
        (seen.c, GREEN, (left, top - 0.15 * gap), "left"),
    ):  # fmt: skip
        ax.text(*place, part.label.replace(", ", ",\n"), ha=aligned, color=AS_TEXT[colour], **names)
    where = _where(run, seen, level)
    title = f"Step {nth(seen.step, seen.steps)}{_range_of_k(seen)}"
    heading(ax, title, detail=f"{where}: what it loads from global memory{cut(run.trace)}")
    _key(ax, level, left, top, gap)
    notes = _notes(seen)
    column = {
        "xycoords": ("axes fraction", "data"),
        "textcoords": "offset points",
        "va": "top",
        "linespacing": 1.5,
        "annotation_clip": False,
    }
    for (part, colour, _, y), note, row in zip(corners, notes, (1, 0, 2), strict=False):
        ax.annotate(note, (1, 0), (18, -62 * row), fontsize=14, color=AS_TEXT[colour], **column)
    per_result = _per_result(run, m, n, k)
    if per_result:
        ax.annotate("load instructions\nper result\n" + "\n".join(per_result), (1, 0), (18, -186), fontsize=14, color=INK, **column)
    said = " ".join(note.replace("\n", " ") + "." for note in notes)
    return f"{title}. {where}. {said}" + (f" Load instructions per result: {', '.join(per_result)}." if per_result else "")


def _key(ax, level: str, left: float, top: float, gap: float) -> None:
    """What the strengths of the colours mean, as patches, since a dark theme turns light and dark around; where the corner has room."""
    (x0, y0), (x1, y1) = ax.transData.transform([(0, top - gap), (left - gap, 0)])
    if (x1 - x0) * 72 / ax.figure.dpi < 130 or (y1 - y0) * 72 / ax.figure.dpi < 80:
        return
    shades = [(1.0, "in this step"), (_BEFORE, "in steps before")]
    if level != "block":
        shades.insert(1, (_OTHERS, "rest of the block"))
    handles = [
        tuple(Patch(facecolor=tuple(1 + shade * (part - 1) for part in rgb(colour))) for colour in (BLUE, ORANGE)) for shade, _ in shades
    ]
    ax.legend(
        handles, [text for _, text in shades], handler_map={tuple: HandlerTuple(ndivide=None, pad=0)}, loc="upper left",
        bbox_to_anchor=(0, 0), bbox_transform=ax.transData, borderaxespad=0, handletextpad=0.6,
    )  # fmt: skip


def _outline(ax, part: TouchedPart, colour: str, x: float, y: float, extent: float) -> None:
    """The matrix's edge, marks on single elements that would be too small to be seen, and a ring around all of them if they are close."""
    rows, columns = part.now.shape
    ax.plot([x, x + columns, x + columns, x, x], [y, y, y + rows, y + rows, y], color=QUIET, linewidth=1)
    touched = np.argwhere(part.now)
    box = ax.get_window_extent()
    point = min(box.width, box.height) * 72 / ax.figure.dpi / extent  # of one element
    if point < 4 and len(touched) <= 16:
        ax.plot(x + touched[:, 1] + 0.5, y + touched[:, 0] + 0.5, "s", markersize=4, color=AS_TEXT[colour], zorder=3)
    span = part.extent()
    if span and max(span[0].stop - span[0].start, span[1].stop - span[1].start) < extent / 60:
        middle = (span[1].start + span[1].stop) / 2, (span[0].start + span[0].stop) / 2
        ax.plot(
            x + middle[0], y + middle[1], "o", markersize=15, markerfacecolor="none", markeredgecolor=AS_TEXT[colour], markeredgewidth=2
        )


def _tile_lines(ax, run, m, n, k, k_b, left, top) -> None:
    """Where one block's rows and columns end, if the kernel states its tile."""
    tile = run.kernel.compiled.constants.get("tile_shape")
    if not tile or m / tile[0] > 64 or n / tile[1] > 64:
        return
    rows = [y for y in range(0, m, tile[0]) if y]
    columns = [x for x in range(0, n, tile[1]) if x]
    lines = [[(0, top + y), (k, top + y)] for y in rows] + [[(left, top + y), (left + n, top + y)] for y in rows]
    lines += [[(left + x, 0), (left + x, k_b)] for x in columns] + [[(left + x, top), (left + x, top + m)] for x in columns]
    ax.add_collection(LineCollection(lines, colors=PAPER, linewidths=1, zorder=1.5))


def _shade(part: TouchedPart, colour: str, every: int):
    """RGB image: paper, pale where touched before, paler still where others of the block touch now, full where touched now."""
    base = np.array(rgb(colour))
    strength = np.full(part.now.shape, 0.06)
    strength[part.before > 0] = _BEFORE
    strength[part.by_block > 0] = _OTHERS
    strength[part.now > 0] = 1.0
    if every > 1:
        rows, columns = (-(-size // every) for size in strength.shape)
        padded = np.zeros((rows * every, columns * every))
        padded[: strength.shape[0], : strength.shape[1]] = strength
        strength = padded.reshape(rows, every, columns, every).max(axis=(1, 3))
    return (255 * (1 + strength[..., None] * (base - 1))).astype(np.uint8)


def _range_of_k(seen: March) -> str:
    """The part of K that the whole block loads in this step."""
    columns, rows = np.flatnonzero(seen.a.by_block.any(axis=0)), np.flatnonzero(seen.b.by_block.any(axis=1))
    touched = np.concatenate([columns, rows])
    if not len(touched):
        return ""
    low, high = touched.min(), touched.max()
    return f": k = {low}" if low == high else f": k = {low} to {high}"


def _where(run, seen: March, level: str) -> str:
    text = block_label(run.trace, seen.block)
    if level == "warp":
        text += f", warp {seen.warp}"
    if level == "thread":
        text += f", {thread_label(run.trace, seen.thread)}"
    return text


def _notes(seen: March) -> list[str]:
    """What this step loads, and what the chosen part of the block computes."""
    notes = []
    for part in (seen.a, seen.b):
        distinct, total = int((part.now > 0).sum()), int(part.now.sum())
        if not distinct:
            notes.append(f"nothing of {part.name}\nloaded now")
            continue
        times = total / distinct
        often = "once" if times == 1 else f"{times:,.3g} times"
        notes.append(f"{plural(distinct, 'element')} of {part.name}\nloaded {often}" + (" each" if distinct > 1 else ""))
    results = int((seen.c.now > 0).sum())
    notes.append(f"{plural(results, 'element')} of {seen.c.name}\ncomputed")
    return notes


def _per_result(run, m: int, n: int, k: int) -> list[str]:
    """Loads per element of C, from the counters of the whole run; warp-wide instructions count for 32."""
    texts = []
    for name, space in ((names.requests("global", "ld"), "global"), (names.executed("shared_ld"), "shared")):
        count = run.counters.get(name, 0)
        if count and m * n * k:
            loads = WARP * count / (m * n)
            texts.append(f"{loads:,.4g} {space} = {_in_k(loads / k)}")
    return texts


def _in_k(ratio: float) -> str:
    """A multiple of K as one would write it: 2 K, K/16."""
    if ratio >= 0.75:
        return f"{ratio:.3g} K"
    return f"K/{1 / ratio:.3g}"
