"""Cycles by step: a full bar for every step that is on record, and one for the reader's kernel."""

import pytest

from helpers import Problem, gemm, views
from helpers.course.steps import STEPS
from helpers.run.kernel import compile as compile_kernel
from helpers.views.cycles_by_step import MODEL, SAMPLED, steps
from tests.course.tiny_kernel import SOURCE


@pytest.mark.parametrize("source", [MODEL, SAMPLED])
def test_the_steps_are_on_record_by_model_and_by_profiler(source):
    for size in (1024, 4096):
        known = steps(size, source)
        assert {"01_naive", "05_thread_tile_2d", "11_schedule"} <= known.keys() <= {step.name for step in STEPS}
        for states in known.values():
            assert sum(states.values()) == pytest.approx(1, abs=0.02)


def test_every_step_has_a_full_bar_and_so_has_this_kernel():
    ax = views.cycles_by_step(gemm.count(compile_kernel(SOURCE), Problem(128, 128, 64)), source=SAMPLED)
    rows = {}
    for bar in ax.patches:
        if bar.get_height() == pytest.approx(0.74):
            rows.setdefault(round(bar.get_y(), 2), []).append(bar.get_width())
    assert len(rows) == len(steps(4096, SAMPLED)) + 1
    for widths in rows.values():
        assert sum(widths) == pytest.approx(1)
    assert "this kernel: 128 × 128 × 64" in ax.alt and "Nsight Compute" in ax.alt
