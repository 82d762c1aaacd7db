"""Slides are whole in one file: nothing in them asks for the network, and what a widget shows is in them.

Tests of: helpers.front.empty_home
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from html.parser import HTMLParser

import nbformat
import psutil
import pytest

from helpers.course import store
from helpers.course.steps import STEPS
from helpers.errors import CourseError
from helpers.front import slides

WIDGET = """import ipywidgets
@ipywidgets.interact(n=ipywidgets.IntSlider(3, 1, 9))
def draw(n):
    print("seen at", n)
"""
TABS = """from ipywidgets import HTML, Tab
Tab([HTML("front tab"), HTML("hidden tab")], selected_index=0)
"""
MARKDOWN = "# One lesson\n\nIt costs $2MNK$ and\n\n$$I = \\frac{2MNK}{4(MK+KN+MN)}$$\n\nSee [a page](https://example.com) and [the next](02_two.ipynb)."


@pytest.fixture(scope="module")
def lesson(tmp_path_factory):
    """A notebook with formulas, a CUDA cell, a widget and a second slide."""
    slide = {"slideshow": {"slide_type": "slide"}}
    cells = [
        nbformat.v4.new_markdown_cell(MARKDOWN, metadata=slide),
        nbformat.v4.new_code_cell(
            "from IPython.core.magic import register_cell_magic\nregister_cell_magic('cuda')(lambda line, cell: None);"
        ),
        nbformat.v4.new_code_cell("%%cuda naive\n__global__ void naive(float* x) {}", metadata=slide),
        nbformat.v4.new_code_cell(WIDGET),
        nbformat.v4.new_code_cell(TABS),
    ]
    path = tmp_path_factory.mktemp("lesson") / "01_one.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


@pytest.fixture(scope="module")
def html(lesson):
    assert slides.build([str(lesson)], str(lesson.parent / "pages")) == 0
    return (lesson.parent / "pages" / "01_one.slides.html").read_text(encoding="utf-8")


class References(HTMLParser):
    """The addresses that a browser would load to show the page: everything but links to click."""

    def __init__(self, text: str):
        super().__init__()
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("src", "href", "data", "poster") and tag != "a" and value and not value.startswith(("data:", "#")):
                self.loaded.append(value)


def test_the_page_loads_nothing(html):
    assert References(html).loaded == []
    styles = "".join(re.findall(r"<style.*?</style>", html, re.DOTALL))
    assert re.findall(r"@import|url\(\s*['\"]?(?!data:)[a-z]", styles) == []


def test_the_check_for_references_finds_one():
    assert References('<script src="https://example.com/x.js"></script><a href="https://example.com">').loaded == [
        "https://example.com/x.js"
    ]


def test_formulas_are_mathml(html):
    assert html.count("<math ") == 2
    assert "<mfrac>" in html
    assert "It costs <math " in html


def test_a_link_to_a_lesson_leads_to_its_page(html):
    assert 'href="02_two.slides.html"' in html


def test_the_title_is_the_first_heading(html):
    assert "<title>One lesson</title>" in html


def test_cuda_is_coloured_as_cuda(html):
    assert re.search(r'<span class="k[a-z]*">__global__</span>', html)


def test_a_widget_is_what_it_shows(html):
    assert "seen at 3" in html
    assert "widget-view" not in html


def test_of_tabs_the_one_in_front_is_shown(html):
    outputs = "".join(re.findall(r'<div class="jp-OutputArea-child.*?</div>', html, re.DOTALL))
    assert "front tab" in outputs
    assert "hidden tab" not in outputs


def test_the_choices_of_a_question_are_shown(tmp_path):
    """Not which one somebody chose, and not as code."""
    state = {
        "a": {"model_name": "RadioButtonsModel", "state": {"_options_labels": ["<b>fewer</b>", "more"], "index": 1}},
        "b": {"model_name": "VBoxModel", "state": {"children": ["IPY_MODEL_a"]}},
    }
    output = nbformat.v4.new_output("display_data", {slides.WIDGET_VIEW: {"model_id": "b"}})
    cell = nbformat.v4.new_code_cell("ask()", outputs=[output])
    slides.freeze_widgets(made := nbformat.v4.new_notebook(cells=[cell], metadata={"widgets": {slides.WIDGET_STATE: {"state": state}}}))
    (shown,) = made.cells[0].outputs
    assert shown.data["text/html"] == '<ol type="A"><li>&lt;b&gt;fewer&lt;/b&gt;</li><li>more</li></ol>'


QUESTION = """from helpers.course.questions import ask
ask("one.two", "How many?", choices=("only a few", "far too many"))
"""


def test_a_question_that_is_asked_has_its_choices_on_the_page(tmp_path):
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(QUESTION)]), tmp_path / "asks.ipynb")
    assert slides.build([str(tmp_path / "asks.ipynb")], str(tmp_path)) == 0
    assert "<li>only a few</li><li>far too many</li>" in (tmp_path / "asks.slides.html").read_text(encoding="utf-8")


def test_slides_follow_the_metadata(html):
    assert len(re.findall(r"<section\s*>\s*<section", html)) == 2


def test_a_cell_that_fails_is_named(tmp_path):
    path = tmp_path / "broken.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")]), path)
    with pytest.raises(CourseError, match="broken.ipynb did not run.*ZeroDivisionError"):
        slides.build([str(path)], str(tmp_path))
    assert slides.build([str(path)], str(tmp_path), execute=False) == 0


ANSWERS = """from helpers.course.store import own
print("found", [one.answer for one in own().answers()])
own().answer("secret.guess", 778, step=3)
from helpers.paths import cache_folder
(cache_folder("kernels") / "compiled").touch()
"""


def test_slides_neither_show_nor_change_the_progress_of_who_makes_them(tmp_path, monkeypatch):
    monkeypatch.setenv("GEMM_LADDER_HOME", str(tmp_path / "home"))
    store.own().answer("secret.guess", 777, step=3)
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(ANSWERS)]), tmp_path / "asks.ipynb")
    assert slides.build([str(tmp_path / "asks.ipynb")], str(tmp_path)) == 0
    assert "found []" in (tmp_path / "asks.slides.html").read_text(encoding="utf-8")
    assert [one.answer for one in store.own().answers()] == [777]
    assert (tmp_path / "home" / "cache" / "kernels" / "compiled").exists(), "what was compiled is shared"


@pytest.mark.parametrize("name", ["3", "03", "shared_tile", "03_shared_tile"])
def test_a_lesson_is_named_by_its_number(name, tmp_path):
    assert slides.build([name], str(tmp_path), execute=False) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["03_shared_tile.slides.html"]


def test_what_is_no_notebook_is_refused(tmp_path):
    with pytest.raises(CourseError, match="not a notebook"):
        slides.build([str(tmp_path / "none.ipynb")], str(tmp_path))
    with pytest.raises(CourseError, match="There is no step '99'.* by its file"):
        slides.build(["99"], str(tmp_path))
    (tmp_path / "text.ipynb").write_text("hello")
    with pytest.raises(CourseError, match="not a notebook"):
        slides.build([str(tmp_path / "text.ipynb")], str(tmp_path))


@pytest.mark.parametrize("widgets", [3, {slides.WIDGET_STATE: {"state": {"a": {"state": {"children": ["IPY_MODEL_a", "none"]}}, "b": 1}}}])
def test_damaged_widgets_show_nothing(tmp_path, widgets):
    output = nbformat.v4.new_output("display_data", {slides.WIDGET_VIEW: {"model_id": "a"}})
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1", outputs=[output])], metadata={"widgets": widgets})
    nbformat.write(notebook, tmp_path / "x.ipynb")
    assert slides.build([str(tmp_path / "x.ipynb")], str(tmp_path), execute=False) == 0


def test_a_folder_that_cannot_be_written_is_a_sentence(lesson, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CourseError, match="cannot be written"):
        slides.build([str(lesson)], str(tmp_path / "file"), execute=False)


SLIDE_TYPES = {"slide", "subslide", "fragment", "-", "skip", "notes"}


LESSONS = [step.notebook_path for step in STEPS if not step.bench]


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_every_cell_of_a_lesson_has_its_place_in_the_lecture(path):
    cells = nbformat.read(path, 4).cells
    types = [cell.metadata.get("slideshow", {}).get("slide_type") for cell in cells]
    assert {cell.id: kind for cell, kind in zip(cells, types, strict=True) if kind not in SLIDE_TYPES} == {}
    assert types[0] == "slide", f"the first cell of {path.name} has the slide type {types[0]!r}, not 'slide'"
    assert types.count("slide") >= 8, f"{path.name} has {types.count('slide')} cells of the slide type Slide; a lecture has 8 or more"
    shown = [types[index] for index, _ in enumerate(types) if types[index] not in ("skip", "notes")]
    assert len(shown) > len(types) / 2, "most of a lesson is shown"


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_tells_its_lecturer_what_to_ask_and_how_long_it_takes(path):
    assert wrong_notes(nbformat.read(path, 4).cells) == [], f"in {path.name}"


def wrong_notes(cells) -> list[str]:
    """What is wrong with a lesson's cells for its lecturer, as sentences."""
    notes = [cell for cell in cells if cell.metadata.get("slideshow", {}).get("slide_type") == "notes"]
    minutes = {cell.id: int(found[1]) for cell in notes if (found := re.match(r"\*\*(\d+) min\.\*\* ", cell.source))}
    said = [f"the Notes cell {cell.id!r} does not begin with its minutes, as `**3 min.** `" for cell in notes if cell.id not in minutes]
    said += [f"the Notes cell {cell.id!r} is no Markdown" for cell in notes if cell.cell_type != "markdown"]
    said += [f"the Notes cell {cell.id!r} has {n} words, more than 60" for cell in notes if (n := len(cell.source.split())) > 60]
    if len(notes) < 5:
        said.append(f"{len(notes)} cells have the slide type Notes; a lesson has 5 or more")
    elif not 15 <= sum(minutes.values()) <= 35:
        said.append(f"its Notes cells take {sum(minutes.values())} minutes together, and not 15 to 35")
    return said


def test_what_is_wrong_with_notes_is_said():
    def cell(name, text):
        return nbformat.v4.new_markdown_cell(text, id=name, metadata={"slideshow": {"slide_type": "notes"}})

    assert wrong_notes([]) == ["0 cells have the slide type Notes; a lesson has 5 or more"]
    right = [cell(f"n{i}", "**4 min.** Ask.") for i in range(4)]
    assert wrong_notes([*right, cell("e", "**4 min.** " + "word " * 40)]) == []
    assert wrong_notes([*right, cell("e", "Ask.")]) == ["the Notes cell 'e' does not begin with its minutes, as `**3 min.** `"]
    assert wrong_notes([*right, cell("e", "**90 min.** " + "word " * 60)]) == [
        "the Notes cell 'e' has 62 words, more than 60", "its Notes cells take 106 minutes together, and not 15 to 35",
    ]  # fmt: skip


def test_notes_are_for_the_lecturer_alone(html, lesson, tmp_path):
    notebook = nbformat.read(lesson, 4)
    notebook.cells.insert(1, nbformat.v4.new_markdown_cell("Ask the room.", metadata={"slideshow": {"slide_type": "notes"}}))
    page = slides.page(notebook, "One")
    assert re.search(r'<aside class="notes">((?!</aside>).)*Ask the room', page, re.DOTALL)
    assert page.count("Ask the room") == 1


WAITS = """import pathlib, time
pathlib.Path("begun").touch()
time.sleep(60)
"""
SENT: dict[str, Callable[[int, int], None]] = {"to the command alone": os.kill, "to its group, as a terminal does": os.killpg}


@pytest.mark.parametrize("sent", SENT)
@pytest.mark.parametrize("moment", ["while the kernel starts", "in a cell"])
def test_an_interrupt_ends_the_kernel_without_a_word_and_leaves_nothing(moment, sent, tmp_path):
    path, pages = tmp_path / "waits.ipynb", tmp_path / "pages"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(WAITS)]), path)
    command = [sys.executable, "-m", "helpers.front.cli", "slides", str(path), "--output", str(pages)]
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as course:
        try:
            kernels = _once(lambda: psutil.Process(course.pid).children())
            if moment != "while the kernel starts":
                _once((tmp_path / "begun").exists)
            SENT[sent](course.pid, signal.SIGINT)
            said = course.communicate(timeout=30)[0].decode()
        finally:
            course.kill()
    assert (course.returncode, said) == (130, "") and not pages.exists()
    assert psutil.wait_procs(kernels, timeout=10)[1] == []


def _once(there: Callable):
    """What is there, as soon as it is."""
    end = time.monotonic() + 60
    while not (found := there()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found
