"""The machine counts bulk copies as an H200 does: helpers/data/bulk_h200.json, measured with Nsight Compute (see bulk_probes.py)."""

from __future__ import annotations

import json

import bulk_probes as probes
import pytest

RECORD = json.loads(probes.RECORD.read_text())
MEASURED = [row for row in probes.ROWS if row.name in RECORD["rows"]]


@pytest.mark.parametrize("row", MEASURED, ids=lambda row: row.name)
def test_the_counters_are_those_of_the_hardware(row):
    run = probes.launch(row, "cpu", findings=False)
    assert {name: run.counters.get(name, 0) for name in probes.METRICS} == RECORD["rows"][row.name]


def test_what_is_counted_was_measured():
    """Sectors of plain stores and of plain reductions were not: the machine does not count them."""
    assert {row.what for row in MEASURED} == {"load", "store", "reduce", "prefetch", "bytes in"}
    for row in set(probes.ROWS) - set(MEASURED):
        if row.what in ("bytes out", "bytes reduced"):
            counters = probes.launch(row, "cpu", findings=False).counters
            assert not any(counters.get(probes.STORED.format(what=what)) for what in ("st", "red"))
