"""The roofline: ceilings from the hardware table, points from counters."""

import numpy as np
import pytest

from helpers.views import roofline
from helpers.views.roofline import Point, gemm_point, point, roof
from tests.views.view_builders import Allocation, Trace, access_rows, run_of


def test_the_roofs_are_those_of_the_hardware_table():
    top = roof("H200 SXM")
    assert top.compute == pytest.approx(66.9, abs=0.05) and top.dram == 4.8
    assert top.l1 == pytest.approx(132 * 128 * 1.98e9 / 1e12)
    assert (
        top.attainable(1.0) == 4.8 and top.attainable(1e6) == top.compute and top.attainable(0.1, "l1") == pytest.approx(3.345, abs=0.001)
    )


def test_a_product_s_intensity_is_operations_over_compulsory_bytes():
    assert gemm_point(4096, 4096, 4096).compulsory == pytest.approx(2 * 4096**3 / (3 * 4096**2 * 4))
    assert gemm_point(1, 4096, 4096).compulsory == pytest.approx(0.5, abs=0.01)


def test_a_run_s_point_comes_from_its_counters():
    n = 512
    arrays = [Allocation(name, "global", 4 * n * n * i, 4 * n * n, (n, n)) for i, name in enumerate("ABC")]
    trace = Trace(access_rows([])[:0], np.zeros((0, 32), np.int64), [], arrays)
    counters = {
        "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": n**3,
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 20971520,
        "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": 32768,
    }
    seen = point(run_of(trace, counters=counters, entry="coalesced"))
    assert seen.name == "coalesced" and seen.flops == 2 * n**3
    assert seen.compulsory == pytest.approx(2 * n**3 / (3 * 4 * n * n))
    assert seen.requested == pytest.approx(2 * n**3 / (32 * (20971520 + 32768)))
    assert seen.tflops is None


def test_the_picture_places_points_under_their_roofs(said):
    ax = roofline([Point("naive", 1, 680, 0.0606, 0.5, "recorded"), Point("fast", 1, 680, 8.0, 40.0, "predicted")])
    squares = [(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in ax.lines if line.get_marker() == "s"]
    assert squares == [(0.0606, 0.5), (8.0, 40.0)]
    assert "naive  0.5 recorded" in said(ax) and "fast  40 predicted" in said(ax)
    assert "DRAM 4.8 TB/s" in said(ax) and "FP32 lanes 66.9 TFLOPS" in said(ax)
    assert ax.get_xlabel() == "FLOPs per byte" and ax.get_ylabel() == "TFLOPS"
    assert "naive, bytes it requests: 0.0606 FLOPs per byte, the roof allows 2.03 TFLOPS, 0.5 recorded." in ax.alt


def test_a_point_without_a_time_lies_on_its_roof(said):
    assert "4096³  ≤ 66.9" in said(roofline(gemm_point(4096, 4096, 4096)))


def test_unknown_gpu_and_empty_product_are_explained(said):
    assert "GTX 1" in said(roofline(gemm_point(4, 4, 4), gpu="GTX 1"))
    with pytest.raises(Exception, match="does no operation"):
        gemm_point(4, 0, 4)


def test_a_run_that_counted_nothing_is_said_to_have():
    trace = Trace(access_rows([])[:0], np.zeros((0, 32), np.int64), [], [])
    assert "did no operation" in roofline(run_of(trace)).alt


def test_no_roof_is_named_across_a_point_s_name():
    ax = roofline([gemm_point(16, 16, 16), gemm_point(4096, 1, 4096, "matrix × vector"), Point("no reuse", 2, None, 0.25)])
    ax.figure.canvas.draw()
    roof_name, point_name = (next(text for text in ax.texts if words in text.get_text()) for words in ("DRAM", "matrix"))
    assert not roof_name.get_window_extent().overlaps(point_name.get_window_extent())


@pytest.mark.parametrize(
    "items",
    [[Point("thread_tile_1d", 1, 16.0, 10.7)], [Point("double_buffer", 1, 16.0, 16.0)], [Point("mma_sync", 1, 32.0, 32.0, dtype="bfloat16")],
     [Point("one", 1, 680, 0.0606, 0.5), Point("two", 1, 680, 8.0, 40.0)]],
    ids=lambda items: items[0].name,
)  # fmt: skip
def test_a_point_s_name_lies_across_no_roof_and_no_mark(items):
    ax = roofline(items)
    ax.figure.canvas.draw()
    names = [text.get_window_extent() for text in ax.texts if any(text.get_text().startswith(f"{item.name}  ") for item in items)]
    assert len(names) == len(items)
    for line in ax.lines:
        points = ax.transData.transform(np.stack([line.get_xdata(), line.get_ydata()], axis=-1).astype(float))
        along = points[0] + np.linspace(0, 1, 500)[:, None] * (points[-1] - points[0])
        assert not any(((along > name.p0) & (along < name.p1)).all(axis=1).any() for name in names)


def test_where_there_is_no_other_place_a_name_covers_the_roofs():
    ax = roofline([Point("no reuse", 2, None, 0.25)])
    (name,) = (text for text in ax.texts if "no reuse" in text.get_text())
    assert name.get_bbox_patch().get_facecolor()[:3] == (1, 1, 1) and name.get_zorder() > max(line.get_zorder() for line in ax.lines)
