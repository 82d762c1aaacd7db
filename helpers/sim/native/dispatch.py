"""Which function writes the code of an instruction: one per family, registered by the first part of its opcode.

That is all a name decides here: what an instruction reads, writes and does is in its `Op`.
"""

from __future__ import annotations

from collections.abc import Callable

from helpers.sim.code.ptx import Instruction

HANDLERS: dict[str, Callable] = {}  # functions of (the lowering, the instruction)
FLOAT_ARITHMETIC: dict[str, Callable[[Instruction], bool]] = {}  # does the code give NaNs as the CPU makes them?
COPIES: set[str] = set()  # gives what it reads, NaN or not


def operation(*names, copies: bool = False, floats: Callable[[Instruction], bool] | None = None):
    """Register a handler for instructions of these names.

    copies: it gives its source unchanged. floats: does an instruction of it give float32 NaNs as this processor makes them?
    """

    def register(function):
        for name in names:
            HANDLERS[name] = function
            if floats is not None:
                FLOAT_ARITHMETIC[name] = floats
            if copies:
                COPIES.add(name)
        return function

    return register
