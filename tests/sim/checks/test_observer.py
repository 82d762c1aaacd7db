"""Checks are found by themselves, hear of the events they want in their order, and depend on nothing that they observe.

Tests of: helpers.sim.checks.findings, helpers.sim.checks.launch_checks
"""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from helpers.sim import simulate
from helpers.sim.checks import findings, launch_checks, observer
from helpers.sim.checks.observer import EVENTS, Checks, DeviceCheck, Observer, SharedCheck, kinds
from helpers.toolchain.compile import compile_source
from tests import ROOT

FOLDER = ROOT / "helpers/sim/checks"


def test_every_check_of_the_folder_is_found():
    defined = {
        name
        for path in FOLDER.glob("*.py")
        if path.name != "observer.py"  # where the bases are
        for name, base in re.findall(r"^class (\w+)\((\w+)\):", path.read_text(encoding="utf-8"), re.MULTILINE)
        if base in ("SharedCheck", "AcquiringCheck", "DeviceCheck")
    }
    assert {kind.__name__ for kind in kinds()} == defined and len(defined) >= 8


def test_checks_override_events_and_nothing_else_by_mistake():
    """A misspelt event would be heard by nobody."""
    own = {name for base in (SharedCheck, DeviceCheck) for name in vars(base)}
    for kind in kinds():
        methods = {name for name, member in vars(kind).items() if callable(member) and not name.startswith("_")}
        assert methods <= set(EVENTS) | own | {"wanted"}, kind


def test_those_of_a_lower_order_look_first_and_may_end_it():
    heard = []

    class First(Observer):
        def read(self, m, access):
            heard.append("first")
            return access.site.index == 1

    class Second(Observer):
        def read(self, m, access):
            heard.append("second")

    checks = Checks([First(), Second()], None, [])
    checks.read(None, SimpleNamespace(site=SimpleNamespace(index=0)))
    checks.read(None, SimpleNamespace(site=SimpleNamespace(index=1)))
    assert heard == ["first", "second", "first"]
    assert [kind.order for kind in kinds()] == sorted(kind.order for kind in kinds())


def test_the_native_engine_leaves_what_a_new_check_wants_to_hear_to_the_numpy_machine(monkeypatch):
    class Writes(SharedCheck):
        def write(self, m, access):
            m.findings.add("a-write", access.site.line, "A thread writes.")

    kernel = compile_source(
        'extern "C" __global__ void f(int* out) { __shared__ int s[32]; s[threadIdx.x] = 1; __syncthreads(); out[threadIdx.x] = s[31 - threadIdx.x]; }'
    )

    def run():
        return simulate(kernel, (1, 1, 1), (32, 1, 1), [np.zeros(32, np.int32)])

    known = (*kinds(),)
    monkeypatch.setattr(observer, "kinds", lambda: (*known, Writes))
    monkeypatch.setattr(launch_checks, "kinds", lambda: (*known, Writes))
    outcome = run()
    assert outcome.engine == "numpy" and outcome.engine_reason == "native code does not look for writes"
    assert [found.kind for found in outcome.findings] == ["a-write"]
    monkeypatch.undo()
    assert run().findings == []


def test_only_accesses_to_arrays_that_matter_are_told_of():
    heard = []

    class Listener(Observer):
        def device_read(self, m, access):
            heard.append(access.site.index)

    checks = Checks([Listener()], None, [False, True])
    for index in (0, 1):
        checks.device_read(None, SimpleNamespace(site=SimpleNamespace(index=index)))
    assert heard == [1]


def test_a_launch_without_checks_hears_of_everything_and_says_nothing():
    nobody = Observer()
    assert all(getattr(nobody, event)(*[None] * (getattr(Observer, event).__code__.co_argcount - 1)) is None for event in EVENTS)


def test_checks_know_the_code_and_not_the_machine():
    for path in FOLDER.glob("*.py"):
        imported = re.findall(r"^\s*(?:from|import) (helpers\.[\w.]+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert all(name.startswith(("helpers.sim.code", "helpers.errors")) for name in imported), path.name


def test_every_kind_is_described_once_and_advice_without_a_kind_is_not_kept():
    """What is found, and what to do about it unless a finding says better, stand in the file of the kind."""
    described, advised = findings.said("MEANING"), findings.said("ADVISED")
    assert set(advised) <= set(described) and "race" in advised
    written = [path.read_text(encoding="utf-8") for path in Path(findings.__file__).parent.glob("*.py")]
    for name, told in (("MEANING", described), ("ADVISED", advised)):
        assert sum(text.count(f"\n{name} = ") for text in written) == len(told), "two files speak of one kind"
    assert findings.Findings().add("race", 3, "…").advice == advised["race"]
    assert findings.Findings().add("race", 3, "…", advice="").advice == ""
