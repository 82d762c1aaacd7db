"""What every lesson has: told in a second, before one is executed. What it imports exists."""

import ast
import importlib
import json
import pkgutil

import pytest

from helpers.course.steps import STEPS


def imports(step) -> list[tuple[str, str]]:
    """(module, name) of each `from helpers… import …` in the lesson's cells of Python."""
    found = []
    for cell in json.loads(step.notebook_path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] != "code" or text.startswith("%%"):
            continue
        tree = ast.parse("\n".join(line for line in text.split("\n") if not line.startswith("%")))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "helpers":
                found += [(node.module, item.name) for item in node.names]
    return found


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_what_a_lesson_imports_exists(step):
    wanted = imports(step)
    assert wanted
    assert [f"{module}.{name}" for module, name in wanted if not exists(module, name)] == []


def exists(module, name):
    """Whether `from module import name` works."""
    there = importlib.import_module(module)
    return hasattr(there, name) or any(one.name == name for one in pkgutil.iter_modules(getattr(there, "__path__", [])))


@pytest.mark.parametrize("step", [step for step in STEPS if step.entry], ids=lambda step: step.name)
def test_a_lesson_names_the_same_idea_in_other_languages(step):
    cells = {cell["id"]: "".join(cell["source"]) for cell in json.loads(step.notebook_path.read_text(encoding="utf-8"))["cells"]}
    names = list(cells)
    assert names.index("elsewhere") < names.index("frameworks") == names.index("practise") - 1
    assert all(f"- **{name}.**" in cells["frameworks"] for name in ("Triton", "CUTLASS / CuTe", "cuTile"))
    assert "None of the three was run" in cells["frameworks"]
