"""The GEMM problem and its check: a right kernel passes, and each kind of wrong one is told what is wrong.

Tests of: helpers.run.check_report, helpers.run.differences, helpers.run.own_products
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

import helpers
from helpers.course import steps
from helpers.errors import LaunchError, NotBegunError, UnexplainedError
from helpers.run import differences, gemm, product_runs
from helpers.run.check_shapes import near_special_factors
from helpers.run.gemm import Problem
from helpers.run.geometry import is_fused
from helpers.run.launch_arguments import launch_arguments
from helpers.run.problem import SampledProblem, ScaledProblem
from helpers.sim.code import time_limit
from helpers.sim.native import engine
from tests.run.tma_kernels import source as tma_source

GEOMETRY = """
extern "C" __device__ constexpr int block_shape[] = {16, 8, 1};
extern "C" __device__ constexpr int tile_shape[] = {8, 16};
"""
PLAIN = (
    GEOMETRY
    + """
__global__ void plain(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C, int ldc) {
    int row = blockIdx.y * 8 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    if (row >= M || col >= N) return;
    float sum = 0;
    for (int k = 0; k < K; k++) sum += A[row * lda + k] * B[k * ldb + col];
    C[row * ldc + col] = beta == 0 ? alpha * sum : alpha * sum + beta * C[row * ldc + col];
}
"""
)


@pytest.fixture(scope="module")
def plain():
    return helpers.compile(PLAIN)


def broken(old: str, new: str):
    assert PLAIN.count(old) == 1
    return gemm.check(helpers.compile(PLAIN.replace(old, new)), on="cpu")


def _shapes(kernel) -> int:
    """How many shapes a check of a plain kernel tries."""
    fixed = gemm.adversarial(gemm.geometry(kernel).tile)
    return len([*fixed, *gemm.drawn(kernel, 0), *gemm.not_finite(kernel, 0), *gemm.at_last(kernel, 0)])


def test_a_right_kernel_passes(plain):
    report = gemm.check(plain, on="cpu")
    assert report.passed and bool(report)
    assert len(report.cases) == _shapes(plain) > 10
    assert "passed" in str(report) and "passed" in report._repr_html_()


def test_code_in_a_finding_is_set_as_code():
    report = broken("float sum = 0", "float sum")
    assert "Give `sum` a value" in str(report) and "Give <code>sum</code> a value" in report._repr_html_()


@pytest.mark.parametrize(("slug", "columns"), [("shared_tile", 141), ("warp_specialized", 21)])
def test_a_check_has_more_columns_of_tiles_than_there_are_multiprocessors(slug, columns):
    step = steps.get(slug)
    kernel = helpers.compile(step.kernel_path.read_text(encoding="utf-8"), step.entry, arch=step.target())
    rows, tile = gemm.geometry(kernel).tile
    for seed in range(9):
        widest = max(gemm.drawn(kernel, seed)[:3], key=lambda problem: problem.n)
        assert columns <= -(-widest.n // tile) <= columns + 9
        assert 1 <= widest.m - rows * ("PANEL" in kernel.source) <= 3


@pytest.mark.parametrize("slug", ["thread_tile_2d", "schedule", "warp_specialized"])
def test_a_check_has_a_long_k_in_whole_tiles_and_steps(slug):
    """Of a kernel with tensor maps, for whose engine that is dear, in every other check."""
    step = steps.get(slug)
    kernel = helpers.compile(step.kernel_path.read_text(encoding="utf-8"), step.entry, arch=step.target())
    (rows, columns), along = gemm.geometry(kernel).tile, gemm.step_along_k(kernel)
    for seed in range(4):
        asked = *gemm.drawn(kernel, seed), *gemm.at_last(kernel, seed)
        deep = [each for each in asked if 4096 < each.k < 1 << 16 and each.m % rows == each.n % columns == 0]
        assert len(deep) == (slug != "warp_specialized" or seed % 2 == 0)
        assert all(each.k % along == each.lda % 16 == each.ldb % 16 == 0 for each in deep)


def test_of_a_sampled_tile_it_is_said_which_part_of_k_is_left_out():
    ends = "for (int k = 0; k < (M % 8 == 0 && N % 16 == 0 ? min(K, 1024) : K); k++)"
    wrong = helpers.compile(PLAIN.replace("for (int k = 0; k < K; k++)", ends))
    deep = SampledProblem(8, 16, 4160, places=((0, 0),))
    assert "adds nothing from k = 1,024 on where K is 4,160" in str(gemm.check(wrong, deep, on="cpu"))
    assert "adds nothing" not in str(gemm.check(wrong, replace(deep, m=16), on="cpu"))


def test_a_small_shape_has_the_time_of_small_ones_though_it_was_drawn(plain):
    small, large = (gemm.problem_for(plain, *extents) for extents in ((17, 23, 19), (3, 2321, 32)))
    assert [gemm._may_take(plain, problem, True, 60.0, 8.0) for problem in (small, large)] == [8.0, 60.0]


def test_who_takes_all_of_z_for_the_slices_of_one_product_is_told_what_z_is():
    one = PLAIN.replace("int k = 0; k < K; k++", "int k = blockIdx.z; k < K; k += gridDim.z")
    kernel = helpers.compile('extern "C" __device__ constexpr int grid_depth[] = {1};' + one)
    batch = gemm.problem_for(kernel, 9, 11, 13, batch=3)
    assert "Here gridDim.z is 3: the slices of a product are 1, and no more." in str(gemm.check(kernel, batch, on="cpu"))


@pytest.mark.parametrize("condition, does", [
    ("fabsf(alpha) < 1e-3f && beta == 1", "return"),
    ("beta == 1 && fabsf(alpha - 1) < 1e-3f", "alpha = 1"),
    ("beta == 0 && fabsf(alpha - 1) < 1e-3f", "alpha = 1"),
    ("alpha == 1 && fabsf(beta) < 1e-3f", "beta = 0"),
    ("alpha == 1 && fabsf(beta - 1) < 1e-3f", "beta = 1"),
    ("fabsf(beta) < 1.1920929e-7f", "beta = 0"),
])  # fmt: skip
def test_a_tolerance_for_one_factor_is_found_where_the_other_is_exact(condition, does):
    """As in BLAS's quick return."""
    exact = condition.replace("fabsf(alpha) < 1e-3f", "alpha == 0").replace("fabsf(beta) <", "beta == 0 && beta <")
    exact = re.sub(r"fabsf\((alpha|beta) - 1\) < 1e-3f", r"\1 == 1", exact)
    for seed in (1, 2, 3):
        wrong = helpers.compile(PLAIN.replace("float sum = 0;", f"if ({condition}) {does}; float sum = 0;"))
        assert any(case.message for case in gemm.check(wrong, near_special_factors(wrong, seed), on="cpu").cases)
    right = helpers.compile(PLAIN.replace("float sum = 0;", f"if ({exact}) {does}; float sum = 0;"))
    assert gemm.check(right, near_special_factors(right, 1), on="cpu").passed


@pytest.mark.parametrize("edit", [
    ("int row = blockIdx.y * 8 + threadIdx.y", "unsigned short row = blockIdx.y * 8 + threadIdx.y"),
    ("blockIdx.y * 8", "blockIdx.y % 2048 * 8"),
    ("blockIdx.y * 8", "blockIdx.y % 300 * 8"),
    ("blockIdx.x * 16", "blockIdx.x % 4000 * 16"),
])  # fmt: skip
def test_tiles_that_begin_again_along_one_side_are_found(edit):
    assert edit[0] in PLAIN
    report = gemm.check(helpers.compile(PLAIN.replace(*edit)), on="cpu", seed=1)
    assert not report.passed and "both store to" in str(report)


@pytest.mark.slow
def test_a_counter_of_few_bits_that_takes_steps_ends_its_check_soon(monkeypatch):
    """Each shape has the time of a small one: at most PATIENCE, and not all of the seconds."""
    given, whole = [], gemm.run
    monkeypatch.setattr(gemm, "run", lambda *args, **options: given.append(options.get("seconds")) or whole(*args, **options))
    steps_of_16 = PLAIN.replace(
        "for (int k = 0; k < K; k++) sum +=",
        "for (unsigned char k0 = 0; k0 < K; k0 += 16)\n        for (int k = k0; k < min(K, k0 + 16); k++) sum +=",
    )
    report = gemm.check(helpers.compile(steps_of_16), on="cpu", seed=1)
    assert report.endless and "declares 8 bits" in str(report) and max(given) <= gemm.PATIENCE


@pytest.mark.slow
@pytest.mark.parametrize("slug", ["fused_epilogue", "wmma", "warp_specialized", "fp32_on_tensor_cores", "fp8"])
@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_a_small_factor_is_not_zero(slug, name):
    """Of no element type. Those that fail have such a factor."""
    source = steps.get(slug).kernel_source()
    head = source.index("{", source.index("int ldc", source.rindex("__global__"))) + 1
    source = f"{source[:head]}\n    if (fabsf({name}) < 1e-4f) {name} = 0;{source[head:]}"
    kernel = helpers.compile(source, entry=steps.get(slug).entry)
    report = gemm.check(kernel, near_special_factors(kernel, 1), on="cpu")
    wrong = [0 < abs(getattr(case.problem, name)) < 1e-4 for case in report.cases]
    assert [bool(case.message) for case in report.cases] == wrong and sum(wrong) >= 2, str(report)


@pytest.mark.parametrize("name", ["alpha", "beta"])
@pytest.mark.parametrize("special", [-1, 0, 1])
@pytest.mark.parametrize(("least", "most"), [(0.0, 1e-5), (0.0, 1e-3), (1e-3, 0.02), (0.02, 0.35), (1e-5, 0.3), (0.0, 0.25)])
def test_a_factor_near_a_special_one_is_not_that(name, special, least, most):
    """However near a kernel takes it for that, and the message says which factor is meant."""
    away = f"fabsf({name} - ({special}))"
    edit = f"if ({away} > {least}f && {away} < {most}f) {name} = {special};\n    float sum = 0"
    kernel = helpers.compile(PLAIN.replace("float sum = 0", edit, 1))
    for seed in (1, 2):
        report = gemm.check(kernel, near_special_factors(kernel, seed), on="cpu")
        said = next(case.message for case in report.cases if case.message)
        assert f"{name} = " in said and "Is a factor compared with a tolerance?" in said
        assert f", which is near {special} and not {special}" in str(report)


def test_a_right_kernel_is_right_with_all_factors_and_other_mistakes_are_not_laid_to_them():
    kernel = helpers.compile(PLAIN)
    for seed in range(5):
        assert gemm.check(kernel, near_special_factors(kernel, seed), on="cpu")
    wrong = gemm.check(helpers.compile(PLAIN.replace("alpha * sum", "2 * alpha * sum", 1)), on="cpu", seed=1)
    assert not wrong and "tolerance" not in str(wrong)


@pytest.mark.parametrize("alpha, beta", [(0.327148, -2), (0.9, 1e-7), (2, 0.3)])
def test_a_factor_is_not_blamed_where_the_shape_is_wrong_with_any(alpha, beta):
    """A sum that is clamped: it shows where numbers are large, and one of a check's few such products may have a factor near 0."""
    clamped = helpers.compile(
        PLAIN.replace("    C[row", "    if (fabsf(sum) > 1e7f && fabsf(sum) < 1e30f) sum = copysignf(1e7f, sum);\n    C[row")
    )
    large = ScaledProblem(18, 15, 33, alpha=alpha, beta=beta, scales=20, seed=1)
    assert clamped.source != PLAIN and large.near_special_factors()
    report = gemm.check(clamped, [Problem(3, 5, 7), large], on="cpu")
    assert not report.correct and "tolerance" not in str(report)


def test_a_kernel_that_the_machine_does_not_run_is_told_so_once_and_nothing_of_findings():
    helper = """
    __device__ __noinline__ float pairs(const float* A, const float* B, int ldb, int from, int to) {
        if (to - from < 2) return from < to ? A[from] * B[from * ldb] : 0;
        return pairs(A, B, ldb, from, (from + to) / 2) + pairs(A, B, ldb, (from + to) / 2, to);
    }
    """
    loop = "for (int k = 0; k < K; k++) sum += A[row * lda + k] * B[k * ldb + col];"
    assert loop in PLAIN
    kernel = helpers.compile(helper + PLAIN.replace(loop, "sum = pairs(A + row * lda, B + col, ldb, 0, K);"), entry="plain")
    for report in (gemm.check(kernel, on="cpu", seed=1), gemm.check(kernel, [Problem(2, 3, 4), Problem(5, 6, 7)], on="cpu")):
        said = str(report)
        assert not report.passed and said.count("calls itself") == 1 and "No finding" not in said and "not tried" in said
    assert "No finding" in str(gemm.check(helpers.compile(PLAIN), Problem(2, 3, 4), on="cpu"))


def test_factors_near_one_are_named_as_they_are():
    assert "alpha -0.99999976, beta -1" in str(Problem(1, 1, 1, alpha=2**-22 - 1, beta=-1))
    said = {"alpha": "alpha = 0.9, which is near 1 and not 1", "beta": "beta = 1e-07, which is near 0 and not 0"}
    assert Problem(1, 1, 1, alpha=0.9, beta=1e-7).near_special_factors() == said
    assert not Problem(1, 1, 1, alpha=-1, beta=0.5).near_special_factors() and not Problem(1, 1, 1, alpha=2.1).near_special_factors()
    assert "alpha 1.0000038, beta 1" in str(Problem(1, 1, 1, alpha=1 + 2**-18, beta=1))
    tiny = ScaledProblem(2, 3, 4, alpha=1e-7, beta=1e-7, apart=(6, 6), of_c=14)
    assert str(tiny).endswith("alpha 1e-07, beta 1e-07, A and B times 2^6 and C times 2^14")
    (_, _, c), (_, _, plain) = tiny.arrays(), Problem(2, 3, 4, beta=1e-7).arrays()
    assert (c == plain * 2.0**14).all()


@pytest.mark.parametrize("tile", [(9, 113), (31, 33), (27, 37), (127, 8), (250, 243)])
def test_tiles_without_a_common_factor_make_no_product_long(tile):
    shape = re.sub(r"tile_shape\[\] = \{.*?\}", f"tile_shape[] = {{{tile[0]}, {tile[1]}}}", PLAIN)
    rows, columns = tile
    square = next(
        each for each in gemm.drawn(helpers.compile(shape), 3) if isinstance(each, gemm.SampledProblem) and each.m == each.n == each.k
    )
    ((x, y),) = square.places
    assert 320 <= square.k <= 2048 and (x + 1) * columns <= square.n and (y + 1) * rows <= square.m
    assert square.k % rows == square.k % columns == 0 or math.lcm(*tile) > 2048


def test_reading_c_where_beta_is_zero_is_a_finding_at_its_line():
    report = broken("beta == 0 ?", "false ?")
    (finding,) = report.findings
    assert finding.kind == "uninitialized" and "C[0, 0]" in finding.message
    assert "beta * C[row * ldc + col]" in report.source.split("\n")[finding.line - 1]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("A[row * lda + k]", "A[row * K + k]", "wrong"),
        ("B[k * ldb + col]", "B[k * N + col]", "wrong"),
        ("C[row * ldc + col] = beta", "C[row * N + col] = beta", "stored it: “C[row * N"),
        ("beta == 0 ?", "false ?", "NaN"),
        ("alpha * sum : alpha", "sum : alpha", "expected"),
        ("k < K", "k < K - 1", "wrong"),
        ("float sum = 0", "float sum = 1e-3f", "the first is C[0, 0]"),
        ("row >= M || col >= N", "row >= M || col >= ldc", "padding behind row 0 of C (ldc = 30), and the kernel changed it: it was"),
        ("row >= M || col >= N", "row >= M", "column"),
        ("if (row >= M || col >= N) return;", "", "outside"),
        ("float sum = 0;", "float sum = 0; if (row + col == 0) ((float*)A)[0] = 1;", "and is 1. Line"),
        ("row * lda + k", "row * lda + k + 1", "wrong"),
        ("float sum = 0;", "float sum;", "`sum` before it has a value"),
        ("* C[row * ldc + col];\n", "* C[row * ldc + col];\n    atomicAdd(&C[row * ldc + col], 1.0f);\n", "stored it: “atomicAdd(&C[row"),
        ("float sum = 0;", "float sum = 0; if (alpha > 1e30f) { float x; C[0] = x; }", "The compiler says that `x` is used"),
    ],
)
def test_wrong_kernels_are_told_what_is_wrong(old, new, expected):
    report = broken(old, new)
    assert not report.passed
    if expected in ("column", "outside"):  # out of bounds or in the padding, depending on the shape: both are said
        assert any(case.message for case in report.cases)
    else:
        assert expected in str(report)


@pytest.mark.parametrize(("tile", "stored"), [("{24, 16}", "8 × 16"), ("{8, 48}", "8 × 16")])
def test_a_tile_larger_than_what_its_threads_store_is_told(tile, stored):
    report = broken("tile_shape[] = {8, 16}", f"tile_shape[] = {tile}")
    said = f"a block computes {tile.strip('{}').replace(', ', ' × ')} elements of C, and of a whole tile its threads store to {stored}:"
    assert not report.passed and said in str(report)


def test_a_sum_that_lacks_products_is_not_looked_for_in_types():
    short, cut = (broken("int k = 0; k < K", edit) for edit in ("short k = 0; k < K", "int k = 0; k < K && k < 65000"))
    for report in (short, cut):
        assert "Line" in str(report) or report is cut
        assert "half, bfloat16" not in str(report) and "some of the products may be left out" in str(report)
    assert "declares 16 bits" in str(short) and "“for (short k = 0; k < K; k++)" in str(short)
    assert "declares 16 bits" not in str(cut)


def test_k_beyond_16_bits_is_tried_last_and_where_nothing_else_is_wrong(plain):
    last = gemm.check(plain, on="cpu", seed=4).cases[-1].problem
    assert last.k > 1 << 16 and last.m * last.n < 50
    assert all(case.problem != last for case in broken("row * lda + k", "row * lda + k + 1").cases)


@pytest.mark.parametrize(("kind", "bits"), [("unsigned char", 8), ("uint8_t", 8), ("unsigned short int", 16)])
def test_a_counter_that_never_reaches_k_is_named_by_its_bits(kind, bits, monkeypatch):
    """A minute for each; it is stopped after the time that small shapes have."""
    monkeypatch.setattr(gemm, "PATIENCE", 1.0)
    start = time_limit.now()
    report = gemm.check(helpers.compile(PLAIN.replace("for (int k", f"for ({kind} k")), on="cpu", patience=1.0, seed=1)
    assert time_limit.now() - start < 20 and len(report.cases) == 2
    assert f"Line 9, “for ({kind} k = 0;" in report.cases[1].message and f"declares {bits} bits, which count to" in report.cases[1].message


def test_only_loops_to_k_are_given_less_time():
    assert differences.counts_to_k("for (unsigned char k = 0; k < K; ++k)") and differences.counts_to_k("for (short k0 = 0; k0 + 8 <= K; )")
    assert not differences.counts_to_k("for (short i = 0; i < TM; i++) for (int k = 0; k < K; k++)")
    assert not differences.counts_to_k("unsigned char first = A[K]; for (int k = 0; k < K; k++)")
    assert differences.line_of_16_bits("\nunsigned short int k = 0;") == 2 and differences.line_of_16_bits("short* p = 0;") is None


def test_the_line_that_stored_is_found_without_listing_machine_code(monkeypatch):
    """Which takes a third of a second and more for every wrong kernel."""
    monkeypatch.setattr("helpers.toolchain.compiled._disassemble", lambda compiled: pytest.fail("the machine code was listed"))
    report = broken("C[row * ldc + col] = beta", "C[row * N + col] = 2 * beta")
    assert "stored it: “C[row * N" in str(report)


BULK = """
extern "C" __device__ constexpr int block_shape[] = {32, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {1, 32};
__device__ void store(float* to, const float* from) {
    asm volatile("@COPY@ [%0], [%1], 128;"
                 :: "l"(to), "r"((unsigned)__cvta_generic_to_shared(from)) : "memory");
    asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
}
__global__ void bulk(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C, int ldc) {
    __shared__ alignas(128) float row[32];
    float sum = 0;
    for (int k = 0; k < K; k++) sum += A[blockIdx.y * lda + k] * B[k * ldb + threadIdx.x];
    row[threadIdx.x] = alpha * sum + 1;
    C[blockIdx.y * ldc + threadIdx.x] = 0;
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) store(&C[blockIdx.y * ldc], row);
}
"""


@pytest.mark.parametrize(
    "copy",
    ["cp.async.bulk.global.shared::cta.bulk_group", "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32"],
)
def test_a_bulk_copy_that_stored_a_wrong_element_is_named_with_its_call(copy):
    report = gemm.check(helpers.compile(BULK.replace("@COPY@", copy), arch="sm_90"), Problem(3, 32, 8), on="cpu")
    (line,) = [number for number, text in enumerate(BULK.split("\n"), 1) if 'asm volatile("@COPY@' in text]
    (call,) = [number for number, text in enumerate(BULK.split("\n"), 1) if "store(&C" in text]
    assert f"Line {line} stored it: “" in str(report) and f"called at line {call}, “if (threadIdx.x == 0) store(" in str(report)


def of_bfloat16(**options):
    return Problem(33, 40, 8, dtype="bfloat16", out_dtype="float32", **options)


def test_a_tensor_copy_that_stored_a_wrong_element_is_named_and_no_other():
    wrong = tma_source().replace("Cs[row + i][column] = alpha * sums[i]", "Cs[row + i][column] = alpha * sums[i] + 1")
    report = gemm.check(helpers.compile(wrong, arch="sm_90a"), [of_bfloat16(), of_bfloat16(beta=1.0)], on="cpu")
    stored = report.cases[0]
    assert "cp_async_bulk_tensor(ptx::space_global, ptx::space_shared" in wrong.split("\n")[stored.line - 1]
    assert "No line has stored" not in str(report)
    assert not report.cases[1].message  # there the threads store


def test_a_line_that_overruns_both_matrices_is_told_of_each():
    report = broken("k < K; k++", "k <= K; k++")
    assert {finding.array for finding in report.findings if finding.kind == "out-of-bounds"} == {"A", "B"}


def test_findings_fail_the_check_even_if_results_are_right():
    racy = helpers.compile(PLAIN.replace("float sum = 0;", "__shared__ float s[1]; s[0] = row; float sum = 0;"
                                         " if (s[0] < -5) sum = s[0];"))  # fmt: skip
    report = gemm.check(racy, on="cpu")
    assert not report.passed
    assert {finding.kind for finding in report.findings} == {"race"}
    assert all(not case.message for case in report.cases)


TILE = """
extern "C" __device__ constexpr int block_shape[] = {8, 8, 1};
extern "C" __device__ constexpr int tile_shape[] = {8, 8};
extern "C" __global__ void tile(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta,
                                float* C, int ldc) {
    __shared__ float As[8][8], Bs[8][8];
    const int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 8 + y, col = blockIdx.x * 8 + x;
    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += 8) {
        As[y][x] = row < M && k0 + x < K ? A[row * lda + k0 + x] : 0;
        Bs[y][x] = k0 + y < K && col < N ? B[(k0 + y) * ldb + col] : 0;
        __syncthreads();
        for (int k = 0; k < 8; k++) sum += As[y][k] * Bs[k][x];
        BARRIER
    }
    if (row < M && col < N) C[row * ldc + col] = alpha * sum + (beta == 0 ? 0 : beta * C[row * ldc + col]);
}
"""


@pytest.mark.parametrize("k", [1000, 3000])
def test_a_problem_with_a_long_k_has_the_time_of_long_ones(k, monkeypatch):
    """Also where the caller names it: what takes a slow machine long was said never to end."""
    monkeypatch.setattr(engine, "available", lambda: False)
    report = gemm.check(helpers.compile(PLAIN), Problem(4, 5, k), on="cpu", patience=1e-6)
    assert report.correct == (k > 1024) and ("1e-06 seconds" in str(report)) == (k < 1024), report


@pytest.mark.slow
def test_with_a_race_the_longest_shape_waits_unless_the_whole_is_wanted():
    """The NumPy machine, which names a race, takes seconds for the longest shape, and would name the same again."""
    racy = helpers.compile(TILE.replace("BARRIER", ""))
    short, whole = gemm.check(racy, on="cpu", seed=5), gemm.check(racy, on="cpu", seed=5, whole=True)
    longest = gemm.drawn(racy, 5)[0]
    assert short.waiting == longest and whole.waiting is None and not short.untried
    assert [case.problem for case in whole.cases if case.problem == longest]
    assert [case.problem for case in short.cases] == [case.problem for case in whole.cases if case.problem != longest]
    assert {(f.kind, f.line, f.other_line) for f in short.findings} == {(f.kind, f.line, f.other_line) for f in whole.findings}
    assert f"The longest shape, {longest}, takes a while with these findings: it is tried when they are gone." in str(short)


@pytest.mark.slow
def test_what_only_the_longest_shape_shows_is_named():
    racy = helpers.compile(TILE.replace("BARRIER", "if (k0 > 1000) __syncwarp(); else __syncthreads();"))
    report = gemm.check(racy, on="cpu", seed=5)
    assert report.waiting is None and {finding.kind for finding in report.findings} == {"race"}
    assert gemm.drawn(racy, 5)[0] in [case.problem for case in report.cases]


@pytest.mark.parametrize("long", [True, False])
def test_a_launch_ends_where_native_code_notices_what_is_not_to_be_explained(long):
    racy = helpers.compile(TILE.replace("BARRIER", f"/* {long} */"))
    with pytest.raises(
        UnexplainedError, match="tile was not run to its end: something happened that the NumPy machine must explain"
    ) as told:
        gemm.run(racy, Problem(8, 8, 3000), on="cpu", explain=False, long=long)
    assert told.value.line is not None
    assert gemm.run(racy, Problem(8, 8, 24), on="cpu", explain=True, long=long).findings


def test_the_bound_accepts_any_summation_order_and_rejects_a_lost_term():
    problem = Problem(40, 30, 500, seed=3)
    a, b, c = problem.arrays()
    for order in (slice(None), slice(None, None, -1)):
        total = np.zeros((40, 30), np.float32)
        for k in range(500)[order]:
            total += np.outer(a[:, k], b[k, :30])
        after = c.copy()
        after[:, :30] = total
        assert gemm.compare(problem, (a, b, c), (a, b, after)) == ""
    after[:, :30] -= np.outer(a[:, 7], b[7, :30])
    assert "wrong" in gemm.compare(problem, (a, b, c), (a, b, after))


def test_the_launch_needs_geometry_and_signature(plain):
    nothing = helpers.compile(PLAIN.replace(GEOMETRY, ""))
    with pytest.raises(LaunchError, match="block_shape"):
        gemm.run(nothing, Problem(8, 8, 8), on="cpu")
    other = helpers.compile(GEOMETRY + "__global__ void other(float* p) { p[0] = 1; }")
    with pytest.raises(LaunchError, match="signature"):
        gemm.run(other, Problem(8, 8, 8), on="cpu")
    with pytest.raises(LaunchError, match="empty"):
        gemm.run(plain, Problem(0, 8, 8), on="cpu")
    with pytest.raises(LaunchError, match="whole number"):
        Problem(-1, 8, 8)


@pytest.mark.parametrize("shape", [(64, 64, 32), (65, 63, 33), (24, 100, 7)])
def test_counting_by_block_class_equals_the_whole_launch(plain, shape):
    problem = Problem(*shape)
    whole = gemm.run(plain, problem, on="cpu", findings=False)
    sampled = gemm.count(plain, problem)
    assert sampled.sampled
    assert dict(sampled.counters) == _machine(whole.counters)
    assert {line: dict(c) for line, c in sampled.by_line.items()} == {line: _machine(c) for line, c in whole.by_line.items()}


SLICED = """extern "C" __device__ constexpr int block_shape[] = {16, 16, 1};
extern "C" __device__ constexpr int tile_shape[] = {16, 16};
extern "C" __device__ constexpr int grid_depth[] = {4};
extern "C" __global__ void sliced(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C, int ldc) {
    const int slices = M * N < 4096 ? 4 : 1, slice = blockIdx.z % 4;
    if (slice >= slices) return;
    const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    if (row >= M || col >= N) return;
    float sum = 0;
    for (int k = slice; k < K; k += slices) sum += A[row * lda + k] * B[k * ldb + col];
    atomicAdd(&C[row * ldc + col], alpha * sum);
}
"""


@pytest.mark.parametrize("shape", [(64, 80, 33), (48, 48, 40), (70, 33, 21), (33, 90, 64)])
def test_counting_blocks_whose_slices_differ_equals_the_whole_launch(shape):
    """Of a large C one slice does everything, and the others end at once."""
    kernel, problem = helpers.compile(SLICED), Problem(*shape)
    whole = gemm.run(kernel, problem, on="cpu", findings=False)
    counted = gemm.count(kernel, problem)
    assert counted.sampled and dict(counted.counters) == _machine(whole.counters)
    assert counted.counters["smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"] == math.prod(shape)


def _machine(counters):
    """Without the one counter of the PTX, which a launch that is counted but not run does not have."""
    return {name: value for name, value in counters.items() if name != "ptx_instructions"}


@pytest.mark.parametrize("slug", ["shared_tile", "bank_conflicts", "vectorized", "double_buffer"])
def test_counting_without_running_equals_running(slug):
    step = steps.get(slug)
    compiled = helpers.compile(step.kernel_path.read_text(), step.entry)
    problem = Problem(150, 140, 37, beta=1.0, pad_a=3)
    whole = gemm.run(compiled, problem, on="cpu", findings=False)
    grid, shape = whole.grid, gemm.geometry(compiled)
    counted = compiled.count(
        grid, shape.block, launch_arguments(compiled, problem, *problem.arrays()).arguments, shape.shared, blocks=range(math.prod(grid))
    )
    assert counted.outcome.engine == "slice" and not counted.sampled
    assert dict(counted.counters) == _machine(whole.counters)
    machine = {line: _machine(c) for line, c in whole.by_line.items()}
    assert {line: dict(c) for line, c in counted.by_line.items()} == {line: c for line, c in machine.items() if c}


def test_what_depends_on_data_is_run_to_be_counted():
    gather = helpers.compile(
        "__global__ void gather(const int* index, const float* x, float* y) { y[threadIdx.x] = x[index[threadIdx.x]]; }"
    )
    index, x, y = np.arange(32, dtype=np.int32)[::-1].copy() * 8, np.arange(256, dtype=np.float32), np.zeros(32, np.float32)
    counted = gather.count(1, 32, [index, x, y], blocks=[0])
    assert counted.outcome.engine != "slice" and y[0] == 248
    assert counted.counters["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == 4 + 32


def test_a_grid_of_any_size_cannot_wait_as_a_whole(plain):
    """It is said at once, with the line, and not after all shapes: these have few blocks."""
    sync = "#include <cooperative_groups.h>\n" + PLAIN.replace("float sum", "cooperative_groups::this_grid().sync();\n    float sum", 1)
    assert sync.count("this_grid") == 1
    report = gemm.check(helpers.compile(sync, arch="sm_90"), on="cpu")
    (case,) = report.cases
    assert not report.passed and report.untried and "cannot be launched" in case.message
    assert "this_grid" in sync.splitlines()[case.line - 1]


def test_flops_and_compulsory_bytes():
    problem = Problem(2, 3, 5)
    assert problem.flops == 60
    assert problem.compulsory_bytes == 4 * (10 + 15 + 6)
    assert Problem(2, 3, 5, beta=1.0).compulsory_bytes == 4 * (10 + 15 + 12)


FUSED = PLAIN.replace("float* C, int ldc)", "float* C, int ldc, const float* bias)").replace(
    "C[row * ldc + col] = beta == 0 ? alpha * sum : alpha * sum + beta * C[row * ldc + col];",
    "float v = beta == 0 ? alpha * sum : alpha * sum + beta * C[row * ldc + col];\n    v += bias[col];\n"
    "    C[row * ldc + col] = v < 0 ? 0 : v;",
)


@pytest.mark.slow
def test_a_fused_kernel_is_checked_with_its_bias_and_relu(plain):
    fused = helpers.compile(FUSED)
    assert is_fused(fused) and not is_fused(plain)
    report = gemm.check(fused, on="cpu")
    assert report.passed, str(report)
    for old, new in [("v < 0 ? 0 : v", "v"), ("v < 0 ? 0 : v", "fmaxf(v, 0)"), ("v += bias[col];", ""), ("bias[col]", "bias[row]")]:
        assert FUSED.count(old) == 1
        assert not gemm.check(helpers.compile(FUSED.replace(old, new)), on="cpu").passed


def test_fused_counting_by_block_class_equals_the_whole_launch():
    fused = helpers.compile(FUSED)
    problem = Problem(65, 63, 33)
    assert dict(gemm.count(fused, problem).counters) == _machine(gemm.run(fused, problem, on="cpu", findings=False).counters)


def test_a_batch_is_the_products_one_behind_the_other():
    problem = gemm.Problem(3, 4, 5, alpha=2.0, beta=1.0, pad_a=1, pad_b=2, pad_c=3, batch=3)
    a, b, c = problem.arrays()
    assert (a.shape, b.shape, c.shape) == ((9, 6), (15, 6), (9, 7)) and problem.flops == 3 * 2 * 3 * 4 * 5
    value, bound = problem.expected(a, b, c)
    for i in range(3):
        one = gemm.Problem(3, 4, 5, alpha=2.0, beta=1.0, pad_a=1, pad_b=2, pad_c=3)
        alone, its_bound = one.expected(a[3 * i : 3 * i + 3], b[5 * i : 5 * i + 5], c[3 * i : 3 * i + 3])
        assert np.allclose(value[3 * i : 3 * i + 3], alone) and np.allclose(bound[3 * i : 3 * i + 3], its_bound)
    assert str(problem).startswith("3 × 4 × 5, a batch of 3")
    with pytest.raises(LaunchError, match="batch=0"):
        gemm.Problem(3, 4, 5, batch=0)


def test_a_kernel_that_does_not_look_at_z_refuses_a_batch():
    with pytest.raises(LaunchError, match="launch it once for each of the 2"):
        gemm.run(helpers.compile(steps.get("naive").kernel_path.read_text()), gemm.Problem(4, 4, 4, batch=2), on="cpu")


@pytest.mark.slow
def test_an_endless_loop_ends_the_check_at_its_first_shape(monkeypatch):
    """Ten shapes of thirty seconds each were five minutes; and the bar must live while nothing else does."""
    monkeypatch.setattr(gemm, "PATIENCE", 1.5)
    source = PLAIN.replace("    for (", "    while (K >= 0 && C[0] != 77.0f) {}\n    for (", 1)
    told: list[tuple[int, int]] = []
    start = time_limit.now()
    report = gemm.check(helpers.compile(source), on="cpu", progress=lambda done, total: told.append((done, total)))
    assert time_limit.now() - start < 15
    assert not report and len(report.cases) == 1 and report.untried == _shapes(helpers.compile(source)) - 1
    assert str(report).count("may never end") == 1 and "  · The other" in str(report)
    assert len(told) > 3 and set(told) == {(0, report.untried + 1)}


@pytest.mark.parametrize(
    "tile, said",
    [
        ("constexpr int tile_shape[] = {1 << 20, 16};", "no tile of C has more than 2048 rows"),
        ("constexpr int tile_shape[] = {2048, 2048};", "elements of C at most, such as 512 × 512"),
        ("constexpr float tile_shape[] = {8, 16};", "they are int, not float"),
        ("constexpr long long tile_shape[] = {8, 16};", r"2 positive numbers \(int\)"),
    ],
)
def test_a_tile_that_is_none_is_refused_before_its_matrices_are_made(tile, said):
    kernel = helpers.compile(PLAIN.replace("constexpr int tile_shape[] = {8, 16};", tile))
    with pytest.raises(LaunchError, match=said):
        gemm.check(kernel, on="cpu")


@pytest.mark.parametrize("size", [10**6, 2**30, 2**31, 10**20, True])
def test_a_product_that_no_machine_holds_is_refused(plain, size):
    for make in (Problem.arrays, Problem.zeros):
        with pytest.raises(LaunchError, match=r"GB|int|whole number"):
            make(Problem(size, size, size))


@pytest.mark.parametrize("options", [{"seed": "x"}, {"seed": -1}, {"seconds": "1"}, {"problems": [3]}], ids=str)
def test_check_says_what_it_wants(plain, options):
    with pytest.raises(LaunchError, match="check"):
        gemm.check(plain, on="cpu", **options)
    with pytest.raises(LaunchError, match="wants a kernel"):
        gemm.check(PLAIN, **options)


def test_a_machine_that_is_slow_to_prepare_a_kernel_does_not_make_it_wrong(monkeypatch):
    """The patience is for threads that never end. What is not even ready to run is given the whole time, once."""
    slow, given = gemm.run, []

    def run(kernel, problem, **options):
        given.append(options["seconds"])
        if options["seconds"] < 60:
            raise NotBegunError("its code was still being prepared")
        return slow(kernel, problem, **options)

    monkeypatch.setattr(gemm, "run", run)
    kernel = helpers.compile(PLAIN)
    report = gemm.check(kernel, [gemm.Problem(3, 4, 5)])
    assert report and given[0] == gemm.PATIENCE and given[1] == 60
    monkeypatch.setattr(gemm, "run", lambda *args, **options: (_ for _ in ()).throw(NotBegunError("still not ready")))
    assert "still not ready" in str(gemm.check(kernel, [gemm.Problem(3, 4, 5)]))


TYPED = """#include <cuda_fp16.h>
#include <cuda_bf16.h>
%s
__global__ void gemm(int M, int N, int K, float alpha, const T* A, int lda, const T* B, int ldb, float beta, T* C, int ldc) {}
"""


@pytest.mark.parametrize("kind", ["__half", "half", "__nv_bfloat16", "float"])
def test_element_types_are_seen_through_templates_macros_and_aliases(kind):
    expected = {"float": "float32", "__nv_bfloat16": "bfloat16"}.get(kind, "float16")
    for head, entry in (("template <typename T>", f"gemm<{kind}>"), (f"#define T {kind}", None), (f"using T = {kind};", None)):
        assert gemm.types(helpers.compile(GEOMETRY + TYPED % head, entry)) == (expected, expected)


def test_doubles_are_refused_with_what_there_is():
    for head, entry in (("template <typename T>", "gemm<double>"), ("using T = double;", None)):
        with pytest.raises(LaunchError, match=r"gemm takes A in double, .* it has float32, tf32, float16"):
            gemm.check(helpers.compile(GEOMETRY + TYPED % head, entry), on="cpu")


@pytest.mark.parametrize(("matrices", "scalar", "said"), [
    ("signed char", "float", "A in signed char"), ("unsigned short", "float", "A in unsigned short"), ("double", "double", "A in double"), ("int", "int", "A in int"),
])  # fmt: skip
def test_numbers_that_no_product_has_are_refused_by_name(matrices, scalar, said):
    """Not by the scalars beside them, and without an array to convert, which nobody gave."""
    source = f"""
    extern "C" __device__ constexpr int block_shape[] = {{1, 1, 1}};
    extern "C" __device__ constexpr int tile_shape[] = {{1, 1}};
    extern "C" __global__ void g(int M, int N, int K, {scalar} alpha, const {matrices}* A, int lda, const {matrices}* B, int ldb,
                                 {scalar} beta, {matrices}* C, int ldc) {{ C[0] = A[0] * B[0]; }}"""
    with pytest.raises(LaunchError, match=f"^g takes {said}, and the course multiplies no matrices of that: it has float32, "):
        gemm.check(helpers.compile(source), on="cpu")


def test_in_place_the_race_is_told_and_a_is_not_called_unwritten():
    made, random = helpers.compile(PLAIN), np.random.default_rng(0)
    both, b = (random.uniform(-1, 1, (24, 24)).astype(np.float32) for _ in range(2))
    found = gemm.run(made, gemm.Problem(24, 24, 24), on="cpu", arrays=(both, b, both)).findings
    assert found and "uninitialized" not in {finding.kind for finding in found}


SHARED_TILES = """
constexpr int PARTS = 32;
extern "C" __device__ constexpr int block_shape[] = {32, 1, 1};
extern "C" __device__ constexpr int tile_shape[] = {4, 8};
extern "C" __device__ constexpr int persistent[] = {1, PARTS};
__device__ float sums[PARTS][64 * 64];
__device__ int finished[256];
__global__ void shared_tiles(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C, int ldc) {
    const int t = threadIdx.x, across = (N + 7) / 8, tiles = (M + 3) / 4 * across;
    for (int item = blockIdx.x; item < tiles * PARTS; item += gridDim.x) {
        const int tile = item / PARTS, part = item % PARTS, row = tile / across * 4 + t / 8, col = tile % across * 8 + t % 8;
        float sum = 0;
        if (row < M && col < N)
            for (int k = part; k < K; k += PARTS) sum += A[row * lda + k] * B[k * ldb + col];
        if (part) {
            sums[part][tile * 32 + t] = sum;
            __threadfence();
            __syncthreads();
            if (t == 0) atomicAdd(&finished[tile], 1);
            continue;
        }
        if (t == 0)
            while (*(volatile int*)&finished[tile] < PARTS - 1);
        __syncthreads();
        __threadfence();
        for (int other = 1; other < PARTS; other++) sum += sums[other][tile * 32 + t];
        if (row < M && col < N) C[row * ldc + col] = beta == 0 ? alpha * sum : alpha * sum + beta * C[row * ldc + col];
        __syncthreads();
        if (t == 0) finished[tile] = 0;
    }
}
"""


def test_blocks_that_wait_for_each_other_are_all_run_instead_of_a_sample(monkeypatch):
    """Some of them alone wait until the time is over, which was told of a right kernel. Not the time tells them here."""
    kernel, ran = helpers.compile(SHARED_TILES), []
    whole = gemm.run
    for module in (gemm, product_runs):
        monkeypatch.setattr(
            module, "run", lambda kernel, problem, **more: ran.append((problem.m, problem.n)) or whole(kernel, problem, **more)
        )
    report = gemm.check(kernel, gemm.SampledProblem(40, 80, 64, places=((3, 2),)), on="cpu", seconds=10**6)
    assert report.passed, str(report)
    assert ran[0] == (40, 80) and ran[1:] == [(12, 24)] * 2  # the second one: it leaves something in its variables


def test_what_nan_means_is_said_once():
    naive = steps.get("naive").kernel_path.read_text(encoding="utf-8")
    report = gemm.check(helpers.compile(naive.replace("float sum = 0;", 'float sum = nanf("");')), on="cpu", seed=1)
    said = [text for _, text in report.lines() if "yours nan" in text]
    assert len(said) == 3 and ["NaN means" in text for text in said] == [True, False, False]
    assert all("stored it" in text for text in said if "Line" in text)


def test_findings_of_many_shapes_are_collected_for_a_while_and_results_of_all(monkeypatch):
    """The same race in every shape, as from a missing barrier: the later shapes need not say it again, and are compared all the same."""
    racy = helpers.compile(helpers.reference("shared_tile").source.replace("__syncthreads();", ";"))
    monkeypatch.setattr(gemm, "_ENOUGH", 0.0)
    shapes = [Problem(33, 40, 17), Problem(20, 28, 40), Problem(5, 7, 0), Problem(64, 64, 64)]
    report = gemm.check(racy, shapes, on="cpu")
    assert {finding.kind for finding in report.findings} >= {"race"}
    assert report.results_alone == 3 and not report.untried and len(report.cases) == 4
    said = "Of 3 shapes the results alone were compared, without looking for findings, which takes long here. Check again when the findings"
    assert said in str(report) and "Check again" not in str(replace(report, findings=()))
    assert "Of one shape the result alone was compared" in str(replace(report, results_alone=1))
    assert any(case.message for case in report.cases[1:]) and not report.cases[2].message


@pytest.mark.slow
def test_a_run_that_is_slow_with_its_findings_is_not_said_to_be_endless():
    """A race in the ring: the machine takes long to collect what it finds, and the loop ends."""
    source = helpers.reference("async_copy").source
    racy = helpers.compile(source.replace("fetch(stages[free_stage],", "fetch(stages[stage],"))
    shapes = [Problem(257, 255, 4097), Problem(20, 28, 40), Problem(5, 7, 0)]
    report = gemm.check(racy, shapes, on="cpu", seconds=10.0)  # more than a slow machine takes to make its native code
    assert {finding.kind for finding in report.findings} >= {"race"} and not report.endless and not report.untried
    assert report.results_alone == 3 and len(report.cases) == 3 and "elements of C are wrong" in report.cases[0].message
    assert "never end" not in str(report) and "Of 3 shapes the results alone were compared" in str(report)


IN_TURN = """constexpr int SLICES = 4;
extern "C" __device__ constexpr int block_shape[] = {16, 16, 1};
extern "C" __device__ constexpr int tile_shape[] = {16, 16};
extern "C" __device__ constexpr int grid_depth[] = {SLICES};
__device__ int turn[1 << 16];
extern "C" __global__ void in_turn(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C, int ldc) {
    const int slice = blockIdx.z % SLICES, product = blockIdx.z / SLICES;
    const int tile = (product * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    A += (size_t)product * M * lda; B += (size_t)product * K * ldb; C += (size_t)product * M * ldc;
    const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    const bool in = row < M && col < N, first = threadIdx.x + threadIdx.y == 0;
    float sum = 0;
    if (in) for (int k = slice; k < K; k += SLICES) sum += A[(size_t)row * lda + k] * B[(size_t)k * ldb + col];
    if (first) while (atomicAdd(&turn[tile], 0) != slice);
    __syncthreads();
    __threadfence();
    float* c = C + (size_t)row * ldc + col;
    if (in) *c = slice == 0 ? (beta == 0 ? alpha * sum : alpha * sum + beta * *c) : *(volatile float*)c + alpha * sum;
    __threadfence();
    __syncthreads();
    if (first) atomicExch(&turn[tile], slice == SLICES - 1 ? 0 : slice + 1);
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["&turn[0]", "&turn[tile % 64]"], ids=["one_flag_for_all_tiles", "64_flags"])
def test_slices_must_not_go_on_because_of_another_tile(flag):
    """With blocks that keep pace these are right."""
    source = IN_TURN.replace("&turn[tile]", flag)
    assert source != IN_TURN
    report = gemm.check(helpers.compile(source), on="cpu")
    assert not report.passed
    assert "a flag or a counter of its own" in [case.message for case in report.cases if case.message][-1]


@pytest.mark.slow
def test_slices_that_wait_for_later_blocks_are_right_and_it_is_said_where():
    source = IN_TURN.replace("slice = blockIdx.z % SLICES", "slice = SLICES - 1 - blockIdx.z % SLICES")
    report = gemm.check(helpers.compile(source), on="cpu")
    assert report.passed, str(report)
    (remark,) = [case.remark for case in report.cases if case.remark]
    assert "blocks of higher numbers" in remark and "while (atomicAdd" in remark


@pytest.mark.slow
def test_slices_that_take_turns_are_right():
    report = gemm.check(helpers.compile(IN_TURN), on="cpu")
    assert report.passed and not any(case.remark for case in report.cases), str(report)


COARSE = """
constexpr int TALL = 16, WIDE = 16;
extern "C" __device__ constexpr int block_shape[] = {{16, 16, 1}}, tile_shape[] = {{{rows}, {columns}}};
extern "C" __global__ void {cluster} g(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C, int ldc) {{
    int row = blockIdx.y * {rows}, column = blockIdx.x * {columns};
    {edge}
    const int i = row + threadIdx.y, j = column + threadIdx.x;
    if (i >= M || j >= N) return;
    float sum = 0;
    for (int k = 0; k < K; k++) sum += A[i * lda + k] * B[k * ldb + j];
    C[i * ldc + j] = beta == 0 ? alpha * sum : {beta};
}}"""


@pytest.mark.parametrize(
    ("rows", "columns", "cluster", "edge", "said"),
    [
        (8, 16, "", "", "tile_shape says 8 × 16 elements of C, and a block stores to 16 × 16: there are 2 times as many blocks as C needs"),
        (8, 8, "", "", "tile_shape says 8 × 8 elements of C, and a block stores to 16 × 16: there are 4 times as many"),
        (16, 8, "__cluster_dims__(2, 1, 1)", "", "for each, and the 2 blocks of a cluster store to 16 × 24: there are 1.5"),
        (16, 16, "", "", ""),
        (16, 16, "", "row = min(row, max(0, M - 16)); column = min(column, max(0, N - 16));", ""),  # the last block overlaps on purpose
        (16, 16, "__cluster_dims__(1, 2, 1)", "", ""),
    ],
)  # fmt: skip
def test_blocks_that_store_to_more_than_their_tile_are_told(rows, columns, cluster, edge, said):
    source = COARSE.format(rows=rows, columns=columns, cluster=cluster, edge=edge, beta="alpha * sum")
    case = gemm._beyond_tile(helpers.compile(source, arch="sm_90"), 1).case
    assert (case is None) == (not said) and said in (case.remark if case else "")


@pytest.mark.slow
@pytest.mark.parametrize("tile", ["BM / 2, BN", "BM, BN / 2", "BM / 4, BN / 2"])
def test_a_tile_shape_that_is_too_small_makes_no_check_run_large_products_whole(tile, monkeypatch):
    """Their blocks are those of the tile that a block stores to, and every tile of it has to be reached."""
    source = steps.get("bank_conflicts").kernel_source().replace("tile_shape[] = {BM, BN}", f"tile_shape[] = {{{tile}}}")
    kernel, whole = helpers.compile(source), []
    plain = gemm._check_one

    def watched(asked, problem, *args, **options):
        if not isinstance(problem, SampledProblem):
            whole.append((problem.m, problem.n, problem.k))
        return plain(asked, problem, *args, **options)

    monkeypatch.setattr(gemm, "_check_one", watched)
    for seed in (1, 2):
        report = gemm.check(kernel, on="cpu", seed=seed)
        assert report.passed and "and a block stores to 128 × 128: there are" in str(report)
    samples = [problem for problem in gemm.drawn(gemm.as_stored(kernel, 2), 2) if isinstance(problem, SampledProblem)]
    assert samples and not {(problem.m, problem.n, problem.k) for problem in samples}.intersection(whole)
    assert gemm.geometry(gemm.as_stored(kernel, 1)).tile == (128, 128)
    right = helpers.compile(steps.get("bank_conflicts").kernel_source())
    assert gemm.as_stored(right, 1) is right


def test_a_tile_shape_that_is_too_small_hides_no_tile_that_is_left_out():
    head = "    if (blockIdx.y >= 4096) return;\n    float sum = 0"
    halved = PLAIN.replace("float sum = 0", head, 1)
    shape = re.search(r"tile_shape\[\] = \{(\w+), (\w+)\}", halved)
    report = gemm.check(helpers.compile(halved.replace(shape[0], f"tile_shape[] = {{{shape[1]} / 2, {shape[2]}}}")), on="cpu", seed=1)
    assert not report.correct, str(report)
