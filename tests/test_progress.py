"""The progress bar: late, with one bar for nested work, and a Stop button that ends the work it belongs to."""

import sys
import threading
from types import SimpleNamespace

import ipywidgets
import pytest

from helpers import progress as module
from helpers.errors import CourseError
from helpers.progress import Progress


@pytest.fixture
def notebook(monkeypatch):
    """A notebook's kernel, as far as the bar asks; what was displayed, and what stands in its place afterwards."""
    shown = []

    def display(widget, display_id):
        assert display_id is True
        shown.append(widget)
        return SimpleNamespace(update=lambda data, raw: shown.append((data, raw)))

    monkeypatch.setattr(module, "_in_notebook", lambda: True)
    monkeypatch.setattr(module, "_PATIENCE", 0.0)
    monkeypatch.setattr(module, "_OFTEN", 0.0)
    monkeypatch.setattr("IPython.display.display", display)
    return shown


def test_quick_work_shows_nothing(monkeypatch, capsys):
    monkeypatch.setattr(module, "_in_notebook", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda _: pytest.fail("shown"))
    with Progress("counting") as progress:
        progress(1, 2)
    assert capsys.readouterr().err == ""


def test_the_bar_follows_the_work_and_goes_away(notebook):
    with Progress("counting") as progress:
        progress(0, 4)
        bar, button, label = notebook[0].children
        assert isinstance(button, ipywidgets.Button) and button.description == "Stop"
        progress(3, 4)
        assert (bar.value, bar.max) == (3, 4) and label.value.startswith("counting: 3 of 4")
    assert notebook[0].comm is None  # closed
    assert notebook[1:] == [({"text/html": ""}, True)]


def test_work_inside_work_has_no_bar_of_its_own(notebook):
    with Progress("outer") as outer:
        outer(1, 3)
        bar, _, label = notebook[0].children
        with Progress("inner") as inner:
            inner(7, 9)
        assert len(notebook) == 1 and (bar.value, bar.max) == (1, 3) and label.value.startswith("inner: 7 of 9")


def test_stop_interrupts_the_cell(notebook):
    with pytest.raises(KeyboardInterrupt), Progress("counting") as progress:
        progress(0, 10)
        presses = threading.Thread(target=notebook[0].children[1].click)
        presses.start()
        presses.join()
        for _ in range(10**6):
            progress(1, 10)
        pytest.fail("went on")


def test_stop_ends_work_of_another_thread_and_leaves_the_cell_alone(notebook):
    seen = []

    def work():
        try:
            with Progress("counting") as progress:
                progress(0, 2)
                notebook[0].children[1].click()
                progress(1, 2)
        except CourseError as error:
            seen.append(error.message)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == ["Stopped."]


def test_stop_after_the_end_does_nothing(notebook):
    with Progress("counting") as progress:
        progress(0, 2)
    progress.stop()  # a click that came too late


def test_a_terminal_gets_a_line(monkeypatch):
    written = []
    monkeypatch.setattr(module, "_PATIENCE", 0.0)
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: True, write=written.append, flush=lambda: None))
    with Progress("counting") as progress:
        progress(1, 2)
    assert "counting: 1 of 2" in "".join(written)
