"""How large the environment of this interpreter is: `python -m tests.environment_size`.

Per package what is installed, in MB (10^6 bytes), and what was downloaded for it, where `uv lock` has written the sizes of wheels down.
For the README's figures, run it in an environment that `uv sync` made in an empty folder.
"""

from __future__ import annotations

import importlib.metadata
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.tags import sys_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

from tests import ROOT

LINE = 50e6 / 8  # bytes a second on a line of 50 Mbit/s


def installed() -> dict[str, int]:
    """Package -> bytes of its files. What Python compiles from them later is not counted."""
    return {
        canonicalize_name(found.name): sum(_bytes(Path(file.locate())) for file in found.files or () if file.suffix != ".pyc")
        for found in importlib.metadata.distributions()
    }


def _bytes(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def downloaded() -> dict[str, int]:
    """Package -> bytes of the wheel of it that this interpreter takes, by uv.lock; {} where there is none."""
    lock = ROOT / "uv.lock"
    packages = tomllib.loads(lock.read_text(encoding="utf-8"))["package"] if lock.is_file() else []
    versions = {canonicalize_name(found.name): found.version for found in importlib.metadata.distributions()}
    return {package["name"]: next(_wheels(package), 0) for package in packages if versions.get(package["name"]) == package["version"]}


def _wheels(package: dict) -> Iterator[int]:
    """Bytes of the wheels that this interpreter can use, the best first."""
    order = {tag: place for place, tag in enumerate(sys_tags())}
    found = []
    for wheel in package.get("wheels", ()):
        places = [order[tag] for tag in parse_wheel_filename(wheel["url"].rpartition("/")[2])[3] if tag in order]
        if places:
            found.append((min(places), wheel["size"]))
    return (size for _, size in sorted(found))


if __name__ == "__main__":
    here, fetched = installed(), downloaded()
    for name in sorted(here, key=lambda name: -here[name])[:25]:
        print(f"{here[name] / 1e6:8.1f} MB installed {fetched.get(name, 0) / 1e6:8.1f} MB downloaded  {name}")
    print(f"{sum(here.values()) / 1e6:8.1f} MB installed {sum(fetched.values()) / 1e6:8.1f} MB downloaded  all {len(here)} packages")
    if fetched:
        print(f"{sum(fetched.values()) / LINE:.0f} s to download on a line of 50 Mbit/s")
    else:
        print("What was downloaded is not known: there is no uv.lock in the clone that names these versions (`uv lock` writes it).")
