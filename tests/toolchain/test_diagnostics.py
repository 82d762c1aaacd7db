"""Mistakes are explained at the cell's own line, with what to do."""

import re

import pytest

from helpers.errors import CompileError
from helpers.toolchain.compile import compile_source
from helpers.toolchain.kernels import kernels


@pytest.mark.parametrize(
    ("source", "line", "expected"),
    [
        ("\n__global__ void k(float* p) {\n    p[0] = 1\n}", 4, 'expected a ";"'),
        ("__global__ void k(float* p) {\n\tp[0] = missing;\n}", 2, 'identifier "missing" is undefined'),
        ('constexpr int T = 3;\nstatic_assert(T % 2 == 0, "T must be even");\n__global__ void k() {}', 2, "T must be even"),
        ("#include <cute/tensor.hpp>\n__global__ void k() { cute::print(1); }", 2, "left out: cute/tensor.hpp"),
        ("__global__ void k(float* p) {\n  cudaMalloc(&p, 4);\n}", 2, "This is host code"),
        ("__global__ void k(float* p) {\n  p[threadidx.x] = 0;\n}", 2, "threadIdx"),
        ("float twice(float x) { return 2 * x; }\n__global__ void k(float* p) { p[0] = twice(p[0]); }", 1, "__device__"),
        ('__global__ void k(float* p) {\n  p[0] = 0;\n  asm("nonsense.u32;");\n}', 3, "nonsense"),
        ("__global__ void k(float* p) {\n __shared__ float s[20000]; s[threadIdx.x] = 1; __syncthreads();\n p[0] = s[5]; }",
         2, "48 KB"),
        ("__global__ void k(float* p) {\n  if (p) {\n    p[0] = 0;\n}", 1, "is never closed"),
        ("__device__ int f() { return 1; }", None, "There is no kernel"),
        ("// __global__ void k() {}\n__device__ int f() { return 1; }", None, "There is no kernel"),
        ("__global__ void f() {}\n__global__ void g() {}", None, "2 kernels (f, g)"),
        ("template <int N>\n__global__ void k(float* p) { p[0] = N; }", 2, "entry="),
        ("", None, "empty"),
        ("   \n", None, "empty"),
        ("__global__ void k(int n,\n  float* restrict p) { p[0] = n; }", 2, "CUDA spells it __restrict__"),
        ("__global__ void k(float* p) {\n  register float x = p[0];\n  for (register int i = 0; i < 9; i++) p[i] = x;\n}", 2,
         "(and in line 3)\n      → Leave the word out, here and wherever else it stands: it has no effect"),
        ("__global__ void k(const half* a, int n) {\n  int m = div_ceil(n, 16);\n  half* q = (half*)a; q[m] = q[0];\n}", 1,
         "(and in line 3)\n      → Half precision needs #include <cuda_fp16.h> (or <cuda_bf16.h>) at the top of the cell.\nline 2: error"),
        ("__global__ void k() {\n  __pipeline_commit();\n}", 2, "#include <cuda_pipeline.h>"),
        ("__global__ void k(const __grid_constant__ CUtensorMap m) {}", 1, "#include <cuda.h>"),
        ("__global__ void k(float* p) {\n  bf16 x = 1;\n  p[0] = x;\n}", 2, "using bf16 = __nv_bfloat16;"),
        ("__global__ void k(int* p) {\n  __uint32_t x = 1;\n  p[0] = x;\n}", 2, "#include <cstdint>"),
        ("using namespace nvcuda;\n__global__ void k() {\n  wmma::load_matrix_sync();\n}", 1, "#include <mma.h>"),
        ("__global__ void k() {\n  nvcuda::wmma::load_matrix_sync();\n}", 2, "#include <mma.h>"),
        ("__global__ void k() {\n  /* std */ auto block = cg::this_thread_block();\n}", 2, "#include <cooperative_groups.h>"),
        ('__global__ void k(int* p) {\n  __asm__ __volatile__("mov.u32 %0, %%laneidd;" : "=r"(p[0]));\n}', 2, "Unknown symbol '%laneidd'"),
    ],
)  # fmt: skip
def test_mistakes_are_explained_at_the_cells_own_line(source, line, expected):
    with pytest.raises(CompileError) as caught:
        compile_source(source)
    assert expected in caught.value.message
    assert caught.value.line == line
    if line is not None and "\n" in caught.value.message:
        shown = source.split("\n")[line - 1].expandtabs(4).strip()
        assert shown in caught.value.message


@pytest.mark.parametrize("how", ["", 'extern "C" ', "template <int N> "])
def test_too_much_shared_memory_is_told_at_its_largest_variable(how):
    """With the way that a lesson's cell has, whose check() takes no shared=."""
    size = "N" if "template" in how else "8"
    source = f"""__global__ void other(float* p) {{ __shared__ float tile[2000]; tile[threadIdx.x] = p[1]; __syncthreads(); p[0] = tile[3]; }}
{how}__global__ void k(float* p) {{
    // __shared__ float tile[1];
    __shared__ float small[{size}][64];
    __shared__ __align__(16) float
        tile[{size}][2048];
    small[0][threadIdx.x] = tile[1][threadIdx.x] = p[1]; __syncthreads();
    p[0] = small[0][3] + tile[1][5];
}}"""
    with pytest.raises(CompileError) as caught:
        compile_source(source, entry="k<8>" if "template" in how else "k")
    assert caught.value.line == 6
    assert "67,584 bytes (tile 65,536, small 2,048)" in caught.value.message
    assert 'extern "C" __device__ constexpr int dynamic_shared[] = {BYTES};' in caught.value.message


def test_the_caret_points_at_the_column():
    with pytest.raises(CompileError) as caught:
        compile_source("__global__ void k(float* p) {\n\t\tp[0] = missing;\n}")
    echoed, caret = caught.value.message.split("\n")[-2:]
    assert echoed.index("missing") == caret.index("^")


def test_one_advice_for_several_messages_is_given_once():
    source = "using namespace nvcuda;\n__global__ void k() {\n  wmma::load_matrix_sync();\n  nvcuda::wmma::mma_sync();\n}"
    with pytest.raises(CompileError) as caught:
        compile_source(source)
    assert caught.value.message.count("#include <mma.h>") == 1 and "line 3: error" in caught.value.message


def test_what_nvcc_takes_for_asm_is_asm():
    made = compile_source('__global__ void k(int* p) { __asm__ __volatile__("mov.u32 %0, %%laneid;" : "=r"(p[threadIdx.x])); }')
    assert "%laneid" in made.ptx


def test_many_errors_are_cut_short():
    body = "\n".join(f"  p[0] = missing{i};" for i in range(20))
    with pytest.raises(CompileError, match="and 14 more"):
        compile_source(f"__global__ void k(float* p) {{\n{body}\n}}")


def test_one_missing_name_is_one_error():
    source = "\n".join(f"__global__ void k{i}(float* p) {{ p[TILE] = 0; }}" for i in range(4))
    with pytest.raises(CompileError, match=r"(?s)\(1 error\).*line 1: error.*\(and in line 2, 3, 4\)"):
        compile_source(source)
    with pytest.raises(CompileError, match=r"(?s)\(1 error\).*line 2: error(?!.*and in line)"):  # the others are left out
        compile_source(source, entry="k1")


def test_what_is_wrong_with_the_entry_says_so():
    with pytest.raises(CompileError, match='in the name given as entry: error: identifier "BM" is undefined'):
        compile_source("template <int N> __global__ void k(float* p) { p[N] = 0; }", entry="k<BM>")


@pytest.mark.parametrize(
    ("body", "advice"),
    [
        ("p[0] = __shfl_down(p[0], 1);", "_sync form"),
        ("f<<<1, 1>>>();", "launch the other one from the notebook"),
        ("curandState state;", "nvidia-curand"),
        ("auto twice = [] __device__(float x) { return 2 * x; };", "Delete __device__"),
        ("std::cout << p[0];", "printf"),
        ("std::vector<float> v(3);", "array of fixed size"),
        ("if (p[0] < 0) throw 3;", "use assert"),
        ("float* v = (float*)alloca(8);", "fixed size"),
        ("Unknown* a, float* b", "a type among its parameters is not known"),
    ],
)
def test_what_cuda_took_away_or_is_not_here_is_explained(body, advice):
    kernel = f"__global__ void k({body}) {{}}" if body.startswith("Unknown") else f"__global__ void k(float* p) {{ {body} }}"
    with pytest.raises(CompileError, match=f"(?s){advice}"):
        compile_source(f"__global__ void f() {{}}\n{kernel}", entry="k")


@pytest.mark.parametrize(
    ("before", "parameters", "said"),
    [
        (
            "#define M 4096\n#define N (1 << 12)\n#define TYPE float",
            "int M, int N, TYPE* p",
            "M and N are macros of this file (#define, lines 1, 2)",
        ),
        (
            "// #define M 4096\n  # define K 64",
            "int M, float* p, int K",
            "K is a macro of this file (#define, line 2), and a number stands where",
        ),
        ("#define M 4096\n", "int m, float* p, ", ""),
    ],
)
def test_a_parameter_that_a_macro_names_is_told(before, parameters, said):
    with pytest.raises(CompileError) as caught:
        compile_source(f"{before}\n__global__ void k({parameters}) {{ p[0] = 1; }}")
    assert said in caught.value.message and ("of this file" in caught.value.message) == bool(said)


CHILD = "__global__ void child(float* x) { x[0] = 1; }\n"


@pytest.mark.parametrize("parent", [
    "__global__ void k(float* x) { child<<<1, 1>>>(x); }", "__device__ void f(float* x) {\nchild<<<1, 1>>>(x); }\n__global__ void k(float* x) { f(x); }",
    "__global__ void k(float* x) { child<<<1, 1>>>(x); cudaDeviceSynchronize(); }",
    "#include <cuda_device_runtime_api.h>\n__global__ void k(float* x) { child<<<1, 1>>>(x); }",
])  # fmt: skip
def test_a_kernel_that_starts_kernels_is_told_so(parent):
    with pytest.raises(CompileError, match=r"line \d: (?s:.*)A kernel that starts kernels needs CUDA's device runtime") as said:
        compile_source(CHILD + parent, "k")
    assert "host code" not in said.value.message
    compiled = compile_source(CHILD + parent, "child")
    assert compiled.entry == "child" and any(re.search(r"does not need, .* left out: .*k \(line \d\)", note) for note in compiled.warnings)


LATER = [
    "template <typename T> concept Small = sizeof(T) < 8;\ntemplate <Small T> __device__ T f(T x) { return x; }",
    "template <typename T> requires (sizeof(T) < 8) __device__ T f(T x) { return x; }",
    "template <typename T> __device__ T f(T x) requires (sizeof(T) < 8) { return x; }",
    "template <typename T> __device__ T f(T x) { if constexpr (requires { x + 1; }) return x; else return 0; }",
    "#include <concepts>\ntemplate <std::floating_point T> __device__ T f(T x) { return x; }",
    "__device__ consteval float f(float x) { return x; }",
    "struct Two { unsigned low : 4 = 3; };\n__device__ float f(float x) { Two t; return x + t.low; }",
    "__device__ float f(float x) { return []<int N>(float v) { return v; }.template operator()<1>(x); }",
]


@pytest.mark.parametrize("source", LATER)
def test_what_a_later_standard_has_names_the_option(source):
    source += "\n__global__ void k(float* a) { a[0] = f(1.0f); }"
    with pytest.raises(CompileError, match=r"This is C\+\+20, .*options=\['-std=c\+\+20'\]") as said:
        compile_source(source)
    assert said.value.message.count("This is C++20") == 1
    assert compile_source(source, options=["-std=c++20"]).entry == "k"
    with pytest.raises(CompileError, match="missing") as said:
        compile_source(source.replace("a[0] =", "a[missing] ="), options=["-std=c++20"])
    assert "This is C++20" not in said.value.message


def test_a_constrained_kernel_is_known_by_its_name():
    source = "template <typename T> requires (sizeof(T) < 8) __global__ void k(T* a) { a[0] = 1; }\n__global__ void l() {}"
    assert compile_source(source, "k<float>", options=["-std=c++20"]).entry == "k"
    assert [item.name for item in kernels(source)] == ["k", "l"]


OPERATORS = {"Max": "cuda::maximum<>{}", "Min": "cuda::minimum<>{}", "Sum": "cuda::std::plus<>{}"}


@pytest.mark.parametrize(("old", "new"), OPERATORS.items())
def test_an_operator_that_cub_took_away_is_told_what_replaces_it(old, new):
    source = (
        "#include <cub/cub.cuh>\n__global__ void k(float* a) { using Reduce = cub::BlockReduce<float, 64>;\n"
        "__shared__ Reduce::TempStorage s; float m = Reduce(s).Reduce(a[threadIdx.x], OP); if (!threadIdx.x) a[0] = m; }"
    )
    with pytest.raises(CompileError, match=f"line 3: error: (?s:.*)write .*{re.escape(new)} for cub::{old}") as said:
        compile_source(source.replace("OP", f"cub::{old}()"))
    assert said.value.line == 3
    assert compile_source(source.replace("OP", new)).entry == "k"


def test_curand_is_to_be_installed_and_not_pasted():
    source = "#include <curand_kernel.h>\nOTHER__global__ void k(curandState* s, float* a) { a[0] = curand_uniform(s); }"
    with pytest.raises(CompileError, match="install the package nvidia-curand") as said:
        compile_source(source.replace("OTHER", ""))
    assert "paste it" not in said.value.message
    with pytest.raises(CompileError, match="left out: mine.h. If the kernel uses something of that, paste it"):
        compile_source(source.replace("OTHER", '#include "mine.h"\n'))


@pytest.mark.parametrize(
    "first", ["%%writefile k.cu", "%%cu", "\n  %%cuda_group_save --name k.cu", "!pip install nothing\n%load_ext other"]
)
def test_the_commands_that_a_notebook_s_cell_begins_with_are_skipped(first):
    kernel = "__global__ void k(float* a) { if (!threadIdx.x) a[0] = 1 %\n 3; }"
    for end in ("\n", "\r\n", "\r"):
        assert compile_source(f"{first}\n#include <cuda/pipeline>\n{kernel}".replace("\n", end)).entry == "k"
    with pytest.raises(CompileError) as said:
        compile_source(f"{first}\n{kernel.replace('= 1', '= one')}")
    assert said.value.line == first.count("\n") + 2
    with pytest.raises(CompileError, match="empty"):
        compile_source(first)


@pytest.mark.parametrize("command", ["%%writefile other.cu", "!nvcc k.cu -o k && ./k", "! ./k"])
def test_a_command_of_the_notebook_further_down_is_named(command):
    with pytest.raises(
        CompileError, match=f"line 2: {re.escape(command.split(' o')[0])}.* is a command of the notebook and no CUDA. Delete"
    ) as said:
        compile_source(f"__global__ void k(float* a) {{ a[0] = 1; }}\n{command}\n")
    assert said.value.line == 2
    assert compile_source(f'__global__ void k(float* a) {{ a[0] = 1; }}\nconst char* text = R"(\n{command}\n)";\n').entry == "k"


INLINE = """__device__ void one(int& x) { asm volatile("mov.u32 %0, 1;" : "=r"(x)); }
__device__ void two(int& x) { asm volatile("{ .reg .pred p;"
    "setp.eq.s32 p, %0, 1;"
    "@p mov.u32 %0, 1LAST" : "+r"(x)); }
extern "C" __global__ void f(int* y) {
    int x = 0;
    one(x);
    two(x);
    one(x);
    y[threadIdx.x] = x;
}"""


@pytest.mark.parametrize("last", ["", ";", "; ) }", "]; }", " }"])
def test_assembly_that_cannot_be_read_is_named_by_its_line(last):
    """No semicolon, a bracket that is not closed, or one too many: the assembler stumbles where the next statement begins, or at the end."""
    with pytest.raises(CompileError, match="Each instruction of an asm statement ends with a semicolon") as caught:
        compile_source(INLINE.replace("LAST", last))
    assert caught.value.line == 4 and "gave up" not in caught.value.message


@pytest.mark.parametrize(
    ("statement", "line"),
    [
        ("""asm volatile("cp.async.cg.shared.global [%0], [%1], 4;"
                 :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from));""", 2),
        ("""asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 4;"
        :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from));""", 3),
        ("""asm volatile("cp.async.commit_group;"
        // of four bytes
        "cp.async.cg.shared.global [%0], [%1], 4;"
        :
        : "r"((unsigned)__cvta_generic_to_shared(to)),
          "l"(from));""", 4),
        ("""unsigned at = __cvta_generic_to_shared(to); asm volatile("cp.async.cg.shared.global [%0], [%1], 4;" :: "r"(at), "l"(from));""", 2),
    ],
)  # fmt: skip
def test_what_the_assembler_refuses_is_named_by_the_line_of_its_text(statement, line):
    source = f"""__device__ void copy(float* to, const float* from) {{
    {statement}
}}
extern "C" __global__ void f(const float* x, float* y) {{
    __shared__ float s[32];
    copy(s + threadIdx.x, x + threadIdx.x);
    asm volatile("cp.async.wait_all;" ::: "memory");
    y[threadIdx.x] = s[threadIdx.x ^ 1];
}}"""
    with pytest.raises(CompileError, match="expected to be 16") as caught:
        compile_source(source)
    assert caught.value.line == line and "cp.async.cg.shared.global" in caught.value.message.split("\n")[-1]
