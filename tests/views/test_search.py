"""The heat map of a search: every configuration in one cell, the best in each, and reasons elsewhere."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from helpers import views
from helpers.course import recorded_search
from helpers.course.autotune import BOUND, SPILLS, Candidate, CodeFacts, Measured, Search
from helpers.run.gemm import Problem
from helpers.views.canvas import PICTURES
from helpers.views.search import cells, groups

CODE = CodeFacts(256, (64, 64), 128, 0, 0, 1.25)


def candidate(bm, bn, bk, **options):
    return Candidate({"BM": bm, "BN": bn, "BK": bk}, **options)


@pytest.fixture
def found():
    return Search(Problem(4096, 4096, 4096), "H200 SXM", (
        candidate(64, 64, 8, fill=0.5, code=CODE),
        candidate(64, 64, 16, fill=1.0, code=CODE),
        candidate(64, 128, 8, rule=SPILLS, refused="…"),
        candidate(64, 128, 16, rule=SPILLS, refused="…"),
        candidate(128, 64, 8, rule=BOUND, refused="…"),
        candidate(128, 64, 16, fill=0.75, code=CODE),
        candidate(128, 128, 8),
        candidate(128, 128, 16, rule=BOUND, refused="…"),
    ))  # fmt: skip


def test_axes_are_pairs_of_constants_or_single_ones(found):
    assert groups(found) == ["BM × BN", "BK"]
    down, across = PICTURES["search"].controls(found)
    assert (down.default, across.default) == ("BM × BN", "BK")


def test_every_configuration_is_in_one_cell_and_the_best_stands_for_it(found):
    table = cells(found, "BM × BN", "BK")
    assert len(table) == 8 and sum(cell.count for cell in table.values()) == 8
    assert table[(64, 64), (16,)].best.score == pytest.approx(0.8)
    both = cells(found, "BM × BN", "BK × BK")
    assert both.keys() == {(down, (k, k)) for down, (k,) in table}


def test_refused_cells_say_why_and_waiting_ones_that_they_wait(found):
    texts = [text.get_text() for text in views.search(found, "BM × BN", "BK").texts]
    assert sorted(text for text in texts if text.endswith(" %")) == ["40.0 %", "60.0 %", "80.0 %"]
    assert texts.count("spills") == 2 and texts.count("bound") == 2 and texts.count("waiting") == 1


def test_a_cell_names_the_rule_that_the_last_of_it_came_to(found):
    both = replace(found, candidates=tuple(replace(item, constants={**item.constants, "BN": 64}) for item in found.candidates[2:5]))
    mixed = cells(both, "BN", "BK")[(64,), (8,)]
    assert [item.rule for item in both.candidates] == [SPILLS, SPILLS, BOUND] and mixed.count == 2 and mixed.why == SPILLS
    whole = recorded_search.recorded()
    assert cells(whole, "BM × BN", "TM × TN")[(128, 256), (8, 8)].why == SPILLS, "more of these are refused by a static_assert"


def test_a_map_of_which_nothing_is_compiled_promises_no_best(found):
    waiting = replace(found, candidates=found.candidates[2:5] + found.candidates[6:])
    texts = [text.get_text() for text in views.search(waiting).texts]
    assert "What the rules leave of each BM × BN and BK" in texts and not any(text.startswith("The best") for text in texts)


def test_a_measured_cell_shows_its_speed(found):
    timed = replace(found.candidates[1], measured=Measured(2.0, 1.1, "GPU", ""))
    ax = views.search(replace(found, candidates=(found.candidates[0], timed, *found.candidates[2:])), "BM × BN", "BK")
    assert f"{2 * 4096**3 / 2.0 / 1e9:.1f}" in [text.get_text() for text in ax.texts]
    assert "Best: BM = 64, BN = 64, BK = 16." in ax.alt


def faces(ax):
    """Text of a cell -> (darkness, colour)."""
    boxes = [(box.get_x() + 0.48, box.get_y() + 0.47, box.get_facecolor()) for box in ax.patches]
    near = {text.get_text(): min(boxes, key=lambda box: abs(box[0] - text.get_position()[0]) + abs(box[1] - text.get_position()[1]))
            for text in ax.texts if re.fullmatch(r"[\d.]+( %)?", text.get_text())}  # fmt: skip
    return {text: (3 - sum(box[2][:3]), box[2]) for text, box in near.items()}


def test_the_darker_a_cell_the_more_it_shows(found):
    """Measured times need not follow the scores: the first has half the score of the second, and is faster."""
    times = {0: Measured(2.0, 1.1, "GPU", ""), 1: Measured(3.0, 1.0, "GPU", "")}
    timed = replace(found, candidates=tuple(replace(item, measured=times.get(i)) for i, item in enumerate(found.candidates)))
    ax = views.search(timed, "BM × BN", "BK")
    seen = faces(ax)
    assert set(seen) == {"68.7", "45.8", "60.0 %"} and seen["68.7"][0] > seen["45.8"][0]
    assert seen["60.0 %"][1][2] > seen["60.0 %"][1][1], "a score among measured speeds has a hue of its own"
    assert any("green: measured TFLOPS; blue: score" in text.get_text() for text in ax.texts)
    whole = faces(views.search(recorded_search.recorded(), "BM × BN", "TM × TN"))
    by_speed = sorted(whole, key=float)
    assert len(by_speed) > 5 and sorted(whole, key=lambda text: (whole[text][0], float(text))) == by_speed


@pytest.mark.parametrize(("axes", "sentence"), [
    (("BM × BN", "BM × BN"), "Both axes are"),
    (("TM × TN", "BK"), "has no 'TM × TN'"),
])  # fmt: skip
def test_what_cannot_be_drawn_is_said(found, axes, sentence):
    assert sentence in views.search(found, *axes).alt


def test_a_space_of_one_constant_is_no_map(found):
    small = Search(found.problem, found.gpu_name, (Candidate({"BK": 8}, fill=1.0, code=CODE),))
    assert "two constants" in views.search(small).alt
