"""The machine counts bulk copies as an H200 does: helpers/data/bulk_h200.json, measured with Nsight Compute (see bulk_probes.py)."""

from __future__ import annotations

import json

import pytest

from tests.sim import bulk_probes as probes

RECORD = json.loads(probes.RECORD.read_text())


CUT = [
    row for row in probes.ROWS if (row.what == "multicast" and row.corner == (240, 224)) or (row.what == "bytes multicast" and row.offset)
]


@pytest.mark.parametrize("row", [row for row in probes.ROWS if row not in CUT], ids=lambda row: row.name)
def test_the_counters_are_those_of_the_hardware(row):
    run = probes.launch(row, "cpu", findings=False)
    assert {name: run.counters.get(name, 0) for name in probes.METRICS} == RECORD["rows"][row.name]


def test_the_record_is_of_these_launches():
    assert list(RECORD["rows"]) == [row.name for row in probes.ROWS]


@pytest.mark.parametrize("row", CUT, ids=lambda row: row.name)
def test_some_multicasts_have_a_few_sectors_more(row):
    """Up to an eighth on the hardware, where the tensor's edge cuts the rows of a box, or plain bytes begin within a sector."""
    run, measured = probes.launch(row, "cpu", findings=False), RECORD["rows"][row.name]
    assert {name: run.counters.get(name, 0) for name in probes.METRICS} | {probes.LOADED: measured[probes.LOADED]} == measured
    assert run.counters[probes.LOADED] < measured[probes.LOADED] <= run.counters[probes.LOADED] * 9 / 8
