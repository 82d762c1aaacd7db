"""Error beside speed, of a dozen ways to make a product.

Tests of: helpers.views.accuracy_plot
"""

from __future__ import annotations

import numpy as np
import pytest

from helpers import views
from helpers.course.accuracy import LARGEST, WAYS, accuracy, pieces, rounded
from helpers.errors import CourseError


@pytest.fixture(scope="module")
def numbers():
    random = np.random.default_rng(5)
    return random.standard_normal((24, 512), dtype=np.float32), random.standard_normal((512, 24), dtype=np.float32)


@pytest.fixture(scope="module")
def found(numbers):
    return accuracy(*numbers)


def test_more_products_are_more_exact_and_slower(found):
    mean = {item.way.name: item.mean for item in found.points}
    assert mean["6 × BF16"] < mean["3 × BF16"] < mean["1 × BF16"]
    assert (
        mean["3 × FP16, scaled"]
        < mean["FP32"]
        < mean["3 × FP16, scaled, not promoted"]
        < mean["2 × FP16, scaled"]
        < mean["1 × FP16, scaled"]
    )
    assert mean["3 × TF32"] < mean["FP32"] < mean["1 × TF32"]
    one, three = (found.of(f"{count} × FP16, scaled").limit for count in (1, 3))
    assert one == pytest.approx(3 * three) and three > 4 * found.of("FP32").limit
    assert [item.way for item in found.points] == list(WAYS)
    assert "3 × FP16, scaled" in str(found) and "24 × 24 × 512" in str(found)


def test_what_overflows_is_said_and_drawn(numbers):
    a, b = numbers
    found = accuracy(a * np.float32(1e6), b)
    assert not np.isfinite(found.of("3 × FP16").largest) and np.isfinite(found.of("3 × FP16, scaled").largest)
    assert "overflows" in str(found) and "3 × FP16: overflows" in views.accuracy(found).alt


def test_ways_may_be_named(numbers, found):
    one = accuracy(*numbers, "FP32")
    assert [item.way.name for item in one.points] == ["FP32"] and one.of("FP32") == found.of("FP32")
    assert len(accuracy(*numbers, ("FP32", WAYS[1])).points) == 2
    with pytest.raises(CourseError, match="No way is called 'FP64'; there are FP32"):
        accuracy(*numbers, "FP64")


def test_the_picture_names_every_way(found):
    axes = views.accuracy(found)
    assert {text.get_text() for text in axes.texts} >= {way.name for way in WAYS}
    assert all(way.name in axes.alt for way in WAYS)


def test_a_gpu_without_a_type_shows_the_others(numbers):
    assert "TF32" not in str(accuracy(*numbers, gpu="T4"))


@pytest.mark.parametrize(("kind", "count", "bits"), [("f16", 2, 22), ("bf16", 3, 24), ("tf32", 2, 22)])
def test_pieces_hold_so_many_bits(kind, count, bits):
    x = np.random.default_rng(1).uniform(1, 2, 999).astype(np.float32).astype(np.float64)
    found = pieces(x, kind, count)
    assert all(np.array_equal(piece, rounded(piece, kind)) for piece in found)
    whole = sum(piece * 2.0 ** (-12 * i if kind == "f16" else 0) for i, piece in enumerate(found))
    assert np.abs(whole - x).max() <= 2.0**-bits


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        (np.ones((2, 3)), np.ones((4, 2)), "(2, 3) and (4, 2)"),
        (np.ones(3), np.ones((3, 2)), "(3,)"),
        (np.ones((1 << 12, 1 << 6)), np.ones((1 << 6, 1 << 7)), f"{LARGEST:,}"),
        (np.full((2, 2), np.inf), np.ones((2, 2)), "infinity or NaN"),
        (np.full((2, 2), 1e300), np.ones((2, 2)), "beyond ±3.4e+38"),
        (np.ones((2, 2)), np.ones((2, 2), complex), "real numbers, and B"),
        (np.array([["1", "2"]]), np.ones((2, 2)), "real numbers, and A"),
        (np.array([[None, 2]]), np.ones((2, 2)), "real numbers, and A"),
        (np.array([["2020", "2021"]], "M8"), np.ones((2, 2)), "real numbers, and A"),
        ([[1, 2], [3]], np.ones((2, 2)), "real numbers, and A"),
        ("a", np.ones((2, 2)), "real numbers, and A"),
        (np.ma.masked_array(np.ones((2, 2)), np.eye(2)), np.ones((2, 2)), "masked array"),
    ],
)
def test_what_cannot_be_compared_is_a_sentence(a, b, said):
    with pytest.raises(CourseError) as error:
        accuracy(a, b)
    assert said in str(error.value)


@pytest.mark.parametrize("ways", [None, 3, [3], [None], [["FP32"]], "FP99"])
def test_ways_that_are_none_are_a_sentence(ways):
    with pytest.raises(CourseError, match="ways=|No way is called"):
        accuracy(np.ones((2, 2)), np.ones((2, 2)), ways=ways)


def test_numbers_of_other_types_are_rounded_first(numbers):
    a, b = numbers
    assert accuracy(a.astype(np.float64), b.tolist(), ways="FP32").points == accuracy(a, b, ways="FP32").points
    assert accuracy(np.eye(2, dtype=bool), np.arange(4).reshape(2, 2), ways="FP32").points[0].largest == 0
