"""The corpus of planted bugs, and random kernels, in both engines: what runs natively gives the same results, counters and findings."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the native engine is optional")

from helpers.errors import LaunchError, RunError
from helpers.sim import Budget, Collect, simulate
from tests.sim import fuzz
from tests.sim.bug_corpus import corpus

FILES = {"bounds.cu": 6, "copies.cu": 6, "races.cu": 6, "warps.cu": 4}  # and how many corrected twins run natively, at least


def outcome(compiled, launch, engine):
    """(what to compare, None), or (None, why native code does not run it)."""
    args = launch.arguments()
    try:
        run = simulate(compiled, launch.grid, launch.block, args, launch.shared, Collect(), Budget(seconds=20), engine=engine)
    except LaunchError as error:
        return str(error), None
    except RunError as error:
        return (None, error.message) if "native engine cannot run" in error.message else ((error.message, error.findings), None)
    arrays = [a.tobytes() for a in args if isinstance(a, np.ndarray)]
    return (run.findings, run.counters, run.by_line, arrays), None


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_native_code_never_says_anything_else(file):
    native = 0
    for bug in (bug for bug in corpus() if bug.file == file):
        for fixed in (False, True):
            launch = bug.twin_launch if fixed else bug.launch
            compiled = bug.compiled(fixed, machine_code=fixed)  # native code leaves nearly all bugs to the other engine
            mine, refusal = outcome(compiled, launch, "native")
            if refusal is None:
                assert mine == outcome(compiled, launch, "numpy")[0], (bug.name, fixed)
                native += fixed
    assert native >= FILES[file]


@pytest.mark.parametrize("first", [0, 1000, 2000])
def test_random_kernels_run_alike(first):
    """A few of those that `python -m tests.sim.fuzz` writes; it runs as many thousands as it is told."""
    told = [fuzz.tried(seed, gpu=False) for seed in range(first, first + 4)]
    assert [said for _, said, _, _ in told if said] == []
    assert any(ran for _, _, ran, _ in told), "none of them ran natively"
