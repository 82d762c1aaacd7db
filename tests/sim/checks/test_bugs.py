"""Every planted bug is found with its kind and lines, and no corrected twin raises an alarm.

Tests of: helpers.sim.checks.accesses, helpers.sim.checks.barrier_phases, helpers.sim.checks.divergent_barriers,
helpers.sim.checks.overwritten_sources, helpers.sim.checks.uninitialised
"""

from __future__ import annotations

import pytest

from helpers.sim.checks.observer import finding_kinds
from tests.sim.bug_corpus import corpus, symmetric

CASES = corpus()
EACH = pytest.mark.parametrize("bug", CASES, ids=[f"{bug.file[:-3]}-{bug.name}" for bug in CASES])


def test_the_corpus_is_large_and_covers_every_kind():
    assert len(CASES) >= 40 and len({bug.name for bug in CASES}) >= 40
    assert {kind for bug in CASES for kind, _, _ in bug.expected} == set(finding_kinds())


@EACH
def test_bug_is_found_where_it_is(bug):
    assert symmetric(bug.run()) == symmetric(bug.expected)


@EACH
def test_corrected_twin_raises_no_alarm(bug):
    assert bug.run(fixed=True) == set()
