"""An executed notebook as HTML: text with formulas as MathML, code with colours, outputs with their pictures in files beside the page."""

from __future__ import annotations

import base64
import hashlib
import html
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nbconvert.filters.ansi import ansi2html
from nbformat import NotebookNode
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import CudaLexer, PythonLexer

from helpers.errors import CourseError
from helpers.files import write_whole
from helpers.front import slides
from helpers.front.catalogues import questions, translated_text
from helpers.front.slides import WIDGET_VIEW
from helpers.translation import translated
from helpers.views.canvas import THEME

from .frames import MIME

_DATA = re.compile(r'src="data:image/(png|jpeg|svg\+xml);base64,([^"]+)"')
_SUFFIX = {"png": "png", "jpeg": "jpg", "svg+xml": "svg"}
_HEADING = re.compile(r'<h([1-6]) id="([^"]*)">(.*?)</h\1>', re.DOTALL)
_PAGE = re.compile(r'href="([\w-]+)\.ipynb(#[^"]*)?"')


@dataclass
class Pictures:
    """The folder into which the pictures of all pages go, each once."""

    folder: Path
    _known: set[str] = field(default_factory=set)

    def moved(self, text: str) -> str:
        """HTML with its pictures in files, which the browser loads when they are to be seen."""
        return _DATA.sub(lambda found: f'loading="lazy" src="{self.file(found[1], base64.b64decode(found[2]))}"', text)

    def file(self, kind: str, data: bytes) -> str:
        """The address of a picture of this kind of image/…, seen from a page."""
        name = f"{hashlib.sha256(data).hexdigest()[:20]}.{_SUFFIX[kind]}"
        if name not in self._known:
            write_whole(self.folder / name, data, durable=False)
            self._known.add(name)
        return f"{self.folder.name}/{name}"


@dataclass(frozen=True)
class PageSection:
    """A part of a page that can be found: its heading, the heading's id, the text below it, and the heading's level."""

    title: str
    anchor: str
    text: str
    level: int = 1


@dataclass(frozen=True)
class Body:
    """A page's content as HTML, and its sections in order."""

    content: str
    sections: tuple[PageSection, ...]

    @property
    def title(self) -> str:
        return self.sections[0].title if self.sections else ""


def body(notebook: NotebookNode, pictures: Pictures) -> Body:
    """The content of a page. Cells of the type Notes are for who lectures, and left out."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if MIME in output.get("data", {}):
                output.data.pop(WIDGET_VIEW, None)
    slides.freeze_widgets(notebook)
    made = []
    for cell in notebook.cells:
        if cell.metadata.get("slideshow", {}).get("slide_type") == "notes":
            continue
        if cell.cell_type == "markdown":
            made.append(f'<div class="text">{to_pages(slides.markdown(cell.source))}</div>')
        elif cell.cell_type == "code":
            made.append(f'<pre class="code">{_coloured(cell.source)}</pre>')
            made += [f'<div class="output">{shown}</div>' for output in cell.outputs if (shown := _output(output, pictures))]
    content = "\n".join(made)
    return Body(content, tuple(sections(content)))


def in_language(notebook: NotebookNode, lesson: str, language: str) -> NotebookNode:
    """An executed lesson with its text in the language, changed in place: Markdown cells, and in the outputs the questions."""
    asked = {text: new for cell in notebook.cells if cell.cell_type == "code" for text in questions(cell.source)
             if (new := translated(text, lesson, language)) != text}  # fmt: skip

    def said(value: Any) -> Any:
        if isinstance(value, str):
            for text, new in asked.items():
                value = value.replace(text, new)
            return value
        if isinstance(value, list):
            return [said(part) for part in value]
        return {key: said(part) for key, part in value.items()} if isinstance(value, dict) else value

    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = translated_text(cell.source, lesson, language)
        for output in cell.get("outputs", ()):
            for kind in {MIME, "text/html"} & set(output.get("data", ())):
                output.data[kind] = said(output.data[kind])
    return notebook


def with_anchors_of(english: Body, page: Body) -> Body:
    """The content of a translated page with the ids of the English one's headings, so that an address leads to the same part in both.

    Raises CourseError if the two have not as many headings.
    """
    wanted, found = _HEADING.findall(english.content), _HEADING.findall(page.content)
    if len(wanted) != len(found):
        raise CourseError(f"A translation of the page “{english.title}” has {len(found)} headings instead of {len(wanted)}.")
    anchors = iter(anchor for _, anchor, _ in wanted)

    def named(heading: re.Match[str]) -> str:
        anchor = next(anchors)
        inside = heading[3].replace(f'href="#{heading[2]}"', f'href="#{anchor}"')
        return f'<h{heading[1]} id="{anchor}">{inside}</h{heading[1]}>'

    content = _HEADING.sub(named, page.content)
    return Body(content, tuple(sections(content)))


def to_pages(text: str) -> str:
    """HTML whose links lead from page to page instead of from notebook to notebook."""
    return _PAGE.sub(lambda found: f'href="{found[1]}.html{found[2] or ""}"', text)


def sections(content: str) -> Iterator[PageSection]:
    """The headings of a page, each with the words below it; code and outputs are not searched."""
    prose = re.sub(r'<pre class="code">.*?</pre>|<div class="output">.*?</div>\n|<math.*?</math>', " ", content, flags=re.DOTALL)
    found = list(_HEADING.finditer(prose))
    for heading, after in itertools.zip_longest(found, found[1:]):
        below = prose[heading.end() : after.start() if after else len(prose)]
        yield PageSection(words(heading[3]), heading[2], words(below), int(heading[1]))


def words(text: str) -> str:
    """The text of HTML, without its tags and the sign behind a heading."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).replace("¶", " ").split())


def _coloured(source: str) -> str:
    """The source of a cell with `span`s for colours; a cell magic's first line stays as it is."""
    plain = HtmlFormatter(nowrap=True)
    if source.startswith("%%cuda"):
        first, _, rest = source.partition("\n")
        return f'<span class="c1">{html.escape(first)}</span>\n{highlight(rest, CudaLexer(stripnl=False), plain)}'
    return highlight(source, PythonLexer(stripnl=False), plain)


def _output(output: NotebookNode, pictures: Pictures) -> str:
    """One output as HTML, "" for one with nothing to see."""
    if output.output_type == "stream":
        return f"<pre>{ansi2html(output.text)}</pre>" if output.text.strip() else ""
    if output.output_type == "error":
        return f'<pre class="error">{ansi2html(chr(10).join(output.traceback))}</pre>'
    data = output.data
    if MIME in data:
        return _tree(data[MIME], pictures)
    if "text/html" in data:
        return _html(data["text/html"], pictures)
    for kind in ("svg+xml", "png", "jpeg"):
        if f"image/{kind}" in data:
            raw = data[f"image/{kind}"]
            address = pictures.file(kind, raw.encode() if kind == "svg+xml" else base64.b64decode(raw))
            return f'<img loading="lazy" alt="{html.escape(data.get("text/plain", ""), quote=True)}" src="{address}">'
    return f"<pre>{html.escape(data['text/plain'])}</pre>" if "text/plain" in data else ""


def _html(text: str, pictures: Pictures) -> str:
    return to_pages(pictures.moved(text.replace(THEME, "")))


def _tree(tree: dict[str, Any], pictures: Pictures) -> str:
    """What a widget showed (see `frames`) as HTML that site.js brings to life; "" where there is nothing to see."""
    if "html" in tree:
        text = _html(tree["html"], pictures)
        return text if words(text) or "<img" in text else ""
    if "frames" in tree:
        return _frames(tree, pictures)
    if "choice" in tree:
        return _choice(tree, pictures)
    for kind in ("row", "column"):
        if kind in tree:
            parts = [made for part in tree[kind] if (made := _tree(part, pictures))]
            return f'<div class="{html.escape(" ".join([kind, *tree.get("class", "").split()]))}">{"".join(parts)}</div>' if parts else ""
    return ""


def _choice(tree: dict[str, Any], pictures: Pictures) -> str:
    buttons = "".join(
        f'<button type="button" data-part="{index}" aria-pressed="{str(index == tree["at"]).lower()}">{html.escape(label)}</button>'
        for index, label in enumerate(tree["choice"])
    )
    parts = "".join(
        f'<div class="part"{"" if index == tree["at"] else " hidden"}>{_tree(part, pictures)}</div>'
        for index, part in enumerate(tree["parts"])
    )
    return f'<div class="choice"><div class="buttons" role="group" aria-label="Pictures">{buttons}</div>{parts}</div>'


def _frames(tree: dict[str, Any], pictures: Pictures) -> str:
    fields = []
    for control in tree["controls"]:
        label, at, texts = html.escape(control["label"]), control["at"], control["values"]
        name = f'data-name="{html.escape(control["name"], quote=True)}" data-start="{at}"'
        if control["slider"]:
            values = html.escape("|".join(texts), quote=True)
            fields.append(
                f'<label>{label} <input type="range" min="0" max="{len(texts) - 1}" value="{at}" {name} data-values="{values}">'
                f"<output>{html.escape(texts[at])}</output></label>"
            )
        else:
            options = "".join(
                f'<option value="{index}"{" selected" if index == at else ""}>{html.escape(text)}</option>'
                for index, text in enumerate(texts)
            )
            fields.append(f"<label>{label} <select {name}>{options}</select></label>")
    shown = "".join(
        f'<div class="frame" data-at="{html.escape(at, quote=True)}"{" hidden" if at else ""}>{_html(text, pictures)}</div>'
        for at, text in tree["frames"].items()
    )
    row = f'<div class="fields">{"".join(fields)}</div>' if fields else ""
    return f'<div class="frames">{row}{shown}</div>'
