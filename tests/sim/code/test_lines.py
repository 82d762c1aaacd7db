"""PTX lines lead to the reader's line, through headers and past what the compiler made by itself.

Tests of: helpers.sim.code.ptx
"""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from helpers.course.steps import get
from helpers.sim.code import ptx, sass
from helpers.sim.code.lines import assembly_calls_of_ptx, calls_of_ptx, cell_lines, line_of_ptx
from helpers.sim.counting import machine_code
from helpers.toolchain.compile import compile_source
from helpers.views.listing import sass_of
from tests import ROOT
from tests.sim.bug_corpus import corpus

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


def test_what_a_function_of_the_cell_does_has_the_line_that_called_it_too():
    called = PTX.replace("inlined_at 1 8 9", "inlined_at 1 20 9").replace(
        "mov.u32 %r5, 5;",
        "mov.u32 %r5, 5;\n.loc 1 20 9, function_name $h, inlined_at 1 31 2\nmov.u32 %r6, 6;\n.loc 2 41 5, function_name $f, inlined_at 1 20 9\nmov.u32 %r7, 7;\n.loc 1 9 1\nmov.u32 %r8, 8;",
    )
    lines, calls = line_of_ptx(called), calls_of_ptx(called)
    of = {number: (lines[number], calls.get(number)) for number, text in enumerate(called.split("\n"), 1) if text.startswith("mov")}
    assert list(of.values())[-3:] == [(20, 31), (20, 31), (9, None)]
    assert not calls_of_ptx(PTX), "code of a header has the line of the cell that called it"


def test_the_parser_says_the_same():
    lines = line_of_ptx(PTX)
    body = ptx.parse(PTX).functions["k"].body
    assert len(body) == 6 and all(instruction.line == lines[instruction.ptx_line] for instruction in body)


def test_a_cell_of_another_name_is_found_by_it():
    ptx = PTX.replace("/cell.cu", "other.cu")
    assert set(line_of_ptx(ptx).values()) == {None}
    assert line_of_ptx(ptx, "/other.cu")[11] == 7


def test_what_precedes_the_first_loc_of_a_function_has_its_line():
    text = PTX + PTX[PTX.index(".visible") :].replace("k()", "l()").replace(".loc 1 7 3", ".loc 1 20 3")
    lines = line_of_ptx(text)
    second = next(number for number, row in enumerate(text.split("\n"), 1) if "l()" in row)
    assert {lines[number] for number in range(second, second + 5)} == {20} and lines[second - 1] == 8


def test_an_access_that_the_compiler_made_has_the_line_of_what_follows():
    """Two reads of different turns of an unrolled loop, merged into one, have no line; the barrier before them is not theirs."""

    def line_of(what, *rows):
        text = PTX[: PTX.index(".loc 1 7")] + "\n".join([".loc 1 7 3", "bar.sync 0;", *rows, "ret;", "}", ""])
        return line_of_ptx(text)[1 + text[: text.index(what)].count("\n")]

    read = "@%p1 ld.shared.v2.f32 {%f1, %f2}, [%r1];"
    assert line_of(read, "$L_2:", ".loc 1 0 3", "mov.u32 %r1, 1;", read, ".loc 1 9 3", "mov.u32 %r2, 2;") == 9
    assert line_of(read, ".loc 1 0 3", read, ".loc 1 9 3") == 9
    assert line_of(read, ".loc 1 0 3", read, "$L_2:", ".loc 1 9 3") == 7, "what follows is another block"
    assert line_of("mov", ".loc 1 0 3", "mov.u32 %r1, 1;", ".loc 1 9 3") == 7
    assert line_of("ld.param", ".loc 1 0 3", "ld.param.u32 %r1, [k_param_0];", ".loc 1 9 3") == 7


KERNELS = {path.stem: path.read_text for path in sorted((ROOT / "kernels").glob("*.cu"))}
# Of the other kernels, those with code that is not on their lines: of headers, and of the reader's own assembly.
CORRECT = {
    f"{case.file[:-3]}-{case.name}": case.compiled
    for case in corpus(ROOT / "tests/sim/correct")
    if "#include" in case.source or "asm" in case.source
}


@pytest.mark.parametrize("name", [*KERNELS, *CORRECT])
def test_counters_and_listing_agree_on_the_line_of_every_instruction(name):
    compiled = CORRECT[name]() if name in CORRECT else compile_source(KERNELS[name](), get(name[3:]).entry)
    instructions = sass.parse(compiled.sass)[compiled.symbol].instructions
    lines = cell_lines(compiled)
    each = Counter(lines[i.ptx_line] for i in instructions)
    assert None not in each
    once = machine_code.InstructionCounts(len(instructions), {}, (1,) * len(instructions), {}, {}, instructions=instructions)
    _, by_line = machine_code.counters(once, compiled)
    assert {line: values["smsp__inst_executed.sum"] for line, values in by_line.items()} == each
    run = SimpleNamespace(kernel=SimpleNamespace(compiled=compiled))
    assert {line: len(sass_of(run, line).split("\n")) for line in each} == each
    code = list(ptx.parsed(compiled).instructions)
    assert code and all(i.line == lines[i.ptx_line] for i in code)


def test_inline_assembly_has_the_line_of_the_innermost_call():
    inside = ".loc 1 20 9, function_name $h, inlined_at 1 31 2\nmov.u32 %r6, 6;\n// begin inline asm\nmov.u32 %r7, 7;\n// end inline asm\n"
    inside += ".loc 1 5 9, function_name $g, inlined_at 1 20 9\n// begin inline asm\nmov.u32 %r8, 8;\nmov.u32 %r9, 9;\n// end inline asm\n"
    inside += ".loc 1 9 1\n// begin inline asm\nmov.u32 %r10, 10;\n// end inline asm"
    called = PTX.replace("mov.u32 %r5, 5;", "mov.u32 %r5, 5;\n" + inside)
    calls = assembly_calls_of_ptx(called)
    of = {text.split()[1]: calls.get(number) for number, text in enumerate(called.split("\n"), 1) if text.startswith("mov")}
    assert [of[f"%r{i},"] for i in (6, 7, 8, 9, 10)] == [None, 31, 20, 20, None]
