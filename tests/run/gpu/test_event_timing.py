"""The order samples are taken in, and what makes a figure doubtful."""

import pytest

from helpers.errors import LaunchError
from helpers.run import gpu
from helpers.run.gpu.event_timing import noise

from .conftest import FakeEvent


def test_long_launches_are_timed_one_by_one_and_in_turn(fake_gpu):
    work, log = fake_gpu
    result = gpu.interleave({"mine": work("mine", 3.0), "cublas": work("cublas", 1.0)}, samples=8, warm_up=0)
    assert result["mine"].milliseconds == pytest.approx(3.0) and result["mine"].samples == 8
    assert result["cublas"].milliseconds == pytest.approx(1.0)
    assert "one launch" in result["mine"].method and result["mine"].noisy == ""
    assert result["mine"].clock_mhz == 1980.0
    launches = [name for name in log if name != "flush"][4:20]
    assert launches == ["mine", "cublas", "cublas", "mine"] * 4, "each round takes both, in alternating order"


def test_short_launches_are_timed_in_batches_that_say_so(fake_gpu):
    work, _ = fake_gpu
    result = gpu.interleave({"tiny": work("tiny", 0.01)}, samples=6, warm_up=0)["tiny"]
    assert result.milliseconds == pytest.approx(0.01)
    assert "batch of 20 launches" in result.method


def test_a_shaky_figure_is_flagged(fake_gpu):
    work, _ = fake_gpu
    durations = iter([1.0, 1.0] + [1.0, 2.0, 1.5, 1.2] * 100)
    result = gpu.interleave({"shaky": work("shaky", lambda: next(durations))}, samples=12, warm_up=0)["shaky"]
    assert result.spread > 0.2 and "spread" in result.noisy


@pytest.mark.parametrize(
    ("spread", "others", "late", "says"),
    [
        (0.0, 0, 0, ""),
        (0.0, 3, 0, ""),
        (0.02, 1, 0, "1 other program on"),
        (0.2, 0, 0, "20%"),
        (0, 0, 2, "waited for the host"),
    ],
)
def test_noise(spread, others, late, says):
    got = noise(spread, others, late)
    assert got == "" if not says else says in got


def test_a_host_that_is_too_slow_is_noticed(fake_gpu, monkeypatch):
    work, log = fake_gpu
    monkeypatch.setattr(FakeEvent, "status", lambda self: 0)
    result = gpu.interleave({"slow": work("slow", 1.0)}, samples=5, warm_up=0)["slow"]
    assert "waited for the host" in result.noisy
    assert log.count("flush") > 100, "longer and longer delays were tried first"


def test_errors_while_timing_are_explained(fake_gpu):
    def fails():
        raise ZeroDivisionError("cudaErrorSomething")

    with pytest.raises(LaunchError, match="cudaErrorSomething"):
        gpu.interleave({"mine": fails}, warm_up=0)
