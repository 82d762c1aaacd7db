"""For which shapes a check says that a wrong kernel is right, and what to look at for others."""

import pytest

import helpers
from helpers.course.lesson import LessonKernel
from helpers.course.steps import get
from helpers.run import gemm
from helpers.toolchain.compile import compile_source

TILED = """
constexpr int BM = 32, BN = 16, BK = 8;
extern "C" __device__ constexpr int block_shape[] = {BN, BM, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};
extern "C" __global__ void tiled(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C, int ldc) {
    __shared__ float As[BM][BK], Bs[BK][BN];
    const int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * BM + ty, col = blockIdx.x * BN + tx;
    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += BK) {
        if (tx < BK) As[ty][tx] = row < M && k0 + tx < K ? A[(size_t)row * lda + k0 + tx] : 0;
        if (ty < BK) Bs[ty][tx] = k0 + ty < K && col < N ? B[(size_t)(k0 + ty) * ldb + col] : 0;
        __syncthreads();
        for (int k = 0; k < BK; k++) sum += As[ty][k] * Bs[k][tx];
        __syncthreads();
    }
    if (row < M && col < N) {
        float& c = C[(size_t)row * ldc + col];
        c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
    }
}"""
OF_M = [("row < M && k0 + tx < K ?", "k0 + tx < K ?"), ("if (row < M && col < N) {", "if (col < N) {")]
OF_N = [("k0 + ty < K && col < N ?", "k0 + ty < K ?"), ("col < N) {", "true) {")]
OF_K = [("&& k0 + tx < K ?", "?"), ("k0 + ty < K && col", "col")]
NO_GUARD = [("row < M && k0 + tx < K ? A[(size_t)row * lda + k0 + tx] : 0", "A[(size_t)row * lda + k0 + tx]"),
            ("k0 + ty < K && col < N ? B[(size_t)(k0 + ty) * ldb + col] : 0", "B[(size_t)(k0 + ty) * ldb + col]"),
            ("if (row < M && col < N) {", "{")]  # fmt: skip
NO_FACTORS = [("beta == 0 ? alpha * sum : alpha * sum + beta * c", "sum")]
NO_PITCH = [("* lda", "* K"), ("* ldb", "* N"), ("* ldc", "* N")]


def told(source, edits=()):
    for old, new in edits:
        assert old in source
        source = source.replace(old, new)
    return gemm.check(LessonKernel(compile_source(source)), on="cpu", seed=1)


@pytest.mark.parametrize(
    ("edits", "where", "look_at"),
    [
        (OF_M, "M is a multiple of 32", "the edges that tiles hang over (row < M)"),
        (OF_N, "N is a multiple of 16", "the edges that tiles hang over (column < N)"),
        (OF_K, "K is a multiple of 8", "the edges that tiles hang over (k < K)"),
        (NO_PITCH, "rows of A, B and C have no padding", "leading dimensions (rows are lda, ldb and ldc apart)"),
        ([("alpha * sum", "sum")], "alpha is 1", "the factor alpha"),
        ([("+ beta * c", "")], "beta is 0", "beta · C"),
        (
            NO_GUARD,
            "M is a multiple of 32, N is a multiple of 16 and K is a multiple of 8",
            "the edges that tiles hang over (row < M, column < N and k < K)",
        ),
        (
            [*NO_GUARD, *NO_FACTORS, *NO_PITCH],
            "alpha is 1, beta is 0, rows of A, B and C have no padding, M is a multiple of 32, N is a multiple of 16 and K is a multiple of 8",
            "the edges that tiles hang over (row < M, column < N and k < K), the factor alpha, beta · C and leading dimensions (rows are lda, "
            "ldb and ldc apart)",
        ),
    ],
)
def test_what_a_kernel_asks_of_its_shapes_and_look_at_for_others(edits, where, look_at):
    report = told(TILED, edits)
    said = report.where_right
    assert not report.correct and said.startswith(f"It is right where {where}: 64 × 32 × 16")
    assert said.endswith(f" of this check, without a finding. For others look at {look_at}.") and (None, said) in report.lines()


def test_a_kernel_that_reads_c_where_beta_is_0_is_right_where_it_is_not():
    said = told(TILED, [("beta == 0 ? alpha * sum : alpha", "alpha")]).where_right
    assert said.startswith("It is right where beta is not 0: 64 × 32 × 16, alpha 1, beta 0.75")
    assert said.endswith("For others look at beta = 0, which leaves C unread.")


def test_sums_in_fp16_are_borne_and_said():
    """As most kernels for FP16 in public have them, which no shape of a check would find right."""
    halves = [("float* A", "__half* A"), ("float* B", "__half* B"), ("float* C", "__half* C"), ("float& c", "__half& c"),
              ("float As[BM][BK], Bs", "__half As[BM][BK], Bs"), ("float sum = 0", "__half sum = 0"),
              ("+ k0 + tx] : 0", "+ k0 + tx] : __half(0)"), ("ldb + col] : 0", "ldb + col] : __half(0)"),
              ("sum += As[ty][k] * Bs[k][tx]", "sum = __hfma(As[ty][k], Bs[k][tx], sum)"), ("row < M && col < N) {", "col < N) {"),
              ("beta == 0 ? alpha * sum : alpha * sum + beta * c", "beta == 0 ? alpha * float(sum) : alpha * float(sum) + beta * float(c)")]  # fmt: skip
    said = told("#include <cuda_fp16.h>\n" + TILED, halves).where_right
    assert said.startswith("It is right but for its arithmetic in FP16 where M is a multiple of 32: 64 × 32 × 16, FP16")
    assert said.endswith("For others look at the edges that tiles hang over (row < M).")


def test_a_step_that_the_source_does_not_name_is_found_by_trying():
    edits = [*OF_K, ("BK = 8", "DEPTH = 8"), *((old, old.replace("BK", "DEPTH")) for old in ("As[BM][BK], Bs[BK]", "k0 += BK", "tx < BK", "ty < BK", "k < BK"))]  # fmt: skip
    assert told(TILED, edits).where_right.startswith("It is right where K is a multiple of 8: 64 × 32 × 128")


def test_a_kernel_of_vectors_without_a_way_for_what_is_none():
    report = told(get("vectorized").kernel_source(), [("return ((size_t)matrix % 16 | ld % 4 | cols % 4) == 0;", "return true;")])
    where = "N is a multiple of 4, K is a multiple of 4 and rows begin at multiples of 16 bytes"
    look_at = "N % 4, K % 4 and rows that begin at no multiple of 16 bytes"
    assert report.where_right.startswith(f"It is right where {where}: 256 × 256 × 32")
    assert report.where_right.endswith(f"For others look at {look_at}.")


OF_VECTORS = """
extern "C" __device__ constexpr int block_shape[] = {8, 8, 1}, tile_shape[] = {8, 32};
extern "C" __global__ void vectors(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C, int ldc) {
    const int row = blockIdx.y * 8 + threadIdx.y, col = (blockIdx.x * 8 + threadIdx.x) * 4;
    if (row >= M) return;
    float sum[4] = {};
    for (int k = 0; k < K; k++) {
        float b[4] = {};
        if (col + 4 <= N) *(float4*)b = *(const float4*)&B[(size_t)k * ldb + col];
        else for (int j = 0; j < 4; j++) b[j] = col + j < N ? B[(size_t)k * ldb + col + j] : 0;
        for (int j = 0; j < 4; j++) sum[j] += A[(size_t)row * lda + k] * b[j];
    }
    for (int j = 0; j < 4; j++) {
        if (col + j >= N) break;
        float& c = C[(size_t)row * ldc + col + j];
        c = beta == 0 ? alpha * sum[j] : alpha * sum[j] + beta * c;
    }
}"""


def test_of_a_kernel_with_vectors_of_one_matrix_nothing_else_is_said():
    """An extent is cut with all rows beginning where they did: else those of B would be what is wrong where K is cut."""
    said = told(OF_VECTORS).where_right
    assert said.startswith("It is right where rows begin at multiples of 16 bytes: 16 × 64 × 128")
    assert said.endswith("For others look at rows that begin at no multiple of 16 bytes.")


def test_which_rows_may_have_no_padding_is_said():
    said = told(TILED, NO_PITCH[2:]).where_right
    assert said.startswith("It is right where rows of C have no padding:") and said.endswith(
        "look at leading dimensions (rows are ldc apart)."
    )


PLAIN = """
extern "C" __device__ constexpr int block_shape[] = {%(tile)s, 16, 1};
extern "C" __device__ constexpr int tile_shape[] = {16, %(tile)s};
extern "C" __global__ void plain(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C, int ldc) {
    int i = blockIdx.y * 16 + threadIdx.y, j = blockIdx.x * %(tile)s + threadIdx.x;
    float sum = 0;
    %(loop)s
    C[i * N + j] = %(result)s;
}"""
ROW_BY_ROW = "for (int k = 0; k < N; k++) sum += A[i * N + k] * B[k * N + j];"
DEEP_STEPS = "for (int k = 0; k < K; k += 128) for (int u = 0; u < 128; u++) sum += A[i * K + k + u] * B[(k + u) * N + j];"
PACKED = "rows of A, B and C have no padding"


@pytest.mark.parametrize(
    ("tile", "loop", "result", "where", "tried"),
    [
        (16, ROW_BY_ROW, "sum", f"M = N = K, alpha is 1, beta is 0, {PACKED} and M is a multiple of 16", "128 × 128 × 128"),
        (32, ROW_BY_ROW, "sum", f"M = N = K, alpha is 1, beta is 0, {PACKED} and M is a multiple of 32", "128 × 128 × 128"),
        (64, ROW_BY_ROW, "sum", f"M = N = K, alpha is 1, beta is 0, {PACKED} and M is a multiple of 64", "128 × 128 × 128"),
        (16, ROW_BY_ROW, "alpha * sum + beta * C[i * N + j]", f"beta is not 0, M = N = K, {PACKED} and M is a multiple of 16", "128 × 128 × 128"),
        (16, ROW_BY_ROW.replace("k++)", "k += 128) for (int u = 0; u < 128; u++)").replace("+ k]", "+ k + u]").replace("[k *", "[(k + u) *"), "sum",
         f"M = N = K, alpha is 1, beta is 0, {PACKED} and M is a multiple of 128", "128 × 128 × 128"),
        (16, DEEP_STEPS, "sum", f"alpha is 1, beta is 0, {PACKED}, M is a multiple of 16, N is a multiple of 16 and K is a multiple of 128", "32 × 32 × 128"),
    ],
)  # fmt: skip
def test_squares_and_deep_steps_are_tried(tile, loop, result, where, tried):
    """Both are usual in public: extents that take each other's place, and loops of 128 of K."""
    report = told(PLAIN % {"tile": tile, "loop": loop, "result": result})
    said = report.where_right
    assert not report.correct and said.startswith(f"It is right where {where}: {tried}"), said
    assert ("which of M, N and K stands where" in said) == ("M = N = K" in where)
    assert "the edges that tiles hang over (row < M, column < N and k < K)" in said


def test_a_single_size_is_not_called_a_multiple():
    """Of a kernel whose extents are numbers in its source."""
    said = told(PLAIN % {"tile": 16, "loop": ROW_BY_ROW.replace("N", "128"), "result": "sum"}).where_right
    assert said.startswith(f"It is right where M = N = K, alpha is 1, beta is 0, {PACKED} and M is 128: 128 × 128 × 128"), said


@pytest.mark.parametrize("bound", ["min(K, N)", "min(K, M)"])
def test_what_is_right_for_other_shapes_too_is_not_said_to_want_squares(bound):
    """Of 55 shapes three in four are right: K need only not be the largest."""
    report = told(TILED, [("k0 < K; k0", f"k0 < {bound}; k0")])
    assert not report.correct and "M = N = K" not in report.where_right


def test_what_is_called_a_step_and_is_none_is_not_taken_for_one():
    """With K = 2 the loop would go beyond the matrices; squares are right then, and no better than others."""
    said = told("constexpr int BK = 1;" + PLAIN % {"tile": 16, "loop": DEEP_STEPS, "result": "sum"}).where_right
    assert said.startswith(
        f"It is right where alpha is 1, beta is 0, {PACKED}, M is a multiple of 16, N is a multiple of 16 and K is a multiple of 128"
    )


def test_a_square_that_is_right_by_its_guards_has_no_multiple():
    """It adds nothing up where its matrices are no squares."""
    said = told(TILED, [("k0 < K; k0", "k0 < (M == N && N == K ? K : 0); k0")]).where_right
    assert said.startswith("It is right where M = N = K: 64 × 64 × 64")
    assert said.endswith("For others look at which of M, N and K stands where.")


@pytest.mark.parametrize(
    "edits",
    [
        [],
        [("As[ty][k] * Bs", "As[ty][0] * Bs")],  # wrong everywhere
        [("        __syncthreads();\n    }", "    }")],  # a race everywhere
        [*NO_GUARD, ("k0 < K; k0", "k0 < min(K, 4000); k0")],  # which no demand tells
        [("k0 < K; k0", "k0 < min(K, 4000); k0")],
    ],
)
def test_nothing_is_said_of_a_right_kernel_and_of_what_is_wrong_otherwise(edits):
    assert told(TILED, edits).where_right == ""


def test_problems_of_ones_own_are_not_joined_by_others():
    kernel = helpers.compile(TILED.replace("row < M && col < N) {", "col < N) {"))
    assert gemm.check(kernel, [gemm.Problem(5, 16, 8), gemm.Problem(64, 16, 8)], on="cpu").where_right == ""


def test_a_wrong_kernel_is_told_where_its_shared_memory_lies():
    """Below its cell it is, too, which a kernel from a file has not."""
    edits = [("__shared__ float As[BM][BK], Bs[BK][BN];", "__shared__ __align__(16384) float As[BM][BK]; __shared__ float Bs[BK][BN];")]
    assert not any("alignment" in text for text in told(TILED, edits).remarks), "it is right"
    assert "As asks for an alignment of 16384 bytes and does not get it" in told(TILED, [*edits, *OF_M]).remarks[0]
