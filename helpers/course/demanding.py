"""Data that ask more of a kernel than numbers between -1 and 1 where an allocator puts them: rows and columns of other magnitudes, long
sums of positive numbers, and matrices that begin anywhere."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from helpers.errors import CourseError
from helpers.run import gemm
from helpers.run.gemm import Case, CheckReport, Problem
from helpers.run.kernel import Kernel
from helpers.sim.code.sites import AccessKind
from helpers.sim.load import load

_VECTOR = 16  # bytes of the widest access
_BY_ADDRESS = (AccessKind.LOAD, AccessKind.STORE, AccessKind.COPY)  # a thread's own accesses, which need alignment
_SHAPES = ((40, 24, 64), (17, 23, 19), (33, 15, 150))  # M, N, K


@dataclass(frozen=True)
class ScaledProblem(Problem):
    """A product whose rows of A and columns of B are multiplied by powers of two, drawn at random: 2^-scales to 2^scales."""

    scales: int = 0
    powers: tuple[int, int] = (0, 0)  # column k of A times 2^e, row k of B times 2^-e, each e from one to the other: C is what it was

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        a, b, c = super().arrays()
        random = np.random.default_rng(self.seed + 3)
        rows, columns = (random.integers(-self.scales, self.scales + 1, count) for count in (len(a), self.n))
        a *= np.ldexp(np.float32(1), rows)[:, None]
        b[:, : self.n] *= np.ldexp(np.float32(1), columns)
        if self.powers != (0, 0):
            powers = random.integers(self.powers[0], self.powers[1] + 1, self.k)
            a[:, : self.k] *= np.ldexp(np.float32(1), powers)
            b *= np.ldexp(np.float32(1), -powers)[:, None]
        return a, b, c

    def __str__(self) -> str:
        text = f"{super().__str__()}, rows of A and columns of B times 2^-{self.scales} to 2^{self.scales}"
        low, high = self.powers
        return text + (f", columns of A times 2^{low} to 2^{high} and rows of B divided by that" if low != high else "")


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


@dataclass(frozen=True)
class ShiftedProblem(Problem):
    """A product of parts of larger arrays: A, B and C begin one element behind a multiple of 16 bytes."""

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        a, b, c = map(_shifted, super().arrays())
        return a, b, c

    def __str__(self) -> str:
        return f"{super().__str__()}, matrices that begin one element behind a multiple of {_VECTOR} bytes"


def _shifted(array: np.ndarray) -> np.ndarray:
    """The same array, one element behind a multiple of 16 bytes."""
    larger = np.empty(array.size + 2 * _VECTOR // array.itemsize, array.dtype)
    first = -larger.ctypes.data % _VECTOR // array.itemsize + 1
    shifted = larger[first : first + array.size].reshape(array.shape)
    shifted[...] = array
    return shifted


def takes_several(kernel: Kernel) -> bool:
    """Does a thread of the kernel take more than one element of a matrix in one access?"""
    problem = gemm.problem_for(kernel, 1, 1, 1)
    program = load(kernel.compiled.ptx, kernel.compiled.symbol, kernel.compiled.filename)
    widths = [site.width for site in program.sites if site.space in ("global", "generic") and site.op in _BY_ADDRESS]
    return max(widths, default=0) > min(problem.inputs.bytes, problem.result.bytes)


def of_any_alignment(kernel: Kernel, seed: int) -> tuple[Problem, ShiftedProblem]:
    """Two products whose rows are whole vectors of 16 bytes and begin at no multiple of 16: by their leading dimension, and by where the
    matrix begins."""
    problem = gemm.problem_for(kernel, 1, 1, 1)
    vector = _VECTOR // problem.inputs.bytes
    whole = gemm.fitted(kernel, replace(problem, m=20, n=7 * vector, k=5 * vector, seed=seed))
    shifted = ShiftedProblem(**{item.name: getattr(whole, item.name) for item in fields(Problem)})
    return replace(whole, pad_a=1, pad_b=1, pad_c=1), shifted


def check_alignment(kernel: Kernel, seed: int, **options: Any) -> CheckReport:
    """What a kernel that takes several elements of a matrix at once has to bear besides: `of_any_alignment`. Options are those of
    `gemm.check`; where the matrices themselves are shifted, the SIMT machine alone is asked."""
    leading, shifted = of_any_alignment(kernel, seed)
    return joined(gemm.check(kernel, [leading], **options), check_shifted(kernel, shifted))


def check_shifted(kernel: Kernel, problem: ShiftedProblem) -> CheckReport:
    """The report of this one problem, computed in the SIMT machine on the very arrays that it makes: their copies begin elsewhere."""
    before, arrays = problem.arrays(), problem.arrays()
    try:
        done = gemm.run(kernel, problem, on="cpu", arrays=arrays, counters=False)
        case, findings = Case(problem, gemm.compare(problem, before, arrays)), done.findings
    except CourseError as error:
        case, findings = Case(problem, error.message, error.line), getattr(error, "findings", [])
    return CheckReport(kernel.name, (case,), tuple(findings), source=kernel.source)


def joined(report: CheckReport, more: CheckReport) -> CheckReport:
    """One report of two checks; the shapes drawn are the first one's."""
    drawn = tuple(replace(case, drawn=True) for case in more.cases)
    findings = report.findings + more.findings
    return replace(report, cases=report.cases + drawn, findings=findings, untried=report.untried + more.untried)


def judge_accuracy(kernel: Kernel, k: int, allowed: float, seed: int) -> tuple[str, bool]:
    """(sentence, good): relative errors of one tile of sums of k products of positive numbers, against float64, in float32's roundoffs.

    allowed: how many, in the root mean square.
    """
    problem = gemm.problem_for(kernel, *gemm.geometry(kernel).tile, k, seed=seed)
    a, b, c = problem.arrays()
    arrays = np.abs(a), np.abs(b), c
    value, _ = problem.expected(*arrays)
    try:
        gemm.run(kernel, problem, on="cpu", arrays=arrays, counters=False, findings=False)
    except CourseError as error:
        return f"{problem} of positive numbers: {error.message}", False
    errors = (arrays[2][:, : problem.n].astype(np.float64) - value) / value
    yours = float(np.sqrt(np.mean(errors**2))) / problem.result.roundoff
    side = ", all on one side" if np.all(errors < 0) or np.all(errors > 0) else ""
    good = yours <= allowed
    return f"errors of {problem}, positive numbers: yours {yours:.3g} times 2^-24 (root mean square{side}), expected <= {allowed:g}.", good


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
