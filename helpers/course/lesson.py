"""The kernel of a lesson: what `%%cuda name` binds, with the four verbs of the course.

naive.check()    is it right? Adversarial shapes, findings, and what the step's counters should be
naive.show()     the pictures, live from this kernel
naive.profile()  counters, time, and what limits it
naive.climb()    put it on your ladder

and two ways back: naive.history() shows every source its cell was run with, naive.restore() brings one into a new cell.
"""

from __future__ import annotations

import functools
import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from helpers.arguments import explained, is_whole
from helpers.errors import CourseError, LaunchError
from helpers.files import read_whole
from helpers.freed import given_back
from helpers.interrupts import delayed
from helpers.model import hardware
from helpers.model.hardware import digits
from helpers.model.lacking import lacking
from helpers.model.occupancy import Occupancy, occupancy
from helpers.progress import Progress
from helpers.run import gemm, transposes
from helpers.run.gemm import CheckReport, Problem
from helpers.run.kernel import Kernel, Run, place
from helpers.run.timing import GemmTiming, can_measure, time_gemm
from helpers.sim import TraceFilter
from helpers.sim.counting import names as metrics
from helpers.sim.machine import printout
from helpers.toolchain.compile import compile_source

from . import demanding, history, proof, rungs, steps, store
from .measures import DEFAULT_GPU, Expectation, Verdict
from .table import Cell, Table, Tabular

PROBLEM_OPTIONS = ("alpha", "beta", "pad_a", "pad_b", "pad_c", "seed")
LAUNCH_OPTIONS = (
    "arrays", "multiprocessors", "trace", "counters", "findings", "blocks", "cluster", "seconds", "progress", "repeat", "uninitialized",
    "globals_before", "long", "in_turn", "explain", "symbols",
)  # fmt: skip
SHOW_SIZE = 128  # pictures: a few blocks, so that every slider has somewhere to go
SHOW_LIMIT = 512  # the largest: above, a recording of every access no longer fits
PROFILE_SIZE = 4096  # the ladder's size


Size = int | tuple[int, int, int]  # M = N = K, or (M, N, K)

_OF_COPIES = (metrics.SHARED_WAVEFRONTS_OF_ALL, metrics.SHARED_WAVEFRONTS_OF_ALL_IDEAL)  # without copies they are sums of what is told


def extents(size: Size) -> tuple[int, int, int]:
    """M, N and K of a size. Raises LaunchError for what is none."""
    three = list(size) if isinstance(size, tuple | list) else [size] * 3
    if len(three) != 3 or not all(is_whole(extent) and extent >= 0 for extent in three):
        raise LaunchError(f"size={size!r}: a size is one whole number, 0 or more, for M = N = K, or three: (M, N, K).")
    return three[0], three[1], three[2]


class LessonKernel(Kernel):
    """A kernel bound to a lesson's name. Everything of Kernel, and the verbs.

    expect: what the counters of its runs must be, by default what its step says, which holds for the constants of that step.
    """

    def __init__(self, compiled, name: str | None = None, cell: str = "", expect: Sequence[Expectation] | None = None):
        super().__init__(compiled)
        self.cell = cell  # the text of the notebook's cell that made it
        self.lesson_name = name or compiled.entry
        self._expect = expect
        self._counted: dict[Problem, Run] = {}
        self._checked: dict[str, CheckReport] = {}
        self._verified: set[Problem] = set()

    @property
    def step(self) -> steps.Step | None:
        """The row of the step table this kernel belongs to, by the name it is bound to, else by its entry; or None."""
        for name in (self.lesson_name, self.name):
            for row in steps.STEPS:
                if row.entry and name in (row.entry, row.slug):
                    return row
        return None

    @property
    def rung_name(self) -> str:
        """What its rung is called: its name, and which matrices it takes by columns. That is another product than the one by rows."""
        layout = transposes.said_of(self)
        return f"{self.lesson_name}, {layout}" if layout else self.lesson_name

    @explained
    def occupancy(self, gpu_name: str = DEFAULT_GPU) -> Occupancy:
        """Theoretical occupancy of the kernel's own block shape on a GPU of model/gpus.toml."""
        shape = gemm.geometry(self)
        threads = shape.block[0] * shape.block[1] * shape.block[2]
        known = self.compiled.registers
        return replace(occupancy(hardware.gpu(gpu_name), threads, known, self.shared_bytes + shape.shared), registers_known=bool(known))

    @explained
    def gemm(self, m: int, n: int | None = None, k: int | None = None, on: str | None = None, **options: Any) -> Run:
        """Run the kernel on an m × n × k problem (n and k default to m) with its own geometry.

        Options: alpha, beta, pad_a, pad_b, pad_c, seed of `Problem`; trace, counters, … of `Kernel.launch`. arrays: A, B and C as the
        kernel takes them: of one compiled with --transb, B is [n, ldb].
        """
        fields = {name: options.pop(name) for name in PROBLEM_OPTIONS if name in options}
        if layout := next((name for name in options if name in transposes.NAMES), None):
            raise LaunchError(f"gemm has no option {layout}: a kernel says it where it is compiled, %%cuda {self.lesson_name} --{layout}.")
        if unknown := [name for name in options if name not in LAUNCH_OPTIONS]:
            known = ", ".join([*PROBLEM_OPTIONS, *LAUNCH_OPTIONS])
            raise LaunchError(f"gemm has no option {unknown[0]}. It has: {known}. (The types of A, B and C are those of the kernel.)")
        problem = gemm.problem_for(self, m, m if n is None else n, m if k is None else k, **fields)
        if "progress" in options:
            return gemm.run(self, problem, on, **options)
        with Progress(f"running {self.lesson_name} at {problem}") as progress:
            return gemm.run(self, problem, on, progress=progress, **options)

    # ------------------------------------------------------------------------------------------------ the verbs

    @explained
    @printout.together()
    def check(self, on: str | None = None, seed: int | None = None) -> CheckReport:
        """Is the kernel right on adversarial shapes, without findings, and with the counters its step promises?

        seed: draws the same random shapes as the check that reported it.
        """
        with Progress(f"checking {self.lesson_name} on awkward shapes") as progress:
            report = gemm.check(self, on=on, progress=progress, seed=seed)
            if report.correct and report.seed is not None and (problems := demanding.besides(self, report.seed)):
                report = demanding.joined(report, gemm.check(self, problems, on=on, progress=progress))
        report = replace(report, unfollowed=proof.unfollowed(self))
        promised = self.step.expect if self.step is not None else ()
        expect = promised if self._expect is None else self._expect
        if expect and (layout := transposes.said_of(self)):
            not_asked = f"What this step counts is of A and B by rows: it is not asked of {layout}."
            expect, report = (), replace(report, expectations=((not_asked, True),))
        if expect and report.passed:
            try:
                sentences = proof.judged(self, expect, report.seed, functools.partial(self._wording, told=set()))
            except CourseError as error:  # what has been found of the shapes stands
                sentences = ((f"The counters could not be judged: {error.message}", False),)
            report = replace(report, expectations=sentences)
        self._checked[place(on, self)] = report
        history.judged(self.lesson_name, self.cell, history.verdict(report))
        return report

    @property
    def doubt(self) -> str:
        """What a check of this kernel has found against it, as a sentence; "" where nothing, and where none was made."""
        failed = [report for report in self._checked.values() if not report.correct]
        if any(case.message for report in failed for case in report.cases):
            return "check() has found this kernel wrong: what follows is of a kernel that computes something else."
        return "check() has findings of this kernel: what follows is of a kernel that is not right yet." if failed else ""

    def _wording(self, verdict: Verdict, told: set[str]) -> str:
        """A verdict as a sentence, and of the first that is not met that the kernel climbs. Where its tile is another than that of this
        step's own kernel, or a thread's part of it, that is said: it is no mistake by itself. told: what has been said in this report."""
        said = f"{verdict.text}: {verdict.yours:g} (expected {verdict.expected}{verdict.at})."
        if verdict.ok or told or self.step is None or self._expect is not None:
            return said
        own, mine = gemm.geometry(reference(self.step.slug)), gemm.geometry(self)
        (rows, columns), results, here = own.tile, *(math.prod(shape.tile) // math.prod(shape.block) for shape in (own, mine))
        whose = f"tile is {rows} × {columns}" if own.tile != mine.tile else f"threads have {results} results each and here {here}"
        at_this = " at this K" if verdict.at else ""
        other, alike = "more" if verdict.too_much else "fewer", own.tile == mine.tile and results == here
        because = "" if alike or not verdict.yours else f"That is {other} than this step's own kernel has{at_this}, whose {whose}; "
        told.add(f"{because}climb() takes it all the same.")
        return " ".join((said, *told))

    @explained
    def history(self) -> history.History:
        """Every source this cell was run with, and what was said of it."""
        return history.history(self.lesson_name)

    @explained
    def restore(self, number: int = 0):
        """Version `number` of the history in a new cell; 0, the lesson's own."""
        return history.restore(self.lesson_name, number)

    @explained
    def show(self, size: Size = SHOW_SIZE, picture: str | None = None, pictures: list[str] | None = None):
        """The pictures of this kernel, with sliders: a widget. size: M = N = K, or (M, N, K), of the run they come from. picture,
        pictures: as in `widgets.explore`.

        Raises CourseError for a size above SHOW_LIMIT.
        """
        if isinstance(size, str):
            raise CourseError(
                f"size={size!r}: a size is a number, such as size={SHOW_SIZE}. A picture is named so: show(picture={size!r})."
            )
        shape = extents(size)
        problem = gemm.problem_for(self, *shape)  # a size that is none is refused
        if max(shape) > SHOW_LIMIT:
            raise CourseError(
                f"show() records every access of a run, and {problem} has too many of them: take size={SHOW_LIMIT} or less. A picture "
                "shows one block or a few anyway. profile() and climb() are there for large products."
            )
        with delayed():
            from helpers.front import widgets  # here: widgets import matplotlib, which only a lesson that draws should wait for

        with Progress(f"running {self.lesson_name} at {problem} in the SIMT machine") as progress:
            run = self.gemm(*shape, on="cpu", trace=TraceFilter(math=True), progress=progress)

        def again(filter_: TraceFilter) -> Run:
            return self.gemm(
                *shape, on="cpu", trace=filter_, counters=False, findings=False, blocks=filter_.blocks, progress=None
            )  # fmt: skip

        return widgets.explore(run, self.lesson_name, picture, pictures, again)

    @explained
    @given_back()
    def profile(self, size: Size = PROFILE_SIZE, gpu_name: str | None = None, *, gpu: str | None = None) -> Profile:
        """Counters of a product, its time (measured with a GPU, predicted without), and what limits it.

        size: M = N = K, or (M, N, K). gpu_name, or gpu, as `predict` calls it: predict for this GPU (a name of model/gpus.toml) even if
        there is one here.
        Raises CourseError for a GPU that the course has no figures for.
        """
        gpu_name = _one_name(gpu_name, gpu)
        if gpu_name is not None:
            hardware.gpu(gpu_name)
        problem = gemm.problem_for(self, *extents(size))
        if problem not in self._counted:  # a compiled kernel does not change, and climb() asks what profile() asked
            with Progress(f"counting {self.lesson_name} at {problem}") as progress:
                self._counted[problem] = gemm.count(self, problem, progress=progress)
        run = self._counted[problem]
        timed = time_gemm(self, problem) if gpu_name is None and can_measure(self) else None
        return Profile(self, problem, run, gpu_name or DEFAULT_GPU, timed)

    @explained
    def climb(self, size: Size = PROFILE_SIZE, gpu_name: str | None = None, *, gpu: str | None = None) -> Climb:
        """Check the kernel, unless that is done, time it (or predict its time), put it on your ladder, and show the ladder.

        size: M = N = K, or (M, N, K). gpu_name, gpu: as in `profile`.
        A prediction counts only for a product that was computed: some blocks of it are executed at this size and compared. (Of the
        course's own code, unchanged, that was done on the GPU where its time was recorded.)
        Raises CourseError for a GPU that the course has no figures for, and for a kernel that is not right.
        """
        gpu_name = _one_name(gpu_name, gpu)
        if gpu_name is not None:
            hardware.gpu(gpu_name)
        report = self._checked.get(place(None, self)) or self.check()
        if not report.correct:
            raise CourseError(f"{self.lesson_name} is not ready to climb.\n{report}")
        profile = self.profile(size, gpu_name)
        if not (profile.timed or profile.recorded or profile.problem in self._verified):
            with Progress(f"verifying {self.lesson_name} at {profile.problem}") as progress:
                proof.verify(self, profile.problem, profile.run, progress)
            self._verified.add(profile.problem)
        saved = store.own().climb(
            step=self.step.number if self.step else None, label=self.rung_name, kind=profile.kind, device=profile.device,
            dtype=profile.problem.dtype, out_dtype=profile.problem.out_dtype, m=profile.problem.m, n=profile.problem.n, k=profile.problem.k,
            milliseconds=profile.milliseconds,
            cublas_ratio=profile.cublas_ratio,
            source=self.source, counters=dict(profile.run.counters),
        )  # fmt: skip
        return Climb(profile, saved)


def _one_name(gpu_name: str | None, gpu: str | None) -> str | None:
    """The GPU that was named, by either word. Raises CourseError where they differ."""
    if None not in (gpu_name, gpu) and gpu_name != gpu:
        raise CourseError(f"gpu_name={gpu_name!r} and gpu={gpu!r} are two names for one thing, the GPU to predict for: give one of them.")
    return gpu if gpu_name is None else gpu_name


@explained
def reference(step: int | str) -> LessonKernel:
    """The course's own kernel of a step, by number or slug. Raises CourseError if there is none."""
    row = steps.get(step)
    return LessonKernel(compile_source(row.kernel_source(), row.entry, row.target()), row.slug)


_LARGEST_FILE = 1 << 20  # bytes of a source


@explained
def from_file(
    path: str | Path,
    entry: str | None = None,
    arch: str = "sm_90",
    options: Sequence[str] = (),
    transa: bool | str | None = None,
    transb: bool | str | None = None,
) -> LessonKernel:
    """The kernel in a file, with all that a `%%cuda` cell would give it. entry, arch, options, transa, transb: as in `helpers.compile`.

    Raises CourseError for a file that cannot be read, and CompileError, whose lines are the file's.
    """
    if not isinstance(path, (str, Path)):
        raise CourseError(f"from_file wants the name of a file, as in from_file('my_kernel.cu'), not {type(path).__name__}.")
    try:
        path = Path(path).expanduser()
        data = read_whole(path)
    except (OSError, ValueError, RuntimeError) as error:  # the last: ~nobody has no home
        raise CourseError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    if len(data) > _LARGEST_FILE:
        raise CourseError(f"{path} has {len(data):,} bytes, too many for the source of a kernel.")
    try:
        source = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise CourseError(f"{path} is no text (in UTF-8), so there is no source in it.") from None
    compiled = transposes.compile_with(source, entry, arch, options, transa, transb)
    return LessonKernel(compiled, path.stem if entry is None else None)


@dataclass(frozen=True, repr=False)
class Profile(Tabular):
    """Counters of one product, and its time: measured if there is a GPU; else recorded, where the course ran this very code on
    the named one, or predicted for it.

    Where the model cannot predict either, there are counters alone: `milliseconds` and `tflops` are None.
    """

    kernel: LessonKernel
    problem: Problem
    run: Run
    gpu_name: str
    timed: GemmTiming | None
    on_record: bool = True  # a recorded time of this code stands for a predicted one

    @property
    def kind(self) -> str:
        """How the time was had: 'measured', 'recorded' (of this very code), 'predicted', or 'counted' if there is none."""
        if self.timed or self.recorded:
            return rungs.MEASURED if self.timed else rungs.RECORDED
        return rungs.PREDICTED if self.prediction else rungs.COUNTED

    @functools.cached_property
    def recorded(self) -> rungs.Rung | None:
        """The course's own run of this code, compiled alike, on `gpu_name`: then nothing need be predicted. None if there is none."""
        plain = self.on_record and not self.kernel.compiled.options
        return rungs.recorded_time(self.kernel.source, self.problem, self.gpu_name) if plain else None

    @functools.cached_property
    def _answer(self):
        """(the model's prediction, ""), or (None, why there is none)."""
        try:
            return self.run.predict(gpu=self.gpu_name), ""
        except CourseError as error:
            return None, error.message

    @property
    def prediction(self):
        """The model's answer for `gpu_name`, or None if it cannot say."""
        return self._answer[0]

    @property
    def _model_says(self) -> str:
        """The model's time beside a recorded one."""
        if self.prediction is None or self.milliseconds is None:
            return ""
        predicted = self.prediction.milliseconds
        off = round(predicted / self.milliseconds - 1, 2) + 0.0  # which makes 0 of -0
        said = f"{off:+.0%}".replace("-", "−") if off else "the same to a per cent"
        return f"; the model would have said {predicted:.4g} ms, {said}"

    def as_predicted(self) -> Profile:
        """The same with the model's time in place of the recorded one, to stand beside variants of which none was recorded."""
        return replace(self, on_record=False)

    @property
    def device(self) -> str:
        return self.timed.kernel.device if self.timed else self.gpu_name

    @property
    def milliseconds(self) -> float | None:
        if self.timed:
            return self.timed.kernel.milliseconds
        if self.recorded:
            return self.recorded.milliseconds
        return self.prediction.milliseconds if self.prediction else None

    @property
    def cublas_ratio(self) -> float | None:
        """This kernel's speed over cuBLAS's, where both were timed together."""
        return self.timed.cublas_ratio if self.timed else self.recorded.cublas_ratio if self.recorded else None

    @property
    def tflops(self) -> float | None:
        """2·m·n·k over the time, in 10^12 operations per second."""
        return self.problem.flops / self.milliseconds / 1e9 if self.milliseconds else None

    def rows(self) -> list[tuple[str, str, str]]:
        """(what, value, meaning) of everything worth a line."""
        run, found = self.run, []
        sampled = run.problem.get("counted", "in one block of each kind and scaled up")
        found.append(("size", str(self.problem), f"counted {sampled}" if run.sampled else "counted in every block"))
        shared = any(run.counters.get(metrics.executed(f"shared_{op}")) for op in ("ld", "st"))
        for name, meaning in metrics.MEANINGS.items():
            if name in run.counters and (shared or "shared" not in name):
                if name == metrics.threads("ffma") and (executed := run.counters.get(metrics.opcode("FFMA"))):
                    off = "" if run.counters[name] else ", switched off: the predicates of all their threads are false"
                    meaning += f"; as instructions of whole warps: {executed:,}{off}"
                if name == metrics.shared_wavefronts("ld") and run.counters.get(metrics.executed("ldsm")):
                    meaning += ", and ldmatrix"
                found.append((name, f"{run.counters[name]:,}", meaning))
            elif name == metrics.threads("ffma"):
                found.append((name, "not known", f"{meaning}: {metrics.in_words(run.outcome.uncounted) or 'data decide it'}"))
        for name, meaning in metrics.MEANINGS_OF_OTHER_UNITS.items():
            if run.counters.get(name) and (name not in _OF_COPIES or run.counters.get(metrics.executed("ldgsts"))):
                if name == metrics.SHARED_WAVEFRONTS_OF_ALL_IDEAL:
                    own = sum(run.counters.get(metrics.shared_conflicts(op), 0) for op in ("ld", "st", "atom"))
                    more = run.counters[metrics.SHARED_WAVEFRONTS_OF_ALL] - run.counters[name] - own
                    meaning += f"; those that bank conflicts of the copies add: {more:,}"
                found.append((name, f"{run.counters[name]:,}", meaning))
        return found

    def sentences(self) -> list[str]:
        """Time, speed and limiter, labelled by how they were had."""
        found = []
        if self.timed:
            timing = self.timed.kernel
            clock = f" at {timing.clock_mhz:.0f} MHz" if timing.clock_mhz else ""
            found.append(
                f"Measured on {timing.device}{clock}: {timing.milliseconds:.4g} ms (spread {timing.spread:.1%} of "
                f"{timing.samples} samples), {digits(self.tflops)} TFLOPS."
            )
            if self.timed.cublas:
                found.append(
                    f"cuBLAS, interleaved in the same run: {digits(self.timed.cublas_tflops)} TFLOPS; "
                    f"this kernel has {self.timed.cublas_ratio:.1%} of that."
                )
            else:
                found.append(self.timed.why_no_cublas)
            if timing.noisy:
                found.append(_noise(timing.noisy))
        elif self.recorded:
            found.append(
                f"Recorded on {self.gpu_name}, {self.recorded.date}: {self.milliseconds:.4g} ms, {digits(self.tflops)} TFLOPS. "
                f"This is the course's own kernel, unchanged, so this time stands{self._model_says}."
            )
            if self.recorded.noisy:
                found.append(_noise(self.recorded.noisy))
        elif self.prediction:
            found.append(
                f"Predicted for {self.gpu_name}: {self.milliseconds:.4g} ms, {digits(self.tflops)} TFLOPS. {self.prediction.statement}"
            )
        if self.prediction:
            if self.prediction.waits and not self.prediction.limiter.startswith("latency"):  # which says them
                found.append(self.prediction.waits)
            found.append(f"What limits it, by the model: {self.prediction.limiter}{self.prediction.lowered}.")
        else:
            found.append(
                f"{'Counted only, no time is known.' if self.milliseconds is None else 'What limits it is not known.'} {self._answer[1]}"
            )
        if less := lacking(self.run):
            found.insert(0, less)
        if doubt := self.kernel.doubt:
            found.insert(0, doubt)
        estimate = self.kernel.compiled.estimate
        told = [estimate] if estimate and not any(estimate in sentence for sentence in found) else []
        return [*found, *told, *self.run.remarks]

    def table(self) -> Table:
        rows = [
            (Cell(what, f"<code>{html.escape(what).replace('_', '_<wbr>')}</code>"), value, meaning) for what, value, meaning in self.rows()
        ]
        return Table((), rows, f"{self.kernel.lesson_name}:", left=(0, 2), below=self.sentences())


def _noise(why: str) -> str:
    """The sentence on a noisy time, measured or recorded."""
    return f"Noisy: {why}. Do not trust the last digits."


@dataclass(frozen=True)
class Climb:
    """A rung you just put on your ladder. Shown as the ladder itself."""

    profile: Profile
    saved: store.SavedClimb

    def __str__(self) -> str:
        profile = self.profile
        name = profile.kernel.lesson_name
        kept = "" if self.saved.saved else " It is kept for this session only."
        if not profile.tflops:
            return f"{name} is on your ladder, with its counters but without a time.{kept}"
        how = f"{profile.kind} {'for' if profile.kind == rungs.PREDICTED else 'on'} {profile.device}"
        if profile.cublas_ratio:
            how += f", {profile.cublas_ratio:.1%} of cuBLAS"
        return f"{name} is on your ladder: {digits(profile.tflops)} TFLOPS ({how}).{kept}"

    __repr__ = __str__

    def _ipython_display_(self) -> None:
        with delayed():
            from IPython.display import display

            from helpers.front import widgets  # here: widgets import matplotlib, which only a lesson that draws should wait for

        print(self)
        problem, step = self.profile.problem, self.profile.kernel.step
        # What lies above would answer the questions of later lessons. A kernel of no step stands beside all.
        until = None if step is None else step.number
        size = problem.m, problem.n, problem.k
        display(widgets.ladder(size, problem.dtype, problem.out_dtype, device=self.profile.device, until=until, climbed=True))
