"""A kernel that executes a notebook without JupyterLab: lessons that become slides, pages of the site, or a test."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nbclient import NotebookClient
from nbformat import NotebookNode
from traitlets.config import Config

_LONGEST = 96  # bytes of a socket's path, of which systems take 104 or 108, less its number


@contextlib.contextmanager
def own_kernel(
    notebook: NotebookNode, folder: Path, client: type[NotebookClient] = NotebookClient, **options: Any
) -> Iterator[NotebookClient]:
    """What executes `notebook` in `folder`. options: nbclient's.

    It talks to its kernel through files of its own, where the system has such sockets. Of ports, jupyter_client chooses ones that are
    free at that moment: another kernel that starts in the same second may have the same, and who waits for an answer then waits for ever.
    """
    with tempfile.TemporaryDirectory(prefix="kernel") as sockets:
        config = Config()
        path = os.path.join(sockets, "k")
        if os.name != "nt" and len(os.fsencode(path)) <= _LONGEST:
            config.KernelManager.transport, config.KernelManager.ip = "ipc", path
        yield client(
            notebook,
            kernel_name="python3",
            resources={"metadata": {"path": str(folder)}},
            extra_arguments=["--IPKernelApp.log_level=ERROR"],  # it warns of every TCP connection, on a machine's own as well
            config=config,
            **options,
        )
