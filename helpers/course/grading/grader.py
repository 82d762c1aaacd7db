"""From the text of an answer to its points: what `nbgrader autograde` and `course grading mark` both do.

The shapes and data of a check are drawn from a secret that only the course's folder holds, the same ones for a whole class. How long
a shape may take is measured in what the course's own solution takes, here and now.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from helpers.course.exercises import Exercise, exercise
from helpers.errors import CourseError

from . import marks
from .answers import LARGEST_ANSWER, SubmittedCell, cell_text, same, starter_cell
from .apart import Limits, Stopped, judged
from .marks import Judgement, Mark
from .plain import plain_cell

_NOTHING = Judgement(False, False, False, 0.0)
_TIMES = 20  # a single shape may take so many times what the solution takes for all of its check


@dataclass
class Grader:
    """Marks answers. secret: what the shapes are drawn from. judge: as `apart.judged`."""

    secret: bytes
    limits: Limits = field(default_factory=Limits)
    judge: Callable[..., list[Judgement]] = judged
    _solutions: dict[str, Judgement] = field(default_factory=dict)
    _given: dict[tuple[str, str], Judgement] = field(default_factory=dict)

    def seed(self, slug: str) -> int:
        """Of the shapes of an exercise."""
        return int.from_bytes(hmac.digest(self.secret, slug.encode(), hashlib.sha256)[:6])

    def mark(self, slug: str, cell: SubmittedCell) -> Mark:
        """The grade of an answer. Raises CourseError where this machine cannot grade: its check does not pass the course's own solution."""
        item = exercise(slug)
        if cell.text is None:
            return marks.none(item, "There is no answer.", cell.remarks)
        if not cell.text.strip():
            return marks.none(item, "The answer is empty.", cell.remarks)
        if same(cell.text, starter_cell(item)):
            return marks.none(item, "The cell is as it was given.", cell.remarks)
        if len(cell.text) > LARGEST_ANSWER:
            return marks.none(
                item, f"The answer has {len(cell.text):,} characters; more than {LARGEST_ANSWER:,} are not read.", cell.remarks
            )
        limits = self._limits(item)
        try:
            found = self.judge(slug, [cell.text], self.seed(slug), limits)[0]
        except Stopped as error:
            return marks.none(item, error.message, cell.remarks, for_staff=f"{slug}: {error.message}")
        if found.passed or not found.results:
            return marks.mark(item, found, 0.0, cell.remarks)
        starter, plain = (self._of(item, text, limits) for text in (starter_cell(item), plain_cell(item)))
        return marks.mark(item, found.beside(plain), starter.beside(plain).hundredths, cell.remarks)

    def _limits(self, item: Exercise) -> Limits:
        """The limits, with patience by the solution's own time."""
        if item.slug not in self._solutions:
            found = self.judge(item.slug, [cell_text(item, item.solution)], self.seed(item.slug), self.limits)[0]
            if not found.passed:
                raise CourseError(
                    f"{item.slug} cannot be graded on this machine: the course's own solution does not pass.\n{_said(found.said)}"
                )
            self._solutions[item.slug] = found
        each = max(self.limits.patience, _TIMES * self._solutions[item.slug].seconds)
        return replace(self.limits, patience=each, seconds=max(self.limits.seconds, each))

    def _of(self, item: Exercise, text: str | None, limits: Limits) -> Judgement:
        """What a text has that does nothing of the task: nothing, where there is none, or it does not come to an end."""
        if text is None:
            return _NOTHING
        if (item.slug, text) not in self._given:
            found = _NOTHING
            with contextlib.suppress(Stopped):
                found = self.judge(item.slug, [text], self.seed(item.slug), limits)[0]
            self._given[item.slug, text] = found
        return self._given[item.slug, text]


def _said(lines: Sequence[str]) -> str:
    return "\n".join(f"  {line}" for line in lines)
