"""Runs of parts of the tables take every case together, and every other test each."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests import cases
from tests.cases import ROOT, Part

TESTS = [
    "tests/a.py::test_alone",
    *(f"tests/a.py::test_table[{case}]" for case in range(10)),
    *(f"tests/b.py::test_table[{case}]" for case in "xyz"),
    "tests/b.py::Several::test_few[a[0]]",
]


def test_every_part_has_every_test_that_is_no_case_and_some_of_each_table():
    taken = [[test for test, take in zip(TESTS, Part(f"{which}/4").takes(TESTS), strict=True) if take] for which in range(1, 5)]
    for part in taken:
        tables = [test.partition("[")[0] for test in part]
        assert set(tables) == {test.partition("[")[0] for test in TESTS}
        assert tables.count("tests/a.py::test_table") in (2, 3)
        assert tables.count("tests/b.py::test_table") == 1
    assert {test for part in taken for test in part} == set(TESTS)
    assert sorted(test for part in taken for test in part if "a.py::test_table" in test) == sorted(TESTS[1:11]), "a case in two parts"


def test_what_is_slow_is_one_table():
    slow = {"tests/a.py::test_alone", *(test for test in TESTS if "b.py::test_table" in test)}
    taken = [[test for test, take in zip(TESTS, Part(f"{which}/4").takes(TESTS, slow), strict=True) if take] for which in range(1, 5)]
    assert sorted(test for part in taken for test in part if test in slow) == sorted(slow), "one in each part, and none twice"
    assert all(len(slow.intersection(part)) == 1 for part in taken)
    assert [[test for test in part if test not in slow] for part in taken] == [
        [test for test, take in zip(TESTS, Part(f"{which}/4").takes(TESTS), strict=True) if take and test not in slow]
        for which in range(1, 5)
    ]  # nothing else is taken or left because of them


def test_all_is_one_part():
    assert all(Part("1/1").takes(TESTS))


def test_each_commit_takes_the_next_part(monkeypatch):
    parts = []
    for count in range(100, 108):
        monkeypatch.setattr(cases, "_turn", lambda count=count: count)
        parts.append(str(Part("next/4")))
    assert parts == ["1/4", "2/4", "3/4", "4/4"] * 2


@pytest.mark.parametrize("said", ["0/4", "5/4", "2", "next", "next/0", "/4", "-1/4", "two/4", "2/4/4"])
def test_a_part_that_is_none_is_told(said):
    with pytest.raises(ValueError, match=f"--cases {said}: a part is `1/4` to `4/4`"):
        Part(said)


def test_pytest_takes_the_part_and_says_so():
    command = [sys.executable, "-m", "pytest", "--collect-only", "-n0", "tests/test_cases.py", "-k", "told", "--cases"]
    runs = [subprocess.run([*command, f"{which}/4"], cwd=ROOT, capture_output=True, text=True, check=False) for which in range(1, 5)]
    assert all("of each table of cases and of what is slow" in run.stdout for run in runs)
    found = [line.strip() for run in runs for line in run.stdout.splitlines() if "<Function" in line]
    assert len(found) == len(set(found)) == 9
    wrong = subprocess.run([*command, "5/4"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert wrong.returncode == 4  # pytest: usage error
    assert "`next/4`" in wrong.stderr
