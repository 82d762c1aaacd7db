"""Loads and stores of wmma whose rows do not lie as they must: what these do is undefined.

The CUDA programming guide asks for a pointer that is a multiple of 32 bytes and an ldm of a multiple of 16, the PTX ISA for
multiples of the bytes that a thread's registers hold of the matrix. Held against an access is only what both forbid, and
never that a tile begins where its neighbour's rows end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .misaligned import KIND
from .protocols import Machine


class Rule(NamedTuple):
    """What the first address (pointer) and the distance of rows (ldm) are multiples of, powers of two in bytes. bits: of an element."""

    pointer: int
    ldm: int
    bits: int

    @property
    def elements(self) -> int:
        """What ldm is a multiple of in elements."""
        return 8 * self.ldm // self.bits


def rule_of(registers: int, line: int, bits: int) -> Rule:
    """The rule for a matrix that is `registers` bytes of each thread, and has `line` elements of `bits` beside each other in memory."""
    most = min(32, registers, max(1, line * bits // 8))
    pointer = 1 << most.bit_length() - 1
    return Rule(pointer, min(16, pointer), bits)


def note(m: Machine, line: int | None, verb: str, rule: Rule, base: np.ndarray, ldm: np.ndarray, width: int) -> None:
    """The active threads load or store (verb) a matrix at `base`, `width` bytes at a time. ldm: elements."""
    if not ((base & rule.pointer - 1).any() or (ldm & rule.elements - 1).any()):
        return
    kinds = (
        (
            ldm, ldm % rule.elements != 0,
            f"A wmma {verb} with ldm = {{}}, which is not a multiple of {rule.elements}.",
            f"The ldm of {verb}_matrix_sync must be a multiple of {rule.ldm} bytes, here of {rule.elements} elements, or what it does is "
            "undefined: make the rows longer where they are stored.",
        ),
        (
            base, base % rule.pointer != 0,
            f"A wmma {verb} at address {{:#x}}, which is not a multiple of {rule.pointer}.",
            f"The pointer of {verb}_matrix_sync must be a multiple of 256 bits, or what it does is undefined: "
            "begin tiles at multiples of that, and declare a shared array with alignas(32).",
        ),
    )  # fmt: skip
    for values, bad, message, advice in kinds:
        active = m.project(m.mask, bad.shape)
        bad = bad if active is None else bad & active
        if not bad.any():
            continue
        block, thread, value, count = m.example(bad, values)
        finding = m.findings.add(
            KIND, line, message.format(value), block=block, thread=thread, count=count, advice=advice, array="ldm" if values is ldm else ""
        )
        if (value * rule.bits // 8 if values is ldm else value) % width:
            m.findings.stop(f"{m.where(line)}: {finding.message} The hardware stops here. {advice}", line)
