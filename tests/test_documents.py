"""What the pages name is there: files, folders, and modules that are run."""

import re

import nbformat
import pytest

from tests import ROOT
from tests.test_project import tracked

PAGES = (
    "README.md", "CONTRIBUTING.md", "helpers/guides/lectures.md", "deploy/README.md", "helpers/sim/README.md",
    "helpers/sim/native/README.md", "kernels/LOG.md",
)  # fmt: skip
FILES = [path.relative_to(ROOT).as_posix() for path in tracked()]


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_exists(page):
    named = set(re.findall(r"`([\w./-]+\.(?:py|cu|cuh|md|toml|json|ipynb|yaml|js))`", (ROOT / page).read_text(encoding="utf-8")))
    named = {name for name in named if not name.startswith(".cu") and "NN_" not in name}
    assert not {name for name in named if not any(f"/{file}".endswith(f"/{name}") for file in FILES)}


@pytest.mark.parametrize("page", PAGES)
def test_every_folder_that_a_page_names_exists(page):
    named = set(re.findall(r"`((?:helpers|tests|kernels|notebooks)/[\w./-]*)/`", (ROOT / page).read_text(encoding="utf-8")))
    assert not {name for name in named if not any(file.startswith(f"{name}/") for file in FILES)}


@pytest.mark.parametrize("page", PAGES)
def test_every_module_that_a_page_runs_exists(page):
    named = set(re.findall(r"python -m ((?:helpers|tests)[\w.]*)", (ROOT / page).read_text(encoding="utf-8")))
    assert not {name for name in named if f"{name.replace('.', '/')}.py" not in FILES}


def test_lecture_plans_name_sections_and_exercises_that_are_there():
    plans = (ROOT / "helpers/guides/lectures.md").read_text(encoding="utf-8").partition("## One hour")[2]
    notebooks = [nbformat.read(path, 4).cells for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]
    text = "\n".join(cell.source for cells in notebooks for cell in cells if cell.cell_type == "markdown")
    sections = set(re.findall(r"^#+ (.+)$", text, re.M)) | set(re.findall(r"\*\*([^*]+?)\.?\*\*", text))
    named = set(re.findall(r"(?<!\*)\*([^*\n]+)\*(?!\*)", plans))
    assert {name for name in named if name not in sections and name.rstrip(".") not in sections} == set()
    tags = {tag.partition(":")[2] for cells in notebooks for cell in cells for tag in cell.metadata.get("tags", ())}
    assert {name for name in re.findall(r"`([a-z]+_[a-z_]+|intensity|tail|rotate)`", plans) if name not in tags} == set()
