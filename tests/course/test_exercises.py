"""Every exercise solved; as shipped, a lesson's own run reports it (tests/notebooks/outcome.py).

Tests of: helpers.course.exercise_sources.00_intensity, helpers.course.exercise_sources.00_smallest_n,
helpers.course.exercise_sources.12_busy_part
"""

from __future__ import annotations

import json
import re
import types

import numpy as np
import pytest

import helpers
from helpers.course import exercises as module
from helpers.course.comparing import variants
from helpers.course.exercises import exercise, exercises, parse
from helpers.course.steps import EXERCISE, ROOT, STEPS
from helpers.course.store import Store
from helpers.errors import CompileError, CourseError, Finding
from helpers.front import notebooks
from helpers.front.magics import NotCompiled
from helpers.run import gemm
from helpers.run.likely_causes import in_exercise

ALL = list(exercises().values())
KERNELS = [item for item in ALL if item.language == "cu"]
FUNCTIONS = [item for item in ALL if item.language == "py"]


def by_slug(items):
    return pytest.mark.parametrize("item", items, ids=lambda item: item.slug)


def function(item, source):
    namespace = {}
    exec(source, namespace)
    return namespace[item.slug]


@by_slug(KERNELS)
def test_the_solution_of_a_kernel_passes(item):
    report = item.check(helpers.compile(item.solution))
    assert report.passed, str(report)
    assert "solved" in str(report) and item.after in str(report)


@by_slug(FUNCTIONS)
def test_functions(item):
    assert item.check(function(item, item.solution)).passed
    report = item.check(function(item, item.starter))
    assert not report.passed
    assert "expected" in str(report)


@by_slug(ALL)
def test_an_exercise_is_complete(item):
    assert item.kind in module.KINDS
    assert len(item.hints) == module.STAGES
    assert item.title and item.task and item.after
    assert item.starter != item.solution
    assert not re.search(r"//[\[\]|!]|#[\[\]|!]", item.starter + item.solution)


def code(text: str) -> str:
    """Text without comments and white space."""
    return re.sub(r"\s", "", re.sub(r"//.*", "", text))


@by_slug(ALL)
def test_the_answer_is_not_on_the_page(item):
    """Of the lines that the solution has and the starter has not, at most half stand elsewhere in the lesson, and never all."""
    cells = json.loads(STEPS[item.lesson].notebook_path.read_text(encoding="utf-8"))["cells"]
    others = [cell for cell in cells if f"{EXERCISE}{item.slug}" not in cell["metadata"].get("tags", ())]
    page = "".join(code("".join(cell["source"])) for cell in others)
    given = {code(line) for line in item.starter.split("\n")}
    answer = [line for line in map(code, item.solution.split("\n")) if len(line) > len("__syncthreads();") and line not in given]
    found = [line for line in answer if line in page]
    places = {line: [cell["id"] for cell in others if line in code("".join(cell["source"]))] for line in found}
    assert not answer or len(found) <= len(answer) / 2, (
        f"{len(found)} of the {len(answer)} lines of {item.slug}'s answer stand in other cells of {STEPS[item.lesson].notebook_path.name}, "
        f"here without blanks, with the cells' ids: {places}. Give the exercise another layout, or other names and constants."
    )


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_lesson_has_one_of_each_kind_and_shows_them_all(step):
    items = [item for item in ALL if item.lesson == step.number]
    mine = [item.slug for item in items]
    assert len(mine) >= 2 or (step.bench and not mine)
    assert not step.entry or {item.kind for item in items} == set(module.KINDS)
    assert not step.entry or any(item.kind == "write" and item.language == "cu" for item in items)
    text = step.notebook_path.read_text(encoding="utf-8")
    tagged = re.findall(rf'"{notebooks.EXERCISE}(\w+)"', text)
    assert sorted(tagged) == sorted(mine)
    assert notebooks.wanted_text(step.notebook_path) == text


@pytest.mark.parametrize(
    ("slug", "kind"),
    [
        ("square_guard", "out-of-bounds"),
        ("k_guard", "out-of-bounds"),
        ("second_barrier", "race"),
    ],
)
def test_a_broken_kernel_is_named_for_what_it_does(slug, kind):
    report = exercise(slug).check(helpers.compile(exercise(slug).starter))
    assert kind in {finding.kind for finding in report.findings}


def test_the_race_names_both_lines():
    item = exercise("second_barrier")
    lines = item.starter.split("\n")
    races = [f for f in item.check(helpers.compile(item.starter)).findings if f.kind == "race"]
    named = {lines[line - 1].strip().split(" ")[0] for race in races for line in (race.line, race.other_line)}
    assert any(line.startswith(("As[", "Bs[")) for line in named)
    assert "const" in named or "sum" in named


def test_a_wrong_result_says_yours_and_expected():
    item = exercise("beta_zero")
    text = str(item.check(helpers.compile(item.starter)))
    assert "yours nan, expected" in text and "C[0, 0]" in text


def test_a_slow_kernel_says_its_counter():
    item = exercise("flat_block")
    report = item.check(helpers.compile(item.starter))
    assert "sectors per load of A: yours 32, expected at most 4." in str(report)
    assert (report.headline, report.after, report.untried) == (f"{item.title}: not yet", item.after, 0)
    assert all(not case.message for case in report.cases)


@pytest.mark.parametrize(
    ("slug", "said"),
    [
        ("row_for_column", "yours 0, expected -1.282246. Line 47 stored it: “out = beta == 0"),
        ("first_kernel", "No line has stored to it."),
        ("any_row", "Line 10 is “if (left > 3) return"),
        ("flat_block", "Most of it is in line 17, “const float a = A[row * lda + k];”."),
        ("column_store", "Most of it is in line 22, “As[tx][ty] = a;”."),
        ("second_barrier", "line 21, “As[ty][tx] = row < M"),
    ],
)
def test_a_failed_check_names_and_quotes_the_line(slug, said):
    item = exercise(slug)
    assert said in str(item.check(helpers.compile(item.starter)))


@pytest.mark.parametrize(
    ("slug", "total", "part"),
    [
        ("second_pass", "global loads per result: yours 6", "“const float v = c + bias[col];”"),
        ("bias_once", "global loads per result: yours 5", "Most of it is in line 48, “const float v = (beta == 0"),
    ],
)
def test_a_total_names_no_line_where_one_array_is_the_matter(slug, total, part):
    """Most of all global loads are those of the tiles, as they have to be."""
    item = exercise(slug)
    said = [text for ok, text in item.check(helpers.compile(item.starter)).lines() if not ok]
    assert any(text.startswith(total) and "line" not in text for text in said), said
    assert any(text.startswith("loads of ") and part in text for text in said), said


def test_both_passes_are_named_where_beta_is_1():
    item = exercise("second_pass")
    said = [text for ok, text in item.check(helpers.compile(item.starter), seed=1).lines() if not ok]
    (stored,) = [text for text in said if text.startswith("stores of C per result where beta is 1")]
    assert "yours 2, expected at most 1. Most of it is in line " in stored and "“c = " in stored


@pytest.mark.parametrize(("rows", "good"), [(32, False), (16, False), (8, True), (4, True), (2, False)])
def test_the_narrow_block_has_two_answers(rows, good):
    item = exercise("narrow_block")
    source = item.solution.replace("BM = 8;", f"BM = {rows};")
    assert item.check(helpers.compile(source)).passed is good


def test_what_is_not_an_answer_is_refused_with_a_sentence():
    with pytest.raises(CourseError, match="%%cuda"):
        exercise("flat_block").check("coalesced")
    with pytest.raises(CourseError, match="without brackets"):
        exercise("intensity").check(3.0)
    with pytest.raises(CourseError, match="flat_block"):
        exercise("nonsense")


def test_an_exercise_gives_its_matrices_by_rows():
    with pytest.raises(CourseError, match="takes B by columns, and the exercise gives it by rows"):
        KERNELS[0].judge(helpers.compile(KERNELS[0].solution, transb=True), 1)
    columns = in_exercise("wrong. it takes B by columns. Run the cell again with --transb behind its name: it is given B. Line 3.", False)
    assert columns == "wrong. it takes B by columns. Line 3."


def test_a_solved_exercise_is_remembered(tmp_path):
    item = exercise("intensity")
    item.check(function(item, item.starter), Store(tmp_path))
    assert not item.solved(Store(tmp_path))
    for _ in range(2):
        item.check(function(item, item.solution), Store(tmp_path))
    assert item.solved(Store(tmp_path))
    assert len(Store(tmp_path).answers(step=0)) == 1


@pytest.mark.slow
def test_on_a_gpu_a_right_answer_is_timed_in_turn_with_the_solution(tmp_path, monkeypatch):
    """With a GPU that is only pretended, and times that are made up: what is told, and that it decides nothing."""
    item = exercise("flat_block")
    right, asked = helpers.compile(item.solution), []

    def timed(kernels, problem, **options):
        asked.append((list(kernels), problem.m))
        if problem.n != 2048:
            raise CourseError("The GPU is busy.")
        kernel = {"device": "NVIDIA Pretended", "noisy": ""}
        return {
            name: types.SimpleNamespace(kernel=types.SimpleNamespace(milliseconds=ms, **kernel))
            for name, ms in zip(kernels, (4.0, 3.0), strict=True)
        }

    assert not item.check(right, Store(tmp_path / "a")).speed, "nothing is timed without a GPU"
    judge = module.Exercise.judge
    monkeypatch.setattr(module.Exercise, "judge", lambda self, answer, seed=None: judge(self, answer, seed, on="cpu"))
    monkeypatch.setattr(module, "can_measure", lambda kernel: True)
    monkeypatch.setattr(module, "time_gemms", timed)
    report = item.check(right, Store(tmp_path / "b"))
    assert report.passed and asked == [(["yours", "solution"], 2048)]
    assert "On NVIDIA Pretended" in str(report) and "0.75 times the speed of the solution." in report._repr_html_()
    monkeypatch.setattr(module, "_TIMED_SIZE", 64)
    assert "It was not timed: The GPU is busy." in str(item.check(right, Store(tmp_path / "c")))


def test_a_cell_that_did_not_compile_says_so():
    with pytest.raises(CourseError, match="did not compile(.|\n)*expected a"):
        exercise("flat_block").check(NotCompiled("flat_block", CompileError("line 3: error: expected a ;")))
    with pytest.raises(CourseError, match="did not compile(.|\n)*expected a"):
        variants(NotCompiled("naive", CompileError("line 3: error: expected a ;")), {"as it is": {}})


def test_knowing_the_cases_is_not_enough():
    item = exercise("busy_part")
    known = {case: item.reference()(*case) for case in item.cases}
    report = item.check(lambda *case: known.get(case, 0.5))
    assert not report.passed and [ok for ok, _ in report.rows[: len(known)]] == [True] * len(known)


def test_a_figure_of_a_function_has_as_many_digits_as_tell_it_from_the_right_one():
    item = exercise("busy_part")
    right = item.reference()
    said = str(item.check(lambda *case: right(*case) * (1 + 1e-5)))
    assert "busy_part(4096, 4096, 256, 128, 132): yours 0.969707, expected 0.969697" in said
    assert "busy_part(4096, 4096, 256, 128, 132): yours 0.969697\n" in str(item.check(right))
    close = [line for line in str(item.check(lambda *case: right(*case) * (1 + 2e-6))).split("\n") if "expected" in line]
    assert close and all(yours != expected for yours, expected in (line.split("yours ")[1].split(", expected ") for line in close))


def test_numpy_numbers_are_numbers():
    assert exercise("smallest_n").check(lambda peak, bandwidth: np.int64(np.ceil(6 * peak / bandwidth))).passed


def test_a_function_that_does_not_end_is_stopped_once_and_told(monkeypatch):
    monkeypatch.setattr(gemm, "PATIENCE", 0.3)

    def endless(*_):
        while True:
            pass

    report = exercise("intensity").check(endless)
    assert not report and str(report).count("was stopped after 0.3 seconds: a loop in it may never end.") == 1


def test_a_function_that_raises_is_reported():
    report = exercise("intensity").check(lambda m, n, k: 1 / 0)
    assert not report.passed
    assert "raised ZeroDivisionError" in str(report)


def test_regions():
    text = "//! title: T\n//! task: a\n//!     b\na\n  //[solution\n  b\n  //[starter\n  //|c\n  //]\nd"
    item = parse("07_x.cu", text)
    assert (item.lesson, item.slug, item.task) == (7, "x", "a b")
    assert item.solution == "a\n  b\nd"
    assert item.starter == "a\n  c\nd"


@pytest.mark.parametrize("body", ["//[starter", "//[solution\n//[solution", "//[solution\na", "//[solution\n//[starter\nb\n//]", "a\n//]"])
def test_regions_out_of_order_are_refused(body):
    with pytest.raises(ValueError):
        parse("07_x.cu", f"//! title: T\n{body}")


def test_an_unknown_key_is_refused():
    with pytest.raises(CourseError, match=r"07_x\.cu, line 2: 'tittle' is no key of an exercise\. There are: kind, title, "):
        parse("07_x.cu", "//! title: T\n//! tittle: T\na")


def test_a_file_of_another_name_is_refused():
    with pytest.raises(CourseError, match=r"x\.cu: the file of an exercise is named after its lesson"):
        parse("x.cu", "//! title: T\na")


def test_every_source_belongs_to_a_step():
    numbers = {step.number for step in STEPS}
    assert {item.lesson for item in ALL} <= numbers
    assert len(ALL) == sum(path.is_file() for path in module.FOLDER.iterdir())  # a compiled .py has a folder there
    assert module.FOLDER.is_relative_to(ROOT)


def test_a_kernel_that_does_not_end_is_stopped_once(monkeypatch):
    """The counters are not waited for as well."""
    practice = exercises()["which_rectangle"]
    kernel = helpers.compile(practice.solution, entry=practice.slug)
    ends_not = gemm.CheckReport(kernel.name, (), (Finding("endless", 32, "line 32 may never end"),), untried=11)
    monkeypatch.setattr(gemm, "check", lambda *args, **options: ends_not)
    monkeypatch.setattr("helpers.course.proof.judged", None)
    report = practice.check(kernel)
    assert not report.passed and report.expectations == ()


@pytest.mark.parametrize(("rectangle", "why"), [("TM = 16, TN = 8", "32 results"), ("TM = 64, TN = 1", "32 results")])
def test_a_rectangle_of_another_area_is_a_sentence(rectangle, why):
    """It would have no end: a sweep would copy no row of B."""
    practice = exercises()["which_rectangle"]
    with pytest.raises(CompileError, match=why):
        helpers.compile(practice.solution.replace("TM = 8, TN = 4", rectangle), entry=practice.slug)


def test_stores_of_each_warp_name_their_line_too():
    edits = ("i = t / (BN / 4), q = t % (BN / 4) * 4, k = k0 + i,", "i = t % BK, q = t / BK * 4, k = k0 + i,")
    said = str(exercise("four_at_a_time").judge(helpers.compile(_edited("four_at_a_time", edits)), 1, on="cpu"))
    assert (
        "bank conflicts of shared stores of each warp: yours 128, expected at most 16 at K = 64. Most of it is in line 39, “*reinterpret_cast"
        in said
    )


def test_fewer_than_has_to_be_says_what_has_to_stay():
    edits = (("As[tx][ty ^ tx] = a;", "As[ty][tx] = a;"), ("As[k][ty ^ k]", "As[ty][k]"))
    report = exercise("column_store").judge(helpers.compile(_edited("column_store", *edits)), 1, on="cpu")
    (said,) = [text for ok, text in report.lines() if not ok]
    assert (
        said == f"shared loads per result: yours 80, expected 128 at K = 64. {exercise('column_store').fewer}"
        and "stays transposed" in said
    )


@pytest.mark.slow
def test_scaled_rows_are_tried_though_infinity_is_lost():
    """The task is about them: who has one factor for all rows is told of rows first."""
    source = (
        exercise("overflow")
        .solution.replace("* up[r]", "* up[0]")
        .replace("inverse_power(up[lane / 4 + i / 2 * 8])", "inverse_power(up[0])")
    )
    report = exercise("overflow").judge(helpers.compile(source, entry="overflow"), 1, on="cpu")
    assert not report.correct and any("times 2^" in str(case.problem) and case.message for case in report.cases)


@pytest.mark.parametrize(("parity", "said"), [
    ("(k0 / BK + 1) % 2", "a wait for the parity of the phase that ended last returns at once"),
    ("1", "All of them belong to one phase, which is not over, while more and more is announced"),
])  # fmt: skip
def test_a_wait_that_does_not_wait_is_among_the_causes_of_what_comes_of_it(parity, said):
    item = exercise("next_phase")
    assert item.solution.count("wait(&full, k0 / BK % 2)") == 1
    kernel = helpers.compile(item.solution.replace("wait(&full, k0 / BK % 2)", f"wait(&full, {parity})"), entry="next_phase", arch="sm_90a")
    problem = gemm.problem_for(kernel, 6, 5, 5493 if parity == "1" else 256)
    assert said in str(gemm.check(kernel, problem, on="cpu"))


@pytest.mark.slow
def test_an_exercise_whose_tile_is_given_does_not_offer_another():
    upper_half = exercise("two_rows").solution.replace("if (row + 32 >= M) return;", "if (row + 32 >= M || K > 0) return;")
    report = str(exercise("two_rows").judge(helpers.compile(upper_half), 1, on="cpu"))
    assert "its threads store to 32 × 32: let them compute the rest." in report and "let tile_shape" not in report
    report = str(exercise("how_many_squares").judge(helpers.compile(exercise("how_many_squares").starter), 1, on="cpu"))
    assert "elements of C are wrong" in report and "its threads store to" not in report, "which the reader shall find out"


def _edited(slug: str, *edits: tuple[str, str], solution: bool = True) -> str:
    source = exercise(slug).solution if solution else exercise(slug).starter
    for old, new in edits:
        assert old in source
        source = source.replace(old, new)
    return source


@pytest.mark.parametrize(("slug", "edits", "said"), [
    ("finish_the_tile", [("BM = 8;", "BM = 32;")], "tile of C per block: yours (32, 32), given (8, 32)."),
    ("two_rows", [("BM = 64;", "BM = 128;")], "tile of C per block: yours (128, 32), asked for (64, 32)."),
    ("two_rows", [("{BN, 32, 1}", "{BN, 16, 1}")], "threads per block: yours (32, 16, 1), given (32, 32, 1)."),
    ("hand_on", [("WM = 16", "WM = 32"), ("TM = 4, TN = 4", "TM = 8, TN = 4")], "threads per block: yours (128, 1, 1), given (256, 1, 1)."),
    ("which_rectangle", [("TM = 8, TN = 4", "TM = 8, TN = 8"), ("TM * TN == 32", "true")], "threads per block: yours (64, 1, 1), given (128, 1, 1)."),
    ("which_rectangle", [("BM = 64, BN = 64", "BM = 128, BN = 128")], "tile of C per block: yours (128, 128), given (64, 64)."),
    ("flat_block", [("{BM, BN}; ", "{BM, BN * 2}; ")], "tile of C per block: yours (32, 64), given (32, 32)."),
])  # fmt: skip
def test_what_a_change_leaves_as_it_is_is_asked_for(slug, edits, said):
    assert (said, False) in exercise(slug)._as_given(helpers.compile(_edited(slug, *edits)))
    assert not exercise(slug)._as_given(helpers.compile(exercise(slug).solution))


def test_the_order_of_threads_is_part_of_the_narrow_block():
    along = [("BN + threadIdx.y", "BN + threadIdx.x"), ("BM + threadIdx.x", "BM + threadIdx.y"), ("{BM, BN, 1}", "{BN, BM, 1}")]
    edits = [*along, ("BM = 8;", "BM = 32;"), ("BN = 32;", "BN = 8;")]
    report = exercise("narrow_block").judge(helpers.compile(_edited("narrow_block", *edits)), 1)
    assert [text for ok, text in report.lines() if not ok] == ["threads of a warp down a column of C: yours 1, expected at least 4."]


@pytest.mark.parametrize(("slug", "edits"), [
    ("rows_in_pairs", [("BM + threadIdx.y, lower = upper + BM / 2", "BM + 2 * threadIdx.y, lower = upper + 1")]),
    ("two_rows", [("BM + ty;", "BM + 2 * ty;"), ("ty + 32", "2 * ty + 1"), ("As[ty]", "As[2 * ty]"), ("row + 32", "row + 1")]),
])  # fmt: skip
def test_which_two_rows_a_thread_takes_is_left_to_it(slug, edits):
    assert exercise(slug).judge(helpers.compile(_edited(slug, *edits)), 1).passed
    assert "apart" not in exercise(slug).task and "ty + 32" not in exercise(slug).task


def test_half_a_warp_that_loads_is_said_to_count_in_full():
    source = _edited(
        "half_and_half",
        ("if (t < BM * BK) {", "if (t % 2 == 0) {"), ("i = t / BK, k = t % BK", "i = t / 2 / BK, k = t / 2 % BK"), ("u = t - BM * BK", "u = t / 2"),
    )  # fmt: skip
    failed = [text for ok, text in exercise("half_and_half").judge(helpers.compile(source), 1).lines() if not ok]
    assert len(failed) == 1 and failed[0].startswith("global loads per result: yours 16")
    assert failed[0].endswith("An access that part of a warp executes counts in full: here 16 of 32 threads on average.")


@pytest.mark.slow
def test_who_is_to_diagnose_is_not_told_the_cause():
    """Which shapes are wrong, by how much, and who stored it: the rest is what the exercise asks."""
    starter = helpers.compile(exercise("half_sums").starter, entry="half_sums")
    said, all_said = str(exercise("half_sums").judge(starter, seed=1)), str(gemm.check(starter, seed=1))
    assert "keeps sums in FP16" in all_said and "keeps sums in FP16" not in said
    assert "(.f32 for D and C)." in all_said and "round once" not in all_said  # C is FP32 already
    assert "yours 0.02128601, expected 0.02129305. Line 46 stored it" in said
    with pytest.raises(CourseError, match="write True or False"):
        gemm.check(starter, causes=0)
