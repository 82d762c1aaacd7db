"""One kernel, many settings: variants of a source that differ in its constants, each executed and counted, side by side.

    settings = sweep(kernel.source, [{"TM": 4}, {"TM": 8}], size=1024)

A setting is a number that the source gives a constant ("constexpr int TM = 16;"); a variant is the same text with another
number in that place. Its counters come from executing it, its time from the GPU or, without one, from the model.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from helpers.arguments import explained, is_whole, listed
from helpers.errors import CompileError, CourseError, LaunchError, RunError
from helpers.model import hardware
from helpers.model.occupancy import Occupancy
from helpers.progress import Progress
from helpers.run import gemm
from helpers.sim.code.hardware_units import WARP
from helpers.sim.counting import names as metrics
from helpers.toolchain.compile import compile_source, readable

from .lesson import DEFAULT_GPU, LessonKernel, Profile
from .measures import count
from .proof import SECONDS
from .table import Table, Tabular


def variant(source: str, /, **constants: int) -> str:
    """The source with other numbers for some of its constants. Raises CourseError for what is no source or no whole number, and
    unless each constant is set in just one place."""
    source = readable(source)
    for name, value in constants.items():
        if not is_whole(value):
            raise CourseError(f"{name}={value!r}: a constant is set to a whole number, such as {name}=64.")
        source, places = re.subn(rf"\b({re.escape(name)} = )\d+", rf"\g<1>{value}", source)
        if places != 1:
            raise CourseError(
                f"The kernel sets {name} to a number in {places} places; it must be one, like: constexpr int {name} = {value};"
            )
    return source


@dataclass(frozen=True)
class Setting:
    """One variant: the constants that make it, and what its profile found."""

    constants: Mapping[str, int]
    profile: Profile

    @property
    def threads(self) -> int:
        """Threads per block."""
        return math.prod(self.profile.run.block)

    @property
    def registers(self) -> int:
        """Registers per thread; 0 where no assembler has given them out."""
        return self.profile.kernel.compiled.registers

    @property
    def spilled(self) -> int:
        """Bytes per thread that found no register and are stored in memory, as the compiler counts them."""
        return self.profile.kernel.compiled.spill_stores

    @property
    def occupancy(self) -> Occupancy:
        return self.profile.kernel.occupancy(self.profile.gpu_name)

    @property
    def waves(self) -> float:
        """How often the grid fills the GPU."""
        return self.occupancy.waves(math.prod(self.profile.run.grid), hardware.gpu(self.profile.gpu_name).sms)

    @property
    def shared_loads(self) -> int:
        """Load instructions of warps from shared memory."""
        return count(self.profile.run, metrics.executed("shared_ld"))

    @property
    def fma_share(self) -> float | None:
        """Multiply-adds per lane slot: of 32 lanes in each executed instruction, the part that did a multiply-add.

        None if the machine instructions could not be counted (see `sim/sass.py`).
        """
        instructions = self.profile.run.counters.get(metrics.INSTRUCTIONS)
        return count(self.profile.run, metrics.threads("ffma")) / (WARP * instructions) if instructions else None

    @property
    def peak_share(self) -> float:
        """Speed as a part of the GPU's limit for these element types; NaN where that is not known."""
        unit = hardware.gpu(self.profile.gpu_name).unit(self.profile.problem.dtype)
        return self.profile.tflops / unit.tflops if unit else math.nan


@dataclass(frozen=True)
class FailedSetting:
    """A variant that is not to be compared. place: among all that were asked for. what: in three words; why: what was said of it first."""

    constants: Mapping[str, int]
    place: int
    what: str
    why: str


@dataclass(frozen=True, repr=False)
class Sweep(Tabular):
    """Settings side by side, as a table; with those that failed, which have no figures."""

    gpu_name: str
    settings: tuple[Setting, ...]
    failed: tuple[FailedSetting, ...] = ()

    @property
    def kind(self) -> str:
        """'measured' or 'predicted'."""
        return self.settings[0].profile.kind

    @property
    def limit(self) -> str:
        """What speeds are a part of: "FP32 limit"."""
        return f"{self.settings[0].profile.problem.inputs.label} limit"

    @property
    def names(self) -> tuple[str, ...]:
        """Each setting by the constants that are not the same in all: "TM = 16"."""
        return tuple(self._name(item) for item in self.settings)

    @property
    def left_out(self) -> str:
        """Which settings failed, and how; "" if none."""
        return ", ".join(f"{self._name(item)} ({item.what})" for item in self.failed)

    def _name(self, item: Setting | FailedSetting) -> str:
        alike = self._alike
        return _assignments({name: value for name, value in item.constants.items() if name not in alike})

    @property
    def _alike(self) -> Mapping[str, int]:
        """The constants that are the same in all settings, where there are several."""
        first, *others = [item.constants for item in self.settings] + [item.constants for item in self.failed]
        return {name: value for name, value in first.items() if others and all(one.get(name) == value for one in others)}

    def table(self) -> Table:
        header = ["", "threads per block", "registers", "occupancy", "waves", "shared loads", "FMA share", f"TFLOPS, {self.kind}"]
        cells = [self._row(item) for item in self.settings]
        for item in self.failed:
            cells.insert(item.place, [self._name(item), *["–"] * (len(header) - 2), item.what])
        below = [f"{self._name(item)} {_SENTENCES[item.what]}: {item.why}" for item in self.failed]
        return Table(header, cells, self.caption, left=(0,), below=below)

    def _row(self, item: Setting) -> list[str]:
        speed = item.profile.tflops
        return [
            self._name(item), f"{item.threads}",
            f"{item.registers or '–'}" + (f" + {item.spilled} bytes spilled" if item.spilled else ""),
            f"{item.occupancy.fraction:.2%}", f"{item.waves:.2f}", f"{item.shared_loads / 1e6:.2f} M",
            "–" if item.fma_share is None else f"{item.fma_share:.1%}", "–" if speed is None else f"{speed:.1f}",
        ]  # fmt: skip

    @property
    def caption(self) -> str:
        """What was multiplied, and for which GPU occupancy and speed hold."""
        return ", ".join(filter(None, (str(self.settings[0].profile.problem), self.gpu_name, _assignments(self._alike))))


_NOT_COMPILED, _NOT_RUN, _WRONG = "not compiled", "not run", "wrong result"
_SENTENCES = {_NOT_COMPILED: "does not compile", _NOT_RUN: "does not run", _WRONG: "computes a wrong product"}


def _assignments(constants: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in constants.items())


def _settings(constants: Any) -> tuple[Mapping[str, int], ...]:
    """The settings that were listed. Raises CourseError for what is no list of settings."""
    found = listed(constants)
    if found is None or not all(isinstance(one, Mapping) and all(isinstance(name, str) for name in one) for one in found):
        raise CourseError("constants: give a list of settings, such as [{'BM': 64}, {'BM': 128}].")
    return found


@explained
def sweep(source: str, constants: Iterable[Mapping[str, int]], size: int = 1024, gpu_name: str | None = None) -> Sweep:
    """Compile and profile one variant for each set of constants, on a product of size³.

    A setting that does not compile, does not run or computes a wrong product has no figures, and the table says why. (One tile of the
    product is compared.) gpu_name: predict for this GPU (compiled for it) even if there is one here. Raises CourseError
    if there is nothing to sweep or it is no list of settings, where all of them fail, and what `variant` and the model raise.
    """
    arch = hardware.gpu(gpu_name or DEFAULT_GPU).capability.arch
    listed_ = _settings(constants)
    sources = [variant(source, **wanted) for wanted in listed_]
    settings: list[Setting] = []
    failed: list[FailedSetting] = []
    errors: dict[str, CourseError] = {}
    with Progress("executing variants") as progress:
        for place, (wanted, text) in enumerate(zip(listed_, sources, strict=True)):
            progress(place, len(listed_))
            what = _NOT_COMPILED
            try:
                kernel = LessonKernel(compile_source(text, arch=arch), _assignments(wanted))
                what = _NOT_RUN
                profile = kernel.profile(size, gpu_name)
                if why := _wrong(kernel, profile):
                    what = _WRONG
                    raise RunError(why)
            except (CompileError, LaunchError, RunError) as error:
                failed.append(FailedSetting(dict(wanted), place, what, _first(error)))
                errors.setdefault(error.message, error)
            else:
                settings.append(Setting(dict(wanted), profile))
    if not settings:
        if len(errors) == 1:  # whatever the setting, or there is one alone
            raise next(iter(errors.values()))
        if errors:
            why = "\n".join(f"{_assignments(one.constants)} {_SENTENCES[one.what]}: {one.why}" for one in failed)
            raise CourseError(f"None of the settings is to be compared.\n{why}")
        raise CourseError("There is nothing to sweep: give at least one set of constants, such as {'TM': 8}.")
    if len({item.profile.kind for item in settings}) > 1:  # recorded is the lesson's own setting alone: like is compared with like
        settings = [replace(item, profile=item.profile.as_predicted()) for item in settings]
    return Sweep(settings[0].profile.device, tuple(settings), tuple(failed))


def _wrong(kernel: LessonKernel, profile: Profile) -> str:
    """What is wrong with a tile of the product, as a sentence; else "". Where there is a GPU it is timed on results that were
    compared, and so is what the course has on record."""
    if profile.timed or profile.recorded:
        return ""
    problem, shape = profile.problem, gemm.geometry(kernel)
    across, down = shape.tiles(problem.m, problem.n)
    random = np.random.default_rng()
    sample = gemm.SampledProblem.of(problem, ((int(random.integers(across)), int(random.integers(down))),))
    try:
        return gemm.run_sample(kernel, sample, SECONDS, findings=False)[1]
    except LaunchError:  # its blocks wait for one another: none of them runs alone
        return ""


def _first(error: CourseError) -> str:
    """The first thing that an error says, as a line; of a static_assert, its own words."""
    lines = error.message.splitlines()
    said = next((line for line in lines if line.startswith("line ")), lines[0])
    return re.sub(r'error: (?:static assertion failed with "(.*)"$)?', r"\1", said)
