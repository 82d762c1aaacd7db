"""The canonical form of notebooks, and the reference kernels in them."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import json

import nbformat
import pytest

from helpers.course.notebook_file import dumps, parsed, read, source
from helpers.course.steps import STEPS
from helpers.errors import CourseError
from helpers.front import notebooks

NAIVE = next(step for step in STEPS if step.slug == "naive")


def used_notebook() -> dict:
    """A notebook as JupyterLab saves it after it was run."""
    return {
        "cells": [
            {"cell_type": "markdown", "id": "title", "metadata": {"slideshow": {"slide_type": "slide"}}, "source": "# é"},
            {
                "cell_type": "code",
                "id": "title",
                "metadata": {"tags": [], "execution": {"iopub.status.idle": "now"}, "scrolled": True},
                "source": ["%%cuda naive\n", "old"],
                "execution_count": 7,
                "outputs": [{"output_type": "stream", "name": "stdout", "text": "hello"}],
            },
            {"cell_type": "code", "metadata": {}, "source": "x", "execution_count": None, "outputs": []},
        ],
        "metadata": {"kernelspec": {"name": "other"}, "widgets": {}, "language_info": {"version": "3.99"}},
        "nbformat": 4,
        "nbformat_minor": 4,
    }


def test_what_running_leaves_is_removed():
    clean = notebooks.canonical(used_notebook())
    code = clean["cells"][1]
    assert (code["outputs"], code["execution_count"], code["metadata"]) == ([], None, {})
    assert clean["metadata"] == notebooks.METADATA
    assert clean["cells"][0]["metadata"] == {"slideshow": {"slide_type": "slide"}}


def test_ids_exist_differ_and_stay():
    ids = [cell["id"] for cell in notebooks.canonical(used_notebook())["cells"]]
    assert ids[0] == "title"
    assert len(set(ids)) == 3
    assert ids == [cell["id"] for cell in notebooks.canonical(used_notebook())["cells"]]


def test_canonical_is_a_fixed_point_and_what_nbformat_writes():
    text = dumps(notebooks.canonical(used_notebook()))
    assert dumps(notebooks.canonical(json.loads(text))) == text
    nbformat.validate(json.loads(text))
    assert nbformat.writes(nbformat.reads(text, as_version=4)) + "\n" == text


def test_what_the_schema_refuses_is_not_written(tmp_path):
    notebook = used_notebook()
    notebook["cells"][0]["attachments"] = {"poem": 3}
    path = tmp_path / "99_poem.ipynb"
    path.write_text(json.dumps(notebook))
    with pytest.raises(CourseError, match="99_poem.ipynb is no valid notebook"):
        notebooks.wanted_text(path)


def test_other_formats_are_refused():
    with pytest.raises(ValueError, match="format 4"):
        parsed(json.dumps({"nbformat": 3, "worksheets": []}).encode())


def test_the_kernel_goes_below_the_cells_own_magic_line():
    new = notebooks.with_kernel(used_notebook(), NAIVE, "// new\n\n")
    assert source(new["cells"][1]) == "%%cuda naive\n// new"
    assert source(new["cells"][2]) == "x"


def test_heading_and_next_link_follow_the_table(monkeypatch):
    new = dataclasses.replace(NAIVE, number=2, slug="new", title="New")
    monkeypatch.setattr(notebooks, "STEPS", (NAIVE, new))

    def texts(step, *cells):
        made = [{"cell_type": "markdown", "id": name, "source": text} for name, text in cells]
        return [source(cell) for cell in notebooks.with_names({"cells": made}, step)["cells"]]

    cells = (
        ("title", "# 07 · Old\n\nWords."),
        ("next", "Done. **Next:** [09 · Other](09_other.ipynb), which is more."),
        ("x", "**Next:** [a](b.ipynb)"),
    )
    assert texts(NAIVE, *cells) == [
        "# 01 · Naive\n\nWords.",
        "Done. **Next:** [02 · New](02_new.ipynb), which is more.",
        "**Next:** [a](b.ipynb)",
    ]
    assert texts(new, *cells)[:2] == ["# 02 · New\n\nWords.", cells[1][1]]


@pytest.mark.parametrize(("step", "following"), list(itertools.pairwise(STEPS)), ids=lambda step: step.name)
def test_a_lesson_ends_with_a_link_to_the_next(step, following):
    cells = {cell["id"]: source(cell) for cell in read(step.notebook_path)["cells"]}
    assert f"]({following.notebook_path.name})" in cells.get("next", ""), "a cell with the id 'next' has **Next:** and a link"


def test_a_tagged_cell_wins_over_a_named_one():
    notebook = used_notebook()
    notebook["cells"].append({"cell_type": "code", "id": "k", "metadata": {"tags": ["kernel"]}, "source": "%%cuda other", "outputs": []})
    assert notebooks.kernel_cell(notebook, NAIVE)["id"] == "k"


def test_a_notebook_without_its_kernel_cell_is_refused():
    notebook = used_notebook()
    del notebook["cells"][1]
    with pytest.raises(CourseError, match="01_naive.ipynb has no cell for its kernel"):
        notebooks.with_kernel(notebook, NAIVE, "")


def test_what_is_no_notebook_is_a_sentence(tmp_path):
    (tmp_path / "x.ipynb").write_text("{")
    with pytest.raises(CourseError, match="is not a notebook"):
        notebooks.wanted_text(tmp_path / "x.ipynb")


def test_no_notebooks_is_an_error(tmp_path):
    with pytest.raises(CourseError, match="no notebooks"):
        notebooks.paths(tmp_path)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout with one used notebook, 01_naive."""
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "01_naive.ipynb").write_text(json.dumps(used_notebook()), encoding="utf-8")
    monkeypatch.setattr(notebooks, "ROOT", tmp_path)
    monkeypatch.setattr(notebooks, "STEPS", (NAIVE,))
    monkeypatch.setattr(notebooks.paths, "__defaults__", (tmp_path,))
    return tmp_path / "notebooks" / "01_naive.ipynb"


def test_check_reports_writes_nothing_and_fails(checkout, capsys):
    before = checkout.read_text(encoding="utf-8")
    assert notebooks.sync(check=True) == 1
    assert checkout.read_text(encoding="utf-8") == before
    printed = capsys.readouterr().out
    assert "notebooks/01_naive.ipynb (synced)" in printed
    assert "course sync" in printed


def test_sync_writes_the_kernel_once(checkout, capsys):
    assert notebooks.sync() == 0
    assert NAIVE.kernel_path.read_text(encoding="utf-8").splitlines()[0] in checkout.read_text(encoding="utf-8")
    assert notebooks.sync(check=True) == 0
    assert "in sync" in capsys.readouterr().out


def test_sync_says_where_a_link_leads_elsewhere_now(checkout, monkeypatch, capsys):
    text = used_notebook()
    text["cells"].append({"cell_type": "markdown", "id": "next", "metadata": {}, "source": "**Next:** [09 · Old](09_old.ipynb), a bench."})
    checkout.write_text(json.dumps(text), encoding="utf-8")
    new = dataclasses.replace(NAIVE, number=2, slug="new", title="New")
    monkeypatch.setattr(notebooks, "STEPS", (NAIVE, new))
    with pytest.raises(CourseError, match=r"02_new\.ipynb is missing"):
        notebooks.sync()
    assert "leads to 02 · New now, and no longer to 09 · Old: look at the words around the link" in capsys.readouterr().out
    with pytest.raises(CourseError):
        notebooks.sync()
    assert "leads to" not in capsys.readouterr().out


def test_sync_keeps_what_it_replaces(checkout, monkeypatch, tmp_path):
    monkeypatch.setenv("GEMM_LADDER_HOME", str(tmp_path / "home"))
    before = checkout.read_bytes()
    assert notebooks.sync() == 0
    (copy,) = notebooks.backups().iterdir()
    assert copy.read_bytes() == before and copy.name.startswith("01_naive.")
    assert notebooks.sync() == 0 and len(list(notebooks.backups().iterdir())) == 1


def test_sync_writes_nothing_where_nothing_can_be_kept(checkout, monkeypatch, tmp_path):
    (tmp_path / "home").write_text("in the way")
    monkeypatch.setenv("GEMM_LADDER_HOME", str(tmp_path / "home"))
    before = checkout.read_bytes()
    with pytest.raises(CourseError, match="left as it is"):
        notebooks.sync()
    assert checkout.read_bytes() == before


def test_a_row_without_its_lesson_is_not_in_sync(checkout, monkeypatch):
    monkeypatch.setattr(notebooks, "STEPS", STEPS[1:3])
    with pytest.raises(CourseError, match=r"notebooks/02_coalesced\.ipynb is missing"):
        notebooks.sync(check=True)


def test_a_row_without_its_kernel_is_a_sentence(checkout, monkeypatch):
    row = dataclasses.replace(NAIVE, number=77)
    checkout.rename(checkout.with_name(row.notebook_path.name))
    monkeypatch.setattr(notebooks, "STEPS", (row,))
    with pytest.raises(CourseError, match=r"kernels/77_naive\.cu, the kernel of step 77, cannot be read: No such file"):
        notebooks.sync()


@pytest.mark.parametrize(
    ("tag", "text", "message"),
    [
        ("exercise:nothing", "%%cuda x", r"cell 0, which is tagged exercise:nothing: There is no exercise 'nothing'"),
        ("exercise:first_kernel", "x = 1", r"cell 0, .*its answer is a kernel, and such a cell begins with `%%cuda first_kernel`"),
    ],
)
def test_a_cell_that_cannot_hold_its_exercise_is_named(tag, text, message):
    cell = {"cell_type": "code", "id": "a", "metadata": {"tags": [tag]}, "source": text, "outputs": []}
    with pytest.raises(CourseError, match=f"^01_naive.ipynb, {message}"):
        notebooks.with_starters({"cells": [cell]}, "01_naive.ipynb")


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_where_there_is_a_gpu_a_lesson_measures(step):
    """Who names a GPU to `profile` or `climb` gets a prediction for it, also beside a GPU that could have been asked."""
    cells = [source(cell) for cell in read(step.notebook_path)["cells"] if cell["cell_type"] == "code"]
    trees = [ast.parse(text) for text in cells if not text.lstrip().startswith("%")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    nothing = {
        target.id
        for node in nodes if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value is None
        for target in node.targets if isinstance(target, ast.Name)
    }  # fmt: skip
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("profile", "climb"):
            named = [*node.args[1:], *(keyword.value for keyword in node.keywords if keyword.arg == "gpu_name")]
            assert all(isinstance(gpu, ast.Name) and gpu.id in nothing for gpu in named), ast.unparse(node)
