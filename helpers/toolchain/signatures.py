"""What the compiled PTX, the compiler's report and the source say of a kernel: its name, parameters, resources, constants."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from helpers.errors import LaunchError, RunError
from helpers.sim.checks.shared_cells import plain_name as variable_name
from helpers.sim.code.addresses import shared_start
from helpers.sim.code.ptx import FILENAME, TYPE_BYTES, declarations, parse
from helpers.sim.code.variables import Variables, place

from .compiled import Parameter
from .host_code import strip_comments
from .kernels import plain_name
from .mangled import ParameterType, parameter_types


def resource_usage(log: str, symbol: str) -> dict[str, int]:
    """Registers, shared, local and spill bytes from `ptxas -v`; 0 where ptxas said nothing."""
    usage = {"registers": 0, "shared_bytes": 0, "local_bytes": 0, "spill_stores": 0, "spill_loads": 0}
    section = re.search(rf"Compiling entry function '{re.escape(symbol)}'(.*?)(?:Compiling entry function|\Z)", log, re.S)
    text = section[1] if section else ""
    for name, pattern in (
        ("registers", r"Used (\d+) registers"),
        ("shared_bytes", r"(\d+)(?:\+\d+)? bytes smem"),
        ("local_bytes", r"(\d+) bytes stack frame"),
        ("spill_stores", r"(\d+) bytes spill stores"),
        ("spill_loads", r"(\d+) bytes spill loads"),
    ):
        match = re.search(pattern, text)
        usage[name] = int(match[1]) if match else 0
    return usage


_LOSS = re.compile(r"^ptxas info\s*: \((C\d+)\) Potential Performance Loss: (.*?) in the function '([^']*)'", re.M)


def losses(log: str, symbol: str) -> list[str]:
    """What the assembler says that it did to a kernel at the cost of speed, as sentences."""
    return [
        f"The assembler (ptxas, {number}) warns of a loss of speed: {re.sub(' +', ' ', text)}."
        + (" Each then waits for the one before it." if "serialized" in text else "")
        for number, text, name in dict.fromkeys(_LOSS.findall(log))
        if name == symbol
    ]


def shared_bytes(ptx: str, symbol: str) -> int:
    """Bytes of static shared memory that kernel `symbol` has by the PTX alone, as the machine lays them out."""
    return _variables(ptx, symbol).shared_bytes


def _variables(ptx: str, symbol: str) -> Variables:
    """Where the variables of a kernel lie. Of text that cannot be read it has none: a launch says what it cannot read, and where."""
    try:
        module = parse(ptx, FILENAME)
        return place(module, module.functions[symbol])
    except (RunError, LaunchError):
        return Variables(declarations(ptx))


def _declared(source: str, name: str) -> list[list[str]]:
    """The parameter declarations of every kernel `name` as written in the source, in branches that are not compiled too."""
    text = strip_comments(source)
    found = []
    for match in re.finditer(rf"\b{re.escape(name)}\s*\(", text):
        before = text[: match.start()]
        start = max(before.rfind(";"), before.rfind("}"))
        if "__global__" not in before[start + 1 :]:
            continue
        depth, begin = 1, match.end()
        for position in range(begin, len(text)):
            depth += {"(": 1, ")": -1}.get(text[position], 0)
            if depth == 0:
                found.append(_split_commas(text[begin:position]))
                break
    return [[] if parts == ["void"] else parts for parts in found]


def _split_commas(text: str) -> list[str]:
    parts, depth, current = [], 0, ""
    for character in text:
        depth += {"(": 1, "<": 1, "[": 1, ")": -1, ">": -1, "]": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += character
    return [part.strip() for part in [*parts, current] if part.strip()]


_MOST_CONSTANTS = 1 << 16  # elements of an array; a larger one is data


def parameters(ptx: str, symbol: str, source: str, options: Sequence[str] = ()) -> tuple[Parameter, ...]:
    """The parameters of kernel `symbol`: their types by its mangled name, which knows what macros, aliases and templates stand for; their
    names by the source, which also says the types of an extern "C" kernel. options: of the compiler, which define macros."""
    variables = declarations(ptx).functions[symbol].parameters
    types = parameter_types(symbol)
    if types is not None and len(types) != len(variables):
        types = None
    meanings = _meanings(source, options)
    ways = [_Written.of(way, len(variables), meanings) for way in _declared(source, plain_name(symbol))]
    ways = [way for way in ways if len(way) == len(variables)]
    if types is not None:
        ways.sort(key=lambda way: -sum(one.agrees(type_) for one, type_ in zip(way, types, strict=True)))
        written = ways[0] if ways else [_Written(f"argument {index}") for index in range(len(types))]
        said = [
            replace(one, type=type_.name, pointer_to=type_.pointer_to, const=type_.const if type_.pointer_to is not None else one.const)
            for one, type_ in zip(written, types, strict=True)
        ]
    else:
        ways = [way for way in ways if all(one.fits(variable.type) for one, variable in zip(way, variables, strict=True))] or ways
        said = [_common(each) for each in zip(*ways, strict=True)] if ways else []
        said = said or [_Written(f"argument {index}") for index in range(len(variables))]
    found = []
    for one, variable in zip(said, variables, strict=True):
        # In the PTX a __grid_constant__ is bytes, whatever it is.
        kind = "u64" if one.pointer_to is not None else _SCALARS.get(one.type or "", variable.type)
        type_ = kind if variable.type == "b8" and TYPE_BYTES[kind] == variable.nbytes else variable.type
        pointer_to = one.pointer_to if one.type is not None else ""
        found.append(Parameter(
            name=one.name, ptx_type=type_, pointer_to=pointer_to if type_ == "u64" else None, const=one.const, size=variable.nbytes,
            half=_HALVES.get(one.type or "", "") if variable.nbytes == 2 and type_ == "b8" else "",
            signed=one.pointer_to is None and _SCALARS.get(one.type or "") == f"s{8 * variable.nbytes}",
        ))  # fmt: skip
    return tuple(found)


_SCALARS = {
    "bool": "u8", "char": "s8", "signed char": "s8", "unsigned char": "u8", "short": "s16", "unsigned short": "u16", "int": "s32",
    "unsigned int": "u32", "long": "s64", "unsigned long": "u64", "long long": "s64", "unsigned long long": "u64",
    "float": "f32", "double": "f64",
    "size_t": "u64", "ptrdiff_t": "s64", "uintptr_t": "u64", "intptr_t": "s64", "ushort": "u16", "uint": "u32", "ulong": "u64",
    **{f"{sign}int{bits}_t": f"{sign or 's'}{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
_HALVES = {"half": "float16", "__half": "float16", "nv_bfloat16": "bfloat16", "__nv_bfloat16": "bfloat16"}
_ELEMENTARY = {*_SCALARS, *_HALVES}


@dataclass(frozen=True)
class _Written:
    """A parameter as the source declares it. type: with aliases replaced, and None where it does not say whether that is a pointer."""

    name: str
    type: str | None = None
    pointer_to: str | None = None
    const: bool = False

    @classmethod
    def of(cls, declarations_: Sequence[str], count: int, meanings: Mapping[str, set[str]]) -> list[_Written]:
        """The parameters that declarations declare, of which a pack has as many as there are more of `count`."""
        found: list[_Written] = []
        for text in declarations_:
            name = _declared_name(text)
            if "..." in text:
                more = range(max(0, count - len(declarations_) + 1))
                found += [replace(_typed(name, text.replace("...", " "), meanings), name=f"{name}[{index}]") for index in more]
            else:
                found.append(_typed(name or f"argument {len(found)}", text, meanings))
        return found

    def agrees(self, type_: ParameterType) -> bool:
        """Is this how the source may write `type_`?"""
        mine, its = (self.pointer_to, type_.pointer_to) if type_.pointer_to else (self.type, type_.name)
        return mine is not None and mine.split("::")[-1].strip("_") == (its or "").split("::")[-1].strip("_")

    def fits(self, ptx_type: str) -> bool:
        """Can the PTX have it as this type?"""
        if self.pointer_to is not None:
            return ptx_type in ("u64", "b8")
        known = _SCALARS.get(self.type or "")
        return known is None or ptx_type == "b8" or (known[1:] == ptx_type[1:] and (known[0] == "f") == (ptx_type[0] == "f"))


def _common(ways: Sequence[_Written]) -> _Written:
    """What all ways to write a parameter say of it."""
    first = ways[0]
    if len({(one.type, one.pointer_to, one.const) for one in ways}) == 1:
        return first
    pointers = {one.pointer_to is not None for one in ways}
    return _Written(first.name, "void*", "void") if pointers == {True} else _Written(first.name)


def _declared_name(declaration: str) -> str:
    """The name that a declaration gives its parameter; '' if it has none."""
    text = declaration.split("=")[0]
    found = re.search(r"\(\s*[*&]+\s*(?:\w+\s+)*?(\w+)\s*\)", text) or re.search(r"(\w+)\s*(?:\[[^\]]*\]\s*)*$", text)
    return found[1] if found else ""


_QUALIFIER = re.compile(r"\b(__restrict__|__restrict|restrict|volatile|__grid_constant__|struct|enum|typename|register)\b")
_MARKS = re.compile(r"\(?\s*[*&][\s\w*&]*\)?")
_NO_POINTER = re.compile(r"\(\s*\*[^()]*\)\s*\(|::\s*\*")  # to data: a pointer to a function, or to a member


def _typed(name: str, declaration: str, meanings: Mapping[str, set[str]]) -> _Written:
    """A parameter with the type that its declaration says, through aliases and macros."""
    text = _QUALIFIER.sub(" ", declaration.split("=")[0])
    if _NO_POINTER.search(text):
        return _Written(name, "function", None, bool(re.search(r"\bconst\b", text)))
    if not re.search(r"[*&\[]", text):
        text = text[: text.rindex(name)] if name in text else text
    else:
        text = (
            _MARKS.sub(lambda match: re.sub(r"[^*&]", "", match[0]), text)
            if re.search(r"[*&]", text)
            else re.sub(r"\w+\s*\[.*", " *", text)
        )
    for _ in range(8):
        head = re.split(r"[*&\[]", text)[0]
        words = re.sub(r"\bconst\b", " ", head).split()
        meant = meanings.get(words[0].removeprefix("std::"), set()) if len(words) == 1 else set()
        if not meant or _plain(words) in _ELEMENTARY:
            break
        if len(meant) > 1:  # another branch's, or another scope's: which one is not known here
            return _Written(name, "void*", "void") if re.search(r"[*&\[]", text) else _Written(name)
        text = f"{'const ' if re.search(r'const', head) else ''}{_QUALIFIER.sub(' ', next(iter(meant)))} {text[len(head) :]}"
    const = bool(re.search(r"\bconst\b", re.split(r"[*&\[]", text)[0]))
    plain = _plain(words)
    if re.search(r"[*&\[]", text):
        plain += "*" * (len(re.findall(r"[*&]", text)) - 1)
        return _Written(name, f"{plain}*", plain, const)
    return _Written(name, plain if plain in _ELEMENTARY else None, None, const)


def _plain(words: Sequence[str]) -> str:
    """A type's words in C++'s own order: `long unsigned int` is unsigned long."""
    words = [word.removeprefix("std::") for word in words if word != "std::"]
    if not set(words) <= {"unsigned", "signed", "short", "long", "int", "char"} or not words:
        return " ".join(words)
    signed = "unsigned " if "unsigned" in words else "signed " if "signed" in words and "char" in words else ""
    size = "char" if "char" in words else "short" if "short" in words else " ".join(["long"] * words.count("long")) or "int"
    return signed + size


_ALIAS = re.compile(
    r"\busing\s+(\w+)\s*=\s*([\w:\s*]+?)\s*;|\btypedef\s+([\w:\s*]+?)\s*\b(\w+)\s*;"
    r"|^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+([A-Za-z_][\w: \t*]*?)[ \t]*$", re.M
)  # fmt: skip
_DEFINED = re.compile(r"(?:-D|--define-macro=?)\s*(\w+)=([A-Za-z_][\w: *]*)")


def _meanings(source: str, options: Sequence[str]) -> dict[str, set[str]]:
    """What the source's own names for types stand for, `using Element = __half;` say; several, by scope or branch."""
    found: dict[str, set[str]] = {}
    for match in _ALIAS.finditer(strip_comments(source)):
        name, meant, type_, other, macro, text = match.groups()
        found.setdefault(name or other or macro, set()).add(" ".join((meant or type_ or text).split()))
    for match in filter(None, map(_DEFINED.fullmatch, options)):
        found.setdefault(match[1], set()).add(match[2])
    return found


def alignments_not_given(ptx: str, symbol: str, source: str) -> tuple[str, ...]:
    """Sentences about shared variables of a kernel that will lie at no multiple of the alignment they ask for, at their lines."""
    arch = declarations(ptx).target
    start = shared_start(arch)
    asked = max(map(int, re.findall(r"\.align\s+(\d+)", ptx)), default=1)  # hardly a kernel asks for so much that it is not given
    found = {variable_name(name): alignment for name, alignment in _variables(ptx, symbol).ungiven} if start % asked else {}
    return tuple(
        f"{_declared_at(source, name)}{name} asks for an alignment of {alignment} bytes and does not get it: on {arch}, as on the "
        f"hardware, the shared memory of every block begins at address {start:#x}, and what is declared is aligned from there. Where "
        "addresses rely on it (buffers switched by ^=), add offsets instead, or round up an address in a larger buffer."
        for name, alignment in found.items()
    )


def arrays_in_one_place(ptx: str, symbol: str, source: str) -> tuple[str, ...]:
    """A sentence where a kernel has several arrays of dynamic shared memory, at the line of the last."""
    dynamic = re.findall(r"^\s*\.extern\s+\.shared\b[^;\n]*?([\w$]+)\s*\[\s*\]\s*;", ptx, re.M)
    if len(dynamic) < 2:
        return ()
    used = _variables(ptx, symbol).addresses
    names = [variable_name(name) for name in dynamic if ("", name) in used]
    if len(names) < 2:
        return ()
    names.sort(key=lambda name: _line_of(source, name))
    return (
        f"{_declared_at(source, names[-1])}{' and '.join(names)} are extern __shared__, and all such arrays of a kernel begin at the same "
        "address: what is written to one is written to the other. Declare one, and let pointers into it divide it.",
    )


def _declared_at(source: str, name: str) -> str:
    """'line 12: ', where a shared variable is declared, or ''."""
    line = _line_of(source, name)
    return f"line {line}: " if line else ""


def _line_of(source: str, name: str) -> int:
    """Where a shared variable is declared; 0 if that is not seen."""
    code = strip_comments(source)
    for declaration in re.finditer(r"__shared__[^;]*;", code):
        if place := re.search(rf"\b{re.escape(name)}\b", declaration[0]):
            return code.count("\n", 0, declaration.start() + place.start()) + 1
    return 0


def constants(ptx: str) -> dict[str, tuple[int, ...]]:
    """Integer constants that the compiler evaluated: name -> values (arrays of bytes are read as 32-bit integers)."""
    found = {}
    for name, variable in declarations(ptx).variables.items():
        width = TYPE_BYTES.get(variable.type, 0)
        if variable.space not in ("global", "const") or variable.type.startswith("f") or not width:
            continue
        if variable.type == "b8" and variable.nbytes > 1:
            width = 4
        if variable.nbytes % width == 0 and variable.nbytes <= _MOST_CONSTANTS * width:
            data = variable.initial.ljust(variable.nbytes, b"\0")
            found[name] = tuple(int.from_bytes(data[i : i + width], "little", signed=True) for i in range(0, len(data), width))
    return found
