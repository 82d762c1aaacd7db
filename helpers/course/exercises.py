"""Exercises: a solution with marked regions, from which the starter is derived; hints in stages; a check on results,
counters and findings, so that performance can be graded without a GPU.

One exercise is one file in `exercise_sources/`, named NN_slug after its lesson: `.cu` for a kernel, `.py` for a
function; kernel or function are called slug. The file as it stands is the solution, and compiles. Lines that begin
with the comment leader and `!` describe it: kind, title, task, hint (one per stage), expect (see `measures.expect`), given (of what is to
be changed: block and tile are not, and shall be the solution's), case (arguments of a function), scales, accuracy, nan, infinity (data
of its own, see `demanding`), fewer (said of a count that is exact and not reached), after (said when solved); five spaces continue a text.
The regions, here for C++:

    //[solution
    if (row >= M || col >= N) return;
    //[starter
    //|if (row >= N || col >= M) return;
    //]

The starter has the lines behind `//|` where the solution has the others.
"""

from __future__ import annotations

import builtins
import functools
import math
import numbers
import random
import re
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import FunctionType
from typing import Any

from helpers.arguments import explained
from helpers.errors import CourseError, in_html
from helpers.interrupts import TooLongError, bounded
from helpers.progress import Progress
from helpers.run import gemm
from helpers.run.gemm import CheckReport
from helpers.run.kernel import Kernel, compile
from helpers.run.likely_causes import in_exercise
from helpers.run.problem import NonFiniteProblem
from helpers.run.timing import can_measure, time_gemms
from helpers.run.transposes import said_of
from helpers.sim.machine import printout

from . import demanding, history, likeness, proof
from .measures import Expectation, Verdict, expect
from .steps import STEPS, Step
from .store import Store, own

FOLDER = Path(__file__).parent / "exercise_sources"
KINDS = {"write": "write it yourself", "change": "change it", "diagnose": "diagnose it"}
STAGES = 3  # of hints, before the solution
_TIMED_SIZE = 2048  # M = N = K of what is timed on a GPU
_LEADERS = {".cu": "//", ".py": "#"}


@dataclass(frozen=True)
class ExerciseReport(CheckReport):
    """A `CheckReport` under the exercise's title. For functions, `rows` holds one (good, sentence) per case. speed: of a right kernel,
    beside the solution's, where there is a GPU. ungraded: why a right function would have no points from a class's grader. foreign: why a
    right kernel is no answer, being another than the exercise gave."""

    title: str = ""
    after: str = ""
    speed: str = ""
    ungraded: str = ""
    foreign: str = ""
    rows: tuple[tuple[bool, str], ...] = ()

    @property
    def passed(self) -> bool:
        return super().passed and not self.foreign and all(ok for ok, _ in self.rows)

    def __bool__(self) -> bool:
        return self.passed

    def lines(self) -> list[tuple[bool | None, str]]:
        return list(self.rows) if self.rows else [*super().lines(), *([(False, self.foreign)] if self.foreign else [])]

    @property
    def headline(self) -> str:
        return f"{self.title}: {'solved' if self.passed else 'not yet'}"

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *self._said])

    __repr__ = CheckReport.__repr__

    def _repr_html_(self) -> str:
        return super()._repr_html_() + "".join(f"<p>{in_html(text)}</p>" for text in self._said)

    @property
    def _said(self) -> list[str]:
        """What is said of an answer that passes."""
        return [text for text in (self.after, self.speed, self.ungraded) if text and self.passed]


@dataclass(frozen=True)
class Exercise:
    """One exercise. lesson: number of its step. kind: one of KINDS. cases: argument tuples, for functions. solution, starter: source.
    scales: powers of two up to which rows and columns are multiplied in products besides, 0: none. accuracy: K of a sum, the errors
    allowed in it, and how small its numbers are (see `demanding.judge_accuracy`). nan: NaN in A must be NaN in C.
    infinity: infinity in the last k must be infinity in C. given: block and tile
    are the solution's. fewer: said of a count that is exact and not reached: why less is not better."""

    lesson: int
    slug: str
    language: str
    kind: str
    title: str
    task: str
    hints: tuple[str, ...]
    expect: tuple[Expectation, ...]
    cases: tuple[tuple, ...]
    after: str
    solution: str = field(repr=False)
    starter: str = field(repr=False)
    scales: int = 0
    accuracy: tuple[int, float, int] | None = None
    nan: bool = False
    infinity: bool = False
    given: bool = False
    fewer: str = ""

    @explained
    def check(self, answer: Any, store: Store | None = None, seed: int | None = None) -> ExerciseReport:
        """Judge a kernel (or a function): results, findings, counters. A wrong answer is reported, not raised. Where there is a GPU, a
        right kernel is timed in turn with the solution; its speed is told and not judged.

        A solved exercise is kept in `store` (the reader's own by default). seed: see `gemm.check`.
        """
        report = self.judge(answer, seed)
        if report.passed:
            report = replace(report, speed=self._speed(answer))
        store = store or own()
        if self.language == "py":
            text = history.of_function(self.slug)
            if report.passed and text:
                report = replace(report, ungraded=self._ungraded(text))
            history.judged(self.slug, text, history.verdict(report), store)
        else:
            history.judged(getattr(answer, "lesson_name", ""), getattr(answer, "cell", ""), history.verdict(report), store)
        if report.passed and not self.solved(store):
            store.answer(f"exercise.{self.slug}", "solved", step=self.lesson)
            from .questions import mark_solved  # here: it opens the table of evidence, which a check outside a notebook need not

            mark_solved(self.slug)
        return report

    def judge(self, answer: Any, seed: int | None = None, **options: Any) -> ExerciseReport:
        """As `check`, and nothing is kept of it. Options of a kernel's: `seconds`, `patience` and `whole` of `gemm.check`, `on`."""
        return self._check_function(answer) if self.language == "py" else self._check_kernel(answer, seed, **options)

    def _ungraded(self, text: str) -> str:
        """Why the grader of a class, which reads a function and does not run it, would refuse the one in this cell, as a sentence; "" if it
        would not."""
        from .grading.formulas import function  # here: it stands above the exercises

        try:
            graded = self.judge(function(text, self.slug))
        except CourseError as error:
            said = error.message
        else:
            if graded.passed:
                return ""
            said = next(text for good, text in graded.rows if not good)
        return f"If this is handed in to be graded, it has no points as it stands: {said}"

    def _speed(self, answer: Any) -> str:
        """How fast a right kernel is beside the solution, as a sentence; "" for a function, and where nothing can be timed."""
        if self.language == "py" or not can_measure(answer):
            return ""
        problem = gemm.problem_for(answer, _TIMED_SIZE, _TIMED_SIZE, _TIMED_SIZE)
        try:
            times = time_gemms({"yours": answer, "solution": compile(self.solution)}, problem, seconds=1.0)
        except CourseError as error:
            return f"It was not timed: {error.message}"
        yours, solution = times["yours"].kernel, times["solution"].kernel
        noisy = f" ({yours.noisy or solution.noisy}: do not trust the last digits)" if yours.noisy or solution.noisy else ""
        ratio = f"{solution.milliseconds / yours.milliseconds:.2f} times the speed of the solution"
        return f"On {yours.device}, {problem}, timed in turn: {yours.milliseconds:.4g} ms, {ratio}{noisy}."

    @property
    def what(self) -> str:
        """What is to be done, in words: "write it yourself"."""
        return KINDS[self.kind]

    def solved(self, store: Store | None = None) -> bool:
        """Has the reader ever solved it?"""
        return bool((store or own()).answers(question=f"exercise.{self.slug}"))

    @printout.together()
    def _check_kernel(self, answer: Any, seed: int | None, **options: Any) -> ExerciseReport:
        if not isinstance(answer, Kernel):
            getattr(answer, "compiled", None)  # a cell that did not compile answers with what its compiler said
            kind = type(answer).__name__
            raise CourseError(f"{self.slug}: check wants the kernel that your %%cuda cell made, not {kind}.")
        if said := said_of(answer):
            raise CourseError(f"{self.slug}: your kernel says that it takes {said}, and the exercise gives it by rows. Leave that out.")
        with Progress(f"checking {answer.name}") as progress:
            options["causes"] = self.kind != "diagnose"  # else they are what is asked
            report = gemm.check(answer, progress=progress, seed=seed, **options)
            if self.scales and _of_finite_numbers(report):
                report = demanding.joined(
                    report, gemm.check(answer, demanding.scaled(answer, self.scales, report.seed), progress=progress, **options)
                )
        expectations = self._as_given(answer) + self._followed(answer)
        if self.expect and report.ran and not report.endless:
            try:
                expectations += proof.judged(answer, self.expect, report.seed, self._wording)
            except CourseError as error:
                expectations += ((f"The counters could not be judged: {error.message}", False),)
        if self.accuracy and report.correct:
            expectations += demanding.judge_accuracy(answer, *self.accuracy, report.seed)
        if self.nan and report.correct:
            expectations += (demanding.judge_nan(answer, report.seed),)
        if self.infinity and report.correct:
            expectations += (demanding.judge_infinity(answer, report.seed),)
        cases = tuple(replace(case, message=in_exercise(case.message, bool(self.given))) for case in report.cases)
        report = replace(report, cases=cases)
        found = {item.name: getattr(report, item.name) for item in fields(report)}
        foreign = self._foreign(answer) if report.correct else ""
        return ExerciseReport(**{**found, "expectations": expectations}, title=self.title, after=self.after, foreign=foreign)

    def _wording(self, verdict: Verdict) -> str:
        """A verdict as a sentence."""
        less = self.fewer if not (verdict.ok or verdict.too_much or verdict.expected.startswith("at ")) else ""
        return f"{verdict.text}: yours {verdict.yours:g}, expected {verdict.expected}{verdict.at}. {less}".rstrip()

    def _as_given(self, answer: Kernel) -> tuple[tuple[str, bool], ...]:
        """What is wrong with the constants of an answer: block and tile are part of the task, but where they are what is to be changed."""
        if not self.given:
            return ()
        mine, first, asked = (gemm.geometry(kernel) for kernel in (answer, compile(self.starter), compile(self.solution)))
        block, tile = ("given" if same else "asked for" for same in (first.block == asked.block, first.tile == asked.tile))
        said = (
            (f"threads per block: yours {mine.block}, {block} {asked.block}.", mine.block == asked.block),
            (f"tile of C per block: yours {mine.tile}, {tile} {asked.tile}.", mine.tile == asked.tile),
        )
        return tuple((text, good) for text, good in said if not good)

    def _foreign(self, answer: Kernel) -> str:
        """Why an answer is another kernel than the one that the exercise is about, as a sentence; "" if it is not."""
        words = likeness.code(answer.source, re.match(r"\w*", answer.compiled.entry)[0])
        solution = likeness.Known("", self.slug, self.solution)
        asked = {"write": "write it yourself", "change": "change the one it gave", "diagnose": "mend the one it gave"}[self.kind]
        begin = f'Begin with what it gave, which print(exercise("{self.slug}").starter) shows again, and edit that.'
        if whose := likeness.copied(words, solution, self.starter, _others(self.slug), near=self.kind != "write"):
            return f"This is {whose}; the exercise asks you to {asked}. {begin}"
        if self.kind == "diagnose" and not likeness.kept(words, self.starter, self.slug):
            return f"Little is left here of the kernel that the exercise gave, and it asks you to {asked}. {begin}"
        return ""

    def _followed(self, answer: Kernel) -> tuple[tuple[str, bool], ...]:
        """What is wrong with an answer that orders threads by means which the exercise does not need, and which hide races."""
        if not proof.unfollowed(answer) or any(proof.unfollowed(compile(source)) for source in (self.starter, self.solution)):
            return ()
        said = (
            "It orders threads by acquiring loads, or by fences with atomic operations, and the check does not follow who waits for whom "
            "there. This exercise needs none of them: use barriers."
        )
        return ((said, False),)

    def _check_function(self, answer: Any) -> ExerciseReport:
        if not callable(answer):
            raise CourseError(f"{self.slug}: check wants your function, without brackets, not {type(answer).__name__}.")
        reference = self.reference()
        rows = []
        for case in (*self.cases, *(_near(case) for case in self.cases)):
            call, expected = f"{self.slug}{case if len(case) > 1 else f'({case[0]!r})'}", reference(*case)
            try:
                with bounded(gemm.PATIENCE):
                    yours = answer(*case)
                good = isinstance(yours, numbers.Real) and math.isclose(yours, expected, rel_tol=1e-6)
                if not good or case in self.cases:  # the others are shown where they are wrong
                    short = isinstance(yours, float) and (good or f"{yours:g}" != f"{expected:g}")  # as many digits as tell the two apart
                    said = f"{call}: yours {yours:g}" if short else f"{call}: yours {yours!r}"
                    rows.append((good, said if good else f"{said}, expected {expected:g}"))
            except TooLongError:
                rows.append((False, f"{call} was stopped after {gemm.PATIENCE:g} seconds: a loop in it may never end."))
                break
            except CourseError as error:  # of the grader's, which says the same of every call
                rows.append((False, error.message))
                break
            except Exception as error:
                rows.append((False, f"{call} raised {type(error).__name__}: {error}"))
        return ExerciseReport(self.slug, (), (), title=self.title, after=self.after, rows=tuple(rows))

    def reference(self) -> FunctionType:
        """The solution of a function exercise, as a function."""
        namespace: dict[str, Any] = {}
        exec(builtins.compile(self.solution, f"<solution of {self.slug}>", "exec"), namespace)
        return namespace[self.slug]

    def __str__(self) -> str:
        return f"{self.title}\n{self.task}"

    def _ipython_display_(self) -> None:
        """The task with a button for the next hint, and one for the solution after the last hint."""
        from IPython.display import display

        from .questions import exercise_card  # here: only notebooks need widgets

        display(exercise_card(self))


@explained
def exercise(slug: str) -> Exercise:
    """The exercise of this name. Raises CourseError with the known names."""
    known = exercises()
    if not isinstance(slug, str) or slug not in known:
        raise CourseError(f"There is no exercise {slug!r}. There are: {', '.join(known)}.")
    return known[slug]


@functools.cache
def exercises() -> dict[str, Exercise]:
    """All exercises by slug, in the order of the lessons."""
    paths = sorted(path for path in FOLDER.iterdir() if path.suffix in _LEADERS)
    found = [parse(path.name, path.read_text(encoding="utf-8")) for path in paths]
    return {item.slug: item for item in found}


@functools.cache
def _others(slug: str) -> tuple[likeness.Known, ...]:
    """The lessons' kernels, and the solutions of all exercises but this one."""
    lessons = [likeness.Known(f"lesson {step.number:02}'s own kernel", step.entry, step.kernel_source()) for step in STEPS if step.entry]
    solutions = [
        likeness.Known(f"the solution of another exercise, “{item.title}”", item.slug, item.solution)
        for item in exercises().values()
        if item.language == "cu" and item.slug != slug
    ]
    return (*lessons, *solutions)


def parse(filename: str, text: str) -> Exercise:
    """An exercise from the text of its file. Raises CourseError for another name and a key that is unknown, ValueError if a region is not
    closed."""
    named = re.fullmatch(r"(\d\d)_(\w+)\.(\w+)", filename)
    if named is None:
        raise CourseError(f"{filename}: the file of an exercise is named after its lesson's number and its slug, such as 03_flat_block.cu.")
    number, slug, suffix = named.groups()
    leader = _LEADERS[f".{suffix}"]
    lines = text.rstrip().split("\n")
    texts: dict[str, list[str]] = {
        key: []
        for key in ("kind", "title", "task", "hint", "expect", "given", "case", "scales", "accuracy", "nan", "infinity", "fewer", "after")
    }
    key = None
    start = 0
    for start, line in enumerate(lines):
        if not line.startswith(f"{leader}!"):
            break
        said = line[len(leader) + 2 :]
        if said.startswith("    ") and key:
            texts[key][-1] += " " + said.strip()
        else:
            key, _, value = said.strip().partition(": ")
            if key not in texts:
                raise CourseError(f"{filename}, line {start + 1}: {key!r} is no key of an exercise. There are: {', '.join(texts)}.")
            texts[key].append(value)
    solution, starter = _derive(lines[start:], leader)
    kind = " ".join(texts["kind"])
    return Exercise(
        lesson=int(number),
        slug=slug,
        language=suffix,
        kind=kind,
        title=" ".join(texts["title"]),
        task=" ".join(texts["task"]),
        hints=tuple(texts["hint"]),
        expect=tuple(expect(sentence) for sentence in texts["expect"]),
        cases=tuple(tuple(float(v) if "." in v else int(v) for v in case.split(",")) for case in texts["case"]),
        after=" ".join(texts["after"]),
        solution=solution,
        starter=starter,
        scales=int(" ".join(texts["scales"]) or 0),
        accuracy=_accuracy(" ".join(texts["accuracy"])),
        nan=bool(texts["nan"]),
        infinity=bool(texts["infinity"]),
        given=kind != "change" or bool(texts["given"]),
        fewer=" ".join(texts["fewer"]),
    )


def _accuracy(text: str) -> tuple[int, float, int] | None:
    """Of "4096 30" or "64 8 -10": K, the errors that are allowed, and the power of two that the numbers are below; None of nothing."""
    k, allowed, power = (*text.split(), "0")[:3] if text else ("", "", "")
    return (int(k), float(allowed), int(power)) if text else None


def _of_finite_numbers(report: CheckReport) -> bool:
    """Is nothing wrong but what NaN and infinity become?"""
    return report.ran and all(isinstance(case.problem, NonFiniteProblem) for case in report.cases if case.message)


def _near(case: tuple) -> tuple:
    """Other arguments, a little larger, drawn anew each time: an answer that only knows the cases is none."""
    factors = [1 + random.random() / 2 for _ in case]
    return tuple(
        value * factor if isinstance(value, float) else int(value * factor) + 1 for value, factor in zip(case, factors, strict=True)
    )


def _derive(lines: list[str], leader: str) -> tuple[str, str]:
    """Solution and starter from the body of an exercise file."""
    solution, starter, region = [], [], None
    for line in lines:
        mark = line.strip()
        if mark in (f"{leader}[solution", f"{leader}[starter", f"{leader}]"):
            wanted = {f"{leader}[solution": None, f"{leader}[starter": "solution", f"{leader}]": "starter"}[mark]
            if region != wanted:
                raise ValueError(f"{mark} stands where a region {region or 'has not begun'}")
            region = {None: "solution", "solution": "starter", "starter": None}[region]
        elif region == "starter":
            indent, found, code = line.partition(f"{leader}|")
            if not found or indent.strip():
                raise ValueError(f"{line!r}: a line of the starter begins with {leader}|")
            starter.append((indent + code).rstrip())
        else:
            solution.append(line)
            if region is None:
                starter.append(line)
    if region:
        raise ValueError(f"the region {region} is not closed")
    return "\n".join(solution), "\n".join(starter)


def check_step(step: Step, on: str | None = None) -> CheckReport:
    """The reference kernel of a step through the check its notebook runs."""
    from .lesson import reference  # here: lesson.py stands above the exercises

    return reference(step.slug).check(on=on)
