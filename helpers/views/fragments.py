"""Fragments: which lane and register of a warp holds which element of a tensor-core instruction's matrices."""

from __future__ import annotations

import re

import numpy as np

from ..sim import fragments as layouts
from ..sim.fragments import Fragment, Shape
from .canvas import BLUE, GREEN, INK, ORANGE, PAPER, QUIET, Choice, NothingToSee, Span, heading, picture

_NONE = (
    "This kernel uses no tensor-core instruction (mma, wgmma) in its PTX: every element of its matrices lies in a register of "
    "one thread. See the owners of C instead."
)
_WMMA = (
    "This kernel uses wmma, which hides from its users which lane holds which element: the layout is not part of CUDA's promise. "
    "mma.sync shows it."
)
_TEXT = {"a": BLUE, "b": "#8f6200", "c": "#00734f"}
_FILL = {"a": BLUE, "b": ORANGE, "c": GREEN}
_WIDEST = 32  # columns of C that are drawn


def instructions(run) -> list[Shape]:
    """The matrix instructions of the kernel. Raises NothingToSee if there is none with a documented layout."""
    ptx = run.kernel.compiled.ptx
    found = layouts.shapes(ptx)
    if not found:
        raise NothingToSee(_WMMA if re.search(r"\bwmma\.", ptx) else _NONE)
    return found


def controls(run, instruction=None, lane=0):
    """Which instruction, and which lane."""
    names = tuple((shape.name, shape.name) for shape in instructions(run))
    return Choice("instruction", "instruction", names), Span("lane", "lane", 0, layouts.WARP - 1)


@picture("Fragments", controls=controls, size=(10, 8.4), margins=(0.9, 0.3, 0.3, 1.0), order=27)
def fragments(run, instruction: str | None = None, lane: int = 0, *, ax):
    """A on the left, B above, C where they meet, with the lane that holds each element; the chosen lane's registers named.

    instruction: name of one of the kernel's matrix instructions; default: the first.
    """
    known = instructions(run)
    shape = next((item for item in known if item.name == instruction), known[0])
    parts: dict[str, Fragment] = {}
    for operand in "abc":
        try:
            parts[operand] = layouts.fragment(shape, operand)
        except ValueError:
            continue  # in shared memory, or not documented: the note says so
    lane = min(max(lane, 0), layouts.WARP - 1)
    width_c = min(shape.n, _WIDEST)
    gap = 2.2
    left, top = shape.k + gap, shape.k + gap
    ax.set_axis_off()
    ax.set_aspect("equal")
    ax.set_anchor("NW")
    ax.set_xlim(0, left + width_c)
    ax.set_ylim(top + 16, -1.1)
    said = []
    for operand, (x, y) in (("a", (0, top)), ("b", (left, 0)), ("c", (left, top))):
        if operand not in parts:
            note = "B is read from\nshared memory" if operand == "b" else f"{operand.upper()}: layout not documented here"
            ax.text(x + 0.2, y + shape.k / 2, note, fontsize=13, color=QUIET, va="center")
            continue
        said.append(_draw(ax, parts[operand], operand, lane, x, y, width_c))
    per_lane = ", ".join(f"{-(-part.rows.shape[1] // part.per_register)} for {operand.upper()}" for operand, part in parts.items())
    who = f"warp, {shape.m // 16} of them for {shape.m} rows" if shape.warps > 1 else "warp"
    heading(ax, f"{shape.name}", detail=f"one {who}; lane {lane} holds registers: {per_lane}")
    return f"{shape.name}: which lane holds which element. Lane {lane}: " + " ".join(said)


def _draw(ax, part: Fragment, operand: str, lane: int, x: float, y: float, width_c: int) -> str:
    owner, element = part.owner()
    columns = min(part.width, width_c) if operand == "c" else part.width
    owner, element = owner[:, :columns], element[:, :columns]
    height = part.height
    image = np.full((height, columns, 3), 255, np.uint8)
    base = np.array([int(_FILL[operand][i : i + 2], 16) for i in (1, 3, 5)])
    # Neighbouring groups of four lanes are told apart by two shades.
    shade = np.where(owner // 4 % 2 == 0, 0.10, 0.20)
    shade[owner == lane] = 1.0
    image[:] = 255 + shade[..., None] * (base - 255)
    ax.imshow(image, extent=(x, x + columns, y + height, y), interpolation="nearest", aspect="equal", zorder=1)
    ax.vlines(np.arange(x, x + columns + 1), y, y + height, colors=PAPER, linewidths=0.8, zorder=2)
    ax.hlines(np.arange(y, y + height + 1), x, x + columns, colors=PAPER, linewidths=0.8, zorder=2)
    name = f"{operand.upper()}: {height} × {part.width}" + (f" (first {columns} columns)" if columns < part.width else "")
    ax.text(x, y - 0.35, name, fontsize=14, weight="bold", color=_TEXT[operand])
    size = 240 / max(ax.get_xlim()[1], ax.get_ylim()[0])
    mine = np.argwhere(owner == lane)
    for row, column in mine:
        number = element[row, column]
        text = f"{operand}{number // part.per_register}"
        ax.text(x + column + 0.5, y + row + 0.5, text, ha="center", va="center_baseline", fontsize=min(size, 11), color=PAPER, zorder=3)
    if size >= 5:
        for row, column in np.argwhere(owner != lane):
            if element[row, column] % part.per_register == 0:  # one number for a register's elements
                ax.text(x + column + 0.5, y + row + 0.5, str(owner[row, column]), ha="center", va="center_baseline",
                        fontsize=min(0.8 * size, 9), color=INK, alpha=0.55, zorder=3)  # fmt: skip
    first = ", ".join(f"{operand.upper()}[{row}, {column}]" for row, column in mine[:4])
    return f"{first}{', …' if len(mine) > 4 else ''}."
