"""Expectations on counters, judged on real runs of the reference kernels.

Tests of: helpers.course.overlap
"""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

import helpers
from helpers.course import measures
from helpers.course.comparing import edited
from helpers.course.exercises import exercise, exercises
from helpers.course.steps import STEPS, get
from helpers.errors import CourseError
from helpers.run import gemm
from helpers.run.own_products import counted_size
from helpers.sim import TraceFilter
from helpers.sim.code import elf
from helpers.sim.counting import names
from tests.course import cheats

KERNELS = [step for step in STEPS if step.kernel_path]


@functools.lru_cache(maxsize=2)  # a trace is large
def run_of(slug: str, m: int | None = None, n: int | None = None, k: int | None = None, trace: bool = True):
    step = get(slug)
    kernel = helpers.compile(step.kernel_path.read_text(encoding="utf-8"), entry=step.entry)
    size = counted_size(kernel)
    problem = gemm.problem_for(kernel, *(size if extent is None else extent for extent in (m, n, k)))
    return gemm.run(kernel, problem, on="cpu", trace=trace or None)


def test_every_step_promises_something():
    """That its kernel keeps it, the check in its lesson says (tests/notebooks/outcome.py)."""
    assert all(step.expect for step in KERNELS)


def meets(run, expectation) -> bool:
    try:
        return expectation.judge(run).ok
    except helpers.CourseError:  # it asks for an array that this kernel does not have
        return False


def machine_code(step) -> bytes:
    compiled = helpers.compile(step.kernel_path.read_text(encoding="utf-8")).compiled
    return elf.sections(compiled.cubin)[f".text.{compiled.symbol}"].data


@pytest.mark.parametrize(("before", "step"), list(itertools.pairwise(KERNELS)), ids=lambda step: step.name)
def test_a_step_before_does_not_meet_them(before, step):
    if step.slug == "autotune":  # as it is shipped, it is the step before: no counter can tell them apart
        assert machine_code(before) == machine_code(step)
        return
    assert not all(meets(run_of(before.slug), expectation) for expectation in step.expect)


def test_different_sectors():
    run = run_of("coalesced", 64, 96, 32)
    assert [measures.different_sectors(run, array) for array in "ABC"] == [64 * 32 // 8, 32 * 96 // 8, 0]
    assert [measures.different_sectors(run, array, "st") for array in "ABC"] == [0, 0, 64 * 96 // 8]
    assert measures.different_sectors(run, "bias") == 0


def test_the_array_measures_add_up_to_the_counters():
    run = run_of("coalesced", 64, 96, 32)
    name = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
    both = [measures.sectors_per_request(run, array) for array in "AB"]
    assert measures.sectors_per_request(run) == pytest.approx(sum(both) / 2)
    assert run.counters[name] == 2 * 32 * 64 * 96 / 32


def test_sectors_depend_on_the_length_of_a_row():
    found = [measures.sectors_per_request(run_of("naive", 32, 32, k), "A") for k in (1, 2, 4, 8, 16)]
    assert found == [4, 8, 16, 32, 32]


def test_lines_are_coarser_than_sectors():
    run = run_of("coalesced")
    assert measures.pieces_per_request(run, "B", nbytes=128) == 1
    assert measures.pieces_per_request(run, "B", nbytes=32) == 4
    assert measures.pieces_per_request(run_of("naive"), "A", nbytes=128) == 32


def test_loads_per_result():
    run = run_of("shared_tile", 64, 64, 128)
    assert measures.global_loads_per_result(run) == 128 / 16
    # K loads of Bs; the loads of four neighbours in As were merged into one of 128 bits.
    assert measures.shared_loads_per_result(run) == 128 + 128 / 4


def test_wavefronts_of_shared_memory():
    # Per k: one wavefront for Bs, half of one for As (two for four values). Per tile of 32: one store of each tile.
    assert measures.shared_wavefronts_per_multiply_add(run_of("shared_tile")) == 1 + 1 / 2 + 2 / 32
    assert measures.shared_wavefronts_per_multiply_add(run_of("naive")) == 0
    with pytest.raises(CourseError, match="no FP32 multiply-add"):
        measures.shared_wavefronts_per_multiply_add(run_of("naive", 32, 32, 0, trace=False))


def test_barriers_stores_and_wavefronts_for_each_load():
    run = run_of("shared_tile")  # K = 64: two tiles, two barriers and two stores for each; 64 loads of b and 16 of four a
    assert measures.barriers_per_warp(run) == 2 * 2
    assert measures.barriers_per_fill(run) == 2
    assert measures.shared_stores_per_result(run) == 2 * 2
    assert measures.wavefronts_per_shared_load(run) == (64 + 32) / (64 + 16)
    none = run_of("naive", 32, 32, 32, trace=False)
    assert measures.barriers_per_warp(none) == measures.shared_stores_per_result(none) == 0
    with pytest.raises(CourseError, match="no shared loads"):
        measures.wavefronts_per_shared_load(none)


def test_barriers_are_counted_from_one_fill_to_the_next():
    """A last turn that fetches nothing more has a barrier and no fill: what is counted is between the fills."""
    solution = exercise("look_ahead").solution
    frugal = cheats.source(
        "look_ahead", next(edits for slug, name, *edits in cheats.OTHER_WAYS if name == "nothing asked for in the last turn")
    )
    twice = frugal.replace("if (k0 + BK < K) As", "__syncthreads();\n        if (k0 + BK < K) As")
    for source, k, between in ((solution, 64, 1), (frugal, 64, 1), (twice, 64, 2), (frugal, 16, 2), (twice, 16, 3)):
        run = gemm.run(helpers.compile(source), helpers.Problem(16, 16, k), on="cpu", trace=True)
        assert measures.barriers_per_fill(run) == between
        assert measures.barriers_per_warp(run) == 1 + k / 16 * (2 if source is twice else 1)


@pytest.mark.parametrize(
    ("slug", "old", "new", "expected"),
    [
        ("every_second", "        if (turn % 2 == 0) {  // for this turn and the next one\n            wait<0>();\n            __syncthreads();\n        }\n",
         "        wait<0>();\n        if (turn % 2 == 0) __syncthreads();\n", 4),
        ("warp_barrier", "        __syncthreads();\n    }\n\n    for (int i = 0; i < TM", "        if (k0 + BK < K) __syncthreads();\n    }\n\n    for (int i = 0; i < TM", 15),
    ],
)  # fmt: skip
def test_a_barrier_whose_guard_is_false_is_none(slug, old, new, expected):
    """ptxas makes a predicate of a short `if`: the instruction is executed in every turn, the barrier is not."""
    kernel = helpers.compile(cheats.source(slug, [(old, new)]))
    assert any("@" in line and "BAR.SYNC" in line for line in kernel.sass.splitlines())
    run = gemm.run(kernel, helpers.Problem(64, 64, 64), on="cpu", trace=True)
    assert measures.barriers_per_warp(run) == measures.barriers_passed(run) == expected
    assert measures.barriers_per_warp(gemm.count(kernel, helpers.Problem(64, 64, 64))) == expected
    assert measures.busiest_line(run, "barriers per warp") in (
        number for number, line in enumerate(kernel.source.splitlines(), 1) if "__syncthreads" in line
    )


def test_conflicts_of_stores():
    source = (
        get("shared_tile").kernel_path.read_text(encoding="utf-8").replace("As[ty][tx]", "As[tx][ty]").replace("As[ty][k]", "As[k][ty]")
    )
    run = gemm.run(helpers.compile(source), helpers.Problem(32, 32, 32), on="cpu")
    assert measures.shared_store_conflicts(run) == 32 * 31  # each of 32 warps goes down a column: one bank, 32 rows
    assert not measures.expect("bank conflicts of shared stores == 0").judge(run).ok


@pytest.mark.slow
@pytest.mark.parametrize(("padding", "each"), [(4, 2), (0, 16), (8, 4)])
def test_copies_meet_in_banks_too(padding, each):
    """Sixteen columns of the tile of A, each two words of a warp's copy: what separates them is the padding alone."""
    source = edited(get("async_copy").kernel_path.read_text(encoding="utf-8"), {"PAD": padding}, "step 10")
    run = gemm.count(helpers.compile(source), helpers.Problem(256, 256, 256))
    assert measures.wavefronts_per_copy(run) == each
    assert not measures.shared_load_conflicts(run) and not measures.shared_store_conflicts(run), "these leave copies out"
    assert measures.expect("wavefronts per asynchronous copy <= 4").judge(run).ok == (each <= 4)


def test_without_copies_there_is_nothing_to_say_of_them():
    assert measures.wavefronts_per_copy(run_of("vectorized", 64, 64, 32, trace=False)) == 0


def test_accesses_of_one_array_per_result():
    run = run_of("naive", 32, 32, 16)
    found = {array: measures.accesses_per_result(run, array) for array in "ABC"}
    assert found == {"A": 16, "B": 16, "C": 0} and sum(found.values()) == measures.global_loads_per_result(run)
    assert measures.accesses_per_result(run, "C", "st") == measures.measure("stores of C per result")(run) == 1
    assert measures.busiest_line(run, "loads of A per result") == measures.line_number(run.kernel, "A[")
    assert measures.is_part_of("loads of A per result", "global loads per result")
    assert not measures.is_part_of("global loads per result", "loads of A per result")
    assert not measures.is_part_of("sectors per load of A", "global loads per result")
    with pytest.raises(CourseError, match="no array D"):
        measures.measure("loads of D per result")(run)


def test_bytes_requested():
    # 33 sectors for each k and warp, and 32 for its store.
    assert measures.bytes_requested(run_of("naive", 32, 32, 16)) == 32 * 32 * (33 * 16 + 32)


def test_a_question_needs_a_trace_and_an_array():
    with pytest.raises(CourseError, match="trace"):
        measures.sectors_per_request(run_of("naive", trace=False), "A")
    with pytest.raises(CourseError, match="no array D"):
        measures.sectors_per_request(run_of("naive"), "D")
    with pytest.raises(CourseError, match="no global loads of C"):
        measures.sectors_per_request(run_of("naive"), "C")


def test_sentences():
    run = run_of("naive")
    assert not measures.expect("sectors per load of A <= 31").judge(run).ok
    assert measures.expect("sectors per load of A <= 32").judge(run).ok
    assert measures.expect("global loads per result == 2 K").judge(run).ok
    assert measures.expect("global loads per result == 3/2 K + 32").judge(run).ok
    verdict = measures.expect("global loads per result <= 3/2 K").judge(run)
    assert str(verdict) == "FAIL  global loads per result: yours 128, expected at most 96"


def test_successive_blocks_that_share_a_tile():
    run = run_of("naive", 64, 96, 16)  # 3 blocks across, 2 down
    assert [measures.blocks_that_share(run, array) for array in "AB"] == [3, 1]
    assert measures.expect("successive blocks that share A == 3").judge(run).ok
    with pytest.raises(CourseError, match="no array D"):
        measures.blocks_that_share(run, "D")


def test_an_expectation_of_longer_rows():
    longer = measures.expect("global loads per result where rows are 2 longer == 1/32 K")
    assert (longer.text, longer.longer, longer.exactly(helpers.Problem(1, 1, 64))) == (
        "global loads per result where rows are 2 longer",
        2,
        2,
    )
    assert measures.expect("global loads per result == 1/32 K").longer == 0
    assert measures.expect("global loads where rows are 3 shorter <= 128").longer == -3
    added = measures.expect("stores of C per result where beta is 1 <= 1")
    assert (added.text, added.beta, added.longer) == ("stores of C per result where beta is 1", 1, 0)
    assert measures.expect("stores of C per result <= 1").beta == 0
    for sentence in (
        "global loads where rows are 3 <= 128", "global loads where rows are short <= 128", "global loads where beta is one <= 128",
        "global loads where K is 1 <= 128",
    ):  # fmt: skip
        with pytest.raises(CourseError, match="is not an expectation"):
            measures.expect(sentence)


@pytest.mark.parametrize(
    "sentence", ["sectors of A <= 4", "sectors per load of A < 4", "sectors per load of A <= four", "barriers per warp <= 1/0", "", 3, None]
)
def test_a_sentence_it_does_not_know_is_refused(sentence):
    with pytest.raises(CourseError, match=f"^{sentence!r} is not an expectation. Write one of .sectors per load of A; "):
        measures.expect(sentence)


def test_words_name_what_is_counted():
    run = run_of("shared_tile")  # 4 blocks of 32 warps, K = 64
    words = {"global loads": 2 * 2, "shared loads": 64 + 16, "multiply-adds": 64, "BAR instructions": 4}
    assert {name: measures.measure(f"{name} of each warp")(run) for name in words} == words
    assert measures.measure("global loads of each block")(run) == 32 * words["global loads"]
    assert measures.measure("shared loads of each block's warps")(run) == 32 * words["shared loads"]
    assert measures.measure("registers per thread")(run) == run.kernel.registers
    assert measures.multiply_add_share(run) == 64 * 128 / measures.measure("all instructions")(run)
    with pytest.raises(CourseError, match="Nothing here counts 'trips'.*sectors per load of A; "):
        measures.measure("trips")


OF_PARTS = {
    f"{where}: {each.text}": each
    for where, expectations in [*((row.name, row.expect) for row in STEPS), *((one.slug, one.expect) for one in exercises().values())]
    for each in expectations
    if " of each " in each.text
}


def test_what_each_part_of_a_launch_shall_do_is_a_whole_number():
    """No warp starts 0.8 copies."""
    assert len(OF_PARTS) > 40
    for where, expectation in OF_PARTS.items():
        bound = next(bound for bound in (expectation.exactly, expectation.at_most, expectation.at_least) if bound is not None)
        bound = bound(helpers.Problem(64, 64, 64)) if callable(bound) else bound
        assert bound == int(bound), where


def test_what_shared_memory_and_instructions_leave_of_the_peak():
    run = run_of("shared_tile")  # 1 + 1/2 + 2/32 wavefronts for each multiply-add, of which an SM does four a cycle
    assert measures.shared_memory_limit(run) == pytest.approx(66.9 / (4 * 1.5625), rel=1e-3)
    assert measures.shared_memory_limit(run_of("vectorized", 128, 128, 64, trace=False)) == pytest.approx(66.9, rel=1e-3)
    assert measures.instruction_limit(run) == pytest.approx(66.9 * measures.multiply_add_share(run), rel=1e-3)
    assert measures.machine_code(run.kernel, "LDS", "STS") == {"LDS": 32, "LDS.128": 8, "STS": 2}


def test_one_line_of_a_run():
    run = run_of("shared_tile")
    assert measures.measure("shared loads of each warp")(measures.at_line(run, "b = Bs[k][tx]")) == 64
    assert measures.measure("shared loads")(measures.at_line(run, "float sum")) == 0
    with pytest.raises(CourseError, match="no line with “nowhere”"):
        measures.line_number(run.kernel, "nowhere")


def test_a_bound_may_be_one_from_below():
    expectation = measures.expect("registers per thread >= 1/2")
    verdict = expectation.judge(run_of("naive", 32, 32, 16))
    assert verdict.ok and verdict.expected == "at least 0.5" and not verdict.too_much
    assert not measures.expect("barriers per warp >= 1").judge(run_of("naive", 32, 32, 16)).ok
    with pytest.raises(ValueError, match="one of exactly, at_most and at_least"):
        measures.Expectation("two bounds", measures.barriers_per_warp, at_most=1, at_least=1)


def test_waits_for_copies_need_copies_and_multiply_adds():
    kernel = helpers.compile(exercise("no_wait").solution)
    with pytest.raises(CourseError, match="no multiply-adds"):
        measures.multiply_adds_behind_copies(gemm.run(kernel, helpers.Problem(64, 64, 64), on="cpu", trace=True, counters=False))
    with pytest.raises(CourseError, match="waits for no asynchronous copies"):
        measures.multiply_adds_behind_copies(
            gemm.run(
                helpers.compile(exercise("look_ahead").solution),
                helpers.Problem(16, 16, 64),
                on="cpu",
                trace=helpers.TraceFilter(math=True),
            )
        )
    with pytest.raises(CourseError, match="loads nothing from shared memory"):
        measures.shared_loads_at_a_time(
            gemm.run(
                helpers.compile(get("naive").kernel_path.read_text(encoding="utf-8")),
                helpers.Problem(8, 8, 8),
                on="cpu",
                trace=helpers.TraceFilter(math=True),
            )
        )


@pytest.mark.parametrize(
    ("slug", "words", "edits", "found"),
    [
        ("two_stages", "stages at a time", (), 2),
        (
            "two_stages",
            "stages at a time",
            (("map_B, block_col, s * BK, &full[stage]);", "map_B, block_col, s * BK, &full[stage]), wait(&empty[stage], s / 2 % 2);"),),
            1,
        ),
        ("two_stages", "barriers passed by each warp", (), 1),
        ("two_stages", "bulk copies of the busiest block", (), 16),
        ("two_stages", "inits of the busiest mbarrier", (), 1),
        ("next_phase", "inits of the busiest mbarrier", (), 1),
        (
            "next_phase",
            "inits of the busiest mbarrier",
            (
                ("wait(&full, k0 / BK % 2);", "wait(&full, 0);"),
                (
                    "        __syncthreads();  // the tile has",
                    '        __syncthreads();\n        if (t == 0) asm volatile("mbarrier.inval.shared::cta.b64 [%0];\\n'
                    'mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(address(&full)) : "memory");\n        __syncthreads();  // the tile has',
                ),
            ),
            5,
        ),
        ("half_each", "barriers passed by each warp", (), 2),
        ("half_each", "bulk copies of the busiest block", (), 16),
        (
            "half_each",
            "bulk copies of the busiest block",
            (
                ("load_for_both(ring[stage].B + rank", "if (rank == 0) for (int h = 0; h < 2; h++) load_for_both(ring[stage].B + h"),
                ("k + rank * BK / 2", "k + h * BK / 2"),
            ),
            24,
        ),
    ],
)
def test_what_a_traced_ring_of_stages_is_asked(slug, words, edits, found):
    source = exercise(slug).solution
    for old, new in edits:
        assert old in source
        source = source.replace(old, new)
    kernel = helpers.compile(source, arch="sm_90a")
    problem = helpers.Problem(64, 64, 256, dtype="float16")
    assert measures.measure(words)(gemm.run(kernel, problem, on="cpu", trace=True)) == found
    with pytest.raises(CourseError, match="cut short"):
        measures.measure(words)(gemm.run(kernel, problem, on="cpu", trace=helpers.TraceFilter(limit=3)))


@pytest.mark.parametrize(("of_k", "found"), [("k = z; k < K; k += SLICES", 16), ("k = z ? K : 0; k < K; k++", 64)])
def test_multiply_adds_are_those_of_the_warp_with_most(of_k, found):
    source = cheats.source("keep_one", [("k = z; k < K; k += SLICES", of_k)])
    run = gemm.run(helpers.compile(source), helpers.Problem(16, 16, 64), on="cpu", trace=helpers.TraceFilter(math=True))
    assert measures.measure("multiply-adds of the busiest warp")(run) == found
    with pytest.raises(CourseError, match="no multiply-adds"):
        measures.multiply_adds_of_a_warp(run_of("shared_tile"))


def test_fp64_instructions_are_of_three_kinds():
    source = cheats.source(
        "keep_one",
        [("float sum = 0;", "double more = alpha;\n    float sum = 0;"), ("alpha * sum :", "float(more * sum + (more - K) * more) :")],
    )
    run = gemm.run(helpers.compile(source), helpers.Problem(16, 16, 64), on="cpu")
    each = [measures.count(run, names.opcode(opcode)) for opcode in ("DFMA", "DADD", "DMUL")]
    assert measures.measure("FP64 instructions")(run) == sum(each) and sum(map(bool, each)) > 1


def test_a_kernel_without_bulk_copies_has_no_stages_to_count():
    with pytest.raises(CourseError, match="No bulk copy"):
        measures.stages_at_a_time(run_of("shared_tile"))


AT_WAIT, COMMIT = "wait<0>();", "__device__ void commit()"
WAIT_ALL = '__device__ void wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }\n'


@pytest.mark.parametrize(
    ("slug", "words", "edits", "found"),
    [
        ("spread_the_copies", "copies at a time", (), 1),
        ("look_ahead", "multiply-adds behind a tile's loads", (), 16),
        ("look_ahead", "multiply-adds behind a tile's loads", (("[tx] = b;", "[tx] = b_at(k0 + BK);"),), 0),
        ("two_to_a_group", "multiply-adds between a copy and its wait", (), 16),
        ("two_to_a_group", "multiply-adds between a copy and its wait", ((AT_WAIT, "wait_all();"), (COMMIT, WAIT_ALL + COMMIT)), 16),
        (
            "two_to_a_group",
            "multiply-adds between a copy and its wait",
            (("        commit();\n", "        commit();\n        wait<0>();\n"),),
            0,
        ),
        ("no_wait", "multiply-adds between a copy and its wait", (), 2 * 8 * 32),
        ("no_wait", "multiply-adds between a copy and its wait", (("wait<AHEAD - 1>", "wait<0>"),), 8 * 32),
        ("across_the_edge", "multiply-adds between a copy and its wait", (), 15 * 32),
        ("across_the_edge", "shared loads at a time", (), 3),
        (
            "across_the_edge",
            "shared loads at a time",
            (("            if (k + 1 < BK)", "            read(stage, k);\n            if (k + 1 < BK)"),),
            6,
        ),
    ],
)
def test_the_order_of_copies_loads_and_multiply_adds(slug, words, edits, found):
    source = exercise(slug).solution
    for old, new in edits:
        source = source.replace(old, new)
    kernel = helpers.compile(source)
    run = gemm.run(kernel, helpers.Problem(32, 32, 64), on="cpu", trace=helpers.TraceFilter(math=True), counters=False)
    assert measures.measure(words)(run) == found
    with pytest.raises(CourseError, match="starts no|no multiply-adds|stores no tile"):
        measures.copies_at_a_time(gemm.run(kernel, helpers.Problem(32, 32, 8), on="cpu", trace=True, counters=False))


def test_counted_instructions_print_in_words():
    found = measures.machine_code(helpers.reference("vectorized"), "LDS", "STS")
    assert found == dict(found) and str(found) == f"{found}" == ", ".join(f"{count} {name}" for name, count in found.items())
    assert "{" not in repr(found) and str(measures.machine_code(helpers.reference("vectorized"), "HMMA")) == "none of these"


@pytest.mark.parametrize("words", ["multiply-adds", "FFMA instructions of each warp", "FP64 instructions", "all instructions"])
def test_what_data_decide_is_no_number(words):
    """Of a division it depends on data how many multiply-adds it takes: 0 of them met any bound."""
    kernel = helpers.compile(get("shared_tile").kernel_source().replace("sum += a * b", "sum += a / (b + 2)"))
    run = gemm.run(kernel, gemm.Problem(32, 32, 32), on="cpu")
    with pytest.raises(CourseError, match=r"could not be counted \(a branch depends on data\), and so is not known: "):
        measures.measure(words)(run)


def test_an_atomic_operation_that_is_a_loop_is_not_counted_as_one_instruction():
    """ptxas makes a loop of what shared memory has not, an addition of float32; of int32 it has one."""
    source = get("shared_tile").kernel_source().replace("float sum = 0;", "__shared__ KIND kept[32];\n    float sum = 0;")
    source = source.replace("sum += a * b;", "sum += a * b;\n            if (k == 0) atomicAdd(&kept[threadIdx.x], KIND(1));")
    for kind, known in (("float", False), ("int", True)):
        run = gemm.run(helpers.compile(source.replace("KIND", kind)), gemm.Problem(32, 32, 32), on="cpu", findings=False)
        assert (names.executed("shared_atom") in run.counters) == (names.executed("shared_ld") in run.counters) == known
        for words in ("shared loads per result", "bank conflicts of shared loads", "barriers per warp"):
            if known:
                assert measures.measure(words)(run) >= 0
            else:
                with pytest.raises(CourseError, match="a branch depends on data"):
                    measures.measure(words)(run)


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("", "", 192),
        ("constexpr int STAGES = 4;", "constexpr int STAGES = 2;", 64),
        ("stages[now], k0 + STAGES * BK);", "stages[now], k0 + STAGES * BK); commit(); wait<0>();", 0),
    ],
)
def test_copies_hide_behind_matrix_instructions_or_are_waited_for_at_once(old, new, found):
    step = get("mma_sync")
    kernel = helpers.compile(step.kernel_source().replace(old, new), entry=step.entry, arch=step.target())
    problem = gemm.problem_for(kernel, *gemm.geometry(kernel).tile, 512)
    run = gemm.run(kernel, problem, on="cpu", counters=False, findings=False, blocks=(0,), trace=TraceFilter(math=True))
    expectation = next(each for each in step.expect if "between a copy" in each.text)
    assert expectation.of_order and expectation.judge(run).yours == found and expectation.judge(run).ok == (found > 0)


@pytest.mark.parametrize("slug", ["tma_wgmma", "warp_specialized", "fp32_on_tensor_cores", "fp8"])
def test_steps_that_copy_in_bulk_promise_more_than_a_stage_at_a_time(slug):
    (promised,) = [each for each in get(slug).expect if each.text == "stages at a time"]
    assert promised.at_least == 2 and promised.of_array


def test_a_store_of_matrices_is_one_of_a_whole_warp():
    """Only eight lanes give an address, and all of them take part; the other store is one thread's."""
    source = """__global__ void k(int* y) {
        __shared__ __align__(16) int tile[64];
        unsigned at = (unsigned)__cvta_generic_to_shared(tile + threadIdx.x % 8 * 4);
        asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" :: "r"(at), "r"(threadIdx.x) : "memory");
        if (threadIdx.x == 5) tile[40] = 1;
        __syncthreads();
        if (threadIdx.x < 8) y[threadIdx.x] = tile[threadIdx.x * 5];
    }"""
    run = helpers.compile(source, arch="sm_90").launch(1, 32, (np.zeros(32, np.int32),), on="cpu", trace=True)
    assert measures.threads_that_take_part(run, "shared stores per result") == (32 + 1) / 2
    assert measures.threads_that_take_part(run, "shared loads per result") == 8
