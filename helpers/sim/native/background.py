"""The two engines at once, for kernels that take long to compile.

A small run is over in the NumPy machine before LLVM has read a large kernel; a long one is worth any compilation. Which
it is shows only while it runs. So the NumPy machine begins, and when it has worked for a while, compilation begins beside
it. The compiled code then runs the launch from the start on a copy of the arrays, and the first of the two to finish
has done it.
"""

from __future__ import annotations

import dataclasses
import threading

from helpers.sim.checks.findings import Findings
from helpers.sim.counting.counters import Counting
from helpers.sim.machine.chunk import Clock

from .declined import Declined, Suspicious
from .workers import OutOfTime


class Overtaken(Exception):
    """The compiled code has finished the launch first."""


class BackgroundRun:
    """Runs a launch natively in the background, after `patience` seconds. run: function of (launch, cancelled).

    failure: why it could not, if so.
    """

    def __init__(self, launch, run, patience: float):
        self.launch, self.run, self.patience = launch, run, patience
        self.failure: Declined | None = None
        self.cancelled = threading.Event()
        self.finished = False
        self.own = None
        launch.clock = _Clock(launch.clock, self)
        self.thread = threading.Thread(target=self._work)
        self.thread.start()

    def _work(self) -> None:
        if self.cancelled.wait(self.patience):
            return
        launch = self.launch
        findings = Findings(False)
        self.own = dataclasses.replace(
            launch,
            memory=launch.memory.anew(launch.program),
            findings=findings,
            counting=None if launch.counting is None else Counting(launch.program, launch.charged),
        )
        try:
            self.run(self.own, self.cancelled)
        except Declined as reason:
            self.failure = reason
            return
        except OutOfTime:
            return
        self.finished = True

    def cancel(self) -> None:
        """The NumPy machine is done, or the run is over. What is being compiled is still kept for the next run."""
        self.cancelled.set()

    def adopt(self) -> None:
        """Make its results those of the launch."""
        self.launch.memory, self.launch.counting = self.own.memory, self.own.counting


class _Clock(Clock):
    """Ends the NumPy machine's run when the background run has finished, or when it has met what that shall not explain."""

    def __init__(self, clock: Clock, other: BackgroundRun):
        super().__init__(clock.steps, float("inf") if clock.seconds is None else clock.seconds, clock.start)
        self.used, self.other = clock.used, other

    def elapsed(self) -> float:
        if self.other.finished:
            raise Overtaken
        if isinstance(self.other.failure, Suspicious) and not self.other.launch.explain:
            raise self.other.failure
        return super().elapsed()
