"""The kernels of a file, and which one is meant. Templates are named as the file's own launches name them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from helpers.errors import CompileError
from helpers.sim.code.ptx import declarations as ptx_declarations

from .host_code import Declaration, declarations, device_mark, structure
from .mangled import qualified_name

_SHOWN = 6  # instances listed for a template
_MOST = 64  # instances followed: a launcher of a launcher can have any number
_NAME = re.compile(r"(?<![\w.:])[A-Za-z_]\w*(?!\s*::|\w)")
_TYPE = re.compile(
    r"(unsigned|signed|(u?(char|short|int|long)|long|longlong|ulonglong|float|double)[1-4]?|bool|void|true|false|sizeof|const"
    r"|u?int(8|16|32|64)_t|size_t|(__)?half2?|(__)?nv_\w+|u(char|short|int|long))"
)
_CONSTANT = r"\b(?:const|constexpr)\b[^;{{}}()]*?\b{0}\s*(?:=\s*|\{{\s*)([^,;}}]+?)\s*[,;}}]"
_ALIAS = r"\busing\s+{0}\s*=\s*([^;]+?)\s*;|\btypedef\s+([^;]+?)\s+{0}\s*;"


class NoKernelError(CompileError):
    """A source without a kernel, or whose kernel nothing instantiates."""


@dataclass(frozen=True)
class KernelDeclaration:
    """A `__global__` function: name with its namespaces, line, template parameters as written (() for no template),
    and the instances that the file's own host code names, `gemm<64, 8>`, in order."""

    name: str
    line: int
    parameters: tuple[str, ...] = ()
    instances: tuple[str, ...] = ()

    def __str__(self) -> str:
        written = f"{self.name}<{', '.join(self.parameters)}>" if self.parameters else self.name
        more = ", …" if len(self.instances) > _SHOWN else ""
        launched = f", launched as {', '.join(self.instances[:_SHOWN])}{more}" if self.instances else ""
        return f"line {self.line}: {written}{launched}"

    def is_called(self, entry: str | None) -> bool:
        return entry in (None, self.name, self.name.split("::")[-1])


def kernels(source: str) -> tuple[KernelDeclaration, ...]:
    """The kernels that `source` defines, in order; () if its braces do not match."""
    text, macros = structure(source)
    items = list(declarations(text))
    known = _file_level(source, text, items)
    found: dict[str, KernelDeclaration] = {}
    for item in items:
        if not item.is_function or not device_mark(item.head, macros, "__global__"):
            continue
        name, parameters = item.function_name, _template_parameters(item.head)
        line = text.count("\n", 0, item.start + item.head.rindex(name, 0, item.head.rindex("("))) + 1
        arguments = _instances(text, items, item) if parameters else ()
        instances = tuple(
            dict.fromkeys(
                f"{item.namespace}{name}<{' '.join(', '.join(values).split())}>" for values in arguments if not _unknown(values, known)
            )
        )
        found.setdefault(item.namespace + name, KernelDeclaration(item.namespace + name, line, parameters, instances))
    return tuple(found.values())


def only_declared(source: str) -> dict[str, int]:
    """The kernels that `source` declares without their body: name with its namespaces -> line."""
    text, macros = structure(source)
    defined = {item.name for item in kernels(source)}
    found: dict[str, int] = {}
    for item in declarations(text):
        explicit = re.match(r"\s*template\s+[^<\s]", item.head)  # an instance, of a template whose body is here
        name = item.namespace + item.function_name
        if item.is_function or item.owner or explicit or not item.function_name or name in defined:
            continue
        if device_mark(item.head, macros, "__global__") and text[item.end - 1] == ";":
            found.setdefault(name, text.count("\n", 0, item.start) + 1)
    return found


def _elsewhere(source: str, entry: str | None) -> NoKernelError | None:
    """What to do about a kernel that is declared here and defined in another file."""
    named = {name: line for name, line in only_declared(source).items() if entry is None or f"::{name}".endswith(f"::{entry}")}
    if not named:
        return None
    name, line = next(iter(named.items()))
    return NoKernelError(f"line {line}: kernel {name} is only declared here, and its body is in another file: paste it below.", line)


def namesake(name: str, source: str) -> str | None:
    """`name`, if the source has several kernels and one that is no template is called so: the one that `%%cuda name` means."""
    declared = kernels(source)
    return name if len(declared) > 1 and any(item.name == name and not item.parameters for item in declared) else None


def instance(source: str, entry: str | None) -> str | None:
    """The template instance that `entry` means, as the compiler wants it named; None if it names no template.

    A template that the file's own launches instantiate in one way needs no arguments, and no name if it is the only kernel.
    Names that only the launching function knows (`BM` of `constexpr int BM = 64;`) are replaced by their values.
    """
    declared = kernels(source) if "template" in source else ()
    name, bracket, arguments = (entry or "").partition("<")
    called = [item for item in declared if item.is_called(name.strip() or None)]
    if not bracket:
        return called[0].instances[0] if len(called) == 1 and len(called[0].instances) == 1 else None
    if not called:
        return entry
    text, _ = structure(source)
    items = list(declarations(text))
    values = _split(arguments.rstrip().removesuffix(">"))
    for function, place, written in _uses(text, items, called[0].name.split("::")[-1]):
        if written == values:
            return f"{called[0].name}<{', '.join(next(_resolved(text, items, function, place, written), values))}>"
    return f"{called[0].name}<{', '.join(values)}>"


def choose(ptx: str, source: str, entry: str | None) -> str:
    """The mangled name, in `ptx`, of the kernel `entry` (None: the only one). Raises CompileError that lists the kernels."""
    symbols = [function.name for function in ptx_declarations(ptx).functions.values() if function.entry]
    declared = kernels(source)
    plain = entry.split("::")[-1] if entry else None
    matches = [symbol for symbol in symbols if entry in (None, symbol) or plain == plain_name(symbol)]
    if entry:  # with its namespaces, or some of them; extern "C" has none
        known = {symbol: f"::{qualified_name(symbol)}" if symbol.startswith("_Z") else f"::{entry}" for symbol in matches}
        wanted = f"::{entry.removeprefix('::')}"
        matches = [symbol for symbol in matches if known[symbol] == wanted] or [
            symbol for symbol in matches if symbol == entry or known[symbol].endswith(wanted)
        ]
    if len(matches) == 1:
        bound = plain_name(matches[0])
        if entry or not any(item.instances and not item.is_called(bound) for item in declared):
            return matches[0]
    called = [item for item in declared if item.is_called(entry)]
    names = ", ".join([item.name.split("::")[-1] for item in declared] or dict.fromkeys(plain_name(symbol) for symbol in symbols))
    templates = "".join(f"\n  {item}" for item in declared if item.parameters) if len(declared) > 1 else ""
    if not matches and not called and (elsewhere := _elsewhere(source, entry.removeprefix("::").partition("<")[0] if entry else None)):
        raise elsewhere
    if not names:
        raise NoKernelError(
            "There is no kernel in this source: write __global__ in front of the function that the GPU starts, "
            "as in `__global__ void gemm(…)`."
        )
    if entry and not called and not matches:
        raise CompileError(f"There is no kernel called {entry!r} in this source. Its kernels: {names}.{templates}")
    if len(called) == 1 and not matches:
        item = called[0]
        if not item.parameters:
            raise CompileError(
                f"line {item.line}: {item.name} is in the source and in nothing that was compiled: an #if leaves it out, and -D options "
                "decide that.",
                item.line,
            )
        required = [parameter for parameter in item.parameters if "=" not in parameter and "..." not in parameter]
        given = ", ".join("float" if re.match(r"(typename|class)\b", parameter) else "64" for parameter in required)
        example = item.instances[0] if item.instances else f"{item.name}<{given}>"
        ways = f" The file launches it as {', '.join(item.instances[:_SHOWN])}." if item.instances else ""
        raise NoKernelError(
            f"line {item.line}: the kernel is a template, and no instance of it was compiled. Name one with its arguments: "
            f"entry='{example}' (in the magic: %%cuda name --entry '{example}').{ways}",
            item.line,
        )
    if entry:
        different = sorted({qualified_name(symbol) for symbol in matches})
        if len(different) > 1:
            ways = " or ".join(f"entry={name!r}" for name in different)
            raise CompileError(f"{len(matches)} kernels are called {entry!r}: name one with its namespace, {ways}.")
        if matches and not any(re.search(r"\d" + re.escape(plain_name(symbol)) + "I", symbol) for symbol in matches):
            raise CompileError(
                f"{len(matches)} kernels are called {entry!r} and differ in their parameters alone, so that no name tells which is meant: "
                "give one of them another name."
            )
        raise CompileError(
            f"{len(matches)} kernels are called {entry!r}: name a template with its arguments, as in {entry}<64>.{templates}"
        )
    raise CompileError(
        f"There are {max(len(declared), len(symbols))} kernels ({names}) and only one can be bound. "
        f"Make the others __device__ functions, or name the one you mean: entry='…' (in a cell: %%cuda its_name, or --entry …).{templates}"
    )


def plain_name(symbol: str) -> str:
    """The identifier inside an Itanium-mangled function name: `_Z5naiveii` -> naive, `_ZN2ns4gemmEPf` -> gemm."""
    match = re.match(r"_ZN?", symbol)
    if not match:
        return symbol
    rest, name = symbol[match.end() :], ""
    while match := re.match(r"(\d+)", rest):
        length = int(match[1])
        name, rest = rest[match.end() :][:length], rest[match.end() + length :]
        if not symbol.startswith("_ZN"):
            break
    return name or symbol


# ------------------------------------------------------------------------------------------------------- templates


def _file_level(source: str, text: str, items: Sequence[Declaration]) -> set[str]:
    """Every word outside the bodies of functions, and the macros."""
    for item in items:
        if item.is_function:
            text = text[: item.start] + re.sub(r"[^\n]", " ", text[item.start : item.end]) + text[item.end :]
    return set(re.findall(r"\w+", text)) | set(re.findall(r"#[ \t]*define[ \t]+(\w+)", source))


def _unknown(values: Sequence[str], known: set[str]) -> bool:
    """Do template arguments use a name that only a function or a macro's caller knows?"""
    return any(not (word in known or _TYPE.fullmatch(word)) for value in values for word in _NAME.findall(value))


def _template_parameters(head: str) -> tuple[str, ...]:
    match = re.match(r"\s*template\s*<", head)
    return tuple(" ".join(item.split()) for item in _split(_bracketed(head, match.end() - 1))) if match else ()


def _bracketed(text: str, opening: int) -> str:
    """What stands between the `<` at `opening` and its `>`; '' if there is none."""
    depth = inside = 0
    for match in re.compile(r"[<>(){};]").finditer(text, opening):
        character = match[0]
        inside += {"(": 1, ")": -1}.get(character, 0)
        if inside < 0 or character in "{};":
            return ""
        depth += {"<": 1, ">": -1}.get(character, 0) if inside == 0 else 0
        if depth == 0 and inside == 0:
            return text[opening + 1 : match.start()]
    return ""


def _split(text: str) -> list[str]:
    """`text` at its commas outside brackets."""
    found, depth = [""], 0
    for character in text:
        depth += {"(": 1, "<": 1, "[": 1, "{": 1, ")": -1, ">": -1, "]": -1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            found.append("")
        else:
            found[-1] += character
    return [" ".join(item.split()) for item in found if item.strip()]


def _uses(text: str, items: Sequence[Declaration], name: str) -> Iterator[tuple[Declaration | None, int, list[str]]]:
    """(the function around it, offset, arguments) of every place that names `name<…>`, or launches it bare (arguments [])."""
    for match in re.finditer(rf"\b{name}\s*(<<<|<)", text):
        function = next((item for item in items if item.is_function and item.start <= match.start() < item.end), None)
        arguments = [] if match[1] == "<<<" else _split(_bracketed(text, match.end() - 1))
        if match[1] == "<<<" or arguments or text[match.end() :].lstrip().startswith(">"):
            yield function, match.start(), arguments


def _instances(text: str, items: Sequence[Declaration], kernel: Declaration, depth: int = 0) -> tuple[tuple[str, ...], ...]:
    """The template arguments that the file gives `kernel`, in order: values where the file says them."""
    found: dict[tuple[str, ...], None] = {}
    parameters = _template_parameters(kernel.head)
    for function, place, arguments in _uses(text, items, kernel.function_name):
        if function is kernel:  # its own head
            continue
        missing = parameters[len(arguments) :]
        deduced = _deduced(text, function, place, kernel, missing) if missing else []
        if deduced is None:
            continue
        for values in itertools.islice(_resolved(text, items, function, place, arguments + deduced, depth), _MOST):
            found[tuple(values)] = None
    return tuple(found)


def _deduced(text: str, function: Declaration | None, place: int, kernel: Declaration, missing: Sequence[str]) -> list[str] | None:
    """The arguments of the template parameters that a launch leaves out: [] for defaults, None if it cannot be said."""
    named = [re.sub(r"=.*", "", parameter).split()[-1] for parameter in missing]
    if all("=" in parameter or "..." in parameter for parameter in missing):
        return []
    launch = re.compile(r"[^;]*?>>>\s*\(").match(text, place)
    if not function or not launch:
        return None
    given = _split(_parenthesised(text, launch.end() - 1))
    taken = _split(_parenthesised(kernel.head, kernel.head.index("(", kernel.head.rindex(kernel.function_name))))
    found = []
    for name in named:
        pairs = zip(taken, given, strict=False)
        value = next(
            (item for parameter, argument in pairs if (item := _type_of(text[function.start : place], parameter, name, argument))), None
        )
        if value is None:
            return None
        found.append(value)
    return found


def _parenthesised(text: str, opening: int) -> str:
    depth = 0
    for match in re.compile(r"[()]").finditer(text, opening):
        depth += 1 if match[0] == "(" else -1
        if depth == 0:
            return text[opening + 1 : match.start()]
    return ""


def _type_of(before: str, parameter: str, name: str, argument: str) -> str:
    """The type that `name` has if `argument`, declared in the text `before`, is passed as `parameter`; '' if unclear."""
    shape = re.fullmatch(rf"(?:const\s+)?{name}\s*(?:const\s*)?(\*?)\s*(?:const\s+|__restrict__\s+|__restrict\s+)*\w+(\[\])?", parameter)
    if not shape or not re.fullmatch(r"\w+", argument):
        return ""
    star = r"(?:[^;(){}=]*?,)?\s*\*\s*" if shape[1] or shape[2] else r"\s+"
    found = re.findall(rf"(?<![\w.])((?:unsigned\s+|const\s+)*[A-Za-z_][\w:]*){star}(?:__restrict__\s+)?{argument}\s*[;,=)\[]", before)
    kind = re.sub(r"\bconst\s+", "", found[-1]).strip() if found else ""
    return "" if kind in ("return", "auto", "else") else kind


def _resolved(
    text: str, items: Sequence[Declaration], function: Declaration | None, place: int, arguments: Sequence[str], depth: int = 0
) -> Iterator[list[str]]:
    """`arguments` with the constants, aliases and template parameters of the function around `place` replaced."""
    if function is None:
        yield list(arguments)
        return
    before = text[function.start : place]
    values = [_replaced(before, argument) for argument in arguments]
    parameters = [re.sub(r"=.*", "", parameter).split()[-1] for parameter in _template_parameters(function.head)]
    if depth > 3 or not set(parameters) & {word for value in values for word in _NAME.findall(value)}:
        yield values
        return
    for given in _instances(text, items, function, depth + 1):
        known = dict(zip(parameters, given, strict=False))
        yield [_with(known, value) for value in values]


def _with(known: dict[str, str], expression: str) -> str:
    """An expression with the parameters in `known` replaced by what they stand for."""
    return _NAME.sub(lambda match: known.get(match[0], match[0]), expression)


def _replaced(before: str, expression: str, depth: int = 0) -> str:
    """`expression` with every constant and alias that `before` defines replaced by what it stands for."""

    def value(match):
        word = match[0]
        constants = re.findall(_CONSTANT.format(word), before)
        aliases = [first or second for first, second in re.findall(_ALIAS.format(word), before)]
        if depth > 8 or not (constants or aliases):
            return word
        meaning = _replaced(before, (constants or aliases)[-1], depth + 1)
        return meaning if aliases or re.fullmatch(r"[\w.]+", meaning) else f"({meaning})"

    return _NAME.sub(value, expression)
