"""`isa.mma.cut_sums` in native code, for the NumPy machine: a tenth of the time that NumPy takes."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence

import numpy as np

from helpers.sim.isa import mma

from . import engine


@functools.cache
def _function():
    from .prepared import runtime  # here, so that a machine without LLVM can import this

    code = engine.Code([runtime()], "cut_products")
    kinds = [*5 * [ctypes.c_void_p], *5 * [ctypes.c_int32]]
    call = ctypes.CFUNCTYPE(None, *kinds)(code.address)
    return call, code  # the code lives as long as the function


def cut(left: np.ndarray, right: np.ndarray, old: np.ndarray, lowest: Sequence[int]) -> np.ndarray:
    """left [..., M, K] times right [..., K, N] plus old [..., M, N], float64, N a multiple of 8. lowest: exponents of left's and right's
    factors, at least."""
    call, _ = _function()
    (rows, k), n = left.shape[-2:], right.shape[-1]
    if rows % 8:  # native code has whole eights of them
        left, old = (np.concatenate([x, np.zeros((*x.shape[:-2], -rows % 8, x.shape[-1]))], axis=-2) for x in (left, old))
    m = left.shape[-2]
    several = np.broadcast_shapes(left.shape[:-2], right.shape[:-2], old.shape[:-2])
    stacks = [
        np.ascontiguousarray(np.broadcast_to(x, (*several, *shape)), np.float64).reshape(-1, *shape)
        for x, shape in ((left, (m, k)), (right, (k, n)), (old, (m, n)))
    ]
    result, room = np.empty((len(stacks[0]), m, n)), np.empty(m * k + k * n + m * n)
    starts = [(matrices.ctypes.data, matrices.strides[0]) for matrices in (*stacks, result)]
    for number in range(len(result)):
        call(*(start + number * nbytes for start, nbytes in starts), room.ctypes.data, m, n, k, *lowest)
    return result.reshape(*several, m, n)[..., :rows, :]


def offer() -> None:
    """Let the NumPy machine use it, where there is LLVM."""
    if engine.available() and cut not in mma.faster:
        mma.faster.append(cut)
