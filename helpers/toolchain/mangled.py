"""The types of a kernel's parameters, and its name with its namespaces, out of its symbol: `_Z5scaleIfEvPT_S0_` takes float* and float.

A compiler writes both into the name of every C++ function (the Itanium C++ ABI, "mangling"). The source says them too, but only to who
evaluates its macros, aliases and templates. A kernel that is extern "C" has a plain name, which says neither.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_BUILTIN = {
    "v": "void", "w": "wchar_t", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char", "s": "short", "t": "unsigned short",
    "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long", "x": "long long", "y": "unsigned long long",
    "n": "__int128", "o": "unsigned __int128", "f": "float", "d": "double", "e": "long double", "g": "__float128", "z": "...",
    "Dn": "std::nullptr_t", "Du": "char8_t", "Ds": "char16_t", "Di": "char32_t", "DF16_": "_Float16", "DF16b": "__bf16",
}  # fmt: skip
_STANDARD = {"a": "allocator", "b": "basic_string", "s": "string", "i": "istream", "o": "ostream", "d": "iostream"}
_UNARY = {"ps", "ng", "ad", "de", "co", "nt", "sz", "az", "nx", "sZ", "sP"}
_BINARY = {"pl", "mi", "ml", "dv", "rm", "an", "or", "eo", "ls", "rs", "eq", "ne", "lt", "gt", "le", "ge", "ss", "aa", "oo", "cm", "ix"}
_MOST = 20_000  # parts of one signature: substitutions can name types that grow without bound


@dataclass(frozen=True)
class ParameterType:
    """A parameter's type. name: as C++ spells it, without a const of its own. pointer_to: the elements of the array that a pointer (or
    reference) leads to, without const, or None for what is passed by value; const: those cannot be written through it."""

    name: str
    pointer_to: str | None = None
    const: bool = False


def parameter_types(symbol: str) -> tuple[ParameterType, ...] | None:
    """The types of the parameters of the function with this symbol; None if it does not say them (extern "C"), or not readably."""
    try:
        reader = _Reader(symbol)
        return tuple(_described(part) for part in reader.all_resolved(reader.parameters))
    except (ValueError, IndexError, RecursionError):
        return None


def qualified_name(symbol: str) -> str:
    """The function's name with its namespaces, without template arguments: `_ZN1b1kIfEEvPT_` -> b::k. An unnamed namespace has no name."""
    try:
        name = _Reader(symbol).name
        name = name.parts[0] if name.kind == "instance" else name
        return re.sub(r"\b_GLOBAL__N_\w*::", "", _spelled(name))
    except (ValueError, IndexError, RecursionError):
        return symbol


def variable_name(symbol: str) -> str:
    """The name of a variable that a function declares, without the function's: `_ZZ1kPfE4tile` -> tile. Any other symbol as it is."""
    for match in re.finditer(r"E(\d+)", symbol if symbol.startswith("_ZZ") else ""):
        name, rest = symbol[match.end() :][: int(match[1])], symbol[match.end() :][int(match[1]) :]
        if len(name) == int(match[1]) and re.fullmatch(r"(_\d+|__\d+_)?", rest):
            return name
    return symbol


@dataclass(frozen=True)
class _Part:
    """A piece of a name. kind: "name", "member" (of parts[0]), "instance" (a template, its arguments), "const", "pointer" (or reference),
    "array", "function" (its result first), "parameter" (of the template around it), "pack", "expansion", "other"."""

    kind: str
    name: str = ""
    parts: tuple[_Part, ...] = ()


class _Reader:
    """A symbol, read from its beginning to its end: the function's `name` and its `parameters`, with what it takes to resolve them.

    Raises ValueError or IndexError for what it cannot read.
    """

    def __init__(self, symbol: str):
        if not symbol.startswith("_Z"):
            raise ValueError("plain name")
        self.text, self.at, self.steps = symbol, 2, 0
        self.seen: list[_Part] = []  # what S_, S0_, S1_, … stand for
        self.name, self.parameters = self.encoding()
        if self.at < len(self.text) and not self.next_is("."):
            raise ValueError("more than a function")
        self.arguments = self.name.parts[1:] if self.name.kind == "instance" else ()  # what T_, T0_, T1_, … stand for

    # ------------------------------------------------------------------------------------------- letters

    def next_is(self, *beginnings: str) -> bool:
        return self.text.startswith(beginnings, self.at)

    def taken(self, beginning: str) -> bool:
        found = self.text.startswith(beginning, self.at)
        self.at += len(beginning) * found
        return found

    def match(self, pattern: str) -> str:
        found = re.compile(pattern).match(self.text, self.at)
        if not found:
            raise ValueError(f"{pattern} expected at {self.at}")
        self.at = found.end()
        return found[0]

    def number(self) -> int:
        """`_` is 0, `0_` is 1, `Z_` is 36: how both substitutions and template parameters are counted."""
        digits = self.match(r"[0-9A-Z]*_")[:-1]
        return int(digits, 36) + 1 if digits else 0

    def remember(self, part: _Part) -> _Part:
        self.seen.append(part)
        return part

    # ------------------------------------------------------------------------------------------- names

    def encoding(self) -> tuple[_Part, tuple[_Part, ...]]:
        """A function: its name and its parameters. The result is between them where it is a template's instance."""
        name = self.entity()
        if name.kind == "instance":
            self.type()
        parameters = []
        while self.at < len(self.text) and not self.next_is("E", "."):
            parameters.append(self.type())
        return name, () if parameters == [_Part("name", "void")] else tuple(parameters)

    def entity(self) -> _Part:
        """A name that is no type's, of which only what leads to it can be named again."""
        if self.taken("N"):
            return self.nested()
        if self.taken("Z"):
            return self.local()
        name = self.substituted() if self.next_is("S") and not self.next_is("St") else self.unscoped()
        if self.next_is("I"):
            if name not in self.seen:
                self.remember(name)
            return _Part("instance", parts=(name, *self.template_arguments()))
        return name

    def unscoped(self) -> _Part:
        scope = _Part("name", "std") if self.taken("St") else None
        return self.member(scope)

    def member(self, scope: _Part | None) -> _Part:
        """One identifier, in `scope`."""
        self.taken("L")
        if self.taken("Ut"):
            name = f"(unnamed {self.match(r'[0-9]*_')})"
        elif self.taken("Ul"):
            while not self.taken("E"):
                self.type()
            name = f"(lambda {self.match(r'[0-9]*_')})"
        else:
            length = int(self.match(r"[1-9][0-9]*"))
            name = self.text[self.at : self.at + length]
            if len(name) != length:
                raise ValueError("cut off")
            self.at += length
        while self.taken("B"):  # a mark of the library's version
            self.at += int(self.match(r"[1-9][0-9]*"))
        return _Part("member", name, (scope,)) if scope else _Part("name", name)

    def nested(self) -> _Part:
        self.match(r"[rVK]*[RO]?")
        name: _Part | None = None
        while not self.taken("E"):
            known = False
            if self.next_is("St") and name is None:
                self.at += 2
                name, known = _Part("name", "std"), True
            elif self.next_is("S"):
                name, known = self.substituted(), True
            elif self.next_is("T"):
                name = self.template_parameter()
            elif self.next_is("DT", "Dt"):
                name = self.type()
                known = True
            elif self.next_is("I") and name is not None:
                name = _Part("instance", parts=(name, *self.template_arguments()))
            else:
                name = self.member(name)
            if not known and not self.next_is("E"):
                self.remember(name)
        if name is None:
            raise ValueError("no name")
        return name

    def local(self) -> _Part:
        """What a function declares in its body."""
        function, _ = self.encoding()
        self.match("E")
        if self.taken("s"):
            return function
        found = _Part("member", self.entity().name, (function,))
        self.match(r"(__[0-9]+_|_[0-9])?")
        return found

    def substituted(self) -> _Part:
        self.match("S")
        if self.next_is(*_STANDARD):
            self.at += 1
            return _Part("name", f"std::{_STANDARD[self.text[self.at - 1]]}")
        return self.seen[self.number()]

    def template_parameter(self) -> _Part:
        self.match("T")
        return _Part("parameter", str(self.number()))

    def template_arguments(self) -> tuple[_Part, ...]:
        self.match("[IJ]")
        found = []
        while not self.taken("E"):
            if self.next_is("J"):
                found.append(_Part("pack", parts=self.template_arguments()))
            elif self.next_is("L"):
                found.append(self.literal())
            elif self.taken("X"):
                found.append(self.expression())
                self.match("E")
            else:
                found.append(self.type())
        return tuple(found)

    # ------------------------------------------------------------------------------------------- values

    def literal(self) -> _Part:
        self.match("L")
        if self.taken("_Z"):
            found, _ = self.encoding()
        else:
            kind = _spelled(self.type())
            text = self.match(r"[^E]*").replace("n", "-")
            found = _Part("name", ("false", "true")[text == "1"] if kind == "bool" else text)
        self.match("E")
        return found

    def expression(self) -> _Part:
        """A computed value, which is read for what comes behind it."""
        if self.next_is("L"):
            return self.literal()
        if re.compile("T[0-9A-Z]*_").match(self.text, self.at):
            return self.template_parameter()
        if self.next_is(*"123456789"):
            self.member(None)
            if self.next_is("I"):
                self.template_arguments()
            return _Part("other", "value")
        operator = self.match("[a-z][a-zA-Z]")
        if operator == "fp":
            self.match(r"[rVK]*[0-9]*_")
        elif operator in ("st", "at"):
            self.type()
        elif operator == "sr":
            self.type()
            self.member(None)
            if self.next_is("I"):
                self.template_arguments()
        elif operator in ("cv", "tl", "cl", "il"):
            if operator in ("cv", "tl"):
                self.type()
            if operator == "cv" and not self.taken("_"):
                self.expression()
            else:
                while not self.taken("E"):
                    self.expression()
        elif operator in _UNARY | _BINARY | {"qu"}:
            for _ in range(1 if operator in _UNARY else 2 if operator in _BINARY else 3):
                self.expression()
        else:
            raise ValueError(f"operator {operator}")
        return _Part("other", "value")

    # ------------------------------------------------------------------------------------------- types

    def type(self) -> _Part:
        for letters, name in _BUILTIN.items():
            if self.taken(letters):
                return _Part("name", name)
        if self.next_is("S") and not self.next_is("St"):
            found = self.substituted()
            if self.next_is("I"):
                found = self.remember(_Part("instance", parts=(found, *self.template_arguments())))
            return found
        return self.remember(self.named_type() if self.next_is("N", "Z", "St", "L", "U", "T", *"123456789") else self.compound())

    def named_type(self) -> _Part:
        if self.taken("N"):
            return self.nested()
        if self.taken("Z"):
            return self.local()
        if re.compile("T[0-9A-Z]*_").match(self.text, self.at):
            found = self.template_parameter()
        else:
            self.match("(T[sue])?")  # an elaborated struct, union, enum
            found = self.unscoped()
        if self.next_is("I"):
            self.remember(found)
            found = _Part("instance", parts=(found, *self.template_arguments()))
        return found

    def compound(self) -> _Part:
        if qualifiers := self.match("[rVK]*"):
            of = self.type()
            return _Part("const", parts=(of,)) if "K" in qualifiers else _Part("also", parts=(of,))
        letter = self.match("[PROAFMDu]")
        if letter in "PRO":
            return _Part("pointer", {"P": "*", "R": "&", "O": "&&"}[letter], (self.type(),))
        if letter == "A":
            extent = self.match("[0-9]*")
            if not extent and not self.next_is("_"):
                self.expression()
            self.match("_")
            return _Part("array", extent, (self.type(),))
        if letter == "F":
            self.taken("Y")
            parts = []
            while not self.taken("E"):
                self.match("[RO](?=E)|")
                parts.append(self.type())
            return _Part("function", parts=tuple(parts))
        if letter == "M":
            return _Part("other", "member pointer", (self.type(), self.type()))
        if letter == "u":
            return self.member(None)
        kind = self.match("[pTtv]")
        if kind == "p":
            return _Part("expansion", parts=(self.type(),))
        if kind == "v":
            self.match("[0-9]+_")
            return _Part("other", "vector", (self.type(),))
        self.expression()
        self.match("E")
        return _Part("other", "decltype")

    # ------------------------------------------------------------------------------------------- what template parameters stand for

    def all_resolved(self, parts: tuple[_Part, ...], place: int | None = None) -> tuple[_Part, ...]:
        """`parts` with template parameters replaced by what they stand for, and packs by their elements. place: the element of packs."""
        found: list[_Part] = []
        for part in parts:
            if part.kind == "expansion":
                for element in range(self.length(part)):
                    found += self.all_resolved(part.parts, element)
            elif part.kind == "pack":
                found += self.all_resolved(part.parts)
            else:
                found.append(self.resolved(part, place))
        return tuple(found)

    def resolved(self, part: _Part, place: int | None) -> _Part:
        self.steps += 1
        if self.steps > _MOST:
            raise ValueError("too long")
        if part.kind == "also":
            return self.resolved(part.parts[0], place)
        if part.kind == "parameter":
            meant = self.arguments[int(part.name)]
            if meant.kind == "pack":
                if place is None:
                    raise ValueError("a pack that is not expanded")
                return self.resolved(meant.parts[place], None)
            return self.resolved(meant, None)
        return _Part(part.kind, part.name, self.all_resolved(part.parts, place))

    def length(self, part: _Part) -> int:
        """How many elements the packs have that `part` names."""
        self.steps += 1
        if self.steps > _MOST:
            raise ValueError("too long")
        if part.kind == "parameter":
            meant = self.arguments[int(part.name)]
            return len(meant.parts) if meant.kind == "pack" else 0
        return max((self.length(each) for each in part.parts), default=0)


def _described(part: _Part) -> ParameterType:
    while part.kind == "const":
        part = part.parts[0]
    name = _spelled(part)
    if part.kind != "pointer":
        return ParameterType(name)
    element, const = part.parts[0], False
    while element.kind in ("const", "array"):
        const = const or element.kind == "const"
        element = element.parts[0]
    return ParameterType(name) if element.kind == "function" else ParameterType(name, _spelled(element), const)


def _spelled(part: _Part) -> str:
    if part.kind == "member":
        return f"{_spelled(part.parts[0])}::{part.name}"
    if part.kind == "instance":
        return f"{_spelled(part.parts[0])}<{', '.join(map(_spelled, part.parts[1:]))}>"
    if part.kind == "const":
        return f"{_spelled(part.parts[0])} const"
    if part.kind == "pointer":
        inner, behind = part.parts[0], ""
        while inner.kind == "array":
            inner, behind = inner.parts[0], f"{behind} [{inner.name}]"
        if inner.kind == "function":
            behind, inner = f"({_listed(inner.parts[1:])})", inner.parts[0]
        return f"{_spelled(inner)} ({part.name}){behind}" if behind else f"{_spelled(inner)}{part.name}"
    if part.kind == "array":
        return f"{_spelled(part.parts[0])} [{part.name}]"
    if part.kind == "function":
        return f"{_spelled(part.parts[0])} ({_listed(part.parts[1:])})"
    return _spelled(part.parts[0]) if part.kind == "also" else part.name


def _listed(parameters: tuple[_Part, ...]) -> str:
    return "" if parameters == (_Part("name", "void"),) else ", ".join(map(_spelled, parameters))
