"""Registers between blocks of code: through barriers, where lanes run apart, and in matrices; both engines have the same in them."""

from __future__ import annotations

import random

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the native engine is optional")

from helpers.sim.load import load
from helpers.sim.native.homes import Homes, fragments
from helpers.sim.native.lower import lower
from helpers.sim.native.prepared import options_for
from helpers.toolchain.compile import compile_source
from tests.sim.native.test_native import both
from tests.sim.ptx_text import kernel

PARAMETERS = ".param .u64 in, .param .u64 out, .param .u32 n"
START = """
    .reg .b64 %rd<8>; .reg .b32 %r<24>; .reg .pred %p<24>;
    ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out]; ld.param.u32 %r9, [n];
    cvta.to.global.u64 %rd1, %rd1; cvta.to.global.u64 %rd2, %rd2;
    mov.u32 %r0, %tid.x; mul.wide.u32 %rd3, %r0, 4; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
    ld.global.u32 %r1, [%rd4]; mov.u32 %r2, 0; mov.u32 %r8, 0;
"""
END = "st.global.u32 [%rd5], %r2; ret;"


def apart(body: str):
    """A kernel whose lanes run apart."""
    return kernel(START + body + END, PARAMETERS)


# %r5 is written by one instruction alone.
IN_A_BRANCH = """
    and.b32 %r4, %r1, 1; setp.eq.u32 %p1, %r4, 0; @%p1 bra after;
    mul.lo.u32 %r5, %r1, 3; add.u32 %r6, %r5, 7; setp.gt.u32 %p2, %r6, 100; @%p2 bra after;
    add.u32 %r2, %r6, %r5;
after:
"""
FROM_THE_LAST_TIME = """
again:
    add.u32 %r3, %r1, %r8; and.b32 %r4, %r3, 3; setp.ne.u32 %p1, %r4, 0; setp.ne.u32 %p2, %r8, 0; and.pred %p1, %p1, %p2; @%p1 bra after;
    mul.lo.u32 %r5, %r3, 3; st.global.u32 [%rd5], %r5;
after:
    add.u32 %r2, %r2, %r5; add.u32 %r8, %r8, 1; setp.lt.u32 %p3, %r8, %r9; @%p3 bra again;
"""
FROM_A_LOOP = """
    and.b32 %r3, %r1, 7; setp.eq.u32 %p1, %r3, 0; @%p1 bra after;
again:
    mul.lo.u32 %r5, %r8, %r1; add.u32 %r8, %r8, 1; setp.lt.u32 %p2, %r8, %r3; @%p2 bra again;
    add.u32 %r2, %r5, 1;
after:
"""


@pytest.mark.parametrize("body", [IN_A_BRANCH, FROM_THE_LAST_TIME, FROM_A_LOOP], ids=["in a branch", "from the last time", "from a loop"])
def test_what_one_instruction_writes_where_lanes_run_apart(body):
    values = np.random.default_rng(1).integers(0, 60, 96).astype(np.uint32)
    both(apart(body), (1, 1, 1), (96, 1, 1), [values, np.zeros(96, np.uint32), np.uint32(9)])


def random_branches(draw: random.Random) -> str:
    """Blocks of code that lanes go to as their numbers say, forward mostly, in a loop. Of the values one instruction each writes some,
    several write the others; any of them may be read before that."""
    blocks, values, predicates = draw.randint(4, 10), list(range(draw.randint(3, 10))), 0
    several = [20, 21, 22]
    where = [draw.randrange(blocks) for _ in values]
    lines = ["top:"]
    for block in range(blocks):
        lines.append(f"B{block}:")
        for value in (value for value in values if where[value] == block):
            source = draw.choice(["%r1", "%r8", "%r2", "%r0"])
            lines.append(draw.choice([
                f"mad.lo.u32 %v{value}, {source}, {draw.randint(1, 9)}, {draw.randint(0, 99)};",
                f"mov.u32 %v{value}, {draw.randint(0, 99)};",
                f"ld.global.u32 %v{value}, [%rd4];",
            ]))  # fmt: skip
        lines += [f"add.u32 %v{draw.choice(several)}, %r8, {draw.randint(0, 9)};" for _ in range(draw.randint(0, 2))]
        lines += [f"xor.b32 %r2, %r2, %v{draw.choice(values + several)}; add.u32 %r2, %r2, 5;" for _ in range(draw.randint(0, 2))]
        if draw.random() < 0.2:
            lines.append(f"setp.lt.u32 %p23, %r1, {draw.randint(0, 60)}; @%p23 add.u32 %v{draw.choice(several)}, %r2, %r0;")
        if draw.random() < 0.1:
            lines.append(f"setp.eq.u32 %p22, %r1, {draw.randint(0, 60)}; @%p22 ret;")
        way, predicates = draw.random(), predicates + 1
        tested = f"setp.eq.u32 %p{predicates}, %r3, 0; @%p{predicates} bra"
        if way < 0.75:
            of = f"add.u32 %r3, {draw.choice(['%r1', '%r2', '%r0', '%r8'])}, {draw.randint(0, 7)}; and.b32 %r3, %r3, {draw.choice([1, 3, 7])};"
            lines.append(f"{of} {tested} B{draw.randint(block + 1, blocks)};")
        elif way < 0.8:
            lines.append(f"bra B{draw.randint(block + 1, blocks)};")
        elif way < 0.9:  # back, a few times
            lines.append(f"add.u32 %r7, %r7, 1; and.b32 %r3, %r1, 3; add.u32 %r3, %r3, 4; setp.lt.u32 %p{predicates}, %r7, %r3;")
            lines.append(f"@%p{predicates} bra B{draw.randint(max(0, block - 2), block)};")
    lines.append(f"B{blocks}: add.u32 %r8, %r8, 1; setp.lt.u32 %p0, %r8, %r9; @%p0 bra top;")
    return "\n".join([*lines, *(f"xor.b32 %r2, %r2, %v{value};" for value in draw.sample(values + several, 3)), ""])


@pytest.mark.parametrize("seed", range(4))
def test_any_way_that_lanes_run_apart(seed):
    quiet = {"counters": False, "findings": False}  # what nobody has written is all ones in both
    for n in range(12):
        draw = random.Random(12 * seed + n)
        values = np.array([draw.randrange(60) for _ in range(96)], np.uint32)
        registers = ".reg .b32 %v<24>; mov.u32 %r7, 0;\n"
        both(apart(registers + random_branches(draw)), (1, 1, 1), (96, 1, 1), [values, np.zeros(96, np.uint32), np.uint32(4)], **quiet)


def test_what_no_lane_wants_is_not_kept():
    """Elsewhere a lane keeps what it had: there is a select."""
    selects = {}
    for body in (IN_A_BRANCH, FROM_THE_LAST_TIME, FROM_A_LOOP):
        made = apart(body)
        program = load(made.ptx, made.symbol, made.filename)
        selects[body] = lower(program, options_for(program, (96, 1, 1), None, findings=False)).ir.count("select <32 x i1>")
    assert selects[IN_A_BRANCH] == 1  # of %r2, which another instruction writes as well
    assert selects[FROM_THE_LAST_TIME] >= 1 and selects[FROM_A_LOOP] > 3  # in a loop of every register


THROUGH_BARRIERS = """
extern "C" __global__ void k(const int* in, long long* out, int n) {
    __shared__ int s[128];
    const int t = threadIdx.x, x = in[t];
    bool odd = x & 1, large = x > 40;
    short narrow = x * 700;
    float f = x * 0.5f, g = 0;
    double d = x / 3.0;
    long long sum = 0, start = (long long)x << 33;
    for (int i = 0; i < n; i++) {
        s[t] = x + i;
        __syncthreads();
        if (odd) sum += s[(t + i) % 128]; else if (large) narrow += s[(t * 3) % 128];
        f = fmaf(f, 1.25f, s[127 - t]);
        if (s[(t + 1) % 128] % 3 == 0) { g += f; odd = !odd; }
        d = d * 0.5 + s[t ^ 1];
        __syncthreads();
        start ^= sum << (i & 3);
    }
    out[blockIdx.x * 128 + t] = sum + start + narrow + (long long)(f + g) + (long long)d + odd * 3 + large;
}
"""


@pytest.mark.parametrize("n", [0, 1, 7])
@pytest.mark.parametrize("options", [{}, {"counters": False}, {"counters": False, "findings": False}], ids=str)
def test_registers_that_outlive_barriers(n, options):
    values = np.random.default_rng(2).integers(0, 80, 128).astype(np.int32)
    both(compile_source(THROUGH_BARRIERS), (3, 1, 1), (128, 1, 1), [values, np.zeros(384, np.int64), np.int32(n)], **options)


# C and D are the same registers, or D is A of the next product; A's are in another order there; a value from elsewhere is among B's.
MATRICES = """
extern "C" __global__ void k(const unsigned* in, float* out, int n) {
    __shared__ __align__(16) unsigned s[512];
    const int t = threadIdx.x;
    for (int i = t; i < 512; i += 32) s[i] = in[i];
    __syncthreads();
    unsigned at = (unsigned)__cvta_generic_to_shared(s + t * 4), a[4], b[4];
    float c[4] = {1, 2, 3, 4}, d[4];
    #define MMA(D, A, B, C) asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, " \\
        "{%10, %11, %12, %13};" : "=f"(D[0]), "=f"(D[1]), "=f"(D[2]), "=f"(D[3]) : A, B, "f"(C[0]), "f"(C[1]), "f"(C[2]), "f"(C[3]))
    #define FOUR(R, i, j, k, l) "r"(R[i]), "r"(R[j]), "r"(R[k]), "r"(R[l])
    #define TWO(R, i, j) "r"(R[i]), "r"(R[j])
    for (int i = 0; i < n; i++) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(at));
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4+512];"
                     : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3]) : "r"(at));
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0+1024], {%1, %2, %3, %4};"
                     :: "r"(at), "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]) : "memory");
        MMA(c, FOUR(a, 0, 1, 2, 3), TWO(b, 0, 1), c);
        MMA(d, FOUR(a, 2, 0, 3, 1), TWO(b, 2, 3), c);
        b[3] ^= a[1] & 3;
        MMA(d, FOUR(a, 0, 1, 2, 3), TWO(b, 3, 0), d);
        __syncthreads();
        for (int j = 0; j < 4; j++) c[j] += 0.5f * d[j];
        s[t] ^= (a[0] ^ s[t + 256]) & 0x00ff00ff;
        __syncthreads();
    }
    for (int j = 0; j < 4; j++) out[blockIdx.x * 128 + t * 4 + j] = c[j] + (n ? d[j] : 0);
}
"""


@pytest.mark.parametrize("n", [0, 1, 3])
def test_matrices_in_the_registers_of_others(n):
    values = np.random.default_rng(5).standard_normal(1024).astype(np.float16).view(np.uint32)
    both(compile_source(MATRICES), (2, 1, 1), (32, 1, 1), [values, np.zeros(256, np.float32), np.int32(n)], findings=False)


def test_an_address_that_its_own_matrices_overwrite():
    body = """
    .shared .align 16 .b8 s[1024]; .reg .b32 %a<4>;
    shl.b32 %r3, %r0, 2; mov.u32 %r4, s; add.u32 %r4, %r4, %r3; st.shared.u32 [%r4], %r1; st.shared.u32 [%r4+512], %r0; bar.sync 0;
    mov.u32 %r4, s; and.b32 %r5, %r0, 31; shl.b32 %r5, %r5, 4; add.u32 %a1, %r4, %r5;
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%a0, %a1, %a2, %a3}, [%a1];
    xor.b32 %r2, %a1, %a2; mad.lo.u32 %r2, %a0, 3, %r2; add.u32 %r2, %r2, %a3;
    """
    values = np.random.default_rng(6).integers(0, 2**32, 128, np.uint32)
    both(apart(body), (1, 1, 1), (128, 1, 1), [values, np.zeros(128, np.uint32), np.uint32(0)])


def test_a_fragment_s_registers_follow_each_other():
    made = compile_source(MATRICES)
    program = load(made.ptx, made.symbol, made.filename)
    names = [name for index, name in program.names.items() if program.types[index] in ("b32", "f32")]
    found = fragments(program, names)
    assert found and len({name for one in found for name in one}) == sum(map(len, found))
    loaded = next(one for one in found if len(one) == 4)
    homes = Homes(dict.fromkeys(names, "i32"), set(names), set(names), {loaded[0]}, (), (), found)
    assert homes.follow_each_other(loaded) and homes.follow_each_other(loaded[2:]) and not homes.follow_each_other(loaded[::-1])
    assert not homes.has_scalar(loaded[1]) and not homes.follow_each_other(["%none"])
    kept = [line for line in homes.slots if any(f'"{name}.v"' in line for name in loaded)]
    assert all("%ws" in line for line in kept) and len(kept) == 4  # one of them outlives a barrier, so all of them are there
    assert homes.state_bytes >= 4 * 128 and homes.state_bytes % 64 == 0
