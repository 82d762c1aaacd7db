"""How long a picture takes after a slider moved. Not a test: times depend on the machine and on who else uses it.

    python -m tests.views.redraw_times [step]        for the pictures of a step's kernel (default: 10) at 128 x 128 x 128

Processor time from the changed value to the finished HTML, without the way to the browser: the first drawing, then the median
and the slowest of moves of every slider and menu.
"""

from __future__ import annotations

import statistics
import sys
import time

from helpers.course.lesson import reference
from helpers.front import widgets
from helpers.sim import TraceFilter
from helpers.views.canvas import PICTURES


def moves(panel) -> list[float]:
    """Seconds that each move of each control took."""
    times = []
    for name in list(panel.values):
        for part in (1, 2, 3):
            field = panel._fields.get(name)  # a move may take the control away
            if field is None:
                break
            if hasattr(field, "max"):
                value = min(field.min + part * max(1, (field.max - field.min) // 5), field.max)
            else:
                value = field.options[part % len(field.options)][1]
            if value != field.value:
                start = time.process_time()
                field.value = value
                times.append(time.process_time() - start)
    return times


def main(step: int) -> None:
    kernel = reference(step)
    run = kernel.gemm(128, on="cpu", trace=TraceFilter(math=True))
    print(f"{kernel.lesson_name}, {len(run.trace.accesses):,} accesses; milliseconds:   first   median   slowest")
    for name, picture in sorted(PICTURES.items(), key=lambda item: item[1].order):
        if picture.of != "run":
            continue
        seen = kernel.gemm(128, on="cpu", trace=TraceFilter(**picture.needs), counters=False, findings=False) if picture.needs else run
        start = time.process_time()
        panel = widgets.Panel(seen, picture)
        first, times = time.process_time() - start, moves(panel)
        rest = f"{1000 * statistics.median(times):8.0f} {1000 * max(times):9.0f}" if times else "  nothing to move"
        print(f"{name:38} {1000 * first:14.0f} {rest}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 10)
