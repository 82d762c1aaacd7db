"""Cycles: what each warp of a sub-partition does in every cycle of the main loop, in Nsight Compute's words.

The model runs the machine code of the resident blocks on one multiprocessor (`model.cycles`). Here is a piece of that, in cycles: a row
for each warp that shares one scheduler, and below them the line of the source at which the first of them stands. A column has the colour
of the state that takes most of it. The order of what waits is the model's: only sums over a loop were held to hardware.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from helpers.errors import CourseError, plural, statement_line
from helpers.model import hardware
from helpers.model.cycles.estimate import Watched, watched
from helpers.model.cycles.multiprocessor import WORDS, Spell, WarpState
from helpers.model.hardware import SUB_PARTITIONS

from .canvas import FAINT, INK, QUIET, Choice, NothingToSee, Span, heading, picture, rgb
from .warp_states import COLOURS, DEFAULT_GPU, explain, launched

_COLUMNS = 1200  # of the image
WINDOWS = (100, 200, 500, 2000)  # cycles shown at once
_ROWS = 16
_WIDEST_LABEL = 0.025  # share of the width that the number of a line needs
_last: list[tuple[weakref.ref, str, Watched]] = []  # the run that was watched last: sliders ask for it time and again


def _watched(run, gpu: str) -> Watched:
    """Raises NothingToSee where the model does not know."""
    for of, on, seen in _last:
        if of() is run and on == gpu:
            return seen
    try:
        seen = watched(run, hardware.gpu(gpu))
    except CourseError as error:
        raise NothingToSee(error.message) from error
    _last[:] = [(weakref.ref(run), gpu, seen)]
    return seen


def _extent(spells: Sequence[Spell]) -> tuple[float, float]:
    """From where on all of them are known, and until when."""
    ends = [spell.begin + sum(cycles for _, cycles in spell.spans) for spell in spells]
    return min(ends), max(ends)


def controls(run, gpu=None, window=None, sub_partition=None, start=None):
    """The GPU, which scheduler, how many cycles at once and from where."""
    return (
        Choice("gpu", "GPU", tuple((item.name, item.name) for item in hardware.gpus()), DEFAULT_GPU),
        Choice("sub_partition", "scheduler", tuple((str(number), number) for number in range(SUB_PARTITIONS)), 0),
        Choice("window", "cycles at once", tuple((str(cycles), cycles) for cycles in WINDOWS), WINDOWS[1]),
        Span("start", "from, %", 0, 100, 0, buttons=True),
    )


def shares(spells: Sequence[Spell], begin: float, end: float, columns: int) -> np.ndarray:
    """[columns, WarpState] of one warp: the part of each column's cycles, between `begin` and `end`, that it spends in each state."""
    found = np.zeros((columns, len(WarpState)))
    scale = columns / (end - begin)
    for spell in spells:
        at = spell.begin
        for state, cycles in spell.spans:
            left, right = (max(at, begin) - begin) * scale, (min(at + cycles, end) - begin) * scale
            at += cycles
            if left >= right:
                continue
            edges = np.arange(int(left), min(int(np.ceil(right)), columns))
            found[edges, state] += np.minimum(edges + 1, right) - np.maximum(edges, left)
    return found


@picture("Cycles", controls=controls, size=(12, 6), margins=(1.6, 1.45, 0.4, 1.2), order=98)
def cycles_of_warps(run, *, ax, gpu=DEFAULT_GPU, window: int = WINDOWS[1], sub_partition: int = 0, start: int = 0):
    """What the warps of one scheduler do, cycle by cycle. Predicted from the machine code. window: cycles shown; start: from where,
    0 to 100 % of those that were watched."""
    what, seen = launched(run), _watched(run, gpu)
    first, last = _extent(seen.spells)
    begin = first + start / 100 * max(0.0, last - first - window)
    end = min(begin + window, last)
    by_warp: dict[tuple[int, int], list[Spell]] = defaultdict(list)
    for spell in seen.spells:
        if spell.sub_partition == sub_partition:
            by_warp[spell.block, spell.warp].append(spell)
    if not by_warp:
        raise NothingToSee(f"No warp is on scheduler {sub_partition}.")
    warps = sorted(by_warp)[:_ROWS]
    palette = np.array([rgb(COLOURS[state]) for state in WarpState])
    parts = np.stack([shares(by_warp[warp], begin, end, _COLUMNS) for warp in warps])
    unknown = 1 - parts.sum(axis=2, keepdims=True)
    most = np.concatenate([parts, unknown], axis=2).argmax(axis=2)
    for y, row in enumerate(np.vstack([palette, rgb(FAINT)])[most]):
        ax.imshow(row[None], extent=(0, end - begin, y + 0.84, y), aspect="auto", interpolation="nearest")
    _lines(ax, by_warp[warps[0]], of_statement(run, seen), begin, end, len(warps))
    several = len({block for block, _ in warps}) > 1
    names = [f"block {block}, warp {warp}" if several else f"warp {warp}" for block, warp in warps]
    of_first = "line" if len(warps) == 1 else "line of the first"
    ax.set_yticks([*(y + 0.42 for y in range(len(warps))), len(warps) + 0.45], [*names, of_first], fontsize=12)
    ax.set_xlim(0, end - begin)
    ax.set_ylim(len(warps) + 0.8, 0)
    ax.set_xlabel(f"cycles, from {begin - first:,.0f} on; a trip of the main loop takes {seen.per_trip:,.0f}", fontsize=13)
    ax.grid(False)
    total = parts.sum(axis=(0, 1))
    present = [state for state in COLOURS if total[state] > 0]
    explain(ax, [WORDS[state] for state in present], (-0.1, -0.16))
    issued = total[WarpState.SELECTED] / _COLUMNS
    title = f"Scheduler {sub_partition} issues in {issued:.0%} of these cycles"
    blocks = f"{seen.resident} block{'s' if seen.resident > 1 else ''}"
    heading(ax, title, detail=f"predicted for {gpu}, {what}, {blocks} of {seen.warps} warps on a multiprocessor")
    every = total.sum()
    largest = sorted(((total[state] / every, WORDS[state]) for state in present), reverse=True)
    return (
        f"{title}. {plural(len(warps), 'warp')}. Predicted for {gpu}. " + ", ".join(f"{word} {share:.0%}" for share, word in largest) + "."
    )


def of_statement(run, seen: Watched) -> dict[int, int | None]:
    """SASS index -> the line at which its statement begins, as other pictures number them; None where it has none."""
    return {index: line and (statement_line(run.kernel.source, line) or line) for index, line in seen.lines.items()}


def _lines(ax, spells: Sequence[Spell], lines: Mapping[int, int | None], begin: float, end: float, y: int) -> None:
    """The line of the source at which a warp stands, as a strip with numbers."""
    runs: list[list] = []
    for spell in spells:
        until = spell.begin + sum(cycles for _, cycles in spell.spans)
        line = lines.get(spell.index)
        if runs and runs[-1][0] == line:
            runs[-1][2] = until
        else:
            runs.append([line, spell.begin, until])
    for number, (line, left, right) in enumerate(runs):
        left, right = max(left, begin) - begin, min(right, end) - begin
        if left >= right:
            continue
        ax.axvspan(left, right, ymin=0, ymax=0.7 / (y + 0.8), color="#cccccc" if number % 2 else FAINT, linewidth=0)
        if line is not None and right - left > _WIDEST_LABEL * (end - begin):
            ax.text((left + right) / 2, y + 0.45, str(line), ha="center", va="center", fontsize=11, color=INK if number % 2 else QUIET)
