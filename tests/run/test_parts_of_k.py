"""What part of K a wrong product lacks, and where that is told."""

import pytest

import helpers
from helpers.run import gemm

PLAIN = """
extern "C" __device__ constexpr int block_shape[] = {16, 16, 1}, tile_shape[] = {16, 16};
extern "C" __global__ void g(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, float beta, float* C, int ldc) {
    const int row = blockIdx.y * 16 + threadIdx.y;
    const int col = blockIdx.x * 16 + threadIdx.x;
    if (row >= M || col >= N) return;
    float sum = 0;
    for (int k = 0; k < K; k++)
        sum += A[row * lda + k] * B[size_t(k) * ldb + col];
    C[row * ldc + col] = beta == 0 ? alpha * sum : alpha * sum + beta * C[row * ldc + col];
}"""
LOOP = "for (int k = 0; k < K; k++)"


def first_told(source: str) -> str:
    report = gemm.check(helpers.compile(source), on="cpu", seed=1)
    assert not report.passed
    return report.lines()[1][1]


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ((LOOP, "for (int k = 0; k < K / 8 * 8; k++)"), "nothing from k = 32 on where K is 33, from k = 24 on where K is 31 and from k = 16 on where K is 19. These are whole steps of 8 alone: take a last step for what is left of K"),
        ((LOOP, "const int steps = K / 16;\n for (int k = 0; k < 16 * steps; k++)"), "These are whole steps of 16 alone: take a last step for what is left of K, with 0 for what lies beyond K. Look at where the loop over K ends: line 8, “const int steps = K / 16;”"),
        ((LOOP, "for (int k = 0; k < min(K, 48); k++)"), "It adds nothing from k = 48 on where K is 51, 64, 320 or 4,375. Look at where the loop over K ends: line 8"),
        ((LOOP, "for (int k = 0; k < min(K, 4096); k++)"), "nothing from k = 4,096 on where K is 4,"),
        ((LOOP, "for (int k = 0; k < K % 65536; k++)"), "It adds nothing from k = "),
        ((LOOP, "for (int k = 0; k < K - 1; k++)"), "nothing from k = 32 on where K is 33, from k = 30 on where K is 31 and from k = 18 on where K is 19. Look at where the loop over K ends: line 8"),
        ((LOOP, "for (int k = 1; k < K; k++)"), "nothing before k = 1 where K is 1, 19, 31 or 33. Look at where the loop over K begins: line 8, “for (int k = 1;"),
        ((LOOP, "for (int k = 0; k < K; k += 2)"), "It adds only every second k: 0, 2, 4, … Does the loop over K go on by more k than a turn adds? Look at line 8, “for (int k = 0;"),
        ((LOOP, "for (int k = 0; k < K; k += 3)"), "It adds only every third k: 0, 3, 6, …"),
        ((LOOP, "for (int k = 0; k < K; k += 30)"), "It adds only every 30-th k: 0, 30, 60, …"),
        ((LOOP, "for (int k0 = 0; k0 < K; k0 += 8) for (int k = k0; k < min(K, k0 + 4); k++)"), "It adds of every 8 k the first 4 alone: 0 to 3, 8 to 11, …"),
        ((LOOP, "for (int k = 0; k < K; sum = ++k % 16 || k >= K ? sum : 0)"), "That leaves the last step of 16 k alone. Is each added to the sum (+=), and the sum set to 0 before the loop"),
        (("sum +=", "sum ="), "C has the product of the last k alone. Is each added to the sum (+=)"),
        (("sum +=", "sum -= 0 *"), "It adds no product of A and B: C is what it would be with K = 0."),
    ],
)  # fmt: skip
def test_the_k_from_which_nothing_is_added_is_named(edit, said):
    assert edit[0] in PLAIN
    assert said in first_told(PLAIN.replace(*edit))


@pytest.mark.parametrize(
    "edit",
    [
        ("k < K; k++", "k < K; k += 1 + col % 2"),
        ("[row * lda + k] *", "[row * lda + k] * (k % 2 ? 0.5f : 1) *"),
        ("alpha * sum + beta", "sum + beta"),
        ("[row * lda + k]", "[row * lda + k / 2 * 2]"),
        ("k < K", "k <= K"),
        ("if (row >= M || col >= N)", "if (row >= M || col >= N - 1)"),
        (LOOP, "for (int k = 0; k < (row % 2 ? K - 1 : K); k++)"),
        ("sum +=", "sum += k == K - 1 && col % 2 ? 0.5f :"),
    ],
)
def test_other_mistakes_are_not_told_as_parts_of_k(edit):
    assert edit[0] in PLAIN
    said = first_told(PLAIN.replace(*edit))
    assert "adds nothing" not in said and "It adds" not in said and "product of" not in said


@pytest.mark.slow
def test_the_tail_is_named_of_a_kernel_with_a_bias_and_of_tensor_cores():
    fused = helpers.reference("fused_epilogue")
    source = fused.source.replace("k0 < K;", "k0 + BK <= K;")
    assert source != fused.source
    said = str(gemm.check(helpers.compile(source, entry=fused.compiled.entry), gemm.Problem(17, 23, 37, fused=True), on="cpu"))
    assert "It adds nothing from k = 32 on where K is 37." in said
    wmma = helpers.reference("wmma")
    source = wmma.source.replace("k0 < K;", "k0 + BK <= K;")
    assert source != wmma.source
    said = str(gemm.check(helpers.compile(source, entry=wmma.compiled.entry), helpers.run.gemm.problem_for(wmma, 40, 24, 45), on="cpu"))
    assert "It adds nothing from k = 32 on where K is 45." in said
