"""The small model of tiled products: what it says of times that obey its formula, and what it refuses."""

from __future__ import annotations

import itertools

import pytest

from helpers.model.tile_times import Load, TileTime, Tiling, fitted

SMS = 132
SHAPES = [(64, 64, 64), (256, 256, 256), (1024, 1024, 1024), (2000, 3000, 500), (4096, 4096, 128), (4097, 4097, 4097), (128, 128, 9000)]


def test_a_load_counts_blocks_edges_and_whole_steps():
    load = Tiling((256, 128), 16).load(4097, 4097, 100, 1, SMS)
    assert load == Load(17 * 33 / SMS, 112, 1, True)
    assert Tiling((64, 64), 16).load(64, 64, 64, 1024, SMS).blocks == 1024 / SMS
    walking = Tiling((64, 64), 16, walks=True)
    assert [walking.load(64 * tiles, 64, 64, 1, SMS).blocks for tiles in (1, SMS, SMS + 1)] == [1, 1, 2], "rounds of tiles"


def test_slices_share_a_tile_only_where_there_is_room():
    tiling = Tiling((32, 64), 32, 16, room=1 << 20)
    assert tiling.load(128, 128, 16384, 1, SMS) == Load(8 * 16 / SMS, 1024, 16, False)
    assert tiling.load(4096, 4096, 4096, 1, SMS).slices == 1


@pytest.mark.parametrize("unevenness", [0.0, 1.0])
@pytest.mark.parametrize("saturation", [1.0, 4.0])
def test_times_that_obey_the_formula_are_found_again(unevenness, saturation):
    true = TileTime(5.0, 0.8, 0.04, 0.01, 0.2, unevenness, saturation)
    tilings = [Tiling((64, 128), 16), Tiling((64, 128), 16, 4, 1 << 22)]
    loads = [tiling.load(*shape, 1, SMS) for tiling, shape in itertools.product(tilings, SHAPES)]
    times = [true.microseconds(load) for load in loads]
    found = fitted(loads, times, [1.0] * len(loads))
    for load, time in zip(loads, times, strict=True):
        assert found.microseconds(load) == pytest.approx(time, rel=1e-6)
    unseen = tilings[0].load(3000, 700, 1111, 1, SMS)
    assert found.microseconds(unseen) == pytest.approx(true.microseconds(unseen), rel=1e-6)


def test_no_part_of_a_time_is_negative_whatever_was_measured():
    loads = [Tiling((64, 64), 16).load(*shape, 1, SMS) for shape in SHAPES]
    found = fitted(loads, [100.0, 90.0, 80.0, 50.0, 40.0, 30.0, 1.0], [1.0] * len(loads))
    assert min(found.launch, found.block, found.step, found.odd, found.part) >= 0


def test_a_weight_says_which_times_matter():
    loads = [Load(1.0, 64, 1, False), Load(1.0, 64, 1, False)]
    near = fitted(loads, [10.0, 20.0], [1.0, 0.01])
    assert near.microseconds(loads[0]) == pytest.approx(10.0, rel=1e-3)


def test_lists_that_do_not_fit_together_are_refused():
    with pytest.raises(ValueError, match="as many of each"):
        fitted([Load(1.0, 16, 1, False)], [1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="at least one"):
        fitted([], [], [])
