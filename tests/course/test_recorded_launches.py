"""Launches in signatures of their own: the kernels are right, and what was recorded is of them."""

import json

import numpy as np
import pytest

from helpers.course import recorded_launches, rungs
from helpers.course.recorded_launches import LAUNCHES, SOURCE, compiled, file_name, recorded

FILE = rungs.DATA / file_name("NVIDIA H200")
N = 256
EXPECTED = {
    "copied": lambda x: x, "copied_by_four": lambda x: x, "activated": lambda x: x / (1 + np.exp(-x)),
    "transposed": lambda x: x.T, "transposed_directly": lambda x: x.T, "transposed_with_conflicts": lambda x: x.T,
}  # fmt: skip


@pytest.mark.parametrize("name", LAUNCHES)
def test_a_kernel_is_right_and_without_a_finding(name):
    random, launch = np.random.default_rng(7), LAUNCHES[name]
    numbers = {np.int32: lambda shape: random.integers(0, 1 << 20, shape, np.int32)}
    given = launch.arguments(N, lambda shape, kind: numbers.get(kind, random.standard_normal)(shape).astype(kind))
    before = [np.copy(value) for value in given]
    run = compiled(name).launch(launch.grid(N), launch.block, given, on="cpu")
    assert not run.findings
    arrays, old = ([value for value in values if np.ndim(value)] for values in (given, before))
    got = arrays[-1]
    if name.startswith("product"):
        np.testing.assert_allclose(got, old[0].astype(np.float32) @ old[1].astype(np.float32), rtol=1e-3, atol=1e-3)
    elif name in EXPECTED:
        np.testing.assert_allclose(got, EXPECTED[name](old[0]), rtol=1e-4, atol=1e-5)
    elif name == "added":
        np.testing.assert_allclose(got, old[1] + 2 * old[0], rtol=1e-5, atol=1e-5)
    elif name == "row_sums":
        np.testing.assert_allclose(got, old[0] @ old[1], rtol=1e-3, atol=1e-3)
    elif name in ("summed", "summed_by_all"):
        np.testing.assert_allclose(got, old[1] + old[0].sum(), rtol=1e-3, atol=1e-2)
    elif name == "scattered":
        np.testing.assert_allclose(got, old[1] + old[0].reshape(-1, got.size).sum(0), rtol=1e-3, atol=1e-3)
    elif name == "counted":
        np.testing.assert_array_equal(got, old[1] + np.bincount(old[0].ravel() & 255, minlength=256))
    elif name == "smoothed":
        x = old[0]
        around = x[1:-1, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] + x[:-2, 1:-1] + x[2:, 1:-1]
        np.testing.assert_allclose(got[1:-1, 1:-1], 0.2 * around, rtol=1e-4, atol=1e-5)
    else:
        assert name == "powers" and np.allclose(got, 8)


def test_everything_on_record_is_of_the_kernels_as_they_are():
    kept = json.loads(FILE.read_text(encoding="utf-8"))
    found = list(recorded())
    assert [(item.name, item.size) for item in found] == [(name, size) for name, launch in LAUNCHES.items() for size in launch.sizes]
    assert kept["about"]["kernel_hash"] == rungs.code_hash(SOURCE.read_text(encoding="utf-8"))
    assert all(item.milliseconds > 0 and item.device == "NVIDIA H200" for item in found)
    assert set(recorded_launches.FITTED) < set(LAUNCHES) and not any(name.startswith("product") for name in recorded_launches.FITTED)


def test_times_of_another_source_are_left_out(tmp_path):
    kept = json.loads(FILE.read_text(encoding="utf-8"))
    kept["about"]["kernel_hash"] = "of another source"
    (tmp_path / FILE.name).write_text(json.dumps(kept), encoding="utf-8")
    assert not list(recorded(tmp_path))
