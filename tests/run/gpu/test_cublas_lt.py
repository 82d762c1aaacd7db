"""cuBLASLt as far as it goes without a GPU."""

import numpy as np
import pytest

from helpers.errors import LaunchError
from helpers.run import gpu
from helpers.run.gpu import cublas_lt


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
