"""Figures by the machine's rules, against what the steps' own counters are held to."""

from fractions import Fraction

import pytest

from helpers.course import figures
from helpers.course.steps import get
from helpers.run.gemm import Problem


@pytest.mark.parametrize(("step", "tile"), [("shared_tile", (32, 32)), ("thread_tile_1d", (64, 64)), ("thread_tile_2d", (128, 128))])
def test_loads_from_global_memory_are_what_the_step_is_held_to(step, tile):
    (held,) = [one for one in get(step).expect if one.text.startswith("global loads per result")]
    assert held.at_most(Problem(128, 128, 512)) == 512 * figures.global_loads(*tile)


def test_strides_and_widths():
    assert [figures.sectors(stride) for stride in (0, 1, 2, 8, 32)] == [1, 4, 8, 32, 32]
    assert [figures.wavefronts(stride) for stride in (0, 1, 2, 32, 33)] == [1, 1, 2, 32, 1]
    assert (figures.wavefronts(4, 16), figures.wavefronts(0, 16), figures.sectors(4, 16)) == (4, 2, 16)
    assert figures.shared_reads(8, 8) == Fraction(1, 4)
    assert figures.blocks(1025, 1024, 256, 128) == 5 * 8
    assert figures.ring_bytes(128, 128, 8, 2) == 16384
