"""The reader's predictions by their truth."""

from __future__ import annotations

from helpers.views.calibration import calibration


def test_each_prediction_stands_at_its_factor_and_the_far_ones_at_the_edge():
    ax = calibration([("naive.sectors_a", 1.0), ("naive.sectors_b", 4.0), ("coalesced.speedup", 1e6)])
    low, high = ax.get_ylim()
    points = [line.get_ydata()[0] for line in ax.lines if len(line.get_xdata()) == 1]
    assert points == [1.0, 4.0, 100.0] and low * high == 1.0 and high > 100
    assert [label.get_text() for label in ax.get_xticklabels()] == ["naive", "coalesced"]
    assert "naive.sectors_b 4" in ax.alt


def test_the_model_stands_beside_the_first_prediction_of_its_step():
    ax = calibration([("naive.sectors_a", 1.0), ("naive.sectors_b", 4.0), ("coalesced.speedup", 2.0)], {"coalesced": 0.95, "schedule": 1.1})
    squares = [line for line in ax.lines if line.get_marker() == "s"]
    assert [(list(line.get_xdata()), list(line.get_ydata())) for line in squares] == [([3], [0.95])]
    assert "The model of time, by step: coalesced 0.95." in ax.alt


def test_without_predictions_it_says_so():
    assert "No prediction" in calibration([]).alt
