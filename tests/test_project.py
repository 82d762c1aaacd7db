"""The project as a whole: its layout, its one list of everything, and what its files may not contain."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import subprocess
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from helpers.course.steps import STEPS
from helpers.front import notebooks
from tests import ROOT, must_be_as_synced

TOP_LEVEL = {
    "notebooks", "kernels", "helpers", "tests", "deploy", ".ci", ".github", ".binder", ".devcontainer",
    "environment.yml", "pyproject.toml", ".pre-commit-config.yaml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE",
}  # fmt: skip
HELPERS = ROOT / "helpers"
EXTENSION = ROOT / "helpers/front/lab/extension"
BUILT = ROOT / "helpers/front/lab/labextensions/gemm-ladder"
# Hosts that packages are downloaded from. Written in two parts, because this file is searched as well.
HOSTS = [
    "pypi." + "org",
    "python" + "hosted",
    "npm" + "js",
    "conda." + "anaconda",
    "unpkg." + "com",
    "jsdelivr." + "net",
    "cdnjs." + "cloudflare",
]


def tracked(*more: str) -> list[Path]:
    """All files of the repository. more: further options of `git ls-files`. The other option lets a clone be tested by another user than
    its owner."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", *more]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def present() -> list[Path]:
    """All files of the repository, and those that may become some: not yet added, and not ignored."""
    return tracked("--cached", "--others", "--exclude-standard")


def pyproject() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def block_after(marker: str) -> str:
    """The code block of README.md that follows <!-- marker -->."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(rf"<!-- {re.escape(marker)} -->\n```bash\n(.*?)\n```\n", text, re.DOTALL)
    assert found, f"README.md has no code block after {marker}"
    return found[1]


def test_the_top_level_is_as_agreed():
    names = {path.relative_to(ROOT).parts[0] for path in tracked()}
    assert {name for name in names if name not in TOP_LEVEL and not name.startswith(".git")} == set()
    assert TOP_LEVEL <= names


def test_every_step_is_a_row_a_notebook_and_a_kernel():
    rows = {step.name for step in STEPS}
    assert rows
    assert {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")} == rows | {"glossary"}
    assert {path.stem for path in (ROOT / "kernels").glob("*.cu")} == {step.name for step in STEPS if step.entry}


def repeated(names) -> set[str]:
    return {name for name, times in Counter(names).items() if times > 1}


def modules() -> list[Path]:
    return [path for path in present() if path.is_relative_to(HELPERS) and path.suffix == ".py"]


def test_a_module_that_was_not_yet_added_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.test_project.ROOT", tmp_path)
    monkeypatch.setattr("tests.test_project.HELPERS", tmp_path / "helpers")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    (tmp_path / ".gitignore").write_text("made_*.py\n")
    (tmp_path / "helpers").mkdir()
    for name in ("new.py", "made_by_a_tool.py"):
        (tmp_path / "helpers" / name).write_text("")
    assert modules() == [tmp_path / "helpers" / "new.py"]


def test_no_two_modules_have_one_name():
    assert repeated(path.stem for path in modules() if path.stem != "__init__") == set()


def test_no_two_public_classes_have_one_name():
    found = []
    for path in modules():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found += [node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    assert repeated(found) == set()


def test_a_modules_tests_are_found_by_its_name():
    """In test_<its name>.py, or where a file of tests names it in its first words: "Tests of: helpers.sim.isa.bits, …"."""
    files = [path for path in present() if path.is_relative_to(ROOT / "tests") and path.name.startswith("test_")]
    named: dict[str, Path] = {}
    for path in files:
        first_words = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        for name in first_words.partition("Tests of:")[2].replace(",", " ").split():
            assert name not in named, f"{name} is named by {path.name} and by {named[name].name}"
            named[name] = path
    known = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in modules() if path.stem not in ("__init__", "__main__")
    }
    own = {path.stem for path in files}
    assert set(named) <= set(known), "a module that there is not"
    assert [name for name in named if f"test_{known[name].stem}" in own] == [], "its tests have a file of its name"
    lost = [name for name, path in known.items() if f"test_{path.stem}" not in own and name not in named and does_something(path)]
    assert lost == [], "have a file of its name, or name it where its tests are"


def does_something(path: Path) -> bool:
    """Whether a module has a function with more to it than words and an ellipsis. Tables and protocols have none."""
    functions = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.FunctionDef)]
    return any(not (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)) for node in functions for line in node.body)


def test_no_module_and_no_test_has_more_than_900_lines():
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines()) for path in tracked() if path.suffix == ".py"
    }
    assert lengths
    assert {name: length for name, length in lengths.items() if length > 900} == {}


def test_steps_are_numbered_in_order_and_named_once():
    assert [step.number for step in STEPS] == sorted({step.number for step in STEPS})
    assert len({step.slug for step in STEPS}) == len(STEPS)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_notebook_is_canonical_and_holds_its_reference_kernel(step):
    must_be_as_synced(step.notebook_path, notebooks.wanted_text(step.notebook_path))


def test_a_file_that_is_not_synced_is_one_sentence(tmp_path):
    path = tmp_path / "01_x.ipynb"
    path.write_text("a\nb\nc\n")
    must_be_as_synced(path, "a\nb\nc\n")
    for wanted, line in (("a\nB\nC\n", 2), ("a\nb\nc\nd\n", 4)):
        with pytest.raises(
            AssertionError, match=f"^01_x.ipynb is not as `course sync` writes it, from line {line} on: run `uv run course sync`$"
        ):
            must_be_as_synced(path, wanted)


def test_no_file_says_where_packages_are_downloaded_from():
    found = []
    for path in tracked():
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [f"{path.relative_to(ROOT)}: {host}" for host in HOSTS if host in text]
    assert found == []


def test_no_lock_file_is_kept():
    assert [path.name for path in tracked() if path.name in ("uv.lock", "package-lock.json", "yarn.lock", "pnpm-lock.yaml")] == []


def test_no_large_file_is_kept():
    assert [str(path.relative_to(ROOT)) for path in tracked() if path.stat().st_size > 400_000] == []


def test_every_pin_gives_its_reason():
    """Each quoted requirement in pyproject.toml ends with a comment on its own line."""
    lines = (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if re.match(r'\s+"[a-z][^"]*[~=<>]=', line)]
    assert len(pins) > 10
    assert [line.strip() for line in pins if not re.search(r'",\s+# \S', line)] == []


# ---------------------------------------------------------------------------------------------------- environment.yml


def conda_lines() -> list[str]:
    """The entries of environment.yml without comments."""
    text = (ROOT / "environment.yml").read_text(encoding="utf-8")
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    return [line.removeprefix("- ").strip() for line in lines if line.startswith("- ")]


def test_conda_installs_this_project_and_has_no_pins_of_its_own():
    assert [re.split(r"[ <>=]", line)[0] for line in conda_lines()] == ["conda-forge", "python", "pip", "pip:", "-e"]
    extras = pyproject()["project"]["optional-dependencies"]
    assert conda_lines()[-1] == "-e .[cuda13]"
    assert "cuda13" in extras


def test_conda_takes_the_python_that_the_project_asks_for():
    assert f"python {pyproject()['project']['requires-python']}" in conda_lines()


# ------------------------------------------------------------------------------------------------------ README and CI


def test_the_readme_sets_up_in_one_line():
    assert block_after("lab:command") == "pip install uv && uv run course lab"
    assert block_after("update:command") == "git pull && uv run course lab"
    assert block_after("test:command") == "pip install uv && uv run course test"


def test_ci_runs_what_the_readme_says():
    """The part of .ci/run that reads the README, run by the shell."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    (reader,) = re.findall(r"^commands=.*$", script, re.MULTILINE)
    shell = subprocess.run(["bash", "-c", f'{reader}; echo "$commands"'], cwd=ROOT, capture_output=True, text=True, check=True)
    assert shell.stdout.strip() == block_after("test:command")
    assert 'eval "$commands"' in script


def test_the_readme_keeps_the_place_of_the_ladder():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.index("<!-- ladder:start -->") < text.index("<!-- ladder:end -->")


def test_the_switches_of_the_readme_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    groups = set(re.findall(r"--(?:no-)?group (\w+)", text))
    extras = set(re.findall(r"--extra (\w+)", text))
    assert {"cuda12", "cuda13"} <= groups <= set(pyproject()["dependency-groups"])
    assert {"gpu", "gpu12"} <= extras <= set(pyproject()["project"]["optional-dependencies"])


# --------------------------------------------------------------------------------------------- the JupyterLab extension


def test_the_built_extension_belongs_to_its_source():
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted((EXTENSION / "src").iterdir())))
    built = json.loads((BUILT / "package.json").read_text(encoding="utf-8"))
    assert built["sources"] == digest.hexdigest(), "build the extension again: see CONTRIBUTING.md"


def test_the_extension_has_the_projects_version_and_an_entry_that_exists():
    built = json.loads((BUILT / "package.json").read_text(encoding="utf-8"))
    assert built["version"] == pyproject()["project"]["version"]
    assert (BUILT / built["jupyterlab"]["_build"]["load"]).stat().st_size < 20_000


def test_an_installed_package_brings_the_extension_to_where_jupyterlab_looks():
    data = pyproject()["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    assert data == {BUILT.parent.relative_to(ROOT).as_posix(): "share/jupyter/labextensions"}
