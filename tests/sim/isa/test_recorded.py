"""Every instruction gives what an H200 gave, bit for bit: helpers/data/isa_h200.json holds the fingerprints.

The same cases run on a GPU directly in tests/gpu/test_instructions.py, which also makes the record. An example that was added
without a GPU is named in a warning until it has run on one.

Tests of: helpers.sim.isa.halves
"""

from __future__ import annotations

import json
import warnings

import pytest

from tests import DATA
from tests.sim import isa_cases as cases

RECORD = json.loads((DATA / "isa_h200.json").read_text())


COMPARED = [(case, name) for case, name in zip(cases.CASES, cases.NAMES, strict=True) if cases.key(case) in RECORD["results"]]


@pytest.mark.parametrize("case", [case for case, _ in COMPARED], ids=[name for _, name in COMPARED])
def test_the_machine_gives_what_the_hardware_gave(case):
    values, result = RECORD["results"][cases.key(case)]
    assert cases.digest(*cases.columns(case)) == values, "the values are not those that ran on the GPU"
    assert cases.digest(cases.without_payloads(case, cases.machine(case))) == result


def test_what_was_not_yet_compared_with_hardware_is_said():
    compared = {name for _, name in COMPARED}
    waiting = [name for name in cases.NAMES if name not in compared]
    if waiting:
        warnings.warn(
            f"{len(waiting)} of {len(cases.CASES)} cases were not yet compared with hardware: {', '.join(waiting[:8])}"
            f"{', …' if len(waiting) > 8 else ''}. On a machine with a GPU, GEMM_LADDER_ISA_RECORD=helpers/data/isa_h200.json "
            "course test tests/gpu/test_instructions.py does it.",
            stacklevel=2,
        )
    assert len(compared) >= 1000, "the record went missing"


def test_the_record_holds_nothing_that_is_gone():
    assert RECORD["results"].keys() <= {cases.key(case) for case in cases.CASES}
    assert RECORD["differences"] == {} and RECORD["not run"] == {}
    measured = [seen for kinds in RECORD["approximations"].values() for seen in kinds.values()]
    assert all(seen["largest"] <= seen["allowed"] for seen in measured)
