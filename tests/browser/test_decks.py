"""A page of slides works from a file: reveal.js starts, keys turn the slides, formulas are drawn, nothing is fetched."""

from __future__ import annotations

import nbformat
import pytest

from helpers.front import slides

SLIDE = {"slideshow": {"slide_type": "slide"}}


@pytest.fixture
def deck(chromium, complaints, tmp_path):
    """A page with four slides, open in Chromium without a network."""
    kernel = "%%cuda naive\n__global__ void naive(float* x) {\n" + "    x[threadIdx.x] += 1;\n" * 60 + "}"
    picture = {"image/svg+xml": '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20"><text y="15">a</text></svg>'}
    drawn = nbformat.v4.new_code_cell(
        "draw(" + "1, " * 200 + "1)", outputs=[nbformat.v4.new_output("display_data", picture)], metadata=SLIDE
    )
    cells = [
        nbformat.v4.new_markdown_cell("# First\n\n$$I = \\frac{2MNK}{4(MK+KN+MN)}$$", metadata=SLIDE),
        nbformat.v4.new_code_cell(kernel, metadata=SLIDE),
        nbformat.v4.new_markdown_cell("# Third", metadata=SLIDE),
        drawn,
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "deck.ipynb")
    slides.build([str(tmp_path / "deck.ipynb")], str(tmp_path), execute=False)
    context = chromium.new_context(viewport={"width": 1280, "height": 800}, offline=True)
    page = context.new_page()
    complaints.watch(page, "")
    page.goto((tmp_path / "deck.slides.html").as_uri())
    yield page
    context.close()


def test_keys_turn_the_slides(deck):
    deck.wait_for_function("() => Reveal.isReady()")
    assert deck.evaluate("() => Reveal.getTotalSlides()") == 4
    deck.keyboard.press("ArrowRight")
    assert deck.evaluate("() => Reveal.getIndices().h") == 1


def test_a_formula_is_drawn_as_a_formula(deck):
    box = deck.locator("section.present mfrac").bounding_box()
    assert box["width"] > 100
    assert box["height"] > 40


def test_a_long_listing_scrolls_in_its_slide(deck):
    deck.keyboard.press("ArrowRight")
    slide = deck.locator("section section.present")
    assert slide.evaluate("element => element.scrollHeight > element.clientHeight && element.clientHeight <= 800")


def test_a_long_slide_is_gone_through_before_the_next_one_comes(deck):
    """By the keys of who lectures, and those of a clicker; a mark says that there is more."""

    def stands() -> tuple[int, bool, bool]:
        """Which slide, whether all of it was seen, and whether the mark is there."""
        deck.wait_for_timeout(100)
        return tuple(deck.evaluate("() => [Reveal.getIndices().h, rest(Reveal.getCurrentSlide()) < 2, !below.hidden]"))

    deck.wait_for_function("() => Reveal.isReady()")
    assert stands() == (0, True, False)
    deck.keyboard.press("Space")
    assert stands() == (1, False, True)
    keys = ["Space", "PageDown"] * 3
    while stands()[:2] == (1, False):
        deck.keyboard.press(keys.pop())
    assert stands() == (1, True, False)
    deck.keyboard.press("PageDown")
    assert stands() == (2, True, False)
    deck.keyboard.press("PageUp")
    assert stands() == (1, True, False)
    deck.keyboard.press("PageUp")
    assert stands() == (1, False, True)
    deck.locator(".below").click()
    assert stands() == (1, True, False)
    deck.evaluate("() => Reveal.slide(0)")
    deck.keyboard.press("ArrowRight")
    assert stands() == (1, False, True), "it begins at its top again"
    deck.keyboard.press("ArrowRight")
    assert stands() == (2, True, False)


def test_a_long_line_of_code_is_not_cut(deck):
    deck.wait_for_function("() => Reveal.isReady()")
    deck.evaluate("() => Reveal.slide(3)")
    code = deck.locator("section.present .jp-InputArea-editor pre")
    assert code.evaluate("element => element.scrollWidth <= element.clientWidth") and code.bounding_box()["height"] > 40


def test_a_picture_fills_the_screen_and_the_page_turns_dark(deck):
    deck.wait_for_function("() => Reveal.isReady()")
    deck.evaluate("() => Reveal.slide(3)")
    deck.keyboard.press("z")
    assert deck.locator(".whole > *").bounding_box()["height"] == 800
    deck.keyboard.press("z")
    assert deck.locator(".whole").count() == 0
    deck.keyboard.press("t")
    assert deck.evaluate("() => getComputedStyle(document.body).backgroundColor") == "rgb(17, 17, 17)"
