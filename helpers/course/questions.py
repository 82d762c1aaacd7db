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
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helpers.arguments import explained
from helpers.errors import CourseError, in_html
from helpers.interrupts import delayed
from helpers.translation import ENGLISH, chosen, translated

from . import steps
from .evidence import Speedup
from .store import Store, own
from .table import Cell, Table

if TYPE_CHECKING:
    from .exercises import Exercise

EXACT = 1e-3  # relative: closer than this is "exactly"
CLOSE = 1.25  # a factor within which a prediction counts as close
HINTS = "hints."  # before an exercise's slug: the question whose answer is how many hints were taken


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

    @property
    def said(self) -> str:
        """The text in the reader's language. The unit and the choices stay English: answers are kept by them."""
        return translated(self.text, steps.get(self.step).name, chosen()) if chosen() != ENGLISH else self.text

    def truth(self) -> float | str | None:
        """The truth, where it is told as soon as an answer is given; None where it comes later (`reveal`)."""
        return None

    def comment(self, answer: float | str, told: bool) -> str:
        """HTML of what is said of an answer. told: has the truth been shown?"""
        end = "The truth has been shown below." if told else "The truth comes further down."
        return f"You said: <b>{html.escape(self.show(answer))}</b>. {end}"

    def parse(self, text: str | None) -> float | str:
        """The answer that `text` states. Raises CourseError for what is no number, a negative one of things, or none of the choices."""
        if self.choices:
            if text not in self.choices:
                raise CourseError(f"Choose one of: {', '.join(self.choices)}.")
            return text
        cleaned = (text or "").strip().replace(" ", "").removesuffix("%").rstrip("×x")
        try:
            # Not Fraction(cleaned), which writes out every digit of 1e99999999.
            above, *below = (float(part) for part in cleaned.split("/", 1))
            if not all(map(math.isfinite, (above, *below, value := above / below[0] if below else above))):
                raise ValueError
        except (ValueError, ZeroDivisionError):
            raise CourseError("Write a number, such as 12, 0.5, 1/8 or 2.5e9.") from None
        if value < 0 and self.unit.split(" ")[0].endswith("s"):  # a plural is counted; per cent may well be fewer than none
            raise CourseError(f"Write how many {self.unit}: 0 or more.")
        return value

    def show(self, answer: float | str) -> str:
        """An answer (or the truth) as words, with its unit: "1 sector per request", "4 sectors per request"."""
        if isinstance(answer, str):
            return answer
        first, *rest = self.unit.split(" ")
        return " ".join([_number(answer), first.removesuffix("s") if answer == 1 else first, *rest]).strip()


_asked: dict[str, Question] = {}  # the questions of this session, by id


@explained
def ask(id: str, text: str, unit: str = "", choices: Sequence[str] = ()) -> None:
    """Display a question to commit to. id: unique in the course. text may hold HTML. Answers: see `reveal`.

    Raises CourseError for what is no text, and for choices that are not several texts.
    """
    from IPython.display import display

    if not all(isinstance(given, str) for given in (id, text, unit)):
        raise CourseError("ask wants texts: ask('naive.sectors', 'How many sectors?', unit='sectors').")
    listed = isinstance(choices, Sequence) and not isinstance(choices, str)
    if not listed or len(choices) == 1 or len(set(map(str, choices))) < len(choices) or not all(isinstance(one, str) for one in choices):
        raise CourseError(f"ask: choices={choices!r} are no list of different texts, such as choices=['fewer', 'as many', 'more'].")
    question = _asked[id] = Question(id, text, unit, tuple(choices))
    display(question_card(question, own()))


def committed(id: str, store: Store | None = None) -> Any:
    """The reader's latest answer to a question, or None."""
    answers = (store or own()).answers(question=id)
    return answers[-1].answer if answers else None


def commit(question: Question, text: str | None, store: Store | None = None) -> float | str:
    """Keep an answer. Raises CourseError if it cannot be understood, or if the truth was shown beside an earlier one: that one stands."""
    store = store or own()
    if told(question.id, store):
        raise CourseError("The truth has been shown, so your prediction stays as it was.")
    answer = question.parse(text)
    store.answer(question.id, answer, question.truth(), step=question.step)
    return answer


def told(id: str, store: Store | None = None) -> bool:
    """Has the truth been shown beside the reader's answer?"""
    answers = (store or own()).answers(question=id)
    return bool(answers) and answers[-1].truth is not None


@dataclass(frozen=True)
class Revealed:
    """Predictions beside the truth. rows: (question, prediction or None, truth, where the truth comes from or "")."""

    rows: tuple[tuple[Question, Any, Any, str], ...]

    def __str__(self) -> str:
        lines = []
        for question, yours, truth, source in self.rows:
            said = "–" if yours is None else question.show(yours)
            whose = f" ({source})" if source else ""
            lines.append(f"{question.said}\n  you: {said}   truth: {question.show(truth)}{whose}   {judge(yours, truth)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = []
        for question, yours, truth, source in self.rows:
            said = "–" if yours is None else question.show(yours)
            whole = html.escape(source).replace(" × ", "&nbsp;×&nbsp;")  # a size stays in one line
            whose = f"<br><small>{whole}</small>" if source else ""
            shown = Cell(question.show(truth), f"<b>{html.escape(question.show(truth))}</b>{whose}")
            rows.append((Cell(question.said, question.said), said, shown, judge(yours, truth)))
        return Table(("question", "you said", "it is", ""), rows, left=(0, 3))._repr_html_()


@explained
def reveal(truths: Mapping[str, Any], store: Store | None = None) -> Revealed:
    """The reader's answers beside the truth: {question id: number or choice}, as the run just gave it, or what
    `evidence.speedup` found, which says where it comes from.

    Raises CourseError for a question whose cell has not been run, and for a truth that is neither a number nor a text.
    """
    if not isinstance(truths, Mapping):
        raise CourseError(f"reveal wants the truth beside each question, as in reveal({{{truths!r}: 32}}).")
    store = store or own()
    rows = []
    for name, value in truths.items():
        if name not in _asked:
            raise CourseError(f"The question {name} has not been asked yet: run the cell under “Predict” first.")
        source = value.source if isinstance(value, Speedup) else ""
        value = value.factor if isinstance(value, Speedup) else value
        truth = value if isinstance(value, str) else _finite(name, value)
        past = store.answers(question=name)
        yours = past[-1].answer if past else None
        if past and past[-1].truth != truth:
            store.answer(name, yours, truth, step=_asked[name].step)
        rows.append((_asked[name], yours, truth, source))
    return Revealed(tuple(rows))


def _finite(name: str, value: Any) -> float:
    try:
        truth = float(value)
    except (TypeError, ValueError, OverflowError):
        truth = math.nan
    if not math.isfinite(truth):
        said = value if isinstance(value, float) else type(value).__name__
        raise CourseError(f"The truth of {name} is a number or one of its choices, and {said} is neither.")
    return truth


def judge(yours: float | str | None, truth: float | str) -> str:
    """A prediction against the truth, in a few words."""
    if yours is None:
        return "no prediction"
    if isinstance(truth, str) or isinstance(yours, str):
        return "right" if yours == truth else "not so"
    if abs(yours - truth) <= EXACT * abs(truth):
        return "exactly"
    if yours * truth <= 0:
        return f"too {'large' if yours > truth else 'small'}"
    factor = max(yours / truth, truth / yours)
    if factor <= CLOSE:
        return "close"
    return f"{_number(factor)} times too {'large' if yours > truth else 'small'}"


def _number(value: float) -> str:
    """Three significant digits, or all of a whole number, thousands apart; exponents from a million million on."""
    if abs(value) >= 1e12 or (value != int(value) and abs(value) < 1000):
        return f"{value:.3g}"
    return f"{round(value):,}"


# ------------------------------------------------------------------------------------------------------------ widgets


# A choice that is longer than the page is wide goes on in another line; by itself it would push its button out of sight. The button comes
# after its text in the page, and stands before it.
_STYLE = """<style>
.ladder-choices .widget-radio-box{min-width:0}
.ladder-choices .widget-radio-box label{display:flex;flex-direction:row-reverse;justify-content:flex-end;align-items:start;height:auto;
white-space:normal}
.ladder-choices .widget-radio-box input{flex:none}
</style>"""


def question_card(question: Question, store: Store):
    """The question as a widget: an input, a button that commits, and what was committed."""
    with delayed():
        import ipywidgets as widgets

        from helpers.still import Kept

    prompt = widgets.HTML(f"{_STYLE}<div style='font-size:1.1em;max-width:60em;line-height:1.4'>{question.said}</div>")
    before = committed(question.id, store)
    if question.choices:
        wide = widgets.Layout(width="auto", max_width="min(60em, 100%)")
        field = widgets.RadioButtons(options=question.choices, value=before if before in question.choices else None, layout=wide)
        field.add_class("ladder-choices")
    else:
        shown = "" if before is None else f"{before:.10g}"
        field = widgets.Text(value=shown, placeholder="a number", layout=widgets.Layout(width="9em"))
    button = widgets.Button(description="Commit", button_style="primary", layout=widgets.Layout(width="9em"))
    said = widgets.HTML(layout=widgets.Layout(max_width="60em"))

    def settle(answer) -> None:
        field.disabled, shown = True, told(question.id, store)
        button.description, button.button_style, button.disabled = "Committed" if shown else "Change", "", shown
        said.value = f"<div style='line-height:1.4'>{question.comment(answer, shown)}</div>"

    def pressed(_) -> None:
        if field.disabled:
            if told(question.id, store):
                settle(committed(question.id, store))
                return
            field.disabled = False
            button.description, button.button_style, said.value = "Commit", "primary", ""
            return
        try:
            settle(commit(question, field.value, store))
        except CourseError as error:
            said.value = in_html(error.message)

    button.on_click(pressed)
    field.on_msg(lambda _, content, __: None if field.disabled or content.get("event") != "submit" else pressed(field))  # the Enter key
    if before is not None:
        settle(before)
    unit = widgets.Label(question.unit)
    row = widgets.HBox([field, unit, button, said], layout=widgets.Layout(align_items="center", flex_flow="row wrap"))
    frame = widgets.Layout(border_left="4px solid #0072b2", padding="0 0 0 0.8em", margin="0.4em 0")
    return Kept([prompt, row], layout=frame)


def hints_taken(slug: str, store: Store | None = None) -> int:
    """How many hints of an exercise the reader has taken; one more than there are if the solution as well."""
    answers = (store or own()).answers(question=f"{HINTS}{slug}")
    return max((answer.answer for answer in answers if isinstance(answer.answer, int)), default=0)


_tasks: dict[str, weakref.WeakKeyDictionary] = {}  # by exercise: the task of each card on display, and its text


def _task(text: str, solved: bool) -> str:
    mark = "<span style='color:#007a5a;font-weight:bold'>✓ solved</span> " if solved else ""
    return f"<div style='max-width:60em;line-height:1.4'>{mark}{text}</div>"


def mark_solved(slug: str) -> None:
    """Say on the cards of an exercise that it is solved."""
    for task, text in _tasks.get(slug, {}).items():
        task.value = _task(text, solved=True)


def exercise_card(exercise: Exercise):
    """The task of an exercise, a button for the next hint, and after the last hint one for the solution. What was shown is remembered."""
    with delayed():
        import ipywidgets as widgets

        from helpers.still import Kept

    store = own()
    text = f"<b>{html.escape(exercise.title)}</b> ({exercise.what}). {in_html(exercise.task)}"
    task = widgets.HTML(_task(text, exercise.solved()))
    _tasks.setdefault(exercise.slug, weakref.WeakKeyDictionary())[task] = text
    shown = widgets.HTML()
    hint = widgets.Button(layout=widgets.Layout(width="12em"))
    solution = widgets.Button(description="Show a solution", disabled=True, layout=widgets.Layout(width="12em"))
    taken = min(hints_taken(exercise.slug, store), len(exercise.hints) + 1)

    def show() -> None:
        left = len(exercise.hints) - taken
        hint.description = f"Hint ({left} left)" if left > 0 else "No more hints"
        hint.disabled, solution.disabled = left <= 0, left != 0
        items = "".join(f"<li>{in_html(text)}</li>" for text in exercise.hints[:taken])
        code = f"<pre style='background:#f4f4f4;color:#111;padding:.6em;overflow-x:auto'>{html.escape(exercise.solution)}</pre>"
        shown.value = f"<ol style='max-width:60em'>{items}</ol>{code if left < 0 else ''}" if taken else ""

    def take(_) -> None:
        nonlocal taken
        taken += 1
        store.answer(f"{HINTS}{exercise.slug}", taken, step=exercise.lesson)
        show()

    hint.on_click(take)
    solution.on_click(take)
    show()
    return Kept([task, widgets.HBox([hint, solution]), shown], layout=widgets.Layout(margin="0.4em 0"))
