"""What of the CUDA toolkit is installed, and where: the compiler, the headers, the disassembler."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from pathlib import Path

from helpers.errors import CourseError
from helpers.interrupts import advice_for, delayed


@functools.cache
def nvrtc():
    """CuPy's NVRTC binding. Raises CourseError where there is none."""
    if sys.platform == "darwin":
        raise CourseError(
            "NVIDIA publishes no CUDA compiler for macOS, so kernels cannot be compiled on this machine. "
            "The lessons can be read here; to run them, open the course on Linux, on Windows, or on a remote Jupyter server."
        )
    try:
        with delayed():
            from cupy.cuda import nvrtc
    except ImportError as error:
        raise CourseError(f"The CUDA compiler could not be loaded ({error}). {advice_for(error)}") from error
    try:
        nvrtc.getVersion()
    except (RuntimeError, OSError, AttributeError) as error:
        raise CourseError(
            f"CuPy is here but NVRTC, the CUDA compiler, is not ({error}). "
            "Run the set-up command of the README again: it installs nvidia-cuda-nvrtc."
        ) from error
    return nvrtc


def compiler_version() -> tuple[int, int]:
    """NVRTC's (major, minor). Raises CourseError if it is not installed."""
    return nvrtc().getVersion()


def why_not() -> str:
    """Why kernels cannot be compiled on this machine, as a sentence; '' when they can."""
    try:
        nvrtc()
    except CourseError as error:
        return error.message
    return ""


@functools.cache
def _nvidia_folders() -> tuple[Path, ...]:
    """Folders of the nvidia wheels (site-packages/nvidia/*)."""
    try:
        import nvidia
    except ImportError:
        return ()
    return tuple(folder for root in nvidia.__path__ for folder in sorted(Path(root).iterdir()) if folder.is_dir())


@functools.cache
def include_folders() -> tuple[str, ...]:
    """Where the CUDA headers are: the wheels of this environment first, then $CUDA_PATH or the toolkit whose nvcc is on the path."""
    candidates = [folder / "include" for folder in _nvidia_folders()]
    nvcc = shutil.which("nvcc")
    if os.environ.get("CUDA_PATH"):
        candidates.append(Path(os.environ["CUDA_PATH"]) / "include")
    elif nvcc:
        candidates.append(Path(nvcc).resolve().parents[1] / "include")
    found = []
    for folder in candidates:
        if (folder / "cccl").is_dir():
            found.append(str(folder / "cccl"))
        if (folder / "cuda_fp16.h").exists() or (folder / "crt").is_dir() or (folder / "cuda").is_dir():
            found.append(str(folder))
    return tuple(found)


@functools.cache
def disassembler() -> str | None:
    """Path of nvdisasm, or None."""
    name = "nvdisasm.exe" if sys.platform == "win32" else "nvdisasm"
    places = [folder / "bin" / name for folder in _nvidia_folders()]
    places += [Path(folder) / name for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    return next((str(place) for place in places if place.is_file()), None)


@functools.cache
def header_identity() -> list[str]:
    """Changes when another release of the CUDA headers is installed."""
    found = []
    for folder in include_folders():
        for name in ("cuda_fp16.h", "cuda/std/version"):
            path = Path(folder) / name
            if path.exists():
                found.append(f"{path}:{path.stat().st_size}:{int(path.stat().st_mtime)}")
    return found
