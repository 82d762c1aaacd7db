"""Every source the reader ran can be had again, with what was said of it, and the lesson's own."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import pytest
from IPython.core.interactiveshell import InteractiveShell

from helpers.course import history as module
from helpers.course import notebook_file, steps, store
from helpers.course.exercises import exercise
from helpers.course.history import History, Version, history, keep, restore, shipped
from helpers.errors import CourseError
from helpers.front import magics, notebooks

NAIVE = steps.get("naive").kernel_path.read_text(encoding="utf-8").rstrip()


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch, make_home):
    own = make_home(tmp_path / "home")
    monkeypatch.setenv("GEMM_LADDER_HOME", str(own))
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    monkeypatch.setattr(module, "_functions", {})
    store._store.cache_clear()
    yield own
    store._store.cache_clear()


@pytest.fixture
def shell():
    shell = InteractiveShell()
    magics.load_ipython_extension(shell)
    yield shell
    InteractiveShell.clear_instance()


@pytest.mark.parametrize("cell", [["a"], 3, None, "", " "], ids=repr)
@pytest.mark.parametrize("call", [history, restore])
def test_what_is_no_name_of_a_cell_is_a_sentence(call, cell):
    with pytest.raises(CourseError, match=f"^{re.escape(repr(cell))} is no name of a cell: give the one behind %%cuda, or .* 'naive'.$"):
        call(cell)


def ran(shell, text: str):
    return shell.run_cell(text, store_history=True)


def test_what_was_run_is_there_again_with_what_was_said_of_it(shell, capsys):
    right = f"%%cuda naive\n{NAIVE}"
    wrong, broken = right.replace("sum += a * b", "sum -= a * b"), right.replace("float sum = 0;", "float total = 0;")
    assert len({right, wrong, broken}) == 3
    for text in (right, wrong, broken, wrong):
        ran(shell, text)
        if text != broken:
            ran(shell, "naive.check()")
    own = shell.user_ns["naive"].history()
    assert [(version.number, version.text, version.runs) for version in own.versions] == [
        (0, right, 0), (1, right, 1), (2, wrong, 2), (3, broken, 1),
    ]  # fmt: skip
    said = [version.says for version in own.versions]
    assert said[:2] == ["", "passed"] and "shapes right" in said[2] and said[3].startswith("did not compile, line ")
    assert own[2] == wrong and str(restore("naive", 2)) == wrong and restore("naive") == right
    shown = str(own)
    assert "+1 −1" in shown and "(2 times)" in shown and "did not compile" in shown
    assert "sum -= a * b" in own._repr_html_() and "<details>" in own._repr_html_()


def test_a_cell_that_did_not_compile_still_has_its_way_back(shell):
    ran(shell, "%%cuda naive\nthis is no CUDA")
    own = shell.user_ns["naive"]
    assert isinstance(own, magics.NotCompiled) and len(own.history().versions) == 2
    assert restore("naive") == own.restore() == f"%%cuda naive\n{NAIVE}"
    with pytest.raises(CourseError, match="did not compile"):
        own.check()


def test_functions_of_exercises_are_kept_too(shell):
    text = "def intensity(m, n, k):\n    return 2 * m * n * k"
    ran(shell, text)
    exercise("intensity").check(shell.user_ns["intensity"])
    own = history("intensity")
    assert [version.text for version in own.versions] == [exercise("intensity").starter, text]
    assert own.versions[1].says.startswith("intensity(")
    ran(shell, exercise("intensity").solution)
    exercise("intensity").check(shell.user_ns["intensity"])
    assert [version.says for version in history("intensity").versions][2] == "passed"


@pytest.mark.parametrize(
    ("answer", "refused"),
    [
        ("def intensity(m, n, k):\n    return 2 * m * n * k / (4 * (m * k + k * n + m * n))", ""),
        ("import numpy as np\ndef intensity(m, n, k):\n    return np.divide(m * n * k, 2 * (m * k + k * n + m * n))", "line 3: `np.divide`"),
        ("def intensity(m, n, k):\n    try:\n        return m * n * k / (2 * (m * k + k * n + m * n))\n    finally:\n        pass", "line 2: `try`"),
        ("import os\ndef intensity(m, n, k):\n    return m * n * k / (2 * (m * k + k * n + m * n))", "line 1: importing"),
        ("def intensity(m, n, k):\n    return product(m, n, k) / (2 * (m * k + k * n + m * n))", "product"),
    ],
)  # fmt: skip
def test_the_check_says_what_a_grader_will_refuse(shell, answer, refused):
    ran(shell, "def product(*factors):\n    return factors[0] * factors[1] * factors[2]")
    ran(shell, answer)
    report = exercise("intensity").check(shell.user_ns["intensity"])
    assert report.passed and bool(report.ungraded) == bool(refused)
    assert refused in report.ungraded and ("as it stands" in str(report)) == bool(refused)


def test_the_course_s_own_kernels_leave_no_verdict(shell):
    from helpers.course.lesson import reference

    ran(shell, "%%cuda naive\nbroken")
    reference("naive").check(on="cpu")
    assert history("naive").versions[1].says.startswith("did not compile")


def test_every_cell_of_a_lesson_that_can_be_edited_can_be_had_back():
    """Every kernel and every exercise's cell of every notebook, as `course sync` writes it."""
    seen = 0
    for path in notebooks.paths():
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            text = notebook_file.source(cell)
            tags = [tag.removeprefix(steps.EXERCISE) for tag in cell["metadata"].get("tags", ()) if tag.startswith(steps.EXERCISE)]
            names = tags or ([text.split("\n", 1)[0].split()[1]] if text.startswith("%%cuda") else [])
            for name in names:
                module.os.environ["JPY_SESSION_NAME"] = f"/somewhere/{path.name}"
                try:
                    assert shipped(name) is not None and (tags == [] or shipped(name) == text)
                finally:
                    del module.os.environ["JPY_SESSION_NAME"]
                seen += 1
    assert seen >= 40


def test_the_lesson_that_is_open_comes_first(tmp_path, monkeypatch):
    (tmp_path / "notebooks").mkdir()
    for name in ("00_a", "01_b"):
        cell = {"cell_type": "code", "id": "x", "metadata": {}, "source": [f"%%cuda both\n// {name}"]}
        (tmp_path / "notebooks" / f"{name}.ipynb").write_text(json.dumps({"nbformat": 4, "cells": [cell]}))
    monkeypatch.setattr(steps, "ROOT", tmp_path)
    assert shipped("both").endswith("00_a")
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/me/lessons/01_b.ipynb")
    assert shipped("both").endswith("01_b")
    assert shipped("none") is None
    (tmp_path / "notebooks" / "01_b.ipynb").write_text("{")
    assert shipped("both").endswith("00_a"), "a lesson that cannot be read hides no other"


def test_a_version_that_does_not_exist_is_a_sentence():
    with pytest.raises(CourseError, match="naive has no version 7. There are: 0"):
        restore("naive", 7)
    with pytest.raises(CourseError, match="has not been run yet"):
        restore("unheard_of")
    for odd in (None, "1", 1.5, -1):
        with pytest.raises(CourseError, match="no version"):
            restore("naive", odd)


def test_a_kernel_that_no_lesson_has_goes_back_to_the_reader_s_versions_alone():
    keep("of_mine", "%%cuda of_mine\none")
    keep("of_mine", "%%cuda of_mine\ntwo")
    assert "lesson" not in str(history("of_mine"))
    with pytest.raises(CourseError, match=r"of_mine is in no lesson, .* There are: 1, 2\."):
        restore("of_mine")
    assert restore("of_mine", 1).endswith("one")
    keep("naive", "%%cuda naive\n")
    assert "restore('naive') the lesson's own" in str(history("naive"))


def test_in_a_notebook_the_text_comes_as_a_new_cell(monkeypatch, capsys):
    cells = []
    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(kernel=True, set_next_input=cells.append))
    assert restore("naive") is None
    assert cells == [f"%%cuda naive\n{NAIVE}"] and "your own cell is as you left it" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "\0", "\ud800", "é" * 100_000, "'; DROP TABLE runs; --", "\r\n\r\n"])
def test_any_text_can_be_kept(text):
    keep("odd", text)
    keep("odd", text)
    (version,) = history("odd").versions
    assert version.runs == 2 and version.text == text.encode(errors="replace").decode()
    str(history("odd")), history("odd")._repr_html_()


def test_where_nothing_can_be_saved_the_session_has_its_history(home, monkeypatch, capsys):
    (home / "file").write_text("in the way")
    monkeypatch.setenv("GEMM_LADDER_HOME", str(home / "file" / "folder"))
    keep("odd", "1")
    assert [version.text for version in history("odd").versions] == ["1"]
    assert capsys.readouterr().err.count("cannot be saved") == 1


def test_two_notebooks_share_one_history():
    one, other = store.Store(), store.Store()
    keep("odd", "1", one)
    keep("odd", "2", other)
    keep("odd", "1", other)
    assert [(version.text, version.runs) for version in history("odd", one).versions] == [("1", 2), ("2", 1)]


def test_an_empty_history_is_shown():
    assert "not been run yet" in str(History("x", ())) and History("x", (Version(0, "a"),))._repr_html_()
