"""Where the matrices of a problem begin, and that a check tries it of kernels that take several elements at once."""

import pytest

import helpers
from helpers.course.exercises import exercise
from helpers.run import gemm
from helpers.run.problem import Problem, ShiftedProblem
from tests.course import cheats


@pytest.mark.parametrize(("base", "forgotten", "edits"), [(base, what, edits) for base, what, *edits in cheats.UNALIGNED])
def test_wide_accesses_are_tried_where_rows_begin_at_no_multiple_of_16_bytes(base, forgotten, edits):
    kernel = helpers.compile(cheats.source(base, edits))
    problem, shifted = gemm.of_any_alignment(kernel, seed=1)
    leading, beginning = (gemm.check(kernel, [one], on="cpu") for one in (problem, shifted))
    assert (leading.correct, beginning.correct) == (forgotten != "the leading dimension", forgotten != "the beginning")
    wrong = leading if forgotten == "the leading dimension" else beginning
    assert {finding.kind for finding in wrong.findings} == {"misaligned"}
    report = gemm.check(kernel, on="cpu", seed=1)
    assert [str(case.problem) for case in report.cases if case.message] == [str(wrong.cases[0].problem)], "without these data it passed"


def test_an_answer_is_tried_too():
    judged = exercise("two_at_a_time").judge(helpers.compile(cheats.source("two_at_a_time", [(" && ld % 2 == 0", "")])), 1, on="cpu")
    assert not judged.correct and "leading dimensions +1 +1 +1" in str(judged)


def test_a_check_tries_any_alignment_of_kernels_with_wide_accesses_alone():
    vectorized, narrow = helpers.reference("vectorized"), helpers.reference("bank_conflicts")
    report = vectorized.check(on="cpu", seed=1)
    assert report.passed and "one element behind a multiple of 16 bytes" in str(report.cases[-1].problem)
    assert gemm.takes_several(vectorized) and not gemm.takes_several(narrow)
    assert not any(isinstance(case.problem, ShiftedProblem) for case in gemm.check(narrow, on="cpu", seed=1).cases)


def test_a_shifted_product_is_the_same_one_element_further():
    for dtype in ("float32", "bfloat16"):
        shifted, plain = (kind(5, 8, 16, dtype=dtype, seed=2, pad_b=3) for kind in (ShiftedProblem, Problem))
        for arrays in (shifted.arrays(), shifted.copies(plain.arrays())):
            for one, other in zip(arrays, plain.arrays(), strict=True):
                assert one.ctypes.data % 16 == one.itemsize and one.tobytes() == other.tobytes()
