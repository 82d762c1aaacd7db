"""clang in NVRTC's place: what macOS compiles with, on any system that has the package."""

import os

import numpy as np
import pytest

import helpers
from helpers import TraceFilter
from helpers.course.steps import get
from helpers.errors import CompileError, CourseError
from helpers.run import gemm
from helpers.toolchain import clang, installation

pytestmark = pytest.mark.skipif(
    clang.program() is None and not os.environ.get("CI"), reason="ziglang is not installed: uv sync --group test"
)


@pytest.fixture(autouse=True)
def by_clang(monkeypatch):
    monkeypatch.setenv(installation.CHOICE, "clang")


@pytest.mark.parametrize("number", [1, 3, 6, 10])
def test_a_step_gives_right_results_without_findings_and_its_counts(number):
    step = get(number)
    kernel = helpers.reference(number)
    problem = gemm.problem_for(kernel, 65, 37, 19)
    arrays = problem.arrays()
    before = tuple(array.copy() for array in arrays)
    run = gemm.run(kernel, problem, on="cpu", arrays=arrays)
    assert not gemm.compare(problem, before, arrays)
    assert run.findings == []
    assert {"block_shape", "tile_shape"} <= set(kernel.compiled.constants)
    traced, in_order = (kernel.gemm(128, trace=seen) for seen in (True, TraceFilter(blocks={0}, math=True)))
    verdicts = [each.judge(in_order if each.of_order else traced) for each in step.expect]
    assert not [str(verdict) for verdict in verdicts if not verdict.ok]


def test_what_only_machine_code_says_is_said_to_be_missing():
    kernel = helpers.reference(3)
    run = kernel.gemm(32)
    assert "Estimate, from PTX" in repr(run)
    assert "Estimate, from PTX" in str(kernel.profile(64))
    assert "Estimate, from PTX" in run.predict().error
    assert str(kernel.occupancy()).startswith("at most")
    assert kernel.shared_bytes == 2 * 32 * 32 * 4
    for missing in (lambda: kernel.registers, lambda: kernel.sass):
        with pytest.raises(CourseError, match="PTX only"):
            missing()


@pytest.mark.parametrize(
    ("source", "line", "said"),
    [
        ("__global__ void k(float* a) {\n  a[0] = b;\n}", 2, 'identifier "b" is undefined'),
        ("__global__ void k(float* a) {\n  a[0] = 1.0f\n}", 2, 'expected a ";"'),
        ("void h() {}\n__global__ void k(float* a) {\n  h();\n}", 3, "Write __device__ in front"),
        ('static_assert(1 == 2, "no way");\n__global__ void k() {}', 1, 'static assertion failed with "no way"'),
        ("__global__ void k(float* a) {\n  a[threadidx.x] = 0;\n}", 2, "CUDA spells it with a capital"),
        ("\n#include <cuda_fp16.h>\n__global__ void k(__half* a) {}", 2, "cuda_fp16.h is one of CUDA's own headers"),
    ],
)
def test_mistakes_are_told_at_their_line_in_the_same_words(source, line, said):
    with pytest.raises(CompileError) as caught:
        helpers.compile(source)
    assert caught.value.line == line
    assert said in caught.value.message


def test_a_whole_file_with_a_template_and_host_code():
    source = """#include <iostream>
#include "../common/helper_cuda.h"
template <typename T, int N> __global__ void flip(T* a) {
    __shared__ T s[N];
    s[threadIdx.x] = a[threadIdx.x];
    __syncthreads();
    float4 v = make_float4(0, 0, 0, 0);
    a[threadIdx.x] = s[N - 1 - threadIdx.x] + v.w + __shfl_xor_sync(0xffffffff, 0.0f, 1);
    if (threadIdx.x == 0) atomicAdd(&a[0], 1.0f), printf("%d\\n", (int)blockDim.x);
}
int main() { std::cout << 1; flip<float, 64><<<1, 64>>>(nullptr); }
"""
    kernel = helpers.compile(source, "flip<float, 64>")
    a = np.arange(64, dtype=np.float32)
    run = kernel.launch(1, 64, (a,), on="cpu")
    assert a[0] == 64 and a[1] == 62 and a[63] == 0
    assert not run.findings
    assert any("Host code is left out: main" in warning for warning in kernel.compiled.warnings)


def test_an_option_that_clang_has_no_word_for_is_refused():
    with pytest.raises(CompileError, match="--maxrregcount=32 is an option of NVRTC"):
        helpers.compile("__global__ void k() {}", options=["--maxrregcount=32"])


@pytest.mark.parametrize(("limit", "value", "said"), [("SECONDS", 0.01, "had not ended"), ("MEMORY", 1, "of memory and was stopped")])
def test_a_compilation_may_ask_for_so_much_and_no_more(monkeypatch, limit, value, said):
    monkeypatch.setattr(clang, limit, value)
    many = "".join(f"__device__ float f{i}(float x) {{ return x * {i}.5f; }}\n" for i in range(3000))
    with pytest.raises(CompileError, match=said):
        helpers.compile(f"{many}__global__ void k(float* a) {{ a[0] = f7(a[1]) + {value}; }}")
