"""The compiler: what comes out, what it says of mistakes, and that its cache never lies."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import helpers
from helpers.errors import CompileError, CourseError
from helpers.toolchain import compile as compiler
from helpers.toolchain.compile import Parameter, compile_source

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
        Parameter("n", "u32", None, False, 4),
    )


def test_sass_is_disassembled_with_its_ptx_lines():
    sass = compile_source(COPY).sass
    assert "LDG" in sass and "STG" in sass and "EXIT" in sass
    assert '//## File ".nv_debug_ptx_txt", line' in sass


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
         None, "48 KB"),
        ("__device__ int f() { return 1; }", None, "There is no kernel"),
        ("// __global__ void k() {}\n__device__ int f() { return 1; }", None, "There is no kernel"),
        ("__global__ void f() {}\n__global__ void g() {}", None, "2 kernels (f, g)"),
        ("template <int N>\n__global__ void k(float* p) { p[0] = N; }", 2, "entry="),
        ("", None, "empty"),
        ("   \n", None, "empty"),
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


def test_the_caret_points_at_the_column():
    with pytest.raises(CompileError) as caught:
        compile_source("__global__ void k(float* p) {\n\t\tp[0] = missing;\n}")
    echoed, caret = caught.value.message.split("\n")[-2:]
    assert echoed.index("missing") == caret.index("^")


def test_many_errors_are_cut_short():
    body = "\n".join(f"  p[0] = missing{i};" for i in range(20))
    with pytest.raises(CompileError, match="and 14 more"):
        compile_source(f"__global__ void k(float* p) {{\n{body}\n}}")


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


# ------------------------------------------------------------------------------------------------- the cache


def _entries():
    folder = compiler.cache_folder("kernels")
    return {path.name: path for path in folder.iterdir()}


def test_cache_is_used_and_keyed_on_what_matters(monkeypatch):
    source = COPY.replace("copy", "cached_kernel")
    first = compile_source(source)
    monkeypatch.setattr(compiler, "_compile", lambda *args: pytest.fail("compiled again"))
    assert compile_source(source) == first
    monkeypatch.undo()
    assert compile_source(source, arch="sm_80").arch == "sm_80"
    assert compile_source(source + "\n").source == source + "\n"


def test_a_damaged_cache_entry_is_compiled_again():
    source = COPY.replace("copy", "damaged")
    before = set(_entries())
    first = compile_source(source)
    (name,) = {name for name in set(_entries()) - before if name.endswith(".json")}
    for damage in ["", "{}", "not json", json.dumps({"cubin": 3})]:
        _entries()[name].write_text(damage)
        assert compile_source(source) == first


def test_no_cache_folder_is_no_error(monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("a file where a folder should be")
    monkeypatch.setenv("GEMM_LADDER_HOME", str(blocked))
    compiled = compile_source(COPY)
    assert compiled.entry == "copy" and "LDG" in compiled.sass


def test_two_processes_fill_the_cache_at_once(tmp_path):
    program = (
        "from helpers.toolchain.compile import compile_source\n"
        "for i in range(6):\n"
        "    c = compile_source('__global__ void k(float* p) { p[%d] = 1; }' % i)\n"
        "    assert c.entry == 'k' and c.sass\n"
    )
    environment = {**os.environ, "GEMM_LADDER_HOME": str(tmp_path)}
    jobs = [subprocess.Popen([sys.executable, "-c", program], env=environment) for _ in range(3)]
    assert [job.wait(120) for job in jobs] == [0, 0, 0]


# --------------------------------------------------------------------------------------- machines without NVRTC


def test_importing_needs_no_compiler_and_no_gpu():
    program = (
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'cupy': raise ImportError('blocked')\n"
        "sys.meta_path.insert(0, Block())\n"
        "import helpers, helpers.toolchain.compile\n"
        "print(helpers.toolchain.compile.why_not())\n"
        "try: helpers.compile('__global__ void k() {}')\n"
        "except helpers.CourseError as error: print(error.message)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.count("Run the set-up command of the README again") == 2


def test_macos_gets_a_sentence(monkeypatch):
    compiler._nvrtc.cache_clear()
    monkeypatch.setattr(sys, "platform", "darwin")
    try:
        with pytest.raises(CourseError, match="no CUDA compiler for macOS"):
            compile_source(COPY)
        assert "macOS" in compiler.why_not()
    finally:
        compiler._nvrtc.cache_clear()
