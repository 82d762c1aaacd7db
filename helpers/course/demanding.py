"""Data that ask more of a kernel than numbers between -1 and 1: rows and columns of other magnitudes, and long sums of positive
numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from helpers.errors import CourseError
from helpers.run import gemm
from helpers.run.gemm import CheckReport, Problem
from helpers.run.kernel import Kernel
from helpers.run.problem import ScaledProblem

_SHAPES = ((40, 24, 64), (17, 23, 19), (33, 15, 150))  # M, N, K


def scaled(kernel: Kernel, scales: int, seed: int) -> list[ScaledProblem]:
    """Small products of the kernel's types on such data, other ones for each seed. Their types are as wide as float32."""
    dtype, out_dtype = gemm.types(kernel)
    return [
        ScaledProblem(m, n, k, dtype=dtype, out_dtype=out_dtype, seed=seed + place, scales=scales)
        for place, (m, n, k) in enumerate(_SHAPES)
    ]  # fmt: skip


def of_any_magnitude(kernel: Kernel, seed: int) -> list[Problem]:
    """What a kernel that splits its elements into pieces of fewer bits has to bear besides, as any FP32 product does: rows and columns of
    other magnitudes, and such numbers beside each other in one row."""
    one, _, long = scaled(kernel, 20, seed)
    wide = [replace(long, seed=long.seed + 10, scales=0, powers=powers) for powers in ((-25, 25), (-112, 58))]
    return [replace(long, scales=30), one, *wide]


def joined(report: CheckReport, more: CheckReport) -> CheckReport:
    """One report of two checks; the shapes drawn are the first one's."""
    drawn = tuple(replace(case, drawn=True) for case in more.cases)
    findings = report.findings + more.findings
    return replace(report, cases=report.cases + drawn, findings=findings, untried=report.untried + more.untried)


def judge_accuracy(kernel: Kernel, k: int, allowed: float, power: int, seed: int) -> tuple[str, bool]:
    """(sentence, good): relative errors of one tile of sums of k products of positive numbers, against float64, in float32's roundoffs.

    allowed: how many, in the root mean square. power: the numbers are between 0 and 2^power.
    """
    problem = gemm.problem_for(kernel, *gemm.geometry(kernel).tile, k, seed=seed)
    a, b, c = problem.arrays()
    arrays = np.ldexp(np.abs(a), power), np.ldexp(np.abs(b), power), c
    numbers = "positive numbers" + (f" below 2^{power}" if power else "")
    value, _ = problem.expected(*arrays)
    try:
        gemm.run(kernel, problem, on="cpu", arrays=arrays, counters=False, findings=False)
    except CourseError as error:
        return f"{problem} of {numbers}: {error.message}", False
    errors = (arrays[2][:, : problem.n].astype(np.float64) - value) / value
    yours = float(np.sqrt(np.mean(errors**2))) / problem.result.roundoff
    side = ", all on one side" if np.all(errors < 0) or np.all(errors > 0) else ""
    good = yours <= allowed
    return f"errors of {problem}, {numbers}: yours {yours:.3g} times 2^-24 (root mean square{side}), expected <= {allowed:g}.", good


def judge_nan(kernel: Kernel, seed: int) -> tuple[str, bool]:
    """(sentence, good): is a row of C all NaN where there is NaN in that row of A, and only there?"""
    problem = gemm.problem_for(kernel, *_SHAPES[0], seed=seed)
    a, b, c = problem.arrays()
    row, column = seed % problem.m, seed % problem.k
    a[row, column] = np.nan
    try:
        gemm.run(kernel, problem, on="cpu", arrays=(a, b, c), counters=False, findings=False)
    except CourseError as error:
        return f"{problem} with NaN at A[{row}, {column}]: {error.message}", False
    nans = np.isnan(c[:, : problem.n].astype(np.float32))
    here = int(nans[row].sum())
    return (
        f"{problem} with NaN at A[{row}, {column}]: {here} of {problem.n} results of row {row} are NaN, expected {problem.n}, and "
        f"{int(nans.sum()) - here} others, expected 0.",
        bool(nans[row].all()) and int(nans.sum()) == here,
    )
