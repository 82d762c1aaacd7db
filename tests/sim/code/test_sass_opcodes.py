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
    ("HMMA.16816.F32", 4), ("HMMA.16816.F32.BF16", 4), ("HMMA.16816.F16", 2), ("HMMA.1688.F16", 2), ("HMMA.1684.F32.TF32", 4), ("IMMA.16832.S8.S8", 4),
    ("IMMA.8816.S8.S8", 2), ("BMMA.168256.XOR.POPC", 4), ("DMMA.8x8x4", 4), ("DMMA.16x8x4", 8), ("FRND.F64.CEIL", 2), ("FRND.CEIL", 1),
])  # fmt: skip
def test_how_many_registers_an_instruction_writes(opcode, registers):
    """One too many would make a register unknown that is not."""
    assert opcode_row(opcode).registers(tuple(opcode.split(".")[1:])) == registers


@pytest.mark.parametrize(("opcode", "registers"), [
    ("I2F.F64", 1), ("I2F.F64.U64", 2), ("F2I.F64.TRUNC", 2), ("F2I.S64.F64", 2), ("F2I.TRUNC.NTZ", 1), ("F2F.F32.F64", 2), ("F2F.F64.F32", 1),
    ("FRND.F64.CEIL", 2), ("DADD", 2), ("FADD", 1),
])  # fmt: skip
def test_how_many_registers_a_source_has(opcode, registers):
    """One too few would leave out who computes the other half."""
    assert opcode_row(opcode).sources(tuple(opcode.split(".")[1:])) == registers
