"""wgmma: layouts in shared memory, arithmetic within the stated bound, and what must not happen while a product is in flight.

Tests of: helpers.sim.checks.warpgroup_registers
"""

from __future__ import annotations

import functools
import time

import numpy as np
import pytest

from helpers.errors import RunError
from helpers.sim import Budget, Collect, simulate
from helpers.sim.isa.warpgroup import Descriptor, places
from helpers.toolchain.compile import compile_source
from tests.sim import matrix_cases as cases
from tests.sim import matrix_products
from tests.sim.ptx_text import kernel

QUIET = Collect(counters=False)


@functools.cache
def source():
    return "\n".join(case.source for case in cases.WGMMAS)


def run(made, grid, block, args, shared=0, collect=QUIET, seconds=60):
    return simulate(made, grid, (block, 1, 1), args, shared, collect=collect, budget=Budget(seconds=seconds), engine="numpy")


def execute(case, tile_a, tile_b, add=True, wild=False):
    """(D of the machine, exact D, sizes, outcome) of one instruction."""
    whole, a, b, c, words = case.matrices(wild)
    args = case.arguments(a, b, c, words, add, tile_a, tile_b)
    outcome = run(cases.compiled(source(), case.symbol, case.arch), (1, 1, 1), 128, args, cases.IMAGE)
    return case.unpack(args[-1]).astype(np.float64), *case.product(whole, b, c if add else 0 * c), outcome


# --- one instruction ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turn", range(2))
@pytest.mark.parametrize("i", range(len(cases.WGMMAS)), ids=[case.name for case in cases.WGMMAS])
def test_products_of_matrices_laid_out_as_the_isa_draws_them(i, turn):
    """Each instruction with two of the layouts; on a GPU it runs with all of them."""
    case = cases.WGMMAS[i]
    fitting = [tile for tile in cases.TILES if cases.fits(case, tile)]
    tile = fitting[(i + turn * (1 + i // 5 % 2)) % len(fitting)]
    got, exact, size, outcome = execute(case, tile, tile)
    assert outcome.findings == []
    assert (np.abs(got - exact) <= cases.allowed(case.d, case.a, size, case.k)).all()
    if case.d == "s32":
        assert np.array_equal(got, exact)


@pytest.mark.parametrize("case", cases.WGMMAS[::5], ids=lambda case: case.name)
def test_numbers_of_very_different_sizes_and_no_sum(case):
    """Without scale-d the old accumulators do not matter, and each operand may be laid out in its own way."""
    got, exact, size, _ = execute(case, cases.TILES[3] if cases.fits(case, cases.TILES[3]) else cases.TILES[0], cases.TILES[0], False, True)
    assert (np.abs(got - exact) <= cases.allowed(case.d, case.a, size, case.k)).all()


def test_accumulators_that_are_not_added_may_hold_anything():
    case = next(case for case in cases.WGMMAS if case.a == "bf16")
    whole, a, b, c, words = case.matrices()
    args = case.arguments(a, b, np.full_like(c, np.nan), words, False, cases.TILES[0], cases.TILES[0])
    run(cases.compiled(source(), case.symbol, case.arch), (1, 1, 1), 128, args, cases.IMAGE)
    exact, size = case.product(whole, b, 0 * c)
    assert (np.abs(case.unpack(args[-1]) - exact) <= cases.allowed("f32", "bf16", size, case.k)).all()


def test_integers_saturate_only_where_asked():
    for case in (case for case in cases.WGMMAS if (case.a, case.b, case.selector) == ("s8", "s8", None)):
        a, b = np.full((64, 32), 127, np.int8), np.full((case.n, 32), 127, np.int8)
        c = np.full((64, case.n), 2**31 - 1, np.int32)
        args = case.arguments(a, b, c, None, True, cases.TILES[0], cases.TILES[0])
        run(cases.compiled(source(), case.symbol, case.arch), (1, 1, 1), 128, args, cases.IMAGE)
        assert (case.unpack(args[-1]) == (2**31 - 1 if case.more else -(2**31) + 127 * 127 * 32 - 1)).all()


def test_a_descriptor_is_what_the_isa_says():
    """Addresses and offsets without their last four bits, the base offset, and the swizzle in the last two bits."""
    bits = 0x1234 | 0x0567 << 16 | 0x0089 << 32 | 5 << 49 | 1 << 62
    descriptor = Descriptor.decode(bits)
    assert descriptor == Descriptor(0x12340, 0x5670, 0x0890, 5, "128B") and descriptor.encode() == bits
    assert [Descriptor.decode(mode << 62).mode for mode in range(4)] == [None, "128B", "64B", "32B"]


@pytest.mark.parametrize("mode, span", [(None, 16), ("32B", 32), ("64B", 64), ("128B", 128)])
def test_places_are_different_and_fill_the_tile(mode, span):
    """A tile as wide as the span, read in steps of 32 bytes of K: every byte once."""
    steps = [places(Descriptor(step, 128, 8 * max(span, 32), 0, mode), 64, 32) for step in range(0, max(span, 32), 32)]
    every = np.concatenate(steps, axis=1)
    assert sorted(every.ravel().tolist()) == list(range(64 * max(span, 32)))


# --- whole kernels -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", matrix_products.WGMMA_GEMMS, ids=lambda case: case.name)
def test_a_matrix_product_is_right_and_free_of_findings(case):
    m, n, k = 256, 128, 192
    *sizes, a, b, c = case.arguments(m, n, k)
    made = cases.compiled(case.source, case.symbol, case.arch)
    outcome = run(made, case.grid(m, n), 256, [*sizes, a.view(np.uint8), b.view(np.uint8), c], case.shared)
    exact, size = cases.product(a, b.T, 0)
    assert outcome.findings == []
    assert (np.abs(c - exact) <= cases.allowed("f32", "bf16", size, k, k // 16)).all()


@pytest.mark.parametrize("lag", [0, 1])
def test_a_product_with_tma_and_warpgroups_of_different_work(lag):
    """mbarriers, tensor maps and setmaxnreg: one warpgroup fetches, two multiply."""
    args, a, b = matrix_products.tma_arguments(256, 128, 320)
    outcome = run(compile_source(matrix_products.tma_gemm(lag), "f", "sm_90a"), (1, 2, 1), 384, args, 98304)
    exact, size = cases.product(a, b.T, 0)
    assert outcome.findings == []
    assert (np.abs(args[-1] - exact) <= cases.allowed("f32", "bf16", size, 320, 20)).all()


def test_a_buffer_that_is_given_back_too_early():
    """The consumers say that a tile is free while their products may still read it."""
    text = matrix_products.tma_gemm(1).replace("tile >= LAG", "true").replace("(tile - LAG) % STAGES", "tile % STAGES")
    args, _, _ = matrix_products.tma_arguments(128, 128, 320)
    found = run(compile_source(text, "f", "sm_90a"), (1, 1, 1), 384, args, 98304).findings
    assert found and {finding.kind for finding in found} == {"race"}
    line = {n for n, source in enumerate(text.split("\n"), 1) if "cp.async.bulk.tensor" in source or '::"r"(to)' in source}
    assert all(finding.line in line for finding in found) and "wgmma" in found[0].message


# --- what stops a run ----------------------------------------------------------------------------------------------------


def small(body: str, arch: str = "sm_90a"):
    return compile_source('extern "C" __global__ void f(float* out) {\n' + body + "\n}", None, arch)


@pytest.mark.parametrize("block, condition, count", [(128, "threadIdx.x < 96", 96), (64, "true", 64), (256, "threadIdx.x % 128 < 32", 32)])
def test_a_warpgroup_is_four_whole_warps(block, condition, count):
    made = small(f'  if ({condition})\n    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");')
    with pytest.raises(RunError, match=f"only {count} of the 128 threads of a warpgroup execute `wgmma.fence`") as error:
        run(made, (1, 1, 1), block, [np.zeros(4, np.float32)])
    assert error.value.findings[0].kind == "divergent-barrier" and error.value.line == 3


def test_some_warpgroups_may_take_part_and_others_not():
    case = matrix_products.WGMMA_GEMMS[0]
    text = case.source.replace("arrive();\n", "if (t < 128) {\narrive();\n").replace("wait<LAG>();", "wait<LAG>(); }", 1)
    *sizes, a, b, c = case.arguments(128, 128, 128)
    outcome = run(compile_source(text, "f", case.arch), (1, 1, 1), 256, [*sizes, a.view(np.uint8), b.view(np.uint8), c], case.shared)
    exact, _ = cases.product(a, b.T, 0)
    assert outcome.findings == [] and np.allclose(c[:64], exact[:64], atol=1e-4) and not c[64:].any()


def test_threads_of_a_warpgroup_give_one_descriptor():
    case = cases.WGMMAS[0]
    text = case.source.replace('"l"(db + base)', '"l"(db + base + t / 32)')
    _whole, a, b, c, words = case.matrices()
    with pytest.raises(RunError, match="the descriptor of B differs between threads of a warpgroup"):
        run(compile_source(text, None, case.arch), (1, 1, 1), 128, case.arguments(a, b, c, words, True, *cases.TILES[:2]), cases.IMAGE)


@pytest.mark.parametrize("text, what", [
    ("wgmma.mma_async.sync.aligned.m64n8k8.f32.f16.f16 {%f1,%f1,%f1,%f1}, %rd1, %rd1, 1, 1, 1, 0, 0;", "does not know the instruction"),
    ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1,%f1}, %rd1, %rd1, 1, 1, 1, 0, 0;", "has 2 registers where 4 hold the matrix"),
    ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1,%f1,%f1,%f1}, %rd1, %rd1, 1, 2, 1, 0, 0;", "scales by a number that is not 1 or -1"),
    ("setmaxnreg.inc.sync.aligned.u32 100;", "not a multiple of 8 from 24 to 256"),
    ("setmaxnreg.dec.sync.aligned.u32 16;", "not a multiple of 8 from 24 to 256"),
])  # fmt: skip
def test_what_is_not_ptx_is_named(text, what):
    made = kernel(f".reg .f32 %f<4>;\n.reg .b64 %rd<4>;\n{text}\nret;", arch="sm_90a")
    with pytest.raises(RunError, match=what):
        run(made, (1, 1, 1), 128, [np.zeros(4, np.uint32)])


@pytest.mark.parametrize("first, second, what", [
    ("dec 40", "inc 232", None), ("inc 240", "dec 24", None),
    ("dec 40", "dec 64", "`setmaxnreg.dec` asks for 64 registers per thread, which is more than the 40"),
    ("inc 240", "inc 200", "`setmaxnreg.inc` asks for 200 registers per thread, which is fewer than the 240"),
])  # fmt: skip
def test_registers_are_given_and_taken(first, second, what):
    lines = [f"setmaxnreg.{text.split()[0]}.sync.aligned.u32 {text.split()[1]};" for text in (first, second)]
    made = kernel("\n".join([*lines, "ret;"]), arch="sm_90a")
    if what is None:
        assert run(made, (2, 1, 1), 128, [np.zeros(4, np.uint32)]).findings == []
        return
    with pytest.raises(RunError, match=what):
        run(made, (2, 1, 1), 128, [np.zeros(4, np.uint32)])


REGISTERS = """
extern "C" __global__ void __launch_bounds__(384, 1) f(float* out) {
  if (threadIdx.x < 128) {
    __nanosleep(100);
    asm volatile("setmaxnreg.dec.sync.aligned.u32 GIVEN;");
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 TAKEN;");
    out[384 * blockIdx.x + threadIdx.x] = 1;
  }
}
"""


@pytest.mark.parametrize("given, taken", [(40, 232), (24, 240)])
def test_who_asks_for_registers_waits_until_they_are_given(given, taken):
    made = compile_source(REGISTERS.replace("GIVEN", str(given)).replace("TAKEN", str(taken)), None, "sm_90a")
    out = np.zeros((2, 384), np.float32)
    assert made.registers == 168 and run(made, (2, 1, 1), 384, [out]).findings == []
    assert (out[:, 128:] == 1).all()


def test_registers_that_the_block_does_not_have():
    """3 x 168 are 504: 40 and twice 240 are more."""
    made = compile_source(REGISTERS.replace("GIVEN", "40").replace("TAKEN", "240"), None, "sm_90a")
    with pytest.raises(RunError, match="would hold 520 per thread together, and there are 504") as error:
        run(made, (2, 1, 1), 384, [np.zeros(768, np.float32)])
    assert error.value.findings[-1].kind == "endless" and error.value.line == 7


@pytest.mark.parametrize("rounds", [1000, 5000])
def test_who_is_at_work_may_still_give_its_registers(rounds):
    """The giver looks at a flag in vain all the while, as one does that polls: it is not the block that lacks registers."""
    work = f"for (int i = 0; i < {rounds}; i++) if (*(volatile float*)out == 7) return;"
    source = REGISTERS.replace("__nanosleep(100);", work).replace("GIVEN", "40").replace("TAKEN", "232")
    out = np.zeros((1, 384), np.float32)
    assert run(compile_source(source, None, "sm_90a"), (1, 1, 1), 384, [out]).findings == []
    assert (out[:, 128:] == 1).all()


def test_a_spin_for_registers_ends_with_the_time_of_the_launch():
    """The giver never ends, and that is what is said; nothing is counted beyond the time."""
    source = REGISTERS.replace("__nanosleep(100);", "while (*(volatile float*)out != 7) {}").replace("GIVEN", "40").replace("TAKEN", "232")
    made = compile_source(source, None, "sm_90a")
    start = time.monotonic()
    with pytest.raises(RunError, match="may never end: the kernel had not ended after 1 seconds") as error:
        run(made, (1, 1, 1), 384, [np.zeros(384, np.float32)], seconds=1)
    assert [finding.kind for finding in error.value.findings] == ["endless"] and time.monotonic() - start < 10


def test_a_spin_for_registers_is_not_counted_and_why_is_said():
    made = compile_source(REGISTERS.replace("GIVEN", "40").replace("TAKEN", "232"), None, "sm_90a")
    assert "TRY_ALLOC" in made.sass
    start = time.monotonic()
    done = run(made, (2, 1, 1), 384, [np.zeros(768, np.float32)], collect=Collect(counters=True))
    assert "depends on data" in done.uncounted and time.monotonic() - start < 10


def test_registers_that_ptxas_does_not_hand_out():
    """Without a number of registers at entry ptxas leaves setmaxnreg out, and so does the machine."""
    made = compile_source(REGISTERS.replace("(384, 1)", "(384)").replace("GIVEN", "40").replace("TAKEN", "240"), None, "sm_90a")
    assert "ignored" in made.log and run(made, (2, 1, 1), 384, [np.zeros(768, np.float32)]).findings == []


# --- registers while a product is in flight --------------------------------------------------------------------------------

IN_FLIGHT = """
.reg .f32 %f<16>; .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p<2>;
.shared .align 1024 .b8 tile[2048];
mov.u32 %r5, %tid.x; mul.lo.u32 %r6, %r5, 16; mov.u32 %r7, tile; add.u32 %r6, %r6, %r7;
mov.u32 %r1, 0; mov.u32 %r2, 0; mov.u32 %r3, 0; mov.u32 %r4, 0;
st.shared.v4.u32 [%r6], {%r1, %r2, %r3, %r4};
fence.proxy.async; bar.sync 0;
shr.u32 %r7, %r7, 4; cvt.u64.u32 %rd1, %r7; or.b64 %rd1, %rd1, 0x1000080000;
mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;
wgmma.fence.sync.aligned;
.loc 1 1 0
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, %rd1, 1, 1, 1, 0;
wgmma.commit_group.sync.aligned;
.loc 1 2 0
THEN
wgmma.wait_group.sync.aligned 0;
.loc 1 3 0
add.f32 %f10, %f1, %f5;
ret;
"""


@pytest.mark.parametrize("then, expected", [
    ("mov.f32 %f5, %f1;", []),
    ("mov.f32 %f5, %f1; add.f32 %f6, %f5, %f5;", [("missing-wait", 2, 1)]),
    ("add.f32 %f6, %f2, %f2;", [("missing-wait", 2, 1)]),
    ("mov.f32 %f5, %f1; mov.f32 %f5, %f9; add.f32 %f6, %f5, %f5;", []),
    ("add.u32 %r1, %r5, 1;", [("race", 2, 1)]),
    ("add.f32 %f3, %f9, %f9;", [("race", 2, 1)]),
    ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, %rd1, 1, 1, 1, 0;\nwgmma.commit_group.sync.aligned;", []),
    ("wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%f1,%f2,%f3,%f4}, %rd1, %rd1, 1, 1, 1;\nwgmma.commit_group.sync.aligned;",
     [("missing-wait", 2, 1)]),
    ("setp.lt.u32 %p1, %r5, 64;\n@%p1 add.u32 %r1, %r5, 1;", [("race", 2, 1)]),
    ("setp.lt.u32 %p1, %r5, 0;\n@%p1 add.u32 %r1, %r5, 1;", []),
])  # fmt: skip
def test_registers_of_a_product_in_flight(then, expected):
    """Copies are followed; other uses and changes are noted, and only those of threads that really do it."""
    found = run(kernel(IN_FLIGHT.replace("THEN", then), arch="sm_90a"), (2, 1, 1), 128, [np.zeros(4, np.float32)]).findings
    assert [(finding.kind, finding.line, finding.other_line) for finding in found] == expected


@pytest.mark.parametrize("fence, kinds", [
    ("fence.proxy.async;", []), ("fence.proxy.async.shared::cta;", []), ("", ["missing-fence"]), ("fence.proxy.async.global;", ["missing-fence"]),
    ("fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;", []),
    ("fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;", ["missing-fence"]),
    ("bar.sync 0;\nsetp.eq.u32 %p1, %r5, 0;\n@%p1 fence.proxy.async;", []),
    ("setp.eq.u32 %p1, %r5, 0;\n@%p1 fence.proxy.async;", ["missing-fence"]),
])  # fmt: skip
def test_fences_between_stores_and_the_async_proxy(fence, kinds):
    """By the writers, or by anybody behind a barrier; one that is about shared memory, and about writing it."""
    text = IN_FLIGHT.replace("fence.proxy.async; bar.sync 0;", f"{fence}\nbar.sync 0;").replace("THEN", "")
    found = run(kernel(text, arch="sm_90a"), (2, 1, 1), 128, [np.zeros(4, np.float32)]).findings
    assert [finding.kind for finding in found] == kinds
