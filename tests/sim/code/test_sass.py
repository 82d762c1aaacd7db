"""Reading what nvdisasm prints."""

import re

import pytest

from helpers.sim.code import sass
from tests.sim.counting import probes


def test_every_instruction_is_read_and_carries_a_line_of_the_ptx():
    compiled = probes.compiled("calibration.cu", "tile2d", "sm_90")
    functions = sass.parse(compiled.sass)
    assert set(functions) == {"naive", "coalesced", "tile2d", "banks"}
    printed = [line for line in compiled.sass.splitlines() if re.match(r"\s*/\*[0-9a-f]{4}\*/", line)]
    assert sum(len(f.instructions) for f in functions.values()) == len(printed)
    lines = compiled.ptx.split("\n")
    for i in functions["tile2d"].instructions:
        if i.name in ("LDS", "STS", "LDG", "STG"):
            assert {"LDS": "ld.shared", "STS": "st.shared", "LDG": "ld.global", "STG": "st.global"}[i.name] in lines[i.ptx_line - 1]
        if i.name == "BRA":
            assert i.target is not None


def test_operands_are_split_outside_of_brackets():
    text = '.section\t.text.k,"ax"\n        /*0260*/              @!P0 LDG.E.128 R11, desc[UR6][R8.64+-0x10] ;\n'
    (i,) = sass.parse(text)["k"].instructions
    assert (i.guard, i.opcode, i.name, i.operands) == ("!P0", "LDG.E.128", "LDG", ("R11", "desc[UR6][R8.64+-0x10]"))
    assert sass.parse("") == {}


def read(text):
    """One instruction, as nvdisasm prints it."""
    (instruction,) = sass.parse(f'.section\t.text.k,"ax"\n        /*0000*/                   {text} ;\n')["k"].instructions
    return instruction


@pytest.mark.parametrize(
    ("text", "writes", "reads"),
    [
        ("@!P0 LDG.E.128 R4, desc[UR6][R8.64+-0x10]", "R4 R5 R6 R7", "P0 R8 R9"),
        ("STG.E.128 desc[UR6][R8.64], R4", "", "R4 R5 R6 R7 R8 R9"),
        ("LDSM.16.M88.2 R4, [R8]", "R4 R5", "R8"),
        ("IMAD.WIDE R2, R3, 0x4, R6", "R2 R3", "R3 R6 R7"),
        ("IADD3 R4, P1, R2, UR4, RZ", "R4 P1", "R2 UR4"),
        ("ISETP.GE.AND P0, PT, R2, 0x10, !P1", "P0", "R2 P1"),
        ("VOTE.ANY R5, PT, !P1", "R5", "P1"),
        ("VOTE.ANY P1, P0", "P1", "P0"),
        ("R2P PR, R3, 0x7f", "P0 P1 P2 P3 P4 P5 P6", "R3"),
        ("SHFL.BFLY PT, R3, R2, 0x10, 0x1f", "R3", "R2"),
        ("HMMA.16816.F32 R4, R8, R12, R4", "R4 R5 R6 R7", "R8 R12 R4"),
        ('BRX R2 -0x10 (*"BRANCH_TARGETS .L_1"*)', "", "R2 R3"),
    ],
)
def test_what_an_instruction_reads_and_writes(text, writes, reads):
    instruction = read(text)
    assert instruction.writes == set(writes.split()) and instruction.reads == set(reads.split())
