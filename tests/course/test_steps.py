"""The table of steps, and the files that go with each row."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from helpers.course.steps import ROOT, STEPS, get
from helpers.errors import CourseError
from helpers.run.passes import NAMES as PASSES

KERNELS = [step for step in STEPS if step.kernel_path]


def test_numbers_ascend_and_names_differ():
    assert [step.number for step in STEPS] == sorted({step.number for step in STEPS})
    assert len({step.slug for step in STEPS}) == len(STEPS) > 3


def test_kernels_notebooks_and_rows_are_the_same_set():
    assert {path.stem for path in (ROOT / "kernels").glob("*.cu")} == {step.name for step in KERNELS} != set()
    assert {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")} == {step.name for step in STEPS} | {"glossary"}


@pytest.mark.parametrize("step", KERNELS, ids=lambda step: step.name)
def test_a_kernel_says_its_number_and_its_entry(step):
    text = step.kernel_path.read_text(encoding="utf-8")
    assert text.startswith(f"// {step.number:02} {step.slug}: ")
    assert re.findall(r"__global__[^;{]*?\b(\w+)\(int M, int N, int K", text) == [*(PASSES if "pieces[]" in text else ()), step.entry]
    assert max(map(len, text.splitlines())) <= 120


def test_a_step_is_found_by_number_and_by_slug():
    assert get(3) is get("shared_tile") is STEPS[3]


@pytest.mark.parametrize("step", ["nonsense", 99, None, True, ["naive"], np.arange(2)], ids=repr)
@pytest.mark.parametrize("caught", [CourseError, KeyError])
def test_a_step_that_there_is_not_is_a_sentence(step, caught):
    with pytest.raises(caught) as found:
        get(step)
    assert str(found.value).startswith(f"There is no step {step!r}; there are 00_start_here, 01_naive, ")


def test_a_step_of_one_architecture_is_compiled_for_it_everywhere():
    hopper, ampere = replace(STEPS[1], arch="sm_90a"), replace(STEPS[1], arch="sm_80")
    assert [hopper.target(arch) for arch in ("sm_80", "sm_90", "sm_100")] == ["sm_90a"] * 3
    assert [ampere.target(arch) for arch in ("sm_75", "sm_90", "sm_100")] == ["sm_80", "sm_90", "sm_100"]
