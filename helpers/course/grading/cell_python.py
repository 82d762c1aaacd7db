"""The Python of a cell, read as a notebook reads it and never run: what only times or shows help is passed over, other commands are named.

Lines keep their numbers. What is Python is Python: a line is taken for a command of the notebook only where Python cannot read it.
"""

from __future__ import annotations

import ast
import re

from helpers.errors import CourseError, cut

MOST = 50  # commands in one answer
_COMMAND = re.compile(r"[ \t]*(?:%%?\w|!|\?|[\w.%*]+\?\??[ \t]*$)|[\w.,* \t]+=[ \t]*(?:%\w|!)")
_TIMED = re.compile(r"(?P<indent>[ \t]*)%time[ \t]+(?P<code>.*)")  # runs the rest of its line where it stands
_PASSED_OVER = re.compile(r"[ \t]*(?:%time|%timeit|%%time|%%timeit|%%capture)(?!\S)|[ \t]*(?:\?\??[\w.%*]+|[\w.%*]+\?\??)[ \t]*$")


def read(text: str) -> ast.Module:
    """The statements of a cell. Raises CourseError, with the line, for what is no Python, and for a command that does more than time."""
    lines = _outdented(text)
    for _ in range(MOST + 1):
        try:
            return ast.parse("\n".join(lines))
        except (SyntaxError, ValueError) as error:
            line, said = getattr(error, "lineno", None), getattr(error, "msg", error)
        except (RecursionError, MemoryError):
            raise CourseError("The answer is nested too deeply to be read.") from None
        if line is None or not 1 <= line <= len(lines) or not _COMMAND.match(lines[line - 1]):
            raise CourseError(f"{f'line {line}: ' if line else ''}Python cannot read this: {said}.", line)
        _pass_over(lines, line)
    raise CourseError(f"An answer has at most {MOST} commands of the notebook, such as %time. Leave only the function in its cell.")


def _outdented(text: str) -> list[str]:
    """The lines of a cell, without the indentation of its first one, which a notebook takes off."""
    lines = re.split(r"\r\n|\r|\n", text.lstrip("\ufeff"))
    first = next((line for line in lines if line.strip()), "")
    indent = first[: len(first) - len(first.lstrip(" \t"))]
    return [line.removeprefix(indent) for line in lines]


def _pass_over(lines: list[str], number: int) -> None:
    """Put what a command leaves to be run in its place, in `lines`. Raises CourseError for one that is more than timing or help."""
    at = number - 1
    if timed := _TIMED.fullmatch(lines[at]):
        lines[at] = timed["indent"] + timed["code"]
    elif _PASSED_OVER.match(lines[at]):
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        while lines[at].endswith("\\") and at + 1 < len(lines):  # it goes on there
            at += 1
            lines[at - 1] = ""
        lines[at] = f"{indent}pass"
    else:
        raise CourseError(
            f"line {number}: `{cut(lines[at].strip())}` is a command of the notebook and no Python, and the grader runs none. Take it out "
            "of the cell; only lines that time the function, such as %time, may stay.",
            number,
        )
