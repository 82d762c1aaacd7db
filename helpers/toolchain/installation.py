"""What of the CUDA toolkit is installed, and where: the compiler, the headers, the disassembler.

NVRTC is the compiler wherever it can be loaded. Where it cannot, as on macOS, which it does not exist for, it is clang, if that is
installed. The environment variable GEMM_LADDER_COMPILER ("nvrtc" or "clang") chooses one of them.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from helpers.errors import CourseError
from helpers.interrupts import advice_for, delayed

from . import clang
from .nvrtc import Answer, Request, compile_program

CHOICE = "GEMM_LADDER_COMPILER"


@dataclass(frozen=True)
class Compiler:
    """One of the two compilers. architectures: compute capabilities, as 90 for 9.0. makes_machine_code: cubins, not only PTX."""

    name: str
    version: tuple[int, int]
    architectures: tuple[int, ...]
    makes_machine_code: bool
    compile_program: Callable[[Request], Answer]


def compiler() -> Compiler:
    """The compiler in use. Raises CourseError where there is none."""
    choice = os.environ.get(CHOICE, "")
    if choice not in ("", "nvrtc", "clang"):
        raise CourseError(f"{CHOICE}={choice} names no compiler: it is nvrtc or clang.")
    if choice == "clang" and not clang.program():
        raise CourseError(f"{CHOICE} asks for clang, which is not installed: uv sync --extra clang, or pip install ziglang.")
    if choice != "clang":
        try:
            return _nvrtc_compiler()
        except CourseError:
            if choice == "nvrtc" or not clang.program():
                raise
    return Compiler("clang", clang.VERSION, clang.ARCHITECTURES, False, clang.compile_program)


@functools.cache
def _nvrtc_compiler() -> Compiler:
    loaded = nvrtc()
    return Compiler("NVRTC", tuple(loaded.getVersion()), tuple(loaded.getSupportedArchs()), True, compile_program)


@functools.cache
def nvrtc():
    """CuPy's NVRTC binding. Raises CourseError where there is none."""
    if sys.platform == "darwin":
        raise CourseError(
            "NVIDIA publishes no CUDA compiler for macOS, and clang, which the course uses there, is not installed. "
            "Run the set-up command of the README again: it installs ziglang."
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
        compiler()
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


def include_folders() -> tuple[str, ...]:
    """Where the CUDA headers are that the compiler in use reads: none for clang, which takes them for a CUDA of its own."""
    return _include_folders() if compiler().makes_machine_code else ()


@functools.cache
def _include_folders() -> tuple[str, ...]:
    """The wheels of this environment first, then $CUDA_PATH or the toolkit whose nvcc is on the path."""
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
def own_identity(folder: Path = Path(__file__).parent) -> str:
    """Changes with every edit of this package, which is what reads a source and stores what became of it."""
    files = sorted(path for path in folder.iterdir() if path.suffix in (".py", ".cuh"))
    return hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in files)).hexdigest()


def header_identity() -> list[str]:
    """Changes when another release of the CUDA headers is installed, or other built-ins stand in for them."""
    found = [] if compiler().makes_machine_code else [clang.identity()]
    for folder in include_folders():
        for name in ("cuda_fp16.h", "cuda/std/version"):
            path = Path(folder) / name
            if path.exists():
                found.append(f"{path}:{path.stat().st_size}:{int(path.stat().st_mtime)}")
    return found
