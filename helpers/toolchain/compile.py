"""CUDA source -> PTX, cubin, registers, spills, shared bytes: NVIDIA's own compiler (NVRTC), no GPU needed.

One compilation serves everything: the cubin runs on the GPU, the PTX in the SIMT machine, and the SASS says which
accesses ptxas merged. The flags are the same in both places, so results can be compared bit for bit.

Line numbers are those of the reader's cell: the source is compiled as it stands under the name `/cell.cu`, and
the %%cuda magic passes its own first line as an empty one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence

from helpers.errors import CompileError
from helpers.sim.code.lines import FILENAME, line_of_ptx

from . import installation, signatures
from .compiled import Compiled, load, save
from .diagnostics import Diagnostic, explain, parse_log
from .host_code import HEADERS, IMPLICIT, HostPart, device_part
from .nvrtc import Request, compile_program

_CACHE_FORMAT = 5  # raise it when what is stored changes


def _flags(arch: str, options: tuple[str, ...]) -> tuple[str, ...]:
    """The one list of compiler flags, for GPU and CPU alike."""
    ptxas = () if arch.startswith("compute") else ("--ptxas-options=-v",)
    includes = tuple(f"-I{folder}" for folder in installation.include_folders())
    standard = () if any("-std" in option for option in options) else ("-std=c++17",)
    # NVRTC's own cache (12.9 and later, where there is a driver) answers without ptxas's report of registers.
    return (f"-arch={arch}", *standard, "-lineinfo", f"--pre-include={IMPLICIT}", "--no-cache", *ptxas, *includes, *options)


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
    nvrtc = installation.nvrtc()
    arch = _checked_arch(nvrtc, arch)
    flags = _flags(arch, options)
    about = [_CACHE_FORMAT, nvrtc.getVersion(), source, entry, flags, installation.header_identity()]
    key = hashlib.sha256(json.dumps(about).encode()).hexdigest()
    kept = load(key)
    if kept is not None:
        return kept
    compiled = _compile(source, entry, arch, options, flags, key)
    save(compiled)
    return compiled


def front_end(source: str, arch: str = "compute_90") -> tuple[list[Diagnostic], dict[str, tuple[int, ...]]]:
    """What the compiler says of `source`, and the integer constants it evaluated: mangled name -> values, {} on errors.

    Only the front end runs, for a virtual architecture ('compute_XX'): a fraction of a second, and no kernel is needed.
    """
    answer = compile_program(_request(device_part(source)[0], _flags(_checked_arch(installation.nvrtc(), arch), ())))
    return (parse_log(answer.log), {}) if answer.refused else ([], signatures.constants(answer.ptx))


def _checked_arch(nvrtc, arch: str) -> str:
    match = re.fullmatch(r"(sm|compute)_(\d+)([a-z]?)", str(arch))
    supported = nvrtc.getSupportedArchs()
    if not match or int(match[2]) not in supported:
        names = ", ".join(f"sm_{number}" for number in supported)
        raise CompileError(f"arch={arch!r} is not an architecture this compiler knows. It knows: {names}.")
    return str(arch)


def _request(source: str, flags: Sequence[str], expressions: Sequence[str] = ()) -> Request:
    return Request(source, FILENAME, HEADERS, tuple(flags), tuple(expressions))


def _compile(source, entry, arch, options, flags, key) -> Compiled:
    expressions = (entry,) if entry and "<" in entry else ()
    device, host = device_part(source)
    answer = compile_program(_request(device, flags, expressions))
    if answer.refused:
        raise explain(answer.log, source, answer.refused, _lines_of_refused_ptx(answer.log, device, expressions, flags))
    log, ptx, cubin = answer.log, answer.ptx, answer.cubin
    lowered = answer.lowered[0] if expressions else None
    symbol = signatures.choose_entry(ptx, source, entry, lowered)
    usage = signatures.resource_usage(log, symbol)
    return Compiled(
        source=source,
        entry=signatures.plain_name(symbol),
        symbol=symbol,
        arch=arch,
        options=options,
        ptx=ptx,
        cubin=cubin,
        log=log,
        parameters=signatures.parameters(ptx, symbol, source),
        constants=signatures.constants(ptx),
        warnings=_left_out(host) + tuple(item.render(source) for item in parse_log(log) if item.severity == "warning"),
        requested=entry or "",
        key=key,
        **usage,
    )


def _lines_of_refused_ptx(log, source, expressions, flags) -> dict[int, int | None]:
    """PTX line -> cell line when the assembler refused the PTX (inline asm, mostly): compile again for PTX alone."""
    if "ptxas" not in log:
        return {}
    ptx_flags = tuple(f.replace("-arch=sm_", "-arch=compute_") for f in flags if not f.startswith("--ptxas-options"))
    answer = compile_program(_request(source, ptx_flags, expressions))
    return {} if answer.refused else line_of_ptx(answer.ptx)  # without lines, the log of the first attempt is still shown


def _left_out(host: tuple[HostPart, ...]) -> tuple[str, ...]:
    if not host:
        return ()
    first = {part.name: part.first for part in reversed(host)}
    names = [f"{name} (line {line})" for name, line in sorted(first.items(), key=lambda item: item[1])]
    shown = ", ".join(names[:6] + (["…"] if len(names) > 6 else []))
    return (f"Host code is left out: {shown}. The course allocates, copies and launches.",)
