"""Make Google Colab ready for a lesson: `%run` by the first cell of each notebook that `course colab` writes.

Colab's own kernel and widgets stay as they are, because its page talks to them; what the course needs besides goes into a folder that
Python looks into first. Which CUDA the packages are for is chosen by what the driver knows. Needs nothing but Python's own library.
"""

import ctypes
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

COURSE = Path(__file__).resolve().parents[1]
PACKAGES = COURSE.parent / "gemm-ladder-packages"
# What the page of Colab has its own parts for, or what only `course lab`, `site` and `slides` need.
LEFT_OUT = {"jupyterlab", "ipykernel", "ipywidgets", "nbformat", "nbconvert", "latex2mathml"}
FIRST = ("numpy", "matplotlib")  # imported before, in another version, they would stay


def cuda_group(driver_version: int | None) -> str:
    """The extra of pyproject.toml for a driver that knows CUDA up to this version (12080 is 12.8); None: no driver, and so no GPU."""
    return "cuda12" if driver_version is not None and driver_version < 13000 else "cuda13"


def driver_version() -> int | None:
    """The newest CUDA that the NVIDIA driver knows, as 1000 major + 10 minor; None without a driver that answers."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    found = ctypes.c_int()
    return found.value if driver.cuDriverGetVersion(ctypes.byref(found)) == 0 else None


def requirements(group: str) -> list[str]:
    """What to install: the pins of pyproject.toml without what Colab has its own of, with those of the group."""
    project = tomllib.loads((COURSE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"][group]]
    return [pin for pin in needed if re.split(r"[^a-zA-Z0-9_.-]", pin, maxsplit=1)[0] not in LEFT_OUT]


def install(group: str) -> str:
    """Install into PACKAGES, once, and let Python and its child processes look there first. What a reader has to know."""
    done = PACKAGES / f".{group}"
    if not done.exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target", str(PACKAGES), *requirements(group)]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        if said.returncode:
            return f"The course's packages could not be installed. Run this cell again. pip said:\n{said.stderr[-1500:]}"
        done.touch()
    folders = [str(PACKAGES), str(COURSE)]
    sys.path[:0] = [folder for folder in folders if folder not in sys.path]
    os.environ["PYTHONPATH"] = os.pathsep.join([*folders, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    libraries = sorted(PACKAGES.glob("nvidia/*/lib/libnvrtc.so.*"))
    for library in libraries:  # CuPy looks into Python's own folders, and for what is loaded; the compiler's process reads the variable
        ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    places = [str(library.parent) for library in libraries]
    os.environ["LD_LIBRARY_PATH"] = os.pathsep.join([*places, os.environ.get("LD_LIBRARY_PATH", "")]).rstrip(os.pathsep)
    early = [name for name in FIRST if name in sys.modules and not str(sys.modules[name].__file__).startswith(str(PACKAGES))]
    if early:
        return f"{' and '.join(early)} were in use already: choose Runtime, Restart session, and run this cell again."
    return "The course is ready: go on with the next cell."


def main() -> None:
    driver = driver_version()
    group = cuda_group(driver)
    where = "No GPU here: the SIMT machine runs the kernels." if driver is None else f"A GPU whose driver knows CUDA {driver // 1000}."
    print(where, install(group))


if __name__ == "__main__":
    main()
