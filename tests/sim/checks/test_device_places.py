"""Which granules of device memory are kept, and whether workers meet there.

Tests of: helpers.sim.native.device_owners
"""

from __future__ import annotations

import numpy as np

import helpers
from helpers.sim.checks.device_places import DevicePlaces
from helpers.sim.load import load


def test_workers_that_meet_in_an_array_are_noticed():
    compiled = helpers.compile('extern "C" __global__ void f(float* C) { C[threadIdx.x] = 1; }').compiled
    program = load(compiled.ptx, "f")

    class Memory:
        starts, ends, arguments, allocations = np.array([256]), np.array([256 + 40]), [], []

    kept = DevicePlaces(program, Memory, {0: 256, 1: 0x7F00}, (1, 1, 1), (32, 1, 1))
    assert kept.needed and kept.granule == 4 and kept.reach == 11
    nobody, reader, writer = (np.zeros(11, np.uint32) for _ in range(3))
    reader[3], writer[3] = 7 << 1, 9 << 1 | 1
    assert kept.meet([reader, writer]) and not kept.meet([reader, reader]) and not kept.meet([nobody, writer])
    assert kept.meet([reader, nobody, writer])
