"""The files with which a browser runs the machine: Pyodide, NumPy, and the part of the course that needs nothing else."""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
import tomllib
import zipfile
from pathlib import Path

from helpers.errors import CourseError
from helpers.files import write_whole

HELPERS = Path(__file__).resolve().parents[2]
_STATED = Path(__file__).with_name("pyodide.toml")
# What helpers.sim imports of the rest.
_MODULES = ("__init__.py", "arguments.py", "errors.py", "interrupts.py", "files.py", "paths.py", "cache.py")
# The machine asks whether there is native code; there is not.
_NATIVE = ("__init__.py", "engine.py", "declined.py", "offsets.py", "sums.py")


def found(folder: Path | None = None) -> Path | None:
    """Where Pyodide's files are: `folder`, or the package of the extra `site`; None without either.

    Raises CourseError for a folder that lacks one of them.
    """
    stated = tomllib.loads(_STATED.read_text(encoding="utf-8"))
    if folder is not None:
        for name in stated["files"]:
            if not (folder / name).is_file():
                raise CourseError(f"There is no {name} in {folder}: it is no folder of Pyodide {stated['version']}.")
        return folder
    try:
        installed = importlib.metadata.distribution(stated["package"])
    except importlib.metadata.PackageNotFoundError:
        return None
    return Path(str(installed.locate_file(stated["folder"])))


def write(source: Path, target: Path) -> int:
    """Put all of it into `target`. Returns how many bytes that are. Raises CourseError for a file that is missing or another."""
    stated = tomllib.loads(_STATED.read_text(encoding="utf-8"))
    files = {}
    for name, wanted in stated["files"].items():
        try:
            files[name] = (source / name).read_bytes()
        except OSError as error:
            raise CourseError(
                f"{source / name} cannot be read ({error.strerror}): it is no folder of Pyodide {stated['version']}."
            ) from None
        if hashlib.sha256(files[name]).hexdigest() != wanted:
            raise CourseError(f"{source / name} is not what Pyodide {stated['version']} has under that name, so it is not published.")
    wheel = next(name for name in files if name.startswith("numpy"))
    numpy = {
        "name": "numpy", "version": wheel.split("-")[1], "file_name": wheel, "sha256": stated["files"][wheel], "depends": [],
        "imports": ["numpy"], "install_dir": "site", "package_type": "package", "unvendored_tests": True,
    }  # fmt: skip
    files["pyodide-lock.json"] = json.dumps({"info": stated["info"], "packages": {"numpy": numpy}}).encode()
    files["LICENCES.txt"] = stated["licences"].encode()
    files["machine.zip"] = machine()
    for name, data in files.items():
        write_whole(target / name, data, durable=False)
    return sum(map(len, files.values()))


def machine() -> bytes:
    """A zip of the SIMT machine and of `answer`, to be unpacked where Python finds it."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in _MODULES:
            archive.writestr(_entry(f"helpers/{name}"), (HELPERS / name).read_bytes())
        for path in sorted((HELPERS / "sim").rglob("*.py")):
            if path.parent.name != "native" or path.name in _NATIVE:
                archive.writestr(_entry(path.relative_to(HELPERS.parent).as_posix()), path.read_bytes())
        archive.writestr(_entry("answer.py"), Path(__file__).with_name("answer.py").read_bytes())
    return packed.getvalue()


def _entry(name: str) -> zipfile.ZipInfo:
    """An entry whose bytes are the same whenever it is made."""
    made = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
    made.compress_type = zipfile.ZIP_DEFLATED
    return made
