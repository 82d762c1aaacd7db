"""What a launch on a GPU consists of, without one."""

from __future__ import annotations

import numpy as np

from helpers.run.gpu import launching, presence
from helpers.run.row_copies import RowCopy


def test_the_copies_come_before_the_kernel_each_time(monkeypatch):
    seen = []
    monkeypatch.setattr(presence, "arch", lambda: "sm_90")
    monkeypatch.setattr(
        launching, "_launcher", lambda compiled, grid, *rest: lambda: seen.append((getattr(compiled, "entry", compiled), grid))
    )
    copies = [RowCopy(np.zeros(rows * 6, np.uint8), 6, np.zeros(rows * 16, np.uint8), 16, rows, 6) for rows in (3, 4)]
    once = launching.launcher("kernel", (7, 1, 1), (32, 1, 1), [], before=copies)
    assert seen == []
    once()
    once()
    assert seen == 2 * [("copy_rows", (1, 3, 1)), ("copy_rows", (1, 4, 1)), ("kernel", (7, 1, 1))]
