"""Whether there is a GPU: each reason why not is a sentence."""

import re
import sys
import types

import pytest

from helpers.errors import LaunchError
from helpers.run import gpu
from helpers.run.gpu import presence

from .conftest import runtime


def no_device():
    raise RuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")


def exclusive(*_, **__):
    raise RuntimeError("cudaErrorDevicesUnavailable: CUDA-capable device(s) is/are busy or unavailable")


class Capability:
    def __init__(self, text):
        self.compute_capability = text


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"driverGetVersion": lambda: 0}, "no NVIDIA driver"),
        ({"driverGetVersion": lambda: 12080}, "knows CUDA up to 12.8.*for CUDA 13.*CUDA 12 switch"),
        ({"driverGetVersion": lambda: 13000, "getDeviceCount": no_device}, "sees no GPU"),
        ({"driverGetVersion": lambda: 13000, "getDeviceCount": lambda: 0}, "sees no GPU"),
        ({"driverGetVersion": lambda: 13000, "getDeviceCount": exclusive}, "refused to be used .*busy"),
    ],
)
def test_each_reason_is_a_sentence(monkeypatch, changes, says):
    for name, function in changes.items():
        monkeypatch.setattr(runtime, name, function)
    assert not gpu.available()
    reason = gpu.why_not()
    assert re.search(says, reason), reason
    assert reason.endswith(".") and "\n" not in reason
    with pytest.raises(LaunchError, match="on='cpu'"):
        gpu.arch()


def test_an_old_gpu_is_refused(monkeypatch):
    import cupy

    monkeypatch.setattr(runtime, "driverGetVersion", lambda: 13000)
    monkeypatch.setattr(runtime, "getDeviceCount", lambda: 1)
    monkeypatch.setattr(cupy.cuda, "Device", lambda: Capability("61"))
    monkeypatch.setattr(cupy.cuda, "Stream", lambda **_: types.SimpleNamespace(synchronize=lambda: None))
    assert "6.1" in gpu.why_not()
    presence._installed.cache_clear()
    monkeypatch.setattr(cupy.cuda, "Device", lambda: Capability("120"))
    assert gpu.available() and gpu.arch() == "sm_120"


def test_a_missing_cupy_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(sys, "platform", "linux")
    assert gpu.why_not().startswith("CuPy could not be loaded")


def test_macos_and_the_off_switch(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "macOS" in gpu.why_not()
    monkeypatch.setenv(gpu.OFF_SWITCH, "1")
    assert gpu.OFF_SWITCH in gpu.why_not()


def test_the_answer_is_cached(monkeypatch):
    asked = []
    monkeypatch.setattr(runtime, "driverGetVersion", lambda: asked.append(1) or 0)
    assert gpu.why_not() == gpu.why_not()
    assert len(asked) == 1
