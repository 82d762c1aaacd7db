"""The comparison with compute-sanitizer: recorded data, corpus and the README's table agree."""

from __future__ import annotations

import json

import pytest

from tests.sim import sanitizer
from tests.sim.bug_corpus import corpus


@pytest.fixture(scope="module")
def data():
    return json.loads(sanitizer.DATA.read_text(encoding="utf-8"))


def test_the_data_are_about_this_corpus(data):
    assert data["machine"] == sanitizer.machine_says()
    missing = {bug.file for bug in corpus() if bug.name not in data["bugs"]}
    assert missing == {"endless.cu", "launches.cu", "mbarriers.cu", "named_barriers.cu"}


def test_the_lines_the_tools_named_are_marked_in_the_corpus(data):
    """If a kernel is edited so that lines move, the tools have to be asked again."""
    for bug in corpus():
        marked = {n for _, *lines in bug.expected | bug.missed for n in lines if n}
        marked |= {bug.source.split("\n").index(text) + 1 for text in bug.source.split("\n") if "// @" in text}
        for tool, said in data["bugs"].get(bug.name, {}).items():
            named = {n for _, *lines in said["bug"] for n in lines if n}
            assert not named - marked, (bug.name, tool, named, marked)


def test_the_table_is_the_data(data):
    text = sanitizer.README.read_text(encoding="utf-8")
    assert text.partition(sanitizer.BEGIN)[2].partition(sanitizer.END)[0].strip() == sanitizer.table(data)


def test_output_of_the_tools_is_read():
    text = """LAUNCH twin
DONE twin
LAUNCH bug
========= Invalid __global__ read of size 16 bytes
=========     at rows(int)+0xf0 in cell.cu:8
=========     by thread (1,0,0) in block (0,0,0)
=========     Access to 0x7f0e808005f4 is misaligned
=========
========= Error: Race reported between Write access at tile+0xd0 in cell.cu:6
=========     and Read access at tile+0xe0 in cell.cu:10 [128 hazards]
=========
========= Barrier error detected. Invalid arguments.
=========     at masked+0x70 in cell.cu:119
========= Barrier error detected. Missing wait.
=========     at stages+0x4d0 in cell.cu:253
=========     by thread (0,0,0) in block (0,0,0)
=========
========= Out-of-range shared or local address
=========     at tile+0x210 in cell.cu:355
=========
========= ERROR SUMMARY: 5 errors
EXIT 0
"""
    said = sanitizer.parse(text)
    assert said == {
        "twin": [],
        "bug": [
            ["misaligned", 8, None],
            ["race", 6, 10],
            ["divergent-barrier", 119, None],
            ["missing-wait", 253, None],
            ["out-of-bounds", 355, None],
        ],
        "ended": True,
    }
