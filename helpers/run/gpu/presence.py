"""Is there a GPU, and may we use it."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

from helpers.errors import LaunchError
from helpers.interrupts import advice_for, delayed

from . import failures
from .failures import first_line

OFF_SWITCH = "GEMM_LADDER_NO_GPU"  # set to anything: behave as if there were no GPU
OLDEST = (7, 5)  # compute capability; CUDA 13 compiles for nothing older


def available() -> bool:
    """Whether kernels can run on a GPU now."""
    return not why_not()


def why_not() -> str:
    """Why no GPU can be used, as a sentence a reader can act on; "" when one can."""
    if os.environ.get(OFF_SWITCH):
        return f"The GPU is switched off by the environment variable {OFF_SWITCH}."
    return failures.aftermath() or _installed()


@functools.cache
def _installed() -> str:
    if sys.platform == "darwin":
        return "macOS has no NVIDIA driver, so there is no GPU to use here."
    try:
        with delayed():
            import cupy
            from cupy_backends.cuda.api import runtime
    except ImportError as error:
        return f"CuPy could not be loaded ({first_line(error)}). {advice_for(error)}"
    try:
        driver = runtime.driverGetVersion()
        built = runtime.runtimeGetVersion()
    except RuntimeError as error:
        return f"The NVIDIA driver could not be asked for its version ({first_line(error)})."
    if not driver:
        return "This machine has no NVIDIA driver."
    if driver // 1000 < built // 1000:
        return (
            f"The NVIDIA driver is too old: it knows CUDA up to {version(driver)}, and this installation is for "
            f"CUDA {built // 1000}. Update the driver, or set up with the CUDA 12 switch of the README."
        )
    try:
        if not runtime.getDeviceCount():
            return "The NVIDIA driver is here, and it sees no GPU."
        device = cupy.cuda.Device()
        capability = device.compute_capability
        cupy.cuda.Stream(non_blocking=True).synchronize()  # makes the context: fails if we may not use the GPU
    except RuntimeError as error:
        if "NoDevice" in str(error):
            hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
            because = f" (CUDA_VISIBLE_DEVICES is {hidden!r})" if hidden is not None else ""
            return f"The NVIDIA driver is here, and it sees no GPU{because}."
        return f"The GPU refused to be used ({first_line(error)})."
    if (int(capability[:-1]), int(capability[-1])) < OLDEST:
        return (
            f"The GPU is too old: its compute capability is {capability[:-1]}.{capability[-1]}, "
            f"and the compiler needs {OLDEST[0]}.{OLDEST[1]} (Turing) or later."
        )
    return ""


def version(number: int) -> str:
    """CUDA's 13020 as "13.2"."""
    return f"{number // 1000}.{number % 1000 // 10}"


def need() -> Any:
    """CuPy, or LaunchError with why_not()."""
    reason = why_not()
    if reason:
        raise LaunchError(f"There is no GPU to run on: {reason} Use on='cpu', or leave `on` out.")
    import cupy

    return cupy


def arch() -> str:
    """The architecture to compile for: "sm_90". Raises LaunchError if there is no GPU."""
    cupy = need()
    return f"sm_{cupy.cuda.Device().compute_capability}"
