"""The reader's own copies of the lessons, in the data folder: what `course lab` opens.

The repository's notebooks are never opened, so that an update finds them as it left them. The copies are brought up to
date cell by cell: a cell that the reader did not touch becomes the new one, one that the reader changed or added stays.
`.shipped/` beside them holds what they were made from. Before a copy is overwritten it is kept in `backups/`. A lecturer's notes are
not in them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers.course.notebook_file import dumps, parsed, read, source
from helpers.errors import CourseError, plural
from helpers.files import one_at_a_time, read_whole, write_whole
from helpers.paths import data_folder
from helpers.toolchain import installation
from helpers.translation import ENGLISH

from .catalogues import translated_notebook
from .notebooks import back_up, backups, canonical, paths

SHIPPED = ".shipped"
ASKS_FOR_MACHINE_CODE = "machine-code"  # the tag of such cells
_PATIENCE = 30.0  # seconds that one `course lab` waits for another to have brought the lessons up to date


def own_folder() -> Path:
    """Where the reader's copies lie."""
    return data_folder() / "lessons"


def update(root: Path, folder: Path | None = None, language: str = ENGLISH) -> list[str]:
    """Make the reader's copies of the lessons in `root`, or bring them up to date. What was done, as sentences.

    language: of the text. The copies are the same in each: with another one the text that the reader left alone changes, and code,
    answers and outputs stay. Raises OSError if the folder cannot be written; what was there is then as it was.
    """
    folder = folder or own_folder()
    with one_at_a_time(folder / SHIPPED / ".turn", _PATIENCE):
        return _update(root, folder, language)


def _update(root: Path, folder: Path, language: str) -> list[str]:
    said, updated, yours_too = _renumbered(root, folder), 0, 0
    for path in paths(root):
        own, base = folder / path.name, folder / SHIPPED / path.name
        try:
            whole, new = canonical(read(path)), read_whole(path)
        except CourseError as error:
            said.append(f"{error.message} Your copy stays as it is. `git checkout {path.name}` in {path.parent} brings the course's back.")
            continue
        shipped, before = translated_notebook(for_readers(whole), path.stem, language), _content(base)
        if shipped["cells"] != whole["cells"]:
            new = dumps(shipped).encode()
        if own.exists() and before == new:
            continue
        text, there = new, own.exists()  # there: a lesson that is brought up to date, and not made anew
        yours = read_whole(own) if there else b""
        if there and yours not in (before, new):
            kept, mine = back_up(own), _parsed(yours)
            if mine is None:
                there = False
                said.append(f"{path.name} could not be read, so you have a new one. The old one is kept in {kept}.")
            else:
                notebook, both = merged(mine, _parsed(before) or {"cells": []}, shipped)
                text = dumps(notebook).encode()
                yours_too += text != yours
                if both:
                    those = f"{plural(len(both), 'cell')} ({', '.join(both)})"
                    said.append(f"{path.name}: changed by you and by the course, and left as you have it: {those}.")
        updated += there and text != yours
        write_whole(own, text, private=True)
        write_whole(base, new, private=True)
    if updated:
        said.append(f"Brought up to date with the course: {plural(updated, 'lesson')}.")
    if yours_too:
        said[-1] += f" You had run or changed {yours_too} of them: what is yours stays, and the old copies are kept in {backups()}."
    return said


def for_readers(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook without the notes for who lectures from it.

    Where no compiler makes machine code, cells that ask for it say so, and Run All goes on behind them.
    """
    cells = [cell for cell in notebook["cells"] if cell["metadata"].get("slideshow", {}).get("slide_type") != "notes"]
    if not _machine_code():
        cells = [_may_fail(cell) if ASKS_FOR_MACHINE_CODE in cell["metadata"].get("tags", ()) else cell for cell in cells]
    return notebook | {"cells": cells}


def _machine_code() -> bool:
    try:
        return installation.compiler().makes_machine_code
    except CourseError:  # no compiler at all, which each kernel's cell says
        return True


def _may_fail(cell: dict[str, Any]) -> dict[str, Any]:
    return cell | {"metadata": cell["metadata"] | {"tags": [*cell["metadata"]["tags"], "raises-exception"]}}


def _renumbered(root: Path, folder: Path) -> list[str]:
    """Give the reader's copies of lessons that have another number now their new names, with what they were made from. What was
    done, as sentences."""
    said = []
    shipped = {path.name for path in paths(root)}
    for name in sorted(shipped, reverse=True):  # upwards: the largest number makes room for the one below
        earlier = [path for path in folder.glob(f"[0-9][0-9]{name[2:]}") if path.name not in shipped]
        if (folder / name).exists() or len(earlier) != 1:
            continue
        for place in (folder, folder / SHIPPED):
            if (old := place / earlier[0].name).exists():
                old.rename(place / name)
        said.append(f"{earlier[0].name} is {name} now: your copy has the new name, and what you changed in it.")
    return said


def merged(own: dict[str, Any], base: dict[str, Any], new: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The reader's notebook `own`, which was made from `base`, brought up to `new`; and the ids of cells changed by both.

    Cells that the reader did not change are those of `new` (with their outputs, if their text is the same); cells that
    the reader changed or added stay, and those that the reader deleted stay deleted unless `new` changed them.
    """
    mine, before = ({cell.get("id"): cell for cell in notebook["cells"]} for notebook in (own, base))

    def touched(name: str) -> bool:
        return name not in before or source(mine[name]) != source(before[name])

    cells, both = [], []
    for cell in new["cells"]:
        name = cell["id"]
        changed = name not in before or source(cell) != source(before[name])
        if name in mine and (touched(name) or not changed):
            cells.append(mine[name] | {"metadata": cell["metadata"]})
            if changed and source(mine[name]) != source(cell):
                both.append(name)
        elif name in mine or changed:
            cells.append(cell)
    place, seen = 0, set()
    for cell in own["cells"]:  # the reader's own, and what the course dropped but the reader had changed: after what they followed
        name = cell.get("id")
        at = next((index for index, other in enumerate(cells) if other.get("id") == name), None)
        if name is None or name in seen or (at is None and touched(name)):
            at = place
            cells.insert(at, cell)
        seen.add(name)
        place = place if at is None else at + 1
    return new | {"cells": cells, "metadata": own.get("metadata", new["metadata"])}, both


def _parsed(data: bytes) -> dict[str, Any] | None:
    """The notebook of a file's content, or None if it is none."""
    try:
        return parsed(data)
    except ValueError:
        return None


def _content(path: Path) -> bytes:
    """What a file holds; nothing if it cannot be read."""
    try:
        return read_whole(path)
    except OSError:
        return b""


def opened(root: Path, language: str = ENGLISH) -> tuple[Path, list[str]]:
    """The folder whose lessons `course lab` opens: the reader's copies with their text in the language, or the repository's where there
    can be none; and sentences."""
    own = own_folder()
    try:
        return own, update(root, language=language)
    except OSError as error:
        why = f"{error.filename2 or error.filename or own} cannot be used ({error.strerror or error})"
    advice = "Make room, or choose another folder with the environment variable GEMM_LADDER_HOME."
    if all((own / path.name).exists() for path in paths(root)):
        return own, [f"Your lessons are not brought up to date with the course, because {why}. {advice}"]
    return root / "notebooks", [
        f"You have no copies of the lessons, because {why}. {advice} The repository's are opened: what you change in them stands "
        "in the way of an update."
    ]
