"""What the compiled PTX, the compiler's report and the source say of a kernel: its name, parameters, resources, constants."""

from __future__ import annotations

import re

from helpers.errors import CompileError
from helpers.sim.code.ptx import TYPE_BYTES, declarations

from .compiled import Parameter
from .host_code import strip_comments


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


def choose_entry(ptx: str, source: str, entry: str | None, lowered: str | None) -> str:
    symbols = [function.name for function in declarations(ptx).functions.values() if function.entry]
    names = [plain_name(symbol) for symbol in symbols]
    if lowered is not None:
        return lowered
    if entry is not None:
        matches = [symbol for symbol, name in zip(symbols, names, strict=False) if entry in (name, symbol)]
        if len(matches) == 1:
            return matches[0]
        listed = ", ".join(names) or "none"
        if matches:
            raise CompileError(f"{len(matches)} kernels are called {entry!r}: name a template with its arguments, as in {entry}<64>.")
        raise CompileError(f"There is no kernel called {entry!r} in the cell. Its kernels: {listed}.")
    if len(symbols) == 1:
        return symbols[0]
    if not symbols:
        lines = [number for number, text in enumerate(strip_comments(source).split("\n"), 1) if "__global__" in text]
        if lines:
            launched = re.search(r"(\w+\s*<[^<>;(){}]*>)\s*<<<", source)
            example = launched[1] if launched else "name<64>"
            raise CompileError(
                f"line {lines[0]}: the kernel is a template that nothing instantiates. Name it with its arguments: "
                f"entry='{example}' (in the magic: %%cuda name --entry '{example}').",
                lines[0],
            )
        raise CompileError(
            "There is no kernel in the cell: write __global__ in front of the function that the GPU starts, "
            "as in `__global__ void gemm(…)`."
        )
    raise CompileError(
        f"The cell has {len(symbols)} kernels ({', '.join(names)}) and only one can be bound. "
        "Make the others __device__ functions, or name the one you mean: entry='…' (in the magic: --entry …)."
    )


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


def parameters(ptx: str, symbol: str, source: str) -> tuple[Parameter, ...]:
    written = _signature(source, plain_name(symbol))
    found = []
    for index, variable in enumerate(declarations(ptx).functions[symbol].parameters):
        text = written[index] if index < len(written) else ""
        name = re.search(r"(\w+)\s*(?:\[[^\]]*\])?\s*$", text.split("=")[0])
        pointer_to, const = _pointee(text)
        found.append(Parameter(
            name=name[1] if name else f"argument {index}",
            ptx_type=variable.type, pointer_to=pointer_to if variable.type == "u64" else None, const=const, size=variable.nbytes,
        ))  # fmt: skip
    return tuple(found)


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
    found = {}
    for name, variable in declarations(ptx).variables.items():
        width = TYPE_BYTES.get(variable.type, 0)
        if variable.space not in ("global", "const") or variable.type.startswith("f") or not width:
            continue
        if variable.type == "b8" and variable.nbytes > 1:
            width = 4
        if variable.nbytes % width == 0:
            data = variable.initial.ljust(variable.nbytes, b"\0")
            found[name] = tuple(int.from_bytes(data[i : i + width], "little", signed=True) for i in range(0, len(data), width))
    return found
