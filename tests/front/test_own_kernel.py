"""A kernel of our own has no port that another may take, unless its system or its folder has no room for sockets."""

from __future__ import annotations

import json
import os
import tempfile

import nbformat
import pytest

from helpers.front.own_kernel import own_kernel

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
