"""A, B and C as a kernel with tensor maps gets them: as they are, copied to other rows, or without a map."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import numpy as np
import pytest

import helpers
from helpers.element_types import element_type
from helpers.errors import LaunchError, RunError
from helpers.model import hardware
from helpers.model.cycles.chip import figures
from helpers.run import gemm, product_runs
from helpers.run.kernel import Kernel
from helpers.run.launch_arguments import NO_MAP, launch_arguments
from helpers.sim.counting import names
from tests.run.tma_kernels import source

PLAIN, PERSISTENT, CLUSTERS, BOTH = source(), source(persistent=1), source(cluster=2), source(persistent=1, cluster=2)
Problem = functools.partial(helpers.Problem, dtype="bfloat16", out_dtype="float32")
ALIGNED, ODD = Problem(40, 72, 64), Problem(33, 47, 35, alpha=0.5, pad_a=2, pad_b=3, pad_c=4, seed=3)


@pytest.mark.parametrize("text", [PLAIN, PERSISTENT, BOTH], ids=["plain", "persistent", "persistent clusters"])
def test_the_kernel_is_right_and_without_findings(text):
    problems = [ALIGNED, ODD, Problem(33, 65, 40, beta=2.0), Problem(1, 1, 1), Problem(5, 7, 0, beta=3.0)]
    report = gemm.check(helpers.compile(text), problems, on="cpu")
    assert report.passed, report


def test_a_check_has_persistent_blocks_walk_several_tiles():
    """On a whole GPU small products would give each block one tile, and what goes wrong at the second would not show."""
    text = PERSISTENT.replace("int phase = 0;", "").replace("float sums[8]", "int phase = 0;\n        float sums[8]")
    kernel = helpers.compile(text)
    assert gemm.run(kernel, Problem(96, 32, 32), on="cpu").findings == []
    report = gemm.check(kernel, [Problem(96, 32, 32)], on="cpu")
    assert {finding.kind for finding in report.findings} == {"missing-wait"}


def test_what_tma_cannot_take_is_copied_and_said():
    kernel = helpers.compile(PLAIN)
    arrays = ODD.arrays()
    given = launch_arguments(kernel, ODD, *arrays)
    a, lda, b, ldb, c, ldc, map_a, map_b, map_c = (given.arguments[place] for place in (4, 5, 6, 7, 9, 10, 11, 12, 13))
    assert (lda, ldb, ldc) == (40, 48, ODD.ldc) and c is arrays[2]
    assert np.array_equal(a[:, :35], arrays[0][:, :35]) and not a[:, 35:].any(), "the padding of the copy is zero"
    assert map_a.memory is a and map_b.memory is b and map_c == NO_MAP
    assert (map_a.tensor.shape, map_a.tensor.strides, map_a.tensor.kind) == ((35, 33), (80,), "bfloat16")
    assert [copy.target for copy in given.copies] == [a, b]
    run = gemm.run(kernel, ODD, on="cpu")
    assert "those of A are 74 bytes apart: A was copied to rows of 80 bytes before the launch (by NumPy" in repr(run)
    assert run.problem["A"].shape == (33, ODD.lda), "the run still knows the matrix itself"

    given = launch_arguments(kernel, ALIGNED, *ALIGNED.arrays())
    assert not given.copies and not given.remarks and given.arguments[13].tensor.shape == (72, 40)
    shifted = np.zeros(40 * 64 + 4, element_type("bfloat16").storage)[4:].reshape(40, 64)
    (copy,) = launch_arguments(kernel, ALIGNED, shifted, *ALIGNED.arrays()[1:]).copies
    assert copy.source is shifted, "rows may be far enough apart and begin at the wrong address"


@pytest.mark.parametrize(
    ("overlooked", "problem"),
    [("4ull * ldc", Problem(33, 48, 40, pad_c=1)), ("4ull * N", Problem(33, 47, 40, pad_c=1))],
    ids=["pitch", "columns"],
)
def test_a_map_that_must_not_be_used_says_so(overlooked, problem):
    kernel = helpers.compile(PLAIN.replace(f" | {overlooked}", ""))
    with pytest.raises(RunError, match="128 zero bytes.*ordinary loads and stores") as raised:
        gemm.run(kernel, problem, on="cpu")
    assert "&map_C" in kernel.source.split("\n")[raised.value.line - 1]


def test_maps_describe_one_product():
    kernel = helpers.compile(PLAIN)
    batched = Kernel(replace(kernel.compiled, constants=kernel.compiled.constants | {"grid_depth": (1,)}))
    with pytest.raises(LaunchError, match="tensor maps, which describe one product"):
        gemm.run(batched, Problem(32, 32, 32, batch=2), on="cpu")


@pytest.mark.parametrize("text", [CLUSTERS, BOTH], ids=["clusters", "persistent clusters"])
def test_counting_some_blocks_equals_counting_all(text, monkeypatch):
    kernel, problem = helpers.compile(text), Problem(160, 320, 32)
    whole = gemm.run(kernel, problem, on="cpu", findings=False)
    monkeypatch.setattr(product_runs, "_COUNTED_WHOLE", 0)
    counted = gemm.count(kernel, problem)
    name = names.threads("ffma")
    assert counted.sampled and counted.counters[name] == whole.counters[name] > 0
    if text is BOTH:
        assert counted.grid == whole.grid == (50, 1, 1)
        assert (
            counted.problem["counted"]
            == "in blocks 10 to 11, which computed 4 of 50 tiles, and scaled up. The grid for counting has 24 blocks."
        )


def test_a_predicted_time_has_what_the_copies_cost():
    kernel = helpers.compile(PLAIN)
    aligned, copied = (gemm.count(kernel, Problem(64, 64, 64, pad_a=pad)) for pad in (0, 1))
    fixed, gpu = figures()["launch"], hardware.gpu("H200 SXM")
    blocks = math.prod(aligned.grid)
    launched = (fixed["microseconds"] + fixed["begun"] * blocks / gpu.clock_mhz) / 1e3  # a copy is a launch of its own
    more = copied.predict().milliseconds - aligned.predict().milliseconds - launched
    assert copied.problem["copies"] == 1 and copied.problem["copied"] == 2 * 64 * 64 * 2
    assert more == pytest.approx(2 * 64 * 64 * 2 / 4.8e9, rel=0.05)
