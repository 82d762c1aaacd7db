"""What NVRTC made of one kernel, and its machine code as text. Both are kept on disk, see `cache.py`."""

from __future__ import annotations

import base64
import functools
import json
import subprocess
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

from helpers.errors import CourseError
from helpers.sim.code.lines import FILENAME

from . import cache, installation


@dataclass(frozen=True)
class Parameter:
    """One kernel parameter. `pointer_to` is the C type pointed to without const, or None for scalars and structs."""

    name: str
    ptx_type: str
    pointer_to: str | None
    const: bool
    size: int


@dataclass(frozen=True)
class Compiled:
    """What NVRTC made of one kernel. Sizes are in bytes; registers are per thread."""

    source: str
    entry: str
    symbol: str
    arch: str
    options: tuple[str, ...]
    ptx: str
    cubin: bytes
    log: str = field(compare=False)  # it carries the compile time
    registers: int
    shared_bytes: int
    local_bytes: int
    spill_stores: int
    spill_loads: int
    parameters: tuple[Parameter, ...]
    constants: dict[str, tuple[int, ...]]
    warnings: tuple[str, ...] = ()
    filename: str = FILENAME
    requested: str = ""
    key: str = field(default="", compare=False)

    @functools.cached_property
    def sass(self) -> str:
        """The machine code as `nvdisasm -c -gp` prints it, with its PTX lines.

        Raises CourseError if the disassembler is not installed.
        """
        return _disassemble(self)


def _disassemble(compiled: Compiled) -> str:
    tool = installation.disassembler()
    if tool is None:
        raise CourseError("nvdisasm is not installed, so there is no SASS to show. Run the set-up command of the README again.")
    if not compiled.cubin:
        raise CourseError(f"There is no machine code for {compiled.arch}: compile for a real architecture such as sm_90.")
    kept = cache.path(compiled.key, ".sass")
    if kept is not None and kept.is_file():
        return kept.read_text()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(compiled.cubin)
        result = subprocess.run([tool, "-c", "-gp", str(path)], capture_output=True, text=True, timeout=60, check=False)
    if result.returncode:
        raise CourseError(f"nvdisasm could not read the machine code: {result.stderr.strip()}")
    if kept is not None:
        cache.write(kept, result.stdout.encode())
    return result.stdout


def load(key: str) -> Compiled | None:
    """The compilation of this key that was saved, or None."""
    path = cache.path(key, ".json")
    if path is None or not path.is_file():
        return None
    try:
        entry = json.loads(path.read_text())
        entry["cubin"] = base64.b64decode(entry["cubin"])
        entry["parameters"] = tuple(Parameter(**item) for item in entry["parameters"])
        entry["constants"] = {name: tuple(values) for name, values in entry["constants"].items()}
        entry["options"] = tuple(entry["options"])
        entry["warnings"] = tuple(entry["warnings"])
        return Compiled(**entry)
    except (OSError, ValueError, KeyError, TypeError):  # a damaged entry is compiled again
        return None


def save(compiled: Compiled) -> None:
    """Keep a compilation under its key."""
    path = cache.path(compiled.key, ".json")
    if path is not None:
        cache.write(path, json.dumps({**asdict(compiled), "cubin": base64.b64encode(compiled.cubin).decode()}).encode())
