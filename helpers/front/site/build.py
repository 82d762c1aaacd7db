"""Build the site: lessons, glossary, cheat sheet, ladder and validation report as static pages, with search and the machine in the page."""

from __future__ import annotations

import html
import json
import re
import shutil
import time
import tomllib
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

import nbformat
from jinja2 import Environment, FileSystemLoader
from nbformat import NotebookNode

from helpers.course import evidence
from helpers.course.glossary import PAGE as GLOSSARY
from helpers.course.rungs import DATA
from helpers.course.steps import STEPS, Step, get
from helpers.element_types import element_type
from helpers.errors import CourseError, plural
from helpers.files import write_whole
from helpers.front import cheatsheet, launchers, tooltips
from helpers.front.catalogues import SITE
from helpers.translation import ENGLISH, languages, own_name, translated, translations

from . import browser_python, trials
from .executed import executed
from .lesson_html import Body, PageSection, Pictures, body, in_language, sections, with_anchors_of

ASSETS = Path(__file__).with_name("assets")
_MARK = ".nojekyll"  # GitHub Pages publishes the files as they are; also tells that an earlier site is here
_SIZES = (1024, 2048, 4096, 8192)


@dataclass(frozen=True)
class Page:
    """One page: its file, what menus call it, its content, its sections, the scripts that it needs, and its language."""

    address: str
    title: str
    content: str
    sections: tuple[PageSection, ...] = ()
    scripts: tuple[str, ...] = ()
    language: str = ENGLISH


def build(output: Path, lessons: Sequence[str] = (), pyodide: Path | None = None, say: Callable[[str], None] = print) -> int:
    """Write the site into the folder `output`. Returns the exit code.

    lessons: numbers or slugs; all without any. pyodide: a folder of Pyodide's files, else that of the extra `site`; without either, the
    machine does not run in the pages, which then say so. Raises CourseError if a lesson does not run, or the folder cannot be written.
    """
    start = time.monotonic()
    chosen = steps(lessons)
    python = browser_python.found(pyodide)
    try:
        _empty(output)
        say(plural(len(chosen), "lesson"))
        pages = _pages(chosen, output, python, say)
        _write(pages, output)
        if python is None:
            say("Pyodide is not installed (uv sync --extra site), so the pages show recorded answers only.")
        else:
            say(f"Python for the browser: {browser_python.write(python, output / 'pyodide') / 1e6:.1f} MB")
    except OSError as error:
        raise CourseError(f"The site cannot be written to {output}: {error.strerror or error}.") from error
    size = sum(path.stat().st_size for path in output.rglob("*") if path.is_file())
    say(f"wrote {output}: {len(pages)} pages, {size / 1e6:.0f} MB, {time.monotonic() - start:.0f} s")
    say(f"To look at it: python -m http.server --directory {output}")
    return 0


def _empty(output: Path) -> None:
    """Make the folder, or empty it if an earlier site is in it. Raises CourseError for one that holds anything else."""
    if output.is_dir() and any(output.iterdir()) and not (output / _MARK).is_file():
        raise CourseError(f"{output} holds something that is no site of `course site`: name another folder, or empty it.")
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    (output / _MARK).touch()


def steps(wanted: Iterable[str]) -> list[Step]:
    """The steps of these numbers or slugs in the order of the table, all if there are none. Raises UnknownStepError for what is none."""
    found = {get(int(name) if name.isdigit() else name).slug for name in wanted}
    return [step for step in STEPS if not found or step.slug in found]


def _pages(chosen: Sequence[Step], output: Path, python: Path | None, say: Callable[[str], None]) -> list[Page]:
    pictures = Pictures(output / "pictures")
    made: dict[str, list[Page]] = {}
    for path, notebook in executed([step.notebook_path for step in chosen], say):
        step = next(step for step in chosen if step.notebook_path == path)
        made[step.slug] = in_all_languages(step, notebook, pictures, output / "kernels", python is not None)
    lessons = [page for step in chosen for page in made[step.slug]]
    homes = [home(chosen), *(home(chosen, language) for language in languages() if any(page.language == language for page in lessons))]
    return [*homes, *lessons, glossary(pictures), sheet(), ladder(), validation()]


# ------------------------------------------------------------------------------------------------------------- single pages


def lesson(step: Step, found: Body, kernels: Path, live: bool) -> Page:
    """The page of a lesson with this content. kernels: folder for what can be tried in it. live: whether the machine is there to
    execute it."""
    trial = trials.write(step, kernels, live)
    content = found.content.replace("</h1>", f"</h1>{elsewhere(step)}", 1)
    if trial:  # before the exercises, where there are any
        at = re.search(r'<div class="text"><h2 id="Practise">', content)
        content = content[: at.start()] + trial + content[at.start() :] if at else content + trial
    return Page(f"{step.name}.html", f"{step.number:02} · {step.title}", content, found.sections, ("try.js",) if trial else ())


def in_all_languages(step: Step, notebook: NotebookNode, pictures: Pictures, kernels: Path, live: bool) -> list[Page]:
    """The pages of an executed lesson: the English one, and one in each language into which any of it is translated. They differ in their
    text; code, outputs, and the addresses of their parts are the same."""
    untouched = deepcopy(notebook)  # before the page is made, which takes its widgets apart
    english = body(notebook, pictures)
    made = [lesson(step, english, kernels, live)]
    for language in languages():
        if translations(language, step.name):
            found = with_anchors_of(english, body(in_language(deepcopy(untouched), step.name, language), pictures))
            page = lesson(step, found, kernels, live)
            made.append(replace(page, address=in_tongue(page.address, language), title=found.title, language=language))
    return made


def elsewhere(step: Step) -> str:
    """Links that open the lesson where nothing has to be set up; "" where the repository's address is not known."""
    name = launchers.repository()
    if not name:
        return ""
    links = (("Open in Colab", launchers.colab(name, step.name)), ("Open in Binder", launchers.binder(name, step.name)))
    badges = "".join(f'<a class="badge" href="{html.escape(address)}">{label}</a>' for label, address in links)
    return f'<p class="badges">{badges}</p>'


def in_tongue(address: str, language: str) -> str:
    """The address of a page in a language: 01_naive.zh.html for 01_naive.html."""
    return address if language == ENGLISH else address.replace(".html", f".{language}.html")


def _template(name: str):
    return Environment(loader=FileSystemLoader(ASSETS), autoescape=False, trim_blocks=True).get_template(name)


def home(chosen: Sequence[Step], language: str = ENGLISH) -> Page:
    """Where a reader comes in: what the course is, and what each lesson is about."""

    def said(text: str) -> str:
        return translated(text, SITE, language)

    rows = [
        [f'<a href="{step.name}.html">{step.number:02} · {html.escape(said(step.title))}</a>', html.escape(said(step.idea))]
        for step in chosen
    ]
    trial_links = ", ".join(f'<a href="{step.name}.html#try-it">{step.number:02}</a>' for step in trials.steps() if step in chosen)
    content = _template("home.html.j2").render(
        _=said, trials=trial_links, table=_table([said("lesson"), said("the idea")], rows, left=2), partly=language != ENGLISH
    )
    return Page(in_tongue("index.html", language), said("Home"), content, tuple(sections(content)), language=language)


def glossary(pictures: Pictures) -> Page:
    """All words of the course."""
    cells = [nbformat.v4.new_markdown_cell(cell["source"]) for cell in tooltips.page()["cells"]]
    found: Body = body(nbformat.v4.new_notebook(cells=cells), pictures)
    return Page(GLOSSARY.replace(".ipynb", ".html"), "Glossary", found.content, found.sections)


def sheet() -> Page:
    """The cheat sheet, and the page to print."""
    content = re.sub(r"<h1>", '<h1 id="sheet">', cheatsheet.content(), count=1)
    link = '<p><a href="cheatsheet-print.html">As one page to print</a></p>'
    return Page(
        "cheatsheet.html",
        "Cheat sheet",
        f'<div class="sheet">{content}{link}</div>',
        (PageSection("Cheat sheet", "sheet", "rules limits units"),),
    )


def ladder() -> Page:
    """The recorded times of every step."""
    device = evidence.recorded("naive", _SIZES[-2]).rows[0].device
    rows, day = [], ""
    for step in STEPS:
        if not step.entry:
            continue
        cells = []
        for size in _SIZES:
            found = evidence.on_record(step.slug, size).rows
            cells.append(
                f"{found[0].tflops:.1f}<br><small>{100 * found[0].cublas_ratio:.0f} %</small>" if found and found[0].cublas_ratio else "–"
            )
            day = max(day, *(rung.date for rung in found)) if found else day
        label = f"{step.number:02} · {html.escape(step.title)}"
        rows.append([label, html.escape(element_type(step.dtype).label), *cells])
    head = ["step", "elements", *(f"{size}³" for size in _SIZES)]
    content = (
        '<h1 id="ladder">The ladder</h1>'
        '<p>TFLOPS of each step, and below them what that is of cuBLAS in the same run. Recorded '
        f"on one {html.escape(device)} by {html.escape(day)}; –: not recorded.</p>"
        f'<p><img class="turned" src="assets/ladder.svg" alt="A bar for each step, as long as its recorded TFLOPS at 4096 cubed"></p>'
        + _table(head, rows, left=2)
    )  # fmt: skip
    return Page("ladder.html", "The ladder", content, tuple(sections(content)))


def validation() -> Page:
    """How far the predictions are off, run by run."""
    report = tomllib.loads((DATA / "validation.toml").read_text(encoding="utf-8"))
    groups = [(name.replace("_", " "), group) for name, group in report.items() if isinstance(group, dict) and "mean" in group]
    summary = [
        [html.escape(name), str(group["runs"]), *(_percent(group[key]) for key in ("mean", "worst", "bias"))] for name, group in groups
    ]
    runs = [
        [*map(html.escape, (run["run"], run["class"])), f"{run['measured']:.4g}", f"{run['predicted']:.4g}",
         _percent(run["error"], True), "yes" if run["fitted"] else ""]
        for run in report["runs"]
    ]  # fmt: skip
    states = report["states"]
    content = (
        '<h1 id="validation">How far the predictions are off</h1>'
        f"<p>Every timed run on record ({html.escape(report['device'])}), predicted by the model of time and compared: error is "
        "predicted / measured − 1. The runs of the groups that are called fitted were used to fit the model, the others were not.</p>"
        + _table(["group", "runs", "mean size of the error", "largest", "bias"], summary, left=1)
        + f"<p>Warp states beside those that Nsight Compute sampled: of {states['launches']} launches, "
        f"{states['within_ten_points']} within ten points, {states['two_largest']} with the same two largest, "
        f"{states['two_largest_or_tied']} with two that are the largest to within two points.</p>"
        '<h2 id="runs">Run by run</h2>'
        + _table(["run", "class", "measured, ms", "predicted, ms", "error", "fitted"], runs, left=2)
    )  # fmt: skip
    return Page("validation.html", "Validation report", content, tuple(sections(content)))


def _percent(value: float, signed: bool = False) -> str:
    return f"{100 * value:{'+' if signed else ''}.1f} %"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int) -> str:
    """A table whose first `left` columns are texts. The cells are HTML."""

    def row(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}{' class=left' if i < left else ''}>{cell}</{tag}>" for i, cell in enumerate(cells)) + "</tr>"

    body_rows = "".join(row("td", cells) for cells in rows)
    return f'<div class="wide"><table><thead>{row("th", head)}</thead><tbody>{body_rows}</tbody></table></div>'


# ------------------------------------------------------------------------------------------------------------- the whole


def _write(pages: Sequence[Page], output: Path) -> None:
    """Write the pages with what all of them use."""
    template = _template("page.html.j2")
    missing = {f"{step.name}.html" for step in STEPS} - {page.address for page in pages}
    spoken = list(dict.fromkeys(page.language for page in pages))
    for language in spoken:
        menu = in_menu(pages, language)
        groups = [[page for page in menu if page.address[:1].isdigit() == lesson] for lesson in (True, False)]
        lessons, index = groups[0], f"search-index.{language}.js"
        for page in menu:
            if page.language != language:
                continue
            at = lessons.index(page) if page in lessons else None
            text = template.render(
                title=html.escape(page.title), address=page.address, menu=groups, scripts=page.scripts, language=language, index=index,
                content=to_language(menu, without_links_to(missing, page.content)), home=groups[1][0].address,
                languages=[(other.language, own_name(other.language), other.address) for other in same_page(pages, page)],
                parts=[part for part in page.sections[1:] if at is not None and part.level == 2],
                before=lessons[at - 1] if at else None, after=lessons[at + 1] if at is not None and at + 1 < len(lessons) else None,
                _=lambda text, language=language: translated(text, SITE, language),
            )  # fmt: skip
            write_whole(output / page.address, text.encode(), durable=False)
        write_whole(output / "assets" / index, search_index(menu).encode(), durable=False)
    write_whole(output / "cheatsheet-print.html", cheatsheet.page().encode(), durable=False)
    for path in ASSETS.iterdir():
        if path.suffix in (".css", ".js"):
            shutil.copy(path, output / "assets" / path.name)
    shutil.copy(DATA / "ladder.svg", output / "assets" / "ladder.svg")


def _english(page: Page) -> str:
    """The address of the English page that a page belongs to."""
    return page.address.replace(f".{page.language}.html", ".html")


def in_menu(pages: Sequence[Page], language: str) -> list[Page]:
    """What a reader of the language is offered: each page once, in the language if there is that, else in English."""
    own = {_english(page): page for page in pages if page.language == language}
    return [own.get(page.address, page) for page in pages if page.language == ENGLISH]


def same_page(pages: Sequence[Page], page: Page) -> list[Page]:
    """The page in the other languages that it is in."""
    return [other for other in pages if _english(other) == _english(page) and other is not page]


def to_language(menu: Sequence[Page], content: str) -> str:
    """The content with its links to the pages of this menu."""
    for page in menu:
        if page.address != _english(page):
            content = re.sub(rf'href="{re.escape(_english(page))}(?=["#])', f'href="{page.address}', content)
    return content


def search_index(pages: Iterable[Page]) -> str:
    """The words of all pages as a script: one that a page can load wherever it was opened from."""
    entries = [
        {"page": page.title, "title": part.title, "address": f"{page.address}#{part.anchor}", "text": part.text}
        for page in pages
        for part in page.sections
    ]
    text = json.dumps(entries, ensure_ascii=False).replace("</", r"<\/")
    return f"window.SEARCH_INDEX = {text};\n"


def without_links_to(missing: set[str], content: str) -> str:
    """The content without links to pages that this site does not have, because only some lessons were asked for."""
    return re.sub(
        r'<a href="([^"#]+)(?:#[^"]*)?"[^>]*>(.*?)</a>', lambda link: link[2] if link[1] in missing else link[0], content, flags=re.DOTALL
    )
