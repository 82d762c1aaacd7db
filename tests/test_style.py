"""Style and types, as the tools see them: configured in pyproject.toml, run here as before a commit (.pre-commit-config.yaml)."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

SCRIPTS = Path(sys.executable).parent
COMMANDS = [
    ("ruff", "check", "helpers", "tests"),
    ("ruff", "format", "--check", "helpers", "tests"),
    ("mypy",),
    ("lint-imports",),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_tools_have_nothing_to_say(command):
    result = subprocess.run([SCRIPTS / command[0], *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]


def test_the_hooks_before_a_commit_are_these_tools():
    text = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    entries = re.findall(r"entry: (.*)", text)
    assert {entry.split()[0] for entry in entries} == {command[0] for command in COMMANDS}
    assert re.findall(r"- repo: (.*)", text) == ["local"], "nothing is fetched"
    assert text.count("language: system") == len(entries)


def test_thousands_are_grouped_by_commas_everywhere():
    thin = ("\\N{THIN SPACE}", "\\N{NARROW NO-BREAK SPACE}", "\u2009", "\\u2009")
    found = [
        str(path.relative_to(ROOT))
        for folder in ("helpers", "notebooks")
        for path in (ROOT / folder).rglob("*.*")
        if path.suffix in (".py", ".ipynb", ".toml", ".cu", ".po") and any(mark in path.read_text(encoding="utf-8") for mark in thin)
    ]
    assert found == [], "a number is written 16,384, as f'{number:,}' does"
