"""The reader's own headers, in the folders that options name by -I: found, and joined with the cell into one text.

A header with host code is refused as it stands. Joined with the cell it is read as if it were pasted above it: its host code is left
out, and what is left is given to the compiler under the header's name, so that every message keeps its file and line.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .headers import INCLUDE, is_standard
from .host_code import strip_comments

_MOST_FILES = 400
_MOST_TEXT = 400_000  # characters: beyond that it is a library, made for compilers and not for one cell


@dataclass(frozen=True)
class Joined:
    """Headers and, last and without a name, the cell: (name, text) each, a header before what includes it."""

    documents: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        return "\n".join(text for _, text in self.documents)

    def start(self, file: str) -> int | None:
        """Where a document begins in `text`; the compiler's name for its file will do."""
        position = 0
        for name, text in self.documents:
            if name == file:
                return position
            position += len(text) + 1
        return None

    def offset(self, file: str, line: int, column: int | None) -> int | None:
        """Where in `text` line `line` (1-based) of a document is; None for another file."""
        start = self.start(file)
        if start is None:
            return None
        lines = self.text[start:].split("\n", line)[:line]
        return start + sum(len(text) + 1 for text in lines[:-1]) + min(column or 0, len(lines[-1]))

    def place(self, offset: int) -> tuple[str, int]:
        """The document's name and its line (1-based) at an offset in `text`."""
        for name, text in self.documents:
            if offset <= len(text):
                return name, text.count("\n", 0, offset) + 1
            offset -= len(text) + 1
        raise IndexError(offset)

    def split(self, text: str) -> dict[str, str]:
        """The documents of `text`, which is as long as this one's: by name."""
        found, position = {}, 0
        for name, own in self.documents:
            found[name] = text[position : position + len(own)]
            position += len(own) + 1
        return found


def alone(source: str) -> Joined:
    """The cell without headers."""
    return Joined((("", source),))


def joined(source: str, folders: Sequence[str], others: Sequence[str]) -> Joined | None:
    """The cell with its own headers in `folders`; None if it has none, or whole libraries. others: folders that come first."""
    names: dict[Path, str] = {}
    done: dict[Path | None, tuple[str, str]] = {}

    def visit(text: str, path: Path | None) -> None:
        code, position, pieces = strip_comments(text), 0, []
        for match in INCLUDE.finditer(text):
            found = _find(match[1], match[0].endswith('"'), path, folders, others)
            if found is None or "#" not in code[match.start() : match.end()]:
                continue
            if found not in names:
                name = next((found.relative_to(folder).as_posix() for folder in map(_absolute, folders) if folder in found.parents), "")
                names[found] = found.as_posix() if not name or name in names.values() else name
                if len(names) <= _MOST_FILES:
                    visit(_read(found), found)
            pieces += [text[position : match.start(1)], names[found]]
            position = match.end(1)
        done[path] = (names[path] if path else "", "".join(pieces) + text[position:])

    visit(source, None)
    documents = tuple(done.values())
    few = len(names) <= _MOST_FILES and sum(len(text) for _, text in documents[:-1]) <= _MOST_TEXT
    return Joined(documents) if names and few else None


def identity(source: str, folders: Sequence[str], others: Sequence[str]) -> list[str]:
    """Changes when one of the cell's own headers does; [] without any."""
    if not folders:
        return []
    found, waiting = dict[Path, str](), list(_included(source, None, folders, others))
    while waiting and len(found) < _MOST_FILES:
        path = waiting.pop(0)
        if path not in found:
            text = _read(path)
            found[path] = hashlib.sha256(text.encode()).hexdigest()
            waiting += _included(text, path, folders, others)
    return [f"{path}:{content}" for path, content in found.items()]


def _included(text: str, path: Path | None, folders: Sequence[str], others: Sequence[str]) -> Iterator[Path]:
    for match in INCLUDE.finditer(text):
        if found := _find(match[1], match[0].endswith('"'), path, folders, others):
            yield found


def _find(name: str, quoted: bool, path: Path | None, folders: Sequence[str], others: Sequence[str]) -> Path | None:
    """The reader's own file that an #include in file `path` means; None for a standard header or one of CUDA's."""
    beside = [path.parent] if quoted and path else []
    if is_standard(name):
        return None
    for folder in [*beside, *(Path(folder) for folder in others), *(Path(folder) for folder in folders)]:
        if (folder / name).is_file():
            return None if str(folder) in others else _absolute(folder / name)
    return None


def _absolute(path: str | Path) -> Path:
    return Path(os.path.abspath(path))


def _read(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
