"""CUDA C++ to PTX by clang's NVPTX back end, where NVIDIA's compiler is not: on macOS, and for tests.

clang comes in the package `ziglang`. It makes PTX and nothing else: no machine code, hence no registers, no spills and no widths of
accesses as ptxas merges them. Nor are CUDA's headers there; `clang_builtins.cuh` declares what the compiler itself has to know, so
that a kernel of plain CUDA C++ compiles, and one that includes cuda_fp16.h, mma.h or cooperative_groups.h does not.

It answers as `nvrtc` does: the same requests, with NVRTC's flags, and a log in NVRTC's form, with NVRTC's words for the usual mistakes.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from helpers.children import APART
from helpers.errors import CompileError

from . import widening
from .headers import EMPTY, INCLUDE
from .nvrtc import MEMORY, SECONDS, Answer, Request

ARCHITECTURES = (75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121)
VERSION = (22, 1)  # of the LLVM that the pinned ziglang carries; part of a compilation's identity
BUILTINS = Path(__file__).with_name("clang_builtins.cuh")
_OWN_HEADERS = re.compile(r"(cuda_fp16|cuda_bf16|cuda_fp8|mma|cooperative_groups|cuda_pipeline)\.h$|(cuda|cub|thrust|cute|cutlass)/")
_NAME = "course_entry"  # of the variable behind the cell that instantiates a template
_ALWAYS = (
    "-x", "cuda", "--cuda-device-only", "-nocudainc", "-nocudalib", "-nostdinc", "-S", "-O3", "-gline-tables-only",
    "--target=x86_64-unknown-linux-gnu",  # the host whose types count: one everywhere
    "-fno-color-diagnostics", "-fno-caret-diagnostics", "-ferror-limit=100", "-Wuninitialized", "-Wno-unknown-cuda-version",
    "-Wno-pass-failed", "-Wno-unused-command-line-argument", "-Wno-pragma-once-outside-header",
)  # fmt: skip
_FAST = ("-ffast-math", "-fcuda-flush-denormals-to-zero")
_FLAGS = {  # NVRTC's, without its one dash or two, and clang's for the same: () for what clang does anyway, or has no use for
    "lineinfo": (), "generate-line-info": (), "no-cache": (), "device-int128": (), "use_fast_math": _FAST,
    "ftz=true": ("-fcuda-flush-denormals-to-zero",), "ftz=false": (), "fmad=true": (), "fmad=false": ("-ffp-contract=off",),
    "prec-div=true": (), "prec-sqrt=true": (),
}  # fmt: skip


@functools.cache
def program() -> str | None:
    """The path of the program that is clang (zig is both), or None where the package is not installed."""
    found = importlib.util.find_spec("ziglang")
    for folder in (found and found.submodule_search_locations) or ():
        path = Path(folder) / ("zig.exe" if sys.platform == "win32" else "zig")
        if path.is_file():
            return str(path)
    return None


def identity() -> str:
    """Changes with what is made of a source here: the built-ins, and how accesses are merged."""
    return BUILTINS.read_text(encoding="utf-8") + Path(widening.__file__).read_text(encoding="utf-8")


def compile_program(request: Request) -> Answer:
    """Compile to PTX. Raises CompileError if clang crashes or asks for too much; an interrupt ends it and is passed on."""
    flags, before = _translated(request.flags)
    with tempfile.TemporaryDirectory(prefix="course-clang-") as place:
        folder = Path(place)
        source = request.source
        for name, text in request.headers.items():
            if text == EMPTY:
                source = _without_include(source, name)
            else:
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(_USING.sub(_if_declared, text), encoding="utf-8")
        names = "".join(
            f'\n#line 1 "__nv_name_map"\nextern "C" __device__ const void* const {_NAME}_{i} = (const void*)&{expression};'
            for i, expression in enumerate(request.expressions)
        )
        (folder / "cell.cu").write_text(f'{before}#line 1 "{request.filename}"\n{source}{names}\n', encoding="utf-8")
        command = [
            str(program()), "clang", *_ALWAYS, *flags, "-include", str(BUILTINS), "-include", "implicit.h", "-I", ".",
            f"-ffile-prefix-map={BUILTINS.parent}=/course", "-fdebug-compilation-dir=/", "cell.cu", "-o", "cell.ptx",
        ]  # fmt: skip
        status, said = _run(command, folder)
        log = _as_nvrtc_says(said, source)
        if status:
            if "error:" not in said:
                raise CompileError(
                    "clang crashed on this cell. It usually does so on inline assembly it cannot make sense of: look at the asm "
                    "statements, and take out what was added last."
                )
            return Answer(log, refused="refused")
        ptx = (folder / "cell.ptx").read_text(encoding="utf-8")
        if widening.worthwhile(ptx):
            ptx = _widened(command, flags, folder) or ptx
    ptx, lowered = _lowered(ptx, len(request.expressions))
    return Answer(log=log, ptx=ptx, lowered=lowered)


def _widened(command: Sequence[str], flags: Sequence[str], folder: Path) -> str:
    """The PTX of the cell with accesses merged; '' where clang does not come so far, and the PTX that it made has to do."""
    arch = next(flag.partition("=")[2] for flag in flags if flag.startswith("--cuda-gpu-arch="))
    if _run([*command, "-mllvm", widening.BEFORE], folder)[0]:
        return ""

    def again(code: str, options: Sequence[str]) -> str:
        (folder / "cell.ll").write_text(code, encoding="utf-8")
        more = [flag for flag in flags if flag.startswith("-ffp-contract")]
        _run([*command[:2], *widening.AGAIN, f"-march={arch}", *more, *options, "cell.ll", "-o", "again"], folder)
        return (folder / "again").read_text(encoding="utf-8")

    try:
        return widening.widened((folder / "cell.ptx").read_text(encoding="utf-8"), again)
    except (OSError, ValueError):  # it wrote nothing, or not what was asked
        return ""


def misses(missing: Sequence[str], source: str) -> CompileError | None:
    """Why a source does not compile that includes headers of CUDA, of which clang has none; None if it includes no such header.

    missing: the names of the headers it includes that are nowhere.
    """
    for match in INCLUDE.finditer(source):
        if match[1] in missing and _OWN_HEADERS.match(match[1]):
            line = source.count("\n", 0, match.start(1)) + 1
            return CompileError(
                f"line {line}: {match[1]} is one of CUDA's own headers, and clang, which compiles here, comes without them. "
                "Half precision, wmma, cooperative groups and libcu++ (steps 14 and later) need NVIDIA's compiler, on Linux.",
                line,
            )
    return None


def _run(command: Sequence[str], folder: Path) -> tuple[int, str]:
    """(exit status, what it said on stderr). Raises CompileError beyond the limits of time and memory."""
    environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(folder / "cache"), "ZIG_LOCAL_CACHE_DIR": str(folder / "cache")}
    start, large = time.monotonic(), threading.Event()
    child = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        encoding="utf-8", errors="replace", start_new_session=True, creationflags=APART,
    )  # fmt: skip
    threading.Thread(target=_watch, args=(child, large), daemon=True).start()
    try:
        said = child.communicate(timeout=SECONDS)[1]
    except subprocess.TimeoutExpired:
        raise CompileError(
            f"The compiler had not ended after {time.monotonic() - start:.0f} seconds and was stopped. Look for a template that "
            "instantiates itself very often, or for large loops that are unrolled."
        ) from None
    finally:  # of an interrupt too: nobody wants the answer any more
        if child.poll() is None:
            child.kill()
            child.wait()
    if large.is_set():
        raise CompileError(
            f"The compiler wanted more than {MEMORY / 2**30:.3g} GB of memory and was stopped. Look for a template that instantiates "
            "itself very often, for large loops that are unrolled, or for a huge array with an initialiser."
        )
    return child.returncode, said


def _watch(child: subprocess.Popen, large: threading.Event) -> None:
    """End the compiler when it grows too large."""
    while child.poll() is None:
        try:
            if psutil.Process(child.pid).memory_info().rss > MEMORY:
                large.set()
                child.kill()
        except psutil.NoSuchProcess:
            return
        time.sleep(0.05)


def _translated(flags: Sequence[str]) -> tuple[list[str], str]:
    """NVRTC's flags as clang's, and what has to stand before the source. Raises CompileError for one that clang has no word for."""
    found, before, contract = [], "", "-ffp-contract=fast"
    for flag in flags:
        if flag.startswith(("-arch=", "--gpu-architecture=")):
            found.append("--cuda-gpu-arch=" + flag.partition("=")[2].replace("compute_", "sm_"))
        elif flag.startswith(("-std=", "--std=")):
            found.append("-std=" + flag.partition("=")[2])
        elif flag.startswith(("-D", "-U", "-I")):
            found.append(flag)
        elif flag in ("-default-device", "--device-as-default-execution-space"):
            before = "#pragma clang force_cuda_host_device begin\n"
        elif flag.lstrip("-") in _FLAGS:
            found += _FLAGS[flag.lstrip("-")]
        elif not flag.startswith(("--pre-include=", "--ptxas-options")):
            raise CompileError(f"options: {flag} is an option of NVRTC, and clang, which compiles on this machine, has none like it.")
    return [contract, *found], before


_USING = re.compile(r"using ::(\w+);")


@functools.cache
def _declared() -> frozenset[str]:
    """The words of the built-ins, and the float's name of each: no function of C's library has another name there."""
    words = re.findall(r"\w+", BUILTINS.read_text(encoding="utf-8"))
    return frozenset(words) | {f"{word}f" for word in words}


def _if_declared(using: re.Match) -> str:
    """A `using ::name;` of a stand-in header, or '' for a function of C's library that the built-ins leave out."""
    return using[0] if using[1] in _declared() or using[1].endswith("_t") else ""


def _without_include(source: str, name: str) -> str:
    """`source` without the directives that include `name`, its lines as they were."""
    return INCLUDE.sub(lambda match: "" if match[1] == name else match[0], source) if name in source else source


def _lowered(ptx: str, count: int) -> tuple[str, tuple[str, ...]]:
    """The symbols of the instances that were asked for, and the PTX without the variables that asked."""
    found = []
    for i in range(count):
        asked = re.search(rf"^.*\b{_NAME}_{i}\b.*=\s*(?:generic\()?([\w$]+)\)?;.*$", ptx, re.M)
        if asked is None:
            raise CompileError("clang did not say how it calls this instance of the template. Name the kernel without a template.")
        found.append(asked[1])
        ptx = ptx.replace(asked[0], "")
    return ptx, tuple(found)


# ---------------------------------------------------------------------------------------------------------------- the log

_SAID = re.compile(r"^(?P<file>[^\n:]*):(?P<line>\d+):(?P<column>\d+): (?P<kind>fatal error|error|warning|note): (?P<message>.*)$")
_WORDS = (  # clang's words, and NVRTC's for the same
    (r"use of undeclared identifier (\"\w+\")(; did you mean .*)?", r"identifier \1 is undefined"),
    (r"unknown type name (\"\w+\")(; did you mean .*)?", r"identifier \1 is undefined"),
    (r"no (?:type|template|member) named (\"\w+\") in namespace (\"\w+\").*", r"namespace \2 has no member \1"),
    (r"no matching function for call to (\"\w+\")", r"no instance of function \1 matches the argument list"),
    (r"reference to __host__ (?:variable|function) (\"[^\"]*\") in (\S+) function",
     r"calling a __host__ function(\1) from a \2 function is not allowed"),
    (r"static assertion failed(?: due to requirement \"[^\"]*\")?(?:: (.*))?", r'static assertion failed with "\1"'),
    (r"variable (\"\w+\") is (?:uninitialized when used.*|used uninitialized.*)", r"variable \1 is used before its value is set"),
    (r"expected \";\".*", r'expected a ";"'),
)  # fmt: skip
_HOST_CALL = re.compile(r"candidate function not viable: call to __host__ function from (\S+) function")


def _as_nvrtc_says(said: str, source: str) -> str:
    """clang's messages in the form of NVRTC's log: `file(line): error: message`, the line of source, a caret."""
    blocks: list[str] = []
    lines = source.split("\n")
    previous = None
    for match in filter(None, map(_SAID.match, said.split("\n"))):
        message = re.sub(r"'([^'\n]*)'", r'"\1"', match["message"])
        if match["kind"] == "note":
            if previous and (call := _HOST_CALL.match(message)) and (name := re.search(r'function ("\w+") matches', previous)):
                blocks[-1] = blocks[-1].replace(
                    previous, f"calling a __host__ function({name[1]}) from a {call[1]} function is not allowed"
                )
                previous = None
            continue
        for pattern, words in _WORDS:
            if re.fullmatch(pattern, message):
                message = re.sub(pattern, words, message)
                break
        kind = "warning" if match["kind"] == "warning" else "error"
        number, column = int(match["line"]), int(match["column"])
        shown = lines[number - 1] if number <= len(lines) and match["file"] == "/cell.cu" else ""
        blocks.append(f"{match['file']}({number}): {kind}: {message}\n  {shown}\n  {' ' * (column - 1)}^\n")
        previous = message
    return "\n".join(blocks)
