"""An access outside every array: which one it misses, on which side, by how much, and what 32-bit arithmetic has to do with it.

Tests of: helpers.sim.checks.beyond_array, helpers.sim.checks.missed_elements
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import helpers
from tests import ROOT

KERNEL = """__device__ __noinline__ void put(volatile float* p, int i, float v) { p[i] = v; }
extern "C" __global__ void f(float* y, int i) {
    __shared__ float As[16];
    extern __shared__ float more[];
    float own[4] = {1, 2, 3, 4};
    As[threadIdx.x] = 1;
    %s
    y[threadIdx.x] = As[threadIdx.x];
}"""


def said(body, i, shared=0):
    run = helpers.compile(KERNEL % body).launch(1, 1, (np.zeros(16, np.float32), np.int32(i)), shared, on="cpu", counters=False)
    return [finding.message for finding in run.findings if finding.kind == "out-of-bounds"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (
            "more[i] = 1;",
            "A block has 32 bytes of extern __shared__ memory here, as dynamic_shared of the kernel says (or shared= of the launch)",
        ),
        ("more[i] = 1;", "and the access ends at byte 84 of it. Ask for as many bytes as the kernel uses, or check the index"),
        ("more[-i] = 1;", "Check the index against the extent of As."),
        ("As[-i] = 1;", "Check the index against the extent of As."),
    ],
)
def test_more_dynamic_shared_memory_than_is_asked_for_is_told_by_its_bytes(body, says):
    run = helpers.compile(KERNEL % body).launch(1, 1, (np.zeros(16, np.float32), np.int32(20)), 32, on="cpu", counters=False)
    (finding,) = (one for one in run.findings if one.kind == "out-of-bounds")
    assert says in finding.advice


BESIDE = """extern "C" __global__ void f(const float* x, float* y, int i) {
    __shared__ float a[32];
    __shared__ %s b[32];
    int t = threadIdx.x;
    a[t] = b[t] = x[t];
    __syncthreads();
    y[t] = a[t + i] + b[31 - t];
}"""


@pytest.mark.parametrize(
    ("kind", "i", "end"), [("float", 1, ", where b lies."), ("float", 3, ", where b lies."), ("__align__(512) float", 2, ".")]
)
def test_an_index_that_reaches_what_lies_beside_an_array_is_none_of_it(kind, i, end):
    args = (np.arange(32, dtype=np.float32), np.zeros(32, np.float32), i)
    (finding,) = helpers.compile(BESIDE % kind).launch(1, 32, args, on="cpu", counters=False).findings
    assert finding.message == f"A thread reads 4 bytes just past the end of a{end}"
    assert (finding.line, finding.thread, finding.count) == (7, (32 - i, 0, 0), i)
    assert "the extent of a:" in finding.advice


@pytest.mark.parametrize("how", ["{0}[i] = 1;", "put({0}, i, 1);"], ids=["direct", "generic"])
@pytest.mark.parametrize(
    "name, i, end",
    [
        ("As", -1, "at offset -4 of shared memory, which has 64 bytes per block: 4 bytes before As."),
        ("As", -1000, "at offset -4000 of shared memory, which has 64 bytes per block: 4000 bytes before As."),
        ("As", 16, "at offset 64 of shared memory, which has 64 bytes per block: just past the end of As."),
        ("As", 18, "at offset 72 of shared memory, which has 64 bytes per block: 8 bytes past the end of As."),
    ],
)
def test_the_array_that_is_missed_is_named(how, name, i, end):
    (message,) = said(how.format(name), i)
    assert message == f"A thread writes 4 bytes {end}"


def test_extern_shared_memory_that_no_launch_gives_says_so():
    source = 'extern "C" __global__ void f(float* y) { extern __shared__ float s[]; s[threadIdx.x] = 1; y[threadIdx.x] = s[threadIdx.x]; }'
    for shared, told in ((0, True), (16, False)):
        found = helpers.compile(source).launch(1, 32, [np.zeros(32, np.float32)], shared, on="cpu", counters=False).findings
        assert {"dynamic_shared[]" in finding.advice for finding in found if finding.kind == "out-of-bounds"} == {told}


def test_dynamic_shared_memory_has_its_end_too():
    (message,) = said("more[i] = 1;", 8, shared=32)
    assert message.endswith("which has 96 bytes per block: just past the end of more.")


@pytest.mark.parametrize(
    ("body", "arch"),
    [
        ('asm volatile("st.shared.f32 [%0], %1;" :: "l"(s + threadIdx.x), "f"(1.0f) : "memory");', "sm_90"),
        (
            'asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %1, %1, %1};" :: "l"(s + 4 * threadIdx.x), "r"(1) : "memory");',
            "sm_90",
        ),
    ],
    ids=("st", "stmatrix"),
)
def test_a_generic_address_for_an_instruction_of_shared_memory_is_told_as_one(body, arch):
    source = f'extern "C" __global__ void f(float* y) {{ __shared__ __align__(128) float s[128]; s[threadIdx.x] = 0; {body} y[threadIdx.x] = s[threadIdx.x]; }}'
    found = helpers.compile(source, arch=arch).launch(1, 32, [np.zeros(32, np.float32)], on="cpu", counters=False).findings
    finding = next(finding for finding in found if finding.kind == "out-of-bounds")
    assert finding.message.endswith("at a generic address, where the instruction takes one of shared memory.")
    assert finding.advice.startswith("__cvta_generic_to_shared(pointer)")


@pytest.mark.parametrize("i", [-1, -5, 4, 100])
def test_local_memory(i):
    (message, *_) = said("for (int k = 0; k < 4; k++) put(own, k, k); put(own, i, 2); y[0] = own[i & 3];", i)
    assert "local memory" in message


@pytest.mark.parametrize("shift", [31, 36, 38, 39, 40, 41, 45, 62])
def test_an_address_far_from_its_space_is_out_of_bounds_wherever_it_lies(shift):
    body = f"put(As, 0, 0); put((float*)((char*)As - (1ll << {shift})), i, 1);"
    try:
        assert said(body, 1)
    except helpers.RunError as stopped:
        assert [finding.kind for finding in stopped.findings] == ["out-of-bounds"]


@pytest.mark.slow
def test_addresses_at_which_sums_wrap_are_out_of_bounds_in_every_form_of_access():
    """In a process of its own: a wrong comparison reads or writes the host's memory."""
    command = [sys.executable, "-m", "tests.sim.hostile_addresses"]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert (child.returncode, child.stdout) == (0, ""), child.stdout[-2000:] + child.stderr[-2000:]


def test_a_part_of_an_array_says_that_it_is_one():
    """`in + 3`, as host code writes it, is `a[3:]` here, whose beginning a launch does not have."""
    source = "__global__ void f(const int* in, int* out, int back) { out[threadIdx.x] = in[(int)threadIdx.x + back]; }"
    kernel, whole = helpers.compile(source), np.arange(70, dtype=np.int32)

    def advice(array, back):
        run = kernel.launch(1, 16, (array, np.zeros(16, np.int32), back), on="cpu", counters=False)
        return [finding.advice for finding in run.findings]

    for array, back in ((whole[3:], -3), (whole[:64], 50), (whole.reshape(7, 10)[1], -10)):
        (said,) = advice(array, back)
        assert said.startswith("in is a part of a larger array, and a launch has this part alone.")
    for array, back in ((whole[3:], -4), (whole, -3), (whole[3:].copy(), -3)):
        (said,) = advice(array, back)
        assert said.startswith("Check the index")


CONVOLUTION = """__constant__ float mask[7];
__global__ void f(const float* x, const float* z, float* y) {
    __shared__ float s[70];
    int t = threadIdx.x;
    s[t] = x[t];
    if (t < 6) s[64 + t] = 0;
    __syncthreads();
    float sum = 0;
    for (int k = 0; k <= 7; k++) sum += mask[k] * s[t + k] * z[t + k];
    y[t] = sum;
}"""


def test_each_array_that_one_line_overruns_has_a_finding_and_a_count_of_its_own():
    args = [np.ones(size, np.float32) for size in (64, 69, 64)]
    findings = helpers.compile(CONVOLUTION).launch(2, 64, args, on="cpu", counters=False).findings
    assert {finding.line for finding in findings} == {9}
    assert {finding.array: finding.count for finding in findings} == {"mask": 2 * 64, "s": 2 * 1, "z": 2 * 3}
    assert all(finding.message.endswith(f"just past the end of {finding.array}.") for finding in findings)


INDEXED = """__device__ float own[100];
__global__ void %s { auto* p = %s; if (threadIdx.x == 0) p[%s] = {}; }"""
LARGE = 1 << 31


def missed(parameters, index, *args, pointer="a"):
    """The sentence and the advice of the only finding."""
    kernel = helpers.compile(INDEXED % (parameters, pointer, index))
    arrays = [np.zeros(100, np.float32) if arg is None else arg for arg in args]
    try:
        (finding,) = kernel.launch(1, 32, arrays, on="cpu", counters=False).findings
    except helpers.RunError as stopped:
        (finding,) = stopped.findings
        assert finding.message.removeprefix("A thread ").rstrip(".") in stopped.message and finding.advice in stopped.message
    return finding.message, finding.advice


@pytest.mark.parametrize(
    ("index", "args", "element"),
    [
        ("i * j", (1 << 16, 1 << 15), -LARGE),
        ("i * j + 7", (1 << 16, 1 << 15), 7 - LARGE),
        ("i + j", (LARGE - 1, 100), 99 - LARGE),
        ("i * j", (100_000, 30_000), 3_000_000_000 - 2 * LARGE),
    ],
)
def test_an_index_that_overflowed_is_told_as_that(index, args, element):
    said, advice = missed("k(float* a, int i, int j)", index, None, *args)
    assert said == f"A thread writes 4 bytes at element {element} of a, which has 100 elements."
    assert "an int that overflowed" in advice and "size_t or long long" in advice


def test_an_offset_in_bytes_and_an_index_of_vectors_overflow_too():
    for pointer, index, element in (("(float*)((char*)a + i * j)", "0", -LARGE // 4), ("(float4*)a", "i * j", -4 * LARGE)):
        said, advice = missed("k(float* a, int i, int j)", index, None, 1 << 16, 1 << 15, pointer=pointer)
        assert f"at element {element} of a" in said and "an int that overflowed" in advice


def test_an_unsigned_index_below_zero_is_told_as_that():
    said, advice = missed("k(float* a, unsigned i)", "i - 3", None, 1)
    assert said == "A thread writes 4 bytes at element 4294967294 of a, which has 100 elements."
    assert "an unsigned int" in advice and "it would be -2 here" in advice


def test_what_the_numbers_do_not_show_is_not_said():
    """Of an index that is only large, of one in 64 bits, of a variable whose elements nobody knows, and of an address of unknown origin."""
    for index in (-40_000_000, 40_000_000, LARGE, -(1 << 40)):
        said, advice = missed("k(float* a, long long i, size_t n)", "i", None, index, 100)
        assert f"at element {index} of a" in said and advice.startswith("Check the index")
    said, advice = missed("k(int i)", "i * 2", 1 << 30, pointer="own")
    assert said.endswith(f"A thread writes 4 bytes that lie {4 * LARGE} bytes before own.") and "an int that overflowed" in advice
    said, advice = missed("k(float* a, float* b, int i, int j)", "i * 2", None, None, 1 << 30, 1, pointer="j ? a : b")
    assert "far from every array" in said and advice.startswith("Check the index")
    said, advice = missed("k(float** a, int i)", "i * 2", np.full(1, 1 << 46, np.uint64), 1 << 30, pointer="*a")
    assert "far from every array" in said and advice.startswith("Check the index")


def test_bytes_that_lie_partly_in_an_array_reach_across_its_end():
    source = """extern "C" __global__ void k(float* a) { reinterpret_cast<float4*>(a)[1] = float4{}; }"""
    (finding,) = helpers.compile(source).launch(1, 1, (np.zeros(6, np.float32),), on="cpu").findings
    assert finding.message == "A thread writes 16 bytes that reach 8 bytes across the end of a."


def test_an_access_is_told_of_the_array_that_it_starts_from():
    """Though another one is nearer."""
    said, _ = missed("k(float* a, float* b, int i)", "i", None, None, (1 << 18) - 100)
    assert said.endswith(" bytes past the end of a.")
    whole = np.zeros(100, np.float32)
    assert missed("k(float* a, float* b, int i)", "i", whole[:50], whole, 100, pointer="b")[0].endswith("just past the end of b.")


ROWS = """extern "C" __global__ void k(float* C, const float* A) {
    __shared__ float As[8][33];
    for (int i = threadIdx.x; i < 8 * 33; i += 32) As[i / 33][i % 33] = A[i];
    __syncwarp();
    float4 v = *reinterpret_cast<float4*>(&As[threadIdx.x % 8][0]);
    C[threadIdx.x] = v.x + v.y + v.z + v.w;
}"""


@pytest.mark.parametrize(
    ("edit", "line", "where", "advice"),
    [
        (
            ("", ""),
            5,
            "at address 0x484 (byte 132 of As), which is not a multiple of 16",
            "that a row of As, padding included, is a multiple",
        ),
        (
            ("&As[threadIdx.x % 8][0]", "(float*)&A[threadIdx.x * 3]"),
            5,
            "(byte 12 of A), which",
            "check the pointer and the leading dimension",
        ),
        (("= A[i]", "= As[7][i + 33] = A[i]"), 3, "just past the end of As.", "Check the index against the extent of As."),
    ],
)
def test_a_bad_access_is_told_by_its_array(edit, line, where, advice):
    kernel, arrays = helpers.compile(ROWS.replace(*edit)), [np.zeros(32, np.float32), np.ones(264, np.float32)]
    try:
        findings = kernel.launch(1, 32, arrays, on="cpu").findings
    except helpers.RunError as error:
        findings = error.findings
        assert where.partition(",")[0].partition("address 0x484 ")[2] in error.message
    assert findings[0].line == line and where in findings[0].message and advice in findings[0].advice


@pytest.mark.parametrize(("barrier", "kinds"), [("", ["out-of-bounds"]), ("__syncthreads();", ["out-of-bounds", "race"])])
def test_who_meets_a_stray_write_is_not_told_to_wait(barrier, kinds):
    """It follows from the write beyond the array. Behind a barrier, a race is one by itself."""
    source = """extern "C" __global__ void f(float* y) {
    __shared__ float A[64], B[64];
    const int t = threadIdx.x;
    A[t + 32] = t;
    BARRIER
    B[t] = 1;
    if (t < 32) y[t] = A[t + 32] + B[OTHER];
}"""
    source = source.replace("BARRIER", barrier).replace("OTHER", "t + 32" if barrier else "t")
    y = np.zeros(64, np.float32)
    findings = helpers.compile(source).launch(1, 64, (y,), on="cpu", counters=False).findings
    assert [one.kind for one in findings] == kinds
