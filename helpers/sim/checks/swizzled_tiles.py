"""What may explain a wrong product of a warpgroup: a tile that is read in another layout than the one it was copied in.

Both are allowed, and may be meant, where what is copied is permuted already. So this is no finding: it is said beside elements of C that
are wrong. What a tensor map and a descriptor say is compared; of what threads store nobody knows which layout they mean.
"""

from __future__ import annotations

import numpy as np

from helpers.sim.code.sites import Site

from .accesses import Access, MatrixAccess, PieceAccess
from .observer import SharedCheck
from .protocols import Machine, PhaseBarrier
from .shared_cells import SharedCells, first

OTHER_LAYOUT = (
    "The descriptor of this wgmma names another swizzle than the copy of its tile has, so that it reads other places than are meant: let "
    "the two agree first."
)


def _line(site: Site) -> int | None:
    """Where a reader finds it: the call, of inline assembly in a function."""
    return site.line if site.call is None else site.call


def _said(mode: str | None) -> str:
    return "none" if mode is None else f"{mode[:-1]} bytes"


class SwizzledTiles(SharedCheck):
    """brought, per granule: 1 + the place in `copies` of the (site, swizzle) of the copy that brought it, else 0. apart: sites of products
    that read a tile by another swizzle."""

    order = 5
    arrays = ("brought",)

    def __init__(self, m: Machine, launch, cells: SharedCells):
        super().__init__(m, launch, cells)
        self.copies: list[tuple[Site, str | None]] = []
        self.apart: set[int] = set()

    @classmethod
    def wanted(cls, launch) -> bool:
        return {"bulk", "wgmma"} <= launch.program.uses

    def write(self, m: Machine, access: Access) -> None:
        if self.copies and not access.remote:
            self.put("brought", m, access, 0)

    def bulk_landed(self, m: Machine, access: PieceAccess, barrier: PhaseBarrier) -> None:
        tensor = access.piece.tensor
        brought = access.site, tensor and tensor.swizzle
        if brought not in self.copies:
            self.copies.append(brought)
        self.put("brought", m, access, 0 if tensor is None else 1 + self.copies.index(brought))

    def matrix_read(self, m: Machine, access: MatrixAccess) -> None:
        if not access.overlaps and all(mode == access.mode for _, mode in self.copies):
            return
        cells = access.touched(m, self.cells).cells
        number = self.brought.reshape(-1).take(cells)
        other = np.array([False, *(mode != access.mode for _, mode in self.copies)]).take(number)
        if not (access.overlaps or other.any()):
            return
        alike = (number > 0) & ~other
        begins_in_another = other[np.argmin(np.where(number > 0, cells, cells.max() + 1))]  # the box in which it begins is the one meant
        if access.overlaps and not begins_in_another:
            m.findings.hint(
                f"Elements of the matrix {access.name} that the wgmma at line {_line(access.site)} reads lie on top of each other: the "
                "offsets in its descriptor are too small for its lines."
            )
        if other.any() and alike.any() and not begins_in_another:
            box, beyond = (_line(self.copies[int(number[first(which)]) - 1][0]) for which in (alike, other))
            m.findings.hint(
                f"The descriptor of {access.name} of the wgmma at line {_line(access.site)} reaches beyond the box that the copy at line "
                f"{box} brings, into that of line {beyond}: its offsets are larger than the box's, or it begins too late."
            )
        elif other.any():
            site, mode = self.copies[int(number[first(other)]) - 1]
            self.apart.add(access.site.index)
            m.findings.hint(
                f"The wgmma at line {_line(access.site)} and the copy at line {_line(site)} do not mean the same places: the descriptor of "
                f"{access.name} says a swizzle of {_said(access.mode)}, and the box was copied with {_said(mode)}."
            )
