"""A launch's seconds cover what is done for it before a thread runs, too. (Counting afterwards: see test_counts.)"""

from __future__ import annotations

import threading
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


def busy(seconds: float, done: threading.Event | None = None) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not (done and done.is_set()):
        pass


def in_vain(seconds: float, *args, **more) -> None:
    start = time.monotonic()
    with pytest.raises(RunError, match=f"all of the {seconds:g} seconds"):
        simulate(*args, budget=Budget(seconds=seconds), **more)
    assert time.monotonic() - start < 20 * seconds + 2


def test_reading_the_code_ends_with_the_time_of_the_launch():
    large = SimpleNamespace(ptx=LARGE.format("add.u32 %r1, %r1, %r2;\n" * 60_000), symbol="k")  # reading it takes seconds
    in_vain(0.1, large, (1, 1, 1), (32, 1, 1), [])


def test_making_native_code_ends_with_the_time_of_the_launch(monkeypatch):
    done = threading.Event()
    monkeypatch.setattr(prepared, "prepare", lambda program, options: busy(4, done))
    compiled = compile_source('extern "C" __global__ void made_in_vain(int* y) { y[threadIdx.x] = 17 * threadIdx.x; }')
    monkeypatch.setattr(prepared, "remembered", lambda program, options: None)
    in_vain(0.5, compiled, (1, 1, 1), (32, 1, 1), [np.zeros(32, np.int32)], engine="native")
    done.set()


def test_a_limit_within_another_does_not_extend_it():
    now = time_limit.now()
    with time_limit.until(now - 1), time_limit.until(now + 100), pytest.raises(time_limit.TimeIsUp):
        time_limit.look()
    with time_limit.until(None):
        time_limit.look()
    assert time_limit.left() == float("inf")


def test_time_in_which_others_have_the_processors_hardly_counts():
    start, begun = time_limit.now(), time.monotonic()
    time.sleep(0.4)
    idle, passed = time_limit.now() - start, time.monotonic() - begun
    assert passed / 10 < idle < passed / 2, "it counts a little, for what waits for something that never comes"
    start, begun = time_limit.now(), time.process_time()
    busy(0.4)
    assert time_limit.now() - start == pytest.approx(time.process_time() - begun, abs=0.1)


def test_the_time_of_a_limit_never_goes_back():
    read = [time_limit.now() for _ in range(20_000)]
    assert read == sorted(read)
