"""What moves 128 bits, with each 128-bit register as two of 64: NumPy has no numbers of that width."""

from __future__ import annotations

from dataclasses import replace

from helpers.sim.code.ptx import Instruction, Register, Vector


def in_halves(instruction: Instruction, register_types: dict[str, str]) -> list[Instruction]:
    """The instructions that stand for one, which is itself if it has no 128-bit registers. The halves join the register types."""
    if not instruction.opcode.endswith(".b128"):
        return [instruction]

    def halves(operand):
        if not isinstance(operand, Register) or register_types.get(operand.name) != "b128":
            return operand
        names = [f"{operand.name}:{half}" for half in ("low", "high")]
        register_types.update(dict.fromkeys(names, "b64"))
        return Vector(tuple(Register(name) for name in names))

    operands = tuple(halves(operand) for operand in instruction.operands)
    if instruction.name == "mov":
        if not all(isinstance(operand, Vector) and len(operand.items) == 2 for operand in operands):
            return [instruction]  # its handler says what is wrong
        pairs = zip(*(operand.items for operand in operands), strict=True)
        return [replace(instruction, opcode="mov.b64", operands=pair) for pair in pairs]
    if instruction.name in ("ld", "ldu", "st"):
        return [replace(instruction, opcode=f"{instruction.opcode.removesuffix('.b128')}.v2.b64", operands=operands)]
    return [replace(instruction, operands=operands)]
