"""Names for what a trace holds: source lines, access sites, blocks, warps, array elements.

Pure functions of a Run or a Trace, shared by the pictures, so that all of them call the same thing by the same name.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .canvas import NothingToSee

WARP = 32
OPERATIONS = {"ld": "load", "st": "store", "atom": "atomic", "red": "reduction", "cp.async": "copy", "ldmatrix": "matrix load",
              "stmatrix": "matrix store"}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """One access site of a trace. index: into trace.sites. array: name of what it touches ("A", "As"), "" if unknown."""

    index: int
    line: int
    space: str
    op: str
    width: int
    array: str
    opcode: str
    sass: str

    @property
    def what(self) -> str:
        """ "load of A", "128-bit store to Bs"."""
        wide = f"{self.width * 8}-bit " if self.width > 4 else ""
        preposition = {"st": "to", "red": "to"}.get(self.op, "of")
        of = f" {preposition} {self.array}" if self.array else f" {preposition} {self.space} memory"
        return f"{wide}{OPERATIONS.get(self.op, self.op)}{of}"


def source_line(run, line: int | None) -> str:
    """The text of a 1-based line of the reader's cell, without its indentation; '' for a line it does not have."""
    lines = run.kernel.compiled.source.split("\n")
    return lines[line - 1].strip() if line and 1 <= line <= len(lines) else ""


def code(run, line: int | None, columns: int = 92) -> str:
    """Number and text of a line, without its comment, cut to fit above a picture."""
    text = source_line(run, line).split("//")[0].strip()
    if not text:
        return ""
    text = f"{line}  {text}"
    return text if len(text) <= columns else text[: columns - 1] + "…"


def places(trace, *, space: str | None = None, op: str | None = None) -> list[Place]:
    """The access sites that were executed, in the order of the source; those that ptxas merged into others left out."""
    executed, first = np.unique(trace.accesses["site"], return_index=True)
    found = []
    for index, row in zip(executed, first):
        site = trace.sites[index]
        if not site.width or space not in (None, site.space) or op not in (None, site.op):
            continue
        array = array_of(trace, site.space, trace.addresses[row])
        if array is None:  # its first execution was predicated off: look for one that was not
            rows = trace.addresses[trace.accesses["site"] == index]
            array = array_of(trace, site.space, rows[rows >= 0][:WARP])
        name = array.name if array is not None else ""
        found.append(Place(int(index), site.line, site.space, site.op, site.width, name, site.opcode, site.sass))
    return sorted(found, key=lambda place: (place.line or 0, trace.sites[place.index].pc))


def array_of(trace, space: str, addresses: np.ndarray):
    """The allocation that holds the first active lane's address, or None."""
    active = addresses[addresses >= 0]
    return allocation_at(trace, space, int(active.flat[0])) if active.size else None


def allocation_at(trace, space: str, address: int):
    for allocation in trace.allocations:
        if allocation.space == space and allocation.base <= address < allocation.base + allocation.nbytes:
            return allocation
    return None


def element(trace, space: str, address: int) -> str:
    """The element at an address: "A[3, 17]"; the bare address where no array is known."""
    array = allocation_at(trace, space, address)
    if array is None or not array.itemsize:
        return f"byte {address:,}"
    position = (address - array.base) // array.itemsize
    shape = array.shape or (array.nbytes // array.itemsize,)
    where = ", ".join(str(int(part)) for part in np.unravel_index(position, shape))
    return f"{array.name}[{where}]"


def block_label(trace, block: int) -> str:
    """ "block (2, 1)", with z only where the grid has it."""
    x, y, z = trace.grid
    parts = (block % x, block // x % y, block // (x * y))
    return "block (" + ", ".join(str(part) for part in (parts if z > 1 else parts[:2])) + ")"


def thread_of(trace, warp: int, lane: int) -> tuple[int, int, int]:
    """threadIdx of a lane of a warp."""
    x, y, _ = trace.block
    linear = warp * WARP + lane
    return linear % x, linear // x % y, linear // (x * y)


def blocks_of(trace) -> np.ndarray:
    """Linear indices of the blocks with a recorded access, ascending."""
    return np.unique(trace.accesses["block"])


def choose_place(found: list[Place], site: int | None, line: int | None, otherwise: str) -> Place:
    """The place asked for by site or line, or the first. Raises NothingToSee with `otherwise` if there is none."""
    if not found:
        raise NothingToSee(otherwise)
    if site is not None:
        for place in found:
            if place.index == site:
                return place
    if line is not None:
        for place in found:
            if place.line == line:
                return place
        lines = ", ".join(str(number) for number in sorted({place.line for place in found}))
        raise NothingToSee(f"Line {line} has no such access. These lines have: {lines}.")
    return found[0]


def nearest(values: np.ndarray, wanted: int) -> int:
    """The value that is wanted, or the nearest there is."""
    return int(values[np.abs(values - wanted).argmin()])


def plural(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
