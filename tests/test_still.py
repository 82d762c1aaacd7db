"""Widgets leave a picture of themselves in the notebook, and nothing in the kernel."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace

import ipywidgets
import pytest
from ipywidgets.widgets.widget import _instances

from helpers import still, widgets
from helpers.course import questions
from helpers.course.exercises import exercise
from helpers.course.lesson import reference
from helpers.course.questions import Question, commit, exercise_card, question_card
from helpers.course.store import Store
from helpers.sim import TraceFilter

VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(scope="module")
def runs():
    return [reference(name).gemm(64, on="cpu", trace=TraceFilter(math=True)) for name in ("naive", "shared_tile")]


@pytest.fixture(autouse=True)
def cells(monkeypatch):
    """No cell has shown anything yet."""
    monkeypatch.setattr(still, "_shown", {})
    monkeypatch.setattr(still, "_running", None)


def run_cell(name, work):
    """What IPython does around the cell `name`; the displayed widget."""
    still.cell_begins(SimpleNamespace(cell_id=name))
    widget = work()
    widget._repr_mimebundle_()
    still.cell_ended(None)
    return widget


def kept(widget) -> str:
    bundle = widget._repr_mimebundle_()
    assert VIEW in bundle
    return bundle["text/html"]


def test_a_picture_is_kept_with_its_controls(runs):
    panel = widgets.coalescing(runs[0])
    panel.set(warp=3)
    page = kept(panel)
    assert panel.shown in page and "warp: <b>3</b>" in page and "Save picture" not in page


def test_all_pictures_are_kept_as_they_stand(runs):
    shown = widgets.explore(runs[1])
    shown.choice.value = "banks"
    assert "<b>Banks" in kept(shown) and shown.panel.shown in kept(shown)
    both = widgets.compare(*runs)
    assert all(panel.shown in kept(both) for panel in both.panels) and "before: " in kept(both)


def test_questions_and_tasks_are_kept_with_their_answers(tmp_path, monkeypatch):
    store = Store(tmp_path)
    number, choice = Question("naive.a", "How <b>many</b>?", unit="sectors"), Question("naive.b", "Which?", choices=("fewer", "<more>"))
    assert "How <b>many</b>?" in kept(question_card(number, store)) and "<b>–</b>" in kept(question_card(choice, store))
    commit(number, "4", store)
    commit(choice, "<more>", store)
    assert "You said: <b>4 sectors</b>" in kept(question_card(number, store))
    assert "<b>&lt;more&gt;</b>" in kept(question_card(choice, store))
    card = exercise_card(exercise("two_columns"))
    card.children[1].children[0].click()
    assert exercise("two_columns").hints[0][:20] in kept(card)


def test_everything_the_course_displays_is_kept(runs, tmp_path, monkeypatch):
    """Whatever `display` is given by the course's own calls carries HTML beside its view."""
    seen = []
    monkeypatch.setattr("IPython.display.display", seen.append)
    questions.ask("naive.c", "?")
    exercise("two_columns")._ipython_display_()
    seen += [widgets.ladder(), widgets.explore(runs[0]), widgets.compare(*runs), widgets.tiles(runs[1])]
    assert len(seen) == 6 and all("text/html" in widget._repr_mimebundle_() for widget in seen)


# ------------------------------------------------------------------------------------------------------- closing


@pytest.mark.slow
def test_a_cell_run_again_leaves_no_widgets_and_no_runs(runs):
    """Three times the same cell, with every picture opened and controls rebuilt: as many widgets as after one."""
    data = []

    def work():
        run = reference("shared_tile").gemm(32, on="cpu", trace=TraceFilter(math=True))
        data.append(weakref.ref(run))
        shown = widgets.explore(run, state="leak")
        for name in [value for _, value in shown.choice.options]:
            shown.choice.value = name
        shown.choice.value = "tiles"
        for level in ("thread", "block", "thread"):
            shown.panel.set(level=level)
        both = widgets.compare(run, run, state="leak")
        for name in [value for _, value in both.choice.options]:
            both.choice.value = name
        return still.Kept([shown, both])

    out = [run_cell("a", work)]  # IPython's Out holds on to what was displayed
    gc.collect()
    once = len(_instances)
    for _ in range(2):
        out.append(run_cell("a", work))
    gc.collect()
    assert len(_instances) == once
    assert [ref() is not None for ref in data] == [False, False, True]


def test_a_progress_bar_leaves_no_widgets(monkeypatch):
    from helpers import progress

    monkeypatch.setattr(progress, "_in_notebook", lambda: True)
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    monkeypatch.setattr("IPython.display.display", lambda _, display_id: None)
    before = set(_instances)
    with progress.Progress("counting") as bar:
        bar(1, 2)
        assert set(_instances) - before
    assert set(_instances) - before == set()


def test_closing_leaves_nothing(runs):
    before = set(_instances)
    shown = widgets.explore(runs[1])
    for _, name in shown.choice.options:
        shown.choice.value = name
    both = widgets.compare(*runs)
    both.choice.value = "banks"
    shown.close()
    both.close()
    assert set(_instances) - before == set()


def test_a_player_is_stopped_before_it_is_closed(monkeypatch):
    """Else its timer in the page goes on to the next step, on a channel that is gone."""
    sent = []
    play = ipywidgets.Play(playing=True)
    monkeypatch.setattr(play.comm, "send", lambda data=None, buffers=None: sent.append(data["state"]["playing"]))
    monkeypatch.setattr(play.comm, "close", lambda *_, **__: sent.append("closed"))
    still.close(ipywidgets.HBox([play]))
    assert sent[0] is False and sent[-1] == "closed" and True not in sent


def test_what_is_shown_elsewhere_or_again_stays_open(runs):
    panel = widgets.coalescing(runs[0])
    run_cell("a", lambda: panel)
    run_cell("b", lambda: panel)
    run_cell("a", lambda: widgets.coalescing(runs[0]))
    assert panel.comm is not None, "cell b still shows it"
    run_cell("b", lambda: panel)
    assert panel.comm is not None, "cell b shows it again"
    run_cell("b", lambda: ipywidgets.HTML())
    assert panel.comm is None


def test_without_the_cells_name_nothing_is_closed(runs):
    first = run_cell(None, lambda: widgets.coalescing(runs[0]))
    run_cell(None, lambda: widgets.coalescing(runs[0]))
    assert first.comm is not None
