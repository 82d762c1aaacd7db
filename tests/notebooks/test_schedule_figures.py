"""Figures in the prose of lesson 11: what the compiler plans for the main loop, with and without each change of its order."""

import json
import re

import pytest

from helpers import TraceFilter, reference, variants, views
from helpers.course.plans import plans
from helpers.course.steps import get
from helpers.run.kernel import compile as compile_kernel
from tests import ROOT

LESSON = json.loads(get("schedule").notebook_path.read_text(encoding="utf-8"))
CELLS = {cell["id"]: "".join(cell["source"]) for cell in LESSON["cells"]}
ROW_BY_ROW = {"x % 2 ? SHORT - 1 - y : y": "y"}
WITHIN = {"else read(stages[next], 0);": "", "? 0 : now + 1;": "? 0 : now + 1;\n        read(stages[now], 0);"}
AT_ONCE = {"FIRST = 2, EVERY = 1, AT_ONCE = 3": "FIRST = 0, EVERY = 1, AT_ONCE = 18"}


@pytest.mark.parametrize(
    ("edits", "cycles", "waits"),
    [
        ({}, "1.097", 15),
        (ROW_BY_ROW | WITHIN | AT_ONCE, "1.182", 203),
        (ROW_BY_ROW | WITHIN, "1.145", None),
        (ROW_BY_ROW, "1.136", None),
        (WITHIN, "1.142", None),
        (AT_ONCE, "1.104", None),
    ],
)
def test_what_lesson_11_says_of_its_loop_is_what_the_compiler_plans(edits, cycles, waits):
    source = get("schedule").kernel_path.read_text(encoding="utf-8")
    for old, new in edits.items():
        assert old in source and (old in CELLS["ablation-it"] or "FIRST" in old), "the lesson tries another variant"
        source = source.replace(old, new)
    found = plans({"it": compile_kernel(source, arch="sm_90")})
    registers, loop = found.loops["it"]
    assert f"{loop.cycles_per_ffma:.3f}" == cycles and cycles in CELLS["ablation-says"]
    assert cycles in (ROOT / "kernels/LOG.md").read_text(encoding="utf-8").partition("## Run 7")[2]
    if waits is not None:
        assert loop.waits == waits and str(waits) in CELLS["ablation-says"]


def test_step_10_has_other_cycles_than_its_order_here():
    _, loop = plans({"it": reference("async_copy")}).loops["it"]
    assert f"(Step 10 itself, in the picture above, has {loop.cycles_per_ffma:.3f}: " in CELLS["ablation-says"]


def test_fewer_multiply_adds_stand_before_the_second_barrier():
    run = reference("schedule").gemm(256, 128, 64, on="cpu", findings=False, counters=False, trace=TraceFilter(math=True, blocks={0}))
    first, second = re.findall(r"(\d+) arithmetic", views.timeline(run).alt)[:2]
    assert f"they are {first} multiply-adds and not {second}, " in CELLS["timeline-says"]
    assert f"whose {int(second) - int(first)} come behind it" in CELLS["timeline-says"]


@pytest.mark.slow
def test_the_numbering_of_lanes_changes_the_plan_by_one_cycle_of_waiting():
    kernel = reference("schedule")
    pairs = "lane_row = lane / (2 * LANES_N) * 2 + lane % 2, lane_col = lane / 2 % LANES_N"
    assert pairs in CELLS["lanes-it"] and "but for one cycle of waiting" in CELLS["whole-says"]
    tried = variants(kernel, {"columns": {}, "pairs": {"lane_row = lane % LANES_M, lane_col = lane / LANES_M": pairs}})
    columns, pairs = (loop for _, loop in plans(tried).loops.values())
    assert len(columns.body) == len(pairs.body) and abs(columns.waits - pairs.waits) == 1 and columns.bank_conflicts == pairs.bank_conflicts
