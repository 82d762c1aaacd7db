"""Trips of a loop that only repeat are added, and the count is that of executing them all.

Tests of: helpers.sim.counting.machine_code.semantics.floats, helpers.sim.counting.machine_code.semantics.handlers,
helpers.sim.counting.machine_code.semantics.integers, helpers.sim.counting.machine_code.semantics.moves,
helpers.sim.counting.machine_code.semantics.predicates
"""

import functools
from types import SimpleNamespace

import numpy as np
import pytest

from helpers.sim.counting.machine_code import instruction_counts, steady
from helpers.toolchain.compile import compile_source
from tests.sim.counting.machine_code.test_counts import assembled

# Blocks of three warps, of which the second and the third block lose lanes of the last one.
LOOPS = {
    "addresses that come back to their place in a line after 32 trips": "for (int i = 0; i < n; i++) s += a[threadIdx.x + i * 33];",
    "lanes that leave at different times": "for (int i = threadIdx.x * 5; i < n; i += 7) s += a[i];",
    "a guarded access": "for (int i = 0; i < n; i++) if (threadIdx.x + i < 300) s += a[i];",
    "a ring of three buffers": """__shared__ float ring[3][96 * 4];
        for (int i = 0, stage = 0; i < n; i++) {
            ring[stage][threadIdx.x * (stage + 1)] = a[i];
            __syncthreads();
            s += ring[stage][95 - threadIdx.x];
            stage = stage == 2 ? 0 : stage + 1;
        }""",
    "a counter past zero": "for (int i = -n; i < n; i += 3) s += a[i + 5 * n];",
    "an address past 4 GB": "for (int i = 0; i < n; i++) s += a[(long long)i * 12345678 + threadIdx.x];",
    "a loop in a loop": """for (int j = 0; j < n; j += 97)
        _Pragma("unroll 1") for (int i = j; i < n; i++) s += a[i * 4 + threadIdx.x * j];""",
    "steps that grow": "for (int i = 1; i < n; i += i + 1) s += a[i];",
    "an address by exclusive or": "for (int i = 0; i < n; i++) s += a[(i ^ threadIdx.x) * 9];",
    "a division": "for (int i = 0; i < n; i++) s += a[i / 7 + i % 5 * threadIdx.x];",
}
FEW = {"steps that grow", "a division", "an address by exclusive or"}  # whose trips are all executed, or few anyway


@functools.cache
def compiled():
    """A kernel for each loop: k0, k1, …"""
    head = "(const float* a, float* c, int n) { float s = 0; if (threadIdx.x + blockIdx.x > 94) return;\n#pragma unroll 1\n"
    kernels = [f"__global__ void k{number}{head} {loop} c[threadIdx.x] = s; }}" for number, loop in enumerate(LOOPS.values())]
    return compile_source('extern "C" {\n' + "\n".join(kernels) + "\n}", entry="k0")


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_counts_as_if_every_trip_was_executed(name, monkeypatch):
    made, number = compiled(), list(LOOPS).index(name)
    kernel = SimpleNamespace(ptx=made.ptx, cubin=made.cubin, sass=made.sass, symbol=f"k{number}", arch=made.arch)
    launch = (kernel, (3,), (96,), [np.zeros(4, np.float32), np.zeros(96, np.float32), 701])
    jumped = instruction_counts(*launch, accesses=True, budget=2500 if name in FEW else 500)
    monkeypatch.setattr(steady, "WORTHWHILE", 1 << 60)
    assert jumped[1] == "" and jumped == instruction_counts(*launch, accesses=True)


@pytest.mark.parametrize(
    "change", ["IADD3 R2, R2, 0x1000000, RZ", "LOP3.LUT R2, R2, 0x80000000, RZ, 0x3c, !PT", "SHF.L.U32 R2, R2, 0x1, RZ"]
)
def test_a_value_that_wraps_toggles_or_doubles_goes_other_ways_when_it_does(change, monkeypatch):
    """Of 1000 trips, those execute the NOP in which the upper byte of the value is 128 or more."""
    compiled = assembled(
        "MOV R2, 0x1", "MOV R3, RZ", f".L_1: {change}", "SHF.R.U32.HI R4, RZ, 0x18, R2", "ISETP.LT.AND P1, PT, R4, 0x80, PT",
        "@P1 BRA `(.L_2)", "NOP", ".L_2: IADD3 R3, R3, 0x1, RZ", "ISETP.LT.U32.AND P0, PT, R3, 0x3e8, PT", "@P0 BRA `(.L_1)", "EXIT",
    )  # fmt: skip
    jumped = instruction_counts(compiled, (1, 1, 1), (32, 1, 1), [])
    monkeypatch.setattr(steady, "WORTHWHILE", 1 << 60)
    assert jumped[1] == "" and jumped == instruction_counts(compiled, (1, 1, 1), (32, 1, 1), [])
    assert jumped[0].by_opcode["NOP"] == {"IADD3": 489, "LOP3": 500, "SHF": 1}[change.split(".")[0].split()[0]]


def test_bits_beside_what_is_unknown_go_other_ways_when_they_change(monkeypatch):
    """Of 1000 trips, those execute the NOP in which the low byte of the sum is 128 or more; at the head it is always the same."""
    compiled = assembled(
        "MOV R3, RZ", "LDS R5, [RZ]", "PRMT R5, RZ, 0x7610, R5", "MOV R2, R5", ".L_1: LOP3.LUT P0, RZ, R2, 0x1, RZ, 0xc0, !PT", "@P0 EXIT",
        "IADD3 R2, R5, R3, RZ", "LOP3.LUT P1, RZ, R2, 0x80, RZ, 0xc0, !PT", "MOV R2, R5", "@!P1 BRA `(.L_2)", "NOP",
        ".L_2: IADD3 R3, R3, 0x1, RZ", "ISETP.LT.U32.AND P0, PT, R3, 0x3e8, PT", "@P0 BRA `(.L_1)", "EXIT",
    )  # fmt: skip
    jumped = instruction_counts(compiled, (1, 1, 1), (32, 1, 1), [])
    monkeypatch.setattr(steady, "WORTHWHILE", 1 << 60)
    assert jumped[1] == "" and jumped == instruction_counts(compiled, (1, 1, 1), (32, 1, 1), [])
    assert jumped[0].by_opcode["NOP"] == 3 * 128 + 1000 - 7 * 128
