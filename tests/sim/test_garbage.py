"""What ended launches leave behind is collected by the time that they took."""

import gc
import signal
import weakref

import numpy as np
import pytest

import helpers
from helpers.sim import garbage
from helpers.sim.garbage import Collector
from helpers.sim.launch import simulate


class Ring:
    def __init__(self):
        self.me = self


def test_what_refers_to_itself_is_freed_once_launches_have_run_for_long():
    launches, ring = Collector(), Ring()
    left = weakref.ref(ring)
    gc.disable()
    try:
        del ring
        launches.after(1.5)
        assert left() is not None
        launches.after(1.0)
        assert left() is None and launches.since == 0
    finally:
        gc.enable()


def test_a_launch_of_the_numpy_machine_counts():
    made = helpers.compile("__global__ void k(int* y) { for (int i = 0; i < 99; i++) y[threadIdx.x] += i; }")
    garbage.launches.since = 0.0
    simulate(made.compiled, (1, 1, 1), (32, 1, 1), (np.zeros(32, np.int32),), engine="numpy")
    assert garbage.launches.since > 0


def test_an_interrupt_while_memory_is_freed_is_not_lost():
    """Python ignores what is raised in the callback of a weak reference, and a collection calls many."""
    ring = Ring()
    left = weakref.ref(ring, lambda _: signal.raise_signal(signal.SIGINT))
    gc.disable()
    try:
        del ring
        with pytest.raises(KeyboardInterrupt):
            Collector().after(60.0)
        assert left() is None
    finally:
        gc.enable()
