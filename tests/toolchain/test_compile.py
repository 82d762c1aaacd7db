"""The compiler: what comes out, what it says of mistakes, and that its cache never lies.

Tests of: helpers.toolchain.compiled, helpers.toolchain.signatures
"""

from __future__ import annotations

import errno
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import helpers
from helpers.errors import CompileError, CourseError
from helpers.sim.load import load
from helpers.toolchain import compile as compiler
from helpers.toolchain import installation
from helpers.toolchain.compile import compile_source
from helpers.toolchain.compiled import Parameter

COPY = """__global__ void copy(const float* __restrict__ source, float* target, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) target[i] = source[i];
}
"""


def test_what_comes_out():
    compiled = compile_source(COPY)
    assert compiled.entry == "copy"
    assert ".entry" in compiled.ptx and "ld.global" in compiled.ptx
    assert compiled.cubin[:4] == b"\x7fELF"
    assert 0 < compiled.registers < 64
    assert (compiled.shared_bytes, compiled.spill_stores, compiled.spill_loads) == (0, 0, 0)
    assert compiled.parameters == (
        Parameter("source", "u64", "float", True, 8),
        Parameter("target", "u64", "float", False, 8),
        Parameter("n", "u32", None, False, 4, signed=True),
    )


def test_sass_is_disassembled_with_its_ptx_lines():
    sass = compile_source(COPY).sass
    assert "LDG" in sass and "STG" in sass and "EXIT" in sass
    assert '//## File ".nv_debug_ptx_txt", line' in sass


def test_jumps_through_a_table_are_listed_with_their_targets():
    ways = "".join(f"case {n}: x = x / {n + 3}.0f; a[{n + 7}] = x; break; " for n in range(8))
    sass = compile_source(f"__global__ void k(float* a, int n) {{ float x = a[0]; switch (n) {{ {ways} }} a[1] = x; }}").sass
    assert "BRX" in sass and sass.count("BRX") == sass.count("BRANCH_TARGETS")


def test_public_compile_gives_a_kernel_even_after_the_module_was_imported():
    kernel = helpers.compile(COPY)
    assert callable(helpers.compile)
    assert (kernel.registers, kernel.ptx) == (kernel.compiled.registers, kernel.compiled.ptx)


def test_geometry_is_evaluated_by_the_compiler():
    source = """
template <int N> struct Twice { static constexpr int value = 2 * N; };
constexpr int BM = 24, BN = 3 * BM;
extern "C" __device__ constexpr int block_shape[] = {BN / 8, Twice<4>::value, 1};
extern "C" __device__ constexpr int tile_shape[] = {BM, BN};
__global__ void k(float* p) { p[threadIdx.x] = 1; }
"""
    constants = compile_source(source).constants
    assert constants["block_shape"] == (9, 8, 1)
    assert constants["tile_shape"] == (24, 72)
    assert constants["BM"] == (24,)


def test_shared_and_spills_are_read_from_ptxas():
    source = """__global__ void k(float* p) {
    __shared__ float s[300];
    s[threadIdx.x] = p[threadIdx.x];
    __syncthreads();
    p[threadIdx.x] = s[299 - threadIdx.x];
}"""
    assert compile_source(source).shared_bytes == 1200
    heavy = (
        "float a[64];\n"
        + "".join(f"a[{i}] = p[{i} * n]; " for i in range(64))
        + "".join(f"p[{i}] = a[{i}] * a[{(i * 7) % 64}]; " for i in range(64))
    )
    spilled = compile_source(f"__global__ void __launch_bounds__(1024, 2) k(volatile float* p, int n) {{ {heavy} }}")
    assert spilled.registers <= 32 and spilled.spill_stores > 0 and spilled.spill_loads > 0


def test_entries():
    source = "__global__ void f(int* p) { *p = 1; }\nnamespace ns { __global__ void g(int* p) { *p = 2; } }\n" \
             "template <int N> __global__ void h(int* p) { *p = N; }"  # fmt: skip
    assert compile_source(source, entry="f").symbol == "_Z1fPi"
    assert compile_source(source, entry="g").entry == "g"
    assert compile_source(source, entry="h<3>").entry == "h"
    assert "mov" in compile_source(source, entry="h<3>").ptx
    with pytest.raises(CompileError, match="no kernel called 'nix'.*f, g"):
        compile_source(source, entry="nix")


def test_unknown_architecture():
    with pytest.raises(CompileError, match="sm_90"):
        compile_source(COPY, arch="sm_12")
    with pytest.raises(CompileError, match="knows"):
        compile_source(COPY, arch="hopper")


@pytest.mark.parametrize("arch", ["sm_75", "sm_86", "sm_90a", "sm_100", "sm_120", "compute_80"])
def test_architectures(arch):
    compiled = compile_source(COPY, arch=arch)
    assert bool(compiled.cubin) == arch.startswith("sm")
    assert compiled.parameters[2].name == "n"


@pytest.mark.slow
def test_standard_headers_that_public_kernels_include():
    source = """#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <mma.h>
#include <cooperative_groups.h>
#include <cuda/pipeline>
#include <cuda/barrier>
#include <stdint.h>
#include <stdio.h>
#include <cassert>
__global__ void k(uint32_t* p) { assert(p); printf("%u", *p); *p = std::min(1u, 2u); }"""
    assert compile_source(source).entry == compile_source(source.replace("std::min", "min")).entry == "k"


COOPERATIVE = """
#include <cooperative_groups.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;
__global__ void k(int* p) {
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    p[block.thread_rank()] = cg::exclusive_scan(warp, p[block.thread_rank()], cg::plus<int>());
    MORE
    block.sync();
}"""


def test_cooperative_groups_are_read_without_a_library_that_changes_no_code():
    made = compile_source(COOPERATIVE.replace("MORE", ""))
    whole = compile_source("#include <cuda/std/type_traits>\n#include <cuda/atomic>" + COOPERATIVE.replace("MORE", ""))
    assert "cuda3std" not in made.ptx and "cuda3std" in whole.ptx
    assert [op.opcode for op in load(made.ptx, made.symbol).ops] == [op.opcode for op in load(whole.ptx, whole.symbol).ops]


@pytest.mark.slow
def test_what_cooperative_groups_take_from_that_library_is_there_where_it_is_used():
    source = COOPERATIVE.replace("MORE", "__shared__ cuda::atomic<int> a; cg::inclusive_scan_update(warp, a, p[0], cg::plus<int>());")
    assert "atom" in compile_source(source).ptx
    with pytest.raises(CompileError, match='line 9: .*"nothing"'):
        compile_source(COOPERATIVE.replace("MORE", "nothing();"))


def test_warnings_are_kept():
    warnings = compile_source("__global__ void k(float* p) {\n  int unused;\n  p[0] = 1;\n}").warnings
    assert len(warnings) == 1 and "line 2" in warnings[0] and "unused" in warnings[0]


def test_options_reach_the_compiler():
    source = "__global__ void k(float* p) { p[0] = p[1] / p[2] + TILE; }"
    with pytest.raises(CompileError, match="TILE"):
        compile_source(source)
    plain = compile_source(source, options=("-DTILE=4",))
    fast = compile_source(source, options=("-DTILE=4", "--use_fast_math"))
    assert "div.rn.f32" in plain.ptx and "div.approx.ftz.f32" in fast.ptx


def test_the_front_end_gives_constants_or_what_it_says():
    assert compiler.front_end('constexpr int a = 3; extern "C" __device__ constexpr int b[] = {a, 4};')[1]["b"] == (
        3,
        4,
    )
    messages, constants = compiler.front_end('\nstatic_assert(1 == 2, "so");')
    assert constants == {} and [(m.line, m.message) for m in messages] == [(2, 'static assertion failed with "so"')]


KERNEL = "__global__ void k(float* a) { a[0] = 1; }"


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (f"// one\n{KERNEL}\0 behind it", "line 2: there is a null byte"),
        (f"{KERNEL}\n// \ud800", "line 2: there is half of a character"),
        ("__global__ void k() {\n  printf(“x”);\n}", 'line 2: “ is a character of typography.*knows only "'),
        ("__global__ void k(int* a) { a[0] = 2 – 1; }", "line 1: – is .* knows only -"),
        (f"```cuda\n{KERNEL}\n```", "line 1: ``` is Markdown's mark"),
        (3, "no CUDA source to compile: a source is text, and this is int"),
        (None, "this is NoneType"),
        (KERNEL.encode(), "this is bytes"),
        ("  \n", "it is empty"),
        (Path("scale.cu"), "scale.cu is a path, and a source is text"),
        ("my kernels/scale.cu\n", "my kernels/scale.cu is a file's name and no CUDA source"),
    ],
)
def test_what_no_compiler_can_read_is_a_sentence(source, sentence):
    with pytest.raises(CompileError, match=sentence):
        compile_source(source)


def test_line_ends_and_blanks_of_other_editors_are_read():
    odd = "\ufeff#define ONE \\\r\n 1\r\n__global__ void k(float* a) {\r\n\u00a0 a[0] =\u200b ONE; // “x”\r\n}\r\nint main() {\r\n  run();\r\n}\r\n"
    compiled = compile_source(odd)
    assert compiled.entry == "k" and any("main (line 6)" in text for text in compiled.warnings)
    with pytest.raises(CompileError, match="line 4: error"):
        compile_source(odd.replace("ONE;", "TWO;"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"entry": 3}, "entry=3 is no kernel's name"),
        ({"entry": ""}, "entry='' is no kernel's name"),
        ({"entry": ["k"]}, "is no kernel's name"),
        ({"entry": "k<"}, "entry"),
        ({"options": None}, "options=None are no compiler options"),
        ({"options": 3}, "options=3 are no"),
        ({"options": ["-ftz=true", None]}, "are no compiler options"),
        ({"options": ["-DX=\0"]}, "no text"),
        ({"arch": None}, "arch=None is not an architecture"),
    ],
)
def test_arguments_of_the_wrong_kind_are_a_sentence(arguments, sentence):
    with pytest.raises(CompileError, match=sentence):
        compile_source(KERNEL, **arguments)


def test_a_huge_array_costs_nothing_to_compile():
    compiled = compile_source("__device__ float big[1ll << 36];\n__global__ void k(float* a) { a[0] = big[threadIdx.x]; }")
    assert "big" not in compiled.constants
    with pytest.raises(CourseError, match="take 256.0 GB with `big`, and the machine holds 1 GB"):
        helpers.compile(compiled.source).launch(1, 1, (np.zeros(1, np.float32),), on="cpu")


def test_instructions_of_one_architecture_only_choose_its_target():
    compiled = compile_source('__global__ void k() { asm volatile("wgmma.fence.sync.aligned;"); }')
    assert compiled.arch == "sm_90a" and any("sm_90a" in text for text in compiled.warnings)
    with pytest.raises(CompileError, match="not supported on .target 'sm_80'"):
        compile_source(compiled.source, arch="sm_80")


def test_the_target_that_has_them_is_tried_first_but_by_code_that_asks_for_it(monkeypatch):
    asked, compiler = [], installation.compiler()
    noted = replace(compiler, compile_program=lambda request: asked.append(request.flags[0]) or compiler.compile_program(request))
    monkeypatch.setattr(installation, "compiler", lambda: noted)
    text = '__global__ void k(int* a) {{ {before} asm volatile("wgmma.fence.sync.aligned;"); {after} a[0] = {number}; }}'
    number = int.from_bytes(os.urandom(3))  # nothing that was compiled before
    assert compile_source(text.format(before="", after="", number=number)).arch == "sm_90a"
    assert asked == ["-arch=sm_90a"]
    guarded = text.format(before="\n#ifdef __CUDA_ARCH_FEAT_SM90_ALL\n", after="\n#endif\n", number=number)
    assert compile_source(guarded).arch == "sm_90"
    assert compile_source(f"// no wgmma.fence here\n__global__ void k(int* a) {{ a[0] = {number}; }}").arch == "sm_90"


def test_sixteen_bit_floats_are_told_apart():
    source = (
        "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n__global__ void k(const __half a, half b, __nv_bfloat16 c, __half2 d, short e) {}\n"
        "template <typename T> __global__ void t(T a) {}"
    )
    assert [item.half for item in compile_source(source, "k").parameters] == ["float16", "float16", "bfloat16", "", ""]
    assert [compile_source(source, f"t<{kind}>").parameters[0].half for kind in ("__half", "__nv_bfloat16")] == ["float16", "bfloat16"]


@pytest.mark.parametrize("memory", [True, False], ids=["room in memory", "no room at all"])
def test_a_full_disk_costs_counters_at_most(monkeypatch, tmp_path, memory):
    """The disassembler wants a file."""
    made = tempfile.TemporaryDirectory

    def full(dir=None):
        if dir is None or not memory:
            raise OSError(errno.ENOSPC, "No space left on device")
        return made(dir=tmp_path)

    monkeypatch.setattr("helpers.toolchain.compiled.tempfile.TemporaryDirectory", full)
    monkeypatch.setenv("GEMM_LADDER_HOME", str(tmp_path))  # no machine code is kept there
    x = np.zeros(32, np.float32)
    run = helpers.compile(f"__global__ void full_disk(float* x) {{ x[threadIdx.x] += {1 + memory}; }}").launch(1, 32, (x,), on="cpu")
    assert x.all() and not run.findings
    assert ("smsp__inst_executed.sum" in run.counters) is memory
    assert run.outcome.uncounted == "" if memory else "nvdisasm" in run.outcome.uncounted


def test_a_source_s_own_name_for_a_type_is_looked_through():
    source = """#include <cuda_bf16.h>
using Element = __nv_bfloat16;
typedef Element Input;
extern "C" __global__ void own_names(const Input* A, Element* C) { C[0] = A[0]; }
"""
    assert [parameter.pointer_to for parameter in compile_source(source).parameters] == ["__nv_bfloat16", "__nv_bfloat16"]


@pytest.mark.parametrize(
    "option",
    [
        "-arch=sm_80", "--gpu-architecture=sm_80", "-time=notes.txt", "--fdevice-time-trace=notes.json", "--create-pch=notes.pch",
        "--pch-dir=.", "--pch",
    ],
)  # fmt: skip
def test_options_that_say_something_else_than_the_arguments_or_write_files_are_refused(option, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CompileError, match="write arch=|writes a file"):
        compile_source("__global__ void k() {}", options=[option])
    assert not list(tmp_path.iterdir())


HALF = "#include <cuda_fp16.h>\n"
SAID_BY_THE_SYMBOL = {
    "another branch": (
        "#ifdef D\n__global__ void k(double* x, double a) {}\n#else\n__global__ void k(float* x, float a) {}\n#endif",
        "float",
    ),
    "an alias of another branch": (
        "#ifdef D\ntypedef double T;\n#else\ntypedef float T;\n#endif\n__global__ void k(T* x, T a) {}",
        "float",
    ),
    "an alias of another scope": ("using T = float; struct C { using T = double; }; __global__ void k(T* x, float a) {}", "float"),
    "a macro's type": ("#define T float\n__global__ void k(T* x, T a) {}", "float"),
    "a template's type": (
        "template <typename T> __global__ void k(T* x, T a) {}\ntemplate __global__ void k<float>(float*, float);",
        "float",
    ),
    "a pointer's alias": ("typedef float* P; __global__ void k(P x, float a) {}", "float"),
    "a macro's parameters": ("#define PARAMETERS float* x, float a\n__global__ void k(PARAMETERS) {}", "float"),
    "a macro's kernel": ("#define MAKE(name) __global__ void name(float* x, float a) {}\nMAKE(k)", "float"),
    "a reference": ("__global__ void k(float& x, float a) {}", "float"),
    "a pointer to arrays": ("__global__ void k(float (*x)[4], float a) {}", "float"),
    "a pointer to pointers": ("__global__ void k(float** x, float a) {}", "float*"),
    "a size": ("__global__ void k(size_t* x, float a) {}", "unsigned long"),
}


@pytest.mark.parametrize("case", SAID_BY_THE_SYMBOL)
def test_types_of_parameters_are_the_compiled_ones(case):
    source, pointer_to = SAID_BY_THE_SYMBOL[case]
    x, a = compile_source(source, "k").parameters
    assert (x.ptx_type, x.pointer_to, x.const, a.ptx_type, a.pointer_to) == ("u64", pointer_to, False, "f32", None)
    if "macro's" not in case or case == "a macro's type":
        assert (x.name, a.name) == ("x", "a")


def test_an_option_chooses_the_type():
    source = "#ifdef D\ntypedef double T;\n#else\ntypedef float T;\n#endif\n__global__ void k(T* x) {}"
    assert compile_source(source, options=["-DD"]).parameters[0].pointer_to == "double"
    assert compile_source('extern "C" __global__ void k(ELEMENT* x) {}', options=["-DELEMENT=float"]).parameters[0].pointer_to == "float"


def test_a_pack_has_a_parameter_for_each_of_its_types():
    source = HALF + "template <typename... T> __global__ void k(float* y, const T*... x, int n) {}"
    found = compile_source(source.replace(", int n", ""), "k<float, __half>").parameters
    assert [(item.name, item.pointer_to, item.const) for item in found] == [
        ("y", "float", False), ("x[0]", "float", True), ("x[1]", "__half", True)
    ]  # fmt: skip


def test_names_are_of_the_kernel_that_is_compiled():
    source = "#if 0\n__global__ void k(double* wrong, int n) {}\n#endif\n__global__ void k(float* right, int m) {}"
    assert [item.name for item in compile_source(source).parameters] == ["right", "m"]


EXTERN = {
    "its pointer's alias": ("using P = const float*; extern C void k(P x)", ("float", True)),
    "a macro's type": ("#define T float\nextern C void k(T* x)", ("float", False)),
    "an alias of two meanings": ("#ifdef D\ntypedef double T;\n#else\ntypedef float T;\n#endif\nextern C void k(T* x)", ("void", False)),
    "two branches": ("#ifdef D\nextern C void k(double* x) {}\n#else\nextern C void k(float* x) {}\n#endif\nstruct S", ("void", False)),
    "a macro that makes a pointer": ("#define P(T) T*\nextern C void k(P(float) x)", ("", False)),
    "a size": ("extern C void k(size_t x)", (None, False)),
    "a pointer to pointers": ("extern C void k(float **x)", ("float*", False)),
    "an array": ("extern C void k(const unsigned x[])", ("unsigned int", True)),
    "a pointer to arrays": ("extern C void k(const float (*x)[4])", ("float", True)),
}


@pytest.mark.parametrize("case", EXTERN)
def test_of_an_extern_c_kernel_the_source_says_the_types(case):
    source, expected = EXTERN[case]
    end = ";" if source.endswith("struct S") else ""
    (x,) = compile_source(source.replace("extern C", 'extern "C" __global__') + " {}" + end).parameters
    assert (x.name, x.pointer_to, x.const) == ("x", *expected)


def test_the_branch_of_an_extern_c_kernel_that_fits_its_code_is_taken():
    source = (
        '#ifdef D\nextern "C" __global__ void k(double* x, double a) {}\n#else\nextern "C" __global__ void k(float* y, float b) {}\n#endif'
    )
    assert [(item.name, item.pointer_to) for item in compile_source(source).parameters] == [("y", "float"), ("b", None)]


@pytest.mark.parametrize("option", ["-dlto", "--dlink-time-opt", "-fdevice-syntax-only"])
def test_options_that_make_no_code_are_refused(option):
    with pytest.raises(CompileError, match=f"options: '{option}' makes no code that can run"):
        compile_source("__global__ void k() {}", options=[option])


def test_a_kernel_that_an_if_leaves_out_is_named():
    source = "__global__ void k() {}\n#ifdef D\n__global__ void other() {}\n#endif"
    with pytest.raises(CompileError, match="line 3: other is in the source and in nothing that was compiled: an #if leaves it out"):
        compile_source(source, "other")
    assert compile_source(source, "other", options=["-DD"]).entry == "other"
