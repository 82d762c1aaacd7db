"""CUDA source -> PTX, cubin, registers, spills, shared bytes: NVIDIA's own compiler (NVRTC), no GPU needed.

One compilation serves everything: the cubin runs on the GPU, the PTX in the SIMT machine, and the SASS says which
accesses ptxas merged. The flags are the same in both places, so results can be compared bit for bit.

Line numbers are those of the reader's cell: the source is compiled as it stands under the name `/cell.cu`, and
the %%cuda magic passes its own first line as an empty one.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any, TypeVar

from helpers.errors import CompileError, CourseError

from . import installation, kernels, nvrtc, own_headers, signatures
from .attempts import attempt, own_folders
from .compiled import Compiled, load, save
from .diagnostics import Diagnostic, not_here
from .headers import HEADERS, IMPLICIT
from .host_code import strip_comments

_WITH_MORE = ("sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121")  # that have an architecture-specific target besides
_LEFT_OUT = re.compile(r"not supported on \.target|_is_not_supported_before_SM_\d+a")  # by ptxas, and by the names in <cuda/ptx>
_ONLY_SPECIFIC = re.compile(r'"[^"\n]*\b(wgmma|setmaxnreg)\.')  # assembly that sm_90 leaves out, and sm_90a has
_ASKS_ITSELF = re.compile(r"__CUDA_ARCH_(FEAT_SM|SPECIFIC__|FAMILY_SPECIFIC__)")  # code that has something else for sm_90
_BLANKS = dict.fromkeys(map(ord, "\ufeff\u00a0\u200b\u200c\u200d\u2060\u202f"), " ")  # they look like blanks, or like nothing
_TYPOGRAPHIC = {**dict.fromkeys("“”„«»", '"'), **dict.fromkeys("‘’‚", "'"), **dict.fromkeys("–—−", "-"), "×": "*", "…": "...", "；": ";"}
_FIRST_MAGICS = re.compile(r"\A(?:[ \t]*(?:[%!](?!:)[^\r\n]*)?(?:[\r\n]|\Z))+")  # %%writefile x.cu and its like begin a notebook's cell
_MAGIC = re.compile(r"^[ \t]*(%%[A-Za-z]\w*|![ \t]*(?:nvcc(?=[ \t])|\./)[^\n]*)", re.M)
_MARKDOWN = re.compile(r"^[ \t]*(?=```)", re.M)
_TYPOGRAPHY = re.compile(f"[{''.join(_TYPOGRAPHIC)}]")
_FILE_NAME = re.compile(r"[^\n;{}()]*\.(cu|cuh|cpp|ptx|h)")
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_T = TypeVar("_T")


def _flags(arch: str, options: tuple[str, ...]) -> tuple[str, ...]:
    """The one list of compiler flags, for GPU and CPU alike."""
    ptxas = () if arch.startswith("compute") else ("--ptxas-options=-v",)
    includes = tuple(f"-I{folder}" for folder in installation.include_folders())
    standard = () if any("-std" in option for option in options) else ("-std=c++17",)
    # NVRTC's own cache (12.9 and later, where there is a driver) answers without ptxas's report of registers.
    wide = ("--device-int128",) if sys.platform == "linux" else ()
    return (f"-arch={arch}", *standard, *wide, "-lineinfo", f"--pre-include={IMPLICIT}", "--no-cache", *ptxas, *includes, *options)


def compile_source(source: str, entry: str | None = None, arch: str = "sm_90", options: Sequence[str] = ()) -> Compiled:
    """Compile CUDA C++ `source` for `arch` ('sm_75' … 'sm_120', or 'compute_XX' for PTX alone).

    entry: the kernel's name; None means the only `__global__` function. A template is named with its arguments,
    for example 'gemm<64, 8>'. options: further NVRTC options, for example ('-ftz=true', '-DTILE=16').
    Results are cached on disk by everything that matters. Raises CompileError (with the cell's line) if the
    compiler refuses, CourseError if there is no compiler.
    """
    source = readable(source)
    if entry is not None and (not isinstance(entry, str) or not entry.strip()):
        raise CompileError(f"entry={entry!r} is no kernel's name: write entry='gemm', or leave it out where the cell has one kernel.")
    options = _checked_options(options)
    compiler = installation.compiler()
    arch = _checked_arch(compiler, arch)
    flags = _flags(arch, options)
    own = own_headers.identity(source, own_folders(flags), installation.include_folders())
    here = (installation.own_identity(), installation.header_identity())
    about = [*here, compiler.name, compiler.version, source, entry, flags, HEADERS, *own]
    key = hashlib.sha256(json.dumps(about).encode()).hexdigest()
    kept = load(key)
    if kept is not None:
        return kept
    compiled = _compile(source, entry, arch, options, flags, key)
    save(compiled)
    return compiled


def compile_each(
    sources: Sequence[str],
    entry: str | None = None,
    arch: str = "sm_90",
    options: Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> list[Compiled | CourseError]:
    """`compile_source` of several, as `at_once` does them: what came of each, in order, or what was raised instead."""

    def made(source: str) -> Compiled | CourseError:
        try:
            return compile_source(source, entry, arch, options)
        except CourseError as error:
            return error

    return at_once([functools.partial(made, source) for source in sources], progress)


def at_once(jobs: Sequence[Callable[[], _T]], progress: Callable[[int, int], None] | None = None) -> list[_T]:
    """What each of these compilations returns, in order, as many at once as this machine has room for.

    progress: told twice a second how many have ended, of how many. An interrupt ends all of them, and is passed on.
    """
    if len(jobs) < 2:
        return [job() for job in jobs]
    with nvrtc.several() as count, ThreadPoolExecutor(count) as pool:
        waiting = [pool.submit(job) for job in jobs]
        try:
            while left := wait(waiting, timeout=0.5 if progress else None).not_done:
                if progress:
                    progress(len(waiting) - len(left), len(waiting))
            return [one.result() for one in waiting]
        except BaseException:
            for one in waiting:
                one.cancel()
            nvrtc.stop()
            raise


def front_end(source: str, arch: str = "compute_90") -> tuple[list[Diagnostic], dict[str, tuple[int, ...]]]:
    """What the compiler says of `source`, and the integer constants it evaluated: mangled name -> values, {} on errors.

    Only the front end runs, for a virtual architecture ('compute_XX'): a fraction of a second, and no kernel is needed.
    As there is none that could miss a declaration, none is left out because the compiler refuses it.
    """
    made = attempt(source, _flags(_checked_arch(installation.compiler(), arch), ()), forgiving=False)
    return (made.errors, {}) if made.answer.refused else ([], signatures.constants(made.answer.ptx))


def readable(source: str) -> str:
    """`source` with plain line ends and blanks. Raises CompileError for what no compiler can read, at its line."""
    if isinstance(source, os.PathLike):
        raise CompileError(f"{os.fspath(source)} is a path, and a source is text: pass Path(…).read_text(encoding='utf-8').")
    if not isinstance(source, str):
        raise CompileError(f"There is no CUDA source to compile: a source is text, and this is {type(source).__name__}.")
    source = _FIRST_MAGICS.sub(lambda match: re.sub(r"[%!][^\r\n]*", "", match[0]), source)
    if not source.strip():
        raise CompileError("There is no CUDA source to compile: it is empty.")
    if _FILE_NAME.fullmatch(source.strip()):
        raise CompileError(f"{source.strip()} is a file's name and no CUDA source: pass what the file holds, as text.")
    source = source.replace("\r\n", "\n").replace("\r", "\n").translate(_BLANKS)
    code = strip_comments(source)
    for text, pattern, explain in (
        (code, _MAGIC, _magic),
        (code, _MARKDOWN, _markdown),
        (code, _TYPOGRAPHY, _typography),
        (source, _NO_TEXT, _no_text),
    ):
        if found := pattern.search(text):
            line = text.count("\n", 0, found.start()) + 1
            raise CompileError(f"line {line}: {explain(found[0])}", line)
    return source


def _magic(command: str) -> str:
    return f"{command.strip()} is a command of the notebook and no CUDA. Delete the line."


def _markdown(_: str) -> str:
    return "``` is Markdown's mark around code and no part of it. Delete it, and text outside of it."


def _typography(character: str) -> str:
    return (
        f"{character} is a character of typography, as word processors and web pages make it. "
        f"C++ knows only {_TYPOGRAPHIC[character]}: type it anew."
    )


def _no_text(character: str) -> str:
    if character == "\0":
        return "there is a null byte, behind which the compiler would not look. Delete it."
    return "there is half of a character (a lone surrogate), which is no text. Delete it."


def _checked_options(options) -> tuple[str, ...]:
    if isinstance(options, Iterable):
        options = (options,) if isinstance(options, str) else tuple(options)
    if not isinstance(options, tuple) or not all(isinstance(option, str) for option in options):
        raise CompileError(f"options={options!r} are no compiler options: write them as a list of texts, options=['-ftz=true'].")
    for option in options:
        if not option.isprintable():
            raise CompileError(f"options: {option!r} holds a character that is no text. Delete it.")
        if re.match(r"--?(gpu-)?arch(itecture)?\b", option):
            raise CompileError(f"options: {option!r} is said by an argument of its own: write arch='sm_80'.")
        if re.match(r"--?((f?device-)?time(-trace)?\b|(create-)?pch(-dir)?(?![\w-]))", option):
            raise CompileError(f"options: {option!r} writes a file, and compiling changes nothing of yours. Leave it out.")
        if re.match(r"--?(dlto|dlink-time-opt|gen-opt-lto|f?device-syntax-only)(?![\w-])", option):
            raise CompileError(f"options: {option!r} makes no code that can run: a linker would, or nothing. Leave it out.")
    return options


def _checked_arch(compiler: installation.Compiler, arch: str) -> str:
    match = re.fullmatch(r"(sm|compute)_(\d+)([a-z]?)", str(arch))
    supported = compiler.architectures
    if not match or int(match[2]) not in supported:
        names = ", ".join(f"sm_{number}" for number in supported)
        raise CompileError(f"arch={arch!r} is not an architecture this compiler knows. It knows: {names}.")
    return str(arch)


def _with_more(source, entry, specific, options, key) -> Compiled:
    """Compiled for an architecture-specific target, and a note that says so."""
    compiled = _compile(source, entry, specific, options, _flags(specific, options), key)
    note = f"Compiled for {specific}: there are instructions that {specific[:-1]} leaves out (in the magic: --arch {specific})."
    return replace(compiled, warnings=(note, *compiled.warnings))


def _compile(source, entry, arch, options, flags, key) -> Compiled:
    specific = f"{arch}a"
    if arch == "sm_90" and _ONLY_SPECIFIC.search(source) and not _ASKS_ITSELF.search(source):
        return _with_more(source, entry, specific, options, key)
    wanted = kernels.instance(source, entry)
    expressions = (wanted,) if wanted else ()
    made = attempt(source, flags, expressions, entry=entry)
    if made.answer.refused and wanted and "<" not in (entry or ""):  # it was only our reading of the file's launches
        wanted, made = None, attempt(source, flags, entry=entry)
    answer = made.answer
    if answer.refused and arch in _WITH_MORE and _LEFT_OUT.search(answer.log):
        return _with_more(source, entry, specific, options, key)
    if answer.refused:
        raise made.error()
    log, ptx, cubin = answer.log, answer.ptx, answer.cubin
    try:
        symbol = answer.lowered[0] if wanted else kernels.choose(ptx, source, entry)
    except kernels.NoKernelError as error:
        told = [error.message, not_here(made.missing)]
        raise CompileError(" ".join(told if error.line is None else told[::-1]).strip(), error.line) from None
    usage: dict[str, Any] = signatures.resource_usage(log, symbol)
    if not cubin:
        usage["shared_bytes"] = signatures.shared_bytes(ptx, symbol)
    return Compiled(
        source=source,
        entry=kernels.plain_name(symbol),
        symbol=symbol,
        arch=arch,
        options=options,
        ptx=ptx,
        cubin=cubin,
        log=log,
        parameters=signatures.parameters(ptx, symbol, source, options),
        constants=signatures.constants(ptx),
        warnings=(
            *made.notes(),
            *signatures.alignments_not_given(ptx, symbol, source),
            *signatures.arrays_in_one_place(ptx, symbol, source),
            *signatures.losses(log, symbol),
        ),
        requested=wanted or entry or "",
        key=key,
        **usage,
    )
