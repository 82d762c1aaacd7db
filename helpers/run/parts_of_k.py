"""Products that are wrong because a part of K is left out: the tail behind whole steps, what is behind a largest K, the last k or the
first, or all but one of each few. C says which, since it is the sum of the others."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from helpers.errors import joined, quote
from helpers.toolchain.host_code import strip_comments

from .differences import wrong_ones
from .problem import Problem

_ELEMENTS = 8  # wrong ones by which the part is found that they are the sum of
_SHOWN = 3
_LONGEST_STEP = 128  # of which some k are left out
_WHOLE_STEPS = re.compile(r"\bK\s*/(?![/*])")
_LOOP = re.compile(r"\b(?:for|while)\s*\([^{};]*;?[^{};]*\bK\b")


@dataclass(frozen=True)
class PartOfK:
    """A wrong product is the sum of these k: from `first` on, and up to `end`, which is not one of them; of every `step` of these the first
    `of_step`."""

    k: int
    first: int
    end: int
    step: int = 1
    of_step: int = 1


def summed(problem: Problem, before: Sequence[np.ndarray], c: np.ndarray) -> PartOfK | None:
    """Which k a wrong C is the sum of, if it lacks those at the end of K alone, or at its beginning, or some of every few; else None.
    before: A, B and C as they were."""
    got = c[:, : problem.n].astype(np.float64)
    if problem.batch > 1 or not problem.alpha or not problem.k or not got.size or not np.isfinite(got).all():
        return None
    left, right = problem.factors(before[0], before[1])
    value, bound = problem.expected_of(left, right, before[2])
    wrong = wrong_ones(got, value, bound)
    if not wrong.any() or not np.isfinite(value).all():
        return None
    some = tuple(np.argwhere(wrong)[:_ELEMENTS].T)
    products = left[some[0]] * right[:, some[1]].T
    sums = np.concatenate([np.zeros((len(products), 1)), np.cumsum(products, axis=1)], axis=1)
    besides = (problem.beta * before[2][some].astype(np.float64) if problem.beta else np.zeros(len(products)))[:, None]

    def off(of_products: np.ndarray) -> np.ndarray:
        """How far C is from what it would be with each of some sums of products."""
        parts = problem.alpha * of_products + besides
        if problem.fused:
            parts = np.maximum(parts + problem.bias().astype(np.float64)[some[1]][:, None], 0)
        return np.abs(parts - got[some][:, None]).sum(axis=0)

    def is_sum_of(kept: np.ndarray) -> bool:
        part, allowed = replace(problem, k=len(kept)).expected_of(left[:, kept], right[kept], before[2])
        return not wrong_ones(got, part, np.maximum(allowed, bound)).any()

    every = np.arange(problem.k)
    for at_the_end in (True, False):
        each = off(sums if at_the_end else sums[:, -1:] - sums)
        cut = int(problem.k - np.argmin(each[::-1]) if at_the_end else np.argmin(each))  # of several, the one that leaves out least
        first, end = (0, cut) if at_the_end else (cut, problem.k)
        if is_sum_of(every[first:end]):
            return PartOfK(problem.k, first, end)
    steps = [(of, step) for step in range(2, min(_LONGEST_STEP, problem.k - 1) + 1) for of in _firsts(step)]
    if not steps or problem.scale_block:
        return None
    each = off(np.stack([products[:, every % step < of].sum(axis=1) for of, step in steps], axis=1))
    of, step = steps[int(np.argmin(each))]
    return PartOfK(problem.k, 0, problem.k, step, of) if is_sum_of(every[every % step < of]) else None


def _firsts(step: int) -> list[int]:
    """How many k of each step may be the ones that are added: one, or half of a long one."""
    return [1, step // 2] if step > 3 and step % 2 == 0 else [1]


def said(found: Sequence[PartOfK], source: str) -> str:
    """What there is to say of a kernel whose wrong products these are, as a sentence with a space before it; "" where they lack different
    things."""
    if not found:
        return ""
    if all(one.first == one.end for one in found):
        return " It adds no product of A and B: C is what it would be with K = 0."
    if any(one.step > 1 for one in found):
        return _in_steps(found, source)
    for at_the_end in (True, False):
        cuts = {one.k: one.end if at_the_end else one.k if one.first == one.end else one.first for one in found}
        if all(one.first == one.end or (one.first == 0 if at_the_end else one.end == one.k) for one in found):
            return _at_the_end(cuts, source) if at_the_end else _at_the_beginning(cuts, source)
    return ""


def _at_the_end(cuts: Mapping[int, int], source: str) -> str:
    """Of each K, from which k on nothing is added."""
    if len(cuts) > 1 and all(cut == min(k, 1) for k, cut in cuts.items()):
        return f" C has the product of the first k alone. {_ADDED}"
    text = f" It adds nothing {_listed(cuts, 'from k = {} on')}."
    step = math.gcd(*cuts.values())
    if step > 1 and len(set(cuts.values())) > 1 and len({k - cut for k, cut in cuts.items()}) > 1:
        if all(cut == k // step * step for k, cut in cuts.items()):
            text += f" These are whole steps of {step} alone: take a last step for what is left of K, with 0 for what lies beyond K."
    return text + _where(source, "ends", (_WHOLE_STEPS, _LOOP))


def _in_steps(found: Sequence[PartOfK], source: str) -> str:
    """Of every few k, which are added: said where all of the products tell the same. Of a K that is one step it is those at its end that
    are left out."""
    step, of = next((one.step, one.of_step) for one in found if one.step > 1)
    if any((one.step, one.of_step) != (step, of) and ((one.first, one.end) != (0, of) or one.k > step) for one in found):
        return ""
    line = _line(source, (_LOOP,))
    if of > 1:
        kept = f"of every {step:,} k the first {of:,} alone: 0 to {of - 1:,}, {step:,} to {step + of - 1:,}, …"
    else:
        kept = f"only every {_ORDINAL.get(step, f'{step}-th')} k: 0, {step:,}, {2 * step:,}, …"
    return f" It adds {kept} Does the loop over K go on by more k than a turn adds?{f' Look at {line}.' if line else ''}"


_ORDINAL = {2: "second", 3: "third", 4: "fourth", 5: "fifth", 6: "sixth", 7: "seventh", 8: "eighth"}


def _at_the_beginning(cuts: Mapping[int, int], source: str) -> str:
    """Of each K, before which k nothing is added."""
    if len(cuts) > 1 and all(cut == k - 1 for k, cut in cuts.items()):
        return f" C has the product of the last k alone. {_ADDED}"
    step = math.gcd(*cuts.values())
    if step > 1 and all(cut == (k - 1) // step * step for k, cut in cuts.items()):
        last = f"That leaves the last step of {step} k alone. " if len(cuts) > 1 else ""
        return f" It adds nothing {_listed(cuts, 'before k = {}')}. {last}{_ADDED}"
    return f" It adds nothing {_listed(cuts, 'before k = {}')}.{_where(source, 'begins', (_LOOP,))}"


_ADDED = "Is each added to the sum (+=), and the sum set to 0 before the loop over K, not in it?"


def _listed(cuts: Mapping[int, int], form: str) -> str:
    """The cuts, each with the K of which it is one."""
    by_cut: dict[int, list[int]] = {}
    for k, cut in sorted(cuts.items()):
        by_cut.setdefault(cut, []).append(k)
    told = [
        f"{form.format(f'{cut:,}')} where K is {joined([f'{k:,}' for k in ks], 'or')}"
        for cut, ks in sorted(by_cut.items(), reverse=True)[:_SHOWN]
    ]
    return joined(told, "and")


def _where(source: str, what: str, patterns: Sequence[re.Pattern[str]]) -> str:
    line = _line(source, patterns)
    return f" Look at where the loop over K {what}{f': {line}' if line else ''}."


def _line(source: str, patterns: Sequence[re.Pattern[str]]) -> str:
    """The line that counts steps along K, as a report shows it; "" where none is found, or several are."""
    code = strip_comments(source)
    for pattern in patterns:
        lines = {code.count("\n", 0, found.end()) + 1 for found in pattern.finditer(code)}
        if len(lines) == 1:
            line = lines.pop()
            return f"line {line}, “{quote(source, line)}”"
        if lines:
            return ""
    return ""
