"""cuBLAS, the opponent: what it can multiply, as functions that launch it once."""

from __future__ import annotations

import functools
import os

import numpy as np

from helpers.errors import LaunchError
from helpers.interrupts import delayed

from . import presence
from .failures import first_line


@functools.cache
def cublas_why_not() -> str:
    """Why cuBLAS cannot be compared with, as a sentence; "" when it can (a GPU is asked about separately)."""
    try:
        with delayed():
            from cupy_backends.cuda.libs import cublas  # noqa: F401 - whether it imports is the question
    except ImportError as error:
        return (
            f"cuBLAS is not installed ({first_line(error).split(':')[0]}). Add it with the extra named gpu, as the "
            "README shows: uv run --extra gpu course lab."
        )
    return ""


_HALF_TYPES = {"float16": 2, "bfloat16": 14}  # cudaDataType of the operands
_COMPUTE_32F, _DEFAULT_ALGORITHM = 68, -1  # cublasComputeType, cublasGemmAlgo


def cublas(
    m: int,
    n: int,
    k: int,
    alpha: float,
    a,
    lda: int,
    b,
    ldb: int,
    beta: float,
    c,
    ldc: int,
    dtype: str = "float32",
    batch: int = 1,
):
    """A function that runs C = alpha A B + beta C with cuBLAS once on the current stream. Row-major, no transposes.

    a, b, c: CuPy arrays whose first byte is the matrix (any dtype; `dtype` says how to read them). float32 runs with
    TF32 off; float16 and bfloat16 accumulate in float32. batch: so many products, their matrices one behind the other
    (float32 only). Small products are timed as a batch of launches, like the course's kernels, and not in a CUDA
    graph: CuPy refuses to call cuBLAS while a graph is being captured. Raises LaunchError if cuBLAS or the GPU is missing.
    """
    presence.need()
    reason = cublas_why_not()
    if reason:
        raise LaunchError(reason)
    if os.environ.get("NVIDIA_TF32_OVERRIDE") == "1":
        raise LaunchError("NVIDIA_TF32_OVERRIDE=1 makes cuBLAS round float32 to TF32: unset it to compare with float32.")
    from cupy.cuda.device import get_cublas_handle
    from cupy_backends.cuda.libs import cublas as library

    handle = get_cublas_handle()
    library.setMathMode(handle, library.CUBLAS_DEFAULT_MATH)  # for float32: no TF32
    library.setPointerMode(handle, library.CUBLAS_POINTER_MODE_HOST)
    factors = np.array([alpha, beta], np.float32)  # read by every call: the functions below must keep it alive
    plain = library.CUBLAS_OP_N

    # A row-major matrix is its own transpose in column-major order, and C' = B' A'. The functions keep a, b, c alive.
    def single() -> None:
        first, second = factors.ctypes.data, factors[1:].ctypes.data
        library.sgemm(
            handle, plain, plain, n, m, k, first, b.data.ptr, ldb, a.data.ptr, lda, second, c.data.ptr, ldc
        )  # fmt: skip

    def strided() -> None:
        first, second = factors.ctypes.data, factors[1:].ctypes.data
        library.sgemmStridedBatched(
            handle, plain, plain, n, m, k, first, b.data.ptr, ldb, k * ldb, a.data.ptr, lda, m * lda, second,
            c.data.ptr, ldc, m * ldc, batch,
        )  # fmt: skip

    def half() -> None:
        kind, first, second = _HALF_TYPES[dtype], factors.ctypes.data, factors[1:].ctypes.data
        library.gemmEx(
            handle, plain, plain, n, m, k, first, b.data.ptr, kind, ldb, a.data.ptr, kind, lda, second, c.data.ptr,
            kind, ldc, _COMPUTE_32F, _DEFAULT_ALGORITHM,
        )  # fmt: skip

    if dtype == "float32":
        return single if batch == 1 else strided
    if batch > 1:
        raise LaunchError(f"The course compares batches with cuBLAS in float32 only, not in {dtype}.")
    if dtype in _HALF_TYPES:
        return half
    raise LaunchError(f"The course has no cuBLAS baseline for {dtype}; it has float32, float16 and bfloat16.")
