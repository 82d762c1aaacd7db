"""Terms of the glossary in the lessons: the first use of each in a lesson's text is a link to the glossary's page, whose title, what the
term means, is seen by pointing at it.

A link with a title is plain Markdown: JupyterLab, GitHub and nbconvert show it, a keyboard reaches it, and without any of them it can
be read. `course sync` writes all of them; nobody else has to. Code, formulas, headings, quotations and other links stay as they are.
"""

from __future__ import annotations

import html
import re
from typing import Any

from helpers.course.glossary import PAGE, Term, pattern, term_at, terms
from helpers.course.notebook_file import source
from helpers.course.steps import get

_LINK = re.compile(rf'\[([^\[\]]+)\]\({re.escape(PAGE)}#\S+ "[^"]*"\)')
_HTML = re.compile(rf'<a href="{re.escape(PAGE)}#[^"]*" title="([^"]*)">(.*?)</a>', re.DOTALL)
# What is no running text. The first that matches wins, so that a $ in code is none of a formula.
_KEPT = re.compile(
    r"```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$\n]*(?:\n[^$\n]+)?\$|!?\[[^\[\]]*\]\([^()]*\)|<[^<>]+>|^\#+ .*?$|^>.*?$",
    re.DOTALL | re.MULTILINE,
)


def unmarked(text: str) -> str:
    """A text without its tooltips."""
    return _LINK.sub(r"\1", text)


def with_tooltips(notebook: dict[str, Any], slug: str) -> dict[str, Any]:
    """The lesson `slug` with a tooltip on the first use of each term, and no others."""
    left = {term.name for term in terms() if slug not in term.not_in and (not term.basic or term.step.slug == slug)}
    cells = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            text = unmarked(source(cell))
            spoken = cell.get("metadata", {}).get("slideshow", {}).get("slide_type") == "notes"  # learners' copies leave these out
            cell = cell | {"source": text if spoken else _marked(text, left, get(slug).number)}
        cells.append(cell)
    return notebook | {"cells": cells}


def _marked(text: str, left: set[str], lesson: int) -> str:
    """`text`, of the lesson of this number, with tooltips on the first use of the terms that are left, which are fewer then."""

    def mark(match: re.Match[str]) -> str:
        term = term_at(match)
        if term is None or term.name not in left:
            return match[0]
        left.remove(term.name)
        return link(term, match[0], lesson)

    made, at = [], 0
    for kept in _KEPT.finditer(text):
        made += [pattern().sub(mark, text[at : kept.start()]), kept[0]]
        at = kept.end()
    return "".join([*made, pattern().sub(mark, text[at:])])


def link(term: Term, text: str, lesson: int) -> str:
    """Markdown that shows `text`, and what the term means to those who point at it; in a lesson before its own, also which one that is."""
    later = f" Step {term.step.number:02} is about it." if term.step.number > lesson else ""
    return f'[{text}]({PAGE}#{term.anchor} "{term.means}{later}")'


def as_abbreviations(page: str) -> str:
    """An HTML page beside which there is no glossary: its tooltips without their links."""
    return _HTML.sub(r'<abbr title="\1">\2</abbr>', page)


def page() -> dict[str, Any]:
    """The glossary as a notebook, in the order of the alphabet."""
    said = (
        f"{len(terms())} words of the course, each with the lesson that teaches it and, in italics, what NVIDIA's own tools call it. In a "
        'lesson, point at the first use of a word to see what it means. In a cell, `glossary("wavefront")` shows one, after '
        "`from helpers import glossary`."
    )
    rows = []
    for term in sorted(terms(), key=lambda term: term.name.lower()):
        nvidia = f" NVIDIA: *{_plain(term.nvidia)}*." if term.nvidia else ""
        also = f" Also: {', '.join(term.also)}." if term.also else ""
        rows.append(f"### {term.name}\n\n{_plain(term.means)}{also}{nvidia} [{term.taught}]({term.step.name}.ipynb)")
    # One cell: JupyterLab finds a heading in a cell that is in view, and not in one below it.
    return {"cells": [_cell("glossary-head", f"# Glossary\n\n{said}"), _cell("glossary-terms", "\n\n".join(rows))]}


def _plain(text: str) -> str:
    """Text whose underscores, stars and angle brackets Markdown leaves alone."""
    return re.sub(r"([_*])", r"\\\1", html.escape(text, quote=False))


def _cell(name: str, text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": name, "metadata": {"slideshow": {"slide_type": "skip"}}, "source": text}
