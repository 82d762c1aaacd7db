"""PTX text -> typed program: entries, functions, module variables, and instructions that know their lines.

Reads what NVRTC writes, in both dialects (typed registers up to sm_90, `%r`/`.b32` for everything from sm_100 on), and
what inline assembly may add: nested `{ }` scopes with registers and labels of their own, several statements on a line.

Lines. An instruction keeps its 1-based line in the PTX text and the line of the reader's cell (see `lines`).
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from helpers.errors import RunError

from . import time_limit
from .lines import FILE, FILENAME, LOC, line_of_ptx

# --- what a program is made of ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Register:
    """A register operand; `name` is unique within its function (scoped names carry a suffix)."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """A literal. `bits`: 32 or 64 when `value` is the bit pattern of a float (0f…, 0d…), None when it is a number. variable: the address
    of the variable that this is an address in, None for others."""

    value: int | float
    bits: int | None = None
    variable: int | None = None


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable, a function or a label, plus `offset` bytes."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Address:
    """`[base + offset]`, with the coordinates of a tensor access where there are any."""

    base: Register | Symbol | Immediate
    offset: int = 0
    coordinates: tuple = ()


@dataclass(frozen=True, slots=True)
class Vector:
    """`{a, b, …}`."""

    items: tuple


@dataclass(frozen=True, slots=True)
class Pair:
    """`d|p`: two results."""

    first: object
    second: object


@dataclass(frozen=True, slots=True)
class Negated:
    """`!p` as a source."""

    operand: Register


SINK = Symbol("_")


def flattened(operands: Iterable) -> Iterator:
    """The operands, with what stands in vectors one by one."""
    for operand in operands:
        yield from flattened(operand.items) if isinstance(operand, Vector) else (operand,)


@dataclass(frozen=True)
class Instruction:
    """One instruction: opcode 'mad.lo.s32', its operands, the guard (register name, negated) or None, and its lines. called_from: PTX lines
    of the calls that it was copied in for (see `inline`), the innermost first."""

    opcode: str
    operands: tuple
    guard: tuple[str, bool] | None
    line: int | None
    ptx_line: int
    text: str
    called_from: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The opcode up to the first dot."""
        return self.opcode.split(".", 1)[0]

    @property
    def modifiers(self) -> tuple[str, ...]:
        return tuple(self.opcode.split(".")[1:])

    @property
    def place(self) -> str:
        """Where it is, for messages: 'line 7 (PTX line 42)'; a line of the reader's cell if one is known."""
        return f"PTX line {self.ptx_line}" if self.line is None else f"line {self.line} (PTX line {self.ptx_line})"


@dataclass(frozen=True)
class Variable:
    """A variable or parameter of `nbytes` bytes; nbytes is 0 for `extern __shared__ x[]`.

    initial: little-endian bytes, with `addresses` to be filled in by the loader: (position, width, symbol, offset).
    """

    name: str
    space: str
    type: str
    align: int
    nbytes: int
    initial: bytes = b""
    addresses: tuple[tuple[int, int, str, int], ...] = ()


@dataclass
class Function:
    """An entry or a device function. `body` is None for declarations. Labels map to positions in `body`.

    directives: what stands between parameters and body, as numbers: {'reqnctapercluster': (2, 1, 1)}.
    """

    name: str
    entry: bool
    parameters: list[Variable]
    results: list[Variable]
    body: list[Instruction] | None = None
    registers: dict[str, str] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    line: int | None = None


@dataclass
class Module:
    """Everything in one PTX text."""

    target: str
    version: str
    functions: dict[str, Function]
    variables: dict[str, Variable]

    @property
    def instructions(self) -> Iterator[Instruction]:
        """Of all functions, in the order of the text."""
        return (instruction for function in self.functions.values() for instruction in function.body or ())

    def instructions_of(self, symbol: str) -> Iterator[Instruction]:
        """Those that entry `symbol` may execute: its own and all device functions', but not other entries'."""
        functions = (function for function in self.functions.values() if not function.entry or function.name == symbol)
        return (instruction for function in functions for instruction in function.body or ())


TYPE_BYTES = {
    "pred": 1, "b8": 1, "u8": 1, "s8": 1, "e4m3": 1, "e5m2": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2,
    "b32": 4, "u32": 4, "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4, "tf32": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8,
    "b128": 16,
    "e4m3x2": 2, "e5m2x2": 2, "f32x2": 8,
}  # fmt: skip

# --- statements ------------------------------------------------------------------------------------------------------

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_SPACE = re.compile(r"\s+")
_LABEL = re.compile(r"([A-Za-z_$%][\w$]*)\s*:(?!:)")
_INSTRUCTION = re.compile(r"(?:@(!?)\s*([%\w$]+)\s+)?([a-z][\w.:]*)\s*([^;]*);", re.S)
_STRING_DIRECTIVE = re.compile(r"\.pragma\s+\"[^\"]*\"\s*;")
_LINE_DIRECTIVE = re.compile(r"\.(?:version|target|address_size)[^\n]*")
_PERFORMANCE = re.compile(
    r"\.(maxntid|reqntid|minnctapersm|maxnctapersm|maxnreg|noreturn|reqnctapercluster|explicitcluster|maxclusterrank|"
    r"blocksareclusters|abi_preserve|abi_preserve_control|unified)\b([^\n{;]*)"
)
_SECTION = re.compile(r"\.section\s+[\w.$]+\s*\{.*?\}", re.S)
_LINKAGE = re.compile(r"(?:\.(?:visible|extern|weak|common)\s+)+")
_FUNCTION = re.compile(r"\.(entry|func)\b\s*(?:\(([^)]*)\)\s*)?([\w$.]+)\s*(?:\(([^)]*)\))?", re.S)
_TABLE = re.compile(r"([\w$]+)\s*:\s*\.(?:branchtargets|calltargets)\s+([^;]*);")
_PROTOTYPE = re.compile(r"([\w$]+)\s*:\s*\.callprototype\b[^;]*;", re.S)
_VARIABLE = re.compile(
    r"\.(global|const|shared|local|param|tex)\b"
    r"((?:\s*\.(?:align\s+\d+|attribute\([^)]*\)|ptr|global|shared|const|local|param))*)"
    r"\s*(?:\.(v2|v4)\s+)?\.(\w+)\s+(?:\.ptr\b(?:\s*\.(?:global|shared|const|local|generic|align\s+\d+))*\s+)?([\w$.]+)"
    r"\s*((?:\[\d*\])*)\s*(?:=\s*(.*))?$",
    re.S,
)
_REGISTERS = re.compile(r"\.reg\s*(?:\.v[24]\s*)?\.(\w+)\s+([^;]*);")
_STATEMENT_END = re.compile(r"[;{]")
_BRACE = re.compile(r"[{}]")
_ALIGN = re.compile(r"\.align\s+(\d+)")


class _Scope:
    """Names of one `{ }`: registers and labels get a suffix when an outer scope has used the name before."""

    def __init__(self, parent, suffix):
        self.parent, self.suffix = parent, suffix
        self.names: dict[str, str] = {}

    def find(self, name):
        scope = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        return None


@functools.lru_cache(maxsize=8)
def parse(ptx: str, filename: str = FILENAME) -> Module:
    """Read PTX text. `filename`: what `.file` calls the reader's cell. Raises RunError on what PTX is not."""
    return _Parser(ptx, filename).module()


def parsed(compiled) -> Module:
    """The PTX of a compiled kernel; needs `.ptx`, and `.filename` if that is not the usual one."""
    return parse(compiled.ptx, getattr(compiled, "filename", FILENAME))


@functools.lru_cache(maxsize=8)
def declarations(ptx: str) -> Module:
    """The same without what is in functions (bodies are empty, not None), in a fraction of the time. What cannot be read is left out."""
    return _Parser(ptx, FILENAME, bodies=False).module()


def directives(ptx: str, symbol: str) -> dict[str, tuple[int, ...]]:
    """What function `symbol` declares of its launch, as `Function.directives` has it; {} where there is none of this name."""
    function = declarations(ptx).functions.get(symbol)
    return function.directives if function else {}


class _Parser:
    def __init__(self, ptx: str, filename: str, bodies: bool = True):
        self.bodies = bodies
        self.lines = line_of_ptx(ptx, filename)
        self.text = _COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), ptx)
        self.position = 0
        self.ptx_line = 1

    # ------------------------------------------------------------------------------------------------ small tools

    @property
    def line(self) -> int | None:
        """The cell line of the place that is being read."""
        return self.lines.get(self.ptx_line)

    def _fail(self, why: str, text: str = ""):
        shown = f" `{_SPACE.sub(' ', text).strip()[:120]}`" if text else ""
        raise RunError(f"PTX line {self.ptx_line}: {why}{shown}.", self.line)

    def _advance(self, end: int) -> None:
        self.ptx_line += self.text.count("\n", self.position, end)
        self.position = end

    def _skip_space(self) -> bool:
        match = _SPACE.match(self.text, self.position)
        if match:
            self._advance(match.end())
        return self.position < len(self.text)

    def _take(self, pattern) -> re.Match | None:
        match = pattern.match(self.text, self.position)
        if match:
            self._advance(match.end())
        return match

    # ------------------------------------------------------------------------------------------------- the module

    def module(self) -> Module:
        target = re.search(r"\.target\s+(\w+)", self.text)
        version = re.search(r"\.version\s+([\d.]+)", self.text)
        module = Module(target[1] if target else "", version[1] if version else "", {}, {})
        while self._skip_space():
            try:
                self._statement(module)
            except RunError:
                if self.bodies:
                    raise
                self._skip_statement()
        return module

    def _statement(self, module: Module) -> None:
        if any(self._take(skipped) for skipped in (_LINE_DIRECTIVE, _SECTION, _STRING_DIRECTIVE, FILE, LOC)):
            return
        self._take(_LINKAGE)
        self._skip_space()
        if match := self._take(_FUNCTION):
            self._function(module, match)
            return
        end = self.text.find(";", self.position)
        statement = self.text[self.position : end if end >= 0 else len(self.text)].strip()
        if end < 0:
            self._fail("this statement does not end", statement)
        if match := _VARIABLE.match(statement):
            variable = self._variable(match)
            module.variables[variable.name] = variable
        elif not statement.startswith((".alias", ".pragma", ".loc")):
            self._fail("the machine does not know this directive", statement)
        self._advance(end + 1)

    def _skip_statement(self) -> None:
        """To behind the next semicolon or the closing brace of what the next brace opens."""
        match = _STATEMENT_END.search(self.text, self.position)
        self._advance(match.end() if match else len(self.text))
        if match and match[0] == "{":
            self._skip_body()

    def _skip_body(self) -> None:
        """To behind the brace that closes the one just read."""
        depth = 1
        for match in _BRACE.finditer(self.text, self.position):
            depth += 1 if match[0] == "{" else -1
            if depth == 0:
                self._advance(match.end())
                return
        self._advance(len(self.text))

    def _variable(self, match: re.Match) -> Variable:
        space, attributes, vector, kind, name, extents, initial = match.groups()
        if kind not in TYPE_BYTES and kind not in ("texref", "samplerref", "surfref"):
            self._fail(f"a variable cannot have type .{kind}", match[0])
        width = TYPE_BYTES.get(kind, 8) * (int(vector[1]) if vector else 1)
        count = 1
        for extent in re.findall(r"\[(\d*)\]", extents or ""):
            count *= int(extent or 0)
        align = _ALIGN.search(attributes or "")
        data, addresses = self._initial(kind, initial.strip()) if initial else (b"", ())
        nbytes = count * width
        if extents and "[]" in extents and initial:
            nbytes = len(data)
        return Variable(name, space, kind, int(align[1]) if align else width, nbytes, data, tuple(addresses))

    def _initial(self, kind: str, text: str):
        width = TYPE_BYTES[kind]
        data, addresses = bytearray(), []
        for item in re.sub(r"[{}]", " ", text).split(","):
            item = item.strip()
            if not item:
                continue
            mask = re.fullmatch(r"(0[xX][0-9a-fA-F]+)\s*\((.*)\)", item)  # one byte of an address: 0xFF00(symbol)
            generic = re.fullmatch(r"generic\((.*)\)", mask[2] if mask else item)
            inner = generic[1] if generic else mask[2] if mask else item
            name = re.fullmatch(r"([A-Za-z_$][\w$]*)\s*(?:\+\s*(-?\w+))?", inner)
            if name:
                if mask:
                    self._fail("addresses in pieces are not supported", text)
                addresses.append((len(data), width, name[1], int(name[2] or "0", 0)))
                data += bytes(width)
                continue
            value = self._literal(item)
            data += immediate_bits(value, kind).to_bytes(width, "little")
        return bytes(data), addresses

    def _function(self, module: Module, match: re.Match) -> None:
        kind, results, name, parameters = match.groups()
        line = self.line
        function = Function(name, kind == "entry", self._parameters(parameters), self._parameters(results), line=line)
        while True:
            self._skip_space()
            if match := self._take(_PERFORMANCE):
                function.directives[match[1]] = tuple(map(int, re.findall(r"\d+", match[2])))
                continue
            character = self.text[self.position : self.position + 1]
            if character == ";":
                self._advance(self.position + 1)
                module.functions.setdefault(name, function)
                return
            if character == "{":
                break
            if self._take(LOC):
                continue
            self._fail("a function body was expected", self.text[self.position : self.position + 80])
        self._advance(self.position + 1)
        function.body = []
        module.functions[name] = function
        if self.bodies:
            self._body(function)
        else:
            self._skip_body()

    def _parameters(self, text: str | None) -> list[Variable]:
        found = []
        for part in (text or "").split(","):
            part = part.strip()
            if not part:
                continue
            if part.startswith(".reg"):
                self._fail("parameters in registers are not supported", part)
            match = _VARIABLE.match(part)
            if not match:
                self._fail("this parameter cannot be read", part)
            found.append(self._variable(match))
        return found

    # --------------------------------------------------------------------------------------------------- the body

    def _body(self, function: Function) -> None:
        scope = _Scope(None, "")
        scopes = 0
        pending: list[tuple[_Scope, int, Instruction]] = []
        while True:
            time_limit.look()
            if not self._skip_space():
                self._fail(f"the body of {function.name} does not end")
            character = self.text[self.position]
            if character == "}":
                self._advance(self.position + 1)
                if scope.parent is None:
                    break
                scope = scope.parent
            elif character == "{":
                self._advance(self.position + 1)
                scopes += 1
                scope = _Scope(scope, f"@{scopes}")
            elif character == ";":
                self._advance(self.position + 1)
            elif character == ".":
                self._directive(function, scope)
            elif match := self._take(_TABLE):
                table = self._define(scope, match[1])
                function.tables[table] = tuple(item.strip() for item in match[2].split(","))
            elif self._take(_PROTOTYPE):
                continue
            elif match := self._take(_LABEL):
                function.labels[self._define(scope, match[1])] = len(function.body)
            else:
                ptx_line = self.ptx_line
                match = self._take(_INSTRUCTION)
                if not match:
                    self._fail("this statement cannot be read", self.text[self.position : self.position + 120])
                guard = (match[2], bool(match[1])) if match[2] else None
                text = _SPACE.sub(" ", match[0]).strip()
                instruction = Instruction(match[3], (match[4],), guard, self.lines.get(ptx_line), ptx_line, text)
                pending.append((scope, len(function.body), instruction))
                function.body.append(instruction)
        # Labels may be used before they are defined, so names are looked up at the end.
        known = set(function.labels) | set(function.tables)
        position = self.ptx_line
        for scope, index, raw in pending:
            self.ptx_line = raw.ptx_line
            resolve = functools.partial(self._name, scope, known)
            operands = tuple(self._operand(item, resolve) for item in split_operands(raw.operands[0]))
            guard = (scope.find(raw.guard[0]) or raw.guard[0], raw.guard[1]) if raw.guard else None
            function.body[index] = Instruction(raw.opcode, operands, guard, raw.line, raw.ptx_line, raw.text)
        self.ptx_line = position
        for table, labels in function.tables.items():
            function.tables[table] = tuple(label if label in known else f"{label}{_suffix(table)}" for label in labels)

    def _define(self, scope: _Scope, name: str) -> str:
        scope.names[name] = f"{name}{scope.suffix}"
        return scope.names[name]

    def _directive(self, function: Function, scope: _Scope) -> None:
        if self._take(LOC) or self._take(_STRING_DIRECTIVE) or self._take(FILE):
            return
        if match := self._take(_REGISTERS):
            for item in match[2].split(","):
                item = item.strip()
                many = re.fullmatch(r"([%\w$]+)<(\d+)>", item)
                names = [f"{many[1]}{i}" for i in range(int(many[2]))] if many else [item]
                for name in names:
                    function.registers[self._define(scope, name)] = match[1]
            return
        end = self.text.find(";", self.position)
        statement = self.text[self.position : end].strip()
        if match := _VARIABLE.match(statement):
            variable = self._variable(match)
            name = self._define(scope, variable.name)
            function.variables[name] = Variable(
                name,
                variable.space,
                variable.type,
                variable.align,
                variable.nbytes,
                variable.initial,
                variable.addresses,
            )
            self._advance(end + 1)
            return
        self._fail("the machine does not know this directive", statement)

    # ---------------------------------------------------------------------------------------------------- operands

    def _name(self, scope: _Scope, known: set[str], name: str):
        found = scope.find(name)
        if found is not None:
            return found
        return name

    def _operand(self, text: str, resolve):
        text = text.strip()
        first = text[:1]
        if first == "[":
            return self._address(text[1:-1], resolve)
        if first == "{":
            return Vector(tuple(self._operand(item, resolve) for item in split_operands(text[1:-1])))
        if first == "(":
            return Vector(tuple(self._operand(item, resolve) for item in split_operands(text[1:-1])))
        if first == "!":
            return Negated(self._operand(text[1:], resolve))
        if "|" in text:
            first, second = text.split("|")
            return Pair(self._operand(first, resolve), self._operand(second, resolve))
        if first == "%":
            return Register(resolve(text))
        if first.isdigit() or first in "-+":
            if first == "-" and text[1:2] == "%":
                self._fail("a negated register cannot be read", text)
            return self._literal(text)
        name, plus, offset = text.partition("+")
        name = name.strip()
        if name == "_":
            return SINK
        found = resolve(name)
        if plus:
            return Symbol(found, self._integer(offset))
        if name == "WARP_SZ":
            return Immediate(32)
        return Symbol(found)

    def _address(self, text: str, resolve) -> Address:
        parts = split_operands(text)
        coordinates = ()
        if len(parts) > 1:
            coordinates = tuple(self._operand(item, resolve) for item in parts[1:])
            text = parts[0]
        match = re.fullmatch(r"\s*(-?[%\w$.]+)\s*(?:([+-])\s*(-?\s*\w+))?\s*", text)
        if not match:
            self._fail("this address cannot be read", text)
        base = self._operand(match[1], resolve)
        offset = self._integer(match[3]) if match[3] else 0
        if match[2] == "-":
            offset = -offset
        if isinstance(base, Symbol):
            return Address(Symbol(base.name), base.offset + offset, coordinates)
        return Address(base, offset, coordinates)

    def _integer(self, text: str) -> int:
        value = self._literal(text.replace(" ", ""))
        if not isinstance(value.value, int):
            self._fail("a whole number was expected", text)
        return value.value

    def _literal(self, text: str) -> Immediate:
        value = literal(text)
        if value is None:
            self._fail("this literal cannot be read", text)
        return value


def _suffix(name: str) -> str:
    at = name.find("@")
    return name[at:] if at >= 0 else ""


_FLOAT_BITS = re.compile(r"0([fFdD])([0-9a-fA-F]{8}(?:[0-9a-fA-F]{8})?)")
_INTEGER = re.compile(r"(-?)(0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9]\d*)[uU]?")


@functools.lru_cache(maxsize=4096)
def literal(text: str) -> Immediate | None:
    """A PTX literal, or None if it is none."""
    text = text.strip()
    if match := _FLOAT_BITS.fullmatch(text):
        return Immediate(int(match[2], 16), 32 if match[1] in "fF" else 64)
    if match := _INTEGER.fullmatch(text):
        digits = match[2].lower()
        base = 16 if digits.startswith("0x") else 2 if digits.startswith("0b") else 8 if digits.startswith("0") else 10
        value = int(digits[2:] if base in (16, 2) else digits, base)
        return Immediate(-value if match[1] else value)
    try:
        return Immediate(float(text))
    except ValueError:
        return None


def immediate_bits(value: Immediate, kind: str) -> int:
    """The bit pattern of a literal used as PTX type `kind`."""
    width = TYPE_BYTES[kind] * 8
    if value.bits is None and isinstance(value.value, int) and not kind.startswith(("f", "bf")):
        return value.value & ((1 << width) - 1)
    if value.bits == width:
        return int(value.value)
    if value.bits == 32:
        number = struct.unpack("<f", struct.pack("<I", value.value))[0]
    elif value.bits == 64:
        number = struct.unpack("<d", struct.pack("<Q", value.value))[0]
    else:
        number = value.value
    if kind == "f64" or (width == 64 and isinstance(number, float)):
        return struct.unpack("<Q", struct.pack("<d", float(number)))[0]
    if kind in ("f32", "b32", "u32", "s32") and isinstance(number, float):
        return struct.unpack("<I", struct.pack("<f", number))[0]
    if kind == "f32":
        return struct.unpack("<I", struct.pack("<f", float(number)))[0]
    if kind == "f16":
        return struct.unpack("<H", struct.pack("<e", float(number)))[0]
    return int(number) & ((1 << width) - 1)


def split_operands(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    if "[" not in text and "{" not in text and "(" not in text:
        return [item for item in (part.strip() for part in text.split(",")) if item]
    parts, depth, start = [], 0, 0
    for i, character in enumerate(text):
        if character in "[({":
            depth += 1
        elif character in "])}":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    parts.append(text[start:].strip())
    return [part for part in parts if part]
