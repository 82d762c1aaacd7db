"""Where the matrices of a problem begin, and that a check tries it of kernels that take several elements at once."""

import numpy as np
import pytest

import helpers
from helpers.course.exercises import exercise
from helpers.run import gemm
from helpers.run.differences import wrong_ones
from helpers.run.problem import NonFiniteProblem, Problem, ShiftedProblem
from tests.course import cheats


@pytest.mark.slow
@pytest.mark.parametrize(("base", "forgotten", "edits"), [(base, what, edits) for base, what, *edits in cheats.UNALIGNED])
def test_wide_accesses_are_tried_where_rows_begin_at_no_multiple_of_16_bytes(base, forgotten, edits):
    kernel = helpers.compile(cheats.source(base, edits))
    problems = gemm.of_any_alignment(kernel, seed=1)
    reports = {str(problem): gemm.check(kernel, [problem], on="cpu") for problem in problems}
    wrong = [name for name, report in reports.items() if not report.correct]
    assert wrong and all(("leading dimensions" in name) == (forgotten == "the leading dimension") for name in wrong)
    assert {finding.kind for name in wrong for finding in reports[name].findings} == {"misaligned"}
    report = gemm.check(kernel, on="cpu", seed=1)
    assert [str(case.problem) for case in report.cases if case.message] == wrong, "without these data it passed"


@pytest.mark.slow
@pytest.mark.parametrize(("base", "edits"), [(base, edits) for base, *edits in cheats.BEYOND_THE_END])
def test_wide_accesses_are_tried_where_a_row_ends_within_them(base, edits):
    kernel = helpers.compile(cheats.source(base, edits))
    assert not gemm.check(kernel, gemm.of_any_end(kernel, seed=1), on="cpu").correct
    assert not gemm.check(kernel, on="cpu", seed=1).correct


@pytest.mark.parametrize("slug", ["vectorized", "fused_epilogue", "mma_sync", "two_pieces", "tf32_tile"])
def test_nan_and_infinity_are_tried(slug):
    kernel = helpers.compile(cheats.source(slug))
    whole, ragged = problems = gemm.not_finite(kernel, 2)
    assert (whole.pad_a, ragged.pad_a) == (0, 3)
    assert all(problem.or_nan == (slug not in ("fused_epilogue", "mma_sync")) for problem in problems)
    assert gemm.check(kernel, problems, on="cpu").passed


@pytest.mark.slow
def test_a_maximum_that_takes_nan_for_0_is_found():
    fused = helpers.reference("fused_epilogue")
    source = fused.source.replace("return x < 0.0f ? 0.0f : x;", "return fmaxf(x, 0.0f);")
    eats = helpers.compile(source, entry=fused.compiled.entry)
    report = gemm.check(eats, [gemm.Problem(20, 28, 40, fused=True), *gemm.not_finite(eats, 1)], on="cpu")
    wrong = [case for case in report.cases if case.message]
    assert len(wrong) == 2 and not report.cases[0].message
    assert all("NaN at A[" in str(case.problem) and "infinity at A[" in str(case.problem) for case in wrong)
    assert "yours 0, expected nan. A NaN in a row of A or a column of B" in wrong[0].message
    assert "out" in source.split("\n")[wrong[0].line - 1]


UNASKED = [  # (step, what stands there, what passed in its place, what the shape that shows it is called)
    ("coalesced", "beta * c;", "(c == c ? beta * c : 0.0f);", "and both in C"),
    ("coalesced", "beta * c;", "beta * fmaxf(-3e38f, fminf(c, 3e38f));", "and both in C"),
    ("coalesced", "sum += a * b;", "sum += a * (isinf(b) ? 3.4e38f : b);", "and B["),
    ("coalesced", "sum += a * b;", "sum += (a < -3e38f ? -3e38f : a) * b;", "-infinity at A["),
    ("fused_epilogue", "v + __ldg(&bias[c + q])", "v + (bias[c + q] == bias[c + q] ? bias[c + q] : 0.0f)", "in C and the bias"),
    ("mma_sync", "block_row + BM <= M &&", "block_row + BM <= M + 1 &&", ""),
    ("warp_specialized", "(size_t)C % 16 | ", "", "C begins 1 element behind"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("slug", "before", "after", "shape"), UNASKED, ids=[f"{row[0]}: {row[2] or row[1]}" for row in UNASKED])
def test_what_one_less_or_one_number_that_is_none_shows_is_tried(slug, before, after, shape):
    shipped = helpers.reference(slug)
    assert shipped.source.count(before) == 1
    wrong = helpers.compile(shipped.source.replace(before, after), entry=shipped.compiled.entry, arch=shipped.compiled.arch)
    report = gemm.check(wrong, on="cpu", seed=1)
    assert not report.passed and (not shape or any(shape in str(case.problem) for case in report.cases if case.message))


@pytest.mark.slow
def test_a_bias_begins_at_no_whole_vector_either():
    fused = helpers.reference("fused_epilogue")
    source = fused.source.replace("v.x = relu(v.x + __ldg(&bias[c + 0]))", "v.x = relu(v.x + reinterpret_cast<const float4*>(&bias[c])->x)")
    source = source.replace("relu(v.y + __ldg(&bias[c + 1]))", "relu(v.y + reinterpret_cast<const float4*>(&bias[c])->y)")
    source = source.replace("__ldg(&bias[c + 2])", "reinterpret_cast<const float4*>(&bias[c])->z")
    source = source.replace("__ldg(&bias[c + 3])", "reinterpret_cast<const float4*>(&bias[c])->w")
    assert source.count("reinterpret_cast<const float4*>(&bias[c])") == 4
    report = gemm.check(helpers.compile(source, entry=fused.compiled.entry), gemm.of_any_alignment(fused, 1), on="cpu")
    (first, *_) = [case for case in report.cases if case.message]
    assert "the bias begins 1 element behind a multiple of 16 bytes" in str(first.problem) and "of bias" in first.message


FOUR = "const float four[] = {alpha * v.x, alpha * v.y, alpha * v.z, alpha * v.w};"
CHANGED = FOUR.replace("const ", "") + "\n    for (float& x : four) "
READ = "__syncthreads();  // everyone has finished"
SPOILED = [
    ("NaN is 0", FOUR, CHANGED + "if (x != x) x = 0;", "NaN at A[", "expected nan. A NaN in a row"),
    ("the largest for infinity", FOUR, CHANGED + "if (x > 65504.0f) x = 65504.0f;", "infinity at A[", "yours 65504, expected inf"),
    ("halves on the way", READ, "if (k0 % 512 == 480) for (auto& row : sum) for (auto& one : row) for (float& x : one.x) x = (float)(Element)x;\n" + READ,
     "the second half along K cancels the first", "errors together are too large"),
    ("alpha rounded to a half", FOUR, FOUR.replace("alpha", "float(Element(alpha))"), "alpha", "elements of C are wrong"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after", "problem", "message"), [row[1:] for row in SPOILED], ids=[row[0] for row in SPOILED])
def test_kernels_of_halves_are_tried_on_what_halves_hide(before, after, problem, message):
    source = helpers.reference("wmma").source
    assert source.count(before) == 1
    wrong = [case for case in gemm.check(helpers.compile(source.replace(before, after)), on="cpu", seed=1).cases if case.message]
    assert wrong and all(problem in str(case.problem) for case in wrong)
    assert any(message in case.message for case in wrong)


@pytest.mark.parametrize("dtype", ["float32", "tf32", "float16", "bfloat16"])
def test_nan_and_infinity_are_where_the_name_of_the_product_says(dtype):
    problem = NonFiniteProblem(6, 15, 7, dtype=dtype, out_dtype="float32", seed=3, fused=True, pad_a=1)
    (in_a, in_b, infinite), (less, in_b_too), (a, b, c) = problem.places, problem.infinities, problem.arrays()
    inside_a, inside_b = (part.astype(np.float32) for part in (a[:, :7], b[:, :15]))
    assert np.argwhere(np.isnan(inside_a)).tolist() == [list(in_a)] and np.argwhere(np.isnan(inside_b)).tolist() == [list(in_b)]
    assert np.argwhere(np.isposinf(inside_a)).tolist() == [list(infinite)] and infinite[1] < 6 and infinite[0] != in_a[0]
    assert np.argwhere(np.isneginf(inside_a)).tolist() == [list(less)] and less[1] < 6 and len({in_a[0], infinite[0], less[0]}) == 3
    assert np.argwhere(np.isinf(inside_b)).tolist() == [list(in_b_too)] and in_b_too[0] < 6 and in_b_too[1] != in_b[1]
    bias = problem.bias()
    assert np.isnan(bias).sum() == np.isposinf(bias).sum() == np.isneginf(bias).sum() == 1
    value, bound = problem.expected(a, b, c)
    assert np.isnan(value[in_a[0]]).all() and np.isnan(value[:, in_b[1]]).all()
    usual = np.isfinite(bias) & ~np.isin(np.arange(15), (in_b[1], in_b_too[1]))
    others, factors = value[infinite[0]][usual], inside_b[infinite[1]][usual]
    assert (np.isnan(others) == (factors == 0) | np.isnan(factors)).all() and np.isposinf(others).any() and (factors == 0).any()
    assert 0 < np.count_nonzero(inside_a[:, in_b[0]] == 0) < 6 and 0 < np.count_nonzero(inside_b[in_a[1]] == 0) < 15
    assert not wrong_ones(value, value, bound).any()
    for spoiled in (np.nan_to_num(value, nan=0), np.nan_to_num(value, posinf=3e38, nan=np.nan), np.full_like(value, np.nan)):
        assert wrong_ones(spoiled, value, bound).any()


def test_nan_and_infinity_are_in_what_c_was_before_where_that_counts():
    problem = NonFiniteProblem(6, 15, 7, seed=3, beta=0.5)
    a, b, c = (matrix[:, :columns] for matrix, columns in zip(problem.arrays(), (7, 15, 15), strict=True))
    rows, columns = np.nonzero(~np.isfinite(c))
    assert np.isfinite(a[rows]).all() and np.isfinite(b[:, columns]).all(), "each shows by itself"
    assert np.isnan(c).sum() == np.isposinf(c).sum() == np.isneginf(c).sum() == 1
    assert np.isnan(NonFiniteProblem(6, 15, 7, seed=3).arrays()[2][:, :15]).all()


def test_nan_is_as_good_as_infinity_where_a_sum_may_take_it_from_itself():
    strict, loose = (NonFiniteProblem(6, 15, 7, seed=3, or_nan=or_nan) for or_nan in (False, True))
    before = strict.arrays()
    value, _ = strict.expected(*before)
    assert np.isinf(value).any()

    def says(problem, result):
        return gemm.compare(problem, before, [*before[:2], result.astype(np.float32)])

    assert not says(strict, value) and not says(loose, value)
    assert says(strict, np.where(np.isinf(value), np.nan, value)) and not says(loose, np.where(np.isinf(value), np.nan, value))
    assert says(loose, -value) and says(loose, np.where(np.isinf(value), 3e38, value)) and says(loose, np.full_like(value, np.nan))


ASKS = [
    ("is_whole(A, lda, K)", "is_whole(B, lda, K)", "A begins 1 "), ("is_whole(A, lda, K)", "is_whole(A, ldb, K)", "dimensions +1 +0 +0"),
    ("is_whole(B, ldb, N)", "is_whole(A, ldb, N)", "B begins 1 "), ("is_whole(B, ldb, N)", "is_whole(B, ldc, N)", "dimensions +0 +1 +0"),
    ("is_whole(C, ldc, N)", "is_whole(B, ldc, N)", "C begins 1 "), ("is_whole(C, ldc, N)", "is_whole(C, ldb, N)", "dimensions +0 +0 +1"),
    ("(size_t)matrix % 16", "(size_t)matrix % 8", "A begins 2, B begins 2, C begins 2 "), ("ld % 4 |", "ld % 2 |", "dimensions +2 +2 +2"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("asks", "instead", "shown"), ASKS)
def test_asking_for_another_matrix_or_a_smaller_vector_shows(asks, instead, shown):
    kernel = helpers.compile(cheats.source("vectorized", [(asks, instead)]))
    wrong = [str(case.problem) for case in gemm.check(kernel, on="cpu", seed=1).cases if case.message]
    assert wrong and any(shown in name for name in wrong)


@pytest.mark.slow
def test_smaller_vectors_of_smaller_types_are_tried_too():
    kernel = helpers.reference("mma_sync")
    source = kernel.source.replace("(size_t)C % 8 | ldc % 4 |", "(size_t)C % 4 | ldc % 2 |")
    assert source != kernel.source
    weaker = helpers.compile(source, entry=kernel.compiled.entry)
    wrong = [str(case.problem) for case in gemm.check(weaker, on="cpu", seed=1).cases if case.message]
    assert len(wrong) == 2 and "leading dimensions +2 +2 +2" in wrong[0] and "C begins 2 " in wrong[1]


def test_an_answer_is_tried_too():
    judged = exercise("two_at_a_time").judge(helpers.compile(cheats.source("two_at_a_time", [(" && ld % 2 == 0", "")])), 1, on="cpu")
    assert not judged.correct and "leading dimensions +1 +0 +0" in str(judged)


@pytest.mark.slow
def test_a_check_tries_any_alignment_of_kernels_with_wide_accesses_alone():
    vectorized, narrow = helpers.reference("vectorized"), helpers.reference("bank_conflicts")
    report = vectorized.check(on="cpu", seed=1)
    assert report.passed and any("begins 2 elements behind a multiple of 16 bytes" in str(case.problem) for case in report.cases)
    assert gemm.takes_several(vectorized) and not gemm.takes_several(narrow)
    assert not any(isinstance(case.problem, ShiftedProblem) for case in gemm.check(narrow, on="cpu", seed=1).cases)


def test_a_shifted_product_is_the_same_one_element_further():
    for dtype in ("float32", "bfloat16"):
        shifted, plain = (kind(5, 8, 16, dtype=dtype, seed=2, pad_b=3) for kind in (ShiftedProblem, Problem))
        for arrays in (shifted.arrays(), shifted.copies(plain.arrays())):
            for one, other in zip(arrays, plain.arrays(), strict=True):
                assert one.ctypes.data % 16 == one.itemsize and one.tobytes() == other.tobytes()
