"""The table of SASS opcodes."""

import pytest

from helpers.sim.code.sass_opcodes import opcode_row, sass_width


@pytest.mark.parametrize(
    ("opcode", "width"),
    [("LDG.E", 4), ("LDG.E.64", 8), ("LDS.128", 16), ("LDS.U8", 1), ("STS.U16", 2), ("LDGSTS.E.BYPASS.LTC128B.128", 16), ("LDG.E.LTC128B", 4),
     ("LDSM.16.M88.4", 16), ("ATOMG.E.ADD.64.STRONG.GPU", 8)],
)  # fmt: skip
def test_widths_of_opcodes(opcode, width):
    assert sass_width(opcode) == width


@pytest.mark.parametrize(("opcode", "registers"), [
    ("IMAD.WIDE.U32", 2), ("SHF.L.U64.HI", 1), ("F2I.F64.TRUNC", 1), ("F2I.S64.F64", 2), ("I2F.F64", 2), ("F2F.F32.F64", 1),
    ("F2F.F64.F32", 2), ("LDS.128", 4), ("CS2R.32", 1), ("CS2R", 2), ("LDC.64", 2), ("DFMA", 2), ("FFMA", 1),
])  # fmt: skip
def test_how_many_registers_an_instruction_writes(opcode, registers):
    """One too many would make a register unknown that is not."""
    assert opcode_row(opcode).registers(tuple(opcode.split(".")[1:])) == registers
