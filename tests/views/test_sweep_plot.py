"""The picture of a sweep shows the numbers of the sweep."""

from __future__ import annotations

import pytest

from helpers import views
from helpers.course.steps import get
from helpers.course.sweep import sweep


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_setting_that_failed_is_named_and_not_shown():
    source = get("thread_tile_1d").kernel_path.read_text(encoding="utf-8")
    ax = views.sweep(sweep(source, [{"TM": 16}, {"TM": 48}, {"TM": 32}], size=64))
    assert [label.get_text() for label in ax.get_xticklabels()] == ["TM = 16", "TM = 32"]
    assert "not shown: TM = 48 (not compiled)" in ax.alt
    assert any("not shown: TM = 48 (not compiled)" in note.get_text().replace("\n", " ") for note in ax.texts)


@pytest.mark.slow
def test_no_number_stands_on_another_point():
    """The lesson's own sweep: its last setting has its three points close together."""
    source = get("thread_tile_1d").kernel_path.read_text(encoding="utf-8")
    found = sweep(source, [{"BM": 16, "BN": 16, "TM": tm} for tm in (1, 2, 4, 8, 16)], gpu_name="RTX 3090")
    ax = views.sweep(found)
    ax.figure.canvas.draw()
    marks = [ax.transData.transform(point) for line in ax.get_lines() for point in line.get_xydata()]
    numbers = [note for note in ax.texts if note.get_text().isdigit()]
    assert len(numbers) == len(marks) == 15
    radius = 0.5 * ax.get_lines()[0].get_markersize() * ax.figure.dpi / 72
    for number in numbers:
        box = number.get_window_extent().padded(radius)
        assert not [mark for mark in marks if box.contains(*mark)], f"{number.get_text()} covers a point"
