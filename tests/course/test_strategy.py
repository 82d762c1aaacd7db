"""The strategy table: its configurations are kernels, its rows are recorded, its best is the fastest."""

from __future__ import annotations

import pytest

from helpers.course import rungs, strategy
from helpers.course.autotune import vet
from helpers.course.steps import get
from helpers.course.sweep import variant
from helpers.errors import CourseError
from helpers.run import gemm

SOURCE = get(strategy.STEP).kernel_path.read_text(encoding="utf-8")


def test_every_configuration_satisfies_the_kernel_and_is_named_after_its_tile():
    names = sorted({name for setting in strategy.CONFIGURATIONS.values() for name in setting})
    shipped = {name: int(SOURCE.split(f"{name} = ")[1].split(",")[0].split(";")[0]) for name in names}
    points = [{**shipped, **setting} for setting in strategy.CONFIGURATIONS.values()]
    for name, judged in zip(strategy.CONFIGURATIONS, vet(SOURCE, points), strict=True):
        assert not judged.refused, f"{name}: {judged.refused}"
        slices = f", {judged.depth} slices" if judged.depth > 1 else ""
        assert name == "{} × {}".format(*judged.tile) + slices


def test_every_configuration_was_recorded_on_every_shape():
    found = strategy.recorded()
    assert list(found.rows) == list(strategy.SHAPES)
    assert all(set(rows) == set(strategy.CONFIGURATIONS) for rows in found.rows.values())


def test_the_best_of_a_shape_is_the_fastest_and_stands_out():
    found = strategy.recorded()
    for shape, rows in found.rows.items():
        assert rows[found.best(shape)]["milliseconds"] == min(row["milliseconds"] for row in rows.values())
    header, cells = found.table().header, found.table().rows
    assert [len(row) for row in cells] == [len(header)] * len(strategy.SHAPES)
    page = found._repr_html_()
    assert page.count("<b>") == len(strategy.SHAPES) and page.count("background:rgba") > 50
    assert "background:rgba(0,158,115,0.60)'><b>" in page  # as fast as cuBLAS
    assert "recorded, NVIDIA H200" in str(found) and "64 × 64, 32 slices" in str(found)
    assert ">64&nbsp;×<br>64<br><small>32 slices</small></th>" in page, "no title is wider than the numbers below it"


def test_a_device_without_a_table_is_refused():
    with pytest.raises(CourseError, match="not recorded on Voodoo"):
        strategy.recorded("Voodoo 2")


def test_variants_stay_out_of_the_ladder():
    assert any("configuration" in row for row in rungs.recorded(variants=True))
    assert not any("configuration" in row or "batch" in row for row in rungs.recorded())


SMALL = {"BM": 16, "BN": 64, "BK": 16, "WM": 16, "WN": 32, "TM": 4, "TN": 4}


@pytest.mark.parametrize(("step", "slices"), [("schedule", 1), ("autotune", 1), ("autotune", 3), ("fused_epilogue", 1)])
def test_slices_and_batches_compute_the_same_as_one_block_alone(step, slices):
    from helpers.run.kernel import compile as compile_kernel

    source = get(step).kernel_path.read_text(encoding="utf-8")
    constants = SMALL | ({"SLICES": slices} if slices > 1 else {})
    kernel = compile_kernel(variant(source, **constants), entry=get(step).entry)
    assert gemm.geometry(kernel).depth == slices
    problems = [
        gemm.Problem(17, 70, 100, alpha=0.5, beta=2.0, pad_a=1, pad_c=3, batch=3),
        gemm.Problem(16, 64, 20, batch=2),  # the last slices have nothing to add up
        gemm.Problem(33, 65, 0, beta=1.0),
    ]
    report = gemm.check(kernel, problems, on="cpu")
    assert report.passed, str(report)
