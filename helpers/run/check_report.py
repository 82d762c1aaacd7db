"""What a check found: its cases, its findings, and how they are said."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from helpers.errors import Finding, called_from, in_html, quote, statement_line

from .differences import NAN_MEANS, stored

if TYPE_CHECKING:
    from .gemm import Problem

SHAPES_SHOWN = 3  # of those that failed; the same mistake shows in most of them


@dataclass(frozen=True)
class Case:
    """One problem checked. `message` is empty when it passed.

    line: 1-based line of the reader's cell where it went wrong, or that stored the first wrong element; None if unknown. calls: where
    that line stands in a function, the lines that call it, outwards. explained: its message says what is known to be why.
    """

    problem: Problem
    message: str = ""
    line: int | None = None
    drawn: bool = False  # at random
    remark: str = ""  # on what passed
    calls: tuple[int, ...] = ()
    explained: bool = False


_MARKS = {True: ("✓", "#007a5a"), False: ("✗", "#c44601"), None: ("·", "inherit")}  # how a line of a report begins, and its colour


_UNFOLLOWED = (
    "Who waits for whom behind a fence with atomic operations, or behind an acquiring load, is not followed: a race may hide there."
)


@dataclass(frozen=True)
class CheckReport:
    """What `check` found. Truth value: everything passed and no finding."""

    kernel: str
    cases: tuple[Case, ...]
    findings: tuple[Finding, ...]
    expectations: tuple[tuple[str, bool], ...] = ()
    on: str = "cpu"
    source: str = field(default="", repr=False)
    untried: int = 0  # shapes left when one did not end
    unfollowed: bool = False  # do its threads learn of one another in ways that the check of races does not follow?
    waiting: Problem | None = None  # the longest shape, if it was put off until there is no finding
    results_alone: int = 0  # shapes of which findings were not collected, since these take too long
    where_right: str = ""  # for which shapes a wrong kernel is right, and what to look at for others
    remarks: tuple[str, ...] = ()  # on the kernel, whatever the shapes
    ran: bool = True  # was anything run? Else nothing was looked for
    seed: int | None = None  # of the shapes drawn at random, the last of `cases`; None if there were none

    @property
    def correct(self) -> bool:
        """Right results and no finding, whatever the counters."""
        return not self.findings and all(not case.message for case in self.cases)

    @property
    def endless(self) -> bool:
        """Did a shape not end? Then a larger one, whose counters would be judged, would not either."""
        return any(finding.kind == "endless" for finding in self.findings)

    @property
    def passed(self) -> bool:
        return self.correct and all(ok for _, ok in self.expectations)

    def __bool__(self) -> bool:
        return self.passed

    def lines(self) -> list[tuple[bool | None, str]]:
        """(good, or None for a remark; sentence) in the order to show them."""
        failed = [case for case in self.cases if case.message]
        good = len(self.cases) - len(failed)
        result: list[tuple[bool | None, str]] = [(not failed, f"{good} of {len(self.cases)} shapes right.")]
        result += [(False, text) for text in self._told(_telling_first(failed)[:SHAPES_SHOWN])]
        if len(failed) > SHAPES_SHOWN:
            more = len(failed) - SHAPES_SHOWN
            result.append((False, f"… and {more} more shape{'s' if more > 1 else ''}."))
        result += [(None, self.where_right)] if self.where_right else []
        if self.seed is not None and any(case.drawn for case in failed):
            result.append((None, f"Some of these shapes are drawn anew in every check; check(seed={self.seed}) draws the same again."))
        result += [(None, remark) for remark in self.remarks]
        result += [(None, case.remark) for case in self.cases if case.remark]
        if self.untried:
            why = ", since each might take as long" if self.endless else ""
            others = "other shape was" if self.untried == 1 else f"other {self.untried} shapes were"
            result.append((None, f"The {others} not tried{why}."))
        if self.results_alone:
            where = "one shape the result alone was" if self.results_alone == 1 else f"{self.results_alone} shapes the results alone were"
            again = " Check again when the findings below are mended: these shapes may have more." if self.findings else ""
            result.append((None, f"Of {where} compared, without looking for findings, which takes long here.{again}"))
        if self.waiting is not None:
            result.append((None, f"The longest shape, {self.waiting}, takes a while with these findings: it is tried when they are gone."))
        if self.findings:
            result += [(False, str(finding)) for finding in self.findings if finding.kind != "endless" or not failed]
        elif self.ran:
            result.append((True, "No finding: no race, no access out of bounds, nothing read before it was written."))
            if self.unfollowed:
                result.append((None, _UNFOLLOWED))
        return result + [(ok, text) for text, ok in self.expectations]

    def _told(self, failed: Sequence[Case]) -> list[str]:
        """What is wrong in each of these. What NaN means is said once."""
        told: list[str] = []
        for case in failed:
            words, nan, meaning = case.message.partition(NAN_MEANS)
            again = nan and any(NAN_MEANS in before for before in told)
            told.append(f"{case.problem}: {words}{'' if again else nan + meaning}{self._quote(case)}")
        return told

    def _quote(self, case: Case) -> str:
        """The line of a failed case, with its text."""
        line = statement_line(self.source, case.line)
        code = quote(self.source, line)
        if not code:
            return ""
        called = f", {called_from(case.calls, [quote(self.source, call) for call in case.calls])}" if case.calls else ""
        return f" Line {line} {'stored it:' if stored(case.message) else 'is'} “{code}”{called}."

    def __str__(self) -> str:
        return "\n".join([self.headline, *(f"  {_MARKS[ok][0]} {text}" for ok, text in self.lines())])

    def __repr__(self) -> str:
        return str(self)  # what nbgrader's validation and other pages without HTML show

    @property
    def headline(self) -> str:
        where = "on the GPU, findings from the SIMT machine" if self.on == "gpu" else "in the SIMT machine"
        return f"{self.kernel}: {'passed' if self.passed else 'not yet'} ({where})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<li style='list-style:none;margin:.2em 0'><span style='color:{_MARKS[ok][1]};font-weight:bold'>"
            f"{_MARKS[ok][0]}</span> <span style='white-space:pre-wrap'>{in_html(text)}</span></li>"
            for ok, text in self.lines()
        )
        return f"<div><b>{html.escape(self.headline)}</b><ul style='padding-left:1em;margin:.3em 0'>{rows}</ul></div>"


def _telling_first(failed: Sequence[Case]) -> list[Case]:
    """Those that tell most first: the one that is explained, the first that a line ended, which may be why others are wrong, and the first
    whose line is known; then the others as they come."""
    telling = [
        next((case for case in failed if case.explained), None),
        next((case for case in failed if case.line is not None and not stored(case.message)), None),
        next((case for case in failed if case.line is not None), None),
    ]
    first = list(dict.fromkeys(id(case) for case in telling if case is not None))
    return sorted(failed, key=lambda case: first.index(id(case)) if id(case) in first else len(first))
