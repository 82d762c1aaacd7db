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

from helpers.arguments import explained, is_whole, listed
from helpers.errors import CourseError
from helpers.model import hardware
from helpers.model.occupancy import Occupancy
from helpers.progress import Progress
from helpers.sim.code.hardware_units import WARP
from helpers.sim.counting import names as metrics
from helpers.toolchain.compile import compile_source, readable

from .lesson import DEFAULT_GPU, LessonKernel, Profile
from .measures import count
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


@dataclass(frozen=True, repr=False)
class Sweep(Tabular):
    """Settings side by side, as a table."""

    gpu_name: str
    settings: tuple[Setting, ...]

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
        every = [item.constants for item in self.settings]
        alike = set() if len(every) == 1 else {name for name in every[0] if len({str(one.get(name)) for one in every}) == 1}
        return tuple(_assignments({name: value for name, value in one.items() if name not in alike}) for one in every)

    def table(self) -> Table:
        header = ["", "threads per block", "registers", "occupancy", "waves", "shared loads", "FMA share", f"TFLOPS, {self.kind}"]
        cells = []
        for name, item in zip(self.names, self.settings, strict=False):
            registers = f"{item.registers or '–'}" + (f" + {item.spilled} bytes spilled" if item.spilled else "")
            cells.append([
                name, f"{item.threads}", registers, f"{item.occupancy.fraction:.2%}", f"{item.waves:.2f}",
                f"{item.shared_loads / 1e6:.2f} M", "–" if item.fma_share is None else f"{item.fma_share:.1%}",
                f"{item.profile.tflops:.1f}",
            ])  # fmt: skip
        return Table(header, cells, self.caption, left=(0,))

    @property
    def caption(self) -> str:
        """What was multiplied, and for which GPU occupancy and speed hold."""
        first, *others = self.settings
        fixed = {
            name: value for name, value in first.constants.items() if others and all(one.constants.get(name) == value for one in others)
        }
        return ", ".join(filter(None, (str(first.profile.problem), self.gpu_name, _assignments(fixed))))


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

    gpu_name: predict for this GPU (compiled for it) even if there is one here. Raises CourseError if there is nothing to
    sweep or it is no list of settings, and what `variant`, the compiler (a static_assert that says no) and the model raise.
    """
    arch = hardware.gpu(gpu_name or DEFAULT_GPU).capability.arch
    constants, settings = _settings(constants), []
    with Progress("executing variants") as progress:
        for done, wanted in enumerate(constants):
            progress(done, len(constants))
            kernel = LessonKernel(compile_source(variant(source, **wanted), arch=arch), _assignments(wanted))
            settings.append(Setting(dict(wanted), kernel.profile(size, gpu_name)))
    if not settings:
        raise CourseError("There is nothing to sweep: give at least one set of constants, such as {'TM': 8}.")
    if len({item.profile.kind for item in settings}) > 1:  # recorded is the lesson's own setting alone: like is compared with like
        settings = [replace(item, profile=item.profile.as_predicted()) for item in settings]
    first = settings[0].profile
    return Sweep(first.device, tuple(settings))
