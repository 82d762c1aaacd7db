"""Correct kernels of the kinds the world writes: right results, and not one finding, in whichever engine.

`correct/*.cu` has the form of the corpus of bugs. Each kernel has a reference here: a function of its array arguments
(as they were before the launch) that gives what must be in some of them afterwards, by position.

Tests of: helpers.sim.checks.warp_meetings
"""

from __future__ import annotations

import numpy as np
import pytest

from helpers.run.kernel import Kernel
from helpers.sim import native
from tests import ROOT
from tests.sim.bug_corpus import corpus

KERNELS = corpus(ROOT / "tests/sim/correct")
EACH = pytest.mark.parametrize("case", KERNELS, ids=[f"{case.file[:-3]}-{case.name}" for case in KERNELS])


def _product(a, b, m, n):
    return (a.astype(np.float64).reshape(m, -1) @ b.astype(np.float64).reshape(-1, n)).ravel()


def _jacobi(rounds, a, b, _):
    for _ in range(rounds):
        a, b = b, a
        a[:] = (np.roll(b, 1) + np.roll(b, -1)) / 2
    return {1: b, 2: a} if rounds % 2 else {1: a, 2: b}


def _exchanged(x, _):
    for _ in range(3):
        x = x.reshape(-1, 64)[:, ::-1] + 1
    return {0: x.ravel(), 1: x.reshape(-1, 32, 2)[:, :, ::-1].ravel()}


def _best(x, *_):
    value = x.reshape(4, 32) * (np.arange(4) * 7 % 5)[:, None]
    return {2: [value.max(), 4]}


def _consumed(n, x, _):
    x, t = x.reshape(2, n, 32), np.arange(32, 128)
    return {2: np.concatenate([sum(x[block, i, (t + i) % 32] * (t // 32) for i in range(n)) for block in range(2)])}


def _tail(n, x, _):
    t = np.arange(n)
    return {2: [*np.where((t ^ 1) < n, x[t ^ 1], x[:n]), *np.zeros(64 - n)]}


def _added_tiles(n, x, _):
    return {2: x.reshape(n, 64)[:, ::-1].sum(axis=0)}


def _reversed_rows(n, x, _):
    return {2: x.reshape(-1, 32)[:, ::-1].ravel()}


def _product_by_wmma(K, A, B, _):
    return {3: _product(A, B, 16, 32)}


REFERENCES = {
    "either_array": lambda which, x, _: {2: (1 + bool(which)) * x[::-1]},
    "pointers_in_a_table": lambda n, x, _: {2: (x + n - 1)[::-1]},
    "a_distance_between_arrays": lambda x, _: {1: np.where(np.arange(64) % 2, 2, 1) * x[::-1]},
    "up_to_the_end": lambda x, _: {1: 1 + x.reshape(3, 32)[:, ::-1].sum(axis=0)},
    "slices_add": lambda K, A, B, C: {3: _product(A, B, 16, 16)},
    "turns_at_a_semaphore": lambda K, A, B, C, lock: {3: _product(A, B, 16, 16), 4: [4]},
    "stream_k": lambda tiles, steps, x, *_: {3: x.reshape(tiles, steps, 64).sum(axis=1).ravel()},
    "look_back": lambda x, *_: {1: np.cumsum(x)},
    "last_block_adds_up": lambda x, *_: {2: [x.sum()]},
    "grid_barrier": _jacobi,
    "cooperative_grid": lambda x, *_: {2: [x.sum()]},
    "persistent_tiles": lambda n, counter, x, y: {3: 2 * x},
    "locked_list": _best,
    "maximum_by_cas": lambda x, y: {1: [(x.reshape(4, 64) + np.arange(4)[:, None]).max()]},
    "histogram": lambda x, bins: {1: np.bincount(x * 7 % 16, minlength=16)},
    "aggregated_atomics": lambda x, bins: {1: np.bincount(x * 5 % 8, minlength=8)},
    "found_flag": lambda x, *_: {1: [1], 2: [1]},
    "wavefront": lambda x, *_: {1: np.cumsum(x), 2: np.ones(4)},
    "released_by_an_atomic": lambda x, *_: {3: 3 * x[::-1]},
    "transpose_in_place": lambda A: {0: A.reshape(16, 16).T.ravel()},
    "residual": lambda K, A, B, C: {3: _product(A, B, 16, 16) + C},
    "through_device_memory": _exchanged,
    "clears_then_adds": lambda x, C: {1: x.reshape(4, 16, 4).sum(axis=1).ravel()},
    "one_barrier_per_tile": _added_tiles,
    "swizzled_tiles": lambda n, A, B, C: {3: _product(A, B, n, n)},
    "three_stages_of_copies": _added_tiles,
    "copies_announced_by_an_mbarrier": lambda x, y: {1: x[::-1]},
    "ldmatrix_and_mma": lambda n, A, B, C: {3: (A.astype(float).reshape(16, -1) @ B.astype(float).reshape(8, -1).T).ravel()},
    "wmma_through_shared": _product_by_wmma,
    "pipeline_of_the_library": _added_tiles,
    "epilogue_in_the_tiles_memory": lambda x, y: {1: x[::-1]},
    "producer_and_consumers": _consumed,
    "halves_apart": lambda x, y: {1: x.reshape(2, 64)[:, ::-1].ravel()},
    "ping_pong": _reversed_rows,
    "warp_synchronous_tree": lambda x, y: {1: x.reshape(2, 128).sum(axis=1)},
    "halves_of_a_warp": lambda x, y: {1: x[np.arange(64) ^ 15]},
    "masked_tail": _tail,
    "early_leavers": lambda n, x, y: {2: [*x[np.arange(n) ^ 1], *np.zeros(28)]},
    "row_per_warp": lambda n, A, x, y: {3: _product(A, x, 8, 1)},
    "two_buffers_scan": lambda x, y: {1: np.cumsum(x)},
    "block_decides_together": lambda x, y: {1: np.sort(x)},
    "tokens_of_the_library": _reversed_rows,
}


def test_every_kernel_has_a_reference():
    assert sorted(REFERENCES) == sorted(case.name for case in KERNELS) and len(KERNELS) >= 25


@EACH
@pytest.mark.parametrize("engine", ["as usual", "numpy"])
def test_right_and_without_findings(case, engine, monkeypatch):
    if engine == "numpy":
        monkeypatch.setattr(native.engine, "available", lambda: False)
    kernel, launch = Kernel(case.compiled()), case.launch
    args = launch.arguments()
    expected = REFERENCES[case.name](*(arg.copy() if isinstance(arg, np.ndarray) else arg for arg in args))
    run = kernel.launch(
        launch.grid, launch.block, args, launch.shared, on="cpu", counters=False, uninitialized=launch.never_written(kernel)
    )
    assert run.findings == []
    for position, values in expected.items():
        np.testing.assert_allclose(args[position], values, rtol=1e-6)
