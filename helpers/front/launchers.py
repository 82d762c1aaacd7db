"""Where a lesson can be opened without setting anything up: Google Colab and Binder, by the repository's public address.

The address is kept nowhere. A GitHub workflow has it in its environment (`GITHUB_REPOSITORY`, "owner/name"); a maintainer elsewhere sets
the same variable. Without it there are no such links.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from helpers.course.notebook_file import dumps, read
from helpers.errors import CourseError
from helpers.files import write_whole
from helpers.translation import ENGLISH

from .catalogues import translated_notebook
from .lessons import for_readers
from .notebooks import paths

VARIABLE = "GITHUB_REPOSITORY"
BRANCH = "colab"  # of the repository: what `course colab` writes, published by the workflow
_NAME = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


def repository() -> str:
    """The repository as "owner/name", "" where nobody has said it. Raises CourseError for what is no such name."""
    name = os.environ.get(VARIABLE, "")
    if name and not _NAME.fullmatch(name):
        raise CourseError(f"{VARIABLE} is {name!r}; it wants the owner and the name of a repository, as in owner/name.")
    return name


def colab(name: str, lesson: str) -> str:
    """The address at which Colab opens the lesson (such as "01_naive") of the repository `name`."""
    return f"https://colab.research.google.com/github/{name}/blob/{BRANCH}/{lesson}.ipynb"


def binder(name: str, lesson: str) -> str:
    """The address at which Binder makes a JupyterLab with the lesson."""
    return f"https://mybinder.org/v2/gh/{name}/HEAD?urlpath=lab/tree/notebooks/{lesson}.ipynb"


def for_colab(notebook: dict[str, Any], name: str) -> dict[str, Any]:
    """The notebook with a cell before all others that fetches the course of the repository `name` and installs what it needs."""
    source = (
        "# Fetches the course and installs what it needs: some two minutes, once in each session.\n"
        f"!test -d /content/gemm-ladder || git clone --quiet --depth 1 https://github.com/{name}.git /content/gemm-ladder\n"
        "%run /content/gemm-ladder/deploy/colab.py"
    )
    cell = {"cell_type": "code", "id": "colab", "metadata": {}, "source": source, "execution_count": None, "outputs": []}
    return notebook | {"cells": [cell, *notebook["cells"]]}


def write_colab(output: Path, language: str = ENGLISH) -> int:
    """Write every lesson as Colab opens it into the folder `output`. Returns the exit code. Raises CourseError where it is not known
    which repository Colab is to fetch, or the folder cannot be written."""
    name = repository()
    if not name:
        raise CourseError(f"Which repository is Colab to fetch? Set {VARIABLE} to its owner and name, as in owner/name.")
    try:
        for path in paths():
            made = for_colab(translated_notebook(for_readers(read(path)), path.stem, language), name)
            write_whole(output / path.name, dumps(made).encode(), durable=False)
    except OSError as error:
        raise CourseError(f"{output} cannot be written: {error.strerror or error}.") from error
    print(f"wrote {output}: {len(paths())} notebooks that fetch {name}")
    return 0
