"""Products as a kernel solves them: of its own element types, with a bias or with factors if it takes them."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from helpers.arguments import explained
from helpers.element_types import ELEMENT_TYPES, element_type
from helpers.errors import LaunchError, RunError
from helpers.sim.code.program import Program
from helpers.sim.load import load

from . import block_scales, transposes
from .c_types import CARRIER, DTYPES
from .geometry import FUSED_AT, geometry, is_fused, tensor_maps
from .kernel import Kernel
from .passes import pieces
from .problem import Problem

COUNTED_SIZE = 64  # at least this, see counted_size
MATRICES = 4, 6, 9  # the places of A, B and C among the parameters
_ELEMENTS = {name: item.name for item in ELEMENT_TYPES.values() for name in item.c_names}
_OF_NONE = re.compile(r"double[1-4]?|bool|((un)?signed )?(char|short|int|long|long long)|unsigned")  # of which there are no products


def types(kernel: Kernel) -> tuple[str, str]:
    """Element types of A and B, and of C, as the kernel declares them; float32 for a name that says nothing, such as void.

    CUDA has no name for tf32: a kernel that reads float and multiplies in tf32 takes tf32. Raises LaunchError where A and B differ, and
    for double and integers, of which the course has no products.
    """
    declared = [item for place, item in enumerate(kernel.compiled.parameters) if place in MATRICES]
    if other := next((item for item in declared if _OF_NONE.fullmatch(item.pointer_to or "")), None):
        raise LaunchError(
            f"{kernel.name} takes {other.name} in {other.pointer_to}, and the course multiplies no matrices of that: it has "
            f"{', '.join(ELEMENT_TYPES)}. Launch it yourself with .launch(grid, block, args)."
        )
    _takes_bias(kernel)  # the parameters are where they should be
    a, b, c = (_ELEMENTS.get(item.pointer_to or "", "float32") for item in declared)
    if a != b:
        raise LaunchError(f"{kernel.name} takes A in {a} and B in {b}; the course multiplies matrices of one type.")
    return ("tf32" if a == "float32" and "tf32" in kernel.compiled.matrix_types else a), c


def _takes_bias(kernel: Kernel) -> bool:
    """Does the kernel take a bias? Raises LaunchError where it has another type than C, and for a signature that is not the course's."""
    if not is_fused(kernel):
        return False
    c, bias = (kernel.compiled.parameters[place] for place in (MATRICES[2], FUSED_AT))
    of_c, of_bias = c.pointer_to or "void", bias.pointer_to or "void"
    storage = element_type(_ELEMENTS.get(of_c, "float32")).storage
    if of_bias not in DTYPES or storage in map(np.dtype, DTYPES[of_bias]) or CARRIER.fullmatch(of_bias):
        return True
    element = of_c if of_c in _ELEMENTS else "float"
    element = re.sub(r"(?<=\D)[24]$", "", element)  # of a vector
    raise LaunchError(
        f"{kernel.name} takes {bias.name} in {of_bias} and C in {of_c}. A pointer behind ldc is taken for a bias, which the course makes "
        f"in the type of C: write `const {element}* {bias.name}` in the kernel's parameters"
        f"{'' if element == 'float' else ', and make each element float where it is added'}."
    )


@explained
def problem_for(kernel: Kernel, m: int, n: int, k: int, **options: Any) -> Problem:
    """A problem in the kernel's own element types, its matrices stored as the kernel takes them. Options are fields of `Problem`."""
    dtype, out_dtype = types(kernel)
    return Problem(m, n, k, dtype=dtype, out_dtype=out_dtype, **_layout(kernel), **options)


_P = TypeVar("_P", bound=Problem)


def fitted(kernel: Kernel, problem: _P) -> _P:
    """The problem as this kernel solves it: with a bias if it adds one, with factors if it knows some, matrices as it takes them."""
    return replace(problem, fused=_takes_bias(kernel), **_layout(kernel))


def _layout(kernel: Kernel) -> dict[str, Any]:
    """The fields of a problem that say what A and B are in memory."""
    transa, transb = transposes.transposed(kernel)
    return {"scale_block": block_scales.scale_block(kernel), "transa": transa, "transb": transb}


def program_of(kernel: Kernel) -> Program | None:
    """The kernel as the machine reads it; None where it cannot: a launch says why."""
    with contextlib.suppress(RunError):
        return load(kernel.compiled.ptx, kernel.compiled.symbol, kernel.compiled.filename)
    return None


def counted_size(kernel: Kernel) -> int:
    """M = N = K of a quick run whose counters can be judged: no block hangs over an edge (tiles are powers of two)."""
    return max(COUNTED_SIZE, *geometry(kernel).tile)


def counted_shape(kernel: Kernel, least_k: int = 0) -> tuple[int, int, int]:
    """M, N and K of such a run of a kernel whose tiles may be no powers of two: whole tiles, and a K of `least_k` or more that whole steps
    divide (steps are powers of two), with whole blocks that share a factor."""
    size = counted_size(kernel)
    m, n = (-(-size // extent) * extent for extent in geometry(kernel).tile)
    of_factors = block_scales.scale_block(kernel)
    least_k = max(least_k, of_factors[1]) if of_factors else least_k
    return m, n, 1 << (max(size, least_k) - 1).bit_length()


def takes_batch(kernel: Kernel) -> bool:
    """Does the kernel say that it looks at z, and take nothing that describes one product only?"""
    describes_one = tensor_maps(kernel) or pieces(kernel) or block_scales.scale_block(kernel) is not None
    return geometry(kernel).depth is not None and not describes_one
