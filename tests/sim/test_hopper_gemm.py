"""Products as Hopper's fast kernels make them: right, counted, without findings; and each of their usual mistakes is found."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.errors import RunError
from helpers.sim.counting import names
from tests.sim import hopper_gemm
from tests.sim.hopper_gemm import MARKS

ASM, OFF = "asm volatile(", "if (0) asm volatile("
SMALL = {"m": 128, "n": 128, "k": 192, "bn": 64, "stages": 2, "blocks": 1}  # two tiles, one after the other
PAIR = {"m": 256, "n": 256, "k": 192, "bn": 128, "stages": 2, "blocks": 2, "cluster": 2}

# {what is wrong: (launch, edits, a finding: (kind, line, other line))}
MISTAKES = {
    "full stages are not waited for": (SMALL, [("full", "while", "if (0) while")], ("missing-wait", "wgmma", "A")),
    "the other parity of full is waited for": (SMALL, [("full", "phase)", "phase ^ 1)")], ("missing-wait", "wgmma", "B")),
    "empty stages are not waited for": (SMALL, [("empty", "while", "if (0) while")], ("missing-wait", "A", "A")),
    "the other parity of empty is waited for": (SMALL, [("empty", "phase ^ 1", "phase")], ("endless", "try_wait", None)),
    "too many bytes are announced": (SMALL, [("expect", "(Stage)", "(Stage) + 128")], ("endless", "try_wait", "announce")),
    "no wgmma.fence": (SMALL, [("fence", ASM, OFF)], ("missing-fence", "wgmma", None)),
    "no commit": (SMALL, [("commit", ASM, OFF)], ("missing-wait", "pack", "wgmma")),
    "the last products are not waited for": (SMALL, [("last", ASM, OFF)], ("missing-wait", "pack", "wgmma")),
    "a stage is released while it is multiplied": (SMALL, [("wait", "aligned 1", "aligned 2")], ("race", "A", "wgmma")),
    "no proxy fence": (SMALL, [("proxy", ASM, OFF)], ("missing-fence", "store", "stmatrix")),
    "the buffer is written while it is stored": (SMALL, [("read", "if (lane", "if (0 && lane")], ("missing-wait", "stmatrix", "store")),
    "the last store is not waited for": (SMALL, [("finish", "if (t", "if (0 && t")], ("missing-wait", "store", None)),
    "who stores does not wait for who writes": (
        SMALL, [("wait_written", "bar.sync", "bar.arrive"), ("written", "bar.arrive", "bar.sync")], ("race", "store", "stmatrix")),
    "who writes does not wait for who stores": (
        SMALL, [("wait_free", "bar.sync", "bar.arrive"), ("free", "bar.arrive", "bar.sync")], ("race", "stmatrix", "store")),
    "both groups use one barrier": (
        SMALL, [("free", "group + 4", "4"), ("wait_free", "group + 4", "4")], ("divergent-barrier", "free", "wait_free")),
    "the other block is not told that a stage is empty": (
        PAIR, [("release", "t % 128 < CLUSTER", "t % 128 < 1")], ("endless", "try_wait", "announce")),
    "the cluster begins without a barrier": (PAIR, [("begin", ASM, OFF)], ("race", "B", None)),
    "a block ends while the other still arrives": (PAIR, [("end", ASM, OFF)], ("race", "arrive", None)),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake):
    launch, edits, (kind, *marks) = MISTAKES[mistake]
    try:
        findings = hopper_gemm.launch(**launch, edits=edits, arch="compute_90a", counters=False)[0].findings
    except RunError as error:
        findings = error.findings
    assert (kind, *map(MARKS.get, marks)) in {(finding.kind, finding.line, finding.other_line) for finding in findings}


@pytest.mark.parametrize(
    "launch", [SMALL, PAIR, {"m": 136, "n": 264, "k": 72, "bn": 256, "blocks": 2, "cluster": 2}], ids=["small", "pair", "edges"]
)
def test_a_product_is_right_and_without_findings(launch):
    run, c, exact = hopper_gemm.launch(**launch, arch="compute_90a", counters=False)
    assert run.findings == []
    assert np.abs(c.astype(np.float64) - exact).max() <= 2.0**-8 * np.abs(exact).max()


def test_products_and_copies_are_counted():
    m, n, k = 256, 256, 128
    run, *_ = hopper_gemm.launch(m, n, k, bn=256, cluster=2, findings=False)
    counted = {name: run.counters[name] for name in (names.tensor("gmma"), names.bulk_sectors("ld"), names.bulk_sectors("st"))}
    sector = 32 // 2  # elements
    assert list(counted.values()) == [4 * m * n * k // (64 * 256 * 16), (m * k + 2 * k * n) // sector, m * n // sector]
    assert run.by_line[MARKS["wgmma"]][names.tensor("gmma")] == counted[names.tensor("gmma")]
