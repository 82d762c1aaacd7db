"""Launching: results in place, and every impossible launch refused with a sentence before anything runs."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import helpers
from helpers.course.lesson import LessonKernel
from helpers.errors import CourseError, LaunchError, RunError
from helpers.run import gpu
from helpers.run.kernel import _OF_CELLS, Kernel, place
from helpers.sim import launch

SCALE = """
__global__ void scale(const float* x, float* y, int n, float factor) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = factor * x[i];
}
"""


@pytest.fixture(scope="module")
def scale():
    return helpers.compile(SCALE)


def test_arrays_are_changed_in_place(scale):
    x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    run = scale.launch(4, 32, [x, y, 100, 2.5], on="cpu")
    np.testing.assert_array_equal(y, 2.5 * x)
    assert (run.on, run.grid, run.block, run.milliseconds) == ("cpu", (4, 1, 1), (32, 1, 1), None)
    assert run.findings == [] and not run.sampled
    assert run.counters["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == 4
    assert sum(line.get("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", 0) for line in run.by_line.values()) == 13


def test_scalars_are_converted_by_the_signature(scale):
    for n, factor in [(np.int64(7), np.float64(3)), (7.0, 3), (np.array(7), np.array(3.0)), (True, False)]:
        x, y = np.ones(8, np.float32), np.zeros(8, np.float32)
        scale.launch(1, 32, [x, y, n, factor], on="cpu")
        assert y.tolist() == [float(factor)] * int(n) + [0.0] * (8 - int(n))


def test_a_negative_int_arrives_as_it_is(scale):
    x, y = np.ones(8, np.float32), np.zeros(8, np.float32)
    scale.launch(1, 32, [x, y, -1, 2.0], on="cpu")
    assert not y.any()


@pytest.mark.parametrize(
    ("grid", "block", "message"),
    [
        (1, 1025, "1025 threads is too large"),
        (1, (0x41800000, 0x41800000, 0x3F800000), "These are the bits of floats: declare the array as int."),
        (1, (32, 33), "32 × 33 × 1 = 1056"),
        (1, (1, 1, 65), "block.z = 65"),
        ((1, 65536), 32, "grid.y = 65536"),
        (0, 32, "at least 1"),
        (1, 0, "at least 1"),
        (-1, 32, "at least 1"),
        ("4", 32, "whole numbers"),
        (1.5, 32, "whole numbers"),
        ((1, 1, 1, 1), 32, "whole numbers"),
        (1, (), "whole numbers"),
    ],
)
def test_impossible_launches(scale, grid, block, message):
    x = np.ones(8, np.float32)
    with pytest.raises(LaunchError, match=message):
        scale.launch(grid, block, [x, x.copy(), 8, 1.0], on="cpu")


@pytest.mark.parametrize(
    ("promise", "block", "message"),
    [
        ("__launch_bounds__(32)", 64, "whose __launch_bounds__ promise at most 32"),
        ("__launch_bounds__(64, 2)", (32, 2, 2), "promise at most 64"),
        ("__launch_bounds__(64)", (32, 2), None),
        ("__launch_bounds__(64)", 31, None),
        ("__block_size__((32, 2, 1))", (64, 1, 1), r"declares blocks of \(32, 2, 1\) threads"),
        ("__block_size__((32, 2, 1))", (32, 2, 1), None),
    ],
)
def test_a_kernel_s_own_bounds_hold(promise, block, message):
    kernel = helpers.compile(f'extern "C" __global__ void {promise} f(float* x) {{ x[0] = 1; }}')
    with pytest.raises(LaunchError, match=message) if message else contextlib.nullcontext():
        kernel.launch(1, block, [np.zeros(1, np.float32)], on="cpu")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a[:3], r"takes 4 arguments \(x, y, n, factor\), and 3 were given"),
        (lambda a: [*a, 1], "5 were given"),
        (lambda a: [a[0].astype(np.float64), *a[1:]], "points to float, and the array holds float64.*astype copies: give the copy a name"),
        (lambda a: [np.ones((8, 8), np.float32)[:, 0], *a[1:]], "not contiguous.*ascontiguousarray"),
        (lambda a: [np.asfortranarray(np.ones((8, 8), np.float32)), *a[1:]], "not contiguous"),
        (lambda a: [3, *a[1:]], "is a pointer"),
        (lambda a: [[1.0, 2.0], *a[1:]], "is a pointer"),
        (lambda a: [*a[:2], a[0], 1.0], "is a single value"),
        (lambda a: [*a[:2], 2.5, 1.0], "whole number"),
        (lambda a: [*a[:2], 2**40, 1.0], "does not fit"),
        (lambda a: [*a[:2], 2**31, 1.0], "with a sign: it ends at 2147483647, and 2147483648 does not fit"),
        (lambda a: [*a[:2], 2**32 - 1, 1.0], "does not fit"),
        (lambda a: [np.array(1, np.float32), *a[1:]], "not a single number without dimensions"),
        (lambda a: [a[0].astype(np.complex64), *a[1:]], "holds complex64. Pass numbers of float32"),
        (lambda a: [np.array(["1"]), *a[1:]], "holds texts"),
        (lambda a: [np.zeros(9, [("x", np.float32)]), *a[1:]], r"holds records \(x\)"),
        (lambda a: [*a[:3], "1"], "single number"),
        (lambda a: [*a[:3], None], "single number"),
        (lambda a: [*a[:3], 1j], "single number"),
        (lambda a: [*a[:3], np.complex64(2)], "single number"),
        (lambda a: [*a[:3], 1e300], "cannot be one"),
    ],
)
def test_wrong_arguments(scale, change, message):
    arguments = [np.ones(8, np.float32), np.zeros(8, np.float32), 8, 1.0]
    with pytest.raises(LaunchError, match=message):
        scale.launch(1, 32, change(arguments), on="cpu")
    assert not arguments[1].any()


def test_a_read_only_output_is_refused_and_a_read_only_input_is_not(scale):
    x, y = np.ones(8, np.float32), np.zeros(8, np.float32)
    x.setflags(write=False)
    scale.launch(1, 32, [x, y, 8, 1.0], on="cpu")
    with pytest.raises(LaunchError, match="read-only"):
        scale.launch(1, 32, [y, x, 8, 1.0], on="cpu")


def test_where_to_run(scale):
    with pytest.raises(LaunchError, match="neither"):
        scale.launch(1, 32, [], on="tpu")


def test_too_much_shared_memory():
    kernel = helpers.compile("__global__ void k(float* p) { extern __shared__ float s[]; s[threadIdx.x] = 1; p[0] = s[0]; }")
    with pytest.raises(LaunchError, match="300000 bytes of shared memory.*allows 232448"):
        kernel.launch(1, 32, [np.ones(1, np.float32)], shared=300_000, on="cpu")
    with pytest.raises(LaunchError, match="negative"):
        kernel.launch(1, 32, [np.ones(1, np.float32)], shared=-1, on="cpu")


def test_a_null_pointer_is_allowed_and_its_use_is_not():
    kernel = helpers.compile("__global__ void k(const float* bias, float* p) { p[0] = bias ? bias[0] : 5; }")
    p = np.zeros(1, np.float32)
    kernel.launch(1, 1, [None, p], on="cpu")
    assert p[0] == 5
    careless = helpers.compile("__global__ void k(const float* bias, float* p) {\n  p[0] = bias[0];\n}")
    with pytest.raises(RunError) as caught:
        careless.launch(1, 1, [None, p], on="cpu")
    assert caught.value.line == 2


def test_out_of_bounds_is_found_at_its_line_and_stays_harmless(scale):
    x, y = np.ones(8, np.float32), np.zeros(8, np.float32)
    run = scale.launch(1, 32, [x, y, 32, 2.0], on="cpu")
    assert {(finding.kind, finding.line) for finding in run.findings} == {("out-of-bounds", 4)}
    assert "of x" in run.findings[0].message
    assert y.tolist() == [2.0] * 8
    assert "line 4" in repr(run)


def test_an_endless_loop_ends():
    kernel = helpers.compile("__global__ void k(volatile int* p) {\n  while (p[0] == 0) {\n  }\n}")
    with pytest.raises(RunError) as caught:
        kernel.launch(1, 32, [np.zeros(1, np.int32)], on="cpu", seconds=3)
    assert caught.value.line in (2, 3)


def test_interrupt_leaves_the_arrays_alone():
    kernel = helpers.compile("__global__ void k(float* y, volatile int* flag) {\n  y[threadIdx.x] = 5;\n  while (*flag == 0) {}\n}")
    y, flag = np.zeros(32, np.float32), np.zeros(1, np.int32)
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        kernel.launch(1, 32, [y, flag], on="cpu", seconds=60)
    assert not y.any()


def test_trace_is_recorded_only_when_asked(scale):
    arguments = [np.ones(64, np.float32), np.zeros(64, np.float32), 64, 1.0]
    with pytest.raises(CourseError, match="trace=True"):
        _ = scale.launch(2, 32, arguments, on="cpu").trace
    trace = scale.launch(2, 32, arguments, on="cpu", trace=True).trace
    loads = trace.select(op="ld", space="global")
    assert len(loads.accesses) == 2 and loads.addresses.shape == (2, 32)
    assert (np.diff(loads.addresses, axis=1) == 4).all()


def test_repr_is_readable(scale):
    assert "scale" in repr(scale) and "registers" in repr(scale) and ", 0 bytes of shared memory per block>" in repr(scale)
    dynamic = SCALE + 'extern "C" __device__ constexpr int dynamic_shared[] = {2048};'
    assert ", 0 + 2,048 dynamic bytes of shared memory per block>" in repr(helpers.compile(dynamic))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -np.inf, np.float32("nan"), Decimal("NaN"), Fraction(1, 3), 1e300])
def test_numbers_that_are_no_integers_are_refused(scale, value):
    array = np.zeros(4, np.float32)
    with pytest.raises(LaunchError, match="n of scale"):
        scale.launch(1, 4, (array, array, value, 1.0) if len(scale.compiled.parameters) == 4 else (array, 1.0, value), on="cpu")


@pytest.mark.parametrize(
    "options",
    [
        {"trace": 1}, {"trace": "yes"}, {"seconds": float("nan")}, {"seconds": 0}, {"seconds": "1"}, {"blocks": 3}, {"blocks": [0.5]},
        {"progress": 3}, {"uninitialized": None}, {"uninitialized": [["a"]]}, {"globals_before": "x"}, {"globals_before": b"x"},
        {"in_turn": "up"}, {"in_turn": None}, {"in_turn": ["upwards"]}, {"counters": "no"}, {"findings": None}, {"long": 1},
        {"explain": "yes"}, {"repeat": 0}, {"repeat": "x"},
    ],
)  # fmt: skip
def test_options_of_the_wrong_kind_are_refused(options):
    kernel = helpers.compile("__global__ void k(float* a) { a[0] = 1; }")
    with pytest.raises(LaunchError, match=next(iter(options))):
        kernel.launch(1, 1, (np.zeros(1, np.float32),), on="cpu", **options)


def test_an_unknown_order_of_the_blocks_names_those_there_are(scale):
    with pytest.raises(
        LaunchError, match="in_turn='up' is no order of the blocks: write in_turn='upwards', 'downwards', 'shuffled' or 'alone'"
    ):
        scale.launch(1, 32, [np.zeros(32, np.float32), np.zeros(32, np.float32), 32, 2.0], on="cpu", in_turn="up")


@pytest.mark.parametrize("wishes", [{"blocks": "a"}, {"warps": 3}, {"spaces": "shared"}, {"limit": "x"}], ids=str)
def test_a_filter_of_the_wrong_kind_is_refused(wishes):
    with pytest.raises(LaunchError, match=next(iter(wishes))):
        helpers.TraceFilter(**wishes)


def test_a_masked_array_is_refused():
    kernel = helpers.compile("__global__ void k(float* a) { a[0] = 1; }")
    with pytest.raises(LaunchError, match="masked array.*filled"):
        kernel.launch(1, 1, (np.ma.masked_array(np.zeros(2, np.float32), [True, False]),), on="cpu")


@pytest.mark.parametrize("kind", ["__half", "__nv_bfloat16"])
def test_a_sixteen_bit_float_takes_a_number(kind):
    kernel = helpers.compile(
        f"#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n__global__ void k(float* a, {kind} x) {{ a[0] = (float)x; }}"
    )
    for value in (1.5, 2, np.float16(0.25)):
        array = np.zeros(1, np.float32)
        kernel.launch(1, 1, (array, value), on="cpu")
        assert array[0] == float(value)
    with pytest.raises(LaunchError, match="x of k is a single number"):
        kernel.launch(1, 1, (np.zeros(1, np.float32), "1"), on="cpu")


def test_a_slow_run_says_why_it_was_slow(monkeypatch):
    kernel = helpers.compile('extern "C" __global__ void k(int* total) { atomicAdd(total, 1); }')
    run = kernel.launch(2, 32, [np.zeros(1, np.int32)], on="cpu")
    assert run.engine == "numpy" and run.engine_reason.endswith("in line 1")
    monkeypatch.setattr(launch, "LONG", 1e9)
    assert "which is slower" not in repr(run)
    monkeypatch.setattr(launch, "LONG", 0.0)
    assert "Ran on the NumPy machine, which is slower, for " in repr(run) and f" s: {run.engine_reason}." in repr(run)


FROM_AMPERE = """
__global__ void ampere(const float* x, float* y) {
    __shared__ float part[32];
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"((unsigned)__cvta_generic_to_shared(&part[threadIdx.x])), "l"(&x[threadIdx.x]));
    asm volatile("cp.async.wait_all;");
    y[threadIdx.x] = part[threadIdx.x];
}
"""
MUCH_SHARED = 'extern "C" __device__ constexpr int dynamic_shared[] = {96 << 10};\n__global__ void much(float* y) { y[0] = 1; }'


@pytest.mark.parametrize(("source", "arch", "why"), [
    (FROM_AMPERE, "sm_75", "compute capability 7.5 cannot run ampere: .*cp.async.*sm_80"),
    (FROM_AMPERE, "sm_80", ""),
    (MUCH_SHARED, "sm_75", "cannot run much: it asks for 98,304 bytes of shared memory per block, and there are 65,536"),
    (MUCH_SHARED, "sm_86", ""),
])  # fmt: skip
def test_on_a_gpu_that_cannot_run_it_a_kernel_runs_in_the_machine(source, arch, why, monkeypatch):
    monkeypatch.setattr(gpu, "available", lambda: True)
    monkeypatch.setattr(gpu, "arch", lambda: arch)
    kernel = helpers.compile(source)
    refused = kernel.refused_by(arch)
    assert re.search(why, refused) if why else not refused
    assert place(None, kernel) == ("cpu" if why else "gpu")
    if why:
        assert kernel.launch(1, 32, [np.zeros(32, np.float32)] * len(kernel.compiled.parameters)).on == "cpu"


HOPPERS_OWN = '__global__ void own() { asm volatile("setmaxnreg.dec.sync.aligned.u32 24;"); }'
NAMED = """#include <cuda/ptx>
__global__ void named() { cuda::ptx::fence_proxy_async(cuda::ptx::space_shared); }"""


@pytest.mark.parametrize(("source", "arch", "why"), [
    (HOPPERS_OWN, "sm_80", r"8.0 cannot run own: it needs a GPU of compute capability 9.0 \(Hopper, such as H200 SXM\), whose own .* \(line 1: "),
    (HOPPERS_OWN.replace("setmaxnreg.dec.sync.aligned.u32 24", "wgmma.fence.sync.aligned"), "sm_100", "10.0 cannot run own: it needs .* 9.0 "),
    (NAMED, "sm_80", "cannot run named: `cuda::ptx::fence_proxy_async` needs compute capability 9.0."),
    (NAMED, "sm_120", ""),
])  # fmt: skip
def test_which_gpu_a_kernel_of_hopper_needs(source, arch, why, monkeypatch):
    kernel = helpers.compile(source)
    assert kernel.compiled.arch == ("sm_90a" if source is not NAMED else "sm_90")
    refused = kernel.refused_by(arch)
    assert re.search(why, refused) if why else not refused
    if why:
        with pytest.raises(LaunchError, match="The SIMT machine does"):
            kernel.native(arch)


def test_the_other_byte_order_is_named(scale):
    with pytest.raises(LaunchError, match="byte order"):
        scale.launch(1, 32, [np.ones(32, ">f4"), np.zeros(32, np.float32), 32, 1.0], on="cpu")


def test_a_16_bit_scalar_leaves_the_counters_to_the_machine_code():
    """A kernel with a __half argument is counted without being run, and as if it had been."""
    source = """#include <cuda_fp16.h>
    __global__ void k(int n, __half a, const float* x, float* y) {
        float s = 0;
        for (int i = 0; i < n; i++) s += x[i * 32 + threadIdx.x] * __half2float(a);
        y[threadIdx.x] = s;
    }"""
    kernel, x = helpers.compile(source), np.ones(32 * 7, np.float32)
    done = kernel.launch(1, 32, [7, 1.5, x, np.zeros(32, np.float32)], on="cpu")
    counted = kernel.count(1, 32, [7, 1.5, x, np.zeros(32, np.float32)], blocks=[0])
    assert counted.engine == "slice" and counted.counters["smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"] == 7 * 32
    assert all(done.counters[name] == value for name, value in counted.counters.items())


@pytest.mark.parametrize("kind", ["float", "__half", "size_t", "long", "unsigned long", "unsigned long long", "uint", "signed", "signed char", "short",
                                  "float2", "float3", "float4", "double2", "half2", "short2", "uchar4", "uint4", "std::int32_t"])  # fmt: skip
def test_a_pointer_takes_its_own_elements_alone(kind):
    """float64 is what NumPy makes where nothing is said: of a template's T too."""
    head = "#include <cuda_fp16.h>\n#include <cstdint>\ntemplate <typename T> __global__ void fill(T* x) { x[threadIdx.x] = T(); }\n"
    kernel = helpers.compile(head, f"fill<{kind}>")
    wrong = np.full(16, 7.0, np.complex128)
    with pytest.raises(
        LaunchError, match=r"Argument x of fill points to .*, and the array holds complex128. Pass numbers of \w+\."
    ) as said:
        kernel.launch(1, 1, [wrong], on="cpu")
    right = np.full(16, 7, re.search(r"numbers of (\w+)\.", str(said.value))[1])
    kernel.launch(1, 1, [right], on="cpu")
    assert right[0] == 0 and wrong[0] == 7


def test_vectors_of_unsigned_integers_carry_elements_that_they_hold_whole():
    kernel = helpers.compile("__global__ void k(const uint4* x) {}")
    with pytest.raises(
        LaunchError, match=r"points to uint4, .* float64. Pass array.astype\('uint32'\), or array.view\('uint32'\) if these"
    ):
        kernel.launch(1, 1, [np.ones(32)], on="cpu")
    for kind in (np.uint8, np.float16, np.float32, np.int32):
        assert not kernel.launch(1, 1, [np.ones(32, kind)], on="cpu").findings


@pytest.mark.parametrize("kind", [object, [("a", object)]], ids=str)
def test_an_array_of_objects_is_refused(kind):
    kernel = helpers.compile("struct P { float a; int b; }; __global__ void k(P* p) { p[0].b = 1; }")
    with pytest.raises(LaunchError, match="Argument p of k is an array of Python objects"):
        kernel.launch(1, 1, [np.zeros(8, kind)], on="cpu")


def test_what_a_source_does_not_show_to_be_a_pointer_takes_an_array_and_a_number():
    source = '#define P(T) T*\n#define N size_t\nextern "C" __global__ void k(P(float) x, N n) { x[n] = 1; }'
    x = np.zeros(4, np.float32)
    helpers.compile(source).launch(1, 1, [x, 2], on="cpu")
    assert x.tolist() == [0, 0, 1, 0]


def test_a_grid_constant_is_a_number_or_a_pointer():
    for linkage in ("", 'extern "C"'):
        source = f"{linkage} __global__ void k(float* const __grid_constant__ x, const __grid_constant__ int n, const __grid_constant__ float a) {{ x[n] = a; }}"
        x = np.zeros(4, np.float32)
        helpers.compile(source).launch(1, 1, [x, 2, 0.5], on="cpu")
        assert x.tolist() == [0, 0, 0.5, 0]


@pytest.mark.parametrize("arch", ["x", None, 90, "sm_9", ""])
def test_another_architecture_has_to_be_one(arch, scale):
    with pytest.raises(CourseError, match="is not an architecture this compiler knows. It knows: "):
        scale.for_arch(arch)


def test_another_architecture_is_asked_for_with_and_without_its_letter():
    kernel = helpers.compile(HOPPERS_OWN)
    assert kernel.compiled.arch == "sm_90a" and kernel.for_arch("sm_90") is kernel
    assert kernel.for_arch("sm_100a").compiled.arch == kernel.for_arch("sm_100").compiled.arch == "sm_100a"
    assert kernel.for_arch("compute_100").compiled.arch == "compute_100a"


def test_whole_numbers_are_those_of_the_declared_type():
    """PTX has 32 bits with or without a sign, and only the source tells."""
    source = """typedef int Length;
extern "C" __global__ void widths(Length n, unsigned u, size_t z, unsigned long long* out) { out[0] = n < 0; out[1] = u; out[2] = z; }"""
    kernel, out = helpers.compile(source), np.zeros(3, np.uint64)
    kernel.launch(1, 1, [-1, 2**32 - 1, 2**64 - 1, out], on="cpu")
    assert out.tolist() == [1, 2**32 - 1, 2**64 - 1]
    kernel.launch(1, 1, [2**31 - 1, -1, np.uint64(5), out], on="cpu")
    assert out.tolist() == [0, 2**32 - 1, 5]
    with pytest.raises(helpers.LaunchError, match="Argument n of widths .* 4294967295 does not fit"):
        kernel.launch(1, 1, [2**32 - 1, 0, 0, out], on="cpu")


def test_no_block_is_no_launch():
    kernel = helpers.compile('extern "C" __global__ void one(int* x) { x[0] = 1; }')
    with pytest.raises(helpers.LaunchError, match="blocks=\\[\\]: none of the blocks would run"):
        kernel.launch(1, 1, [np.zeros(1, np.int32)], on="cpu", blocks=[])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("check", "has no check: that is for kernels of %%cuda cells and of helpers.from_file(path). helpers.gemm.check(k"),
        ("chek", "has no check: that is for kernels of %%cuda cells"),
        ("profile", "has no profile: that is for kernels of %%cuda cells"),
        ("registrs", "did you mean registers?"),
        ("time", "It has: compiled, count, launch, name, native, ptx"),
    ],
)
def test_a_name_that_a_kernel_has_not_is_told_with_one_that_helps(name, said):
    kernel = helpers.compile('extern "C" __global__ void f(float* out) { out[0] = 1; }')
    with pytest.raises(CourseError) as error:
        getattr(kernel, name)
    assert said in error.value.message and "checked" not in error.value.message


def test_what_lesson_kernels_have_besides_is_named_as_theirs():
    assert [name for name in _OF_CELLS if hasattr(LessonKernel, name) and not hasattr(Kernel, name)] == list(_OF_CELLS)
