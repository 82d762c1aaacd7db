"""What the run of a slice computes with: 32-bit patterns and masks that broadcast over [grid z, grid y, grid x, threads]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from helpers.sim.code.sass import SassInstruction

LOW = 0xFFFFFFFF
SIGN = 0x80000000


class CannotTell(Exception):
    """The slice needs something that only a full execution knows. The message says what, for the reader, and at which instruction."""

    def __init__(self, what: str, at: SassInstruction | None = None):
        super().__init__(what if at is None else f"{what}: {at}")
        self.what, self.at = what, at

    def in_lines(self, of_ptx: Mapping[int, int | None]) -> str:
        """The message, with the reader's line where it is known. of_ptx: the line of each line of the PTX."""
        line = None if self.at is None else of_ptx.get(self.at.ptx_line or 0)
        return str(self) if line is None else f"{self.what} (line {line}): {self.at}"


ZERO = np.zeros((1, 1, 1, 1), np.int64)
TRUE = np.ones((1, 1, 1, 1), bool)
ALL_ONES = np.full((1, 1, 1, 1), LOW, np.int64)
EMPTY = object()  # a mask without lanes; None is the mask with all of them


class SomeBits(NamedTuple):
    """What is known of a register that is unknown as a whole: which bits, and they, in which lanes (None: all)."""

    certain: int
    bits: np.ndarray
    lanes: np.ndarray | None = None


def modified(value, sign):
    """Apply '-', '~' and '|' of an integer operand. -x counts as 2^32 - x, so that the sum's carry is the hardware's."""
    if value is None or not sign:
        return value
    if "|" in sign:
        value = np.abs(signed(value))
    if "-" in sign:
        return (1 << 32) - value
    return ~value & LOW if "~" in sign else value


def signed(x):
    return ((x & LOW) ^ SIGN) - SIGN


def lowest(certain: int) -> int:
    """Of known bits those below the first unknown one: the same bits of sums and products depend on nothing else."""
    return certain & ~(certain + 1)


def in_all_lanes(certain) -> int:
    """The bits that are known in all lanes."""
    return int(np.bitwise_and.reduce(certain, axis=None))


def pattern_of(value, dtype):
    """Reinterpret float values as 32-bit patterns."""
    return np.asarray(value, dtype).view(np.uint32).astype(np.int64)


def float_of(pattern):
    return pattern.astype(np.uint32).view(np.float32)


def same_mask(one, other):
    """Whether two masks are equal; None is the mask of all."""
    return one is other or (one is not None and other is not None and one.shape == other.shape and bool((one == other).all()))


def known(*values):
    return all(v is not None for v in values)
