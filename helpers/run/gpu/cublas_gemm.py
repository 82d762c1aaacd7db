"""cuBLAS, the opponent: what it can multiply, as functions that launch it once."""

from __future__ import annotations

import functools
import os

import numpy as np

from helpers.element_types import element_type, named, result_type
from helpers.errors import LaunchError
from helpers.interrupts import delayed

from . import cublas_lt, presence
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


# cublasComputeType and cublasGemmAlgo. Sums are float32 for all types; float32 itself keeps all its bits.
_COMPUTE_32F, _COMPUTE_32F_FAST_TF32, _DEFAULT_ALGORITHM = 68, 77, -1


def cublas_refuses(dtype: str, out_dtype: str = "", scale_block: tuple[int, int, int] | None = None, transb: bool = False) -> str:
    """Why cuBLAS is no opponent for a product of these element types, as a sentence; "" if it is. scale_block, transb: as a `Problem` has
    them."""
    inputs, result = element_type(dtype), result_type(dtype, out_dtype)
    if scale_block is not None:
        rows, deep, columns = scale_block
        if scale_block == cublas_lt.BLOCK:
            return ""
        return f"cuBLAS has no product with a factor for {rows} × {deep or 'K'} of A and {deep or 'K'} × {columns} of B."
    if dtype == "float8_e5m2" and transb:
        return f"cuBLAS has no product of {inputs.label} by {inputs.label}: one of the two has to be {element_type('float8_e4m3').label}."
    if dtype.startswith("float8") and transb:
        return ""
    if dtype.startswith("float8"):
        return (
            f"cuBLAS has no product of {inputs.label} with B stored by rows: it multiplies 8-bit floats only through cublasLt, and on "
            "most GPUs only with B stored by columns."
        )
    if result not in (inputs.result, "float32"):
        return f"cuBLAS has no product {named(dtype, result)}."
    return ""


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
    out_dtype: str = "",
    batch: int = 1,
    transa: bool = False,
    transb: bool = False,
):
    """A function that runs C = alpha A B + beta C with cuBLAS once on the current stream. C is row-major, and so are A and B.
    transa, transb: A is stored as k rows of lda elements, or B as n rows of ldb: by columns.

    a, b, c: CuPy arrays whose first byte is the matrix (of any type: `dtype` and `out_dtype` say how to read them). Sums are
    float32; float32 inputs keep all their bits, tf32 ones do not. batch: so many products, their matrices one behind the
    other. Small products are timed as a batch of launches, like the course's kernels, and not in a CUDA graph: CuPy refuses
    to call cuBLAS while a graph is being captured. Raises LaunchError if cuBLAS or the GPU is missing, or if cuBLAS cannot
    multiply these types.
    """
    presence.need()
    reason = cublas_why_not() or cublas_refuses(dtype, out_dtype, transb=transb)
    if reason:
        raise LaunchError(reason)
    if dtype.startswith("float8"):
        if transa:
            raise LaunchError("cuBLAS multiplies 8-bit floats only with A by rows and B by columns.")
        if batch > 1:
            raise LaunchError("The course asks cuBLAS for one product of 8-bit floats at a time, and this is a batch.")
        types = dtype, result_type(dtype, out_dtype)
        return cublas_lt.cublas_of_8_bits((m, n, k), (alpha, beta), (a, b, c), (lda, ldb, ldc), types)
    override = os.environ.get("NVIDIA_TF32_OVERRIDE")
    if (override, dtype) in (("1", "float32"), ("0", "tf32")):
        raise LaunchError(f"NVIDIA_TF32_OVERRIDE={override} makes cuBLAS multiply other types than {dtype}: unset it to compare.")
    from cupy.cuda.device import get_cublas_handle
    from cupy_backends.cuda.libs import cublas as library

    handle = get_cublas_handle()
    library.setMathMode(handle, library.CUBLAS_DEFAULT_MATH)  # for float32: no TF32
    library.setPointerMode(handle, library.CUBLAS_POINTER_MODE_HOST)
    factors = np.array([alpha, beta], np.float32)  # read by every call: the functions below must keep it alive
    kind, result = element_type(dtype).cuda, element_type(result_type(dtype, out_dtype)).cuda
    compute = _COMPUTE_32F_FAST_TF32 if dtype == "tf32" else _COMPUTE_32F

    # A row-major matrix is its own transpose in column-major order, and C' = B' A': cuBLAS takes B first, as it lies, then A. A matrix by
    # columns is itself in that order, and cuBLAS transposes it. The functions keep a, b, c alive.
    first, second = (library.CUBLAS_OP_T if turned else library.CUBLAS_OP_N for turned in (transb, transa))
    of_b, of_a = (n if transb else k) * ldb, (k if transa else m) * lda  # elements from one product's matrix to the next's

    def single() -> None:
        library.gemmEx(
            handle, first, second, n, m, k, factors.ctypes.data, b.data.ptr, kind, ldb, a.data.ptr, kind, lda,
            factors[1:].ctypes.data, c.data.ptr, result, ldc, compute, _DEFAULT_ALGORITHM,
        )  # fmt: skip

    def strided() -> None:
        library.gemmStridedBatchedEx(
            handle, first, second, n, m, k, factors.ctypes.data, b.data.ptr, kind, ldb, of_b, a.data.ptr, kind, lda, of_a,
            factors[1:].ctypes.data, c.data.ptr, result, ldc, m * ldc, batch, compute, _DEFAULT_ALGORITHM,
        )  # fmt: skip

    return single if batch == 1 else strided
