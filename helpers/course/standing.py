"""Where the reader stands: lessons, exercises, rungs, time, what is next, points, and how good the predictions are.

`standing()` in a notebook and `course progress` in a terminal show the same, computed from the store each time.
"""

from __future__ import annotations

import datetime
import functools
import html
import itertools
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from helpers.arguments import explained
from helpers.errors import CourseError

from .achievements import ACHIEVEMENTS, Achievement, Guess, ReaderRecord
from .exercises import Exercise, exercises
from .questions import judge
from .quizzes import Score, score
from .steps import STEPS, Step
from .store import SavedClimb, Store, is_moment, now, own
from .table import Cell, Table, Tabular

POINTS = {"diagnose": 20, "change": 30, "write": 50}  # for an exercise that is solved
HINT_COSTS, LEAST = 5, 5  # of an exercise's points, and what is left of them at least
PREDICTED, WELL = 5, 5  # for a prediction, and once more if it was close
QUIZZED = 5  # for a right answer in a quiz
RUNG, ACHIEVED = 20, 25
LEVELS = ((0, "Lane"), (100, "Warp"), (300, "Block"), (600, "Cluster"), (1000, "Multiprocessor"), (1500, "GPU"), (2200, "Node"))
PAUSE = 15 * 60.0  # seconds between two things done, from which on the reader was somewhere else


@dataclass(frozen=True)
class LessonStanding:
    """One lesson, or the bench. predicted: questions answered, of `questions`. seconds: spent on it, without pauses. rung: the fastest."""

    step: Step
    predicted: int
    questions: int
    solved: tuple[str, ...]
    exercises: tuple[Exercise, ...]
    rung: SavedClimb | None
    seconds: float

    @property
    def title(self) -> str:
        return f"{self.step.number:02} · {self.step.title}"

    @property
    def climbed(self) -> bool:
        """Its kernel stands on the ladder, or it has none; on the bench, any of the reader's own."""
        return self.rung is not None or (self.step.entry is None and not self.step.bench)

    @property
    def done(self) -> bool:
        """A rung and at least one exercise, where there are any."""
        return self.climbed and (bool(self.solved) or not self.exercises)

    @property
    def complete(self) -> bool:
        return self.climbed and len(self.solved) == len(self.exercises)

    @property
    def next(self) -> str:
        """What is to be done here, as a sentence."""
        if self.step.bench and not self.climbed:
            return "put a kernel of your own on the ladder: mine.climb()."
        if not self.climbed:
            return f"put its kernel on the ladder: {self.step.slug}.climb()."
        left = [item for item in self.exercises if item.slug not in self.solved]
        if not left:
            return "all is done."
        begun = self.predicted or self.solved or self.step.entry
        return f"{'' if begun else 'read it, then do its '}exercise “{left[0].title}” ({left[0].what})."


@dataclass(frozen=True, repr=False)
class Standing(Tabular):
    """Where a reader stands. points: of all that was done."""

    lessons: Sequence[LessonStanding]
    predictions: Sequence[Guess]
    achieved: Sequence[Achievement]
    points: int
    problem: str = ""
    quizzes: Score = field(default_factory=lambda: Score(0, 0, 0))

    @property
    def level(self) -> tuple[int, str]:
        """Number from 1 and name."""
        number = sum(self.points >= least for least, _ in LEVELS)
        return number, LEVELS[number - 1][1]

    @property
    def next(self) -> str:
        """The lesson to go on with, and what to do there."""
        for wanted in ("done", "complete"):
            for lesson in self.lessons:
                if not getattr(lesson, wanted):
                    return f"{lesson.title}: {lesson.next}"
        return "Everything is done. Take a kernel of your own through check(), profile() and climb()."

    @property
    def headline(self) -> str:
        number, name = self.level
        above = next(((least, title) for least, title in LEVELS if least > self.points), None)
        more = f", {above[0] - self.points} more to level {number + 1}, {above[1]}" if above else ""
        done, solved = sum(lesson.done for lesson in self.lessons), sum(len(lesson.solved) for lesson in self.lessons)
        of = sum(len(lesson.exercises) for lesson in self.lessons)
        return f"Level {number}, {name}: {self.points} XP{more}. {done} of {len(self.lessons)} lessons, {solved} of {of} exercises."

    @property
    def calibration(self) -> str:
        """How good the predictions are, as a sentence."""
        factors = [prediction.factor for prediction in self.predictions if prediction.factor is not None]
        if not factors:
            return "No prediction with a number has met its truth yet."
        good = sum(judge(item.yours, item.truth) in ("exactly", "close") for item in self.predictions if item.factor is not None)
        middle = statistics.median(factors)
        return f"Of {len(factors)} predictions with a number {good} are close; the middle one is {middle:.2g} times the truth."

    @property
    def quizzed(self) -> str:
        """How the quizzes went, as a sentence."""
        found = self.quizzes
        return f"Quizzes: {found.answered} of {found.of} questions answered, {found.right} of them right."

    def table(self) -> Table:
        """A lesson a row, and below what is next, the achievements, and the predictions."""
        rows: list[tuple[str | Cell, ...]] = []
        for lesson in self.lessons:
            link = f"<a href='{lesson.step.name}.ipynb'>{html.escape(lesson.title)}</a>"
            rows.append((
                Cell(lesson.title, link), f"{lesson.predicted} of {lesson.questions}", f"{len(lesson.solved)} of {len(lesson.exercises)}",
                _rung(lesson), _duration(lesson.seconds), "✓" if lesson.complete else "done" if lesson.done else "",
            ))  # fmt: skip
        below = [f"Next: {self.next}", self.calibration, self.quizzed, *(f"★ {item.title}: {item.what}" for item in self.achieved)]
        left = len(ACHIEVEMENTS) - len(self.achieved)
        below += [f"{left} achievements are still to come." if left else "", self.problem]
        return Table(("lesson", "predictions", "exercises", "rung", "time", ""), rows, self.headline, left=(0, 3, 5), below=below)

    def _repr_html_(self) -> str:
        table = self.table()
        shown = Table(table.header, table.rows, "", table.left, ())
        lesson = next((lesson for lesson in self.lessons if self.next.startswith(lesson.title)), None)
        where = f"<a href='{lesson.step.name}.ipynb'>{html.escape(lesson.title)}</a>: {html.escape(lesson.next)}" if lesson else self.next
        items = "".join(
            f"<li>{'★' if item in self.achieved else '☆'} <b>{html.escape(item.title)}</b>: {html.escape(item.what)}</li>"
            for item in ACHIEVEMENTS
        )
        problem = f"<p>{html.escape(self.problem)}</p>" if self.problem else ""
        return (
            f"<p><b>{html.escape(self.headline)}</b></p><p>Next: {where}</p>{problem}{shown._repr_html_()}"
            f"<h3>Predictions</h3><p>{html.escape(self.calibration)}</p>{self._plot()}<p>{html.escape(self.quizzed)}</p>"
            f"<h3>Achievements: {len(self.achieved)} of {len(ACHIEVEMENTS)}</h3><ul style='list-style:none;padding-left:0'>{items}</ul>"
        )

    def _plot(self) -> str:
        """The calibration plot as an image with its description; "" while there is nothing to draw."""
        if all(prediction.factor is None for prediction in self.predictions):
            return ""
        from helpers.model.predict import validated  # here, as what imports matplotlib: a terminal need not wait for it
        from helpers.views.calibration import calibration
        from helpers.views.canvas import to_html

        known = validated(4096)
        model = {step.slug: 1 + known[step.name]["error"] for step in STEPS if step.name in known}
        return to_html(calibration([(item.question, item.factor) for item in self.predictions if item.factor is not None], model))


@explained
def standing(store: Store | None = None) -> Standing:
    """Where the reader stands, from the reader's own store."""
    if not isinstance(store, Store | None):
        raise CourseError(f"standing() shows where you stand, and takes nothing; it was given {store!r}.")
    store = store or own()
    kept = ReaderRecord.of(store)
    spent = _times(store)
    lessons = []
    for step in STEPS:
        mine = tuple(item for item in exercises().values() if item.lesson == step.number)
        climbs = [climb for climb in kept.climbs if climb.step == step.number or (step.bench and climb.step is None)]
        lessons.append(LessonStanding(
            step, kept.committed.get(step.slug, 0), len(_questions(step)), tuple(item.slug for item in mine if item.slug in kept.solved),
            mine, max(climbs, key=lambda climb: climb.tflops or 0, default=None), spent.get(step.number, 0.0),
        ))  # fmt: skip
    achieved = tuple(item for item in ACHIEVEMENTS if item.earned(kept))
    points = sum(max(LEAST, POINTS[item.kind] - HINT_COSTS * kept.hints.get(name, 0)) for name, item in kept.solved.items())
    points += PREDICTED * sum(kept.committed.values()) + WELL * sum(prediction.good for prediction in kept.predictions)
    quizzes = score(store=store)
    points += QUIZZED * quizzes.right
    points += RUNG * sum(lesson.rung is not None for lesson in lessons) + ACHIEVED * len(achieved)
    return Standing(tuple(lessons), tuple(kept.predictions), achieved, points, store.problem, quizzes)


@functools.cache
def _questions(step: Step) -> frozenset[str]:
    """The ids of the questions that a lesson asks."""
    return frozenset(re.findall(r'\bask\(\\"([\w.]+)\\"', step.notebook_path.read_text(encoding="utf-8")))


def _times(store: Store) -> dict[int, float]:
    """Seconds spent on each step: the time between things done there, without pauses."""
    moments: dict[int, list[float]] = {}
    numbers = {step.name: step.number for step in STEPS}
    done = [
        (numbers.get(row["lesson"]), row["created"]) for row in store.rows("SELECT lesson, created FROM runs") if is_moment(row["created"])
    ]
    done += [(answer.step, answer.created) for answer in store.answers()] + [(climb.step, climb.created) for climb in store.climbs()]
    for number, created in done:
        if number is not None:
            moments.setdefault(number, []).append(datetime.datetime.fromisoformat(created or now()).timestamp())
    spent = {}
    for number, times in moments.items():
        times.sort()
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        spent[number] = sum(gap for gap in gaps if gap <= PAUSE)
    return spent


def _rung(lesson: LessonStanding) -> str:
    climb = lesson.rung
    if climb is None:
        return "" if lesson.step.entry or lesson.step.bench else "–"
    return f"{climb.tflops:.1f} TFLOPS, {climb.kind}" if climb.tflops else climb.kind


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if not minutes:
        return "" if seconds < 1 else "< 1 min"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"
