"""When something was handed in, as a file `timestamp.txt` beside the notebooks says it, which whoever hands in can write.

nbgrader opens whatever has this name: a pipe holds it up for ever, a link to a device fills the memory, and text that is no time ends it
with an AttributeError. Here a timestamp is a small ordinary file with a time in it, and anything else is none, with a warning. It is the
one file beside the notebooks of a submission that goes along, but for the exchange's own: a link would bring a file of this machine into
the feedback.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAME = "timestamp.txt"
_SECRET = "submission_secret.txt"  # of nbgrader's exchange, which names feedback by it
_LARGEST = 200  # bytes


def text(path: Path) -> str | None:
    """What the file says, None if it is no small ordinary file, or no text."""
    try:
        about = path.lstat()
        if not stat.S_ISREG(about.st_mode) or about.st_size > _LARGEST:
            return None
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return None


def guard() -> None:
    """Let nbgrader read timestamps so, and copy nothing else of a submission."""
    from nbgrader.converters import Autograde
    from nbgrader.coursedir import CourseDirectory

    CourseDirectory.get_existing_timestamp = _existing
    if not hasattr(Autograde.init_assignment, "__wrapped__"):
        Autograde.init_assignment = _alone(Autograde.init_assignment)


def _existing(directory: Any, folder: str) -> datetime.datetime | None:
    """The time that is said in a folder (`CourseDirectory.get_existing_timestamp`), None if there is none."""
    from nbgrader.utils import parse_utc

    path = Path(folder) / NAME
    if not os.path.lexists(path):
        return None
    with contextlib.suppress(ValueError, OverflowError):
        if said := text(path):
            return parse_utc(said)
    directory.log.warning("%s says no time, and is passed over.", path)
    return None


def _alone(init_assignment: Callable) -> Callable:
    """nbgrader's step that copies what lies beside the notebooks, of which a timestamp is all."""

    @functools.wraps(init_assignment)
    def init(converter: Any, assignment_id: str, student_id: str) -> None:
        directory = converter.coursedir
        ignored = directory.ignore
        directory.ignore = ["*"]
        try:
            init_assignment(converter, assignment_id, student_id)
        finally:
            directory.ignore = ignored
        given, graded = (Path(form(assignment_id, student_id)) for form in (converter._format_source, converter._format_dest))
        secret = text(given / _SECRET)
        copied = {NAME: f"{text(given / NAME)}\n"} if _existing(directory, str(given)) is not None else {}
        copied |= {_SECRET: secret} if secret and re.fullmatch(r"[\w-]+", secret) else {}
        graded.mkdir(parents=True, exist_ok=True)
        for name, said in copied.items():
            (graded / name).write_text(said, encoding="utf-8")

    return init
