"""Overtaking: two warps between two barriers, one running ahead of the other, and what that does to a tile in shared memory.

What either warp reads and writes, and where its barriers stand, is as executed. The machine executes the warps side by side; a GPU need
not. Here the fast warp goes as far as its next barrier lets it, and then the slow one follows; the other warps wait with the slow one.
An element is early if it holds a later value than the one that a warp still has to read, and a read is wrong if it finds another value
than in the execution.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch

from helpers.errors import plural
from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.sites import AccessKind

from .canvas import AS_TEXT, BLUE, FAINT, INK, ORANGE, PURPLE, QUIET, VERMILLION, Choice, NothingToSee, Span, heading, picture, rgb
from .places import block_label, blocks_of, cut, nearest, nth, once_per_trace, shared_shape, source_line

_LOADS, _STORES = (AccessKind.LOAD,), (AccessKind.STORE, AccessKind.COPY)
_FRAMES = 16  # of one warp's loads, at most
_ROW = 32  # elements of a row, where the declaration does not say
_SEARCHED = 8  # intervals in which harm is looked for
_NONE = "Nothing is read from shared memory between barriers here, so no warp can overtake another one there."


@dataclass(frozen=True)
class Event:
    """One access of a warp to an array. cells: elements, [n]. expected: which value of each a load found in the execution, else None."""

    warp: int
    order: int
    line: int
    stores: bool
    cells: np.ndarray
    expected: np.ndarray | None = None


@dataclass(frozen=True)
class Overtaking:
    """One moment. held: [elements] which value each holds, 0 for none, 1 for the first. before: the same when the fast warp set out. early,
    wrong: [elements] bool. done: how many of `events` are. (events: the fast warp's, then the slow one's.)"""

    block: int
    slow: int
    fast: int
    array: str
    shape: tuple[int, ...]
    interval: int
    intervals: int
    step: int
    steps: int
    events: tuple[Event, ...]
    done: int
    held: np.ndarray
    before: np.ndarray
    early: np.ndarray
    wrong: np.ndarray
    waits: bool

    @property
    def current(self) -> Event | None:
        return self.events[self.done - 1] if self.done else None


def overtaking_at(
    run, array: str | None = None, block: int = 0, slow: int = 0, fast: int = 1, interval: int | None = None, step: int | None = None
) -> Overtaking:
    """The moment `step` of an interval (of those in which the array is read or written); by default the first moment at
    which harm is done, or else the one at which the fast warp waits. Indices move to the nearest recorded ones. Raises NothingToSee."""
    trace = run.trace
    block = nearest(_reading(trace), block or 0)
    arrays = _arrays(trace, block)
    warps = sorted(_history(trace, block, arrays[0].base)[0])
    if len(warps) < 2:
        raise NothingToSee("This block has one warp, and a warp cannot overtake itself.")
    slow = nearest(np.array(warps), slow or 0)
    fast = nearest(np.array([warp for warp in warps if warp != slow]), 1 if fast is None else fast)
    chosen = next((one for one in arrays if one.name == array), None)
    if chosen is None:
        chosen = next((one for one in arrays if _first_harm(trace, block, one.base, slow, fast) is not None), arrays[-1])
    begins = _intervals(trace, block, chosen.base, slow)
    if interval is None:
        harm = _first_harm(trace, block, chosen.base, slow, fast)
        interval = begins.index(harm if harm is not None else _first_read(trace, block, chosen.base, slow))
    interval = min(max(interval, 0), len(begins) - 1)
    events, before, waits = _between(trace, block, chosen.base, slow, fast, begins[interval])
    stops = _stops(events)
    if step is None:
        step = next((number for number, done in enumerate(stops) if _harmed(events, before, done)), None)
        step = stops.index(sum(event.warp == fast for event in events)) if step is None else step
    step = min(max(step, 0), len(stops) - 1)
    done = stops[step]
    held, wrong = _played(events[:done], before)
    early = _early(events[done:], held)
    shape, _ = shared_shape(run, chosen)
    return Overtaking(block, slow, fast, chosen.name, shape, interval, len(begins), step, len(stops), events, done, held, before, early,
                      wrong, waits and done >= sum(event.warp == fast for event in events))  # fmt: skip


@once_per_trace
def _reading(trace) -> np.ndarray:
    """Blocks of several warps that load from shared memory."""
    kinds = np.array([site.space == "shared" and site.op in _LOADS and site.width > 0 for site in trace.sites] or [False])
    rows = trace.accesses[kinds[trace.accesses["site"]]]
    if not len(rows) or not len(blocks_of(trace)):
        raise NothingToSee(_NONE)
    return np.unique(rows["block"])


@once_per_trace
def _arrays(trace, block: int) -> list:
    """The shared arrays that this block loads from, by address."""
    kinds = np.array([site.space == "shared" and site.op in _LOADS and site.width > 0 for site in trace.sites])
    rows = kinds[trace.accesses["site"]] & (trace.accesses["block"] == block)
    addresses = np.unique(trace.addresses[rows])
    found = [
        one for one in trace.allocations if one.space == "shared" and ((addresses >= one.base) & (addresses < one.base + one.nbytes)).any()
    ]
    if not found:
        raise NothingToSee(_NONE)
    return sorted(found, key=lambda one: one.base)


@once_per_trace
def _history(trace, block: int, base: int) -> tuple[dict[int, list[Event]], dict[int, np.ndarray]]:
    """What each warp of a block does to the array at `base`, in its order, and the orders of the block's barriers that it passes."""
    array = next(one for one in trace.allocations if one.space == "shared" and one.base == base)
    word = 4 if array.nbytes % 4 == 0 else 1
    mine = np.flatnonzero(trace.accesses["block"] == block)
    kinds = np.array([site.space == "shared" and site.op in (*_LOADS, *_STORES) and site.width > 0 for site in trace.sites])
    mine = mine[kinds[trace.accesses["site"][mine]]]
    mine = mine[np.argsort(trace.accesses["order"][mine], kind="stable")]
    held = np.zeros(array.nbytes // word, np.int32)
    events: dict[int, list[Event]] = {warp: [] for warp in range(-(-int(np.prod(trace.block)) // WARP))}
    for row in mine:
        site, addresses = trace.sites[trace.accesses["site"][row]], trace.addresses[row]
        inside = addresses[(addresses >= base) & (addresses < base + array.nbytes)]
        if not inside.size:
            continue
        cells = np.unique(((inside - base) // word)[:, None] + np.arange(max(1, site.width // word)))
        cells = cells[cells < len(held)]
        stores = site.op in _STORES
        warp, order = int(trace.accesses["warp"][row]), int(trace.accesses["order"][row])
        events[warp].append(Event(warp, order, site.line or 0, stores, cells, None if stores else held[cells]))
        if stores:
            held[cells] += 1
    passed = trace.barriers[(trace.barriers["block"] == block) & (trace.barriers["kind"] == "sync")]
    return events, {warp: np.sort(passed["order"][passed["warp"] == warp]) for warp in events}


@once_per_trace
def _intervals(trace, block: int, base: int, slow: int) -> list[int]:
    """After how many barriers the slow warp loads from the array or stores to it."""
    events, barriers = _history(trace, block, base)
    found = sorted({int(np.searchsorted(barriers[slow], event.order)) for event in events[slow]})
    if not found:
        raise NothingToSee(f"Warp {slow} does not touch this array.")
    return found


@once_per_trace
def _between(trace, block: int, base: int, slow: int, fast: int, passed: int) -> tuple[tuple[Event, ...], np.ndarray, bool]:
    """Events of the fast warp and then of the slow one, after `passed` barriers and before the next; what the array holds when they set
    out; and does a barrier stop the fast one?"""
    events, barriers = _history(trace, block, base)
    start = barriers[slow][passed - 1] if passed else -1
    size = 1 + max((int(event.cells.max()) for mine in events.values() for event in mine), default=0)
    before = np.zeros(size, np.int32)
    for mine in events.values():
        for event in mine:
            if event.stores and event.order < start:
                before[event.cells] += 1
    found = []
    for warp in (fast, slow):
        low = barriers[warp][passed - 1] if 0 < passed <= len(barriers[warp]) else -1
        high = barriers[warp][passed] if passed < len(barriers[warp]) else np.inf
        found += [event for event in events[warp] if low < event.order < high]
    return tuple(found), before, passed < len(barriers[fast])


@once_per_trace
def _first_harm(trace, block: int, base: int, slow: int, fast: int) -> int | None:
    """After how many barriers a read is wrong for the first time; None if it never is, as far as it was looked for."""
    for passed in _intervals(trace, block, base, slow)[:_SEARCHED]:
        events, before, _ = _between(trace, block, base, slow, fast, passed)
        if _played(events, before)[1].any():
            return passed
    return None


def _played(events, before: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the array holds after these events, and which elements were read wrongly on the way."""
    held, wrong = before.copy(), np.zeros(len(before), bool)
    for event in events:
        if event.expected is None:
            held[event.cells] += 1
        else:
            wrong[event.cells] |= held[event.cells] != event.expected
    return held, wrong


def _early(ahead, held: np.ndarray) -> np.ndarray:
    """Which elements hold a later value than one of the events ahead has to read."""
    early = np.zeros(len(held), bool)
    for event in ahead:
        if event.expected is not None:
            early[event.cells] |= held[event.cells] > event.expected
    return early


def _harmed(events, before: np.ndarray, done: int) -> bool:
    """Is anything too early, or read wrongly, after so many events?"""
    held, wrong = _played(events[:done], before)
    return bool(wrong.any() or _early(events[done:], held).any())


def _first_read(trace, block: int, base: int, slow: int) -> int:
    """After how many barriers the slow warp loads from the array for the first time; stores to it, if it never loads."""
    events, barriers = _history(trace, block, base)
    first = next((event for event in events[slow] if not event.stores), events[slow][0])
    return int(np.searchsorted(barriers[slow], first.order))


def _stops(events) -> list[int]:
    """After how many events to stop: each store, and the loads in groups."""
    loads = sum(event.expected is not None for event in events) / 2
    every = max(1, round(loads / _FRAMES))
    stops, since = [0], 0
    for number, event in enumerate(events, 1):
        since += 1
        turn = number == len(events) or events[number].warp != event.warp or events[number].stores
        if event.stores or turn or since >= every:
            stops.append(number)
            since = 0
    return stops


def controls(run, array=None, block=0, slow=0, fast=1, interval=None, step=None):
    """The array, the warps, the interval between barriers, and the moment."""
    now = overtaking_at(run, array, block, slow, fast, interval, step)
    blocks, arrays = _reading(run.trace), _arrays(run.trace, now.block)
    last = -(-int(np.prod(run.trace.block)) // WARP) - 1
    return (
        Choice("array", "array", tuple((one.name, one.name) for one in arrays), now.array),
        Span("block", "block", int(blocks[0]), int(blocks[-1])),
        Span("slow", "slow warp", 0, last, now.slow),
        Span("fast", "fast warp", 0, last, now.fast),
        Span("interval", "interval", 0, now.intervals - 1, now.interval),
        Span("step", "moment", 0, now.steps - 1, now.step, buttons=True),
    )


@picture("Overtaking", controls=controls, needs={"blocks": {0}}, size=(10, 6.8), margins=(1.6, 0.6, 0.3, 1.15), order=45)
def overtaking(
    run, array: str | None = None, block: int = 0, slow: int = 0, fast: int = 1, interval: int | None = None, step: int | None = None, *, ax
):
    """A fast warp runs ahead of a slow one between two barriers; an array of shared memory, and what the slow one finds there.

    array: its name; slow, fast: warps of linear `block`; interval: between barriers; step: the moment.
    """
    now = overtaking_at(run, array, block, slow, fast, interval, step)
    ax.set_axis_off()
    ax.set_xlim(0, 1)
    box = ax.get_window_extent()
    height = 72 * box.height / ax.figure.dpi
    ax.set_ylim(height, 0)
    _tracks(ax, now)
    _grid(ax, now, 112.0, height)
    title = _title(now)
    where = f"{now.array} of {block_label(run.trace, now.block)}, interval {nth(now.interval, now.intervals)}"
    where += f"; the order of the warps is chosen, what they do is executed{cut(run.trace)}"
    current = now.current
    line = source_line(run, current.line).split("//")[0].strip() if current else ""
    heading(ax, title, code=f"warp {current.warp}: {current.line}  {line}" if current and line else "", detail=where)
    return f"{title}. {where[0].upper()}{where[1:]}. {_counted(now)}"


def _title(now: Overtaking) -> str:
    wrong, early = int(now.wrong.sum()), int(now.early.sum())
    if wrong:
        return f"{plural(wrong, 'element')} of {now.array} read wrongly: another value than it should be"
    if early:
        return (
            f"{plural(early, 'element')} of {now.array} overwritten, and warp {now.slow} still has to read {'it' if early == 1 else 'them'}"
        )
    if not now.done:
        return f"Warp {now.fast} and warp {now.slow} set out together"
    if now.done == len(now.events):
        return f"Nothing was read wrongly: {'the next barrier held warp ' + str(now.fast) if now.waits else 'nobody was in the way'}"
    if now.waits:
        return f"Warp {now.fast} waits at the next barrier, and has overwritten nothing that warp {now.slow} needs"
    return f"Warp {now.fast} runs ahead"


def _counted(now: Overtaking) -> str:
    fast = sum(event.warp == now.fast for event in now.events[: now.done])
    return f"Of its loads and stores warp {now.fast} has made {fast}, warp {now.slow} {now.done - fast}."


def _tracks(ax, now: Overtaking) -> None:
    """How far either warp has come, from barrier to barrier."""
    for row, (warp, name) in enumerate(((now.fast, "fast"), (now.slow, "slow"))):
        mine = [event for event in now.events if event.warp == warp]
        done = sum(event.warp == warp for event in now.events[: now.done])
        top, width = 6.0 + 46 * row, 1 / max(len(mine), 1)
        colours = np.array([rgb(PURPLE if event.stores else ORANGE) for event in mine])[None]
        strength = np.where(np.arange(len(mine)) < done, 1.0, 0.22)[None, :, None]
        ax.imshow(1 + strength * (colours - 1), extent=(0, 1, top + 20, top), interpolation="nearest", aspect="auto", zorder=1)
        ax.plot([done * width], [top + 27], marker="^", markersize=10, color=INK, clip_on=False)
        ax.vlines([0, 1], top - 5, top + 25, colors=INK, linewidths=3, clip_on=False)
        ax.annotate(f"warp {warp}, {name}", (0, top + 10), (-12, 0), textcoords="offset points", ha="right", va="center", fontsize=13,
                    weight="bold", annotation_clip=False)  # fmt: skip
    held = now.waits and now.done >= sum(event.warp == now.fast for event in now.events)
    if held:
        ax.annotate(
            "waits", (1, 33), (-6, 0), textcoords="offset points", ha="right", va="center", fontsize=12, color=INK, annotation_clip=False
        )


def _grid(ax, now: Overtaking, top: float, height: float) -> None:
    """The array: which value each element holds, and where that is trouble."""
    columns = now.shape[-1] if len(now.shape) > 1 else _ROW
    rows = -(-len(now.held) // columns)
    image = np.full((rows * columns, 3), 1.0)
    first = int(np.median(now.before[now.before > 0])) if (now.before > 0).any() else 0
    for value, colour, strength in ((0, FAINT, 1.0), (first, BLUE, 0.3), (first + 1, PURPLE, 0.55)):
        image[: len(now.held)][now.held == value] = 1 + strength * (np.array(rgb(colour)) - 1)
    image[: len(now.held)][now.held > first + 1] = rgb(QUIET)
    image[: len(now.held)][now.held == 0] = rgb(FAINT)
    image[: len(now.held)][now.early | now.wrong] = rgb(VERMILLION)
    bottom = height - 6
    ax.imshow(image.reshape(rows, columns, 3), extent=(0, 1, bottom, top), interpolation="nearest", aspect="auto", zorder=1)
    step = (bottom - top) / rows
    if step >= 5 and columns <= 64:
        ax.hlines(top + step * np.arange(1, rows), 0, 1, colors="white", linewidths=0.6, zorder=1.5)
        ax.vlines(np.arange(1, columns) / columns, top, bottom, colors="white", linewidths=0.6, zorder=1.5)
    current = now.current
    if current is not None:
        x, y, wide = current.cells % columns / columns, top + step * (current.cells // columns), 1 / columns
        corners = np.stack([np.stack([x + i * wide, y + j * step], axis=-1) for i, j in ((0, 0), (1, 0), (1, 1), (0, 1))], axis=1)
        ax.add_collection(PolyCollection(corners, facecolors="none", edgecolors=INK, linewidths=1.6, zorder=3))
    ax.plot([0, 1, 1, 0, 0], [top, top, bottom, bottom, top], color=QUIET, linewidth=1, zorder=2)
    ax.text(
        0,
        top - 5,
        now.array + "".join(f"[{extent}]" for extent in now.shape),
        va="bottom",
        fontsize=14,
        weight="bold",
        color=AS_TEXT[ORANGE],
    )
    for row in range(0, rows, max(1, -(-rows // 8))):
        ax.annotate(str(row), (0, top + step * (row + 0.5)), (-8, 0), textcoords="offset points", ha="right", va="center", fontsize=11,
                    color=QUIET, annotation_clip=False)  # fmt: skip
    handles = [
        Patch(facecolor=ORANGE, label="a load"),
        Patch(facecolor=PURPLE, label="a store"),
        Patch(facecolor=tuple(1 + 0.3 * (part - 1) for part in rgb(BLUE)), label="as when they set out"),
        Patch(facecolor=tuple(1 + 0.55 * (part - 1) for part in rgb(PURPLE)), label="written since"),
        Patch(facecolor=VERMILLION, label="too early, or read wrongly"),
        Patch(facecolor="none", edgecolor=INK, linewidth=1.6, label="touched now"),
    ]
    ax.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(-0.17, -0.005),
        ncols=len(handles),
        columnspacing=1.0,
        handlelength=1.5,
        handletextpad=0.4,
        fontsize=11.5,
    )
