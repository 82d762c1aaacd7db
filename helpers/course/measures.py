"""What can be asked of a run, as numbers: sectors per request, loads per result, conflicts.

Pure functions of a `Run`, shared by the step table, the exercises and the notebooks, so that a rule such as
"at most 4 sectors per request" is written once. Everything is computed from the run's counters or, where a question
is about one array, from its trace; nothing is looked up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from helpers.errors import CourseError
from helpers.sim.code.hardware_units import SECTOR_BYTES, WARP
from helpers.sim.code.sites import AccessKind, CostRule
from helpers.sim.counting import names

if TYPE_CHECKING:  # the step table imports this module, and must stay quick to import
    from helpers.run.gemm import Problem

_COUNTED_AS = {"ld": (AccessKind.LOAD, AccessKind.COPY), "st": (AccessKind.STORE,)}  # as the counters of global memory do


def shape_of(run) -> Problem:
    """The product that a run with the course's signature computed: its first three arguments are M, N, K."""
    from helpers.run.gemm import Problem

    m, n, k = (int(value) for value in run.arguments[:3])
    return Problem(m, n, k)


def count(run, name: str) -> int:
    """A counter of the run, 0 if the kernel did nothing of that kind."""
    return int(run.counters.get(name, 0))


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
    """Distinct aligned pieces of `nbytes` (32: sectors, 128: lines) that one access to `array` touches, on average.

    Raises CourseError if there was no such access, or if the run's trace is missing or was cut short.
    """
    from helpers.sim.counting import rules, traced

    trace = run.trace
    if trace.truncated:
        raise CourseError("The trace was cut short, so it cannot answer for one array. Use a smaller matrix.")
    arrays = {a.name: a for a in trace.allocations if a.space == "global"}
    if array not in arrays:
        raise CourseError(f"The kernel has no array {array}; it has {', '.join(arrays) or 'none'}.")
    low, high = arrays[array].base, arrays[array].base + arrays[array].nbytes
    requests = pieces = 0
    inside = ((trace.addresses >= low) & (trace.addresses < high)).any(axis=1)
    for index, site in enumerate(trace.sites):
        if site.space != "global" or site.op not in _COUNTED_AS[op] or not site.width:
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
    return _per_request(pieces, requests, op, array)


def _per_request(pieces: int, requests: int, op: str, array: str = "") -> float:
    if not requests:
        what = {"ld": "loads", "st": "stores"}[op]
        raise CourseError(f"The kernel made no global {what}" + (f" of {array}." if array else "."))
    return pieces / requests


def different_sectors(run, array: str, op: str = "ld") -> int:
    """How many different sectors of `array` a run's loads and copies (op "ld") or stores ("st") touch: what has to come from DRAM, or go
    there, where no cache holds it. Needs a traced run; 0 if there was no such access.
    """
    trace = run.trace.select(space="global")
    home = next((item for item in trace.allocations if item.name == array and item.space == "global"), None)
    if home is None:
        return 0
    chosen = np.isin(trace.accesses["site"], [i for i, site in enumerate(trace.sites) if site.op in _COUNTED_AS[op] and site.width])
    addresses = trace.addresses[chosen]
    inside = (addresses >= home.base) & (addresses < home.base + home.nbytes)
    return len(np.unique(addresses[inside] // SECTOR_BYTES))


def global_loads_per_result(run) -> float:
    """Global load instructions each thread executes, per element of C it is responsible for (a full warp counts 32)."""
    shape = shape_of(run)
    return WARP * count(run, names.requests("global", "ld")) / (shape.m * shape.n)


def shared_loads_per_result(run) -> float:
    """Shared-memory load instructions per element of C (a full warp counts 32; a 128-bit load counts once)."""
    shape = shape_of(run)
    return WARP * count(run, names.executed("shared_ld")) / (shape.m * shape.n)


def bytes_requested(run) -> int:
    """Bytes in all sectors that the kernel asked the L1 cache for, loads and stores of global memory."""
    return SECTOR_BYTES * sum(count(run, names.sectors("global", op)) for op in ("ld", "st"))


def shared_passes_per_multiply_add(run) -> float:
    """Passes through shared memory (wavefronts of loads and stores) for each multiply-add of a whole warp.

    Raises CourseError for a kernel that does no multiply-add.
    """
    multiply_adds = count(run, names.threads("ffma")) / WARP
    if not multiply_adds:
        raise CourseError("The kernel did no float32 multiply-add.")
    return sum(count(run, names.shared_wavefronts(op)) for op in ("ld", "st")) / multiply_adds


def wavefronts_per_shared_load(run) -> float:
    """Passes through shared memory that one warp-wide load of it takes, on average: 1 at best, for 128-bit loads 2.

    Raises CourseError for a kernel that loads nothing from shared memory.
    """
    loads = count(run, names.executed("shared_ld"))
    if not loads:
        raise CourseError("The kernel made no shared loads.")
    return count(run, names.shared_wavefronts("ld")) / loads


def shared_stores_per_result(run) -> float:
    """Shared-memory store instructions per element of C (a full warp counts 32). Asynchronous copies are not stores."""
    shape = shape_of(run)
    return WARP * count(run, names.executed("shared_st")) / (shape.m * shape.n)


def barriers_per_warp(run) -> float:
    """Barriers of the whole block that each warp passes. Raises CourseError where instructions were not counted."""
    name = names.opcode("BAR")
    if names.INSTRUCTIONS not in run.counters:
        raise CourseError("The machine instructions of this kernel could not be counted, so its barriers are not known.")
    warps = math.prod(run.grid) * -(-math.prod(run.block) // WARP)
    return count(run, name) / warps


def shared_load_conflicts(run) -> int:
    """Extra trips to shared memory that loads made because several lanes wanted different words of one bank."""
    return count(run, names.shared_conflicts("ld"))


def shared_store_conflicts(run) -> int:
    """The same of stores, as a warp alone would have them (with many, the hardware counts lost turns as well)."""
    return count(run, names.shared_conflicts("st"))


@dataclass(frozen=True)
class Verdict:
    """The answer to one expectation: what was measured, the number this run gave, what was asked, and whether it fits."""

    text: str
    yours: float
    expected: str
    ok: bool

    def __str__(self) -> str:
        mark = "pass" if self.ok else "FAIL"
        return f"{mark}  {self.text}: yours {self.yours:g}, expected {self.expected}"


@dataclass(frozen=True)
class Expectation:
    """A number that a kernel's run must meet.

    text: what is measured, for the reader. measure: function of a run. Exactly one of `exactly` and `at_most`, each a
    number or a function of the `Problem`.
    """

    text: str
    measure: Callable[[object], float]
    exactly: float | Callable[[Problem], float] | None = None
    at_most: float | Callable[[Problem], float] | None = None

    def __post_init__(self):
        if (self.exactly is None) == (self.at_most is None):
            raise ValueError(f"{self.text}: give one of exactly and at_most")

    def judge(self, run) -> Verdict:
        """Measure the run and compare."""
        yours = self.measure(run)
        bound = self.exactly if self.exactly is not None else self.at_most
        bound = bound(shape_of(run)) if callable(bound) else bound
        if self.exactly is not None:
            return Verdict(self.text, yours, f"{bound:g}", yours == bound)
        return Verdict(self.text, yours, f"at most {bound:g}", yours <= bound)


_SENTENCES: tuple[tuple[str, Callable[..., float]], ...] = (
    (r"sectors per load of (\w+)", lambda run, array: sectors_per_request(run, array, "ld")),
    (r"sectors per store of (\w+)", lambda run, array: sectors_per_request(run, array, "st")),
    (r"global loads per result", global_loads_per_result),
    (r"shared loads per result", shared_loads_per_result),
    (r"shared stores per result", shared_stores_per_result),
    (r"wavefronts per shared load", wavefronts_per_shared_load),
    (r"barriers per warp", barriers_per_warp),
    (r"bank conflicts of shared loads", shared_load_conflicts),
    (r"bank conflicts of shared stores", shared_store_conflicts),
)


def expect(sentence: str) -> Expectation:
    """An expectation from a sentence: "sectors per load of A <= 4", "global loads per result == 1/16 K".

    The bound is a number, a fraction, or one of them times K. Raises ValueError for a sentence it does not know.
    """
    match = re.fullmatch(r"(.+?) (<=|==) (\d+(?:\.\d+|/\d+)?)( K)?", sentence.strip())
    if match:
        what, relation, number, per_k = match.groups()
        factor = Fraction(number)
        bound = (lambda shape: float(factor * shape.k)) if per_k else float(factor)
        for pattern, measure in _SENTENCES:
            if found := re.fullmatch(pattern, what):
                bounds = {"exactly": bound} if relation == "==" else {"at_most": bound}
                return Expectation(what, _bound(measure, found.groups()), **bounds)
    known = "; ".join(pattern.replace(r"(\w+)", "A") for pattern, _ in _SENTENCES)
    raise ValueError(f"{sentence!r} is not an expectation. Write one of [{known}], then <= or ==, then a number or a multiple of K.")


def _bound(measure: Callable[..., float], arguments: tuple[str, ...]) -> Callable[[object], float]:
    return lambda run: measure(run, *arguments)
