"""What the compiled PTX, the compiler's report and the source say of a kernel: its name, parameters, resources, constants."""

from __future__ import annotations

import re

from helpers.errors import LaunchError, RunError
from helpers.sim.checks.shared_cells import plain_name as variable_name
from helpers.sim.code.addresses import shared_start
from helpers.sim.code.ptx import FILENAME, TYPE_BYTES, declarations, parse
from helpers.sim.code.variables import Variables, place

from .compiled import Parameter
from .host_code import strip_comments
from .kernels import plain_name


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


def _signature(source: str, name: str) -> list[str]:
    """The parameter declarations of kernel `name` as written in the source; [] if they cannot be found."""
    text = strip_comments(source)
    for match in re.finditer(rf"\b{re.escape(name)}\s*\(", text):
        before = text[: match.start()]
        start = max(before.rfind(";"), before.rfind("}"))
        if "__global__" not in before[start + 1 :]:
            continue
        depth, begin = 1, match.end()
        for position in range(begin, len(text)):
            depth += {"(": 1, ")": -1}.get(text[position], 0)
            if depth == 0:
                return _split_commas(text[begin:position])
    return []


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


def parameters(ptx: str, symbol: str, source: str) -> tuple[Parameter, ...]:
    written = _signature(source, plain_name(symbol))
    aliases = _aliases(source)
    found = []
    for index, variable in enumerate(declarations(ptx).functions[symbol].parameters):
        text = written[index] if index < len(written) else ""
        name = re.search(r"(\w+)\s*(?:\[[^\]]*\])?\s*$", text.split("=")[0])
        pointer_to, const = _pointee(text)
        pointer_to = _meant(pointer_to, aliases)
        size = variable.nbytes
        found.append(Parameter(
            name=name[1] if name else f"argument {index}",
            ptx_type=variable.type, pointer_to=pointer_to if variable.type == "u64" else None, const=const, size=size,
            half=_half(text, symbol) if size == 2 and variable.type == "b8" else "",
        ))  # fmt: skip
    return tuple(found)


def _half(declaration: str, symbol: str) -> str:
    """The 16-bit float that a parameter is: as declared, or (a template's `T`) as the kernel's mangled name has it."""
    declared = re.search(r"\b(?:__)?(half|nv_bfloat16)\b", declaration) or re.search(r"\d__(half|nv_bfloat16)", symbol)
    return "" if not declared else "float16" if declared[1] == "half" else "bfloat16"


def _pointee(declaration: str) -> tuple[str | None, bool]:
    """('float', True) for `const float* __restrict__ A`; (None, …) if it is no pointer."""
    text = re.sub(r"\b(__restrict__|__restrict|volatile|__grid_constant__|struct|restrict)\b", " ", declaration)
    if not ("*" in text or "[" in text):
        return None, bool(re.search(r"\bconst\b", text))
    head = re.split(r"[*]", text)[0] if "*" in text else re.sub(r"\w+\s*\[.*", "", text)
    const = bool(re.search(r"\bconst\b", head))
    return " ".join(re.sub(r"\bconst\b", " ", head).split()) or None, const


_ALIAS = re.compile(r"\busing\s+(\w+)\s*=\s*([\w:\s]+?)\s*;|\btypedef\s+([\w:\s]+?)\s+(\w+)\s*;")


def _aliases(source: str) -> dict[str, str]:
    """What the source's own names for types stand for: `using Element = __half;` and `typedef __half Element;`."""
    found = (match.groups() for match in _ALIAS.finditer(strip_comments(source)))
    return {name or other: meant or type_ for name, meant, type_, other in found}


def _meant(name: str | None, aliases: dict[str, str]) -> str | None:
    """The type behind a name, through aliases of aliases."""
    seen: set[str] = set()
    while name in aliases and name not in seen:
        seen.add(name)
        name = aliases[name]
    return name


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


def _declared_at(source: str, name: str) -> str:
    """'line 12: ', where a shared variable is declared, or ''."""
    code = strip_comments(source)
    for declaration in re.finditer(r"__shared__[^;]*;", code):
        if place := re.search(rf"\b{re.escape(name)}\b", declaration[0]):
            return f"line {code.count(chr(10), 0, declaration.start() + place.start()) + 1}: "
    return ""


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
