"""The GPU path as far as it goes without a GPU: reasons, arguments, errors, and the order samples are taken in."""

import contextlib
import re
import sys
import types

import numpy as np
import pytest

from helpers.errors import LaunchError, RunError
from helpers.run import gpu

runtime = pytest.importorskip("cupy_backends.cuda.api.runtime", reason="CuPy is not installed")


CACHED = (gpu._installed, gpu.device, gpu._stream, gpu._nvml, gpu.cublas_why_not)


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Every test asks anew, and leaves no trace."""
    for cached in CACHED:
        cached.cache_clear()
    monkeypatch.setattr(gpu, "_broken", "")
    monkeypatch.delenv(gpu.OFF_SWITCH, raising=False)
    monkeypatch.setattr(gpu._Flush, "_instance", None)
    gpu._pending.clear()
    yield
    for cached in CACHED:
        cached.cache_clear()
    gpu._pending.clear()


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
    gpu._installed.cache_clear()
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


def test_fatal_errors_say_where_to_look_and_retire_the_gpu():
    told = gpu.explain(types.SimpleNamespace(status=700), "naive")
    assert isinstance(told, RunError)
    assert "naive read or wrote memory outside" in told.message and "on='cpu'" in told.message
    assert not gpu.available() and "Restart" in gpu.why_not()


@pytest.mark.parametrize("status", [1, 2, 9, 209, 701])
def test_refusals_change_nothing(status):
    told = gpu.explain(types.SimpleNamespace(status=status), "naive")
    assert isinstance(told, LaunchError) and "not launched" in told.message
    assert gpu._broken == ""


# ------------------------------------------------------------------------------------------------- arguments


class DeviceArray(np.ndarray):
    def set(self, values):
        self[...] = values

    def get(self):
        return np.array(self)


FAKE_MEMORY = types.SimpleNamespace(empty=lambda size, dtype: np.zeros(size, dtype).view(DeviceArray))


def test_arrays_travel_there_and_back():
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(4, np.float16)
    there = gpu._OnDevice(FAKE_MEMORY, [np.int32(7), a, None, b, a])
    assert there.args[0] == 7 and there.args[2] == 0 and there.args[2].nbytes == 8
    assert there.args[1] is there.args[4], "the same array twice is one array on the device"
    there.args[1].view(np.float32)[...] += 1
    there.fetch()
    assert a.tolist() == [[1, 2, 3], [4, 5, 6]] and b.tolist() == [1, 1, 1, 1]


def test_overlapping_arrays_overlap_on_the_device():
    whole = np.zeros(8, np.float32)
    there = gpu._OnDevice(FAKE_MEMORY, [whole[:5], whole[3:], np.zeros(0, np.float32)])
    there.args[0].view(np.float32)[3] = 5
    assert there.args[1].view(np.float32)[0] == 5
    there.args[1].view(np.float32)[1] = 6
    assert there.args[0].view(np.float32)[4] == 6
    there.fetch()
    assert whole.tolist() == [0, 0, 0, 5, 6, 0, 0, 0]


def test_read_only_arrays_stay_untouched():
    frozen = np.zeros(4, np.float32)
    frozen.flags.writeable = False
    there = gpu._OnDevice(FAKE_MEMORY, [frozen])
    there.fetch()
    assert frozen.tolist() == [0, 0, 0, 0]


# ---------------------------------------------------------------------------------------------------- timing


class FakeEvent:
    """Happens as soon as somebody waits for it: the first look finds it pending, as on a busy GPU."""

    def __init__(self, gpu_clock):
        self.clock, self.looked, self.ptr = gpu_clock, 0, self

    def record(self, _stream):
        self.time, self.looked = self.clock[0], 0

    def status(self):
        self.looked += 1
        return 0 if self.looked > 1 else 600


@pytest.fixture
def fake_gpu(monkeypatch):
    """A GPU whose launches take the milliseconds they are told to; returns (clock, log of launches)."""
    clock, log = [0.0], []

    class Memory:
        def memset_async(self, *_):
            clock[0] += 0.05
            log.append("flush")

    cuda = types.SimpleNamespace(
        Device=lambda: types.SimpleNamespace(synchronize=lambda: None),
        get_elapsed_time=lambda start, stop: stop.time - start.time,
        alloc=lambda _: Memory(),
        Event=lambda: FakeEvent(clock),
        Stream=lambda **_: contextlib.nullcontext(),
    )
    fake = types.ModuleType("cupy")
    fake.cuda = cuda
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setattr(gpu, "_need", lambda: fake)
    monkeypatch.setattr(runtime, "eventQuery", lambda event: event.status())
    monkeypatch.setattr(gpu, "_cuda_errors", lambda: (ZeroDivisionError,))
    monkeypatch.setattr(gpu, "device", lambda: types.SimpleNamespace(name="fake", l2_bytes=1))
    monkeypatch.setattr(gpu, "_nvml", lambda: types.SimpleNamespace(clock_mhz=lambda: 1980.0, processes=lambda: 1, driver=lambda: "1"))

    def work(name, milliseconds):
        def once():
            clock[0] += milliseconds() if callable(milliseconds) else milliseconds
            log.append(name)

        return once

    return work, log


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
    got = gpu.noise(spread, others, late)
    assert got == "" if not says else says in got


def test_a_host_that_is_too_slow_is_noticed(fake_gpu, monkeypatch):
    work, log = fake_gpu
    monkeypatch.setattr(FakeEvent, "status", lambda self: 0)
    result = gpu.interleave({"slow": work("slow", 1.0)}, samples=5, warm_up=0)["slow"]
    assert "waited for the host" in result.noisy
    assert log.count("flush") > 100, "longer and longer delays were tried first"


def test_an_endless_kernel_ends_in_a_sentence(fake_gpu, monkeypatch):
    monkeypatch.setattr(FakeEvent, "status", lambda self: 600)
    event = FakeEvent([0.0])
    with pytest.raises(RunError, match="may never end"):
        gpu._wait(event, "spin", seconds=0.01)
    assert "still running" in gpu.why_not()
    monkeypatch.setattr(FakeEvent, "status", lambda self: 0)
    assert "still running" not in gpu.why_not()


def test_a_kernel_that_goes_wrong_is_noticed_while_waiting(fake_gpu, monkeypatch):
    monkeypatch.setattr(FakeEvent, "status", lambda self: 700)
    with pytest.raises(runtime.CUDARuntimeError) as caught:
        gpu._wait(FakeEvent([0.0]), "wild", seconds=5)
    assert "wild read or wrote memory outside" in gpu.explain(caught.value, "wild").message


def test_errors_while_timing_are_explained(fake_gpu):
    def fails():
        raise ZeroDivisionError("cudaErrorSomething")

    with pytest.raises(LaunchError, match="cudaErrorSomething"):
        gpu.interleave({"mine": fails}, warm_up=0)


def test_cublas_missing_is_a_sentence(fake_gpu, monkeypatch):
    monkeypatch.setattr(gpu, "cublas_why_not", lambda: "cuBLAS is not installed.")
    with pytest.raises(LaunchError, match="not installed"):
        gpu.cublas(1, 1, 1, 1.0, None, 1, None, 1, 0.0, None, 1)
