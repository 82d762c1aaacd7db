"""The instruction set: one decorated handler per PTX instruction, in files by family.

A handler is called once per instruction when a kernel is loaded. It says, in this order, what the operands are, what
the instruction means, and where the result goes:

    @instruction("mad")
    @example("mad.lo.s32", reference=lambda a, b, c: a * b + c)
    def mad(op):
        \"\"\"d = a * b + c.\"\"\"
        t = op.type
        return op.lanewise(lambda a, b, c: a * b + c, t, (t, t, t))

The meaning is an ordinary function of NumPy arrays with one element per thread (or fewer: arrays broadcast, so a value
that is the same for all threads has one element). The tests collect every `@example`, run it on edge-case values and
compare it with its reference, which is written in exact Python numbers.
"""

from __future__ import annotations

import importlib
import pkgutil

from .base import (
    DTYPES,
    EXAMPLES,
    FINISHERS,
    REGISTRY,
    SPECIAL_REGISTERS,
    Binding,
    Example,
    Jump,
    bind,
    end_of,
    example,
    instruction,
    jump_to,
)
from .halves import in_halves

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = [
    "DTYPES", "EXAMPLES", "FINISHERS", "REGISTRY", "SPECIAL_REGISTERS", "Binding", "Example", "Jump", "bind", "end_of", "example",
    "in_halves", "instruction", "jump_to",
]  # fmt: skip
