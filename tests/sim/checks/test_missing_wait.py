"""What a copy lacks that has not been waited for."""

import numpy as np
import pytest

import helpers
from helpers.sim.checks.missing_wait import ADVISED, AMONG_THE_LAST, CLOSED_LATE, IN_NO_GROUP, PIPELINE

COMMIT, WAIT = 'asm volatile("cp.async.commit_group;" ::: "memory");', 'asm volatile("cp.async.wait_group %s;" ::: "memory");'
SOURCE = """extern "C" __global__ void f(const float* x, float* y) {
    __shared__ float s[2][64];
    const int t = threadIdx.x;
    const unsigned to = __cvta_generic_to_shared(&s[0][t]);
    START
    BODY
    __syncthreads();
    y[t] = s[0][63 - t];
}"""
START = 'asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to), "l"(x + t) : "memory");'
NEXT = START.replace('"r"(to)', '"r"(to + 256)')


def found(body: str, start: str = START, source: str = SOURCE):
    kernel = helpers.compile(source.replace("START", start).replace("BODY", body))
    x = np.zeros(64, np.float32)
    return kernel.launch(1, 64, (x, np.zeros_like(x)), on="cpu", counters=False).findings


@pytest.mark.parametrize(
    ("body", "lacking", "advice"),
    [
        ("", "has not been waited for", IN_NO_GROUP),
        (COMMIT, "has not been waited for", ADVISED["missing-wait"]),
        (WAIT % 0, "may still be writing: the wait at line 6 is for closed groups only, and the copy was in none", CLOSED_LATE),
        (WAIT % 0 + COMMIT, "may still be writing: the wait at line 6 is for closed groups only, and the copy was in none", CLOSED_LATE),
        (
            COMMIT + WAIT % 1,
            "may still be writing: the wait at line 6 leaves the last group under way, and the copy is in it",
            AMONG_THE_LAST,
        ),
        (
            COMMIT + NEXT + COMMIT + WAIT % 2,
            "may still be writing: the wait at line 6 leaves the last 2 groups under way, and the copy is in one of them",
            AMONG_THE_LAST,
        ),
        (f"{COMMIT} if (t >= 32) {{ {WAIT % 0} }}", "has not been waited for", ADVISED["missing-wait"]),  # another warp's wait
    ],
)
def test_the_cause_is_said(body, lacking, advice):
    (finding,) = found(body)
    assert (finding.kind, finding.advice) == ("missing-wait", advice)
    assert finding.message.endswith(f"where the asynchronous copy of line 5 {lacking}.")


def test_a_copy_over_another_is_told_of_the_other():
    start = f"{START}\n    {COMMIT}"
    said = [one for one in found(START, start) if one.line == 7]
    assert [one.advice for one in said] == [ADVISED["missing-wait"]]


def test_only_who_uses_a_pipeline_is_told_of_it():
    (finding,) = found("", source=f"// a pipeline\n{SOURCE}")
    assert finding.advice == PIPELINE and "pipeline" not in found("")[0].advice


def test_what_is_waited_for_lacks_nothing():
    assert not found(COMMIT + NEXT + COMMIT + WAIT % 1)
