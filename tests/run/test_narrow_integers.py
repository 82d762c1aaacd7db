"""A number of 8 or 16 bits is named where it is why a product is wrong, and nowhere else."""

import pytest

import helpers
from helpers.run import gemm, narrow_integers

PLAIN = """
extern "C" __device__ constexpr int block_shape[] = {16, 16, 1}, tile_shape[] = {16, 16};
extern "C" __global__ void g(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C, int ldc) {
    const int row = blockIdx.y * 16 + threadIdx.y;
    const int col = blockIdx.x * 16 + threadIdx.x;
    if (row >= M || col >= N) return;
    float sum = 0;
    for (int k = 0; k < K; k++)
        sum += A[size_t(row) * lda + k] * B[size_t(k) * ldb + col];
    C[size_t(row) * ldc + col] = beta == 0 ? alpha * sum : alpha * sum + beta * C[size_t(row) * ldc + col];
}"""
COUNTER, ROW, COL = "for (int k = 0", "const int row", "const int col"


def checked(*edits: tuple[str, str]):
    source = PLAIN
    for old, new in edits:
        assert old in source
        source = source.replace(old, new)
    return gemm.check(helpers.compile(source), on="cpu", seed=1)


@pytest.mark.parametrize(
    ("edit", "line", "said"),
    [
        ((COUNTER, "for (signed char k = 0"), 8, "gives `k` 8 bits, which hold -128 to 127"),
        ((COUNTER, "for (char k = 0"), 8, "gives `k` 8 bits, which hold -128 to 127"),
        ((ROW, "const unsigned char row"), 4, "gives `row` 8 bits, which hold 0 to 255"),
        ((COL, "const signed char col"), 5, "gives `col` 8 bits, which hold -128 to 127"),
        ((COL, "const uint8_t col"), 5, "gives `col` 8 bits, which hold 0 to 255"),
        ((COL, "const short col"), 5, "gives `col` 16 bits, which hold -32,768 to 32,767"),
        ((ROW, "unsigned short int const row"), 4, "16 bits, which hold 0 to 65,535"),
        ((ROW, "typedef unsigned char index_type; const index_type row"), 4, "8 bits, which hold 0 to 255"),
        (("lda + k]", "lda + (unsigned char)k]"), 9, "has a number of 8 bits, which hold 0 to 255"),
    ],
)  # fmt: skip
def test_the_number_of_few_bits_is_named_by_which_a_product_is_wrong(edit, line, said):
    report = checked(edit)
    first = report.lines()[1][1]
    assert not report.passed and f"Line {line}, “" in first and said in first and "With int there this shape is right: write int." in first
    assert str(report).count("With int there") == 1 and "padding of" not in first


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        ([("float sum = 0;", "float sum = 0; const short kk = (short)K;"), ("k < K", "k < kk")], "With int there this shape"),
        ([("float sum = 0;", "float sum = 0;\n const short kk = K, kept = (short)kk;"), ("k < K", "k < kept")], "gives `kk` 16 bits"),
        (
            [(ROW, "const unsigned char rows"), ("if (row >=", "const unsigned char row = rows;\n if (row >=")],
            "there and in line 6 this shape",
        ),
    ],
)
def test_numbers_of_few_bits_that_are_why_together_are_named(edits, said):
    report = checked(*edits)
    first = report.lines()[1][1]
    assert not report.passed and said in first and "this shape is right: write int." in first


@pytest.mark.parametrize(
    "edit",
    [
        ("beta * C[", "2 * beta * C["),
        ("lda + k]", "K + k]"),
        ("if (row >= M || col >= N) return;", "if (row > M || col >= N) return;"),
        ("k < K", "k <= K"),
    ],
)
def test_numbers_of_few_bits_that_are_enough_are_not_blamed(edit):
    """A thread's place in its block fits 8 bits, whatever else is wrong."""
    small = (("+ threadIdx.y", "+ (unsigned char)threadIdx.y"), ("float sum", "const signed char t = threadIdx.x; float sum"))
    assert checked(*small).passed
    report = checked(*small, edit)
    assert not report.passed and "With int there" not in str(report)


def test_pointers_and_arrays_of_bytes_are_no_numbers():
    source = "unsigned char* a; const char *b; __shared__ char c[4]; unsigned short const& d = e; char f; (short)g; // char h"
    assert [place["name"] for place in narrow_integers._places(source)] == ["char", "short"]
