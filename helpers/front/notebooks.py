"""Notebooks in one canonical form, with the reference kernels and the glossary in them: what `course sync` writes and tests hold.

Canonical means: no outputs, no execution counts, cell ids that exist and differ, the same metadata everywhere, and
JSON as nbformat writes it. A notebook that was opened and run changes in its text only where somebody changed it.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import re
from pathlib import Path

import nbformat

from helpers.course.glossary import PAGE as GLOSSARY
from helpers.course.notebook_file import dumps, read, source, tags
from helpers.course.steps import EXERCISE, ROOT, STEPS, Step
from helpers.errors import CourseError
from helpers.files import read_whole, write_whole
from helpers.paths import data_folder

from . import tooltips

METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
KEPT_CELL_METADATA = ("jupyter", "slideshow", "tags")  # all else is some front end's note to itself
_HEADING = re.compile(r"\A# \d\d · .*")
_NEXT = re.compile(r"(\*\*Next:\*\*\s)\[([^\]]*)\]\([^)\s]*\.ipynb\)")
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def canonical(notebook: dict) -> dict:
    """The canonical form of `notebook`, as `notebook_file.parsed` gives it."""
    seen: set[str] = set()
    cells = []
    for index, cell in enumerate(notebook["cells"]):
        text = source(cell)
        name = cell.get("id", "")
        if not _ID.fullmatch(name) or name in seen:
            name = hashlib.sha256(f"{index}:{text}".encode()).hexdigest()[:8]
        seen.add(name)
        metadata = {key: cell["metadata"][key] for key in KEPT_CELL_METADATA if cell.get("metadata", {}).get(key)}
        clean = {"cell_type": cell["cell_type"], "id": name, "metadata": metadata}
        clean["source"] = text.splitlines(keepends=True)
        if cell["cell_type"] == "code":
            clean |= {"execution_count": None, "outputs": []}
        elif cell.get("attachments"):
            clean["attachments"] = cell["attachments"]
        cells.append(clean)
    return {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}


def kernel_cell(notebook: dict, step: Step) -> dict:
    """The code cell that holds the step's kernel: tagged `kernel`, else the first that begins `%%cuda <slug>`.

    Raises CourseError if there is none.
    """
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code" and source(cell).startswith("%%cuda")]
    tagged = [cell for cell in code if "kernel" in tags(cell)]
    named = [cell for cell in code if source(cell).split("\n", 1)[0].split()[1:2] == [step.slug]]
    for cell in tagged + named:
        return cell
    raise CourseError(f"{step.notebook_path.name} has no cell for its kernel: one code cell must begin with `%%cuda {step.slug}`.")


def with_kernel(notebook: dict, step: Step, kernel: str) -> dict:
    """`notebook` with the text of the reference kernel in its kernel cell, below the cell's own `%%cuda` line."""
    target = kernel_cell(notebook, step)
    magic = source(target).split("\n", 1)[0]
    new = target | {"source": f"{magic}\n{kernel.rstrip()}"}
    return notebook | {"cells": [new if cell is target else cell for cell in notebook["cells"]]}


def with_names(notebook: dict, step: Step) -> dict:
    """`notebook` with what the table says in its heading, "# 03 · Shared tile" in the first cell, and in the link behind "**Next:**" of the
    cell with the id `next`, which leads to the row below."""
    following = next((row for row in STEPS if row.number > step.number), None)
    cells = list(notebook["cells"])
    for index, cell in enumerate(cells):
        text = source(cell)
        if index == 0:
            text = _HEADING.sub(lambda found: f"# {_named(step)}", text, count=1)
        if cell.get("id") == "next" and following is not None:
            text = _NEXT.sub(lambda found: f"{found[1]}[{_named(following)}]({following.notebook_path.name})", text, count=1)
        if text != source(cell):
            cells[index] = cell | {"source": text}
    return notebook | {"cells": cells}


def _named(step: Step) -> str:
    return f"{step.number:02} · {step.title}"


def with_starters(notebook: dict, name: str = "the notebook") -> dict:
    """`notebook` with the starter of its exercise in every cell tagged `exercise:<slug>`, below a `%%cuda` line if any.

    name: what the notebook is called in messages. Raises CourseError for an exercise that does not exist, and for a kernel in a cell that
    does not begin with `%%cuda`.
    """
    cells = []
    for index, cell in enumerate(notebook["cells"]):
        slugs = [tag.removeprefix(EXERCISE) for tag in tags(cell) if tag.startswith(EXERCISE)]
        if cell["cell_type"] == "code" and slugs:
            from helpers.course.exercises import exercise  # here: it brings the whole machine with it

            where = f"{name}, cell {index}, which is tagged {EXERCISE}{slugs[0]}"
            try:
                item = exercise(slugs[0])
            except CourseError as error:
                raise CourseError(f"{where}: {error.message}") from None
            first = source(cell).split("\n", 1)[0]
            magic = f"{first}\n" if first.startswith("%%cuda") else ""
            if item.language == "cu" and not magic:
                raise CourseError(f"{where}: its answer is a kernel, and such a cell begins with `%%cuda {item.slug}`.")
            cell = cell | {"source": magic + item.starter}
        cells.append(cell)
    return notebook | {"cells": cells}


def wanted_text(path: Path) -> str:
    """What the notebook at `path` should contain: canonical, with its step's name, its reference kernel, the link to the next lesson, its
    exercises' starters and the glossary's tooltips; of the glossary, all.

    Raises CourseError if the file is no notebook, or none that nbformat's schema allows.
    """
    if path.name == GLOSSARY:
        return dumps(canonical(tooltips.page()))
    notebook = read(path)
    for step in STEPS:
        if step.notebook_path.name == path.name:
            if step.kernel_path is not None:
                notebook = with_kernel(notebook, step, step.kernel_source())
            notebook = tooltips.with_tooltips(with_names(notebook, step), step.slug)
    notebook = canonical(with_starters(notebook, path.name))
    try:
        nbformat.validate(nbformat.from_dict(notebook))
    except nbformat.ValidationError as error:
        raise CourseError(f"{path} is no valid notebook: {str(error).splitlines()[0]}") from None
    return dumps(notebook)


def paths(root: Path = ROOT) -> list[Path]:
    """All lessons, in order, and the glossary. Raises CourseError if there are none."""
    found = sorted((root / "notebooks").glob("*.ipynb"))
    if not found:
        raise CourseError(f"There are no notebooks in {root / 'notebooks'}.")
    return found


def backups() -> Path:
    """Where notebooks are kept before they are overwritten."""
    return data_folder() / "backups"


def back_up(path: Path) -> Path:
    """Keep what the notebook at `path` is now in the data folder, and return where. Raises OSError if that cannot be done.

    The copy is named after its content, so that the same text is kept once.
    """
    data = read_whole(path)
    copy = backups() / f"{path.stem}.{hashlib.sha256(data).hexdigest()[:12]}.ipynb"
    with contextlib.suppress(OSError):  # there is none yet, or none that can be read
        if read_whole(copy) == data:
            return copy
    write_whole(copy, data, private=True)
    return copy


def _next(text: str) -> str:
    """The lesson that a notebook's link to the next one names, '' without one."""
    for cell in json.loads(text)["cells"]:
        if cell.get("id") == "next" and (found := _NEXT.search(source(cell))):
            return found[2]
    return ""


def sync(check: bool = False) -> int:
    """Bring every notebook of the repository to its wanted text, or with `check` print what would change.

    For those who change the course: cells and outputs are replaced. What a notebook was is kept first; where it cannot be
    kept, nothing is written and CourseError is raised. Returns the exit code.
    """
    changed = 0
    found = paths()
    for path in found:
        new = wanted_text(path)
        old = path.read_text(encoding="utf-8", errors="replace")
        if old == new:
            continue
        changed += 1
        name = path.relative_to(ROOT).as_posix()
        if check:
            lines = difflib.unified_diff(old.splitlines(), new.splitlines(), name, f"{name} (synced)", lineterm="")
            print("\n".join(lines))
        else:
            try:
                kept = back_up(path)
            except OSError as error:
                raise CourseError(f"{name} is left as it is, because no copy of it can be kept: {error}.") from error
            try:
                write_whole(path, new.encode())
            except OSError as error:
                raise CourseError(f"{name} cannot be written ({error.strerror}), and is as it was.") from error
            print(f"wrote {name}; what it was is kept in {kept}")
            if _next(old) and _next(new) != _next(old):
                print(
                    f"  it leads to {_next(new)} now, and no longer to {_next(old)}: look at the words around the link, in the cell `next`"
                )
    names = {path.name for path in found}
    for step in STEPS:
        if step.notebook_path.name not in names:
            raise CourseError(
                f"notebooks/{step.notebook_path.name} is missing: a row of helpers/course/steps.py has its lesson there. "
                "Begin with a copy of a lesson that is like it."
            )
    if check and changed:
        print(f"{changed} notebook(s) differ from their canonical form or their kernel: run `course sync`.")
        return 1
    if not changed:
        print("All notebooks are in sync.")
    return 0
