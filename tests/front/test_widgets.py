"""Widgets, headless: what a change of a control leads to. The browser's side is in tests/browser."""

import re

import ipywidgets
import numpy as np
import pytest

from helpers.course import rungs
from helpers.errors import CourseError
from helpers.front import widgets
from helpers.run.block_scales import quantized
from helpers.views.canvas import PICTURES, Picture, picture
from tests.views.view_builders import gemm_run, one_load


@pytest.fixture(autouse=True)
def _fresh():
    widgets.forget()
    yield
    widgets.forget()


@pytest.fixture(scope="module")
def shared():
    return gemm_run("shared")


def alt(panel):
    return re.search(r'alt="([^"]*)"', panel.shown)[1]


def test_a_moved_slider_redraws_the_picture(shared):
    panel = widgets.tiles(shared)
    assert panel.values == {"level": "block", "block": 0, "step": 0} and "Step 0 (of 0 to 1)" in alt(panel)
    panel._fields["step"].value = 1  # what the browser does
    assert "Step 1 (of 0 to 1)" in alt(panel)
    panel.set(block=3)
    assert "block (1, 1)" in alt(panel) and panel.values["step"] == 1


def test_controls_change_with_what_is_chosen(shared):
    panel = widgets.coalescing(shared)
    assert panel._fields["iteration"].max == 1
    panel._fields["iteration"].value = 1
    panel._fields["site"].value = 2  # the store happens once
    assert panel.values["iteration"] == 0 and panel._fields["iteration"].disabled
    panel._fields["site"].value = 0
    assert panel._fields["iteration"].max == 1
    level = widgets.tiles(shared)
    level.set(level="thread")
    assert "thread" in level.values
    level.set(thread=40)
    assert "thread (8, 1)" in alt(level)


def test_one_change_draws_once(shared):
    drawn = []

    def draw(run, **values):
        drawn.append(values)
        return PICTURES["tiles"].draw(run, **values)

    panel = widgets.Panel(shared, Picture("tiles", "Tiles", draw, PICTURES["tiles"].controls, 1))
    assert len(drawn) == 1
    panel._fields["level"].value = "thread"
    assert len(drawn) == 2


def test_what_the_reader_set_survives_running_the_cell_again(shared):
    widgets.tiles(shared).set(step=1, block=2)
    assert widgets.tiles(shared).values == {"level": "block", "block": 2, "step": 1}
    smaller = gemm_run("shared", 32, 32, 32)  # the same kernel on less: the nearest that exists
    assert widgets.tiles(smaller).values == {"level": "block", "block": 0, "step": 0}
    assert widgets.tiles(shared).values == {"level": "block", "block": 2, "step": 1}
    assert widgets.tiles(shared, state="another").values["step"] == 0
    assert widgets.tiles(shared, step=0).values["step"] == 0  # a cell that asks for something else


def test_a_cell_s_own_choice_of_line_is_where_it_starts(shared):
    panel = widgets.coalescing(shared, line=8)
    assert panel.values["site"] == 2 and "store to C" in alt(panel)
    panel.set(site=1)
    assert "load of B" in alt(panel) and widgets.coalescing(shared, line=8).values["site"] == 1


def test_explore_opens_pictures_as_they_are_chosen(shared):
    explorer = widgets.explore(shared)
    assert explorer.choice.value == "coalescing" and list(explorer._panels) == ["coalescing"]
    explorer.choice.value = "listing"
    assert "<table" in explorer.panel.shown and explorer.children[1] is explorer.panel
    assert widgets.explore(shared).choice.value == "listing"  # kept
    assert widgets.explore(shared, picture="tiles").choice.value == "tiles"
    names = [name for _, name in widgets.explore(shared, pictures=["tiles", "listing"]).choice.options]
    assert names == ["tiles", "listing"]


@pytest.mark.slow
def test_every_picture_of_a_run_opens_on_every_odd_run(shared):
    odd = [shared, one_load(-1 + 0 * np.arange(32)), one_load(4 * np.arange(32), space="shared")]
    for run in odd:
        for _, name in widgets.explore(run).choice.options:
            shown = widgets.panel(name, run, "odd").shown
            assert "could not be drawn" not in shown and len(shown) > 40


def test_an_error_in_a_callback_is_shown_where_the_picture_would_be(shared):
    def draw(run, **values):
        raise ZeroDivisionError("on purpose")

    panel = widgets.Panel(shared, Picture("broken", "Broken", draw, lambda run, **values: (), 1))
    assert "could not be drawn" in panel.shown and "ZeroDivisionError: on purpose" in panel.shown


def test_a_reason_takes_the_picture_s_place_and_there_are_no_controls():
    panel = widgets.coalescing(one_load(4 * np.arange(32), space="shared"))
    assert panel.values == {} and "no access to global memory" in alt(panel)


def test_saving_offers_both_formats(shared):
    panel = widgets.tiles(shared, state="shared_tile")
    panel._offer()
    assert re.findall(r'download="([^"]+)"', panel._links.value) == ["shared_tile-tiles.svg", "shared_tile-tiles.png"]
    panel.set(step=1)
    assert panel._links.value == ""  # the old links would save the old picture


def test_compare_shows_two_runs_side_by_side(shared):
    pair = widgets.compare(gemm_run("naive", 32, 32, 32), shared, line=3)
    left, right = pair.panels
    assert "32 sectors" in alt(left) and "4 sectors" in alt(right)
    assert "before: naive" in pair.children[2].children[0].children[0].value


def test_pictures_of_variants_stand_each_below_its_name(shared):
    panels = {"with <padding>": widgets.tiles(shared), "without": widgets.owners(shared)}
    made = widgets.titled(panels)
    said = [child.value if isinstance(child, ipywidgets.HTML) else child for child in made.children]
    assert said == ["<b>with &lt;padding&gt;</b>", panels["with <padding>"], "<b>without</b>", panels["without"]]
    kept = made._repr_mimebundle_()
    assert "without" in str(kept) and str(kept).count("data:image/png") == 2, "a saved notebook has the pictures"


@pytest.mark.parametrize("wrong", [{}, [1], {1: None}, {"a": 3}, {"a": "b"}])
def test_what_is_no_picture_has_no_title(wrong):
    with pytest.raises(CourseError, match="titled.. "):
        widgets.titled(wrong)


def test_compare_changes_the_picture_of_both_sides_and_keeps_it(shared):
    pair = widgets.compare(gemm_run("naive", 64, 64, 64), shared, line=3)
    assert "stepper" not in [name for _, name in pair.choice.options]  # it needs a run of its own
    pair.choice.value = "tiles"
    left, right = pair.panels
    assert "Step 0 (of 0 to 63)" in alt(left) and "Step 0 (of 0 to 1)" in alt(right)
    assert widgets.compare(gemm_run("naive", 64, 64, 64), shared, line=3).choice.value == "tiles"
    assert widgets.compare(shared, shared, "owners").choice.value == "owners"  # a cell that asks for another picture


def test_a_control_moves_both_sides_unless_the_reader_wants_it_otherwise(shared):
    pair = widgets.compare(gemm_run("naive", 64, 64, 64), shared, "tiles")
    left, right = pair.panels
    left._fields["block"].value = 3
    assert right.values["block"] == 3 and "block (1, 1)" in alt(right)
    left._fields["step"].value = 40  # the other side has fewer: its last
    assert right.values["step"] == 1 and left.values["step"] == 40
    right._fields["level"].value = "warp"
    assert left.values["level"] == "warp" and "warp 0" in alt(left)
    pair.together.value = False
    right._fields["block"].value = 0
    assert left.values["block"] == 3


def test_menus_that_differ_do_not_follow_each_other(shared):
    pair = widgets.compare(one_load(4 * np.arange(32)), shared)
    left, right = pair.panels
    right._fields["site"].value = 2
    assert "store to C" in alt(right) and left.values["site"] == 0


def test_ladder_takes_the_saved_climbs(tmp_path, monkeypatch):
    monkeypatch.setenv("GEMM_LADDER_HOME", str(tmp_path))
    monkeypatch.setattr(rungs, "rungs", lambda *size, **types: [])
    assert "still empty" in alt(widgets.ladder())


def test_a_picture_s_second_thing_is_named():
    left, right = quantized(np.ones((4, 256))), quantized(np.ones((2, 256)))
    said = alt(widgets.block_factors(left, right=right))
    assert "A has 8 factors" in said and "B has 4 factors" in said
    with pytest.raises(CourseError, match="was given a Quantized behind it.*right="):
        widgets.block_factors(left, right)


def test_unknown_names_are_course_errors(shared):
    with pytest.raises(CourseError, match="There are: .*coalescing"):
        widgets.panel("histogram", shared)
    with pytest.raises(CourseError, match="no picture 'x'"):
        widgets.explore(shared, picture="x")
    with pytest.raises(AttributeError):
        widgets.histogram  # noqa: B018 - the access is the test
    with pytest.raises(KeyError, match="has no control thread; it has level, block, step"):
        widgets.tiles(shared).set(thread=3)


def buttons(panel):
    """The buttons beside the slider of the step: back, forward."""
    box = next(child for child in panel._row.children if hasattr(child, "children"))
    return [child for child in box.children if type(child).__name__ == "Button"]


def test_buttons_step_back_and_forward_and_stop_at_the_ends(shared):
    panel = widgets.tiles(shared)
    back, forth = buttons(panel)
    forth.click()
    assert panel.values["step"] == 1 and "Step 1 (of 0 to 1)" in alt(panel)
    forth.click()
    assert panel.values["step"] == 1
    back.click()
    back.click()
    assert panel.values["step"] == 0 and back.tooltip == "step along K: one back"


def test_explore_runs_again_for_a_picture_that_needs_more(shared):
    asked = []

    def again(filter_):
        asked.append(filter_)
        return shared

    explorer = widgets.explore(shared, again=again)
    assert asked == []  # only when it is opened
    explorer.choice.value = "stepper"
    assert [(item.registers, item.blocks) for item in asked] == [(True, {0})]
    assert "recorded no registers" in explorer.panel.shown

    def cannot(filter_):
        raise CourseError("line 5: this run does not end.")

    explorer = widgets.explore(shared, state="other", again=cannot)
    explorer.choice.value = "stepper"
    assert "line 5: this run does not end." in explorer.panel.shown


def test_a_new_picture_needs_no_line_in_widgets(shared):
    try:

        @picture("Blocks")
        def blocks_only(run, *, ax):
            """How many blocks there are."""
            return f"{run.grid} blocks"

        assert "(2, 2, 1) blocks" in alt(widgets.blocks_only(shared))
    finally:
        del PICTURES["blocks_only"]


def test_the_listing_s_menu_says_that_no_line_is_chosen():
    run = gemm_run("shared", 32, 32, 32)
    run.by_line = {3: {"ptx_instructions": 7}}
    panel = widgets.listing(run, line=1)  # nothing was counted there, so it is not in the menu
    assert panel._fields["line"].label == "no line" and "PTX (virtual)" not in panel.shown
    panel.set(line=3)
    code, table = panel.shown.index("PTX (virtual)"), panel.shown.index("<caption>Each line")
    assert code < table, "the code stands by the menu that asks for it, not behind a listing of many screens"


def test_pictures_with_nothing_to_show_are_left_out_with_the_reason():
    run = one_load(4 * np.arange(32))
    explorer = widgets.explore(run)
    names = [name for _, name in explorer.choice.options]
    assert "coalescing" in names and not {"banks", "layout", "shared_reads", "stepper"} & set(names)
    said = explorer.children[-1].value
    assert "<b>Banks, Layout</b>: This kernel makes no access to shared memory" in said and "Shared reads" in said
    asked = widgets.explore(run, picture="banks")  # what a cell asks for says it itself
    assert asked.choice.value == "banks" and "no access to shared memory" in alt(asked.panel)
    pair = widgets.compare(run, one_load(4 * np.arange(32), space="shared"))
    assert {"coalescing", "banks"} <= {name for _, name in pair.choice.options}  # of one of the two
