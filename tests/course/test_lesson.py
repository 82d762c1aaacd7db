"""The four verbs of a lesson's kernel, without a GPU."""

from __future__ import annotations

import inspect
import os
import re

import numpy as np
import pytest

from helpers.course import lesson, proof, rungs, store
from helpers.course.grading.apart import predict_here
from helpers.course.lesson import LessonKernel, reference
from helpers.errors import CourseError, LaunchError, quote, statement_line
from helpers.run import gemm
from helpers.run.kernel import Kernel
from helpers.run.transposes import compile_with
from helpers.sim.counting import names
from helpers.toolchain.compile import compile_source
from tests.run.column_kernels import plain


@pytest.fixture(autouse=True)
def _own_home(tmp_path, monkeypatch, make_home):
    monkeypatch.setenv("GEMM_LADDER_HOME", str(make_home(tmp_path / "home")))
    monkeypatch.setenv("GEMM_LADDER_NO_GPU", "1")


def edited(old: str, new: str, step: str = "coalesced") -> LessonKernel:
    source = reference(step).source
    assert source.count(old) == 1
    return LessonKernel(compile_source(source.replace(old, new)), step)


def test_check_judges_the_counters_of_the_step():
    report = reference("coalesced").check()
    assert report.passed and any("sectors per load of B" in text for text, _ in report.expectations)


def test_a_right_kernel_that_is_not_the_step_is_correct_but_has_not_passed():
    other = LessonKernel(compile_source(reference("naive").source, "naive"), "coalesced")
    report = other.check()
    assert report.correct and not report.passed
    assert "yours" in str(report) or "expected" in str(report)


def test_profile_counts_a_large_product_in_a_moment_and_labels_its_time():
    profile = reference("coalesced").profile()
    assert profile.run.sampled and profile.run.counters["smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"] == 4096**3
    assert "<table>" in profile._repr_html_() and "What limits it" in str(profile)
    assert f"as instructions of whole warps: {4096**3 // 32:,}" in str(profile)


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("async_copy", {names.SHARED_WAVEFRONTS_OF_ALL, names.SHARED_WAVEFRONTS_OF_ALL_IDEAL}),
        ("thread_tile_2d", {names.requests("local", "ld"), names.requests("local", "st")}),
        ("bank_conflicts", set()),
    ],
)
def test_a_profile_tells_of_copies_and_of_local_memory_where_there_are_any(step, told):
    special = {
        names.SHARED_WAVEFRONTS_OF_ALL,
        names.SHARED_WAVEFRONTS_OF_ALL_IDEAL,
        names.requests("local", "ld"),
        names.requests("local", "st"),
    }
    assert special & {what for what, _, _ in reference(step).profile(256).rows()} == told


@pytest.mark.parametrize("size", [3, 33])
def test_multiply_adds_of_warps_that_are_not_full_are_those_that_were_counted(size, monkeypatch):
    """27 multiply-adds of nine warps are nine instructions, not one; where the machine code was not counted, nothing is said of them."""
    profile = reference("naive").profile(size)
    counted = reference("naive").gemm(size, on="cpu", trace=True).by_line
    executed = sum(counts.get(names.opcode("FFMA"), 0) for counts in counted.values())
    assert executed > size**3 / 32 and f"{size**3:,}" in str(profile)
    assert f"counted per thread; as instructions of whole warps: {executed:,}\n" in str(profile)
    unread = {name: count for name, count in profile.run.counters.items() if name != names.opcode("FFMA")}
    monkeypatch.setattr(type(profile.run), "counters", unread)
    (said,) = (meaning for what, _, meaning in profile.rows() if what == names.threads("ffma"))
    assert said == "fused multiply-adds, counted per thread"


def test_multiply_adds_of_divisions_are_said_not_to_be_known():
    rows = edited("sum += a * b", "sum += a / (b + 2)").profile(64).rows()
    (told,) = [row for row in rows if row[0] == names.threads("ffma")]
    assert told[1:] == ("not known", "fused multiply-adds, counted per thread: a branch depends on data")


def test_what_was_recorded_of_an_unchanged_kernel_is_not_predicted():
    kernel = reference("coalesced")
    (known,) = [row for row in rungs.recorded() if (row["slug"], row["m"], row["n"], row["k"]) == ("coalesced", 512, 512, 512)]
    profile = kernel.profile(512)
    assert (profile.kind, profile.milliseconds, profile.cublas_ratio) == ("recorded", known["milliseconds"], known["cublas_ratio"])
    assert profile.as_predicted().kind == "predicted" and profile.as_predicted().milliseconds != known["milliseconds"]
    assert "Recorded on H200 SXM" in str(profile) and "Predicted" not in str(profile)
    assert kernel.profile(512, gpu_name="T4").kind == "predicted"
    changed = edited("k < K", "k < K + 0")
    assert (changed.profile(512).kind, str(changed.profile(512)).count("Predicted for H200 SXM")) == ("predicted", 1)


def test_a_time_without_a_model_is_a_time():
    recorded = reference("coalesced").profile(512)
    recorded.__dict__["_answer"] = None, "The model does not know this kernel."
    first, second = recorded.sentences()[:2]
    assert recorded.kind == "recorded" and first.startswith("Recorded on H200 SXM")
    assert second == "What limits it is not known. The model does not know this kernel."
    counted = recorded.as_predicted()
    counted.__dict__["_answer"] = recorded._answer
    assert counted.kind == "counted" and counted.sentences()[0] == "Counted only, no time is known. The model does not know this kernel."


def test_a_file_with_two_kernels_is_no_cell(tmp_path):
    path = tmp_path / "two.cu"
    path.write_text("__global__ void f() {}\n__global__ void g() {}\n")
    with pytest.raises(CourseError) as error:
        lesson.from_file(path)
    assert "There are 2 kernels (f, g)" in str(error.value) and "The cell" not in str(error.value)
    path.write_text("__global__ void f() { g(); }\n")
    with pytest.raises(CourseError) as error:
        lesson.from_file(path)
    assert "the code does not compile (1 error)" in str(error.value) and "cell" not in str(error.value)


def test_an_old_prediction_of_an_unchanged_kernel_gives_way_to_the_record():
    source = reference("coalesced").source
    store.own().climb(label="coalesced", kind="predicted", device="H200 SXM", m=512, n=512, k=512, step=2, milliseconds=1e-3, source=source)
    mine = [rung for rung in rungs.rungs(512, device="H200 SXM") if rung.mine]
    recorded = [rung for rung in rungs.rungs(512, device="H200 SXM") if rung.kind == "recorded" and rung.step == 2]
    assert [rung.kind for rung in mine] == ["recorded"] and len({rung.tflops for rung in recorded}) == 1


def test_predictions_follow_the_gpu():
    kernel = reference("shared_tile")
    slow, fast = (kernel.profile(1024, gpu_name=name) for name in ("T4", "H200 SXM"))
    assert slow.milliseconds > 2 * fast.milliseconds


def test_climbing_saves_a_rung():
    climb = reference("coalesced").climb(512)
    assert "coalesced is on your ladder" in str(climb) and "recorded on H200 SXM" in str(climb)
    (saved,) = store.climbs()
    assert (saved.label, saved.kind, saved.step, saved.m) == ("coalesced", "recorded", 2, 512)
    assert saved.source == reference("coalesced").source


def shown_steps(climb: lesson.Climb, monkeypatch) -> list[int]:
    """The steps on the ladder that a climb shows."""
    displayed = []
    monkeypatch.setattr("IPython.display.display", displayed.append)
    climb._ipython_display_()
    (panel,) = displayed
    return [int(number) for number in re.findall(r"[.] (\d\d) [A-Za-z]", panel.shown)]


def test_a_climb_shows_no_step_that_the_reader_has_not_met(monkeypatch):
    """The ladder ends at the step of the lesson; of those above it stands what the reader has climbed, and nothing that lies between."""
    climb = reference("coalesced").climb(512)
    assert shown_steps(climb, monkeypatch) == [1, 2]
    for step, size in ((7, 512), (4, 1024)):  # the second one stands on another ladder
        store.climb(step=step, label="x", kind="measured", device="H200 SXM", m=size, n=size, k=size, milliseconds=0.02, source="x")
    assert shown_steps(climb, monkeypatch) == [1, 2, 7]


def test_a_picture_of_a_large_product_is_refused_at_once():
    with pytest.raises(CourseError, match="size=512 or less"):
        reference("coalesced").show(4096)


def by_columns(name: str, **options) -> LessonKernel:
    return LessonKernel(compile_with(plain(**options), None, "sm_90", (), transb=True), name)


def test_a_kernel_by_columns_climbs_beside_the_one_by_rows_and_says_so():
    climb = by_columns("mine").climb((256, 128, 64))
    (saved,) = store.climbs()
    assert (saved.label, saved.kind) == ("mine, B by columns", "predicted") and climb.profile.problem.transb
    (rung,) = rungs.rungs(256, 128, 64, kinds=["predicted"])
    assert rung.name == "mine, B by columns"
    assert "transb[] = {1}" in saved.source, "who compiles it again takes B so, too"
    alone = LessonKernel(compile_source(saved.source), "mine")
    again, why = predict_here({"source": saved.source, "m": 256, "n": 128, "k": 64, "device": saved.device})
    assert again == pytest.approx(saved.milliseconds, rel=1e-3), why
    assert alone.rung_name == "mine, B by columns" and "256 × 128 × 64, B by columns" in str(alone.profile((256, 128, 64)))


def test_the_counters_of_a_step_are_not_asked_of_a_kernel_by_columns():
    kernel = by_columns("coalesced")
    report = kernel.check()
    assert report.passed and report.expectations == (
        ("What this step counts is of A and B by rows: it is not asked of B by columns.", True),
    )
    assert reference(19).rung_name == "fp8", "its step has B so"


def test_the_course_s_own_kernel_by_columns_is_not_what_was_recorded():
    source = reference("coalesced").source.replace("B[size_t(k) * ldb + col]", "B[size_t(col) * ldb + k]")
    kernel = LessonKernel(compile_with(source, "coalesced", "sm_90", (), transb=True), "coalesced")
    assert kernel.profile(512).kind == "predicted"


def test_a_file_is_taken_by_columns_too(tmp_path):
    path = tmp_path / "mine.cu"
    path.write_text(plain(), encoding="utf-8")
    assert lesson.from_file(path, transb="T").check().passed


def test_a_wrong_kernel_does_not_climb():
    with pytest.raises(CourseError, match="not ready to climb"):
        edited("k < K", "k < K - 1").climb(256)
    assert store.climbs() == []


@pytest.mark.slow
def test_only_what_was_not_recorded_of_this_code_is_verified(monkeypatch):
    verified = []
    monkeypatch.setattr(proof, "verify", lambda kernel, *_: verified.append(kernel.source))
    own = reference("coalesced")
    assert own.climb(512).profile.kind == "recorded" and not verified
    changed = LessonKernel(compile_source(own.source.replace("float sum = 0", "float sum = 0.0f")), "coalesced")
    assert changed.climb(512).profile.kind == "predicted" and verified == [changed.source]
    changed.climb(512)
    assert len(verified) == 1
    optioned = LessonKernel(compile_source(own.source, options=["-DANY=1"]), "coalesced")
    assert optioned.climb(512).profile.kind == "predicted" and len(verified) == 2


def test_a_kernel_that_is_right_by_other_means_climbs():
    other = LessonKernel(compile_source(reference("naive").source, "naive"), "coalesced")
    other.climb(256)
    assert [row.label for row in store.climbs()] == ["coalesced"]


def test_what_cannot_be_launched_says_so():
    stranger = LessonKernel(compile_source("__global__ void other(float* p) { p[0] = 1; }"))
    shapeless = LessonKernel(compile_source(reference("naive").source.replace("block_shape", "shape_of_blocks"), "naive"))
    for kernel, said in ((stranger, "has not the signature"), (shapeless, "block_shape")):
        for verb in (kernel.check, kernel.profile, kernel.climb, kernel.show):
            with pytest.raises(LaunchError, match=said):
                verb()
    with pytest.raises(LaunchError, match="whole number"):
        reference("naive").profile(-1)
    with pytest.raises(LaunchError, match="nothing to launch"):
        reference("naive").gemm(0)
    with pytest.raises(CourseError, match="no step"):
        lesson.reference("nonsense")
    with pytest.raises(CourseError, match="no kernel"):
        lesson.reference(0)


def test_a_kernel_from_a_file_climbs_at_any_shape(tmp_path, monkeypatch):
    path = tmp_path / "my kernel.cu"
    path.write_text("\ufeff" + reference("coalesced").source.replace("coalesced(", "mine(").replace("k < K", "k < K + 0"), encoding="utf-8")
    mine = lesson.from_file(path)
    assert (mine.lesson_name, mine.step) == ("my kernel", None)
    climb = mine.climb((256, 128, 64))
    (saved,) = store.climbs()
    assert (saved.m, saved.n, saved.k, saved.step, saved.label) == (256, 128, 64, None, "my kernel")
    assert climb.profile.problem.flops == 2 * 256 * 128 * 64
    assert {1, 12, 18} <= set(shown_steps(mine.climb(512), monkeypatch)), "a kernel of no step stands beside all"
    for size, said in (((1, 2), "three: "), ((1, -2, 3), "whole number"), ((600, 8, 8), "size=512 or less")):
        with pytest.raises(CourseError, match=said):
            mine.show(size)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "cannot be read"),
        (b"\xff\xfe\x00", "is no text"),
        (b"x" * (2 << 20), "too many"),
        (b"int x;", "no kernel"),
        (b"\0", "null byte"),
    ],
)
def test_a_file_that_holds_no_kernel_is_a_sentence(data, said, tmp_path):
    if data is not None:
        (tmp_path / "kernel.cu").write_bytes(data)
    with pytest.raises(CourseError, match=said):
        lesson.from_file(tmp_path / "kernel.cu")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dtype": "float16"}, "gemm has no option dtype. It has: alpha, "),
        ({"Trace": True}, "gemm has no option Trace"),
        ({"seed": "x"}, "seed='x'"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": 1.5}, "seed=1.5"),
        ({"alpha": None}, "alpha=None: a factor is a number that a float can hold, and neither infinite nor NaN"),
        ({"beta": 1j}, "beta=1j: a factor is a number that a float can hold, and neither infinite nor NaN"),
        ({"trace": 1}, "trace=1"),
        ({"pad_a": -1}, "pad_a=-1"),
    ],
)
def test_an_option_that_gemm_has_not_is_a_sentence(options, said):
    with pytest.raises(LaunchError, match=re.escape(said)):
        reference("coalesced").gemm(16, on="cpu", **options)


def test_gemm_has_the_options_of_a_launch():
    launch = {name for name, one in inspect.signature(Kernel.launch).parameters.items() if one.kind is one.KEYWORD_ONLY}
    assert launch - {"before"} == set(lesson.LAUNCH_OPTIONS) - {"arrays", "multiprocessors"}
    assert inspect.signature(gemm.run).parameters.keys() >= {"arrays", "multiprocessors"}


@pytest.mark.parametrize("size", [32768, 100_000])
@pytest.mark.parametrize("verb", ["gemm", "climb", "show"])
def test_a_size_for_which_there_is_no_memory_is_a_sentence_at_once(verb, size, monkeypatch):
    """Nothing is allocated: the machine of these tests has eight gigabytes, whatever it has."""
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 1 << 21, "SC_PAGE_SIZE": 4096}.get)
    with pytest.raises(CourseError, match="too much for the memory|too many"):
        getattr(reference("coalesced"), verb)(size)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("alpha * sum", "2 * alpha * sum", "check() has found this kernel wrong: what follows is of a kernel that computes something else."),
        ("if (row", "float never = C[0]; if (never == 7) C[0] = 7; if (row", "check() has findings of this kernel"),
        ("alpha * sum", "alpha * (sum)", ""),
    ],
)  # fmt: skip
def test_a_profile_says_what_a_check_has_found_of_the_kernel(old, new, said):
    source = reference("naive").source
    assert old in source
    kernel = LessonKernel(compile_source(source.replace(old, new)), "naive")
    before = kernel.profile(64)
    assert "check()" not in str(before)
    kernel.check(seed=1)
    assert ("check()" in str(before)) == bool(said)
    assert said in kernel.profile(64).sentences()[0]


def test_a_profile_needs_no_memory_but_addresses(monkeypatch):
    def no_memory(*_, **__):
        raise MemoryError

    monkeypatch.setattr(np, "zeros", no_memory)
    with pytest.raises(LaunchError, match="too much for the memory of this machine"):
        reference("coalesced").profile(100_000)


@pytest.mark.parametrize("path", [3, None, b"x.cu", "~nobody_has_this_name/x.cu"])
def test_a_file_s_name_is_a_text(path):
    with pytest.raises(CourseError, match="from_file wants|cannot be read"):
        lesson.from_file(path)


def test_options_of_a_file_are_those_of_any_source(tmp_path):
    path = tmp_path / "kernel.cu"
    path.write_text(reference("coalesced").source, encoding="utf-8")
    assert lesson.from_file(path, options="-ftz=true").compiled.options == ("-ftz=true",)
    with pytest.raises(CourseError, match="options=None are no compiler options"):
        lesson.from_file(path, options=None)


def with_edits(slug: str, *edits: tuple[str, str]) -> LessonKernel:
    source = reference(slug).source
    for old, new in edits:
        assert old in source
        source = source.replace(old, new)
    return LessonKernel(compile_source(source), slug)


GUARDED = "if (k0 + BK < K) {\n            store(buffer);\n            __syncthreads();\n        }\n    }\n"


@pytest.mark.slow
@pytest.mark.parametrize(("slug", "edits"), [
    ("thread_tile_1d", [("BM = 64", "BM = 128"), ("BN = 64", "BN = 128"), ("TM = 16", "TM = 32")]),
    ("bank_conflicts", [("TN = 8", "TN = 16")]),
    ("warp_tile", [("WM = 32", "WM = 64"), ("TM = 8", "TM = 16")]),
    ("double_buffer", [("store(buffer);\n        __syncthreads();\n    }\n", GUARDED)]),
])  # fmt: skip
def test_fewer_loads_or_barriers_than_the_step_has_are_no_mistake(slug, edits):
    report = with_edits(slug, *edits).check()
    assert report.passed and all(ok for ok, _ in report.lines()), str(report)


@pytest.mark.slow
def test_a_profile_says_what_is_switched_off_and_what_copies_meet_in_the_banks():
    said = {name: f"{value}, {meaning}" for name, value, meaning in reference("schedule").profile(256).rows()}
    every, ideal = (int(said[name].split(", ")[0].replace(",", "")) for name in (names.SHARED_WAVEFRONTS_OF_ALL, IDEAL))
    assert said[IDEAL].endswith(f"; those that bank conflicts of the copies add: {every - ideal:,}") and every > ideal
    assert "switched off" not in said[names.threads("ffma")]
    said = {name: f"{value}, {meaning}" for name, value, meaning in reference("mma_sync").profile(256).rows()}
    assert said[names.threads("ffma")].startswith("0, ") and "switched off: the predicates" in said[names.threads("ffma")]
    assert said[IDEAL].endswith("add: 0")
    assert "ldmatrix" in said[names.executed("ldsm")] and said[names.shared_wavefronts("ld")].endswith("those loads, and ldmatrix")


IDEAL = names.SHARED_WAVEFRONTS_OF_ALL_IDEAL
MORE = "That is more than this step's own kernel has at this K, whose"


@pytest.mark.slow
@pytest.mark.parametrize(("slug", "edits", "because"), [
    ("warp_tile", [("BM = 128", "BM = 64")], f"{MORE} tile is 128 × 128; "),
    ("warp_tile", [("WN = 64", "WN = 32"), ("TN = 8", "TN = 4")], f"{MORE} threads have 64 results each and here 32; "),
    ("warp_tile", [("lane / (2 * LANES_N) * 2 + lane % 2", "lane % LANES_M"), ("lane / 2 % LANES_N", "lane / LANES_M")], ""),
    ("bank_conflicts", [("BK = 8", "BK = 16")], ""),
    ("bank_conflicts", [("PAD = 4", "PAD = 8")], ""),
])  # fmt: skip
def test_what_is_not_met_says_which_tile_is_another_and_that_it_climbs(slug, edits, because):
    report = with_edits(slug, *edits).check()
    said = [text for ok, text in report.lines() if not ok]
    assert report.correct and f"). {because}climb() takes it all the same." in said[0]
    assert "climb()" not in "".join(said[1:])


@pytest.mark.slow
def test_more_loads_of_a_smaller_tile_than_a_bound_allows_are_told_as_that():
    """And the line is where the assembly begins, not its operands."""
    report = with_edits("schedule", ("BM = 256, BN = 128", "BM = 128, BN = 128")).check()
    (said,) = [text for ok, text in report.lines() if not ok]
    assert said.startswith(
        "global loads per result: 1.25 (expected at most 1.125 at K = 128). That is more than this step's own kernel has at this K, whose "
        "tile is 256 × 128; climb() takes it all the same. Most of it is in line "
    )
    assert "most often called at line " in said and "“copy1(&stage.A" in said


@pytest.mark.parametrize(
    ("source", "line", "begins"),
    [
        ('f();\nasm volatile("a;"\n    "b;" // c; d\n    :: "r"(x));\ng();', 4, 2),
        ('f();\nasm volatile("a;"\n    :: "r"(x));\ng();', 4, 4),
        ('asm("a;");\n: x', 2, 2),
        ('a = b\n    ? "c"\n    : "d";', 3, 3),
        ("a", 7, 7),
        ("a", None, None),
    ],
)
def test_a_statement_of_assembly_is_named_where_it_begins(source, line, begins):
    assert statement_line(source, line) == begins


@pytest.mark.parametrize(
    ("lines", "quoted"),
    [
        (['asm volatile("{\\n"', '  ".reg .pred p;\\n"', '  "again: mbarrier.try_wait.b64 p, [%0];\\n"', '  "@!p bra again;\\n}");'],
         "mbarrier.try_wait.b64 p, [%0];"),
        (['asm volatile("{\\n"', '"setp.ne.b32 add, %2, 0;\\n"', '"wgmma.mma_async." TYPE " {%0};\\n"', '"}");'], "wgmma.mma_async.TYPE {%0};"),
        (['asm volatile("{.reg .b32 x; mov.b32 x, %0;"', '"ld.b32 %1, [x]; }");'], 'asm volatile("{.reg .b32 x; mov.b32 x, %0;"'),
        (['asm("{"', '"add.s32 %0, %0, 1; }");'], "add.s32 %0, %0, 1;"),
        (['asm volatile("" ::: "memory");', 'f("ld.b32");'], 'asm volatile("" ::: "memory");'),
        (['x = 1;  // asm volatile("{"', '"ld.b32");'], 'x = 1;  // asm volatile("{"'),
    ],
)  # fmt: skip
def test_assembly_that_begins_with_a_bracket_is_quoted_by_what_it_does(lines, quoted):
    assert quote("\n".join(lines), 1) == quoted


@pytest.mark.slow
def test_a_counter_of_few_bits_is_quoted_once_and_offered_no_larger_budget():
    report = with_edits("naive", ("for (int k", "for (unsigned char k")).check(seed=1)
    (said,) = [text for ok, text in report.lines() if not ok and "may never end" in text]
    assert said.count("for (unsigned char k") == 1 and "declares 8 bits" in said and "larger budget" not in said


def test_a_time_that_the_model_has_too_is_said_to_be_the_same(monkeypatch):
    profile = reference("coalesced").profile()
    assert profile.kind == rungs.RECORDED
    for factor, said in ((1.001, "ms, the same to a per cent"), (1.5, "ms, +50%"), (0.5, "ms, −50%")):
        milliseconds = profile.milliseconds * factor
        monkeypatch.setattr(type(profile), "prediction", type("", (), {"milliseconds": milliseconds}))
        assert profile._model_says.endswith(said)


def test_a_check_asks_for_no_smaller_matrix():
    """Whose size is not the reader's to choose."""
    lines = [text for ok, text in with_edits("naive", ("BM = 32", "BM = 1"), ("BN = 32", "BN = 1")).check().lines() if not ok]
    unjudged = [text for text in lines if "could not be judged" in text]
    assert len(unjudged) == 3 and all("64 × 64 × 64, accesses memory more than 200,000 times" in text for text in unjudged)
    assert "smaller" not in str(lines) and "A block of 1 does not fill its warps" in unjudged[0]


def test_matrices_of_other_names_are_those_that_stand_in_their_places():
    source = re.sub(r"\bA\b", "X", re.sub(r"\bB\b", "Y", re.sub(r'(?<!")\bC\b', "Z", reference("naive").source)))
    report = LessonKernel(compile_source(source), "naive").check()
    assert report.passed and len(report.expectations) == 4, str(report)


@pytest.mark.parametrize("step", ["naive", "coalesced"])
def test_a_tile_shape_that_is_too_small_is_noted_and_its_counters_are_those_of_a_block_with_work(step):
    """A block outside of C has none, and said so behind the note: "yours 0"."""
    report = with_edits(step, ("tile_shape[] = {BM, BN}", "tile_shape[] = {BM / 2, BN}")).check(seed=1)
    assert report.passed and "tile_shape says 16 × 32" in str(report) and "yours 0" not in str(report)


def test_a_run_in_a_cell_shows_how_far_it_is(monkeypatch):
    told = []

    class Told(lesson.Progress):
        def __call__(self, done, total):
            told.append((self.what, total))

    monkeypatch.setattr(lesson, "Progress", Told)
    reference("naive").gemm(64, on="cpu")
    assert told and {what for what, _ in told} == {"running naive at 64 × 64 × 64"}
    told.clear()
    reference("naive").gemm(64, on="cpu", progress=None)
    assert not told
