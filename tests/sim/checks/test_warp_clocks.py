"""Which accesses of a warp's lanes a __syncwarp() has ordered."""

from __future__ import annotations

import numpy as np

from helpers.sim.checks.warp_clocks import WarpClocks


def test_lanes_know_of_each_other_what_their_barriers_say():
    clocks = WarpClocks(1, 64)
    lanes = np.arange(64)
    before = clocks.now(0, lanes).copy()
    halves = np.broadcast_to(np.where(np.arange(32) < 16, 0x0000FFFF, 0xFFFF0000).astype(np.uint32), (1, 2, 32))

    def ordered(thread, other):
        return bool(clocks.ordered(0, np.array([thread]), np.array([other]), before[[other]])[0])

    assert not ordered(0, 1)
    clocks.meet(halves, None)
    assert ordered(0, 1) and ordered(40, 33) and not ordered(0, 16) and not ordered(16, 0)
    middle = np.broadcast_to(np.uint32(0x00018000), (1, 2, 32))  # lanes 15 and 16 carry the news across
    clocks.meet(middle, np.isin(np.arange(32), (15, 16))[None, None] & np.ones((1, 2, 1), bool))
    assert ordered(16, 0) and not ordered(17, 0)
    clocks.meet(None, None)
    assert ordered(17, 0) and ordered(0, 31)
