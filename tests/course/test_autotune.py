"""The search over a kernel's constants: every refusal for its reason, the ranking, and going on after an interrupt."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.course import autotune
from helpers.course.autotune import BOUND, LAUNCH, REGISTERS, SPILLS, search
from helpers.course.steps import get
from helpers.course.sweep import variant
from helpers.errors import CourseError, RunError
from helpers.model.planned_cycles import loop_cycles
from helpers.run.gemm import Problem
from helpers.run.gpu import Timing
from helpers.run.timing import GemmTiming
from helpers.toolchain.compile import compile_source
from tests.course.tiny_kernel import SOURCE

GPU = "H200 SXM"
STEP_12 = get("autotune").kernel_path.read_text(encoding="utf-8")
SHARED_TILE = get("shared_tile").kernel_path.read_text(encoding="utf-8")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "searches.journal"


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr("helpers.run.gpu.available", lambda: False)


def found_for(space, file, size=1024, **options):
    return search(SOURCE, space, size, GPU, file=file, **options)


# ------------------------------------------------------------------------------------------------- refusals, cheap ones


def test_what_an_sm_cannot_hold_is_refused_before_it_is_compiled(file, monkeypatch):
    monkeypatch.setattr(autotune, "compile_source", None)  # calling it would fail
    found = found_for({"HOLD": (58113,), "TM": (2, 16), "TN": (2, 16), "THREADS": (64, 2048)}, file)
    assert {item.rule for item in found.candidates} == {LAUNCH}
    found = found_for({"TM": (16,), "TN": (16,), "THREADS": (64,)}, file)
    assert found.candidates[0].rule == REGISTERS
    assert found.candidates[0].refused == "Each thread must keep 256 sums, and 64 threads leave it 255 registers."
    found = found_for({"TM": (8,), "TN": (16,), "THREADS": (1024,)}, file)
    assert found.candidates[0].refused == "Each thread must keep 128 sums, and 1024 threads leave it 64 registers."


def test_shared_memory_is_refused_from_the_first_byte_too_many(file):
    words = 227 * 1024 // 4
    fits, not_any_more = found_for({"HOLD": (words, words + 1)}, file, trials=0).candidates
    assert (fits.rule, not_any_more.rule) == ("", LAUNCH)
    assert "at most 232,448 bytes of shared memory, this one uses 232,452" in not_any_more.refused


def test_spills_are_refused_with_their_bytes(file):
    tight = SOURCE.replace("__launch_bounds__(THREADS)", "__launch_bounds__(THREADS, 16)")  # 64 registers each
    for source, tile in ((SOURCE, {"TM": 14, "TN": 16}), (tight, {"TM": 8, "TN": 8})):
        _spilled(source, tile, file)


def _spilled(source, tile, file):
    item = search(source, {name: (value,) for name, value in tile.items()}, 1024, GPU, file=file).candidates[0]
    assert item.rule == SPILLS
    assert item.refused == f"{item.code.spilled} bytes of each thread find no register and go to memory and back."
    assert item.code.spilled == compile_source(variant(source, **item.constants)).local_bytes > 0


# -------------------------------------------------------------------------------------------------------------- ranking


@pytest.mark.parametrize(("tile", "shape", "sms", "fill"), [
    ((256, 128), (4096, 4096), 132, 512 / (4 * 132)),   # 3.88 of 4 waves
    ((128, 128), (256, 256), 132, 4 / 132),             # four SMs work
    ((100, 100), (50, 100), 1, 0.5),                    # half the only tile sticks out
    ((1, 1), (132, 10), 132, 1.0),
])  # fmt: skip
def test_fill_counts_idle_sms_and_work_outside_the_matrix(tile, shape, sms, fill):
    assert autotune.busy_part(tile, Problem(*shape, 7), sms) == pytest.approx(fill)


@pytest.mark.parametrize(("shape", "depth", "step", "fill"), [
    ((128, 132 * 128, 256), 8, 1, 1.0), ((128, 132 * 128, 256), 8, 64, 1.0),  # four of eight have a step each
    ((128, 132 * 128, 1), 1, 16, 1 / 16), ((128, 128, 100), 1, 16, 100 / 112 / 132),
])  # fmt: skip
def test_fill_counts_steps_along_k_that_are_not_there(shape, depth, step, fill):
    assert autotune.busy_part((128, 128), Problem(*shape), 132, depth, step) == pytest.approx(fill)


@pytest.mark.slow
def test_slices_that_a_kernel_has_no_room_for_count_as_none(file):
    """By step 12's ROOM, at 3072³ the kernel is the same with any number of them."""
    found = search(STEP_12, {"SLICES": (1, 4)}, 3072, GPU, file=file)
    assert [item.code.slices for item in found.candidates] == [1, 1] and len(found.ranked) == 2
    assert found.candidates[0].fill == found.candidates[1].fill and found.best.constants["SLICES"] == 1
    small = found.at(512)
    assert [item.code.slices for item in small.candidates] == [1, 4] and small.best.constants["SLICES"] == 4


@pytest.mark.slow
def test_a_shallow_product_fills_little_of_its_steps(file):
    deep, shallow = (search(STEP_12, {"BM": (256,)}, (1000, 1000, k), GPU, file=file).best for k in (1024, 1))
    assert shallow.code.step == 16 and shallow.fill == pytest.approx(deep.fill / 16)


def test_a_scheduler_without_a_warp_does_no_work(file):
    """Blocks of a warp, one for each multiprocessor: three of four schedulers rest."""
    found = found_for({"TM": (8,), "TN": (8,), "THREADS": (32, 128)}, file, size=256)
    one, four = found.candidates
    assert one.fill == pytest.approx(autotune.busy_part(one.code.tile, found.problem, 132) / 4)
    assert four.fill == pytest.approx(autotune.busy_part(four.code.tile, found.problem, 132))


@pytest.mark.slow
def test_the_fp32_limit_is_the_gpus(file):
    """On an A100 a scheduler issues a multiply-add every other cycle, and nothing is faster."""
    found = search(STEP_12, {"BM": (128,)}, 4096, "A100 SXM4 80GB", file=file)
    assert found.best.code.issue == 2 and found.best.code.cycles > 2
    assert 0.8 < found.best.score == found.best.fill * 2 / found.best.code.cycles < 1 and found.best.bound < 1


def test_what_was_not_measured_was_not_checked_and_says_so(file):
    found = found_for({"TM": (4,), "THREADS": (64,)}, file)
    assert "whether its results are right, check()" in str(found.table()) and "1 configuration for" in found.summary()
    for rows in (0, -1):
        with pytest.raises(CourseError, match="a whole number, at least 1"):
            found.table(rows)
    with pytest.raises(CourseError, match="no figures for a GPU called ''"):
        search(SOURCE, {"TM": (4,)}, gpu_name="", file=file)


@pytest.mark.slow
def test_the_first_of_the_ranking_has_the_best_score_and_the_bound_spares_the_rest(file):
    space = {"TM": (2, 4, 8), "TN": (1, 2, 8), "THREADS": (32, 64)}
    found = found_for(space, file)
    scores = [item.score for item in found.ranked]
    assert scores == sorted(scores, reverse=True) and found.best.score == scores[0]
    everything = {}
    for item in found.candidates:
        if item.rule == BOUND:
            assert item.bound < 0.9 * found.best.score and item.code is None
            text = variant(SOURCE, **item.constants)
            everything[str(item)] = item.fill / loop_cycles(compile_source(text))
    assert all(score < found.best.score for score in everything.values())  # it refused nothing that would have won


@pytest.mark.slow
def test_another_size_is_ranked_with_the_same_code(file):
    found = found_for({"TM": (2, 8), "TN": (2, 8), "THREADS": (64, 256)}, file, size=4096)
    small = found.at(256)
    assert small.problem == Problem(256, 256, 256)
    fresh = found_for({"TM": (2, 8), "TN": (2, 8), "THREADS": (64, 256)}, file, size=256)
    scores = {str(item): item.score for item in fresh.candidates}
    for item in small.candidates:
        if scores[str(item)] is not None:
            assert item.score == pytest.approx(scores[str(item)])


# ------------------------------------------------------------------------------------------------- keeping and going on


def test_a_limited_search_says_what_waits_and_goes_on(file):
    space = {"TM": (2, 4), "TN": (2, 4)}
    first = found_for(space, file, trials=1)
    assert len(first.ranked) == 1 and "3 configurations wait" in first.stopped
    again = found_for(space, file, trials=1)
    assert len(again.ranked) >= 2
    assert not found_for(space, file).stopped


def test_an_interrupted_search_returns_what_it_has_and_compiles_nothing_twice(file, monkeypatch):
    compiled = []

    def compile_two(text, **options):
        if len(compiled) == 2:
            raise KeyboardInterrupt
        compiled.append(text)
        return compile_source(text, **options)

    monkeypatch.setattr(autotune, "compile_source", compile_two)
    space = {"TM": (2, 4), "TN": (2, 4)}
    found = found_for(space, file)
    assert "Interrupted" in str(found) and len([c for c in found.candidates if c.code]) == 2
    monkeypatch.setattr(autotune, "compile_source", lambda text, **options: compiled.append(text) or compile_source(text, **options))
    done = found_for(space, file)
    assert not done.stopped
    assert len(compiled) == len(set(compiled)) <= 4


def test_a_changed_source_is_searched_anew(file):
    found_for({"TM": (2,)}, file)
    with pytest.raises(TypeError), pytest.MonkeyPatch.context() as patch:
        patch.setattr(autotune, "compile_source", None)
        search(SOURCE + "\n", {"TM": (2,)}, 1024, GPU, file=file)


def test_without_a_place_to_write_the_search_still_works_and_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    found = found_for({"TM": (2,)}, tmp_path / "file" / "searches.journal")
    assert found.ranked and "kept for this search only" in found.stopped


@pytest.mark.parametrize("damage", [b"no journal" * 100, b"{}\n", b'{"op_code": 0}\n{"x'])
def test_a_damaged_file_is_no_obstacle(file, damage):
    file.write_bytes(damage)
    found = found_for({"TM": (2,)}, file)
    assert found.ranked and "kept for this search only" in found.stopped


# ------------------------------------------------------------------------------------------------------------ measuring


@pytest.fixture
def pretend_gpu(monkeypatch):
    """A GPU on which a configuration takes 1/TM ms, and TM = 8 computes nonsense. Yields the batches it timed."""
    batches = []

    def time_gemms(kernels, problem, samples=20, seconds=3.0):
        tiles = {name: kernel.compiled.constants["TM"][0] for name, kernel in kernels.items()}
        batches.append(sorted(tiles.values()))
        if 8 in tiles.values():
            raise RunError("computes wrong results")
        timing = {name: Timing(1 / tm, 0.01, 20, 1980.0, GPU) for name, tm in tiles.items()}
        return {name: GemmTiming(problem, one, Timing(0.2, 0.01, 20, 1980.0, GPU)) for name, one in timing.items()}

    class Device:
        name, arch, sms = GPU, "sm_90", 132

    monkeypatch.setattr(autotune, "time_gemms", time_gemms)
    monkeypatch.setattr("helpers.run.gpu.available", lambda: True)
    monkeypatch.setattr("helpers.run.gpu.device", lambda: Device)
    monkeypatch.setattr(autotune, "_SLACK", 0.0)
    return batches


def test_measured_times_decide_and_wrong_results_are_refused(file, pretend_gpu):
    found = search(SOURCE, {"TM": (2, 4, 6, 8)}, 512, file=file)
    assert [item.constants["TM"] for item in found.ranked] == [6, 4, 2]
    assert found.best.measured.cublas_ratio == pytest.approx(0.2 * 6)
    wrong = next(item for item in found.candidates if item.constants["TM"] == 8)
    assert (wrong.rule, wrong.refused) == (autotune.WRONG, "computes wrong results")
    assert f"{2 * 512**3 / (1 / 6) / 1e9:.1f}" in str(found)


def test_what_was_timed_is_not_timed_again(file, pretend_gpu):
    once = search(SOURCE, {"TM": (2, 4)}, 512, file=file)
    assert pretend_gpu == [[2, 4]]
    again = search(SOURCE, {"TM": (2, 4)}, 512, file=file)
    assert pretend_gpu == [[2, 4]] and again.candidates == once.candidates
    search(SOURCE, {"TM": (2,)}, 1024, file=file)
    assert pretend_gpu[1:] == [[2]]  # another size is another time


@pytest.mark.slow
def test_with_fewer_trials_than_configurations_optuna_chooses_and_none_is_tried_twice(file, pretend_gpu):
    space = {"TM": (2, 4, 6, 10, 12), "TN": (1, 2), "THREADS": (32, 64)}
    tried = []
    for trials in (9, 9, 9):
        found = search(SOURCE, space, 512, trials=trials, file=file)
        tried.append(sum(item.measured is not None for item in found.candidates))
    assert tried == [9, 18, 20]
    assert found.best.constants["TM"] == 12 and not found.stopped


def test_a_trial_that_was_killed_is_made_again(file):
    import optuna

    space = {"TM": (2, 4)}
    found_for(space, file, trials=1)
    study = optuna.load_study(
        study_name=None,
        storage=optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(file))),
    )
    left = {"TM": ({2, 4} - {study.trials[0].params["TM"]}).pop()}
    study.enqueue_trial(left)
    study.ask({"TM": optuna.distributions.CategoricalDistribution((2, 4))})  # and never told
    assert len(found_for(space, file).ranked) == 2


def test_an_interrupt_while_timing_keeps_the_batches_before(file, pretend_gpu, monkeypatch):
    monkeypatch.setattr(autotune, "_TIMED_TOGETHER", 1)
    honest = autotune.time_gemms
    monkeypatch.setattr(autotune, "time_gemms", lambda *a, **k: honest(*a, **k) if len(pretend_gpu) < 1 else _interrupt())
    found = search(SOURCE, {"TM": (2, 4)}, 512, file=file)
    assert "Interrupted" in found.stopped and sum(item.measured is not None for item in found.candidates) == 1


def _interrupt():
    raise KeyboardInterrupt


# ---------------------------------------------------------------------------------------------------- asking and seeing


@pytest.mark.parametrize(("space", "size", "message"), [
    ({}, 64, "nothing to search"),
    ({"TM": ()}, 64, "nothing to search"),
    ({"TM": (2,)}, 0, "at least 1"),
    ({"TM": (2,)}, (64, 64), "three for"),
    ({"WM": (2,)}, 64, "sets WM to a number in 0 places"),
    ({"source": (2,)}, 64, "sets source to a number in 0 places"),
    ({"TM": (2,)}, Problem(0, 64, 64), "nothing to search for"),
])  # fmt: skip
def test_bad_requests_are_refused_with_a_sentence(space, size, message, file):
    with pytest.raises(CourseError, match=message):
        search(SOURCE, space, size, GPU, file=file)


@pytest.mark.parametrize("space", [
    None, 3, ["TM"], "TM", {"TM": 2}, {"TM": None}, {3: (2,)}, {"TM": "24"}, {"TM": b"24"}, {"TM": ("a",)}, {"TM": (2, 1.5)}, {"TM": [True]},
    {"TM": np.array(2)}, {"TM": {2: 4}},
])  # fmt: skip
def test_what_is_no_space_is_refused(space, file):
    with pytest.raises(CourseError, match=r"space=.*: give each constant with the whole numbers to try, such as {'BM': \(64, 128\)}"):
        search(SOURCE, space, 64, GPU, file=file)


@pytest.mark.parametrize("size", [None, 1.5, float("nan"), True, "64", (), np.array(64), (64, None, 64), (64, 64, 1.5)])
def test_what_is_no_size_is_refused(size, file):
    with pytest.raises(CourseError, match="size=.*: give one whole number for M = N = K, or three for"):
        search(SOURCE, {"TM": (2,)}, size, GPU, file=file)


@pytest.mark.parametrize(("options", "message"), [
    *(({"trials": trials}, "trials=.*: give a whole number, 0 or more, or None for all") for trials in ("x", float("nan"), 1.5, -1, True)),
    *(({"prepare": prepare}, "prepare=.*: give a function that takes a list of candidates") for prepare in (3, 0, "x")),
    *(({"file": file}, "file=.*: give the path of a file") for file in (3, 0, b"x", ["x"])),
    *(({"source": source}, "a source is text, and this is") for source in (None, 3)),
])  # fmt: skip
def test_what_a_search_cannot_take_is_refused(options, message, file):
    with pytest.raises(CourseError, match=message):
        search(**{"source": SOURCE, "space": {"TM": (2,)}, "size": 64, "gpu_name": GPU, "file": file, **options})


def test_numbers_may_be_numpys_and_come_twice_and_the_file_a_text(file):
    found = search(SOURCE, {"TM": np.array([2, 4, 2])}, np.int64(64), GPU, np.int64(9), str(file))
    assert [item.constants for item in found.candidates] == [{"TM": 2}, {"TM": 4}]
    assert not found.stopped and file.exists()


def test_an_unknown_gpu_is_refused(file, no_gpu):
    with pytest.raises(CourseError, match="no figures for a GPU"):
        search(SOURCE, {"TM": (2,)}, 64, "Voodoo 2", file=file)


def test_nothing_left_is_said_with_the_reasons(file):
    found = found_for({"TM": (1, 3)}, file)
    with pytest.raises(CourseError, match=r"No configuration is left. 2 configurations .* 2 refused \(static assert\)"):
        _ = found.best


def test_the_table_shows_the_best_first(file):
    found = found_for({"TM": (2, 4)}, file)
    title, first = (line.split("  ")[0].strip() for line in str(found).split("\n")[:2])
    assert (title, first) == ("TM", str(found.best.constants["TM"]))
    assert found._repr_html_().count("<tr>") == 1 + len(found.ranked)


def test_a_row_of_the_table_has_room_for_values_alone(file):
    found = found_for({"TM": (2,), "HOLD": (0,), "TN": (4,)}, file)
    assert found.pairs == [("TM", "TN"), ("HOLD",)]
    title, first = str(found).split("\n")[:2]
    assert title.startswith("TM × TN, HOLD") and first.startswith("2 × 4, 0 ")
    assert "2&nbsp;×&nbsp;4, 0<" in found._repr_html_(), "a pair is not broken"
