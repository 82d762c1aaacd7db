"""The process that judges: an answer comes back; what asks for too much is stopped with all it has started."""

from __future__ import annotations

import contextlib
import os

import psutil
import pytest

from helpers.course.exercises import exercise
from helpers.course.grading.answers import cell_text
from helpers.course.grading.apart import Limits, Stopped, judged

ITEM = exercise("flat_block")
BOMB = """template <int N, int M> struct U { static constexpr int v = U<N - 1, 2 * M>::v + U<N - 1, 2 * M + 1>::v; };
template <int M> struct U<0, M> { static constexpr int v = 1; };
constexpr int X = U<40, 0>::v;
"""


def _left() -> list[str]:
    """Commands of processes of this test's home that judge, or compile for one that did."""
    found = []
    for process in psutil.process_iter(["cmdline", "ppid"]):
        words = " ".join(process.info["cmdline"] or ())
        with contextlib.suppress(psutil.Error):
            if "grading.apart" in words or ("toolchain.nvrtc" in words and process.info["ppid"] != os.getpid()):
                found += [words] * (process.environ().get("GEMM_LADDER_HOME") == os.environ["GEMM_LADDER_HOME"])
    return found


@pytest.mark.slow
def test_answers_are_judged():
    texts = [cell_text(ITEM, ITEM.solution), cell_text(ITEM, "int x")]
    right, wrong = judged("flat_block", texts, 5)
    assert right.passed and right.seconds > 0
    assert wrong.refused and "does not compile" in wrong.said[0]


@pytest.mark.parametrize(("limits", "said"), [(Limits(all_seconds=4), "4 seconds"), (Limits(memory=1 << 26), "broke off")])
def test_what_asks_for_too_much_is_stopped_and_nothing_is_left(limits, said):
    with pytest.raises(Stopped, match=said):
        judged("flat_block", [cell_text(ITEM, BOMB + ITEM.solution)], 5, limits)
    assert _left() == []
