"""A corpus of cheats, none of which passes or climbs, and of unusual kernels, all of which do."""

from __future__ import annotations

import itertools
import re

import pytest

import helpers
from helpers.course import proof, steps, strategy
from helpers.course.exercises import exercise, exercises
from helpers.course.lesson import LessonKernel, reference
from helpers.course.measures import Expectation
from helpers.course.steps import STEPS
from helpers.course.sweep import variant
from helpers.errors import CourseError
from helpers.run import gemm
from helpers.run.kernel import compile as compile_kernel
from helpers.toolchain.compile import compile_source

from . import cheats


def for_the_machine(base: str, edits):
    """Compiled to PTX alone, which it executes, in half the compiler's time."""
    source = cheats.source(base, edits)
    return helpers.compile(source, arch="compute_90a" if "wgmma." in source else "compute_90")


def named(corpus):
    return [pytest.param(base, edits, id=f"{base}-{name}".replace(" ", "_")) for base, rows in corpus.items() for name, *edits in rows]


@pytest.fixture(autouse=True)
def _own_home(monkeypatch):
    monkeypatch.setenv("GEMM_LADDER_NO_GPU", "1")


@pytest.mark.parametrize(("base", "edits"), named(cheats.WRONG))
def test_a_cheat_fails(base, edits):
    """At its first shape, else where one shape comes after another; what all must pass is tried in the order of cost."""
    kernel = for_the_machine(base, edits)

    def reports():
        fixed = gemm.adversarial(gemm.geometry(kernel).tile, *gemm.types(kernel))
        for shape in itertools.chain(fixed, gemm.drawn(kernel, seed=1)):
            yield gemm.check(kernel, [shape], on="cpu")
        yield gemm.check(kernel, on="cpu", seed=1)

    failed = next((report for report in reports() if not report), None)
    assert failed is not None
    assert [text for ok, text in failed.lines() if not ok and len(text) > 30]


@pytest.mark.slow
@pytest.mark.parametrize(("base", "edits"), named(cheats.ODD))
def test_an_unusual_kernel_passes(base, edits):
    report = gemm.check(for_the_machine(base, edits), on="cpu")
    assert report.passed, str(report)


def judged(slug: str, source: str):
    return proof.judged(helpers.compile(source), exercise(slug).expect, 1, lambda verdict: f"{verdict.text}: {verdict.yours:g}")


def edits_of(exercises):
    return [pytest.param(slug, edits, id=f"{slug}-{name}".replace(" ", "_")) for slug, name, *edits in exercises]


def expected(slug: str) -> set[str]:
    """What an exercise counts, with A for any array."""
    return {re.sub(r"(load|store) of \w+", r"\1 of A", expectation.text) for expectation in exercise(slug).expect}


@pytest.mark.parametrize(("slug", "edits"), edits_of(cheats.EVASIONS))
def test_an_evasion_does_not_meet_the_counters(slug, edits):
    sentences = judged(slug, cheats.source(slug, edits))
    assert not all(ok for _, ok in sentences), sentences
    assert "The run that is counted" not in sentences[0][0], "it is wrong, and belongs to another list"


@pytest.mark.slow
@pytest.mark.parametrize(("slug", "edits"), edits_of(cheats.WITHOUT_POINT))
def test_what_does_not_overlap_is_no_double_buffer(slug, edits):
    step = steps.get(slug)
    made = compile_kernel(cheats.source(slug, edits), entry=step.entry)
    assert gemm.check(made, gemm.adversarial(gemm.geometry(made).tile), on="cpu").correct
    said = [text for text, ok in proof.judged(made, step.expect, 1, lambda verdict: f"{verdict.text}: {verdict.yours:g}") if not ok]
    assert len(said) == 1 and re.match(r"multiply-adds (behind a tile's loads|between a copy and its wait): \d", said[0]), said


@pytest.mark.parametrize(("slug", "edits"), edits_of(cheats.OTHER_WAYS))
def test_another_way_meets_the_counters(slug, edits):
    sentences = judged(slug, cheats.source(slug, edits))
    assert all(ok for _, ok in sentences), sentences


@pytest.mark.slow
@pytest.mark.parametrize(("slug", "edits"), edits_of(cheats.HIDDEN))
def test_a_race_that_is_hidden_is_no_answer(slug, edits):
    report = exercise(slug).judge(helpers.compile(cheats.source(slug, edits)), 1, on="cpu")
    assert not report.passed
    assert any("This exercise needs none of them: use barriers." in text for ok, text in report.lines() if not ok) or report.findings


def test_a_fence_of_registers_before_wgmma_hands_nothing_over():
    """Beside an atomic operation of another kernel in the file it was taken for one that does."""
    source = reference("fp32_on_tensor_cores").source
    assert "wgmma.fence" in source and "atomicOr" in source and not proof.unfollowed(reference("fp32_on_tensor_cores"))


@pytest.mark.parametrize(("slug", "edits"), edits_of(cheats.FENCED))
def test_a_fence_alone_hides_nothing(slug, edits):
    report = exercise(slug).judge(helpers.compile(cheats.source(slug, edits)), 1, on="cpu")
    assert report.passed, str(report)


def test_the_corpus_is_large_enough_and_evades_every_kind_of_counter():
    assert sum(map(len, cheats.WRONG.values())) + len(cheats.EVASIONS) >= 60
    assert sum(map(len, cheats.ODD.values())) + len(cheats.OTHER_WAYS) >= 30
    judged_by_exercises = set().union(*(expected(item.slug) for item in exercises().values()))
    evaded = set().union(*(expected(slug) for slug, *_ in cheats.EVASIONS))
    assert judged_by_exercises <= evaded


@pytest.mark.parametrize("slug", ["first_kernel", "half_and_half"])
def test_the_kernel_on_the_page_does_not_answer_what_is_to_be_written(slug):
    """Its block and its tile are others, which are part of the task."""
    item = exercise(slug)
    report = item.check(reference(STEPS[item.lesson].slug))
    assert not report.passed and any("threads per block: yours" in text for ok, text in report.lines() if not ok)


@pytest.mark.parametrize("slug", cheats.REPLACED)
def test_an_exercise_about_tiles_wants_tiles(slug):
    assert not all(ok for _, ok in judged(slug, cheats.source("coalesced", cheats.REPLACED[slug])))


LISTED = [
    *(("autotune", setting) for setting in strategy.CONFIGURATIONS.values()),
    *(("warp_specialized", setting) for setting in strategy.TENSOR_CONFIGURATIONS.values()),
    ("fp8", {"BM": 192, "CONSUMERS": 3}),
    ("fp8", {"BM": 128, "STAGES": 6}),
    ("fp8", {"SCALE_K": 0}),
    ("tma_wgmma", {"BM": 64}),
]


COPY = "copy1(&stage.A[a_k + k][a_row + i * A_ROWS], a_from + a_offset[i] + k, a_k + k < left);"
LOAD = "*reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(from);"


def judged_as_step(slug: str, edits=(), **setting):
    source = variant(reference(slug).source, **setting)
    for old, new in dict(edits).items():
        assert old in source
        source = source.replace(old, new)
    kernel = LessonKernel(compile_source(source, arch=reference(slug).compiled.arch), slug)
    return proof.judged(kernel, kernel.step.expect, 1, lambda verdict: f"{verdict.text}: {verdict.yours:g} {verdict.expected}{verdict.at}.")


@pytest.mark.slow
@pytest.mark.parametrize(("slug", "setting"), LISTED)
def test_what_a_lesson_lists_or_recommends_meets_its_counters(slug, setting):
    """A smaller tile loads more for each result, and its rows may be no power of two."""
    assert all(ok for _, ok in judged_as_step(slug, **setting))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (COPY, COPY + COPY, "global loads per result: 2.25 at most 1.25 at K = 128"),
        (LOAD, "for (int i = 0; i < 4; i++) to[i] = reinterpret_cast<const volatile float*>(from)[i];", "shared loads per result: "),
    ],
)
def test_a_smaller_tile_is_no_excuse_for_loading_twice(old, new, said):
    ((text, _),) = [(text, ok) for text, ok in judged_as_step("autotune", {old: new}, BM=128) if not ok]
    assert text.startswith(said)


def test_counters_are_judged_at_more_than_one_size():
    """Rows down the warp in all products but the one that is counted."""
    swap = ("M == 64 ? threadIdx.y : threadIdx.x;", "M == 64 ? threadIdx.x : threadIdx.y;")
    edits = [("BM + threadIdx.y;", f"BM + ({swap[0][:-1]});"), ("BN + threadIdx.x;", f"BN + ({swap[1][:-1]});")]
    sentences = judged("flat_block", cheats.source("coalesced", edits))
    assert [ok for _, ok in sentences] == [True] * 4 + [False] * 3
    assert "At " in sentences[-1][0] and "every size that tiles divide" in sentences[-1][0]
    wrong = [(cheats.LOOP, "for (int k = 0; k < (M == 64 ? 1 : K); k++) {")]
    ((text, good),) = judged("flat_block", cheats.source("coalesced", wrong))
    assert not good and "The run that is counted" in text and "C[0, 0]" in text


@pytest.mark.parametrize("edits", [pytest.param(edits, id=name.replace(" ", "_")) for name, *edits in cheats.UNCLIMBABLE])
def test_what_was_not_computed_does_not_climb(edits):
    kernel = LessonKernel(compile_source(cheats.source("coalesced", edits)), "coalesced")
    profile = kernel.profile(512)
    with pytest.raises(CourseError, match="not ready to climb"):
        proof.verify(kernel, profile.problem, profile.run)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(16, 4096, 1024), (2048, 2048, 64)])
def test_slices_that_do_not_do_the_same_climb(shape):
    """The block that is the last of its tile adds up the others' sums; where these have no room, one slice does everything."""
    tiles = {"BM": 16, "BN": 64, "BK": 32, "WM": 16, "WN": 32, "TM": 4, "TN": 4, "SLICES": 8}
    kernel = compile_kernel(variant(steps.get("autotune").kernel_source(), **tiles), entry="autotune")
    problem = gemm.Problem(*shape)
    proof.verify(kernel, problem, gemm.count(kernel, problem))


def test_zeros_are_not_counted_in_place_of_data():
    """A kernel that leaves out products with 0 has all of its work to do."""
    kernel = helpers.compile(cheats.source("coalesced", [(cheats.ADD, "if (a != 0) sum += a * b;")]))
    run = gemm.count(kernel, gemm.Problem(128, 128, 32))
    assert run.sampled and run.counters["smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"] == 128 * 128 * 32


@pytest.mark.slow
def test_sums_that_lie_in_local_memory_leave_room_for_what_is_asked():
    """Their loads and stores are more than a recording holds, and nothing is asked about them."""
    row = steps.get("vectorized")
    inner = "#pragma unroll\n                for (int j = 0; j < TN; j++) sum[i][j] += a[i] * b[j];"
    source = row.kernel_source()
    assert source.count(inner) == 1
    kernel = helpers.compile(source.replace(inner, inner.replace("unroll", "unroll 1")))
    sentences = proof.judged(kernel, row.expect, 1, lambda verdict: verdict.text)
    assert len(sentences) >= len(row.expect) and not any("could not be judged" in text for text, _ in sentences)


def test_what_cannot_be_judged_is_said_beside_what_can():
    def silent(run):
        raise CourseError("Nobody knows.")

    known = Expectation("1", lambda run: 1, exactly=1)
    sentences = proof.judged(helpers.reference("coalesced"), [Expectation("x", silent, exactly=1), known], 1, lambda verdict: verdict.text)
    assert sentences == (("1", True), ("x could not be judged: Nobody knows.", False))


def test_too_large_to_verify_is_said():
    kernel = helpers.compile(cheats.source("coalesced"))
    with pytest.raises(CourseError, match="1024 MB at most"):
        proof.verify(kernel, gemm.Problem(20000, 20000, 20000), None)


def test_a_check_says_how_to_draw_the_same_shapes():
    kernel = helpers.compile(cheats.source("coalesced", [cheats.exits("K > 900")]))
    report = gemm.check(kernel, on="cpu")
    assert f"check(seed={report.seed}) draws the same again" in str(report)
    assert gemm.drawn(kernel, report.seed) == gemm.drawn(kernel, report.seed) != gemm.drawn(kernel, report.seed + 1)
    deep = [case for case in report.cases if case.message]
    assert deep and all(case.drawn and case.problem.k > 900 for case in deep)


@pytest.mark.slow
def test_slices_that_take_no_batch_are_right_and_it_is_said():
    (edits,) = [edits for name, *edits in cheats.ODD["parts"] if "no batch" in name]
    report = gemm.check(helpers.compile(cheats.source("parts", edits)), on="cpu")
    assert report.passed and "of a batch, it writes the first and leaves the others" in str(report)


@pytest.mark.slow
def test_slices_that_wait_for_a_block_of_their_own_product_are_right_and_it_is_said():
    report = gemm.check(helpers.compile(cheats.source("turns")), on="cpu", seed=1)
    assert report.passed and not report.untried
    assert "of a batch, its blocks end for the first alone" in str(report)
    report = gemm.check(helpers.compile(cheats.source("turns", [("(slice + 1) % SLICES", "slice")])), on="cpu", seed=1)
    assert report.endless and "computes one product" not in str(report)


def test_a_batch_that_is_wrong_says_where_its_products_lie():
    report = gemm.check(helpers.compile(cheats.source("batch", [("blockIdx.z * M * lda", "blockIdx.z * K * lda")])), on="cpu")
    (case,) = [case for case in report.cases if case.message]
    assert case.problem.batch > 1 and case.drawn and "a batch of" in str(report) and "blockIdx.z / grid_depth" in case.message


@pytest.mark.slow
def test_what_a_launch_leaves_meets_another_product():
    """A slice without any k leaves the part that an earlier product had."""
    edit = ("mine[slice * BM * BN] = sum;", "if (begin < end) mine[slice * BM * BN] = sum;")
    report = gemm.check(helpers.compile(cheats.source("parts", [edit])), on="cpu", seed=3)
    assert any("launched after" in case.message and "__device__ variables" in case.message for case in report.cases)


def test_a_sampled_product_is_larger_than_what_slices_keep():
    kernel = helpers.compile(cheats.source("parts"))
    sample = gemm.drawn(kernel, seed=1)[-1]
    assert isinstance(sample, gemm.SampledProblem) and sample.m * sample.n > 1 << 20


@pytest.mark.parametrize(("counter", "least"), [("int", 4096), ("unsigned short", 1 << 16)])
def test_k_is_longer_than_its_counter(counter, least):
    kernel = for_the_machine("coalesced", [(cheats.LOOP, f"for ({counter} k = 0; k < K; k++) {{")])
    assert gemm.drawn(kernel, seed=1)[0].k > least


SHARING = {
    "autotune": (
        {"SLICES": 2},
        [
            "global loads per result", "shared loads per result", "shared stores per result before the last copy",
            "multiply-adds between a copy and its wait",
        ],
    ),
    "warp_specialized": (
        {"SLICES": 2, "BM": 64, "BN": 64, "CLUSTER": 1, "C_BOXES": 1},
        ["global loads per result", "shared loads per result", "global stores", "stages at a time"],
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("slug", SHARING)
def test_blocks_that_share_tiles_are_not_asked_for_counters_of_blocks_that_do_not(slug):
    step, (constants, not_asked) = steps.get(slug), SHARING[slug]
    made = compile_kernel(variant(step.kernel_source(), **constants), entry=step.entry, arch=step.target())
    said = proof.judged(made, step.expect, 1, str)
    assert all(good for _, good in said), said
    assert [text.partition(":")[0] for text, _ in said if "not asked" in text] == not_asked


AT_AN_MBARRIER = """wait<STAGES - 2>();
        __shared__ __align__(8) unsigned long long met;
        const unsigned place = (unsigned)__cvta_generic_to_shared(&met);
        if (k0 == 0) {
            if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(place), "r"(THREADS) : "memory");
            __syncthreads();
        }
        unsigned long long phase;
        asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(phase) : "r"(place) : "memory");
        for (int over = 0; !over;)
            asm volatile("{ .reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2; selp.s32 %0, 1, 0, p; }"
                         : "=r"(over) : "r"(place), "l"(phase) : "memory");
"""


@pytest.mark.slow
@pytest.mark.parametrize(("more", "met"), [("", True), ("for (int i = 0; i < 20; i++) __syncthreads();", False)])
def test_barriers_are_known_where_a_loop_at_an_mbarrier_makes_instructions_unknown(more, met):
    """How often it looks is a matter of time, and how many barriers there are is none."""
    step = steps.get("async_copy")
    source, meeting = step.kernel_source(), re.compile(r"wait<STAGES - 2>\(\);.*\n\s*__syncthreads\(\);.*\n")
    assert len(meeting.findall(source)) == 1
    kernel = helpers.compile(meeting.sub(lambda _: AT_AN_MBARRIER + more + "\n", source), entry=step.entry)
    said = dict(proof.judged(kernel, step.expect, 1, lambda verdict: verdict.text))
    assert said["barriers per warp"] == met and not any("could not be judged" in text for text in said), said


def test_what_cannot_be_judged_leaves_the_other_counters():
    """The starter stores by its threads, and waits for no copies: the first of them is what there is to change."""
    said = dict(judged("without_registers", exercise("without_registers").starter))
    assert (
        said[
            "multiply-adds between a copy and its wait could not be judged: The loop waits for no asynchronous copies that it has started."
        ]
        is False
    )
    assert any(text.startswith("shared stores per result: ") and not ok for text, ok in said.items())


@pytest.mark.parametrize("late", [True, False])
def test_what_asks_too_late_is_told_from_what_stores_too_early(late):
    """Both leave nothing between the load and the store."""
    ask, keep = "const float a = a_at(k0 + BK), b = b_at(k0 + BK);", "As[1 - half][ty][tx] = a;\n        Bs[1 - half][ty][tx] = b;\n"
    edits = [(f"        {ask}\n", ""), (keep, f"{ask}\n        {keep}")] if late else [(keep, ""), (ask, f"{ask}\n        {keep}")]
    source = cheats.source("look_ahead", edits)
    (said,) = [text for text, ok in judged("look_ahead", source) if not ok]
    lines = source.split("\n")
    products, first_store = (next(i for i, text in enumerate(lines, 1) if part in text) for part in ("sum +=", "As[1 - half]"))
    assert f"and the first store behind it in line {first_store}, “" in said and (first_store > products) == late
