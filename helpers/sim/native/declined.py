"""Why the native engine leaves a launch to the NumPy machine."""

from __future__ import annotations

from helpers.sim.code.program import Op
from helpers.sim.code.ptx import Register
from helpers.sim.isa import SPECIAL_REGISTERS


class Declined(Exception):
    """The NumPy machine has to run this launch. The message says why, and names the line of `op`, if it is because of one."""

    def __init__(self, why: str, op: Op | None = None):
        super().__init__(why)
        self.why, self.op = why, op

    def __str__(self) -> str:
        return self.why if self.op is None or self.op.line is None else f"{self.why} in line {self.op.line}"


class Suspicious(Declined):
    """Native code ran, and met what the NumPy machine must explain: as a rule there is something wrong with the kernel."""


class Unsupported(Declined):
    """No code can be made for this kernel, whatever the launch."""


def named(op: Op) -> str:
    """What there is no code for: an instruction, or the special register that it reads."""
    special = [operand.name for operand in op.instruction.operands if isinstance(operand, Register) and operand.name in SPECIAL_REGISTERS]
    return f"the register {special[0]}" if special else f"`{op.opcode}`"
