"""Tensor-core instructions: layouts, arithmetic within the stated bound, what their memory accesses cost, and their findings."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from helpers.errors import RunError
from helpers.sim import Budget, Collect, TraceFilter, simulate
from helpers.sim.isa import mma
from helpers.sim.layouts.register_fragments import Shape, fragment, shapes, wmma_fragment
from helpers.toolchain.compile import compile_source
from tests.sim import matrix_cases as cases
from tests.sim import matrix_products
from tests.sim.ptx_text import kernel

QUIET = Collect(counters=False)
LD = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
LD_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"
LDSM = "smsp__inst_executed_op_ldsm.sum"


def run(made, grid, block, args, collect=QUIET, shared=0, seconds=60):
    return simulate(made, grid, (block, 1, 1), args, shared, collect=collect, budget=Budget(seconds=seconds), engine="numpy")


# --- mma.sync ----------------------------------------------------------------------------------------------------------


@functools.cache
def all_mmas(arch):
    return "\n".join(case.source for case in cases.MMAS if case.arch == arch)


def execute(case, a, b, c, words=None):
    """D of every warp, through the machine; matrices as [warps, rows, columns], A as it is stored."""
    made = cases.compiled(all_mmas(case.arch), case.symbol, case.arch)
    d = np.zeros_like(case.pack("c", c))
    args = [case.pack("a", a), case.pack("b", b), case.pack("c", c), *([] if words is None else [words]), d]
    outcome = run(made, (len(a), 1, 1), 32, args)
    assert outcome.findings == []
    return case.unpack(d)


@pytest.mark.parametrize("case", [case for case in cases.MMAS if case.selector is None], ids=lambda case: case.name)
def test_every_element_goes_where_the_isa_says(case):
    """A has a single one; the row of B that it selects appears in one row of D, added to C."""
    m, n, k = case.extents
    count = m * k
    a = np.zeros((count, m, k), cases.STORED[case.a])
    a.reshape(count, count)[np.arange(count), np.arange(count)] = 1
    limit = 13 if case.b not in cases.SMALL else 1 << cases.SMALL[case.b][0] >> (case.b == "s4")
    b = np.broadcast_to((np.arange(k * n) % 13 % limit).reshape(k, n).astype(cases.STORED[case.b]), (count, k, n))
    c = np.broadcast_to((np.arange(m * n) % 31).reshape(m, n).astype(cases.STORED[case.d]), (count, m, n))
    got = execute(case, a, b, c)
    exact, _ = case.product(a, b, c)
    assert np.array_equal(got.astype(np.float64), exact)


@pytest.mark.parametrize("wild", [False, True], ids=["even", "wild"])
@pytest.mark.parametrize("case", cases.MMAS, ids=lambda case: case.name)
def test_the_product_is_exact_and_rounded_once_or_cut_off(case, wild):
    k = case.extents[2]
    a, stored, b, c, words = case.matrices(40, wild)
    got = execute(case, stored, b, c, words).astype(np.float64)
    exact, size = case.product(a, b, c)
    if case.d == "s32":
        assert np.array_equal(got, exact)
        return
    if mma.sums_of(case.a, case.d):  # which bits these have, the record of the hardware says
        assert (np.abs(got - exact) <= cases.allowed(case.d, case.a, size, k)).all()
        return
    # float64 itself is off by a few units of 2^-53 of the terms' sizes, which may decide between two neighbours
    spacing = np.spacing(np.abs(exact).astype(cases.STORED[case.d])).astype(np.float64) if case.d != "f64" else 0
    assert (np.abs(got - exact) <= 0.5 * spacing + k * 2.0**-52 * size).all()


@pytest.mark.parametrize("case", cases.VOLTAS, ids=lambda case: case.name)
def test_volta_multiplies_four_pairs_of_matrices(case):
    a, b, c = case.matrices(3)
    d = case.pack("c", c)
    made = compile_source(case.source, None, "sm_80")
    outcome = simulate(made, (3, 1, 1), (32, 1, 1), [case.pack("a", a), case.pack("b", b), d], collect=QUIET)
    assert outcome.findings == [] and outcome.engine == "numpy"  # the other engine leaves it to this one
    assert np.array_equal(case.unpack(d), a.astype(np.float64) @ b.astype(np.float64) + c)


SHARED_REGISTERS = {
    "B and C": (np.float16, "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %2, %2, %2}, {%2, %3}, {%4, %5}", "r"),
    "A and B": (np.float64, "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%4}, {%3, %3}", "d"),
}


@pytest.mark.parametrize("which", SHARED_REGISTERS)
@pytest.mark.parametrize("engine", ["numpy", "auto"])
def test_operands_in_the_same_registers_are_matrices_of_their_own(which, engine):
    number, instruction, letter = SHARED_REGISTERS[which]
    word = "double" if letter == "d" else "unsigned"
    move = f"mov.{'f64' if letter == 'd' else 'b32'} %0, %1;"
    source = f"""
extern "C" __global__ void k(const {word}* v, {word}* c) {{
    const int t = threadIdx.x;
    {word} x = v[t], y = v[t + 32], of_x, of_y, d[4];
    asm volatile("{move}" : "={letter}"(of_x) : "{letter}"(x));
    asm volatile("{move}" : "={letter}"(of_y) : "{letter}"(y));
    asm volatile("{instruction};" : "={letter}"(d[0]), "={letter}"(d[1]) : "{letter}"(x), "{letter}"(y), "{letter}"(x), "{letter}"(y));
    asm volatile("{instruction};" : "={letter}"(d[2]), "={letter}"(d[3]) : "{letter}"(x), "{letter}"(y), "{letter}"(of_x), "{letter}"(of_y));
    for (int i = 0; i < 4; i++) c[t * 4 + i] = d[i];
}}"""
    words = np.float64 if letter == "d" else np.uint32
    values = np.random.default_rng(4).random(64 * np.dtype(words).itemsize // np.dtype(number).itemsize).astype(number)
    result = np.zeros(128, words)
    outcome = simulate(
        compile_source(source, arch="compute_90"), (1, 1, 1), (32, 1, 1), [values.view(words), result], collect=QUIET, engine=engine
    )
    assert outcome.findings == [] and result.any()
    assert np.array_equal(*result.reshape(32, 2, 2).transpose(1, 0, 2))


def test_infinities_nans_and_denormals():
    case = cases.MMAS[0]
    a, b = np.zeros((1, 16, 16), np.float16), np.zeros((1, 16, 8), np.float16)
    c = np.zeros((1, 16, 8), np.float32)
    a[0, 0, 0], b[0, 0, :] = np.inf, 1
    a[0, 1, 0], a[0, 1, 1], b[0, 1, :] = np.inf, -np.inf, 1
    a[0, 2, 2], b[0, 2, :] = 2.0**-24, 2.0**-24  # the smallest numbers, whose product float32 holds
    a[0, 3, 3], b[0, 3, :], c[0, 3, :] = 65504, 65504, -1
    c[0, 4, :] = np.nan
    got = execute(case, a, b, c)[0]
    assert (got[0] == np.inf).all() and np.isnan(got[1]).all() and (got[2] == 2.0**-48).all()
    assert (got[3] == np.float32(65504.0**2 - 1)).all()
    assert (got[1:5:3].view(np.uint32) == 0x7FFFFFFF).all()


def test_integers_wrap_or_saturate():
    for more, expected in (("", -(2**31) + 127 * 127 * 32 - 1), (".satfinite", 2**31 - 1)):
        case = cases.Mma("m16n8k32", "s32", "s8", "s8", more=more)
        source = case.source
        a, b = np.full((1, 16, 32), 127, np.int8), np.full((1, 32, 8), 127, np.int8)
        c = np.full((1, 16, 8), 2**31 - 1, np.int32)
        d = np.zeros_like(case.pack("c", c))
        run(cases.compiled(source, case.symbol, "sm_80"), (1, 1, 1), 32, [case.pack("a", a), case.pack("b", b), case.pack("c", c), d])
        assert (case.unpack(d) == expected).all()


def test_tf32_ignores_the_low_bits():
    case = next(case for case in cases.MMAS if case.a == "tf32")
    m, n, k = case.extents
    a = np.full((1, m, k), 1, np.float32)
    a.view(np.uint32)[:] |= 0x1FFF
    b, c = np.ones((1, k, n), np.float32), np.zeros((1, m, n), np.float32)
    assert (execute(case, a, b, c) == k).all()


@pytest.mark.parametrize("text", [
    "mma.sync.aligned.m16n8k16.col.col.f32.f16.f16.f32 {%r1}, {%r1}, {%r1}, {%r1};",
    "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0 {%r1}, {%r1}, {%r1}, {%r1};",
    "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r1, %r1}, [%r1];",
    "wmma.load.a.sync.aligned.col.m8n8k32.global.s4 {%r1}, [%r1];",
])  # fmt: skip
def test_what_is_not_known_is_named(text):
    with pytest.raises(RunError, match="does not know the instruction"):
        run(kernel(f".reg .b32 %r<4>;\n{text}\nret;"), (1, 1, 1), 32, [np.zeros(4, np.uint32)])


def test_a_matrix_instruction_needs_the_whole_warp():
    source = cases.MMAS[0].source.replace("  asm volatile", "  if (threadIdx.x < 20)\n  asm volatile")
    case = cases.MMAS[0]
    arrays = [np.zeros((1, 32, case.registers(x)), np.uint32) for x in "abcc"]
    with pytest.raises(RunError, match="only 20 of the 32 threads of a warp execute `mma`") as error:
        run(cases.compiled(source, case.symbol, case.arch), (1, 1, 1), 32, arrays)
    unset, ended = error.value.findings  # the other 12 have run ahead, and store what no instruction gave them
    assert (unset.kind, ended.kind) == ("uninitialized", "divergent-barrier") and error.value.line


def test_warps_may_part_at_a_matrix_instruction():
    """Odd warps skip the product and keep what they had."""
    case = cases.MMAS[0]
    source = case.source.replace("  asm volatile", "  rd[0] = rd[1] = rd[2] = rd[3] = 7;\n  if (threadIdx.x / 32 % 2 == 0)\n  asm volatile")
    a, b, c = cases.data("f16", (6, 16, 16), 1), cases.data("f16", (6, 16, 8), 2), cases.data("f32", (6, 16, 8), 3)
    d = np.zeros_like(case.pack("c", c))
    args = [case.pack("a", a), case.pack("b", b), case.pack("c", c), d]
    run(cases.compiled(source, case.symbol, case.arch), (2, 1, 1), 96, args)
    odd = np.array([False, True, False] * 2)
    assert (d[odd] == 7).all()
    assert np.allclose(case.unpack(d)[~odd], cases.product(a, b, c)[0][~odd], atol=1e-5)


# --- wmma --------------------------------------------------------------------------------------------------------------


@functools.cache
def all_wmmas(arch):
    return cases.WMMA_HEADER + "\n".join(case.source for case in cases.WMMAS if case.arch == arch)


@pytest.mark.parametrize("wild", [False, True], ids=["even", "wild"])
@pytest.mark.parametrize("case", cases.WMMAS, ids=lambda case: case.symbol)
def test_wmma_in_every_layout_from_global_and_shared_memory(case, wild):
    a, b, c, out = case.arguments(5, wild)
    made = cases.compiled(all_wmmas(case.arch), case.symbol, case.arch)
    shared = 2 * (a[0].nbytes + b[0].nbytes + c[0].nbytes)
    outcome = run(made, (1, 1, 1), 32, [a, b, c, out], shared=shared)
    assert outcome.findings == []
    m, n, k = case.m, case.n, case.k
    exact, size = cases.product(a[0, :m, :k], b[0, :k, :n], c[0, :m, :n])
    for i, result in enumerate(out):
        got = result[:m, :n] if i % 8 < 4 else result[:n, :m].T
        assert (np.abs(got.astype(np.float64) - exact) <= cases.allowed(case.d, case.a, size, k)).all(), f"combination {i}"
        assert np.array_equal(got, out[0, :m, :n]), f"combination {i}"
    outside = out.copy()
    outside[:4, :m, :n] = outside[8:12, :m, :n] = outside[4:8, :n, :m] = outside[12:, :n, :m] = 0
    assert not outside.any()


def test_wmma_of_four_bit_integers_and_bits():
    source = """
    #include <mma.h>
    using namespace nvcuda::wmma;
    extern "C" __global__ void f(const int* a, const int* b, int* d, int* x) {
        fragment<matrix_a, 8, 8, 32, experimental::precision::s4, row_major> fa;
        fragment<matrix_b, 8, 8, 32, experimental::precision::s4, col_major> fb;
        fragment<accumulator, 8, 8, 32, int> fd;
        fill_fragment(fd, 3);
        load_matrix_sync(fa, a, 64);
        load_matrix_sync(fb, b, 32);
        mma_sync(fd, fa, fb, fd);
        store_matrix_sync(d, fd, 8, mem_row_major);
        fragment<matrix_a, 8, 8, 128, experimental::precision::b1, row_major> ba;
        fragment<matrix_b, 8, 8, 128, experimental::precision::b1, col_major> bb;
        fragment<accumulator, 8, 8, 128, int> bd;
        fill_fragment(bd, 0);
        load_matrix_sync(ba, a, 128);
        load_matrix_sync(bb, b, 128);
        bmma_sync(bd, ba, bb, bd, experimental::bmmaBitOpAND);
        store_matrix_sync(x, bd, 8, mem_row_major);
    }"""
    random = np.random.default_rng(4)
    a, b = random.integers(0, 2**32, 64, dtype=np.uint32), random.integers(0, 2**32, 32, dtype=np.uint32)
    d, x = np.zeros((8, 8), np.int32), np.zeros((8, 8), np.int32)
    run(compile_source(source, None, "sm_80"), (1, 1, 1), 32, [a, b, d, x])

    def signed(words):
        return ((words[:, None] >> np.arange(0, 32, 4, dtype=np.uint32) & 15 ^ 8).astype(np.int64) - 8).reshape(8, -1)

    assert np.array_equal(d, signed(a)[:, :32] @ signed(b).T + 3)

    def bits(words):
        return np.unpackbits(words.view(np.uint8), bitorder="little").reshape(8, 128).astype(np.int64)

    assert np.array_equal(x, bits(a[:32]) @ bits(b).T)


@pytest.mark.parametrize("case", cases.WMMAS, ids=lambda case: case.symbol)
@pytest.mark.parametrize("operand", "abc")
def test_wmma_fragments_hold_every_element_once(case, operand):
    part = wmma_fragment(Shape("", case.m, case.n, case.k, case.a, case.a, case.d), operand)
    assert (part.height, part.width) == {"a": (case.m, case.k), "b": (case.k, case.n), "c": (case.m, case.n)}[operand]
    places = part.rows * part.width + part.columns
    assert sorted(places.ravel().tolist()) == list(range(part.height * part.width))


@pytest.mark.parametrize("case", [*cases.MMAS, *cases.VOLTAS], ids=lambda case: case.name)
def test_the_tables_agree_with_the_isa(case):
    (shape,) = shapes([case.opcode])
    for operand in "abc":
        part = fragment(shape, operand)
        rows, columns = case.places(operand)
        assert np.array_equal(part.rows, rows) and np.array_equal(part.columns, columns)
        assert part.registers == case.registers(operand)


# --- ldmatrix, stmatrix, movmatrix ---------------------------------------------------------------------------------------

LDMATRIX = """
template <int N, bool T>
__device__ void load(unsigned at, unsigned* out) {
    unsigned r[4] = {};
    if (N == 1 && !T) asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(at));
    if (N == 1 && T) asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(at));
    if (N == 2 && !T) asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(at));
    if (N == 2 && T) asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared::cta.b16 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(at));
    if (N == 4 && !T) asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
    if (N == 4 && T) asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
    for (int i = 0; i < 4; i++) out[threadIdx.x * 4 + i] = r[i];
}
extern "C" __global__ void f(const unsigned short* in, const int* rows, unsigned* out) {
    __shared__ __align__(16) unsigned short s[2][32 * 8];
    const int t = threadIdx.x, w = t / 32;
    for (int i = t % 32; i < 256; i += 32) s[w][i] = in[w * 256 + i];
    __syncwarp();
    const unsigned at = (unsigned)__cvta_generic_to_shared(&s[w][rows[t] * 8]);
    load<1, false>(at, out); load<1, true>(at, out + 256);
    load<2, false>(at, out + 512); load<2, true>(at, out + 768);
    load<4, false>(at, out + 1024); load<4, true>(at, out + 1280);
}
"""


def test_ldmatrix_gives_rows_or_columns_of_the_rows_it_is_shown():
    random = np.random.default_rng(7)
    values = random.permutation(512).astype(np.uint16).reshape(2, 32, 8)
    rows = np.concatenate([random.permutation(32), random.permutation(32)]).astype(np.int32)
    out = np.zeros((6, 2, 32, 4), np.uint32)
    outcome = run(compile_source(LDMATRIX, None, "sm_75"), (1, 1, 1), 64, [values, rows, out])
    assert outcome.findings == []
    for n, turned, result in ((1, 0, out[0]), (1, 1, out[1]), (2, 0, out[2]), (2, 1, out[3]), (4, 0, out[4]), (4, 1, out[5])):
        for warp in range(2):
            for i in range(4):
                shown = values[warp, rows[32 * warp + 8 * i : 32 * warp + 8 * i + 8]]  # the eight rows of matrix i
                element = shown.T if turned else shown
                for lane in range(32):
                    low, high = element[lane // 4, lane % 4 * 2], element[lane // 4, lane % 4 * 2 + 1]
                    assert result[warp, lane, i] == (int(low) | int(high) << 16 if i < n else 0)


STMATRIX = """
extern "C" __global__ void f(const unsigned* in, unsigned short* out, unsigned* turned) {
    __shared__ __align__(16) unsigned short s[2][64 * 8];
    const int t = threadIdx.x;
    const uint4 r = ((const uint4*)in)[t];
    const unsigned at = (unsigned)__cvta_generic_to_shared(&s[0][(t ^ 5) * 8]);
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" :: "r"(at), "r"(r.x), "r"(r.y), "r"(r.z), "r"(r.w));
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 :: "r"(at + 1024), "r"(r.x), "r"(r.y), "r"(r.z), "r"(r.w));
    __syncthreads();
    for (int i = t; i < 1024; i += 64) out[i] = s[i / 512][i % 512];
    unsigned d;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(r.x));
    turned[t] = d;
}
"""


def test_stmatrix_and_movmatrix():
    values = np.random.default_rng(8).integers(0, 2**32, (2, 32, 4), dtype=np.uint32)
    out, turned = np.zeros((2, 64, 8), np.uint16), np.zeros((2, 32), np.uint32)
    made = compile_source(STMATRIX, None, "sm_90")
    outcome = run(made, (1, 1, 1), 64, [values, out, turned], Collect())
    assert outcome.findings == []
    for warp in range(2):
        for i in range(4):
            matrix_ = np.ascontiguousarray(values[warp, :, i]).view(np.uint16).reshape(8, 8)
            rows = [(32 * warp + 8 * i + r) ^ 5 for r in range(8)]
            assert np.array_equal(out[0, rows], matrix_) and np.array_equal(out[1, rows], matrix_.T)
            if i == 0:
                assert np.array_equal(turned[warp].view(np.uint16).reshape(8, 8), matrix_.T)
    # 4 wavefronts for 4 matrices: 64 rows of 16 bytes, one after the other (the exchange stays within a matrix)
    line = next(n for n, text in enumerate(STMATRIX.split("\n"), 1) if "stmatrix" in text)
    assert outcome.by_line[line]["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"] == 8


BROKEN = """
extern "C" __global__ void f(const uint4* in, unsigned* out, int shift) {
    __shared__ uint4 s[80];
    const int t = threadIdx.x;
    BEFORE
    unsigned r[4];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"  // the load
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((unsigned)__cvta_generic_to_shared(s) + (t * 16 ^ 512) + shift));
    out[t] = r[0] + r[1] + r[2] + r[3];
}
"""


@pytest.mark.parametrize("before, shift, kind", [
    ("s[t] = in[t];", 0, "race"),
    ("s[t] = in[t]; __syncwarp();", 0, "race"),
    ("", 0, "uninitialized"),
    ("s[t] = in[t]; __syncthreads();", 0, None),
    ("s[t] = in[t]; __syncthreads();", 4096, "out-of-bounds"),
    ("s[t] = in[t]; __syncthreads();", 8, "misaligned"),
])  # fmt: skip
def test_what_a_sanitizer_says_of_ldmatrix(before, shift, kind):
    source = BROKEN.replace("BEFORE", before)
    made = compile_source(source, None, "sm_80")
    args = [np.ones((64, 4), np.uint32), np.zeros(64, np.uint32), shift]
    try:
        findings = run(made, (1, 1, 1), 64, args).findings
    except RunError as error:
        assert kind == "misaligned"
        findings = error.findings
    assert sorted({finding.kind for finding in findings}) == ([kind] if kind else [])
    if kind:
        line = next(n for n, text in enumerate(source.split("\n"), 1) if "the load" in text)
        assert findings[0].line in (line, line + 1)


def test_a_swizzle_that_reads_the_rows_of_its_own_warp_needs_a_warp_barrier_only():
    source = BROKEN.replace("t * 16 ^ 512", "t * 16 ^ 64")

    def args():
        return [np.ones((64, 4), np.uint32), np.zeros(64, np.uint32), 0]

    assert run(compile_source(source.replace("BEFORE", "s[t] = in[t]; __syncwarp();"), None, "sm_80"), (1, 1, 1), 64, args()).findings == []
    found = run(compile_source(source.replace("BEFORE", "s[t] = in[t];"), None, "sm_80"), (1, 1, 1), 64, args()).findings
    assert [finding.kind for finding in found] == ["race"]


# --- whole products -------------------------------------------------------------------------------------------------------


def multiply(case, m, n, k, wild=False, collect=QUIET):
    args = case.arguments(m, n, k, 11, wild)
    made = cases.compiled(case.source, case.symbol, case.arch)
    outcome = run(made, case.grid(m, n), case.threads, args, collect, case.shared)
    return outcome, args


@pytest.mark.parametrize("wild", [False, True], ids=["even", "wild"])
@pytest.mark.parametrize("case", matrix_products.GEMMS, ids=lambda case: f"{case.name}-{case.d}")
def test_products_are_within_the_stated_bound(case, wild):
    m, n, k = 128, 64, 256
    if case.d == "f16" and wild:
        k = 32  # C must stay in the range of f16
    outcome, (*_, a, b, c) = multiply(case, m, n, k, wild)
    assert outcome.findings == []
    exact, size = cases.product(a, b.T if case.transposed else b, np.zeros((m, n)))
    steps = k // {"tf32": 8, "s8": 16}.get(case.a, 16)
    assert (np.abs(c.astype(np.float64) - exact) <= cases.allowed(case.d, case.a, size, k, steps)).all()
    assert not np.array_equal(exact, 0)


@pytest.mark.parametrize("arch", ["sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize("case", [matrix_products.GEMMS[0], matrix_products.mma_gemm("bf16")], ids=lambda case: case.name)
def test_both_dialects_of_ptx_and_the_default_engine(case, arch):
    args = case.arguments(64, 64, 64, 3)
    made = cases.compiled(case.source, case.symbol, arch)
    outcome = simulate(made, (1, 1, 1), (case.threads, 1, 1), args)
    assert outcome.findings == [] and outcome.counters[LDSM] > 0
    *_, a, b, c = args
    assert np.allclose(c, cases.product(a, b.T if case.transposed else b, 0)[0], atol=1e-4)


def test_a_trace_shows_the_addresses_of_the_rows():
    values, rows = np.arange(512, dtype=np.uint16), np.arange(64, dtype=np.int32) % 32
    out = np.zeros((6, 64, 4), np.uint32)
    made = compile_source(LDMATRIX, None, "sm_75")
    trace = run(made, (1, 1, 1), 64, [values, rows, out], Collect(trace=TraceFilter())).trace.select(op="ldmatrix")
    assert len(trace.accesses) == 12 and {site.width for site in trace.sites if site.op == "ldmatrix"} == {16}
    for access, addresses in zip(trace.accesses, trace.addresses, strict=True):
        count = int(trace.sites[access["site"]].opcode.split(".x")[1][0])
        assert addresses[: 8 * count].tolist() == [512 * access["warp"] + 16 * lane for lane in range(8 * count)]
        assert (addresses[8 * count :] == -1).all()


@pytest.mark.parametrize("pitch, swizzle, per_load", [(128, 0, 32), (144, 0, 4), (128, 1, 4), (160, 0, 8)])
def test_ldmatrix_conflicts_of_padded_plain_and_swizzled_tiles(pitch, swizzle, per_load):
    """Rows of 128 bytes lie in the same banks: 8 wavefronts per matrix. 16 bytes of padding, or a swizzle: one each."""
    case = matrix_products.mma_gemm("f16", pitch, swizzle)
    outcome, _ = multiply(case, 64, 64, 128, collect=Collect())
    loads = 2 * 4 * 4 * 4  # slices of K, steps in each, ldmatrix in each step, warps
    counters = outcome.counters
    assert counters[LDSM] == loads and counters.get("smsp__inst_executed_op_shared_ld.sum", 0) == 0
    assert counters[LD] == loads * per_load and counters[LD_CONFLICTS] == loads * (per_load - 4)
    assert not outcome.estimate and counters["sass__inst_executed_per_opcode.HMMA"] == 2 * 4 * 8 * 4


@pytest.mark.parametrize("case", matrix_products.GEMMS, ids=lambda case: f"{case.name}-{case.d}")
def test_matrix_loads_cost_what_the_machine_code_costs(case, monkeypatch):
    """Counted while the PTX runs, and counted again from the addresses of the SASS."""
    from helpers.sim import launch
    from helpers.sim.counting import machine_code

    exact, _ = multiply(case, 64, 64, 128, collect=Collect())
    assert exact.uncounted == "" and not exact.estimate
    monkeypatch.setattr(launch.machine_code, "refine", lambda totals, by_line, *rest, **more: (totals, by_line, ""))
    alone, _ = multiply(case, 64, 64, 128, collect=Collect())
    counts, why = machine_code.instruction_counts(
        cases.compiled(case.source, case.symbol, case.arch),
        case.grid(64, 64),
        (case.threads, 1, 1),
        case.arguments(64, 64, 128),
        accesses=True,
    )
    assert why == ""
    machine, _ = machine_code.counters(counts)
    for name in (
        LD,
        LD_CONFLICTS,
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
        "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    ):
        if case.name in ("wmma-bf16", "wmma-tf32") and name in (LD, LD_CONFLICTS, "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"):
            assert name not in machine  # mma.h gives these loads generic addresses, which the slice of the SASS cannot follow
            assert alone.counters[name] == exact.counters[name] > 0 or name == LD_CONFLICTS
            continue
        assert alone.counters[name] == machine[name] == exact.counters[name], name


@pytest.mark.parametrize("case", cases.WMMAS, ids=lambda case: case.symbol)
def test_wmma_accesses_cost_what_the_machine_code_costs(case, monkeypatch):
    """In every layout, from both memories, wherever the SASS's addresses can be told."""
    from helpers.sim import launch
    from helpers.sim.counting import machine_code

    monkeypatch.setattr(launch.machine_code, "refine", lambda totals, by_line, *rest, **more: (totals, by_line, ""))
    made = cases.compiled(all_wmmas(case.arch), case.symbol, case.arch)
    args = case.arguments(1, False)
    shared = 2 * sum(pair[0].nbytes for pair in args[:3])
    counts, why = machine_code.instruction_counts(made, (1, 1, 1), (32, 1, 1), args, accesses=True)
    outcome = run(made, (1, 1, 1), 32, args, Collect(findings=False), shared)
    if counts is None:
        assert why.startswith("a branch depends on data")
        return
    machine, _ = machine_code.counters(counts)
    memory = [name for name in machine if "l1tex" in name or "memory_l1" in name]
    assert memory
    assert {name: outcome.counters[name] for name in memory} == {name: machine[name] for name in memory}


def test_units_cover_a_fragment_once():
    for m, n in ((16, 16), (32, 8), (8, 32)):
        for kind, operand in (("f16", "a"), ("f16", "b"), ("s8", "a"), ("f32", "c")):
            part = wmma_fragment(Shape("", m, n, 16, kind if operand != "c" else "f16", kind if operand != "c" else "f16", "f32"), operand)
            for by_row in (True, False):
                bits = 32 if operand == "c" else {"f16": 16, "s8": 8}[kind]
                touched = []
                for unit in mma._units(part, bits, by_row):
                    for e in range(unit.count):
                        rows, columns = (unit.rows, unit.columns + e) if by_row else (unit.rows + e, unit.columns)
                        touched += (rows * part.width + columns).tolist()
                assert sorted(touched) == list(range(part.height * part.width))


PIPELINE = """
    auto fetch = [&](int s, int k0) {
        for (int i = t; i < 64 * 8; i += 128) {
            const int r = i / 8, p = i % 8, at = s * 64 * PITCH + place(r, p);
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(a0 + at), "l"(&A[(size_t)(row + r) * bytes + k0 + 16 * p]));
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(b0 + at), "l"(&B[(size_t)(col + r) * bytes + k0 + 16 * p]));
        }
        asm volatile("cp.async.commit_group;");
    };
    fetch(0, 0);
    for (int k0 = 0, s = 0; k0 < bytes; k0 += 128, s ^= 1) {
        if (k0 + 128 < bytes) { fetch(s ^ 1, k0 + 128); asm volatile("cp.async.wait_group PENDING;"); }
        else asm volatile("cp.async.wait_group 0;");
        BARRIER
"""


@pytest.mark.parametrize(
    "pending, barrier, kind", [("1", "__syncthreads();", None), ("2", "__syncthreads();", "missing-wait"), ("1", "", "race")]
)
def test_two_stages_of_asynchronous_copies(pending, barrier, kind):
    """The swizzled product with double buffering: clean as it should be written, and each omission is found."""
    case = matrix_products.mma_gemm("f16")
    start, end = case.source.index("    for (int k0 = 0"), case.source.index("        for (int k = 0; k < 4; k++)")
    source = case.source[:start] + PIPELINE.replace("PENDING", pending).replace("BARRIER", barrier) + case.source[end:]
    for old, new in (("As[64 * PITCH], Bs[64 * PITCH]", "As[2][64 * PITCH], Bs[2][64 * PITCH]"),
                     ("a0 + place(wr", "a0 + s * 64 * PITCH + place(wr"), ("b0 + place(wc", "b0 + s * 64 * PITCH + place(wc")):  # fmt: skip
        assert old in source
        source = source.replace(old, new)
    args = case.arguments(128, 128, 256)
    outcome = run(compile_source(source, None, "sm_80"), (2, 2, 1), 128, args, Collect())
    assert {finding.kind for finding in outcome.findings} == ({kind} if kind else set())
    if kind is None:
        *_, a, b, c = args
        assert np.allclose(c, cases.product(a, b.T, 0)[0], atol=1e-4)
        assert outcome.counters[LD_CONFLICTS] == 0 and outcome.uncounted == ""
