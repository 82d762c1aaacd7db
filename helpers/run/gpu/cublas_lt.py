"""cuBLASLt's product of 8-bit floats, whose blocks may have factors: the opponent of kernels in FP8 that take B by columns.

CuPy calls cuBLAS, which has no such product; so the few functions of cuBLASLt's C interface that it takes are called here. Names and
numbers are those of cublasLt.h (CUDA 13.0); the scaling modes exist from CUDA 12.9 on.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from helpers.element_types import element_type
from helpers.errors import LaunchError

from . import presence
from .transfers import upload

_COMPUTE_32F, _CUDA_R_32F, _TRANSPOSED = 68, 0, 1
_TRANSA, _A_SCALE, _B_SCALE, _A_SCALE_MODE, _B_SCALE_MODE = 3, 17, 18, 31, 32  # cublasLtMatmulDescAttributes_t
_VEC128, _BLK128 = 4, 5  # cublasLtMatmulMatrixScale_t: one factor for 128 k of a line, and for 128 x 128
_WORKSPACE_BYTES = 1  # cublasLtMatmulPreferenceAttributes_t
_WORKSPACE = 32 << 20  # what NVIDIA's documentation asks for on Hopper
BLOCK = (1, 128, 128)  # rows of A, k, columns of B that share a factor: the one form that is compared


class _Found(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8), ("workspace", ctypes.c_size_t), ("state", ctypes.c_int), ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )  # fmt: skip


@functools.cache
def _library() -> ctypes.CDLL:
    """cublasLt of the CUDA version that CuPy has loaded cuBLAS of. Raises LaunchError."""
    from cupy.cuda.device import get_cublas_handle
    from cupy_backends.cuda.libs import cublas

    get_cublas_handle()  # loads it
    major = cublas.getVersion(get_cublas_handle()) // 10000
    name = f"cublasLt64_{major}.dll" if sys.platform == "win32" else f"libcublasLt.so.{major}"
    try:
        return ctypes.CDLL(name)
    except OSError:
        raise LaunchError(f"cuBLAS multiplies matrices with factors by {name}, which is not found.") from None


@functools.cache
def _handle() -> ctypes.c_void_p:
    handle = ctypes.c_void_p()
    _call("cublasLtCreate", ctypes.byref(handle))
    return handle


def _call(name: str, *arguments: Any) -> None:
    status = getattr(_library(), name)(*arguments)
    if status:
        raise LaunchError(f"cuBLAS has no such product: {name} answered {status}. (It wants M, N and K that are multiples of 16.)")


def _set(function: str, thing: ctypes.c_void_p, attribute: int, value: Any) -> None:
    _call(function, thing, ctypes.c_int(attribute), ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)))


def _block_factors(scales_b: np.ndarray) -> np.ndarray:
    """Factors of 128 x 128 blocks of B, [K blocks, N blocks], as cuBLASLt wants them: those of a block of columns lie together, as many
    as there are blocks of K, rounded up to a multiple of four."""
    deep, across = scales_b.shape
    found = np.ones((across, -(-deep // 4) * 4), np.float32)
    found[:, :deep] = scales_b.T
    return found


def cublas_of_8_bits(
    shape: tuple[int, int, int],
    factors: tuple[float, float],
    matrices: tuple[Any, Any, Any],
    pitches: tuple[int, int, int],
    types: tuple[str, str],
) -> Callable[[], None]:
    """A function that runs C = alpha A B + beta C of 8-bit floats once on the current stream. Arguments and errors: see
    `cublas_with_factors`, without whose factors it is the same."""
    return _product(shape, factors, matrices, pitches, None, types)


def cublas_with_factors(
    shape: tuple[int, int, int],
    factors: tuple[float, float],
    matrices: tuple[Any, Any, Any],
    pitches: tuple[int, int, int],
    scales: tuple[np.ndarray, np.ndarray],
    types: tuple[str, str],
) -> Callable[[], None]:
    """A function that runs C = alpha A B + beta C once on the current stream, with a factor for each 128 k of a row of A and for each
    128 x 128 of B (`BLOCK`).

    shape: (m, n, k). factors: (alpha, beta). matrices: A [m, lda], B by columns [n, ldb], C [m, ldc], CuPy arrays whose first byte is the
    matrix. scales: NumPy arrays, of A [K blocks, m] and of B [K blocks, N blocks]. types: of A and B, and of C. Raises LaunchError where
    cuBLASLt has no such product.
    """
    return _product(shape, factors, matrices, pitches, scales, types)


def _product(shape, factors, matrices, pitches, scales: tuple[np.ndarray, np.ndarray] | None, types) -> Callable[[], None]:
    """`cublas_with_factors`; scales None: there are none, and cuBLASLt multiplies what is stored."""
    (m, n, k), (a, b, c), (lda, ldb, ldc) = shape, matrices, pitches
    cupy = presence.need()
    inputs, result = element_type(types[0]).cuda, element_type(types[1]).cuda
    handle, product, preference = _handle(), ctypes.c_void_p(), ctypes.c_void_p()
    _call("cublasLtMatmulDescCreate", ctypes.byref(product), _COMPUTE_32F, _CUDA_R_32F)
    # Row-major C is column-major C' = B' A': B comes first, and lies by columns of K, so that it is transposed.
    wanted: list[tuple[int, Any]] = [(_TRANSA, ctypes.c_int(_TRANSPOSED))]
    uploaded: tuple[Any, ...] = ()
    if scales is not None:
        of_rows, of_blocks = uploaded = upload(scales[0]), upload(_block_factors(scales[1]))
        wanted += [
            (_A_SCALE_MODE, ctypes.c_int(_BLK128)), (_B_SCALE_MODE, ctypes.c_int(_VEC128)),
            (_A_SCALE, ctypes.c_void_p(of_blocks.data.ptr)), (_B_SCALE, ctypes.c_void_p(of_rows.data.ptr)),
        ]  # fmt: skip
    for attribute, value in wanted:
        _set("cublasLtMatmulDescSetAttribute", product, attribute, value)
    layouts = []
    for kind, rows, columns, pitch in ((inputs, k, n, ldb), (inputs, k, m, lda), (result, n, m, ldc)):
        layouts.append(ctypes.c_void_p())
        sizes = ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(pitch)
        _call("cublasLtMatrixLayoutCreate", ctypes.byref(layouts[-1]), kind, *sizes)
    of_b, of_a, of_c = layouts
    _call("cublasLtMatmulPreferenceCreate", ctypes.byref(preference))
    _set("cublasLtMatmulPreferenceSetAttribute", preference, _WORKSPACE_BYTES, ctypes.c_size_t(_WORKSPACE))
    found, count = _Found(), ctypes.c_int()
    arguments = (handle, product, of_b, of_a, of_c, of_c, preference, 1, ctypes.byref(found), ctypes.byref(count))
    _call("cublasLtMatmulAlgoGetHeuristic", *arguments)
    if not count.value:
        raise LaunchError("cuBLAS knows no algorithm for such a product.")
    workspace = cupy.empty(_WORKSPACE, np.uint8)
    alpha, beta = (ctypes.c_float(value) for value in factors)
    kept = a, b, c, workspace, *uploaded

    def once() -> None:
        left, right, target, room, *_ = kept
        _call(
            "cublasLtMatmul", handle, product, ctypes.byref(alpha), ctypes.c_void_p(right.data.ptr), of_b,
            ctypes.c_void_p(left.data.ptr), of_a, ctypes.byref(beta), ctypes.c_void_p(target.data.ptr), of_c,
            ctypes.c_void_p(target.data.ptr), of_c, ctypes.byref(found), ctypes.c_void_p(room.data.ptr), ctypes.c_size_t(_WORKSPACE),
            ctypes.c_void_p(cupy.cuda.get_current_stream().ptr),
        )  # fmt: skip

    weakref.finalize(once, _free, product, layouts, preference)
    return once


def _free(product: ctypes.c_void_p, layouts: list[ctypes.c_void_p], preference: ctypes.c_void_p) -> None:
    _library().cublasLtMatmulDescDestroy(product)
    _library().cublasLtMatmulPreferenceDestroy(preference)
    for layout in layouts:
        _library().cublasLtMatrixLayoutDestroy(layout)
