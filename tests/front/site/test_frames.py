"""What is recorded of a widget is what it shows, and what it would show."""

import ipywidgets
import pytest

from helpers.front import widgets
from helpers.front.site import frames
from tests.views.view_builders import gemm_run


@pytest.fixture(scope="module")
def shared():
    return gemm_run("shared")


def test_a_panel_is_recorded_one_control_at_a_time_and_left_as_it_was(shared):
    panel = widgets.tiles(shared, state="frames")
    before = panel.values, panel.shown
    made = frames.tree(ipywidgets.VBox([panel]))["column"][0]
    (level, block, step) = made["controls"]
    assert (panel.values, panel.shown) == before == (panel.values, made["frames"][""])
    assert step == {"name": "step", "label": step["label"], "slider": True, "values": ["0", "1"], "at": 0} and not level["slider"]
    assert len(block["values"]) == 4 and "Step 1 (of 0 to 1)" in made["frames"]["step=1"] and "block (1, 1)" in made["frames"]["block=3"]
    assert len(made["frames"]) == 1 + sum(len(control["values"]) - 1 for control in made["controls"])


def test_a_row_of_pictures_is_recorded_with_each_picture(shared):
    made = frames.tree(widgets.explore(shared, pictures=["coalescing", "tiles"], picture="tiles"))["column"][0]
    assert made["at"] == 1 and all(part["frames"][""] for part in made["parts"])
    assert [len(part["controls"]) > 0 for part in made["parts"]] == [False, True]


def test_the_choices_of_a_question_are_there():
    made = frames.tree(ipywidgets.HBox([ipywidgets.RadioButtons(options=("a <b", "more"), value="more")]))
    assert made == {"row": [{"html": '<ol type="A"><li>a &lt;b</li><li>more</li></ol>'}]}


@pytest.mark.parametrize("at, most, chosen", [(0, 3, [0, 5, 9]), (9, 3, [0, 4, 9]), (4, 1, [4]), (3, 4, [0, 3, 6, 9])])
def test_few_values_stand_for_many_and_the_one_that_is_set_is_among_them(at, most, chosen):
    found = widgets._thinned(list(range(10)), at, most)
    assert at in found and len(found) == len(chosen) and found == sorted(found)
