"""Counting instructions from the control flow of the machine code.

Tests of: helpers.sim.code.sass_operands, helpers.sim.counting.machine_code.changes,
helpers.sim.counting.machine_code.constants, helpers.sim.counting.machine_code.costs,
helpers.sim.counting.machine_code.semantics.doubles, helpers.sim.counting.machine_code.slicing,
helpers.sim.counting.machine_code.values
"""

import time
from types import SimpleNamespace

import numpy as np
import pytest

from helpers.sim import Budget, simulate
from helpers.sim.code import time_limit
from helpers.sim.counting import machine_code, names
from helpers.toolchain.compile import compile_source
from tests.sim.counting import probes

ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120")


def calibration(kernel, arch="sm_90"):
    return probes.compiled("calibration.cu", kernel, arch)


EXPECTED = {"naive": 19_529_728, "coalesced": 19_529_728, "tile2d": 4_892_288, "banks": 173}


@pytest.mark.parametrize("case", probes.CASES[:4], ids=lambda c: c.kernel)
def test_executed_instructions_of_the_calibration_kernels(case):
    counts, why = machine_code.instruction_counts(calibration(case.kernel), case.grid, case.block, case.arrays())
    assert why == "" and counts.total == EXPECTED[case.kernel]
    assert sum(counts.by_opcode.values()) == counts.total == sum(counts.by_ptx_line.values())
    if case.kernel != "banks":
        assert counts.threads["FFMA"] == 512**3
    assert counts.accesses is None and "memory_l1_wavefronts_shared" not in machine_code.counters(counts)[0]


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("case", probes.CASES[:3], ids=lambda c: c.kernel)
def test_other_architectures_access_the_same_memory(case, arch):
    """ptxas unrolls differently for each; what the kernel reads and writes stays."""
    compiled = calibration(case.kernel, arch)
    counts, why = machine_code.instruction_counts(compiled, case.grid, case.block, case.arrays(), blocks=[0, 3, 9], accesses=True)
    assert why == "" and not counts.unknown_accesses
    assert counts.threads["FFMA"] == 3 * 512**3 // (case.grid[0] * case.grid[1])
    got, by_line = machine_code.counters(counts, compiled)
    reference = calibration(case.kernel)
    expected, _ = machine_code.counters(
        machine_code.instruction_counts(reference, case.grid, case.block, case.arrays(), blocks=[0, 3, 9], accesses=True)[0], reference
    )
    for name in expected:
        if "mem_global" in name or "wavefronts" in name or "conflicts" in name:
            assert got[name] == expected[name], name
    for name in ("smsp__inst_executed.sum", "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"):
        assert sum(values.get(name, 0) for values in by_line.values()) == got[name]


def test_a_branch_on_data_is_not_guessed():
    source = (
        'extern "C" __global__ void k(const int* a, int* c) { int s = 0; for (int i = 0; i < a[0]; i++) s += a[i]; c[threadIdx.x] = s; }'
    )
    compiled = compile_source(source)
    counts, why = machine_code.instruction_counts(compiled, (1,), (32,), [np.zeros(32, np.int32), np.zeros(32, np.int32)])
    assert counts is None and "data" in why
    before, lines = {"ptx_instructions": 7}, {1: {"ptx_instructions": 7}}
    assert machine_code.refine(before, lines, compiled, (1,), (32,), [np.zeros(32, np.int32)] * 2) == (before, lines, why)


@pytest.mark.parametrize(
    ("body", "types", "unknown"),
    [
        ("c[i] = a[i] / b[i];", "float", {"ffma"}),  # of its numbers depends whether it calls what is for rare ones
        ("c[i] = sqrtf(a[i]);", "float", {"ffma", "fmul"}),
        ("c[i] = a[i] / b[i];", "double", {"ffma", "fadd"}),  # on its way it looks at an exponent as at a float
        ("c[i] = a[i] / b[i];", "long long", set()),
        ("for (int k = 0; k < a[i]; k++) s += b[k] * b[i]; c[i] = s;", "float", set()),
        ("for (int k = 0; k < a[i]; k++) s += __expf(b[k] * b[i]); c[i] = s;", "float", {"fmul"}),  # one of them is within __expf
    ],
)
def test_arithmetic_that_neither_ptx_nor_machine_code_can_tell_is_left_out(body, types, unknown):
    """Where the machine code's way depends on data, what the PTX says of multiply-adds stands only if ptxas made the same of them."""
    compiled = compile_source(
        f'extern "C" __global__ void k(const {types}* a, const {types}* b, {types}* c) {{ int i = threadIdx.x; {types} s = 0; {body} }}'
    )
    dtype = {"float": np.float32, "double": np.float64, "long long": np.int64}[types]
    outcome = simulate(compiled, (1, 1, 1), (32, 1, 1), [np.full(32, 3, dtype), np.arange(3, 35, dtype=dtype), np.zeros(32, dtype)])
    assert "depends on data" in outcome.uncounted
    assert {op for op in ("ffma", "fadd", "fmul") if names.threads(op) not in outcome.counters} >= unknown
    assert (names.threads("ffma") in outcome.counters) == ("ffma" not in unknown)
    if "b[k] * b[i]; c" in body:
        assert outcome.counters[names.threads("ffma")] == 3 * 32 == outcome.by_line[1][names.threads("ffma")]
    assert not any(name in line for line in outcome.by_line.values() for name in map(names.threads, unknown))


@pytest.mark.parametrize(
    ("body", "known"),
    [
        ("int old = *(volatile int*)c, seen; do { seen = old; old = atomicCAS(c, seen, seen + 3); } while (old != seen);", False),
        ("if (i % 32 == 0) { while (atomicExch(c, 1)) ; c[1]++; __threadfence(); atomicExch(c, 0); }", False),
        ("int sum = 0; for (int k = 0; k < 5; k++) sum += atomicAdd(c + k, 1); c[8 + i] = sum;", True),
        ("int sum = 0; for (int k = 0; k < a[i]; k++) sum += atomicAdd(c + k, 1); c[8 + i] = sum;", True),
        ("for (int k = i; k < a[i]; k += 3) { if (atomicAdd(c + k, 1) == 5) continue; c[40 + k] = 1; __threadfence(); }", True),
    ],
)
def test_how_often_an_atomic_operation_is_tried_depends_on_who_comes_between(body, known):
    compiled = compile_source(f'extern "C" __global__ void k(int* a, int* c) {{ int i = threadIdx.x; {body} }}')
    outcome = simulate(compiled, (2, 1, 1), (32, 1, 1), [np.full(32, 2, np.int32), np.zeros(64, np.int32)])
    assert (names.requests("global", "atom") in outcome.counters) == known == (names.requests("global", "atom") not in outcome.unknown)
    assert names.requests("global", "ld") in outcome.counters or not known


def test_integer_divisions_are_counted():
    compiled = compile_source('extern "C" __global__ void k(const int* a, int* c, int n) { c[threadIdx.x] = a[threadIdx.x] / n % 7; }')
    outcome = simulate(compiled, (1, 1, 1), (32, 1, 1), [np.ones(32, np.int32), np.zeros(32, np.int32), 5])
    assert outcome.uncounted == "" and outcome.counters[names.threads("ffma")] == 0 and outcome.counters[names.opcode("MUFU")] == 1


def test_a_store_at_an_address_from_memory_is_left_out_not_guessed():
    source = 'extern "C" __global__ void k(const int* a, int* c) { c[a[threadIdx.x]] = 1; }'
    compiled = compile_source(source)
    counts, why = machine_code.instruction_counts(compiled, (1,), (32,), [np.zeros(32, np.int32)] * 2, accesses=True)
    assert why == "" and len(counts.unknown_accesses) == 1
    totals, _ = machine_code.counters(counts, compiled)
    assert totals["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == 4
    assert not any("op_st" in name for name in totals)


def test_an_endless_loop_ends_in_a_sentence():
    source = 'extern "C" __global__ void k(int* c, int n) { while (n) { c[threadIdx.x] += n; } }'
    compiled = compile_source(source)
    counts, why = machine_code.instruction_counts(compiled, (1,), (32,), [np.zeros(32, np.int32), 1], budget=1000)
    assert counts is None and "1000" in why


def test_refined_counters_replace_those_of_the_same_name_and_keep_the_rest():
    case = probes.CASES[2]
    compiled = calibration("tile2d")
    totals, by_line, why = machine_code.refine(
        {"smsp__inst_executed_op_shared_ld.sum": 1, "ptx_instructions": 5}, {3: {"ptx_instructions": 5}}, compiled, case.grid, case.block,
        case.arrays(), blocks=[0, 1], scale=8.0,
    )  # fmt: skip
    assert why == ""
    assert totals["smsp__inst_executed_op_shared_ld.sum"] == 262_144 and totals["ptx_instructions"] == 5
    assert totals["smsp__inst_executed.sum"] == EXPECTED["tile2d"]
    assert by_line[3]["ptx_instructions"] == 5


def assembled(*instructions):
    """A kernel `k` without parameters, as nvdisasm prints it; 'L:' before an instruction labels it."""
    text = ['.section\t.text.k,"ax"']
    for number, instruction in enumerate(instructions):
        label, _, rest = instruction.rpartition(": ")
        text += [f"{label}:"] * bool(label) + [f"        /*{16 * number:04x}*/                   {rest} ;"]
    return SimpleNamespace(ptx=".visible .entry k()\n{\n}\n", sass="\n".join(text) + "\n", symbol="k", arch="sm_90", cubin=b"")


def test_threads_that_come_to_a_collective_apart_execute_it_together_and_go_on_apart():
    compiled = assembled(
        "S2R R0, SR_TID.X", "ISETP.GE.AND P0, PT, R0, 0x10, PT", "MOV R5, 0xffffffff", "@P0 BRA `(.L_1)", "NOP",
        ".L_1: WARPSYNC.COLLECTIVE R5, `(.L_2)", "VOTE.ANY P1, P0", "ENDCOLLECTIVE", ".L_2: EXIT",
    )  # fmt: skip
    counts, why = machine_code.instruction_counts(compiled, (1, 1, 1), (64, 1, 1), [])
    assert why == ""
    # Of the two warps one parts; its halves meet in the collective.
    assert counts.by_opcode == {"S2R": 2, "ISETP": 2, "MOV": 2, "BRA": 2, "NOP": 1, "WARPSYNC": 3, "VOTE": 2, "ENDCOLLECTIVE": 2, "EXIT": 3}


def test_a_loop_over_the_different_values_of_a_warp_ends_and_the_warp_stays_together():
    """As ptxas makes it where lanes give different operands to an instruction that takes one for the warp."""
    compiled = assembled(
        "S2R R0, SR_TID.X", "LOP3.LUT R2, R0, 0x3, RZ, 0xc0, !PT", "PLOP3.LUT P1, PT, PT, PT, PT, 0x80, 0x0",
        ".L_1: PLOP3.LUT P0, PT, P0, P1, PT, 0xa2, 0x0", "@P1 R2UR P0, UR8, R2", "@P1 PLOP3.LUT P1, PT, P0, PT, PT, 0x80, 0x0",
        "PLOP3.LUT P0, PT, PT, PT, PT, 0x80, 0x0", "SYNCS.EXCH.64 URZ, [UR8], UR4", "@P1 BRA.U.ANY `(.L_1)", "NOP", "EXIT",
    )  # fmt: skip
    counts, why = machine_code.instruction_counts(compiled, (1, 1, 1), (64, 1, 1), [], budget=100)
    assert why == "" and (counts.by_opcode["SYNCS"], counts.by_opcode["NOP"]) == (2 * 4, 2)


def test_fmas_of_16_bit_pairs_run_on_the_tensor_pipe_and_sums_do_not():
    compiled = assembled("HFMA2 R0, -RZ, RZ, 1, 1", "HADD2 R2, R0, R0", "HFMA2.MMA R4, R0, R0, R2", "EXIT")
    counts, _ = machine_code.instruction_counts(compiled, (1, 1, 1), (64, 1, 1), [])
    totals, _ = machine_code.counters(counts)
    assert {name: value for name, value in totals.items() if "tensor" in name} == {"smsp__inst_executed_pipe_tensor.sum": 4}


def test_whether_registers_were_given_is_not_what_the_predicate_was_before():
    compiled = assembled(
        "UISETP.NE.AND UP0, UPT, URZ, URZ, UPT", ".L_1: USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xf0",
        "PLOP3.LUT P0, PT, PT, PT, UP0, 0x80, 0x0", "@!P0 BRA `(.L_1)", "EXIT",
    )  # fmt: skip
    counts, why = machine_code.instruction_counts(compiled, (1, 1, 1), (32, 1, 1), [], budget=100)
    assert counts is None and "depends on data" in why


@pytest.mark.parametrize("budget", [100, 5000])
def test_counting_a_spin_stops_at_its_budget(budget):
    """A loop for registers whose outcome nobody looks at never ends."""
    spin = assembled("MOV R0, RZ", ".L_1: USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xf0", "IADD3 R0, R0, 0x1, RZ", "BRA `(.L_1)", "EXIT")
    start = time.monotonic()
    counts, why = machine_code.instruction_counts(spin, (1, 1, 1), (32, 1, 1), [], budget=budget)
    assert counts is None and why == f"the launch takes more than {budget} basic blocks" and time.monotonic() - start < 10


@pytest.mark.parametrize("accesses", [False, True])
def test_counting_a_spin_stops_with_the_time_before_its_budget(accesses):
    spin = assembled(".L_1: USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xf0", "BRA `(.L_1)", "EXIT")
    start = time.monotonic()
    with pytest.raises(time_limit.TimeIsUp), time_limit.until(time_limit.now() + 0.3):
        machine_code.instruction_counts(spin, (1, 1, 1), (32, 1, 1), [], accesses=accesses, budget=1 << 60)
    assert time.monotonic() - start < 5


def test_counting_ends_with_the_time_of_the_launch():
    """What was executed is kept."""
    endless = assembled(".L_1: S2R R0, SR_TID.X", "BRA `(.L_1)")
    endless.ptx, endless.cubin = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n", b"there"
    start = time.monotonic()
    outcome = simulate(endless, (1, 1, 1), (32, 1, 1), [], budget=Budget(seconds=0.5), engine="numpy")
    assert "the time of the launch" in outcome.uncounted and outcome.counters and time.monotonic() - start < 5


@pytest.mark.parametrize(("scale", "rounds"), [(1.5, 180), (0.29, 35), (-1.0, 0)])
def test_bounds_may_be_float_arithmetic_on_scalars(scale, rounds):
    """A loop of ceil(n * scale + 0.25 * scale - 0.5) rounds; what it sums is data."""
    source = """__global__ void k(int n, float scale, const float* x, float* y) {
        int m = (int)ceilf(fmaf(n, scale, 0.25f * scale) - 0.5f);
        float sum = 0;
        #pragma unroll 1
        for (int i = 0; i < m; i++) sum = sum * scale + x[i & 31];
        y[threadIdx.x] = sum;
    }"""
    args = [120, np.float32(scale), np.zeros(32, np.float32), np.zeros(32, np.float32)]
    counts, why = machine_code.instruction_counts(compile_source(source), (1,), (32,), args)
    assert (why, counts.by_opcode.get("LDG", 0)) == ("", rounds)


@pytest.mark.parametrize(("bound", "rounds"), [
    ("ceil(n / 32.0)", 4), ("ceil((double)n / 7)", 18), ("floor(n * 0.25 - 0.5)", 29), ("(int)(n / 3.5 + (double)0.5f)", 34), ("fma((double)n, 2.0, 1.0)", 241),
    ("(unsigned long long)n * 1.0", 120), ("(float)(n * 0.1)", 12), ("-1.0 * n", 0),
])  # fmt: skip
def test_bounds_may_be_arithmetic_on_doubles(bound, rounds):
    """As many count tiles; what the loop sums is data."""
    source = f"""__global__ void k(int n, const float* x, double* y) {{
        double sum = 0;
        #pragma unroll 1
        for (int i = 0; i < {bound}; i++) sum = sum * 0.5 + x[i & 31];
        y[threadIdx.x] = sum;
    }}"""
    args = [120, np.zeros(32, np.float32), np.zeros(32)]
    counts, why = machine_code.instruction_counts(compile_source(source), (1,), (32,), args)
    assert (why, counts.by_opcode.get("LDG", 0)) == ("", rounds)


def test_scalars_may_be_made_16_bits_before_they_are_compared():
    source = """#include <cuda_fp16.h>
    __global__ void k(float alpha, float beta, __half* y) {
        __half a = __float2half(alpha), b = __float2half(beta);
        y[threadIdx.x] = __heq(b, __half(0)) ? a : __hfma(b, y[threadIdx.x], a);
    }"""
    for beta, loads in ((0.0, 0), (1e-9, 0), (0.5, 1)):  # what is nearer to 0 than to the least FP16
        args = [np.float32(2), np.float32(beta), np.zeros(32, np.float16)]
        counts, why = machine_code.instruction_counts(compile_source(source), (1,), (32,), args)
        assert (why, counts.by_opcode.get("LDG", 0)) == ("", loads)


def test_sums_in_fp16_leave_the_registers_behind_them_alone():
    """A matrix of them has half as many registers as one of FP32; the loop's counter is in one of the others."""
    source = """#include <mma.h>
    using namespace nvcuda::wmma;
    __global__ void k(int n, const __half* a, __half* c) {
        fragment<matrix_a, 16, 16, 16, __half, row_major> left;
        fragment<matrix_b, 16, 16, 16, __half, row_major> right;
        fragment<accumulator, 16, 16, 16, __half> sums[4];
        for (auto& sum : sums) fill_fragment(sum, __half(0));
        #pragma unroll 1
        for (int k = 0; k < n; k += 16) {
            load_matrix_sync(left, a + 16 * k, 16);
            for (int j = 0; j < 4; j++) {
                load_matrix_sync(right, a + 256 * j + k, 16);
                mma_sync(sums[j], left, right, sums[j]);
            }
        }
        for (int j = 0; j < 4; j++) store_matrix_sync(c + 256 * j, sums[j], 16, mem_row_major);
    }"""
    args = [160, np.zeros(1 << 13, np.float16), np.zeros(1024, np.float16)]
    counts, why = machine_code.instruction_counts(compile_source(source), (1,), (32,), args)
    assert (why, counts.by_opcode.get("HMMA")) == ("", 10 * 4 * 2)


def test_sixteen_bit_scalars_are_compared_as_what_they_are():
    source = """#include <cuda_fp16.h>
    __global__ void k(int n, __half alpha, __half* y, __half beta) {
        const int i = threadIdx.x;
        if (i < n) y[i] = __heq(beta, __float2half(0.f)) ? alpha : __hfma(beta, y[i], alpha);
    }"""
    compiled = compile_source(source)
    for beta, loads in ((0.0, 0), (-0.0, 0), (0.5, 1)):
        halves = [np.frombuffer(np.float16(value).tobytes(), "V2")[0] for value in (2.0, beta)]
        counts, why = machine_code.instruction_counts(compiled, (1,), (32,), [20, halves[0], np.zeros(32, np.float16), halves[1]])
        assert (why, counts.by_opcode.get("LDG", 0)) == ("", loads)


def test_a_ballot_holds_the_lanes_that_say_yes():
    """VOTE names the register and the predicate that it sets before what it asks."""
    source = """__global__ void k(int* c) {
        unsigned few = __ballot_sync(~0u, threadIdx.x < 5);
        if (few >> (threadIdx.x & 31) & 1) c[threadIdx.x] = few;
    }"""
    counts, why = machine_code.instruction_counts(compile_source(source), (1,), (64,), [np.zeros(64, np.int32)], accesses=True)
    totals, _ = machine_code.counters(counts)
    assert why == "" and counts.by_opcode["VOTE"] == 2
    assert totals["l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"] == totals["l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"] == 1


def test_spilled_values_stay_known_unless_somebody_may_have_written_there():
    code = ("LDC R1, c[0x0][0x28]", "IADD3 R1, R1, -0x8, RZ", "S2R R0, SR_TID.X", "STL.64 [R1], R0", "{}", "MOV R0, RZ", "LDL R2, [R1]",
            "ISETP.LT.U32.AND P0, PT, R2, 0x20, PT", "@P0 EXIT", "NOP", "EXIT")  # fmt: skip
    counts, why = machine_code.instruction_counts(assembled(*(c.format("NOP") for c in code)), (1, 1, 1), (96, 1, 1), [])
    assert why == "" and counts.by_opcode["NOP"] == 3 + 2 and counts.by_opcode["EXIT"] == 3 + 2
    generic = "ST.E desc[UR4][R4.64], R6"  # reaches the stack where somebody has made an address of it
    for stores, left in (([generic], 5), (["IADD3 R8, R1, 0x4, RZ", generic], None), (["STL [R3], R6"], None), (["STL.U8 [R1], R6"], None)):
        written = [line for c in code for line in (stores if c == "{}" else [c])]
        counts, why = machine_code.instruction_counts(assembled(*written), (1, 1, 1), (96, 1, 1), [])
        assert (why == "" and counts.by_opcode["NOP"] == left - 3) if left else (counts is None and "depends on data" in why), stores


@pytest.mark.parametrize(("code", "left"), [
    (("STL.S16 [R1], R0", "LDL R2, [R1]"), 2),  # the upper half means nothing
    (("STL [R1], R3", "STL.S16 [R1], R0", "LDL R2, [R1]"), 3),  # 0x50000 and more
    (("STL.U16 [R1], R4", "LDL.S16 R2, [R1]", "IADD3 R2, R2, 0x40, RZ"), 2),  # -0x40 and more
    (("STL.U16 [R1+0x2], R0", "STL.U16 [R1], R0", "LDL.U16 R2, [R1]"), None),  # two of them in a word are not followed
])  # fmt: skip
def test_numbers_of_16_bits_are_spilled_as_such(code, left):
    """How many of three warps stay behind a comparison with 0x20."""
    before = ("LDC R1, c[0x0][0x28]", "IADD3 R1, R1, -0x8, RZ", "S2R R0, SR_TID.X", "MOV R3, 0x50000", "IADD3 R4, R0, -0x40, RZ")
    after = ("ISETP.LT.U32.AND P0, PT, R2, 0x20, PT", "@P0 EXIT", "NOP", "EXIT")
    counts, why = machine_code.instruction_counts(assembled(*before, *code, *after), (1, 1, 1), (96, 1, 1), [])
    if left is None:
        assert counts is None and "depends on data" in why
    else:
        assert why == "" and counts.by_opcode["NOP"] == left


def test_a_view_off_the_beginning_takes_the_slow_way():
    """Where a kernel looks at the alignment of its pointers, so does the count."""
    compiled = compile_source("""__global__ void copy(const float* a, float* b) {
        if ((unsigned long long)a % 16 == 0) *(float4*)(b + 4 * threadIdx.x) = *(const float4*)(a + 4 * threadIdx.x);
        else for (int k = 0; k < 4; k++) b[32 * k + threadIdx.x] = a[32 * k + threadIdx.x];
    }""")
    a, b = np.zeros(132, np.float32), np.zeros(128, np.float32)
    for array, loads in ((a, 1), (a[4:], 1), (a[1:], 4)):
        counts, why = machine_code.instruction_counts(compiled, (1,), (32,), [array, b])
        assert why == "" and counts.by_opcode["LDG"] == loads
        run = simulate(compiled, (1, 1, 1), (32, 1, 1), [array, b])
        assert run.counters["sass__inst_executed_per_opcode.LDG"] == loads
        assert run.counters["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == loads


def test_copies_past_the_cache_are_counted_by_the_machine_code():
    """Lanes 2k and 2k+1 read two sectors of one line into one chunk of shared memory: the hardware counts one sector."""
    compiled = compile_source("""__global__ void copy(const float* a, float* b) {
        __shared__ __align__(16) float s[128];
        unsigned to = (unsigned)__cvta_generic_to_shared(s + 4 * threadIdx.x);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(a + 8 * threadIdx.x));
        asm volatile("cp.async.wait_all;");
        __syncthreads();
        b[threadIdx.x] = s[threadIdx.x];
    }""")
    run = simulate(compiled, (1, 1, 1), (32, 1, 1), [np.zeros(256, np.float32), np.zeros(32, np.float32)])
    assert run.counters["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == 1
    assert run.counters["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == 16


def test_wrong_arguments_are_named():
    compiled = calibration("banks")
    assert machine_code.instruction_counts(compiled, (1,), (32,), []) == (None, "the kernel has 1 parameters, not 0")


@pytest.mark.slow
def test_predicates_in_single_bits_of_a_register_decide_branches():
    """Of this variant ptxas keeps which way to load in one bit of a register that holds anything else in its others."""
    from helpers.course import steps
    from helpers.course.sweep import variant
    from helpers.run import gemm, kernel
    from helpers.run.launch_arguments import launch_arguments
    from helpers.sim.counting import names

    step = steps.get("double_buffer")
    made = kernel.compile(variant(step.kernel_path.read_text(encoding="utf-8"), BM=64, BN=64), entry=step.entry)
    shape = gemm.geometry(made)
    for k in (32, 31):  # rows that can be read four floats at a time, and rows that cannot
        problem = gemm.Problem(64, 64, k)
        arguments = made.checked(launch_arguments(made, problem, *problem.arrays()).arguments)
        counts, why = machine_code.instruction_counts(made.compiled, shape.grid(64, 64), shape.block, arguments, accesses=True)
        assert why == "" and counts.complete
        counted, executed = machine_code.counters(counts)[0], gemm.run(made, problem, on="cpu").counters
        for name in (names.requests("global", "ld"), names.sectors("global", "ld")):
            assert counted[name] == executed[name]


BY_LANE = """__global__ void k(const float* x, float* y, int n) {
    float v = 0;
    for (int i = 0; i < (int)threadIdx.x % n; i++) v += x[i * 4];
    y[blockIdx.x * 128 + threadIdx.x] = v;
}"""
READ = """__shared__ float s[128];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    float v = 0;
    for (int i = 0; i < n; i++) v += READ;
    y[blockIdx.x * 128 + threadIdx.x] = v;
}"""
GENERIC = "__global__ void k(const float* x, float* y, int n) {\n    const float* p;\n" + READ.replace(
    "READ", "(p = n > 32 ? (const float*)s : x, p[(i + threadIdx.x) & 127])"
)
OF_CLUSTER = """__device__ float dsmem(const float* p) {
    unsigned a = (unsigned)__cvta_generic_to_shared(p), b;
    asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(b) : "r"(a));
    float v;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(b) : "memory");
    return v;
}
__global__ void k(const float* x, float* y, int n) {
    """ + READ.replace("READ", "dsmem(&s[(i + threadIdx.x) & 127])")


@pytest.mark.parametrize(
    ("source", "n", "loads", "sectors", "wavefronts"),
    [(BY_LANE, 17, 496, 704, 0), (GENERIC, 64, 16, 64, 1024), (OF_CLUSTER, 64, 16, 64, 1024)],
    ids=["trips by lane", "a generic pointer", "shared::cluster"],
)
def test_a_launch_and_a_count_have_nsight_compute_s_numbers(source, n, loads, sectors, wavefronts):
    """As an H100 counted them. Of the first, ptxas unrolls the loop, and lanes leave it where the PTX has no place to leave."""
    import helpers
    from helpers.sim.counting import names

    kernel = helpers.compile(source)

    def arguments():
        return [np.ones(512, np.float32), np.ones(512, np.float32), n]

    counted = kernel.count(4, 128, arguments(), blocks=range(4)).counters
    launched = kernel.launch(4, 128, arguments(), on="cpu").counters
    for found in (counted, launched):
        assert found[names.requests("global", "ld")] == loads and found[names.sectors("global", "ld")] == sectors
        assert found.get(names.executed("shared_ld"), 0) == 0
    assert counted.get(names.shared_wavefronts("ld"), 0) == wavefronts


PIPELINE = """#include <cuda/pipeline>
extern "C" __global__ void k(int n, const float* a, float* c) {
    __shared__ __align__(16) float s[64];
    float sum = 0;
    auto pipe = cuda::make_pipeline();
    for (int i = 0; i < n; i++) {
        pipe.producer_acquire();
        cuda::memcpy_async(&s[threadIdx.x], &a[i * 64 + threadIdx.x], cuda::aligned_size_t<4>(4), pipe);
        pipe.producer_commit();
        pipe.consumer_wait();
        __syncthreads();
        for (int k = 0; k < 64; k++) sum += s[k] * s[k];
        __syncthreads();
    }
    c[threadIdx.x] = sum;
}"""


@pytest.mark.parametrize("trips", [3, 300])  # stages are counted in 8 bits
def test_the_stages_of_a_pipeline_are_counted_in_half_a_register(trips):
    """ptxas keeps them beside what was loaded into the upper half. Each trip of both warps commits once and waits once."""
    compiled = compile_source(PIPELINE)
    counts, why = machine_code.instruction_counts(compiled, (1,), (64,), [trips, np.zeros(1, np.float32), np.zeros(64, np.float32)])
    assert why == ""
    expected = {"LDGSTS": 1, "LDGDEPBAR": 1, "DEPBAR": 1, "BAR": 2, "FFMA": 64}
    assert {opcode: counts.by_opcode[opcode] for opcode in expected} == {opcode: 2 * trips * each for opcode, each in expected.items()}


SMALL, KEEP = "LOP3.LUT R2, R2, 0xff, RZ, 0xc0, !PT", "PRMT R2, R0, 0x7610, R2"


@pytest.mark.parametrize(("code", "left"), [
    ((KEEP, SMALL), 2),
    ((KEEP, "PRMT R2, R2, 0x7710, RZ"), 2),
    ((KEEP, "PRMT R3, R2, 0x5432, R2", "PRMT R2, R3, 0x7732, RZ"), 2),
    ((KEEP, "IADD3 R2, R2, -0x20, RZ", "PRMT R2, R2, 0x9910, RZ", "ISETP.GE.AND P0, PT, R2, RZ, PT", "SEL R2, RZ, 0x20, !P0"), 2),
    ((KEEP, "IMAD.MOV.U32 R3, RZ, RZ, -R2", "IADD3 R2, -R3, -0x20, RZ", SMALL), 2),
    ((KEEP, "IMAD R2, R2, 0x101, RZ", SMALL), 2),
    ((KEEP, "MOV R3, R2", "ISETP.NE.AND P0, PT, R0, RZ, PT", "SEL R2, R3, 0x7, P0", SMALL), 2),
    ((KEEP, "LOP3.LUT R2, R2, 0xff, R0, 0x60, !PT"), 0),  # R2 & (0xff ^ R0), whose upper half is zero
    ((KEEP, "ISETP.GE.AND P0, PT, R0, 0x5, PT", "@!P0 PRMT R2, RZ, 0x7610, R2", SMALL), 2),
    ((KEEP, "ISETP.GE.AND P0, PT, R0, 0x20, PT", "@P0 MOV R2, RZ", SMALL), 0),
    ((KEEP,), None),
    ((KEEP, "SHF.R.U32.HI R2, RZ, 0x10, R2"), None),
    ((KEEP, "LOP3.LUT R2, R2, 0x1ffff, RZ, 0xc0, !PT"), None),
    ((KEEP, "PRMT R2, R2, 0x7732, RZ"), None),
    ((KEEP, "PRMT R2, R2, 0x7720, RZ"), None),
    ((KEEP, "PRMT R2, R2, 0xbbb0, RZ"), None),  # a sign
    ((KEEP, "IABS R2, R2", SMALL), None),
    ((KEEP, "IADD3 R2, P0, R2, -0x1, RZ", "SEL R2, RZ, 0x20, P0"), None),  # a carry
    ((KEEP, "IMAD.HI.U32 R2, R2, 0x10000, RZ", SMALL), None),
    ((KEEP, "LOP3.LUT P0, RZ, R2, 0x10000, RZ, 0xc0, !PT", "SEL R2, RZ, 0x20, P0"), None),
    (("LOP3.LUT R2, R2, 0xffffff0f, RZ, 0xc0, !PT", "IADD3 R2, R2, 0x10, RZ", "LOP3.LUT R2, R2, 0xf0, RZ, 0xc0, !PT"), None),
    ((KEEP, "ISETP.GE.AND P0, PT, R0, 0x5, PT", "@!P0 LDS R2, [RZ]", SMALL), None),
    (("ISETP.GE.AND P0, PT, R0, 0x5, PT", f"@P0 {KEEP}", SMALL), None),
])  # fmt: skip
@pytest.mark.parametrize("threads", [96, 90])  # there are all lanes, or not
def test_of_a_register_whose_upper_half_is_data_the_lower_half_decides_branches(code, left, threads):
    """How many of three warps stay behind a comparison with 0x20. Where that takes any bit of the upper half, nobody can tell."""
    before = ("S2R R0, SR_TID.X", "LDS R2, [RZ]")
    after = ("ISETP.LT.U32.AND P0, PT, R2, 0x20, PT", "@P0 EXIT", "NOP", "EXIT")
    counts, why = machine_code.instruction_counts(assembled(*before, *code, *after), (1, 1, 1), (threads, 1, 1), [])
    if left is None:
        assert counts is None and "depends on data" in why
    else:
        assert why == "" and counts.by_opcode.get("NOP", 0) == left
