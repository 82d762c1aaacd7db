"""A kernel of our own has no port that another may take, unless its system or its folder has no room for sockets; and none of its
answers is overlooked."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import nbformat
import pytest
import zmq
import zmq.asyncio
from jupyter_client.session import Session

from helpers.front.own_kernel import Client, own_kernel

ASKED = "import ipykernel\nprint(ipykernel.get_connection_info())"


@pytest.mark.parametrize("long", [False, True])
def test_no_other_kernel_can_answer_in_its_place(tmp_path, monkeypatch, long):
    """A path that is too long for a socket leaves the ports, in place of a kernel that does not start."""
    if long:
        folder = tmp_path / ("long" * 30)
        folder.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(ASKED)])
    with own_kernel(notebook, tmp_path, timeout=60) as client:
        client.execute()
    said = json.loads(notebook.cells[0].outputs[0].text)
    assert said["transport"] == ("tcp" if long or os.name == "nt" else "ipc")
    assert not os.path.exists(os.path.dirname(said["ip"])), "nothing is left of it"


@pytest.mark.parametrize("channel", [Client.shell_channel_class.default_value, Client.iopub_channel_class.default_value])
def test_an_answer_is_found_whose_signal_was_taken_by_what_was_sent(channel):
    """libzmq signals an answer once, to whoever uses the socket next: here that is not who waits for it."""

    async def asked() -> str:
        with zmq.asyncio.Context() as ours, zmq.Context() as theirs, ours.socket(zmq.DEALER) as here, theirs.socket(zmq.DEALER) as there:
            there.connect(f"tcp://127.0.0.1:{here.bind_to_random_port('tcp://127.0.0.1')}")
            session = Session(key=b"of this test")
            waiting = asyncio.ensure_future(channel(here, session).get_msg(timeout=20))
            await asyncio.sleep(0.1)
            session.send(there, "answer")
            time.sleep(0.2)  # it comes while the loop does something else,
            assert zmq.Socket.shadow(here.underlying).events & zmq.POLLIN  # which uses the socket, as sending does
            return (await waiting)["header"]["msg_type"]

    start = time.monotonic()
    with ThreadPoolExecutor(1) as elsewhere:  # in this thread a loop may be running: a browser's, which other tests have opened
        assert elsewhere.submit(asyncio.run, asked()).result() == "answer" and time.monotonic() - start < 10


def test_who_executes_a_notebook_talks_by_these_channels(tmp_path):
    with own_kernel(nbformat.v4.new_notebook(), tmp_path) as client:
        assert client.create_kernel_manager().client_factory is Client
