"""Values of 128 bits: loads, stores, moves and atomics of .b128, which the machine keeps in two registers."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from helpers.errors import RunError
from helpers.sim import simulate
from helpers.toolchain.compile import compile_source

MOVED = """__global__ void moved(const float* a, float* b) {{
    __shared__ __align__(16) float s[128];
    unsigned at = (unsigned)__cvta_generic_to_shared(s) + 16 * threadIdx.x;
    asm volatile("{{.reg .pred p;\\n.reg .b128 q, r;\\n.reg .b64 x, y;\\nsetp.ne.u32 p, %3, 5;\\n"
                 "ld.{kind}global.b128 q, [%0];\\nst.shared.b128 [%2], q;\\nld.shared.b128 r, [%2];\\n"
                 "@p mov.b128 {{x, y}}, r;\\n@p mov.b128 r, {{y, x}};\\nmov.b128 q, r;\\nst.{kind}global.b128 [%1], q;}}"
                 :: "l"(a + 4 * threadIdx.x), "l"(b + 4 * threadIdx.x), "r"(at), "r"(threadIdx.x) : "memory");
}}"""


@pytest.mark.parametrize("kind", ["", "relaxed.gpu."])
def test_loads_stores_and_moves(kind):
    a, b = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    outcome = simulate(compile_source(MOVED.format(kind=kind)), (1, 1, 1), (32, 1, 1), [a, b])
    expected = a.reshape(32, 2, 2)[:, ::-1].reshape(32, 4).copy()
    expected[5] = a[20:24]
    assert np.array_equal(b.reshape(32, 4), expected) and not outcome.findings
    assert outcome.counters["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == 1
    assert outcome.counters["l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"] == 16


ATOMIC = """__global__ void atomic(unsigned long long* p, unsigned long long* out) {
    __shared__ __align__(16) unsigned long long s[2];
    unsigned long long t = threadIdx.x, a, b;
    asm volatile("{.reg .b128 q, r;\\nmov.b128 q, {%2, %3};\\natom.global.exch.b128 r, [%4], q;\\nmov.b128 {%0, %1}, r;}"
                 : "=l"(a), "=l"(b) : "l"(t), "l"(100 + t), "l"(p) : "memory");
    out[2 * t] = a; out[2 * t + 1] = b;
    if (t == 0) { s[0] = 5; s[1] = 6; }
    __syncthreads();
    unsigned at = (unsigned)__cvta_generic_to_shared(s);
    // Thread 3 names only the low half right; thread 7 both.
    asm volatile("{.reg .b128 q, r, z;\\nmov.b128 q, {%2, %3};\\nmov.b128 z, {%4, %5};\\n"
                 "atom.shared.cas.b128 r, [%6], q, z;\\nmov.b128 {%0, %1}, r;}"
                 : "=l"(a), "=l"(b)
                 : "l"(t == 7 || t == 3 ? 5ull : 4ull), "l"(t == 3 ? 7ull : 6ull), "l"(t), "l"(100 + t), "r"(at) : "memory");
    out[64 + 2 * t] = a; out[65 + 2 * t] = b;
}"""


def test_atomics_take_turns_with_whole_values():
    p, out = np.array([11, 22], np.uint64), np.zeros(128, np.uint64)
    outcome = simulate(compile_source(ATOMIC), (1, 1, 1), (32, 1, 1), [p, out])
    exchanged, compared = out[:64].reshape(32, 2), out[64:].reshape(32, 2)
    seen = {tuple(pair) for pair in (*exchanged.tolist(), p.tolist())}
    assert seen == {(11, 22)} | {(t, 100 + t) for t in range(32)}
    assert compared[:8].tolist() == [[5, 6]] * 8 and compared[8:].tolist() == [[7, 107]] * 24
    assert not outcome.findings


def test_arithmetic_on_128_bits_is_refused_by_name():
    source = ATOMIC.replace("atom.shared.cas.b128 r, [%6], q, z", "atom.shared.exch.b128 r, [%6], q")
    ptx = compile_source(source).ptx.replace("atom.shared.exch.b128", "atom.shared.add.b128")
    with pytest.raises(RunError, match="does not know the instruction `atom.shared.add.b128"):
        arrays = [np.zeros(2, np.uint64), np.zeros(128, np.uint64)]
        simulate(SimpleNamespace(ptx=ptx, symbol=compile_source(source).symbol), (1, 1, 1), (32, 1, 1), arrays)
