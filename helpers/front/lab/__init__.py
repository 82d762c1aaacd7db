"""JupyterLab as the course starts it, and what the course adds to it.

labextensions/ is the prebuilt extension that highlights `%%cuda` cells (source and build: extension/). config/ turns
off JupyterLab's own news and its check for updates, which would greet a learner with a question and ask the network, and line
numbers on, which findings and compiler messages name. It also leaves nbgrader's menus out, where that is installed: lessons are no
assignments.
Both are found through Jupyter's search path, set here, so that nothing has to be installed and a fresh build counts.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from helpers import translation
from helpers.course.steps import STEPS
from helpers.errors import CourseError
from helpers.front import lessons

FOLDER = Path(__file__).resolve().parent
FIRST = "00_start_here.ipynb"


def course_root(start: Path) -> Path:
    """The folder that holds notebooks/: `start` or one above it, else the checkout this package is part of.

    Raises CourseError if there is none, which happens when only the package is installed.
    """
    for folder in (start, *start.parents, FOLDER.parents[2]):
        if (folder / "notebooks" / FIRST).is_file():
            return folder
    raise CourseError(
        f"There is no notebooks/{FIRST} in {start} or above it. The lessons are in the course's repository: "
        "change to the folder you cloned, and run `course lab` there."
    )


def environment(variables: dict[str, str]) -> dict[str, str]:
    """`variables` with this folder first in Jupyter's search paths for data and for configuration."""
    added = {"JUPYTER_PATH": str(FOLDER), "JUPYTER_CONFIG_PATH": str(FOLDER / "config")}
    return variables | {name: os.pathsep.join(filter(None, (folder, variables.get(name)))) for name, folder in added.items()}


def arguments(folder: Path, extra: list[str], first: str = FIRST) -> list[str]:
    """Arguments for `jupyter lab`: open `first` in `folder`, then whatever the user gave, which wins."""
    args = [f"--ServerApp.root_dir={folder}", f"--LabApp.default_url=/lab/tree/{first}"]
    if sys.platform != "win32" and os.geteuid() == 0:
        args.append("--allow-root")  # root is the usual user in a container, and the server listens on localhost only
    return args + extra


def compiler_notice(platform: str) -> str | None:
    """What a reader on `platform` (a sys.platform) should know before starting, or None."""
    if platform != "darwin":
        return None
    return (
        "NVIDIA publishes no CUDA compiler (NVRTC) for macOS, so clang compiles here, to PTX. Steps 01 to 13 run, with results and "
        "findings; counters and times are estimates, and steps 14 and later, which need CUDA's headers, do not compile. A Linux "
        "machine, or a Linux container on an Intel or ARM host, runs everything, and no GPU is needed."
    )


def language_notice(language: str) -> str | None:
    """How many lessons are in a language, for who has chosen it, or None for English."""
    from helpers.front.catalogues import SITE  # here: English needs none of it

    if language == translation.ENGLISH:
        return None
    begun = [name for name in translation.translated_catalogues(language) if name != SITE]
    if not begun:
        return f"Nothing is translated into {language} yet, so the lessons are in English."
    return f"Of {len(STEPS)} lessons {len(begun)} are in {language}, as far as they are translated; the others are in English."


def start(extra: list[str], shipped: bool = False, hub: bool = False, language: str | None = None) -> int:
    """Run JupyterLab on the reader's lessons, or the repository's own if `shipped`, until it ends. Returns its exit code.

    The first page is that of the reader's progress; of the repository's notebooks, the first lesson. hub: as the server that a
    JupyterHub starts for one of its users; this process becomes it. language: of lessons and questions, else what the environment says.
    Raises CourseError for a language that the course is not in, and where JupyterHub is not installed.
    """
    root = course_root(Path.cwd())
    if language:
        os.environ[translation.VARIABLE] = translation.known(language)
    folder, said = (root / "notebooks", []) if shipped else lessons.opened(root, translation.chosen())
    for sentence in (*said, None if shipped else language_notice(translation.chosen()), compiler_notice(sys.platform)):
        if sentence:
            print(sentence, file=sys.stderr, flush=True)
    os.environ.update(environment(dict(os.environ)))
    first = FIRST if folder == root / "notebooks" else _page(folder)
    if hub:
        server = Path(sys.executable).with_name("jupyterhub-singleuser")
        if not server.is_file():
            raise CourseError(f"There is no {server}: install jupyterhub into the environment that the course is in.")
        os.execv(server, [str(server), f"--ServerApp.root_dir={folder}", f"--ServerApp.default_url=/lab/tree/{first}", *extra])
    from jupyterlab.labapp import LabApp  # after the environment: Jupyter reads its search paths on import

    LabApp.launch_instance(arguments(folder, extra, first))
    return 0


def _page(folder: Path) -> str:
    """The page of the reader's progress, or the first lesson where there can be none."""
    from helpers.front import opening  # here: it brings matplotlib, for the picture of the predictions

    try:
        return opening.write(folder).name
    except OSError as error:
        print(f"There is no page of your progress: {folder} cannot be written ({error.strerror or error}).", file=sys.stderr, flush=True)
        return FIRST
