"""Fragments: which lane and register of a warp holds which element of a tensor-core instruction's matrices."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.ptx import Vector, parsed
from helpers.sim.layouts import register_fragments as layouts
from helpers.sim.layouts.register_fragments import Fragment, Shape

from .canvas import AS_TEXT, BLUE, GREEN, INK, ORANGE, PAPER, QUIET, Choice, NothingToSee, Span, heading, picture, stamp, text_on

_NONE = (
    "This kernel uses no tensor-core instruction (wmma, mma, ldmatrix, wgmma) in its PTX: every element of its matrices lies in a "
    "register of one thread. See the owners of C instead."
)
_UNPROMISED = "as the compiler lays it out on today's GPUs; CUDA promises nothing about wmma"
_FILL = {"a": BLUE, "b": ORANGE, "c": GREEN}
_WIDEST, _ALONE = 32, 24  # columns of C that are drawn, and where neither A nor B is in registers


@dataclass(frozen=True)
class MatrixProduct:
    """One matrix instruction of a kernel. layout: operand ("a", "b", "c") -> Fragment, raising ValueError if it has none.

    in_memory: operands that it reads from shared memory. note: what to know about the layout.
    """

    shape: Shape
    layout: Callable[[Shape, str], Fragment]
    in_memory: str = ""
    note: str = ""

    @property
    def name(self) -> str:
        return self.shape.name


@dataclass(frozen=True)
class MatrixMove:
    """ldmatrix or stmatrix: so many 8 x 8 matrices of 16-bit elements between shared memory and registers."""

    name: str
    matrices: int
    transposed: bool
    stores: bool


_WMMA = re.compile(r"wmma\.mma\.sync\.aligned\.(?:row|col)\.(?:row|col)\.m(\d+)n(\d+)k(\d+)((?:\.\w+)+)")
_MOVE = re.compile(r"(ld|st)matrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?")


def instructions(run) -> list[MatrixProduct | MatrixMove]:
    """The matrix instructions of the kernel. Raises NothingToSee if there is none."""
    code = list(parsed(run.kernel.compiled).instructions)
    # What follows the registers of d in a wgmma is a list of registers, or one: the descriptor of a matrix in shared memory.
    a_in_registers = {one.opcode for one in code if one.name == "wgmma" and len(one.operands) > 1 and isinstance(one.operands[1], Vector)}
    found: dict[str, MatrixProduct | MatrixMove] = {}
    opcodes = list(dict.fromkeys(one.opcode for one in code))
    for opcode in opcodes:
        for shape in layouts.shapes([opcode]):
            in_memory = "" if shape.warps == 1 else "b" if opcode in a_in_registers else "ab"
            found[shape.name] = MatrixProduct(shape, layouts.fragment, in_memory)
    for match in filter(None, map(_WMMA.match, opcodes)):
        m, n, k = map(int, match.group(1, 2, 3))
        types = [part for part in match[4].split(".") if part in layouts.BITS]
        c, a, b = (types[0], *types[1:3]) if len(types) == 4 else (types[0], "f16", "f16")
        shape = Shape(f"wmma m{m}n{n}k{k} {a}, {c} sums", m, n, k, a, b, c)
        found[shape.name] = MatrixProduct(shape, layouts.wmma_fragment, note=_UNPROMISED)
    for match in filter(None, map(_MOVE.match, opcodes)):
        name = f"{match[1]}matrix.x{match[2]}{match[3] or ''}"
        found[name] = MatrixMove(name, int(match[2]), bool(match[3]), match[1] == "st")
    if not found:
        raise NothingToSee(_NONE)
    return list(found.values())


def controls(run, instruction=None, lane=0):
    """Which instruction, and which lane."""
    names = tuple((item.name, item.name) for item in instructions(run))
    return Choice("instruction", "instruction", names), Span("lane", "lane", 0, WARP - 1)


@picture("Fragments", controls=controls, size=(10, 8.4), margins=(0.9, 0.3, 0.3, 1.0), order=27)
def fragments(run, instruction: str | None = None, lane: int = 0, *, ax):
    """A on the left, B above, C where they meet, with the lane that holds each element; the chosen lane's registers named.

    instruction: name of one of the kernel's matrix instructions; default: the first. ldmatrix and stmatrix show the 8 x 8
    matrices that they move, and which lane gives the address of which row.
    """
    known = instructions(run)
    chosen = next((item for item in known if item.name == instruction), known[0])
    lane = min(max(lane, 0), WARP - 1)
    ax.set_axis_off()
    ax.set_aspect("equal")
    ax.set_anchor("NW")
    return _move(ax, chosen, lane) if isinstance(chosen, MatrixMove) else _product(ax, chosen, lane)


def _product(ax, item: MatrixProduct, lane: int) -> str:
    """A, B and C of one product, as far as they lie in registers."""
    shape = item.shape
    parts: dict[str, Fragment] = {}
    for operand in "abc":
        if operand in item.in_memory:
            continue
        try:
            parts[operand] = item.layout(shape, operand)
        except ValueError:
            continue  # not documented: the note says so
    alone = item.in_memory == "ab"
    width_c = min(shape.n, _ALONE if alone else _WIDEST)
    gap = 2.2
    left = top = 0 if alone else shape.k + gap
    ax.set_xlim(0, left + width_c)
    height = max((part.height for operand, part in parts.items() if operand != "b"), default=16)
    ax.set_ylim(top + height, -1.1)
    said = []
    for operand, (x, y) in (("a", (0, top)), ("b", (left, 0)), ("c", (left, top))):
        if alone and operand != "c":
            continue
        if operand not in parts:
            note = (
                f"{operand.upper()} is read from\nshared memory"
                if operand in item.in_memory
                else f"{operand.upper()}: layout not documented here"
            )
            ax.text(x + 0.2, y + min(shape.k, height) / 2, note, fontsize=13, color=QUIET, va="center")
            continue
        said.append(_draw(ax, parts[operand], operand, lane, x, y, width_c))
    per_lane = ", ".join(f"{-(-part.rows.shape[1] // part.per_register)} for {operand.upper()}" for operand, part in parts.items())
    who = f"the first of {shape.warps} warps, each with 16 of the {shape.m} rows" if shape.warps > 1 else "one warp"
    note = f"; {item.note}" if item.note else ""
    note += "; A and B are read from shared memory" * alone
    heading(ax, f"{shape.name}", detail=f"{who}; registers of lane {lane}: {per_lane}{note}")
    return f"{shape.name}: which lane holds which element{note}. Lane {lane}: " + " ".join(said)


def _move(ax, item: MatrixMove, lane: int) -> str:
    """The matrices of ldmatrix or stmatrix, side by side in two columns."""
    part = layouts.ldmatrix_fragment()
    owner, _ = part.owner()
    if item.transposed:
        owner = owner.T
    across = min(item.matrices, 2)
    down = -(-item.matrices // across)
    wide, high, label = 11.5, 10.2, 3.2
    ax.set_xlim(0, max(across, 2) * wide)
    ax.set_ylim(max(down, 2) * high, 0)
    said = []
    for number in range(item.matrices):
        x, y = number % across * wide + label, number // across * high + 1.6
        image = np.full((8, 8, 3), 255, np.uint8)
        shade = np.where(owner // 4 % 2 == 0, 0.10, 0.20)
        shade[owner == lane] = 1.0
        image[:] = 255 + shade[..., None] * (np.array([int(BLUE[i : i + 2], 16) for i in (1, 3, 5)]) - 255)
        ax.imshow(image, extent=(x, x + 8, y + 8, y), interpolation="nearest", aspect="equal", zorder=1)
        ax.vlines(np.arange(x, x + 9), y, y + 8, colors=PAPER, linewidths=0.8, zorder=2)
        ax.hlines(np.arange(y, y + 9), x, x + 8, colors=PAPER, linewidths=0.8, zorder=2)
        ax.text(x, y - 0.35, f"matrix {number}", fontsize=14, weight="bold", color=BLUE)
        for (row, column), holder in np.ndenumerate(owner):
            mine = holder == lane
            stamp(ax, x + column + 0.5, y + row + 0.5, f"r{number}" if mine else str(holder), ha="center", va="center_baseline",
                  fontsize=11 if mine else 10, color=PAPER if mine else INK, alpha=1 if mine else 0.75, zorder=3)  # fmt: skip
        for row in range(8):
            giver = 8 * number + row
            stamp(ax, x - 0.35, y + row + 0.5, f"lane {giver} →", ha="right", va="center_baseline", fontsize=10.5,
                  weight="bold" if giver == lane else "normal", color=INK if giver == lane else QUIET)  # fmt: skip
        rows, columns = np.nonzero(owner == lane)
        places = " and ".join(f"[{row}, {column}]" for row, column in zip(rows, columns, strict=False))
        said.append(f"register {number} {places} of matrix {number}")
    verb = "stores" if item.stores else "gets"
    address = f"row {lane % 8} of matrix {lane // 8}" if lane < 8 * item.matrices else "no row"
    how = ", turned over on the way" if item.transposed else ""
    what = f"8 × 8 elements of 16 bits each{how}"
    heading(
        ax,
        f"{item.name}: {item.matrices} {'matrices' if item.matrices > 1 else 'matrix'}",
        detail=f"{what}; lane {lane} gives the address of {address}",
    )
    return f"{item.name}: {what}. Lane {lane} gives the address of {address}, and {verb}: {'; '.join(said)}."


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
    ax.text(x, y - 0.35, name, fontsize=14, weight="bold", color=AS_TEXT[_FILL[operand]])
    box, (low, high) = ax.get_window_extent(), sorted(ax.get_ylim())
    size = 0.6 * min(box.width / ax.get_xlim()[1], box.height / (high - low)) * 72 / ax.figure.dpi  # of the numbers in the cells
    mine = np.argwhere(owner == lane)
    for row, column in mine:
        number = element[row, column]
        text = f"{operand}{number // part.per_register}"
        stamp(ax, x + column + 0.5, y + row + 0.5, text, ha="center", va="center_baseline", fontsize=min(size, 11),
              color=text_on(_FILL[operand]), zorder=3)  # fmt: skip
    if size >= 5:
        for row, column in np.argwhere(owner != lane):
            stamp(ax, x + column + 0.5, y + row + 0.5, str(owner[row, column]), ha="center", va="center_baseline",
                  fontsize=min(0.9 * size, 10), color=INK, alpha=0.75, zorder=3)  # fmt: skip
    first = ", ".join(f"{operand.upper()}[{row}, {column}]" for row, column in mine[:4])
    return f"{first}{', …' if len(mine) > 4 else ''}."
