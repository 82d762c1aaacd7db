"""Shapes of a check that other processes have tried before their turn.

A check tries some fifty shapes, and most of what it does for one uses one processor. Others take shapes from the last one on, and are
believed where one is right without a word. Any other shape is run here in its turn, so what a reader is told is the same with and without
them.
"""

from __future__ import annotations

import atexit
import os
import pickle
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from helpers import processors
from helpers.children import ChildProcess, Pool
from helpers.toolchain.compiled import Compiled

from .check_report import Case
from .problem import Problem

MAKER = "helpers.run.gemm:other_shapes"  # of what such a process answers with
MOST = 2  # processes at the shapes of a check, this one among them
MEMORY = 3 << 30  # bytes that one may use; those of lesson 17 use a twelfth of it
REST = 120.0  # seconds without a check after which one ends
PROCESSES = "GEMM_LADDER_PROCESSES"  # the environment variable with another number of them


@dataclass(frozen=True)
class AskedShape:
    """One to be tried: its place in the order of the check, the problem, what seconds `check` gives it, and whether what native code
    notices is to be explained."""

    place: int
    problem: Problem
    seconds: float
    at_most: float
    explain: bool = True


@dataclass(frozen=True)
class RightShape:
    """One that is right without a word, and how many seconds that took."""

    case: Case
    seconds: float


def processes() -> int:
    """How many a check may use, this one included."""
    wanted = os.environ.get(PROCESSES, "")
    return min(max(1, int(wanted)) if wanted.isdecimal() else MOST, processors.available())


class Ahead:
    """Other processes at work on shapes of one check, as long as the `with` block lasts."""

    def __init__(self):
        self._changed = threading.Condition()
        self._left, self._begun, self._tried = list[AskedShape](), set[int](), dict[int, RightShape]()
        self._at_work, self._asked, self._stopped = list[ChildProcess](), False, False

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, error: type[BaseException] | None, *_more: object) -> None:
        """Who is at a shape is stopped: nobody wants it any more, and it may take long. Who still reads the code goes on, and is ready for
        the next check then, unless it is an error, or an interrupt, that ends this one."""
        with self._changed:
            self._stopped = error is not None
            self._left, stopped = [], list(self._at_work) if self._begun or self._stopped else []
        for child in stopped:
            child.process.kill()

    def begin(self, compiled: Compiled, first: Sequence[AskedShape], shapes: Sequence[AskedShape]) -> None:
        """Have others try these shapes, which are in the order of the check, the last one first. first: those that have been tried here,
        and with which they read the code, so that nobody has to wait for that. Asked again, and where as many others are still at an
        earlier check, it does nothing."""
        if self._asked:
            return
        self._asked, self._left = True, list(shapes)
        for _ in range(min(processes() - 1 - _POOL.at_work, len(shapes))):
            threading.Thread(target=self._work, args=(compiled, first), daemon=True).start()

    def take(self, place: int, waiting: Callable[[], None]) -> RightShape | None:
        """What another process says of a shape that it has begun; None where none has, and then none will, or where it is to be run
        here. waiting: called again and again until it has been tried."""
        with self._changed:
            self._left = [shape for shape in self._left if shape.place != place]
            while place in self._begun:
                if not self._changed.wait(0.1):
                    waiting()
            return self._tried.pop(place, None)

    @property
    def ready(self) -> int:
        """Shapes that have been tried and not been taken."""
        with self._changed:
            return len(self._tried)

    def _work(self, compiled: Compiled, first: Sequence[AskedShape]) -> None:
        try:
            child = _POOL.take()
        except OSError:  # there can be no more processes
            return
        with self._changed:
            self._at_work.append(child)
            if self._stopped:
                child.process.kill()
        try:
            for shape_tried_here in first:
                child.ask((compiled, shape_tried_here))
            while (shape := self._next()) is not None:
                self._try(child, compiled, shape)
        except (EOFError, OSError, ValueError, pickle.UnpicklingError):  # it has ended, and what it had begun is tried in its turn
            child.stop()
        with self._changed:
            self._at_work.remove(child)
        _POOL.give_back(child)

    def _try(self, child: ChildProcess, compiled: Compiled, shape: AskedShape) -> None:
        tried: RightShape | None = None
        try:
            tried = child.ask((compiled, shape))
        finally:
            with self._changed:
                self._begun.discard(shape.place)
                if tried is not None:
                    self._tried[shape.place] = tried
                self._changed.notify_all()

    def _next(self) -> AskedShape | None:
        with self._changed:
            if not self._left:
                return None
            shape = self._left.pop()
            self._begun.add(shape.place)
            return shape


_POOL = Pool(lambda: ChildProcess(MAKER, MEMORY, REST), None)  # one that rests waits for the next check: to start it takes a second
stop = _POOL.stop  # all of them
atexit.register(stop)
