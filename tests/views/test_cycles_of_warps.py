"""The picture of cycles: every cycle of every warp is in it once, and it says where there is nothing to show."""

import itertools

import numpy as np
import pytest

from helpers import Problem, gemm, views
from helpers.errors import CourseError
from helpers.model.cycles import estimate
from helpers.model.cycles.multiprocessor import Spell, WarpState
from helpers.model.hardware import gpu
from helpers.run.kernel import compile as compile_kernel
from helpers.views.canvas import FAINT, rgb
from helpers.views.cycles_of_warps import of_statement, shares
from helpers.views.warp_states import COLOURS
from tests.course.tiny_kernel import SOURCE


@pytest.fixture(scope="module")
def run():
    return gemm.count(compile_kernel(SOURCE), Problem(128, 128, 256))


def test_a_column_has_the_share_of_each_state():
    spells = [Spell(0, 0, 0, 5, 10.0, ((WarpState.WAIT, 3.0), (WarpState.SELECTED, 1.0)))]
    found = shares(spells, 10, 14, 4)
    assert found[:, WarpState.WAIT].tolist() == [1, 1, 1, 0] and found[:, WarpState.SELECTED].tolist() == [0, 0, 0, 1]
    assert shares(spells, 10, 14, 2)[1].tolist() == pytest.approx([0.5, 0, 0.5, *[0] * 9])
    assert shares(spells, 12, 20, 4).sum() == pytest.approx(1)  # two of eight cycles, in columns of two


def test_spells_are_without_gap_or_overlap_and_sum_to_the_states(run):
    seen = estimate.watched(run, gpu("H200 SXM"))
    by_warp = {}
    for spell in seen.spells:
        by_warp.setdefault((spell.block, spell.warp), []).append(spell)
    assert len(by_warp) == seen.resident * seen.warps
    for spells in by_warp.values():
        for one, following in itertools.pairwise(spells):
            assert following.begin == pytest.approx(one.begin + sum(cycles for _, cycles in one.spans))
            assert one.spans[-1] == (WarpState.SELECTED, 1.0)


def test_the_picture_says_what_the_scheduler_does(run):
    ax = views.cycles_of_warps(run, window=100, start=30)
    assert "issues in" in ax.alt and "Predicted for H200 SXM" in ax.alt
    shown = [image for image in ax.images if image.get_array().shape[0] == 1]
    assert shown and all(np.asarray(image.get_array()).max() <= 1 for image in shown)
    assert "issues in" in views.cycles_of_warps(run, window=2000, start=100).alt


def test_every_column_has_the_colour_of_one_state(run):
    """A mixture of two would be that of a third, or of none in the legend."""
    ax = views.cycles_of_warps(run, window=2000)
    known = {rgb(colour) for colour in (*COLOURS.values(), FAINT)}
    for image in ax.images:
        assert {tuple(pixel) for pixel in np.unique(np.asarray(image.get_array())[0], axis=0)} <= known


def test_lines_are_numbered_as_in_the_other_pictures():
    body = "(col + j < N ? B[size_t(k) * ldb + col + j] : 0);\n"
    assembly = 'if (i + j == 0) asm volatile("add.f32 %0, %0, %0;"\n : "+f"(sum[0][0]));\n'
    source = SOURCE.replace(body, body[:-1] + "\n" + assembly)
    source = source.replace("sum[i][j] +=", "{ sum[i][j] +=").replace("(sum[0][0]));", "(sum[0][0])); }")
    of = gemm.count(compile_kernel(source), Problem(128, 128, 256))
    first = next(number for number, line in enumerate(source.splitlines(), 1) if "asm" in line)
    seen = estimate.watched(of, gpu("H200 SXM"))
    assert first + 1 in seen.lines.values(), "the compiler names its last line"
    assert first in (found := set(of_statement(of, seen).values())) and first + 1 not in found


def test_what_is_not_known_is_said(run, monkeypatch):
    scale = compile_kernel("__global__ void scale(float* x) { x[threadIdx.x] *= 2.0f; }")
    other = scale.launch(1, 32, (np.ones(32, np.float32),), on="cpu", findings=False)
    assert "No loop of this launch's machine code goes round three times" in views.cycles_of_warps(other).alt
    monkeypatch.setattr(estimate, "_launch", lambda *_: (None, "a branch depends on data"))
    with pytest.raises(CourseError, match="not known, since a branch depends on data"):
        estimate.watched(run, gpu("H200 SXM"))
