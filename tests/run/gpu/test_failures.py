"""CUDA's errors as sentences, and kernels that do not end."""

import types

import pytest

from helpers.errors import LaunchError, RunError
from helpers.run import gpu
from helpers.run.gpu import failures

from .conftest import FakeEvent, runtime


def test_fatal_errors_say_where_to_look_and_retire_the_gpu():
    told = gpu.explain(types.SimpleNamespace(status=700), "naive")
    assert isinstance(told, RunError)
    assert "naive read or wrote memory outside" in told.message and "on='cpu'" in told.message
    assert not gpu.available() and "Restart" in gpu.why_not()


@pytest.mark.parametrize("status", [1, 2, 9, 209, 701])
def test_refusals_change_nothing(status):
    told = gpu.explain(types.SimpleNamespace(status=status), "naive")
    assert isinstance(told, LaunchError) and "not launched" in told.message
    assert failures._broken == ""


def test_an_endless_kernel_ends_in_a_sentence(fake_gpu, monkeypatch):
    monkeypatch.setattr(FakeEvent, "status", lambda self: 600)
    event = FakeEvent([0.0])
    with pytest.raises(RunError, match="may never end"):
        failures.wait(event, "spin", seconds=0.01)
    assert "still running" in gpu.why_not()
    monkeypatch.setattr(FakeEvent, "status", lambda self: 0)
    assert "still running" not in gpu.why_not()


def test_a_kernel_that_goes_wrong_is_noticed_while_waiting(fake_gpu, monkeypatch):
    monkeypatch.setattr(FakeEvent, "status", lambda self: 700)
    with pytest.raises(runtime.CUDARuntimeError) as caught:
        failures.wait(FakeEvent([0.0]), "wild", seconds=5)
    assert "wild read or wrote memory outside" in gpu.explain(caught.value, "wild").message
