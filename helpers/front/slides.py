"""Lessons as reveal.js pages: run the notebook, turn it into one HTML file that needs no network and no other file.

reveal.js is in lab/slides/reveal/. Formulas become MathML, which browsers draw themselves, so that no MathJax has to be
fetched or shipped. A widget becomes the picture that it first shows: a page has no kernel behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from jinja2 import pass_context
from latex2mathml.converter import convert as mathml
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbconvert.exporters import SlidesExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import NotebookNode
from traitlets.config import Config

from helpers.course.glossary import PAGE as GLOSSARY
from helpers.course.notebook_file import dumps, read
from helpers.course.steps import UnknownStepError, get
from helpers.errors import CourseError
from helpers.interrupts import delayed
from helpers.paths import cache_folder
from helpers.still import choices

from .empty_home import empty_home
from .notebooks import paths
from .own_kernel import own_kernel
from .tooltips import as_abbreviations

FOLDER = Path(__file__).resolve().parent / "lab" / "slides"
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
WIDGET_STATE = "application/vnd.jupyter.widget-state+json"


class _Renderer(IPythonRenderer):
    """Markdown to HTML with formulas as MathML."""

    def block_math(self, body: str) -> str:
        return mathml(body.strip(), display="block")

    def inline_math(self, body: str) -> str:
        return mathml(body.strip())

    def latex_environment(self, name: str, body: str) -> str:
        return mathml(f"\\begin{{{name}}}{body}\\end{{{name}}}", display="block")


def markdown(source: str) -> str:
    """HTML of one Markdown cell."""
    return MarkdownWithMath(renderer=_Renderer(escape=False)).render(source)


@pass_context
def _markdown_filter(context, source: str) -> str:
    return markdown(source)


def _still(state: dict, model: str, above: tuple[str, ...] = ()) -> Iterator[NotebookNode]:
    """The outputs that the widget `model` shows: its own, or those of its children in order; of tabs, the one in front. Nothing of
    what is damaged. above: the widgets that it lies in."""
    if model in above or model not in state:
        return
    widget = state[model]
    values, kind = widget["state"], widget.get("model_name")
    if kind == "OutputModel":
        yield from (nbformat.from_dict(output) for output in values.get("outputs", ()))
    elif kind == "ImageModel":
        for buffer in widget.get("buffers", []):
            yield nbformat.v4.new_output("display_data", {f"image/{values.get('format', 'png')}": buffer["data"]})
    elif kind == "RadioButtonsModel":
        yield nbformat.v4.new_output("display_data", {"text/html": choices(values.get("_options_labels", ()))})
    elif kind in ("HTMLModel", "HTMLMathModel") and values.get("value"):
        yield nbformat.v4.new_output("display_data", {"text/html": values["value"]})
    children = values.get("children", ())
    if "selected_index" in values and children:
        children = children[values["selected_index"] or 0 :][:1]
    for child in children:
        yield from _still(state, child.removeprefix("IPY_MODEL_"), (*above, model))


def freeze_widgets(notebook: NotebookNode) -> None:
    """Put what each widget shows in the place of the widget."""
    state = notebook.metadata.pop("widgets", {})
    for key in (WIDGET_STATE, "state"):
        state = state.get(key) if isinstance(state, dict) else {}
    state = (
        {}
        if not isinstance(state, dict)
        else {model: widget for model, widget in state.items() if isinstance(widget, dict) and isinstance(widget.get("state"), dict)}
    )
    for cell in notebook.cells:
        outputs: list = []
        for output in cell.get("outputs", ()):
            model = output.get("data", {}).get(WIDGET_VIEW, {}).get("model_id")
            outputs += [output] if model is None else _still(state, model)
        if cell.cell_type == "code":
            cell.outputs = outputs


class _Client(NotebookClient):
    """Executes a notebook. Ctrl-C ends its kernel at once and is raised, where nbclient would go on until it misses the kernel."""

    interrupted = False

    async def async_start_new_kernel(self, **kwargs: Any) -> None:
        with contextlib.suppress(RuntimeError):  # outside the main thread, and on Windows, an interrupt comes without a handler
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._end, asyncio.current_task())
        await super().async_start_new_kernel(**kwargs)

    def _end(self, task: asyncio.Task) -> None:
        self.interrupted = True
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)  # a second one need not wait for this
        if self.km is not None and self.km.has_kernel:
            self._killed = asyncio.ensure_future(self.km.signal_kernel(signal.SIGKILL))  # what is only interrupted prints where it was
        task.cancel()

    def execute(self, *args: Any, **kwargs: Any) -> NotebookNode:
        """As ever. Raises KeyboardInterrupt for an interrupt, whatever came of it."""
        try:
            return super().execute(*args, **kwargs)
        except (Exception, asyncio.CancelledError):
            if self.interrupted:
                raise KeyboardInterrupt from None
            raise


def run(notebook: NotebookNode, folder: Path, name: str) -> None:
    """Execute `notebook` in place, in `folder`, as a reader without progress would, with what this one has compiled already.

    Raises CourseError with the cell that failed.
    """
    kept = cache_folder("kernels")
    try:
        with empty_home(kept and kept.parent) as environment, own_kernel(notebook, folder, _Client, timeout=600) as client:
            client.execute(env=environment)
    except CellExecutionError as error:
        raise CourseError(f"{name} did not run, so it has no slides: {error.ename}: {error.evalue}") from error
    except (CellTimeoutError, DeadKernelError) as error:
        raise CourseError(f"{name} did not run, so it has no slides: {str(error).splitlines()[0]}") from error


def page(notebook: NotebookNode, title: str) -> str:
    """The HTML page of an executed notebook."""
    config = Config()
    config.HighlightMagicsPreprocessor.languages = {"%%cuda": "cuda"}
    exporter = SlidesExporter(
        config=config,
        template_name="gemm-ladder",
        extra_template_basedirs=[str(FOLDER / "templates")],
        exclude_input_prompt=True,
        exclude_output_prompt=True,
        filters={"markdown2html": _markdown_filter},
    )
    parts = {
        "title": title,
        "reveal_css": (FOLDER / "reveal" / "reveal.css").read_text(encoding="utf-8"),
        "course_css": (FOLDER / "course.css").read_text(encoding="utf-8"),
        "reveal_js": (FOLDER / "reveal" / "reveal.js").read_text(encoding="utf-8"),
        "notes_js": (FOLDER / "reveal" / "notes.js").read_text(encoding="utf-8"),
    }
    made, _ = exporter.from_notebook_node(notebook, resources={"slides": parts})
    made = as_abbreviations(made)
    return re.sub(r'href="(\w+)\.ipynb', r'href="\1.slides.html', made)  # from lesson to lesson, from page to page


def _title(notebook: NotebookNode, path: Path) -> str:
    """The notebook's first heading, or its file name."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and (heading := re.match(r"#+\s*(.+)", cell.source)):
            return heading[1].strip()
    return path.stem


def _path(name: str) -> Path:
    """A notebook's file, or that of the lesson which `name` is the number or the slug of. Raises CourseError for neither."""
    if Path(name).suffix or Path(name).exists():
        return Path(name)
    try:
        return get(name).notebook_path
    except UnknownStepError as error:
        raise CourseError(f"{error.message} A notebook of your own is named by its file, with .ipynb.") from error


def _notebook(path: Path) -> NotebookNode:
    """The notebook in the file `path`. Raises CourseError if there is none, or none that can be shown."""
    try:
        notebook = nbformat.reads(dumps({"metadata": {}, "nbformat_minor": 0} | read(path)), as_version=4)
        nbformat.validate(notebook)
    except nbformat.ValidationError as error:
        raise CourseError(f"{path} is no valid notebook: {str(error).splitlines()[0]}") from None
    if all(cell.metadata.get("slideshow", {}).get("slide_type") == "skip" for cell in notebook.cells):
        raise CourseError(f"{path} has no cells to show, so it has no slides.")
    return notebook


def build(notebooks: list[str], output: str, execute: bool = True) -> int:
    """Write one page per notebook, a file or a lesson's number or slug, into the folder `output`. Returns the exit code.

    Raises CourseError if a notebook is missing or does not run, or the folder cannot be written.
    """
    sources = [_path(name) for name in notebooks] or [path for path in paths() if path.name != GLOSSARY]
    folder = Path(output)
    for path in sources:
        notebook = _notebook(path)
        if execute:
            run(notebook, path.resolve().parent, path.name)
        freeze_widgets(notebook)
        target = folder / f"{path.stem}.slides.html"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            text = page(notebook, _title(notebook, path))
            with delayed():
                target.write_text(text, encoding="utf-8", errors="replace")
        except OSError as error:
            raise CourseError(f"The slides cannot be written to {folder}: {error.strerror}.") from error
        print(f"wrote {target}", flush=True)
    return 0
