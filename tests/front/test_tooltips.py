"""Tooltips in the lessons, and the glossary's page."""

import re

import nbformat
import pytest

from helpers.course.glossary import PAGE, terms
from helpers.course.notebook_file import read, source
from helpers.course.steps import ROOT, STEPS
from helpers.front import slides, tooltips
from tests import must_be_as_synced

TERM = next(term for term in terms() if term.name == "bank conflict")


def lesson(*texts: str, slug: str = "bank_conflicts") -> list[str]:
    """The texts of a lesson's cells after its tooltips were written twice."""
    notebook = {"cells": [{"cell_type": "markdown", "source": text} for text in texts]}
    once = tooltips.with_tooltips(notebook, slug)
    assert tooltips.with_tooltips(once, slug) == once
    assert [tooltips.unmarked(cell["source"]) for cell in once["cells"]] == list(texts)
    return [cell["source"] for cell in once["cells"]]


def test_the_lecturer_s_notes_are_left_alone():
    cells = [
        {"cell_type": "markdown", "id": name, "metadata": {"slideshow": {"slide_type": kind}}, "source": "A bank conflict."}
        for name, kind in (("said", "notes"), ("read", "slide"))
    ]
    spoken, read = tooltips.with_tooltips({"cells": cells}, "bank_conflicts")["cells"]
    assert spoken["source"] == "A bank conflict." and "glossary.ipynb#bank-conflict" in read["source"]


def test_the_first_use_is_marked_and_no_other():
    first, second = lesson("Two **bank\nconflicts**.", "A bank conflict, and a bank.")
    assert first == f'Two **[bank\nconflicts](glossary.ipynb#bank-conflict "{TERM.means}")**.'
    assert second.startswith("A bank conflict, and a [bank](glossary.ipynb#bank ")


@pytest.mark.parametrize(
    "text",
    ["`bank conflict`", "```\nbank conflict\n```", "$bank conflict$", "$$bank\nconflict$$", "# A bank conflict", "> a bank conflict",
     "[bank conflict](06.ipynb)", "![bank conflict](x.png)", "<a title='bank conflict'>", "a memory-bank"],
)  # fmt: skip
def test_what_is_no_running_text_stays(text):
    assert lesson(text) == [text]


def test_a_word_that_means_something_else_stays():
    assert lesson("Its registers lie in two banks, of the FP32 lanes.", slug="schedule") == [
        "Its registers lie in two banks, of the FP32 lanes."
    ]
    for slug in ("bank_conflicts", "warp_tile"):  # the phases of a wide load are none of an mbarrier
        assert lesson("Two phases become one.", slug=slug) == ["Two phases become one."]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_lesson_uses_the_terms_that_it_teaches_and_marks_each_once(step):
    text = "\n".join(source(cell) for cell in read(step.notebook_path)["cells"] if cell["cell_type"] == "markdown")
    marked = re.findall(rf"\({PAGE}#(\S+) ", text)
    assert len(marked) == len(set(marked))
    assert {term.anchor for term in terms() if term.step == step} <= set(marked)


def test_the_page_lists_all_terms_and_is_as_synced():
    from helpers.front import notebooks

    path = ROOT / "notebooks" / PAGE
    must_be_as_synced(path, notebooks.wanted_text(path))
    headings = re.findall(r"^### (.+)$", source(read(path)["cells"][1]), re.MULTILINE)
    assert headings == sorted((term.name for term in terms()), key=str.lower)


def test_slides_have_tooltips_and_no_links_to_a_page_that_is_not_there():
    cell = nbformat.v4.new_markdown_cell(lesson("A bank conflict.")[0], metadata={"slideshow": {"slide_type": "slide"}})
    page = slides.page(nbformat.v4.new_notebook(cells=[cell]), "x")
    assert f'<abbr title="{TERM.means}">bank conflict</abbr>' in page and "glossary" not in page
