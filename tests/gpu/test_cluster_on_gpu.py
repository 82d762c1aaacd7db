"""On a GPU: kernels whose blocks work together give the same as in the SIMT machine; impossible launches are sentences."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.errors import LaunchError
from helpers.run import gpu, kernel
from tests.sim.cluster_cases import CASES, GRID, SPECIALS
from tests.sim.cluster_products import warp_specialized, warp_specialized_arguments


def needs_clusters():
    if int(gpu.arch()[3:]) < 90:
        pytest.skip("clusters need compute capability 9.0")


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_gpu_gives_what_the_machine_is_held_to(case):
    needs_clusters()
    args = case.arguments()
    run = kernel.compile(case.source, arch=gpu.arch()).launch(case.grid, case.block, args, case.shared, on="gpu", cluster=case.cluster)
    assert run.on == "gpu"
    case.check(case.arguments(), args)


def test_a_cluster_launch_can_be_timed_and_uses_cupy_arrays_in_place():
    needs_clusters()
    cupy = pytest.importorskip("cupy")
    out = cupy.zeros(8 * 15, np.uint32)
    run = kernel.compile(SPECIALS, arch=gpu.arch()).launch(8, 1, [out], on="gpu", cluster=4, repeat=5)
    assert out.get().reshape(8, 15)[5, [0, 12, 13, 14]].tolist() == [1, 1, 4, 1]
    assert run.milliseconds > 0 and run.timing.samples == 5


def test_a_product_with_producers_consumers_and_multicast():
    if gpu.arch() != "sm_90":
        pytest.skip("wgmma is Hopper's alone")
    args, product = warp_specialized_arguments(256, 512, 1024)
    kernel.compile(warp_specialized(), arch="sm_90a").launch((4, 2), 384, args, shared=3 * 32768, on="gpu")
    assert np.allclose(args[-1], product, atol=1e-3)


def test_a_grid_that_waits_for_itself_must_fit():
    needs_clusters()
    compiled = kernel.compile(GRID, arch=gpu.arch())
    n = 100_000
    with pytest.raises(LaunchError, match="smaller grid"):
        compiled.launch(n, 128, [np.zeros(n * 128, np.float32), np.zeros(n, np.float32), np.zeros(n * 128, np.float32)], on="gpu")
