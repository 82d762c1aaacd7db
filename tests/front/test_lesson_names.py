"""helpers.front.lesson_names: whoever runs a cell before another that it needs is told which one that is."""

from __future__ import annotations

import ast
import builtins

import pytest

from helpers.course import notebook_file, steps
from helpers.front.lesson_names import SET_UP, bound, called, defining
from helpers.front.magics import missing_name_hint

LESSONS = sorted(path.stem for path in (steps.ROOT / "notebooks").glob("[0-9]*.ipynb"))


def code(lesson: str) -> list[str]:
    cells = notebook_file.read(steps.ROOT / "notebooks" / f"{lesson}.ipynb")["cells"]
    return [notebook_file.source(cell) for cell in cells if cell["cell_type"] == "code"]


def used(text: str) -> set[str]:
    """The names that a cell reads."""
    if text.startswith("%"):
        return set()
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return set()
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)} - set(dir(builtins))


@pytest.mark.parametrize("lesson", LESSONS)
def test_every_name_of_another_cell_has_a_sentence_that_leads_to_it(lesson, monkeypatch):
    monkeypatch.setenv("JPY_SESSION_NAME", f"/somewhere/{lesson}.ipynb")
    texts = code(lesson)
    set_up = next(text for text in texts if text.startswith(SET_UP))
    known = {name: text for text in reversed(texts) for name in bound(text)}
    asked = 0
    for text in texts:
        for name in used(text) & known.keys() - set(bound(text)):
            said, asked = missing_name_hint(name, text), asked + 1
            assert said.startswith(f"{name} is not defined yet. Run ") and called(known[name]) in said
            assert ("set-up cell" in said) == (known[name] == set_up)
    assert asked > 10 and "widgets" in set(bound(set_up))


@pytest.mark.parametrize(
    ("name", "said"),
    [("compare_counts", "the set-up cell"), ("steps", "the set-up cell"), ("class_ladder", "the set-up cell"), ("filed", "“path = steps.get("),
     ("mine", "begins with %%cuda mine first"), ("run", "“run = mine.gemm(")],
)  # fmt: skip
def test_lesson_20_in_the_middle(name, said, monkeypatch):
    monkeypatch.setenv("JPY_SESSION_NAME", "20_your_kernel.ipynb")
    assert said in missing_name_hint(name)


def test_what_the_running_cell_would_bind_itself_is_no_other_cell_s():
    (text,) = [text for text in code("20_your_kernel") if "filed = " in text]
    assert defining("20_your_kernel", "filed") == text and defining("20_your_kernel", "filed", f"{text}\n") == ""


def test_outside_of_lessons_what_the_course_has_is_imported(monkeypatch):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    assert missing_name_hint("compare_counts").endswith("write: from helpers import compare_counts")
    assert missing_name_hint("nobody_s") == ""


def test_only_what_a_cell_binds_counts():
    text = "import a.b, c as d\nfrom e import f\ng, (h, *i) = 1, (2,)\nfor j in k: l = [m for m in n]\ndef o(p): q = 1\nwith r as s: t: int = 1"
    assert set(bound(text)) == set("adfghijlost")
    assert list(bound("%%cuda mine --arch sm_90\nint x;")) == ["mine"] and list(bound("def half(")) == []
