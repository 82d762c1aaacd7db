"""Data that ask more of a kernel than numbers between -1 and 1: rows and columns of other magnitudes, and numbers within them; long sums
of positive numbers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from helpers.element_types import element_type
from helpers.errors import CourseError
from helpers.run import gemm
from helpers.run.check_shapes import DEEP
from helpers.run.gemm import CheckReport, Problem
from helpers.run.kernel import Kernel
from helpers.run.problem import NonFiniteProblem, PositiveProblem, ScaledProblem, SpreadProblem, UnevenProblem

_SHAPES = ((40, 24, 64), (17, 23, 19), (33, 15, 150))  # M, N, K
_UNEVEN = (34, 34, 150)  # for each remainder by 32 a row and a column, and two more
_LARGER = 17  # power of two of numbers that FP16 does not reach
_SPREADS = 33, 37  # powers of two: at 34 two pieces have errors of five times FP32's, at 37 of 36 times
_LONG, _TIMES = 1024, 8  # K from which on sums are asked that are large from the beginning, as so many times larger numbers make them
_TINY = (-132, 112)  # powers of two: of numbers down to the last bit that FP32 has, and of those that it takes to see them


def scaled(kernel: Kernel, scales: int, seed: int) -> list[Problem]:
    """Small products of the kernel's types on such data, other ones for each seed; and two with a single large number in each row of A, or
    in each column of B. Their types are as wide as float32."""
    one = functools.partial(ScaledProblem, **_types(kernel), scales=scales)
    uneven = functools.partial(UnevenProblem, *_UNEVEN, **_types(kernel), seed=seed + len(_SHAPES))
    return [
        *(one(m=m, n=n, k=k, seed=seed + place) for place, (m, n, k) in enumerate(_SHAPES)),
        uneven(larger=(_LARGER, 0)),
        uneven(larger=(0, _LARGER)),
    ]


def besides(kernel: Kernel, seed: int) -> list[Problem]:
    """What `check()` asks of this kernel besides what every kernel is asked."""
    return [*(of_any_magnitude(kernel, seed) if "pieces" in kernel.compiled.constants else []), *of_positive_numbers(kernel, seed)]


def of_any_magnitude(kernel: Kernel, seed: int) -> list[Problem]:
    """What a kernel that splits its elements into pieces of fewer bits has to bear besides, as any FP32 product does: rows and columns of
    other magnitudes, all of them below what is normal against such as nearly end FP32 among these; numbers of other magnitudes beside each
    other in one row, some or a single one; a whole tile of one product each, whose error is one rounding; NaN and infinity; and
    numbers of a row as far apart as two FP16 pieces bear, and a little further, with errors together as in FP32."""
    (rows, columns), types = gemm.geometry(kernel).tile, _types(kernel)
    long = functools.partial(ScaledProblem, *_SHAPES[2], **types)
    return [
        long(seed=seed + 2, scales=30),
        ScaledProblem(rows, columns, 1, **types, seed=seed, scales=20),
        long(seed=seed + 12, powers=(-25, 25)),
        long(seed=seed + 12, powers=(-112, 58), alpha=-1.75, beta=0.625, pad_a=3, pad_b=1, pad_c=2),
        long(seed=seed + 2, scales=8, apart=_TINY),
        long(seed=seed + 3, scales=8, apart=_TINY[::-1]),
        UnevenProblem(*_UNEVEN, **types, seed=seed + 3, larger=(10, 10)),
        NonFiniteProblem(*_SHAPES[2], **types, seed=seed + 22),
        *(SpreadProblem(*_SHAPES[2], **types, seed=seed + 31, spread=spread) for spread in _SPREADS),
    ]


def loses_in_long_sums(kernel: Kernel) -> bool:
    """Do tensor cores make its sums, and cut off more of them than its elements and results have been rounded by? So it is of 8-bit floats,
    whose sums keep 14 bits, and of FP32 products from pieces of fewer bits; not of 16-bit and TF32 elements."""
    dtype, _ = gemm.types(kernel)
    return bool(kernel.compiled.matrix_types) and (dtype == "float32" or element_type(dtype).bytes == 1)


def of_positive_numbers(kernel: Kernel, seed: int) -> list[Problem]:
    """Long sums of positive numbers for a kernel that `loses_in_long_sums`; none for others."""
    if not loses_in_long_sums(kernel):
        return []
    random = np.random.default_rng(seed + 41)
    m, n = (int(random.integers(2, extent + 1)) for extent in gemm.geometry(kernel).tile)
    k = int(random.integers(*DEEP))
    return [PositiveProblem(m, n, k, **_types(kernel), seed=seed + 41, larger=k // 16)]


def _types(kernel: Kernel) -> dict[str, Any]:
    dtype, out_dtype = gemm.types(kernel)
    return {"dtype": dtype, "out_dtype": out_dtype}


def joined(report: CheckReport, more: CheckReport) -> CheckReport:
    """One report of two checks; the shapes drawn are the first one's."""
    drawn = tuple(replace(case, drawn=True) for case in more.cases)
    findings = report.findings + more.findings
    return replace(report, cases=report.cases + drawn, findings=findings, untried=report.untried + more.untried)


def judge_accuracy(kernel: Kernel, k: int, allowed: float, power: int, seed: int) -> tuple[tuple[str, bool], ...]:
    """(sentence, good): relative errors of one tile of sums of k products of positive numbers, against float64, in float32's roundoffs.

    allowed: how many, in the root mean square. power: the numbers are between 0 and 2^power. Where k is long a second sentence is of
    sums that are large from the beginning: these lose more, so that no factor makes up for what both have lost.
    """
    said = [_judged_accuracy(kernel, k, allowed, power, seed)]
    if k >= _LONG:
        said.append(_judged_accuracy(kernel, k, allowed, power, seed, k // 8))
    return tuple(said)


def _judged_accuracy(kernel: Kernel, k: int, allowed: float, power: int, seed: int, larger: int = 0) -> tuple[str, bool]:
    """One sentence of `judge_accuracy`. larger: of A's columns the first so many are `_TIMES` as large."""
    problem = gemm.problem_for(kernel, *gemm.geometry(kernel).tile, k, seed=seed)
    a, b, c = problem.arrays()
    arrays = np.ldexp(np.abs(a), power), np.ldexp(np.abs(b), power), c
    arrays[0][:, :larger] *= _TIMES
    numbers = "positive numbers" + (f" below 2^{power}" if power else "")
    numbers += f", the first {larger} of each row of A {_TIMES} times as large" if larger else ""
    value, _ = problem.expected(*arrays)
    if failed := _run(kernel, problem, arrays, f"{problem} of {numbers}"):
        return failed
    errors = (arrays[2][:, : problem.n].astype(np.float64) - value) / value
    yours = float(np.sqrt(np.mean(errors**2))) / problem.result.roundoff
    side = ", all on one side" if np.all(errors < 0) or np.all(errors > 0) else ""
    good = yours <= allowed
    return f"errors of {problem}, {numbers}: yours {yours:.3g} times 2^-24 (root mean square{side}), expected at most {allowed:g}.", good


def judge_nan(kernel: Kernel, seed: int) -> tuple[str, bool]:
    """(sentence, good): is a row of C all NaN where there is NaN in that row of A, and only there?"""
    problem = gemm.problem_for(kernel, *_SHAPES[0], seed=seed)
    a, b, c = problem.arrays()
    row, column = seed % problem.m, seed % problem.k
    a[row, column] = np.nan
    if failed := _run(kernel, problem, (a, b, c), f"{problem} with NaN at A[{row}, {column}]"):
        return failed
    nans = np.isnan(c[:, : problem.n].astype(np.float32))
    here = int(nans[row].sum())
    return (
        f"{problem} with NaN at A[{row}, {column}]: {here} of {problem.n} results of row {row} are NaN, expected {problem.n}, and "
        f"{int(nans.sum()) - here} others, expected 0.",
        bool(nans[row].all()) and int(nans.sum()) == here,
    )


def judge_infinity(kernel: Kernel, seed: int) -> tuple[str, bool]:
    """(sentence, good): is C infinite in the row and the column that an infinity in the last k of A and of B makes so, and only there? K is
    odd, so that a tile ends behind it: who repeats the last k there multiplies infinity by 0. (`NonFiniteProblem` asks nobody for that.)"""
    problem = gemm.problem_for(kernel, *_SHAPES[1], seed=seed)
    a, b, c = problem.arrays()
    row, column, last = seed % problem.m, seed % problem.n, problem.k - 1
    a[row, last] = b[last, column] = np.inf
    with np.errstate(invalid="ignore"):
        value, _ = problem.expected(a, b, c)
    where = f"{problem} with infinity at A[{row}, {last}] and B[{last}, {column}]"
    if failed := _run(kernel, problem, (a, b, c), where):
        return failed
    got = c[:, : problem.n].astype(np.float64)
    infinite = np.isinf(value)
    wrong, others = int((got[infinite] != value[infinite]).sum()), int((~np.isfinite(got[~infinite])).sum())
    return (
        f"{where}: {wrong} of {int(infinite.sum())} results of row {row} and column {column} are not the infinity that they should be, "
        f"expected 0, and {others} others are infinite or NaN, expected 0.",
        not (wrong or others),
    )


def _run(kernel: Kernel, problem: Problem, arrays: Sequence[np.ndarray], said: str) -> tuple[str, bool] | None:
    """Multiply these arrays. None where that went well, else the verdict. said: which product it is, for people."""
    try:
        gemm.run(kernel, problem, on="cpu", arrays=arrays, counters=False, findings=False)
    except CourseError as error:
        return f"{said}: {error.message}", False
    return None
