"""The way of a block past the functions that ptxas has for rare numbers."""

import numpy as np
import pytest

from helpers.run.kernel import compile as compile_kernel
from helpers.sim.code.sass import parse
from helpers.sim.counting.machine_code import block_path, instruction_counts
from helpers.sim.counting.machine_code.slicing import usual_way

DIVIDES = """__global__ void k(const float* x, float* y) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    y[i] = %s;
}"""


@pytest.mark.parametrize("value", ["1.0f / x[i]", "x[i] / (1.0f + x[i])", "sqrtf(x[i])", "1.0 / x[i]"])
def test_a_way_for_rare_numbers_is_left_out_where_it_depends_on_data(value):
    """Which way a division takes is known by its numbers alone; the usual one is what a model of time goes by."""
    compiled = compile_kernel(DIVIDES % value).compiled
    given = (np.zeros(256, np.float32), np.zeros(256, np.float32))
    assert instruction_counts(compiled, (1, 1, 1), (256, 1, 1), given)[0] is None, "counts stay exact, or unknown"
    path, why = block_path(compiled, (1, 1, 1), (256, 1, 1), given, 0, 1 << 10)
    assert path is not None and path.usual, why
    executed = [path.function.instructions[k] for visit in path.visits for k in range(visit.start, visit.end)]
    assert executed[-1].name == "EXIT" and not any(i.name in ("CALL", "RET") for i in executed)
    assert {"LDG", "MUFU", "STG"} <= {i.name for i in executed}


def test_other_branches_on_data_stay_unknown():
    compiled = compile_kernel(DIVIDES % "x[i] > 2 ? __fdividef(x[i], 3) : y[i + int(x[i])] / x[i + 1]").compiled
    given = (np.zeros(256, np.float32), np.zeros(256, np.float32))
    path, _ = block_path(compiled, (1, 1, 1), (256, 1, 1), given, 0, 1 << 10)
    assert path is None


def test_code_without_such_calls_is_the_same():
    compiled = compile_kernel(DIVIDES % "x[i] * 2").compiled
    function = parse(compiled.sass)[compiled.symbol]
    assert usual_way(function) is function
