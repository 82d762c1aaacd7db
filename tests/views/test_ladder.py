"""The ladder picture: every kind of figure is drawn in its own way and said in words."""

from dataclasses import dataclass

import matplotlib.colors
import pytest
from matplotlib.container import ErrorbarContainer

from helpers.views import ladder
from helpers.views.canvas import GREEN, PICTURES
from helpers.views.ladder import devices, rows


@dataclass(frozen=True)
class Rung:
    kind: str
    name: str
    device: str = "H200 SXM"
    step: int | None = None
    tflops: float | None = None
    cublas_ratio: float | None = None
    spread: float | None = None
    mine: bool = False
    dtype: str = "float32"
    out_dtype: str = "float32"
    m: int = 4096
    n: int = 4096
    k: int = 4096
    date: str = ""


RUNGS = [
    Rung("published", "naive", step=1, tflops=0.499, cublas_ratio=0.01),
    Rung("recorded", "naive", step=1, tflops=0.502, cublas_ratio=0.01, spread=0.02),
    Rung("measured", "naive", step=1, tflops=0.49, mine=True, spread=0.05),
    Rung("recorded", "coalesced", step=2, tflops=6.3, cublas_ratio=0.124),
    Rung("predicted", "coalesced", step=2, tflops=7.1, mine=True),
    Rung("counted", "my_kernel", mine=True),
    Rung("recorded", "cuBLAS", tflops=50.7, cublas_ratio=1.0),
    Rung("limit", "limit of the FP32 lanes", tflops=66.9),
    Rung("published", "naive", device="RTX 3090", step=1, tflops=0.27, cublas_ratio=0.011),
]


def test_rows_go_up_the_steps_and_leave_cublas_and_limit_out():
    assert [(row.step, row.label, len(row.rungs)) for row in rows(RUNGS[:8])] == [
        (1, "01 naive", 3), (2, "02 coalesced", 2), (None, "my_kernel", 1),
    ]  # fmt: skip


def test_a_step_is_named_as_in_its_lesson():
    labels = [
        row.label
        for row in rows([Rung("recorded", "thread_tile_1d", step=4, tflops=23.0), Rung("recorded", "fp8", step=19, tflops=1320.0)])
    ]
    assert labels == ["04 thread tile 1D", "19 FP8"]


@pytest.mark.parametrize("name", ["V05 transposed, vectorised", "W" * 40, "WWWWW", "m W_m W_m W_m W_m W_", "a_b" * 30 + ", B by columns"])
def test_a_name_is_cut_where_the_picture_ends(name):
    ax = ladder([Rung("published", name, step=7, tflops=19.7, cublas_ratio=0.8)])
    (text,) = ax.get_yticklabels()
    written, whole = text.get_text().replace("\n", " "), f"07 {name.replace('_', ' ')}"
    assert text.get_window_extent().x0 >= 0 and written.startswith(whole[:7]) and text.get_fontsize() >= 11
    assert written == whole or "…" in written
    assert whole in ax.alt, "what is read aloud needs no room"


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("mine_tn, B by columns", ["mine_tn,", "B by columns"]),
        ("mine, A and B by columns", ["mine,", "A and B by columns"]),
        ("a_kernel_of_my_own_making", ["a_kernel_of_", "my_own_making"]),
        ("a_kernel_of_my_own_with_a_name_that_never_ends, B by columns", ["a_kernel_of_my_own_…", "B by columns"]),
    ],
)
def test_a_long_name_has_two_lines_and_keeps_how_its_matrices_lie(name, lines):
    ax = ladder([Rung("predicted", other, mine=True, tflops=19.7) for other in (name, name.replace("m", "n"), "other")])
    texts = [text for text in ax.get_yticklabels() if text.get_text() != "other"]
    boxes = sorted((text.get_window_extent() for text in texts), key=lambda box: box.y0)
    assert boxes[0].y1 <= boxes[1].y0 and boxes[0].x0 >= 0
    shown = next(text.get_text() for text in texts if text.get_text()[:3] == name[:3])
    if shown != name:
        first, *more = shown.split("\n")
        assert first[:8] == lines[0][:8] and more == lines[1:]


def test_the_reader_s_device_comes_first():
    assert devices(RUNGS) == ["H200 SXM", "RTX 3090"]
    assert devices(RUNGS[-1:]) == ["RTX 3090"]


def test_each_kind_is_drawn_in_its_own_way(said):
    ax = ladder(RUNGS)
    marks = {(line.get_marker(), round(float(line.get_xdata()[0]), 3)): line.get_markerfacecolor() for line in ax.lines
             if line.get_marker() in ("o", "^")}  # fmt: skip
    assert matplotlib.colors.to_hex(marks["o", 0.49]).upper() == GREEN  # measured: filled
    assert matplotlib.colors.to_hex(marks["o", 7.1]) == "#ffffff"  # predicted: hollow
    assert ("^", 0.499) in marks  # published
    assert [round(bar.get_x() + bar.get_width(), 3) for bar in ax.patches] == [0.502, 6.3]  # recorded
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "you, measured", "you, predicted", "recorded by the course", "published by others", "middle half of the runs",
    ]  # fmt: skip
    words = said(ax)
    assert "cuBLAS 50.7" in words and "limit 66.9" in words and "counted, not timed" in words and "12 %" in words


def test_a_climb_with_the_course_s_kernel_is_drawn_and_said_once(said):
    own = Rung("recorded", "naive", step=1, tflops=0.502 * (1 + 1e-12), mine=True)
    ax = ladder([RUNGS[1], own])
    assert len(ax.patches) == 1 and ax.alt.count("0.502 TFLOPS") == 1 and "yours, recorded" in ax.alt
    assert "bold green: yours" in said(ax)


@pytest.mark.parametrize("kind", ["predicted", "measured"])
def test_beside_a_row_stands_the_figure_of_the_kernel_that_was_changed(kind):
    course = Rung("recorded", "coalesced", step=2, tflops=6.3, cublas_ratio=0.124)
    unchanged = Rung("recorded", "coalesced", step=2, tflops=6.3, cublas_ratio=0.124, mine=True)
    edited = Rung(kind, "coalesced", step=2, tflops=7.1, mine=True)
    ax = ladder([course, unchanged, edited])
    texts = {text.get_text(): text.get_weight() for text in ax.texts}
    assert any("in brackets: the bar's" in text for text in texts)
    assert texts["7.10"] == "bold" and "6.30" not in texts and texts["(12 %)"] == "normal"


def test_who_climbs_with_the_course_s_kernel_again_has_its_figure_again():
    course = Rung("recorded", "coalesced", step=2, tflops=6.3, cublas_ratio=0.124)
    edited = Rung("predicted", "coalesced", step=2, tflops=7.1, mine=True, date="2026-11-28T10:00:00")
    restored = Rung("recorded", "coalesced", step=2, tflops=6.3, cublas_ratio=0.124, mine=True, date="2026-11-28T11:00:00")
    texts = {text.get_text(): text.get_weight() for text in ladder([course, edited, restored]).texts}
    assert texts["6.30"] == texts["12 %"] == "bold" and "7.10" not in texts


def test_error_bars_are_the_spread():
    ax = ladder(RUNGS)
    bars = [line for line in ax.collections if type(line).__name__ == "LineCollection"]
    spans = sorted(float(segment[1][0] - segment[0][0]) for bar in bars for segment in bar.get_segments())
    assert spans == pytest.approx(sorted([0.502 * 0.02, 0.49 * 0.05]))
    assert "spans the middle half of its runs." in ax.alt
    predicted = ladder([Rung("predicted", "naive", step=1, tflops=7.1, mine=True, spread=0.1)])
    assert [text.get_text() for text in predicted.get_legend().get_texts()] == ["you, predicted", "model's largest error"]
    assert "half of" not in str([text.get_text() for text in ladder(RUNGS[3:4]).get_legend().get_texts()])


@pytest.mark.parametrize("kind", ["predicted", "measured", "recorded"])
def test_no_mark_hides_the_ticks_of_an_error(kind):
    """A mark is wider than the error of most: what the legend calls a line must be seen."""
    bar = Rung("recorded", "fast", step=2, tflops=124.0)
    drawn = ladder([bar, Rung(kind, "mine", step=1, tflops=14.0, mine=True, spread=0.22)])
    (ticks,) = (one for one in drawn.containers if isinstance(one, ErrorbarContainer))
    parts = [ticks[0], *ticks[1], *ticks[2]]
    marks = [line for line in drawn.lines if line.get_marker() in ("o", "^")] + list(drawn.patches)
    assert marks and min(part.get_zorder() for part in parts if part) > max(mark.get_zorder() for mark in marks)
    widest = max((line.get_markersize() + line.get_markeredgewidth() for line in drawn.lines if line.get_marker() in ("o", "^")), default=0)
    assert all(cap.get_markersize() > widest + 2 for cap in ticks[1])


def test_all_names_of_marks_lie_in_the_picture():
    ax = ladder([*RUNGS, Rung("predicted", "coalesced", step=2, tflops=6.1, mine=True, spread=0.1)])
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert len(texts) == 6 and texts[-1] == "model's largest error"
    box, picture = ax.get_legend().get_window_extent(), ax.figure.bbox
    assert picture.x0 <= box.x0 and box.x1 <= picture.x1 and picture.y0 <= box.y0


@pytest.mark.parametrize("log, scale", [(True, "log"), (False, "linear")])
def test_scales(log, scale):
    ax = ladder(RUNGS, log=log)
    assert ax.get_xscale() == scale and "TFLOPS" in ax.get_xlabel() and scale in ax.get_xlabel()


def test_no_figure_stands_on_a_line():
    ax = ladder(RUNGS)
    lines = [line.get_window_extent() for line in ax.lines if len(set(line.get_xdata())) == 1 and len(line.get_xdata()) == 2]
    assert len(lines) == 2
    assert not [text.get_text() for text in ax.texts for line in lines if text.get_window_extent().overlaps(line)]


def test_all_devices_are_compared_by_their_own_cublas():
    ax = ladder(RUNGS, device="all")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["H200 SXM", "RTX 3090"] and "%" in ax.get_xlabel()
    assert len({line.get_linestyle() for line in ax.get_legend().get_lines()}) == 2  # told apart without colours
    assert "RTX 3090: 01 naive 1.1 %" in ax.alt


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("count", [2, 6])
def test_the_names_of_the_gpus_stand_where_no_mark_can_be(count, log):
    many = [
        Rung("recorded", str(step), device=f"Quadro RTX {gpu}000", step=step, tflops=1.0, cublas_ratio=share)
        for gpu in range(count)
        for step, share in ((1, 0.4), (2, 1.0))
    ]
    ax = ladder(many, device="all", log=log)
    names, whole = ax.get_legend().get_window_extent(), ax.figure.bbox
    assert len(ax.get_legend().get_texts()) == count and whole.x0 <= names.x0 and names.x1 <= whole.x1 and whole.y0 <= names.y0
    assert names.y1 <= ax.get_window_extent().y0 and not names.overlaps(ax.xaxis.label.get_window_extent())


def test_a_line_of_a_gpu_goes_from_step_to_step_only():
    """A kernel outside the steps stands above them, whatever its idea: no way leads there."""
    ax = ladder([*RUNGS, Rung("published", "warp tile", device="RTX 3090", tflops=0.1, cublas_ratio=0.05)], device="all")
    lines = {line.get_label(): list(line.get_ydata()) for line in ax.lines if line.get_label() in devices(RUNGS)}
    assert lines == {"H200 SXM": [0, 1], "RTX 3090": [0]}
    assert "RTX 3090: 01 naive 1.1 %, warp tile 5 %" in ax.alt


def test_alternative_text_names_how_each_figure_came_about():
    alt = ladder(RUNGS).alt
    assert "01 naive: 0.499 TFLOPS (published by others), 0.502 TFLOPS (recorded by the course), 0.49 TFLOPS (you, measured)" in alt
    assert "my_kernel: no time (you, counted only)" in alt


def test_an_empty_ladder_says_how_to_begin(said):
    assert "naive.climb()" in said(ladder([]))
    assert PICTURES["ladder"].controls([])


def test_a_limit_that_a_rung_passes_says_whose_it_is(said):
    fast = Rung("recorded", "fp32_on_tensor_cores", step=18, tflops=191.0)
    assert "limit of the FP32 lanes 66.9" in said(ladder([*RUNGS, fast]))
    assert "limit of the FP32 lanes 66.9" not in said(ladder([*RUNGS, Rung("recorded", "luck", step=11, tflops=67.5)]))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 8])
def test_a_picture_of_a_few_rungs_is_no_higher_than_they_need(count):
    """Each has about as much room as in a ladder of a dozen, and names and figures of two stay apart."""
    drawn = ladder(
        [*(Rung("recorded", f"{step}", step=step, tflops=2.0 + step, cublas_ratio=0.5) for step in range(1, count + 1)), RUNGS[7]]
    )
    inches = drawn.get_window_extent().height / drawn.figure.dpi
    assert 0.79 < inches <= max(0.81, 0.43 * (count + 0.2))
    whole = ladder([Rung("recorded", f"{step}", step=step, tflops=2.0) for step in range(1, 13)])
    assert drawn.figure.get_figheight() < whole.figure.get_figheight() == pytest.approx(6.4)
    boxes = [text.get_window_extent() for text in drawn.texts if text.get_text()]
    boxes += [text.get_window_extent() for text in (drawn.title, drawn.xaxis.label, *drawn.get_yticklabels()) if text.get_text()]
    assert not any(one.overlaps(other) for k, one in enumerate(boxes) for other in boxes[:k])
    legend = drawn.get_legend()
    assert legend is None or (
        legend.get_window_extent().y0 >= 0 and not legend.get_window_extent().overlaps(drawn.xaxis.label.get_window_extent())
    )


def test_only_a_limit_is_a_picture_too(said):
    assert "limit 66.9" in said(ladder([RUNGS[7]]))


@pytest.mark.parametrize(("rungs", "said"), [(RUNGS, True), ([Rung("predicted", "mine", step=1, tflops=3.0, mine=True)], False)])
def test_whose_cublas_a_share_is_of_is_said_where_there_are_shares(rungs, said):
    """One line stands for cuBLAS, and kernels are recorded in runs of their own."""
    assert ladder(rungs).get_xlabel().endswith("; each % is of the cuBLAS in its own run") == said


@pytest.mark.parametrize(("share", "several"), [(100 / 105, False), (0.97, False), (1.0, True), (0.9, True)])
def test_a_line_that_is_not_the_cublas_of_a_share_says_that_it_is_the_fastest(share, several, said):
    """100 % of cuBLAS beside a bar that ends in front of its line: that was another run."""
    rungs = [Rung("recorded", "fast", step=1, tflops=100.0, cublas_ratio=share), Rung("recorded", "cuBLAS", tflops=105.0, cublas_ratio=1.0)]
    mine = Rung("measured", "mine", tflops=50.0, cublas_ratio=0.9, mine=True)  # on the reader's GPU: no run of the course's
    picture = ladder([*rungs, mine, Rung("published", "cuBLAS", tflops=99.0)])
    assert ("fastest cuBLAS 105" in said(picture)) == several and "cuBLAS 105" in said(picture)
    assert ("fastest cuBLAS (recorded): 105 TFLOPS" in picture.alt) == several and "cuBLAS (published)" in picture.alt
    assert "fastest" not in said(ladder([rungs[0], Rung("published", "cuBLAS", tflops=105.0)]))


def test_that_no_time_of_cublas_is_recorded_is_said():
    """Of FP16 to FP32 for example, or of a size that nobody has measured; where a share stands beside a rung, there was one."""
    mine = Rung("predicted", "mine", step=1, tflops=300.0, mine=True, dtype="float16")
    picture = ladder([mine, Rung("limit", "limit of the tensor cores", tflops=989.0, dtype="float16")])
    assert picture.get_xlabel().endswith("; no time of cuBLAS is recorded here")
    assert "No time of cuBLAS is recorded for FP16 to FP32, 4096³, on H200 SXM: where there is a GPU, profile() runs it." in picture.alt
    for others in ([Rung("recorded", "cuBLAS", tflops=650.0)], [Rung("measured", "two", step=2, tflops=9.0, cublas_ratio=0.1, mine=True)]):
        picture = ladder([mine, *others])
        assert "no time of cuBLAS" not in picture.get_xlabel() and "No time of cuBLAS" not in picture.alt
