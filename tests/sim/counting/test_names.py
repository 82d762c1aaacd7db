"""Metric names are spelled in one module."""

import re

from tests import ROOT

SPELLED = re.compile(r"(l1tex|smsp|sm|lts|dram|sass)__\w*[a-z]|memory_l[12]|ptx_instructions|_sectors_ideal|_op_\w+_pred_on")


def test_no_other_module_spells_a_metric():
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((ROOT / "helpers").rglob("*.py"))
        if path != ROOT / "helpers" / "sim" / "counting" / "names.py"
        for number, line in enumerate(path.read_text().split("\n"), 1)
        if SPELLED.search(line)
    ]
    assert found == []
