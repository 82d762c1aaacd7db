"""A GPU that is asked about anew in every test, and one that is played by the clock of a test."""

import contextlib
import sys
import types

import pytest

from helpers.run.gpu import cublas_gemm, event_timing, failures, presence, properties

runtime = pytest.importorskip("cupy_backends.cuda.api.runtime", reason="CuPy is not installed")

CACHED = (presence._installed, properties.device, properties._nvml, event_timing.own_stream, cublas_gemm.cublas_why_not)


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Every test asks anew, and leaves no trace."""
    for cached in CACHED:
        cached.cache_clear()
    monkeypatch.setattr(failures, "_broken", "")
    monkeypatch.delenv(presence.OFF_SWITCH, raising=False)
    monkeypatch.setattr(event_timing.Flush, "_instance", None)
    failures._pending.clear()
    yield
    for cached in CACHED:
        cached.cache_clear()
    failures._pending.clear()


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
    monkeypatch.setattr(presence, "need", lambda: fake)
    monkeypatch.setattr(runtime, "eventQuery", lambda event: event.status())
    monkeypatch.setattr(failures, "cuda_errors", lambda: (ZeroDivisionError,))
    monkeypatch.setattr(properties, "device", lambda: types.SimpleNamespace(name="fake", l2_bytes=1))
    monkeypatch.setattr(properties, "clock_mhz", lambda: 1980.0)
    monkeypatch.setattr(properties, "processes", lambda: 1)

    def work(name, milliseconds):
        def once():
            clock[0] += milliseconds() if callable(milliseconds) else milliseconds
            log.append(name)

        return once

    return work, log
