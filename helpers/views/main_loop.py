"""Main loop: the machine code of the loop with the most FFMA, instruction by instruction, in the cycles that the compiler plans.

These are not measured cycles: every instruction carries how long the warp is to wait before its next one, and the picture lays them end to
end. What waits for data, or for the other warps of the scheduler, comes on top. Each row holds the same number of FFMAs, so a longer row
is one in which the warp does something else.
"""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch

from helpers.model import planned_cycles
from helpers.model.planned_cycles import COPY, MULTIPLY_ADD, OTHER, PLACEHOLDER, SHARED_LOAD, Planned

from .canvas import GREEN, INK, ORANGE, PURPLE, QUIET, SKY, NothingToSee, heading, picture

WAIT = "planned wait"
_GAP = "#c4c4c4"  # light: nothing is issued there
# Those of the timeline, where it has the kind.
COLOURS = {MULTIPLY_ADD: GREEN, SHARED_LOAD: ORANGE, COPY: SKY, PLACEHOLDER: PURPLE, OTHER: QUIET, WAIT: _GAP}
_MOST_ROWS = 16
_SHORT = 64  # FFMAs; a row should not have fewer


@dataclass(frozen=True)
class Stretch:
    """Neighbours of one kind: cycles `left` to `right` of row `row`."""

    row: int
    kind: str
    left: int
    right: int


def row_count(ffma: int) -> int:
    """Rows of the picture: the largest power of two, at most 16, that deals out the FFMAs evenly and leaves a row 64 or more."""
    rows = _MOST_ROWS
    while rows > 1 and (ffma % rows or ffma // rows < _SHORT):
        rows //= 2
    return rows


def stretches(body: tuple[Planned, ...], rows: int) -> list[Stretch]:
    """The loop in rows of equally many FFMAs. An instruction takes one cycle, the rest of its cycles are a planned wait."""
    each = sum(one.kind == MULTIPLY_ADD for one in body) // rows
    found: list[Stretch] = []
    row = at = seen = 0
    for one in body:
        if one.kind == MULTIPLY_ADD:
            if seen == each and row < rows - 1:
                row, at, seen = row + 1, 0, 0
            seen += 1
        for kind, cycles in ((one.kind, 1), (WAIT, one.cycles - 1)):
            if not cycles:
                continue
            last = found[-1] if found else None
            if last and (last.row, last.kind) == (row, kind):
                found[-1] = Stretch(row, kind, last.left, at + cycles)
            else:
                found.append(Stretch(row, kind, at, at + cycles))
            at += cycles
    return found


def _of_tensor_cores(run) -> None:
    """Raise NothingToSee where the product is not of FFMAs: those that a kernel has besides are in some other loop."""
    if run.kernel.compiled.matrix_types:
        raise NothingToSee("This kernel multiplies on tensor cores, and the picture shows how FFMAs follow each other.")


def controls(run):
    """None; but a loop of a few FFMAs leaves nothing to plan, and is not offered."""
    _of_tensor_cores(run)
    loop = planned_cycles.main_loop(run.kernel.compiled)
    if loop is None or loop.counts[MULTIPLY_ADD] < _SHORT:
        raise NothingToSee(f"The machine code of this kernel has no loop with {_SHORT} FFMAs or more, so there is little to plan.")
    return ()


@picture("Main loop", controls=controls, size=(12, 6), margins=(1.0, 1.35, 0.8, 1.1), order=95)
def main_loop(run, *, ax):
    """The main loop's machine code as the compiler plans it: each instruction and wait at its cycle, each row with equally many FFMAs."""
    _of_tensor_cores(run)
    loop = planned_cycles.main_loop(run.kernel.compiled)
    if loop is None:
        raise NothingToSee("The machine code of this kernel has no loop with an FFMA in it, so there is no main loop to show.")
    ffma = loop.counts[MULTIPLY_ADD]
    rows = row_count(ffma)
    found = stretches(loop.body, rows)
    ends = [max(one.right for one in found if one.row == row) for row in range(rows)]
    boxes = [[(one.left, one.row), (one.right, one.row), (one.right, one.row + 0.8), (one.left, one.row + 0.8)] for one in found]
    ax.add_collection(PolyCollection(boxes, facecolors=[COLOURS[one.kind] for one in found], linewidths=0))
    each = ffma // rows
    ax.plot([each, each], [-0.2, rows], color=INK, linewidth=1.4, linestyle="--")
    x, side = (each, "right") if each > 0.3 * max(ends) else (0.005 * max(ends), "left")  # to the left of the line they may have no room
    ax.text(x, -0.35, f"{each} FFMA, one a cycle ", ha=side, va="bottom", fontsize=12.5)
    for row, end in enumerate(ends):
        ax.text(end + 1.5, row + 0.4, f"{end}", va="center", fontsize=11.5, color=QUIET)
    ax.set_xlim(0, max(ends) * 1.03)
    ax.set_ylim(rows + 0.1, -1.2)
    ax.set_yticks([row + 0.4 for row in range(rows)], [str(row) for row in range(rows)], fontsize=12)
    ax.set_ylabel(f"part of the loop, {rows} parts" if rows > 1 else "the loop", fontsize=13)
    ax.set_xlabel("cycles, as the compiler plans them", fontsize=13)
    ax.grid(False)
    kinds = [kind for kind in COLOURS if any(one.kind == kind for one in found)]
    ax.legend(handles=[Patch(color=COLOURS[kind], label=kind) for kind in kinds], loc="upper left", bbox_to_anchor=(0, -0.13),
              ncols=len(kinds), fontsize=12.5, frameon=False, handlelength=1.1, columnspacing=1.4)  # fmt: skip
    title = f"{loop.cycles_per_ffma:.3f} planned cycles for each FFMA"
    counts = ", ".join(f"{loop.counts[kind]} {kind}" for kind in planned_cycles.KINDS if loop.counts[kind])
    detail = f"main loop: {len(loop.body)} instructions, {loop.cycles} cycles ({counts})"
    heading(ax, title, detail=detail)
    longest = max(range(rows), key=ends.__getitem__)
    return f"{title}. {detail}. The longest of {rows} parts with {each} FFMA each is number {longest}: {ends[longest]} cycles."
