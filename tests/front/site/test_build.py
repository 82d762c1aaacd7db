"""The site around the lessons: what is found, what is linked, and what is left alone.

Tests of: helpers.front.site.executed
"""

import re

import nbformat
import pytest

from helpers.course.steps import STEPS, get
from helpers.errors import CourseError
from helpers.front.site import build, executed, trials
from helpers.front.site.lesson_html import PageSection


def test_lessons_are_named_by_number_or_slug_and_come_in_the_order_of_the_table():
    assert [step.number for step in build.steps(["shared_tile", "01"])] == [1, 3]
    assert build.steps([]) == list(STEPS)
    with pytest.raises(CourseError, match="nowhere"):
        build.steps(["nowhere"])


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(CourseError, match="no site"):
        build.build(tmp_path)
    assert (tmp_path / "mine.txt").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("page", [build.home(STEPS), build.ladder(), build.validation(), build.sheet()], ids=lambda page: page.address)
def test_a_page_has_a_heading_and_can_be_found(page):
    assert page.content.count("<h1") == 1 and page.sections[0].title and f'id="{page.sections[0].anchor}"' in page.content


@pytest.mark.parametrize("numbers", [[1, 3], [4, 5]])
def test_home_names_no_page_to_try_that_is_not_there(numbers):
    content = build.home([get(number) for number in numbers]).content
    named = set(re.findall(r'href="(\d\d)_\w+\.html#try-it"', content))
    assert named == {f"{number:02}" for number in numbers if get(number) in trials.steps()}
    assert ("runs in your browser" in content) == bool(named)


def test_search_knows_every_section_and_cannot_end_its_script():
    page = build.Page("a.html", "A", "", (PageSection("Part", "Part", "</script> words"),))
    text = build.search_index([page])
    assert '"address": "a.html#Part"' in text and "</script>" not in text


def test_links_to_lessons_that_were_not_asked_for_are_words():
    assert build.without_links_to({"02.html"}, '<a href="02.html#x">two</a> <a href="01.html">one</a>') == 'two <a href="01.html">one</a>'


def test_a_lesson_is_executed_once_and_one_that_fails_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(executed, "SETUP", "")  # what widgets show is another test's, and takes seconds to import
    lesson = tmp_path / "one.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("print('seen')")]), lesson)
    said = []
    (first,) = [notebook for _, notebook in executed.executed([lesson], said.append)]
    (again,) = [notebook for _, notebook in executed.executed([lesson], said.append)]
    assert first.cells[0].outputs[0].text == "seen\n" and again.cells[0].outputs == first.cells[0].outputs
    assert "1 of 1" in said[0] and said[1] == "one.ipynb: as executed before"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")]), lesson)
    with pytest.raises(CourseError, match=r"one\.ipynb did not run.*ZeroDivisionError"):
        list(executed.executed([lesson], said.append))
