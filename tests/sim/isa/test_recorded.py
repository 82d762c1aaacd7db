"""Every instruction gives what an H200 gave, bit for bit: helpers/data/isa_h200.json holds the fingerprints.

The same cases run on a GPU directly in tests/gpu/test_instructions.py, which also makes the record.
"""

from __future__ import annotations

import json

import pytest

from tests import DATA
from tests.sim import isa_cases as cases

RECORD = json.loads((DATA / "isa_h200.json").read_text())


@pytest.mark.parametrize("case", cases.CASES, ids=cases.NAMES)
def test_the_machine_gives_what_the_hardware_gave(case):
    values, result = RECORD["results"][cases.key(case)]
    assert cases.digest(*cases.columns(case)) == values, "the values are not those that ran on the GPU"
    assert cases.digest(cases.without_payloads(case, cases.machine(case))) == result


def test_the_record_holds_nothing_else():
    assert RECORD["results"].keys() == {cases.key(case) for case in cases.CASES}
    assert RECORD["differences"] == {} and RECORD["not run"] == {}
    measured = [seen for kinds in RECORD["approximations"].values() for seen in kinds.values()]
    assert all(seen["largest"] <= seen["allowed"] for seen in measured)
