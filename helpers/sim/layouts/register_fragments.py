"""Which lane and register of a warp holds which element of a matrix-unit instruction's operands.

The layouts are those of the PTX ISA, "Matrix Fragments for mma.m8n8k… and mma.m16n8k…" and "Register Fragments" of
wgmma, restated as formulas. Elements of less than 32 bits share a register: two f16 or bf16, four 8-bit integers.

For pictures and tools: `shapes(opcodes)` lists a kernel's matrix instructions; `fragment(shape, operand)` says where "a", "b"
and "c" lie, as a `Fragment` whose `rows[lane, i]` and `columns[lane, i]` are the place of a lane's i-th element, and whose
`owner()` is the reverse. It knows
- every mma.sync of PTX, the one of Volta (m8n8k4 of f16) too, which multiplies four pairs of matrices at a time:
  `Fragment.part[lane]` is the number of the lane's matrices, and `owner(part)` takes it;
- sparse products (`Shape.sparse`): "a" is then the half of A that is stored, [m, k / 2], and `metadata` says which bits of
  which lane tell the columns of its elements;
- wgmma (`Shape.warps` is 4): "a" (if it comes from registers) and "c" are the 16 rows of one warp of four, the first of
  the warpgroup having rows 0 to 15. B, and A without registers, lie in shared memory: `isa.warpgroup.places`.
Those of wmma are not part of PTX's promise: `wmma_fragment` has the ones that ptxas has used from Turing to Blackwell, read
off the addresses of the machine code that it makes of wmma.load.
Everything here is pure arithmetic, for the instructions' handlers as well as for pictures.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from helpers.sim.code.hardware_units import WARP

BITS = {
    "f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "s8": 8, "u8": 8, "s32": 32, "e4m3": 8, "e5m2": 8,
    "s4": 4, "u4": 4, "b1": 1,
}  # fmt: skip
_MMA = re.compile(
    r"(mma|wgmma\.mma_async)(\.sp(?:::ordered_metadata)?)?\.sync\.aligned\.m(\d+)n(\d+)k(\d+)"
    r"(?:\.(row|col)\.(row|col))?(?:\.satfinite)?\.(\w+)\.(\w+)\.(\w+)(?:\.(\w+))?"
)


@dataclass(frozen=True)
class Shape:
    """One mma or wgmma instruction: C (m x n) += A (m x k) x B (k x n).

    warps: that hold one C together. sparse: half of A's elements are stored. turned: operands that Volta's instruction
    takes in the other order than row.col, "a" and "b".
    """

    name: str
    m: int
    n: int
    k: int
    a_type: str
    b_type: str
    c_type: str
    warps: int = 1
    sparse: bool = False
    turned: str = ""

    @property
    def volta(self) -> bool:
        """The product of four pairs of matrices, each by eight lanes."""
        return (self.m, self.n, self.k, self.a_type) == (8, 8, 4, "f16")


@dataclass(frozen=True)
class Fragment:
    """Where an operand lies. rows, columns: [32, elements] of a lane's elements in order; the register of element i is i // per_register.

    height, width: of the operand; for wgmma the 16 rows of one warp. part: [32], which of several matrices a lane's
    elements belong to; None: there is one.
    """

    height: int
    width: int
    rows: np.ndarray
    columns: np.ndarray
    per_register: int
    part: np.ndarray | None = None

    @property
    def count(self) -> int:
        """Matrices that the warp holds."""
        return 1 if self.part is None else int(self.part.max()) + 1

    def owner(self, part: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """[height, width] twice: the lane of each element of a matrix, and its number among the lane's elements."""
        lane, element = np.full((self.height, self.width), -1), np.full((self.height, self.width), -1)
        lanes, elements = np.meshgrid(np.arange(WARP), np.arange(self.rows.shape[1]), indexing="ij")
        mine = slice(None) if self.part is None else self.part == part
        lane[self.rows[mine], self.columns[mine]], element[self.rows[mine], self.columns[mine]] = lanes[mine], elements[mine]
        return lane, element

    @property
    def registers(self) -> int:
        """Registers of one lane."""
        return self.rows.shape[1] // self.per_register

    @functools.cached_property
    def gather(self) -> np.ndarray:
        """[count * height * width]: where each element of the matrices is among the warp's elements, lane after lane."""
        owners = [self.owner(part) for part in range(self.count)]
        return np.concatenate([(lane * self.rows.shape[1] + element).ravel() for lane, element in owners])

    @functools.cached_property
    def scatter(self) -> np.ndarray:
        """[32 * elements]: where each element of the lanes is in the matrices, row after row."""
        first = 0 if self.part is None else (self.part * self.height * self.width)[:, None]
        return (first + self.rows * self.width + self.columns).ravel()


def shapes(opcodes: Iterable[str]) -> list[Shape]:
    """The different matrix instructions among PTX opcodes, in the order of their first appearance."""
    found = {}
    for match in filter(None, map(_MMA.match, opcodes)):
        kind, sparse, *extents, a_order, b_order, c_type, a_type, b_type, _ = match.groups()
        if a_type in BITS and b_type in BITS and c_type in BITS:
            name = "sp." * bool(sparse) + match[0].split(".aligned.")[-1]
            turned = "a" * (a_order == "col") + "b" * (b_order == "row")
            warps = 1 if kind == "mma" else 4
            found.setdefault(match[0], Shape(name, *map(int, extents), a_type, b_type, c_type, warps, bool(sparse), turned))
    return list(found.values())


@functools.cache
def fragment(shape: Shape, operand: str) -> Fragment:
    """Operand "a", "b" or "c" of an instruction. Raises ValueError for operands that are not in registers or not known.

    With g = lane / 4 and t = lane % 4 ("group" and "thread in group"): C has row g (and g + 8) and columns 2t, 2t + 1 of
    every block of 8 columns. A and B give each lane one register of neighbours along K, in blocks of 4 lanes.
    """
    if shape.volta:
        return _volta(shape, operand)
    if shape.turned:
        raise ValueError(f"{shape.name} has A in rows and B in columns")
    lane = np.arange(WARP)[:, None]
    g, t = lane // 4, lane % 4
    halves = 1 if shape.m == 8 else 2  # blocks of 8 rows
    if shape.warps > 1 and operand == "b":
        raise ValueError("wgmma reads B from shared memory, not from registers")
    if (shape.m not in (8, 16) and shape.warps == 1) or (shape.warps == 1 and shape.n != 8):
        raise ValueError(f"the layout of {shape.name} is not tabulated")
    if operand == "c":
        i = np.arange(2 * halves * (shape.n // 8))[None]
        rows, columns = g + 8 * (i // 2 % halves), 8 * (i // (2 * halves)) + 2 * t + i % 2
        return Fragment(8 * halves, shape.n, rows, columns, _per_register(shape.c_type))
    pack = _per_register(shape.a_type if operand == "a" else shape.b_type)
    block = 4 * pack  # of K, that four lanes cover with one register each
    depth = shape.k // 2 if shape.sparse and operand == "a" else shape.k
    if depth % block:
        raise ValueError(f"the layout of {shape.name} is not tabulated")
    if operand == "a":
        i = np.arange(halves * pack * (depth // block))[None]
        register = i // pack
        return Fragment(8 * halves, depth, g + 8 * (register % halves), block * (register // halves) + pack * t + i % pack, pack)
    i = np.arange(pack * (shape.k // block))[None]
    along_k = block * (i // pack) + pack * t + i % pack
    return Fragment(shape.k, shape.n, along_k, np.broadcast_to(g, along_k.shape), pack)


def _volta(shape: Shape, operand: str) -> Fragment:
    """mma.m8n8k4 of f16: lanes 4 q to 4 q + 3 and 16 + 4 q to 19 + 4 q work on matrices q; the latter have half of them."""
    lane = np.arange(WARP)[:, None]
    part, low, half = lane[:, 0] % 16 // 4, lane % 4, lane // 16 * 4
    if operand == "c" and shape.c_type == "f32":
        i = np.arange(8)[None]
        rows, columns = lane % 2 + (i & 2) + half, (i & 4) + (lane & 2) + i % 2
    elif operand == "c":
        rows, columns = np.broadcast_arrays(low + half, np.arange(8)[None])
    else:
        own, others = low + half, np.arange(4)[None]  # a row of A, or a column of B
        if operand in shape.turned:  # four of them, at one place along K
            own, others = np.arange(4)[None] + half, low
        rows, columns = np.broadcast_arrays(own, others) if operand == "a" else np.broadcast_arrays(others, own)
    height, width = {"a": (8, 4), "b": (4, 8), "c": (8, 8)}[operand]
    pack = _per_register(shape.c_type if operand == "c" else "f16")
    return Fragment(height, width, rows, columns, pack, part)


@functools.cache
def metadata(kind: str, k: int, selector: int) -> tuple[np.ndarray, np.ndarray]:
    """Where a sparse product's metadata is: (lane, bit), [16, k / 4] for 16-bit and smaller types (4-bit: k / 8), [16, k / 2] for tf32.

    Element j of a row says which of columns 4 j to 4 j + 3 the next two stored elements have: two numbers of two bits each
    (of 4-bit types: which two pairs of eight; of tf32: which of two columns the one has, 0b0100 or 0b1110). selector: the
    instruction's last operand, which tells the lanes of each four that are looked at. Read off an H200's results.
    """
    row, j = np.arange(16)[:, None], np.arange(k // {"tf32": 2, "s4": 8, "u4": 8}.get(kind, 4))[None]
    first, below = 4 * (row % 8), row // 8
    match j.size, BITS[kind] >= 16:
        case 4, True:
            lane, part = first + selector + 0 * j, 4 * below + j
        case 8, True:
            lane, part = first + 2 * selector + j // 4, 4 * below + j % 4
        case 8, False:
            lane, part = first + 2 * selector + below + 0 * j, j + 0 * row
        case 16, False:
            lane, part = first + 2 * (j // 8) + below, j % 8 + 0 * row
        case _:
            raise ValueError(f"no sparse product of {kind} has K = {k}")
    return lane, 4 * part


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
