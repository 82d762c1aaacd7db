"""A launch's seconds cover what is done for it before a thread runs, too. (Counting afterwards: see test_counts.)"""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import pytest

from helpers.errors import RunError
from helpers.sim import Budget, simulate
from helpers.sim.code import time_limit
from helpers.sim.native import prepared
from helpers.toolchain.compile import compile_source

LARGE = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k()
{{
.reg .b32 %r<8>;
{}
ret;
}}
"""


def in_vain(seconds: float, *args, **more) -> None:
    start = time.monotonic()
    with pytest.raises(RunError, match=f"all of the {seconds:g} seconds"):
        simulate(*args, budget=Budget(seconds=seconds), **more)
    assert time.monotonic() - start < 20 * seconds + 2


def test_reading_the_code_ends_with_the_time_of_the_launch():
    large = SimpleNamespace(ptx=LARGE.format("add.u32 %r1, %r1, %r2;\n" * 60_000), symbol="k")  # reading it takes seconds
    in_vain(0.1, large, (1, 1, 1), (32, 1, 1), [])


def test_making_native_code_ends_with_the_time_of_the_launch(monkeypatch):
    monkeypatch.setattr(prepared, "prepare", lambda program, options: time.sleep(4))
    compiled = compile_source('extern "C" __global__ void made_in_vain(int* y) { y[threadIdx.x] = 17 * threadIdx.x; }')
    monkeypatch.setattr(prepared, "remembered", lambda program, options: None)
    in_vain(0.5, compiled, (1, 1, 1), (32, 1, 1), [np.zeros(32, np.int32)], engine="native")


def test_a_limit_within_another_does_not_extend_it():
    now = time.monotonic()
    with time_limit.until(now - 1), time_limit.until(now + 100), pytest.raises(time_limit.TimeIsUp):
        time_limit.look()
    with time_limit.until(None):
        time_limit.look()
    assert time_limit.left() == float("inf")
