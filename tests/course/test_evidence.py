"""Times with their sources."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helpers.course import evidence, rungs
from helpers.course.lesson import reference
from helpers.errors import CourseError


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("GEMM_LADDER_HOME", str(tmp_path))


def row(kind, step, tflops, device="H200 SXM", size=4096):
    milliseconds = 2 * size**3 / tflops / 1e9
    rungs.climb(label=f"k{step}", kind=kind, device=device, step=step, m=size, n=size, k=size, milliseconds=milliseconds)


def test_without_runs_of_its_own_it_names_whose_figures_they_are(monkeypatch):
    monkeypatch.setattr(rungs, "recorded", list)
    found = evidence.speedup("coalesced", "naive")
    assert found.fast.kind == "published" and found.fast.device == "H200 SXM"
    assert found.factor == found.fast.tflops / found.slow.tflops > 1
    assert "published: H200 SXM" in str(found) and "siboehm" in str(found)


def test_the_readers_own_times_come_first():
    row("measured", 1, 1.0, device="RTX 4090")
    row("measured", 2, 5.0, device="RTX 4090")
    found = evidence.speedup(2, 1)
    assert found.factor == pytest.approx(5)
    assert found.source == "yours, measured: RTX 4090, 4096 × 4096 × 4096"


def test_what_the_readers_ladder_predicts_stands_beside_what_was_recorded():
    row("predicted", 1, 0.5)
    row("predicted", 2, 7.0)
    found = evidence.speedup(2, 1)
    assert found.fast.kind == "recorded" and found.own.factor == pytest.approx(14)
    assert "times as fast (the course's kernel, recorded: H200 SXM, 4096 × 4096 × 4096" in str(found)
    assert found.source.endswith("; on your ladder, predicted: 14 times")


def test_a_climb_with_the_course_s_kernel_is_no_evidence_of_its_own():
    known = evidence.recorded("naive", 4096)
    row("recorded", 1, 0.6)
    row("recorded", 2, 60.0)
    assert evidence.recorded("naive", 4096) == known
    assert not evidence.speedup(2, 1).fast.mine and evidence.speedup(2, 1).factor < 20


def test_times_of_different_devices_are_not_compared():
    row("measured", 1, 1.0, device="RTX 4090")
    row("measured", 2, 5.0, device="T4")
    assert evidence.speedup(2, 1).fast.kind != "measured"


def test_nobody_has_timed_it():
    with pytest.raises(CourseError, match="Nobody has timed both"):
        evidence.speedup(2, 1, size=77)


def test_elsewhere_has_a_row_per_source_with_all_steps():
    found = evidence.elsewhere("naive", "coalesced", "shared_tile")
    assert len(found.rows) >= 3
    assert {rung.kind for line in found.rows for rung in line} == {"published"}
    assert all([rung.step for rung in line] == [1, 2, 3] for line in found.rows)
    assert "siboehm" in found._repr_html_() and "RTX 3090" in str(found)


def test_steps_nobody_published_give_no_rows():
    assert evidence.elsewhere("start_here").rows == ()


def test_a_column_of_elsewhere_has_the_name_of_its_step():
    header = evidence.elsewhere("shared_tile", "thread_tile_1d", "fp8").table().header
    assert list(header[2:-1]) == ["03 shared tile", "04 1D thread tile", "19 FP8"]


def test_recorded_times_name_their_device_and_day():
    found = evidence.recorded("naive", 4095, 4096)
    assert [rung.m for rung in found.rows] == [4095, 4096]
    assert "recorded, H200 SXM, 20" in str(found)
    assert str(found).count("recorded, ") == 2 and "noisy" not in str(found)
    assert str(found).count(" × cuBLAS (recorded, ") == 2 and "0.498 TFLOPS, 0.01 × cuBLAS (recorded" in str(found)
    assert "cuBLAS" not in str(evidence.Recorded((replace(found.rows[0], cublas_ratio=None),)))
    with pytest.raises(CourseError, match="not recorded at 77"):
        evidence.recorded("naive", 77)


def test_other_kinds_can_be_left_out():
    row("measured", 1, 1.0)
    row("measured", 2, 5.0)
    assert evidence.speedup(2, 1).fast.kind == "measured"
    assert evidence.speedup(2, 1, kinds=["recorded"]).fast.kind == "recorded"


def test_where_a_source_has_several_kernels_of_one_idea_the_fastest_stands():
    found = evidence.speedup("bank_conflicts", "thread_tile_2d", kinds=["published"], device="RTX A6000")
    same = [rung for rung in rungs.published() if (rung.step, rung.source) == (6, found.fast.source) and rung.device == "RTX A6000"]
    assert len(same) > 1 and found.fast.tflops == max(rung.tflops for rung in same)


def test_a_recorded_time_says_that_it_is_noisy(monkeypatch):
    every = rungs.recorded()
    rows = [row | {"noisy": "samples spread by 9%"} if row["slug"] == "naive" and row["m"] == 4096 else row for row in every]
    monkeypatch.setattr(rungs, "recorded", lambda: rows)
    said = str(evidence.on_record("naive", 4096, 1024)).splitlines()
    assert said[0].endswith("; noisy: samples spread by 9%)") and "noisy" not in said[1]
    profile = reference("naive").profile(4096)
    assert "Noisy: samples spread by 9%. Do not trust the last digits." in profile.sentences()
    assert not any("oisy" in sentence for sentence in reference("naive").profile(1024).sentences())


def test_what_is_not_on_record_is_said(monkeypatch):
    monkeypatch.setattr(rungs, "recorded", list)
    assert str(evidence.on_record("mma_sync", 4096)) == "mma_sync was not recorded at 4096³ on the H200 SXM."
    with pytest.raises(CourseError, match="mma_sync was not recorded"):
        evidence.recorded("mma_sync", 4096)


def test_power_decides_what_is_sustained():
    random, zeros = evidence.sustained().rows
    assert random["tflops"] < zeros["tflops"] and random["watts"] > zeros["watts"]
    assert "660 TFLOPS" in str(evidence.sustained()) and "recorded: cuBLAS on NVIDIA H200, 2026-11" in str(evidence.sustained())


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: evidence.speedup("naive", "nosuch"), "There is no step 'nosuch'; there are "),
        (lambda: evidence.recorded(None), "There is no step None"),
        (lambda: evidence.on_record(99), "There is no step 99"),
        (lambda: evidence.elsewhere("nosuch"), "There is no step 'nosuch'"),
        (evidence.elsewhere, r"elsewhere wants a step or several, such as elsewhere\('naive', 'coalesced'\)"),
        (lambda: evidence.speedup(2, 1, size="x"), "m='x': a matrix extent is a whole number"),
        (lambda: evidence.speedup(2, 1, kinds=3), "kinds=3: give a list of kinds"),
        (lambda: evidence.speedup(2, 1, kinds=["nosuch"]), r"kinds=\['nosuch'\]: give a list of kinds"),
        (
            lambda: evidence.speedup(2, 1, device="nosuch"),
            "Nothing is recorded for a GPU called 'nosuch'; there are: .*H200 SXM, .*RTX A6000",
        ),
        (lambda: evidence.recorded(3, device=3), "Nothing is recorded for a GPU called 3; there are: "),
        (lambda: evidence.on_record(3, 4096, device=["x"]), r"Nothing is recorded for a GPU called \['x'\]"),
        (lambda: evidence.recorded(3), r"At which size\? Give one or several, such as recorded\('shared_tile', 4096\)"),
    ],
)
def test_what_nothing_is_known_of_is_a_sentence(call, sentence):
    with pytest.raises(CourseError, match=sentence):
        call()


def test_a_gpu_goes_by_its_driver_s_name_too_and_by_what_the_reader_measured():
    assert evidence.recorded(3, 4096, device="NVIDIA H200") == evidence.recorded(3, 4096)
    assert "not recorded at 4096³ on the RTX A6000" in str(evidence.on_record(3, 4096, device="RTX A6000"))
    row("measured", 1, 1.0, device="my GPU")
    row("measured", 2, 5.0, device="my GPU")
    assert evidence.speedup(2, 1, device="my GPU").factor == pytest.approx(5)
