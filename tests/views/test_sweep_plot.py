"""The picture of a sweep shows the numbers of the sweep."""

from __future__ import annotations

from helpers import views
from helpers.course.steps import get
from helpers.course.sweep import sweep


def test_every_point_is_the_sweeps_own():
    source = get("thread_tile_1d").kernel_path.read_text(encoding="utf-8")
    found = sweep(source, [{"TM": 16}, {"TM": 32}], size=64, gpu_name="H200 SXM")
    ax = views.sweep(found)
    drawn = [list(line.get_ydata()) for line in ax.get_lines()]
    assert drawn == [
        [item.occupancy.fraction for item in found.settings],
        [item.fma_share for item in found.settings],
        [item.peak_share for item in found.settings],
    ]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["TM = 16", "TM = 32"]
    assert "predicted speed of 2 settings" in ax.alt and "TM = 32: occupancy" in ax.alt
