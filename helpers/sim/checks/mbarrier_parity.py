"""Waits for a parity that no phase has. The PTX ISA knows 0 and 1 alone (`mbarrier.test_wait`, phaseParity); the hardware looks at the
last bit, as the machine does, which its machine code shows: the number is shifted left by 31 bits before it is compared."""

from __future__ import annotations

import numpy as np

from .protocols import Machine

KIND = "mbarrier-parity"
MEANING = {KIND: "a wait for a parity that no phase of an mbarrier has, or that may be over and gone before a slow thread looks"}
ADVICE = "Pass the last bit of the phase's number: `phase & 1`, or a variable that `phase ^= 1` turns over."


def note(m: Machine, line: int | None, parity: np.ndarray) -> None:
    """Threads wait at an mbarrier for `parity` ([lanes], or one for all)."""
    bad = parity > 1 if m.mask is None else (parity > 1) & m.mask
    if bad.any():
        block, thread, value, count = m.example(bad, parity)
        said = f"A thread waits for the phase of parity {value}, and a phase has parity 0 or 1: what comes of another number is undefined."
        m.findings.add(KIND, line, said, block=block, thread=thread, advice=ADVICE, count=count)
