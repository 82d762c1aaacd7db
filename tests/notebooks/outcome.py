"""What is asked of every executed notebook, whoever executed it."""

from __future__ import annotations

from html.parser import HTMLParser

from nbformat import NotebookNode


def errors(notebook: NotebookNode) -> list[str]:
    """Error outputs of cells that do not announce one (tag raises-exception), as sentences; and unanswered tags."""
    found = []
    for cell in notebook.cells:
        raised = [output for output in cell.get("outputs", ()) if output.output_type == "error"]
        expected = "raises-exception" in cell.metadata.get("tags", ())
        if raised and not expected:
            found += [f"cell {cell.id}: {error.ename}: {error.evalue}" for error in raised]
        if expected and not raised:
            found.append(f"cell {cell.id} is tagged raises-exception and raises none")
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
