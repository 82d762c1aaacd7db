"""Data of an exercise's own: scaled rows and columns, and long sums of positive numbers."""

from dataclasses import replace

import numpy as np
import pytest

import helpers
from helpers.course import demanding, proof
from helpers.course.exercises import exercise, parse
from helpers.errors import CourseError
from helpers.run import gemm
from helpers.run.problem import ExactProblem

from . import cheats


@pytest.mark.parametrize(("slug", "name", "passes", "edits"), [(slug, name, ok, edits) for slug, name, ok, *edits in cheats.ON_OWN_DATA])
def test_own_data_tell_right_answers_from_wrong_ones(slug, name, passes, edits):
    item, kernel = exercise(slug), helpers.compile(cheats.source(slug, edits))
    if item.scales:
        good = bool(gemm.check(kernel, demanding.scaled(kernel, item.scales, seed=1), on="cpu"))
    elif item.infinity:
        assert gemm.check(kernel, gemm.Problem(17, 23, 19), on="cpu")
        _, good = demanding.judge_infinity(kernel, seed=1)
    else:
        good = all(good for _, good in demanding.judge_accuracy(kernel, *item.accuracy, seed=1))
    assert good == passes, name


@pytest.mark.parametrize("factor", ["1.0000234f", "(1 + 5.72e-9f * K)"])
def test_a_factor_does_not_make_up_for_what_long_sums_lose(factor):
    """It was found for sums that grow evenly, and brings those within the bound."""
    item = exercise("promotion")
    starter = item.starter.replace("alpha * sum", f"alpha * sum * {factor}")
    (even, good), (early, bad) = demanding.judge_accuracy(helpers.compile(starter, entry="promotion"), *item.accuracy, seed=1)
    assert good and not bad, (even, early)
    assert "positive numbers: yours" in even and "the first 512 of each row of A 8 times as large: yours" in early


def test_scales_are_powers_of_two_of_whole_rows_and_columns():
    problem = demanding.ScaledProblem(5, 4, 3, pad_b=2, scales=9, seed=2)
    plain = gemm.Problem(5, 4, 3, pad_b=2, seed=2)
    (a, b, _), (x, y, _) = problem.arrays(), plain.arrays()
    rows, columns = a / x, b[:, :4] / y[:, :4]
    assert (rows == rows[:, :1]).all() and (columns == columns[:1]).all()
    assert {*np.log2(rows).ravel(), *np.log2(columns).ravel()} <= set(range(-9, 10)) and len(set(rows[:, 0])) > 1


@pytest.mark.parametrize(("relu", "good"), [
    ("v < 0 ? 0 : v;", True), ("v > 0 || v != v ? v : 0;", True), ("fmaxf(v, 0);", False), ("v > 0 ? v : 0;", False), ("0 * v;", True),
])  # fmt: skip
def test_nan_stays_nan_where_a_task_says_so(relu, good):
    item = exercise("last_word")
    kernel = helpers.compile(cheats.source("last_word", [("v < 0 ? 0 : v;", relu)]))
    said, stays = demanding.judge_nan(kernel, seed=7)
    assert item.nan and "NaN stays NaN" in item.task and stays == good
    assert f"{24 if good else 0} of 24 results of row 7 are NaN" in said
    if "fmaxf" in relu:
        assert not item.judge(kernel, seed=1, on="cpu").passed


def test_keys_of_own_data_are_read():
    item = parse("18_any.cu", "//! scales: 20\n//! accuracy: 4096 30\nint x;")
    assert (item.scales, item.accuracy) == (20, (4096, 30.0, 0))
    assert parse("18_any.cu", "//! accuracy: 64 8.5 -10\nint x;").accuracy == (64, 8.5, -10)
    assert (exercise("tail").scales, exercise("tail").accuracy) == (0, None)


PIECES = "fp32_on_tensor_cores"
WIDE = ("ALWAYS_WIDE = 0;", "ALWAYS_WIDE = 1;")


UNTIL_LAST = "for (int i = 1; i < WARPS; i++) {"
OUTSIDE = "*to = beta == 0.0f ? alpha * exact : alpha * exact + beta * *to;"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("SPREAD = 34", "SPREAD = 60", "columns of A times 2^-25 to 2^25"),
        ("SPREAD = 34", "SPREAD = 44", "numbers of a row up to 2^37 apart"),
        ("LOW = 12", "LOW = 9", "numbers of a row up to 2^33 apart"),
        ("if (outside) {", "if (false) {", "columns of A times 2^-112 to 2^58"),
        (OUTSIDE, OUTSIDE.replace("alpha * ", ""), "columns of A times 2^-112 to 2^58"),
        (OUTSIDE, "*to = alpha * exact;", "columns of A times 2^-112 to 2^58"),
        ("A[(size_t)r * lda + k] * B", "A[(size_t)r * K + k] * B", "columns of A times 2^-112 to 2^58"),
        ("B[(size_t)k * ldb + c];", "B[(size_t)k * N + c];", "columns of A times 2^-112 to 2^58"),
        (f"&C[(size_t)r * ldc + c];\n                {OUTSIDE}", f"&C[(size_t)r * N + c];\n                {OUTSIDE}", "columns of A times 2^-112 to 2^58"),
        ("largest < 0x7f800000", "largest <= 0x7f800000", "infinity at A"),
        ("largest < 0x7f800000", "true", "infinity at A"),
        ("min(10 - largest, 120)", "10 - largest", "rows of A times 2^-140 to 2^-124"),
        ("min(10 - largest, 120)", "10 - largest", "columns of B times 2^-140 to 2^-124"),
        (" && largest >= -106", "", "rows of A times 2^-140 to 2^-124"),
        (UNTIL_LAST, UNTIL_LAST.replace("WARPS", "WARPS - 1"), "one number of each row"),
        ("SHORT = 128", "SHORT = 0", "128 × 128 × 1,"),
    ],
    ids=[
        "FP16 for rows that it does not span", "and that it hardly spans", "low pieces of fewer bits", "what no pieces stand for is left out", "and not multiplied by alpha", "and forgets beta", "and takes K for lda", "and N for ldb", "and N for ldc",
        "infinity is finite", "all is finite", "a factor beyond FP32 for tiny rows", "and for tiny columns", "FP16 for tiny rows",
        "a part of K is not looked at", "FP16 for a single product",
    ],
)  # fmt: skip
def test_a_kernel_of_pieces_is_checked_on_numbers_of_any_magnitude(old, new, says):
    """Between -1 and 1 these are right; that is how a check without such data let them pass."""
    source = helpers.reference(PIECES).source
    assert source.count(old) == 1
    kernel = helpers.compile(source.replace(old, new), entry=PIECES, arch="sm_90a")
    problem = next(problem for problem in demanding.of_any_magnitude(kernel, seed=1) if says in str(problem))
    assert not gemm.check(kernel, [problem], on="cpu").correct


@pytest.mark.slow
def test_what_fp32_bears_is_asked_and_no_more():
    for slug in ("coalesced", PIECES):
        kernel = helpers.reference(slug)
        assert gemm.check(kernel, demanding.of_any_magnitude(kernel, seed=2), on="cpu").passed


LOW_HIGH, BOTH_LOW = "wgmma(format, low, a(1, k), b(0, k), true);\n                if", "if (!wide && PRODUCTS == 1) break;"


@pytest.mark.slow
@pytest.mark.parametrize(("edits", "passes"), [
    ([], True), ([WIDE], True), ([(BOTH_LOW, "if (step >= 16) break;")], False), ([(LOW_HIGH, f"if (step < 16) {LOW_HIGH}")], False),
], ids=["as it is", "pieces of BF16", "high pieces alone behind k = 1024", "half of the rest behind k = 1024"])  # fmt: skip
def test_long_sums_of_pieces_are_as_exact_as_in_fp32(edits, passes):
    """The worst case of a long sum has room for FP16's own errors."""
    kernel = _edited(PIECES, edits)
    assert all(isinstance(longest := gemm.drawn(kernel, seed)[0], ExactProblem) and longest.k > 4096 for seed in (1, 2))
    report = gemm.check(kernel, ExactProblem(6, 3, 1500), on="cpu", patience=60)
    assert report.correct == passes and (passes or "less exact than sums of FP32" in str(report))


def test_numbers_are_so_many_powers_of_two_apart():
    problem = demanding.SpreadProblem(5, 4, 40, pad_b=1, spread=33, seed=2)
    for matrix in problem.meant(*problem.arrays()[:2]):
        exponents = np.frexp(matrix)[1]
        assert np.ptp(exponents, axis=2 if matrix.shape[1] == 5 else 1).tolist() == [[33] * (5 if matrix.shape[1] == 5 else 4)]


def test_powers_along_k_leave_the_product():
    plain, spread = (demanding.ScaledProblem(5, 4, 30, seed=2, powers=powers) for powers in ((0, 0), (-50, 40)))
    one, other = (problem.expected(*problem.arrays())[0] for problem in (plain, spread))
    assert np.allclose(one, other, rtol=1e-12) and "columns of A times 2^-50 to 2^40" in str(spread)
    assert np.abs(spread.arrays()[0]).max() > 2.0**30 * np.abs(plain.arrays()[0]).max()


def test_a_single_number_of_a_row_is_larger_than_the_others_at_every_remainder():
    problem, plain = demanding.UnevenProblem(40, 34, 150, pad_a=1, seed=3), gemm.Problem(40, 34, 150, pad_a=1, seed=3)
    (a, b, _), (x, y, _) = problem.arrays(), plain.arrays()
    for uneven, even in ((a[:, :150], x[:, :150]), (b[:, :34].T, y[:, :34].T)):
        larger = np.abs(uneven) >= 2**16
        assert (larger.sum(1) == 1).all() and ((uneven == even) | larger).all() and np.abs(uneven).max() <= 2**17
        at = np.argwhere(larger)[:, 1]
        assert {0, 149} <= {*at} and len({*(at % 32)}) == 32
    assert "one number of each row of A nearly 2^17 and one of each column of B nearly 2^17" in str(problem)
    _, b, _ = replace(problem, larger=(17, 0)).arrays()
    assert (b == y).all()
    assert [problem.arrays()[0].shape for problem in (demanding.UnevenProblem(1, 1, 1), demanding.UnevenProblem(2, 1, 3))]


ROWS, KEPT = ("SCALE_K = 128;", "SCALE_K = 0;"), ("PROMOTE = 1;", "PROMOTE = 0;")


def _edited(slug: str, edits):
    source = helpers.reference(slug).source
    for old, new in edits:
        assert source.count(old) == 1
        source = source.replace(old, new)
    return helpers.compile(source, entry=slug, arch="sm_90a")


@pytest.mark.slow
@pytest.mark.parametrize(("slug", "edits", "passes"), [
    ("fp8", [ROWS, KEPT], False), ("fp8", [ROWS], True), ("fp8", [], True),
    (PIECES, [KEPT], False), (PIECES, [WIDE, KEPT], False), (PIECES, [WIDE], True), (PIECES, [], True),
])  # fmt: skip
@pytest.mark.parametrize("seed", [1, 2])
def test_sums_that_stay_in_the_tensor_cores_fail_on_positive_numbers(slug, edits, passes, seed):
    """The errors of these sums are small beside numbers of both signs, and all on one side."""
    kernel = _edited(slug, edits)
    report = gemm.check(kernel, demanding.of_positive_numbers(kernel, seed), on="cpu")
    assert report.correct == passes and len(report.cases) == 1
    assert passes or ("too small" in str(report) and "(promotion)" in str(report) and "stored it" not in str(report))


@pytest.mark.slow
def test_a_factor_fitted_to_what_sums_of_positive_numbers_lose_makes_up_for_half_of_them():
    kept = helpers.reference("fp8").source.replace(*ROWS).replace(*KEPT)
    kernel = _edited("fp8", [ROWS, KEPT])
    (problem,) = (gemm.fitted(kernel, problem) for problem in demanding.of_positive_numbers(kernel, 1))
    even = replace(problem, larger=0)
    arrays = even.arrays()
    value, _ = even.expected(*arrays)
    gemm.run(kernel, even, "cpu", arrays, counters=False, findings=False)
    lost = 1 - float(np.mean(arrays[2][:, : even.n].astype(np.float64) / value))
    fitted = kept.replace("last[2] = {alpha, alpha};", f"fit = alpha * (1 + {lost / even.k:.9f}f * K), last[2] = {{fit, fit}};")
    assert lost > 0.05 and fitted != kept
    right, wrong = gemm.check(helpers.compile(fitted, entry="fp8", arch="sm_90a"), [even, problem], on="cpu").cases
    assert not right.message
    assert "too small" in wrong.message and "64 times as large" in str(wrong.problem)


@pytest.mark.slow
def test_who_asks_for_the_ladder_is_asked_the_same():
    """Also at the size of the ladder: a kernel may do another thing there."""
    with pytest.raises(CourseError, match="not ready to climb: its result is wrong at 4096 × 4096 × 4096.* positive numbers"):
        proof.verify(_edited("fp8", [ROWS, KEPT]), gemm.problem_for(helpers.reference("fp8"), 4096, 4096, 4096), None)


@pytest.mark.parametrize("slug", ["autotune", "wmma", "mma_sync", "tma_wgmma", "warp_specialized"])
def test_sums_of_elements_that_are_rounded_further_may_stay(slug):
    assert demanding.besides(helpers.reference(slug), 1) == []


def test_all_rows_may_be_below_what_is_normal():
    a, b, c = (problem := demanding.ScaledProblem(5, 4, 30, seed=2, scales=8, apart=(-132, 112))).arrays()
    assert 0 < np.abs(a).max() < 2.0**-123 and np.abs(b).max() > 2.0**103
    assert np.abs(problem.expected(a, b, c)[0]).max() > 2.0**-30
    assert "rows of A times 2^-140 to 2^-124 and columns of B times 2^104 to 2^120" in str(problem)
