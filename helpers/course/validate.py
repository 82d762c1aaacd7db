"""Try the model of cycles on everything that was timed, and write down how far it is off.

    python -m helpers.course.validate

Runs of the steps at the sizes in FITTED were used to choose the figures that `model/cycles/chip.toml` puts down to the steps. All
others took no part: the steps at other sizes, and the steps with other constants (`recorded_variants`, and what the search of step 12
timed, `recorded_search`), which are other kernels, and the steps on another GPU (recorded on an H100), whose entry in gpus.toml
differs in clock, L2 and DRAM while all costs of instructions stay those measured on an H200. Kernels for tensor cores have groups of
their own, likewise: the steps, step 17 with the constants of its strategy table, and the steps on an H100. So have launches of kernels
in signatures of their own (`recorded_launches`). Writes data/validation.toml.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from helpers.errors import CourseError
from helpers.model import hardware
from helpers.model.cluster_places import hangs_over
from helpers.model.predict import VALIDATION, demand, kernel_class

from . import recorded_launches, recorded_search, recorded_states, recorded_variants, rungs, steps, strategy
from .fit import on_lanes
from .sweep import variant

DEVICE = "H200 SXM"
FITTED = (1024, 4096)  # M = N = K
LEAST, MOST = 512, 8192
SPLIT = 4104  # the size by which the model learned what rows cost that begin within lines (chip.toml, bulk.split)
TENSOR_GROUPS = ("tensor_fitted", "tensor_steps_at_other_sizes", "tensor_other_constants")
LAUNCHED = "launches"
SPILLING, SPILLING_FITTED = "spilling", "spilling_fitted"  # steps of which more blocks have to fit than have room for their registers
GROUPS = ("fitted", "steps_at_other_sizes", "other_constants", SPILLING_FITTED, SPILLING, "search", LAUNCHED, *TENSOR_GROUPS)  # on DEVICE
OTHER_GPU, TENSOR_OTHER_GPU = "other_gpu", "tensor_other_gpu"
ABROAD = rungs.DATA / "other_gpus"  # what `course record --out` wrote there; the ladder does not draw it
ALIGNED = 8  # elements: rows that TMA takes; of others the course makes copies, whose time is another one
_SMALL = 5e-5  # share of the warps' cycles that is not written
_TEN_POINTS = 0.1
_POINT = 0.01  # what a share differs by from one sampling to the next (kernels/LOG.md, run 29)


@dataclass(frozen=True)
class TimedRun:
    """A kernel, a size, and its time on a GPU in milliseconds."""

    name: str
    source: str
    entry: str
    size: int
    measured: float
    fitted: bool
    device: str = DEVICE
    published: str = ""
    group: str = "steps_at_other_sizes"
    arch: str = "sm_90"

    @property
    def label(self) -> str:
        """Its name and size, in words."""
        return f"{self.name} at {self.size} × {self.size}" if self.group == LAUNCHED else f"{self.name} at {self.size}³"


@dataclass(frozen=True)
class Tried:
    """A case with its prediction, and the model's class of it. from_counters: why it is not by cycles. states: of its warps."""

    case: TimedRun
    predicted: float
    like: str
    from_counters: str
    states: Mapping[str, float]

    @property
    def error(self) -> float:
        return self.predicted / self.case.measured - 1


def cases() -> list[TimedRun]:
    """Every run on DEVICE that the model can be tried on: square float32 products of a kernel that is still the shipped one."""
    found = {}
    for row, step, source in _of_shipped_kernels(rungs.recorded()):
        if hardware.gpu(row["device"]).name == DEVICE and not row.get("recorded_from"):
            fitted = row["m"] in FITTED
            group = "fitted" if fitted else "steps_at_other_sizes"
            found[step.name, row["m"]] = TimedRun(step.name, source, step.entry, row["m"], row["milliseconds"], fitted, group=group)
    varied = [_varied(item) for item in recorded_variants.recorded() if hardware.gpu(item.device).name == DEVICE]
    return sorted(found.values(), key=lambda case: (case.name, case.size)) + varied + searched() + launches() + tensor_cores()


def _varied(item: recorded_variants.Variant) -> TimedRun:
    """A step with other constants. Of those for tensor cores, figures were chosen on what took place at a size of FITTED; what stores to
    local memory cost is read off step 05."""
    lanes = on_lanes(item.step.kernel_source(), item.step.entry)
    spills = any(recorded_variants.BOUND in text for text in item.constants)
    fitted = item.step.slug == "thread_tile_2d" if spills else not lanes and item.size in FITTED
    group = "other_constants" if lanes else TENSOR_GROUPS[0 if fitted else 2]
    if spills:
        group = SPILLING_FITTED if fitted else SPILLING
    return TimedRun(
        item.name, item.source, item.step.entry, item.size, item.milliseconds, fitted, group=group, arch=item.step.target(),
    )  # fmt: skip


def launches() -> list[TimedRun]:
    """Kernels in signatures of their own on DEVICE."""
    return [
        TimedRun(item.name, "", item.name, item.size, item.milliseconds, item.fitted, group=LAUNCHED)
        for item in recorded_launches.recorded()
        if hardware.gpu(item.device).name == DEVICE
    ]


def abroad() -> list[TimedRun]:
    """The shipped float32 kernels, as they were timed on another GPU."""
    return [
        TimedRun(step.name, source, step.entry, row["m"], row["milliseconds"], False, hardware.gpu(row["device"]).name, group=OTHER_GPU)
        for row, step, source in _of_shipped_kernels(rungs.recorded(ABROAD))
    ]


def tensor_cores() -> list[TimedRun]:
    """The shipped kernels for tensor cores on DEVICE, and step 17 with the constants of its strategy table, but for those with which
    blocks share tiles, or a block of a cluster lies outside of C: these the model does not know."""
    from helpers.run import kernel

    found = []
    for row, step, source in _of_shipped_kernels(rungs.recorded(variants=True), lanes=False):
        constants = _constants(row)
        if row.get("configuration") and (not constants or "SLICES" in constants):
            continue  # nothing else than shipped: that is the step itself
        source = variant(source, **constants) if constants else source
        if hardware.gpu(row["device"]).name == DEVICE and row["m"] % ALIGNED == 0:
            if hangs_over(kernel.compile(source, entry=step.entry, arch=step.target()).compiled, row["m"], row["m"]):
                continue
            fitted = row["m"] in (*FITTED, SPLIT)
            name = recorded_variants.with_constants(step, constants) if constants else step.name
            group = TENSOR_GROUPS[0 if fitted else 2 if constants else 1]
            found.append(TimedRun(name, source, step.entry, row["m"], row["milliseconds"], fitted, group=group, arch=step.target()))
    return sorted(found, key=lambda case: (case.name, case.size))


def tensor_cores_abroad() -> list[TimedRun]:
    """The shipped kernels for tensor cores, as they were timed on another GPU."""
    return [
        TimedRun(
            step.name, source, step.entry, row["m"], row["milliseconds"], False, hardware.gpu(row["device"]).name,
            group=TENSOR_OTHER_GPU, arch=step.target(),
        )
        for row, step, source in _of_shipped_kernels(rungs.recorded(ABROAD), lanes=False) if row["m"] % ALIGNED == 0
    ]  # fmt: skip


def _of_shipped_kernels(rows: Iterable[Mapping[str, Any]], lanes: bool = True) -> Iterator[tuple[Mapping[str, Any], steps.Step, str]]:
    """Rows of square products, not noisy and of the code as it is now, with their step and that code. lanes: of float32 products on FP32
    lanes, otherwise of products of other types. (Float32 products of several products on tensor cores are not in the model.)"""
    for row in rows:
        step = steps.get(row["step"])
        source = step.kernel_source()
        square = row["m"] == row["n"] == row["k"] and (row["dtype"] == "float32") == lanes and not row.get("batch")
        constants = _constants(row)
        whole = variant(source, **constants) if constants else source
        current = not row["noisy"] and rungs.code_hash(whole) == row["kernel_hash"]
        if square and LEAST <= row["m"] <= MOST and current and (not lanes or on_lanes(source, step.entry)):
            yield row, step, source


def _constants(row: Mapping[str, Any]) -> Mapping[str, int]:
    """What differs from the shipped constants in a row of a strategy table; nothing in others."""
    named = row.get("configuration")
    return strategy.FAMILIES[row["dtype"]].configurations[named] if named else {}


def searched() -> list[TimedRun]:
    """What the recorded search of step 12 timed. Raises CourseError where it is of another version of the kernel."""
    step = steps.get(recorded_search.STEP)
    source = step.kernel_source()
    whole = recorded_search.recorded()
    return [
        TimedRun(
            recorded_variants.with_constants(step, item.constants), variant(source, **item.constants), step.entry, recorded_search.SIZE,
            item.measured.milliseconds, False, group="search",
        )
        for item in whole.candidates
        if item.measured and not item.measured.noisy
    ]  # fmt: skip


def elsewhere() -> list[TimedRun]:
    """Published float32 rungs of a step's idea on other GPUs, with the step's kernel at that size."""
    found = []
    for rung in rungs.published():
        if rung.step and rung.dtype == "float32" and rung.device != DEVICE and rung.m == rung.n == rung.k:
            step = steps.get(rung.step)
            source = step.kernel_source()
            about = f"{rung.name}, {rung.source}"
            found.append(TimedRun(step.name, source, step.entry, rung.m, rung.milliseconds, False, rung.device, about))
    return found


def tried(case: TimedRun) -> Tried:
    """The prediction for one case. Raises CourseError where there is none."""
    from helpers.run import gemm, kernel

    if case.group == LAUNCHED:
        run = recorded_launches.counted(case.name, case.size)
    else:
        made = kernel.compile(case.source, entry=case.entry, arch=case.arch)
        run = gemm.count(made, gemm.problem_for(made, case.size, case.size, case.size))
    got = run.predict(case.device)
    return Tried(case, got.milliseconds, kernel_class(demand(run)), got.from_counters, got.states)


def summary(errors: Sequence[float]) -> dict[str, float]:
    """Of predicted / measured - 1: number, mean and worst of their sizes, and their mean."""
    sizes = [abs(error) for error in errors]
    return {"runs": len(sizes), "mean": sum(sizes) / len(sizes), "worst": max(sizes), "bias": sum(errors) / len(errors)}


def report(runs: Sequence[Tried], moved: Sequence[Tried], others: Sequence[Tried]) -> str:
    """The text of data/validation.toml. runs: on DEVICE. moved: the course's own on another GPU. others: published."""
    groups = {name: [item for item in runs if item.case.group == name] for name in GROUPS}
    groups |= {name: [item for item in moved if item.case.group == name] for name in (OTHER_GPU, TENSOR_OTHER_GPU)}
    groups |= {"published": list(others)}
    sampled = {(steps.get(row["slug"]).name, row["size"]): row["states"] for row in recorded_states.recorded()}
    lines = ["# Written by python -m helpers.course.validate: predicted / measured - 1 of everything timed.", f'device = "{DEVICE}"', ""]
    for name, items in groups.items():
        figures = summary([item.error for item in items]) if items else {"runs": 0}
        lines += [f"[{name}]", *(f"{key} = {value:.4g}" for key, value in figures.items()), ""]
    lines += ["[states]  # of warps, beside those that Nsight Compute sampled"]
    lines += [f"{name} = {value}" for name, value in compared(runs, sampled).items()] + [""]
    for item in runs:
        lines += ["[[runs]]", *_lines(item), f"fitted = {json.dumps(item.case.fitted)}", f"class = {json.dumps(item.like)}"]
        if item.states and item.case.size in FITTED and item.case.group not in ("search", LAUNCHED):
            lines.append(f"states = {_shares(item.states)}")
            if (item.case.name, item.case.size) in sampled:
                lines.append(f"sampled = {_shares(sampled[item.case.name, item.case.size])}")
        lines += [f"from_counters = {json.dumps(item.from_counters)}", ""] if item.from_counters else [""]
    lines.append("# The course's kernels on another GPU, of which only the entry in gpus.toml is known.")
    for item in moved:
        lines += [f"[[{item.case.group}_runs]]", *_lines(item), f"device = {json.dumps(item.case.device)}"]
        lines += [f"from_counters = {json.dumps(item.from_counters)}", ""] if item.from_counters else [""]
    lines.append("# Other people's kernels of the same idea on other GPUs: a sign, not a test.")
    for item in others:
        about = [f"device = {json.dumps(item.case.device)}", f"published = {json.dumps(item.case.published, ensure_ascii=False)}"]
        lines += ["[[elsewhere]]", *_lines(item), *about, ""]
    return "\n".join(lines)


def compared(runs: Sequence[Tried], sampled: Mapping[tuple[str, int], Mapping[str, float]]) -> dict[str, int]:
    """Of how many launches that were sampled, and whose states the model has, the two largest are the model's, or would be if what one more
    sampling could exchange were the other way round, and all shares within ten points."""
    pairs = [(item.states, sampled[key]) for item in runs if item.states and (key := (item.case.name, item.case.size)) in sampled]
    two, tied, near = 0, 0, 0
    for states, seen in pairs:
        largest = [set(sorted(table, key=lambda word: -table[word])[:2]) for table in (states, seen)]
        two += largest[0] == largest[1]
        second = min(seen[word] for word in largest[1])
        tied += all(seen.get(word, 0.0) >= second - 2 * _POINT for word in largest[0])
        near += all(abs(states.get(word, 0.0) - share) <= _TEN_POINTS for word, share in seen.items())
    return {"launches": len(pairs), "two_largest": two, "two_largest_or_tied": tied, "within_ten_points": near}


def _shares(states: Mapping[str, float]) -> str:
    return f"{{ {', '.join(f'{json.dumps(word)} = {share:.4f}' for word, share in states.items() if share >= _SMALL)} }}"


def _lines(item: Tried) -> list[str]:
    figures: dict[str, Any] = {"measured": item.case.measured, "predicted": item.predicted}
    return [
        f"run = {json.dumps(item.case.label, ensure_ascii=False)}",
        *(f"{name} = {value:.6g}" for name, value in figures.items()),
        f"error = {item.error:.4f}",
    ]


def _try(case: TimedRun) -> Tried | str:
    try:
        return tried(case)
    except CourseError as error:
        return f"{case.label} on {case.device}: {error.message.splitlines()[0]}"


def main() -> int:
    """The command. Returns its exit status."""
    known, others = cases() + abroad() + tensor_cores_abroad(), elsewhere()
    with ProcessPoolExecutor() as pool:
        results: list[Tried] = []
        for result in pool.map(_try, [*known, *others]):
            if isinstance(result, str):
                print(result, file=sys.stderr)
            else:
                results.append(result)
                print(f"{result.case.label} on {result.case.device}: {result.error:+.1%} {result.from_counters}")
    here = [item for item in results if item.case.device == DEVICE]
    if not here:
        return 1
    moved = [item for item in results if item.case.group in (OTHER_GPU, TENSOR_OTHER_GPU)]
    published = [item for item in results if item.case.published]
    VALIDATION.write_text(report(here, moved, published), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
