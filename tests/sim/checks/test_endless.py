"""A run that does not end, and why its loop never will."""

import numpy as np
import pytest

import helpers
from helpers.errors import RunError, SlowedError
from helpers.sim import simulate
from helpers.sim.launch import Budget

KERNEL = "__global__ void k(%sint* flag, int* out) { int n = 0; %s out[threadIdx.x] = n; }"


LOOPS = [
    ("", "while (flag[0] == 0);", True),  # the compiler reads it once
    ("", "if (threadIdx.x == 3) while (flag[threadIdx.x] == 0);", True),
    ("volatile ", "while (flag[0] == 0);", False),
    ("", "while (atomicAdd(flag, 0) == 0);", False),
    ("", "while (n >= 0) n ^= clock() & 1;", False),
    ("", "while (flag[0] == 0) __syncthreads();", False),
]


def told(kind, loop, run):
    """(the error's message, the advice of its only finding)."""
    arrays = [np.zeros(32, np.int32), np.zeros(32, np.int32)]
    with pytest.raises(RunError, match="line 1 may never end") as error:
        run(helpers.compile(KERNEL % (kind, loop), arch="compute_90"), arrays)
    (finding,) = error.value.findings
    return error.value.message, finding.advice


@pytest.mark.parametrize("kind, loop, idle", LOOPS)
def test_a_loop_that_waits_for_what_it_never_reads_is_told_so(kind, loop, idle):
    def run(kernel, arrays):
        simulate(kernel.compiled, (1, 1, 1), (32, 1, 1), arrays, budget=Budget(steps=20_000, seconds=None))

    message, advice = told(kind, loop, run)
    assert ("the compiler has read that once, before the loop" in advice) == idle == ("Nothing in this loop changes" in message)


@pytest.mark.parametrize("kind, loop, idle", LOOPS[::2])
def test_native_code_tells_the_same(kind, loop, idle):
    _, advice = told(kind, loop, lambda kernel, arrays: kernel.launch(1, 32, arrays, on="cpu", seconds=2, long=True))
    assert ("the compiler has read that once, before the loop" in advice) == idle


def test_findings_take_time_and_come_first():
    """The race is found in each turn of a loop that would end."""
    source = "__global__ void k(float* C) { for (int i = 0; i < 1 << 20; i++) { C[threadIdx.x / 2] += threadIdx.x; __syncthreads(); } }"
    with pytest.raises(SlowedError, match="It has findings, .* mend them first") as error:
        simulate(
            helpers.compile(source, arch="compute_90").compiled, (1, 1, 1), (32, 1, 1), [np.zeros(32, np.float32)], budget=Budget(seconds=2)
        )
    assert {finding.kind for finding in error.value.findings} == {"race"}
