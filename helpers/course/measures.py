"""What can be asked of a run, as numbers: sectors per request, loads per result, conflicts.

Pure functions of a `Run`, shared by the step table, the exercises and the notebooks, so that a rule such as
"at most 4 sectors per request" is written once. Everything is computed from the run's counters or, where a question
is about one array, from its trace; nothing is looked up.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from helpers.arguments import explained
from helpers.errors import CourseError
from helpers.model import hardware
from helpers.sim.code.hardware_units import SECTOR_BYTES, WARP
from helpers.sim.code.sites import AccessKind, CostRule
from helpers.sim.counting import names, stages

from .overlap import (
    CutShortError,
    copies_at_a_time,
    matrix_instructions_behind_copies,
    multiply_adds_behind_a_tile,
    multiply_adds_behind_copies,
    multiply_adds_of_a_warp,
    shared_loads_at_a_time,
    whole,
)

# All that can be asked of a run can be asked here.
from .overlap import copies_per_pair as copies_per_pair
from .overlap import ends_of_a_tile as ends_of_a_tile
from .overlap import multiply_adds_behind_loads as multiply_adds_behind_loads
from .overlap import pairs_under_way as pairs_under_way

if TYPE_CHECKING:  # the step table imports this module, and must stay quick to import
    from helpers.run.gemm import Geometry, Problem

DEFAULT_GPU = "H200 SXM"  # the device of the recorded runs
_COUNTED_AS = {"ld": (AccessKind.LOAD, AccessKind.COPY), "st": (AccessKind.STORE,)}  # as the counters of global memory do
_OF_MATRICES = {"ld": AccessKind.MATRIX_LOAD, "st": AccessKind.MATRIX_STORE}
_READS = {"ld": (*_COUNTED_AS["ld"], AccessKind.ATOMIC), "st": _COUNTED_AS["st"]}  # an atomic operation loads, too, if its result is used


def shape_of(run) -> Problem:
    """The product that a run with the course's signature computed: its first three arguments are M, N, K.

    Raises CourseError for a run whose first three arguments are not numbers, and for what is no run.
    """
    from helpers.run.gemm import Problem

    _need_run(run)
    if any(np.ndim(value) for value in run.arguments[:3]):
        raise CourseError("This run is of a kernel whose first three arguments are not M, N and K.")
    m, n, k = (int(value) for value in run.arguments[:3])
    return Problem(m, n, k)


class NotRunError(CourseError):
    """What is counted in a run was asked of something else."""


class NoArrayError(CourseError):
    """What is counted was asked of an array that the kernel has not."""


def _need_run(run) -> None:
    """Raise NotRunError for a kernel, or whatever else has not run."""
    if not hasattr(type(run), "counters"):
        raise NotRunError(
            f"This is counted in a run, such as naive.gemm(64), and this is of type {type(run).__name__}: run the kernel first."
        )


@explained
def count(run, name: str) -> int:
    """A counter of the run, 0 if the kernel did nothing of that kind. Raises CourseError where data decide it: the turns of an atomic
    operation that is a loop in the machine code, say."""
    _need_run(run)
    if name in run.outcome.unknown:
        raise _not_counted(run, name)
    return int(run.counters.get(name, 0))


@explained
def sectors_per_request(run, array: str | None = None, op: str = "ld") -> float:
    """32-byte sectors that one warp-wide access of global memory touches, on average. op is "ld" or "st".

    array: only accesses to this kernel parameter ("A", "B", "C"), which needs a traced run; None: all of them.
    Raises CourseError if there was no such access.
    """
    if array is not None:
        return pieces_per_request(run, array, op, SECTOR_BYTES)
    requests, sectors = count(run, names.requests("global", op)), count(run, names.sectors("global", op))
    return _per_request(sectors, requests, op)


def pieces_per_request(run, array: str, op: str = "ld", nbytes: int = SECTOR_BYTES) -> float:
    """Distinct aligned pieces of `nbytes` (32: sectors, 128: lines) that one access to `array` touches, on average. Atomic operations
    whose results are used count as loads.

    Raises CourseError if there was no such access, or if the run's trace is missing or was cut short.
    """
    requests, pieces = _accesses(run, array, op, nbytes)
    return _per_request(pieces, requests, op, array)


def accesses_per_result(run, array: str, op: str = "ld") -> float:
    """Loads of `array` (or stores to it, with op "st") that each thread executes, per element of C it is responsible for (a full warp
    counts 32). 0 if there was none. Raises CourseError if the run's trace is missing or was cut short, or there is no such array.
    """
    shape = shape_of(run)
    return WARP * _accesses(run, array, op, SECTOR_BYTES)[0] / (shape.m * shape.n)


def _accesses(run, array: str, op: str, nbytes: int) -> tuple[int, int]:
    """Requests of one array of global memory in a traced run, and the pieces of `nbytes` that they touch."""
    from helpers.sim.counting import rules, traced

    _need_run(run)
    trace = run.trace
    if trace.truncated:
        raise CutShortError("The trace was cut short, so it cannot answer for one array. Use a smaller matrix.")
    home = _home(run, array)
    low, high = home.base, home.base + home.nbytes
    requests = pieces = 0
    inside = ((trace.addresses >= low) & (trace.addresses < high)).any(axis=1)
    for index, site in enumerate(trace.sites):
        if site.space != "global" or site.op not in _READS[op] or not site.width:
            continue
        rows = np.flatnonzero(inside & (trace.accesses["site"] == index))
        if not len(rows):
            continue
        if nbytes == SECTOR_BYTES:
            cost = traced.cost_of(trace, rows)
        else:  # aligned accesses lie within one piece, so its start stands for it, as if pieces were sectors
            addresses = trace.addresses[rows]
            cost = rules.cost(CostRule.GLOBAL, addresses // nbytes * SECTOR_BYTES, addresses >= 0, site.width)
        requests, pieces = requests + int(np.sum(cost.requests)), pieces + int(np.sum(cost.sectors))
    return requests, pieces


def _home(run, array: str) -> Any:
    """Where an array of global memory lies. A, B and C are those which stand where the course's signature has them, whatever their names.
    Raises NoArrayError if there is none of this name."""
    arrays = {a.name: a for a in run.trace.allocations if a.space == "global"}
    if array in arrays:
        return arrays[array]
    if array in _MATRICES and (own := _in_place_of(run, array)) in arrays:
        return arrays[own]
    raise NoArrayError(f"The kernel has no array {array}; it has {', '.join(arrays) or 'none'}.")


_MATRICES = ("A", "B", "C")


def _in_place_of(run, array: str) -> str:
    """What a kernel calls the matrix that the course's signature calls A, B or C; "" if it has another signature."""
    from helpers.run.own_products import MATRICES

    declared = run.kernel.compiled.parameters
    if len(declared) <= MATRICES[-1] or not all(declared[place].pointer_to for place in MATRICES):
        return ""
    return declared[MATRICES[_MATRICES.index(array)]].name


def _per_request(pieces: int, requests: int, op: str, array: str = "") -> float:
    if not requests:
        what = {"ld": "loads", "st": "stores"}[op]
        raise CourseError(f"The kernel made no global {what}" + (f" of {array}." if array else "."))
    return pieces / requests


@explained
def different_sectors(run, array: str, op: str = "ld") -> int:
    """How many different sectors of `array` a run's loads and copies (op "ld") or stores ("st") touch: what has to come from DRAM, or go
    there, where no cache holds it. Needs a traced run; 0 if there was no such access.
    """
    trace = run.trace.select(space="global")
    try:
        home = _home(run, array)
    except NoArrayError:
        return 0
    chosen = np.isin(trace.accesses["site"], [i for i, site in enumerate(trace.sites) if site.op in _COUNTED_AS[op] and site.width])
    addresses = trace.addresses[chosen]
    inside = (addresses >= home.base) & (addresses < home.base + home.nbytes)
    return len(np.unique(addresses[inside] // SECTOR_BYTES))


@explained
def global_loads_per_result(run) -> float:
    """Global load instructions each thread executes, per element of C it is responsible for (a full warp counts 32).

    Atomic operations whose results are used load as well.
    """
    shape = shape_of(run)
    return WARP * sum(count(run, names.requests("global", op)) for op in ("ld", "atom")) / (shape.m * shape.n)


def shared_loads_per_result(run) -> float:
    """Shared-memory load instructions per element of C (a full warp counts 32; a 128-bit load counts once), atomic operations included,
    and what reaches shared memory by a generic address, or by the cluster's."""
    shape = shape_of(run)
    return WARP * sum(map(functools.partial(_shared_accesses, run), ("ld", "atom"))) / (shape.m * shape.n)


_OPCODES = {"ld": ("LD", "LDG", "LDGSTS"), "st": ("ST", "STG"), "atom": ("ATOM", "ATOMG")}  # by a generic address, and of global memory


def _shared_accesses(run, op: str) -> int:
    """Instructions of one kind that shared memory serves. Nsight Compute's counters leave out generic addresses: those which did not
    reach global memory are added."""
    generic, *of_global = (count(run, names.opcode(name)) for name in _OPCODES[op])
    elsewhere = max(0, count(run, names.requests("global", op)) - sum(of_global))
    return count(run, names.executed(f"shared_{op}")) + max(0, generic - elsewhere)


@explained
def bytes_requested(run) -> int:
    """Bytes in all sectors that the kernel asked the L1 cache for, loads and stores of global memory."""
    return SECTOR_BYTES * sum(count(run, names.sectors("global", op)) for op in ("ld", "st"))


@explained
def multiply_adds(run) -> float:
    """Fused multiply-adds of float32 in whole warps: 32 threads' are one, as for every other instruction here. Raises CourseError where
    how many there are is not known: those of a division, say, of which data decide.
    """
    return count(run, names.threads("ffma")) / WARP


def _executed(run, *opcodes: str) -> int:
    """Machine instructions of these opcodes that warps execute; of none, all that they execute. Raises CourseError where those of the
    machine code were not counted."""
    _need_run(run)
    if run.outcome.uncounted:
        raise _not_counted(run, f"how many {' and '.join(opcodes) or 'of them'} are executed")
    return sum(count(run, names.opcode(opcode)) for opcode in opcodes) if opcodes else count(run, names.INSTRUCTIONS)


def _not_counted(run, what: str) -> CourseError:
    why = names.in_words(run.outcome.uncounted)
    return CourseError(
        f"The machine instructions of this kernel could not be counted{f' ({why})' if why else ''}, and so is not known: {what}."
    )


@explained
def multiply_add_share(run) -> float:
    """The part of all instructions that are multiply-adds; of those of the PTX where there is no machine code. Raises CourseError where
    instructions were not counted."""
    counted = names.PTX_INSTRUCTIONS if run.kernel.compiled.estimate else names.INSTRUCTIONS
    if not (executed := count(run, counted)):
        raise CourseError("The machine instructions of this kernel could not be counted.")
    return multiply_adds(run) / executed


@explained
def shared_wavefronts_per_multiply_add(run) -> float:
    """Wavefronts of shared loads and stores for each multiply-add of a whole warp.

    Raises CourseError for a kernel that does no multiply-add.
    """
    if not (found := multiply_adds(run)):
        raise CourseError("The kernel did no FP32 multiply-add.")
    return sum(count(run, names.shared_wavefronts(op)) for op in ("ld", "st")) / found


@explained
def shared_memory_limit(run, gpu_name: str = DEFAULT_GPU) -> float:
    """TFLOPS of float32 that shared memory can feed on a GPU, at one wavefront per cycle and multiprocessor; at most its peak."""
    gpu = hardware.gpu(gpu_name)
    per_cycle = shared_wavefronts_per_multiply_add(run) * gpu.capability.fp32_lanes / WARP  # at full arithmetic
    return gpu.peak_fp32_tflops / max(1.0, per_cycle)


@explained
def instruction_limit(run, gpu_name: str = DEFAULT_GPU) -> float:
    """TFLOPS of float32 that are left on a GPU whose schedulers issue an instruction per cycle: the share of the multiply-adds."""
    return hardware.gpu(gpu_name).peak_fp32_tflops * multiply_add_share(run)


@explained
def machine_code(kernel, *opcodes: str) -> dict[str, int]:
    """How often each of these opcodes stands in the machine code, told apart by width: {"LDS": 32, "LDS.128": 8}."""
    found: dict[str, int] = {}
    for opcode, modifiers in re.findall(rf"\b({'|'.join(opcodes)})\b((?:\.\w+)*)", kernel.sass):
        name = ".".join([opcode, *(part for part in modifiers.split(".") if part in ("64", "128"))])
        found[name] = found.get(name, 0) + 1
    return _Counted(sorted(found.items()))


class _Counted(dict[str, int]):
    """How many there are of each, which prints itself in words: "32 LDS, 8 LDS.128"."""

    def __repr__(self) -> str:
        return ", ".join(f"{count} {name}" for name, count in self.items()) or "none of these"


def wavefronts_per_shared_load(run) -> float:
    """Wavefronts that one warp-wide load from shared memory takes, on average: 1 at best, for 128-bit loads 2. Atomic operations count.

    Raises CourseError for a kernel that loads nothing from shared memory.
    """
    loads = sum(map(functools.partial(_shared_accesses, run), ("ld", "atom")))
    if not loads:
        raise CourseError("The kernel made no shared loads.")
    return sum(count(run, names.shared_wavefronts(op)) for op in ("ld", "atom")) / loads


def shared_stores_per_result(run) -> float:
    """Shared-memory store instructions per element of C (a full warp counts 32), atomic operations and generic addresses included.
    Asynchronous copies are not stores."""
    shape = shape_of(run)
    return WARP * sum(map(functools.partial(_shared_accesses, run), ("st", "atom"))) / (shape.m * shape.n)


def wavefronts_per_copy(run) -> float:
    """Wavefronts of the asynchronous copies that go through the banks of shared memory (cp.async.ca), for each that they need at the
    least: 1 where no two lanes of a copy of 4 bytes meet in a bank. 0 without such copies, 16-byte ones past the cache left out."""
    of_others = sum(count(run, names.shared_wavefronts(op)) for op in ("ld", "st", "atom"))
    conflicts = sum(count(run, names.shared_conflicts(op)) for op in ("ld", "st", "atom"))
    copies = count(run, names.SHARED_WAVEFRONTS_OF_ALL) - of_others
    needed = count(run, names.SHARED_WAVEFRONTS_OF_ALL_IDEAL) - (of_others - conflicts)
    return copies / needed if needed else 0.0


def shared_stores_before_last_copy(run) -> float:
    """The same of those which a block executes before its last asynchronous copy, in a traced run: of tiles that do not come by copies,
    and not of sums that warps leave to each other at the end. All of them where there are no copies."""
    trace = whole(run.trace)
    copies = trace.select(op=AccessKind.COPY).accesses
    stores = trace.select(space="shared", op={AccessKind.STORE, AccessKind.ATOMIC}).accesses
    last = np.full(math.prod(run.grid), np.iinfo(np.int64).max if not len(copies) else -1)
    np.maximum.at(last, copies["block"], copies["order"])
    shape = shape_of(run)
    return WARP * int(np.count_nonzero(stores["order"] < last[stores["block"]])) / (shape.m * shape.n)


@explained
def barriers_per_warp(run) -> float:
    """Barriers that each warp comes to, named ones as well. An instruction whose guard is false is executed, and no barrier. Without
    machine code, and where its instructions cannot be counted, since a loop that waits at an mbarrier depends on what others do, they are
    those of the trace. Raises CourseError where there is none.
    """
    if run.kernel.compiled.estimate or (names.INSTRUCTIONS not in run.counters and run.outcome.trace is not None):
        return barriers_passed(run)
    if names.INSTRUCTIONS not in run.counters:
        raise _not_counted(run, "how many barriers its warps come to")
    if (came := names.opcode_threads("BAR")) in run.counters:
        return count(run, came) / (math.prod(run.grid) * math.prod(run.block))
    return count(run, names.opcode("BAR")) / _warps(run)


def barriers_passed(run) -> float:
    """The same in a traced run, where a kernel waits at mbarriers and its machine instructions are not counted. Raises CourseError if
    the trace was cut short."""
    return float(np.count_nonzero(whole(run.trace).barriers["kind"] == "sync")) / _warps(run)


def blocks_that_share(run, array: str) -> int:
    """The most blocks of consecutive numbers that begin with the same tile of `array` in a traced run: at the same lowest address."""
    trace = whole(run.trace).select(space="global")
    home = _home(run, array)
    inside = (trace.addresses >= home.base) & (trace.addresses < home.base + home.nbytes)
    lowest = np.where(inside, trace.addresses, home.base + home.nbytes).min(axis=1, initial=home.base + home.nbytes)
    first = np.full(math.prod(run.grid), home.base + home.nbytes)
    np.minimum.at(first, trace.accesses["block"], lowest)
    return max(len(list(alike)) for _, alike in itertools.groupby(first.tolist()))


def threads_down_a_column(run, array: str) -> int:
    """Threads with consecutive numbers, from the first of a warp on, that store one below the other in a column of `array`, in every
    store of the run: 1 where the second stores elsewhere. Raises CourseError where nothing is stored, and as `pieces_per_request`."""
    trace = whole(run.trace).select(space="global", op=AccessKind.STORE)
    home = _home(run, array)
    addresses = trace.addresses[((trace.addresses >= home.base) & (trace.addresses < home.base + home.nbytes)).any(axis=1)]
    if not len(addresses):
        raise CourseError(f"The kernel made no global stores of {array}.")
    row_bytes = home.nbytes // shape_of(run).m
    below = (np.diff(addresses, axis=1) == row_bytes) & (addresses[:, :-1] >= 0)
    return 1 + int(np.minimum.accumulate(below, axis=1).sum(axis=1).min())


def bulk_copies_of_a_block(run) -> int:
    """Bulk copies to shared memory that the busiest block starts. Needs a traced run, and raises CourseError if its trace was cut short."""
    barriers = whole(run.trace).barriers
    starts = barriers["block"][barriers["kind"] == "copy"]
    return int(np.unique(starts, return_counts=True)[1].max(initial=0))


def inits_of_an_mbarrier(run) -> int:
    """How often the mbarrier is initialised that is initialised most often: 1 where who waits counts its phases. 0 without mbarriers. Needs
    a traced run, and raises CourseError if its trace was cut short."""
    made = Counter((move.block, move.number) for move in whole(run.trace).moves if move.kind == "init")
    return max(made.values(), default=0)


def stages_at_a_time(run) -> int:
    """The most stages of the first block that were being filled, full, or being read at one time, in the order of execution: 1 where
    each waits until the one before has been read.

    Raises CourseError for a kernel without bulk copies, or if the trace is missing or was cut short.
    """
    from helpers.views.ring import fills

    return stages.at_a_time(fills(whole(run.trace))[1])


def _warps(run) -> int:
    """Warps of the launch."""
    return math.prod(run.grid) * -(-math.prod(run.block) // WARP)


def spilled(run) -> int:
    """Bytes of registers that a thread stores elsewhere for want of room. Raises CourseError without machine code."""
    kernel = _kernel(run)
    return kernel.compiled.spill_stores if kernel.registers else 0


def barriers_per_fill(run) -> float:
    """Barriers of the whole block from one fill of shared memory to the next: 1 where the next tiles are stored while others read these.

    What is stored or copied between two barriers is one fill. Of a single one, all barriers are counted. Raises CourseError without a
    trace, or if nothing is stored.
    """
    trace = run.trace
    barriers = trace.barriers[(trace.barriers["kind"] == "sync") & (trace.barriers["block"] == trace.barriers["block"].min(initial=0))]
    filling = np.array([site.space == "shared" and site.op in _FILLS for site in trace.sites] or [False])
    stores = trace.accesses[filling[trace.accesses["site"]] & (trace.accesses["block"] == barriers["block"].min(initial=0))]
    fills: set[int] = set()
    for warp in np.unique(stores["warp"]):
        orders = np.sort(barriers["order"][barriers["warp"] == warp])
        fills.update(np.searchsorted(orders, stores["order"][stores["warp"] == warp]).tolist())
    if not fills:
        raise CourseError("The kernel stored nothing in shared memory.")
    if len(fills) > 1:  # a last turn that fetches nothing more has a barrier and no fill
        return (max(fills) - min(fills)) / (len(fills) - 1)
    return float(np.count_nonzero(barriers["warp"] == barriers["warp"].min(initial=0)))


_FILLS = (AccessKind.STORE, AccessKind.COPY)


@explained
def shared_load_conflicts(run) -> int:
    """Wavefronts that loads took besides what their addresses need at least: lanes wanted different words of one bank. Atomic operations
    load, and store, as well."""
    return sum(count(run, names.shared_conflicts(op)) for op in ("ld", "atom"))


def shared_store_conflicts(run) -> int:
    """The same of stores, as a warp alone would have them (with many, the hardware counts lost turns as well)."""
    return sum(count(run, names.shared_conflicts(op)) for op in ("st", "atom"))


@dataclass(frozen=True)
class Verdict:
    """The answer to one expectation: what was measured, the number this run gave, what was asked, and whether it fits.

    too_much: more than was asked.
    """

    text: str
    yours: float
    expected: str
    ok: bool
    too_much: bool = False
    at: str = ""

    def __str__(self) -> str:
        mark = "pass" if self.ok else "FAIL"
        return f"{mark}  {self.text}: yours {self.yours:g}, expected {self.expected}"


@dataclass(frozen=True)
class Expectation:
    """A number that a kernel's run must meet.

    text: what is measured, for the reader. measure: function of a run. Exactly one of `exactly`, `at_most` and `at_least`, each a
    number or a function of the `Problem`. of_array: the measure is about one array, which needs a traced run. of_order: about
    the order of copies, loads and multiply-adds, which needs one with TraceFilter(math=True). of_whole_tiles: it is not asked of blocks
    that share tiles of C, which leave their sums to each other in device memory. longer: elements by which the leading dimensions are
    larger than in the other runs; below 0: N and K are so much less, and the leading dimensions as they were. beta: of the run. scaled:
    of what a kernel's tile decides, by what the bound is multiplied for a kernel of this geometry.
    """

    text: str
    measure: Callable[[object], float]
    exactly: float | Callable[[Problem], float] | None = None
    at_most: float | Callable[[Problem], float] | None = None
    at_least: float | Callable[[Problem], float] | None = None
    of_array: bool = False
    of_order: bool = False
    of_whole_tiles: bool = False
    longer: int = 0
    beta: float = 0.0
    scaled: Callable[[Geometry], float] | None = None

    def __post_init__(self):
        if sum(bound is not None for bound in (self.exactly, self.at_most, self.at_least)) != 1:
            raise ValueError(f"{self.text}: give one of exactly, at_most and at_least")

    def judge(self, run) -> Verdict:
        """Measure the run and compare."""
        yours = self.measure(run)
        bound = next(bound for bound in (self.exactly, self.at_most, self.at_least) if bound is not None)
        at = f" at K = {shape_of(run).k}" if callable(bound) else ""
        bound = bound(shape_of(run)) if callable(bound) else bound
        if self.scaled is not None:
            bound *= self.scaled(_geometry(run.kernel))
        if self.exactly is not None:
            return Verdict(self.text, yours, f"{bound:g}", yours == bound, yours > bound, at)
        if self.at_least is not None:
            return Verdict(self.text, yours, f"at least {bound:g}", yours >= bound, at=at)
        return Verdict(self.text, yours, f"at most {bound:g}", yours <= bound, yours > bound, at)


_MEASURES: tuple[tuple[str, Callable[..., float]], ...] = (
    (r"sectors per load of (\w+)", lambda run, array: sectors_per_request(run, array, "ld")),
    (r"sectors per store of (\w+)", lambda run, array: sectors_per_request(run, array, "st")),
    (r"loads of (\w+) per result", lambda run, array: accesses_per_result(run, array, "ld")),
    (r"stores of (\w+) per result", lambda run, array: accesses_per_result(run, array, "st")),
    (r"global loads per result", global_loads_per_result),
    (r"shared loads per result", shared_loads_per_result),
    (r"shared stores per result", shared_stores_per_result),
    (r"shared stores per result before the last copy", shared_stores_before_last_copy),
    (r"wavefronts per shared load", wavefronts_per_shared_load),
    (r"wavefronts per asynchronous copy", wavefronts_per_copy),
    (r"wavefronts per multiply-add", shared_wavefronts_per_multiply_add),
    (r"most TFLOPS by shared memory", shared_memory_limit),
    (r"most TFLOPS by instructions", instruction_limit),
    (r"barriers per warp", barriers_per_warp),
    (r"barriers per fill of shared memory", barriers_per_fill),
    (r"barriers passed by each warp", barriers_passed),
    (r"multiply-adds of the busiest warp", multiply_adds_of_a_warp),
    (r"copies at a time", copies_at_a_time),
    (r"multiply-adds behind a tile's loads", multiply_adds_behind_a_tile),
    (r"multiply-adds between a copy and its wait", multiply_adds_behind_copies),
    (r"matrix instructions between a copy and its wait", matrix_instructions_behind_copies),
    (r"shared loads at a time", shared_loads_at_a_time),
    (r"bank conflicts of shared loads", shared_load_conflicts),
    (r"bank conflicts of shared stores", shared_store_conflicts),
    (r"wavefronts of shared loads", lambda run: count(run, names.shared_wavefronts("ld"))),
    (r"wavefronts of shared stores", lambda run: count(run, names.shared_wavefronts("st"))),
    (r"sectors of global loads", lambda run: count(run, names.sectors("global", "ld"))),
    (r"sectors of global stores", lambda run: count(run, names.sectors("global", "st"))),
    (r"global loads", lambda run: count(run, names.requests("global", "ld"))),
    (r"global stores", lambda run: count(run, names.requests("global", "st"))),
    (r"global atomic operations", lambda run: sum(count(run, names.requests("global", op)) for op in ("atom", "red"))),
    (r"shared loads", lambda run: count(run, names.executed("shared_ld"))),
    (r"shared stores", lambda run: count(run, names.executed("shared_st"))),
    (r"multiply-adds", multiply_adds),
    (r"wgmma instructions", lambda run: count(run, names.tensor("gmma"))),
    (r"bulk copies", lambda run: count(run, names.bulk_executed("ld"))),
    (r"successive blocks that share (\w+)", blocks_that_share),
    (r"threads of a warp down a column of (\w+)", threads_down_a_column),
    (r"bulk copies of the busiest block", bulk_copies_of_a_block),
    (r"inits of the busiest mbarrier", inits_of_an_mbarrier),
    (r"stages at a time", stages_at_a_time),
    (r"sectors of bulk copies", lambda run: count(run, names.bulk_sectors("ld"))),
    (r"all instructions", _executed),
    (r"FP64 instructions", lambda run: _executed(run, "DFMA", "DADD", "DMUL")),
    (r"([A-Z0-9]+) instructions", _executed),
    (r"registers per thread", lambda run: _kernel(run).registers),
    (r"bytes spilled per thread", spilled),
    (r"bytes of shared memory per block", lambda run: _shared_bytes(_kernel(run))),
    (r"k of a factor", lambda run: _scale_block(_kernel(run))[1]),  # 0: all of K
    (r"threads per block", lambda run: math.prod(_kernel(run).compiled.constants["block_shape"])),
    (r"warps per multiprocessor", lambda run: _kernel(run).occupancy().warps_per_sm),
    (r"findings", lambda run: len(run.findings)),
)


# What is counted for each line of the source, by the words of what is measured; for a failed expectation's line.
_COUNTERS: tuple[tuple[str, str], ...] = (
    (r"sectors per load of (\w+)|sectors of global loads", names.sectors("global", "ld")),
    (r"sectors per store of (\w+)|sectors of global stores", names.sectors("global", "st")),
    (r"loads of (\w+) per result", names.requests("global", "ld")),
    (r"stores of (\w+) per result", names.requests("global", "st")),
    (r"global loads.*", names.requests("global", "ld")),
    (r"shared loads(?! at a time).*", names.executed("shared_ld")),
    (r"shared stores.*", names.executed("shared_st")),
    (r"wavefronts (?:per|of) shared loads?", names.shared_wavefronts("ld")),
    (r"wavefronts of shared stores", names.shared_wavefronts("st")),
    (r"bank conflicts of shared loads", names.shared_conflicts("ld")),
    (r"bank conflicts of shared stores", names.shared_conflicts("st")),
    (r"barriers per .*", names.opcode("BAR")),
)


def busiest_line(run, words: str) -> int | None:
    """The 1-based line of the source that has most of what these words count in a run; None where lines are not told apart."""
    counter, array = _counted(words)
    if not counter:
        return None
    if counter == names.opcode("BAR") and names.opcode_threads("BAR") in run.counters:
        counter = names.opcode_threads("BAR")
    counted = {number: count(LineOfRun(run, number), counter) for number in (_lines_of(run, array) if array else run.by_line)}
    return max(counted, key=lambda number: counted[number]) if any(counted.values()) else None


def caller_of(run, number: int | None) -> int | None:
    """Of a line that is inline assembly in a function of the cell, the line that calls it for most of its accesses in the run's trace;
    None for others."""
    calls = Counter(site.call for site in (run.trace.sites[index] for index in run.trace.accesses["site"]) if site.line == number)
    return calls.most_common(1)[0][0] if calls else None


def threads_that_take_part(run, words: str) -> float:
    """Of the accesses that these words count per result, the threads of a warp that execute one, on average; 32 of what counts no such
    accesses, and where the trace has none of them."""
    found = re.fullmatch(r"(?:(global|shared) )?(load|store)s(?: of (\w+))? per result", words.removesuffix(_ADDED))
    if not found:
        return WARP
    space, what, array = found.groups()
    op = {"load": "ld", "store": "st"}[what]
    matrix = _OF_MATRICES[op]  # by all threads of a warp, though not each has an address
    trace = run.trace.select(space=space or "global", op={*_READS[op], matrix})
    addresses = trace.addresses
    of_matrices = np.array([site.op == matrix for site in trace.sites], bool)[trace.accesses["site"]]
    threads = np.where(of_matrices, WARP, (addresses >= 0).sum(axis=1))
    if array:
        home = _home(run, array)
        threads = threads[((addresses >= home.base) & (addresses < home.base + home.nbytes)).any(axis=1)]
    return float(threads.mean()) if len(threads) else WARP


def is_part_of(words: str, whole: str) -> bool:
    """Do the first words count, of one array, what the others count of all?"""
    (counter, array), (total, every) = _counted(words), _counted(whole)
    return bool(counter and counter == total and array and not every)


def _counted(words: str) -> tuple[str, str]:
    """The counter that these words name, and the array if they are about one; ("", "") where lines are not told apart."""
    for pattern, counter in _COUNTERS:
        if found := re.fullmatch(pattern, _shared_out(words.removesuffix(_ADDED))[0]):
            return counter, next(filter(None, found.groups()), "")
    return "", ""


def _lines_of(run, array: str) -> set[int]:
    """The lines that access an array."""
    trace = run.trace.select(space="global")
    try:
        home = _home(run, array)
    except NoArrayError:
        return set()
    inside = ((trace.addresses >= home.base) & (trace.addresses < home.base + home.nbytes)).any(axis=1)
    return {trace.sites[index].line for index in np.unique(trace.accesses["site"][inside])}


_ADDED = " where beta is 1"  # what such words may end with

_ORDERED = (
    copies_at_a_time, matrix_instructions_behind_copies, multiply_adds_behind_a_tile, multiply_adds_behind_copies,
    multiply_adds_of_a_warp, shared_loads_at_a_time,
)  # fmt: skip
_TRACED = (
    barriers_per_fill, barriers_passed, bulk_copies_of_a_block, inits_of_an_mbarrier, shared_stores_before_last_copy, stages_at_a_time,
    *_ORDERED,
)  # fmt: skip  # of what is not about an array


_PARTS: dict[str, Callable[[Any], int]] = {
    " of each warp": lambda run: _warps(run),
    " of each block": lambda run: math.prod(run.grid),
    " of each block's warps": lambda run: math.prod(run.grid),
}


@explained
def measure(words: str) -> Callable[[Any], float]:
    """The function of a run that these words name: "sectors per load of A", "shared loads", "LDS instructions". Instructions, loads
    and stores are counted per warp; " of each warp" behind them divides by the launch's warps, " of each block" by its blocks, as
    what one thread of a block starts wants it, and so does " of each block's warps". Registers, spills, threads, shared memory and the
    warps that fit on a multiprocessor (of the recorded runs' GPU) can be asked of a kernel as well. Raises CourseError for other words.
    """
    return _named(str(words))[0]


def _named(words: str) -> tuple[Callable[[Any], float], bool]:
    """The function of `measure`, and whether it needs a traced run."""
    total, many = _shared_out(words)
    if many is not None:
        of_all, traced = _named(total)
        return (lambda run: of_all(run) / many(run)), traced
    for pattern, function in _MEASURES:
        if found := re.fullmatch(pattern, words):
            return _bound(function, found.groups()), r"(\w+)" in pattern or function in _TRACED
    raise CourseError(f"Nothing here counts {words!r}. There are, with A for any array and LDS for any machine instruction: {_known()}.")


def _shared_out(words: str) -> tuple[str, Callable[[Any], int] | None]:
    """What these words count of a launch, and by how many of its parts they divide that; None: they do not."""
    for suffix, many in _PARTS.items():
        if words.endswith(suffix):
            return words.removesuffix(suffix), many
    return words, None


def _kernel(run):
    """What a run ran, or a kernel that was not run."""
    return getattr(run, "kernel", run)


def _scale_block(kernel) -> tuple[int, int, int]:
    from helpers.run.block_scales import scale_block

    said = scale_block(kernel)
    if said is None:
        raise CourseError(f"{kernel.name} states no scale_block: its numbers have no factors.")
    return said


def _shared_bytes(kernel) -> int:
    """Static and dynamic shared memory of a block."""
    return kernel.shared_bytes + _geometry(kernel).shared


def _geometry(kernel) -> Geometry:
    from helpers.run.gemm import geometry

    return geometry(kernel)


def _known() -> str:
    """All words that `measure` knows, A and LDS standing for others."""
    return "; ".join(pattern.replace(r"(\w+)", "A").replace("([A-Z0-9]+)", "LDS") for pattern, _ in _MEASURES)


@dataclass(frozen=True)
class LineOfRun:
    """What one line of the source did in a run; for everything that asks a run for its counters."""

    run: Any
    number: int  # 1-based

    @property
    def counters(self):
        return self.run.by_line.get(self.number, {})

    def __getattr__(self, name: str):
        return getattr(self.run, name)


@explained
def line_number(kernel, text: str) -> int:
    """1-based number of the first line of a kernel's source with `text` in it, as findings and pictures count lines.

    Raises CourseError if there is none.
    """
    if not isinstance(text, str) or not text:
        raise CourseError(f"A line is found by a piece of its text, such as line_number(kernel, '__syncthreads'), and not by {text!r}.")
    for number, line in enumerate(kernel.source.split("\n"), 1):
        if text in line:
            return number
    raise CourseError(f"{kernel.name} has no line with “{text}”. If you have changed that line, change the text here as well.")


@explained
def at_line(run, text: str) -> LineOfRun:
    """The part of a run that the first line with `text` did. Raises CourseError if there is no such line."""
    _need_run(run)
    return LineOfRun(run, line_number(run.kernel, text))


def expect(sentence: str, of_whole_tiles: bool = False, scaled: Callable[[Geometry], float] | None = None) -> Expectation:
    """An expectation from a sentence: "sectors per load of A <= 4", "barriers per warp == 1/16 K + 1".
    of_whole_tiles, scaled: as in `Expectation`.

    The bound is a number, a fraction, or one of them times K and then some. "global loads where rows are 2 longer == 8" is about a run in
    which the leading dimensions are larger by so much, "where rows are 3 shorter" about one in which N and K are less by so much and the
    leading dimensions are not, "where beta is 1" about one with this beta; else it is 0. Raises CourseError for a sentence it
    does not know.
    """
    text = sentence.strip() if isinstance(sentence, str) else ""
    match = re.fullmatch(r"(.+?) (<=|==|>=) (\d+(?:\.\d+|/0*[1-9]\d*)?)(?:( K)(?: \+ (\d+))?)?", text)
    if match:
        text, relation, number, per_k, more = match.groups()
        what, _, where = text.partition(" where ")
        apart, added = re.fullmatch(r"rows are (\d+) (longer|shorter)", where), re.fullmatch(r"beta is (\d+)", where)
        longer = int(apart[1]) * (1 if apart[2] == "longer" else -1) if apart else 0
        beta = float(added[1]) if added else 0.0
        what = text if where and not (apart or added) else what
        factor = Fraction(number)
        bound = (lambda shape: float(factor * shape.k + int(more or 0))) if per_k else float(factor)
        bounds = {{"==": "exactly", "<=": "at_most", ">=": "at_least"}[relation]: bound}
        with contextlib.suppress(CourseError):
            function, traced = _named(what)
            return Expectation(
                text, function, **bounds, of_array=traced, of_order=function in _ORDERED, of_whole_tiles=of_whole_tiles, longer=longer,
                beta=beta, scaled=scaled,
            )  # fmt: skip
    raise CourseError(
        f"{sentence!r} is not an expectation. Write one of [{_known()}], then <=, == or >=, then a number or a multiple of K."
    )


def _bound(measure: Callable[..., float], arguments: tuple[str, ...]) -> Callable[[object], float]:
    return (lambda run: measure(run, *arguments)) if arguments else measure
