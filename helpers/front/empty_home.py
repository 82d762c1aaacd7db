"""A home without progress, in which lessons are executed that others will see: they neither show what a reader did nor add to it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def empty_home(caches: Path | None) -> Iterator[dict[str, str]]:
    """The environment of a kernel whose home holds nothing and ends with the block. caches: the folder of caches that it uses."""
    with tempfile.TemporaryDirectory() as home:
        if caches is not None:
            with contextlib.suppress(OSError):  # Windows asks for a right to make links; without one each lesson compiles its kernels anew
                (Path(home) / "cache").symlink_to(caches, target_is_directory=True)
        yield {**os.environ, "GEMM_LADDER_HOME": home}
