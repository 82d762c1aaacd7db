"""Which text of a submitted notebook is the answer, and what no answer may do to the machine that judges it.

A submission is read as data. Its cells are found by nbgrader's grade ids, or, where a reader typed the cell anew, by the first line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.course.exercises import Exercise
from helpers.course.notebook_file import parsed, source
from helpers.errors import CourseError, cut
from helpers.files import read_whole
from helpers.toolchain.compile import readable
from helpers.toolchain.headers import INCLUDE
from helpers.toolchain.kernels import namesake

from .preprocessing import directives, keep_to_numbers

LARGEST_NOTEBOOK = 16 << 20  # bytes; with its outputs, a notebook of ours has some hundred thousand
LARGEST_ANSWER = 100_000  # characters


@dataclass(frozen=True)
class SubmittedCell:
    """The text that is graded, and what was odd about finding it, as sentences. text: None if there is no such cell."""

    text: str | None
    remarks: tuple[str, ...] = ()


def read_submission(path: Path) -> dict[str, Any]:
    """The notebook that somebody handed in. Raises CourseError, with the reason, for what is none, or too large, or elsewhere."""
    try:
        if path.is_symlink() or path.parent.is_symlink():
            raise CourseError(f"{path.name} is a link, or in a folder that is one, and no notebook.")
        if path.stat().st_size > LARGEST_NOTEBOOK:
            size, most = path.stat().st_size >> 20, LARGEST_NOTEBOOK >> 20
            raise CourseError(f"{path.name} has {size} MB, and more than {most} are not read. Clear its outputs, and hand it in again.")
        return parsed(read_whole(path))
    except OSError as error:
        raise CourseError(f"{path.name} cannot be read: {error.strerror or error}.") from None
    except ValueError as error:
        raise CourseError(f"{path.name} is no notebook that can be read: {error}.") from None


def find(cells: Sequence[dict[str, Any]], wanted: str, exercise: Exercise | None) -> SubmittedCell:
    """The answer to an exercise (None: to an instructor's own question) among the cells of a submission. Of several the last counts.
    wanted: its grade id."""
    marked = [cell for cell in cells if grade_id(cell) == wanted]
    if marked:
        more = (f"{len(marked)} cells say that they are the answer; the last one is graded.",) if len(marked) > 1 else ()
        return SubmittedCell(source(marked[-1]), more)
    if exercise is None:
        return SubmittedCell(None, ("The cell of the answer was deleted.",))
    begins = f"%%cuda {exercise.slug}" if exercise.language == "cu" else f"def {exercise.slug}"
    in_short = rf"|^{exercise.slug} *= *lambda\b" if exercise.language == "py" else ""
    has = re.compile(rf"^{re.escape(begins)}(?!\w){in_short}", re.M)
    typed = [cell for cell in cells if cell["cell_type"] == "code" and has.search(source(cell))]
    if typed:
        said = f"The cell of the answer was deleted; the last one that has `{begins}` is graded in its place."
        return SubmittedCell(source(typed[-1]), (said,))
    return SubmittedCell(None, (f"The cell of the answer was deleted, and no other one has `{begins}`.",))


def grade_id(cell: dict[str, Any]) -> Any:
    """What nbgrader knows a cell by, None for any other."""
    about = cell.get("metadata", {}).get("nbgrader")
    return about.get("grade_id") if isinstance(about, dict) else None


def same(one: str, other: str) -> bool:
    """Do two texts say the same, but for blanks and line ends?"""
    return one.split() == other.split()


@dataclass(frozen=True)
class KernelText:
    """CUDA source as the grader compiles it: the cell's lines, the magic's own one empty. entry: which kernel, or None."""

    source: str
    entry: str | None
    remarks: tuple[str, ...] = ()


def kernel_text(text: str) -> KernelText:
    """The CUDA source of a cell, read as a notebook reads it: empty lines before the magic are none, an indentation of it is of all lines,
    and of several kernels the one of the cell's name is meant. Raises CourseError for what is none, and for what reads files of the
    machine.
    """
    lines = re.sub(r"\A(?:[ \t]*\n)+", "", text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff"))
    indent = re.match(r"[ \t]*", lines)[0]
    first, _, rest = re.sub(rf"^{indent}", "", lines, flags=re.M).partition("\n")
    if not first.startswith("%%cuda"):
        raise CourseError("The cell does not begin with `%%cuda` and the kernel's name, so there is no kernel in it.")
    try:
        words = shlex.split(first)
    except ValueError:
        raise CourseError(f"line 1: {cut(first)} has a quotation mark without its other half.", 1) from None
    entry, ignored = None, []
    options = iter(words[2:])
    for word in options:
        if word == "--entry":
            entry = next(options, None)
        elif word.startswith("--entry="):
            entry = word.removeprefix("--entry=")
        else:
            ignored.append(word)
    remarks = (f"Every answer is compiled with the same options; {cut(' '.join(ignored))} is left out.",) if ignored else ()
    code = readable("\n" + rest)
    keep_to_headers(code)
    return KernelText(code, entry or namesake("".join(words[1:2]), code), remarks)


_READS = re.compile(r"(include_next|include|import|embed)\b(?P<rest>[^\n]*)")
_HEADER = re.compile(r"\s*(?:<([^<>\n]+)>|\"([^\"\n]+)\")\s*(?://.*|/\*.*)?$", re.S)


def keep_to_headers(code: str) -> None:
    """Raise CourseError where a source may read a file that is no header of the compiler: a solution, or another's answer.

    It is looked for in a way that no comment and no string can hide: whatever could be a directive is held to be one. What is
    included in the plain form by a relative name is a header of the compiler, or one that stands in for it.
    """
    joined, plain = code.replace("\\\n", ""), set(INCLUDE.findall(code))
    for start, found in directives(joined, _READS):
        header = _HEADER.match(found["rest"])
        name = header[1] or header[2] if header else ""
        if found[1] != "include" or name not in plain or name.startswith(("/", "\\", "~")) or ".." in re.split(r"[/\\]", name):
            text = cut(" ".join(joined[start : found.end()].split()))
            raise CourseError(f"`{text}` is not allowed in an answer: only headers of the compiler can be included, by their names.")
    if asked := re.search(r"has_(include|embed)", joined, re.I):
        raise CourseError(f"`__{asked[0]}` is not allowed in an answer: it asks what files there are.")
    keep_to_numbers(joined)
