"""What a reader may give a picture, and the sentence for what it does not draw.

A picture's own declaration says what it takes: its kind (`of`) what its first argument is, an annotation `int` a whole number.
"""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from helpers.errors import CourseError, LaunchError


@dataclass(frozen=True)
class Subject:
    """What pictures of one kind draw. advice: how to get it; "{name}" is the picture. fits: whether something is one."""

    words: str
    advice: str
    fits: Callable[[Any], bool]


def _with(*attributes: str) -> Callable[[Any], bool]:
    return lambda what: all(hasattr(what, name) for name in attributes)


def _each(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda what: isinstance(what, Sequence) and not isinstance(what, str) and all(map(fits, what))


def _is_prediction(item: Any) -> bool:
    match item:
        case [str(), factor]:
            return isinstance(factor, numbers.Real)
    return False


# Only what a kind is told by: stand-ins draw as well, and nothing is computed to find out. A kind that is not here is not looked at.
SUBJECTS = {
    "run": Subject(
        "a run, as kernel.launch or kernel.gemm returns it",
        "Run the kernel first: {name}(kernel.gemm(64, trace=True)).",
        _with("kernel"),
    ),
    "rungs": Subject(
        "rows of the ladder, as helpers.ladder.rungs returns them",
        "widgets.ladder() draws yours.",
        _each(_with("kind", "tflops")),
    ),
    "search": Subject(
        "a search, as search in helpers.course.autotune returns it",
        "Search first: {name}(search(source)).",
        _with("candidates", "ranked"),
    ),
    "sweep": Subject(
        "a sweep, as sweep in helpers.course.sweep returns it",
        "Sweep first: {name}(sweep(source, constants)).",
        _with("settings", "caption"),
    ),
    "accuracy": Subject(
        "errors, as helpers.accuracy returns them",
        "Compare first: {name}(accuracy(A, B)).",
        _with("points", "shape", "gpu"),
    ),
    "predictions": Subject(
        "pairs of a question's id and a number, the prediction over the truth",
        "{name}([('naive.time', 1.5)]) draws one.",
        _each(_is_prediction),
    ),
}


def must_be(of: str, picture: str, what: Any) -> None:
    """Raise CourseError where `what` is nothing that a picture of this kind draws."""
    subject = SUBJECTS.get(of)
    if subject and not subject.fits(what):
        raise CourseError(f"{picture} draws {subject.words}, and not {_called(what)}. {subject.advice.format(name=picture)}")


def _called(what: Any) -> str:
    """ "a Kernel", "an int", "None"; of a list also what is in it: "a list with an int"."""
    if what is None:
        return "None"
    name = type(what).__name__
    inside = f" with {_called(what[0])}" if isinstance(what, (list, tuple)) and what else ""
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}{inside}"


def must_be_axes(name: str, what: Any) -> None:
    """Raise CourseError where `what`, given for `name`, is no Axes with a figure."""
    if not (hasattr(what, "figure") and hasattr(what, "transAxes")):
        raise CourseError(f"{name} takes an Axes, as every picture returns it, and not {_called(what)}.")


class DeclaredArguments:
    """What the declaration of a picture says of its arguments, read once."""

    def __init__(self, function: Callable[..., Any], of: str):
        self.name, self._of = function.__name__, of
        parameters = list(inspect.signature(function).parameters.values())
        self._names = [parameter.name for parameter in parameters]
        self._options = [name for name in self._names[1:] if name != "ax"]
        self._judges_itself = parameters[0].annotation == "Any"
        self._whole = {parameter.name for parameter in parameters if parameter.annotation in ("int", "int | None")}
        self._or_none = {parameter.name for parameter in parameters if parameter.default is None}

    def check(self, args: Sequence[Any], options: dict[str, Any]) -> None:
        """Raise CourseError for what the picture does not draw, an option that it has not, and a position that is no whole number."""
        if unknown := [name for name in options if name not in self._names]:
            has = f"It has: {', '.join(self._options)}." if self._options else "It has none."
            raise LaunchError(f"{self.name} has no option {unknown[0]}. {has}")
        given = dict(zip(self._names, args, strict=False)) | options
        first = self._names[0]
        if first in given and not self._judges_itself:
            must_be(self._of, self.name, given[first])
        for name in self._whole & given.keys():
            left_out = given[name] is None and name in self._or_none
            if not (left_out or isinstance(given[name], numbers.Integral)):
                raise CourseError(f"{name}={given[name]!r}: give a whole number.")
