"""Swizzled tile: where the tensor memory accelerator puts the 16-byte pieces of a box, and which of them a warpgroup's product reads.

A row of the picture is 128 bytes of shared memory, all banks once. Everything comes from recorded moves: the places that the copy
wrote, and those that the product's matrix descriptor named; nothing here computes a swizzle.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.collections import PolyCollection

from helpers.errors import plural

from .canvas import BLUE, FAINT, INK, ORANGE, PAPER, QUIET, NothingToSee, Span, heading, picture, stamp, text_on
from .places import block_label, once_per_trace

LINE = 128  # bytes: all banks once
PIECE = 16
PIECES = LINE // PIECE
_LINES = 16  # drawn
_PALE = "#cfe3f3"


@dataclass(frozen=True)
class CopiedBox:
    """A bulk copy and the products that read what it brought. home: [lines, 8] (row, piece) of the box that lies there, -1 for others'.

    reads: pairs of the operand's name and the places [lines, k] of its elements, in order.
    """

    block: int
    home: np.ndarray
    first: int
    reads: tuple[tuple[str, np.ndarray], ...]


@once_per_trace
def boxes(trace) -> tuple[CopiedBox, ...]:
    """The boxes copied in the first recorded block, in order. Raises NothingToSee where there is none."""
    copies = [move for move in trace.moves if move.kind == "copy" and move.places.shape[1] <= PIECES]
    copies = [move for move in copies if move.block == copies[0].block]
    if not copies:
        raise NothingToSee("No tile was copied by a tensor map in the part that was recorded, so there is no swizzle of one to see.")
    found = []
    for copy in copies:
        low, high = int(copy.places.min()), int(copy.places.max()) + PIECE
        later = [move for move in trace.moves if move.block == copy.block and move.order > copy.order]
        after = [move.order for move in later if move.kind == "copy" and low <= int(move.places.min()) < high]
        until = after[0] if after else float("inf")
        products = [move for move in later if move.kind in ("A", "B") and move.order < until]
        reads = [(move.kind, move.places) for move in products if ((move.places >= low) & (move.places < high)).any()]
        first = low // LINE * LINE
        home = np.full((-(-(high - first) // LINE), PIECES, 2), -1)
        rows, pieces = np.indices(copy.places.shape)
        at = (copy.places - first) // PIECE
        home[at // PIECES, at % PIECES] = np.stack([rows, pieces], axis=-1)
        found.append(CopiedBox(copy.block, home, first, tuple(reads)))
    return tuple(found)


def core_matrix(places: np.ndarray) -> np.ndarray:
    """Where the first 8 x 8 elements of a matrix lie, as the places of their pieces of 16 bytes in order: eight, if all is well."""
    return np.unique(places[:8, :8] // PIECE)


def groups_of_banks(places: np.ndarray) -> int:
    """In how many different groups of four banks the pieces of a core matrix lie."""
    return len(np.unique(core_matrix(places) % PIECES))


def controls(run, copy=0, product=0):
    """Which copy, and which of the products that read it."""
    found = boxes(run.trace)
    chosen = found[min(max(copy or 0, 0), len(found) - 1)]
    return Span("copy", "copy", 0, len(found) - 1), Span("product", "product", 0, max(len(chosen.reads) - 1, 0))


@picture("Swizzled tile", controls=controls, size=(10, 7.4), margins=(1.35, 0.95, 0.25, 1.05), order=28)
def swizzled_tile(run, copy: int = 0, product: int = 0, *, ax):
    """Lines of a copied box as they lie in shared memory, from those on with which a product begins: what it reads of them, and its first
    core matrix."""
    found = boxes(run.trace)
    copy = min(max(copy, 0), len(found) - 1)
    box = found[copy]
    read, core, name, banks = set(), set(), "", 0
    if box.reads:
        product = min(max(product, 0), len(box.reads) - 1)
        name, places = box.reads[product]
        read = set(np.unique(places // PIECE - box.first // PIECE).tolist())
        core = set((core_matrix(places) - box.first // PIECE).tolist())
        banks = groups_of_banks(places)
    begins = min(read & set(range(len(box.home) * PIECES)), default=0)  # it may begin before the box, or end behind it
    first = begins // PIECES // _LINES * _LINES  # line that is drawn
    lines = min(_LINES, len(box.home) - first)
    cells, colours = [], []
    for line in range(lines):
        for place in range(PIECES):
            row, piece = box.home[first + line, place]
            number = (first + line) * PIECES + place
            colour = ORANGE if number in core else BLUE if number in read else _PALE if row >= 0 else FAINT
            cells.append(
                [(place + 0.03, line + 0.04), (place + 0.97, line + 0.04), (place + 0.97, line + 0.96), (place + 0.03, line + 0.96)]
            )
            colours.append(colour)
            if row >= 0:
                stamp(
                    ax, place + 0.5, line + 0.5, f"{row} · {piece}", ha="center", va="center_baseline", fontsize=12, color=text_on(colour)
                )
    ax.add_collection(PolyCollection(cells, facecolors=colours, edgecolors=PAPER, linewidths=0.6))
    ax.set_xlim(0, PIECES)
    ax.set_ylim(lines, 0)
    ax.set_xticks([place + 0.5 for place in range(PIECES)], [f"{4 * place}–{4 * place + 3}" for place in range(PIECES)], fontsize=12)
    ax.set_yticks(
        [line + 0.5 for line in range(lines)], [f"{box.first + (first + line) * LINE:,}" for line in range(lines)], fontsize=11, color=QUIET
    )
    ax.tick_params(length=0)
    ax.set_xlabel("banks; in each cell: row of the box · its piece of 16 bytes", fontsize=13, color=INK)
    ax.set_ylabel("byte of shared memory", fontsize=13)
    for side in ("left", "top", "right", "bottom"):
        ax.spines[side].set_visible(False)
    held = box.home[..., 0].max() + 1
    title = f"a box of {held} rows, as the copy laid it out"
    said = f"no product reads it in {block_label(run.trace, box.block)}"
    if name:
        said = (
            f"blue and orange: what one wgmma reads as {name}; orange: its first 8 × 8 elements, in {plural(banks, 'group')} of four banks"
        )
    which = f"lines {first + 1} to {first + lines}" if first else f"the first {lines}"
    more = f"; {which} of {len(box.home)}{'' if first else ' lines'}" if lines < len(box.home) else ""
    heading(ax, f"Copy {copy}: {title}", detail=f"{said}{more}")
    shown = first + min(1, lines - 1)
    second = ", ".join(f"row {row} piece {piece}" for row, piece in box.home[shown])
    where = "The second line" if shown < 2 else f"Line {shown + 1}"
    return f"Copy {copy}: {title}. {where} holds, bank by bank: {second}. {said[0].upper()}{said[1:]}."
