"""One multiprocessor, held to what an H200 was measured to do with streams of single instructions.

Tests of: helpers.model.cycles.chip
"""

import itertools
import json
from dataclasses import replace

import pytest

from helpers.course import rungs
from helpers.model import hardware
from helpers.model.cycles import chip
from helpers.model.cycles.multiprocessor import WORDS, Away, Multiprocessor, WarpState
from helpers.model.cycles.scheduled import (
    AWAIT,
    BARRIER,
    COMMIT,
    COPY,
    FENCE,
    FENCED,
    FIXED,
    LOAD,
    PRODUCT,
    SHARED,
    STORE,
    SUMS,
    VARIABLE,
    Scheduled,
)
from helpers.sim.code.sass_opcodes import opcode_row
from helpers.sim.counting.machine_code import ANY_BARRIER, AccessCost, Visit

H200 = chip.chip(hardware.gpu("H200 SXM"))
NO_CROWD = chip.chip(hardware.gpu("H200 SXM"), {"latency.crowd": 0.0})
PLAIN = Scheduled(
    index=0, kind=FIXED, pipe="", busy=0.0, stall=1, waits=(), result=-1, sources=-1, even=0, odd=0, all_even=0, all_odd=0,
    latency=0.0, words=1, groups=0, line=0, slow=False, past_l1=False, gives_way=False, dispatch=1.0,
)  # fmt: skip
FFMA = replace(PLAIN, pipe="fma", busy=2.0)


def ran(code, warps=4, repeat=1, costs=None, resident=1, working=-1):
    """The code, `repeat` times, by so many warps, or those of them that are `working` by bits; every instruction gets its own index and
    line of code."""
    code = [replace(step, index=k, line=k // 8) for k, step in enumerate(code)]
    visit = Visit(0, len(code), (1 << warps) - 1 & working, costs or {})
    return Multiprocessor(code, [visit] * repeat, warps, resident, H200).run()


def per_instruction(code, warps=4, repeat=8, **options):
    """Cycles of a sub-partition for an instruction, once the code is in its cache."""
    few, many = (ran(code, warps, count, **options).cycles for count in (repeat, 2 * repeat))
    return (many - few) / (repeat * len(code)) / max(1, warps // 4)


@pytest.mark.parametrize(
    ("fetched", "expected"),
    [
        ([(1, 1)], 1.04),
        ([(2, 1)], 2.02),
        ([(2, 1), (1, 2)], 1.52),
        ([(3, 0)], 3.02),
        ([(2, 0)], 2.03),
        ([(2, 0), (0, 2)], 1.04),
        ([(2, 0)] * 2 + [(0, 2)] * 2, 1.53),
        ([(2, 0)] * 4 + [(0, 2)] * 4, 1.78),
    ],
)
def test_register_banks_cost_what_was_measured(fetched, expected):
    """Streams of FFMA with chosen registers, two warps on each sub-partition: kernels/LOG.md."""
    code = [replace(FFMA, even=even, odd=odd, all_even=even, all_odd=odd) for even, odd in fetched] * (64 // len(fetched))
    assert per_instruction(code, warps=8) == pytest.approx(expected, abs=0.05)


def test_what_a_warp_kept_to_reuse_is_lost_to_the_next_warp():
    kept = replace(FFMA, even=1, odd=1, all_even=2, all_odd=1)
    assert per_instruction([kept] * 64) == pytest.approx(1 + (H200["code.near_branch"] - 1) / 64, abs=0.02)
    parting = replace(kept, stall=2)  # the other warp of the sub-partition comes between
    assert per_instruction([parting] * 64, warps=8) == pytest.approx(2, abs=0.05)


@pytest.mark.parametrize(
    ("count", "expected"), [(512, 1.0), (1536, 1.0), (2112, 1.29), (2176, 1.52), (2240, 1.72), (2304, 1.85), (3072, 2.24), (4096, 2.23)]
)
def test_a_loop_beyond_the_instruction_cache_is_fetched_again_each_time(count, expected):
    """One warp on each sub-partition; with more of them, a line serves all (measured: 2.02 for two). Of a loop that is a few lines too
    long only those are fetched that share a set with five lines. Measured: kernels/LOG.md, run 22."""
    code = [FFMA] * count
    assert per_instruction(code, repeat=2) == pytest.approx(expected, rel=0.1)
    assert per_instruction(code, warps=8, repeat=2) * 2 < 1.2 * max(2.0, expected)


def measured(name, kind="throughput"):
    """Cycles by the number of warps."""
    rows = json.loads((rungs.DATA / "microbench-nvidia-h200.json").read_text(encoding="utf-8"))["rows"]
    return {row["warps"]: row["cycles"] for row in rows if row["kind"] == kind and row["name"] == name}


def test_the_tensor_core_keeps_to_the_warp_that_it_worked_for_last():
    """Also where another one has issued since. That sets two blocks apart that begin together: kernels/LOG.md, run 37."""
    product, other = replace(PLAIN, pipe="tensor", busy=6.5, stall=2), replace(PLAIN, stall=2)
    code = [replace(step, index=k, line=k // 8) for k, step in enumerate([product] * 64 + [other] * 8 + [product] * 8)]
    visits = [Visit(0, 64, 1, {}), Visit(64, 80, 1 << 4, {})]  # of two warps of a sub-partition, which go different ways
    done = Multiprocessor(code, visits, 5, 1, H200, marks=(1, 1 << 20), watched=True).run()
    issued = {spell.index: spell.begin + sum(cycles for _, cycles in spell.spans) for spell in done.spells}
    assert issued[71] < 150 < 60 * 6.5 < issued[63] < issued[72]  # the other one is at its first product long before


SHARED_STREAMS = {  # name -> (instruction, with the stall count that the assembler gives it; wavefronts)
    "LDS.32": (replace(PLAIN, kind=SHARED, stall=4, result=0, latency=23.0), 1),
    "LDS.64": (replace(PLAIN, kind=SHARED, stall=4, result=0, latency=24.0, words=2), 2),
    "LDS.128": (replace(PLAIN, kind=SHARED, stall=4, result=0, latency=26.0, words=4), 4),
    "LDS.128 uniform": (replace(PLAIN, kind=SHARED, stall=4, result=0, latency=26.0, words=4), 2),
    "STS.32": (replace(PLAIN, kind=SHARED, stall=4), 1),
    "STS.64": (replace(PLAIN, kind=SHARED, stall=4, words=2), 2),
    "STS.128": (replace(PLAIN, kind=SHARED, stall=4, words=4), 4),
}


def streamed(step, wavefronts, warps, working=-1):
    """Cycles for each instruction of a warp, of 16 in a row."""
    costs = dict.fromkeys(range(16), AccessCost(warps, wavefronts, 0.0, 0.0))
    few, many = (ran([step] * 16, warps, count, costs, working=working).cycles for count in (8, 16))
    return (many - few) / 128


@pytest.mark.parametrize(
    ("name", "step", "wavefronts"),
    [(name, *stream) for name, stream in SHARED_STREAMS.items()] + [("LDS.32 2-way", SHARED_STREAMS["LDS.32"][0], 2)],
)
@pytest.mark.parametrize("warps", [1, 4, 8, 32])
def test_shared_memory_serves_as_fast_as_it_was_measured_to(name, step, wavefronts, warps):
    assert streamed(step, wavefronts, warps) == pytest.approx(measured(name)[warps], rel=0.2)


@pytest.mark.parametrize("name", SHARED_STREAMS)
def test_one_sub_partition_alone_is_served_as_fast_as_it_was_measured_to(name):
    expected = measured(name, "sub-partition")[8]
    assert streamed(*SHARED_STREAMS[name], warps=32, working=0x11111111) / 8 == pytest.approx(expected, rel=0.15)


def noted(code, warps, working, costs=None):
    """(cycle, sub-partition, warp) of every instruction of a block."""
    code = [replace(step, index=k) for k, step in enumerate(code)]
    visits = [Visit(0, len(code), working, costs or {})]
    run = Multiprocessor(code, visits, warps, 1, H200, marks=(1, -1), watched=True).run()
    return [(spell.begin + sum(cycles for _, cycles in spell.spans) - 1, spell.sub_partition, spell.warp) for spell in run.spells]


@pytest.mark.parametrize(("asking", "expected"), [(1, 33), (2, 21), (3, 17), (4, 15)])
def test_so_many_accesses_of_a_sub_partition_wait_as_were_measured(asking, expected):
    """Of many wavefronts each: kernels/LOG.md, run 19."""
    load = replace(PLAIN, kind=SHARED, stall=4, result=0, latency=23.0)
    working = sum(1 << warp for warp in range(32) if warp % 4 < asking)
    when = noted([load] * 16, 32, working, dict.fromkeys(range(16), AccessCost(32, 64.0, 0.0, 0.0)))
    for place in range(asking):
        times = [at for at, home, _ in when if home == place]
        full = next(k for k, (before, after) in enumerate(itertools.pairwise(times)) if after - before > 20) + 1
        assert full == pytest.approx(expected, abs=1)


@pytest.mark.parametrize(("gives_way", "together"), [(False, 6), (True, 1)])
def test_a_warp_goes_on_unless_its_instruction_lets_others_go_first(gives_way, together):
    order = [warp for _, _, warp in noted([replace(FFMA, gives_way=gives_way)] * 6, 5, 0b10001)]
    assert [len(list(group)) for _, group in itertools.groupby(order)] == [together] * (12 // together)


def test_nothing_is_issued_while_an_instruction_waits_for_its_registers():
    """Whatever wakes its sub-partition meanwhile: here the load/store unit, which has served a load."""
    load = replace(PLAIN, kind=SHARED, pipe="lsu", result=0, latency=23.0, stall=2)
    code = [load, load, *[replace(FFMA, even=2, odd=1, all_even=2, all_odd=1)] * 4] * 6
    code = [replace(step, index=k) for k, step in enumerate(code)]
    costs = {k: AccessCost(1, 1.0, 0.0, 0.0) for k, step in enumerate(code) if step.kind == SHARED}
    marks = 8 * len(code), 16 * len(code)
    visits = [Visit(0, len(code), 0xFF, costs)] * 3
    spells = Multiprocessor(code, visits, 8, 1, H200, marks=marks, watched=True).run().spells
    for place in range(hardware.SUB_PARTITIONS):
        ends = sorted(spell.begin + sum(cycles for _, cycles in spell.spans) for spell in spells if spell.sub_partition == place)
        assert len(ends) > len(code)
        assert min(after - before for before, after in itertools.pairwise(ends)) >= 1


def test_after_an_instruction_that_keeps_the_dispatcher_no_warp_issues():
    wide = replace(PLAIN, pipe="fmaheavy", busy=4.0, dispatch=H200["dispatch.wide"])
    code = [replace(step, index=k) for k, step in enumerate([wide, FFMA, PLAIN] * 60)]
    run = Multiprocessor(code, [Visit(0, len(code), (1 << 32) - 1, {})], 32, 1, H200).run()
    issued = 8 * 60 * (H200["dispatch.wide"] + 2)
    assert run.cycles == pytest.approx(issued, rel=0.03)
    waited = sum(row[WarpState.DISPATCH_STALL] for row in run.rest.values())
    assert waited > 0.25 * 32 * run.cycles, "whoever could issue is in the state of a dispatch stall"


def test_a_warp_waits_behind_a_branch_that_is_taken_while_others_go_on():
    """Loops of 512 FFMA, of one warp of each sub-partition and of two: kernels/LOG.md, run 25."""
    alone, two = (512 * per_instruction([FFMA] * 512, warps, repeat=2) * (warps // 4) for warps in (4, 8))
    assert alone == pytest.approx(512 + H200["code.branch"], abs=4) and two < 2 * 512 + H200["code.branch"]
    done = ran([FFMA] * 512, 4, 8)
    assert sum(row[WarpState.NO_INSTRUCTION] for row in done.rest.values()) >= 4 * 7 * (H200["code.branch"] - 1)


def test_a_jump_to_what_was_read_lately_is_short_whatever_the_stall_count_of_the_branch():
    """Samples of a product by others: its loop of 51 lines begins again 5 cycles after a branch whose stall count is 9; behind BSYNC with
    a stall count of 5 come 13: kernels/LOG.md, run 40."""
    branch = replace(PLAIN, stall=9)
    rounds = [ran([FFMA] * 31 + [branch], 4, count).cycles for count in (4, 8)]
    assert (rounds[1] - rounds[0]) / 4 == pytest.approx(31 + H200["code.near_branch"], abs=0.5) and H200["code.near_branch"] < branch.stall
    few, many = (ran([replace(PLAIN, stall=5, rejoins=rejoins), FFMA], 1).cycles for rejoins in (False, True))
    assert many - few == H200["code.rejoin"] == 13 - 5


@pytest.mark.parametrize(("words", "wavefronts", "expected"), [(1, 1, 23), (1, 2, 25), (1, 32, 85), (2, 2, 26), (4, 4, 32), (4, 2, 28)])
def test_the_result_of_a_shared_load_comes_two_cycles_later_for_each_wavefront(words, wavefronts, expected):
    """One load of one warp, and who waits for it: kernels/LOG.md, run 25."""
    load = replace(PLAIN, kind=SHARED, result=0, latency=22.0 + words, words=words)
    code = [load, replace(FFMA, index=1, waits=(0,))]
    run = Multiprocessor(code, [Visit(0, 2, 1, {0: AccessCost(1, wavefronts, 0.0, 0.0)})], 1, 1, H200).run()
    assert run.rest[1][WarpState.SHORT_SCOREBOARD] + run.rest[1][WarpState.WAIT] == pytest.approx(expected - 1, rel=0.05)


def test_a_warp_that_is_alone_loses_nothing_by_giving_way():
    alone = [noted([replace(FFMA, gives_way=gives_way)] * 6, 1, 1) for gives_way in (False, True)]
    assert alone[0] == alone[1]


def test_what_a_copy_brings_takes_the_unit_when_it_comes():
    """A shared load behind copies waits for their look-ups, and not for the wavefronts that their data will take."""
    copy, load = replace(PLAIN, kind=COPY, latency=34.0), replace(PLAIN, kind=SHARED, result=0, latency=23.0)
    code = [*4 * [copy], load, replace(FFMA, waits=(0,))]
    lookups, wavefronts = 4.0, 4.0
    costs = {k: AccessCost(1, wavefronts, lookups, 4.0, 4.0, (0,), asked=4.0) for k in range(4)} | {4: AccessCost(1, 1.0, 0.0, 0.0)}
    waited = ran(code, 1, costs=costs).rest[5][WarpState.SHORT_SCOREBOARD]
    none = ran(code, 1, costs=costs | {k: replace(costs[k], wavefronts=0.0) for k in range(4)}).rest[5][WarpState.SHORT_SCOREBOARD]
    assert waited == none > 3 * lookups

    idle = round((H200["latency.l2"] + H200["latency.crowd"]) / 15) + 1  # until the data come
    late = [*code[:5], *idle * [replace(PLAIN, stall=15)], *8 * [load], replace(FFMA, waits=(0,))]
    reads = {k: AccessCost(1, 1.0, 0.0, 0.0) for k in range(5 + idle, 13 + idle)}
    ends = [ran(late, 1, costs=costs | reads | change).cycles for change in ({}, {k: replace(costs[k], wavefronts=60.0) for k in range(4)})]
    assert ends[1] > ends[0] + 20, "when the data come, loads wait for them"


@pytest.mark.parametrize("warps", [1, 4, 8, 16, 32])
def test_a_barrier_takes_what_it_was_measured_to(warps):
    few, many = (ran([replace(PLAIN, kind=BARRIER)] * 8, warps, count).cycles for count in (2, 4))
    assert (many - few) / 16 == pytest.approx(measured("BAR")[warps], rel=0.15)


def test_whoever_wants_what_is_already_on_its_way_waits_for_it_without_asking_again():
    load = replace(PLAIN, kind=LOAD, result=0, latency=34.0, slow=True)
    use = replace(FFMA, waits=(0,))
    alone, together = (AccessCost(8, 0.0, 1.0, 4.0, fetched, bringers) for fetched, bringers in ((4.0, tuple(range(8))), (0.5, (0,) * 8)))
    own, shared = (ran([load, use], 8, costs={0: cost}) for cost in (alone, together))
    away = H200["latency.l2"] + H200["latency.crowd"] + H200["code.latency"]
    assert away < shared.cycles <= own.cycles < away + 60
    waited = 0.97 * (H200["latency.l2"] + H200["latency.crowd"])
    assert own.rest[1][WarpState.LONG_SCOREBOARD] > 8 * waited, "the load is waited for where it is used"


@pytest.mark.parametrize(("active", "figure"), [(1.0, "l2_request"), (1 / 132, "l2_request_alone")])
def test_l2_answers_so_many_requests_whatever_they_are_for(active, figure):
    """Eight lines with a sector of each take the port as long as eight requests; with all four sectors, as long as 32 sectors."""

    def answered(sectors: float) -> float:
        def cycles(loads: int) -> float:
            code = [replace(PLAIN, index=k, kind=LOAD, result=0, latency=34.0, slow=True) for k in range(loads)]
            costs = {k: AccessCost(1, 0.0, 2.0, sectors, sectors, (0,), asked=8.0) for k in range(loads)}
            visits = [Visit(0, loads + 1, 1, costs)]
            return Multiprocessor([*code, replace(FFMA, index=loads, waits=(0,))], visits, 1, 1, H200, active).run().cycles

        return (cycles(400) - cycles(200)) / 200

    each = H200["load_store.l2_sector_alone"] if active < 1 else H200.l2_sector
    assert answered(8.0) == pytest.approx(8 * H200[f"load_store.{figure}"], rel=0.02)
    assert answered(32.0) == pytest.approx(max(32 * each, 8 * H200[f"load_store.{figure}"]), rel=0.02)


def test_matrices_are_transposed_by_the_unit_of_shared_memory():
    """Streams of MOVM by one and eight warps of each sub-partition: 4.2 and 32 cycles for each, of the warp's; beside LDSM of the other
    sub-partitions it waits as long as a load does (81 cycles, and 90): kernels/LOG.md, runs 40 and 41."""
    assert opcode_row("MOVM").pipe == opcode_row("SHFL").pipe == "mio"
    transpose = replace(PLAIN, kind=SHARED, pipe="mio", latency=24.0)
    for warps, each in ((4, 4), (32, 32)):
        few, many = (ran([transpose] * 64, warps, count).cycles for count in (2, 4))
        assert (many - few) / 128 == pytest.approx(each, rel=0.1)


@pytest.mark.parametrize(("warps", "products", "measured"), [
    (4, 1, 106), (4, 4, 192), (4, 8, 320), (8, 1, 104), (8, 4, 258), (8, 8, 514), (12, 1, 115), (12, 4, 386), (12, 8, 782),
])  # fmt: skip
def test_products_of_warpgroups_take_what_was_measured(warps, products, measured):
    """wgmma m64n64k16, so many in a group, waited for: kernels/LOG.md, run 41."""
    product = replace(PLAIN, kind=PRODUCT, pipe="tensor", latency=32.0)
    begin = replace(PLAIN, stall=1 + H200["tensor.meet"])  # WARPGROUP.ARRIVE
    code = [begin, *[product] * (products - 1), replace(product, closes=True), replace(PLAIN, kind=SUMS), *[PLAIN] * 4]
    assert per_instruction(code, warps) * len(code) * (warps // 4) == pytest.approx(measured, rel=0.08)


def test_a_warp_waits_for_the_groups_of_products_that_it_says():
    product = replace(PLAIN, kind=PRODUCT, pipe="tensor", latency=100.0, closes=True)

    def cycles(left: int) -> float:
        return ran([product, product, replace(PLAIN, kind=SUMS, groups=left)], warps=4).cycles

    assert cycles(0) - cycles(1) == pytest.approx(100) and cycles(2) < 100


def test_a_fence_of_the_whole_gpu_waits_for_what_its_warp_has_loaded():
    """MEMBAR takes 148 cycles, and begins when the load is there; that of a block takes 12: kernels/LOG.md, run 41."""
    load, fence = replace(PLAIN, kind=LOAD, result=0, latency=34.0, slow=True), replace(PLAIN, kind=FENCE, latency=148.0, slow=True)
    behind = replace(PLAIN, waits=(FENCED,))
    costs = {0: AccessCost(1, 0.0, 1.0, 4.0, 4.0, (0,), asked=1.0)}
    alone, with_load = ran([fence, behind], warps=1), ran([load, fence, behind], warps=1, costs=costs)
    assert alone.rest[1][WarpState.MEMBAR] == pytest.approx(148, abs=8)
    assert with_load.cycles - alone.cycles > H200["latency.l2"] and sum(with_load.rest[2]) == with_load.rest[2][WarpState.MEMBAR] + 1
    of_block = ran([load, replace(fence, latency=12.0, slow=False), behind], warps=1, costs=costs)
    held = ran([replace(fence, latency=12.0, slow=False, result=0), replace(PLAIN, waits=(0, FENCED))], warps=1)
    assert held.rest[1][WarpState.LONG_SCOREBOARD] > 10 and not held.rest[1][WarpState.SHORT_SCOREBOARD], "as Nsight Compute has it"
    assert of_block.rest[2][WarpState.LONG_SCOREBOARD] == pytest.approx(12 + H200["load_store.enter"], abs=2)


def test_a_named_barrier_waits_for_as_many_warps_as_it_says():
    """The last of four warps comes 400 cycles later than the others, of which one says at once that it has come and goes on."""
    late = replace(PLAIN, stall=400)
    arrive, wait = (replace(PLAIN, kind=BARRIER, barrier=1, meets=2, arrives=arrives) for arrives in (True, False))
    code = [replace(step, index=k) for k, step in enumerate((arrive, PLAIN, wait, PLAIN, late, PLAIN))]

    def ends(first: int, second: int) -> float:
        visits = [Visit(4, 6, 1 << 3, {}), Visit(0, 2, 1 << first, {}, {0: (1,) * 4}), Visit(2, 4, 1 << second, {}, {2: (1,) * 4})]
        return Multiprocessor(code, visits, 4, 1, H200).run().rest[3][WarpState.BARRIER]

    assert ends(0, 1) < 40, "two have come"
    assert ends(3, 1) > 350, "the one that arrives is late"
    without = [Visit(0, 2, 0b1, {}, {0: (1,) * 4}), Visit(2, 4, 0b10, {})]
    assert Multiprocessor(code, without, 4, 1, H200).run().issued == 4, "its guard switched it off"


def test_warps_that_take_the_same_code_may_meet_at_different_barriers():
    """Two pairs, each at a barrier of its own; with one for all of them the late pair would be waited for."""
    wait = replace(PLAIN, kind=BARRIER, barrier=ANY_BARRIER, meets=2)
    code = [replace(step, index=k) for k, step in enumerate((replace(PLAIN, stall=400), wait, PLAIN))]

    def waits(numbers: tuple[int, ...]) -> float:
        visits = [Visit(0, 1, 0b1100, {}), Visit(1, 3, 0b1111, {}, {1: numbers})]
        return Multiprocessor(code, visits, 4, 1, H200).run().rest[2][WarpState.BARRIER]

    assert waits((1, 1, 2, 2)) < 100 and waits((1, 2, 1, 2)) > 700


def test_a_load_of_shared_memory_by_a_generic_address_has_its_conflicts():
    """Streams of LD by 4 warps: 1.0, 2.0, 4.0 and 8.0 cycles for each without and with conflicts: kernels/LOG.md, run 40."""
    load = replace(PLAIN, kind=LOAD, result=0, latency=34.0, slow=True)
    for wavefronts in (1, 2, 4, 8):
        costs = {k: AccessCost(4, wavefronts, 0.0, 0.0) for k in range(64)}
        few, many = (ran([load] * 64, 4, count, costs).cycles for count in (2, 4))
        assert (many - few) / (2 * 64 * 4) == pytest.approx(max(1, wavefronts), rel=0.05)


def test_a_load_waits_for_what_its_sub_partition_sent_to_shared_memory_before_and_a_copy_does_not():
    shared = replace(PLAIN, kind=SHARED, result=1, latency=33.0, words=4)
    use = replace(FFMA, waits=(0,))
    for kind, late in ((LOAD, True), (COPY, False)):
        fetch = replace(PLAIN, kind=kind, result=0 if kind == LOAD else -1, latency=34.0, slow=True, past_l1=kind == COPY)
        tail = [use] if kind == LOAD else [replace(PLAIN, kind=COMMIT), replace(PLAIN, kind=AWAIT)]
        ends = []
        for wavefronts in (1.0, 8.0):
            costs = {k: AccessCost(1, wavefronts, 0.0, 0.0) for k in range(8)} | {8: AccessCost(1, 0.0, 1.0, 4.0, 4.0, (0,), asked=1.0)}
            ends.append(ran([shared] * 8 + [fetch, *tail], 1, costs=costs).cycles)
        assert (ends[1] - ends[0] > 60) == late


def test_what_copies_bring_takes_turns_with_shared_loads():
    """Step 10 waits for none of what its copies bring, with L2 overwritten or not: kernels/LOG.md, runs 22 and 40."""
    copy, load = replace(PLAIN, kind=COPY, latency=34.0), replace(PLAIN, kind=SHARED, result=0, latency=23.0)
    idle = [replace(PLAIN, stall=15)] * (round((H200["latency.l2"] + H200["latency.crowd"]) / 15) + 1)
    code = [*8 * [copy], *idle, load, replace(FFMA, waits=(0,))]
    at = 8 + len(idle)
    costs = {k: AccessCost(1, 20.0, 4.0, 4.0, 4.0, (0,), asked=4.0) for k in range(8)} | {at: AccessCost(1, 1.0, 0.0, 0.0)}
    waited = ran(code, 1, costs=costs).rest[at + 1][WarpState.SHORT_SCOREBOARD]
    assert waited < 23 + 2 * 20 * H200["load_store.wavefront"], "of eight copies with 20 wavefronts each it waits for one or two"


def test_few_warps_wait_less_for_data_than_many():
    code = [replace(PLAIN, kind=LOAD, result=0, latency=34.0, slow=True), replace(FFMA, index=1, waits=(0,))]
    visits = [Visit(0, 2, 1, {0: AccessCost(1, 0.0, 1.0, 4.0, 4.0, (0,))})]
    half, all_of_it = (Multiprocessor(code, visits, 1, 1, H200, crowded=part).run().cycles for part in (0.5, 1.0))
    assert all_of_it - half == pytest.approx(H200["latency.crowd"] / 2)


def test_what_is_not_in_l2_comes_from_device_memory():
    code = [replace(PLAIN, kind=LOAD, result=0, latency=34.0, slow=True), replace(FFMA, index=1, waits=(0,))]
    visits = [Visit(0, 2, 1, {0: AccessCost(1, 0.0, 1.0, 4.0, 4.0, (0,))})]
    device, crowd = H200["latency.device"], H200["latency.crowd"]

    def cycles(every: float, fresh: float = 1.0) -> float:
        return Multiprocessor(code, visits, 1, 1, H200, away=Away(every), fresh={0: fresh}).run().cycles

    assert cycles(device) - cycles(0) == pytest.approx(device - crowd), "who waits for DRAM does not wait for a crowd, too"
    assert cycles(device, 0.25) - cycles(0) == pytest.approx((device - crowd) / 4), "of four loads one wants a new line"
    of_c = [Multiprocessor(code, visits, 1, 1, H200, away=Away(own=late), own=(0,)).run().cycles for late in (0.0, 500.0)]
    assert of_c[1] - of_c[0] == pytest.approx(500), "the launch before has stored it"


def test_a_multiprocessor_may_ask_l2_for_a_burst():
    """What all of them can have at a time is less than what one can take: tiles of 32 KB came in 530 cycles where others asked at other
    times, and one after the other at L2's rate: kernels/LOG.md, run 41."""
    load = replace(PLAIN, kind=LOAD, result=0, latency=34.0, slow=True)

    def cycles(loads: int) -> float:
        costs = {k: AccessCost(1, 0.0, 1.0, 16.0, 16.0, (0,), asked=4.0) for k in range(1, loads + 1)}
        return ran([replace(PLAIN, stall=500), *[load] * loads, replace(FFMA, waits=(0,))], warps=1, costs=costs).cycles

    share, own = 16 * H200.l2_sector, 16 * H200["load_store.l2_sector_alone"]
    ahead = int(H200["load_store.burst"] / (share - own))
    assert (cycles(ahead) - cycles(ahead // 2)) / (ahead - ahead // 2) < share / 2
    assert (cycles(400) - cycles(200)) / 200 == pytest.approx(share, rel=0.02)


@pytest.mark.parametrize(("new", "late"), [(0.0, 0), (0.25, 2), (0.5, 4), (1.0, 8)])
def test_of_the_lines_that_nobody_fetched_before_each_is_late_and_no_other(new, late):
    """Eight loads, each waited for before the next one."""
    code = [
        step
        for k in range(8)
        for step in (replace(PLAIN, index=2 * k, kind=LOAD, result=0, latency=34.0, slow=True), replace(FFMA, index=2 * k + 1, waits=(0,)))
    ]
    visits = [Visit(0, 16, 1, {2 * k: AccessCost(1, 0.0, 1.0, 4.0, 4.0, (0,)) for k in range(8)})]
    near, far = (Multiprocessor(code, visits, 1, 1, NO_CROWD, away=Away(new=part)).run().cycles for part in (0.0, new))
    assert far - near == pytest.approx(late * H200["latency.streamed"])


@pytest.mark.parametrize(("kind", "early"), [(LOAD, True), (STORE, False)])
def test_the_address_of_a_load_is_read_before_the_unit_takes_it(kind, early):
    """Behind a load or store that keeps the unit for 500 cycles, an instruction that wants the registers of the next one."""
    slow, asks = (replace(PLAIN, index=k, kind=kind, sources=k, slow=True) for k in range(2))
    visits = [Visit(0, 3, 1, {0: AccessCost(1, 0.0, 500.0, 2000.0), 1: AccessCost(1, 0.0, 1.0, 4.0)})]
    run = Multiprocessor([slow, asks, replace(FFMA, index=2, waits=(1,))], visits, 1, 1, H200).run()
    waited = run.rest[2][WarpState.LONG_SCOREBOARD]
    assert (waited < H200["load_store.address"]) if early else (waited > 400)


PAST_L1 = replace(PLAIN, kind=COPY, past_l1=True, latency=34.0, slow=True)
LDSM = replace(PLAIN, kind=SHARED, result=0, latency=30.0)


def asking(requests):
    return AccessCost(1, 0.0, requests, 16.0, 16.0, (0,), asked=requests)


@pytest.mark.parametrize(("requests", "measured"), [(8, 8.05), (12, 12.05), (15, 15.04), (16, 16.05)])
def test_copies_past_l1_take_a_cycle_for_each_request(requests, measured):
    """Of 16 bytes a lane, eight warps, one multiprocessor: kernels/LOG.md, run 38."""
    code = [PAST_L1] * 64
    costs = {k: asking(requests) for k in range(64)}
    few, many = (ran(code, 8, count, costs=costs).cycles for count in (2, 4))
    assert (many - few) / (2 * 64 * 8) == pytest.approx(measured, rel=0.08)


@pytest.mark.parametrize(("behind", "measured"), [(LDSM, (413, 964)), (replace(LDSM, kind=VARIABLE), (353, 833))])
def test_whatever_the_unit_serves_waits_behind_copies_past_l1_of_its_sub_partition(behind, measured):
    """Cycles from the first of eight copies of 15 requests until what comes behind them is there, by four warps and by eight."""
    costs = {k: asking(15) for k in range(8)} | {8: AccessCost(1, 4.0, 0.0, 0.0)}
    code = [*8 * [PAST_L1], behind, replace(FFMA, waits=(0,))]
    waited = [ran(code, warps, costs=costs).rest[9][WarpState.SHORT_SCOREBOARD] / warps for warps in (4, 8)]
    assert waited == pytest.approx(measured, rel=0.3)


def test_shared_loads_that_wait_to_be_served_hide_the_requests_of_copies():
    """Two copies of 15 requests beside twelve LDSM.4 took two cycles each on an H200, where nothing else was to be done 17."""
    code = [*12 * [replace(LDSM, result=-1)], *2 * [PAST_L1]]
    costs = {k: AccessCost(1, 4.0, 0.0, 0.0) for k in range(12)} | {k: asking(15) for k in (12, 13)}
    with_copies, without = (
        (ran(some, 8, 40, costs=costs).cycles - ran(some, 8, 20, costs=costs).cycles) / (20 * 8) for some in (code, code[:12])
    )
    assert 2 * H200["copies.unit"] <= with_copies - without < 20


def test_the_registers_of_a_copy_past_l1_are_read_when_its_turn_is_next():
    """The first one's at once; those of the eighth when seven have asked."""
    copies = [replace(PAST_L1, sources=int(k == last)) for last in (0, 7) for k in range(8)]
    costs = {k: asking(15) for k in range(8)}
    first, last = (
        ran([*(replace(c, sources=0 if c.sources else -1) for c in copies[a : a + 8]), replace(FFMA, waits=(0,))], 1, costs=costs)
        .rest[8][WarpState.LONG_SCOREBOARD] for a in (0, 8)
    )  # fmt: skip
    assert first < H200["load_store.address"] and 5 * 15 < last < 8 * 15


def test_a_load_may_have_one_scoreboard_for_its_address_and_its_result():
    code = [replace(PLAIN, kind=LOAD, result=0, sources=0, latency=34.0, slow=True), replace(FFMA, index=1, waits=(0,))]
    run = Multiprocessor(code, [Visit(0, 2, 1, {0: AccessCost(1, 0.0, 1.0, 4.0)})], 1, 1, H200).run()
    assert run.issued == 2 and run.cycles > 34


def test_every_cycle_of_every_warp_is_in_one_state():
    load = replace(PLAIN, kind=LOAD, result=0, latency=34.0, slow=True)
    read = replace(PLAIN, kind=SHARED, result=1, latency=23.0)
    code = [load, FFMA, read, replace(FFMA, stall=4), replace(FFMA, waits=(0, 1), even=2, all_even=2), replace(PLAIN, kind=BARRIER)] * 6
    costs = {k: AccessCost(8, 2.0, 1.0, 4.0, 4.0, tuple(range(8))) for k, step in enumerate(code) if step.kind in (LOAD, SHARED)}
    done = ran(code, 8, 3, costs, resident=2)
    spent = sum(sum(row) for row in done.rest.values())
    assert done.issued == len(code) * 3 * 16 == sum(row[WarpState.SELECTED] for row in done.rest.values())
    assert 0.9 * done.cycles * 16 < spent <= done.cycles * 16 + 16, "some warps end a little before the last"
    assert all(value >= -1e-9 for row in done.rest.values() for value in row)
    assert sorted(WORDS) == sorted(WarpState)


@pytest.mark.parametrize(("sectors", "lines", "partial", "alone", "together"), [
    (16, 4, 0, 16.0, 28.2), (8, 8, 0, 8.2, 18.9), (4, 1, 0, 4.0, 7.2), (8, 8, 8, 15.5, 26.3), (4, 4, 4, 5.8, 11.6), (32, 8, 8, 39.9, 70.6), (32, 32, 32, 62.0, 104.6),
])  # fmt: skip
def test_stores_take_what_was_measured(sectors, lines, partial, alone, together):
    """Rows of 64 bytes of a warp's 16 each, of 32, whole lines of floats, rows of 16 bytes, 16 bytes each 32, and each 4096: cycles of a
    store by one multiprocessor and by all of them: kernels/LOG.md, run 42."""
    store = replace(PLAIN, kind=STORE, slow=True)
    costs = {0: AccessCost(8, 0.0, 0.0, sectors, asked=lines, partial=partial)}
    for active, measured in ((1 / 132, alone), (1.0, together)):
        few, many = (Multiprocessor([store], [Visit(0, 1, 255, costs)] * count, 8, 1, H200, active).run().cycles for count in (100, 200))
        assert (many - few) / 800 == pytest.approx(measured, rel=0.12)


def test_a_tensor_core_goes_on_with_the_warpgroup_that_it_works_for():
    """Of two that multiply at once the first has its sums when the second one begins, and not both at the end."""
    product = replace(PLAIN, kind=PRODUCT, pipe="tensor", latency=100.0)
    code = [product, replace(product, closes=True), replace(PLAIN, kind=SUMS), PLAIN]
    run = Multiprocessor([replace(step, index=k) for k, step in enumerate(code)], [Visit(0, 4, 0b10001, {})], 8, 1, H200).run()
    waited = run.rest[2][WarpState.BARRIER]
    assert waited == pytest.approx(200 + 400 + 2 * H200["tensor.warpgroup"], rel=0.05)


@pytest.mark.parametrize(("stays", "ends"), [(0b00001, 0b10000), (0b10000, 0b00001)])
def test_a_warp_may_end_before_its_products_do(stays, ends):
    """Nobody has to wait for sums that nobody reads; others of its tensor core still come before what it has not begun."""
    product = replace(PLAIN, kind=PRODUCT, pipe="tensor", latency=100.0, closes=True)
    code = [replace(step, index=k) for k, step in enumerate((product, replace(PLAIN, stall=15), product, product, PLAIN))]
    visits = [Visit(0, 2, stays, {}), Visit(3, 5, ends, {}), Visit(2, 3, stays, {})]
    assert Multiprocessor(code, visits, 8, 1, H200).run().issued == 5
