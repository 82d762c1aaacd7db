"""Whole .cu files as cells: host code is left out, device code stays where it was.

Tests of: helpers.toolchain.attempts, helpers.toolchain.headers
"""

import numpy as np
import pytest

import helpers
from helpers.toolchain.headers import HEADERS
from helpers.toolchain.host_code import first_guess, parts, without

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
    host = [part for part in parts(PROGRAM) if part in first_guess(PROGRAM, parts(PROGRAM))]
    device = without(PROGRAM, host)
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
    assert first_guess(source, parts(source)) == frozenset()


def test_a_missing_device_is_still_explained():
    with pytest.raises(helpers.CompileError, match="__device__"):
        helpers.compile("float f(float x) { return x; }\n__global__ void k(float* a) { a[0] = f(a[0]); }")


def test_every_stand_in_compiles_with_the_others():
    includes = "".join(f"#include <{name}>\n" for name in HEADERS)
    helpers.compile(includes + "using namespace std;\n__global__ void k(float* a) { a[0] = std::numeric_limits<float>::max(); }")


KERNEL = "__global__ void k(float* a, int n) {{ {body} }}\n"


@pytest.mark.parametrize(
    ("around", "body"),
    [
        ('const char* names[] = {"a", "{"};\nint n = 1024;\nfloat h[4];', "a[n] = 1;"),  # a parameter of the same name
        ("struct Timer { cudaEvent_t e; Timer() { cudaEventCreate(&e); } float n() { return 1; } };", "a[0] = n;"),
        ("constexpr int up(int a, int b) { return (a + b - 1) / b; }", "__shared__ float s[up(5, 4)]; s[0] = a[0]; a[1] = s[0];"),
        ("class Pair { int x; public: Pair(int v) : x(v) { use(v); } };\n__device__ int get() { return 1; }", "a[0] = get();"),
        ("struct V { float* p; V(int n) { cudaMalloc(&p, n); } __device__ float at(int i) { return p[i]; } };", "a[0] = n;"),
        ("template <typename T> struct Op { T f(T a) { return std::sort(a); } __device__ T g(T a) { return a; } };", "a[0] = Op<float>().g(1);"),
        ("#include <set>\n#include <deque>\nstd::set<int> done;\nusing std::set;\nusing Queue = std::deque<int>;", "a[0] = 1;"),
        ("#include <thrust/sort.h>\n#include <cub/device/device_reduce.cuh>\nthrust::host_vector<int> v;", "a[0] = 1;"),
        ("#define BIND(f) torch::Tensor f##_t(torch::Tensor a) { return f(a); }\nBIND(sum)\nBIND(max)", "a[0] = 1;"),
        ("#ifdef DOUBLE\nvoid run(double* a) {\n#else\nvoid run(float* a) {\n#endif\n  cudaFree(a);\n}", "a[0] = 1;"),
        ("#if 0\nvoid gone() {\n#endif", "a[0] = 1;"),
        ("int size() {\n#define SIZE 3\n return std::max(SIZE, 4); }", "a[0] = SIZE;"),
        ("double timed(void (*f)(float*), int n = 10) { cudaFree(0); return n; }\nint main() {}", "a[0] = 1;"),
        ("void run(int n = (1 << 20), dim3 g = dim3(1, (2))) { cudaFree(0); }\nint main() {}", "a[0] = 1;"),
        ("template <int N, bool odd = (N >= 2)> void run(float* d) { cudaFree(d); }\nint main() {}", "a[0] = 1;"),
        ("struct T { int n; T() : n{} { cudaFree(0); } ~T() { cudaFree(0); } };\nint main() { return EXIT_SUCCESS; }", "a[0] = n;"),
        ("class B { float* p; int n; public: explicit B(int k) : p{nullptr}, n{k} { cudaFree(p); } int get() { return n; } };", "a[0] = n;"),
        ("struct V { float x, y; __device__ V(float a) noexcept : x{a}, y{a < 1 ? a : 2} {} __device__ V g() { return {x}; } };\nint main() { exit(0); }",
         "a[0] = n;"),
        ("template <class T> struct V : T { __device__ V() : T{}, std::plus<T>{} {} __device__ int g() { return 1; } };\nint main() { exit(0); }",
         "a[0] = n;"),
        ("struct alignas(8) V { int x; };\nstruct alignas(8) W : V { int y; };\nint main() { exit(0); }", "W w{}; a[0] = w.y;"),
        ("struct Node* make(int n) { return new Node{n}; }\n__device__ int two() { return 2; }", "a[0] = two();"),
    ],
)  # fmt: skip
def test_host_code_beside_a_kernel(around, body):
    assert helpers.compile(f"{around}\n{KERNEL.format(body=body)}").name == "k"


@pytest.mark.parametrize(
    ("around", "body", "sentence"),
    [
        ("float f(float x) { return x; }", "a[0] = f(a[0]);", "line 1.*Write __device__|Write __global__"),
        ("int rows = 4;", "a[0] = rows;", "line 1: error: .*__device__"),
        ("struct V { int x; V() { x = 5; } };", "V v; a[0] = v.x;", "line 1: error"),  # no silent implicit constructor
        ("struct V { int x; int get() { return x; } };", "V v{1}; a[0] = v.get();", "line 1: error"),
        ("constexpr int f(int x) { return x; }\nint g(int x) { return x; }", "a[f(1)] = g(2);", r"\(1 error\)[^~]*line 2: error"),
        ("std::vector<int> n;", "a[0] = missing + n;", r"\(1 error\)[^~]*\"missing\""),
        ("using namespace nvcuda;", "wmma::mem_row_major;", "line 1: error: name must be a namespace name"),
    ],
)  # fmt: skip
def test_mistakes_in_device_code_are_not_hidden(around, body, sentence):
    with pytest.raises(helpers.CompileError, match=f"(?s){sentence}"):
        helpers.compile(f"{around}\n{KERNEL.format(body=body)}")


OPENED = "#define BEGIN namespace a {\nBEGIN\n"  # a brace that only the macro has
HOSTS = "struct Timer { Timer() { cudaEventCreate(0); } };\nint main() { cudaFree(0); return EXIT_SUCCESS; }"


def test_where_the_braces_cannot_be_read_is_said_and_not_what_the_host_code_lacks():
    with pytest.raises(helpers.CompileError) as caught:
        helpers.compile(f"{OPENED}{KERNEL.format(body='a[0] = 1;')}}}\n{HOSTS}")
    assert caught.value.line == 4 and "line 4: from here on the braces do not match" in caught.value.message
    assert "error:" not in caught.value.message and "-default-device" not in caught.value.message
    with pytest.raises(helpers.CompileError, match=r"\(1 error\)[^~]*line 3: error: [^~]*\"missing\"[^~]*line 4: from here on"):
        helpers.compile(f"{OPENED}{KERNEL.format(body='a[0] = missing;')}}}\n{HOSTS}")
    assert helpers.compile(f"{OPENED}{KERNEL.format(body='a[0] = 1;')}}}\n").name == "k"


@pytest.mark.parametrize(
    "value",
    "INFINITY NAN M_PI INT_MAX std::ceil(a[1]) std::sqrt(a[1]) std::max(a[1],a[2]) std::abs(a[1]) std::is_same<int,int>::value std::numeric_limits<int>::max() std::enable_if_t<true,int>(1)".split(),
)
def test_what_nvcc_gives_every_file(value):
    helpers.compile(KERNEL.format(body=f"a[0] = {value};"))


@pytest.mark.parametrize(
    "name", ["driver_functions", "channel_descriptor", "cudaProfilerTypedefs", "execinfo", "winsock2", "cuda_profiler_api"]
)
def test_a_header_of_the_host_alone_is_nothing_to_a_kernel(name):
    kernel = helpers.compile(f"#include <{name}.h>\n__global__ void k(cudaPitchedPtr p, float* a) {{ a[0] = p.pitch; }}")
    assert kernel.compiled.warnings == ()


def test_headers_that_are_nowhere_are_left_out_and_named():
    source = '#include "../common/book.h"\n#include <utils.cuh>\n#include <vector>\n' + KERNEL.format(body="a[0] = VALUE;")
    assert any("../common/book.h, utils.cuh" in text for text in helpers.compile(source.replace("VALUE", "1")).compiled.warnings)
    with pytest.raises(helpers.CompileError, match="(?s)left out: ../common/book.h, utils.cuh.*paste.*WARP_SIZE"):
        helpers.compile(source.replace("VALUE", "WARP_SIZE"))
    template = source.replace("__global__", "template <class T> __global__")
    with pytest.raises(helpers.CompileError, match=r"(?s)left out: ../common/book.h, utils.cuh\..*paste.*Name one with its arguments"):
        helpers.compile(template)


def test_no_warning_about_what_only_the_host_uses():
    assert not any(
        "never referenced" in text for text in helpers.compile("const int sizes[] = {1, 2};\n" + KERNEL.format(body="")).compiled.warnings
    )


RAW = """const char* other = R"cuda(
#include <nowhere.h>
#define SECRET 1
extern "C" __global__ void fake(int a) { " // )" }
)cuda";
__global__ void k(float* x) { x[threadIdx.x] *= 2; }
int main() { puts(other); puts(R"(one
__global__ void two() {)"); }
"""


def test_code_in_a_raw_string_is_a_string():
    compiled = helpers.compile(RAW).compiled
    assert (compiled.entry, [item.name for item in compiled.parameters]) == ("k", ["x"])
    assert not any("nowhere" in text for text in compiled.warnings)
    assert "SECRET" not in without(RAW, parts(RAW)) and "nowhere" not in without(RAW, parts(RAW))
    with pytest.raises(helpers.CompileError, match="line 6: error"):
        helpers.compile(RAW.replace("*= 2", "*= two"))


NVCC = """#ifdef __NVCC__
#define HD __host__ __device__
#else
#define HD
#endif
struct Times { float factor; HD float operator()(float value) const { return value * factor; } };
__global__ void k(float* x) { Times t{2}; x[threadIdx.x] = t(x[threadIdx.x]); }
"""


@pytest.mark.parametrize(
    "header", ["", "cuda/std/complex", "cuda/barrier", "cooperative_groups.h", "cub/block/block_reduce.cuh", "cuda_fp8.h"]
)
def test_a_source_that_asks_for_nvcc_finds_it(header):
    source = f"#include <{header}>\n{NVCC}" if header else NVCC
    x = np.ones(32, np.float32)
    helpers.compile(source).launch(1, 32, [x], on="cpu")
    assert (x == 2).all()


@pytest.mark.parametrize("where", ["__global__ void k(float* x) { LAMBDA }", "#define KERNEL __global__ void\nKERNEL k(float* x) {\n\nLAMBDA }",
                                   "struct F { float* x;\n__device__ void run() { LAMBDA } };\n__global__ void k(float* x) { F{x}.run(); }",
                                   "template <int N> __device__ void f(float* x) { LAMBDA }\n__global__ void k(float* x) { f<1>(x); }"])  # fmt: skip
def test_a_generic_lambda_in_device_code_is_device_code(where):
    x = np.ones(32, np.float32)
    source = where.replace("LAMBDA", "auto f = [](auto a, auto b) { return a * b; };\nx[threadIdx.x] = f(x[threadIdx.x], 2);")
    helpers.compile(source, "k").launch(1, 32, [x], on="cpu")
    assert (x == 2).all()
    with pytest.raises(helpers.CompileError, match="__device__ in front of a function"):
        helpers.compile(source + "\nfloat twice(float v) { return 2 * v; }\n__global__ void l(float* x) { x[0] = twice(x[0]); }", "l")


def test_a_string_that_goes_on_in_the_next_line_does_not_end_its_macro():
    source = '#define CHECK(x) do { if (x) printf("failed \\\n here: %d\\n", x); } while (0)\n' + KERNEL.format(body="a[0] = 1;")
    assert helpers.compile(source + "\nvoid run(int* a) { CHECK(cudaMalloc(&a, 4)); }").compiled.warnings == (
        "Host code is left out: run (line 5). The course allocates, copies and launches.",
    )


def test_a_reader_s_own_header_may_have_host_code_and_the_libraries_it_needs(tmp_path):
    (tmp_path / "mine.cuh").write_text(
        "#pragma once\n#include <cublas_v2.h>\n#include <torch/types.h>\ninline int cdiv(int a, int b) { return (a + b - 1) / b; }\n"
        "void launch(float* a);\n"
    )
    source = '#include "mine.cuh"\n' + KERNEL.format(body="a[0] = cdiv(7, 2);")
    assert helpers.compile(source, options=[f"-I{tmp_path}"]).name == "k"


def test_a_library_that_is_there_is_not_replaced(tmp_path):
    (tmp_path / "cublas_v2.h").write_text("#pragma once\n#define FOUND 7\n")
    (tmp_path / "mine.cuh").write_text("#pragma once\n#include <cublas_v2.h>\n")
    for header in ("mine.cuh", "cublas_v2.h"):
        source = f'#include "{header}"\n' + KERNEL.format(body="a[0] = FOUND;")
        assert helpers.compile(source, options=[f"-I{tmp_path}"]).name == "k"
