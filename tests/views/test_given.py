"""What readers give pictures by mistake is answered with a sentence: another thing than is drawn, a position that is none."""

import math

import numpy as np
import pytest

from helpers import CourseError, views
from helpers.views.canvas import PICTURES
from helpers.views.given import SUBJECTS
from tests.views.view_builders import gemm_run, one_load

LOAD = one_load(4 * np.arange(32))
GEMM = gemm_run("naive", 32, 32, 4)


class Kernel:
    """A kernel where its run is drawn."""


@pytest.mark.parametrize("name", sorted(name for name, picture in PICTURES.items() if picture.of == "run"))
@pytest.mark.parametrize("given, called", [(Kernel(), "a Kernel"), (3, "an int"), (None, "None")])
def test_a_picture_of_a_run_says_that_it_draws_one(name, given, called):
    first = f"{name} draws a run, as kernel.launch or kernel.gemm returns it, and not {called}."
    assert PICTURES[name].draw(given).alt == f"{first} Run the kernel first: {name}(kernel.gemm(64, trace=True))."


@pytest.mark.parametrize("name", sorted(name for name, picture in PICTURES.items() if picture.of in SUBJECTS.keys() - {"run"}))
@pytest.mark.parametrize("given", [GEMM, 3, None, "x", [3]])
def test_the_other_pictures_say_what_they_draw(name, given):
    picture = PICTURES[name]
    alt = picture.draw(given).alt
    assert alt.startswith(f"{name} draws {SUBJECTS[picture.of].words}, and not ") and "{" not in alt


def test_what_is_in_a_list_is_named():
    assert "and not a list with an int." in views.ladder([3]).alt
    assert "and not an int." in views.roofline([3]).alt


def test_the_run_may_be_given_by_name():
    assert views.coalescing(run=LOAD).alt == views.coalescing(LOAD).alt
    assert "and not an int." in views.coalescing(run=3).alt


@pytest.mark.parametrize("given, called", [(3, "an int"), ("x", "a str"), (LOAD, "a SimpleNamespace")])
def test_what_is_no_axes_is_refused(given, called):
    for name in ("to_png", "to_svg", "to_html"):
        with pytest.raises(CourseError, match=f"^{name} takes an Axes, as every picture returns it, and not {called}.$"):
            getattr(views, name)(given)
    with pytest.raises(CourseError, match=f"^ax takes an Axes, .* and not {called}.$"):
        views.coalescing(LOAD, ax=given)


@pytest.mark.parametrize("value", ["x", 1.5, math.nan, [], None])
@pytest.mark.parametrize(
    "picture, position",
    [
        ("coalescing", "block"), ("coalescing", "iteration"), ("banks", "warp"), ("owners", "lane"), ("timeline", "block"),
        ("timeline", "start"), ("tiles", "step"), ("shared_reads", "thread"), ("stepper", "step"), ("fragments", "lane"),
    ],
)  # fmt: skip
def test_a_position_is_a_whole_number(picture, position, value):
    assert PICTURES[picture].draw(GEMM, **{position: value}).alt == f"{position}={value!r}: give a whole number."


@pytest.mark.parametrize("picture, name", [("coalescing", "site"), ("banks", "line"), ("occupancy", "threads"), ("listing", "line")])
def test_so_is_what_may_be_left_out(picture, name):
    assert PICTURES[picture].draw(GEMM, **{name: "x"}).alt == f"{name}='x': give a whole number."
    assert PICTURES[picture].draw(GEMM, **{name: None}).alt == PICTURES[picture].draw(GEMM).alt


def test_positions_without_their_names_are_looked_at_too():
    assert views.timeline(GEMM, "x").alt == "block='x': give a whole number."


@pytest.mark.parametrize("far", [10**30, -(10**30)])
def test_a_position_far_away_is_the_nearest_there_is(far):
    assert views.coalescing(LOAD, block=far, warp=far, iteration=far).alt == views.coalescing(LOAD).alt


def test_a_position_may_be_numpy_s():
    assert views.coalescing(LOAD, block=np.int64(0)).alt == views.coalescing(LOAD).alt


def test_a_level_that_is_none():
    assert views.shared_reads(GEMM, level=[]).alt.startswith("level=[] is none of ")
    assert views.tiles(GEMM, level=[]).alt.startswith("level=[] is none of ")


@pytest.mark.parametrize("source", ["x", [], None])
def test_a_source_of_cycles_that_is_none(source):
    assert views.cycles_by_step(GEMM, source=source).alt == f"source={source!r} is none of states, sampled."


@pytest.mark.parametrize(
    "asked, sentence",
    [
        ({"threads": -1}, "threads=-1: a block has 1 to 1024 threads."),
        ({"threads": 0}, "threads=0: a block has 1 to 1024 threads."),
        ({"threads": 1025}, "threads=1025: a block has 1 to 1024 threads."),
        ({"registers": 1.5}, "registers=1.5: give a whole number."),
        ({"registers": 0}, "registers=0: a thread has 1 to 255 registers."),
        ({"shared": -1}, "shared=-1: a block has 0 bytes of shared memory or more."),
    ],
)
def test_occupancy_of_what_no_block_is(asked, sentence):
    assert views.occupancy(GEMM, **asked).alt == sentence
