"""The swizzle as it was executed: copied pieces, and what a product reads of them."""

import numpy as np
import pytest
from matplotlib.text import Text

from helpers.sim.machine.trace import Move
from helpers.views import swizzled_tile
from helpers.views.canvas import NothingToSee
from helpers.views.swizzled_tile import boxes, groups_of_banks
from tests.views.view_builders import Trace, access_rows, run_of

ROW, PIECE = np.indices((64, 8))
SWIZZLED = 1024 + ROW * 128 + (PIECE ^ ROW % 8) * 16
FIRST_K = 1024 + np.arange(64)[:, None] * 128 + (np.arange(64) % 8 * 16)[:, None] + np.arange(8) * 2  # by rows, 8 elements of 2 bytes


def run_with(*moves):
    trace = Trace(access_rows([]), np.empty((0, 32), np.int64), [], [])
    object.__setattr__(trace, "moves", moves)
    return run_of(trace)


def test_pieces_lie_where_the_copy_put_them_and_a_column_meets_all_banks():
    run = run_with(Move(0, 0, 5, 1, "copy", 0, SWIZZLED), Move(0, 0, 9, 2, "A", 0, FIRST_K))
    (box,) = boxes(run.trace)
    assert (box.first, box.home.shape) == (1024, (64, 8, 2))
    assert box.home[3, 0].tolist() == [3, 3] and box.home[3, 3].tolist() == [3, 0]
    assert groups_of_banks(FIRST_K) == 8
    said = swizzled_tile(run).alt
    assert "row 1 piece 1, row 1 piece 0" in said and "8 groups of four banks" in said
    straight = 1024 + np.arange(64)[:, None] * 128 + np.arange(8) * 2
    assert groups_of_banks(straight) == 1


def test_the_lines_are_shown_that_a_product_begins_with():
    later = FIRST_K + 32 * 128  # by rows 32 on, of which there are 64
    later = later[:32]
    run = run_with(Move(0, 0, 5, 1, "copy", 0, SWIZZLED), Move(0, 0, 9, 2, "B", 0, later))
    shown = swizzled_tile(run)
    assert "Line 34 holds, bank by bank: row 33 piece 1, row 33 piece 0" in shown.alt
    assert "lines 33 to 48 of 64" in " ".join(text.get_text().replace("\n", " ") for text in shown.findobj(Text))


def test_a_product_that_begins_before_the_box_is_shown_where_it_reaches_it():
    before = FIRST_K - 40 * 128  # 64 rows, of which the last 24 lie in the box
    run = run_with(Move(0, 0, 5, 1, "copy", 0, SWIZZLED), Move(0, 0, 9, 2, "A", 0, before))
    assert "The second line holds, bank by bank: row 1 piece 1, row 1 piece 0" in swizzled_tile(run).alt


def test_a_product_belongs_to_the_fill_that_it_read():
    again = [Move(0, 0, 5, order, "copy", 0, SWIZZLED) for order in (1, 3)]
    first, second = boxes(run_with(again[0], Move(0, 0, 9, 2, "A", 0, FIRST_K), again[1]).trace)
    assert len(first.reads) == 1 and not second.reads


def test_nothing_copied_is_nothing_to_see():
    with pytest.raises(NothingToSee, match="No tile was copied"):
        boxes(run_with().trace)
