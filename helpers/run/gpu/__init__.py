"""The GPU path: is there one and may we use it, launching a kernel through CuPy, and timing that can be trusted.

Importing this package needs neither CuPy nor a GPU. Everything that can go wrong on a GPU ends in one sentence: before a
launch as `why_not()`, during one as a `RunError`.
"""

from .cublas_gemm import cublas, cublas_refuses, cublas_why_not
from .cublas_lt import cublas_of_8_bits, cublas_with_factors
from .event_timing import Timing, interleave
from .failures import explain
from .launching import launch, launcher, run_once
from .presence import OFF_SWITCH, arch, available, why_not
from .properties import Device, device, multiprocessors, provenance
from .transfers import all_to_host, copy_back, download, is_device_array, upload

__all__ = [
    "OFF_SWITCH", "Device", "Timing", "all_to_host", "arch", "available", "copy_back", "cublas", "cublas_of_8_bits", "cublas_refuses",
    "cublas_why_not", "cublas_with_factors", "device", "download", "explain", "interleave", "is_device_array", "launch", "launcher",
    "multiprocessors", "provenance", "run_once", "upload", "why_not",
]  # fmt: skip
