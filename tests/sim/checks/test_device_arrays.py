"""Addresses are followed back to the parameters that they are made of."""

from __future__ import annotations

import numpy as np
import pytest

import helpers
from helpers.sim import launch
from helpers.sim.checks.device_arrays import arrays_of
from helpers.sim.checks.device_places import DevicePlaces
from helpers.sim.load import load
from helpers.sim.machine.memory import DeviceMemory


def watched(source):
    """For each access to device memory, in order: the numbers of the parameters that its address is made of."""
    program = load(helpers.compile(source).ptx, "f")
    number = {at: i for i, (_, at) in enumerate(program.parameters)}
    return [{number.get(origin, origin) for origin in found} for _, found in sorted(arrays_of(program).items())]


@pytest.mark.parametrize(
    "body, origins",
    [
        ("C[t] = A[t] + B[n - t];", [{0}, {1}, {2}]),
        ("float* p = n > 3 ? A : B; C[t] = p[t];", [{0, 1}, {2}]),
        ("C[(int)A[t]] = 1;", [{0}, {2}]),  # an index from memory is no pointer
        ("atomicAdd(C + t, 1.0f);", [{2}]),
        ("float* p = A; for (int i = 0; i < n; i++, p += n) C[t] += *p;", None),
    ],
)
def test_addresses_are_followed_to_their_parameters(body, origins):
    found = watched(f'extern "C" __global__ void f(float* A, float* B, float* C, int n) {{ int t = threadIdx.x; {body} }}')
    if origins is None:
        assert {frozenset(one) for one in found} == {frozenset({0}), frozenset({2})}
    else:
        assert found == origins


@pytest.mark.parametrize("how", ["const __grid_constant__ CUtensorMap", "const CUtensorMap*"])
def test_of_what_tensor_maps_describe_only_what_is_written_is_watched(how):
    source = f"""#include <cuda.h>
    extern "C" __global__ void f({how} A, {how} B, {how} C, const float* a) {{
        __shared__ __align__(128) float s[32]; __shared__ __align__(8) long long bar;
        unsigned at = (unsigned)__cvta_generic_to_shared(s), barrier = (unsigned)__cvta_generic_to_shared(&bar);
        #define LOAD(map) asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes " \\
            "[%0], [%2, {{%3}}], [%1];" \\
            :: "r"(at), "r"(barrier), "l"({"&" * ("*" not in how)}map), "r"(threadIdx.x) : "memory")
        LOAD(A); LOAD(B); LOAD(C);
        asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%1, {{%2}}], [%0];"
            :: "r"(at), "l"({"&" * ("*" not in how)}C), "r"(threadIdx.x) : "memory");
        s[1] = a[threadIdx.x];
    }}"""
    compiled = helpers.compile(source, arch="sm_90a").compiled
    arrays = [np.zeros(64, np.float32) for _ in range(4)]
    program = load(compiled.ptx, "f")
    given, words = launch._arguments(program, compiled, [*(helpers.tensor_map(array, (32,)) for array in arrays[:3]), arrays[3]])
    memory = DeviceMemory(program, given)
    places = DevicePlaces(
        program,
        memory,
        launch._param_words(program, words, memory),
        (1, 1, 1),
        (32, 1, 1),
        maps=launch._tensor_maps(program, words, memory),
    )
    copies = [watched for site, watched in zip(program.sites, places.watches, strict=True) if site.device is not None]
    assert copies == [False, False, True, True] and not any(places.watches[site.index] for site in program.sites if site.device is None)
