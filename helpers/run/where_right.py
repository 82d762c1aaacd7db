"""Where a wrong kernel is right: for which sizes, rows and factors, and what to look at for others.

Most kernels in public are written for sizes that their tiles divide, for rows without padding, for alpha = 1 and beta = 0. Such a kernel is
wrong on most shapes of a check, each time in another way, and none of these ways says what is missing. So one product that meets all such
demands is tried, of kernels for which it is wrong a square, too, then others that miss a single one of them.
"""

from __future__ import annotations

import contextlib
import functools
import math
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

_STEPS = 4, 8, 16, 32, 64, 128  # along K, of kernels whose source does not say their own
_SQUARE = 512  # M = N = K at most, of a product that is tried where others are wrong
_BETAS = 0.0, 0.75  # as kernels want it that leave C unread, or read it in any case
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


_OTHER_BETA = _Demand("beta is not 0", "beta = 0, which leaves C unread", lambda problem: problem.beta != 0)
_OF_SQUARES = _Demand("M = N = K", "which of M, N and K stands where", lambda problem: problem.m == problem.n == problem.k)


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
    said = step_along_k(kernel)
    for step in dict.fromkeys((said, None)):  # what a source names so may be something else
        tried = [replace(_plain(kernel, step), beta=beta) for beta in _BETAS]
        plain = next((one for one in tried if is_right(one) and (_apart(one) == one or is_right(_apart(one)))), None)
        if plain is not None:
            break
    others = [not case.message for case in cases if case.problem.flops and not _OF_SQUARES.met(case.problem)]
    if (square := plain is None) and sum(others) <= len(others) / 2:  # else most shapes are right, and it wants less than squares
        plain = next((one for one in _squares(kernel) if is_right(one) and not all(map(is_right, _no_squares(one)))), None)
    if plain is None:
        return ""
    found = [_OTHER_BETA] if plain.beta else []
    found += [_OF_SQUARES] if square else []
    found += _demands(kernel, plain, is_right, step, square)
    meeting = [case for case in cases if case.problem.flops and all(demand.met(case.problem) for demand in found)]
    if any(case.message and not bits for case in meeting) or not all(is_right(case.problem) for case in meeting):
        return ""
    deep = replace(_deep(kernel, plain.seed, step), beta=plain.beta)
    if not bits and not square and not is_right(deep):  # asked where nothing else is wrong
        return ""
    edges = [demand.look_at for demand in found if demand.edge]
    look_at = [f"the edges that tiles hang over ({joined(edges, 'and')})"] if edges else []
    look_at += dict.fromkeys(demand.look_at for demand in found if not demand.edge)
    shapes = f"{plain} and {plural(len(meeting), 'such shape')} of this check" if meeting else str(plain)
    right = f"right but for its arithmetic in {'BF16' if bits == _BF16 else 'FP16'}" if bits else "right"
    where = f" where {joined([demand.said for demand in found], 'and')}" if found else ""
    rest = f" For others look at {joined(look_at, 'and')}." if look_at else ""
    return f"It is {right}{where}: {shapes}, without a finding.{rest}" if found or bits else ""


def plain_problems(kernel: Kernel) -> tuple[Problem, Problem]:
    """Products that meet all demands but that of squares: one for kernels that want beta = 0, one for those that want it to be another."""
    first, second = (replace(_plain(kernel, step_along_k(kernel)), beta=beta) for beta in _BETAS)
    return first, second


def _apart(problem: Problem) -> Problem:
    """The same with no two extents alike: else nobody knows whether a kernel takes one for another."""
    m, n, k = problem.m, problem.n, problem.k
    while k in (m, n):
        k *= 2
    while m in (n, k):
        m *= 2
    return replace(problem, m=m, k=k)


def _squares(kernel: Kernel) -> list[Problem]:
    """What kernels may compute that take one of M, N and K for another; their extents are multiples of all that those have."""
    plain = _plain(kernel, step_along_k(kernel))
    size = math.lcm(plain.m, plain.n, plain.k)
    return [replace(plain, m=size, n=size, k=size, beta=beta) for beta in _BETAS] if size <= _SQUARE else []


def _no_squares(square: Problem) -> tuple[Problem, Problem]:
    """Of which one is wrong, where a kernel takes one extent for another."""
    return replace(square, k=2 * square.k), replace(square, m=2 * square.m)


def _deep(kernel: Kernel, seed: int, step: int | None) -> SampledProblem:
    """`whole_and_deep`, of whole steps of kernels whose source does not say their own, too."""
    deep = whole_and_deep(kernel, seed)
    return deep if step else replace(deep, k=deep.k + -deep.k % _STEPS[-1])


def _plain(kernel: Kernel, step: int | None) -> Problem:
    """Two rows and two columns of tiles, whole ones, and two whole steps along K for each slice."""
    shape = geometry(kernel)
    (rows, columns), (x, y, _) = shape.tile, shape.cluster
    return problem_for(kernel, 2 * y * rows, 2 * x * columns, (2 * step if step else _STEPS[-1]) * (shape.depth or 1), seed=1)


def _demands(kernel: Kernel, plain: Problem, is_right: Callable[[Problem], bool], step: int | None, square: bool) -> list[_Demand]:
    """What the kernel asks of a product: each is asked by a product that misses it alone. step: along K, where that is known. square: are
    all to be squares?"""
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

    def cut(names: str, by: int) -> Problem:
        """With shorter extents, and rows that begin where they did, unless they may have no padding."""
        short = replace(plain, **dict[str, Any]((name, getattr(plain, name) - by) for name in names))
        if not packed:
            a, b, c = (old.pitch - new.columns for old, new in zip(plain.stored, short.stored, strict=True))
            short = replace(short, pad_a=a, pad_b=b, pad_c=c)
        return short

    def ask_extent(whole: int, guard: str, names: str) -> None:
        """Is an extent to be a multiple of `whole`, or else of a vector?"""
        name = names[0].upper()

        def demand(size: int, look_at: str, edge: bool = False) -> _Demand:
            return _Demand(f"{name} is a multiple of {size}", look_at, lambda problem: getattr(problem, names[0]) % size == 0, edge)

        if not ask(demand(whole, guard, edge=True), cut(names, vector if whole > vector else 1)):
            ask(demand(vector, f"{name} % {vector}"), cut(names, 1))

    if square:
        guards = "row < M, column < N and k < K"
        if side := _side(kernel, plain, is_right):
            ask_extent(side, guards, "mnk")
        else:
            found.append(_Demand(f"M is {plain.m}", guards, lambda problem: problem.m == plain.m, edge=True))
    else:
        ask(_Demand(f"M is a multiple of {rows}", "row < M", lambda problem: problem.m % rows == 0, edge=True), cut("m", 1))
        ask_extent(columns, "column < N", "n")
        ask_extent(step or _step(kernel, plain, is_right), "k < K", "k")
    if not packed:
        begin = f"rows begin at multiples of {VECTOR} bytes"
        shifted = ShiftedProblem(**{field.name: getattr(plain, field.name) for field in fields(plain)})
        padded = replace(plain, pad_a=1, pad_b=1, pad_c=1)
        ask(_Demand(begin, f"rows that begin at no multiple of {VECTOR} bytes", _is_aligned), padded, shifted)
    return found


def _step(kernel: Kernel, plain: Problem, is_right: Callable[[Problem], bool]) -> int:
    """The step along K of a kernel whose source does not say it: the shortest of which one and three are right."""
    depth = geometry(kernel).depth or 1
    return next((step for step in _STEPS[:-1] if all(is_right(replace(plain, k=times * depth * step)) for times in (1, 3))), _STEPS[-1])


def _side(kernel: Kernel, plain: Problem, is_right: Callable[[Problem], bool]) -> int:
    """What the extents of squares are a multiple of: the least of which one and three are right, of the tile's and with a step along K. 0
    where that is not known."""
    tile = math.lcm(*geometry(kernel).tile)
    for side in (tile, math.lcm(tile, step_along_k(kernel) or _STEPS[-1])):
        squares = (replace(plain, m=times * side, n=times * side, k=times * side) for times in (1, 3))
        if 3 * side <= _SQUARE and all(map(is_right, squares)):
            return side
    return 0


def _vector(kernel: Kernel) -> int:
    """Elements of 16 bytes of the matrix that has the smallest."""
    return VECTOR // min(element_type(name).bytes for name in types(kernel))


def _are_packed(names: Sequence[str], problem: Problem) -> bool:
    return all(stored.pitch == max(1, stored.columns) for name, stored in zip("abc", problem.stored, strict=True) if name in names)


def _is_aligned(problem: Problem) -> bool:
    of_each = (element_type(name).bytes for name in (problem.dtype, problem.dtype, problem.out_dtype))
    whole = all(stored.pitch * size % VECTOR == 0 for stored, size in zip(problem.stored, of_each, strict=True))
    return whole and not isinstance(problem, ShiftedProblem)
