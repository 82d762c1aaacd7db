"""A page says what its notebook says, holds its pictures in files, and leads to pages."""

import base64

import nbformat

from helpers.front.site.frames import MIME
from helpers.front.site.lesson_html import Pictures, body
from helpers.front.slides import WIDGET_VIEW

PNG = base64.b64encode(b"\x89PNG one").decode()
IMAGE = f'<img alt="a picture" src="data:image/png;base64,{PNG}">'
PANEL = {
    "controls": [{"name": "step", "label": "step", "slider": True, "values": ["1", "4", "<8>"], "at": 1}],
    "frames": {"": f"shown {IMAGE}", "step=0": f"first {IMAGE}", "step=2": "last"},
}


def page(tmp_path, *cells):
    return body(nbformat.v4.new_notebook(cells=list(cells)), Pictures(tmp_path / "pictures"))


def shown(tree):
    output = nbformat.v4.new_output("display_data", {MIME: tree, WIDGET_VIEW: {"model_id": "x"}, "text/html": "still"})
    return nbformat.v4.new_code_cell("panel", outputs=[output])


def test_text_links_and_formulas_become_a_page_and_notes_are_left_out(tmp_path):
    text = "# One\n\nSee [two](02_two.ipynb#there) and $x^2$.\n\n## Part\n\nwords below"
    notes = nbformat.v4.new_markdown_cell("**5 min.** secret", metadata={"slideshow": {"slide_type": "notes"}})
    made = page(tmp_path, nbformat.v4.new_markdown_cell(text), notes)
    assert 'href="02_two.html#there"' in made.content and "<math" in made.content and "secret" not in made.content
    assert [(part.title, part.anchor, part.level) for part in made.sections] == [("One", "One", 1), ("Part", "Part", 2)]
    assert made.sections[1].text == "words below"


def test_code_keeps_its_magic_and_cannot_break_out_of_the_page(tmp_path):
    made = page(tmp_path, nbformat.v4.new_code_cell("%%cuda <i>\nif (a < b) __syncthreads();"))
    assert "%%cuda &lt;i&gt;" in made.content and "&lt;" in made.content and "<i>" not in made.content


def test_a_widget_becomes_its_frames_and_a_picture_that_comes_twice_is_one_file(tmp_path):
    made = page(tmp_path, shown({"column": [PANEL, {"html": "<style>x</style>"}], "class": "ladder-compare"}))
    assert made.content.count('class="frame"') == 3 and made.content.count(" hidden>") == 2
    assert "1|4|&lt;8&gt;" in made.content and "<output>4</output>" in made.content and 'data-start="1"' in made.content
    assert 'class="column ladder-compare"' in made.content and "data:image" not in made.content
    assert [path.read_bytes() for path in (tmp_path / "pictures").iterdir()] == [base64.b64decode(PNG)]


def test_of_several_pictures_the_one_that_was_open_is_shown(tmp_path):
    made = page(tmp_path, shown({"choice": ["Banks", "Owners"], "at": 1, "parts": [{"html": "left"}, {"html": "right"}]}))
    assert '<div class="part" hidden>left</div><div class="part">right</div>' in made.content


def test_an_output_with_nothing_to_see_leaves_nothing(tmp_path):
    assert 'class="output"' not in page(tmp_path, shown({"column": [{"html": ""}]})).content
