"""What is asked of every executed notebook, whoever executed it."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser

from nbformat import NotebookNode

from helpers.course.exercises import exercises
from helpers.course.steps import Step


def errors(notebook: NotebookNode) -> list[str]:
    """Error outputs of cells that do not announce one (tag raises-exception), as sentences; unanswered tags; and pictures that show an
    error in their place. Those raise none: outputs of widgets count once they are frozen."""
    found = []
    for cell in notebook.cells:
        raised = [output for output in cell.get("outputs", ()) if output.output_type == "error"]
        expected = "raises-exception" in cell.metadata.get("tags", ())
        if raised and not expected:
            found += [f"cell {cell.id}: {error.ename}: {error.evalue}" for error in raised]
        if expected and not raised:
            found.append(f"cell {cell.id} is tagged raises-exception and raises none")
        shown = "".join(str(output.get("data", {}).get("text/html", "")) for output in cell.get("outputs", ()))
        if "The picture could not be drawn." in shown:
            found.append(f"cell {cell.id} shows why a picture could not be drawn")
    return found


class _Images(HTMLParser):
    """Collects the images of an HTML output that have no alternative text."""

    def __init__(self):
        super().__init__()
        self.silent: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        names = dict(attributes)
        if tag == "img" and not names.get("alt"):
            self.silent.append(f"<img> without alt: {(names.get('src') or '')[:40]}")
        if tag == "svg" and not (names.get("aria-label") or names.get("aria-labelledby") or names.get("aria-hidden")):
            self.silent.append("<svg> without aria-label")


def pictures_without_text(notebook: NotebookNode) -> list[str]:
    """Pictures that a reader who does not see would not know about. Outputs of widgets count once they are frozen."""
    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if html := data.get("text/html"):
                images = _Images()
                images.feed(html)
                found += [f"cell {cell.id}: {image}" for image in images.silent]
            elif any(kind.startswith("image/") for kind in data) and not _alt(output):
                found.append(f"cell {cell.id}: a picture without alternative text")
    return found


def _alt(output: NotebookNode) -> bool:
    """Does a picture's output carry a description? (Its text/plain, unless that is only a Python repr.)"""
    text = output.data.get("text/plain", "")
    return bool(text) and not text.startswith("<")


def wrong_checks(notebook: NotebookNode, step: Step) -> list[str]:
    """What the lesson's checks should have said and did not, as sentences.

    The step's own kernel passes, with every counter that the step promises. The starter of each exercise in CUDA is reported: not
    yet, with a line that is not met and without what is said to whoever solved it.
    """
    found = []
    if step.entry:
        said = _said(notebook, f"{step.slug}.check()")
        if not re.search(r"<b>[^<]*: passed\b", said) or "✗" in said or "✓" not in said:
            found.append(f"the kernel of step {step.name} does not pass its check")
        found += [f"nothing is said of {wanted.text}" for wanted in step.expect if html.escape(wanted.text) not in said]
    for item in exercises().values():
        if item.lesson != step.number or item.language != "cu":
            continue
        said = _said(notebook, f'exercise("{item.slug}").check({item.slug})')
        if f"<b>{html.escape(item.title)}: not yet</b>" not in said or "✗" not in said:
            found.append(f"the starter of {item.slug} is not reported")
        if html.escape(item.after) in said:
            found.append(f"the starter of {item.slug} is told what its solution is told")
    return found


def _said(notebook: NotebookNode, source: str) -> str:
    """The HTML that the cell of this source shows, '' without such a cell."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip() == source]
    return "".join(output.get("data", {}).get("text/html", "") for cell in cells for output in cell.outputs)
