"""What a reader has achieved, from the store alone: each achievement is a sentence and a question to what was kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from helpers.sim.counting import names

from . import rungs
from .exercises import Exercise, exercises
from .questions import CLOSE, HINTS, judge
from .steps import STEPS, get
from .store import MEASURED, RECORDED, SavedAnswer, SavedClimb, Store

SOLVED = "exercise."  # before an exercise's slug: the question whose answer is that it is solved
PUBLISHED_MISTAKES = ("two_columns", "warp_barrier", "row_for_column", "k_guard")
HIDDEN_RACES = ("second_barrier", "warp_barrier")  # their results are right
PERSISTENT = 5  # versions of one cell, the last of them right
IN_A_ROW = 5  # predictions


@dataclass(frozen=True)
class Guess:
    """What the reader said and what it was. question: its id, which begins with the step's slug."""

    question: str
    yours: float | str
    truth: float | str

    @property
    def factor(self) -> float | None:
        """Guess by truth; None where that says nothing: words, signs that differ, zeros."""
        if isinstance(self.yours, str) or isinstance(self.truth, str) or not self.yours * self.truth > 0:
            return None
        return self.yours / self.truth

    @property
    def good(self) -> bool:
        """Right, or close to it."""
        return judge(self.yours, self.truth) in ("right", "exactly", "close")


@dataclass(frozen=True)
class ReaderRecord:
    """All that a store says about a reader. hints: how many were taken, by exercise. versions: of each cell, and the last verdict."""

    climbs: Sequence[SavedClimb]
    predictions: Sequence[Guess]
    committed: Mapping[str, int]
    solved: Mapping[str, Exercise]
    hints: Mapping[str, int]
    versions: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, store: Store) -> ReaderRecord:
        latest: dict[str, SavedAnswer] = {answer.question: answer for answer in store.answers()}
        solved = {name: item for name, item in exercises().items() if f"{SOLVED}{name}" in latest}
        hints = {name: item.answer for name in exercises() if (item := latest.get(f"{HINTS}{name}")) and isinstance(item.answer, int)}
        asked = [item for item in latest.values() if not item.question.startswith((SOLVED, HINTS)) and _step(item.question) is not None]
        predictions = [Guess(item.question, item.answer, item.truth) for item in asked if _comparable(item)]
        committed: dict[str, int] = {}
        for item in asked:
            slug = item.question.partition(".")[0]
            committed[slug] = committed.get(slug, 0) + 1
        verdicts = {row["cell"]: row["says"] for row in store.rows("SELECT cell, says FROM verdicts ORDER BY id")}
        counted = store.rows("SELECT cell, count(DISTINCT source) AS versions FROM runs GROUP BY cell")
        versions = {row["cell"]: (row["versions"], verdicts.get(row["cell"], "")) for row in counted}
        return cls(store.climbs(), predictions, committed, solved, hints, versions)


def _step(question: str) -> int | None:
    """The number of the step that a question belongs to; None for one that no step asks."""
    try:
        return get(question.partition(".")[0]).number
    except KeyError:
        return None


def _comparable(item: SavedAnswer) -> bool:
    """Has the truth been told, and are both of a kind?"""
    both = item.answer, item.truth
    return all(isinstance(value, str) for value in both) or all(isinstance(value, int | float) and value is not True for value in both)


@dataclass(frozen=True)
class Achievement:
    """title and what: for the reader. earned: of what was kept."""

    title: str
    what: str
    earned: Callable[[ReaderRecord], bool]


def _climbed(kept: ReaderRecord) -> set[int]:
    return {climb.step for climb in kept.climbs if climb.step is not None}


def _no_conflicts(kept: ReaderRecord) -> bool:
    for climb in kept.climbs:
        conflicts = sum(climb.counters.get(names.shared_conflicts(op), 0) for op in ("ld", "st"))
        if (climb.step or 0) > get("thread_tile_2d").number and climb.counters.get(names.executed("shared_ld"), 0) and not conflicts:
            return True
    return {"column_store", "rotate"} <= kept.solved.keys()


def _beat_the_reference(kept: ReaderRecord) -> bool:
    """A kernel of the reader's is faster than the step's own, on the same device, in the same way, at the same size."""

    def race(climb: SavedClimb) -> tuple:
        return climb.step, climb.device, climb.dtype, climb.m, climb.n, climb.k, climb.kind == MEASURED

    own = {step.number: rungs.code_hash(step.kernel_source()) for step in STEPS if step.kernel_path}
    theirs: dict[tuple, float] = {}
    mine: dict[tuple, float] = {}
    for climb in kept.climbs:
        if climb.step in own and climb.tflops:
            found = theirs if climb.kind == RECORDED or rungs.code_hash(climb.source) == own[climb.step] else mine
            found[race(climb)] = max(climb.tflops, found.get(race(climb), 0.0))
    return any(tflops > theirs.get(key, float("inf")) for key, tflops in mine.items())


def _in_a_row(kept: ReaderRecord) -> bool:
    run = best = 0
    for prediction in kept.predictions:
        run = run + 1 if prediction.good else 0
        best = max(best, run)
    return best >= IN_A_ROW


def _written(kept: ReaderRecord) -> list[str]:
    return [name for name, item in kept.solved.items() if item.kind == "write" and item.language == "cu"]


def _all_written(kept: ReaderRecord) -> bool:
    return {name for name, item in exercises().items() if item.kind == "write"} <= kept.solved.keys()


def _persistent(kept: ReaderRecord) -> bool:
    return any(versions >= PERSISTENT and says == "passed" for versions, says in kept.versions.values())


ACHIEVEMENTS: tuple[Achievement, ...] = (
    Achievement("First rung", "a kernel of yours stands on the ladder", lambda kept: bool(kept.climbs)),
    Achievement(
        "Called it", "a prediction was exactly right", lambda kept: any(judge(p.yours, p.truth) == "exactly" for p in kept.predictions)
    ),
    Achievement("A feeling for it", f"{IN_A_ROW} predictions in a row within a factor of {CLOSE:g}", _in_a_row),
    Achievement("From a blank page", "you have written what a kernel is about yourself", lambda kept: bool(_written(kept))),
    Achievement("Unaided", "written yourself, and no hint taken", lambda kept: any(not kept.hints.get(name) for name in _written(kept))),
    Achievement("Zero conflicts", "no two lanes of yours want different words of one bank", _no_conflicts),
    Achievement(
        "Right and wrong at once", "you found the race that gives right results", lambda kept: bool(set(HIDDEN_RACES) & kept.solved.keys())
    ),
    Achievement(
        "Peer review", "you have mended four mistakes that were published", lambda kept: set(PUBLISHED_MISTAKES) <= kept.solved.keys()
    ),
    Achievement("It was not the first try", f"right at the {PERSISTENT}th version or later", _persistent),
    Achievement("Past the reference", "your kernel is faster than the step's own", _beat_the_reference),
    Achievement(
        "Past the library",
        "your kernel is faster than cuBLAS, measured",
        lambda kept: any(climb.kind == MEASURED and (climb.cublas_ratio or 0) > 1 for climb in kept.climbs),
    ),
    Achievement("Half way up", "a rung for each of the first seven steps", lambda kept: set(range(1, 8)) <= _climbed(kept)),
    Achievement("The whole ladder", "a rung for every step", lambda kept: {step.number for step in STEPS if step.entry} <= _climbed(kept)),
    Achievement("All by hand", "everything that is to be written is written", _all_written),
)
