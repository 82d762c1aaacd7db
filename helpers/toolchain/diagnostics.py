"""The compiler's log as messages at the reader's own lines, with advice for the usual mistakes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from helpers.errors import CompileError, statement_line
from helpers.sim.code.lines import FILENAME, assembly_before, line_of_ptx

from .host_code import device_functions, end_of_body, strip_comments, structure, unreadable_from
from .mangled import qualified_name, variable_name


@dataclass(frozen=True)
class Diagnostic:
    """One message of the compiler: severity 'error' or 'warning', 1-based cell line (None if in a header: place is its name and line)."""

    severity: str
    line: int | None
    message: str
    column: int | None = None
    header: str = ""
    place: tuple[str, int] = ("", 0)

    def render(self, source: str) -> str:
        """The message, the source line and a caret, as a learner wants to read it."""
        where = f"line {self.line}" if self.line else f"in {self.header}" if self.header else "in the code"
        text = f"{where}: {self.severity}: {self.message}"
        lines = source.split("\n")
        if self.line and self.line <= len(lines):
            shown = lines[self.line - 1].expandtabs(4)
            gutter = f"{self.line:>5} | "
            text += f"\n{gutter}{shown}"
            if self.column is not None:
                # The compiler counts a tab as one column.
                column = len(lines[self.line - 1][: self.column].expandtabs(4))
                text += "\n" + " " * (len(gutter) + column) + "^"
        return text


_ENTRY = "the name given as entry"  # NVRTC compiles it behind the cell
_DIAGNOSTIC = re.compile(
    r"^(?P<file>[^\n(]*)\((?P<line>\d+)\): (?P<severity>catastrophic error|error|warning)(?: #[\w-]+)?: (?P<message>.*)$"
)

_AT_END = re.compile(r"^At end of source: (?:catastrophic )?error(?: #[\w-]+)?: (?P<message>.*)$")
_ASSEMBLER = "ptxas, the assembler"
_UNREADABLE = re.compile(r"^\s*ptxas .*?line (\d+); *fatal *: *(.*?)$")
_INLINE_ADVICE = "Each instruction of an asm statement ends with a semicolon, and its brackets are closed."
_TOO_MUCH_SHARED = re.compile(r"Entry function '(?P<entry>[^']*)' uses too much shared data \((?P<bytes>0x[0-9a-f]+) bytes")
_SHARED_VARIABLE = re.compile(r"\.shared (?:\.align \d+ )?\.b8 ([\w$]+)\[(\d+)\]")
_TO_MATCH = re.compile(r"^[^\n(]*\((?P<line>\d+)\): note(?: #[\w-]+)?: to match this (?P<what>.*)$")


def parse_log(log: str, line_of_ptx: Mapping[int, int | None] = MappingProxyType({})) -> list[Diagnostic]:
    """NVRTC's log as diagnostics, in order. `line_of_ptx` places the assembler's errors: PTX line -> cell line."""
    found: list[Diagnostic] = []
    lines = log.split("\n")
    for number, text in enumerate(lines):
        match = _DIAGNOSTIC.match(text)
        if not match:
            assembler = re.match(r"^\s*ptxas (?:.*?line (\d+); *)?error *: *(.*)$", text)
            unreadable = _UNREADABLE.match(text)
            if assembler:
                ptx_line = int(assembler[1] or 0) or None
                line = line_of_ptx.get(ptx_line) if ptx_line else None
                found.append(Diagnostic("error", line, assembler[2], header=_ASSEMBLER))
            elif unreadable:
                told = f"the assembler cannot read on: {unreadable[2].lower()}. {_INLINE_ADVICE}"
                found.append(Diagnostic("error", line_of_ptx.get(int(unreadable[1])), told, header=_ASSEMBLER))
            if ended := _AT_END.match(text):
                opened = _TO_MATCH.match(lines[number + 1]) if number + 1 < len(lines) else None
                where = f"; the {opened['what']} of this line is never closed" if opened else ""
                found.append(
                    Diagnostic("error", int(opened["line"]) if opened else None, f"{ended['message']} at the end of the code{where}")
                )
            continue
        message, column, follow = [match["message"]], None, number + 1
        while follow < len(lines) and lines[follow].strip() and not _DIAGNOSTIC.match(lines[follow]):
            if re.fullmatch(r"\s*\^\s*", lines[follow]):
                # The compiler echoes the source line behind two blanks, and sets the caret below it.
                column = lines[follow].index("^") - 2
                if len(message) > 1:
                    message.pop()
                break
            message.append(lines[follow].strip())
            follow += 1
        in_cell = match["file"] in (FILENAME, FILENAME.lstrip("/"))
        severity = "warning" if match["severity"] == "warning" else "error"
        found.append(
            Diagnostic(
                severity,
                int(match["line"]) if in_cell else None,
                " ".join(message),
                column,
                ""
                if in_cell
                else _ENTRY
                if match["file"] == "__nv_name_map"
                else f"{os.path.basename(match['file'])}, line {match['line']}",
                ("" if in_cell or match["file"] == "__nv_name_map" else match["file"], int(match["line"])),
            )
        )
    return found


def lines_of_unreadable(ptx: str, log: str) -> dict[int, int | None]:
    """The cell's lines of the PTX lines at which the assembler gave up, as `log` says: those of the asm statement that is to blame."""
    cell, found = line_of_ptx(ptx), {}
    for text in log.split("\n"):
        if match := _UNREADABLE.match(text):
            at = assembly_before(ptx, int(match[1]))
            found[int(match[1])] = None if at is None else cell.get(at)
    return found


def at_assembly(item: Diagnostic, source: str) -> Diagnostic:
    """A message of the assembler's about an asm statement, at the line of its text that has most of what the message quotes, else where the
    text begins: compilers name the operands. Any other message as it is."""
    first = statement_line(source, item.line) if item.header == _ASSEMBLER and _INLINE_ADVICE not in item.message else None
    if first is None or item.line is None:
        return item
    lines = source.split("\n")
    texts = [line for line in range(first, item.line + 1) if _TEXT.search(lines[line - 1])]
    quoted = re.findall(r"'([^']+)'", item.message)
    having = max(
        texts, key=lambda line: sum(bool(re.search(rf"(?<!\w){re.escape(text)}\b", lines[line - 1])) for text in quoted), default=item.line
    )
    return replace(item, line=having)


_TEXT = re.compile(r'\b(?:asm|__asm__)\b[^"]*"|^\s*"')  # in a line of an asm statement's text


def at_largest_shared(item: Diagnostic, ptx: str, source: str) -> Diagnostic:
    """A message of the assembler's that a kernel declares too much shared memory, at the line of its largest variable there; any other
    message as it is."""
    said = _TOO_MUCH_SHARED.search(item.message)
    body = re.search(rf"\.entry {re.escape(said['entry'])}\(.*?\n}}", ptx, re.DOTALL) if said else None
    if said is None or body is None:
        return item
    used = set(re.findall(r"[\w$]+", body[0]))
    found = {symbol: int(size) for symbol, size in _SHARED_VARIABLE.findall(ptx) if symbol in used}
    parts = sorted(((size, variable_name(symbol)) for symbol, size in found.items()), key=lambda part: -part[0])
    text, _ = structure(source)
    name = qualified_name(said["entry"]).split("::")[-1]
    home = next((function for function in device_functions(source) if function.function_name == name), None)
    for start, end in ((home.start, home.end) if home else (0, 0), (0, len(text))):
        declared = parts and re.search(rf"\b__shared__\b[^;]*?\b({re.escape(parts[0][1])})\b", text[start:end])
        if declared:
            sizes = ", ".join(f"{name} {size:,}" for size, name in parts[:4]) + (", …" if len(parts) > 4 else "")
            line = text.count("\n", 0, start + declared.start(1)) + 1
            return replace(item, line=line, message=f"{item.message}: {int(said['bytes'], 16):,} bytes ({sizes})", header="")
    return item


def used_unset(log: str) -> list[tuple[int, str]]:
    """(line, name) of the variables of which the compiler says that they are used before they have a value."""
    found = ((item.line, re.match(r'variable "(\w+)" is used before its value is set', item.message)) for item in parse_log(log))
    return [(line, match[1]) for line, match in found if line and match]


_STARTS_KERNELS = "A kernel that starts kernels needs CUDA's device runtime, which is not here: launch the other one from the notebook."
_CURAND = "Random numbers in a kernel need curand_kernel.h: install the package nvidia-curand beside this compiler."
_ADVICE = (
    (r"identifier \"(?P<what>cuda(Malloc|Memcpy|Free|DeviceSynchronize|GetLastError|Event)\w*|std|main)\" is undefined",
     "This is host code. Keep only kernels and __device__ functions in the cell; the course allocates, copies and launches."),
    (r"attribute \"__global__\" does not apply here",
     "The compiler takes the kernel for a variable: a type among its parameters is not known here."),
    (r"calling a __host__ function", "Write __device__ in front of the function that the kernel calls."),
    (r"identifier \"(?P<what>threadidx|blockidx|blockdim|griddim|threadIDx)\" is undefined",
     "CUDA spells it with a capital: threadIdx, blockIdx, blockDim, gridDim."),
    (r"identifier \"(?P<what>half|__half|half2|nv_bfloat16|__nv_bfloat16)\" is undefined",
     "Half precision needs #include <cuda_fp16.h> (or <cuda_bf16.h>) at the top of the cell."),
    (r"identifier \"__pipeline_\w+\" is undefined",
     "The functions __pipeline_… need #include <cuda_pipeline.h> at the top of the cell."),
    (r"identifier \"CUtensorMap\" is undefined", "Tensor maps need #include <cuda.h> at the top of the cell."),
    (r"identifier \"(bf16|bfloat16|nv_bf16)\" is undefined",
     "CUDA calls this type __nv_bfloat16. Write #include <cuda_bf16.h> at the top of the cell, and below it `using bf16 = __nv_bfloat16;` "
     "(in place of bf16 the name that you use)."),
    (r"identifier \"(fp16|float16|f16)\" is undefined",
     "CUDA calls this type __half. Write #include <cuda_fp16.h> at the top of the cell, and below it `using fp16 = __half;` (in place of "
     "fp16 the name that you use)."),
    (r"identifier \"__u?int(8|16|32|64)_t\" is undefined",
     "This name is internal to the host's C library: write #include <cstdint> at the top of the cell, and leave out the two underscores at "
     "the beginning of the name."),
    (r"function without execution space annotations",
     "Write __global__ in front of a kernel, and __device__ in front of a function that kernels call. "
     "For a library's headers add the option -default-device (in the magic: -o=-default-device)."),
    (r"identifier \"(?P<what>__(shfl|any|all|ballot)\w*)\" is undefined",
     "CUDA 9 replaced it by the _sync form, which says which lanes take part: __shfl_down_sync(0xffffffff, …), __any_sync(…)."),
    (r"\btexture is not a template|identifier \"texture\"",
     "CUDA 12 took texture references away, and the machine has no textures: pass an array."),
    (r"annotation on lambda requires",
     "Delete __device__ in front of the lambda's body: inside a kernel a lambda is device code, and the compiler here knows no such flag."),
    (r"namespace \"std\" has no member \"(cout|cerr|endl)\"", "A kernel writes with printf(\"%d\\n\", value)."),
    (r"namespace \"std\" has no member \"(vector|string|map|set|list)\"",
     "A kernel has no containers that grow: declare an array of fixed size, or pass one."),
    (r"does not support exception handling", "A kernel cannot throw: use assert(…), or write a flag to an array."),
    (r"identifier \"alloca\" is undefined", "A kernel declares its arrays with a fixed size: int values[8]."),
    (r"device-side kernel launch",
     _STARTS_KERNELS),
    (r"identifier \"curand\w*\" is undefined",
     _CURAND),
    (r"namespace \"cub\" has no member \"(Max|Min|Sum|Equality|Inequality|Difference|Division)\"",
     "CUB 3 took its own operators away: write cuda::maximum<>{} for cub::Max(), cuda::minimum<>{} for cub::Min(), cuda::std::plus<>{} for "
     "cub::Sum(), and cuda::std::equal_to, not_equal_to, minus or divides for the others."),
    (r"[\"']register[\"'] storage class specifier",
     "Leave the word out, here and wherever else it stands: it has no effect, the compiler chooses what is kept in registers, and C++17 "
     "removed it."),
    (r"'tcgen05\.\S*' not supported on",
     "Blackwell's tensor memory needs its own target: arch='sm_100a' (in the magic: --arch sm_100a)."),
    (r"uses too much shared data",
     "A block may declare 48 KB of __shared__ memory. Declare less, or have it given at the launch: `extern __shared__ char bytes[];` in "
     "the kernel, and for its size in the cell `extern \"C\" __device__ constexpr int dynamic_shared[] = {BYTES};` "
     "(kernel.launch takes shared=BYTES)."),
)  # fmt: skip


_NO_NAMESPACE = re.compile(r"must be a (class or )?namespace name")
_OF_NAMESPACES = (  # what stands there, and what to do
    (re.compile(r"(nvcuda|wmma)\b"),
     "Tensor cores by wmma need #include <mma.h> at the top of the cell, and below it `using namespace nvcuda;`."),
    (re.compile(r"(cooperative_groups|cg)\b"),
     "Cooperative groups need #include <cooperative_groups.h> at the top of the cell, and below it, for the short name, "
     "`namespace cg = cooperative_groups;`."),
)  # fmt: skip
_UNKNOWN = re.compile(r"is undefined|has no member|is not a (template|type|class)|must be a namespace|name followed by")
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(\(*[-+]?[\d.].*)$", re.MULTILINE)
_UNANNOTATED = "without execution space annotations"
_NOT_TOLD_APART = (
    "line {0}: from here on the braces do not match, as far as they stand in the code and not in macros, so that host code cannot be told "
    "from device code, and was not left out.\n      → Mend the braces, or delete the host code: the course allocates, copies and launches."
)
_LATER = re.compile(r"\bconcept\s+\w+\s*=|\b(requires|consteval|constinit)\b")  # words of C++20 where they are no names
# The second: a concept in place of typename; the third: a bit-field with a value of its own.
_LATER_MESSAGE = re.compile(r"C\+\+20 feature|argument list for variable template|data member initializer is not allowed")
_STANDARD = "This is C++20, and the standard here an older one: add options=['-std=c++20'] (in the magic: -o=-std=c++20)."


def numbers_by_macro(source: str) -> dict[str, int]:
    """The macros of a source that stand for numbers, and their lines: {"M": 8} for #define M 4096."""
    text = strip_comments(source)
    return {match[1]: text.count("\n", 0, match.start()) + 1 for match in _MACRO.finditer(text)}


def named_by_macros(declarations: str, source: str) -> str:
    """'' or, as a sentence, which names that are declared in a text are macros that stand for numbers, and what to do."""
    macros = numbers_by_macro(source)
    declared = re.findall(r"\w[\s*&]+(\w+)\s*(?=[,)=;\[])", declarations)
    if not (found := [name for name in dict.fromkeys(declared) if name in macros]):
        return ""
    lines = ", ".join(str(macros[name]) for name in found)
    if len(found) == 1:
        begin = f"{found[0]} is a macro of this file (#define, line {lines})"
    else:
        begin = f"{', '.join(found[:-1])} and {found[-1]} are macros of this file (#define, lines {lines})"
    return (
        f"{begin}, and a number stands where a name is declared: delete {'it' if len(found) == 1 else 'them'}, or rename what is declared."
    )


def _line_of(item: Diagnostic, lines: Sequence[str]) -> str:
    """The line that a message stands in; "" of none."""
    return lines[item.line - 1] if item.line and item.line <= len(lines) else ""


def _advice(item: Diagnostic, line: str) -> str:
    """What to do about a message in that line, "" where nothing is known."""
    said = next((advice for pattern, advice in _ADVICE if re.search(pattern, item.message)), "")
    if not said and _NO_NAMESPACE.search(item.message):
        return next((advice for pattern, advice in _OF_NAMESPACES if pattern.match(line, item.column or 0)), "")
    return said


_RESTRICT = re.compile(r"\brestrict\b")
_RESTRICT_ADVICE = "restrict is a word of C, and no word of C++: CUDA spells it __restrict__."


def _needs_later(item: Diagnostic, lines: Sequence[str]) -> bool:
    """Does a message, or the line that it stands in, speak of C++20?"""
    return bool(_LATER.search(_line_of(item, lines)) or _LATER_MESSAGE.search(item.message))


def not_here(missing: Sequence[str]) -> str:
    """What to do about headers that are nowhere; '' without any."""
    if not missing:
        return ""
    return (
        f"Not here, and left out: {', '.join(missing)}. If the kernel uses something of that, paste it above the kernel, "
        "or say where it is: options=('-I/folder',) (in the magic: -o=-I/folder)."
    )


def explain(errors: Sequence[Diagnostic], source: str, log: str, missing: Sequence[str] = (), options: Sequence[str] = ()) -> CompileError:
    """`errors` as one CompileError. log: what is shown where there are none; missing: headers of the source that are nowhere; options:
    what it was compiled with."""
    starting = next((source.count("\n", 0, place) + 1 for place in nested_launches(source)), None)
    if not errors and starting and "__cudaCDP" in log:
        return CompileError(f"line {starting}: a kernel is started in device code.\n      → {_STARTS_KERNELS}", starting)
    if not errors:
        return CompileError(f"The compiler gave up: {log}")
    unread = unreadable_from(source)
    hosts = [item for item in errors if _UNANNOTATED in item.message and item.line] if unread else []
    if hosts:
        bodies = [(item.line, end_of_body(source, item.line or 0, item.column or 0)) for item in hosts]
        errors = [item for item in errors if not any(first <= (item.line or 0) <= last for first, last in bodies if first)]
    if hosts and not errors:
        return CompileError(f"the code does not compile.\n{_NOT_TOLD_APART.format(unread)}", unread)
    # A name that is missing is refused wherever it stands: one error, and the other lines.
    again: dict[str, list[int | None]] = {}
    for item in errors:
        again.setdefault(item.message, []).append(item.line)
    first: dict[str, Diagnostic] = {}
    for item in errors:
        first.setdefault(item.message, item)
    errors = list(first.values())
    # One mistake often makes several messages in its line: the one that says what to do comes first.
    written, lines = source.split("\n"), structure(source)[0].split("\n")
    advised = [(item, _advice(item, _line_of(item, lines))) for item in errors]
    if starting:  # what it calls of the host's functions goes with that
        advised = [(item, _STARTS_KERNELS if re.match(r'identifier "cuda\w+" is', item.message) else advice) for item, advice in advised]
    if not any("std=c++2" in option for option in options):
        later = next((item for item in errors if _needs_later(item, lines)), None)
        advised = [(item, _STANDARD if item is later else advice) for item, advice in advised]
    advised = [
        (item, advice or (named_by_macros(_line_of(item, written), source) if item.message.startswith("expected a") else ""))
        for item, advice in advised
    ]
    of_c = next((item for item in errors if _RESTRICT.search(_line_of(item, lines))), None)
    advised = [(item, _RESTRICT_ADVICE if item is of_c and not advice else advice) for item, advice in advised]
    places = [item.line for item in errors]
    advised.sort(key=lambda pair: (places.index(pair[0].line), not pair[1]))
    texts: list[str] = []
    for item, advice in advised[:6]:
        others = [str(line) for line in dict.fromkeys(again[item.message]) if line not in (None, item.line)]
        also = f"\n      (and in line {', '.join(others[:8])}{', …' if len(others) > 8 else ''})" if others else ""
        told = any(advice in text for text in texts)
        texts.append(item.render(source) + also + (f"\n      → {advice}" if advice and not told else ""))
    if len(errors) > 6:
        texts.append(f"… and {len(errors) - 6} more; the first one usually causes the rest.")
    if any(advice == _CURAND for _, advice in advised):  # to paste that is no help
        missing = [name for name in missing if not name.startswith("curand")]
    if hosts:
        texts.append(_NOT_TOLD_APART.format(unread))
    if missing:  # first where something is not known, which as a rule is why
        texts.insert(0 if any(_UNKNOWN.search(item.message) for item in errors) else len(texts), not_here(missing))
    line = next((item.line for item in errors if item.line), None)
    count = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
    return CompileError(f"the code does not compile ({count}).\n" + "\n".join(texts), line)


def nested_launches(source: str) -> list[int]:
    """Where device code starts kernels: offsets in the source."""
    text, _ = structure(source)
    return [place for item in device_functions(source) if (place := text.find("<<<", item.start, item.end)) >= 0]
