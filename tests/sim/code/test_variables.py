"""Where shared memory begins, by architecture, and what that means for alignments and for addresses made from them.

Tests of: helpers.sim.code.addresses
"""

from __future__ import annotations

import numpy as np
import pytest

from helpers.sim import Collect, simulate
from helpers.toolchain.compile import compile_source

PLACES = """extern "C" __global__ void k(unsigned* out) {
    __shared__ char a[5];
    __shared__ __align__(4096) unsigned s[64];
    extern __shared__ __align__(2048) unsigned more[];
    const int t = threadIdx.x;
    if (t < 5) a[t] = 1;
    s[t] = t;
    more[t] = t;
    __syncthreads();
    out[t] = s[(t + 1) % 32] + a[t * 3 % 5] + more[31 - t];
    if (t == 0) {
        out[32] = (unsigned)__cvta_generic_to_shared(a);
        out[33] = (unsigned)__cvta_generic_to_shared(s);
        out[34] = (unsigned)__cvta_generic_to_shared(more);
#ifdef SIZES
        asm("mov.u32 %0, %%total_smem_size;" : "=r"(out[35]));
        asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(out[36]));
#endif
    }
}"""
SWITCHED = """extern "C" __global__ void k(int* y, int n) {
    __shared__ __align__(16384) int s[4096];
    unsigned at = (unsigned)__cvta_generic_to_shared(s) + 0x1c00 + 4 * threadIdx.x;  // the end of the first of two buffers
    int sum = 0;
    for (int i = 0; i < n; i++) {
        int got;
        asm volatile("st.shared.u32 [%1], %2; ld.shared.u32 %0, [%1];" : "=r"(got) : "r"(at), "r"(i) : "memory");
        sum += got;
        at ^= 0x2000;
    }
    y[threadIdx.x] = sum;
}"""


@pytest.mark.parametrize(
    "arch, start, engine",
    [("sm_75", 0, "numpy"), ("sm_80", 0, "native"), ("sm_89", 0, "numpy"), ("sm_90", 0x400, "numpy"), ("sm_90", 0x400, "native")],
)
def test_shared_memory_begins_where_the_machine_code_has_it(arch, start, engine):
    sizes = engine == "numpy"  # the native engine does not know those registers
    compiled = compile_source(PLACES, arch=arch, options=["-DSIZES"] if sizes else [])
    assert ("0x400" in compiled.sass) == bool(start)
    out = np.zeros(37, np.uint32)
    outcome = simulate(compiled, (1, 1, 1), (32, 1, 1), [out], 128, engine=engine)
    assert not outcome.findings
    assert out[32:].tolist() == [start, start + 4096, start + 6144, sizes * (6144 + 128), sizes * 128]
    lanes = np.arange(32)
    assert (out[:32] == (lanes + 1) % 32 + 1 + 31 - lanes).all()


def test_an_alignment_that_is_not_given_is_told_with_its_line_and_what_relies_on_it_misses():
    said = {}
    for arch in ("sm_80", "sm_90"):
        compiled = compile_source(SWITCHED, arch=arch)
        y = np.zeros(32, np.int32)
        findings = simulate(compiled, (1, 1, 1), (32, 1, 1), [y, np.int32(4)], 0, Collect(counters=False)).findings
        said[arch] = [note for note in compiled.warnings if "alignment" in note], findings
        assert bool(findings) != (y == 0 + 1 + 2 + 3).all()
    assert said["sm_80"] == ([], [])
    (note,), (finding, *_) = said["sm_90"]
    assert note.startswith("line 2: s asks for an alignment of 16384 bytes and does not get it") and "0x400" in note
    assert finding.kind == "out-of-bounds" and "s asks for an alignment of 16384 bytes" in finding.advice


@pytest.mark.parametrize("use, told", [("b[t] = t;", True), ("a[32 + t] = t;", False)])
def test_two_arrays_of_dynamic_shared_memory_begin_at_one_place(use, told):
    source = f"""extern __shared__ float a[];
    extern __shared__ int b[];
    __global__ void other(int* out) {{ b[threadIdx.x] = 1; out[threadIdx.x] = b[31 - threadIdx.x]; }}
    __global__ void k(float* x) {{ int t = threadIdx.x; a[t] = x[t]; {use} __syncthreads(); x[t] = a[31 - t]; }}"""
    notes = [note for note in compile_source(source, "k").warnings if "extern __shared__" in note]
    assert [note.partition(",")[0] for note in notes] == ["line 2: a and b are extern __shared__"] * told


@pytest.mark.parametrize("n, told", [(0, None), (225, "just past the end of first."), (384, "that lie 512 bytes past the end of first.")])
def test_an_index_too_large_does_not_reach_the_next_variable(n, told):
    compiled = compile_source(
        "__device__ float first[256], second[1 << 14];\n"
        "__global__ void k(float* out, int n) { first[threadIdx.x + n] = 1; out[threadIdx.x] = second[threadIdx.x] + first[threadIdx.x]; }"
    )
    found = simulate(compiled, (1, 1, 1), (32, 1, 1), [np.zeros(32, np.float32), n]).findings
    assert [finding.message for finding in found] == ([] if told is None else [f"A thread writes 4 bytes {told}"])
