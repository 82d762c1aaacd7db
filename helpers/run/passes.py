"""Passes: kernels of a product's own file that are launched before its kernel, to prepare A and B for it.

A kernel that multiplies pieces of its matrices' elements says so in its file:

    extern "C" __device__ constexpr int pieces[] = {PIECES};             // 16-bit pieces of an element, at most
    extern "C" __device__ constexpr int passes[] = {THREADS, BLOCKS};    // threads of a pass's block, blocks per multiprocessor

Then the file's kernels `measure` and `split` are launched before it, in this order and each time, with

    int M, int N, int K, const float* A, int lda, const float* B, int ldb,
    unsigned short* pieces_A, int pitch_A, unsigned short* pieces_B, int pitch_B, int* ranges

pieces_A holds PIECES matrices of M rows below each other, pitch_A elements from row to row: K rounded up to a multiple of 8. pieces_B
holds K rows of PIECES matrices side by side, each of N columns rounded up to a multiple of 8; pitch_B elements from row to row. ranges
holds M + N + 1 ints, zero before `measure`. The product's kernel gets `const int* ranges` behind ldc, and its map_A and map_B describe
pieces_A and pieces_B.

The grid: so many blocks per multiprocessor as the file says, or one per THREADS elements of A and B if these are fewer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from helpers.errors import LaunchError
from helpers.sim.layouts.tensor_map import NBYTES
from helpers.toolchain import signatures
from helpers.toolchain.compiled import Compiled, Parameter

from .kernel import Kernel

NAMES = ("measure", "split")
PARAMETERS = (
    "int M, int N, int K, const float* A, int lda, const float* B, int ldb, unsigned short* pieces_A, int pitch_A, "
    "unsigned short* pieces_B, int pitch_B, int* ranges"
)
GRANULE = 8  # elements: 16 bytes, which rows that TMA copies are multiples of
MOST_PIECES = 8
_POINTERS = ("A", "B", "pieces_A", "pieces_B", "ranges")


@dataclass(frozen=True, eq=False)
class Pass:
    """One launch of a pass. arguments: arrays, NumPy's or CuPy's, and NumPy scalars. zeroed: those arrays that are zero before."""

    kernel: Kernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: list[Any]
    zeroed: tuple[Any, ...] = ()

    @property
    def arrays(self) -> list[Any]:
        return [value for value in self.arguments if hasattr(value, "nbytes") and getattr(value, "ndim", False)]

    def on(self, arrays: Sequence[Any]) -> Pass:
        """The same on other arrays, in the order of `arrays`."""
        there = dict(zip(map(id, self.arrays), arrays, strict=True))
        return replace(
            self,
            arguments=[there.get(id(value), value) for value in self.arguments],
            zeroed=tuple(there[id(value)] for value in self.zeroed),
        )

    def compiled(self, _arch: str) -> Compiled:
        return self.kernel.compiled


def pieces(kernel: Kernel) -> int:
    """In how many pieces at most the kernel's file splits an element, 0 if it splits none. Raises LaunchError for what cannot be."""
    said = kernel.compiled.constants.get("pieces")
    if said is None:
        return 0
    if len(said) != 1 or not 1 <= said[0] <= MOST_PIECES:
        raise LaunchError(f"pieces = {said}: it is one number, how many 16-bit pieces an element has (1 to {MOST_PIECES}).")
    return said[0]


def passes(kernel: Kernel) -> tuple[Kernel, ...]:
    """The kernels that are launched before it. Raises LaunchError where the file lacks one, or one has another signature."""
    return tuple(Kernel(_sibling(kernel.compiled, name)) for name in NAMES) if pieces(kernel) else ()


def shape(kernel: Kernel) -> tuple[int, int]:
    """(threads per block, blocks per multiprocessor) of the passes. Raises LaunchError with what to write."""
    said = kernel.compiled.constants.get("passes")
    if said is None or len(said) != 2 or not (1 <= said[0] <= 1024 and 1 <= said[1] <= 32):
        raise LaunchError(
            f"{kernel.name} splits its matrices, and passes = {said} does not say how its passes are launched. Write at file level:\n"
            '    extern "C" __device__ constexpr int passes[] = {THREADS, BLOCKS};  // 1 to 1024 per block, 1 to 32 per multiprocessor'
        )
    return said[0], said[1]


def _sibling(compiled: Compiled, name: str) -> Compiled:
    """What the compiler made of another kernel of the same file."""
    try:
        parameters = signatures.parameters(compiled.ptx, name, compiled.source, compiled.options)
    except KeyError:
        parameters = ()
    wanted = ["32"] * 3 + ["pointer", "32"] * 4 + ["pointer"]
    if [kind(item) for item in parameters] != wanted:
        raise LaunchError(
            f"{compiled.entry} multiplies pieces, so its file needs the kernel that makes them:\n"
            f'    extern "C" __global__ void {name}({PARAMETERS})'
        )
    usage: dict[str, Any] = signatures.resource_usage(compiled.log, name)
    usage["shared_bytes"] = signatures.shared_bytes(compiled.ptx, name)
    return replace(compiled, entry=name, symbol=name, parameters=parameters, requested=name, **usage)


def kind(parameter: Parameter) -> str:
    """What a parameter of a kernel of the course is: "pointer", "map" for a tensor map, or its bits: "32"."""
    if parameter.pointer_to is not None:
        return "pointer"
    return "map" if parameter.ptx_type == "b8" and parameter.size == NBYTES else parameter.ptx_type.lstrip("usbf")
