"""What the preprocessor would make of an answer, as far as the grader must know it: its directives, and what its conditions can ask.

It is read in a way that no comment and no string can hide a directive: whatever could be one is held to be one.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from helpers.errors import CourseError, cut

MOST = 1000  # conditions and macros of an answer
_BLANKS = re.compile(r"\s*")
_CONDITIONS = re.compile(r"(if|elif|define)\b")
_PARTS = re.compile(r"(//[^\n]*|/\*(?:.*?\*/|.*))|(\n)|([\"']|\?\?|%:)|\w+|\S", re.S)
_ASKED = {"defined", "__has_builtin", "__has_attribute", "__has_cpp_attribute", "__has_feature", "__has_extension"}
_OPERATORS = {"and", "or", "not", "bitand", "bitor", "xor", "compl", "not_eq"}


def directives(text: str, words: re.Pattern[str]) -> Iterator[tuple[int, re.Match[str]]]:
    """What could be a directive: where it begins, and the match of its word. text: with its continued lines joined.

    A comment behind the # ends where the next `*/` stands. Each stretch of blanks and comments is gone through once, for all
    the # that lead to it, so that no text takes longer than its length.
    """
    closed = [found.end() for found in re.finditer(r"\*/", text)]
    behind = dict[int, int]()  # where the blanks and comments end that begin at a place
    for mark in re.finditer("#|%:", text):
        place, passed = mark.end(), []
        while place not in behind:
            passed.append(place)
            blanks = _BLANKS.match(text, place)
            end = blanks.end() if blanks else place
            close = bisect_left(closed, end + len("/**/")) if text.startswith("/*", end) else len(closed)
            if close == len(closed):
                behind[place] = end
            else:
                place = closed[close]
        behind.update(dict.fromkeys(passed, behind[place]))
        if found := words.match(text, behind[place]):
            before = text[text.rfind("\n", 0, mark.start()) + 1 : mark.start()]
            if not before.rpartition("*/")[2].strip():  # a directive is the first thing on its line
                yield mark.start(), found


@dataclass(frozen=True)
class _Macro:
    """parameters: None of one that takes no arguments."""

    parameters: frozenset[str] | None
    body: tuple[str, ...]


def keep_to_numbers(text: str) -> None:
    """Raise CourseError where a condition could ask for more than numbers and which names are defined: `__has_include`, put together.

    The compiler's headers have macros that ask for a file or join words, and an answer may define such. So a condition, and each
    macro of the answer that it reaches, may call only what the answer defines, and joins nothing and quotes nothing.
    """
    macros, conditions = dict[str, list[_Macro]](), list[tuple[int, tuple[str, ...]]]()
    for count, (start, found) in enumerate(directives(text, _CONDITIONS), 1):
        if count > MOST:
            raise CourseError(f"An answer has at most {MOST:,} conditions and macros.")
        words = list(_words(text, found.end()))
        if found[1] != "define":
            conditions.append((start, tuple(word[0] for word in words)))
        elif words:
            macros.setdefault(words[0][0], []).append(_macro(words))
    for start, asked in conditions:
        reached, waiting = set[str](), [_Macro(None, asked)]
        while waiting:
            macro = waiting.pop()
            if not _plain(macro, macros):
                line, said = text.count("\n", 0, start) + 1, cut(" ".join(text[start:].partition("\n")[0].split()))
                raise CourseError(
                    f"`{said}` (line {line}) is not allowed in an answer: a condition compares numbers, asks whether names are "
                    "defined, and uses no macros but the answer's own, that join and quote nothing."
                )
            new = {word for word in macro.body if word in macros} - reached
            reached |= new
            waiting += [item for name in new for item in macros[name]]


def _words(text: str, place: int) -> Iterator[re.Match[str]]:
    """The words of a directive from a place on to the end of its line, without comments."""
    for found in _PARTS.finditer(text, place):
        if found[2]:
            return
        if not found[1]:
            yield found


def _macro(words: Sequence[re.Match[str]]) -> _Macro:
    """A definition. Where the bracket follows its name at once, it takes arguments."""
    name, *rest = words
    said = tuple(word[0] for word in rest)
    if said[:1] != ("(",) or rest[0].start() != name.end() or ")" not in said:
        return _Macro(None, said)
    end = said.index(")")
    return _Macro(frozenset(said[1:end]), said[end + 1 :])


def _plain(macro: _Macro, macros: dict[str, list[_Macro]]) -> bool:
    """Is all that is called here the answer's own, or the language's, and nothing joined or quoted?"""
    given = macro.parameters or frozenset()

    def called(word: str) -> bool:
        known = macros.get(word)
        return word not in given and (all(item.parameters is not None for item in known) if known else word in _ASKED)

    def name(word: str) -> bool:
        return (word[0].isalnum() or word[0] == "_") and word not in _OPERATORS

    if any(word in ('"', "'", "#", "%:", "??") for word in macro.body):
        return False
    for one, other in zip(macro.body, macro.body[1:], strict=False):
        if other == "(" and (one == ")" or (name(one) and not called(one))):
            return False
        if name(other) and (one == ")" or (name(one) and (one != "defined" or one in given))):
            return False
    return True
