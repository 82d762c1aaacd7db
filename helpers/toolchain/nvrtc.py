"""NVIDIA's compiler, in a process of its own.

NVRTC can crash on source it does not expect (inline assembly, mostly), and no signal stops it while it compiles. In a child
process a crash is a sentence, Ctrl-C ends it at once, and the notebook's kernel lives on. The child stays for the next cell; where
several programs are wanted at once, there are more of them for so long. A child may use so much memory and time (a template can ask
for any amount), and it ends with its parent, however that ends.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from helpers import processors
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
APART = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)  # on Windows, what a session of its own is elsewhere
_TOO_LARGE = 77  # the child's exit status when it ended itself for its memory


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
    if status == _TOO_LARGE:
        return (
            f"The compiler wanted more than {MEMORY / 2**30:.3g} GB of memory and was stopped. Look for a template that instantiates "
            "itself very often, for large loops that are unrolled, or for a huge array with an initialiser."
        )
    return (
        "NVIDIA's compiler (NVRTC) crashed on this cell. It usually does so on inline assembly it cannot make sense of: "
        "look at the asm statements, and take out what was added last."
    )


class Child:
    """A process that compiles what it is asked, one program after the other."""

    def __init__(self):
        root = Path(__file__).resolve().parents[2]
        paths = [str(root), os.environ.get("PYTHONPATH", "")]
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(MEMORY)],  # -P: a queue.py in the reader's folder is not ours
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            start_new_session=True, creationflags=APART,  # Ctrl-C is for the notebook's kernel, which then decides
        )  # fmt: skip

    def compile(self, request: Request) -> Answer:
        """Raises as `compile_program`; the process has ended then."""
        timer = threading.Timer(SECONDS, self.process.kill)
        start = time.monotonic()
        timer.start()
        try:
            requests, answers = self._pipes()
            pickle.dump(request, requests)
            requests.flush()
            answer = pickle.load(answers)
        except (EOFError, OSError, ValueError, pickle.UnpicklingError):
            raise CompileError(_why_it_died(self.stop(), time.monotonic() - start)) from None
        except BaseException:  # an interrupt, most likely: whatever the child is doing, nobody wants it any more
            self.stop()
            raise
        finally:
            timer.cancel()
        return answer

    @property
    def lives(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> int | None:
        """End the process; its exit status if it had ended by itself."""
        status = None
        with contextlib.suppress(subprocess.TimeoutExpired):  # the pipe closes a moment before the process ends
            status = self.process.wait(0.2)
        self.process.kill()
        for pipe in self._pipes():
            with contextlib.suppress(OSError, ValueError):  # what was being written has nowhere to go
                pipe.close()
        self.process.wait()
        return status

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        """Where requests go, and where answers come from."""
        if self.process.stdin is None or self.process.stdout is None:
            raise OSError("the child was started without pipes")
        return self.process.stdin, self.process.stdout


class _Pool:
    """The children of this process: as many at work as are allowed, one at rest."""

    def __init__(self):
        self.changed = threading.Condition()
        self.resting: list[Child] = []
        self.working: dict[int, Child] = {}  # by the thread that waits for it
        self.allowed, self.owner = 1, os.getpid()

    def take(self) -> Child:
        """A child that is at rest, or a new one, once so many may work."""
        with self.changed:
            self._forget_another_process_s()
            if threading.get_ident() in self.working:  # an interrupt came before it could be given back
                self.resting.append(self.working.pop(threading.get_ident()))
            self.changed.wait_for(lambda: len(self.working) < self.allowed)
            alive = [child for child in self.resting if child.lives]
            child = alive.pop() if alive else Child()
            self.resting = alive
            self.working[threading.get_ident()] = child
            return child

    def give_back(self, child: Child) -> None:
        with self.changed:
            if self.working.pop(threading.get_ident(), None) is child and child.lives:  # else it was stopped with all others
                self.resting.append(child)
            self.changed.notify_all()

    def allow(self, count: int) -> None:
        with self.changed:
            self.allowed = count
            surplus, self.resting = self.resting[count:], self.resting[:count]
            self.changed.notify_all()
        for child in surplus:
            child.stop()

    def stop(self) -> None:
        """End all of them, whatever they are doing."""
        with self.changed:
            self._forget_another_process_s()
            found, self.resting, self.working = [*self.resting, *self.working.values()], [], {}
            self.changed.notify_all()
        for child in found:
            child.process.kill()
        for child in found:
            child.process.wait()

    def _forget_another_process_s(self) -> None:
        """A fork must not share the pipes."""
        if self.owner != os.getpid():
            self.resting, self.working, self.allowed, self.owner = [], {}, 1, os.getpid()


_POOL = _Pool()


atexit.register(stop)


# ---------------------------------------------------------------------------------------------------------- the child


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


def _serve() -> None:
    """Answer requests until the other side closes the pipe, or is no more."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else may write between the answers
    threading.Thread(target=_watch, args=(os.getppid(), int(sys.argv[1])), daemon=True).start()
    requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(requests,), daemon=True).start()
    from cupy.cuda import nvrtc

    while True:
        pickle.dump(_compile(nvrtc, requests.get()), answers)
        answers.flush()


def _receive(requests: queue.SimpleQueue) -> None:
    """Hand over what the parent asks; when it closes the pipe, whatever is being compiled, nobody wants it any more."""
    while True:
        try:
            requests.put(pickle.load(sys.stdin.buffer))
        except EOFError:
            os._exit(0)


def _watch(parent: int, memory: int) -> None:
    """End this process when it grows too large, or when its parent died while another process held the pipe open."""
    import psutil

    process = psutil.Process()
    while True:
        time.sleep(0.05)
        if process.memory_info().rss > memory:
            os._exit(_TOO_LARGE)
        if os.name == "posix" and os.getppid() != parent:
            os._exit(0)


if __name__ == "__main__":
    # The classes that are pickled belong to the module's real name, not to __main__.
    from .nvrtc import _serve as serve

    serve()
