"""Calls with what is none of what they take: a sentence that says what they take, and never a traceback from within."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import helpers
from helpers import Problem, TraceFilter, compare_counts, gemm, measures, variants, what_if, widgets
from helpers.course import recorded_search, strategy
from helpers.course.lesson import reference
from helpers.errors import CourseError
from helpers.run.block_scales import quantized

SQUARE = np.ones((4, 4), np.float32)
ADD = "__global__ void add(float* x) { x[threadIdx.x] += 1; }"


@pytest.fixture(scope="module")
def naive():
    return reference(1)


@pytest.fixture(scope="module")
def add():
    return helpers.compile(ADD)


def _fp8_with_short_b():
    a, b, c = gemm.problem_for(reference(19), 8, 8, 8).arrays()
    return a, b[:2], c


def run(kernel):
    return kernel.launch(1, 8, [np.ones(8, np.float32)], on="cpu", trace=True)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda k: variants(k, {"a": {"BM": 16.0}}), "a: 'BM' becomes a whole number or a text, not 16.0"),
        (lambda k: variants(k.gemm(8, on="cpu"), {"a": {"BM": 16}}), "variants wants a kernel, .* not Run"),
        (lambda k: gemm.run(k, 64), r"run wants Problems, such as gemm.Problem\(64, 64, 64\), and was given 64"),
        (lambda k: gemm.count(k, (64, 64, 64)), "count wants Problems"),
        (lambda k: gemm.run(k.gemm(8, on="cpu"), Problem(8, 8, 8)), "run wants a kernel, .* not Run"),
        (lambda k: gemm.check(k, []), "nothing is right because nothing was tried"),
        (lambda k: gemm.check(k, [64]), "check wants Problems, .* given 64"),
        (
            lambda k: compare_counts({"a": k}, ["shared loads"]),
            "counted in a run, such as naive.gemm.64., and this is of type LessonKernel: run the kernel first",
        ),
        (lambda k: measures.sectors_per_request(k, "A"), "counted in a run"),
        (lambda k: k.gemm(8, on="cpu").predict(what_if="latency.l2"), "a dictionary of figures, .* not 'latency.l2'"),
        (lambda k: k.gemm(4, on="cpu", arrays=3), r"arrays: give the three arrays A, B and C, such as arrays=\(a, b, c\)."),
        (lambda k: k.gemm(4, on="cpu", arrays=[SQUARE] * 2), "arrays: give the three arrays A, B and C"),
        (lambda k: k.gemm(4, on="cpu", arrays=np.stack([SQUARE] * 3)), "arrays: give the three arrays A, B and C"),
        (lambda k: k.gemm(4, on="cpu", arrays="abc"), "arrays: give the three arrays A, B and C"),
        (lambda k: k.gemm(4, on="cpu", arrays=()), "arrays: give the three arrays A, B and C"),
        (lambda k: reference(18).gemm(8, on="cpu", arrays=("a", "b", "c")), "Argument A of fp32_on_tensor_cores is a pointer"),
        (lambda k: reference(19).gemm(8, on="cpu", arrays=("a", "b", "c")), "Argument A of fp8 is a pointer"),
        (lambda k: reference(19).gemm(8, on="cpu", arrays=[np.ones((8, 16), np.float32)[:, ::2]] * 3), "the array holds float32"),
        (lambda k: reference(19).gemm(8, on="cpu", arrays=_fp8_with_short_b()), "B has 32 elements, and 8 lines of 8, 16 apart, need 120"),
        (lambda k: Problem(4, 4, 4, alpha=10**400), "a factor is a number that a float can hold"),
        (lambda k: gemm.check(k, Problem(4, 4, 4), patience="x"), "patience='x', progress=None"),
        (lambda k: gemm.check(k, Problem(4, 4, 4), progress=5), "progress=5"),
        (lambda k: gemm.check(k, Problem(4, 4, 4), whole="x"), "whole='x'"),
        (lambda k: quantized(np.full((2, 2), 1e300)), r"numbers up to 1e\+300, and FP32 ends at 3.4e\+38"),
        (lambda k: quantized(np.array([[1 + 5j, 2]])), "real numbers, and these are complex"),
        (lambda k: k.profile(64, "nosuch"), "no figures for a GPU called 'nosuch'; it knows T4, "),
        (lambda k: k.profile("64"), "size='64': a size is one whole number, 0 or more, for M = N = K, or three"),
        (lambda k: k.climb((64, 64, 1.5)), "size=.*1.5.: a size is one whole number, 0 or more, for M = N = K, or three"),
        (lambda k: k.gemm(np.ones((40, 40)), 4, 4), "m=array.{,40}: a matrix extent is a whole number, 0 or more"),
        (lambda k: k.check(seed="x"), "check.seed='x'.: a seed is a whole number, 0 or more, such as a check has named"),
        (lambda k: gemm.check(k, seconds=None), "check.seconds=None.: seconds are a number"),
        (lambda k: k.chek(), "A kernel has no chek: did you mean check"),
        (lambda k: k.fastest, "A kernel has no fastest. It has: .*check, .*ptx, "),
        (lambda k: k.climb(64, "nosuch"), "no figures for a GPU called 'nosuch'; it knows T4, "),
        (lambda k: measures.line_number(k, 3), "found by a piece of its text, such as .*, and not by 3"),
        (lambda k: measures.at_line(k.gemm(8, on="cpu"), None), "and not by None"),
        (lambda k: measures.at_line(k, "row"), "counted in a run"),
        (lambda k: widgets.explore(k), "explore draws a run, .* and not a LessonKernel"),
        (lambda k: widgets.timeline(k), "timeline draws a run, .* and not a LessonKernel"),
        (lambda k: widgets.search(3), "search draws a search, .* and not an int"),
        (lambda k: recorded_search.recorded().loss(3, "speed"), "'speed' is no order of a search. There are: model, score, bound"),
        (lambda k: recorded_search.recorded().correlation(None), "None is no order of a search"),
        (lambda k: recorded_search.recorded().loss(1.5), "tries=1.5: it is a whole number, at least 1"),
        (lambda k: recorded_search.recorded().table("all"), "how many rows is a whole number"),
        (lambda k: replace(recorded_search.recorded(), source="x").by_model("all"), "is a whole number"),
        *(
            (lambda k, ask=ask: getattr(strategy.judged(), ask)(Problem(1, 2, 3)), "1 × 2 × 3 was not held out. What was: ")
            for ask in ("loss", "chosen", "fastest", "right")
        ),
        (lambda k: what_if(k.gemm(8, on="cpu"), ["a"]), r"There is no change \['a'\]. There are: registers without banks, "),
        (lambda k: what_if(k.gemm(8, on="cpu"), changes=3), "changes=3: give {words: figures}, such as "),
        (lambda k: what_if(k.gemm(8, on="cpu"), changes={"a": 3}), "a dictionary of figures, .* not 3"),
        (lambda k: what_if(k.gemm(8, on="cpu"), changes={"a": {"code.lines": 0}}), "nothing would ever run with fewer than 4"),
        (lambda k: what_if(k.gemm(8, on="cpu"), changes={"a": {"queue.global": 0}}), "nothing would ever run with fewer than 1"),
    ],
)
def test_what_takes_kernels_runs_and_problems_says_so(naive, call, sentence):
    with pytest.raises(CourseError, match=sentence):
        call(naive)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda k: k.count(1, 8, [np.ones(8, np.float32)], blocks=1), "blocks=1: the blocks to simulate are a list of whole numbers"),
        (lambda k: k.count(1, 8, [np.ones(8, np.float32)], blocks=[]), "counting needs a block"),
        (lambda k: k.count(2, 8, [np.ones(8, np.float32)], blocks=[99]), "the grid has the blocks 0 to 1, and not 99"),
        (lambda k: k.count(2, 8, [np.ones(8, np.float32)], blocks=[-1]), "the grid has the blocks 0 to 1, and not -1"),
        (lambda k: k.count(2, 8, [np.ones(8, np.float32)], blocks=[True]), "a list of whole numbers"),
        (lambda k: k.count(1, 8, [np.ones(8, np.float32)], blocks=[0], seconds=None), "seconds=None is no time budget"),
        (lambda k: run(k).trace.select(line="x"), "select.line='x'.: give a value, such as line=12"),
        (lambda k: run(k).trace.select(line=1.5), "give a value, such as line=12"),
        (lambda k: run(k).trace.select(block="0"), "select.block='0'.: give a whole number, or a set or range of them"),
        (lambda k: run(k).trace.select(warp=[0.5]), "these are no whole numbers"),
        (lambda k: TraceFilter(blocks=[-1]), "blocks are numbered from 0 on, and -1 is none of them"),
        (lambda k: TraceFilter(lines={0, 4}), "lines are numbered from 1 on, and 0 is none of them"),
        (lambda k: TraceFilter(warps=[0.5]), "warps are numbered from 0 on, and 0.5 is none of them"),
        (lambda k: TraceFilter(limit=-5), "limit=-5.: it is a whole number of rows"),
    ],
)
def test_what_goes_by_blocks_and_lines_says_so(add, call, sentence):
    with pytest.raises(CourseError, match=sentence):
        call(add)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"alpha": None}, "alpha=None: a factor is a number"),
        ({"alpha": "2"}, "alpha='2': a factor is a number"),
        ({"beta": float("nan")}, "beta=nan: a factor is a number that a float can hold, and neither infinite nor NaN"),
        ({"alpha": float("inf")}, "neither infinite nor NaN"),
        ({"scale_block": 128}, r"scale_block=128: a block is \(rows of A, k, columns of B\)"),
    ],
)
def test_a_problem_says_what_its_numbers_are(fields, sentence):
    with pytest.raises(CourseError, match=sentence):
        Problem(8, 8, 8, **fields)


def test_an_instruction_cache_of_one_set_is_none_too_many(naive):
    run = naive.gemm(64, on="cpu")
    assert run.predict(what_if={"code.ways": 512}).milliseconds == pytest.approx(run.predict().milliseconds, rel=0.01)


def test_what_means_the_same_is_taken(naive, add):
    assert variants(reference(4), {"a": {"BK": np.int64(16)}})["a"].source == variants(reference(4), {"a": {"BK": 16}})["a"].source
    assert gemm.check(naive, Problem(8, 8, 8, alpha=np.float32(2)), on="cpu").passed
    assert helpers.quantized(np.ones((4, 64)), along=10**10).along == 64
    trace = run(add).trace
    assert len(trace.select(warp=iter([0])).accesses) == len(trace.accesses) == len(trace.select(block=range(1), line={1}).accesses)


def test_the_reader_s_own_pages_take_no_numbers():
    with pytest.raises(CourseError, match="shows where you stand, and takes nothing; it was given 3"):
        helpers.standing(3)
    with pytest.raises(CourseError, match="until=.1.: it is the number of the last step"):
        widgets.ladder(until=[1])
