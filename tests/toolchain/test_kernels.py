"""Which kernel of a file is meant, and as which instance of its template."""

import pytest

import helpers
from helpers.toolchain.kernels import instance, kernels

TEMPLATE = "template <int N> __global__ void k(float* a) { a[0] = N; }\n"
LAUNCHED = {
    "a literal": "void run(float* a) { k<32><<<1, 1>>>(a); }",
    "a constant of main": "int main() { const int BM = 64; k<BM><<<1, 1>>>(a); }",
    "constants of constants": "int main() { constexpr int A = 4, B{A * 8}; k<B><<<1, 1>>>(a); }",
    "a constant of the file": "constexpr int TILE = 8;\nint main() { k<TILE><<<1, 1>>>(a); }",
    "a macro": "#define TILE 8\nint main() { k<TILE><<<1, 1>>>(a); }",
    "a template around it": "template <int M> void run(float* a) { k<M><<<1, 1>>>(a); }\nint main() { run<16>(a); }",
    "a pointer to it": "int main() { auto f = k<32>; f<<<1, 1>>>(a); }",
    "another function's constant of the same name": "void f() { const int N = 1; }\nint main() { const int N = 2; k<N><<<1, 1>>>(a); }",
}
INSTANCES = ["k<32>", "k<64>", "k<((4 * 8))>", "k<TILE>", "k<TILE>", "k<16>", "k<32>", "k<2>"]


@pytest.mark.parametrize(("host", "expected"), list(zip(LAUNCHED.values(), INSTANCES, strict=True)), ids=list(LAUNCHED))
def test_one_instance_needs_no_name(host, expected):
    source = TEMPLATE + host
    assert instance(source, None).replace("((4 * 8))", "(4 * 8)") == expected.replace("((4 * 8))", "(4 * 8)")
    assert helpers.compile(source).name == helpers.compile(source, entry="k").name == "k"


def test_several_instances_are_listed():
    source = TEMPLATE + "int main() { const int B = 4; k<2><<<1, 1>>>(a); k<B><<<1, 1>>>(a); }"
    assert kernels(source)[0].instances == ("k<2>", "k<4>")
    with pytest.raises(helpers.CompileError, match="line 1: .*entry='k<2>'.*launches it as k<2>, k<4>"):
        helpers.compile(source)
    assert "4" in helpers.compile(source, entry="k<B>").ptx  # the launching function's own name for it


def test_several_kernels_are_listed_with_their_instances():
    source = TEMPLATE + "namespace ns {\n__global__ void f() {}\n}\n__global__ void g() {}\nvoid run(float* a) { k<8><<<1, 1>>>(a); }"
    with pytest.raises(helpers.CompileError, match=r"3 kernels \(k, f, g\)(?s:.*)line 1: k<int N>, launched as k<8>"):
        helpers.compile(source)
    assert helpers.compile(source, entry="f").name == helpers.compile(source, entry="ns::f").name == "f"
    assert helpers.compile(source, entry="k").name == "k"


def test_types_and_defaults_are_read_from_the_launch():
    head = "template <typename T, int N = 4> __global__ void k(const T* __restrict__ a, T* b, T c) { b[0] = a[N] + c; }\n"
    host = "int main() { float *d_a, *d_b; k<<<1, 1>>>(d_a, d_b, 1); }"
    assert instance(head + "int main() { float *d; k<float><<<1, 1>>>(d, d, 1); }", None) == "k<float>"
    assert instance(head.replace(", int N = 4", "").replace("[N]", "[1]") + host, None) == "k<float>"
    assert instance("template <int N = 4> __global__ void k() {}\nint main() { k<<<1, 1>>>(); }", None) == "k<>"
    assert instance("template <typename T> __global__ void k(T a) {}\nint main() { k<<<1, 1>>>(make()); }", None) is None


def test_a_macro_for_global_is_a_kernel_and_a_device_function_is_none():
    source = "#define KERNEL __global__ void\n#define DEVICE __device__ inline\nDEVICE int f() { return 1; }\nKERNEL k() { f(); }"
    assert [(item.name, item.line) for item in kernels(source)] == [("k", 4)]


def test_attributes_are_no_names():
    source = "__global__ static void __cluster_dims__(2, 1, 1) __launch_bounds__((128)) k(int a) {}\n__device__ __noinline__ void f() {}"
    assert [item.name for item in kernels(source)] == ["k"]
    nested = "template <class T> __global__ static __launch_bounds__(decltype(size(T{}))::value) void g(T* p) {}"
    assert [item.name for item in kernels(nested)] == ["g"]


def test_a_wrong_guess_is_a_sentence():
    source = TEMPLATE + "void run(float* a) { k<sizes[2]><<<1, 1>>>(a); }"
    with pytest.raises(helpers.CompileError, match="line 1: the kernel is a template"):
        helpers.compile(source)
    with pytest.raises(helpers.CompileError, match="sizes"):
        helpers.compile(source, entry="k<sizes[2]>")


IN_NAMESPACES = """namespace a { __global__ void k(double* x) { x[0] = 3; } }
namespace b { __global__ void k(float* y) { y[0] = 2; } namespace c { __global__ void k(int* z) { z[0] = 4; } } }
"""


def test_kernels_of_one_name_are_told_apart_by_their_namespaces():
    found = {entry: helpers.compile(IN_NAMESPACES, entry) for entry in ("a::k", "b::k", "b::c::k", "c::k", "::b::k")}
    assert [kernel.compiled.parameters[0].name for kernel in found.values()] == ["x", "y", "z", "z", "y"]
    assert found["b::c::k"].for_arch("sm_80").compiled.symbol == found["c::k"].compiled.symbol
    with pytest.raises(helpers.CompileError, match=r"3 kernels are called 'k': .* entry='a::k' or entry='b::c::k' or entry='b::k'"):
        helpers.compile(IN_NAMESPACES, "k")
    with pytest.raises(helpers.CompileError, match="no kernel called 'd::k'"):
        helpers.compile(IN_NAMESPACES, "d::k")
    globally = IN_NAMESPACES + "__global__ void k(long* w) { w[0] = 1; }"
    assert helpers.compile(globally, "k").compiled.parameters[0].name == "w"
    assert helpers.compile('namespace n { extern "C" __global__ void k() {} }', "n::k").name == "k"


def test_overloaded_kernels_cannot_be_told_apart():
    with pytest.raises(helpers.CompileError, match="2 kernels are called 'k' and differ in their parameters alone"):
        helpers.compile("__global__ void k(float* x) {}\n__global__ void k(double* x) {}", "k")
    made = TEMPLATE + "template __global__ void k<1>(float*);\ntemplate __global__ void k<2>(float*);"
    with pytest.raises(helpers.CompileError, match="2 kernels are called 'k': name a template with its arguments"):
        helpers.compile(made, "k")


def test_a_file_that_launches_templates_is_not_bound_to_its_only_other_kernel():
    """What its author measures are the templates; a warm-up beside them is no template."""
    source = TEMPLATE + "__global__ void warm(float* a) { a[0] = 1; }\n"
    with pytest.raises(helpers.CompileError, match=r"2 kernels \(k, warm\)(?s:.*)line 1: k<int N>, launched as k<2>, k<4>"):
        helpers.compile(source + "int main() { warm<<<1, 1>>>(a); k<2><<<1, 1>>>(a); k<4><<<1, 1>>>(a); }")
    assert helpers.compile(source).name == "warm"


def test_an_instance_is_named_in_one_line():
    source = TEMPLATE + "int main() { const int A = 4, B = A *\n        2; k<B><<<1, 1>>>(a); k<1><<<1, 1>>>(a); }"
    assert kernels(source)[0].instances == ("k<(4 * 2)>", "k<1>")


def test_a_file_without_a_kernel_names_the_headers_that_may_have_it():
    with pytest.raises(helpers.CompileError, match="There is no kernel in this source: .* left out: mine.cuh. .*paste it above"):
        helpers.compile('#include "mine.cuh"\nint main() { run(); }')


FILL = "__global__ void fill(float* a) { a[0] = 1; }\n"
REFUSED = {
    "an unknown type": "__global__ void noise(float* a, curandState* s) { a[0] = curand_uniform(&s[0]); }",
    "a missing name": "__global__ void noise(float* a) { a[0] = missing; }",
    "what only it calls": "__device__ float draw(curandState* s) { return curand_uniform(s); }\n__global__ void noise(float* a) { a[0] = draw(0); }",
    "its declaration": "__global__ void noise(curandState* s);\nint main() { noise<<<1, 1>>>(0); fill<<<1, 1>>>(0); }\n"
    "__global__ void noise(curandState* s) {}",
    "its instances": "template <typename T> __global__ void noise(T* a) { a[0] = missing; }\ntemplate __global__ void noise<float>(float*);",
    "a variable of it": "__device__ curandState states[4];\n__global__ void noise(float* a) { a[0] = curand_uniform(states); }",
    "in a namespace": "namespace n { __global__ void noise(Unknown* a) {} }",
}


@pytest.mark.parametrize("refused", REFUSED.values(), ids=list(REFUSED))
def test_a_kernel_that_is_refused_and_not_wanted_is_left_out(refused):
    compiled = helpers.compile(f"{refused}\n{FILL}", "::fill").compiled
    assert compiled.entry == "fill" and any(
        "does not need, and it is left out: " in note and "noise (line" in note for note in compiled.warnings
    )
    with pytest.raises(helpers.CompileError, match="line [12]: error"):
        helpers.compile(f"{refused}\n{FILL}")
    with pytest.raises(helpers.CompileError, match="line [123]: error"):
        helpers.compile(f"{refused}\n{FILL}", "noise<float>" if "template" in refused else "noise")


@pytest.mark.parametrize("used", [
    "__device__ float f(float x) { return missing; }\n__device__ double f(double x) { return x; }\n",
    "#define F(x) f(x)\n__device__ float f(float x) { return missing; }\n__device__ double f(double x) { return x; }\n",
    "struct V { float x; };\n__device__ float operator+(V v, float x) { return missing; }\n__device__ float operator+(V v, double x) { return 1; }\n",
])  # fmt: skip
def test_what_the_wanted_kernel_uses_is_an_error_at_its_line(used):
    """Else another function of that name would be called in silence."""
    call = "F(a[0])" if "F(x)" in used else "V{} + a[0]" if "V {" in used else "f(a[0])"
    with pytest.raises(helpers.CompileError, match=f'line {used.split("missing")[0].count(chr(10)) + 1}: error: identifier "missing"'):
        helpers.compile(f"{used}__global__ void k(float* a) {{ a[0] = {call}; }}\n__global__ void other() {{}}", "k")


def test_constants_for_the_launch_are_never_left_out():
    with pytest.raises(helpers.CompileError, match="line 1: error"):
        helpers.compile(f'extern "C" __device__ constexpr int tile[] = {{BM}};\n{FILL}__global__ void other() {{}}', "fill")


def test_a_kernel_whose_body_is_elsewhere_is_said_to_be():
    for declared in (
        "__global__ void k(float*);",
        "template <typename T> __global__ void k(T*);",
        "namespace n { __global__ void k(int); }",
    ):
        with pytest.raises(
            helpers.CompileError, match="line 2: kernel (n::)?k is only declared here, and its body is in another file: paste it"
        ) as said:
            helpers.compile(f"\n{declared}\nint main() {{ k<<<1, 1>>>(0); }}")
        assert said.value.line == 2
        with pytest.raises(helpers.CompileError, match="line 1: kernel (n::)?k is only declared"):
            helpers.compile(f"{declared}\n__global__ void other() {{}}", "k")
        assert helpers.compile(f"{declared}\n__global__ void other() {{}}").name == "other"
    assert helpers.compile("__global__ void k(float*);\n__global__ void k(float* a) {}").name == "k"
