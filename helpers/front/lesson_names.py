"""Where a lesson defines the names that its cells use: for whoever runs a cell before another that it needs."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

from helpers.course import notebook_file, steps
from helpers.errors import CourseError, cut

SET_UP = "%load_ext helpers"  # begins the set-up cell of each lesson


@functools.lru_cache(maxsize=32)
def _cells(lesson: str) -> tuple[tuple[str, frozenset[str]], ...]:
    """(text, the names that it binds) of each code cell of a lesson as it is shipped; none where there is no such lesson."""
    try:
        cells = notebook_file.read(steps.ROOT / "notebooks" / f"{lesson}.ipynb")["cells"]
    except CourseError:
        return ()
    texts = (notebook_file.source(cell) for cell in cells if cell["cell_type"] == "code")
    return tuple((text, frozenset(bound(text))) for text in texts)


def defining(lesson: str, name: str, running: str = "") -> str:
    """The text of the first cell of the lesson that binds the name, other than the `running` one; "" if there is none."""
    return next((text for text, names in _cells(lesson) if name in names and text.strip() != running.strip()), "")


def called(text: str) -> str:
    """A cell, for people: which of them it is."""
    first = text.split("\n", 1)[0]
    if text.startswith(SET_UP):
        return f"the set-up cell at the top of the notebook first: the one with {SET_UP}"
    return f"the cell that begins with {' '.join(first.split()[:2]) if first.startswith('%%cuda') else f'“{cut(first)}”'} first"


def bound(text: str) -> Iterator[str]:
    """The names that a cell binds when it is run: what it imports, assigns and defines, and its kernel."""
    if text.startswith("%%"):
        yield from text.split("\n", 1)[0].split()[1:2]
        return
    try:
        tree = ast.parse("\n".join(line for line in text.split("\n") if not line.startswith("%")))
    except SyntaxError:  # the starter of an exercise may be none
        return
    inside = {id(node) for scope in ast.walk(tree) if isinstance(scope, _SCOPES) for node in ast.walk(scope) if node is not scope}
    for node in ast.walk(tree):
        if id(node) in inside:
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


_SCOPES = (ast.FunctionDef, ast.ClassDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
