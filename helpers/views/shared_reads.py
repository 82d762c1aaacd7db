"""Shared reads: which elements of the tiles in shared memory a thread, a warp or a block reads, step by step along K.

`tiles` shows what is copied from global memory; this is what threads then take out of the copies. Everything comes from
executed loads, mapped back to the shared arrays as the source declares them. A step is what `tiles` calls one; within it the
picture follows the instructions of one warp. Of `ldmatrix` a thread reads the elements that arrive in its registers, wherever the
address came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.legend_handler import HandlerTuple
from matplotlib.patches import Patch

from helpers.errors import plural
from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.sites import AccessKind

from .canvas import AS_TEXT, BLUE, ORANGE, PURPLE, QUIET, Choice, NothingToSee, Span, heading, picture, rgb
from .places import block_label, code, cut, nearest, nth, once_per_trace, shared_shape, steps_along_k, thread_label

LEVELS = ("thread", "warp", "block")
_NONE = "No thread of this kernel reads shared memory in the part that was recorded: what it needs comes from global memory or registers."
_COLOURS = {"A": BLUE, "B": ORANGE}  # by the first letter of an array's name, as in the other pictures
_NOW, _SO_FAR, _OTHERS, _NOTHING = 1.0, 0.55, 0.22, 0.06  # strengths
_ROW = 32  # elements in a row of an array that is declared with one extent
_MOST = 6  # arrays drawn


@dataclass(frozen=True)
class TileReads:
    """Reads of one shared array. Arrays are [rows, columns] of it, all extents but the last folded into the rows.

    now: how often the instruction that is shown reads the element, for the chosen level. so_far: the chosen level, in this step up
    to that instruction. by_block: in the whole step, by all threads of the block.
    """

    name: str
    shape: tuple[int, ...]
    now: np.ndarray
    so_far: np.ndarray
    by_block: np.ndarray


@dataclass(frozen=True)
class SharedReads:
    """What is read at one moment. read: the instruction that is shown, of `reads` that the warp (or the thread) makes in this step;
    for a block all of them. instructions: warp-wide loads up to there. line: its source line, None for a block."""

    block: int
    warp: int
    thread: int
    step: int
    steps: int
    read: int
    reads: int
    instructions: int
    line: int | None
    tiles: tuple[TileReads, ...]


def shared_reads_of(run, level="thread", block: int = 0, warp: int = 0, thread: int = 0, step: int = 0, read: int | None = None):
    """`SharedReads` of a level: "thread", "warp" or "block"; indices move to the nearest recorded ones.

    read: which load of the step, from 0; None: the last. Raises NothingToSee if shared memory is not read.
    """
    trace = run.trace
    block, warp, thread, step, steps, mine = _chosen(trace, level, block or 0, warp or 0, thread or 0, step or 0)
    lanes = slice(thread % WARP, thread % WARP + 1) if level == "thread" else slice(None)
    reads = len(mine)
    read = reads - 1 if read is None or level == "block" else min(max(read, 0), max(reads - 1, 0))
    now = mine if level == "block" else mine[read : read + 1]
    found = []
    for array in _arrays(trace):
        shape, itemsize = shared_shape(run, array)
        count = (_count(trace, array, itemsize, which, part) for which, part in ((now, lanes), (mine[: read + 1], lanes)))
        folded = (-1, shape[-1]) if len(shape) > 1 else (-1, _ROW) if shape[0] % _ROW == 0 else (1, -1)
        by_block = _by_block(trace, block, step, array, itemsize)
        found.append(TileReads(array.name, shape, *(part.reshape(folded) for part in (*count, by_block))))
    line = trace.sites[trace.accesses["site"][now[0]]].line if level != "block" and len(now) else None
    return SharedReads(block, warp, thread, step, steps, read, reads, len(mine[: read + 1]), line, tuple(found))


@once_per_trace
def _chosen(trace, level: str, block: int, warp: int, thread: int, step: int) -> tuple[int, int, int, int, int, np.ndarray]:
    """The nearest recorded (block, warp, thread, step), how many steps there are, and the loads that `level` makes there, in order."""
    if level not in LEVELS:
        raise NothingToSee(f"level={level!r} is none of {', '.join(LEVELS)}.")
    block = nearest(_reading(trace), block)
    rows, at = _steps(trace, block)
    step = min(max(step, 0), int(at.max()))
    thread = min(max(thread, 0), int(np.prod(trace.block)) - 1)
    warp = thread // WARP if level == "thread" else nearest(trace.accesses["warp"][rows], warp)
    mine = rows[at == step]
    if level != "block":
        mine = mine[trace.accesses["warp"][mine] == warp]
    if level == "thread":
        takes_part = [bool((_pieces(trace, row)[0][thread % WARP] >= 0).any()) for row in mine]
        mine = mine[np.array(takes_part, bool)]
    return block, warp, thread, step, int(at.max()) + 1, mine


@once_per_trace
def _reading(trace) -> np.ndarray:
    """The blocks that read shared memory by load instructions."""
    blocks = np.unique(trace.accesses["block"][_loads(trace)])
    if not len(blocks):
        raise NothingToSee(_NONE)
    return blocks


@once_per_trace
def _loads(trace) -> np.ndarray:
    """Indices into trace.accesses of the loads from shared memory in which a lane takes part."""
    kinds = np.array(
        [site.space == "shared" and site.op in (AccessKind.LOAD, AccessKind.MATRIX_LOAD) and site.width > 0 for site in trace.sites]
        or [False]
    )
    return np.flatnonzero(kinds[trace.accesses["site"]] & (trace.addresses >= 0).any(axis=1))


@once_per_trace
def _steps(trace, block: int) -> tuple[np.ndarray, np.ndarray]:
    """(indices of the block's loads from shared memory in the order of execution, the step of each)."""
    rows = _loads(trace)
    rows = rows[trace.accesses["block"][rows] == block]
    rows = rows[np.argsort(trace.accesses["order"][rows], kind="stable")]
    return rows, steps_along_k(trace, block, trace.accesses[rows], np.ones(len(rows), bool))


@once_per_trace
def _arrays(trace) -> list:
    """The shared arrays that are read, by address."""
    rows = _loads(trace)
    addresses = np.unique(trace.addresses[rows])
    inside = [array for array in trace.allocations if array.space == "shared"
              and ((addresses >= array.base) & (addresses < array.base + array.nbytes)).any()]  # fmt: skip
    return sorted(inside, key=lambda array: array.base)[:_MOST]


def _pieces(trace, row: int) -> tuple[np.ndarray, int]:
    """([lanes, pieces] byte addresses, -1 for none; bytes of a piece) that each lane gets by one load."""
    site, addresses = trace.sites[trace.accesses["site"][row]], trace.addresses[row]
    if site.op is not AccessKind.MATRIX_LOAD:
        return addresses[:, None], site.width
    lane = np.arange(WARP)
    rows = addresses[: 8 * site.matrices].reshape(site.matrices, 8)
    if ".trans" in site.opcode or "MT88" in site.sass:  # of each 8 x 8 matrix lane l gets [2 (l % 4) and the next, l / 4], 16 bits each
        down = 2 * (lane % 4)
        starts = np.concatenate([rows[:, down + i] + 2 * (lane // 4) for i in (0, 1)])
        given = np.concatenate([rows[:, down + i] for i in (0, 1)])
        return np.where(given >= 0, starts, -1).T, 2
    given = rows[:, lane // 4]  # [l / 4, 2 (l % 4) and the next]
    return np.where(given >= 0, given + 4 * (lane % 4), -1).T, 4


@once_per_trace
def _by_block(trace, block: int, step: int, array, itemsize: int) -> np.ndarray:
    rows, at = _steps(trace, block)
    return _count(trace, array, itemsize, rows[at == step], slice(None))


def _count(trace, array, itemsize: int, rows: np.ndarray, lanes: slice) -> np.ndarray:
    """[elements of the array]: how often the lanes read each by these loads."""
    counts = np.zeros(array.nbytes // itemsize, np.int64)
    for row in rows:
        addresses, width = _pieces(trace, row)
        hits = addresses[lanes]
        hits = hits[(hits >= array.base) & (hits < array.base + array.nbytes)]
        if hits.size:
            first = (hits - array.base) // itemsize
            for offset in range(max(1, width // itemsize)):
                counts += np.bincount(np.minimum(first + offset, len(counts) - 1), minlength=len(counts))
    return counts


def controls(run, level="thread", block=0, warp=0, thread=0, step=0, read=None):
    """Level, block, the warp or thread, the step, and which of its loads."""
    level = level or "thread"
    *_, steps, mine = _chosen(run.trace, level, block or 0, warp or 0, thread or 0, step or 0)
    last = max(len(mine) - 1, 0)
    blocks = _reading(run.trace)
    threads = int(np.prod(run.trace.block))
    found = [
        Choice("level", "show", tuple((f"one {name}" if name != "block" else "the block", name) for name in LEVELS)),
        Span("block", "block", int(blocks[0]), int(blocks[-1])),
    ]
    if level == "warp":
        found.append(Span("warp", "warp", 0, (threads - 1) // WARP))
    if level == "thread":
        found.append(Span("thread", "thread", 0, threads - 1))
    found.append(Span("step", "step along K", 0, steps - 1, buttons=True))
    if level != "block":
        found.append(Span("read", "load of the step", 0, last, last, buttons=True))
    return tuple(found)


@picture("Shared reads", controls=controls, size=(10, 6.6), margins=(0.9, 0.6, 0.3, 1.35), order=22)
def shared_reads(run, level: str = "thread", block: int = 0, warp: int = 0, thread: int = 0, step: int = 0, read: int | None = None, *, ax):
    """The tiles in shared memory: what a thread, a warp or the block reads of them in one step along K.

    level: "thread", "warp" or "block", of linear `block`; step: along K; read: which load of the step, from 0; by default the last.
    """
    seen = shared_reads_of(run, level, block, warp, thread, step, read)
    ax.set_axis_off()
    ax.set_xlim(0, 1)
    box = ax.get_window_extent()
    height = 72 * box.height / ax.figure.dpi
    ax.set_ylim(height, 0)
    room = (height - 10) / len(seen.tiles)
    notes = []
    for number, tile in enumerate(seen.tiles):
        colour = _colour(tile)
        notes.append(_note(tile, level))
        top = number * room + 26
        _tile(ax, tile, colour, top, min(room - 52, 22.0 * len(tile.now)))
        extents = "".join(f"[{extent}]" for extent in tile.shape)
        ax.text(0, top - 6, f"{tile.name}{extents}", va="bottom", fontsize=14, weight="bold", color=AS_TEXT[colour])
        ax.text(1, top - 6, notes[-1], ha="right", va="bottom", fontsize=13, color=AS_TEXT[colour])
    chosen = {"block": "the block", "warp": f"warp {seen.warp}", "thread": thread_label(run.trace, seen.thread)}[level]
    each = "" if level == "block" else f", load {nth(seen.read, seen.reads)}" if seen.reads else ", which reads nothing here"
    parts = [f"{int((tile.so_far > 0).sum()):,} of {tile.name}" for tile in seen.tiles]
    what = {"block": "The block", "warp": "One warp", "thread": "One thread"}[level]
    title = f"{what} reads {' and '.join(parts)} in step {nth(seen.step, seen.steps)}"
    where = block_label(run.trace, seen.block) + ("" if level == "block" else f", {chosen}") + each
    where += f", {plural(seen.instructions, 'load')} of all its warps" if level == "block" else ""
    heading(ax, title, code=code(run, seen.line), detail=where + cut(run.trace))
    _key(ax, level, [_colour(tile) for tile in seen.tiles])
    return f"{title}. {where}. " + " ".join(f"{tile.name}: {note}." for tile, note in zip(seen.tiles, notes, strict=True))


def _colour(tile: TileReads) -> str:
    return _COLOURS.get(tile.name[:1].upper(), PURPLE)


def _tile(ax, tile: TileReads, colour: str, top: float, height: float) -> None:
    """One array with the numbers of its rows and columns at the edges."""
    rows, columns = tile.now.shape
    strength = np.full((rows, columns), _NOTHING)
    strength[tile.by_block > 0] = _OTHERS
    strength[tile.so_far > 0] = _SO_FAR
    strength[tile.now > 0] = _NOW
    image = (255 * (1 + strength[..., None] * (np.array(rgb(colour)) - 1))).astype(np.uint8)
    ax.imshow(image, extent=(0, 1, top + height, top), interpolation="nearest", aspect="auto", zorder=1)
    ax.plot([0, 1, 1, 0, 0], [top, top, top + height, top + height, top], color=QUIET, linewidth=1, zorder=2)
    if height / rows >= 4 and columns <= 160:  # lines between rows, where they leave something of the rows
        ax.hlines(top + height * np.arange(1, rows) / rows, 0, 1, colors="white", linewidths=0.5, zorder=1.5)
    small = {"textcoords": "offset points", "fontsize": 11, "color": QUIET, "annotation_clip": False}
    every = 1 << (-(-rows * 16 // max(int(height), 1)) - 1).bit_length()  # a power of two, as extents are
    for row in range(0, rows, every):
        index = ", ".join(str(part) for part in np.unravel_index(row, tile.shape[:-1])) if len(tile.shape) > 1 else str(row * columns)
        ax.annotate(index, (0, top + height * (row + 0.5) / rows), (-8, 0), ha="right", va="center", **small)
    for column in range(0, columns, max(1, columns // 8)):
        ax.annotate(str(column), ((column + 0.5) / columns, top + height), (0, -5), ha="center", va="top", **small)


def _note(tile: TileReads, level: str) -> str:
    """How much of an array is read so far, how often, and what the block makes of it."""
    distinct, total = int((tile.so_far > 0).sum()), int(tile.so_far.sum())
    all_of_block, reads = int((tile.by_block > 0).sum()), int(tile.by_block.sum())
    if not distinct:
        return "nothing read"
    text = f"{plural(distinct, 'element')}, {_times(total / distinct)}"
    return text if level == "block" else f"{text}; the block: {all_of_block:,}, {_times(reads / max(all_of_block, 1))}"


def _times(average: float) -> str:
    return "each read once" if average == 1 else f"each read {average:,.3g} times"


def _key(ax, level: str, colours: Sequence[str]) -> None:
    """What the strengths of the tiles' colours mean, as patches: a dark theme turns light and dark around."""
    shades = ((_NOW, "read in this step"),) if level == "block" else (
        (_NOW, "this load"), (_SO_FAR, f"earlier loads of this {level}"), (_OTHERS, "the rest of the block in this step"),
    )  # fmt: skip
    handles = [
        tuple(Patch(facecolor=tuple(1 + shade * (part - 1) for part in rgb(colour))) for colour in dict.fromkeys(colours))
        for shade, _ in shades
    ]
    ax.legend(
        handles, [text for _, text in shades], handler_map={tuple: HandlerTuple(ndivide=None, pad=0)}, loc="upper left",
        bbox_to_anchor=(-0.01, -0.005), ncols=len(handles), columnspacing=1.6, handletextpad=0.5,
    )  # fmt: skip
