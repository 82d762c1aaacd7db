"""The kernel of a lesson: what `%%cuda name` binds, with the four verbs of the course.

    naive.check()    is it right? Adversarial shapes, findings, and what the step's counters should be
    naive.show()     the pictures, live from this kernel
    naive.profile()  counters, time, and what limits it
    naive.climb()    put it on your ladder
"""

from __future__ import annotations

import hashlib
import html
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import gemm, gpu, ladder, steps
from .compiler import compile_source
from .errors import CourseError
from .gemm import CheckReport, Problem
from .kernel import Kernel, Run
from .model import hardware
from .model.occupancy import Occupancy, occupancy
from .progress import Progress
from .sim import TraceFilter

DEFAULT_GPU = "H200 SXM"  # the device of the recorded runs
SHOW_SIZE = 128  # pictures: a few blocks, so that every slider has somewhere to go
PROFILE_SIZE = 4096  # the ladder's size


class LessonKernel(Kernel):
    """A kernel bound to a lesson's name. Everything of Kernel, and the verbs."""

    def __init__(self, compiled, name: str | None = None):
        super().__init__(compiled)
        self.lesson_name = name or compiled.entry

    @property
    def step(self) -> steps.Step | None:
        """The row of the step table this kernel belongs to (by its name or its entry), or None."""
        for row in steps.STEPS:
            if row.entry and row.entry in (self.lesson_name, self.name) or row.slug in (self.lesson_name, self.name):
                return row
        return None

    @property
    def dtype(self) -> str:
        """Element type of the matrices, from the signature."""
        names = {"float": "float32", "__half": "float16", "half": "float16", "__nv_bfloat16": "bfloat16", "nv_bfloat16": "bfloat16"}
        pointees = [parameter.pointer_to for parameter in self.compiled.parameters if parameter.pointer_to]
        return names.get(pointees[0], "float32") if pointees else "float32"

    def occupancy(self, gpu_name: str = DEFAULT_GPU) -> Occupancy:
        """Theoretical occupancy of the kernel's own block shape on a GPU of model/gpus.toml."""
        shape = gemm.geometry(self)
        threads = shape.block[0] * shape.block[1] * shape.block[2]
        return occupancy(hardware.gpu(gpu_name), threads, self.registers, self.shared_bytes + shape.shared)

    def gemm(self, m: int, n: int | None = None, k: int | None = None, on: str | None = None, **options: Any) -> Run:
        """Run the kernel on an m × n × k problem (n and k default to m) with its own geometry.

        Options: alpha, beta, pad_a, pad_b, pad_c, seed of `Problem`; trace, counters, … of `Kernel.launch`.
        """
        return gemm.run(self, *_split(m, n, k, self.dtype, options, on))

    # ------------------------------------------------------------------------------------------------ the verbs

    def check(self, on: str | None = None) -> CheckReport:
        """Is the kernel right on adversarial shapes, without findings, and with the counters its step promises?"""
        report = gemm.check(self, gemm.adversarial(gemm.geometry(self).tile, self.dtype), on=on)
        if self.step is None or not self.step.expect or not report.passed:
            return report
        run = self.gemm(64, on="cpu", trace=True)
        verdicts = [expectation.judge(run) for expectation in self.step.expect]
        return replace(report, expectations=tuple((f"{v.text}: {v.yours:g} (expected {v.expected})", v.ok) for v in verdicts))

    def show(self, size: int = SHOW_SIZE, **options: Any):
        """The pictures of this kernel, with sliders: a widget. size: M = N = K of the run they come from."""
        from . import widgets  # here: widgets import matplotlib, which only a lesson that draws should wait for

        with Progress(f"running {self.lesson_name} at {size}³ in the SIMT machine") as progress:
            run = self.gemm(size, on="cpu", trace=TraceFilter(), progress=progress)
        return widgets.explore(run, state=self.lesson_name, **options)

    def profile(self, size: int = PROFILE_SIZE, gpu_name: str = DEFAULT_GPU) -> Profile:
        """Counters of a size³ product, its time (measured with a GPU, predicted without), and what limits it."""
        problem = Problem(size, size, size, dtype=self.dtype)
        with Progress(f"counting {self.lesson_name} at {size}³") as progress:
            run = gemm.count(self, problem, progress=progress)
        timing = gpu.time_gemm(self, problem) if gpu.available() else None
        return Profile(self, problem, run, gpu_name, timing)

    def climb(self, size: int = PROFILE_SIZE, gpu_name: str = DEFAULT_GPU):
        """Check the kernel, time it (or predict its time), put it on your ladder, and draw the ladder."""
        report = self.check()
        if not report.passed:
            raise CourseError(f"{self.lesson_name} is not ready to climb:\n{report}")
        profile = self.profile(size, gpu_name)
        saved = ladder.climb(
            step=self.step.number if self.step else None,
            label=self.lesson_name,
            kind=profile.kind,
            device=profile.device,
            dtype=self.dtype,
            m=size, n=size, k=size,
            milliseconds=profile.milliseconds,
            cublas_ratio=profile.cublas_ratio,
            source=self.source,
            counters=dict(profile.run.counters),
        )  # fmt: skip
        return Climb(profile, saved)


def _split(m, n, k, dtype, options, on):
    fields = {name: options.pop(name) for name in ("alpha", "beta", "pad_a", "pad_b", "pad_c", "seed") if name in options}
    problem = Problem(m, m if n is None else n, m if k is None else k, dtype=dtype, **fields)
    return problem, on
