"""Block factors: which factor each block of two matrices of 8-bit floats has, drawn where the block lies."""

from __future__ import annotations

import numpy as np

from helpers.errors import CourseError
from helpers.run.block_scales import Quantized

from .canvas import INK, PAPER, heading, picture

_NAMES = "A", "B"
_GAP = 0.09  # between the two matrices, of the width
_MOST = 64  # blocks along a side between which there is room for a line


@picture("Factors of blocks", size=(11, 4.6), margins=(0.9, 0.85, 0.9, 1.05), order=216, of="quantized")
def block_factors(left, right=None, *, ax):
    """The factors of A and of B as two maps, each where its block lies: rows of A down and K across, K of B down and columns across.

    left: A [M, K] as a `helpers.quantized`; right: B as one of its columns, [N, K]. Colours are powers of two.
    """
    if not (isinstance(left, Quantized) and isinstance(right, Quantized)):
        raise CourseError(
            "This picture is of two matrices as quantized makes them: "
            "widgets.block_factors(quantized(A, 128, 1), right=quantized(B.T, 128, 128))."
        )
    if left.stored.shape[1] != right.stored.shape[1]:
        raise CourseError(
            f"A has {left.stored.shape[1]} k in a row and B {right.stored.shape[1]} in a column: give B by columns, as quantized(B.T, …)."
        )
    maps = [np.repeat(np.repeat(left.factors.T, left.across, 0), left.along, 1)[: left.stored.shape[0], : left.stored.shape[1]]]
    maps.append(np.repeat(np.repeat(right.factors.T, right.across, 0), right.along, 1)[: right.stored.shape[0], : right.stored.shape[1]].T)
    logs = [np.log2(one) for one in maps]
    low, high = min(one.min() for one in logs), max(one.max() for one in logs)
    if high - low < 1e-6:
        high = low + 1
    blocks = ((left.across, left.along), (right.along, right.across))  # rows and columns of one, as it is drawn
    ax.set_axis_off()
    heading(ax, "Factors of blocks", detail="what is stored times its block's factor is the number; colours are powers of two")
    width = (1 - 2 * _GAP) / 2
    for place, (name, one, item) in enumerate(zip(_NAMES, logs, (left, right), strict=True)):
        here = ax.inset_axes((place * (width + _GAP), 0.0, width, 0.86))
        image = here.imshow(one, aspect="auto", cmap="cividis", vmin=low, vmax=high, interpolation="nearest")
        rows, columns = one.shape
        _edges(here, one.shape, blocks[place])
        across, down = ("K", "rows of A") if name == "A" else ("columns of B", "K")
        here.set_xlabel(f"{across} ({columns})", fontsize=12.5)
        here.set_ylabel(f"{down} ({rows})", fontsize=12.5)
        here.set_title(f"{name}: {item.factors.size} factors for {item.stored.size:,} numbers", fontsize=13, color=INK, loc="left")
        here.tick_params(labelsize=11)
    bar = ax.figure.colorbar(image, cax=ax.inset_axes((1 - _GAP * 0.75, 0.0, 0.02, 0.86)))
    bar.ax.tick_params(labelsize=11)
    bar.set_label("log2 of the factor", fontsize=12.5)
    said = "; ".join(
        f"{name} has {item.factors.size} factors, 2^{one.min():.1f} to 2^{one.max():.1f}"
        for name, one, item in zip(_NAMES, logs, (left, right), strict=True)
    )
    return f"Two maps of factors. {said}."


def _edges(ax, shape: tuple[int, int], block: tuple[int, int]) -> None:
    """Lines between blocks of so many rows and columns: where factors are nearly the same, colours show no block."""
    for whole, part, line in ((shape[0], block[0], ax.axhline), (shape[1], block[1], ax.axvline)):
        if part and -(-whole // part) <= _MOST:
            for place in range(part, whole, part):
                line(place - 0.5, color=PAPER, linewidth=1)
