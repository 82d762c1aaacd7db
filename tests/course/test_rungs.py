"""Rungs say honestly whose figures they are, and how they came about."""

import json

import pytest

from helpers.course import rungs
from helpers.course.lesson import LessonKernel, reference
from helpers.errors import CourseError
from helpers.toolchain.compile import compile_source

ROW = {"label": "naive", "kind": "measured", "m": 4096, "n": 4096, "k": 4096, "device": "NVIDIA H200", "step": 1}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch, make_home):
    monkeypatch.setenv("GEMM_LADDER_HOME", str(make_home(tmp_path / "home")))


@pytest.fixture
def one_recorded_file(tmp_path, monkeypatch):
    folder = tmp_path / "recorded"
    folder.mkdir()
    row = {
        "step": 2, "slug": "coalesced", "dtype": "float32", "out_dtype": "float32", "m": 4096, "n": 4096, "k": 4096, "milliseconds": 20.0,
        "tflops": 6.87, "cublas_ratio": 0.137, "cublas_milliseconds": 2.74, "clock_mhz": 1980.0, "spread": 0.001,
        "date": "2026-11-21", "device": "NVIDIA H200",
    }  # fmt: skip
    (folder / "h200.json").write_text(json.dumps([row, {**row, "cublas_milliseconds": 2.70, "step": 1, "slug": "naive"}]))
    monkeypatch.setattr(rungs, "recorded", lambda: json.loads((folder / "h200.json").read_text()))


def test_rungs_of_all_kinds_are_labelled(one_recorded_file):
    rungs.climb(**ROW, milliseconds=300.0)
    rungs.climb(**ROW, milliseconds=280.0)
    rungs.climb(**{**ROW, "kind": "predicted", "device": "RTX 4090"}, milliseconds=400.0)
    rungs.climb(**{**ROW, "kind": "counted", "device": "SIMT machine"})
    got = rungs.rungs(4096)
    assert {rung.kind for rung in got} == {"measured", "predicted", "counted", "recorded", "published", "limit"}
    mine = [rung for rung in got if rung.mine]
    assert [rung.milliseconds for rung in mine if rung.kind == "measured"] == [280.0], "the best of each kind"
    assert {rung.label for rung in mine} == {
        "naive (yours, measured)", "naive (yours, predicted)", "naive (yours, counted)"
    }  # fmt: skip
    cublas = [rung for rung in got if rung.name == "cuBLAS" and rung.kind == "recorded"]
    assert [(rung.device, rung.milliseconds) for rung in cublas] == [("H200 SXM", 2.70)]
    assert all(rung.source for rung in got if rung.kind in ("published", "limit", "recorded"))


def test_one_device_goes_by_any_of_its_names(one_recorded_file):
    for name in ("NVIDIA H200", "H200 SXM"):
        got = rungs.rungs(4096, device=name)
        assert {rung.device for rung in got} <= {"H200 SXM", "NVIDIA H200"}
        assert "limit" in {rung.kind for rung in got} and "recorded" in {rung.kind for rung in got}
        speeds = [rung.tflops for rung in got]
        assert speeds == sorted(speeds) and got[-1].kind == "limit"


def test_kinds_can_be_chosen_and_sizes_do_not_mix(one_recorded_file):
    assert {rung.kind for rung in rungs.rungs(4096, kinds=["published"])} == {"published"}
    assert rungs.rungs(4096, 4096, 17, kinds=["recorded", "published", "measured"]) == []


def test_element_types_do_not_mix(one_recorded_file):
    rungs.climb(**ROW, milliseconds=2.0, dtype="float16", out_dtype="float32")
    got = rungs.rungs(4096, dtype="float16", out_dtype="float32")
    assert {(rung.dtype, rung.out_dtype) for rung in got} == {("float16", "float32")}
    assert [rung.kind for rung in got] == ["measured", "limit"]
    assert not any(rung.mine for rung in [*rungs.rungs(4096), *rungs.rungs(4096, dtype="float16")])


def test_cublas_stands_alone_where_no_kernel_was_recorded(monkeypatch):
    monkeypatch.setattr(rungs, "recorded", list)
    alone = [rung for rung in rungs.rungs(4096, dtype="bfloat16") if rung.kind == "recorded"]
    assert [(rung.name, rung.device, rung.tflops) for rung in alone] == [("cuBLAS", "H200 SXM", 683)]
    assert "PyTorch" in alone[0].source and alone[0].date
    assert not rungs.rungs(4096, dtype="bfloat16", out_dtype="float32", kinds=["recorded"]), "nor for other types of C"
    row = {
        "step": 15, "slug": "mma_sync", "dtype": "bfloat16", "out_dtype": "bfloat16", "m": 4096, "n": 4096, "k": 4096, "milliseconds": 0.3,
        "tflops": 458.0, "cublas_ratio": 0.7, "cublas_milliseconds": 0.21, "clock_mhz": 1500.0, "spread": 0.001, "date": "2026-11-30",
        "device": "NVIDIA H200",
    }  # fmt: skip
    monkeypatch.setattr(rungs, "recorded", lambda: [row])
    both = [rung for rung in rungs.rungs(4096, dtype="bfloat16", kinds=["recorded"]) if rung.name == "cuBLAS"]
    assert [rung.milliseconds for rung in both] == [0.21], "timed in turn with a kernel, that stands instead"


@pytest.mark.parametrize(
    ("slug", "dtype"), [("naive", "float32"), ("shared_tile", "float32"), ("vectorized", "float32"), ("mma_sync", "bfloat16")]
)
def test_the_bar_of_a_prediction_is_the_error_that_its_profile_states(slug, dtype, one_recorded_file):
    kernel = reference(slug)
    edited = LessonKernel(compile_source(kernel.source + "\n__device__ int unused;", kernel.compiled.entry, kernel.compiled.arch), slug)
    profile = edited.profile(256)
    rungs.climb(
        kind="predicted", label=slug, device="H200 SXM", dtype=dtype, out_dtype=profile.problem.out_dtype, m=256, n=256, k=256,
        milliseconds=1.0, source=edited.source, counters=dict(profile.run.counters),
    )  # fmt: skip
    (mine,) = [rung for rung in rungs.rungs(256, dtype=dtype, out_dtype=profile.problem.out_dtype, kinds=["predicted"]) if rung.mine]
    assert f"{mine.spread / 2:.0%} at worst" in profile.prediction.error


def test_the_limit_is_the_roofline():
    assert rungs.limit("H200 SXM", 4096, 4096, 4096).tflops == pytest.approx(66.9, rel=0.001)
    thin = rungs.limit("H200 SXM", 1, 4096, 4096)
    assert thin.tflops == pytest.approx(4800e9 / 2 / 1e12, rel=0.001) and "DRAM" in thin.name
    assert rungs.limit("unheard of", 8, 8, 8) is None


def test_published_rungs_name_their_source():
    found = rungs.published()
    assert len(found) > 50
    assert all(rung.source and rung.kind == "published" and rung.tflops > 0 and not rung.mine for rung in found)
    a6000 = {rung.name: rung for rung in found if rung.device == "RTX A6000"}
    assert a6000["naive"].cublas_ratio == pytest.approx(0.013, abs=0.0005)  # "1.3 %" in the source
    assert a6000["warp tile"].cublas_ratio == pytest.approx(0.937, abs=0.0005)


def test_a_published_figure_for_nearly_this_size_says_its_own():
    found = {rung.name: rung.m for rung in rungs.rungs(4092, device="RTX A6000", kinds=["published"])}
    assert found["naive, 4096³"] == 4096
    assert not rungs.rungs(4000, device="RTX A6000", kinds=["published"])


def test_a_damaged_recording_is_named(tmp_path):
    (tmp_path / "h200.json").write_text("[{")
    with pytest.raises(CourseError, match="h200.json"):
        rungs.recorded(tmp_path)


def test_a_recording_is_read_again_when_it_has_changed(tmp_path):
    file = tmp_path / "h200.json"
    for steps in ([3], [3, 4]):
        file.write_text(json.dumps([{"step": step, "dtype": "float32"} for step in steps]))
        found = rungs.recorded(tmp_path)
        assert [row["step"] for row in found] == steps
        found[0]["step"] = "the caller's own copy"


def test_a_fresh_reader_has_no_rungs_of_their_own():
    assert not any(rung.mine for rung in rungs.rungs(4096))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: rungs.rungs(None), "m=None: a matrix extent is a whole number"),
        (lambda: rungs.rungs(4096, k="x"), "k='x': a matrix extent is a whole number"),
        (lambda: rungs.rungs(4096.5), "m=4096.5: a matrix extent is a whole number"),
        (lambda: rungs.rungs(dtype=["float32"]), r"\['float32'\] is no element type of the course"),
        (lambda: rungs.rungs(device=3), "device=3: give the name of a GPU, such as device='H200 SXM'"),
        (lambda: rungs.rungs(kinds=3), r"kinds=3: give a list of kinds, such as kinds=\['recorded'\]; there are: measured, predicted, "),
        (lambda: rungs.rungs(kinds="recorded"), "kinds='recorded': give a list of kinds"),
        (lambda: rungs.rungs(kinds=[["recorded"]]), "give a list of kinds"),
        (lambda: rungs.recorded("x"), "'x' is no folder of recorded runs: name one, or leave it out for the course's own"),
        (lambda: rungs.recorded_files(3), "3 is no folder of recorded runs"),
    ],
)
def test_what_is_no_rung_s_is_a_sentence(call, sentence):
    with pytest.raises(CourseError, match=sentence):
        call()


def test_what_means_the_same_is_taken():
    assert rungs.recorded(str(rungs.DATA)) == rungs.recorded()
    assert rungs.rungs(kinds=iter(["published"])) == rungs.rungs(kinds=["published"])
