"""The rules for points.

An answer has three parts: its results, its findings, and its counters. What counts is what the starter does not have: an answer that is
no better than the starter has no points, one that passes the whole check has all, and what lies between has its share. A kernel
whose results are wrong has none, however fast. Counters that a plain kernel has, which does nothing of the task (`plain`), bring no
points where others are missed. Nothing here depends on the speed of a machine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from helpers.course.exercises import Exercise, ExerciseReport
from helpers.course.standing import POINTS

RESULTS, FINDINGS, COUNTERS = 30, 20, 50  # hundredths for each part, if the results are right
RULES = (
    f"An answer whose results are right at every shape has {RESULTS} hundredths for that, {FINDINGS} more if there is no finding, and "
    f"{COUNTERS} for the counters, each of them alike that a kernel without shared memory or tiles would miss. What the starter has "
    "already is taken off, so that all the points are for your work."
)
_CONTROL = re.compile(r"[^\n\t\x20-\x7e\xa0-\u2027\u2030-\u2065\u2070-\ud7ff\ue000-\uffff]")  # what could draw over, or reorder, a page


@dataclass(frozen=True)
class Judgement:
    """What the check says of an answer. counters: the share that was reached, and each: which were. seconds: how long it took."""

    passed: bool
    results: bool
    clean: bool
    counters: float
    said: tuple[str, ...] = ()
    seconds: float = 0.0
    refused: bool = False  # there is nothing that could be checked
    each: tuple[bool, ...] = ()

    @property
    def hundredths(self) -> float:
        """Of 100, before what the starter has is taken off."""
        return RESULTS + FINDINGS * self.clean + COUNTERS * self.counters if self.results else 0.0

    def beside(self, plain: Judgement) -> Judgement:
        """The same, whose share of counters is of those that a plain kernel misses, if there are any."""
        if not self.each or len(self.each) != len(plain.each) or all(plain.each):
            return self
        counted = [reached for reached, given in zip(self.each, plain.each, strict=True) if not given]
        return replace(self, counters=sum(counted) / len(counted))


def judgement(exercise: Exercise, report: ExerciseReport, seconds: float = 0.0) -> Judgement:
    """A report in parts. An expectation that was not in the task (blocks of another shape, another size) stands for all of them."""
    said = tuple(f"{ {True: '✓', False: '✗', None: '·'}[good] } {text}" for good, text in replace(report, seed=None).lines())
    if exercise.language == "py":
        return Judgement(report.passed, report.passed, report.passed, float(report.passed), said, seconds)
    if report.foreign:  # no share of the points is for a kernel that was made elsewhere
        return Judgement(False, False, False, 0.0, said, seconds, refused=True)
    reached = [good for _, good in report.expectations]
    whole = bool(exercise.expect) and len(reached) == len(exercise.expect)
    share = sum(reached) / len(reached) if whole else float(report.passed)
    results = bool(report.cases) and not any(case.message for case in report.cases) and not report.untried
    each = tuple(map(bool, reached)) if whole else ()
    return Judgement(report.passed, results, not report.findings, share, said, seconds, each=each)


@dataclass(frozen=True)
class Mark:
    """The grade of one answer. fraction: of the exercise's points. said: why, a line each; for_staff: what the grader's own people see."""

    title: str
    most: float
    fraction: float
    said: tuple[str, ...]
    for_staff: str = ""

    @property
    def points(self) -> float:
        """Of `most`, in tenths."""
        return round(self.most * self.fraction, 1)

    def __str__(self) -> str:
        text = "\n".join((f"{self.title}: {self.points:g} of {self.most:g} points.", *(f"  {line}" for line in self.said)))
        return _CONTROL.sub("�", text)


def points(exercise: Exercise) -> int:
    """What an exercise is worth: as many as it has in the reader's own standing."""
    return POINTS[exercise.kind]


def mark(exercise: Exercise, judged: Judgement, starter: float, remarks: Sequence[str] = ()) -> Mark:
    """The grade of a judged answer. starter: hundredths that the starter has."""
    fraction = 1.0 if judged.passed else min(0.99, max(0.0, (judged.hundredths - starter) / (100 - starter)))
    return Mark(exercise.title, points(exercise), fraction, (*remarks, *_shares(judged, starter), *judged.said))


def none(exercise: Exercise, why: str, remarks: Sequence[str] = (), for_staff: str = "") -> Mark:
    """No points, and why."""
    return Mark(exercise.title, points(exercise), 0.0, (*remarks, f"✗ {why}"), for_staff)


def _shares(judged: Judgement, starter: float) -> tuple[str, ...]:
    if judged.passed or judged.refused:
        return ()
    if not judged.results:
        return ("Results that are wrong somewhere have no points, whatever the counters.",)
    found = [f"results {RESULTS}", f"findings {FINDINGS * judged.clean}", f"counters {COUNTERS * judged.counters:.3g}"]
    already = f"; the starter has {starter:.3g} of 100 already, and they give no points" if starter else ""
    return (f"Hundredths: {', '.join(found)}{already}.",)
