"""Answers are judged in a process of its own: limited memory, time and files, an empty folder, no network, and an end to all it started.

Parent and child speak JSON: {"slug", "seed", "texts", "seconds", "patience"} to it and a list of judgements back, or {"climb"} and a
prediction. The child never runs Python that was handed in; what it limits is what a kernel, a template or a formula may ask for.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from helpers.course.exercises import Exercise, exercise
from helpers.errors import CourseError
from helpers.toolchain.compile import readable

from .answers import keep_to_headers, kernel_text
from .formulas import function
from .marks import Judgement, judgement

KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "GEMM_LADDER_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")  # of the environment
LONGEST = 1 << 20  # characters of an answer of the child


@dataclass(frozen=True)
class Limits:
    """Of one child: memory in bytes (of addresses), seconds by the clock and of the processor, bytes of a file that it writes.

    seconds, patience: what a shape may take, and a small one always, as in `gemm.check`. They only end what never would: make
    them many times what the course's own solution takes on the same machine.
    """

    memory: int = 12 << 30
    all_seconds: float = 900.0
    file_bytes: int = 256 << 20
    seconds: float = 60.0
    patience: float = 30.0


class Stopped(CourseError):
    """The child came to no judgement: it was stopped at a limit, or ended by itself."""


def judged(slug: str, texts: Sequence[str], seed: int, limits: Limits = Limits()) -> list[Judgement]:
    """Judge the texts of cells, one after the other, by the check of an exercise.

    An answer that cannot be judged (it does not compile) is a Judgement that says why. Raises Stopped for one that does not come to an end
    within the limits.
    """
    request = {"slug": slug, "seed": seed, "texts": list(texts), "seconds": limits.seconds, "patience": limits.patience}
    return [Judgement(**{**row, "said": tuple(row["said"]), "each": tuple(row["each"])}) for row in _asked(request, limits)]


def predicted(climb: Mapping[str, Any], limits: Limits = Limits()) -> tuple[float | None, str]:
    """Check and predict anew what somebody says of a kernel: (milliseconds, ""), or (None, why there is no such prediction).

    climb: source, m, n, k and device, as in a `SavedClimb`. Raises Stopped as `judged` does.
    """
    milliseconds, why = _asked({"climb": {name: climb[name] for name in ("source", "m", "n", "k", "device")}}, limits)
    return milliseconds, why


def _asked(request: dict[str, Any], limits: Limits) -> Any:
    """What a child says to a request. Raises Stopped."""
    root = Path(__file__).resolve().parents[3]
    environment = {name: os.environ[name] for name in KEPT if name in os.environ} | {"PYTHONPATH": str(root), "MPLBACKEND": "agg"}
    with tempfile.TemporaryDirectory(prefix="grading-") as folder:
        process = subprocess.Popen(
            [sys.executable, "-P", "-s", "-m", __name__, json.dumps(asdict(limits))],
            cwd=folder, env=environment, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            said, complaint = process.communicate(json.dumps(request).encode(), limits.all_seconds)
        except subprocess.TimeoutExpired:
            raise Stopped(f"The check had not ended after {limits.all_seconds:g} seconds and was stopped.") from None
        finally:
            _end(process)
    if process.returncode or len(said) > LONGEST:
        last = complaint.decode(errors="replace").strip().rpartition("\n")[2][:300]
        raise Stopped(f"The check used more memory or time than an answer may, or broke off ({process.returncode}: {last or 'no word'}).")
    return json.loads(said)


def _end(process: subprocess.Popen) -> None:
    """End a process and all that it has started, in whatever session that is."""
    family = []
    with contextlib.suppress(psutil.Error):
        family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    for member in family:
        with contextlib.suppress(psutil.Error):
            member.kill()
    process.communicate()


# ---------------------------------------------------------------------------------------------------------- the child


def judge_here(item: Exercise, text: str, seed: int, **options: float) -> Judgement:
    """Judge one answer in this process. options: `seconds` and `patience`, of a kernel."""
    start, remarks = time.monotonic(), tuple[str, ...]()
    try:
        if item.language == "py":
            random.seed(seed)  # the arguments that are drawn besides those of the task
            report = item.judge(function(text, item.slug))
        else:
            from helpers.run.kernel import compile  # here: the parent needs no compiler

            kernel = kernel_text(text)
            remarks = kernel.remarks
            report = item.judge(compile(kernel.source, entry=kernel.entry), seed, on="cpu", whole=True, **options)
    except CourseError as error:
        return Judgement(False, False, False, 0.0, (f"✗ {error.message}",), time.monotonic() - start, refused=True)
    found = judgement(item, report, time.monotonic() - start)
    return Judgement(**{**asdict(found), "said": (*(f"· {remark}" for remark in remarks), *found.said)})


def predict_here(climb: Mapping[str, Any]) -> tuple[float | None, str]:
    """`predicted`, in this process."""
    from helpers.course import lesson, proof  # here: the parent needs neither compiler nor machine
    from helpers.run import gemm
    from helpers.toolchain.compile import compile_source

    try:
        keep_to_headers(readable(climb["source"]))
        kernel = lesson.LessonKernel(compile_source(climb["source"]))
        if kernel.step is not None:
            kernel = lesson.LessonKernel(compile_source(climb["source"], arch=kernel.step.target()))
        report = gemm.check(kernel, on="cpu")
        if not report.correct:
            return None, str(report)
        problem = gemm.problem_for(kernel, climb["m"], climb["n"], climb["k"])
        run = gemm.count(kernel, problem)
        proof.verify(kernel, problem, run)
        return run.predict(gpu=climb["device"]).milliseconds, ""
    except CourseError as error:
        return None, error.message


def _limit(limits: dict[str, Any]) -> None:
    """Limit this process and what it starts, as far as the system can."""
    with contextlib.suppress(ImportError):  # Windows has no such limits
        import resource

        seconds = int(limits["all_seconds"]) + 1
        for what, most in (
            (resource.RLIMIT_AS, limits["memory"]),
            (resource.RLIMIT_CPU, seconds * (os.cpu_count() or 1)),
            (resource.RLIMIT_FSIZE, limits["file_bytes"]),
            (resource.RLIMIT_CORE, 0),
        ):
            hard = resource.getrlimit(what)[1]
            least = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(what, (least, least))
    if sys.platform == "linux":
        user, group = os.getuid(), os.getgid()
        new_user, new_network = 0x10000000, 0x40000000  # CLONE_NEWUSER, CLONE_NEWNET of sched.h
        if ctypes.CDLL(None).unshare(new_user | new_network) == 0:  # a network without a device; not every system lets users have one
            with contextlib.suppress(OSError):
                Path("/proc/self/setgroups").write_text("deny")
                Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
                Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _main() -> None:
    limits = json.loads(sys.argv[1])
    _limit(limits)
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else prints is no answer
    request = json.load(sys.stdin)
    found: Any
    if "climb" in request:
        found = predict_here(request["climb"])
    else:
        item = exercise(request["slug"])
        options = {} if item.language == "py" else {name: request[name] for name in ("seconds", "patience")}
        found = [asdict(judge_here(item, text, request["seed"], **options)) for text in request["texts"]]
    with out:
        json.dump(found, out)


if __name__ == "__main__":
    _main()
