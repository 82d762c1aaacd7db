"""Which lane and register of a warp holds which element of a matrix-unit instruction's operands.

The layouts are those of the PTX ISA, "Matrix Fragments for mma.m16n8k4 / k8 / k16 / k32" and "Register Fragments" of
wgmma, restated as formulas. Elements of less than 32 bits share a register: two f16 or bf16, four 8-bit integers.
Everything here is pure arithmetic, for the instructions' handlers as well as for pictures.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

import numpy as np

WARP = 32
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "s8": 8, "u8": 8, "s32": 32, "e4m3": 8, "e5m2": 8}
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

    With g = lane / 4 and t = lane % 4 ("group" and "thread in group"): C has rows g and g + 8 and columns 2t, 2t + 1 of
    every block of 8 columns. A and B give each lane 32 bits of neighbours along K, in blocks of 4 lanes.
    """
    lane = np.arange(WARP)[:, None]
    g, t = lane // 4, lane % 4
    if operand == "c":
        if BITS[shape.c_type] == 64:
            raise ValueError("the f64 layouts are not tabulated")
        i = np.arange(4 * (shape.n // 8))[None]
        return Fragment(16, shape.n, g + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * t + i % 2, 32 // BITS[shape.c_type])
    if shape.warps > 1 and operand == "b":
        raise ValueError("wgmma reads B from shared memory, not from registers")
    bits = BITS[shape.a_type if operand == "a" else shape.b_type]
    if bits > 32 or shape.m % 16 or (shape.warps == 1 and shape.n != 8):
        raise ValueError(f"the layout of {shape.name} is not tabulated")
    pack = 32 // bits  # elements in one register
    block = 4 * pack  # of K, that four lanes cover with one register each
    if shape.k % block:
        raise ValueError(f"the layout of {shape.name} is not tabulated")
    if operand == "a":
        i = np.arange(2 * pack * (shape.k // block))[None]
        register = i // pack
        return Fragment(16, shape.k, g + 8 * (register % 2), block * (register // 2) + pack * t + i % pack, pack)
    i = np.arange(pack * (shape.k // block))[None]
    along_k = block * (i // pack) + pack * t + i % pack
    return Fragment(shape.k, shape.n, along_k, np.broadcast_to(g, along_k.shape), pack)


def ldmatrix_fragment() -> Fragment:
    """One 8 x 8 matrix of 16-bit elements after ldmatrix: lane l holds row l / 4, columns 2 (l % 4) and the next."""
    lane, i = np.arange(WARP)[:, None], np.arange(2)[None]
    return Fragment(8, 8, np.broadcast_to(lane // 4, (WARP, 2)), 2 * (lane % 4) + i, 2)
