"""Whole .cu files as cells: host code is left out, device code stays where it was."""

import numpy as np
import pytest

import helpers
from helpers.toolchain.host_code import HEADERS, device_part

PROGRAM = r"""#include <algorithm>
#include <cstdio>
#include <vector>
#include <cublas_v2.h>
#include <cuda_runtime.h>
#define CHECK(call) do { cudaError_t e = (call); if (e != cudaSuccess) { printf("{%s\n", cudaGetErrorString(e)); exit(1); } } while (0)
#define DEVICE __device__ __forceinline__
using namespace std;

cublasHandle_t handle;
const uint TILE = 16;

namespace course {
DEVICE float twice(float x) { return 2.0f * x; }
}

/* the kernel: { */
__global__ void double_all(float* a, uint n) {
  if (threadIdx.x < n) a[threadIdx.x] = course::twice(a[threadIdx.x]);  // }
}

template <typename T>
void fill(std::vector<T>& v) { for (auto& x : v) x = T(1); }
float reference(float x);

namespace runner {
int runs = 0, failures = 0;
template <int N> void run() { runs += N; }
template void run<4>();
}
using runner::run;

int main(int argc, char** argv) {
  std::vector<float> h(TILE);
  fill(h);
  float* d;
  CHECK(cudaMalloc(&d, TILE * sizeof(float)));
  double_all<<<1, TILE>>>(d, TILE);
  return 0;
}
"""


def test_a_whole_program_runs_as_a_cell():
    kernel = helpers.compile(PROGRAM)
    a = np.arange(16, dtype=np.float32)
    run = kernel.launch(1, 16, (a, 16), on="cpu")
    assert run.findings == [] and a.tolist() == [2.0 * i for i in range(16)]
    assert any("main (line 33)" in text and "handle (line 10)" in text for text in kernel.compiled.warnings)


def test_host_parts_are_named_and_every_line_stays():
    device, host = device_part(PROGRAM)
    assert [part.name for part in host] == ["handle", "fill", "reference", "runs", "run", "run", "run", "main"]
    assert (host[-1].first, host[-1].last) == (33, 40)
    before, after = PROGRAM.split("\n"), device.split("\n")
    assert [len(line) for line in before] == [len(line) for line in after]
    gone = {number for part in host for number in range(part.first, part.last + 1)}
    assert all(before[i] == after[i] for i in range(len(before)) if i + 1 not in gone)


@pytest.mark.parametrize(
    "source",
    [
        "float f(float x) { return x; }\n__global__ void k(float* a) { a[0] = f(a[0]); }",  # only lacks its __device__
        "template <int N> struct alignas(16) V { float x[N]; };\n__global__ void k(V<4>* a) { a[0].x[0] = 1; }",
        "constexpr int f(int x) { return x + 1; }\n__global__ void k(float* a) { a[f(1)] = 1; }",
        "typedef enum { A, B } Kind;\nenum class Way { here };\n__global__ void k(float* a) { a[0] = A; }",
        "#define KERNEL __global__ void\nKERNEL k(float* a) { a[0] = 1; }",
        "#define G __global__\n#define KERNEL G void\nKERNEL k(float* a) { a[0] = 1; }",
        "__global__ void k(float* a) { a[0] = 1; }\nint main() { {",  # braces do not match: the compiler shall say it
        "__device__ float table[2] = {1, 2};\n__constant__ int n = 3;\n__global__ void k(float* a) { a[0] = table[n]; }",
        "struct Op { __device__ float operator()(float x) const { return x; } };\n__global__ void k(float* a) { a[0] = Op()(1); }",
    ],
)
def test_what_belongs_to_the_device_stays(source):
    assert device_part(source) == (source, ())


def test_a_missing_device_is_still_explained():
    with pytest.raises(helpers.CompileError, match="__device__"):
        helpers.compile("float f(float x) { return x; }\n__global__ void k(float* a) { a[0] = f(a[0]); }")


def test_an_uninstantiated_template_is_told_how_the_host_names_it():
    source = "template <int N> __global__ void k(float* a) { a[0] = N; }\nvoid run(float* a) { k<32><<<1, 1>>>(a); }"
    with pytest.raises(helpers.CompileError, match="k<32>"):
        helpers.compile(source)
    assert helpers.compile(source, entry="k<32>").compiled.entry == "k"


def test_every_stand_in_compiles_with_the_others():
    includes = "".join(f"#include <{name}>\n" for name in HEADERS)
    helpers.compile(includes + "using namespace std;\n__global__ void k(float* a) { a[0] = std::numeric_limits<float>::max(); }")
