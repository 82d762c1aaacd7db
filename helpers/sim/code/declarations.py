"""Which variables a line of the source uses that were declared without a value."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_STATEMENT = re.compile(r"(?<=[;{}()])(?:[^;{}()])+;")
_TYPE = re.compile(r"\s*(?:(?:const|unsigned|signed|volatile|struct|register)\s+)*[A-Za-z_][\w:]*(?:<[^;=<>]*>)?\s*[\s*&]\s*(?=[A-Za-z_])")
_NAME = re.compile(r"\s*\**\s*([A-Za-z_]\w*)\s*((?:\[[^\]]*\]\s*)*)$")
_NO_TYPE = frozenset({"return", "goto", "using", "namespace", "typedef", "extern", "else", "case", "break", "continue", "new", "delete"})
_HAS_PLACE = re.compile(r"\b(?:__shared__|__device__|__constant__|static|extern)\b")


class UninitializedVariable(NamedTuple):
    """A local variable declared without a value, at this line. extents: '[8][8]' of an array, else ''."""

    name: str
    line: int
    extents: str


def without_comments(source: str) -> str:
    """`source` with a blank for each comment."""
    return _COMMENTS.sub(" ", source)


@functools.lru_cache(maxsize=8)
def without_value(source: str) -> tuple[UninitializedVariable, ...]:
    """The local variables of a source that are declared without a value, as well as can be told without a compiler."""
    text = _COMMENTS.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), source)
    found = []
    for statement in _STATEMENT.finditer(text):
        code = statement[0][:-1]
        kind = _TYPE.match(code)
        if kind is None or kind[0].split()[0] in _NO_TYPE or _HAS_PLACE.search(code):
            continue
        at = kind.end()
        for part in re.split(r",(?![^\[]*\])", code[at:]):
            name = _NAME.match(part)
            if name is not None:
                line = text.count("\n", 0, statement.start() + at + name.start(1)) + 1
                found.append(UninitializedVariable(name[1], line, name[2].strip()))
            at += len(part) + 1
    return tuple(found)


@functools.lru_cache(maxsize=1024)
def used_without_value(source: str, line: int | None, array: bool = False) -> tuple[UninitializedVariable, ...]:
    """The variables that line `line` uses and that were declared before without a value: those that nothing is ever assigned to
    where there are any, else all. array: only arrays."""
    lines = source.split("\n")
    if line is None or not 1 <= line <= len(lines):
        return ()
    words = set(re.findall(r"[A-Za-z_]\w*", without_comments(lines[line - 1])))
    found = {
        declared.name: declared
        for declared in without_value(source)
        if declared.line <= line and declared.name in words and (declared.extents or not array)
    }
    never = [declared for name, declared in found.items() if not re.search(rf"\b{name}\s*(?:\[[^\]]*\]\s*)*=(?!=)", source)]
    return tuple(never or found.values())
