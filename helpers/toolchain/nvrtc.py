"""NVIDIA's compiler, in a process of its own.

NVRTC can crash on source it does not expect (inline assembly, mostly), and no signal stops it while it compiles. In a child
process a crash is a sentence, Ctrl-C ends it at once, and the notebook's kernel lives on. The child stays for the next cell; where
several programs are wanted at once, there are more of them for so long. A child may use so much memory and time (a template can ask
for any amount), and it ends with its parent, however that ends.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from helpers import children, processors
from helpers.errors import CompileError


@dataclass(frozen=True)
class Request:
    """A program to compile: source and its file's name, headers by name, compiler flags, names of template instances."""

    source: str
    filename: str
    headers: dict[str, str]
    flags: tuple[str, ...]
    expressions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What came of it. refused: the compiler's own short message if it refused the source, else ''. The log is there always."""

    log: str
    refused: str = ""
    ptx: str = ""
    cubin: bytes = b""
    lowered: tuple[str, ...] = ()


MEMORY = 4 << 30  # bytes that a compilation may use
SECONDS = 180.0  # that a compilation may take
MOST = 3  # compilers at a time: each takes 220 MB for the course's largest kernels, and a learner's server may have 2 GB


def compile_program(request: Request) -> Answer:
    """Compile in a child process. Raises CompileError if the compiler crashes or asks for too much; an interrupt ends it
    and is passed on."""
    child = _POOL.take()
    try:
        return child.compile(request)
    finally:
        _POOL.give_back(child)


@contextlib.contextmanager
def several() -> Iterator[int]:
    """While this lasts, so many programs may be compiled at a time, each in a child of its own."""
    count = min(MOST, processors.available())
    _POOL.allow(count)
    try:
        yield count
    finally:
        _POOL.allow(1)


def stop() -> None:
    """End all children, whatever they are doing."""
    _POOL.stop()


def _why_it_died(status: int | None, seconds: float) -> str:
    if seconds >= SECONDS:
        return (
            f"The compiler had not ended after {SECONDS:g} seconds and was stopped. Look for a template that instantiates itself "
            "very often, or for large loops that are unrolled."
        )
    if status == children.TOO_LARGE:
        return (
            f"The compiler wanted more than {MEMORY / 2**30:.3g} GB of memory and was stopped. Look for a template that instantiates "
            "itself very often, for large loops that are unrolled, or for a huge array with an initialiser."
        )
    return (
        "NVIDIA's compiler (NVRTC) crashed on this cell. It usually does so on inline assembly it cannot make sense of: "
        "look at the asm statements, and take out what was added last."
    )


class Child(children.ChildProcess):
    """A process that compiles what it is asked, one program after the other."""

    def __init__(self):
        super().__init__(f"{__name__}:compiler", MEMORY)

    def compile(self, request: Request) -> Answer:
        """Raises as `compile_program`; the process has ended then."""
        timer = threading.Timer(SECONDS, self.process.kill)
        start = time.monotonic()
        timer.start()
        try:
            answer: Answer = self.ask(request)
        except (EOFError, OSError, ValueError, pickle.UnpicklingError):
            raise CompileError(_why_it_died(self.stop(), time.monotonic() - start)) from None
        except BaseException:  # an interrupt, most likely: whatever the child is doing, nobody wants it any more
            self.stop()
            raise
        finally:
            timer.cancel()
        return answer


_POOL = children.Pool(Child)


atexit.register(stop)


# ---------------------------------------------------------------------------------------------------------- the child


def compiler() -> Callable[[Request], Answer]:
    """What the child answers with."""
    from cupy.cuda import nvrtc

    return functools.partial(_compile, nvrtc)


def _compile(nvrtc, request: Request) -> Answer:
    headers = tuple(text.encode() for text in request.headers.values()), tuple(name.encode() for name in request.headers)
    program = nvrtc.createProgram(request.source, request.filename, *headers)
    try:
        for expression in request.expressions:
            nvrtc.addNameExpression(program, expression)
        try:
            nvrtc.compileProgram(program, request.flags)
        except nvrtc.NVRTCError as error:
            return Answer(_text(nvrtc.getProgramLog(program)), refused=str(error) or "refused")
        real = not any(flag.startswith("-arch=compute") for flag in request.flags)
        return Answer(
            log=_text(nvrtc.getProgramLog(program)),
            ptx=_text(nvrtc.getPTX(program)),
            # CuPy's getCUBIN returns one byte too few for nvdisasm.
            cubin=bytes(nvrtc.getCUBIN(program)) + b"\0" if real else b"",
            lowered=tuple(nvrtc.getLoweredName(program, expression) for expression in request.expressions),
        )
    finally:
        nvrtc.destroyProgram(program)


def _text(data) -> str:
    return (data.decode() if isinstance(data, bytes) else data).rstrip("\0").replace("\0", "\n")
