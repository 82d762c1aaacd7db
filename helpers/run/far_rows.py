"""Products whose rows are so far apart that an index of 32 bits does not reach them: a matrix of which few elements are touched, and which
no memory holds as a whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from helpers.element_types import element_type
from helpers.sim.machine.memory import far_rows

from .geometry import geometry, tensor_maps
from .kernel import Kernel
from .own_products import fitted, problem_for, takes_batch, types
from .passes import pieces
from .problem import VECTOR, Problem
from .transposes import transposed

_APART = 1 << 33  # elements from the first row to the last one: also the second block of rows begins behind 2^32
_FEWEST = 8  # rows, so that a leading dimension is an int
_LONGEST = 64  # elements of K


def far_apart(kernel: Kernel, step: int | None, seed: int) -> list[tuple[str, Problem, Problem]]:
    """(name, product, far): a product of one tile and some rows of another, of one step along K, and as `far` the same with the rows of the
    matrix of this name so far apart that those of the second tile begin behind 2^32 elements; first of all three ("ABC"). C alone of
    kernels that do not read A and B where they are, but by tensor maps or in pieces, and of those with factors. Where C has a map, its rows
    are such that there is none: the kernel stores by itself."""
    near = _near(kernel, step, seed)
    a, b, c = (_pad(_APART, of.rows - 1, of.columns) for of in near.stored)
    if maps := tensor_maps(kernel):
        c += "map_C" in maps
    tried = _one_by_one(near, [a, b, c])
    return tried[-1:] if maps or pieces(kernel) or near.scale_block else tried


def products_apart(kernel: Kernel, step: int | None, seed: int) -> list[tuple[str, Problem, Problem]]:
    """The same of a kernel that `takes_batch`, for a batch of two: the matrices of the second product begin behind 2^32 elements."""
    if not takes_batch(kernel):
        return []
    near = replace(_near(kernel, step, seed), batch=2)
    return _one_by_one(near, [_pad(_APART // 2, of.rows, of.columns) for of in near.stored])


def _near(kernel: Kernel, step: int | None, seed: int) -> Problem:
    """The product of a tile and some rows (see `far_apart`)."""
    shape, (dtype, _) = geometry(kernel), types(kernel)
    vector = VECTOR // element_type(dtype).bytes
    k = min(max(_FEWEST, step or 2 * _FEWEST), _LONGEST)
    rows, columns = max(_FEWEST, shape.tile[0]) + _FEWEST, max(_FEWEST, shape.tile[1] * shape.cluster[0])
    more = _FEWEST * transposed(kernel)[1]  # where B's rows are columns of C
    m, n, k = (-(-extent // vector) * vector for extent in (rows, columns + more, k))
    return fitted(kernel, problem_for(kernel, m, n, k, alpha=1.5, beta=0.5, seed=seed))


def _pad(elements: int, rows: int, width: int) -> int:
    """What so many rows of so many elements need besides to take up `elements`, in whole vectors of either type."""
    return -(-elements // rows // VECTOR) * VECTOR + -width % VECTOR


def _one_by_one(near: Problem, pads: list[int]) -> list[tuple[str, Problem, Problem]]:
    a, b, c = pads
    return [
        ("ABC", near, replace(near, pad_a=a, pad_b=b, pad_c=c)),
        ("A", near, replace(near, pad_a=a)),
        ("B", near, replace(near, pad_b=b)),
        ("C", near, replace(near, pad_c=c)),
    ]


def spread(far: Problem, arrays: tuple[np.ndarray, np.ndarray, np.ndarray]) -> tuple[np.ndarray, ...]:
    """A, B and C of the near product, with their rows as far apart as `far` has them. Raises MemoryError where there is no room."""
    made = []
    for array, (_, _, row) in zip(arrays, far.stored, strict=True):
        rows, width = array.shape
        wide = far_rows(rows, row, width, array.dtype) if row > width else np.empty_like(array)
        wide[:, :width] = array
        made.append(wide)
    return tuple(made)
