"""The machine counts bulk copies as an H200 does: helpers/data/bulk_h200.json, measured with Nsight Compute (see bulk_probes.py)."""

from __future__ import annotations

import json

import bulk_probes as probes
import pytest

RECORD = json.loads(probes.RECORD.read_text())


@pytest.mark.parametrize("row", probes.ROWS, ids=lambda row: row.name)
def test_the_counters_are_those_of_the_hardware(row):
    run = probes.launch(row, "cpu", findings=False)
    assert {name: run.counters.get(name, 0) for name in probes.METRICS} == RECORD["rows"][row.name]


def test_the_record_is_of_these_launches():
    assert list(RECORD["rows"]) == [row.name for row in probes.ROWS]
