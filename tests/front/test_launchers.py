"""What opens the course where nothing is set up: addresses, the notebooks for Colab, and what its first cell installs."""

import json
import re
import runpy
import subprocess
import tomllib

import pytest

from helpers.course.notebook_file import read, source
from helpers.course.steps import STEPS, get
from helpers.errors import CourseError
from helpers.front import launchers
from helpers.front.site import build
from tests import ROOT

COLAB = runpy.run_path(str(ROOT / "deploy/colab.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_links_are_there_only_where_the_address_is_known(monkeypatch):
    monkeypatch.delenv(launchers.VARIABLE, raising=False)
    assert build.elsewhere(get("naive")) == ""
    monkeypatch.setenv(launchers.VARIABLE, "owner/name")
    shown = build.elsewhere(get("naive"))
    assert (
        "github/owner/name/blob/colab/01_naive.ipynb" in shown and "gh/owner/name/HEAD?urlpath=lab/tree/notebooks/01_naive.ipynb" in shown
    )
    monkeypatch.setenv(launchers.VARIABLE, "name; rm")
    with pytest.raises(CourseError, match="owner/name"):
        launchers.repository()


def test_a_notebook_for_colab_is_the_lesson_behind_a_cell_that_fetches_the_course(tmp_path, monkeypatch):
    monkeypatch.delenv(launchers.VARIABLE, raising=False)
    with pytest.raises(CourseError, match="Set GITHUB_REPOSITORY"):
        launchers.write_colab(tmp_path)
    monkeypatch.setenv(launchers.VARIABLE, "owner/name")
    launchers.write_colab(tmp_path)
    for step in STEPS:
        made, shipped = read(tmp_path / step.notebook_path.name), read(step.notebook_path)
        first, *rest = made["cells"]
        assert "github.com/owner/name.git" in source(first) and "deploy/colab.py" in source(first)
        assert [cell for cell in rest if cell["cell_type"] == "code"] == [cell for cell in shipped["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize(
    ("driver", "group"), [(None, "cuda13"), (12040, "cuda12"), (12090, "cuda12"), (13000, "cuda13"), (13020, "cuda13")]
)
def test_packages_are_for_the_cuda_that_the_driver_knows(driver, group):
    assert COLAB["cuda_group"](driver) == group
    pins = COLAB["requirements"](group)
    assert set(PROJECT["optional-dependencies"][group]) <= set(pins)
    names = {re.split(r"[^\w-]", pin)[0] for pin in pins}
    assert "numpy" in names and not names & COLAB["LEFT_OUT"]
    assert {re.split(r"[^\w-]", pin)[0] for pin in PROJECT["dependencies"]} >= COLAB["LEFT_OUT"], (
        "what is left out is named as in pyproject.toml"
    )


def test_containers_set_up_as_the_readme_does():
    container = (ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8")
    settings = json.loads(re.sub(r"^//.*$", "", container, flags=re.MULTILINE))
    assert settings["postCreateCommand"] == "pip install uv && uv sync" and "course lab" in settings["postAttachCommand"]
    docker = (ROOT / "deploy/Dockerfile").read_text(encoding="utf-8")
    assert "uv sync" in docker and '"course", "lab"' in docker
    assert "-e .[cuda13]" in (ROOT / ".binder/requirements.txt").read_text(encoding="utf-8")
    subprocess.run(["bash", "-n", ROOT / ".binder/start"], check=True)
    shown = subprocess.run(
        [ROOT / ".binder/start", "printenv", "JUPYTER_PATH"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (ROOT / "helpers/front/lab/labextensions").is_dir() and shown.stdout.strip() == str(ROOT / "helpers/front/lab")
