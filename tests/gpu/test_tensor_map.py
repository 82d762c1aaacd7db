"""Bulk copies give the same bytes on the GPU and in the machine: swizzles, types, boxes, borders, reductions.

With $GEMM_LADDER_TENSOR_RECORD set to a file, what helpers/data/tensor_map_h200.json holds is written there.
"""

from __future__ import annotations

import datetime
import json
import os
from pathlib import Path

import numpy as np
import pytest

import helpers
from helpers.run import gpu
from tests.run import test_tensor_maps as maps
from tests.sim import tensor_cases as cases
from tests.sim import tma_gemm
from tests.sim.isa import test_mbarrier as mbarriers


@pytest.fixture(scope="module", autouse=True)
def hopper():
    if gpu.available() and gpu.device().arch < "sm_90":
        pytest.skip("tensor maps need sm_90")


@pytest.fixture(scope="module")
def record():
    """What the GPU gave, as fingerprints, and where the machine differs; written at the end if somebody asks for it."""
    made = {"results": {}, "differences": {}}
    yield made
    place = os.environ.get("GEMM_LADDER_TENSOR_RECORD")
    if place:
        device = gpu.device()
        head = {"device": device.name, "driver": device.driver, "cuda": device.cuda, "date": datetime.date.today().isoformat()}
        Path(place).write_text(json.dumps({**head, **made}, indent=1) + "\n")


@pytest.mark.parametrize("case", cases.CASES, ids=lambda case: case.name)
def test_the_gpu_gives_the_same_bytes(case, record):
    there = cases.run(case, "gpu")
    record["results"][case.name] = cases.digest(there)
    here = cases.run(case, "cpu")
    where = np.flatnonzero(there != here)
    if len(where):
        rows = [[int(i), int(there[i]), int(here[i])] for i in where[:64]]
        record["differences"][case.name] = [len(where), rows]
        pytest.fail(f"{len(where)} bytes differ; place, GPU, machine: {rows[:12]}")


def test_mbarriers_count_the_same():
    assert mbarriers.facts("gpu") == mbarriers.EXPECTED


@pytest.mark.parametrize("kind", tma_gemm.TYPES)
def test_a_matrix_product_of_bulk_copies(kind):
    for m, n, k in ((64, 64, 64), (100, 72, 200), (7, 16, 8), (130, 136, 520)):
        _, there, exact = tma_gemm.launch(kind, m, n, k, "gpu")
        _, here, _ = tma_gemm.launch(kind, m, n, k, "cpu")
        assert np.array_equal(there, here) and np.abs(there - exact).max() < 1e-4


def test_warpgroups_fed_by_bulk_copies():
    """Within what the order of additions changes; the machine's own products are held to the bound of isa/mma.py elsewhere."""
    for m, n, k in ((128, 64, 64), (200, 100, 328), (1, 1, 8)):
        _, there, exact = tma_gemm.launch_warpgroups(m, n, k, "gpu")
        assert np.abs(there - exact).max() < 1e-3


def test_the_docstrings_kernel():
    import cupy

    kernel = helpers.compile(maps.example())
    matrix = np.random.default_rng(1).standard_normal((64, 96)).astype(np.float32)
    expected = matrix + 1
    there = cupy.asarray(matrix)
    kernel.launch((3, 2), 32, [helpers.tensor_map(matrix, (32, 32))], on="gpu")
    assert np.array_equal(matrix, expected)
    run = kernel.launch((3, 2), 32, [helpers.tensor_map(there, (32, 32))], on="gpu")
    assert np.array_equal(there.get(), expected) and run.findings == []
    kernel.launch((2, 1), 32, [helpers.tensor_map(there[16:48, 32:], (32, 32))], on="cpu")
    assert (there.get()[16:48, 32:] == expected[16:48, 32:] + 1).all()
    there[:] = 1
    gpu.launcher(kernel.compiled, (3, 2, 1), (32, 1, 1), [helpers.tensor_map(there, (32, 32))])()
    assert (there.get() == 2).all()
