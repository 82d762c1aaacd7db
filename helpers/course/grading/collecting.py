"""nbgrader's autograding with two of its steps replaced, so that nothing of a submission is ever executed.

nbgrader first mends a submitted notebook and then executes all of it. Here the notebook that is graded is the instructor's own, and
takes from the submission the text of the answers alone (`TakeAnswers`); and the cells that have the points get what the grader says
of these texts as their outputs (`GradeAnswers`). An instructor's own questions go along, to be graded by hand. What else was handed
in stays in `submitted/`.
"""

from __future__ import annotations

import os
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
from nbconvert.exporters import NotebookExporter
from nbformat import v4
from nbgrader.preprocessors import (
    AssignLatePenalties,
    CheckCellMetadata,
    LimitOutput,
    NbGraderPreprocessor,
    OverwriteCells,
    SaveAutoGrades,
)  # fmt: skip

from helpers.course.exercises import exercises
from helpers.course.notebook_file import source
from helpers.errors import CourseError

from . import course_directory, timestamps
from .answers import SubmittedCell, find, read_submission
from .course_directory import TESTS
from .grader import Grader
from .marks import Mark

_NOTE = (
    "gemm_ladder"  # metadata of ours: of a notebook, why it cannot be read; of an answer's cell, what was odd, and whether it is missing
)
_WIDTH = 110  # characters of a line of feedback


def configure(config: Any) -> None:
    """Set up nbgrader (traitlets' config object of its configuration file). It starts alembic by its name, which is beside this Python
    also where nbgrader itself was started by its path."""
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), *filter(None, [os.environ.get("PATH")])])
    config.CourseDirectory.course_id = "gemm-ladder"
    timestamps.guard()
    config.GenerateAssignment.preprocessors = _handed_out()
    config.Autograde.exporter_class = SubmissionReader
    config.Autograde.sanitize_preprocessors = [TakeAnswers, OverwriteCells, CheckCellMetadata]
    config.Autograde.autograde_preprocessors = [GradeAnswers, LimitOutput, SaveAutoGrades, AssignLatePenalties, CheckCellMetadata]


def _handed_out() -> list[type]:
    """nbgrader's steps from the source to what is handed out, but the one that would clear the starters away as solutions."""
    from nbgrader.converters import GenerateAssignment
    from nbgrader.preprocessors import ClearSolutions

    return [step for step in GenerateAssignment.preprocessors.default() if step is not ClearSolutions]


class SubmissionReader(NotebookExporter):
    """Reads a notebook as nbconvert does, but one that cannot be read becomes an empty one that says why."""

    def from_filename(self, filename: str, resources: Any = None, **_: Any) -> Any:
        path = Path(filename)
        try:
            notebook = _bare(read_submission(path))
        except CourseError as error:
            notebook = v4.new_notebook(metadata={_NOTE: error.message})
        except RecursionError:
            notebook = v4.new_notebook(metadata={_NOTE: f"{path.name} is no notebook that can be read: it is nested too deeply."})
        resources = self._init_resources(resources)
        resources["metadata"] |= {"name": path.stem, "path": str(path.parent)}
        return self.from_notebook_node(notebook, resources=resources)


def _bare(notebook: dict[str, Any]) -> Any:
    """The cells of a notebook with their text and metadata, and nothing else of it."""
    made = {"code": v4.new_code_cell, "markdown": v4.new_markdown_cell, "raw": v4.new_raw_cell}
    cells = [made[cell["cell_type"]](source(cell), metadata=nbformat.from_dict(cell.get("metadata", {}))) for cell in notebook["cells"]]
    about = {"kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}}
    return v4.new_notebook(cells=cells, metadata=about)


class TakeAnswers(NbGraderPreprocessor):
    """The instructor's notebook with the answers of the submission in its solution cells."""

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        names, directory = resources["nbgrader"], self.parent.parent.coursedir
        path = Path(directory.format_path(directory.source_directory, ".", names["assignment"])) / f"{names['notebook']}.ipynb"
        graded = nbformat.read(path, as_version=4)
        for cell in graded.cells:
            about = cell.metadata.get("nbgrader", {})
            if about.get("solution"):
                grade_id = about["grade_id"]
                unread = SubmittedCell(None, (nb.metadata.get(_NOTE, ""),))
                found = unread if _NOTE in nb.metadata else find(nb.cells, grade_id, exercises().get(grade_id))
                cell.source = "" if found.text is None else found.text.encode(errors="replace").decode()
                cell.metadata[_NOTE] = {"missing": found.text is None, "remarks": list(found.remarks)}
        return graded, resources


class GradeAnswers(NbGraderPreprocessor):
    """Where nbgrader executes the notebook: the cells that have the points say what the grader found."""

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        grader = self._grader()
        cells = {about["grade_id"]: cell for cell in nb.cells if (about := cell.metadata.get("nbgrader", {})).get("grade_id")}
        for grade_id, cell in cells.items():
            slug = grade_id.removesuffix(TESTS)
            if not cell.metadata.nbgrader.get("grade") or cell.metadata.nbgrader.get("solution"):
                continue  # what an instructor asks besides is graded by hand
            if slug not in exercises() or slug not in cells:
                self.log.error("%s is no exercise of the course, and nothing is executed: it has no points. Grade it by hand.", grade_id)
                cell.outputs = [v4.new_output("stream", name="stderr", text="Not graded: nothing of a submission is executed.\n")]
                continue
            note = cells[slug].metadata.get(_NOTE, {})
            text = None if note.get("missing") else cells[slug].source
            mark = grader.mark(slug, SubmittedCell(text, tuple(note.get("remarks", ()))))
            if mark.for_staff:
                self.log.error("%s of %s: %s", slug, resources["nbgrader"]["student"], mark.for_staff)
            cell.outputs = _outputs(mark, float(cell.metadata.nbgrader["points"]))
        return nb, resources

    def _grader(self) -> Grader:
        """One for all submissions of a command: it remembers what the solutions take."""
        converter = self.parent.parent
        if not isinstance(getattr(converter, "gemm_ladder_grader", None), Grader):
            converter.gemm_ladder_grader = course_directory.grader(Path(converter.coursedir.root))
        return converter.gemm_ladder_grader


def _broken(line: str) -> list[str]:
    """A line as the feedback's page, which breaks none, has room for it."""
    if len(line) <= _WIDTH:
        return [line]
    blanks = " " * (len(line) - len(line.lstrip(" ")))
    return textwrap.wrap(line, _WIDTH, subsequent_indent=f"{blanks}  ", break_on_hyphens=False)


def _outputs(mark: Mark, points: float) -> list[Any]:
    """What is said, and the points as a cell's result, from which nbgrader takes them. points: that the instructor gives the cell."""
    mark = replace(mark, most=points)
    lines = [part for line in str(mark).split("\n") for part in _broken(line)]
    said = v4.new_output("stream", name="stdout", text="\n".join(lines) + "\n")
    result = v4.new_output("execute_result", data={"text/plain": f"{mark.points:g}"}, execution_count=1)
    return [said, result]
