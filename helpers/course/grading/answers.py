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
            raise CourseError(
                f"{path.name} has more than {LARGEST_NOTEBOOK >> 20} MB and is not read. Clear its outputs, and hand it in again."
            )
        return parsed(read_whole(path))
    except OSError as error:
        raise CourseError(f"{path.name} cannot be read: {error.strerror or error}.") from None
    except ValueError as error:
        raise CourseError(f"{path.name} is no notebook that can be read: {error}.") from None


def find(cells: Sequence[dict[str, Any]], wanted: str, exercise: Exercise | None) -> SubmittedCell:
    """The answer to an exercise (None: to an instructor's own question) among the cells of a submission. Of several the last counts; one
    that was typed elsewhere counts where the cell of the answer holds none. wanted: its grade id."""
    marked = [cell for cell in cells if grade_id(cell) == wanted]
    said = tuple[str, ...]()
    if len(marked) > 1:
        said = (f"{len(marked)} cells say that they are the answer; the last one is graded.",)
    if exercise is None:
        return SubmittedCell(source(marked[-1]), said) if marked else SubmittedCell(None, ("The cell of the answer was deleted.",))
    begins = f"%%cuda {exercise.slug}" if exercise.language == "cu" else f"def {exercise.slug}"
    in_short = rf"|^{exercise.slug} *= *lambda\b" if exercise.language == "py" else ""
    has = re.compile(rf"^{re.escape(begins)}(?!\w){in_short}", re.M)
    code = [source(cell) for cell in cells if cell["cell_type"] == "code" and cell not in marked]
    typed = [text for text in code if has.search(text)]
    own = [text for text in typed if not same(text, starter_cell(exercise))]
    if marked:
        text = source(marked[-1])
        if own and (not text.strip() or same(text, starter_cell(exercise))):
            return SubmittedCell(
                own[-1], (*said, f"The cell of the answer is as it was given; the last other one that has `{begins}` is graded.")
            )
        if own:
            said += (f"There are other cells that have `{begins}`; the one that was given for the answer is graded.",)
        return SubmittedCell(text, said)
    if typed:
        return SubmittedCell(
            (own or typed)[-1], (f"The cell of the answer was deleted; the last one that has `{begins}` is graded in its place.",)
        )
    return SubmittedCell(None, (f"The cell of the answer was deleted, and no other one has `{begins}`.",))


def grade_id(cell: dict[str, Any]) -> Any:
    """What nbgrader knows a cell by, None for any other."""
    about = cell.get("metadata", {}).get("nbgrader")
    return about.get("grade_id") if isinstance(about, dict) else None


def cell_text(item: Exercise, code: str) -> str:
    """A cell that holds this code, as the answer of an exercise."""
    return f"%%cuda {item.slug}\n{code}" if item.language == "cu" else code


def starter_cell(item: Exercise) -> str:
    """The cell as it is handed out."""
    return cell_text(item, item.starter)


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
