"""What a worker of the shared GPU does with a job: it starts the candidate's process, keeps the clock, looks at the result, ends it.

This process never loads a learner's kernel. The data of a product is drawn here and its result compared here, with the specification in
float64; a time that the GPU's own events gave is held to this process's clock, over as many launches as take a tenth of a second.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pynvml

from helpers.errors import CourseError, LaunchError, RunError
from helpers.run import timing

from . import candidate, protocol
from .protocol import LaunchJob, ProductJob

START_SECONDS = 60.0  # for the candidate's process to be ready: imports, and the driver's assembling of the PTX
MOST_MEMORY = 8 << 30  # bytes of the machine's memory that a candidate's process may use
DOUBT = 1.25  # a kernel that takes so many times longer by our clock than by the GPU's events is not believed
LAUNCH_SECONDS = 30e-6  # that a launch may take besides, which our clock sees and the events do not
_ROOT = Path(__file__).resolve().parents[3]
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_PATH", "LANG", "GEMM_LADDER_NO_GPU")


def judge(message: bytes, simulated: bool, seconds: float) -> dict[str, Any]:
    """What came of the job in `message`, as JSON: {"state": "done", …} or {"state": "failed", "error", "message"}. seconds: that its
    kernel may run. Raises nothing that the job could cause."""
    start = time.monotonic()
    gauges = _Gauges()
    try:
        job = protocol.loads(message)
        with tempfile.TemporaryDirectory(dir=_quick_folder()) as name, gauges:
            found = _done(job, message, Path(name), simulated, seconds)
    except CourseError as error:
        kind = type(error).__name__
        found = {"state": "failed", "error": kind if kind in protocol.ERRORS else "LaunchError", "message": error.message}
    except OSError as error:
        found = {"state": "failed", "error": "LaunchError", "message": f"The shared GPU's machine has no room for this launch ({error})."}
    return found | {"gauges": gauges.read(), "seconds": round(time.monotonic() - start, 3)}


def _quick_folder() -> str | None:
    """Where files stay in memory, if there is such a place."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _done(job: protocol.Job, message: bytes, folder: Path, simulated: bool, seconds: float) -> dict[str, Any]:
    (folder / "job").write_bytes(message)
    if isinstance(job, LaunchJob):
        with _Process(job.code.entry, folder, simulated, seconds) as process:
            process.hear("ready", START_SECONDS)
            answer = process.ask("go", "done", seconds)
        arrays = {number: _output(folder, str(number), made.nbytes) for number, made in enumerate(job.arrays) if made.returned}
        return {
            "state": "done", "entry": job.code.entry, "timing": answer["timing"],
            "arrays": {str(number): protocol.encoded(data) for number, data in arrays.items()},
        }  # fmt: skip
    return _judged(job, folder, simulated, seconds)


def _judged(job: ProductJob, folder: Path, simulated: bool, seconds: float) -> dict[str, Any]:
    """A product: its data, its result, its time."""
    problem = replace(job.problem, seed=int.from_bytes(os.urandom(6), "little"))  # nobody knows the data before
    host = timing.operands(problem)
    for name, array in zip(candidate.MADE, host, strict=False):
        (folder / name).write_bytes(array.tobytes())
    with _Process(job.code.entry, folder, simulated, seconds) as process:
        process.hear("ready", START_SECONDS)
        answer = process.ask("go", "done", seconds)
        first, last = (_array(folder, name, host[2]) for name in ("first", "last"))
        reference = None if answer["why"] else _array(folder, "reference", host[2])
        times = answer["timing"]
        claimed = float(times[job.code.entry]["milliseconds"])
        if not (math.isfinite(claimed) and claimed > 0):
            raise RunError(f"{job.code.entry} was timed with {claimed} ms, which cannot be.")
        if not simulated:
            count = max(1, min(20_000, math.ceil(100 / claimed)))
            start = time.perf_counter()
            process.ask(str(count), "again", seconds)
            said = contradiction(claimed, time.perf_counter() - start, count)
            if said:
                raise RunError(f"{job.code.entry} is not timed: {said}")
    # Bias and factors are the problem's own, and the problem of the candidate has the seed of the message.
    checked = replace(problem, seed=job.problem.seed) if problem.fused or problem.scale_block else problem
    difference = timing.checked(job.code.entry, checked, host, first, reference, np.random.default_rng())
    if first.tobytes() != last.tobytes():
        raise RunError(timing.other_bits(job.code.entry, problem))
    return {"state": "done", "timing": times, "why_no_cublas": answer["why"], "difference": difference, "entry": job.code.entry}


def contradiction(milliseconds: float, wall_seconds: float, launches: int) -> str:
    """Why a time cannot be: this process's clock saw `launches` launches, one behind the other, take much longer. "" if it can."""
    seen = 1e3 * (wall_seconds / launches - LAUNCH_SECONDS) - 1.0 / launches  # a millisecond for the pipe
    if seen <= DOUBT * milliseconds:
        return ""
    return (
        f"by the GPU's events it takes {milliseconds:.4g} ms, by the clock of the process that watches it {seen:.4g} ms. A launch that "
        "does something only now and then looks like this; so does a GPU that others use."
    )


def _output(folder: Path, name: str, size: int) -> bytes:
    """A file that the candidate's process wrote. Raises RunError if it is not of this size."""
    path = folder / name
    if not path.is_file() or path.is_symlink() or path.stat().st_size != size:
        raise RunError("The kernel's process left no result of the right size.")
    return path.read_bytes()


def _array(folder: Path, name: str, like: np.ndarray) -> np.ndarray:
    return np.frombuffer(_output(folder, name, like.nbytes), like.dtype).reshape(like.shape)


class _Process:
    """The candidate's process: what it says, a line at a time; it is ended on leaving, with all that it started."""

    def __init__(self, name: str, folder: Path, simulated: bool, seconds: float):
        self.name, self.seconds, self._simulated, self._folder = name, seconds, simulated, folder
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def __enter__(self) -> _Process:
        module = "helpers.run.shared_gpu.candidate"
        how = "simulated" if self._simulated else "gpu"
        given = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(self._folder), how, str(os.getpid())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="utf-8", cwd=self._folder,
            env={**given, "PYTHONPATH": str(_ROOT), "HOME": str(self._folder), "GEMM_LADDER_HOME": str(self._folder)},
            start_new_session=True,
        )  # fmt: skip
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def __exit__(self, kind, error, trace) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):  # what was being written has nowhere to go
                if pipe is not None:
                    pipe.close()

    def _read(self) -> None:
        with contextlib.suppress(ValueError):  # the pipe was closed meanwhile
            for line in self._process.stdout or ():
                self._lines.put(line)
        self._lines.put("")

    def ask(self, what: str, state: str, seconds: float) -> dict[str, Any]:
        """Say a line, and what came back (see `hear`)."""
        with contextlib.suppress(OSError):  # it has ended: hear() says so
            if self._process.stdin is not None:
                self._process.stdin.write(f"{what}\n")
                self._process.stdin.flush()
        return self.hear(state, seconds)

    def hear(self, state: str, seconds: float) -> dict[str, Any]:
        """The next thing it says, which is of this state. Raises CourseError if it says why not, ends, or takes longer than `seconds`."""
        end = time.monotonic() + seconds
        while True:
            try:
                line = self._lines.get(timeout=0.05)
                break
            except queue.Empty:
                self._check(state, end)
        try:
            answer = json.loads(line)
        except ValueError:
            raise RunError(
                f"{self.name} ended the process it ran in, which gave no answer. Launch it with on='cpu': the SIMT machine says more."
            ) from None
        if answer.get("state") == "failed":
            raise protocol.ERRORS.get(answer.get("error"), LaunchError)(str(answer.get("message")))
        if answer.get("state") != state:
            raise RunError(f"{self.name}: its process said something else than was asked.")
        return answer

    def _check(self, state: str, end: float) -> None:
        with contextlib.suppress(psutil.Error):  # it has ended
            if psutil.Process(self._process.pid).memory_info().rss > MOST_MEMORY:
                raise RunError(f"{self.name} wanted more than {MOST_MEMORY >> 30} GB of the shared GPU's machine and was stopped.")
        if time.monotonic() <= end:
            return
        if state == "ready":
            raise LaunchError(f"{self.name} was not ready to be launched on the shared GPU in time; nothing was launched.")
        why = "it may never end"
        if self._simulated:
            why += ", or its product is too large for the SIMT machine, which stands here for a GPU and is thousands of times slower"
        raise RunError(
            f"{self.name} did not end within {self.seconds:g} s on the shared GPU and was stopped: {why}. Your arrays are as they were. "
            "Launch it with on='cpu' to see which line it is at."
        )


class _Gauges:
    """Samples the GPU's clock, power and temperature while a job runs; reads nothing where there is no driver."""

    def __init__(self):
        self._found: list[tuple[float, float, float]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, kind, error, trace) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        try:
            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByUUID(os.environ.get("CUDA_VISIBLE_DEVICES", ""))
            while not self._stop.wait(0.05):
                clock = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
                power = pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3
                self._found.append((clock, power, pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)))
        except pynvml.NVMLError:
            return

    def read(self) -> dict[str, float] | None:
        """Clock in MHz, power in W, temperature in °C: medians, and the largest; None where nothing was read."""
        if not self._found:
            return None
        clock, power, heat = (list(values) for values in zip(*self._found, strict=True))
        return {
            "clock_mhz": statistics.median(clock), "most_clock_mhz": max(clock), "power_w": statistics.median(power),
            "most_power_w": max(power), "temperature_c": max(heat),
        }  # fmt: skip
