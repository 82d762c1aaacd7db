"""What a check says of why a product is wrong."""

import re

import numpy as np
import pytest

import helpers
from helpers.course.exercises import exercise
from helpers.course.lesson import reference
from helpers.run import gemm, likely_causes

PLAIN = """
extern "C" __device__ constexpr int block_shape[] = {32, 8, 1};
extern "C" __device__ constexpr int tile_shape[] = {32, 8};
#define ROW(i, j, ld) ((i) * (ld) + (j))
#define COLUMN(i, j, ld) ((j) * (ld) + (i))
extern "C" __global__ void g(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C, int ldc) {
    const int i = blockIdx.y * 32 + threadIdx.x, j = blockIdx.x * 8 + threadIdx.y;
    if (i >= M || j >= N) return;
    float sum = 0;
    for (int k = 0; k < K; k++) sum += A[OF_A(i, k, lda)] * B[OF_B(k, j, ldb)];
    C[OF_C(i, j, ldc)] = beta == 0 ? alpha * sum : alpha * sum + BETA * C[OF_C(i, j, ldc)];
}"""


def checked(of_a="ROW", of_b="ROW", of_c="ROW", beta="beta", edit=("", "")):
    source = PLAIN.replace("OF_A", of_a).replace("OF_B", of_b).replace("OF_C", of_c).replace("BETA", beta).replace(*edit)
    return gemm.check(helpers.compile(source), on="cpu", seed=1)


@pytest.mark.parametrize(
    ("of_a", "of_b", "of_c", "said"),
    [
        ("COLUMN", "COLUMN", "COLUMN", "computes B × A: it takes rows for columns, as cuBLAS"),
        ("ROW", "COLUMN", "ROW", "computes A × Bᵀ: it takes B by columns, with element (k, n) at k + n * ldb. Here B is K × N"),
        ("COLUMN", "ROW", "ROW", "computes Aᵀ × B: it takes A by columns, with element (i, j) at i + j * ld. Here it lies row by row"),
        ("ROW", "ROW", "COLUMN", "computes (A × B)ᵀ: it takes C by columns"),
        (
            "COLUMN",
            "COLUMN",
            "ROW",
            "computes Aᵀ × Bᵀ: it takes A and B by columns, with element (i, j) at i + j * ld. Here they lie row by row",
        ),
        ("ROW", "COLUMN", "COLUMN", "computes (A × Bᵀ)ᵀ: it takes B and C by columns"),
    ],
)
def test_a_kernel_that_takes_rows_for_columns_is_told_of_which_matrix(of_a, of_b, of_c, said):
    report = checked(of_a, of_b, of_c)
    assert not report.correct and f"Of square matrices it {said}" in str(report)
    assert ("“TN”" in str(report)) == ("takes B by columns" in said) and "reads the padding" not in str(report)


@pytest.mark.parametrize(
    "edits",
    [
        (
            ("float* C, int ldc", "float* C, int ldc, const float* bias"),
            ("= beta == 0 ?", "= beta == 0 ? bias[j] +"),
            (": alpha", ": bias[j] + alpha"),
        ),
        (("{32, 8};", "{31, 33};"), ("{32, 8,", "{31, 33,"), (" * 32 +", " * 31 +"), (" * 8 +", " * 33 +")),
    ],
)
def test_b_by_columns_is_told_of_a_fused_kernel_and_of_any_tile(edits):
    """Columns of B that are K apart, whatever ldb says, read padding too, which is not the cause."""
    source = PLAIN.replace("OF_A", "ROW").replace("B[OF_B(k, j, ldb)]", "B[k + j * K]").replace("OF_C", "ROW").replace("BETA", "beta")
    for old, new in edits:
        assert old in source
        source = source.replace(old, new)
    if "bias" in source:
        source = source.removesuffix("}") + "    if (C[ROW(i, j, ldc)] < 0) C[ROW(i, j, ldc)] = 0;\n}"
    report = str(gemm.check(helpers.compile(source), on="cpu", seed=1))
    assert "it takes B by columns, with element (k, n) at k + n" in report and "Are they ldb apart" not in report


STORE = "beta == 0 ? alpha * sum : alpha * sum + beta * C[ROW(i, j, ldc)]"


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ("alpha * sum", "with beta = 0: add beta · C, of what C was before."),
        ("beta == 0 ? sum : sum + beta * C[ROW(i, j, ldc)]", "with alpha = 1: multiply the sum by alpha."),
        ("beta == 0 ? sum : alpha * sum + beta * C[ROW(i, j, ldc)]", "with alpha = 1: multiply the sum by alpha."),
        ("sum", "with alpha = 1 and beta = 0: store alpha · sum + beta · C, of what C was before."),
        ("beta == 0 ? alpha * sum : alpha * sum + C[ROW(i, j, ldc)]", "with beta = 1: multiply what C was before by beta."),
        ("beta == 0 ? alpha * sum : alpha * (sum + beta * C[ROW(i, j, ldc)])", "with alpha · beta for beta: multiply the sum alone"),
        ("beta == 0 ? alpha * sum : beta * sum + alpha * C[ROW(i, j, ldc)]", "with alpha and beta exchanged."),
    ],
)
def test_a_factor_that_is_left_out_is_named(stored, said):
    report = str(checked(edit=(STORE, stored)))
    assert report.count("C is what it would be") == 1 and f"C is what it would be {said}" in report


@pytest.mark.parametrize(
    "stored",
    [
        "beta == 0 ? alpha * sum : alpha * sum + 2 * beta * C[ROW(i, j, ldc)]",
        "beta == 0 || i == 3 ? alpha * sum : alpha * sum + beta * C[ROW(i, j, ldc)]",
        "K == 0 ? 0 : beta == 0 ? alpha * sum : alpha * sum + beta * C[ROW(i, j, ldc)]",
        "beta == 0 ? alpha * sum : alpha * sum + (beta > -1e-3f && beta < 1e-3f ? 0 : beta) * C[ROW(i, j, ldc)]",
    ],
)
def test_of_a_store_that_is_wrong_otherwise_no_factor_is_said_to_be_left_out(stored):
    report = checked(edit=(STORE, stored))
    assert not report.correct and "C is what it would be" not in str(report)


def test_a_kernel_that_is_wrong_otherwise_is_not_said_to_take_rows_for_columns():
    report = checked(beta="2 * beta")
    assert not report.correct and "Of square matrices" not in str(report)


@pytest.mark.parametrize(
    ("edit", "line"), [(("(i, k, lda)", "(i, k, K)"), 10), (("(k, j, ldb)", "(k, j, N)"), 10), (("k < K", "k <= K"), 10)]
)
def test_the_line_that_reads_padding_is_named(edit, line):
    report = checked(edit=edit)
    which = "B" if "ldb" in edit[0] else "A"
    assert (
        not report.correct
        and f"Line {line}, “for (int k = 0;" in str(report)
        and f"reads the padding of {which}, NaN: element [" in str(report)
    )
    within = "N" if which == "B" else "K"
    assert f"Are they ld{which.lower()} apart there, and does the index stay below {within} within a row?" in str(report)


@pytest.mark.slow
def test_a_wide_load_across_the_end_of_a_row_is_named_where_it_does_harm():
    """With the wrong extent, the last load of a row has padding in it; who leaves that out has another reason for NaN."""
    source = helpers.reference("vectorized").source
    wrong = source.replace("is_whole(A, lda, K)", "is_whole(A, lda, M)")
    kernel = helpers.compile(wrong, entry="vectorized")
    problem = gemm.problem_for(kernel, 20, 29, 23, pad_a=1)
    said = str(gemm.check(kernel, problem, on="cpu"))
    line = source[: source.index("if (whole) return")].count("\n") + 1
    call = source[: source.index("a_next[i] = load4(")].count("\n") + 1
    assert f"Line {line}, “if (whole) return" in said and f"called at line {call}, “a_next[i] = load4(A" in said
    assert "reads 4 elements of A from [0, 20] on, across the end of a row of 23: the others are padding, NaN. Is K, the length" in said
    assert "Where K is no multiple of 4, load the last elements of a row one by one, with 0 beyond its end." in said
    masked = wrong.replace(
        "a_next[i] = load4(A + (size_t)r * lda + k, r < M ? K - k : 0, a_whole);",
        """{
                float4 v = load4(A + (size_t)r * lda + k, r < M ? K - k : 0, a_whole);
                if (k + 1 >= K) v.y = 0; if (k + 2 >= K) v.z = 0; if (k + 3 >= K) v.w = 0;
                a_next[i] = v;
            }""",
    )
    assert masked != wrong and gemm.check(helpers.compile(masked, entry="vectorized"), problem, on="cpu").correct
    masked = masked.replace("out[q] = beta == 0.0f ?", "out[q] = beta != beta ?")
    said = str(gemm.check(helpers.compile(masked, entry="vectorized"), problem, on="cpu"))
    assert "NaN means" in said and "across the end" not in said


@pytest.mark.parametrize(
    ("rows", "columns", "said"),
    [
        (range(64), range(64), ""),
        (range(64), range(56), "store to 64 × 56: let tile_shape say what they compute, or let them compute the rest."),
        (range(64), range(8, 64), "never store to columns 0 to 7: look at how they find the row and the column of what they store."),
        (range(0, 64, 2), range(64), "never store to rows 1, 3, 5 and others: look"),
        (range(4, 64), range(8, 64), "never store to rows 0 to 3 and columns 0 to 7: look"),
        (range(0), range(0), ""),
    ],
)
def test_what_is_left_of_a_tile_is_told_by_its_rows_and_columns(rows, columns, said):
    stored = np.zeros((64, 64), bool)
    stored[np.ix_(rows, columns)] = True
    assert said in likely_causes.left_of_tile(stored) and bool(said) == bool(likely_causes.left_of_tile(stored))


WMMA = """#include <mma.h>
using namespace nvcuda;
extern "C" __device__ constexpr int block_shape[] = {32, 1, 1}, tile_shape[] = {16, 16};
extern "C" __global__ void g(int M, int N, int K, float alpha, const half* A, int lda, const half* B, int ldb, float beta, half* C, int ldc) {
    __shared__ half a[256], b[256];
    __shared__ SUM c[256];
    wmma::fragment<wmma::accumulator, 16, 16, 16, SUM> sum;
    wmma::fill_fragment(sum, SUM(0.0f));
    const int row = blockIdx.y * 16, column = blockIdx.x * 16;
    for (int k = 0; k < K; k += 16) {
        for (int e = threadIdx.x; e < 256; e += 32) {
            const int i = e / 16, j = e % 16;
            a[e] = row + i < M && k + j < K ? A[(row + i) * lda + k + j] : half(0.0f);
            b[e] = k + i < K && column + j < N ? B[(k + i) * ldb + column + j] : half(0.0f);
        }
        __syncwarp();
        wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> x;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> y;
        wmma::load_matrix_sync(x, a, 16);
        wmma::load_matrix_sync(y, b, 16);
        wmma::mma_sync(sum, x, y, sum);
        __syncwarp();
    }
    wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
    __syncwarp();
    for (int e = threadIdx.x; e < 256; e += 32) {
        const int i = row + e / 16, j = column + e % 16;
        if (i < M && j < N) C[i * ldc + j] = half(alpha * float(c[e]) + (beta == 0 ? 0 : BETA * float(C[i * ldc + j])));
    }
}"""


@pytest.mark.parametrize(
    ("sums", "beta", "told"), [("half", "beta", True), ("half", "2 * beta", False), ("float", "2 * beta", False), ("float", "beta", None)]
)
def test_sums_in_fp16_are_named_where_results_are_wrong_by_little(sums, beta, told):
    report = gemm.check(helpers.compile(WMMA.replace("SUM", sums).replace("BETA", beta)), on="cpu", seed=1)
    assert report.correct == (told is None)
    line = WMMA.split("\n").index("        wmma::mma_sync(sum, x, y, sum);") + 1
    assert (f"Line {line}, “wmma::mma_sync(sum, x, y, sum);”, keeps sums in FP16" in str(report)) == bool(told)


BY_THREADS = """#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __device__ constexpr int block_shape[] = {16, 16, 1}, tile_shape[] = {16, 16};
extern "C" __global__ void g(int M, int N, int K, float alpha, const T* A, int lda, const T* B, int ldb, float beta, T* C, int ldc) {
    const int i = blockIdx.y * 16 + threadIdx.y, j = blockIdx.x * 16 + threadIdx.x;
    if (i >= M || j >= N) return;
    SUM sum = 0.0f;
    for (int k = 0; k < K; k++)
        STEP;
    C[i * ldc + j] = T(alpha * float(sum) + (beta == 0 ? 0 : BETA * float(C[i * ldc + j])));
}"""
A, B = "A[i * lda + k]", "B[k * ldb + j]"


@pytest.mark.parametrize(
    ("element", "sums", "step", "said"),
    [
        ("half", "half", f"sum = __hfma({A}, {B}, sum)", "adds up in FP16 (fma.rn.f16), which has 11 bits"),
        ("half", "half", f"sum += {A} * {B}", "adds up in FP16 (add.f16)"),
        ("half", "half", f"sum = half(float(sum) + float({A}) * float({B}))", "rounds to FP16 (cvt.rn.f16.f32)"),
        ("half", "float", f"sum += float({A} * {B})", "multiplies in FP16 (mul.f16)"),
        ("half", "float", f"sum += float({A}) * float({B})", ""),
        ("__nv_bfloat16", "__nv_bfloat16", f"sum = __hfma({A}, {B}, sum)", "adds up in BF16 (fma.rn.bf16), which has 8 bits"),
        (
            "__nv_bfloat16",
            "__nv_bfloat16",
            f"sum = __nv_bfloat16(float(sum) + float({A}) * float({B}))",
            "rounds to BF16 (cvt.rn.bf16.f32)",
        ),
        ("__nv_bfloat16", "float", f"sum += float({A}) * float({B})", ""),
        ("float", "half", f"sum = __hfma(half({A}), half({B}), sum)", "adds up in FP16 (fma.rn.f16)"),
    ],
)
def test_sums_and_products_of_few_bits_outside_of_tensor_cores_are_named(element, sums, step, said):
    source = re.sub(r"\bT\b", element, BY_THREADS).replace("SUM", sums).replace("STEP", step)
    report = gemm.check(helpers.compile(source.replace("BETA", "beta")), on="cpu", seed=1)
    assert report.correct == (not said) and ("Line 9, “" in str(report)) == bool(said) and said in str(report)
    other = str(gemm.check(helpers.compile(source.replace("BETA", "2 * beta")), on="cpu", seed=1))
    assert (" bits, and C is held" in other) == (element == "float")  # there a shape shows it that has no beta


def test_bfloat16_that_is_made_float_by_its_bits_is_taken_back_too():
    step = f"sum = __nv_bfloat16(float(sum) + float({A}) * float({B}))"
    source = re.sub(r"\bT\b", "__nv_bfloat16", BY_THREADS).replace("SUM", "__nv_bfloat16").replace("STEP", step).replace("BETA", "beta")
    assert helpers.compile(source, arch="sm_80").compiled.narrow_arithmetic == ("cvt.rn.bf16.f32", 9)


@pytest.mark.slow
def test_a_bias_without_relu_is_told_what_c_is_held_to():
    fused = helpers.reference("fused_epilogue")
    source = fused.source.replace("return x < 0.0f ? 0.0f : x;", "return x;")
    said = str(gemm.check(helpers.compile(source, entry=fused.compiled.entry), gemm.Problem(17, 23, 19, fused=True), on="cpu"))
    assert "adds the bias and leaves out the ReLU: a kernel that takes a bias is held to max(0, alpha · A · B + beta · C + bias)" in said
    halved = fused.source.replace("return x < 0.0f ? 0.0f : x;", "return 0.5f * x;")
    said = str(gemm.check(helpers.compile(halved, entry=fused.compiled.entry), gemm.Problem(17, 23, 19, fused=True), on="cpu"))
    assert "elements of C are wrong" in said and "leaves out" not in said


def test_a_tile_that_is_turned_within_itself_is_no_matrix_by_columns():
    """Of one tile alone the two would be the same."""
    solution = exercise("turned_tile").solution
    assert solution.count("wmma::col_major") == 1
    kernel = helpers.compile(solution.replace("wmma::col_major", "wmma::row_major"), entry="turned_tile")
    text = str(gemm.check(kernel, on="cpu", seed=1))
    assert "elements of C are wrong" in text and "by columns" not in text


FUSED = """
extern "C" __device__ constexpr int block_shape[] = {16, 16, 1}, tile_shape[] = {16, 16};
extern "C" __global__ void f(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C, int ldc,
                             const float* bias) {
    const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    if (row >= M || col >= N) return;
    float sum = 0;
    for (int k = 0; k < K; k++) sum += A[size_t(row) * lda + k] * B[size_t(k) * ldb + col];
    float& c = C[size_t(row) * ldc + col];
    const float out = beta == 0 ? alpha * sum : alpha * sum + beta * c;
    c = RESULT;
}"""


@pytest.mark.parametrize(("result", "said"), [
    ("(out < 0 ? 0 : out) + bias[col]", ["to what the ReLU has left"]),
    ("out + bias[col]", ["leaves out the ReLU"]),
    ("out + bias[col] < 0 ? out : out + bias[col]", []),
])  # fmt: skip
def test_whether_the_relu_is_left_out_or_comes_too_early_is_not_judged_by_one_element(result, said):
    """The first shape of a check has one."""
    text = str(gemm.check(helpers.compile(FUSED.replace("RESULT", result)), on="cpu", seed=1))
    assert "elements of C are wrong" in text
    assert [known for known in ("leaves out the ReLU", "to what the ReLU has left") if known in text] == said


TILE = """#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __device__ constexpr int block_shape[] = {16, 16, 1}, tile_shape[] = {16, 16};
extern "C" __global__ void g(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C, int ldc) {
    __shared__ OF_A a[16][16];
    __shared__ OF_B b[16][16];
    const int x = threadIdx.x, y = threadIdx.y, i = blockIdx.y * 16 + y, j = blockIdx.x * 16 + x;
    float sum = 0;
    for (int k = 0; k < K; k += 16) {
        a[y][x] = OF_A(i < M && k + x < K ? A[size_t(i) * lda + k + x] : 0.0f);
        b[y][x] = OF_B(j < N && k + y < K ? B[size_t(k + y) * ldb + j] : 0.0f);
        __syncthreads();
        for (int q = 0; q < 16; q++) sum += float(a[y][q]) * float(b[q][x]);
        __syncthreads();
    }
    if (i < M && j < N) C[size_t(i) * ldc + j] = beta == 0 ? alpha * sum : alpha * sum + BETA * C[size_t(i) * ldc + j];
}"""


@pytest.mark.parametrize(
    ("of_a", "of_b", "line", "name"),
    [
        ("half", "half", 10, "FP16 (cvt.rn.f16.f32)"),
        ("float", "half", 11, "FP16 (cvt.rn.f16.f32)"),
        ("__nv_bfloat16", "float", 10, "BF16 (cvt.rn.bf16.f32)"),
        ("float", "float", None, ""),
    ],
)
def test_a_tile_of_rounded_numbers_in_shared_memory_is_named(of_a, of_b, line, name):
    source = TILE.replace("OF_A", of_a).replace("OF_B", of_b)
    report = gemm.check(helpers.compile(source.replace("BETA", "beta")), on="cpu", seed=1)
    assert report.correct == (line is None) and (f"rounds to {name} what shared memory keeps" in str(report)) == bool(line)
    if line:
        said = report.lines()[1][1]
        assert f"Line {line}, “" in said and "Let the tile in shared memory be float." in said
        other = str(gemm.check(helpers.compile(source.replace("BETA", "2 * beta")), gemm.Problem(17, 23, 19, beta=1.0), on="cpu"))
        assert "are wrong" in other and "what shared memory keeps" not in other


def test_a_tile_that_is_half_already_is_not_said_to_be_rounded():
    source = (
        TILE.replace("OF_A", "half")
        .replace("OF_B", "half")
        .replace("const float* A", "const half* A")
        .replace("const float* B", "const half* B")
    )
    source = source.replace("lda + k + x] : 0.0f", "lda + k + x] : half(0.0f)").replace("ldb + j] : 0.0f", "ldb + j] : half(0.0f)")
    kernel = helpers.compile(source.replace("BETA", "beta"))
    assert kernel.compiled.narrow_tile is None and gemm.check(kernel, gemm.problem_for(kernel, 17, 23, 19), on="cpu").correct


def test_floats_that_are_rounded_for_tensor_cores_are_told_what_these_take():
    source = WMMA.replace("SUM", "float").replace("BETA", "beta").replace("const half*", "const float*").replace("half* C", "float* C")
    source = source.replace("lda + k + j] : half(0.0f)", "lda + k + j] : 0.0f").replace(
        "ldb + column + j] : half(0.0f)", "ldb + column + j] : 0.0f"
    )
    report = str(gemm.check(helpers.compile(source.replace("= half(alpha", "= (alpha")), on="cpu", seed=1))
    assert "rounds to FP16 (cvt.rn.f16.f32) what shared memory keeps" in report
    assert "Take A and B in that type (`const half*`), or multiply in tf32" in report


def test_what_ends_at_a_line_is_told_before_what_came_of_the_same_line_elsewhere():
    """A float4 at no multiple of 16 bytes: in 1 × 1 × 1 it reads across the end of A, and C is wrong, which says less."""
    source = PLAIN.replace(
        "for (int k = 0; k < K; k++) sum += A[OF_A(i, k, lda)] * B[OF_B(k, j, ldb)];",
        """for (int k = 0; k < K; k += 4) {
            const float4 a = *reinterpret_cast<const float4*>(&A[i * lda + k]);
            for (int q = 0; q < 4; q++) if (k + q < K) sum += (&a.x)[q] * B[(k + q) * ldb + j];
        }""",
    )
    assert "float4" in source
    report = gemm.check(helpers.compile(source.replace("OF_C", "ROW").replace("BETA", "beta")), on="cpu", seed=1)
    assert "that is not a multiple of 16" in report.lines()[1][1] and any("1 × 1 × 1: " in said for _, said in report.lines()[2:4])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("element", "named", "said"),
    [("__half", "bf16", "multiplies BF16 (mma.sync"), ("__nv_bfloat16", "f16", "multiplies FP16 (mma.sync"), ("__half", "f16", "")],
)
def test_matrix_instructions_of_another_type_than_a_and_b_are_named(element, named, said):
    """The compiler sees registers of 32 bits, whatever lies in them."""
    source = reference("mma_sync").source.replace("Element = __nv_bfloat16", f"Element = {element}").replace('"bf16"', f'"{named}"')
    kernel = helpers.compile(source, entry="mma_sync", arch="sm_80")
    report = gemm.check(kernel, gemm.problem_for(kernel, 64, 64, 64), on="cpu")
    assert report.correct == (not said) and ("name the type of A and B there." in str(report)) == bool(said)
    assert said in str(report) and ("“asm volatile(" in str(report)) == bool(said)
