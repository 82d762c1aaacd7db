"""The process that loads a learner's kernel: it launches when it is told to, and says when it is done.

It is started for one job and ended with it, by force if need be; what it says is not believed where somebody else can look: the
result is compared, and the time is held to a clock, in the process that started it (`judging`). It ends when that one ends.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from helpers.errors import CourseError, RunError
from helpers.run import gemm, gpu, timing, variable_values
from helpers.run.block_scales import scale_block
from helpers.run.gemm import Problem
from helpers.run.geometry import is_fused
from helpers.run.gpu import failures
from helpers.run.kernel import Kernel
from helpers.run.transposes import transposed
from helpers.sim import Budget, Collect, simulate

from . import protocol
from .protocol import LaunchJob, ProductJob

SIMULATED = "the SIMT machine in place of a GPU"
MADE = ("A", "B", "C", "bias")  # the files of a product's operands
_POINTERS = (4, 6, 9, 11, 12)  # which parameters of a product are pointers
_ENDLESS = 1e6  # seconds: the limit is kept by who started this process


class KernelProcess:
    """One job: what is said and heard goes through two pipes, a line at a time."""

    def __init__(self, folder: Path, simulated: bool, say: Callable[[dict[str, Any]], None], hear: Callable[[], str]):
        self.folder, self.simulated, self.say, self.hear = folder, simulated, say, hear

    def serve(self) -> None:
        """Do the job. Raises CourseError where it cannot be done."""
        job = protocol.loads((self.folder / "job").read_bytes())
        if isinstance(job, LaunchJob):
            self._launch(job)
        else:
            self._product(job)

    def _begin(self) -> None:
        """Wait until the clock runs."""
        self.say({"state": "ready"})
        self.hear()

    def _launch(self, job: LaunchJob) -> None:
        compiled = job.code.compiled()
        arrays = [made.array() for made in job.arrays]
        values = job.values(arrays, compiled.parameters)
        variable_values.need_room(compiled, job.symbols)
        if not self.simulated:
            gpu.device()  # the driver's own start is no part of the launch
        self._begin()
        if self.simulated:
            start = time.perf_counter()
            outcome = simulate(
                compiled,
                job.grid,
                job.block,
                values,
                job.shared,
                Collect(counters=False),
                Budget(seconds=_ENDLESS),
                engine="numpy",
                cluster=job.cluster,
                symbols=job.symbols,
            )
            timed = _simulated(time.perf_counter() - start)
            if outcome.findings and outcome.findings[0].kind == "out-of-bounds":
                raise RunError(f"{compiled.entry} read or wrote memory outside its arrays.")
        else:
            copies = job.row_copies(arrays)
            timed = gpu.launch(compiled, job.grid, job.block, values, job.shared, job.repeat, job.cluster, copies, job.symbols)
        for number, (made, array) in enumerate(zip(job.arrays, arrays, strict=True)):
            if made.returned:
                self._write(str(number), array)
        self.say({"state": "done", "timing": dataclasses.asdict(timed)})

    def _product(self, job: ProductJob) -> None:
        problem, kernel = job.problem, product_kernel(job)
        shape = gemm.geometry(kernel)
        host = [self._read(name, array) for name, array in zip(MADE, problem.zeros(), strict=False)]
        work = self._simulated_work(kernel, problem, host) if self.simulated else self._work(kernel, shape, problem, host)
        self._begin()
        work.once("first")
        times = work.times(job)
        work.once("last")
        self.say({"state": "done", "timing": {name: dataclasses.asdict(item) for name, item in times.items()}, "why": work.why})
        work.again(int(self.hear()))
        self.say({"state": "again"})

    def _work(self, kernel: Kernel, shape: gemm.Geometry, problem: Problem, host) -> _Work:
        a, b, c = (gpu.upload(array) for array in host)
        once = timing.launches(kernel, shape, problem, (a, b, c), [gpu.upload(array) for array in problem.behind()])
        reference = gpu.upload(host[2])
        rival, why = timing.opponent(problem, a, b, reference)
        functions = {kernel.name: once} if rival is None else {kernel.name: once, timing.CUBLAS: rival}

        def run(name: str) -> None:
            c[...] = gpu.upload(host[2])
            gpu.run_once(once, kernel.name)
            self._write(name, gpu.download(c, host[2]))
            if name == "first" and not why:
                gpu.run_once(functions[timing.CUBLAS], timing.CUBLAS)
                self._write("reference", gpu.download(reference, host[2]))

        def again(count: int) -> None:
            def in_a_row() -> None:
                for _ in range(count):
                    once()

            gpu.run_once(in_a_row, kernel.name)

        return _Work(run, lambda job: gpu.interleave(functions, job.samples, job.seconds), again, why)

    def _simulated_work(self, kernel: Kernel, problem: Problem, host) -> _Work:
        spent = 0.0

        def run(name: str) -> None:
            nonlocal spent
            arrays = host[0], host[1], host[2].copy()
            start = time.perf_counter()
            gemm.run(kernel, problem, "cpu", arrays, counters=False, findings=False, seconds=_ENDLESS)
            spent = time.perf_counter() - start
            self._write(name, arrays[2])

        return _Work(run, lambda job: {kernel.name: _simulated(spent)}, lambda count: None, "There is no cuBLAS in the SIMT machine.")

    def _read(self, name: str, like: np.ndarray) -> np.ndarray:
        return np.frombuffer(bytearray((self.folder / name).read_bytes()), like.dtype).reshape(like.shape)

    def _write(self, name: str, array: np.ndarray) -> None:
        (self.folder / name).write_bytes(array.tobytes())


@dataclasses.dataclass(frozen=True)
class _Work:
    """A product's launches. once: launch, and write C under this name. again: launch so often, one right behind the other."""

    once: Callable[[str], None]
    times: Callable[[ProductJob], dict[str, gpu.Timing]]
    again: Callable[[int], None]
    why: str


def product_kernel(job: ProductJob) -> Kernel:
    """The kernel of a product, whose signature is as the course launches it. Raises LaunchError."""
    compiled = job.code.compiled()
    plain = len(compiled.parameters) - len(job.code.maps)
    names = [item.name for item in compiled.parameters[:plain]] + list(job.code.maps)
    parameters = tuple(
        dataclasses.replace(item, name=name, pointer_to="void" if index in _POINTERS and item.size == 8 else item.pointer_to)
        for index, (item, name) in enumerate(zip(compiled.parameters, names, strict=True))
    )
    kernel = Kernel(dataclasses.replace(compiled, parameters=parameters))
    if is_fused(kernel) != job.problem.fused:
        raise CourseError("The kernel adds a bias and the message's problem has none, or the other way round, so nothing was launched.")
    if scale_block(kernel) != job.problem.scale_block:
        raise CourseError("The kernel's blocks with a factor are not those of the message's problem, so nothing was launched.")
    if transposed(kernel) != job.problem.turned:
        raise CourseError("The kernel takes its matrices otherwise than the message's problem stores them, so nothing was launched.")
    return kernel


def _simulated(seconds: float) -> gpu.Timing:
    return gpu.Timing(1e3 * seconds, 0.0, 1, None, SIMULATED, "one launch in the SIMT machine", "simulated: says nothing about a GPU")


def _watch(parent: int) -> None:
    """End this process when the one that started it has died: nobody else would stop an endless kernel."""
    while os.getppid() == parent:
        time.sleep(0.1)
    os._exit(1)


def main() -> None:
    folder, simulated, parent = Path(sys.argv[1]), sys.argv[2] == "simulated", int(sys.argv[3])
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing else may write between the answers

    def say(fields: dict[str, Any]) -> None:
        answers.write(json.dumps(fields) + "\n")
        answers.flush()

    failures.AFTERWARDS = "Others are not affected: on the shared GPU each launch has a process of its own."
    try:
        KernelProcess(folder, simulated, say, sys.stdin.readline).serve()
    except CourseError as error:
        kind = type(error).__name__ if type(error).__name__ in protocol.ERRORS else "LaunchError"
        say({"state": "failed", "error": kind, "message": error.message})
    os._exit(0)  # whatever the kernel still does ends with the process


if __name__ == "__main__":
    main()
