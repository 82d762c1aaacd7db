"""Accesses at addresses where sums wrap, through every form of access: run as a program, for a mistake may end the process.

    python -m tests.sim.hostile_addresses             every form, once: alone, in a loop or for some lanes, in turn
    python -m tests.sim.hostile_addresses FORM...     these forms, each in all three ways

Prints a line per form and address at which something else than an out-of-bounds finding comes of it, or the engines differ.
"""

from __future__ import annotations

import sys

import numpy as np

from helpers.errors import RunError
from helpers.sim import Budget, Collect, simulate
from helpers.toolchain.compile import compile_source

SOURCE = """
struct Numbers {{ int of[8]; }};
extern "C" __global__ void k(int* y, long long far, long long step, int n, Numbers numbers) {{
    __shared__ __align__(16) volatile int s[64];
    volatile int a[8] = {{1, 2, 3, 4, 5, 6, 7, n}};
    const int t = threadIdx.x;
    const long long b = far + t * step;  // in bytes
    int x = t;
    s[t] = t;
    s[t + 32] = t;
    __syncthreads();
    {statement}
    __syncthreads();
    y[t] = x + s[t] + a[t & 7];
}}
"""
# The statement of each form, with b: how many bytes from the beginning of an array its threads go.
FORMS = {
    "global load": "x = *(volatile int*)((char*)y + b);",
    "global store": "*(int*)((char*)y + b) = t;",
    "global double": "x = *(volatile double*)((char*)y + b) > 1;",
    "global vector load": "x = __ldcg((int4*)((char*)y + b)).z;",
    "global vector store": "*(int4*)((char*)y + b) = make_int4(1, 2, 3, 4);",
    "global byte": "x = *(volatile char*)((char*)y + b);",
    "global atomic": "atomicAdd((int*)((char*)y + b), 1);",
    "absolute": "x = *(volatile int*)(b + (b >= 0 ? 0 : 16));",
    "shared load": "x = *(volatile int*)((char*)s + b);",
    "shared store": "*(volatile int*)((char*)s + b) = t;",
    "shared vector": "asm volatile(\"ld.shared.v4.u32 {%0, %0, %0, %0}, [%1];\" : \"=r\"(x) : \"l\"(__cvta_generic_to_shared((void*)s) + b));",
    "shared atomic": "atomicAdd((int*)((char*)s + b), 1);",
    "generic load": "volatile int* p = n > 7 ? s : y; x = *(volatile int*)((volatile char*)p + b);",
    "generic store": "volatile int* p = n > 7 ? s : y; *(volatile int*)((volatile char*)p + b) = t;",
    "generic atomic": "volatile int* p = n > 7 ? s : y; atomicExch((int*)((volatile char*)p + b), 1);",
    "local load": "x = *(volatile int*)((volatile char*)a + b);",
    "local store": "*(volatile int*)((volatile char*)a + b) = t;",
    "local double": "*(volatile double*)((volatile char*)a + b) = t;",
    "parameter": "x = *(volatile int*)((char*)numbers.of + b);",
    "copy from": "asm volatile(\"cp.async.ca.shared.global [%0], [%1], 16; cp.async.wait_all;\" "
    ":: \"r\"((unsigned)__cvta_generic_to_shared((void*)s) + 16 * (t & 3)), \"l\"((char*)y + b));",
    "copy to": "asm volatile(\"cp.async.ca.shared.global [%0], [%1], 16; cp.async.wait_all;\" "
    ":: \"l\"(__cvta_generic_to_shared((void*)s) + b), \"l\"((char*)y + 16 * t));",
    "ldmatrix": "asm volatile(\"ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];\" "
    ": \"=r\"(x) : \"l\"(__cvta_generic_to_shared((void*)s) + b));",
}  # fmt: skip
PLACES = ("{}", "for (int r = 0; r < n - 7; r++) {{ {} }}", "if (t < n) {{ {} }}")
FAR = (
    1 << 31, 1 << 32, (1 << 33) - 16, 1 << 47, 1 << 60, (1 << 61) - 16, 1 << 61, 1 << 62, (1 << 63) - 16, -(1 << 63), -(1 << 62), -(1 << 60),
    -(1 << 32), -(1 << 31), -16,
)  # fmt: skip
STEPS = (0, 16, 1 << 62)


def outcome(compiled, far: int, step: int, engine: str):
    """Findings as text; None if the engine leaves the launch to the other."""
    numbers = np.zeros(1, np.dtype([("of", np.int32, 8)]))[0]
    args = [np.zeros(256, np.int32), np.int64(far), np.int64(step), np.int32(8), numbers]
    try:
        return _texts(simulate(compiled, (1, 1, 1), (32, 1, 1), args, 0, Collect(), Budget(seconds=20), engine=engine).findings)
    except RunError as error:
        return None if "native engine cannot run" in error.message else _texts(error.findings)


def _texts(findings) -> list[str]:
    return [f"{finding.kind}: {finding.message}" for finding in findings]


def wrong(name: str, places):
    """Every (address, what was said) of a form that is not as it should be."""
    for place in places:
        # Without machine code: disassembling it would take longer than all launches.
        compiled = compile_source(SOURCE.format(statement=place.format(FORMS[name])), entry="k", arch="compute_90")
        for step in STEPS:
            for far in FAR:
                said = outcome(compiled, far, step, "numpy")
                native = outcome(compiled, far, step, "native")
                if not any(finding.startswith("out-of-bounds") for finding in said):
                    yield place, far, step, said
                elif native is not None:
                    yield place, far, step, native


if __name__ == "__main__":
    chosen = sys.argv[1:]
    for i, form in enumerate(chosen or FORMS):
        for what in wrong(form, PLACES if chosen else PLACES[i % 3 : i % 3 + 1]):
            print(form, *what, flush=True)
