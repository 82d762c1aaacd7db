"""Whose kernel an answer is: that of the exercise, mended or changed, or one that stands elsewhere in the course.

Compared are the words of the code, without comments, line breaks and the kernel's name. A kernel that is right and meets the counters is
an answer in whatever way it was made from the starter, so only what is nearly another one, and far from its own, is refused.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

_WORDS = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|\w+|[^\w\s]', re.S)
_COPY = 0.95  # so like a kernel is a copy of it; solutions are as like their starters, and lessons' kernels up to 0.92, but for one
_NEARER = 0.03  # and by so much less like the exercise's own
_MENDED = 0.6  # so much of what is to be mended is left; of all solutions more than 0.95


@dataclass(frozen=True)
class Known:
    """A kernel of the course. whose: as a sentence goes on, "lesson 03's own kernel"."""

    whose: str
    name: str
    source: str


def code(source: str, name: str) -> tuple[str, ...]:
    """The words of a source without its comments, and without the name of its kernel."""
    return tuple("kernel" if word == name else word for word in _WORDS.findall(source) if not word.startswith(("//", "/*")))


@functools.lru_cache(maxsize=256)
def _matcher(source: str, name: str) -> SequenceMatcher[str]:
    """Of a kernel of the course, which many answers are compared with."""
    matcher = SequenceMatcher[str](autojunk=False)
    matcher.set_seq2(code(source, name))
    return matcher


def likeness(words: Sequence[str], source: str, name: str, least: float = 0.0) -> float:
    """How much of two codes is the same, from 0 to 1; 0 where it is less than `least`."""
    matcher = _matcher(source, name)
    matcher.set_seq1(words)
    if any(bound() < least for bound in (matcher.real_quick_ratio, matcher.quick_ratio)):
        return 0.0
    found = matcher.ratio()
    return found if found >= least else 0.0


def copied(words: Sequence[str], solution: Known, starter: str, others: Sequence[Known], near: bool = True) -> str:
    """Whose kernel the words are, where it is not the exercise's; "" otherwise. near: an edited copy is one, too.

    A right answer may be another exercise's: it is one if it changes no more of the starter than the solution does, or nothing but what
    the starter leaves to be written. Whoever writes that may write what another exercise's starter shows to everybody.
    """
    if words == code(solution.source, solution.name):
        return ""
    least = likeness(code(solution.source, solution.name), starter, solution.name)
    own = max(likeness(words, text, solution.name) for text in (starter, solution.source))
    found = [(0.0, "")]
    for other in others:
        like = likeness(words, other.source, other.name, _COPY)
        elsewhere = like == 1 and likeness(words, starter, solution.name) < least and not completes(words, solution, starter)
        if (near and like > own + _NEARER) or elsewhere:
            found.append((like, other.whose))
    return max(found, key=lambda item: item[0])[1]


def completes(words: Sequence[str], solution: Known, starter: str) -> bool:
    """Are the words those of the starter, with something else at most in the places where the solution has something else?"""
    given = code(starter, solution.name)
    matcher = SequenceMatcher(None, given, code(solution.source, solution.name), autojunk=False)
    parts = [given[block.a : block.a + block.size] for block in matcher.get_matching_blocks() if block.size]
    if not parts or tuple(words[: len(parts[0])]) != parts[0] or tuple(words[-len(parts[-1]) :]) != parts[-1]:
        return False
    at = len(parts[0])
    for part in parts[1:-1]:
        at = next((i + len(part) for i in range(at, len(words) - len(part) + 1) if tuple(words[i : i + len(part)]) == part), 0)
        if not at:
            return False
    return at <= len(words) - len(parts[-1])


def kept(words: Sequence[str], starter: str, name: str) -> bool:
    """Is the starter still to be seen in an answer that mends it?"""
    return likeness(words, starter, name, _MENDED) > 0
