"""The listing: counters at their lines, findings under them, PTX and SASS of the real compiler."""

import numpy as np
import pytest

from helpers.course.lesson import reference
from helpers.course.steps import get
from helpers.errors import Finding
from helpers.sim.counting import names
from helpers.toolchain.compile import compile_source
from helpers.views import listing
from helpers.views.canvas import NothingToSee
from helpers.views.listing import code_of, excerpt, heat, lines, number, ptx_of, sass_of, table
from tests.views.view_builders import run_of

LOADS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"
SOURCE = "\n__global__ void k(float* A) {\n    float a = A[0];\n    float b = A[1] < a;  // <b>\n    A[2] = a;\n}\n"
BY_LINE = {
    3: {LOADS: 100, SECTORS: 3200, "ptx_instructions": 100},
    4: {LOADS: 100, SECTORS: 400, "ptx_instructions": 400, CONFLICTS: 7},
}


@pytest.fixture
def run():
    findings = [Finding("race", 4, "two threads write A[2]", other_line=5)]
    return run_of(None, SOURCE, by_line=BY_LINE, findings=findings)


def test_numbers_stand_at_their_lines(run):
    columns, listed = lines(run)
    assert [column.title for column in columns] == ["instructions", "global requests", "sectors", "sectors per request", "bank conflicts"]
    values = {entry.number: entry.values for entry in listed}
    assert list(values) == [2, 3, 4, 5, 6]
    assert values[3] == (100, 100, 3200, 32.0, None) and values[4] == (400, 100, 400, 4.0, 7) and values[5] == (None,) * 5


def test_heat_is_the_share_of_the_largest_in_the_column(run):
    shade = heat(*lines(run))
    np.testing.assert_allclose(shade[1], [0.25, 1, 1, 1, 0])
    np.testing.assert_allclose(shade[2], [1, 1, 0.125, 0.125, 1])


def test_findings_stand_under_both_of_their_lines(run):
    findings = {entry.number: entry.findings for entry in lines(run)[1]}
    assert findings[4] == ("race: two threads write A[2]",) and findings[5] == ("race: see line 4",) and findings[3] == ()


def test_the_table_is_a_real_one_and_escapes_the_source(run):
    page = table(run, line=3)._repr_html_()
    assert "<caption>" in page and 'scope="col">sectors per request' in page and '<th scope="row">4</th>' in page
    assert "&lt;b&gt;" in page and "<b>" not in page
    assert "race: two threads write A[2]" in page and page.count('class="marked"') == 1
    text = str(table(run)).splitlines()
    assert text[2].split()[:2] == ["3", "float"] and text[2].endswith("32")


def test_the_picture_shows_the_same_numbers(run, said):
    shown = said(listing(run, line=3))
    assert "3,200" in shown and "float a = A[0];" in shown
    assert "Most sectors: line 3 with 3,200." in listing(run).alt and "Line 4: race" in listing(run).alt


@pytest.mark.parametrize(
    "value, text", [(None, ""), (4, "4"), (16.5, "16.5"), (8192, "8,192"), (2_097_152, "2.1 M"), (3e9, "3 G"), (0.5, "0.5")]
)
def test_numbers_are_short(value, text):
    assert number(value) == text


def test_multiply_adds_are_the_instructions_that_were_counted_else_those_of_threads():
    """A warp that is not full executes one as well, so no count of threads tells how many instructions there were."""
    by_line = {3: {names.threads("ffma"): 27, names.opcode("FFMA"): 9}, 4: {names.threads("ffma"): 3}}
    columns, listed = lines(run_of(None, SOURCE, by_line=by_line))
    assert [column.title for column in columns] == ["FFMA"] and listed[1].values == (9,) and listed[2].values == (None,)
    del by_line[3][names.opcode("FFMA")]
    columns, listed = lines(run_of(None, SOURCE, by_line=by_line))
    assert [column.title for column in columns] == ["FMA of threads"] and listed[1].values == (27,)


@pytest.mark.slow
def test_multiply_adds_whose_predicates_are_false_are_said_to_be_switched_off():
    """With beta 0 the line is executed all the same, and its PTX is not."""
    run = reference("fused_epilogue").gemm(256, 128, 16, on="cpu", alpha=1, beta=0, findings=False)
    columns, listed = lines(run)
    place = [column.title for column in columns].index("FFMA")
    values = {entry.text.strip()[:10]: entry.values[place] for entry in listed if entry.values[place] is not None}
    assert values["v.x += bet"] == 0 and all(value for text, value in values.items() if text != "v.x += bet")
    assert number(0.0) == "switched off"


def test_no_line_is_left_out_unsaid(said):
    """Of a source with a gap of seven lines and one of eight between lines that cost something, the second is left out, and said to be."""
    source = "\n".join(["__global__ void k(float* A) {", *(f"    // line {number}" for number in range(2, 40)), "}"])
    run = run_of(None, source, by_line={number: {LOADS: 10} for number in (2, 14, 27)})
    shown = excerpt(lines(run)[1])
    assert [entry.label for entry in shown] == [*map(str, range(1, 17)), "⋯", *map(str, range(25, 30))]
    gap = shown[16]
    assert gap.text == "    (8 lines of which nothing was counted)" and not any(gap.values) and not gap.findings
    page = table(run, line=0, whole=False)._repr_html_()
    assert '<th scope="row">⋯</th>' in page and 'class="marked"' not in page
    assert "(8 lines of which nothing was counted)" in said(listing(run))


def test_nothing_counted_and_nothing_written_are_said(said):
    assert "nothing was counted" in said(listing(run_of(None, SOURCE)))
    assert "no source" in said(listing(run_of(None, "\n\n")))


@pytest.fixture(scope="module")
def shared_tile():
    compiled = compile_source("\n" + get("shared_tile").kernel_path.read_text(encoding="utf-8"))
    run = run_of(None)
    run.kernel.compiled = compiled
    return run


def line_with(run, text):
    return next(number for number, line in enumerate(run.kernel.compiled.source.split("\n"), 1) if text in line)


def test_ptx_and_sass_of_a_line_are_that_line_s(shared_tile):
    load_a = line_with(shared_tile, "As[ty][tx] =")
    assert "ld.global" in ptx_of(shared_tile, load_a) and "st.shared" in ptx_of(shared_tile, load_a)
    assert "LDG" in sass_of(shared_tile, load_a) and "STS" in sass_of(shared_tile, load_a)
    math = line_with(shared_tile, "sum += a * b")
    assert ptx_of(shared_tile, math).count("fma.rn") == 32 and sass_of(shared_tile, math).count("FFMA") == 32
    barrier = line_with(shared_tile, "__syncthreads();  // both")
    assert ptx_of(shared_tile, barrier) == "bar.sync \t0;" and "BAR.SYNC" in sass_of(shared_tile, barrier)


def test_a_line_without_code_says_so(shared_tile):
    with pytest.raises(NothingToSee, match="no instruction of its own for line 3"):
        ptx_of(shared_tile, 3)
    code = code_of(shared_tile, 3)
    assert "no instruction" in code.ptx and "PTX (virtual)" in code._repr_html_()
    with pytest.raises(NothingToSee, match="There is no line 999"):
        code_of(shared_tile, 999)
