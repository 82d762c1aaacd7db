"""How long a launch should take on a GPU you may not have.

Where the way of its warps through the machine code is known, `cycles` lets them run it on one multiprocessor, cycle by cycle. What
follows here is for the rest (branches on data), and for what limits a launch: a throughput model with a latency term.

Per SM, a kernel needs so many cycles of each unit, and the unit it needs longest decides (a roofline per unit):

- load/store: cycles to look up the cache lines of global requests, one cycle for each shared-memory wavefront, and
  what it takes to accept an instruction. All of them go through the same unit, so they add up;
- arithmetic: FP32 and FP64 instructions over their lanes, and never less than the product itself takes there; for a kernel
  with matrix instructions all of the product over the tensor cores' peak rate for the types it multiplies; issue: warp
  instructions over four schedulers;
- DRAM: the least bytes the product can move, over bandwidth; for a launch that is no product, the sectors its threads touch,
  as far as its arrays go. Traffic between L1 and L2 is not modelled.

So no prediction is beyond what the units could do at their peak.

The other bound is latency: one warp's chain of dependent instructions (`chain.py`), once per wave of resident blocks.
The SM with the most blocks finishes last (wave quantisation), and a launch has a fixed cost. The two bounds are joined
by a smooth maximum. Counts come from executing the kernel, sizes from gpus.toml, occupancy from occupancy.py. The few
constants that no document states are fitted on recorded runs; data/model.toml keeps them, says which runs were used,
and how wrong the model was on the runs that were not, by class of kernel (`kernel_class`). Those were float32 products on FP32
lanes; a prediction of anything else says so.
"""

from __future__ import annotations

import functools
import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import numpy as np

from helpers.element_types import element_type
from helpers.errors import CourseError
from helpers.sim.code.hardware_units import WARP
from helpers.sim.code.sass_opcodes import ON_XU
from helpers.sim.counting import names
from helpers.sim.counting.machine_code import lookup_cycles

from . import chain, hardware, mixes, tensor_cores
from .cycles.chip import chip, figures
from .cycles.estimate import Estimate, estimate
from .cycles.multiprocessor import WORDS, WarpState
from .delays import delays
from .device_memory import device_memory
from .hardware import GPU, digits
from .lacking import lacking
from .occupancy import occupancy

CONSTANTS = Path(__file__).parent.parent / "data" / "model.toml"
VALIDATION = CONSTANTS.with_name("validation.toml")

_SCHEDULERS = 4
_ALL = ("ld", "st", "atom", "red")
LOAD_STORE = "the load/store unit"
SPECIAL = "the special function unit (XU)"
_XU_LANES = 16  # of a multiprocessor, results per cycle: each scheduler's quarter takes eight cycles for a warp
_ATOMICS, _PARTS = "atomic operations in L2", "L2 (sectors that are written in part)"
_LOCAL = "L2 (stores to local memory, which all go through to it)"
# What nothing exceeds.
_PEAKS = ("FP32 arithmetic", "FP64 arithmetic", tensor_cores.TENSOR_UNIT, "DRAM bandwidth", _ATOMICS, _PARTS, _LOCAL)
_OF_THE_GPU = ("DRAM bandwidth", _ATOMICS, _PARTS, _LOCAL)  # shared by all multiprocessors; all else each has for itself
_KEPT_BUSY = 0.75  # share of the time from which a unit is what limits a launch
_UNIT, _COUNTED_UNIT = "unit", "of the units whose work was counted"  # without machine instructions, that of others is not known
_FEW = 8  # FMAs per load from shared memory that a tile in registers exceeds


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
    """What one launch asks of a GPU: totals over the launch, and what decides how blocks share an SM.

    blocks: of a persistent kernel its tiles, which its blocks walk: an SM has a share of these, whatever the grid.
    """

    blocks: int
    threads: int
    registers: int
    shared: int
    requests: float  # warp instructions of the load/store unit, global and shared
    lookups: float  # cycles of the load/store unit for the cache lines of global requests
    wavefronts: float  # of shared memory, loads and stores
    fp32_warps: float  # warp-wide FMA, add and multiply instructions of float32
    instructions: float  # warp instructions; 0 if unknown
    rounds: float  # rounds of the main loop per warp
    loop: chain.Loop | None
    least_bytes: float  # DRAM: operands read once, result written once
    dtype: str = "float32"  # of the operands
    product: float = 0.0  # operations of the matrix product that it is, or of its matrix instructions; 0 if it is none and has none
    in_signature: bool = True  # is it launched as a matrix product of the course?
    matrix_types: frozenset[str] = frozenset()  # element types that its tensor-core instructions multiply, as PTX names them
    fp64_warps: float = 0.0  # warp-wide FMA, add and multiply instructions of float64
    special_warps: float = 0.0  # warp-wide special functions and conversions (MUFU, F2I, …)
    fp64_conversions: float = 0.0  # the same of float64 to float32, or back
    shared_loads: float = 0.0  # warp instructions
    shared_atomics: float = 0.0
    shared_requests: float = 0.0  # of `requests`, those of shared memory
    atomics: float = 0.0  # cycles of L2
    parts: float = 0.0  # sectors that are written in part
    local_requests: float = 0.0  # warp instructions: spilled registers, and arrays whose index is known late
    local_stored: float = 0.0  # sectors, which all go through to L2
    on_tiles: float = 0.0  # operations of warpgroups' products, of whole tiles of C, what lies outside of it too; 0 without warpgroups
    slices: int = 1  # blocks that share a tile, where a persistent kernel's do
    cluster: int = 1  # blocks that form one
    mix: Mapping[str, float] = field(default_factory=dict)  # shares of kinds of instructions, see `mixes`; empty where they are not known


@dataclass(frozen=True)
class Prediction:
    """A predicted time. Always show it as predicted, with `error`.

    milliseconds: the prediction. limiter: what binds, as words. terms: cycles that each unit alone would take on the
    busiest SM, and "latency". error: how wrong the model was on recorded kernels like this one, as a sentence.
    waves: how often the grid fills the GPU. tflops: None if the run is not a known GEMM.
    states: why warps wait: the share of their cycles in each of Nsight Compute's warp states, largest first; by_line: cycles of one
    multiprocessor's warps, by line of the cell and state; both are empty where that is not known. from_counters: why the time is not by
    cycles but from counters alone, "" if it is. clock_mhz: the clock at which it runs; tensor cores at work lower it. lacking: a sentence
    where the launch multiplies plainly less than its product needs.
    """

    gpu: str
    milliseconds: float
    limiter: str
    terms: Mapping[str, float]
    error: str
    waves: float
    occupancy: float
    tflops: float | None = None
    states: Mapping[str, float] = field(default_factory=dict)
    by_line: Mapping[int, Mapping[str, float]] = field(default_factory=dict, repr=False)
    from_counters: str = ""
    clock_mhz: float = 0.0
    lacking: str = ""

    @property
    def lowered(self) -> str:
        """What to say behind the limiter where the launch runs at a lower clock than the GPU's; '' elsewhere."""
        clock = hardware.gpu(self.gpu).clock_mhz
        return f", at {self.clock_mhz:.0f} of {clock:.0f} MHz: this load lowers the clock" if 0 < self.clock_mhz < clock else ""

    @property
    def waits(self) -> str:
        """The states in which warps wait most, as a sentence; '' where they are not known."""
        most = _most_waited(self.states)
        return f"Its warps wait most in the states {' and '.join(f'{name} ({self.states[name]:.0%})' for name in most)}." if most else ""

    @property
    def statement(self) -> str:
        return self.error

    def __str__(self) -> str:
        speed = f", {digits(self.tflops)} TFLOPS" if self.tflops else ""
        return f"predicted for {self.gpu}: {self.milliseconds:.4g} ms{speed}, limited by {self.limiter}{self.lowered}. {self.error}" + (
            f" {self.lacking}" if self.lacking else ""
        )


# ----------------------------------------------------------------------------------------------- what a launch asks


def demand(run) -> Demand:
    """The demand of a Run, from its counters, its compiled kernel and, if it is a GEMM of the course, its sizes."""
    counters, compiled = run.counters, run.kernel.compiled
    blocks, threads = run.problem.get("tiles") or math.prod(run.grid), math.prod(run.block)
    loop = chain.main_loop(compiled)
    problem = run.problem.get("problem")
    requests = _summed(counters, lambda op: names.requests("global", op), _ALL)
    shared_requests = _summed(counters, lambda op: names.executed(f"shared_{op}"))
    memory = device_memory(run)
    return Demand(
        blocks=blocks,
        threads=threads,
        registers=compiled.registers,
        shared=compiled.shared_bytes + run.shared,
        requests=requests + shared_requests,
        lookups=_lookups(run),
        wavefronts=_summed(counters, names.shared_wavefronts),
        fp32_warps=fp32_warps(counters),
        instructions=counters.get(names.INSTRUCTIONS, 0),
        rounds=_rounds(loop, counters, blocks * math.ceil(threads / WARP)),
        loop=loop,
        least_bytes=problem.compulsory_bytes if problem is not None else memory.read + memory.written,
        dtype=problem.dtype if problem is not None else "float32",
        product=_operations(run, problem),
        in_signature=problem is not None,
        matrix_types=compiled.matrix_types,
        fp64_warps=sum(counters.get(names.threads(op), 0) for op in ("dfma", "dadd", "dmul")) / WARP,
        special_warps=sum(counters.get(names.opcode(name), 0) for name in ON_XU),
        fp64_conversions=counters.get(names.opcode("F2F"), 0) if _WIDE.search(compiled.ptx) else 0,
        shared_loads=counters.get(names.executed("shared_ld"), 0),
        shared_atomics=counters.get(names.executed("shared_atom"), 0),
        shared_requests=shared_requests,
        atomics=memory.atomics,
        parts=memory.parts,
        local_requests=local_requests(counters),
        local_stored=counters.get(names.sectors("local", "st"), 0),
        on_tiles=tensor_cores.on_tiles(run),
        slices=(*compiled.constants.get("persistent", ()), 1, 1)[1],
        cluster=math.prod(run.cluster),
        mix=mixes.counted(counters),
    )


def _as_walked(need: Demand, executed: Mapping[str, float]) -> Demand:
    """The demand of a run whose machine instructions were not counted, with those that a block's warps execute on their usual way."""
    fp32, fp64, special = (sum(executed.get(name, 0.0) for name in opcodes) for opcodes in _OF_UNITS)
    return replace(
        need, instructions=sum(executed.values()), fp32_warps=fp32, fp64_warps=fp64, special_warps=special, mix=mixes.of_opcodes(executed)
    )


_OF_UNITS = (("FFMA", "FADD", "FMUL"), ("DFMA", "DADD", "DMUL"), ON_XU)


def _operations(run, problem) -> float:
    """Those of the product that it is; of another kernel, those of its matrix instructions. Raises CourseError where they are not known."""
    compiled, counters = run.kernel.compiled, run.counters
    found = tensor_cores.multiplied(compiled, counters) if compiled.matrix_types else 0.0
    if problem is not None:
        if compiled.matrix_types - {"tf32", "f64"} and problem.dtype == "float32":
            if found:
                return found
            raise CourseError(
                "The model does not know how much this kernel asks of the tensor cores: it makes one FP32 product of several, of pieces in "
                f"{' and '.join(tensor_cores.labels(compiled.matrix_types))}, and the passes that make the pieces are not counted."
            )
        return problem.flops
    if compiled.matrix_types and not found:
        raise CourseError(
            "The model does not know how much this kernel asks of the tensor cores: "
            f"{tensor_cores.why_unknown(compiled, run.outcome.uncounted)}"
        )
    return found


def _summed(counters: Mapping[str, int], name: Callable[[str], str], ops: Sequence[str] = ("ld", "st", "atom")) -> int:
    """What `name` names for each of them, in all."""
    return sum(counters.get(name(op), 0) for op in ops)


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
    places = _places(need, gpu, fit.blocks_per_sm)
    share = _quantised(need.blocks, places) / places  # of the whole launch, on the busiest SM
    capability = gpu.capability
    per_clock = gpu.clock_mhz * 1e6
    terms = {
        LOAD_STORE: share * sum(_load_store(need, gpu, constants)),
        "FP32 arithmetic": share * need.fp32_warps * WARP / capability.fp32_lanes,
        "FP64 arithmetic": share * need.fp64_warps * WARP / capability.fp64_lanes,
        "instruction issue": share * need.instructions / _SCHEDULERS,
        "DRAM bandwidth": need.least_bytes / (gpu.dram_gbs * 1e9 * figures()["device"]["rate"]) * per_clock,
    }
    stored = share * need.local_stored * chip(gpu).spilled_sector(need.blocks / places)
    others = (
        (SPECIAL, share * need.special_warps * WARP / _XU_LANES),
        (_ATOMICS, need.atomics),
        (_PARTS, need.parts * figures()["l2"]["part"]),
        (_LOCAL, stored),
    )
    terms |= {name: value for name, value in others if value}
    if need.matrix_types:
        peak = tensor_cores.peak_tflops(gpu, need.matrix_types) * 1e12
        parts = need.blocks * need.slices  # of the launch, each as long as the others
        busiest = math.ceil(parts / places) / parts
        terms[tensor_cores.TENSOR_UNIT] = busiest * gpu.sms * max(need.product, need.on_tiles) / peak * per_clock
    else:  # pairs of 16-bit numbers are multiplied two at a time
        at_once = capability.fp32_lanes * (2 if element_type(need.dtype).bytes == 2 else 1)
        terms["FP32 arithmetic"] = max(terms["FP32 arithmetic"], share * need.product / 2 / at_once)
    waves = fit.waves(need.blocks, places)
    if need.loop is not None:
        chained = need.rounds * need.loop.cycles(constants.global_latency, constants.shared_latency)
        turns = math.ceil(math.ceil(need.blocks / places) / fit.blocks_per_sm)
        terms["latency"] = turns * chained
    throughput = max(value for name, value in terms.items() if name != "latency")
    latency = terms.get("latency", 0.0)
    return together(throughput, latency, constants.sharpness), terms, waves, fit.fraction


def together(one: float, other: float, sharpness: float) -> float:
    """How long two things take that hinder each other the more, the more alike they are."""
    longer, shorter = max(one, other), min(one, other)
    return longer * (1 + (shorter / max(longer, 1e-9)) ** sharpness) ** (1 / sharpness)


def _load_store(need: Demand, gpu: GPU, constants: Constants) -> tuple[float, float]:
    """Cycles that shared and global memory take of the load/store unit, all together."""
    each = gpu.capability.lsu_cycles - 1 + constants.request_cycles
    return need.wavefronts + need.shared_requests * each, need.lookups + (need.requests - need.shared_requests) * each


def _named(limiter: str, terms: Mapping[str, float], total: float, of_load_store: tuple[float, float]) -> str:
    """A unit with the share of the time that it is busy; the load/store unit with what it is busy with."""
    said = f"{limiter}, busy for {min(1.0, terms[limiter] / total):.0%} of the time"
    if limiter != LOAD_STORE or not any(of_load_store):
        return said
    shared, lines = (min(1.0, terms[limiter] / total) * part / sum(of_load_store) for part in of_load_store)
    if not shared:
        return f"{said} with cache lines of global memory"
    return f"{said}: {shared:.0%} with wavefronts of shared memory, {lines:.0%} with cache lines of global"


def _places(need: Demand, gpu: GPU, resident: int) -> float:
    """Multiprocessors, of which clusters leave a part free. resident: blocks that share one."""
    return need.cluster * gpu.clusters_of(need.cluster, resident) / resident if need.cluster > 1 else gpu.sms


def _working(need: Demand, gpu: GPU) -> int:
    """Multiprocessors that have a block at first, where others have nothing to do; 0 elsewhere."""
    having = min(need.blocks * need.slices, _having_room(need, gpu))
    return having if having < gpu.sms else 0


def _having_room(need: Demand, gpu: GPU) -> int:
    """Multiprocessors that may have a block at first."""
    resident = occupancy(gpu, need.threads, need.registers, need.shared).blocks_per_sm
    return round(_places(need, gpu, resident)) if resident == 1 else gpu.sms


def _room(need: Demand, gpu: GPU) -> str:
    """What to say behind a number of multiprocessors that are as many as clusters have room on; '' where there are fewer blocks."""
    if need.cluster == 1 or need.blocks * need.slices < _having_room(need, gpu):
        return ""
    return f", since clusters of {need.cluster} fit on no more"


def _where_work_is(need: Demand, gpu: GPU) -> str:
    """What to say behind a limiter that is a multiprocessor's where some of them alone have something to do."""
    working = _working(need, gpu)
    which = "one" if working == 1 else str(working)
    return f" (on the {which} of {gpu.sms} multiprocessors that ha{'s' if working == 1 else 've'} work{_room(need, gpu)})"


_BY_DATA = (
    "None of the recorded kernels is like this one (none of them loads from where other data say; the model takes such loads to come from "
    "L2, each of a warp by itself), so the error is unknown."
)
_UNEQUAL = (
    "None of the recorded kernels is like this one (some of its blocks do more than others; the model takes those to be spread evenly over "
    "the multiprocessors), so the error is unknown."
)


def _like_none(walked: Estimate | None) -> str:
    """What to say of a time by cycles, where the model knows what no recorded kernel does; '' elsewhere."""
    return "" if walked is None else _BY_DATA if walked.by_data else _UNEQUAL if walked.unequal else ""


_USUAL = "Divisions and roots are taken to meet ordinary numbers."  # others have a way of their own, which is a branch on data
TENSOR_CORES = "tensor cores"
TENSOR_OTHERS = "tensor cores, in a signature of its own"
STREAMS = "moves data, in a signature of its own"
OTHERS = "computes, in a signature of its own"
SPILLS = "much in local memory"
TILES = "tiles in shared memory"
# What these classes are in a sentence on kernels; the names of the others are said as they are.
_IN_A_SENTENCE = {
    TENSOR_OTHERS: "they use tensor cores, and have signatures of their own",
    STREAMS: "they move data, and have signatures of their own",
    OTHERS: "they compute, and have signatures of their own",
    SPILLS: "they keep much in local memory",
}
# Float64 instructions, conversions of it or atomic operations, for each FP32 instruction of a warp, from which a product is like none on
# record. A loop's bound or a scalar that is worked out in double stays far below.
_SOME = 0.01
_WIDE = re.compile(r"\bcvt(?:\.r\w)?\.(?:f32\.f64|f64\.f32)\b")
_SPILLED = 0.02  # local loads and stores for each FP32 instruction of a warp, from which they count
_STREAMED = 8  # instructions of threads for each byte of DRAM, up to which a launch moves data


def kernel_class(need: Demand) -> str:
    """What a kernel is like, as far as the model's error depends on it; "" for what no recorded kernel is like."""
    like = _class_by_unit(need)
    return "" if mixes.unlike(like, need.mix) else like


def _class_by_unit(need: Demand) -> str:
    """The same by where it computes and what feeds that, whatever else it executes."""
    if need.matrix_types:
        return TENSOR_CORES if need.in_signature else TENSOR_OTHERS
    if need.dtype != "float32" or _some_float64(need):
        return ""
    if not need.in_signature:
        return STREAMS if need.instructions * WARP < _STREAMED * need.least_bytes else OTHERS
    if need.fp64_conversions > _SOME * need.fp32_warps or need.shared_atomics > _SOME * need.fp32_warps:
        return ""
    return class_of_float32(need.shared_loads, need.fp32_warps, need.local_requests)


def _some_float64(need: Demand) -> bool:
    """Is some of what it computes float64? Where it is no product, of all its instructions: it need not compute on floats at all."""
    return need.fp64_warps > _SOME * (need.fp32_warps if need.in_signature else max(need.fp32_warps, need.instructions))


def class_of_float32(shared_loads: float, fp32_warps: float, local_requests: float) -> str:
    """The same of a product on FP32 lanes, from its warp instructions."""
    if local_requests > _SPILLED * fp32_warps:
        return SPILLS
    if not shared_loads:
        return "global memory alone"
    return "tiles in registers" if fp32_warps > _FEW * shared_loads else TILES


def fp32_warps(counters: Mapping[str, int]) -> float:
    """Warp-wide FMA, add and multiply instructions of float32."""
    return sum(counters.get(names.threads(op), 0) for op in ("ffma", "fadd", "fmul")) / WARP


def local_requests(counters: Mapping[str, int]) -> float:
    """Warp-wide loads and stores of local memory."""
    return _summed(counters, lambda op: names.requests("local", op), ("ld", "st"))


def milliseconds(need: Demand, gpu: GPU, constants: Constants) -> float:
    """The predicted time of a launch."""
    return cycles(need, gpu, constants)[0] / (gpu.clock_mhz * 1e3) + constants.launch_microseconds / 1e3


_NO_FLOAT64 = "they compute on float32, and this one on float64"


def in_a_sentence(like: str) -> str:
    """What kernels of a class have in common, as it stands in brackets behind “kernels like this one”."""
    return _IN_A_SENTENCE.get(like, like)


def _unlike(need: Demand) -> str:
    """Why the errors on recorded kernels say nothing of this one, as the end of a sentence."""
    like = _class_by_unit(need)
    if like and (more := mixes.unlike(like, need.mix)):
        return more
    if not need.in_signature:  # of float64 there is none in any signature
        return _NO_FLOAT64 if not like else "they were launched as products, in the course's signature"
    if need.matrix_types:
        return "they computed on FP32 lanes and this one does on tensor cores; a real time will rather be longer"
    if kernel_class(need) == SPILLS:
        return "they keep little in local memory"
    if need.dtype == "float32" and not _some_float64(need):
        converts = need.fp64_conversions > _SOME * need.fp32_warps
        return "they convert no float64" if converts else "they add up without atomic operations on shared memory"
    if need.dtype == "float32" and need.fp64_warps < need.fp32_warps / 2:
        share = need.fp64_warps / (need.fp64_warps + need.fp32_warps)
        return f"without tensor cores they were float32, and {share:.0%} of this one's arithmetic on floating-point numbers is float64"
    return f"without tensor cores they were float32 and this is {element_type(need.dtype).label if need.dtype != 'float32' else 'float64'}"


def statement(need: Demand, gpu: GPU, from_counters: str = "") -> str:
    """How wrong the model was on kernels like this one that it had not seen, as a sentence. from_counters: why the model of cycles,
    which is better, has nothing to say; "" if it has."""
    like = kernel_class(need)
    rows = [row for row in validation()["runs"] if row["class"] == like and not row["fitted"]]
    begin = f"From the counters alone, since {from_counters}. " if from_counters else ""
    if not like or (like not in _fitted_file()["error"]["classes"] if from_counters else not rows):
        which = "kernels on which that was tried" if from_counters else "recorded kernels"
        return f"{begin}None of the {which} is like this one ({_unlike(need)}), so the error is unknown."
    if from_counters:
        error = _fitted_file()["error"]
        off = {name: error["kernels"][name] for name in error["classes"][like]}
        tried = f"On the {len(off)} recorded kernels like this one ({in_a_sentence(like)}), each of which it was not fitted on"
        device, every = error["device"], [abs(value) for values in off.values() for value in values]
    else:
        kernels = len({row["run"].rpartition(" at ")[0] for row in rows})
        tried = f"On {len(rows)} recorded runs of {kernels} kernels like this one ({in_a_sentence(like)}), none of which it was fitted on"
        device, every = validation()["device"], [abs(row["error"]) for row in rows]
    said = f"{tried}, the model was off by {sum(every) / len(every):.0%} on average and {max(every):.0%} at worst, on {device}"
    said = begin + said
    return f"{said}." if gpu.name == device else f"{said}; on {gpu.name} the error is unknown."


def predict(run, gpu: str = "H200 SXM", what_if: Mapping[str, float] | None = None) -> Prediction:
    """Predict the time of `run` on a GPU of gpus.toml. what_if: figures of model/cycles/chip.toml that were other than they are, as
    {"latency.l2": 0}; they change times by cycles, and nothing where these are not known.

    The run's counters must be there (on a GPU run they are simulated first). Raises CourseError for an unknown GPU, a kernel that
    does not compile for it, a block that does not fit on it, a figure that the model has not, or if no constants have been fitted.
    """
    device = hardware.gpu(gpu)
    constants = fitted()
    need = demand(run)
    if not occupancy(device, need.threads, need.registers, need.shared).blocks_per_sm and (why := run.kernel.refused_by(device.arch)):
        raise CourseError(f"{why} The SIMT machine does (on='cpu').")  # perhaps for its instructions, which a smaller tile has as well
    total, terms, waves, fraction = cycles(need, device, constants)
    problem, parts = run.problem.get("problem"), chip(device, what_if)
    walked, why = estimate(run, device, what_if)
    if walked and not need.instructions:
        need = _as_walked(need, walked.executed)
        total, terms, waves, fraction = cycles(need, device, constants)
    if not need.mix:
        need = replace(need, mix=mixes.written(run.kernel.compiled))
    why = names.in_words(why)
    clock, launch = device.clock_mhz, parts["launch.microseconds"] if walked else constants.launch_microseconds
    pipe = need.product / 2 / device.sms / tensor_cores.fmas(device, need.matrix_types) if need.matrix_types else 0.0
    if walked:
        if need.matrix_types:
            terms[tensor_cores.TENSOR_UNIT] = walked.off_peak * pipe * _quantised(need.blocks, device.sms)
        if problem is None and need.least_bytes <= device.l2_bytes:
            terms["DRAM bandwidth"] /= walked.batch  # the first of the launches that are timed together fetches it for all
        hard = max(terms[name] for name in _PEAKS if name in terms)
        waiting = together(walked.cycles, terms["DRAM bandwidth"], parts["device.sharpness"])
        total = max(waiting, hard)  # a kernel that does less than it says is no faster than the hardware
        terms.pop("latency", None)
        if max(terms.values()) < _KEPT_BUSY * total:
            terms["latency"] = total
    if need.matrix_types:
        clock = tensor_cores.clock_mhz(parts, pipe / total, total / clock, need.matrix_types)
    if walked:
        launch += parts["launch.begun"] * min(need.blocks, round(need.blocks / waves)) / device.clock_mhz
    fixed = launch * device.clock_mhz
    copies = run.problem.get("copied", 0) / (device.dram_gbs * 1e6) + run.problem.get("copies", 0) * launch / 1e3  # launched before it
    time = total / (clock * 1e3) + launch / 1e3 + copies
    limiter = "the cost of a launch" if fixed > total else max(terms, key=lambda name: terms[name])
    of_load_store = _load_store(need, device, constants)
    working = _working(need, device)
    told = limiter == "latency" or limiter not in terms or limiter in _OF_THE_GPU  # or it is not of a multiprocessor
    states = _by_share(walked.states) if walked else {}
    if limiter == "latency":
        having = f": {working} of {device.sms} multiprocessors have a block{_room(need, device)}" if working else ""
        filled = f"{waves:.2g}"
        limiter = f"latency ({fraction:.0%} occupancy{' at most' if having else ''}, {filled} wave{'s' * (filled != '1')}{having})"
        if waits := _most_waited(states):
            limiter += f"; warps wait most in the states {' and '.join(waits)}"
        fullest = max((name for name in terms if name != "latency"), key=lambda name: terms[name])
        limiter += f"; the fullest {_UNIT if need.instructions else _COUNTED_UNIT} is {_named(fullest, terms, total, of_load_store)}"
    elif limiter in terms and limiter != tensor_cores.TENSOR_UNIT:
        limiter = _named(limiter, terms, total, of_load_store)
    if working and not told:
        limiter += _where_work_is(need, device)
    return Prediction(
        gpu=device.name,
        milliseconds=time,
        limiter=limiter,
        terms=terms,
        error=" ".join(
            filter(
                None,
                (
                    run.kernel.compiled.estimate,
                    delays(run.kernel.compiled),
                    _USUAL if walked and walked.usual else "",
                    tensor_cores.of_float16_sums(run.kernel.compiled, device),
                    _like_none(walked) or statement(need, device, why),
                ),
            )
        ),
        waves=waves,
        occupancy=fraction,
        tflops=problem.flops / time / 1e9 if problem is not None else None,
        states=states,
        by_line={line: _by_share(row) for line, row in walked.by_line.items()} if walked else {},
        from_counters=why,
        clock_mhz=clock,
        lacking=lacking(run),
    )


def _quantised(blocks: int, sms: float) -> float:
    """How much more than its share the multiprocessor with the most blocks has."""
    return math.ceil(blocks / sms) * sms / blocks


def _most_waited(states: Mapping[str, float]) -> list[str]:
    """The two states that have most of the cycles in which warps do not issue and could not; `states` are largest first."""
    return [name for name in states if name not in (WORDS[WarpState.SELECTED], WORDS[WarpState.NOT_SELECTED])][:2]


def _by_share(states: Mapping[WarpState, float]) -> dict[str, float]:
    """By Nsight Compute's names, largest first, without those that are 0."""
    return {WORDS[state]: float(value) for state, value in sorted(states.items(), key=lambda item: -item[1]) if value}


@functools.cache
def validation() -> dict:
    """How far the model of cycles is off: data/validation.toml. Raises CourseError if it was never written."""
    try:
        return tomllib.loads(VALIDATION.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CourseError("The model has not been validated yet: python -m helpers.course.validate.") from None


def validated(size: int) -> dict[str, dict]:
    """Kernel -> its row of the validation at M = N = K = `size`: "05_thread_tile_2d", or "05_thread_tile_2d with BM 64, BN 64"."""
    end = f" at {size}³"
    return {row["run"].removesuffix(end): row for row in validation()["runs"] if row["run"].endswith(end)}


@functools.cache
def _fitted_file() -> dict:
    try:
        return tomllib.loads(CONSTANTS.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CourseError("The model has no constants yet: record runs and fit it (python -m helpers.course.fit).") from None


def fitted() -> Constants:
    """The constants in use. Raises CourseError if there are none."""
    table = _fitted_file()
    return Constants(**{item.name: float(table["constants"][item.name]) for item in fields(Constants)})
