"""What a GEMM kernel is launched with: the arguments that all take, and the tensor maps of A, B and C that it declares.

A tensor map (see `tensor_maps`) describes the matrix of its letter as the kernel is given it: A [M, K] with rows lda apart, B [K, N] with
ldb, C [M, N] with ldc, row-major; what lies outside is read as zero. Of a matrix by columns (see `transposes`) it describes what is
stored: A [K, M], B [N, K]. The box is the kernel's own (`geometry.box`).

The tensor memory accelerator takes matrices whose first byte and whose rows lie at multiples of 16 bytes. Of an A or B that does not, the
course makes a copy before the launch, its rows filled up with zeros, and passes the copy's pointer, leading dimension and map in place
of the matrix's own. On a GPU that takes time, which is part of every time that is measured. C is never copied, and its rows must end
at a multiple of 16 bytes too: a bulk store writes up to the next one, into what lies behind the row. Otherwise its map is 128 zero
bytes, and the kernel, which sees C's address, ldc and N, stores in another way. Where K = 0 there is no A and no B: their maps are
zero bytes too, and there is no step along K that could use them.

A kernel with block scales is given factors behind ldc (see `block_scales`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from helpers.element_types import ElementType, element_type
from helpers.errors import LaunchError
from helpers.sim.code.addresses import phase
from helpers.sim.layouts.tensor_map import NBYTES, TensorMap

from . import geometry, passes
from .kernel import Kernel
from .passes import Pass
from .row_copies import GRANULE, RowCopy, aligned_pitch
from .tensor_maps import matrix_map

if TYPE_CHECKING:
    from .gemm import Problem

NO_MAP = np.zeros(NBYTES, np.uint8).view(np.dtype((np.void, NBYTES)))[0]  # what a kernel must not use


@dataclass(frozen=True)
class LaunchArguments:
    """arguments: in the order of the kernel's parameters. copies: what is copied before each launch, already made once.

    passes: what is launched before each launch: on a GPU by the launch itself, else by who has these.
    remarks: about the copies, as the beginnings of sentences.
    """

    arguments: list[Any]
    copies: tuple[RowCopy, ...] = ()
    remarks: tuple[str, ...] = ()
    passes: tuple[Pass, ...] = ()

    @property
    def before(self) -> tuple[RowCopy | Pass, ...]:
        """All that is launched before the kernel, in order."""
        return (*self.copies, *self.passes)


@dataclass(frozen=True)
class _Matrix:
    """One matrix: its letter, the array that holds it, rows and columns, elements from one row to the next, their type."""

    name: str
    array: Any
    rows: int
    columns: int
    pitch: int
    kind: ElementType

    @property
    def pitch_bytes(self) -> int:
        return self.pitch * self.kind.bytes

    @property
    def row_bytes(self) -> int:
        return self.columns * self.kind.bytes

    @property
    def empty(self) -> bool:
        return not (self.rows and self.columns)

    def need_room(self) -> None:
        """Raise LaunchError where its array ends before it does: what a tensor map describes has to be there."""
        if not self.empty and self.array.size < (least := (self.rows - 1) * self.pitch + self.columns):
            raise LaunchError(
                f"{self.name} has {self.array.size} elements, and {self.rows} lines of {self.columns}, {self.pitch} apart, need {least}."
            )

    @property
    def mappable(self) -> bool:
        """Does the tensor memory accelerator take it as it lies?"""
        return not (self.empty or self.pitch_bytes % GRANULE or _address(self.array) % GRANULE)

    def copied(self) -> tuple[_Matrix, RowCopy]:
        """The matrix with rows that the accelerator takes, and how it came there."""
        pitch = aligned_pitch(self.row_bytes)
        target = _zeros(self.array, self.rows, pitch)
        copy = RowCopy(self.array, self.pitch_bytes, target, pitch, self.rows, self.row_bytes)
        copy.make()
        return replace(self, array=target, pitch=pitch // self.kind.bytes), copy

    def map(self, box: geometry.CopyBox) -> TensorMap:
        return matrix_map(
            self.array, self.kind.copied_as, (self.rows, self.columns), self.pitch_bytes, (box.rows, box.columns), box.swizzle
        )


def launch_arguments(kernel: Kernel, problem: Problem, a, b, c, behind: Sequence[Any] = (), multiprocessors: int = 1) -> LaunchArguments:
    """What to launch `kernel` with, to compute `problem` on these matrices (NumPy or CuPy).

    behind: what the kernel takes behind ldc, by default the problem's own (`Problem.behind`), of NumPy. The problem must be one for the
    kernel (`gemm.fitted`). multiprocessors: that the blocks of its passes are to fill.
    Raises LaunchError for a box that is missing or cannot be.
    """
    if passes.pieces(kernel):
        return _of_pieces(kernel, problem, (a, b, c), multiprocessors)
    m, n, k = problem.m, problem.n, problem.k
    kinds = (problem.inputs, problem.inputs, problem.result)
    left, right, result = (_Matrix(*of) for of in zip("ABC", (a, b, c), *zip(*problem.stored, strict=True), kinds, strict=True))
    matrices = {"map_A": left, "map_B": right, "map_C": result}
    if problem.scale_block is not None:
        right.need_room()
    maps, copies = {}, []
    for name in geometry.tensor_maps(kernel):
        matrix = matrices[name]
        matrix.need_room()
        box = geometry.box(kernel, name, matrix.kind.bytes)
        if not (matrix.empty or matrix.mappable or name == "map_C"):
            matrices[name], copy = matrix.copied()
            copies.append((matrix, copy))
        usable = matrices[name].mappable and not (name == "map_C" and matrix.row_bytes % GRANULE)
        maps[name] = matrices[name].map(box) if usable else NO_MAP
    if (maps or problem.scale_block is not None) and problem.batch > 1:
        what = "tensor maps" if maps else "factors"
        raise LaunchError(f"{kernel.name} takes {what}, which describe one product; launch it once for each of the {problem.batch}.")
    left, right, result = matrices.values()
    plain = [m, n, k, problem.alpha, left.array, left.pitch, right.array, right.pitch, problem.beta, result.array, result.pitch]
    return LaunchArguments(
        [*plain, *(behind or problem.behind()), *maps.values()], tuple(copy for _, copy in copies), tuple(_remark(*item) for item in copies)
    )


def _of_pieces(kernel: Kernel, problem: Problem, arrays: tuple[Any, Any, Any], multiprocessors: int) -> LaunchArguments:
    """Of a kernel that multiplies what its file's passes make of A and B."""
    m, n, k = problem.m, problem.n, problem.k
    if problem.batch > 1:
        raise LaunchError(f"{kernel.name} computes one product; launch it once for each of the {problem.batch}.")
    a, b, c = arrays
    count, piece = passes.pieces(kernel), element_type("float16")
    across_k, across_n = (-(-extent // passes.GRANULE) * passes.GRANULE for extent in (k, n))
    pieces_a, pieces_b = (
        _blank(a, (count * m, max(across_k, passes.GRANULE)), np.uint16),
        _blank(a, (max(k, 1), count * across_n), np.uint16),
    )
    ranges = _blank(a, (m + n + 1,), np.int32)
    matrices = {
        "map_A": _Matrix("A", pieces_a, count * m, k, across_k, piece),
        "map_B": _Matrix("B", pieces_b, k, count * across_n, count * across_n, piece),
    }
    names = geometry.tensor_maps(kernel)
    if strange := [name for name in names if name not in matrices]:
        raise LaunchError(f"{kernel.name} multiplies pieces and takes {strange[0]}: there are maps of the pieces of A and B, and no other.")
    maps = [matrices[name].map(geometry.box(kernel, name, piece.bytes)) if k else NO_MAP for name in names]
    given = [
        *map(np.int32, (m, n, k)), a, np.int32(problem.lda), b, np.int32(problem.ldb), pieces_a, np.int32(across_k), pieces_b,
        np.int32(count * across_n), ranges,
    ]  # fmt: skip
    threads, blocks = passes.shape(kernel)
    grid = max(1, min(blocks * multiprocessors, math.ceil((m * k + k * n) / threads))), 1, 1
    first = tuple(Pass(each, grid, (threads, 1, 1), given, () if index else (ranges,)) for index, each in enumerate(passes.passes(kernel)))
    plain = [m, n, k, problem.alpha, a, problem.lda, b, problem.ldb, problem.beta, c, problem.ldc, ranges]
    return LaunchArguments([*plain, *maps], passes=first)


def _remark(matrix: _Matrix, copy: RowCopy) -> str:
    name = matrix.name
    lies = f"those of {name} are {matrix.pitch_bytes} bytes apart" if matrix.pitch_bytes % GRANULE else f"{name} begins at another address"
    copied = f"{name} was copied to rows of {copy.target_pitch} bytes before the launch"
    return f"TMA takes rows at multiples of {GRANULE} bytes, and {lies}: {copied}"


def _address(array: Any) -> int:
    """Where an array begins, as far as alignment goes: of a NumPy array, where it begins in the array that it is a view of."""
    return phase(array) if isinstance(array, np.ndarray) else array.data.ptr


def _zeros(like: Any, rows: int, pitch: int) -> Any:
    """Zeros of rows × pitch bytes, of the library and the element type of another array."""
    return _blank(like, (rows, pitch // like.itemsize), like.dtype)


def _blank(like: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Zeros of this shape, of the library of another array."""
    if isinstance(like, np.ndarray):
        return np.zeros(shape, dtype)
    target = type(like)(shape, dtype)
    target.data.memset(0, target.nbytes)
    return target
