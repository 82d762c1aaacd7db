"""Predict, then look: questions with an answer to commit to before a kernel runs, and the truth shown beside it later.

    ask("naive.sectors_a", "How many sectors does one load of A touch?", unit="sectors")
    …
    reveal({"naive.sectors_a": 32})

Answers are kept with the reader's progress, so they survive a restart of the notebook. Nothing is graded: a wrong
prediction that is explained teaches more than a right one. The card of an exercise, with its hints, is here too.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helpers.errors import CourseError
from helpers.interrupts import delayed

from . import steps
from .store import Store, own
from .table import Cell, Table

if TYPE_CHECKING:
    from .exercises import Exercise

EXACT = 1e-3  # relative: closer than this is "exactly"
CLOSE = 2.0  # a factor within which a prediction counts as close


@dataclass(frozen=True)
class Question:
    """id: the step's slug and a name, "naive.sectors_a". It asks for a number in `unit`, unless there are `choices`."""

    id: str
    text: str
    unit: str = ""
    choices: tuple[str, ...] = ()

    @property
    def step(self) -> int:
        """Number of the step whose slug the id begins with. Raises KeyError if there is none."""
        return steps.get(self.id.partition(".")[0]).number

    def parse(self, text: str | None) -> float | str:
        """The answer that `text` states. Raises CourseError if it is no number, or none of the choices."""
        if self.choices:
            if text not in self.choices:
                raise CourseError(f"Choose one of: {', '.join(self.choices)}.")
            return text
        cleaned = (text or "").strip().replace(" ", "").removesuffix("%").rstrip("×x")
        try:
            # Not Fraction(cleaned), which writes out every digit of 1e99999999.
            above, *below = (float(part) for part in cleaned.split("/", 1))
            if all(map(math.isfinite, (above, *below, value := above / below[0] if below else above))):
                return value
        except (ValueError, ZeroDivisionError):
            pass
        raise CourseError("Write a number, such as 12, 0.5, 1/8 or 2.5e9.")

    def show(self, answer: float | str) -> str:
        """An answer (or the truth) as words, with its unit: "1 sector per request", "4 sectors per request"."""
        if isinstance(answer, str):
            return answer
        first, *rest = self.unit.split(" ")
        return " ".join([_number(answer), first.removesuffix("s") if answer == 1 else first, *rest]).strip()


_asked: dict[str, Question] = {}  # the questions of this session, by id


def ask(id: str, text: str, unit: str = "", choices: Sequence[str] = ()) -> None:
    """Display a question to commit to. id: unique in the course. text may hold HTML. Answers: see `reveal`."""
    from IPython.display import display

    question = _asked[id] = Question(id, text, unit, tuple(choices))
    display(question_card(question, own()))


def committed(id: str, store: Store | None = None) -> Any:
    """The reader's latest answer to a question, or None."""
    answers = (store or own()).answers(question=id)
    return answers[-1].answer if answers else None


def commit(question: Question, text: str | None, store: Store | None = None) -> float | str:
    """Keep an answer. Raises CourseError if it cannot be understood."""
    answer = question.parse(text)
    (store or own()).answer(question.id, answer, step=question.step)
    return answer


@dataclass(frozen=True)
class Revealed:
    """Predictions beside the truth. rows: (question, prediction or None, truth)."""

    rows: tuple[tuple[Question, Any, Any], ...]

    def __str__(self) -> str:
        lines = []
        for question, yours, truth in self.rows:
            said = "–" if yours is None else question.show(yours)
            lines.append(f"{question.text}\n  you: {said}   truth: {question.show(truth)}   {judge(yours, truth)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = []
        for question, yours, truth in self.rows:
            said = "–" if yours is None else question.show(yours)
            shown = Cell(question.show(truth), f"<b>{html.escape(question.show(truth))}</b>")
            rows.append((Cell(question.text, question.text), said, shown, judge(yours, truth)))
        return Table(("question", "you said", "it is", ""), rows, left=(0, 3))._repr_html_()


def reveal(truths: Mapping[str, Any], store: Store | None = None) -> Revealed:
    """The reader's answers beside the truth: {question id: number or choice}, as the run just gave it.

    Raises CourseError for a question whose cell has not been run.
    """
    store = store or own()
    rows = []
    for name, value in truths.items():
        if name not in _asked:
            raise CourseError(f"The question {name} has not been asked yet: run the cell under “Predict” first.")
        truth = value if isinstance(value, str) else float(value)
        past = store.answers(question=name)
        yours = past[-1].answer if past else None
        if past and past[-1].truth != truth:
            store.answer(name, yours, truth, step=_asked[name].step)
        rows.append((_asked[name], yours, truth))
    return Revealed(tuple(rows))


def judge(yours: float | str | None, truth: float | str) -> str:
    """A prediction against the truth, in a few words."""
    if yours is None:
        return "no prediction"
    if isinstance(truth, str) or isinstance(yours, str):
        return "right" if yours == truth else "think again"
    if abs(yours - truth) <= EXACT * abs(truth):
        return "exactly"
    if yours * truth <= 0:
        return "think again"
    factor = max(yours / truth, truth / yours)
    if factor <= CLOSE:
        return "close"
    return f"{_number(factor)} times too {'large' if yours > truth else 'small'}"


def _number(value: float) -> str:
    """Three significant digits, or all of a whole number, thousands apart; exponents from a million million on."""
    if abs(value) >= 1e12 or (value != int(value) and abs(value) < 1000):
        return f"{value:.3g}"
    return f"{round(value):,}".replace(",", "\N{THIN SPACE}")


# ------------------------------------------------------------------------------------------------------------ widgets


def question_card(question: Question, store: Store):
    """The question as a widget: an input, a button that commits, and what was committed."""
    with delayed():
        import ipywidgets as widgets

        from helpers.still import Kept

    prompt = widgets.HTML(f"<div style='font-size:1.1em;max-width:60em;line-height:1.4'>{question.text}</div>")
    before = committed(question.id, store)
    if question.choices:
        field = widgets.RadioButtons(options=question.choices, value=before if before in question.choices else None)
    else:
        shown = "" if before is None else f"{before:.10g}"
        field = widgets.Text(value=shown, placeholder="a number", layout=widgets.Layout(width="9em"))
    button = widgets.Button(description="Commit", button_style="primary", layout=widgets.Layout(width="7em"))
    said = widgets.HTML()

    def settle(answer) -> None:
        field.disabled = True
        button.description, button.button_style = "Change", ""
        said.value = f"You said: <b>{html.escape(question.show(answer))}</b>. The truth comes further down."

    def pressed(_) -> None:
        if field.disabled:
            field.disabled = False
            button.description, button.button_style, said.value = "Commit", "primary", ""
            return
        try:
            settle(commit(question, field.value, store))
        except CourseError as error:
            said.value = html.escape(error.message)

    button.on_click(pressed)
    if before is not None:
        settle(before)
    unit = widgets.Label(question.unit)
    row = widgets.HBox([field, unit, button, said], layout=widgets.Layout(align_items="center", flex_flow="row wrap"))
    frame = widgets.Layout(border_left="4px solid #0072b2", padding="0 0 0 0.8em", margin="0.4em 0")
    return Kept([prompt, row], layout=frame)


def exercise_card(exercise: Exercise):
    """The task of an exercise, a button for the next hint, and after the last hint one for the solution."""
    with delayed():
        import ipywidgets as widgets

        from helpers.still import Kept

    solved = "<span style='color:#007a5a;font-weight:bold'>✓ solved</span> " if exercise.solved() else ""
    task = widgets.HTML(
        f"<div style='max-width:60em;line-height:1.4'>{solved}<b>{html.escape(exercise.title)}.</b> {html.escape(exercise.task)}</div>"
    )
    shown = widgets.HTML()
    hint = widgets.Button(layout=widgets.Layout(width="12em"))
    solution = widgets.Button(description="Show a solution", disabled=True, layout=widgets.Layout(width="12em"))
    given: list[str] = []

    def label() -> None:
        left = len(exercise.hints) - len(given)
        hint.description = f"Hint ({left} left)" if left else "No more hints"
        hint.disabled, solution.disabled = not left, bool(left)

    def next_hint(_) -> None:
        given.append(exercise.hints[len(given)])
        items = "".join(f"<li>{html.escape(text)}</li>" for text in given)
        shown.value = f"<ol style='max-width:60em'>{items}</ol>"
        label()

    def show_solution(_) -> None:
        code = html.escape(exercise.solution)
        shown.value += f"<pre style='background:#f4f4f4;color:#111;padding:.6em;overflow-x:auto'>{code}</pre>"
        solution.disabled = True

    hint.on_click(next_hint)
    solution.on_click(show_solution)
    label()
    return Kept([task, widgets.HBox([hint, solution]), shown], layout=widgets.Layout(margin="0.4em 0"))
