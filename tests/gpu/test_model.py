"""What the model says of the hardware, asked of the hardware."""

import numpy as np
import pytest

from helpers.course import steps
from helpers.model import predict
from helpers.run import gpu, kernel, timing
from helpers.run.gemm import Problem
from helpers.sim.counting import machine_code


@pytest.mark.parametrize("padding", [0, 1, 2, 4, 8, 16, 32])
def test_a_column_of_a_matrix_waits_for_banks_and_tags(padding):
    """Step 01 reads a column of A per request: its time follows the banks its rows fall into, not powers of two.

    Rows of 1024 + 32 floats are as slow as rows of 1024: cache sets would spread the former.
    """
    if gpu.arch() != "sm_90":
        pytest.skip("the constants are Hopper's")
    step, size = steps.get("naive"), 1024
    compiled = kernel.compile(step.kernel_path.read_text(), entry=step.entry, arch=gpu.arch())
    timed = timing.time_gemm(compiled, Problem(size, size, size, pad_a=padding), samples=8, seconds=1)
    device = gpu.device()
    blocks = -(-((size // 32) ** 2) // device.sms)  # of the busiest SM
    rounds = blocks * 32 * size  # warps times k
    measured = timed.kernel.milliseconds * device.clock_mhz * 1e3 / rounds
    column = np.arange(32)[None, :] * 4 * (size + padding)
    constants = predict.fitted()
    expected = machine_code.lookup_cycles(column, 4)[0] + 1 + 2 * constants.request_cycles  # A's column, B's word
    assert measured == pytest.approx(expected, rel=0.35)
