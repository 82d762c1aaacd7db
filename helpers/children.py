"""A process of its own for work that may crash, that nothing else could stop, or that is done beside this one's.

It answers what it is asked, one thing after the other, and stays for the next one. It ends with its parent, however that ends, and when it
has grown larger than it may.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

APART = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)  # on Windows, what a session of its own is elsewhere
TOO_LARGE = 77  # the exit status of a child that has ended itself for its memory


class ChildProcess:
    """A process that answers. maker: 'module:function' of a function without arguments, which the process calls once and which returns
    the function that it calls with each request. memory: bytes that it may use. rest: seconds without a request after which it ends."""

    def __init__(self, maker: str, memory: int, rest: float | None = None):
        root = Path(__file__).resolve().parents[1]
        paths = [str(root), os.environ.get("PYTHONPATH", "")]
        self.process = subprocess.Popen(
            # -P: a queue.py in the reader's folder is not ours
            [sys.executable, "-P", "-m", __name__, maker, str(memory), str(rest or "")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            start_new_session=True, creationflags=APART,  # Ctrl-C is for the notebook's kernel, which then decides
        )  # fmt: skip

    def ask(self, request: Any) -> Any:
        """Its answer. Raises EOFError, OSError, ValueError or pickle.UnpicklingError if the process ends meanwhile."""
        requests, answers = self._pipes()
        pickle.dump(request, requests)
        requests.flush()
        return pickle.load(answers)

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


_Child = TypeVar("_Child", bound=ChildProcess)


class Pool(Generic[_Child]):
    """The children of this process that `make` starts: as many at work as are `allowed` (None: any number), and so many at rest."""

    def __init__(self, make: Callable[[], _Child], allowed: int | None = 1):
        self.changed = threading.Condition()
        self.make, self.usual = make, sys.maxsize if allowed is None else allowed
        self._begin()

    def _begin(self) -> None:
        self.resting: list[_Child] = []
        self.working: dict[int, _Child] = {}  # by the thread that waits for it
        self.allowed, self.owner = self.usual, os.getpid()

    def take(self) -> _Child:
        """A child that is at rest, or a new one, once so many may work. Raises OSError where there can be no more processes."""
        with self.changed:
            self._forget_another_process_s()
            if threading.get_ident() in self.working:  # an interrupt came before it could be given back
                self.resting.append(self.working.pop(threading.get_ident()))
            self.changed.wait_for(lambda: len(self.working) < self.allowed)
            alive = [child for child in self.resting if child.lives]
            child = alive.pop() if alive else self.make()
            self.resting = alive
            self.working[threading.get_ident()] = child
            return child

    @property
    def at_work(self) -> int:
        """How many are."""
        with self.changed:
            return len(self.working) if self.owner == os.getpid() else 0

    def give_back(self, child: _Child) -> None:
        """By the thread that took it."""
        with self.changed:
            if self.working.pop(threading.get_ident(), None) is child and child.lives:  # else it was stopped with all others
                self.resting.append(child)
            self.changed.notify_all()

    def allow(self, count: int) -> None:
        """Let so many work from now on; who is at rest beyond that ends."""
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
            self._begin()


# ---------------------------------------------------------------------------------------------------------- the child


def _serve(maker: str, memory: int, rest: float | None) -> None:
    """Answer requests until the other side closes the pipe, or is no more."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else may write between the answers
    threading.Thread(target=_watch, args=(os.getppid(), memory), daemon=True).start()
    requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(requests,), daemon=True).start()
    module, _, function = maker.partition(":")
    answer: Callable[[Any], Any] = getattr(importlib.import_module(module), function)()
    with contextlib.suppress(queue.Empty):
        while True:
            pickle.dump(answer(requests.get(timeout=rest)), answers)
            answers.flush()
    os._exit(0)  # whatever its threads are doing


def _receive(requests: queue.SimpleQueue) -> None:
    """Hand over what the parent asks; when it closes the pipe, whatever is being done, nobody wants it any more."""
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
            os._exit(TOO_LARGE)
        if os.name == "posix" and os.getppid() != parent:
            os._exit(0)


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) if sys.argv[3] else None)
