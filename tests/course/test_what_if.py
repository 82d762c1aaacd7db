"""What if: each change moves the time the way it must, and what cannot be answered is said."""

import dataclasses
import functools

import pytest

from helpers import Problem, gemm, what_if
from helpers.course import steps
from helpers.course.what_if import CHANGES
from helpers.errors import CourseError
from helpers.model.cycles.chip import chip, figures
from helpers.model.hardware import gpu as gpu_of
from helpers.run.kernel import compile as compile_kernel
from tests.course.tiny_kernel import SOURCE


@functools.cache
def counted(slug):
    step = steps.get(slug)
    return gemm.count(compile_kernel(step.kernel_path.read_text(encoding="utf-8"), entry=step.entry), Problem(512, 512, 512))


@pytest.mark.slow
def test_a_loop_of_the_schedule_waits_for_its_code_and_one_that_loads_by_itself_for_memory():
    chosen = ("device memory without latency", "instruction cache for any loop")
    waits, streams = what_if(counted("vectorized"), *chosen), what_if(counted("double_buffer"), *chosen)
    assert waits.gain("device memory without latency") > 0.05 > abs(waits.gain("instruction cache for any loop"))
    assert streams.gain("instruction cache for any loop") > 0.05 > abs(streams.gain("device memory without latency"))
    text = str(streams)
    assert text.index("instruction cache") < text.index("device memory"), "the most useful change comes first"
    assert "Predicted for H200 SXM" in text and "as it is" in text


@pytest.mark.slow
def test_a_change_that_is_none_changes_nothing():
    run = counted("vectorized")
    same = {"barrier.release": figures()["barrier"]["release"]}
    assert run.predict(what_if=same).milliseconds == pytest.approx(run.predict().milliseconds, rel=1e-12)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"latency.l3": 1}, "do you mean 'latency.l2'"),
        ({"speed of light": 1}, "The model has no figure 'speed of light'. It has: latency.shared"),
        ({"latency.l2": -1}, "a number of at least 0"),
        ({"latency.l2": float("nan")}, "a number of at least 0"),
        ({"latency.l2": "0"}, "a number of at least 0"),
    ],
)
def test_a_figure_that_cannot_be_is_refused(wrong, said):
    with pytest.raises(CourseError, match=said.replace("'", ".")):
        compiled = compile_kernel(SOURCE)
        gemm.count(compiled, Problem(64, 64, 16)).predict(what_if=wrong)


def test_every_change_is_of_figures_that_there_are():
    for changed in CHANGES.values():
        assert dict(chip(gpu_of("H200 SXM"), changed).changed) == dict(changed)


def test_a_change_that_there_is_not_is_refused():
    with pytest.raises(CourseError, match="There is no change 'no banks'. There are: registers without banks"):
        what_if(counted("vectorized"), "no banks")


@pytest.mark.slow
def test_where_the_way_is_not_known_no_change_is_guessed(monkeypatch):
    run = counted("vectorized")
    unknown = dataclasses.replace(run.predict(), from_counters="a branch depends on data")
    monkeypatch.setattr(type(run), "predict", lambda *_: unknown)
    with pytest.raises(CourseError, match="not known, since a branch depends on data"):
        what_if(run)


@pytest.mark.parametrize("given", [None, 3, "naive"])
def test_what_is_no_run_is_a_sentence(given):
    with pytest.raises(CourseError, match="what_if wants a run"):
        what_if(given)
