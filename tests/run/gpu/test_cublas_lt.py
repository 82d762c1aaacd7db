"""cuBLASLt as far as it goes without a GPU."""

import ctypes
import types

import numpy as np
import pytest

from helpers.errors import LaunchError
from helpers.run import gpu, timing
from helpers.run.gpu import cublas_lt
from helpers.run.problem import Problem


def test_factors_of_squares_lie_by_columns_filled_up_to_four_blocks():
    found = cublas_lt._block_factors(np.arange(10, dtype=np.float32).reshape(5, 2))
    assert found.shape == (2, 8) and found.dtype == np.float32
    assert found[:, :5].tolist() == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]] and (found[:, 5:] == 1).all()


@pytest.mark.skipif(gpu.available(), reason="there is a GPU")
def test_without_a_gpu_it_is_a_sentence():
    with pytest.raises(LaunchError):
        gpu.cublas_with_factors(
            (16, 16, 128), (1.0, 0.0), (None,) * 3, (128, 128, 16), (np.ones((1, 16)),) * 2, ("float8_e4m3", "bfloat16")
        )


class _Recorded:
    """cuBLASLt, as far as it keeps what it was told: (function, arguments)."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def call(*arguments):
            self.calls.append((name, arguments))
            if name == "cublasLtMatmulAlgoGetHeuristic":
                arguments[-1]._obj.value = 1
            return 0

        return call


@pytest.mark.parametrize("factors", [False, True])
def test_blocks_factors_are_said_where_there_are_some(fake_gpu, monkeypatch, factors):
    """Without them it is the same product: B comes first and is transposed, and the layouts are those of what is stored."""

    def array(name):
        return types.SimpleNamespace(data=types.SimpleNamespace(ptr=name))

    library = _Recorded()
    cupy = types.SimpleNamespace(
        empty=lambda *_: array(9), cuda=types.SimpleNamespace(get_current_stream=lambda: types.SimpleNamespace(ptr=0))
    )
    monkeypatch.setattr(cublas_lt, "_library", lambda: library)
    monkeypatch.setattr(cublas_lt, "_handle", lambda: ctypes.c_void_p())
    monkeypatch.setattr(cublas_lt.presence, "need", lambda: cupy)
    monkeypatch.setattr(cublas_lt, "upload", lambda _: array(7))
    given = (32, 16, 128), (1.0, 0.0), (array(1), array(2), array(3)), (144, 160, 48)
    if factors:
        once = cublas_lt.cublas_with_factors(*given, (np.ones((1, 32)), np.ones((1, 1))), ("float8_e4m3", "bfloat16"))
    else:
        once = gpu.cublas_of_8_bits(*given, ("float8_e4m3", "bfloat16"))
    once()
    told = [arguments[1].value for name, arguments in library.calls if name == "cublasLtMatmulDescSetAttribute"]
    assert told == [cublas_lt._TRANSA, *((31, 32, 17, 18) if factors else ())]
    sizes = [tuple(item.value for item in arguments[2:]) for name, arguments in library.calls if name == "cublasLtMatrixLayoutCreate"]
    assert sizes == [(128, 16, 160), (128, 32, 144), (16, 32, 48)]
    (product,) = [arguments for name, arguments in library.calls if name == "cublasLtMatmul"]
    assert (product[3].value, product[5].value, product[8].value) == (2, 1, 3)  # B, A and C


@pytest.mark.parametrize(
    "options, said", [({"transa": True}, "only with A by rows"), ({"batch": 2}, "one product of 8-bit floats at a time")]
)
def test_8_bit_floats_are_told_what_is_not_multiplied(fake_gpu, monkeypatch, options, said):
    monkeypatch.setattr("helpers.run.gpu.cublas_gemm.cublas_why_not", lambda: "")
    monkeypatch.setattr(gpu, "cublas_why_not", lambda: "")
    once, why = timing.opponent(Problem(16, 16, 16, dtype="float8_e4m3", transb=True, **options), None, None, None)
    assert once is None and said in why
