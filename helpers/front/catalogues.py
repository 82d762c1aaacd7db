"""Translations of the notebooks: their prose into catalogues, and from catalogues into notebooks.

A message is one paragraph, list, table or heading of a Markdown cell, or the text of a question that a code cell asks. Code, formulas
that stand alone, pictures and a lecturer's notes are not in catalogues: a translated notebook has them from the one notebook there is.
What the site says around the lessons has a catalogue of its own. `course sync` brings the catalogues up to date: where a paragraph
changed, its translation is marked (gettext's "fuzzy") until somebody has looked at it.
"""

from __future__ import annotations

import ast
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from babel.messages.catalog import Catalog, Message
from babel.messages.pofile import write_po
from jinja2.ext import babel_extract

from helpers.course.glossary import PAGE, terms
from helpers.course.notebook_file import read, source
from helpers.course.steps import STEPS
from helpers.errors import CourseError
from helpers.files import write_whole
from helpers.translation import ENGLISH, FOLDER, catalogue_path, languages, message_key, read_catalogue, translated

SITE = "site"  # the catalogue of what the site says around the lessons
ASSETS = Path(__file__).with_name("site") / "assets"
_FENCE = re.compile(r"^\s*(```|~~~)")
_TITLE = re.compile(rf'(\]\({re.escape(PAGE)}#[^\s()]+) "[^"]*"\)')
_TERM = re.compile(rf"\[([^\[\]]+)\]\({re.escape(PAGE)}#([^\s()]+)\)")
_HEADING = re.compile(r"#+ ")
# What a translation may not change: code, formulas, addresses, HTML's tags.
_FIXED = re.compile(r"`[^`]+`|\$\$.+?\$\$|\$[^$]+\$|\]\([^()\s]+\)|<[^<>]+>", re.DOTALL)
_HEAD = """\
# What {name} says in another language. Written by `course sync`; only the msgstr lines are yours to write.
msgid ""
msgstr ""
"Language: {language}\\n"
"MIME-Version: 1.0\\n"
"Content-Type: text/plain; charset=utf-8\\n"
"Content-Transfer-Encoding: 8bit\\n"

"""


def paragraphs(text: str) -> list[str]:
    """Markdown in pieces between blank lines; joined by blank lines they are the text again. A fence of code is one piece."""
    made: list[list[str]] = [[]]
    fence = False
    for line in text.split("\n"):
        if not line.strip() and not fence:
            made.append([])
            continue
        fence ^= bool(_FENCE.match(line))
        made[-1].append(line)
    return ["\n".join(lines) for lines in made]


def is_prose(paragraph: str) -> bool:
    """Is there anything in a paragraph to translate?"""
    if _FENCE.match(paragraph):
        return False
    return bool(re.search(r"[^\W\d_]{2}", _FIXED.sub(" ", paragraph)))


def without_titles(text: str) -> str:
    """`text` with links to the glossary and without what they show: that comes from the glossary."""
    return _TITLE.sub(r"\1)", text)


def questions(code: str) -> Iterator[str]:
    """The texts of the questions that a code cell asks."""
    if code.startswith("%%") or "ask(" not in code:
        return
    for node in ast.walk(ast.parse(re.sub(r"^[%!].*$", "", code, flags=re.MULTILINE))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ask" and len(node.args) > 1:
            if isinstance(text := node.args[1], ast.Constant):
                yield str(text.value)


def messages(notebook: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(text, id of its cell) of what a lesson has to translate, in order."""
    for cell in notebook["cells"]:
        if cell["metadata"].get("slideshow", {}).get("slide_type") == "notes":
            continue
        if cell["cell_type"] == "markdown":
            for text in paragraphs(source(cell)):
                if is_prose(text):
                    yield without_titles(text), cell["id"]
        elif cell["cell_type"] == "code":
            for text in questions(source(cell)):
                yield text, cell["id"]


def site_messages() -> Iterator[tuple[str, str]]:
    """(text, where it is from) of what the site says around the lessons: its templates' `_("…")`, and what each step is about."""
    for path in sorted(ASSETS.glob("*.j2")):
        with path.open("rb") as file:
            for _, _, text, _ in babel_extract(file, ["_"], (), {}):
                yield str(text), path.name
    yield from ((text, "home page") for text in ("Home", "lesson", "the idea"))
    for step in STEPS:
        yield step.title, f"title of step {step.number}"
        yield step.idea, f"idea of step {step.number}"


def current(name: str) -> list[tuple[str, str]]:
    """(text, comment) of what the catalogues of this name, "site" or that of a lesson, have to translate. Raises CourseError if it is
    neither."""
    if name == SITE:
        return list(site_messages())
    for step in STEPS:
        if step.name == name:
            return [(text, f"cell {cell}") for text, cell in messages(read(step.notebook_path))]
    raise CourseError(f"There is no lesson {name!r} to translate. A catalogue has the name of a notebook, or is {SITE}.po.")


def refreshed(name: str, language: str) -> str:
    """What the catalogue of this name should hold: its messages of today with the translations there are. A translation whose
    paragraph has changed is marked fuzzy, with the English it was made from; one whose paragraph is gone is kept behind "#~"."""
    wanted, had = Catalog(), read_catalogue(catalogue_path(language, name), language)
    for text, comment in current(name):
        wanted.add(text, auto_comments=[comment])
    same = {message_key(str(message.id)): message for message in had if message.id}
    for message in wanted:  # the same words with other tooltips or line breaks are no change
        before = same.get(message_key(str(message.id))) if message.id else None
        if before is not None and before.id != message.id and before.id not in wanted:
            del had[before.id]
            had.add(message.id, before.string, flags=before.flags, previous_id=before.previous_id)
    had.update(wanted)
    file = io.BytesIO()
    write_po(file, had, width=0, omit_header=True, include_previous=True, ignore_obsolete=False)
    return _HEAD.format(name=name, language=language) + file.getvalue().decode()


def sync_catalogues(check: bool = False) -> int:
    """Bring every catalogue up to date with the English text, or with `check` print which are not. Returns the exit code."""
    stale = 0
    for language, name in present():
        path, text = catalogue_path(language, name), refreshed(name, language)
        if path.read_text(encoding="utf-8") != text:
            stale += 1
            if not check:
                write_whole(path, text.encode())
            print(
                f"{'' if check else 'wrote '}{language}/{path.name}{': not up to date with the English text, run `course sync`.' * check}"
            )
    return int(check and stale > 0)


def present() -> list[tuple[str, str]]:
    """(language, name) of each catalogue there is."""
    return [(language, path.stem) for language in languages() for path in sorted((FOLDER / language).glob("*.po"))]


# ----------------------------------------------------------------------------------------------------- translated notebooks


def translated_notebook(notebook: dict[str, Any], lesson: str, language: str) -> dict[str, Any]:
    """The notebook with its Markdown cells in the language as far as they are translated; all else is as it was."""
    if language == ENGLISH:
        return notebook
    cells = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            cell = cell | {"source": translated_text(source(cell), lesson, language).splitlines(keepends=True)}
        cells.append(cell)
    return notebook | {"cells": cells}


def linked_terms(text: str) -> list[str]:
    """The anchors of the glossary's words that a text links to."""
    return [anchor for _, anchor in _TERM.findall(without_titles(text))]


def translated_text(text: str, lesson: str, language: str) -> str:
    """The text of a Markdown cell in the language, paragraph by paragraph."""
    return "\n\n".join(translated_paragraph(part, lesson, language) for part in paragraphs(text))


def translated_paragraph(text: str, lesson: str, language: str) -> str:
    """A paragraph in the language, with the tooltips that the English one has; itself where there is no translation of it."""
    found = translated(text, lesson, language)
    if found is text:
        return text
    anchors = linked_terms(text)
    means = {term.anchor: term.means for term in terms()}
    return _TERM.sub(lambda term: f'[{term[1]}]({PAGE}#{term[2]} "{means[term[2]]}")' if term[2] in anchors else term[1], found)


# ------------------------------------------------------------------------------------------------------------ what is amiss


def untranslated(name: str, language: str) -> list[str]:
    """The messages that a reader of the language sees in English, each named by its place and first words, with the reason."""
    said = []
    had = {message_key(str(message.id)): message for message in read_catalogue(catalogue_path(language, name), language) if message.id}
    for text, place in current(name):
        found = had.get(message_key(text))
        if found is None or not found.string or found.fuzzy:
            why = "outdated" if found is not None and found.fuzzy and found.string else "missing"
            said.append(f"{language}/{name}.po, {place}: {why}: {text[:60]}")
    return said


def distorted(message: Message) -> list[str]:
    """What a translation has lost or added of what it may not change (code, formulas, addresses, tags, the level of a heading, rows of a
    table), and bold text that would show its stars."""
    if not message.string:
        return []
    english, other = str(message.id), str(message.string)
    before, after = (Counter(_FIXED.findall(" ".join(text.split()))) for text in (english, other))
    wrong = [*(before - after), *(after - before)]
    first, now = (_HEADING.match(text) for text in (english, other))
    if (first and first[0]) != (now and now[0]):
        wrong.append("the level of a heading")
    if english.count("\n|") != other.count("\n|"):
        wrong.append("rows of a table")
    return wrong + _bare_stars(other)


def _bare_stars(text: str) -> list[str]:
    """Where a `**` does not begin or end bold text by the rules of CommonMark, which look for a space between a letter and a sign. Scripts
    without spaces need one there."""
    parts = re.sub(r"`[^`]+`", "`", text).split("**")
    wrong = [] if len(parts) % 2 else ["** without its other"]
    for number, (left, right) in enumerate(itertools.pairwise(parts)):
        inner, outer = (right[:1], left[-1:]) if number % 2 == 0 else (left[-1:], right[:1])
        if not inner.strip() or (not inner.isalnum() and outer.isalnum()):
            wrong.append(f"{left[-8:]}**{right[:8]}")
    return wrong
