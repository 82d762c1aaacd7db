"""cuBLAS as far as it goes without a GPU."""

import pytest

from helpers.errors import LaunchError
from helpers.run import gpu
from helpers.run.gpu import cublas_gemm


def test_cublas_missing_is_a_sentence(fake_gpu, monkeypatch):
    monkeypatch.setattr(cublas_gemm, "cublas_why_not", lambda: "cuBLAS is not installed.")
    with pytest.raises(LaunchError, match="not installed"):
        gpu.cublas(1, 1, 1, 1.0, None, 1, None, 1, 0.0, None, 1)
