"""Where a wrong kernel is right: for which sizes, rows and factors, and what to look at for others.

Most kernels in public are written for sizes that their tiles divide, for rows without padding, for alpha = 1 and beta = 0. Such a kernel is
wrong on most shapes of a check, each time in another way, and none of these ways says what is missing. So one product that meets all such
demands is tried, then others that miss a single one of them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from helpers.element_types import element_type
from helpers.errors import joined, plural
from helpers.sim.code import time_limit

from . import likely_causes
from .check_report import Case
from .check_shapes import step_along_k, whole_and_deep
from .geometry import geometry
from .kernel import Kernel
from .own_products import problem_for, types
from .problem import VECTOR, CancellingProblem, Problem, SampledProblem, ShiftedProblem

_STEPS = 4, 8, 16, 32, 64  # along K, of kernels whose source does not say their own
_BF16 = 8  # bits
_ENOUGH = 12.0  # seconds after which nothing more is asked, and nothing said


class _LateError(Exception):
    """It takes too long."""


@dataclass(frozen=True)
class _Demand:
    """What a kernel may ask of a product. said: that it is met, as part of a sentence. look_at: what serves others; of an edge that tiles
    hang over, the condition that guards it. (Whether it is missing or wrong, and at fault at all, is not known.)"""

    said: str
    look_at: str
    met: Callable[[Problem], bool]
    edge: bool = False


def where_right(
    kernel: Kernel, cases: Sequence[Case], is_right: Callable[[Problem], bool], is_near: Callable[[int, Problem], bool]
) -> str:  # fmt: skip
    """Where a kernel that is not right is so, and what to look at for other shapes, as sentences. "" where it is wrong although all demands
    are met, where `cases` are wrong of which the demands do not tell why, and where it takes long to find out.

    is_right: is a problem computed without a finding? is_near: is it, or off by no more than sums of numbers with so many bits are? Asked
    of kernels that have such sums.
    """
    begun = time_limit.now()

    def in_time(asked: Callable[[Problem], bool], problem: Problem) -> bool:
        if time_limit.now() - begun > _ENOUGH:
            raise _LateError
        return asked(problem)

    with contextlib.suppress(_LateError):
        if said := _where(kernel, cases, functools.partial(in_time, is_right)):
            return said
        if (few := likely_causes.rounding(kernel)) is not None:
            whole = [case for case in cases if not isinstance(case.problem, SampledProblem | CancellingProblem)]
            return _where(kernel, whole, functools.partial(in_time, functools.partial(is_near, few.bits)), few.bits)
    return ""


def _where(kernel: Kernel, cases: Sequence[Case], is_right: Callable[[Problem], bool], bits: int = 0) -> str:
    """The sentences of `where_right`. bits: of sums that `is_right` bears, where these have few."""
    plain = _plain(kernel)
    found: list[_Demand] = []
    if not is_right(plain):
        plain = replace(plain, beta=0.75)
        found.append(_Demand("beta is not 0", "beta = 0, which leaves C unread", lambda problem: problem.beta != 0))
        if not is_right(plain):
            return ""
    found += _demands(kernel, plain, is_right)
    meeting = [case for case in cases if case.problem.flops and all(demand.met(case.problem) for demand in found)]
    if any(case.message and not bits for case in meeting) or not all(is_right(case.problem) for case in meeting):
        return ""
    if not bits and not is_right(replace(whole_and_deep(kernel, plain.seed), beta=plain.beta)):  # asked where nothing else is wrong
        return ""
    edges = [demand.look_at for demand in found if demand.edge]
    look_at = [f"the edges that tiles hang over ({joined(edges, 'and')})"] if edges else []
    look_at += dict.fromkeys(demand.look_at for demand in found if not demand.edge)
    shapes = f"{plain} and {plural(len(meeting), 'such shape')} of this check" if meeting else str(plain)
    right = f"right but for its arithmetic in {'BF16' if bits == _BF16 else 'FP16'}" if bits else "right"
    where = f" where {joined([demand.said for demand in found], 'and')}" if found else ""
    others = f" For others look at {joined(look_at, 'and')}." if look_at else ""
    return f"It is {right}{where}: {shapes}, without a finding.{others}" if found or bits else ""


def plain_problems(kernel: Kernel) -> tuple[Problem, Problem]:
    """Products that meet all demands: one for kernels that want beta = 0, one for those that want it to be something else."""
    return _plain(kernel), replace(_plain(kernel), beta=0.75)


def _plain(kernel: Kernel) -> Problem:
    """Two rows and two columns of tiles, whole ones, and two whole steps along K for each slice."""
    shape = geometry(kernel)
    (rows, columns), (x, y, _) = shape.tile, shape.cluster
    return problem_for(kernel, 2 * y * rows, 2 * x * columns, 2 * (step_along_k(kernel) or _STEPS[-1]) * (shape.depth or 1), seed=1)


def _demands(kernel: Kernel, plain: Problem, is_right: Callable[[Problem], bool]) -> list[_Demand]:
    """What the kernel asks of a product: each is asked by a product that misses it alone."""
    (rows, columns), vector = geometry(kernel).tile, _vector(kernel)
    found: list[_Demand] = []

    def ask(demand: _Demand, *without: Problem) -> bool:
        """Is it one? without: products that miss it alone."""
        if all(map(is_right, without)):
            return False
        found.append(demand)
        return True

    ask(_Demand("alpha is 1", "the factor alpha", lambda problem: problem.alpha == 1), replace(plain, alpha=-1.5))
    if plain.beta == 0:
        ask(_Demand("beta is 0", "beta · C", lambda problem: problem.beta == 0), replace(plain, beta=0.75))
    pads: list[dict[str, Any]] = [{f"pad_{name}": vector} for name in "abc"]
    packed = [name for name, pad in zip("abc", pads, strict=True) if not is_right(replace(plain, **pad))]
    if packed:
        rows_of = f"rows of {joined([name.upper() for name in packed], 'and')} have no padding"
        look_at = f"leading dimensions (rows are {joined([f'ld{name}' for name in packed], 'and')} apart)"
        found.append(_Demand(rows_of, look_at, functools.partial(_are_packed, packed)))

    def cut(name: str, by: int) -> Problem:
        """With a shorter extent, and rows that begin where they did, unless they may have no padding."""
        cut_to: dict[str, Any] = {name: getattr(plain, name) - by}
        short = replace(plain, **cut_to)
        if not packed:
            a, b, c = (old.pitch - new.columns for old, new in zip(plain.stored, short.stored, strict=True))
            short = replace(short, pad_a=a, pad_b=b, pad_c=c)
        return short

    ask(_Demand(f"M is a multiple of {rows}", "row < M", lambda problem: problem.m % rows == 0, edge=True), cut("m", 1))
    along_n = _Demand(f"N is a multiple of {columns}", "column < N", lambda problem: problem.n % columns == 0, edge=True)
    if not ask(along_n, cut("n", vector if columns > vector else 1)):
        ask(_Demand(f"N is a multiple of {vector}", f"N % {vector}", lambda problem: problem.n % vector == 0), cut("n", 1))
    step = _step(kernel, plain, is_right)
    along_k = _Demand(f"K is a multiple of {step}", "k < K", lambda problem: problem.k % step == 0, edge=True)
    if not ask(along_k, cut("k", vector if step > vector else 1)):
        ask(_Demand(f"K is a multiple of {vector}", f"K % {vector}", lambda problem: problem.k % vector == 0), cut("k", 1))
    if not packed:
        begin = f"rows begin at multiples of {VECTOR} bytes"
        shifted = ShiftedProblem(**{field.name: getattr(plain, field.name) for field in fields(plain)})
        padded = replace(plain, pad_a=1, pad_b=1, pad_c=1)
        ask(_Demand(begin, f"rows that begin at no multiple of {VECTOR} bytes", _is_aligned), padded, shifted)
    return found


def _step(kernel: Kernel, plain: Problem, is_right: Callable[[Problem], bool]) -> int:
    """Its step along K: where its source does not say it, the shortest of which one and three are right."""
    if (said := step_along_k(kernel)) is not None:
        return said
    depth = geometry(kernel).depth or 1
    return next((step for step in _STEPS[:-1] if all(is_right(replace(plain, k=times * depth * step)) for times in (1, 3))), _STEPS[-1])


def _vector(kernel: Kernel) -> int:
    """Elements of 16 bytes of the matrix that has the smallest."""
    return VECTOR // min(element_type(name).bytes for name in types(kernel))


def _are_packed(names: Sequence[str], problem: Problem) -> bool:
    return all(stored.pitch == max(1, stored.columns) for name, stored in zip("abc", problem.stored, strict=True) if name in names)


def _is_aligned(problem: Problem) -> bool:
    of_each = (element_type(name).bytes for name in (problem.dtype, problem.dtype, problem.out_dtype))
    whole = all(stored.pitch * size % VECTOR == 0 for stored, size in zip(problem.stored, of_each, strict=True))
    return whole and not isinstance(problem, ShiftedProblem)
