"""Where the result of a product differs from the specification, and what a kernel changed that is not its own, as sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from helpers.errors import quote

if TYPE_CHECKING:
    from .gemm import Problem

NAN_MEANS = " NaN means "
_LONG_SUM = 64  # terms; in shorter sums the worst case of `Problem.expected` tells float32 from fewer bits


def compare(problem: Problem, before: Sequence[np.ndarray], after: Sequence[np.ndarray]) -> str:
    """'' if `after` is what the specification says of `before`; otherwise where they first differ, and how."""
    if text := compare_others(problem, before, after):
        return text
    left, right = problem.factors(before[0], before[1])
    value, bound = problem.expected_of(left, right, before[2])
    got = after[2][:, : problem.n].astype(np.float64)
    if text := first_difference(wrong_ones(got, value, bound) & ~problem.as_good(got, value), got, value):
        if "expected nan" in text:
            others = ["in the bias"] * problem.fused + ["in what C was before, since beta is not 0"] * bool(problem.beta)
            text += _NAN_STAYS + (_IN_MAXIMUM if problem.fused else ", also where it is multiplied by 0.")
            text += f" So does a NaN {' or '.join(others)}." if others else ""
        if "yours nan" in text:
            old = "" if problem.beta else ", or from the old C, which beta = 0 must not read"
            text += f"{NAN_MEANS}it was never written, is infinity less infinity or times 0, "
            text += f"or was computed from an element outside the matrices{old}."
        return text
    return inexact(problem, got, value, (left, right, before[2]))


_NAN_STAYS = " A NaN in a row of A or a column of B makes NaN of each result that it takes part in"
_IN_MAXIMUM = ", in NumPy's maximum(x, 0) as well. fmaxf(x, 0) and x > 0 ? x : 0 make 0 of it; x < 0 ? 0 : x leaves it."


def wrong_ones(got: np.ndarray, value: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """Which elements are further from their value than the bound, or finite where that is not; NaN is right where NaN is expected."""
    with np.errstate(invalid="ignore"):  # infinity less infinity
        near = np.abs(got - value) <= bound
    return ~(near & np.isfinite(value) | (got == value) | np.isnan(got) & np.isnan(value))


def inexact(problem: Problem, got: np.ndarray, value: np.ndarray, meant: Sequence[np.ndarray]) -> str:
    """'' or a sentence about errors that are too large together, in long sums that are right one by one, and all finite. meant: what A and
    B mean (`Problem.factors`), and C before."""
    left, right, before = meant
    several = ((part, got[rows], value[rows], (left[rows], right, before[rows])) for rows, part in problem.alike())
    return next(filter(None, (_inexact(*one) for one in several)), "")


def _inexact(problem: Problem, got: np.ndarray, value: np.ndarray, meant: Sequence[np.ndarray]) -> str:
    """The same of rows that are alike."""
    if problem.k <= _LONG_SUM or not got.size or not np.isfinite(value).all():
        return ""
    left, right, before = meant
    error, allowed = float(np.sqrt(np.mean((got - value) ** 2))), problem.expected_error(left, right, before, value)
    if error <= allowed:
        return ""
    if text := problem.inexact(got, value):
        return f"{text}. The errors together are {error:.2g} in the root mean square, where {allowed:.2g} is allowed."
    return (
        f"{_NEARLY}, and the errors together are too large: {error:.2g} in the root mean square, where sums in FP32 stay below "
        f"{allowed:.2g}."
    )


_NEARLY = "every element is nearly right"


def nearly(message: str) -> bool:
    """Is a case's message about errors that are too large together?"""
    return _NEARLY in message


def few_bits(source: str, ptx: str) -> str:
    """Where to look for what makes the long sums of a kernel inexact, as sentences."""
    if _NARROW.search(ptx):
        return "Some operand or sum has fewer bits than it should: look for half, bfloat16 or tf32."
    text = (
        "No type of the kernel has fewer bits than FP32, so some of the products may be left out, or be of other elements: look at how "
        "k is counted, and at what is done where the loop ends."
    )
    return f"{text} {said}" if (said := of_narrow_counter(source)) else text


def of_narrow_counter(source: str) -> str:
    """What there is to say of the first variable that may count steps and has 16 bits, or 8; "" without one."""
    if (found := _OF_16_BITS.search(source) or _UP_TO_K.search(source)) is None:
        return ""
    line, bits = source.count("\n", 0, found.start()) + 1, 8 if re.search(_8_BITS, found[0]) else 16
    most = f"{(1 << bits - 1) - 1:,}, or to {(1 << bits) - 1:,} without a sign"
    return f"Line {line}, “{quote(source, line)}”, declares {bits} bits, which count to {most}: use int."


def line_of_16_bits(source: str) -> int | None:
    """The first line that declares a variable which may count steps, and which 16 bits hold; None without one."""
    found = _OF_16_BITS.search(source)
    return source.count("\n", 0, found.start()) + 1 if found else None


def counts_to_k(source: str) -> bool:
    """Has a loop over K a counter of 16 bits or 8, which a long K is beyond?"""
    return _UP_TO_K.search(source) is not None


_NARROW = re.compile(r"\.(?:f16|bf16|tf32|e4m3|e5m2)")  # types of PTX
_16_BITS, _8_BITS = r"\b(?:(?:un)?signed\s+)?(?:short(?:\s+int)?|ushort|u?int16_t)\b", r"\b(?:(?:un)?signed\s+)?(?:char|uchar|u?int8_t)\b"
_OF_16_BITS = re.compile(rf"{_16_BITS}\s+\w+\s*=")
_UP_TO_K = re.compile(rf"\bfor\s*\(\s*(?:{_16_BITS}|{_8_BITS})\s+\w+\s*=[^;]*;[^;]*\bK\b")


def compare_others(problem: Problem, before: Sequence[np.ndarray], after: Sequence[np.ndarray]) -> str:
    """'' if the kernel left alone what is not its result: A, B and the padding of C."""
    if (found := changed(problem, before, after)) is None:
        return ""
    which, row, column = found
    values = f"it was {float(before[which][row, column]):.7g} and is {float(after[which][row, column]):.7g}."
    if which < 2:
        row, column = (column, row) if problem.turned[which] else (row, column)
        return f"{'AB'[which]} is an input, and {_CHANGED} {'AB'[which]}[{row}, {column}]: {values}"
    return f"element [{row}, {column}] lies in the padding behind row {row} of C (ldc = {problem.ldc}), and {_CHANGED} it: {values}"


_CHANGED = "the kernel changed"


def changed(problem: Problem, before: Sequence[np.ndarray], after: Sequence[np.ndarray]) -> tuple[int, int, int] | None:
    """The first element that is not the kernel's to change and was changed: which array (0 for A), row and column of what is stored."""
    for which, first in enumerate((0, 0, problem.n)):
        old, new = (np.ascontiguousarray(arrays[which][:, first:]) for arrays in (before, after))
        different = old.view(np.uint8) != new.view(np.uint8)
        if different.any():
            row, byte = map(int, np.argwhere(different)[0])
            return which, row, first + byte // old.itemsize
    return None


_FIRST = "the first is C"  # begins the place of the first difference in a case's message


def stored(message: str) -> bool:
    """Is a case's message about an element that has a wrong value?"""
    return _FIRST in message or _CHANGED in message


def first_difference(wrong: np.ndarray, got: np.ndarray, value: np.ndarray, row0: int = 0, column0: int = 0) -> str:
    """'' or a sentence about the elements marked as wrong. row0, column0: where the arrays begin in C."""
    if not wrong.any():
        return ""
    row, column = map(int, np.argwhere(wrong)[0])
    where = "" if not (row0 or column0) else " in this tile"
    return (
        f"{int(wrong.sum())} of {wrong.size} elements of C{where} are wrong; {_FIRST}[{row0 + row}, {column0 + column}]: "
        f"yours {got[row, column]:.7g}, expected {value[row, column]:.7g}."
    )
