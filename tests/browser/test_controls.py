"""Every kind of control, as a reader uses it: by mouse and by keyboard, one notebook and one page for all."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

NAME = "controls.ipynb"
CELLS = {
    "set-up": "%load_ext helpers\nfrom helpers import TraceFilter, reference, widgets\nfrom helpers.progress import Progress\nimport time",
    "runs": "before, after = (reference(name).gemm(64, on='cpu', trace=TraceFilter(math=True)) for name in ('naive', 'shared_tile'))",
    "coalescing": "widgets.coalescing(after)",
    "tiles": "widgets.tiles(after)",
    "compare": "widgets.compare(before, after, 'tiles')",
    "show": "reference('shared_tile').show(size=64)",
    "raises": "%%cuda broken\n__global__ void broken(float* x) { x[0] = y; }",
    "raises-too": "broken.show()",
    "odd": "widgets.banks(before)",
    "printed": "print('a line of long words, longer than the page is wide, ' * 12 + 'x' * 600)",
    "slow": "with Progress('counting') as progress:\n    for i in range(6000 * go):\n        progress(i, 6000)\n        time.sleep(0.01)",
}  # fmt: skip
INDEX = {name: number for number, name in enumerate(CELLS)}


@pytest.fixture(scope="module")
def opened(lab, open_shared):
    lab.write(NAME, CELLS | {"runs": f"go = False\n{CELLS['runs']}"})
    return open_shared(NAME).run_all()


@pytest.fixture
def notebook(opened, no_complaints):
    return opened


def cell_of(notebook, name):
    return notebook.show(INDEX[name])


def slider(cell, label, nth=0):
    return cell.locator(f".widget-slider:has(.widget-label:text-is('{label}'))").nth(nth).locator("[role='slider']")


def press(notebook, target, key) -> None:
    target.focus()
    notebook.page.keyboard.press(key)


def test_everything_ran_and_every_picture_has_words(notebook):
    assert [text.split(":")[0] for text in notebook.error_outputs()] == ["CompileError", "CourseError"]
    for name in ("coalescing", "tiles", "compare", "show", "odd"):
        words = notebook.alternatives(cell_of(notebook, name))
        assert words and all(len(text) > 20 for text in words)


def test_block_warp_and_iteration_move_by_keyboard(notebook):
    cell = cell_of(notebook, "coalescing")
    for label, key, text in (
        ("block", "ArrowRight", "block (1, 0), warp 0, iteration 0"),
        ("warp", "End", "block (1, 0), warp 31, iteration 0"),
        ("iteration", "ArrowRight", "block (1, 0), warp 31, iteration 1"),
        ("block", "Home", "block (0, 0), warp 31, iteration 1"),
    ):
        press(notebook, slider(cell, label), key)
        notebook.wait_for(cell, text)


def test_a_menu_chooses_the_line(notebook):
    cell = cell_of(notebook, "coalescing")
    press(notebook, cell.locator("select"), "ArrowDown")
    notebook.wait_for(cell, "one load of B")
    cell.locator("select").select_option(index=2)
    notebook.wait_for(cell, "one store to C")


def test_the_state_survives_running_the_cell_again(notebook):
    cell = cell_of(notebook, "coalescing")
    press(notebook, slider(cell, "warp"), "Home")
    press(notebook, slider(cell, "warp"), "ArrowRight")
    notebook.wait_for(cell, "one store to C")
    notebook.wait_for(cell, "warp 1,")
    shown = notebook.alternatives(cell)
    notebook.run_cell(INDEX["coalescing"])
    notebook.wait_until_idle()
    cell = cell_of(notebook, "coalescing")
    notebook.wait_for(cell, shown[0])


def test_buttons_step_forward_and_back_and_play(notebook):
    cell = cell_of(notebook, "tiles")
    notebook.wait_for(cell, "Step 0 (of 0 to 1)")
    cell.get_by_title("step along K: one forward").click()
    notebook.wait_for(cell, "Step 1 (of 0 to 1)")
    press(notebook, cell.get_by_title("step along K: one back"), "Enter")
    notebook.wait_for(cell, "Step 0 (of 0 to 1)")
    cell.locator(".jupyter-widgets.widget-play button").first.click()
    notebook.wait_for(cell, "Step 1 (of 0 to 1)")


def test_a_menu_brings_the_slider_that_belongs_to_it(notebook):
    cell = cell_of(notebook, "tiles")
    assert slider(cell, "thread").count() == 0
    cell.locator("select").select_option(label="one thread")
    notebook.wait_for(cell, "thread (0, 0)")
    press(notebook, slider(cell, "thread"), "ArrowRight")
    notebook.wait_for(cell, "thread (1, 0)")


def test_a_player_that_plays_is_stopped_when_a_menu_replaces_it(notebook):
    cell = cell_of(notebook, "tiles")
    for shown, chosen, text in (("the block", "one thread", "Step "), ("one thread", "the block", "thread (")):
        cell.locator("select").select_option(label=shown)
        notebook.wait_for(cell, text)
        play = cell.locator(".jupyter-widgets.widget-play button").first
        play.click()
        cell.locator("select").select_option(label=chosen)
        notebook.page.wait_for_timeout(1000)  # two of its steps; what it says to nobody is an error on the page
        assert play.count() == 1


def test_comparing_moves_both_sides_in_any_picture(notebook):
    cell = cell_of(notebook, "compare")
    press(notebook, slider(cell, "block"), "End")
    notebook.page.wait_for_function(
        "cell => [...cell.querySelectorAll('img')].filter(image => image.alt.includes('block (1, 1)')).length == 2",
        arg=cell.element_handle(),
    )
    cell.get_by_role("button", name="Coalescing").click()
    notebook.wait_for(cell, "32 sectors for one load of A")
    notebook.wait_for(cell, "4 sectors for one load of A")


def test_the_explorer_opens_pictures_and_the_stepper_steps(notebook):
    cell = cell_of(notebook, "show")
    press(notebook, cell.get_by_role("button", name="Banks"), "Enter")
    notebook.wait_for(cell, "wavefront")
    cell.get_by_role("button", name="Step by step").click()
    notebook.wait_for(cell, "Step 0 (of")
    cell.get_by_title("step: one forward").click()
    notebook.wait_for(cell, "Step 1 (of")
    assert "source" in cell.inner_text() and "PTX" in cell.inner_text() and "writes" in cell.inner_text()
    press(notebook, slider(cell, "step"), "ArrowRight")
    notebook.wait_for(cell, "Step 2 (of")
    press(notebook, cell.get_by_title("step: one back"), "Enter")
    notebook.wait_for(cell, "Step 1 (of")


def test_pictures_are_saved_as_svg_and_png(notebook):
    cell = cell_of(notebook, "tiles")
    cell.get_by_role("button", name="Save picture").click()
    for name, start in (("shared_tile-tiles.svg", b"<?xml"), ("shared_tile-tiles.png", b"\x89PNG")):
        with notebook.page.expect_download() as download:
            cell.get_by_role("link", name=name).click()
        assert download.value.suggested_filename == name
        assert download.value.path().read_bytes().startswith(start)


def test_tab_reaches_every_control(notebook):
    cell = cell_of(notebook, "tiles")
    controls = cell.locator("select:visible, .noUi-target:not([disabled]) [role='slider']:visible, .jp-OutputArea button:enabled:visible")
    wanted = controls.count()
    assert wanted >= 7
    controls.first.focus()
    reached = 0
    for _ in range(2 * wanted):
        reached += controls.evaluate_all("found => found.includes(document.activeElement)")
        if reached == wanted:
            break
        notebook.page.keyboard.press("Tab")
    assert reached == wanted


def test_what_cannot_be_shown_says_why(notebook):
    notebook.wait_for(cell_of(notebook, "odd"), "no access to shared memory")
    assert "broken did not compile" in cell_of(notebook, "raises-too").inner_text()
    assert 'identifier "y" is undefined' in cell_of(notebook, "raises").inner_text()


def test_a_printed_line_goes_on_at_a_space_and_a_long_word_within_the_page(notebook):
    cell = cell_of(notebook, "printed")
    text = cell.locator(".jp-OutputArea-output pre").first
    lines = text.evaluate(
        """pre => {
            const node = document.createTreeWalker(pre, NodeFilter.SHOW_TEXT).nextNode();
            return [...node.data.matchAll(/\\S+/g)].map(word => {
                const range = document.createRange();
                range.setStart(node, word.index);
                range.setEnd(node, word.index + word[0].length);
                return new Set([...range.getClientRects()].map(box => Math.round(box.top))).size;
            });
        }"""
    )
    assert set(lines[:-1]) == {1} and lines[-1] > 1 and text.bounding_box()["height"] > 60
    assert notebook.overflowing(cell) == []


def test_the_dark_theme_turns_pictures_dark(notebook):
    def brightness(theme):
        notebook.set_theme(theme)
        image = cell_of(notebook, "coalescing").locator("img").first
        image.scroll_into_view_if_needed()
        return np.asarray(Image.open(io.BytesIO(image.screenshot())).convert("L")).mean()

    dark = brightness("JupyterLab Dark")
    notebook.screenshot("controls-dark")
    light = brightness("JupyterLab Light")
    assert dark < 90 < 200 < light


def test_the_stop_button_stops_a_running_cell(notebook):
    notebook.page.evaluate(
        """async () => {
            const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
            await kernel.requestExecute({code: 'go = True'}).done;
        }"""
    )
    notebook.run_cell(INDEX["slow"])
    stop = notebook.page.locator("button.gemm-ladder-stop")
    stop.wait_for(timeout=20000)
    assert stop.inner_text().strip() == "Stop"
    stop.click()
    notebook.wait_until_idle()
    assert [text for text in notebook.error_outputs() if text.startswith("KeyboardInterrupt")]
    assert stop.count() == 0
