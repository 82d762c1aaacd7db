"""How long a launch should take on a GPU you may not have: a throughput model with a latency term.

Per SM, a kernel needs so many cycles of each unit, and the unit it needs longest decides (a roofline per unit):

- load/store: cycles to look up the cache lines of global requests, one cycle for each shared-memory wavefront, and
  what it takes to accept an instruction. All of them go through the same unit, so they add up;
- arithmetic: FMAs over FP32 lanes; for a kernel with matrix instructions all of the product over the tensor cores' peak
  rate; issue: warp instructions over four schedulers;
- DRAM: the least bytes the product can move, over bandwidth. Traffic between L1 and L2 is not modelled.

The other bound is latency: one warp's chain of dependent instructions (`chain.py`), once per wave of resident blocks.
The SM with the most blocks finishes last (wave quantisation), and a launch has a fixed cost. The two bounds are joined
by a smooth maximum. Counts come from executing the kernel, sizes from gpus.toml, occupancy from occupancy.py. The few
constants that no document states are fitted on recorded runs; data/model.toml keeps them, says which runs were used,
and how wrong the model was on the runs that were not. Those were float32 kernels on FP32 lanes; a prediction of any other
kernel says so.
"""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from helpers.element_types import element_type
from helpers.errors import CourseError
from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.sites import CostRule
from helpers.sim.counting import names, rules

from . import chain, hardware
from .hardware import GPU
from .occupancy import occupancy

CONSTANTS = Path(__file__).parent.parent / "data" / "model.toml"

_SCHEDULERS = 4
_LINE = 128  # bytes
_TAGS_PER_CYCLE = 4  # of the L1 cache


@dataclass(frozen=True)
class Constants:
    """What no document states, fitted on recorded runs.

    request_cycles: load/store cycles per warp instruction, beyond those of its lines or wavefronts, where the unit
    accepts one request per clock (where it takes longer, that is added: the capability's lsu_cycles - 1).
    global_latency, shared_latency: cycles from issue to use. launch_microseconds: the fixed cost of a launch.
    sharpness: exponent of the smooth maximum of throughput and latency; higher is nearer to a plain maximum, 1 is
    their sum. (Steps 01-03 keep the load/store unit busy and hardly determine the two latencies.)
    """

    request_cycles: float
    global_latency: float
    shared_latency: float
    launch_microseconds: float
    sharpness: float


@dataclass(frozen=True)
class Demand:
    """What one launch asks of a GPU: totals over the launch, and what decides how blocks share an SM."""

    blocks: int
    threads: int
    registers: int
    shared: int
    requests: float  # warp instructions of the load/store unit, global and shared
    lookups: float  # cycles of the load/store unit for the cache lines of global requests
    wavefronts: float  # of shared memory, loads and stores
    ffma_warps: float  # warp-wide FMA instructions
    instructions: float  # warp instructions; 0 if unknown
    rounds: float  # rounds of the main loop per warp
    loop: chain.Loop | None
    least_bytes: float  # DRAM: operands read once, result written once
    dtype: str = "float32"  # of the operands
    matrix_flops: float = 0.0  # operations on tensor cores


@dataclass(frozen=True)
class Prediction:
    """A predicted time. Always show it as predicted, with `error`.

    milliseconds: the prediction. limiter: what binds, as words. terms: cycles that each unit alone would take on the
    busiest SM, and "latency". error: how wrong the model was on recorded runs it had not seen, as a sentence.
    waves: how often the grid fills the GPU. tflops: None if the run is not a known GEMM.
    """

    gpu: str
    milliseconds: float
    limiter: str
    terms: Mapping[str, float]
    error: str
    waves: float
    occupancy: float
    tflops: float | None = None

    @property
    def statement(self) -> str:
        return self.error

    def __str__(self) -> str:
        speed = f", {self.tflops:.3g} TFLOPS" if self.tflops else ""
        return f"predicted for {self.gpu}: {self.milliseconds:.4g} ms{speed}, limited by {self.limiter}. {self.error}"


# ----------------------------------------------------------------------------------------------- what a launch asks


def demand(run) -> Demand:
    """The demand of a Run, from its counters, its compiled kernel and, if it is a GEMM of the course, its sizes."""
    counters, compiled = run.counters, run.kernel.compiled
    blocks, threads = math.prod(run.grid), math.prod(run.block)
    loop = chain.main_loop(compiled)
    problem = run.problem.get("problem")
    requests = _loads_and_stores(counters, lambda op: names.requests("global", op))
    return Demand(
        blocks=blocks,
        threads=threads,
        registers=compiled.registers,
        shared=compiled.shared_bytes + run.shared,
        requests=requests + _loads_and_stores(counters, lambda op: names.executed(f"shared_{op}")),
        lookups=_lookups(run),
        wavefronts=_loads_and_stores(counters, names.shared_wavefronts),
        ffma_warps=counters.get(names.threads("ffma"), 0) / WARP,
        instructions=counters.get(names.INSTRUCTIONS, 0),
        rounds=_rounds(loop, counters, blocks * math.ceil(threads / WARP)),
        loop=loop,
        least_bytes=problem.compulsory_bytes if problem is not None else 0.0,
        dtype=problem.dtype if problem is not None else "float32",
        matrix_flops=_matrix_flops(compiled, problem),
    )


def _matrix_flops(compiled, problem) -> float:
    """Operations on tensor cores: all of the product's if the kernel has matrix instructions. Raises CourseError without a product."""
    if not compiled.matrix_types:
        return 0.0
    if problem is None:
        raise CourseError("The model does not know how much this kernel asks of the tensor cores: it is no matrix product of the course.")
    return problem.flops


def _loads_and_stores(counters: Mapping[str, int], name: Callable[[str], str]) -> int:
    """Both of what `name` names for one of them."""
    return sum(counters.get(name(op), 0) for op in ("ld", "st"))


def _lookups(run) -> float:
    """Cycles of the load/store unit for the cache lines of all global requests.

    A request of at most its ideal number of sectors (32 bytes) fills the lines (128 bytes) it touches, four sectors
    each, and moves a line per cycle. A scattered one needs its lines looked up, see `lookup_cycles`.
    """
    total = 0.0
    scattered = None
    for line, counters in run.by_line.items():
        for op in ("ld", "st"):
            requests = counters.get(names.requests("global", op), 0)
            if not requests:
                continue
            each = counters.get(names.sectors("global", op), 0) / requests
            ideal = counters.get(names.ideal_sectors("global", op), 0) / requests
            if each <= max(ideal, 4):
                total += requests * max(1.0, each / 4)
            else:
                scattered = _scattered(run) if scattered is None else scattered
                total += requests * max(scattered.get((line, op), each), each / 4)
    return total


def lookup_cycles(addresses: np.ndarray, width: int) -> np.ndarray:
    """Cycles of the load/store unit for warp accesses that hit L1: [n, 32] byte addresses (-1: idle lane) -> [n].

    Two things take turns: the tags of distinct lines, four per cycle; and the data, which lie in the same 32 banks of
    four bytes as shared memory, so that words of one bank take a cycle each. Rows whose length is a multiple of 128
    bytes put a whole column into one bank. (Found on an H200: step 01 takes 33 cycles per round at 4096 columns and 10
    at 4095.)
    """
    active = addresses >= 0
    lines = np.sort(np.where(active, addresses // _LINE, -1), axis=1)
    fresh = (lines >= 0) & np.concatenate([np.ones((len(lines), 1), bool), lines[:, 1:] != lines[:, :-1]], axis=1)
    wavefronts = rules.cost(CostRule.SHARED_LOAD, np.where(active, addresses, 0), active, width).wavefronts
    return np.maximum(wavefronts, fresh.sum(axis=1) / _TAGS_PER_CYCLE)


def _scattered(run) -> dict[tuple[int, str], float]:
    """(source line, op) -> mean look-up cycles of its global accesses, from tracing a few warps of one block again.

    Empty if the run is no GEMM of the course: its arguments may then not be made up.
    """
    trace = run.first_tiles()
    found: dict[tuple[int, str], list] = {}
    for index, site in enumerate(trace.sites if trace else ()):
        rows = trace.addresses[trace.accesses["site"] == index]
        if len(rows) and site.width:
            found.setdefault((site.line, site.op), []).append(lookup_cycles(rows, site.width))
    return {key: float(np.concatenate(parts).mean()) for key, parts in found.items()}


def _rounds(loop: chain.Loop | None, counters: Mapping[str, int], warps: int) -> float:
    """Rounds of the main loop per warp: the loads a warp executed, over those in one round."""
    if loop is None:
        return 0.0
    executed = counters.get(names.requests("global", "ld"), 0) + counters.get(names.executed("shared_ld"), 0)
    return executed / warps / (loop.global_loads + loop.shared_loads)


# ------------------------------------------------------------------------------------------------------- the model


def cycles(need: Demand, gpu: GPU, constants: Constants) -> tuple[float, dict[str, float], float, float]:
    """(cycles of the launch without its fixed cost, cycles per term, waves, occupancy) on the busiest SM."""
    fit = occupancy(gpu, need.threads, need.registers, need.shared)
    if fit.blocks_per_sm == 0:
        raise CourseError(f"This launch does not run on {gpu.name}: {fit.reason}.")
    share = math.ceil(need.blocks / gpu.sms) / need.blocks  # of the whole launch, on the busiest SM
    capability = gpu.capability
    per_clock = gpu.clock_mhz * 1e6
    terms = {
        "the load/store unit": share
        * (need.lookups + need.wavefronts + need.requests * (capability.lsu_cycles - 1 + constants.request_cycles)),
        "FP32 arithmetic": share * need.ffma_warps * WARP / capability.fp32_lanes,
        "instruction issue": share * need.instructions / _SCHEDULERS,
        "DRAM bandwidth": need.least_bytes / (gpu.dram_gbs * 1e9) * per_clock,
    }
    if need.matrix_flops:
        unit = gpu.unit(need.dtype)
        if unit is None:
            raise CourseError(f"The tensor cores of {gpu.name} do not multiply {element_type(need.dtype).label}.")
        terms["the tensor cores"] = share * gpu.sms * need.matrix_flops / (unit.tflops * 1e12) * per_clock
    waves = fit.waves(need.blocks, gpu.sms)
    if need.loop is not None:
        chained = need.rounds * need.loop.cycles(constants.global_latency, constants.shared_latency)
        turns = math.ceil(math.ceil(need.blocks / gpu.sms) / fit.blocks_per_sm)
        terms["latency"] = turns * chained
    throughput = max(value for name, value in terms.items() if name != "latency")
    latency = terms.get("latency", 0.0)
    power = constants.sharpness
    total = max(throughput, latency) * (1 + (min(throughput, latency) / max(throughput, latency, 1e-9)) ** power) ** (1 / power)
    return total, terms, waves, fit.fraction


def milliseconds(need: Demand, gpu: GPU, constants: Constants) -> float:
    """The predicted time of a launch."""
    return cycles(need, gpu, constants)[0] / (gpu.clock_mhz * 1e3) + constants.launch_microseconds / 1e3


def _unknown(need: Demand) -> str:
    """What the statement of the error leaves out for this launch, as a sentence to add."""
    if need.matrix_flops:
        return " All those kernels computed on FP32 lanes: on tensor cores its error is unknown, and a real time will rather be longer."
    if need.dtype != "float32":
        return f" All those kernels were float32: for {element_type(need.dtype).label} its error is unknown."
    return ""


def predict(run, gpu: str = "H200 SXM") -> Prediction:
    """Predict the time of `run` on a GPU of gpus.toml.

    The run's counters must be there (on a GPU run they are simulated first). Raises CourseError for an unknown GPU, a
    block that does not fit on it, or if no constants have been fitted.
    """
    device = hardware.gpu(gpu)
    constants, error = fitted()
    need = demand(run)
    total, terms, waves, fraction = cycles(need, device, constants)
    fixed = constants.launch_microseconds * device.clock_mhz
    time = milliseconds(need, device, constants)
    limiter = "the cost of a launch" if fixed > total else max(terms, key=lambda name: terms[name])
    problem = run.problem.get("problem")
    if limiter == "the load/store unit" and need.wavefronts > need.lookups + need.requests:
        limiter = "shared memory (wavefronts, which the load/store unit serves one after the other)"
    if limiter == "latency":
        limiter = f"latency ({fraction:.0%} occupancy, {waves:.2g} waves)"
    return Prediction(
        gpu=device.name,
        milliseconds=time,
        limiter=limiter,
        terms=terms,
        error=f"{error}{_unknown(need)}",
        waves=waves,
        occupancy=fraction,
        tflops=problem.flops / time / 1e9 if problem is not None else None,
    )


@functools.cache
def _fitted_file() -> dict:
    try:
        return tomllib.loads(CONSTANTS.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CourseError("The model has no constants yet: record runs and fit it (python -m helpers.course.fit).") from None


def fitted() -> tuple[Constants, str]:
    """The constants in use, and the sentence about their error. Raises CourseError if there are none."""
    table = _fitted_file()
    constants = Constants(**{item.name: float(table["constants"][item.name]) for item in fields(Constants)})
    return constants, table["error"]["statement"]
