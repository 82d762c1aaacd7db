"""What the GPU in use is, and what its driver's gauges say: the clock, and who else uses it."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pynvml

from helpers.toolchain.installation import compiler_version

from . import presence


@dataclass(frozen=True)
class Device:
    """The GPU in use. Versions are text such as "580.95" and "13.0"."""

    name: str
    arch: str
    sms: int
    clock_mhz: float
    l2_bytes: int
    driver: str
    cuda: str


@functools.cache
def device() -> Device:
    """What the GPU in use is. Raises LaunchError if there is none."""
    cupy = presence.need()
    from cupy_backends.cuda.api import runtime

    handle = cupy.cuda.Device()
    properties = runtime.getDeviceProperties(handle.id)
    name = properties["name"]
    return Device(
        name=name.decode() if isinstance(name, bytes) else name,
        arch=f"sm_{handle.compute_capability}",
        sms=properties["multiProcessorCount"],
        clock_mhz=handle.attributes.get("ClockRate", 0) / 1000,
        l2_bytes=properties["l2CacheSize"],
        driver=driver_version() or "unknown",
        cuda=presence.version(runtime.driverGetVersion()),
    )


def multiprocessors() -> int:
    """How many the GPU in use has. Raises LaunchError if there is none."""
    return device().sms


def provenance(here: Device) -> dict[str, str]:
    """On which GPU and with what something is recorded now, and on which day (UTC): what stands in every recorded row or file."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "device": here.name,
        "driver": here.driver,
        "cuda": here.cuda,
        "compiler": "NVRTC {}.{}".format(*compiler_version()),
    }


@functools.cache
def _nvml() -> Any:
    """NVML, the management library that comes with the driver, ready to be asked; None where there is none."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


@functools.cache
def _handle() -> Any:
    """NVML's name for the GPU in use."""
    from cupy_backends.cuda.api import runtime

    return pynvml.nvmlDeviceGetHandleByPciBusId(runtime.deviceGetPCIBusId(runtime.getDevice()))


def _asked(question: Callable[[Any], Any]) -> Any:
    """NVML's answer, or None where it is missing or does not say."""
    nvml = _nvml()
    try:
        return None if nvml is None else question(nvml)
    except pynvml.NVMLError:
        return None


def driver_version() -> str | None:
    """The driver's version, such as "580.95.05"."""
    return _asked(lambda nvml: nvml.nvmlSystemGetDriverVersion())


def clock_mhz() -> float | None:
    """The SM clock at this moment."""
    return _asked(lambda nvml: float(nvml.nvmlDeviceGetClockInfo(_handle(), nvml.NVML_CLOCK_SM)))


def processes() -> int | None:
    """How many processes hold a compute context on the GPU, this one included."""
    return _asked(lambda nvml: len(nvml.nvmlDeviceGetComputeRunningProcesses(_handle())))
