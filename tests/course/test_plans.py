"""The table of plans: one row for each kernel, with the figures of its main loop."""

import pytest

from helpers.course.plans import plans
from helpers.errors import CourseError
from helpers.model.planned_cycles import loop_cycles
from helpers.run.kernel import compile as compile_kernel
from tests.course.tiny_kernel import SOURCE


def test_a_row_for_each_kernel():
    kernel = compile_kernel(SOURCE)
    found = plans({"one": kernel, "two": kernel})
    assert found.cycles("one") == loop_cycles(kernel.compiled) <= found.with_conflicts("one")
    table = found.table()
    assert [row[0] for row in table.rows] == ["one", "two"] and {len(row) for row in table.rows} == {len(table.header)}


def test_a_kernel_without_a_main_loop_is_named():
    with pytest.raises(CourseError, match="empty: .* no loop"):
        plans({"empty": compile_kernel("__global__ void f(float* x) { x[threadIdx.x] = 1; }")})
