"""What the compiled PTX, the compiler's report and the source say of a kernel: its name, parameters, resources, constants."""

from __future__ import annotations

import re

from .compiled import Parameter
from .host_code import strip_comments
from .kernels import plain_name


def resource_usage(log: str, symbol: str) -> dict[str, int]:
    """Registers, shared, local and spill bytes from `ptxas -v`."""
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
_SIZES = {"8": 1, "16": 2, "32": 4, "64": 8}


def parameters(ptx: str, symbol: str, source: str) -> tuple[Parameter, ...]:
    header = re.search(rf"\.entry\s+{re.escape(symbol)}\s*\((.*?)\)", ptx, re.S)
    if not header:  # a kernel without parameters
        return ()
    declared = _signature(source, plain_name(symbol))
    found = []
    pattern = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(?:\.ptr\b[^\w]*(?:\.\w+\s+|\d+\s+)*)?([\w$]+)(?:\[(\d+)\])?")
    for index, match in enumerate(pattern.finditer(header[1])):
        ptx_type, _, count = match.groups()
        width = _SIZES[ptx_type.lstrip("busf")]
        text = declared[index] if index < len(declared) else ""
        name = re.search(r"(\w+)\s*(?:\[[^\]]*\])?\s*$", text.split("=")[0])
        pointer_to, const = _pointee(text)
        size = width * int(count or 1)
        found.append(Parameter(
            name=name[1] if name else f"argument {index}",
            ptx_type=ptx_type, pointer_to=pointer_to if ptx_type == "u64" else None, const=const,
            size=size, half=_half(text, symbol) if size == 2 and ptx_type == "b8" else "",
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


def constants(ptx: str) -> dict[str, tuple[int, ...]]:
    """Integer constants that the compiler evaluated: name -> values (arrays of bytes are read as 32-bit integers)."""
    found: dict[str, tuple[int, ...]] = {}
    pattern = re.compile(
        r"^(?:\.visible |\.extern |\.weak )?\.(?:global|const) \.align \d+ \.(\w+) ([\w$]+)(?:\[(\d+)\])?(?: = (\{[^}]*\}|[^;]+))?;", re.M
    )
    for kind, name, count, value in pattern.findall(ptx):
        if kind.startswith("f") or int(count or 1) > _MOST_CONSTANTS:
            continue
        numbers = [int(item, 0) for item in re.findall(r"-?\b(?:0[xX][0-9a-fA-F]+|\d+)\b", value)]
        if kind == "b8" and count:
            raw = bytes(number & 255 for number in numbers).ljust(int(count), b"\0")
            if len(raw) % 4 == 0:
                found[name] = tuple(int.from_bytes(raw[i : i + 4], "little", signed=True) for i in range(0, len(raw), 4))
        elif value:
            found[name] = tuple(numbers + [0] * (int(count or 1) - len(numbers)))
        else:
            found[name] = (0,) * int(count or 1)
    return found
