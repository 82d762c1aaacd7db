"""Matching accesses of PTX with those of the machine code."""

import numpy as np
import pytest

from helpers.run.kernel import Kernel
from helpers.sim.code.merged_accesses import access_sites
from helpers.sim.load import load
from helpers.toolchain.compile import compile_source
from tests.sim.counting import probes

ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120")
REGISTERS = " .reg .f32 %f<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>;"


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_tiled_kernel_has_its_shared_loads_merged(arch):
    compiled = probes.compiled("calibration.cu", "tile2d", arch)
    sites = access_sites(load(compiled.ptx, compiled.symbol), compiled.sass, compiled.symbol).values()
    loads = [s for s in sites if s.opcode.startswith("LDS")]
    assert sorted(s.width for s in loads) == [0] * 96 + [16] * 32
    assert {s.leader for s in loads if s.width == 0} == {s.leader for s in loads if s.width == 16}
    assert [s.width for s in sites if s.opcode.startswith("STG")] == [4] * 64
    assert all(s.exact for s in sites)


def test_an_access_that_nobody_needs_is_charged_nothing():
    ptx = "\n".join(
        [
            ".visible .entry k(",
            "\t.param .u64 k_param_0",
            ")",
            "{" + REGISTERS,
            "\tld.shared.f32 \t%f1, [%r1];",
            "\tld.shared.f32 \t%f2, [%r1+4];",
            "}",
        ]
    )
    text = '.section\t.text.k,"ax"\n\t//## File ".nv_debug_ptx_txt", line 6\n        /*0000*/                   LDS R1, [R0+0x4] ;\n'
    sites = access_sites(load(ptx, "k"), text, "k")
    assert (sites[5].width, sites[5].opcode) == (0, "")
    assert (sites[6].width, sites[6].opcode, sites[6].exact) == (4, "LDS", True)


def test_a_widened_access_without_visible_partners_is_not_exact():
    ptx = "\n".join([".visible .entry k(", ")", "{" + REGISTERS, "\tld.shared.f32 \t%f1, [%r1];", "\tld.shared.f32 \t%f2, [%r2+64];", "}"])
    text = '.section\t.text.k,"ax"\n\t//## File ".nv_debug_ptx_txt", line 4\n        /*0000*/                   LDS.64 R2, [R0] ;\n'
    sites = access_sites(load(ptx, "k"), text, "k")
    assert (sites[4].width, sites[4].exact) == (4, False) and sites[4].why
    assert not sites[5].exact


def test_partners_are_found_across_registers_that_hold_the_same_sum():
    ptx = "\n".join(
        [
            ".visible .entry k(", ")", "{" + REGISTERS, "\tadd.s64 \t%rd2, %rd1, 8;", "\tld.shared.f32 \t%f1, [%rd1];", "\tld.shared.f32 \t%f2, [%rd1+4];",
            "\tld.shared.v2.f32 \t{%f3, %f4}, [%rd2];", "}",
        ]
    )  # fmt: skip
    text = '.section\t.text.k,"ax"\n\t//## File ".nv_debug_ptx_txt", line 6\n        /*0000*/                   LDS.128 R4, [R0] ;\n'
    sites = access_sites(load(ptx, "k"), text, "k")
    assert [(sites[n].width, sites[n].leader) for n in (5, 6, 7)] == [(0, 6), (16, 6), (0, 6)]
    assert sites[6].offset == -4


ATOMICS = {  # what the threads do, and then what Nsight Compute counts of one warp on an H200 (2026-11-27)
    "atomicAdd(&s[0], t + 1);": ("shared", 1, 0), "atomicMax(&s[0], t);": ("shared", 1, 0), "y[t] = atomicAdd(&s[0], 1);": ("shared", 1, 0),
    "atomicAdd(&s[b[t]], 1);": ("shared", 16, 15), "atomicAdd(&s[b[t]], t);": ("shared", 32, 31),  # 16 words of one bank
    "atomicAdd(&s[t % 8], t);": ("shared", 4, 3), "atomicAdd(&s[t], t);": ("shared", 1, 0),
    "atomicAdd(y, 1);": ("red", 1, 1), "if (t & 1) atomicAdd(y, 1);": ("red", 1, 1), "y[32 + t] = atomicAdd(y, t);": ("atom", 1, 1),
    "atomicAdd((float*)y, 1.f);": ("red", 32, 1), "atomicInc((unsigned*)y, 100);": ("red", 32, 1),
}  # fmt: skip


@pytest.mark.parametrize(("body", "counted"), ATOMICS.items(), ids=ATOMICS)
def test_atomic_operations_that_ptxas_combines_count_as_one(body, counted):
    """It adds up the lanes of a warp that meet at an address it knows to be one; ATOMS.POPC.INC does that by itself."""
    source = f"""__global__ void f(int* y, const int* b) {{
        __shared__ int s[1024];
        const int t = threadIdx.x;
        for (int i = t; i < 1024; i += 32) s[i] = 0;
        __syncthreads();
        {body}
        __syncthreads();
        y[64 + t] = s[t];
    }}"""
    words = np.arange(32, dtype=np.int32) // 2 * 32
    counters = Kernel(compile_source(source)).launch(1, 32, [np.zeros(96, np.int32), words], on="cpu").counters
    space, first, second = counted
    if space == "shared":
        found = [
            counters.get(f"l1tex__data_{what}_mem_shared_op_atom.sum", 0) for what in ("pipe_lsu_wavefronts", "bank_conflicts_pipe_lsu")
        ]
    else:
        found = [counters[f"l1tex__t_{what}_pipe_lsu_mem_global_op_{space}.sum"] for what in ("sectors", "requests")]
    assert found == [first, second]
