"""The heat map of a search: every configuration in one cell, the best in each, and reasons elsewhere."""

from __future__ import annotations

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


@pytest.mark.parametrize(("axes", "sentence"), [
    (("BM × BN", "BM × BN"), "Both axes are"),
    (("TM × TN", "BK"), "has no 'TM × TN'"),
])  # fmt: skip
def test_what_cannot_be_drawn_is_said(found, axes, sentence):
    assert sentence in views.search(found, *axes).alt


def test_a_space_of_one_constant_is_no_map(found):
    small = Search(found.problem, found.gpu_name, (Candidate({"BK": 8}, fill=1.0, code=CODE),))
    assert "two constants" in views.search(small).alt
