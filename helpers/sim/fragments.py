"""Which lane and register of a warp holds which element of a matrix-unit instruction's operands.

The layouts are those of the PTX ISA, "Matrix Fragments for mma.m8n8k… and mma.m16n8k…" and "Register Fragments" of
wgmma, restated as formulas. Elements of less than 32 bits share a register: two f16 or bf16, four 8-bit integers.
Those of wmma are not part of PTX's promise: `wmma_fragment` has the ones that ptxas has used from Turing to Blackwell, read
off the addresses of the machine code that it makes of wmma.load.
Everything here is pure arithmetic, for the instructions' handlers as well as for pictures.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

import numpy as np

WARP = 32
BITS = {
    "f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "s8": 8, "u8": 8, "s32": 32, "e4m3": 8, "e5m2": 8,
    "s4": 4, "u4": 4, "b1": 1,
}  # fmt: skip
_MMA = re.compile(
    r"\b(?:mma\.sync\.aligned|wgmma\.mma_async\.sync\.aligned)\.m(\d+)n(\d+)k(\d+)((?:\.(?:row|col))*)\.(\w+)\.(\w+)\.(\w+)(?:\.(\w+))?"
)


@dataclass(frozen=True)
class Shape:
    """One mma or wgmma instruction: C (m x n) += A (m x k) x B (k x n). warps: that hold one C together."""

    name: str
    m: int
    n: int
    k: int
    a_type: str
    b_type: str
    c_type: str
    warps: int = 1


@dataclass(frozen=True)
class Fragment:
    """Where an operand lies. rows, columns: [32, elements] of a lane's elements in order; the register of element i is i // per_register.

    height, width: of the operand; for wgmma the 16 rows of one warp.
    """

    height: int
    width: int
    rows: np.ndarray
    columns: np.ndarray
    per_register: int

    def owner(self) -> tuple[np.ndarray, np.ndarray]:
        """[height, width] twice: the lane of each element, and its number among the lane's elements."""
        lane, element = np.full((self.height, self.width), -1), np.full((self.height, self.width), -1)
        lanes, elements = np.meshgrid(np.arange(WARP), np.arange(self.rows.shape[1]), indexing="ij")
        lane[self.rows, self.columns], element[self.rows, self.columns] = lanes, elements
        return lane, element

    @property
    def registers(self) -> int:
        """Registers of one lane."""
        return self.rows.shape[1] // self.per_register

    @functools.cached_property
    def gather(self) -> np.ndarray:
        """[height * width]: where each element of the matrix is among the warp's elements, lane after lane."""
        lane, element = self.owner()
        return (lane * self.rows.shape[1] + element).ravel()

    @functools.cached_property
    def scatter(self) -> np.ndarray:
        """[32 * elements]: where each element of the lanes is in the matrix, row after row."""
        return (self.rows * self.width + self.columns).ravel()


def shapes(ptx: str) -> list[Shape]:
    """The different matrix instructions of a PTX text, in the order of their first appearance."""
    found = {}
    for match in _MMA.finditer(ptx):
        m, n, k = map(int, match.group(1, 2, 3))
        wgmma = match[0].startswith("wgmma")
        c_type, a_type, b_type = match.group(5, 6, 7)
        if a_type in BITS and b_type in BITS and c_type in BITS:
            found.setdefault(match[0], Shape(match[0].split(".aligned.")[-1], m, n, k, a_type, b_type, c_type, 4 if wgmma else 1))
    return list(found.values())


@functools.cache
def fragment(shape: Shape, operand: str) -> Fragment:
    """Operand "a", "b" or "c" of an instruction. Raises ValueError for operands that are not in registers or not known.

    With g = lane / 4 and t = lane % 4 ("group" and "thread in group"): C has row g (and g + 8) and columns 2t, 2t + 1 of
    every block of 8 columns. A and B give each lane one register of neighbours along K, in blocks of 4 lanes.
    """
    lane = np.arange(WARP)[:, None]
    g, t = lane // 4, lane % 4
    halves = 1 if shape.m == 8 else 2  # blocks of 8 rows
    if shape.warps > 1 and operand == "b":
        raise ValueError("wgmma reads B from shared memory, not from registers")
    if shape.m not in (8, 16) and shape.warps == 1 or shape.warps == 1 and shape.n != 8:
        raise ValueError(f"the layout of {shape.name} is not tabulated")
    if operand == "c":
        i = np.arange(2 * halves * (shape.n // 8))[None]
        rows, columns = g + 8 * (i // 2 % halves), 8 * (i // (2 * halves)) + 2 * t + i % 2
        return Fragment(8 * halves, shape.n, rows, columns, _per_register(shape.c_type))
    pack = _per_register(shape.a_type if operand == "a" else shape.b_type)
    block = 4 * pack  # of K, that four lanes cover with one register each
    if shape.k % block:
        raise ValueError(f"the layout of {shape.name} is not tabulated")
    if operand == "a":
        i = np.arange(halves * pack * (shape.k // block))[None]
        register = i // pack
        return Fragment(8 * halves, shape.k, g + 8 * (register % halves), block * (register // halves) + pack * t + i % pack, pack)
    i = np.arange(pack * (shape.k // block))[None]
    along_k = block * (i // pack) + pack * t + i % pack
    return Fragment(shape.k, shape.n, along_k, np.broadcast_to(g, along_k.shape), pack)


def _per_register(kind: str) -> int:
    """Elements in one register: of 32 bits, or of 64 for f64."""
    return max(1, 32 // BITS[kind])


@functools.cache
def wmma_fragment(shape: Shape, operand: str) -> Fragment:
    """Operand "a", "b" or "c" of a wmma instruction, for any memory layout.

    16 x 16 is two m16n8 side by side, 32 x 8 two of them stacked, and 8 x 32 is the transpose of 32 x 8 (with A and B in
    each other's places). Raises ValueError for other shapes.
    """
    if shape.m == 8 and shape.n == 32:
        swapped = Shape(shape.name, 32, 8, shape.k, shape.b_type, shape.a_type, shape.c_type)
        part = wmma_fragment(swapped, {"a": "b", "b": "a", "c": "c"}[operand])
        return Fragment(part.width, part.height, part.columns, part.rows, part.per_register)
    if shape.m == shape.n == 8:
        return fragment(shape, operand)
    if (shape.m, shape.n) not in ((16, 16), (32, 8)):
        raise ValueError(f"wmma has no shape {shape.name}")
    part = fragment(Shape(shape.name, 16, 8, shape.k, shape.a_type, shape.b_type, shape.c_type), operand)
    if operand == ("b" if shape.m == 32 else "a"):
        return part
    down, right = (16, 0) if shape.m == 32 else (0, 8)
    rows, columns = np.hstack([part.rows, part.rows + down]), np.hstack([part.columns, part.columns + right])
    return Fragment(part.height + down, part.width + right, rows, columns, part.per_register)


def ldmatrix_fragment() -> Fragment:
    """One 8 x 8 matrix of 16-bit elements after ldmatrix: lane l holds row l / 4, columns 2 (l % 4) and the next."""
    lane, i = np.arange(WARP)[:, None], np.arange(2)[None]
    return Fragment(8, 8, np.broadcast_to(lane // 4, (WARP, 2)), 2 * (lane % 4) + i, 2)
