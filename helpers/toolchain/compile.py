"""CUDA source -> PTX, cubin, registers, spills, shared bytes: NVIDIA's own compiler (NVRTC), no GPU needed.

One compilation serves everything: the cubin runs on the GPU, the PTX in the SIMT machine, and the SASS says which
accesses ptxas merged. The flags are the same in both places, so results can be compared bit for bit.

Line numbers are those of the reader's cell: the source is compiled as it stands under the name `/cell.cu`, and
the %%cuda magic passes its own first line as an empty one.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from helpers.errors import CompileError, CourseError
from helpers.paths import cache_folder
from helpers.sim.code.lines import FILENAME, line_of_ptx

from .headers import HEADERS, IMPLICIT, stand_ins
from .host_code import HostPart, Mistake, first_guess, parts, revised, strip_comments, without
from .nvrtc import Answer, Request, compile_program

_CACHE_FORMAT = 6  # raise it when what is stored changes
_CACHE_ENTRIES = 500  # about 50 MB; the oldest go first


@dataclass(frozen=True)
class Parameter:
    """One kernel parameter. `pointer_to` is the C type pointed to without const, or None for scalars and structs."""

    name: str
    ptx_type: str
    pointer_to: str | None
    const: bool
    size: int


@dataclass(frozen=True)
class Compiled:
    """What NVRTC made of one kernel. Sizes are in bytes; registers are per thread."""

    source: str
    entry: str
    symbol: str
    arch: str
    options: tuple[str, ...]
    ptx: str
    cubin: bytes
    log: str = field(compare=False)  # it carries the compile time
    registers: int
    shared_bytes: int
    local_bytes: int
    spill_stores: int
    spill_loads: int
    parameters: tuple[Parameter, ...]
    constants: dict[str, tuple[int, ...]]
    warnings: tuple[str, ...] = ()
    filename: str = FILENAME
    requested: str = ""
    key: str = field(default="", compare=False)

    @functools.cached_property
    def sass(self) -> str:
        """The machine code as `nvdisasm -c -gp` prints it, with its PTX lines.

        Raises CourseError if the disassembler is not installed.
        """
        return _disassemble(self)


# ---------------------------------------------------------------------------------------------------- the compiler


@functools.cache
def _nvrtc():
    """CuPy's NVRTC binding. Raises CourseError where there is none."""
    if sys.platform == "darwin":
        raise CourseError(
            "NVIDIA publishes no CUDA compiler for macOS, so kernels cannot be compiled on this machine. "
            "The lessons can be read here; to run them, open the course on Linux, on Windows, or on a remote Jupyter server."
        )
    try:
        from cupy.cuda import nvrtc
    except ImportError as error:
        raise CourseError(
            f"The CUDA compiler could not be loaded ({error}). Run the set-up command of the README again: "
            "it installs cupy and nvidia-cuda-nvrtc."
        ) from error
    try:
        nvrtc.getVersion()
    except (RuntimeError, OSError, AttributeError) as error:
        raise CourseError(
            f"CuPy is here but NVRTC, the CUDA compiler, is not ({error}). "
            "Run the set-up command of the README again: it installs nvidia-cuda-nvrtc."
        ) from error
    return nvrtc


def compiler_version() -> tuple[int, int]:
    """NVRTC's (major, minor). Raises CourseError if it is not installed."""
    return _nvrtc().getVersion()


def why_not() -> str:
    """Why kernels cannot be compiled on this machine, as a sentence; '' when they can."""
    try:
        _nvrtc()
    except CourseError as error:
        return error.message
    return ""


@functools.cache
def _nvidia_folders() -> tuple[Path, ...]:
    """Folders of the nvidia wheels (site-packages/nvidia/*)."""
    try:
        import nvidia
    except ImportError:
        return ()
    return tuple(folder for root in nvidia.__path__ for folder in sorted(Path(root).iterdir()) if folder.is_dir())


@functools.cache
def include_folders() -> tuple[str, ...]:
    """Where the CUDA headers are: the wheels of this environment first, then $CUDA_PATH or the toolkit whose nvcc is on the path."""
    candidates = [folder / "include" for folder in _nvidia_folders()]
    nvcc = shutil.which("nvcc")
    if os.environ.get("CUDA_PATH"):
        candidates.append(Path(os.environ["CUDA_PATH"]) / "include")
    elif nvcc:
        candidates.append(Path(nvcc).resolve().parents[1] / "include")
    found = []
    for folder in candidates:
        if (folder / "cccl").is_dir():
            found.append(str(folder / "cccl"))
        if (folder / "cuda_fp16.h").exists() or (folder / "crt").is_dir() or (folder / "cuda").is_dir():
            found.append(str(folder))
    return tuple(found)


@functools.cache
def disassembler() -> str | None:
    """Path of nvdisasm, or None."""
    name = "nvdisasm.exe" if sys.platform == "win32" else "nvdisasm"
    places = [folder / "bin" / name for folder in _nvidia_folders()]
    places += [Path(folder) / name for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    return next((str(place) for place in places if place.is_file()), None)


def _flags(arch: str, options: tuple[str, ...]) -> tuple[str, ...]:
    """The one list of compiler flags, for GPU and CPU alike."""
    ptxas = () if arch.startswith("compute") else ("--ptxas-options=-v",)
    includes = tuple(f"-I{folder}" for folder in include_folders())
    standard = () if any("-std" in option for option in options) else ("-std=c++17",)
    # NVRTC's own cache (12.9 and later, where there is a driver) answers without ptxas's report of registers.
    wide = ("--device-int128",) if sys.platform == "linux" else ()
    return (f"-arch={arch}", *standard, *wide, "-lineinfo", f"--pre-include={IMPLICIT}", "--no-cache", *ptxas, *includes, *options)


def compile_source(source: str, entry: str | None = None, arch: str = "sm_90", options: tuple[str, ...] = ()) -> Compiled:
    """Compile CUDA C++ `source` for `arch` ('sm_75' … 'sm_120', or 'compute_XX' for PTX alone).

    entry: the kernel's name; None means the only `__global__` function. A template is named with its arguments,
    for example 'gemm<64, 8>'. options: further NVRTC options, for example ('-ftz=true', '-DTILE=16').
    Results are cached on disk by everything that matters. Raises CompileError (with the cell's line) if the
    compiler refuses, CourseError if there is no compiler.
    """
    if not isinstance(source, str) or not source.strip():
        raise CompileError("There is no CUDA source to compile: the cell is empty.")
    options = (options,) if isinstance(options, str) else tuple(options)
    nvrtc = _nvrtc()
    arch = _checked_arch(nvrtc, arch)
    flags = _flags(arch, options)
    key = hashlib.sha256(
        json.dumps([_CACHE_FORMAT, nvrtc.getVersion(), source, entry, flags, _header_identity(), HEADERS]).encode()
    ).hexdigest()
    stored = _read_cache(key)
    if stored is not None:
        return stored
    compiled = _compile(source, entry, arch, options, flags, key)
    _write_cache(compiled)
    return compiled


def front_end(source: str, arch: str = "compute_90") -> tuple[list[Diagnostic], dict[str, tuple[int, ...]]]:
    """What the compiler says of `source`, and the integer constants it evaluated: mangled name -> values, {} on errors.

    Only the front end runs, for a virtual architecture ('compute_XX'): a fraction of a second, and no kernel is needed.
    """
    attempt = _without_host_code(source, _flags(_checked_arch(_nvrtc(), arch), ()))
    return (attempt.errors, {}) if attempt.answer.refused else ([], _constants(attempt.answer.ptx))


def _checked_arch(nvrtc, arch: str) -> str:
    match = re.fullmatch(r"(sm|compute)_(\d+)([a-z]?)", str(arch))
    supported = nvrtc.getSupportedArchs()
    if not match or int(match[2]) not in supported:
        names = ", ".join(f"sm_{number}" for number in supported)
        raise CompileError(f"arch={arch!r} is not an architecture this compiler knows. It knows: {names}.")
    return str(arch)


@dataclass(frozen=True)
class _Attempt:
    """What the compiler made of a source: its answer, what was left out, headers that are nowhere, errors in device code."""

    answer: Answer
    request: Request
    host: tuple[HostPart, ...] = ()
    missing: tuple[str, ...] = ()
    errors: list[Diagnostic] = field(default_factory=list)


def _without_host_code(source: str, flags: Sequence[str], expressions: Sequence[str] = ()) -> _Attempt:
    """Compile `source` without its host code: what looks like it, and then what the compiler refuses and no kernel misses."""
    found = parts(source)
    out, needed = first_guess(source, found), frozenset()
    folders = (*include_folders(), *(option.removeprefix("-I") for option in flags if option.startswith("-I")))
    while True:
        device = without(source, out)
        headers, missing = stand_ins(source, strip_comments(device), folders)
        request = Request(device, FILENAME, headers, tuple(flags), tuple(expressions))
        answer = compile_program(request)
        host = tuple(part for part in found if part in out)
        if not answer.refused:
            return _Attempt(answer, request, host, missing)
        errors = [item for item in parse_log(answer.log) if item.severity == "error"]
        before = out, needed
        out, needed = revised(source, found, out, needed, [Mistake(_offset(source, item), item.message) for item in errors])
        if (out, needed) == before:
            break
    # nvcc evaluates an unannotated constexpr function for device code; NVRTC has to be told that it is one.
    constexpr = [part for part in found if part.constexpr and part not in out]
    real = [item for item in errors if not (_UNANNOTATED in item.message and any(_is_in(source, item, part) for part in constexpr))]
    if not real and "-default-device" not in flags:
        return _without_host_code(source, (*flags, "-default-device"), expressions)
    return _Attempt(answer, request, host, missing, real)


_UNANNOTATED = "without execution space annotations"


def _offset(source: str, item: Diagnostic) -> int | None:
    """Where in `source` a message points; None if it is in a header."""
    if not item.line:
        return None
    lines = source.split("\n")[: item.line]
    return sum(len(line) + 1 for line in lines[:-1]) + min(item.column or 0, len(lines[-1]))


def _is_in(source: str, item: Diagnostic, part: HostPart) -> bool:
    offset = _offset(source, item)
    return offset is not None and part.start <= offset < part.end


def _compile(source, entry, arch, options, flags, key) -> Compiled:
    expressions = (entry,) if entry and "<" in entry else ()
    attempt = _without_host_code(source, flags, expressions)
    answer, host = attempt.answer, attempt.host
    if answer.refused:
        raise _explain(attempt, source, _lines_of_refused_ptx(attempt))
    log, ptx, cubin = answer.log, answer.ptx, answer.cubin
    lowered = answer.lowered[0] if expressions else None
    symbol = _choose_entry(ptx, source, entry, lowered)
    usage = _resource_usage(log, symbol)
    return Compiled(
        source=source,
        entry=_plain_name(symbol),
        symbol=symbol,
        arch=arch,
        options=options,
        ptx=ptx,
        cubin=cubin,
        log=log,
        parameters=_parameters(ptx, symbol, source),
        constants=_constants(ptx),
        warnings=_left_out(host, attempt.missing) + _warnings(log, source),
        requested=entry or "",
        key=key,
        **usage,
    )


def _warnings(log: str, source: str) -> tuple[str, ...]:
    """The compiler's warnings about the reader's own device code: no header's, none about what only host code used."""
    unannotated = [] if "never referenced" not in log else parts(source)
    return tuple(
        item.render(source)
        for item in parse_log(log)
        if item.severity == "warning"
        and item.line
        and not ("never referenced" in item.message and any(_is_in(source, item, part) for part in unannotated))
    )


def _left_out(host: tuple[HostPart, ...], missing: tuple[str, ...]) -> tuple[str, ...]:
    """What was left out and which headers are nowhere, as sentences."""
    first = {part.name: part.first for part in reversed(host) if part.name}
    names = [f"{name} (line {line})" for name, line in sorted(first.items(), key=lambda item: item[1])]
    shown = ", ".join(names[:6] + (["…"] if len(names) > 6 else []))
    left = (f"Host code is left out: {shown}. The course allocates, copies and launches.",) if names else ()
    return left + ((f"{_not_here(missing)} The kernel compiles without.",) if missing else ())


def _not_here(missing: tuple[str, ...]) -> str:
    which = "This header is" if len(missing) == 1 else "These headers are"
    return f"{which} not here and left out: {', '.join(missing)}."


# ------------------------------------------------------------------------------------------------ diagnostics


@dataclass(frozen=True)
class Diagnostic:
    """One message of the compiler: severity 'error' or 'warning', 1-based cell line (None if in a header)."""

    severity: str
    line: int | None
    message: str
    column: int | None = None
    header: str = ""

    def render(self, source: str) -> str:
        """The message, the source line and a caret, as a learner wants to read it."""
        where = f"line {self.line}" if self.line else f"in {self.header}" if self.header else "in the cell"
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


_DIAGNOSTIC = re.compile(
    r"^(?P<file>[^\n(]*)\((?P<line>\d+)\): (?P<severity>catastrophic error|error|warning)(?: #[\w-]+)?: (?P<message>.*)$"
)


def parse_log(log: str, line_of_ptx: Mapping[int, int | None] = MappingProxyType({})) -> list[Diagnostic]:
    """NVRTC's log as diagnostics, in order. `line_of_ptx` places the assembler's errors: PTX line -> cell line."""
    found: list[Diagnostic] = []
    lines = log.split("\n")
    for number, text in enumerate(lines):
        match = _DIAGNOSTIC.match(text)
        if not match:
            assembler = re.match(r"^\s*ptxas (?:.*?line (\d+); *)?error *: *(.*)$", text)
            if assembler:
                ptx_line = int(assembler[1] or 0) or None
                line = line_of_ptx.get(ptx_line) if ptx_line else None
                found.append(Diagnostic("error", line, assembler[2], header="ptxas, the assembler"))
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
                column if in_cell else None,
                "" if in_cell else f"{os.path.basename(match['file'])}, line {match['line']}",
            )
        )
    return found


_ADVICE = (
    (r"identifier \"(?P<what>cuda(Malloc|Memcpy|Free|DeviceSynchronize|GetLastError|Event)\w*|std|main)\" is undefined",
     "This is host code. Keep only kernels and __device__ functions in the cell; the course allocates, copies and launches."),
    (r"calling a __host__ function", "Write __device__ in front of the function that the kernel calls."),
    (r"identifier \"(?P<what>threadidx|blockidx|blockdim|griddim|threadIDx)\" is undefined",
     "CUDA spells it with a capital: threadIdx, blockIdx, blockDim, gridDim."),
    (r"identifier \"(?P<what>half|__half|half2|nv_bfloat16|__nv_bfloat16)\" is undefined",
     "Half precision needs #include <cuda_fp16.h> (or <cuda_bf16.h>) at the top of the cell."),
    (r"function without execution space annotations",
     "Write __global__ in front of a kernel, and __device__ in front of a function that kernels call. "
     "For a library's headers add the option -default-device (in the magic: -o=-default-device)."),
    (r"not supported on \.target 'sm_(90|100|120)'",
     "This instruction needs the architecture-specific target: add --arch sm_90a (or arch='sm_90a')."),
    (r"uses too much shared data",
     "A block may declare 48 KB of __shared__ memory; more needs extern __shared__ and the launch's shared= argument."),
)  # fmt: skip


def _lines_of_refused_ptx(attempt: _Attempt) -> dict[int, int | None]:
    """PTX line -> cell line when the assembler refused the PTX (inline asm, mostly): compile again for PTX alone."""
    if "ptxas" not in attempt.answer.log:
        return {}
    flags = tuple(f.replace("-arch=sm_", "-arch=compute_") for f in attempt.request.flags if not f.startswith("--ptxas-options"))
    answer = compile_program(replace(attempt.request, flags=flags))
    return {} if answer.refused else line_of_ptx(answer.ptx)  # without lines, the log of the first attempt is still shown


def _explain(attempt: _Attempt, source: str, lines: Mapping[int, int | None]) -> CompileError:
    errors = [item for item in parse_log(attempt.answer.log, lines) if item.severity == "error"] if lines else attempt.errors
    if not errors:
        return CompileError(f"The compiler gave up: {attempt.answer.log.strip() or attempt.answer.refused}")
    # One mistake often makes several messages in its line: the one that says what to do comes first.
    advised = [(item, next((advice for pattern, advice in _ADVICE if re.search(pattern, item.message)), "")) for item in errors]
    places = [item.line for item in errors]
    advised.sort(key=lambda pair: (places.index(pair[0].line), not pair[1]))
    texts = [item.render(source) + (f"\n      → {advice}" if advice else "") for item, advice in advised[:6]]
    if len(errors) > 6:
        texts.append(f"… and {len(errors) - 6} more; the first one usually causes the rest.")
    if attempt.missing:
        texts.append(
            f"{_not_here(attempt.missing)} If the kernel uses something of it, paste that above the kernel, "
            "or say where it is: options=('-I/folder',) (in the magic: -o=-I/folder)."
        )
    line = next((item.line for item in errors if item.line), None)
    count = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
    return CompileError(f"the cell does not compile ({count}).\n" + "\n".join(texts), line)


# ------------------------------------------------------------------------------------------- reading what came out


def _entries(ptx: str) -> list[str]:
    return re.findall(r"^(?:\.visible\s+|\.weak\s+)?\.entry\s+([\w$.]+)", ptx, re.M)


def _plain_name(symbol: str) -> str:
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


def _choose_entry(ptx: str, source: str, entry: str | None, lowered: str | None) -> str:
    symbols = _entries(ptx)
    names = [_plain_name(symbol) for symbol in symbols]
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


def _resource_usage(log: str, symbol: str) -> dict[str, int]:
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


_SIZES = {"8": 1, "16": 2, "32": 4, "64": 8}


def _parameters(ptx: str, symbol: str, source: str) -> tuple[Parameter, ...]:
    header = re.search(rf"\.entry\s+{re.escape(symbol)}\s*\((.*?)\)", ptx, re.S)
    if not header:  # a kernel without parameters
        return ()
    declared = _signature(source, _plain_name(symbol))
    found = []
    pattern = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(?:\.ptr\b[^\w]*(?:\.\w+\s+|\d+\s+)*)?([\w$]+)(?:\[(\d+)\])?")
    for index, match in enumerate(pattern.finditer(header[1])):
        ptx_type, _, count = match.groups()
        width = _SIZES[re.search(r"\d+", ptx_type)[0]]
        text = declared[index] if index < len(declared) else ""
        name = re.search(r"(\w+)\s*(?:\[[^\]]*\])?\s*$", text.split("=")[0])
        pointer_to, const = _pointee(text)
        found.append(Parameter(
            name=name[1] if name else f"argument {index}",
            ptx_type=ptx_type, pointer_to=pointer_to if ptx_type == "u64" else None, const=const,
            size=width * int(count or 1),
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


def _constants(ptx: str) -> dict[str, tuple[int, ...]]:
    """Integer constants that the compiler evaluated: name -> values (arrays of bytes are read as 32-bit integers)."""
    found: dict[str, tuple[int, ...]] = {}
    pattern = re.compile(
        r"^(?:\.visible |\.extern |\.weak )?\.(?:global|const) \.align \d+ \.(\w+) ([\w$]+)(?:\[(\d+)\])?(?: = (\{[^}]*\}|[^;]+))?;", re.M
    )
    for kind, name, count, value in pattern.findall(ptx):
        if kind.startswith("f"):
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


def _disassemble(compiled: Compiled) -> str:
    tool = disassembler()
    if tool is None:
        raise CourseError("nvdisasm is not installed, so there is no SASS to show. Run the set-up command of the README again.")
    if not compiled.cubin:
        raise CourseError(f"There is no machine code for {compiled.arch}: compile for a real architecture such as sm_90.")
    stored = _cache_file(compiled.key, ".sass")
    if stored is not None and stored.is_file():
        return stored.read_text()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(compiled.cubin)
        result = subprocess.run([tool, "-c", "-gp", str(path)], capture_output=True, text=True, timeout=60, check=False)
    if result.returncode:
        raise CourseError(f"nvdisasm could not read the machine code: {result.stderr.strip()}")
    if stored is not None:
        _write_file(stored, result.stdout.encode())
    return result.stdout


# ------------------------------------------------------------------------------------------------------ the cache


@functools.cache
def _header_identity() -> list[str]:
    """Changes when another release of the CUDA headers is installed."""
    found = []
    for folder in include_folders():
        for name in ("cuda_fp16.h", "cuda/std/version"):
            path = Path(folder) / name
            if path.exists():
                found.append(f"{path}:{path.stat().st_size}:{int(path.stat().st_mtime)}")
    return found


def _cache_file(key: str, suffix: str) -> Path | None:
    folder = cache_folder("kernels")
    return folder / f"{key}{suffix}" if folder and key else None


def _write_file(path: Path, data: bytes) -> None:
    """Atomically, so that two notebooks never see half a file. A full or read-only disk only costs the cache."""
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(data)
        os.replace(file.name, path)
    except OSError:
        return
    entries = sorted(path.parent.iterdir(), key=lambda item: item.stat().st_mtime if item.exists() else 0)
    for old in entries[: max(0, len(entries) - _CACHE_ENTRIES)]:
        old.unlink(missing_ok=True)


def _read_cache(key: str) -> Compiled | None:
    path = _cache_file(key, ".json")
    if path is None or not path.is_file():
        return None
    try:
        stored = json.loads(path.read_text())
        stored["cubin"] = base64.b64decode(stored["cubin"])
        stored["parameters"] = tuple(Parameter(**item) for item in stored["parameters"])
        stored["constants"] = {name: tuple(values) for name, values in stored["constants"].items()}
        stored["options"] = tuple(stored["options"])
        stored["warnings"] = tuple(stored["warnings"])
        return Compiled(**stored)
    except (OSError, ValueError, KeyError, TypeError):  # a damaged entry is compiled again
        return None


def _write_cache(compiled: Compiled) -> None:
    path = _cache_file(compiled.key, ".json")
    if path is None:
        return
    stored = asdict(compiled)
    stored["cubin"] = base64.b64encode(compiled.cubin).decode()
    _write_file(path, json.dumps(stored).encode())
