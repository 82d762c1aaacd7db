"""helpers.course.grading.cell_python: a cell that runs in a notebook is read as the notebook reads it, at its own lines."""

from __future__ import annotations

import ast
import time

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from helpers.course.exercises import exercise
from helpers.course.grading.cell_python import MOST, read
from helpers.course.grading.formulas import function
from helpers.errors import CourseError

ANSWER = exercise("intensity").solution

CELLS = {
    "as it is": "{answer}",
    "%%time": "%%time\n{answer}",
    "%%timeit with options": "%%timeit -n 3 -r 1\n{answer}",
    "%%capture": "%%capture said\n{answer}",
    "several": "%%capture\n%%time\n{answer}",
    "behind empty lines": "\n\n%%time\n\n# What is asked for.\n{answer}",
    "below a comment": "# What is asked for.\n%%time\n{answer}",
    "%time": "%time\n{answer}",
    "%time of a statement": "%time FOUR = 4\n" + ANSWER.replace("(4 *", "(FOUR *"),
    "%timeit above": "%timeit sum(range(9))\n{answer}",
    "%timeit below": "{answer}\n%timeit -n 1 intensity(1, 2, 3)\n%time intensity(1, 2, 3)\nprint(intensity(1, 2, 3))",
    "%timeit in the function": ANSWER.replace("\n", "\n    %timeit m * n\n", 1),
    "%timeit over two lines": "%timeit sum(range(9)) + \\\n    sum(range(8))\n{answer}",
    "a question": "{answer}\nintensity?\n?intensity\nintensity??",
    "a magic's question": "%timeit?\n{answer}",
    "other line ends": "%%time\r\n{answer}\r\nintensity?\r\n",
    "all of it indented": "    %%time\n    " + ANSWER.replace("\n", "\n    "),
    "a lambda": "%%time\nintensity = lambda m, n, k: 2 * m * n * k / (4 * (m * k + k * n + m * n))",
}


@pytest.mark.parametrize("name", CELLS)
def test_what_a_notebook_runs_is_solved_here_too(name):
    text = CELLS[name].replace("{answer}", ANSWER)
    ast.parse(TransformerManager().transform_cell(text))  # IPython makes Python of it, so a reader can have this cell
    assert exercise("intensity").judge(function(text, "intensity")).passed


COMMANDS = {
    "%matplotlib inline": 1,
    "!ls": 1,
    "\n%pip install solution": 2,
    "%%bash\nls": 1,
    "%%writefile answer.py": 1,
    "%%time\n%load_ext helpers": 2,
    "files = !ls": 1,
    "took = %timeit -o 1 + 1": 1,
    "%timeit 1\n%time 2\n    \n%cd ..": 4,
}


@pytest.mark.parametrize("above", COMMANDS)
def test_any_other_command_is_named_with_its_line(above):
    line = COMMANDS[above]
    with pytest.raises(CourseError) as error:
        read(f"{above}\n{ANSWER}")
    assert error.value.line == line and error.value.message.startswith(f"line {line}: `{above.split(chr(10))[line - 1]}` is a command of")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("%%time\ndef f(x:\n    return x", 2),
        ("%timeit 1\ndef f(x):\n    return (x\n    % 2", 3),
        ("def f(x):\n    return x ? 1 : 2", 2),
        ("%time f(1))\ndef f(x):\n    return x", 1),
    ],
)
def test_what_is_wrong_besides_is_told_at_its_own_line(text, line):
    with pytest.raises(CourseError, match=f"line {line}: Python cannot read this") as error:
        read(text)
    assert error.value.line == line


def test_python_that_looks_like_a_command_is_python():
    text = "def f(x, time):\n    '''\n    %time x\n!ls\n    '''\n    return (x\n    %time)"
    assert ast.dump(read(text)) == ast.dump(ast.parse(text))
    assert function(text, "f")(7, 4) == 3


def test_many_commands_end_soon():
    start = time.monotonic()
    for text in ("%time\n" * 10_000, "%time " * 10_000 + "1", "a" * 60_000 + "(", "a." * 30_000 + "?b", " " * 60_000 + "%"):
        with pytest.raises(CourseError):
            read(text)
    assert time.monotonic() - start < 20
    assert len(read("%time 1\n" * MOST).body) == MOST
