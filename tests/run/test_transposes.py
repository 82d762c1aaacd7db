"""Matrices by columns (helpers.run.transposes): kernels that say so are right, and those that say what is not so are told."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import helpers
from helpers.course import comparing, lesson
from helpers.errors import CompileError, LaunchError
from helpers.run import gemm, transposes
from helpers.run.check_shapes import laid_out
from helpers.run.geometry import geometry
from helpers.run.launch_arguments import launch_arguments
from helpers.run.problem import NonFiniteProblem, Problem, SampledProblem, ScaledProblem, UnevenProblem

from . import column_kernels
from .column_kernels import plain


def checked(source, **options):
    return gemm.check(helpers.compile(source, **options), on="cpu", seed=1)


# ------------------------------------------------------------------------------------------------------- the problem


@pytest.mark.parametrize("transa, transb", list(itertools.product((False, True), repeat=2)))
@pytest.mark.parametrize("kind", [Problem, SampledProblem, ScaledProblem, UnevenProblem, NonFiniteProblem])
def test_the_product_is_the_same_however_its_matrices_lie(kind, transa, transb):
    sizes = {"pad_a": 3, "pad_b": 2, "pad_c": 1, "alpha": 1.5, "beta": 0.5}
    case = kind(9, 6, 11, transa=transa, transb=transb, **sizes)
    a, b, c = case.arrays()
    assert a.shape == ((11, 9 + 3) if transa else (9, 11 + 3)) and b.shape == ((6, 11 + 2) if transb else (11, 6 + 2))
    assert (case.lda, case.ldb, case.ldc) == (a.shape[1], b.shape[1], 7)
    assert [array.shape for array in case.zeros()] == [a.shape, b.shape, c.shape]
    left, right = ((m[:, :extent].T if turned else m[:, :extent]).astype(np.float64) for m, turned, extent in (
        (a, transa, 9 if transa else 11), (b, transb, 11 if transb else 6)))  # fmt: skip
    value, _ = case.expected(a, b, c)
    with np.errstate(invalid="ignore"):
        assert np.allclose(value, 1.5 * left @ right + 0.5 * c[:, :6], rtol=1e-12, equal_nan=True)
    if kind is not SampledProblem:  # whose data are drawn as they lie
        by_rows = kind(9, 6, 11, **sizes)
        same = by_rows.expected(*by_rows.arrays())[0]
        assert np.array_equal(value, same, equal_nan=True)
        assert np.isnan(a[:, -3:]).all() and np.isnan(b[:, -2:]).all()


def test_a_batch_lies_product_behind_product():
    case = Problem(4, 3, 5, batch=2, transa=True, transb=True, pad_b=1)
    a, b, c = case.arrays()
    assert a.shape == (10, 4) and b.shape == (6, 6)
    value, _ = case.expected(a, b, c)
    assert np.allclose(value[4:], a[5:].T.astype(np.float64) @ b[3:, :5].T)


@pytest.mark.parametrize(
    "value, turned", [(True, True), (False, False), ("T", True), ("n", False), (np.True_, True), (1, True), (0, False), ("True", True)]
)
def test_BLASs_letters_say_it_too(value, turned):
    assert Problem(2, 2, 2, transb=value).transb is turned and Problem(2, 2, 2, transa=value).transa is turned


@pytest.mark.parametrize("value", ["C", "", 2, 1.0, "yes"])
def test_anything_else_is_a_sentence(value):
    with pytest.raises(LaunchError, match='transb=.*write True, or BLAS\'s "T", for a kernel that takes B by columns'):
        Problem(2, 2, 2, transb=value)
    with pytest.raises(LaunchError, match='takes A by columns; False or "N" by rows'):
        helpers.compile(plain(), transa=value)


def test_the_line_is_read_wherever_the_source_ends():
    kernel = helpers.compile(plain() + "// the end \\", transb=True)
    assert transposes.transposed(kernel) == (False, True)


@pytest.mark.parametrize("taken", ["#define transb ldb\n", "constexpr int other = 1;\n#define transb other_name\n"])
def test_a_name_that_is_taken_is_told(taken):
    with pytest.raises(LaunchError, match="transb is another name in this source. Let the file say it"):
        helpers.compile(taken + plain(), transb=True)


def test_a_local_of_that_name_says_nothing():
    local = plain().replace("float sum = 0;", "const int transb[2] = {1, 2}; float sum = 0 * transb[threadIdx.x & 1];")
    assert transposes.transposed(helpers.compile(local, transb=True)) == (False, True)


def test_what_a_source_says_stays_unless_the_option_says_otherwise():
    source = plain() + transposes.line("transb") + "\n"
    assert transposes.transposed(helpers.compile(source)) == transposes.transposed(helpers.compile(source, transb="T")) == (False, True)
    with pytest.raises(LaunchError, match=r"The source says transb = \(1,\) itself. Leave --transb out, or that line"):
        helpers.compile(source, transb="N")


@pytest.mark.parametrize("source, entry, missing", [
    ("__global__ void double_it(float* p) { p[threadIdx.x] *= 2; }", "double_it", "Number 1, p, is a pointer and should be 32 bits"),
    (plain().replace("int ldb,", "").replace("ldb", "K"), "plain", "ldb is missing: it is number 8, behind B"),
])  # fmt: skip
@pytest.mark.parametrize("options, said", [
    ({"transb": True}, "transb: how B lies is said of"), ({"transa": "T", "transb": 1}, "transa and transb: how A and B lies is said of"),
])  # fmt: skip
def test_of_a_kernel_that_the_course_does_not_launch_they_say_nothing(tmp_path, source, entry, missing, options, said):
    path = tmp_path / "mine.cu"
    path.write_text(source)
    for ask in (lambda: helpers.compile(source, **options), lambda: lesson.from_file(path, **options)):
        with pytest.raises(LaunchError) as caught:
            ask()
        assert caught.value.message.startswith(said) and f"{entry} has not the signature the course launches. " in caught.value.message
        assert missing in caught.value.message and "hands over arrays as they lie" in caught.value.message
    assert helpers.compile(source, transa="N", transb=False).name == entry


def test_arrays_of_other_extents_are_told():
    kernel = helpers.compile(plain(), transb=True)
    a, c = np.ones((20, 40), np.float32), np.ones((20, 33), np.float32)
    for rows, columns in ((40, 33), (20, 66), (33, 44)):
        with pytest.raises(LaunchError, match=f"B is {rows} × {columns}, and of .* it has 33 rows of 40 elements, ldb"):
            gemm.run(kernel, gemm.problem_for(kernel, 20, 33, 40), on="cpu", arrays=(a, np.ones((rows, columns), np.float32), c))
    gemm.run(kernel, gemm.problem_for(kernel, 20, 33, 40, pad_b=4), on="cpu", arrays=(a, np.ones((33, 44), np.float32), c))
    assert np.allclose(c, 40)


def test_a_problem_that_is_less_deep_has_the_same_leading_dimensions():
    for transa, transb in itertools.product((False, True), repeat=2):
        case = Problem(30, 20, 500, pad_a=1, pad_b=2, transa=transa, transb=transb)
        some = case.shallow(64)
        assert (some.k, some.lda, some.ldb) == (64, case.lda, case.ldb)
        low = case.shallow(64, 8)
        assert (low.m, low.k, low.lda, low.ldb, low.ldc) == (8, 64, case.lda, case.ldb, case.ldc)
    scaled = Problem(30, 20, 500, dtype="float8_e4m3", scale_block=(1, 128, 128))
    assert scaled.transb and scaled.ldb == 512 and scaled.shallow(64).ldb == 512


@pytest.mark.parametrize(
    "pad, n, k, expected", [(0, 64, 64, 0), (0, 64, 33, 31 % 4), (5, 23, 19, 5), (2, 22, 21, 3), (1, 28, 20, 1), (4, 28, 20, 4)]
)
def test_padding_is_as_far_from_whole_vectors_as_it_was_by_rows(pad, n, k, expected):
    kernel, case = helpers.compile(plain(), transb=True), Problem(8, n, k, pad_b=pad)
    found = laid_out(kernel, case)
    assert found.transb and found.pad_b == expected and found.ldb % 4 == case.ldb % 4


def test_two_odd_extents_without_padding_stay_so():
    kernel = helpers.compile(plain(), transb=True)
    assert laid_out(kernel, Problem(3, 7, 5)).ldb == 5


# --------------------------------------------------------------------------------------------------- right kernels


@pytest.mark.parametrize("transa, transb", list(itertools.product((False, True), repeat=2)))
def test_a_kernel_is_right_that_takes_what_it_says(transa, transb):
    source = plain("COLUMN" if transa else "ROW", "COLUMN" if transb else "ROW")
    report = checked(source, transa=transa, transb=transb)
    assert report.passed, report


@pytest.mark.slow
@pytest.mark.parametrize(
    "source, arch", [(column_kernels.TILED, "sm_90"), (column_kernels.MMA, "sm_90"), (column_kernels.wgmma(), "sm_90a")]
)
def test_right_kernels_in_public_form_pass(source, arch):
    kernel = helpers.compile(source, arch=arch, transb="T")
    report = gemm.check(kernel, on="cpu", seed=1)
    assert report.passed, report
    assert not gemm.check(helpers.compile(source, arch=arch), [Problem(33, 33, 65, dtype=gemm.types(kernel)[0])], on="cpu").correct


@pytest.mark.slow
def test_the_products_of_a_batch_lie_behind_each_other_as_they_are_stored():
    batched = plain("COLUMN", "COLUMN").replace("    float sum = 0;", "    A += blockIdx.z * K * lda, B += blockIdx.z * N * ldb, C += blockIdx.z * M * ldc;\n"
                                                "    float sum = 0;") + 'extern "C" __device__ constexpr int grid_depth[] = {1};\n'  # fmt: skip
    both = {"transa": True, "transb": True}
    assert checked(batched, **both).passed
    text = str(checked(batched.replace("blockIdx.z * N * ldb", "blockIdx.z * K * ldb"), **both))
    assert "each product lie K * lda, N * ldb and M * ldc elements behind those of the one before" in text


def test_the_map_of_B_by_columns_is_of_what_is_stored():
    kernel = helpers.compile(column_kernels.wgmma(), arch="sm_90a", transb=True)
    case = gemm.problem_for(kernel, 40, 24, 64)
    given = launch_arguments(kernel, case, *case.arrays())
    assert given.arguments[12].tensor.shape == (64, 24) and not given.copies
    odd = gemm.problem_for(kernel, 40, 24, 63)
    given = launch_arguments(kernel, odd, *odd.arrays())
    assert given.arguments[12].tensor.shape == (63, 24) and given.arguments[7] == 64 and len(given.copies) == 2


# --------------------------------------------------------------------------------------------------- wrong kernels


@pytest.mark.parametrize("found, said", [
    ("COLUMN(k, j, K)", "reads the padding of B, NaN: element ["),  # forgets ldb
    ("COLUMN(k, j, N)", "elements of C are wrong"),  # reads N for it
    ("COLUMN(k, j, lda)", "elements of C are wrong"),
    ("COLUMN(j, k, ldb)", "computes A × Bᵀ: it takes B by rows"),
])  # fmt: skip
def test_a_kernel_that_finds_B_otherwise_is_wrong(found, said):
    report = checked(plain().replace("COLUMN(k, j, ldb)", found), transb=True)
    assert not report.correct and said in str(report), report


@pytest.mark.parametrize("edit", [
    ("((size_t)from % 16 | ld % 4) == 0 &&", "(size_t)from % 16 == 0 && K % 4 == 0 &&"),  # K where ldb should be asked
    ("((size_t)from % 16 | ld % 4) == 0 &&", "ld % 4 == 0 &&"),  # and where the matrix begins
    ("((size_t)from % 16 | ld % 4) == 0 && left >= 4", "((size_t)from % 16 | ld % 4) == 0 && left > 0"),  # beyond the end of a column
    ("first + line < lines ? K - k0 - four : 0", "K - k0 - four"),  # a column too far
], ids=["K for ldb", "where B begins", "the end of a column", "the last column"])  # fmt: skip
def test_vectors_of_a_column_are_held_to_where_they_lie(edit):
    assert column_kernels.TILED.count(edit[0]) == 1
    assert not checked(column_kernels.TILED.replace(*edit), transb=True).passed


def test_padding_of_a_column_is_named_as_that():
    text = str(checked(plain().replace("(k, j, ldb)", "(k, j, K)"), transb=True))
    assert "where columns of " in text and "Are they ldb apart there" in text


def test_a_kernel_that_writes_to_B_is_told_the_element_as_the_product_has_it():
    source = plain().replace("float sum = 0;", "float sum = 0;\n    if (i == 0 && j == 2) const_cast<float*>(B)[2 * ldb + 1] = 5;")
    assert "B is an input, and the kernel changed B[1, 2]" in str(checked(source, transb=True))


def test_who_takes_B_by_columns_and_does_not_say_so_is_told_how_to():
    assert "Run the cell again with --transb behind its name: it is given B as N × K, ldb from one column to the next." in str(
        checked(plain())
    )


def test_who_says_so_and_does_not_is_told_to_drop_it():
    text = str(checked(plain(of_b="ROW"), transb=True))
    assert "it takes B by rows, with element (k, n) at k * ldb + n. Here B is N × K" in text and "Drop --transb" in text


@pytest.mark.parametrize("source, transb, said", [
    (column_kernels.MMA, False, "Run the cell again with --transb"), (column_kernels.wgmma(), False, "Run the cell again with --transb"),
    (lesson.reference(16).source, True, "Drop --transb"),
], ids=["mma.sync", "wgmma", "wgmma by rows"])  # fmt: skip
def test_kernels_of_tensor_cores_are_told_too(source, transb, said):
    kernel = helpers.compile(source, arch="sm_90a", transb=transb)
    assert said in str(gemm.check(kernel, gemm.problem_for(kernel, 33, 65, 40, pad_b=3), on="cpu"))


@pytest.mark.parametrize("of_a, of_b", list(itertools.product(("ROW", "COLUMN"), repeat=2)))
def test_what_is_advised_of_C_by_columns_makes_a_kernel_right(of_a, of_b):
    source = plain(of_a, of_b, "COLUMN")
    text = str(checked(source))
    assert "Cᵀ = Bᵀ × Aᵀ" in text
    for old, new in (
        ("int M, int N", "int N, int M"), ("const float* A, int lda, const float* B, int ldb", "const float* B, int ldb, const float* A, int lda"),
        ("tile_shape[] = {32, 8}", "tile_shape[] = {8, 32}"), ("blockIdx.y * 32", "blockIdx.x * 32"), ("= blockIdx.x * 8", "= blockIdx.y * 8"),
    ):  # fmt: skip
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    options = {name: f"--{name}" in text.split("Line ")[0].split("Run the cell again")[-1] for name in transposes.NAMES}
    options = options if "Run the cell again" in text else {}
    assert checked(source, **options).passed


# ------------------------------------------------------------------------------------------------ how a kernel says it


def test_the_source_says_it_so_that_all_that_is_made_of_it_does():
    kernel = helpers.compile(plain(), transb=True)
    assert kernel.source == plain() + 'extern "C" __device__ constexpr int transb[] = {1};  // --transb\n'
    assert transposes.transposed(kernel) == (False, True) and transposes.said_of(kernel) == "B by columns"
    again = helpers.compile(kernel.source)
    assert transposes.transposed(again) == (False, True) and transposes.transposed(kernel.for_arch("sm_80")) == (False, True)
    assert helpers.compile(kernel.source, transb="T").source == kernel.source
    tried = comparing.variants(kernel, {"as it is": {}, "of 16": {"blockIdx.x * 8": "blockIdx.x * 4 * 2"}})
    assert all(transposes.transposed(one) == (False, True) for one in tried.values())
    runs = tried.gemm(32)
    assert [run.problem["problem"].transb for run in runs.values()] == [True, True]
    assert "global loads" in str(comparing.compare_counts(runs, ["global loads", "sectors per load of B"]))


def test_a_source_that_does_not_compile_is_told_of_its_own_lines():
    broken = plain().rstrip().rstrip("}")
    with pytest.raises(CompileError) as with_option:
        helpers.compile(broken, transb=True)
    with pytest.raises(CompileError) as without:
        helpers.compile(broken)
    assert with_option.value.message == without.value.message


@pytest.mark.slow
def test_what_cannot_be_is_a_sentence():
    with pytest.raises(LaunchError, match=r"The source says transb = \(0,\) itself"):
        helpers.compile(plain() + 'extern "C" __device__ constexpr int transb[] = {0};\n', transb=True)
    with pytest.raises(LaunchError, match=r"transb = \(2,\): it is one number"):
        transposes.transposed(helpers.compile(plain() + 'extern "C" __device__ constexpr int transb[] = {2};\n'))
    with pytest.raises(LaunchError, match="exchange M and N, A and B"):
        transposes.transposed(helpers.compile(plain() + 'extern "C" __device__ constexpr int transc[] = {1};\n'))
    pieces = lesson.reference(18)
    with pytest.raises(LaunchError, match="pieces, which are made of A and B by rows"):
        transposes.transposed(helpers.compile(pieces.source, pieces.name, pieces.compiled.arch, transb=True))


def test_a_launch_of_ones_own_is_as_it_was():
    kernel = helpers.compile(plain(), transb=True)
    a, b, c = np.ones((4, 4), np.float32), np.arange(16, dtype=np.float32).reshape(4, 4), np.zeros((4, 4), np.float32)
    kernel.launch(1, (32, 8), [4, 4, 4, 1.0, a, 4, b, 4, 0.0, c, 4])
    assert np.array_equal(c, a @ b.T)


def test_arrays_of_ones_own_lie_as_the_kernel_takes_them():
    kernel = lesson.LessonKernel(helpers.compile(plain(), transb=True).compiled)
    a, b, c = np.ones((4, 6), np.float32), np.arange(18, dtype=np.float32).reshape(3, 6), np.zeros((4, 3), np.float32)
    kernel.gemm(4, 3, 6, arrays=(a, b, c))
    assert np.array_equal(c, a @ b.T)
    with pytest.raises(LaunchError, match="gemm has no option transb: a kernel says it where it is compiled, %%cuda plain --transb"):
        kernel.gemm(4, transb=True)


def test_counters_of_a_large_product_are_those_of_the_whole():
    kernel = helpers.compile(column_kernels.MMA, transb=True)
    problem = gemm.problem_for(kernel, 64, 48, 96)
    sampled, whole = gemm.count(kernel, problem), gemm.run(kernel, problem, on="cpu", findings=False)
    assert sampled.sampled and all(whole.counters[name] == value for name, value in sampled.counters.items())


@pytest.mark.slow
def test_the_time_of_a_kernel_by_columns_is_predicted():
    run = gemm.count(helpers.compile(column_kernels.wgmma(), arch="sm_90a", transb=True), Problem(1024, 1024, 1024, dtype="bfloat16"))
    rows = gemm.count(lesson.reference(16), Problem(1024, 1024, 1024, dtype="bfloat16"))
    assert run.predict().milliseconds == pytest.approx(rows.predict().milliseconds, rel=0.1)
    assert geometry(run.kernel).tile == (128, 256)
