"""Fit the model's constants on some recorded runs, and state its error on the others.

    python -m helpers.course.fit

Counts come from executing the shipped kernels at the recorded sizes. The runs whose size is in TRAINING are used for
the fit; every other run of that device is held out, and its error is what the model claims. Writes data/model.toml.
"""

from __future__ import annotations

import functools
import math
import random
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields, replace
from typing import Any

from helpers.errors import CourseError
from helpers.model import hardware
from helpers.model.predict import CONSTANTS, Constants, Demand, demand, kernel_class, milliseconds

from . import rungs, steps

DEVICE = "H200 SXM"
TRAINING = (256, 1024, 4096)  # M = N = K of the runs used for the fit; the sizes between and beyond test it
FITTED_STEPS = range(1, 5)  # kernels that the constants are fitted to; the others are never seen, only predicted
UNSEEN_SIZES = (1024, 2048, 4096)  # at which those are predicted: counting them at every size would take long
START = Constants(request_cycles=0.3, global_latency=500.0, shared_latency=30.0, launch_microseconds=2.0, sharpness=2.0)
RANGES = {
    "request_cycles": (0.05, 2.0),
    "global_latency": (150.0, 1200.0),
    "shared_latency": (20.0, 60.0),
    "launch_microseconds": (0.5, 6.0),
    "sharpness": (1.0, 8.0),
}


@dataclass(frozen=True)
class Sample:
    """One recorded run: what it asks, and how long it took (milliseconds)."""

    name: str
    size: int
    need: Demand
    measured: float


def samples(rows: Sequence[Mapping[str, Any]], say=print) -> list[Sample]:
    """The recorded square float32 runs whose kernel is still the shipped one, counted by executing it."""
    found = []
    measured = {row["kernel_hash"] for row in rows}
    for row in rows:
        step = steps.get(row["step"])
        square = row["m"] == row["n"] == row["k"] and row["dtype"] == "float32"
        source = step.kernel_source()
        if row.get("recorded_from") in measured:  # the same machine code under another name: one measurement counts once
            continue
        if not square or row["noisy"] or rungs.code_hash(source) != row["kernel_hash"]:
            continue
        if step.number not in FITTED_STEPS and row["m"] not in UNSEEN_SIZES:
            continue
        if not on_lanes(source, step.entry):  # what a kernel asks of tensor cores is not in the model
            continue
        found.append(Sample(step.name, row["m"], _asked(step, row["m"]), row["milliseconds"]))
        say(f"counted {step.name} at {row['m']}³")
    return found


@functools.cache
def on_lanes(source: str, entry: str) -> bool:
    """Whether a kernel multiplies on FP32 lanes alone. Raises CompileError for a source that does not compile."""
    from helpers.run import kernel

    return not kernel.compile(source, entry=entry).compiled.matrix_types


def _asked(step: steps.Step, size: int) -> Demand:
    """What a step's kernel asks of a GPU at size³, counted by executing it."""
    from helpers.run import gemm, kernel

    return demand(gemm.count(kernel.compile(step.kernel_source(), entry=step.entry), gemm.Problem(size, size, size)))


def loss(constants: Constants, chosen: Sequence[Sample], gpu: hardware.GPU) -> float:
    """Mean squared logarithm of predicted over measured."""
    return sum(math.log(milliseconds(s.need, gpu, constants) / s.measured) ** 2 for s in chosen) / len(chosen)


def fit(chosen: Sequence[Sample], gpu: hardware.GPU, rounds: int = 3000, start: Constants = START) -> Constants:
    """The constants of least loss within RANGES: a seeded random walk from `start` that narrows."""
    generator = random.Random(1)
    best, least = start, loss(start, chosen, gpu)
    for turn in range(rounds):
        width = 0.5 * (1 - turn / rounds) + 0.005
        trial = best
        for name, (low, high) in RANGES.items():
            if generator.random() < 0.5:
                value = getattr(best, name) * math.exp(generator.gauss(0, width))
                trial = replace(trial, **{name: min(max(value, low), high)})
        now = loss(trial, chosen, gpu)
        if now < least:
            best, least = trial, now
    return Constants(**{item.name: float(f"{getattr(best, item.name):.4g}") for item in fields(Constants)})


def errors(constants: Constants, chosen: Sequence[Sample], gpu: hardware.GPU) -> list[float]:
    """predicted / measured - 1 of each sample."""
    return [milliseconds(s.need, gpu, constants) / s.measured - 1 for s in chosen]


@dataclass(frozen=True)
class Trial:
    """What the model gets wrong on runs it was not fitted on. Errors are predicted / measured - 1.

    sizes: errors at other sizes of the kernels it was fitted on. kernels: errors on each kernel, at all sizes, when it
    was fitted without that kernel.
    """

    sizes: tuple[float, ...]
    kernels: dict[str, tuple[float, ...]]


def trial(known: Sequence[Sample], gpu: hardware.GPU, constants: Constants) -> Trial:
    """Try the model on what it has not seen: other sizes, each fitted kernel in turn, and the kernels never fitted."""
    fitted = [s for s in known if is_fitted(s)]
    names = sorted({s.name for s in fitted})
    with ProcessPoolExecutor() as pool:  # the fits are independent, and plain Python
        found = pool.map(fit, [[s for s in fitted if s.size in TRAINING and s.name != name] for name in names], [gpu] * len(names))
        unseen = {
            name: tuple(errors(others, [s for s in fitted if s.name == name], gpu)) for name, others in zip(names, found, strict=True)
        }
    return Trial(tuple(errors(constants, held_out(known), gpu)), unseen | never_seen(known, gpu, constants))


def is_fitted(sample: Sample) -> bool:
    """Whether the sample's kernel is one the constants are fitted to."""
    return int(sample.name[:2]) in FITTED_STEPS


def training(known: Sequence[Sample]) -> list[Sample]:
    return [s for s in known if is_fitted(s) and s.size in TRAINING]


def held_out(known: Sequence[Sample]) -> list[Sample]:
    """Other sizes of the fitted kernels."""
    return [s for s in known if is_fitted(s) and s.size not in TRAINING]


def never_seen(known: Sequence[Sample], gpu: hardware.GPU, constants: Constants) -> dict[str, tuple[float, ...]]:
    """Errors on the kernels that no fit has seen, by name."""
    others = sorted({s.name for s in known if not is_fitted(s)})
    return {name: tuple(errors(constants, [s for s in known if s.name == name], gpu)) for name in others}


def main() -> int:
    """Fit, and write data/model.toml. Returns the exit status."""
    gpu = hardware.gpu(DEVICE)
    try:
        rows = [row for row in rungs.recorded() if hardware.gpu(row["device"]).name == gpu.name]
        known = samples(rows)
    except CourseError as error:
        print(error.message, file=sys.stderr)
        return 1
    if not training(known) or not held_out(known):
        print("There are too few recorded runs to fit the model and to test it.", file=sys.stderr)
        return 1
    constants = fit(training(known), gpu)
    CONSTANTS.write_text(report(constants, known, trial(known, gpu, constants), gpu), encoding="utf-8")
    print(CONSTANTS.read_text(encoding="utf-8"))
    return 0


def classes(known: Sequence[Sample]) -> dict[str, list[str]]:
    """The kernels of each class."""
    found: dict[str, list[str]] = {}
    for name, like in dict.fromkeys((s.name, kernel_class(s.need)) for s in sorted(known, key=lambda s: s.name)):
        found.setdefault(like, []).append(name)
    return found


def report(constants: Constants, known: Sequence[Sample], tried: Trial, gpu: hardware.GPU) -> str:
    """The text of data/model.toml."""
    lines = [
        "# Written by python -m helpers.course.fit; what the constants mean is said in helpers/model/predict.py.",
        "[constants]",
        *(f"{item.name} = {getattr(constants, item.name)}" for item in fields(Constants)),
        "",
        "[error]",
        f'device = "{gpu.name}"',
        f"sizes = [{', '.join(f'{error:.4f}' for error in tried.sizes)}]",
        "",
        "[error.kernels]  # predicted / measured - 1 of each kernel, when it was fitted without that kernel",
        *(f'"{name}" = [{", ".join(f"{error:.4f}" for error in off)}]' for name, off in tried.kernels.items()),
        "",
        "[error.classes]  # which of them are alike, as predict.kernel_class has it",
        *(f'"{like}" = [{", ".join(f"{chr(34)}{name}{chr(34)}" for name in names)}]' for like, names in classes(known).items()),
        "",
    ]
    unseen = [s for s in known if not is_fitted(s)]
    for part, chosen in (("training", training(known)), ("held_out", held_out(known)), ("unseen", unseen)):
        for sample, error in zip(chosen, errors(constants, chosen, gpu), strict=True):
            lines += [
                f"[[{part}]]",
                f'run = "{sample.name} at {sample.size}³"',
                f"measured = {sample.measured:.6g}",
                f"predicted = {milliseconds(sample.need, gpu, constants):.6g}",
                f"error = {error:.4f}",
                "",
            ]
    lines.append("# Published kernels of the same idea on other GPUs: other people's code, so a sign, not a test.")
    for rung, sample in _same_ideas(known, gpu):
        predicted = milliseconds(sample.need, hardware.gpu(rung.device), constants)
        lines += [
            "[[elsewhere]]",
            f'run = "{sample.name} at {sample.size}³"',
            f'device = "{rung.device}"',
            f'published = "{rung.name}, {rung.source}"',
            f"measured = {rung.milliseconds:.6g}",
            f"predicted = {predicted:.6g}",
            f"difference = {predicted / rung.milliseconds - 1:.4f}",
            "",
        ]
    return "\n".join(lines)


def _same_ideas(known: Sequence[Sample], gpu: hardware.GPU) -> list[tuple[rungs.Rung, Sample]]:
    """Published float32 rungs on other GPUs whose step is among the samples at that size, or at one within a per cent of it: such a
    step is counted at the published size."""
    by_step = {(int(s.name[:2]), s.size): s for s in known}
    found = []
    for rung in rungs.published():
        near = [size for number, size in by_step if number == rung.step and abs(size / rung.m - 1) < 0.01]
        if not near or rung.dtype != "float32" or rung.device == gpu.name:
            continue
        if (rung.step, rung.m) not in by_step:
            like = by_step[rung.step, near[0]]
            by_step[rung.step, rung.m] = replace(like, size=rung.m, need=_asked(steps.get(rung.step), rung.m))
        found.append((rung, by_step[rung.step, rung.m]))
    return found


if __name__ == "__main__":
    sys.exit(main())
