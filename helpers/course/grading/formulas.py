"""Arithmetic in Python's notation, evaluated without running it: numbers, names, branches and loops, in a limited number of steps.

Some exercises ask for a function of a few numbers. A grader must not run Python that somebody handed in, so it reads it: what
is not arithmetic has no meaning here, and is refused with its line.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from helpers.errors import CourseError, cut

from .cell_python import read

STEPS = 200_000  # expressions and statements of one call
BITS = 10_000  # of a whole number
DEPTH = 40  # of calls within calls
LARGEST = 1 << 16  # characters of a source
EVALUATED = "numbers, names, lists, if, for, while, functions, and what math has"  # in the words of who writes an answer

_BINARY: dict[type, Callable] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.RShift: operator.rshift,
}  # fmt: skip
_UNARY: dict[type, Callable] = {ast.UAdd: operator.pos, ast.USub: operator.neg, ast.Not: operator.not_, ast.Invert: operator.invert}
_COMPARED: dict[type, Callable] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip


def _power(base, exponent):
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * abs(exponent) > BITS:
        raise OverflowError("the number is too large")
    return base**exponent


def _shifted(value, places):
    if isinstance(places, int) and places > BITS:
        raise OverflowError("the number is too large")
    return value << places


def _counted(*arguments):
    made = range(*arguments)
    if len(made) > STEPS:
        raise OverflowError("the range is too long")
    return made


def _product(values, start=1):
    for value in values:
        start *= value
        if isinstance(start, int) and start.bit_length() > BITS:
            raise OverflowError("the number is too large")
    return start


def _rounded(value, ndigits=None):
    if ndigits is not None and abs(ndigits) > BITS:
        raise OverflowError("these are too many digits")
    return round(value, ndigits)


def _bounded(function):
    """math.comb, perm or factorial, where the number has not too many factors."""

    def called(n, k=None):
        factors = n if k is None else min(k, n - k) if function is math.comb else k
        if isinstance(n, int) and isinstance(factors, int) and n.bit_length() * factors > BITS:
            raise OverflowError("the number is too large")
        return function(n) if k is None else function(n, k)

    return called


_BOTH = "ceil floor trunc sqrt exp log log2 log10 fabs hypot gcd lcm pi e inf".split()
_NUMPY = {name: getattr(math, name) for name in _BOTH} | {"prod": _product}
_OF_MATH = {  # all of math that takes and gives numbers; of `fsum` and `dist`, lists of them
    name: getattr(math, name)
    for name in (
        "acos acosh asin asinh atan atan2 atanh cbrt copysign cos cosh degrees dist erf erfc exp2 expm1 fma fmod frexp fsum gamma isclose "
        "isfinite isinf isnan isqrt ldexp lgamma log1p modf nan nextafter pow radians remainder sin sinh sumprod tan tanh tau ulp"
    ).split()
    if hasattr(math, name)  # some came with later versions of Python
}
_MATH = _NUMPY | _OF_MATH | {name: _bounded(getattr(math, name)) for name in ("comb", "perm", "factorial")}
_MODULES: dict[str, dict[str, Any]] = {"math": _MATH, "numpy": _NUMPY}
_PLAIN: dict[str, Any] = {
    "abs": abs, "min": min, "max": max, "sum": sum, "len": len, "range": _counted, "divmod": divmod, "pow": _power, "round": _rounded,
    "int": int, "float": float, "bool": bool, "print": lambda *_: None, "next": lambda values, *default: [*values[:1], *default][0],
}  # fmt: skip


class _Returned(Exception):
    """What a function has returned."""


class _Loop(Exception):
    """A break, or (if `goes_on`) a continue."""

    def __init__(self, goes_on: bool):
        self.goes_on = goes_on


def function(source: str, name: str) -> Callable[..., Any]:
    """The function `name` that `source` defines, as one that can be called with numbers.

    Raises CourseError, with the line, for source that is no Python or more than arithmetic; a call raises it too, and what the
    arithmetic itself raises (a ZeroDivisionError).
    """
    if len(source) > LARGEST:
        raise CourseError(f"The answer has {len(source):,} characters, and more than {LARGEST:,} are not read.")
    module = _Names({**_PLAIN})
    for node in read(source).body:
        if not isinstance(node, ast.Expr):  # a check, a print, a docstring: it stands for itself
            _Evaluation(module, {}).statement(node)
    found = module.values.get(name)
    if not isinstance(found, _Function):
        raise CourseError(f"There is no function {name} in the answer: it begins with `def {name}(`.")
    return lambda *arguments: found.called(_Evaluation(module, {}), arguments, {})


class _Names:
    """Names of a module."""

    def __init__(self, values: dict[str, Any]):
        self.values = values


class _Function:
    """A function of the source, with a name or without."""

    def __init__(self, node: ast.FunctionDef | ast.Lambda, home: _Evaluation | None = None):
        if getattr(node, "decorator_list", ()) or node.args.vararg or node.args.kwarg or node.args.kwonlyargs or node.args.posonlyargs:
            raise _refused(node, "a function with decorators or starred arguments")
        self.node, self.home, self.names = node, home, [argument.arg for argument in node.args.args]
        self.name = getattr(node, "name", "the lambda")

    def called(self, caller: _Evaluation, arguments, named: Mapping[str, Any]) -> Any:
        if caller.depth >= DEPTH:
            raise CourseError(f"line {self.node.lineno}: {self.name} calls itself more than {DEPTH} times deep.", self.node.lineno)
        inner = _Evaluation(caller.module, {}, caller)
        defaults = [inner.value(node) for node in self.node.args.defaults]
        bound = dict(zip(self.names[len(self.names) - len(defaults) :], defaults, strict=True)) if defaults else {}
        if len(arguments) > len(self.names) or not set(named) <= set(self.names):
            raise TypeError(f"{self.name} takes {len(self.names)} arguments")
        bound |= dict(zip(self.names, arguments, strict=False)) | dict(named)
        if missing := [name for name in self.names if name not in bound]:
            raise TypeError(f"{self.name} was given no {', '.join(missing)}")
        inner.local, inner.home = bound, self.home
        try:
            if isinstance(self.node, ast.Lambda):
                return inner.value(self.node.body)
            inner.body(self.node.body)
        except _Returned as returned:
            return returned.args[0]
        except RecursionError:
            raise CourseError(f"line {self.node.lineno}: {self.name} is nested too deeply.", self.node.lineno) from None
        return None


def _refused(node: ast.AST, what: str) -> CourseError:
    line = getattr(node, "lineno", None)
    return CourseError(f"line {line}: {what} is more than arithmetic. The grader evaluates {EVALUATED}.", line)


class _Evaluation:
    """One call under way. Steps are counted for all calls within it."""

    def __init__(self, module: _Names, local: dict[str, Any], caller: _Evaluation | None = None):
        self.module, self.local = module, local
        self.home: _Evaluation | None = None  # the call in which its function was defined
        self.depth: int = caller.depth + 1 if caller else 0
        self.spent: list[int] = caller.spent if caller else [0]

    def _step(self, node: ast.AST, steps: int = 1) -> None:
        self.spent[0] += steps
        if self.spent[0] > STEPS:
            line = getattr(node, "lineno", None)
            raise CourseError(f"line {line}: the function had not ended after {STEPS:,} steps. Some loop never ends.", line)

    def _go_through(self, node: ast.AST, *values: Any) -> None:
        """What goes through all of a list takes a step for each of its elements."""
        for value in values:
            if isinstance(value, range):
                self._step(node, len(value))
            elif isinstance(value, list | tuple):
                self._step(node, len(value))
                self._go_through(node, *value)

    # ------------------------------------------------------------------------------------------------ statements

    def body(self, nodes: list[ast.stmt]) -> None:
        for node in nodes:
            self.statement(node)

    def statement(self, node: ast.stmt) -> None:
        self._step(node)
        match node:
            case ast.Return():
                raise _Returned(None if node.value is None else self.value(node.value))
            case ast.Expr() | ast.Assert():
                self.value(node.value if isinstance(node, ast.Expr) else node.test)
            case ast.Assign():
                value = self.value(node.value)
                for target in node.targets:
                    self._assign(target, value)
            case ast.AnnAssign(value=ast.expr()):
                self._assign(node.target, self.value(node.value))
            case ast.AugAssign(target=ast.Name() as target):
                old = self._named(target)
                self._assign(target, self._binary(node, node.op, old, self.value(node.value)))
            case ast.If():
                self.body(node.body if self.value(node.test) else node.orelse)
            case ast.For(orelse=[]):
                for value in self._listed(node.iter):
                    self._assign(node.target, value)
                    if not self._turn(node):
                        break
            case ast.While(orelse=[]):
                while self.value(node.test) and self._turn(node):
                    pass
            case ast.Break() | ast.Continue():
                raise _Loop(isinstance(node, ast.Continue))
            case ast.FunctionDef() if self.depth == 0:
                self.module.values[node.name] = _Function(node)
            case ast.FunctionDef():
                self.local[node.name] = _Function(node, self)
            case ast.Import() | ast.ImportFrom(level=0):
                self._import(node)
            case ast.Pass():
                pass
            case _:
                raise _refused(node, f"`{type(node).__name__.lower()}`")

    def _turn(self, node: ast.For | ast.While) -> bool:
        """One turn of a loop. Does it go on?"""
        self._step(node)
        try:
            self.body(node.body)
        except _Loop as left:
            return left.goes_on
        return True

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.Import) and all(name in _MODULES for name in names):
            for alias in node.names:
                self._keep(alias.asname or alias.name, _MODULES[alias.name])
        elif isinstance(node, ast.ImportFrom) and all(name in _MODULES.get(node.module or "", {}) for name in names):
            for alias in node.names:
                self._keep(alias.asname or alias.name, _MODULES[node.module or ""][alias.name])
        else:
            raise _refused(node, "importing anything but the arithmetic of math and numpy")

    def _keep(self, name: str, value: Any) -> None:
        (self.local if self.depth else self.module.values)[name] = value

    def _assign(self, target: ast.expr, value: Any) -> None:
        match target:
            case ast.Name():
                self._keep(target.id, value)
            case ast.Tuple() | ast.List() if isinstance(value, tuple | list) and len(value) == len(target.elts):
                for one, part in zip(target.elts, value, strict=True):
                    self._assign(one, part)
            case _:
                raise _refused(target, "this assignment")

    # ----------------------------------------------------------------------------------------------- expressions

    def value(self, node: ast.expr) -> Any:
        self._step(node)
        match node:
            case ast.Constant() if isinstance(node.value, bool | int | float | str):
                return self._small(node.value)
            case ast.Name():
                return self._named(node)
            case ast.BinOp():
                return self._binary(node, node.op, self.value(node.left), self.value(node.right))
            case ast.UnaryOp():
                return _UNARY[type(node.op)](self._number(node, self.value(node.operand)))
            case ast.BoolOp():
                result = None
                for part in node.values:
                    result = self.value(part)
                    if bool(result) == isinstance(node.op, ast.Or):
                        break
                return result
            case ast.Compare() if all(type(op) in _COMPARED for op in node.ops):
                left = self.value(node.left)
                for op, right in zip(node.ops, map(self.value, node.comparators), strict=True):
                    self._go_through(node, left, right)
                    if not _COMPARED[type(op)](left, right):
                        return False
                    left = right
                return True
            case ast.IfExp():
                return self.value(node.body if self.value(node.test) else node.orelse)
            case ast.Tuple() | ast.List():
                return [self.value(part) for part in node.elts]
            case ast.GeneratorExp() | ast.ListComp() if len(node.generators) == 1:
                return self._comprehension(node)
            case ast.Attribute(value=ast.Name() as home) if any(self._named(home) is known for known in _MODULES.values()):
                if node.attr in (names := self._named(home)):
                    return names[node.attr]
            case ast.NamedExpr():
                self._keep(node.target.id, self.value(node.value))
                return self._named(node.target)
            case ast.Subscript(slice=index) if not isinstance(index, ast.Slice):
                place = self._number(node, self.value(index))
                return self._listed(node.value)[place]
            case ast.Lambda():
                return _Function(node, self if self.depth else None)
            case ast.JoinedStr():  # to be printed
                for part in node.values:
                    if isinstance(part, ast.FormattedValue):
                        self.value(part.value)
                return ""
            case ast.Call():
                return self._call(node)
        raise _refused(node, f"`{cut(ast.unparse(node))}`")

    def _comprehension(self, node: ast.GeneratorExp | ast.ListComp) -> list:
        part, found = node.generators[0], []
        for value in self._listed(part.iter):
            self._assign(part.target, value)
            if all(self.value(test) for test in part.ifs):
                found.append(self.value(node.elt))
        return found

    def _call(self, node: ast.Call) -> Any:
        called = self.value(node.func)
        if any(keyword.arg is None for keyword in node.keywords) or any(isinstance(part, ast.Starred) for part in node.args):
            raise _refused(node, "a starred argument")
        arguments, named = [self.value(part) for part in node.args], {item.arg: self.value(item.value) for item in node.keywords}
        if isinstance(called, _Function):
            return called.called(self, arguments, named)
        if not callable(called) or (named and called not in (min, max, sum, _rounded, _product, math.isclose)):
            raise _refused(node, f"`{cut(ast.unparse(node))}`")
        if called is not _PLAIN["print"]:
            if any(isinstance(value, str) for value in arguments):
                raise _refused(node, "text")
            if any(isinstance(value, _Function) for value in (*arguments, *named.values())):
                raise _refused(node, f"giving a function to `{cut(ast.unparse(node.func))}`")
        self._go_through(node, *arguments, *named.values())
        return self._small(called(*arguments, **named))

    def _listed(self, node: ast.expr) -> Any:
        found = self.value(node)
        if not isinstance(found, range | list | tuple):
            raise _refused(node, "going through this")
        return found

    def _named(self, node: ast.Name) -> Any:
        place: _Evaluation | None = self
        while place is not None:
            if node.id in place.local:
                return place.local[node.id]
            place = place.home
        if node.id in self.module.values:
            return self.module.values[node.id]
        raise CourseError(f"line {node.lineno}: {node.id} is not defined, or nothing that the grader evaluates.", node.lineno)

    def _binary(self, node: ast.AST, op: ast.operator, left: Any, right: Any) -> Any:
        left, right = self._number(node, left), self._number(node, right)
        if isinstance(op, ast.Pow):
            return self._small(_power(left, right))
        if isinstance(op, ast.LShift):
            return self._small(_shifted(left, right))
        if type(op) not in _BINARY:
            raise _refused(node, "this operator")
        return self._small(_BINARY[type(op)](left, right))

    @staticmethod
    def _number(node: ast.AST, value: Any) -> Any:
        if not isinstance(value, int | float):
            raise _refused(node, "arithmetic with anything but numbers")
        return value

    @staticmethod
    def _small(value: Any) -> Any:
        if isinstance(value, complex) or (isinstance(value, int) and value.bit_length() > BITS):
            raise OverflowError("the number is too large, or none that is real")
        return value
