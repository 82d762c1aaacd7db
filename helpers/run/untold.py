"""Launches whose findings nobody has looked at: where a cell ends without having shown them, a line tells of them.

`returned` hears of what the reader's own calls give back (`arguments.LISTENERS`) and notes runs of which there is something to tell; a run
notes that it was shown, or asked for its findings (`Run.looked`); `cell_ended` tells what is left. Outside a notebook nothing is noted.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from helpers import arguments
from helpers.errors import plural, quoted

from .kernel import SHOWN, Run


class _Noted(NamedTuple):
    """What there is to tell of a run, without the run: that may hold much, and a cell may launch often."""

    kernel: str
    findings: Sequence[str]
    unfilled: Sequence[str]
    looked: Sequence[str]  # grows while the run is used

    def sentences(self) -> list[str]:
        """What the cell has not shown."""
        told = [] if SHOWN in self.looked else [f"{self.kernel}: {sentence}" for sentence in self.unfilled]
        if self.findings and not self.looked:
            more = f" And {len(self.findings) - 1} more: print(*run.findings) shows all." if len(self.findings) > 1 else ""
            many = plural(len(self.findings), "finding")
            told.append(f"{self.kernel}: this launch has {many}, which the cell does not show. {self.findings[0]}{more}")
        return told


_noted: list[_Noted] | None = None  # of the cell that is running; None: none is


def returned(value: Any) -> None:
    """A call of the reader's gave this back."""
    for run in value.values() if isinstance(value, Mapping) else [value]:
        if _noted is None or not isinstance(run, Run) or run.on != "cpu":  # a GPU's is not simulated just to be told
            continue
        found = [finding for one in (*run.passes, run) for finding in one.outcome.findings]
        if found or run.unfilled:
            told = [f"{finding.kind}: {finding}" for finding in quoted(found, run.kernel.source)]
            _noted.append(_Noted(run.kernel.name, told, run.unfilled, run.looked))


def cell_begins(_: Any) -> None:
    """IPython's event pre_run_cell."""
    global _noted
    _noted = []
    if returned not in arguments.LISTENERS:
        arguments.LISTENERS.append(returned)


def cell_ended(_: Any) -> None:
    """IPython's event post_run_cell, when the cell's last expression has been displayed."""
    global _noted
    left, _noted = _noted or [], None
    for sentence, times in Counter(sentence for noted in left for sentence in noted.sentences()).items():
        print(sentence + (f" ({times} launches.)" if times > 1 else ""), file=sys.stderr)
