"""PTX lines lead to the reader's line, through headers and past what the compiler made by itself."""

from __future__ import annotations

from helpers.sim.code import ptx
from helpers.sim.code.lines import line_of_ptx

PTX = """.version 8.0
.target sm_90
.address_size 64
.file 1 "/cell.cu"
.file 2 "/usr/include/outer.h"
.file 3 "/usr/include/inner.h"
.visible .entry k()
{
.reg .b32 %r<9>;
.loc 1 7 3
mov.u32 %r1, 1;
.loc 1 0 3
mov.u32 %r2, 2;
.loc 2 40 5, function_name $f, inlined_at 1 8 9
mov.u32 %r3, 3;
.loc 3 50 1, function_name $g, inlined_at 2 40 5
mov.u32 %r4, 4;
.loc 2 90 1
mov.u32 %r5, 5;
ret;
}
"""


def test_places_lead_to_the_cell():
    lines = line_of_ptx(PTX)
    of = {number: lines[number] for number, text in enumerate(PTX.split("\n"), 1) if text.startswith("mov")}
    # Compiler-made code and code of a header that nobody called from the cell continue the line before.
    assert list(of.values()) == [7, 7, 8, 8, 8]
    assert lines[1] is None


def test_the_parser_says_the_same():
    lines = line_of_ptx(PTX)
    body = ptx.parse(PTX).functions["k"].body
    assert len(body) == 6 and all(instruction.line == lines[instruction.ptx_line] for instruction in body)


def test_a_cell_of_another_name_is_found_by_it():
    ptx = PTX.replace("/cell.cu", "other.cu")
    assert set(line_of_ptx(ptx).values()) == {None}
    assert line_of_ptx(ptx, "/other.cu")[11] == 7
