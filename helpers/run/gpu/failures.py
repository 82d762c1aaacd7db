"""What can go wrong on a GPU, as one sentence: CUDA's errors, kernels that do not end, and what they leave behind."""

from __future__ import annotations

import time
from typing import Any

from helpers.errors import CourseError, LaunchError, RunError

LAUNCH_SECONDS = 60.0  # a launch that takes longer is called endless
AFTERWARDS = (  # what a kernel that went wrong means for those after it
    "The GPU stays unusable in this notebook until its kernel is restarted (Kernel > Restart); until then everything runs on the CPU."
)

_broken = ""  # why the GPU cannot be used any more in this process
_pending: list[Any] = []  # the event of a launch that was given up on and may still be running

# CUDA's error numbers, the same in the runtime and the driver. These end the process's use of the GPU:
_FATAL = {
    700: "read or wrote memory outside its arrays (illegal address)",
    702: "ran longer than this display GPU allows (launch timeout)",
    710: "failed an assert",
    714: "jumped to an illegal place (hardware stack error)",
    715: "executed an illegal instruction",
    716: "accessed memory at an address that is not a multiple of the access width (misaligned address)",
    717: "used an address of the wrong kind of memory (invalid address space)",
    718: "jumped to an illegal place (invalid program counter)",
    719: "failed on the GPU (launch failure)",
}
# These refuse one launch and change nothing:
_REFUSED = {
    1: "an argument or attribute is out of range (invalid value)",
    2: "the GPU has not enough free memory",
    9: "the grid or block is impossible (invalid configuration)",
    200: "the compiled code does not fit this GPU (invalid image)",
    209: "the kernel was compiled for another architecture than this GPU's",
    222: "the driver is too old for this PTX",
    701: "the block needs more registers or shared memory than an SM has",
    720: "its blocks wait for each other (grid.sync()), and so many do not fit on this GPU at once: use a smaller grid",
    912: "this GPU cannot run a cluster of so many blocks of this size: use fewer, or smaller ones",
}


def cuda_errors() -> tuple[type[BaseException], ...]:
    """The exceptions CuPy raises for CUDA's own errors."""
    from cupy.cuda.memory import OutOfMemoryError
    from cupy_backends.cuda.api.driver import CUDADriverError
    from cupy_backends.cuda.api.runtime import CUDARuntimeError

    return CUDADriverError, CUDARuntimeError, OutOfMemoryError


def aftermath() -> str:
    """Why an earlier kernel keeps the GPU from being used, as a sentence; "" if none does."""
    if _broken:
        return _broken
    if _pending:
        if not _finished(_pending[0]):
            return (
                "A kernel launched earlier is still running on the GPU. Wait for it, or restart the notebook's kernel "
                "(Kernel > Restart) to stop it."
            )
        _pending.clear()
    return _broken


def _finished(event) -> bool:
    try:
        return happened(event)
    except cuda_errors() as error:
        _give_up(error)
        return True


def _give_up(error: BaseException) -> str:
    """Remember that the GPU is lost to this process, and say so."""
    global _broken
    what = _FATAL.get(getattr(error, "status", 0), f"failed on the GPU ({first_line(error)})")
    _broken = (
        f"An earlier kernel {what}, after which CUDA refuses all work from this process. "
        "Restart the notebook's kernel (Kernel > Restart) to use the GPU again."
    )
    return what


def explain(error: BaseException, name: str = "The kernel") -> CourseError:
    """CuPy's exception as the error to raise: RunError if the kernel went wrong, LaunchError if it was refused."""
    status = getattr(error, "status", 0)
    if status in _FATAL:
        what = _give_up(error)
        return RunError(
            f"{name} {what} on the GPU, which does not say where. Launch it with on='cpu': the SIMT machine names the line. {AFTERWARDS}"
        )
    if status in _REFUSED:
        return LaunchError(f"{name} was not launched: {_REFUSED[status]}.")
    if type(error).__name__ == "OutOfMemoryError":
        return LaunchError(f"{name} was not launched: {_REFUSED[2]} ({first_line(error)}).")
    return LaunchError(f"{name} was not launched: CUDA says {first_line(error)}.")


def first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0].rstrip(".:") or type(error).__name__


_NOT_READY = 600


def happened(event) -> bool:
    """Whether the stream has passed the event. Raises CUDARuntimeError if a kernel before it went wrong.

    (CuPy's `Event.done` is False for ever after an error.)
    """
    from cupy_backends.cuda.api import runtime

    status = runtime.eventQuery(event.ptr)
    if status not in (0, _NOT_READY):
        raise runtime.CUDARuntimeError(status)
    return status == 0


def wait(event, name: str, seconds: float = LAUNCH_SECONDS) -> None:
    """Wait until the event has happened, interruptibly. Raises RunError if it takes longer than `seconds`."""
    end = time.monotonic() + seconds
    nap = 0.0
    try:
        while not happened(event):
            if time.monotonic() > end:
                raise RunError(
                    f"{name} did not finish in {seconds:.0f} s on the GPU: it may never end. It cannot be stopped "
                    "without restarting the notebook's kernel (Kernel > Restart). Launch it with on='cpu' to see which "
                    "line it is at."
                )
            time.sleep(nap)
            nap = min(nap + 20e-6, 5e-3)
    except (KeyboardInterrupt, RunError):
        _pending[:] = [event]
        raise
