"""Where a reader stands, and what for: all from the store.

Tests of: helpers.course.achievements
"""

from __future__ import annotations

import pytest

from helpers.course import standing as module
from helpers.course.achievements import ACHIEVEMENTS, IN_A_ROW, PERSISTENT, PUBLISHED_MISTAKES, Guess, ReaderRecord
from helpers.course.exercises import exercises
from helpers.course.standing import LEVELS, standing
from helpers.course.steps import STEPS, get
from helpers.course.store import SavedClimb, Store
from helpers.sim.counting import names


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def climb(store, slug="naive", kind="predicted", tflops=1.0, **more):
    return store.climb(kind=kind, label=slug, device="H200 SXM", m=64, n=64, k=64, step=get(slug).number, tflops=tflops, **more)


def test_at_the_start_everything_is_still_to_come(store):
    shown = standing(store)
    assert (shown.points, shown.level, shown.achieved) == (0, (1, "Lane"), ())
    assert shown.next == "00 · Start here: read it, then do its exercise “Arithmetic intensity” (write it yourself)."
    assert len(shown.table().rows) == len(STEPS) and "No prediction" in str(shown)
    assert "href='01_naive.ipynb'" in shown._repr_html_() and "<img" not in shown._repr_html_()
    assert not store.path.exists(), "looking makes no file"


def test_what_is_done_counts_once_and_hints_cost(store):
    for _ in range(2):
        store.answer("exercise.intensity", "solved", step=0)
        store.answer("naive.sectors_a", 32, 32, step=1)
    assert standing(store).points == 50 + 5 + 5 + 25  # exercise, prediction, right, achievement "Called it"
    store.answer("hints.intensity", 3, step=0)
    assert standing(store).points == 50 - 15 + 5 + 5 + 25
    climb(store)
    lesson = standing(store).lessons[1]
    assert (lesson.predicted, lesson.questions, lesson.solved, lesson.done) == (1, 3, (), False)
    store.answer("exercise.narrow_block", "solved", step=1)
    shown = standing(store)
    assert shown.lessons[1].done and not shown.lessons[1].complete
    assert shown.next.startswith("02 · Coalesced: put its kernel on the ladder")


def test_the_bench_is_done_with_a_kernel_of_one_s_own(store):
    bench = standing(store).lessons[-1]
    assert bench.step.bench and not bench.done and bench.next.startswith("put a kernel of your own")
    climb(store)
    assert not standing(store).lessons[-1].done
    store.climb(kind="predicted", label="mine", device="H200 SXM", m=64, n=64, k=64, tflops=2.0)
    bench = standing(store).lessons[-1]
    assert bench.done and bench.complete and bench.rung.label == "mine"


def test_predictions_are_drawn_by_their_truth(store):
    store.answer("naive.sectors_a", 32, 32, step=1)
    store.answer("coalesced.speedup", 3, 12, step=2)
    store.answer("shared_tile.all_loads", "more", "more", step=3)
    shown = standing(store)
    assert "Of 2 predictions with a number 1 are close" in shown.calibration
    assert "naive.sectors_a 1, coalesced.speedup 0.25" in shown._repr_html_()


def test_time_leaves_out_the_pauses(store, monkeypatch):
    moments = iter(f"2026-01-01T{clock}:00+00:00" for clock in ("10:00", "10:10", "11:10", "11:15"))
    monkeypatch.setattr("helpers.course.store.now", lambda: next(moments))
    for _ in range(4):
        store.answer("naive.sectors_a", 32, step=1)
    assert standing(store).lessons[1].seconds == 15 * 60
    assert [module._duration(seconds) for seconds in (0, 20, 900, 3700)] == ["", "< 1 min", "15 min", "1 h 02 min"]


def test_levels_rise():
    assert list(LEVELS) == sorted(LEVELS) and LEVELS[0][0] == 0


def a_climb(step, source="mine", **more):
    return SavedClimb(
        kind=more.pop("kind", "predicted"), label="x", device="d", dtype="float32", m=64, n=64, k=64, step=step, source=source, **more
    )


def kept(climbs=(), predictions=(), solved=(), hints=None, versions=None):
    return ReaderRecord(climbs, predictions, {}, {name: exercises()[name] for name in solved}, hints or {}, versions or {})


NAIVE = get("naive").kernel_path.read_text(encoding="utf-8")
RIGHT, WRONG = Guess("naive.x", 5, 5), Guess("naive.x", 5, 50)
LOADS = {names.executed("shared_ld"): 8}
WRITTEN = tuple(name for name, item in exercises().items() if item.kind == "write")


CLIMBED = [step.number for step in STEPS if step.entry]


@pytest.mark.parametrize(
    ("title", "enough", "not_enough"),
    [
        ("First rung", kept([a_climb(1)]), kept()),
        ("Called it", kept(predictions=[RIGHT]), kept(predictions=[WRONG, Guess("naive.x", "more", "more")])),
        ("A feeling for it", kept(predictions=[WRONG, *[RIGHT] * IN_A_ROW]), kept(predictions=[*[RIGHT] * (IN_A_ROW - 1), WRONG, RIGHT])),
        ("From a blank page", kept(solved=["rotate"]), kept(solved=["narrow_block", "intensity"])),
        ("Unaided", kept(solved=["rotate"]), kept(solved=["rotate"], hints={"rotate": 1})),
        ("Zero conflicts", kept([a_climb(6, counters=LOADS)]), kept([a_climb(6, counters=LOADS | {names.shared_conflicts("ld"): 1})])),
        ("Right and wrong at once", kept(solved=["second_barrier"]), kept(solved=["early_exit"])),
        ("Peer review", kept(solved=PUBLISHED_MISTAKES), kept(solved=PUBLISHED_MISTAKES[1:])),
        (
            "It was not the first try",
            kept(versions={"x": (PERSISTENT, "passed")}),
            kept(versions={"x": (PERSISTENT, "no"), "y": (1, "passed")}),
        ),
        (
            "Past the reference",
            kept([a_climb(1, NAIVE, tflops=0.5), a_climb(1, tflops=0.6)]),
            kept([a_climb(1, NAIVE, tflops=0.5), a_climb(1, NAIVE + " // faster", tflops=0.6), a_climb(2, tflops=9.0)]),
        ),
        ("Past the library", kept([a_climb(11, kind="measured", cublas_ratio=1.1)]), kept([a_climb(11, cublas_ratio=1.1)])),
        ("Half way up", kept([a_climb(n) for n in range(1, 8)]), kept([a_climb(n) for n in range(2, 14)])),
        ("The whole ladder", kept([a_climb(n) for n in CLIMBED]), kept([a_climb(n) for n in CLIMBED[1:]])),
        ("All by hand", kept(solved=WRITTEN), kept(solved=WRITTEN[1:])),
    ],
)
def test_an_achievement_means_what_it_says(title, enough, not_enough):
    (item,) = (item for item in ACHIEVEMENTS if item.title == title)
    assert item.earned(enough) and not item.earned(not_enough)


def test_every_achievement_is_tested():
    (mark,) = test_an_achievement_means_what_it_says.pytestmark
    assert [case[0] for case in mark.args[1]] == [item.title for item in ACHIEVEMENTS]
