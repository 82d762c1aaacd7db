"""What every lesson has: told in a second, before one is executed. What it imports exists, and no cell breaks on a second run because a
later one has taken a name that it needs."""

import ast
import importlib
import json
import pkgutil
import re

import pytest

from helpers.course.steps import STEPS


ENDING = ("elsewhere", "frameworks", "practise")  # ids of cells: other kernels of the same idea, in other languages, the exercises


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
    assert wanted, f"{step.notebook_path.name} imports nothing from helpers"
    assert [f"{module}.{name}" for module, name in wanted if not exists(module, name)] == []


def exists(module, name):
    """Whether `from module import name` works."""
    there = importlib.import_module(module)
    return hasattr(there, name) or any(one.name == name for one in pkgutil.iter_modules(getattr(there, "__path__", [])))


@pytest.mark.parametrize("step", [step for step in STEPS if step.entry], ids=lambda step: step.name)
def test_a_lesson_names_the_same_idea_in_other_languages(step):
    cells = json.loads(step.notebook_path.read_text(encoding="utf-8"))["cells"]
    assert lacking({cell["id"]: "".join(cell["source"]) for cell in cells}) == [], f"in {step.notebook_path.name}"


def lacking(cells: dict[str, str]) -> list[str]:
    """What a lesson lacks of the cells that its end has, as sentences. cells: text by id, in order."""
    order = [name for name in cells if name in ENDING]
    found = [f"there is no cell with the id {name!r}" for name in ENDING if name not in cells]
    if not found and order != list(ENDING):
        found.append(f"the cells {', '.join(order)} come in the order {', '.join(ENDING)}")
    names = list(cells)
    if not found and names.index("practise") != names.index("frameworks") + 1:
        found.append("the cell 'practise' follows 'frameworks' at once")
    text = cells.get("frameworks", "")
    how_many = {3: "three", 4: "four", 5: "five"}.get(len(re.findall(r"- \*\*(?!cuBLAS)", text)), "three")
    wanted = (*(f"- **{name}.**" for name in ("Triton", "CUTLASS / CuTe", "cuTile")), f"None of the {how_many} was run")
    return found + [f"the cell 'frameworks' lacks the words “{words}”" for words in wanted if words not in text]


def test_what_the_end_of_a_lesson_lacks_is_said():
    whole = {"frameworks": "- **Triton.** - **CUTLASS / CuTe.** - **cuTile.** None of the three was run.", "practise": ""}
    assert lacking({"elsewhere": "", **whole}) == []
    assert lacking(whole) == ["there is no cell with the id 'elsewhere'"]
    assert lacking({**whole, "elsewhere": ""}) == ["the cells frameworks, practise, elsewhere come in the order elsewhere, frameworks, practise"]
    four = {"elsewhere": "", **whole, "frameworks": f"- **DeepGEMM.** {whole['frameworks']}"}
    assert lacking(four) == ["the cell 'frameworks' lacks the words “None of the four was run”"]
    assert lacking({"elsewhere": "", **whole, "frameworks": ""})[0] == "the cell 'frameworks' lacks the words “- **Triton.**”"


def names_of(text: str) -> tuple[dict[str, str], set[str]]:
    """Of a cell of Python: the names that it binds at top level, with what to, and those that it reads without having bound them."""
    bound: dict[str, str] = {}
    read: set[str] = set()

    def look(node: ast.AST) -> None:
        inner = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        inner |= {one.arg for one in ast.walk(node) if isinstance(one, ast.arg)}
        read.update({one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)} - inner - set(bound))

    for node in ast.parse(text).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {item.asname or item.name: f"{getattr(node, 'module', '')}.{item.name}" for item in node.names}
            continue
        look(node.value if isinstance(node, ast.Assign) else node)
        if isinstance(node, ast.Assign | ast.For):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            bound |= {one.id: ast.unparse(node) for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
    return bound, read


def taken_away(cells: list[str]) -> set[str]:
    """Names that a cell reads and a later one binds to something else: run again, after the later one, it finds what it does not expect."""
    seen = [names_of("\n".join(line for line in text.split("\n") if not line.startswith("%"))) for text in cells]
    found = set()
    for at, (_, read) in enumerate(seen):
        for name in read:
            before = [bound[name] for bound, _ in seen[:at] if name in bound]
            found |= {name} if any(name in bound and bound[name] != before[-1] for bound, _ in seen[at:] if before) else set()
    return found


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_no_cell_takes_a_name_that_an_earlier_one_needs_again(step):
    cells = json.loads(step.notebook_path.read_text(encoding="utf-8"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert taken_away([text for text in texts if not text.startswith("%%")]) == set()


def test_a_name_that_is_taken_away_is_noticed():
    assert taken_away(["from helpers import names", "print(names.all)", "names = ('T4',)"]) == {"names"}
    assert taken_away(["count = 1", "count = count + 1"]) == {"count"}
    assert taken_away(["run = 1", "print(run)", "pairs = [run for run in 'ab']\nfor x in pairs: run"]) == set()
