"""A kernel that executes a notebook without JupyterLab: lessons that become slides, pages of the site, or a test."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any

from jupyter_client.asynchronous import AsyncKernelClient
from jupyter_client.channels import AsyncZMQSocketChannel
from nbclient import NotebookClient
from nbformat import NotebookNode
from traitlets import Type
from traitlets.config import Config

_LONGEST = 96  # bytes of a socket's path, of which systems take 104 or 108, less its number
_LOOK_AGAIN = 1.0  # seconds


class _Channel(AsyncZMQSocketChannel):
    """One that looks at its socket again now and then, whether it was woken or not.

    What is sent while somebody waits at the socket, as nbclient does for a widget that changes, can take away the signal that an answer
    has come; who waits for that signal alone waits for ever, with the answer in the socket.
    """

    async def get_msg(self, timeout: float | None = None) -> dict[str, Any]:  # type: ignore[override]  # as its base class overrides its own
        """The next message. Raises queue.Empty if there is none for `timeout` seconds; None: it waits."""
        end = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            left = max(0.0, end - time.monotonic())
            try:
                return await super().get_msg(min(left, _LOOK_AGAIN))
            except Empty:
                if left <= _LOOK_AGAIN:
                    raise


class Client(AsyncKernelClient):
    """jupyter_client's, of which no answer is overlooked."""

    shell_channel_class = Type(_Channel)
    iopub_channel_class = Type(_Channel)


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
        config.KernelManager.client_factory = f"{__name__}.{Client.__name__}"
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
