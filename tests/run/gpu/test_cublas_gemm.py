"""cuBLAS as far as it goes without a GPU."""

import itertools
import sys
import types

import numpy as np
import pytest

from helpers.errors import LaunchError
from helpers.run import gpu, timing
from helpers.run.gpu import cublas_gemm
from helpers.run.problem import Problem


def test_cublas_missing_is_a_sentence(fake_gpu, monkeypatch):
    monkeypatch.setattr(cublas_gemm, "cublas_why_not", lambda: "cuBLAS is not installed.")
    with pytest.raises(LaunchError, match="not installed"):
        gpu.cublas(1, 1, 1, 1.0, None, 1, None, 1, 0.0, None, 1)


class _Library(types.ModuleType):
    """cuBLAS as its manual has it: matrices by columns, C = alpha op(A) op(B) + beta C, on arrays in place of addresses."""

    CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_DEFAULT_MATH, CUBLAS_POINTER_MODE_HOST = 0, 1, 0, 0

    def setMathMode(self, *_):
        pass

    def setPointerMode(self, *_):
        pass

    def gemmEx(self, handle, op_a, op_b, m, n, k, alpha, a, _, lda, b, __, ldb, beta, c, *rest):
        ldc = rest[1]
        self._product((op_a, op_b), (m, n, k), (a, lda), (b, ldb), (c, ldc), 0, 0, 0, 0)

    def gemmStridedBatchedEx(
        self, handle, op_a, op_b, m, n, k, alpha, a, _, lda, of_a, b, __, ldb, of_b, beta, c, ___, ldc, of_c, count, *rest
    ):
        for product in range(count):
            self._product((op_a, op_b), (m, n, k), (a, lda), (b, ldb), (c, ldc), product, of_a, of_b, of_c)

    def _product(self, ops, shape, a, b, c, product, of_a, of_b, of_c):
        m, n, k = shape

        def matrix(array, ld, rows, columns, offset):  # by columns: element (i, j) at i + j * ld
            return np.lib.stride_tricks.as_strided(array.reshape(-1)[offset:], (rows, columns), (array.itemsize, ld * array.itemsize))

        left = matrix(*a, *((k, m) if ops[0] else (m, k)), product * of_a)
        right = matrix(*b, *((n, k) if ops[1] else (k, n)), product * of_b)
        matrix(*c, m, n, product * of_c)[...] = (left.T if ops[0] else left) @ (right.T if ops[1] else right)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("transa, transb", list(itertools.product((False, True), repeat=2)))
def test_cublas_multiplies_matrices_as_the_kernel_takes_them(fake_gpu, monkeypatch, transa, transb, batch):
    monkeypatch.setattr(cublas_gemm, "cublas_why_not", lambda: "")
    libs = types.ModuleType("cupy_backends.cuda.libs")
    libs.cublas = _Library("cublas")
    device = types.ModuleType("cupy.cuda.device")
    device.get_cublas_handle = lambda: 0
    for name, module in (("cupy_backends.cuda.libs", libs), ("cupy.cuda", types.ModuleType("cupy.cuda")), ("cupy.cuda.device", device)):
        monkeypatch.setitem(sys.modules, name, module)
    problem = Problem(7, 5, 11, pad_a=3, pad_b=2, pad_c=1, transa=transa, transb=transb, batch=batch)
    a, b, c = timing.operands(problem)
    given = [types.SimpleNamespace(data=types.SimpleNamespace(ptr=array)) for array in (a, b, c)]
    once, why = timing.opponent(problem, *given)
    assert not why
    once()
    left, right = problem.meant(a, b)
    assert np.allclose(c[:, :5], (left @ right).reshape(-1, 5), rtol=1e-4, atol=1e-4)
