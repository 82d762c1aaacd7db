"""The picture of warp states: all cycles are in a bar, and it says where there is nothing to show."""

import pytest

from helpers import Problem, gemm, views
from helpers.course import recorded_launches
from helpers.course.lesson import reference
from helpers.model import predict
from helpers.run.kernel import compile as compile_kernel
from helpers.views.warp_states import OTHERS, busiest, label, parts
from tests.course.tiny_kernel import SOURCE


def test_small_states_are_one_part():
    found = parts({"selected": 30.0, "wait": 69.0, "barrier": 1.0})
    assert list(found) == ["selected", "wait", OTHERS] and sum(found.values()) == pytest.approx(1)
    assert parts({"selected": 1.0}) == {"selected": 1.0}


def test_the_busiest_lines_come_first():
    assert busiest({4: {"wait": 1.0}, 2: {"wait": 2.0, "selected": 1.0}}) == [(2, 0.75), (4, 0.25)]


def test_every_bar_is_full_and_the_lines_are_named():
    ax = views.warp_states(gemm.count(compile_kernel(SOURCE), Problem(128, 128, 64)))
    rows = {}
    for bar in ax.patches:
        if bar.get_height() == pytest.approx(0.74):
            rows.setdefault(round(bar.get_y(), 2), []).append(bar.get_width())
    assert len(rows) >= 3
    for widths in rows.values():
        assert sum(widths) == pytest.approx(1)
    assert "Predicted for H200 SXM" in ax.alt and "line " in ax.alt
    ax.figure.canvas.draw()
    title = next(text for text in ax.texts if text.get_text().startswith("A warp issues")).get_window_extent()
    inch, whole = ax.figure.dpi, ax.figure.bbox
    assert title.x1 < whole.x1 - 0.2 * inch and title.x0 > 0.5 * inch and 0.1 * inch < whole.y1 - title.y1 < 0.4 * inch


def test_words_and_picture_name_the_same_line_of_a_statement_of_several():
    kernel = reference("mma_sync")  # whose products are inline assembly over four lines
    ax = views.warp_states(gemm.count(kernel, gemm.problem_for(kernel, 256, 256, 256)))
    drawn = [text.get_text().split(",")[0] for text in ax.get_yticklabels() if text.get_text().startswith("line ")]
    assert drawn and all(f"{line} takes " in ax.alt for line in drawn[:3])


def test_a_launch_in_its_own_signature_has_the_picture_too():
    run = recorded_launches.counted("summed", 1024)
    ax = views.warp_states(run)
    assert "its largest stall is long scoreboard" in ax.alt and "line " in ax.alt
    assert any("1,056 blocks of 256 threads" in text.get_text() for text in ax.texts)


def test_a_kernel_whose_way_is_not_known_has_no_picture(monkeypatch):
    run = gemm.count(compile_kernel(SOURCE), Problem(64, 64, 16))
    monkeypatch.setattr(predict, "estimate", lambda *_: (None, "a branch depends on data"))
    assert views.warp_states(run).alt == "Why its warps wait is not known, since a branch depends on data."


def test_lines_that_begin_or_end_alike_read_differently():
    loops = [
        "    for (int dot_index = 0; dot_index < BK; ++dot_index) {  // the products",
        "    for (int dot_index = 0; dot_index < BK; dot_index += 2) {",
        "    sums[0] = 0;",
    ]
    labels = [label(line, 0.25, loops) for line in (1, 2, 3, 9)]
    assembly = ['asm volatile("{\\n"', '".reg .pred p;\\n"', '"wgmma.fence.sync.aligned;\\n}"', ':: "r"(x));']
    assert label(4, 0.25, assembly) == "line 1, 25% of all cycles\nwgmma.fence.sync.aligned;"  # not its operands
    assert labels[0].startswith("line 1, 25% of all cycles\nfor (int dot_ind") and labels[0].endswith("++dot_index) {")
    assert labels[1].endswith("dot_index += 2) {") and all(len(part) <= 45 for label in labels for part in label.splitlines())
    assert labels[2].endswith("\nsums[0] = 0;") and labels[3] == "line 9, 25% of all cycles\n"
