"""The words of the course, from glossary.toml: looked up in a cell, as a page, and as tooltips in the lessons.

glossary("wavefront")    what it means, where it is taught, and what Nsight Compute calls it
glossary()               all of them
"""

from __future__ import annotations

import difflib
import functools
import html
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.arguments import explained
from helpers.errors import CourseError

from .steps import Step, get
from .table import Cell, Table, Tabular

FILE = Path(__file__).with_name("glossary.toml")
PAGE = "glossary.ipynb"


@dataclass(frozen=True)
class Term:
    """One word. also: other spellings. asked: names that only `glossary` looks for. means: one or two sentences. nvidia: what CUDA's tools
    call it, or "". basic: so common that only its own lesson marks it. apart, not_in: phrases, and slugs of lessons, in which it means
    something else."""

    name: str
    means: str
    step: Step
    also: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    nvidia: str = ""
    basic: bool = False
    apart: tuple[str, ...] = ()
    not_in: tuple[str, ...] = ()

    @property
    def spellings(self) -> tuple[str, ...]:
        return self.name, *self.also

    @property
    def anchor(self) -> str:
        """Where it stands on the page: what JupyterLab and nbconvert call its heading."""
        return self.name.replace(" ", "-")

    @property
    def taught(self) -> str:
        return f"{self.step.number:02} · {self.step.title}"


@dataclass(frozen=True, repr=False)
class Words(Tabular):
    """Some terms, one a row."""

    terms: Sequence[Term]

    def table(self) -> Table:
        rows: list[tuple[str | Cell, ...]] = []
        for term in self.terms:
            link = f"<a href='{term.step.name}.ipynb'>{html.escape(term.taught)}</a>"
            nvidia = Cell(term.nvidia, html.escape(term.nvidia).replace("_", "_<wbr>"))
            rows.append((Cell(term.name, f"<b>{html.escape(term.name)}</b>"), term.means, Cell(term.taught, link), nvidia))
        return Table(("term", "what it means", "lesson", "NVIDIA's own word"), rows, left=range(4))


@functools.cache
def terms() -> tuple[Term, ...]:
    """All terms, in the order in which they are taught."""
    return tuple(_term(**row) for row in tomllib.loads(FILE.read_text(encoding="utf-8"))["term"])


def _term(*, lesson: str, **rest: Any) -> Term:
    """A term from its table in the file. Raises TypeError for a key that no term has."""
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in rest.items()}
    return Term(step=get(lesson), **values)


@functools.cache
def pattern() -> re.Pattern[str]:
    """Finds every term in a text, the longest where one holds another; `term_at` says which."""
    found = []
    for index, term in enumerate(terms()):
        found += [(spelling, f"t{index}") for spelling in term.spellings] + [(phrase, "apart") for phrase in term.apart]
    found.sort(key=lambda pair: -len(pair[0]))
    parts = [f"(?P<{group}_{number}>{_spelled(spelling)})" for number, (spelling, group) in enumerate(found)]
    return re.compile(rf"(?<![\w-])(?:{'|'.join(parts)})(?![\w-])")


def _spelled(spelling: str) -> str:
    """A pattern for one spelling: over line ends, in the plural, and at the start of a sentence where it is no name."""
    words = r"\s+".join(map(re.escape, spelling.split(" ")))
    plural = f"{words}s?"
    return plural if any(letter.isupper() for letter in spelling) else f"(?i:{plural})"


def term_at(match: re.Match[str]) -> Term | None:
    """The term that `pattern` found; None where the word means something else."""
    group = str(match.lastgroup).partition("_")[0]
    return None if group == "apart" else terms()[int(group.removeprefix("t"))]


@functools.cache
def _by_key() -> dict[str, Term]:
    return {_key(name): term for term in terms() for name in (*term.spellings, *term.asked)}


def _key(word: str) -> str:
    """What all spellings of a word have in common: small letters, the singular, no hyphens, British s for American z."""
    words = re.sub(r"[-_\s]+", " ", word.casefold()).strip(" .,;:!?*`'\"()").split(" ")
    return " ".join(re.sub(r"(?<=[^s])s$", "", re.sub(r"(?<=[a-z])iz(?=[ei]|ation)", "is", one)) for one in words)


@explained
def glossary(word: str | None = None) -> Words:
    """What a word means; without a word, all of them. Raises CourseError for one that is not there, with those that look like it."""
    if word is None:
        return Words(terms())
    asked = _key(word) if isinstance(word, str) else ""
    if term := _by_key().get(asked):
        return Words([term])
    known = {_key(spelling): spelling for term in terms() for spelling in term.spellings}
    near = difflib.get_close_matches(asked, known, 3) or [key for key in known if asked and asked in key][:3]
    advice = f"Did you mean {' or '.join(known[key] for key in near)}?" if near else "glossary() shows all words."
    raise CourseError(f"The glossary has no {word!r}. {advice}")
