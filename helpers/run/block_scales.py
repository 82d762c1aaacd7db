"""Block scales: factors that the numbers of a block share, for matrices of 8-bit floats.

So few bits hold numbers of one magnitude only. What a matrix means is therefore what is stored, times the factor of its block. A kernel
that knows such factors says which blocks it takes:

    extern "C" __device__ constexpr int scale_block[] = {ROWS, K, COLUMNS};

ROWS of A and COLUMNS of B share a factor along K elements of K; a 0 stands for all of K. Behind ldc it gets

    const float* scales_A, const float* scales_B

scales_A is [K blocks, M / ROWS rounded up], its rows filled up to a multiple of 16 bytes, which bulk copies take; scales_B is
[K blocks, N / COLUMNS rounded up] without padding. Both are float32.

It is given B by columns: [N, K], ldb elements from one column's first k to the next's, a multiple of 16, zeros behind the last k. That is
how the tensor cores' 8-bit instructions read it and how cuBLAS wants it; who stores 8-bit weights stores them so (see `transposes`).
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from helpers.arguments import explained
from helpers.element_types import element_type
from helpers.errors import LaunchError

from .row_copies import aligned_pitch

if TYPE_CHECKING:
    from .gemm import Problem
    from .kernel import Kernel

Block = tuple[int, int, int]  # rows of A, k (0: all), columns of B
_OCTAVES = 2.0  # powers of two that drawn factors reach up and down


def scale_block(kernel: Kernel) -> Block | None:
    """The blocks that the kernel's file states, None if it states none. Raises LaunchError for what cannot be."""
    said = kernel.compiled.constants.get("scale_block")
    if said is None:
        return None
    if len(said) != 3 or min(said) < 0 or not (said[0] and said[2]):
        raise LaunchError(
            f"scale_block = {said} is none: it has three numbers, the rows of A, the elements of K (0: all of them) and the columns of B "
            'that share a factor:\n    extern "C" __device__ constexpr int scale_block[] = {1, 128, 128};'
        )
    return said[0], said[1], said[2]


def blocks_of_k(block: Block, k: int) -> int:
    """How many factors a row of A has: at least one."""
    return max(1, math.ceil(k / block[1])) if block[1] else 1


def shapes(block: Block, m: int, n: int, k: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Of the factors of A and of B, without padding."""
    deep = blocks_of_k(block, k)
    return (deep, math.ceil(m / block[0])), (deep, math.ceil(n / block[2]))


def drawn(problem: Problem, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Random factors for the problem's blocks, float32, from a quarter to four: who takes another block's shows."""
    random = np.random.default_rng(seed)
    left, right = shapes(_block(problem), problem.m, problem.n, problem.k)
    a, b = (np.exp2(random.uniform(-_OCTAVES, _OCTAVES, shape)).astype(np.float32) for shape in (left, right))
    return a, b


def factors(problem: Problem, scales: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The factor of each element: of A [M, K] and of B [K, N], float64."""
    rows, deep, columns = _block(problem)
    of_k = np.arange(problem.k) // (deep or max(1, problem.k))
    left, right = (scale.astype(np.float64) for scale in scales)
    return left[of_k][:, np.arange(problem.m) // rows].T, right[of_k][:, np.arange(problem.n) // columns]


@dataclass(frozen=True, eq=False)
class Quantized:
    """A matrix as 8-bit floats and factors. stored: [rows, K], what the hardware multiplies. factors: [K blocks, row blocks], float32.

    along: elements of K that share a factor; across: rows that do. kind: the element type.
    """

    stored: np.ndarray
    factors: np.ndarray
    along: int
    across: int
    kind: str

    def restored(self) -> np.ndarray:
        """What it means, float32 [rows, K]: what is stored, times the factor of its block."""
        rows, k = self.stored.shape
        each = self.factors.T[np.arange(rows) // self.across][:, np.arange(k) // self.along]
        return self.stored.astype(np.float32) * each


@explained
def quantized(x: np.ndarray, along: int = 128, across: int = 1, kind: str = "float8_e4m3") -> Quantized:
    """A matrix [rows, K] of numbers as 8-bit floats, of which each block shares a factor.

    along: elements of K of a block, 0: all; across: rows of it, 0: all. A factor is the block's largest magnitude over the largest number
    that the type has (1 for a block of zeros), so that nothing overflows. Raises LaunchError for a type of more bits, for what is no
    matrix of numbers, and for infinities and NaN, of which no factor can be made.
    """
    target = element_type(kind)
    if target.bytes != 1:
        raise LaunchError(f"{kind} has {8 * target.bytes} bits: 8-bit floats need factors, and these do not.")
    try:
        if np.asarray(x).dtype.kind == "c":
            raise LaunchError("quantized takes a matrix of real numbers, and these are complex.")
        given = np.asarray(x, np.float64)
        with np.errstate(over="ignore"):
            x = given.astype(np.float32)
    except (TypeError, ValueError) as error:
        raise LaunchError("quantized takes a matrix [rows, K] of numbers, with as many in each row.") from error
    if x.ndim != 2 or not x.size:
        raise LaunchError(f"quantized takes a matrix [rows, K], and was given shape {x.shape}.")
    if not all(isinstance(size, numbers.Integral) and size >= 0 for size in (along, across)):
        raise LaunchError(f"along={along!r}, across={across!r}: the sides of a block are whole numbers, or 0 for all of the matrix.")
    if np.isinf(x[np.isfinite(given)]).any():
        raise LaunchError(f"The matrix has numbers up to {np.nanmax(np.abs(given)):.3g}, and FP32 ends at {np.finfo(np.float32).max:.3g}.")
    if not np.isfinite(x).all():
        raise LaunchError("The matrix has an infinity or NaN, and a factor of such a block would be none.")
    rows, k = x.shape
    along, across = min(int(along) or k, k), min(int(across) or rows, rows)
    deep, high = math.ceil(k / along), math.ceil(rows / across)
    room = np.zeros((high * across, deep * along), np.float32)
    room[:rows, :k] = np.abs(x)
    largest = room.reshape(high, across, deep, along).max((1, 3))
    factors = np.where(largest > 0, np.maximum(largest / np.float32(target.largest), np.finfo(np.float32).tiny), 1).astype(np.float32)
    each = factors[np.arange(rows) // across][:, np.arange(k) // along]
    return Quantized(target.array(x / each), np.ascontiguousarray(factors.T), along, across, kind)


def padded(scales_a: np.ndarray) -> np.ndarray:
    """scales_A as kernels are given it: NaN behind the end of its rows, which nobody may use."""
    deep, across = scales_a.shape
    found = np.full((deep, aligned_pitch(4 * across) // 4), np.nan, np.float32)
    found[:, :across] = scales_a
    return found


def _block(problem: Problem) -> Block:
    if problem.scale_block is None:
        raise LaunchError(f"{problem} has no block scales.")
    return problem.scale_block
