"""Arithmetic is evaluated as Python would; what is more than arithmetic has no meaning, and nothing of it happens."""

from __future__ import annotations

import math
import re

import pytest

from helpers.course.exercises import exercises
from helpers.course.grading.formulas import function
from helpers.errors import QUOTED, CourseError


@pytest.mark.parametrize("item", [item for item in exercises().values() if item.language == "py"], ids=lambda item: item.slug)
def test_solutions_are_evaluated_as_python_would(item):
    assert item.judge(function(item.solution, item.slug)).passed
    assert not item.judge(function(item.starter, item.slug)).passed


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(x, y=2):\n    return x ** y if x > 2 else -x", 9),
        ("from math import ceil as up\ndef g(x):\n    return up(x / 2)\ndef f(x):\n    return g(x) + g(x=4)", 4),
        ("def f(x):\n    total = 0\n    for i in range(10):\n        if i == 5: break\n        if i % 2: continue\n        total += i\n    return total", 6),
        ("def f(x):\n    while 1 < x <= 100:\n        x *= 2\n    return x", 192),
        ("def f(x):\n    a, b = divmod(7, x)\n    return sum(i for i in range(x) if i) + max(a, b) * 10 + min([4, 5], default=1)", 27),
        ("print('now')\nK = 5\ndef f(x):\n    '''text'''\n    print(x)\n    return K and not (x == 1 or x > 3)", True),
    ],
)  # fmt: skip
def test_arithmetic(source, expected):
    assert function(source, "f")(3) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(x):\n    def half(y): return y / 2 + scale\n    scale = 1\n    return half(x) + half(y=2 * x)", 6.5),
        ("def f(x):\n    if (y := x + 1) > 3: return y\n    return 0", 4),
        ("def f(x):\n    pair = (x, 2)\n    print(f'{pair[0]:5d} and {pair[1]}')\n    return pair[0] / pair[-1]", 1.5),
        ("import numpy as np\nimport math as m, numpy\nfrom numpy import ceil\ndef f(x):\n    return np.ceil(x / 2) + m.sqrt(4) + numpy.floor(1.5) + ceil(.5)", 6),
        ("def f(x):\n    return next(n for n in range(1, 99) if n * n > x) + next([], 5) + round(2.5678, 2)", 9.57),
        ("half = lambda y=2: y / 2\nf = lambda x: half(x) + half()", 2.5),
        ("f: object = lambda x: (lambda y: x * y)(x + 1)", 12),
        ("def f(x):\n    scaled = lambda y: y * scale\n    scale = 2\n    return scaled(x) if scaled else 0", 6),
        ("def twice(g): return lambda y: g(g(y))\nf = twice(lambda x: x * x)", 81),
        ("import math\ndef f(x):\n    return math.prod(range(1, 6)) + math.prod([x, 2], start=2)", 132),
    ],
)  # fmt: skip
def test_arithmetic_in_other_words(source, expected):
    assert function(source, "f")(3) == pytest.approx(expected)


def test_a_long_quote_shows_that_it_is_cut():
    """Half of a reader's line must not look like a bracket that was forgotten."""
    with pytest.raises(CourseError) as error:
        function("f = lambda x: {" + ", ".join(f"{i}: x" for i in range(50)) + "}[x]", "f")(3)
    (quoted,) = re.findall("`(.*)`", error.value.message)
    assert quoted.startswith("{0: x, 1: x,") and quoted.endswith("…") and len(quoted) == QUOTED


OF_MATH = (
    "pow(x, 2) fmod(x, 2) fsum([x, x, 0.5]) log1p(x) expm1(x) exp2(x) copysign(x, -1) comb(5, 2) comb(1000, 997) perm(5, 2) perm(4) factorial(5) "
    "cbrt(x) sin(x) cos(x) tan(x) atan2(x, 2) asinh(x) radians(x) degrees(x) gamma(x) erf(x) dist([x, 1], [2, 3]) remainder(x, 2) modf(x)[0] "
    "frexp(x)[1] ldexp(x, 3) isclose(x, 3.01, rel_tol=0.1) isfinite(x) tau ulp(x) nextafter(x, 4)"
)


@pytest.mark.parametrize("text", [f"math.{text}" for text in re.findall(r"\w+(?:\([^)]*\))?(?:\[\d\])?", OF_MATH)])
def test_functions_have_what_math_has(text):
    """As the task of a graded function promises."""
    assert function(f"import math\ndef f(x):\n    return {text}", "f")(3) == eval(text, {"math": math, "x": 3})


def test_all_of_math_is_there():
    names = [name for name in dir(math) if not name.startswith("_")]
    assert function(f"import math\ndef f(x):\n    found = [{', '.join(f'math.{name}' for name in names)}]\n    return len(found)", "f")(
        1
    ) == len(names)


HOSTILE = {
    "a system call": "import os\ndef f(x):\n    os.system('touch {mark}')",
    "a system call in the function": "def f(x):\n    import os\n    os.system('touch {mark}')",
    "a file": "def f(x):\n    open('{mark}', 'w')",
    "an import by name": "def f(x):\n    return __import__('os').system('touch {mark}')",
    "an attribute": "def f(x):\n    return x.__class__.__base__.__subclasses__()",
    "an attribute of math": "import math\ndef f(x):\n    return math.__loader__",
    "exec": "def f(x):\n    exec('x')",
    "a decorator": "@print\ndef f(x):\n    return x",
    "a default": "def f(x, y=open('{mark}', 'w')):\n    return x",
    "an endless loop": "def f(x):\n    while True:\n        x += 1",
    "an endless recursion": "def f(x):\n    return f(x)",
    "a large number": "def f(x):\n    return 9 ** 9 ** 9 ** 9",
    "a large number, step by step": "def f(x):\n    for i in range(1000):\n        x *= x\n    return x",
    "a large shift": "def f(x):\n    return 1 << 10 ** 12",
    "a long range": "def f(x):\n    return sum(range(10 ** 12))",
    "a long list": "def f(x):\n    return [0] * 10 ** 10",
    "many values": "def f(x):\n    return sum([i for i in range(10 ** 5)] for j in range(10 ** 5))",
    "calls that go through much": "def f(x):\n    while True:\n        x = min(range(199999))",
    "sums that go through much": "def f(x):\n    return sum(sum(range(10 ** 5)) for i in range(10 ** 5))",
    "a large product": "import math\ndef f(x):\n    return math.prod(range(1, 199999))",
    "a large factorial": "import math\ndef f(x):\n    return math.factorial(10 ** 6)",
    "many choices": "import math\ndef f(x):\n    return math.comb(10 ** 7, 5 * 10 ** 6)",
    "many orders": "import math\ndef f(x):\n    return math.perm(10 ** 6)",
    "sums of math that go through much": "import math\ndef f(x):\n    return sum(math.fsum(range(10 ** 5)) for i in range(10 ** 5))",
    "a list in a list, again and again": "def f(x):\n    a, b = [1, 1], [1, 1]\n    for i in range(60): a, b = [a, a], [b, b]\n    return a == b",
    "a list in a list, added": "def f(x):\n    a = [1, 1]\n    for i in range(60): a = [a, a]\n    return max(a, a)",
    "rounded to many digits": "def f(x):\n    return round(7, -10 ** 8)",
    "an attribute of numpy": "import numpy\ndef f(x):\n    return numpy.load('{mark}')",
    "a name of numpy": "from numpy import fromfile\ndef f(x):\n    return x",
    "an attribute of text": "def f(x):\n    return f'{x.__class__}'.format(x)",
    "the width of text": "def f(x):\n    return len(f'{x:1000000000}')",
    "a slice": "def f(x):\n    return [1, 2][0:1]",
    "deep nesting": "def f(x):\n    return " + "-" * 50000 + "1",
    "deep brackets": "def f(x):\n    return " + "(" * 5000 + "1" + ")" * 5000,
    "a class": "class f:\n    def __init__(self, x): open('{mark}', 'w')",
    "a file in a lambda": "f = lambda x: open('{mark}', 'w')",
    "an endless recursion of lambdas": "f = lambda x: f(x)",
    "a default of a lambda": "f = lambda x, y=open('{mark}', 'w'): x",
    "a lambda called at once": "f = (lambda: open('{mark}', 'w'))()",
    "a starred lambda": "f = lambda *x: x",
    "an attribute of a lambda": "f = lambda x: f.__globals__",
    "a lambda for a number": "f = lambda x: x + (lambda: 1)",
    "a lambda given to a function that is not the answer's": "f = lambda x: max([1, 2], key=lambda y: -y)",
    "many lambdas": "f = lambda x: sum((lambda y: y)(i) for i in range(199999))",
    "a command under the name of one that times": "%timeitall x\ndef f(x):\n    return x",
    "a command that is timed": "%time __import__('os').system('touch {mark}')\nf = 1",
    "a timed import": "%time import os\ndef f(x):\n    return os.system('touch {mark}')",
    "a shell's command": "!touch {mark}\ndef f(x):\n    return x",
    "a shell's command in the function": "def f(x):\n    !touch {mark}\n    return x",
    "nothing": "",
    "no Python": "def f(x:\n",
    "a null byte": "def f(x):\0",
    "much text": "def f(x):\n    return 1" + " " * 70000,
    "text for a number": "def f(x):\n    return int('1' * 10 ** 9)",
    "rounding a number of many digits": "def f(x):\n    return round(1e308, 10 ** 9) * 'a'",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_more_is_refused_and_nothing_happens(name, tmp_path):
    mark = tmp_path / "mark"
    with pytest.raises((CourseError, OverflowError)) as error:
        function(HOSTILE[name].replace("{mark}", str(mark)), "f")(3)
    assert str(error.value) and not mark.exists()
