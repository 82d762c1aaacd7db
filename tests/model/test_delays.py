"""A kernel that passes time on purpose is told that the model does not know how much."""

import pytest

import helpers
from helpers.course import steps
from helpers.model.delays import delays
from helpers.run import gemm, kernel

SOURCE = """extern "C" __device__ constexpr int block_shape[] = {16, 16, 1};
extern "C" __device__ constexpr int tile_shape[] = {16, 16};
extern "C" __global__ void product(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb,
                                   float beta, float* C, int ldc) {
    int r = blockIdx.y * 16 + threadIdx.y, c = blockIdx.x * 16 + threadIdx.x;
    float s = 0;
    for (int k = 0; k < K; k++) {
        s += A[r * lda + k] * B[k * ldb + c];
        DELAY;
    }
    if (r < M && c < N) C[r * ldc + c] = alpha * s;
}
"""
SLEEPS = "The kernel sleeps (line 9): how long is not in this time."
READS = "The kernel reads a clock (line 9): if it waits for one, that is not in this time."


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("", ""), ("__nanosleep(2000)", SLEEPS), ("__nanosleep(k)", SLEEPS),
        ("long long t = clock64(); while (clock64() - t < 500)", READS), ("unsigned t = clock(); while (clock() - t < 500)", READS),
        ('unsigned long long t; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t)); s += t == 0', READS),
        ("unsigned t = clock(); __nanosleep(20); s += clock() - t == 0", f"{SLEEPS} {READS}"),
    ],
)  # fmt: skip
def test_sleeping_and_clocks_are_told_with_their_line(code, said):
    made = helpers.compile(SOURCE.replace("DELAY", code))
    assert delays(made.compiled) == said
    if "clock64" in code:
        assert said in gemm.count(made, gemm.Problem(64, 64, 64)).predict().error


def test_what_another_kernel_of_the_cell_does_is_not_told():
    other = 'extern "C" __global__ void other(float* x) { __nanosleep(100); x[0] = clock(); }\n'
    for cell in (other + SOURCE, SOURCE + other):
        source = cell.replace("DELAY", "")
        assert not delays(helpers.compile(source, entry="product").compiled)
        assert delays(helpers.compile(source, entry="other").compiled)


def test_no_kernel_of_the_course_waits_for_time():
    for step in steps.STEPS:
        if step.kernel_path:
            assert not delays(kernel.compile(step.kernel_source(), entry=step.entry, arch=step.target()).compiled), step.slug


@pytest.mark.slow
def test_a_kernel_that_feeds_tensor_cores_is_told_too():
    step = steps.get("warp_specialized")
    source = step.kernel_source().replace("wgmma_commit();\n                if", "wgmma_commit(); __nanosleep(2000);\n                if")
    made = kernel.compile(source, entry=step.entry, arch=step.target())
    assert "The kernel sleeps (line " in gemm.count(made, gemm.problem_for(made, 1024, 1024, 1024)).predict().error
