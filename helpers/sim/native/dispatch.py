"""Which function writes the code of an instruction: one per family, registered by the first part of its opcode.

That is all a name decides here: what an instruction reads, writes and does is in its `Op`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from helpers.sim.code.ptx import Instruction


class Handler(NamedTuple):
    """How one family is compiled. write: function of (the lowering, the instruction). cpu_nans: does the code of an instruction
    give NaNs as this processor makes them? fragments: several registers of an operand are a matrix's, and best kept in a row."""

    write: Callable
    cpu_nans: Callable[[Instruction], bool]
    fragments: bool


HANDLERS: dict[str, Handler] = {}


def operation(*names: str, cpu_nans: Callable[[Instruction], bool] = lambda instruction: False, fragments: bool = False):
    """Register the function that writes the code of instructions of these names. For the rest see `Handler`."""

    def register(function):
        HANDLERS.update(dict.fromkeys(names, Handler(function, cpu_nans, fragments)))
        return function

    return register
