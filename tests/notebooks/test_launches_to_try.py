"""Launches that lesson 00 invites to try: its cell prints whichever is put in place of its own, and the cells behind it do not depend on it."""

from __future__ import annotations

import json

import numpy as np
import pytest

import helpers
from helpers.course.steps import get

LESSON = json.loads(get("start_here").notebook_path.read_text(encoding="utf-8"))
CELLS = {cell["id"]: "".join(cell["source"]) for cell in LESSON["cells"]}
OWN = "blocks, threads = 2, 64"


@pytest.mark.parametrize("tried", ["2, 64", "4, 32", "2, 48", "4, 64", "1, 96"])
def test_any_launch_is_printed_and_has_no_finding(tried, capsys):
    whoami = helpers.compile(CELLS["whoami"].split("\n", 1)[1])
    shown = []

    class Widgets:
        coalescing = staticmethod(shown.append)

    names = {"np": np, "whoami": whoami, "widgets": Widgets}
    assert OWN in CELLS["launch-whoami"]
    exec(CELLS["launch-whoami"].replace(OWN, f"blocks, threads = {tried}"), names)
    blocks, threads = (int(number) for number in tried.split(", "))
    assert len(capsys.readouterr().out.splitlines()) == blocks * -(-threads // 32)
    exec(CELLS["picture-whoami"], names)
    assert not shown[0].findings
    exec(CELLS["launch-mistake"], names)
    assert "64 times, first in thread (0, 0, 0) of block (2, 0, 0)" in capsys.readouterr().out
